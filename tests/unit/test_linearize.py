"""What `optimize.linearize` promises: every row is what a fresh solve says, and tells how."""

import jax
import numpy as np
import pytest

import fabric as fb
from fabric.optimize import Change, linearize
from fabric.optimize._jobs import Job
from fabric.optimize._linearize import _posed

CLUSTER = fb.topologies.leaf_spine(
    leaves=4, spines=3, hosts_per_leaf=4, capacity="10GB/s", uplink_capacity="8GB/s"
)


def uneven(network, seed=0, spread=0.4):
    """Every link of another capacity, so that nothing is tied."""
    rng = np.random.default_rng(seed)
    return network.with_capacity(network.capacity * rng.uniform(1 - spread, 1, network.n_links))


def changed(network, row, groups):
    """The network of a row, made by hand."""
    capacity = np.array(network.capacity)
    capacity[groups(network, row)] *= 1 + row.by
    return network.with_capacity(capacity)


def links_of(network, row):
    labels = network.labels
    if row.what == "tier":
        return labels.is_tier(row.key)
    if row.what == "node":
        node = labels.node(row.key)
        return (labels.src == node) | (labels.dst == node)
    names = np.array([network.link_name(l) for l in range(network.n_links)])
    if row.what == "link":
        return names == row.key
    there, back = row.key.split(" - ")
    return np.isin(names, [f"{there}->{back}", f"{back}->{there}"])


def measured(objective, routes, solution):
    pairs = np.asarray(routes.per_flow(np.asarray(solution.rates)))
    if isinstance(objective, fb.Completion):
        return (objective.size / pairs).max()
    return {"slowest": pairs.min, "mean": pairs.mean, "total": pairs.sum}[objective]()


def permuted(network, seed=1):
    flows = fb.traffic.permutation(network.hosts, seed=seed)
    return fb.routing.ecmp(network, flows, seed=seed)


@pytest.mark.parametrize("by", [0.02, 0.6])
@pytest.mark.parametrize("objective", ["slowest", "mean", "total", "completion"])
@pytest.mark.parametrize("grouping", ["tier", "node", "cable", "link"])
def test_every_row_of_a_grouping_is_what_a_fresh_solve_says(grouping, objective, by):
    net = uneven(CLUSTER)
    routes = permuted(net)
    if objective == "completion":
        objective = fb.Completion(np.arange(1.0, routes.n_pairs + 1) * 1e9)
    table = linearize(net, routes, grouping, objective, by=by)
    assert len(table)
    for row in table:
        solution = fb.max_min_rates(changed(net, row, links_of), routes)
        want = measured(objective, routes, solution)
        assert row.value == pytest.approx(want, rel=1e-9), row
        assert row.share == pytest.approx(want / table.value - 1, abs=1e-9)


@pytest.mark.parametrize("grouping", ["tier", "node", "cable"])
@pytest.mark.parametrize("objective", ["slowest", "mean"])
def test_rows_are_exact_where_everything_is_tied(grouping, objective):
    routes = fb.routing.spray(CLUSTER, fb.traffic.all_to_all(CLUSTER.hosts))
    for row in linearize(CLUSTER, routes, grouping, objective, by="10%"):
        solution = fb.max_min_rates(changed(CLUSTER, row, links_of), routes)
        want = measured(objective, routes, solution)
        assert row.value == pytest.approx(want, rel=1e-9), row


def test_bundles_that_lost_a_cable_are_exact_too():
    net = uneven(
        CLUSTER.without(links=[int(np.flatnonzero(CLUSTER.labels.is_tier("leaf-spine"))[0])])
    )
    routes = fb.routing.spray(net, fb.traffic.permutation(net.hosts, seed=2))
    for by in (0.01, 0.7):
        for row in linearize(net, routes, "node", "mean", by=by):
            solution = fb.max_min_rates(changed(net, row, links_of), routes)
            assert row.value == pytest.approx(measured("mean", routes, solution), rel=1e-9), row


def test_queue_pairs_count_as_their_flow():
    net = uneven(CLUSTER, seed=3)
    flows = fb.traffic.permutation(net.hosts, seed=1)
    routes = fb.routing.ecmp(net, flows, queue_pairs=2)
    for row in linearize(net, routes, "node", "slowest", by=0.3):
        solution = fb.max_min_rates(changed(net, row, links_of), routes)
        assert row.value == pytest.approx(measured("slowest", routes, solution), rel=1e-9), row


@pytest.mark.parametrize("make", [fb.routing.ecmp, fb.routing.spray])
def test_the_one_pass_backwards_is_the_gradient_in_capacity_weight_and_cap(make):
    net = uneven(CLUSTER)
    routes = make(net, fb.traffic.permutation(net.hosts, seed=1))
    rng = np.random.default_rng(5)
    weights = rng.uniform(1, 3, routes.n_flows)
    caps = np.where(rng.random(routes.n_flows) < 0.4, 2e9, np.inf)
    (exchange,), aim = _posed(net, routes, "mean", weights, caps)
    got = exchange.slopes(aim.seeds([exchange.rate])[0])
    mean = lambda c, w, k: fb.max_min_rates(
        net.with_capacity(c), routes, weights=w, caps=k
    ).rates.mean()
    want = jax.grad(mean, (0, 1, 2))(np.asarray(net.capacity), weights, caps)
    for one, other in zip(got, want, strict=True):
        # What cancels leaves a rounding of what is there elsewhere.
        atol = 1e-12 * float(np.abs(other).max())
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=atol)
    assert np.abs(got.cap).max() > 0
    assert np.abs(got.weight).max() > 0


def test_without_ties_the_first_order_is_the_change_within_the_reach():
    net = uneven(CLUSTER)
    routes = permuted(net)
    table = linearize(net, routes, "link", "mean", by=1e-4)
    near = [row for row in table if row.how == "linear"]
    assert len(near) > 10
    for row in near:
        assert row.share == pytest.approx(row.slope, rel=1e-7, abs=1e-12)


def test_a_reach_is_where_the_line_ends():
    net = uneven(CLUSTER)
    routes = permuted(net)
    ends = [r for r in linearize(net, routes, "node", "mean", by=1e-3)
            if r.how == "linear" and 1e-2 < r.exact_within < 0.9]  # fmt: skip
    assert ends
    for row in ends:
        way = np.sign(row.by)
        sizes = [row.exact_within * f for f in (0.5, 1.0, 1.1)]
        asked = [Change("node", row.key, float(way * size)) for size in sizes]
        half, end, past = linearize(net, routes, asked, "mean")
        assert (half.how, end.how, past.how) == ("linear", "linear", "re-solved")
        assert end.share == pytest.approx(2 * half.share, rel=1e-9)
        line = 2.2 * half.share
        assert abs(past.share - line) > 1e-9


def test_weights_and_caps_are_what_a_fresh_solve_says():
    net = uneven(CLUSTER)
    routes = permuted(net)
    rate = np.asarray(fb.max_min_rates(net, routes).rates)
    caps = np.where(np.arange(len(rate)) % 3 == 0, rate * 0.8, rate * 1.5)
    asked = [
        Change(what, flow, by)
        for what in ("weight", "cap")
        for flow in (0, 1, (2, 3))
        for by in ("+20%", "-20%")
    ]
    table = linearize(net, routes, asked, "mean", caps=caps)
    base = np.asarray(fb.max_min_rates(net, routes, caps=caps).rates)
    for row in table:
        w, k, at = np.ones(len(rate)), caps.copy(), np.atleast_1d(row.key)
        (w if row.what == "weight" else k)[at] *= 1 + row.by
        want = np.asarray(fb.max_min_rates(net, routes, weights=w, caps=k).rates).mean()
        assert row.value == pytest.approx(want, rel=1e-12)
        assert row.share == pytest.approx(want / base.mean() - 1, abs=1e-12)
        if row.how == "unchanged":
            assert row.slope == 0.0
    assert {row.how for row in table} == {"unchanged", "re-solved"}
    assert {row.how for row in table if row.what == "weight"} == {"re-solved"}


def test_taking_everything_leaves_nothing():
    routes = permuted(CLUSTER)
    table = linearize(CLUSTER, routes, [Change("tier", "host", "-100%")])
    assert table[0].value == pytest.approx(0, abs=1e-6)


def test_an_objective_of_ones_own_is_exact_too():
    net = uneven(CLUSTER)
    routes = permuted(net)
    harmonic = lambda solution: 1 / (1 / solution.rates).mean()
    for row in linearize(net, routes, "tier", harmonic, by=0.05):
        rates = np.asarray(fb.max_min_rates(changed(net, row, links_of), routes).rates)
        assert row.value == pytest.approx(1 / (1 / rates).mean(), rel=1e-9)


def test_one_direction_serves_changes_of_every_size_without_a_solve():
    net = uneven(CLUSTER)
    routes = permuted(net)
    near = linearize(net, routes, "node", "mean", by=1e-6)
    row = max((r for r in near if r.how == "linear"), key=lambda r: abs(r.slope))
    sizes = np.sign(row.by) * min(row.exact_within, 1.0) * np.linspace(0.01, 0.99, 200)
    asked = [Change("node", row.key, float(size)) for size in sizes]
    table = linearize(net, routes, asked, "mean")
    assert {row.how for row in table} == {"linear"}
    assert table.solves == 1


@pytest.fixture(scope="module")
def job():
    layout = fb.Layout.parse("tp4 sp pp2 dp2 zero1 mb1 gbs16 seq2048 recompute=full")
    return Job(model=fb.Model.listed("llama-3.1-8b"), layout=layout)


@pytest.mark.parametrize("by", [0.01, 0.9])
def test_a_step_is_what_the_step_of_the_changed_network_says(job, by):
    net = fb.topologies.cluster("dgx-h100", nodes=2)
    table = linearize(net, job, "tier", by=by)
    now = fb.step(net, job.model, job.layout, by=None)
    assert table.objective == "step time"
    assert table.value == pytest.approx(now.step_time, rel=1e-9)
    for row in table:
        other = fb.step(changed(net, row, links_of), job.model, job.layout, by=None)
        assert row.value == pytest.approx(other.step_time, rel=1e-9), row
    moved = [abs(row.share) for row in table]
    np.testing.assert_allclose(moved, sorted(moved, reverse=True), atol=1e-9)


def test_the_step_moves_as_its_sensitivities_say(job):
    net = fb.topologies.cluster("dgx-h100", nodes=2)
    report = fb.step(net, job.model, job.layout)
    assert report.sensitivities is not None
    for row in linearize(net, job, "tier", by="1%"):
        per = report.sensitivities.row(str(row.key))
        one = per.gain_per_plus_1pct if row.by > 0 else -per.loss_per_minus_1pct
        # Seconds go as 1 / rate, so that a percent bends by a percent of itself.
        assert 100 * row.share == pytest.approx(one, rel=2e-2, abs=1e-9)
        if row.key == "nvlink":  # no tie inside a server: the pass backwards has it too
            assert 100 * row.slope == pytest.approx(one, rel=1e-9)


def test_groups_that_have_room_are_counted_and_not_listed():
    routes = permuted(CLUSTER)
    table = linearize(CLUSTER, routes, "link", "mean", by="1%")
    listed = {row.key for row in table}
    names = {CLUSTER.link_name(l) for l in range(CLUSTER.n_links)} - listed
    assert names
    assert f"{len(names):,} of {CLUSTER.n_links:,} links" in table.left_out[0]
    for row in linearize(CLUSTER, routes, [Change("link", name, s) for name in names
                                           for s in (0.01, -0.01)], "mean"):  # fmt: skip
        assert (row.how, row.share) == ("unchanged", 0.0)


def test_of_too_many_groups_those_of_largest_first_order_stay():
    net = uneven(CLUSTER)
    routes = permuted(net)
    whole = linearize(net, routes, "cable", "mean")
    part = linearize(net, routes, "cable", "mean", most=6)
    assert len(part) == 6
    assert "Raise `most`" in part.left_out[-1]
    worth = sorted({abs(row.slope) for row in whole}, reverse=True)
    assert min(abs(row.slope) for row in part) >= worth[3] * (1 - 1e-9)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Change("teir", "host", "+1%"), "Did you mean 'tier'"),
        (lambda: Change("tier", "host", "10"), r"needs percent, such as '\+10%'"),
        (lambda: Change("tier", "host", "-101%"), "-100% or more"),
        (lambda: Change("weight", 0, "-100%"), "more than -100%"),
    ],
)
def test_changes_that_mean_nothing_are_refused(made, said):
    with pytest.raises(fb.ModelError, match=said):
        made()


def test_unknown_names_are_told_all_at_once():
    asked = [Change("tier", "hosts", "+1%"), Change("node", "leaf9", "+1%"), Change("cap", 99, 0.1)]
    with pytest.raises(fb.ModelError) as told:
        linearize(CLUSTER, permuted(CLUSTER), asked)
    assert "'hosts' is no tier with a live link. Did you mean 'host'" in str(told.value)
    assert "'leaf9' is no node" in str(told.value)
    assert "from 0 to 15" in str(told.value)


def test_a_cable_goes_by_either_of_its_links():
    names = ["leaf0 - spine1", "leaf0->spine1", "spine1->leaf0"]
    table = linearize(CLUSTER, permuted(CLUSTER), [Change("cable", n, "-50%") for n in names])
    assert {row.items for row in table} == {2}
    assert len({row.value for row in table}) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"changes": "leaf"}, "no grouping"),
        ({"changes": []}, "there is none"),
        ({"changes": ["tier"]}, "got str"),
        ({"objective": "slow"}, "Did you mean 'slowest'"),
        ({"by": "200%"}, "up to 100 %"),
        ({"changes": [Change("cap", 0, "-10%")]}, "Flows '0' have no cap"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, said):
    with pytest.raises(fb.ModelError, match=said):
        linearize(CLUSTER, permuted(CLUSTER), **arguments)


def test_a_step_takes_no_flows_and_no_other_objective(job):
    net = fb.topologies.cluster("dgx-h100", nodes=2)
    with pytest.raises(fb.ModelError, match="the objective is the time of its step"):
        linearize(net, job, objective="mean")
    with pytest.raises(fb.ModelError, match="flows of a job have no numbers"):
        linearize(net, job, [Change("weight", 0, "+10%")])


def test_an_objective_of_zero_is_refused():
    routes = permuted(CLUSTER)
    dead = np.array(CLUSTER.capacity)
    dead[np.flatnonzero(CLUSTER.labels.is_tier("host"))[0]] = 0.0
    with pytest.raises(fb.ModelError, match="is 0, so percent of it mean nothing"):
        linearize(CLUSTER.with_capacity(dead), routes)


def test_the_table_is_found_by_name_and_told_in_json():
    net = uneven(CLUSTER)
    table = linearize(net, permuted(net), "tier", by="10%")
    assert table.row("tier host +10 %").key == "host"
    told = table.as_dict()
    assert told["what_ifs"][0]["change"] == table[0].share
    with pytest.raises(fb.ModelError, match="Did you mean"):
        table.row("tier host + 10 %")
