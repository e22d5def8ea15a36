"""What `max_min_rates` promises, one test per promise."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import fabric as fb
from tests.oracle.problems import drawn_problems

METHODS = ["rounds", "compiled"]
# One shape for every drawn problem, so the whole file compiles once per type.
N_LINKS, N_FLOWS, N_HOPS = 5, 6, 30

capacities = st.lists(
    st.sampled_from([0.0, 1.0, 2.0, 3.5, 10.0]), min_size=N_LINKS, max_size=N_LINKS
)
paths_of = st.lists(
    st.lists(st.integers(0, N_LINKS - 1), min_size=1, max_size=N_LINKS, unique=True),
    min_size=N_FLOWS,
    max_size=N_FLOWS,
)


def solve(capacity, paths, method="rounds", **kwargs):
    routes = fb.Routes.from_paths(paths, n_links=len(capacity), pad_to=N_HOPS)
    return fb.max_min_rates(fb.Network(np.array(capacity)), routes, method=method, **kwargs)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("capacity", "paths", "rates", "bottleneck"),
    [
        pytest.param([10.0], [[0], [0]], [5.0, 5.0], [0, 0], id="equal-split"),
        pytest.param([10.0, 4.0], [[0, 1], [0], [1]], [2.0, 8.0, 2.0], [1, 0, 1], id="parking-lot"),
        pytest.param([3.0, 7.0], [[0], [1]], [3.0, 7.0], [0, 1], id="disjoint"),
        pytest.param([0.0, 7.0], [[0, 1], [1]], [0.0, 7.0], [0, 1], id="zero-capacity"),
    ],
)
def test_hand_solved(capacity, paths, rates, bottleneck, method):
    solution = solve(capacity, paths, method)
    np.testing.assert_allclose(solution.rates, rates, rtol=1e-12)
    np.testing.assert_array_equal(solution.bottleneck, bottleneck)


@pytest.mark.parametrize("method", METHODS)
def test_a_weight_of_two_gets_twice_the_rate_at_a_shared_bottleneck(method):
    solution = solve([30.0], [[0], [0]], method, weights=np.array([1.0, 2.0]))
    np.testing.assert_allclose(solution.rates, [10.0, 20.0], rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_what_a_capped_flow_leaves_goes_to_the_others(method):
    solution = solve([10.0], [[0], [0], [0]], method, caps=np.array([1.0, np.inf, np.inf]))
    np.testing.assert_allclose(solution.rates, [1.0, 4.5, 4.5], rtol=1e-12)
    np.testing.assert_array_equal(solution.bottleneck, [-1, 0, 0])


@pytest.mark.parametrize("method", METHODS)
def test_keywords_override_what_the_routes_carry(method):
    routes = fb.Routes.from_paths([[0], [0]], n_links=1, weights=[1.0, 3.0], caps=[1.0, np.inf])
    net = fb.Network([8.0])
    carried = fb.max_min_rates(net, routes, method=method)
    np.testing.assert_allclose(carried.rates, [1.0, 7.0], rtol=1e-12)
    other = fb.max_min_rates(
        net, routes, method=method, weights=np.ones(2), caps=np.array([np.inf, np.inf])
    )
    np.testing.assert_allclose(other.rates, [4.0, 4.0], rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_sprayed_flow_fills_every_link_of_its_bundle_by_its_fraction(method):
    # Flow 0 goes half and half over links 1 and 2 after link 0; flow 1 uses link 1 alone.
    # Link 1 (4): r0 / 2 + r1 = 4 with r0 = r1 gives 8/3; link 0 (10) is not full.
    routes = fb.Routes.from_bundles(
        [0, 0, 1], [0, 1, 2], 1.0, [0, 1, 1, 2], [0, 1, 2, 1], [1.0, 0.5, 0.5, 1.0],
        n_flows=2, n_bundles=3, n_links=3,
    )  # fmt: skip
    solution = fb.max_min_rates(fb.Network([10.0, 4.0, 4.0]), routes, method=method)
    np.testing.assert_allclose(solution.rates, [8 / 3, 8 / 3], rtol=1e-12)
    np.testing.assert_array_equal(solution.saturated, [False, True, False])


@pytest.mark.parametrize("method", METHODS)
def test_merged_links_of_unequal_capacity_fill_at_the_smallest(method):
    # Links 0 to 2 carry the same bundle equally: the one of capacity 3 stops both flows.
    routes = fb.Routes.from_bundles(
        [0, 1], [0, 0], 1.0, [0, 0, 0], [0, 1, 2], 1 / 3, n_flows=2, n_bundles=1, n_links=3
    )
    solution = fb.max_min_rates(fb.Network([5.0, 3.0, 4.0]), routes, method=method)
    np.testing.assert_allclose(solution.rates, [4.5, 4.5], rtol=1e-12)
    np.testing.assert_array_equal(solution.bottleneck, [1, 1])
    np.testing.assert_array_equal(solution.saturated, [False, True, False])


@pytest.mark.parametrize("method", METHODS)
def test_a_route_over_a_failed_link_has_rate_zero(method):
    net = fb.Network([5.0, 5.0]).with_alive(np.array([True, False]))
    routes = fb.Routes.from_paths([[0], [0, 1]], n_links=2)
    np.testing.assert_allclose(fb.max_min_rates(net, routes, method=method).rates, [5.0, 0.0])


@pytest.mark.parametrize("method", METHODS)
def test_no_flow_is_a_legal_problem(method):
    routes = fb.Routes.from_paths([], n_links=3)
    solution = fb.max_min_rates(fb.Network([1.0, 2.0, 3.0]), routes, method=method)
    assert solution.rates.shape == (0,)
    assert not np.asarray(solution.saturated).any()


@given(capacities, paths_of, st.permutations(range(N_FLOWS)))
def test_flow_order_is_irrelevant(capacity, paths, order):
    base = np.asarray(solve(capacity, paths).rates)
    for method in METHODS:
        moved = solve(capacity, [paths[i] for i in order], method).rates
        np.testing.assert_allclose(moved, base[list(order)], rtol=1e-12)


@given(capacities, paths_of, st.sampled_from([1e-9, 3.0, 1e12]))
def test_rates_scale_with_capacity(capacity, paths, factor):
    base = np.asarray(solve(capacity, paths).rates)
    for method in METHODS:
        scaled = solve([c * factor for c in capacity], paths, method).rates
        np.testing.assert_allclose(scaled, base * factor, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_small_weights_beside_large_ones_are_not_starved(method):
    # 999 flows of weight 1 and one of weight 1e-6: a loose tolerance would give it nothing.
    weights = np.r_[np.ones(999), 1e-6]
    routes = fb.Routes.from_paths([[0]] * 1000, n_links=1, weights=weights)
    solution = fb.max_min_rates(fb.Network([1.0]), routes, method=method)
    np.testing.assert_allclose(solution.rates, weights / weights.sum(), rtol=1e-12)


def test_the_heap_loses_nothing_to_a_thousand_subtractions():
    # Link 0 carries 2,000 flows that stop one by one on links of their own, then one more.
    n = 2000
    own = np.linspace(0.5, 1.0, n)
    paths = [[0, 1 + i] for i in range(n)] + [[0]]
    routes = fb.Routes.from_paths(paths, n_links=n + 1)
    capacity = np.r_[own.sum() + 1.25, own]
    solution = fb.max_min_rates(fb.Network(capacity), routes, method="compiled")
    np.testing.assert_allclose(solution.rates[-1], 1.25, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_float32_capacity_gives_float32_rates(method):
    routes = fb.Routes.from_paths([[0], [0, 1]], n_links=2)
    net = fb.Network(np.array([3.0, 1.0], np.float32))
    solution = fb.max_min_rates(net, routes, method=method)
    assert solution.rates.dtype == jnp.float32
    assert fb.certify(net, routes, solution) < 5e-6


def test_an_unbounded_flow_is_a_code_and_an_error():
    routes = fb.Routes.from_paths([[0], []], n_links=1)
    net = fb.Network([4.0])
    for method in METHODS:
        solution = fb.max_min_rates(net, routes, method=method, throw=False)
        assert bool(solution.result == fb.RESULTS.unbounded)
        np.testing.assert_allclose(solution.rates, [4.0, np.inf])
        assert fb.certify(net, routes, solution) == np.inf
        with pytest.raises(fb.UnsolvedError, match=r"crosses no link and has no cap"):
            fb.max_min_rates(net, routes, method=method)


@pytest.mark.parametrize("method", METHODS)
def test_a_flow_without_links_gets_its_cap(method):
    routes = fb.Routes.from_paths([[0], []], n_links=1, caps=[np.inf, 2.5])
    solution = fb.max_min_rates(fb.Network([4.0]), routes, method=method)
    np.testing.assert_allclose(solution.rates, [4.0, 2.5])
    np.testing.assert_array_equal(solution.bottleneck, [0, -1])


def test_stopping_early_is_a_code_and_an_error():
    chain = [[i, i + 1] for i in range(9)] + [[i] for i in range(10)]
    capacity = np.r_[1.0, 3.0 * (0.5 + np.arange(1, 10))]
    routes = fb.Routes.from_paths(chain, n_links=10)
    net = fb.Network(capacity)
    solution = fb.max_min_rates(net, routes, method="rounds", max_rounds=3, throw=False)
    assert bool(solution.result == fb.RESULTS.max_rounds_reached)
    assert int(solution.rounds) == 3
    with pytest.raises(fb.UnsolvedError, match=r"Raise `max_rounds`"):
        fb.max_min_rates(net, routes, method="rounds", max_rounds=3)


def test_a_traced_solve_that_does_not_converge_raises_at_run_time():
    routes = fb.Routes.from_paths([[0], []], n_links=1)
    with pytest.raises(Exception, match=r"crosses no link and has no cap"):
        jax.block_until_ready(
            jax.jit(lambda c: fb.max_min_rates(fb.Network(c), routes).rates)(jnp.array([4.0]))
        )


def test_auto_says_what_it_ran_and_why():
    dense = fb.Routes.from_paths([[0]] * 9, n_links=1)
    sparse = fb.Routes.from_paths([[0], [0]], n_links=1)
    wide = fb.Routes.from_bundles(
        [0, 1], [0, 1], 1.0, [0, 0, 1], [0, 1, 1], 0.5, n_flows=2, n_bundles=2, n_links=2
    )
    for routes, how in (
        (dense, "heap: dense"), (sparse, "rounds, then heap"), (wide, "heap: wide bundles")
    ):  # fmt: skip
        net = fb.Network(np.ones(routes.n_links))
        plain = fb.max_min_rates(net, routes, method="compiled")
        assert plain.method == f"compiled ({how})"
        assert fb.max_min_rates(net, routes).method == f"auto: compiled on cpu ({how})"


def test_auto_says_that_it_took_rounds_for_an_accelerator(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    routes = fb.Routes.from_paths([[0], [0]], n_links=1)
    assert fb.max_min_rates(fb.Network([1.0]), routes).method == "auto: rounds on gpu"


def test_mismatched_link_counts_name_both_and_the_fix():
    routes = fb.Routes.from_paths([[0]], n_links=1)
    with pytest.raises(ValueError, match=r"network with 2 links .* n_links=1"):
        fb.max_min_rates(fb.Network([1.0, 1.0]), routes)


def test_an_unknown_method_offers_the_nearest():
    routes = fb.Routes.from_paths([[0]], n_links=1)
    with pytest.raises(fb.ModelError, match=r"Did you mean 'compiled'"):
        fb.max_min_rates(fb.Network([1.0]), routes, method="compile")


def test_every_fault_is_said_at_once():
    routes = fb.Routes.from_paths([[0], [1]], n_links=2)
    with pytest.raises(fb.ModelError) as caught:
        fb.max_min_rates(
            fb.Network([-1.0, np.nan]), routes,
            weights=np.array([0.0, 1.0]), caps=np.array([-1.0, 1.0]),
        )  # fmt: skip
    text = str(caught.value)
    assert "2 of 2 links are negative" in text
    assert "`weights=...` needs a weight of more than 0" in text
    assert "`caps=...` needs a cap in byte/s of 0 or more" in text


def test_one_value_per_flow_is_asked_for_by_name():
    routes = fb.Routes.from_paths([[0], [0]], n_links=1)
    with pytest.raises(fb.ModelError, match=r"weights=.* has shape \(3,\), but the routes have 2"):
        fb.max_min_rates(fb.Network([1.0]), routes, weights=np.ones(3))


@pytest.mark.parametrize("method", METHODS)
def test_every_bottleneck_is_saturated_however_many_flows_it_carries(method):
    n = 300_000
    routes = fb.Routes.from_csr(np.arange(n + 1), np.zeros(n, np.int32), n_links=1)
    solution = fb.max_min_rates(fb.Network([0.7]), routes, method=method)
    assert bool(solution.saturated[0])
    assert int(solution.bottleneck.max()) == int(solution.bottleneck.min()) == 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("capacity", "paths", "margin"),
    [
        pytest.param([4.0, 4.0], [[0, 1]], 0.0, id="two links fill at once"),
        pytest.param([4.0, 5.0], [[0, 1]], 0.2, id="one link has a fifth left"),
        pytest.param([10.0, 4.0], [[0, 1], [0], [1]], 0.75, id="a higher level on the other link"),
    ],
)
def test_tie_margin_is_the_distance_to_the_next_tie(capacity, paths, margin, method):
    np.testing.assert_allclose(solve(capacity, paths, method).tie_margin, margin, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_tie_margin_sees_caps(method):
    solution = solve([10.0], [[0], [0]], method, caps=np.array([6.0, np.inf]))
    np.testing.assert_allclose(solution.tie_margin, 1 / 6, rtol=1e-12)
    assert float(solve([10.0], [[0], [0]], method, caps=np.array([5.0, np.inf])).tie_margin) == 0


def test_links_without_a_flow_are_no_tie():
    # One flow, on bundle 3, which is link 0; links 1 and 3 are twins of capacity 0 that none uses.
    routes = fb.Routes.from_bundles(
        [0], [3], 1.0,
        [0, 0, 1, 1, 3, 5, 5], [3, 1, 1, 3, 0, 0, 2], [0.2, 0.2, 0.2, 0.2, 0.25, 0.5, 0.5],
        n_flows=1, n_bundles=6, n_links=5,
    )  # fmt: skip
    net = fb.Network([6.1, 0.0, 9.1, 0.0, 0.0])
    for method in ("rounds", "compiled"):
        assert float(fb.max_min_rates(net, routes, method=method).tie_margin) == 1.0


def test_tie_margins_of_compiled_are_those_of_rounds_where_links_are_failed():
    for i, drawn in enumerate(drawn_problems(60, seed=9)):
        alive = np.random.default_rng(i).random(len(drawn.capacity)) < 0.7
        net = fb.Network(drawn.capacity * alive)
        margins = [
            float(fb.max_min_rates(net, drawn.routes, method=method).tie_margin)
            for method in ("rounds", "compiled")
        ]
        np.testing.assert_allclose(*margins, atol=1e-12, err_msg=f"problem {i}")


def test_max_rounds_is_ignored_by_compiled():
    routes = fb.Routes.from_paths([[0, 1], [0]], n_links=2)
    for method in ("compiled", "auto"):
        solution = fb.max_min_rates(fb.Network([10.0, 4.0]), routes, method=method, max_rounds=1)
        assert solution.rates.tolist() == [4.0, 6.0]


def test_an_unknown_derivative_offers_the_nearest_and_names_the_exact_one():
    routes = fb.Routes.from_paths([[0]], n_links=1)
    with pytest.raises(fb.ModelError, match=r"Did you mean 'mean'.*`fabric.one_sided`"):
        fb.max_min_rates(fb.Network([1.0]), routes, derivative="means")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"capacity": [1e39, 2.0]}, r"Network\(capacity\)"),
        ({"weights": [1e-60, 1.0]}, "weights=..."),
        ({"caps": [1e300, 1.0]}, "caps=..."),
        ({"usage": [[1e-50], [1.0]]}, "hop_use"),
    ],
)
@pytest.mark.filterwarnings("ignore:float64 input is cast")
def test_values_that_float32_cannot_hold_are_refused_by_name(values, name, method):
    routes = fb.Routes.from_paths([[0], [1]], n_links=2, usage=values.get("usage"))
    capacity = np.array(values.get("capacity", [3.0, 2.0]))
    # The capacity itself can be too large only where it is float64 and x64 is off.
    if small := capacity.max() < 1e30:
        capacity = capacity.astype(np.float32)
    without_x64 = nullcontext() if small else jax.enable_x64(False)
    with without_x64, pytest.raises(fb.ModelError, match=rf"`{name}` holds values from"):
        fb.max_min_rates(
            fb.Network(capacity), routes, method=method,
            weights=values.get("weights"), caps=values.get("caps"),
        )  # fmt: skip


@pytest.mark.parametrize("rounds", [0, -1, True])
def test_max_rounds_is_a_whole_number(rounds):
    routes = fb.Routes.from_paths([[0]], n_links=1)
    with pytest.raises(fb.ModelError, match="`max_rounds` needs a whole number"):
        fb.max_min_rates(fb.Network([1.0]), routes, max_rounds=rounds)


def test_text_is_no_weight():
    routes = fb.Routes.from_paths([[0], [0]], n_links=1)
    with pytest.raises(fb.ModelError, match=r"`max_min_rates\(weights=...\)`"):
        fb.max_min_rates(fb.Network([1.0]), routes, weights=["a", "b"])
