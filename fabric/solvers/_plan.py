"""The layout that the compiled kernels read: made once per routes, kept with them.

Links that carry the same bundles at the same fractions always fill together, whatever the flows
do, and the smallest of them fills first: one representative per class is enough, and nothing is
lost. So do the links of bundles that carry the same flows one after the other, as those from a
GPU to its leaf. Under spray without failures every bundle is then one link, and the routes are
one-level.
"""

import dataclasses
import functools

import numpy as np
from jaxtyping import Float, Int

from fabric._typing import AnyArray
from fabric.network import Routes

FEW = 0.25
"""Hops more, of all hops, for which wide bundles are written out link by link."""

Ints = Int[np.ndarray, " _"]
Floats = Float[np.ndarray, " _"]
Parts = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class CompiledPlan:
    """Routes transposed and merged into classes of links.

    Narrow plans are one-level: every bundle is one class, and `hop_at` holds classes, of which the
    first `n_shared` have several flows and the others one each. In wide plans it holds bundles,
    and `parts` says what each class carries.

    Attributes:
        wide: Whether bundles are more than links by another name.
        flow_ptr: (flows + 1,). Hops of flow f on shared classes run from `flow_ptr[f]` to
            `flow_end[f]`; one on its private class follows if it has any.
        flow_end: (flows,).
        hop_at: (hops,).
        uses: (hops,), None where every use is 1.
        back_ptr: (rows + 1,), the transpose; `back_flow`: (hops,).
        back_flow: See `back_ptr`.
        back_uses: (hops,), None where every use is 1 and in wide plans.
        parts: (classes + 1,), (parts,), (parts,) of wide plans.
        n_bundles: Rows of the transpose.
        class_of: (links,), -1 for a link that carries nothing.
        n_classes: Number of classes.
        n_shared: Number of shared classes; all of a wide plan.
    """

    wide: bool
    flow_ptr: Ints
    flow_end: Ints
    hop_at: Ints
    uses: Floats | None
    back_ptr: Ints
    back_flow: Ints
    back_uses: Floats | None
    parts: Parts | None
    n_bundles: int
    class_of: Ints
    n_classes: int
    n_shared: int

    @functools.cached_property
    def members(self) -> tuple[Ints, Ints]:
        """(classes + 1,) and (used links,): the links of each class, by their fixed priority."""
        from fabric.kernels import _layout

        return _layout.members(self.class_of, self.n_classes)

    @functools.cached_property
    def hop_use(self) -> Floats:
        """(hops,), written out."""
        return np.ones(len(self.hop_at)) if self.uses is None else self.uses

    @property
    def link_ptr(self) -> Ints:
        """(classes + 1,), which parts each class has."""
        return self._parts[0]

    @property
    def link_bundle(self) -> Ints:
        """(parts,)."""
        return self._parts[1]

    @property
    def link_use(self) -> Floats:
        """(parts,)."""
        return self._parts[2]

    @functools.cached_property
    def _parts(self) -> Parts:
        if self.parts is not None:
            return self.parts
        each = np.arange(self.n_classes + 1)
        return each, each[:-1].astype(np.int32), np.ones(self.n_classes)


def compiled_plan(routes: Routes) -> CompiledPlan:
    """Return the plan of these routes, from the cache that travels with them if it is there."""
    if "compiled" not in routes.plans:
        routes.plans["compiled"] = _build(routes)
    plan = routes.plans["compiled"]
    assert isinstance(plan, CompiledPlan)
    return plan


def _build(routes: Routes) -> CompiledPlan:
    from fabric.kernels import _layout

    flow = plain_array(routes.hop_flow, np.int32)
    at = plain_array(routes.hop_bundle, np.int32)
    use = plain_array(routes.hop_use, np.float64)
    if routes.n_parts == 0:
        return _one_level(routes.n_flows, flow, at, use, routes.n_links, None)
    hops, leader = _layout.chains(flow, at, use, routes.n_bundles)
    classes = merged(routes, (hops, leader))
    if classes is None:
        nothing = np.full(routes.n_links, -1, np.int32)
        return _one_level(routes.n_flows, flow[:0], at[:0], use[:0], 0, nothing)
    class_of, n_classes, link_ptr, link_bundle, link_use = classes
    width = np.bincount(link_bundle, minlength=routes.n_bundles)
    if (hops * np.maximum(width - 1, 0)).sum() > FEW * len(at):
        parts = (link_ptr, link_bundle, link_use)
        return _two_level(routes, flow, at, use, width > 0, parts, class_of)
    part_class = np.repeat(np.arange(n_classes, dtype=np.int32), np.diff(link_ptr))
    ptr, part_class, order = _layout.transpose(part_class, link_bundle, routes.n_bundles)
    n_hops = int((hops * width).sum())
    written = _layout.written_out(flow, at, use, ptr, part_class, link_use[order], n_hops)
    return _one_level(routes.n_flows, *written, n_classes, class_of)


def _one_level(
    n_flows: int, flow: Ints, link: Ints, use: Floats, n_links: int, link_of: Ints | None
) -> CompiledPlan:
    """Return the plan of hops on links, or on classes of links by `link_of`."""
    from fabric.kernels import _layout

    class_of, n_shared, n_classes, flow_ptr, flow_end, hop_at, hop_use = _layout.one_level(
        flow, link, use, n_flows, n_links
    )
    if n_shared == n_classes:
        flow_end = flow_ptr[1:]  # one array less to read
    uses = None if (hop_use == 1.0).all() else hop_use
    back_ptr, back_flow, back_uses = _layout.by_column(flow_ptr, hop_at, uses, n_classes)
    if link_of is not None:
        class_of = np.append(class_of, np.int32(-1))[link_of]
    return CompiledPlan(
        False, flow_ptr, flow_end, hop_at, uses, back_ptr, back_flow,
        None if uses is None else back_uses,
        None, n_classes, class_of, n_classes, n_shared,
    )  # fmt: skip


def _two_level(
    routes: Routes,
    flow: Ints,
    at: Ints,
    use: Floats,
    carried: np.ndarray,
    parts: Parts,
    class_of: Ints,
) -> CompiledPlan:
    """Return the plan of hops on bundles that are wide, without bundles that no link carries."""
    from fabric.kernels import _layout

    kept = np.append(carried, False)[at] & (use > 0)
    if not kept.all():
        flow, at, use = flow[kept], at[kept], use[kept]
    ptr = np.zeros(routes.n_flows + 1, np.int64)
    np.cumsum(np.bincount(flow, minlength=routes.n_flows), out=ptr[1:])
    back_ptr, back_flow, _ = _layout.by_column(ptr, at, None, routes.n_bundles)
    n_classes = len(parts[0]) - 1
    return CompiledPlan(
        True, ptr, ptr[1:], at, use, back_ptr, back_flow, None,
        parts, routes.n_bundles, class_of, n_classes, n_classes,
    )  # fmt: skip


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


def merged(
    routes: Routes, chains: tuple[Ints, Ints] | None = None
) -> tuple[np.ndarray, int, np.ndarray, np.ndarray, np.ndarray] | None:
    """Return (class_of, n_classes, and the parts of one representative per class, by class).

    Args:
        routes: On two levels.
        chains: Hops and leader of every bundle: bundles of a chain then count as the first of it,
            so that their links have equal content, and bundles that no flow takes do not count.
    """
    from fabric.kernels._layout import merge, transpose

    bundle, link = np.asarray(routes.part_bundle), np.asarray(routes.part_link)
    use = np.asarray(routes.part_use, np.float64)
    kept = (bundle < routes.n_bundles) & (use > 0)
    if chains is not None:
        kept[kept] = chains[0][bundle[kept]] > 0
    if not kept.all():
        bundle, link, use = bundle[kept], link[kept], use[kept]
    if not len(bundle):
        return None
    bundle, link = plain_array(bundle, np.int32), plain_array(link, np.int32)
    if chains is not None:
        bundle = chains[1][bundle]
    if np.any(np.diff(bundle) < 0):
        _, _, order = transpose(np.arange(len(bundle), dtype=np.int32), bundle, routes.n_bundles)
        bundle, link, use = bundle[order], link[order], use[order]
    ptr, link_bundle, order = transpose(bundle, link, routes.n_links)
    link_use = use[order]
    class_of, first = merge(ptr, link_bundle, link_use, link_use.view(np.uint64))
    count = ptr[first + 1] - ptr[first]
    class_ptr = np.concatenate([[0], np.cumsum(count)])
    entry = np.arange(class_ptr[-1]) - np.repeat(class_ptr[:-1] - ptr[first], count)
    return class_of, len(first), class_ptr, link_bundle[entry], link_use[entry]
