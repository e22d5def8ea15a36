"""`fabric topo`: what a fabric consists of, what looks wrong, and other formats of it."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fabric import readers
from fabric._errors import ModelError
from fabric.cli._output import (
    FORMATS,
    Format,
    Output,
    check_output,
    emit,
    known,
    note,
    write_whole,
)
from fabric.cli._subject import Attribute, Capacity, Fabric, Subject, Unit, load
from fabric.cli._units import bits, listed
from fabric.network import Network


def topo(
    fabric: Fabric,
    format: Format = "text",
    output: Output = None,
    export: Annotated[
        str | None,
        typer.Option("--export", help="Write the fabric in this format to `-o`.", metavar="FORMAT"),
    ] = None,
    capacity: Capacity = None,
    unit: Unit = None,
    attribute: Attribute = None,
) -> None:
    """Show what a fabric consists of and what looks wrong; or write it in another format."""
    known("--format", format, FORMATS)
    check_output(output)
    if export is not None:
        known("--export", export, list(readers.WRITERS))
        if output is None:
            message = f"`--export {export}` needs `-o FILE`, the file to write."
            raise ModelError(message)
    subject = load(fabric, capacity, unit, attribute)
    if export is not None and output is not None:
        _export(subject.network, export, output)
        return
    answer = readers.summary(subject.reading or subject.network)
    answer["bill_of_materials"] = _materials(subject.network)
    emit(answer, lambda: _text(answer, subject), format, output)


def _export(network: Network, export: str, output: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        # The name decides about compression.
        written = readers.WRITERS[export](network, Path(folder, output.name))
        write_whole(output, written.read_bytes())
    cables = len(np.unique(network.labels.cable_of[np.asarray(network.alive)]))
    note(f"wrote {output}: {cables:,} cables as {export}")


def _materials(network: Network) -> dict[str, Any]:
    """Return switches by ports in use and live cables by tier and capacity."""
    labels = network.labels
    live = np.flatnonzero(np.asarray(network.alive))
    ports = np.bincount(labels.src[live], minlength=labels.n_nodes)
    switches = np.flatnonzero(np.asarray(labels.forwards) & ~np.asarray(labels.endpoint))
    kinds = Counter((labels.kinds[labels.kind_of[n]], int(ports[n])) for n in switches.tolist())
    _, first = np.unique(labels.cable_of[live], return_index=True)
    one = live[first]
    capacity = np.asarray(network.capacity, np.float64)
    cables = Counter((labels.tiers[labels.tier_of[i]], float(capacity[i])) for i in one.tolist())
    return {
        "switches": [
            {"kind": kind, "ports_used": used, "count": count}
            for (kind, used), count in sorted(
                kinds.items(), key=lambda row: (row[0][0], -row[0][1])
            )
        ],
        "cables": [
            {"tier": tier, "capacity": rate, "unit": "byte/s", "count": count}
            for (tier, rate), count in sorted(cables.items())
        ],
        "endpoints": len(network.hosts),
    }


def _text(answer: dict[str, Any], subject: Subject) -> list[str]:
    lines = [answer["source"]]
    if subject.reading is None:
        lines.append("  made by a builder")
    else:
        lines.append(
            f"  {answer['format']} (confidence {answer['confidence']:.2f}), "
            f"{answer['records']:,} cable records, {(answer['fingerprint'] or '')[:19]}"
        )
    nodes = ", ".join(f"{count:,} {kind}" for kind, count in answer["nodes"].items())
    lines.append(f"nodes     {nodes}; {answer['switches']:,} switches ({answer['tiers_note']})")
    cables: dict[str, list[str]] = {}
    for row in answer["bill_of_materials"]["cables"]:
        speed = f"{row['count']:,} of {bits(row['capacity'])}"
        cables.setdefault(row["tier"], []).append(speed)
    for i, (tier, speeds) in enumerate(cables.items()):
        lines.append(f"{'' if i else 'cables':9} {tier}: {listed(speeds, 4)}")
    if failed := answer.get("failed_cables"):
        lines.append(f"{'':9} {failed:,} failed")
    lines += _design(answer["uniform_design"])
    lines += _hosts(answer["hosts"], answer["nodes"])
    for what in ("ignored", "contradicted"):
        items = [_item(row) for row in answer[what]]
        lines.append(
            f"{what + ':' if what != 'ignored' else 'ignored':9} {listed(items, 4) or 'nothing'}"
        )
    lines += [f"warning   {warning}" for warning in answer["warnings"][:4]]
    if len(answer["warnings"]) > 4:
        lines.append(f"          and {len(answer['warnings']) - 4:,} more warnings")
    lines.append("materials")
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in answer["bill_of_materials"]["switches"]:
        by_kind.setdefault(row["kind"], []).append(row)
    for kind, rows in by_kind.items():
        used = [f"{row['count']:,} with {row['ports_used']}" for row in rows]
        total = sum(row["count"] for row in rows)
        lines.append(f"  {total:,} {kind} switches by ports used: {listed(used, 6)}")
    total = sum(row["count"] for row in answer["bill_of_materials"]["cables"])
    lines.append(f"  {total:,} cables, {answer['bill_of_materials']['endpoints']:,} endpoints")
    return lines


def _item(row: dict[str, Any]) -> str:
    return f"{row['count']:,} x {row['what']}" if "count" in row else f"{row['what']} {row['item']}"


def _design(design: dict[str, Any]) -> list[str]:
    if "none" in design:
        return [f"design    not compared with a uniform one: {design['none']}"]
    lines = [
        f"design    uniform, {design['per_pair']} per leaf-spine pair, is "
        f"{design['leaf-spine']:,} cables: {design['have']:,} there, "
        f"{design['missing']:,} missing, {design['extra']:,} extra"
    ]
    for kind, plural in (("spine", "spines"), ("leaf", "leaves")):
        short = [row for row in design["short"] if row["kind"] == kind]
        if short:
            names = [f"{row['switch']} {row['have']}/{row['want']}" for row in short]
            lines.append(f"          {len(short)} short {plural} (have/want):")
            lines += [f"            {line}" for line in _folded(names, 12)]
    return lines


def _folded(names: list[str], limit: int, width: int = 84) -> list[str]:
    """Return names as lines that fit the screen."""
    shown = names[:limit] + ([f"and {len(names) - limit:,} more"] if len(names) > limit else [])
    lines = [""]
    for name in shown:
        if lines[-1] and len(lines[-1]) + len(name) + 2 > width:
            lines.append("")
        lines[-1] += f", {name}" if lines[-1] else name
    return lines


def _hosts(hosts: dict[str, Any], nodes: dict[str, int]) -> list[str]:
    if not hosts["count"] or "nic" not in nodes:
        return []
    per = [
        f"{count:,} with {size} NIC{'' if size == '1' else 's'}"
        for size, count in hosts["nics_per_host"].items()
    ]
    lines = [f"hosts     {hosts['count']:,}: {listed(per, 5)}"]
    if hosts["unnamed_nics"]:
        lines.append(f"          {hosts['unnamed_nics']:,} more NICs whose name tells no host")
    for row in hosts["swapped_rails"][:3]:
        pairs = zip(row["rails"], row["found"], row["expected"], strict=True)
        lines.append(f"          rails swapped at {row['host']}:")
        lines += [f"            {rail} is on {found}, not {want}" for rail, found, want in pairs]
    if len(hosts["swapped_rails"]) > 3:
        lines.append(
            f"          and {len(hosts['swapped_rails']) - 3:,} more hosts with swapped rails"
        )
    return lines
