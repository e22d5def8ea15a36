"""A network -> node-link JSON that `readers.read` and `networkx` take back whole."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from fabric.network import Network
from fabric.readers._files import save


def write_node_link(network: Network, path: str | os.PathLike[str]) -> Path:
    """Write a network as node-link JSON, a directed edge per link, and return the path.

    Everything is kept: order of nodes and links, ids, names, kinds, tags, tiers, cables, ports,
    failed links. Capacities are numbers in byte/s and latencies in seconds, and the graph
    attributes say so.

    Args:
        network: With labels.
        path: Where; gzip when it ends in `.gz`. Written whole or not at all.

    Raises:
        ModelError: If the network has no labels, or the folder cannot be written.

    Examples:
        >>> import tempfile, pathlib
        >>> from fabric import readers
        >>> from fabric.network import Blueprint
        >>> plan = Blueprint()
        >>> leaf, host = plan.nodes("leaf", "leaf{}", (1,)), plan.nodes("host", "host{}", (2,))
        >>> plan.cables("host", host, leaf, 50e9)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = write_node_link(plan.network("tiny"), pathlib.Path(folder, "net.json"))
        ...     readers.read(file).network.link_name(2)
        'host1->leaf0'

    References:
        networkx.readwrite.json_graph.node_link_graph.
    """
    labels = network.labels
    keys = list(labels.ids) if labels.ids is not None else list(labels.names)
    if len(set(keys)) < len(keys):
        keys = [str(node) for node in range(len(keys))]
    graph: dict[str, Any] = {
        "name": labels.source, "capacity_unit": "byte/s", "latency_unit": "s",
    }  # fmt: skip
    if labels.about:
        graph["about"] = dict(labels.about)
    nodes = [_node(network, node, key) for node, key in enumerate(keys)]
    edges = [_edge(network, link, keys) for link in range(network.n_links)]
    listed = lambda rows: "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]"
    text = (
        f'{{"directed": true, "multigraph": true, "graph": {json.dumps(graph)},\n'
        f'"nodes": {listed(nodes)},\n"edges": {listed(edges)}}}\n'
    )
    return save(path, text)


def _node(network: Network, node: int, key: str) -> dict[str, Any]:
    labels = network.labels
    tags = {tag: values[node].item() for tag, values in labels.tags.items()}
    return {
        "id": key,
        "name": labels.names[node],
        "kind": labels.kinds[labels.kind_of[node]],
        "endpoint": bool(np.asarray(labels.endpoint)[node]),
        "forwards": bool(np.asarray(labels.forwards)[node]),
        **{tag: value for tag, value in tags.items() if value not in (-1, "")},
    }


def _edge(network: Network, link: int, keys: list[str]) -> dict[str, Any]:
    labels = network.labels
    row: dict[str, Any] = {
        "source": keys[labels.src[link]],
        "target": keys[labels.dst[link]],
        "capacity": float(network.capacity[link]),
        "latency": float(network.latency[link]),
        "routing_cost": int(network.routing_cost[link]),
        "alive": bool(network.alive[link]),
        "tier": labels.tiers[labels.tier_of[link]],
        "cable": int(labels.cable_of[link]),
    }
    if labels.src_port is not None and labels.dst_port is not None:
        row["source_port"] = int(labels.src_port[link])
        row["target_port"] = int(labels.dst_port[link])
    return row
