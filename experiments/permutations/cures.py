"""A53: what gives back the bandwidth that hashing loses, and how much of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import fabric as fb
from experiments.permutations.drawn import Drawn, Pairs, Route, draw, hashed, sprayed
from experiments.rows import Row
from fabric.network import Flows, Network

QUEUE_PAIRS = (1, 2, 4, 8, 16)
SUBPATHS = (2, 4, 8, 16)
GROUPS = (8, 32, 64, 256, 1024)
CLAIM = "a rule of planning guides, no document named"


def cures(net: Network, draws: int) -> tuple[list[Row], dict[str, Any]]:
    """Return A53 on a leaf-spine network: rows of what cures wholly, series of what does in part.

    Args:
        net: With hosts ordered by leaf.
        draws: Permutations of each case.
    """
    whole = {
        "A53 spray, mean rate": draw(net, sprayed, draws),
        "A53 adaptive, mean rate": draw(net, _adaptive, draws),
        "A53 groups under one leaf, mean rate": draw(net, hashed(), draws, grouped(32)),
        "A53 ring in the order of leaves, mean rate": draw(net, hashed(), draws, ring(True)),
    }
    rows = [Row(name, 1, found.mean, "", 1e-9, CLAIM) for name, found in whole.items()]
    pairs = [draw(net, hashed(n), draws) for n in QUEUE_PAIRS]
    subpaths = [draw(net, _flowlets(n), draws) for n in SUBPATHS]
    groups = [draw(net, hashed(), draws, grouped(size)) for size in GROUPS]
    summary = {
        "A53 queue pairs": list(QUEUE_PAIRS),
        **series("A53 queue pairs", pairs),
        "A53 queue pairs, mean rate, a message waits for its slowest": [
            round(found.mean_whole, 4) for found in pairs
        ],
        "A53 flowlets, subpaths": list(SUBPATHS),
        **series("A53 flowlets", subpaths),
        "A53 hosts of a group placed together": list(GROUPS),
        **series("A53 groups", groups),
        **series("A53 ring in random order", [draw(net, hashed(), draws, ring(False))]),
    }
    return rows, summary


def series(name: str, found: Sequence[Drawn]) -> dict[str, list[float]]:
    """Return mean and slowest rate of some cases, by name."""
    return {
        f"{name}, mean rate": [round(each.mean, 4) for each in found],
        f"{name}, slowest": [round(each.slowest, 4) for each in found],
    }


def grouped(size: int) -> Pairs:
    """Return permutations within groups of hosts that were placed next to each other."""

    def pairs(network: Network, seed: int) -> Flows:
        hosts = network.hosts.reshape(-1, size)
        parts = [permuted_hosts(group, seed * len(hosts) + i) for i, group in enumerate(hosts)]
        return Flows(*(np.concatenate(ends) for ends in zip(*parts, strict=True)))

    return pairs


def permuted_hosts(hosts: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of a permutation of some hosts, those that stay in place left out."""
    flows = fb.traffic.permutation(hosts, seed=seed, fixed_points=True)
    return np.asarray(flows.src), np.asarray(flows.dst)


def ring(by_leaf: bool) -> Pairs:
    """Return a ring over all hosts, in the order of their leaves or in a random one."""

    def pairs(network: Network, seed: int) -> Flows:
        order = np.array(network.hosts)
        if not by_leaf:
            order = np.random.default_rng(seed).permutation(order)
        return Flows(order, np.roll(order, -1))

    return pairs


def _flowlets(subpaths: int) -> Route:
    return lambda network, flows, seed: fb.routing.flowlet(network, flows, n=subpaths, seed=seed)


def _adaptive(network: Network, flows: Flows, _seed: int) -> fb.Routes:
    return fb.routing.adaptive(network, flows)
