"""`codesign`: the layout of a job and the capacities of a fabric together, by gradient."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from fabric.hardware import Gpu, Profile
from fabric.network import Network, Placement
from fabric.optimize._capacities import TOLERANCE, UNLIMITED, Limits, checked, gap_of
from fabric.optimize._capacity_control import climbed
from fabric.optimize._capacity_search import GRADIENT_COST
from fabric.optimize._design_case import EXACT, Case, prepared
from fabric.optimize._design_descent import descended
from fabric.optimize._layout_choice import Choice
from fabric.optimize._money import logits, trimmed
from fabric.optimize._tier_prices import Groups, Price
from fabric.runs import History, finite
from fabric.training import Model
from fabric.training._phases import Router


@dataclass(frozen=True, eq=False)
class DesignReport:
    """A layout and the capacities for it, and what proves how good the two are.

    Attributes:
        objective: Seconds of a step, scored with exact rates.
        bound: No layout is faster with any capacities for the money, over the same routes.
        gap: objective / bound - 1. `certified`: whether it is within the tolerance.
        before: Seconds of the best layout if all groups are made faster or slower alike until the
            money is spent.
        best: The layout. `factors`: of capacities, by group. `spent`: money, by group.
        network: The network with these capacities.
        rows: Layouts that fit, and `kept`: that no bound ruled out before the descent.
        steps: Of the descent of all kept layouts at once. `evaluations`: layouts scored, once per
            capacities. `solves`: sets of degrees that were solved exactly. `seconds`: wall time,
            compilation included; `descent_seconds`: of the compiled descent. All of them without
            the control.
        seed: Of the start.
        history: Objective, before exact solves, and bound, by step: until the end that of all of
            the money in every group.
        control: The objective that random divisions of the money and moves between groups reach,
            the best layout taken for each, in as many evaluations, a gradient counted as seven;
            None if not asked for.
    """

    objective: float
    bound: float
    gap: float
    certified: bool
    before: float
    best: Choice
    factors: dict[str, float]
    spent: dict[str, float]
    network: Network = field(repr=False)
    rows: int
    kept: int
    steps: int
    evaluations: int
    solves: int
    seconds: float
    descent_seconds: float
    seed: int
    history: History = field(repr=False)
    control: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return all but the network for JSON, schema `fabric.codesign/1`."""
        names = (
            "objective", "bound", "gap", "certified", "before", "factors", "spent", "rows", "kept",
            "steps", "evaluations", "solves", "seconds", "descent_seconds", "seed", "control",
        )  # fmt: skip
        found = {name: getattr(self, name) for name in names}
        found |= {"gap": finite(self.gap), "best": self.best.as_dict()}
        return {"schema": "fabric.codesign/1", **found, "history": self.history.as_dict()}

    def __str__(self) -> str:
        told = ", ".join(f"{name} x{factor:.4g}" for name, factor in self.factors.items())
        return (
            f"{self.best}; {told}; from {self.before:.4g} s, bound {self.bound:.6g}, gap "
            f"{self.gap:.2e}; {self.rows:,} layouts fit, {self.kept:,} of them left by the bounds"
        )


def codesign(
    network: Network,
    model: Model,
    prices: Mapping[str, Price],
    *,
    budget: float,
    gbs: int,
    seq: int,
    gpus: int | None = None,
    dtype: str = "bf16",
    schedule: str = "1f1b",
    recompute: str = "modes",
    rank_orders: str | Sequence[str | Sequence[str]] = "tp-cp-dp-pp",
    limits: Mapping[str, int] | None = None,
    groups: Groups | None = None,
    least: Limits = 0.0,
    most: Limits = UNLIMITED,
    placement: Placement | str | None = None,
    routing: str | Router | None = None,
    profile: Profile | str | None = None,
    gpu: Gpu | str | None = None,
    steps: int = 200,
    tolerance: float = TOLERANCE,
    control: bool = True,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
) -> DesignReport:
    """Return the layout and the capacities that make a step shortest within a budget.

    Adam divides the money for every layout that fits, all at once, by the gradient of the logarithm
    of its step; then the best layout is taken. Layouts that would lose with all of the money in
    every group are left out before.

    Args:
        network: With labels; its capacities are what factors count from.
        model: Its shape.
        prices: As of `capacities`.
        budget: Money for all groups together.
        gbs: Global batch in sequences.
        seq: Tokens of a sequence.
        gpus: How many to use. Default: all.
        dtype: As of `layout`.
        schedule: As of `layout`.
        recompute: As of `layout`.
        rank_orders: As of `layout`.
        limits: Largest sizes of the layout, as of `layout`.
        groups: As of `capacities`.
        least: Smallest factor of capacity, for all groups or by name.
        most: Largest factor.
        placement: As of `layout`.
        routing: As of `step`.
        profile: As of `step`.
        gpu: As of `step`.
        steps: Of the descent.
        tolerance: The gap up to which the result counts as certified.
        control: Whether random moves are tried beside the descent.
        seed: 0 begins with the money divided as built; others begin at random.
        checkpoint: A file that keeps routed exchanges and finished layouts; the same call goes on
            from there, with or without the control.

    Returns:
        A `DesignReport`. What it spends is within the budget.

    Raises:
        ModelError: If an argument is out of range or a name unknown.
        InfeasibleError: If no layout suits and fits, the smallest factors cost too much or leave
            nothing for others, or there is too little memory for so many layouts.

    Precision: The default float type of JAX; the best layouts are scored exactly at the end.
    Cost: One routing per kind of exchange and set of degrees; then about ten scores per layout and
        step, compiled.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.cluster("dgx-h100", nodes=2)
        >>> found = codesign(
        ...     net, Model.listed("llama-3.1-8b"), {"nvlink": "1 per Gb/s", "host": "3 per Gb/s"},
        ...     budget=80e3, gbs=64, seq=8192, limits={"vpp": 1, "cp": 1}, steps=50,
        ... )
        >>> found.objective <= found.before, found.gap >= 0
        (True, True)
    """
    begun = time.perf_counter()
    faults: list[str] = []
    checked(faults, steps, tolerance, seed)
    case = prepared(
        network, model, prices, budget=budget, gbs=gbs, seq=seq, gpus=gpus, dtype=dtype,
        schedule=schedule, recompute=recompute, rank_orders=rank_orders, limits=limits,
        groups=groups, least=least, most=most, placement=placement, routing=routing,
        profile=profile, gpu=gpu, seed=seed, faults=faults, checkpoint=checkpoint,
        options=(steps,),
    )  # fmt: skip
    steps, tolerance, seed = int(steps), float(tolerance), int(seed)
    budget = float(budget)
    design, purse, keep, space = case.design, case.purse, case.keep, case.space
    z = np.broadcast_to(np.asarray(logits(jnp.ones_like(purse.cost), purse)), case.shape)
    if seed:
        z = np.random.default_rng(seed).normal(size=z.shape)
    found = descended(design, purse, budget, z, steps, case.kept)
    known = float(min(case.lower.min(), case.ruled_out))
    proved = np.fmax(found.bound, case.lower)
    slack = 1 - (1e-4 if purse.cost.dtype == np.float32 else 1e-10)
    bound = float(min(proved.min(), case.ruled_out)) * slack
    order = np.argsort(found.value, kind="stable")[:EXACT]
    tried = [(int(keep[i]), trimmed(found.x[i], budget, purse)) for i in order.tolist()]
    value, row, x = case.scorer.first(tried)
    if case.before < value:
        value, row, x = case.before, case.usual, case.alike
    degrees = space.degrees[space.degrees_of[row]]
    gap = gap_of(value, bound)
    by = lambda values: dict(zip(case.priced.names, (float(v) for v in values), strict=True))
    points = [(i, v, known) for i, v in enumerate(found.trace.tolist())]
    report = DesignReport(
        objective=value, bound=bound, gap=gap, certified=gap <= tolerance, before=case.before,
        best=Choice(
            space.layout(row), "-".join(degrees.order), space.recomputed_layers(row),
            Placement(degrees.ranks(case.slots)), value, float(space.margin[space.shape_of[row]]),
        ),
        factors=by(x), spent=by(x * case.priced.cost), network=case.priced.faster(network, x),
        rows=space.n_rows, kept=len(keep), steps=steps, evaluations=steps * len(keep),
        solves=len(tried) + case.solves,
        seconds=time.perf_counter() - begun, descent_seconds=found.seconds, seed=seed,
        history=History.of([*points, (steps, value, bound)]), control=None,
    )  # fmt: skip
    return replace(report, control=_random(case, budget, seed, steps)) if control else report


def _random(case: Case, budget: float, seed: int, steps: int) -> float:
    """Return what random divisions and moves reach in as many evaluations as some steps."""
    design, purse, count = case.design, case.purse, (1 + GRADIENT_COST) * steps
    x = climbed(design.fastest, purse, budget, seed, count, design.tables())
    drawn = trimmed(x, budget, purse)
    rows = case.keep[np.argsort(design.seconds(drawn), kind="stable")[:EXACT]].tolist()
    return case.scorer.first([(row, drawn) for row in rows])[0]
