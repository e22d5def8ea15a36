"""What the routing kernels read: live links by node, flows by target, distances block by block."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from fabric._errors import ModelError, UnreachableError, raise_faults, some
from fabric.network import Flows, Network, cost_array, names_of

BLOCK = 512
"""Targets whose distances are held at a time: one bit of 8 words each."""

_DISTANCE_BYTES = 1 << 27
_LEVEL_BYTES = 1 << 28
_LEVELS = 1_000  # largest routing cost, in units of their common divisor, that levels serve


class Graph(NamedTuple):
    """Live links in compressed rows; F forwarding nodes are numbered from 0, the sink is F.

    Links between forwarding nodes by sending node (`out_*`), links out of nodes that do not
    forward by sending node (`first_*`, a direct link to such a node w has `first_to` = ~w), links
    from forwarding nodes to those that do not forward by receiving node (`last_*`).
    """

    forward_of: Int[np.ndarray, " nodes"]  # -1: does not forward
    node_of: Int[np.ndarray, " forwarding"]
    out_ptr: Int[np.ndarray, " forwarding+1"]
    out_link: Int[np.ndarray, " out"]
    out_to: Int[np.ndarray, " out"]
    out_cost: Int[np.ndarray, " out"]
    first_ptr: Int[np.ndarray, " nodes+1"]
    first_link: Int[np.ndarray, " first"]
    first_to: Int[np.ndarray, " first"]
    first_cost: Int[np.ndarray, " first"]
    last_ptr: Int[np.ndarray, " nodes+1"]
    last_link: Int[np.ndarray, " last"]
    last_from: Int[np.ndarray, " last"]
    last_cost: Int[np.ndarray, " last"]


class Usable(NamedTuple):
    """Usable cables per forwarding node, each as of the last target that asked."""

    change: Int[np.ndarray, "nodes words"]
    state: Int[np.ndarray, "forwarding 4"]  # until which target, how many, first row of hop, node
    seal: Int[np.ndarray, " forwarding"]
    hop: Int[np.ndarray, "room 2"]  # link, forwarding node it leads to
    first: Int[np.ndarray, " first"]


class Demand(NamedTuple):
    """Flows, sorted by target, and their targets.

    A target is the one forwarding node that a destination hangs on (then `target_host` is -1 and
    the last hop is no part of the search), or the destination itself.
    """

    order: Int[np.ndarray, " flows"]
    src: Int[np.ndarray, " flows"]
    dst: Int[np.ndarray, " flows"]
    target: Int[np.ndarray, " flows"]
    target_node: Int[np.ndarray, " targets"]  # forwarding node; the sink where a host is the target
    target_host: Int[np.ndarray, " targets"]


class Block(NamedTuple):
    """A run of targets with their distances, and its part of the flows sorted by target."""

    first: int
    last: int
    begun: int
    stop: int
    dist: Int[np.ndarray, "targets nodes"]
    usable: Usable


class Trip:
    """One routing job: the graph, the demand, and the blocks to walk.

    Args:
        network: With labels.
        flows: (flows,).
        instead_of: Where these flows run on behalf of others: the network and the flows of
            those, and which of them each of these is. Messages speak of them.

    Attributes:
        graph, demand: What the kernels read.
        longest: No path has more hops, and no flow more stages.
    """

    def __init__(
        self,
        network: Network,
        flows: Flows,
        instead_of: tuple[Network, Flows, Int[np.ndarray, " flows"]] | None = None,
    ):
        check_flows(network, flows)
        self.network, self.flows = network, flows
        self._said = instead_of or (network, flows, np.arange(flows.n_flows))
        src, dst = _int32(flows.src), _int32(flows.dst)
        asked = np.zeros(network.n_nodes, bool)
        asked[dst] = True
        self.graph, target_of, node, host = graph_and_targets(network, asked)
        from fabric.kernels._paths import group_by

        target = target_of[dst]
        self._ptr, order = group_by(target, len(node))
        self.demand = Demand(order, src[order], dst[order], target[order], node, host)
        self.longest = len(self.graph.node_of) + 3

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks; the distance arrays are used again for the next one."""
        for first, last, dist, usable in distances(
            self.graph, self.demand.target_node, self.demand.target_host
        ):
            begun, stop = int(self._ptr[first]), int(self._ptr[last])
            yield Block(first, last, begun, stop, dist, usable)

    def check_reached(self, lost: Bool[np.ndarray, " flows"]) -> None:
        """Raise `UnreachableError` that names flows whose destination cannot be reached."""
        network, flows, number = self._said
        all_lost = np.zeros(flows.n_flows, bool)
        all_lost[number] = lost
        check_reached(network, flows, all_lost)


def check_reached(network: Network, flows: Flows, lost: Bool[np.ndarray, " flows"]) -> None:
    """Raise `UnreachableError` that names the flows that are lost, if any is."""
    if not lost.any():
        return
    number, labels = np.flatnonzero(lost), network.labels
    ends = zip(flows.src[number], flows.dst[number], strict=True)
    pairs = list(dict.fromkeys((int(a), int(b)) for a, b in ends))
    pair_name = lambda i: " -> ".join(names_of(network, pairs[i]))
    dead = np.flatnonzero(~np.asarray(network.alive))
    if len(dead):
        cause = (
            f"{len(dead):,} of {network.n_links:,} links are dead: "
            f"{some(dead.tolist(), name=network.link_name)}. "
            f"Bring links back (`network.alive`), or leave these pairs out."
        )
    else:
        cause = (
            f"No link is dead, and {int(labels.forwards.sum()):,} of {labels.n_nodes:,} nodes "
            f"forward. Add the missing links, or let more nodes forward (`labels.forwards`)."
        )
    message = (
        f"{len(number):,} of {len(lost):,} flows cannot reach their destination over live links "
        f"and forwarding nodes: {some(range(len(pairs)), name=pair_name)}. {cause}"
    )
    raise UnreachableError(message, number.tolist())


def check_flows(network: Network, flows: Flows) -> None:
    """Raise one `ModelError` with every fault of the flows' ends."""
    n, src, dst = network.n_nodes, np.asarray(flows.src), np.asarray(flows.dst)
    faults = []
    for name, ends in (("src", src), ("dst", dst)):
        outside = np.flatnonzero((ends < 0) | (ends >= n))
        if len(outside):
            faults.append(
                f"`flows.{name}` needs nodes from 0 to {n - 1:,}, but {len(outside):,} of "
                f"{len(ends):,} flows are outside, at flows {some(outside)}."
            )
            continue
        endpoint = np.asarray(network.labels.endpoint)
        if not endpoint[ends].all():
            nodes = np.unique(ends[~endpoint[ends]])
            name_of = lambda node: names_of(network, [node])[0]
            faults.append(
                f"`flows.{name}` needs nodes that send and receive (`network.hosts`), but "
                f"{len(nodes):,} nodes in it do not: {some(nodes.tolist(), name=name_of)}."
            )
    loops = np.flatnonzero(src == dst)
    if len(loops):
        faults.append(
            f"`flows` needs a `src` and a `dst` that differ, but {len(loops):,} of {len(src):,} "
            f"flows go from a node to itself: flows {some(loops)}. Leave them out."
        )
    raise_faults(faults)


def distances(
    graph: Graph, target_node: Int[np.ndarray, " targets"], target_host: Int[np.ndarray, " targets"]
) -> Iterator[tuple[int, int, Int[np.ndarray, "targets nodes"], Usable]]:
    """Yield (first, last, dist, usable) per block of targets; the arrays are used again.

    `dist[t - first, v]` is the routing cost from forwarding node v to target t, -1 where there
    is no way. Levels, bit-parallel, where the spread of routing costs allows it, else Dijkstra.
    """
    from fabric.kernels import _paths

    n, n_targets = len(graph.node_of), len(target_node)
    costs = np.unique(graph.out_cost) if len(graph.out_cost) else np.ones(1, np.int32)
    by_level = costs[-1] <= _LEVELS and (int(costs[-1]) + 1) * n * 64 <= _LEVEL_BYTES
    size = int(np.clip(_DISTANCE_BYTES // (4 * (n + 1)) // 64 * 64, 64, BLOCK))
    dist = np.empty((min(size, max(n_targets, 1)), n + 1), np.int32)
    usable = _usable(graph, _paths.WORDS)
    if not by_level:
        usable.change[:] = np.iinfo(np.uint64).max
    in_ptr, order = _paths.group_by(graph.out_to, n)
    in_from = np.repeat(np.arange(n, dtype=np.int32), np.diff(graph.out_ptr))[order]
    in_cost = graph.out_cost[order]
    for first in range(0, n_targets, size):
        last = min(first + size, n_targets)
        count = last - first
        target, node, cost = _seeds(graph, target_node[first:last], target_host[first:last])
        usable.state[:, 0] = 0
        if by_level:
            _paths.level_distances(graph, count, target, node, cost, costs, dist, usable.change)
        elif _paths.heap_distances(in_ptr, in_from, in_cost, count, target, node, cost, dist):
            message = (
                f"`network.routing_cost` reaches {int(graph.out_cost.max()):,} and adds up to more "
                f"than {2**31 - 1:,} on a shortest path. Give smaller whole numbers."
            )
            raise ModelError(message)
        yield first, last, dist, usable


def graph_and_targets(
    network: Network, asked: Bool[np.ndarray, " nodes"]
) -> tuple[Graph, np.ndarray, np.ndarray, np.ndarray]:
    """Return the graph, the target of every asked node, and node and host of every target."""
    from fabric.kernels._paths import group_by

    labels, n = network.labels, network.n_nodes
    src, dst, cost = _int32(labels.src), _int32(labels.dst), _costs(network)
    alive, forwards = np.array(network.alive, bool), np.array(labels.forwards, bool)
    node_of = np.flatnonzero(forwards).astype(np.int32)
    forward_of = np.full(n, -1, np.int32)
    forward_of[node_of] = np.arange(len(node_of), dtype=np.int32)
    sends, gets = forward_of[src] >= 0, forward_of[dst] >= 0

    def rows(kept: np.ndarray, keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        links = np.flatnonzero(kept).astype(np.int32)
        ptr, order = group_by(keys[links], count)
        return ptr, links[order]

    out_ptr, out = rows(alive & sends & gets, forward_of[src], len(node_of))
    first_ptr, leave = rows(alive & ~sends, src, n)
    last_kept = alive & sends & ~gets
    last = np.flatnonzero(last_kept)
    # A destination with all its links from one forwarding node shares that node as target.
    hub = np.full(n, -1, np.int32)
    hub[dst[last]] = forward_of[src[last]]
    shared = hub >= 0
    shared[dst[last][forward_of[src[last]] != hub[dst[last]]]] = False
    shared[dst[alive & ~sends & ~gets]] = False  # a direct link competes with the way over the node
    cheapest = np.full(n, np.iinfo(np.int32).max, np.int32)
    np.minimum.at(cheapest, dst[last], cost[last])
    last_kept[last] = ~shared[dst[last]] | (cost[last] == cheapest[dst[last]])
    last_ptr, arrive = rows(last_kept, dst, n)

    near = np.where(forward_of >= 0, forward_of, np.where(shared, hub, -1))
    wanted = np.zeros(len(node_of), bool)
    wanted[near[asked & (near >= 0)]] = True
    hosts = np.flatnonzero(asked & (near < 0)).astype(np.int32)
    nodes = np.flatnonzero(wanted).astype(np.int32)
    number = np.cumsum(wanted, dtype=np.int32) - 1
    target_of = np.full(n, -1, np.int32)
    target_of[near >= 0] = number[near[near >= 0]]
    target_of[hosts] = len(nodes) + np.arange(len(hosts), dtype=np.int32)
    target_node = np.concatenate([nodes, np.full(len(hosts), len(node_of), np.int32)])
    target_host = np.concatenate([np.full(len(nodes), -1, np.int32), hosts])
    to = dst[leave]
    graph = Graph(
        forward_of, node_of,
        out_ptr, out, forward_of[dst[out]], cost[out],
        first_ptr, leave, np.where(forward_of[to] >= 0, forward_of[to], ~to), cost[leave],
        last_ptr, arrive, forward_of[src[arrive]], cost[arrive],
    )  # fmt: skip
    return graph, target_of, target_node, target_host


def _costs(network: Network) -> Int[np.ndarray, " links"]:
    cost = cost_array("network.routing_cost", network.routing_cost, name=network.link_name)
    step = np.gcd.reduce(cost) if len(cost) else 1
    return cost // step


def _usable(graph: Graph, words: int) -> Usable:
    n = len(graph.node_of)
    spare = 0
    if len(graph.last_link):  # a node may reach a host over several cables
        host = np.repeat(np.arange(len(graph.forward_of)), np.diff(graph.last_ptr))
        _, twins = np.unique(host * (n + 1) + graph.last_from, return_counts=True)
        spare = int(twins.max())
    state = np.zeros((n, 4), np.int32)
    state[:, 2] = graph.out_ptr[:-1] + spare * np.arange(n)
    state[:, 3] = graph.node_of
    return Usable(
        change=np.zeros((n + 1, words), np.uint64),
        state=state,
        seal=np.zeros(n, np.uint64),
        hop=np.empty((len(graph.out_link) + spare * n, 2), np.int32),
        first=np.empty(int(np.diff(graph.first_ptr).max(initial=0)), np.int32),
    )


def _seeds(graph: Graph, node: np.ndarray, host: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return (target, node, cost) of where the distances of a block start, sorted by cost."""
    at_node = np.flatnonzero(host < 0).astype(np.int32)
    at_host = np.flatnonzero(host >= 0).astype(np.int32)
    begun, end = graph.last_ptr[host[at_host]], graph.last_ptr[host[at_host] + 1]
    width = end - begun
    skip = np.cumsum(width) - width
    entry = np.arange(int(width.sum())) + np.repeat(begun - skip, width)
    target = np.concatenate([at_node, np.repeat(at_host, width)])
    start = np.concatenate([node[at_node], graph.last_from[entry]])
    cost = np.concatenate([np.zeros(len(at_node), np.int32), graph.last_cost[entry]])
    order = np.argsort(cost, kind="stable")
    return target[order], start[order], cost[order]


def _int32(values: object) -> np.ndarray:
    return np.array(values, np.int32)
