"""Routes of a trip where some switches split by target: groups of weights, kept per target."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric.network import Routes, frozen
from fabric.routing._graph import Trip
from fabric.routing._rows import chunk_for, routes_from
from fabric.routing._spray import check_parts, check_stuck, grown, new_book, parts_of


class Groups(NamedTuple):
    """Weights of a node's links towards a target; see `fabric.kernels._weighted`.

    Nodes are numbered as forwarding nodes, then the sink, then all nodes as sources.
    """

    first: Int[np.ndarray, " targets+1"]
    node: Int[np.ndarray, " groups"]
    begin: Int[np.ndarray, " groups+1"]
    link: Int[np.ndarray, " members"]
    weight: Float[np.ndarray, " members"]
    at: Int[np.ndarray, " points"]  # the group of each node towards the target at hand, or -1
    pool: Float[np.ndarray, " points"]
    heap: Int[np.ndarray, " points"]


def groups_of(
    trip: Trip,
    target: Int[np.ndarray, " groups"],
    node: Int[np.ndarray, " groups"],
    begin: Int[np.ndarray, " groups+1"],
    link: Int[np.ndarray, " members"],
    weight: Float[np.ndarray, " members"],
) -> Groups:
    """Return groups, given by rising target, as the kernels take them."""
    targets = len(trip.demand.target_node)
    points = len(trip.graph.node_of) + 1 + trip.network.n_nodes
    return Groups(
        np.searchsorted(target, np.arange(targets + 1)).astype(np.int64),
        node.astype(np.int64), begin.astype(np.int64), link.astype(np.int64), weight,
        np.full(points, -1, np.int64), np.zeros(points), np.zeros(points, np.int64),
    )  # fmt: skip


def no_groups(trip: Trip) -> Groups:
    """Return no groups."""
    none = np.zeros(0, np.int64)
    return groups_of(trip, none, none, np.zeros(1, np.int64), none, np.zeros(0))


def grouped(trip: Trip, pairs: int, limit: int, groups: Groups, name: str) -> Routes:
    """Return the routes of a trip, split by groups where there are some, else in equal parts.

    Args:
        trip: What to route.
        pairs: Queue pairs per flow.
        limit: Most parts to make, and most hops of flows that meet a group.
        groups: The weights.
        name: Of the rule, for messages.
    """
    from fabric.kernels._weighted import scatter_uses, walk_grouped

    flows, demand = trip.flows, trip.demand
    book = new_book(trip)
    length = np.zeros(flows.n_flows, np.int32)
    pieces: list[tuple[int, int, np.ndarray, np.ndarray]] = []
    hops = 0
    for block in trip.blocks():
        at, room = block.begun, 1
        while at < block.stop:
            chunk, begun = chunk_for(trip.longest * room, block.stop - at), at
            uses = np.empty(len(chunk))
            at, used = walk_grouped(
                trip.graph, block.usable, demand, book, groups, at, block.stop,
                block.first, block.last, block.dist, chunk, uses, length,
            )  # fmt: skip
            check_stuck(trip, book.stuck, name)
            pieces.append((begun, at, chunk[:used].copy(), uses[:used].copy()))
            hops += int(used)
            check_parts(name, max(int(book.need[1]), hops), limit, at, flows.n_flows)
            if book.need.any():
                book = grown(book, limit)
            elif at == begun:
                room *= 2
    trip.check_reached(length < 0)
    parts = parts_of(book)
    check_parts(name, len(parts[0]), limit, flows.n_flows, flows.n_flows)
    n_links = trip.network.n_links
    bundles = int(book.size[0]) if len(parts[0]) else n_links
    ptr = np.concatenate([[0], np.cumsum(length, dtype=np.int64)])
    hop_flow, hop_bundle = np.empty(int(ptr[-1]), np.int32), np.empty(int(ptr[-1]), np.int32)
    hop_use = np.empty(int(ptr[-1]))
    for begun, stop, chunk, uses in pieces:
        scatter_uses(demand.order, begun, stop, ptr, chunk, uses, hop_flow, hop_bundle, hop_use)
    rows = np.arange(flows.n_flows * pairs, dtype=np.int32)
    if pairs > 1:
        width = np.repeat(length, pairs).astype(np.int64)
        shift = np.repeat(ptr[:-1], pairs) - (np.cumsum(width) - width)
        entry = np.arange(int(width.sum())) + np.repeat(shift, width)
        hop_flow, hop_bundle = np.repeat(rows, width), hop_bundle[entry]
        hop_use = hop_use[entry]
    return Routes(
        frozen(hop_flow), frozen(hop_bundle), frozen(hop_use),
        frozen(parts[0]), frozen(parts[1]), frozen(parts[2]),
        np.repeat(np.asarray(flows.weight, np.float64) / pairs, pairs),
        np.repeat(np.asarray(flows.cap, np.float64) / pairs, pairs),
        frozen(rows // pairs),
        n_links=n_links, n_bundles=bundles, n_pairs=flows.n_flows,
    )  # fmt: skip


def drawn(
    trip: Trip,
    pairs: int,
    seed: int,
    groups: Groups,
    weight: Float[np.ndarray, " links"] | None,
    name: str,
) -> Routes:
    """Return one path per row, drawn at every switch by the weights of links or of its group."""
    from fabric.kernels._weighted import walk_drawn

    flows, graph = trip.flows, trip.graph
    length = np.zeros(flows.n_flows * pairs, np.int32)
    widest = max(np.diff(ptr).max(initial=0) for ptr in (graph.first_ptr, graph.last_ptr))
    ways = np.zeros((int(widest), 2), np.int32)
    stuck = np.full(2, -1, np.int64)
    weights = np.zeros(0) if weight is None else weight
    pieces = []
    for block in trip.blocks():
        at, stop = block.begun * pairs, block.stop * pairs
        while at < stop:
            chunk, begun = chunk_for(trip.longest, stop - at), at
            at, used = walk_drawn(
                graph, block.usable, trip.demand, weights, groups, at, stop, pairs,
                block.first, block.dist, np.uint64(seed), chunk, length, ways, stuck,
            )  # fmt: skip
            check_stuck(trip, stuck, name)
            pieces.append((begun, at, chunk[:used]))
    trip.check_reached(length[::pairs] < 0)
    n_links = trip.network.n_links
    return routes_from(flows, pairs, trip.demand.order, pieces, length, n_links, n_links)
