"""`attach_servers`: GPUs, NVLink, PCIe and sockets in front of the NICs of any fabric."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Int

from fabric import hardware
from fabric._errors import ModelError, raise_faults, some
from fabric._typing import AnyArray
from fabric.hardware import Nic, Server
from fabric.network import ENDPOINT_KINDS, Network, whole_array
from fabric.topologies._inside import (
    INSIDE_KINDS as INSIDE_KINDS,
    INSIDE_TIERS as INSIDE_TIERS,
    insides,
)
from fabric.topologies._plan import flag
from fabric.topologies._splice import Front, front_of, spliced


def attach_servers(
    fabric: Network,
    server: Server,
    nics: Int[AnyArray, "servers nics"] | Sequence[Sequence[int]],
    *,
    nic: Nic | None = None,
    gpudirect: bool | None = None,
    names: Sequence[str] | None = None,
) -> Network:
    """Return a network with the insides of servers in front of the NICs of a fabric.

    GPUs come first, ordered by server, then NVSwitch chips, PCIe switches and CPU sockets, then
    every node of the fabric; the links of the servers come before those of the fabric. The GPUs
    are the endpoints. They are called `server3-gpu0`, the rest `server3-nvswitch1`,
    `server3-pcie0` and `server3-socket1`.

    Kinds `gpu`, `nvswitch`, `pcie-switch` and `socket`. Tiers: `nvlink` between GPUs and chips, or
    between GPUs in a mesh; `pcie` between PCIe switches and GPUs and NICs; `socket` between PCIe
    switches and sockets, and between sockets, each with each (in pairs where there are more than
    eight, a rack of two-socket trays). Parallel NVLinks between the same two ends are one link of
    their summed capacity. Chips of a second level, where the server has such, are called
    `server3-nvswitch-top0`, and their links to those of the boards are of the tier `nvlink` too.

    Tags: `server` on everything inside and on the NICs, `slot` numbers it within the server. A GPU
    has every tag of its NIC, such as `rail`, `unit` and `leaf`, and besides `gpu` (its number in
    the server), `nic` (the node of its NIC), `rail` (which NIC of the server it is, where the
    fabric does not say) and `staging` (the node of the socket that its traffic to and from the NIC
    passes; -1 with GPUDirect). NICs of the fabric that no server has stay, and are no endpoints.

    A network that has servers takes more of them, of the same kind or another: give it as `fabric`,
    and NICs that are still free. Their insides come behind those that are there, servers are
    numbered on, and `labels.about` names both kinds.

    Args:
        fabric: With labels. Capacities, failed links, names, ids and ports are kept.
        server: What is inside, from `hardware.server(...)`.
        nics: (servers, nics of a server), node numbers in the fabric.
        nic: Type of the NICs, no slower than their cables. Default: as the server says.
        gpudirect: Whether NIC and GPU talk without passing the CPU socket. Default: as the server
            says.
        names: What each server is called. Default: `server0`, `server1`, ...

    Raises:
        ModelError: If `nics` has another shape, names a node twice, or one that is out of range,
            no endpoint of the fabric or another server's; names repeat; or the fabric's cables are
            faster than the ports of the NIC. All faults at once.

    Examples:
        >>> import fabric as fb
        >>> from fabric import hardware
        >>> nics = fb.topologies.rail_optimized(servers=2, radix=32)
        >>> net = attach_servers(nics, hardware.server("dgx-h100"), nics.hosts.reshape(2, 8))
        >>> {kind: int(net.labels.is_kind(kind).sum()) for kind in net.labels.kinds[:5]}
        {'gpu': 16, 'nvswitch': 8, 'pcie-switch': 16, 'socket': 4, 'nic': 16}
        >>> float(net.capacity[0]) / 1e9  # five NVLinks of 25 GB/s
        125.0
    """
    front = front_of(fabric)
    number = _checked(fabric, server, nics, names, front)
    nic = _nic(server) if nic is None else nic
    slower = _cable_slower_than(nic, fabric, server, number)
    if gpudirect is not None:
        server = server.with_gpudirect(flag("gpudirect", gpudirect))
    about = {"server": server.name, "gpu": server.gpu, "nic": nic.name}
    about["gpudirect"] = "yes" if server.gpudirect else "no"
    about["ports_per_module"] = f"{server.ports_per_module.value:g}"
    if slower:
        about["nic_cables"] = slower
    if names is None and front.servers:
        names = [f"server{front.servers + i}" for i in range(len(number))]
    return spliced(
        fabric, front, *insides(server, number), number, names,
        about=_both(fabric.labels.about, about, front.servers) if front.servers else about,
        source=f"{len(number):,} x {server.name} on {fabric.labels.source}",
    )  # fmt: skip


def _both(there: Mapping[str, str], new: Mapping[str, str], first: int) -> dict[str, str]:
    """Return the facts about servers of two kinds, where the new ones begin with this number."""
    facts = {}
    for key in dict.fromkeys((*new, "nic_cables")):
        said = [about[key] for about in (there, new) if key in about]
        if key == "ports_per_module":
            facts[key] = _with_run(there.get(key, "1"), new[key], first)
        elif len(set(said)) == 1:
            facts[key] = said[0]
        elif said:
            facts[key] = " and ".join(said)
    return facts


def _with_run(there: str, new: str, first: int) -> str:
    """Return ports per module of servers in runs, such as "1 from 0, 2 from 8" of numbers."""
    if there.split(", ")[-1].partition(" from ")[0] == new:
        return there
    return f"{there if ' from ' in there else f'{there} from 0'}, {new} from {first}"


def ports_per_module(about: Mapping[str, str], servers: int) -> Int[np.ndarray, " servers"]:
    """Return how many NIC ports of every server share a transceiver.

    Args:
        about: Of a network with servers.
        servers: Number of servers.

    Examples:
        >>> ports_per_module({"ports_per_module": "1 from 0, 2 from 2"}, 3).tolist()
        [1, 1, 2]
    """
    found = np.ones(servers, np.int64)
    for run in about.get("ports_per_module", "1").split(", "):
        ports, _, first = run.partition(" from ")
        found[int(first or 0) :] = int(ports)
    return found


def _checked(
    fabric: Network, server: Server, nics: object, names: Sequence[str] | None, front: Front
) -> Int[np.ndarray, "servers nics"]:
    faults: list[str] = []
    number = whole_array("nics", nics, faults)
    raise_faults(faults)
    if number.ndim != 2 or number.shape[1] != server.n_nics or not number.size:
        message = (
            f"`attach_servers(nics)` needs node numbers of shape (servers, {server.n_nics}), since "
            f"a '{server.name}' has {server.n_nics} NICs, but got shape {number.shape}."
        )
        raise ModelError(message)
    flat, n = number.ravel(), fabric.n_nodes
    if len(outside := flat[(flat < 0) | (flat >= n)]):
        faults.append(
            f"`nics` needs nodes from 0 to {n - 1:,}, but {len(outside):,} are outside: "
            f"{some(outside)}."
        )
    else:
        name = fabric.labels.node_name
        wanted = "NICs that no server has" if front.servers else "endpoints (`fabric.hosts`)"
        if len(idle := np.unique(flat[~_free(fabric, front)[flat]])):
            faults.append(
                f"`nics` needs {wanted}, but {len(idle):,} nodes are none: "
                f"{some(idle.tolist(), name=name)}."
            )
        values, counts = np.unique(flat, return_counts=True)
        if len(twice := values[counts > 1]):
            faults.append(f"`nics` names nodes twice: {some(twice.tolist(), name=name)}.")
    if names is not None and (len(names) != len(number) or len(set(names)) != len(names)):
        faults.append(
            f"`names` needs a different name for each of {len(number):,} servers, but has "
            f"{len(names):,} with {len(set(names)):,} different."
        )
    raise_faults(faults)
    return number


def _free(fabric: Network, front: Front) -> Bool[np.ndarray, " nodes"]:
    """Return which nodes may become NICs of servers."""
    labels = fabric.labels
    if not front.servers:
        return np.asarray(labels.endpoint)
    return labels.is_kind(*ENDPOINT_KINDS) & ~labels.is_kind("gpu") & (labels.tags["server"] < 0)


def _nic(server: Server) -> Nic:
    try:
        return hardware.nic(server.nic)
    except ModelError as error:
        message = (
            f"The NIC of server '{server.name}' is not in the usual catalogue. Give `nic`, such as "
            f"`hardware.nic('{server.nic}', folder)`. {error}"
        )
        raise ModelError(message) from None


def _cable_slower_than(
    nic: Nic, fabric: Network, server: Server, nics: Int[np.ndarray, "servers nics"]
) -> str:
    """Return how fast the cables are where no NIC has as much as its ports carry, else "".

    Raises:
        ModelError: If the cables of a NIC carry more than its ports: an answer would promise more
            than the server can send.
    """
    sums = np.bincount(
        fabric.labels.src, np.asarray(fabric.capacity, np.float64), fabric.n_nodes
    )  # fmt: skip
    rate, ports = sums[nics], nic.ports * nic.rate.value
    over = nics[rate > ports * (1 + 1e-6)]
    if not len(over):
        fastest = float(rate.max())
        return "" if fastest > ports * (1 - 1e-6) else port_speed(fastest)
    fits = [
        name for name in hardware.names("nics")
        if (found := hardware.nic(name)).ports * found.rate.value >= rate.max() * (1 - 1e-6)
    ]  # fmt: skip
    other = f"another NIC (`nic`: {some(fits)}), " if fits else ""
    message = (
        f"The cables of {len(over):,} NICs carry up to {port_speed(float(rate.max()))}, but the "
        f"'{nic.name}' of a '{server.name}' has {port_speed(ports)}: "
        f"{some(over.tolist(), name=fabric.labels.node_name)}. Use another server, {other}or "
        f"cables of {port_speed(ports)} (`capacity`)."
    )
    raise ModelError(message)


def port_speed(rate: float) -> str:
    """Return byte/s as the speed of a port, as price lists write it.

    Args:
        rate: byte/s per direction.

    Examples:
        >>> port_speed(50e9)
        '400Gb/s'
    """
    return f"{rate * 8 / 1e9:g}Gb/s"
