"""Max-min levels by vectorised local-minimum rounds: arrays in, arrays out, any device.

Each round works out the fair share of every link, hands every flow the smallest share on its way
(or its cap), and freezes each link whose share is the smallest for all live flows on it, with
those flows. That reaches the same rates as freezing one global minimum at a time, in far fewer
rounds.

Padding points one past the end and has use 0: segment sums drop it, gathers clip and the use
masks them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ops import segment_max, segment_min, segment_sum

from fabric._typing import AnyArray, FlowFloats, LinkFloats

TIE_ULPS = 16
"""In float32, fill levels this many ulps apart count as equal; float64 compares exactly."""


Axis = str | tuple[str, ...] | None


class Usage(NamedTuple):
    """The arrays of two-level routes; without parts a bundle is a link."""

    hop_flow: AnyArray
    hop_bundle: AnyArray
    hop_use: AnyArray
    part_bundle: AnyArray
    part_link: AnyArray
    part_use: AnyArray


class Filling(NamedTuple):
    """What is known after some rounds."""

    level: AnyArray  # (flows,), infinite while live
    bottleneck: AnyArray  # (flows,), the link that stopped it; -1: its cap, or none
    live: AnyArray  # (flows,)
    used: AnyArray  # (links,), load of the frozen flows
    rounds: AnyArray


def local_rounds(
    capacity: LinkFloats,
    weight: FlowFloats,
    cap: FlowFloats,
    usage: Usage,
    n_bundles: int,
    max_rounds: int,
    axis: Axis = None,
) -> Filling:
    """Return the state of filling when no flow can grow, or after `max_rounds`.

    Args:
        capacity: (links,), byte/s.
        weight: (flows,).
        cap: (flows,), byte/s.
        usage: Which flow crosses which link.
        n_bundles: Static.
        max_rounds: Static.
        axis: Static. See `Ends`.

    Not to be differentiated: see `fabric.solvers._levels` for the rule that is.
    """
    n_flows, n_links = weight.shape[0], capacity.shape[0]
    ends = Ends(usage, n_flows, n_bundles, n_links, axis)
    kind = capacity.dtype
    slack = 1.0 if kind == jnp.float64 else 1.0 + TIE_ULPS * float(jnp.finfo(kind).eps)
    slack = jnp.asarray(slack, kind)
    infinite = jnp.asarray(jnp.inf, kind)
    cap_level = cap / weight

    def step(now: Filling) -> Filling:
        live_weight = ends.sum_to_links(jnp.where(now.live, weight, 0))
        left = jnp.maximum(capacity - now.used, 0)
        share = jnp.where(
            live_weight > 0, left / jnp.where(live_weight > 0, live_weight, 1), infinite
        )
        wish = jnp.minimum(ends.min_to_flows(share, infinite), cap_level)
        least = ends.min_to_links(jnp.where(now.live, wish, infinite), infinite)
        full = (live_weight > 0) & (share <= least * slack)
        stopper = ends.first_to_flows(full)
        capped = wish >= cap_level
        stop = now.live & (capped | (stopper < n_links))
        level = jnp.where(stop, wish, now.level)
        live = now.live & ~stop
        frozen = ~live & jnp.isfinite(level)
        used = ends.sum_to_links(jnp.where(frozen, weight * jnp.where(frozen, level, 0), 0))
        which = jnp.where(capped, -1, stopper.astype(now.bottleneck.dtype))
        return Filling(level, jnp.where(stop, which, now.bottleneck), live, used, now.rounds + 1)

    start = Filling(
        level=jnp.full(n_flows, infinite),
        bottleneck=jnp.full(n_flows, -1, jnp.int32),
        live=ends.touched() | jnp.isfinite(cap_level),
        used=jnp.zeros(n_links, kind),
        rounds=jnp.zeros((), jnp.int32),
    )
    return jax.lax.while_loop(
        lambda now: jnp.any(now.live) & (now.rounds < max_rounds), step, start
    )


class Ends:
    """Reductions between flows, bundles and links; without parts a bundle is a link.

    An entry of use 0 does not cross. Arrays over parts are arrays over links when there are no
    parts, and the reductions from parts are then the identity. With an `axis`, inside
    `jax.shard_map`, each device holds some of the hops, and what is reduced from hops is reduced
    over the devices too.
    """

    def __init__(self, usage: Usage, n_flows: int, n_bundles: int, n_links: int, axis: Axis = None):
        self.u, self.n_flows, self.n_bundles, self.n_links = usage, n_flows, n_bundles, n_links
        self.axis = axis
        self.two_level = usage.part_link.shape[0] > 0
        self.crosses = usage.hop_use > 0
        one = jnp.ones(n_links, usage.hop_use.dtype)
        self.carried_use = usage.part_use if self.two_level else one
        self.carried = self.carried_use > 0

    def hop_sum(self, per_hop: AnyArray) -> AnyArray:
        """Return (bundles,), the sum over the hops of each bundle."""
        sums = segment_sum(per_hop, self.u.hop_bundle, self.n_bundles)
        return sums if self.axis is None else jax.lax.psum(sums, self.axis)

    def hop_min(self, per_hop: AnyArray) -> AnyArray:
        """Return (bundles,), the smallest over the hops of each bundle."""
        least = segment_min(per_hop, self.u.hop_bundle, self.n_bundles)
        return least if self.axis is None else jax.lax.pmin(least, self.axis)

    def hop_max(self, per_hop: AnyArray) -> AnyArray:
        """Return (bundles,), the largest over the hops of each bundle."""
        most = segment_max(per_hop, self.u.hop_bundle, self.n_bundles)
        return most if self.axis is None else jax.lax.pmax(most, self.axis)

    def flow_sum(self, per_hop: AnyArray) -> AnyArray:
        """Return (flows,), the sum over the hops of each flow."""
        sums = segment_sum(per_hop, self.u.hop_flow, self.n_flows, indices_are_sorted=True)
        return sums if self.axis is None else jax.lax.psum(sums, self.axis)

    def flow_min(self, per_hop: AnyArray) -> AnyArray:
        """Return (flows,), the smallest over the hops of each flow."""
        least = segment_min(per_hop, self.u.hop_flow, self.n_flows, indices_are_sorted=True)
        return least if self.axis is None else jax.lax.pmin(least, self.axis)

    def of_parts(self, per_bundle: AnyArray) -> AnyArray:
        """Return (parts,), the value of each part's bundle."""
        return per_bundle[self.u.part_bundle] if self.two_level else per_bundle

    def of_links(self, per_link: AnyArray) -> AnyArray:
        """Return (parts,), the value of each part's link."""
        return per_link[self.u.part_link] if self.two_level else per_link

    def part_sum(self, per_part: AnyArray) -> AnyArray:
        """Return (links,), the sum over the parts of each link."""
        if not self.two_level:
            return per_part
        return segment_sum(per_part, self.u.part_link, self.n_links)

    def part_min(self, per_part: AnyArray) -> AnyArray:
        """Return (bundles,), the smallest over the parts of each bundle."""
        if not self.two_level:
            return per_part
        return segment_min(per_part, self.u.part_bundle, self.n_bundles)

    def part_max(self, per_part: AnyArray) -> AnyArray:
        """Return (links,), the largest over the parts of each link."""
        if not self.two_level:
            return per_part
        return segment_max(per_part, self.u.part_link, self.n_links)

    def sum_to_links(self, per_flow: AnyArray) -> AnyArray:
        """Return (links,), the sum over flows of use times `per_flow`."""
        hop = self.u.hop_use * per_flow[self.u.hop_flow]
        bundle = self.hop_sum(hop)
        if not self.two_level:
            return bundle
        return self.part_sum(self.u.part_use * self.of_parts(bundle))

    def sum_to_flows(self, per_link: AnyArray) -> AnyArray:
        """Return (flows,), the sum over links of use times `per_link`."""
        bundle = per_link
        if self.two_level:
            part = self.u.part_use * self.of_links(per_link)
            bundle = segment_sum(part, self.u.part_bundle, self.n_bundles)
        hop = self.u.hop_use * bundle[self.u.hop_bundle]
        return self.flow_sum(hop)

    def count_to_links(self, marked: AnyArray) -> AnyArray:
        """Return (links,), the entries of marked flows on each link."""
        hop = (self.crosses & marked[self.u.hop_flow]).astype(jnp.int32)
        bundle = self.hop_sum(hop)
        return self.part_sum(jnp.where(self.carried, self.of_parts(bundle), 0))

    def count_to_flows(self, marked: AnyArray) -> AnyArray:
        """Return (flows,), the entries of each flow on marked links."""
        bundle = (self.carried & self.of_links(marked)).astype(jnp.int32)
        if self.two_level:
            bundle = segment_sum(bundle, self.u.part_bundle, self.n_bundles)
        hop = jnp.where(self.crosses, bundle[self.u.hop_bundle], 0)
        return self.flow_sum(hop)

    def min_to_flows(self, per_link: AnyArray, nothing: AnyArray) -> AnyArray:
        """Return (flows,), the smallest `per_link` on the way of each flow."""
        bundle = self.part_min(jnp.where(self.carried, self.of_links(per_link), nothing))
        hop = jnp.where(self.crosses, bundle[self.u.hop_bundle], nothing)
        return self.flow_min(hop)

    def min_to_links(self, per_flow: AnyArray, nothing: AnyArray) -> AnyArray:
        """Return (links,), the smallest `per_flow` among the flows on each link."""
        hop = jnp.where(self.crosses, per_flow[self.u.hop_flow], nothing)
        bundle = self.hop_min(hop)
        if not self.two_level:
            return bundle
        part = jnp.where(self.carried, self.of_parts(bundle), nothing)
        return segment_min(part, self.u.part_link, self.n_links)

    def max_to_links(self, per_flow: AnyArray, nothing: AnyArray) -> AnyArray:
        """Return (links,), the largest `per_flow` among the flows on each link."""
        hop = jnp.where(self.crosses, per_flow[self.u.hop_flow], nothing)
        bundle = self.hop_max(hop)
        return self.part_max(jnp.where(self.carried, self.of_parts(bundle), nothing))

    def first_to_flows(self, marked: AnyArray) -> AnyArray:
        """Return (flows,), the lowest marked link on the way of each flow; `n_links` for none."""
        none = jnp.int32(self.n_links)
        number = jnp.where(marked, jnp.arange(self.n_links, dtype=jnp.int32), none)
        return jnp.minimum(self.min_to_flows(number, none), none)

    def touched(self) -> AnyArray:
        """Return (flows,), whether a flow crosses any link."""
        one = jnp.ones(self.n_links, jnp.int32)
        return self.min_to_flows(one, jnp.int32(2)) == 1
