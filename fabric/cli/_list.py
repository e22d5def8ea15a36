"""`fabric list`: every name that the other verbs take."""

from typing import Annotated, Any

import typer

from fabric.cli._list_part import KINDS, part, part_names, text
from fabric.cli._list_rules import parameters, rule_rows
from fabric.cli._output import FORMATS, Format, Output, check_output, emit, known

_PARTS = ("servers", "gpus", "nics", "switches", "profiles")


def list_known(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="gpu, server, nic, switch, profile, model, topologies or routing: only those."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="One of them: its numbers, each with its source.")
    ] = None,
    format: Format = "text",
    output: Output = None,
) -> None:
    """Show every name that other verbs take, or the numbers of one part: `list gpu h100-sxm`."""
    known("--format", format, FORMATS)
    check_output(output)
    if kind is None:
        emit(_known(), _text, format, output)
    else:
        answer = part_names(kind) if name is None else part(kind, name)
        emit(answer, text, format, output)


def _known() -> dict[str, Any]:
    from fabric import collectives, hardware, readers, solvers, topologies, traffic
    from fabric.scenario import scenario_names
    from fabric.training import model_names

    return {
        "schema": "fabric.list/1",
        "builders": [
            row | {"parameters": parameters(topologies.BUILDERS[row["name"]])}
            for row in rule_rows("topology")
        ],
        "clusters": [
            {"name": name, "server": design.server, "network": design.network}
            | {"unit": design.unit, "most": design.most, "evidence": design.evidence}
            for name, design in topologies.CLUSTERS.items()
        ],
        "models": list(model_names()),
        "scenarios": list(scenario_names()),
        "hardware": {kind: list(hardware.names(kind)) for kind in _PARTS},
        "collectives": {name: list(ways) for name, ways in collectives.ALGORITHMS.items()},
        "patterns": list(traffic.PATTERNS),
        "routings": rule_rows("routing"),
        "formats": {"read": list(readers.FORMATS), "written": list(readers.WRITERS)},
        "methods": list(solvers.METHODS),
        "fabrics": ["demo"],
    }


def _text(answer: dict[str, Any]) -> list[str]:
    builders = [row["name"] for row in answer["builders"]]
    lines = _wrapped("builders  ", builders, indent=10)
    clusters = [f"{row['name']} ({row['most']:,})" for row in answer["clusters"]]
    lines += _wrapped("clusters   NAME:nodes=N, up to", clusters)
    lines += _wrapped("models    ", answer["models"], indent=10)
    lines += _wrapped("scenarios ", answer["scenarios"], indent=10)
    for kind in _PARTS:
        lines += _wrapped(f"{kind:10}", answer["hardware"][kind], indent=10)
    lines.append("fabrics    demo (ships with the package), or a file")
    lines += _wrapped("details    fabric list KIND NAME, KIND one of", list(KINDS), indent=10)
    lines += [
        f"{'' if i else 'collectives':11} {name:14} {', '.join(ways)}"
        for i, (name, ways) in enumerate(answer["collectives"].items())
    ]
    lines.append(f"patterns   {', '.join(answer['patterns'])}")
    lines += _wrapped("routings  ", [row["name"] for row in answer["routings"]], indent=10)
    formats = answer["formats"]
    read, written = ", ".join(formats["read"]), ", ".join(formats["written"])
    lines.append(f"formats    read: {read}; written: {written}")
    lines.append(f"methods    {', '.join(answer['methods'])}")
    return lines


def _wrapped(name: str, keys: list[str], width: int = 98, indent: int = 17) -> list[str]:
    lines, line = [], f"{name:{indent}}"
    for i, key in enumerate(keys):
        piece = key + ("," if i < len(keys) - 1 else "")
        if len(line) + len(piece) + 1 > width:
            lines.append(line)
            line = " " * indent
        line += f" {piece}"
    return [*lines, line]
