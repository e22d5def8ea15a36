"""What the compiled method promises beside its rates: layout, batches, and memory told before."""

import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb
from experiments.bench.instances import instance
from fabric import _memory
from fabric.solvers import _compiled
from fabric.solvers._footprint import bytes_needed
from fabric.solvers._plan import compiled_plan

GOLDEN = ("ft-1k", "ft-1k-het", "ls-1k", "ls-1k-het", "chain-1k")


def routed(name):
    made = instance(name)
    capacity = np.array(made["capacity"], np.float64)
    ptr, links = made["flow_ptr"], made["flow_links"]
    return capacity, fb.Routes.from_csr(ptr, links, n_links=len(capacity))


@pytest.mark.parametrize("name", GOLDEN)
def test_the_layout_holds_every_used_link_once_and_says_which_flows_cross_it(name):
    capacity, routes = routed(name)
    plan = compiled_plan(routes)
    crossing = [set[int]() for _ in capacity]
    for flow, link in zip(routes.hop_flow.tolist(), routes.hop_bundle.tolist(), strict=True):
        crossing[link].add(flow)
    for link, flows in enumerate(crossing):
        c = plan.class_of[link]
        assert (c < 0) == (not flows)
        if flows:
            assert set(plan.back_flow[plan.back_ptr[c] : plan.back_ptr[c + 1]].tolist()) == flows
            assert (c < plan.n_shared) == (len(flows) > 1)
    ptr, link = plan.members
    assert sorted(link.tolist()) == np.flatnonzero(plan.class_of >= 0).tolist()
    assert np.array_equal(plan.class_of[link], np.repeat(np.arange(plan.n_classes), np.diff(ptr)))


def test_links_that_one_flow_uses_unlike_stay_apart():
    # Flow 0 alone on three links: 0 and 1 at use 1, 2 at use 4; flows 0 and 1 share link 3.
    routes = fb.Routes.from_paths([[0, 1, 2, 3], [3]], 5, usage=[[1.0, 1.0, 4.0, 1.0], [1.0]])
    plan = compiled_plan(routes)
    assert plan.class_of[0] == plan.class_of[1] == plan.n_classes - 1
    assert plan.n_classes == 3
    assert plan.class_of[4] == -1
    for capacity, rates, bottleneck in (
        ([9.0, 9.0, 8.0, 9.0, 1.0], [2.0, 7.0], [2, 3]),
        ([3.0, 1.0, 8.0, 9.0, 1.0], [1.0, 8.0], [1, 3]),
        ([9.0, 9.0, 80.0, 9.0, 1.0], [4.5, 4.5], [3, 3]),
    ):
        solution = fb.max_min_rates(fb.Network(np.array(capacity)), routes, method="compiled")
        assert solution.rates.tolist() == rates
        assert solution.bottleneck.tolist() == bottleneck


def test_a_private_link_that_fills_with_a_larger_twin_leaves_the_twin_unsaturated():
    routes = fb.Routes.from_paths([[0, 1], [2], [2]], 3)
    solution = fb.max_min_rates(
        fb.Network(np.array([2.0, 3.0, 8.0])), routes, method="compiled", throw=False
    )
    assert solution.saturated.tolist() == [True, False, True]
    assert float(solution.tie_margin) == pytest.approx(1 / 3)  # link 1 carries 2 of 3


@pytest.mark.parametrize("unlike", [False, True], ids=["alike", "weights-and-caps"])
@pytest.mark.parametrize("name", ["ft-1k", "ls-1k", "chain-1k"])
def test_many_scenarios_equal_one_after_another(name, unlike):
    capacity, routes = routed(name)
    rng = np.random.default_rng(0)
    capacities = capacity * rng.uniform(0.5, 1.5, (5, len(capacity)))
    weights, caps = np.ones((1, routes.n_flows)), np.full((1, routes.n_flows), np.inf)
    if unlike:
        weights = rng.uniform(1, 2, (5, routes.n_flows))
        caps = rng.uniform(5, 100, (1, routes.n_flows))
    found = _compiled.solve_many(compiled_plan(routes), capacities, weights, caps)
    for s in range(5):
        one = _compiled.fill(capacities[s], routes, weights[s % len(weights)], caps[0])
        for many, alone in zip(found, one, strict=True):
            np.testing.assert_array_equal(many[s], alone)


def test_many_scenarios_serve_wide_bundles():
    net = fb.topologies.leaf_spine(leaves=4, spines=6, hosts_per_leaf=3)
    up = net.labels.is_kind("leaf")[net.labels.src] & net.labels.is_kind("spine")[net.labels.dst]
    failed = net.without(links=np.flatnonzero(up)[[0, 7, 14, 21]])
    routes = fb.routing.spray(failed, fb.traffic.all_to_all(net.hosts))
    plan = compiled_plan(routes)
    assert plan.wide
    capacity = np.where(failed.alive, np.asarray(failed.capacity), 0.0)
    capacities = capacity * np.random.default_rng(1).uniform(0.5, 1.5, (3, len(capacity)))
    ones, endless = np.ones((1, routes.n_flows)), np.full((1, routes.n_flows), np.inf)
    levels, _, _ = _compiled.solve_many(plan, capacities, ones, endless)
    for s in range(3):
        alone, _, _ = _compiled.fill(capacities[s], routes, ones[0], endless[0])
        np.testing.assert_array_equal(levels[s], alone)


def test_a_solve_that_does_not_fit_is_refused_with_the_bytes_and_the_next_step(monkeypatch):
    _, routes = routed("ft-1k")
    net = fb.Network(jnp.full(routes.n_links, 50.0))
    monkeypatch.setattr(_memory, "UNASKED", 0)
    monkeypatch.setattr("fabric.solvers._footprint.UNASKED", 0)
    monkeypatch.setattr(_memory, "available", lambda: 1e5)
    message = (
        r"1,024 flows with 6,014 hops needs about .* kB of memory, but 100\.00 kB are free\. Solve"
    )
    with pytest.raises(fb.InfeasibleError, match=message):
        fb.max_min_rates(net, routes, method="compiled")
    assert "compiled" not in routes.plans


def test_routes_that_do_not_fit_are_refused_before_they_are_made(monkeypatch):
    net = fb.topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=2)
    flows = fb.traffic.permutation(net.hosts)
    monkeypatch.setattr(_memory, "available", lambda: 1e9)
    message = (
        r"`ecmp` of 8 flows with 1,000,000 queue pairs each .*1\.47 GB.* but 1\.00 GB are free"
    )
    with pytest.raises(fb.InfeasibleError, match=message):
        fb.routing.ecmp(net, flows, queue_pairs=1_000_000)


def test_the_estimate_counts_links_by_how_many_flows_cross_them():
    _, sparse = routed("ft-1k")
    _, dense = routed("ls-10k")
    assert 100 * sparse.n_flows < bytes_needed(sparse) < 1000 * sparse.n_flows
    # Ten times the flows and seven times the hops, but hardly more links.
    assert 5 * bytes_needed(sparse) < bytes_needed(dense) < 10 * bytes_needed(sparse)
