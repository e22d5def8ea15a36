"""What `routing.spray` promises, one test per promise."""

import os
import subprocess
import sys

import numpy as np
import pytest

from fabric import Flows, ModelError, max_min_rates, routing, topologies
from tests.unit._routing_oracles import (
    network_of,
    random_network,
    reachable_flows,
    split,
    usage,
)

COSTS = {"equal": (1,), "levels": (1, 2, 3), "dijkstra": (1_000, 2_000, 3_001)}


def check_split(network, flows, routes):
    got = usage(routes)
    for flow, (s, d) in enumerate(zip(flows.src.tolist(), flows.dst.tolist(), strict=True)):
        want = np.zeros(network.n_links)
        for link, share in split(network, s, d).items():
            want[link] = float(share)
        # Fractions are products and sums of a few correctly rounded quotients.
        np.testing.assert_allclose(got[flow], want, rtol=1e-13, atol=1e-15)


def all_pairs(hosts):
    src, dst = np.meshgrid(hosts, hosts, indexing="ij")
    return Flows(src[src != dst], dst[src != dst])


def contents(routes):
    cuts = np.searchsorted(routes.part_bundle, np.arange(1, routes.n_bundles))
    links, uses = np.split(routes.part_link, cuts), np.split(routes.part_use, cuts)
    return [
        frozenset(zip(a.tolist(), b.tolist(), strict=True))
        for a, b in zip(links, uses, strict=True)
    ]


@pytest.mark.parametrize("dead", [0.0, 0.15])
@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
@pytest.mark.parametrize("seed", range(3))
def test_usage_equals_recursive_splitting(costs, seed, dead):
    network = random_network(np.random.default_rng(seed), costs=costs, dead=dead, direct=0.3)
    flows = reachable_flows(network)
    check_split(network, flows, routing.spray(network, flows))


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
def test_usage_is_right_where_every_node_sends_and_forwards(costs):
    network = random_network(np.random.default_rng(3), n_switches=90, nodes=True, costs=costs)
    flows = reachable_flows(network, np.random.default_rng(4), 200)
    check_split(network, flows, routing.spray(network, flows))


@pytest.mark.parametrize("n_dead", [1, 5])
def test_usage_of_a_damaged_fat_tree_equals_recursive_splitting(n_dead):
    net = topologies.fat_tree(k=6)
    labels, rng = net.labels, np.random.default_rng(n_dead)
    inner = np.flatnonzero(labels.forwards[labels.src] & labels.forwards[labels.dst])
    net = net.without(links=rng.choice(inner, n_dead, replace=False))
    hosts = net.hosts[::3]  # one host under every edge switch
    flows = all_pairs(hosts)
    check_split(net, flows, routing.spray(net, flows))


def test_the_order_of_flows_changes_no_usage():
    net = topologies.fat_tree(k=6).without(links=[150, 250, 300])
    flows = all_pairs(net.hosts[::3])
    order = np.random.default_rng(0).permutation(flows.n_flows)
    moved = routing.spray(net, Flows(flows.src[order], flows.dst[order]))
    base = routing.spray(net, flows)
    np.testing.assert_array_equal(usage(moved), usage(base)[order])
    assert set(contents(moved)) == set(contents(base))


def test_parts_of_every_bundle_sum_to_one():
    network = random_network(np.random.default_rng(1))
    routes = routing.spray(network, reachable_flows(network))
    sums = np.bincount(routes.part_bundle, routes.part_use)
    np.testing.assert_allclose(sums, 1.0, rtol=1e-14)
    assert np.all(routes.part_use > 0)


@pytest.mark.parametrize("k", [4, 6, 8])
def test_bundles_and_parts_of_a_whole_fat_tree_have_the_closed_form(k):
    net = topologies.fat_tree(k=k)
    routes = routing.spray(net, all_pairs(net.hosts))
    half, edges, hosts = k // 2, k * k // 2, k**3 // 4
    assert routes.n_bundles == 2 * edges + 2 * k + 2 * hosts
    assert routes.n_parts == 2 * edges * half + 2 * k * half**2 + 2 * hosts
    assert len(set(contents(routes))) == routes.n_bundles


def test_fractions_of_symmetric_links_are_bit_equal():
    routes = routing.spray(
        topologies.fat_tree(k=14), all_pairs(topologies.fat_tree(k=14).hosts[::7])
    )
    assert set(routes.part_use.tolist()) == {1.0, 1 / 7, 1 / 49}


def test_shares_that_split_and_met_again_are_the_shares_that_never_split_so():
    net = topologies.fat_tree(k=42)  # 21 times 1/441 in floating point is not 1/21
    same_pod_and_other = net.hosts[[21, -1]]
    routes = routing.spray(net, Flows(same_pod_and_other, net.hosts[[0, 0]]))
    hops = np.split(routes.hop_bundle, [4])
    np.testing.assert_array_equal(hops[0][-2:], hops[1][-2:])


@pytest.mark.parametrize("k", [4, 8])
def test_a_dead_core_cable_splits_only_the_bundles_that_it_touches(k):
    net = topologies.fat_tree(k=k)
    flows = all_pairs(net.hosts)
    labels = net.labels
    core = labels.is_kind("core") if "core" in labels.kinds else labels.is_kind("spine")
    cable = int(np.flatnonzero(core[labels.dst])[0])
    whole, cut = routing.spray(net, flows), routing.spray(net.without(links=[cable]), flows)
    # One for each other pod on its way in, and one for each on the way out.
    assert cut.n_bundles == whole.n_bundles + 2 * (k - 1)
    old, new = set(contents(whole)), set(contents(cut))
    assert all({cable, cable ^ 1} & set(dict(bundle)) for bundle in old - new)


def test_a_cable_to_one_host_is_not_taken_towards_the_next():
    # From switch 0, host 3 is as far over its own cable as over switch 1; host 4 hangs on 1 and 2.
    cables = [(0, 1, 2, 2, True), (0, 2, 9, 9, True), (3, 0, 3, 3, True), (3, 1, 1, 1, True)]
    cables += [(4, 1, 1, 1, True), (4, 2, 1, 1, True), (5, 0, 1, 1, True)]
    network = network_of(["switch"] * 3 + ["host"] * 3, cables)
    flows = Flows([5, 5], [3, 4])
    routes = routing.spray(network, flows)
    assert np.count_nonzero(usage(routes), axis=1).tolist() == [4, 3]
    check_split(network, flows, routes)


def test_parallel_cables_split_one_by_one():
    cables = [(0, 1, 1, 1, True)] * 3 + [(0, 1, 1, 1, False), (2, 0, 1, 1, True)]
    cables += [(3, 1, 1, 1, True)] * 2
    network = network_of(["switch", "switch", "host", "host"], cables)
    routes = routing.spray(network, Flows([2], [3]))
    assert routes.part_use.tolist() == [1.0, 1 / 3, 1 / 3, 1 / 3, 0.5, 0.5]
    assert routes.part_link.tolist() == [8, 0, 2, 4, 11, 13]


def test_uneven_parallel_cables_weigh_by_cable():
    net = topologies.leaf_spine(leaves=3, spines=4, hosts_per_leaf=2)
    labels = net.labels
    inner = np.flatnonzero(labels.forwards[labels.src] & labels.forwards[labels.dst])
    net = net.without(links=[int(inner[0])])
    flows = all_pairs(net.hosts)
    check_split(net, flows, routing.spray(net, flows))


def test_queue_pairs_go_the_same_way_with_their_share_of_weight_and_cap():
    net = topologies.fat_tree(k=4)
    flows = Flows(net.hosts[[9, 0]], net.hosts[[1, 1]], weight=[1, 2], cap=[6, np.inf])
    one, three = routing.spray(net, flows), routing.spray(net, flows, queue_pairs=3)
    assert three.flow_of.tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(three.weight, [1 / 3] * 3 + [2 / 3] * 3)
    assert three.cap.tolist() == [2, 2, 2, np.inf, np.inf, np.inf]
    np.testing.assert_array_equal(usage(three), np.repeat(usage(one), 3, axis=0))
    assert three.rule == {"name": "spray", "queue_pairs": 3}


@pytest.mark.parametrize("queue_pairs", [1, 2])
def test_no_flows_make_routes_that_solve(queue_pairs):
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
    routes = routing.spray(net, Flows([], []), queue_pairs=queue_pairs)
    assert (routes.n_flows, routes.n_parts, routes.n_bundles) == (0, 0, net.n_links)
    assert max_min_rates(net, routes).rates.shape == (0,)


def test_too_many_parts_are_refused_with_an_estimate_and_the_knob():
    side, cables = 6, []
    node = lambda x, y, z: (x % side * side + y % side) * side + z % side
    for x, y, z in np.ndindex(side, side, side):
        for step in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):
            there = node(x + step[0], y + step[1], z + step[2])
            cables.append((node(x, y, z), there, 1, 1, True))
    torus = network_of(["node"] * side**3, cables)
    flows = all_pairs(torus.hosts)
    with pytest.raises(ModelError, match=r"`max_parts=50000` parts: .* of 46,440 flows, .* GB"):
        routing.spray(torus, flows, max_parts=50_000)


def test_a_limit_that_is_just_enough_passes_and_one_less_does_not():
    net = topologies.fat_tree(k=4)
    flows = all_pairs(net.hosts)
    parts = routing.spray(net, flows).n_parts
    assert routing.spray(net, flows, max_parts=parts).n_parts == parts
    with pytest.raises(ModelError, match="max_parts"):
        routing.spray(net, flows, max_parts=parts - 1)


# The kernels in plain Python, with a hash that gives 7 for everything.
COLLIDING = """
import numpy as np
import fabric.kernels._paths as kernels
kernels.mix = lambda x: np.uint64(7)
from fabric import routing
from tests.unit._routing_oracles import random_network, reachable_flows
from tests.unit.test_spray import check_split
network = random_network(np.random.default_rng(2), dead=0.15)
flows = reachable_flows(network)
check_split(network, flows, routing.spray(network, flows))
"""


def test_equal_hashes_do_not_merge_unequal_splits():
    env = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", COLLIDING], env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
