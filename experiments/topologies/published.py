"""The published numbers: entries of a file beside the checkout, and how exactly each is printed."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[3] / "shared" / "validation" / "topologies.json"

_UNSURE = ("from-memory", "mixed")


@dataclass(frozen=True)
class Entry:
    """A fabric or a part, and what is published of it.

    Attributes:
        name: What it is called.
        kind: Which family it is of.
        params: What it is built from.
        expected: The published numbers, by key; may be nested.
        source: Where they are from.
        confidence: How sure they are.
        printed: Keys that the source states literally; all others are derived.
        notes: What a reader should know.
    """

    name: str
    kind: str
    params: dict[str, Any]
    expected: dict[str, Any]
    source: str
    confidence: str
    printed: tuple[str, ...] = ()
    notes: str = ""

    @property
    def sure(self) -> bool:
        """Whether the numbers count, rather than being from memory in part."""
        return not any(word in self.confidence for word in _UNSURE)


def entries(file: Path = FILE) -> list[Entry]:
    """Return all entries.

    Args:
        file: JSON, a list of objects with the fields of an `Entry`.

    Raises:
        FileNotFoundError: If the reference data are absent.
    """
    if not file.is_file():
        message = (
            f"The published numbers are no part of this project and are read from '{file}', which "
            f"is absent. Put the reference data there, beside the checkout."
        )
        raise FileNotFoundError(message)
    return [Entry(**raw) for raw in json.loads(file.read_text(encoding="utf-8"))]


def flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings and lists with their dotted key."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flat(f"{key}.{name}", inner)
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from flat(f"{key}.{i}", inner)
    else:
        yield key, value


def allowed(quoted: float) -> float:
    """Return the relative error that the printed digits leave: half a unit of the last one.

    Whole numbers are exact, also where they are printed with a `.0`.

    Examples:
        >>> allowed(32), allowed(25.0), round(allowed(1.7318) * 1.7318, 9)
        (0.0, 1e-09, 5e-05)
    """
    if isinstance(quoted, int):
        return 0.0
    if float(quoted).is_integer():
        return 1e-9
    text = repr(float(quoted))
    digits = 0 if "e" in text else len(text.partition(".")[2])
    # A number that ends on 5 just behind the last digit is rounded either way.
    return 0.5 * 10.0**-digits / abs(quoted) * (1 + 1e-6) if math.isfinite(quoted) else 0.0
