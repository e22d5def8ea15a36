"""What `alpha_fair_rates` and `anneal` promise, one test per promise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb
from fabric.solvers import _alpha_fair
from tests.golden.instances import instance

ALPHAS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
# One shape for every drawn problem, so the whole file compiles few programs.
L, F, B, H, P = 8, 10, 12, 40, 40
KEYS = ("capacity", "weights", "caps", "hop_use", "part_use", "alpha")


def drawn(seed, *, plain=False):
    """Return (values, network, routes): two levels with weights, caps and fractions, or none."""
    rng = np.random.default_rng(seed)
    width = 1 if plain else rng.integers(1, 4, B)
    bundles = [rng.choice(L, w, replace=False) for w in np.broadcast_to(width, B)]
    if plain:
        bundles = [[b % L] for b in range(B)]
    ways = [rng.choice(L if plain else B, rng.integers(1, 4), replace=False) for _ in range(F)]
    hop_flow = np.repeat(np.arange(F), [len(way) for way in ways])
    part_bundle = np.repeat(np.arange(B), [len(bundle) for bundle in bundles])
    uses = lambda n: np.ones(n) if plain else rng.uniform(0.3, 1.5, n)
    routes = fb.Routes.from_bundles(
        hop_flow, np.concatenate(ways), uses(len(hop_flow)),
        part_bundle, np.concatenate(bundles), uses(len(part_bundle)),
        n_flows=F, n_bundles=B, n_links=L, pad_hops=H, pad_parts=P,
        weights=1.0 if plain else rng.uniform(0.5, 2.0, F),
        caps=np.inf if plain else np.where(rng.random(F) < 0.3, rng.uniform(0.1, 0.5, F), np.inf),
    )  # fmt: skip
    net, routes = fb.place(fb.Network(rng.uniform(1.0, 3.0, L)), routes)
    values = {
        "capacity": net.capacity, "weights": routes.weight, "caps": routes.cap,
        "hop_use": routes.hop_use, "part_use": routes.part_use,
        "alpha": jnp.asarray(rng.choice([1.0, 3.0, 10.0])),
    }  # fmt: skip
    return values, net, routes


def rates(values, net, routes, tol=1e-13):
    """Return the rates as a function of everything that a derivative is taken in."""
    routes = fb.Routes(
        routes.hop_flow, routes.hop_bundle, values["hop_use"], routes.part_bundle,
        routes.part_link, values["part_use"], routes.weight, routes.cap, routes.flow_of,
        n_links=L, n_bundles=B, n_pairs=F,
    )  # fmt: skip
    return fb.alpha_fair_rates(
        net.with_capacity(values["capacity"]), routes, values["alpha"], weights=values["weights"],
        caps=values["caps"], tol=tol, throw=False,
    ).rates  # fmt: skip


def usage_matrix(routes):
    """Return (links, flows), the load on each link per unit rate of each flow."""
    links, use = np.zeros((L + 1, B + 1)), np.zeros((B + 1, F + 1))
    np.add.at(links, (routes.part_link, routes.part_bundle), np.asarray(routes.part_use))
    np.add.at(use, (routes.hop_bundle, routes.hop_flow), np.asarray(routes.hop_use))
    return (links @ use)[:L, :F]


def direction(values, seed):
    rng = np.random.default_rng([seed, 1])
    moved = lambda v: jnp.asarray(0.1 * rng.normal(size=v.shape) * (np.asarray(v) > 0))
    return {k: moved(v) for k, v in values.items()}


def along(values, tangents, h):
    return {k: v + h * tangents[k] for k, v in values.items()}


@jax.jit
def push(values, tangents, net, routes):
    return jax.jvp(lambda v: rates(v, net, routes), (values,), (tangents,))[1]


@jax.jit
def pull(values, cotangent, net, routes):
    return jax.vjp(lambda v: rates(v, net, routes), values)[1](cotangent)[0]


solve_drawn = jax.jit(rates)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_flow_over_n_links_gets_the_known_part_of_each(alpha):
    # n links of capacity c, one flow over all and one on each: c / (1 + n^(1/alpha)).
    n, c = 9, 6.0
    routes = fb.Routes.from_paths([list(range(n)), *([l] for l in range(n))], n_links=n)
    solution = fb.alpha_fair_rates(fb.Network(np.full(n, c)), routes, alpha, tol=1e-13)
    long = c / (1 + n ** (1 / alpha))
    np.testing.assert_allclose(solution.rates, [long, *[c - long] * n], rtol=1e-11)
    assert np.asarray(solution.priced).all()


def test_weights_share_one_link_in_proportion_and_caps_leave_the_rest():
    routes = fb.Routes.from_paths([[0]] * 3, n_links=1, weights=[1.0, 2.0, 1.0])
    caps = np.array([np.inf, np.inf, 1.0])
    for alpha in (1.0, 7.0):
        solution = fb.alpha_fair_rates(fb.Network([10.0]), routes, alpha, caps=caps, tol=1e-12)
        np.testing.assert_allclose(solution.rates, [3.0, 6.0, 1.0], rtol=1e-11)


def test_a_sprayed_flow_pays_for_its_fractions_only():
    # Two links of 4 at half each are one link of 8, which a third flow shares with nobody.
    split = fb.Routes.from_bundles(
        [0, 1], [0, 0], 1.0, [0, 0], [0, 1], 0.5, n_flows=2, n_bundles=1, n_links=2
    )
    for alpha in (1.0, 16.0):
        solution = fb.alpha_fair_rates(fb.Network([4.0, 4.0]), split, alpha, tol=1e-12)
        np.testing.assert_allclose(solution.rates, [4.0, 4.0], rtol=1e-11)
        np.testing.assert_allclose(solution.share, 4.0, rtol=1e-11)


@pytest.mark.parametrize("seed", range(12))
def test_rates_and_shares_satisfy_the_conditions_of_the_optimum(seed):
    _, net, routes = drawn(seed)
    for alpha in (1.0, 4.0, 32.0):
        solution = fb.alpha_fair_rates(net, routes, alpha, tol=1e-12)
        use, rate = usage_matrix(routes), np.asarray(solution.rates)
        room = np.asarray(net.capacity) - use @ rate
        price = np.asarray(solution.share) ** -alpha
        paid = use.T @ price
        level = rate / np.asarray(routes.weight)
        capped = rate >= np.asarray(routes.cap)
        # Primal, then stationarity and complementarity; residuals of 1e-12 are relative.
        assert np.all(room >= -1e-11 * np.asarray(net.capacity))
        np.testing.assert_allclose(level[~capped] ** -alpha, paid[~capped], rtol=1e-9)
        assert np.all(level[capped] ** -alpha >= paid[capped] * (1 - 1e-9))
        crossed = use.max(1) > 0
        assert np.all((price * room)[crossed] <= 1e-9 * (use @ (rate * level**-alpha))[crossed])


@pytest.mark.parametrize("seed", range(20))
def test_alpha_times_the_distance_from_max_min_rates_is_at_most_one(seed):
    _, net, routes = drawn(seed, plain=True)
    exact = np.asarray(fb.max_min_rates(net, routes).rates)
    for solution, alpha in zip(fb.anneal(net, routes, ALPHAS), ALPHAS, strict=True):
        distance = np.abs(np.log(np.asarray(solution.rates) / exact)).max()
        assert alpha * distance <= 1.0


@pytest.mark.parametrize("name", ["ls-1k", "ls-1k-het", "ft-1k", "ft-1k-het", "chain-1k"])
def test_golden_instances_converge_at_every_alpha(name):
    made = instance(name)
    net = fb.Network(made["capacity"])
    routes = fb.Routes.from_csr(made["flow_ptr"], made["flow_links"], n_links=net.n_links)
    exact = np.asarray(fb.max_min_rates(net, routes, method="compiled").rates)
    for solution, alpha in zip(fb.anneal(net, routes), ALPHAS, strict=True):
        assert float(solution.residual) <= 1e-9
        assert alpha * np.abs(np.log(np.asarray(solution.rates) / exact)).max() <= 1.0
        load = np.zeros(net.n_links)
        hops = np.diff(made["flow_ptr"])
        np.add.at(load, made["flow_links"], np.repeat(np.asarray(solution.rates), hops))
        assert np.all(load <= made["capacity"] * (1 + 2e-9))


def test_flow_order_is_irrelevant_and_rates_scale_with_capacity():
    rng = np.random.default_rng(3)
    paths = [rng.choice(L, 2, replace=False).tolist() for _ in range(F)]
    capacity, order = rng.uniform(1.0, 3.0, L), rng.permutation(F)
    solve = lambda c, paths: fb.alpha_fair_rates(
        fb.Network(c), fb.Routes.from_paths(paths, n_links=L), 4.0, tol=1e-13
    ).rates  # fmt: skip
    base = np.asarray(solve(capacity, paths))
    np.testing.assert_allclose(solve(capacity, [paths[i] for i in order]), base[order], rtol=1e-11)
    np.testing.assert_allclose(solve(5e10 * capacity, paths), 5e10 * base, rtol=1e-11)


@pytest.mark.parametrize("seed", range(8))
def test_forward_derivatives_equal_central_differences(seed):
    values, net, routes = drawn(seed)
    tangents, h = direction(values, seed), 1e-4
    got = push(values, tangents, net, routes)
    ahead, behind = (solve_drawn(along(values, tangents, s * h), net, routes) for s in (1, -1))
    # Truncation h^2 times third derivatives of some hundreds at alpha 10.
    np.testing.assert_allclose(got, (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_reverse_equals_forward_by_the_dot_product(seed):
    values, net, routes = drawn(seed)
    tangents = direction(values, seed)
    cotangent = jnp.asarray(np.random.default_rng(seed).normal(size=F))
    got = push(values, tangents, net, routes)
    back = pull(values, cotangent, net, routes)
    there, here = jnp.vdot(cotangent, got), sum(jnp.vdot(back[k], tangents[k]) for k in KEYS)
    size = sum(float(jnp.abs(back[k] * tangents[k]).sum()) for k in KEYS)
    assert abs(float(there - here)) <= 1e-12 * max(size, 1.0)


def test_second_derivatives_equal_differences_of_gradients():
    values, net, routes = drawn(2)
    total = lambda c: jnp.sum(jnp.sin(rates(values | {"capacity": c}, net, routes)))
    gradient, c, h = jax.jit(jax.grad(total)), values["capacity"], 1e-5
    got = jax.jit(jax.hessian(total))(c)
    want = [(gradient(c + h * e) - gradient(c - h * e)) / (2 * h) for e in jnp.eye(L)]
    np.testing.assert_allclose(got, np.stack(want), rtol=1e-6, atol=1e-7)


def test_gradients_on_tied_links_share_what_either_would_say():
    # Two equal links under the same flow: more of one alone buys nothing, of both everything.
    routes = fb.Routes.from_paths([[0, 1]], n_links=2)
    rate = lambda c: fb.alpha_fair_rates(fb.Network(c), routes, 4.0, throw=False).rates[0]
    np.testing.assert_allclose(jax.grad(rate)(jnp.array([3.0, 3.0])), [0.5, 0.5], rtol=1e-9)


def test_gradients_times_capacities_add_up_to_the_rates_on_a_golden_instance():
    # Rates are homogeneous of degree one in capacities, so Euler's identity holds.
    made = instance("ft-1k-het")
    capacity = jnp.asarray(made["capacity"])
    routes = fb.Routes.from_csr(made["flow_ptr"], made["flow_links"], n_links=len(capacity))
    total = lambda c: fb.alpha_fair_rates(fb.Network(c), routes, 8.0, throw=False).rates.sum()
    gradient = jax.jit(jax.grad(total))(capacity)
    np.testing.assert_allclose(jnp.vdot(gradient, capacity), total(capacity), rtol=1e-10)


def test_new_values_and_alphas_reuse_the_program():
    once = eqx.filter_jit(eqx.debug.assert_max_traces(rates, max_traces=1))
    for seed in range(3):
        values, net, routes = drawn(seed)
        got = once(values, net, routes)
        np.testing.assert_allclose(got, solve_drawn(values, net, routes), rtol=1e-12)


def test_without_throw_the_program_holds_no_host_callback():
    values, net, routes = drawn(0)
    text = jax.jit(rates).trace(values, net, routes).lower(lowering_platforms=("cuda",)).as_text()
    assert "while" in text
    assert "callback" not in text


def test_vmap_equals_a_loop_with_and_without_grad():
    values, net, routes = drawn(1)
    total = lambda a: jnp.sum(rates(values | {"alpha": a}, net, routes) ** 2)
    alphas = jnp.array([1.0, 2.0, 8.0])
    for function in (total, jax.grad(total)):
        loop = jnp.stack([jax.jit(function)(a) for a in alphas])
        # Each stops on its own in the loop; together they differ by what `tol` leaves open.
        np.testing.assert_allclose(jax.jit(jax.vmap(function))(alphas), loop, rtol=1e-9)


def test_anneal_starts_each_alpha_where_the_last_one_ended():
    _, net, routes = drawn(5)
    cold = [fb.alpha_fair_rates(net, routes, alpha) for alpha in ALPHAS]
    warm = fb.anneal(net, routes)
    for one, other in zip(cold, warm, strict=True):
        np.testing.assert_allclose(one.rates, other.rates, rtol=1e-6)
    assert sum(int(s.steps) for s in warm) < sum(int(s.steps) for s in cold)
    again = fb.alpha_fair_rates(net, routes, ALPHAS[-1], start=warm[-1])
    assert int(again.steps) <= 2


def test_float32_capacity_gives_float32_rates_near_those_of_float64():
    routes = fb.Routes.from_paths([[0, 1], [0], [1, 2], [2]], n_links=3)
    capacity = np.array([5e10, 2.5e10, 4e10])
    wide = fb.alpha_fair_rates(fb.Network(capacity), routes, 8.0)
    narrow = fb.alpha_fair_rates(fb.Network(capacity.astype(np.float32)), routes, 8.0)
    assert narrow.rates.dtype == jnp.float32
    np.testing.assert_allclose(narrow.rates, wide.rates, rtol=1e-4)


def test_flows_over_a_failed_link_or_of_cap_zero_have_rate_zero_and_no_gradient():
    routes = fb.Routes.from_paths(
        [[0], [0, 1], [1], [1]], n_links=2, caps=[np.inf, np.inf, np.inf, 0.0]
    )
    net = fb.Network([5.0, 5.0]).with_alive(np.array([True, False]))
    np.testing.assert_allclose(fb.alpha_fair_rates(net, routes, 2.0).rates, [5.0, 0.0, 0.0, 0.0])
    total = lambda c: fb.alpha_fair_rates(net.with_capacity(c), routes, 2.0).rates.sum()
    np.testing.assert_allclose(jax.grad(total)(jnp.array([5.0, 5.0])), [1.0, 0.0], atol=1e-12)


def test_a_flow_without_links_gets_its_cap_and_without_one_is_a_code():
    routes = fb.Routes.from_paths([[0], []], n_links=1, caps=[np.inf, 2.5])
    net = fb.Network([4.0])
    np.testing.assert_allclose(fb.alpha_fair_rates(net, routes, 3.0).rates, [4.0, 2.5])
    free = np.array([np.inf, np.inf])
    solution = fb.alpha_fair_rates(net, routes, 3.0, caps=free, throw=False)
    assert bool(solution.result == fb.FAIR_RESULTS.unbounded)
    with pytest.raises(fb.UnsolvedError, match=r"crosses no link and has no cap"):
        fb.alpha_fair_rates(net, routes, 3.0, caps=free)


def test_stopping_early_is_a_code_and_an_error():
    _, net, routes = drawn(0)
    solution = fb.alpha_fair_rates(net, routes, 4.0, max_steps=3, throw=False)
    assert bool(solution.result == fb.FAIR_RESULTS.max_steps_reached)
    assert int(solution.steps) == 3
    with pytest.raises(fb.UnsolvedError, match=r"Raise `max_steps` or `tol`"):
        fb.alpha_fair_rates(net, routes, 4.0, max_steps=3)
    solve = lambda c: fb.alpha_fair_rates(net.with_capacity(c), routes, 4.0, max_steps=3).rates
    with pytest.raises(Exception, match=r"Raise `max_steps` or `tol`"):
        jax.block_until_ready(jax.jit(solve)(net.capacity))


def test_bad_values_in_a_trace_are_a_code():
    _, net, routes = drawn(0)
    code = jax.jit(
        lambda c, a: (
            fb.alpha_fair_rates(net.with_capacity(c), routes, a, throw=False).result
            == fb.FAIR_RESULTS.invalid
        )
    )
    assert bool(code(net.capacity.at[0].set(-1.0), 2.0))
    assert bool(code(net.capacity, -2.0))
    assert not bool(code(net.capacity, 2.0))


def test_every_fault_is_named_at_once():
    routes = fb.Routes.from_paths([[0]], n_links=1)
    with pytest.raises(fb.ModelError) as caught:
        fb.alpha_fair_rates(fb.Network([4.0]), routes, -1.0, weights=[0.0], tol=0.0)
    for part in ("alpha=...", "tol=...", "weight"):
        assert part in str(caught.value)
    with pytest.raises(fb.ModelError, match=r"`alpha_fair_rates` was given a network with 2 links"):
        fb.alpha_fair_rates(fb.Network([4.0, 1.0]), routes, 1.0)
    with pytest.raises(fb.ModelError, match=r"at least one alpha"):
        fb.anneal(fb.Network([4.0]), routes, [])


def test_alphas_may_be_any_iterable_and_one_number_is_refused():
    routes = fb.Routes.from_paths([[0], [0]], n_links=1)
    net = fb.Network([4.0])
    assert len(fb.anneal(net, routes, (a for a in (1.0, 2.0)))) == 2
    assert len(fb.anneal(net, routes, np.array([1.0, 2.0, 4.0]))) == 3
    wrong = {"4.0": 4.0, "12": "12", "none": (a for a in ()), "2.0": jnp.array(2.0)}
    for got, alphas in wrong.items():
        with pytest.raises(fb.ModelError, match=rf"at least one alpha in a sequence.*{got}"):
            # Under test the types of public arguments are checked, and not all of these get past.
            _alpha_fair._several(alphas)


def test_a_start_is_a_solution_of_as_many_links_and_flows():
    routes = fb.Routes.from_paths([[0], [0, 1]], n_links=2)
    net = fb.Network([4.0, 1.0])
    for other in (fb.Routes.from_paths([[0], [0]], 1), fb.Routes.from_paths([[0]], 2)):
        start = fb.alpha_fair_rates(fb.Network(np.ones(other.n_links)), other, 1.0)
        with pytest.raises(fb.ModelError, match=r"solution of another problem.* 2 links and 2 fl"):
            fb.alpha_fair_rates(net, routes, 1.0, start=start)
    (fault,) = _alpha_fair._start_faults(fb.max_min_rates(net, routes), routes)
    assert "needs an `AlphaFairSolution`" in fault
    assert fault.endswith("'RateSolution'.")
