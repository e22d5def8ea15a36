"""The layout that the compiled kernels read: made once per routes, kept with them.

Links that carry the same bundles at the same fractions always fill together, whatever the flows
do, and the smallest of them fills first: one representative per class is enough, and nothing is
lost. Under spray without failures every bundle is then one link, and the routes are one-level.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from fabric._typing import AnyArray
from fabric.network import Routes


@dataclass(frozen=True)
class CompiledPlan:
    """Routes transposed and merged into classes of links.

    Narrow plans are one-level: every bundle is one class, and `hop_at` holds classes. In wide
    ones it holds bundles, and `link_bundle` and `link_use` say what each class carries.
    """

    wide: bool
    flow_ptr: Int[np.ndarray, " flows_plus_1"]
    hop_at: Int[np.ndarray, " kept_hops"]
    hop_use: Float[np.ndarray, " kept_hops"]
    back_ptr: Int[np.ndarray, " rows_plus_1"]
    back_flow: Int[np.ndarray, " kept_hops"]
    link_ptr: Int[np.ndarray, " classes_plus_1"]
    link_bundle: Int[np.ndarray, " kept_parts"]
    link_use: Float[np.ndarray, " kept_parts"]
    n_bundles: int
    class_of: Int[np.ndarray, " links"] | None  # None: every link is its own class
    n_classes: int


def compiled_plan(routes: Routes) -> CompiledPlan:
    """Return the plan of these routes, from the cache that travels with them if it is there."""
    if "compiled" not in routes.plans:
        routes.plans["compiled"] = _build(routes)
    plan = routes.plans["compiled"]
    assert isinstance(plan, CompiledPlan)
    return plan


def _build(routes: Routes) -> CompiledPlan:
    flow, at = np.asarray(routes.hop_flow), np.asarray(routes.hop_bundle)
    use = np.asarray(routes.hop_use, np.float64)
    if routes.n_parts == 0:
        return _one_level(routes.n_flows, flow, at, use, None, routes.n_links)
    merged = _merge(routes)
    if merged is None:
        return _one_level(routes.n_flows, flow[:0], at[:0], use[:0], None, routes.n_links)
    class_of, n_classes, link_ptr, link_bundle, link_use = merged
    width = np.bincount(link_bundle, minlength=routes.n_bundles)
    if width.max(initial=0) > 1:
        ptr, at, use, back_ptr, back_flow = _rows(
            routes.n_flows, flow, at, use, np.append(width > 0, False), routes.n_bundles
        )
        return CompiledPlan(
            True, ptr, at, use, back_ptr, back_flow, link_ptr, link_bundle, link_use,
            routes.n_bundles, class_of, n_classes,
        )  # fmt: skip
    # One past the end: where padding and bundles without a link lead.
    link_at = np.full(routes.n_bundles + 1, n_classes, np.int32)
    fraction = np.zeros(routes.n_bundles + 1)
    link_at[link_bundle] = np.repeat(np.arange(n_classes, dtype=np.int32), np.diff(link_ptr))
    fraction[link_bundle] = link_use
    return _one_level(routes.n_flows, flow, link_at[at], use * fraction[at], class_of, n_classes)


def _one_level(
    n_flows: int,
    flow: np.ndarray,
    link: np.ndarray,
    use: np.ndarray,
    class_of: np.ndarray | None,
    n_classes: int,
) -> CompiledPlan:
    present = np.append(np.ones(n_classes, bool), False)
    ptr, link, use, back_ptr, back_flow = _rows(n_flows, flow, link, use, present, n_classes)
    each = np.arange(n_classes + 1)
    return CompiledPlan(
        False, ptr, link, use, back_ptr, back_flow, each, each[:-1].astype(np.int32),
        np.ones(n_classes), n_classes, class_of, n_classes,
    )  # fmt: skip


def _rows(
    n_flows: int, flow: np.ndarray, at: np.ndarray, use: np.ndarray, present: np.ndarray, n_at: int
) -> tuple[np.ndarray, ...]:
    """Return (flow_ptr, at, use, back_ptr, back_flow) of the hops that cross something."""
    from fabric.kernels._layout import transpose

    kept = present[at] & (use > 0)
    if not kept.all():
        flow, at, use = flow[kept], at[kept], use[kept]
    ptr = np.zeros(n_flows + 1, np.int64)
    np.cumsum(np.bincount(flow, minlength=n_flows), out=ptr[1:])
    flow, at = plain_array(flow, np.int32), plain_array(at, np.int32)
    back_ptr, back_flow, _ = transpose(flow, at, n_at)
    return ptr, at, plain_array(use, np.float64), back_ptr, back_flow


def plain_array(values: AnyArray, kind: type) -> np.ndarray:
    """Return contiguous values of a type, not read-only: numba would compile a second variant."""
    array = np.ascontiguousarray(values, kind)
    if not array.flags.writeable:
        array = array.view()
        try:
            array.flags.writeable = True
        except ValueError:  # the owner of the memory is read-only
            array = array.copy()
    return array


def _merge(routes: Routes) -> tuple[np.ndarray, int, np.ndarray, np.ndarray, np.ndarray] | None:
    """Return (class_of, n_classes, and the parts of one representative per class, by class)."""
    from fabric.kernels._layout import merge, transpose

    bundle, link = np.asarray(routes.part_bundle), np.asarray(routes.part_link)
    use = np.asarray(routes.part_use, np.float64)
    kept = (bundle < routes.n_bundles) & (use > 0)
    if not kept.all():
        bundle, link, use = bundle[kept], link[kept], use[kept]
    if not len(bundle):
        return None
    if np.any(np.diff(bundle) < 0):
        order = np.argsort(bundle, kind="stable")
        bundle, link, use = bundle[order], link[order], use[order]
    bundle, link = plain_array(bundle, np.int32), plain_array(link, np.int32)
    ptr, link_bundle, order = transpose(bundle, link, routes.n_links)
    link_use = use[order]
    class_of, first = merge(ptr, link_bundle, link_use, link_use.view(np.uint64))
    count = ptr[first + 1] - ptr[first]
    class_ptr = np.concatenate([[0], np.cumsum(count)])
    entry = np.arange(class_ptr[-1]) - np.repeat(class_ptr[:-1] - ptr[first], count)
    return class_of, len(first), class_ptr, link_bundle[entry], link_use[entry]
