"""Max-min levels, their structure and its sweeps by compiled CPU kernels: NumPy in, NumPy out."""

import numpy as np
from jaxtyping import Float, Int, Shaped

from fabric.kernels._structure import NEAR, Structure, hashed_rank
from fabric.network import Routes
from fabric.solvers._plan import CompiledPlan, compiled_plan

SPARSE = 8.0
"""Hops per used link below which local-minimum rounds are tried before the heap."""

FlowFloats = Float[np.ndarray, " flows"]
LinkFloats = Float[np.ndarray, " links"]
FlowInts = Int[np.ndarray, " flows"]


def fill(
    capacity: LinkFloats, routes: Routes, weight: FlowFloats, cap: FlowFloats
) -> tuple[FlowFloats, FlowInts, int]:
    """Return (level, the link that stopped each flow or -1, rounds), in float64."""
    from fabric.kernels import _water_fill

    plan = compiled_plan(routes)
    capacity, class_link = _classes(plan, capacity)
    cap_level = cap / weight
    finite = np.flatnonzero(np.isfinite(cap_level))
    cap_order = finite[np.argsort(cap_level[finite], kind="stable")].astype(np.int32)
    if plan.wide:
        level, stopper, rounds = _water_fill.fill_bundles(
            capacity, plan.flow_ptr, plan.hop_at, plan.hop_use, plan.back_ptr, plan.back_flow,
            plan.link_ptr, plan.link_bundle, plan.link_use, weight, cap_level, cap_order,
        )  # fmt: skip
    else:
        level, stopper, rounds = _water_fill.fill_links(
            capacity, plan.flow_ptr, plan.hop_at, plan.hop_use, plan.back_ptr, plan.back_flow,
            weight, cap_level, cap_order, is_sparse(plan),
        )  # fmt: skip
    return level, _link_of(plan, class_link, stopper, -1), int(rounds)


def is_sparse(plan: CompiledPlan) -> bool:
    """Return whether local-minimum rounds are worth a try."""
    used = np.count_nonzero(np.diff(plan.back_ptr))
    return bool(len(plan.hop_at) < SPARSE * used)


def how(routes: Routes) -> str:
    """Return which kernel `fill` runs, in words."""
    plan = compiled_plan(routes)
    if plan.wide:
        return "heap over bundles"
    return "local rounds, then heap" if is_sparse(plan) else "heap"


def structure(
    routes: Routes,
    level: FlowFloats,
    stopper: FlowInts,
    capacity: LinkFloats,
    weight: FlowFloats,
    cap: FlowFloats,
) -> Structure:
    """Return who stops whom; see `fabric.kernels._structure.structure`."""
    from fabric.kernels import _sweeps

    plan = compiled_plan(routes)
    least, class_link = _classes(plan, capacity)
    rank, _ = hashed_rank(routes.n_links)
    cap_level = cap / weight
    bottleneck, full, load, diagonal, own, margin = _sweeps.classify(
        plan.wide, level, _class_of(plan, stopper), least, weight, cap_level,
        rank if plan.class_of is None else rank[class_link],
        plan.flow_ptr, plan.hop_at, plan.hop_use, plan.link_ptr, plan.link_bundle, plan.link_use,
        plan.n_bundles, NEAR["float64"],
    )  # fmt: skip
    n_links = routes.n_links
    if plan.class_of is None:
        saturated = full
    else:
        used = plan.class_of >= 0
        saturated = used & np.append(full, False)[plan.class_of]
        saturated &= np.append(load, 0.0)[plan.class_of] >= capacity * (1 - NEAR["float64"])
        saturated[class_link[full]] = True
        # The others of a class are rivals of its smallest link.
        other = used.copy()
        other[class_link] = False
        left = capacity[other] - load[plan.class_of[other]]
        gaps = np.divide(left, capacity[other], out=np.zeros(len(left)), where=capacity[other] > 0)
        margin = max(min(margin, gaps.min(initial=1.0)), 0.0)
    spread = lambda values: _spread(values, class_link, n_links)
    return Structure(
        level=level,
        bottleneck=_link_of(plan, class_link, bottleneck, n_links),
        capped=np.isfinite(level) & (level >= cap_level * (1 - NEAR["float64"])),
        active=spread(own > 0),
        diagonal=spread(diagonal),
        own=spread(own.astype(np.int32)),
        saturated=saturated,
        margin=np.asarray(margin),
    )


def solve(
    routes: Routes, s: Structure, right: LinkFloats, weight: FlowFloats, *, transpose: bool
) -> LinkFloats:
    """Return the solution of the system over a structure, or of its transpose."""
    from fabric.kernels import _sweeps

    plan = compiled_plan(routes)
    bottleneck = _class_of(plan, np.where(s.bottleneck < routes.n_links, s.bottleneck, -1))
    class_link = np.zeros(plan.n_classes, np.int32)
    stopped = bottleneck >= 0
    class_link[bottleneck[stopped]] = s.bottleneck[stopped]
    ptr, flow = _sweeps.own_flows(bottleneck, plan.n_classes)
    active = np.flatnonzero(np.diff(ptr)).astype(np.int32)
    at = s.level[flow[ptr[active]]]
    rising = np.argsort(at, kind="stable")
    rank, _ = hashed_rank(routes.n_links)
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
    result = right.copy()
    result[class_link[active]] = x[active]
    return result


def _classes(
    plan: CompiledPlan, capacity: LinkFloats
) -> tuple[Float[np.ndarray, " classes"], Int[np.ndarray, " classes"]]:
    """Return the capacity of every class, and the link that has it."""
    from fabric.kernels import _layout

    if plan.class_of is None:
        return capacity, np.arange(len(capacity), dtype=np.int32)
    rank, _ = hashed_rank(len(capacity))
    return _layout.smallest(capacity, plan.class_of, rank, plan.n_classes)


def _class_of(plan: CompiledPlan, link: FlowInts) -> FlowInts:
    """Return the class of links; -1 stays -1."""
    if plan.class_of is None:
        return np.asarray(link, np.int32)
    return np.append(plan.class_of, np.int32(-1))[link]


def _link_of(
    plan: CompiledPlan, class_link: Int[np.ndarray, " classes"], of: FlowInts, none: int
) -> FlowInts:
    """Return the link of classes; -1 becomes `none`."""
    if plan.class_of is None:
        return of if none == -1 else np.where(of < 0, np.int32(none), of)
    return np.append(class_link, np.int32(none))[of]


def _spread(
    values: Shaped[np.ndarray, " classes"],
    class_link: Int[np.ndarray, " classes"],
    n_links: int,
) -> Shaped[np.ndarray, " links"]:
    if len(values) == n_links:  # every link is its own class
        return values
    result = np.zeros(n_links, values.dtype)
    result[class_link] = values
    return result
