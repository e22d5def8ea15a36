"""The search for whole circuits: how candidates are scored, and which exchanges are kept."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric.optimize import _mesh as mesh
from fabric.optimize._mesh_lp import MeshProgrammes, cheapest
from fabric.optimize._rounding import Counts, Move, Pairs, applied, exchanges, together, unserved

EXACT_BLOCKS = 12
"""Up to so many blocks every candidate is a linear programme; beyond it, descent on splits."""

_BATCH, _BATCH_LARGE = 8, 4
_WARM_STEPS, _WARM_POWER = 200, 30.0
_PATIENCE = 48
_KICKS = 2

Ways = Float[np.ndarray, "blocks blocks blocks"]


class Scorer:
    """The largest utilisation of candidates under their best splits, and what a circuit is worth.

    Args:
        demand: (blocks, blocks), in circuits.
        ways: Logits of the splits that descent starts from; then the best of the last batch.
    """

    def __init__(self, demand: Pairs, ways: Ways):
        self.demand, self.needs = demand, demand > 0
        self.programmes = MeshProgrammes(demand) if len(demand) <= EXACT_BLOCKS else None
        self.ways = ways
        self.evaluations = 0
        self.last = ways[None]

    def __call__(
        self, counts: list[Counts]
    ) -> tuple[Float[np.ndarray, " candidates"], Float[np.ndarray, "candidates blocks blocks"]]:
        """Return utilisation, infinite where a pair has no way, and price of every candidate."""
        self.evaluations += len(counts)
        if self.programmes is not None:
            return self._exactly(self.programmes, counts)
        size = _BATCH_LARGE
        found = [self._by_descent(counts[i : i + size]) for i in range(0, len(counts), size)]
        self.last = np.concatenate([ways for _, _, ways in found])
        return np.concatenate([u for u, _, _ in found]), np.concatenate([q for _, q, _ in found])

    def _exactly(self, programmes: MeshProgrammes, counts: list[Counts]) -> Any:
        top = np.full(len(counts), np.inf)
        price = np.zeros((len(counts), *self.demand.shape))
        for i, count in enumerate(counts):
            solved = programmes.fixed(count)
            if solved.price is not None:
                top[i], price[i] = 1 / solved.multiple, solved.price
        return top, price

    def _by_descent(self, counts: list[Counts]) -> Any:
        # One shape, one program: places left over hold the first candidate again.
        filled = np.stack([*counts, *[counts[0]] * (_BATCH_LARGE - len(counts))])
        filled = filled.astype(self.ways.dtype)
        ways = jnp.broadcast_to(self.ways, (_BATCH_LARGE, *self.ways.shape))
        best = mesh.route_all(
            ways,
            *mesh.schedule(_WARM_STEPS, _WARM_POWER),
            self.demand.astype(self.ways.dtype),
            filled,
        )
        top = np.array(best.utilisation, float)[: len(counts)]
        lost = [len(unserved(count, self.needs)) > 0 for count in counts]
        top[np.array(lost)] = np.inf
        ways = np.asarray(best.params["ways"])[: len(counts)]
        if np.isfinite(top).any():
            self.ways = ways[np.argmin(top)]
        price = [
            worth(q, count) for q, count in zip(np.array(best.price, float), counts, strict=False)
        ]
        return top, np.stack(price), ways


def worth(price: Pairs, count: Counts) -> Pairs:
    """Return prices where pairs without a circuit are worth the cheapest detour."""
    known = np.where(count > 0, price, np.inf)
    found = np.where(count > 0, price, cheapest(known))
    return np.where(np.isfinite(found), found, price.max())


@dataclass
class Search:
    """Exchanges of ends, from several starts, until a budget of scores is used.

    Candidates come by falling worth, a batch at a time; the best of a batch is kept when it is
    better. Where no exchange helps any more the next start follows, and after the last one two
    random exchanges of the best circuits found.

    Attributes:
        best: The best circuits so far, `top` their utilisation.
        ways: Logits of its splits, where descent found them.
        used: Scores spent.
        points: (scores, utilisation) whenever it fell.
    """

    score: Scorer
    ports: Int[np.ndarray, " blocks"]
    budget: int
    seed: int
    random: bool = False
    starts: list[tuple[float, Counts, Pairs]] = field(default_factory=list)
    best: Counts = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    top: float = np.inf
    ways: Any = None
    used: int = 0
    points: list[tuple[int, float]] = field(default_factory=list)

    def begin(self, counts: list[Counts]) -> None:
        """Score the starts, and order them."""
        top, price = self.score(counts)
        order = np.argsort(top, kind="stable")
        self.used += len(counts)
        self.starts = [(float(top[i]), counts[i], price[i]) for i in order]
        self._keep(float(top[order[0]]), counts[order[0]], int(order[0]))

    def _keep(self, top: float, count: Counts, place: int) -> None:
        if top < self.top or not len(self.best):
            self.top, self.best = top, count
            self.ways = None if self.score.programmes is not None else self.score.last[place]
            self.points.append((self.used, top))

    def run(self) -> Iterator["Search"]:
        """Search on, and yield after every batch."""
        turn = 0
        while self.used < self.budget:
            if turn < len(self.starts):
                top, count, price = self.starts[turn]
            else:
                count = self._kicked(turn)
                tops, prices = self.score([count])
                self.used += 1
                top, price = float(tops[0]), prices[0]
            turn += 1
            yield from self._climb(top, count, price)

    def _climb(self, top: float, count: Counts, price: Pairs) -> Iterator["Search"]:
        offset, moves = 0, self._moves(count, price)
        while self.used < self.budget and offset < min(len(moves), _PATIENCE):
            batch = self._batch(moves[offset:])[: self.budget - self.used]
            offset += len(batch)
            tried = [applied(count, move) for move in batch]
            tops, prices = self.score(tried)
            self.used += len(tried)
            first = int(np.argmin(tops))
            if tops[first] < top * (1 - 1e-7):
                top, count, price = float(tops[first]), tried[first], prices[first]
                self._keep(top, count, first)
                offset, moves = 0, self._moves(count, price)
            yield self

    def _batch(self, moves: list[Move]) -> list[Move]:
        """Return the next moves one by one, or, where scores are dear, 1, 2, 4 and 8 of them."""
        if self.score.programmes is not None:
            return moves[:_BATCH]
        return [together(moves, 2**i) for i in range(_BATCH_LARGE)]

    def _moves(self, count: Counts, price: Pairs) -> list[Move]:
        draw = np.random.default_rng((self.seed, self.used))
        return exchanges(count, self.ports, price + price.T, draw, self.random)

    def _kicked(self, turn: int) -> Counts:
        count, draw = self.best, np.random.default_rng((self.seed, self.used, turn))
        for _ in range(_KICKS):
            moves = exchanges(count, self.ports, np.zeros(count.shape), draw, True)
            count = applied(count, moves[0]) if moves else count
        return count
