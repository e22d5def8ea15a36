"""Networks from and to `networkx` graphs: what users hold at the edge, never in a hot path."""

from collections import defaultdict
from typing import Any

import networkx as nx
import numpy as np

from fabric._errors import raise_faults, some
from fabric._units import parse_rate, parse_time
from fabric.network._checks import capacity_faults
from fabric.network._labels import Labels
from fabric.network._network import Network

_RESERVED = {"kind", "name", "id", "endpoint", "forwards"}


def from_networkx(
    graph: "nx.Graph[Any]",
    *,
    capacity: str = "capacity",
    latency: str = "latency",
    routing_cost: str = "routing_cost",
    default_capacity: str | float | None = None,
    source: str = "networkx graph",
) -> Network:
    """Return a network with one node per graph node; see `Network.from_networkx`."""
    nodes = list(graph.nodes)
    number = {node: i for i, node in enumerate(nodes)}
    if graph.is_multigraph():
        edges: list[tuple[Any, ...]] = list(graph.edges(keys=True, data=True))  # pyright: ignore[reportCallIssue]
    else:
        edges = [(a, b, 0, data) for a, b, data in graph.edges(data=True)]
    faults: list[str] = []
    missing = [_edge_name(e) for e in edges if capacity not in e[3]]
    if missing and default_capacity is None:
        faults.append(
            f"`Network.from_networkx(capacity='{capacity}')`: {len(missing):,} of {len(edges):,} "
            f"edges have no such attribute: {some(missing)}. Name the attribute that holds it, "
            f"or give `default_capacity='400Gb/s'`."
        )
    if not edges:
        faults.append("`Network.from_networkx(...)`: the graph has no edge, so there is no cable.")
    raise_faults(faults)
    fallback = 0.0 if default_capacity is None else parse_rate(default_capacity, "default_capacity")
    rates = np.array([_rate(e, capacity, fallback, faults) for e in edges])
    delays = np.array([parse_time(e[3].get(latency, 0.0), latency) for e in edges])
    costs = np.array([_cost(e, routing_cost, faults) for e in edges], np.int32)
    faults += capacity_faults(
        "Network.from_networkx(...)", np.nan_to_num(rates, nan=0.0), lambda i: _edge_name(edges[i])
    )
    raise_faults(faults)

    a = np.array([number[e[0]] for e in edges], np.int32)
    b = np.array([number[e[1]] for e in edges], np.int32)
    alive = np.array([bool(e[3].get("alive", True)) for e in edges])
    tier_names = [str(e[3].get("tier", "link")) for e in edges]
    tiers, tier_of = np.unique(tier_names, return_inverse=True)
    if graph.is_directed():
        cable, pick = _pair_up(a, b, [e[3].get("cable") for e in edges]), np.arange(len(edges))
        src, dst = a, b
    else:
        pick = np.repeat(np.arange(len(edges)), 2)
        cable = pick
        src, dst = np.stack([a, b], 1).ravel(), np.stack([b, a], 1).ravel()
    labels = Labels(
        src=src,
        dst=dst,
        tiers=tuple(map(str, tiers)),
        tier_of=tier_of.astype(np.int8)[pick],
        cable_of=cable.astype(np.int32),
        source=source,
        **_node_labels(graph, nodes),
    )
    return Network(rates[pick], delays[pick], alive[pick], costs[pick], labels=labels)


def to_networkx(network: Network) -> "nx.MultiDiGraph[str]":
    """Return a directed multigraph; see `Network.to_networkx`."""
    labels = network.labels
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=labels.source)
    keys = list(labels.ids) if labels.ids is not None else list(labels.names)
    if len(set(keys)) < len(keys):
        keys = [str(i) for i in range(len(keys))]
    for node, key in enumerate(keys):
        tags = {
            name: values[node].item() for name, values in labels.tags.items() if _has(values[node])
        }
        graph.add_node(
            key,
            kind=labels.kinds[labels.kind_of[node]],
            name=labels.names[node],
            endpoint=bool(labels.endpoint[node]),
            forwards=bool(labels.forwards[node]),
            **tags,
        )
    capacity, latency = np.asarray(network.capacity), np.asarray(network.latency)
    for link in range(network.n_links):
        graph.add_edge(
            keys[labels.src[link]],
            keys[labels.dst[link]],
            capacity=float(capacity[link]),
            latency=float(latency[link]),
            routing_cost=int(network.routing_cost[link]),
            alive=bool(network.alive[link]),
            tier=labels.tiers[labels.tier_of[link]],
            cable=int(labels.cable_of[link]),
        )
    return graph


def _node_labels(graph: "nx.Graph[Any]", nodes: list[Any]) -> dict[str, Any]:
    data = [graph.nodes[node] for node in nodes]
    kinds, kind_of = np.unique([str(d.get("kind", "node")) for d in data], return_inverse=True)
    tags: dict[str, np.ndarray] = {}
    for tag in sorted({key for d in data for key in d} - _RESERVED):
        values = [d.get(tag) for d in data]
        whole = all(v is None or (isinstance(v, int) and not isinstance(v, bool)) for v in values)
        if whole:
            tags[tag] = np.array([-1 if v is None else v for v in values], np.int64)
        elif all(v is None or isinstance(v, str | float | bool) for v in values):
            tags[tag] = np.array(["" if v is None else str(v) for v in values])
    flags: dict[str, np.ndarray] = {
        flag: np.array([bool(d[flag]) for d in data])
        for flag in ("endpoint", "forwards")
        if all(flag in d for d in data)
    }
    return {
        "kinds": tuple(map(str, kinds)),
        "kind_of": kind_of.astype(np.int8),
        "names": [str(d.get("name", node)) for d, node in zip(data, nodes, strict=True)],
        "ids": [str(node) for node in nodes],
        "tags": tags,
        **flags,
    }


def _pair_up(a: np.ndarray, b: np.ndarray, cables: list[Any]) -> np.ndarray:
    """Return a cable number per directed edge: as given, else the k-th a->b with the k-th b->a."""
    if all(cable is not None for cable in cables):
        return np.unique(np.array(cables), return_inverse=True)[1]
    waiting: dict[tuple[int, int], list[int]] = defaultdict(list)
    cable = np.zeros(len(a), np.int64)
    count = 0
    for edge, ends in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        back = waiting[ends[::-1]]
        if back:
            cable[edge] = cable[back.pop(0)]
        else:
            cable[edge] = count
            count += 1
            waiting[ends].append(edge)
    return cable


def _rate(edge: tuple[Any, ...], key: str, fallback: float, faults: list[str]) -> float:
    value = edge[3].get(key)
    if value is None:
        return fallback
    try:
        return parse_rate(value, f"{key} of {_edge_name(edge)}")
    except (ValueError, TypeError) as error:
        faults.append(str(error))
        return 0.0


def _cost(edge: tuple[Any, ...], key: str, faults: list[str]) -> int:
    value = edge[3].get(key, 1)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or value != int(value)
        or value < 1
    ):
        faults.append(
            f"`{key}` of {_edge_name(edge)} needs a whole number from 1, but got {value!r}."
        )
        return 1
    return int(value)


def _edge_name(edge: tuple[Any, ...]) -> str:
    return f"{edge[0]}->{edge[1]}" + (f"#{edge[2]}" if edge[2] else "")


def _has(value: Any) -> bool:
    return value != "" and not (isinstance(value, np.integer) and value == -1)
