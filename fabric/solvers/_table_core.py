"""Rounds over gather tables inside a transformation, with their own rule for `vmap`."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ops import segment_min

from fabric._typing import AnyArray, FlowFloats, LinkFloats
from fabric.kernels._local_rounds import Filling, Usage
from fabric.kernels._structure import Structure, hashed_rank
from fabric.kernels._table_rounds import Placed, Tables, table_rounds
from fabric.network import Routes
from fabric.solvers._cores import Rounds
from fabric.solvers._plan import compiled_plan
from fabric.solvers._rounds import first_tables, private_links
from fabric.solvers._table_plan import TablePlan


class TableRounds:
    """Vectorised rounds over tables of concrete routes, otherwise as `Rounds`: any device."""

    def __init__(self, routes: Routes, max_rounds: int):
        self.routes, self.n_bundles = routes, routes.n_bundles
        self._plain, self._max_rounds = Rounds(routes.n_bundles, max_rounds), max_rounds

    def fill(
        self, capacity: LinkFloats, weight: FlowFloats, cap: FlowFloats, usage: Usage
    ) -> Filling:
        """Return the filled state."""
        run = lambda c, w, k: fill(self.routes, c, w, k, self._max_rounds)
        return _batch_last(run)(capacity, weight, cap)

    def structure(
        self,
        filling: Filling,
        capacity: LinkFloats,
        weight: FlowFloats,
        cap: FlowFloats,
        usage: Usage,
    ) -> Structure:
        """Return who stops whom."""
        return self._plain.structure(filling, capacity, weight, cap, usage)

    def solve(
        self, s: Structure, right: LinkFloats, weight: FlowFloats, usage: Usage, *, transpose: bool
    ) -> LinkFloats:
        """Return the solution of the system over the structure, or of its transpose."""
        return self._plain.solve(s, right, weight, usage, transpose=transpose)


def tabled(routes: Routes, max_rounds: int) -> TableRounds | Rounds:
    """Return rounds over tables, or plain ones where bundles are wide."""
    if compiled_plan(routes).wide:
        return Rounds(routes.n_bundles, max_rounds)
    return TableRounds(routes, max_rounds)


def fill(
    routes: Routes, capacity: AnyArray, weight: AnyArray, cap: AnyArray, max_rounds: int
) -> Filling:
    """Return the filled state of routes that are not wide, without leaving the device.

    Args:
        routes: Concrete.
        capacity: (links,), byte/s.
        weight: (flows,).
        cap: (flows,), byte/s. A batch has an axis more at the end of all three.
        max_rounds: The limit.
    """
    kind = np.dtype(capacity.dtype)
    held = first_tables(routes, kind)
    assert held is not None  # the caller asked whether bundles are wide
    return _fill(held.tables, _spots(routes, held, kind), capacity, weight, cap, max_rounds)


class Spots(NamedTuple):
    """Which class of links each link belongs to, and which flow and class stands where."""

    link_class: AnyArray  # (links,), one past the end for a link that carries nothing
    rank: AnyArray  # (links,), see `hashed_rank`
    link_of: AnyArray  # (links,), see `hashed_rank`
    alone: AnyArray  # (flows,), class of the link that a flow has to itself, -1 for none
    alone_use: AnyArray  # (flows,)
    place: AnyArray  # (flows,), -1 for a flow in no table
    flow_at: AnyArray  # (places,), -1 for padding
    class_at: AnyArray  # (places,), -1 for padding
    classes: AnyArray  # (classes,), only its length counts


def _spots(routes: Routes, held: TablePlan, kind: np.dtype) -> Spots:
    """Return what the routes say of places, from their cache."""
    if ("spots", kind) not in routes.plans:
        plan = compiled_plan(routes)
        rank, link_of = hashed_rank(routes.n_links)
        alone, use = private_links(plan)
        place = np.full(routes.n_flows, -1, np.int32)
        place[held.hops.flow] = held.place
        link_class = np.where(plan.class_of < 0, plan.n_classes, plan.class_of)
        ints = lambda x: jnp.asarray(x, jnp.int32)
        # Like the tables, these outlive the trace that first asks for them.
        with jax.ensure_compile_time_eval():
            routes.plans["spots", kind] = Spots(
                ints(link_class), ints(rank), ints(link_of), ints(alone), jnp.asarray(use, kind),
                ints(place), ints(held.flow_at), ints(held.link_at),
                jnp.zeros(plan.n_classes, bool),
            )  # fmt: skip
    return routes.plans["spots", kind]


@jax.jit
def _fill(
    tables: Tables,
    spots: Spots,
    capacity: AnyArray,
    weight: AnyArray,
    cap: AnyArray,
    max_rounds: AnyArray,
) -> Filling:
    """Return the filled state; a batch of problems has it along a last axis of each array."""
    n_links, n_classes, kind = capacity.shape[0], spots.classes.shape[0], capacity.dtype
    infinite = jnp.asarray(jnp.inf, kind)
    to_classes = lambda per_link: segment_min(per_link, spots.link_class, n_classes)
    least = to_classes(capacity)
    # The smallest link of a class stands for it, the first by rank at a tie.
    smallest = capacity <= _at(least, spots.link_class, infinite)
    rank = jnp.where(smallest, _along(spots.rank, capacity), jnp.int32(n_links))
    class_link = spots.link_of[jnp.minimum(to_classes(rank), max(n_links - 1, 0))]
    cap_level = _over(cap, weight)
    alone = _over(_at(least, spots.alone, infinite), _along(spots.alone_use, weight) * weight)
    own = jnp.minimum(cap_level, alone)

    left = _at(least, spots.class_at, jnp.zeros((), kind))
    at_flows = lambda values, none: _at(values, spots.flow_at, jnp.asarray(none, kind))
    start = jnp.where(_along(spots.flow_at, left) >= 0, infinite, 0)
    problem = Placed(left, jnp.zeros_like(left), at_flows(weight, 0), at_flows(own, jnp.inf), start)
    end = table_rounds(tables, problem, jnp.int32(0), max_rounds)

    none = jnp.int32(-1)
    placed = _along(spots.place, own) >= 0
    level = jnp.where(placed, _at(end.level, spots.place, infinite), own)
    stopper = _at(end.stopper, spots.place, none)
    # A place, then a class, then a link.
    by_class = _at(spots.class_at, stopper, none)
    by_own = (by_class < 0) & (own < cap_level) & (level <= own)
    by_class = jnp.where(by_own, _along(spots.alone, own), by_class)
    return Filling(
        level=level,
        bottleneck=_of_each(class_link, by_class, none),
        live=placed & jnp.isinf(level),
        used=jnp.zeros_like(capacity),
        rounds=end.rounds,
    )


def _over(x: AnyArray, y: AnyArray) -> AnyArray:
    """Return x / y, rounded alike with and without a batch.

    XLA divides by what is broadcast through its reciprocal, which is an ulp off.
    """
    y = jnp.broadcast_to(y, jnp.broadcast_shapes(x.shape, y.shape))
    return x / jax.lax.optimization_barrier(y)


def _at(values: AnyArray, index: AnyArray, none: AnyArray) -> AnyArray:
    """Return `values[index]` along the first axis, `none` where the index is out of range."""
    if not values.shape[0]:
        return jnp.full(index.shape + values.shape[1:], none)
    known = (index >= 0) & (index < values.shape[0])
    found = values[jnp.clip(index, 0, values.shape[0] - 1)]
    return jnp.where(_along(known, found), found, none)


def _of_each(values: AnyArray, index: AnyArray, none: AnyArray) -> AnyArray:
    """Return `values[index]`, `none` where negative; of a batch each has its own index."""
    if not values.shape[0]:
        return jnp.full(index.shape, none)
    safe = jnp.maximum(index, 0)
    if index.ndim > 1:
        shape = jnp.broadcast_shapes(values.shape[1:], index.shape[1:])
        values = jnp.broadcast_to(values, (values.shape[0], *shape))
        safe = jnp.broadcast_to(safe, (safe.shape[0], *shape))
    return jnp.where(index < 0, none, jnp.take_along_axis(values, safe, axis=0))


def _along(values: AnyArray, like: AnyArray) -> AnyArray:
    """Return the values with an axis more where `like` has a batch."""
    return values.reshape(*values.shape, *([1] * (like.ndim - values.ndim)))


def _batch_last(run: Callable[..., Filling]) -> Callable[..., Filling]:
    """Return a function that runs once for a whole batch, with the batch as the last axis.

    Left to itself, `vmap` puts the batch first, and a gather then reads one value at a time.
    """
    many = jax.custom_batching.custom_vmap(run)

    @many.def_vmap
    def of_many(size: int, batched: list[bool], *problem: AnyArray) -> tuple[Filling, Filling]:
        # Each has one for all, or one each: none, where the batch is empty.
        inner = next((n for x in problem if (n := x.shape[-1]) != 1), 1)

        def merged(x: AnyArray, is_batched: bool) -> AnyArray:
            x = jnp.moveaxis(x, 0, -1) if is_batched else x[..., None]
            return jnp.broadcast_to(x, (x.shape[0], inner, size)).reshape(x.shape[0], inner * size)

        out = many(*(merged(x, b) for x, b in zip(problem, batched, strict=True)))
        split = lambda x: jnp.moveaxis(x.reshape(*x.shape[:-1], inner, size), -1, 0)
        return jax.tree.map(split, out), jax.tree.map(lambda _: True, out)

    one = jax.custom_batching.custom_vmap(run)

    @one.def_vmap
    def of_one(size: int, batched: list[bool], *problem: AnyArray) -> tuple[Filling, Filling]:
        last = lambda x, is_batched: jnp.moveaxis(x, 0, -1) if is_batched else x[:, None]
        out = many(*(last(x, b) for x, b in zip(problem, batched, strict=True)))
        wide = lambda x: jnp.broadcast_to(x, (*x.shape[:-1], size))
        first = lambda x: jnp.moveaxis(wide(x), -1, 0)
        return jax.tree.map(first, out), jax.tree.map(lambda _: True, out)

    return one
