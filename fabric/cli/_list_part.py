"""`fabric list KIND NAME`: the numbers of one part, each with its kind of evidence and source."""

import textwrap
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from fabric._evidence import Evidence
from fabric._units import format_rate, format_size
from fabric.cli._list_rules import RULE_KINDS, rows_text, rule, rule_rows, rule_text
from fabric.cli._output import known

WIDTH = 100
KINDS = ("gpu", "server", "nic", "switch", "profile", "model", *RULE_KINDS)
"""What `fabric list` shows one of."""

_RATES = ("hbm", "scale_up", "rate", "link_rate", "pcie_rate", "socket_rate")


def part(kind: str, name: str) -> dict[str, Any]:
    """Return what is known of one part, schema `fabric.part/1`.

    Args:
        kind: One of `KINDS`, or its plural.
        name: Of the part, or an alias.

    Raises:
        ModelError: If there is no such kind or part.
    """
    kind = known("KIND", _singular(kind), KINDS)
    if kind in RULE_KINDS:
        return rule(kind, name)
    record = _getters()[kind](name)
    plain: dict[str, Any] = {}
    numbers = []
    for path, value in _values(record, ""):
        if isinstance(value, Evidence):
            row = {"name": path, "value": value.value, "unit": _unit(kind, path)}
            row |= {"kind": value.kind, "source": value.source}
            if value.low is not None or value.high is not None:
                row["band"] = [value.low, value.high]
            numbers.append(row)
        elif path not in ("name", "source"):
            plain[path] = list(value) if isinstance(value, tuple) else value
    if kind == "model":
        plain["parameters"] = record.parameters
    source = getattr(record, "source", None)
    return {
        "schema": "fabric.part/1", "part": kind, "name": record.name, "source": source,
        "settings": plain, "numbers": numbers,
    }  # fmt: skip


def part_names(kind: str) -> dict[str, Any]:
    """Return the names of one kind, for `fabric list KIND`.

    Raises:
        ModelError: If there is no such kind.
    """
    from fabric import hardware
    from fabric.training import model_names

    kind = known("KIND", _singular(kind), KINDS)
    if kind in RULE_KINDS:
        rows = rule_rows(kind)
        names = [row["name"] for row in rows]
        return {"schema": "fabric.part/1", "part": kind, "names": names, "rows": rows}
    plural = "switches" if kind == "switch" else f"{kind}s"
    found = model_names() if kind == "model" else hardware.names(plural)
    return {"schema": "fabric.part/1", "part": kind, "names": list(found)}


def text(answer: dict[str, Any]) -> list[str]:
    """Return a part, or the names of a kind, for people."""
    if "rows" in answer:
        return rows_text(answer["rows"], WIDTH)
    if "names" in answer:
        return list(answer["names"])
    if "parameters" in answer:
        return rule_text(answer, WIDTH)
    lines = [f"{answer['part']} {answer['name']}"]
    if answer["source"]:
        kind = answer["settings"].get("kind")
        lines += _folded(f"  {kind + ': ' if kind else ''}{answer['source']}")
    settings = {key: value for key, value in answer["settings"].items() if key != "kind"}
    for key, value in settings.items():
        shown = _listed(value) if isinstance(value, list) else _plain(value)
        lines += _folded(f"  {key:24} {shown}")
    for row in answer["numbers"]:
        value = shown_value(row["value"], row["unit"])
        ends = [shown_value(end, row["unit"]) for end in row.get("band", []) if end is not None]
        span = f" ({' to '.join(ends)})" if ends else ""
        lines += _folded(f"  {row['name']:24} {value}{span}  {row['kind']}: {row['source']}")
    return lines


def shown_value(value: float, unit: str) -> str:
    """Return a number with its unit, for people.

    Examples:
        >>> shown_value(989e12, "FLOP/s"), shown_value(50e9, "byte/s"), shown_value(2.7e-6, "s")
        ('989 TFLOP/s', '50.00 GB/s', '2.7 us')
    """
    if unit == "byte/s":
        return format_rate(value)
    if unit == "byte":
        return format_size(value)
    scales = {
        "FLOP/s": ((1e12, "T"),), "s": ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n")),
    }.get(unit, ())  # fmt: skip
    for scale, prefix in scales:
        if value >= scale:
            return f"{value / scale:,.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}".rstrip()


def _getters() -> dict[str, Callable[[str], Any]]:
    from fabric import hardware
    from fabric.training import Model

    return {
        "gpu": hardware.gpu, "server": hardware.server, "nic": hardware.nic,
        "switch": hardware.switch, "profile": hardware.profile, "model": Model.listed,
    }  # fmt: skip


def _singular(kind: str) -> str:
    odd = {"switches": "switch", "topologies": "topology", "builders": "topology"}
    return odd.get(kind, kind.removesuffix("s"))


def _values(record: Any, prefix: str) -> list[tuple[str, Any]]:
    """Return the fields of a record by dotted name, those of records in it too."""
    if isinstance(record, Evidence) or not (
        hasattr(record, "__dataclass_fields__") or isinstance(record, dict)
    ):
        return [(prefix, record)]
    items = record if isinstance(record, dict) else {
        field.name: getattr(record, field.name) for field in fields(record)
    }  # fmt: skip
    under = f"{prefix}." if prefix else ""
    return [found for key, value in items.items() for found in _values(value, f"{under}{key}")]


def _unit(kind: str, path: str) -> str:
    head = path.partition(".")[0]
    if kind == "gpu":
        return {"peak": "FLOP/s", "memory": "byte"}.get(head, "byte/s")
    if kind == "profile":
        return "s" if head == "latency" else ""
    return "byte/s" if path in _RATES else ""


def _listed(value: list[Any]) -> str:
    return ", ".join(map(str, value)) or "none"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _folded(line: str) -> list[str]:
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=" " * 27, break_on_hyphens=False, replace_whitespace=False
    )
