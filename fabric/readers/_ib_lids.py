"""Which port has which LID and GUID: from `ibnetdiscover` output or an OpenSM `.lst` file."""

import re
from dataclasses import dataclass

from fabric._errors import ModelError
from fabric.readers._files import Text
from fabric.readers._ib_records import RECORD

LST = re.compile(r"^\{ [A-Z]\S* Ports:", re.MULTILINE)
"""A line that only a `.lst` file has."""

_NODE = re.compile(
    r'(Switch|Ca|Rt)\s+\d+\s+"([SHR]-[0-9a-fA-F]+)"(?:.*\blid\s+(\d+)\s+lmc\s+(\d+))?'
)
_GUID = re.compile(r"switchguid=0x[0-9a-fA-F]+\(([0-9a-fA-F]+)\)")
_OWN = re.compile(
    r'\[(\d+)\](?:\[ext\s+\d+\])?\s*\(([0-9a-fA-F]+)\)\s*"[^"]*".*?#\s*lid\s+(\d+)(?:\s+lmc\s+(\d+))?'
)
_END = re.compile(
    r"\{ ([A-Z]+)\S* Ports:\w+ SystemGUID:\w+ NodeGUID:(\w+) PortGUID:(\w+) "
    r".*? LID:(\w+) PN:(\w+) \}"
)
_LETTER = {"SW": "S", "CA": "H", "RT": "R"}
_UNSET = (0, 0xFFFF)


@dataclass(frozen=True)
class Port:
    """A port with a LID; of a switch its port 0.

    Attributes:
        node: Id as in `ibnetdiscover` output, such as "H-0002c9030012ab40".
        number: Of the port.
        guid: Of the port.
        lid: The first of its LIDs, 0 where it has none yet.
        n_lids: 2**LMC.
    """

    node: str
    number: int
    guid: int
    lid: int
    n_lids: int

    @property
    def is_switch(self) -> bool:
        """Whether it is the management port of a switch."""
        return self.node.startswith("S")


def ports(file: Text) -> list[Port]:
    """Return the ports that a file gives a LID to, each once, by node and number.

    Args:
        file: `ibnetdiscover` output, or a `.lst` of OpenSM or ibdiagnet.

    Raises:
        ModelError: If it is neither.
    """
    if RECORD.search(file.text):
        found = _of_dump(file.text)
    elif LST.search(file.text):
        found = _of_lst(file.text)
    else:
        message = (
            f"`lids`: '{file.source}' is neither the output of `ibnetdiscover` nor a `.lst` file, "
            f"such as OpenSM's `opensm-subnet.lst`."
        )
        raise ModelError(message)
    return [found[key] for key in sorted(found)]


def _of_dump(text: str) -> dict[tuple[str, int], Port]:
    found: dict[tuple[str, int], Port] = {}
    node, guid = "", 0
    for raw in text.split("\n"):
        line = raw.strip()
        if own := _GUID.match(line):
            guid = int(own[1], 16)
        elif record := _NODE.match(line):
            node = record[2]
            if record[1] == "Switch" and record[3]:
                found[node, 0] = _port(node, 0, guid or int(node[2:], 16), record[3], record[4])
            guid = 0
        elif not node.startswith("S") and (own := _OWN.match(line)):
            number = int(own[1])
            found[node, number] = _port(node, number, int(own[2], 16), own[3], own[4] or "0")
    return found


def _of_lst(text: str) -> dict[tuple[str, int], Port]:
    found: dict[tuple[str, int], Port] = {}
    for kind, node, guid, lid, number in _END.findall(text):
        ident = f"{_LETTER.get(kind, 'H')}-{node.lower()}"
        at = 0 if kind == "SW" else int(number, 16)
        found[ident, at] = _port(ident, at, int(guid, 16), str(int(lid, 16)), "0")
    return found


def _port(node: str, number: int, guid: int, lid: str, lmc: str) -> Port:
    base = int(lid)
    return Port(node, number, guid, 0 if base in _UNSET else base, 1 << int(lmc))
