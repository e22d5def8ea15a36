"""Slow oracles of routing, and small random networks to set them against."""

from fractions import Fraction

import networkx as nx
import numpy as np

from fabric import Flows, Network
from fabric.network import Labels


def network_of(kinds, cables):
    """Return a network from a kind per node and cables (a, b, cost there, cost back, alive)."""
    names = sorted(set(kinds))
    src = [end for a, b, *_ in cables for end in (a, b)]
    dst = [end for a, b, *_ in cables for end in (b, a)]
    labels = Labels(
        kinds=tuple(names),
        kind_of=np.array([names.index(kind) for kind in kinds], np.int8),
        names=[f"{kind}{i}" for i, kind in enumerate(kinds)],
        src=np.array(src, np.int32),
        dst=np.array(dst, np.int32),
        tiers=("cable",),
        tier_of=np.zeros(len(src), np.int8),
        cable_of=np.repeat(np.arange(len(cables), dtype=np.int32), 2),
    )
    cost = np.array([c for _, _, *costs, _ in cables for c in costs], np.int32)
    alive = np.repeat([cable[-1] for cable in cables], 2)
    return Network(np.ones(len(src)), None, alive, cost, labels=labels)


def random_network(rng, n_switches=8, n_hosts=10, costs=(1,), dead=0.1, direct=0.0, nodes=False):
    """Return a random network: parallel cables, hosts with one or two uplinks, dead links.

    Some switches are service nodes that do not forward. With `nodes`, every switch is a plain
    node that sends, receives and forwards, and there are no hosts.
    """
    idle = max(1, n_switches // 8)
    kinds = ["switch"] * (n_switches - idle) + ["aggregation-node"] * idle
    kinds = ["node"] * n_switches if nodes else kinds + ["host"] * n_hosts
    cost = lambda: int(rng.choice(costs))
    cables = []

    def connect(a, b, parallel):
        cables.extend((a, b, cost(), cost(), rng.random() >= dead) for _ in range(parallel))

    for v in range(1, n_switches):
        connect(v, int(rng.integers(v)), 1)
    for _ in range(2 * n_switches):
        a, b = rng.choice(n_switches, 2, replace=False)
        connect(int(a), int(b), int(rng.integers(1, 3)))
    for host in range(n_switches, len(kinds)):
        for _ in range(int(rng.integers(1, 3))):
            connect(host, int(rng.integers(n_switches - idle)), int(rng.integers(1, 3)))
        if rng.random() < direct:
            connect(host, n_switches + (host + 1 - n_switches) % n_hosts, 1)
    return network_of(kinds, cables)


def graph_between(network, s, d):
    """Return the live links over which traffic from s to d may go, as a networkx multigraph."""
    labels, graph = network.labels, nx.MultiDiGraph()
    graph.add_nodes_from([s, d])
    passes = lambda v: labels.forwards[v] or v in (s, d)
    for link in np.flatnonzero(np.asarray(network.alive)).tolist():
        a, b = int(labels.src[link]), int(labels.dst[link])
        if passes(a) and passes(b) and b != s and a != d:
            graph.add_edge(a, b, key=link, cost=int(network.routing_cost[link]))
    return graph


def distance(network, s, d):
    """Return the routing cost of the shortest way, or -1."""
    if s == d:
        return 0
    try:
        return nx.dijkstra_path_length(graph_between(network, s, d), s, d, weight="cost")
    except nx.NetworkXNoPath:
        return -1


def reachable_flows(network, rng=None, n=None):
    """Return all pairs of endpoints that reach each other, or those of n random pairs."""
    hosts = network.hosts.tolist()
    pairs = [(s, d) for s in hosts for d in hosts if s != d]
    if n is not None and rng is not None:
        pairs = [pairs[i] for i in rng.choice(len(pairs), n, replace=False)]
    pairs = [(s, d) for s, d in pairs if distance(network, s, d) >= 0]
    return Flows([s for s, _ in pairs], [d for _, d in pairs])


def split(network, s, d):
    """Return the load on each link of one unit sprayed from s to d, as exact fractions."""
    graph = graph_between(network, s, d)
    left = nx.single_source_dijkstra_path_length(graph.reverse(), d, weight="cost")
    load: dict[int, Fraction] = {}

    def pour(v, share):
        if v == d:
            return
        ways = [
            (link, w)
            for _, w, link, cost in graph.out_edges(v, keys=True, data="cost")
            if w in left and cost + left[w] == left[v]
        ]
        for link, w in ways:
            load[link] = load.get(link, Fraction(0)) + share / len(ways)
            pour(w, share / len(ways))

    pour(s, Fraction(1))
    return load


def usage(routes):
    """Return the load on each link per unit rate of each row, dense, (flows, links)."""
    if not routes.n_parts:
        table = np.zeros((routes.n_flows, routes.n_links))
        np.add.at(table, (routes.hop_flow, routes.hop_bundle), routes.hop_use)
        return table
    over = np.zeros((routes.n_flows, routes.n_bundles))
    np.add.at(over, (routes.hop_flow, routes.hop_bundle), routes.hop_use)
    parts = np.zeros((routes.n_bundles, routes.n_links))
    np.add.at(parts, (routes.part_bundle, routes.part_link), routes.part_use)
    return over @ parts


def paths(routes):
    """Return the links of every row of one-level routes, in order."""
    cuts = np.searchsorted(routes.hop_flow, np.arange(1, routes.n_flows))
    return [path.tolist() for path in np.split(routes.hop_bundle, cuts)]
