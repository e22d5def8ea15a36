"""`rail_only`: one isolated fabric per rail, and no way between rails in the network."""

from typing import Any

from fabric._errors import ModelError
from fabric._units import parse_rate, parse_time
from fabric.network import Network, wholes
from fabric.topologies._grid import annotated
from fabric.topologies._plan import Ports, climb, describe
from fabric.topologies._rail_optimized import rail_optimized, wiring_of
from fabric.topologies._sizes import Sizes
from fabric.topologies._wiring import Wiring


def rail_only(
    servers: int,
    *,
    rails: int = 8,
    radix: int = 64,
    planes: int = 1,
    capacity: str | float = "400Gb/s",
    latency: str | float = 0.0,
) -> Network:
    """Return a network of separate rails: NIC r of every server meets the fabric of rail r only.

    A rail is one switch where all servers have a port on it, else two tiers at 1:1. No path leads
    from one rail to another: put servers in front with `attach_servers` and route with
    `rails="forward"`, so that traffic changes its rail over NVLink in the sending server.

    NICs come first, ordered by server and rail, and are called `server0-nic0`; switches are
    `unit0-leaf0`, leaf r being of rail r, and with two tiers `pod0-spine0`, pod r being rail r.
    Kinds `nic`, `leaf`, `spine`; tiers `host`, `leaf-spine`; tags `server`, `rail`, `unit`,
    `leaf`, `pod`, and with several planes `plane` on switches.

    Args:
        servers: Number of servers.
        rails: NICs of a server, and isolated fabrics. Default 8.
        radix: Ports of every switch. Default 64.
        planes: Copies of every rail that share nothing; a NIC has a port in each. Default 1.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If the servers are beyond two tiers (radix^2 / 2), or the network would not fit
            in memory.

    Examples:
        >>> net = rail_only(128, radix=128)
        >>> {k: int(net.labels.is_kind(k).sum()) for k in net.labels.kinds}
        {'nic': 1024, 'leaf': 8}
        >>> net.labels.about
        {'rails': 'forward'}

    References:
        W. Wang et al., Rail-only: A Low-Cost High-Performance Network for Training LLMs with
        Trillion Parameters, arXiv 2307.12169. Two tiers per rail are the multi-plane network of
        DeepSeek-AI, Insights into DeepSeek-V3, ISCA 2025, section 5.
    """
    asked = {"servers": servers, "rails": rails, "radix": radix, "planes": planes}
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    what = describe(rail_only, **asked, capacity=capacity, latency=latency)
    return annotated(_wiring(**asked).network(what, rate, delay), rails="forward")


def sizes_of_rail_only(servers: int, *, rails: int = 8, radix: int = 64, planes: int = 1) -> Sizes:
    """Return what `rail_only` would have.

    Examples:
        >>> sizes_of_rail_only(131_072, rails=4, planes=8, radix=512).switches
        24576
    """
    return _wiring(servers, rails, radix, planes).sizes()


def _wiring(servers: int, rails: int, radix: int, planes: int) -> Wiring:
    servers, rails, planes = wholes(servers=servers, rails=rails, planes=planes)
    (radix,) = wholes(least=2, radix=radix)
    alike: dict[str, Any] = {"planes": planes if planes > 1 else 0, "pods": "rails"}
    if servers <= radix:
        return Wiring(servers, rails, servers, **alike)
    half = radix // 2
    units = -(-servers // half)
    level = climb(units, half, Ports(radix, 0))
    if level is None:
        other = describe(rail_optimized, servers=servers, rails=rails, radix=radix, tiers=3)
        try:
            wiring_of("rail_optimized", servers, rails, radix, 3, "rails")
        except ModelError:
            instead = ""
        else:
            instead = f", or `{other[:-1]}, pods='rails')`" * (planes == 1)
        message = (
            f"`rail_only(servers={servers:,})` is beyond two tiers of radix {radix}, which reach "
            f"{radix * half:,} servers. Use `radix={_fitting_radix(servers)}`{instead}."
        )
        raise ModelError(message)
    return Wiring(
        servers, rails, half, **alike, units_per_pod=units, spines=level.group,
        leaf_cables=level.cables,
    )  # fmt: skip


def _fitting_radix(servers: int) -> int:
    """Return the least even radix with radix^2 / 2 of at least so many servers."""
    radix = 2
    while radix * radix // 2 < servers:
        radix += 2
    return radix
