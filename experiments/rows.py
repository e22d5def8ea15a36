"""What an experiment answers with: rows of a quoted and a computed number, and a verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

VERDICTS = ("holds", "refuted", "short")
"""The quote holds; the quote is wrong, and this is the honest number; ours falls short of it."""


@dataclass(frozen=True)
class Row:
    """One number that others published, and ours.

    Attributes:
        id: What it is of.
        quoted: The published number.
        computed: Ours.
        unit: Of both.
        allowed: Largest relative error with which the quote counts as reproduced.
        source: Where the quote is from.
        note: What a reader should know.
        refuted: The quote itself is wrong; `note` says why.
    """

    id: str
    quoted: float
    computed: float
    unit: str
    allowed: float
    source: str
    note: str = ""
    refuted: bool = False

    @property
    def error(self) -> float:
        """Relative error of ours against the quote; against a quote of 0 the number itself."""
        return self.computed / self.quoted - 1 if self.quoted else self.computed

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        if self.refuted:
            return "refuted"
        return "holds" if abs(self.error) <= self.allowed else "short"

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return asdict(self) | {"error": self.error, "verdict": self.verdict}


@dataclass(frozen=True)
class Result:
    """The answer of an experiment.

    Attributes:
        rows: One per number.
        summary: Numbers over all rows, by name.
        notes: Sentences for people.
        tables: Lines beside the rows, which decide on no verdict, by title.
    """

    rows: Sequence[Row]
    summary: dict[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    tables: Mapping[str, Sequence[dict[str, Any]]] = field(default_factory=dict)

    @property
    def reproduced(self) -> bool:
        """Whether no row falls short."""
        return all(row.verdict != "short" for row in self.rows)


def errors(rows: Sequence[Row]) -> dict[str, float]:
    """Return mean, median and worst absolute error of rows, in percent."""
    sizes = sorted(abs(row.error) for row in rows)
    middle = len(sizes) // 2
    median = sizes[middle] if len(sizes) % 2 else (sizes[middle - 1] + sizes[middle]) / 2
    return {
        "mean_pct": 100 * sum(sizes) / len(sizes),
        "median_pct": 100 * median,
        "worst_pct": 100 * sizes[-1],
    }
