"""What `contingency` returns: a row per class of failures, for programs, JSON and people."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, some
from fabric.reliability._failures import Components

_SHOWN = 20


@dataclass(frozen=True, eq=False)
class Failure:
    """Failures that are worth the same; one row of a report.

    Attributes:
        kind: Of the components.
        name: One of them.
        members: (members,), all of them, by number among the components of the kind.
        lost: Flows that are cut off.
        pairs: The ends of some of them, for the component that is named.
        slowest: byte/s, the slowest rate among the other flows; infinite where none is left.
        total: byte/s, the sum of the rates of the other flows.
        value: The objective; a flow that is cut off has rate 0 and is never done.
        change: What the objective loses or gains, relative to no failure; NaN where that is 0.
        solved: Members that were solved.
    """

    kind: str
    name: str
    members: Int[np.ndarray, " members"]
    lost: int
    pairs: tuple[str, ...]
    slowest: float
    total: float
    value: float
    change: float
    solved: int

    @property
    def count(self) -> int:
        """Number of members."""
        return len(self.members)

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON has it; a number that is not finite is None."""
        finite = lambda x: float(x) if math.isfinite(x) else None
        return {
            "kind": self.kind, "component": self.name, "members": self.count,
            "flows_cut_off": self.lost, "pairs": list(self.pairs),
            "slowest": finite(self.slowest), "total": finite(self.total),
            "value": finite(self.value), "change": finite(self.change), "solved": self.solved,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Contingency:
    """What every single failure costs, worst first.

    Attributes:
        rows: One per class of failures.
        objective: "slowest", "total" or "completion".
        factor: What is left of the capacity of a component; 0: it fails.
        slowest: byte/s, without a failure.
        total: byte/s, without a failure.
        value: The objective without a failure.
        components: By kind.
        notes: How the rows were found and what was checked, in words.
    """

    rows: tuple[Failure, ...]
    objective: str
    factor: float
    slowest: float
    total: float
    value: float
    components: Mapping[str, Components]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Failure:
        return self.rows[index]

    def __iter__(self) -> Iterator[Failure]:
        return iter(self.rows)

    @property
    def n_components(self) -> int:
        """Number of components of all kinds."""
        return sum(map(len, self.components.values()))

    @property
    def n_classes(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def score_of(self, component: int | str, kind: str | None = None) -> Failure:
        """Return the row of a component.

        Args:
            component: By number among the components of its kind, or by name.
            kind: Of which kind. Default: the only one.

        Raises:
            ModelError: If there is no such component, or it is not among those drawn.
        """
        if kind is None and len(self.components) == 1:
            (kind,) = self.components
        if kind is None or kind not in self.components:
            message = (
                f"`score_of(kind={kind!r})` needs the kind of the component: "
                f"{some(self.components)}."
            )
            raise ModelError(message)
        parts = self.components[kind]
        number = parts.find(component)
        for row in self.rows:
            if row.kind == kind and number in row.members:
                return row
        message = (
            f"{parts.name(number)!r} is not among the components that were drawn. Raise `sample`."
        )
        raise ModelError(message)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        return {
            "objective": self.objective, "factor": self.factor, "slowest": self.slowest,
            "total": self.total, "value": self.value,
            "components": {kind: len(parts) for kind, parts in self.components.items()},
            "rows": [row.as_dict() for row in self.rows], "notes": list(self.notes),
        }  # fmt: skip

    def __str__(self) -> str:
        cells = [("failure of", "like it", "cut off", "slowest", "total", self.objective)]
        cells += [
            (
                row.name, f"{row.count:,}", f"{row.lost:,}", speed(row.slowest), speed(row.total),
                changed(row.change),
            )
            for row in self.rows[:_SHOWN]
        ]  # fmt: skip
        cells.append(("(none)", "", "0", speed(self.slowest), speed(self.total), ""))
        width = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                [f"{row[0]:{width[0]}}"]
                + [f"{c:>{w}}" for c, w in zip(row[1:], width[1:], strict=True)]
            )
            for row in cells
        ]
        more = len(self.rows) - _SHOWN
        rest = [f"{more:,} more rows, of less weight, are not shown."] if more > 0 else []
        return "\n".join([*(line.rstrip() for line in lines), *rest, *self.notes])


def speed(rate: float) -> str:
    """Return a rate in words.

    Examples:
        >>> speed(48.4375e9), speed(float("inf"))
        ('48.44 GB/s', '-')
    """
    return f"{rate / 1e9:.4g} GB/s" if math.isfinite(rate) else "-"


def changed(share: float) -> str:
    """Return a relative change in words.

    Examples:
        >>> changed(-0.03125), changed(1e-13), changed(float("inf")), changed(float("nan"))
        ('-3.125 %', '0 %', 'never', '-')
    """
    if math.isnan(share):
        return "-"
    if math.isinf(share):
        return "never"
    return "0 %" if abs(share) < 1e-9 else f"{100 * share:+.4g} %"
