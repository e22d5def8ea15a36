"""Node-link JSON of `networkx` -> `Reading`; units are stated, never guessed."""

import json
import os
from collections import Counter
from typing import Any

import numpy as np

from fabric._errors import ModelError, raise_faults, some
from fabric._units import parse_rate, parse_time
from fabric.network import Labels, Network, _graph_labels as attributes
from fabric.readers._files import Text, load
from fabric.readers._quantities import Scale, edge_name, no_capacity
from fabric.readers._reading import Reading

_EDGE_KEYS = {"source", "target", "key", "tier", "cable", "alive", *attributes.PORTS}
_GRAPH_KEYS = {"name", "capacity_unit", "latency_unit", "about"}


def node_link(
    path: str | os.PathLike[str] | Text,
    *,
    capacity: str = "capacity",
    unit: str | None = None,
    default_capacity: str | float | None = None,
    latency: str = "latency",
    latency_unit: str | None = None,
    routing_cost: str = "routing_cost",
) -> Reading:
    """Return the graph in a node-link JSON file; the list of edges is `edges` or `links`.

    An edge of an undirected graph is a cable, two links; an edge of a directed graph is one link,
    and links share a cable as their `cable` says where each has a whole number there, else the
    k-th link from a to b with the k-th from b to a. Links keep the order of the file. Node
    attributes that are whole numbers or text throughout become tags. Whatever else the file says
    is counted in `ignored`; null counts as absent.

    Args:
        path: A file, plain or gzip, or the text itself.
        capacity: The edge attribute that holds it: text with its unit, or a number in `unit`.
        unit: Unit of bare numbers, for example "Gb/s". Default: what the file states in its graph
            attribute `capacity_unit`.
        default_capacity: For edges without one, text with its unit.
        latency: The edge attribute that holds it: text with its unit, or a number in
            `latency_unit`. Default 0 where absent.
        latency_unit: Unit of bare numbers, for example "ms". Default: the graph attribute
            `latency_unit`.
        routing_cost: The edge attribute that holds it, whole numbers from 1. Default 1.

    Raises:
        ModelError: If the file is no node-link graph, a capacity or a unit is missing, or a value
            is of the wrong kind or out of range; all faults at once.

    Examples:
        >>> from fabric import readers
        >>> text = '''{"nodes": [{"id": "a"}, {"id": "b"}],
        ...  "edges": [{"source": "a", "target": "b", "capacity": 100}]}'''
        >>> readers.node_link(text, unit="Gb/s").network.capacity.tolist()
        [12500000000.0, 12500000000.0]

    References:
        networkx.readwrite.json_graph.node_link_data.
    """
    file = load(path)
    document, nodes, edges = _document(file)
    graph = document.get("graph")
    graph = dict(graph) if isinstance(graph, dict) else {}
    faults: list[str] = []
    contradicted: list[dict[str, Any]] = []
    number, nodes = _numbered(nodes, faults, contradicted)
    edges, ends = _placed(edges, number, document, faults, contradicted)
    scale = Scale("capacity", unit, graph.get("capacity_unit"), "unit='Gb/s'", parse_rate)
    rates = scale.values(edges, capacity, faults)
    missing = [i for i, rate in enumerate(rates) if rate is None]
    if missing and default_capacity is None:
        faults.append(no_capacity(edges, missing, capacity))
    fallback = 0.0 if default_capacity is None else parse_rate(default_capacity, "default_capacity")
    times = Scale(
        "latency", latency_unit, graph.get("latency_unit"), "latency_unit='ms'", parse_time
    )
    delays = times.values(edges, latency, faults)
    costs = [attributes.whole_cost(e, routing_cost, edge_name(e), faults) for e in edges]
    alive = attributes.flag(edges, "alive", True, lambda i: edge_name(edges[i]), faults)
    directed = document.get("directed", False)
    if not isinstance(directed, bool):
        faults.append(f"`directed` needs true or false, but got {directed!r}.")
    source = str(graph.get("name") or file.source)
    labels, pick, dropped, unused = _labels(
        nodes, edges, ends, directed is True, source, attributes.about_of(graph), faults
    )
    raise_faults([f"'{file.source}': {fault}" for fault in faults])

    ignored = [{"what": f"node attribute '{key}'", "count": n} for key, n in dropped.items()]
    read = _EDGE_KEYS | {capacity, latency, routing_cost}
    others = Counter(key for edge in edges for key in edge if key not in read)
    unused = {**unused, **others}
    ignored += [{"what": f"edge attribute '{key}'", "count": n} for key, n in unused.items()]
    ignored += [
        {"what": f"graph attribute '{key}'", "count": 1} for key in graph if key not in _GRAPH_KEYS
    ]
    warnings = list(file.warnings)
    if not edges:
        warnings.append("The file lists no edge, so there is no link.")
    if missing:
        warnings.append(
            f"{len(missing):,} of {len(edges):,} edges have no capacity and got {default_capacity}."
        )
    if one_way := int(np.sum(np.bincount(labels.cable_of) == 1)):
        warnings.append(f"{one_way:,} links have no link in the other direction.")
    column = lambda values, dtype: np.array(values, dtype)[pick]
    network = Network(
        column([fallback if rate is None else rate for rate in rates], np.float64),
        column([0.0 if delay is None else delay for delay in delays], np.float64),
        column(alive, bool),
        column(costs, np.int32),
        labels=labels,
    )
    certain = any(key in document for key in ("directed", "multigraph"))
    return Reading(
        network=network,
        source=file.source,
        format="node-link",
        confidence=1.0 if certain else 0.8,
        records=int(labels.cable_of.max(initial=-1)) + 1,
        ignored=ignored,
        contradicted=contradicted,
        warnings=warnings,
        fingerprint=file.fingerprint,
        notes={"capacity": capacity, "capacity_unit": scale.unit, "directed": directed},
    )


def _document(file: Text) -> tuple[dict[str, Any], list[Any], list[Any]]:
    try:
        document = json.loads(file.text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        message = f"'{file.source}' is no valid JSON: {error}."
        raise ModelError(message) from None
    nodes = document.get("nodes") if isinstance(document, dict) else None
    lists = [key for key in ("edges", "links") if isinstance(document, dict) and key in document]
    edges = document[lists[0]] if len(lists) == 1 else None
    rows = all(
        isinstance(part, list) and all(isinstance(row, dict) for row in part)
        for part in (nodes, edges)
    )
    if not (rows and isinstance(nodes, list) and isinstance(edges, list)):
        found = "both `edges` and `links`" if len(lists) == 2 else "something else"
        message = (
            f"'{file.source}' is JSON, but no node-link graph: that is an object with a list "
            f"`nodes` and one list `edges` or `links` of objects, and this has {found}. networkx "
            f"writes it with `node_link_data`."
        )
        raise ModelError(message)
    if not nodes:
        message = f"'{file.source}' has no node, so it holds no network."
        raise ModelError(message)
    return document, nodes, edges


def _numbered(
    rows: list[dict[str, Any]], faults: list[str], contradicted: list[dict[str, Any]]
) -> tuple[dict[Any, int], list[dict[str, Any]]]:
    """Return node number by id, and the node rows that are kept."""
    number: dict[Any, int] = {}
    kept: list[dict[str, Any]] = []
    texts: dict[str, Any] = {}
    for row in rows:
        ident = _key(row.get("id"))
        if ident is None:
            faults.append(f"a node has no `id` of number or text: {row!r}.")
        elif ident in number:
            contradicted.append({"what": "node listed twice", "item": str(ident)})
        elif str(ident) in texts:
            faults.append(f"node id {ident!r} occurs as number and as text. Rename one of them.")
        else:
            texts[str(ident)] = number[ident] = len(kept)
            kept.append(row)
    return number, kept


def _placed(
    rows: list[dict[str, Any]],
    number: dict[Any, int],
    document: dict[str, Any],
    faults: list[str],
    contradicted: list[dict[str, Any]],
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Return the edges that are kept and the node numbers of their ends, (edges, 2)."""
    kept: list[dict[str, Any]] = []
    ends: list[tuple[int, int]] = []
    unknown: list[str] = []
    times: Counter[tuple[int, int]] = Counter()
    for row in rows:
        a, b = (number.get(_key(row.get(side)), -1) for side in ("source", "target"))
        if a < 0 or b < 0:
            unknown.append(edge_name(row))
        elif a == b:
            contradicted.append({"what": "edge from a node to itself", "item": edge_name(row)})
        else:
            kept.append(row)
            ends.append((a, b))
            pair = (a, b) if document.get("directed") else (min(a, b), max(a, b))
            times[pair] += 1
            if times[pair] > 1 and document.get("multigraph") is False:
                contradicted.append(
                    {
                        "what": "second edge of a pair in a simple graph, kept",
                        "item": edge_name(row),
                    }
                )
    if unknown:
        faults.append(
            f"{len(unknown):,} edges end at nodes that are not listed: {some(unknown)}. Edges name "
            f"nodes by `id`."
        )
    return kept, np.array(ends, np.int32).reshape(-1, 2)


def _labels(
    nodes: list[dict[str, Any]],
    edges: list[dict[str, Any]],
    ends: np.ndarray,
    directed: bool,
    source: str,
    about: dict[str, str],
    faults: list[str],
) -> tuple[Labels, np.ndarray, dict[str, int], dict[str, int]]:
    """Return the labels, the edge of every link, and unused attributes of nodes and of edges."""
    ids = [str(_key(row["id"])) for row in nodes]
    kinds, kind_of = attributes.coded(attributes.texts(nodes, "kind", "node", faults))
    tiers, tier_of = attributes.coded(attributes.texts(edges, "tier", "link", faults))
    tags, dropped = attributes.node_tags(nodes)
    flags, partial = attributes.node_flags(nodes, ids.__getitem__, faults)
    (near, far), unused = attributes.edge_ports(edges)
    a, b = ends.T
    if directed:
        pick, src, dst, src_port, dst_port = np.arange(len(edges)), a, b, near, far
        faults += attributes.repeat_faults(edges, a, b, lambda i: f"{ids[a[i]]}->{ids[b[i]]}")
        cable, unused_cables = attributes.cables(edges, a, b)
    else:
        pick = cable = np.repeat(np.arange(len(edges), dtype=np.int32), 2)
        src, dst = attributes.both_ways(a, b), attributes.both_ways(b, a)
        src_port, dst_port = attributes.both_ways(near, far), attributes.both_ways(far, near)
        unused_cables = sum(edge.get("cable") is not None for edge in edges)
    if unused_cables:
        unused["cable"] = unused_cables
    has_ports = bool(np.any(src_port) or np.any(dst_port))
    labels = Labels(
        kinds=kinds,
        kind_of=kind_of,
        names=attributes.texts(nodes, "name", ids, faults),
        ids=ids,
        src=src,
        dst=dst,
        tiers=tiers,
        tier_of=tier_of[pick],
        cable_of=cable,
        src_port=src_port if has_ports else None,
        dst_port=dst_port if has_ports else None,
        tags=tags,
        source=source,
        about=about,
        **flags,
    )
    return labels, pick, dropped | partial, unused


def _key(value: Any) -> Any:
    """Return a node id that can be looked up; networkx writes a tuple as a list."""
    if isinstance(value, list):
        return tuple(_key(part) for part in value)
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None
