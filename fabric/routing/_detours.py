"""Ways over an intermediate switch or group: shortest to it, and shortest from it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError, UnreachableError, some
from fabric._memory import afford
from fabric.network import Flows, Labels, Names, Network, Routes, frozen, names_of
from fabric.routing._blend import Ways
from fabric.routing._graph import Trip
from fabric.routing._parts import Parts, linked
from fabric.routing._spray import spray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

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
    """The intermediates of a network, sorted by key: part of the network, then group.

    A group that failures tear apart is a stop in every part.
    """

    network: Network  # stops are endpoints here; groups are nodes of their own, past the others
    node: Int[np.ndarray, " stops"]
    key: Int[np.ndarray, " stops"]  # part x n_groups + group
    n_groups: int
    of_end: Int[np.ndarray, " nodes"]  # group of each end, left out as intermediate; -1: none


class Chosen(NamedTuple):
    """Entries of flows, in order, and how many stops each flow may choose from."""

    flow: Int[np.ndarray, " entries"]
    stop: Int[np.ndarray, " entries"]
    choices: Int[np.ndarray, " flows"]


def minimal(trip: Trip, via: str) -> Routes:
    """Return the shortest ways of a trip, sprayed; with `via="group"` of those in fewest groups."""
    try:
        return spray(_bare(trip.network, via), Flows(trip.flows.src, trip.flows.dst))
    except UnreachableError as error:
        trip.check_reached(np.isin(np.arange(trip.flows.n_flows), error.flows))
        raise


def detours(trip: Trip, via: str, intermediates: int | None, seed: int, what: str) -> Detours:
    """Return the ways over all intermediates of each flow, or over some that are drawn.

    An intermediate is what the source of a flow reaches, and its destination is reached from.

    Args:
        trip: With the flows.
        via: "group" or "switch".
        intermediates: How many are drawn for each flow, with repetition; None: all.
        seed: Of the draw.
        what: Who asks; for the message where memory is short.

    Raises:
        ModelError: If a flow has no intermediate.
        UnreachableError: If a destination cannot be reached.
        InfeasibleError: If the ways would not fit in memory.
    """
    flows = trip.flows
    parts = Parts(trip.network)
    stops = (_groups if via == "group" else _switches)(trip.network, parts)
    src, dst = np.asarray(flows.src, np.int64), np.asarray(flows.dst, np.int64)
    of_flow = parts.between(src, dst)
    trip.check_reached((np.diff(of_flow.indptr) == 0) & ~linked(trip.network, src, dst))
    if intermediates is None:
        per_part = np.bincount(stops.key // stops.n_groups, minlength=parts.count)
        entries = int(per_part[of_flow.indices].sum())
    else:
        entries = flows.n_flows * intermediates
    afford(what, _BYTES_PER_ENTRY * entries, "Give `intermediates` as a small number.")
    flow, stop, count = _chosen(stops, of_flow, src, dst, intermediates, seed)
    _check_choice(trip, count, via)
    share = 1.0 / (count[flow] if intermediates is None else np.full(len(flow), intermediates))

    there, goal = src[flow], stops.node[stop]
    row, pairs = _rows(there, goal, stops.network.n_nodes)
    to = spray(stops.network, Flows(*pairs))
    entry = np.arange(len(flow))
    if via == "group":
        to, entered, first, shares = _entered(to, stops.network, trip.network.n_links)
        width = np.where(row >= 0, np.diff(first, append=len(entered))[row], 0)
        at = np.repeat(first[row] - (np.cumsum(width) - width), width) + np.arange(width.sum())
        behind, start, part = np.repeat(entry, width), entered[at], shares[at]
    else:
        behind, start, part = entry, goal, np.ones(len(entry))
    end = dst[flow[behind]]
    back, pairs = _rows(start, end, trip.network.n_nodes)
    from_ = spray(_bare(trip.network, via, pairs[0]), Flows(*pairs))
    out, home = row >= 0, back >= 0
    legs = (
        Ways(to, entry[out], row[out], np.ones(int(out.sum()))),
        Ways(from_, behind[home], back[home], part[home]),
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
    of_flow: "csr_array",
    src: Int[np.ndarray, " flows"],
    dst: Int[np.ndarray, " flows"],
    intermediates: int | None,
    seed: int,
) -> Chosen:
    """Return flow and stop of every entry; `of_flow` says which parts each flow may go over.

    A row is a flow with one of its parts: the stops there, less the groups of both ends.
    """
    n, part = len(src), of_flow.indices.astype(np.int64)
    flow = np.repeat(np.arange(n), np.diff(of_flow.indptr))
    begun, end = (np.searchsorted(stops.key, (part + more) * stops.n_groups) for more in (0, 1))

    def at(ends: Int[np.ndarray, " flows"]) -> Int[np.ndarray, " rows"]:
        group = stops.of_end[ends][flow]
        key = part * stops.n_groups + group
        found = np.searchsorted(stops.key, key)
        here = (group >= 0) & (found < len(stops.key))
        here[here] = stops.key[found[here]] == key[here]
        return np.where(here, found, -1)

    low, high = np.sort(np.stack([at(src), at(dst)]), axis=0)
    low = np.where(low == high, -1, low)
    width = end - begun - (low >= 0) - (high >= 0)
    last = np.cumsum(width)
    count = np.bincount(flow, width, n).astype(np.int64)
    if intermediates is None:
        row = np.repeat(np.arange(len(flow)), width)
        stop = np.arange(len(row))
    else:
        from fabric.kernels._walks import draws

        of = np.repeat(np.arange(n), intermediates)
        stop = draws(np.uint64(seed), np.arange(len(of)), np.maximum(count, 1)[of])
        stop += (np.cumsum(count) - count)[of]
        row = np.minimum(np.searchsorted(last, stop, side="right"), max(len(flow) - 1, 0))
        if not len(flow):  # nobody has a choice
            return Chosen(of[:0], stop[:0], count)
    stop += (begun - last + width)[row]
    # What is left out is skipped, the lower one first.
    stop += (low[row] >= 0) & (stop >= low[row])
    stop += (high[row] >= 0) & (stop >= high[row])
    return Chosen(flow[row], stop, count)


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


def _switches(network: Network, parts: Parts) -> Stops:
    """Return the switches that endpoints hang on, and forwarding endpoints, as stops."""
    labels, forwards = network.labels, np.asarray(network.labels.forwards)
    endpoint, alive = np.asarray(labels.endpoint), np.asarray(network.alive)
    edge = endpoint & forwards
    edge[labels.dst[alive & endpoint[labels.src]]] = True
    node = np.flatnonzero(edge & forwards)
    node = node[np.argsort(parts.of_node[node], kind="stable")]
    none = np.full(labels.n_nodes, -1)
    return Stops(_bare(network, "switch", node), node, parts.of_node[node], 1, none)


def _groups(network: Network, parts: Parts) -> Stops:
    """Return the groups as stops: nodes with a link from every switch of theirs."""
    labels, n, n_links = network.labels, network.n_nodes, network.n_links
    tag = np.asarray(labels.tags["group"])
    member = np.flatnonzero(np.asarray(labels.forwards) & (tag >= 0))
    groups, own = np.unique(tag[member], return_inverse=True)
    key, of = np.unique(parts.of_node[member] * len(groups) + own.ravel(), return_inverse=True)
    node = np.arange(n, n + len(key))
    # An endpoint without a tag of its own belongs to the group of its switch.
    group = tag.copy()
    alive = np.asarray(network.alive)
    group[labels.src[alive]] = np.where(
        tag[labels.src[alive]] >= 0, tag[labels.src[alive]], tag[labels.dst[alive]]
    )
    at = np.searchsorted(groups, group)
    known = (at < len(groups)) & (groups[np.minimum(at, len(groups) - 1)] == group)
    more = lambda values, new: np.concatenate([np.asarray(values), new])
    false = np.zeros(len(key), bool)
    cost = np.asarray(_bare(network, "group").routing_cost)
    step = int(np.gcd.reduce(cost)) if len(cost) else 1
    joined = Labels(
        kinds=labels.kinds,
        kind_of=more(labels.kind_of, np.zeros(len(key), np.int32)),
        names=Names([("node{}", (n + len(key),))]),
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
    return Stops(wide, node, key, len(groups), np.where(known, at, -1))


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
