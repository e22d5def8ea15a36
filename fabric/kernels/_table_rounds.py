"""Max-min levels by local-minimum rounds over gather tables: no scatter, on any device.

The rounds are those of `fabric.kernels._local_rounds`. Here flows and links stand in buckets of
nearly the same degree, and each bucket is one dense table of places, so that every reduction is a
gather and a reduction along the first axis: four passes over the hops in a round, in a fixed
order, so that the result does not depend on the device or on a batch.

    1  links gather rates:   what is left of a link over the weight of its live flows is its share
    2  flows gather shares:  the smallest on its way, or its cap, is what a flow wishes
    3  links gather wishes:  a link is full when its share is the smallest of them
    4  flows gather those:   a flow on a full link stops

What is left of a link is kept as an unevaluated sum of two floats (two-sum), since that is where
float32 loses its digits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fabric._typing import AnyArray
from fabric.kernels._local_rounds import TIE_ULPS

PASSES = 4
"""Passes over all hops in one round."""


class Tables(NamedTuple):
    """Who crosses what, by place; the last flow and the last link are padding.

    Padding flows weigh nothing and are never live; padding links carry nothing.
    """

    path: tuple[AnyArray, ...]  # (hops, flows) per bucket of flows: places of links
    flow: tuple[AnyArray, ...]  # (width, links) per bucket of links: places of flows
    use: tuple[AnyArray, ...]  # as `flow`; none where every use is 1

    @property
    def n_flows(self) -> int:
        """Places of flows."""
        return sum(table.shape[1] for table in self.path)

    @property
    def n_links(self) -> int:
        """Places of links."""
        return sum(table.shape[1] for table in self.flow)


class Placed(NamedTuple):
    """A problem by place; a batch of them has it along a last axis of each array."""

    left: AnyArray  # (links,), what the flows of these tables may use, and
    low: AnyArray  # (links,), the low part of it
    weight: AnyArray | None  # (flows,); None: every flow weighs 1
    cap_level: AnyArray  # (flows,), cap over weight
    level: AnyArray  # (flows,), infinite while live


class TableFilling(NamedTuple):
    """What is known after some rounds, by place."""

    level: AnyArray  # (flows,), infinite while live
    rate: AnyArray  # (flows,), weight times level
    stopper: AnyArray  # (flows,), place of the link that stopped it; -1: its cap, or none
    live: AnyArray  # flows
    rounds: AnyArray


def table_rounds(
    tables: Tables, problem: Placed, goal: AnyArray, max_rounds: AnyArray
) -> TableFilling:
    """Return the state when at most `goal` flows are live, or after `max_rounds`.

    Args:
        tables: Who crosses what.
        problem: Capacities, weights and caps. All of its arrays have a batch axis, of one or of
            as many, or none has.
        goal: Live flows (of the fullest of a batch) at which to stop.
        max_rounds: The limit.

    Not to be differentiated: see `fabric.solvers._levels` for the rule that is.
    """
    kind = problem.left.dtype
    infinite = jnp.asarray(jnp.inf, kind)
    slack = 1.0 if kind == jnp.float64 else 1.0 + TIE_ULPS * float(jnp.finfo(kind).eps)
    slack, none = jnp.asarray(slack, kind), jnp.int32(tables.n_links)
    entries = _entries(tables, problem)
    link_at = _starts(tables.flow)
    weight = jnp.asarray(1, kind) if problem.weight is None else problem.weight
    most = lambda counts: jnp.max(counts, initial=0)  # of an empty batch too

    def step(now: TableFilling) -> TableFilling:
        going = most(now.live) > goal
        shares = []
        for table, m, at in zip(tables.flow, entries, link_at, strict=True):
            growth, used, used_low = _live_and_frozen(_get(now.rate, table), m)
            rows = slice(at, at + table.shape[1])
            left = _less(problem.left[rows], problem.low[rows], used, used_low)
            growing = growth > 0
            per_growth = jnp.maximum(left, 0) / jnp.where(growing, growth, 1)
            shares.append(jnp.where(growing, per_growth, infinite))
        share = _settled(_joined(shares), going)
        least = [jnp.min(_get(share, table), 0) for table in tables.path]
        wish = jnp.minimum(_joined(least), problem.cap_level)
        live = jnp.isinf(now.level)
        wanted = _settled(jnp.where(live, wish, infinite), going)
        full = []
        for table, at in zip(tables.flow, link_at, strict=True):
            own = share[at : at + table.shape[1]]
            is_full = (own < infinite) & (own <= jnp.min(_get(wanted, table), 0) * slack)
            place = jnp.arange(at, at + table.shape[1], dtype=jnp.int32)
            full.append(jnp.where(is_full, _along(place, own), none))
        full = _settled(_joined(full), going)
        stopper = _joined([jnp.min(_get(full, table), 0) for table in tables.path])
        capped = wish >= problem.cap_level
        stop = live & (capped | (stopper < none))
        level = jnp.where(stop, wish, now.level)
        return TableFilling(
            level=level,
            rate=jnp.where(stop, weight * wish, now.rate),
            stopper=jnp.where(stop, jnp.where(capped, -1, stopper), now.stopper),
            live=_count(level),
            rounds=now.rounds + (now.live > 0).astype(jnp.int32),
        )

    shape = jnp.broadcast_shapes(*(x.shape[1:] for x in problem if x is not None))
    level = jnp.broadcast_to(problem.level, (tables.n_flows, *shape))
    start = TableFilling(
        level=level,
        rate=level,
        stopper=jnp.full(level.shape, -1, jnp.int32),
        live=_count(level),
        rounds=jnp.zeros(shape, jnp.int32),
    )
    going = lambda now: (most(now.live) > goal) & (most(now.rounds) < max_rounds)
    return jax.lax.while_loop(going, step, start)


class _Entries(NamedTuple):
    """What every entry of a table adds, None where that is 1."""

    use: AnyArray | None  # times the rate of a frozen flow: load
    growth: AnyArray | None  # of a live flow


def _entries(tables: Tables, problem: Placed) -> list[_Entries]:
    use = tables.use or (None,) * len(tables.flow)
    if problem.weight is None:
        return [_Entries(u, u) for u in use]
    weights = [_get(problem.weight, table) for table in tables.flow]
    pairs = zip(use, weights, strict=True)
    return [_Entries(u, w if u is None else _along(u, w) * w) for u, w in pairs]


def _live_and_frozen(rate: AnyArray, m: _Entries) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return the live weight of every link, and the load of its frozen flows as two floats."""
    live = jnp.isinf(rate)
    zero = jnp.zeros((), rate.dtype)
    # A product here may or may not be fused with the sum, and then differ by its rounding: rates
    # are kept as products already, and a use is mostly 1.
    load = jnp.where(live, zero, rate)
    growth = live.astype(rate.dtype)
    if m.use is not None:
        load = _along(m.use, load) * load
    if m.growth is not None:
        growth = jnp.where(live, _along(m.growth, growth), zero)

    def add(a: Sequence[AnyArray], b: Sequence[AnyArray]) -> tuple[AnyArray, ...]:
        total = a[1] + b[1]
        part = total - a[1]
        return a[0] + b[0], total, a[2] + b[2] + ((a[1] - (total - part)) + (b[1] - part))

    terms = (growth, load, jnp.zeros_like(load))
    growth, high, low = jax.lax.reduce(terms, (zero, zero, zero), add, (0,))
    return growth, high, low


def _less(high: AnyArray, low: AnyArray, used: AnyArray, used_low: AnyArray) -> AnyArray:
    """Return (high + low) - (used + used_low), each a sum of two floats."""
    left = high - used
    part = left - high
    return left + (((high - (left - part)) - (used + part)) + (low - used_low))


def _get(values: AnyArray, table: AnyArray) -> AnyArray:
    return jnp.asarray(values).at[table].get(mode="promise_in_bounds")


def _along(table: AnyArray, like: AnyArray) -> AnyArray:
    """Return the table with an axis more where `like` has a batch."""
    return table.reshape(*table.shape, *([1] * (like.ndim - table.ndim)))


def _starts(tables: Sequence[AnyArray]) -> list[int]:
    starts = [0]
    for table in tables:
        starts.append(starts[-1] + table.shape[1])
    return starts[:-1]


def _joined(pieces: Sequence[AnyArray]) -> AnyArray:
    """Return the pieces one after another, written in place.

    XLA fuses a concatenation into what reads it, and looks for the piece at every entry.
    """
    if len(pieces) == 1:
        return pieces[0]
    n = sum(piece.shape[0] for piece in pieces)
    joined = jnp.zeros((n, *pieces[0].shape[1:]), pieces[0].dtype)
    for piece, at in zip(pieces, _starts([x[None] for x in pieces]), strict=True):
        joined = jax.lax.dynamic_update_slice_in_dim(joined, piece, at, 0)
    return joined


def _settled(values: AnyArray, going: AnyArray) -> AnyArray:
    """Return the values, worked out before anything reads them.

    XLA on a CPU fuses what makes an array into the gather from it, and works an entry out anew
    each time it is read. A branch stops that; `going` holds inside the loop.
    """
    branch = lambda values, going: jax.lax.cond(going, lambda x: x, jnp.zeros_like, values)
    return jax.lax.platform_dependent(
        values, going, cpu=branch, default=lambda values, going: values
    )


def _count(level: AnyArray) -> AnyArray:
    return jnp.sum(jnp.isinf(level), axis=0, dtype=jnp.int32)
