"""What `sensitivities` promises, and the tangents and reaches it is made of."""

import json
import math
from dataclasses import replace

import jax
import numpy as np
import pytest

import fabric as fb
from fabric.solvers import _sensitivities
from fabric.solvers._beyond import Beyond
from fabric.solvers._certify import live_capacity
from tests.derivatives.drawn import tied_problems
from tests.oracle.problems import drawn_problems

N_PROBLEMS = 400
BIG = 1e3
"""A step beyond which no problem is solved again; a reach may be infinite."""


def beyond(net, routes):
    weight, cap = (np.asarray(x, np.float64) for x in (routes.weight, routes.cap))
    return Beyond(routes, live_capacity(net), weight, cap)


def rates_at(net, routes, capacity):
    return np.asarray(fb.max_min_rates(net.with_capacity(capacity), routes).rates)


def tied():
    for drawn, direction in tied_problems(N_PROBLEMS):
        yield drawn, direction["capacity"]


def untied():
    for i, drawn in enumerate(drawn_problems(N_PROBLEMS)):
        way = np.random.default_rng(i).normal(size=len(drawn.capacity))
        yield drawn, np.where(drawn.capacity > 0, way, 0.0)


PROBLEMS = {"tied": tied, "untied": untied}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_tangents_equal_those_of_the_rounds_in_jax(kind):
    for drawn, way in PROBLEMS[kind]():
        got = np.asarray(drawn.routes.weight) * beyond(drawn.network, drawn.routes).tangents(way)
        want = fb.one_sided(lambda s: s.rates, drawn.network, drawn.routes, {"capacity": way})[1]
        # A few roundings each; 3e-15 was measured.
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_ties_survive_the_rounding_of_their_values():
    for drawn, way in tied():
        small = replace(drawn, capacity=0.7 * drawn.capacity, caps=0.7 * drawn.caps)
        want, got = (beyond(d.network, d.routes).tangents(way) for d in (drawn, small))
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def off_the_line(drawn, way, step, tangent):
    """Return how far the rates at a step are from the line, relative to their size."""
    net, routes = drawn.network, drawn.routes
    start = rates_at(net, routes, drawn.capacity)
    there = rates_at(net, routes, np.maximum(drawn.capacity + step * way, 0))
    line = start + step * np.asarray(routes.weight) * tangent
    return np.abs(there - line).max() / max(1.0, np.abs(start).max(), np.abs(line).max())


@pytest.mark.parametrize("kind", PROBLEMS)
def test_rates_are_on_a_line_up_to_the_reach_and_leave_it_there(kind):
    ended = 0
    for drawn, way in PROBLEMS[kind]():
        now = beyond(drawn.network, drawn.routes)
        tangent = now.tangents(way)
        reach = now.reach(way, tangent)
        for part in (0.5, 0.999):
            assert off_the_line(drawn, way, part * min(reach, BIG), tangent) < 1e-11
        if reach > BIG:
            continue
        left = [off_the_line(drawn, way, part * reach, tangent) for part in (1.01, 1.5)]
        below_0 = np.any(drawn.capacity + 1.01 * reach * way < 0)
        assert below_0 or max(left) > 1e-6
        ended += 1
    assert ended > N_PROBLEMS // 2


FABRICS = {
    "leaf-spine-ecmp": lambda: routed(
        fb.topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=4), fb.traffic.permutation
    ),
    "fat-tree-ecmp": lambda: routed(fb.topologies.fat_tree(k=4), fb.traffic.permutation),
    "fat-tree-spray": lambda: routed(
        fb.topologies.fat_tree(k=4), fb.traffic.all_to_all, spray=True
    ),
    "cables-missing": lambda: routed(
        fb.topologies.fat_tree(k=4).without(links=[40, 55]), fb.traffic.all_to_all, spray=True
    ),
    "queue-pairs": lambda: routed(
        fb.topologies.fat_tree(k=4), fb.traffic.permutation, queue_pairs=3
    ),
}


def routed(net, traffic, spray=False, **options):
    seeded = {} if traffic is fb.traffic.all_to_all else {"seed": 0}
    flows = traffic(net.hosts, **seeded)
    return net, fb.routing.spray(net, flows) if spray else fb.routing.ecmp(net, flows, **options)


@pytest.mark.parametrize("fabric", FABRICS)
def test_tangents_on_fabrics_equal_those_of_the_rounds_in_jax(fabric):
    net, routes = FABRICS[fabric]()
    unit, rng = float(net.capacity[0]), np.random.default_rng(0)
    ways = [unit * rng.normal(size=net.n_links), unit * rng.integers(-1, 2, net.n_links)]
    ways += [s * unit * net.labels.is_tier(tier) for tier in net.labels.tiers for s in (1.0, -1.0)]
    now = beyond(net, routes)
    got = np.asarray(routes.weight) * np.stack([now.tangents(way) for way in ways])
    want = fb.one_sided(lambda s: s.rates, net, routes, {"capacity": np.stack(ways)})[1]
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10 * unit)


NAMED = {"slowest": np.min, "mean": np.mean, "total": np.sum}


@pytest.mark.parametrize("by", _sensitivities.BY)
@pytest.mark.parametrize("objective", NAMED)
@pytest.mark.parametrize("fabric", FABRICS)
def test_gain_and_loss_are_what_another_solve_finds_anywhere_within_the_reach(
    fabric, objective, by
):
    net, routes = FABRICS[fabric]()
    capacity = np.asarray(net.capacity)
    goal = lambda c: NAMED[objective](np.asarray(routes.per_flow(rates_at(net, routes, c))))
    table = fb.sensitivities(net, routes, objective, by, top=5)
    start = goal(capacity)
    assert table.value == pytest.approx(start, rel=1e-12)
    for row in table:
        links = members(net, by, row.key)
        assert len(links) == row.links
        ends = {
            1: (row.gain_per_plus_1pct, row.exact_within_plus_pct),
            -1: (-row.loss_per_minus_1pct, row.exact_within_minus_pct),
        }
        for sign, (slope, reach) in ends.items():
            for part in (0.3, 0.999):
                step = sign * part * min(reach, 200.0) / 100
                moved = capacity.copy()
                moved[links] *= 1 + step
                assert goal(moved) / start - 1 == pytest.approx(slope * abs(step), abs=1e-11)


def members(net, by, key):
    """Return the live links of a group, found by its name alone."""
    labels, names = net.labels, [net.link_name(link) for link in range(net.n_links)]
    ends = lambda link: (labels.names[labels.src[link]], labels.names[labels.dst[link]])
    belongs = {
        "tier": lambda link: labels.tiers[labels.tier_of[link]] == key,
        "class": lambda link: f"{labels.tiers[labels.tier_of[link]]} 400 Gb/s" == key,
        "node": lambda link: key in ends(link),
        "link": lambda link: names[link] == key,
        "cable": lambda link: {*ends(link)} == {*key.split(" - ")},
    }[by]
    return [link for link in np.flatnonzero(net.alive) if belongs(link)]


@pytest.mark.parametrize("fabric", ["leaf-spine-ecmp", "fat-tree-ecmp", "cables-missing"])
def test_the_reach_of_the_slowest_flow_is_not_too_short(fabric):
    net, routes = FABRICS[fabric]()
    capacity = np.asarray(net.capacity)
    start, left = rates_at(net, routes, capacity).min(), 0
    for row in fb.sensitivities(net, routes, "slowest", "tier"):
        links = members(net, "tier", row.key)
        for sign, slope, reach in (
            (1, row.gain_per_plus_1pct, row.exact_within_plus_pct),
            (-1, -row.loss_per_minus_1pct, row.exact_within_minus_pct),
        ):
            if reach >= (100 if sign < 0 else 1e6):
                continue
            moved = capacity.copy()
            moved[links] *= 1 + sign * 1.1 * reach / 100
            line = 1 + slope * 1.1 * reach / 100
            assert abs(rates_at(net, routes, moved).min() / start - line) > 1e-3
            left += 1
    assert left > 0


def test_the_short_way_to_the_slowest_flow_equals_the_long_one():
    for drawn, _ in list(tied())[:60]:
        equal = replace(drawn, weights=np.full(len(drawn.weights), 2.0))
        net, routes = equal.network, equal.routes
        if rates_at(net, routes, equal.capacity).min() == 0:
            continue
        short = fb.sensitivities(net, routes, "slowest", "link")
        long = fb.sensitivities(net, routes, lambda s: s.rates.min(), "link")
        for row in short:
            other = long.row(row.key)
            assert row.gain_per_plus_1pct == pytest.approx(other.gain_per_plus_1pct, abs=1e-11)
            assert row.loss_per_minus_1pct == pytest.approx(other.loss_per_minus_1pct, abs=1e-11)
        missed = {row.key for row in long} - {row.key for row in short}
        for key in missed:
            assert long.row(key).gain_per_plus_1pct == pytest.approx(0, abs=1e-11)
            assert long.row(key).loss_per_minus_1pct == pytest.approx(0, abs=1e-11)


def test_two_tied_links_by_hand():
    # 6 and 6 in a row, three flows: more of one buys nothing, less costs all of it.
    net, routes = fb.Network([6.0, 6.0]), fb.Routes.from_paths([[0, 1]] * 3, n_links=2)
    for row in fb.sensitivities(net, routes, "total", "link"):
        assert (row.gain_per_plus_1pct, row.loss_per_minus_1pct) == pytest.approx((0, 1))
        assert row.kink
        assert row.exact_within_plus_pct == math.inf
        assert row.exact_within_minus_pct == pytest.approx(100)


def test_reaches_by_hand():
    # Link 0 of 4 holds both flows at 2; link 1 of 9 then gives flow 1 nothing more to take.
    net = fb.Network([4.0, 9.0])
    routes = fb.Routes.from_paths([[0, 1], [0]], n_links=2, caps=[math.inf, 3.0])
    up = np.array([1.0, 0.0])
    now = beyond(net, routes)
    # Both rise by half, until flow 1 reaches its cap of 3 at a capacity of 6.
    np.testing.assert_allclose(now.tangents(up), [0.5, 0.5])
    assert now.reach(up, now.tangents(up)) == pytest.approx(2.0)
    # Lowered, link 1 fills at 2: a step of 7; link 0 is empty after 4.
    assert now.reach(-up, now.tangents(-up)) == pytest.approx(4.0)
    down = np.array([0.0, -1.0])
    assert now.reach(down, now.tangents(down)) == pytest.approx(7.0)


def test_a_flow_that_overtakes_ends_the_reach():
    # Link 0 holds flow 0 at 2, link 1 of 8 leaves 6 to flow 1. Raised by x, flow 0 meets flow 1
    # where 2 + x = 6 - x.
    net, routes = fb.Network([2.0, 8.0]), fb.Routes.from_paths([[0, 1], [1]], n_links=2)
    up, now = np.array([1.0, 0.0]), beyond(net, routes)
    np.testing.assert_allclose(now.tangents(up), [1.0, -1.0])
    assert now.reach(up, now.tangents(up)) == pytest.approx(2.0)


def test_a_flow_of_two_bottlenecks_keeps_the_longer_one():
    # Flow 1 is held by links 1 and 2 alike; a flow overtakes it on link 1, and link 2 holds on.
    net = fb.Network([1.0, 4.0, 3.0, 9.0])
    routes = fb.Routes.from_paths([[0, 1], [1, 2]], n_links=4)
    up = np.array([1.0, 1.0, 0.0, 0.0])
    now = beyond(net, routes)
    tangent = now.tangents(up)
    np.testing.assert_allclose(tangent, [1.0, 0.0], atol=1e-14)
    assert now.reach(up, tangent) == math.inf


def clos(spine_capacity="400Gb/s"):
    """Return a leaf-spine without oversubscription, and flows between all hosts of two leaves."""
    net = fb.topologies.leaf_spine(
        leaves=4, spines=4, hosts_per_leaf=4, capacity="400Gb/s", uplink_capacity=spine_capacity
    )
    hosts, leaf = net.hosts, net.labels.tags["leaf"][net.hosts]
    src, dst = np.nonzero(leaf[:, None] != leaf[None, :])
    return net, fb.routing.spray(net, fb.Flows(hosts[src], hosts[dst]))


def test_tiers_of_a_clos_without_oversubscription_are_tied():
    net, routes = clos()
    for objective in ("slowest", "mean", lambda s: s.rates.min()):
        table = fb.sensitivities(net, routes, objective)
        assert {row.key for row in table} == {"host", "leaf-spine"}
        for row in table:
            assert row.gain_per_plus_1pct == pytest.approx(0, abs=1e-12)
            assert row.loss_per_minus_1pct == pytest.approx(1)
            assert row.kink
    both = {"capacity": np.asarray(net.capacity)}
    value, slope = fb.one_sided(lambda s: s.rates.min(), net, routes, both)
    assert slope / value == pytest.approx(1)


def test_a_tier_with_spare_capacity_buys_nothing_and_its_reach_is_what_it_has_to_spare():
    table = fb.sensitivities(*clos("500Gb/s"))
    host, spine = table.row("host"), table.row("leaf-spine")
    assert (host.gain_per_plus_1pct, host.loss_per_minus_1pct) == pytest.approx((1, 1))
    assert not host.kink
    assert host.exact_within_plus_pct == pytest.approx(25)
    assert (spine.gain_per_plus_1pct, spine.loss_per_minus_1pct) == (0, 0)
    assert spine.exact_within_plus_pct == math.inf
    assert spine.exact_within_minus_pct == pytest.approx(20)
    assert [row.key for row in table] == ["host", "leaf-spine"]


def test_a_function_of_ones_own_gives_what_the_name_gives():
    net, routes = FABRICS["queue-pairs"]()
    named = fb.sensitivities(net, routes, "slowest", "node")
    own = fb.sensitivities(net, routes, lambda s: routes.per_flow(s.rates).min(), "node")
    assert [row.key for row in named] == [row.key for row in own]
    for a, b in zip(named, own, strict=True):
        assert a.gain_per_plus_1pct == pytest.approx(b.gain_per_plus_1pct, abs=1e-11)
        assert a.loss_per_minus_1pct == pytest.approx(b.loss_per_minus_1pct, abs=1e-11)
        # The name knows where another flow becomes the slowest.
        assert a.exact_within_pct <= b.exact_within_pct * (1 + 1e-9)


def test_an_objective_that_falls_has_a_negative_gain():
    net, routes = fb.Network([4.0]), fb.Routes.from_paths([[0]], n_links=1)
    (row,) = fb.sensitivities(net, routes, lambda s: 1 / s.rates.min(), "link")
    assert (row.gain_per_plus_1pct, row.loss_per_minus_1pct) == pytest.approx((-1, -1))


def test_weights_and_caps_given_to_the_solve_count():
    net, routes = fb.Network([6.0]), fb.Routes.from_paths([[0], [0]], n_links=1)
    weights, caps = np.array([1.0, 2.0]), np.array([math.inf, 4.5])
    (row,) = fb.sensitivities(net, routes, "slowest", "link", weights=weights, caps=caps)
    # 2 and 4; the second reaches its cap at a capacity of 6.75.
    assert row.gain_per_plus_1pct == pytest.approx(1)
    assert row.exact_within_plus_pct == pytest.approx(12.5)
    table = fb.sensitivities(net, routes, "slowest", "link", caps=np.array([2.0, math.inf]))
    assert (table.value, len(table)) == (2.0, 0)
    # At a cap of 2 the link of 6 can lose a third before it matters to that flow.
    assert "within 33 %" in table.left_out[0]


def test_float32_capacities_give_the_same_table():
    net, routes = FABRICS["fat-tree-ecmp"]()
    wide, narrow = (
        fb.sensitivities(net.with_capacity(np.asarray(net.capacity, kind)), routes, "mean")
        for kind in (np.float64, np.float32)
    )
    for a, b in zip(wide, narrow, strict=True):
        assert a.key == b.key
        assert a.gain_per_plus_1pct == pytest.approx(b.gain_per_plus_1pct, abs=1e-6)


def test_failed_links_are_in_no_group():
    net, routes = FABRICS["cables-missing"]()
    table = fb.sensitivities(net, routes)
    assert sum(row.links for row in table) == int(net.alive.sum()) == net.n_links - 4


def test_groups_without_a_full_link_are_counted_with_what_they_can_spare():
    net = fb.Network([4.0, 5.0, 10.0])
    routes = fb.Routes.from_paths([[0, 1, 2]], n_links=3)
    table = fb.sensitivities(net, routes, "total", "link")
    assert [row.key for row in table] == ["link 0"]
    (said,) = table.left_out
    assert "2 of 3 links have no full link" in said
    assert "within 20 %" in said


def test_only_so_many_rows_as_asked_for_are_kept_and_the_rest_counted():
    net, routes = FABRICS["leaf-spine-ecmp"]()
    whole = fb.sensitivities(net, routes, "mean", "link")
    part = fb.sensitivities(net, routes, "mean", "link", top=2)
    assert part.rows == whole.rows[:2]
    assert f"{len(whole) - 2:,} more rows" in part.left_out[-1]


def test_too_many_groups_are_left_out_with_their_number(monkeypatch):
    net, routes = FABRICS["leaf-spine-ecmp"]()
    whole = fb.sensitivities(net, routes, "mean", "link")
    work = 2 * beyond(net, routes).work
    monkeypatch.setattr(_sensitivities, "MOST_ENTRIES", 3 * work)
    part = fb.sensitivities(net, routes, "mean", "link")
    assert len(part) == 3 < len(whole)
    assert (
        f"{len(whole) - 3:,} of {len(whole):,} links with a full link are left out"
        in (part.left_out[-1])
    )


def test_rows_are_ready_for_json():
    net, routes = clos("500Gb/s")
    table = fb.sensitivities(net, routes)
    host, spine = json.loads(json.dumps(table.to_dicts(), allow_nan=False))
    assert host["by"] == "tier"
    assert host["objective"] == "slowest"
    assert host["value"] == pytest.approx(table.value)
    assert host["exact_within_pct"] == pytest.approx(25)
    assert spine["exact_within_plus_pct"] is None
    assert spine["exact_within_minus_pct"] == pytest.approx(20)


def test_the_text_has_a_line_per_row():
    table = fb.sensitivities(*clos("500Gb/s"))
    head, host, spine = str(table).splitlines()
    assert "slowest" in head
    assert host.split() == ["host", "32", "+1", "%", "-1", "%", "25", "%"]
    assert spine.split() == ["leaf-spine", "32", "0", "%", "0", "%", "20", "%"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"by": "teir"}, "no grouping. Did you mean 'tier'"),
        ({"objective": "slowst"}, "no objective. Did you mean 'slowest'"),
        ({"objective": lambda s: s.rates}, r"returned float64 of shape \(2,\)"),
        ({"objective": lambda s: s.rounds}, "returned int32"),
        ({"objective": lambda s: s.rates.min() * 0.0}, "is 0, so percent of it mean nothing"),
        ({"top": -1}, "0 or more"),
        ({"by": "tier"}, "has no labels"),
    ],
)
def test_wrong_arguments_are_refused_by_name(options, text):
    net, routes = fb.Network([6.0]), fb.Routes.from_paths([[0], [0]], n_links=1)
    arguments = {"objective": "slowest", "by": "link"} | options
    with pytest.raises(fb.ModelError, match=text):
        fb.sensitivities(net, routes, **arguments)


def test_a_slowest_flow_of_rate_0_has_no_percent():
    net, routes = fb.Network([0.0, 1.0]), fb.Routes.from_paths([[0], [1]], n_links=2)
    with pytest.raises(fb.ModelError, match="'slowest' of `sensitivities` is 0"):
        fb.sensitivities(net, routes, by="link")
    assert len(fb.sensitivities(net, routes, "mean", "link")) == 1


def test_without_flows_there_is_no_percent_either():
    net, routes = fb.Network([1.0, 2.0]), fb.Routes.from_paths([], n_links=2)
    with pytest.raises(fb.ModelError, match="'mean' of `sensitivities` is 0"):
        fb.sensitivities(net, routes, "mean", "link")


def test_an_unknown_row_offers_the_nearest():
    table = fb.sensitivities(*clos())
    with pytest.raises(fb.ModelError, match="Did you mean 'leaf-spine'"):
        table.row("leaf-spin")


def test_inside_a_transformation_it_names_what_to_use():
    net, routes = fb.place(fb.Network([6.0]), fb.Routes.from_paths([[0]], n_links=1))
    gain = lambda c: fb.sensitivities(net.with_capacity(c), routes, by="link").value
    with pytest.raises(NotImplementedError, match="use `one_sided`"):
        jax.jit(gain)(net.capacity)


def last(net, routes, size):
    return float(np.max(size / np.asarray(fb.max_min_rates(net, routes).rates)))


def test_completion_is_the_slowest_of_sizes_over_rates_and_bends_as_a_step_says():
    net = fb.topologies.leaf_spine(
        leaves=4, spines=2, hosts_per_leaf=4, cables_per_pair=2, capacity="400Gb/s"
    )
    flows = fb.traffic.permutation(net.hosts, seed=3)
    routes = fb.routing.spray(net, flows)
    size = np.random.default_rng(0).choice([1e9, 2e9], flows.n_flows)
    table = fb.sensitivities(net, routes, fb.Completion(size))
    assert table.value == pytest.approx(last(net, routes, size), rel=1e-12)
    step = 1e-6
    for row in table:
        links = net.labels.is_tier(row.key)
        more, less = (net.with_capacity(net.capacity * (1 + s * step * links)) for s in (1, -1))
        # A quotient bends by the square of the step.
        up = last(more, routes, size) / table.value - 1
        assert row.gain_per_plus_1pct == pytest.approx(up / step, abs=1e-5)
        down = 1 - last(less, routes, size) / table.value
        assert row.loss_per_minus_1pct == pytest.approx(down / step, abs=1e-5)


def test_completion_agrees_with_a_function_that_says_the_same():
    tried = 0
    for drawn, _ in tied_problems(40):
        rates = np.asarray(fb.max_min_rates(drawn.network, drawn.routes).rates)
        if not np.all(rates > 0):
            continue
        tried += 1
        size = np.arange(1.0, len(rates) + 1)
        goals = (fb.Completion(size), lambda s, size=size: jax.numpy.max(size / s.rates))
        named, own = (
            {
                row.key: (row.gain_per_plus_1pct, row.loss_per_minus_1pct)
                for row in fb.sensitivities(drawn.network, drawn.routes, goal, by="link")
            }
            for goal in goals
        )
        for key, pair in named.items():
            np.testing.assert_allclose(pair, own[key], rtol=1e-9, atol=1e-12)
    assert tried > 10
