"""From a demand to whole circuits: descent on fractions, a bound, roundings, exchanges, splits."""

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
from fabric.topologies import direct_connect

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
    """What a search found, in units of the problem."""

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


@dataclass
class _Relaxed:
    """Circuits of any fractions, logits of the splits, and what both reach."""

    circuits: Pairs
    ways: Any
    utilisation: float
    bound: float
    steps: int
    points: Points


def with_transit(
    problem: Problem, today: Counts | None, effort: Effort, keep: Checkpoint | None
) -> Found:
    """Return the best circuits found for traffic that goes direct or by one other block."""
    small = len(problem.ports) <= LP_BLOCKS
    programmes = MeshProgrammes(problem.demand) if small else None
    relaxed = _relax(problem, programmes, effort.steps, keep)
    uniform = _uniform(problem)
    starts = _starts(problem, relaxed, effort.roundings)
    starts += [uniform] if today is None else [uniform, today]
    search = _search(problem, starts, relaxed, effort, random=False)
    others = [
        random_circuits(problem.ports, problem.needs, _draw(problem, 2, i))
        for i in range(len(starts))
    ]
    control = _search(problem, others, relaxed, effort, random=True)
    bound, best = relaxed.bound, search.best
    if effort.prove:
        whole = MeshProgrammes(problem.demand).free(problem.ports, whole=True, seconds=effort.prove)
        bound = max(bound, 1 / whole.bound)
        if whole.circuits is not None and 1 / whole.multiple < search.top:
            best = whole.circuits
    asked = [best, uniform, control.best] + ([] if today is None else [today])
    ways = [search.ways, None, control.ways, None]
    ways = [relaxed.ways if one is None else one for one in ways[: len(asked)]]
    final = _settled(problem, programmes, asked, ways, effort.steps)
    exact = len(problem.ports) <= EXACT_BLOCKS
    points = [(relaxed.steps + scored, top, bound) for scored, top in search.points]
    return Found(
        best=final[0], current=final[3] if today is not None else None, bound=bound,
        relaxed=relaxed.utilisation, relaxed_bound=relaxed.bound, uniform=final[1].utilisation,
        control=final[2].utilisation, evaluations=search.used,
        solves=(search.used + control.used if exact else 0) + (len(final) if small else 0),
        steps=relaxed.steps, points=relaxed.points + points,
    )  # fmt: skip


def one_hop(problem: Problem, today: Counts | None) -> Found:
    """Return the best circuits for traffic that goes direct only; exact.

    At utilisation u a pair needs ceil(D / u) circuits, D the larger of both directions, so the
    least u that fits the ports is among D / 1, D / 2, ...
    """
    ports, n = problem.ports, len(problem.ports)
    a, b = np.triu_indices(n, 1)
    pairs = np.maximum(problem.demand, problem.demand.T)[a, b]
    tried = np.unique((pairs[pairs > 0, None] / np.arange(1, ports.max() + 1)).ravel())

    def need(u: float) -> Int[np.ndarray, " pairs"]:
        # A quotient that rounding lifted above a whole number is that number.
        return np.ceil(pairs / u * (1 - 1e-12)).astype(np.int64)

    def fits(u: float) -> bool:
        count = need(u)
        return bool((np.bincount(a, count, n) + np.bincount(b, count, n) <= ports).all())

    low, high = 0, len(tried)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(tried[middle]) else (middle + 1, high)
    count = np.zeros((n, n), np.int64)
    if low < len(tried):
        count[a, b] = need(tried[low])
    count += count.T
    share = np.zeros((n, n, n))
    share[np.arange(n), np.arange(n)] = problem.needs
    score = lambda circuits: mesh.utilisation(problem.demand, circuits, share)
    even = _uniform(problem)
    best = Splits(count, share, score(count) if low < len(tried) else np.inf)
    both = np.zeros((n, n))
    both[a, b] = pairs
    floor = float(((both + both.T).sum(1) / np.maximum(ports, 1)).max())
    now = None if today is None else Splits(today, share, score(today))
    return Found(best, now, best.utilisation, floor, floor, score(even), None)


def _relax(
    problem: Problem, programmes: MeshProgrammes | None, steps: int, keep: Checkpoint | None
) -> _Relaxed:
    """Descend on circuits and splits together until the bound is met or the steps are done."""
    kind = jnp.result_type(float)
    demand, ports = problem.demand.astype(kind), problem.ports.astype(kind)
    state, done, bound, points = mesh.begin(_first(problem, kind)), 0, 1.0, Points()
    if programmes is not None:
        bound = max(bound, 1 / programmes.free(problem.ports).bound)
    saved = None if keep is None else keep.load()
    if saved is not None:
        state, done, bound = unpacked("descent", saved, state), saved["done"], saved["bound"]
        points = [(int(row[0]), row[1], row[2]) for row in saved["points"].tolist()]
    powers, sizes = mesh.schedule(steps)
    with Progress(steps, what="steps") as progress:
        while done < steps and not (points and points[-1][1] <= bound * (1 + _TIGHT)):
            part = slice(done, min(done + MIN_STEPS, steps))
            state = mesh.relax(state, powers[part], sizes[part], demand, ports)
            done, best = part.stop, state[2]
            if programmes is None:
                bound = max(bound, price_bound(problem.demand, best.price, problem.ports))
            points.append((done, float(best.utilisation), bound))
            progress.update(
                done, objective=points[-1][1] * problem.unit, bound=bound * problem.unit
            )
            if keep is not None and keep.due:
                keep.save(
                    packed("descent", state)
                    | {"done": done, "bound": bound, "points": np.array(points)}
                )
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
        labels = direct_connect(n, int(ports[0])).labels
        count = np.zeros((n, n), np.int64)
        np.add.at(count, (labels.src, labels.dst), 1)
        return count
    even = mesh.sinkhorn(jnp.zeros((n, n)), jnp.asarray(ports, jnp.result_type(float)))
    # Exact fractions in place of rounding errors, which floors would punish.
    even = np.round(np.asarray(even, float), 5)
    return rounded(even, ports, problem.needs, 0.0, _draw(problem, 0))


def _starts(problem: Problem, relaxed: _Relaxed, roundings: int) -> list[Counts]:
    """Return different roundings, the first without jitter."""
    found: dict[bytes, Counts] = {}
    for i in range(roundings):
        noise = _NOISE * i / roundings
        one = rounded(relaxed.circuits, problem.ports, problem.needs, noise, _draw(problem, 1, i))
        found.setdefault(one.tobytes(), one)
    return list(found.values())


def _search(
    problem: Problem, starts: list[Counts], relaxed: _Relaxed, effort: Effort, random: bool
) -> Search:
    scorer = Scorer(problem.demand, relaxed.ways)
    search = Search(scorer, problem.ports, effort.scores, problem.seed, random)
    search.begin(starts)
    with Progress(effort.scores, what="random circuits" if random else "circuits") as progress:
        for _ in search.run():
            progress.update(search.used, search.top * problem.unit, relaxed.bound * problem.unit)
    return search


def _settled(
    problem: Problem, programmes: MeshProgrammes | None, counts: list[Counts], ways: list[Any],
    steps: int,
) -> list[Splits]:  # fmt: skip
    """Return the best splits of circuits as they are: exact if there are programmes."""
    if programmes is not None:
        found = []
        for count in counts:
            share = programmes.fixed(count).share
            found.append(_scored(problem, count, np.zeros((0,) * 3) if share is None else share))
        return found
    kind = ways[0].dtype
    stacked = np.stack(counts).astype(kind)
    best = mesh.route_all(
        np.stack(ways), *mesh.schedule(steps), problem.demand.astype(kind), stacked
    )
    return [
        _scored(problem, count, _share(way, count, problem.needs))
        for count, way in zip(counts, np.asarray(best.params["ways"]), strict=True)
    ]


def _scored(problem: Problem, count: Counts, share: np.ndarray) -> Splits:
    if len(unserved(count, problem.needs)):
        return Splits(count, np.zeros((len(count),) * 3), np.inf)
    return Splits(count, share, mesh.utilisation(problem.demand, count, share))


def _draw(problem: Problem, *what: int) -> np.random.Generator:
    return np.random.default_rng((problem.seed, *what))
