"""What `topologies.cluster` promises: published counts, wiring, facts and refusals."""

import json
import math
import re
from collections import Counter

import networkx as nx
import numpy as np
import pytest

import fabric as fb
from fabric.topologies import CLUSTERS, bill, build, cluster, is_spec

TB = 1e12


def kinds(net, *names):
    return [int(net.labels.is_kind(kind).sum()) for kind in names]


def cables(net):
    return {tier: int(net.labels.is_tier(tier).sum()) // 2 for tier in net.labels.tiers}


def tier_bytes(net, tier):
    """byte/s one way of all cables of a tier."""
    return float(np.asarray(net.capacity)[net.labels.is_tier(tier)].sum()) / 2


def per_pair(net, tier):
    """Which numbers of parallel cables there are between two ends of a tier."""
    links = net.labels.is_tier(tier)
    key = net.labels.src[links].astype(np.int64) * net.n_nodes + net.labels.dst[links]
    return set(np.unique(key, return_counts=True)[1].tolist())


def ports(net, kind):
    return np.bincount(net.labels.src, minlength=net.n_nodes)[net.labels.is_kind(kind)]


def switches_and_paths(net, a, b):
    """Switches of the fabric on the way between two GPUs, ways over switches, ways over cables."""
    labels = net.labels
    outside = ~np.isin(
        labels.tier_of, [labels.tiers.index(t) for t in ("nvlink", "pcie", "socket")]
    )
    graph = nx.DiGraph()
    ends = zip(labels.src[outside].tolist(), labels.dst[outside].tolist(), strict=True)
    graph.add_edges_from((u, v, {"cables": n}) for (u, v), n in Counter(ends).items())
    a, b = int(labels.tags["nic"][a]), int(labels.tags["nic"][b])
    found = list(nx.all_shortest_paths(graph, a, b))
    ways = sum(math.prod(graph[u][v]["cables"] for u, v in nx.utils.pairwise(p)) for p in found)
    return len(found[0]) - 2, len(found), ways


def golden(shared):
    entries = json.loads((shared / "validation" / "topologies.json").read_text())
    return {e["name"]: e for e in entries if e["kind"] == "superpod"}


def name_of(row):
    made = re.match(r"superpod_(h100|b200|b300_spectrumx|b300_xdr|a100)", row)
    return None if made is None else "dgx-" + made[1].replace("_", "-")


def check_counts(row, net, want):
    """Compare whatever a published row says, key by key; return the keys it says."""
    found = cables(net)
    links = int(net.labels.about.get("links_per_cable", 1))
    nodes = int(net.labels.tags["server"].max()) + 1
    nic, up = found["host"], found["leaf-spine"]
    leaf, spine, core = kinds(net, "leaf", "spine", "core")
    planes = int(net.labels.tags["plane"].max()) + 1 if "plane" in net.labels.tags else 1
    got = {
        "nodes": nodes, "gpus": len(net.hosts), "nics": nic // planes,
        "leaf": leaf, "spine": spine, "core": core,
        "cables_node_leaf": nic // links, "node_leaf_cables": nic // links,
        "cables_leaf_spine": up // links, "leaf_spine_cables": up // links, "cables_spine_leaf": up,
        "leaf_uplinks_total": up, "cables_spine_core": found.get("spine-core", 0),
        "cables_compute_and_ufm": bill(net, manager=True).count("cable")
        - bill(net).count("cable", "leaf-spine") - bill(net).count("cable", "spine-core"),
        "links_400g_node_leaf": nic, "links_400g_leaf_spine": up,
        "leaf_per_plane": leaf // planes, "spine_per_plane": spine // planes,
        "tiers": 3 if core else 2, "total_switches": leaf + spine + core,
        "nvswitch_chips": kinds(net, "nvswitch")[0],
        "spine_ports_used": int(ports(net, "spine").max()),
        "uplink_capacity_one_way_GBps": tier_bytes(net, "leaf-spine") / 1e9,
        "spine_tier_port_capacity_one_way_TBps": tier_bytes(net, "leaf-spine") / TB,
        "bisection_one_way_TBps": tier_bytes(net, "leaf-spine") / 2 / TB,
        "bisection_both_ways_TBps": tier_bytes(net, "leaf-spine") / TB,
        "node_egress_one_way_GBps": tier_bytes(net, "host") / nodes / 1e9,
        "leaf_up_to_down_ratio": 1.0,
    }  # fmt: skip
    if row.startswith("superpod_h100_1024"):
        got["total_switches"] += got["nvswitch_chips"]
        got["su_egress_one_way_TBps"] = tier_bytes(net, "leaf-spine") / 4 / TB
    for key in ("cables_per_leaf_spine_pair", "links_400g_per_leaf_spine_pair_same_plane"):
        (got[key],) = per_pair(net, "leaf-spine")
    for key in got.keys() & want.keys():
        assert got[key] == pytest.approx(want[key], rel=1e-12), (row, key)
    return set(got) & set(want)


SEEN = [
    *(f"superpod_h100_{n}su" for n in (1, 2, 3, 4)), "superpod_h100_1024gpu_full",
    *(f"superpod_b200_{n}su_large" for n in (2, 4, 8, 16, 32, 64)),
    *(f"superpod_b300_spectrumx_{n}su" for n in (1, 2, 4, 8, 16)),
    *(f"superpod_b300_xdr_{n}su" for n in (1, 2, 4, 8, 18)),
]  # fmt: skip

# Answered below by routes and paths, not by counts.
_BY_PATHS = re.compile(r"switches_|links_(same|diff)|ecmp_|max_switches|bandwidth_|egress")


@pytest.mark.parametrize("row", SEEN)
def test_published_superpods_have_their_counts(shared, row):
    entry = golden(shared)[row]
    want = entry["expected"]
    net = cluster(name_of(row), nodes=want["nodes"])
    left = set(want) - check_counts(row, net, want)
    assert {key for key in left if not _BY_PATHS.match(key)} <= {"su_egress_one_way_TBps"}
    assert set(entry["printed"]) - left >= {"leaf", "spine"}


def test_no_published_row_is_left_out(shared):
    seen = {name for name, e in golden(shared).items() if e["confidence"].startswith("seen")}
    assert seen == {*SEEN, "superpod_gb200_su"}


@pytest.mark.parametrize("row", [*SEEN[:5], SEEN[6], "superpod_b300_xdr_1su"])
def test_published_numbers_of_switches_and_paths(shared, row):
    want = golden(shared)[row]["expected"]
    net = cluster(name_of(row), nodes=want["nodes"])
    gpu = net.hosts.reshape(-1, 8)
    units = int(net.labels.tags["unit"].max())
    same = switches_and_paths(net, gpu[0, 0], gpu[1, 0])
    across = switches_and_paths(net, gpu[0, 0], gpu[1, 1])
    found = {
        "switches_same_rail_same_su": same[0], "links_same_rail_same_su": same[0] + 1,
        "switches_diff_rail_same_su": across[0], "links_diff_rail_same_su": across[0] + 1,
        "ecmp_spines": across[1], "ecmp_cable_level_paths": across[2], "max_switches": across[0],
    }  # fmt: skip
    if units:
        far = switches_and_paths(net, gpu[0, 0], gpu[-1, 0])
        found |= {"switches_same_rail_diff_su": far[0], "links_same_rail_diff_su": far[0] + 1}
    for key in found.keys() & want.keys():
        assert found[key] == want[key], key


def test_three_tiers_join_spine_j_of_every_pod_to_the_same_cores(shared):
    want = golden(shared)["superpod_16su_canonical_3tier_paths"]["expected"]
    net = cluster("dgx-b200", su=16)
    gpu = net.hosts.reshape(-1, 8)
    assert set(ports(net, "core")) == {want["core_ports_used"]}
    assert switches_and_paths(net, gpu[0, 0], gpu[-1, 0]) == (
        want["switches_other_pod"], want["ecmp_switch_level_other_pod"],
        want["ecmp_cable_level_other_pod"],
    )  # fmt: skip
    assert switches_and_paths(net, gpu[0, 0], gpu[40, 0])[1] == want["ecmp_same_pod"]


@pytest.mark.parametrize("row", [f"superpod_a100_{n}su" for n in (1, 2, 4, 6, 7)])
def test_dgx_a100_has_the_counts_it_is_remembered_by(shared, row):
    want = golden(shared)[row]["expected"]
    net = cluster("dgx-a100", nodes=want["nodes"])
    assert len(check_counts(row, net, want)) >= 8
    assert "from memory" in net.labels.about["evidence"]
    assert max(ports(net, "leaf").max(), ports(net, "spine").max()) <= 40
    if want["core"]:
        assert set(ports(net, "core")) == {40}


@pytest.mark.parametrize("nodes", [121, 140], ids=["started unit", "full"])
def test_three_tiers_of_dgx_a100_reach_everybody(nodes):
    net = cluster("dgx-a100", nodes=nodes)
    gpu = net.hosts.reshape(-1, 8)
    assert switches_and_paths(net, gpu[0, 0], gpu[-1, 0])[0] == 3  # same rail, same pod
    assert switches_and_paths(net, gpu[0, 0], gpu[-1, 7])[0] == 5


@pytest.mark.parametrize("name", sorted(CLUSTERS.keys() - {"gb200-nvl72"}))
def test_any_number_of_nodes_can_be_built(name):
    unit = CLUSTERS[name].unit
    for nodes in (1, unit - 1, unit + 1, 3 * unit):
        net = cluster(name, nodes=nodes)
        units = -(-nodes // unit)
        planes = 2 if name.endswith("spectrumx") else 1
        assert len(net.hosts) == 8 * nodes
        assert kinds(net, "leaf") == [8 * units * planes]
        assert int(net.labels.tags["unit"].max()) == units - 1
        assert net.labels.about["cluster"] == name


def test_a_number_between_two_tables_has_three_tiers_and_an_incomplete_pod():
    net = cluster("dgx-b200", nodes=300)
    assert kinds(net, "leaf", "spine", "core") == [80, 96, 64]
    assert max(ports(net, kind).max() for kind in ("leaf", "spine", "core")) <= 64
    gpu = net.hosts.reshape(-1, 8)
    assert switches_and_paths(net, gpu[0, 0], gpu[-1, 0])[0] == 5


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("dgx-a100", 25e9),
        ("dgx-h100", 50e9),
        ("dgx-b300-xdr", 100e9),
        ("dgx-b300-spectrumx", 100e9),
    ],
)
def test_a_gpu_has_the_bandwidth_of_its_nic(name, rate):
    net = cluster(name, nodes=4)
    routes = fb.routing.spray(net, fb.Flows(net.hosts[:8], net.hosts[8:16]))
    np.testing.assert_allclose(fb.max_min_rates(net, routes).rates, rate, rtol=1e-12)


@pytest.mark.parametrize("lost", ["plane", "spines"])
def test_a_lost_plane_halves_the_bandwidth(shared, lost):
    want = golden(shared)["superpod_b300_spectrumx_2su"]["expected"]
    net = cluster("dgx-b300-spectrumx", su=2)
    gpu = net.hosts.reshape(-1, 8)
    flows = fb.Flows(gpu[0], np.roll(gpu[-1], 1))
    rate = lambda net: np.asarray(fb.max_min_rates(net, fb.routing.spray(net, flows)).rates)
    np.testing.assert_allclose(rate(net) / 1e9, want["bandwidth_per_gpu_one_way_GBps"], rtol=1e-12)
    labels = net.labels
    gone = (labels.tags["plane"] == 1) & labels.is_kind(
        *(("leaf", "spine"), ("spine",))[lost == "spines"]
    )
    np.testing.assert_allclose(
        rate(net.without(nodes=gone)) / rate(net),
        want["bandwidth_after_one_plane_loss"],
        rtol=1e-12,
    )


def test_no_traffic_changes_its_plane():
    net = cluster("dgx-b300-spectrumx", nodes=70)
    plane, nic = net.labels.tags["plane"], net.labels.is_kind("nic")
    a, b = plane[net.labels.src], plane[net.labels.dst]
    assert (a == b)[(a >= 0) & (b >= 0)].all()
    assert not net.labels.forwards[nic].any()
    gpu = net.hosts.reshape(-1, 8)
    routes = fb.routing.ecmp(net, fb.Flows(gpu[:64, 0], gpu[np.arange(64) % 6 + 64, 1]), seed=1)
    for flow in range(routes.n_flows):
        links = routes.part_link[
            np.isin(routes.part_bundle, routes.hop_bundle[routes.hop_flow == flow])
        ]
        assert len(np.unique(np.r_[a[links], b[links]])) == 2  # one plane, and -1


def test_gb200_is_one_nvlink_domain_per_rack():
    net = cluster("gb200-nvl72", nodes=2, leaves=8, spines=3)
    assert kinds(net, "gpu", "nvswitch", "nic", "leaf", "spine") == [144, 36, 144, 8, 3]
    assert ports(net, "leaf").tolist() == [36] * 8
    flows = fb.Flows(net.hosts[:72], np.roll(net.hosts[:72], 5))
    rates = fb.max_min_rates(net, fb.routing.ecmp(net, flows)).rates
    np.testing.assert_allclose(rates, 900e9, rtol=1e-12)
    flows = fb.Flows(net.hosts[:72], net.hosts[72:])
    rates = fb.max_min_rates(net, fb.routing.spray(net, flows)).rates
    np.testing.assert_allclose(rates, 50e9, rtol=1e-12)
    rail = net.labels.tags["rail"]
    assert rail[:8].tolist() == [0, 1, 2, 3] * 2
    tags = net.labels.tags
    np.testing.assert_array_equal(rail[: len(net.hosts)], tags["rail"][tags["nic"][net.hosts]])


def test_gb200_units_are_as_published(shared):
    want = golden(shared)["superpod_gb200_su"]["expected"]
    net = cluster("gb200-nvl72", su=2, leaves=40, spines=32)
    assert len(net.hosts) == want["gpus_2su"]
    assert set(np.bincount(net.labels.tags["unit"][net.hosts])) == {want["gpus_per_su"]}
    assert kinds(net, "nic") == [16 * want["nics_per_rack"]]
    rack = tier_bytes(net, "host") / 16
    assert rack / TB == pytest.approx(want["rack_ib_egress_one_way_TBps"])
    assert rack * 8 / TB == pytest.approx(want["rack_ib_egress_Tbps"])
    assert CLUSTERS["gb200-nvl72"].most == want["racks_16su"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs `leaves` and `spines`: no public document counts the switches"),
        ({"leaves": 8}, "needs `spines`: no public document"),
        ({"leaves": 6, "spines": 4}, r"`leaves=6` needs a multiple of the 4 rails.*`leaves=8`"),
        ({"leaves": 4, "spines": 36}, r"have 36 NICs each and 36 uplinks.*72 ports in all"),
        ({"leaves": 32, "spines": 1}, r"with 5 cables to each of 32 leaves need 160 ports each"),
    ],
    ids=["none", "one", "rails", "leaf ports", "spine ports"],
)
def test_gb200_says_what_its_switches_lack(given, said):
    with pytest.raises(fb.ModelError, match=said):
        cluster("gb200-nvl72", nodes=2, **given)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("dgx-h10", {"nodes": 4}, "Did you mean 'dgx-h100'"),
        ("dgx-h100", {}, "`nodes` or `su` .* but got neither"),
        ("dgx-h100", {"nodes": 4, "su": 1}, "but got both"),
        ("dgx-h100", {"nodes": 0}, "`nodes` needs a whole number"),
        ("dgx-a100", {"su": 8}, "known up to 140 nodes, but 160"),
        ("dgx-h100", {"nodes": 4, "spines": 2}, "follows its table, so `spines` cannot be chosen"),
    ],
    ids=["name", "neither", "both", "zero", "many", "spines"],
)
def test_wrong_arguments_are_refused_with_the_next_step(name, given, said):
    with pytest.raises(fb.ModelError, match=said):
        cluster(name, **given)


def test_facts_are_in_about():
    about = cluster("dgx-h100", nodes=2).labels.about
    assert about["server"] == about["cluster"] == "dgx-h100"
    assert (about["gpu"], about["switch"]) == ("h100-sxm", "qm9700")
    assert (about["network"], about["routing"]) == ("infiniband", "spray")
    assert "assumed" in cluster("dgx-h800", nodes=2).labels.about["evidence"]


def test_gpudirect_can_be_switched_off():
    net = cluster("dgx-h100", nodes=2, gpudirect=False)
    assert (net.labels.tags["staging"][net.hosts] >= 0).all()
    assert net.labels.about["gpudirect"] == "no"


@pytest.mark.parametrize(
    "spec",
    ["dgx-h100:nodes=3", "dgx_h100: nodes=3", "cluster:name=dgx-h100,nodes=3"],
)
def test_clusters_are_built_from_text(spec):
    assert is_spec(spec)
    net = build(spec)
    assert net.labels.source == "dgx-h100(nodes=3)"
    assert len(net.hosts) == 24


def test_all_options_are_read_from_text():
    net = build("gb200-nvl72:nodes=1,leaves=4,spines=2,gpudirect=no")
    assert net.labels.source == "gb200-nvl72(nodes=1, leaves=4, spines=2, gpudirect=False)"
    assert net.labels.about["gpudirect"] == "no"
    with pytest.raises(fb.ModelError, match="'gpudirect' needs yes or no, but got 'maybe'"):
        build("dgx-h100:nodes=1,gpudirect=maybe")
    with pytest.raises(fb.ModelError, match=r"'dgx-h101' is no builder\. Did you mean 'dgx-h100'"):
        build("dgx-h101:nodes=1")


def test_a_bare_name_is_told_from_a_file():
    assert is_spec("dgx-h100")
    assert is_spec("cluster")
    assert not is_spec("dgx-h100.json")


@pytest.mark.parametrize("way", ["networkx", "node-link"])
def test_what_a_cluster_says_of_itself_survives_a_graph(way, tmp_path):
    net = cluster("dgx-h100", nodes=2)
    if way == "networkx":
        back = fb.Network.from_networkx(net.to_networkx())
    else:
        back = fb.readers.read(fb.readers.write_node_link(net, tmp_path / "net.json")).network
    assert dict(back.labels.about) == dict(net.labels.about)
    flows = fb.Flows(net.hosts[:8], net.hosts[8:])
    np.testing.assert_array_equal(
        fb.max_min_rates(back, fb.routing.spray(back, flows)).rates,
        fb.max_min_rates(net, fb.routing.spray(net, flows)).rates,
    )
