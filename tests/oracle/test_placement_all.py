"""Eight ranks on a tree, a torus and a Clos network, against all 40,320 placements.

Placements that a symmetry of the network turns into each other take equally long, so one of each
set is scored; that this is so is checked too.
"""

import functools
import itertools

import numpy as np
import pytest

import fabric as fb
from experiments.optimizers.placement import drawn, networks
from fabric import optimize
from fabric.optimize._placement_input import rule_of, slots_of, traffic_of
from fabric.optimize._placement_score import Scorer
from fabric.optimize._placement_ways import ways_of

ALL = np.array(list(itertools.permutations(range(8))))


def scorer(net, demand, fluid):
    asked = traffic_of(demand, None)
    slots = slots_of(net, None, 8, None)
    rule = rule_of("spray", 0)
    return Scorer(net, asked, slots, rule, ways_of(net, slots, rule), fluid=fluid)


@functools.cache
def apart(name):
    """Return one placement of each set that symmetries of the network turn into each other."""
    net = networks()[name]
    a, b = np.nonzero(~np.eye(8, dtype=bool))
    routes = fb.routing.spray(net, fb.Flows(net.hosts[a], net.hosts[b]))
    away = np.zeros((8, 8), int)
    away[a, b] = np.bincount(np.asarray(routes.hop_flow), minlength=len(a))
    own = (away[ALL[:, :, None], ALL[:, None, :]] == away).all(axis=(1, 2))
    code = 8 ** np.arange(8)[::-1]
    least = np.min([symmetry[ALL] @ code for symmetry in ALL[own]], axis=0)
    return ALL[least == ALL @ code]


@pytest.mark.parametrize("name", networks())
def test_symmetries_do_not_change_the_time(name):
    demand = drawn(11)
    every, _ = scorer(networks()[name], demand, False)(ALL)
    some, _ = scorer(networks()[name], demand, False)(apart(name))
    assert len(some) < len(every) / 40
    assert some.min() == pytest.approx(every.min(), rel=1e-12)
    values = lambda seconds: np.unique(np.round(seconds / every.min(), 9))
    np.testing.assert_array_equal(values(some), values(every))


@pytest.mark.parametrize("name", networks())
@pytest.mark.parametrize("objective", ["slowest", "completion"])
def test_the_best_of_32_starts_has_no_regret(name, objective):
    net = networks()[name]
    for seed in range(6):
        demand = drawn(seed)
        truth = scorer(net, demand, objective == "completion")(apart(name))[0].min()
        found = optimize.placement(
            net, demand, objective=objective, starts=32, budget=2500, seed=seed, control=False
        )
        assert found.objective == pytest.approx(truth, rel=1e-12)
        assert found.bound <= truth * (1 + 1e-12)
