"""`rail_optimized`: two or three tiers in which NIC r of every server meets leaf r of its unit."""

import math
from typing import Any, NoReturn

from fabric._errors import ModelError, nearest, raise_faults
from fabric._units import parse_rate, parse_time
from fabric.network import Network, wholes
from fabric.topologies._plan import Level, Ports, climb, describe, hosts_per_port, ratio, split
from fabric.topologies._sizes import Sizes
from fabric.topologies._wiring import Wiring

PODS = ("units", "rails")


def rail_optimized(
    servers: int,
    *,
    rails: int = 8,
    radix: int = 64,
    tiers: int = 2,
    pods: str = PODS[0],
    leaf_down: int | None = None,
    leaf_up: int | None = None,
    spines: int | None = None,
    servers_per_unit: int | None = None,
    units_per_pod: int | None = None,
    core_oversubscription: float = 1,
    capacity: str | float = "400Gb/s",
    uplink_capacity: str | float | None = None,
    latency: str | float = 0.0,
) -> Network:
    """Return a rail-optimized network, the compute fabric of a SuperPOD.

    Servers come in scalable units, the last may have fewer. NIC r of every server of a unit is
    wired to leaf r of that unit, and every leaf has the same number of cables to every spine. The
    endpoints are NICs: what a server is made of inside is not in this network.

    With three tiers, leaves form pods with spines of their own, and spine j of every pod meets the
    same group j of cores. Pods of units hold all rails of some units, so that rails meet in their
    spines; pods of rails hold one rail of some units, so that rails meet at the cores.

    NICs come first, ordered by server and rail, and are called `server0-nic0`; switches are
    `unit0-leaf0`, `spine0` or `pod0-spine0`, and `core0`. Kinds `nic`, `leaf`, `spine`, `core`;
    tiers `host`, `leaf-spine`, `spine-core`; tags `server`, `rail`, `unit`, `leaf` (counted over
    all units) and with three tiers `pod`.

    Args:
        servers: Number of servers.
        rails: NICs of a server, and leaves of a unit. Default 8.
        radix: Ports of every switch. Default 64.
        tiers: 2 or 3. Default 2.
        pods: "units" or "rails", three tiers only. Default "units".
        leaf_down: Ports of a leaf that face servers. Default: half the radix.
        leaf_up: Uplinks of a leaf. Default: as many as `leaf_down`, or what the radix leaves.
        spines: Number of spines, of a pod with three tiers; it divides `leaf_up`. Default: the
            smallest such number of at least leaves x leaf_up / ports down of a spine.
        servers_per_unit: Servers of a full unit. Default: as many as a leaf has cables down.
        units_per_pod: Units of a full pod, three tiers only. Default: as many as a spine has ports
            down for.
        core_oversubscription: Ports down:up of a spine, three tiers only. Default 1.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        uplink_capacity: Of every cable above the leaves, a whole multiple of `capacity`; so many
            servers then share a port of a leaf. Default: `capacity`.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If a switch would need more ports than it has, the servers are beyond the tiers
            (two: radix / rails units), or the network would not fit in memory.

    Examples:
        >>> net = rail_optimized(servers=128)
        >>> {k: int(net.labels.is_kind(k).sum()) for k in net.labels.kinds}
        {'nic': 1024, 'leaf': 32, 'spine': 16}
        >>> net = rail_optimized(servers=512, tiers=3)
        >>> {k: int(net.labels.is_kind(k).sum()) for k in net.labels.kinds}
        {'nic': 4096, 'leaf': 128, 'spine': 128, 'core': 64}

    References:
        NVIDIA DGX SuperPOD reference architectures H100, B200 and B300, section Network Fabrics:
        the default number of spines reproduces their tables. Pods of rails: Tencent Astral,
        SIGCOMM 2025.
    """
    asked = {
        "servers": servers, "rails": rails, "radix": radix, "tiers": tiers, "pods": pods,
        "leaf_down": leaf_down, "leaf_up": leaf_up, "spines": spines,
        "servers_per_unit": servers_per_unit, "units_per_pod": units_per_pod,
        "core_oversubscription": core_oversubscription, "capacity": capacity,
        "uplink_capacity": uplink_capacity, "latency": latency,
    }  # fmt: skip
    what = describe(rail_optimized, **asked)
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    up = rate if uplink_capacity is None else parse_rate(uplink_capacity, "uplink_capacity")
    return wiring_of("rail_optimized", **asked).network(what, rate, delay, up)


def sizes_of_rail_optimized(**asked: Any) -> Sizes:
    """Return what `rail_optimized` would have, from all of its arguments."""
    return wiring_of("rail_optimized", **asked).sizes()


def wiring_of(
    builder: str,
    servers: int,
    rails: int,
    radix: int,
    tiers: int,
    pods: str = PODS[0],
    leaf_down: int | None = None,
    leaf_up: int | None = None,
    spines: int | None = None,
    servers_per_unit: int | None = None,
    units_per_pod: int | None = None,
    core_oversubscription: float = 1,
    capacity: str | float = 1.0,
    uplink_capacity: str | float | None = None,
    latency: str | float = 0.0,
) -> Wiring:
    """Return the wiring of `rail_optimized`, or of one plane; `builder` is what a message calls it.

    Raises:
        ModelError: As `rail_optimized`.
    """
    servers, rails = wholes(servers=servers, rails=rails)
    fixed = leaf_down is not None or servers_per_unit is not None
    (radix,) = wholes(least=2, radix=radix)
    _check_tiers(
        builder, tiers, pods, units_per_pod is not None, core_oversubscription != 1
    )  # fmt: skip
    shared = hosts_per_port(capacity, uplink_capacity)
    (down,) = wholes(leaf_down=radix // 2 if leaf_down is None else leaf_down)
    (up,) = wholes(leaf_up=max(1, min(down, radix - down)) if leaf_up is None else leaf_up)
    most = down * shared
    (size,) = wholes(servers_per_unit=most if servers_per_unit is None else servers_per_unit)
    raise_faults(_port_faults(radix, down, up, size, most))
    units = -(-servers // size)
    if tiers == 2:
        level = climb(units * rails, up, Ports(radix, 0))
        if level is None:
            larger = _fitting_radix(servers, rails, size if fixed else None)
            ways = {"`tiers=3`": (radix, 3), f"`radix={larger}`": (larger, 2)}
            fits = lambda radix, tiers, spines: _fits(
                builder, servers, rails, radix, tiers, PODS[0], leaf_down, leaf_up, spines,
                servers_per_unit, capacity=capacity, uplink_capacity=uplink_capacity,
            )  # fmt: skip
            use = [
                hint + " without `spines`" * (kept is not spines)
                for hint, way in ways.items()
                if (kept := next((n for n in (spines, None) if fits(*way, n)), 0)) != 0
            ]
            _beyond_two(builder, servers, rails, radix, units, size, use)
        level = _with_spines(level, spines, up, radix)
        return Wiring(servers, rails, size, spines=level.group, leaf_cables=level.cables)

    ports = split(radix, ratio("core_oversubscription", core_oversubscription))
    leaves = rails if pods == "units" else 1  # that a unit has in a pod
    fitting = ports.down // leaves
    if not fitting or not ports.up:
        instead = "`pods='rails'` or " * (leaves > 1 and ports.down > 0 and ports.up > 0)
        less = " or a smaller `core_oversubscription`" * (core_oversubscription > 1)
        message = (
            f"`{builder}(rails={rails}, radix={radix}, core_oversubscription="
            f"{core_oversubscription:g})` leaves a spine {ports.down} ports down and {ports.up} "
            f"up, but a unit has {leaves} leaves in a pod. Use {instead}a larger `radix`{less}."
        )
        raise ModelError(message)
    per_pod = min(fitting, units) if units_per_pod is None else units_per_pod
    (per_pod,) = wholes(units_per_pod=per_pod)
    level = climb(units * leaves, up, ports, size=per_pod * leaves)
    if level is None:
        message = (
            f"`units_per_pod={per_pod}` with {leaves} leaves each are more than the {ports.down} "
            f"ports down of a spine of radix {radix}. Use at most {fitting}."
        )
        raise ModelError(message)
    level = _with_spines(level, spines, up, ports.down, ports)
    n_pods = -(-units // per_pod) * (rails if pods == "rails" else 1)
    top = climb(n_pods, level.up, Ports(radix, 0), width=level.group)
    if top is None:
        hosts = radix // (rails // leaves) * per_pod * size * rails
        use = ["a larger `radix`", *["larger pods"] * (per_pod < fitting)]
        if shared == 1 and _four_tiers(servers * rails, radix):
            use.append(f"`clos(hosts={servers * rails}, radix={radix}, tiers=4)`")
        message = (
            f"`{builder}(servers={servers:,})` needs {n_pods:,} pods, but three tiers of radix "
            f"{radix} stop at {radix}: {hosts // rails:,} servers with {rails} rails. Use "
            f"{' or '.join(use)}."
        )
        raise ModelError(message)
    return Wiring(
        servers, rails, size, pods=pods, units_per_pod=per_pod, spines=level.group,
        leaf_cables=level.cables, groups=level.group, cores=top.group, core_cables=top.cables,
    )  # fmt: skip


def _check_tiers(builder: str, tiers: int, pods: str, per_pod: bool, cored: bool) -> None:
    faults = []
    if isinstance(tiers, bool) or tiers not in (2, 3):
        faults.append(
            f"`{builder}(tiers={tiers!r})` needs 2 or 3 tiers. For one tier use "
            f"`rail_only(...)`, for four `clos(..., tiers=4)`."
        )
    elif tiers == 2:
        given = {"pods": pods != PODS[0], "units_per_pod": per_pod, "core_oversubscription": cored}
        faults += [
            f"`{name}` needs `tiers=3`, but `tiers=2`. Leave it out."
            for name, there in given.items()
            if there
        ]
    if pods not in PODS:
        faults.append(f"`pods={pods!r}` is not known. {nearest(str(pods), PODS)}")
    raise_faults(faults)


def _with_spines(
    level: Level, spines: int | None, up: int, ports_down: int, ports: Ports | None = None
) -> Level:
    """Return the tier with as many spines as asked for; `level` has what fits."""
    if spines is None:
        return level
    (spines,) = wholes(spines=spines)
    leaves = level.size
    faults = []
    if up % spines:
        faults.append(
            f"`spines={spines}` does not divide the {up} uplinks of a leaf, so its cables to each "
            f"spine would differ. Use `spines={level.group}`."
        )
    elif leaves * up > spines * ports_down:
        faults.append(
            f"`spines={spines}` offer {spines * ports_down:,} ports to {leaves * up:,} uplinks of "
            f"{leaves:,} leaves. Use `spines={level.group}`."
        )
    raise_faults(faults)
    down = leaves * up // spines
    ports = Ports(ports_down, 0) if ports is None else ports
    above = min(ports.up, math.ceil(down / ports.ratio - 1e-9))
    return Level(level.blocks, leaves, spines, spines, up // spines, down, above)


def _four_tiers(hosts: int, radix: int) -> bool:
    """Return whether `clos` of four tiers holds so many hosts."""
    return hosts <= 2 * (radix // 2) ** 4


def _fits(*asked: Any, **more: Any) -> bool:
    """Return whether there is such a wiring."""
    try:
        wiring_of(*asked, **more)
    except ModelError:
        return False
    return True


def _beyond_two(
    builder: str, servers: int, rails: int, radix: int, units: int, size: int, use: list[str]
) -> NoReturn:
    message = (
        f"`{builder}(servers={servers:,})` needs {units * rails:,} leaves, but two tiers of "
        f"radix {radix} stop at {radix} leaves: {radix // rails * size:,} servers with {rails} "
        f"rails. Use {' or '.join(use) or 'fewer servers'}."
    )
    raise ModelError(message)


def _fitting_radix(servers: int, rails: int, size: int | None) -> int:
    """Return the least even radix whose two tiers hold so many servers.

    Args:
        servers: Number of servers.
        rails: Leaves of a unit.
        size: Servers of a unit; None: half the radix.
    """
    leaves = lambda radix: -(-servers // (size or radix // 2)) * rails
    if size is not None:
        return leaves(0) + leaves(0) % 2
    # Units of radix / 2 servers: radix squared is at least twice the number of NICs.
    radix = math.isqrt(2 * servers * rails) // 2 * 2
    while leaves(radix) > radix:
        radix += 2
    return radix


def _port_faults(radix: int, down: int, up: int, size: int, most: int) -> list[str]:
    faults = []
    if down + up > radix:
        faults.append(
            f"`leaf_down={down}` and `leaf_up={up}` need {down + up} ports, but `radix={radix}`. "
            f"Use fewer, or a larger `radix`."
        )
    if size > most:
        faults.append(
            f"`servers_per_unit={size}` is more than the {most} ports down of a leaf. Use at most "
            f"{most}, or a larger `leaf_down`."
        )
    return faults
