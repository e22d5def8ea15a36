"""Just beyond a solution: exact one-sided tangents along capacities, and how far they reach.

Host only, by compiled kernels. `one_sided` answers the same question inside JAX, for every
parameter; this serves many directions of capacity at one solution, where a table needs them.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fabric._errors import UnsolvedError
from fabric.network import Routes
from fabric.solvers import _compiled
from fabric.solvers._plan import compiled_plan

NEAR = 1e-12
"""Levels this near, relative, compare as equal; to it comes the rounding of the sums."""

SAME_TANGENT = 1e-9
"""Tangents this near, relative to the largest, count as the same when a reach is worked out."""

ENDLESS = 1e6
"""A step beyond this many times the direction is taken as no limit."""

FlowFloats = Float[np.ndarray, " flows"]
LinkFloats = Float[np.ndarray, " links"]


class Lines(NamedTuple):
    """What limits the slowest level: the share of every link if all of its flows grow alike."""

    share: LinkFloats  # capacity over weight, infinite without flows
    blur: LinkFloats  # relative: how near two shares compare as equal
    cap: float  # the lowest level at which a cap stops a flow


class Beyond:
    """A solution, ready to be asked what happens along a direction of capacities.

    Args:
        routes: Which flow crosses which link.
        capacity: (links,), byte/s, 0 where failed.
        weight: (flows,).
        cap: (flows,), byte/s.
    """

    def __init__(self, routes: Routes, capacity: LinkFloats, weight: FlowFloats, cap: FlowFloats):
        from fabric.kernels import _kinks

        self.capacity, self.weight = capacity, weight
        self._plan = plan = compiled_plan(routes)
        level, stopper, _ = _compiled.fill(capacity, routes, weight, cap)
        self.level, self.cap_level = level, cap / weight
        self._flows = (plan.flow_ptr, plan.hop_at, plan.hop_use)
        self._links = (plan.link_ptr, plan.link_bundle, plan.link_use)
        # Links that fill together are one class, as large as its smallest.
        n = plan.n_classes
        self._class_of = np.arange(n) if plan.class_of is None else plan.class_of
        self.used = self._class_of >= 0
        used_class = self._class_of[self.used]
        least = np.full(n, np.inf)
        np.minimum.at(least, used_class, capacity[self.used])
        load, top, growth, total, entries = _kinks.measure(
            level, weight, *self._flows, *self._links, plan.n_bundles
        )
        blur = NEAR + np.finfo(np.float64).eps * entries
        stopper = np.append(plan.class_of, -1)[stopper] if plan.class_of is not None else stopper
        by_link = np.flatnonzero(stopper >= 0)
        full = (top >= 0) & (load >= least * (1 - blur))
        full[stopper[by_link]] = True

        rising, place = np.unique(level, return_inverse=True)
        slack = NEAR * rising
        share_blur = blur * least / np.where(growth > 0, growth, 1)
        np.maximum.at(slack, place[by_link], share_blur[stopper[by_link]])
        groups = _kinks.group(rising, slack)
        n_groups = int(groups[-1]) + 1 if len(groups) else 0
        self._group = groups[place].astype(np.int32)
        self._order = np.argsort(self._group, kind="stable").astype(np.int32)
        starts = np.arange(n_groups + 1)
        self._group_flow = np.searchsorted(self._group[self._order], starts)
        self._link_level = np.where(top >= 0, top, 0)
        # The top of a link is the level of some flow.
        link_group = np.append(groups, -1)[np.searchsorted(rising, top)]
        self._link_group = np.where(top >= 0, link_group, -1).astype(np.int32)
        filled = np.flatnonzero(full)
        self._link_order = filled[np.argsort(self._link_group[filled], kind="stable")]
        self._link_order = self._link_order.astype(np.int32)
        self._group_link = np.searchsorted(self._link_group[self._link_order], starts)
        self._back = _kinks.by_group(self._order, plan.flow_ptr, plan.hop_at, plan.n_bundles)
        self._at_cap = level >= self.cap_level * (1 - NEAR)
        self._full = full

        spread = lambda values, none: np.append(values, none)[self._class_of]
        self.load, self.top = spread(load, 0.0), spread(self._link_level, 0.0)
        self.full = spread(full, False) & (self.load >= capacity * (1 - spread(blur, 0.0)))
        # The smallest of its class is full by definition, whatever its sum was rounded to.
        self._smallest = self.used & (capacity <= spread(least * (1 + NEAR), 0.0))
        self.full |= self._smallest & spread(full, False)
        smallest = np.flatnonzero(self._smallest)
        self._members = smallest[np.argsort(self._class_of[smallest], kind="stable")]
        self._filled, self._first = np.unique(self._class_of[self._members], return_index=True)
        weights = spread(total, 0.0)
        share = np.divide(capacity, weights, out=np.full(len(capacity), np.inf), where=weights > 0)
        self.lines = Lines(share, spread(blur, 0.0), float(self.cap_level.min(initial=np.inf)))

    @property
    def work(self) -> int:
        """Entries that one direction reads, about."""
        return len(self.level) + len(self._plan.hop_at) + len(self._plan.link_bundle)

    def tangents(self, direction: LinkFloats) -> FlowFloats:
        """Return (flows,), the one-sided derivative of the levels along a direction.

        Args:
            direction: (links,), byte/s; not negative on links of capacity 0.
        """
        from fabric.kernels import _kinks

        tangent, lost = _kinks.one_sided(
            self._of_classes(direction), self._at_cap, self.weight, self._group, self._order,
            self._group_flow, self._link_order, self._group_link, *self._flows, *self._back,
            *self._links, self._plan.n_bundles,
        )  # fmt: skip
        if lost:
            message = (
                f"No bottleneck beyond the solution was found for {lost:,} of "
                f"{len(tangent):,} flows. `one_sided` works without this one: use it."
            )
            raise UnsolvedError(message)
        return tangent

    def reach(self, direction: LinkFloats, tangent: FlowFloats) -> float:
        """Return the largest step along a direction up to which the levels stay on a line.

        That is the next change of bottleneck structure: a link fills, a flow reaches its cap, or
        on the last link that stops some flow another flow rises above it. Infinite if never.

        Args:
            direction: (links,), byte/s.
            tangent: (flows,), of the levels, as `tangents` returns it.
        """
        from fabric.kernels import _kinks

        plan = self._plan
        load, size, rise = _kinks.moves(
            tangent, self.weight, self._group, *self._flows, *self._links, plan.n_bundles
        )
        spread = lambda values: np.append(values, 0.0)[self._class_of]
        lacks = spread(load) - direction
        reach = _first(self.capacity, -direction)
        reach = min(reach, _first((self.capacity - self.load)[~self.full], lacks[~self.full]))
        free = ~self._at_cap & np.isfinite(self.cap_level)
        reach = min(reach, _first(self.cap_level[free] - self.level[free], tangent[free]))

        way = self._of_classes(direction)
        held = self._full & (way - load <= SAME_TANGENT * (np.abs(way) + size))
        same = SAME_TANGENT * float(np.abs(tangent).max(initial=0.0))
        capped = self._at_cap & (tangent >= -same)
        reach = min(reach, ENDLESS)
        while True:
            less = _kinks.tightened(
                reach, self.level, tangent, self._group, capped, held, self._link_group,
                self._link_level, rise, same, plan.flow_ptr, plan.hop_at, plan.link_ptr,
                plan.link_bundle, plan.n_bundles,
            )  # fmt: skip
            if not less < reach:
                return float(reach) if reach < ENDLESS else float("inf")
            reach = less

    def _of_classes(self, direction: LinkFloats) -> Float[np.ndarray, " classes"]:
        """Return the one-sided tangent of the smallest capacity of each class."""
        way = np.full(self._plan.n_classes, np.inf)
        along = direction[self._members]
        alone = len(self._filled) == len(self._members)
        way[self._filled] = along if alone else np.minimum.reduceat(along, self._first)
        return way


def _first(left: np.ndarray, falls: np.ndarray) -> float:
    """Return the first step at which something is used up: the least of left over fall."""
    falling = falls > 0
    return float((np.maximum(left[falling], 0) / falls[falling]).min(initial=np.inf))
