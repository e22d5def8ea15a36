"""`fabric optimize circuits` and `capacity`: what to patch, and what to buy, now and next."""

import csv
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jaxtyping import Shaped

from fabric._errors import ModelError
from fabric._units import parse_rate
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
from fabric.traffic._table import read_bytes

_MOST_ROWS = 16
_PLACES = (("switch", "north", "south"), ("a", "b"))


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
        Path | None,
        typer.Option(
            "--current",
            help="Circuits of today: what `--patch` wrote, or a matrix, or of NPY a patch.",
        ),
    ] = None,
    reconfiguration: Annotated[
        str | None,
        typer.Option(
            "--reconfiguration", help="Time without traffic when circuits change; with `--phase`."
        ),
    ] = None,
    phase: Annotated[str | None, typer.Option("--phase", help="How long the demand lasts.")] = None,
    prove: Annotated[
        str, typer.Option("--prove", help="Time for branch and bound over whole circuits.")
    ] = "0s",
    steps: Annotated[int, typer.Option("--steps", help="Of descent, 50 or more.")] = 1000,
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
    if (phase is None) != (reconfiguration is None):
        flags = ("--reconfiguration", "--phase")
        here, gone = flags if phase is None else flags[::-1]
        message = f"`{here}` says nothing without `{gone}`. Give both, or none of them."
        raise ModelError(message)
    wanted = square(demand) * parse_rate(f"1{unit}", "--unit")
    from fabric.optimize._circuits import circuits as best_circuits

    found = best_circuits(
        wanted, ports, parse_rate(rate, "--rate"), transit=transit, switches=switches,
        current=None if current is None else _today(current, len(wanted), switches),
        reconfiguration=0.0 if reconfiguration is None else reconfiguration,
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


def _today(file: Path, blocks: int, switches: int | None) -> Shaped[np.ndarray, "..."]:
    """Return circuits of today from a patch list, or as `square`."""
    rows = list(csv.reader(read_bytes(file).decode("utf-8", "replace").splitlines()[:1]))
    names = [name.strip() for name in rows[0]] if rows else []
    places = next((p for p in _PLACES if {*p, "circuits"} <= set(names)), None)
    if places is None:
        return square(file)
    lines = csv.DictReader(read_bytes(file).decode("utf-8", "replace").splitlines()[1:], names)
    wanted = [*places, "circuits"]
    try:
        table = np.array([[int(line[name]) for name in wanted] for line in lines], np.int64)
    except (TypeError, ValueError) as error:
        message = f"'{file}' needs whole numbers as {', '.join(wanted)}: {error}."
        raise ModelError(message) from None
    table = table.reshape(-1, len(wanted))
    where = tuple(table[:, :-1].T)
    wrong = (table < 0).any(1) | (np.stack(where[-2:]) >= blocks).any(0)
    if (bad := np.flatnonzero(wrong)).size:
        message = (
            f"Line {bad[0] + 2} of '{file}' is not of {blocks} blocks from 0 on, or below 0. Give "
            f"the patch of these blocks."
        )
        raise ModelError(message)
    if len(places) == 2:
        count = np.zeros((blocks, blocks), np.int64)
        np.add.at(count, where, table[:, -1])
        return count + count.T
    last = int(where[0].max(initial=-1))
    patch = np.zeros((max(switches or 1, last + 1), blocks, blocks), np.int64)
    np.add.at(patch, where, table[:, -1])
    return patch


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
    if answer["objective"] > 1:
        lines.append(
            f"  the demand does not fit: the circuits carry {1 / answer['objective']:.4g} of it"
        )
    if (now := answer["current"]) is not None:
        change = "set anew" if answer["reconfigured"] else "left as they are"
        lines.append(
            f"  circuits of today {now:.6g}: {change}; a change pays in a phase of "
            f"{_time(answer['break_even_s'])} or more"
        )
    rows = answer["patch"]
    total = lambda name: sum(row[name] for row in rows)
    told = f"{counted(answer['rewires'], 'circuit')} to set"
    if rows and "set" not in rows[0]:
        told += "; by switch, all circuits there are:"
    elif answer["current"] is not None:
        told += f", {total('removed'):,} to remove, {total('kept'):,} stay"
        rows = [row for row in rows if row["set"] or row["removed"]]
    lines += ["", told]
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
    to_target = answer["by"] == "target"
    said, unit = (_money, " of the target time") if to_target else (seconds, " s")
    steps = ", ".join(seconds(took) for took in answer["step_times"].values())
    alike = answer["before"]
    lines = [
        f"{answer['scenario']} on {answer['fabric']}",
        f"  step {steps} for {_money(answer['cost'])}; all tiers alike: {said(alike)}",
        proof(answer, said),
        "",
    ]
    cells = [["tier", "factor", "capacity", "spent", "next unit of money saves"]]
    for name, factor in answer["factors"].items():
        mark = "  <- buy next" if name == answer["next"] else ""
        cells.append([
            cut(name, 32), f"{factor:.4g}", _bits(answer["capacities"][name]),
            _money(answer["spent"][name]), f"{answer['worth'][name]:.3g}{unit}{mark}",
        ])  # fmt: skip
    return lines + table(cells, right=[1, 2, 3])


def _money(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def _bits(capacity: float) -> str:
    """Return byte/s as bits, which prices are per."""
    return f"{8 * capacity / 1e9:,.2f} Gb/s"


def curve_text(answer: dict[str, Any]) -> list[str]:
    """Return the lines of an answer about growing budgets."""
    after = zip([*answer["next"], ""], [*answer["marginal"], None], strict=True)
    cells = [["budget", "step", "bound", "buy next", "a unit of money saves"]]
    for budget, point, (name, worth) in zip(
        answer["budgets"], answer["points"], after, strict=True
    ):
        cells.append([
            _money(budget), seconds(point["objective"]), seconds(point["bound"]), cut(name, 32),
            "" if worth is None else f"{worth:.3g} s",
        ])  # fmt: skip
    head = [f"{answer['scenario']} on {answer['fabric']}", ""]
    return head + table(cells, right=[0, 1, 2])
