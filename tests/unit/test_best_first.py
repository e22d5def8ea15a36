"""What the best-first search of a table promises: it is right on any bounds."""

import numpy as np
import pytest

from fabric.optimize._best_first import Best, Front, best_first


def test_values_without_a_way_are_passed_over():
    truth = np.array([np.inf, 3.0, 2.0, np.inf, 4.0])
    lower, keys = np.array([0.5, 1.0, 2.0, np.inf, 0.7]), np.zeros(5, np.int64)
    best, front = Best(4, 0.0), Front(np.arange(5.0), 0.0)
    found = best_first(lower, keys, scored(truth), best)
    assert best.values.tolist() == [2.0, 3.0, 4.0]
    assert found.bound == 2.0
    assert found.history[-1][1:] == (2.0, 2.0)
    best_first(lower, keys, scored(truth), front)
    assert front.rows.tolist() == [4, 2]
    nothing = best_first(lower, keys, lambda key, rows: np.full(len(rows), np.inf), Best(1, 0.0))
    assert nothing.bound == np.inf


def scored(truth):
    return lambda key, rows: truth[rows]


@pytest.mark.parametrize("top", [1, 5])
def test_best_first_is_right_on_any_bounds(top):
    rng = np.random.default_rng(top)
    for _ in range(30):
        truth = rng.random(400) + 0.5
        lower = truth * rng.choice([0.6, 0.9, 1.0], 400)
        keys = rng.integers(0, 20, 400)
        best = Best(top, 0.0)
        found = best_first(lower, keys, scored(truth), best)
        np.testing.assert_array_equal(best.values, np.sort(truth)[:top])
        assert found.bound == truth.min()
        merit = rng.integers(0, 10, 400) / 10
        front = Front(merit, 0.0)
        best_first(lower, keys, scored(truth), front)
        want = {m: truth[merit >= m].min() for m in np.unique(merit)}
        got = {m: front.values[merit[front.rows] >= m].min() for m in np.unique(merit)}
        assert got == want
        assert (np.diff(front.values) < 0).all()


def test_the_bound_of_a_tolerance_is_below_every_value():
    rng = np.random.default_rng(0)
    for _ in range(50):
        truth = rng.random(300) + 0.5
        lower = truth * rng.uniform(0.5, 1.0, 300)
        best = Best(2, 0.1)
        found = best_first(lower, np.arange(300), scored(truth), best)
        assert found.bound <= truth.min() <= best.values[0] <= found.bound * 1.1 * (1 + 1e-12)
