"""`cluster`: whole clusters by name, from the GPU to the topmost switch."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fabric import hardware
from fabric._errors import ModelError, nearest, raise_faults
from fabric.network import Network, whole_or_fault
from fabric.topologies._plan import afford
from fabric.topologies._planes import multi_plane
from fabric.topologies._rail_optimized import rail_optimized
from fabric.topologies._rails import racks
from fabric.topologies._servers import attach_servers
from fabric.topologies._wiring import Wiring

_RAILS = 8
_TRAYS, _TRAY_NICS = 18, 4


@dataclass(frozen=True)
class Design:
    """A named cluster.

    Attributes:
        server, switch: Names in the hardware catalogue. All switches of the fabric are equal.
        unit: Servers of a scalable unit, or racks.
        most: Servers of the largest one that a table or a stated rule covers.
        network, routing: What fabric it is, and the routing rule that stands for it.
        evidence: Where the counts of switches and cables come from.
        build: From (servers, design, leaves, spines) to the network of NICs.
        takes_switches: Whether the caller has to give leaves and spines.
        about: More facts.
    """

    server: str
    switch: str
    unit: int
    most: int
    network: str
    routing: str
    evidence: str
    build: Callable[[int, "Design", int, int], Network]
    takes_switches: bool = False
    about: tuple[tuple[str, str], ...] = ()


def cluster(
    name: str,
    nodes: int | None = None,
    *,
    su: int | None = None,
    leaves: int | None = None,
    spines: int | None = None,
    gpudirect: bool | None = None,
) -> Network:
    """Return a named cluster: GPUs, NVLink, PCIe, sockets, NICs and every switch.

    Any number of nodes up to the largest table; scalable units fill up in order and the last may
    have fewer, such as 127 nodes, four units of 32 without the one that gives its ports to the
    fabric manager. Every started unit has all its leaves, and every leaf all its uplinks.

    - `dgx-h100`, `dgx-b200`: DGX SuperPOD, InfiniBand NDR, units of 32, two tiers up to 256
      nodes, then pods of four units below cores. `dgx-h800`: the same fabric with H800.
    - `dgx-b300-xdr`: InfiniBand XDR, units of 72, two tiers. `dgx-b300-spectrumx`: two isolated
      Ethernet planes of 400 Gb/s, units of 64; a NIC has a port in each.
    - `dgx-a100`: InfiniBand HDR, units of 20, three tiers from six units. From memory.
    - `gb200-nvl72`: nodes are racks of 72 GPUs in one NVLink domain. Leaves and spines have to be
      given, since no public document counts them.

    Nodes, kinds, tiers and tags are those of `attach_servers` and of `rail_optimized`; with three
    tiers also `core`, `spine-core` and `pod`, with planes the tag `plane`. Server, GPU, switch,
    kind of network, routing rule and the origin of the counts are in `labels.about`.

    Args:
        name: One of the above.
        nodes: Number of servers, or of racks.
        su: Scalable units, all full, instead of `nodes`.
        leaves: Of `gb200-nvl72` only.
        spines: Of `gb200-nvl72` only.
        gpudirect: Whether NIC and GPU talk without passing the CPU socket. Default: they do.

    Raises:
        ModelError: If the name is unknown, the nodes are missing, given twice or too many, or the
            switches are missing or do not fit.

    Examples:
        >>> net = cluster("dgx-h100", nodes=127)
        >>> {kind: int(net.labels.is_kind(kind).sum()) for kind in ("gpu", "leaf", "spine")}
        {'gpu': 1016, 'leaf': 32, 'spine': 16}
        >>> net.labels.about["network"], net.labels.about["routing"]
        ('infiniband', 'spray')

    References:
        NVIDIA DGX SuperPOD reference architectures H100 and B200 (Table 4 and the table of larger
        configurations) and B300 (Spectrum-X and XDR): counts of switches and cables. The tables
        fix no wiring between spines and cores; ours joins spine j of every pod to the same cores.
    """
    if name not in CLUSTERS:
        message = f"`cluster('{name}')` is no known cluster. {nearest(name, list(CLUSTERS))}"
        raise ModelError(message)
    design = CLUSTERS[name]
    servers = _servers(name, design, nodes, su)
    switches = _switches(name, design, leaves, spines)
    server = hardware.server(design.server)
    afford(f"{name}:nodes={servers}", servers * server.n_gpus * 16)
    fabric = design.build(servers, design, *switches)
    nics = np.flatnonzero(fabric.labels.is_kind("nic")).reshape(servers, server.n_nics)
    net = attach_servers(fabric, server, nics, gpudirect=gpudirect)
    about = {
        "cluster": name, "switch": design.switch, "network": design.network,
        "routing": design.routing, "evidence": design.evidence, **dict(design.about),
        **net.labels.about,
    }  # fmt: skip
    given = {"leaves": leaves, "spines": spines, "gpudirect": gpudirect}
    more = "".join(f", {key}={value}" for key, value in given.items() if value is not None)
    labels = replace(net.labels, about=about, source=f"{name}(nodes={servers}{more})")
    return Network(net.capacity, net.latency, net.alive, net.routing_cost, labels=labels)


def _servers(name: str, design: Design, nodes: int | None, su: int | None) -> int:
    faults: list[str] = []
    if (nodes is None) == (su is None):
        given = "got neither" if nodes is None else "got both"
        faults.append(
            f"`cluster('{name}')` needs `nodes` or `su` (units of {design.unit}), but {given}. "
            f"Use `nodes={design.unit}`, for example."
        )
    count = whole_or_fault("nodes", nodes, faults) if nodes is not None else 1
    if su is not None:
        count = whole_or_fault("su", su, faults) * design.unit
    if count > design.most:
        faults.append(
            f"`cluster('{name}')` is known up to {design.most:,} nodes, but {count:,} were asked "
            f"for. Build a larger fabric with `clos(...)` or `rail_optimized(...)` and put "
            f"`attach_servers(...)` in front."
        )
    raise_faults(faults)
    return count


def _switches(name: str, design: Design, leaves: int | None, spines: int | None) -> tuple[int, int]:
    given = {"leaves": leaves, "spines": spines}
    faults: list[str] = []
    if not design.takes_switches:
        odd = [key for key, value in given.items() if value is not None]
        if odd:
            faults.append(
                f"`cluster('{name}')` follows its table, so {' and '.join(f'`{k}`' for k in odd)} "
                f"cannot be chosen. Leave out, or use `rail_optimized(...)`."
            )
        raise_faults(faults)
        return 0, 0
    missing = [key for key, value in given.items() if value is None]
    if missing:
        faults.append(
            f"`cluster('{name}')` needs {' and '.join(f'`{key}`' for key in missing)}: no public "
            f"document counts the switches of this cluster, and none are invented. Give those of "
            f"your own design, such as `leaves=24, spines=12` for 8 racks."
        )
    counts = [
        whole_or_fault(key, value, faults) for key, value in given.items() if value is not None
    ]
    raise_faults(faults)
    return counts[0], counts[1]


def _units(servers: int, design: Design) -> int:
    return -(-servers // design.unit)


def _ports(design: Design) -> tuple[int, float]:
    switch = hardware.switch(design.switch)
    return switch.ports, switch.rate.value


def _rails(servers: int, design: Design, leaves: int, spines: int) -> Network:
    """Return two tiers as far as they reach, and three beyond."""
    radix, rate = _ports(design)
    tiers = 2 if _units(servers, design) * _RAILS <= radix else 3
    return rail_optimized(
        servers, rails=_RAILS, radix=radix, servers_per_unit=design.unit, tiers=tiers,
        capacity=rate,
    )  # fmt: skip


def _hdr(servers: int, design: Design, leaves: int, spines: int) -> Network:
    radix, rate = _ports(design)
    units = _units(servers, design)
    if units * _RAILS <= radix:
        return _rails(servers, design, leaves, spines)
    # The core of the table: two groups, each with a cable to half of the spines of every rail.
    wiring = Wiring(
        servers, _RAILS, design.unit, pods="rails", units_per_pod=units, spines=10, leaf_cables=2,
        groups=2, cores=2 * units, core_cables=1,
    )  # fmt: skip
    return wiring.network(design.server, rate)


def _two_planes(servers: int, design: Design, leaves: int, spines: int) -> Network:
    radix, rate = _ports(design)
    return multi_plane(
        servers, planes=2, rails=_RAILS, radix=radix, servers_per_unit=design.unit, capacity=rate
    )


def _racks(servers: int, design: Design, leaves: int, spines: int) -> Network:
    radix, rate = _ports(design)
    return racks(
        servers, design.unit, _TRAYS, _TRAY_NICS, leaves, spines, radix, rate, design.server
    )


_LARGER = "pods and cores beyond 8 units: the table of larger configurations of DGX SuperPOD B200"
_UFM = (("manager_cables", "4"),)  # Table 4 counts them in

CLUSTERS: dict[str, Design] = {
    "dgx-h100": Design(
        "dgx-h100", "qm9700", 32, 2048, "infiniband", "spray",
        f"counts: NVIDIA DGX SuperPOD H100 reference architecture, Table 4; {_LARGER}",
        _rails, about=_UFM,
    ),
    "dgx-b200": Design(
        "dgx-b200", "qm9700", 32, 2048, "infiniband", "spray",
        f"counts: NVIDIA DGX SuperPOD B200 reference architecture, Table 4; {_LARGER}",
        _rails, about=_UFM,
    ),
    "dgx-h800": Design(
        "hgx-h800", "qm9700", 32, 2048, "infiniband", "spray",
        f"assumed: no table of an H800 cluster is public, so the fabric of dgx-h100; {_LARGER}",
        _rails,
    ),
    "dgx-b300-xdr": Design(
        "dgx-b300", "q3400", 72, 1296, "infiniband", "spray",
        "counts: NVIDIA DGX SuperPOD B300 reference architecture, XDR; its 18-unit row prints "
        "9,216 GPUs, but 1,296 nodes have 10,368",
        _rails,
    ),
    "dgx-b300-spectrumx": Design(
        "dgx-b300", "sn5600-400g", 64, 1024, "spectrum-x", "spray",
        "counts: NVIDIA DGX SuperPOD B300 reference architecture, Spectrum-X, Table 3",
        _two_planes, about=(("links_per_cable", "2"),),
    ),
    "dgx-a100": Design(
        "dgx-a100", "qm8790", 20, 140, "infiniband", "spray",
        "counts from memory: NVIDIA DGX SuperPOD A100 reference architecture, not seen; only 140 "
        "nodes and 1,120 GPUs are confirmed",
        _hdr,
    ),
    "gb200-nvl72": Design(
        "gb200-nvl72", "qm9700", 8, 128, "infiniband", "spray",
        "leaves and spines as given; assumed: four rails, and a leaf with as many ports up as down",
        _racks, takes_switches=True,
    ),
}  # fmt: skip
"""Every cluster that `cluster` knows, by name."""
