"""One-sided derivatives of max-min levels: local-minimum rounds over dual numbers.

A dual number x + e dx, with e positive and smaller than every positive number, is compared by x
and then by dx. Dual numbers are an ordered field, and filling uses nothing else, so the same
rounds, run on the dual capacity c + e dc, weight, cap and use, give t + e dt, where

    dt = limit of (t(x + h dx) - t(x)) / h   as h falls to 0,

exact at ties too: among the links that are full together, the one whose share rises least (or
falls most) is the one that stops the flow just beyond.

In floating point, values that are equal in exact arithmetic differ by roundings, so values this
near compare as equal, and then by tangent. "Near" is not transitive, and a round may freeze
nothing because of it; the next one then compares bitwise, which always freezes something.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ops import segment_min, segment_sum

from fabric._typing import AnyArray, FlowFloats, LinkFloats
from fabric.kernels._local_rounds import Ends, Usage

NEAR_ULPS = {jnp.dtype("float64"): 4504, jnp.dtype("float32"): 16}
"""Values this many ulps apart compare as equal; 1e-12 in float64."""


class Tangents(NamedTuple):
    """A direction; all zero where a parameter stays."""

    capacity: AnyArray  # (links,)
    weight: AnyArray  # (flows,)
    cap: AnyArray  # (flows,)
    hop_use: AnyArray  # (hops,)
    part_use: AnyArray  # (parts,)


class DualFilling(NamedTuple):
    """What is known after some rounds."""

    level: AnyArray  # (flows,), infinite while live
    tangent: AnyArray  # (flows,), one-sided derivative of the level
    bottleneck: AnyArray  # (flows,), the link that stops it just along the direction; -1: its cap
    live: AnyArray  # (flows,)
    strict: AnyArray  # whether the next round compares bitwise
    rounds: AnyArray


def dual_rounds(
    capacity: LinkFloats,
    weight: FlowFloats,
    cap: FlowFloats,
    usage: Usage,
    tangents: Tangents,
    n_bundles: int,
    max_rounds: int,
) -> DualFilling:
    """Return the state of dual filling when no flow can grow, or after `max_rounds`.

    An entry of use 0 does not cross, and its tangent is ignored. So is the tangent of an infinite
    cap. On a link of capacity 0 the tangent of the capacity must not be negative: filling has no
    meaning there.

    Args:
        capacity: (links,), byte/s.
        weight: (flows,), more than 0.
        cap: (flows,), byte/s.
        usage: Which flow crosses which link.
        tangents: The direction, in the units of what it changes.
        n_bundles: Static.
        max_rounds: Static. Twice the number of flows is always enough.

    Not to be differentiated.
    """
    n_flows, n_links = weight.shape[0], capacity.shape[0]
    kind = capacity.dtype
    infinite, eps = jnp.asarray(jnp.inf, kind), float(jnp.finfo(kind).eps)
    near = NEAR_ULPS[jnp.dtype(kind)] * eps
    ends = Ends(usage, n_flows, n_bundles, n_links)
    sums = _Sums(ends, tangents)
    # A sum of n terms is off by up to n ulps, and a share by as many ulps of capacity over weight.
    entries = ends.count_to_links(jnp.ones(n_flows, bool)).astype(kind)
    blur = (near + eps * entries) * capacity
    cap_level = cap / weight
    capping = jnp.isfinite(cap_level)
    cap_tangent = (tangents.cap - jnp.where(capping, cap_level, 0) * tangents.weight) / weight
    cap_tangent = jnp.where(capping, cap_tangent, 0)

    def step(now: DualFilling) -> DualFilling:
        level, tangent = (jnp.where(now.live, 0, x) for x in (now.level, now.tangent))
        level = jnp.where(jnp.isfinite(level), level, 0)
        live = lambda x: jnp.where(now.live, x, 0)
        used, d_used = sums(weight * level, tangents.weight * level + weight * tangent)
        growth, d_growth = sums(live(weight), live(tangents.weight))
        growing = growth > 0
        per_growth = jnp.where(growing, 1 / jnp.where(growing, growth, 1), 0)
        share = jnp.maximum(capacity - used, 0) * per_growth
        d_share = (tangents.capacity - d_used - share * d_growth) * per_growth
        terms = jnp.abs(tangents.capacity) + jnp.abs(d_used) + jnp.abs(share * d_growth)
        loose = lambda x: jnp.where(now.strict, 0, x)
        d_slack = loose(near * jnp.max(terms * per_growth, initial=0.0))
        share = jnp.where(growing, share, infinite)
        slack = loose(blur * per_growth)
        by_link = _Least(share - slack, share, share + slack, d_share).to_flows(ends, infinite)

        cap_slack = loose(near * jnp.where(capping, cap_level, 0))
        high = jnp.minimum(by_link.high, cap_level + cap_slack)
        held = capping & (cap_level - cap_slack <= high)
        least = jnp.minimum(
            jnp.where(by_link.low <= high, by_link.tangent, infinite),
            jnp.where(held, cap_tangent, infinite),
        )
        only_live = lambda x: jnp.where(now.live, x, infinite)
        full = growing & (share - slack <= ends.min_to_links(only_live(high), infinite))
        full &= d_share <= ends.min_to_links(only_live(least), infinite) + d_slack
        stopper = ends.first_to_flows(full)
        capped = held & (cap_tangent <= least + d_slack)
        stop = now.live & (capped | (stopper < n_links))
        which = jnp.where(capped, -1, stopper.astype(now.bottleneck.dtype))
        return DualFilling(
            level=jnp.where(stop, jnp.minimum(by_link.share, cap_level), now.level),
            tangent=jnp.where(stop, least, now.tangent),
            bottleneck=jnp.where(stop, which, now.bottleneck),
            live=now.live & ~stop,
            strict=~jnp.any(stop),
            rounds=now.rounds + 1,
        )

    start = DualFilling(
        level=jnp.full(n_flows, infinite),
        tangent=jnp.zeros(n_flows, kind),
        bottleneck=jnp.full(n_flows, -1, jnp.int32),
        live=ends.touched() | capping,
        strict=jnp.asarray(False),
        rounds=jnp.zeros((), jnp.int32),
    )
    going = lambda now: jnp.any(now.live) & (now.rounds < max_rounds)
    return jax.lax.while_loop(going, step, start)


class _Sums:
    """Dual sums over the flows of each link."""

    def __init__(self, ends: Ends, tangents: Tangents):
        self.ends = ends
        self.d_hop_use = jnp.where(ends.crosses, tangents.hop_use, 0)
        self.d_part_use = tangents.part_use
        if ends.two_level:
            self.d_part_use = jnp.where(ends.carried, tangents.part_use, 0)

    def __call__(self, x: FlowFloats, dx: FlowFloats) -> tuple[LinkFloats, LinkFloats]:
        """Return the sum over flows of use times x, and its tangent."""
        ends, u = self.ends, self.ends.u
        hop, d_hop = x[u.hop_flow], dx[u.hop_flow]
        to_bundles = lambda y: segment_sum(y, u.hop_bundle, ends.n_bundles)
        bundle = to_bundles(u.hop_use * hop)
        d_bundle = to_bundles(u.hop_use * d_hop + self.d_hop_use * hop)
        if not ends.two_level:
            return bundle, d_bundle
        part, d_part = ends.of_parts(bundle), ends.of_parts(d_bundle)
        return (
            ends.part_sum(u.part_use * part),
            ends.part_sum(u.part_use * d_part + self.d_part_use * part),
        )


class _Least(NamedTuple):
    """Dual shares with the interval of values that compare as equal to each."""

    low: AnyArray
    share: AnyArray
    high: AnyArray
    tangent: AnyArray

    def to_flows(self, ends: Ends, infinite: AnyArray) -> "_Least":
        """Return (flows,), the lexicographic minimum over the links on the way of each flow."""
        bundles = self
        if ends.two_level:
            parts = _Least(*(ends.of_links(x) for x in self))
            bundles = parts._least(ends.carried, infinite, ends.part_min, ends.of_parts)
        hops = _Least(*(x[ends.u.hop_bundle] for x in bundles))
        to_flows = lambda x: segment_min(x, ends.u.hop_flow, ends.n_flows, indices_are_sorted=True)
        return hops._least(ends.crosses, infinite, to_flows, lambda x: x[ends.u.hop_flow])

    def _least(
        self,
        present: AnyArray,
        infinite: AnyArray,
        reduce: Callable[[AnyArray], AnyArray],
        back: Callable[[AnyArray], AnyArray],
    ) -> "_Least":
        """Return the minimum of each group: `reduce` to groups, `back` from them."""
        low, share, high = (reduce(jnp.where(present, x, infinite)) for x in self[:3])
        tied = present & (self.low <= back(high))
        return _Least(low, share, high, reduce(jnp.where(tied, self.tangent, infinite)))
