"""`attach_servers`: GPUs, NVLink, PCIe and sockets in front of the NICs of any fabric."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from fabric import hardware
from fabric._errors import ModelError, raise_faults, some
from fabric._typing import AnyArray
from fabric.hardware import Nic, Server
from fabric.network import Blueprint, Labels, Names, Network, whole_array

INSIDE_KINDS = ("nvswitch", "pcie-switch", "socket")
"""Kinds that forward inside a server and are no switches of the fabric."""

INSIDE_TIERS = ("nvlink", "pcie", "socket")
"""Tiers inside a server."""

# NVLink costs 1, so that a way over PCIe is the shortest only where there is none over NVLink.
_NVLINK_COST, _PCIE_COST = 1, 8
_MESHED_SOCKETS = 8


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
    their summed capacity.

    Tags: `server` on everything inside and on the NICs, `slot` numbers it within the server. A GPU
    has every tag of its NIC, such as `rail`, `unit` and `leaf`, and besides `gpu` (its number in
    the server), `nic` (the node of its NIC), `rail` (which NIC of the server it is, where the
    fabric does not say) and `staging` (the node of the socket that its traffic to and from the NIC
    passes; -1 with GPUDirect). NICs of the fabric that no server has stay, and are no endpoints.

    Args:
        fabric: With labels. Capacities, failed links, names, ids and ports are kept.
        server: What is inside, from `hardware.server(...)`.
        nics: (servers, nics of a server), node numbers in the fabric.
        nic: Type of the NICs, no slower than their cables. Default: as the server says.
        gpudirect: Whether NIC and GPU talk without passing the CPU socket. Default: as the server
            says.
        names: What each server is called. Default: `server0`, `server1`, ...

    Raises:
        ModelError: If `nics` has another shape, names a node twice, or one that is out of range or
            no endpoint of the fabric; names repeat; or the fabric's cables are faster than the
            ports of the NIC. All faults at once.

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
    number = _checked(fabric, server, nics, names)
    nic = _nic(server) if nic is None else nic
    slower = _cable_slower_than(nic, fabric, server, number)
    if gpudirect is not None:
        server = server.with_gpudirect(gpudirect)
    inside, of_gpu = _insides(server, number)
    about = {"server": server.name, "gpu": server.gpu, "nic": nic.name}
    about["gpudirect"] = "yes" if server.gpudirect else "no"
    about["ports_per_module"] = f"{server.ports_per_module.value:g}"
    if slower:
        about["nic_cables"] = slower
    labels = replace(
        _joined(inside.labels, fabric.labels, names),
        tags=_tags(inside.labels, fabric.labels, number, of_gpu),
        about={**fabric.labels.about, **about},
        source=f"{len(number):,} x {server.name} on {fabric.labels.source}",
    )
    fields = ("capacity", "latency", "alive", "routing_cost")
    both = [(np.asarray(getattr(inside, f)), np.asarray(getattr(fabric, f))) for f in fields]
    return Network(*map(np.concatenate, both), labels=labels)


def _checked(
    fabric: Network, server: Server, nics: object, names: Sequence[str] | None
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
    if "gpu" in fabric.labels.present_kinds:
        faults.append("`attach_servers(fabric)` has GPUs already. Give the fabric of the NICs.")
    flat, n = number.ravel(), fabric.n_nodes
    if len(outside := flat[(flat < 0) | (flat >= n)]):
        faults.append(
            f"`nics` needs nodes from 0 to {n - 1:,}, but {len(outside):,} are outside: "
            f"{some(outside)}."
        )
    else:
        name = fabric.labels.node_name
        if len(idle := np.unique(flat[~np.asarray(fabric.labels.endpoint)[flat]])):
            faults.append(
                f"`nics` needs endpoints (`fabric.hosts`), but {len(idle):,} nodes are none: "
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


def _insides(
    server: Server, nics: Int[np.ndarray, "servers nics"]
) -> tuple[Network, dict[str, np.ndarray]]:
    """Return the network of the insides, its NICs numbered behind them, and tags of the GPUs."""
    plan, next_slot = Blueprint(), 0
    of = np.arange(len(nics))[:, None]

    def nodes(kind: str, word: str, count: int) -> Int[np.ndarray, "servers nodes"]:
        nonlocal next_slot
        slot, next_slot = next_slot + np.arange(count), next_slot + count
        shape = (len(nics), count)
        return plan.nodes(kind, f"server{{}}-{word}{{}}", shape, server=of, slot=slot)

    def cables(tier: str, a: np.ndarray, b: np.ndarray, rate: float | np.ndarray, cost: int):
        if a.size:
            plan.cables(tier, a, b, rate, routing_cost=cost)

    gpu = nodes("gpu", "gpu", server.n_gpus)
    chip = nodes("nvswitch", "nvswitch", len(server.chips)) if server.chips else gpu[:, :0]
    pcie = nodes("pcie-switch", "pcie", server.n_pcie)
    socket = nodes("socket", "socket", server.n_sockets)
    nic = nics + (socket.max() + 1)

    link, lane = server.link_rate.value, server.pcie_rate.value
    if server.chips:
        cables("nvlink", gpu[..., None], chip[:, None], link * np.array(server.chips), _NVLINK_COST)
    if server.mesh:
        a, b = np.triu_indices(server.n_gpus, 1)
        cables("nvlink", gpu[:, a], gpu[:, b], link * server.mesh, _NVLINK_COST)
    cables("pcie", gpu, pcie[:, list(server.pcie_of_gpu)], lane, _PCIE_COST)
    cables("pcie", nic, pcie[:, list(server.pcie_of_nic)], lane, _PCIE_COST)
    cables("socket", pcie, socket[:, list(server.socket_of_pcie)], lane, _PCIE_COST)
    a, b = _socket_pairs(server.n_sockets)
    cables("socket", socket[:, a], socket[:, b], server.socket_rate.value, _PCIE_COST)

    own = np.array(server.socket_of_pcie)[list(server.pcie_of_gpu)]
    tags = {
        "gpu": np.broadcast_to(np.arange(server.n_gpus), gpu.shape),
        "rail": np.broadcast_to(np.array(server.nic_of_gpu), gpu.shape),
        "nic": nic[:, list(server.nic_of_gpu)],
        "staging": np.full_like(gpu, -1) if server.gpudirect else socket[:, own],
    }
    return plan.network(server.name), {tag: values.ravel() for tag, values in tags.items()}


def _socket_pairs(n: int) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    if n <= _MESHED_SOCKETS:
        return np.triu_indices(n, 1)
    first = np.arange(0, n - 1, 2)
    return first, first + 1


def _joined(inside: Labels, fabric: Labels, called: Sequence[str] | None) -> Labels:
    """Return the labels of both without tags; the fabric's nodes, links and cables come behind."""
    kinds, kind_of = _codes(inside.kinds, inside.kind_of, fabric.kinds, fabric.kind_of)
    tiers, tier_of = _codes(inside.tiers, inside.tier_of, fabric.tiers, fabric.tier_of)
    behind = lambda old, new, base: np.concatenate([old, new + base], dtype=np.int32)
    unknown = np.zeros(inside.n_links, np.int32)
    port = lambda values: None if values is None else behind(unknown, values, 0)
    new = inside.names if called is None else _called(inside.names, called)
    return Labels(
        kinds=kinds,
        kind_of=kind_of,
        names=_names(new, fabric.names),
        ids=None if fabric.ids is None else _ids(new, fabric.ids),
        src=behind(inside.src, fabric.src, inside.n_nodes),
        dst=behind(inside.dst, fabric.dst, inside.n_nodes),
        tiers=tiers,
        tier_of=tier_of,
        cable_of=behind(inside.cable_of, fabric.cable_of, inside.n_links // 2),
        endpoint=np.concatenate([inside.endpoint, np.zeros(fabric.n_nodes, bool)]),
        forwards=np.concatenate([inside.forwards, np.asarray(fabric.forwards)]),
        src_port=port(fabric.src_port),
        dst_port=port(fabric.dst_port),
    )


def _codes(
    words: Sequence[str], of: np.ndarray, more: Sequence[str], more_of: np.ndarray
) -> tuple[tuple[str, ...], Int[np.ndarray, " items"]]:
    """Return the words of two lists, each once, and the codes of both behind each other."""
    known = tuple(dict.fromkeys((*words, *more)))
    code = np.array([known.index(word) for word in more], np.int32)
    return known, np.concatenate([of, code[more_of]], dtype=np.int32)


def _called(names: Sequence[str], called: Sequence[str]) -> list[str]:
    blocks = names.blocks if isinstance(names, Names) else []
    return [
        template.removeprefix("server").format(called[server], *rest)
        for template, shape in blocks
        for server, *rest in itertools.product(*map(range, shape))
    ]


def _names(inside: Sequence[str], fabric: Sequence[str]) -> Sequence[str]:
    if isinstance(inside, Names) and isinstance(fabric, Names):
        return Names([*inside.blocks, *fabric.blocks])
    return [*inside, *fabric]


def _ids(inside: Sequence[str], fabric: Sequence[str]) -> list[str]:
    if taken := set(inside) & set(fabric):
        message = (
            f"`attach_servers(names)` makes names that the fabric has as ids already: "
            f"{some(sorted(taken))}. Give other `names`."
        )
        raise ModelError(message)
    return [*inside, *fabric]


def _tags(
    inside: Labels,
    fabric: Labels,
    nics: Int[np.ndarray, "servers nics"],
    of_gpu: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Return the tags of all nodes: those of the fabric, and what its GPUs and NICs are."""
    n, n_gpus = inside.n_nodes, len(of_gpu["nic"])
    tags = {}
    for name, values in fabric.tags.items():
        new = np.full(n, -1 if values.dtype.kind == "i" else "", values.dtype)
        new[:n_gpus] = values[of_gpu["nic"] - n]
        tags[name] = np.concatenate([new, values])
    known = tags.get("rail", np.full(n_gpus, -1))[:n_gpus]
    kept = known.dtype.kind == "i" and bool((known >= 0).all())
    for name, values in of_gpu.items():
        if name != "rail" or not kept:
            tags[name] = np.full(n + fabric.n_nodes, -1, np.int32)
            tags[name][:n_gpus] = values
    first = int(inside.tags["slot"].max()) + 1
    for name, values in (
        ("server", np.arange(len(nics))[:, None]),
        ("slot", first + np.arange(nics.shape[1])),
    ):
        of_nic = np.full(fabric.n_nodes, -1, np.int32)
        of_nic[nics] = np.broadcast_to(values, nics.shape)
        tags[name] = np.concatenate([inside.tags[name], of_nic])
    return tags
