"""A fabric in numbers: hosts and rails, and the record that `fabric topo` prints."""

import re
from collections import Counter, defaultdict
from typing import Any

import numpy as np

from fabric.network import ENDPOINT_KINDS, Network
from fabric.readers._reading import Reading
from fabric.topologies._uniform import uniform_design, why_not_uniform

_MAJORITY = 3


def hosts_survey(network: Network) -> dict[str, Any]:
    """Return how many adapters the hosts have, and which hosts have rails swapped.

    Hosts come from the tag `host` (text, from a reader) or `server` (numbers, from a builder); a
    network with neither has one adapter per host.

    Args:
        network: With labels.

    Returns:
        `count`, `nics_per_host` (hosts by number of named adapters), `four_rail` (hosts with
        exactly four), `unnamed_nics` (adapters whose name tells no host) and `swapped_rails`.

    Examples:
        >>> from fabric.network import Blueprint
        >>> plan = Blueprint()
        >>> leaf = plan.nodes("leaf", "leaf{}", (4,))
        >>> nic = plan.nodes("nic", "s{}-nic{}", (2, 4), server=np.arange(2)[:, None])
        >>> plan.cables("host", nic, leaf, 50e9)
        >>> hosts_survey(plan.network("rails"))["four_rail"]
        2
    """
    labels = network.labels
    ends = network.hosts
    owner = labels.tags["host" if "host" in labels.tags else "server"][ends] if (
        "host" in labels.tags or "server" in labels.tags
    ) else ends  # fmt: skip
    named = owner != "" if owner.dtype.kind == "U" else owner >= 0
    _, sizes = np.unique(owner[named], return_counts=True)
    per_host = Counter(sizes.tolist())
    return {
        "count": len(sizes),
        "nics_per_host": {str(n): per_host[n] for n in sorted(per_host, reverse=True)},
        "four_rail": per_host[4],
        "unnamed_nics": int((~named).sum()),
        "swapped_rails": swapped_rails(network),
    }


def swapped_rails(network: Network) -> list[dict[str, Any]]:
    """Return the hosts whose adapters reach their leaves in another order than their neighbours'.

    Hosts with the same number of adapters and the same set of leaves are compared. Adapters are
    ranked by the numbers in their names, so `HCA-1, HCA-2` and `mlx5_0, mlx5_1` rank alike. Only
    where more than half of a group, and at least three hosts, agree are the others reported.

    Args:
        network: With the tags `host` and `hca`, as a reader gives them; else nothing is compared.

    Returns:
        Per deviating host `host`, `rails` (adapters that differ), `found` and `expected` (leaves).

    Examples:
        >>> from fabric.network import Blueprint
        >>> plan = Blueprint()
        >>> plan.cables("host", plan.nodes("nic", "n{}", (2,)), plan.nodes("leaf", "l", ()), 1e9)
        >>> swapped_rails(plan.network("no names"))
        []
    """
    labels = network.labels
    if "host" not in labels.tags or "hca" not in labels.tags:
        return []
    leaf = _first_switch(network)
    rails: dict[str, list[tuple[list[Any], int]]] = defaultdict(list)
    for nic in network.hosts.tolist():
        if (host := str(labels.tags["host"][nic])) and leaf[nic] >= 0:
            rails[host].append((_natural(str(labels.tags["hca"][nic])), nic))
    groups: dict[tuple[int, frozenset[int]], list[tuple[str, list[int]]]] = defaultdict(list)
    for host, ranked in rails.items():
        nics = [nic for _, nic in sorted(ranked)]
        groups[len(nics), frozenset(leaf[nics].tolist())].append((host, nics))
    found: list[dict[str, Any]] = []
    for members in groups.values():
        order = {host: tuple(leaf[nics].tolist()) for host, nics in members}
        usual, votes = Counter(order.values()).most_common(1)[0]
        if votes < _MAJORITY or 2 * votes <= len(members):
            continue
        for host, nics in members:
            wrong = [i for i, (a, b) in enumerate(zip(order[host], usual, strict=True)) if a != b]
            if wrong:
                name = lambda node: labels.names[int(node)]
                found.append(
                    {
                        "host": host,
                        "rails": [str(labels.tags["hca"][nics[i]]) for i in wrong],
                        "found": [name(order[host][i]) for i in wrong],
                        "expected": [name(usual[i]) for i in wrong],
                    }
                )
    return sorted(found, key=lambda row: row["host"])


def summary(subject: Reading | Network) -> dict[str, Any]:
    """Return a fabric in numbers, schema `fabric.topo/1`.

    Args:
        subject: What a reader returned, or the network of a builder.

    Returns:
        Plain dicts, lists, numbers and text, ready for `json.dumps`. `cables` and
        `uniform_design` count live cables; `failed_cables` the others.

    Examples:
        >>> from fabric.network import Blueprint
        >>> plan = Blueprint()
        >>> plan.cables("host", plan.nodes("nic", "n{}", (2,)), plan.nodes("leaf", "l", ()), 1e9)
        >>> found = summary(plan.network("one leaf"))
        >>> found["nodes"], found["cables"], found["format"]
        ({'leaf': 1, 'nic': 2}, {'host': 2}, 'builder')
    """
    reading, network = (
        (subject, subject.network) if isinstance(subject, Reading) else (None, subject)
    )
    labels = network.labels
    alive = np.asarray(network.alive)
    cables, first = np.unique(labels.cable_of[alive], return_index=True)
    per_tier = np.bincount(labels.tier_of[alive][first], minlength=len(labels.tiers))
    failed = len(np.unique(labels.cable_of)) - len(cables)
    of_kind = np.bincount(labels.kind_of, minlength=len(labels.kinds))
    nodes = {kind: int(n) for kind, n in zip(labels.kinds, of_kind, strict=True) if n}
    result: dict[str, Any] = {
        "schema": "fabric.topo/1",
        "source": reading.source if reading else labels.source,
        "format": reading.format if reading else "builder",
        "confidence": reading.confidence if reading else 1.0,
        "nodes": dict(sorted(nodes.items(), key=lambda item: _place(item[0]))),
        "cables": {t: int(n) for t, n in zip(labels.tiers, per_tier, strict=True) if n},
        "records": reading.records if reading else len(cables) + failed,
        "tiers_note": _tiers_note(reading),
        "switches": int(np.sum(labels.forwards & ~labels.endpoint & ~labels.is_kind("router"))),
        "uniform_design": _design(network),
        "hosts": hosts_survey(network),
        "ignored": reading.ignored if reading else [],
        "contradicted": reading.contradicted if reading else [],
        "warnings": reading.warnings if reading else [],
        "fingerprint": reading.fingerprint if reading else None,
    }
    result["cables"] = dict(sorted(result["cables"].items(), key=lambda kv: kv[0] == "host"))
    if failed:
        result["failed_cables"] = failed
    return result


def _design(network: Network) -> dict[str, Any]:
    design = uniform_design(network)
    if design is None:
        return {"none": why_not_uniform(network)}
    return {
        "leaf-spine": design.cables,
        "per_pair": design.per_pair,
        "have": design.have,
        "missing": design.missing,
        "extra": design.extra,
        "short": design.short,
    }


def _tiers_note(reading: Reading | None) -> str:
    if reading is None:
        return "tiers as the builder named them"
    if reading.format == "ibnetdiscover":
        return "leaf and spine by who has hosts"
    return "tiers as the file names them"


def _place(kind: str) -> int:
    """Return where a kind stands in a list: leaves, what is above them, then endpoints."""
    order = ("leaf", "edge", "spine", "aggregation", "core", "switch", "router")
    if kind in ENDPOINT_KINDS:
        return len(order) + 1
    return order.index(kind) if kind in order else len(order)


def _first_switch(network: Network) -> np.ndarray:
    """Return the first node that forwards which each node has a link to, -1 for none."""
    labels = network.labels
    up = np.flatnonzero(np.asarray(labels.forwards)[labels.dst])[::-1]
    first = np.full(labels.n_nodes, -1, np.int64)
    first[labels.src[up]] = labels.dst[up]
    return first


def _natural(name: str) -> list[Any]:
    """Return a key that sorts by the numbers in a name first, then by its words."""
    return [[int(digits) for digits in re.findall(r"\d+", name)], name]
