"""`fabric optimize joint`: layout, placement and routing of the job of a scenario, together."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fabric._errors import ModelError
from fabric.cli._optimized import (
    Checkpoint,
    Control,
    Cores,
    GpuFile,
    Hostfile,
    Plot,
    RankFile,
    Tolerance,
    finish,
    proof,
    to_write,
    write_csv,
    write_ranks,
)
from fabric.cli._output import FORMATS, Format, Output, check_output, known
from fabric.cli._run import Settings, load
from fabric.cli._run_text import left_out, rise, seconds
from fabric.cli._search import (
    LeastMargin,
    Limit,
    RankOrders,
    Recompute,
    asked_about,
    check_allocation,
    choice_lines,
    limits_of,
    megatron_lines,
    orders_of,
    own_line,
)
from fabric.cli._units import counted
from fabric.network import Placement


def joint(
    scenario: Annotated[
        str | None,
        typer.Argument(help="A scenario file, or the name of one that ships: `demo`."),
    ] = None,
    settings: Settings = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus", help="How many to use, whole servers; default: as the layout.", min=1
        ),
    ] = None,
    recompute: Recompute = "modes",
    rank_orders: RankOrders = "tp-cp-dp-pp",
    limit: Limit = None,
    least_margin: LeastMargin = 0.0,
    paths: Annotated[
        str, typer.Option("--paths", help="shortest, transit, or how many loop-free ones.")
    ] = "shortest",
    swaps: Annotated[
        int, typer.Option("--swaps", help="Scores of exchanges of servers.", min=1)
    ] = 1500,
    steps: Annotated[
        int, typer.Option("--steps", help="Of the gradient in the last round.", min=1)
    ] = 480,
    tolerance: Tolerance = 1e-3,
    rank_file: RankFile = None,
    cores: Cores = 1,
    hostfile: Hostfile = None,
    gpu_file: GpuFile = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            "--tables",
            help="Write whole weights here, CSV: WCMP groups.",
            callback=to_write("--tables"),
        ),
    ] = None,
    entries: Annotated[
        int | None,
        typer.Option("--entries", help="Most entries of a group of `--tables`; default 64.", min=1),
    ] = None,
    control: Control = True,
    checkpoint: Checkpoint = None,
    plot: Plot = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of what is drawn; as `run.seed`.", min=0)
    ] = None,
    format: Format = "text",
    output: Output = None,
) -> None:
    """Find the layout, the servers and the splits of traffic that make a step shortest together.

    The scenario says model, fabric, hardware, and by its layout batch, sequence, dtype and
    schedule. A placement that names GPUs says which servers there are, and in which order.
    """
    known("--format", format, FORMATS)
    check_output(output)
    if tables is None and entries is not None:
        message = "`--entries` is about the tables that `--tables FILE` writes. Add it."
        raise ModelError(message)
    limits = limits_of(limit or [])
    loaded = load(scenario, settings, seed)
    built = loaded.build()
    count = built.layout.gpus if gpus is None else gpus
    check_allocation(built, [count])
    named = built.placement
    from fabric import optimize

    found = optimize.joint(
        built.network, built.model, gbs=built.layout.gbs, seq=built.layout.seq,
        allocation=named.endpoint_of if isinstance(named, Placement) else None, gpus=count,
        dtype=built.layout.dtype, schedule=built.layout.schedule, recompute=recompute,
        rank_orders=orders_of(rank_orders), limits=limits, least_margin=least_margin,
        profile=built.profile, gpu=built.gpu, paths=int(paths) if paths.isdecimal() else paths,
        swaps=swaps, steps=steps, tolerance=tolerance, seed=built.seed, control=control,
        checkpoint=checkpoint,
    )  # fmt: skip
    answer = {
        "schema": "fabric.optimize.joint/1", "model": built.model.name,
        **found.as_dict(), **asked_about(loaded, built),
    }  # fmt: skip
    write_ranks(found, cores, rank_file, hostfile, gpu_file)
    if tables is not None:
        made = found.tables(64 if entries is None else entries)
        answer["tables"] = made.as_dict()
        write_csv(tables, made.rows())
    finish(answer, found.history, plot, text, format, output)


def text(answer: dict[str, Any]) -> list[str]:
    """Return the lines of an answer."""
    value, before, best = answer["objective"], answer["before"], answer["best"]
    lines = [
        f"{answer['model']} on {answer['fabric']}",
        *([f"  {left_out(answer['left_out'])}"] if answer["left_out"] else []),
        f"  step {seconds(value)}, {rise(value / before - 1)} against the best layout with servers "
        f"as listed, sprayed ({seconds(before)})",
        proof(answer, seconds),
    ]
    if (apart := answer["apart"]) is not None:
        lines.append(f"  layout, then placement, then routing: {seconds(apart)}")
    if lost := answer["lost"]:
        lines.append(f"  {counted(lost, 'set')} of degrees left out: no path between some adapters")
    lines += choice_lines([best], value)
    lines += megatron_lines(answer["megatron"])
    lines.append(own_line(answer["own"], value))
    if made := answer.get("tables"):
        lines.append(f"tables of {made['entries']} entries: {100 * made['loss']:.2g} % off")
    return lines
