"""What `optimize.linearize` promises: every row is what a fresh solve says, and tells how."""

import dataclasses

import jax
import jax.numpy as jnp
import jaxtyping
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
    ends = row.key.split("->" if row.what == "link" else " - ")
    src, dst = (labels.node(end) for end in ends)
    there = (labels.src == src) & (labels.dst == dst)
    back = (labels.src == dst) & (labels.dst == src)
    return there if row.what == "link" else there | back


def measured(objective, routes, solution):
    pairs = np.asarray(routes.per_flow(np.asarray(solution.rates)))
    if isinstance(objective, fb.Completion):
        return (objective.size / pairs).max()
    return {"slowest": pairs.min, "mean": pairs.mean, "total": pairs.sum}[objective]()


@pytest.fixture
def types_unchecked():
    """Leave types unchecked, as they are outside of tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def permuted(network, seed=1):
    flows = fb.traffic.permutation(network.hosts, seed=seed)
    return fb.routing.ecmp(network, flows, seed=seed)


@pytest.mark.parametrize("by", [0.02, 0.6])
@pytest.mark.parametrize("grouping", ["tier", "node", "cable", "link"])
def test_every_row_of_a_grouping_is_what_a_fresh_solve_says(grouping, by):
    net = uneven(CLUSTER)
    routes = permuted(net)
    completion = fb.Completion(np.arange(1.0, routes.n_pairs + 1) * 1e9)
    fresh = {}
    for objective in ("mean", "slowest", "total", completion):
        table = linearize(net, routes, grouping, objective, by=by)
        assert len(table)
        for row in table:
            if row.name not in fresh:
                fresh[row.name] = fb.max_min_rates(changed(net, row, links_of), routes)
            want = measured(objective, routes, fresh[row.name])
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


@pytest.mark.parametrize("make", [fb.routing.ecmp, fb.routing.spray])
def test_weights_and_caps_are_what_a_fresh_solve_says(make):
    net = uneven(CLUSTER.without(links=["leaf0->spine0"]))
    routes = make(net, fb.traffic.permutation(net.hosts, seed=1))
    rate = np.asarray(fb.max_min_rates(net, routes).rates)
    caps = np.where(np.arange(len(rate)) % 3 == 0, rate * 0.8, rate * 1.5)
    asked = [
        Change(what, flow, by)
        for what in ("weight", "cap")
        for flow in (0, 1, (2, 3))
        for by in ("+20%", "-20%", "+200%")
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
    assert {row.how for row in table if row.what == "cap"} == {"unchanged", "linear", "re-solved"}
    assert {row.how for row in table if row.what == "weight"} == {"re-solved"}
    assert {row.exact_within for row in table if row.what == "weight"} == {0.0}


@pytest.mark.parametrize("weight", [0.1, 1.0, 20.0])
def test_the_unit_of_weights_leaves_no_group_out(weight):
    net = uneven(CLUSTER)
    routes = permuted(net)
    names = lambda table: {row.name: row.share for row in table}
    plain = names(linearize(net, routes, "cable", by="30%"))
    scaled = linearize(net, routes, "cable", by="30%", weights=np.full(routes.n_flows, weight))
    assert names(scaled) == pytest.approx(plain, rel=1e-9)
    assert plain


def test_all_of_a_cable_that_carries_nothing_can_go():
    flows = fb.Flows(CLUSTER.hosts[[0, 4]], CLUSTER.hosts[[8, 12]])
    routes = fb.routing.ecmp(CLUSTER, flows)
    for objective in ("slowest", "mean"):
        table = linearize(CLUSTER, routes, "cable", objective, by="100%")
        assert len(table) >= 4
        assert min(row.share for row in table) == pytest.approx(
            -1 if objective == "slowest" else -0.5
        )


def test_a_change_of_a_flow_is_one_of_all_its_queue_pairs():
    net = uneven(CLUSTER, seed=3)
    flows = fb.traffic.permutation(net.hosts, seed=1)
    caps = np.full(16, np.inf)
    caps[:3] = 1e9
    capped = fb.Flows(flows.src, flows.dst, cap=caps)
    routes = fb.routing.ecmp(net, capped, queue_pairs=2)
    for what, by in (("weight", "+100%"), ("cap", "-30%"), ("cap", "+3%")):
        (row,) = linearize(net, routes, [Change(what, 2, by)], "mean")
        given = {"weight": np.ones(16), "cap": caps.copy()}
        given[what][2] *= 1 + row.by
        changed_flows = fb.Flows(flows.src, flows.dst, **given)
        again = fb.routing.ecmp(net, changed_flows, queue_pairs=2)
        want = measured("mean", again, fb.max_min_rates(net, again))
        assert row.value == pytest.approx(want, rel=1e-9)
        assert row.items == 2


def test_single_precision_networks_are_worked_out_in_double():
    net = uneven(CLUSTER)
    single = net.with_capacity(np.asarray(net.capacity, np.float32))
    double = net.with_capacity(np.asarray(single.capacity, np.float64))
    one, other = (linearize(n, permuted(n), "node", "mean", by=0.3) for n in (single, double))
    assert [(r.name, r.how) for r in one] == [(r.name, r.how) for r in other]
    for a, b in zip(one, other, strict=True):
        assert a.value == pytest.approx(b.value, rel=1e-12)


@pytest.mark.usefixtures("types_unchecked")
def test_numbers_of_numpy_and_lists_are_keys_too():
    assert Change("cap", np.int64(3), 0.1) == Change("cap", 3, 0.1)
    for several in ([1, 2], np.array([1, 2]), range(1, 3)):
        assert Change("weight", several, np.float32(0.5)) == Change("weight", (1, 2), 0.5)
    routes = permuted(CLUSTER)
    for key in (True, (0, True), 1.5, "0", ()):
        with pytest.raises(fb.ModelError, match="needs numbers of flows from 0 to 15"):
            linearize(CLUSTER, routes, [Change("weight", key, 0.1)])


def test_links_without_labels_go_by_number_or_name():
    net, routes = fb.Network([4.0, 6.0]), fb.Routes.from_paths([[0], [0, 1]], n_links=2)
    named, numbered = linearize(
        net, routes, [Change("link", "link 0", 0.5), Change("link", 0, 0.5)]
    )
    assert named.value == numbered.value == 3.0
    with pytest.raises(fb.ModelError, match="'7' is no link with a live link"):
        linearize(net, routes, [Change("link", 7, 0.5)])


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


def test_an_objective_of_ones_own_may_have_any_name():
    def slowest(solution):
        return (solution.rates**2).mean()

    net = uneven(CLUSTER)
    routes = permuted(net)
    for row in linearize(net, routes, "node", slowest, by=0.05):
        rates = np.asarray(fb.max_min_rates(changed(net, row, links_of), routes).rates)
        assert row.value == pytest.approx((rates**2).mean(), rel=1e-9)


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


SERVERS = fb.topologies.cluster("dgx-h100", nodes=2)


@pytest.fixture(scope="module")
def job():
    layout = fb.Layout.parse("tp4 sp pp2 dp2 zero1 mb1 gbs16 seq2048 recompute=full")
    return Job(model=fb.Model.listed("llama-3.1-8b"), layout=layout)


@pytest.mark.parametrize("by", [0.01, 0.9])
def test_a_step_is_what_the_step_of_the_changed_network_says(job, by):
    net = SERVERS
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
    net = SERVERS
    report = fb.step(net, job.model, job.layout)
    assert report.sensitivities is not None
    for row in linearize(net, job, "tier", by="1%"):
        per = report.sensitivities.row(str(row.key))
        one = per.gain_per_plus_1pct if row.by > 0 else -per.loss_per_minus_1pct
        # Seconds go as 1 / rate, so that a percent bends by a percent of itself.
        assert 100 * row.share == pytest.approx(one, rel=2e-2, abs=1e-9)
        if row.key == "nvlink":  # no tie inside a server: the pass backwards has it too
            assert 100 * row.slope == pytest.approx(one, rel=1e-9)


def test_a_step_whose_exchange_gets_nothing_never_ends(job):
    gone, half = linearize(SERVERS, job, [Change("tier", "nvlink", by) for by in (-1.0, -0.5)])
    assert gone.value == gone.share == np.inf
    assert gone.as_dict()["change"] is None
    assert 0 < half.share < 1


def test_a_job_without_exchanges_feels_no_cable():
    model = dataclasses.replace(fb.Model.listed("llama-3.1-8b"), layers=2)
    lone = Job(model=model, layout=fb.Layout.parse("tp1 mb1 gbs1 seq128 recompute=full"))
    table = linearize(SERVERS, lone, "cable")
    assert len(table) == 0
    assert "have room for that" in table.left_out[0]
    assert {row.how for row in linearize(SERVERS, lone, "tier")} == {"unchanged"}


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


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Change("teir", "host", "+1%"), "Did you mean 'tier'"),
        (lambda: Change("tier", "host", "10"), r"needs percent, such as '\+10%'"),
        (lambda: Change("tier", "host", "-101%"), "-100% or more"),
        (lambda: Change("weight", 0, "-100%"), "more than -100%"),
        (lambda: Change("tier", "host", None), "not None"),
        (lambda: Change("tier", "host", float("nan")), "not nan"),
        (lambda: Change(None, "host", 0.1), "is no kind"),
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


@pytest.mark.parametrize("twin", ["", "#1"])
def test_a_cable_goes_by_either_of_its_links(twin):
    net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=2, cables_per_pair=2)
    ends = ["leaf0 - spine1", "leaf0->spine1", "spine1->leaf0", "spine1 - leaf0"]
    changes = [Change("cable", end + twin, "-90%") for end in ends]
    table = linearize(net, permuted(net), changes, "mean")
    assert {row.items for row in table} == {2}
    assert len({row.value for row in table}) == 1


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"changes": "leaf"}, "no grouping"),
        ({"changes": []}, "there is none"),
        ({"changes": ["tier"]}, "got str"),
        ({"changes": Change("tier", "host", "+1%")}, "a list of `Change`, but got Change"),
        ({"objective": 3}, "a name, a `Completion` or a function, but got int"),
        ({"objective": fb.Completion(np.ones(3))}, "has shape .3,., but the routes have 16"),
        ({"objective": fb.Completion(np.full(16, -1.0))}, "needs bytes of 0 or more"),
        ({"objective": lambda s: jnp.log(s.rates - s.rates)}, "of shape"),
        ({"objective": lambda s: np.asarray(s.rates).min()}, "use `jax.numpy`"),
        ({"most": 1}, "2 or more"),
        ({"objective": "slow"}, "Did you mean 'slowest'"),
        ({"by": "200%"}, "up to 100 %"),
        ({"by": "ten", "most": 1}, "(?s)needs percent.*2 or more"),
        ({"changes": [Change("cap", 0, "-10%")]}, "Flows '0' have no cap"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, said):
    with pytest.raises(fb.ModelError, match=said):
        linearize(CLUSTER, permuted(CLUSTER), **arguments)


def test_a_step_takes_no_flows_and_no_other_objective(job):
    net = SERVERS
    with pytest.raises(fb.ModelError, match="the objective is the time of its step"):
        linearize(net, job, objective="mean")
    with pytest.raises(fb.ModelError, match="flows of a job have no numbers"):
        linearize(net, job, [Change("weight", 0, "+10%")])


def test_an_objective_that_is_no_number_after_a_change_is_refused():
    below = lambda solution: jnp.sqrt(solution.rates.min() - 1e9)
    with pytest.raises(fb.ModelError, match="no number after 'tier host -100 %'"):
        linearize(CLUSTER, permuted(CLUSTER), [Change("tier", "host", -1.0)], below)


def test_an_objective_of_more_than_rates_is_refused():
    full = lambda solution: solution.saturated.sum() * 1.0
    with pytest.raises(NotImplementedError, match="reads `saturated`"):
        linearize(CLUSTER, permuted(CLUSTER), "tier", full)


def test_inside_a_transformation_it_is_refused():
    net, routes = CLUSTER, permuted(CLUSTER)
    value = lambda c: linearize(net.with_capacity(c), routes).value
    with pytest.raises(NotImplementedError, match="on the host"):
        jax.jit(value)(np.asarray(net.capacity))


@pytest.mark.usefixtures("types_unchecked")
def test_a_network_comes_first():
    with pytest.raises(fb.ModelError, match=r"`linearize\(load=...\)` needs `Routes` or a `Job`"):
        linearize(CLUSTER, CLUSTER)


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
