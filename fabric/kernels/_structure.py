"""Who stops whom: the bottleneck structure of a solution, and linear systems over it.

With b(f) the bottleneck of flow f (a link, or its cap), the levels of a solution obey

    sum over f on l of M_lf t_f = c_l   for every active link l,      t_f = s_{b(f)},

where l is active if it is some flow's bottleneck and M_lf is the use of l by f times the weight
of f. Differentiating gives a linear system in the link levels s. A link depends on the links that
stop the other flows on it, and these dependencies have no circle, so that sweeps solve it: in
each, the links whose dependencies are all final become final themselves.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ops import segment_sum

from fabric._typing import AnyArray, FlowFloats, LinkFloats
from fabric.kernels._local_rounds import Axis, Ends, Usage

NEAR = {"float64": 1e-12, "float32": 32 * 2.0**-23}
"""Levels and loads that differ by less than this, relative, count as equal."""


class Structure(NamedTuple):
    """The bottleneck of every flow, and what the sweeps need to know about it."""

    level: AnyArray  # (flows,)
    bottleneck: AnyArray  # (flows,), n_links: stopped by its cap, or not at all
    capped: AnyArray  # (flows,)
    active: AnyArray  # (links,), is the bottleneck of some flow
    diagonal: AnyArray  # (links,), sum of M_lf over the flows that l stops
    own: AnyArray  # (links,), entries of those flows on l
    saturated: AnyArray  # (links,)
    margin: AnyArray  # smallest relative gap between competing shares


@functools.cache
def hashed_rank(n_links: int) -> tuple[AnyArray, AnyArray]:
    """Return (rank of every link, link of every rank): the fixed priority that settles ties.

    By plain link number the dependencies of a ring would be as deep as the ring is long.
    """
    z = np.arange(n_links, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    link_of = np.argsort(z ^ (z >> np.uint64(31)), kind="stable").astype(np.int32)
    rank = np.empty_like(link_of)
    rank[link_of] = np.arange(n_links, dtype=np.int32)
    return rank, link_of


def structure(
    level: FlowFloats,
    stopper: AnyArray,
    capacity: LinkFloats,
    weight: FlowFloats,
    cap: FlowFloats,
    usage: Usage,
    n_bundles: int,
    rank: AnyArray,
    link_of: AnyArray,
    axis: Axis = None,
) -> Structure:
    """Return the structure of a solution: a function of the solution, not of the way to it.

    A flow's bottleneck is its cap if it has reached it, otherwise the first full link, by rank,
    on which no flow has a higher level.

    Args:
        level: (flows,), infinite where nothing stops the flow.
        stopper: (flows,), the link recorded while filling, negative for none; counts as full.
        capacity: (links,).
        weight: (flows,).
        cap: (flows,).
        usage: Which flow crosses which link.
        n_bundles: Static.
        rank: (links,), see `hashed_rank`.
        link_of: (links,), see `hashed_rank`.
        axis: Static. See `Ends`.
    """
    n_flows, n_links = weight.shape[0], capacity.shape[0]
    kind = capacity.dtype
    near = NEAR[str(kind)]
    low, high = jnp.asarray(1 - near, kind), jnp.asarray(1 + near, kind)
    infinite, none = jnp.asarray(jnp.inf, kind), jnp.int32(n_links)
    ends = Ends(usage, n_flows, n_bundles, n_links, axis)
    finite = jnp.isfinite(level)
    settled = jnp.where(finite, level, 0)

    load = ends.sum_to_links(weight * settled)
    top = ends.max_to_links(settled, -infinite)
    used = top >= 0
    stopping = jnp.zeros(n_links, bool).at[stopper].max(stopper >= 0, mode="drop")
    full = used & (stopping | (load >= capacity * low))
    cap_level = cap / weight
    capped = finite & (settled >= cap_level * low)

    # Per bundle: the first of its full links whose top is the lowest.
    full_part = ends.carried & ends.of_links(full)
    top_part = ends.of_links(top)
    bundle_top = ends.part_min(jnp.where(full_part, top_part, infinite))
    part_first = full_part & (top_part <= ends.of_parts(bundle_top) * high)
    pick = jnp.minimum(ends.part_min(jnp.where(part_first, ends.of_links(rank), none)), none)
    hop_first = jnp.where(
        ends.crosses & (settled[usage.hop_flow] >= bundle_top[usage.hop_bundle] * low),
        pick[usage.hop_bundle],
        none,
    )
    first = jnp.minimum(ends.flow_min(hop_first), none)
    by_link = finite & ~capped & (first < n_links)
    bottleneck = jnp.where(by_link, jnp.append(link_of, none)[first], none)
    # Only float32 can fail to find a link that is full and top; then the recorded one stands.
    lost = finite & ~capped & (first == n_links) & (stopper >= 0)
    bottleneck = jnp.where(lost, stopper, bottleneck)

    # A flow is an own flow of its bottleneck; the other flows there have another bottleneck.
    own_hop = ends.crosses & by_link[usage.hop_flow]
    own_hop &= first[usage.hop_flow] == pick[usage.hop_bundle]
    picked = ends.carried & (ends.of_links(rank) == ends.of_parts(pick))
    m = usage.hop_use * weight[usage.hop_flow]
    own_weight = ends.hop_sum(jnp.where(own_hop, m, 0))
    own_count = ends.hop_sum(own_hop.astype(jnp.int32))
    diagonal = ends.part_sum(jnp.where(picked, ends.carried_use * ends.of_parts(own_weight), 0))
    own = ends.part_sum(jnp.where(picked, ends.of_parts(own_count), 0))

    margin = tie_margin(
        settled,
        cap_level,
        capacity,
        load,
        top,
        used,
        full,
        finite & ~capped,
        own_hop,
        picked,
        ends,
    )
    return Structure(level, bottleneck, capped, own > 0, diagonal, own, full, margin)


def tie_margin(
    level: FlowFloats,
    cap_level: FlowFloats,
    capacity: LinkFloats,
    load: LinkFloats,
    top: LinkFloats,
    used: AnyArray,
    full: AnyArray,
    growing: AnyArray,
    own_hop: AnyArray,
    picked: AnyArray,
    ends: Ends,
) -> AnyArray:
    """Return the smallest relative distance of this solution from a tie; 0 at one.

    It is the least of: on every full link, what its level exceeds the highest level among the
    flows there that something else stops; on every other link, what is left of its capacity; and
    for every flow below its cap, what is left up to it.
    """
    nothing = jnp.asarray(-jnp.inf, level.dtype)
    per_hop = level[ends.u.hop_flow]
    highest = lambda marked: ends.hop_max(jnp.where(marked, per_hop, nothing))
    anyone, other = highest(ends.crosses), highest(ends.crosses & ~own_hop)
    rival = jnp.where(picked, ends.of_parts(other), ends.of_parts(anyone))
    rival = ends.part_max(jnp.where(ends.carried, rival, nothing))
    link_gap = jnp.where(full, relative_gap(top, rival), relative_gap(capacity, load))
    flow_gap = jnp.where(growing & jnp.isfinite(cap_level), relative_gap(cap_level, level), 1)
    smallest = lambda gap: jnp.min(gap, initial=1.0)
    return jnp.maximum(jnp.minimum(smallest(jnp.where(used, link_gap, 1)), smallest(flow_gap)), 0)


def relative_gap(more: AnyArray, less: AnyArray) -> AnyArray:
    """Return (more - less) / more, 1 where there is no `less`, 0 where `more` is 0."""
    gap = jnp.where(more > 0, (more - less) / jnp.where(more > 0, more, 1), 0)
    return jnp.where(jnp.isfinite(less), gap, 1)


def solve_levels(s: Structure, right: LinkFloats, weight: FlowFloats, ends: Ends) -> LinkFloats:
    """Return x: `sum over f on l of M_lf x_b(f) = right_l` on active links, else x = right.

    Takes as many sweeps as the dependencies are deep, plus one.
    """
    stopped = jnp.append(jnp.zeros(ends.n_links, bool), True)  # a cap is final from the start
    diagonal = jnp.where(s.active, s.diagonal, 1)

    def sweep(now: _Sweep) -> _Sweep:
        known = stopped.at[: ends.n_links].set(now.final)[s.bottleneck]
        at = jnp.where(known, at_bottleneck(now.x, s.bottleneck), 0)
        rest = right - ends.sum_to_links(weight * at)
        ready = ~now.final & (ends.count_to_links(~known) == s.own)
        return _Sweep(jnp.where(ready, rest / diagonal, now.x), now.final | ready, jnp.any(ready))

    return jnp.where(s.active, _run(sweep, s), right)


def solve_prices(s: Structure, right: LinkFloats, weight: FlowFloats, ends: Ends) -> LinkFloats:
    """Return the solution of the transposed system of `solve_levels`."""
    diagonal = jnp.where(s.active, s.diagonal, 1)
    to_links = lambda per_flow: segment_sum(per_flow, s.bottleneck, ends.n_links)

    def sweep(now: _Sweep) -> _Sweep:
        known = jnp.where(s.active & now.final, now.x, 0)
        rest = right - to_links(weight * ends.sum_to_flows(known))
        ready = ~now.final & (to_links(ends.count_to_flows(~now.final)) == s.own)
        return _Sweep(jnp.where(ready, rest / diagonal, now.x), now.final | ready, jnp.any(ready))

    return jnp.where(s.active, _run(sweep, s), right)


class _Sweep(NamedTuple):
    x: AnyArray  # (links,), 0 until final
    final: AnyArray  # (links,)
    moved: AnyArray


def _run(sweep: Callable[[_Sweep], _Sweep], s: Structure) -> LinkFloats:
    # "My dependencies are final" is the stop, never "x stopped changing": that one can be fooled.
    start = _Sweep(jnp.zeros_like(s.diagonal), ~s.active, jnp.asarray(True))
    going = lambda now: now.moved & ~jnp.all(now.final)
    return jax.lax.while_loop(going, sweep, start).x


def at_bottleneck(per_link: AnyArray, bottleneck: AnyArray) -> AnyArray:
    """Return (flows,), the value at each flow's bottleneck, 0 where that is its cap."""
    return jnp.append(per_link, jnp.zeros(1, per_link.dtype))[bottleneck]
