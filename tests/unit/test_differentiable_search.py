"""What `optimize.codesign` promises, and what searches by gradient are compared with."""

import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb
from experiments.optimizers import differentiable, joint, swaps
from fabric._errors import InfeasibleError, ModelError
from fabric.network import Placement
from fabric.optimize import codesign
from fabric.optimize._differentiable import prepared
from fabric.optimize._money import Purse, cheapest, factors, logits, richest

NET = fb.topologies.cluster("dgx-h100", nodes=2)
MODEL = fb.Model.listed("llama-3.1-8b")
PRICES = {"nvlink": "1 per Gb/s", "host": "3 per Gb/s"}
ASKED = {"budget": 70e3, "gbs": 64, "seq": 8192, "limits": {"cp": 1, "vpp": 1}}


@pytest.fixture(scope="module")
def found():
    return codesign(NET, MODEL, PRICES, steps=150, **ASKED)


@pytest.fixture(scope="module")
def case():
    return prepared(NET, MODEL, PRICES, **ASKED)


def test_the_objective_is_the_step_of_the_layout_on_the_network_found(found):
    one = fb.step(found.network, MODEL, found.best.layout, found.best.placement, by=None)
    assert found.objective == pytest.approx(one.step_time, rel=1e-9)
    assert sum(found.spent.values()) == pytest.approx(70e3)


def test_no_division_of_a_grid_beats_it_for_any_layout(found, case):
    """Every kept layout at every division, scored without a compiled program."""
    best = np.inf
    for share in np.linspace(0.05, 0.95, 19):
        x = np.array([share, 1 - share]) * 70e3 / case.priced.cost
        seconds = case.design.time(case.design.table, jnp.asarray(x), lambda t: t.max(axis=-1))
        best = min(best, float(seconds.min()))
    assert found.objective <= best * (1 + 1e-9)
    assert found.bound <= best


def test_the_gap_is_proved_and_small(found):
    assert found.certified
    assert 0 <= found.gap <= 1e-3
    assert found.objective <= found.before
    assert found.objective <= found.control * (1 + 1e-3)


def test_layouts_left_out_are_slower_at_any_capacities_for_the_money(found, case):
    """Each gets all of the money in every group at once."""
    assert case.ruled_out >= found.objective
    assert len(case.keep) < case.space.n_rows


def test_the_loads_of_a_layout_give_the_seconds_of_its_step(case):
    row = int(case.keep[0])
    space = case.space
    degrees = space.degrees[space.degrees_of[row]]
    placement = Placement(degrees.ranks(case.slots))
    one = fb.step(NET, MODEL, space.layout(row), placement, by=None).step_time
    x = jnp.ones(2)
    seconds = case.design.time(case.design.table, x, lambda t: t.max(axis=-1))
    # Shared as well as can be: no slower, and as slow where all flows are of one size.
    assert float(seconds[0]) <= one * (1 + 1e-12)
    assert float(seconds[0]) == pytest.approx(one, rel=1e-2)


def test_faults_and_impossible_problems_are_named():
    with pytest.raises(ModelError, match=r"Model\.listed"):
        codesign(NET, "llama", PRICES, **ASKED)
    with pytest.raises(InfeasibleError, match="the network has 16"):
        codesign(NET, MODEL, PRICES, gpus=32, **ASKED)
    with pytest.raises(InfeasibleError, match="below what the smallest factors"):
        codesign(NET, MODEL, PRICES, least=2.0, **ASKED)


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


def test_logits_give_back_the_proportions_they_were_made_of():
    purse = Purse(*map(jnp.asarray, (np.array([1.0, 2.0, 4.0]), np.zeros(3), np.full(3, 1e9))))
    x = np.array([0.5, 1.0, 0.25])
    np.testing.assert_allclose(factors(logits(jnp.asarray(x), purse), 3.5, purse), x, rtol=1e-12)


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


@pytest.fixture(scope="module")
def site():
    return joint.Site(3, 4, 8, 0.2, "llama-3.1-8b", 64, 8192, seed=0)


def test_traffic_by_leaf_and_routes_on_the_fabric_give_the_same_seconds(site):
    """The sums over leaves against exact max-min rates on every cable."""
    for cut in site.cuts[:3]:
        summed, exact = site.score(cut, site.sprayed), site.exact(cut, site.sprayed)
        assert summed <= exact * (1 + 1e-9)
        assert summed == pytest.approx(exact, rel=5e-2)


def test_swaps_and_splits_never_make_a_plan_slower(site):
    cut = max(site.cuts, key=lambda cut: site.score(cut, site.sprayed) / site.ideal(cut))
    before = site.score(cut, site.sprayed)
    placed = site.placed(cut, site.sprayed, 20, None)
    routed = site.routed(cut, placed)
    assert before >= site.score(cut, placed) >= site.score(cut, routed) >= site.ideal(cut)
    np.testing.assert_array_equal(np.sort(placed.at), np.arange(8))
    np.testing.assert_allclose(
        routed.split.sum(axis=2)[~np.eye(site.n_leaves, dtype=bool)], 1.0, rtol=1e-9
    )
