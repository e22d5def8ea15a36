"""`codesign`: the layout of a job and the capacities of a fabric together, by gradient."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric._errors import InfeasibleError, raise_faults
from fabric.hardware import Gpu, Profile
from fabric.network import Network, Placement, whole_or_fault
from fabric.optimize._capacities import UNLIMITED, Limits, affordable, limits_of
from fabric.optimize._capacity_control import climbed
from fabric.optimize._capacity_search import GRADIENT_COST, alike
from fabric.optimize._design_descent import Design, descended, proved
from fabric.optimize._design_loads import Loads
from fabric.optimize._layout import _refusal
from fabric.optimize._layout_choice import Choice
from fabric.optimize._layout_score import ClosedForm, Rows
from fabric.optimize._layout_space import Space, orders_of
from fabric.optimize._layout_wires import Fabric
from fabric.optimize._money import Purse, logits
from fabric.optimize._tier_prices import Price, Priced
from fabric.runs import History
from fabric.training import Layout, Model
from fabric.training._phases import Router
from fabric.training._step import _gpu, _placed, _profile, _router

_EXACT = 8


@dataclass(frozen=True, eq=False)
class DesignReport:
    """A layout and the capacities for it, and what proves how good the two are.

    Attributes:
        objective: Seconds of a step, scored with exact rates.
        bound: No layout is faster with any capacities for the money, over the same routes.
        gap: objective / bound - 1. `certified`: whether it is within the tolerance.
        before: Seconds of the best layout if all groups are made faster or slower alike.
        best: The layout. `factors`: of capacities, by group. `spent`: money, by group.
        network: The network with these capacities.
        rows: Layouts that fit, and `kept`: that no bound ruled out before the descent.
        steps: Of the descent of all kept layouts at once. `evaluations`: layouts scored, once per
            capacities. `solves`: sets of degrees that were solved exactly. `seconds`: wall time,
            compilation included; `descent_seconds`: of the compiled descent. `seed`: of the start.
        history: Objective, before exact solves, and bound, by step.
        control: The objective that random divisions of the money and moves between groups reach,
            the best layout taken for each, in as many evaluations, a gradient counted as seven.
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
        best = self.best.as_dict()
        return {"schema": "fabric.codesign/1", **found, "best": best,
                "history": self.history.as_dict()}  # fmt: skip

    def __str__(self) -> str:
        told = ", ".join(f"{name} x{factor:.4g}" for name, factor in self.factors.items())
        return (
            f"{self.best}; {told}; from {self.before:.4g} s, bound {self.bound:.6g}, gap "
            f"{self.gap:.2e}; {self.kept:,} of {self.rows:,} layouts at once"
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
    groups: Mapping[str, Sequence[int]] | None = None,
    least: Limits = 0.0,
    most: Limits = UNLIMITED,
    placement: Placement | str | None = None,
    routing: str | Router | None = None,
    profile: Profile | str | None = None,
    gpu: Gpu | str | None = None,
    steps: int = 200,
    tolerance: float = 1e-3,
    control: bool = True,
    seed: int = 0,
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

    Returns:
        A `DesignReport`.

    Raises:
        ModelError: If an argument is out of range or a name unknown.
        InfeasibleError: If no layout suits and fits, or the smallest factors cost too much.

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
    case = prepared(
        network, model, prices, budget=budget, gbs=gbs, seq=seq, gpus=gpus, dtype=dtype,
        schedule=schedule, recompute=recompute, rank_orders=rank_orders, limits=limits,
        groups=groups, least=least, most=most, placement=placement, routing=routing,
        profile=profile, gpu=gpu, seed=seed,
    )  # fmt: skip
    faults: list[str] = []
    whole_or_fault("steps", steps, faults)
    raise_faults(faults)
    design, purse, keep, space = case.design, case.purse, case.keep, case.space
    kind = purse.cost.dtype
    z = np.broadcast_to(np.asarray(logits(jnp.ones_like(purse.cost), purse)), case.shape)
    if seed:
        z = np.random.default_rng(seed).normal(size=z.shape)
    found = descended(design, purse, budget, jnp.asarray(z, kind), steps)
    bounds = np.maximum(proved(design, found, purse, budget), case.lower)
    bound = float(min(bounds.min(), case.ruled_out))
    bound *= 1 - (1e-4 if kind == np.float32 else 1e-10)
    order = np.argsort(found.value, kind="stable")[:_EXACT].tolist()
    value, place = min((case.exact(int(keep[i]), found.x[i]), i) for i in order)
    row, x = int(keep[place]), found.x[place]
    beside = None
    if control:
        count = (1 + GRADIENT_COST) * steps
        drawn = climbed(design.fastest, purse, budget, seed, count)
        beside = float(design.seconds(drawn).min())
    degrees = space.degrees[space.degrees_of[row]]
    gap = max(value / bound - 1, 0.0)
    by = lambda values: dict(zip(case.priced.names, (float(v) for v in values), strict=True))
    return DesignReport(
        objective=value, bound=bound, gap=gap, certified=gap <= tolerance, before=case.before,
        best=Choice(
            space.layout(row), "-".join(degrees.order), space.recomputed_layers(row),
            Placement(degrees.ranks(case.slots)), value, float(space.margin[space.shape_of[row]]),
        ),
        factors=by(x), spent=by(x * case.priced.cost), network=case.faster(x), rows=space.n_rows,
        kept=len(keep), steps=steps, evaluations=steps * len(keep), solves=len(order),
        seconds=time.perf_counter() - begun, descent_seconds=found.seconds, seed=seed,
        history=History.of([(i, v, bound) for i, v in enumerate(found.trace.tolist())]),
        control=beside,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Case:
    """A space of layouts on a network whose capacities are for sale.

    Attributes:
        space, design: The layouts that fit; the design is of those that are kept.
        keep: (kept,), rows that are not ruled out. `lower`: (kept,), seconds of each with all of
            the money in every group. `ruled_out`: the least of them over the other rows.
        before: Seconds of the fastest layout with all groups alike.
        purse, priced: What can be bought.
        slots: GPUs in the order in which ranks fill them.
    """

    space: Space
    design: Design
    keep: Int[np.ndarray, " kept"]
    lower: Float[np.ndarray, " kept"]
    ruled_out: float
    before: float
    purse: Purse
    priced: Priced
    slots: Int[np.ndarray, " slots"]
    form: ClosedForm
    network: Network
    fabric_of: Callable[[Network], Fabric]

    @property
    def shape(self) -> tuple[int, int]:
        """Kept rows and groups."""
        return len(self.keep), self.priced.n_groups

    def faster(self, x: Float[np.ndarray, " groups"]) -> Network:
        """Return the network with some factors."""
        built = np.asarray(self.network.capacity)
        wide = np.append(x, 1.0)[self.priced.group_of]
        return self.network.with_capacity((built * wide).astype(built.dtype))

    def exact(self, row: int, x: Float[np.ndarray, " groups"]) -> float:
        """Return the seconds of a layout with exact rates at some factors."""
        space = self.space
        columns = Rows(*(column[[space.shape_of[row]]] for column in space.columns))
        fabric = self.fabric_of(self.faster(x))
        wraps = bool(columns.vpp[0] > 1)
        wires = fabric.exact(space.degrees[space.degrees_of[row]], self.slots, wraps)
        return float(self.form.seconds(columns, wires)[0])


def prepared(
    network: Network, model: Model, prices: Mapping[str, Price], *, budget: float, gbs: int,
    seq: int, gpus: int | None = None, dtype: str = "bf16", schedule: str = "1f1b",
    recompute: str = "modes", rank_orders: str | Sequence[str | Sequence[str]] = "tp-cp-dp-pp",
    limits: Mapping[str, int] | None = None, groups: Mapping[str, Sequence[int]] | None = None,
    least: Limits = 0.0, most: Limits = UNLIMITED, placement: Placement | str | None = None,
    routing: str | Router | None = None, profile: Profile | str | None = None,
    gpu: Gpu | str | None = None, seed: int = 0,
) -> Case:  # fmt: skip
    """Return the layouts and what they load, as `codesign` takes them."""
    gpus = len(network.hosts) if gpus is None else gpus
    _check(network, model, budget, gpus)
    gpu, priced = _gpu(network, gpu), Priced.of(network, prices, groups)
    profile = _profile(gpu, profile)
    router, _ = _router(network, routing, seed)
    low, high = limits_of("least", least, priced), limits_of("most", most, priced)
    affordable(priced, low, budget)
    space = Space.of(
        model, profile, capacity=gpu.memory.value, gpus=[gpus], gbs=gbs, seq=seq, dtype=dtype,
        schedule=schedule, recompute=recompute, rank_orders=orders_of(rank_orders), limits=limits,
    )  # fmt: skip
    if not space.n_rows:
        raise InfeasibleError(_refusal(space, [gpus], gpu))
    slots = _placed(network, Layout(dp=gpus, gbs=gpus, seq=1), placement)[0]
    fabric_of = lambda net: Fabric(
        net, model, profile, seq, dtype, router, named=not callable(routing)
    )
    loads = Loads.of(
        fabric_of(network), space.degrees, {gpus: slots}, priced.group_of, priced.n_groups
    )
    form = ClosedForm(model, gpu, profile, gbs, seq, dtype)
    kind = jnp.zeros(()).dtype
    purse = Purse(*(jnp.asarray(a, kind) for a in (priced.cost, low, high)))
    sets = 2 * space.degrees_of + (space.columns.vpp > 1)[space.shape_of]
    every = Design(form, space.columns, space.shape_of, loads, sets, kind)
    before = float(every.seconds(alike(purse, budget)).min())
    # More than all of the money in every group: no division makes any row faster.
    optimist = np.minimum(low + (budget - float(priced.cost @ low)) / priced.cost, high)
    lower = every.seconds(jnp.asarray(optimist, kind), lower=True) * (1 - 1e-5)
    keep = np.flatnonzero(lower <= before)
    return Case(
        space, every.some(keep), keep, lower[keep],
        float(np.delete(lower, keep).min(initial=np.inf)), before, purse, priced, slots, form,
        network, fabric_of,
    )  # fmt: skip


def _check(network: Network, model: object, budget: object, gpus: int) -> None:
    faults: list[str] = []
    if not isinstance(model, Model):
        faults.append(
            f"`codesign(model=...)` needs `Model.listed('llama-3.1-70b')` or "
            f"`readers.hf_config(path)`, but got {type(model).__name__}."
        )
    if not (isinstance(budget, int | float) and np.isfinite(budget) and budget > 0):
        faults.append(f"`budget` needs money above 0, but got {budget!r}.")
    whole_or_fault("gpus", gpus, faults)
    raise_faults(faults)
    if gpus > (present := len(network.hosts)):
        message = f"`gpus={gpus:,}`, but the network has {present:,}. Use at most {present:,}."
        raise InfeasibleError(message)
