"""`fabric compare`: two scenarios, what differs in them and in their steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Annotated, Any

import typer

from fabric._errors import FabricError, ModelError
from fabric._units import format_size
from fabric.cli._output import FORMATS, Format, Output, check_output, emit, known, table
from fabric.cli._run import AllowInfeasible, answer_of, load
from fabric.cli._run_text import bottlenecks, more, rise, seconds
from fabric.cli._units import cut, percent
from fabric.scenario import Answer
from fabric.training import Layout

_SIDES = ("a", "b")


def compare(
    a: Annotated[str, typer.Argument(help="A scenario file or name.")],
    b: Annotated[
        str | None, typer.Argument(help="Another; left out: the same with `--set-b`.")
    ] = None,
    set_a: Annotated[
        list[str] | None,
        typer.Option("--set-a", metavar="A.B=VALUE", help="Replace a value of the first; again."),
    ] = None,
    set_b: Annotated[
        list[str] | None,
        typer.Option("--set-b", metavar="A.B=VALUE", help="Replace a value of the second; again."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of a routing that draws; as `run.seed`.")
    ] = None,
    allow_infeasible: AllowInfeasible = False,
    format: Format = "text",
    output: Output = None,
) -> None:
    """Compare two scenarios: what differs in them first, then in step time, memory and links."""
    known("--format", format, FORMATS)
    check_output(output)
    if b is None and not set_a and not set_b:
        message = (
            "`fabric compare` needs a second scenario, or a setting that makes the same one "
            "another: `--set-b run.placement=spread`."
        )
        raise ModelError(message)
    answers = []
    for side, name, settings in (("a", a, set_a), ("b", b or a, set_b)):
        with _told_of(side, name):
            scenario = load(name, settings, seed, f"--set-{side}")
            answers.append(answer_of(scenario, allow_infeasible, cases=False))
    emit(compared(*answers), _text, format, output)


@contextmanager
def _told_of(side: str, name: str) -> Iterator[None]:
    """Say in an error which of the two scenarios it is about."""
    try:
        yield
    except FabricError as error:
        message = f"{side} ({name}): {error}"
        raise type(error)(message) from None


def compared(a: Answer, b: Answer) -> dict[str, Any]:
    """Return two answers and what differs, schema `fabric.compare/1`."""
    both = {"a": a.as_dict(), "b": b.as_dict()}
    values = {side: _values(answer) for side, answer in zip(_SIDES, (a, b), strict=True)}
    paths = dict.fromkeys([*values["a"], *values["b"]])
    parts = {
        side: {row["part"]: row for row in both[side]["breakdown"]} for side in both
    }  # fmt: skip
    pair = lambda key: _pair(both["a"][key], both["b"][key])
    return {
        "schema": "fabric.compare/1",
        "names": {side: both[side]["name"] for side in _SIDES},
        "differs": [
            {"path": path, "a": values["a"].get(path), "b": values["b"].get(path)}
            for path in paths
            if values["a"].get(path) != values["b"].get(path)
        ],
        "step_time_s": pair("step_time_s"),
        "tokens_per_s": pair("tokens_per_s"),
        "mfu": pair("mfu"),
        "parts": [
            {"part": part}
            | {
                key: _pair(parts["a"][part][key], parts["b"][part][key])
                for key in ("exposed_s", "hidden_s")
            }
            for part in parts["a"]
        ],
        "memory": {
            side: {key: both[side]["memory"][key] for key in ("verdict", "total_bytes", "margin")}
            for side in _SIDES
        },
        "bottlenecks": {side: both[side]["bottlenecks"] for side in _SIDES},
        **both,
    }


def _pair(a: float, b: float) -> dict[str, float | None]:
    return {"a": a, "b": b, "change": b - a, "share": b / a - 1 if a else None}


def _values(answer: Answer) -> dict[str, Any]:
    """Return every value of a scenario by its path, and what it was found to mean."""
    report = answer.report
    data = {key: value for key, value in answer.data.items() if key not in ("about", "cases")}
    data["layout"] = {
        f.name: getattr(report.layout, f.name) for f in fields(Layout) if f.name != "filled"
    }
    found = {
        "fabric.source": report.network.labels.source,
        "model.name": report.model.name,
    }
    return _flat(data, "") | found


def _flat(data: dict[str, Any], under: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        path = f"{under}{key}"
        flat |= _flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def _text(answer: dict[str, Any]) -> list[str]:
    names = answer["names"]
    lines = [f"a: {names['a']}   b: {names['b']}"]
    if answer["differs"]:
        rows = [["what differs", "a", "b"]]
        rows += [
            [f"  {row['path']}", cut(_shown(row["a"]), 34), cut(_shown(row["b"]), 34)]
            for row in answer["differs"]
        ]
        lines += table(rows)
    else:
        lines.append("the scenarios do not differ")
    lines += ["", *_steps(answer), *_memory(answer["memory"])]
    for side in _SIDES:
        links = bottlenecks(answer["bottlenecks"][side])
        links[0] = f"{side}: {links[0]}"
        width = len(side) + 2
        lines += [links[0], *(" " * width + line for line in links[1:])]
    return lines


def _steps(answer: dict[str, Any]) -> list[str]:
    rows = [["", "a", "b", "b - a", ""]]
    step = answer["step_time_s"]
    rows.append(_row("step", step, seconds))
    for part in answer["parts"]:
        for key, word in (("exposed_s", ""), ("hidden_s", " hidden")):
            if part[key]["a"] or part[key]["b"]:
                rows.append(_row(f"  {part['part']}{word}", part[key], seconds))
    rate, change = "{:,.0f}".format, "{:+,.0f}".format
    rows.append(_row("tokens/s", answer["tokens_per_s"], rate, change))
    points = lambda value: f"{value * 100:+.2f}"
    mfu = answer["mfu"]
    rows.append(["MFU", percent(mfu["a"]), percent(mfu["b"]), points(mfu["change"]), ""])
    return table(rows, right=(1, 2, 3, 4))


def _row(name: str, pair: dict[str, Any], show: Any, signed: Any = more) -> list[str]:
    return [name, show(pair["a"]), show(pair["b"]), signed(pair["change"]), rise(pair["share"])]


def _memory(memory: dict[str, Any]) -> list[str]:
    rows = [["memory", "held", "", "free"]]
    for side in _SIDES:
        own = memory[side]
        rows.append(
            [f"  {side}", format_size(own["total_bytes"]), own["verdict"], percent(own["margin"])]
        )
    return table(rows, right=(1, 3))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "-" if value is None else str(value)
