"""Ways over an intermediate switch or group: shortest to it, and shortest from it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric._errors import ModelError, UnreachableError, some
from fabric._memory import afford
from fabric.network import Flows, Labels, Names, Network, Routes, frozen, names_of
from fabric.routing._blend import Ways
from fabric.routing._graph import Trip
from fabric.routing._spray import spray

VIAS = ("group", "switch")
_BYTES_PER_ENTRY = 48
_CHANGE = 16  # what a change of group costs, in steps inside one


class Detours(NamedTuple):
    """Ways of flows over intermediates: entry i is one intermediate of one flow.

    The legs are `Ways` whose flows are entries, their shares 1 in total at each end of a leg.
    """

    flow: Int[np.ndarray, " entries"]
    share: Float[np.ndarray, " entries"]  # of the flow's detours
    legs: tuple[Ways, Ways]

    def ways(self, part: Float[np.ndarray, " entries"]) -> list[Ways]:
        """Return the ways that send a part of every flow over each of its entries."""
        return [
            leg._replace(flow=self.flow[leg.flow], share=leg.share * part[leg.flow])
            for leg in self.legs
        ]


class Stops(NamedTuple):
    """The intermediates of a network, and the stop that the ends of a flow belong to; -1: none."""

    network: Network  # stops are endpoints here; groups are nodes of their own, past the others
    node: Int[np.ndarray, " stops"]
    of_end: Int[np.ndarray, " nodes"]  # left out as intermediates


def minimal(trip: Trip, via: str) -> Routes:
    """Return the shortest ways of a trip, sprayed; with `via="group"` of those in fewest groups."""
    network = _bare(trip.network, via)
    return _sprayed(trip, network, np.asarray(trip.flows.src), np.asarray(trip.flows.dst))


def detours(trip: Trip, via: str, intermediates: int | None, seed: int, what: str) -> Detours:
    """Return the ways over all intermediates, or over some that are drawn.

    Args:
        trip: With the flows.
        via: "group" or "switch".
        intermediates: How many are drawn for each flow, with repetition; None: all.
        seed: Of the draw.
        what: Who asks; for the message where memory is short.

    Raises:
        ModelError: If a flow has no intermediate.
        UnreachableError: If an end of a flow cannot reach an intermediate.
        InfeasibleError: If the ways would not fit in memory.
    """
    flows = trip.flows
    stops = _groups(trip.network) if via == "group" else _switches(trip.network)
    n, each = flows.n_flows, intermediates or len(stops.node)
    afford(what, _BYTES_PER_ENTRY * n * each, "Give `intermediates` as a small number.")
    src, dst = np.asarray(flows.src, np.int64), np.asarray(flows.dst, np.int64)
    flow, stop, count = _chosen(stops, src, dst, intermediates, seed)
    _check_choice(trip, count, via)
    share = 1.0 / (count if intermediates is None else np.full(n, each))[flow]

    there, goal = src[flow], stops.node[stop]
    row, pairs = _rows(there, goal, stops.network.n_nodes)
    to = _sprayed(trip, stops.network, *pairs, flow, row)
    entry = np.arange(len(flow))
    if via == "group":
        to, entered, first, part = _entered(to, stops.network, trip.network.n_links)
        width = np.where(row >= 0, np.diff(first, append=len(entered))[row], 0)
        at = np.repeat(first[row] - (np.cumsum(width) - width), width) + np.arange(width.sum())
        behind, start, parts = np.repeat(entry, width), entered[at], part[at]
    else:
        behind, start, parts = entry, goal, np.ones(len(entry))
    end = dst[flow[behind]]
    back, pairs = _rows(start, end, trip.network.n_nodes)
    from_ = _sprayed(trip, _bare(trip.network, via, pairs[0]), *pairs, flow[behind], back)
    out, home = row >= 0, back >= 0
    legs = (
        Ways(to, entry[out], row[out], np.ones(int(out.sum()))),
        Ways(from_, behind[home], back[home], parts[home]),
    )
    return Detours(flow, share, legs)


def via_of(network: Network, via: str | None) -> str:
    """Return what flows go through: what was asked for, else groups where there are any."""
    tag, forwards = network.labels.tags.get("group"), np.asarray(network.labels.forwards)
    grouped = tag is not None and tag.dtype.kind == "i" and bool((tag[forwards] >= 0).any())
    if via is None:
        return VIAS[0] if grouped else VIAS[1]
    if via not in VIAS or (via == "group" and not grouped):
        found = "but the switches of this network have no tag `group`" if via == "group" else ""
        message = f"`via` needs one of 'group' and 'switch', {found or f'but got {via!r}'}."
        raise ModelError(message + (" Use `via='switch'`." if found else ""))
    return via


def _chosen(
    stops: Stops,
    src: Int[np.ndarray, " flows"],
    dst: Int[np.ndarray, " flows"],
    intermediates: int | None,
    seed: int,
) -> tuple[Int[np.ndarray, " entries"], Int[np.ndarray, " entries"], Int[np.ndarray, " flows"]]:
    """Return flow and stop of every entry, and how many stops each flow may choose from."""
    n, n_stops = len(src), len(stops.node)
    low, high = np.sort(np.stack([stops.of_end[src], stops.of_end[dst]]), axis=0)
    low = np.where(low == high, -1, low)
    count = n_stops - (low >= 0) - (high >= 0)
    if intermediates is None:
        flow, stop = np.divmod(np.arange(n * n_stops), max(n_stops, 1))
        kept = (stop != low[flow]) & (stop != high[flow])
        return flow[kept], stop[kept], count
    from fabric.kernels._walks import draws

    flow = np.repeat(np.arange(n), intermediates)
    stop = draws(np.uint64(seed), np.arange(len(flow)), np.maximum(count, 1)[flow])
    # The draw skips both ends, the lower one first.
    stop += (low[flow] >= 0) & (stop >= low[flow])
    stop += (high[flow] >= 0) & (stop >= high[flow])
    return flow, stop, count


def _check_choice(trip: Trip, count: Int[np.ndarray, " flows"], via: str) -> None:
    none = np.flatnonzero(count < 1)
    if not len(none):
        return
    ends = np.stack([trip.flows.src, trip.flows.dst], 1)
    name = lambda flow: " -> ".join(names_of(trip.network, ends[flow]))
    message = (
        f"Valiant routing needs a {via} besides those of both ends, but {len(none):,} of "
        f"{len(count):,} flows have none: {some(none.tolist(), name=name)}. "
        + ("Use `via='switch'`, or `spray`." if via == "group" else "Use `spray`.")
    )
    raise ModelError(message)


def _rows(
    a: Int[np.ndarray, " entries"], b: Int[np.ndarray, " entries"], n: int
) -> tuple[Int[np.ndarray, " entries"], tuple[np.ndarray, np.ndarray]]:
    """Return the pair of each entry, -1 where both ends are one, and both ends of the pairs."""
    apart = a != b
    pairs, of = np.unique((a * n + b)[apart], return_inverse=True)
    row = np.full(len(a), -1, np.int64)
    row[apart] = of.ravel()
    return row, (pairs // n, pairs % n)


def _sprayed(
    trip: Trip,
    network: Network,
    src: Int[np.ndarray, " pairs"],
    dst: Int[np.ndarray, " pairs"],
    flow: Int[np.ndarray, " entries"] | None = None,
    row: Int[np.ndarray, " entries"] | None = None,
) -> Routes:
    """Return the sprayed ways of pairs; who is lost is said of the flows that take them."""
    try:
        return spray(network, Flows(src, dst))
    except UnreachableError as error:
        gone = np.zeros(len(src) + 1, bool)
        gone[list(error.flows)] = True
        lost = np.zeros(trip.flows.n_flows, bool)
        if flow is None or row is None:
            lost = gone[:-1]
        else:
            lost[flow[gone[row]]] = True
        trip.check_reached(lost)
        raise


def _bare(
    network: Network, via: str, also: Sequence[int] | Int[np.ndarray, " nodes"] = ()
) -> Network:
    """Return a network where more nodes send and receive, and whose servers nobody looks for.

    Where traffic goes via groups, a change of group costs more than all steps inside them: a
    minimal way crosses one global link, even where two and no local one would be as short.
    """
    labels, cost = network.labels, np.asarray(network.routing_cost)
    endpoint = np.array(labels.endpoint, bool)
    endpoint[np.asarray(also, np.int64)] = True
    if via == "group" and len(cost):
        group = np.asarray(labels.tags["group"])
        a, b = group[labels.src], group[labels.dst]
        cost = cost + _CHANGE * cost.max() * ((a >= 0) & (b >= 0) & (a != b))
    return Network(
        network.capacity, network.latency, network.alive, cost,
        labels=replace(labels, endpoint=endpoint, tags={}),
    )  # fmt: skip


def _core(network: Network) -> Bool[np.ndarray, " nodes"]:
    """Return the nodes that forward and all reach each other: the largest such set."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    labels, forwards = network.labels, np.asarray(network.labels.forwards)
    src, dst = np.asarray(labels.src), np.asarray(labels.dst)
    live = np.asarray(network.alive) & forwards[src] & forwards[dst]
    shape = (labels.n_nodes, labels.n_nodes)
    graph = coo_array((np.ones(int(live.sum()), np.int8), (src[live], dst[live])), shape)
    _, part = connected_components(graph, connection="strong")
    largest = np.bincount(part[forwards]).argmax() if forwards.any() else -1
    return forwards & (part == largest)


def _switches(network: Network) -> Stops:
    """Return the switches that endpoints hang on, and forwarding endpoints, as stops."""
    labels, core = network.labels, _core(network)
    endpoint, alive = np.asarray(labels.endpoint), np.asarray(network.alive)
    edge = endpoint & np.asarray(labels.forwards)
    edge[labels.dst[alive & endpoint[labels.src]]] = True
    node = np.flatnonzero(edge & core)
    none = np.full(labels.n_nodes, -1)
    return Stops(_bare(network, "switch", node), node, none)


def _groups(network: Network) -> Stops:
    """Return the groups as stops: nodes with a link from every switch of theirs."""
    labels, core = network.labels, _core(network)
    tag, n, n_links = np.asarray(labels.tags["group"]), network.n_nodes, network.n_links
    member = np.flatnonzero(core & (tag >= 0))
    groups, of = np.unique(tag[member], return_inverse=True)
    node = np.arange(n, n + len(groups))
    # An endpoint without a tag of its own belongs to the group of its switch.
    group = tag.copy()
    alive = np.asarray(network.alive)
    group[labels.src[alive]] = np.where(
        tag[labels.src[alive]] >= 0, tag[labels.src[alive]], tag[labels.dst[alive]]
    )
    at = np.searchsorted(groups, group)
    known = (at < len(groups)) & (groups[np.minimum(at, len(groups) - 1)] == group)
    more = lambda values, new: np.concatenate([np.asarray(values), new])
    false = np.zeros(len(groups), bool)
    cost = np.asarray(_bare(network, "group").routing_cost)
    step = int(np.gcd.reduce(cost)) if len(cost) else 1
    joined = Labels(
        kinds=labels.kinds,
        kind_of=more(labels.kind_of, np.zeros(len(groups), np.int32)),
        names=Names([("node{}", (n + len(groups),))]),
        src=more(labels.src, member.astype(np.int32)),
        dst=more(labels.dst, node[of.ravel()].astype(np.int32)),
        tiers=labels.tiers,
        tier_of=more(labels.tier_of, np.zeros(len(member), np.int32)),
        cable_of=np.arange(n_links + len(member), dtype=np.int32),
        endpoint=more(labels.endpoint, ~false),
        forwards=more(labels.forwards, false),
    )
    ones = np.ones(len(member))
    wide = Network(
        more(network.capacity, ones), None, more(alive, ones.astype(bool)),
        more(cost, np.full(len(member), step, np.int32)), labels=joined,
    )  # fmt: skip
    return Stops(wide, node, np.where(known, at, -1))


def _entered(
    routes: Routes, wide: Network, n_links: int
) -> tuple[
    Routes, Int[np.ndarray, " parts"], Int[np.ndarray, " rows"], Float[np.ndarray, " parts"]
]:
    """Return ways to groups cut where they enter one, the switches there, and the share of each.

    Entries of row i begin at `first[i]`.
    """
    bundle = np.asarray(routes.part_bundle)
    link, use = np.asarray(routes.part_link), np.asarray(routes.part_use)
    # A link into a group is never in one bundle with others: all of it is the nearest one.
    joins = link >= n_links
    last = np.zeros(routes.n_bundles, bool)
    last[bundle[joins]] = True
    hop_bundle, hop_flow = np.asarray(routes.hop_bundle), np.asarray(routes.hop_flow)
    ends = np.flatnonzero(last[hop_bundle])
    ptr = np.searchsorted(bundle, np.arange(routes.n_bundles + 1))
    width = np.diff(ptr)[hop_bundle[ends]]
    at = np.repeat(ptr[hop_bundle[ends]] - (np.cumsum(width) - width), width)
    at += np.arange(len(at))
    first = np.searchsorted(np.repeat(hop_flow[ends], width), np.arange(routes.n_flows))
    kept, stays = ~last[hop_bundle], ~joins
    cut = Routes(
        frozen(hop_flow[kept]), frozen(hop_bundle[kept]), frozen(np.ones(int(kept.sum()))),
        frozen(bundle[stays]), frozen(link[stays]), frozen(use[stays]),
        routes.weight, routes.cap, routes.flow_of,
        n_links=n_links, n_bundles=routes.n_bundles if stays.any() else n_links,
        n_pairs=routes.n_pairs,
    )  # fmt: skip
    return cut, np.asarray(wide.labels.src)[link[at]].astype(np.int64), first, use[at]
