"""`fabric search`: a scenario in, the best layouts of its model on its fabric out, with a proof."""

from typing import Annotated, Any

import typer

from fabric._errors import InfeasibleError, ModelError, raise_faults
from fabric.cli._optimized import Checkpoint, Plot, finish
from fabric.cli._output import FORMATS, Format, Output, check_output, known, table
from fabric.cli._run import Settings, load
from fabric.cli._run_text import left_out, rise, seconds
from fabric.cli._units import counted, percent
from fabric.scenario import Built, Scenario
from fabric.training import Layout, step

_MOST_FRONT = 12
_ROOMY = 0.05

Recompute = Annotated[
    str, typer.Option("--recompute", help="modes, or counts: also of only some layers.")
]
RankOrders = Annotated[
    str, typer.Option("--rank-orders", help="all, or orders such as tp-cp-dp-pp,tp-cp-pp-dp.")
]
Limit = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="NAME=N", help="Largest size, such as tp=8; again."),
]
LeastMargin = Annotated[
    float, typer.Option("--least-margin", help="Share of the memory that has to be left.")
]


def search(
    scenario: Annotated[
        str | None,
        typer.Argument(help="A scenario file, or the name of one that ships: `demo`."),
    ] = None,
    settings: Settings = None,
    gpus: Annotated[
        str,
        typer.Option(
            "--gpus",
            metavar="N[,N]",
            help="Numbers of GPUs to choose from; or those of the layout.",
        ),
    ] = "",
    objective: Annotated[
        str, typer.Option("--objective", help="time of a step, or cost in GPU seconds.")
    ] = "time",
    recompute: Recompute = "modes",
    rank_orders: RankOrders = "tp-cp-dp-pp",
    limit: Limit = None,
    top: Annotated[int, typer.Option("--top", help="How many layouts are wanted.")] = 10,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Share by which a layout may be missed.")
    ] = 0.0,
    least_margin: LeastMargin = 0.0,
    front: Annotated[
        bool, typer.Option("--front", help="Also the front of throughput, memory margin and cost.")
    ] = False,
    why: Annotated[
        str | None,
        typer.Option("--why", metavar="LAYOUT", help="Also why this layout is not in the space."),
    ] = None,
    checkpoint: Checkpoint = None,
    plot: Plot = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of a routing that draws; as `run.seed`.")
    ] = None,
    format: Format = "text",
    output: Output = None,
) -> None:
    """Find the layouts with the shortest steps on a contended fabric, and prove it.

    The scenario says model, fabric, hardware, placement, and by its layout batch, sequence, dtype
    and schedule; all other sizes are searched.
    """
    known("--format", format, FORMATS)
    check_output(output)
    counts, limits = _counts(gpus), limits_of(limit or [])
    loaded = load(scenario, settings, seed)
    built = loaded.build()
    counts = counts or [built.layout.gpus]
    check_allocation(built, counts)
    if why is not None:
        why = _whole(why, built)
        _check_why(why, built, counts)
    from fabric import optimize

    found = optimize.layout(
        built.network, built.model, gbs=built.layout.gbs, seq=built.layout.seq,
        gpus=counts, dtype=built.layout.dtype,
        schedule=built.layout.schedule, objective=objective, recompute=recompute,
        rank_orders=orders_of(rank_orders),
        limits=limits, least_margin=least_margin, placement=built.placement,
        routing=built.routing, profile=built.profile, gpu=built.gpu,
        seed=built.seed, top=top, tolerance=tolerance, front=front, checkpoint=checkpoint,
    )  # fmt: skip
    answer = found.as_dict() | asked_about(loaded, built) | {"of": objective}
    if why is not None:
        answer["why"] = {"layout": why, "reason": found.space.reason(why)}
    finish(answer, found.history, plot, text, format, output)


def _counts(said: str) -> list[int]:
    try:
        return [int(word) for word in said.split(",") if word]
    except ValueError:
        message = f"`--gpus {said}` needs whole numbers with commas, such as `--gpus 512,1024`."
        raise ModelError(message) from None


def orders_of(said: str) -> str | list[str]:
    """Return what `--rank-orders` says."""
    return said if said == "all" else said.split(",")


def limits_of(said: list[str]) -> dict[str, int]:
    """Return what `--limit` says, by name."""
    limits: dict[str, int] = {}
    for words in said:
        name, _, number = words.partition("=")
        if not number.isdecimal():
            message = f"`--limit {words}` needs a name and a whole number, such as `--limit tp=8`."
            raise ModelError(message)
        if name in limits:
            message = f"`--limit {name}` is said twice: {limits[name]} and {number}. Say it once."
            raise ModelError(message)
        limits[name] = int(number)
    return limits


def check_allocation(built: Built, counts: list[int]) -> None:
    """Raise if more GPUs are asked for than the scenario allows."""
    if built.allocation is not None and (most := max(counts)) > built.allocation:
        message = (
            f"`--gpus` asks for {most:,}, but `run.allocation` is {built.allocation:,}. Lower it, "
            f"or use `--set run.allocation={most}`."
        )
        raise InfeasibleError(message)


def _whole(why: str, built: Built) -> str:
    """Return a layout with the batch and the sequence of the search, where it has none itself."""
    own = {"gbs": built.layout.gbs, "seq": built.layout.seq}
    words = why.split()
    words += [f"{k}{n}" for k, n in own.items() if not any(w.startswith(k) for w in words)]
    return " ".join(words)


def _check_why(why: str, built: Built, counts: list[int]) -> None:
    """Raise before the search where no table would have this layout."""
    asked = Layout.parse(why)
    faults = [
        f"`--why`: the search is of `{name}` {own}, but the layout has {getattr(asked, name)}."
        for name in ("gbs", "seq", "dtype", "schedule")
        if (own := getattr(built.layout, name)) != getattr(asked, name)
    ]
    if asked.gpus not in counts:
        said = " or ".join(f"{n:,}" for n in counts)
        faults.append(f"`--why`: the search is of {said} GPUs, but the layout has {asked.gpus:,}.")
    raise_faults(faults)


def asked_about(scenario: Scenario, built: Built) -> dict[str, Any]:
    """Return what an answer tells of its scenario: fabric, servers left out, and its own step."""
    return {
        "fabric": built.network.labels.source,
        "left_out": [{"server": one.name, "why": one.why} for one in built.left_out],
        "own": _own(built),
        "scenario": scenario.data,
    }


def _own(built: Built) -> dict[str, Any]:
    """Return the step of the layout that the scenario itself has; None if it has no way."""
    own: dict[str, Any] = {"layout": str(built.layout), "gpus": built.layout.gpus}
    try:
        report = step(
            built.network, built.model, built.layout, built.placement, built.routing,
            built.profile, built.seed, gpu=built.gpu, allocation=built.allocation, by=None,
            allow_infeasible=True,
        )  # fmt: skip
    except InfeasibleError as error:
        return own | {"step_time_s": None, "margin": None, "why": str(error)}
    return own | {"step_time_s": report.step_time, "margin": report.memory.margin}


def text(answer: dict[str, Any]) -> list[str]:
    """Return the lines of an answer."""
    best, own = answer["top"][0], answer["own"]
    by_cost = answer["of"] == "cost"
    amount = (lambda value: f"{value:,.6g} GPU seconds") if by_cost else seconds
    cost = f", {amount(answer['objective'])}" if by_cost else ""
    lines = [
        f"{answer['model']} on {answer['fabric']}",
        f"  {counted(answer['legal'], 'layout')} of {answer['candidates']:,} suit and fit; "
        f"{answer['evaluations']:,} scored exactly, {answer['solves']:,} sets of degrees solved, "
        f"{answer['seconds']:.1f} s",
        *_told(answer),
        "",
        f"best {seconds(best['step_time_s'])}, {best['tokens_per_s']:,.0f} tokens/s"
        f"{cost}; bound {amount(answer['bound'])}, gap {answer['gap']:.2%}",
        *choice_lines(answer["top"], best["step_time_s"]),
        *_tight(best["margin"]),
        *megatron_lines(answer["megatron"]),
        own_line(own, best["step_time_s"]),
        f"the layout of the least bound, as if nothing met on a link, takes "
        f"{seconds(answer['ideal']['step_time_s'])} "
        f"({rise(answer['ideal']['step_time_s'] / best['step_time_s'] - 1)})",
    ]
    if answer["front"]:
        lines += ["", f"front of throughput, memory and cost ({len(answer['front']):,})"]
        lines += choice_lines(answer["front"][:_MOST_FRONT], best["step_time_s"])
        if (more := len(answer["front"]) - _MOST_FRONT) > 0:
            lines.append(f"  and {more:,} more, with `--format json`")
    reasons = sorted(answer["pruned"].items(), key=lambda item: -item[1])
    lines += ["", "left out"]
    lines += [f"  {row}" for row in table([[f"{n:,}", why] for why, n in reasons], right=[0])]
    if why := answer.get("why"):
        lines += ["", f"{why['layout']}: {why['reason'] or 'is in the space'}"]
    return lines


def own_line(own: dict[str, Any], best: float) -> str:
    """Return the line about the layout that the scenario itself has."""
    if own["step_time_s"] is None:
        return f"own layout has no way on this fabric: {own['layout']}"
    fits = "; does not fit in memory" if own["margin"] < 0 else ""
    change = rise(own["step_time_s"] / best - 1)
    return f"own layout {seconds(own['step_time_s'])} ({change}): {own['layout']}{fits}"


def _told(answer: dict[str, Any]) -> list[str]:
    """Return what is left out of the fabric, and of the layouts that fit."""
    lines = [f"  {left_out(answer['left_out'])}"] if answer["left_out"] else []
    if found := answer["unreachable"]:
        lines.append(f"  {counted(found, 'layout')} found with an exchange that has no way")
    return lines


def choice_lines(choices: list[dict[str, Any]], best: float) -> list[str]:
    """Return a table of layouts with their steps, compared with the best one."""
    rows = [["step", "change", "GPUs", "memory left", "GPU-hours/Gtoken", "ranks", "layout"]]
    for one in choices:
        layers = f" ({one['recompute_layers']} layers)" if one["recompute_layers"] else ""
        rows.append([
            seconds(one["step_time_s"]), rise(one["step_time_s"] / best - 1), f"{one['gpus']:,}",
            percent(one["margin"]), f"{one['gpu_hours_per_billion_tokens']:,.1f}",
            one["rank_order"], _short(one["layout"]) + layers,
        ])  # fmt: skip
    return [f"  {row}" for row in table(rows, right=[0, 1, 2, 3, 4])]


def _short(layout: str) -> str:
    """Return the words of a layout that differ between layouts, sizes of 1 left out."""
    same = ("ep", "etp", "gbs", "seq", "schedule", "bf16", "fp16", "fp8", "fp32")
    idle = ("vpp1", "cp1", "zero0", "recompute=none")
    return " ".join(
        word for word in layout.split() if not word.startswith(same) and word not in idle
    )


def _tight(margin: float) -> list[str]:
    """Return a remark where little memory is left: what a run allocates besides may not fit."""
    if margin >= _ROOMY:
        return []
    return [f"  only {percent(margin)} of the memory is left: `--least-margin 0.05` asks for more"]


def megatron_lines(options: str) -> list[str]:
    """Return options on lines that a screen holds, each option with its value."""
    lines = [""]
    for word in f" {options}".split(" --")[1:]:
        if len(lines[-1]) + len(word) > 88:
            lines.append("")
        lines[-1] = f"{lines[-1]} --{word}".lstrip()
    return ["  Megatron-LM:", *(f"    {line}" for line in lines)]
