"""What `fabric search` promises: the best layouts, the proof, and what was left out and why."""

import pytest

SMALL = [
    "search", "demo", "--set", "fabric.nodes=2", "--set", "layout.pp=1", "--set", "layout.dp=2",
    "--set", "layout.gbs=16", "--set", "layout.seq=4096", "--set", "model=llama-3.1-8b",
    "--set", "cases=[]", "--limit", "vpp=1", "--limit", "mb=2", "--limit", "cp=2",
]  # fmt: skip


def test_json_has_the_proof_and_agrees_with_the_run_of_its_best_layout(fabric):
    answer = fabric(*SMALL, "--top", 3, "--format", "json").json
    assert answer["schema"] == "fabric.search/1"
    best = answer["top"][0]
    assert answer["certified"]
    assert answer["gap"] == 0
    assert answer["objective"] == best["step_time_s"] == answer["bound"]
    assert len(answer["top"]) == 3
    assert answer["legal"] + sum(answer["pruned"].values()) == answer["candidates"]
    run = fabric(
        "run", "demo", "--set", "fabric.nodes=2", "--set", f"layout={best['layout']}",
        "--set", "model=llama-3.1-8b", "--set", "cases=[]", "--format", "json",
    ).json  # fmt: skip
    assert run["step_time_s"] == pytest.approx(best["step_time_s"], rel=1e-11)
    own = answer["own"]
    assert own["layout"].startswith("tp8 sp pp1")
    assert own["step_time_s"] >= best["step_time_s"]


def test_the_text_has_the_best_layout_the_gap_the_reasons_and_the_options(fabric):
    lines = fabric(*SMALL, "--top", 2, "--front", "--why", "tp16 gbs16 zero1").lines
    said = "\n".join(lines)
    assert "llama-3.1-8b on dgx-h100(nodes=2)" in lines[0]
    for part in (
        "gap 0.00%", "--tensor-model-parallel-size", "own layout", "the layout of the least bound",
        "front of throughput, memory and cost", "left out", "memory",
        "tp16 gbs16 zero1 seq4096: zero with one rank that shares is the same as zero0",
    ):  # fmt: skip
        assert part in said


def test_two_numbers_of_gpus_are_compared(fabric):
    asked = (*SMALL, "--gpus", "8,16", "--format", "json")
    fast, cheap = fabric(*asked).json, fabric(*asked, "--objective", "cost").json
    assert fast["top"][0]["gpus"] == 16
    per_token = "gpu_hours_per_billion_tokens"
    assert cheap["top"][0][per_token] <= fast["top"][0][per_token]
    said = fabric(*SMALL, "--gpus", "8,16", "--objective", "cost").lines
    assert any("GPU seconds; bound" in line and line.count("GPU seconds") == 2 for line in said)


def test_a_checkpoint_is_written_and_taken_up(fabric, tmp_path):
    asked = (*SMALL, "--checkpoint", tmp_path / "kept", "--format", "json")
    first, second = fabric(*asked).json, fabric(*asked).json
    assert (tmp_path / "kept").is_file()
    for answer in (first, second):
        del answer["seconds"]
    assert first == second


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--gpus", "8,x"), 2, "needs whole numbers with commas"),
        (("--gpus", "64"), 3, "`gpus=64`, but the network has 16"),
        (("--limit", "tp"), 2, "needs a name and a whole number"),
        (("--limit", "ep=2"), 2, "`limits={'ep'"),
        (("--limit", "tp=0"), 2, "`limits['tp']` needs a whole number of 1 or more"),
        (("--limit", "tp=8", "--limit", "tp=4"), 2, "`--limit tp` is said twice: 8 and 4"),
        (
            ("--set", "run.allocation=8", "--set", "layout.dp=1", "--gpus", "8,16"),
            3,
            "`--gpus` asks for 16, but `run.allocation` is 8",
        ),
        (("--rank-orders", "tp-pp"), 2, "needs orders of tp, cp, dp and pp"),
        (("--objective", "tme"), 2, "Did you mean 'time'"),
        (("--why", "tp8 gbs1 seq4096"), 2, "`gbs` 16, but the layout has 1"),
        (("--why", "tp8 gbs16 seq4096"), 2, "the search is of 16 GPUs, but the layout has 8"),
        (("--checkpoint", "/nowhere/kept"), 2, "needs a folder that exists"),
    ],
)
def test_faults_are_one_message(refused, options, code, said):
    assert said in refused(*SMALL, *options, code=code)


def test_what_is_wrong_with_a_question_is_said_before_the_search(refused, monkeypatch):
    monkeypatch.setattr("fabric.optimize.layout", lambda *_, **__: pytest.fail("it searched"))
    assert "Did you mean" in refused(*SMALL, "--why", "tp8 dp2 gbs16 seq4096 zro1")


def test_layouts_without_a_way_and_servers_left_out_are_told(fabric):
    # Rails that do not meet, four servers of which one is down: rings over three change rails.
    asked = (
        "search", "demo", "--set", "model=llama-3.1-8b", "--set", "cases=[]",
        "--set", "fabric={builder: 'rail_only:servers=4', server: dgx-h100}",
        "--set", "fabric.failed.nodes=[server1-gpu0]", "--set", "fabric.routing=ecmp",
        "--set", "layout=tp4 dp6 zero1 gbs24 seq4096", "--top", 60,
        *(word for name in ("vpp", "mb", "cp", "pp") for word in ("--limit", f"{name}=1")),
    )  # fmt: skip
    said = "\n".join(fabric(*asked).lines)
    assert "1 server left out: server1 (server1-gpu0 is down)" in said
    assert "found with an exchange that has no way" in said
    assert "own layout has no way on this fabric: tp4 pp1 vpp1 dp6" in said
    answer = fabric(*asked, "--format", "json").json
    assert 0 < answer["unreachable"] < answer["legal"]
    assert answer["own"]["step_time_s"] is None
    assert "cannot reach" in answer["own"]["why"]


def test_a_model_that_fits_nowhere_is_told_with_the_reasons(refused):
    said = refused(
        "search", "demo", "--set", "fabric.nodes=2", "--set", "layout=tp8 dp2 gbs16 seq8192",
        "--set", "model=llama-3.1-405b", "--set", "cases=[]", code=3,
    )  # fmt: skip
    assert "No layout of 'llama-3.1-405b' on 16 GPUs suits and fits" in said
    assert "memory" in said
