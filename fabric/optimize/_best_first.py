"""Best-first search of a table: exact values only where a lower bound leaves a choice."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

_GROWTH, _MOST = 4, 65_536

Evaluate = Callable[[int, Int[np.ndarray, " some"]], Float[np.ndarray, " some"]]
"""From a key and rows with this key to their exact values, infinite where there is none."""


@dataclass
class Best:
    """The best rows so far, and what cannot be among them.

    Attributes:
        top: How many rows are wanted.
        tolerance: A row is hopeless if its bound, times 1 + this, is no better than the last one.
        rows, values: Best first.
    """

    top: int
    tolerance: float
    rows: Int[np.ndarray, " best"] = field(default_factory=lambda: np.zeros(0, np.int64))
    values: Float[np.ndarray, " best"] = field(default_factory=lambda: np.zeros(0))

    def hopeless(
        self, rows: Int[np.ndarray, " some"], lower: Float[np.ndarray, " some"]
    ) -> Bool[np.ndarray, " some"]:
        """Return which rows cannot be among the best."""
        last = self.values[-1] if len(self.values) == self.top else np.inf
        return lower * (1 + self.tolerance) >= last

    def over(self, row: int, lower: float) -> bool:
        """Return whether no row with at least the bound of this one has a chance."""
        return bool(self.hopeless(np.array([row]), np.array([lower]))[0])

    def add(self, rows: Int[np.ndarray, " some"], values: Float[np.ndarray, " some"]) -> None:
        """Take in rows with their exact values; of equal ones the first rows stay."""
        rows, values = np.concatenate([self.rows, rows]), np.concatenate([self.values, values])
        order = np.lexsort((rows, values))[: self.top]
        self.rows, self.values = rows[order], values[order]


@dataclass
class Front:
    """The rows that no other row beats both in value and in merit; more merit is better.

    Attributes:
        merit: (rows,) of the table.
        tolerance: As of `Best`: of a value it may be beaten by this share.
        rows, values: Of falling merit and falling value.
    """

    merit: Float[np.ndarray, " rows"]
    tolerance: float
    rows: Int[np.ndarray, " front"] = field(default_factory=lambda: np.zeros(0, np.int64))
    values: Float[np.ndarray, " front"] = field(default_factory=lambda: np.zeros(0))

    def hopeless(
        self, rows: Int[np.ndarray, " some"], lower: Float[np.ndarray, " some"]
    ) -> Bool[np.ndarray, " some"]:
        """Return which rows cannot be on the front."""
        # The front row of least merit that still has as much is the one of least value.
        at_least = np.searchsorted(-self.merit[self.rows], -self.merit[rows], side="right") - 1
        beats = np.append(self.values, np.inf)[at_least]
        return lower * (1 + self.tolerance) >= beats

    def over(self, row: int, lower: float) -> bool:
        """Return whether no row with at least this bound has a chance: merit may still count."""
        return lower == np.inf

    def add(self, rows: Int[np.ndarray, " some"], values: Float[np.ndarray, " some"]) -> None:
        """Take in rows with their exact values."""
        rows, values = np.concatenate([self.rows, rows]), np.concatenate([self.values, values])
        order = np.lexsort((rows, values, -self.merit[rows]))
        rows, values = rows[order], values[order]
        best_before = np.minimum.accumulate(np.append(np.inf, values[:-1]))
        self.rows, self.values = rows[values < best_before], values[values < best_before]


@dataclass(frozen=True)
class Searched:
    """What a search found out.

    Attributes:
        bound: No row is better than this; infinite if no row has a value.
        evaluations: Rows that were evaluated.
        history: (evaluations, best value, bound), whenever one of the last two got better.
    """

    bound: float
    evaluations: int
    history: tuple[tuple[int, float, float], ...]


def best_first(
    lower: Float[np.ndarray, " rows"],
    keys: Int[np.ndarray, " rows"],
    evaluate: Evaluate,
    kept: Best | Front,
    said: Callable[[int, float, float], None] = lambda *_: None,
) -> Searched:
    """Return what there is to know of the best rows; `kept` then holds them.

    Rows are visited by increasing bound, in blocks that grow with the work done, so that most work
    is done on whole arrays and at most a quarter of it is for nothing. Rows of one key are
    evaluated together, and none where those before have left no row of it a chance.

    Args:
        lower: (rows,), no larger than the exact value of each row; infinite where there is none.
        keys: (rows,), what an evaluation has to prepare; equal keys are prepared once.
        evaluate: From a key and its rows to exact values.
        kept: Takes in values, and tells what is hopeless.
        said: Called after every block with evaluations, best value and bound.
    """
    order = np.argsort(lower, kind="stable")
    at = evaluations = 0
    best = left = np.inf
    history: list[tuple[int, float, float]] = []
    while at < len(order) and not kept.over(int(order[at]), float(lower[order[at]])):
        block = order[at : at + min(max(1, at // _GROWTH), _MOST)]
        at += len(block)
        hopeless = kept.hopeless(block, lower[block])
        left = min(left, lower[block[hopeless]].min(initial=np.inf))
        block = block[~hopeless]
        found, first = np.unique(keys[block], return_index=True)
        for key in found[np.argsort(first)].tolist():
            rows = block[keys[block] == key]
            hopeless = kept.hopeless(rows, lower[rows])
            left = min(left, lower[rows[hopeless]].min(initial=np.inf))
            rows = rows[~hopeless]
            if len(rows):
                values = evaluate(key, rows)
                evaluations += len(rows)
                best = min(best, float(values.min()))
                finite = np.isfinite(values)
                kept.add(rows[finite], values[finite])
        ahead = lower[order[at]] if at < len(order) else np.inf
        bound = float(min(best, left, ahead))
        if not history or (best, bound) != history[-1][1:]:
            history.append((evaluations, best, bound))
        said(evaluations, best, bound)
    return Searched(history[-1][2] if history else np.inf, evaluations, tuple(history))
