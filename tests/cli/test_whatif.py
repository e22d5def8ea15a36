"""What `fabric whatif` says, in text and JSON, of a scenario and of a fabric."""

import json

import numpy as np
import pytest

import fabric as fb
from fabric.optimize import Change, linearize

FABRIC = "leaf_spine:leaves=2,spines=2,hosts_per_leaf=2,capacity=400Gb/s,uplink_capacity=100Gb/s"
ASKED = ("--pattern", "permutation", "--seed", 1, "--routing", "ecmp")


def listed(tmp_path, text):
    file = tmp_path / "changes.yaml"
    file.write_text(text)
    return file


def test_json_holds_the_rows_of_the_library(fabric):
    answer = fabric("whatif", FABRIC, *ASKED, "--each", "node", "--format", "json").json
    net = fb.topologies.build(FABRIC)
    routes = fb.routing.ecmp(net, fb.traffic.permutation(net.hosts, seed=1), seed=1)
    table = linearize(net, routes, "node", by=0.1)
    assert answer["what_ifs"] == table.as_dict()["what_ifs"]
    assert answer["schema"] == "fabric.whatif/1"
    assert (answer["objective"], answer["value"]) == ("slowest", table.value)


def test_a_scenario_counts_the_seconds_of_its_step(fabric):
    answer = fabric("whatif", "small", "--each", "tier", "--by", "1%", "--format", "json").json
    step = fabric("run", "small", "--format", "json").json["step_time_s"]
    assert answer["objective"] == "step time"
    assert answer["value"] == pytest.approx(step, rel=1e-12)
    more = {row["key"]: row for row in answer["what_ifs"] if row["by"] > 0}
    assert set(more) >= {"host", "leaf-spine", "nvlink"}
    assert more["nvlink"]["change"] < 0


def test_settings_of_a_scenario_count(fabric):
    args = ["whatif", "small", "--set", "run.placement=spread", "--format", "json"]
    step = fabric("run", *args[1:]).json["step_time_s"]
    assert fabric(*args).json["value"] == pytest.approx(step, rel=1e-12)


def test_changes_of_a_file_are_told_in_their_order(fabric, tmp_path):
    file = listed(
        tmp_path,
        "- {tier: leaf-spine, by: +10%}\n- {node: spine0, by: -50%}\n"
        "- {cable: leaf0->spine1, by: -100%}\n- {weight: [0, 1], by: 100 %}\n",
    )
    args = ["whatif", FABRIC, *ASKED, "--changes", file, "--objective", "mean"]
    rows = fabric(*args, "--format", "json").json["what_ifs"]
    net = fb.topologies.build(FABRIC)
    routes = fb.routing.ecmp(net, fb.traffic.permutation(net.hosts, seed=1), seed=1)
    asked = [Change("tier", "leaf-spine", 0.1), Change("node", "spine0", -0.5),
             Change("cable", "leaf0->spine1", -1.0), Change("weight", (0, 1), 1.0)]  # fmt: skip
    assert rows == linearize(net, routes, asked, "mean").as_dict()["what_ifs"]
    lines = fabric(*args).lines
    starts = [line.split("  ")[0] for line in lines[4:8]]
    assert starts == [
        "tier leaf-spine", "node spine0", "cable leaf0->spine1", "weight [0, 1]",
    ]  # fmt: skip


def test_the_text_says_how_each_row_is_known(fabric):
    lines = fabric("whatif", FABRIC, *ASKED, "--by", "10%").lines
    assert lines[0].startswith("permutation by ecmp on leaf_spine(")
    assert "4 changes" in lines[1]
    assert lines[3].split() == [
        "change", "links", "by", "first", "order", "slowest", "how", "line", "within",
    ]  # fmt: skip
    up = next(line for line in lines if line.startswith("tier leaf-spine") and "+10 %" in line)
    assert "linear" in up
    assert any("unchanged" in line for line in lines)


def test_rows_beyond_a_screen_are_counted(fabric):
    args = ["whatif", "fat_tree:k=4", "--pattern", "all-to-all", "--routing", "spray"]
    args += ["--each", "link", "--objective", "mean"]
    n = len(fabric(*args, "--format", "json").json["what_ifs"])
    assert n > 24
    assert f"and {n - 24:,} more, with `--format json`" in fabric(*args).lines


def test_at_most_so_many_rows_are_made(fabric):
    args = ["whatif", "fat_tree:k=4", "--pattern", "permutation", "--each", "link", "--most", 6]
    answer = fabric(*args, "--objective", "mean", "--format", "json").json
    assert len(answer["what_ifs"]) == 6
    assert "Raise `most`" in answer["left_out"][-1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--each", "teir"], "`--each teir` is not known. Did you mean 'tier'"),
        (["--objective", "slow"], "Did you mean 'slowest'"),
        (["--by", "10"], "needs percent, such as '+10%'"),
        (["--by", "0%"], "needs more than 0"),
        (["--changes", "none.yaml", "--each", "tier"], "and so does `--each`"),
        (["--changes", "none.yaml"], "`--changes none.yaml` cannot be read"),
        (["--set", "run.seed=1"], "`--set` is for scenarios"),
        (["--changes", "none.yaml", "--most", "9"], "and so does `--most`"),
        (["--capacity", "1Gb/s"], "`--capacity` says how to read a file"),
        (["--seed", "-1"], "needs a whole number from 0"),
    ],
)
def test_wrong_options_are_refused(refused, options, said):
    assert said in refused("whatif", FABRIC, *ASKED, *options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds nothing"),
        ("tier: host\n", "holds dict"),
        ("- host\n", "entry 1: it needs a line such as"),
        ("- {teir: host, by: 1%}\n", "Did you mean 'tier'"),
        ("- {tier: host, node: leaf0, by: 1%}\n", "Known: tier"),
        ("- {tier: host, by: 0.1}\n", "`by` needs percent"),
        ("- {tier: hosts, by: 1%}\n", "Did you mean 'host'"),
        ("- {cap: 0, by: -1%}\n", "have no cap"),
        ("- {cap: 99, by: -1%}\n", "numbers of flows from 0 to 3"),
    ],
)
def test_a_wrong_file_says_which_entry_and_why(refused, tmp_path, text, said):
    file = listed(tmp_path, text)
    assert said in refused("whatif", FABRIC, *ASKED, "--changes", file)


def test_all_wrong_entries_are_told_at_once(refused, tmp_path):
    file = listed(tmp_path, "- {tier: host, by: 5}\n- {tier: host, by: 1%}\n- {x: y, by: 1%}\n")
    said = refused("whatif", FABRIC, *ASKED, "--changes", file)
    assert "entry 1" in said
    assert "entry 3" in said
    assert "entry 2" not in said


def test_a_fabric_without_flows_and_a_scenario_with_them_say_what_to_do(refused):
    assert "say which flows count" in refused("whatif", FABRIC)
    assert "add `--pattern all-to-all`" in refused("whatif", "small", "--objective", "mean")
    assert "`--host-pattern` is for a fabric" in refused("whatif", "small", "--host-pattern", "x")


def test_a_file_that_says_no_capacities_gets_them_on_the_command_line(fabric, refused, tmp_path):
    file = tmp_path / "graph.json"
    links = [{"source": "a", "target": "b"}, {"source": "b", "target": "c"}]
    file.write_text(json.dumps({"nodes": [{"id": n} for n in "abc"], "links": links}))
    asked = ["whatif", file, "--pattern", "all-to-all", "--each", "cable"]
    assert "`--capacity" in refused(*asked)
    answer = fabric(*asked, "--capacity", "8Gb/s", "--format", "json").json
    # Each cable carries its own pair and that of the two ends, each way.
    assert answer["value"] == pytest.approx(5e8)


def test_a_change_of_everything_by_a_tenth_is_a_tenth(fabric, tmp_path):
    file = listed(tmp_path, "- {tier: host, by: -10%}\n- {tier: leaf-spine, by: -10%}\n")
    args = ["whatif", FABRIC, *ASKED, "--changes", file, "--format", "json"]
    rows = fabric(*args).json["what_ifs"]
    # One of the two tiers holds the slowest flow, and a permutation has no other limit.
    np.testing.assert_allclose(min(row["change"] for row in rows), -0.1, rtol=1e-12)
