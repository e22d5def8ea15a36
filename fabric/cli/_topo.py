"""`fabric topo`: what a fabric consists of, what looks wrong, and other formats of it."""

import textwrap
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jaxtyping import Bool

from fabric import readers, topologies
from fabric._errors import ModelError
from fabric.cli._bill import Prices, bill_lines, bill_record, bought, read_prices
from fabric.cli._output import (
    FORMATS,
    Format,
    Output,
    check_output,
    emit,
    known,
    note,
    write,
)
from fabric.cli._subject import (
    Attribute,
    Capacity,
    Fabric,
    HostPattern,
    LatencyUnit,
    Subject,
    Unit,
    load,
)
from fabric.cli._units import bits, counted, listed
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
    latency_unit: LatencyUnit = None,
    host_pattern: HostPattern = None,
    prices: Prices = None,
) -> None:
    """Show what a fabric consists of and what looks wrong; or write it in another format."""
    known("--format", format, FORMATS)
    check_output(output)
    if export is not None:
        known("--export", export, list(readers.WRITERS))
        if output is None:
            message = f"`--export {export}` needs `-o FILE`, the file to write."
            raise ModelError(message)
    listed_prices = None if prices is None else read_prices(prices)
    subject = load(
        fabric, default_capacity=capacity, unit=unit, capacity=attribute,
        latency_unit=latency_unit, host_pattern=host_pattern,
    )  # fmt: skip
    if export is not None and output is not None:
        _export(subject.network, export, output)
        return
    answer = readers.summary(subject.reading or subject.network)
    answer["switches"] = int(_is_switch(subject.network).sum())
    answer["bill_of_materials"] = _materials(subject.network)
    answer["about"] = dict(subject.network.labels.about)
    answer["bill"] = bill_record(topologies.bill(subject.network, listed_prices))
    emit(answer, lambda said: _text(said, subject), format, output)


def _export(network: Network, export: str, output: Path) -> None:
    write(output, lambda path: readers.WRITERS[export](network, path))
    cables = len(np.unique(network.labels.cable_of[np.asarray(network.alive)]))
    note(f"wrote {output}: {counted(cables, 'cable')} as {export}")


def _is_switch(network: Network) -> Bool[np.ndarray, " nodes"]:
    """Return which nodes are switches of the fabric; those inside servers are not."""
    labels = network.labels
    inside = labels.is_kind(*topologies.INSIDE_KINDS, "router")
    return np.asarray(labels.forwards) & ~np.asarray(labels.endpoint) & ~inside


def _materials(network: Network) -> dict[str, Any]:
    """Return switches by ports in use and live cables by tier and capacity."""
    labels = network.labels
    live = np.flatnonzero(np.asarray(network.alive))
    ports = np.bincount(labels.src[live], minlength=labels.n_nodes)
    switches = np.flatnonzero(_is_switch(network))
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
            f"{counted(answer['records'], 'cable record')}, {(answer['fingerprint'] or '')[:19]}"
        )
    if "cluster" in (about := answer["about"]):
        said = f"{about['network']}, routed by {about['routing']}; {about['evidence']}"
        lines += textwrap.wrap(said, 98, initial_indent="  ", subsequent_indent="  ")
    inside = topologies.INSIDE_KINDS if answer["bill"]["inside"] else ()  # listed with the servers
    shown = {kind: count for kind, count in answer["nodes"].items() if kind not in inside}
    nodes = listed([f"{count:,} {kind}" for kind, count in shown.items()], 8)
    switches = counted(answer["switches"], "switch", "switches")
    lines.append(f"nodes     {nodes}; {switches} ({answer['tiers_note']})")
    cables: dict[str, list[str]] = {}
    for row in _fabric_first(answer):
        speed = f"{row['count']:,} of {bits(row['capacity'])}"
        cables.setdefault(row["tier"], []).append(speed)
    tiers = [f"{tier}: {listed(speeds, 4)}" for tier, speeds in cables.items()]
    tiers = _first(tiers, 5, "tier")
    lines += [f"{'' if i else 'cables':9} {tier}" for i, tier in enumerate(tiers)]
    if failed := answer.get("failed_cables"):
        lines.append(f"{'':9} {failed:,} failed")
    lines += _design(answer["uniform_design"])
    lines += _hosts(answer["hosts"], answer["nodes"])
    for what in ("ignored", "contradicted"):
        items = [_item(row) for row in answer[what]]
        lines.append(
            f"{what + ':' if what != 'ignored' else 'ignored':9} {listed(items, 4) or 'nothing'}"
        )
    lines += _first([f"warning   {warning}" for warning in answer["warnings"]], 3, "warning", 10)
    lines.append("materials")
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in answer["bill_of_materials"]["switches"]:
        by_kind.setdefault(row["kind"], []).append(row)
    kinds: list[str] = []
    for kind, rows in by_kind.items():
        used = [f"{row['count']:,} with {row['ports_used']}" for row in rows]
        total = counted(sum(row["count"] for row in rows), f"{kind} switch", f"{kind} switches")
        kinds.append(f"  {total} by ports used: {listed(used, 6)}")
    lines += _first(kinds, 4, "kind", 2)
    total = sum(row["count"] for row in _fabric_first(answer) if not _is_inside(row, answer))
    endpoints = counted(answer["bill_of_materials"]["endpoints"], "endpoint")
    lines.append(f"  {counted(total, 'cable')}, {endpoints}; {bought(answer['bill'])}")
    return lines + bill_lines(answer["bill"])


def _fabric_first(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of cables, those inside servers last."""
    return sorted(answer["bill_of_materials"]["cables"], key=lambda row: _is_inside(row, answer))


def _is_inside(row: dict[str, Any], answer: dict[str, Any]) -> bool:
    return bool(answer["bill"]["inside"]) and row["tier"] in topologies.INSIDE_TIERS


def _first(lines: list[str], limit: int, noun: str, indent: int = 0) -> list[str]:
    """Return up to `limit` lines, then one that says how many more there are."""
    if len(lines) <= limit:
        return lines
    return [*lines[:limit], f"{'':{indent}}and {counted(len(lines) - limit, f'more {noun}')}"]


def _item(row: dict[str, Any]) -> str:
    return f"{row['count']:,} x {row['what']}" if "count" in row else f"{row['what']} {row['item']}"


def _design(design: dict[str, Any]) -> list[str]:
    if "none" in design:
        return [f"design    not compared with a uniform one: {design['none']}"]
    lines = [
        f"design    uniform, {design['per_pair']} per leaf-spine pair, is "
        f"{counted(design['leaf-spine'], 'cable')}: {design['have']:,} there, "
        f"{design['missing']:,} missing, {design['extra']:,} extra"
    ]
    for kind, plural in (("spine", "spines"), ("leaf", "leaves")):
        short = [row for row in design["short"] if row["kind"] == kind]
        if short:
            names = [f"{row['switch']} {row['have']}/{row['want']}" for row in short]
            count = counted(len(short), f"short {kind}", f"short {plural}")
            lines.append(f"          {count} (have/want):")
            lines += [f"            {line}" for line in _folded(names)]
    return lines


def _folded(names: list[str], most: int = 4, width: int = 84) -> list[str]:
    """Return names in lines of a width, up to `most` lines, then how many more there are."""
    lines = [""]
    for i, name in enumerate(names):
        if lines[-1] and len(lines[-1]) + len(name) + 2 > width:
            if len(lines) == most:
                lines[-1] += f" and {len(names) - i:,} more"
                break
            lines.append("")
        lines[-1] += f", {name}" if lines[-1] else name
    return lines


def _hosts(hosts: dict[str, Any], nodes: dict[str, int]) -> list[str]:
    if not hosts["count"] or "nic" not in nodes:
        return []
    per = [
        f"{count:,} with {counted(int(size), 'NIC')}"
        for size, count in hosts["nics_per_host"].items()
    ]
    lines = [f"hosts     {hosts['count']:,}: {listed(per, 5)}"]
    if hosts["unnamed_nics"]:
        more = counted(hosts["unnamed_nics"], "more NIC")
        lines.append(f"          {more} whose name tells no host")
    for row in hosts["swapped_rails"][:2]:
        pairs = zip(row["rails"], row["found"], row["expected"], strict=True)
        lines.append(f"          rails swapped at {row['host']}:")
        swaps = [f"            {rail} is on {found}, not {want}" for rail, found, want in pairs]
        lines += _first(swaps, 2, "rail", 12)
    if (more := len(hosts["swapped_rails"]) - 2) > 0:
        lines.append(f"          and {counted(more, 'more host')} with swapped rails")
    return lines
