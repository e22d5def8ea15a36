"""Checks of `sharded` that need eight devices; run as a module, it prints what has passed."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import fabric as fb

L, F, B = 40, 61, 50


def two_level(seed):
    """Return network and routes of two levels whose hops eight devices do not divide."""
    rng = np.random.default_rng(seed)
    ways = [rng.choice(B, 3, replace=False) for _ in range(F)]
    parts = [rng.choice(L, 2, replace=False) for _ in range(B)]
    assert sum(map(len, ways)) % 8
    routes = fb.Routes.from_bundles(
        np.repeat(np.arange(F), 3), np.concatenate(ways), 1.0,
        np.repeat(np.arange(B), 2), np.concatenate(parts), rng.uniform(0.2, 1.0, 2 * B),
        n_flows=F, n_bundles=B, n_links=L,
        weights=rng.uniform(0.5, 2.0, F),
        caps=np.where(rng.random(F) < 0.2, 0.05, np.inf),
    )  # fmt: skip
    return fb.Network(rng.uniform(1.0, 3.0, L)), routes


def one_level(seed):
    rng = np.random.default_rng(seed)
    paths = [rng.choice(L, rng.integers(1, 5), replace=False).tolist() for _ in range(F)]
    return fb.Network(rng.uniform(1.0, 3.0, L)), fb.Routes.from_paths(paths, n_links=L)


def flat():
    return jax.make_mesh((8,), ("hops",))


def rates_and_evidence_are_those_of_one_device():
    for net, routes in (two_level(0), one_level(1)):
        for mesh, axis in ((flat(), None), (jax.make_mesh((2, 4), ("a", "b")), "b")):
            got = fb.sharded(net, routes, mesh, axis)
            want = fb.max_min_rates(net, routes, method="rounds")
            np.testing.assert_allclose(got.rates, want.rates, rtol=1e-12)
            np.testing.assert_array_equal(got.bottleneck, want.bottleneck)
            np.testing.assert_array_equal(got.saturated, want.saturated)
            np.testing.assert_allclose(got.tie_margin, want.tie_margin, rtol=1e-9, atol=1e-15)
            assert fb.certify(net, routes, got) <= 1e-12


def gradients_are_those_of_one_device():
    for problem in (two_level(2), one_level(3)):
        ours = derivatives(fb.sharded, *problem, mesh=flat())
        plain = derivatives(fb.max_min_rates, *problem, method="rounds")
        for got, want in zip(ours, plain, strict=True):
            assert float(jnp.abs(want).max()) > 0.1
            # Sums over eight parts differ by a few ulps, which derivatives near 0 inherit.
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


def derivatives(solve, net, routes, **settings):
    """Return gradients in capacity and weights, and a directional derivative."""

    def loss(capacity, weights):
        network = net.with_capacity(capacity)
        return jnp.sum(
            jnp.sin(solve(network, routes, weights=weights, throw=False, **settings).rates)
        )

    at = (jnp.asarray(net.capacity), jnp.asarray(routes.weight))
    reverse = jax.jit(jax.grad(loss, (0, 1)))(*at)
    return *reverse, jax.jit(lambda c, w: jax.jvp(loss, (c, w), (c, w))[1])(*at)


def the_program_is_traced_once_and_gathers_no_hops():
    net, routes = one_level(4)
    rates = lambda c: fb.sharded(fb.Network(c), routes, flat(), throw=False).rates
    once = eqx.filter_jit(eqx.debug.assert_max_traces(rates, max_traces=1))
    for c in (net.capacity, net.capacity[::-1].copy()):
        want = fb.max_min_rates(fb.Network(c), routes).rates
        np.testing.assert_allclose(once(jnp.asarray(c)), want, rtol=1e-12)
    gradient = jax.jit(jax.grad(lambda c: rates(c).sum()))
    text = gradient.lower(jnp.asarray(net.capacity)).compile().as_text()
    assert "all-reduce" in text
    assert "all-gather" not in text
    assert "callback" not in text


def hops_lie_in_equal_parts_on_the_devices():
    net, routes = one_level(5)
    fb.sharded(net, routes, flat())
    (usage,) = (plan for key, plan in routes.plans.items() if key[0] == "sharded")
    sizes = {shard.data.shape[0] for shard in usage.hop_flow.addressable_shards}
    assert sizes == {-(-routes.n_hops // 8)}


CHECKS = (
    rates_and_evidence_are_those_of_one_device,
    gradients_are_those_of_one_device,
    the_program_is_traced_once_and_gathers_no_hops,
    hops_lie_in_equal_parts_on_the_devices,
)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    assert jax.device_count() == 8
    for check in CHECKS:
        check()
        sys.stdout.write(f"{check.__name__}\n")


if __name__ == "__main__":
    main()
