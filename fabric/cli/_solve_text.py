"""The answer of `fabric solve` for people: one screen."""

import re
import textwrap
from typing import Any

from fabric._units import format_rate
from fabric.cli._demand import AT_ONCE
from fabric.cli._output import table
from fabric.cli._sensitivity import lines as _sensitivities
from fabric.cli._units import bits, counted, cut_link, fitted, listed, percent

_STATS = ("slowest", "median", "mean", "max")
_KEYS = ("slowest", "mean", "median")
_FLOW = {"slowest": "slowest flow"}
_SEEN = 0.0005
"""A share that shows as 0.1 % or more."""
_WIDTH = 98


def text(answer: dict[str, Any], top: int) -> list[str]:
    """Return the lines of an answer; `top` limits what is listed."""
    lines = [*_header(answer), *_rates(answer), ""]
    lines += _tiers(answer["tiers"])
    lines += _bottlenecks(answer)
    if said := _sensitivities(answer):
        lines += ["", *said]
    if design := answer.get("uniform_design"):
        lines += ["", *_design(answer, design)]
    if plug := answer.get("plug"):
        lines += _plug(plug, min(top, 6))
    lines += textwrap.wrap(
        f"solved by {answer['method']}, {counted(answer['rounds'], 'round')}, certificate "
        f"{answer['certificate']:.0e}, tie margin {answer['tie_margin']:.1g}",
        100,
    )
    if design := answer.get("uniform_design"):
        lines += ["", *_verdict(answer, design)]
    return lines


def _header(answer: dict[str, Any]) -> list[str]:
    fabric, routing = answer["fabric"], answer["routing"]
    lines = [f"{answer['demand']} on {fabric['source']}"]
    lines.append(
        f"  {counted(answer['flows'], 'flow')} among {counted(answer['endpoints'], 'endpoint')}; "
        f"{answer['links_used']:,} of {counted(answer['links_present'], 'link')} used"
    )
    if out := answer["flows_left_out"]:
        lines.append(f"  {counted(out, 'flow')} left out: an end failed or is not of `--hosts`")
    if any(entry["source"] == AT_ONCE for entry in answer["assumptions"]):
        lines.append(f"  {AT_ONCE}")
    seed = f", seed {routing['seed']}" if routing["draws"] else ""
    seed += "".join(f", {key} {value}" for key, value in routing["options"].items())
    pairs = f", {routing['queue_pairs']} queue pairs" if routing["queue_pairs"] > 1 else ""
    lines += textwrap.wrap(
        f"routing: {routing['name']}{seed}{pairs} ({routing['why']})",
        100, initial_indent="  ", subsequent_indent="    ",
    )  # fmt: skip
    failed = [listed(fabric["failed"], 5)] if fabric["failed"] else []
    if out := answer["endpoints_failed"]:
        failed.append(f"{counted(out, 'endpoint')} without a live link")
    return lines + ([f"  failed: {'; '.join(failed)}"] if failed else [])


def _rates(answer: dict[str, Any]) -> list[str]:
    rate = answer["rate"]
    rows = [
        ["", *_STATS, "total"],
        [
            "per flow",
            *(format_rate(rate[key]) for key in ("min", "median", "mean", "max", "total")),
        ],
    ]
    if each := answer.get("per_endpoint"):
        rows.append(["per endpoint", *_each(each), ""])
    lines = table(rows, right=range(1, 6))
    lines[0] = "rates" + lines[0][5:]
    if each:
        lines[-1] += f"  slowest flow x {answer['endpoints'] - 1:,}"
    return lines


def _each(rates: dict[str, Any], each: bool = True) -> list[str]:
    """Return rates in columns; the largest flow times (n - 1) is no rate that an endpoint has."""
    return [format_rate(rates[key]) if key != "max" or not each else "" for key in _STATS]


def _tiers(tiers: list[dict[str, Any]]) -> list[str]:
    rows = [["load by tier", "mean", "max", "full", "links used", "of"]]
    rows += [
        [
            f"  {row['tier']}",
            percent(row["utilisation"]["mean"]),
            percent(row["utilisation"]["max"]),
            f"{row['saturated']:,}",
            f"{row['links_used']:,}",
            f"{row['links_present']:,}",
        ]
        for row in tiers[:6]
    ]
    lines = table(rows, right=range(1, 6))
    more = [f"  and {counted(len(tiers) - 6, 'more tier')}"] if len(tiers) > 6 else []
    return lines + more


def _bottlenecks(answer: dict[str, Any]) -> list[str]:
    rows, total = answer["bottlenecks"], answer["bottleneck_links"]
    if not total:
        return ["no link stops a flow: every flow is at its cap"]
    head = f"{total:,} links stop flows" if total > 1 else "1 link stops flows"
    if not rows:
        return [head]
    if total > 1:
        order = "slowest" if answer["bottlenecks_by"] == "rate" else "lowest rate per weight"
        head += f", {order} first"
    cells = [[head, "tier", "flows", "rate there", "used"]]
    cells += [
        [
            f"  {cut_link(row['link'], 48)}",
            row["tier"],
            f"{row['flows']:,}",
            format_rate(row["rate"]),
            f"{percent(row['utilisation'])} of {bits(row['capacity'])}",
        ]
        for row in rows
    ]
    return table(cells, right=(2, 3))


def _design(answer: dict[str, Any], design: dict[str, Any]) -> list[str]:
    now = answer.get("per_endpoint") or answer["rate"] | {"slowest": answer["rate"]["min"]}
    each = "per_endpoint" in answer
    unit = "per endpoint" if each else "per flow"
    out = ", without what failed" if answer["fabric"]["failed"] else ""
    rows = [
        [f"cables, {unit}{out}", *_STATS[: 3 if each else 4], *([""] if each else [])],
        [f"  as cabled ({design['have']:,})", *_each(now, each)],
        [
            f"  uniform ({design['cables']:,}, {design['per_pair']} per pair)",
            *_each(design, each),
        ],
    ]
    return table(rows, right=range(1, 5))


def _plug(plug: dict[str, Any], top: int) -> list[str]:
    """Return a line per pair that was tried: what one cable gains, and what all of them gain."""
    pairs: dict[tuple[str, str], dict[bool, dict[str, float]]] = {}
    lacks: dict[tuple[str, str], int] = {}
    for row in plug["cables"]:
        pair = row["leaf"], row["spine"]
        lacks[pair] = row["missing"]
        pairs.setdefault(pair, {})[row["plugged"] > 1] = row["gain"]
    head = f"{counted(plug['pairs'], 'pair')}, by {plug['ranked_by']}"
    cells = [[head, "missing", "one: slowest", "mean", "all: slowest", "mean"]]
    for pair, gains in list(pairs.items())[:top]:
        leaf, spine = fitted(*pair, 36)
        shown = [
            _signed(gains[whole][key]) if whole in gains else ""
            for whole in (False, True)
            for key in ("slowest", "mean")
        ]
        cells.append([f"  {leaf} - {spine}", f"{lacks[pair]:,}", *shown])
    lines = table(cells, right=range(1, 6))
    more = [f"  and {counted(len(pairs) - top, 'more pair')}"] if len(pairs) > top else []
    return lines + more


def _signed(gain: float) -> str:
    # Adding 0 takes the sign off a zero.
    return f"{round(gain * 100, 1) + 0.0:+.1f} %"


def _verdict(answer: dict[str, Any], design: dict[str, Any]) -> list[str]:
    """Return what the missing cables cost and, where cables were tried, which comes first."""
    cost, missing = design["cost"], design["missing"]
    subject = f"The {'missing cable costs' if missing == 1 else f'{missing:,} missing cables cost'}"
    same = " with the same failures" if answer["fabric"]["failed"] else ""
    name = {key: f"the {_FLOW.get(key, key)}" for key in _KEYS}
    lost = [f"{name[key]} {percent(cost[key])}" for key in _KEYS if cost[key] >= _SEEN]
    won = [f"{name[key]} gains {percent(-cost[key])}" for key in _KEYS if cost[key] <= -_SEEN]
    said = f"{subject} {_and(lost) or 'nothing'} against the uniform design{same}"
    if won:
        said += f"; {_and(won)}"
    lines = _folded(f"{said}.")
    if plug := answer.get("plug"):
        lines += _folded(_advice(plug))
    if answer["routing"]["name"] == "ecmp":
        seed = answer["routing"]["seed"]
        lines.append(f"All of this is one hash draw, seed {seed}: try other seeds.")
    return lines


def _folded(sentence: str) -> list[str]:
    """Return lines of one width; a number stays with its unit."""
    tied = re.sub(r"(\d) (?=%|[kMGTP]?B/s)", "\\1\0", sentence)
    return [line.replace("\0", " ") for line in textwrap.wrap(tied, _WIDTH)]


def _and(items: list[str]) -> str:
    return f"{', '.join(items[:-1])} and {items[-1]}" if len(items) > 1 else "".join(items)


def _advice(plug: dict[str, Any]) -> str:
    best, before = plug["cables"][0], plug["before"]
    change = {
        key: f"from {format_rate(before[key])} to {format_rate(best[key])} "
        f"({_signed(best['gain'][key])})"
        for key in ("slowest", "mean")
    }
    many = "" if best["missing"] == 1 else f"{counted(best['plugged'], 'cable')} of "
    first = f"plug {many}{best['leaf']} - {best['spine']} first"
    if plug["raises_slowest"]:
        return (
            f"P{first[1:]}: it takes the slowest flow {change['slowest']}, "
            f"the mean {change['mean']}."
        )
    most = max(row["gain"]["slowest"] for row in plug["cables"])
    by = f" by more than {percent(most)}" if most >= _SEEN else ""
    single = "pair" if plug["tried"] > plug["pairs"] else "cable"
    alone = f"No single {single} raises the slowest flow{by}"
    if best["gain"]["mean"] <= 0:
        return f"{alone}, and none raises the mean."
    return f"{alone}; by the mean, {first}: it takes the mean {change['mean']}."
