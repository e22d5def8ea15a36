"""Columns of a flow table: which field each one is, in which unit, and its cells as numbers."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from jaxtyping import Float

from fabric._errors import ModelError, nearest, some
from fabric._units import parse_rate, parse_size, parse_time
from fabric.traffic._names import at_line

SYNONYMS = {
    "src": ("src", "source", "from", "sender"),
    "dst": ("dst", "dest", "destination", "to", "target", "receiver"),
    "size": ("size", "bytes", "volume", "demand"),
    "start": ("start", "start_time", "arrival"),
    "weight": ("weight",),
    "cap": ("cap", "rate_cap", "max_rate"),
}
REQUIRED = ("src", "dst")
_FIELD_OF = {word: field for field, words in SYNONYMS.items() for word in words}
_PARSERS: dict[str, Callable[[str, str], float]] = {
    "size": parse_size, "start": parse_time, "cap": parse_rate,
}  # fmt: skip
_KINDS = {
    "size": "finite size in bytes", "start": "finite time in seconds", "cap": "rate in byte/s",
}  # fmt: skip
_UNIT = re.compile(r"(.+?)\s*(?:[\[(]([^\])]+)[\])]|_([A-Za-zµ]+(?:/s)?))")


@dataclass(frozen=True)
class Column:
    """Where a field stands in the table, and what one unit of a bare number is."""

    field: str
    header: str
    position: int
    scale: float


def find_columns(
    where: str, header: Sequence[str], renamed: Mapping[str, str | None] | None
) -> tuple[dict[str, Column], list[str]]:
    """Return the column of every field, and the faults of the header.

    Args:
        where: The file, as messages call it.
        header: Its first row.
        renamed: Header to field, with a unit suffix where it has one; None to leave it out.
    """
    renamed = dict(renamed or {})
    faults = [
        f"`columns`: {where} has no column '{name}'. {nearest(name, header)}"
        for name in renamed
        if name not in header
    ]
    found: dict[str, Column] = {}
    for position, name in enumerate(header):
        meant = renamed.get(name, name)
        if meant is None:
            continue
        field, unit = _field(meant)
        if field is None:
            faults.append(
                f"{where} has the unknown column '{name}'. {nearest(meant, list(SYNONYMS))} Map it "
                f"to one of these, or leave it out, with `columns={{'{name}': None}}`."
            )
        elif field in found:
            first = found[field].header
            step = f"Map one elsewhere, or leave it out, with `columns={{'{name}': None}}`."
            if name == first:
                step = "Delete or rename one."
            faults.append(f"{where} gives `{field}` twice: {some([first, name])}. {step}")
        else:
            scale = _scale(where, name, field, unit, faults)
            found[field] = Column(field, name, position, scale)
    missing = [field for field in REQUIRED if field not in found]
    if missing:
        faults.append(
            f"{where} has no column {some(missing)}: its first line has {some(header)}. It needs "
            f"`src` and `dst`, and may have `size`, `start`, `weight` and `cap`."
        )
    return found, faults


def to_numbers(
    where: str, column: Column, cells: Sequence[str], lines: Sequence[int], empty: float | None
) -> tuple[Float[np.ndarray, " flows"], list[str]]:
    """Return the cells of a column as numbers in internal units, and its faults.

    Args:
        where: The file, as messages call it.
        column: The column.
        cells: (flows,), text.
        lines: (flows,), where they stand.
        empty: What an empty cell means; None where it is a fault.
    """
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells)) * column.scale
    except ValueError:
        read = {text: _number(text, column, empty) for text in dict.fromkeys(cells)}
        values = np.fromiter((read[text] for text in cells), np.float64, len(cells))
    positive = column.field == "weight"
    high = values <= np.inf if column.field == "cap" else values < np.inf
    bad = np.flatnonzero(~(((values > 0) if positive else (values >= 0)) & high))
    if not len(bad):
        return values, []
    kind = (
        "finite number" if positive else f"{_KINDS[column.field]}, a number or text with its unit,"
    )

    def at(row: int) -> str:
        return at_line(cells[row], lines[row])

    return values, [
        f"{where} needs a {kind} of {'more than 0' if positive else '0 or more'} in column "
        f"'{column.header}', but {len(bad):,} of {len(cells):,} rows have something else: "
        f"{some(bad.tolist(), name=at)}."
    ]


def _field(word: str) -> tuple[str | None, str | None]:
    plain = word.strip().lower().replace(" ", "_")
    if plain in _FIELD_OF:
        return _FIELD_OF[plain], None
    match = _UNIT.fullmatch(word.strip())
    if match is None:
        return None, None
    plain = match[1].strip().lower().replace(" ", "_")
    return _FIELD_OF.get(plain), (match[2] or match[3]).strip()


def _scale(where: str, header: str, field: str, unit: str | None, faults: list[str]) -> float:
    if unit is None:
        return 1.0
    if field not in _PARSERS:
        faults.append(f"{where}: column '{header}' has the unit '{unit}', but `{field}` has none.")
        return 1.0
    try:
        return _PARSERS[field](f"1{unit}", header)
    except ModelError as error:
        faults.append(f"{where}: column {error}")
        return 1.0


def _number(text: str, column: Column, empty: float | None) -> float:
    """Return the number in a cell, NaN where there is none."""
    try:
        if not text:
            return np.nan if empty is None else empty
        return float(text) * column.scale
    except ValueError:
        pass
    try:
        return _PARSERS[column.field](text, column.header) if column.field in _PARSERS else np.nan
    except ModelError:
        return np.nan


def unique(columns: Iterable[Sequence[str]]) -> list[str]:
    """Return the texts of some columns, each once, in order of appearance."""
    return list(dict.fromkeys(chain.from_iterable(columns)))
