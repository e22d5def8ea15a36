"""The programs that `max_min_rates` compiles: how many, and what is in them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb

N_LINKS, N_FLOWS, N_HOPS, N_BUNDLES, N_PARTS = 5, 4, 12, 3, 8
CAPACITY = np.array([10.0, 4.0, 9.0, 6.0, 8.0])
PATHS = [[0, 1], [0, 2, 3], [1, 4], [2]]
OTHER_PATHS = [[4], [3, 2, 1, 0], [0, 4], [1, 3]]


def placed(paths=PATHS, *, usage=None):
    """Return network and routes on the device, every set of paths padded to one shape."""
    routes = fb.Routes.from_paths(paths, n_links=N_LINKS, usage=usage)
    return fb.place(fb.Network(CAPACITY), routes, pad_hops=N_HOPS)


def placed_bundles(fraction):
    """Return routes of two levels: bundle 0 splits over links 0 and 1, the others are links."""
    routes = fb.Routes.from_bundles(
        [0, 0, 1, 2, 3], [0, 1, 0, 2, 1], 1.0,
        [0, 0, 1, 2], [0, 1, 2, 3], [fraction, 1 - fraction, 1.0, 1.0],
        n_flows=N_FLOWS, n_bundles=N_BUNDLES, n_links=N_LINKS,
    )  # fmt: skip
    return fb.place(fb.Network(CAPACITY), routes, pad_hops=N_HOPS, pad_parts=N_PARTS)


def rounds(net, routes, weights, caps):
    return fb.max_min_rates(
        net, routes, weights=weights, caps=caps, method="rounds", throw=False
    ).rates


def plain(net, routes, weights, caps):
    return fb.max_min_rates(net, routes, weights=weights, caps=caps, method="compiled").rates


ONES = jnp.ones(N_FLOWS)
NO_CAPS = jnp.full(N_FLOWS, jnp.inf)
NET, ROUTES = placed()

VARIED = {
    "capacity": (NET.with_capacity(NET.capacity * 2.5), ROUTES, ONES, NO_CAPS),
    "a-failed-link": (NET.with_alive(NET.alive.at[1].set(False)), ROUTES, ONES, NO_CAPS),
    "weights": (NET, ROUTES, ONES * jnp.array([1.0, 2.0, 0.5, 3.0]), NO_CAPS),
    "caps": (NET, ROUTES, ONES, NO_CAPS.at[1].set(0.5)),
    "fractions": (*placed(usage=[[1, 0.5], [1, 0.25, 0.75], [1, 1], [2]]), ONES, NO_CAPS),
    "routes": (*placed(OTHER_PATHS), ONES, NO_CAPS),
}


@pytest.mark.parametrize("varied", VARIED)
def test_new_values_reuse_the_program_and_give_the_plain_rates(varied):
    once = eqx.filter_jit(eqx.debug.assert_max_traces(rounds, max_traces=1))
    first = once(NET, ROUTES, ONES, NO_CAPS)
    second = once(*VARIED[varied])
    assert not np.array_equal(first, second)
    # Two methods, each a few roundings per round; five links need few rounds.
    np.testing.assert_allclose(second, plain(*VARIED[varied]), rtol=1e-12)


def test_new_fractions_of_bundles_reuse_the_program_and_give_the_plain_rates():
    once = eqx.filter_jit(eqx.debug.assert_max_traces(rounds, max_traces=1))
    for fraction in (0.5, 0.9):
        net, routes = placed_bundles(fraction)
        got = once(net, routes, ONES, NO_CAPS)
        np.testing.assert_allclose(got, plain(net, routes, ONES, NO_CAPS), rtol=1e-12)


def test_another_shape_is_another_program():
    once = eqx.filter_jit(eqx.debug.assert_max_traces(rounds, max_traces=1))
    once(NET, ROUTES, ONES, NO_CAPS)
    longer = fb.place(fb.Network(CAPACITY), ROUTES, pad_hops=2 * N_HOPS)
    with pytest.raises(RuntimeError, match="traced"):
        once(*longer, ONES, NO_CAPS)


COMPILED: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: COMPILED.append(event) if "backend_compile" in event else None
)


def test_a_plain_call_with_new_values_compiles_nothing():
    jax.clear_caches()
    others = [VARIED[varied] for varied in ("capacity", "a-failed-link", "fractions", "routes")]
    before = len(COMPILED)
    fb.max_min_rates(NET, ROUTES, method="rounds")
    first = len(COMPILED)
    assert first > before
    for net, routes, *_ in others:
        fb.max_min_rates(net, routes, method="rounds")
    assert len(COMPILED) == first


def lowered(platform: str, *, throw: bool) -> str:
    def rates(net, routes):
        return fb.max_min_rates(net, routes, method="rounds", throw=throw).rates

    return jax.jit(rates).trace(NET, ROUTES).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_without_throw_the_program_holds_no_host_callback(platform):
    text = lowered(platform, throw=False)
    assert "while" in text
    assert "callback" not in text
    assert "custom_call" not in text


def test_with_throw_the_program_holds_one():
    assert "callback" in lowered("cpu", throw=True)


def test_throw_inside_jit_raises_the_text_of_the_result():
    solve = eqx.filter_jit(lambda net, routes: fb.max_min_rates(net, routes, max_rounds=1).rates)
    deep = fb.place(
        fb.Network([1.0, 5.0, 9.0]), fb.Routes.from_paths([[0, 1], [1, 2], [2]], n_links=3)
    )
    with pytest.raises(eqx.EquinoxRuntimeError, match="stopped at `max_rounds`"):
        solve(*deep)


def test_jit_of_auto_runs_rounds_and_gives_the_whole_plain_solution():
    solve = eqx.filter_jit(lambda net, routes: fb.max_min_rates(net, routes, throw=False))
    inside, outside = solve(NET, ROUTES), fb.max_min_rates(NET, ROUTES)
    assert inside.method == "rounds"
    assert "compiled" in outside.method
    np.testing.assert_allclose(inside.rates, outside.rates, rtol=1e-12)
    np.testing.assert_array_equal(inside.saturated, outside.saturated)
    assert bool(inside.result == fb.RESULTS.converged)
    assert fb.certify(NET, ROUTES, inside) <= 1e-12


def test_vmap_over_capacity_equals_a_loop():
    capacities = jnp.stack([NET.capacity, NET.capacity[::-1], NET.capacity.at[2].set(0.0)])
    each = lambda c: rounds(NET.with_capacity(c), ROUTES, ONES, NO_CAPS)
    loop = [plain(NET.with_capacity(c), ROUTES, ONES, NO_CAPS) for c in capacities]
    np.testing.assert_allclose(jax.vmap(each)(capacities), jnp.stack(loop), rtol=1e-12)
    np.testing.assert_allclose(jax.jit(jax.vmap(each))(capacities), jnp.stack(loop), rtol=1e-12)


def test_vmap_over_routes_equals_a_loop():
    both = [ROUTES, placed(OTHER_PATHS)[1]]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *both)
    got = jax.vmap(lambda routes: rounds(NET, routes, ONES, NO_CAPS))(stacked)
    loop = [plain(NET, routes, ONES, NO_CAPS) for routes in both]
    np.testing.assert_allclose(got, jnp.stack(loop), rtol=1e-12)


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap])
def test_compiled_inside_a_transformation_gives_the_plain_rates(transform):
    solve = lambda net: fb.max_min_rates(net, ROUTES, method="compiled", throw=False).rates
    nets = jax.tree.map(lambda leaf: leaf[None], NET) if transform is jax.vmap else NET
    got = transform(solve)(nets).reshape(-1)
    np.testing.assert_allclose(got, plain(NET, ROUTES, ONES, NO_CAPS), rtol=1e-12)


def test_compiled_with_traced_routes_is_refused_by_name():
    solve = lambda routes: fb.max_min_rates(NET, routes, method="compiled").rates
    with pytest.raises(NotImplementedError, match=r'method="compiled".*needs concrete routes'):
        jax.jit(solve)(ROUTES)


def total(net, routes, capacity, method, derivative="select"):
    solution = fb.max_min_rates(
        net.with_capacity(capacity), routes, method=method, derivative=derivative, throw=False
    )
    return jnp.sum(jnp.sin(solution.rates))


@pytest.mark.parametrize("derivative", ["select", "mean"])
def test_gradients_reuse_the_program_on_new_values(derivative):
    def gradient(net, routes, capacity):
        return jax.grad(lambda c: total(net, routes, c, "rounds", derivative))(capacity)

    once = eqx.filter_jit(eqx.debug.assert_max_traces(gradient, max_traces=1))
    first = once(NET, ROUTES, NET.capacity)
    net, routes, *_ = VARIED["routes"]
    second = once(net, routes, NET.capacity * 1.5)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("method", ["auto", "rounds"])
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_gradients_on_an_accelerator_hold_no_host_callback(method, platform):
    gradient = jax.jit(jax.grad(lambda c: total(NET, ROUTES, c, method)))
    text = gradient.trace(NET.capacity).lower(lowering_platforms=(platform,)).as_text()
    assert "while" in text
    assert "callback" not in text


def test_auto_closed_over_routes_runs_the_compiled_kernels_on_a_cpu_only():
    solve = jax.jit(lambda c: fb.max_min_rates(NET.with_capacity(c), ROUTES, throw=False).rates)
    text = lambda platform: (
        solve.trace(NET.capacity).lower(lowering_platforms=(platform,)).as_text()
    )
    assert "callback" in text("cpu")
    assert "while" in text("cuda")
    assert "callback" not in text("cuda")
    np.testing.assert_allclose(solve(NET.capacity), plain(NET, ROUTES, ONES, NO_CAPS), rtol=1e-12)


@pytest.mark.parametrize("method", ["auto", "rounds", "compiled"])
def test_scan_and_checkpoint_keep_the_gradient(method):
    def descent(c):
        step = lambda c, _: (c + 0.01 * jax.grad(lambda x: total(NET, ROUTES, x, method))(c), None)
        return total(NET, ROUTES, jax.lax.scan(step, c, length=3)[0], method)

    want = NET.capacity
    for _ in range(3):
        want = want + 0.01 * jax.grad(lambda x: total(NET, ROUTES, x, "rounds"))(want)
    np.testing.assert_allclose(
        jax.jit(descent)(NET.capacity), total(NET, ROUTES, want, "rounds"), rtol=1e-12
    )
    kept = jax.grad(jax.checkpoint(lambda c: total(NET, ROUTES, c, method)))(NET.capacity)
    np.testing.assert_allclose(
        kept, jax.grad(lambda c: total(NET, ROUTES, c, method))(NET.capacity), rtol=1e-12
    )


@pytest.mark.parametrize("method", ["auto", "rounds", "compiled"])
def test_a_solve_of_constants_inside_jit_is_a_constant_and_leaves_no_tracer_behind(method):
    routes = fb.Routes.from_paths(PATHS, n_links=N_LINKS)
    net = fb.Network(CAPACITY)
    scaled = jax.jit(lambda x: x * fb.max_min_rates(net, routes, method=method).rates)
    want = fb.max_min_rates(net, fb.Routes.from_paths(PATHS, n_links=N_LINKS)).rates
    np.testing.assert_allclose(scaled(2.0), 2.0 * want, rtol=1e-12)
    np.testing.assert_allclose(fb.max_min_rates(net, routes, method=method).rates, want, rtol=1e-12)
