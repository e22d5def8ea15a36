"""The text of `ibnetdiscover` -> node and cable records; what they mean is decided elsewhere."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from fabric._errors import raise_faults, some
from fabric.readers._ib_tokens import LANE_GBITS, rate_of

End = tuple[str, int]
"""A node id and a port."""

RECORD = re.compile(r'^(?:Switch|Ca|Rt)\s+\d+\s+"[SHR]-[0-9a-fA-F]+"', re.MULTILINE)
"""A line that no other format has."""

_NODE = re.compile(r'(?:Switch|Ca|Rt)\s+(\d+)\s+"([SHR]-[0-9a-fA-F]+)"\s*(?:#\s*"(.*)"(.*))?')
_CABLE = re.compile(
    r"\[(\d+)\](?:\[ext\s+\d+\])?\s*(?:\([0-9a-fA-F]+\))?\s*"
    r'"([SHR]-[0-9a-fA-F]+)"\[(\d+)\](?:\[ext\s+\d+\])?\s*(?:\([0-9a-fA-F]+\))?\s*#(.*)'
)
_COMMENT = re.compile(r'[^"]*"(.*)"\s*(?:lid\s+\d+)?\s*(\S+)?.*')
_QUIET = re.compile(r"#|(?:vendid|devid|sysimgguid|switchguid|caguid|rtguid)\s*=")
_LID = re.compile(r"\blid\s+(\d+)")


@dataclass
class Node:
    """A switch, adapter or router.

    Attributes:
        ident: For example "S-2c5eab0300b87b40"; the only identity.
        description: As the node calls itself; may repeat.
        own: Whether it has a record of its own, or is only somebody's peer.
    """

    ident: str
    description: str
    own: bool = True

    @property
    def is_aggregation(self) -> bool:
        """Whether this is the reduction engine inside a switch, which is no host."""
        return self.ident.startswith("H") and "aggregation node" in self.description.lower()


@dataclass
class Cable:
    """A cable with the ends that list it.

    Attributes:
        ends: In the order in which the file first lists them.
        seen: By listing end, its line and its speed token.
    """

    ends: tuple[End, End]
    seen: dict[End, tuple[int, str]] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """byte/s per direction; the slower where the ends disagree."""
        return min(rate_of(token) or 0.0 for _, token in self.seen.values())

    @property
    def token(self) -> str:
        """The token of `rate`."""
        return min((token for _, token in self.seen.values()), key=lambda t: rate_of(t) or 0.0)

    @property
    def line(self) -> int:
        """Where the file first lists it."""
        return min(line for line, _ in self.seen.values())


@dataclass
class Records:
    """Nodes by id and cables, in the order of the file."""

    nodes: dict[str, Node]
    cables: list[Cable]
    contradicted: list[dict[str, Any]]
    without_lid: int

    def cable_name(self, cable: Cable) -> str:
        """Return both ends by description and port."""
        parts = (f"{self.nodes[node].description or node}[{port}]" for node, port in cable.ends)
        return " - ".join(parts)


def parse(text: str, source: str) -> Records:
    """Return the records of a dump.

    Args:
        text: Lines that end in a line feed.
        source: The name of the file, for errors.

    Raises:
        ModelError: If speed tokens are unknown or missing; all of them at once.
    """
    nodes: dict[str, Node] = {}
    cables: dict[tuple[End, End], Cable] = {}
    peers: dict[str, str] = {}
    contradicted: list[dict[str, Any]] = []
    odd: list[int] = []
    faults: dict[str, list[int]] = defaultdict(list)
    current, without_lid = "", 0
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or _QUIET.match(line):
            continue
        if node := _NODE.fullmatch(line):
            current = node[2]
            without_lid += _unset_lid(node[4] or "")
            if current in nodes:
                item = f"{current} '{node[3] or ''}'"
                contradicted.append({"what": "node listed twice", "item": item, "line": number})
            else:
                nodes[current] = Node(current, node[3] or "")
        elif current and (found := _CABLE.fullmatch(line)):
            comment = _COMMENT.fullmatch(found[4])
            token = (comment[2] if comment else None) or ""
            if rate_of(token) is None:
                faults[token].append(number)
                continue
            near, far = (current, int(found[1])), (found[2], int(found[3]))
            if near == far:
                item = f"{current}[{near[1]}]"
                contradicted.append({"what": "port cabled to itself", "item": item, "line": number})
                continue
            peers.setdefault(far[0], comment[1] if comment else "")
            key = (near, far) if near < far else (far, near)
            cable = cables.setdefault(key, Cable((near, far)))
            cable.seen.setdefault(near, (number, token))
            without_lid += current.startswith("H") and _unset_lid(found[4])
        else:
            odd.append(number)
    raise_faults([_speed_fault(source, token, lines) for token, lines in faults.items()])
    for ident, description in peers.items():
        if ident not in nodes:
            nodes[ident] = Node(ident, description, own=False)
            item = f"{ident} '{description}'"
            contradicted.append({"what": "peer without a record of its own", "item": item})
    if odd:
        contradicted.append({"what": "lines not understood", "count": len(odd), "lines": odd[:20]})
    records = Records(nodes, list(cables.values()), contradicted, without_lid)
    _settle(records)
    return records


def _settle(records: Records) -> None:
    """Report what the two ends of a cable disagree on; keep one cable per port."""
    taken: dict[End, Cable] = {}
    dropped: set[int] = set()
    # A cable that both ends list is believed before one that a single end lists.
    for cable in sorted(records.cables, key=lambda c: -len(c.seen)):
        rivals = [taken[end] for end in cable.ends if end in taken]
        if rivals:
            dropped.add(id(cable))
            item = f"{records.cable_name(cable)}; kept {records.cable_name(rivals[0])}"
            records.contradicted.append(
                {"what": "port in two cables", "item": item, "line": cable.line}
            )
            continue
        taken.update(dict.fromkeys(cable.ends, cable))
    records.cables[:] = [c for c in records.cables if id(c) not in dropped]
    for cable in records.cables:
        tokens = sorted({token for _, token in cable.seen.values()})
        where = {"item": records.cable_name(cable), "line": cable.line}
        if len(cable.seen) == 1:
            records.contradicted.append({"what": "cable listed from one end only", **where})
        elif len(tokens) > 1:
            records.contradicted.append(
                {"what": "ends disagree on the speed", "tokens": tokens, **where}
            )


def _unset_lid(comment: str) -> bool:
    match = _LID.search(comment)
    return match is not None and int(match[1]) in (0, 65535)


def _speed_fault(source: str, token: str, lines: list[int]) -> str:
    found = f"have the unknown speed '{token}'" if token else "have no speed"
    return (
        f"'{source}': {len(lines):,} cable lines {found}, the first is line {lines[0]:,}. A speed "
        f"is a width and a rate such as 4xNDR; known rates: {some(LANE_GBITS, limit=12)}."
    )
