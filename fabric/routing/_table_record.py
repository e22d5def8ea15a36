"""`ForwardingTables`: which port every switch sends every LID out of, and whose LIDs they are."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import UInt8

from fabric._errors import raise_faults, some
from fabric.network import frozen, is_whole

NO_PORT = 255
"""In a table: this switch has no entry for this LID, and drops what is sent there."""

LAST_LID = 0xBFFF
"""Of unicast; above it are multicast groups."""


@dataclass(frozen=True, eq=False)
class ForwardingTables:
    """The linear forwarding tables of the switches of a fabric, and the LIDs of its end nodes.

    Attributes:
        switches: Id, or unique name, of the node that each table belongs to.
        out_port: (switches, lids), the port that a switch sends a LID out of; 0 is the switch
            itself, 255 no entry. Column i is LID i, up to the last of an entry or an end node;
            column 0 is of no use.
        lids: LIDs by the id, or unique name, of their node: by port, then by path. One LID where
            nobody says otherwise; 2**LMC per port where the subnet manager gives several.
        source: What they were read from, in words.

    Examples:
        >>> tables = ForwardingTables.from_ports({"leaf0": {1: 1, 2: 2}}, {"h0": 1, "h1": 2})
        >>> tables.n_entries, tables.out_port.shape
        (2, (1, 3))

    References:
        InfiniBand Architecture Specification, volume 1: attribute LinearForwardingTable.
    """

    switches: tuple[str, ...]
    out_port: UInt8[np.ndarray, "switches lids"]
    lids: Mapping[str, tuple[int, ...]]
    source: str = field(default="given")

    def __post_init__(self):
        raise_faults([*_switch_faults(self.switches, len(self.out_port)), *_lid_faults(self.lids)])
        width, last = self.out_port.shape[1], max([0, *(max(own) for own in self.lids.values())])
        out_port = np.full((len(self.switches), max(width, last + 1)), NO_PORT, np.uint8)
        out_port[:, 1:width] = self.out_port[:, 1:]
        object.__setattr__(self, "out_port", frozen(out_port))
        object.__setattr__(self, "lids", dict(self.lids))

    @classmethod
    def from_ports(
        cls,
        ports: Mapping[str, Mapping[int, int]],
        lids: Mapping[str, int | Sequence[int]],
        *,
        source: str = "given",
    ) -> "ForwardingTables":
        """Return the tables that give these ports.

        Args:
            ports: By switch, the output port of each LID.
            lids: By node, its LID or LIDs.
            source: What they come from, in words.

        Raises:
            ModelError: If a LID is not from 1 to 49,151, a port not from 0 to 254, or two nodes
                have the same LID; all faults at once.
        """
        several = {
            node: tuple(own) if isinstance(own, Sequence) else (own,) for node, own in lids.items()
        }
        rows = [(np.array([*row]), np.array([*row.values()])) for row in ports.values()]
        faults = _switch_faults(tuple(ports), len(rows)) + _lid_faults(several)
        for switch, (lid, port) in zip(ports, rows, strict=True):
            faults += _entry_faults(switch, lid, port)
        raise_faults(faults)
        last = max([int(lid.max(initial=0)) for lid, _ in rows], default=0)
        table = np.full((len(rows), last + 1), NO_PORT, np.uint8)
        for row, (lid, port) in zip(table, rows, strict=True):
            row[lid.astype(np.int64)] = port
        return cls(tuple(ports), table, several, source)

    @property
    def n_entries(self) -> int:
        """Number of (switch, LID) pairs that have a port."""
        return int(np.count_nonzero(self.out_port != NO_PORT))


def _switch_faults(switches: Sequence[str], n_tables: int) -> list[str]:
    faults = []
    if len(switches) != n_tables:
        faults.append(
            f"`ForwardingTables(out_port)` has {n_tables:,} rows for {len(switches):,} switches. "
            f"Give one row per switch."
        )
    if twice := len(switches) - len(set(switches)):
        faults.append(f"`ForwardingTables(switches)` names {twice:,} switches again. Leave one.")
    return faults


def _lid_faults(lids: Mapping[str, Sequence[int]]) -> list[str]:
    faults, owners = [], defaultdict[object, list[str]](list)
    for node, own in lids.items():
        for lid in own:
            owners[lid].append(node)
    if wrong := [lid for lid in owners if not (is_whole(lid) and 1 <= lid <= LAST_LID)]:
        faults.append(
            f"`ForwardingTables(lids)` needs whole numbers from 1 to {LAST_LID:,}, but "
            f"{len(wrong):,} of {len(owners):,} are not: {some(wrong)}."
        )
    if shared := [lid for lid, nodes in owners.items() if len(nodes) > 1]:
        name = lambda lid: f"{lid} of {' and '.join(owners[lid][:3])}"
        faults.append(
            f"`ForwardingTables(lids)` needs a LID of its own for every port, but {len(shared):,} "
            f"are given twice: {some(shared, name=name)}."
        )
    return faults


def _entry_faults(switch: str, lid: np.ndarray, port: np.ndarray) -> list[str]:
    whole = lambda values: values.dtype.kind in "iu" or not values.size
    if not whole(lid) or not whole(port):
        return [f"The table of '{switch}' needs whole numbers for LIDs and ports."]
    outside = np.flatnonzero((lid < 1) | (lid > LAST_LID) | (port < 0) | (port >= NO_PORT))
    if not outside.size:
        return []
    name = lambda i: f"LID {lid[i]}: port {port[i]}"
    return [
        f"The table of '{switch}' needs LIDs from 1 to {LAST_LID:,} and ports from 0 to "
        f"{NO_PORT - 1}, but {len(outside):,} of {len(lid):,} entries are outside: "
        f"{some(outside, name=name)}."
    ]
