"""What the experiment on topologies promises: a row or a reason for every published number."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from experiments.__main__ import as_text, main
from experiments.rows import Row
from experiments.topologies import experiment
from experiments.topologies.answers import Answers, largest
from experiments.topologies.published import Entry, allowed, entries, flat
from experiments.topologies.tori import worst_permutation
from fabric._errors import ModelError


@pytest.fixture(scope="module")
def answer(shared):
    """The smoke run, made once."""
    return experiment.run(smoke=True)


def values(result):
    return {row.id: row.computed for row in result.rows}


def test_every_published_number_that_is_computed_matches(answer):
    short = [(row.id, row.quoted, row.computed) for row in answer.rows if row.verdict == "short"]
    assert short == []
    assert answer.summary["matched"] > 1000
    assert answer.summary["differing"] == 0
    assert answer.reproduced


def test_every_key_of_every_entry_has_a_row_or_a_reason(answer):
    missing = {line["id"]: line["reason"] for line in answer.tables["not computed"]}
    assert experiment.NO_RULE not in missing.values()
    others = {line["id"] for line in answer.tables["entries from memory, and the difference"]}
    said = {row.id for row in answer.rows} | others
    for entry in entries():
        for key, value in entry.expected.items():
            name = f"{entry.name}.{key}"
            leaves = {f"{entry.name}.{leaf}" for leaf, _ in flat(key, value)}
            assert (name in missing) != (leaves <= said), name


def test_the_derivable_keys_of_sure_entries_are_left_out_only_for_their_size(answer):
    left_out = "left out of a smoke run"
    facts = [
        line["id"] for line in answer.tables["not computed"]
        if line["sure"] and line["reason"] != left_out
    ]  # fmt: skip
    counts = Counter(name.partition(".")[0] for name in facts)
    # Constants of a library, prices, measurements and what operators say of their clusters.
    assert counts["nccl_link_constants"] == 15
    assert sum(counts.values()) == 50


def test_rows_have_different_names_a_source_and_how_they_were_got(answer):
    assert max(Counter(row.id for row in answer.rows).values()) == 1
    assert all(row.source and row.note for row in answer.rows)


def test_a_number_that_a_source_prints_wrongly_is_refuted_with_the_honest_one(answer):
    refuted = {row.id: (row.quoted, row.computed) for row in answer.rows if row.refuted}
    assert refuted == {
        "superpod_b300_xdr_18su.gpus as printed": (9216, 10368),
        "superpod_h100_1024gpu_full.spine_tier_port_capacity_one_way_TBps as printed": (25.6, 51.2),
    }


def test_twisted_tori_gain_the_exact_ideal(answer):
    gains = [value for key, value in answer.summary.items() if key.startswith("twisted")]
    assert gains == pytest.approx([1.7455, 1.3913], abs=5e-5)


def test_entries_from_memory_stand_apart_with_their_difference(answer):
    table = answer.tables["entries from memory, and the difference"]
    names = {line["id"].partition(".")[0] for line in table}
    assert names >= {"superpod_a100_7su", "dragonflyplus_k8", "aurora_slingshot"}
    assert not names & {row.id.partition(".")[0] for row in answer.rows}
    assert all(line["difference"] == line["computed"] - line["quoted"] for line in table)


def test_the_answer_is_json_and_text_with_both_tables(answer, monkeypatch, capsys):
    monkeypatch.setattr(experiment, "run", lambda smoke: answer)
    assert main(["topologies", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["tables"]) == set(answer.tables)
    text = as_text("topologies", answer)
    assert "not computed" in text
    assert any("published numbers matched" in line for line in text)


def test_a_difference_makes_the_answer_fall_short(answer):
    worse = replace(answer.rows[0], computed=answer.rows[0].quoted + 1)
    assert not replace(answer, rows=[*answer.rows[1:], worse]).reproduced


def test_absent_data_are_said_with_the_place_they_belong(tmp_path, monkeypatch, capsys):
    with pytest.raises(FileNotFoundError, match=r"beside the checkout"):
        entries(tmp_path / "topologies.json")
    monkeypatch.setattr(experiment, "entries", lambda: entries(tmp_path / "absent.json"))
    assert main(["topologies", "--smoke"]) == 2
    assert "absent.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("quoted", "error"),
    [(32, 0.0), (0, 0.0), (25.0, 1e-9), (1.745, 0.0005 / 1.745), (0.5703, 0.00005 / 0.5703)],
)
def test_a_number_is_as_exact_as_it_is_printed(quoted, error):
    assert allowed(quoted) == pytest.approx(error, rel=1e-5)


@pytest.mark.parametrize(
    ("quoted", "computed", "verdict"),
    [
        (0, 0, "holds"),
        (0, 1, "short"),
        (7, 7, "holds"),
        (7, 8, "short"),
        (7, float("nan"), "short"),
    ],
)
def test_a_count_of_zero_is_compared_too(quoted, computed, verdict):
    assert Row("row", quoted, computed, "", 0.0, "a source").verdict == verdict


def test_words_lists_and_nothing_are_compared_leaf_by_leaf():
    expected = {"shape": ["2x2", 4, None], "fits": True, "nested": {"a": 1, "b": 2}}
    entry = Entry("toy", "node", {}, expected, "a source", "exact")
    found = Answers()
    found.put("built", shape=["2x2", 5, None], fits=False, nested={"a": 1})
    verdicts = {row.id: row.verdict for row in experiment.compared(entry, found)}
    assert verdicts == {
        "toy.shape.0": "holds", "toy.shape.1": "short", "toy.shape.2": "holds",
        "toy.fits": "short", "toy.nested.a": "holds", "toy.nested.b": "short",
    }  # fmt: skip


def test_the_largest_size_is_where_a_builder_refuses_the_next():
    def fits(n):
        if n > 2048:
            message = "too many"
            raise ModelError(message)

    assert largest(fits) == 2048


@pytest.mark.parametrize("blocks", [4, 6, 8])
def test_the_worst_permutation_of_a_mesh_of_blocks_is_its_closed_form(blocks):
    assert worst_permutation(blocks) == pytest.approx(blocks / (2 * (blocks - 1)), rel=1e-9)
