"""`capacities`: how fast to make every tier of a fabric for the money, with a proof."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, TypeGuard

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from fabric._errors import InfeasibleError, nearest, quoted, raise_faults, some
from fabric._units import parse_time
from fabric.network import Network, whole_or_fault
from fabric.optimize._capacity_search import UNLIMITED, Search
from fabric.optimize._jobs import Job, JobStep, listed
from fabric.optimize._kept import checkpoint_of
from fabric.optimize._money import Purse
from fabric.optimize._step_goal import Goal
from fabric.optimize._tier_prices import Groups, Price, Priced
from fabric.runs import History, finite

_ROUNDED = 1e-12
TOLERANCE = 1e-3
Target = str | float | Sequence[str | float]
Limits = float | Mapping[str, float]


@dataclass(frozen=True, eq=False)
class CapacitiesReport:
    """How much of each group of links to buy, and what proves that it is right.

    Attributes:
        objective: With a budget the mean seconds of a step, with a target the money; steps are
            scored with exact rates.
        bound: No capacities are better, over these routes.
        gap: objective / bound - 1.
        certified: Whether the gap is within the tolerance.
        before: With a budget the seconds if all groups are made faster or slower alike until the
            money is spent; with a target the money if all are made so until the target is met.
        factors: By group, over the capacity as built. `capacities`: of the widest link of each
            group, byte/s. `spent`: money in each group. `worth`: seconds saved by the next unit of
            money in each group, 0 where no more can be bought; with a target, share of the target.
        step_times: Seconds of a step, by job.
        network: The network with these capacities.
        steps: Of the descent. `evaluations`: capacities that were scored. `solves`: exact max-min
            solves. `seconds`: wall time, compilation included. All of them without the control.
        seed: Of the start.
        history: Objective and bound, by step.
        control: The objective that random divisions of the money and moves between two groups
            reach in as many evaluations, each gradient counted as seven; with a target they divide
            the money that was found, and are then scaled until it is met. None if not asked for.
    """

    objective: float
    bound: float
    gap: float
    certified: bool
    before: float
    factors: dict[str, float]
    capacities: dict[str, float]
    spent: dict[str, float]
    worth: dict[str, float]
    step_times: dict[str, float]
    network: Network = field(repr=False)
    steps: int
    evaluations: int
    solves: int
    seconds: float
    seed: int
    history: History = field(repr=False)
    control: float | None

    @property
    def cost(self) -> float:
        """Money in all groups together."""
        return sum(self.spent.values())

    @property
    def next(self) -> str:
        """The group where the next unit of money saves most."""
        return max(self.worth, key=self.worth.__getitem__)

    def as_dict(self) -> dict[str, Any]:
        """Return all but the network for JSON, schema `fabric.capacities/1`."""
        names = (
            "objective", "bound", "gap", "certified", "before", "factors", "capacities", "spent",
            "worth", "step_times", "cost", "steps", "evaluations", "solves", "seconds", "seed",
            "control",
        )  # fmt: skip
        found = {name: getattr(self, name) for name in names}
        found |= {"gap": finite(self.gap), "history": self.history.as_dict()}
        return {"schema": "fabric.capacities/1", **found}

    def __str__(self) -> str:
        lines = [
            f"{name:16} x{factor:<8.4g} {self.capacities[name] * 8 / 1e9:10,.1f} Gb/s a link "
            f"{self.spent[name]:14,.6g} spent"
            for name, factor in self.factors.items()
        ]
        took = ", ".join(f"{name} {seconds:.4g} s" for name, seconds in self.step_times.items())
        head = (
            f"objective {self.objective:.6g} from {self.before:.6g}, bound {self.bound:.6g}, gap "
            f"{self.gap:.2e}; steps: {took}; cost {self.cost:,.6g}"
        )
        return "\n".join([head, *lines])


def capacities(
    network: Network,
    jobs: Job | Sequence[Job],
    prices: Mapping[str, Price],
    *,
    budget: float | None = None,
    target: Target | None = None,
    groups: Groups | None = None,
    least: Limits = 0.0,
    most: Limits = UNLIMITED,
    steps: int = 500,
    tolerance: float = TOLERANCE,
    control: bool = True,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
) -> CapacitiesReport:
    """Return the capacities for which steps are shortest within a budget, or that cost least.

    Cables stay where they are, and every group of links gets faster or slower as a whole. Several
    jobs run on the fabric in turn. Money is divided by a softmax, and Adam follows the gradient of
    the logarithm of the step, its maxima rounded less and less. Every step gives a bound.

    Args:
        network: With labels; its capacities are what factors count from.
        jobs: One or several. What their steps take is averaged by their shares.
        prices: By tier, or by name of `groups`: money per byte/s of a cable, or text such as
            "0.8 per Gb/s". Links without a price stay as they are.
        budget: Money for all groups together. Give it or `target`.
        target: Seconds that a step may take, one for all jobs or one each.
        groups: Links by name, to be bought apart. Default: the tiers.
        least: Smallest factor, for all groups or by name. 1: what is there stays.
        most: Largest factor. Default: 1e9.
        steps: Of the descent, at most; with a target, of each of up to six.
        tolerance: The gap at which to stop.
        control: Whether random moves are tried beside the descent.
        seed: 0 begins with the money divided as built; others begin at random.
        checkpoint: A file that keeps the state; the same call goes on from there, with or without
            the control.

    Returns:
        A `CapacitiesReport`. What it spends is within the budget, and what its steps take within
        the target. Groups that no job loads get the smallest factor.

    Raises:
        ModelError: If an argument is out of range or a name unknown.
        InfeasibleError: If the smallest factors cost more than the budget, or leave nothing for
            others; if no capacities meet the target: with the seconds that are left at any
            capacity, job by job.

    Precision: The default float type of JAX. In float32 the bound is lowered by 1e-4.
    Cost: Routing once per kind of exchange; a step of the descent takes tens of microseconds
        whatever the size of the network. Exact solves at the end, and 60 with their derivatives
        where flows of different sizes share links.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.cluster("dgx-h100", nodes=2)
        >>> job = Job(
        ...     model=fb.Model.listed("llama-3.1-8b"),
        ...     layout=fb.Layout.parse("tp8 sp dp2 zero1 mb1 gbs16 seq8192"),
        ... )
        >>> prices = {"nvlink": "1 per Gb/s", "host": "3 per Gb/s"}
        >>> found = capacities(net, job, prices, budget=100e3, steps=100)
        >>> found.objective <= found.before, found.gap >= 0
        (True, True)

    References:
        The bound: convexity of a step in the logarithms of capacities, as of the posynomials of
        S. Boyd et al., A tutorial on geometric programming, 2007.
    """
    jobs = listed(jobs)
    begun = time.perf_counter()
    targets = _checked(jobs, budget, target, steps, tolerance, seed)
    priced = Priced.of(network, prices, groups)
    budget = None if budget is None else float(budget)
    steps, tolerance, seed = int(steps), float(tolerance), int(seed)
    low, high = limits_of(priced, least, most)
    kind = jnp.zeros(()).dtype
    purse = Purse(*(jnp.asarray(a, kind) for a in (priced.cost, low, high)))
    if budget is not None:
        affordable(priced, low, budget)
    works = [JobStep(network, job, priced.group_of, priced.n_groups) for job in jobs]
    goal = Goal(works, targets)
    if budget is not None:
        affordable(priced, low, budget, goal.loaded)
    # The routes themselves: of a function that made them there is only a name.
    kept = checkpoint_of(
        checkpoint, "capacities", network, priced, low, high, budget, targets, steps, tolerance,
        seed, [(*w.asked, w.loads, [phase.routes for phase in w.phases]) for w in works],
    )  # fmt: skip
    search = Search(goal, purse, steps, tolerance, seed, kept)
    if targets is not None and search.score(purse.most) > 1:
        raise InfeasibleError(_out_of_reach(jobs, targets, goal.seconds(purse.most)))
    found = search.within(budget) if budget is not None else search.meeting()
    x, value = found.x, found.value
    bound = found.bound * (1 - (1e-4 if kind == np.float32 else 1e-10))
    built = np.asarray(network.capacity)
    widest = [float(built[priced.group_of == i].max()) for i in range(priced.n_groups)]
    by = lambda values: dict(zip(priced.names, (float(v) for v in values), strict=True))
    gap = gap_of(value, bound)
    report = CapacitiesReport(
        objective=value, bound=bound, gap=gap, certified=gap <= tolerance, before=found.before,
        factors=by(x), capacities=by(x * widest), spent=by(x * priced.cost),
        worth=by(_worth(np.asarray(search.tangent(x)[1], np.float64), x, priced.cost, high)),
        step_times=_named(jobs, goal.seconds(x)),
        network=priced.faster(network, x),
        steps=search.steps_taken, evaluations=search.evaluations, solves=search.solves,
        seconds=time.perf_counter() - begun, seed=seed, history=History.of(search.points),
        control=None,
    )  # fmt: skip
    return replace(report, control=search.control(found, budget)) if control else report


def gap_of(value: float, bound: float) -> float:
    """Return how far a value is above a bound, as a share of the bound."""
    if value <= bound:
        return 0.0
    return value / bound - 1 if bound > 0 else float("inf")


def _worth(
    slope: Float[np.ndarray, " groups"], x: Float[np.ndarray, " groups"],
    cost: Float[np.ndarray, " groups"], high: Float[np.ndarray, " groups"],
) -> Float[np.ndarray, " groups"]:  # fmt: skip
    """Return what the next unit of money saves in each group, from the slope of a tangent."""
    more = (x > 0) & (x < high * (1 - 1e-9))
    return np.where(more, slope / (cost * np.where(x > 0, x, 1)), 0)


def _checked(
    jobs: Sequence[Job], budget: object, target: Target | None, steps: int, tolerance: object,
    seed: object,
) -> tuple[float, ...] | None:  # fmt: skip
    """Return the targets in seconds, one per job, or None; or raise with all faults."""
    faults: list[str] = []
    if (budget is None) == (target is None):
        got = "none of them" if budget is None else "both"
        faults.append(f"`capacities` needs `budget` or `target`, but got {got}. Give one.")
    checked(faults, steps, tolerance, seed, budget)
    raise_faults(faults)
    if target is None:
        return None
    given: list[Any] = [target] * len(jobs)
    if isinstance(target, Sequence | np.ndarray) and not isinstance(target, str):
        given = list(target)
    faults += [
        f"`target` needs times such as '9s', but got {value!r}."
        for value in given
        if not (isinstance(value, str) or _is_number(value))
    ]
    raise_faults(list(dict.fromkeys(faults)))
    seconds = tuple(parse_time(value, "target") for value in given)
    if len(seconds) != len(jobs):
        faults.append(f"`target` has {len(seconds)} times for {len(jobs)} jobs. Give one each.")
    faults += [
        f"`target` needs times above 0, but got {value:g} s."
        for value in seconds
        if not (value > 0 and np.isfinite(value))
    ]
    raise_faults(faults)
    return seconds


def checked(
    faults: list[str], steps: object, tolerance: object, seed: object, budget: object = None
) -> None:
    """Add a fault for each of these that is out of range."""
    whole_or_fault("steps", steps, faults)
    whole_or_fault("seed", seed, faults, least=0, most=2**32 - 1)
    if not (_is_number(tolerance) and 0 <= tolerance < 1):
        faults.append(f"`tolerance` needs a share from 0 to below 1, but got {tolerance!r}.")
    if budget is not None and not (_is_number(budget) and np.isfinite(budget) and budget > 0):
        faults.append(f"`budget` needs money above 0, but got {budget!r}.")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)


def limits_of(
    priced: Priced, least: Limits, most: Limits
) -> tuple[Float[np.ndarray, " groups"], Float[np.ndarray, " groups"]]:
    """Return the smallest and the largest factor of every group."""
    faults: list[str] = []

    def given(word: str, limits: Limits, default: float) -> dict[str, float]:
        each = limits if isinstance(limits, Mapping) else dict.fromkeys(priced.names, limits)
        found = dict.fromkeys(priced.names, default)
        for name, value in each.items():
            if name not in found:
                hint = nearest(name, priced.names)
                faults.append(f"`{word}` has '{name}', which has no price. {hint}")
            elif not (_is_number(value) and np.isfinite(value) and value >= 0):
                needs = "needs a factor of 0 or more"
                faults.append(f"`{word}` of '{name}' {needs}, but got {value!r}.")
            else:
                found[name] = float(value)
        return found

    low, high = given("least", least, 0.0), given("most", most, UNLIMITED)
    faults += [
        f"`most` of '{name}' needs a factor above 0 and no less than its `least` of "
        f"{low[name]:g}, but got {high[name]:g}."
        for name in priced.names
        if high[name] < low[name] or not high[name]
    ]
    raise_faults(list(dict.fromkeys(faults)))
    return np.array(list(low.values())), np.array(list(high.values()))


def affordable(
    priced: Priced, low: Float[np.ndarray, " groups"], budget: float,
    loaded: Bool[np.ndarray, " groups"] | None = None,
) -> None:  # fmt: skip
    """Raise unless the smallest factors are within the budget.

    Args:
        priced: What things cost.
        low: The smallest factors.
        budget: Money.
        loaded: Groups that need more than nothing. Default: none.
    """
    needed = float(priced.cost @ low)
    if budget < needed * (1 - _ROUNDED):
        message = (
            f"`budget={budget:,.6g}` is below what the smallest factors (`least`) cost: "
            f"{needed:,.6g}. Raise it, or lower `least`."
        )
        raise InfeasibleError(message)
    bare = [] if loaded is None else np.flatnonzero(loaded & (low == 0)).tolist()
    if bare and budget <= needed * (1 + _ROUNDED):
        message = (
            f"`budget={budget:,.6g}` is all spent on the smallest factors (`least`), and leaves "
            f"nothing for {some(bare, name=lambda i: priced.names[i])}. Raise it, or lower `least`."
        )
        raise InfeasibleError(message)


def _named(jobs: Sequence[Job], seconds: Sequence[float]) -> dict[str, float]:
    """Return seconds by name; jobs of one name are numbered."""
    names = [job.called for job in jobs]
    told = [n if names.count(n) == 1 else f"{n} #{i}" for i, n in enumerate(names)]
    return dict(zip(told, seconds, strict=True))


def _out_of_reach(jobs: Sequence[Job], targets: Sequence[float], seconds: Sequence[float]) -> str:
    """Return which targets no capacities meet."""
    named = _named(jobs, seconds)
    late = [
        f"{quoted(name)} takes {took:.4g} s and may take {want:.4g} s"
        for (name, took), want in zip(named.items(), targets, strict=True)
        if took > want
    ]
    more = f" and {len(late) - 5:,} more" if len(late) > 5 else ""
    return (
        f"`target` cannot be met at the largest factors (`most`): {', '.join(late[:5])}{more}. "
        f"What is left is computing, latency, and links without a price. Raise the target or "
        f"`most`, or price more tiers."
    )
