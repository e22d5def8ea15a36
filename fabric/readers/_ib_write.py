"""A network -> the text that `ibnetdiscover` prints for such a fabric."""

import os
import re
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from fabric._errors import ModelError, raise_faults, some
from fabric._units import format_rate
from fabric.network import Network
from fabric.readers._files import save
from fabric.readers._ib_tokens import token_of

_ID = re.compile(r"[SHR]-([0-9a-fA-F]{16})")
_PLAIN = re.compile(r"[\w.-]+")
_DIRECTOR = re.compile(r"([\w.-]+)((?:/\w+)+)")
# The second bit of the first byte marks a locally administered number, so no vendor owns it. The
# last byte is left to the ports: simulators number them up from the GUID of their node.
_MADE = "02fab0{:08x}00"


def write_ibnetdiscover(network: Network, path: str | os.PathLike[str]) -> Path:
    """Write the live cables of a network as `ibnetdiscover` prints them, and return the path.

    Nodes that forward become `Switch` (kind `router`: `Rt`), the others `Ca`. Ids that are GUIDs
    are kept, others are made from the node number; ports are kept where known, else counted up
    in the order of the links. The same network gives the same bytes.

    Args:
        network: With labels; every cable two links of one capacity.
        path: Where; gzip when it ends in `.gz`. Written whole or not at all.

    Raises:
        ModelError: If a cable has no other direction, its directions differ, a capacity has no
            speed token, or a cable joins two nodes that do not forward; all faults at once.

    Examples:
        >>> import tempfile, pathlib
        >>> from fabric import readers
        >>> from fabric.network import Blueprint
        >>> plan = Blueprint()
        >>> leaf, host = plan.nodes("leaf", "leaf{}", (1,)), plan.nodes("host", "host{}", (2,))
        >>> plan.cables("host", host, leaf, 50e9)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = write_ibnetdiscover(plan.network("tiny"), pathlib.Path(folder, "dump.gz"))
        ...     readers.read(file).records
        2

    References:
        ibnetdiscover(8), infiniband-diags of rdma-core.
    """
    labels = network.labels
    forwards = np.asarray(labels.forwards)
    ends, tokens = _cables(network)
    guid = _guids(network)
    prefix = ["S" if f else "H" for f in forwards]
    for node in np.flatnonzero(labels.is_kind("router")):
        prefix[node] = "R"
    idents = [f"{p}-{g}" for p, g in zip(prefix, guid, strict=True)]
    texts = _descriptions(network)
    ports = _ports(network, ends)
    rows: dict[int, list[tuple[int, int, int, str]]] = defaultdict(list)
    for (link, back), (a_port, b_port), token in zip(ends, ports, tokens, strict=True):
        a, b = int(labels.src[link]), int(labels.src[back])
        rows[a].append((a_port, b, b_port, token))
        rows[b].append((b_port, a, a_port, token))
    lines = ["#", "# Topology file: written by fabric", "#"]
    for node, ident in enumerate(idents):
        bare = guid[node].lstrip("0") or "0"
        word = {"S": "Switch", "H": "Ca", "R": "Rt"}[prefix[node]]
        owner = {"S": f"switchguid=0x{bare}({bare})", "H": f"caguid=0x{bare}"}
        lines += ["", "vendid=0x0", "devid=0x0", f"sysimgguid=0x{bare}"]
        lines.append(owner.get(prefix[node], f"rtguid=0x{bare}"))
        mine = sorted(rows[node])
        n_ports = max([port for port, *_ in mine], default=1)
        lid = f" base port 0 lid {node + 1} lmc 0" if prefix[node] == "S" else ""
        lines.append(f'{word}\t{n_ports} "{ident}"\t\t# "{texts[node]}"{lid}')
        for port, peer, peer_port, token in mine:
            own = "" if prefix[node] == "S" else f"({bare})"
            lmc = "" if prefix[node] == "S" else f"lid {node + 1} lmc 0 "
            far = f"({guid[peer].lstrip('0')})" if prefix[peer] != "S" else ""
            lines.append(
                f'[{port}]{own}\t"{idents[peer]}"[{peer_port}]{far}\t\t'
                f'# {lmc}"{texts[peer]}" lid {peer + 1} {token}'
            )
    return save(path, "\n".join(lines) + "\n")


def _cables(network: Network) -> tuple[list[tuple[int, int]], list[str]]:
    """Return the two links of every live cable and its speed token."""
    labels = network.labels
    alive, capacity = np.asarray(network.alive), np.asarray(network.capacity, np.float64)
    links_of: dict[int, list[int]] = defaultdict(list)
    for link in np.flatnonzero(alive).tolist():
        links_of[int(labels.cable_of[link])].append(link)
    known = {rate: token_of(rate) for rate in set(capacity[alive].tolist())}
    single, uneven, inert = [], [], []
    forwards = np.asarray(labels.forwards)
    ends: list[tuple[int, int]] = []
    for links in links_of.values():
        name = labels.link_name(links[0])
        if len(links) != 2 or labels.src[links[0]] != labels.dst[links[1]]:
            single.append(name)
            continue
        if capacity[links[0]] != capacity[links[1]]:
            uneven.append(name)
        if not (forwards[labels.src[links[0]]] or forwards[labels.src[links[1]]]):
            inert.append(name)
        ends.append((links[0], links[1]))
    faults: list[str] = []
    where = "`write_ibnetdiscover(network, ...)`"
    if nameless := sorted(rate for rate, token in known.items() if token is None):
        faults.append(
            f"{where}: InfiniBand has no speed for {some(format_rate(r) for r in nameless)} per "
            f"direction. Write node-link JSON, which holds any capacity."
        )
    for bad, what in (
        (single, "have no live link back"),
        (uneven, "have another capacity in each direction"),
        (inert, "join two nodes that do not forward"),
    ):
        if bad:
            faults.append(
                f"{where}: {len(bad):,} cables {what}: {some(bad)}. Write node-link JSON, which "
                f"holds any link."
            )
    raise_faults(faults)
    return ends, [known[float(capacity[link])] or "" for link, _ in ends]


def _guids(network: Network) -> list[str]:
    labels = network.labels
    found = [_ID.fullmatch(ident) for ident in labels.ids or [""] * labels.n_nodes]
    guids = [m[1] if m else _MADE.format(node) for node, m in enumerate(found)]
    if len(set(guids)) < len(guids):
        guids = [_MADE.format(node) for node in range(len(guids))]
    return guids


def _descriptions(network: Network) -> list[str]:
    """Return what each node would call itself, such that the reader gives the same names."""
    labels = network.labels
    forwards = np.asarray(labels.forwards)
    names = [name.replace('"', "'") for name in labels.names]
    count = Counter(names)
    server, rail = labels.tags.get("server"), labels.tags.get("rail")
    texts = []
    for node, name in enumerate(names):
        director = _DIRECTOR.fullmatch(name)
        if forwards[node] and count[name] == 1 and _PLAIN.fullmatch(name):
            texts.append(f"MF0;{name}:MQM9700/U1")
        elif forwards[node] and count[name] == 1 and director:
            texts.append(f"MF0;{director[1]}:MCS8500{director[2]}")
        elif _is_rail_nic(name, node, server, rail):
            texts.append(f"{name.rpartition('-nic')[0]} HCA-{int(rail[node]) + 1}")  # pyright: ignore[reportOptionalSubscript]
        else:
            texts.append(name)
    return texts


def _is_rail_nic(name: str, node: int, server: np.ndarray | None, rail: np.ndarray | None) -> bool:
    """Return whether a builder named this adapter by its place in a server, `server12-nic3`."""
    numbered = all(
        tag is not None and tag.dtype.kind == "i" and tag[node] >= 0 for tag in (server, rail)
    )
    return numbered and re.fullmatch(r"[\w.-]+-nic\d+", name) is not None


def _ports(network: Network, ends: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ports of every cable: those known, and free ones for the rest."""
    labels = network.labels
    taken: dict[int, set[int]] = defaultdict(set)
    ports: list[list[int]] = []
    repeated: list[str] = []
    for link, back in ends:
        pair = []
        for one in (link, back):
            port = 0 if labels.src_port is None else int(labels.src_port[one])
            mine = taken[int(labels.src[one])]
            if port and port in mine:
                repeated.append(f"{labels.names[labels.src[one]]}[{port}]")
            mine.add(port)
            pair.append(port)
        ports.append(pair)
    if repeated:
        message = (
            f"`write_ibnetdiscover(network, ...)`: {len(repeated):,} ports hold two live cables: "
            f"{some(repeated)}. Correct `labels.src_port`, or leave it out."
        )
        raise ModelError(message)
    following: dict[int, int] = defaultdict(lambda: 1)
    for pair, both in zip(ports, ends, strict=True):
        for side, one in enumerate(both):
            node = int(labels.src[one])
            if not pair[side]:
                port = following[node]
                while port in taken[node]:
                    port += 1
                taken[node].add(port)
                following[node] = port + 1
                pair[side] = port
    return [(a, b) for a, b in ports]
