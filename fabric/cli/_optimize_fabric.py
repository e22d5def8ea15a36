"""`fabric optimize circuits` and `capacity`: what to patch, and what to buy, now and next."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fabric._errors import ModelError
from fabric._units import format_rate, parse_rate
from fabric.cli._optimized import (
    Checkpoint,
    Control,
    Plot,
    Seed,
    Tolerance,
    finish,
    proof,
    square,
    to_write,
    write_csv,
)
from fabric.cli._output import FORMATS, Format, Output, check_output, emit, known, table
from fabric.cli._run import Settings, load as load_scenario
from fabric.cli._run_text import seconds
from fabric.cli._units import counted, cut

_MOST_ROWS = 16


def circuits(
    demand: Annotated[
        Path, typer.Argument(help="CSV or NPY file: block to block, numbers only, 0 to itself.")
    ],
    unit: Annotated[str, typer.Option("--unit", help="Of the numbers in the file, such as Gb/s.")],
    ports: Annotated[int, typer.Option("--ports", help="Circuits that a block can end.", min=1)],
    rate: Annotated[str, typer.Option("--rate", help="Of a circuit, such as 400Gb/s.")],
    transit: Annotated[
        bool, typer.Option("--transit/--no-transit", help="Whether traffic may pass one block.")
    ] = True,
    switches: Annotated[
        int | None, typer.Option("--switches", help="Optical switches, for a patch list.", min=1)
    ] = None,
    current: Annotated[
        Path | None, typer.Option("--current", help="CSV or NPY file: circuits of today.")
    ] = None,
    reconfiguration: Annotated[
        str, typer.Option("--reconfiguration", help="Time without traffic when circuits change.")
    ] = "0s",
    phase: Annotated[str | None, typer.Option("--phase", help="How long the demand lasts.")] = None,
    prove: Annotated[
        str, typer.Option("--prove", help="Time for branch and bound over whole circuits.")
    ] = "0s",
    steps: Annotated[int, typer.Option("--steps", help="Of descent.")] = 1000,
    tolerance: Tolerance = 1e-3,
    patch: Annotated[
        Path | None,
        typer.Option(
            "--patch", help="Write the patch list here, CSV.", callback=to_write("--patch")
        ),
    ] = None,
    seed: Seed = 0,
    checkpoint: Checkpoint = None,
    plot: Plot = None,
    format: Format = "text",
    output: Output = None,
) -> None:
    """Set the optical circuits between blocks for a demand, with splits, and prove how good."""
    known("--format", format, FORMATS)
    check_output(output)
    wanted = square(demand) * parse_rate(f"1{unit}", "--unit")
    from fabric.optimize._circuits import circuits as best_circuits

    found = best_circuits(
        wanted, ports, parse_rate(rate, "--rate"), transit=transit, switches=switches,
        current=None if current is None else square(current), reconfiguration=reconfiguration,
        phase=phase, steps=steps, prove=prove, tolerance=tolerance, seed=seed,
        checkpoint=checkpoint,
    )  # fmt: skip
    if patch is not None:
        write_csv(patch, found.patch_list())
    answer = {
        "schema": "fabric.optimize.circuits/1", "demand": demand.name, "ports": ports,
        **found.as_dict(),
    }  # fmt: skip
    finish(answer, found.history, plot, circuits_text, format, output)


def circuits_text(answer: dict[str, Any]) -> list[str]:
    """Return the lines of an answer about circuits."""
    uniform = answer["uniform"]
    against = "the uniform mesh leaves pairs without a way"
    if uniform is not None:
        more = uniform / answer["objective"]
        against = f"the uniform mesh {uniform:.6g}, so that this carries {more:.4g} times as much"
    lines = [
        f"{answer['demand']}: {len(answer['circuits'])} blocks, {answer['ports']} ports each",
        f"  utilisation {answer['objective']:.6g}; {against}",
        proof(answer),
    ]
    if (now := answer["current"]) is not None:
        change = "set anew" if answer["reconfigured"] else "left as they are"
        lines.append(
            f"  circuits of today {now:.6g}: {change}; a change pays in a phase of "
            f"{_time(answer['break_even_s'])} or more"
        )
    rows = answer["patch"]
    lines += ["", f"{counted(answer['rewires'], 'circuit')} to set"]
    if rows:
        cells = [list(rows[0])] + [[f"{x:,}" for x in row.values()] for row in rows[:_MOST_ROWS]]
        lines += [f"  {line}" for line in table(cells, right=range(len(rows[0])))]
    if (more := len(rows) - _MOST_ROWS) > 0:
        lines.append(f"  and {more:,} more, with `--patch` or `--format json`")
    return lines


def _time(value: float | None) -> str:
    return "any length: never" if value is None else seconds(value)


def capacity(
    scenario: Annotated[
        str, typer.Argument(help="A scenario file, or the name of one that ships: `demo`.")
    ],
    price: Annotated[
        list[str],
        typer.Option(
            "--price", metavar="TIER=PRICE", help="Such as 'leaf-spine=3 per Gb/s'; again."
        ),
    ],
    budget: Annotated[
        list[float] | None,
        typer.Option(
            "--budget", help="Money for all these tiers together; again: what to buy next."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="What a step may take, such as 9s.")
    ] = None,
    least: Annotated[
        float, typer.Option("--least", help="Smallest factor of a tier; 1: what is there stays.")
    ] = 0.0,
    most: Annotated[float, typer.Option("--most", help="Largest factor of a tier.")] = 1e9,
    settings: Settings = None,
    steps: Annotated[int, typer.Option("--steps", help="At most.", min=1)] = 500,
    tolerance: Tolerance = 1e-3,
    control: Control = True,
    seed: Seed = 0,
    checkpoint: Checkpoint = None,
    plot: Plot = None,
    format: Format = "text",
    output: Output = None,
) -> None:
    """Find how fast to make each tier for the money, or how little money a step time takes."""
    known("--format", format, FORMATS)
    check_output(output)
    prices, budgets = _prices(price), sorted(budget or [])
    for flag, given in (("--target", target), ("--plot", plot)):
        if len(budgets) > 1 and given is not None:
            message = f"`{flag}` goes with one `--budget` at most, but got {len(budgets)}."
            raise ModelError(message)
    loaded = load_scenario(scenario, settings, None)
    built = loaded.build()
    from fabric import optimize as optimizers

    job = optimizers.Job(
        model=built.model, layout=built.layout, placement=built.placement, routing=built.routing,
        profile=built.profile, gpu=built.gpu, seed=built.seed, name=loaded.name,
    )  # fmt: skip
    about = {"fabric": built.network.labels.source, "scenario": loaded.name}
    options: dict[str, Any] = {
        "least": least, "most": most, "steps": steps, "tolerance": tolerance, "control": control,
        "seed": seed, "checkpoint": checkpoint,
    }  # fmt: skip
    if len(budgets) > 1:
        curve = optimizers.capacity_curve(built.network, job, prices, budgets, **options)
        emit(curve.as_dict() | about, curve_text, format, output)
        return
    found = optimizers.capacities(
        built.network, job, prices, budget=budgets[0] if budgets else None, target=target, **options
    )
    by = "budget" if target is None else "target"
    answer = found.as_dict() | about | {"by": by, "next": found.next}
    finish(answer, found.history, plot, capacity_text, format, output)


def _prices(said: list[str]) -> dict[str, str]:
    prices: dict[str, str] = {}
    for words in said:
        tier, equals, amount = words.partition("=")
        if not equals or not amount:
            message = f"`--price {words}` is not of the form `TIER=PRICE`: 'nic-leaf=3 per Gb/s'."
            raise ModelError(message)
        if tier.strip() in prices:
            message = f"`--price` names '{tier.strip()}' twice. Give one price for each tier."
            raise ModelError(message)
        prices[tier.strip()] = amount.strip()
    return prices


def capacity_text(answer: dict[str, Any]) -> list[str]:
    """Return the lines of an answer about capacities."""
    money = lambda value: f"{value:,.6g}"
    said, unit = (money, " of the target") if answer["by"] == "target" else (seconds, " s")
    steps = ", ".join(seconds(took) for took in answer["step_times"].values())
    alike = answer["before"]
    lines = [
        f"{answer['scenario']} on {answer['fabric']}",
        f"  step {steps} for {answer['cost']:,.6g}; all tiers alike: {said(alike)}",
        proof(answer, said),
        "",
    ]
    cells = [["tier", "factor", "capacity", "spent", "next unit saves"]]
    for name, factor in answer["factors"].items():
        mark = "  <- buy next" if name == answer["next"] else ""
        cells.append([
            cut(name, 32), f"{factor:.4g}", format_rate(answer["capacities"][name]),
            f"{answer['spent'][name]:,.6g}", f"{answer['worth'][name]:.3g}{unit}{mark}",
        ])  # fmt: skip
    return lines + table(cells, right=[1, 2, 3])


def curve_text(answer: dict[str, Any]) -> list[str]:
    """Return the lines of an answer about growing budgets."""
    after = zip([*answer["next"], ""], [*answer["marginal"], None], strict=True)
    cells = [["budget", "step", "bound", "buy next", "a unit of money saves"]]
    for budget, point, (name, worth) in zip(
        answer["budgets"], answer["points"], after, strict=True
    ):
        cells.append([
            f"{budget:,.6g}", seconds(point["objective"]), seconds(point["bound"]), cut(name, 32),
            "" if worth is None else f"{worth:.3g} s",
        ])  # fmt: skip
    head = [f"{answer['scenario']} on {answer['fabric']}", ""]
    return head + table(cells, right=[0, 1, 2])
