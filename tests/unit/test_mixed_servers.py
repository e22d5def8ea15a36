"""What a fabric with servers of several kinds promises: numbering, facts, routes and rates."""

import numpy as np
import pytest

import fabric as fb
from fabric import hardware, routing
from fabric.network import Blueprint
from fabric.topologies import attach_servers, bill, leaf_spine, rail_optimized, sizes

GB = 1e9
A100, H100 = hardware.server("dgx-a100"), hardware.server("dgx-h100")


def mixed():
    """Two DGX A100 at leaves 0 and 1, two DGX H100 at leaves 2 and 3, the fabric of four spines."""
    fabric = leaf_spine(
        4, 4, 8, host_capacity=["200Gb/s"] * 2 + ["400Gb/s"] * 2, uplink_capacity="800Gb/s"
    )
    nics = fabric.hosts.reshape(4, 8)
    first = attach_servers(fabric, A100, nics[:2])
    free = np.flatnonzero(first.labels.is_kind("host") & (first.labels.tags["server"] < 0))
    return first, attach_servers(first, H100, free.reshape(2, 8))


def rates(net, src, dst):
    routes = routing.spray(net, fb.Flows(np.asarray(src), np.asarray(dst)))
    return np.asarray(fb.max_min_rates(net, routes).rates) / GB


def test_servers_are_numbered_on_and_old_ones_keep_their_nodes():
    first, net = mixed()
    labels = net.labels
    np.testing.assert_array_equal(net.hosts[:16], first.hosts)
    server = labels.tags["server"]
    assert server[net.hosts].tolist() == np.repeat(np.arange(4), 8).tolist()
    names = list(labels.names)
    assert len(set(names)) == len(names) == net.n_nodes
    assert [names[gpu] for gpu in net.hosts[[0, 15, 16, 31]]] == [
        "server0-gpu0", "server1-gpu7", "server2-gpu0", "server3-gpu7",
    ]  # fmt: skip
    assert {"server1-nvswitch5", "server2-nvswitch3", "server3-pcie7"} <= set(names)
    nic = labels.tags["nic"][net.hosts]
    np.testing.assert_array_equal(labels.is_kind("host")[nic], True)
    np.testing.assert_array_equal(server[nic], server[net.hosts])
    np.testing.assert_array_equal(labels.tags["leaf"][net.hosts], server[net.hosts])


def test_what_was_there_keeps_its_links_and_its_order():
    first, net = mixed()
    a, b = first.labels, net.labels
    # By name of both ends, tier and capacity; the new links are those of the new servers.
    table = lambda x: [
        (x.labels.names[s], x.labels.names[d], x.labels.tiers[t], c)
        for s, d, t, c in zip(
            x.labels.src, x.labels.dst, x.labels.tier_of, np.asarray(x.capacity).tolist(),
            strict=True,
        )
    ]  # fmt: skip
    of_new = lambda row: any(end.startswith(("server2", "server3")) for end in row[:2])
    assert [row for row in table(net) if not of_new(row)] == table(first)
    np.testing.assert_array_equal(b.src[::2], b.dst[1::2])
    np.testing.assert_array_equal(b.cable_of, np.repeat(np.arange(net.n_links // 2), 2))
    assert a.source in b.source


def test_slots_tell_the_parts_of_a_server_apart():
    _, net = mixed()
    tags = net.labels.tags
    for server, record in enumerate([A100, A100, H100, H100]):
        slots = np.sort(tags["slot"][tags["server"] == server])
        parts = 8 + len(record.chips) + record.n_pcie + record.n_sockets + 8
        np.testing.assert_array_equal(slots, np.arange(parts))


def test_facts_name_both_kinds():
    _, net = mixed()
    about = net.labels.about
    assert about["server"] == "dgx-a100 and dgx-h100"
    assert about["gpu"] == "a100-sxm and h100-sxm"
    assert about["nic"] == "cx6 and cx7"
    assert about["gpudirect"] == "yes"
    assert net.labels.source.startswith("2 x dgx-h100 on 2 x dgx-a100 on leaf_spine(")
    assert bill(net).count("gpu") == 32


def modules(net):
    items = bill(net).network
    return {i.model: i.count for i in items if (i.part, i.where) == ("transceiver", "server")}


@pytest.mark.parametrize("first", [A100, H100], ids=["a100-first", "h100-first"])
def test_modules_are_counted_by_the_kind_of_each_server(first):
    fabric = leaf_spine(2, 2, 8)
    alone = attach_servers(fabric, H100, fabric.hosts.reshape(2, 8))
    assert modules(alone) == {"transceiver 2x400Gb/s": 8}
    second = H100 if first is A100 else A100
    rates = ["200Gb/s" if server is A100 else "400Gb/s" for server in (first, second)]
    fabric = leaf_spine(3, 2, 8, host_capacity=[*rates, rates[0]], uplink_capacity="800Gb/s")
    net = attach_servers(fabric, first, fabric.hosts[:8][None])
    for server in (second, first):
        free = np.flatnonzero(net.labels.is_kind("host") & (net.labels.tags["server"] < 0))
        net = attach_servers(net, server, free[:8][None])
    n = {server.name: 1 + (server is first) for server in (A100, H100)}
    assert modules(net) == {
        "transceiver 200Gb/s": 8 * n["dgx-a100"], "transceiver 2x400Gb/s": 4 * n["dgx-h100"],
    }  # fmt: skip
    (said,) = (said for said in bill(net).assumed if "NICs of a" in said)
    assert said == "2 ports of the NICs of a dgx-h100 in one transceiver (assumed)"


def test_more_servers_of_one_kind_leave_the_facts_as_they_are():
    fabric = rail_optimized(4, radix=32)
    nics = fabric.hosts.reshape(4, 8)
    half = attach_servers(fabric, H100, nics[:2])
    # GPUs, chips, PCIe switches and sockets of two servers stand in front of the NICs now.
    whole = attach_servers(half, H100, nics[2:] + 2 * (8 + 4 + 8 + 2))
    at_once = attach_servers(fabric, H100, nics)
    assert whole.labels.about == at_once.labels.about
    assert sorted(whole.labels.names) == sorted(at_once.labels.names)
    assert whole.n_links == at_once.n_links
    np.testing.assert_array_equal(
        whole.labels.tags["rail"][whole.hosts], at_once.labels.tags["rail"][at_once.hosts]
    )


def test_rates_inside_and_across_are_those_of_the_slower_end():
    _, net = mixed()
    gpu = net.hosts.reshape(4, 8)
    # Inside: 12 NVLinks of 25 GB/s, and 18.
    assert rates(net, [gpu[0, 0], gpu[2, 0]], [gpu[0, 1], gpu[2, 1]]).tolist() == [300.0, 450.0]
    # A100 to A100 and to H100: 25 GB/s of its NIC. H100 to H100: 50.
    found = rates(net, [gpu[0, 0], gpu[1, 1], gpu[2, 2]], [gpu[1, 0], gpu[3, 1], gpu[3, 2]])
    np.testing.assert_allclose(found, [25.0, 25.0, 50.0], rtol=1e-12)
    # Two H100 into one A100 share its NIC; the one that also sends to an H100 has the rest there.
    found = rates(net, [gpu[2, 0], gpu[3, 0], gpu[2, 0]], [gpu[0, 0], gpu[0, 0], gpu[3, 0]])
    np.testing.assert_allclose(found, [12.5, 12.5, 37.5], rtol=1e-12)


def test_all_gpus_at_once_fill_their_own_nics():
    _, net = mixed()
    gpu = net.hosts.reshape(4, 8)
    # Each server to the next of its kind; 8 NICs of 400 Gb/s are as much as 4 uplinks of 800.
    found = rates(net, gpu.ravel(), gpu[[1, 0, 3, 2]].ravel())
    np.testing.assert_allclose(found, np.repeat([25.0, 25.0, 50.0, 50.0], 8), rtol=1e-12)


def test_traffic_is_forwarded_to_the_other_rail_in_either_kind():
    fabric = rail_optimized(4, radix=32, capacity="200Gb/s")
    nics = fabric.hosts.reshape(4, 8)
    half = attach_servers(fabric, A100, nics[:2])
    free = np.flatnonzero(half.labels.is_kind("nic") & (half.labels.tags["server"] < 0))
    net = attach_servers(half, H100, free.reshape(2, 8))
    gpu = net.hosts.reshape(4, 8)
    flows = fb.Flows(gpu[[0, 2], [0, 0]], gpu[[2, 0], [5, 5]])
    routes = routing.ecmp(net, flows, rails="forward")
    labels = net.labels
    for flow in (0, 1):
        hops = np.asarray(routes.hop_bundle)[np.asarray(routes.hop_flow) == flow]
        links = np.asarray(routes.part_link)[np.isin(np.asarray(routes.part_bundle), hops)]
        crossed = {labels.tiers[tier] for tier in labels.tier_of[links]}
        assert {"nvlink", "pcie", "host"} <= crossed
        assert "leaf-spine" not in crossed  # rail 5 of both servers meets one leaf


def test_staging_through_sockets_is_kept_apart_by_kind():
    fabric = leaf_spine(2, 2, 8, host_capacity="200Gb/s+400Gb/s")
    half = attach_servers(fabric, A100, fabric.hosts[:8][None], gpudirect=False)
    free = np.flatnonzero(half.labels.is_kind("host") & (half.labels.tags["server"] < 0))
    net = attach_servers(half, H100, free[None])
    staging = net.labels.tags["staging"]
    assert (staging[net.hosts[8:]] == -1).all()
    socket = staging[net.hosts[:8]]
    assert net.labels.is_kind("socket")[socket].all()
    assert (net.labels.tags["server"][socket] == 0).all()
    again = attach_servers(fabric, H100, fabric.hosts[8:][None], gpudirect=False)
    free = np.flatnonzero(again.labels.is_kind("host") & (again.labels.tags["server"] < 0))
    both = attach_servers(again, A100, free[None], gpudirect=False)
    socket = both.labels.tags["staging"][both.hosts]
    assert both.labels.is_kind("socket")[socket].all()
    np.testing.assert_array_equal(
        both.labels.tags["server"][socket], both.labels.tags["server"][both.hosts]
    )
    assert both.labels.about["gpudirect"] == "no"
    assert net.labels.about["gpudirect"] == "no and yes"


def test_gpus_that_nobody_attached_are_refused_with_what_they_lack():
    plan = Blueprint()
    gpu, switch = plan.nodes("gpu", "gpu{}", (8,)), plan.nodes("leaf", "leaf", (1,))
    plan.cables("host", gpu, switch, 50 * GB)
    with pytest.raises(fb.ModelError, match=r"has GPUs already, but they lack the tags 'server'"):
        attach_servers(plan.network("plain"), H100, np.arange(8)[None])


# Hosts of several speeds.


def test_each_leaf_has_hosts_of_its_own_speed():
    net = leaf_spine(3, 2, [2, 1, 4], host_capacity="100Gb/s+200Gb/s+400Gb/s")
    host = net.labels.is_tier("host")
    leaf = net.labels.tags["leaf"][net.labels.src[host]]
    np.testing.assert_array_equal(
        np.asarray(net.capacity)[host], np.array([12.5, 25.0, 50.0])[leaf] * GB
    )
    assert "host_capacity=100Gb/s+200Gb/s+400Gb/s" in net.labels.source
    assert sizes("leaf_spine", leaves=3, spines=2, hosts_per_leaf=[2, 1, 4]).ports["leaf"] == 6


def test_a_speed_too_few_is_refused():
    with pytest.raises(fb.ModelError, match=r"`host_capacity` has 2 entries for 3 leaves"):
        leaf_spine(3, 2, 4, host_capacity=["100Gb/s", "200Gb/s"])
