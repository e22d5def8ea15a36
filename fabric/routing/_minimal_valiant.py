"""Minimal or Valiant, packet by packet: the fixed point of taking the less utilised way."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import UnsolvedError, raise_faults
from fabric.network import Flows, Network, Routes, whole_or_fault
from fabric.routing._blend import Ways, blend, in_pairs
from fabric.routing._detours import Detours, detours, minimal, via_of
from fabric.routing._graph import Trip
from fabric.routing._servers import RAILS, has_servers, routed
from fabric.routing._valiant import drawn_of

_NOISE = 1e-9  # differences of utilisation below this are none
_SMALLEST = 1e-12  # of the largest capacity; what stands for a capacity of 0
_GROW, _SHRINK, _WIDEST = 1.2, 0.5, 0.25


class Mix(NamedTuple):
    """The part of every detour that is taken, and how near it is to the fixed point."""

    part: Float[np.ndarray, " entries"]  # of the packets that draw this intermediate
    gap: float
    steps: int


def minimal_valiant(
    network: Network,
    flows: Flows,
    *,
    intermediates: int | str = "all",
    via: str | None = None,
    seed: int = 0,
    tolerance: float = 1e-3,
    max_steps: int = 2_000,
    throw: bool = True,
    queue_pairs: int = 1,
    rails: str = RAILS[0],
) -> Routes:
    """Return routes where every packet takes its minimal way or a Valiant one, the less utilised.

    Minimal or Valiant: every packet draws an intermediate as in `valiant` and goes over it only if
    the largest utilisation on that way is less than on its minimal way; the shares that result
    are those under which no packet would choose otherwise.

    This is UGAL with knowledge of the whole network (UGAL-G), as a flow model: queues are replaced
    by utilisations, which demand in proportion to `flows.weight` gives. Shares are found by
    steps that grow while a way stays the better one and shrink when it turns. The gap that is left
    is the utilisation packets meet beyond that of their better way, over all they meet.

    Args:
        network: With labels.
        flows: (flows,). Weights are the demands, and with caps travel into the routes.
        intermediates: As in `valiant`.
        via: As in `valiant`.
        seed: As in `valiant`.
        tolerance: Largest gap to stop at, more than 0.
        max_steps: Steps allowed.
        throw: Raise where the gap is larger after `max_steps`; else `routes.rule["gap"]` tells.
        queue_pairs: As in `spray`: all of a flow go the same way.
        rails: As in `ecmp`, for networks with servers.

    Returns:
        Two-level `Routes`, a row per queue pair. `routes.rule` says the `gap`, the `steps` and the
        share of the traffic that is `minimal`.

    Raises:
        ModelError: As `valiant`, or if `tolerance` is not more than 0.
        UnreachableError: As `valiant`.
        InfeasibleError: As `valiant`.
        UnsolvedError: If `throw` and the gap is larger than `tolerance` after `max_steps`.

    Cost: As `valiant`, and per step a pass over the hops of all ways.

    Examples:
        All traffic of a group to the next one: 8 hosts would share the one direct cable.

        >>> import fabric as fb
        >>> net = fb.topologies.dragonfly(2, 4, 2)
        >>> flows = fb.Flows(net.hosts, np.roll(net.hosts, -8))
        >>> routes = minimal_valiant(net, flows)
        >>> round(routes.rule["minimal"], 2), routes.rule["gap"] < 1e-3
        (0.22, True)

    References:
        A. Singh, Load-Balanced Routing in Interconnection Networks, PhD thesis, Stanford, 2005.
        J. Kim, W. J. Dally, S. Scott and D. Abts, Technology-Driven, Highly-Scalable Dragonfly
        Topology, ISCA 2008, section 4.
    """
    faults: list[str] = []
    drawn = drawn_of(intermediates, faults)
    number = whole_or_fault("seed", seed, faults, 0, 2**64 - 1)
    most = whole_or_fault("max_steps", max_steps, faults)
    pairs = whole_or_fault("queue_pairs", queue_pairs, faults)
    if not tolerance > 0:
        faults.append(f"`tolerance` needs a number of more than 0, but got {tolerance!r}.")
    raise_faults(faults)
    through = via_of(network, via)
    told: dict[str, object] = {"gap": 0.0, "steps": 0, "minimal": 1.0}

    def walk(trip: Trip) -> Routes:
        n = trip.flows.n_flows
        what = f"`minimal_valiant` of {n:,} flows with `intermediates={intermediates!r}`"
        direct = minimal(trip, through)
        found = detours(trip, through, drawn, number, what)
        demand = np.asarray(trip.flows.weight, np.float64)
        mix = _fixed_point(
            direct, found, demand, np.asarray(trip.network.capacity), tolerance, most
        )
        if throw and mix.gap > tolerance:
            message = (
                f"{what} still has a gap of {mix.gap:.2g} after {mix.steps:,} steps, above "
                f"`tolerance={tolerance:g}`. Raise `max_steps` or `tolerance`, or take what there "
                f"is with `throw=False`."
            )
            raise UnsolvedError(message)
        over = found.share * mix.part
        stays = np.maximum(1.0 - np.bincount(found.flow, over, n), 0.0)
        total = float(demand.sum())
        share = float(demand @ stays) / total if total else 1.0
        told.update(gap=mix.gap, steps=mix.steps, minimal=share)
        every = np.arange(n)
        ways = [Ways(direct, every, every, stays), *found.ways(over)]
        return in_pairs(blend(what, trip.flows, ways), pairs)

    rule = {"rails": rails} if has_servers(network) else {}
    return routed(network, flows, walk, pairs, rails).with_rule(
        name="minimal_valiant", intermediates=intermediates, via=through, seed=number,
        queue_pairs=pairs, tolerance=tolerance, **told, **rule,
    )  # fmt: skip


def _fixed_point(
    direct: Routes,
    found: Detours,
    demand: Float[np.ndarray, " flows"],
    capacity: Float[np.ndarray, " links"],
    tolerance: float,
    max_steps: int,
) -> Mix:
    """Return the parts under which no packet would take its other way, as nearly as asked."""
    n, room = len(demand), np.maximum(capacity, _SMALLEST * max(capacity.max(initial=0), 1e-300))
    every = np.arange(n)
    minimal_way = _Leg(Ways(direct, every, every, np.ones(n)), n)
    legs = [_Leg(leg, len(found.flow)) for leg in found.legs]
    packets = demand[found.flow] * found.share
    part, width = np.zeros(len(packets)), np.full(len(packets), _WIDEST)
    before, best, step = np.zeros(len(packets)), Mix(part, np.inf, 0), 0
    while step < max_steps:
        step += 1
        over = packets * part
        load = minimal_way.load(np.maximum(demand - np.bincount(found.flow, over, n), 0.0))
        for leg in legs:
            load += leg.load(over)
        utilisation = load / room
        here = minimal_way.largest(utilisation)[found.flow]
        there = np.maximum(*(leg.largest(utilisation) for leg in legs))
        met = float(packets @ (part * there + (1.0 - part) * here))
        spare = met - float(packets @ np.minimum(here, there))
        gap = max(spare / met, 0.0) if met > 0 else 0.0
        if gap < best.gap:
            best = Mix(part.copy(), gap, step)
        if gap <= min(tolerance, _NOISE) or (gap <= tolerance and step > 1):
            break
        # Ways that are equally utilised up to rounding stay as they are.
        turn = np.where(np.abs(here - there) <= _NOISE * here, 0.0, np.sign(here - there))
        width = np.where(turn * before < 0, _SHRINK, _GROW ** np.abs(turn * before)) * width
        width = np.minimum(width, _WIDEST)
        before = turn
        part = np.clip(part + turn * width, 0.0, 1.0)
    return best._replace(steps=step)


class _Leg:
    """What ways load, and the largest utilisation on the way of each of their flows or entries."""

    def __init__(self, ways: Ways, n: int):
        routes = ways.routes
        self._ways, self._n = ways, n
        self._hop_row, self._hop = np.asarray(routes.hop_flow), np.asarray(routes.hop_bundle)
        self._use = np.asarray(routes.hop_use)
        if routes.n_parts:
            self._bundle, self._link, self._part = (
                np.asarray(x) for x in (routes.part_bundle, routes.part_link, routes.part_use)
            )
        else:
            self._bundle = self._link = np.arange(routes.n_links)
            self._part = np.ones(routes.n_links)
        self._n_rows, self._n_bundles = routes.n_flows, routes.n_bundles
        self._n_links = routes.n_links

    def load(self, amount: Float[np.ndarray, " entries"]) -> Float[np.ndarray, " links"]:
        """Return the load on every link where each entry sends this much."""
        ways = self._ways
        row = np.bincount(ways.row, amount[ways.flow] * ways.share, self._n_rows)
        bundle = np.bincount(self._hop, self._use * row[self._hop_row], self._n_bundles)
        return np.bincount(self._link, self._part * bundle[self._bundle], self._n_links)

    def largest(self, values: Float[np.ndarray, " links"]) -> Float[np.ndarray, " entries"]:
        """Return the largest value on the links of every entry, 0 where it has none."""
        bundle = _largest(values[self._link], self._bundle, self._n_bundles)
        row = _largest(bundle[self._hop], self._hop_row, self._n_rows)
        return _largest(row[self._ways.row], self._ways.flow, self._n)


def _largest(
    values: Float[np.ndarray, " items"], of: Int[np.ndarray, " items"], n: int
) -> Float[np.ndarray, " groups"]:
    """Return the largest of each group; items of a group lie together, groups rise."""
    result = np.zeros(n)
    if len(values):
        first = np.flatnonzero(np.diff(of, prepend=-1))
        result[of[first]] = np.maximum.reduceat(values, first)
    return result
