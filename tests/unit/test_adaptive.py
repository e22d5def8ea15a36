"""What `routing.adaptive` promises, one test per promise."""

import numpy as np
import pytest

import fabric as fb
from fabric import Flows, InfeasibleError, ModelError, routing, topologies
from fabric.routing import adaptive
from tests.unit._routing_oracles import network_of, random_network, reachable_flows, usage


def all_pairs(hosts):
    src, dst = np.meshgrid(hosts, hosts, indexing="ij")
    return Flows(src[src != dst], dst[src != dst])


def between_switches(network):
    labels = network.labels
    return np.flatnonzero(labels.forwards[labels.src] & labels.forwards[labels.dst])


def one_cable_out(cables=2):
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=4, cables_per_pair=cables)
    return net.without(links=between_switches(net)[:1])


def utilisation(network, flows, routes):
    return (np.asarray(flows.weight) @ usage(routes) / np.asarray(network.capacity)).max()


def divergence(network, flows, routes):
    """Return what every flow makes of nothing at every node, beside its two ends."""
    labels, use = network.labels, usage(routes)
    left = np.zeros((flows.n_flows, network.n_nodes))
    np.add.at(left.T, labels.src, use.T)
    np.add.at(left.T, labels.dst, -use.T)
    flow = np.arange(flows.n_flows)
    left[flow, flows.src] -= 1
    left[flow, flows.dst] += 1
    return left


def test_three_cables_left_of_four_get_a_third_each():
    net = one_cable_out()
    flows = Flows(net.hosts[4:], net.hosts[:4])
    routes = adaptive(net, flows)
    down = between_switches(net)
    down = down[(net.labels.dst[down] == net.labels.node("leaf0")) & np.asarray(net.alive)[down]]
    loads = usage(routes).sum(0)[down]
    # Three cables are left: 4/3 each at best, and within the tolerance of it.
    np.testing.assert_allclose(loads, 4 / 3, rtol=3e-3)
    assert loads.max() <= 4 / 3 * 1.001
    assert usage(routing.spray(net, flows)).sum(0)[down].max() == 2
    rule = routes.rule
    capacity = float(net.capacity[0])
    assert rule["bound"] == pytest.approx(4 / 3 / capacity, rel=1e-12)
    assert rule["spray"] == pytest.approx(2 / capacity, rel=1e-12)
    assert (rule["name"], rule["splits"]) == ("adaptive", "moved")
    assert rule["moved"] >= 1


@pytest.mark.parametrize(
    "flows",
    [all_pairs, lambda hosts: fb.traffic.permutation(hosts, seed=1)],
    ids=["all-to-all", "permutation"],
)
@pytest.mark.parametrize("k", [4, 6])
def test_on_a_whole_fat_tree_it_is_spray_and_says_so(k, flows):
    net = topologies.fat_tree(k=k)
    given = flows(net.hosts)
    got, want = adaptive(net, given), routing.spray(net, given)
    for name in ("hop_flow", "hop_bundle", "hop_use", "part_bundle", "part_link", "part_use"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
    assert got.rule["splits"] == "equal"
    assert (got.rule["steps"], got.rule["moved"], got.rule["gap"]) == (0, 0, 0.0)
    assert got.rule["utilisation"] == got.rule["spray"]
    assert got.rule["spray"] == pytest.approx(utilisation(net, given, got), rel=1e-12)


def test_what_enters_a_node_leaves_it_and_only_shortest_paths_are_taken():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        net = random_network(rng, n_switches=12, n_hosts=14, costs=(1, 2), direct=0.2)
        net = net.with_capacity(rng.uniform(1, 5, net.n_links))
        flows = reachable_flows(net)
        routes = adaptive(net, flows)
        assert np.abs(divergence(net, flows, routes)).max() < 1e-12
        assert not usage(routes)[usage(routing.spray(net, flows)) == 0].any()


def test_flows_that_no_busy_link_concerns_keep_equal_splits_and_their_bundles():
    net = topologies.fat_tree(k=6)
    net = net.without(links=[int(np.flatnonzero(net.labels.is_tier("aggregation-core"))[0])])
    flows = all_pairs(net.hosts)
    routes, equal = adaptive(net, flows), routing.spray(net, flows)
    assert routes.rule["splits"] == "moved"
    same = (usage(routes) == usage(equal)).all(1)
    assert same.mean() > 0.5
    assert routes.n_bundles < equal.n_bundles + 3 * routes.rule["moved"]
    assert routes.n_parts < 2 * equal.n_parts


def test_a_tighter_tolerance_is_kept():
    net = one_cable_out()
    flows = Flows(net.hosts[4:], net.hosts[:4])
    for tolerance in (1e-2, 1e-4):
        rule = adaptive(net, flows, tolerance=tolerance).rule
        assert 0 <= rule["gap"] <= tolerance
        assert rule["utilisation"] <= rule["bound"] * (1 + tolerance) * (1 + 1e-12)


def test_a_search_that_is_cut_short_still_says_its_true_gap():
    net = topologies.fat_tree(k=6)
    net = net.without(
        links=np.random.default_rng(0).choice(between_switches(net), 6, replace=False)
    )
    flows = fb.traffic.permutation(net.hosts, seed=2)
    short, full = (adaptive(net, flows, max_steps=n) for n in (1, 1000))
    assert short.rule["steps"] == 1
    assert short.rule["gap"] > 1e-3 >= full.rule["gap"]
    assert utilisation(net, flows, short) == pytest.approx(short.rule["utilisation"], rel=1e-12)
    assert short.rule["bound"] <= full.rule["utilisation"]
    assert short.rule["utilisation"] <= short.rule["spray"]


def test_heavier_flows_count_more():
    # Two ways of capacity 3 and 1; flow 0 has no choice but the narrow one.
    cables = [(0, 1, 1, 1, True), (0, 2, 1, 1, True), (1, 3, 1, 1, True), (2, 3, 1, 1, True)]
    cables += [(4, 0, 1, 1, True), (5, 3, 1, 1, True), (6, 2, 1, 1, True)]
    net = network_of(["switch"] * 4 + ["host"] * 3, cables)
    flows = Flows([6, 4], [5, 5], weight=[1, 3])
    routes = adaptive(net.with_capacity(np.repeat([8.0, 99.0], [8, 6])), flows)
    loads = np.array([1, 3]) @ usage(routes)
    # The weights on both links into the last switch add up to 4.
    np.testing.assert_allclose(loads[[4, 6]], 2, rtol=3e-3)


def test_links_of_capacity_0_carry_nothing_where_there_is_another_way():
    net = topologies.leaf_spine(leaves=3, spines=3, hosts_per_leaf=2)
    capacity = np.array(net.capacity)
    leaf, spine = net.labels.node("leaf0"), net.labels.node("spine1")
    dry = (net.labels.src == spine) & (net.labels.dst == leaf)
    capacity[dry] = 0
    net = net.with_capacity(capacity)
    flows = all_pairs(net.hosts)
    routes = adaptive(net, flows)
    assert usage(routes)[:, dry].max() == 0
    assert np.isfinite(routes.rule["utilisation"])
    assert min(np.asarray(fb.max_min_rates(net, routes).rates)) > 0


def test_flows_that_only_links_of_capacity_0_can_carry_do_not_count():
    net = topologies.leaf_spine(leaves=3, spines=2, hosts_per_leaf=2)
    capacity = np.array(net.capacity)
    capacity[net.labels.dst == int(net.hosts[0])] = 0
    capacity[net.labels.dst == net.labels.node("leaf1")] *= 2
    net = net.with_capacity(capacity)
    hosts = net.hosts
    routes = adaptive(net, Flows(hosts[[2, 4]], hosts[[0, 2]]))
    assert np.isfinite(routes.rule["utilisation"])
    rates = np.asarray(fb.max_min_rates(net, routes).rates)
    assert rates[0] == 0
    assert rates[1] > 0


def test_a_source_with_several_cables_chooses_among_them():
    # Host 3 hangs on two switches; behind the first of them another host sends as much.
    cables = [(0, 2, 1, 1, True), (1, 2, 1, 1, True), (3, 0, 1, 1, True), (3, 1, 1, 1, True)]
    cables += [(4, 0, 1, 1, True), (5, 2, 1, 1, True)]
    net = network_of(["switch"] * 3 + ["host"] * 3, cables)
    capacity = np.full(net.n_links, 10.0)
    capacity[[0, 2]] = 2
    flows = Flows([3, 4], [5, 5])
    routes = adaptive(net.with_capacity(capacity), flows)
    np.testing.assert_allclose(usage(routes)[0, [4, 6]], [0, 1], atol=2e-3)
    assert routes.rule["bound"] == pytest.approx(0.5, rel=1e-3)


def test_queue_pairs_share_weight_and_cap_and_go_the_same_way():
    net = one_cable_out()
    flows = Flows(net.hosts[4:], net.hosts[:4], weight=2, cap=[1, 2, 3, 4])
    one, two = adaptive(net, flows), adaptive(net, flows, queue_pairs=2)
    np.testing.assert_array_equal(usage(two), np.repeat(usage(one), 2, axis=0))
    assert two.weight.tolist() == [1] * 8
    assert two.cap.tolist() == [0.5, 0.5, 1, 1, 1.5, 1.5, 2, 2]


def test_no_flows_make_routes_that_solve():
    net = one_cable_out()
    routes = adaptive(net, Flows([], []))
    assert (routes.n_flows, routes.rule["utilisation"]) == (0, 0)
    assert fb.max_min_rates(net, routes).rates.shape == (0,)


def test_between_servers_the_fabric_adapts_and_the_servers_do_not():
    net = topologies.cluster("dgx-h100", nodes=32)
    labels = net.labels
    inner = between_switches(net)
    inner = inner[(labels.tags["server"][labels.src[inner]] < 0)]
    net = net.without(links=inner[:3])
    src = np.repeat(net.hosts[::16], 4)
    flows = Flows(src, (src + np.tile([9, 17, 25, 33], len(src) // 4)) % len(net.hosts))
    routes, equal = adaptive(net, flows), routing.spray(net, flows)
    inside = labels.tags["server"][labels.src] >= 0
    np.testing.assert_array_equal(usage(routes)[:, inside], usage(equal)[:, inside])
    assert routes.rule["rails"] == "direct"
    assert routes.rule["gap"] <= 1e-3
    loads = np.asarray(flows.weight) @ usage(routes) / np.asarray(net.capacity)
    across = ~inside & (labels.tags["server"][labels.dst] < 0)
    assert loads[across].max() <= routes.rule["utilisation"] * (1 + 1e-9)


def test_an_unreachable_destination_is_named():
    net = topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=1)
    net = net.without(links=between_switches(net)[:1])
    with pytest.raises(InfeasibleError, match="leaf0-host0 -> leaf1-host0"):
        adaptive(net, Flows(net.hosts[:1], net.hosts[1:]))


def test_options_out_of_range_are_refused_with_the_numbers():
    net = one_cable_out()
    flows = Flows(net.hosts[4:], net.hosts[:4])
    with pytest.raises(ModelError, match="`tolerance` needs a number above 0 and below 1"):
        adaptive(net, flows, tolerance=0)
    with pytest.raises(ModelError, match="`max_steps` needs a whole number"):
        adaptive(net, flows, max_steps=0)
    with pytest.raises(ModelError, match=r"has \d+ pairs .* `max_splits=5`: .* about"):
        adaptive(net, flows, max_splits=5)
    with pytest.raises(ModelError, match="`adaptive` needs more than `max_parts=3` parts"):
        adaptive(net, flows, max_parts=3)


def test_the_usual_rule_of_adaptive_hardware_says_where_adaptive_does_better():
    net = topologies.cluster("dgx-h100", nodes=32)
    cables = np.flatnonzero(net.labels.is_tier("leaf-spine"))
    whole = routing.usual(net)
    assert (whole.name, whole.why) == (
        "spray", "InfiniBand adaptive routing, taken as ideal spray",
    )  # fmt: skip
    dead = routing.usual(net.without(links=cables[:1]))
    assert dead.name == "spray"
    assert dead.why == f"{whole.why}; 2 links are dead or slow, where `adaptive` does better"
    capacity = np.array(net.capacity)
    capacity[cables[0]] /= 2
    slow = routing.usual(net.with_capacity(capacity))
    assert "; 1 link is dead or slow" in slow.why
    asked = routing.usual(net, "adaptive")
    assert (asked.name, asked.kind, asked.why) == ("adaptive", "user", "as asked for")


@pytest.mark.parametrize(
    ("dead", "rule", "rate"),
    [
        (0, "spray", 50.0), (0, "adaptive", 50.0), (1, "spray", 32.29), (1, "adaptive", 50.0),
        (2, "spray", 48.44), (2, "adaptive", 48.44),
    ],
)  # fmt: skip
def test_a_pair_of_switches_short_of_a_cable_costs_spray_and_not_adaptive(dead, rule, rate):
    net = topologies.leaf_spine(
        leaves=4, spines=4, hosts_per_leaf=8, cables_per_pair=2, capacity="400Gb/s"
    )
    labels = net.labels
    pair = (labels.src == labels.node("leaf0")) & (labels.dst == labels.node("spine0"))
    net = net.without(links=np.flatnonzero(pair)[:dead])
    routes = routing.ROUTINGS[rule](net, all_pairs(net.hosts))
    slowest = np.asarray(fb.max_min_rates(net, routes).rates).min() * 31 / 1e9
    # The documentation prints one decimal.
    assert slowest == pytest.approx(rate, abs=0.05)
