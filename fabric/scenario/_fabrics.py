"""The `fabric` block of a scenario -> a network of GPUs, and what was found on the way."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from fabric import hardware, readers, topologies
from fabric._errors import ModelError, nearest, raise_faults
from fabric.hardware import Nic, Server
from fabric.network import Network
from fabric.network._network import link_of
from fabric.scenario._capped import capped
from fabric.scenario._live import server_names
from fabric.topologies import UniformDesign, uniform_design

_READER_OPTIONS = {
    "host_pattern": "host_pattern",
    "capacity": "default_capacity",
    "unit": "unit",
    "capacity_attribute": "capacity",
    "latency_unit": "latency_unit",
}
"""Option of a reader by the key of a scenario."""


@dataclass(frozen=True, eq=False)
class Ground:
    """A fabric with its servers and without failures.

    Attributes:
        network: GPUs in front of NICs and switches.
        design: The uniform design of its leaves and spines, None where there is none.
        uniform: The network of that design, with the same servers; None where nothing is missing.
        found: What a file was found to hold: hosts that are used and those left out, and why.
        assumptions: `(name, value, kind, source)` of what was taken for granted.
    """

    network: Network
    design: UniformDesign | None = None
    uniform: Network | None = None
    found: dict[str, Any] = field(default_factory=dict)
    assumptions: tuple[tuple[str, str, str, str], ...] = ()


def ground(block: dict[str, Any], folder: str | None) -> Ground:
    """Return the fabric of a scenario.

    Args:
        block: The checked block `fabric`, without what is not given.
        folder: With further hardware.

    Raises:
        ModelError: If a builder, a reader or the servers refuse it.
    """
    if "cluster" in block:
        options = {key: block[key] for key in _CLUSTER_KEYS if key in block}
        return Ground(topologies.cluster(block["cluster"], **options))
    server = hardware.server(block["server"], folder) if "server" in block else None
    nic = None
    if server is not None:
        _check_ratio(server, block.get("gpus_per_nic"))
        nic = hardware.nic(block.get("nic", server.nic), folder)
    elif "nic" in block:
        message = f"`fabric.nic: {block['nic']}` is a part of a server. Add `fabric.server`."
        raise ModelError(message)
    if "builder" in block:
        return _in_front(topologies.build(block["builder"]), server, nic, block, {})
    options = {to: block[key] for key, to in _READER_OPTIONS.items() if key in block}
    reading = _reading(Path(block["file"]), options)
    found = {
        "source": reading.source, "format": reading.format, "fingerprint": reading.fingerprint,
        "ignored": reading.ignored, "contradicted": reading.contradicted,
        "warnings": reading.warnings,
    }  # fmt: skip
    return _in_front(reading.network, server, nic, block, found)


def _reading(path: Path, options: dict[str, Any]) -> readers.Reading:
    try:
        return readers.read(path, **options)
    except ModelError as error:
        raise ModelError(_as_keys(str(error), path.name)) from None


def _as_keys(message: str, file: str) -> str:
    """Return a reader's message with its options as a scenario calls them.

    Examples:
        >>> _as_keys("Say `capacity='...'`, or `default_capacity='400Gb/s'`.", "graph.json")
        'Say `fabric.capacity_attribute: ...`, or `fabric.capacity: 400Gb/s`.'
        >>> _as_keys("The ibnetdiscover reader has no option `unit`. Known: 'x'.", "dump")
        "`fabric.unit` is no option for 'dump', which is of format ibnetdiscover. Leave it out."
    """
    for key, option in sorted(_READER_OPTIONS.items(), key=lambda item: item[1] == "capacity"):
        message = re.sub(
            rf"The (\S+) reader has no option `{option}`\.[^\n]*",
            rf"`fabric.{key}` is no option for '{file}', which is of format \1. Leave it out.",
            message,
        )
        message = re.sub(rf"`{option}=(['\"])(.*?)\1`", rf"`fabric.{key}: \2`", message)
        message = re.sub(rf"`{option}`", f"`fabric.{key}`", message)
    return message


_CLUSTER_KEYS = ("nodes", "su", "leaves", "spines", "gpudirect")


def _check_ratio(server: Server, gpus_per_nic: int | None) -> None:
    if gpus_per_nic is None or gpus_per_nic * server.n_nics == server.n_gpus:
        return
    message = (
        f"`fabric.gpus_per_nic: {gpus_per_nic}`, but a '{server.name}' has {server.n_gpus} GPUs "
        f"and {server.n_nics} NICs. Leave it out, or name another `fabric.server`."
    )
    raise ModelError(message)


def _in_front(
    fabric: Network,
    server: Server | None,
    nic: Nic | None,
    block: dict[str, Any],
    found: dict[str, Any],
) -> Ground:
    """Return a fabric with servers in front, and its uniform design with the same ones."""
    if server is None:
        return _bare(fabric, found)
    hosts = _hosts(fabric, server, block.get("hosts"))
    found = found | hosts.found
    if not hosts.names:
        message = (
            f"`fabric.server: {server.name}` needs hosts with {server.n_nics} NICs on consistent "
            f"rails, but '{fabric.labels.source}' has none: {hosts.said()}. Name another server, "
            f"or say with `host_pattern` how adapters tell their host."
        )
        raise ModelError(message)
    design = uniform_design(fabric)

    def attached(bare: Network) -> Network:
        tagged = _with_tags(bare, {"unit": hosts.unit}) if hosts.unit is not None else bare
        names = hosts.names if "host" in bare.labels.tags else None
        return topologies.attach_servers(
            tagged, server, hosts.nics, nic=nic, gpudirect=block.get("gpudirect"), names=names
        )

    uniform = None if design is None or not design.missing else attached(design.network)
    whole = attached(fabric)
    assumptions = [
        (
            "servers", server.name, "assumed",
            f"the {server.n_gpus} GPUs of a host are on NVLink or xGMI, each with a NIC; hosts "
            f"with {server.n_nics} NICs are taken for a '{server.name}'",
        ),
    ]  # fmt: skip
    if slower := whole.labels.about.get("nic_cables"):
        told = f"the cables of the fabric; the NICs, {whole.labels.about['nic']}, could do more"
        assumptions.append(("cables of the NICs", slower, "user", told))
    return Ground(whole, design, uniform, found, tuple(assumptions))


def _bare(fabric: Network, found: dict[str, Any]) -> Ground:
    """Return a fabric whose endpoints are the GPUs."""
    if fabric.labels.is_kind("gpu").any():
        return Ground(fabric, found=found)
    design = uniform_design(fabric)
    uniform = None if design is None or not design.missing else design.network
    return Ground(fabric, design, uniform, found)


@dataclass(frozen=True, eq=False)
class _Hosts:
    """Hosts of a fabric that a server fits, and what became of the others."""

    names: list[str]
    nics: Int[np.ndarray, "servers nics"]
    unit: Int[np.ndarray, " nodes"] | None
    found: dict[str, Any]

    def said(self) -> str:
        per_host = self.found["hosts"]["nics_per_host"]
        counts = [f"{count} hosts with {nics} NICs" for nics, count in per_host.items()]
        return ", ".join(counts) or "no host has a name"


def _hosts(fabric: Network, server: Server, pattern: str | None) -> _Hosts:
    """Return the hosts that have the NICs of a server, on the rails that their neighbours have."""
    labels, ends = fabric.labels, fabric.hosts
    text = "host" in labels.tags
    owner = labels.tags["host"] if text else labels.tags.get("server")
    if owner is None:
        message = (
            f"`fabric.server: {server.name}` needs to know which NICs a host has, but "
            f"'{labels.source}' does not say it. Use a builder with servers, such as "
            f"`rail_optimized`, or leave `server` out: every endpoint is a GPU then."
        )
        raise ModelError(message)
    nics: dict[str, list[int]] = defaultdict(list)
    for nic in ends.tolist():
        name = str(owner[nic])
        if name not in ("", "-1") and (pattern is None or fnmatchcase(name, pattern)):
            nics[name].append(nic)
    if pattern is not None and not nics:
        names = sorted({str(owner[nic]) for nic in ends.tolist()} - {"", "-1"})
        message = f"`fabric.hosts: {pattern}` matches no host. {nearest(pattern, names)}"
        raise ModelError(message)
    survey = readers.hosts_survey(fabric)
    swapped = {row["host"] for row in survey["swapped_rails"]}
    fit = [name for name, own in nics.items() if len(own) == server.n_nics]
    used = sorted((name for name in fit if name not in swapped), key=_natural)
    hca = labels.tags.get("hca")
    rank = (lambda nic: _natural(str(hca[nic]))) if hca is not None else int
    chosen = [sorted(nics[name], key=rank) for name in used]
    per_host = Counter(len(own) for own in nics.values())
    found = {
        "hosts": {
            "used": len(used),
            "gpus": len(used) * server.n_gpus,
            "nics_per_host": {str(n): per_host[n] for n in sorted(per_host, reverse=True)},
            "unnamed_nics": survey["unnamed_nics"],
            "left_out": [
                {"why": "rails swapped", "hosts": sorted(swapped & set(fit), key=_natural)},
                {
                    "why": f"not {server.n_nics} NICs",
                    "hosts": sorted((n for n in nics if n not in fit), key=_natural),
                },
            ],
        }
    }
    number = np.array(chosen, np.int32).reshape(len(chosen), server.n_nics)
    return _Hosts(used, number, _units(fabric, number), found)


def _units(
    fabric: Network, nics: Int[np.ndarray, "servers nics"]
) -> Int[np.ndarray, " nodes"] | None:
    """Return the scalable unit of every NIC: hosts on the same set of leaves are one."""
    labels = fabric.labels
    if "unit" in labels.tags or "leaf" not in labels.tags:
        return None
    of_host = [tuple(sorted(row)) for row in labels.tags["leaf"][nics].tolist()]
    units = {leaves: i for i, leaves in enumerate(dict.fromkeys(of_host))}
    unit = np.full(labels.n_nodes, -1, np.int32)
    for row, leaves in zip(nics, of_host, strict=True):
        unit[row] = units[leaves]
    return unit


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _with_tags(network: Network, tags: dict[str, np.ndarray]) -> Network:
    labels = replace(network.labels, tags={**network.labels.tags, **tags})
    fields = (network.capacity, network.latency, network.alive, network.routing_cost)
    return Network(*fields, labels=labels)


def failed(network: Network, out: Mapping[str, Any]) -> Network:
    """Return a network with nodes and cables out of order.

    Args:
        network: Without these failures.
        out: The block `fabric.failed`. Nodes go by name or id, a whole server by its name; links by
            the name of a link, such as "leaf0->spine1": its cable fails both ways.

    Raises:
        ModelError: If a node or link is unknown, the nearest is offered; or what is degraded has
            failed.
    """
    faults: list[str] = []
    nodes, links = _named(network, out, "failed", faults)
    slow = out.get("degraded") or {}
    slow_nodes, slow_links = _named(network, slow, "failed.degraded", faults)
    faults = faults or _failed_already(network, slow, slow_links, nodes, links)
    raise_faults(capped(faults))
    if nodes or links:
        network = network.without(nodes=nodes, links=links)
    if slow_nodes or slow_links:
        network = network.degraded(nodes=slow_nodes, links=slow_links, factor=slow["factor"])
    return network


def _named(
    network: Network, out: Mapping[str, Any], block: str, faults: list[str]
) -> tuple[list[int | str], list[int]]:
    """Return the nodes and links of a block; unknown ones are faults."""
    nodes, links = out.get("nodes", []), out.get("links", [])
    if not nodes and not links:
        return [], []
    servers = server_names(network)
    inside = [node for name in nodes if name in servers for node in _inside(network, servers[name])]
    others = [name for name in nodes if name not in servers]
    _check_nodes(network, f"{block}.nodes", others, faults, list(servers))
    return [*others, *inside], [_link(network, name, f"{block}.links", faults) for name in links]


def _failed_already(
    network: Network,
    slow: Mapping[str, Any],
    slow_links: Sequence[int],
    nodes: Sequence[int | str],
    links: Sequence[int],
) -> list[str]:
    """Return a fault for everything that is degraded, all of which has failed."""
    labels, servers = network.labels, server_names(network)
    number = lambda node: labels.node(node) if isinstance(node, str) else node
    gone, cables = set(map(number, nodes)), set(labels.cable_of[list(links)].tolist())
    found = []
    for name in slow.get("nodes", []):
        own = _inside(network, servers[name]) if name in servers else [number(name)]
        if gone.issuperset(own):
            found.append(("nodes", name))
    for name, link in zip(slow.get("links", []), slow_links, strict=True):
        ends = {int(labels.src[link]), int(labels.dst[link])}
        if labels.cable_of[link] in cables or gone & ends:
            found.append(("links", name))
    return [
        f"`fabric.failed.degraded.{key}`: '{name}' has failed, by `fabric.failed`. Keep it in one "
        f"of the two."
        for key, name in found
    ]


def _inside(network: Network, server: int) -> list[int]:
    """Return the nodes of a server, its NICs too."""
    return np.flatnonzero(network.labels.tags["server"] == server).tolist()


def _check_nodes(
    network: Network, key: str, names: Sequence[str], faults: list[str], servers: Sequence[str]
) -> None:
    """Add a fault for each unknown node; the nearest switch or server is offered."""
    labels = network.labels
    lost = [name for name in names if name not in labels.node_of]
    if lost:
        inside = labels.is_kind(*topologies.INSIDE_KINDS)
        switches = np.flatnonzero(np.asarray(labels.forwards) & ~inside)[:2000].tolist()
        known = [*(str(labels.names[node]) for node in switches), *servers]
        faults += [
            f"`fabric.{key}`: '{name}' is no node of '{labels.source}'. {nearest(name, known)}"
            for name in lost
        ]


def _link(network: Network, name: str, key: str, faults: list[str]) -> int:
    try:
        return link_of(network.labels, name, f"fabric.{key}")
    except ModelError as error:
        faults.append(str(error))
        return 0
