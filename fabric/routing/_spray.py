"""Spray: equal fractions over all usable cables at every switch, as shared bundles."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError
from fabric.network import Flows, Network, Routes, names_of, whole
from fabric.routing._graph import Trip
from fabric.routing._rows import Piece, chunk_for, routes_from
from fabric.routing._servers import RAILS, has_servers, routed

_START = 1 << 12


class Book(NamedTuple):
    """Bundles and distributions made so far, and scratch space; see `fabric.kernels._spray`."""

    # Bundles: the links from `origin`, which lead to distribution `next`.
    bundle_table: Int[np.ndarray, " table"]
    bundle_seal: Int[np.ndarray, " bundles"]
    origin: Int[np.ndarray, " bundles"]
    next: Int[np.ndarray, " bundles"]
    part_ptr: Int[np.ndarray, " bundles+1"]
    part_link: Int[np.ndarray, " parts"]
    part_use: Float[np.ndarray, " parts"]
    # Distributions: shares at nodes, and the last answer with what would make it stale.
    state_table: Int[np.ndarray, " table"]
    state_seal: Int[np.ndarray, " states"]
    share_ptr: Int[np.ndarray, " states+1"]
    share_node: Int[np.ndarray, " shares"]
    share: Float[np.ndarray, " shares"]
    seen_until: Int[np.ndarray, " states"]
    seen_block: Int[np.ndarray, " states"]
    seen_bundle: Int[np.ndarray, " states"]
    change: Int[np.ndarray, "states words"]
    # The bundle out of a host with one link, and the bundle down to a host.
    first_of: Int[np.ndarray, " nodes"]
    last_of: Int[np.ndarray, " nodes"]
    stage_link: Int[np.ndarray, " stage"]
    stage_to: Int[np.ndarray, " stage"]
    stage_use: Float[np.ndarray, " stage"]
    sum: Float[np.ndarray, " nodes"]
    lost: Float[np.ndarray, " nodes"]
    touched: Int[np.ndarray, " nodes"]
    size: Int[np.ndarray, " 4"]  # bundles, parts, distributions, shares
    need: Int[np.ndarray, " 4"]
    weight: Float[np.ndarray, " weights"]  # of each link; none: all alike
    stuck: Int[np.ndarray, " 2"]  # node and target where no usable link has a weight


_OF_BUNDLES = ("bundle_seal", "origin", "next", "part_ptr")
_OF_PARTS = ("part_link", "part_use")
_OF_STATES = (
    "state_seal", "share_ptr", "seen_until", "seen_block", "seen_bundle", "change"
)  # fmt: skip
_OF_SHARES = ("share_node", "share")


def spray(
    network: Network,
    flows: Flows,
    *,
    queue_pairs: int = 1,
    max_parts: int = 50_000_000,
    rails: str = RAILS[0],
) -> Routes:
    """Return routes that split every flow equally over all its shortest paths, cable by cable.

    Spray: at every switch the traffic to a destination leaves in equal fractions over all live
    cables that lie on a shortest path to it, packet by packet, so that one flow uses many paths.

    Splits are shared: flows that arrive at the same switches in the same fractions and may use
    the same cables share a bundle, so a dead cable splits only the bundles whose usable cables
    it changes. Shortest paths, forwarding nodes, dead links and links of capacity 0 are as in
    `ecmp`.

    Args:
        network: With labels.
        flows: (flows,). Weights and caps travel into the routes.
        queue_pairs: Queue pairs per flow, each a row with 1/n of the weight and 1/n of the cap;
            all go the same way.
        max_parts: Most (bundle, link) entries to make, about 16 bytes each. Fabrics without
            tiers, such as a torus, and many dead links make many.
        rails: As in `ecmp`, for networks with servers.

    Returns:
        Two-level `Routes`. The hops of a flow are its stages, in order, each with `hop_use` 1;
        the parts of a bundle sum to 1, or to the share that moves where routing costs differ.

    Raises:
        ModelError: If an end of a flow is no endpoint or is out of range, a flow goes from a node
            to itself, or there are more than `max_parts` parts; says how many are to be expected.
        InfeasibleError: If a destination cannot be reached; the pairs are named.

    Precision: Fractions of symmetric cables are bit-equal.
    Cost: A search per block of 512 destination switches, one look-up per stage of a flow, and
        the parts: about 0.5 s for a million flows on 65,536 hosts, 1 s with 20 dead cables.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
        >>> routes = spray(net, fb.Flows(net.hosts[:1], net.hosts[1:]))
        >>> routes.n_bundles, routes.part_use.tolist()
        (4, [1.0, 0.5, 0.5, 0.5, 0.5, 1.0])
    """
    pairs, limit = whole("queue_pairs", queue_pairs), whole("max_parts", max_parts)
    walk = lambda trip: sprayed(trip, pairs, limit)
    rule = {"rails": rails} if has_servers(network) else {}
    return routed(network, flows, walk, pairs, rails).with_rule(
        name="spray", queue_pairs=pairs, **rule
    )


def sprayed(
    trip: Trip,
    pairs: int,
    limit: int,
    *,
    weight: Float[np.ndarray, " links"] | None = None,
    name: str = "spray",
) -> Routes:
    """Return the routes of a trip, split at every switch in equal parts or by weight of the links.

    Args:
        trip: What to route.
        pairs: Queue pairs per flow.
        limit: Most parts to make.
        weight: (links,), 0 or more. Default: all alike.
        name: Of the rule, for messages.
    """
    from fabric.kernels._spray import walk_sprayed

    flows = trip.flows
    book = new_book(trip, weight)
    length = np.zeros(flows.n_flows, np.int32)
    pieces: list[Piece] = []
    for block in trip.blocks():
        at = block.begun
        while at < block.stop:
            chunk, begun = chunk_for(trip.longest, block.stop - at), at
            at, used = walk_sprayed(
                trip.graph, block.usable, trip.demand, book, at, block.stop,
                block.first, block.last, block.dist, chunk, length,
            )  # fmt: skip
            check_stuck(trip, book.stuck, name)
            if not book.need.any():
                pieces.append((begun, at, chunk[:used]))
            else:
                pieces.append((begun, at, chunk[:used].copy()))  # most of the chunk is unused
                check_parts(name, int(book.need[1]), limit, at, flows.n_flows)
                book = grown(book, limit)
    trip.check_reached(length < 0)
    parts = parts_of(book)
    check_parts(name, len(parts[0]), limit, flows.n_flows, flows.n_flows)
    n_links = trip.network.n_links
    # Without flows there is no part, and routes without parts are one-level.
    bundles = int(book.size[0]) if len(parts[0]) else n_links
    return routes_from(flows, pairs, trip.demand.order, pieces, length, n_links, bundles, parts)


def parts_of(
    book: Book,
) -> tuple[Int[np.ndarray, " parts"], Int[np.ndarray, " parts"], Float[np.ndarray, " parts"]]:
    """Return (bundle, link, use) of every part of a book."""
    n_bundles, n_parts = int(book.size[0]), int(book.size[1])
    width = np.diff(book.part_ptr[: n_bundles + 1])
    bundle = np.repeat(np.arange(n_bundles, dtype=np.int32), width)
    return bundle, book.part_link[:n_parts].copy(), book.part_use[:n_parts].copy()


def check_parts(name: str, parts: int, limit: int, done: int, flows: int) -> None:
    """Raise `ModelError` where there are more parts than allowed, with how many to expect."""
    if parts <= limit:
        return
    expected = max(parts, round(parts * flows / max(done, 1)))
    message = (
        f"`{name}` needs more than `max_parts={limit}` parts: {parts:,} for the first {done:,} of "
        f"{flows:,} flows, so up to {expected:,} or {expected * 16 / 1e9:,.1f} GB for all. Raise "
        f"`max_parts`, give fewer flows or fewer dead links, or use `ecmp`."
    )
    raise ModelError(message)


def check_stuck(trip: Trip, stuck: Int[np.ndarray, " 2"], name: str) -> None:
    """Raise `ModelError` where a walk met a node none of whose usable links has a weight."""
    if stuck[0] < 0:
        return
    demand, node_of = trip.demand, trip.graph.node_of
    host = int(demand.target_host[stuck[1]])
    target = host if host >= 0 else int(node_of[demand.target_node[stuck[1]]])
    at, to = names_of(trip.network, [int(stuck[0]), target])
    message = (
        f"`{name}` needs a weight above 0 on a usable cable of every switch that traffic reaches, "
        f"but all usable cables of '{at}' towards '{to}' weigh 0. Give one of them a weight, or "
        f"weights further back that keep this traffic away from '{at}'."
    )
    raise ModelError(message)


def new_book(trip: Trip, weight: Float[np.ndarray, " links"] | None = None) -> Book:
    """Return an empty book."""
    from fabric.kernels._paths import WORDS
    from fabric.kernels._spray import point_states

    graph = trip.graph
    points, nodes = len(graph.node_of) + 1, len(graph.forward_of)
    room = points + _START
    stage = len(graph.out_link) + len(graph.last_link) + len(graph.first_link) + points
    book = Book(
        bundle_table=_table(_START),
        bundle_seal=np.zeros(_START, np.uint64),
        origin=np.zeros(_START, np.int64),
        next=np.zeros(_START, np.int32),
        part_ptr=np.zeros(_START + 1, np.int64),
        part_link=np.zeros(_START, np.int32),
        part_use=np.zeros(_START, np.float64),
        state_table=_table(room),
        state_seal=np.zeros(room, np.uint64),
        share_ptr=np.zeros(room + 1, np.int64),
        share_node=np.zeros(room, np.int32),
        share=np.zeros(room, np.float64),
        seen_until=np.zeros(room, np.int32),
        seen_block=np.full(room, -1, np.int32),
        seen_bundle=np.full(room, -1, np.int32),
        change=np.zeros((room, WORDS), np.uint64),
        first_of=np.full(nodes, -1, np.int32),
        last_of=np.full(nodes, -1, np.int32),
        stage_link=np.zeros(stage, np.int32),
        stage_to=np.zeros(stage, np.int32),
        stage_use=np.zeros(stage, np.float64),
        sum=np.zeros(points, np.float64),
        lost=np.zeros(points, np.float64),
        touched=np.zeros(points, np.int32),
        size=np.zeros(4, np.int64),
        need=np.zeros(4, np.int64),
        weight=np.zeros(0) if weight is None else weight,
        stuck=np.full(2, -1, np.int64),
    )
    point_states(book, points)
    return book


def _table(entries: int) -> Int[np.ndarray, " table"]:
    return np.full(1 << (2 * entries - 1).bit_length(), -1, np.int32)


def grown(book: Book, limit: int) -> Book:
    """Return the book with twice the room of whatever was too small."""
    from fabric.kernels._spray import refill

    fields = {}
    room = (len(book.origin), len(book.part_link), len(book.state_seal), len(book.share))
    names = (_OF_BUNDLES, _OF_PARTS, _OF_STATES, _OF_SHARES)
    for need, have, arrays in zip(book.need, room, names, strict=True):
        if need <= have:
            continue
        most = limit if arrays is _OF_PARTS else 2 * have
        more = max(int(need), min(2 * have, most)) - have
        for name in arrays:
            old = getattr(book, name)
            fill = -1 if name.startswith("seen") else 0
            fields[name] = np.concatenate([old, np.full((more, *old.shape[1:]), fill, old.dtype)])
    book.need[:] = 0
    book = book._replace(**fields)
    for table, seal, size in (
        ("bundle_table", "bundle_seal", 0),
        ("state_table", "state_seal", 2),
    ):
        if seal in fields:
            fresh = _table(len(fields[seal]))
            refill(fresh, fields[seal], int(book.size[size]))
            book = book._replace(**{table: fresh})
    return book
