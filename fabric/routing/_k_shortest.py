"""K shortest paths: loop-free paths by routing cost, the shortest first, per pair of ends."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from fabric._errors import ModelError, raise_faults
from fabric._memory import afford
from fabric.network import Flows, Network, Routes, cost_array, frozen, join, whole_or_fault
from fabric.routing._graph import Trip
from fabric.routing._servers import RAILS, has_servers, routed

_SPLITS = ("equal", "hash")
_LARGEST = 2**31 - 1


class Arcs(NamedTuple):
    """Live links by sending and by receiving node; arc k is link `out_link[k]`.

    Of every node, arcs to nodes that forward come first, up to `out_mid`: what the others are
    depends on who is a destination.
    """

    forwards: Bool[np.ndarray, " nodes"]
    out_ptr: Int[np.ndarray, " nodes+1"]
    out_mid: Int[np.ndarray, " nodes"]
    out_link: Int[np.ndarray, " arcs"]
    out_from: Int[np.ndarray, " arcs"]
    out_to: Int[np.ndarray, " arcs"]
    out_cost: Int[np.ndarray, " arcs"]
    in_ptr: Int[np.ndarray, " nodes+1"]
    in_arc: Int[np.ndarray, " arcs"]


def k_shortest(
    network: Network,
    flows: Flows,
    *,
    k: int = 4,
    split: str = "equal",
    seed: int = 0,
    queue_pairs: int = 1,
    rails: str = RAILS[0],
) -> Routes:
    """Return routes over the k shortest loop-free paths of every pair of ends.

    K shortest: the traffic between two ends is spread evenly over the k paths of least routing cost
    that visit no node twice, or takes one of them by a hash.

    Paths are found once per pair of switches where the ends hang on one switch by one link each,
    else per pair of ends. Parallel cables make paths of their own, dead links none, and where there
    are fewer than k paths all are used. Which of many paths of equal cost are taken is drawn for
    every pair, by the seed. On a full mesh of N switches, k = N - 1 is the direct path and
    every one with one transit.

    Args:
        network: With labels.
        flows: (flows,). Weights and caps travel into the routes.
        k: Paths per pair, at most.
        split: "equal": every flow uses all paths, at one rate. "hash": a flow takes one of them.
        seed: Whole number from 0; other seeds take other paths of equal cost.
        queue_pairs: Rows per flow, each with 1/n of the weight and of the cap; with `split="hash"`
            each takes a path of its own.
        rails: As in `ecmp`, for networks with servers.

    Returns:
        One-level `Routes`, a row per queue pair, with `hop_use` the share of its paths that cross
        the link; in the order of the path where there is one. Two-level where the network has
        servers.

    Raises:
        ModelError: If an end of a flow is no endpoint or is out of range, a flow goes from a node
            to itself, an option is out of range, or routing costs are too far apart.
        InfeasibleError: If a destination cannot be reached, or the routes would not fit in memory.

    Cost: A search per destination switch and up to (hops of a path) * k searches per pair of
        switches, each directed by the distances: at k = 4, 20 us a pair on a fat tree of 1,024
        hosts, 100 us on one of 65,536.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.full_mesh(4)
        >>> routes = k_shortest(net, fb.Flows([0], [1]), k=3)
        >>> [round(use, 3) for use in routes.hop_use.tolist()]
        [0.333, 0.333, 0.333, 0.333, 0.333]

    References:
        J. Y. Yen, Finding the K Shortest Loopless Paths in a Network, Management Science 17(11),
        1971. E. L. Lawler, A Procedure for Computing the K Best Solutions, Management Science
        18(7), 1972.
    """
    faults: list[str] = []
    most = whole_or_fault("k", k, faults)
    number = whole_or_fault("seed", seed, faults, 0, 2**64 - 1)
    pairs = whole_or_fault("queue_pairs", queue_pairs, faults)
    if split not in _SPLITS:
        faults.append(f"`split` needs one of 'equal' and 'hash', but got {split!r}.")
    raise_faults(faults)
    walk = lambda trip: _routes(trip, most, number, split, pairs)
    rule = {"rails": rails} if has_servers(network) else {}
    return routed(network, flows, walk, pairs, rails).with_rule(
        name="k_shortest", k=most, split=split, seed=number, queue_pairs=pairs, **rule
    )


def _routes(trip: Trip, k: int, seed: int, split: str, queue_pairs: int) -> Routes:
    from fabric.kernels._walks import draws

    network, flows = trip.network, trip.flows
    n = network.n_nodes
    start, leave = nearest_switches(network, np.asarray(flows.src), outwards=True)
    goal, arrive = nearest_switches(network, np.asarray(flows.dst), outwards=False)
    pairs, pair = np.unique(goal.astype(np.int64) * n + start, return_inverse=True)
    goals, starts = np.divmod(pairs, n)
    own = starts == goals
    count, paths = loop_free_paths(network, starts[~own], goals[~own], k, seed)
    number = np.where(own, -1, np.cumsum(~own) - 1)[pair.ravel()]
    none = np.append(count == 0, False)  # row -1 is no pair
    trip.check_reached(none[number])
    leave, number, arrive = (np.repeat(rows, queue_pairs) for rows in (leave, number, arrive))
    if split == "equal":
        middle, row = _merged(paths, count), number
    else:
        first = np.append(np.cumsum(count) - count, -1)
        pick = draws(np.uint64(seed), np.arange(len(number)), np.append(count, 1)[number])
        middle, row = paths, np.where(number < 0, -1, first[number] + pick)
    links = np.arange(network.n_links)
    ends = Routes.from_csr(np.arange(network.n_links + 1), links, network.n_links)
    legs = [(ends, leave), (middle, row.astype(np.int32)), (ends, arrive)]
    return join(flows, legs, queue_pairs=queue_pairs)


def nearest_switches(
    network: Network, ends: Int[np.ndarray, " flows"], *, outwards: bool
) -> tuple[Int[np.ndarray, " flows"], Int[np.ndarray, " flows"]]:
    """Return where the search for each flow starts or ends, and the link between; -1: none.

    The switch where an endpoint hangs by one live link alone, else the endpoint itself.
    """
    labels, alive = network.labels, np.asarray(network.alive)
    here, there = (labels.src, labels.dst) if outwards else (labels.dst, labels.src)
    links = np.flatnonzero(alive)
    count = np.bincount(here[links], minlength=network.n_nodes)
    link = np.full(network.n_nodes, -1, np.int32)
    link[here[links]] = links
    forwards = np.asarray(labels.forwards)
    there = np.append(there, 0)[link]  # of nodes without a link: any
    hangs = (count == 1) & ~forwards & forwards[there]
    return np.where(hangs, there, np.arange(len(there)))[ends], np.where(hangs, link, -1)[ends]


def loop_free_paths(
    network: Network,
    starts: Int[np.ndarray, " pairs"],
    goals: Int[np.ndarray, " pairs"],
    k: int,
    seed: int,
) -> tuple[Int[np.ndarray, " pairs"], Routes]:
    """Return how many paths each pair has, and one-level routes with a row per path."""
    from fabric.kernels._ways import k_shortest_paths

    n = len(starts)
    refused = f"`k_shortest` of {n:,} pairs with `k={k}`", "Give a smaller `k` or fewer flows."
    # Where the hops of each path begin, and the arcs of paths found and waiting for one pair.
    afford(refused[0], 8.0 * n * k + 8.0 * k * network.n_nodes, refused[1])
    arcs = _arcs(network, starts, goals)
    path_ptr, hop_ptr = np.zeros(n + 1, np.int64), np.zeros(n * k + 1, np.int64)
    link = np.empty(max(1 << 16, 8 * n), np.int32)
    at = 0
    while at < n:
        at = k_shortest_paths(arcs, starts, goals, at, k, np.uint64(seed), path_ptr, hop_ptr, link)
        if at < n:
            afford(refused[0], 16 * len(link), refused[1])
            link = np.concatenate([link, np.empty(len(link), np.int32)])
    hop_ptr = hop_ptr[: path_ptr[-1] + 1]
    paths = Routes.from_csr(hop_ptr, link[: hop_ptr[-1]], network.n_links)
    return np.diff(path_ptr), paths


def _arcs(network: Network, starts: np.ndarray, goals: np.ndarray) -> Arcs:
    from fabric.kernels._paths import group_by

    labels, n = network.labels, network.n_nodes
    forwards = np.array(labels.forwards, bool)
    sends, gets = forwards.copy(), forwards.copy()
    sends[starts], gets[goals] = True, True
    src, dst = np.asarray(labels.src, np.int32), np.asarray(labels.dst, np.int32)
    links = np.flatnonzero(np.asarray(network.alive) & sends[src] & gets[dst]).astype(np.int32)
    links = np.concatenate([links[forwards[dst[links]]], links[~forwards[dst[links]]]])
    out_ptr, order = group_by(src[links], n)
    links = links[order]
    out_mid = out_ptr[:-1] + np.bincount(src[links][forwards[dst[links]]], minlength=n)
    in_ptr, in_arc = group_by(dst[links], n)
    cost = cost_array("network.routing_cost", network.routing_cost, name=network.link_name)
    cost = (cost // (np.gcd.reduce(cost) if len(cost) else 1))[links].astype(np.int64)
    if len(cost) and (longest := int(cost.max()) * int(sends.sum() + 1)) > _LARGEST:
        message = (
            f"`k_shortest` needs routing costs whose sum along any path stays below {_LARGEST:,}, "
            f"but with a largest one of {int(cost.max()):,} a path may cost {longest:,}. Give "
            f"smaller whole numbers, or use `ecmp` or `spray`."
        )
        raise ModelError(message)
    return Arcs(forwards, out_ptr, out_mid, links, src[links], dst[links], cost, in_ptr, in_arc)


def _merged(paths: Routes, count: Int[np.ndarray, " pairs"]) -> Routes:
    """Return a row per pair, which spreads evenly over its paths."""
    from fabric.kernels._walks import merge_rows

    n, hops = len(count), paths.n_hops
    group = np.concatenate([[0], np.cumsum(count)])
    ptr = np.searchsorted(paths.hop_flow, np.arange(paths.n_flows + 1))
    link, use, width = np.empty(hops, np.int32), np.empty(hops), np.zeros(n, np.int32)
    used = merge_rows(group, ptr, np.asarray(paths.hop_bundle), link, use, width)
    none = np.empty(0, np.int32)
    return Routes(
        frozen(np.repeat(np.arange(n, dtype=np.int32), width)),
        frozen(link[:used].copy()), frozen(use[:used].copy()),
        frozen(none), frozen(none), frozen(np.empty(0)),
        np.ones(n), np.full(n, np.inf), frozen(np.arange(n, dtype=np.int32)),
        n_links=paths.n_links, n_bundles=paths.n_links, n_pairs=n,
    )  # fmt: skip
