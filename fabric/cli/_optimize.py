"""`fabric optimize`: routing weights, circuits, placement and capacities, each with a proof."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fabric._errors import ModelError
from fabric._units import format_rate, parse_size
from fabric.cli import _demand
from fabric.cli._optimize_fabric import capacity as best_capacity, circuits
from fabric.cli._optimize_joint import joint
from fabric.cli._optimize_placement import placement
from fabric.cli._optimized import (
    Checkpoint,
    Control,
    Hosts,
    Plot,
    Seed,
    Tolerance,
    finish,
    proof,
    to_write,
    write_csv,
)
from fabric.cli._output import FORMATS, Format, Output, check_output, known
from fabric.cli._run_text import rise, seconds
from fabric.cli._subject import (
    Attribute,
    Capacity,
    Fabric,
    FlowsFile,
    HostPattern,
    LatencyUnit,
    MatrixFile,
    Pattern,
    Unit,
    load as load_fabric,
)
from fabric.cli._units import counted
from fabric.network import Flows

optimize = typer.Typer(
    name="optimize", no_args_is_help=True,
    help="Find better routing weights, circuits, placement or capacities, and prove how good.",
)  # fmt: skip
optimize.command("placement")(placement)
optimize.command("circuits")(circuits)
optimize.command("capacity")(best_capacity)
optimize.command("joint")(joint)


@optimize.command("routing")
def routing(
    fabric: Fabric,
    pattern: Pattern = None,
    flows: FlowsFile = None,
    matrix: MatrixFile = None,
    hosts: Hosts = None,
    size: Annotated[
        str | None, typer.Option("--size", help="Of every flow of a pattern, such as 1GB.")
    ] = None,
    paths: Annotated[
        str, typer.Option("--paths", help="shortest, transit, or how many loop-free ones.")
    ] = "shortest",
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            metavar="utilisation|rate|time",
            help="Default: utilisation where sizes are known, else rate.",
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", help="At most.", min=1)] = 1000,
    tolerance: Tolerance = 1e-4,
    entries: Annotated[
        int | None,
        typer.Option("--entries", help="Most entries of a group of `--tables`; default 64.", min=1),
    ] = None,
    per_switch: Annotated[
        int | None,
        typer.Option("--per-switch", help="Most entries of a switch of `--tables`.", min=1),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            "--tables",
            help="Write whole weights here, CSV: WCMP groups.",
            callback=to_write("--tables"),
        ),
    ] = None,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove/--no-prove", help="Close what gap is left by a linear programme, if small."
        ),
    ] = True,
    control: Control = False,
    seed: Seed = 0,
    checkpoint: Checkpoint = None,
    plot: Plot = None,
    format: Format = "text",
    output: Output = None,
    capacity: Capacity = None,
    unit: Unit = None,
    attribute: Attribute = None,
    latency_unit: LatencyUnit = None,
    host_pattern: HostPattern = None,
) -> None:
    """Split the traffic of every pair over its paths, as well as can be, and prove it."""
    known("--format", format, FORMATS)
    check_output(output)
    if tables is None and not (entries is None and per_switch is None):
        flag = "--entries" if entries is not None else "--per-switch"
        message = f"`{flag}` is about the tables that `--tables FILE` writes. Add it."
        raise ModelError(message)
    subject = load_fabric(
        fabric, default_capacity=capacity, unit=unit, capacity=attribute,
        latency_unit=latency_unit, host_pattern=host_pattern,
    )  # fmt: skip
    rule = _demand.choose(None, subject, seed, None)
    asked = _demand.demand(subject.network, pattern, flows, matrix, None, hosts, rule)
    wanted = asked.flows
    if size is not None:
        if pattern is None:
            message = f"`--size {size}` is for `--pattern`: a file says its own sizes."
            raise ModelError(message)
        each = np.full(wanted.n_flows, parse_size(size, "--size"))
        wanted = Flows(wanted.src, wanted.dst, size=each)
    unknown = bool(np.isnan(np.asarray(wanted.size)).any())
    from fabric import optimize as optimizers

    found = optimizers.routing_weights(
        subject.network, wanted, paths=int(paths) if paths.isdecimal() else paths,
        objective=objective or ("rate" if unknown else "utilisation"), steps=steps,
        tolerance=tolerance, seed=seed, prove=prove, control=control,
        checkpoint=checkpoint,
    )  # fmt: skip
    answer = {"fabric": subject.source, "demand": asked.name, **found.as_dict()}
    if tables is not None:
        made = found.tables(64 if entries is None else entries, per_switch)
        answer["tables"] = made.as_dict()
        write_csv(tables, made.rows())
    finish(answer, found.history, plot, routing_text, format, output)


def routing_text(answer: dict[str, Any]) -> list[str]:
    """Return the lines of an answer about routing."""
    said = format_rate if answer["of"] == "rate" else seconds
    reached = {
        "rate": "slowest flow at",
        "time": "last flow done in",
        "utilisation": "busiest link done in",
    }[answer["of"]]
    better = answer["objective"] / answer["before"] - 1
    lines = [
        f"{answer['demand']} on {answer['fabric']}",
        f"  {reached} {said(answer['objective'])}, {rise(better)} against equal splits "
        f"({said(answer['before'])})",
        proof(answer, said),
        *(["  the gap that was left is closed by a linear programme"] * answer["programme"]),
        f"  {counted(answer['pairs'], 'pair')} of switches over {counted(answer['paths'], 'path')}",
    ]
    if made := answer.get("tables"):
        lines.append(
            f"  tables of {made['entries']} entries: {100 * made['loss']:.2g} % off "
            f"({100 * made['rounded_loss']:.2g} % by rounding alone)"
        )
    return lines
