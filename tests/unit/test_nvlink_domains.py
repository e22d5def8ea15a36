"""What NVLink domains of 8 to 256 GPUs promise: published counts, cuts, ways and rates."""

import dataclasses
import json

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

import fabric as fb
from fabric import hardware, routing
from fabric.topologies import attach_servers

DOMAINS = {
    "dgx_a100_node": "dgx-a100", "dgx_h100_node": "dgx-h100", "b200_8gpu_node": "dgx-b200",
    "gh200_nvl32": "gh200-nvl32", "gb200_nvl72": "gb200-nvl72",
    "nvlink_switch_system_256_h100": "dgx-h100-nvl256",
}  # fmt: skip
GB = 1e9


def domain(name, servers=1):
    server = hardware.server(name)
    rate = hardware.nic(server.nic).rate.value
    nics = fb.topologies.single_switch(servers * server.n_nics, capacity=rate)
    return attach_servers(nics, server, np.arange(len(nics.hosts)).reshape(servers, -1))


@pytest.fixture(scope="module")
def nvl256():
    return domain("dgx-h100-nvl256")


@pytest.fixture(scope="module")
def published(shared):
    entries = json.loads((shared / "validation" / "topologies.json").read_text())
    return {e["name"]: e["expected"] for e in entries if e["kind"] == "node"}


def nvlink(net):
    return np.flatnonzero(net.labels.is_tier("nvlink"))


def cut(net, here, there):
    """Least GB/s one way over NVLink that parts one half of the GPUs from the other."""
    labels, n = net.labels, net.n_nodes
    links = nvlink(net)
    gigabytes = (np.asarray(net.capacity)[links] / GB).astype(np.int32)
    endless = np.full(len(here), 10**6, np.int32)
    rows = np.concatenate([labels.src[links], np.full(len(here), n), there])
    columns = np.concatenate([labels.dst[links], here, np.full(len(there), n + 1)])
    values = np.concatenate([gigabytes, endless, endless])
    graph = csr_array((values, (rows, columns)), shape=(n + 2, n + 2))
    return maximum_flow(graph.tocsr(), n, n + 1).flow_value


@pytest.mark.parametrize("row", DOMAINS)
def test_a_half_of_the_gpus_reaches_the_other_at_the_published_bisection(row, published):
    net = domain(DOMAINS[row])
    want = published[row].get("bisection_one_way_TBps")
    if want is None:  # of the DGX B200: 8 GPUs of 900 GB/s
        want = 8 * 900 / 2 / 1000
    half = len(net.hosts) // 2
    assert cut(net, net.hosts[:half], net.hosts[half:]) == pytest.approx(want * 1000, rel=1e-12)


def test_the_domain_of_256_has_its_published_counts(nvl256, published):
    want = published["nvlink_switch_system_256_h100"]
    labels, links = nvl256.labels, nvlink(nvl256)
    chip, gpu = labels.is_kind("nvswitch"), labels.is_kind("gpu")
    count = np.asarray(nvl256.capacity)[links] / (25 * GB)
    of_gpu = np.zeros(nvl256.n_nodes, bool)
    of_gpu[labels.dst[links[gpu[labels.src[links]]]]] = True
    assert int(gpu.sum()) == want["gpus"]
    assert int((chip & of_gpu).sum()) == want["l1_chips"]
    assert int((chip & ~of_gpu).sum()) == want["l2_chips"]
    up = of_gpu[labels.src[links]] & (chip & ~of_gpu)[labels.dst[links]]
    assert count[up].sum() == want["uplinks"]
    assert count[up].sum() * 25 / 1000 == want["uplink_capacity_one_way_TBps"]
    down = gpu[labels.src[links]]
    egress = count[down].sum() * 25 / 1000
    assert egress == want["sum_gpu_egress_one_way_TBps"]
    assert egress / want["uplink_capacity_one_way_TBps"] == want["taper"]
    ports = np.bincount(labels.src[links], count, nvl256.n_nodes)
    np.testing.assert_array_equal(ports[chip & ~of_gpu], 64)
    np.testing.assert_array_equal(ports[chip & of_gpu], np.tile([60, 48, 48, 60], 32))


def test_ports_of_the_chips_of_a_board_are_as_published(nvl256, published):
    want = published["dgx_h100_node"]
    server = hardware.server("dgx-h100-nvl256")
    assert [8 * links for links in server.chips] == want["gpu_facing_ports_per_chip"]
    assert list(server.uplinks) == want["network_ports_per_chip"]
    assert sum(server.uplinks) == want["external_nvlinks"]


def test_across_boards_the_way_is_three_chips_and_on_a_board_one(nvl256):
    flows = fb.Flows(nvl256.hosts[[0, 0]], nvl256.hosts[[1, 255]])
    routes = routing.spray(nvl256, flows)
    stages = np.bincount(np.asarray(routes.hop_flow))
    assert stages.tolist() == [2, 4]
    labels, links = nvl256.labels, np.asarray(routes.part_link)
    assert {labels.tiers[t] for t in labels.tier_of[links]} == {"nvlink"}


def test_a_gpu_sends_450_on_its_board_and_225_across_under_uniform_load(nvl256, published):
    want = published["nvlink_switch_system_256_h100"]
    gpu = nvl256.hosts.reshape(32, 8)
    # Shift by one GPU on the board, and by one board: every GPU sends and receives once.
    for to, rate in (
        (np.roll(gpu, 1, axis=1), published["dgx_h100_node"]["gpu_egress_one_way_GBps"]),
        (np.roll(gpu, 1, axis=0), want["cross_node_per_gpu_one_way_GBps"]),
    ):
        routes = routing.spray(nvl256, fb.Flows(gpu.ravel(), to.ravel()))
        rates = fb.max_min_rates(nvl256, routes).rates
        np.testing.assert_allclose(np.asarray(rates) / GB, rate, rtol=1e-12)


def test_a_lone_pair_of_boards_shares_the_uplinks_of_one(nvl256):
    gpu = nvl256.hosts.reshape(32, 8)
    routes = routing.spray(nvl256, fb.Flows(gpu[3], gpu[9]))
    # 72 uplinks of 25 GB/s for eight senders.
    rates = fb.max_min_rates(nvl256, routes).rates
    np.testing.assert_allclose(rates, 72 * 25 * GB / 8, rtol=1e-12)


def test_traffic_between_two_domains_takes_the_nics():
    net = domain("dgx-h100-nvl256", servers=2)
    gpu = net.hosts.reshape(2, 256)
    routes = routing.spray(net, fb.Flows(gpu[0, [0, 100]], gpu[1, [0, 100]]))
    np.testing.assert_allclose(fb.max_min_rates(net, routes).rates, 50 * GB, rtol=1e-12)


def test_boards_are_repeated_from_what_the_entry_says_of_one():
    server, one = hardware.server("dgx-h100-nvl256"), hardware.server("dgx-h100")
    assert (server.n_gpus, server.n_nics, server.n_chips) == (256, 256, 164)
    assert server.pcie_of_gpu == tuple(range(256))
    assert server.socket_of_pcie == tuple(2 * b + s for b in range(32) for s in one.socket_of_pcie)
    assert server.links_per_gpu == one.links_per_gpu


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"boards": 3}, r"`boards=3` of server .* does not divide its 256 GPUs"),
        ({"uplinks": (20, 20)}, r"`uplinks` .* needs 4 entries, .* but has 2"),
        ({"top_chips": 35}, r"`top_chips=35` .* does not divide the 72 uplinks of a board"),
        ({"uplinks": (), "top_chips": 0}, r"`boards` .* need `uplinks` and `top_chips`"),
    ],
    ids=["boards", "uplinks", "top-chips", "alone"],
)  # fmt: skip
def test_boards_that_do_not_fit_together_are_refused(change, said):
    with pytest.raises(fb.ModelError, match=said):
        dataclasses.replace(hardware.server("dgx-h100-nvl256"), **change)
