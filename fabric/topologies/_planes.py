"""`multi_plane` and `hpn`: fabrics side by side, and NICs with a port in each of them."""

import math
from dataclasses import replace
from typing import Any

from fabric._errors import ModelError, raise_faults
from fabric._units import parse_rate, parse_time
from fabric.network import Network, wholes
from fabric.topologies._grid import annotated
from fabric.topologies._plan import Ports, climb, describe
from fabric.topologies._rail_optimized import wiring_of
from fabric.topologies._sizes import Sizes
from fabric.topologies._wiring import Wiring

_RADIX = {2: 128, 1: 256}
"""Ports of ToRs and aggregation switches of `hpn`, by planes; see there."""


def multi_plane(
    servers: int,
    planes: int,
    *,
    rails: int = 8,
    tiers: int = 2,
    radix: int = 64,
    servers_per_unit: int | None = None,
    capacity: str | float = "400Gb/s",
    latency: str | float = 0.0,
) -> Network:
    """Return isolated planes, each a rail-optimized network, and NICs with a port in every one.

    A NIC forwards nothing, so no traffic changes its plane on the way. With `rails=1` a server is
    a single NIC, and NICs fill up the leaves in order.

    NICs come first, ordered by server and rail, and are called `server0-nic0`; switches are
    `plane0-unit0-leaf0`, `plane0-spine0` (`plane0-pod0-spine0`, `plane0-core0`). Kinds, tiers and
    tags are those of `rail_optimized`, and switches have the tag `plane`. As both designs under
    References do, traffic is by default sprayed over planes and paths.

    Args:
        servers: Number of servers.
        planes: Number of planes, and ports of a NIC.
        rails: NICs of a server, and leaves of a unit in a plane. Default 8.
        tiers: Of each plane, 2 or 3. Default 2.
        radix: Ports of every switch. Default 64.
        servers_per_unit: Servers of a full unit. Default: half the radix.
        capacity: Of every cable, and so of a port of a NIC, per direction: text with a unit, or
            byte/s. Default 400 Gb/s.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If a plane is beyond its tiers, or the network would not fit in memory.

    Examples:
        >>> net = multi_plane(64, planes=2, radix=128)  # a unit of DGX B300 with Spectrum-X
        >>> {k: int(net.labels.is_kind(k).sum()) for k in net.labels.kinds}
        {'nic': 512, 'leaf': 16, 'spine': 8}

    References:
        NVIDIA DGX SuperPOD B300 reference architecture, Spectrum-X. Microsoft Azure, multi-path
        reliable connections: 131,072 NICs of 8 x 100 Gb/s in 8 planes of switches with 512 ports.
    """
    asked = {
        "servers": servers, "planes": planes, "rails": rails, "tiers": tiers, "radix": radix,
        "servers_per_unit": servers_per_unit, "capacity": capacity, "latency": latency,
    }  # fmt: skip
    what = describe(multi_plane, **asked)
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    return annotated(_planes(**asked).network(what, rate, delay), routing="spray")


def sizes_of_multi_plane(**asked: Any) -> Sizes:
    """Return what `multi_plane` would have, from all of its arguments."""
    return _planes(**asked).sizes()


def _planes(planes: int, **asked: Any) -> Wiring:
    (planes,) = wholes(planes=planes)
    return replace(wiring_of("multi_plane", **asked), planes=planes)


def hpn(
    segments: int = 15,
    *,
    hosts_per_segment: int = 128,
    rails: int = 8,
    planes: int = 2,
    tor_up: int | None = None,
    aggs: int | None = None,
    pods: int = 1,
    agg_up: int = 0,
    radix: int | None = None,
    core_radix: int = 128,
    capacity: str | float = "200Gb/s",
    uplink_capacity: str | float = "400Gb/s",
    latency: str | float = 0.0,
) -> Network:
    """Return Alibaba's HPN 7.0: NICs with two ports on two ToRs, and two planes above them.

    A segment has two ToRs per rail; NIC r of each of its hosts has a port on both. With two planes
    the first ToR meets the aggregation switches of plane 0, the second those of plane 1, and what
    leaves a NIC on one port stays in its plane: switches choose once, at the ToR. With one plane
    both meet all aggregation switches.

    NICs come first, ordered by host and rail, and are called `server0-nic0`. A ToR is a leaf,
    `plane0-unit0-leaf0` (or `unit0-leaf0-tor1`), a segment a unit, an aggregation switch a spine,
    `plane0-spine0`. Kinds `nic`, `leaf`, `spine`, `core`; tiers `host`, `leaf-spine`, `spine-core`;
    tags as in `rail_optimized`, `plane` or `tor`, and with several pods `pod`.

    The published pod has 128 hosts in a segment, and 8 more as backup that are left out here. The
    variant at 1:1 is `hpn(8, tor_up=64, aggs=64)`.

    Args:
        segments: Of a pod. Default 15.
        hosts_per_segment: Hosts, and ports down of a ToR. Default 128.
        rails: NICs of a host. Default 8.
        planes: 2, or 1 where both ToRs of a rail meet the same aggregation switches. Default 2.
        tor_up: Uplinks of a ToR, a multiple of `aggs`. Default: `aggs`.
        aggs: Aggregation switches of a pod, per plane. Default 60 with two planes, 120 with one.
        pods: Number of pods; more than one needs `agg_up`. Default 1.
        agg_up: Uplinks of an aggregation switch to cores of its plane; 8 are 15:1 under 15
            segments. Default 0: how many cores there are is not published, so there are none.
        radix: Ports of a ToR and of an aggregation switch, counted at `uplink_capacity`. Default:
            128 (51.2 Tb/s), so that a ToR with 60 uplinks has room for 136 hosts; with one plane
            256, which is assumed, since the published counts of that variant need 184 ports of a
            ToR and 240 of an aggregation switch.
        core_radix: Ports of a core. Default 128.
        capacity: Of a port of a NIC, per direction: text with a unit, or byte/s. Default 200 Gb/s.
        uplink_capacity: Of every other cable. Default 400 Gb/s.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If the uplinks do not deal out evenly, a switch would need more ports than it
            has, the pods are beyond the cores, or the network would not fit in memory.

    Examples:
        >>> net = hpn(segments=2)
        >>> {k: int(net.labels.is_kind(k).sum()) for k in net.labels.kinds}
        {'nic': 2048, 'leaf': 32, 'spine': 120}
        >>> net.labels.about["routing"]
        'ecmp'

    References:
        K. Qian et al., Alibaba HPN: A Data Center Network for Large Language Model Training,
        SIGCOMM 2024. Counts of both variants as in the topology generator of SimAI.
    """
    asked: dict[str, Any] = {
        "segments": segments, "hosts_per_segment": hosts_per_segment, "rails": rails,
        "planes": planes, "tor_up": tor_up, "aggs": aggs, "pods": pods, "agg_up": agg_up,
        "radix": radix, "core_radix": core_radix,
    }  # fmt: skip
    rates: dict[str, Any] = {"capacity": capacity, "uplink_capacity": uplink_capacity}
    what = describe(hpn, **asked, **rates, latency=latency)
    rate, up = (parse_rate(value, name) for name, value in rates.items())
    net = _hpn(**asked, **rates).network(what, rate, parse_time(latency, "latency"), up)
    return annotated(net, routing="ecmp")


def sizes_of_hpn(**asked: Any) -> Sizes:
    """Return what `hpn` would have, from all of its arguments."""
    del asked["latency"]
    return _hpn(**asked).sizes()


def _hpn(
    segments: int, hosts_per_segment: int, rails: int, planes: int, tor_up: int | None,
    aggs: int | None, pods: int, agg_up: int, radix: int | None, core_radix: int,
    capacity: str | float, uplink_capacity: str | float,
) -> Wiring:  # fmt: skip
    segments, hosts, rails, pods = wholes(
        segments=segments, hosts_per_segment=hosts_per_segment, rails=rails, pods=pods
    )
    (planes,) = wholes(most=2, planes=planes)
    (aggs,) = wholes(aggs=120 // planes if aggs is None else aggs)
    (up,) = wholes(tor_up=aggs if tor_up is None else tor_up)
    (agg_up,) = wholes(least=0, agg_up=agg_up)
    (radix,) = wholes(least=2, radix=_RADIX[planes] if radix is None else radix)
    (core_radix,) = wholes(least=2, core_radix=core_radix)
    down_rate = parse_rate(capacity, "capacity")
    up_rate = parse_rate(uplink_capacity, "uplink_capacity")
    share = down_rate / up_rate if down_rate and up_rate else 1.0
    faults = []
    if up % aggs:
        faults.append(
            f"`tor_up={up}` is no multiple of `aggs={aggs}`, so a ToR would have more cables to "
            f"some. Use `tor_up={-(-up // aggs) * aggs}`."
        )
    if pods > 1 and not agg_up:
        faults.append(
            f"`pods={pods}` need cores between them. Give `agg_up`, such as 8 for 15:1; how many "
            f"cores HPN has is not published."
        )
    if not faults:
        met = rails * (2 // planes) * (up // aggs)  # ports of an aggregation switch to a segment
        faults = _port_faults(segments, hosts, up, agg_up, radix, share, met)
    raise_faults(faults)
    cored: dict[str, Any] = {}
    if agg_up:
        level = climb(pods, agg_up, Ports(core_radix, 0), width=aggs)
        if level is None:
            message = f"`pods={pods}` are more than the {core_radix} ports of a core. Use fewer."
            raise ModelError(message)
        cored = {
            "pods": "units", "units_per_pod": segments, "groups": aggs, "cores": level.group,
            "core_cables": level.cables,
        }  # fmt: skip
    tors = {"planes": 2} if planes == 2 else {"tors": 2}
    return Wiring(
        pods * segments * hosts, rails, hosts, spines=aggs, leaf_cables=up // aggs, **tors, **cored
    )


def _port_faults(
    segments: int, hosts: int, up: int, agg_up: int, radix: int, share: float, met: int
) -> list[str]:
    """Return which switches would need more ports than they have, at the rate of their uplinks."""
    faults = []
    need = math.ceil(hosts * share - 1e-9) + up
    if need > radix:
        room = int((radix - up) / share + 1e-9)
        fewer = f"at most `hosts_per_segment={room}`, " if room > 0 else "fewer uplinks, "
        faults.append(
            f"`hosts_per_segment={hosts}` and `tor_up={up}` need {need} ports of a ToR, counted at "
            f"`uplink_capacity`, but `radix={radix}`. Use {fewer}or `radix={need}`."
        )
    need = segments * met + agg_up
    if need > radix:
        room = (radix - agg_up) // met
        fewer = f"at most `segments={room}`, " if room > 0 else "fewer uplinks, "
        faults.append(
            f"`segments={segments}` with {met} cables each to an aggregation switch and "
            f"`agg_up={agg_up}` need {need} of its ports, but `radix={radix}`. Use {fewer}or "
            f"`radix={need}`."
        )
    return faults
