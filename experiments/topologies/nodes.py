"""Servers and NVLink domains: links, paths, cuts and rates of what we build of them."""

import functools

import numpy as np

import fabric as fb
from experiments.topologies.answers import (
    ARITHMETIC,
    BUILT,
    Answers,
    carried,
    kinds,
    way,
    without_tiers,
)
from experiments.topologies.published import Entry
from fabric import hardware, topologies
from fabric.hardware import Server
from fabric.network import Flows, Network

GB, TB = 1e9, 1e12


def answer(entry: Entry, smoke: bool) -> Answers:
    """Return what we make of an entry of this family."""
    found = Answers()
    rules = {
        "dgx_a100_node": _a100, "dgx_h100_node": _h100, "h100_azure_ndv5_pcie": _azure,
        "h800_node": _h800, "b200_8gpu_node": _b200, "gb200_nvl72": _nvl72,
        "gh200_nvl32": _nvl32,
        "nvlink_switch_system_256_h100": functools.partial(_domain, smoke=smoke),
    }  # fmt: skip
    if entry.name in rules:
        rules[entry.name](found)
    elif entry.name == "nccl_link_constants":
        _nccl(found, entry)
    else:
        found.skip(
            "there is no builder for it: a source for its wiring is missing", *entry.expected
        )
    return found


@functools.cache
def alone(name: str) -> tuple[Server, Network]:
    """Return a server of the catalogue and it alone, its NICs on one switch."""
    server = hardware.server(name)
    fabric = topologies.single_switch(server.n_nics, capacity=hardware.nic(server.nic).rate.value)
    return server, topologies.attach_servers(fabric, server, fabric.hosts[None, :])


def rates(net: Network, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Return byte/s of flows that run at once, over equally split shortest ways."""
    routes = fb.routing.spray(net, Flows(src, dst))
    return np.asarray(routes.per_flow(np.asarray(fb.max_min_rates(net, routes).rates)))


def _nvlink_cut(net: Network) -> float:
    """Return byte/s of the least cut found between halves of the GPUs, over NVLink only."""
    return topologies.bisection(without_tiers(net, "pcie", "socket"), samples=8).capacity


def _egress(net: Network) -> float:
    """Return byte/s of the NVLinks of the first GPU, one way."""
    gpu = np.arange(net.n_nodes) == net.hosts[0]
    return carried(net, gpu, net.labels.is_kind("nvswitch"))


def _adapters(net: Network) -> float:
    return carried(net, _nics(net), net.labels.is_kind("switch"))


def _nics(net: Network) -> np.ndarray:
    labels = net.labels
    return (labels.tags["server"] >= 0) & ~labels.is_kind("gpu", *topologies.INSIDE_KINDS)


def _a100(found: Answers) -> None:
    server, net = alone("dgx-a100")
    found.put(
        BUILT,
        gpu_egress_one_way_GBps=_egress(net) / GB, gpu_bidir_GBps=2 * _egress(net) / GB,
        chip_level_paths_gpu_pair=way(net, *net.hosts[:2].tolist())[2],
        bisection_one_way_TBps=_nvlink_cut(net) / TB, pcie_switches=kinds(net)["pcie-switch"],
        gpus_per_pcie_switch=_on_pcie(net, net.labels.is_kind("gpu")),
        nics_per_pcie_switch=_on_pcie(net, _nics(net)),
        node_nic_egress_one_way_GBps=_adapters(net) / GB,
    )  # fmt: skip
    (links,) = set(server.chips)
    found.put(
        f"{ARITHMETIC} on the NVLinks of the server's record",
        links_per_gpu_per_nvswitch=links, nvlinks_total=server.n_gpus * server.links_per_gpu,
        link_level_paths_gpu_pair=sum(n * n for n in server.chips),
    )  # fmt: skip
    found.skip(
        "of a virtual machine on such a server; our record has sockets, no NUMA domains",
        "numa_domains_ndv4",
    )


def _h100(found: Answers) -> None:
    server, net = alone("dgx-h100")
    domain, _ = alone("dgx-h100-nvl256")
    half = _nvlink_cut(net) / TB
    found.put(
        BUILT,
        gpu_egress_one_way_GBps=_egress(net) / GB, gpu_bidir_GBps=2 * _egress(net) / GB,
        chip_level_paths_gpu_pair=way(net, *net.hosts[:2].tolist())[2],
        sum_gpu_egress_one_way_TBps=carried(
            net, net.labels.is_kind("gpu"), net.labels.is_kind("nvswitch")
        ) / TB,
        bisection_one_way_TBps=half, bisection_both_ways_TBps=2 * half,
        node_nic_egress_one_way_GBps=_adapters(net) / GB,
    )  # fmt: skip
    chips = len(server.chips)
    found.put(
        f"{ARITHMETIC} on the NVLinks of the server's record",
        nvlinks_total=server.n_gpus * server.links_per_gpu,
        gpu_facing_ports_per_chip=[server.n_gpus * n for n in server.chips],
        network_ports_per_chip=list(domain.uplinks), external_nvlinks=sum(domain.uplinks),
        link_level_paths_gpu_pair=sum(n * n for n in server.chips),
        nvswitch_capacity_one_way_TBps_total=chips * hardware.switch("nvswitch3").capacity / TB,
    )  # fmt: skip


def _azure(found: Answers) -> None:
    server, net = alone("azure-ndv5")
    (per_socket,) = set(np.bincount(server.socket_of_pcie).tolist())
    found.put(
        BUILT,
        pcie_bridges=kinds(net)["pcie-switch"],
        gpus_per_bridge=_on_pcie(net, net.labels.is_kind("gpu")),
        nics_per_bridge=_on_pcie(net, _nics(net)), bridges_per_socket=per_socket,
    )  # fmt: skip
    found.put(
        f"{ARITHMETIC}: byte/s of an x16 slot over 16 lanes",
        pcie_gt_s=8 * server.pcie_rate.value / 16 / GB,
    )
    found.skip("a slot is given by its rate, without its lanes", "pcie_width")


def _h800(found: Answers) -> None:
    _, net = alone("hgx-h800")
    found.put(
        BUILT, gpu_egress_one_way_GBps=_egress(net) / GB, gpu_bidir_GBps=2 * _egress(net) / GB
    )
    found.skip(
        "a rate that its owners state", "effective_one_way_GBps", "nic_effective_one_way_GBps",
        "ratio",
    )  # fmt: skip


def _b200(found: Answers) -> None:
    server, net = alone("dgx-b200")
    (links,) = set(server.chips)
    found.put(
        BUILT,
        gpu_egress_one_way_GBps=_egress(net) / GB, links_per_gpu_per_nvswitch=links,
        node_nic_egress_one_way_GBps=_adapters(net) / GB,
    )  # fmt: skip


def _nvl72(found: Answers) -> None:
    server, net = alone("gb200-nvl72")
    (links,) = set(server.chips)
    total = server.n_gpus * server.links_per_gpu
    near = way(net, *net.hosts[:2].tolist())
    gpus, chips = net.labels.is_kind("gpu"), net.labels.is_kind("nvswitch")
    found.put(
        BUILT,
        nvswitch_chips=kinds(net)["nvswitch"], links_per_gpu_per_chip=links, nvlinks_total=total,
        gpu_egress_one_way_GBps=_egress(net) / GB, gpu_bidir_TBps=2 * _egress(net) / TB,
        aggregate_bidir_TBps=2 * carried(net, gpus, chips) / TB,
        bisection_one_way_TBps=_nvlink_cut(net) / TB, paths_gpu_pair=near[2],
        switch_hops=near[0] - 1,
    )  # fmt: skip
    found.put(f"{ARITHMETIC}: two lanes each way per NVLink, a pair each", diff_pairs=4 * total)


def _nvl32(found: Answers) -> None:
    server, net = alone("gh200-nvl32")
    (links,) = set(server.chips)
    found.put(
        BUILT,
        nvswitch_chips=kinds(net)["nvswitch"], links_per_gpu_per_chip=links,
        nvlinks_total=server.n_gpus * server.links_per_gpu,
        ports_used_per_chip=server.n_gpus * links, gpu_egress_one_way_GBps=_egress(net) / GB,
        bisection_one_way_TBps=_nvlink_cut(net) / TB,
    )  # fmt: skip


def _domain(found: Answers, smoke: bool) -> None:
    server, net = alone("dgx-h100-nvl256")
    labels, gpus = net.labels, net.hosts
    chip = labels.is_kind("nvswitch")
    from_gpu = np.zeros(net.n_nodes, bool)
    from_gpu[labels.dst[labels.is_kind("gpu")[labels.src]]] = True
    first, second = chip & from_gpu, chip & ~from_gpu
    up, out = carried(net, first, second), carried(net, labels.is_kind("gpu"), chip)
    half = _nvlink_cut(net) / TB
    cut = without_tiers(net, "pcie", "socket")
    link = server.link_rate.value
    found.put(
        BUILT,
        gpus=len(gpus), l1_chips=int(first.sum()), l2_chips=int(second.sum()),
        uplinks=round(up / link), taper=out / up, sum_gpu_egress_one_way_TBps=out / TB,
        uplink_capacity_one_way_TBps=up / TB, bisection_one_way_TBps=half,
        bisection_both_ways_TBps=2 * half,
        switch_chips_cross_node=way(net, int(gpus[0]), int(gpus[-1]))[0] - 1,
        switch_chips_same_node=way(net, int(gpus[0]), int(gpus[1]))[0] - 1,
    )  # fmt: skip
    if smoke:  # routing and solving take a hundred times as long as the rest
        found.skip(
            "left out of a smoke run", "allreduce_busbw_GBps", "cross_node_per_gpu_one_way_GBps"
        )
    else:
        ring = rates(cut, gpus, np.roll(gpus, -1)).min()
        across = rates(cut, gpus, np.roll(gpus, len(gpus) // 2)).min()
        found.put(
            BUILT, allreduce_busbw_GBps=float(ring) / GB,
            cross_node_per_gpu_one_way_GBps=float(across) / GB,
        )  # fmt: skip
    ports = int(second.sum()) * hardware.switch("nvswitch3").ports
    adapters = len(gpus) * hardware.nic("cx6").rate.value
    found.put(
        f"{ARITHMETIC}: ports of the upper chips by 128; an HDR port per GPU",
        l2_switch_boxes_128port=ports // 128, hdr_ib_256gpu_TBps=adapters / TB,
        ratio_vs_hdr_ib_256gpu=up / adapters,
    )  # fmt: skip


def _nccl(found: Answers, entry: Entry) -> None:
    links = {"SM80": "dgx-a100", "SM90": "dgx-h100", "SM100": "dgx-b200"}
    for constant, name in links.items():
        count = hardware.server(name).links_per_gpu
        key = f"derived_{name.partition('-')[2]}_GBps"
        found.put(
            f"{ARITHMETIC}: NVLinks of our server by the constant",
            **{key: count * entry.expected[constant]},
        )
    constants = [key for key in entry.expected if not key.startswith("derived")]
    found.skip("a constant in the source of NCCL, no property of a topology", *constants)


def _on_pcie(net: Network, nodes: np.ndarray) -> int:
    """Return how many of these nodes hang on every PCIe switch."""
    labels = net.labels
    links = nodes[labels.src] & labels.is_kind("pcie-switch")[labels.dst]
    (count,) = set(np.bincount(labels.dst[links])[np.flatnonzero(labels.is_kind("pcie-switch"))])
    return int(count)
