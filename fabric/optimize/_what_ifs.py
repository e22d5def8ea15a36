"""The table that `linearize` returns: rows for programs, JSON and people."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from fabric._errors import ModelError, nearest
from fabric.solvers._sensitivity_table import signed, within


@dataclass(frozen=True)
class WhatIf:
    """One change and what it does; shares are of the objective, and of what is changed.

    Attributes:
        name: In words.
        what, key, by: The change: its kind, its group or flows, and the share that is added.
        items: Links in it, or rows of its flows.
        slope: What the change does to first order, from the one reverse pass. At a tie that is the
            answer of one side; `share` is exact.
        value: The objective after the change, exact.
        share: The change of the objective, exact.
        exact_within: Share up to which rates move along the straight lines that begin here, and,
            for "slowest", the same flow stays the slowest; infinite if always. A lower bound: rates
            that the objective does not feel may bend there, except for "slowest" of flows of one
            weight. 0 for weights, which have no line.
        how: "unchanged", "linear", or "re-solved", beyond the reach.
    """

    name: str
    what: str
    key: str | int | tuple[int, ...]
    by: float
    items: int
    slope: float
    value: float
    share: float
    exact_within: float
    how: str

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON has it; a reach without limit, or a value, is None."""
        finite = lambda x: x if math.isfinite(x) else None
        return {
            "name": self.name, "what": self.what,
            "key": list(self.key) if isinstance(self.key, tuple) else self.key,
            "by": self.by, "items": self.items, "first_order": self.slope,
            "value": finite(self.value), "change": finite(self.share),
            "exact_within": finite(self.exact_within), "how": self.how,
        }  # fmt: skip


@dataclass(frozen=True)
class WhatIfs(Sequence[WhatIf]):
    """A table of what-ifs.

    Attributes:
        objective: Its name.
        value: Its value as things are.
        rows: The rows.
        left_out: What is not among the rows and why, in sentences.
        solves: Exact solves, that of things as they are included.
        tangents: One-sided derivatives worked out, each good for all changes along one direction.
        seconds: Wall time.
    """

    objective: str
    value: float
    rows: tuple[WhatIf, ...]
    left_out: tuple[str, ...]
    solves: int
    tangents: int
    seconds: float

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> WhatIf: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[WhatIf, ...]: ...
    def __getitem__(self, index: int | slice) -> WhatIf | tuple[WhatIf, ...]:
        return self.rows[index]

    def __iter__(self) -> Iterator[WhatIf]:
        return iter(self.rows)

    def row(self, name: str) -> WhatIf:
        """Return the row of a change; the error for an unknown name offers the nearest."""
        for row in self.rows:
            if row.name == name:
                return row
        message = f"No row is called '{name}'. {nearest(name, [row.name for row in self.rows])}"
        raise ModelError(message)

    def as_dict(self) -> dict[str, Any]:
        """Return the table for JSON."""
        return {
            "schema": "fabric.whatif/1", "objective": self.objective, "value": self.value,
            "what_ifs": [row.as_dict() for row in self.rows], "left_out": list(self.left_out),
            "solves": self.solves, "tangents": self.tangents, "seconds": self.seconds,
        }  # fmt: skip

    def __str__(self) -> str:
        width = max([len(row.name) for row in self.rows] + [len("change")])
        lines = [f"{self.objective} {self.value:.6g}"]
        lines.append(f"{'change':{width}}  first order       exact  how        exact within")
        for row in self.rows:
            first, exact = signed(100 * row.slope), signed(100 * row.share)
            reach = within(100 * row.exact_within)
            lines.append(f"{row.name:{width}}  {first:>11} {exact:>11}  {row.how:9}  {reach:>12}")
        return "\n".join([*lines, *self.left_out])
