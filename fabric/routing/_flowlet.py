"""Flowlets: a flow cut into pieces that take random shortest paths, all at one rate."""

import numpy as np

from fabric._errors import raise_faults
from fabric._memory import afford
from fabric.network import Flows, Network, Routes, frozen, whole_or_fault
from fabric.routing._ecmp import Walker, checked_hash
from fabric.routing._graph import Block, Trip
from fabric.routing._rows import CHUNK
from fabric.routing._servers import RAILS, has_servers, routed

BYTES_PER_HOP = 44
"""Of memory at the peak, for every link that a subpath crosses."""


def flowlet(
    network: Network,
    flows: Flows,
    *,
    n: int = 8,
    seed: int = 0,
    hash: str = "hop",
    key: str = "row",
    queue_pairs: int = 1,
    rails: str = RAILS[0],
) -> Routes:
    """Return routes on which every flow is spread over n random subpaths, at one rate.

    Flowlet: a flow is cut into n equal pieces, each of which takes a path as `ecmp` draws it, and
    all of which move at one rate, that of the flow.

    The pieces of one flow wait for each other, unlike queue pairs, which each get a rate of their
    own: the flow is as fast as the busiest of its paths allows. With many subpaths this becomes
    `spray`, with one it is `ecmp`.

    Args:
        network: With labels.
        flows: (flows,). Weights and caps travel into the routes.
        n: Subpaths per flow; several may fall on the same path.
        seed: As in `ecmp`.
        hash: As in `ecmp`.
        key: As in `ecmp`; subpaths are numbered like queue pairs.
        queue_pairs: Rows per flow, each with n subpaths and a rate of its own, 1/n of the weight
            and 1/n of the cap.
        rails: As in `ecmp`, for networks with servers.

    Returns:
        One-level `Routes`, a row per queue pair: every link on a subpath once, with `hop_use` the
        share of the subpaths that cross it. Two-level where the network has servers.

    Raises:
        ModelError: If an end of a flow is no endpoint or is out of range, a flow goes from a node
            to itself, or an option is out of range.
        InfeasibleError: If a destination cannot be reached, or the routes would not fit in memory.

    Cost: As `ecmp` with n queue pairs.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
        >>> routes = flowlet(net, fb.Flows(net.hosts[:1], net.hosts[1:]), n=4)
        >>> routes.n_flows, sorted(routes.hop_use.tolist())
        (1, [0.5, 0.5, 0.5, 0.5, 1.0, 1.0])

    References:
        S. Sinha, S. Kandula and D. Katabi, Harnessing TCP's Burstiness with Flowlet Switching,
        HotNets 2004.
    """
    faults: list[str] = []
    pieces = whole_or_fault("n", n, faults)
    pairs = whole_or_fault("queue_pairs", queue_pairs, faults)
    how = checked_hash(seed, "switch", hash, key, faults)
    raise_faults(faults)

    def walk(trip: Trip) -> Routes:
        walker = Walker(trip, pairs * pieces, how)
        parts = [
            part for block in trip.blocks() for part in _merged(walker, trip, block, pairs, pieces)
        ]
        trip.check_reached(walker.length[:: pairs * pieces] < 0)
        return _routes(trip, pairs, parts)

    rule = {"rails": rails} if has_servers(network) else {}
    return routed(network, flows, walk, pairs, rails).with_rule(
        name="flowlet", n=pieces, seed=how.seed, hash=hash, key=key, queue_pairs=pairs, **rule
    )


_Part = tuple[int, int, np.ndarray, np.ndarray, np.ndarray]
"""Rows `begun` to `stop`, in the order they were walked: links, shares, and links of each."""


def _merged(walker: Walker, trip: Trip, block: Block, pairs: int, n: int) -> list[_Part]:
    from fabric.kernels._walks import merge_rows

    parts: list[_Part] = []
    first, last, held = block.begun * pairs, block.stop * pairs, 0
    at, piece = first, first * n
    left = np.empty(0, np.int32)  # of the row that the last chunk cut in two
    while at < last:
        chunk = np.empty(max(CHUNK, trip.longest), np.int32)
        piece, used = walker.walk(block, piece, last * n, chunk)
        stop, hops = piece // n, np.concatenate([left, chunk[:used]])
        row = trip.demand.order[np.arange(at, stop) // pairs].astype(np.int64) * pairs
        row += np.arange(at, stop) % pairs
        length = walker.length[(row[:, None] * n + np.arange(n)).ravel()]
        ptr = np.concatenate([[0], np.cumsum(np.maximum(length, 0), dtype=np.int64)])
        left = hops[ptr[-1] :]
        link, use = np.empty(ptr[-1], np.int32), np.empty(ptr[-1])
        width = np.zeros(stop - at, np.int32)
        used = merge_rows(np.arange(stop - at + 1) * n, ptr, hops[: ptr[-1]], link, use, width)
        parts.append((at, stop, link[:used].copy(), use[:used].copy(), width))
        held += used
        rows = trip.flows.n_flows * pairs
        afford(
            f"`flowlet` of {rows:,} flows or queue pairs with {n:,} subpaths each",
            BYTES_PER_HOP * held * rows / max(stop - first, 1),
            "Give a smaller `n` or fewer flows.",
        )
        at = stop
    return parts


def _routes(trip: Trip, pairs: int, parts: list[_Part]) -> Routes:
    from fabric.kernels._paths import scatter_rows

    flows, order, n_links = trip.flows, trip.demand.order, trip.network.n_links
    width = np.zeros((flows.n_flows, pairs), np.int64)
    for begun, stop, _, _, hops in parts:
        row = np.arange(begun, stop)
        width[order[row // pairs], row % pairs] = hops
    ptr = np.concatenate([[0], np.cumsum(width)])
    hop_flow, hop_link = np.empty(ptr[-1], np.int32), np.empty(ptr[-1], np.int32)
    hop_use = np.empty(ptr[-1])
    for begun, stop, link, use, _ in parts:
        scatter_rows(order, pairs, begun, stop, ptr, link, hop_flow, hop_link)
        scatter_rows(order, pairs, begun, stop, ptr, use, hop_flow, hop_use)
    none = np.empty(0, np.int32)
    return Routes(
        frozen(hop_flow), frozen(hop_link), frozen(hop_use),
        frozen(none), frozen(none), frozen(np.empty(0)),
        np.repeat(np.asarray(flows.weight, np.float64) / pairs, pairs),
        np.repeat(np.asarray(flows.cap, np.float64) / pairs, pairs),
        frozen(np.repeat(np.arange(flows.n_flows, dtype=np.int32), pairs)),
        n_links=n_links, n_bundles=n_links, n_pairs=flows.n_flows,
    )  # fmt: skip
