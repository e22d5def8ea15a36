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
from jax.ops import segment_min, segment_sum

from fabric._typing import AnyArray, FlowFloats, LinkFloats

TIE_ULPS = 16
"""In float32, fill levels this many ulps apart count as equal; float64 compares exactly."""


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
) -> Filling:
    """Return the state of filling when no flow can grow, or after `max_rounds`.

    Args:
        capacity: (links,), byte/s.
        weight: (flows,).
        cap: (flows,), byte/s.
        usage: Which flow crosses which link.
        n_bundles: Static.
        max_rounds: Static.

    Differentiable only forward, with no promise at ties.
    """
    n_flows, n_links = weight.shape[0], capacity.shape[0]
    ends = Ends(usage, n_flows, n_bundles, n_links)
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
    """Reductions between flows and links through bundles; without parts a bundle is a link."""

    def __init__(self, usage: Usage, n_flows: int, n_bundles: int, n_links: int):
        self.u, self.n_flows, self.n_bundles, self.n_links = usage, n_flows, n_bundles, n_links
        self.two_level = usage.part_link.shape[0] > 0
        self.crosses = usage.hop_use > 0
        self.carries = usage.part_use > 0

    def sum_to_links(self, per_flow: AnyArray) -> AnyArray:
        """Return (links,), the sum over flows of use times `per_flow`."""
        bundle = segment_sum(
            self.u.hop_use * per_flow[self.u.hop_flow], self.u.hop_bundle, self.n_bundles
        )
        if not self.two_level:
            return bundle
        return segment_sum(
            self.u.part_use * bundle[self.u.part_bundle], self.u.part_link, self.n_links
        )

    def min_to_flows(self, per_link: AnyArray, nothing: AnyArray) -> AnyArray:
        """Return (flows,), the smallest `per_link` on the way of each flow."""
        bundle = per_link
        if self.two_level:
            part = jnp.where(self.carries, per_link[self.u.part_link], nothing)
            bundle = segment_min(part, self.u.part_bundle, self.n_bundles)
        hop = jnp.where(self.crosses, bundle[self.u.hop_bundle], nothing)
        return segment_min(hop, self.u.hop_flow, self.n_flows, indices_are_sorted=True)

    def min_to_links(self, per_flow: AnyArray, nothing: AnyArray) -> AnyArray:
        """Return (links,), the smallest `per_flow` among the flows on each link."""
        hop = jnp.where(self.crosses, per_flow[self.u.hop_flow], nothing)
        bundle = segment_min(hop, self.u.hop_bundle, self.n_bundles)
        if not self.two_level:
            return bundle
        part = jnp.where(self.carries, bundle[self.u.part_bundle], nothing)
        return segment_min(part, self.u.part_link, self.n_links)

    def first_to_flows(self, marked: AnyArray) -> AnyArray:
        """Return (flows,), the lowest marked link on the way of each flow; `n_links` for none."""
        number = jnp.where(
            marked, jnp.arange(self.n_links, dtype=jnp.int32), jnp.int32(self.n_links)
        )
        return jnp.minimum(self.min_to_flows(number, jnp.int32(self.n_links)), self.n_links)

    def touched(self) -> AnyArray:
        """Return (flows,), whether a flow crosses any link."""
        one = jnp.ones(self.n_links, jnp.int32)
        return self.min_to_flows(one, jnp.int32(2)) == 1
