"""Dumps of InfiniBand forwarding tables -> `ForwardingTables`, joined with LIDs by GUID."""

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fabric._errors import ModelError, joined, some
from fabric.readers._files import Text, load
from fabric.readers._ib_lids import Port, ports
from fabric.routing import ForwardingTables
from fabric.routing._table_record import LAST_LID, NO_PORT

_TABLE = re.compile(
    r"(?:Unicast lids \[\S+\] of switch .*?\bguid |\w*dump_ucast_routes: Switch )0x([0-9a-fA-F]+)"
)
_ENTRY = re.compile(r"0x([0-9a-fA-F]+)\s*:?\s*(\d+|UNREACHABLE)(?![\w-])(.*)")
_GUID = re.compile(r"\bportguid 0x([0-9a-fA-F]+)")
_QUIET = re.compile(r"#|Lid\s+Out\b|Port\s+Info\b|LID\s+:\s+Port\b|\d+ (?:valid )?lids dumped")


@dataclass(frozen=True, eq=False)
class TablesReading:
    """Forwarding tables from a file, and everything the file said that is not in them.

    Attributes:
        tables: For `routing.forwarding_tables`.
        source: The name of the file, without its folder.
        entries: (switch, LID) pairs that have a port.
        ignored: What was understood and left out: `{"what": ..., "count": ...}`.
        contradicted: What is said twice and differently: `{"what": ..., "item": ...}`.
        warnings: Sentences about what deserves a look.
        fingerprint: "sha256:..." of the bytes after decompression.
    """

    tables: ForwardingTables
    source: str
    entries: int
    ignored: list[dict[str, Any]] = field(default_factory=list)
    contradicted: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    fingerprint: str = ""


@dataclass
class _Dump:
    """What the lines of a dump say.

    Attributes:
        rows: Ports by LID, by switch id.
        guids: LIDs by the GUID of their port, where comments name it.
        dropped: Lines that were left out, by what they are.
    """

    rows: dict[str, dict[int, int]] = field(default_factory=dict)
    guids: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    dropped: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    contradicted: list[dict[str, Any]] = field(default_factory=list)


def lfts(path: str | os.PathLike[str] | Text, lids: str | os.PathLike[str] | Text) -> TablesReading:
    """Return the forwarding tables in a dump of OpenSM or of the InfiniBand diagnostics.

    Read are `opensm-lfts.dump` and `opensm.fdbs` of OpenSM, and what `ibroute` and `dump_fts`
    print; outputs of `ibroute` for several switches may stand one behind the other. A table
    belongs to a switch by its GUID. A LID belongs to an end node by the GUID of the port where
    the dump names it, else by the LID in the other file.

    Args:
        path: The dump, plain or gzip, or the text itself.
        lids: What says which node has which port GUID and LID: the output of `ibnetdiscover` (of
            the same network that the flows run on, for example) or OpenSM's `opensm-subnet.lst`.

    Returns:
        A `TablesReading`: the tables, and what was dropped and contradicted.

    Raises:
        ModelError: If a file cannot be read or is none of these, an entry is out of range, or
            the two files do not give the same LIDs.

    Examples:
        >>> from fabric import readers
        >>> dump = '''Unicast lids [0-2] of switch Lid 1 guid 0x000000000000000a ('leaf'):
        ... 0x0001 000 : (Switch portguid 0x000000000000000a: 'leaf')
        ... 0x0002 017 : (Channel Adapter portguid 0x000000000000000c: 'node7')
        ... '''
        >>> fabric = '''Switch 41 "S-000000000000000a" # "leaf" base port 0 lid 1 lmc 0
        ... [17] "H-000000000000000b"[1](c) # "node7" lid 2 4xHDR
        ... Ca 1 "H-000000000000000b" # "node7"
        ... [1](c) "S-000000000000000a"[17] # lid 2 lmc 0 "leaf" lid 1 4xHDR
        ... '''
        >>> tables = readers.lfts(dump, fabric).tables
        >>> tables.lids, int(tables.out_port[0, 2])
        ({'H-000000000000000b': (2,)}, 17)

    References:
        opensm(8); ibroute(8) and dump_fts(8), infiniband-diags of rdma-core.
    """
    file, other = load(path), load(lids)
    dump = _parse(file)
    known = ports(other)
    owned = _owned(dump, known, file.source, other.source)
    width = 1 + max(max(row, default=0) for row in dump.rows.values())
    out_port = np.full((len(dump.rows), width), NO_PORT, np.uint8)
    for line, row in zip(out_port, dump.rows.values(), strict=True):
        line[list(row)] = list(row.values())
    tables = ForwardingTables(tuple(dump.rows), out_port, owned, file.source)
    return TablesReading(
        tables=tables,
        source=file.source,
        entries=tables.n_entries,
        ignored=[{"what": what, "count": len(at)} for what, at in dump.dropped.items()],
        contradicted=dump.contradicted,
        warnings=[*file.warnings, *_warnings(dump, known, owned)],
        fingerprint=file.fingerprint,
    )


def _parse(file: Text) -> _Dump:
    dump = _Dump()
    row: dict[int, int] | None = None
    outside, odd, again, ident = [], [], set(), ""
    for number, raw in enumerate(file.text.split("\n"), 1):
        line = raw.strip()
        if not line or _QUIET.match(line):
            continue
        if table := _TABLE.match(line):
            ident = f"S-{int(table[1], 16):016x}"
            if ident in dump.rows:
                again.add(ident)
            row = dump.rows.setdefault(ident, {})
            continue
        entry = _ENTRY.match(line)
        if entry is None or row is None:
            odd.append(number)
            continue
        lid, port = int(entry[1], 16), entry[2]
        if guid := _GUID.search(entry[3]):
            dump.guids[int(guid[1], 16)].add(lid)
        if port == "UNREACHABLE":
            dump.dropped["LIDs that a switch cannot reach"].append(number)
        elif int(port) == NO_PORT:
            dump.dropped["entries that drop what is sent there (port 255)"].append(number)
        elif int(port) > NO_PORT or not 1 <= lid <= LAST_LID:
            outside.append(f"line {number:,}: {line}")
        elif row.setdefault(lid, int(port)) != int(port):
            item = f"LID {lid} of {ident}: ports {row[lid]} and {int(port)}; kept {row[lid]}"
            dump.contradicted.append({"what": "two ports for a LID", "item": item, "line": number})
    if not dump.rows:
        message = (
            f"'{file.source}' holds no forwarding table: there is no line `Unicast lids ... of "
            f"switch ...` or `dump_ucast_routes: Switch ...`. Give `opensm-lfts.dump`, "
            f"`opensm.fdbs`, or what `dump_fts` prints."
        )
        raise ModelError(message)
    if outside:
        message = (
            f"'{file.source}': {len(outside):,} entries have a LID that is not from 1 to "
            f"{LAST_LID:,} or a port beyond {NO_PORT}: {some(outside)}."
        )
        raise ModelError(message)
    if again:
        dump.dropped["tables of a switch that has one already"] = sorted(again)
    if odd:
        item = {"what": "lines not understood", "count": len(odd), "lines": odd[:20]}
        dump.contradicted.append(item)
    return dump


def _owned(dump: _Dump, known: list[Port], source: str, other: str) -> dict[str, tuple[int, ...]]:
    """Return the LIDs of every end node; raise where the two files are of different days."""
    own = {
        ident: {lid for lid, port in row.items() if port == 0} for ident, row in dump.rows.items()
    }
    said = lambda lids: joined([str(lid) for lid in sorted(lids)])
    moved = [
        f"{port.node}: {port.lid} there, {said(own[port.node])} here"
        for port in known
        if port.is_switch and port.lid and own.get(port.node) and port.lid not in own[port.node]
    ]
    if moved and not dump.guids:
        message = (
            f"`lids`: {len(moved):,} of {len(own):,} switches have another LID in '{other}' than "
            f"in '{source}': {some(moved)}. '{source}' names no port GUIDs, so the LIDs have to "
            f"be of the same day. Dump both again, or give `opensm-lfts.dump`."
        )
        raise ModelError(message)
    named = {lid for lids in dump.guids.values() for lid in lids}
    taken: dict[str, list[int]] = defaultdict(list)
    for port in known:
        if port.is_switch:
            continue
        given = range(port.lid, port.lid + port.n_lids) if port.lid else range(0)
        lids = sorted(dump.guids.get(port.guid, ())) or [lid for lid in given if lid not in named]
        if given and given[0] not in lids:
            now = f"here {lids[0]}" if lids else "which is another port's here"
            item = f"{port.node}[{port.number}]: LID {port.lid} in {other}, {now}"
            dump.contradicted.append({"what": "end node with another LID", "item": item})
        if lids:
            taken[port.node] += lids
    if moved:
        dump.contradicted += [{"what": "switch with another LID", "item": item} for item in moved]
    return {node: tuple(lids) for node, lids in taken.items()}


def _warnings(dump: _Dump, known: list[Port], owned: dict[str, tuple[int, ...]]) -> list[str]:
    said = []
    switches = {port.node for port in known if port.is_switch}
    if bare := sorted(switches - dump.rows.keys()):
        said.append(f"{len(bare):,} of {len(switches):,} switches have no table: {some(bare)}.")
    ends = {port.node for port in known if not port.is_switch}
    if bare := sorted(ends - owned.keys()):
        said.append(f"{len(bare):,} of {len(ends):,} end nodes have no LID: {some(bare)}.")
    return said
