"""The table that `sensitivities` returns: rows for programs, JSON and people."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from fabric._errors import ModelError, nearest


@dataclass(frozen=True)
class Sensitivity:
    """What a group of links does to the objective; one row of a table.

    Attributes:
        key: The tier, class, node, link or cable.
        links: Directed live links in it.
        gain_per_plus_1pct: Percent by which the objective rises per percent of capacity that
            every link of the group has more; negative if it falls.
        loss_per_minus_1pct: Percent by which it falls per percent that every link has less.
        exact_within_plus_pct: Percent of capacity up to which the gain stays exact; infinite if
            nothing changes however much is added.
        exact_within_minus_pct: The same for the loss, at most 100.
    """

    key: str
    links: int
    gain_per_plus_1pct: float
    loss_per_minus_1pct: float
    exact_within_plus_pct: float
    exact_within_minus_pct: float

    @property
    def exact_within_pct(self) -> float:
        """Percent of capacity, either way, up to which both numbers are exact."""
        return min(self.exact_within_plus_pct, self.exact_within_minus_pct)

    @property
    def kink(self) -> bool:
        """Whether more and less differ, as they do at a tie."""
        gain, loss = self.gain_per_plus_1pct, self.loss_per_minus_1pct
        return abs(gain - loss) > 1e-9 * max(abs(gain), abs(loss))


@dataclass(frozen=True)
class Sensitivities(Sequence[Sensitivity]):
    """Rows by falling gain, then by falling loss.

    Attributes:
        by: What links are taken together by.
        objective: Its name.
        value: Its value.
        rows: The rows.
        left_out: What is not among the rows and why, in sentences.
    """

    by: str
    objective: str
    value: float
    rows: tuple[Sensitivity, ...]
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Sensitivity: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Sensitivity, ...]: ...
    def __getitem__(self, index: int | slice) -> Sensitivity | tuple[Sensitivity, ...]:
        return self.rows[index]

    def __iter__(self) -> Iterator[Sensitivity]:
        return iter(self.rows)

    def row(self, key: str) -> Sensitivity:
        """Return the row of one group; the error for an unknown key offers the nearest."""
        for row in self.rows:
            if row.key == key:
                return row
        message = f"No row has the key '{key}'. {nearest(key, [row.key for row in self.rows])}"
        raise ModelError(message)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as JSON has them; a reach without limit is None."""
        limit = lambda reach: reach if math.isfinite(reach) else None
        return [
            {
                "by": self.by,
                "key": row.key,
                "links": row.links,
                "objective": self.objective,
                "value": self.value,
                "gain_per_plus_1pct": row.gain_per_plus_1pct,
                "loss_per_minus_1pct": row.loss_per_minus_1pct,
                "exact_within_pct": limit(row.exact_within_pct),
                "exact_within_plus_pct": limit(row.exact_within_plus_pct),
                "exact_within_minus_pct": limit(row.exact_within_minus_pct),
            }
            for row in self.rows
        ]

    def __str__(self) -> str:
        width = max([len(row.key) for row in self.rows] + [len(self.by)])
        name = self.objective
        lines = [f"{self.by:{width}}  links  +1 %: {name}  -1 %: {name}  exact within"]
        for row in self.rows:
            gain, loss = row.gain_per_plus_1pct, row.loss_per_minus_1pct
            cells = [f"{row.key:{width}}", f"{row.links:5,}"]
            cells += [f"{signed(x):>{len(name) + 6}}" for x in (gain, -loss)]
            lines.append("  ".join([*cells, f"{within(row.exact_within_pct):>12}"]))
        return "\n".join([*lines, *self.left_out])


def signed(percent: float) -> str:
    """Return a change in percent, with its sign.

    Examples:
        >>> signed(0.3), signed(-1e-12), signed(-0.0004)
        ('+0.3 %', '0 %', '-0.0004 %')
    """
    return "0 %" if abs(percent) < 5e-7 else f"{percent:+.4g} %"


def within(percent: float) -> str:
    """Return a reach in percent.

    Examples:
        >>> within(4.24), within(0.00123), within(float("inf"))
        ('4.2 %', '0.0012 %', 'any')
    """
    return "any" if math.isinf(percent) else f"{percent:.2g} %" if percent < 99.5 else "100 %"
