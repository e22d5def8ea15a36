"""What `blast_radius` promises, one test per promise."""

import json

import networkx as nx
import pytest

import fabric as fb
from fabric import hardware
from fabric.reliability import blast_radius


def in_front(fabric):
    return fb.topologies.attach_servers(
        fabric, hardware.server("dgx-h100"), fabric.hosts.reshape(-1, 8)
    )


@pytest.mark.parametrize("servers", [False, True], ids=["nics", "gpus"])
def test_a_leaf_of_a_rail_reaches_one_nic_of_each_of_32_servers(servers):
    """The wiring of a scalable unit: 32 servers, 8 rails, a leaf with 32 ports down per rail."""
    net = fb.topologies.rail_optimized(servers=64, radix=64)
    (row,) = blast_radius(in_front(net) if servers else net, kind="leaf")
    assert (row.count, row.cut_off, row.servers, row.whole) == (16, 32, 32, 0)


def test_a_leaf_that_has_all_nics_of_its_servers_takes_4_of_them_wholly():
    net = in_front(fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=32))
    (row,) = blast_radius(net, kind="leaf")
    assert (row.count, row.cut_off, row.servers, row.whole) == (2, 32, 4, 4)


def test_each_part_of_a_server_reaches_the_gpus_that_hang_on_it():
    net = in_front(fb.topologies.rail_optimized(servers=2, radix=16))
    reached = {row.kind: row for row in blast_radius(net, kind=["gpu", "nic", "pcie-switch"])}
    assert {kind: row.cut_off for kind, row in reached.items()} == {
        "gpu": 1, "nic": 1, "pcie-switch": 1,
    }  # fmt: skip
    (server,) = blast_radius(net, kind="server")
    assert (server.count, server.cut_off, server.servers, server.whole) == (2, 8, 1, 1)


def test_a_spine_reaches_no_endpoint_and_the_last_one_all_but_the_largest_side():
    net = fb.topologies.leaf_spine(leaves=3, spines=2, hosts_per_leaf=[2, 2, 3])
    assert blast_radius(net, kind="spine")[0].cut_off == 0
    # Three leaves without a way to one another: the largest counts as where the others were.
    (last,) = blast_radius(net.without(nodes=["spine0"]), kind="spine")
    assert last.cut_off == 4


def test_an_endpoint_on_two_planes_keeps_half_without_one():
    graph = nx.Graph()
    for plane in range(2):
        graph.add_node(f"plane{plane}", kind="switch", plane=plane)
        for host in range(3):
            graph.add_node(f"host{host}", kind="host", plane=-1)
            graph.add_edge(f"host{host}", f"plane{plane}", capacity="400Gb/s")
    net = fb.Network.from_networkx(graph)
    (row,) = blast_radius(net, kind="plane")
    assert (row.count, row.cut_off, row.less, row.least, row.servers) == (2, 0, 3, 0.5, 3)
    assert row.name == "plane 0"
    (cable,) = blast_radius(net, kind="link")
    assert (cable.count, cable.less, cable.least) == (6, 1, 0.5)


def test_the_widest_comes_first_and_the_default_is_every_kind():
    net = in_front(fb.topologies.rail_optimized(servers=2, radix=16))
    report = blast_radius(net)
    assert {row.kind for row in report} == {"link", "switch", "nic", "server"}
    cut = [row.cut_off for row in report]
    assert cut == sorted(cut, reverse=True)
    assert json.loads(json.dumps(report.as_dict()))["rows"][0]["endpoints_cut_off"] == cut[0]
    assert str(report).splitlines()[0].split()[:2] == ["failure", "of"]


def test_reached_endpoints_are_named_those_cut_off_first():
    net = fb.topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2)
    (row,) = blast_radius(net, kind="leaf")
    assert row.names == ("leaf0-host0", "leaf0-host1")
