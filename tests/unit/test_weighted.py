"""What `routing.weighted`, `GroupTables` and `integer_tables` promise, one test per promise."""

from fractions import Fraction

import numpy as np
import pytest

import fabric as fb
from fabric import Flows, ModelError, routing, topologies
from fabric.routing import GroupTables, integer_tables, weighted
from tests.unit._routing_oracles import (
    graph_between,
    network_of,
    paths,
    random_network,
    reachable_flows,
    usage,
)


def all_pairs(hosts):
    src, dst = np.meshgrid(hosts, hosts, indexing="ij")
    return Flows(src[src != dst], dst[src != dst])


def weighed(network, s, d, weight_of):
    """Return the load on each link of one unit, split by `weight_of(node, link)`, exactly."""
    import networkx as nx

    graph = graph_between(network, s, d)
    left = nx.single_source_dijkstra_path_length(graph.reverse(), d, weight="cost")
    load: dict[int, Fraction] = {}

    def pour(v, share):
        if v == d:
            return
        ways = [
            (link, w, weight_of(v, link))
            for _, w, link, cost in graph.out_edges(v, keys=True, data="cost")
            if w in left and cost + left[w] == left[v]
        ]
        total = sum(weight for *_, weight in ways)
        for link, w, weight in ways:
            if weight:
                load[link] = load.get(link, Fraction(0)) + share * weight / total
                pour(w, share * weight / total)

    pour(s, Fraction(1))
    return load


def check(network, flows, routes, weight_of):
    got = usage(routes)
    for flow, (s, d) in enumerate(zip(flows.src.tolist(), flows.dst.tolist(), strict=True)):
        want = np.zeros(network.n_links)
        for link, share in weighed(network, s, d, lambda v, e, d=d: weight_of(v, e, d)).items():
            want[link] = float(share)
        # Fractions are products and sums of a few correctly rounded quotients.
        np.testing.assert_allclose(got[flow], want, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("costs", [(1,), (1, 2, 3)], ids=["equal", "levels"])
@pytest.mark.parametrize("seed", range(3))
def test_usage_equals_recursive_splitting_by_weight(seed, costs):
    rng = np.random.default_rng(seed)
    network = random_network(rng, costs=costs, direct=0.3)
    weights = rng.integers(1, 9, network.n_links)
    flows = reachable_flows(network)
    check(network, flows, weighted(network, flows, weights), lambda v, e, d: int(weights[e]))


def test_equal_weights_are_spray_bit_for_bit():
    net = topologies.fat_tree(k=6).without(links=[150, 250, 300])
    flows = all_pairs(net.hosts[::3])
    got = weighted(net, flows, np.full(net.n_links, 2))
    want = routing.spray(net, flows)
    np.testing.assert_array_equal(usage(got), usage(want))
    assert (got.n_bundles, got.n_parts) == (want.n_bundles, want.n_parts)


def test_a_cable_of_weight_0_carries_nothing():
    net = topologies.leaf_spine(leaves=3, spines=4, hosts_per_leaf=2)
    weights = np.ones(net.n_links, int)
    spine = net.labels.node("spine1")
    weights[net.labels.dst == spine] = 0
    flows = all_pairs(net.hosts)
    got = usage(weighted(net, flows, weights))
    assert got[:, net.labels.dst == spine].max() == 0
    check(net, flows, weighted(net, flows, weights), lambda v, e, d: int(weights[e]))


def test_weights_all_zero_where_traffic_comes_name_switch_and_destination():
    net = topologies.leaf_spine(leaves=3, spines=2, hosts_per_leaf=1)
    labels = net.labels
    weights = np.ones(net.n_links, int)
    weights[(labels.src == labels.node("leaf1")) & labels.is_tier("leaf-spine")] = 0
    flows = Flows(net.hosts[[0, 1]], net.hosts[[1, 2]])
    said = "all usable cables of 'leaf1' towards 'leaf2' weigh 0"
    for hashed in (False, True):
        with pytest.raises(ModelError, match=said):
            weighted(net, flows, weights, hashed=hashed)
        # Nothing is refused where no traffic comes.
        weighted(net, Flows(net.hosts[[0]], net.hosts[[1]]), weights, hashed=hashed)


def test_weights_for_other_links_are_refused():
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
    flows = Flows(net.hosts[:1], net.hosts[1:])
    with pytest.raises(ModelError, match="each of 12 links, but has shape"):
        weighted(net, flows, [1, 2])
    with pytest.raises(ModelError, match="whole numbers"):
        weighted(net, flows, np.full(net.n_links, 0.5))
    with pytest.raises(ModelError, match="whole numbers from 0, but 12 are less"):
        weighted(net, flows, np.full(net.n_links, -1))


def drawn_tables(network, flows, rng):
    """Weights for half of all (switch, target) pairs, some of them 0 where others are not."""
    labels, inner = network.labels, np.asarray(network.labels.forwards)
    hubs = set()
    for d in np.unique(flows.dst).tolist():
        ends = labels.src[(labels.dst == d) & np.asarray(network.alive)]
        alone = len(set(ends.tolist())) == 1 and inner[ends].all() and not inner[d]
        hubs.add(int(ends[0]) if alone else d)
    table = {}
    for switch in np.flatnonzero(inner).tolist():
        out = np.flatnonzero(labels.src == switch).tolist()
        for target in sorted(hubs):
            if rng.random() < 0.5 and out and target != switch:
                table[switch, target] = {e: int(rng.integers(1, 5)) for e in out}
    return GroupTables.of(table), table


def target_of(network, d):
    labels = network.labels
    ends = labels.src[(labels.dst == d) & np.asarray(network.alive)]
    alone = len(set(ends.tolist())) == 1 and labels.forwards[ends].all() and not labels.forwards[d]
    return int(ends[0]) if alone else d


@pytest.mark.parametrize("seed", range(4))
def test_group_tables_split_per_switch_and_destination(seed):
    rng = np.random.default_rng(seed)
    network = random_network(rng, dead=0.1)
    flows = reachable_flows(network)
    tables, table = drawn_tables(network, flows, rng)
    routes = weighted(network, flows, tables)

    def weight_of(v, e, d):
        group = table.get((v, target_of(network, d)))
        return 1 if group is None else group.get(e, 0)

    check(network, flows, routes, weight_of)


def test_group_tables_of_nodes_that_send_and_forward():
    rng = np.random.default_rng(5)
    network = random_network(rng, n_switches=20, nodes=True)
    flows = reachable_flows(network, np.random.default_rng(4), 80)
    out = lambda v: np.flatnonzero(network.labels.src == v).tolist()
    pairs = [(v, int(d)) for v in range(20) for d in np.unique(flows.dst) if v != d]
    table = {pair: {e: int(rng.integers(1, 5)) for e in out(pair[0])} for pair in pairs}
    routes = weighted(network, flows, GroupTables.of(table))
    check(network, flows, routes, lambda v, e, d: table[v, d][e])


@pytest.mark.parametrize("tables", [False, True], ids=["links", "groups"])
def test_hashed_paths_are_drawn_in_proportion_to_weight(tables):
    net = topologies.leaf_spine(leaves=2, spines=4, hosts_per_leaf=1)
    labels = net.labels
    up = np.flatnonzero(labels.src == labels.node("leaf0"))
    up = up[labels.forwards[labels.dst[up]]]
    weights = np.ones(net.n_links, int)
    weights[up] = [0, 1, 2, 5]
    pair = (labels.node("leaf0"), labels.node("leaf1"))
    given = GroupTables.of({pair: dict(zip(up.tolist(), [0, 1, 2, 5], strict=True))})
    flows = Flows(net.hosts[:1], net.hosts[1:])
    n = 8_000
    routes = weighted(net, flows, given if tables else weights, hashed=True, queue_pairs=n)
    taken = np.bincount([path[1] for path in paths(routes)], minlength=net.n_links)[up]
    assert taken[0] == 0
    # Five standard deviations of a binomial count.
    np.testing.assert_allclose(taken, n * np.array([0, 1, 2, 5]) / 8, atol=5 * np.sqrt(n / 4))
    assert routes.rule["seed"] == 0
    other = weighted(net, flows, weights, hashed=True, queue_pairs=n, seed=1)
    assert paths(other) != paths(routes)


def test_hashed_paths_are_shortest_and_flows_keep_them():
    rng = np.random.default_rng(3)
    network = random_network(rng, dead=0.1, direct=0.3)
    flows = reachable_flows(network)
    one = weighted(network, flows, np.ones(network.n_links, int), hashed=True, seed=4)
    assert paths(one) == paths(
        weighted(network, flows, np.ones(network.n_links, int), hashed=True, seed=4)
    )
    spread = usage(routing.spray(network, flows)) > 0
    assert not (usage(one) > 0)[~spread].any()
    lengths = routing.shortest_distances(network, flows.dst)[np.arange(flows.n_flows), flows.src]
    assert list(map(len, paths(one))) == lengths.tolist()


def test_queue_pairs_of_groups_go_the_same_way():
    rng = np.random.default_rng(0)
    network = random_network(rng, dead=0.1)
    flows = reachable_flows(network)
    tables, _ = drawn_tables(network, flows, rng)
    one, two = (weighted(network, flows, tables, queue_pairs=n) for n in (1, 2))
    np.testing.assert_array_equal(usage(two), np.repeat(usage(one), 2, axis=0))
    np.testing.assert_allclose(two.weight, 0.5)
    assert two.flow_of.tolist() == np.repeat(np.arange(flows.n_flows), 2).tolist()


def test_group_tables_beyond_a_limit_or_of_other_switches_are_refused_by_name():
    net = topologies.leaf_spine(leaves=3, spines=2, hosts_per_leaf=1)
    labels = net.labels
    leaf = [labels.node(f"leaf{i}") for i in range(3)]
    up = [np.flatnonzero((labels.src == v) & labels.forwards[labels.dst]).tolist() for v in leaf]
    flows = all_pairs(net.hosts)
    wide = GroupTables.of({(leaf[0], leaf[1]): {up[0][0]: 60, up[0][1]: 5}})
    with pytest.raises(ModelError, match=r"`entries=64` .* up to 65: 'leaf0 -> leaf1'"):
        weighted(net, flows, wide)
    table = {
        (leaf[0], leaf[1]): {up[0][0]: 3, up[0][1]: 5},
        (leaf[0], leaf[2]): {up[0][0]: 1, up[0][1]: 1},
    }
    with pytest.raises(ModelError, match=r"`per_switch=9` .* 1 switches need up to 10: 'leaf0'"):
        weighted(net, flows, GroupTables.of(table, per_switch=9))
    weighted(net, flows, GroupTables.of(table, per_switch=10))
    alike = {pair: {up[0][0]: 3, up[0][1]: 5} for pair in table}
    weighted(net, flows, GroupTables.of(alike, per_switch=8))  # one group serves both
    with pytest.raises(ModelError, match=r"leave their switch, but 1 do not: 'leaf1->spine0'"):
        weighted(net, flows, GroupTables.of({(leaf[0], leaf[2]): {up[1][0]: 1}}))
    host = int(net.hosts[1])
    with pytest.raises(ModelError, match=r"1 name the destination: 'leaf1-host0'"):
        weighted(net, flows, GroupTables.of({(leaf[0], host): {up[0][0]: 1}}))


def test_too_many_entries_are_refused_with_the_knob():
    rng = np.random.default_rng(0)
    network = random_network(rng)
    flows = reachable_flows(network)
    tables, _ = drawn_tables(network, flows, rng)
    with pytest.raises(ModelError, match="`weighted` needs more than `max_parts=50` parts"):
        weighted(network, flows, tables, max_parts=50)


def test_weights_do_not_count_inside_servers():
    net = fb.topologies.cluster("dgx-h100", nodes=4)
    flows = fb.traffic.ring(net.hosts)
    ones = np.ones(net.n_links, int)
    got, want = weighted(net, flows, ones), routing.spray(net, flows)
    np.testing.assert_array_equal(usage(got), usage(want))
    assert got.rule == {
        "name": "weighted", "hashed": False, "queue_pairs": 1, "weights": "links",
        "rails": "direct",
    }  # fmt: skip


@pytest.mark.parametrize("entries", [1, 7, 64])
def test_largest_remainders_are_the_nearest_whole_numbers(entries):
    rng = np.random.default_rng(entries)
    fractions = rng.dirichlet(np.ones(5), 200)
    weights = integer_tables(fractions, entries)
    total = weights.sum(1)
    assert np.all((total <= entries) & (entries % total == 0))
    share = weights / total[:, None]
    assert np.abs(share - fractions).max() < 1 / entries
    # No other whole numbers with this sum are nearer, in the sum of absolute errors.
    for row, mine in zip(fractions[:20], share[:20], strict=True):
        cuts = rng.multinomial(entries, row, 200) / entries
        assert np.abs(mine - row).sum() <= np.abs(cuts - row).sum(1).min() + 1e-12


def test_fractions_that_are_no_fractions_are_refused():
    for wrong, said in (
        ([[0.5, -0.5], [1, 0]], "1 of 2 rows have others: rows '0'"),
        ([[1, 0], [0, 0]], "1 of 2 rows have none: rows '1'"),
        ([[[0.0]]], "got shape"),
    ):
        with pytest.raises(ModelError, match=said):
            integer_tables(wrong)


def test_parallel_cables_weigh_one_by_one():
    cables = [(0, 1, 1, 1, True)] * 2 + [(2, 0, 1, 1, True), (3, 1, 1, 1, True)]
    network = network_of(["switch", "switch", "host", "host"], cables)
    routes = weighted(network, Flows([2], [3]), [1, 1, 3, 1, 1, 1, 1, 1])
    assert usage(routes)[0, [0, 2]].tolist() == [0.25, 0.75]
