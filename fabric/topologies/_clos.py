"""`clos`: folded Clos networks of two to four tiers from a number of hosts and a radix."""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, raise_faults
from fabric._units import parse_rate, parse_time
from fabric.network import Blueprint, Network, wholes
from fabric.topologies._plan import (
    Level,
    Ports,
    afford,
    climb,
    describe,
    hosts_per_port,
    numbered,
    ratio,
    split,
)
from fabric.topologies._sizes import Sizes

_KINDS = {2: ("leaf", "spine"), 3: ("leaf", "spine", "core")}
_KINDS[4] = ("leaf", "spine", "super-spine", "core")
_BLOCKS = ("pod", "zone")


def clos(
    hosts: int,
    *,
    radix: int = 64,
    spine_radix: int | None = None,
    core_radix: int | None = None,
    tiers: int = 2,
    oversubscription: float = 1,
    spine_oversubscription: float = 1,
    core_oversubscription: float = 1,
    hosts_per_leaf: int | None = None,
    leaves_per_pod: int | None = None,
    pods_per_zone: int | None = None,
    capacity: str | float = "400Gb/s",
    uplink_capacity: str | float | None = None,
    latency: str | float = 0.0,
) -> Network:
    """Return a folded Clos network that holds so many hosts.

    Leaves fill up in order, the last may have fewer hosts. Every leaf has the same number of
    cables to every spine it meets: the number of spines is the smallest of at least
    leaves x uplinks / radix that divides the uplinks. With three tiers, leaves form pods, the last
    of which may have fewer leaves; spine j of every pod is wired to the same group j of cores, by
    the same rule. With four, pods form zones with super-spines in the same way, and super-spine j
    of every zone is wired to group j of cores.

    Hosts come first, ordered by leaf, and are called `leaf0-host0` (`pod0-leaf0-host0`,
    `zone0-pod0-leaf0-host0`); switches are `leaf0` and `spine0` (`pod0-leaf0`, `pod0-spine0`,
    `core0`; `zone0-super-spine0`). Kinds `host`, `leaf`, `spine`, `super-spine` and `core`; tiers
    `host`, `leaf-spine` and `spine-core`, or `spine-super-spine` and `super-spine-core`; tag
    `leaf` (counted over all pods) on hosts and leaves, and where there are such, `pod` and `zone`.

    Args:
        hosts: Number of hosts.
        radix: Ports of a leaf, and of every other switch unless said otherwise. Default 64.
        spine_radix: Ports of a spine, and of a super-spine. Default: `radix`.
        core_radix: Ports of a core, three tiers and more. Default: `spine_radix`.
        tiers: 2, 3 or 4. Default 2.
        oversubscription: Down:up of a leaf, 4 for 4:1. A leaf gets u = floor(radix / (1 + ratio))
            uplinks and floor(u x ratio) ports for hosts. Default 1.
        spine_oversubscription: Ports down:up of a spine, four tiers only. Default 1.
        core_oversubscription: Ports down:up of the switches below the cores, three tiers and more.
            Default 1.
        hosts_per_leaf: Hosts of a full leaf, where they shall not follow from `radix`; uplinks are
            then that many over the ratio, rounded up.
        leaves_per_pod: Leaves of a full pod, three tiers and more. Default: as many as a spine has
            ports down.
        pods_per_zone: Pods of a full zone, four tiers only. Default: as many as a super-spine has
            ports down.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        uplink_capacity: Of every cable above the leaves, a whole multiple of `capacity`; so many
            hosts then share a port of a leaf. Default: `capacity`.
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
        >>> clos(20, radix=4, tiers=4).labels.names[19]
        'zone2-pod0-leaf1-host1'

    References:
        C. Clos, A Study of Non-Blocking Switching Networks, 1953. The rule for spines reproduces
        the tables of the NVIDIA DGX SuperPOD reference architectures.
    """
    asked = {
        "hosts": hosts, "radix": radix, "spine_radix": spine_radix, "core_radix": core_radix,
        "tiers": tiers, "oversubscription": oversubscription,
        "spine_oversubscription": spine_oversubscription,
        "core_oversubscription": core_oversubscription, "hosts_per_leaf": hosts_per_leaf,
        "leaves_per_pod": leaves_per_pod, "pods_per_zone": pods_per_zone, "capacity": capacity,
        "uplink_capacity": uplink_capacity, "latency": latency,
    }  # fmt: skip
    what = describe(clos, **asked)
    design = _designed(**asked)
    afford(what, design.sizes.n_cables)
    return _laid_out(design, parse_time(latency, "latency"), what)


def sizes_of_clos(**asked: Any) -> Sizes:
    """Return what `clos` would have, from all of its arguments."""
    return _designed(**asked).sizes


@dataclass(frozen=True)
class _Design:
    """What `clos` builds: leaves, and the tiers of switches above them, lowest first."""

    hosts: int
    hosts_per_leaf: int
    leaves: int
    uplinks: int
    levels: list[Level]
    down_rate: float
    up_rate: float

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the switches, leaves first."""
        return _KINDS[len(self.levels) + 1]

    @property
    def tiers(self) -> list[str]:
        """Names of the tiers above the leaves."""
        return [f"{below}-{above}" for below, above in itertools.pairwise(self.kinds)]

    @functools.cached_property
    def sizes(self) -> Sizes:
        """Counts of nodes, cables, ports and paths."""
        counts, ups, blocks = [self.leaves], [self.uplinks], [self.leaves]
        for level in self.levels:
            counts.append(level.blocks * level.width)
            ups.append(level.up)
            blocks.append(level.blocks)
        ports = [min(self.hosts, self.hosts_per_leaf) + self.uplinks] + [
            min(below, level.size) * level.cables + level.up
            for below, level in zip(blocks, self.levels, strict=False)
        ]
        # Two hosts meet no later than in the lowest tier that is one block.
        top = next((i for i, n in enumerate(blocks) if n == 1), 0)
        over = self.levels[:top]
        return Sizes(
            {"host": self.hosts, **dict(zip(self.kinds, counts, strict=True))},
            {
                "host": self.hosts,
                **{tier: n * up for tier, n, up in zip(self.tiers, counts, ups, strict=False)},
            },
            {"host": 1, **dict(zip(self.kinds, ports, strict=True))},
            hops=2 * top + 1,
            paths=math.prod(level.group for level in over),
            cable_paths=math.prod(level.group * level.cables**2 for level in over),
        )


def _designed(
    hosts: int,
    radix: int,
    spine_radix: int | None,
    core_radix: int | None,
    tiers: int,
    oversubscription: float,
    spine_oversubscription: float,
    core_oversubscription: float,
    hosts_per_leaf: int | None,
    leaves_per_pod: int | None,
    pods_per_zone: int | None,
    capacity: str | float,
    uplink_capacity: str | float | None,
    latency: str | float,
) -> _Design:
    (hosts,) = wholes(hosts=hosts)
    (radix,) = wholes(least=2, radix=radix)
    (spine_radix,) = wholes(least=2, spine_radix=radix if spine_radix is None else spine_radix)
    top = {"core_radix": spine_radix if core_radix is None else core_radix}
    (core_radix,) = wholes(least=2, **top)
    _check_tiers(
        tiers, core_radix=core_radix != spine_radix, leaves_per_pod=leaves_per_pod is not None,
        core_oversubscription=core_oversubscription != 1, pods_per_zone=pods_per_zone is not None,
        spine_oversubscription=spine_oversubscription != 1,
    )  # fmt: skip
    shared = hosts_per_port(capacity, uplink_capacity)
    leaf = _leaf_ports(radix, ratio("oversubscription", oversubscription), hosts_per_leaf, shared)
    cored = ("core_oversubscription", core_oversubscription)
    spined = ("spine_oversubscription", spine_oversubscription)
    ratios = {2: [], 3: [cored], 4: [spined, cored]}
    between = [_ports_between(spine_radix, *named) for named in ratios[tiers]]
    top_radix = spine_radix if tiers == 2 else core_radix
    sizes = [("leaves_per_pod", leaves_per_pod), ("pods_per_zone", pods_per_zone)]

    leaves = -(-hosts // leaf.down)
    blocks, width, uplinks, levels = leaves, 1, leaf.up, []
    for ports, (name, asked) in zip(between, sizes, strict=False):
        size = min(ports.down, blocks) if asked is None else wholes(**{name: asked})[0]
        level = climb(blocks, uplinks, ports, size=size, width=width)
        if level is None:
            message = (
                f"`{name}={size}` is more than the {ports.down} ports down of a spine of "
                f"radix {spine_radix}. Use at most {ports.down}."
            )
            raise ModelError(message)
        levels.append(level)
        blocks, width, uplinks = level.blocks, level.width, level.up
    level = climb(blocks, uplinks, Ports(top_radix, 0), width=width)
    if level is None:
        reach = lambda asked, ports: leaf.down * top_radix * math.prod(map(_size, asked, ports))
        given = [leaves_per_pod, pods_per_zone]
        more = {
            n: reach(given[: n - 2], [_ports_between(spine_radix, *named) for named in ratios[n]])
            for n in range(tiers + 1, 5)
        }
        larger = hosts <= reach([None] * len(between), between)
        _beyond(hosts, tiers, radix, leaf, reach(given[: tiers - 2], between), more, larger)
    down = parse_rate(capacity, "capacity")
    return _Design(hosts, leaf.down, leaves, leaf.up, [*levels, level], down, down * shared)


def _check_tiers(tiers: int, **given: bool) -> None:
    if tiers not in _KINDS or isinstance(tiers, bool):
        instead = "For one tier use `single_switch(hosts)`" if tiers in (0, 1) else "Use `tiers=4`"
        message = f"`clos(tiers={tiers!r})` needs 2, 3 or 4 tiers. {instead}."
        raise ModelError(message)
    need = {"pods_per_zone": 4, "spine_oversubscription": 4}
    faults = [
        f"`{name}` needs `tiers={least}`, but `tiers={tiers}`. Leave it out."
        for name, there in given.items()
        if there and tiers < (least := need.get(name, 3))
    ]
    raise_faults(faults)


def _leaf_ports(radix: int, down_up: float, hosts_per_leaf: int | None, shared: int) -> Ports:
    """Return hosts and uplinks of a leaf, `shared` hosts on one of its ports."""
    if hosts_per_leaf is None:
        ports = split(radix, down_up)
        if ports.up < 1 or ports.down < 1:
            message = (
                f"`oversubscription={down_up:g}` leaves a leaf of radix {radix} with {ports.down} "
                f"ports down and {ports.up} up. Give `hosts_per_leaf`, or a ratio from "
                f"{1 / max(radix - 1, 1):.3g} to {radix - 1}."
            )
            raise ModelError(message)
        return Ports(ports.down * shared, ports.up, down_up)
    (hosts,) = wholes(hosts_per_leaf=hosts_per_leaf)
    down = -(-hosts // shared)
    up = math.ceil(hosts / shared / down_up - 1e-9)
    if down + up > radix:
        message = (
            f"`hosts_per_leaf={hosts}` at {down_up:g}:1 needs {down} ports down and {up} up, "
            f"{down + up} in all, but `radix={radix}`. Use fewer hosts per leaf or a larger "
            f"`oversubscription`."
        )
        raise ModelError(message)
    return Ports(hosts, up, down_up)


def _ports_between(radix: int, name: str, down_up: float) -> Ports:
    ports = split(radix, ratio(name, down_up))
    if ports.up < 1 or ports.down < 1:
        message = (
            f"`{name}={down_up:g}` leaves a switch of radix {radix} with {ports.down} ports down "
            f"and {ports.up} up. Use a ratio from {1 / max(radix - 1, 1):.3g} to {radix - 1}."
        )
        raise ModelError(message)
    return ports


def _size(asked: int | None, ports: Ports) -> int:
    """Return blocks of the tier below in a full block; 0 where as many as asked do not fit."""
    if asked is None:
        return ports.down
    return asked if asked <= ports.down else 0


def _beyond(
    hosts: int, tiers: int, radix: int, leaf: Ports, reach: int, more: dict[int, int],
    larger_pods: bool,
) -> NoReturn:  # fmt: skip
    """Raise that hosts are too many; `more` is how many there may be with more tiers."""
    fits = next(((n, most) for n, most in more.items() if hosts <= most), None)
    instead = f"`tiers={fits[0]}` (up to {fits[1]:,} hosts), " if fits else ""
    instead += "larger pods, " * larger_pods
    message = (
        f"`clos(hosts={hosts:,})` is beyond {tiers} tiers of radix {radix} at {leaf.ratio:g}:1, "
        f"which reach {reach:,} hosts ({reach // leaf.down:,} leaves of {leaf.down}). "
        f"Use {instead}a larger `radix` or more `oversubscription`."
    )
    raise ModelError(message)


def _laid_out(design: _Design, delay: float, what: str) -> Network:
    """Return the network of a design."""
    levels, words = design.levels, _BLOCKS[: len(design.levels) - 1]
    sizes = [level.size for level in levels[:-1]]
    plan = Blueprint()
    of = {"leaf": np.arange(design.leaves)} | _blocks(np.arange(design.leaves), words, sizes)
    of_host = np.arange(design.hosts) // design.hosts_per_leaf
    host = numbered(
        plan, "host", _name(words, "leaf{}-host"), design.hosts,
        (*reversed(sizes), design.hosts_per_leaf),
        **{tag: number[of_host] for tag, number in of.items()},
    )  # fmt: skip
    inner = tuple(reversed(sizes))
    leaf = numbered(plan, "leaf", _name(words, "leaf"), design.leaves, inner, **of)
    plan.cables("host", host, leaf[of_host], design.down_rate, delay)

    below = leaf[:, None]
    for level, kind, tier in zip(levels, design.kinds[1:], design.tiers, strict=True):
        total = level.blocks * level.width
        tags = _blocks(np.arange(total) // level.width, words, [1, *sizes[1:]])
        inner = (*reversed(sizes[1:]), level.width) if words else ()
        above = numbered(plan, kind, _name(words, kind), total, inner, **tags)
        above = above.reshape(level.blocks, below.shape[1], level.group)
        up = above[np.arange(len(below)) // level.size]
        plan.cables(tier, below[..., None], up, design.up_rate, delay, parallel=level.cables)
        below, words, sizes = above.reshape(level.blocks, -1), words[1:], sizes[1:]
    return plan.network(what)


def _name(words: Sequence[str], kind: str) -> str:
    return "".join(f"{word}{{}}-" for word in reversed(words)) + f"{kind}{{}}"


def _blocks(
    number: Int[np.ndarray, " nodes"], words: Sequence[str], sizes: Sequence[int]
) -> dict[str, Int[np.ndarray, " nodes"]]:
    """Return the block of every node in each tier of blocks, from its number in the tier below."""
    tags = {}
    for word, size in zip(words, sizes, strict=False):
        number = number // size
        tags[word] = number
    return tags
