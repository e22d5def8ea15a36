"""`rail_optimized`: two tiers in which NIC r of every server meets leaf r of its unit."""

import math

import numpy as np

from fabric._errors import ModelError, raise_faults
from fabric._units import parse_rate, parse_time
from fabric.network import Blueprint, Network, wholes
from fabric.topologies._clos import most_hosts
from fabric.topologies._plan import afford, describe, even_spines


def rail_optimized(
    servers: int,
    *,
    rails: int = 8,
    radix: int = 64,
    leaf_down: int | None = None,
    leaf_up: int | None = None,
    spines: int | None = None,
    servers_per_unit: int | None = None,
    capacity: str | float = "400Gb/s",
    latency: str | float = 0.0,
) -> Network:
    """Return a rail-optimized network of two tiers, the compute fabric of a SuperPOD.

    Servers come in scalable units, the last may have fewer. NIC r of every server of a unit is
    wired to leaf r of that unit, and every leaf has the same number of cables to every spine. The
    endpoints are NICs: what a server is made of inside is not in this network.

    NICs come first, ordered by server and rail, and are called `server0-nic0`; switches are
    `unit0-leaf0` and `spine0`. Kinds `nic`, `leaf`, `spine`; tiers `host`, `leaf-spine`; tags
    `server`, `rail`, `unit`, `leaf` (counted over all units).

    Args:
        servers: Number of servers.
        rails: NICs of a server, and leaves of a unit. Default 8.
        radix: Ports of every switch. Default 64.
        leaf_down: Ports of a leaf that face servers. Default: half the radix.
        leaf_up: Uplinks of a leaf. Default: as many as `leaf_down`, or what the radix leaves.
        spines: Number of spines; it divides `leaf_up`. Default: the smallest such number of at
            least leaves x leaf_up / radix.
        servers_per_unit: Servers of a full unit. Default: `leaf_down`.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If a switch would need more ports than it has, the servers are beyond two tiers
            (radix / rails units), or the network would not fit in memory.

    Examples:
        >>> net = rail_optimized(servers=128)
        >>> {k: int(net.labels.is_kind(k).sum()) for k in net.labels.kinds}
        {'nic': 1024, 'leaf': 32, 'spine': 16}

    References:
        NVIDIA DGX SuperPOD reference architectures H100, B200 and B300, section Network Fabrics:
        the default number of spines reproduces their two-tier tables.
    """
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    what = describe(
        rail_optimized, servers=servers, rails=rails, radix=radix, leaf_down=leaf_down,
        leaf_up=leaf_up, spines=spines, servers_per_unit=servers_per_unit, capacity=capacity,
        latency=latency,
    )  # fmt: skip
    servers, rails = wholes(servers=servers, rails=rails)
    fixed = leaf_down is not None or servers_per_unit is not None
    (radix,) = wholes(least=2, radix=radix)
    (down,) = wholes(leaf_down=radix // 2 if leaf_down is None else leaf_down)
    (up,) = wholes(leaf_up=max(1, min(down, radix - down)) if leaf_up is None else leaf_up)
    (size,) = wholes(servers_per_unit=down if servers_per_unit is None else servers_per_unit)
    raise_faults(_port_faults(radix, down, up, size))
    units = -(-servers // size)
    leaves = units * rails
    fitting = even_spines(leaves, up, radix)
    if fitting is None:
        most, hosts = radix // rails * size, servers * rails
        larger = _fitting_radix(servers, rails, size if fixed else None)
        use = [f"`radix={larger}`"]
        if hosts <= most_hosts(radix, radix // 2):
            use.insert(0, f"`clos(hosts={hosts}, radix={radix}, tiers=3)`")
        message = (
            f"`rail_optimized(servers={servers:,})` needs {leaves:,} leaves, but two tiers of "
            f"radix {radix} stop at {radix} leaves: {most:,} servers with {rails} rails. Use "
            f"{' or '.join(use)}."
        )
        raise ModelError(message)
    n_spines = fitting if spines is None else _checked(spines, leaves, up, radix, fitting)
    afford(what, servers * rails + leaves * up)

    server, rail = np.arange(servers)[:, None], np.arange(rails)
    number = np.arange(leaves).reshape(units, rails)
    unit = server // size
    plan = Blueprint()
    nic = plan.nodes(
        "nic", "server{}-nic{}", (servers, rails), server=server, rail=rail, unit=unit,
        leaf=number[unit[:, 0]],
    )  # fmt: skip
    leaf = plan.nodes(
        "leaf", "unit{}-leaf{}", (units, rails), rail=rail, unit=np.arange(units)[:, None],
        leaf=number,
    )  # fmt: skip
    spine = plan.nodes("spine", "spine{}", (n_spines,))
    plan.cables("host", nic, leaf[unit[:, 0]], rate, delay)
    plan.cables("leaf-spine", leaf[..., None], spine, rate, delay, parallel=up // n_spines)
    return plan.network(what)


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


def _port_faults(radix: int, down: int, up: int, size: int) -> list[str]:
    faults = []
    if down + up > radix:
        faults.append(
            f"`leaf_down={down}` and `leaf_up={up}` need {down + up} ports, but `radix={radix}`. "
            f"Use fewer, or a larger `radix`."
        )
    if size > down:
        faults.append(
            f"`servers_per_unit={size}` is more than the {down} ports down of a leaf. Use at most "
            f"{down}, or a larger `leaf_down`."
        )
    return faults


def _checked(spines: int, leaves: int, up: int, radix: int, fitting: int) -> int:
    (spines,) = wholes(spines=spines)
    faults = []
    if up % spines:
        faults.append(
            f"`spines={spines}` does not divide the {up} uplinks of a leaf, so its cables to each "
            f"spine would differ. Use `spines={fitting}`."
        )
    elif leaves * up > spines * radix:
        faults.append(
            f"`spines={spines}` offer {spines * radix:,} ports to {leaves * up:,} uplinks of "
            f"{leaves:,} leaves. Use `spines={fitting}`."
        )
    raise_faults(faults)
    return spines
