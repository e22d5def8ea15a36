"""From a demand to whole circuits: descent on fractions, a bound, roundings, exchanges, splits."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from fabric.optimize import _mesh as mesh
from fabric.optimize._mesh_lp import MeshProgrammes, price_bound
from fabric.optimize._mesh_search import EXACT_BLOCKS, Scorer, Search
from fabric.optimize._rounding import Counts, Pairs, random_circuits, rounded, unserved
from fabric.runs import Checkpoint, Progress, packed, unpacked
from fabric.topologies._grid import spread_evenly

LP_BLOCKS = 16
"""Up to so many blocks the relaxed optimum is a linear programme of a second."""

MIN_STEPS = 50
"""Steps between two looks at the bound."""

_TIGHT = 1e-5
_NOISE = 0.5
_DIRECT = 5.0

Points = list[tuple[int, float, float]]


@dataclass(frozen=True)
class Problem:
    """Demand in circuits over `unit`, so that the ports alone allow no utilisation below 1."""

    demand: Pairs
    ports: Int[np.ndarray, " blocks"]
    unit: float
    seed: int

    @property
    def needs(self) -> Bool[np.ndarray, "blocks blocks"]:
        """Pairs with traffic."""
        return self.demand > 0


@dataclass(frozen=True)
class Effort:
    """Steps of descent, roundings, circuits scored, seconds of branch and bound."""

    steps: int
    roundings: int
    scores: int
    prove: float


@dataclass(frozen=True)
class Splits:
    """Circuits, splits over them and the largest utilisation."""

    circuits: Counts
    share: Float[np.ndarray, "blocks blocks blocks"]
    utilisation: float


@dataclass(frozen=True)
class Found:
    """What a search found, in units of the problem; `aside` are the seconds of the control."""

    best: Splits
    current: Splits | None
    bound: float
    relaxed: float
    relaxed_bound: float
    uniform: float
    control: float | None
    evaluations: int = 0
    solves: int = 0
    steps: int = 0
    points: Points = field(default_factory=list)
    aside: float = 0.0


@dataclass
class _Relaxed:
    """Circuits of any fractions, logits of the splits, and what both reach."""

    circuits: Pairs
    ways: Any
    utilisation: float
    bound: float
    steps: int
    points: Points


class Kept:
    """What a checkpoint holds of descent and searches; without a file nothing."""

    def __init__(self, file: Checkpoint | None):
        self._file = file
        self.state = (None if file is None else file.load()) or {}

    def add(self, part: Callable[[], dict[str, Any]], done: bool = False) -> None:
        """Save what is new, if it is time to or a part of the work is done."""
        if self._file is not None and (done or self._file.due):
            self.state |= part()
            self._file.save(self.state)


def with_transit(
    problem: Problem, today: Counts | None, effort: Effort, file: Checkpoint | None
) -> Found:
    """Return the best circuits found for traffic that goes direct or by one other block."""
    blocks, keep = len(problem.ports), Kept(file)
    programmes = MeshProgrammes(problem.demand) if blocks <= LP_BLOCKS or effort.prove else None
    relaxed = _relax(problem, programmes, effort.steps, keep)
    starts = _starts(problem, relaxed, effort.roundings)
    uniform = _uniform(problem)
    starts[1:1] = [uniform] if today is None else [uniform, today]
    search = _search(problem, starts, relaxed, effort, programmes, keep, "search")
    asked = {"best": (search.best, search.score.kept), "uniform": (uniform, relaxed.ways)}
    if today is not None:
        asked["today"] = today, relaxed.ways
    bound = relaxed.bound
    if effort.prove and programmes is not None:
        whole = programmes.whole(problem.ports, effort.prove)
        bound = max(bound, whole.bound)
        if whole.circuits is not None:
            asked["whole"] = whole.circuits, relaxed.ways
    counts, ways = zip(*asked.values(), strict=True)
    settled = _settled(problem, programmes, list(counts), list(ways), effort.steps)
    final = dict(zip(asked, settled, strict=True))
    best = min(settled, key=lambda one: one.utilisation)
    begun = time.monotonic()
    others = [
        random_circuits(problem.ports, problem.needs, _draw(problem, 2, i))
        for i in range(len(starts))
    ]
    random = _search(problem, others, relaxed, effort, programmes, keep, "control")
    ways = [random.score.kept]
    (control,) = _settled(problem, programmes, [random.best], ways, effort.steps)
    aside = time.monotonic() - begun
    points = [(relaxed.steps + scored, top, relaxed.bound) for scored, top in search.points]
    points.append((relaxed.steps + search.used, best.utilisation, bound))
    solves = len(final) + 1 if blocks <= LP_BLOCKS else 0
    return Found(
        best=best, current=final.get("today"), bound=bound,
        relaxed=relaxed.utilisation, relaxed_bound=relaxed.bound,
        uniform=final["uniform"].utilisation, control=control.utilisation,
        evaluations=search.used,
        solves=solves + (search.used if blocks <= EXACT_BLOCKS else 0),
        steps=relaxed.steps, points=relaxed.points + points, aside=aside,
    )  # fmt: skip


def one_hop(problem: Problem, today: Counts | None) -> Found:
    """Return the best circuits for traffic that goes direct only; exact.

    At utilisation u a pair needs ceil(D / u) circuits, D the larger of both directions. The least u
    at which the ports suffice is found by halving, down to the next number that a float can hold.
    """
    ports, n = problem.ports, len(problem.ports)
    a, b = np.triu_indices(n, 1)
    pairs = np.maximum(problem.demand, problem.demand.T)[a, b]

    def fits(u: float) -> bool:
        count = np.ceil(pairs / u)
        return bool((np.bincount(a, count, n) + np.bincount(b, count, n) <= ports).all())

    in_all = np.bincount(a, pairs, n) + np.bincount(b, pairs, n)
    floor = float((in_all / np.maximum(ports, 1)).max())
    low, high = floor, max(floor, float(pairs.max()))
    served = fits(high)
    if fits(low):
        high = low
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if fits(middle) else (middle, high)
    count = np.zeros((n, n), np.int64)
    if served:
        count[a, b] = np.ceil(pairs / high)
    count += count.T
    share = np.zeros((n, n, n))
    share[np.arange(n), np.arange(n)] = problem.needs
    score = lambda circuits: mesh.utilisation(problem.demand, circuits, share)
    best = Splits(count, share, score(count))
    now = None if today is None else Splits(today, share, score(today))
    return Found(best, now, best.utilisation, floor, floor, score(_uniform(problem)), None)


def _relax(problem: Problem, programmes: MeshProgrammes | None, steps: int, keep: Kept) -> _Relaxed:
    """Descend on circuits and splits together until the bound is met or the steps are done."""
    kind = jnp.result_type(float)
    demand, ports = problem.demand.astype(kind), problem.ports.astype(kind)
    state, done, bound, points = mesh.begin(_first(problem, kind)), 0, 1.0, Points()
    exact = programmes if len(ports) <= LP_BLOCKS else None
    if exact is not None:
        bound = max(bound, exact.relaxed(problem.ports))
    saved = keep.state
    if saved:
        state, done, bound = unpacked("descent", saved, state), saved["done"], saved["bound"]
        points = [(int(row[0]), row[1], row[2]) for row in saved["points"].tolist()]

    def part() -> dict[str, Any]:
        return packed("descent", state) | {"done": done, "bound": bound, "points": np.array(points)}

    powers, sizes = mesh.schedule(steps)
    with Progress(steps, what="steps") as progress:
        while done < steps and not (points and points[-1][1] <= bound * (1 + _TIGHT)):
            now = slice(done, min(done + MIN_STEPS, steps))
            state = mesh.relax(state, powers[now], sizes[now], demand, ports)
            done, best = now.stop, state[2]
            if exact is None:
                bound = max(bound, price_bound(problem.demand, best.price, problem.ports))
            points.append((done, float(best.utilisation), bound))
            progress.update(
                done, objective=points[-1][1] * problem.unit, bound=bound * problem.unit
            )
            keep.add(part)
    if not saved or done > saved["done"]:
        keep.add(part, done=True)
    ways = np.asarray(state[2].params["ways"])
    circuits, share = _exact(
        mesh.sinkhorn(state[2].params["mesh"], jnp.asarray(ports)), ways, problem
    )
    return _Relaxed(
        circuits, ways, mesh.utilisation(problem.demand, circuits, share), bound, done, points
    )


def _first(problem: Problem, kind: Any) -> Any:
    """Return where descent begins: circuits like the traffic, most of it direct."""
    n = len(problem.ports)
    both = problem.demand + problem.demand.T
    ways = np.zeros((n, n, n))
    ways[np.arange(n), np.arange(n)] = _DIRECT
    return {"mesh": np.log(both + both.mean() / 4).astype(kind), "ways": ways.astype(kind)}


def _exact(circuits: Any, ways: Any, problem: Problem) -> tuple[Pairs, np.ndarray]:
    """Return circuits within the ports and splits that add up, in float64."""
    count = np.asarray(circuits, float)
    room = problem.ports / np.maximum(count.sum(1), 1e-300)
    count = count * np.minimum(1, np.minimum(room[:, None], room))
    return count, _share(ways, count, problem.needs)


def _share(ways: Any, count: np.ndarray, needs: np.ndarray) -> np.ndarray:
    open_ways = mesh.usable(count) & needs[:, None, :]
    peak = np.where(open_ways, ways, -np.inf).max(1, keepdims=True)
    share = np.where(
        open_ways,
        np.exp(np.minimum(np.asarray(ways, float) - np.where(np.isfinite(peak), peak, 0), 0)),
        0,
    )
    total = share.sum(1, keepdims=True)
    return np.divide(share, total, out=np.zeros_like(share), where=total > 0)


def _uniform(problem: Problem) -> Counts:
    """Return the same circuits, as nearly as ports allow, between all pairs."""
    ports, n = problem.ports, len(problem.ports)
    if ports.min() == ports.max() and ports.min() >= n - 1:
        return np.asarray(spread_evenly(n, int(ports[0])), np.int64)
    even = mesh.sinkhorn(jnp.zeros((n, n)), jnp.asarray(ports, jnp.result_type(float)))
    # Exact fractions in place of rounding errors, which floors would punish.
    even = np.round(np.asarray(even, float), 5)
    return rounded(even, ports, problem.needs, 0.0, _draw(problem, 0))


def _starts(problem: Problem, relaxed: _Relaxed, roundings: int) -> list[Counts]:
    """Return roundings, the first without jitter."""
    return [
        rounded(
            relaxed.circuits, problem.ports, problem.needs, _NOISE * i / roundings,
            _draw(problem, 1, i),
        )
        for i in range(roundings)
    ]  # fmt: skip


def _search(
    problem: Problem, starts: list[Counts], relaxed: _Relaxed, effort: Effort,
    programmes: MeshProgrammes | None, keep: Kept, name: str,
) -> Search:  # fmt: skip
    """Search from the starts, at random if this is the control."""
    random = name == "control"
    scorer = Scorer(problem.demand, relaxed.ways, programmes)
    scorer.restore(name, keep.state)
    search = Search(scorer, problem.ports, effort.scores, problem.seed, random)
    with Progress(effort.scores, what="random circuits" if random else "circuits") as progress:
        search.begin(starts)
        for _ in search.run():
            progress.update(search.used, search.top * problem.unit, relaxed.bound * problem.unit)
            keep.add(lambda: scorer.state(name))
    keep.add(lambda: scorer.state(name), done=True)
    return search


def _settled(
    problem: Problem, programmes: MeshProgrammes | None, counts: list[Counts], ways: list[Any],
    steps: int,
) -> list[Splits]:  # fmt: skip
    """Return the best splits of circuits as they are: exact if there are few blocks."""
    if programmes is not None and len(problem.ports) <= LP_BLOCKS:
        found = [programmes.fixed(count) for count in counts]
        return [
            _scored(problem, count, None if one is None else one.share)
            for count, one in zip(counts, found, strict=True)
        ]
    kind = ways[0].dtype
    stacked = np.stack(counts).astype(kind)
    best = mesh.route_all(
        np.stack(ways), *mesh.schedule(steps), problem.demand.astype(kind), stacked
    )
    return [
        _scored(problem, count, _share(way, count, problem.needs))
        for count, way in zip(counts, np.asarray(best.params["ways"]), strict=True)
    ]


def _scored(problem: Problem, count: Counts, share: np.ndarray | None) -> Splits:
    if share is None:
        share = _share(np.zeros((len(count),) * 3), count, problem.needs)
    lost = len(unserved(count, problem.needs))
    return Splits(count, share, np.inf if lost else mesh.utilisation(problem.demand, count, share))


def _draw(problem: Problem, *what: int) -> np.random.Generator:
    return np.random.default_rng((problem.seed, *what))
