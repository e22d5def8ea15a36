"""What the experiments on servers and on parallelism promise: rows, verdicts and their shape."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.parallelism import footprint, trade_offs, volumes
from experiments.parallelism.measure import servers, with_nics
from experiments.rows import VERDICTS
from experiments.servers import experiment as of_servers
from experiments.servers.pods import two_stages

NAMES = ("servers", "parallelism")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def answers():
    """The smoke runs, made once."""
    return {}


def smoke(name, answers, capsys):
    if name not in answers:
        code = main([name, "--smoke", "--format", "json"])
        answers[name] = code, json.loads(capsys.readouterr().out)
    return answers[name]


def verdicts(rows):
    return {row.id: row.verdict for row in rows}


def value(rows, name):
    (found,) = [row.computed for row in rows if row.id == name]
    return found


def test_the_list_names_both_experiments_with_their_question():
    done = subprocess.run(
        [sys.executable, "-m", "experiments", "list"], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert all(lines[name].endswith("?") for name in NAMES)


def test_an_unknown_experiment_is_refused_with_the_known_ones(capsys):
    assert main(["serverz"]) == 2
    assert "servers" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_a_smoke_run_answers_in_json_and_reproduces_every_row(name, answers, capsys):
    code, answer = smoke(name, answers, capsys)
    assert code == 0
    assert set(answer) == {"name", "rows", "summary", "notes", "versions"}
    assert answer["name"] == name
    fields = {
        "id", "quoted", "computed", "unit", "allowed", "source", "note", "refuted", "error",
        "verdict",
    }  # fmt: skip
    assert all(set(row) == fields for row in answer["rows"])
    assert {row["verdict"] for row in answer["rows"]} <= set(VERDICTS) - {"short"}
    assert all(row["source"] for row in answer["rows"])
    assert all(row["note"] for row in answer["rows"] if row["refuted"])


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_an_experiment_have_different_names(name, answers, capsys):
    _, answer = smoke(name, answers, capsys)
    counts = Counter(row["id"] for row in answer["rows"])
    assert max(counts.values()) == 1


def test_every_claim_has_a_row_or_a_series(answers, capsys):
    said = set()
    for name in NAMES:
        _, answer = smoke(name, answers, capsys)
        said |= {row["id"][:3] for row in answer["rows"]} | {key[:3] for key in answer["summary"]}
    claims = {f"A{n}" for n in (*range(10, 15), *range(20, 35)) if n != 26}
    assert claims <= said


# Servers.


def test_all_quoted_bandwidths_of_servers_hold_in_a_full_run():
    found = of_servers.run()
    assert set(verdicts(found.rows).values()) == {"holds"}
    assert value(found.rows, "A13 GPUs of pods on NDR") == 4 * 256
    # NVLink SHARP wins from a few MiB in a server, and later between servers.
    near, far = (value for key, value in found.summary.items() if "first size" in key)
    assert 2**20 < near <= 2**23 < far


def test_the_pod_of_256_has_the_published_chips_cables_and_ports():
    net = two_stages()
    labels = net.labels
    assert labels.is_kind("gpu").sum() == 256
    assert labels.is_kind("nvswitch").sum() == 32 * 4 + 36
    cables = {tier: int(labels.is_tier(tier).sum()) // 2 for tier in labels.tiers}
    assert cables == {"nvlink": 256 * 18, "nvlink-network": 32 * 72}
    ports = np.bincount(labels.src, minlength=labels.n_nodes)[labels.is_kind("nvswitch")]
    assert set(ports[:4].tolist()) == {60, 48}
    assert set(ports[-36:].tolist()) == {64}


# Parallelism.


def test_volumes_hold_but_for_zero_3_with_many_microbatches():
    rows = list(volumes.rows())
    refuted = "A21 ZeRO-3 over plain, sent, 8 microbatches"
    assert verdicts(rows) == {row.id: "refuted" if row.id == refuted else "holds" for row in rows}
    # 3 passes of the weights in each of 8 microbatches, against 2 in a step.
    assert value(rows, refuted) == pytest.approx(8 * 3 / 2, rel=1e-12)


def test_traffic_side_by_side_names_where_it_runs():
    lines = {line["exchange"]: line for line in volumes.table(volumes.shown())}
    assert lines["tp"]["tiers"] == ["nvlink"]
    assert "nvlink" not in lines["pp_forward"]["tiers"] + lines["dp"]["tiers"]
    # 32 microbatches of 20 layers with 4 exchanges, and 2 of the head.
    assert lines["tp"]["times_a_step"] == pytest.approx(32 * (20 * 4 + 2), rel=1e-9)
    assert lines["tp"]["gigabytes_a_step"] > 10 * lines["dp"]["gigabytes_a_step"]


def test_footprints_hold_but_for_the_rounded_number_of_gpus():
    rows = list(footprint.rows())
    assert {id for id, verdict in verdicts(rows).items() if verdict != "holds"} == {
        "A29 260B parameters, GPUs at 2B each", "A29 260B parameters, GPUs at 1B each",
    }  # fmt: skip
    assert 130 <= footprint.least_gpus() <= 260


def test_the_implied_compute_time_gives_the_efficiency_back():
    time = trade_offs.implied(0.7, 5e9)
    assert time == pytest.approx(14 / 3, rel=1e-12)
    assert time / (time + 10e9 / 5e9) == pytest.approx(0.7, rel=1e-12)


def test_the_cliff_of_tensor_parallelism_is_as_high_as_nvlink_over_all_adapters(answers, capsys):
    _, answer = smoke("parallelism", answers, capsys)
    ratios = answer["summary"]["A31 exchange, tp 16 over tp 8, by NIC"]
    # 0.70 of 450 GB/s against 0.85 of 8 adapters, and 15/16 over 7/8 of the bytes. Adapters that
    # suffice leave 7 of 8 hops to NVLink; 3 % is for latency.
    for share, ratio in zip((1.0, 0.5, 0.25, 0.125), ratios, strict=True):
        bandwidth = max(7 / 8, 0.70 * 450 / (0.85 * 8 * 50 * share))
        assert ratio == pytest.approx(bandwidth * (15 / 16) / (7 / 8), rel=0.03)


def test_slower_adapters_leave_nvlink_as_it_is():
    net = servers("dgx-h100", 2)
    ratio = np.asarray(with_nics(net, 0.5).capacity) / np.asarray(net.capacity)
    inside = np.isin(net.labels.tier_of, [net.labels.tiers.index(t) for t in ("nvlink", "pcie")])
    assert set(ratio[inside]) == {1.0}
    assert set(ratio[net.labels.is_tier("leaf-spine") | net.labels.is_tier("host")]) == {0.5}


def test_the_best_layout_is_neither_all_replicas_nor_none():
    rows, summary = trade_offs.optimum(smoke=False)
    case = "A32 llama-3.1-70b on 128 GPUs"
    assert verdicts(rows) == {
        f"{case}, optimum inside": "holds",
        f"{case}, found by search": "holds",
    }
    speed = summary["A32 tokens/s"]
    assert 0 < int(np.argmax(speed)) < len(speed) - 1


def test_overlap_lets_slower_adapters_pass(answers, capsys):
    _, answer = smoke("parallelism", answers, capsys)
    least = answer["summary"]
    key = "A33 share of the NIC at + 1 %, {}"
    assert least[key.format("with overlap")][0] < least[key.format("without")][0] <= 1
