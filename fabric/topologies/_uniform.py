"""The uniform design of a two-tier fabric: equal cables between every leaf and every spine."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fabric._errors import ModelError, raise_faults, some
from fabric._units import parse_rate
from fabric.network import Network
from fabric.topologies._servers import INSIDE_KINDS

_TIER = "leaf-spine"


@dataclass(frozen=True, eq=False)
class UniformDesign:
    """What a two-tier fabric would be with equal cables between every leaf and every spine.

    Attributes:
        network: The design: same nodes, other cables untouched. Link numbers of the leaf-spine
            cables that stay are those of the original when `extra` is 0 and none had failed.
        per_pair: Cables between each leaf and each spine.
        capacity: byte/s per direction of each of them.
        cables: Leaf-spine cables of the design. `have`: live ones now.
        missing: To plug. `extra`: beyond `per_pair` now.
        missing_pairs: (leaf, spine, how many) by node number, most missing first.
        short_leaves, short_spines: Switches with missing cables, most missing first:
            `{"switch", "kind", "have", "want", "missing"}`.
    """

    network: Network
    per_pair: int
    capacity: float
    cables: int
    have: int
    missing: int
    extra: int
    missing_pairs: list[tuple[int, int, int]]
    short_leaves: list[dict[str, Any]]
    short_spines: list[dict[str, Any]]

    @property
    def short(self) -> list[dict[str, Any]]:
        """All switches with missing cables: spines, then leaves."""
        return self.short_spines + self.short_leaves


def why_not_uniform(network: Network) -> str:
    """Return in a sentence why a network has no uniform design, or "" if it has one.

    Examples:
        >>> from fabric.network import Blueprint
        >>> plan = Blueprint()
        >>> plan.cables("link", plan.nodes("node", "a{}", (2,)), plan.nodes("node", "b", ()), 1e9)
        >>> why_not_uniform(plan.network("star"))
        'It has no leaf and no spine.'
    """
    labels = network.labels
    lacking = [kind for kind in ("leaf", "spine") if kind not in labels.present_kinds]
    if lacking:
        return f"It has no {' and no '.join(lacking)}."
    forwards = np.asarray(labels.forwards)
    if "plane" in labels.tags:
        return "Its planes are isolated, so not every leaf meets every spine."
    if labels.about.get("rails") == "forward":
        return "Its rails are isolated, so not every leaf meets every spine."
    others = np.flatnonzero(forwards & ~labels.is_kind("leaf", "spine", *INSIDE_KINDS))
    if len(others):
        kinds = sorted({labels.kinds[labels.kind_of[node]] for node in others})
        return f"It has other switches than leaves and spines: {some(kinds)}."
    count, _, _ = _pairs(network)
    if _mode(count.ravel()) == 0:
        return "Most pairs of leaf and spine have no cable, so it is no full mesh of the two."
    return ""


def uniform_design(network: Network) -> UniformDesign | None:
    """Return what a two-tier fabric would be with equal leaf-spine cabling, or None.

    The number of cables per pair of leaf and spine is the most common one now, and their capacity
    the most common capacity; at a tie the larger. A failed cable counts as missing.

    Args:
        network: With kinds `leaf` and `spine` and no other switch; else the result is None and
            `why_not_uniform` says why.

    Examples:
        One of four cables is not there:

        >>> from fabric.network import Blueprint
        >>> plan = Blueprint()
        >>> leaf, spine = plan.nodes("leaf", "leaf{}", (2,)), plan.nodes("spine", "spine{}", (2,))
        >>> plan.cables("leaf-spine", leaf[[0, 0, 1]], spine[[0, 1, 0]], 50e9)
        >>> design = uniform_design(plan.network("partly cabled"))
        >>> design.cables, design.have, design.missing_pairs
        (4, 3, [(1, 3, 1)])
    """
    if why_not_uniform(network):
        return None
    labels = network.labels
    count, cable, pair = _pairs(network)
    leaves = np.flatnonzero(labels.is_kind("leaf"))
    spines = np.flatnonzero(labels.is_kind("spine"))
    per_pair = int(_mode(count.ravel()))
    lack = np.maximum(per_pair - count, 0)
    between = _between(network)
    capacity = float(_mode(np.asarray(network.capacity)[between & np.asarray(network.alive)]))

    # The first `per_pair` live cables of each pair stay, so that their link numbers do.
    order = np.argsort(pair, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(pair, minlength=count.size))])
    rank = np.arange(len(order)) - starts[pair[order]]
    stays = np.isin(labels.cable_of, cable[order[rank < per_pair]])
    kept = ~between | stays
    base = Network(
        np.where(between, capacity, np.asarray(network.capacity))[kept],
        np.asarray(network.latency)[kept],
        np.asarray(network.alive)[kept],
        np.asarray(network.routing_cost)[kept],
        labels=labels.keep_links(kept),
    )
    rows, columns = np.nonzero(lack)
    missing_pairs = sorted(
        (
            (int(leaves[i]), int(spines[j]), int(lack[i, j]))
            for i, j in zip(rows, columns, strict=True)
        ),
        key=lambda row: (-row[2], row[0], row[1]),
    )
    return UniformDesign(
        network=plug(base, missing_pairs, capacity),
        per_pair=per_pair,
        capacity=capacity,
        cables=per_pair * count.size,
        have=int(count.sum()),
        missing=int(lack.sum()),
        extra=int(np.maximum(count - per_pair, 0).sum()),
        missing_pairs=missing_pairs,
        short_leaves=_short(network, leaves, count, lack, per_pair),
        short_spines=_short(network, spines, count.T, lack.T, per_pair),
    )


def plug(network: Network, pairs: Iterable[tuple[int, int, int]], capacity: float | str) -> Network:
    """Return a network with more leaf-spine cables; links that were there keep their numbers.

    Latency and routing cost are the most common ones of the leaf-spine cables. Ports of the new
    cables are unknown (0).

    Args:
        network: With labels.
        pairs: (leaf, spine, how many) by node number.
        capacity: byte/s per direction, or text with its unit.

    Raises:
        ModelError: If a pair is no leaf and spine of this network, or a count is negative.

    Examples:
        >>> from fabric.network import Blueprint
        >>> plan = Blueprint()
        >>> leaf, spine = plan.nodes("leaf", "leaf{}", (1,)), plan.nodes("spine", "spine{}", (1,))
        >>> plan.cables("leaf-spine", leaf, spine, 50e9)
        >>> plug(plan.network("one cable"), [(0, 1, 2)], "400Gb/s").n_links
        6
    """
    labels = network.labels
    rate = parse_rate(capacity, "capacity")
    rows = [(int(leaf), int(spine), int(count)) for leaf, spine, count in pairs]
    kind = lambda node: labels.kinds[labels.kind_of[node]] if 0 <= node < labels.n_nodes else ""
    bad = [row for row in rows if (kind(row[0]), kind(row[1])) != ("leaf", "spine") or row[2] < 0]
    if bad:
        message = (
            f"`plug(pairs=...)` needs (leaf, spine, count of 0 or more) by node number, but "
            f"{len(bad):,} of {len(rows):,} are not: {some(bad)}."
        )
        raise_faults([message])
    a, b, count = np.array(rows, np.int32).reshape(-1, 3).T
    a, b = np.repeat(a, count), np.repeat(b, count)
    n = 2 * len(a)
    if not n:
        return network
    between = _between(network)
    usual = lambda values, default: _mode(values[between]) if between.any() else default
    both = lambda x, y: np.stack([x, y], 1).ravel()
    added = lambda old, new: np.concatenate([old, np.full(n, new, old.dtype)])
    # Where the fabric has no leaf-spine cable yet, its tiers may not know the word.
    tiers = labels.tiers if _tier(network) in labels.tiers else (*labels.tiers, _TIER)
    first = int(labels.cable_of.max(initial=-1)) + 1
    new_cables = np.repeat(np.arange(first, first + len(a)), 2)
    longer = replace(
        labels,
        src=np.concatenate([labels.src, both(a, b)]).astype(labels.src.dtype),
        dst=np.concatenate([labels.dst, both(b, a)]).astype(labels.dst.dtype),
        tiers=tiers,
        tier_of=added(labels.tier_of, tiers.index(_tier(network))),
        cable_of=np.concatenate([labels.cable_of, new_cables]).astype(labels.cable_of.dtype),
        src_port=None if labels.src_port is None else added(labels.src_port, 0),
        dst_port=None if labels.dst_port is None else added(labels.dst_port, 0),
    )
    latency, cost = np.asarray(network.latency), np.asarray(network.routing_cost)
    return Network(
        added(np.asarray(network.capacity), rate),
        added(latency, usual(latency, 0.0)),
        added(np.asarray(network.alive), True),
        added(cost, usual(cost, 1)),
        labels=longer,
    )


def _between(network: Network) -> np.ndarray:
    """Return which links join a leaf and a spine, by the kinds of their ends."""
    labels = network.labels
    leaf, spine = labels.is_kind("leaf"), labels.is_kind("spine")
    return (leaf[labels.src] & spine[labels.dst]) | (spine[labels.src] & leaf[labels.dst])


def _tier(network: Network) -> str:
    """Return what this network calls the tier between leaf and spine."""
    labels = network.labels
    codes = labels.tier_of[_between(network)]
    return labels.tiers[int(_mode(codes))] if len(codes) else _TIER


def _pairs(network: Network) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return live cables per (leaf, spine), and the cable number and flat pair of each."""
    labels = network.labels
    place = np.zeros(labels.n_nodes, np.int64)
    shape = []
    for kind in ("leaf", "spine"):
        nodes = np.flatnonzero(labels.is_kind(kind))
        place[nodes] = np.arange(len(nodes))
        shape.append(len(nodes))
    up = _between(network) & np.asarray(network.alive) & labels.is_kind("leaf")[labels.src]
    links = np.flatnonzero(up)
    pair = place[labels.src[links]] * shape[1] + place[labels.dst[links]]
    count = np.bincount(pair, minlength=shape[0] * shape[1]).reshape(shape)
    return count, labels.cable_of[links], pair


def _mode(values: np.ndarray) -> Any:
    """Return the most common value, at a tie the largest."""
    if not len(values):
        message = "There is no live cable between leaves and spines."
        raise ModelError(message)
    found, counts = np.unique(values, return_counts=True)
    return found[counts == counts.max()][-1]


def _short(
    network: Network, switches: np.ndarray, count: np.ndarray, lack: np.ndarray, per_pair: int
) -> list[dict[str, Any]]:
    labels = network.labels
    rows = [
        {
            "switch": labels.names[int(node)],
            "kind": labels.kinds[labels.kind_of[node]],
            "have": int(have.sum()),
            "want": per_pair * len(have),
            "missing": int(gone.sum()),
        }
        for node, have, gone in zip(switches, count, lack, strict=True)
        if gone.any()
    ]
    return sorted(rows, key=lambda row: (-row["missing"], row["switch"]))
