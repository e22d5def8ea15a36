"""What `optimize.capacities` and `capacity_curve` promise."""

import dataclasses
import json
import warnings

import jax
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import fabric as fb
from fabric import optimize
from fabric._errors import InfeasibleError, ModelError
from fabric.optimize import _capacity_curve, capacities, capacity_curve
from fabric.optimize._capacities import affordable
from fabric.optimize._capacity_search import Search
from fabric.optimize._jobs import JobStep
from fabric.optimize._step_goal import Goal
from fabric.optimize._tier_prices import Priced

NET = fb.topologies.cluster("dgx-h100", nodes=4)
MODEL = fb.Model.listed("llama-3.1-8b")
PRICES = {"nvlink": "1 per Gb/s", "host": "3 per Gb/s"}
JOB = optimize.Job(
    model=MODEL, layout=fb.Layout.parse("tp8 sp dp4 zero1 mb1 gbs16 seq8192 recompute=full")
)
IS_NVLINK, IS_HOST = NET.labels.is_tier("nvlink"), NET.labels.is_tier("host")
BUILT_OF = [
    price * 8e-9 * float(np.asarray(NET.capacity)[tier].sum()) / 2
    for price, tier in ((1, IS_NVLINK), (3, IS_HOST))
]
BUILT = sum(BUILT_OF)


def stepped(found, job=JOB):
    """Return the seconds of the step on the network that was found, by the public entry point."""
    return fb.step(found.network, job.model, job.layout, job.placement, by=None).step_time


@pytest.fixture(scope="module")
def found():
    return capacities(NET, JOB, PRICES, budget=0.8 * BUILT)


def test_the_objective_is_the_step_of_the_network_that_is_returned(found):
    assert found.objective == pytest.approx(stepped(found), rel=1e-9)
    assert found.step_times == {"llama-3.1-8b": pytest.approx(found.objective)}


def test_all_the_money_and_no_more_is_spent(found):
    paid = sum(
        float(price.split()[0]) * 8e-9 * float(
            np.asarray(found.network.capacity)[
                NET.labels.tier_of == NET.labels.tiers.index(tier)
            ].sum()
        ) / 2
        for tier, price in PRICES.items()
    )  # fmt: skip
    assert paid == pytest.approx(0.8 * BUILT, rel=1e-9)
    assert found.cost == pytest.approx(paid, rel=1e-9)


def test_two_tiers_are_divided_as_a_search_along_the_line_divides_them(found):
    """The line search scores every division with the public step."""
    tiers = [NET.labels.tier_of == NET.labels.tiers.index(tier) for tier in PRICES]
    money = [BUILT_OF[0], BUILT_OF[1]]

    def at(share):
        wide = np.ones(NET.n_links)
        for tier, cost, part in zip(tiers, money, (share, 1 - share), strict=True):
            wide[tier] = part * 0.8 * BUILT / cost
        faster = NET.with_capacity(np.asarray(NET.capacity) * wide)
        return fb.step(faster, JOB.model, JOB.layout, by=None).step_time

    best = minimize_scalar(
        at, bounds=(0.3, 0.95), method="bounded", options={"xatol": 1e-4, "maxiter": 20}
    )
    assert found.objective <= best.fun * (1 + 2e-4)
    # What no division beats cannot be above the best of the line.
    assert found.bound <= best.fun


def test_the_gap_is_proved_and_small(found):
    assert found.certified
    assert 0 <= found.gap <= 1e-3
    assert found.gap == pytest.approx(found.objective / found.bound - 1)


def test_it_beats_all_tiers_alike_and_is_no_worse_than_random_moves(found):
    assert found.objective < found.before
    assert found.objective <= found.control * (1 + 1e-3)


def test_random_divisions_never_beat_the_bound(found):
    rng = np.random.default_rng(1)
    for share in rng.uniform(0.2, 0.95, 6):
        wide = np.ones(NET.n_links)
        for tier, cost, part in zip(PRICES, BUILT_OF, (share, 1 - share), strict=True):
            of = NET.labels.tier_of == NET.labels.tiers.index(tier)
            wide[of] = part * 0.8 * BUILT / cost
        faster = NET.with_capacity(np.asarray(NET.capacity) * wide)
        assert fb.step(faster, JOB.model, JOB.layout, by=None).step_time >= found.bound


def test_another_start_ends_within_a_thousandth(found):
    other = capacities(NET, JOB, PRICES, budget=0.8 * BUILT, seed=1, control=False)
    assert other.objective == pytest.approx(found.objective, rel=1e-3)


def test_the_cheapest_fabric_for_the_step_that_a_budget_buys_costs_that_budget(found):
    back = capacities(NET, JOB, PRICES, target=found.objective)
    assert back.objective == pytest.approx(0.8 * BUILT, rel=2e-3)
    assert back.bound <= 0.8 * BUILT * (1 + 1e-9)
    assert stepped(back) <= found.objective
    # Random divisions of as much money, scaled until the target is met, cost no less.
    assert back.bound <= back.control
    assert back.objective <= back.control * (1 + 1e-3)


def test_every_job_meets_its_own_target(found):
    jobs = [JOB, dataclasses.replace(JOB, layout=dataclasses.replace(JOB.layout, gbs=32))]
    targets = [1.1 * found.objective, 1.9 * found.objective]
    both = capacities(NET, jobs, PRICES, target=targets, steps=75, control=False)
    times = [stepped(both, job) for job in jobs]
    assert all(took <= want for took, want in zip(times, targets, strict=True))
    assert any(took > want * (1 - 1e-6) for took, want in zip(times, targets, strict=True))
    assert list(both.step_times) == ["llama-3.1-8b #0", "llama-3.1-8b #1"]
    assert both.certified


def test_a_target_that_no_capacities_meet_names_the_job_and_what_is_left():
    with pytest.raises(InfeasibleError, match=r"'llama-3.1-8b' takes .* may take 0.001 s"):
        capacities(NET, JOB, PRICES, target="1ms")


def test_a_budget_below_the_smallest_factors_is_refused_with_the_money_needed():
    with pytest.raises(InfeasibleError, match=r"`budget=10` is below .* Raise it"):
        capacities(NET, JOB, PRICES, budget=10, least=1.0)


def test_limits_of_factors_are_kept():
    kept = capacities(
        NET, JOB, PRICES, budget=1.1 * BUILT, least={"nvlink": 1.0}, most={"host": 1.02},
        control=False,
    )  # fmt: skip
    assert kept.factors["nvlink"] >= 1
    assert kept.factors["host"] <= 1.02
    assert kept.cost <= 1.1 * BUILT


def test_float32_starts_from_the_network_as_built():
    """Nothing is above the smallest factors there, so that no proportions are given."""
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that float64 is cast
        net = NET.with_capacity(np.asarray(NET.capacity, np.float32))
        more = capacities(net, JOB, PRICES, budget=1.2 * BUILT, least=1.0, steps=75, control=False)
    built = fb.step(NET, JOB.model, JOB.layout, by=None).step_time
    assert more.bound <= more.objective < 0.99 * built
    assert more.certified
    assert min(more.factors.values()) >= 1
    assert more.cost <= 1.2 * BUILT


def test_money_for_what_is_there_and_no_more_is_enough():
    affordable(Priced.of(NET, PRICES), np.ones(2), BUILT)
    with pytest.raises(InfeasibleError, match=r"leaves nothing for 'host'"):
        capacities(NET, JOB, PRICES, budget=BUILT_OF[0], least={"nvlink": 1.0})


def test_a_tier_that_no_job_loads_gets_nothing():
    """A job inside one server: its step is that of a network with all of the money in NVLink."""
    inside = optimize.Job(model=MODEL, layout=fb.Layout.parse("tp8 sp mb1 gbs4 seq8192"))
    found = capacities(NET, inside, PRICES, budget=BUILT, steps=50, control=False)
    assert found.factors["host"] == found.worth["host"] == 0
    assert found.factors["nvlink"] == pytest.approx(BUILT / BUILT_OF[0], rel=1e-12)
    wide = np.where(NET.labels.is_tier("nvlink"), BUILT / BUILT_OF[0], 1.0)
    alone = fb.step(
        NET.with_capacity(np.asarray(NET.capacity) * wide), MODEL, inside.layout, by=None
    )
    assert found.objective == pytest.approx(alone.step_time, rel=1e-9)


def test_flows_of_unequal_size_are_polished_and_the_bound_still_holds():
    """Hashed flows share leaf uplinks unfairly, and ZeRO-2 hides a gather behind other waiting."""
    net = fb.topologies.leaf_spine(2, 2, 4)
    job = optimize.Job(
        model=MODEL, layout=fb.Layout.parse("tp2 sp dp4 zero2 mb1 gbs16 seq8192 recompute=full"),
        gpu="h100-sxm", routing="ecmp",
    )  # fmt: skip
    tiers = list(net.labels.tiers)
    prices = dict.fromkeys(tiers, 1.0)
    cost = Priced.of(net, prices).cost
    found = capacities(net, job, prices, budget=float(cost.sum()), steps=75, control=False)
    grid = []
    for share in np.linspace(0.1, 0.9, 9):
        by = dict(zip(tiers, np.array([share, 1 - share]) * cost.sum() / cost, strict=True))
        wide = np.array([by[tier] for tier in tiers])[net.labels.tier_of]
        faster = net.with_capacity(np.asarray(net.capacity) * wide)
        grid.append(
            fb.step(faster, MODEL, job.layout, gpu="h100-sxm", routing="ecmp", by=None).step_time
        )
    assert found.bound <= min(grid)
    assert found.objective <= min(grid) * (1 + 1e-6)
    assert found.objective <= found.before


def test_the_bound_holds_where_reductions_of_zero_2_are_longer_than_the_pipeline():
    """A longer forward pass hides more of the gather than it costs: the step is not convex."""
    layout = fb.Layout.parse("tp1 dp32 zero2 mb1 gbs32 seq4096")
    job = optimize.Job(model=MODEL, layout=layout)
    found = capacities(NET, job, PRICES, budget=BUILT / 10, steps=200, control=False)
    for share in np.linspace(0.5, 0.8, 9):
        wide = np.ones(NET.n_links)
        wide[IS_NVLINK] = share * BUILT / 10 / BUILT_OF[0]
        wide[IS_HOST] = (1 - share) * BUILT / 10 / BUILT_OF[1]
        faster = NET.with_capacity(np.asarray(NET.capacity) * wide)
        step = fb.step(faster, MODEL, layout, by=None).step_time
        assert found.bound <= step
        assert found.objective <= step * (1 + 1e-3)


def test_whole_money_and_numpy_options_are_the_same_problem_and_give_plain_numbers(tmp_path):
    path = tmp_path / "capacities.ckpt"
    money = round(BUILT)
    plain = {"tolerance": 1e-3, "control": False, "checkpoint": path}
    one = capacities(NET, JOB, PRICES, budget=money, **plain)
    again = capacities(
        NET, JOB, PRICES, budget=np.float64(money), **(plain | {"tolerance": np.float64(1e-3)})
    )
    took = {"seconds": 0}
    said = json.loads(json.dumps(again.as_dict() | took))
    assert said == json.loads(json.dumps(one.as_dict() | took))
    assert isinstance(said["certified"], bool)


def test_a_killed_run_resumes_to_the_same_answer_and_another_problem_is_refused(
    found, tmp_path, monkeypatch
):
    path = tmp_path / "capacities.ckpt"
    calls = []
    save = Search._save

    def killed(self, state, done=False):
        self._kept.every = 0.0
        save(self, state, done)
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Search, "_save", killed)
    asked = {"budget": 0.8 * BUILT, "control": False, "checkpoint": path}
    with pytest.raises(KeyboardInterrupt):
        capacities(NET, JOB, PRICES, **asked)
    monkeypatch.setattr(Search, "_save", save)
    again = capacities(NET, JOB, PRICES, **asked)
    assert again.factors == found.factors
    assert (again.objective, again.bound, again.before) == (
        found.objective, found.bound, found.before,
    )  # fmt: skip
    assert again.history.objective.tolist() == found.history.objective.tolist()
    assert (again.steps, again.solves) == (found.steps, found.solves)
    beside = capacities(NET, JOB, PRICES, **(asked | {"control": True}))
    assert (beside.objective, beside.control) == (found.objective, found.control)
    other = dataclasses.replace(JOB, share=2.0)
    layout = dataclasses.replace(JOB.layout, gbs=32)
    for jobs, prices, changed in (
        (JOB, PRICES, {"budget": BUILT}), (JOB, PRICES, {"least": 0.1}),
        (JOB, PRICES, {"most": 2.0}), (JOB, PRICES, {"steps": 499}), (JOB, PRICES, {"seed": 1}),
        (JOB, PRICES, {"tolerance": 1e-4}),
        (JOB, PRICES | {"host": "2 per Gb/s"}, {}), (other, PRICES, {}), ([JOB, JOB], PRICES, {}),
        (dataclasses.replace(JOB, layout=layout), PRICES, {}),
        (JOB, PRICES, {"budget": None, "target": 100.0}),
        (JOB, {"nvlink": 1.0}, {"groups": {"nvlink": np.flatnonzero(IS_NVLINK).tolist()}}),
    ):  # fmt: skip
        with pytest.raises(ModelError, match="another problem"):
            capacities(NET, jobs, prices, **(asked | changed))


@pytest.fixture(scope="module")
def curve(tmp_path_factory):
    path = tmp_path_factory.mktemp("curve") / "curve.ckpt"
    budgets = [0.8 * BUILT, 0.9 * BUILT, BUILT]
    curve = capacity_curve(NET, JOB, PRICES, budgets, control=False, checkpoint=path)
    return curve, path


def test_a_curve_buys_more_for_shorter_steps_and_names_the_next_tier(curve, found):
    curve, path = curve
    times = [point.objective for point in curve.points]
    assert times[0] > times[1] > times[2]
    assert curve.marginal[0] > curve.marginal[1] > 0, "a convex step saves less and less"
    for before, after in zip(curve.points[:-1], curve.points[1:], strict=True):
        for name in PRICES:
            assert after.factors[name] >= before.factors[name]
    for budget, point in zip(curve.budgets, curve.points, strict=True):
        assert point.cost <= budget
    assert set(curve.next) <= set(PRICES)
    assert "buy next" in str(curve)
    assert [path.with_name(f"{path.name}.{i}").name for i in range(3)] == sorted(
        file.name for file in path.parent.iterdir()
    )
    assert curve.points[0].factors == found.factors, "the first is a search of its own"


def test_the_control_counts_for_nothing(curve, found):
    alone = curve[0].points[0]
    assert alone.control is None
    assert (alone.evaluations, alone.solves) == (found.evaluations, found.solves)


def test_a_point_of_a_curve_is_as_good_as_a_search_of_its_own(curve):
    alone = capacities(NET, JOB, PRICES, budget=BUILT, control=False)
    last = curve[0].points[-1]
    assert last.objective == pytest.approx(alone.objective, rel=1e-3)
    assert last.objective >= alone.bound


def test_steps_never_get_longer_along_a_curve(monkeypatch, found):
    """Where a search ends a little worse with more money, what was bought before stays."""
    worse = dataclasses.replace(found, objective=found.objective * 1.0005)
    ends = iter([found, worse])
    monkeypatch.setattr(_capacity_curve, "capacities", lambda *_, **__: next(ends))
    curve = capacity_curve(NET, JOB, PRICES, [0.8 * BUILT, 0.80001 * BUILT], keep=False)
    assert curve.points[1].objective == found.objective
    assert curve.points[1].cost == found.cost
    assert curve.marginal == (0.0,)


def test_jobs_are_averaged_by_their_shares():
    jobs = [
        dataclasses.replace(JOB, share=3.0, name="often"),
        dataclasses.replace(JOB, layout=dataclasses.replace(JOB.layout, gbs=32), name="seldom"),
    ]
    priced = Priced.of(NET, PRICES)
    goal = Goal([JobStep(NET, job, priced.group_of, priced.n_groups) for job in jobs], None)
    x = np.array([1.2, 0.7])
    faster = priced.faster(NET, x)
    times = [fb.step(faster, job.model, job.layout, by=None).step_time for job in jobs]
    assert goal.seconds(x) == pytest.approx(times, rel=1e-9)
    assert float(goal.exact(x)) == pytest.approx((3 * times[0] + times[1]) / 4, rel=1e-9)


def test_every_fault_of_the_arguments_is_named():
    with pytest.raises(ModelError, match=r"`budget` or `target`, but got none"):
        capacities(NET, JOB, PRICES)
    with pytest.raises(ModelError, match="no tier"):
        capacities(NET, JOB, {"nvlnk": 1.0}, budget=1.0)
    with pytest.raises(ModelError, match=r"0\.8 per Gb/s"):
        capacities(NET, JOB, {"nvlink": "cheap"}, budget=1.0)
    with pytest.raises(ModelError, match="one `Job"):
        capacities(NET, [], PRICES, budget=1.0)
    with pytest.raises(ModelError, match="another group too"):
        capacities(NET, JOB, {"a": 1.0, "b": 1.0}, budget=1.0, groups={"a": [0, 1], "b": [1, 2]})
    with pytest.raises(ModelError, match="ascending"):
        capacity_curve(NET, JOB, PRICES, [2.0, 1.0])
    with pytest.raises(ModelError, match=r"'host' needs a factor above 0 and no less than .* of 2"):
        capacities(NET, JOB, PRICES, budget=1.0, least=2.0, most=1.0)
    with pytest.raises(ModelError, match="links count from 0 to"):
        capacities(NET, JOB, {"a": 1.0}, budget=1.0, groups={"a": [10**6]})
    with pytest.raises(ModelError, match="whole numbers"):
        capacities(NET, JOB, {"a": 1.0}, budget=1.0, groups={"a": np.array([0.5])})
    one, other = np.flatnonzero(NET.labels.cable_of == NET.labels.cable_of[0]).tolist()
    with pytest.raises(ModelError, match="A cable is bought as a whole"):
        capacities(NET, JOB, {"a": 1, "b": 1}, budget=1, groups={"a": [one], "b": [other]})
    with pytest.raises(ModelError, match=r"(?s)`budget` needs .*`seed`|`seed` .*`budget`"):
        capacities(NET, JOB, PRICES, budget=float("nan"), seed=-1)
    with pytest.raises(ModelError, match=r"times above 0, but got 0 s"):
        capacities(NET, JOB, PRICES, target=0)
    for share in (-3, 0.0, float("nan"), float("inf"), True):
        with pytest.raises(ModelError, match="number above 0"):
            optimize.Job(model=MODEL, layout=JOB.layout, share=share)
