"""What `topologies.sizes` promises: the counts of what would be built, at any size."""

import json
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

import fabric as fb
from fabric.topologies import BUILDERS, COUNTS, Sizes, build, sizes, sizes_of

BUILT = [
    "leaf_spine:leaves=3,spines=2,hosts_per_leaf=4,cables_per_pair=2",
    "leaf_spine:leaves=3,spines=2,hosts_per_leaf=4+0+1",
    "fat_tree:k=4",
    "single_switch:hosts=3",
    "full_mesh:nodes=5",
    "clos:hosts=3,radix=8",
    "clos:hosts=13,radix=8,oversubscription=3",
    "clos:hosts=101,radix=8,tiers=3",
    "clos:hosts=101,radix=8,spine_radix=16,core_radix=12,tiers=3,core_oversubscription=3",
    "clos:hosts=15,radix=4,tiers=4,leaves_per_pod=1,pods_per_zone=2,hosts_per_leaf=2",
    "clos:hosts=90,radix=6,tiers=4,spine_oversubscription=2,core_oversubscription=0.5",
    "clos:hosts=40,radix=8,capacity=200Gb/s,uplink_capacity=400Gb/s",
    "rail_optimized:servers=5,rails=2,radix=8",
    "rail_optimized:servers=31,rails=2,radix=8,tiers=3",
    "rail_optimized:servers=31,rails=2,radix=8,tiers=3,pods=rails,units_per_pod=3",
    "rail_optimized:servers=20,rails=3,radix=16,tiers=3,core_oversubscription=3,spines=8",
    "rail_only:servers=4,rails=3,radix=4",
    "rail_only:servers=7,rails=3,radix=4,planes=2",
    "multi_plane:servers=9,planes=3,rails=2,radix=8",
    "multi_plane:servers=25,planes=2,rails=2,radix=8,tiers=3",
    "hpn:segments=3,hosts_per_segment=4,rails=2,aggs=3,tor_up=6",
    "hpn:segments=3,hosts_per_segment=4,rails=2,planes=1,aggs=6",
    "hpn:segments=2,hosts_per_segment=2,rails=2,aggs=2,pods=3,agg_up=4,core_radix=8",
]


def counts(found):
    return found.nodes, found.cables, found.ports


def ways(net):
    """Most switches and the paths on the longest of the shortest paths between two endpoints."""
    labels, graph = net.labels, nx.Graph()
    ends = zip(labels.src[::2].tolist(), labels.dst[::2].tolist(), strict=True)
    for a, b in ends:
        times = graph.get_edge_data(a, b, {"cables": 0})["cables"] + 1
        graph.add_edge(a, b, cables=times)
    # A host forwards nothing, so hosts other than the two ends are not in the way.
    inner = graph.subgraph([v for v in graph if labels.forwards[v]]).copy()
    hosts, best = net.hosts.tolist(), (0, 0, 0)
    longest = -1
    for a in hosts[:1]:
        for b in hosts[1:]:
            one = inner.copy()
            for end in (a, b):
                one.add_edges_from((end, v, graph[end][v]) for v in graph[end])
            if not nx.has_path(one, a, b):
                continue
            found = list(nx.all_shortest_paths(one, a, b))
            if len(found[0]) - 2 > longest:
                longest = len(found[0]) - 2
                along = [
                    math.prod(one[u][v]["cables"] for u, v in nx.utils.pairwise(p)) for p in found
                ]
                best = (longest, len(found), sum(along))
    return best


def answer(function, *arguments, **keywords):
    """What a function returns, or why it refuses."""
    try:
        return function(*arguments, **keywords), None
    except fb.ModelError as error:
        return None, str(error)


@pytest.fixture(scope="module")
def generic(shared):
    entries = json.loads((shared / "validation" / "topologies.json").read_text())
    return {e["name"]: e for e in entries if e["kind"] == "generic"}


def test_every_builder_can_be_counted():
    assert set(COUNTS) == set(BUILDERS)


@pytest.mark.parametrize("spec", BUILT)
def test_counts_are_those_of_what_is_built(spec):
    assert counts(sizes(spec)) == counts(sizes_of(build(spec)))


@pytest.mark.parametrize("spec", BUILT)
def test_hops_and_paths_are_those_that_a_search_finds(spec):
    found = sizes(spec)
    assert (found.hops, found.paths, found.cable_paths) == ways(build(spec))


@given(
    st.integers(1, 200), st.integers(2, 9), st.sampled_from([2, 3, 4]),
    st.sampled_from([0.5, 1, 2, 3]), st.sampled_from([1, 2]),
)  # fmt: skip
def test_a_clos_of_any_numbers_is_counted_or_refused_as_it_is_built(hosts, radix, tiers, down, up):
    asked = {"hosts": hosts, "radix": radix, "tiers": tiers, "oversubscription": down}
    if tiers > 2:
        asked["core_oversubscription"] = up
    (found, why), (net, same) = answer(sizes, "clos", **asked), answer(fb.topologies.clos, **asked)
    assert why == same
    if found is not None:
        assert counts(found) == counts(sizes_of(net))
        assert max(found.ports.values()) <= radix


@pytest.mark.parametrize("radix", [32, 40, 64, 128, 144, 256, 512])
def test_folded_clos_has_its_published_numbers_at_every_size(generic, radix):
    want = generic[f"folded_clos_radix{radix}"]["expected"]
    for tiers in (1, 2, 3, 4):
        hosts = want[f"hosts_{tiers}tier"]
        found = (
            sizes("single_switch", hosts=hosts)
            if tiers == 1
            else sizes("clos", hosts=hosts, radix=radix, tiers=tiers)
        )
        assert found.endpoints == hosts == 2 * (radix // 2) ** tiers
        assert found.switches == want[f"switches_{tiers}tier"]
        assert found.n_cables == want[f"links_{tiers}tier_incl_host"]
        assert found.hops == want[f"switch_hops_max_{tiers}tier"]
        assert found.paths == want[f"paths_max_{tiers}tier"]
        assert max(found.ports.values()) == radix
        if tiers > 1:
            with pytest.raises(fb.ModelError, match=f"beyond {tiers} tiers"):
                sizes("clos", hosts=hosts + 1, radix=radix, tiers=tiers)


def test_fat_trees_and_meshes_have_their_published_numbers(generic):
    for name, entry in generic.items():
        want, params = entry["expected"], entry["params"]
        if name.startswith("fattree"):
            found = sizes("fat_tree", k=params["k"])
            keys = ("hosts", "edge", "agg", "core")
            assert list(found.nodes.values()) == [want[key] for key in keys], name
            assert found.n_cables == want["links_total"], name
            assert found.switches == want["switches"], name
            assert (found.hops, found.paths) == (
                want["switches_other_pod"], want["paths_other_pod"],
            ), name  # fmt: skip
        if name.startswith("full_mesh"):
            found = sizes("full_mesh", nodes=params["n"])
            assert found.n_cables == want["cables"], name
            assert found.ports["node"] == want["ports_per_node"], name


def test_the_networks_of_a_published_comparison_have_its_counts(generic):
    want = generic["deepseek_table3_topologies"]["expected"]
    # The multi-plane network of eight planes is one fabric per NIC of a server: eight rails.
    for row, found in (
        ("FT2", sizes("clos", hosts=2048, radix=64)),
        ("FT3", sizes("clos", hosts=65536, radix=64, tiers=3)),
        ("MPFT", sizes("rail_only", servers=2048, rails=8, radix=64)),
    ):
        assert found.endpoints == want[row]["endpoints"]
        assert found.switches == want[row]["switches"]
        assert found.n_cables - found.cables["host"] == want[row]["links"]


def test_text_and_arguments_say_the_same():
    found = sizes("clos", hosts=100, radix=8, tiers=3)
    assert sizes("clos:hosts=100,radix=8,tiers=3") == found
    assert sizes("clos:hosts=100", radix=8, tiers=3) == found
    assert sizes("rail-only", servers=3) == sizes("rail_only:servers=3")


def test_a_named_cluster_is_counted_too():
    found = sizes("dgx-h100:nodes=127")
    assert (found.nodes["gpu"], found.nodes["leaf"], found.nodes["spine"]) == (1016, 32, 16)
    assert found.cables["leaf-spine"] == 1024
    assert sizes("dgx-h100", nodes=127) == found


def test_a_network_larger_than_any_memory_is_counted_and_not_built():
    asked = {"hosts": 8_589_934_592, "radix": 512, "tiers": 4}
    assert sizes("clos", **asked).n_cables == 34_359_738_368
    with pytest.raises(fb.ModelError, match="the limit is"):
        fb.topologies.clos(**asked)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("clo", {}, r"no such builder. Did you mean 'clos'\?"),
        ("clos", {"host": 3}, r"no argument 'host'. Did you mean 'hosts'\?"),
        ("clos", {"radix": 8}, r"`clos` needs 'hosts'"),
        ("clos", {"hosts": 0}, r"`hosts` needs a whole number of 1 or more"),
        ("clos:hosts=three", {}, r"'hosts' needs a whole number, but got 'three'"),
        ("fat_tree", {"k": 7}, r"needs an even k. Use k=6 or k=8"),
    ],
    ids=["builder", "argument", "missing", "zero", "text", "odd"],
)
def test_what_cannot_be_counted_is_refused(name, arguments, said):
    with pytest.raises(fb.ModelError, match=said):
        sizes(name, **arguments)


def test_failed_cables_count():
    net = build("leaf_spine:leaves=2,spines=2,hosts_per_leaf=1")
    assert counts(sizes_of(net.without(nodes=["spine0"]))) == counts(sizes_of(net))


def test_what_forwards_nothing_is_no_switch():
    found = Sizes({"gpu": 8, "nic": 8, "leaf": 3}, {"host": 8}, {"gpu": 1, "nic": 2, "leaf": 3})
    assert (found.endpoints, found.switches, found.n_nodes) == (16, 3, 19)
    assert np.all([n > 0 for n in found.cables.values()])
