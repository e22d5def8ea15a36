"""`stages`: how many layers each pipeline stage should have, exactly."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import InfeasibleError, raise_faults
from fabric._memory import afford
from fabric._typing import AnyArray
from fabric.network import whole_or_fault
from fabric.runs import History

Times = AnyArray | Sequence[float] | Sequence[Sequence[float]]


@dataclass(frozen=True, eq=False)
class StagesReport:
    """Layers by stage, and the seconds of the pipeline.

    Attributes:
        layers: (stages,), how many each stage has, in order.
        objective: Seconds: the sum of all stages once, and the slowest m - 1 times.
        bound: The same: the optimum is proved.
        gap: 0.
        certified: True.
        uniform: Seconds with as many layers on every stage, the first ones taking the rest; None
            where that does not fit.
        slowest: Seconds of the slowest stage.
        evaluations: Stages that were timed. `solves`: dynamic programmes. `steps`: the same.
        seconds: That it took. `seed`: None, nothing is drawn.
        history: Best seconds and proved bound, by dynamic programme.
    """

    layers: tuple[int, ...]
    objective: float
    bound: float
    gap: float
    certified: bool
    uniform: float | None
    slowest: float
    evaluations: int
    solves: int
    steps: int
    seconds: float
    seed: int | None
    history: History

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for JSON."""
        plain = {name: value for name, value in asdict(self).items() if name != "history"}
        return {"schema": "fabric.stages/1"} | plain | {"history": self.history.as_dict()}

    def __str__(self) -> str:
        gain = (
            f", {1 - self.objective / self.uniform:.1%} less than uniform" if self.uniform else ""
        )
        return f"layers {'-'.join(map(str, self.layers))}: {self.objective:.6g} s{gain}, proved"


def stages(
    layer_seconds: Times,
    *,
    stages: int,
    microbatches: int,
    extra: Times | None = None,
    layer_bytes: Times | None = None,
    capacity: Times | None = None,
) -> StagesReport:
    """Return the layers of every pipeline stage that make a step shortest.

    A pipeline of m microbatches takes the seconds of all its stages once, and those of the slowest
    m - 1 times. For every ceiling on the slowest stage a dynamic programme over (stage, layers so
    far) finds the least sum; ceilings fall until none can be better.

    Args:
        layer_seconds: (layers,), or (stages, layers) where stages compute at different speeds: of
            one microbatch, both passes.
        stages: Number of stages; each has a layer at least.
        microbatches: m.
        extra: (stages,), seconds of a microbatch beside the layers, as the output head. Default: 0.
        layer_bytes: (layers,) or (stages, layers), what a layer holds. With `capacity`.
        capacity: (stages,), bytes for the layers of each stage.

    Raises:
        ModelError: If shapes do not match, or a number is negative; all faults at once.
        InfeasibleError: If there are fewer layers than stages, or no division fits in memory.

    Cost: O(stages x layers^2) per ceiling: 16 stages of 96 layers in about 10 ms.

    Examples:
        The head takes as long as a layer, so that the last stage has one layer less.

        >>> report = stages([1.0] * 7, stages=2, microbatches=8, extra=[0.0, 1.0])
        >>> report.layers, report.objective
        ((4, 3), 36.0)

    References:
        D. Narayanan et al., PipeDream, 2019, section 3.1: planning by dynamic programme.
    """
    begun = time.perf_counter()
    faults: list[str] = []
    count = whole_or_fault("stages", stages, faults)
    known = not faults
    m = whole_or_fault("microbatches", microbatches, faults)
    n = _layers(layer_seconds)
    needed = () if layer_seconds is None else layer_seconds
    speed = _by_stage("layer_seconds", needed, (count, n), faults, known)
    fixed = _by_stage("extra", extra, (count,), faults, known)
    held = _by_stage("layer_bytes", layer_bytes, (count, n), faults, known)
    room = _by_stage("capacity", capacity, (count,), faults, known)
    if (layer_bytes is None) != (capacity is None):
        faults.append("`layer_bytes` and `capacity` go together. Give both, or none.")
    raise_faults(faults)
    if n < count:
        message = f"{count} stages need a layer each, but there are {n}. Use at most {n} stages."
        raise InfeasibleError(message)
    afford(
        f"`stages` of {count:,} stages and {n:,} layers", 40.0 * count * (n + 1) ** 2,
        "Use fewer of them, or take several layers as one.",
    )  # fmt: skip

    cost = _spans(speed) + fixed[:, None, None]
    cost[:, np.tril(np.ones((n + 1, n + 1), bool))] = np.inf
    if capacity is not None:
        cost[_spans(held) > room[:, None, None] * (1 + 1e-12)] = np.inf

    found = _divided(cost, np.inf)
    if found is None:
        message = (
            f"No division of {n} layers over {count} stages fits: the layers hold "
            f"{held.sum(1).max():.4g} bytes, and all stages together have {room.sum():.4g}. Use "
            f"more stages, or recompute more."
        )
        raise InfeasibleError(message)
    least_sum, solves = found[0], 0
    best, layers, slowest = np.inf, found[1], 0.0
    points: list[tuple[int, float, float]] = []
    while found is not None:
        solves += 1
        total, division = found
        top = float(_stage_seconds(cost, division).max())
        if total + (m - 1) * top < best:
            best, layers, slowest = total + (m - 1) * top, division, top
        # All that is left has this sum at least, and its slowest stage is no faster than the mean.
        points.append((solves, best, min(best, total * (1 + (m - 1) / count))))
        # What has a stage this slow takes at least the least sum and m - 1 such stages.
        ceiling = min(top, (best - least_sum) / (m - 1)) if m > 1 else 0.0
        found = _divided(cost, np.nextafter(ceiling, -np.inf))
    points[-1] = (solves, best, best)
    even = np.full(count, n // count) + (np.arange(count) < n % count)
    alike = _stage_seconds(cost, even)
    uniform = float(alike.sum() + (m - 1) * alike.max()) if np.isfinite(alike).all() else None
    return StagesReport(
        layers=tuple(layers.tolist()), objective=float(best), bound=float(best), gap=0.0,
        certified=True, uniform=uniform, slowest=slowest,
        evaluations=int(np.isfinite(cost).sum()), solves=solves, steps=solves,
        seconds=time.perf_counter() - begun, seed=None, history=History.of(points),
    )  # fmt: skip


def _layers(layer_seconds: object) -> int:
    """Return the number of layers, 1 where the seconds are no table."""
    try:
        return np.shape(np.asarray(layer_seconds, np.float64))[-1]
    except (TypeError, ValueError, IndexError):
        return 1


def _spans(values: Float[np.ndarray, "stages layers"]) -> Float[np.ndarray, "stages from to"]:
    """Return the sum of layers i to j - 1 on each stage, each summed up by itself."""
    count, n = values.shape
    sums = np.zeros((count, n + 1, n + 1))
    for i in range(n):
        np.cumsum(values[:, i:], axis=1, out=sums[:, i, i + 1 :])
    return sums


def _divided(
    cost: Float[np.ndarray, "stages from to"], ceiling: float
) -> tuple[float, Int[np.ndarray, " stages"]] | None:
    """Return the least sum over all stages, none of them slower than a ceiling, and the layers."""
    allowed = np.where(cost <= ceiling, cost, np.inf)
    count, size, _ = cost.shape
    least = np.where(np.arange(size) == 0, 0.0, np.inf)
    came = np.zeros((count, size), np.int64)
    for s in range(count):
        reached = least[:, None] + allowed[s]
        came[s] = reached.argmin(axis=0)
        least = reached.min(axis=0)
    if not np.isfinite(least[-1]):
        return None
    ends = [size - 1]
    for s in range(count - 1, -1, -1):
        ends.append(int(came[s, ends[-1]]))
    return float(least[-1]), np.diff(ends[::-1])


def _stage_seconds(
    cost: Float[np.ndarray, "stages from to"], layers: Int[np.ndarray, " stages"]
) -> Float[np.ndarray, " stages"]:
    ends = np.cumsum(layers)
    return cost[np.arange(len(layers)), ends - layers, ends]


def _by_stage(
    name: str, values: object, shape: tuple[int, ...], faults: list[str], known: bool
) -> Float[np.ndarray, "..."]:
    """Return values by stage, or 0 with a fault; shapes count where the stages are known."""
    if values is None:
        return np.zeros(shape)
    try:
        table = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        faults.append(f"`{name}` needs numbers, but got {values!r:.60}.")
        return np.zeros(shape)
    if (known and table.shape not in (shape, shape[1:] or shape)) or not table.size:
        wanted = " or ".join(str(s) for s in dict.fromkeys([shape[1:] or shape, shape]))
        faults.append(f"`{name}` needs shape {wanted}, but has {table.shape}.")
        return np.zeros(shape)
    if not np.all(np.isfinite(table) & (table >= 0)):
        wrong = int((~(np.isfinite(table) & (table >= 0))).sum())
        faults.append(f"`{name}` needs finite numbers of 0 or more, but {wrong:,} are not.")
    return np.broadcast_to(table, shape) if known else np.zeros(shape)
