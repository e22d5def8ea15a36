"""What `derivative="mean"` promises: the average of exact derivatives over jittered capacities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb

MANY = fb.Mean(samples=4096, seed=1)


def jacobian(capacity, paths, derivative, **options):
    routes = fb.Routes.from_paths(paths, n_links=len(capacity))
    solve = lambda c: (
        fb.max_min_rates(fb.Network(c), routes, derivative=derivative, throw=False, **options).rates
    )
    return np.asarray(jax.jit(jax.jacrev(solve))(jnp.asarray(capacity)))


@pytest.mark.parametrize(
    ("paths", "n_links", "symmetric"),
    [
        # One flow over n equal links: each is the smallest with chance 1 / n.
        pytest.param([[0, 1]], 2, [[1 / 2] * 2], id="one flow, two links"),
        pytest.param([[0, 1, 2, 3, 4]], 5, [[1 / 5] * 5], id="one flow, five links"),
        # Two flows share both links: half of the capacity of the smaller.
        pytest.param([[0, 1], [0, 1]], 2, [[1 / 4] * 2] * 2, id="two flows, two links"),
        # Two hosts send to each other through equal cables: up 0, up 1, down 0, down 1.
        pytest.param([[0, 3], [1, 2]], 4, [[0.5, 0, 0, 0.5], [0, 0.5, 0.5, 0]], id="two hosts"),
    ],
)
def test_every_entry_is_within_four_standard_errors_of_the_symmetric_value(
    paths, n_links, symmetric
):
    got = jacobian(np.full(n_links, 8.0), paths, MANY, method="rounds")
    # A sample's entry is `height` with chance `chance`, otherwise 0.
    height = 1.0 / len(paths) if paths[0] == paths[-1] else 1.0
    chance = np.array(symmetric) / height
    error = height * np.sqrt(chance * (1 - chance) / MANY.samples)
    assert np.all(np.abs(got - symmetric) <= 4 * error + 1e-12)
    assert np.all(got[np.array(symmetric) > 0] > 0)


def test_all_to_all_on_one_switch_is_symmetric_over_hosts():
    # n hosts: every rate is the smallest of 2n equal shares c / (n - 1), so the entries of a row
    # sum to 1 / (n - 1), and renaming hosts only renames entries.
    n, c = 4, 6.0
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    paths = [[a, n + b] for a, b in pairs]
    got = jacobian(np.full(2 * n, c), paths, MANY, method="rounds")
    np.testing.assert_allclose(got.sum(1), 1 / (n - 1), rtol=1e-12)
    own = np.array([[got[f, a], got[f, n + b]] for f, (a, b) in enumerate(pairs)])
    # Entries lie in [-1, 1], so one of N samples has a standard error of at most 1 / sqrt(N).
    assert np.all(np.abs(own - own.mean()) <= 4 / np.sqrt(MANY.samples))


def test_away_from_ties_mean_is_select():
    paths = [[0], [1], [0, 1], [1, 2], [2, 3], [0, 2]]
    capacity = [25.0, 50.0, 100.0, 75.0]
    for method in ("rounds", "compiled"):
        mean = jacobian(capacity, paths, "mean", method=method)
        select = jacobian(capacity, paths, "select", method=method)
        np.testing.assert_allclose(mean, select, rtol=1e-12, atol=1e-14)


def test_the_value_is_not_jittered():
    routes = fb.Routes.from_paths([[0, 1]], n_links=2)
    solve = lambda c: fb.max_min_rates(fb.Network(c), routes, derivative="mean").rates
    value, pull = jax.vjp(solve, jnp.array([3.0, 3.0]))
    assert float(value[0]) == 3.0
    np.testing.assert_allclose(sum(pull(jnp.ones(1))[0]), 1.0, rtol=1e-12)


def test_forward_equals_reverse_and_the_seed_decides():
    paths, capacity = [[0, 1], [1, 2], [0, 2]], np.full(3, 4.0)
    routes = fb.Routes.from_paths(paths, n_links=3)

    def solve(c, seed=0):
        mean = fb.Mean(samples=32, seed=seed)
        return fb.max_min_rates(
            fb.Network(c), routes, method="rounds", derivative=mean, throw=False
        ).rates

    at = jnp.asarray(capacity)
    forward, reverse = jax.jit(jax.jacfwd(solve))(at), jax.jit(jax.jacrev(solve))(at)
    np.testing.assert_allclose(forward, reverse, rtol=1e-12)
    other = jax.jit(jax.jacrev(lambda c: solve(c, seed=5)))(at)
    assert not np.allclose(reverse, other)


@pytest.mark.parametrize(
    "settings",
    [
        {"samples": 0},
        {"samples": -2},
        {"sigma": 0.0},
        {"sigma": -1e-6},
        {"sigma": 2.0},
        {"seed": -1},
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings):
    with pytest.raises(fb.ModelError, match=next(iter(settings))):
        fb.Mean(**settings)


def test_many_samples_of_a_large_problem_are_taken_one_after_the_other(monkeypatch):
    from fabric.solvers import _levels

    paths, capacity = [[0, 1], [1, 2], [0, 2]], np.full(3, 4.0)
    mean = fb.Mean(samples=16)
    side_by_side = jacobian(capacity, paths, mean, method="rounds")
    monkeypatch.setattr(_levels, "AT_ONCE", 0)
    np.testing.assert_allclose(
        jacobian(capacity, paths, mean, method="rounds"), side_by_side, rtol=1e-12
    )
