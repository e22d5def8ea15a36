"""`fabric optimize`: routing weights, circuits, placement and capacities, each with a proof."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fabric._errors import InfeasibleError, ModelError
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
    Columns,
    Fabric,
    Failed,
    FlowsFile,
    HostPattern,
    LatencyUnit,
    MatrixFile,
    Pattern,
    Subject,
    Unit,
    load as load_fabric,
)
from fabric.cli._units import counted, listed
from fabric.network import Flows, Network

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
    size_unit: Annotated[
        str | None, typer.Option("--size-unit", help="Of the numbers in `--matrix`, such as MB.")
    ] = None,
    columns: Columns = None,
    hosts: Hosts = None,
    size: Annotated[
        str | None, typer.Option("--size", help="Of every flow of a pattern, such as 1GB.")
    ] = None,
    failed: Failed = None,
    degraded: Annotated[
        list[str] | None,
        typer.Option(
            "--degraded",
            metavar="NODE=SHARE",
            help="Leave the links of this node a share of their capacity; may be given again.",
        ),
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
    sizes = None if size_unit is None else parse_size(f"1{size_unit}", "--size-unit")
    if (matrix is None) != (sizes is None):
        message = (
            "`--matrix` needs `--size-unit`, such as MB: how large flows are decides the answer."
            if sizes is None
            else f"`--size-unit {size_unit}` is for `--matrix`; `--flows` has units in its header."
        )
        raise ModelError(message)
    subject = load_fabric(
        fabric, default_capacity=capacity, unit=unit, capacity=attribute,
        latency_unit=latency_unit, host_pattern=host_pattern,
    )  # fmt: skip
    rule = _demand.choose(None, subject, seed, None)
    failed, degraded = failed or [], degraded or []
    network = worn(subject, failed, degraded)
    asked = _demand.demand(network, pattern, flows, matrix, columns, hosts, rule, failed, size_unit)
    wanted = asked.flows
    if size is not None:
        if pattern is None:
            message = f"`--size {size}` is for `--pattern`: a file says its own sizes."
            raise ModelError(message)
        each = np.full(wanted.n_flows, parse_size(size, "--size"))
        wanted = Flows(wanted.src, wanted.dst, size=each)
    unknown = bool(np.isnan(np.asarray(wanted.size)).any())
    from fabric import optimize as optimizers

    try:
        found = optimizers.routing_weights(
            network, wanted, paths=int(paths) if paths.isdecimal() else paths,
            objective=objective or ("rate" if unknown else "utilisation"), steps=steps,
            tolerance=tolerance, seed=seed, prove=prove, control=control,
            checkpoint=checkpoint,
        )  # fmt: skip
    except InfeasibleError as error:
        raise InfeasibleError(_demand.as_flags(str(error), failed)) from None
    answer = {
        "fabric": subject.source, "failed": failed, "degraded": degraded, "demand": asked.name,
        **found.as_dict(),
    }  # fmt: skip
    if tables is not None:
        made = found.tables(64 if entries is None else entries, per_switch)
        answer["tables"] = made.as_dict()
        write_csv(tables, made.rows())
    finish(answer, found.history, plot, routing_text, format, output)


def worn(subject: Subject, failed: list[str], degraded: list[str]) -> Network:
    """Return a fabric without some nodes, and with less capacity at others.

    Args:
        subject: The fabric.
        failed: Nodes.
        degraded: A node, "=" and the share of capacity that its links keep, of each.

    Raises:
        ModelError: If a node is unknown, or a share is no number above 0 and up to 1.
    """
    network = subject.network.without(nodes=failed)
    for each in degraded:
        node, _, share = each.rpartition("=")
        try:
            network = network.degraded(nodes=[node], factor=float(share))
        except ValueError as error:
            why = str(error) if isinstance(error, ModelError) else "A share is a number up to 1."
            message = f"`--degraded {each}` needs a node and a share, such as spine1=0.5. {why}"
            raise ModelError(message) from None
    return network


def span(value: float) -> str:
    """Return seconds for people, however few.

    Examples:
        >>> span(2e-11), span(3.5e-7), span(0.25), span(0.0)
        ('20 ps', '350 ns', '250.00 ms', '0 s')
    """
    if not 0 < value < 1e-5:
        return seconds(value)
    return f"{value * 1e9:.4g} ns" if value >= 1e-9 else f"{value * 1e12:.4g} ps"


def routing_text(answer: dict[str, Any]) -> list[str]:
    """Return the lines of an answer about routing."""
    said = format_rate if answer["of"] == "rate" else span
    reached = {
        "rate": "slowest flow at",
        "time": "last flow done in",
        "utilisation": "busiest link done in",
    }[answer["of"]]
    better = answer["objective"] / answer["before"] - 1
    lines = [
        f"{answer['demand']} on {answer['fabric']}",
        *([f"  failed: {listed(answer['failed'], 5)}"] if answer["failed"] else []),
        *([f"  degraded: {listed(answer['degraded'], 5)}"] if answer["degraded"] else []),
        f"  {reached} {said(answer['objective'])}, {rise(better)} against equal splits "
        f"({said(answer['before'])})",
        proof(answer, said),
        *(["  the gap that was left is closed by a linear programme"] * answer["programme"]),
        f"  {counted(answer['pairs'], 'pair')} of switches over {counted(answer['paths'], 'path')}",
    ]
    if made := answer.get("tables"):
        lines.append(
            f"  tables of {made['entries']} entries: {_off(made['loss'])} "
            f"({_off(made['rounded_loss'])} by rounding alone)"
        )
    return lines


def _off(loss: float) -> str:
    """Return how far tables are from the splits they come from.

    Examples:
        >>> _off(0.0031), _off(-0.0004)
        ('0.31 % off', '0.04 % better')
    """
    return f"{100 * abs(loss):.2g} % {'off' if loss >= 0 else 'better'}"
