"""Max-min rates by the compiled CPU kernels: host arrays in, host arrays out."""

import numpy as np
from jaxtyping import Float, Int

from fabric.network import Routes
from fabric.solvers._plan import CompiledPlan, compiled_plan

SPARSE = 8.0
"""Hops per used link below which local-minimum rounds are tried before the heap."""


def fill(
    capacity: Float[np.ndarray, " links"],
    routes: Routes,
    weight: Float[np.ndarray, " flows"],
    cap: Float[np.ndarray, " flows"],
) -> tuple[Float[np.ndarray, " flows"], Int[np.ndarray, " flows"], int, str]:
    """Return (level, bottleneck, rounds, what was run) in float64."""
    from fabric.kernels import _layout, _water_fill

    plan = compiled_plan(routes)
    class_link = None
    if plan.class_of is not None:
        capacity, class_link = _layout.smallest(capacity, plan.class_of, plan.n_classes)
    cap_level = cap / weight
    finite = np.flatnonzero(np.isfinite(cap_level))
    cap_order = finite[np.argsort(cap_level[finite], kind="stable")].astype(np.int32)
    if not plan.wide:
        trial = _is_sparse(plan)
        level, stopper, rounds = _water_fill.fill_links(
            capacity, plan.flow_ptr, plan.hop_at, plan.hop_use, plan.back_ptr, plan.back_flow,
            weight, cap_level, cap_order, trial,
        )  # fmt: skip
        how = "local rounds, then heap" if trial else "heap"
    else:
        level, stopper, rounds = _water_fill.fill_bundles(
            capacity, plan.flow_ptr, plan.hop_at, plan.hop_use, plan.back_ptr, plan.back_flow,
            plan.link_ptr, plan.link_bundle, plan.link_use, weight, cap_level, cap_order,
        )  # fmt: skip
        how = "heap over bundles"
    if class_link is not None:
        stopper = np.where(stopper < 0, -1, class_link[stopper]).astype(np.int32)
    return level, stopper, int(rounds), how


def _is_sparse(plan: CompiledPlan) -> bool:
    used = np.count_nonzero(np.diff(plan.back_ptr))
    return bool(len(plan.hop_at) < SPARSE * used)
