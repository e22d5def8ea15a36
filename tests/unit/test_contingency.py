"""What `contingency` promises, one test per promise; its numbers against brute force elsewhere."""

import functools
import json

import numpy as np
import pytest

import fabric as fb
from fabric import hardware
from fabric._errors import InfeasibleError, ModelError
from fabric.reliability import contingency
from fabric.reliability._progress import Progress


@pytest.fixture(scope="module")
def net():
    return fb.topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=2, capacity="8GB/s")


@pytest.fixture(scope="module")
def flows(net):
    """Every host sends to the host two leaves further on."""
    return fb.Flows(net.hosts, np.roll(net.hosts, -4), size=16e9)


@pytest.fixture
def by_class_only(monkeypatch):
    """Nothing counts as quick, so that classes stand as they are found."""
    monkeypatch.setattr("fabric.reliability._study._QUICK", 0.0)


def test_a_leaf_with_two_uplinks_loses_half_with_either_of_them(net, flows):
    row = contingency(net, flows, kind="leaf-spine")[0]
    # Two flows of 8 GB/s share one uplink of 8 GB/s; so do two at the far end.
    assert (row.count, row.lost, row.slowest, row.total) == (8, 0, 4e9, 6 * 8e9)
    assert row.change == pytest.approx(-0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("host", [(8, 2, 8e9, 48e9)]),
        ("leaf", [(4, 4, 8e9, 32e9)]),
        ("spine", [(2, 0, 4e9, 32e9)]),
    ],
)
def test_hand_solved(net, flows, kind, rows):
    found = [(r.count, r.lost, r.slowest, r.total) for r in contingency(net, flows, kind=kind)]
    assert found == [pytest.approx(row, rel=1e-12) for row in rows]


def test_kinds_are_ranked_together_worst_first(net, flows):
    report = contingency(net, flows, kind=["spine", "leaf", "leaf-spine"])
    assert [row.kind for row in report] == ["leaf", "spine", "leaf-spine"]
    assert report.n_components == 4 + 2 + 8
    assert report.n_classes == 3


def test_flows_that_are_cut_off_are_counted_and_named(net, flows):
    row = contingency(net, flows, kind="host").score_of("leaf0-host0")
    assert row.lost == 2
    assert row.pairs[0] == "leaf0-host0 -> leaf2-host0"
    assert row.value == 0


def test_every_component_is_in_one_row(net, flows):
    report = contingency(net, flows, kind="link")
    members = np.concatenate([row.members for row in report])
    np.testing.assert_array_equal(np.sort(members), np.arange(16))
    assert report.score_of(3) is report.score_of(report.components["link"].name(3))


def test_the_completion_of_all_flows_is_a_goal_too(net, flows):
    goal = fb.Completion(np.asarray(flows.size))
    report = contingency(net, flows, kind=["leaf-spine", "leaf"], objective=goal)
    assert report.value == pytest.approx(2.0, rel=1e-12)  # 16 GB at 8 GB/s
    assert [row.value for row in report] == [np.inf, pytest.approx(4.0, rel=1e-12)]


def test_flows_of_other_sizes_are_told_apart_only_by_completion(net, flows):
    sizes = np.where(np.arange(8) < 2, 32e9, 16e9)
    goal = fb.Completion(sizes)
    assert len(contingency(net, flows, kind="leaf-spine")) == 1
    assert len(contingency(net, flows, kind="leaf-spine", objective=goal)) > 1


def test_the_total_orders_rows_by_what_is_left(net, flows):
    report = contingency(net, flows, kind=["host", "leaf", "leaf-spine"], objective="total")
    left = [row.value for row in report]
    assert left == sorted(left)
    assert report[0].kind == "leaf"


def test_a_degraded_component_costs_what_it_lacks(net, flows):
    (row,) = contingency(net, flows, kind="leaf-spine", factor=0.5)
    # Sprayed evenly, the slow one of two uplinks holds both flows: 2 x 4 GB/s x 1/2 = 4 GB/s.
    assert (row.lost, row.slowest) == (0, pytest.approx(4e9, rel=1e-12))


def test_a_fault_that_is_there_already_tells_failures_apart(net, flows):
    broken = net.without(links=[int(np.flatnonzero(net.labels.is_tier("leaf-spine"))[0])])
    report = contingency(broken, flows, kind="leaf-spine")
    assert sum(row.count for row in report) == 7
    # The other uplink of leaf0 cuts off its two flows and those to it.
    assert report[0].name == "leaf0 - spine1"
    assert report[0].lost == 4


def test_components_without_traffic_are_one_row_and_take_no_solve():
    nics = fb.topologies.rail_optimized(servers=2, radix=16)
    whole = fb.topologies.attach_servers(
        nics, hardware.server("dgx-h100"), nics.hosts.reshape(-1, 8)
    )
    flows = fb.Flows(whole.hosts, np.roll(whole.hosts, -8))
    (row,) = contingency(whole, flows, kind="nvlink")
    assert (row.count, row.solved, row.change) == (64, 0, 0.0)


def test_every_member_is_solved_where_that_is_quick(net, flows):
    report = contingency(net, flows, kind=["leaf-spine", "host"], check=0)
    assert [(row.count, row.solved) for row in report] == [(8, 8), (8, 8)]
    assert "Every member of every class was solved." in report.notes


@pytest.mark.usefixtures("by_class_only")
def test_more_members_of_a_class_are_solved_as_asked(net, flows):
    for check in (0, 3):
        (row,) = contingency(net, flows, kind="leaf-spine", check=check)
        assert row.solved == 1 + check


def numbers(net, names):
    return [link for link in range(net.n_links) if net.link_name(link) in names]


def differences(net, flows, kind, objective="slowest"):
    """Components whose row says something else than a solve of their own."""
    report = contingency(net, flows, kind=kind, objective=objective, check=0)
    each = contingency(net, flows, kind=kind, objective=objective, sample="all")
    assert len(report) < report.n_components
    return [
        report.components[row.kind].name(int(member))
        for row in report
        for member in row.members
        if row.value != pytest.approx(each.score_of(int(member), row.kind).value, rel=1e-9)
    ]


@pytest.mark.usefixtures("by_class_only")
@pytest.mark.parametrize("dead", [False, True], ids=["slow", "dead"])
def test_which_odd_cable_is_on_the_way_of_which_flow_tells_failures_apart(dead):
    net = fb.topologies.leaf_spine(leaves=16, spines=8, hosts_per_leaf=8)
    odd = numbers(net, {"leaf4->spine0", "leaf9->spine1"})
    net = net.without(links=odd) if dead else net.degraded(links=odd, factor=0.5)
    assert not differences(net, fb.Flows(net.hosts, np.roll(net.hosts, -8)), "leaf-spine")


@pytest.mark.usefixtures("by_class_only")
def test_rings_of_other_lengths_are_told_apart():
    net = fb.topologies.leaf_spine(leaves=69, spines=2, hosts_per_leaf=1)
    rings = [*np.split(net.hosts[:60], 20), net.hosts[60:]]
    near = [(ring, np.roll(ring, way)) for ring in rings for way in (1, -1)]
    flows = fb.Flows(*(np.concatenate(ends) for ends in zip(*near, strict=True)))
    assert not differences(net, flows, "leaf", "total")
    report = contingency(net, flows, kind="leaf", objective="total", check=0)
    # 4 of 138 equal flows are lost; in a ring of 3 the 2 that are left have all to themselves.
    changes = [(row.count, pytest.approx(row.change, rel=1e-9)) for row in report]
    assert changes == [(9, -4 / 138), (60, -2 / 138)]


@pytest.mark.usefixtures("by_class_only")
def test_many_odd_cables_are_said_to_be_too_many_to_tell_apart():
    net = fb.topologies.leaf_spine(leaves=16, spines=16, hosts_per_leaf=1)
    slow = {f"leaf{i}->spine{(i + k) % 16}" for i in range(16) for k in range(5)}
    net = net.degraded(links=numbers(net, slow), factor=0.5)
    report = contingency(net, fb.Flows(net.hosts, np.roll(net.hosts, -1)), kind="leaf-spine")
    assert any("unlike most of their tier" in note for note in report.notes)


def test_a_function_that_does_more_than_spray_is_solved_in_full(net, flows):
    def drained(network, flows):
        """Take spines with a dead cable out of use, then spray."""
        labels, alive = network.labels, np.asarray(network.alive)
        dead = ~alive & (labels.kind_of[labels.dst] == labels.kind_of[labels.node("spine0")])
        spines = np.unique(labels.dst[dead])
        return fb.routing.spray(network.without(nodes=spines) if len(spines) else network, flows)

    (row,) = contingency(net, flows, drained, kind="leaf-spine")
    # One spine is left: the two flows of each leaf share its one uplink.
    assert (row.slowest, row.total) == pytest.approx((4e9, 32e9), rel=1e-12)


def test_a_function_may_name_nodes(net, flows):
    def without_spine1(network, flows):
        return fb.routing.spray(network.without(nodes=["spine1"]), flows)

    report = contingency(net, flows, without_spine1, kind="spine")
    assert [row.name for row in report] == ["spine0", "spine1"]
    assert [row.lost for row in report] == [8, 0]


@pytest.mark.usefixtures("by_class_only")
def test_a_class_has_few_solves_however_large_the_fabric():
    big = fb.topologies.fat_tree(16)
    flows = fb.Flows(big.hosts, np.roll(big.hosts, -64))
    report = contingency(big, flows, kind=["link", "switch"])
    assert report.n_components == 3 * 1024 + 320
    assert report.n_classes == 6
    assert sum(row.solved for row in report) == 18


@pytest.mark.parametrize(
    "routing",
    [
        "ecmp",
        "flowlet",
        functools.partial(fb.routing.valiant, intermediates=2),
        functools.partial(fb.routing.k_shortest, split="hash"),
    ],
)
def test_rules_that_hash_are_refused_with_the_time_and_the_way_out(net, flows, routing):
    with pytest.raises(ModelError, match=r"chosen by hash.*16 components.*`sample=8`"):
        contingency(net, flows, routing)


def test_a_sample_is_drawn_by_seed_and_says_how_sure_it_is(net, flows):
    draw = lambda seed: contingency(net, flows, "ecmp", sample=5, seed=seed)
    first, again = draw(0), draw(0)
    assert [row.members.tolist() for row in first] == [row.members.tolist() for row in again]
    assert sum(row.count for row in first) == 5
    # 0.55^5 is about 0.05: were 45 % worse than the worst, five draws would miss them by 5 %.
    assert any("95 % confidence no more than 45 %" in note for note in first.notes)
    missing = set(range(16)) - {int(m) for row in first for m in row.members}
    with pytest.raises(ModelError, match="not among the components that were drawn"):
        first.score_of(missing.pop())


def test_work_beyond_the_limit_is_refused_before_it_starts(net, flows):
    with pytest.raises(InfeasibleError, match=r"16 failures .* `limit_s=1e-09`.*`sample=1`"):
        contingency(net, flows, sample="all", limit_s=1e-9)


def test_arguments_of_a_rule_go_in_by_partial(net, flows):
    routing = functools.partial(fb.routing.spray, queue_pairs=3)
    split, one = (contingency(net, flows, rule, kind="spine")[0] for rule in (routing, "spray"))
    assert (split.slowest, split.total) == pytest.approx((one.slowest, one.total), rel=1e-12)


def test_the_report_is_json_and_a_table(net, flows):
    report = contingency(net, flows, kind=["leaf", "leaf-spine"])
    facts = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert [row["members"] for row in facts["rows"]] == [4, 8]
    head, *lines = str(report).splitlines()
    assert head.split() == [
        "failure", "of", "like", "it", "cut", "off", "slowest", "total", "slowest",
    ]  # fmt: skip
    assert lines[0].split() == ["leaf0", "4", "4", "8", "GB/s", "32", "GB/s", "-100", "%"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "spines"}, "Did you mean 'spine'"),
        ({"kind": []}, "at least one kind"),
        ({"objective": "slow"}, "Did you mean 'slowest'"),
        ({"routing": "sprays"}, "Did you mean 'spray'"),
        ({"factor": 1.0}, "less than 1"),
        ({"check": -1}, "of 0 or more"),
        ({"sample": "some"}, "or 'all'"),
        ({"sample": 0}, "of 1 or more"),
        ({"objective": fb.Completion(np.ones(3))}, r"each of 8 flows, but got shape \(3,\)"),
        ({"objective": fb.Completion(np.full(8, np.nan))}, "got nan at 0, 1, 2, 3, 4 and 3 more"),
        ({"objective": fb.Completion(np.arange(8.0) - 1)}, "got -1 at 0"),
        ({"objective": fb.Completion(np.zeros(8))}, "a flow of more than 0 bytes"),
        ({"seed": -1}, "`seed` needs a whole number of 0 or more"),
        ({"limit_s": 0.0}, "more than 0 seconds"),
        ({"limit_s": -1.0}, "more than 0 seconds"),
        ({"limit_s": float("nan")}, "more than 0 seconds"),
    ],
)
def test_what_cannot_be_is_refused(net, flows, options, said):
    with pytest.raises(ModelError, match=said):
        contingency(net, flows, **options)


def test_progress_says_rate_and_rest_on_stderr_and_cleans_up(capsys, monkeypatch):
    monkeypatch.setattr("fabric.reliability._progress._QUIET_S", 0.0)
    monkeypatch.setattr("fabric.reliability._progress._STEP_S", 0.0)
    for shown in (True, False):
        with Progress("failures", 4, shown) as told:
            told.step()
        said = capsys.readouterr()
        assert said.out == ""
        assert ("1 of 4 failures" in said.err) is shown
        assert ("s to go" in said.err) is shown
        assert said.err.endswith("\r\x1b[K") is shown
