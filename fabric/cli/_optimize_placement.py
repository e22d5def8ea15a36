"""`fabric optimize placement`: which rank of a job runs on which GPU, and files that say so."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jaxtyping import Int

from fabric._errors import ModelError, UnsolvedError
from fabric._units import parse_size
from fabric.cli._optimized import (
    Checkpoint,
    Control,
    Cores,
    GpuFile,
    Hostfile,
    Plot,
    RankFile,
    Seed,
    Tolerance,
    finish,
    proof,
    scenario_of,
    square,
    write_ranks,
)
from fabric.cli._output import FORMATS, Format, Output, check_output, known
from fabric.cli._run import Settings
from fabric.cli._run_text import rise, seconds
from fabric.cli._subject import load as load_fabric
from fabric.cli._units import counted
from fabric.collectives import effective
from fabric.network import Flows, Placement
from fabric.scenario import Built
from fabric.training import StepReport, step
from fabric.training._step import placed_on, router_of


def placement(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO|FABRIC",
            help="A scenario, whose exchanges count; or a fabric with `--traffic`.",
        ),
    ],
    traffic: Annotated[
        Path | None, typer.Option("--traffic", help="CSV or NPY file: rank to rank, numbers only.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option("--unit", help="Of the numbers in the file, such as MB.")
    ] = None,
    settings: Settings = None,
    routing: Annotated[
        str | None, typer.Option("--routing", help="Of a fabric; default spray.")
    ] = None,
    move: Annotated[
        str | None,
        typer.Option("--move", metavar="server|rank", help="Default: servers if ranks fill them."),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            metavar="slowest|completion",
            help="Rates as all begin, or rising as flows end.",
        ),
    ] = "slowest",
    starts: Annotated[int, typer.Option("--starts", help="How many starts.", min=1)] = 32,
    budget: Annotated[int, typer.Option("--budget", help="Placements to score.", min=1)] = 10_000,
    tolerance: Tolerance = 1e-3,
    rank_file: RankFile = None,
    cores: Cores = 1,
    hostfile: Hostfile = None,
    gpu_file: GpuFile = None,
    control: Control = True,
    seed: Seed = 0,
    checkpoint: Checkpoint = None,
    plot: Plot = None,
    format: Format = "text",
    output: Output = None,
) -> None:
    """Place ranks on what is left of a fabric so that their traffic is done soonest.

    Of a scenario all exchanges of a step count, as often as they happen, one kind after another;
    then the step itself is worked out again with the placement that was found.
    """
    known("--format", format, FORMATS)
    check_output(output)
    from fabric import optimize

    how: dict[str, Any] = {
        "unit": move, "objective": objective, "starts": starts, "budget": budget,
        "tolerance": tolerance, "seed": seed, "control": control, "checkpoint": checkpoint,
    }  # fmt: skip
    if traffic is not None:
        if settings or unit is None:
            flag = "`--set` is for scenarios" if settings else "`--traffic` needs `--unit`, as MB"
            message = f"{flag}: {subject} is taken as a fabric here."
            raise ModelError(message)
        network = load_fabric(subject).network
        sent = square(traffic) * parse_size(f"1{unit}", "--unit")
        found = optimize.placement(network, sent, routing=routing or "spray", **how)
        said: dict[str, Any] = {"fabric": network.labels.source, "of": traffic.name}
    else:
        if routing is not None or unit is not None:
            flag = "--routing" if routing is not None else "--unit"
            message = f"`{flag}` is for a fabric with `--traffic`; a scenario says so itself."
            raise ModelError(message)
        hint = "Of a fabric say what ranks send: `--traffic FILE --unit MB`."
        loaded = scenario_of(subject, settings, None, hint)
        built = loaded.build()
        now = _stepped(built, built.placement)
        share = now.profile.efficiency
        reached = effective(built.network, nvlink=share.nvlink.value, nic=share.nic.value)
        found = optimize.placement(
            reached, exchanges(now, placed_on(built.network, built.layout, built.placement)[0]),
            ranks=now.gpus_used,
            routing=router_of(built.network, built.routing, built.seed)[0], **how,
        )  # fmt: skip
        then = _stepped(built, found.placement)
        if then.step_time > now.step_time:
            message = (
                f"The placement that was found lets the exchanges of '{loaded.name}', one after "
                f"another, be done in {seconds(found.objective)} instead of "
                f"{seconds(found.before)}, but a step in which they overlap takes "
                f"{seconds(then.step_time)} instead of {seconds(now.step_time)}. Keep the "
                f"placement of the scenario, or try another `--objective` or `--seed`."
            )
            raise UnsolvedError(message)
        said = {
            "fabric": built.network.labels.source, "of": loaded.name,
            "step_time_s": {"before": now.step_time, "after": then.step_time},
        }  # fmt: skip
    write_ranks(found, cores, rank_file, hostfile, gpu_file)
    answer = {
        **said, **found.as_dict(),
        "slurm_options": found.slurm_options, "slurm_nodes": found.slurm_nodes,
    }  # fmt: skip
    finish(answer, found.history, plot, text, format, output)


def _stepped(built: Built, where: str | Placement) -> StepReport:
    return step(
        built.network, built.model, built.layout, where, built.routing, built.profile, built.seed,
        gpu=built.gpu, allocation=built.allocation, by=None,
    )  # fmt: skip


def exchanges(report: StepReport, gpu_of: Int[np.ndarray, " ranks"]) -> list[Flows]:
    """Return the exchanges of a step between its ranks, with all bytes that they carry in it.

    Args:
        report: Of the step.
        gpu_of: The GPU of every rank in it.
    """
    rank_of = np.full(report.network.labels.n_nodes, -1)
    rank_of[gpu_of] = np.arange(len(gpu_of))
    found = []
    for phase in report.phases:
        flows, times = phase.traffic.exchange.flows, report.times_a_step[phase.traffic.name]
        src, dst = (rank_of[np.asarray(end)] for end in (flows.src, flows.dst))
        found.append(Flows(src, dst, size=phase.traffic.size * times))
    return found


def text(answer: dict[str, Any]) -> list[str]:
    """Return the lines of an answer."""
    value, before = answer["objective"], answer["before"]
    against = (
        "which does not get through in the order of the topology"
        if before is None
        else f"{rise(value / before - 1)} against the order of the topology ({seconds(before)})"
    )
    lines = [
        f"{answer['of']} on {answer['fabric']}",
        f"  {counted(answer['ranks'], 'rank')}, moved by {answer['unit']}: traffic done in "
        f"{seconds(value)}, {against}",
        proof(answer, seconds),
    ]
    if took := answer.get("step_time_s"):
        change = rise(took["after"] / took["before"] - 1)
        lines.append(
            f"  step {seconds(took['after'])}, {change} against the placement of the scenario "
            f"({seconds(took['before'])})"
        )
    return lines
