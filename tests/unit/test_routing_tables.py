"""What tables of routing weights promise, and which paths splits are over."""

import itertools

import networkx as nx
import numpy as np
import pytest

import fabric as fb
from experiments.optimizers import routing as experiment
from fabric import routing, topologies, traffic
from fabric._errors import InfeasibleError, ModelError
from fabric.optimize import routing_weights
from fabric.optimize._path_sets import path_set

MESH = topologies.full_mesh(6)


def drawn(seed):
    """Return a gravity matrix, in byte/s."""
    demand = np.random.default_rng(seed).lognormal(0, 1, (6, 6)) * 1e9
    np.fill_diagonal(demand, 0)
    return demand


def test_tables_of_64_entries_lose_little_and_are_scored_exactly():
    found = routing_weights(MESH, drawn(0), paths="transit", tolerance=2e-5)
    tables = found.tables()
    assert tables.weights.sum(axis=1).max() <= 64
    assert tables.loss <= 3e-3
    assert tables.loss < tables.rounded_loss
    use = found.aim.uses(tables.splits).max()
    np.testing.assert_allclose(tables.objective, use, rtol=1e-12)
    rows = tables.rows()
    assert sum(row["weight"] for row in rows) == tables.weights.sum()
    assert {row["path"].split("->")[0] for row in rows} == set(MESH.labels.names)
    assert tables.as_dict()["groups"] == rows
    assert sum(tables.used.values()) == tables.weights.sum()


def test_tables_keep_the_limit_of_every_switch():
    found = routing_weights(MESH, drawn(0), paths="transit", tolerance=2e-5)
    tables = found.tables(per_switch=40)
    assert max(tables.used.values()) <= 40
    assert tables.loss <= 0.1
    with pytest.raises(InfeasibleError, match=r"`per_switch=4` is too few: 6 switches .*node0"):
        found.tables(per_switch=4)
    with pytest.raises(ModelError, match=r"(?s)`entries` needs .* from 1 to 65,536.*`per_switch`"):
        found.tables(entries=10**9, per_switch=0)


def test_weights_per_hop_keep_the_limit_of_every_switch():
    net, _ = experiment.two_degraded(3)
    flows = traffic.all_to_all(net.hosts, size=1e9)
    found = routing_weights(net, flows, steps=100, tolerance=1e-3)
    tables = found.hop_tables(per_switch=60)
    assert tables.per_switch == 60
    held = np.bincount(tables.switch, np.add.reduceat(tables.weight, tables.first[:-1]))
    assert held.max() <= 60
    routes = routing.weighted(net, flows, tables)
    time = (1e9 / np.asarray(fb.max_min_rates(net, routes).rates)).max()
    assert time < found.before
    with pytest.raises(InfeasibleError, match=r"`per_switch=2` is too few: .* switches"):
        found.hop_tables(per_switch=2)


def test_weights_per_hop_carry_the_same_loads():
    net, flows = experiment.two_degraded(3)
    flows = fb.Flows(flows.src, flows.dst, size=1e9)
    found = routing_weights(net, flows, tolerance=1e-5)
    routes = routing.weighted(net, flows, found.hop_tables())
    time = float((1e9 / fb.max_min_rates(net, routes).rates).max())
    # Weights are within 1/64 of a split of at least 1/16.
    np.testing.assert_allclose(time, found.objective, rtol=0.1)
    assert time < found.before / 1.2
    mesh = routing_weights(MESH, drawn(0), paths="transit", tolerance=1e-3)
    with pytest.raises(ModelError, match="`hop_tables` needs `paths='shortest'`"):
        mesh.hop_tables()


@pytest.mark.parametrize("seed", range(6))
def test_all_shortest_paths_are_those_of_networkx(seed):
    rng = np.random.default_rng(seed)
    n, net = 7, topologies.full_mesh(7)
    cost, kept = rng.integers(1, 4, net.n_links), rng.random(net.n_links) < 0.6
    net = fb.Network(net.capacity, alive=kept, routing_cost=cost, labels=net.labels)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    ends = (net.labels.src[kept].tolist(), net.labels.dst[kept].tolist(), cost[kept].tolist())
    graph.add_weighted_edges_from(zip(*ends, strict=True))
    reached = {
        pair: {tuple(path) for path in nx.all_shortest_paths(graph, *pair, weight="weight")}
        for pair in itertools.permutations(range(n), 2)
        if nx.has_path(graph, *pair)
    }
    found = path_set(net, fb.Flows(*np.array(list(reached)).T, size=1.0), "shortest")
    number = {net.labels.node_name(i): i for i in range(n)}
    for k in range(found.n_pairs):
        rows = np.flatnonzero(found.valid[k]).tolist()
        paths = {tuple(number[x] for x in found.names(k, w).split("->")) for w in rows}
        assert len(paths) == len(rows)
        assert paths == reached[int(found.start[k]), int(found.goal[k])]


def test_pairs_with_too_many_shortest_paths_are_counted():
    net = topologies.leaf_spine(leaves=2, spines=300, hosts_per_leaf=1)
    with pytest.raises(ModelError, match=r"at most 256 per pair, but 2 of 2 pairs .* have more"):
        path_set(net, fb.Flows(net.hosts, net.hosts[::-1], size=1.0), "shortest")


def test_parallel_links_share_by_capacity_and_dead_ones_carry_nothing():
    circuits = [[0, 3, 1], [3, 0, 1], [1, 1, 0]]
    net = topologies.direct_connect(3, 4, circuits=circuits)
    ends = list(zip(net.labels.src.tolist(), net.labels.dst.tolist(), strict=True))
    between = [i for i, pair in enumerate(ends) if pair == (0, 1)]
    net = net.degraded(links=between[:1], factor=0.5).without(links=between[1:2])
    found = routing_weights(net, fb.Flows([0], [1], size=1e9), paths="transit", tolerance=1e-5)
    usage = np.zeros(net.n_links)
    routes = found.routes()
    np.add.at(
        usage, routes.part_link, routes.part_use * (routes.part_bundle >= routes.n_bundles - 1)
    )
    # 0.5 and 1 circuit directly, 1 circuit over block 2.
    np.testing.assert_allclose(usage[between], [0.2, 0, 0.4], atol=1e-4)


def test_unreachable_pairs_are_named():
    net = topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=1).without(nodes=["spine0"])
    flows = fb.Flows(net.hosts[:1], net.hosts[1:], size=1.0)
    with pytest.raises(InfeasibleError, match="leaf0-host0 -> leaf1-host0"):
        routing_weights(net, flows)
