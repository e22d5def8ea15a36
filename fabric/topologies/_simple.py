"""`single_switch` and `full_mesh`."""

import numpy as np

from fabric._units import parse_rate, parse_time
from fabric.network import Blueprint, Network, wholes
from fabric.topologies._plan import afford, describe
from fabric.topologies._sizes import Sizes


def single_switch(
    hosts: int, *, capacity: str | float = "400Gb/s", latency: str | float = 0.0
) -> Network:
    """Return one switch with hosts on it.

    Hosts come first and are called `host0`; the switch is `switch`. Kinds `host`, `switch`; tier
    `host`.

    Args:
        hosts: Number of hosts.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If `hosts` is no whole number of at least 1 or would not fit in memory.

    Examples:
        >>> single_switch(3).n_links
        6
    """
    counts = sizes_of_single_switch(hosts)
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    what = describe(single_switch, hosts=hosts, capacity=capacity, latency=latency)
    afford(what, counts.n_cables)
    plan = Blueprint()
    host = plan.nodes("host", "host{}", (hosts,))
    switch = plan.nodes("switch", "switch", (1,))
    plan.cables("host", host, switch, rate, delay)
    return plan.network(what)


def full_mesh(
    nodes: int, *, capacity: str | float = "400Gb/s", latency: str | float = 0.0
) -> Network:
    """Return nodes with a cable between every two of them: n (n - 1) / 2 cables.

    Nodes are called `node0`. Kind `node`, which sends, receives and forwards; tier `mesh`.

    Args:
        nodes: Number of nodes, at least 2.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If `nodes` is no whole number of at least 2 or the mesh would not fit in memory.

    Examples:
        >>> full_mesh(8).n_links
        56
    """
    counts = sizes_of_full_mesh(nodes)
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    what = describe(full_mesh, nodes=nodes, capacity=capacity, latency=latency)
    afford(what, counts.n_cables)
    plan = Blueprint()
    node = plan.nodes("node", "node{}", (nodes,))
    a, b = np.triu_indices(nodes, 1)
    plan.cables("mesh", node[a], node[b], rate, delay)
    return plan.network(what)


def sizes_of_single_switch(hosts: int) -> Sizes:
    """Return what `single_switch` would have.

    Examples:
        >>> sizes_of_single_switch(3).ports
        {'host': 1, 'switch': 3}
    """
    (hosts,) = wholes(hosts=hosts)
    ports = {"host": 1, "switch": hosts}
    return Sizes({"host": hosts, "switch": 1}, {"host": hosts}, ports, 1, 1, 1)


def sizes_of_full_mesh(nodes: int) -> Sizes:
    """Return what `full_mesh` would have.

    Examples:
        >>> sizes_of_full_mesh(200_000).cables
        {'mesh': 19999900000}
    """
    (nodes,) = wholes(least=2, nodes=nodes)
    cables = nodes * (nodes - 1) // 2
    return Sizes({"node": nodes}, {"mesh": cables}, {"node": nodes - 1}, 0, 1, 1)
