"""Which servers of a fabric a job can use: those whose GPUs all reach the network."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool

from fabric.network import Network
from fabric.topologies._bill import inside_links


@dataclass(frozen=True)
class LeftOut:
    """A server, or an endpoint without one, that a job is kept away from.

    Attributes:
        name: Of it. `why`: what is out of order.
        gpus: Nodes of its GPUs.
    """

    name: str
    why: str
    gpus: tuple[int, ...]


def server_names(network: Network) -> dict[str, int]:
    """Return the number of every server by its name, as its GPUs have it: `server0`."""
    labels = network.labels
    if "gpu" not in labels.tags or "server" not in labels.tags:
        return {}
    first = np.flatnonzero(labels.is_kind("gpu") & (labels.tags["gpu"] == 0)).tolist()
    server, names = labels.tags["server"], labels.names
    return {str(names[node]).removesuffix("-gpu0"): int(server[node]) for node in first}


def left_out(network: Network) -> tuple[LeftOut, ...]:
    """Return the servers of which a GPU is down, or has a NIC without a live cable.

    Args:
        network: With its failures; the GPUs are its endpoints.
    """
    labels, hosts = network.labels, network.hosts
    name = lambda node: str(labels.names[node])
    down = _dead(network, np.ones(network.n_links, bool))
    nic_of = labels.tags.get("nic", np.full(labels.n_nodes, -1))
    unplugged = _dead(network, ~inside_links(network))
    nic = nic_of[hosts]
    lost = (nic >= 0) & unplugged[nic]
    if not (down[hosts] | lost).any():
        return ()
    numbers = server_names(network)
    called = {number: word for word, number in numbers.items()}
    server = labels.tags["server"] if numbers else np.arange(labels.n_nodes)
    gpus: dict[int, list[int]] = defaultdict(list)
    for node in hosts.tolist():
        gpus[int(server[node])].append(node)
    found = []
    for number in dict.fromkeys(server[hosts[down[hosts] | lost]].tolist()):
        own = np.array(gpus[number])
        nics = [name(n) for n in dict.fromkeys(nic_of[own].tolist()) if n >= 0 and unplugged[n]]
        gone = [name(node) for node in own[down[own]].tolist()]
        if len(gone) == len(own):
            why = "it is down"
        else:
            why = f"{(gone + nics)[0]} is down"
            why += f", {len(gone + nics) - 1} more" * (len(gone + nics) > 1)
        word = called.get(number) or name(own[0])
        found.append(LeftOut(word, why, tuple(own.tolist())))
    return tuple(found)


def _dead(network: Network, links: Bool[np.ndarray, " links"]) -> Bool[np.ndarray, " nodes"]:
    """Return which nodes have some of these links, and none that is alive."""
    src, alive = network.labels.src, np.asarray(network.alive)
    count = lambda kept: np.bincount(src[kept], minlength=network.n_nodes)
    return (count(links) > 0) & (count(links & alive) == 0)


def without(network: Network, out: Sequence[LeftOut]) -> Network:
    """Return a network whose endpoints are the GPUs of all other servers."""
    if not out:
        return network
    endpoint = np.array(network.labels.endpoint)
    endpoint[[node for one in out for node in one.gpus]] = False
    fields = (network.capacity, network.latency, network.alive, network.routing_cost)
    return Network(*fields, labels=replace(network.labels, endpoint=endpoint))


def said(out: Sequence[LeftOut], most: int = 5) -> str:
    """Return in words which servers are left out, and why.

    Examples:
        >>> said([LeftOut("server0", "server0-nic0 is down", (0, 1))])
        '1 server left out: server0 (server0-nic0 is down)'
    """
    named = [f"{one.name} ({one.why})" for one in out[:most]]
    more = f" and {len(out) - most:,} more" if len(out) > most else ""
    return f"{len(out):,} server{'s' * (len(out) > 1)} left out: {', '.join(named)}{more}"
