"""Small `ibnetdiscover` dumps, made here."""

from collections.abc import Iterable

Cable = tuple[str, int, str, int, str]
"""Node, port, node, port, speed token; nodes by the last digits of their id, `S1` or `H7`."""


def ident(short: str) -> str:
    return f"{short[0]}-{int(short[1:]):016x}"


def dump(
    nodes: dict[str, str],
    cables: Iterable[Cable],
    *,
    silent: Iterable[tuple[str, int]] = (),
    trailing: str = "",
    lid: int = 5,
) -> str:
    """Return the text that lists every cable from both ends, save the `silent` ends."""
    cables, silent = list(cables), set(silent)
    lines = ["#", "# Topology file: generated on Sun Nov 29 22:43:06 2026", "#"]
    for node, description in nodes.items():
        word = {"S": "Switch", "H": "Ca", "R": "Rt"}[node[0]]
        port0 = f" enhanced port 0 lid {lid} lmc 0" if node[0] == "S" else ""
        lines += ["", "vendid=0x2c9", "devid=0xd2f2", "sysimgguid=0x1"]
        lines.append(f'{word}\t65 "{ident(node)}"\t\t# "{description}"{port0}')
        for a, a_port, b, b_port, token in cables:
            for near, port, far, far_port in ((a, a_port, b, b_port), (b, b_port, a, a_port)):
                if near != node or (near, port) in silent:
                    continue
                own, lmc = ("", "") if node[0] == "S" else ("(a1)", f"lid {lid} lmc 0 ")
                guid = "" if far[0] == "S" else "(a1)"
                name = nodes.get(far, "gone HCA-1")
                lines.append(
                    f'[{port}]{own}\t"{ident(far)}"[{far_port}]{guid}\t\t'
                    f'# {lmc}"{name}" lid {lid} {token}{trailing}'
                )
    return "\n".join(lines) + "\n"


NODES = {
    "S1": "MF0;leaf-1:MQM9700/U1",
    "S2": "MF0;leaf-2:MQM9700/U1",
    "S3": "MF0;spine-1:MQM9700/U1",
    "H11": "node1 HCA-1",
    "H12": "node1 HCA-2",
    "H13": "MT4129 ConnectX7   Mellanox Technologies",
    "H14": "MT4129 ConnectX7   Mellanox Technologies",
}
CABLES = [
    ("S1", 1, "H11", 1, "4xNDR"),
    ("S2", 1, "H12", 1, "4xNDR"),
    ("S1", 2, "H13", 1, "4xNDR"),
    ("S2", 2, "H14", 1, "4xNDR"),
    ("S1", 33, "S3", 1, "4xNDR"),
    ("S1", 34, "S3", 2, "4xNDR"),
    ("S2", 33, "S3", 3, "4xNDR"),
    ("S2", 34, "S3", 4, "4xNDR"),
]
