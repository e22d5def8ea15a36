"""Max-min levels, their structure and its sweeps by compiled CPU kernels: NumPy in, NumPy out."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from fabric.kernels._structure import NEAR, Structure, hashed_rank
from fabric.network import Routes
from fabric.solvers._footprint import afford_solve
from fabric.solvers._plan import CompiledPlan, compiled_plan

SPARSE = 8.0
"""Hops per used link below which local-minimum rounds are tried before the heap."""

FlowFloats = Float[np.ndarray, " flows"]
LinkFloats = Float[np.ndarray, " links"]
FlowInts = Int[np.ndarray, " flows"]


class Filled(NamedTuple):
    """A filled state by classes of links."""

    level: FlowFloats
    stopper: FlowInts  # classes, -1 for none
    rounds: int
    least: Float[np.ndarray, " classes"]  # the capacity of each class
    class_link: Int[np.ndarray, " classes"]  # the link that has it


def fill(
    capacity: LinkFloats, routes: Routes, weight: FlowFloats, cap: FlowFloats
) -> tuple[FlowFloats, FlowInts, int]:
    """Return (level, the link that stopped each flow or -1, rounds), in float64."""
    filled = _fill(capacity, compiled_plan(routes), weight, cap)
    return filled.level, _looked_up(filled.class_link, filled.stopper, -1), filled.rounds


def _fill(capacity: LinkFloats, plan: CompiledPlan, weight: FlowFloats, cap: FlowFloats) -> Filled:
    from fabric.kernels import _layout, _water_fill

    least, class_link = _layout.smallest(capacity, *plan.members)
    cap_level = cap / weight
    if plan.wide:
        finite = np.flatnonzero(np.isfinite(cap_level))
        cap_order = finite[np.argsort(cap_level[finite], kind="stable")].astype(np.int32)
        level, stopper, rounds = _water_fill.fill_bundles(
            least, plan.flow_ptr, plan.hop_at, plan.hop_use, plan.back_ptr, plan.back_flow,
            plan.link_ptr, plan.link_bundle, plan.link_use, weight, cap_level, cap_order,
        )  # fmt: skip
    else:
        level, stopper, rounds = _water_fill.fill_links(
            least, cap_level, *_hops(plan, weight), plan.back_ptr, plan.back_flow,
            plan.n_shared, is_sparse(plan),
        )  # fmt: skip
    return Filled(level, stopper, int(rounds), least, class_link)


def solve_many(
    plan: CompiledPlan,
    capacities: Float[np.ndarray, "scenarios links"],
    weights: Float[np.ndarray, "some flows"],
    caps: Float[np.ndarray, "several flows"],
) -> tuple[
    Float[np.ndarray, "scenarios flows"],
    Int[np.ndarray, "scenarios flows"],
    Int[np.ndarray, " scenarios"],
]:
    """Return (level, the link that stopped each flow or -1, rounds) of every scenario.

    Scenarios are shared out over the cores. Weights and caps have one row for all of them, or one
    each.
    """
    from fabric.kernels import _water_fill

    n_scenarios, n_flows = len(capacities), weights.shape[1]
    levels = np.empty((n_scenarios, n_flows))
    stoppers = np.empty((n_scenarios, n_flows), np.int32)
    rounds = np.empty(n_scenarios, np.int64)

    def one(s: int) -> None:
        weight, cap = weights[s % len(weights)], caps[s % len(caps)]
        filled = _fill(capacities[s], plan, weight, cap)
        levels[s], rounds[s] = filled.level, filled.rounds
        stoppers[s] = _looked_up(filled.class_link, filled.stopper, -1)

    def some(start: int, stop: int) -> None:
        _water_fill.fill_scenarios(
            start, stop, capacities, *plan.members, cap_levels, *_hops(plan, weights),
            plan.back_ptr, plan.back_flow, plan.n_shared, sparse, levels, stoppers, rounds,
        )  # fmt: skip

    if plan.wide:
        shared_out(lambda start, stop: [one(s) for s in range(start, stop)], n_scenarios)
    else:
        cap_levels, sparse = caps / weights, is_sparse(plan)
        shared_out(some, n_scenarios)
    return levels, stoppers, rounds


def shared_out(work: Callable[[int, int], object], n: int) -> None:
    """Do `work(start, stop)` for stretches of 0 to n, on as many threads as numba may use.

    Threads of our own: numba's may not be entered from two host callbacks at once.
    """
    import numba

    n_threads = min(numba.get_num_threads(), n)
    if n_threads <= 1:
        work(0, n)
        return
    # A few stretches per thread, so that one slow scenario does not leave the others waiting.
    edges = np.linspace(0, n, min(n, 4 * n_threads) + 1).astype(int).tolist()
    with ThreadPoolExecutor(n_threads) as threads:
        list(threads.map(work, edges[:-1], edges[1:]))


def _hops(
    plan: CompiledPlan, weight: Float[np.ndarray, " *flows"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return (flow_ptr, flow_end, hop_at, hop_use, weight), the last two None where all are 1."""
    if plan.uses is None and (weight == 1.0).all():
        return plan.flow_ptr, plan.flow_end, plan.hop_at, None, None
    return plan.flow_ptr, plan.flow_end, plan.hop_at, plan.hop_use, weight


def is_sparse(plan: CompiledPlan) -> bool:
    """Return whether local-minimum rounds are worth a try."""
    return bool(plan.back_ptr[plan.n_shared] < SPARSE * plan.n_shared)


def how(routes: Routes) -> str:
    """Return which kernel `fill` runs and why, in words."""
    plan = compiled_plan(routes)
    if plan.wide:
        return "heap: wide bundles"
    return "rounds, then heap" if is_sparse(plan) else "heap: dense"


def structure(
    routes: Routes,
    level: FlowFloats,
    stopper: FlowInts,
    capacity: LinkFloats,
    weight: FlowFloats,
    cap: FlowFloats,
) -> Structure:
    """Return who stops whom; see `fabric.kernels._structure.structure`."""
    from fabric.kernels import _layout

    plan = compiled_plan(routes)
    least, class_link = _layout.smallest(capacity, *plan.members)
    filled = Filled(level, _looked_up(plan.class_of, stopper, -1), 0, least, class_link)
    found = _found(plan, filled, capacity, weight, cap)
    spread = lambda values: _spread(values, class_link, routes.n_links)
    return Structure(
        level=level,
        bottleneck=_looked_up(class_link, found.bottleneck, routes.n_links),
        capped=np.isfinite(level) & (level >= cap / weight * (1 - NEAR["float64"])),
        active=spread(found.own > 0),
        diagonal=spread(found.diagonal),
        own=spread(found.own.astype(np.int32)),
        saturated=found.saturated,
        margin=np.asarray(found.margin),
    )


class Answer(NamedTuple):
    """Levels, and what a solution says of their structure."""

    level: FlowFloats
    bottleneck: FlowInts  # links, -1: stopped by its cap, or not at all
    saturated: Bool[np.ndarray, " links"]
    rounds: int
    margin: float


def answer(capacity: LinkFloats, routes: Routes, weight: FlowFloats, cap: FlowFloats) -> Answer:
    """Return levels and their evidence, in float64.

    Raises:
        InfeasibleError: If that would not fit in memory; before anything is allocated.
    """
    afford_solve(routes)
    plan = compiled_plan(routes)
    filled = _fill(capacity, plan, weight, cap)
    found = _found(plan, filled, capacity, weight, cap)
    bottleneck = _looked_up(filled.class_link, found.bottleneck, -1)
    return Answer(filled.level, bottleneck, found.saturated, filled.rounds, found.margin)


class _Found(NamedTuple):
    bottleneck: FlowInts  # classes
    diagonal: Float[np.ndarray, " classes"]
    own: Int[np.ndarray, " classes"]
    saturated: Bool[np.ndarray, " links"]
    margin: float


def _found(
    plan: CompiledPlan, filled: Filled, capacity: LinkFloats, weight: FlowFloats, cap: FlowFloats
) -> _Found:
    """Return the structure by classes of links."""
    from fabric.kernels import _link_sweeps, _sweeps

    level, stopper, _, least, class_link = filled
    near = NEAR["float64"]
    if plan.wide:
        rank, _ = hashed_rank(len(capacity))
        bottleneck, full, load, diagonal, own, margin = _sweeps.classify(
            level, stopper, least, weight, cap / weight, rank[class_link],
            plan.flow_ptr, plan.hop_at, plan.hop_use,
            plan.link_ptr, plan.link_bundle, plan.link_use, plan.n_bundles, near,
        )  # fmt: skip
    else:
        bottleneck, full, load, diagonal, own, margin = _link_sweeps.classify(
            level, stopper, least, class_link, cap / weight, *_hops(plan, weight),
            plan.back_ptr, plan.back_flow, _back_use(plan, weight), plan.n_shared, near,
        )  # fmt: skip
    saturated, lack = _link_sweeps.saturate(capacity, *plan.members, class_link, full, load, near)
    return _Found(bottleneck, diagonal, own, saturated, min(margin, lack))


def solve(
    routes: Routes, s: Structure, right: LinkFloats, weight: FlowFloats, *, transpose: bool
) -> LinkFloats:
    """Return the solution of the system over a structure, or of its transpose."""
    plan = compiled_plan(routes)
    bottleneck = _looked_up(
        plan.class_of, np.where(s.bottleneck < routes.n_links, s.bottleneck, -1), -1
    )
    class_link = np.zeros(plan.n_classes, np.int32)
    stopped = bottleneck >= 0
    class_link[bottleneck[stopped]] = s.bottleneck[stopped]
    stops = np.zeros(plan.n_classes, bool)
    stops[bottleneck[stopped]] = True
    active = np.flatnonzero(stops)
    links = class_link[active]
    diagonal = np.zeros(plan.n_classes)
    diagonal[active] = s.diagonal[links]
    if plan.wide:
        x = _solve_wide(plan, s, bottleneck, active, class_link, right, weight, transpose=transpose)
    else:
        from fabric.kernels import _link_sweeps

        sweep = _link_sweeps.sweep_prices if transpose else _link_sweeps.sweep_levels
        x = sweep(
            bottleneck, right[class_link], diagonal, *_hops(plan, weight),
            plan.back_ptr, plan.back_flow, _back_use(plan, weight), plan.n_shared,
        )  # fmt: skip
    result = right.copy()
    result[links] = x[active]
    return result


def _solve_wide(
    plan: CompiledPlan,
    s: Structure,
    bottleneck: FlowInts,
    active: Int[np.ndarray, " active"],
    class_link: Int[np.ndarray, " classes"],
    right: LinkFloats,
    weight: FlowFloats,
    *,
    transpose: bool,
) -> Float[np.ndarray, " classes"]:
    """Return the solution on classes of links that wide bundles use."""
    from fabric.kernels import _sweeps

    ptr, flow = _sweeps.own_flows(bottleneck, plan.n_classes)
    active = active.astype(np.int32)
    at = s.level[flow[ptr[active]]]
    rising = np.argsort(at, kind="stable")
    rank, _ = hashed_rank(len(right))
    groups = np.empty(len(active), np.int32)
    groups[rising] = _sweeps.group(at[rising], NEAR["float64"])
    order = active[np.lexsort((rank[class_link[active]], groups))]
    sweep = _sweeps.sweep_prices if transpose else _sweeps.sweep_levels
    x, _ = sweep(
        order, right[class_link], ptr, flow, weight,
        s.diagonal[class_link], s.own[class_link].astype(np.int64),
        plan.flow_ptr, plan.hop_at, plan.hop_use, plan.link_ptr, plan.link_bundle, plan.link_use,
        plan.n_bundles,
    )  # fmt: skip
    return x


def _back_use(plan: CompiledPlan, weight: FlowFloats) -> np.ndarray | None:
    """Return the uses of the transpose, None where uses and weights are 1."""
    if plan.uses is None:
        return None if (weight == 1.0).all() else np.ones(len(plan.back_flow))
    return plan.back_uses


def _looked_up(values: Int[np.ndarray, " values"], at: FlowInts, none: int) -> FlowInts:
    """Return `values[at]`, `none` where `at` is negative."""
    found = np.full(len(at), none, np.int32)
    known = at >= 0
    found[known] = values[at[known]]
    return found


def _spread(
    values: Shaped[np.ndarray, " classes"],
    class_link: Int[np.ndarray, " classes"],
    n_links: int,
) -> Shaped[np.ndarray, " links"]:
    result = np.zeros(n_links, values.dtype)
    result[class_link] = values
    return result
