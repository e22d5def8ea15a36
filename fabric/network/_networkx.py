"""Networks from and to `networkx` graphs: what users hold at the edge, never in a hot path."""

from collections import Counter
from collections.abc import Callable
from numbers import Real
from typing import Any

import networkx as nx
import numpy as np

from fabric._errors import ModelError, raise_faults, some
from fabric._units import parse_rate, parse_time
from fabric.network import _graph_labels as read
from fabric.network._checks import cost_array
from fabric.network._labels import Labels
from fabric.network._network import Network

Edge = tuple[Any, Any, Any, dict[str, Any]]

_WHERE = "`Network.from_networkx(...)`"


def from_networkx(
    graph: "nx.Graph[Any]",
    *,
    capacity: str = "capacity",
    latency: str = "latency",
    routing_cost: str = "routing_cost",
    default_capacity: str | float | None = None,
    source: str | None = None,
) -> Network:
    """Return a network with one node per graph node; see `Network.from_networkx`."""
    nodes, directed = list(graph.nodes), graph.is_directed()
    edges = _edges(graph)
    faults = _structure_faults(nodes, edges)
    missing = [edge for edge in edges if edge[3].get(capacity) is None]
    fallback = 0.0
    if default_capacity is not None:
        fallback = _quantity(default_capacity, "default_capacity", parse_rate, faults)
    elif missing:
        faults.append(
            f"`Network.from_networkx(capacity='{capacity}')`: {len(missing):,} of {len(edges):,} "
            f"edges have no such attribute: {some(missing, name=_edge_name)}. Name the attribute "
            f"that holds it, or give `default_capacity='400Gb/s'`."
        )
    rows = [edge[3] for edge in edges]

    def values(key: str, default: float, parse: Callable[[Any, str], float]) -> np.ndarray:
        found = np.full(len(edges), default)
        for i, edge in enumerate(edges):
            if (value := edge[3].get(key)) is not None:
                found[i] = _quantity(value, f"{key} of {_edge_name(edge)}", parse, faults)
        return found

    rates, delays = values(capacity, fallback, parse_rate), values(latency, 0.0, parse_time)
    costs = [read.whole_cost(e[3], routing_cost, _edge_name(e), faults) for e in edges]
    alive = read.flag(rows, "alive", True, lambda i: _edge_name(edges[i]), faults)
    tiers, tier_of = read.coded(read.texts(rows, "tier", "link", faults))
    number = {node: i for i, node in enumerate(nodes)}
    a, b = (np.array([number[edge[end]] for edge in edges], np.int32) for end in (0, 1))
    (a_port, b_port), bad_ports = read.edge_ports(rows)
    if directed:
        pick, src, dst, src_port, dst_port = np.arange(len(edges)), a, b, a_port, b_port
        cable, unused = read.cables(rows, a, b)
        faults += read.repeat_faults(rows, a, b, lambda i: _edge_name(edges[i]))
        if unused:
            faults.append(_not_whole("cable", unused, len(edges), "every edge or none"))
    else:
        pick = cable = np.repeat(np.arange(len(edges), dtype=np.int32), 2)
        src, dst = read.both_ways(a, b), read.both_ways(b, a)
        src_port, dst_port = read.both_ways(a_port, b_port), read.both_ways(b_port, a_port)
    faults += [_not_whole(key, n, len(edges), "edges") for key, n in bad_ports.items()]
    has_ports = bool(src_port.any() or dst_port.any())
    node_labels = _node_labels(graph, nodes, faults)
    raise_faults(faults)
    labels = Labels(
        src=src,
        dst=dst,
        tiers=tiers,
        tier_of=tier_of[pick],
        cable_of=cable,
        src_port=src_port if has_ports else None,
        dst_port=dst_port if has_ports else None,
        source=str(graph.graph.get("name") or "networkx graph") if source is None else source,
        about=read.about_of(graph.graph),
        **node_labels,
    )
    return Network(
        rates[pick], delays[pick], alive[pick], np.array(costs, np.int32)[pick], labels=labels
    )


def to_networkx(network: Network) -> "nx.MultiDiGraph[str]":
    """Return a directed multigraph; see `Network.to_networkx`."""
    labels = network.labels
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=labels.source)
    if labels.about:
        graph.graph["about"] = dict(labels.about)
    keys = list(labels.ids) if labels.ids is not None else list(labels.names)
    if len(set(keys)) < len(keys):
        keys = [str(i) for i in range(len(keys))]
    for node, key in enumerate(keys):
        graph.add_node(key)
        graph.nodes[key].update(
            {tag: values[node].item() for tag, values in labels.tags.items() if _has(values[node])}
        )
        graph.nodes[key].update(
            kind=labels.kinds[labels.kind_of[node]],
            name=labels.names[node],
            endpoint=bool(labels.endpoint[node]),
            forwards=bool(labels.forwards[node]),
        )
    capacity, latency = np.asarray(network.capacity), np.asarray(network.latency)
    costs = cost_array("network.routing_cost", network.routing_cost, name=network.link_name)
    for link in range(network.n_links):
        ports = {}
        if labels.src_port is not None and labels.dst_port is not None:
            ends = (labels.src_port[link], labels.dst_port[link])
            ports = dict(zip(read.PORTS, map(int, ends), strict=True))
        graph.add_edge(
            keys[labels.src[link]],
            keys[labels.dst[link]],
            link=link,
            capacity=float(capacity[link]),
            latency=float(latency[link]),
            routing_cost=int(costs[link]),
            alive=bool(network.alive[link]),
            tier=labels.tiers[labels.tier_of[link]],
            cable=int(labels.cable_of[link]),
            **ports,
        )
    return graph


def _edges(graph: "nx.Graph[Any]") -> list[Edge]:
    """Return (a, b, key, attributes) per edge; links of a directed graph in their order."""
    if graph.is_multigraph():
        edges: list[Edge] = list(graph.edges(keys=True, data=True))  # pyright: ignore[reportCallIssue]
    else:
        edges = [(a, b, 0, data) for a, b, data in graph.edges(data=True)]
    if graph.is_directed():
        edges = [edges[i] for i in read.link_order([edge[3] for edge in edges])]
    return edges


def _structure_faults(nodes: list[Any], edges: list[Edge]) -> list[str]:
    faults: list[str] = []
    if not edges:
        faults.append(f"{_WHERE}: the graph has no edge, so there is no cable.")
    times = Counter(map(str, nodes))
    if alike := [name for name, n in times.items() if n > 1]:
        faults.append(
            f"{_WHERE} tells nodes apart by their text, but {len(alike):,} texts belong to more "
            f"than one node, such as 1 and '1': {some(alike)}. Rename these nodes."
        )
    if loops := [edge for edge in edges if edge[0] == edge[1]]:
        faults.append(
            f"{_WHERE}: {len(loops):,} of {len(edges):,} edges join a node to itself: "
            f"{some(loops, name=_edge_name)}. Take them out, for example with "
            f"`graph.remove_edges_from(list(networkx.selfloop_edges(graph)))`."
        )
    return faults


def _node_labels(graph: "nx.Graph[Any]", nodes: list[Any], faults: list[str]) -> dict[str, Any]:
    rows = [graph.nodes[node] for node in nodes]
    ids = [str(node) for node in nodes]
    kinds, kind_of = read.coded(read.texts(rows, "kind", "node", faults))
    tags, _ = read.node_tags(rows)
    flags, partial = read.node_flags(rows, ids.__getitem__, faults)
    faults += [
        f"`{key}` is given for {n:,} of {len(rows):,} nodes. Give it for all of them or for none."
        for key, n in partial.items()
    ]
    return {
        "kinds": kinds,
        "kind_of": kind_of,
        "names": read.texts(rows, "name", ids, faults),
        "ids": ids,
        "tags": tags,
        **flags,
    }


def _quantity(
    value: Any, name: str, parse: Callable[[Any, str], float], faults: list[str]
) -> float:
    """Return a rate or time; 0 with a fault where the value is none."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, str | Real):
        faults.append(f"`{name}` needs a number or text with its unit, but got {value!r}.")
        return 0.0
    try:
        return parse(value, name)
    except OverflowError:  # a whole number of hundreds of digits
        faults.append(f"`{name}` is too large a number.")
    except ModelError as error:
        faults.append(str(error))
    return 0.0


def _not_whole(key: str, bad: int, total: int, who: str) -> str:
    return (
        f"`{key}` needs a whole number on {who}, but {bad:,} of {total:,} edges have something "
        f"else, or only some have it."
    )


def _edge_name(edge: Edge) -> str:
    return f"{edge[0]}->{edge[1]}" + (f"#{edge[2]}" if edge[2] else "")


def _has(value: Any) -> bool:
    return value != "" and not (isinstance(value, np.integer) and value == -1)
