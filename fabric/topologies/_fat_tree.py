"""`fat_tree`: the k-ary fat tree of three tiers."""

import numpy as np

from fabric._errors import ModelError
from fabric._units import parse_rate, parse_time
from fabric.network import Blueprint, Network, wholes
from fabric.topologies._plan import afford, describe, ratio
from fabric.topologies._sizes import Sizes


def fat_tree(
    k: int,
    *,
    capacity: str | float = "400Gb/s",
    oversubscription: float = 1,
    latency: str | float = 0.0,
) -> Network:
    """Return the k-ary fat tree: k pods of k/2 edge and k/2 aggregation switches, k^2/4 cores.

    It has k^3/4 hosts and k^3/4 cables in each of its three tiers. Aggregation switch j of every
    pod is wired to cores j k/2 to (j + 1) k/2 - 1. Hosts come first, ordered by pod and edge, and
    are called `pod0-edge0-host0`; switches are `pod0-edge0`, `pod0-agg0` and `core0`. Kinds `host`,
    `edge`, `aggregation`, `core`; tiers `host`, `edge-aggregation`, `aggregation-core`; tags `pod`
    and `edge` (counted over all pods).

    Args:
        k: Ports of every switch, even and at least 2.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        oversubscription: Ratio down:up at the edge, 4 for 4:1. The number of hosts, switches and
            cables stays; the capacity of both upper tiers is divided by it. Default 1.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If `k` is odd or less than 2, or the network would not fit in memory.

    Examples:
        >>> net = fat_tree(k=4)
        >>> len(net.hosts), net.n_nodes, net.n_links
        (16, 36, 96)

    References:
        M. Al-Fares, A. Loukissas and A. Vahdat, A Scalable, Commodity Data Center Network
        Architecture, SIGCOMM 2008, section 2.2.
    """
    counts = sizes_of_fat_tree(k)
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    up = rate / ratio("oversubscription", oversubscription)
    what = describe(
        fat_tree, k=k, capacity=capacity, oversubscription=oversubscription, latency=latency
    )
    afford(what, counts.n_cables)

    half, pod = k // 2, np.arange(k)
    number = np.arange(k * half).reshape(k, half)
    plan = Blueprint()
    host = plan.nodes(
        "host",
        "pod{}-edge{}-host{}",
        (k, half, half),
        pod=pod[:, None, None],
        edge=number[..., None],
    )
    edge = plan.nodes("edge", "pod{}-edge{}", (k, half), pod=pod[:, None], edge=number)
    agg = plan.nodes("aggregation", "pod{}-agg{}", (k, half), pod=pod[:, None])
    core = plan.nodes("core", "core{}", (half * half,)).reshape(half, half)
    plan.cables("host", host, edge[..., None], rate, delay)
    plan.cables("edge-aggregation", edge[..., None], agg[:, None, :], up, delay)
    plan.cables("aggregation-core", agg[..., None], core, up, delay)
    return plan.network(what)


def sizes_of_fat_tree(k: int) -> Sizes:
    """Return what `fat_tree` would have.

    Examples:
        >>> sizes_of_fat_tree(1024).endpoints
        268435456
    """
    (k,) = wholes(least=2, k=k)
    if k % 2:
        message = f"`fat_tree(k={k})` needs an even k. Use k={k - 1} or k={k + 1}."
        raise ModelError(message)
    half, tier = k // 2, k**3 // 4
    return Sizes(
        {"host": tier, "edge": k * half, "aggregation": k * half, "core": half**2},
        {"host": tier, "edge-aggregation": tier, "aggregation-core": tier},
        {"host": 1, "edge": k, "aggregation": k, "core": k},
        hops=5, paths=half**2, cable_paths=half**2,
    )  # fmt: skip
