"""`Case`: a space of layouts on a network whose capacities are for sale."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric._errors import InfeasibleError, nearest, raise_faults, some
from fabric._memory import afford
from fabric.collectives import effective
from fabric.hardware import Gpu, Profile
from fabric.network import Network, Placement, whole_or_fault
from fabric.optimize._capacities import UNLIMITED, Limits, affordable, checked, limits_of
from fabric.optimize._capacity_search import alike
from fabric.optimize._design_descent import Design, StepColumns
from fabric.optimize._design_loads import KINDS, Kept, Loads
from fabric.optimize._kept import checkpoint_of
from fabric.optimize._layout import RECOMPUTE, _refusal
from fabric.optimize._layout_score import ClosedForm, Rows
from fabric.optimize._layout_space import Space, orders_of
from fabric.optimize._layout_wires import Fabric
from fabric.optimize._money import Purse, trimmed
from fabric.optimize._tier_prices import Groups, Price, Priced
from fabric.training import Layout, Model
from fabric.training._phases import Router
from fabric.training._step import gpu_of, placed_on, profile_of, router_of

EXACT = 8
"""How many layouts are solved exactly at the end."""

_LAYOUT = 400.0
"""Bytes of a layout beside those of its links."""

Factors = Float[np.ndarray, " groups"]


@dataclass(frozen=True, eq=False)
class Case:
    """A space of layouts on a network whose capacities are for sale.

    Attributes:
        space, every, design: The layouts that fit; `design` is of those that are kept.
        keep: (kept,), rows that are not ruled out. `lower`: (kept,), seconds of each with all of
            the money in every group. `ruled_out`: the least of them over the other rows.
        before: Seconds of the fastest layout with all groups alike, at exact rates. `usual`: its
            row, and `alike` the factors. `solves`: exact solves that it took.
        purse, priced: What can be bought.
        slots: GPUs in the order in which ranks fill them.
        kept: What is known by now, in a checkpoint if there is one.
        scorer: What scores layouts exactly.
    """

    space: Space
    every: Design
    design: Design
    keep: Int[np.ndarray, " kept"]
    lower: Float[np.ndarray, " kept"]
    ruled_out: float
    before: float
    usual: int
    alike: Factors
    solves: int
    purse: Purse
    priced: Priced
    slots: Int[np.ndarray, " slots"]
    kept: Kept
    scorer: "Scorer"

    @property
    def shape(self) -> tuple[int, int]:
        """Kept rows and groups."""
        return len(self.keep), self.priced.n_groups


@dataclass(frozen=True, eq=False)
class Scorer:
    """Exact scores of layouts on a network at some factors, over the routes of the network."""

    space: Space
    form: ClosedForm
    network: Network
    priced: Priced
    slots: Int[np.ndarray, " slots"]
    fabric: Any

    def exact(self, row: int, x: Factors) -> float:
        """Return the seconds of a layout."""
        space = self.space
        columns = Rows(*(column[[space.shape_of[row]]] for column in space.columns))
        wraps = bool(columns.vpp[0] > 1)
        degrees = space.degrees[space.degrees_of[row]]
        faster = self.priced.faster(self.network, x)
        wires = self.fabric(faster).exact(degrees, self.slots, wraps)
        return float(self.form.seconds(columns, wires)[0])

    def first(self, tried: Sequence[tuple[int, Factors]]) -> tuple[float, int, Factors]:
        """Return the seconds, the row and the factors that are fastest."""
        value, i = min((self.exact(row, x), i) for i, (row, x) in enumerate(tried))
        return value, *tried[i]


def prepared(
    network: Network, model: Model, prices: Mapping[str, Price], *, budget: float, gbs: int,
    seq: int, gpus: int | None = None, dtype: str = "bf16", schedule: str = "1f1b",
    recompute: str = "modes", rank_orders: str | Sequence[str | Sequence[str]] = "tp-cp-dp-pp",
    limits: Mapping[str, int] | None = None, groups: Groups | None = None,
    least: Limits = 0.0, most: Limits = UNLIMITED, placement: Placement | str | None = None,
    routing: str | Router | None = None, profile: Profile | str | None = None,
    gpu: Gpu | str | None = None, seed: int = 0, faults: Sequence[str] = (),
    checkpoint: str | os.PathLike[str] | None = None, options: Sequence[Any] = (),
) -> Case:  # fmt: skip
    """Return the layouts and what they load, as `codesign` takes them.

    Args beyond those of `codesign`:
        faults: That were found before.
        options: What else steers the search.
    """
    gpus = len(network.hosts) if gpus is None else gpus
    _check(network, model, budget, gpus, recompute, faults)
    budget, gpus, seed = float(budget), int(gpus), int(seed)
    gpu, priced = gpu_of(network, gpu), Priced.of(network, prices, groups)
    profile = profile_of(gpu, profile)
    router, rule = router_of(network, routing, seed)
    low, high = limits_of(priced, least, most)
    affordable(priced, low, budget)
    orders = orders_of(rank_orders)
    space = Space.of(
        model, profile, capacity=gpu.memory.value, gpus=[gpus], gbs=gbs, seq=seq, dtype=dtype,
        schedule=schedule, recompute=recompute, rank_orders=orders, limits=limits,
    )  # fmt: skip
    if not space.n_rows:
        raise InfeasibleError(_refusal(space, [gpus], gpu))
    _afford(space, priced)
    slots = placed_on(network, Layout(dp=gpus, gbs=gpus, seq=1), placement)[0]
    kind = jnp.zeros(()).dtype
    kept = Kept(checkpoint_of(
        checkpoint, "codesign", network, model, priced, budget, gbs, seq, gpus, dtype, schedule,
        recompute, orders, dict(limits or {}), low, high, slots, rule, profile, gpu, seed, options,
        routing=routing,
    ))  # fmt: skip
    share = profile.efficiency
    built = effective(network, nvlink=share.nvlink.value, nic=share.nic.value)
    # Routes stay as they are: capacities change, not cables.
    fabric_of = lambda net: Fabric(
        net,
        model,
        profile,
        seq,
        dtype,
        lambda _, flows: router(built, flows),
        named=not callable(routing),
    )
    loads = Loads.of(
        fabric_of(network), space.degrees, {gpus: slots}, priced.group_of, priced.n_groups, kept
    )
    form = ClosedForm(model, gpu, profile, gbs, seq, dtype)
    purse = Purse(*(jnp.asarray(a, kind) for a in (priced.cost, low, high)))
    sets = 2 * space.degrees_of + (space.columns.vpp > 1)[space.shape_of]
    time = StepColumns(form, model, gpu, profile, gbs, seq, dtype)
    every = Design(time, space.columns, space.shape_of, loads, sets, kind)
    scorer = Scorer(space, form, network, priced, slots, fabric_of)
    even = trimmed(np.asarray(alike(purse, budget)), budget, purse)
    seconds = every.seconds(even)
    if not np.isfinite(seconds.min()):
        affordable(priced, low, budget, (loads.seconds[:, :, :-1] > 0).any(axis=(0, 1)))
        raise InfeasibleError(_stuck(network, priced))
    tried = np.argsort(seconds, kind="stable")[:EXACT].tolist()
    before, usual, even = scorer.first([(row, even) for row in tried])
    # More than all of the money in every group: no division makes any row faster.
    optimist = np.minimum(low + (budget - float(priced.cost @ low)) / priced.cost, high)
    lower = every.seconds(np.maximum(optimist, low), lower=True) * (1 - 1e-5)
    # In float32 a rounding may put the bound of the usual row above its exact score.
    keep = np.union1d(np.flatnonzero(lower <= before), usual)
    return Case(
        space, every, every.some(keep), keep, lower[keep],
        float(np.delete(lower, keep).min(initial=np.inf)), before, usual, even, len(tried), purse,
        priced, slots, kept, scorer,
    )  # fmt: skip


def _check(
    network: Network, model: object, budget: object, gpus: int, recompute: str,
    before: Sequence[str],
) -> None:  # fmt: skip
    faults = list(before)
    if not isinstance(model, Model):
        faults.append(
            f"`codesign(model=...)` needs `Model.listed('llama-3.1-70b')` or "
            f"`readers.hf_config(path)`, but got {type(model).__name__}."
        )
    checked(faults, 1, 0.0, 0, budget)
    if recompute not in RECOMPUTE:
        faults.append(f"`codesign(recompute={recompute!r})`: {nearest(str(recompute), RECOMPUTE)}")
    whole_or_fault("gpus", gpus, faults)
    raise_faults(faults)
    if gpus > (present := len(network.hosts)):
        message = f"`gpus={gpus:,}`, but the network has {present:,}. Use at most {present:,}."
        raise InfeasibleError(message)


def _afford(space: Space, priced: Priced) -> None:
    """Raise if the layouts would not fit in memory."""
    each = 2 * len(KINDS) * (priced.n_groups + 1) * 8 + _LAYOUT
    afford(
        f"`codesign` of {space.n_rows:,} layouts", each * space.n_rows,
        "Use fewer rank orders, `recompute='modes'`, or narrower `limits`.",
    )  # fmt: skip


def _stuck(network: Network, priced: Priced) -> str:
    """Return what to say where no layout ever ends a step."""
    links = np.flatnonzero(np.asarray(network.alive) & (np.asarray(network.capacity) == 0))
    named = some(links.tolist(), name=lambda link: network.link_name(link))
    return (
        f"No layout ends a step at any capacities of {', '.join(priced.names)}: links on the way "
        f"have capacity 0{f': {named}' if len(links) else ''}. Price them, or leave out their GPUs."
    )
