"""`clos`: folded Clos networks of two and three tiers from a number of hosts and a radix."""

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from fabric._errors import ModelError
from fabric._units import parse_rate, parse_time
from fabric.network import Blueprint, Network, wholes
from fabric.topologies._plan import afford, describe, even_spines, numbered, ratio


def clos(
    hosts: int,
    *,
    radix: int = 64,
    tiers: int = 2,
    oversubscription: float = 1,
    hosts_per_leaf: int | None = None,
    leaves_per_pod: int | None = None,
    core_oversubscription: float = 1,
    capacity: str | float = "400Gb/s",
    latency: str | float = 0.0,
) -> Network:
    """Return a folded Clos network of equal switches that holds so many hosts.

    Leaves fill up in order, the last may have fewer hosts. Every leaf has the same number of
    cables to every spine it meets: the number of spines is the smallest of at least
    leaves x uplinks / radix that divides the uplinks. With three tiers, leaves form pods, the last
    of which may have fewer leaves; spine j of every pod is wired to the same group j of cores, by
    the same rule.

    Hosts come first, ordered by leaf, and are called `leaf0-host0` (`pod0-leaf0-host0`); switches
    are `leaf0` and `spine0` (`pod0-leaf0`, `pod0-spine0`, `core0`). Kinds `host`, `leaf`, `spine`
    and `core`; tiers `host`, `leaf-spine` and `spine-core`; tag `leaf` (counted over all pods) on
    hosts and leaves, and with three tiers `pod`.

    Args:
        hosts: Number of hosts.
        radix: Ports of every switch. Default 64.
        tiers: 2 or 3. Default 2.
        oversubscription: Ports down:up of a leaf, 4 for 4:1. A leaf gets
            u = floor(radix / (1 + ratio)) uplinks and floor(u x ratio) hosts. Default 1.
        hosts_per_leaf: Hosts of a full leaf, where they shall not follow from `radix`; uplinks are
            then that many over the ratio, rounded up.
        leaves_per_pod: Leaves of a full pod, three tiers only. Default: as many as a spine has
            ports down.
        core_oversubscription: Ports down:up of a spine, three tiers only. Default 1.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If the hosts are beyond the reach of the radix (2 (radix/2)^tiers at 1:1), a
            switch would need more ports than it has, or the network would not fit in memory.

    Examples:
        >>> net = clos(2048, radix=64)
        >>> {k: int(net.labels.is_kind(k).sum()) for k in net.labels.kinds}
        {'host': 2048, 'leaf': 64, 'spine': 32}
        >>> clos(1000, radix=64, tiers=3).labels.names[999]
        'pod0-leaf31-host7'

    References:
        C. Clos, A Study of Non-Blocking Switching Networks, 1953. The rule for spines reproduces
        the tables of the NVIDIA DGX SuperPOD reference architectures.
    """
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    what = describe(
        clos, hosts=hosts, radix=radix, tiers=tiers, oversubscription=oversubscription,
        hosts_per_leaf=hosts_per_leaf, leaves_per_pod=leaves_per_pod,
        core_oversubscription=core_oversubscription, capacity=capacity, latency=latency,
    )  # fmt: skip
    (hosts,) = wholes(hosts=hosts)
    (radix,) = wholes(least=2, radix=radix)
    if tiers not in (2, 3):
        message = (
            f"`clos(tiers={tiers!r})` needs 2 or 3 tiers. For one tier use `single_switch(hosts)`."
        )
        raise ModelError(message)
    if tiers == 2 and (leaves_per_pod is not None or core_oversubscription != 1):
        message = "`leaves_per_pod` and `core_oversubscription` need `tiers=3`, but `tiers=2`."
        raise ModelError(message)
    split = _leaf_ports(radix, ratio("oversubscription", oversubscription), hosts_per_leaf)
    if tiers == 2:
        return _two_tiers(hosts, radix, split, rate, delay, what)
    spine = _spine_ports(radix, ratio("core_oversubscription", core_oversubscription))
    return _three_tiers(hosts, radix, split, spine, leaves_per_pod, rate, delay, what)


def most_hosts(radix: int, hosts_per_leaf: int) -> int:
    """Return how many hosts three tiers hold with pods of full size and spines at 1:1.

    Examples:
        >>> most_hosts(64, 32)
        65536
    """
    return radix * (radix // 2) * hosts_per_leaf


@dataclass(frozen=True)
class _Ports:
    """Ports of a switch that face down and up."""

    down: int
    up: int
    ratio: float


def _split(radix: int, down_up: float) -> _Ports:
    # 1e-9 keeps a ratio such as 1/3 of a whole number from falling one port short.
    up = math.floor(radix / (1 + down_up) + 1e-9)
    return _Ports(math.floor(up * down_up + 1e-9), up, down_up)


def _leaf_ports(radix: int, down_up: float, hosts_per_leaf: int | None) -> _Ports:
    if hosts_per_leaf is None:
        ports = _split(radix, down_up)
        if ports.up < 1 or ports.down < 1:
            message = (
                f"`oversubscription={down_up:g}` leaves a leaf of radix {radix} with {ports.down} "
                f"ports down and {ports.up} up. Give `hosts_per_leaf`, or a ratio nearer to 1."
            )
            raise ModelError(message)
        return ports
    (down,) = wholes(hosts_per_leaf=hosts_per_leaf)
    up = math.ceil(down / down_up - 1e-9)
    if down + up > radix:
        message = (
            f"`hosts_per_leaf={down}` at {down_up:g}:1 needs {down} ports down and {up} up, "
            f"{down + up} in all, but `radix={radix}`. Use fewer hosts per leaf or a larger "
            f"`oversubscription`."
        )
        raise ModelError(message)
    return _Ports(down, up, down_up)


def _spine_ports(radix: int, down_up: float) -> _Ports:
    ports = _split(radix, down_up)
    if ports.up < 1 or ports.down < 1:
        message = (
            f"`core_oversubscription={down_up:g}` leaves a spine of radix {radix} with "
            f"{ports.down} ports down and {ports.up} up. Use a ratio nearer to 1."
        )
        raise ModelError(message)
    return ports


def _two_tiers(
    hosts: int, radix: int, split: _Ports, rate: float, delay: float, what: str
) -> Network:
    leaves = -(-hosts // split.down)
    spines = even_spines(leaves, split.up, radix)
    if spines is None:
        three = most_hosts(radix, split.down)
        instead = f"`tiers=3` (up to {three:,} hosts), " if hosts <= three else ""
        _beyond(hosts, 2, radix, split, radix, instead)
    afford(what, hosts + leaves * split.up)

    of_host = np.arange(hosts) // split.down
    plan = Blueprint()
    host = numbered(plan, "host", "leaf{}-host{}", hosts, (split.down,), leaf=of_host)
    leaf = plan.nodes("leaf", "leaf{}", (leaves,), leaf=np.arange(leaves))
    spine = plan.nodes("spine", "spine{}", (spines,))
    plan.cables("host", host, leaf[of_host], rate, delay)
    plan.cables("leaf-spine", leaf[:, None], spine, rate, delay, parallel=split.up // spines)
    return plan.network(what)


def _three_tiers(
    hosts: int,
    radix: int,
    split: _Ports,
    spine_split: _Ports,
    leaves_per_pod: int | None,
    rate: float,
    delay: float,
    what: str,
) -> Network:
    leaves = -(-hosts // split.down)
    if leaves_per_pod is None:
        size = min(spine_split.down, leaves)
    else:
        (size,) = wholes(leaves_per_pod=leaves_per_pod)
    pods = -(-leaves // size)
    spines = even_spines(size, split.up, spine_split.down)
    if spines is None:
        message = (
            f"`leaves_per_pod={size}` is more than the {spine_split.down} ports down of a spine of "
            f"radix {radix}. Use at most {spine_split.down}."
        )
        raise ModelError(message)
    below = size * split.up // spines
    uplinks = min(spine_split.up, math.ceil(below / spine_split.ratio - 1e-9))
    group = even_spines(pods, uplinks, radix)
    if group is None:
        _beyond(hosts, 3, radix, split, radix * size, "larger pods, ")
    afford(what, hosts + leaves * split.up + pods * spines * uplinks)

    of_host, pod = np.arange(hosts) // split.down, np.arange(leaves) // size
    plan = Blueprint()
    host = numbered(
        plan, "host", "pod{}-leaf{}-host{}", hosts, (size, split.down), leaf=of_host,
        pod=pod[of_host],
    )  # fmt: skip
    leaf = numbered(plan, "leaf", "pod{}-leaf{}", leaves, (size,), leaf=np.arange(leaves), pod=pod)
    spine = plan.nodes("spine", "pod{}-spine{}", (pods, spines), pod=np.arange(pods)[:, None])
    core = plan.nodes("core", "core{}", (spines * group,)).reshape(spines, group)
    plan.cables("host", host, leaf[of_host], rate, delay)
    plan.cables("leaf-spine", leaf[:, None], spine[pod], rate, delay, parallel=split.up // spines)
    plan.cables("spine-core", spine[..., None], core, rate, delay, parallel=uplinks // group)
    return plan.network(what)


def _beyond(
    hosts: int, tiers: int, radix: int, split: _Ports, most_leaves: int, instead: str
) -> NoReturn:
    message = (
        f"`clos(hosts={hosts:,})` is beyond {tiers} tiers of radix {radix} at {split.ratio:g}:1, "
        f"which reach {most_leaves * split.down:,} hosts ({most_leaves:,} leaves of {split.down}). "
        f"Use {instead}a larger `radix` or more `oversubscription`."
    )
    raise ModelError(message)
