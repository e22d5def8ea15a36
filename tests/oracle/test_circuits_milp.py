"""`optimize.circuits` against the mixed-integer programme that HiGHS proves, and its relaxation.

The oracle lists every way of every pair and shares no code with what it judges.
"""

import itertools

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from fabric.optimize import circuits

BLOCKS = 8


def traffic(seed, spread=2.0):
    """Symmetric traffic whose rows and columns all sum to 1."""
    demand = np.exp(spread * np.random.default_rng(seed).standard_normal((BLOCKS, BLOCKS)))
    demand = demand + demand.T
    np.fill_diagonal(demand, 0)
    for _ in range(3000):
        demand /= np.sqrt(np.outer(demand.sum(1), demand.sum(0)))
    return demand


def one_way(seed):
    """Traffic of equal sums that differs by direction."""
    demand = np.exp(1.5 * np.random.default_rng(seed).standard_normal((BLOCKS, BLOCKS)))
    np.fill_diagonal(demand, 0)
    for _ in range(500):
        demand /= demand.sum(1, keepdims=True)
        demand /= demand.sum(0)
    return demand


def least_utilisation(demand, ports, whole):
    """1 / theta of the largest theta that fits; columns are ways, pairs of blocks, theta."""
    pairs = list(itertools.permutations(range(BLOCKS), 2))
    ways = [(i, k, j) for i, j in pairs for k in range(BLOCKS) if k != j]
    cables = list(itertools.combinations(range(BLOCKS), 2))
    width = len(ways) + len(cables) + 1
    sent, load = lil_array((len(pairs), width)), lil_array((len(pairs), width))
    plugged = lil_array((BLOCKS, width))
    row = {pair: number for number, pair in enumerate(pairs)}
    for column, (i, k, j) in enumerate(ways):
        sent[row[i, j], column] = 1
        for link in [(i, j)] if k == i else [(i, k), (k, j)]:
            load[row[link], column] += 1
    for number, (a, b) in enumerate(cables):
        column = len(ways) + number
        load[row[a, b], column] = load[row[b, a], column] = -1
        plugged[a, column] = plugged[b, column] = 1
    for pair in pairs:
        sent[row[pair], width - 1] = -demand[pair]
    integral = np.zeros(width)
    integral[len(ways) : width - 1] = whole
    found = milp(
        -np.eye(width)[-1],
        integrality=integral,
        bounds=Bounds(0, np.inf),
        constraints=[
            LinearConstraint(sent.tocsr(), 0, 0),
            LinearConstraint(load.tocsr(), -np.inf, 0),
            LinearConstraint(plugged.tocsr(), -np.inf, ports),
        ],
        options={"mip_rel_gap": 1e-5},
    )
    assert found.status == 0
    return -1 / found.fun


# Few ports are the hardest to round: there all scores of the default, elsewhere fewer do.
@pytest.mark.parametrize(("ports", "seed", "scores"), [(8, 0, None), (16, 1, 120), (32, 2, 120)])
def test_whole_circuits_are_within_2_percent_of_the_proved_optimum(ports, seed, scores):
    demand = traffic(seed)
    best = least_utilisation(demand, ports, whole=True)
    found = circuits(demand, ports, 1.0, scores=scores, seed=seed)
    assert best * (1 - 1e-6) <= found.objective <= 1.02 * best
    assert found.bound <= best * (1 + 1e-6)
    # The uniform mesh with its best splits is what an operator has without looking at traffic.
    assert found.uniform >= 1.2 * found.objective


@pytest.mark.parametrize("demand", [traffic(3), one_way(0), one_way(1)], ids=["even", "a", "b"])
def test_circuits_of_any_fractions_reach_the_linear_programme(demand):
    best = least_utilisation(demand, 16, whole=False)
    found = circuits(demand, 16, 1.0, scores=20)
    np.testing.assert_allclose(found.relaxed_bound, best, rtol=1e-6)
    assert best * (1 - 1e-6) <= found.relaxed <= best / 0.999


def test_branch_and_bound_closes_the_gap():
    demand = traffic(4)
    best = least_utilisation(demand, 16, whole=True)
    found = circuits(demand, 16, 1.0, scores=60, prove="60s")
    np.testing.assert_allclose([found.objective, found.bound], best, rtol=1e-4)
    assert found.certified
