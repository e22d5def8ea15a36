"""`layout`: the best way to cut a training job on a contended fabric, with a proof."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fabric._errors import InfeasibleError, nearest, raise_faults
from fabric.hardware import Gpu, Profile
from fabric.network import Network, Placement, whole_or_fault
from fabric.optimize._best_first import Best
from fabric.optimize._kept import checkpoint_of
from fabric.optimize._layout_choice import Choice
from fabric.optimize._layout_score import ClosedForm
from fabric.optimize._layout_search import Search
from fabric.optimize._layout_space import Space, asked_of
from fabric.optimize._layout_wires import Fabric
from fabric.runs import History
from fabric.training import Layout, Model
from fabric.training._phases import Router
from fabric.training._step import gpu_of, placed_on, profile_of, router_of

OBJECTIVES = ("time", "cost")
RECOMPUTE = ("modes", "counts")


@dataclass(frozen=True, eq=False)
class LayoutReport:
    """The best layouts, and the proof that there is no better one.

    Attributes:
        objective: Of the best layout, scored with exact rates: seconds of a step, or GPU seconds
            of a step with `objective="cost"`.
        bound: No layout is better than this.
        gap: objective / bound - 1.
        certified: Whether the gap is within the tolerance.
        evaluations: Layouts that were scored exactly. `solves`: sets of degrees, each with its
            order of ranks, whose exchanges were solved on the fabric. `steps`: the evaluations.
        seconds: That it took. `seed`: of the routing.
        history: Best value and bound, by evaluation.
        top: The best layouts, best first; exact, up to the tolerance.
        front: Layouts that no other beats in throughput, memory margin and cost at once, fastest
            first; empty unless it was asked for.
        ideal: The layout of the least bound, with its exact score: what one would have taken
            without solving the fabric, only seeing that all is connected.
        legal: Layouts with orders of ranks that suit and fit. `candidates`: that were looked at.
        unreachable: Of the legal ones, those found to have an exchange that the fabric has no way
            for.
        pruned: How many were left out, by reason.
        space: All of them; `space.reason(layout)` says why one is left out.
    """

    objective: float
    bound: float
    gap: float
    certified: bool
    evaluations: int
    solves: int
    steps: int
    seconds: float
    seed: int
    history: History
    top: tuple[Choice, ...]
    front: tuple[Choice, ...]
    ideal: Choice
    legal: int
    unreachable: int
    candidates: int
    pruned: Mapping[str, int]
    space: Space = field(repr=False)

    @property
    def best(self) -> Choice:
        """The best layout."""
        return self.top[0]

    @property
    def megatron(self) -> str:
        """The options of Megatron-LM for the best layout."""
        return self.best.megatron(self.space.model.layers, self.space.stack)

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for JSON, schema `fabric.search/1`."""
        names = (
            "objective", "bound", "gap", "certified", "evaluations", "solves", "seconds", "seed",
            "legal", "unreachable", "candidates",
        )  # fmt: skip
        return {
            "schema": "fabric.search/1",
            "model": self.space.model.name,
            **{name: getattr(self, name) for name in names},
            "pruned": dict(self.pruned),
            "top": [choice.as_dict() for choice in self.top],
            "front": [choice.as_dict() for choice in self.front],
            "ideal": self.ideal.as_dict(),
            "megatron": self.megatron,
            "history": self.history.as_dict(),
        }

    def __str__(self) -> str:
        return (
            f"{self.best}; bound {self.bound:.6g}, gap {self.gap:.2%}; {self.evaluations:,} of "
            f"{self.legal:,} layouts scored exactly, {self.solves:,} solves"
        )


def layout(
    network: Network,
    model: Model,
    *,
    gbs: int,
    seq: int,
    gpus: int | Sequence[int] | None = None,
    dtype: str = "bf16",
    schedule: str = "1f1b",
    objective: str = "time",
    recompute: str = "modes",
    rank_orders: str | Sequence[str | Sequence[str]] = "tp-cp-dp-pp",
    limits: Mapping[str, int] | None = None,
    least_margin: float = 0.0,
    placement: Placement | str | None = None,
    routing: str | Router | None = None,
    profile: Profile | str | None = None,
    gpu: Gpu | str | None = None,
    seed: int = 0,
    top: int = 10,
    tolerance: float = 0.0,
    front: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> LayoutReport:
    """Return the layouts with the shortest steps on a fabric that their exchanges share.

    All layouts are listed: sizes of the parallel groups, sequence parallelism, virtual stages,
    microbatch, ZeRO, recompute, and the order of ranks. Each gets a lower bound in closed form: the
    step model with every exchange as fast as the links of the GPUs, the adapters, and the cuts
    around leaves, pods and what else has a tag, let it be. Layouts are then scored exactly, by
    increasing bound, until the bounds of the rest are no better than the last of the `top`. What
    the score needs of the fabric is solved once for every set of degrees and order of ranks.

    Args:
        network: With labels; its endpoints are the GPUs.
        model: Its shape; dense.
        gbs: Global batch in sequences.
        seq: Tokens of a sequence.
        gpus: How many to use, or several numbers to choose from. Default: all. A layout uses all
            of them.
        dtype: Of the matrix products, as of `Layout`.
        schedule: "1f1b", interleaved too, or "gpipe".
        objective: "time", the seconds of a step, or "cost", its GPU seconds; they differ if there
            are several numbers of GPUs.
        recompute: "modes": none, selective or full. "counts": also full for only some layers of
            every chunk.
        rank_orders: "all", or one or several orders such as "tp-cp-dp-pp", fastest first: which
            ranks are neighbours on the fabric.
        limits: Largest sizes, by name: {"tp": 8, "mb": 16}; of tp, cp, dp, pp, vpp, mb and zero.
        least_margin: Share of the memory that has to be left on the heaviest stage.
        placement: The GPUs in the order in which they are filled: "first" (default), "spread", or a
            `Placement`, as of `step`.
        routing: As of `step`.
        profile: As of `step`.
        gpu: As of `step`.
        seed: Of a routing that takes one.
        top: How many layouts are wanted.
        tolerance: Share by which a layout may be better than those that are returned. 0: the
            optimum is proved.
        front: Whether the front of throughput, memory margin and cost is wanted too; it takes more
            exact scores.
        checkpoint: A file that keeps what was solved; the same call goes on from there. `routing`
            has to be a name then, or a function of `fabric.routing`, with options by `partial`.

    Returns:
        A `LayoutReport`.

    Raises:
        ModelError: If an argument is out of range, or the sequence is too long for the model; of
            arguments, all faults at once.
        InfeasibleError: If no layout suits and fits, with the reasons; if there are fewer GPUs; if
            all layouts have an exchange that the fabric has no way for; if the table of layouts
            would not fit in memory.

    Precision: Scores are computed in float64, from rates in the default float type of JAX. Bounds
        are lowered by the rounding of both, 4.4e-5 with float32.
    Cost: Closed forms of ten million layouts take some seconds. What data parallelism takes at
        least is bounded only for the sets of degrees that the best layouts may have, in 30 ms each
        on 4,096 GPUs; exact exchanges of a set take some tenths of a second.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.cluster("dgx-h100", nodes=2)
        >>> found = layout(net, Model.listed("llama-3.1-8b"), gbs=64, seq=8192, top=1)
        >>> found.certified, found.best.gpus
        (True, 16)

    References:
        A. Land and A. Doig, 1960, for search by bounds. The step: `docs/step-model.md`.
    """
    begun = time.perf_counter()
    counts, limits, orders = _checked(
        network, model, gbs, seq, dtype, schedule, gpus, objective, recompute, top, tolerance,
        least_margin, seed, limits, rank_orders, placement, routing, profile, gpu,
    )  # fmt: skip
    gbs, seq, seed, top = int(gbs), int(seq), int(seed), int(top)
    tolerance, least_margin, front = float(tolerance), float(least_margin), bool(front)
    gpu = gpu_of(network, gpu)
    profile = profile_of(gpu, profile)
    router, rule = router_of(network, routing, seed)
    space = Space.of(
        model, profile, capacity=gpu.memory.value, gpus=counts, gbs=gbs, seq=seq, dtype=dtype,
        schedule=schedule, recompute=recompute, rank_orders=orders, limits=limits,
        least_margin=least_margin,
    )  # fmt: skip
    if not space.n_rows:
        raise InfeasibleError(_refusal(space, counts, gpu))
    slots = {n: placed_on(network, Layout(dp=n, gbs=n, seq=1), placement)[0] for n in counts}
    known = checkpoint_of(
        checkpoint, "layout", network, model, profile, gpu, counts, gbs, seq, dtype, schedule,
        objective, recompute, orders, limits, least_margin, list(slots.values()), rule, top,
        tolerance, front, routing=routing,
    )  # fmt: skip
    fabric = Fabric(network, model, profile, seq, dtype, router, named=not callable(routing))
    form = ClosedForm(model, gpu, profile, gbs, seq, dtype)
    search = Search(space, form, fabric, slots, known, by_cost=objective == "cost")
    best = Best(min(top, space.n_rows), tolerance)
    searched = search.run(best)
    if not len(best.rows):
        message = (
            f"None of {space.n_rows:,} layouts that suit and fit can exchange all it has to on "
            f"this fabric. Of the first one: {search.obstacle(search.first)}"
        )
        raise InfeasibleError(message)
    fronts = search.fronts(tolerance) if front else np.zeros(0, np.int64)
    choices = [search.choice(row) for row in best.rows.tolist()]
    value = float(best.values[0])
    gap = value / searched.bound - 1
    return LayoutReport(
        objective=value, bound=searched.bound, gap=gap, certified=bool(gap <= tolerance + 1e-12),
        evaluations=search.evaluations, solves=search.solves, steps=search.evaluations,
        seconds=time.perf_counter() - begun, seed=seed,
        history=History.of(list(searched.history)), top=tuple(choices),
        front=tuple(search.choice(row) for row in fronts.tolist()),
        ideal=search.choice(search.first), legal=space.n_rows, unreachable=search.unreachable,
        candidates=space.candidates, pruned=space.pruned, space=space,
    )  # fmt: skip


def _checked(
    network: object, model: object, gbs: Any, seq: Any, dtype: Any, schedule: Any, gpus: object,
    objective: object, recompute: object, top: object, tolerance: object, least_margin: object,
    seed: object, limits: object, rank_orders: object, placement: object, routing: object,
    profile: object, gpu: object,
) -> tuple[list[int], dict[str, int], tuple[tuple[str, ...], ...]]:  # fmt: skip
    """Return numbers of GPUs, largest sizes and orders of ranks, or raise with all faults."""
    faults = [
        f"`layout({name}=...)` needs {fix}, but got {type(given).__name__}."
        for name, given, kind, fix in (
            ("network", network, Network, "a `Network`, as of `topologies.cluster`"),
            ("model", model, Model, "`Model.listed('llama-3.1-70b')` or `readers.hf_config(path)`"),
            ("placement", placement, Placement | str | None, "a name or `Placement(nodes)`"),
            ("routing", None if callable(routing) else routing, str | None, "a name or a function"),
            ("profile", profile, Profile | str | None, "a name or a `Profile`"),
            ("gpu", gpu, Gpu | str | None, "a name or a `Gpu`"),
        )
        if not isinstance(given, kind)
    ]
    for name, value, words in (
        ("objective", objective, OBJECTIVES), ("recompute", recompute, RECOMPUTE),
    ):  # fmt: skip
        if value not in words:
            faults.append(f"`layout({name}={value!r})`: {nearest(str(value), words)}")
    whole_or_fault("top", top, faults)
    whole_or_fault("seed", seed, faults, least=0)
    for name, share in (("tolerance", tolerance), ("least_margin", least_margin)):
        if not is_share(share):
            faults.append(f"`{name}` needs a share from 0 to below 1, but got {share!r}.")
    sizes, orders = asked_of(model, gbs, seq, dtype, schedule, limits, rank_orders, faults)
    present = len(network.hosts) if isinstance(network, Network) else 1
    listed = [present] if gpus is None else [gpus]
    if isinstance(gpus, Iterable) and not isinstance(gpus, str) and getattr(gpus, "ndim", 1):
        listed = list(gpus)
    counts = [whole_or_fault("gpus", n, faults) for n in listed]
    if not counts:
        faults.append("`gpus` needs one number at least. Leave it out to use all.")
    if isinstance(placement, Placement) and set(counts) != {placement.n_ranks}:
        faults.append(
            f"`placement` has {placement.n_ranks:,} ranks. Use `gpus={placement.n_ranks}`, or "
            f"leave one of them out."
        )
    raise_faults(faults)
    if max(counts) > present:
        message = (
            f"`gpus={max(counts):,}`, but the network has {present:,}. Use at most {present:,}."
        )
        raise InfeasibleError(message)
    return list(dict.fromkeys(counts)), sizes, orders


def is_share(value: Any) -> bool:
    """Return whether something is a number from 0 to below 1."""
    try:
        return not isinstance(value, bool | str) and bool(0 <= value < 1)
    except (TypeError, ValueError):
        return False


def _refusal(space: Space, counts: Sequence[int], gpu: Gpu) -> str:
    """Return what to say where nothing is left: the reasons, and the next step."""
    memory = space.pruned.get("memory", 0)
    fix = (
        f"{memory:,} would suit but do not fit in the memory of a {gpu.name}. Use more GPUs, a "
        f"smaller microbatch or sequence, or `recompute='counts'`."
        if memory
        else "Use a number of GPUs with more divisors, another `gbs`, or wider `limits`."
    )
    reasons = [
        f"  {count:>14,}  {reason}"
        for reason, count in sorted(space.pruned.items(), key=lambda item: -item[1])
    ]
    said = " or ".join(f"{n:,}" for n in counts)
    head = (
        f"No layout of '{space.model.name}' on {said} GPUs suits and fits; of "
        f"{space.candidates:,} candidates, left out were:"
    )
    return "\n".join([head, *reasons, fix])
