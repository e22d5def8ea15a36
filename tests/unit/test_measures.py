"""What measures of a network promise: hops, numbers of shortest ways, cuts, all-to-all rates."""

import math
from itertools import combinations, pairwise

import networkx as nx
import numpy as np
import pytest

import fabric as fb
from fabric import hardware
from fabric._errors import UnreachableError
from fabric.network import Blueprint
from fabric.topologies import (
    all_to_all_rate,
    attach_servers,
    bisection,
    build,
    cluster,
    fat_tree,
    full_mesh,
    hops,
    leaf_spine,
    path_counts,
    rail_optimized,
    torus,
)

LINK = 50e9
SMALL = [
    "leaf_spine:leaves=3,spines=2,hosts_per_leaf=4,cables_per_pair=2",
    "leaf_spine:leaves=3,spines=2,hosts_per_leaf=4+0+1",
    "fat_tree:k=4",
    "clos:hosts=13,radix=8",
    "rail_optimized:servers=5,rails=2,radix=8",
    "hpn:segments=2,hosts_per_segment=2,rails=2,aggs=2",
    "single_switch:hosts=3",
    "full_mesh:nodes=5",
    "torus:dims=3x4",
    "torus:dims=4x4x8,twist=tpu",
    "dragonfly:p=1,a=2,h=1",
    "dragonfly_plus:radix=4",
    "hyperx:shape=3x2,hosts_per_switch=2",
    "slim_fly:q=3",
    "direct_connect:blocks=5,ports=7",
]


def graph(net):
    """The live links as a directed graph in which nodes that do not forward are not passed."""
    simple = nx.DiGraph()
    simple.add_nodes_from(range(net.n_nodes))
    alive, rates = np.asarray(net.alive), np.asarray(net.capacity)
    ends = zip(net.labels.src.tolist(), net.labels.dst.tolist(), alive, rates, strict=True)
    for a, b, live, rate in ends:
        if live:
            old = simple.get_edge_data(a, b, {"cables": 0, "capacity": 0.0})
            simple.add_edge(a, b, cables=old["cables"] + 1, capacity=old["capacity"] + rate)
    return simple


def between(net, simple, a, b):
    """The graph without the nodes that a way from a to b may not pass."""
    forwards = np.asarray(net.labels.forwards)
    return simple.subgraph([v for v in simple if forwards[v] or v in (a, b)])


def counted(net, a, b):
    """Links, ways over nodes and ways over cables from a to b, by listing the ways."""
    simple = between(net, graph(net), a, b)
    found = list(nx.all_shortest_paths(simple, a, b))
    over = [math.prod(simple[u][v]["cables"] for u, v in pairwise(path)) for path in found]
    return len(found[0]) - 1, len(found), sum(over)


def flow(net, first):
    """byte/s from a half of the endpoints to the other, by networkx."""
    simple = graph(net)
    forwards = np.asarray(net.labels.forwards)
    split = nx.DiGraph()
    for a, b, data in simple.edges(data=True):
        # What does not forward sends from one node and receives at another.
        start, end = (a, "out"), (b, "in" if not forwards[b] else "out")
        split.add_edge(start, end, capacity=data["capacity"])
    for host in net.hosts.tolist():
        if first[host]:
            split.add_edge("source", (host, "out"))
        else:
            split.add_edge((host, "in" if not forwards[host] else "out"), "sink")
    return nx.maximum_flow_value(split, "source", "sink")


# Hops.


@pytest.mark.parametrize("spec", SMALL)
def test_hops_are_those_of_a_search_from_every_endpoint(spec):
    net = build(spec)
    simple, hosts = graph(net), net.hosts.tolist()
    far = [
        nx.shortest_path_length(between(net, simple, a, b), a, b)
        for a in hosts[:: max(1, len(hosts) // 12)] for b in hosts if a != b
    ]  # fmt: skip
    found = hops(net)
    assert found.exact
    assert found.unreachable == 0
    assert found.diameter == max(far)
    if len(hosts) <= 12:
        assert found.mean == pytest.approx(np.mean(far), rel=1e-12)


@pytest.mark.parametrize(
    ("k", "mean"),
    # k/2 - 1 hosts at 2 links, (k/2)^2 - k/2 at 4, the rest at 6.
    [(k, (2 * (h - 1) + 4 * (h * h - h) + 6 * (2 * h**3 - h * h)) / (2 * h**3 - 1))
     for k in (4, 8, 16) for h in [k // 2]],
)  # fmt: skip
def test_the_mean_of_a_fat_tree_is_its_closed_form(k, mean):
    found = hops(fat_tree(k))
    assert (found.diameter, found.switches) == (6, 5)
    assert found.mean == pytest.approx(mean, rel=1e-12)


def test_routing_costs_decide_which_way_is_shortest():
    plan = Blueprint()
    host, switch = plan.nodes("host", "h{}", (2,)), plan.nodes("switch", "s{}", (3,))
    at = lambda *number: switch[list(number)]
    plan.cables("host", host, switch[[0, 2]], LINK)
    plan.cables("direct", at(0), at(2), LINK, routing_cost=5)
    plan.cables("round", switch[[0, 1]], switch[[1, 2]], LINK)
    net = plan.network("round")
    assert hops(net).diameter == 4
    assert path_counts(net, [(0, 1)]).switches.tolist() == [3]
    assert hops(net.without(links=[int(net.n_links) - 1])).diameter == 3


def test_failed_links_lengthen_ways_and_cut_pairs_off():
    net = torus([6])
    assert hops(net).diameter == 3
    assert hops(net.without(links=[0])).diameter == 5
    apart = hops(net.without(links=[0, 6]))
    assert apart.unreachable == 2 * 3 * 3


def test_a_sample_says_so_and_depends_on_the_seed_only():
    net = leaf_spine(leaves=8, spines=2, hosts_per_leaf=[1, 2, 3, 4, 5, 6, 7, 8])
    one, again = hops(net, samples=2, seed=1), hops(net, samples=2, seed=1)
    assert one == again
    assert not one.exact
    assert hops(net, samples=100).exact


def test_a_network_of_one_endpoint_has_no_measures():
    plan = Blueprint()
    plan.cables("host", plan.nodes("host", "h", ()), plan.nodes("switch", "s", ()), LINK)
    with pytest.raises(fb.ModelError, match="1 nodes that send and receive"):
        hops(plan.network("lonely"))


# Numbers of shortest ways.


@pytest.mark.parametrize("spec", SMALL)
def test_ways_are_as_many_as_can_be_listed(spec):
    net = build(spec)
    rng = np.random.default_rng(3)
    pairs = [tuple(rng.choice(net.hosts, 2, replace=False).tolist()) for _ in range(6)]
    found = path_counts(net, pairs)
    want = [counted(net, a, b) for a, b in pairs]
    rows = zip(found.links, found.by_nodes, found.by_cables, strict=True)
    assert [tuple(map(int, row)) for row in rows] == want


def test_ways_between_switches_and_over_dead_links_count_too():
    net = leaf_spine(leaves=2, spines=3, hosts_per_leaf=1, cables_per_pair=2)
    leaves = np.flatnonzero(net.labels.is_kind("leaf")).tolist()
    found = path_counts(net.without(nodes=["spine1"]), [tuple(leaves), (0, 1)])
    assert found.by_cables.tolist() == [8, 8]
    assert found.switches.tolist() == [1, 3]


def test_no_way_is_minus_one_link_and_no_path():
    net = build("rail_only:servers=2,rails=2,radix=4")
    found = path_counts(net, [(0, 1), (0, 2)])
    assert found.links.tolist() == [-1, 2]
    assert found.by_cables.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([(0, 99)], "outside: '99'"),
        ([(0, 0)], "two nodes that differ"),
        ([(0, 1, 2)], "a source and a destination in every row"),
        ([(0, 1), (2,)], "a source and a destination in every row"),
        ([(0.5, 1)], "whole numbers of 64 bits, but 1 of 2 are not: '0.5'"),
        ([("a", "b")], "whole numbers"),
    ],
)
def test_pairs_that_are_none_are_refused(pairs, said):
    with pytest.raises(fb.ModelError, match=said):
        path_counts(full_mesh(3), pairs)


def served(name, fabric, **more):
    """Servers of a kind on all endpoints of a fabric."""
    server = hardware.server(name)
    return attach_servers(fabric, server, fabric.hosts.reshape(-1, server.n_nics), **more)


def test_a_gpu_reaches_the_fabric_over_its_own_nic_only():
    net = served("dgx-h100", build("rail_only:servers=3,radix=8"))
    gpu = net.hosts
    pairs = [(gpu[0], gpu[8]), (gpu[0], gpu[9]), (gpu[0], gpu[1])]
    found = path_counts(net, pairs)
    assert found.links.tolist() == [6, -1, 2]
    assert found.by_nodes.tolist() == [1, 0, 4]
    # 24 GPUs reach 7 others in their server and the two of their rail in other ones.
    assert hops(net).unreachable == 24 * (23 - 7 - 2)
    with pytest.raises(fb.InfeasibleError, match="Rails meet only where GPUs pass on"):
        all_to_all_rate(net)
    with pytest.raises(fb.InfeasibleError):
        fb.routing.spray(net, fb.Flows(*np.array(pairs[1:2]).T))


@pytest.mark.parametrize("seed", range(3))
def test_gpus_reach_each_other_exactly_where_routing_finds_a_way(seed):
    net = served("dgx-a100", leaf_spine(2, 2, 8, capacity="200Gb/s"))
    rng = np.random.default_rng(seed)
    net = net.without(links=rng.choice(net.n_links, net.n_links // 6, replace=False))
    pairs = np.array([(a, b) for a in net.hosts[:2] for b in net.hosts if a != b])

    def lost(src, dst):
        try:
            fb.routing.spray(net, fb.Flows(src, dst))
        except UnreachableError as error:
            return list(error.flows)
        return []

    found = np.flatnonzero(path_counts(net, pairs).links < 0)
    assert 0 < len(found) < len(pairs)
    assert found.tolist() == lost(*pairs.T)


def test_the_way_of_a_gpu_that_shares_a_pcie_switch_is_over_its_nic():
    # Two GPUs and two NICs at every PCIe switch; each GPU has a rail.
    net = served("dgx-a100", rail_optimized(servers=2, radix=32, capacity="200Gb/s"))
    gpu = net.hosts
    same, other = path_counts(net, [(gpu[0], gpu[8]), (gpu[0], gpu[9])]).switches
    assert (same, other) == (1, 3)


def test_without_gpudirect_the_way_is_over_the_socket():
    fabric = build("leaf_spine:leaves=2,spines=1,hosts_per_leaf=8")
    direct, staged = (
        path_counts(net, [(net.hosts[0], net.hosts[8])]).links
        for net in (served("dgx-h100", fabric), served("dgx-h100", fabric, gpudirect=False))
    )
    # GPU, PCIe switch, NIC at either end; or GPU, PCIe switch, socket, PCIe switch, NIC.
    assert (direct, staged) == (8, 12)


def test_servers_wired_nic_to_nic_are_one_cable_apart():
    net = served("gh200", full_mesh(2, capacity="200Gb/s"))
    assert hops(net).switches == 0
    assert path_counts(net, [tuple(net.hosts)]).by_cables.tolist() == [1]


def test_no_way_passes_through_the_server_of_others():
    net = cluster("dgx-h100", nodes=2)
    labels = net.labels
    nic = lambda server, rail: int(
        np.flatnonzero(
            labels.is_kind("nic")
            & (labels.tags["server"] == server)
            & (labels.tags["rail"] == rail)
        )[0]
    )
    # To another rail over a spine, though PCIe and sockets of a server would join the two leaves.
    found = path_counts(net, [(nic(0, 0), nic(1, 0)), (nic(0, 0), nic(1, 1))])
    assert found.links.tolist() == [2, 4]
    assert found.switches.tolist() == [1, 3]
    # From GPU to GPU, PCIe and NIC at both ends; inside a server NVLink.
    near = path_counts(net, [(0, 8), (0, 9), (0, 1)])
    assert near.links.tolist() == [6, 8, 2]
    assert near.switches.tolist() == [1, 3, 0]


# Cuts.


@pytest.mark.parametrize("spec", SMALL)
def test_the_cut_of_any_half_is_the_maximum_flow(spec):
    net = build(spec)
    rng = np.random.default_rng(5)
    for _ in range(2):
        half = rng.permutation(net.hosts)[: len(net.hosts) // 2]
        cut = bisection(net, half)
        first = np.isin(np.arange(net.n_nodes), half)
        assert cut.capacity == pytest.approx(flow(net, first), rel=1e-12)
        links = np.asarray(net.capacity)[cut.links].sum()
        assert links == pytest.approx(cut.capacity, rel=1e-12)


def test_the_least_of_all_halves_is_found_where_a_tag_names_it():
    # A barbell: two full meshes of four with one cable between them.
    plan = Blueprint()
    node = plan.nodes("node", "side{}-node{}", (2, 4), side=np.arange(2)[:, None])
    for a, b in combinations(range(4), 2):
        plan.cables("near", node[:, a], node[:, b], LINK)
    plan.cables("far", node[:1, 0], node[1:, 0], LINK)
    net = plan.network("barbell")
    every = [flow(net, np.isin(np.arange(8), half)) for half in combinations(range(8), 4)]
    cut = bisection(net)
    assert cut.capacity == min(every) == LINK
    assert cut.sizes == (4, 4)
    assert len(cut.links) == 1
    assert set(cut.tried) >= {"node order", "random 0", "random 3"}
    assert min(cut.tried.values()) == cut.capacity


@pytest.mark.parametrize("k", [4, 8, 16])
def test_a_fat_tree_has_full_bisection(k):
    assert bisection(fat_tree(k)).capacity == k**3 / 8 * LINK
    tapered = fat_tree(k, oversubscription=2)
    assert bisection(tapered).capacity == k**3 / 16 * LINK


@pytest.mark.parametrize(
    ("dims", "links"), [("4x4x4", 32), ("4x4x8", 32), ("4x8x8", 64), ("8x8x8", 128), ("16x16", 32)]
)
def test_the_cut_of_a_torus_is_across_its_longest_axis(dims, links):
    cut = bisection(torus(dims))
    assert cut.capacity == links * LINK
    assert len(cut.links) == links


def test_two_directions_of_different_capacity_count_the_lesser():
    net = full_mesh(4)
    slower = np.where(net.labels.src < net.labels.dst, 0.25 * LINK, LINK)
    assert bisection(net.with_capacity(slower), samples=0).capacity == LINK


def test_rates_without_a_common_unit_are_summed_as_they_are():
    net = full_mesh(4)
    odd = LINK * (1 + np.arange(net.n_links) // 2 / math.pi)
    half = np.arange(4) < 2
    want = odd[half[net.labels.src] & ~half[net.labels.dst]].sum()
    assert bisection(net.with_capacity(odd), [0, 1]).capacity == pytest.approx(want, rel=1e-12)


def test_a_cut_of_servers_goes_through_their_nics():
    net = cluster("dgx-h100", nodes=4)
    assert bisection(net, "server").capacity == 2 * 8 * LINK
    alone = cluster("dgx-h100", nodes=1)
    # 4 GPUs of 450 GB/s, 22 GB/s between the two sockets of their PCIe, and 4 NICs.
    assert bisection(alone).capacity == 4 * 450e9 + 22e9 + 4 * LINK


@pytest.mark.parametrize(
    ("halves", "said"),
    [
        ("pood", "Did you mean 'pod'"),
        ([0, 1, 999], "nodes from 0 to 35, but has '999'"),
        ([16], "neither send nor receive"),
        (list(range(16)), "one side is empty"),
        ([], "one side is empty"),
        (np.ones(3, bool), "a value for each of 36 nodes"),
    ],
    ids=str,
)
def test_halves_that_are_none_are_refused(halves, said):
    with pytest.raises(fb.ModelError, match=said):
        bisection(fat_tree(4), halves)


def test_the_cut_of_a_fabric_of_65536_hosts_takes_no_flow_over_its_links():
    net = fat_tree(64)
    cut = bisection(net)
    assert cut.capacity == 32768 * LINK
    assert len(cut.links) == 32768


# Uniform all-to-all.


def rates(net):
    """The same by routes of all pairs, sprayed, all at one rate."""
    hosts = net.hosts
    src, dst = (x.ravel() for x in np.meshgrid(hosts, hosts, indexing="ij"))
    apart = src != dst
    routes = fb.routing.spray(net, fb.Flows(src[apart], dst[apart]))
    flow_use = np.bincount(routes.hop_bundle, routes.hop_use, routes.n_bundles)
    parts = routes.part_use * flow_use[routes.part_bundle]
    load = np.bincount(routes.part_link, parts, net.n_links)
    used = load > 0
    each = np.min(np.asarray(net.capacity)[used] / load[used])
    return float(each) * (len(hosts) - 1)


@pytest.mark.parametrize("spec", SMALL)
def test_an_all_to_all_has_the_rate_of_spray(spec):
    net = build(spec)
    found = all_to_all_rate(net)
    assert found.rate == pytest.approx(rates(net), rel=1e-9)
    assert found.rate <= found.bound * (1 + 1e-9)


@pytest.mark.parametrize(
    ("dims", "twist", "in_links"),
    [("4x4x4", None, 1.96875), ("4x4x8", None, 0.9921875), ("4x8x8", None, 255 / 256),
     ("4x4x8", "tpu", 6 / 3.4645669), ("4x8x8", "tpu", 6 / 4.3294118), ("16x16", None, 0.498047)],
)  # fmt: skip
def test_tori_reach_what_no_routing_exceeds(dims, twist, in_links):
    found = all_to_all_rate(torus(dims, twist=twist))
    assert found.in_links == pytest.approx(in_links, rel=1e-6)
    assert found.optimal
    assert found.limited_by == "links" or twist is None


def test_twisting_gains_what_the_closed_form_says():
    gain = lambda dims: (
        all_to_all_rate(torus(dims, twist="tpu")).rate / all_to_all_rate(torus(dims)).rate
    )
    assert gain("4x4x8") == pytest.approx(1.7455, abs=5e-5)
    assert gain("4x8x8") == pytest.approx(1.3913, abs=5e-5)


def test_an_oversubscribed_fabric_is_limited_by_its_cut():
    net = leaf_spine(leaves=4, spines=2, hosts_per_leaf=4)
    found = all_to_all_rate(net)
    # 12 of 15 peers are on other leaves, which 4 hosts reach over 2 uplinks.
    assert found.rate == pytest.approx(2 * LINK / 4 * 15 / 12, rel=1e-12)
    assert found.bound >= found.rate


def test_an_all_to_all_over_gpus_shares_what_comes_in_and_goes_out():
    fabric = rail_optimized(servers=2, rails=8, radix=32)
    net = attach_servers(fabric, hardware.server("dgx-h100"), fabric.hosts.reshape(2, 8))
    found = all_to_all_rate(net)
    # 8 of 15 peers are in the other server, over a NIC of 50 GB/s.
    assert found.rate == pytest.approx(LINK * 15 / 8, rel=1e-12)


@pytest.mark.parametrize("gpudirect", [True, False])
@pytest.mark.parametrize("name", ["dgx-a100", "dgx-h100", "gh200", "mi300x-8"])
def test_an_all_to_all_of_gpus_has_the_rate_of_spray(name, gpudirect):
    server = hardware.server(name)
    rate = hardware.nic(server.nic).rate.value
    fabric = leaf_spine(2, 2, 2 * server.n_nics, capacity=rate, uplink_capacity=20 * rate)
    net = served(name, fabric, gpudirect=gpudirect)
    found = all_to_all_rate(net)
    assert found.rate == pytest.approx(rates(net), rel=1e-9)
    assert found.rate <= found.bound * (1 + 1e-9)


@pytest.mark.parametrize("chip", [4, 20], ids=["narrow", "wide"])
def test_inside_a_server_traffic_splits_by_capacity(chip):
    net = served("dgx-h100", build("single_switch:hosts=16"))
    slow = net.labels.is_kind("nvswitch")[net.labels.src] & (net.labels.dst < chip)
    net = net.with_capacity(np.where(slow, 0.05, 1) * np.asarray(net.capacity))
    assert all_to_all_rate(net).rate == pytest.approx(rates(net), rel=1e-9)


def test_an_all_to_all_without_a_way_is_refused():
    with pytest.raises(fb.InfeasibleError, match=r"have no way over live links"):
        all_to_all_rate(build("rail_only:servers=2,rails=2,radix=4"))
