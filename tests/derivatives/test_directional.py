"""What `directional` promises: each rule at ties and away from them, and whole functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb
from fabric import directional

TIED = np.array([2.0, 1.0, 2.0])
MOVE = np.array([-1.0, 5.0, 3.0])


def test_max_takes_the_largest_tangent_among_those_tied():
    assert [float(y) for y in directional.max(TIED, MOVE)] == [2.0, 3.0]
    assert float(directional.max(TIED, -MOVE)[1]) == 1.0
    assert float(directional.max(np.array([2.0, 1.0]), np.array([7.0, 9.0]))[1]) == 7.0


def test_min_takes_the_smallest_tangent_among_those_tied():
    assert [float(y) for y in directional.min(-TIED, MOVE)] == [-2.0, -1.0]
    assert float(directional.min(TIED, MOVE)[1]) == 5.0


def test_max_and_min_go_along_an_axis():
    x, dx = np.stack([TIED, TIED[::-1]]), np.stack([MOVE, 2 * MOVE])
    np.testing.assert_array_equal(directional.max(x, dx, axis=1)[1], [3.0, 6.0])
    np.testing.assert_array_equal(directional.min(x, dx, axis=0)[1], [-2.0, 5.0, 3.0])
    assert float(directional.max(x, dx, axis=(0, 1))[1]) == 6.0


def test_maximum_and_minimum_go_by_element():
    x, y = np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])
    dx, dy = np.array([5.0, 6.0, 7.0]), np.array([8.0, 9.0, 10.0])
    np.testing.assert_array_equal(directional.maximum(x, dx, y, dy)[1], [8.0, 9.0, 7.0])
    np.testing.assert_array_equal(directional.minimum(x, dx, y, dy)[1], [5.0, 6.0, 10.0])


def test_abs_at_zero_grows_either_way():
    x, dx = np.array([0.0, 0.0, 2.0, -2.0]), np.array([3.0, -3.0, 1.0, 1.0])
    np.testing.assert_array_equal(directional.abs(x, dx)[1], [3.0, 3.0, 1.0, -1.0])


def test_clamp_at_a_bound_lets_only_inward_moves_through():
    x, dx = np.array([1.0, 1.0, 2.0, 2.0, 1.5, 0.0]), np.array([1.0, -1.0, 1.0, -1.0, 4.0, 4.0])
    value, got = directional.clamp(x, dx, 1.0, 2.0)
    np.testing.assert_array_equal(value, [1.0, 1.0, 2.0, 2.0, 1.5, 1.0])
    np.testing.assert_array_equal(got, [1.0, 0.0, 0.0, -1.0, 4.0, 0.0])


def test_sort_orders_tied_values_by_tangent():
    value, got = directional.sort(np.array([2.0, 1.0, 2.0, 2.0]), np.array([5.0, 9.0, -1.0, 3.0]))
    np.testing.assert_array_equal(value, [1.0, 2.0, 2.0, 2.0])
    np.testing.assert_array_equal(got, [9.0, -1.0, 3.0, 5.0])
    both = directional.sort(np.stack([TIED, TIED]).T, np.stack([MOVE, -MOVE]).T, axis=0)[1]
    np.testing.assert_array_equal(both, [[5.0, -5.0], [-1.0, -3.0], [3.0, 1.0]])


def test_values_an_ulp_apart_tie_and_values_a_billionth_apart_do_not():
    x, far, dx = np.array([0.3, 0.1 + 0.2]), np.array([0.3, 0.3 + 1e-9]), np.array([1.0, 0.0])
    assert x[0] != x[1]
    assert float(directional.max(x, dx)[1]) == 1.0
    assert float(directional.max(far, dx)[1]) == 0.0
    np.testing.assert_array_equal(directional.sort(x, dx)[1], [0.0, 1.0])
    np.testing.assert_array_equal(directional.sort(far, dx)[1], [1.0, 0.0])
    assert float(directional.minimum(x[0], dx[0], x[1], dx[1])[1]) == 0.0
    assert float(directional.minimum(far[0], dx[0], far[1], dx[1])[1]) == 1.0


def test_an_infinity_ties_with_itself_only():
    x, dx = np.array([np.inf, 1.0]), np.array([0.0, 5.0])
    assert [float(y) for y in directional.max(x, dx)] == [np.inf, 0.0]
    assert [float(y) for y in directional.min(x, dx)] == [1.0, 5.0]


def test_nan_stays_nan():
    assert all(np.isnan(y) for y in directional.max(np.array([np.nan, 1.0]), np.ones(2)))


def test_completion_time_falls_as_the_rate_grows():
    size, rate = np.array([8.0, 0.0, 8.0, 8.0]), np.array([2.0, 0.0, 0.0, 0.0])
    time, got = directional.completion_time(size, rate, np.array([1.0, 1.0, 1.0, 0.0]))
    np.testing.assert_array_equal(time, [4.0, 0.0, np.inf, np.inf])
    np.testing.assert_array_equal(got, [-2.0, 0.0, -np.inf, 0.0])


def test_the_makespan_is_the_max_of_completion_times():
    # Both flows end at 2; flow 0 speeds up, so flow 1 decides.
    rate, d_rate = np.array([4.0, 3.0]), np.array([1.0, 0.0])
    times = directional.completion_time(np.array([8.0, 6.0]), rate, d_rate)
    assert [float(y) for y in directional.max(*times)] == [2.0, 0.0]


def difference(function, x, dx):
    """Return the one-sided difference quotient; small whole numbers keep it exact to 1e-8."""
    h = 2.0**-26
    return jax.tree.map(
        lambda a, b: (np.asarray(a) - np.asarray(b)) / h, function(x + h * dx), function(x)
    )


GROUP = np.array([0, 1, 0, 2, 1, 0])

FUNCTIONS = {
    "max": jnp.max,
    "min-over-an-axis": lambda x: jnp.min(x.reshape(2, 3), axis=0),
    "sort": jnp.sort,
    "sort-down": lambda x: jnp.sort(x, descending=True),
    "median": jnp.median,
    "median-of-even-and-quantile": lambda x: jnp.quantile(x[:4], 0.3),
    "range": jnp.ptp,
    "sum-of-the-top-3": lambda x: jnp.sort(x)[-3:].sum(),
    "top-k": lambda x: jax.lax.top_k(x, 3)[0],
    "top-k-of-rows": lambda x: jax.lax.top_k(x.reshape(2, 3), 2)[0],
    "running-max": lambda x: jax.lax.cummax(x),
    "running-min-from-the-end": lambda x: jax.lax.cummin(x, reverse=True),
    "segment-max": lambda x: jax.ops.segment_max(x, GROUP, 3),
    "segment-min": lambda x: jax.ops.segment_min(x, GROUP, 3),
    "segment-sum-then-max": lambda x: jax.ops.segment_sum(x, GROUP, 3).max(),
    "at-max": lambda x: x.at[jnp.array([0, 1])].max(x[2]),
    "maximum-with-a-constant": lambda x: jnp.maximum(x, 2.0).sum(),
    "abs-of-differences": lambda x: jnp.abs(x[1:] - x[:-1]),
    "clip": lambda x: jnp.clip(x, 1.0, 2.0),
    "clamp": lambda x: jax.lax.clamp(1.0, x, 2.0),
    "relu": lambda x: jax.nn.relu(x - 2.0),
    "log-sum-exp": jax.nn.logsumexp,
    "log-add-exp": lambda x: jnp.logaddexp(x[0], x[1:]),
    "softmax": jax.nn.softmax,
    "log-sum": lambda x: jnp.log(x).sum(),
    "max-of-completion-times": lambda x: (jnp.array([4.0, 4.0, 2.0, 8.0, 6.0, 2.0]) / x).max(),
    "nested-jit": jax.jit(lambda x: jax.jit(jnp.max)(x) - x.mean()),
    "checkpoint": jax.checkpoint(lambda x: jnp.max(x) * jnp.min(x)),
    "vmap": lambda x: jax.vmap(jnp.max)(x.reshape(3, 2)),
    "matrix": lambda x: jnp.max(jnp.asarray(np.arange(12.0).reshape(2, 6)) @ x),
    "constant-choice": lambda x: jnp.where(GROUP > 0, x, 2 * x).max(),
    "nan-to-a-number": lambda x: jnp.where(jnp.isnan(x), 0.0, x).max(),
    "tree": lambda x: {"a": x.max(), "b": (x.min(), x**2)},
    "constant": lambda x: jnp.ones(3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jvp_of_a_function_is_its_one_sided_difference(name):
    function = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    for x in ([2.0] * 6, [2.0, 1.0, 2.0, 2.0, 3.0, 1.0], [1.0, 2.0, 3.0, 4.0, 1.0, 1.0]):
        for _ in range(2):
            x, dx = jnp.array(x), jnp.asarray(rng.integers(-2, 3, 6).astype(np.float64))
            value, got = directional.jvp(function, (x,), (dx,))
            same = lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-15)
            jax.tree.map(same, value, function(x))
            # Curvature over the step, and roundings of 1e-16 over 2**-26.
            close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=3e-7)
            jax.tree.map(close, got, difference(function, x, dx))


def test_jvp_looks_through_a_rule_that_hides_a_kink():
    @jax.custom_vjp
    def with_vjp(x):
        return jnp.max(x)

    with_vjp.defvjp(lambda x: (with_vjp(x), x), lambda x, g: (g * x,))

    @jax.custom_jvp
    def with_jvp(x):
        return jnp.max(x)

    with_jvp.defjvp(lambda x, dx: (with_jvp(*x), jnp.sum(*dx)))
    for function in (with_vjp, with_jvp):
        assert float(directional.jvp(function, (jnp.ones(2),), (jnp.array([1.0, 0.0]),))[1]) == 1


def test_jvp_takes_several_arguments_and_trees():
    function = lambda x, tree: jnp.maximum(x, tree["y"])
    value, got = directional.jvp(function, (1.0, {"y": 1.0}), (2.0, {"y": 3.0}))
    assert [float(value), float(got)] == [1.0, 3.0]


def test_stop_gradient_makes_a_constant():
    got = directional.jvp(lambda x: x * jax.lax.stop_gradient(x), (3.0,), (1.0,))[1]
    assert float(got) == 3.0


def test_jvp_goes_through_jit_and_vmap():
    x, ways = jnp.ones(3), jnp.eye(3) - 0.5
    each = lambda dx: directional.jvp(lambda x: x.max() + x.min(), (x,), (dx,))[1]
    loop = [each(dx) for dx in ways]
    np.testing.assert_array_equal(jax.vmap(each)(ways), loop)
    np.testing.assert_array_equal(jax.jit(jax.vmap(each))(ways), loop)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x[jnp.argmax(x)], r"`argmax` has no one-sided rule.*`jnp.max`"),
        (lambda x: jnp.take(x, jnp.argmin(x)), "`argmin` has no"),
        (lambda x: jnp.where(x > 1.0, x, 0.0), r"`gt` has no .*`jnp.maximum`"),
        (lambda x: x[jnp.argsort(x)], "`sort by a key` has no"),
        (lambda x: jax.lax.top_k(x, 1)[1].astype(float), "`top_k` has no"),
        (lambda x: jnp.floor(x), "`floor` has no"),
        (lambda x: jnp.sign(x) * 2.0, "`sign` has no"),
        (lambda x: x % 2.0, "`rem` has no"),
        (lambda x: x.astype(int).astype(float), "`convert_element_type` has no"),
        (lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y + x[0], 0.0), "`(scan|while)` has no"),
        (lambda x: jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x), "`gt` has no|`cond` has no"),
        (lambda x: x > 1.0, "`gt` has no"),
        (lambda x: (x, GROUP), "of type int64, which has no derivative"),
    ],
)
def test_a_kink_without_a_rule_is_refused_by_name(function, text):
    with pytest.raises(NotImplementedError, match=text):
        directional.jvp(function, (jnp.array([1.0, 2.0]),), (jnp.ones(2),))


def test_a_comparison_that_no_result_needs_is_harmless():
    def function(x):
        _ = jnp.argmax(x) + (x > 1.0).sum()
        return x.max()

    assert float(directional.jvp(function, (jnp.ones(2),), (jnp.array([1.0, 0.0]),))[1]) == 1.0


# Links 0 and 1 of 6 are tied for flow 0; flow 1 has link 2 of 6 to itself.
NET, ROUTES = fb.Network([6.0, 6.0, 6.0]), fb.Routes.from_paths([[0, 1], [2]], n_links=3)
SIZE = jnp.array([12.0, 12.0])


@pytest.mark.parametrize(
    ("function", "move", "value", "gain"),
    [
        pytest.param(lambda s: s.rates.min(), [1, 1, 0], 6, 0, id="the-other-flow-is-slowest"),
        pytest.param(lambda s: s.rates.min(), [1, 1, 1], 6, 1, id="all-raised"),
        pytest.param(lambda s: s.rates.min(), [1, 0, 1], 6, 0, id="one-of-two-tied-links"),
        pytest.param(lambda s: s.rates.max(), [1, 1, 0], 6, 1, id="max"),
        pytest.param(lambda s: s.rates.max(), [-1, 0, 0], 6, 0, id="max-lowered"),
        pytest.param(lambda s: (SIZE / s.rates).max(), [1, 1, 0], 2, 0, id="makespan-raised"),
        pytest.param(lambda s: (SIZE / s.rates).max(), [-3, 0, 0], 2, 1, id="makespan-lowered"),
        pytest.param(lambda s: jnp.median(s.rates), [3, 3, 0], 6, 1.5, id="median"),
        pytest.param(lambda s: jnp.sort(s.rates)[1], [3, 3, -1], 6, 3, id="sorted"),
        pytest.param(lambda s: jnp.log(s.rates).sum(), [6, 6, 3], np.log(36), 1.5, id="log-sum"),
    ],
)
def test_a_function_of_the_rates_is_exact_at_its_own_ties(function, move, value, gain):
    direction = {"capacity": np.array(move, np.float64)}
    got = fb.one_sided(function, NET, ROUTES, direction)
    np.testing.assert_allclose(got, [value, gain], rtol=1e-12, atol=1e-14)


def test_a_tree_of_results_comes_back_as_a_tree_with_the_directions_in_front():
    function = lambda s: {"rates": s.rates, "slowest": s.rates.min()}
    value, got = fb.one_sided(function, NET, ROUTES, {"capacity": np.eye(3)})
    assert value["rates"].shape == (2,)
    np.testing.assert_allclose(got["rates"], [[0, 0], [0, 0], [0, 1]], atol=1e-14)
    np.testing.assert_allclose(got["slowest"], [0, 0, 0], atol=1e-14)


def test_a_result_that_no_rate_enters_has_derivative_zero_in_every_direction():
    got = fb.one_sided(lambda s: jnp.ones(2), NET, ROUTES, {"capacity": np.eye(3)})[1]
    np.testing.assert_array_equal(got, np.zeros((3, 2)))


@pytest.mark.parametrize("field", ["saturated", "bottleneck", "tie_margin"])
def test_fields_that_jump_are_refused_by_name(field):
    function = lambda s: getattr(s, field).astype(float).sum() * s.rates.sum()
    with pytest.raises(NotImplementedError, match=rf"`RateSolution.{field}` .* use `rates`"):
        fb.one_sided(function, NET, ROUTES, {"capacity": np.ones(3)})


def test_logaddexp_is_smooth_where_its_maximum_ties_by_rounding():
    x, y = jnp.float64(0.1 + 0.2), jnp.float64(0.3)
    moves = (jnp.float64(0.0), jnp.float64(1.0))
    got = fb.directional.jvp(jnp.logaddexp, (x, y), moves)[1]
    np.testing.assert_allclose(got, jax.jvp(jnp.logaddexp, (x, y), moves)[1], rtol=1e-12)


def test_differentiating_a_directional_derivative_is_refused_by_name():
    x = jnp.array([1.0, 1.0])
    along = lambda t: fb.directional.jvp(jnp.max, (x,), (t,))[1]
    with pytest.raises(NotImplementedError, match="not linear in its direction"):
        jax.grad(along)(jnp.array([1.0, 0.0]))
    at = lambda x: fb.directional.jvp(jnp.max, (x,), (jnp.array([1.0, 0.0]),))[1]
    with pytest.raises(NotImplementedError, match="not linear in its direction"):
        jax.grad(at)(x)
