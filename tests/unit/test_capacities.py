"""What `optimize.capacities` and `capacity_curve` promise."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import fabric as fb
from fabric import optimize
from fabric._errors import InfeasibleError, ModelError
from fabric.optimize import capacities, capacity_curve
from fabric.optimize._capacity_search import Search

NET = fb.topologies.cluster("dgx-h100", nodes=4)
MODEL = fb.Model.listed("llama-3.1-8b")
PRICES = {"nvlink": "1 per Gb/s", "host": "3 per Gb/s"}
JOB = optimize.Job(
    model=MODEL, layout=fb.Layout.parse("tp8 sp dp4 zero1 mb1 gbs16 seq8192 recompute=full")
)
BUILT = sum(
    price * 8e-9 * float(np.asarray(NET.capacity)[tier].sum()) / 2
    for price, tier in (
        (1, NET.labels.tier_of == NET.labels.tiers.index("nvlink")),
        (3, NET.labels.tier_of == NET.labels.tiers.index("host")),
    )
)


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


BUILT_OF = [
    price * 8e-9 * float(np.asarray(NET.capacity)[
        NET.labels.tier_of == NET.labels.tiers.index(tier)
    ].sum()) / 2
    for price, tier in ((1, "nvlink"), (3, "host"))
]  # fmt: skip


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
    assert stepped(back) <= found.objective * (1 + 1e-8)


def test_a_target_that_no_capacities_meet_names_the_job_and_what_is_left():
    with pytest.raises(InfeasibleError, match=r"'llama-3.1-8b' takes .* may take 0.001 s"):
        capacities(NET, JOB, PRICES, target="1ms")


def test_a_budget_below_the_smallest_factors_is_refused_with_the_money_needed():
    with pytest.raises(InfeasibleError, match=r"`budget=10` is below .* Raise it"):
        capacities(NET, JOB, PRICES, budget=10, least=1.0)


def test_limits_of_factors_are_kept():
    kept = capacities(
        NET, JOB, PRICES, budget=1.1 * BUILT, least={"nvlink": 1.0}, most={"host": 1.02},
        steps=200, control=False,
    )  # fmt: skip
    assert kept.factors["nvlink"] >= 1 - 1e-12
    assert kept.factors["host"] <= 1.02 + 1e-12


def test_the_same_seed_gives_the_same_answer_and_a_resumed_run_too(tmp_path, monkeypatch):
    whole = capacities(NET, JOB, PRICES, budget=BUILT, steps=100, tolerance=0, control=False)
    path = tmp_path / "capacities.ckpt"
    calls = []
    save = Search._save

    def killed(self, state):
        self._kept.every = 0.0
        save(self, state)
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Search, "_save", killed)
    asked = {"budget": BUILT, "steps": 100, "tolerance": 0, "control": False, "checkpoint": path}
    with pytest.raises(KeyboardInterrupt):
        capacities(NET, JOB, PRICES, **asked)
    monkeypatch.setattr(Search, "_save", save)
    again = capacities(NET, JOB, PRICES, **asked)
    assert again.factors == whole.factors
    assert again.history.objective.tolist() == whole.history.objective.tolist()
    with pytest.raises(ModelError, match="another problem"):
        capacities(NET, JOB, PRICES, **(asked | {"budget": 2 * BUILT}))


def test_a_curve_buys_more_for_shorter_steps_and_names_the_next_tier():
    curve = capacity_curve(
        NET, JOB, PRICES, [0.5 * BUILT, 0.7 * BUILT, 1.0 * BUILT], steps=200, control=False
    )
    times = [point.objective for point in curve.points]
    assert times[0] > times[1] > times[2]
    assert curve.marginal[0] > curve.marginal[1] > 0, "a convex step saves less and less"
    for before, after in zip(curve.points[:-1], curve.points[1:], strict=True):
        for name in PRICES:
            assert after.factors[name] >= before.factors[name] * (1 - 1e-8)
    assert set(curve.next) <= set(PRICES)
    assert "buy next" in str(curve)


def test_jobs_are_averaged_by_their_shares():
    jobs = [
        dataclasses.replace(JOB, share=3.0, name="often"),
        dataclasses.replace(JOB, layout=dataclasses.replace(JOB.layout, gbs=32), name="seldom"),
    ]
    both = capacities(NET, jobs, PRICES, budget=BUILT, steps=150, control=False)
    times = [stepped(both, job) for job in jobs]
    assert both.objective == pytest.approx((3 * times[0] + times[1]) / 4, rel=1e-9)
    assert list(both.step_times.values()) == pytest.approx(times, rel=1e-9)


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
