"""What `fabric compare` promises: differences first, in the scenarios and in their steps."""

import pytest

from tests.cli.test_run import SMALL

SPREAD = ["--set-b", "run.placement=spread", "--set-b", "fabric.failed.nodes=[spine0]"]


def test_what_differs_comes_first_and_steps_are_those_of_run(fabric):
    answer = fabric("compare", "demo", *SPREAD, "--format", "json").json
    assert answer["schema"] == "fabric.compare/1"
    assert answer["differs"] == [
        {"path": "fabric.failed.nodes", "a": [], "b": ["spine0"]},
        {"path": "run.placement", "a": "first", "b": "spread"},
    ]
    run = fabric("run", "demo", "--format", "json").json
    step = answer["step_time_s"]
    assert step["a"] == run["step_time_s"]
    assert step["b"] == run["cases"][-1]["step_time_s"]
    assert step["change"] == pytest.approx(step["b"] - step["a"])
    parts = sum(part["exposed_s"]["change"] for part in answer["parts"])
    assert parts == pytest.approx(step["change"], rel=1e-6)
    assert "cases" not in answer["a"]


def test_the_text_has_differences_parts_memory_and_links(fabric):
    lines = fabric("compare", "demo", *SPREAD).lines
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    assert lines[1].split() == ["what", "differs", "a", "b"]
    assert any(line.split() == ["run.placement", "first", "spread"] for line in lines)
    text = "\n".join(lines)
    for words in ("step ", "dp hidden", "memory", "a: links", "b: links"):
        assert words in text


def test_two_files_that_are_alike_do_not_differ(fabric, tmp_path):
    file = tmp_path / "same.yaml"
    fabric("run", *SMALL, "--dump-config", "-o", file)
    ran = fabric("compare", file, file, "--format", "json").json
    assert ran["differs"] == []
    assert ran["step_time_s"]["change"] == 0
    assert "the scenarios do not differ" in fabric("compare", file, file).out


def test_words_of_a_layout_and_parts_of_memory_are_told_apart(fabric, tmp_path):
    file = tmp_path / "small.yaml"
    fabric("run", *SMALL, "--dump-config", "-o", file)
    answer = fabric("compare", file, "--set-b", "layout.zero=0", "--format", "json").json
    assert answer["differs"] == [{"path": "layout.zero", "a": 1, "b": 0}]
    assert answer["memory"]["b"]["total_bytes"] > answer["memory"]["a"]["total_bytes"]


def test_all_that_differs_is_listed(fabric, tmp_path):
    file = tmp_path / "small.yaml"
    fabric("run", *SMALL, "--dump-config", "-o", file)
    shares = ("gemm", "hbm", "flash", "nvlink", "nic")
    lows = [f"hardware.set.efficiency.{share}=0.5" for share in shares]
    steps = [f"hardware.set.latency.{key}=1us" for key in ("collective", "nvlink_step", "nic_step")]
    more = ["layout.zero=2", "run.placement=spread", "run.seed=3", "layout.gbs=128", "layout.mb=2"]
    given = [piece for text in [*lows, *steps, *more] for piece in ("--set-b", text)]
    answer = fabric("compare", file, *given, "--format", "json").json
    out = fabric("compare", file, *given).out
    assert len(answer["differs"]) == 13
    for row in answer["differs"]:
        assert f"  {row['path']} " in out


@pytest.mark.parametrize("side", ["a", "b"])
def test_what_is_wrong_with_one_of_two_scenarios_says_which(refused, side):
    said = refused("compare", "small", f"--set-{side}", "run.allocation=9999", code=3)
    assert f"error: {side} (small): `run.allocation: 9999`" in said
    assert f"{side} (small): " in refused("compare", "small", f"--set-{side}", "run.sed=1")


def test_one_scenario_alone_is_refused(refused):
    assert "needs a second scenario" in refused("compare", "demo")


def test_an_unknown_setting_names_its_option(refused):
    assert "(--set-b)" in refused("compare", "demo", "--set-b", "run.sed=1")
