"""`adaptive` against the linear programme of the least largest utilisation."""

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

import fabric as fb
from fabric import Flows, routing, topologies
from fabric.reference import Problem, max_min_rates_by_levels
from tests.unit._routing_oracles import (
    distance,
    graph_between,
    network_of,
    random_network,
    reachable_flows,
    usage,
)


def least_utilisation(network, flows):
    """Return the least possible largest utilisation over shortest paths, by HiGHS.

    A variable per destination and link that lies on a shortest path to it: what flows on it.
    """
    capacity = np.asarray(network.capacity, np.float64)
    scale = capacity.max()  # the solver has an absolute tolerance
    weight = np.asarray(flows.weight, np.float64)
    rows, columns, values, wanted, of_link = [], [], [], [], []
    for d in np.unique(flows.dst).tolist():
        mine = np.flatnonzero(flows.dst == d)
        ways: dict[int, tuple[int, int]] = {}
        for s in np.unique(flows.src[mine]).tolist():
            graph = graph_between(network, s, d)
            left = nx.single_source_dijkstra_path_length(graph.reverse(), d, weight="cost")
            ahead = nx.single_source_dijkstra_path_length(graph, s, weight="cost")
            for a, b, link, cost in graph.edges(keys=True, data="cost"):
                if a in ahead and b in left and ahead[a] + cost + left[b] == left[s]:
                    ways[link] = (a, b)
        nodes = sorted({a for a, _ in ways.values()})
        row = {v: len(wanted) + i for i, v in enumerate(nodes)}
        wanted += [float(weight[mine][flows.src[mine] == v].sum()) for v in nodes]
        for link, (a, b) in ways.items():
            column = len(of_link)
            of_link.append(link)
            rows.append(row[a])
            columns.append(column)
            values.append(1.0)
            if b in row:
                rows.append(row[b])
                columns.append(column)
                values.append(-1.0)
    n = len(of_link)
    keeps = coo_matrix((values, (rows, columns)), shape=(len(wanted), n + 1))
    links = np.arange(network.n_links)
    fits = coo_matrix(
        (
            np.concatenate([np.ones(n), -capacity / scale]),
            (
                np.concatenate([of_link, links]),
                np.concatenate([np.arange(n), np.full(len(links), n)]),
            ),
        ),
        shape=(network.n_links, n + 1),
    )
    cost = np.zeros(n + 1)
    cost[-1] = 1
    found = linprog(cost, fits, np.zeros(network.n_links), keeps, wanted, method="highs")
    assert found.success
    return found.fun / scale


def all_pairs(hosts):
    src, dst = np.meshgrid(hosts, hosts, indexing="ij")
    return Flows(src[src != dst], dst[src != dst])


def between_switches(network):
    labels = network.labels
    return np.flatnonzero(labels.forwards[labels.src] & labels.forwards[labels.dst])


def leaf_spine():
    net = topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=4, cables_per_pair=2)
    net = net.without(links=between_switches(net)[[0, 12]])
    return net, all_pairs(net.hosts)


def fat_tree(k, seed, n_dead, pattern):
    net = topologies.fat_tree(k=k)
    rng = np.random.default_rng(seed)
    net = net.without(links=rng.choice(between_switches(net), n_dead, replace=False))
    return net, pattern(net.hosts)


def slow_links(seed):
    net = topologies.fat_tree(k=6)
    rng = np.random.default_rng(seed)
    capacity = np.array(net.capacity)
    slow = rng.choice(between_switches(net), 12, replace=False)
    capacity[slow] *= rng.choice([0.25, 0.5, 0.75], 12)
    return net.with_capacity(capacity), fb.traffic.permutation(net.hosts, seed=seed)


def groups_of_routers(seed):
    """Seven groups of four routers, two hosts each, one global cable between each two groups."""
    rng = np.random.default_rng(seed)
    kinds = ["switch"] * 28 + ["host"] * 56
    cables = [
        (4 * g + i, 4 * g + j, 1, 1, True) for g in range(7) for i in range(4) for j in range(i)
    ]
    ends = np.zeros(7, int)
    for a in range(7):
        for b in range(a):
            cables.append((4 * a + ends[a] % 4, 4 * b + ends[b] % 4, 1, 1, rng.random() > 0.05))
            ends[[a, b]] += 1
    cables += [(28 + host, host // 2, 1, 1, True) for host in range(56)]
    net = network_of(kinds, cables)
    flows = fb.traffic.permutation(net.hosts, seed=seed)
    reached = [distance(net, s, d) >= 0 for s, d in zip(flows.src, flows.dst, strict=True)]
    return net, Flows(
        flows.src[reached], flows.dst[reached], weight=rng.uniform(1, 4, sum(reached))
    )


def drawn(seed):
    rng = np.random.default_rng(seed)
    net = random_network(rng, n_switches=12, n_hosts=14, costs=(1, 2), dead=0.1, direct=0.2)
    net = net.with_capacity(rng.uniform(1, 5, net.n_links))
    return net, reachable_flows(net)


def permutation(hosts):
    return fb.traffic.permutation(hosts, seed=3)


CASES = {
    "leaf-spine": leaf_spine,
    "fat-tree-4": lambda: fat_tree(4, 0, 2, all_pairs),
    "fat-tree-4-pairs": lambda: fat_tree(4, 0, 2, permutation),
    "fat-tree-8-pairs": lambda: fat_tree(8, 1, 8, permutation),
    "fat-tree-8-more": lambda: fat_tree(8, 2, 4, permutation),
    "slow-links": lambda: slow_links(0),
    "groups": lambda: groups_of_routers(1),
    "drawn-0": lambda: drawn(0),
    "drawn-1": lambda: drawn(1),
    "drawn-2": lambda: drawn(2),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_certificate_encloses_the_optimum_and_the_gap_is_small(case):
    network, flows = case()
    least = least_utilisation(network, flows)
    routes = routing.adaptive(network, flows)
    load = np.asarray(flows.weight) @ usage(routes)
    reached = (load / np.asarray(network.capacity)).max()
    rule = routes.rule
    # The programme's own tolerance is 1e-7 of each value.
    assert rule["bound"] <= least * (1 + 1e-6)
    assert least * (1 - 1e-6) <= reached <= least * (1 + 1e-3)
    assert rule["utilisation"] == pytest.approx(reached, rel=1e-9)
    assert rule["gap"] <= 1e-3
    assert rule["gap"] >= reached / least - 1 - 1e-6
    assert rule["spray"] >= least * (1 - 1e-6)


def test_the_slowest_flow_gets_the_best_rate_that_any_splits_allow():
    network, flows = leaf_spine()
    least = least_utilisation(network, flows)
    for rule, loss in ((routing.adaptive, 1e-3), (routing.spray, None)):
        routes = rule(network, flows)
        use = usage(routes)
        crossed = [np.flatnonzero(row) for row in use]
        uses = [row[links] for row, links in zip(use, crossed, strict=True)]
        rates = max_min_rates_by_levels(Problem.from_paths(network.capacity, crossed, uses))
        if loss is None:
            assert min(rates) < 0.9 / least
        else:
            assert (1 - loss) / least <= min(rates) <= (1 + 1e-6) / least
