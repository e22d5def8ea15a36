"""`capacity_curve`: which tier to buy next, as the money grows."""

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from fabric._errors import ModelError
from fabric.network import Network
from fabric.optimize._capacities import TOLERANCE, CapacitiesReport, capacities, gap_of
from fabric.optimize._jobs import Job
from fabric.optimize._tier_prices import Price


@dataclass(frozen=True)
class CapacityCurve:
    """The best capacities for growing budgets.

    Attributes:
        budgets: Money, ascending.
        points: The best capacities for each.
    """

    budgets: tuple[float, ...]
    points: tuple[CapacitiesReport, ...]

    @property
    def bought(self) -> tuple[dict[str, float], ...]:
        """Money that goes to each group from one budget to the next; the first from nothing."""
        before = dict.fromkeys(self.points[0].spent, 0.0)
        out = []
        for point in self.points:
            out.append({name: paid - before[name] for name, paid in point.spent.items()})
            before = point.spent
        return tuple(out)

    @property
    def next(self) -> tuple[str, ...]:
        """The group that gets most of the money from each budget to the one after it."""
        return tuple(max(more, key=more.__getitem__) for more in self.bought[1:])

    @property
    def marginal(self) -> tuple[float, ...]:
        """Seconds saved by a unit of money, from each budget to the one after it."""
        pairs = zip(self.points[:-1], self.points[1:], self.budgets[:-1], self.budgets[1:],
                    strict=True)  # fmt: skip
        return tuple((a.objective - b.objective) / (high - low) for a, b, low, high in pairs)

    def as_dict(self) -> dict[str, Any]:
        """Return the curve for JSON, schema `fabric.capacity-curve/1`."""
        return {
            "schema": "fabric.capacity-curve/1",
            "budgets": list(self.budgets),
            "points": [point.as_dict() for point in self.points],
            "bought": list(self.bought),
            "next": list(self.next),
            "marginal": list(self.marginal),
        }

    def __str__(self) -> str:
        lines = ["       budget      step    bound  buy next        seconds per unit of money"]
        after = [*zip(self.next, self.marginal, strict=True), ("", None)]
        for budget, point, (name, worth) in zip(self.budgets, self.points, after, strict=True):
            said = "" if worth is None else f"{worth:.3g}"
            lines.append(
                f"{budget:13,.6g} {point.objective:9.4g} {point.bound:8.4g}  {name:14}  {said}"
            )
        return "\n".join(lines)


def capacity_curve(
    network: Network,
    jobs: Job | Sequence[Job],
    prices: Mapping[str, Price],
    budgets: Sequence[float],
    *,
    keep: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    **options: Any,
) -> CapacityCurve:
    """Return which tier to buy next, for more and more money.

    Args:
        network: With labels.
        jobs: As of `capacities`.
        prices: As of `capacities`.
        budgets: Money, ascending.
        keep: What an earlier budget bought stays: only more is bought. False: every budget starts
            from nothing.
        checkpoint: Files that keep the state, one per budget: this name and a number. The same
            call goes on from there.
        options: Other arguments of `capacities`. `least={...: 1}` keeps what the network has.

    Raises:
        ModelError: If there are fewer than two budgets or they do not ascend; as of `capacities`.
        InfeasibleError: As of `capacities`.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.cluster("dgx-h100", nodes=2)
        >>> job = Job(
        ...     model=fb.Model.listed("llama-3.1-8b"),
        ...     layout=fb.Layout.parse("tp8 sp dp2 zero1 mb1 gbs16 seq8192"),
        ... )
        >>> prices = {"nvlink": "1 per Gb/s", "host": "3 per Gb/s"}
        >>> curve = capacity_curve(net, job, prices, [60e3, 90e3], steps=50, control=False)
        >>> curve.points[1].objective < curve.points[0].objective, curve.marginal[0] > 0
        (True, True)
    """
    given = _ascending(budgets)
    strange = sorted({"budget", "target"} & set(options))
    if strange:
        message = f"`capacity_curve({strange[0]}=...)` is not there: `budgets` says the money."
        raise ModelError(message)
    points: list[CapacitiesReport] = []
    for i, budget in enumerate(given):
        more = dict(options)
        if points and keep:
            more["least"] = points[-1].factors
        if checkpoint is not None:
            more["checkpoint"] = f"{os.fspath(checkpoint)}.{i}"
        point = capacities(network, jobs, prices, budget=budget, **more)
        if points and point.objective > points[-1].objective:
            # Within the tolerance the money before did better: no more of it is spent.
            gap = gap_of(points[-1].objective, point.bound)
            sure = gap <= float(options.get("tolerance", TOLERANCE))
            point = replace(points[-1], bound=point.bound, gap=gap, certified=sure)
        points.append(point)
    return CapacityCurve(given, tuple(points))


def _ascending(budgets: object) -> tuple[float, ...]:
    """Return the budgets, or raise with what was found."""
    listed = list(budgets) if isinstance(budgets, Sequence | np.ndarray) else [budgets]
    numbers = [b for b in listed if isinstance(b, Real) and not isinstance(b, bool)]
    if len(numbers) == len(listed) > 1:
        given = tuple(float(b) for b in numbers)
        if all(low < high for low, high in itertools.pairwise(given)):
            return given
    message = (
        f"`budgets` needs two or more amounts of money in ascending order, but got {listed!r}."
    )
    raise ModelError(message)
