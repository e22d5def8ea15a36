"""What `compress`, `Quotient` and `max_min_rates(method="quotient")` promise, one test each."""

import contextlib

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from hypothesis import given, strategies as st

import fabric as fb
from experiments.bench.symmetric import Rails
from fabric.solvers import _quotient_batch, _symmetry

RAILS = Rails(servers=64, rails=2, servers_per_leaf=8, servers_per_group=16)


def rails(slow=(), *, hashed=False, dtype=np.float64):
    made = RAILS.build(slow, hashed=hashed)
    net = fb.Network(made["capacity"].astype(dtype))
    return net, fb.Routes.from_csr(made["flow_ptr"], made["flow_links"], n_links=net.n_links)


def star(n=3, hub=6.0, leaf=5.0):
    """Return n flows from one port to n others."""
    routes = fb.Routes.from_paths([[0, 1 + i] for i in range(n)], n_links=n + 1)
    return fb.Network(np.r_[hub, np.full(n, leaf)]), routes


@pytest.mark.parametrize(
    ("paths", "capacity", "flow_class", "link_class", "rates"),
    [
        pytest.param([[0], [0]], [10.0], [0, 0], [0], [5.0, 5.0], id="equal-split"),
        pytest.param(
            [[0, 2], [1, 2]], [3.0, 3.0, 4.0], [0, 0], [0, 0, 1], [2.0, 2.0], id="fan-in"
        ),
        pytest.param(
            [[0], [0], [1], [1], [2], [2]], [4.0, 4.0, 6.0], [0, 0, 0, 0, 1, 1], [0, 0, 1],
            [2.0, 2.0, 2.0, 2.0, 3.0, 3.0], id="apart",
        ),
    ],
)  # fmt: skip
def test_hand_solved(paths, capacity, flow_class, link_class, rates):
    net, routes = fb.Network(capacity), fb.Routes.from_paths(paths, n_links=len(capacity))
    quotient = fb.compress(net, routes)
    np.testing.assert_array_equal(quotient.flow_class, flow_class)
    np.testing.assert_array_equal(quotient.link_class, link_class)
    np.testing.assert_allclose(quotient.lift(quotient.solve()).rates, rates, rtol=1e-12)
    solution = fb.max_min_rates(net, routes, method="quotient")
    np.testing.assert_allclose(solution.rates, rates, rtol=1e-12)
    assert solution.method.startswith("quotient")


def test_the_usage_of_a_class_is_that_of_one_link_by_all_its_flows():
    quotient = fb.compress(*star(n=4))
    np.testing.assert_array_equal(quotient.flow_count, [4])
    np.testing.assert_array_equal(quotient.link_count, [1, 4])
    np.testing.assert_array_equal(quotient.routes.hop_use, [4.0, 1.0])
    np.testing.assert_array_equal(quotient.network.capacity, [6.0, 5.0])


@pytest.mark.parametrize("name", ["weights", "caps", "sizes"])
def test_flows_of_another_value_are_another_class(name):
    net, routes = star(n=4)
    values = np.array([1.0, 1.0, 2.0, 2.0])
    quotient = fb.compress(net, routes, **{name: values})
    np.testing.assert_array_equal(quotient.flow_class, [0, 0, 1, 1])
    assert fb.compress(net, star(n=4)[1]).n_flow_classes == 1
    given = {} if name == "sizes" else {name: values}
    lifted = quotient.lift(quotient.solve())
    np.testing.assert_allclose(
        lifted.rates, fb.max_min_rates(net, routes, **given).rates, rtol=1e-12
    )


def test_two_halves_count_as_one_whole():
    # Flows 0 and 1 take both ports half and half, flows 2 and 3 a port each.
    usage = [[0.5, 0.5], [0.5, 0.5], [1.0], [1.0]]
    routes = fb.Routes.from_paths([[0, 1], [0, 1], [0], [1]], n_links=2, usage=usage)
    quotient = fb.compress(fb.Network([4.0, 4.0]), routes, least=1)
    assert (quotient.n_flow_classes, quotient.n_link_classes) == (1, 1)
    np.testing.assert_array_equal(quotient.routes.hop_use, [2.0])
    np.testing.assert_allclose(quotient.solve().rates, [2.0])


def test_links_that_carry_nothing_are_one_class():
    quotient = fb.compress(*rails())
    idle = quotient.link_class[-1]
    np.testing.assert_array_equal(quotient.link_class[4 * RAILS.n_gpus :], idle)
    assert not np.isin(idle, quotient.routes.hop_bundle)


@pytest.mark.parametrize(
    ("slow", "classes"),
    [pytest.param((), (2, 3), id="even"), pytest.param((3,), (10, 13), id="one-slow-uplink")],
)
def test_all_to_all_on_rails_has_the_classes_that_one_counts_by_hand(slow, classes):
    # Even: flows within a leaf and between two; ports, spine links, links without traffic.
    net, routes = rails([RAILS.up(0, spine) for spine in slow])
    quotient = fb.compress(net, routes)
    assert (quotient.n_flow_classes, quotient.n_link_classes) == classes
    lifted = quotient.lift(quotient.solve())
    assert fb.certify(net, routes, lifted) <= 1e-12
    plain = fb.max_min_rates(net, routes, method="compiled")
    np.testing.assert_allclose(lifted.rates, plain.rates, rtol=1e-12)
    np.testing.assert_array_equal(lifted.bottleneck, plain.bottleneck)


def test_sprayed_all_to_all_on_a_fat_tree_has_three_classes_of_flows_and_of_links():
    net = fb.topologies.fat_tree(k=12)
    routes = fb.routing.spray(net, fb.traffic.all_to_all(net.hosts))
    assert routes.n_flows == 186_192
    quotient = fb.compress(net, routes)
    assert (quotient.n_flow_classes, quotient.n_link_classes) == (3, 3)
    lifted = quotient.lift(quotient.solve())
    assert fb.certify(net, routes, lifted) <= 1e-9
    # 431 flows leave every port, and nothing above is slower.
    np.testing.assert_allclose(lifted.rates, net.capacity[0] / 431, rtol=1e-12)


def test_merged_links_of_unequal_capacity_fill_at_the_smallest():
    # Links 0 to 2 carry one bundle, links 3 to 5 another; the smallest of each is 3.
    routes = fb.Routes.from_bundles(
        [0, 1, 2, 3], [0, 0, 1, 1], 1.0, [0, 0, 0, 1, 1, 1], [0, 1, 2, 3, 4, 5], 1 / 3,
        n_flows=4, n_bundles=2, n_links=6,
    )  # fmt: skip
    net = fb.Network([5.0, 3.0, 4.0, 3.0, 6.0, 7.0])
    quotient = fb.compress(net, routes)
    assert (quotient.n_flow_classes, quotient.n_link_classes) == (1, 1)
    lifted = quotient.lift(quotient.solve())
    np.testing.assert_allclose(lifted.rates, 4.5, rtol=1e-12)
    np.testing.assert_array_equal(lifted.bottleneck, [1, 1, 3, 3])
    np.testing.assert_array_equal(lifted.saturated, [False, True, False, True, False, False])
    np.testing.assert_array_equal(quotient.link_gradient([4.0]), [0, 2.0, 0, 2.0, 0, 0])


@given(st.permutations(range(12)), st.permutations(range(7)))
def test_order_of_flows_and_links_is_irrelevant(flows, links):
    paths = np.array([[a, b] for a in range(4) for b in (4, 5, 6)])
    capacity = np.r_[np.full(4, 2.0), np.full(3, 3.0)]
    moved = np.argsort(links)[paths[list(flows)]]
    routes = fb.Routes.from_paths(moved.tolist(), n_links=7)
    net = fb.Network(capacity[list(links)])
    quotient = fb.compress(net, routes)
    assert (quotient.n_flow_classes, quotient.n_link_classes) == (1, 2)
    np.testing.assert_allclose(quotient.lift(quotient.solve()).rates, 2 / 3, rtol=1e-12)


def test_no_flow_and_no_link_are_legal():
    quotient = fb.compress(fb.Network([1.0, 2.0]), fb.Routes.from_paths([], n_links=2))
    assert (quotient.n_flow_classes, quotient.n_link_classes) == (0, 1)
    assert quotient.lift(quotient.solve()).rates.shape == (0,)
    routes = fb.Routes.from_paths([[], []], n_links=0, caps=2.5)
    solution = fb.max_min_rates(fb.Network(np.zeros(0)), routes, method="quotient")
    np.testing.assert_array_equal(solution.rates, [2.5, 2.5])
    np.testing.assert_array_equal(solution.bottleneck, [-1, -1])


def test_bundles_that_lead_nowhere_do_not_matter():
    routes = fb.Routes.from_bundles(
        [0, 1], [0, 0], 1.0, [0], [0], 0.0, n_flows=2, n_bundles=1, n_links=1, caps=3.0
    )
    solution = fb.max_min_rates(fb.Network([1.0]), routes, method="quotient")
    np.testing.assert_array_equal(solution.rates, [3.0, 3.0])


def test_padding_and_device_arrays_make_no_difference():
    net, routes = star(n=4)
    placed = fb.place(net, routes, pad_hops=32)
    quotient = fb.compress(*placed)
    assert (quotient.n_flow_classes, quotient.n_link_classes) == (1, 2)
    np.testing.assert_allclose(fb.max_min_rates(*placed, method="quotient").rates, 1.5)


def test_float32_capacity_gives_float32_rates():
    net, routes = rails(dtype=np.float32)
    solution = fb.max_min_rates(net, routes, method="quotient")
    assert solution.rates.dtype == jnp.float32
    assert fb.certify(net, routes, solution) < 5e-6


def test_a_failed_link_counts_as_capacity_zero():
    net, routes = star(n=4)
    net = net.with_alive(np.array([True, True, False, False, True]))
    quotient = fb.compress(net, routes)
    np.testing.assert_array_equal(quotient.flow_class, [0, 1, 1, 0])
    np.testing.assert_allclose(quotient.lift(quotient.solve()).rates, [3.0, 0.0, 0.0, 3.0])


def test_an_unbounded_flow_is_a_code_and_an_error():
    routes = fb.Routes.from_paths([[0], [0], [], []], n_links=1)
    net = fb.Network([4.0])
    solution = fb.max_min_rates(net, routes, method="quotient", throw=False)
    assert bool(solution.result == fb.RESULTS.unbounded)
    np.testing.assert_allclose(solution.rates, [2.0, 2.0, np.inf, np.inf])
    with pytest.raises(fb.UnsolvedError, match="crosses no link and has no cap"):
        fb.max_min_rates(net, routes, method="quotient")
    np.testing.assert_array_equal(fb.compress(net, routes).solve_many([[4.0]]), [[2.0, np.inf]])


def test_other_capacities_that_keep_the_classes_reuse_them():
    net, routes = rails()
    quotient = fb.compress(net, routes)
    twice = net.with_capacity(np.asarray(net.capacity) * 2)
    again = quotient.refine(twice)
    assert again.flow_class is quotient.flow_class
    np.testing.assert_allclose(again.solve().rates, 2 * quotient.solve().rates)
    np.testing.assert_allclose(quotient.solve(twice).rates, 2 * quotient.solve().rates)


def test_a_slow_link_splits_classes_and_the_first_quotient_stays():
    net, routes = rails()
    slow, _ = rails([RAILS.up(0, 3)])
    quotient = fb.compress(net, routes)
    finer = quotient.refine(slow)
    assert (finer.n_flow_classes, finer.n_link_classes) == (10, 13)
    assert fb.certify(slow, routes, finer.lift(finer.solve())) <= 1e-12
    assert fb.compress(net, routes).flow_class is quotient.flow_class
    for leaf in range(2 * _symmetry.KEPT):
        quotient.refine(rails([RAILS.up(leaf, 0)])[0])
    assert len(routes.plans["symmetry"]) == _symmetry.KEPT
    assert fb.compress(net, routes).flow_class is quotient.flow_class


def test_a_network_that_splits_classes_is_named_with_the_remedy():
    net, routes = rails()
    quotient = fb.compress(net, routes)
    with pytest.raises(fb.ModelError, match=r"within 1 of 3 link classes.*`quotient.refine"):
        quotient.solve(rails([RAILS.up(0, 3)])[0])


def test_any_link_of_a_class_stands_for_all_of_them():
    net, routes = rails()
    quotient = fb.compress(net, routes)
    np.testing.assert_array_equal(quotient.link_class[quotient.first_link], [0, 1, 2])
    np.testing.assert_array_equal(quotient.flow_class[quotient.first_flow], [0, 1])
    for first in quotient.first_link:
        others = np.flatnonzero(quotient.link_class == quotient.link_class[first])
        after = []
        for link in (first, others[len(others) // 2], others[-1]):
            failed = net.with_alive(np.arange(net.n_links) != link)
            after.append(np.sort(quotient.refine(failed).solve().rates))
        np.testing.assert_allclose(after[1:], after[:1] * 2, rtol=1e-12)


def test_class_derivatives_are_those_along_equal_changes_of_all_links_of_a_class():
    net, routes = rails([RAILS.up(0, 3)])
    quotient = fb.compress(net, routes)
    rng = np.random.default_rng(0)
    rates = lambda solution: solution.rates
    for _ in range(3):
        along = rng.normal(size=quotient.n_link_classes)
        _, whole = fb.one_sided(rates, net, routes, {"capacity": along[quotient.link_class]})
        _, classes = fb.one_sided(rates, quotient.network, quotient.routes, {"capacity": along})
        np.testing.assert_allclose(quotient.to_flows(classes), whole, rtol=1e-10, atol=1e-12)


def test_class_gradient_matches_central_difference_and_lifts_to_links():
    net, routes = star(n=3, hub=6.0)
    quotient = fb.compress(net, routes)
    total = lambda c: jnp.sum(jnp.sin(quotient.to_flows(quotient.solve(c, throw=False).rates)))
    at, h = jnp.array([6.0, 5.0]), 1e-6
    gradient = jax.grad(total)(at)
    # Far from the tie at 15, so that only the hub counts: 3 flows move by a third each.
    np.testing.assert_allclose(gradient, [np.cos(2.0), 0.0], rtol=1e-12)
    step = jnp.array([h, 0.0])
    np.testing.assert_allclose(gradient[0], (total(at + step) - total(at - step)) / (2 * h), 1e-6)
    whole = lambda c: jnp.sum(jnp.sin(fb.max_min_rates(net.with_capacity(c), routes).rates))
    lifted = quotient.link_gradient(gradient)
    np.testing.assert_allclose(lifted, jax.grad(whole)(jnp.asarray(net.capacity)), rtol=1e-12)


def test_a_gradient_per_link_says_the_same_along_class_directions():
    quotient = fb.compress(*rails([RAILS.up(0, 3)]))
    rng = np.random.default_rng(1)
    gradient, along = rng.normal(size=(2, quotient.n_link_classes))
    lifted = quotient.link_gradient(gradient)
    np.testing.assert_allclose(lifted @ along[quotient.link_class], gradient @ along, rtol=1e-12)


def many(quotient, count=40):
    rng = np.random.default_rng(2)
    return rng.uniform(0.5, 2.0, (count, quotient.n_link_classes)) * quotient.network.capacity


def test_a_batch_equals_a_loop_and_vmap():
    quotient = fb.compress(*rails([RAILS.up(0, 3)]))
    capacity = many(quotient, 600)  # more than one piece
    capacity[7, 2] = 0.0
    loop = np.stack([quotient.solve(c).rates for c in capacity[:40]])
    got = quotient.solve_many(capacity)
    np.testing.assert_allclose(got[:40], loop, rtol=1e-12)
    np.testing.assert_array_equal(got[40:], quotient.solve_many(capacity[40:]))
    each = jax.vmap(lambda c: quotient.solve(c, throw=False).rates)
    np.testing.assert_allclose(each(jnp.asarray(capacity[:40])), loop, rtol=1e-12)


def test_a_batch_minds_weights_caps_and_splits():
    routes = fb.Routes.from_bundles(
        [0, 1, 2, 3, 0, 1], [0, 0, 1, 1, 2, 2], [1.0, 1.0, 0.5, 0.5, 2.0, 2.0],
        [0, 0, 1, 2], [0, 1, 1, 2], [0.25, 0.75, 1.0, 1.0], n_flows=4, n_bundles=3, n_links=3,
        weights=[1.0, 1.0, 3.0, 3.0], caps=[np.inf, np.inf, 1.5, 1.5],
    )  # fmt: skip
    quotient = fb.compress(fb.Network([2.0, 3.0, 4.0]), routes)
    capacity = many(quotient)
    loop = np.stack([quotient.solve(c).rates for c in capacity])
    np.testing.assert_allclose(quotient.solve_many(capacity), loop, rtol=1e-12)


def test_new_capacities_reuse_the_program():
    quotient = fb.compress(*star())
    rates = lambda c: quotient.solve(c, throw=False).rates
    once = eqx.filter_jit(eqx.debug.assert_max_traces(rates, max_traces=1))
    np.testing.assert_allclose(once(jnp.array([6.0, 5.0])), [2.0])
    np.testing.assert_allclose(once(jnp.array([6.0, 1.0])), [1.0])
    batch = eqx.filter_jit(eqx.debug.assert_max_traces(quotient.solve_many, max_traces=1))
    np.testing.assert_allclose(batch(jnp.array([[6.0, 5.0], [9.0, 5.0]])), [[2.0], [3.0]])
    np.testing.assert_allclose(batch(jnp.array([[6.0, 1.0], [9.0, 2.0]])), [[1.0], [2.0]])


def test_what_looks_at_values_is_refused_by_name_under_tracing():
    net, routes = star()
    quotient = fb.compress(net, routes)
    solve = lambda c: fb.max_min_rates(net.with_capacity(c), routes, method="quotient").rates
    compress = lambda c: fb.compress(net.with_capacity(c), routes).n_flow_classes
    lift = lambda c: quotient.lift(quotient.solve(c, throw=False)).rates
    capacity = jnp.asarray(net.capacity)
    with pytest.raises(NotImplementedError, match=r'method="quotient".*`quotient.solve'):
        jax.jit(solve)(capacity)
    with pytest.raises(NotImplementedError, match=r"`compress` looks at values"):
        jax.jit(compress)(capacity)
    with pytest.raises(NotImplementedError, match=r"`quotient.solve\(capacity\)`"):
        jax.jit(lambda c: quotient.solve(net.with_capacity(c)).rates)(capacity)
    with pytest.raises(NotImplementedError, match=r"`quotient.to_flows"):
        jax.jit(lift)(jnp.array([6.0, 5.0]))


def test_paths_placed_by_hash_are_given_up_with_the_ratio():
    net, routes = rails(hashed=True)
    with pytest.raises(
        fb.InfeasibleError, match=r"flows per class, where `least=2`.*method=\"auto"
    ):
        fb.compress(net, routes)
    assert fb.compress(net, routes, least=1).n_flow_classes > routes.n_flows / 2
    with pytest.raises(fb.InfeasibleError, match=r"flows per class, where `least=2`"):
        fb.max_min_rates(net, routes, method="quotient")


def test_long_chains_are_given_up_after_so_much_work(monkeypatch):
    monkeypatch.setattr(_symmetry, "MOST_WORK", 100_000)
    n = 2000
    routes = fb.Routes.from_paths([[i, (i + 1) % n] for i in range(n)], n_links=n)
    even, slow = np.ones(n), np.r_[0.5, np.ones(n - 1)]
    assert fb.compress(fb.Network(even), routes).n_flow_classes == 1
    with pytest.raises(fb.InfeasibleError, match="Long chains of links"):
        fb.compress(fb.Network(slow), routes)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda q: q.solve([1.0]), r"`Quotient.solve\(capacity\)` .* each of 2 link classes"),
        (lambda q: q.solve([-1.0, 1.0]), r"`Quotient.solve\(capacity\)` .* negative.*'class 0'"),
        (lambda q: q.solve(np.array([1.0, -1.0])), r"`Quotient.solve\(capacity\)` .*'class 1'"),
        (lambda q: q.solve_many([1.0, 2.0]), r"`solve_many\(capacity\)`"),
        (lambda q: q.solve_many([[1.0, 2.0], [1.0]]), r"rows '1' differ in length"),
        (lambda q: q.solve_many(np.ones((3, 4))), r"has shape \(3, 4\)"),
        (lambda q: q.solve_many([[1.0, np.nan]]), r"'class 1 of problem 0'"),
        (lambda q: q.link_gradient([1.0]), r"`link_gradient\(gradient\)`"),
        (lambda q: q.lift(fb.max_min_rates(*star())), r"`lift\(solution\)`"),
        (lambda q: q.solve(fb.Network([1.0])), r"network with 1 links"),
        (lambda q: fb.compress(*star(), least=0.5), r"`compress\(least=0.5\)`"),
        (lambda q: fb.compress(*star(), least=np.nan), r"`compress\(least=nan\)`"),
        (lambda q: q.to_flows([1.0, 2.0]), r"`to_flows\(values\)` .* 1 flow classes.*\(2,\)"),
        (lambda q: q.to_flows(np.ones((1, 3))), r"`to_flows\(values\)` .*\(1, 3\)"),
        (lambda q: q.to_flows(np.array(1.0)), r"`to_flows\(values\)` .*\(\)"),
        (lambda q: fb.compress(*star(), sizes=[1.0]), r"`compress\(sizes=...\)` has shape"),
        (lambda q: fb.compress(*star(), sizes=[1.0, -1.0, 1.0]), r"`sizes=...` needs a size"),
    ],
    ids=[
        "too few capacities",
        "a negative capacity",
        "a negative capacity in an array",
        "no batch",
        "uneven batch",
        "a wide batch",
        "NaN in a batch",
        "a short gradient",
        "another solution",
        "another network",
        "least",
        "least not a number",
        "too many flow classes",
        "too many flow classes in a batch",
        "one value for all flow classes",
        "too few sizes",
        "a negative size",
    ],
)
def test_wrong_input_is_named(call, text):
    with pytest.raises(fb.ModelError, match=text):
        call(fb.compress(*star()))


def test_too_many_classes_for_a_batch_are_refused_with_the_count(monkeypatch):
    monkeypatch.setattr(_quotient_batch, "MOST_DENSE", 1)
    with pytest.raises(fb.InfeasibleError, match="1 flow and 2 link classes"):
        fb.compress(*star()).solve_many([[1.0, 2.0]])


@pytest.mark.parametrize("least", ["3", True, None])
def test_a_least_that_is_no_number_is_named(least):
    with jaxtyping_off(), pytest.raises(fb.ModelError, match=r"`compress\(least=.*a number"):
        fb.compress(*star(), least=least)


@contextlib.contextmanager
def jaxtyping_off():
    """Leave types unchecked, as they are outside of tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("least", [1, 2])
def test_classes_do_not_depend_on_what_was_compressed_before(least):
    net, routes = rails()
    weights = np.random.default_rng(3).uniform(1.0, 2.0, routes.n_flows)
    fb.compress(net, routes, weights=weights, least=1)
    fb.compress(rails([RAILS.up(0, 3)])[0], routes)
    quotient = fb.compress(net, routes, least=least)
    fresh = fb.compress(*rails())
    assert (quotient.n_flow_classes, quotient.n_link_classes) == (2, 3)
    np.testing.assert_array_equal(quotient.flow_class, fresh.flow_class)
    np.testing.assert_array_equal(quotient.link_class, fresh.link_class)
    assert fb.max_min_rates(net, routes, method="quotient").method.startswith("quotient (2 flow")


@given(st.lists(st.integers(0, 3), min_size=2, max_size=5))
def test_any_order_of_calls_finds_the_same_classes(order):
    sizes = np.array([1.0, 1.0, 2.0, 2.0, np.nan, np.nan])
    caps = np.r_[0.0, -0.0, np.full(4, 9.0)]
    given = [{}, {"weights": np.r_[2.0, np.ones(5)]}, {"sizes": sizes}, {"caps": caps}]
    net, routes = star(n=6)
    for i in order:
        got = fb.compress(net, routes, least=1, **given[i])
        want = fb.compress(*star(n=6), least=1, **given[i])
        np.testing.assert_array_equal(got.flow_class, want.flow_class)
        np.testing.assert_array_equal(got.link_class, want.link_class)
    assert fb.compress(net, routes, least=1, caps=caps).n_flow_classes == 2


def test_a_finer_start_with_the_same_classes_reuses_them():
    # Weights that only say what capacities said already.
    net, routes = star(n=4)
    net = net.with_capacity(np.array([6.0, 5.0, 5.0, 1.0, 1.0]))
    first = fb.compress(net, routes)
    again = fb.compress(net, routes, weights=[1.0, 1.0, 2.0, 2.0])
    assert again.flow_class is first.flow_class
    even = fb.compress(net.with_capacity(np.array([6.0, 5.0, 5.0, 5.0, 5.0])), routes)
    assert even.n_flow_classes == 1


def test_refinement_is_what_compress_returns_there_coarser_too():
    net, routes = rails()
    slow = fb.compress(rails([RAILS.up(0, 3)])[0], routes)
    assert slow.n_flow_classes == 10
    assert slow.refine(net).n_flow_classes == 2


@pytest.mark.parametrize("wrong", [np.nan, -1.0])
def test_a_traced_capacity_out_of_range_gives_nan_for_its_problem_alone(wrong):
    quotient = fb.compress(*rails([RAILS.up(0, 3)]))
    capacity = many(quotient, 300)  # more than one piece
    want = np.array(quotient.solve_many(capacity))
    capacity[5, 2] = capacity[290, 0] = wrong
    want[[5, 290]] = np.nan
    got = jax.jit(quotient.solve_many)(capacity)
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_batch_without_flows_has_no_rates():
    quotient = fb.compress(fb.Network([1.0, 2.0]), fb.Routes.from_paths([], n_links=2))
    assert quotient.solve_many([[1.0], [2.0]]).shape == (2, 0)


def test_products_of_a_batch_keep_all_bits_on_accelerators():
    quotient = fb.compress(*star())
    text = str(jax.make_jaxpr(quotient.solve_many)(jnp.ones((3, 2))))
    assert text.count("dot_general") == 2
    assert text.count("Precision.HIGHEST") >= 2


@pytest.mark.parametrize(
    "name", ["flow_class", "link_class", "first_flow", "first_link", "flow_count", "link_count"]
)
def test_arrays_that_quotients_share_are_read_only(name):
    for quotient in (fb.compress(*star()), fb.compress(*merged())):
        with pytest.raises(ValueError, match="read-only"):
            getattr(quotient, name)[0] = 7


def test_values_of_a_batch_go_to_flows():
    quotient = fb.compress(*rails())
    rates = quotient.solve_many(many(quotient, 5))
    for values in (rates, np.asarray(rates)):
        spread = quotient.to_flows(values)
        assert spread.shape == (5, quotient.flow_class.size)
        np.testing.assert_array_equal(spread[3], quotient.to_flows(values[3]))
    np.testing.assert_array_equal(fb.compress(*star()).to_flows([2.0]), [2.0, 2.0, 2.0])


def merged(capacity=(5.0, 3.0, 4.0, 3.0, 6.0, 7.0)):
    """Return a network whose links 0 to 2 always fill together, and 3 to 5 too."""
    routes = fb.Routes.from_bundles(
        [0, 1, 2, 3], [0, 0, 1, 1], 1.0, [0, 0, 0, 1, 1, 1], [0, 1, 2, 3, 4, 5], 1 / 3,
        n_flows=4, n_bundles=2, n_links=6,
    )  # fmt: skip
    return fb.Network(capacity), routes


@pytest.mark.parametrize("give", [True, False])
def test_a_lifted_solution_is_that_of_the_network_that_was_solved(give):
    net, routes = merged()
    quotient = fb.compress(net, routes)
    other = net.with_capacity(np.array([2.0, 3.0, 4.0, 9.0, 2.0, 7.0]))
    lifted = quotient.lift(quotient.solve(other), other if give else None)
    plain = fb.max_min_rates(other, routes, method="compiled")
    np.testing.assert_allclose(lifted.rates, plain.rates, rtol=1e-12)
    np.testing.assert_array_equal(lifted.bottleneck, [0, 0, 4, 4])
    np.testing.assert_array_equal(lifted.bottleneck, plain.bottleneck)
    np.testing.assert_array_equal(lifted.saturated, plain.saturated)
    np.testing.assert_allclose(lifted.tie_margin, plain.tie_margin, rtol=1e-12)
    assert fb.certify(other, routes, lifted) <= 1e-12


def test_a_solution_of_other_capacities_than_the_network_is_refused():
    net, routes = merged()
    quotient = fb.compress(net, routes)
    twice = net.with_capacity(2 * np.asarray(net.capacity))
    with pytest.raises(fb.ModelError, match=r"`lift\(solution, network\)` got a solution of other"):
        quotient.lift(quotient.solve(twice), net)
    with pytest.raises(fb.ModelError, match=r"`lift\(solution\)` .* Give the network"):
        quotient.lift(quotient.solve([6.0]))
    with pytest.raises(fb.ModelError, match="network with 1 links"):
        quotient.lift(quotient.solve(), fb.Network([1.0]))
    np.testing.assert_array_equal(quotient.lift(quotient.solve([6.0]), twice).rates, 9.0)
    np.testing.assert_array_equal(quotient.lift(quotient.solve([3.0])).bottleneck, [1, 1, 3, 3])
