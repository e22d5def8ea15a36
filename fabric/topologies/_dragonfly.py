"""`dragonfly` and `dragonfly_plus`: groups of routers, joined group to group."""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, nearest
from fabric._units import parse_rate, parse_time
from fabric.network import Blueprint, Network, wholes
from fabric.topologies._grid import annotated, spread_cables, spread_evenly
from fabric.topologies._plan import afford, describe
from fabric.topologies._sizes import Sizes

Order = Callable[[np.ndarray, np.ndarray, int], np.ndarray]
"""Place of a peer among the peers of a group: (group, peer, groups) to a key to sort by."""

ARRANGEMENTS: dict[str, Order] = {
    "absolute": lambda group, peer, groups: peer,
    "palmtree": lambda group, peer, groups: (group - peer - 1) % groups,
}
"""In which order a group plugs its global cables, by name."""


def dragonfly(
    p: int,
    a: int,
    h: int,
    *,
    groups: int | None = None,
    links_per_pair: int | None = None,
    arrangement: str = "absolute",
    capacity: str | float = "400Gb/s",
    global_capacity: str | float | None = None,
    latency: str | float = 0.0,
) -> Network:
    """Return a dragonfly: groups of `a` routers, all joined in a group, and groups by long cables.

    A router has `p` hosts, a cable to each other router of its group and `h` global ports, so a
    group has a h of them and reaches as many other groups: at most a h + 1 groups. With fewer, a
    pair of groups gets floor(a h / (groups - 1)) cables and the ports left over go round the ring,
    so that counts differ by at most one; `links_per_pair` asks for a number instead and leaves the
    other ports free.

    Every group orders its global cables: first one to each peer, then a second to each, and so on;
    peers by number ("absolute") or going down from its own ("palmtree"). Cable n of N goes to
    router floor(n a / N), so every router has N / a of them, rounded up or down.

    Hosts come first, ordered by router, and are called `group0-router3-host1`; routers are
    `group0-router3`. Kinds `host` and `router`; tiers `host`, `local` and `global`; tags `group`
    and `router` (counted over all groups) on both.

    Args:
        p: Hosts of a router.
        a: Routers of a group.
        h: Global ports of a router.
        groups: At least 2. Default: a h + 1.
        links_per_pair: Global cables between every two groups. Default: as many as fit.
        arrangement: "absolute" or "palmtree". Default "absolute".
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        global_capacity: Of a global cable. Default: `capacity`.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If a count is no whole number of at least 1, there are more groups or more
            cables per pair than global ports, or the network would not fit in memory.

    Examples:
        >>> net = dragonfly(p=2, a=4, h=2)
        >>> {t: int(net.labels.is_tier(t).sum()) // 2 for t in net.labels.tiers}
        {'host': 72, 'local': 54, 'global': 36}

        As on Frontier: 74 groups, of whose 512 global ports four cables a pair use 292.

        >>> sizes_of_dragonfly(16, 32, 16, groups=74, links_per_pair=4).cables["global"]
        10804

    References:
        J. Kim, W. J. Dally, S. Scott and D. Abts, Technology-Driven, Highly-Scalable Dragonfly
        Topology, ISCA 2008. C. Camarero, E. Vallejo and R. Beivide, Topological Characterization of
        Hamming and Dragonfly Networks and Its Implications on Routing, ACM TACO 11(4), 2014: the
        arrangements.
    """
    p, a, groups, total = _ports(p, a, h, groups, links_per_pair)
    if arrangement not in ARRANGEMENTS:
        message = f"`arrangement='{arrangement}'` is not known. " + nearest(
            arrangement, list(ARRANGEMENTS)
        )
        raise ModelError(message)
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    far = rate if global_capacity is None else parse_rate(global_capacity, "global_capacity")
    default = groups == a * h + 1
    what = describe(
        dragonfly, p=p, a=a, h=h, groups=None if default else groups, links_per_pair=links_per_pair,
        arrangement=arrangement, capacity=capacity, global_capacity=global_capacity,
        latency=latency,
    )  # fmt: skip
    afford(what, _sizes(p, a, groups, total).n_cables)

    number = np.arange(groups * a).reshape(groups, a)
    group = np.arange(groups)[:, None]
    plan = Blueprint()
    host = plan.nodes(
        "host", "group{}-router{}-host{}", (groups, a, p), group=group[..., None],
        router=number[..., None],
    )  # fmt: skip
    router = plan.nodes("router", "group{}-router{}", (groups, a), group=group, router=number)
    plan.cables("host", host, router[..., None], rate, delay)
    if a > 1:
        one, other = np.triu_indices(a, 1)
        plan.cables("local", router[:, one], router[:, other], rate, delay)
    ends = _global_ends(spread_evenly(groups, total), router, ARRANGEMENTS[arrangement])
    plan.cables("global", *ends, far, delay)
    return annotated(plan.network(what), arrangement=arrangement)


def dragonfly_plus(
    radix: int,
    *,
    groups: int | None = None,
    capacity: str | float = "400Gb/s",
    global_capacity: str | float | None = None,
    latency: str | float = 0.0,
) -> Network:
    """Return a dragonfly+: groups that are leaf-spine networks, joined spine to spine.

    A group has radix/2 leaves of radix/2 hosts, radix/2 spines, one cable between every leaf and
    spine, and radix/2 global ports on every spine: radix^2/4 global cables, so at most
    radix^2/4 + 1 groups, every two of which then share one. With fewer groups the cables are spread
    over pairs and spines as `dragonfly` spreads them over pairs and routers, in "absolute" order.

    Hosts come first, ordered by leaf, and are called `group0-leaf3-host1`; switches are
    `group0-leaf3` and `group0-spine2`. Kinds `host`, `leaf` and `spine`; tiers `host`, `local` and
    `global`; tag `group` on all, `leaf` (counted over all groups) on hosts and leaves.

    Args:
        radix: Ports of every switch, even.
        groups: At least 2. Default: radix^2/4 + 1.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        global_capacity: Of a global cable. Default: `capacity`.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If the radix is odd, there are more groups than global ports, or the network
            would not fit in memory.

    Examples:
        >>> net = dragonfly_plus(8)
        >>> len(net.hosts), int(net.labels.is_tier("global").sum()) // 2
        (272, 136)

    References:
        A. Shpiner, Z. Haramaty, S. Eliad, V. Zdornov, B. Gafni and E. Zahavi, Dragonfly+: Low Cost
        Topology for Scaling Datacenters, HiPINEB 2017.
    """
    half, groups, total = _plus_ports(radix, groups)
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    far = rate if global_capacity is None else parse_rate(global_capacity, "global_capacity")
    default = groups == half * half + 1
    what = describe(
        dragonfly_plus, radix=2 * half, groups=None if default else groups, capacity=capacity,
        global_capacity=global_capacity, latency=latency,
    )  # fmt: skip
    afford(what, _plus_sizes(half, groups, total).n_cables)

    number = np.arange(groups * half).reshape(groups, half)
    group = np.arange(groups)[:, None]
    plan = Blueprint()
    host = plan.nodes(
        "host", "group{}-leaf{}-host{}", (groups, half, half), group=group[..., None],
        leaf=number[..., None],
    )  # fmt: skip
    leaf = plan.nodes("leaf", "group{}-leaf{}", (groups, half), group=group, leaf=number)
    spine = plan.nodes("spine", "group{}-spine{}", (groups, half), group=group)
    plan.cables("host", host, leaf[..., None], rate, delay)
    plan.cables("local", leaf[..., None], spine[:, None, :], rate, delay)
    ends = _global_ends(spread_evenly(groups, total), spine, ARRANGEMENTS["absolute"])
    plan.cables("global", *ends, far, delay)
    return plan.network(what)


def sizes_of_dragonfly(
    p: int, a: int, h: int, *, groups: int | None = None, links_per_pair: int | None = None
) -> Sizes:
    """Return what `dragonfly` would have.

    Examples:
        >>> sizes_of_dragonfly(16, 32, 16).nodes
        {'host': 262656, 'router': 16416}
    """
    return _sizes(*_ports(p, a, h, groups, links_per_pair))


def sizes_of_dragonfly_plus(radix: int, *, groups: int | None = None) -> Sizes:
    """Return what `dragonfly_plus` would have.

    Examples:
        >>> sizes_of_dragonfly_plus(64).nodes
        {'host': 1049600, 'leaf': 32800, 'spine': 32800}
    """
    return _plus_sizes(*_plus_ports(radix, groups))


def _ports(
    p: int, a: int, h: int, groups: int | None, links_per_pair: int | None
) -> tuple[int, int, int, int]:
    """Return p, a, groups and the global ports of a group that are used, or raise."""
    p, a, h = wholes(p=p, a=a, h=h)
    groups = _groups(f"dragonfly(a={a}, h={h})", a * h, groups)
    if links_per_pair is None:
        return p, a, groups, a * h
    (each,) = wholes(links_per_pair=links_per_pair)
    if each * (groups - 1) > a * h:
        message = (
            f"`links_per_pair={each}` of {groups:,} groups needs {each * (groups - 1):,} global "
            f"ports in a group, but {a} routers of {h} have {a * h:,}. Use "
            f"`links_per_pair={a * h // (groups - 1)}`"
            + (f" or `groups={a * h // each + 1}`." if a * h >= each else ".")
        )
        raise ModelError(message)
    return p, a, groups, each * (groups - 1)


def _groups(what: str, ports: int, groups: int | None) -> int:
    """Return the number of groups, each of so many global ports, or raise."""
    if groups is None:
        return ports + 1
    (groups,) = wholes(least=2, groups=groups)
    if groups > ports + 1:
        message = (
            f"`groups={groups:,}` is more than `{what}` can join: a group of {ports:,} global "
            f"ports reaches {ports:,} others. Use at most {ports + 1:,}."
        )
        raise ModelError(message)
    return groups


def _plus_ports(radix: int, groups: int | None) -> tuple[int, int, int]:
    """Return radix / 2, groups and the global ports of a group, or raise."""
    (radix,) = wholes(least=2, radix=radix)
    if radix % 2:
        # Groups asked for must fit in what is suggested.
        least = 2 if groups is None else 2 * (math.isqrt(wholes(2, groups=groups)[0] - 2) + 1)
        near = [f"radix={max(near, least)}" for near in (radix - 1, radix + 1)]
        message = (
            f"`dragonfly_plus(radix={radix})` needs an even radix. Use "
            f"{' or '.join(dict.fromkeys(near))}."
        )
        raise ModelError(message)
    half = radix // 2
    return half, _groups(f"dragonfly_plus(radix={radix})", half * half, groups), half * half


def _sizes(p: int, a: int, groups: int, total: int) -> Sizes:
    cables = {"host": groups * a * p, "local": groups * a * (a - 1) // 2}
    cables["global"] = spread_cables(groups, total)
    return Sizes(
        {"host": groups * a * p, "router": groups * a},
        {tier: n for tier, n in cables.items() if n},
        {"host": 1, "router": p + a - 1 + -(-total // a)},
    )


def _plus_sizes(half: int, groups: int, total: int) -> Sizes:
    hosts, switches = groups * half * half, groups * half
    return Sizes(
        {"host": hosts, "leaf": switches, "spine": switches},
        {"host": hosts, "local": hosts, "global": spread_cables(groups, total)},
        {"host": 1, "leaf": 2 * half, "spine": half + -(-total // half)},
    )


def _global_ends(
    count: Int[np.ndarray, "groups groups"], switch: Int[np.ndarray, "groups members"], order: Order
) -> tuple[Int[np.ndarray, " cables"], Int[np.ndarray, " cables"]]:
    """Return the switches at both ends of every global cable.

    Args:
        count: Cables between every two groups, symmetric.
        switch: Node numbers of the switches of each group that have global ports.
        order: Of the peers of a group.
    """
    groups, members = switch.shape
    # Copy c of a cable from one group to another stands in both of their lists.
    group, peer = np.nonzero(count)
    times = count[group, peer]
    group, peer = np.repeat(group, times), np.repeat(peer, times)
    copy = np.arange(len(group)) - np.repeat(np.cumsum(times) - times, times)
    listed = np.lexsort((order(group, peer, groups), copy, group))
    length = np.bincount(group, minlength=groups)
    rank = np.empty(len(group), np.int64)
    rank[listed] = np.arange(len(group)) - np.repeat(np.cumsum(length) - length, length)
    end = switch[group, rank * members // length[group]]
    # In the order (pair, copy), the entries of the lower group meet those of the higher.
    pair = np.minimum(group, peer) * groups + np.maximum(group, peer)
    met = end[np.lexsort((group, copy, pair))].reshape(-1, 2)
    return met[:, 0], met[:, 1]
