"""What `optimize.routing_weights` promises of exact max-min rates, and of phases."""

import itertools

import numpy as np
import pytest

import fabric as fb
from experiments.optimizers import routing as experiment
from fabric import runs, topologies
from fabric._errors import ModelError
from fabric.optimize import routing_weights
from fabric.optimize._aim import Aim, Over
from fabric.optimize._demands import demands
from fabric.optimize._path_sets import path_set
from fabric.optimize._split_programme import solved


def test_the_smallest_exact_rate_comes_near_the_bound_from_equal_splits():
    net, flows = experiment.two_degraded(3)
    found = routing_weights(net, flows, objective="rate", tolerance=1e-5, prove=False)
    exact = fb.max_min_rates(net, found.routes())
    best = 1 / experiment.optimum(found)
    np.testing.assert_allclose(float(exact.rates.min()), found.objective, rtol=1e-12)
    assert 0.9999 * best <= found.objective <= best * (1 + 1e-9) <= found.bound * (1 + 2e-9)
    assert found.before < 0.9 * best
    assert found.solves >= found.history.steps[-1]


def test_the_slowest_of_unequal_flows_ends_near_its_bound():
    net, flows = experiment.two_degraded(3)
    size = np.random.default_rng(0).uniform(0.5, 1.5, flows.n_flows) * 1e9
    flows = fb.Flows(flows.src, flows.dst, size=size, weight=size)
    found = routing_weights(net, flows, objective="time", tolerance=1e-4, prove=False)
    rates = np.asarray(fb.max_min_rates(net, found.routes()).rates)
    np.testing.assert_allclose((size / rates).max(), found.objective, rtol=1e-12)
    assert found.certified
    capped = fb.Flows(flows.src, flows.dst, size=size, weight=size, cap=1e9)
    found = routing_weights(net, capped, objective="time", tolerance=1e-4, prove=False)
    np.testing.assert_allclose(found.objective, size.max() / 1e9, rtol=1e-9)
    assert found.certified


def filled(use, capacity, weight):
    """Return max-min rates by plain filling; use is (links, flows)."""
    rate, live, left = np.zeros(len(weight)), np.ones(len(weight), bool), capacity.copy()
    while live.any():
        drain = use @ (weight * live)
        step = (left[drain > 0] / drain[drain > 0]).min()
        rate[live] += weight[live] * step
        left = left - drain * step
        full = (left <= 1e-12 * capacity) & (drain > 0)
        live &= ~(use[full] > 0).any(axis=0)
    return rate


@pytest.mark.parametrize("seed", range(4))
def test_no_splits_of_unequal_flows_are_faster_than_the_bound(seed):
    """Two leaves, two spines, two pairs: all splits of a grid, filled by hand."""
    rng = np.random.default_rng(seed)
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=3)
    net = net.degraded(nodes=["spine1"], factor=float(rng.uniform(0.2, 0.8)))
    src, dst = np.r_[0:3, 3:6], np.r_[3:6, [0, 0, 1]]
    size, weight = rng.uniform(0.2, 2, 6) * 1e9, rng.choice([1.0, 2.0], 6)
    flows = fb.Flows(net.hosts[src], net.hosts[dst], size=size, weight=weight)
    links = {name: i for i, name in enumerate(map(net.link_name, range(net.n_links)))}
    capacity, best, name = np.asarray(net.capacity, float), np.inf, net.labels.node_name
    for shares in itertools.product(np.linspace(0, 1, 31), repeat=2):
        use = np.zeros((net.n_links, 6))
        for f, (a, b) in enumerate(zip(flows.src.tolist(), flows.dst.tolist(), strict=True)):
            up, down = ("leaf0", "leaf1") if f < 3 else ("leaf1", "leaf0")
            use[links[f"{name(a)}->{up}"], f] = use[links[f"{down}->{name(b)}"], f] = 1
            for spine, share in enumerate((shares[f // 3], 1 - shares[f // 3])):
                use[links[f"{up}->spine{spine}"], f] = share
                use[links[f"spine{spine}->{down}"], f] = share
        best = min(best, (size / filled(use, capacity, weight)).max())
    over = Over("worst", 1.0, np.ones(1))
    paths, demand = path_set(net, flows, "shortest"), demands(net, flows, "time")
    bound = {}
    for objective in ("time", "utilisation"):
        aim = Aim(objective, over, net, paths, demand, "shortest")
        prices = solved(aim, None)
        assert prices is not None
        bound[objective] = aim.bound(prices.prices, None)
    assert bound["time"] <= best * (1 + 1e-9)
    # A step of the grid is 1/30 of the traffic of a pair.
    assert best <= bound["time"] * 1.05
    assert bound["time"] >= bound["utilisation"]


def test_phases_of_a_step_are_added_up_as_often_as_they_run():
    """The third one is empty, and must not spoil what the others say."""
    net, _ = experiment.two_degraded(3)
    hosts = net.hosts.reshape(4, 4)
    phases = [
        fb.Flows(hosts.ravel(), np.roll(hosts, -1 - i, axis=0).ravel(), size=size)
        for i, size in enumerate((1e9, 2e9, 0.0))
    ]
    found = routing_weights(
        net, phases, objective="time", over="sum", counts=[8, 3, 1], steps=200, tolerance=1e-3
    )
    rates = [np.asarray(fb.max_min_rates(net, found.routes(flows)).rates) for flows in phases]
    times = [(flows.size / rate).max() for flows, rate in zip(phases, rates, strict=True)]
    np.testing.assert_allclose(found.objective, np.dot([8, 3, 1], times), rtol=1e-9)
    assert found.bound * (1 - 1e-9) <= found.objective < 0.9 * found.before
    assert found.gap <= 1e-2
    assert found.history.objective[-1] * (1 + 1e-9) >= found.objective


@pytest.mark.parametrize("when", [1, 3])
def test_killed_and_resumed_exact_rates_give_the_same_answer(tmp_path, monkeypatch, when):
    """The first kill is in the descent on loads, the second in the one on rates."""
    net, flows = experiment.two_degraded(3)
    options = {"objective": "rate", "tolerance": 1e-7, "steps": 50, "prove": False}
    whole = routing_weights(net, flows, **options)
    monkeypatch.setattr(runs.Checkpoint, "due", property(lambda self: True))
    save, times = runs.Checkpoint.save, itertools.count(1)

    def dies(self, state):
        save(self, state)
        if next(times) == when:
            raise KeyboardInterrupt

    monkeypatch.setattr(runs.Checkpoint, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        routing_weights(net, flows, checkpoint=tmp_path / "run", **options)
    resumed = routing_weights(net, flows, checkpoint=tmp_path / "run", **options)
    np.testing.assert_array_equal(resumed.splits, whole.splits)
    assert resumed.as_dict() | {"seconds": 0} == whole.as_dict() | {"seconds": 0}


def test_routes_of_other_flows_follow_the_same_splits():
    net, flows = experiment.two_degraded(3)
    found = routing_weights(net, flows, objective="rate", tolerance=1e-5)
    # A permutation within the leaves that send and receive.
    other = fb.Flows(flows.src, np.roll(np.asarray(flows.dst).reshape(4, 4), 1, axis=1).ravel())
    routes = found.routes(other)
    rates = fb.max_min_rates(net, routes).rates
    np.testing.assert_allclose(float(rates.min()), found.objective, rtol=1e-9)
    with pytest.raises(ModelError, match="1 of 1 flows run between switches"):
        found.routes(fb.Flows(flows.dst[:1], flows.src[:1]))


def test_rates_of_several_matrices_are_refused():
    with pytest.raises(ModelError, match="takes one matrix, but got 3"):
        routing_weights(topologies.full_mesh(2), [[[0, 1], [1, 0]]] * 3, objective="rate")
