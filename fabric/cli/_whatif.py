"""`fabric whatif`: hundreds of small changes, each with what it does and how that is known."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fabric._errors import ModelError, nearest, raise_faults
from fabric.cli import _answer, _demand
from fabric.cli._optimized import Hosts, scenario_of
from fabric.cli._output import FORMATS, Format, Output, check_output, emit, known, table
from fabric.cli._run import Settings
from fabric.cli._run_text import seconds
from fabric.cli._subject import (
    Attribute,
    Capacity,
    FlowsFile,
    HostPattern,
    LatencyUnit,
    MatrixFile,
    Pattern,
    Unit,
    load as load_fabric,
)
from fabric.cli._units import bits, counted, cut, cut_link

_MOST_ROWS = 24
_WIDTH = 40


def whatif(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO|FABRIC",
            help="A scenario, whose step counts; or with `--pattern`, `--flows` or `--matrix` a "
            "fabric, whose rates do.",
        ),
    ],
    changes: Annotated[
        Path | None,
        typer.Option("--changes", help="YAML list: `- {tier: leaf-spine, by: +10%}`."),
    ] = None,
    each: Annotated[
        str | None,
        typer.Option(
            "--each",
            metavar="tier|class|node|cable|link",
            help="Each of these, up and down; default tier.",
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="PERCENT", help="Of `--each`; default 10%.")
    ] = None,
    settings: Settings = None,
    pattern: Pattern = None,
    flows: FlowsFile = None,
    matrix: MatrixFile = None,
    routing: Annotated[
        str | None, typer.Option("--routing", metavar="NAME[:KEY=VALUE,...]", help="As of `solve`.")
    ] = None,
    hosts: Hosts = None,
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective", metavar="slowest|mean|total", help="Of a fabric; default slowest."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of what is drawn; default 0.")] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--most", help="Rows at most of `--each` node, cable or link; default 500.", min=2
        ),
    ] = None,
    format: Format = "text",
    output: Output = None,
    capacity: Capacity = None,
    unit: Unit = None,
    attribute: Attribute = None,
    latency_unit: LatencyUnit = None,
    host_pattern: HostPattern = None,
) -> None:
    """Say what small changes do, exactly, and within what reach that is a straight line.

    A change is more or less capacity of a tier, class, node, cable or link, or of the weight or cap
    of a flow. One pass backwards gives the first order of all; each row then is read off its line,
    or solved again where the change is larger than the line is long.
    """
    from fabric import optimize
    from fabric.optimize._jobs import Job
    from fabric.solvers import BY, OBJECTIVES

    known("--format", format, FORMATS)
    if each is not None:
        known("--each", each, BY)
    if objective is not None:
        known("--objective", objective, OBJECTIVES)
    check_output(output)
    _one_of(changes, each=each, by=by, most=most)
    given: Any = (each or "tier") if changes is None else read(changes)
    asked = {"by": by or "10%", "most": 500 if most is None else most}
    read_by = {
        "default_capacity": capacity, "unit": unit, "capacity": attribute,
        "latency_unit": latency_unit, "host_pattern": host_pattern,
    }  # fmt: skip
    if any(what is not None for what in (pattern, flows, matrix)):
        if settings:
            message = "`--set` is for scenarios, and `--pattern` and its like for fabrics."
            raise ModelError(message)
        found = load_fabric(subject, **read_by)
        rule = _demand.choose(routing, found, seed, None)
        told = _demand.demand(found.network, pattern, flows, matrix, None, hosts, rule)
        case = _answer.solved(found.network, told, rule, "auto")
        what = objective or "slowest"
        answer = optimize.linearize(found.network, case.routes, given, what, **asked)
        said = {"fabric": found.source, "demand": told.name, "routing": rule.name}
    else:
        _for_fabrics(
            routing=routing, hosts=hosts, objective=objective, capacity=capacity, unit=unit,
            capacity_attribute=attribute, latency_unit=latency_unit, host_pattern=host_pattern,
        )  # fmt: skip
        hint = "Of a fabric say which flows count: `--pattern all-to-all`."
        scenario = scenario_of(subject, settings, seed, hint)
        built = scenario.build()
        job = Job(
            model=built.model, layout=built.layout, placement=built.placement,
            routing=built.routing, profile=built.profile, gpu=built.gpu, seed=built.seed,
        )  # fmt: skip
        answer = optimize.linearize(built.network, job, given, **asked)
        said = {"fabric": built.network.labels.source, "scenario": scenario.name}
    emit({**said, **answer.as_dict()}, text, format, output)


def _one_of(changes: Path | None, **others: str | int | None) -> None:
    """Raise if the options about what to change contradict each other."""
    given = [name for name, value in others.items() if value is not None]
    if changes is not None and given:
        message = (
            f"`--changes {changes}` says what to change, and so does `--{given[0]}`. Leave one."
        )
        raise ModelError(message)


def _for_fabrics(**options: str | None) -> None:
    """Raise if options of a fabric are given with a scenario."""
    given = [
        f"`--{name.replace('_', '-')}`" for name, value in options.items() if value is not None
    ]
    if given:
        message = (
            f"{', '.join(given)} is for a fabric with flows: add `--pattern all-to-all`, "
            f"`--flows` or `--matrix`. A scenario says such things itself (`--set`)."
        )
        raise ModelError(message)


def read(file: Path) -> list[Any]:
    """Return the changes of a YAML file.

    Args:
        file: A list; each entry says what changes and by how much.

    Raises:
        ModelError: If the file cannot be read, or an entry is no change; all faults at once.
    """
    import yaml

    from fabric.optimize import Change

    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        message = f"`--changes {file}` cannot be read: {' '.join(str(error).split())}"
        raise ModelError(message) from None
    if not isinstance(found, list) or not found:
        message = (
            f"`--changes {file}` needs a list of changes, such as `- {{tier: leaf-spine, by: "
            f"+10%}}`, but holds {'nothing' if not found else type(found).__name__}."
        )
        raise ModelError(message)
    faults: list[str] = []
    made: list[Change] = []
    for i, entry in enumerate(found):
        try:
            made.append(_change(entry))
        except ModelError as error:
            faults.append(f"`--changes {file}`, entry {i + 1}: {error}")
    raise_faults(faults)
    return made


def _change(entry: Any) -> Any:
    """Return one change; its percent must be written as such."""
    from fabric.optimize import Change
    from fabric.optimize._changes import KINDS

    if not isinstance(entry, dict):
        message = "it needs a line such as `{node: spine0, by: -50%}`."
        raise ModelError(message)
    what = [key for key in entry if key != "by"]
    if len(what) != 1 or what[0] not in KINDS:
        hint = nearest(str(what[0]), KINDS) if len(what) == 1 else f"Known: {', '.join(KINDS)}."
        message = (
            f"it needs one thing to change and `by`, but has {', '.join(map(str, entry))}. {hint}"
        )
        raise ModelError(message)
    if not isinstance(by := entry.get("by"), str):
        message = f"`by` needs percent, such as `by: +10%`, but is {by!r}."
        raise ModelError(message)
    key = entry[what[0]]
    return Change(what[0], tuple(key) if isinstance(key, list) else key, by)


def text(answer: dict[str, Any]) -> list[str]:
    """Return the lines of an answer."""
    is_step = answer["objective"] == "step time"
    value = seconds(answer["value"]) if is_step else f"{bits(answer['value'])} "
    load = answer.get("scenario") or f"{answer['demand']} by {answer['routing']}"
    rows = answer["what_ifs"]
    how = [sum(row["how"] == name for row in rows) for name in ("unchanged", "linear", "re-solved")]
    lines = [
        f"{load} on {answer['fabric']}",
        f"  {answer['objective']} {value.strip()}; {counted(len(rows), 'change')}: {how[0]:,} "
        f"unchanged, {how[1]:,} on their line, {how[2]:,} solved again",
        "",
    ]
    cells = [["change", "links", "by", "first order", answer["objective"], "how", "line within"]]
    cells += [
        [
            f"{row['what']} {_short(row)}", f"{row['items']:,}", f"{100 * row['by']:+.4g} %",
            _signed(row["first_order"]), _signed(row["change"]), row["how"],
            _reach(row["exact_within"]),
        ]
        for row in rows[:_MOST_ROWS]
    ]  # fmt: skip
    lines += table(cells, right=[1, 2, 3, 4, 6])
    if (more := len(rows) - _MOST_ROWS) > 0:
        lines.append(f"and {more:,} more, with `--format json`")
    return lines + list(answer["left_out"])


def _short(row: dict[str, Any]) -> str:
    """Return what changes at a length that fits; of links and cables both ends and ports stay."""
    key = str(row["key"])
    if row["what"] not in ("link", "cable"):
        return cut(key, _WIDTH)
    said = cut_link(key.replace(" - ", "->"), _WIDTH)
    return said.replace("->", " - ") if " - " in key else said


def _signed(share: float | None) -> str:
    if share is None:
        return "endless"
    return "0 %" if abs(share) < 5e-9 else f"{100 * share:+.4g} %"


def _reach(share: float | None) -> str:
    return (
        "any"
        if share is None
        else f"{100 * share:.2g} %"
        if share < 0.995
        else f"{100 * share:.0f} %"
    )
