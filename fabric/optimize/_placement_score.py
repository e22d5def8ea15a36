"""Exact times of placements: by the ways of all pairs of slots, or routed one by one."""

import functools
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import InfeasibleError, ModelError, nearest
from fabric.network import Flows, Network, Routes
from fabric.optimize._placement_input import Slots, Traffic
from fabric.routing import ROUTINGS, dimension_order, ecmp, spray
from fabric.solvers._certify import live_capacity
from fabric.solvers._compiled import fill

MOST_SLOTS = 2048
_MOST_ENTRIES = 200_000_000
Router = Callable[[Network, Flows], Routes]


class Ways(NamedTuple):
    """What a flow uses between any two slots: rows of a sparse matrix, links merged."""

    ptr: Int[np.ndarray, " pairs+1"]
    link: Int[np.ndarray, " entries"]
    use: Float[np.ndarray, " entries"]
    capacity: Float[np.ndarray, " links"]  # byte/s


def router_of(routing: Any, seed: int) -> tuple[Router, bool]:
    """Return the routing, and whether the way of a flow depends on its two ends alone."""
    options: dict[str, Any] = {}
    if not isinstance(routing, str):
        rule: Any = routing
        while isinstance(rule, functools.partial):
            rule, options = rule.func, rule.keywords | options
        alone = rule in (spray, dimension_order) or (rule is ecmp and options.get("key") == "ends")
        return routing, alone and options.get("queue_pairs", 1) == 1
    if routing not in ROUTINGS:
        message = (
            f"`placement(routing={routing!r})` is not known. {nearest(routing, list(ROUTINGS))}"
        )
        raise ModelError(message)
    rule = ROUTINGS[routing]
    if "seed" in inspect.signature(rule).parameters:
        options["seed"] = seed
    if rule is ecmp:
        options["key"] = "ends"
    return functools.partial(rule, **options), rule in (spray, dimension_order, ecmp)


def ways_of(network: Network, slots: Slots, router: Router) -> Ways:
    """Return the ways between all pairs of slots.

    Links that all pairs use alike are one: the smallest of them fills first.
    """
    from scipy.sparse import csr_array

    n = slots.n_slots
    if n > MOST_SLOTS:
        message = (
            f"`placement` chooses among at most {MOST_SLOTS:,} endpoints, but the allocation has "
            f"{n:,}. Place parts of the job one by one, each with its own `allocation`."
        )
        raise InfeasibleError(message)
    a, b = np.nonzero(~np.eye(n, dtype=bool))
    routes = router(network, Flows(slots.node[a], slots.node[b]))
    hops = csr_array(
        (np.asarray(routes.hop_use, np.float64), (np.asarray(routes.hop_flow), routes.hop_bundle)),
        shape=(len(a), routes.n_bundles),
    )
    if routes.n_parts:
        parts = csr_array(
            (np.asarray(routes.part_use, np.float64), (routes.part_bundle, routes.part_link)),
            shape=(routes.n_bundles, routes.n_links),
        )
    else:
        parts = csr_array(
            (np.ones(routes.n_links), (np.arange(routes.n_links), np.arange(routes.n_links))),
            shape=(routes.n_links, routes.n_links),
        )
    parts, capacity = _merged(parts, live_capacity(network))
    width = np.diff(parts.indptr)
    entries = int(width[hops.indices].sum())
    if entries > _MOST_ENTRIES:
        message = (
            f"`placement` would keep {entries:,} uses of links for {len(a):,} pairs of endpoints, "
            f"more than {_MOST_ENTRIES:,}. Choose among fewer endpoints, or use `routing='ecmp'`."
        )
        raise InfeasibleError(message)
    used = hops @ parts
    used.sum_duplicates()
    ptr = np.zeros(n * n + 1, np.int64)
    ptr[a * n + b + 1] = np.diff(used.indptr)
    return Ways(np.cumsum(ptr), used.indices.astype(np.int32), used.data, capacity)


def _merged(parts: Any, capacity: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return parts and capacities of one link for each set of links with equal parts."""
    columns = parts.tocsc()
    columns.sort_indices()
    found: dict[tuple[bytes, bytes], int] = {}
    kept, least = [], []
    for link in range(columns.shape[1]):
        own = slice(columns.indptr[link], columns.indptr[link + 1])
        if own.start == own.stop:
            continue
        key = (columns.indices[own].tobytes(), columns.data[own].tobytes())
        at = found.setdefault(key, len(kept))
        if at == len(kept):
            kept.append(link)
            least.append(capacity[link])
        least[at] = min(least[at], capacity[link])
    return columns[:, kept].tocsr(), np.array(least)


class Scorer:
    """Exact seconds of placements, and how crowded their links are.

    Attributes:
        evaluations: Placements that were scored.
        solves: Those that load over capacity alone did not rule out.
    """

    def __init__(
        self, network: Network, traffic: Traffic, slots: Slots, router: Router,
        ways: Ways | None, *, fluid: bool,
    ):  # fmt: skip
        self._network, self._router, self._slots = network, router, slots
        self._traffic, self._ways, self._fluid = traffic, ways, fluid
        self.evaluations = self.solves = 0

    def __call__(
        self, at: Int[np.ndarray, "placements ranks"], limit: float = np.inf
    ) -> tuple[Float[np.ndarray, " placements"], Float[np.ndarray, " placements"]]:
        """Return seconds and crowding of placements.

        Args:
            at: The slot of every rank; what comes behind the ranks is not read.
            limit: Seconds beyond which infinity is as good an answer.
        """
        self.evaluations += len(at)
        if self._ways is None:
            seconds = np.array([exact(
                self._network, self._traffic, self._slots.node[row], self._router, self._fluid
            )[0] for row in at])  # fmt: skip
            self.solves += len(at)
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

        def work(start: int, stop: int) -> None:
            score_placed(
                start, stop, at, t.src, t.dst, t.size, t.weight, t.cap, t.phase_ptr,
                self._slots.n_slots, ways.ptr, ways.link, ways.use, ways.capacity, float(limit),
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
    network: Network, traffic: Traffic, node: Int[np.ndarray, " slots"], router: Router, fluid: bool
) -> tuple[float, int]:
    """Return the seconds of ranks on these nodes, routed and solved as they stand, and the solves.

    Args:
        network: With labels.
        traffic: Of the ranks.
        node: The endpoint of every rank.
        router: The routing.
        fluid: Whether rates rise when flows are done.
    """
    total, solves, capacity = 0.0, 0, live_capacity(network)
    for first, last in zip(traffic.phase_ptr[:-1], traffic.phase_ptr[1:], strict=True):
        live, left = np.arange(first, last), traffic.size[first:last].copy()
        while len(live):
            flows = Flows(
                node[traffic.src[live]], node[traffic.dst[live]], left,
                traffic.weight[live], traffic.cap[live],
            )  # fmt: skip
            routes = router(network, flows)
            weight = np.asarray(routes.weight, np.float64)
            level, *_ = fill(capacity, routes, weight, np.asarray(routes.cap, np.float64))
            rate = np.asarray(routes.per_flow(weight * level))
            solves += 1
            with np.errstate(divide="ignore"):
                need = left / rate
            if not fluid or not np.isfinite(need).all():
                total += float(need.max())
                break
            step = float(need.min())
            total, left = total + step, left - step * rate
            going = left > 1e-12 * traffic.size[live]
            live, left = live[going], left[going]
    return total, solves
