"""What `optimize.codesign` promises, and what searches by gradient are compared with."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb
from experiments.optimizers import differentiable, swaps
from fabric import optimize, routing
from fabric._errors import InfeasibleError, ModelError
from fabric.network import Placement
from fabric.optimize import _capacity_control, _design_descent, _money, codesign
from fabric.optimize._design_case import Scorer, _afford, prepared
from fabric.optimize._design_loads import Kept
from fabric.optimize._money import Purse, factors, logits, trimmed

richest, cheapest = jax.jit(_money.richest), jax.jit(_money.cheapest)
NET = fb.topologies.cluster("dgx-h100", nodes=2)
MODEL = fb.Model.listed("llama-3.1-8b")
PRICES = {"nvlink": "1 per Gb/s", "host": "3 per Gb/s"}
COST = np.array([
    price * 8e-9 * float(np.asarray(NET.capacity)[NET.labels.is_tier(tier)].sum()) / 2
    for price, tier in ((1, "nvlink"), (3, "host"))
])  # fmt: skip
BUDGET = 3e3
ASKED = {"budget": BUDGET, "gbs": 64, "seq": 8192, "limits": {"cp": 1, "vpp": 1}}


STEPS = 150


@pytest.fixture(scope="module", autouse=True)
def _parts():
    """Layouts descend a few at a time, so that all tests share one program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_design_descent, "_PART", 2)
        yield


@pytest.fixture(scope="module")
def found():
    return codesign(NET, MODEL, PRICES, steps=STEPS, **ASKED)


@pytest.fixture(scope="module")
def case():
    return prepared(NET, MODEL, PRICES, **ASKED)


def test_the_objective_is_the_step_of_the_layout_on_the_network_found(found):
    one = fb.step(found.network, MODEL, found.best.layout, found.best.placement, by=None)
    assert found.objective == pytest.approx(one.step_time, rel=1e-9)
    assert sum(found.spent.values()) == pytest.approx(BUDGET)
    assert sum(found.spent.values()) <= BUDGET


def test_no_division_of_a_grid_beats_it_for_any_layout(found):
    """Every layout at every division, by a search that proves the optimum at exact rates."""
    best = np.inf
    for share in (0.55, 0.65, 0.7, 0.75, 0.8):
        by = {"nvlink": share * BUDGET / COST[0], "host": (1 - share) * BUDGET / COST[1]}
        wide = np.array([by.get(tier, 1.0) for tier in NET.labels.tiers])[NET.labels.tier_of]
        faster = NET.with_capacity(np.asarray(NET.capacity) * wide)
        asked = {name: ASKED[name] for name in ("gbs", "seq", "limits")}
        best = min(best, optimize.layout(faster, MODEL, top=1, **asked).objective)
    assert found.objective <= best * (1 + 1e-6)
    assert found.bound <= best


def test_the_gap_is_proved_and_small(found):
    assert found.certified
    assert 0 <= found.gap <= 1e-3
    assert found.objective <= found.before
    assert found.objective <= found.control * (1 + 1e-3)
    assert found.bound <= found.control
    assert found.history.bound[0] <= found.history.bound[-1] == found.bound


def test_layouts_left_out_are_slower_at_any_capacities_for_the_money(found, case):
    """Each gets all of the money in every group at once."""
    assert case.ruled_out >= case.before >= found.objective
    assert len(case.keep) < case.space.n_rows


def test_the_usual_layout_is_kept_even_where_a_rounding_puts_its_bound_above_it(monkeypatch):
    first = Scorer.first
    lowered = lambda self, tried: (1e-9, *first(self, tried)[1:])
    monkeypatch.setattr(Scorer, "first", lowered)
    case = prepared(NET, MODEL, PRICES, **ASKED)
    assert case.keep.tolist() == [case.usual]


def test_the_loads_of_a_layout_give_the_seconds_of_its_step(case):
    row = int(case.keep[0])
    space = case.space
    degrees = space.degrees[space.degrees_of[row]]
    placement = Placement(degrees.ranks(case.slots))
    one = fb.step(NET, MODEL, space.layout(row), placement, by=None).step_time
    x = jnp.ones(2)
    seconds = case.design.time(case.design.table(), x, lambda t: t.max(axis=-1))
    # Shared as well as can be: no slower, and as slow where all flows are of one size.
    assert float(seconds[0]) <= one * (1 + 1e-12)
    assert float(seconds[0]) == pytest.approx(one, rel=1e-2)


def test_no_division_beats_the_bounds_of_layouts(case):
    """One of each ZeRO stage: at 2 a gather hides behind a pass that other waiting makes longer."""
    columns = case.space.columns
    wide = (columns.tp > 1) & (columns.dp > 1) & (columns.pp > 1)
    rows = [np.flatnonzero((wide & (columns.zero == z))[case.space.shape_of])[0] for z in range(4)]
    some = case.every.some(np.array(rows))
    found = _design_descent.descended(some, case.purse, 70e3, np.zeros((4, 2)), STEPS, Kept())
    share = np.linspace(0.02, 0.98, 49)
    at = jnp.asarray(np.stack([share, 1 - share], axis=1) * 70e3 / COST)
    seconds = np.array([some.time(some.table(), x, lambda t: t.max(axis=-1)) for x in at])
    assert (found.bound <= seconds.min(axis=0)).all()
    assert (found.bound >= found.value * (1 - 1e-3)).all()


def test_a_killed_run_resumes_to_the_same_answer_and_another_problem_is_refused(
    found, tmp_path, monkeypatch
):
    """Killed between parts of the layouts, with and without the control."""
    path = tmp_path / "design.ckpt"
    asked = ASKED | {"steps": STEPS}
    put, parts = Kept.put, []

    def killed(self, state, done=False):
        put(self, state, done=True)
        parts.append(state.get("descent/parts", 0))
        if parts[-1] == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Kept, "put", killed)
    with pytest.raises(KeyboardInterrupt):
        codesign(NET, MODEL, PRICES, checkpoint=path, **asked)
    told = []

    def noted(self, state, done=False):
        told.append(state["descent/parts"])
        put(self, state, done)

    monkeypatch.setattr(Kept, "put", noted)
    programs = _capacity_control._climbed._cache_size()
    again = codesign(NET, MODEL, PRICES, checkpoint=path, **asked)
    assert _capacity_control._climbed._cache_size() == programs, "moves are compiled once"
    assert len(told) > 1, "there are several parts"
    assert told == list(range(2, len(told) + 2)), "neither routes nor finished layouts again"
    monkeypatch.setattr(Kept, "put", put)
    took = {"seconds": 0, "descent_seconds": 0}
    assert again.as_dict() | took == found.as_dict() | took
    numpy = {"budget": round(BUDGET), "tolerance": np.float64(1e-3), "control": False}
    alone = codesign(NET, MODEL, PRICES, checkpoint=path, **(asked | numpy))
    said = json.loads(json.dumps(alone.as_dict() | took))
    wanted = json.loads(json.dumps(found.as_dict() | took | {"control": None}))
    assert said == wanted, "the control counts for nothing"
    for changed in (
        {"budget": 60e3}, {"gbs": 32}, {"seq": 4096}, {"gpus": 8}, {"dtype": "fp8"},
        {"schedule": "gpipe"}, {"recompute": "counts"}, {"rank_orders": "tp-dp-cp-pp"},
        {"limits": {"cp": 1}}, {"least": 0.01}, {"most": 5.0},
        {"placement": Placement(NET.hosts[::-1])},
        {"routing": "ecmp"}, {"gpu": "h200-sxm"}, {"profile": "default-h200"}, {"steps": 41},
        {"seed": 1},
    ):  # fmt: skip
        with pytest.raises(ModelError, match="another problem"):
            codesign(NET, MODEL, PRICES, checkpoint=path, **(asked | changed))
    with pytest.raises(ModelError, match="another problem"):
        codesign(NET, MODEL, PRICES | {"host": 1.0}, checkpoint=path, **asked)
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(ModelError, match="no checkpoint that can be read"):
        codesign(NET, MODEL, PRICES, checkpoint=path, **asked)


def test_routings_given_as_functions_are_told_apart(tmp_path):
    asked = ASKED | {"checkpoint": tmp_path / "design.ckpt"}
    of = lambda seed: functools.partial(routing.ecmp, seed=seed)
    prepared(NET, MODEL, PRICES, routing=of(0), **asked).kept.put({}, done=True)
    prepared(NET, MODEL, PRICES, routing=of(0), **asked)
    with pytest.raises(ModelError, match="another problem"):
        prepared(NET, MODEL, PRICES, routing=of(1), **asked)
    with pytest.raises(ModelError, match="tell one routing from another"):
        prepared(NET, MODEL, PRICES, routing=lambda *_: None, **asked)


def test_faults_and_impossible_problems_are_named(case, monkeypatch):
    with pytest.raises(ModelError, match=r"(?s)`steps`.*`seed`.*`tolerance`.*recompute='some'"):
        codesign(
            NET, MODEL, PRICES, steps=0, seed=-1, tolerance=2, recompute="some", **ASKED
        )  # fmt: skip
    with pytest.raises(InfeasibleError, match="the network has 16"):
        codesign(NET, MODEL, PRICES, gpus=32, **ASKED)
    with pytest.raises(InfeasibleError, match="below what the smallest factors"):
        codesign(NET, MODEL, PRICES, least=2.0, **ASKED)
    monkeypatch.setattr("fabric._memory.UNASKED", 0)
    monkeypatch.setattr("fabric._memory.available", lambda: 1000.0)
    with pytest.raises(InfeasibleError, match=r"`codesign` of .* layouts needs about .* Use fewer"):
        _afford(case.space, case.priced)


def test_money_in_proportion_to_the_weights_is_the_best_for_a_tangent():
    rng = np.random.default_rng(0)
    purse = Purse(*map(jnp.asarray, (rng.uniform(1, 5, 4), np.full(4, 0.1), np.full(4, 1.5))))
    w = jnp.asarray(rng.uniform(0, 1, 4))
    best = float((w * richest(w, 8.0, purse)).sum())
    x = factors(jnp.asarray(rng.normal(0, 2, (20_000, 4))), 8.0, purse)
    drawn = (w * jnp.log(x)).sum(axis=1)
    assert best >= float(drawn.max())
    assert best == pytest.approx(float(drawn.max()), abs=0.02)
    money, reached = cheapest(w, jnp.asarray(best), purse)
    assert bool(reached)
    assert float(money) == pytest.approx(8.0, rel=1e-6)
    assert float(money) <= 8.0
    assert not bool(cheapest(w, jnp.asarray(10.0), purse)[1])


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_the_best_division_for_a_tangent_is_the_same_in_any_unit(kind, unit):
    """Seconds and money of any size; without limits the shares of the money are the weights."""
    purse = Purse(*(jnp.asarray(a, kind) for a in (
        np.array([1.0, 2.0, 4.0]) * unit, np.zeros(3), np.full(3, 1e9)
    )))  # fmt: skip
    w = jnp.asarray(np.array([0.5, 0.3, 0.2]) * unit, kind)
    y = richest(w, jnp.asarray(10.0 * unit, kind), purse)
    np.testing.assert_allclose(np.exp(y), [5.0, 1.5, 0.5], rtol=1e-5)
    assert y.dtype == kind
    money, reached = cheapest(w, (w * y).sum(), purse)
    assert bool(reached)
    assert float(money) == pytest.approx(10 * unit, rel=1e-4)


def test_logits_give_back_the_proportions_they_were_made_of():
    purse = Purse(*map(jnp.asarray, (np.array([1.0, 2.0, 4.0]), np.zeros(3), np.full(3, 1e9))))
    x = np.array([0.5, 1.0, 0.25])
    np.testing.assert_allclose(factors(logits(jnp.asarray(x), purse), 3.5, purse), x, rtol=1e-12)
    none = purse._replace(least=jnp.asarray(x))
    np.testing.assert_allclose(logits(jnp.asarray(x), none), np.log(1e-3 / 3), rtol=1e-12)


def test_money_is_trimmed_to_what_there_is_and_no_limit_is_crossed():
    rng = np.random.default_rng(0)
    for _ in range(50):
        cost, least = rng.lognormal(0, 9, 5), rng.uniform(0, 1, 5) * rng.integers(0, 2, 5)
        purse = Purse(cost, least, least + rng.uniform(0.5, 9, 5))
        x = np.clip(rng.lognormal(0, 2, 5), purse.least, purse.most)
        money = float(cost @ x) * (1 - 1e-15)
        kept = trimmed(x, money, purse)
        assert cost @ kept <= money
        assert (kept >= least).all()
        assert cost @ kept >= money * (1 - 1e-12)


def test_a_grid_of_parts_has_every_division_once():
    shares = differentiable.grid(6, 3)
    assert len(shares) == len(np.unique(shares, axis=0)) == 10  # 5 choose 2
    assert shares.min() == 1
    assert (shares.sum(axis=1) == 6).all()


@pytest.fixture(scope="module")
def scored():
    ((space, form),) = swaps.drawn(1)
    return swaps.Scored.of(space, form)


def test_slopes_of_layouts_are_those_of_differences(scored):
    """Between a layout and one with twice the microbatch the score moves as the slope says."""
    column = swaps.SIZES.index("mb")
    assert np.isfinite(scored.slope).all()
    same = np.delete(scored.logs, column, axis=1)
    signs = []
    for row in range(0, len(scored.seconds), 7):
        for other in scored.near(row):
            if (
                np.array_equal(same[other], same[row])
                and scored.logs[other, column] != (scored.logs[row, column])
            ):
                step = scored.logs[other, column] - scored.logs[row, column]
                if abs(scored.slope[row, column] * step) > 0.05:
                    change = np.log(scored.seconds[other] / scored.seconds[row])
                    signs.append(change * scored.slope[row, column] * step > 0)
    assert np.mean(signs) > 0.9


@pytest.mark.parametrize("guided", [False, True])
def test_a_search_by_swaps_is_seeded_and_never_beats_the_optimum(scored, guided):
    runs = [scored.search(np.random.default_rng(3), guided, 0) for _ in range(2)]
    assert runs[0] == runs[1] >= scored.seconds.min()
