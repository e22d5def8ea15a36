"""`ibnetdiscover` output -> `Reading`: roles by who has hosts, identity by GUID."""

import os
import re
from collections import Counter, defaultdict, deque
from collections.abc import Sequence

import numpy as np

from fabric._errors import ModelError, some
from fabric.network import Labels, Network
from fabric.readers._files import Text, load
from fabric.readers._ib_records import Cable, Node, Records, parse
from fabric.readers._reading import Reading

HOST_PATTERN = r"(?P<host>\S+)(?:\s+(?P<nic>HCA-\d+|mlx\d+_\w+|i\S+|hfi\d+_\w+))?"
"""`<hostname> HCA-1`, `<hostname> mlx5_0`, `<hostname> ibp11s0f0`, or a hostname alone; a factory
name such as `MT4129 ConnectX7   Mellanox Technologies` is none of these."""

_KINDS = ("nic", "leaf", "spine", "core", "switch", "router")
_MANAGED = re.compile(r"MF0;(?P<name>[^:]+):(?P<model>[^/]*)(?P<part>(?:/\w+)*)")


def ibnetdiscover(
    path: str | os.PathLike[str] | Text, *, host_pattern: str = HOST_PATTERN
) -> Reading:
    """Return the fabric in the output of `ibnetdiscover`.

    The GUID is the identity of a node; names repeat and only group adapters into hosts. A cable
    is listed from both ends and counted once; parallel cables stay separate. A switch with at
    least one adapter is a leaf; spine and core are one and two or more switches away from one.
    The aggregation node inside a switch is no host: it and its internal link are left out and
    counted in `ignored`.

    Nodes carry the tags `host` and `hca` (text, "" where the name tells none) and `leaf` (the
    node number of the leaf, -1 for other nodes). Capacities are data rates per direction: 4xNDR is
    400 Gb/s.

    Args:
        path: A file, plain or gzip, or the text itself.
        host_pattern: Regular expression for the whole description of an adapter, with a group
            `host` and optionally `nic`.

    Raises:
        ModelError: If the file cannot be read, holds no node, or has unknown speeds.

    Examples:
        >>> from fabric import readers
        >>> text = '''Switch 41 "S-0a" # "MF0;leaf-1:MQM8700/U1" base port 0 lid 1 lmc 0
        ... [1] "H-0b"[1](b) # "node7 HCA-1" lid 2 4xHDR
        ... Ca 1 "H-0b" # "node7 HCA-1"
        ... [1](b) "S-0a"[1] # lid 2 lmc 0 "MF0;leaf-1:MQM8700/U1" lid 1 4xHDR
        ... '''
        >>> reading = readers.ibnetdiscover(text)
        >>> reading.network.link_name(0), float(reading.network.capacity[0])
        ('node7 HCA-1[1]->leaf-1[1]', 25000000000.0)

    References:
        ibnetdiscover(8), infiniband-diags of rdma-core.
    """
    file = load(path)
    records = parse(file.text, file.source)
    if not records.nodes:
        message = f"'{file.source}' has no Switch, Ca or Rt record, so it holds no fabric."
        raise ModelError(message)
    inner = {node.ident for node in records.nodes.values() if node.is_aggregation}
    nodes = [node for node in records.nodes.values() if not node.is_aggregation]
    cables = [c for c in records.cables if not any(node in inner for node, _ in c.ends)]
    role = _roles(nodes, cables)
    labels, rates = _labels(nodes, cables, role, host_pattern, file.source)
    ignored = [{"what": "aggregation node", "count": len(inner)}] if inner else []
    return Reading(
        network=Network(rates, labels=labels),
        source=file.source,
        format="ibnetdiscover",
        confidence=1.0,
        records=len(records.cables),
        ignored=ignored,
        contradicted=records.contradicted,
        warnings=[*file.warnings, *_warnings(records, cables, role)],
        fingerprint=file.fingerprint,
        notes={
            "cables_by_speed": dict(Counter(c.token for c in cables)),
            "host_pattern": host_pattern,
        },
    )


def _roles(nodes: Sequence[Node], cables: Sequence[Cable]) -> dict[str, str]:
    """Return the kind of every node, switches by their distance from a switch with hosts."""
    near: dict[str, list[str]] = defaultdict(list)
    distance: dict[str, int] = {}
    for cable in cables:
        (a, _), (b, _) = cable.ends
        for one, other in ((a, b), (b, a)):
            if one.startswith("S") and other.startswith("H"):
                distance[one] = 0
            elif one.startswith("S") and other.startswith("S"):
                near[one].append(other)
    queue = deque(distance)
    while queue:
        node = queue.popleft()
        for other in near[node]:
            if other not in distance:
                distance[other] = distance[node] + 1
                queue.append(other)
    tier = lambda ident: ("leaf", "spine", "core")[min(distance[ident], 2)]
    kind = {"H": lambda _: "nic", "R": lambda _: "router"}
    switch = lambda ident: tier(ident) if ident in distance else "switch"
    return {node.ident: kind.get(node.ident[0], switch)(node.ident) for node in nodes}


def _labels(
    nodes: Sequence[Node],
    cables: Sequence[Cable],
    role: dict[str, str],
    host_pattern: str,
    source: str,
) -> tuple[Labels, np.ndarray]:
    number = {node.ident: i for i, node in enumerate(nodes)}
    kinds = tuple(kind for kind in _KINDS if kind in role.values())
    tiers: list[str] = []
    rows: list[tuple[int, int, int, int, int]] = []
    leaf = np.full(len(nodes), -1, np.int32)
    for cable in cables:
        # The lower tier first, so that the even links of a tier all point up.
        (a, a_port), (b, b_port) = sorted(cable.ends, key=lambda end: _KINDS.index(role[end[0]]))
        low, high = role[a], role[b]
        tier = "host" if low == "nic" else f"{low}-{high}"
        if tier not in tiers:
            tiers.append(tier)
        rows.append((number[a], number[b], a_port, b_port, tiers.index(tier)))
        if low == "nic" and high == "leaf" and leaf[number[a]] < 0:
            leaf[number[a]] = number[b]
    a, b, a_port, b_port, tier_of = np.array(rows, np.int32).reshape(-1, 5).T
    both = lambda x, y: np.stack([x, y], 1).ravel()
    hosts, hcas = _hosts(nodes, role, host_pattern)
    labels = Labels(
        kinds=kinds,
        kind_of=np.array([kinds.index(role[node.ident]) for node in nodes], np.int32),
        names=_names(nodes),
        ids=[node.ident for node in nodes],
        src=both(a, b),
        dst=both(b, a),
        tiers=tuple(tiers),
        tier_of=np.repeat(tier_of, 2).astype(np.int32),
        cable_of=np.repeat(np.arange(len(cables), dtype=np.int32), 2),
        src_port=both(a_port, b_port),
        dst_port=both(b_port, a_port),
        tags={"host": hosts, "hca": hcas, "leaf": leaf, "model": _models(nodes)},
        source=source,
        about={"network": "infiniband", "routing": "spray"},
    )
    return labels, np.repeat(np.array([cable.rate for cable in cables], np.float64), 2)


def _hosts(
    nodes: Sequence[Node], role: dict[str, str], pattern: str
) -> tuple[np.ndarray, np.ndarray]:
    try:
        rule = re.compile(pattern)
    except re.error as error:
        message = f"`host_pattern={pattern!r}` is no regular expression: {error}."
        raise ModelError(message) from None
    if "host" not in rule.groupindex:
        message = f"`host_pattern={pattern!r}` needs a group `(?P<host>...)`."
        raise ModelError(message)
    hosts, hcas = [], []
    for node in nodes:
        match = rule.fullmatch(node.description) if role[node.ident] == "nic" else None
        found = match.groupdict() if match else {}
        hosts.append(found.get("host") or "")
        hcas.append(found.get("nic") or "")
    return np.array(hosts, str), np.array(hcas, str)


def _names(nodes: Sequence[Node]) -> list[str]:
    """Return names for people; a switch keeps its whole description where the short one repeats."""
    short = [_short(node.description) or node.ident for node in nodes]
    count = Counter(
        name for name, node in zip(short, nodes, strict=True) if not node.ident.startswith("H")
    )
    return [
        node.description if count[name] > 1 and node.description else name
        for name, node in zip(short, nodes, strict=True)
    ]


def _short(description: str) -> str:
    match = _MANAGED.fullmatch(description)
    if match is None:
        return description
    # One ASIC of a director has its place in the chassis here; a box of one ASIC is just /U1.
    return match["name"] + ("" if match["part"] == "/U1" else match["part"])


def _models(nodes: Sequence[Node]) -> np.ndarray:
    """Return the model that a managed switch says it is; "" where it says none."""
    said = [_MANAGED.fullmatch(node.description) for node in nodes]
    # A director has many ASICs, and each is a node.
    ends = {"/U1": ""}
    return np.array([m["model"] + ends.get(m["part"], " ASIC") if m else "" for m in said], str)


def _warnings(records: Records, cables: Sequence[Cable], role: dict[str, str]) -> list[str]:
    said: list[str] = []
    if not cables:
        said.append("The file lists no cable: it is not a whole fabric.")
    if "switch" in role.values():
        lone = [records.nodes[i].description or i for i, kind in role.items() if kind == "switch"]
        said.append(
            f"{len(lone):,} switches reach no host, so their tier is unknown: {some(lone)}."
        )
    by_tier: dict[frozenset[str], list[Cable]] = defaultdict(list)
    for cable in cables:
        by_tier[frozenset(role[node] for node, _ in cable.ends)].append(cable)
    for group in by_tier.values():
        usual = max(Counter(c.rate for c in group).items(), key=lambda kv: (kv[1], kv[0]))[0]
        slow = [c for c in group if c.rate < usual]
        # Many slower cables are a design (split cables); a few are cables that trained badly.
        if slow and (10 * len(slow) <= len(group) or (len(slow) == 1 and len(group) > 2)):
            names = (f"{records.cable_name(c)} at {c.token}" for c in slow)
            said.append(
                f"{len(slow):,} of {len(group):,} cables of a tier are slower than the rest, "
                f"perhaps degraded: {some(names)}."
            )
    if records.without_lid:
        said.append(
            f"{records.without_lid:,} nodes have no LID (0 or 65535): the subnet was not "
            f"configured yet."
        )
    return said
