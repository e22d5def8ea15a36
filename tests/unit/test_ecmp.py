"""What `routing.ecmp` promises, one test per promise."""

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from fabric import Flows, InfeasibleError, ModelError, routing, topologies
from fabric.traffic import permutation
from tests.unit._routing_oracles import (
    distance,
    graph_between,
    network_of,
    paths,
    random_network,
    reachable_flows,
)

COSTS = {"equal": (1,), "levels": (1, 2, 3), "dijkstra": (1_000, 2_000, 3_001)}


def check_path(network, s, d, path):
    labels = network.labels
    ends = [s, *(int(labels.dst[link]) for link in path)]
    assert [int(labels.src[link]) for link in path] == ends[:-1]
    assert ends[-1] == d
    assert all(labels.forwards[v] for v in ends[1:-1])
    assert np.asarray(network.alive)[path].all()
    assert sum(int(network.routing_cost[link]) for link in path) == distance(network, s, d)


@pytest.mark.parametrize("hash", ["hop", "path"])
@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
@pytest.mark.parametrize("seed", range(3))
def test_every_path_is_a_shortest_live_path(costs, seed, hash):
    rng = np.random.default_rng(seed)
    network = random_network(rng, costs=costs, direct=0.3)
    flows = reachable_flows(network)
    routes = routing.ecmp(network, flows, hash=hash)
    for s, d, path in zip(flows.src, flows.dst, paths(routes), strict=True):
        check_path(network, int(s), int(d), path)


def test_paths_of_nodes_that_send_and_forward_are_shortest():
    network = random_network(np.random.default_rng(3), n_switches=90, nodes=True, costs=(1, 2))
    flows = reachable_flows(network, np.random.default_rng(4), 300)
    for s, d, path in zip(flows.src, flows.dst, paths(routing.ecmp(network, flows)), strict=True):
        check_path(network, int(s), int(d), path)


def test_queue_pairs_find_every_cable_of_every_shortest_path():
    network = random_network(np.random.default_rng(8), costs=(1, 2), dead=0.05)
    flows = reachable_flows(network)
    routes = routing.ecmp(network, flows, queue_pairs=200)
    for flow, (s, d) in enumerate(zip(flows.src.tolist(), flows.dst.tolist(), strict=True)):
        graph = graph_between(network, s, d)
        hops = {
            hop
            for path in nx.all_shortest_paths(graph, s, d, weight="cost")
            for hop in nx.utils.pairwise(path)
        }
        cables = {
            key
            for a, b in hops
            for key, data in graph[a][b].items()
            if data["cost"] == min(other["cost"] for other in graph[a][b].values())
        }
        mine = np.isin(routes.hop_flow // 200, flow)
        assert set(routes.hop_bundle[mine].tolist()) == cables


def test_flows_under_one_switch_take_two_hops():
    net = topologies.fat_tree(k=4)
    assert routing.ecmp(net, Flows(net.hosts[:1], net.hosts[1:2])).n_hops == 2


def test_rows_are_in_the_order_of_the_flows_with_their_weights_and_caps():
    net = topologies.fat_tree(k=4)
    flows = Flows(net.hosts[[9, 0, 3]], net.hosts[[1, 15, 2]], weight=[1, 2, 3], cap=[6, 8, np.inf])
    routes = routing.ecmp(net, flows, queue_pairs=2)
    assert routes.flow_of.tolist() == [0, 0, 1, 1, 2, 2]
    assert routes.weight.tolist() == [0.5, 0.5, 1, 1, 1.5, 1.5]
    assert routes.cap.tolist() == [3, 3, 4, 4, np.inf, np.inf]
    assert np.all(np.diff(routes.hop_flow) >= 0)
    for row, path in enumerate(paths(routes)):
        flow = row // 2
        check_path(net, int(flows.src[flow]), int(flows.dst[flow]), path)


def test_the_seed_decides():
    net = topologies.fat_tree(k=8)
    flows = permutation(net.hosts, seed=0)
    once, again = routing.ecmp(net, flows, seed=5), routing.ecmp(net, flows, seed=5)
    np.testing.assert_array_equal(once.hop_bundle, again.hop_bundle)
    other = routing.ecmp(net, flows, seed=6)
    assert np.mean(once.hop_bundle != other.hop_bundle) > 0.3
    assert once.rule == {
        "name": "ecmp", "seed": 5, "queue_pairs": 1, "salt": "switch", "hash": "hop", "key": "row"
    }  # fmt: skip


def test_the_hash_is_uniform_over_spines():
    net = topologies.leaf_spine(leaves=2, spines=16, hosts_per_leaf=1)
    routes = routing.ecmp(net, Flows(net.hosts[:1], net.hosts[1:]), queue_pairs=16_000)
    counts = np.bincount(routes.hop_bundle[1::4])
    counts = counts[counts > 0]
    assert len(counts) == 16
    # Chi-square of 15 degrees of freedom exceeds 37.7 once in a thousand; the seed is fixed.
    assert np.sum((counts - 1_000.0) ** 2) / 1_000 < 37.7


def test_choices_at_successive_switches_are_independent():
    net = topologies.fat_tree(k=8)
    routes = routing.ecmp(net, Flows(net.hosts[:1], net.hosts[-1:]), queue_pairs=16_000)
    links = routes.hop_bundle.reshape(-1, 6)
    aggregation, core = np.unique(links[:, 1], return_inverse=True)[1], links[:, 2]
    counts = np.bincount(aggregation * 4 + np.unique(core, return_inverse=True)[1] % 4)
    assert len(counts) == 16
    assert np.sum((counts - 1_000.0) ** 2) / 1_000 < 37.7


def test_a_shared_salt_polarises_and_a_salt_per_switch_does_not():
    net = topologies.fat_tree(k=8)
    rng = np.random.default_rng(0)
    src = np.repeat(net.hosts, 50)
    flows = Flows(src, (src - net.hosts[0] + rng.integers(16, 112, len(src))) % 128 + net.hosts[0])
    # Uplinks of the aggregation switches: third hop of the flows that leave their pod.
    used = lambda salt: len(
        {path[2] for path in paths(routing.ecmp(net, flows, salt=salt)) if len(path) == 6}
    )
    assert used("switch") == 8 * 4 * 4
    assert used("shared") == 8 * 4


def test_a_permutation_uses_every_uplink_of_a_leaf_spine_about_equally():
    net = topologies.leaf_spine(leaves=32, spines=32, hosts_per_leaf=32)
    flows = permutation(net.hosts, seed=1)
    routes = routing.ecmp(net, flows, queue_pairs=100)
    labels = net.labels
    fabric = labels.forwards[labels.src] & labels.forwards[labels.dst]
    load = np.bincount(routes.hop_bundle, minlength=net.n_links)[fabric]
    # About 97 rows a link, so a standard deviation of 10: five of them bound 2,048 links.
    assert load.min() > 45
    assert load.max() < 150


def test_parallel_cables_share_the_rows():
    cables = [(0, 1, 1, 1, True)] * 4 + [(2, 0, 1, 1, True), (3, 1, 1, 1, True)]
    network = network_of(["switch", "switch", "host", "host"], cables)
    routes = routing.ecmp(network, Flows([2], [3]), queue_pairs=400)
    counts = np.bincount(routes.hop_bundle[1::3], minlength=8)[:8:2]
    assert counts.min() > 60


def test_a_link_of_capacity_zero_is_used_and_a_dead_one_is_not():
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
    flows = Flows(net.hosts[:1], net.hosts[1:])
    up = net.labels.forwards[net.labels.src] & net.labels.forwards[net.labels.dst]
    idle = net.with_capacity(np.where(up, 0.0, net.capacity))
    assert len(np.unique(routing.ecmp(idle, flows, queue_pairs=64).hop_bundle)) == 6
    dead = net.without(nodes=["spine0"]).with_alive(net.without(nodes=["spine0"]).alive)
    assert len(np.unique(routing.ecmp(dead, flows, queue_pairs=64).hop_bundle)) == 4


def test_a_network_of_device_arrays_routes_alike():
    net = topologies.fat_tree(k=4)
    flows = permutation(net.hosts, seed=0)
    placed = net.with_alive(jnp.ones(net.n_links, bool))
    np.testing.assert_array_equal(
        routing.ecmp(placed, flows).hop_bundle, routing.ecmp(net, flows).hop_bundle
    )


# Dimension order goes by coordinates, which only tori, meshes and HyperX networks have.
BY_DISTANCE = [name for name in routing.ROUTINGS if name != "dimension_order"]


@pytest.mark.parametrize("name", BY_DISTANCE)
def test_no_flows_are_legal(name):
    assert routing.ROUTINGS[name](topologies.fat_tree(k=4), Flows([], [])).n_hops == 0


@pytest.mark.parametrize("name", routing.ROUTINGS)
def test_queue_pairs_share_the_weight_and_the_cap_of_their_flow(name):
    net = topologies.torus("3x3")
    flows = Flows([0, 3], [4, 8], weight=[1, 6], cap=[6, np.inf])
    routes = routing.ROUTINGS[name](net, flows, queue_pairs=3)
    assert routes.flow_of.tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(routes.weight, [1 / 3] * 3 + [2] * 3)
    assert routes.cap.tolist() == [2, 2, 2, np.inf, np.inf, np.inf]
    assert np.bincount(routes.hop_flow, minlength=6).min() > 0
    assert routes.rule["queue_pairs"] == 3


@pytest.mark.parametrize("name", BY_DISTANCE)
def test_unreachable_pairs_are_counted_and_named(name):
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=4)
    flows = Flows(np.repeat(net.hosts[:4], 2), np.tile(net.hosts[4:6], 4))
    cut = net.without(nodes=["spine0", "spine1"])
    with pytest.raises(InfeasibleError, match=r"8 of 8 flows .* and 3 more.* links are dead") as e:
        routing.ROUTINGS[name](cut, flows)
    assert net.labels.names[int(flows.src[0])] + " -> " in str(e.value)


def test_unreachable_pairs_without_a_dead_link_point_at_who_forwards():
    network = network_of(["host"] * 3, [(0, 1, 1, 1, True), (1, 2, 1, 1, True)])
    with pytest.raises(InfeasibleError, match=r"1 of 2 flows .*'host0 -> host2'.*0 of 3 nodes"):
        routing.ecmp(network, Flows([0, 0], [2, 1]))


@pytest.mark.parametrize("name", routing.ROUTINGS)
def test_all_faults_of_the_ends_are_said_at_once(name):
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
    spine = net.labels.node("spine1")
    host = int(net.hosts[0])
    with pytest.raises(ModelError) as error:
        routing.ROUTINGS[name](net, Flows([host, host, 99], [spine, host, host]))
    message = str(error.value)
    assert "flows.src` needs nodes from 0 to" in message
    assert "1 nodes in it do not: 'spine1'" in message
    assert "1 of 3 flows go from a node to itself: flows '1'" in message


def uneven():
    """One way over switch 1, three over switch 2."""
    kinds = ["switch"] * 4 + ["host"] * 2
    ends = [(4, 0), (0, 1), (0, 2), (1, 3), (2, 3), (2, 3), (2, 3), (3, 5)]
    return network_of(kinds, [(a, b, 1, 1, True) for a, b in ends])


@pytest.mark.parametrize(
    ("hash", "shares"), [("hop", [1 / 2, 1 / 6, 1 / 6, 1 / 6]), ("path", [1 / 4] * 4)]
)
def test_a_hash_per_hop_evens_out_cables_and_one_per_path_evens_out_paths(hash, shares):
    routes = routing.ecmp(uneven(), Flows([4], [5]), queue_pairs=12_000, hash=hash)
    counts = np.bincount(routes.hop_bundle.reshape(-1, 4)[:, 2], minlength=14)[[6, 8, 10, 12]]
    want = 12_000 * np.array(shares)
    # Chi-square of 3 degrees of freedom exceeds 16.3 once in a thousand; the seed is fixed.
    assert np.sum((counts - want) ** 2 / want) < 16.3


@pytest.mark.parametrize("seed", range(2))
def test_a_hash_per_path_finds_all_shortest_paths_equally_often(seed):
    network = random_network(
        np.random.default_rng(seed), n_hosts=4, costs=(1, 2), direct=0.5, dead=0.05
    )
    flows = reachable_flows(network)
    routes = routing.ecmp(network, flows, queue_pairs=4_000, hash="path")
    rows = paths(routes)
    for flow, (s, d) in enumerate(zip(flows.src.tolist(), flows.dst.tolist(), strict=True)):
        graph = graph_between(network, s, d)
        split = nx.DiGraph()  # a node per cable, so that parallel ones make paths of their own
        for a, b, link, cost in graph.edges(keys=True, data="cost"):
            split.add_edge(a, ("cable", link), cost=cost)
            split.add_edge(("cable", link), b, cost=0)
        want = {
            tuple(hop[1] for hop in path if isinstance(hop, tuple))
            for path in nx.all_shortest_paths(split, s, d, weight="cost")
        }
        mine = [tuple(row) for row in rows[4_000 * flow : 4_000 * (flow + 1)]]
        assert set(mine) == want
        counts = np.array([mine.count(path) for path in want])
        mean = 4_000 / len(want)
        # Five standard deviations, of what is at most binomial.
        assert np.abs(counts - mean).max() <= 5 * np.sqrt(mean)


def test_hashed_by_ends_a_path_does_not_depend_on_the_other_flows():
    net = topologies.fat_tree(k=8)
    flows = permutation(net.hosts, seed=0)
    turned = Flows(flows.src[::-1].copy(), flows.dst[::-1].copy())
    for hash in ("hop", "path"):
        options = {"key": "ends", "queue_pairs": 3, "hash": hash}
        rows = paths(routing.ecmp(net, flows, **options))
        again = paths(routing.ecmp(net, turned, **options))
        flipped = [again[3 * i : 3 * i + 3] for i in range(flows.n_flows)][::-1]
        assert [rows[3 * i : 3 * i + 3] for i in range(flows.n_flows)] == flipped


def test_hashed_by_ends_only_queue_pairs_part_flows_between_the_same_ends():
    net = topologies.leaf_spine(leaves=2, spines=16, hosts_per_leaf=1)
    flows = Flows(np.repeat(net.hosts[:1], 50), np.repeat(net.hosts[1:], 50))
    kinds = lambda **options: len({tuple(p) for p in paths(routing.ecmp(net, flows, **options))})
    assert kinds(key="ends") == 1
    assert kinds(key="ends", queue_pairs=4) in (3, 4)
    assert kinds(key="row") == 16


def test_independent_picks_use_as_many_links_as_balls_fill_bins():
    net = topologies.leaf_spine(leaves=2, spines=16, hosts_per_leaf=24)
    flows = Flows(net.hosts[:24], net.hosts[24:])
    spreads = [
        routing.polarisation(net, routing.ecmp(net, flows, seed=seed)) for seed in range(200)
    ]
    up = [next(s for s in spread if s.way == "leaf -> spine") for spread in spreads]
    # 24 balls into 16 bins; only one of the two leaves sends.
    assert up[0].usable == 16
    assert up[0].expected == pytest.approx(16 * (1 - (15 / 16) ** 24), rel=1e-12)
    # The number of empty bins has a variance below 3; four standard errors of 200 draws.
    assert np.mean([s.used for s in up]) == pytest.approx(up[0].expected, abs=4 * (3 / 200) ** 0.5)


def test_polarisation_shows_a_shared_salt_and_nothing_else():
    net = topologies.fat_tree(k=8)
    flows = Flows(np.repeat(net.hosts[:64], 8), np.repeat(net.hosts[64:], 8))
    found = {}
    for salt in ("switch", "shared"):
        spreads = routing.polarisation(net, routing.ecmp(net, flows, salt=salt))
        found[salt] = {s.way: s for s in spreads}
    for way in ("aggregation -> core", "core -> aggregation"):
        alone, alike = found["switch"][way], found["shared"][way]
        assert alone.usable == alike.usable == 64
        assert alone.used == pytest.approx(alone.expected, abs=6)
        assert alike.used == 16
        assert alike.largest > 2 * alone.largest
    assert found["shared"]["host -> edge"].used == found["shared"]["host -> edge"].usable == 64


def test_polarisation_leaves_out_what_is_inside_servers():
    net = topologies.cluster("dgx-h100", nodes=8)
    flows = Flows(net.hosts[:32], net.hosts[32:])
    spreads = routing.polarisation(net, routing.ecmp(net, flows))
    assert all("gpu" not in s.way for s in spreads)
    assert sum(s.usable for s in spreads) > 0


def test_polarisation_of_split_rows_is_refused():
    net = topologies.fat_tree(k=4)
    routes = routing.flowlet(net, permutation(net.hosts, seed=0), n=8)
    with pytest.raises(ModelError, match=r"needs rows with one path each, .*`flowlet`"):
        routing.polarisation(net, routes)


@pytest.mark.parametrize(
    "options",
    [{"queue_pairs": 0}, {"queue_pairs": -1}, {"salt": "pepper"}, {"hash": "x"}, {"key": "port"}],
)
def test_options_out_of_range_are_refused(options):
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
    with pytest.raises(ModelError, match=f"`{next(iter(options))}` needs"):
        routing.ecmp(net, Flows(net.hosts[:1], net.hosts[1:]), **options)
