"""What `fabric solve` answers, in text and JSON."""

import dataclasses
import json

import numpy as np
import pytest

import fabric as fb
from fabric import routing, topologies, traffic
from fabric.cli import _answer
from fabric.cli._demo import demo_network
from fabric.cli._units import cut_link
from tests.cli.conftest import SMALL

FIELDS = {
    "schema", "flows", "links_used", "links_present", "routing", "rate", "tiers", "bottlenecks",
    "method", "rounds", "certificate", "tie_margin", "result", "assumptions", "endpoints",
}  # fmt: skip


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
    # Every flow is stopped at both of its ends.
    assert answer["tie_margin"] == 0
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
    assert row["rate"] == row["level"] == pytest.approx(50e9 / 3)


def test_the_rate_at_a_bottleneck_is_that_of_its_slowest_flow_whatever_the_weights(
    fabric, tmp_path
):
    flows = tmp_path / "flows.csv"
    args = ["solve", SMALL, "--flows", flows, "--format"]
    rows = "leaf0-host0,leaf0-host1,1,{}\nleaf1-host0,leaf0-host1,1,{}\n"
    flows.write_text("src,dst,size,weight\n" + rows.format(4, 2))
    (row,) = fabric(*args, "json").json["bottlenecks"]
    # 50 GB/s by 4 to 2.
    assert row["rate"] == pytest.approx(50e9 / 3)
    assert row["level"] == pytest.approx(50e9 / 6)
    said = fabric(*args, "text").out
    assert "1 link stops flows " in said
    assert "16.67 GB/s  100.0 %" in said
    flows.write_text("src,dst,size,weight\n" + rows.format(1, 1) + "leaf0-host1,leaf1-host1,1,9\n")
    assert "2 links stop flows, lowest rate per weight first" in fabric(*args, "text").out


def test_queue_pairs_that_stop_at_one_link_count_together(fabric):
    args = ["solve", SMALL, "--pattern", "incast", "--queue-pairs", 4, "--format", "json"]
    (row,) = fabric(*args).json["bottlenecks"]
    assert row["rate"] == pytest.approx(50e9 / 3)


def test_no_bottleneck_is_dropped_for_not_counting_as_full(fabric, monkeypatch):
    whole = _answer.max_min_rates

    def short_of_full(*args, **options):
        solution = whole(*args, **options)
        return dataclasses.replace(solution, saturated=solution.saturated & False)

    monkeypatch.setattr(_answer, "max_min_rates", short_of_full)
    answer = fabric("solve", SMALL, "--pattern", "incast", "--format", "json").json
    assert len(answer["bottlenecks"]) == answer["bottleneck_links"] == 1


@pytest.mark.parametrize("ports", [("[31]", "[2]"), ("", ""), ("", "#1")])
@pytest.mark.parametrize("width", [30, 48, 80])
def test_a_long_link_name_keeps_its_ports_and_its_arrow(ports, width):
    long = "MF0;director-17:CS8500/L12/U1"
    name = cut_link(f"{long}{ports[0]}->spine0{ports[1]}", width)
    assert name.endswith(f"{ports[0]}->spine0{ports[1]}")
    assert name.startswith("MF0;")
    assert len(name) <= width


def test_the_footer_says_how_near_a_tie_is(fabric):
    args = ["solve", SMALL, "--pattern", "incast", "--routing", "spray"]
    out = fabric(*args).out
    assert "1 round, " in out
    # The receiver's link is full, and no other carries more than a third.
    assert "tie margin 0.7" in out
    assert fabric(*args, "--format", "json").json["tie_margin"] == pytest.approx(2 / 3)


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


def test_a_failed_spine_halves_what_leaves_a_rack(fabric):
    args = ["solve", SMALL, "--pattern", "all-to-all", "--routing", "spray", "--format", "json"]
    whole = fabric(*args, "--no-compare").json
    half = fabric(*args, "--no-compare", "--failed", "spine1").json
    assert half["links_present"] == whole["links_present"] - 4
    # Four flows share the one cable that is left of each leaf.
    assert half["rate"]["min"] == pytest.approx(50e9 / 4)
    assert half["fabric"]["failed"] == ["spine1"]


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


def test_the_real_dump_by_ecmp_is_consistent_and_one_draw_of_many(fabric, dump):
    args = ["solve", dump, "--pattern", "all-to-all", "--routing", "ecmp", "--no-compare"]
    answers = [fabric(*args, "--seed", seed, "--format", "json").json for seed in (0, 1)]
    for answer in answers:
        rate, each = answer["rate"], answer["per_endpoint"]
        assert answer["certificate"] <= 1e-9
        assert each["slowest"] <= each["median"] <= each["max"]
        assert each["slowest"] == pytest.approx(rate["min"] * 541)
        assert rate["total"] == pytest.approx(rate["mean"] * answer["flows"])
        # No endpoint sends more than its 400 Gb/s.
        assert rate["total"] <= 542 * 50e9 * (1 + 1e-9)
        slowest = answer["bottlenecks"][0]
        assert slowest["rate"] == pytest.approx(rate["min"])
        assert slowest["utilisation"] == pytest.approx(1.0)
    assert answers[0]["rate"]["min"] != answers[1]["rate"]["min"]


def test_the_real_dump_by_ecmp_fits_a_screen(fabric, dump):
    ran = fabric("solve", dump, "--pattern", "all-to-all", "--routing", "ecmp")
    assert len(ran.lines) <= 40
    assert "routing: ecmp, seed 0, salt switch, hash hop, key row (as asked for)" in ran.out
    assert ran.lines[-1] == "All of this is one hash draw, seed 0: try other seeds."


def test_control_characters_in_names_do_not_break_lines_of_the_text(fabric, tmp_path):
    odd = "a\nb\t\x1b[31m"
    links = [{"source": odd, "target": "z", "capacity": "1Gb/s"}]
    file = tmp_path / "graph.json"
    file.write_text(json.dumps({"nodes": [{"id": odd}, {"id": "z"}], "links": links}))
    ran = fabric("solve", file, "--pattern", "ring")
    assert r"a\nb\t\x1b[31m->z  " in ran.out
    assert not set("\t\x1b") & set(ran.out)
    answer = fabric("solve", file, "--pattern", "ring", "--format", "json").json
    assert {row["link"] for row in answer["bottlenecks"]} == {f"{odd}->z", f"z->{odd}"}
