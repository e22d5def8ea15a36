"""Exchanges of units, scored exactly in batches, from any start; ranked by slopes or by lot."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric.optimize._placement_input import Slots
from fabric.optimize._placement_score import Scorer
from fabric.optimize._placement_ways import Units

_BATCH = 32
_KICK = 3
_NEARER = 1 - 1e-9
_SAME = 1 + 1e-12

Slopes = Callable[[Int[np.ndarray, " units"]], Float[np.ndarray, "units units"]]


class Found(NamedTuple):
    """A placement: the slot of every rank, and behind them the slots that stay free."""

    at: Int[np.ndarray, " slots"]
    seconds: float
    crowding: float

    def beats(self, other: "Found") -> bool:
        """Whether this takes less time, or as long on links that are less crowded."""
        if self.seconds < other.seconds / _SAME:
            return True
        return self.seconds <= other.seconds * _SAME and (self.crowding < other.crowding * _NEARER)


class Moves(NamedTuple):
    """Exchanges: `length` places from `first` with as many from `second`."""

    first: Int[np.ndarray, " moves"]
    second: Int[np.ndarray, " moves"]
    length: Int[np.ndarray, " moves"]
    units: int  # the first so many are of whole units


def moves_of(slots: Slots, n_ranks: int) -> Moves:
    """Return every exchange of two units, and of two ranks within one unit."""
    g, busy = slots.group, n_ranks // slots.group
    a, b = np.triu_indices(slots.n_units, 1)
    a, b = a[a < busy], b[a < busy]
    i, j = np.triu_indices(g, 1)
    base = np.arange(busy)[:, None] * g
    first = np.concatenate([a * g, (base + i).ravel()])
    second = np.concatenate([b * g, (base + j).ravel()])
    length = np.repeat([g, 1], [len(a), busy * len(i)])
    return Moves(first, second, length, len(a))


class Descent(NamedTuple):
    """Where a search stands between two batches.

    Attributes:
        now: The placement that exchanges are tried on.
        number: Of the start, which decides what is drawn.
        turn: How often `now` became better since.
        tried: Exchanges that did not help.
    """

    now: Found
    number: int
    turn: int = 0
    tried: int = 0


class Search:
    """The best placement so far, and how it came about.

    Attributes:
        best: The best placement.
        history: (evaluations, seconds) whenever it became better.
        slopes: Gradients that were taken to rank exchanges.
        used: Placements that were scored. `budget`: how many may be.
        bound: Seconds that are known to be the least.
    """

    def __init__(
        self, scorer: Scorer, slots: Slots, units: Units, n_ranks: int, budget: int, bound: float
    ):
        self._scorer, self._group, self._n_ranks = scorer, slots.group, n_ranks
        self._moves, self._sort = moves_of(slots, n_ranks), units.sort
        self.budget, self.bound = budget, bound
        self.best = Found(np.arange(slots.n_slots), np.inf, np.inf)
        self.history: list[tuple[int, float]] = []
        self.slopes = 0
        self.used = 0

    @property
    def over(self) -> bool:
        """Whether the budget is used up, or nothing can be better."""
        return self.used >= self.budget or self.best.seconds <= self.bound * _SAME

    @property
    def can_move(self) -> bool:
        """Whether any exchange changes the best placement."""
        return len(self._useful(self.best.at)) > 0

    def score(self, rows: Int[np.ndarray, "some slots"], limit: float = np.inf) -> list[Found]:
        """Return placements with their scores, at most as many as the budget allows."""
        rows = rows[: max(self.budget - self.used, 0)]
        seconds, crowding = self._scorer(rows[:, : self._n_ranks], limit)
        self.used += len(rows)
        columns = zip(rows, seconds.tolist(), crowding.tolist(), strict=True)
        return [Found(*column) for column in columns]

    def keep(self, found: Found) -> None:
        """Take a placement if it is the best."""
        if found.beats(self.best):
            if found.seconds < self.best.seconds:
                self.history.append((self.used, found.seconds))
            self.best = found

    def descend(
        self, state: Descent, draw: Callable[[int, int], np.random.Generator],
        slopes: Slopes | None, each: Callable[[Descent], None] = lambda state: None,
    ) -> None:  # fmt: skip
        """Exchange until no exchange is better or the budget is used up.

        Args:
            state: Where to begin, scored.
            draw: From the numbers of start and turn, what decides about the order of exchanges.
            slopes: Gains of exchanging units, to try the most promising first.
            each: Told after every batch where the search stands, to go on from there.
        """
        now, number, turn, tried = state
        self.keep(now)
        counted = self.slopes
        order = self._order(now, draw(number, turn), slopes)
        while tried < len(order) and not self.over:
            batch = order[tried : tried + _BATCH]
            tried += len(batch)
            better = min(self.score(self._exchanged(now.at, batch), now.seconds), key=_rank)
            if better.beats(now):
                now, turn, tried = better, turn + 1, 0
                self.keep(now)
                counted = self.slopes
                order = self._order(now, draw(number, turn), slopes)
            taken, self.slopes = self.slopes, counted  # going on ranks them once more
            each(Descent(now, number, turn, tried))
            self.slopes = taken

    def kicked(self, now: Found, draw: np.random.Generator) -> Found | None:
        """Return a placement a few random exchanges away, scored; None if nothing can change."""
        at = now.at
        for _ in range(_KICK):
            useful = self._useful(at)
            if not len(useful):
                return None
            at = self._exchanged(at, draw.choice(useful, 1))[0]
        found = self.score(at[None])
        return found[0] if found else None

    def _useful(self, at: Int[np.ndarray, " slots"]) -> Int[np.ndarray, " some"]:
        """Return the exchanges that change something."""
        moves, g = self._moves, self._group
        sort = self._sort[at[::g] // g]
        first, second = moves.first[: moves.units] // g, moves.second[: moves.units] // g
        useful = np.ones(len(moves.first), bool)
        useful[: moves.units] = sort[first] != sort[second]
        return np.flatnonzero(useful)

    def _order(
        self, now: Found, draw: np.random.Generator, slopes: Slopes | None
    ) -> Int[np.ndarray, " some"]:
        """Return the exchanges that change something, in the order in which to try them.

        Of every batch half goes by rank and half by lot: slopes know nothing of ranks within units,
        nor what an exchange does beyond the first order.
        """
        moves, g = self._moves, self._group
        useful = self._useful(now.at)
        lot = draw.permutation(len(useful))
        units = int(np.searchsorted(useful, moves.units))
        if slopes is None or units <= _BATCH:
            return useful[lot]
        self.slopes += 1
        gain = slopes(now.at[::g] // g)
        first, second = moves.first[useful[:units]] // g, moves.second[useful[:units]] // g
        ranked = np.argsort(-gain[first, second], kind="stable")
        place = np.empty(len(lot))
        place[lot] = 2.0 * np.arange(len(lot)) + 1
        place[ranked] = np.minimum(place[ranked], 2.0 * np.arange(len(ranked)))
        return useful[np.argsort(place, kind="stable")]

    def _exchanged(
        self, at: Int[np.ndarray, " slots"], batch: Int[np.ndarray, " some"]
    ) -> Int[np.ndarray, "some slots"]:
        rows = np.repeat(at[None], len(batch), axis=0)
        for length in sorted({self._group, 1}, reverse=True):
            mine = np.flatnonzero(self._moves.length[batch] == length)
            row, move = mine[:, None], batch[mine]
            first = self._moves.first[move][:, None] + np.arange(length)
            second = self._moves.second[move][:, None] + np.arange(length)
            rows[row, first], rows[row, second] = at[second], at[first]
        return rows


def _rank(found: Found) -> tuple[float, float]:
    return found.seconds, found.crowding


def by_promise(found: list[Found]) -> list[Found]:
    """Return placements, the best first."""
    return sorted(found, key=_rank)
