"""`capacities`: how fast to make every tier of a fabric for the money, with a proof."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from fabric._errors import InfeasibleError, nearest, raise_faults, some
from fabric._units import parse_time
from fabric.network import Network, whole_or_fault
from fabric.optimize._capacity_search import UNLIMITED, Search
from fabric.optimize._jobs import Job, JobStep, listed
from fabric.optimize._money import Purse
from fabric.optimize._step_goal import Goal
from fabric.optimize._tier_prices import Price, Priced
from fabric.runs import Checkpoint, History, fingerprint

_SHARP = 2000.0
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
        before: The objective of the capacities as they are: with a budget the seconds if all
            groups are made faster or slower alike until the money is spent; with a target the
            money if all are made so until the target is met, infinite where no factor does.
        factors: By group, over the capacity as built. `capacities`: of the widest link of each
            group, byte/s. `spent`: money in each group. `worth`: seconds saved by the next unit of
            money in each group; with a target, share of the target.
        step_times: Seconds of a step, by job.
        network: The network with these capacities.
        steps: Of the descent. `evaluations`: capacities that were scored. `solves`: exact max-min
            solves. `seconds`: wall time, compilation included. `seed`: of the start.
        history: Objective and bound, by step.
        control: The objective that random divisions of the money and moves between two groups
            reach in as many evaluations, each gradient counted as seven; None with a target.
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
        found["before"] = self.before if np.isfinite(self.before) else None
        return {"schema": "fabric.capacities/1", **found, "history": self.history.as_dict()}

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
    groups: Mapping[str, Sequence[int]] | None = None,
    least: Limits = 0.0,
    most: Limits = UNLIMITED,
    steps: int = 500,
    tolerance: float = 1e-3,
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
        checkpoint: A file that keeps the state; the same call goes on from there.

    Returns:
        A `CapacitiesReport`.

    Raises:
        ModelError: If an argument is out of range or a name unknown.
        InfeasibleError: If the smallest factors cost more than the budget, or no capacities meet
            the target: with the seconds that are left at any capacity, job by job.

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
    targets = _checked(jobs, budget, target, steps, tolerance)
    priced = Priced.of(network, prices, groups)
    low, high = limits_of("least", least, priced), limits_of("most", most, priced)
    kind = jnp.zeros(()).dtype
    purse = Purse(*(jnp.asarray(a, kind) for a in (priced.cost, low, high)))
    if budget is not None:
        affordable(priced, low, budget)
    works = [JobStep(network, job, priced.group_of, priced.n_groups) for job in jobs]
    goal = Goal(works, targets)
    kept = None
    if checkpoint is not None:
        asked = (
            network, priced, low, high, budget, targets, steps, tolerance, seed,
            [(w.loads, w.total.transfer, w.job.share) for w in works], goal.seconds(low * 0 + 1),
        )  # fmt: skip
        kept = Checkpoint(checkpoint, fingerprint(*asked))
    search = Search(goal, purse, steps, tolerance, seed, kept)
    if targets is not None and search.score(purse.most) > 1:
        raise InfeasibleError(_out_of_reach(jobs, targets, goal.seconds(purse.most)))
    found = search.within(budget) if budget is not None else search.meeting()
    x, value, bound, before = found
    beside = search.control(budget) if control and budget is not None else None
    bound *= 1 - (1e-4 if kind == np.float32 else 1e-10)
    gap = max(value / bound - 1, 0.0) if bound > 0 else float("inf")
    at = np.asarray(x, np.float64)
    worth = np.asarray(goal.tangent(jnp.asarray(at, kind), jnp.asarray(_SHARP, kind))[1])
    wide = np.append(at, 1.0)[priced.group_of]
    built = np.asarray(network.capacity)
    widest = [float(built[priced.group_of == i].max()) for i in range(priced.n_groups)]
    by = lambda values: dict(zip(priced.names, (float(v) for v in values), strict=True))
    return CapacitiesReport(
        objective=value, bound=bound, gap=gap, certified=gap <= tolerance, before=before,
        factors=by(at), capacities=by(at * widest), spent=by(at * priced.cost),
        worth=by(worth / (priced.cost * at)), step_times=_named(jobs, goal.seconds(x)),
        network=network.with_capacity((built * wide).astype(built.dtype)),
        steps=search.steps_taken, evaluations=search.evaluations, solves=search.solves,
        seconds=time.perf_counter() - begun, seed=seed, history=History.of(search.points),
        control=beside,
    )  # fmt: skip


def _checked(
    jobs: Sequence[Job], budget: object, target: Target | None, steps: int, tolerance: float
) -> tuple[float, ...] | None:
    """Return the targets in seconds, one per job, or None; or raise with all faults."""
    faults: list[str] = []
    whole_or_fault("steps", steps, faults)
    if not 0 <= tolerance < 1:
        faults.append(f"`tolerance` needs a share from 0 to below 1, but got {tolerance!r}.")
    if (budget is None) == (target is None):
        got = "none of them" if budget is None else "both"
        faults.append(f"`capacities` needs `budget` or `target`, but got {got}. Give one.")
    if budget is not None and not (
        isinstance(budget, int | float) and np.isfinite(budget) and budget > 0
    ):
        faults.append(f"`budget` needs money above 0, but got {budget!r}.")
    raise_faults(faults)
    if target is None:
        return None
    alone = isinstance(target, str | int | float)
    given = [target] * len(jobs) if alone else list(target)
    seconds = tuple(parse_time(value, "target") for value in given)
    if len(seconds) != len(jobs):
        faults.append(f"`target` has {len(seconds)} times for {len(jobs)} jobs. Give one each.")
    if not min(seconds, default=1) > 0:
        faults.append(f"`target` needs times above 0, but got {min(seconds):g} s.")
    raise_faults(faults)
    return seconds


def limits_of(name: str, given: Limits, priced: Priced) -> Float[np.ndarray, " groups"]:
    """Return the limit of every group."""
    default = 0.0 if name == "least" else UNLIMITED
    each = given if isinstance(given, Mapping) else dict.fromkeys(priced.names, given)
    faults = [
        f"`{name}` has '{key}', which has no price. {nearest(key, priced.names)}"
        for key in each
        if key not in priced.names
    ]
    faults += [
        f"`{name}` of '{key}' needs a factor of 0 or more, but got {value!r}."
        for key, value in each.items()
        if not (np.isfinite(value) and value >= 0)
    ]
    raise_faults(faults)
    return np.array([float(each.get(key, default)) for key in priced.names])


def affordable(priced: Priced, low: Float[np.ndarray, " groups"], budget: float) -> None:
    """Raise unless the smallest factors are within the budget."""
    if budget < (needed := float(priced.cost @ low)) * (1 + 1e-9):
        message = (
            f"`budget={budget:,.6g}` is below what the smallest factors (`least`) cost: "
            f"{needed:,.6g}. Raise it, or lower `least`."
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
        f"'{name}' takes {took:.4g} s and may take {want:.4g} s"
        for (name, took), want in zip(named.items(), targets, strict=True)
        if took > want
    ]
    return (
        f"`target` cannot be met at the largest factors (`most`): {some(late, name=str)}. What is "
        f"left is computing, latency, and links without a price. Raise the target or `most`, or "
        f"price more tiers."
    )
