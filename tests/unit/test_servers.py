"""What `topologies.attach_servers` promises, one test per promise."""

import dataclasses
import json
from collections import Counter

import networkx as nx
import numpy as np
import pytest

import fabric as fb
from fabric import hardware, readers
from fabric.topologies import attach_servers

KINDS = ("gpu", "nvswitch", "pcie-switch", "socket", "nic")


def with_servers(name, servers=3, **options):
    server = hardware.server(name)
    nic = hardware.nic(server.nic)
    fabric = fb.topologies.rail_optimized(
        servers, rails=server.n_nics, radix=2 * server.n_nics + 4, capacity=nic.rate.value
    )
    return attach_servers(fabric, server, fabric.hosts.reshape(servers, -1), **options)


def counts(net, kinds=KINDS):
    return [int(net.labels.is_kind(kind).sum()) for kind in kinds]


def ends(net, tier):
    labels = net.labels
    links = np.flatnonzero(labels.is_tier(tier))[::2]
    return Counter(
        tuple(sorted((labels.kinds[labels.kind_of[a]], labels.kinds[labels.kind_of[b]])))
        for a, b in zip(labels.src[links], labels.dst[links], strict=True)
    )


@pytest.mark.parametrize(
    ("name", "per_server"),
    [
        pytest.param("dgx-a100", [8, 6, 4, 2, 8], id="a100"),
        pytest.param("dgx-h100", [8, 4, 8, 2, 8], id="h100"),
        pytest.param("dgx-b200", [8, 2, 8, 2, 8], id="b200"),
        pytest.param("mi300x-8", [8, 0, 8, 2, 8], id="mi300x"),
        pytest.param("gh200", [1, 0, 1, 1, 1], id="gh200"),
    ],
)
def test_every_server_has_its_parts(name, per_server):
    net = with_servers(name)
    assert counts(net) == [3 * count for count in per_server]


def test_gpus_come_first_and_are_the_endpoints():
    net = with_servers("dgx-h100")
    np.testing.assert_array_equal(net.hosts, np.arange(24))
    np.testing.assert_array_equal(net.labels.tags["server"][:24], np.arange(24) // 8)
    np.testing.assert_array_equal(net.labels.tags["gpu"][:24], np.arange(24) % 8)
    assert list(net.labels.names[6:10]) == [
        "server0-gpu6", "server0-gpu7", "server1-gpu0", "server1-gpu1",
    ]  # fmt: skip
    assert {"server2-nvswitch3", "server2-pcie7", "server2-socket1", "server2-nic7"} <= set(
        net.labels.names
    )


def test_names_are_unique_and_one_per_node():
    names = list(with_servers("dgx-a100").labels.names)
    assert len(set(names)) == len(names)


def test_nothing_but_switches_of_any_sort_forwards():
    labels = with_servers("dgx-h100").labels
    passive = {labels.kinds[code] for code in labels.kind_of[~labels.forwards]}
    assert passive == {"gpu", "nic"}


# Links, chips, egress and bisection of one server as NVIDIA prints them.
@pytest.mark.parametrize("row", ["dgx_a100_node", "dgx_h100_node", "b200_8gpu_node", "gb200_nvl72"])
def test_nvlink_is_as_published(shared, row):
    entries = json.loads((shared / "validation" / "topologies.json").read_text())
    (want,) = (e["expected"] for e in entries if e["name"] == row)
    names = {
        "dgx_a100_node": "dgx-a100", "dgx_h100_node": "dgx-h100",
        "b200_8gpu_node": "dgx-b200", "gb200_nvl72": "gb200-nvl72",
    }  # fmt: skip
    server = hardware.server(names[row])
    rate = hardware.nic(server.nic).rate.value
    one = fb.topologies.single_switch(server.n_nics, capacity=rate)
    net = attach_servers(one, server, np.arange(server.n_nics)[None])
    labels, capacity = net.labels, np.asarray(net.capacity)
    up = labels.is_tier("nvlink") & labels.is_kind("gpu")[labels.src]
    egress = np.bincount(labels.src[up], capacity[up])
    np.testing.assert_allclose(egress / 1e9, want["gpu_egress_one_way_GBps"], rtol=1e-12)
    links = capacity[up] / server.link_rate.value
    if "nvlinks_total" in want:
        assert links.sum() == want["nvlinks_total"]
    per_chip = [links[labels.dst[up] == c] for c in np.flatnonzero(labels.is_kind("nvswitch"))]
    if "gpu_facing_ports_per_chip" in want:
        assert [each.sum() for each in per_chip] == want["gpu_facing_ports_per_chip"]
    per_pair = want.get("links_per_gpu_per_nvswitch", want.get("links_per_gpu_per_chip"))
    if per_pair is not None:
        np.testing.assert_array_equal(links, per_pair)
    if "link_level_paths_gpu_pair" in want:
        assert sum(each[0] * each[1] for each in per_chip) == want["link_level_paths_gpu_pair"]
    if "bisection_one_way_TBps" in want:
        # Every chip serves all GPUs alike, so half of them send half of all there is.
        assert egress.sum() / 2 / 1e12 == pytest.approx(want["bisection_one_way_TBps"])
    if "node_nic_egress_one_way_GBps" in want:
        nic = hardware.nic(server.nic).rate.value * server.n_nics
        assert nic / 1e9 == want["node_nic_egress_one_way_GBps"]


def test_pcie_of_a_dgx_a100_joins_two_gpus_and_two_nics_per_switch():
    net = with_servers("dgx-a100", servers=1)
    assert ends(net, "pcie") == {("gpu", "pcie-switch"): 8, ("nic", "pcie-switch"): 8}
    assert ends(net, "socket") == {("pcie-switch", "socket"): 4, ("socket", "socket"): 1}
    labels = net.labels
    pcie = labels.is_kind("pcie-switch")
    for kind in ("gpu", "nic"):
        link = labels.is_tier("pcie") & labels.is_kind(kind)[labels.src] & pcie[labels.dst]
        np.testing.assert_array_equal(np.bincount(labels.dst[link], minlength=net.n_nodes)[pcie], 2)


def test_a_mesh_joins_every_two_gpus():
    net = with_servers("mi300x-8", servers=2)
    assert ends(net, "nvlink") == {("gpu", "gpu"): 2 * 28}
    labels = net.labels
    link = labels.is_tier("nvlink")
    assert (
        labels.tags["server"][labels.src[link]] == labels.tags["server"][labels.dst[link]]
    ).all()


def test_sockets_of_a_rack_are_joined_in_pairs():
    server = hardware.server("gb200-nvl72")
    net = attach_servers(fb.topologies.single_switch(72), server, np.arange(72)[None])
    assert ends(net, "socket")["socket", "socket"] == server.n_sockets // 2


def test_a_gpu_has_the_tags_of_its_nic():
    net = with_servers("dgx-h100", servers=14)
    labels, nic = net.labels, net.labels.tags["nic"][net.hosts]
    assert labels.is_kind("nic")[nic].all()
    for tag in ("rail", "unit", "leaf", "server"):
        np.testing.assert_array_equal(labels.tags[tag][net.hosts], labels.tags[tag][nic])
    assert labels.tags["unit"].max() == 1
    assert (labels.tags["staging"] == -1).all()


def test_gpus_that_share_a_nic_are_on_its_rail():
    pair = dataclasses.replace(
        hardware.server("dgx-h100"), n_nics=2, nic_of_gpu=(0,) * 4 + (1,) * 4, pcie_of_nic=(0, 4)
    )
    net = attach_servers(fb.topologies.single_switch(2), pair, [[0, 1]])
    np.testing.assert_array_equal(net.labels.tags["rail"][:8], pair.nic_of_gpu)
    np.testing.assert_array_equal(np.diff(np.unique(net.labels.tags["nic"][:8])), 1)


@pytest.mark.parametrize("built", [True, False], ids=["catalogue", "argument"])
def test_without_gpudirect_the_socket_of_the_gpu_is_named(built):
    server = hardware.server("dgx-h100")
    nics = fb.topologies.single_switch(8)
    if built:
        net = attach_servers(nics, server.with_gpudirect(False), [range(8)])
    else:
        net = attach_servers(nics, server, [range(8)], gpudirect=False)
    staging = net.labels.tags["staging"][:8]
    assert [net.labels.names[node] for node in staging] == ["server0-socket0"] * 4 + [
        "server0-socket1"
    ] * 4
    assert net.labels.about["gpudirect"] == "no"


def test_the_fabric_stays_as_it_was():
    fabric = fb.topologies.rail_optimized(servers=4, radix=16)
    fabric = fabric.without(nodes=["spine0"]).with_capacity(np.linspace(1e9, 2e9, fabric.n_links))
    net = attach_servers(fabric, hardware.server("dgx-h100"), fabric.hosts.reshape(4, 8)[:3])
    own, base = net.n_links - fabric.n_links, net.n_nodes - fabric.n_nodes
    for name in ("capacity", "latency", "alive", "routing_cost"):
        np.testing.assert_array_equal(getattr(net, name)[own:], getattr(fabric, name))
    np.testing.assert_array_equal(net.labels.src[own:] - base, fabric.labels.src)
    assert [net.link_name(own + i) for i in range(fabric.n_links)] == [
        fabric.link_name(i) for i in range(fabric.n_links)
    ]
    assert len(np.unique(net.labels.cable_of)) == net.n_links // 2
    # The fourth server's NICs are there, and belong to nobody.
    left = base + fabric.hosts[24:]
    assert (net.labels.tags["server"][left] == -1).all()
    assert not net.labels.endpoint[left].any()


def test_a_failed_cable_fails_both_ways_and_none_else():
    net = with_servers("dgx-h100")
    broken = net.without(links=[int(np.flatnonzero(net.labels.is_tier("nvlink"))[3])])
    assert int((~np.asarray(broken.alive)).sum()) == 2


def test_servers_stand_in_front_of_a_fabric_that_was_read(tmp_path):
    plain = fb.topologies.rail_optimized(servers=2, radix=16)
    file = tmp_path / "dump"
    readers.WRITERS["ibnetdiscover"](plain, file)
    read = readers.read(file).network
    nics = np.array(
        [[read.labels.node(f"server{s} HCA-{r + 1}") for r in range(8)] for s in range(2)]
    )
    net = attach_servers(read, hardware.server("dgx-h100"), nics, names=["dgx-01", "dgx-02"])
    labels = net.labels
    assert labels.names[8] == "dgx-02-gpu0"
    assert labels.ids is not None
    assert len(set(labels.ids)) == net.n_nodes
    assert labels.src_port is not None
    last = net.n_links - 1
    assert net.link_name(last) == read.link_name(read.n_links - 1)
    nic = labels.tags["nic"][8:16]
    assert [labels.names[node] for node in nic] == [f"server1 HCA-{r + 1}" for r in range(8)]
    for tag, values in read.labels.tags.items():
        if values.dtype.kind == "U":
            np.testing.assert_array_equal(labels.tags[tag][:8], values[nics[0]])


def test_everything_inside_a_server_hangs_together():
    net = with_servers("dgx-a100", servers=2)
    graph = nx.Graph(zip(net.labels.src.tolist(), net.labels.dst.tolist(), strict=True))
    for server in range(2):
        own = np.flatnonzero(net.labels.tags["server"] == server)
        assert nx.is_connected(graph.subgraph(own.tolist()))
    slots = net.labels.tags["slot"][net.labels.tags["server"] == 1]
    np.testing.assert_array_equal(np.sort(slots), np.arange(8 + 6 + 4 + 2 + 8))


def test_facts_are_in_about_and_survive_changes():
    net = with_servers("dgx-h100")
    facts = {"server": "dgx-h100", "gpu": "h100-sxm", "nic": "cx7", "gpudirect": "yes",
             "ports_per_module": "2"}  # fmt: skip
    assert net.labels.about == facts
    assert net.with_capacity(net.capacity).labels.about == facts
    assert net.without(nodes=["spine0"]).labels.about == facts


@pytest.mark.parametrize(
    ("nics", "options", "said"),
    [
        ([[0, 1]], {}, r"shape \(servers, 8\).*has 8 NICs, but got shape \(1, 2\)"),
        ([[0, 1, 2, 3, 4, 5, 6, 6]], {}, r"names nodes twice: 'server0-nic6'"),
        ([[0, 1, 2, 3, 4, 5, 6, 900]], {}, r"are outside: '900'"),
        ([[0, 1, 2, 3, 4, 5, 6, 17]], {}, r"1 nodes are none: 'unit0-leaf1'"),
        ([range(8), range(8, 16)], {"names": ["a", "a"]}, r"2 servers, but has 2 with 1 different"),
    ],
    ids=["shape", "twice", "outside", "switch", "names"],
)
def test_wrong_nics_are_named(nics, options, said):
    fabric = fb.topologies.rail_optimized(servers=2, radix=16)
    with pytest.raises(fb.ModelError, match=said):
        attach_servers(fabric, hardware.server("dgx-h100"), [list(row) for row in nics], **options)


def test_cables_faster_than_the_nic_are_refused_with_both_numbers():
    fabric = fb.topologies.rail_optimized(2, radix=32, capacity="400Gb/s")
    nics, server = fabric.hosts.reshape(2, 8), hardware.server("dgx-a100")
    with pytest.raises(fb.ModelError) as error:
        attach_servers(fabric, server, nics)
    for said in ("16 NICs carry up to 400Gb/s", "'cx6' of a 'dgx-a100' has 200Gb/s", "'cx7'"):
        assert said in str(error.value)
    other = attach_servers(fabric, server, nics, nic=hardware.nic("cx7"))
    assert other.labels.about["nic"] == "cx7"
    assert "nic_cables" not in other.labels.about


def test_cables_slower_than_the_nic_are_said():
    fabric = fb.topologies.rail_optimized(2, radix=32, capacity="200Gb/s")
    net = attach_servers(fabric, hardware.server("dgx-h100"), fabric.hosts.reshape(2, 8))
    assert net.labels.about["nic_cables"] == "200Gb/s"


def test_a_nic_with_a_cable_in_each_of_two_planes_has_one_port_for_both():
    net = fb.topologies.cluster("dgx-b300-spectrumx", su=1)
    assert "nic_cables" not in net.labels.about


def test_a_nic_that_the_catalogue_lacks_has_to_be_given():
    fabric = fb.topologies.rail_optimized(2, radix=32)
    server = dataclasses.replace(hardware.server("dgx-h100"), nic="mine")
    nics = fabric.hosts.reshape(2, 8)
    with pytest.raises(fb.ModelError, match=r"Give `nic`, such as `hardware.nic\('mine'"):
        attach_servers(fabric, server, nics)
    assert (
        attach_servers(fabric, server, nics, nic=hardware.nic("cx7")).labels.about["nic"] == "cx7"
    )


def test_what_a_server_has_already_is_no_nic_of_another():
    net = with_servers("dgx-h100", servers=1)
    with pytest.raises(fb.ModelError, match=r"NICs that no server has, but 8 .* 'server0-gpu0'"):
        attach_servers(net, hardware.server("dgx-h100"), [list(range(8))])


def test_names_that_the_fabric_has_as_ids_are_refused(tmp_path):
    file = tmp_path / "graph.json"
    ids = ["s", *(f"n{i}" for i in range(7)), "box-gpu0"]
    nodes = [{"id": name, "kind": "nic" if name != "s" else "leaf"} for name in ids]
    links = [{"source": name, "target": "s", "capacity": "1Gb/s"} for name in ids[1:]]
    file.write_text(json.dumps({"nodes": nodes, "links": links}))
    read = readers.read(file).network
    nics = [[read.labels.node(name) for name in ids[1:]]]
    with pytest.raises(fb.ModelError, match="'box-gpu0'"):
        attach_servers(read, hardware.server("dgx-h100"), nics, names=["box"])
