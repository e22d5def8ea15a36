"""What the builders of networks promise: published counts, wiring, names and refusals."""

import inspect
import json
import math
import re

import networkx as nx
import numpy as np
import pytest

import fabric as fb
from fabric._units import parse_rate
from fabric.topologies import BUILDERS, build, is_spec
from fabric.topologies._plan import even_spines

SMALL = [
    "leaf_spine:leaves=3,spines=2,hosts_per_leaf=4,cables_per_pair=2",
    "leaf_spine:leaves=3,spines=2,hosts_per_leaf=4+0+1",
    "fat_tree:k=4",
    "clos:hosts=13,radix=8",
    "clos:hosts=101,radix=8,tiers=3",
    "rail_optimized:servers=5,rails=2,radix=8",
    "single_switch:hosts=3",
    "full_mesh:nodes=5",
    "dragonfly:p=2,a=3,h=1",
    "dragonfly_plus:radix=4",
    "hyperx:shape=3x2,hosts_per_switch=2,links_per_pair=2",
    "slim_fly:q=4,hosts_per_router=2",
]

# Hosts with several cables, or fabrics that share nothing.
APART = [
    "rail_only:servers=5,rails=2,radix=4",
    "multi_plane:servers=5,planes=2,rails=2,radix=8",
    "hpn:segments=2,hosts_per_segment=3,rails=2,aggs=2,uplink_capacity=200Gb/s",
    "torus:dims=4x3x2",
    "torus:dims=4x4x8,twist=tpu",
    "tpu_pod:cubes=3,slices=4x4x8_twisted@2/0+2x2x1",
    "direct_connect:blocks=3,ports=4,circuits=2+2+1",
]


def kinds(net):
    return {kind: int(net.labels.is_kind(kind).sum()) for kind in net.labels.kinds}


def cables(net):
    return {tier: int(net.labels.is_tier(tier).sum()) // 2 for tier in net.labels.tiers}


def ports(net, kind):
    """Cables on each node of a kind."""
    return np.bincount(net.labels.src, minlength=net.n_nodes)[net.labels.is_kind(kind)]


def graph(net):
    """The network as a simple graph; `cables` counts the parallel ones."""
    simple = nx.Graph()
    for a, b in zip(net.labels.src[::2].tolist(), net.labels.dst[::2].tolist(), strict=True):
        simple.add_edge(a, b, cables=simple.get_edge_data(a, b, {"cables": 0})["cables"] + 1)
    return simple


def paths(net, a, b):
    """Links on a shortest path, shortest paths over switches, and over single cables."""
    simple = graph(net)
    found = list(nx.all_shortest_paths(simple, a, b))
    along = [math.prod(simple[u][v]["cables"] for u, v in nx.utils.pairwise(p)) for p in found]
    return len(found[0]) - 1, len(found), sum(along)


def golden(shared, kind):
    entries = json.loads((shared / "validation" / "topologies.json").read_text())
    return {e["name"]: e for e in entries if e["kind"] == kind}


# Counts that sources print or closed forms give.


@pytest.mark.parametrize("k", [2, 4, 8, 16, 48, 64])
def test_fat_tree_has_the_counts_of_the_closed_form(k):
    net = fb.topologies.fat_tree(k)
    assert kinds(net) == {
        "host": k**3 // 4, "edge": k**2 // 2, "aggregation": k**2 // 2, "core": k**2 // 4,
    }  # fmt: skip
    tier = k**3 // 4
    assert cables(net) == {"host": tier, "edge-aggregation": tier, "aggregation-core": tier}
    for kind in ("edge", "aggregation", "core"):
        np.testing.assert_array_equal(ports(net, kind), k)


def test_fat_tree_has_the_published_counts(shared):
    for name, entry in golden(shared, "generic").items():
        if name.startswith("fattree"):
            net, want = fb.topologies.fat_tree(entry["params"]["k"]), entry["expected"]
            assert list(kinds(net).values()) == [
                want[key] for key in ("hosts", "edge", "agg", "core")
            ], name
            assert list(cables(net).values()) == [
                want[key] for key in ("links_host", "links_edge_agg", "links_agg_core")
            ], name
            assert net.n_links == 2 * want["links_total"], name


@pytest.mark.parametrize("k", [4, 8])
def test_fat_tree_has_the_shortest_paths_of_the_closed_form(k):
    net = fb.topologies.fat_tree(k)
    host, half = net.hosts, k // 2
    assert paths(net, host[0], host[1]) == (2, 1, 1)
    assert paths(net, host[0], host[half]) == (4, half, half)
    assert paths(net, host[0], host[-1]) == (6, half**2, half**2)


@pytest.mark.parametrize("radix", [4, 8, 32, 64, 128])
@pytest.mark.parametrize("tiers", [2, 3])
def test_full_clos_has_the_counts_of_the_closed_form(radix, tiers):
    half = radix // 2
    net = fb.topologies.clos(2 * half**tiers, radix=radix, tiers=tiers)
    assert net.n_nodes - len(net.hosts) == (2 * tiers - 1) * half ** (tiers - 1)
    assert net.n_links // 2 == tiers * 2 * half**tiers
    for kind in net.labels.kinds[1:]:
        np.testing.assert_array_equal(ports(net, kind), radix)


def test_folded_clos_has_the_published_counts(shared):
    for name, entry in golden(shared, "generic").items():
        if not name.startswith("folded_clos"):
            continue
        radix, want = entry["params"]["radix"], entry["expected"]
        for tiers in (2, 3) if radix <= 144 else (2,):
            net = fb.topologies.clos(want[f"hosts_{tiers}tier"], radix=radix, tiers=tiers)
            assert len(net.hosts) == want[f"hosts_{tiers}tier"], name
            assert net.n_nodes - len(net.hosts) == want[f"switches_{tiers}tier"], name
            assert net.n_links // 2 == want[f"links_{tiers}tier_incl_host"], name
            with pytest.raises(fb.ModelError, match=f"beyond {tiers} tiers"):
                fb.topologies.clos(want[f"hosts_{tiers}tier"] + 1, radix=radix, tiers=tiers)


def test_clos_reproduces_table_3_of_deepseek(shared):
    want = golden(shared, "generic")["deepseek_table3_topologies"]["expected"]
    for name, tiers, planes in (("FT2", 2, 1), ("MPFT", 2, 8), ("FT3", 3, 1)):
        row = want[name]
        net = fb.topologies.clos(row["endpoints"] // planes, radix=64, tiers=tiers)
        assert (net.n_nodes - len(net.hosts)) * planes == row["switches"]
        assert (net.n_links // 2 - len(net.hosts)) * planes == row["links"]


@pytest.mark.parametrize("tiers", [2, 3])
def test_full_clos_has_the_shortest_paths_of_the_closed_form(tiers):
    net = fb.topologies.clos(2 * 4**tiers, radix=8, tiers=tiers)
    assert paths(net, net.hosts[0], net.hosts[-1]) == (
        2 * tiers,
        4 ** (tiers - 1),
        4 ** (tiers - 1),
    )


# (servers, units, servers per unit, rails, radix): leaves, spines, cables per pair. Published.
SUPERPODS = [
    pytest.param(31, 64, 8, 4, 8, id="H100-1SU"),
    pytest.param(63, 64, 16, 8, 4, id="H100-2SU"),
    pytest.param(95, 64, 24, 16, 2, id="H100-3SU"),
    pytest.param(127, 64, 32, 16, 2, id="H100-4SU"),
    pytest.param(128, 64, 32, 16, 2, id="1024-GPU"),
    pytest.param(256, 64, 64, 32, 1, id="B200-8SU"),
    pytest.param(72, 144, 8, 4, 18, id="XDR-1SU"),
    pytest.param(288, 144, 32, 18, 4, id="XDR-4SU"),
    pytest.param(576, 144, 64, 36, 2, id="XDR-8SU"),
    pytest.param(1296, 144, 144, 72, 1, id="XDR-18SU"),
    pytest.param(64, 128, 8, 4, 16, id="SpectrumX-plane-1SU"),
    pytest.param(1024, 128, 128, 64, 1, id="SpectrumX-plane-16SU"),
]


@pytest.mark.parametrize(("servers", "radix", "leaf", "spine", "per_pair"), SUPERPODS)
def test_rail_optimized_has_the_counts_of_superpods(servers, radix, leaf, spine, per_pair):
    net = fb.topologies.rail_optimized(servers, radix=radix)
    assert kinds(net) == {"nic": 8 * servers, "leaf": leaf, "spine": spine}
    assert cables(net) == {"host": 8 * servers, "leaf-spine": leaf * spine * per_pair}
    assert {d["cables"] for a, b, d in graph(net).edges(data=True) if min(a, b) >= 8 * servers} == {
        per_pair
    }


def test_rail_optimized_has_every_published_two_tier_row(shared):
    rows = 0
    for name, entry in golden(shared, "superpod").items():
        want, params = entry["expected"], entry["params"]
        if not re.match(r"superpod_(h100|b200|b300_xdr)_\d+su", name) or want.get("core"):
            continue
        radix = params.get("radix", params.get("leaf_radix"))
        net = fb.topologies.rail_optimized(want["nodes"], radix=radix)
        assert kinds(net) == {
            "nic": want["gpus"], "leaf": want["leaf"], "spine": want["spine"],
        }, name  # fmt: skip
        pairs = want.get("cables_spine_leaf", want.get("cables_leaf_spine"))
        assert cables(net)["leaf-spine"] == pairs, name
        assert int(ports(net, "spine").max()) <= radix, name
        rows += 1
    assert rows == 12


def test_three_tier_clos_has_the_counts_of_large_superpods(shared):
    for name, entry in golden(shared, "superpod").items():
        want = entry["expected"]
        if name.startswith("superpod_b200") and want.get("core"):
            net = fb.topologies.clos(want["gpus"], radix=64, tiers=3)
            assert kinds(net) == {
                "host": want["gpus"], "leaf": want["leaf"], "spine": want["spine"],
                "core": want["core"],
            }, name  # fmt: skip
            assert cables(net)["spine-core"] == want["cables_spine_core"], name


def test_three_tier_clos_wires_spine_j_to_core_group_j():
    net = fb.topologies.clos(4096, radix=64, tiers=3)
    core, spine = (np.flatnonzero(net.labels.is_kind(kind)) for kind in ("core", "spine"))
    simple = graph(net)
    for j in (0, 1, 31):
        for pod in range(4):
            wired = {c: simple[spine[32 * pod + j]][c]["cables"] for c in core[2 * j : 2 * j + 2]}
            assert set(wired.values()) == {16}
    np.testing.assert_array_equal(ports(net, "core"), 64)
    assert paths(net, net.hosts[0], net.hosts[-1]) == (6, 64, 64 * 16 * 16)


def test_dividing_ports_alone_would_miss_the_published_spines():
    assert math.ceil(24 * 32 / 64) == 12
    assert even_spines(24, 32, 64) == 16
    assert even_spines(32, 72, 144) == 18
    assert even_spines(65, 32, 64) is None


@pytest.mark.parametrize("nodes", [2, 4, 8, 256])
def test_full_mesh_has_a_cable_between_every_two_nodes(nodes):
    net = fb.topologies.full_mesh(nodes)
    ends = np.sort(np.stack([net.labels.src, net.labels.dst], 1)[::2], axis=1)
    assert len(np.unique(ends, axis=0)) == net.n_links // 2 == nodes * (nodes - 1) // 2
    np.testing.assert_array_equal(ports(net, "node"), nodes - 1)
    np.testing.assert_array_equal(net.hosts, np.arange(nodes))


def test_a_full_mesh_of_200000_is_refused_with_its_number_of_cables(shared):
    want = golden(shared, "generic")["full_mesh_200000"]["expected"]["cables"]
    with pytest.raises(fb.ModelError, match=rf"{want:,} cables and would take about 3\.00 TB"):
        fb.topologies.full_mesh(200_000)


# What every builder does.


@pytest.mark.parametrize("spec", SMALL + APART)
def test_both_directions_of_a_cable_stand_side_by_side(spec):
    labels = build(spec).labels
    np.testing.assert_array_equal(labels.src[::2], labels.dst[1::2])
    np.testing.assert_array_equal(labels.dst[::2], labels.src[1::2])
    np.testing.assert_array_equal(labels.cable_of, np.repeat(np.arange(labels.n_links // 2), 2))


@pytest.mark.parametrize("spec", SMALL)
def test_every_host_has_one_cable_and_reaches_every_other(spec):
    net = build(spec)
    assert nx.is_connected(graph(net))
    if "node" not in net.labels.kinds:
        np.testing.assert_array_equal(ports(net, net.labels.kinds[0]), 1)
        np.testing.assert_array_equal(net.hosts, np.arange(len(net.hosts)))


@pytest.mark.parametrize("spec", SMALL + APART)
def test_names_are_unique_and_one_per_node(spec):
    names = list(build(spec).labels.names)
    assert len(set(names)) == len(names) == build(spec).n_nodes


@pytest.mark.parametrize("spec", SMALL)
def test_the_leaf_tag_of_a_host_is_that_of_its_switch(spec):
    labels = build(spec).labels
    up = np.flatnonzero(labels.endpoint[labels.src])
    for tag in set(labels.tags) & {"leaf", "edge", "pod", "unit", "rail"}:
        np.testing.assert_array_equal(
            labels.tags[tag][labels.src[up]], labels.tags[tag][labels.dst[up]]
        )


@pytest.mark.parametrize("builder", list(BUILDERS))
def test_capacity_and_latency_reach_every_link_in_internal_units(builder):
    spec = next(spec for spec in SMALL + APART if spec.startswith(builder))
    alike = ",uplink_capacity=100Gb/s" if builder == "hpn" else ""
    net = build(f"{spec.partition(',uplink')[0]},capacity=100Gb/s,latency=1.5us{alike}")
    np.testing.assert_array_equal(net.capacity, 12.5e9)
    np.testing.assert_array_equal(net.latency, 1.5e-6)
    usual = inspect.signature(BUILDERS[builder]).parameters["capacity"].default
    assert (build(spec).capacity == parse_rate(usual)).all()


@pytest.mark.parametrize("builder", list(BUILDERS))
def test_a_capacity_without_a_unit_is_refused(builder):
    spec = next(spec for spec in SMALL + APART if spec.startswith(builder))
    with pytest.raises(fb.ModelError, match=r"`capacity` needs a rate .* has no unit"):
        build(f"{spec},capacity=400")


# Ragged sizes and thinner upper tiers.


def test_leaf_spine_takes_a_number_of_hosts_per_leaf():
    net = fb.topologies.leaf_spine(3, 2, [2, 0, 3], uplink_capacity="800Gb/s")
    assert list(net.labels.names)[:5] == [
        "leaf0-host0", "leaf0-host1", "leaf2-host0", "leaf2-host1", "leaf2-host2",
    ]  # fmt: skip
    assert net.labels.tags["leaf"].tolist() == [0, 0, 2, 2, 2, 0, 1, 2, -1, -1]
    assert set(net.capacity[net.labels.is_tier("leaf-spine")]) == {100e9}
    assert set(net.capacity[net.labels.is_tier("host")]) == {50e9}


def test_the_last_leaf_and_the_last_pod_may_be_incomplete():
    net = fb.topologies.clos(101, radix=8, tiers=3)
    # 4 hosts per leaf and 4 leaves per pod: 26 leaves, the last with 1 host; 7 pods, 2 in the last.
    assert kinds(net) == {"host": 101, "leaf": 26, "spine": 28, "core": 16}
    assert net.labels.names[100] == "pod6-leaf1-host0"
    assert net.labels.names[99] == "pod6-leaf0-host3"
    assert sorted(ports(net, "leaf").tolist()) == [5] + 25 * [8]
    assert sorted(ports(net, "spine").tolist()) == 4 * [6] + 24 * [8]
    assert int(ports(net, "core").max()) <= 8


def test_an_incomplete_unit_has_all_its_leaves():
    net = fb.topologies.rail_optimized(5, rails=2, radix=8)
    assert kinds(net) == {"nic": 10, "leaf": 4, "spine": 2}
    labels = net.labels
    assert labels.tags["unit"][:10].tolist() == 8 * [0] + 2 * [1]
    assert labels.tags["leaf"][:10].tolist() == 4 * [0, 1] + [2, 3]
    assert (labels.names[9], labels.names[13]) == ("server4-nic1", "unit1-leaf1")


@pytest.mark.parametrize(
    ("ratio", "down", "up"), [(1, 32, 32), (3, 48, 16), (4, 48, 12), (7, 56, 8), (0.5, 21, 42)]
)
def test_clos_splits_the_ports_of_a_leaf_by_its_oversubscription(ratio, down, up):
    net = fb.topologies.clos(10 * down, radix=64, oversubscription=ratio)
    np.testing.assert_array_equal(ports(net, "leaf"), down + up)
    assert cables(net) == {"host": 10 * down, "leaf-spine": 10 * up}


def test_clos_takes_pods_and_a_thinner_core():
    net = fb.topologies.clos(
        3072, radix=64, tiers=3, hosts_per_leaf=16, leaves_per_pod=32, core_oversubscription=7
    )
    # A spine has 8 ports up, and 56 down of which the pod's 32 x 16 uplinks over 16 spines use 32.
    assert kinds(net) == {"host": 3072, "leaf": 192, "spine": 96, "core": 16}
    assert cables(net) == {"host": 3072, "leaf-spine": 3072, "spine-core": 96 * 5}


def test_fat_tree_thins_both_upper_tiers_and_keeps_its_cables():
    net = fb.topologies.fat_tree(4, capacity="400Gb/s", oversubscription=4)
    assert kinds(net) == kinds(fb.topologies.fat_tree(4))
    assert set(net.capacity[net.labels.is_tier("host")]) == {50e9}
    for tier in ("edge-aggregation", "aggregation-core"):
        assert set(net.capacity[net.labels.is_tier(tier)]) == {12.5e9}


# What is refused, and how.


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("fat_tree:k=5", r"`fat_tree\(k=5\)` needs an even k. Use k=4 or k=6"),
        ("fat_tree:k=0", "`k` needs a whole number of 2 or more, but got 0"),
        ("fat_tree:k=4,oversubscription=0", "`oversubscription` needs a finite number more than 0"),
        ("clos:hosts=2049",
         r"`clos\(hosts=2,049\)` is beyond 2 tiers of radix 64 at 1:1, which reach "
         r"2,048 hosts \(64 leaves of 32\). Use `tiers=3` \(up to 65,536 hosts\)"),
        ("clos:hosts=65537,tiers=3", "beyond 3 tiers of radix 64 at 1:1, which reach 65,536 hosts"),
        ("clos:hosts=9,tiers=5", r"needs 2, 3 or 4 tiers"),
        ("clos:hosts=9,oversubscription=100",
         "leaves a leaf of radix 64 with 0 ports down and 0 up"),
        ("clos:hosts=9,hosts_per_leaf=40",
         "needs 40 ports down and 40 up, 80 in all, but `radix=64`"),
        ("clos:hosts=9,tiers=3,leaves_per_pod=33",
         "`leaves_per_pod=33` is more than the 32 ports down"),
        ("clos:hosts=9,leaves_per_pod=3", "`leaves_per_pod` needs `tiers=3`, but `tiers=2`"),
        ("rail_optimized:servers=257",
         r"257\)` needs 72 leaves, but two tiers of radix 64 stop at 64 "
         r"leaves: 256 servers with 8 rails. Use `tiers=3` or `radix=66`"),
        ("rail_optimized:servers=9999", "256 servers with 8 rails. Use `radix=400`"),
        ("clos:hosts=65537",
         r"2,048 hosts \(64 leaves of 32\). Use `tiers=4` \(up to 2,097,152 hosts\), a larger"),
        ("rail_optimized:servers=8,leaf_down=40,leaf_up=40", "need 80 ports, but `radix=64`"),
        ("rail_optimized:servers=8,servers_per_unit=33", "more than the 32 ports down of a leaf"),
        ("rail_optimized:servers=95,spines=12",
         "`spines=12` does not divide the 32 uplinks of a leaf"),
        ("rail_optimized:servers=95,spines=8", "offer 512 ports to 768 uplinks of 24 leaves. Use "
         "`spines=16`"),
        ("leaf_spine:leaves=3,spines=1,hosts_per_leaf=1+2", "has 2 entries for 3 leaves"),
        ("leaf_spine:leaves=2,spines=1,hosts_per_leaf=1+-2", "0 or more, but not so at 'leaf1'"),
        ("leaf_spine:leaves=2,spines=1,hosts_per_leaf=0+0", "0 on every leaf"),
        ("single_switch:hosts=0", "`hosts` needs a whole number of 1 or more, but got 0"),
        ("full_mesh:nodes=1", "`nodes` needs a whole number of 2 or more, but got 1"),
    ],
)  # fmt: skip
def test_impossible_numbers_are_refused_with_the_next_step(spec, said):
    with pytest.raises(fb.ModelError, match=said):
        build(spec)


@pytest.mark.parametrize(
    "asked",
    [
        {"servers": 257},
        {"servers": 9999},
        {"servers": 33, "servers_per_unit": 2},
        {"servers": 300, "leaf_down": 16},
        {"servers": 100, "radix": 7, "rails": 2},
        {"servers": 40, "rails": 65},
    ],
)
def test_what_rail_optimized_suggests_can_be_built(asked):
    with pytest.raises(fb.ModelError) as caught:
        fb.topologies.rail_optimized(**asked)
    said = str(caught.value)
    radix = int(re.search(r"`radix=(\d+)`", said)[1])
    assert fb.topologies.rail_optimized(**asked | {"radix": radix}).n_nodes > asked["servers"]
    if "`tiers=3`" in said:
        assert fb.topologies.rail_optimized(**asked, tiers=3).n_nodes > asked["servers"]


def test_all_bad_counts_are_said_at_once():
    with pytest.raises(fb.ModelError, match=r"(?s)`leaves` needs .*-1.*`spines` needs .*0\."):
        fb.topologies.leaf_spine(leaves=-1, spines=0, hosts_per_leaf=1)


# Networks from text.


@pytest.mark.parametrize("spec", SMALL + APART)
def test_the_source_of_a_network_builds_it_again(spec):
    net = build(spec)
    again = build(re.sub(r"\((.*)\)", r":\1", net.labels.source).replace(" ", ""))
    assert again.labels.source == net.labels.source
    np.testing.assert_array_equal(again.labels.src, net.labels.src)


def test_the_source_says_what_was_built():
    assert fb.topologies.fat_tree(k=8).labels.source == "fat_tree(k=8, capacity=400Gb/s)"
    net = fb.topologies.clos(9, radix=8, capacity=50e9, latency=2e-6)
    assert net.labels.source == "clos(hosts=9, radix=8, capacity=50GB/s, latency=2e-06s)"


def test_a_spec_is_told_from_a_file_name():
    for text in ("fat_tree:k=8", "fat-tree: k = 8", "clos", "fat_tre:k=8", "clos:"):
        assert is_spec(text), text
    for text in (
        "dump.ibnetdiscover.gz",
        "C:/topo.txt",
        "./clos",
        "https://x.org/?a=b",
        "topo",
        "",
    ):
        assert not is_spec(text), text


def test_builders_are_found_with_dashes_too():
    assert build("fat-tree:k=4").n_nodes == build("fat_tree:k=4").n_nodes


def test_all_faults_of_a_spec_are_said_at_once():
    with pytest.raises(fb.ModelError) as caught:
        build("leaf_spine:leaves=abc,spine=2,leaves,hosts_per_leaf=2,hosts_per_leaf=3,latency=0s")
    said = str(caught.value)
    assert "'leaves' needs a whole number, but got 'abc'" in said
    assert "no argument 'spine'. Did you mean 'spines'?" in said
    assert "'leaves' is not of the form `key=value`" in said
    assert "'hosts_per_leaf' is given twice" in said
    assert "`leaf_spine` needs 'spines'. Arguments: 'leaves', 'spines'" in said


def test_an_unknown_builder_is_answered_with_the_nearest():
    with pytest.raises(fb.ModelError, match=r"'fat_tre' is no builder. Did you mean 'fat_tree'\?"):
        build("fat_tre:k=8")
