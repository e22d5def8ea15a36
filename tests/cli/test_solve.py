"""What `fabric solve` answers, in text and JSON."""

import json

import numpy as np
import pytest

import fabric as fb
from fabric import readers, routing, topologies, traffic
from fabric.cli._demo import demo_network

SMALL = "leaf_spine:leaves=2,spines=2,hosts_per_leaf=2,capacity=400Gb/s"
FIELDS = {
    "schema", "flows", "links_used", "links_present", "routing", "rate", "tiers", "bottlenecks",
    "method", "rounds", "certificate", "result", "assumptions", "endpoints",
}  # fmt: skip


@pytest.fixture
def gappy(tmp_path):
    """Four leaves, two spines, two cables per pair; one cable of one pair is not there."""
    net = topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=4, cables_per_pair=2)
    labels = net.labels
    between = (labels.src == labels.node("leaf1")) & (labels.dst == labels.node("spine0"))
    keep = labels.cable_of != labels.cable_of[between][0]
    partial = fb.Network(np.asarray(net.capacity)[keep], labels=labels.keep_links(keep))
    return readers.write_node_link(partial, tmp_path / "gappy.json")


def test_json_has_every_field_and_the_right_numbers(fabric):
    answer = fabric("solve", SMALL, "--pattern", "all-to-all", "--routing", "spray",
                    "--format", "json").json  # fmt: skip
    assert set(answer) >= FIELDS | {"per_endpoint"}
    assert answer["schema"] == "fabric.solve/1"
    assert answer["flows"] == 12
    assert answer["endpoints"] == 4
    # 3 flows leave every host over its 50 GB/s link, and the spines carry 8 of them on 400 GB/s.
    assert answer["rate"]["min"] == pytest.approx(50e9 / 3)
    assert answer["per_endpoint"]["slowest"] == pytest.approx(50e9)
    assert answer["rate"]["total"] == pytest.approx(4 * 50e9)
    assert answer["result"] == "converged"
    assert answer["certificate"] <= 1e-9
    assert {row["tier"]: row["saturated"] for row in answer["tiers"]} == {
        "host": 8,
        "leaf-spine": 0,
    }
    assert {row["name"] for row in answer["assumptions"]} >= {"routing", "endpoints"}


def test_bottlenecks_have_names_tiers_and_counts(fabric):
    answer = fabric("solve", SMALL, "--pattern", "incast", "--format", "json").json
    (row,) = answer["bottlenecks"]
    assert row["flows"] == 3
    assert row["tier"] == "host"
    assert row["link"].startswith("leaf")
    assert row["utilisation"] == pytest.approx(1.0)
    assert row["level"] == pytest.approx(50e9 / 3)


def test_bottlenecks_come_slowest_first_and_can_be_of_one_tier(fabric, gappy):
    args = ["solve", gappy, "--pattern", "all-to-all", "--routing", "spray", "--format", "json"]
    levels = [row["level"] for row in fabric(*args, "--top", 99).json["bottlenecks"]]
    assert len(levels) > 2
    assert levels == pytest.approx(sorted(levels))
    hosts = fabric(*args, "--tier", "host").json["bottlenecks"]
    assert {row["tier"] for row in hosts} == {"host"}
    assert fabric(*args, "--top", 0).json["bottlenecks"] == []


def test_the_library_gives_the_same_rates(fabric):
    answer = fabric("solve", "fat_tree:k=4", "--pattern", "permutation", "--seed", 3,
                    "--format", "json").json  # fmt: skip
    net = topologies.fat_tree(4)
    routes = routing.ecmp(net, traffic.permutation(net.hosts, seed=3), seed=3)
    rates = np.asarray(fb.max_min_rates(net, routes).rates)
    assert answer["rate"]["min"] == pytest.approx(rates.min())
    assert answer["rate"]["total"] == pytest.approx(rates.sum())


@pytest.mark.parametrize("method", ["rounds", "compiled"])
def test_methods_agree_and_are_named(fabric, method):
    answer = fabric("solve", "fat_tree:k=4", "--pattern", "ring", "--method", method,
                    "--format", "json").json  # fmt: skip
    auto = fabric("solve", "fat_tree:k=4", "--pattern", "ring", "--format", "json").json
    assert method in answer["method"]
    assert answer["rate"] == pytest.approx(auto["rate"])


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(fabric):
    args = ["solve", "fat_tree:k=4", "--pattern", "permutation", "--format", "json", "--seed"]
    assert fabric(*args, 1).out == fabric(*args, 1).out
    assert fabric(*args, 1).out != fabric(*args, 2).out


def test_queue_pairs_are_summed_per_flow(fabric):
    args = ["solve", SMALL, "--pattern", "incast", "--format", "json"]
    one, four = fabric(*args).json, fabric(*args, "--queue-pairs", 4).json
    assert four["flows"] == one["flows"] == 3
    assert four["rate"]["total"] == pytest.approx(one["rate"]["total"])
    assert [row["flows"] for row in four["bottlenecks"]] == [3]


def test_builders_are_hashed_and_infiniband_files_sprayed(fabric):
    ring = ["--pattern", "ring", "--format", "json"]
    assert fabric("solve", SMALL, *ring).json["routing"]["name"] == "ecmp"
    demo = fabric("solve", "demo", *ring).json["routing"]
    assert demo["name"] == "spray"
    assert "InfiniBand adaptive routing, taken as ideal spray" in demo["why"]


def test_text_states_the_routing_and_the_seed(fabric):
    out = fabric("solve", SMALL, "--pattern", "ring", "--seed", 7).out
    assert "routing: ecmp, seed 7" in out


def test_hosts_narrow_the_endpoints_by_node_or_host_name(fabric):
    few = fabric("solve", SMALL, "--pattern", "all-to-all", "--hosts", "leaf0-*",
                 "--format", "json").json  # fmt: skip
    assert (few["endpoints"], few["flows"]) == (2, 2)
    host = fabric("solve", "demo", "--pattern", "all-to-all", "--hosts", "server12",
                  "--no-compare", "--format", "json").json  # fmt: skip
    assert host["endpoints"] == 8


def test_flow_files_and_matrices_are_read(fabric, tmp_path):
    flows, matrix = tmp_path / "flows.csv", tmp_path / "matrix.csv"
    flows.write_text("src,dst,size,cap\nleaf0-host0,leaf1-host0,1GB,10GB/s\n")
    answer = fabric("solve", SMALL, "--flows", flows, "--format", "json").json
    assert answer["rate"]["max"] == pytest.approx(10e9)
    assert answer["bottlenecks"] == []
    matrix.write_text("0,1,0,0\n0,0,0,0\n0,0,0,1\n0,0,0,0\n")
    assert fabric("solve", SMALL, "--matrix", matrix, "--format", "json").json["flows"] == 2


def test_a_failed_spine_halves_what_leaves_a_rack(fabric):
    args = ["solve", SMALL, "--pattern", "all-to-all", "--routing", "spray", "--format", "json"]
    whole = fabric(*args, "--no-compare").json
    half = fabric(*args, "--no-compare", "--failed", "spine1").json
    assert half["links_present"] == whole["links_present"] - 4
    # Four flows share the one cable that is left of each leaf.
    assert half["rate"]["min"] == pytest.approx(50e9 / 4)
    assert half["fabric"]["failed"] == ["spine1"]


def test_a_failed_host_takes_no_part(fabric):
    answer = fabric("solve", SMALL, "--pattern", "all-to-all", "--failed", "leaf0-host0",
                    "--format", "json").json  # fmt: skip
    assert (answer["endpoints"], answer["endpoints_failed"]) == (3, 1)


def test_missing_cables_are_compared_with_the_uniform_design(fabric, gappy):
    args = ["solve", gappy, "--pattern", "all-to-all", "--routing", "spray", "--format", "json"]
    answer = fabric(*args).json
    design = answer["uniform_design"]
    assert (design["cables"], design["have"], design["missing"]) == (16, 15, 1)
    assert design["slowest"] == pytest.approx(50e9)
    # Half of 12 flows to each of leaf1's hosts come down one cable instead of two.
    assert answer["per_endpoint"]["slowest"] == pytest.approx(15 * 50e9 / 24)
    assert design["cost"]["slowest"] == pytest.approx(1 - 15 / 24)
    assert "uniform_design" not in fabric(*args, "--no-compare").json


def test_plugging_the_only_missing_cable_restores_the_design(fabric, gappy):
    args = ["solve", gappy, "--pattern", "all-to-all", "--routing", "spray", "--plug"]
    plug = fabric(*args, "--format", "json").json["plug"]
    (best,) = plug["cables"]
    assert (best["leaf"], best["spine"]) == ("leaf1", "spine0")
    assert best["slowest"] == pytest.approx(50e9)
    assert plug["raises_slowest"]
    said = " ".join(fabric(*args).lines[-4:])
    assert "The missing cable costs the slowest flow 37.5 %" in said
    assert "Plug leaf1 - spine0 first" in said


def test_nothing_to_plug_is_said_and_no_error(fabric):
    ran = fabric("solve", SMALL, "--pattern", "ring", "--plug")
    assert ran.code == 0
    assert "none is missing" in ran.err


def test_cables_that_tie_are_ranked_by_the_mean(fabric, tmp_path):
    net = topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=4, cables_per_pair=2)
    labels = net.labels
    keep = np.ones(net.n_links, bool)
    for leaf in ("leaf1", "leaf2"):
        between = (labels.src == labels.node(leaf)) & (labels.dst == labels.node("spine0"))
        keep &= labels.cable_of != labels.cable_of[between][0]
    partial = fb.Network(np.asarray(net.capacity)[keep], labels=labels.keep_links(keep))
    file = readers.write_node_link(partial, tmp_path / "two.json")
    args = ["solve", file, "--pattern", "all-to-all", "--routing", "spray", "--plug"]
    plug = fabric(*args, "--format", "json").json["plug"]
    assert not plug["raises_slowest"]
    assert plug["ranked_by"] == "mean rate"
    assert "No single cable raises the slowest flow" in " ".join(fabric(*args).lines[-5:])


def test_the_answer_goes_into_a_file_whole(fabric, tmp_path):
    target = tmp_path / "answer.json"
    ran = fabric("solve", SMALL, "--pattern", "ring", "--format", "json", "-o", target)
    assert ran.out == ""
    assert json.loads(target.read_text())["schema"] == "fabric.solve/1"
    assert list(tmp_path.iterdir()) == [target]


def test_the_demo_tells_its_story_on_one_screen(fabric):
    ran = fabric("solve", "demo", "--pattern", "all-to-all", "--plug")
    assert len(ran.lines) <= 40
    assert max(map(len, ran.lines)) <= 100
    assert "\x1b" not in ran.out
    said = " ".join(ran.lines[-5:])
    assert "The 13 missing cables cost the slowest flow 49.1 %" in said
    assert "Plug unit3-leaf1 - spine9 first" in said


def test_the_shipped_demo_is_what_its_maker_writes(fabric, tmp_path):
    import gzip

    from fabric.cli._demo import write_demo
    from fabric.cli._subject import DEMO

    made = write_demo(tmp_path / DEMO.name)
    # Unpacked, since compression may differ between builds of zlib.
    assert gzip.decompress(made.read_bytes()) == gzip.decompress(DEMO.read_bytes())
    assert demo_network().n_links == 2 * (1024 + 1011)


def test_the_real_dump_by_spray(fabric, dump):
    answer = fabric("solve", dump, "--pattern", "all-to-all", "--routing", "spray",
                    "--format", "json").json  # fmt: skip
    rates = answer["per_endpoint"]
    near = lambda value: pytest.approx(value, abs=0.05e9)  # quoted with one decimal of GB/s
    assert (answer["endpoints"], answer["flows"]) == (542, 542 * 541)
    assert rates["slowest"] == near(24.3e9)
    assert rates["median"] == near(48.6e9)
    assert rates["mean"] == near(47.5e9)
    assert answer["uniform_design"]["slowest"] == near(49.0e9)
    assert answer["uniform_design"]["cost"]["slowest"] == pytest.approx(0.504, abs=0.002)
    assert answer["bottlenecks"][0]["tier"] == "leaf-spine"


def test_the_real_dump_by_ecmp_fits_a_screen(fabric, dump):
    ran = fabric("solve", dump, "--pattern", "all-to-all", "--routing", "ecmp")
    assert len(ran.lines) <= 40
    assert "routing: ecmp, seed 0 (as asked for)" in ran.out
