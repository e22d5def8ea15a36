"""What `fabric optimize joint` says, and the files that it writes."""

import csv

import pytest

from fabric import optimize
from fabric.optimize._joint_search import Search
from fabric.scenario import Scenario

SETTINGS = {
    "model": "llama-3.1-8b", "cases": [], "layout": "tp8 sp dp4 zero1 gbs64 seq8192",
    "run.placement": "first",
}  # fmt: skip
BUILDER = "rail_optimized:servers=4,radix=32,leaf_down=2,leaf_up=2,spines=2,servers_per_unit=2"
FABRIC = f"{{builder: '{BUILDER}', server: dgx-h100}}"
SMALL = [
    "optimize", "joint", "demo", "--set", f"fabric={FABRIC}",
    *(word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")),
    "--limit", "vpp=1", "--limit", "cp=1", "--swaps", "6", "--steps", "12",
]  # fmt: skip


def test_json_is_the_answer_of_the_library(fabric, tmp_path):
    file = tmp_path / "kept"
    answer = fabric(*SMALL, "--seed", 3, "--checkpoint", file, "--format", "json").json
    assert answer["schema"] == "fabric.optimize.joint/1"
    assert answer["bound"] <= answer["objective"] <= answer["before"]
    assert answer["objective"] <= min(answer["own"]["step_time_s"], answer["apart"]) * (1 + 1e-9)
    assert len(answer["endpoints"]) == answer["best"]["gpus"] == 32
    values = SETTINGS | {"fabric": {"builder": BUILDER, "server": "dgx-h100"}}
    built = Scenario.load("demo", values).build()
    found = optimize.joint(
        built.network, built.model, gbs=64, seq=8192, limits={"vpp": 1, "cp": 1}, swaps=6, steps=12,
        seed=3, profile=built.profile, gpu=built.gpu, control=False,
    )  # fmt: skip
    assert answer["objective"] == pytest.approx(found.objective, rel=1e-12)
    assert answer["bound"] == found.bound
    assert answer["megatron"] == found.megatron
    assert file.is_file()


def test_an_interrupt_before_the_first_save_keeps_the_state(fabric, tmp_path, monkeypatch):
    asked = (*SMALL, "--no-control", "--tolerance", 0, "--format", "json")
    kept = ("--checkpoint", tmp_path / "kept")
    placed, calls = Search.placed, []

    def stopping(self, *args, **options):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return placed(self, *args, **options)

    monkeypatch.setattr(Search, "placed", stopping)
    assert fabric(*asked, *kept).code == 130
    found = fabric(*asked, *kept).json
    resumed, calls[:] = len(calls) - 3, [()] * 3
    assert found["objective"] == fabric(*asked).json["objective"]
    assert resumed == len(calls) - 3 - 2


def test_the_text_has_the_proof_and_files_hold_ranks_and_weights(fabric, tmp_path):
    ranks, tables, plot = (tmp_path / name for name in ("ranks", "weights.csv", "run.svg"))
    hosts, gpus = tmp_path / "hosts", tmp_path / "gpus"
    ran = fabric(
        *SMALL, "--no-control", "--rank-file", ranks, "--tables", tables, "--entries", 16,
        "--plot", plot, "--hostfile", hosts, "--gpu-file", gpus,
    )  # fmt: skip
    said = "\n".join(ran.lines)
    for part in (
        "llama-3.1-8b on ", "against the best layout with servers as listed, sprayed", "bound ",
        "--tensor-model-parallel-size", "own layout", "tables of 16 entries",
    ):  # fmt: skip
        assert part in said
    assert "random moves" not in said
    assert len(ranks.read_text().splitlines()) == 32
    where = zip(hosts.read_text().split(), gpus.read_text().split(), strict=True)
    bound = [f"rank {i}={server} slot={gpu}" for i, (server, gpu) in enumerate(where)]
    assert bound == ranks.read_text().splitlines()
    groups: dict[tuple[str, str], int] = {}
    for row in csv.DictReader(tables.read_text().splitlines()):
        key = (row["switch"], row["destination"])
        groups[key] = groups.get(key, 0) + int(row["weight"])
    assert 0 < max(groups.values()) <= 16
    assert plot.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--limit", "tp"), 2, "needs a name and a whole number"),
        (("--entries", "8"), 2, "`--entries` is about the tables"),
        (("--gpus", "64"), 3, "`gpus=64`, but the allocation has 32"),
        (("--gpus", "12"), 2, "fills no whole servers of 8"),
        (("--paths", "best"), 2, "`paths` needs"),
        (("--set", "run.allocation=32", "--gpus", "40"), 3, "`run.allocation` is 32"),
        (("--rank-file", "/nowhere/ranks"), 2, "`--rank-file /nowhere/ranks`"),
    ],
)
def test_faults_are_one_message(refused, options, code, said):
    assert said in refused(*SMALL, *options, code=code)
