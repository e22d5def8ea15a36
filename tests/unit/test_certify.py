"""What `certify` promises: 0 for max-min rates, and more for anything else."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb


@pytest.fixture
def solved():
    net = fb.Network([10.0, 4.0, 6.0])
    routes = fb.Routes.from_paths([[0, 1], [0], [1], [2]], n_links=3, caps=[np.inf] * 3 + [5.0])
    return net, routes, fb.max_min_rates(net, routes)


def with_rates(solution, rates):
    return eqx.tree_at(lambda s: s.rates, solution, jnp.asarray(rates))


def test_the_solution_itself_is_certified(solved):
    assert fb.certify(*solved) <= 1e-15


@pytest.mark.parametrize(
    ("rates", "least"),
    [
        pytest.param([2.0, 8.4, 2.0, 5.0], 0.039, id="link 0 overloaded by 4 %"),
        pytest.param([2.0, 7.6, 2.0, 5.0], 0.039, id="flow 1 has no full link"),
        pytest.param([1.8, 8.2, 2.2, 5.0], 0.18, id="flow 0 is not the top of its link"),
        pytest.param([2.0, 8.0, 2.0, 5.2], 0.039, id="flow 3 above its cap"),
        pytest.param([2.0, 8.0, 2.0, 4.8], 0.039, id="flow 3 below its cap"),
    ],
)
def test_a_wrong_rate_is_measured(solved, rates, least):
    net, routes, solution = solved
    assert fb.certify(net, routes, with_rates(solution, rates)) >= least


def test_a_bottleneck_that_the_flow_does_not_cross_is_refused(solved):
    net, routes, solution = solved
    moved = eqx.tree_at(lambda s: s.bottleneck, solution, jnp.array([1, 2, 1, -1], jnp.int32))
    assert fb.certify(net, routes, moved) == np.inf


def test_load_on_a_link_without_capacity_is_infinitely_wrong():
    net, routes = fb.Network([0.0]), fb.Routes.from_paths([[0]], n_links=1)
    solution = fb.max_min_rates(net, routes)
    assert fb.certify(net, routes, solution) == 0.0
    assert fb.certify(net, routes, with_rates(solution, [1e-30])) == np.inf


def test_a_bottleneck_inside_a_wide_bundle_is_found():
    routes = fb.Routes.from_bundles(
        [0, 0, 1], [0, 1, 1], 1.0, [0, 1, 1], [0, 1, 2], [1.0, 0.25, 0.75],
        n_flows=2, n_bundles=2, n_links=3,
    )  # fmt: skip
    net = fb.Network([100.0, 2.0, 3.0])
    for method in ("rounds", "compiled"):
        solution = fb.max_min_rates(net, routes, method=method)
        np.testing.assert_allclose(solution.rates, [2.0, 2.0], rtol=1e-12)
        assert fb.certify(net, routes, solution) <= 1e-12


@pytest.mark.parametrize("method", ["rounds", "compiled"])
def test_weights_and_caps_of_the_solve_are_those_of_the_check(method):
    net, routes = fb.Network([3.0]), fb.Routes.from_paths([[0], [0]], n_links=1)
    given = {"weights": np.array([1.0, 2.0]), "caps": np.array([0.5, 9.0])}
    solution = fb.max_min_rates(net, routes, method=method, **given)
    assert fb.certify(net, routes, solution, **given) <= 1e-15
    assert fb.certify(net, routes, solution) > 0.1


def test_a_negative_rate_is_no_rate(solved):
    net, routes, solution = solved
    assert fb.certify(net, routes, with_rates(solution, [-2.0, 8.0, 2.0, 5.0])) == np.inf


@pytest.mark.parametrize("bad", [np.nan, -1.0, np.inf, 0.0])
def test_weights_out_of_range_are_refused_by_name(solved, bad):
    with pytest.raises(fb.ModelError, match=r"`weights=...` needs a weight of more than 0"):
        fb.certify(*solved, weights=[bad] * 4)


def test_caps_that_are_no_numbers_are_refused_by_name(solved):
    with pytest.raises(fb.ModelError, match=r"`caps=...` needs a cap"):
        fb.certify(*solved, caps=[np.nan] * 4)
    with pytest.raises(fb.ModelError, match=r"`certify\(weights=...\)`"):
        fb.certify(*solved, weights=["a", "b", "c", "d"])
    with pytest.raises(fb.ModelError, match=r"`certify\(weights=...\)` has shape"):
        fb.certify(*solved, weights=[1.0, 2.0])


def test_a_solution_of_other_routes_is_refused(solved):
    net, routes, solution = solved
    with pytest.raises(fb.ModelError, match="a solution of 3 flows and routes of 4"):
        fb.certify(net, routes, with_rates(solution, [2.0, 8.0, 2.0]))
