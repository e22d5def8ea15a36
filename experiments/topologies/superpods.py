"""NVIDIA SuperPODs: every row of their tables, from the clusters as we build them."""

import functools

import numpy as np

import fabric as fb
from experiments.topologies.answers import (
    ARITHMETIC,
    BUILT,
    Answers,
    cables,
    carried,
    kinds,
    nic,
    per_pair,
    ports,
    way,
)
from experiments.topologies.published import Entry
from fabric import hardware, topologies
from fabric.topologies import cluster

GB, TB = 1e9, 1e12


def answer(entry: Entry, smoke: bool) -> Answers:
    """Return what we make of an entry of this family."""
    found = Answers()
    name, su = entry.name, int(entry.params.get("su", 0))
    if name == "superpod_16su_canonical_3tier_paths":
        _canonical(found)
    elif name == "superpod_gb200_su":
        _gb200(found, entry)
    elif name.startswith("superpod_h100_1024"):
        _full(found)
    elif name.startswith("superpod_h100"):
        _table_4(found, su)
    elif name.startswith("superpod_b200"):
        _large(found, su, smoke)
    elif name.startswith("superpod_b300_spectrumx"):
        _planes(found, su)
    elif name.startswith("superpod_b300_xdr"):
        _xdr(found, su)
    elif name.startswith("superpod_a100"):
        _a100(found, su)
    return found


def _table_4(found: Answers, su: int) -> None:
    net = cluster("dgx-h100", nodes=32 * su - 1)
    have, tiers = kinds(net), cables(net)
    up, radix = ports(net, "leaf", "leaf-spine"), hardware.switch("qm9700").ports
    manager = int(net.labels.about["manager_cables"])
    same_rail = way(net, nic(net, 0), nic(net, 1))
    other_rail = way(net, nic(net, 0), nic(net, 1, 1))
    leaf, spine = net.labels.is_kind("leaf"), net.labels.is_kind("spine")
    found.put(
        BUILT,
        nodes=_servers(net), gpus=have["gpu"], nics=have["nic"], leaf=have["leaf"],
        spine=have["spine"], cables_compute_and_ufm=tiers["host"] + manager,
        cables_spine_leaf=tiers["leaf-spine"],
        cables_per_leaf_spine_pair=per_pair(net, "leaf-spine"),
        spine_ports_used=ports(net, "spine"), leaf_up_to_down_ratio=up / (radix - up),
        uplink_capacity_one_way_GBps=carried(net, leaf, spine) / GB,
        switches_same_node=way(net, *net.hosts[:2].tolist())[1],
        switches_same_rail_same_su=same_rail[1], links_same_rail_same_su=same_rail[0],
        switches_diff_rail_same_su=other_rail[1], links_diff_rail_same_su=other_rail[0],
        ecmp_spines=other_rail[2], ecmp_cable_level_paths=other_rail[3],
    )  # fmt: skip
    if su > 1:
        far = way(net, nic(net, 0), nic(net, 32))
        found.put(BUILT, switches_same_rail_diff_su=far[1], links_same_rail_diff_su=far[0])


def _full(found: Answers) -> None:
    net = cluster("dgx-h100", nodes=128)
    have, tiers, labels = kinds(net), cables(net), net.labels
    leaf, spine, adapter = (labels.is_kind(kind) for kind in ("leaf", "spine", "nic"))
    server, unit = labels.tags["server"], labels.tags["unit"]
    half = topologies.bisection(net, samples=0).capacity / TB
    far = way(net, nic(net, 0), nic(net, 1, 1))
    found.put(
        BUILT,
        nodes=_servers(net), gpus=have["gpu"], leaf=have["leaf"], spine=have["spine"],
        node_leaf_cables=tiers["host"], leaf_spine_cables=tiers["leaf-spine"],
        nvswitch_chips=have["nvswitch"],
        total_switches=have["leaf"] + have["spine"] + have["nvswitch"],
        node_egress_one_way_GBps=carried(net, adapter & (server == 0), leaf) / GB,
        su_egress_one_way_TBps=carried(net, leaf & (unit == 0), spine) / TB,
        spine_tier_port_capacity_one_way_TBps=have["spine"]
        * hardware.switch("qm9700").capacity / TB,
        bisection_one_way_TBps=half, bisection_both_ways_TBps=2 * half,
        ecmp_spines=far[2], ecmp_cable_level_paths=far[3],
    )  # fmt: skip


def _large(found: Answers, su: int, smoke: bool) -> None:
    if smoke and su > 16:
        keys = (
            "nodes", "gpus", "leaf", "spine", "core", "cables_node_leaf", "cables_leaf_spine",
            "cables_spine_core", "tiers", "bisection_one_way_TBps", "switches_diff_pod",
            "links_diff_pod",
        )  # fmt: skip
        found.skip("left out of a smoke run", *keys)
        return
    net = cluster("dgx-b200", su=su)
    have, tiers = kinds(net), cables(net)
    layers = sum(have[kind] > 0 for kind in ("leaf", "spine", "core"))
    found.put(
        BUILT,
        nodes=_servers(net), gpus=have["gpu"], leaf=have["leaf"], spine=have["spine"],
        core=have["core"], cables_node_leaf=tiers["host"], cables_leaf_spine=tiers["leaf-spine"],
        cables_spine_core=tiers["spine-core"], tiers=layers,
        bisection_one_way_TBps=topologies.bisection(net, samples=0).capacity / TB,
    )  # fmt: skip
    if layers == 3:
        far = way(net, nic(net, 0), nic(net, 4 * 32, 1))
        found.put(BUILT, switches_diff_pod=far[1], links_diff_pod=far[0])
        return
    alone = topologies.rail_optimized(servers=32 * su)
    found.put(
        BUILT,
        max_switches=topologies.hops(alone).switches,
        cables_per_leaf_spine_pair=per_pair(net, "leaf-spine"),
    )


def _canonical(found: Answers) -> None:
    net = cluster("dgx-b200", su=16)
    near, far = way(net, nic(net, 0), nic(net, 1, 1)), way(net, nic(net, 0), nic(net, 4 * 32, 1))
    found.put(
        BUILT,
        core_ports_used=ports(net, "core"), ecmp_switch_level_other_pod=far[2],
        ecmp_cable_level_other_pod=far[3], ecmp_same_pod=near[2], switches_other_pod=far[1],
    )  # fmt: skip


def _planes(found: Answers, su: int) -> None:
    net = cluster("dgx-b300-spectrumx", su=su)
    have, tiers, labels = kinds(net), cables(net), net.labels
    bought = topologies.bill(net)
    first = labels.tags["plane"] == 0
    leaf, spine, adapter = (labels.is_kind(kind) for kind in ("leaf", "spine", "nic"))
    rate = carried(net, adapter, leaf)
    left = carried(net.without(nodes=first), adapter, leaf)
    found.put(
        BUILT,
        nodes=_servers(net), gpus=have["gpu"], leaf=have["leaf"], spine=have["spine"],
        cables_node_leaf=bought.count("cable", "host"),
        cables_leaf_spine=bought.count("cable", "leaf-spine"),
        leaf_per_plane=int((leaf & first).sum()), spine_per_plane=int((spine & first).sum()),
        links_400g_node_leaf=tiers["host"], links_400g_leaf_spine=tiers["leaf-spine"],
        links_400g_per_leaf_spine_pair_same_plane=per_pair(net, "leaf-spine"),
        bandwidth_per_gpu_one_way_GBps=rate / have["gpu"] / GB,
        bandwidth_after_one_plane_loss=left / rate,
    )  # fmt: skip


def _xdr(found: Answers, su: int) -> None:
    net = cluster("dgx-b300-xdr", su=su)
    have, tiers = kinds(net), cables(net)
    found.put(
        BUILT,
        nodes=_servers(net), gpus=have["gpu"], leaf=have["leaf"], spine=have["spine"],
        cables_node_leaf=tiers["host"], cables_leaf_spine=tiers["leaf-spine"],
        cables_per_leaf_spine_pair=per_pair(net, "leaf-spine"),
        spine_ports_used=ports(net, "spine"),
    )  # fmt: skip


def _a100(found: Answers, su: int) -> None:
    net = cluster("dgx-a100", su=su)
    have, tiers = kinds(net), cables(net)
    found.put(
        BUILT,
        nodes=_servers(net), gpus=have["gpu"], leaf=have["leaf"], spine=have["spine"],
        core=have["core"], leaf_uplinks_total=tiers["leaf-spine"],
        cables_leaf_spine=tiers["leaf-spine"], cables_spine_core=tiers["spine-core"],
        spine_down_ports=ports(net, "spine", "leaf-spine"),
        total_switches=have["leaf"] + have["spine"] + have["core"],
        bisection_one_way_TBps=topologies.bisection(net, samples=0).capacity / TB,
    )  # fmt: skip


def _gb200(found: Answers, entry: Entry) -> None:
    racks = entry.params["racks_per_su"]
    net = cluster("gb200-nvl72", su=1, leaves=24, spines=12)
    rack = kinds(net)["gpu"] // racks
    labels = net.labels
    adapter = labels.is_kind("nic") & (labels.tags["server"] == 0)
    out = carried(net, adapter, labels.is_kind("leaf"))
    found.put(
        BUILT,
        gpus_per_su=rack * racks, nics_per_rack=int(adapter.sum()),
        rack_ib_egress_one_way_TBps=out / TB, rack_ib_egress_Tbps=8 * out / TB,
    )  # fmt: skip
    found.put(
        f"{ARITHMETIC} on the rack that was built, for the switches of larger ones are unknown",
        **{f"gpus_{su}su": rack * racks * su for su in (2, 4, 8, 16)}, racks_16su=16 * racks,
    )  # fmt: skip


@functools.cache
def _spines(name: str, su: int) -> int:
    net = cluster(name, su=su)
    spine = net.labels.is_kind("spine")
    return int((spine & (net.labels.tags["plane"] == 0)).sum() if "plane" in net.labels.tags
               else spine.sum())  # fmt: skip


def rule(entry: Entry, smoke: bool) -> Answers:
    """Return the numbers of spines that the sizing rule gives."""
    found = Answers()
    planes = (1, 2, 4, 8, 16)
    found.put(
        BUILT,
        h100_su1_to_4=[_spines("dgx-h100", su) for su in (1, 2, 3, 4)],
        b200_su8=_spines("dgx-b200", 8),
        xdr_su_1_2_4_8_18=[_spines("dgx-b300-xdr", su) for su in (1, 2, 4, 8, 18)],
        b300_per_plane_su_1_2_4_8_16=[_spines("dgx-b300-spectrumx", su) for su in planes],
        a100_su_1_2_4=[_spines("dgx-a100", su) for su in (1, 2, 4)],
    )
    ceil = lambda leaves, up, radix: -(-leaves * up // radix)
    found.put(
        f"{ARITHMETIC}: leaves x uplinks / radix, rounded up",
        naive_ceil_xdr_4su=ceil(4 * 8, 72, 144), naive_ceil_h100_3su=ceil(3 * 8, 32, 64),
    )  # fmt: skip
    return found


def _servers(net: fb.Network) -> int:
    return len(np.unique(net.labels.tags["server"][net.hosts]))
