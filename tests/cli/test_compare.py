"""What `fabric solve` says about missing cables, and about plugging them."""

import pytest

from tests.cli.conftest import SMALL


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


def test_cables_that_tie_are_ranked_by_the_mean(fabric, partly):
    file = partly(("leaf1", "spine0", 1), ("leaf2", "spine0", 1))
    args = ["solve", file, "--pattern", "all-to-all", "--routing", "spray", "--plug"]
    plug = fabric(*args, "--format", "json").json["plug"]
    assert not plug["raises_slowest"]
    assert plug["ranked_by"] == "mean rate"
    assert "No single cable raises the slowest flow" in " ".join(fabric(*args).lines[-5:])


def test_a_pair_that_lacks_two_is_plugged_by_one_and_by_both(fabric, partly):
    file = partly(("leaf1", "spine0", 2))
    args = ["solve", file, "--pattern", "all-to-all", "--routing", "spray", "--plug"]
    answer = fabric(*args, "--format", "json").json
    plug, design = answer["plug"], answer["uniform_design"]
    assert (plug["pairs"], plug["tried"]) == (1, 2)
    both, one = plug["cables"]
    assert (both["plugged"], one["plugged"]) == (2, 1)
    # Both are all that the uniform design has more.
    assert both["slowest"] == pytest.approx(design["slowest"])
    assert one["slowest"] < both["slowest"]
    ran = fabric(*args)
    (row,) = (line for line in ran.lines if line.startswith("  leaf1 - spine0"))
    assert row.count("%") == 4
    assert "Plug 2 cables of leaf1 - spine0 first" in ran.out


def test_failed_switches_are_no_missing_cabling(fabric, gappy):
    args = ["solve", gappy, "--pattern", "all-to-all", "--routing", "spray"]
    args += ["--failed", "spine1", "--plug"]
    answer = fabric(*args, "--format", "json").json
    design = answer["uniform_design"]
    assert (design["cables"], design["have"], design["missing"]) == (16, 15, 1)
    # 48 flows leave each leaf: over two cables in the design, over one now, and 15 per endpoint.
    assert design["slowest"] == pytest.approx(15 * 100e9 / 48)
    assert answer["per_endpoint"]["slowest"] == pytest.approx(15 * 50e9 / 48)
    (cable,) = answer["plug"]["cables"]
    assert cable["slowest"] == pytest.approx(design["slowest"])
    said = " ".join(fabric(*args).lines[-4:])
    assert "The missing cable costs the slowest flow 50.0 %" in said
    assert "against the uniform design with the same failures" in said


def test_no_cable_is_plugged_into_a_failed_switch(fabric, partly):
    file = partly(("leaf1", "spine0", 1), ("leaf2", "spine1", 1))
    args = ["solve", file, "--pattern", "all-to-all", "--plug", "--format", "json"]
    plug = fabric(*args, "--failed", "spine0").json["plug"]
    assert [(row["leaf"], row["spine"]) for row in plug["cables"]] == [("leaf2", "spine1")]
    ran = fabric(*args, "--failed", "leaf1", "--failed", "leaf2")
    assert "plug" not in ran.json
    assert "every missing one is at a failed node" in ran.err


def test_under_ecmp_the_advice_is_of_one_hash_draw(fabric, partly):
    file = partly(("leaf1", "spine0", 2), ("leaf2", "spine1", 1))
    ran = fabric("solve", file, "--pattern", "all-to-all", "--seed", 5, "--plug")
    assert ran.lines[-1] == "All of this is one hash draw, seed 5: try other seeds."
    assert "lack" not in ran.out
    sprayed = fabric("solve", file, "--pattern", "all-to-all", "--routing", "spray", "--plug")
    assert "hash" not in sprayed.out


def test_what_a_failed_switch_costs_the_real_dump_is_no_cabling(fabric, dump):
    answer = fabric("solve", dump, "--pattern", "all-to-all", "--failed", "A10-P1-IBSPINE-04",
                    "--format", "json").json  # fmt: skip
    design = answer["uniform_design"]
    assert (design["cables"], design["missing"]) == (558, 26)
    # Eight spines cannot carry what nine did.
    assert design["slowest"] < 49.0e9
