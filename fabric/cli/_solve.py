"""`fabric solve`: rates of flows on a fabric, the links that hold them, and what cables buy."""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from fabric._errors import InfeasibleError, ModelError
from fabric._units import parse_time
from fabric.cli import _answer, _compare, _demand, _sensitivity
from fabric.cli._output import FORMATS, Format, Output, check_output, emit, known, note
from fabric.cli._solve_text import text
from fabric.cli._subject import (
    Attribute,
    Capacity,
    Columns,
    Fabric,
    Failed,
    FlowsFile,
    HostPattern,
    LatencyUnit,
    MatrixFile,
    Pattern,
    Unit,
    load,
)
from fabric.cli._units import listed
from fabric.readers import TablesReading
from fabric.topologies._uniform import UniformDesign, uniform_design

_TELL_FROM = 1.0
"""Seconds of work from which stderr says how long it took."""


def solve(
    fabric: Fabric,
    pattern: Pattern = None,
    flows: FlowsFile = None,
    matrix: MatrixFile = None,
    columns: Columns = None,
    routing: Annotated[
        str | None,
        typer.Option(
            "--routing",
            metavar="NAME[:KEY=VALUE,...]",
            help="A rule of `fabric list routing`, such as flowlet:n=8, or tables. Default: spray "
            "for InfiniBand, else ecmp.",
        ),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            "--tables",
            help="Forwarding tables that OpenSM, `ibroute` or `dump_fts` wrote; flows follow them.",
        ),
    ] = None,
    lids: Annotated[
        Path | None,
        typer.Option(
            "--lids",
            help="File with the LIDs of `--tables`: `opensm-subnet.lst` or `ibnetdiscover` "
            "output; default FABRIC.",
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts", help="Only endpoints whose name, or host name, matches, such as 'dgx-0*'."
        ),
    ] = None,
    queue_pairs: Annotated[
        int | None, typer.Option("--queue-pairs", help="Queue pairs per flow; default 1.")
    ] = None,
    method: Annotated[
        str, typer.Option("--method", metavar="auto|rounds|compiled|quotient")
    ] = "auto",
    top: Annotated[
        int, typer.Option("--top", help="Bottleneck links and cables to list.", min=0)
    ] = 8,
    tier: Annotated[
        str | None,
        typer.Option("--tier", help="List bottleneck links of this tier only.", metavar="NAME"),
    ] = None,
    failed: Failed = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare/--no-compare",
            help="Compare with the uniform design, without what has `--failed`, if cables miss.",
        ),
    ] = True,
    plug: Annotated[
        bool,
        typer.Option(
            "--plug/--no-plug",
            help="Plug every pair that lacks cables, one cable and all, and rank what it buys.",
        ),
    ] = False,
    plug_time: Annotated[
        str,
        typer.Option(
            "--plug-time", help="Refuse `--plug` if it would take longer.", metavar="TIME"
        ),
    ] = "15min",
    sensitivity: Annotated[
        str | None,
        typer.Option(
            "--sensitivity",
            metavar="tier|class|node|link|cable",
            help="Say what 1 % more or less capacity of each of these does.",
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            metavar="slowest|mean|total",
            help="Of `--sensitivity`: the rate that counts; default slowest.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of drawn patterns and ECMP hashes; default 0.")
    ] = None,
    format: Format = "text",
    output: Output = None,
    capacity: Capacity = None,
    unit: Unit = None,
    attribute: Attribute = None,
    latency_unit: LatencyUnit = None,
    host_pattern: HostPattern = None,
) -> None:
    """Solve for the max-min fair rate of every flow, and name the links that hold them."""
    from fabric.solvers import METHODS

    known("--format", format, FORMATS)
    known("--method", method, METHODS)
    _sensitivity.check(sensitivity, objective)
    check_output(output)
    limit = parse_time(plug_time, "--plug-time")
    subject = load(
        fabric, default_capacity=capacity, unit=unit, capacity=attribute,
        latency_unit=latency_unit, host_pattern=host_pattern,
    )  # fmt: skip
    failed = failed or []
    network = subject.network.without(nodes=failed)
    if tier is not None:
        network.labels.is_tier(tier)
    read = _demand.tables(routing, tables, lids, fabric, subject)
    for said in _odd(read) if read else ():
        note(said)
    rule = _demand.choose(routing, subject, seed, queue_pairs, read)
    asked = _demand.demand(network, pattern, flows, matrix, columns, hosts, rule, failed)

    start = time.monotonic()
    try:
        case = _answer.solved(network, asked, rule, method)
    except (InfeasibleError, ModelError) as error:
        raise type(error)(_demand.as_flags(str(error), failed)) from None
    seconds = time.monotonic() - start
    if seconds > _TELL_FROM:
        note(f"{asked.flows.n_flows:,} flows routed and solved in {seconds:.1f} s")
    answer = _answer.answer(subject, network, asked, rule, case, top=top, tier=tier, failed=failed)
    if sensitivity is not None:
        answer |= _sensitivity.sensitivity(network, case, sensitivity, objective, top)
    # The design is that of the fabric as read: a failed switch lacks no cable. Tables know nothing
    # of cables that are not there.
    designed = (compare or plug) and rule.tables is None
    design = uniform_design(subject.network) if designed else None
    pairs = []
    if design is not None and design.missing:
        whole = _answer.solved(design.network.without(nodes=failed), asked, rule, method)
        answer["uniform_design"] = _compare.compared(design, asked, case, whole)
        dead = {subject.network.labels.node(name) for name in failed}
        pairs = [pair for pair in design.missing_pairs if dead.isdisjoint(pair[:2])]
    if plug and design is not None and pairs:
        answer["plug"] = _compare.plugged(
            network, design, pairs, asked, rule, method, case, limit=limit
        )
    elif plug:
        why = "the tables use those that are there" if rule.tables else _no_cable(design)
        note(f"`--plug` has no cable to try: {why}")
    emit(answer, lambda said: text(said, top), format, output)


def _odd(read: TablesReading) -> list[str]:
    """Return what deserves a look in forwarding tables."""
    said = [f"{row['count']:,} {row['what']}" for row in read.ignored]
    of_kind = Counter(row["what"] for row in read.contradicted)
    said += [f"{count:,} x {what}" for what, count in of_kind.items()]
    left_out = [f"left out or contradicted: {listed(said, 6)}"] if said else []
    return [f"'{read.source}': {text}" for text in (*read.warnings, *left_out)]


def _no_cable(design: UniformDesign | None) -> str:
    if design is None:
        return "the fabric has no uniform leaf-spine design"
    return "every missing one is at a failed node" if design.missing else "none is missing"
