"""Placements against all that there are, and on a fragmented cluster against sorting by topology.

Small: eight ranks on a tree, a torus and a Clos network with half the speed at the top, each rank
sending to some others, sizes drawn; the truth is the best of all 40,320 placements, scored by the
exact solver. Large: 1,024 GPUs on servers that are left of a rail-optimized fabric with 4:1 at the
leaves, 16 servers of a stage exchanging all to all, stages passing on to the next ones.
"""

import itertools
from typing import NamedTuple

import numpy as np

import fabric as fb
from experiments.optimizers.limits import at_least
from experiments.rows import Row
from fabric.network import Network
from fabric.optimize import placement
from fabric.optimize._placement_input import rule_of, slots_of, traffic_of
from fabric.optimize._placement_score import Scorer
from fabric.optimize._placement_ways import units_of, ways_of
from fabric.optimize._swaps import Descent, Search

TARGET = "target of this project"
SERVERS, MISSING = 135, 7
STAGES, GROUP, GPUS = 8, 16, 8


class Small(NamedTuple):
    """Best of 32 starts, and the truth."""

    regret: float
    control: float  # regret of random starts with exchanges
    first: float  # regret of the order of the topology
    evaluations: int


def rows(smoke: bool = False) -> list[Row]:
    """Return every row; with `smoke` one seed of each, and few evaluations of the large one."""
    found: list[Row] = []
    for name, net in networks().items():
        small = [regret(net, seed) for seed in range(1 if smoke else 6)]
        worst = max(case.regret for case in small)
        found.append(Row(
            f"8 ranks on a {name}, worst regret in best of 32 over {len(small)} seeds", 0.0,
            0.0 if abs(worst) < 1e-12 else worst, "", 1e-9, TARGET,
            f"order of the topology {max(case.first for case in small):.2f}, random and swaps "
            f"{max(case.control for case in small):.1e}; at most "
            f"{max(case.evaluations for case in small):,} evaluations of 40,320",
        ))  # fmt: skip
    for seed in range(1 if smoke else 3):
        found += large(seed, 200 if smoke else 3000, 2 if smoke else 8)
    return found


def networks() -> dict[str, Network]:
    """Return three networks of eight endpoints."""
    return {
        "tree": fb.topologies.leaf_spine(leaves=4, spines=1, hosts_per_leaf=2),
        "torus": fb.topologies.torus((2, 2, 2)),
        "clos": fb.topologies.clos(
            8, radix=4, tiers=3, hosts_per_leaf=2, leaves_per_pod=2, core_oversubscription=2
        ),
    }


def drawn(seed: int) -> np.ndarray:
    """Return bytes between eight ranks, two in five of the pairs, sizes lognormal."""
    rng = np.random.default_rng(seed)
    demand = rng.lognormal(0, 1, (8, 8)) * 1e9 * (rng.random((8, 8)) < 0.4)
    np.fill_diagonal(demand, 0)
    return demand


def regret(net: Network, seed: int) -> Small:
    """Return how far the search is from the best of all placements."""
    demand = drawn(seed)
    asked, slots = traffic_of(demand, None), slots_of(net, None, 8, None)
    rule = rule_of("spray", 0)
    score = Scorer(net, asked, slots, rule, ways_of(net, slots, rule), fluid=False)
    truth = score(np.array(list(itertools.permutations(range(8)))))[0].min()
    # Fewer than there are placements that differ, so that not all are tried.
    found = placement(net, demand, starts=32, budget=2500, seed=seed)
    of = lambda seconds: float(seconds / truth - 1)
    return Small(of(found.objective), of(found.control), of(found.before), found.evaluations)


def large(seed: int, budget: int, starts: int) -> list[Row]:
    """Return the rows of one fragmented cluster."""
    net = fragmented(seed)
    found = placement(net, step(), budget=budget, starts=starts, seed=seed)
    plain = from_sorted(net, found.evaluations + found.steps, seed)
    gpus = len(found.servers)
    name = f"{gpus:,} GPUs, {MISSING} of {SERVERS} servers missing, seed {seed}"
    return [
        at_least(f"{name}, sorted order over ours", 1.0, found.before / found.objective, "", TARGET,
                 f"{found.before:.4f} s to {found.objective:.4f} s, bound {found.bound:.4f} s, "
                 f"{found.evaluations:,} evaluations in {found.seconds:.0f} s"),
        at_least(f"{name}, random and swaps over ours", 1.0, found.control / found.objective, "",
                 TARGET, f"{found.control:.4f} s with {found.evaluations + found.steps:,} "
                 f"evaluations, gradients counted; from the sorted order, exchanges in random "
                 f"order, {plain:.4f} s"),
    ]  # fmt: skip


def fragmented(seed: int) -> Network:
    """Return what is left of a cluster."""
    net = fb.topologies.rail_optimized(servers=SERVERS, leaf_up=8, servers_per_unit=32)
    gone = np.random.default_rng(seed).choice(SERVERS, MISSING, replace=False)
    return net.without(nodes=np.isin(net.labels.tags["server"], gone) & net.labels.endpoint)


def from_sorted(net: Network, evaluations: int, seed: int) -> float:
    """Return the seconds that exchanges in random order reach from the order of the topology."""
    asked = traffic_of(step(), None)
    slots = slots_of(net, None, asked.n_ranks, None)
    rule = rule_of("spray", 0)
    ways = ways_of(net, slots, rule)
    score = Scorer(net, asked, slots, rule, ways, fluid=False)
    search = Search(score, slots, units_of(slots, ways), asked.n_ranks, evaluations, 0.0)
    (begun,) = search.score(np.arange(slots.n_slots)[None])
    search.descend(
        Descent(begun, 0), lambda start, turn: np.random.default_rng([seed, start, turn]), None
    )
    return search.best.seconds


def step() -> list[fb.Flows]:
    """Return two phases: all to all in every stage, rail by rail, and from stage to stage."""
    ranks = np.arange(STAGES * GROUP * GPUS).reshape(STAGES, GROUP, GPUS)
    i, j = np.nonzero(~np.eye(GROUP, dtype=bool))
    ends, next_ends = ranks[:-1].ravel(), ranks[1:].ravel()
    return [
        fb.Flows(ranks[:, i].ravel(), ranks[:, j].ravel(), size=2e9 / (GROUP - 1)),
        fb.Flows(np.r_[ends, next_ends], np.r_[next_ends, ends], size=1e9),
    ]
