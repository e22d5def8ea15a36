"""Rail-aligned fabrics beyond two equal tiers: pods below cores, separate planes, racks.

The wiring of named clusters. NICs come first, ordered by server and rail, as in `rail_optimized`.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, raise_faults
from fabric.network import Blueprint, Network
from fabric.topologies._plan import even_spines


@dataclass(frozen=True)
class Pods:
    """How leaves meet spines within pods, and spines meet cores.

    Attributes:
        pod: (units, rails), the pod of every leaf.
        spines: Spines of a pod, each with `leaf_cables` to every leaf of it.
        group: (spines,), the group of cores that spine j of every pod meets.
        cores: Cores of a group, each with `core_cables` to every spine that meets the group.
    """

    pod: Int[np.ndarray, "units rails"]
    spines: int
    leaf_cables: int
    group: Int[np.ndarray, " spines"]
    cores: int
    core_cables: int


def pods_of_units(units: int, rails: int, radix: int, units_per_pod: int) -> Pods:
    """Return pods of whole units: spine j of every pod meets the cores of group j.

    Leaves have half their ports up. The number of cores is the smallest that gives every spine
    as many cables to each core of its group.

    Args:
        units: Scalable units.
        rails: Leaves of a unit.
        radix: Ports of every switch.
        units_per_pod: Units of a full pod; the last may have fewer.

    Examples:
        >>> pods = pods_of_units(units=16, rails=8, radix=64, units_per_pod=4)
        >>> pods.spines, pods.cores, pods.core_cables
        (32, 2, 16)
    """
    up = radix // 2
    spines = even_spines(units_per_pod * rails, up, up)
    cores = even_spines(-(-units // units_per_pod), up, radix)
    if spines is None or cores is None:
        message = f"{units:,} units of {rails} leaves are beyond three tiers of radix {radix}."
        raise ModelError(message)
    pod = np.broadcast_to(np.arange(units)[:, None] // units_per_pod, (units, rails))
    below = units_per_pod * rails * up // spines
    return Pods(pod, spines, up // spines, np.arange(spines), cores, min(below, up) // cores)


def pods_of_rails(units: int, rails: int, radix: int, spines: int, groups: int) -> Pods:
    """Return pods of one rail each: all its leaves, and spines of its own.

    A spine has as many cables up as down, one to each core of its group.

    Args:
        units: Scalable units.
        rails: Leaves of a unit, and pods.
        radix: Ports of every switch; a leaf has half of them up.
        spines: Spines of a rail.
        groups: Groups of cores; the spines of every rail are dealt to them in equal runs.

    Examples:
        >>> pods = pods_of_rails(units=7, rails=8, radix=40, spines=10, groups=2)
        >>> pods.leaf_cables, pods.cores * 2
        (2, 28)
    """
    cables = radix // 2 // spines
    pod = np.broadcast_to(np.arange(rails), (units, rails))
    group = np.arange(spines) // (spines // groups)
    return Pods(pod, spines, cables, group, units * cables, 1)


def rail_pods(
    servers: int, rails: int, servers_per_unit: int, pods: Pods, rate: float, source: str
) -> Network:
    """Return a rail-optimized network of three tiers.

    Kinds `nic`, `leaf`, `spine` and `core`; tiers `host`, `leaf-spine` and `spine-core`; tags
    `server`, `rail`, `unit`, `leaf` and `pod`.

    Args:
        servers: Number of servers.
        rails: NICs of a server.
        servers_per_unit: Servers of a full unit.
        pods: How the switches are wired.
        rate: byte/s of every cable, per direction.
        source: What was built.
    """
    plan = Blueprint()
    nic, leaf, unit = _nics_and_leaves(plan, servers, rails, servers_per_unit, pods.pod)
    n_pods = int(pods.pod.max()) + 1
    shape = (n_pods, pods.spines)
    spine = plan.nodes("spine", "pod{}-spine{}", shape, pod=np.arange(n_pods)[:, None])
    core = plan.nodes("core", "core{}", ((int(pods.group.max()) + 1) * pods.cores,))
    plan.cables("host", nic, leaf[unit], rate)
    plan.cables("leaf-spine", leaf[..., None], spine[pods.pod], rate, parallel=pods.leaf_cables)
    up = core.reshape(-1, pods.cores)[pods.group]
    plan.cables("spine-core", spine[..., None], up, rate, parallel=pods.core_cables)
    return plan.network(source)


def rail_planes(
    servers: int,
    rails: int,
    servers_per_unit: int,
    planes: int,
    radix: int,
    rate: float,
    source: str,
) -> Network:
    """Return isolated two-tier planes; every NIC has one cable into each of them.

    A NIC forwards nothing, so no traffic changes its plane on the way. Kinds and tiers as in
    `rail_optimized`; tags `server`, `rail`, `unit`, and `plane` and `leaf` of switches.

    Args:
        servers: Number of servers.
        rails: NICs of a server.
        servers_per_unit: Servers of a full unit, and ports down of a leaf.
        planes: Number of planes.
        radix: Ports of every switch.
        rate: byte/s of every cable, per direction.
        source: What was built.
    """
    units = -(-servers // servers_per_unit)
    spines = even_spines(units * rails, servers_per_unit, radix)
    if spines is None:
        message = f"{units * rails:,} leaves are beyond two tiers of radix {radix}."
        raise ModelError(message)
    plan = Blueprint()
    server, rail, plane = np.arange(servers)[:, None], np.arange(rails), np.arange(planes)
    unit = server // servers_per_unit
    nic = plan.nodes(
        "nic", "server{}-nic{}", (servers, rails), server=server, rail=rail, unit=unit,
        leaf=unit * rails + rail,
    )  # fmt: skip
    leaf = plan.nodes(
        "leaf", "plane{}-unit{}-leaf{}", (planes, units, rails), rail=rail,
        plane=plane[:, None, None], unit=np.arange(units)[:, None],
        leaf=np.arange(units * rails).reshape(units, rails),
    )  # fmt: skip
    spine = plan.nodes("spine", "plane{}-spine{}", (planes, spines), plane=plane[:, None])
    plan.cables("host", nic, leaf[:, unit[:, 0]], rate)
    up = spine[:, None, None]
    plan.cables("leaf-spine", leaf[..., None], up, rate, parallel=servers_per_unit // spines)
    return plan.network(source)


def racks(
    n_racks: int, racks_per_unit: int, trays: int, rails: int, leaves: int, spines: int,
    radix: int, rate: float, source: str,
) -> Network:  # fmt: skip
    """Return two tiers under racks: NIC r of every tray meets a leaf of rail r.

    The leaves of a rail fill up in order of racks and trays. A leaf has the fewest uplinks that
    are as many as its ports down and the same number to every spine.

    Args:
        n_racks: Number of racks.
        racks_per_unit: Racks of a scalable unit.
        trays: Compute trays of a rack.
        rails: NICs of a tray.
        leaves: Number of leaves, a multiple of `rails`.
        spines: Number of spines.
        radix: Ports of every switch.
        rate: byte/s of every cable, per direction.
        source: What was built.

    Raises:
        ModelError: If the leaves do not deal out, or a switch would need more ports than it has.
    """
    faults = []
    if leaves % rails:
        faults.append(
            f"`leaves={leaves}` needs a multiple of the {rails} rails, so that every rail has as "
            f"many. Use `leaves={-(-leaves // rails) * rails}`."
        )
    down = -(-n_racks * trays * rails // leaves)
    cables = -(-down // spines)
    if down + cables * spines > radix:
        faults.append(
            f"`leaves={leaves}` have {down} NICs each and {cables * spines} uplinks to "
            f"`spines={spines}`, {down + cables * spines} ports in all, but a switch has {radix}. "
            f"Use more leaves, or a number of spines that divides {down}."
        )
    if leaves * cables > radix:
        faults.append(
            f"`spines={spines}` with {cables} cables to each of {leaves} leaves need "
            f"{leaves * cables:,} ports each, but a switch has {radix}. Use more spines."
        )
    raise_faults(faults)
    plan = Blueprint()
    rack, tray = np.arange(n_racks)[:, None, None], np.arange(trays)[:, None]
    rail = np.arange(rails)
    per_rail = leaves // rails
    number = rail * per_rail + (rack * trays + tray) * per_rail // (n_racks * trays)
    nic = plan.nodes(
        "nic", "rack{}-tray{}-nic{}", (n_racks, trays, rails), rail=rail, leaf=number, rack=rack,
        unit=rack // racks_per_unit,
    )  # fmt: skip
    leaf = plan.nodes(
        "leaf", "leaf{}", (leaves,), leaf=np.arange(leaves), rail=np.arange(leaves) // per_rail
    )
    spine = plan.nodes("spine", "spine{}", (spines,))
    plan.cables("host", nic, leaf[number], rate)
    plan.cables("leaf-spine", leaf[:, None], spine, rate, parallel=cables)
    return plan.network(source)


def _nics_and_leaves(
    plan: Blueprint, servers: int, rails: int, size: int, pod: Int[np.ndarray, "units rails"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Add NICs and leaves; return their numbers and the unit of every server."""
    server, rail = np.arange(servers)[:, None], np.arange(rails)
    unit, number = server // size, np.arange(pod.size).reshape(pod.shape)
    of = unit[:, 0]
    nic = plan.nodes(
        "nic", "server{}-nic{}", (servers, rails), server=server, rail=rail, unit=unit,
        leaf=number[of], pod=pod[of],
    )  # fmt: skip
    leaf = plan.nodes(
        "leaf", "unit{}-leaf{}", pod.shape, rail=rail, unit=np.arange(len(pod))[:, None],
        leaf=number, pod=pod,
    )  # fmt: skip
    return nic, leaf, of
