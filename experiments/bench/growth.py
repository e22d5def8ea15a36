"""How times grow with size: the slope of log time over log flows, ours beside the reference's."""

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

FAMILY = ("ft-10k", "ft-100k", "ft-1m")
"""Sizes over which growth is read: one flow per port of ever larger fat trees."""

SLACK = 0.05
"""By how much our slope may exceed that of the reference."""

Row = Mapping[str, Any]
Points = list[tuple[float, float]]


def points(rows: Iterable[Row], phase: str, method: str) -> Points:
    """Return (flows, least seconds) of the family, by rising size."""
    mine = [
        row for row in rows
        if row.get("problem") == "permutation" and row.get("size") in FAMILY
        and row.get("phase") == phase and row.get("method") == method and "min_s" in row
    ]  # fmt: skip
    return sorted((float(row["flows"]), float(row["min_s"])) for row in mine)


def slope(measured: Points) -> float | None:
    """Return the least-squares slope of log time over log flows, None of fewer than two sizes.

    Examples:
        >>> slope([(10.0, 1.0), (100.0, 10.0), (1000.0, 100.0)])
        1.0
    """
    if len(measured) < 2:
        return None
    x = [math.log(flows) for flows, _ in measured]
    y = [math.log(seconds) for _, seconds in measured]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    rise = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return round(rise / sum((a - mean_x) ** 2 for a in x), 12)


def growth_table(rows: Sequence[Row]) -> str:
    """Return a Markdown table: slopes, and our time over the reference's at each size."""
    ours, reference = points(rows, "rates", "compiled"), points(rows, "rates", "cpp")
    lines = ["| growth with flows | slope | allowed |", "|---|--:|--:|"]
    number = lambda value: "" if value is None else f"{value:.3f}"
    limit = slope(reference)
    lines.append(f"| C++ reference | {number(limit)} |  |")
    allowed = None if limit is None else limit + SLACK
    lines.append(f"| rates, compiled | {number(slope(ours))} | {number(allowed)} |")
    lines.append(
        f"| whole solve, compiled | {number(slope(points(rows, 'solve', 'compiled')))} |  |"
    )
    lines += ["", "| size | compiled over C++ reference, medians |", "|---|--:|"]
    for size, ratio in ratios(rows).items():
        lines.append(f"| {size} | {ratio:.2f} |")
    return "\n".join(lines)


def ratios(rows: Iterable[Row]) -> dict[str, float]:
    """Return our median over that of the C++ reference, for every size that has both."""
    medians = {
        (row["size"], row["method"]): float(row["median_s"])
        for row in rows
        if row.get("phase") == "rates" and "median_s" in row
    }
    return {
        size: medians[size, "compiled"] / seconds
        for (size, method), seconds in medians.items()
        if method == "cpp" and (size, "compiled") in medians
    }


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw time over flows for every phase and method of the family, both axes logarithmic."""
    figure = import_module("matplotlib.figure").Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for phase, method in (
        ("rates", "cpp"), ("rates", "compiled"), ("solve", "compiled"), ("reverse", "compiled"),
        ("solve", "rounds"),
    ):  # fmt: skip
        measured = points(rows, phase, method)
        if measured:
            axes.loglog(*zip(*measured, strict=True), "o-", label=f"{phase}, {method}")
    axes.set(xlabel="flows", ylabel="seconds", title="Permutation on a fat tree, one thread")
    axes.legend()
    figure.savefig(path)
