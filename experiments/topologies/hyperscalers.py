"""Published designs of large operators, from the builders that wire such a fabric."""

import itertools
from collections.abc import Callable

import numpy as np

from experiments.topologies.answers import (
    ARITHMETIC,
    BUILT,
    COUNTED,
    Answers,
    cables,
    carried,
    kinds,
    largest,
    nic,
    ports,
    way,
)
from experiments.topologies.published import Entry
from fabric import topologies
from fabric.network import Network
from fabric.topologies import sizes

GB = 1e9
STATED = "a fact that the source states of its cluster, not of a topology"
UNPUBLISHED = "a reading of the source; its switches are not published"


def answer(entry: Entry, smoke: bool) -> Answers:
    """Return what we make of an entry of this family."""
    found = Answers()
    rules: dict[str, Callable[[Answers, Entry, bool], None]] = {
        "meta_llama3_24k_roce": _meta, "alibaba_hpn7_pod": _hpn, "simai_template_counts": _simai,
        "hpn_1to1_vendor_variant": _hpn_even, "bytedance_megascale": _megascale,
        "baidu_aipod": _aipod, "tencent_astral": _astral, "xai_colossus": _colossus,
        "rail_only": _rail_only, "oci_supercluster": _oci, "azure_mrc_two_tier": _mrc,
        "fairwater2_rail_only": _fairwater, "azure_gb300_first_cluster": _gb300,
    }  # fmt: skip
    rules[entry.name](found, entry, smoke)
    return found


def _meta(found: Answers, entry: Entry, smoke: bool) -> None:
    asked = entry.params
    pod = asked["gpus_per_rack"] * asked["racks_per_pod"]
    # Racks of 16 GPUs at 1:1 in pods of 192 racks. 7:1 is no whole number of cables of a spine, so
    # that the cables to the cores get exactly a seventh of what a pod takes from its racks.
    net = topologies.clos(
        hosts=pod * asked["pods"], tiers=3, radix=2 * asked["gpus_per_rack"],
        spine_radix=224, core_radix=512, hosts_per_leaf=asked["gpus_per_rack"],
        leaves_per_pod=asked["racks_per_pod"], core_oversubscription=asked["oversub_pod_to_agg"],
    )  # fmt: skip
    labels = net.labels
    first = labels.tags["pod"] == 0
    leaf, spine, core, host = (labels.is_kind(k) for k in ("leaf", "spine", "core", "host"))
    up, into = carried(net, leaf & first, spine), carried(net, host & first, leaf)
    over = labels.is_tier("spine-core")
    share = into / asked["oversub_pod_to_agg"] / carried(net, spine & first, core)
    net = net.with_capacity(np.where(over, np.asarray(net.capacity) * share, net.capacity))
    found.put(
        BUILT,
        gpus_per_pod=int((host & first).sum()), gpus_total=int(host.sum()),
        servers_total=int(host.sum()) // asked["gpus_per_server"], racks_total=int(leaf.sum()),
        tiers=sum(kind in labels.present_kinds for kind in ("leaf", "spine", "core")),
        pod_full_bisection=up >= into,
    )  # fmt: skip
    found.put(
        f"{BUILT}, the cables above a pod scaled to exactly 7:1",
        cross_pod_per_gpu_one_way_GBps_under_uniform_load=carried(net, spine & first, core)
        / int((host & first).sum()) / GB,
    )  # fmt: skip
    found.skip(STATED, "qp_flows_per_gpu_pair", "jobs_gpus")


def _hpn(found: Answers, entry: Entry, smoke: bool) -> None:
    net = topologies.hpn()
    have, tiers, labels = kinds(net), cables(net), net.labels
    leaf, spine, adapter = (labels.is_kind(kind) for kind in ("leaf", "spine", "nic"))
    segment = labels.tags["unit"] == 0
    near, far = way(net, nic(net, 0), nic(net, 1)), way(net, nic(net, 0), nic(net, 128))
    plane = labels.tags["plane"]
    tor = int(np.flatnonzero(leaf & segment & (plane == 0) & (labels.tags["rail"] == 0))[0])
    agg = int(np.flatnonzero(spine & (plane == 0))[0])
    target = nic(net, 128)
    # A switch hashes where it has more than one way on: the ToR, and not the switch above it.
    choices = [way(net, tor, target)[2], way(net, agg, target)[2], 1]
    stages = sum(here > after for here, after in itertools.pairwise(choices))
    found.put(
        BUILT,
        gpus_per_segment=int((adapter & segment).sum()), gpus=have["nic"],
        tors_per_segment=int((leaf & segment).sum()), tors=have["leaf"], aggs=have["spine"],
        links_host_tor_200g=tiers["host"], links_tor_agg_400g_dual_plane=tiers["leaf-spine"],
        agg_ports_down=ports(net, "spine", "leaf-spine"),
        tor_oversub=carried(net, adapter, leaf) / carried(net, leaf, spine),
        paths_same_rail_same_segment=near[2], switches_same_rail_same_segment=near[1],
        paths_same_rail_diff_segment=far[2], switches_same_rail_diff_segment=far[1],
        paths_per_plane=choices[0], hash_stages_dual_plane=stages,
    )  # fmt: skip
    single = cables(topologies.hpn(planes=1))["leaf-spine"]
    found.put(BUILT, links_tor_agg_single_plane_variant=single)
    pods = topologies.hpn(pods=2, agg_up=8)
    agg = pods.labels.is_kind("spine")
    down = carried(pods, agg, pods.labels.is_kind("leaf"))
    found.put(
        f"{BUILT} with two pods and the 8 uplinks of an aggregation switch",
        agg_core_oversub=down / carried(pods, agg, pods.labels.is_kind("core")),
    )


def _hpn_even(found: Answers, entry: Entry, smoke: bool) -> None:
    net = topologies.hpn(8, tor_up=64, aggs=64)
    labels = net.labels
    leaf, adapter = labels.is_kind("leaf"), labels.is_kind("nic")
    segment = labels.tags["unit"] == 0
    servers = lambda mask: len(np.unique(labels.tags["server"][mask]))
    down = labels.is_tier("host") & (leaf & segment)[labels.src]
    found.put(
        BUILT,
        hosts_per_segment=servers(adapter & segment), hosts=servers(adapter),
        gpus=int(adapter.sum()), down_ports_per_segment=int(down.sum()),
        oversub=carried(net, adapter, leaf) / carried(net, leaf, labels.is_kind("spine")),
    )  # fmt: skip


def _simai(found: Answers, entry: Entry, smoke: bool) -> None:
    # The generator has one NVSwitch per server of 8 GPUs, a NIC as a link of its GPU, and one link
    # between every two switches of neighbouring tiers.
    def counted(net: Network) -> dict[str, int]:
        have, gpus = kinds(net), kinds(net)["nic"]
        switches, chips = have["leaf"] + have["spine"], gpus // 8
        return {
            "nodes": gpus + switches + chips, "links": net.n_links // 2 + gpus, "chips": chips,
            "switches": switches, "asw": have["leaf"], "psw": have["spine"],
        }  # fmt: skip

    rails = lambda servers: counted(
        topologies.rail_optimized(servers=servers, radix=128, spines=64, leaf_down=64)
    )
    large, small = rails(512), rails(2)
    dual, single = counted(topologies.hpn()), counted(topologies.hpn(planes=1))
    only = lambda have, *keys: {key: have[key] for key in keys}
    header = [small["nodes"], 8, small["chips"], small["switches"], small["links"]]
    found.put(
        f"{BUILT}; an NVSwitch per server, a NIC as a link of its GPU",
        spectrumx_4096=only(large, "nodes", "links", "asw", "psw"),
        alibabahpn_dualplane_15360=only(dual, "nodes", "links"),
        alibabahpn_singleplane_15360=only(single, "nodes", "links"),
        spectrumx_16gpu_file_header=header,
    )


def _megascale(found: Answers, entry: Entry, smoke: bool) -> None:
    asked = {"rails": 8, "radix": 64, "tiers": 3, "capacity": "200Gb/s",
             "uplink_capacity": "400Gb/s"}  # fmt: skip
    net = topologies.rail_optimized(servers=256, **asked)
    labels = net.labels
    first = labels.tags["unit"] == 0
    adapter, leaf, spine, core = (labels.is_kind(k) for k in ("nic", "leaf", "spine", "core"))
    rate = lambda tier: float(np.asarray(net.capacity)[labels.is_tier(tier)].max())
    at_leaf = carried(net, adapter, leaf) / carried(net, leaf, spine)
    at_spine = carried(net, leaf, spine) / carried(net, spine, core)
    if at_leaf != at_spine:
        message = f"tiers differ: {at_leaf:g}:1 at the leaf, {at_spine:g}:1 at the spine"
        raise ValueError(message)
    found.put(
        BUILT,
        servers_per_tor_set=len(np.unique(labels.tags["server"][adapter & first])),
        gpus_per_tor_set=int((adapter & first).sum()), tors_per_set=int((leaf & first).sum()),
        oversub_each_tier=at_leaf, uplink_to_downlink_speed_ratio=rate("leaf-spine") / rate("host"),
    )  # fmt: skip
    most = largest(lambda servers: sizes("rail_optimized", servers=servers, **asked))
    found.put(COUNTED, max_200g_nics_3tier_radix64=8 * most)
    found.skip(STATED, "job_gpus")


def _aipod(found: Answers, entry: Entry, smoke: bool) -> None:
    net = topologies.rail_optimized(servers=2048, radix=128, tiers=3)
    labels = net.labels
    first, adapter = labels.tags["unit"] == 0, labels.is_kind("nic")
    found.put(
        BUILT,
        gpus_per_group=int((adapter & first).sum()),
        servers_per_group=len(np.unique(labels.tags["server"][adapter & first])),
        leaf_down_ports_used=ports(net, "leaf", "host"), gpus_max=int(adapter.sum()),
        groups_at_16k=len(np.unique(labels.tags["unit"][adapter])),
        switches_same_rail_same_group=way(net, nic(net, 0), nic(net, 1))[1],
    )  # fmt: skip


def _astral(found: Answers, entry: Entry, smoke: bool) -> None:
    adapters, each = entry.params["nics_per_host"], 2 * 200
    quoted = entry.expected
    found.put(
        f"{ARITHMETIC}: 2 ports of 200 Gb/s on each of the NICs",
        host_bandwidth_Tbps=adapters * each / 1e3,
        gpu_bandwidth_gbps=each,
    )
    found.put(
        f"{ARITHMETIC}: all GPUs by those of a pod",
        pods=quoted["gpus_total"] // quoted["gpus_per_pod"],
    )
    found.skip(UNPUBLISHED, "gpus_per_pod", "gpus_total", "ports_of_one_nic_go_to_different_tors")


def _colossus(found: Answers, entry: Entry, smoke: bool) -> None:
    most = lambda tiers: largest(lambda n: sizes("clos", hosts=n, radix=128, tiers=tiers))
    found.put(COUNTED, two_tier_limit_400g=most(2), three_tier_limit_400g=most(3))
    found.skip(
        "a measurement as reported", "reported_throughput_fraction",
        "reported_standard_ethernet_fraction",
    )  # fmt: skip


def _rail_only(found: Answers, entry: Entry, smoke: bool) -> None:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    net = topologies.rail_only(servers=128, rails=8, radix=128)
    src, dst, n = net.labels.src, net.labels.dst, net.n_nodes
    rails, _ = connected_components(csr_array((np.ones(len(src)), (src, dst)), shape=(n, n)))
    across = way(net, nic(net, 0), nic(net, 0, 1))
    found.put(
        BUILT,
        rails_formula="K" if rails == 8 else f"{rails} of 8",
        gpus_per_rail_formula="N/K" if ports(net, "leaf") == len(net.hosts) // 8 else "another",
        example_k8_r128={"switches": kinds(net)["leaf"], "gpus": len(net.hosts)},
        cross_rail_switch_hops=None if across[0] < 0 else across[1],
    )
    found.skip("an estimate of the paper", "cost_saving", "power_saving", "a2a_overhead")


def _oci(found: Answers, entry: Entry, smoke: bool) -> None:
    gpus = entry.expected["gpus_max"]
    found.put(f"{ARITHMETIC}: 400 Gb/s per GPU, printed in whole Pb/s",
              aggregate_Pbps=round(gpus * 400e9 / 1e15))  # fmt: skip
    keys = ("gpus_max", "block_tier0_gpus", "block_tier1_gpus", "block_tier2_gpus", "latency_us",
            "zettascale10_gpus")  # fmt: skip
    found.skip(STATED, *keys)


def _mrc(found: Answers, entry: Entry, smoke: bool) -> None:
    asked = {"rails": 1, "radix": 512, "capacity": "100Gb/s"}
    have = sizes("multi_plane", servers=131_072, planes=8, **asked)
    leaf, spine = have.nodes["leaf"], have.nodes["spine"]
    found.put(
        COUNTED,
        nics=have.nodes["nic"], t1_per_plane=spine // 8, switches_per_plane=(leaf + spine) // 8,
        switches_total=leaf + spine, links_host_per_plane=have.cables["host"] // 8,
        links_t0_t1_per_plane=have.cables["leaf-spine"] // 8, paths_all_planes=have.paths,
        max_switch_hops=have.hops, paths_per_plane_diff_t0=(have.paths or 0) // 8,
    )  # fmt: skip
    if smoke:
        return
    net = topologies.multi_plane(131_072, planes=8, **asked)
    nodes, labels = kinds(net), net.labels
    one = labels.tags["plane"] == 0
    links = lambda tier: (
        int((labels.is_tier(tier) & (one[labels.src] | one[labels.dst])).sum()) // 2
    )
    far = way(net, 0, len(net.hosts) - 1)
    found.put(
        BUILT,
        nics=nodes["nic"], t1_per_plane=int((labels.is_kind("spine") & one).sum()),
        switches_per_plane=int((one & ~labels.is_kind("nic")).sum()),
        switches_total=nodes["leaf"] + nodes["spine"], links_host_per_plane=links("host"),
        links_t0_t1_per_plane=links("leaf-spine"), paths_all_planes=far[2],
        max_switch_hops=far[1],
    )  # fmt: skip
    single = topologies.multi_plane(131_072, planes=1, **asked)
    found.put(BUILT, paths_per_plane_diff_t0=way(single, 0, len(single.hosts) - 1)[2])


def _fairwater(found: Answers, entry: Entry, smoke: bool) -> None:
    have = sizes("rail_only", servers=131_072, rails=4, radix=512, planes=8)
    found.put(COUNTED, gpus=have.endpoints, switches=have.switches)


def _gb300(found: Answers, entry: Entry, smoke: bool) -> None:
    found.put(f"{ARITHMETIC}: the GPUs by those of a rack",
              racks=entry.expected["gpus"] // entry.params["gpus_per_rack"])  # fmt: skip
    found.skip(STATED, "gpus", "gpu_nic_gbps")
