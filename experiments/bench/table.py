"""Results as a Markdown table."""

from collections.abc import Iterable, Mapping
from typing import Any

HEADINGS = ("cell", "median", "min to max", "target", "first call", "peak", "certificate")


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return one line per result; a cell that failed says why.

    Examples:
        >>> print(table([{"cell": "a/b", "median_s": 0.002, "min_s": 0.001, "max_s": 0.0025,
        ...     "target_s": None, "first_call_s": 1.5, "peak_mb": 12.0}]).splitlines()[-1])
        | a/b | 2.0 ms | 1.0 ms to 2.5 ms |  | 1.5 s | 12 MB |  |
    """
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---" + "|--:" * (len(HEADINGS) - 1) + "|"]
    for row in rows:
        if "error" in row or "absent" in row:
            why = f"failed: {row['error']}" if "error" in row else f"not here: {row['absent']}"
            cells = [row["cell"], why, *[""] * (len(HEADINGS) - 2)]
        else:
            certificate = row.get("certificate")
            cells = [
                row["cell"],
                seconds(row.get("median_s")),
                f"{seconds(row['min_s'])} to {seconds(row['max_s'])}" if "min_s" in row else "",
                seconds(row.get("target_s")),
                seconds(row.get("first_call_s")),
                "" if row.get("peak_mb") is None else f"{row['peak_mb']:,.0f} MB",
                "" if certificate is None else f"{certificate:.1e}",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def seconds(value: float | None) -> str:
    """Return seconds with a unit that suits them, nothing for None.

    Examples:
        >>> seconds(0.0000123), seconds(0.0123), seconds(12.3), seconds(None)
        ('12 us', '12 ms', '12 s', '')
    """
    if value is None:
        return ""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if abs(value) * scale >= 1:
            size = value * scale
            return f"{size:.0f} {unit}" if abs(size) >= 10 else f"{size:.1f} {unit}"
    return f"{value * 1e6:.0f} us"
