"""`fabric solve`: rates of flows on a fabric, the links that hold them, and what cables buy."""

import time
from pathlib import Path
from typing import Annotated

import typer

from fabric._units import parse_time
from fabric.cli import _answer, _compare, _demand
from fabric.cli._output import FORMATS, Format, Output, check_output, emit, known, note
from fabric.cli._solve_text import text
from fabric.cli._subject import Attribute, Capacity, Fabric, Unit, load
from fabric.topologies._uniform import uniform_design

_TELL_FROM = 1.0
"""Seconds of work from which stderr says how long it took."""


def solve(
    fabric: Fabric,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", help="all-to-all, permutation, incast or ring.", metavar="NAME"),
    ] = None,
    flows: Annotated[
        Path | None, typer.Option("--flows", help="CSV file with a row per flow.")
    ] = None,
    matrix: Annotated[
        Path | None, typer.Option("--matrix", help="CSV or NPY file: host to host.")
    ] = None,
    routing: Annotated[
        str | None,
        typer.Option(
            "--routing", metavar="ecmp|spray", help="Default: spray for InfiniBand, else ecmp."
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts", help="Only endpoints whose name, or host name, matches, such as 'dgx-0*'."
        ),
    ] = None,
    queue_pairs: Annotated[int, typer.Option("--queue-pairs", help="Queue pairs per flow.")] = 1,
    method: Annotated[str, typer.Option("--method", metavar="auto|rounds|compiled")] = "auto",
    top: Annotated[
        int, typer.Option("--top", help="Bottleneck links and cables to list.", min=0)
    ] = 8,
    tier: Annotated[
        str | None,
        typer.Option("--tier", help="List bottleneck links of this tier only.", metavar="NAME"),
    ] = None,
    failed: Annotated[
        list[str] | None,
        typer.Option(
            "--failed", help="Take this node as failed; may be given again.", metavar="NODE"
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare/--no-compare", help="Compare with the uniform design if cables miss."
        ),
    ] = True,
    plug: Annotated[
        bool,
        typer.Option("--plug/--no-plug", help="Try every missing cable and rank what it buys."),
    ] = False,
    plug_time: Annotated[
        str,
        typer.Option(
            "--plug-time", help="Refuse `--plug` if it would take longer.", metavar="TIME"
        ),
    ] = "15min",
    seed: Annotated[int, typer.Option("--seed", help="Of drawn patterns and ECMP hashes.")] = 0,
    format: Format = "text",
    output: Output = None,
    capacity: Capacity = None,
    unit: Unit = None,
    attribute: Attribute = None,
) -> None:
    """Solve for the max-min fair rate of every flow, and name the links that hold them."""
    from fabric.solvers import METHODS

    known("--format", format, FORMATS)
    known("--method", method, METHODS)
    check_output(output)
    limit = parse_time(plug_time, "--plug-time")
    subject = load(fabric, capacity, unit, attribute)
    network = subject.network.without(nodes=failed) if failed else subject.network
    if tier is not None:
        network.labels.is_tier(tier)
    rule = _demand.choose(routing, subject, seed, queue_pairs)
    asked = _demand.demand(network, pattern, flows, matrix, hosts, seed, queue_pairs)

    start = time.monotonic()
    case = _answer.solved(network, asked, rule, method)
    seconds = time.monotonic() - start
    if seconds > _TELL_FROM:
        note(f"{asked.flows.n_flows:,} flows routed and solved in {seconds:.1f} s")
    answer = _answer.answer(subject, network, asked, rule, case, top=top, tier=tier, failed=failed)
    design = uniform_design(network) if compare or plug else None
    if design is not None and design.missing:
        whole = _answer.solved(design.network, asked, rule, method)
        answer["uniform_design"] = _compare.compared(design, asked, case, whole)
        if plug:
            answer["plug"] = _compare.plugged(
                network, design, asked, rule, method, case, limit=limit
            )
    elif plug:
        why = "the fabric has no uniform leaf-spine design" if design is None else "none is missing"
        note(f"`--plug` has no cable to try: {why}")
    emit(answer, lambda: text(answer, top), format, output)
