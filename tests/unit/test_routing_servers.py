"""What `ecmp` and `spray` promise on networks with servers, one test per promise."""

import dataclasses

import networkx as nx
import numpy as np
import pytest

import fabric as fb
from fabric import hardware
from fabric.reference import Problem, max_min_rates_by_levels
from fabric.topologies import attach_servers
from tests.unit._routing_oracles import split, usage

RULES = {"ecmp": fb.routing.ecmp, "spray": fb.routing.spray}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def small(name="dgx-h100", servers=4, units=2, **options):
    """Units of equal size, two spines."""
    server = hardware.server(name)
    rails = server.n_nics
    fabric = fb.topologies.rail_optimized(
        servers, rails=rails, radix=16, leaf_down=4, leaf_up=2, spines=2,
        servers_per_unit=servers // units, capacity=hardware.nic(server.nic).rate.value,
    )  # fmt: skip
    return attach_servers(fabric, server, fabric.hosts.reshape(servers, rails), **options)


def rates(net, routes):
    solution = fb.max_min_rates(net, routes)
    assert fb.certify(net, routes, solution) < 1e-12
    return routes.per_flow(np.asarray(solution.rates))


def hops(net, routes, flow=0):
    """Names of the links of each hop of a flow, in order."""
    assert routes.n_parts
    return [
        sorted(net.link_name(int(i)) for i in routes.part_link[routes.part_bundle == bundle])
        for bundle in routes.hop_bundle[routes.hop_flow == flow]
    ]


def inside(net, s, d):
    """Return the load on each link of one unit between two nodes of a server, by capacity."""
    labels, server = net.labels, net.labels.tags["server"]
    graph = nx.MultiDiGraph()
    for link in np.flatnonzero(np.asarray(net.alive)).tolist():
        a, b = int(labels.src[link]), int(labels.dst[link])
        if server[a] == server[b] == server[s] and all(
            v in (s, d) or labels.forwards[v] for v in (a, b)
        ):
            cost, room = int(net.routing_cost[link]), float(net.capacity[link])
            graph.add_edge(a, b, key=link, cost=cost, room=room)
    left = nx.single_source_dijkstra_path_length(graph.reverse(), d, weight="cost")
    load: dict[int, float] = {}

    def pour(v, share):
        ways = [
            (link, w, data["room"])
            for _, w, link, data in graph.out_edges(v, keys=True, data=True)
            if v != d and w in left and data["cost"] + left[w] == left[v]
        ]
        for link, w, room in ways:
            part = share * room / sum(each for *_, each in ways)
            load[link] = load.get(link, 0.0) + part
            pour(w, part)

    pour(s, 1.0)
    return load


def sprayed(net, s, d):
    """Return the load on each link of one unit from GPU to GPU, from first principles."""
    tags = net.labels.tags
    if tags["server"][s] == tags["server"][d]:
        return inside(net, s, d)
    up = [int(n) for n in (s, tags["staging"][s], tags["nic"][s]) if n >= 0]
    down = [int(n) for n in (tags["nic"][d], tags["staging"][d], d) if n >= 0]
    load = {link: float(share) for link, share in split(net, up[-1], down[0]).items()}
    for a, b in [*nx.utils.pairwise(up), *nx.utils.pairwise(down)]:
        for link, share in inside(net, a, b).items():
            load[link] = load.get(link, 0.0) + share
    return load


def some_pairs(net, n, seed=0):
    rng = np.random.default_rng(seed)
    src = rng.choice(net.hosts, n)
    return fb.Flows(src, (src + rng.integers(1, len(net.hosts), n)) % len(net.hosts))


def fail_some(net, n, seed):
    """Fail cables of fabric and NVLink such that everybody still reaches everybody."""
    labels = net.labels
    spare = labels.is_tier("leaf-spine") | labels.is_tier("nvlink")
    return net.without(links=np.random.default_rng(seed).choice(np.flatnonzero(spare), n))


NETWORKS = {
    "h100": small(),
    "h100-no-gpudirect": small(gpudirect=False),
    "a100-failures": fail_some(small("dgx-a100"), 12, seed=1),
    "h100-failures": fail_some(small(), 12, seed=2),
    "mesh": small("mi300x-8"),
    "single-gpu": small("gh200"),
}


@pytest.mark.parametrize("net", NETWORKS.values(), ids=NETWORKS)
def test_loads_and_rates_equal_splitting_from_first_principles(net):
    flows = some_pairs(net, 60)
    routes = fb.routing.spray(net, flows)
    loads = [
        sprayed(net, int(s), int(d)) for s, d in zip(flows.src, flows.dst, strict=True)
    ]  # fmt: skip
    want = np.zeros((flows.n_flows, net.n_links))
    for flow, load in enumerate(loads):
        want[flow, list(load)] = list(load.values())
    np.testing.assert_allclose(usage(routes), want, rtol=1e-13, atol=1e-15)
    problem = Problem.from_paths(
        net.capacity, [list(x) for x in loads], [x.values() for x in loads]
    )
    # Rates are sums and quotients of some hundred terms in another order.
    np.testing.assert_allclose(rates(net, routes), max_min_rates_by_levels(problem), rtol=1e-11)


@pytest.mark.parametrize("net", NETWORKS.values(), ids=NETWORKS)
def test_ecmp_hashes_the_fabric_and_sprays_the_servers(net):
    flows = some_pairs(net, 40, seed=1)
    got = usage(fb.routing.ecmp(net, flows, seed=2))
    own = np.asarray(net.labels.is_kind("gpu", *fb.topologies.INSIDE_KINDS))
    within = own[net.labels.src] | own[net.labels.dst]
    np.testing.assert_allclose(
        got[:, within], usage(fb.routing.spray(net, flows))[:, within], rtol=1e-13, atol=1e-15
    )
    assert set(np.unique(got[:, ~within])) <= {0.0, 1.0}
    np.testing.assert_array_equal(
        (got[:, ~within] > 0).sum(1) > 0,
        net.labels.tags["server"][flows.src] != net.labels.tags["server"][flows.dst],
    )


@pytest.mark.parametrize("seed", range(3))
def test_ecmp_goes_a_path_of_the_bare_fabric(seed):
    net = NETWORKS["h100"]
    flows = some_pairs(net, 50, seed)
    loads = usage(fb.routing.ecmp(net, flows, seed=seed))
    shares = usage(fb.routing.spray(net, flows))
    assert (shares[loads > 0] > 0).all()
    stages = ("host", "leaf-spine")
    for flow in range(flows.n_flows):
        for tier in stages:
            of_tier = net.labels.is_tier(tier)
            assert loads[flow, of_tier].sum() == pytest.approx(shares[flow, of_tier].sum())


@rules
@pytest.mark.parametrize(
    ("name", "rate"), [("dgx-a100", 300e9), ("dgx-h100", 450e9), ("dgx-b200", 900e9)]
)
def test_a_permutation_inside_a_server_has_all_of_nvlink(rule, name, rate):
    net = small(name)
    gpus = net.hosts[:8]
    got = rates(net, rule(net, fb.Flows(gpus, np.roll(gpus, 3))))
    np.testing.assert_allclose(got, rate, rtol=1e-12)


def test_shares_of_nvswitches_are_those_of_their_links():
    net = small("dgx-h100")
    loads = usage(fb.routing.spray(net, fb.Flows([0], [5])))[0]
    np.testing.assert_allclose(loads[loads > 0] * 18, [5, 4, 4, 5] * 2, rtol=1e-14)


@rules
def test_a_gpu_sends_to_another_server_at_the_speed_of_its_nic(rule):
    net = small()
    got = rates(net, rule(net, fb.Flows(net.hosts[:8], net.hosts[8:16])))
    np.testing.assert_allclose(got, 50e9, rtol=1e-12)


def test_hops_lead_from_source_to_destination():
    net = small()
    assert hops(net, fb.routing.spray(net, fb.Flows([0], [31]))) == [
        ["server0-gpu0->server0-pcie0"],
        ["server0-pcie0->server0-nic0"],
        ["server0-nic0->unit0-leaf0"],
        ["unit0-leaf0->spine0", "unit0-leaf0->spine1"],
        ["spine0->unit1-leaf7", "spine1->unit1-leaf7"],
        ["unit1-leaf7->server3-nic7"],
        ["server3-nic7->server3-pcie7"],
        ["server3-pcie7->server3-gpu7"],
    ]


def test_without_gpudirect_both_ways_share_the_link_of_the_socket():
    # PCIe to socket is 64 GB/s per direction, and carries what goes out and what comes in.
    net = small(gpudirect=False)
    there, back = net.hosts[:8], net.hosts[8:16]
    flows = fb.Flows(np.r_[there, back], np.r_[back, there])
    np.testing.assert_allclose(rates(net, fb.routing.spray(net, flows)), 32e9, rtol=1e-12)
    np.testing.assert_allclose(rates(small(), fb.routing.spray(small(), flows)), 50e9, rtol=1e-12)


def test_without_gpudirect_traffic_turns_at_the_socket():
    net = small(gpudirect=False)
    found = [hop for (hop,) in hops(net, fb.routing.spray(net, fb.Flows([4], [12])))]
    assert found[:4] == [
        "server0-gpu4->server0-pcie4",
        "server0-pcie4->server0-socket1",
        "server0-socket1->server0-pcie4",
        "server0-pcie4->server0-nic4",
    ]
    assert found[-4:] == [
        "server1-nic4->server1-pcie4",
        "server1-pcie4->server1-socket1",
        "server1-socket1->server1-pcie4",
        "server1-pcie4->server1-gpu4",
    ]


def test_two_gpus_of_one_pcie_switch_have_lanes_of_their_own_and_one_socket():
    # A100: GPUs 0 and 1 share a PCIe switch, whose link to the socket is 32 GB/s per direction.
    # It carries each flow once, from GPU to socket; on its way back down it is another direction.
    net = small("dgx-a100")
    flows = fb.Flows([0, 1], [8, 9])
    np.testing.assert_allclose(rates(net, fb.routing.spray(net, flows)), 25e9, rtol=1e-12)
    net = small("dgx-a100", gpudirect=False)
    np.testing.assert_allclose(rates(net, fb.routing.spray(net, flows)), 16e9, rtol=1e-12)


def test_servers_without_nvlink_go_over_pcie():
    plain = dataclasses.replace(hardware.server("dgx-h100"), chips=())
    net = attach_servers(fb.topologies.single_switch(8), plain, [list(range(8))])
    routes = fb.routing.spray(net, fb.Flows([0, 0], [1, 5]))
    assert [hop for (hop,) in hops(net, routes)] == [
        "server0-gpu0->server0-pcie0",
        "server0-pcie0->server0-socket0",
        "server0-socket0->server0-pcie1",
        "server0-pcie1->server0-gpu1",
    ]
    assert "server0-socket0->server0-socket1" in {hop for (hop,) in hops(net, routes, 1)}
    # Both leave GPU 0 over its 64 GB/s; the sockets hold the second to 22 GB/s.
    np.testing.assert_allclose(rates(net, routes), [42e9, 22e9], rtol=1e-12)


def test_a_gpu_whose_nvlinks_failed_goes_over_pcie():
    net = small()
    labels = net.labels
    lost = labels.is_tier("nvlink") & (labels.src == 0)
    routes = fb.routing.spray(net.without(links=lost), fb.Flows([0, 1], [1, 2]))
    assert "pcie" in hops(net, routes, 0)[0][0]
    assert "nvswitch" in hops(net, routes, 1)[0][0]


def test_a_failed_nvswitch_is_gone_round():
    net = small().without(nodes=["server0-nvswitch0"])
    gpus = net.hosts[:8]
    got = rates(net, fb.routing.spray(net, fb.Flows(gpus, np.roll(gpus, 1))))
    np.testing.assert_allclose(got, 13 * 25e9, rtol=1e-12)


@rules
def test_a_gpu_whose_nic_lost_its_cable_is_named(rule):
    net = small()
    labels = net.labels
    cable = (labels.dst == labels.tags["nic"][3]) & labels.is_tier("host")
    broken = net.without(links=cable)
    flows = fb.Flows([3, 3, 2], [2, 11, 10])
    with pytest.raises(fb.InfeasibleError) as error:
        rule(broken, flows)
    said = str(error.value)
    assert said.startswith("1 of 3 flows cannot reach")
    assert "'server0-gpu3 -> server1-gpu3'" in said
    assert f"2 of {net.n_links:,} links are dead" in said
    np.testing.assert_allclose(rates(net, rule(broken, fb.Flows([3], [2]))), 450e9, rtol=1e-12)


@rules
def test_a_gpu_whose_pcie_failed_is_named(rule):
    net = small()
    broken = net.without(nodes=["server1-pcie2"])
    with pytest.raises(fb.InfeasibleError, match=r"2 of 3 flows.*'server0-gpu0 -> server1-gpu2'"):
        rule(broken, fb.Flows([0, 10, 10], [10, 0, 9]))


def test_rails_forward_over_nvlink_to_the_rail_of_the_destination():
    net = small()
    routes = fb.routing.spray(net, fb.Flows([0, 0, 0], [13, 8, 5]), rails="forward")
    found = hops(net, routes)
    assert found[0] == [f"server0-gpu0->server0-nvswitch{i}" for i in range(4)]
    assert found[1] == [f"server0-nvswitch{i}->server0-gpu5" for i in range(4)]
    assert [hop for (hop,) in found[2:]] == [
        "server0-gpu5->server0-pcie5",
        "server0-pcie5->server0-nic5",
        "server0-nic5->unit0-leaf5",
        "unit0-leaf5->server1-nic5",
        "server1-nic5->server1-pcie5",
        "server1-pcie5->server1-gpu5",
    ]
    assert hops(net, routes, 1) == hops(net, fb.routing.spray(net, fb.Flows([0], [8])))
    assert len(hops(net, routes, 2)) == 2
    assert routes.rule["rails"] == "forward"


def test_forwarding_keeps_all_traffic_of_a_unit_below_its_leaves():
    net = small(units=1)
    flows = fb.traffic.all_to_all(net.hosts)
    spines = net.labels.is_tier("leaf-spine")
    loads = usage(fb.routing.ecmp(net, flows, rails="forward"))
    assert loads[:, spines].sum() == 0
    assert usage(fb.routing.ecmp(net, flows))[:, spines].sum() > 0


def test_where_several_gpus_are_on_a_rail_forwarding_deals_traffic_out():
    pairs = dataclasses.replace(
        hardware.server("dgx-h100"), n_nics=4, pcie_of_nic=(0, 2, 4, 6),
        nic_of_gpu=(0, 0, 1, 1, 2, 2, 3, 3),
    )  # fmt: skip
    fabric = fb.topologies.rail_optimized(servers=2, rails=4, radix=16)
    net = attach_servers(fabric, pairs, fabric.hosts.reshape(2, 4))
    routes = fb.routing.spray(net, fb.Flows([0, 1], [10, 10]), rails="forward")
    assert [hops(net, routes, flow)[1][0] for flow in range(2)] == [
        "server0-nvswitch0->server0-gpu2", "server0-nvswitch0->server0-gpu3",
    ]  # fmt: skip


def test_forwarding_is_refused_where_there_are_no_servers():
    nics = fb.topologies.rail_optimized(servers=2, radix=16)
    with pytest.raises(fb.ModelError, match="needs servers with GPUs"):
        fb.routing.spray(nics, fb.Flows([0], [8]), rails="forward")
    with pytest.raises(fb.ModelError, match="'direct' and 'forward', but got 'side'"):
        fb.routing.ecmp(small(), fb.Flows([0], [8]), rails="side")


@rules
def test_queue_pairs_are_rows_with_all_legs(rule):
    net = small()
    flows = fb.Flows([0, 0], [31, 1], weight=[1.0, 2.0], cap=[4e9, np.inf])
    routes = rule(net, flows, queue_pairs=8)
    assert routes.n_flows == 16
    assert routes.flow_of.tolist() == [0] * 8 + [1] * 8
    np.testing.assert_array_equal(routes.weight, [1 / 8] * 8 + [2 / 8] * 8)
    loads = usage(routes)
    first = int(np.flatnonzero(loads[0])[0])
    assert (loads[:8, first] == 1).all()
    one = usage(rule(net, flows))
    inside_links = net.labels.is_tier("nvlink") | net.labels.is_tier("pcie")
    np.testing.assert_allclose(
        loads[:, inside_links], np.repeat(one, 8, axis=0)[:, inside_links], rtol=1e-14
    )
    up = loads[:8, net.labels.is_tier("leaf-spine")]
    if rule is fb.routing.ecmp:
        assert len(np.unique(up, axis=0)) == 2
    np.testing.assert_allclose(rates(net, routes)[0], 4e9)


def test_the_order_of_the_flows_is_kept():
    net = small()
    flows = some_pairs(net, 200, seed=5)
    loads = usage(fb.routing.spray(net, flows))
    out = np.flatnonzero(net.labels.endpoint)
    for flow, source in enumerate(flows.src):
        leaving = loads[flow, net.labels.src == source].sum()
        assert leaving == pytest.approx(1.0)
    assert len(out) == 32


@pytest.mark.parametrize("direct", [True, False], ids=["gpudirect", "staged"])
def test_servers_written_to_a_file_are_routed_through_as_before(tmp_path, direct):
    net = small(gpudirect=direct)
    read = fb.readers.read(fb.readers.write_node_link(net, tmp_path / "servers.json")).network
    flows = some_pairs(net, 30, seed=7)
    want, got = (usage(fb.routing.spray(each, flows)) for each in (net, read))
    order = [read.link_name(i) for i in range(read.n_links)]
    assert order == [net.link_name(i) for i in range(net.n_links)]
    np.testing.assert_allclose(got, want, rtol=1e-13)


@rules
def test_no_flows_make_no_hops(rule):
    assert rule(small(), fb.Flows([], [])).n_hops == 0


@rules
def test_nics_are_no_ends_of_flows(rule):
    net = small()
    with pytest.raises(fb.ModelError, match=r"nodes that send and receive.*'server0-nic0'"):
        rule(net, fb.Flows([0], [net.labels.node("server0-nic0")]))


def test_servers_of_different_make_stand_side_by_side():
    net = small()
    slower = np.asarray(net.capacity).copy()
    labels = net.labels
    slower[labels.is_tier("nvlink") & (labels.tags["server"][labels.src] == 2)] /= 2
    net = net.with_capacity(slower)
    gpus = net.hosts.reshape(4, 8)
    flows = fb.Flows(gpus.ravel(), np.roll(gpus, 1, axis=1).ravel())
    got = np.asarray(rates(net, fb.routing.spray(net, flows))).reshape(4, 8)
    np.testing.assert_allclose(got[[0, 1, 3]], 450e9, rtol=1e-12)
    np.testing.assert_allclose(got[2], 225e9, rtol=1e-12)


def test_flows_that_are_lost_inside_and_between_servers_are_named_together():
    net = small()
    cut = net.without(nodes=["server0-gpu0", "server3-nic5"])
    gpus = [net.labels.node(f"server{s}-gpu{g}") for s, g in ((0, 0), (1, 1), (3, 5), (2, 2))]
    flows = fb.Flows(gpus, [gpus[3], gpus[3], gpus[3], gpus[1]])
    for rule in (fb.routing.spray, fb.routing.ecmp, fb.routing.valiant, fb.routing.flowlet):
        with pytest.raises(fb.UnreachableError, match="2 of 4 flows") as error:
            rule(cut, flows)
        assert error.value.flows == (0, 2)
