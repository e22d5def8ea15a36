"""What `derivative="select"` promises: the true derivative away from ties, one side of it at ties.

Problems are drawn at one padded shape with routes as arguments, so that each test compiles once.
"""

import functools
import itertools
import json
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb

L, F, B, H, P = 8, 10, 12, 60, 64
KEYS = ("capacity", "weights", "caps", "hop_use", "part_use")


def rates(values, net, routes, method="rounds", derivative="select"):
    """Return the rates as a function of everything that a derivative is taken in."""
    routes = with_uses(routes, values["hop_use"], values["part_use"])
    return fb.max_min_rates(
        net.with_capacity(values["capacity"]), routes, weights=values["weights"],
        caps=values["caps"], method=method, derivative=derivative, throw=False,
    ).rates  # fmt: skip


def with_uses(routes, hop_use, part_use):
    return fb.Routes(
        routes.hop_flow, routes.hop_bundle, hop_use, routes.part_bundle, routes.part_link,
        part_use, routes.weight, routes.cap, routes.flow_of,
        n_links=routes.n_links, n_bundles=routes.n_bundles, n_pairs=routes.n_pairs,
    )  # fmt: skip


def drawn(seed, *, ties=False):
    """Return (values, network, routes), two levels, with weights, caps and fractions."""
    rng = np.random.Generator(np.random.PCG64(seed))
    # With ties: few values, so that several links fill at the same level.
    few = lambda low, high, n: rng.choice([low, 2.0 * low], n, p=[0.8, 0.2])
    number = few if ties else rng.uniform
    bundles = [rng.choice(L, rng.integers(1, 4), replace=False) for _ in range(B)]
    hops = [rng.choice(B, rng.integers(1, 4), replace=False) for _ in range(F)]
    part_bundle, part_link = (
        np.repeat(np.arange(B), [len(b) for b in bundles]),
        np.concatenate(bundles),
    )
    hop_flow, hop_bundle = np.repeat(np.arange(F), [len(h) for h in hops]), np.concatenate(hops)
    net = fb.Network(number(1, 5, L))
    routes = fb.Routes.from_bundles(
        hop_flow, hop_bundle, number(1, 3, len(hop_flow)),
        part_bundle, part_link, number(1, 3, len(part_link)) / 2,
        n_flows=F, n_bundles=B, n_links=L, weights=number(1, 4, F),
        caps=np.where(rng.random(F) < 0.3, number(1, 3, F), 50.0), pad_hops=H, pad_parts=P,
    )  # fmt: skip
    net, routes = fb.place(net, routes)
    values = {
        "capacity": net.capacity, "weights": routes.weight, "caps": routes.cap,
        "hop_use": routes.hop_use, "part_use": routes.part_use,
    }  # fmt: skip
    return values, net, routes


def direction(values, seed):
    """Return a direction that leaves entries of use 0 alone; sizes like the values."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return {k: v * jnp.asarray(rng.normal(size=v.shape)) for k, v in values.items()}


def dot(a, b):
    return sum(jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@jax.jit
def margin(values, net, routes):
    routes = with_uses(routes, values["hop_use"], values["part_use"])
    return fb.max_min_rates(
        net.with_capacity(values["capacity"]), routes, weights=values["weights"],
        caps=values["caps"], method="rounds", throw=False,
    ).tie_margin  # fmt: skip


@jax.jit
def push(values, tangents, net, routes):
    return jax.jvp(lambda v: rates(v, net, routes), (values,), (tangents,))


@jax.jit
def pull(values, cotangent, net, routes):
    return jax.vjp(lambda v: rates(v, net, routes), values)[1](cotangent)[0]


@jax.jit
def jacobian(values, net, routes):
    """Return d rates / d capacity."""
    return jax.jacrev(lambda c: rates(values | {"capacity": c}, net, routes))(values["capacity"])


plain = jax.jit(rates, static_argnames=("method", "derivative"))


def moved(values, tangents, h):
    return {k: values[k] + h * tangents[k] for k in values}


def untied(count, least=1e-3):
    """Return `count` drawn problems whose next tie is at least this far away."""
    problems, seed = [], 0
    while len(problems) < count:
        problem = drawn(seed)
        if float(margin(*problem)) > least:
            problems.append((seed, *problem))
        seed += 1
    return problems


@pytest.fixture(scope="module")
def away():
    return untied(500)


def test_forward_equals_central_differences(away):
    h = 1e-6  # a thousandth of the distance to the next tie
    for seed, values, net, routes in away:
        tangents = direction(values, seed)
        _, got = push(values, tangents, net, routes)
        after = plain(moved(values, tangents, h), net, routes)
        before = plain(moved(values, tangents, -h), net, routes)
        # Central differences lose about eps / h of the rates, and h squared of their curvature.
        np.testing.assert_allclose(got, (after - before) / (2 * h), rtol=1e-6, atol=1e-6)


def test_reverse_equals_forward_by_the_dot_product(away):
    for seed, values, net, routes in away:
        tangents = direction(values, seed)
        cotangent = jnp.asarray(np.random.Generator(np.random.PCG64(seed)).normal(size=F))
        _, got = push(values, tangents, net, routes)
        back = pull(values, cotangent, net, routes)
        size = sum(float(jnp.abs(back[k] * tangents[k]).sum()) for k in KEYS)
        assert abs(float(dot(cotangent, got) - dot(back, tangents))) <= 1e-12 * max(size, 1.0)


def test_reverse_equals_forward_at_ties():
    for seed in range(200):
        values, net, routes = drawn(seed, ties=True)
        tangents = direction(values, seed)
        cotangent = jnp.asarray(np.random.Generator(np.random.PCG64(seed)).normal(size=F))
        _, got = push(values, tangents, net, routes)
        back = pull(values, cotangent, net, routes)
        size = sum(float(jnp.abs(back[k] * tangents[k]).sum()) for k in KEYS)
        assert abs(float(dot(cotangent, got) - dot(back, tangents))) <= 1e-12 * max(size, 1.0)


@pytest.mark.parametrize("ties", [False, True])
def test_compiled_gives_the_derivatives_of_rounds(ties):
    for seed in range(12):
        values, net, routes = drawn(seed, ties=ties)

        def loss(c, w, k, net=net, routes=routes, method="rounds"):
            solution = fb.max_min_rates(
                net.with_capacity(c), routes, weights=w, caps=k, method=method, throw=False
            )
            return jnp.sum(jnp.sin(solution.rates))

        at = (values["capacity"], values["weights"], values["caps"])
        want = jax.grad(loss, (0, 1, 2))(*at)
        for method in ("compiled", "auto"):
            got = jax.grad(functools.partial(loss, method=method), (0, 1, 2))(*at)
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_hessian_vector_products_equal_differences_of_gradients(away):
    @jax.jit
    def gradient(values, net, routes):
        return jax.grad(lambda v: jnp.sum(jnp.sin(rates(v, net, routes))))(values)

    @jax.jit
    def product(values, tangents, net, routes):
        return jax.jvp(lambda v: gradient(v, net, routes), (values,), (tangents,))[1]

    h = 1e-6
    for seed, values, net, routes in away[:40]:
        tangents = direction(values, seed)
        got = product(values, tangents, net, routes)
        after = gradient(moved(values, tangents, h), net, routes)
        before = gradient(moved(values, tangents, -h), net, routes)
        for key in KEYS:
            want = (after[key] - before[key]) / (2 * h)
            scale = 1.0 + float(jnp.abs(want).max())
            np.testing.assert_allclose(got[key], want, rtol=1e-5, atol=1e-6 * scale)


def test_vmap_of_grad_equals_the_loop():
    values, net, routes = drawn(3)
    capacities = jnp.linspace(0.5, 1.5, 5)[:, None] * values["capacity"]

    for method in ("rounds", "compiled", "auto"):

        def loss(c, net=net, routes=routes, method=method):
            solution = fb.max_min_rates(net.with_capacity(c), routes, method=method, throw=False)
            return jnp.sum(solution.rates**2)

        gradient = jax.jit(jax.grad(loss))
        loop = jnp.stack([gradient(c) for c in capacities])
        both = jax.jit(jax.vmap(jax.grad(loss)))(capacities)
        np.testing.assert_allclose(both, loop, rtol=1e-12)


def test_forward_and_reverse_agree_on_whole_jacobians():
    values, net, routes = drawn(11)
    whole = lambda v: rates(v, net, routes)
    forward, reverse = jax.jit(jax.jacfwd(whole))(values), jax.jit(jax.jacrev(whole))(values)
    for key in KEYS:
        np.testing.assert_allclose(forward[key], reverse[key], rtol=1e-12, atol=1e-13)


def test_select_is_the_derivative_at_a_perturbed_point_without_ties():
    """Lift each link's level by a little more the later its turn: the selected structure is then
    the only one, so its derivative is that of an ordinary point nearby."""
    seen = 0
    for seed in range(400):
        values, net, routes = drawn(seed, ties=True)
        if float(margin(values, net, routes)) > 0:
            continue
        seen += 1
        solution = fb.max_min_rates(net, routes, method="rounds")
        at = {k: np.asarray(v) for k, v in values.items()}
        use = usage_matrix(at, routes)
        level = np.asarray(solution.rates) / at["weights"]
        _, rank = order_of_links()
        lift = np.where(solution.bottleneck >= 0, 1.0 + rank[solution.bottleneck], 0.0) * level
        change = use @ (at["weights"] * lift)
        full = np.asarray(solution.saturated)
        active = np.isin(np.arange(L), np.asarray(solution.bottleneck))
        change = np.where(active, change, np.where(full, change + 100 * at["capacity"], 0.0))
        near = values | {"capacity": values["capacity"] + 1e-5 * jnp.asarray(change)}
        assert float(margin(near, net, routes)) > 1e-7
        got, want = jacobian(values, net, routes), jacobian(near, net, routes)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    assert seen > 60


def order_of_links():
    from fabric.kernels._structure import hashed_rank

    rank, link_of = hashed_rank(L)
    return link_of, rank


def usage_matrix(at, routes):
    use = np.zeros((L, F))
    bundle = np.zeros((L, B))
    keep = np.asarray(routes.part_link) < L
    np.add.at(bundle, (routes.part_link[keep], routes.part_bundle[keep]), at["part_use"][keep])
    keep = np.asarray(routes.hop_flow) < F
    for flow, b, h in zip(
        routes.hop_flow[keep], routes.hop_bundle[keep], at["hop_use"][keep], strict=True
    ):
        use[:, flow] += h * bundle[:, b]
    return use


def test_every_gradient_of_the_worked_examples(shared):
    rows = json.loads((shared / "validation/maxmin_examples.json").read_text())["examples"]
    jacobian = jax.jit(
        lambda c, r: jax.jacrev(
            lambda c: fb.max_min_rates(fb.Network(c), r, method="rounds", throw=False).rates
        )(c)
    )
    each = jnp.eye(L)
    checked = 0
    for row in (r for r in rows if "gradient_d_rate_d_capacity" in r):
        links, flows, capacity, routes = padded_example(row)
        selected = jacobian(capacity, routes)
        both_ways = fb.one_sided(
            lambda s: s.rates,
            fb.Network(capacity),
            routes,
            {"capacity": jnp.concatenate([each, -each])},
        )[1]
        for (l, link), (f, flow) in itertools.product(enumerate(links), enumerate(flows)):
            want = row["gradient_d_rate_d_capacity"][link].get(flow, "0")
            sides = want if isinstance(want, dict) else {"left": want, "right": want}
            right, left = both_ways[l, f], -both_ways[L + l, f]
            np.testing.assert_allclose(right, float(Fraction(sides["right"])), atol=1e-12)
            np.testing.assert_allclose(left, float(Fraction(sides["left"])), atol=1e-12)
            if not isinstance(want, dict):
                np.testing.assert_allclose(selected[f, l], float(Fraction(want)), atol=1e-12)
            checked += 1
    assert checked > 100


def padded_example(row):
    """Return (links, flows, capacity, routes), every example at one shape."""
    links, flows = list(row["capacities"]), list(row["routes"])
    number = lambda text: float(Fraction(text))
    consumption = row.get("consumption", {})
    usage = [
        [number(consumption.get(flow, {}).get(link, 1)) for link in path]
        for flow, path in row["routes"].items()
    ]
    more = F - len(flows)  # flows that cross nothing and get their cap
    routes = fb.Routes.from_paths(
        [[links.index(link) for link in path] for path in row["routes"].values()] + [[]] * more,
        n_links=L, usage=usage + [[]] * more, pad_to=H,
        weights=[number(row.get("weights", {}).get(flow, 1)) for flow in flows] + [1.0] * more,
        caps=[np.inf] * len(flows) + [1.0] * more,
    )  # fmt: skip
    # A link that nobody crosses needs a capacity above 0 for one-sided directions down.
    capacity = jnp.array([number(c) for c in row["capacities"].values()] + [1.0] * (L - len(links)))
    return links, flows, capacity, routes


@pytest.mark.parametrize("method", ["rounds", "compiled", "auto"])
def test_nothing_is_nan_beside_zero_capacities_and_unbounded_flows(method):
    routes = fb.Routes.from_paths(
        [[0, 1], [1], [], [2]], n_links=3, caps=[np.inf, np.inf, 2.0, 1.0]
    )
    rates_of = lambda c: fb.max_min_rates(fb.Network(c), routes, method=method).rates
    jacobian = jax.jacrev(rates_of)(jnp.array([0.0, 6.0, 5.0]))
    np.testing.assert_allclose(jacobian, [[1, 0, 0], [-1, 1, 0], [0, 0, 0], [0, 0, 0]], atol=1e-15)


@pytest.mark.parametrize("method", ["rounds", "compiled"])
def test_a_deep_chain_has_exact_derivatives(method):
    n = 80
    paths = [[i, i + 1] for i in range(n - 1)] + [[i] for i in range(n)]
    capacity = jnp.asarray(np.r_[1.0, 3.0 * (0.5 + np.arange(1, n))])
    routes = fb.Routes.from_paths(paths, n_links=n)
    solve = lambda c: fb.max_min_rates(fb.Network(c), routes, method=method, throw=False).rates
    cotangent = jnp.linspace(-1.0, 1.0, 2 * n - 1)
    tangent = jnp.asarray(np.random.Generator(np.random.PCG64(0)).normal(size=n))
    got = jax.jvp(solve, (capacity,), (tangent,))[1]
    back = jax.vjp(solve, capacity)[1](cotangent)[0]
    np.testing.assert_allclose(jnp.vdot(cotangent, got), jnp.vdot(back, tangent), rtol=1e-12)
    h = 1e-7
    want = (solve(capacity + h * tangent) - solve(capacity - h * tangent)) / (2 * h)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


CHAIN = fb.Routes.from_paths([[0], [1], [0, 1], [1, 2], [2, 3], [0, 2]], n_links=4)


def squares(weights, method="rounds", derivative="select"):
    net = fb.Network(jnp.array([25.0, 50.0, 100.0, 75.0]))
    return jnp.sum(
        fb.max_min_rates(
            net, CHAIN, weights=weights, method=method, derivative=derivative, throw=False
        ).rates
        ** 2
    )


@pytest.mark.parametrize("method", ["rounds", "compiled", "auto"])
@pytest.mark.parametrize("derivative", ["select", fb.Mean(samples=8)])
def test_second_derivatives_are_right_for_every_method_and_answer(method, derivative):
    total = functools.partial(squares, method=method, derivative=derivative)
    weights, h = jnp.linspace(0.5, 1.5, 6), 1e-5
    forward = jax.jit(jax.hessian(total))(weights)
    reverse = jax.jit(jax.jacrev(jax.grad(total)))(weights)
    gradient = jax.jit(jax.grad(squares))
    want = [(gradient(weights + h * e) - gradient(weights - h * e)) / (2 * h) for e in jnp.eye(6)]
    # The mean is over capacities that differ by 1e-6.
    np.testing.assert_allclose(forward, jnp.stack(want), rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(reverse, forward, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["rounds", "compiled", "auto"])
def test_second_derivatives_through_scan_are_refused_by_name(method):
    def total(weights):
        step = lambda sum_, k: (sum_ + squares(weights * k, method), None)
        return jax.lax.scan(step, 0.0, jnp.array([1.0, 2.0]))[0]

    one = 2 * jax.grad(functools.partial(squares, method=method))(jnp.ones(6))
    assert np.all(np.isfinite(jax.grad(total)(jnp.ones(6))))
    np.testing.assert_allclose(jax.grad(total)(jnp.ones(6)).sum(), one.sum() * 0.75, atol=1e-6)
    with pytest.raises(NotImplementedError, match=r"do not go through `jax.lax.scan`"):
        jax.hessian(total)(jnp.ones(6))


@pytest.mark.parametrize("method", ["rounds", "compiled"])
def test_weights_of_unbounded_flows_have_derivative_zero(method):
    routes = fb.Routes.from_paths([[0], []], n_links=1)
    first = lambda w: fb.max_min_rates(
        fb.Network(jnp.array([4.0])), routes, weights=w, method=method, throw=False
    ).rates[0]
    np.testing.assert_array_equal(jax.grad(first)(jnp.ones(2)), [0.0, 0.0])


@pytest.mark.parametrize("method", ["rounds", "compiled"])
@pytest.mark.parametrize(
    ("capacity", "weight", "cap"),
    [
        ([np.nan, 1.0], 1.0, 9.0),
        ([-1.0, 1.0], 1.0, 9.0),
        ([2.0, 1.0], 0.0, 9.0),
        ([2.0, 1.0], 1.0, np.nan),
    ],
)
def test_bad_values_in_a_trace_are_a_code(capacity, weight, cap, method):
    routes = fb.Routes.from_paths([[0], [0, 1]], n_links=2)
    code = jax.jit(
        lambda c, w, k: (
            fb.max_min_rates(
                fb.Network(c), routes, weights=w, caps=k, method=method, throw=False
            ).result
            == fb.RESULTS.invalid
        )
    )
    assert bool(code(jnp.array(capacity), jnp.array([1.0, weight]), jnp.array([9.0, cap])))
    assert not bool(code(jnp.array([2.0, 1.0]), jnp.ones(2), jnp.full(2, 9.0)))


def test_tie_margins_of_the_methods_agree():
    routes = fb.Routes.from_bundles(
        [0, 1], [0, 0], 1.0, [0, 0], [0, 1], 1.0, n_flows=2, n_bundles=1, n_links=2
    )
    for other, want in ((10.0, 0.0), (11.0, 1 / 11), (10.0 * (1 + 1e-9), 1e-9)):
        for method in ("rounds", "compiled"):
            solution = fb.max_min_rates(fb.Network([10.0, other]), routes, method=method)
            np.testing.assert_allclose(solution.tie_margin, want, rtol=1e-6, atol=1e-15)
    for seed in range(60):
        _, net, routes = drawn(seed, ties=seed % 2 == 0)
        margins = [
            float(fb.max_min_rates(net, routes, method=m).tie_margin)
            for m in ("rounds", "compiled")
        ]
        np.testing.assert_allclose(margins[0], margins[1], rtol=1e-9, atol=1e-12)
