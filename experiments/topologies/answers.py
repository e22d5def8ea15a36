"""What can be said of an entry: values by key, how each was got, and why others were not."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fabric import topologies
from fabric._errors import FabricError
from fabric.network import Network

BUILT, COUNTED, ARITHMETIC = "built", "counted by its builder", "arithmetic"
"""From a network that was built; from `topologies.sizes`; from stated facts of the entry."""


@dataclass
class Answers:
    """Values and reasons of one entry.

    Attributes:
        values: By key of the entry.
        how: By the same key, one of `BUILT`, `COUNTED` and `ARITHMETIC`, and more words.
        reasons: Why a key has no value.
    """

    values: dict[str, Any] = field(default_factory=dict)
    how: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def put(self, how: str, **values: Any) -> None:
        """Add values that were got in one way."""
        self.values |= values
        self.how |= dict.fromkeys(values, how)

    def skip(self, reason: str, *keys: str) -> None:
        """Add keys that are not computed."""
        self.reasons |= dict.fromkeys(keys, reason)


def kinds(net: Network) -> dict[str, int]:
    """Return how many nodes there are of each kind; 0 for a kind that is absent."""
    counts: dict[str, int] = dict.fromkeys(
        ("gpu", "nic", "host", "leaf", "spine", "core", "nvswitch", "pcie-switch", "router"), 0
    )
    return counts | {kind: int(net.labels.is_kind(kind).sum()) for kind in net.labels.kinds}


def cables(net: Network) -> dict[str, int]:
    """Return how many cables each tier has, every link pair counted; 0 for one that is absent."""
    tiers = dict.fromkeys(("host", "leaf-spine", "spine-core", "optical", "cube"), 0)
    return tiers | {tier: int(net.labels.is_tier(tier).sum()) // 2 for tier in net.labels.tiers}


def ports(net: Network, kind: str, tier: str | None = None) -> int:
    """Return the cables of the node of a kind that has most, of one tier or of all."""
    only = slice(None) if tier is None else net.labels.is_tier(tier)
    used = np.bincount(net.labels.src[only], minlength=net.n_nodes)
    return int(used[net.labels.is_kind(kind)].max())


def per_pair(net: Network, tier: str, tags: tuple[np.ndarray, np.ndarray] | None = None) -> int:
    """Return the cables between two nodes of a tier, or two groups, where all pairs have as many.

    Args:
        net: With labels.
        tier: Of the cables.
        tags: What stands for the ends of every link. Default: the nodes.
    """
    only = net.labels.is_tier(tier)
    src, dst = (net.labels.src, net.labels.dst) if tags is None else tags
    ends = np.stack([src[only], dst[only]])
    _, counts = np.unique(ends, axis=1, return_counts=True)
    if len(set(counts.tolist())) != 1:
        message = f"pairs of tier {tier} differ: {sorted(set(counts.tolist()))} cables"
        raise ValueError(message)
    return int(counts[0])


def carried(net: Network, src: np.ndarray, dst: np.ndarray) -> float:
    """Return byte/s of all live links from nodes of one mask to nodes of another."""
    links = src[net.labels.src] & dst[net.labels.dst] & np.asarray(net.alive)
    return float(np.asarray(net.capacity, np.float64)[links].sum())


def without_tiers(net: Network, *tiers: str) -> Network:
    """Return a network with all links of some tiers failed."""
    dead = np.zeros(net.n_links, bool)
    for tier in tiers:
        dead |= net.labels.is_tier(tier) if tier in net.labels.tiers else False
    return net.with_alive(np.asarray(net.alive) & ~dead)


def nic(net: Network, server: int, rail: int = 0) -> int:
    """Return the NIC of a server on a rail."""
    tags = net.labels.tags
    where = net.labels.is_kind("nic") & (tags["server"] == server) & (tags["rail"] == rail)
    return int(np.flatnonzero(where)[0])


def way(net: Network, src: int, dst: int) -> tuple[int, int, int, int]:
    """Return links and switches between two nodes, and shortest ways over nodes and cables."""
    found = topologies.path_counts(net, [(src, dst)])
    columns = (found.links, found.switches, found.by_nodes, found.by_cables)
    links, switches, by_nodes, by_cables = (int(column[0]) for column in columns)
    return links, switches, by_nodes, by_cables


def largest(fits: Callable[[int], object]) -> int:
    """Return the largest whole number that a builder takes, by doubling and halving."""

    def taken(n: int) -> bool:
        try:
            fits(n)
        except FabricError:
            return False
        return True

    low = 1
    while taken(2 * low):
        low *= 2
    high = 2 * low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if taken(middle) else (low, middle)
    return low
