"""What `fabric solve --sensitivity` says, in text and JSON."""

import numpy as np
import pytest

import fabric as fb

# All-to-all keeps a seventh of the traffic inside a leaf of 2 of 8 hosts, so that 6/7 as much
# capacity up as down is exactly enough, and both tiers are full.
FABRIC = "leaf_spine:leaves=4,spines=2,hosts_per_leaf=2,capacity=400Gb/s"
TIED = f"{FABRIC},uplink_capacity={400 * 6 / 7}Gb/s"
ASKED = ("--pattern", "all-to-all", "--routing", "spray")


def test_json_has_the_fields_per_tier_and_both_sides_of_a_tie(fabric):
    answer = fabric("solve", TIED, *ASKED, "--sensitivity", "tier", "--format", "json").json
    assert [row["key"] for row in answer["sensitivities"]] == ["host", "leaf-spine"]
    for row in answer["sensitivities"]:
        assert row["by"] == "tier"
        assert row["objective"] == "slowest"
        assert row["value"] == pytest.approx(answer["rate"]["min"])
        assert row["gain_per_plus_1pct"] == pytest.approx(0, abs=1e-9)
        assert row["loss_per_minus_1pct"] == pytest.approx(1)
        assert row["exact_within_plus_pct"] is None
        assert row["exact_within_pct"] == row["exact_within_minus_pct"] == pytest.approx(100)


def test_without_the_option_the_list_is_there_and_empty(fabric):
    assert fabric("solve", FABRIC, *ASKED, "--format", "json").json["sensitivities"] == []
    assert not any("+1 %" in line for line in fabric("solve", FABRIC, *ASKED).lines)


def test_the_text_has_a_sentence_per_tier(fabric):
    lines = fabric("solve", FABRIC, *ASKED, "--sensitivity", "tier").lines
    said = [line for line in lines if line.startswith("+1 %")]
    # Spines are loaded to 6/7: they can lose a seventh, and hosts can gain a sixth.
    assert said == [
        "+1 % of host buys 1 % of the slowest flow, -1 % costs 1 %; exact within 17 %",
        "+1 % of leaf-spine buys nothing of the slowest flow, -1 % costs nothing; "
        "exact within 14 %",
    ]


@pytest.mark.parametrize("by", ["class", "node", "link", "cable"])
def test_every_grouping_is_served_in_at_most_eight_rows(fabric, by):
    args = ["solve", FABRIC, *ASKED, "--sensitivity", by, "--top", 99]
    rows = fabric(*args, "--format", "json").json["sensitivities"]
    assert {row["by"] for row in rows} == {by}
    lines = fabric(*args).lines
    said = [line for line in lines if line.startswith("+1 %")]
    assert len(said) == min(len(rows), 8)
    assert (f"and {len(rows) - 8} more" in lines) == (len(rows) > 8)


def test_what_is_left_out_is_said(fabric):
    args = ["solve", FABRIC, *ASKED, "--sensitivity", "node"]
    (said,) = fabric(*args, "--format", "json").json["sensitivities_left_out"]
    assert said.startswith("2 of 6 nodes hold no slowest flow")
    assert said in fabric(*args).lines


def test_the_library_gives_the_same_numbers(fabric):
    args = ["solve", "fat_tree:k=4", "--pattern", "permutation", "--seed", 3, "--queue-pairs", 2]
    args += ["--sensitivity", "tier", "--objective", "mean", "--format", "json"]
    rows = fabric(*args).json["sensitivities"]
    net = fb.topologies.fat_tree(4)
    flows = fb.traffic.permutation(net.hosts, seed=3)
    routes = fb.routing.ecmp(net, flows, seed=3, queue_pairs=2)
    assert rows == fb.sensitivities(net, routes, "mean").to_dicts()
    assert rows[0]["gain_per_plus_1pct"] > 0.1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--sensitivity", "teir"], "`--sensitivity teir` is not known. Did you mean 'tier'"),
        (
            ["--sensitivity", "tier", "--objective", "slow"],
            "`--objective slow` is not known. Did you mean 'slowest'",
        ),
        (["--objective", "mean"], "add `--sensitivity tier`"),
    ],
)
def test_wrong_options_are_refused_before_any_work(refused, options, text):
    assert text in refused("solve", FABRIC, *ASKED, *options)


def test_a_slowest_flow_of_rate_0_names_the_way_out(refused, fabric, tmp_path):
    graph = tmp_path / "graph.json"
    fb.readers.write_node_link(_with_a_dead_end(), graph)
    args = ["solve", graph, "--pattern", "ring", "--sensitivity", "tier"]
    assert "--objective mean" in refused(*args)
    assert fabric(*args, "--objective", "mean", "--format", "json").json["sensitivities"]


def _with_a_dead_end():
    net = fb.topologies.single_switch(3)
    capacity = np.array(net.capacity)
    capacity[0] = 0.0
    return net.with_capacity(capacity)
