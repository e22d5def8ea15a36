"""A network and its flows before anything fails: routes, levels, loads, and what is judged."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric._errors import ModelError, UnreachableError, UnsolvedError, joined, nearest
from fabric.network import Flows, Network, Routes
from fabric.reliability._usage import Floats, Ids, Usage, grouped
from fabric.solvers import Completion, _compiled
from fabric.solvers._certify import live_capacity

Router = Callable[[Network, Flows], Routes]

OBJECTIVES = ("slowest", "total")
"""Objectives that go by a name."""


@dataclasses.dataclass(frozen=True)
class Score:
    """What is left of the flows after a failure; rates in byte/s.

    Attributes:
        lost: Flows that are cut off, by number.
        slowest: The slowest rate among the others, infinite where none is left.
        total: The sum of their rates.
        completion: Seconds until the last of them is done if rates stay; NaN if not asked for.
        detours: Whether flows take links that they did not take before, or may.
    """

    lost: tuple[int, ...]
    slowest: float
    total: float
    completion: float
    detours: bool = False

    def equals(self, other: "Score", within: float) -> bool:
        """Return whether as many flows are lost, and numbers differ by no more, relative."""
        mine, others = ((s.slowest, s.total, s.completion) for s in (self, other))
        near = np.isclose(mine, others, rtol=within, atol=0.0, equal_nan=True)
        return len(self.lost) == len(other.lost) and bool(near.all())


class Objective:
    """What a failure is judged by.

    Args:
        asked: "slowest" or "total" of the rates of flows, or a `Completion`.
        n_flows: Number of flows.
    """

    def __init__(self, asked: str | Completion, n_flows: int):
        self.size: Float[np.ndarray, " flows"] | None = None
        if isinstance(asked, Completion):
            self.name, self.size = "completion", np.asarray(asked.size, np.float64)
            if self.size.shape != (n_flows,):
                message = (
                    f"`contingency(objective=Completion(size))` needs a size for each of "
                    f"{n_flows:,} flows, but got shape {self.size.shape}."
                )
                raise ModelError(message)
            _check_sizes(self.size)
        elif asked in OBJECTIVES:
            self.name = asked
        else:
            message = (
                f"`contingency(objective={asked!r})` is no objective. "
                f"{nearest(str(asked), OBJECTIVES)} A `fabric.Completion` is one too."
            )
            raise ModelError(message)

    def score(
        self,
        rate: Float[np.ndarray, " flows"],
        left: Bool[np.ndarray, " flows"] | None,
        lost: Sequence[int],
        detours: bool = False,
    ) -> Score:
        """Return the score of rates.

        Args:
            rate: byte/s.
            left: Which flows still run. Default: all.
            lost: The others.
            detours: See `Score`.
        """
        kept = rate if left is None else rate[left]
        completion = np.nan
        if self.size is not None:
            size = self.size if left is None else self.size[left]
            with np.errstate(divide="ignore"):
                completion = float((size[size > 0] / kept[size > 0]).max(initial=0.0))
        slowest = float(kept.min(initial=np.inf))
        return Score(tuple(lost), slowest, float(kept.sum()), completion, detours)

    def value(self, score: Score) -> float:
        """Return the objective; a flow that is cut off has rate 0 and is never done."""
        if self.name == "total":
            return score.total
        if self.name == "slowest":
            return 0.0 if score.lost else score.slowest
        cut = self.size is not None and any(self.size[flow] > 0 for flow in score.lost)
        return np.inf if cut else score.completion


def _check_sizes(size: Float[np.ndarray, " flows"]) -> None:
    bad = np.flatnonzero(~(np.isfinite(size) & (size >= 0)))
    if len(bad):
        message = (
            f"`contingency(objective=Completion(size))` needs finite sizes of 0 bytes or more, but "
            f"got {size[bad[0]]:g} at {joined([str(flow) for flow in bad], 5)}."
        )
        raise ModelError(message)
    if not size.any():
        message = "`contingency(objective=Completion(size))` needs a flow of more than 0 bytes."
        raise ModelError(message)


class Intact:
    """A solved network, before anything fails.

    Args:
        network: With labels.
        flows: (flows,).
        router: From a network and flows to routes.
        objective: What failures are judged by.

    Attributes:
        routes, usage: Which row crosses which link.
        flow_of: (rows,). `weight`, `cap`, `level`, `rate`: (rows,).
        stopper: (rows,), a link that stopped each row, -1 for its cap.
        load: (links,), byte/s. `top`: (links,), the largest level on each.
        score: What all is compared with.
    """

    def __init__(self, network: Network, flows: Flows, router: Router, objective: Objective):
        self.network, self.router, self.objective = network, router, objective
        self.flows = Flows(
            *(np.asarray(getattr(flows, name)) for name in ("src", "dst", "size", "weight", "cap"))
        )
        self.capacity = live_capacity(network)
        self.routes = routes = router(network, flows)
        self.usage = Usage.of(routes)
        self.flow_of = np.asarray(routes.flow_of)
        self.rows_of = grouped(self.flow_of, flows.n_flows)
        self.weight, self.cap = (np.asarray(x, np.float64) for x in (routes.weight, routes.cap))
        self.level, self.stopper = filled(self.capacity, routes)
        self.rate = self.weight * self.level
        self.load = self.usage.load(self.rate)
        self.top = self.usage.top(self.level)
        self.score = objective.score(self.per_flow(self.rate), None, ())
        self.stopped_by = grouped(
            np.where(self.stopper < 0, network.n_links, self.stopper), network.n_links + 1
        )

    def per_flow(self, rate: Floats) -> Float[np.ndarray, " flows"]:
        """Return the rates of flows from those of their rows."""
        if len(rate) == self.flows.n_flows:
            return rate
        return np.bincount(self.flow_of, rate, self.flows.n_flows)

    def some_flows(self, chosen: Ids) -> Flows:
        """Return some of the flows."""
        f = self.flows
        return Flows(f.src[chosen], f.dst[chosen], f.size[chosen], f.weight[chosen], f.cap[chosen])


def filled(
    capacity: Float[np.ndarray, " links"], routes: Routes
) -> tuple[Float[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
    """Return the max-min level of every row, in float64, and the link that stopped it or -1."""
    weight, cap = (np.asarray(x, np.float64) for x in (routes.weight, routes.cap))
    level, stopper, _ = _compiled.fill(capacity, routes, weight, cap)
    if np.isinf(level).any():
        message = (
            "At least one flow crosses no link and has no cap, so its fair rate is infinite and a "
            "failure means nothing to it. Give it a finite `cap`, or leave it out."
        )
        raise UnsolvedError(message)
    return level, stopper


def routed_or_lost(
    router: Router, network: Network, flows: Flows
) -> tuple[Routes | None, Ids, Ids]:
    """Return (routes of the flows that are left, which these are, which are lost)."""
    left, lost = np.arange(flows.n_flows), []
    while len(left):
        f = flows
        some = Flows(f.src[left], f.dst[left], f.size[left], f.weight[left], f.cap[left])
        try:
            return router(network, some), left, np.sort(np.array(lost, np.int64))
        except UnreachableError as error:
            gone = np.array(error.flows, np.int64)
            lost += left[gone].tolist()
            left = np.delete(left, gone)
    return None, left, np.sort(np.array(lost, np.int64))
