"""`fabric topo`: what a fabric consists of, what looks wrong, and other formats of it."""

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jaxtyping import Bool

from fabric import readers, topologies
from fabric._errors import ModelError
from fabric.cli._bill import (
    Prices,
    bill_lines,
    bill_record,
    bought,
    economics_lines,
    read_prices,
)
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
from fabric.topologies._bill import cables_of, inside_links


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
    answer["switches"] = int(_is_switch(subject).sum())
    answer["about"] = dict(subject.network.labels.about)
    _count_cables(answer, subject)
    answer["bill_of_materials"] = _materials(subject, listed_prices)
    more: list[str] = []
    if listed_prices is not None:
        found = topologies.economics(subject.network, listed_prices)
        answer["economics"] = found.as_dict()
        more = economics_lines(found)
    emit(answer, lambda said: _text(said, subject, more), format, output)


def _export(network: Network, export: str, output: Path) -> None:
    write(output, lambda path: readers.WRITERS[export](network, path))
    cables = len(np.unique(network.labels.cable_of[np.asarray(network.alive)]))
    note(f"wrote {output}: {counted(cables, 'cable')} as {export}")


def _is_switch(subject: Subject) -> Bool[np.ndarray, " nodes"]:
    """Return which nodes are switches of the fabric; those inside servers are not.

    In a dump, a router leads to other subnets; in a network of ours it is how a paper calls a
    switch.
    """
    labels = subject.network.labels
    apart = () if subject.reading is None else ("router",)
    inside = labels.is_kind(*topologies.INSIDE_KINDS, *apart)
    return np.asarray(labels.forwards) & ~np.asarray(labels.endpoint) & ~inside


def _count_cables(answer: dict[str, Any], subject: Subject) -> None:
    """Count cables as they are bought: links inside servers are none, and twin links are one."""
    network = subject.network
    labels, inside = network.labels, inside_links(network)
    if not inside.any() and "links_per_cable" not in labels.about:
        return
    answer["cables"] = _per_tier(cables_of(network, np.asarray(network.alive)))
    if subject.reading is None:
        answer["records"] = sum(_per_tier(cables_of(network)).values())
    _, first = np.unique(labels.cable_of[inside], return_index=True)
    one = np.flatnonzero(inside)[first].tolist()
    rates = np.asarray(network.capacity, np.float64)
    rows = Counter((labels.tiers[labels.tier_of[i]], float(rates[i])) for i in one)
    answer["links_inside"] = _by_tier([(*row, count) for row, count in rows.items()])


def _per_tier(rows: list[tuple[str, float, int]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for tier, _, count in rows:
        counts[tier] = counts.get(tier, 0) + count
    return counts


def _by_tier(rows: list[tuple[str, float, int]]) -> list[dict[str, Any]]:
    return [
        {"tier": tier, "capacity": rate, "unit": "byte/s", "count": count}
        for tier, rate, count in sorted(rows)
    ]


def _materials(subject: Subject, prices: dict[str, object] | None) -> dict[str, Any]:
    """Return the one bill: switches by ports in use, cables, and what is bought by model."""
    network, labels = subject.network, subject.network.labels
    live = np.flatnonzero(np.asarray(network.alive))
    ports = np.bincount(labels.src[live], minlength=labels.n_nodes)
    switches = np.flatnonzero(_is_switch(subject))
    kinds = Counter((labels.kinds[labels.kind_of[n]], int(ports[n])) for n in switches.tolist())
    return {
        "switches": [
            {"kind": kind, "ports_used": used, "count": count}
            for (kind, used), count in sorted(
                kinds.items(), key=lambda row: (row[0][0], -row[0][1])
            )
        ],
        "cables": _by_tier(cables_of(network)),
        "endpoints": len(network.hosts),
    } | bill_record(topologies.bill(network, prices))


def _text(answer: dict[str, Any], subject: Subject, more: Sequence[str] = ()) -> list[str]:
    lines = [answer["source"]]
    if subject.reading is None:
        lines.append("  made by a builder")
    else:
        lines.append(
            f"  {answer['format']} (confidence {answer['confidence']:.2f}), "
            f"{counted(answer['records'], 'cable record')}, {(answer['fingerprint'] or '')[:19]}"
        )
    about, bill = answer["about"], answer["bill_of_materials"]
    if "cluster" in about:
        lines.append(f"  {about['network']}, routed by {about['routing']}; {about['evidence']}")
    inside = topologies.INSIDE_KINDS if bill["inside"] else ()  # listed with the servers
    shown = {kind: count for kind, count in answer["nodes"].items() if kind not in inside}
    nodes = listed([f"{count:,} {kind}" for kind, count in shown.items()], 8)
    switches = counted(answer["switches"], "switch", "switches")
    lines.append(f"nodes     {nodes}; {switches} ({answer['tiers_note']})")
    lines += _tiers("cables", bill["cables"], int(about.get("links_per_cable", 1)))
    if failed := answer.get("failed_cables"):
        lines.append(f"{'':9} {failed:,} of them failed")
    lines += _tiers("inside", answer.get("links_inside", []))
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
    for row in bill["switches"]:
        by_kind.setdefault(row["kind"], []).append(row)
    kinds: list[str] = []
    for kind, rows in by_kind.items():
        used = [f"{row['count']:,} with {row['ports_used']}" for row in rows]
        total = counted(sum(row["count"] for row in rows), f"{kind} switch", f"{kind} switches")
        kinds.append(f"  {total} by ports used: {', '.join(used)}")
    lines += _first(kinds, 4, "kind", 2)
    total = counted(sum(row["count"] for row in bill["cables"]), "cable")
    lines.append(f"  {total}, {counted(bill['endpoints'], 'endpoint')}; {bought(bill)}")
    return [piece for line in [*lines, *bill_lines(bill), *more] for piece in _folded_line(line)]


def _folded_line(line: str, width: int = 100) -> list[str]:
    """Return a line in pieces that fit, the later ones below the words of the first."""
    if len(line) <= width:
        return [line]
    heading = re.match(r"\w+:? +|  ", line)
    indent = " " * min(heading.end() if heading else 2, 14)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)


def _tiers(name: str, rows: list[dict[str, Any]], links: int = 1) -> list[str]:
    """Return a line per tier of how many there are of each speed."""
    speeds: dict[str, list[str]] = {}
    for row in rows:
        each = f", {links} links of {bits(row['capacity'] / links)} each" if links > 1 else ""
        speed = f"{row['count']:,} of {bits(row['capacity'])}{each}"
        speeds.setdefault(row["tier"], []).append(speed)
    lines = _first([f"{tier}: {listed(said, 4)}" for tier, said in speeds.items()], 5, "tier")
    return [f"{'' if i else name:9} {line}" for i, line in enumerate(lines)]


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
