"""Shortest distances from every node, by routing cost."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, some
from fabric._typing import AnyArray
from fabric.network import Network, index_array
from fabric.routing._graph import distances, graph_and_targets


def shortest_distances(
    network: Network, destinations: Int[AnyArray, " destinations"] | Sequence[int]
) -> Int[np.ndarray, "destinations nodes"]:
    """Return the routing cost of the shortest way from every node to each destination.

    The distance that `ecmp` and `spray` go by: the least sum of `network.routing_cost` over live
    links, with only forwarding nodes in between. Where every cost is 1 it counts hops.

    Args:
        network: With labels.
        destinations: (destinations,), node numbers; repeats are legal.

    Returns:
        (destinations, nodes), whole numbers; -1 where there is no way, 0 at the destination.

    Raises:
        ModelError: If a destination is out of range.

    Cost: As `ecmp`, and memory of 8 bytes per destination and node.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
        >>> shortest_distances(net, net.hosts)[:, net.hosts].tolist()
        [[0, 4], [4, 0]]
    """
    nodes = index_array("destinations", destinations, dtype=np.int64)
    outside = np.flatnonzero((nodes < 0) | (nodes >= network.n_nodes))
    if len(outside):
        message = (
            f"`destinations` needs nodes from 0 to {network.n_nodes - 1:,}, but {len(outside):,} "
            f"of {len(nodes):,} are outside: {some(nodes[outside])}."
        )
        raise ModelError(message)
    asked = np.zeros(network.n_nodes, bool)
    asked[nodes] = True
    graph, target_of, target_node, target_host = graph_and_targets(network, asked)
    result = np.full((len(nodes), network.n_nodes), -1, np.int64)
    target = target_of[nodes]
    sources = np.flatnonzero(np.diff(graph.first_ptr))
    direct = graph.first_to < 0
    never = np.iinfo(np.int64).max
    for first, last, dist, _ in distances(graph, target_node, target_host):
        rows = np.flatnonzero((target >= first) & (target < last))
        ends = nodes[rows]
        # Where the target is the switch before the destination, the last hop is still to come.
        short = (target_host[target[rows]] < 0) & (graph.forward_of[ends] < 0)
        tail = np.zeros(len(rows), np.int64)
        tail[short] = graph.last_cost[graph.last_ptr[ends[short]]]
        way = dist[target[rows] - first, :-1].astype(np.int64)
        way[way >= 0] += np.broadcast_to(tail[:, None], way.shape)[way >= 0]
        result[np.ix_(rows, graph.node_of)] = way
        if len(sources):
            over = way[:, np.where(direct, 0, graph.first_to)] if way.shape[1] else None
            if over is None:
                over = np.full((len(rows), len(direct)), -1, np.int64)
            arrives = direct & (~graph.first_to == ends[:, None])
            over = np.where(direct, np.where(arrives, 0, -1), over)
            over = np.where(over < 0, never, over + graph.first_cost)
            best = np.minimum.reduceat(over, graph.first_ptr[sources], axis=1)
            result[np.ix_(rows, sources)] = np.where(best == never, -1, best)
    result[np.arange(len(nodes)), nodes] = 0
    step = np.gcd.reduce(np.asarray(network.routing_cost, np.int64))
    return np.where(result > 0, result * step, result)
