"""The answer of `fabric solve` for people: one screen."""

import re
import textwrap
from typing import Any

from fabric._units import format_rate
from fabric.cli._output import table
from fabric.cli._units import bits, percent

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
    if design := answer.get("uniform_design"):
        lines += ["", *_design(answer, design)]
    if plug := answer.get("plug"):
        lines += _plug(plug, min(top, 6))
    lines.append(
        f"solved by {answer['method']}, {answer['rounds']:,} rounds, certificate "
        f"{answer['certificate']:.0e}"
    )
    if design := answer.get("uniform_design"):
        lines += ["", *_verdict(answer, design)]
    return lines


def _header(answer: dict[str, Any]) -> list[str]:
    fabric, routing = answer["fabric"], answer["routing"]
    lines = [f"{answer['demand']} on {fabric['source']}"]
    lines.append(
        f"  {answer['flows']:,} flows among {answer['endpoints']:,} endpoints; "
        f"{answer['links_used']:,} of {answer['links_present']:,} links used"
    )
    seed = f", seed {routing['seed']}" if routing["name"] == "ecmp" else ""
    pairs = f", {routing['queue_pairs']} queue pairs" if routing["queue_pairs"] > 1 else ""
    lines.append(f"  routing: {routing['name']}{seed}{pairs} ({routing['why']})")
    if fabric["failed"] or answer["endpoints_failed"]:
        out = answer["endpoints_failed"]
        also = f"; {out:,} endpoints with it" if out else ""
        lines.append(f"  failed: {', '.join(fabric['failed'][:5])}{also}")
    return lines


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
    return lines + ([f"  and {len(tiers) - 6} more tiers"] if len(tiers) > 6 else [])


def _bottlenecks(answer: dict[str, Any]) -> list[str]:
    listed, total = answer["bottlenecks"], answer["bottleneck_links"]
    if not total:
        return ["no link stops a flow: every flow is at its cap"]
    if not listed:
        return [f"{total:,} links stop flows"]
    head = f"{total:,} links stop flows" + (", slowest first" if total > 1 else "")
    rows = [[head, "tier", "flows", "rate there", "used"]]
    rows += [
        [
            f"  {_cut(row['link'])}",
            row["tier"],
            f"{row['flows']:,}",
            format_rate(row["level"]),
            f"{percent(row['utilisation'])} of {bits(row['capacity'])}",
        ]
        for row in listed
    ]
    return table(rows, right=(2, 3))


def _cut(name: str, width: int = 56) -> str:
    """Return a name that leaves room for the numbers, its middle left out where it is too long."""
    half = width // 2 - 1
    return name if len(name) <= width else f"{name[:half]}..{name[-half:]}"


def _design(answer: dict[str, Any], design: dict[str, Any]) -> list[str]:
    now = answer.get("per_endpoint") or answer["rate"] | {"slowest": answer["rate"]["min"]}
    each = "per_endpoint" in answer
    unit = "per endpoint" if each else "per flow"
    rows = [
        [f"cables, {unit}", *_STATS[: 3 if each else 4], *([""] if each else [])],
        [f"  as cabled ({design['have']:,})", *_each(now, each)],
        [
            f"  uniform ({design['cables']:,}, {design['per_pair']} per pair)",
            *_each(design, each),
        ],
    ]
    return table(rows, right=range(1, 5))


def _plug(plug: dict[str, Any], top: int) -> list[str]:
    listed = plug["cables"][:top]
    rows = [
        [f"{plug['tried']} single cables tried, by {plug['ranked_by']}", "slowest", "", "mean", ""]
    ]
    rows += [
        [
            f"  {_cut(_cable(row))}",
            format_rate(row["slowest"]),
            _signed(row["gain"]["slowest"]),
            format_rate(row["mean"]),
            _signed(row["gain"]["mean"]),
        ]
        for row in listed
    ]
    lines = table(rows, right=range(1, 5))
    lone = [row for row in plug["cables"] if row["missing"] > 1 and row["gain"]["mean"] < -_SEEN]
    if lone:
        lines.append(
            f"  {len(lone)} of these lower the mean when plugged alone: their pairs lack "
            f"{_range([row['missing'] for row in lone])} cables, so plug all of a pair."
        )
    return lines


def _range(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"


def _cable(row: dict[str, Any]) -> str:
    return f"{row['leaf']} - {row['spine']}"


def _signed(gain: float) -> str:
    return f"{gain * 100:+.1f} %"


def _verdict(answer: dict[str, Any], design: dict[str, Any]) -> list[str]:
    """Return what the missing cables cost and, where cables were tried, which comes first."""
    cost, missing = design["cost"], design["missing"]
    one = missing == 1
    subject = f"The {'missing cable costs' if one else f'{missing:,} missing cables cost'}"
    name = {key: f"the {_FLOW.get(key, key)}" for key in _KEYS}
    lost = [f"{name[key]} {percent(cost[key])}" for key in _KEYS if cost[key] >= _SEEN]
    won = [f"{name[key]} gains {percent(-cost[key])}" for key in _KEYS if cost[key] <= -_SEEN]
    said = f"{subject} {_and(lost) or 'nothing'} against the uniform design"
    if won:
        why = "other hashes collide" if answer["routing"]["name"] == "ecmp" else "others yield"
        said += f"; {_and(won)}, since {why}"
    lines = _folded(f"{said}.")
    if plug := answer.get("plug"):
        lines += _folded(_advice(plug))
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
    first = f"plug {_cable(best)} first"
    if plug["raises_slowest"]:
        return (
            f"P{first[1:]}: it takes the slowest flow {change['slowest']}, "
            f"the mean {change['mean']}."
        )
    most = max(row["gain"]["slowest"] for row in plug["cables"])
    by = f" by more than {percent(most)}" if most >= _SEEN else ""
    alone = f"No single cable raises the slowest flow{by}, since other links are about as slow"
    if best["gain"]["mean"] <= 0:
        return f"{alone}, and none raises the mean: plug several together."
    return f"{alone}; by the mean, {first}: it takes the mean {change['mean']}."
