"""Exact times of placements: by the ways between kinds of slots, or routed one by one."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric._errors import UnreachableError
from fabric.network import Flows, Network, Routes
from fabric.optimize._placement_input import Rule, Slots, Traffic
from fabric.optimize._placement_ways import Ways
from fabric.solvers._certify import live_capacity
from fabric.solvers._compiled import fill


class Scorer:
    """Exact seconds of placements, and how crowded their links are.

    Attributes:
        solves: Placements that load over capacity alone did not rule out.
    """

    def __init__(
        self, network: Network, traffic: Traffic, slots: Slots, rule: Rule, ways: Ways | None, *,
        fluid: bool,
    ):  # fmt: skip
        self._network, self._rule, self._slots = network, rule, slots
        self._traffic, self._ways, self._fluid = traffic, ways, fluid
        self.solves = 0

    def __call__(
        self, at: Int[np.ndarray, "placements ranks"], limit: float = np.inf
    ) -> tuple[Float[np.ndarray, " placements"], Float[np.ndarray, " placements"]]:
        """Return seconds and crowding of placements.

        Args:
            at: The slot of every rank; what comes behind the ranks is not read.
            limit: Seconds beyond which infinity is as good an answer.
        """
        if self._ways is None:
            seconds = np.zeros(len(at))
            for i, row in enumerate(at):
                node = self._slots.node[row]
                seconds[i], solves = exact(
                    self._network, self._traffic, node, self._rule, fluid=self._fluid
                )
                self.solves += solves
            return seconds, seconds
        seconds, crowding = self._by_ways(np.ascontiguousarray(at, np.int64), limit)
        self.solves += int(np.isfinite(seconds).sum())
        return seconds, crowding

    def _by_ways(
        self, at: Int[np.ndarray, "placements ranks"], limit: float
    ) -> tuple[Float[np.ndarray, " placements"], Float[np.ndarray, " placements"]]:
        import numba

        from fabric.kernels._placed import score_placed

        t, ways = self._traffic, self._ways
        assert ways is not None
        seconds, crowding = np.zeros(len(at)), np.zeros(len(at))
        counts = np.array([ways.n_kinds, ways.n_shared, ways.n_own])

        def work(start: int, stop: int) -> None:
            score_placed(
                start, stop, at, t.src, t.dst, t.size, t.weight, t.cap, t.phase_ptr, ways.kind,
                ways.server, counts, ways.ptr, ways.link, ways.use, ways.capacity, float(limit),
                self._fluid, seconds, crowding,
            )  # fmt: skip

        n_threads = min(numba.get_num_threads(), len(at))
        if n_threads < 2 or len(at) * len(t.src) < 10_000:
            work(0, len(at))
        else:
            edges = np.linspace(0, len(at), 4 * n_threads + 1).astype(int).tolist()
            with ThreadPoolExecutor(n_threads) as threads:
                list(threads.map(work, edges[:-1], edges[1:]))
        return seconds, crowding


def exact(
    network: Network, traffic: Traffic, node: Int[np.ndarray, " slots"], rule: Rule, *, fluid: bool
) -> tuple[float, int]:
    """Return the seconds of ranks on these nodes, routed and solved as they stand, and the solves.

    Infinite where a flow cannot reach its destination, or gets nothing.

    Args:
        network: With labels.
        traffic: Of the ranks.
        node: The endpoint of every rank.
        rule: The routing.
        fluid: Whether rates rise when flows are done.
    """
    total, solves, capacity = 0.0, 0, live_capacity(network)
    for first, last in zip(traffic.phase_ptr[:-1], traffic.phase_ptr[1:], strict=True):
        size = traffic.size[first:last]
        left, live, rate = size.copy(), np.ones(last - first, bool), np.zeros(last - first)
        routes, asked = None, np.arange(last - first)
        while live.any():
            if routes is None:
                asked = np.flatnonzero(live)
                try:
                    routes = rule.route(network, _placed(traffic, first + asked, node))
                except UnreachableError:
                    return np.inf, solves
            rate[asked] = _rates(capacity, routes, live[asked])
            solves += 1
            with np.errstate(divide="ignore"):
                need = left[live] / rate[live]
            if not fluid or not np.isfinite(need).all():
                total += float(need.max())
                break
            step = float(need.min())
            total, left = total + step, left - step * rate
            live &= left > 1e-12 * size
            routes = routes if rule.alone else None
    return total, solves


def _placed(
    traffic: Traffic, flow: Int[np.ndarray, " some"], node: Int[np.ndarray, " slots"]
) -> Flows:
    """Return some flows between the nodes of their ranks."""
    return Flows(
        node[traffic.src[flow]], node[traffic.dst[flow]], traffic.size[flow], traffic.weight[flow],
        traffic.cap[flow],
    )  # fmt: skip


def _rates(
    capacity: Float[np.ndarray, " links"], routes: Routes, live: Bool[np.ndarray, " flows"]
) -> Float[np.ndarray, " flows"]:
    """Return the rates of flows; those that are done get nothing and take nothing."""
    weight = np.asarray(routes.weight, np.float64)
    cap = np.where(live[np.asarray(routes.flow_of)], np.asarray(routes.cap, np.float64), 0.0)
    level, *_ = fill(capacity, routes, weight, cap)
    return np.asarray(routes.per_flow(weight * level))
