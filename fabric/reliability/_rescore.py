"""The score of one failure: from scratch, or from the flows it touches and those they touch.

Under spray a failure changes the routes of exactly those flows that crossed what failed. These are
routed again over the switches and their own servers, and filled into what the others leave. The
others keep their rates as long as every one of them still has a full link on which nobody gets
more; those that have not are let loose with the rest, until all have. Max-min rates being unique,
what has such a link for every flow is the solution.
"""

import functools

import numpy as np
from jaxtyping import Float

from fabric.network import Routes
from fabric.reliability._failures import Components
from fabric.reliability._frame import Frame
from fabric.reliability._intact import Intact, Router, Score, filled, routed_or_lost
from fabric.reliability._usage import Ids, Usage, different, entries
from fabric.routing import spray

NEAR = 1e-10
"""Relative distance up to which levels are equal and links are full; rates are exact within it."""

_MOST_ROUNDS = 12
_LEAST_HELD = 0.7


class Rescorer:
    """Scores the failures of components.

    Args:
        intact: The network and its flows before.
        factor: What is left of the capacity of a component; 0: it fails.

    Attributes:
        local: Whether only the flows that a failure touches are solved again: under spray itself.
            A function that calls it may do more.
    """

    def __init__(self, intact: Intact, factor: float):
        self._intact, self._factor = intact, factor
        self.local = _is_spray(intact.router)
        if self.local:
            self._frame = Frame(intact.network)

    def links(self, parts: Components, component: int) -> Ids:
        """Return the links that fail with a component."""
        items = parts.items(component)
        if parts.of_links:
            return np.asarray(items)
        return self._frame.links_at(items)

    def __call__(self, parts: Components, component: int) -> Score:
        """Return the score without a component, or with less of it."""
        return self._locally(parts, component) if self.local else self._anew(parts, component)

    def _anew(self, parts: Components, component: int) -> Score:
        intact, factor = self._intact, self._factor
        network = parts.degraded(component, factor) if factor > 0 else parts.failed(component)
        routes, left, lost = routed_or_lost(intact.router, network, intact.flows)
        kept = np.zeros(intact.flows.n_flows, bool)
        kept[left] = True
        rate = np.zeros(intact.flows.n_flows)
        if routes is not None:
            level, _ = filled(np.where(network.alive, network.capacity, 0.0), routes)
            of = np.asarray(routes.flow_of)
            rate[left] = np.bincount(of, np.asarray(routes.weight) * level, len(left))
        return intact.objective.score(rate, kept, lost.tolist(), detours=True)

    def _locally(self, parts: Components, component: int) -> Score:
        intact, usage = self._intact, self._intact.usage
        dead = self.links(parts, component)
        rows = usage.rows_on(dead)
        if not len(rows):
            return intact.score
        hit = different(intact.flow_of[rows], intact.flows.n_flows)
        capacity = intact.capacity.copy()
        capacity[dead] *= self._factor
        routes, left, lost = self._frame.route(intact, hit, dead, self._factor)
        new = None if routes is None else Usage.of(routes)
        moved = intact.rows_of[1][entries(intact.rows_of[0], hit)[1]]
        kept = intact.rows_of[1][entries(intact.rows_of[0], hit[left])[1]]
        level = _settled(intact, capacity, moved, kept, new)
        rate = intact.per_flow(intact.weight * level)
        gone = hit[lost]
        running = None
        if len(gone):
            running = np.ones(intact.flows.n_flows, bool)
            running[gone] = False
        before = usage.links_of(moved)
        detours = new is not None and not np.isin(new.part_link, before, kind="table").all()
        return intact.objective.score(rate, running, gone.tolist(), detours)


def _is_spray(router: Router) -> bool:
    rule = router.func if isinstance(router, functools.partial) else router
    return rule is spray


def _settled(
    intact: Intact,
    capacity: Float[np.ndarray, " links"],
    moved: Ids,
    kept: Ids,
    new: Usage | None,
) -> Float[np.ndarray, " rows"]:
    """Return the level of every row.

    Args:
        intact: Before the failure.
        capacity: (links,), byte/s, after it.
        moved: Rows whose routes change; those that are lost get level 0.
        kept: Those among them that have new routes, in their order.
        new: The usage of these.
    """
    usage, weight = intact.usage, intact.weight
    loose = np.zeros(0, np.int64)
    others = np.ones(usage.n_rows, bool)
    others[moved] = False
    freed = usage.load(intact.rate[moved], moved)
    rounds = 0
    while True:
        level = intact.level.copy()
        level[moved] = 0.0
        fixed = intact.load - freed
        if len(loose):
            fixed -= usage.load(intact.rate[loose], loose)
        touched = usage.links_of(np.concatenate([moved, loose]))
        if new is not None:
            touched = different(np.concatenate([touched, new.part_link]), usage.n_links)
        room = np.maximum(capacity[touched] - fixed[touched], 0.0)
        loaded, top, stop, lowest = fixed[touched], np.zeros(len(touched)), None, None
        routes = _together(intact, kept, new, loose, touched)
        if routes is not None:
            found, stop = filled(room, routes)
            rows = np.concatenate([kept, loose])
            level[rows] = found
            there = Usage.of(routes)
            loaded = loaded + there.load(found * weight[rows])
            top = there.top(found)
            lowest = np.full(len(touched), np.inf)
            at = stop >= 0
            np.minimum.at(lowest, stop[at], found[at])
        wrong = _unsettled(intact, others, touched, capacity, loaded, top, lowest)
        if not len(wrong):
            return level
        others[wrong] = False
        rounds += 1
        if rounds > _MOST_ROUNDS or np.count_nonzero(others) < _LEAST_HELD * usage.n_rows:
            wrong = np.concatenate([wrong, np.flatnonzero(others)])
            others[:] = False
        loose = np.concatenate([loose, wrong])


def _unsettled(
    intact: Intact,
    others: np.ndarray,
    touched: Ids,
    capacity: np.ndarray,
    loaded: np.ndarray,
    top: np.ndarray,
    lowest: np.ndarray | None,
) -> Ids:
    """Return rows that keep their level and have lost the link that justified it."""
    # Those stopped by a link that is no longer full, or on which somebody gets more now.
    limit = capacity[touched]
    slack = loaded < limit * (1 - NEAR)
    ptr, row = intact.stopped_by
    of, at = entries(ptr, touched)
    rows = row[at]
    bad = others[rows] & (slack[of] | (top[of] > intact.level[rows] * (1 + NEAR)))
    found = [rows[bad]]
    if lowest is not None:
        # Those that get more than a row which their link stops.
        over = np.flatnonzero(intact.top[touched] > lowest * (1 + NEAR))
        rows = intact.usage.rows_above(touched[over], lowest[over] * (1 + NEAR), intact.level)
        found.append(rows[others[rows]])
    return different(np.concatenate(found), intact.usage.n_rows)


def _together(
    intact: Intact, kept: Ids, new: Usage | None, loose: Ids, touched: Ids
) -> Routes | None:
    """Return the routes of rows with new routes and of rows let loose, over touched links."""
    old, pieces, parts, n_bundles = intact.usage, [], [], 0
    if new is not None:
        pieces.append((new.row_of_hop, new.hop_bundle, new.hop_use))
        parts.append((new.bundle_of_part, new.part_link, new.part_use))
        n_bundles = new.n_bundles
    if len(loose):
        of, hop = entries(old.hop_ptr, loose)
        bundles = different(old.hop_bundle[hop], old.n_bundles)
        number = np.searchsorted(bundles, old.hop_bundle[hop]) + n_bundles
        pieces.append((of + len(kept), number, old.hop_use[hop]))
        of, part = entries(old.part_ptr, bundles)
        parts.append((of + n_bundles, old.part_link[part], old.part_use[part]))
        n_bundles += len(bundles)
    if not pieces:
        return None
    rows = np.concatenate([kept, loose])
    flow, bundle, use = (np.concatenate(x) for x in zip(*pieces, strict=True))
    part_bundle, link, part_use = (np.concatenate(x) for x in zip(*parts, strict=True))
    return Routes.from_bundles(
        flow, bundle, use, part_bundle, np.searchsorted(touched, link), part_use,
        n_flows=len(rows), n_bundles=n_bundles, n_links=len(touched),
        weights=intact.weight[rows], caps=intact.cap[rows],
    )  # fmt: skip
