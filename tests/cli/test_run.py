"""What `fabric run` promises: one screen, JSON, exit codes, and one clear error per fault."""

import json
import re
from pathlib import Path

import pytest
import yaml

from fabric.scenario import Answer, Scenario

SMALL = [
    "demo", "--set", "fabric.nodes=8", "--set", "layout.pp=1", "--set", "layout.dp=8",
    "--set", "layout.gbs=64", "--set", "model=llama-3.1-8b", "--set", "cases=[]",
]  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]


def small(*settings):
    return [*SMALL, *(piece for setting in settings for piece in ("--set", setting))]


# Answers


def test_the_demo_is_one_screen_and_prints_both_step_changes(fabric):
    lines = fabric("run", "demo").lines
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    said = " ".join(" ".join(lines).split())
    assert "992 of 1,016 h100-sxm used, 24 idle" in said
    answer = fabric("run", "demo", "--format", "json").json
    cases = {case["name"]: case for case in answer["cases"]}
    for name in ("one spine out", "spread, one spine out"):
        change = cases[name]["change"]["step_time_s"]
        assert f"{name}: the step moves by {change * 1e3:+.2f} ms" in said
    assert "31 flows of dp" in said
    assert "over 30 of its 32 uplinks" in said
    part = lambda row: next(part for part in row["breakdown"] if part["part"] == "dp")
    rows = [answer | {"name": "base"}, *answer["cases"]]
    dp = {row["name"]: part(row)["exposed_s"] + part(row)["hidden_s"] for row in rows}
    assert dp["spread, one spine out"] / dp["spread"] >= 1.03
    assert abs(dp["one spine out"] / dp["base"] - 1) <= 0.005


def test_json_has_every_field_and_agrees_with_itself(fabric):
    answer = fabric("run", *small("run.tokens=1T"), "--format", "json").json
    assert answer["schema"] == "fabric.run/1"
    assert answer["gpus"] == {"type": "h100-sxm", "used": 64, "idle": 0}
    step = answer["step_time_s"]
    # Exposed parts add up to the step.
    assert sum(row["exposed_s"] for row in answer["breakdown"]) == pytest.approx(step, rel=1e-12)
    assert answer["tokens_per_s"] == pytest.approx(64 * 8192 / step)
    assert answer["training"]["days"] == pytest.approx(1e12 / answer["tokens_per_s"] / 86400)
    assert answer["training"]["gpu_hours"] == pytest.approx(answer["training"]["days"] * 24 * 64)
    assert answer["memory"]["verdict"] == "fits"
    held = sum(answer["memory"]["components"].values())
    assert 1 - held / answer["memory"]["capacity_bytes"] == pytest.approx(
        answer["memory"]["margin"]
    )
    for row in answer["bottlenecks"]:
        assert set(row) >= {"link", "tier", "group", "utilisation", "cost_s"}
    for row in answer["sensitivities"]:
        assert set(row) >= {"by", "key", "gain_per_plus_1pct", "loss_per_minus_1pct"}
    assert {row["kind"] for row in answer["assumptions"]} >= {"fitted", "assumed"}
    assert all(row["source"] for row in answer["assumptions"])
    assert 0 < answer["links_used"] <= answer["links_present"]
    assert answer["certificate"] <= 1e-9
    assert answer["scenario"]["fabric"]["nodes"] == 8


def test_a_higher_network_share_of_the_profile_shortens_the_step(fabric):
    run = lambda share: (
        fabric("run", *small(f"hardware.set.efficiency.nic={share}"), "--format", "json").json
    )
    slow, fast = run(0.5), run(1.0)
    assert fast["step_time_s"] < slow["step_time_s"]
    (row,) = [a for a in fast["assumptions"] if a["name"] == "profile.efficiency.nic"]
    assert (row["value"], row["kind"]) == (1.0, "user")
    assert (
        "efficiency.nic 0.5: user" in fabric("run", *small("hardware.set.efficiency.nic=0.5")).out
    )


def test_the_seed_is_that_of_the_scenario(fabric):
    args = ["run", *small("fabric.routing=ecmp"), "--format", "json"]
    by_flag, by_setting = fabric(*args, "--seed", 5).json, fabric(*args, "--set", "run.seed=5").json
    assert by_flag == by_setting
    assert by_flag["routing"]["name"] == "ecmp"
    assert by_flag["scenario"]["run"]["seed"] == 5


def test_what_is_dumped_runs_to_the_same_answer(fabric, tmp_path):
    config = tmp_path / "demo.yaml"
    assert fabric("run", *SMALL, "--dump-config", "-o", config).code == 0
    again = fabric("run", config, "--format", "json").json
    first = fabric("run", *SMALL, "--format", "json").json
    # What was filled in is said by the file now.
    filled = [row for row in first["assumptions"] if row["source"] == "filled in"]
    assert filled
    first["assumptions"] = [row for row in first["assumptions"] if row not in filled]
    assert again | {"name": ""} == first | {"name": ""}
    whole = yaml.safe_load(fabric("run", *SMALL, "--dump-config").out)
    assert whole == again["scenario"]
    assert whole["hardware"]["profile"] == "megatron-core-h100"
    assert whole["run"]["allocation"] == "all"


def test_the_json_schema_is_printed_without_a_scenario(fabric):
    published = json.loads((ROOT / "docs" / "scenario.schema.json").read_text())
    assert fabric("run", "--json-schema").json == published


def test_a_real_fabric_with_missing_cables_fits_on_the_screen(fabric, dump, tmp_path):
    file = tmp_path / "real.yaml"
    file.write_text(
        f"schema: 1\nmodel: llama-3.1-70b\nfabric: {{file: {dump}, server: gb200-tray}}\n"
        "layout: tp4 sp pp4 dp27 zero1 mb1 gbs864 seq8192 recompute=selective\n"
        "run: {placement: spread}\n"
    )
    lines = fabric("run", file).lines
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    said = " ".join(" ".join(lines).split())
    assert "432 of 432 gb200 used" in said
    assert "108 hosts of the file used; left out 1 (rails swapped), 13 (not 4 NICs)" in said
    assert "assumed, the 4 GPUs of a host are on NVLink" in said
    assert "26 missing leaf-spine cables of 558 in the uniform design cost a step +" in said


def test_commands_of_the_page_run(fabric):
    page = (ROOT / "docs" / "scenario.md").read_text()
    commands = re.findall(r"`fabric (run demo[^`]*|compare demo[^`]*)`", page)
    assert len(commands) >= 3
    for command in commands:
        ran = fabric(*command.split())
        assert ran.code == 0, (command, ran.err)


# Errors


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        pytest.param(["run.placment=first"], "`run` has no key `placment`", id="unknown-key"),
        pytest.param(["layout.seq=8190"], "`seq=8190` is not a multiple of tp = 8", id="sequence"),
        pytest.param(["hardware.gpu=h101"], "no GPU 'h101'. Did you mean 'h100-sxm'?", id="gpu"),
        pytest.param(
            ["fabric={builder: 'leaf_spine:leaves=4,spines=2,hosts_per_leaf=16'}"],
            "The type of GPU is not known",
            id="no-gpu",
        ),
        pytest.param(["model=llama-3.1-7b"], "Did you mean 'llama-3.1-70b'?", id="model"),
        pytest.param(["fabric.nodes"], "not of the form `a.b=value`", id="no-value"),
        pytest.param(["fabric.nodes=[1"], "cannot be read as YAML", id="yaml"),
        pytest.param(["fabric.failed.nodes=[spine99]"], "Did you mean 'spine", id="failed"),
        pytest.param(["hardware.set.latency.nic_step=1"], "such as '10us'", id="unit"),
    ],
)
def test_wrong_input_is_one_clear_error(refused, settings, said):
    assert said in refused("run", *small(*settings))


def test_an_unsupported_architecture_is_named(refused, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps({"model_type": "mixtral", "num_local_experts": 8, "hidden_size": 64})
    )
    said = refused("run", *small(f"model={{config: {config}}}"))
    assert "a mixture of experts (num_local_experts=8): not supported" in said


def test_a_missing_or_unknown_scenario_is_said(refused):
    assert "SCENARIO is missing" in refused("run")
    assert "Did you mean 'demo'?" in refused("run", "dmo")
    assert "Check the path" in refused("run", "no/such.yaml")


def test_a_layout_larger_than_the_allocation_prints_its_identity(refused):
    said = refused("run", *small("layout.dp=9", "layout.gbs=72"), code=3)
    assert "tp8 x cp1 x pp1 x dp9 = 72 GPUs, but the allocation has 64. Use `dp8`" in said
    assert "has 32" in refused("run", *small("run.allocation=32"), code=3)


def test_a_model_that_does_not_fit_lists_components_and_the_smallest_change(refused, fabric):
    settings = ["model=llama-3.1-70b", "layout.zero=0"]
    said = refused("run", *small(*settings), code=3)
    for component in ("weights", "gradients", "optimizer", "activations"):
        assert re.search(rf"^  {component} +[\d.]+ GB$", said, re.MULTILINE)
    assert "The smallest change that fits: " in said
    assert "`--allow-infeasible`" in said
    answer = fabric("run", *small(*settings), "--allow-infeasible", "--format", "json").json
    assert answer["memory"]["verdict"] == "does not fit"
    assert answer["memory"]["margin"] < 0
    lines = fabric("run", *small(*settings), "--allow-infeasible").lines
    assert any(line.startswith("memory does not fit: ") and "missing" in line for line in lines)


def test_too_few_gpus_that_can_be_reached_are_infeasible(refused):
    said = refused("run", *small("fabric.failed.nodes=[server0-nic0]"), code=3)
    assert "the allocation has 56" in said
    assert "1 server left out: server0 (server0-nic0 is down)" in said
    assert "Take back `fabric.failed`" in said


def test_a_server_is_left_out_where_others_are_idle(fabric):
    ran = fabric("run", *small("fabric.nodes=9", "fabric.failed.nodes=[server0]"))
    said = " ".join(ran.out.split())
    assert "64 of 64 h100-sxm used" in said
    assert "1 server left out: server0 (it is down)" in said
    assert "adaptive hardware does better" not in said  # all cables between switches are whole
    assert max(map(len, ran.lines)) <= 100


def test_an_allocation_above_the_cluster_is_refused(refused):
    said = refused("run", *small("run.allocation=5000"), code=3)
    assert "`run.allocation: 5000` (--set), but the fabric has 64 GPUs" in said


def test_the_header_of_a_long_builder_fits_the_screen_and_names_no_file(fabric):
    spec = (
        "rail_optimized:servers=8,rails=8,radix=64,capacity=400Gb/s,servers_per_unit=4,latency=1us"
    )
    ran = fabric("run", *small(f"fabric={{builder: '{spec}', server: dgx-h100}}"))
    assert max(map(len, ran.lines)) <= 100
    assert "8 hosts used" in ran.out
    assert "of the file" not in ran.out


def test_few_tokens_deserve_a_word(fabric):
    assert "15T is 15e12 of them" in fabric("run", *small("run.tokens=15")).out


def test_what_is_counted_of_the_assumptions_is_said(fabric):
    count = len(fabric("run", *SMALL, "--format", "json").json["assumptions"])
    assert f"all {count} with `--format json`" in fabric("run", *SMALL).out


def test_a_fault_in_a_case_names_the_case(refused):
    said = refused("run", *small("cases=[{name: half, set: {run.allocation: 32}}]"), code=3)
    assert "case 'half': " in said


def test_a_certificate_that_does_not_hold_is_code_4(refused, monkeypatch):
    monkeypatch.setattr(Answer, "certificate", 1e-6)
    assert "certificate is 1.0e-06" in refused("run", *SMALL, code=4)


def test_an_unwritable_output_is_refused_before_work(refused, tmp_path, monkeypatch):
    monkeypatch.setattr(Scenario, "load", lambda *_: pytest.fail("work began"))
    assert "no folder" in refused("run", "demo", "-o", tmp_path / "no" / "x.json")
