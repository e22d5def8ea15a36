"""What Clos-like builders promise: published designs, wiring, planes, rails, and refusals."""

import json
import re

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

import fabric as fb
from fabric import hardware, routing
from fabric.topologies import (
    attach_servers,
    build,
    clos,
    hpn,
    multi_plane,
    rail_only,
    rail_optimized,
    sizes,
    sizes_of,
)

GB = 1e9


@pytest.fixture(scope="module")
def published(shared):
    entries = json.loads((shared / "validation" / "topologies.json").read_text())
    return {e["name"]: e["expected"] for e in entries}


def ports(net, kind):
    return np.bincount(net.labels.src, minlength=net.n_nodes)[net.labels.is_kind(kind)]


def per_pair(net, tier):
    """Which numbers of parallel cables there are between two ends of a tier."""
    links = net.labels.is_tier(tier)
    key = net.labels.src[links].astype(np.int64) * net.n_nodes + net.labels.dst[links]
    return set(np.unique(key, return_counts=True)[1].tolist())


def parts(net):
    """Groups of switches that no path joins: NICs and hosts carry nobody's traffic."""
    labels = net.labels
    both = labels.forwards[labels.src] & labels.forwards[labels.dst]
    graph = nx.Graph(zip(labels.src[both].tolist(), labels.dst[both].tolist(), strict=True))
    graph.add_nodes_from(np.flatnonzero(labels.forwards).tolist())
    return [sorted(group) for group in nx.connected_components(graph)]


def rates(net, src, dst, **rule):
    routes = routing.spray(net, fb.Flows(np.asarray(src), np.asarray(dst)), **rule)
    return np.asarray(fb.max_min_rates(net, routes).rates) / GB


def switches_between(net, a, b):
    """Switches on every shortest path between two endpoints."""
    routes = routing.ecmp(net, fb.Flows(np.array([a]), np.array([b])))
    return len(np.asarray(routes.hop_flow)) - 1


# Four tiers, and switches of several sizes.


def test_four_tiers_have_pods_of_pods_and_the_same_cables_everywhere():
    net = clos(54, radix=6, tiers=4)
    labels = net.labels
    assert labels.tiers == ("host", "leaf-spine", "spine-super-spine", "super-spine-core")
    assert labels.names[53] == "zone1-pod2-leaf2-host2"
    tags = labels.tags
    host = net.hosts
    np.testing.assert_array_equal(tags["pod"][host], np.arange(54) // 9)
    np.testing.assert_array_equal(tags["zone"][host], np.arange(54) // 27)
    for kind, words in (("leaf", "leaf pod zone"), ("spine", "pod zone"), ("super-spine", "zone")):
        nodes = labels.is_kind(kind)
        for word in ("leaf", "pod", "zone"):
            assert bool((tags[word][nodes] >= 0).all()) == (word in words.split())
    for tier in labels.tiers[1:]:
        assert len(per_pair(net, tier)) == 1
    # Within a pod, within a zone and across: the switches of the tiers that it takes.
    assert [switches_between(net, 0, host) for host in (1, 3, 9, 27)] == [1, 3, 5, 7]


@pytest.mark.parametrize("spec", ["clos:hosts=54,radix=6,tiers=4", "clos:hosts=16,radix=4,tiers=3"])
def test_a_full_clos_carries_any_shift_of_its_hosts_at_full_speed(spec):
    net = build(spec)
    hosts = net.hosts
    for shift in (1, 5, len(hosts) // 2):
        found = rates(net, hosts, np.roll(hosts, shift))
        np.testing.assert_allclose(found, 50.0, rtol=1e-12)


def test_each_tier_may_have_switches_of_its_own_size():
    net = clos(256, radix=8, spine_radix=16, core_radix=32, tiers=3)
    # 4 hosts and 4 uplinks per leaf, 8 leaves per pod, 8 pods; a spine fills 8 ports down.
    found = sizes_of(net)
    assert found.nodes == {"host": 256, "leaf": 64, "spine": 32, "core": 8}
    assert found.ports == {"host": 1, "leaf": 8, "spine": 16, "core": 32}


def test_racks_pods_and_a_core_of_seven_to_one_are_those_of_llama_3(published):
    want = published["meta_llama3_24k_roce"]
    asked = {
        "radix": 32, "spine_radix": 256, "tiers": 3, "hosts_per_leaf": 16, "leaves_per_pod": 192,
        "core_oversubscription": 7,
    }  # fmt: skip
    net = clos(want["gpus_total"], **asked)
    tags, found = net.labels.tags, sizes_of(net)
    assert int(tags["pod"].max()) + 1 == 8
    assert found.nodes["leaf"] == want["racks_total"]
    assert np.bincount(tags["pod"][net.hosts]).tolist() == [want["gpus_per_pod"]] * 8
    # 1:1 in the pod; above it whole cables, the fewest that are no fewer than 1 in 7.
    assert found.cables["leaf-spine"] == found.cables["host"]
    up = found.cables["spine-core"] // 8
    least = want["cross_pod_per_gpu_one_way_GBps_under_uniform_load"]
    assert (up - 16) * 50 / want["gpus_per_pod"] < least <= up * 50 / want["gpus_per_pod"]
    host = net.hosts
    cross = rates(net, host[:3072], host[3072:6144])
    np.testing.assert_allclose(cross, up * 50 / want["gpus_per_pod"], rtol=1e-9)
    np.testing.assert_allclose(rates(net, host[:3072], np.roll(host[:3072], 16)), 50, rtol=1e-9)


def test_split_ports_have_twice_the_speed_above_the_leaves_as_in_megascale(published):
    want = published["bytedance_megascale"]
    speeds = {"capacity": "200Gb/s", "uplink_capacity": "400Gb/s"}
    net = rail_optimized(want["servers_per_tor_set"], radix=64, **speeds)
    found = sizes_of(net)
    assert found.nodes["nic"] == want["gpus_per_tor_set"]
    assert found.nodes["leaf"] == want["tors_per_set"]
    capacity, labels = np.asarray(net.capacity), net.labels
    down, up = (capacity[labels.is_tier(tier)] for tier in ("host", "leaf-spine"))
    assert up[0] / down[0] == want["uplink_to_downlink_speed_ratio"]
    assert down.sum() / up.sum() == want["oversub_each_tier"]
    most = want["max_200g_nics_3tier_radix64"]
    assert sizes("clos", hosts=most, tiers=3, **speeds).endpoints == most
    with pytest.raises(fb.ModelError, match=f"reach {most:,} hosts"):
        sizes("clos", hosts=most + 1, tiers=3, **speeds)


def test_the_reach_of_two_and_three_tiers_of_128_ports_is_as_published(published):
    want = published["xai_colossus"]
    for tiers, key in ((2, "two_tier_limit_400g"), (3, "three_tier_limit_400g")):
        assert sizes("clos", hosts=want[key], radix=128, tiers=tiers).endpoints == want[key]
        with pytest.raises(fb.ModelError, match=f"reach {want[key]:,} hosts"):
            sizes("clos", hosts=want[key] + 1, radix=128, tiers=tiers)


# Three tiers of rails.


@pytest.mark.parametrize("units", [16, 32, 64])
def test_pods_of_units_have_the_published_counts_of_large_superpods(units, published):
    want = published[f"superpod_b200_{units}su_large"]
    found = sizes("rail_optimized", servers=want["nodes"], tiers=3)
    kinds = {"nic": "gpus", "leaf": "leaf", "spine": "spine", "core": "core"}
    assert found.nodes == {kind: want[key] for kind, key in kinds.items()}
    assert list(found.cables.values()) == [
        want["cables_node_leaf"], want["cables_leaf_spine"], want["cables_spine_core"],
    ]  # fmt: skip
    assert found.hops == want["switches_diff_pod"]


def test_paths_of_a_three_tier_superpod_are_those_of_the_wiring(published):
    want = published["superpod_16su_canonical_3tier_paths"]
    found = sizes("rail_optimized", servers=512, tiers=3)
    assert found.paths == want["ecmp_switch_level_other_pod"]
    assert found.cable_paths == want["ecmp_cable_level_other_pod"]
    assert found.hops == want["switches_other_pod"]
    assert found.ports["core"] == want["core_ports_used"]


@pytest.mark.parametrize("pods", ["units", "rails"])
def test_groups_of_512_gpus_make_16384_without_oversubscription(pods, published):
    want = published["baidu_aipod"]
    net = rail_optimized(want["gpus_max"] // 8, radix=128, tiers=3, pods=pods)
    found, tags = sizes_of(net), net.labels.tags
    assert np.bincount(tags["unit"][net.hosts]).tolist() == (
        [want["gpus_per_group"]] * want["groups_at_16k"]
    )
    assert found.nodes["leaf"] == 8 * want["groups_at_16k"]
    assert len(set(found.cables.values())) == 1
    assert max(found.ports.values()) == 128
    assert switches_between(net, 0, 8) == want["switches_same_rail_same_group"]


def test_rails_meet_in_the_pod_or_only_at_the_core():
    units = rail_optimized(64, rails=4, radix=16, tiers=3)
    rails = rail_optimized(64, rails=4, radix=16, tiers=3, pods="rails")
    # NIC 0 of server 0, to rail 0 and rail 1 of server 8, the first of the second unit.
    assert [switches_between(units, 0, 32 + rail) for rail in (0, 1)] == [3, 3]
    assert [switches_between(rails, 0, 32 + rail) for rail in (0, 1)] == [3, 5]
    pod = rails.labels.tags["pod"][rails.hosts]
    np.testing.assert_array_equal(pod, np.tile(np.arange(4), 64))
    for net in (units, rails):
        for tier in net.labels.tiers[1:]:
            assert len(per_pair(net, tier)) == 1
        host = net.hosts
        np.testing.assert_allclose(rates(net, host, np.roll(host, 33)), 50.0, rtol=1e-12)


def test_a_thin_core_gives_its_share_across_pods_only():
    # Two pods of 48 servers; a spine has 12 ports down for 4 up.
    net = rail_optimized(96, rails=2, radix=16, tiers=3, core_oversubscription=3)
    pod = net.labels.tags["pod"][net.hosts]
    a, b = (net.hosts[pod == p] for p in (0, 1))
    up = sizes_of(net).cables["spine-core"] / (int(pod.max()) + 1)
    np.testing.assert_allclose(rates(net, a, np.roll(a, 17)), 50.0, rtol=1e-12)
    np.testing.assert_allclose(rates(net, a, b), 50 * up / len(a), rtol=1e-12)


# Rails that share nothing.


def test_one_switch_per_rail_has_the_published_counts(published):
    want = published["rail_only"]["example_k8_r128"]
    net = rail_only(want["gpus"] // 8, radix=128)
    found = sizes_of(net)
    assert (found.endpoints, found.switches) == (want["gpus"], want["switches"])
    assert len(parts(net)) == 8


def test_a_published_rail_only_fabric_in_planes_has_its_counts(published):
    want = published["fairwater2_rail_only"]
    found = sizes("rail_only", servers=want["gpus"] // 4, rails=4, planes=8, radix=512)
    assert (found.endpoints, found.switches) == (want["gpus"], want["switches"])


def test_no_path_leads_from_one_rail_to_another_in_the_network():
    net = rail_only(12, rails=3, radix=8, planes=2)
    assert len(parts(net)) == 6
    nic = net.hosts.reshape(12, 3)
    np.testing.assert_allclose(rates(net, nic[0, :2], nic[11, :2]), 100.0, rtol=1e-12)
    with pytest.raises(fb.InfeasibleError):
        routing.ecmp(net, fb.Flows(nic[0, :1], nic[11, 1:2]))


def test_servers_forward_to_the_other_rail_over_nvlink():
    fabric = rail_only(4, radix=64)
    net = attach_servers(fabric, hardware.server("dgx-h100"), fabric.hosts.reshape(4, 8))
    gpu = net.hosts.reshape(4, 8)
    with pytest.raises(fb.InfeasibleError):
        rates(net, gpu[0, :1], gpu[1, 3:4])
    assert rates(net, gpu[0, :1], gpu[1, 3:4], rails="forward").tolist() == [50.0]
    assert net.labels.about["rails"] == "forward"
    # Every GPU to every GPU of the next server: each NIC carries what 8 senders bring to its rail.
    src, dst = np.repeat(gpu[0], 8), np.tile(gpu[1], 8)
    found = rates(net, src, dst, rails="forward")
    np.testing.assert_allclose(found, 50 / 8, rtol=1e-12)


def test_isolated_rails_have_no_uniform_design():
    net = rail_only(12, rails=2, radix=8)
    assert "rails are isolated" in fb.topologies.why_not_uniform(net)


# Planes.


def test_eight_planes_of_512_ports_have_the_published_counts(published):
    want = published["azure_mrc_two_tier"]
    found = sizes("multi_plane", servers=want["nics"], planes=8, rails=1, radix=512)
    assert found.endpoints == want["nics"]
    assert found.nodes["leaf"] == 8 * 512
    assert found.nodes["spine"] == 8 * want["t1_per_plane"]
    assert found.switches == want["switches_total"] == 8 * want["switches_per_plane"]
    assert found.cables["host"] == 8 * want["links_host_per_plane"]
    assert found.cables["leaf-spine"] == 8 * want["links_t0_t1_per_plane"]
    assert found.paths == want["paths_all_planes"] == 8 * want["paths_per_plane_diff_t0"]
    assert found.hops == want["max_switch_hops"]


def test_planes_share_nothing_and_each_carries_its_part():
    net = multi_plane(16, planes=4, rails=2, radix=8, capacity="100Gb/s")
    plane = net.labels.tags["plane"]
    assert [set(plane[group].tolist()) for group in parts(net)] == [{0}, {1}, {2}, {3}]
    assert net.labels.about["routing"] == "spray"
    host = net.hosts
    to = np.roll(host, 7)
    np.testing.assert_allclose(rates(net, host, to), 50.0, rtol=1e-12)
    lost = [name for name in net.labels.names if name.startswith("plane2-")]
    np.testing.assert_allclose(rates(net.without(nodes=lost), host, to), 37.5, rtol=1e-12)


def test_a_plane_may_have_three_tiers():
    net = multi_plane(20, planes=2, rails=2, radix=8, tiers=3)
    one = rail_optimized(20, rails=2, radix=8, tiers=3)
    both, single = sizes_of(net), sizes_of(one)
    for kind in ("leaf", "spine", "core"):
        assert both.nodes[kind] == 2 * single.nodes[kind]
    assert len(parts(net)) == 2
    assert "plane1-core0" in set(net.labels.names)
    assert switches_between(net, 0, 39) == 5


def test_dual_tor_and_dual_plane_have_the_published_counts(published):
    want = published["alibaba_hpn7_pod"]
    net = hpn()
    found, tags, labels = sizes_of(net), net.labels.tags, net.labels
    assert np.bincount(tags["unit"][net.hosts]).tolist() == [want["gpus_per_segment"]] * 15
    assert found.nodes == {"nic": want["gpus"], "leaf": want["tors"], "spine": want["aggs"]}
    assert found.cables["host"] == want["links_host_tor_200g"]
    assert found.cables["leaf-spine"] == want["links_tor_agg_400g_dual_plane"]
    assert set(ports(net, "spine")) == {want["agg_ports_down"]}
    capacity = np.asarray(net.capacity)
    down, up = (capacity[labels.is_tier(tier)].sum() for tier in ("host", "leaf-spine"))
    assert down / up == pytest.approx(want["tor_oversub"], abs=5e-7)
    counted = sizes("hpn")
    assert counted.paths == want["paths_same_rail_diff_segment"]
    assert counted.hops == want["switches_same_rail_diff_segment"]
    assert sizes("hpn", segments=1, rails=1).hops == want["switches_same_rail_same_segment"]
    assert sizes("hpn", segments=1, rails=1).paths == want["paths_same_rail_same_segment"]
    assert len(parts(net)) == 2


def test_the_plane_is_chosen_at_the_nic_and_a_switch_hashes_once():
    net = hpn(segments=3)
    nic = net.hosts.reshape(-1, 8)
    routes = routing.ecmp(net, fb.Flows(nic[:128, 0], nic[256:, 0]), queue_pairs=4)
    plane = net.labels.tags["plane"]
    links = np.asarray(routes.hop_bundle).reshape(-1, 4)
    seen = plane[net.labels.dst[links[:, :3]]]
    assert (seen == seen[:, :1]).all()
    assert set(seen[:, 0].tolist()) == {0, 1}
    # NIC to ToR, up, down, ToR to NIC: only the way up is a choice of a switch.
    assert net.labels.about["routing"] == "ecmp"
    leaf = net.labels.is_kind("leaf")
    np.testing.assert_array_equal(leaf[net.labels.src[links[:, 1]]], True)
    assert sizes("hpn").paths == 2 * 60


def test_the_variants_of_dual_tor_have_the_published_counts(published):
    one = sizes("hpn", planes=1)
    want = published["alibaba_hpn7_pod"]
    assert one.cables["leaf-spine"] == want["links_tor_agg_single_plane_variant"]
    assert len(parts(hpn(segments=2, hosts_per_segment=4, planes=1, aggs=4))) == 1
    vendor, found = (
        published["hpn_1to1_vendor_variant"],
        sizes("hpn", segments=8, tor_up=64, aggs=64),
    )
    assert found.endpoints == vendor["gpus"]
    assert found.cables["host"] * 200 / (found.cables["leaf-spine"] * 400) == vendor["oversub"]
    assert found.cables["host"] == 8 * vendor["down_ports_per_segment"]


def test_counts_of_a_published_topology_generator_are_met(published):
    want = published["simai_template_counts"]
    chips = lambda gpus: gpus // 8  # the generator has one NVSwitch per server
    for key, found in (
        ("spectrumx_4096", sizes("rail_optimized", servers=512, radix=128, spines=64)),
        ("alibabahpn_dualplane_15360", sizes("hpn")),
        ("alibabahpn_singleplane_15360", sizes("hpn", planes=1)),
    ):
        gpus = found.endpoints
        assert gpus + chips(gpus) + found.switches == want[key]["nodes"], key
        assert found.n_cables + gpus == want[key]["links"], key  # and one NVLink per GPU
    nodes, _, servers, switches, links = want["spectrumx_16gpu_file_header"]
    small = sizes("rail_optimized", servers=servers, radix=128, spines=64)
    assert (small.switches, small.endpoints + servers + small.switches) == (switches, nodes)
    assert small.n_cables + small.endpoints == links


def test_cores_of_dual_plane_pods_are_fifteen_to_one(published):
    want = published["alibaba_hpn7_pod"]["agg_core_oversub"]
    found = sizes("hpn", pods=4, agg_up=8)
    assert found.cables["leaf-spine"] / found.cables["spine-core"] == want
    net = hpn(2, hosts_per_segment=4, rails=2, aggs=4, pods=3, agg_up=2, core_radix=8)
    assert len(parts(net)) == 2
    assert switches_between(net, 0, len(net.hosts) - 2) == 5
    assert max(sizes_of(net).ports[kind] for kind in ("spine", "core")) <= 8


# Real sizes with servers.


@pytest.mark.parametrize("pods", ["units", "rails"])
def test_65536_gpus_in_servers_have_1_to_1_tiers(pods):
    fabric = rail_optimized(8192, radix=128, tiers=3, pods=pods)
    net = attach_servers(fabric, hardware.server("dgx-h100"), fabric.hosts.reshape(8192, 8))
    found = sizes_of(net)
    assert len(net.hosts) == 65_536
    assert {found.cables[tier] for tier in ("host", "leaf-spine", "spine-core")} == {65_536}


# What is refused, and how.


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("clos:hosts=9,tiers=1", r"2, 3 or 4 tiers. For one tier use `single_switch\(hosts\)`"),
        ("clos:hosts=9,tiers=0", r"needs 2, 3 or 4 tiers. For one tier"),
        ("clos:hosts=9,tiers=3,pods_per_zone=2", "`pods_per_zone` needs `tiers=4`, but `tiers=3`"),
        ("clos:hosts=9,core_radix=8", "`core_radix` needs `tiers=3`, but `tiers=2`"),
        ("clos:hosts=9,tiers=4,radix=4,pods_per_zone=3",
         "`pods_per_zone=3` is more than the 2 ports down of a spine of radix 4. Use at most 2"),
        ("clos:hosts=9,tiers=3,core_oversubscription=99",
         "leaves a switch of radix 64 with 0 ports down and 0 up. Use a ratio from 0.0159 to 63"),
        ("clos:hosts=33,radix=4,tiers=4", r"beyond 4 tiers .* reach 32 hosts \(16 leaves of 2\)"),
        ("clos:hosts=9,uplink_capacity=500Gb/s",
         "no whole multiple of `capacity=400Gb/s`.* Use 400Gb/s, the same"),
        ("clos:hosts=9,uplink_capacity=100Gb/s", "Use 400Gb/s, the same"),
        ("clos:hosts=9,capacity=50GB/s,uplink_capacity=110GB/s", "Use 100.00 GB/s, 2 times"),
        ("clos:hosts=1159,radix=3,tiers=3,spine_radix=32,leaves_per_pod=2",
         r"reach 64 hosts \(64 leaves of 1\)\. Use a larger `radix`"),
        ("clos:hosts=40,radix=8,tiers=3,core_radix=6,hosts_per_leaf=2,leaves_per_pod=1",
         r"Use `tiers=4` \(up to 48 hosts\), larger pods, a larger"),
        ("rail_optimized:servers=9,tiers=3,pods=rails,radix=2,core_oversubscription=3",
         "Use a larger `radix` or a smaller `core_oversubscription`"),
        ("rail_optimized:servers=300,spines=16",
         "Use `tiers=3` without `spines` or `radix=72` without `spines`"),
        ("hpn:segments=100", "need 800 of its ports, but `radix=128`. Use at most `segments=16`"),
        ("hpn:tor_up=64,aggs=64,hosts_per_segment=129",
         "need 129 ports of a ToR, .* Use at most `hosts_per_segment=128`, or `radix=129`"),
        ("hpn:planes=1,radix=128", "need 184 ports of a ToR"),
        ("rail_optimized:servers=9,tiers=4", r"needs 2 or 3 tiers.* for four `clos"),
        ("rail_optimized:servers=9,pods=rails", "`pods` needs `tiers=3`, but `tiers=2`"),
        ("rail_optimized:servers=9,tiers=3,pods=rail", r"Did you mean 'rails'\?"),
        ("rail_optimized:servers=9,tiers=3,rails=33", "Use `pods='rails'` or a larger `radix`"),
        ("rail_optimized:servers=9,tiers=3,units_per_pod=5",
         "with 8 leaves each are more than the 32 ports down .* Use at most 4"),
        ("rail_optimized:servers=8193,tiers=3",
         r"needs 65 pods, but three tiers of radix 64 stop at 64: 8,192 servers with 8 rails"),
        ("rail_only:servers=2049",
         r"reach 2,048 servers. Use `radix=66`, or `rail_optimized\(servers=2049, tiers=3"),
        ("multi_plane:servers=257,planes=2", r"`multi_plane\(servers=257\)` needs 72 leaves"),
        ("hpn:tor_up=50", "`tor_up=50` is no multiple of `aggs=60`.* Use `tor_up=60`"),
        ("hpn:pods=2", "`pods=2` need cores between them. Give `agg_up`, such as 8"),
        ("hpn:planes=3", "`planes` needs a whole number from 1 to 2, but got 3"),
        ("hpn:pods=200,agg_up=8", "more than the 128 ports of a core"),
    ],
)  # fmt: skip
def test_impossible_numbers_are_refused_with_the_next_step(spec, said):
    with pytest.raises(fb.ModelError, match=said):
        build(spec)


REACHES = r"which reach ([\d,]+) .* Use `tiers=(\d)` \(up to ([\d,]+) hosts\)"


@given(
    hosts=st.integers(50, 3000), radix=st.integers(3, 10), spine_radix=st.integers(3, 12),
    core_radix=st.integers(3, 12), leaves_per_pod=st.none() | st.integers(1, 3),
    core_oversubscription=st.sampled_from([1, 2]),
)  # fmt: skip
def test_tiers_that_are_suggested_hold_what_they_are_said_to(hosts, **asked):
    try:
        sizes("clos", hosts=hosts, tiers=3, **asked)
    except fb.ModelError as error:
        said = re.search(REACHES, str(error))
    else:
        said = None
    if said:
        now, tiers, most = (int(number.replace(",", "")) for number in said.groups())
        assert now < hosts <= most
        assert sizes("clos", hosts=now, tiers=3, **asked).nodes["host"] == now
        assert sizes("clos", hosts=most, tiers=tiers, **asked).nodes["host"] == most
        with pytest.raises(fb.ModelError, match="beyond 4 tiers"):
            sizes("clos", hosts=most + 1, tiers=tiers, **asked)


def test_a_tor_of_two_planes_has_room_for_the_backup_hosts():
    # 60 uplinks of 400 Gb/s and 136 ports of 200 Gb/s are 51.2 Tb/s.
    assert sizes("hpn", hosts_per_segment=136).ports["leaf"] == 136 + 60
    with pytest.raises(fb.ModelError, match="Use at most `hosts_per_segment=136`"):
        sizes("hpn", hosts_per_segment=137)
