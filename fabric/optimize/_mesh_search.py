"""The search for whole circuits: how candidates are scored, and which exchanges are kept."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric.optimize import _mesh as mesh
from fabric.optimize._mesh_lp import MeshProgrammes, cheapest
from fabric.optimize._rounding import Counts, Pairs, applied, exchanges, together, unserved

EXACT_BLOCKS = 12
"""Up to so many blocks every candidate is a linear programme; beyond it, descent on splits."""

_BATCH = 4
_WARM_STEPS, _WARM_POWER = 200, 30.0
_PATIENCE = 12
_KICKS, _IDLE = 2, 30

Ways = Float[np.ndarray, "blocks blocks blocks"]
Scored = tuple[Float[np.ndarray, " candidates"], Float[np.ndarray, "candidates blocks blocks"]]


class Scorer:
    """The largest utilisation of candidates under their best splits, and what a circuit is worth.

    All answers are kept: after `restore` calls are answered from there as long as they last.

    Args:
        demand: (blocks, blocks), in circuits.
        ways: Logits of the splits that descent starts from; then the best of the last batch.
        programmes: Of the demand, if it has few blocks.

    Attributes:
        kept: Logits of the splits of the best candidate, where descent found them.
    """

    def __init__(self, demand: Pairs, ways: Ways, programmes: MeshProgrammes | None):
        self.demand, self.needs = demand, demand > 0
        self.programmes = programmes if len(demand) <= EXACT_BLOCKS else None
        self.kept = self._warm = ways
        self._top, self._calls = np.inf, 0
        self._answers: list[Scored] = []

    def __call__(self, counts: list[Counts]) -> Scored:
        """Return utilisation, infinite where a pair has no way, and price of every candidate."""
        if self._calls == len(self._answers):
            self._answers.append(self._scored(counts))
        self._calls += 1
        return self._answers[self._calls - 1]

    def state(self, name: str) -> dict[str, np.ndarray]:
        """Return all answers for a checkpoint, under a name."""
        tops, prices = zip(*self._answers, strict=True)
        return {
            f"{name}/sizes": np.array([len(top) for top in tops]),
            f"{name}/tops": np.concatenate(tops), f"{name}/prices": np.concatenate(prices),
            f"{name}/warm": self._warm, f"{name}/kept": self.kept,
        }  # fmt: skip

    def restore(self, name: str, saved: Mapping[str, Any]) -> None:
        """Take over the answers of a checkpoint, if it has some."""
        if f"{name}/sizes" not in saved:
            return
        sizes, tops, prices, self._warm, self.kept = (
            saved[f"{name}/{part}"] for part in ("sizes", "tops", "prices", "warm", "kept")
        )
        cuts = np.cumsum(sizes)[:-1]
        self._answers = list(zip(np.split(tops, cuts), np.split(prices, cuts), strict=True))
        self._top = float(tops.min())

    def _scored(self, counts: list[Counts]) -> Scored:
        if self.programmes is not None:
            return self._exactly(self.programmes, counts)
        found = [self._by_descent(counts[i : i + _BATCH]) for i in range(0, len(counts), _BATCH)]
        return np.concatenate([top for top, _ in found]), np.concatenate([q for _, q in found])

    def _exactly(self, programmes: MeshProgrammes, counts: list[Counts]) -> Scored:
        top = np.full(len(counts), np.inf)
        price = np.zeros((len(counts), *self.demand.shape))
        for i, count in enumerate(counts):
            solved = programmes.fixed(count)
            if solved is not None:
                top[i], price[i] = solved.utilisation, solved.price
        return top, price

    def _by_descent(self, counts: list[Counts]) -> Scored:
        # One shape, one program: places left over hold the first candidate again.
        kind = self._warm.dtype
        filled = np.stack([*counts, *[counts[0]] * (_BATCH - len(counts))]).astype(kind)
        best = mesh.route_all(
            jnp.broadcast_to(self._warm, (_BATCH, *self._warm.shape)),
            *mesh.schedule(_WARM_STEPS, _WARM_POWER), self.demand.astype(kind), filled,
        )  # fmt: skip
        top = np.array(best.utilisation, float)[: len(counts)]
        top[[len(unserved(count, self.needs)) > 0 for count in counts]] = np.inf
        first = int(np.argmin(top))
        if np.isfinite(top[first]):
            self._warm = np.asarray(best.params["ways"][first])
        if top[first] < self._top:
            self._top, self.kept = float(top[first]), self._warm
        price = np.array(best.price, float)
        return top, np.stack([worth(q, count) for q, count in zip(price, counts, strict=False)])


def worth(price: Pairs, count: Counts) -> Pairs:
    """Return prices where pairs without a circuit are worth the cheapest detour."""
    known = np.where(count > 0, price, np.inf)
    found = np.where(count > 0, price, cheapest(known))
    return np.where(np.isfinite(found), found, price.max())


@dataclass
class Search:
    """Exchanges of ends, from several starts, until a budget of scores is used.

    Candidates come by falling worth, a batch at a time, none twice; the best of a batch is kept
    when it is better. Where no exchange helps any more the next start follows, and after the last
    one random exchanges of the best circuits found.

    Attributes:
        best: The best circuits so far, `top` their utilisation.
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
    used: int = 0
    points: list[tuple[int, float]] = field(default_factory=list)
    _seen: set[bytes] = field(default_factory=set)

    def begin(self, counts: list[Counts]) -> None:
        """Score the first of the starts, as many as the budget has, and order them."""
        counts = [count for count in counts if self._new(count)][: self.budget]
        self.best = counts[0]
        top, price = self._scored(counts)
        self.starts = [(float(top[i]), counts[i], price[i]) for i in np.argsort(top, kind="stable")]

    def run(self) -> Iterator["Search"]:
        """Search on, and yield after every batch."""
        for start in self.starts:
            yield from self._climb(*start)
        idle = 0
        while self.used < self.budget and idle < _IDLE:
            count = self._kicked(_KICKS + idle)
            idle += 1
            if self._new(count):
                idle = 0
                top, price = self._scored([count])
                yield from self._climb(float(top[0]), count, price[0])

    def _climb(self, top: float, count: Counts, price: Pairs) -> Iterator["Search"]:
        near, tried = self._near(count, price), 0
        while tried < _PATIENCE:
            batch = list(islice(near, min(_BATCH, self.budget - self.used)))
            if not batch:
                return
            tops, prices = self._scored(batch)
            tried += len(batch)
            first = int(np.argmin(tops))
            if tops[first] < top * (1 - 1e-7):
                top, count, price = float(tops[first]), batch[first], prices[first]
                near, tried = self._near(count, price), 0
            yield self

    def _near(self, count: Counts, price: Pairs) -> Iterator[Counts]:
        """Yield what exchanges make of circuits: one at a time, or, where scores are dear, up to 8.

        Together are exchanges between different blocks.
        """
        draw = np.random.default_rng((self.seed, self.used))
        moves = exchanges(count, self.ports, price + price.T, draw, self.random)
        sizes = (1, 2, 4, 8) if self.score.programmes is None else (1,)
        for first in range(0, len(moves), len(sizes)):
            for size in sizes:
                found = applied(count, together(moves[first:], size))
                if self._new(found):
                    yield found

    def _scored(self, counts: list[Counts]) -> Scored:
        top, price = self.score(counts)
        self.used += len(counts)
        first = int(np.argmin(top))
        if top[first] < self.top:
            self.top, self.best = float(top[first]), counts[first]
            self.points.append((self.used, self.top))
        return top, price

    def _new(self, count: Counts) -> bool:
        """Return whether circuits were never asked about, and remember them."""
        key = count.tobytes()
        new = key not in self._seen
        self._seen.add(key)
        return new

    def _kicked(self, times: int) -> Counts:
        count, draw = self.best, np.random.default_rng((self.seed, self.used, times))
        for _ in range(times):
            moves = exchanges(count, self.ports, np.zeros(count.shape), draw, True)
            count = applied(count, moves[0]) if moves else count
        return count
