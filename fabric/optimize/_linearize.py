"""`linearize`: hundreds of small what-ifs around one solution, each exact and each told how."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from fabric._errors import ModelError, nearest, raise_faults, some
from fabric._typing import PerFlow
from fabric.collectives import effective
from fabric.network import Network, Routes, whole_or_fault
from fabric.optimize._changes import Change, Found, Items, share_of
from fabric.optimize._jobs import Job
from fabric.optimize._nearby import Aim, Exchange, StepAim
from fabric.optimize._what_if_study import Study
from fabric.optimize._what_ifs import WhatIfs
from fabric.solvers import BY, OBJECTIVES, Completion, RateSolution, max_min_rates
from fabric.solvers._certify import live_capacity
from fabric.solvers._sensitivities import _groups
from fabric.training import parameters_of_stage, step
from fabric.training._compute import compute_times
from fabric.training._insights import StepTime
from fabric.training._phases import Servers
from fabric.training._step import _placed

Objective = str | Completion | Callable[[RateSolution], Any]

_ALWAYS = ("tier", "class")


def linearize(
    network: Network,
    load: Routes | Job,
    changes: Sequence[Change] | str = "tier",
    objective: Objective | None = None,
    *,
    by: str | float = 0.01,
    weights: PerFlow | None = None,
    caps: PerFlow | None = None,
    most: int = 500,
) -> WhatIfs:
    """Return what many small changes do to an objective, from one solve and one pass backwards.

    One reverse pass gives the first-order effect of every change at once. Rates are piecewise
    linear in capacities, so that each direction of capacity is exact up to the next change of
    bottleneck structure: that reach is worked out once per direction, for changes of any size along
    it. A change within it is read off the line; one beyond it is solved again, all of these in a
    batch on all cores. Every row says which. Weights enter rates as quotients and caps end at the
    flow itself, so that their changes are solved again unless nothing moves.

    Routes and what else a job does stay as they are. Taking all capacity of a link stops the flows
    that are routed over it; to route around it, fail it.

    Args:
        network: The links, with labels unless changes are of "link", "weight" or "cap".
        load: `Routes`, or a `Job` whose step runs on the network.
        changes: What to change, each by itself. Or "tier", "class", "node", "cable" or "link": each
            of these by `by`, up and down.
        objective: With `Routes`: "slowest" (default), "mean", "total", a `Completion` or a
            function of a `RateSolution`. With a `Job` the seconds of its step.
        by: How far, with a grouping: "10%" or 0.1, above 0 and up to 1.
        weights: (flows,), as given to the solve. Default: those that `routes` carries.
        caps: (flows,), byte/s. Default: those that `routes` carries.
        most: Rows at most of nodes, cables or links: those of largest first-order effect.

    Returns:
        A `WhatIfs`: a row per change. Rows of a grouping stand by the size of what
        changes, largest first.

    Raises:
        ModelError: If something to change is not known, flows without a cap should get a share of
            it, or the objective is 0 or no number; all faults at once.
        InfeasibleError: As `step`, with a `Job`.

    Precision: float64, whatever the type of the capacities; a step time in the default type of JAX.
    Cost: Two solves, one pass backwards, then about two solves per direction that has a full link,
        and one per change beyond its reach. "slowest" of flows of one weight has no need of the
        former.

    Examples:
        Uplinks hold the flows until host ports do, a quarter further on:

        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2,
        ...     capacity="10GB/s", uplink_capacity="16GB/s")
        >>> routes = fb.routing.ecmp(net, fb.traffic.ring(net.hosts[[0, 2, 1, 3]]))
        >>> changes = [Change("tier", "leaf-spine", "+10%"), Change("tier", "leaf-spine", "+50%")]
        >>> print(linearize(net, routes, changes))
        slowest 8e+09
        change                first order       exact  how        exact within
        tier leaf-spine +10 %       +10 %       +10 %  linear             25 %
        tier leaf-spine +50 %       +50 %       +25 %  re-solved          25 %

    References:
        The pass backwards: `docs/derivatives.md`.
    """
    begun = time.perf_counter()
    share = _checked(load, changes, objective, by, most, weights, caps)
    exchanges, aim = _posed(network, load, objective, weights, caps)
    rates = [one.rate for one in exchanges]
    base = aim.value(rates)
    if base == 0 or not np.isfinite(base):
        message = (
            f"The objective '{aim.name}' of `linearize` is {base:g}, so percent of it mean "
            f"nothing. Use another, such as 'mean'."
        )
        raise ModelError(message)
    pairs = zip(exchanges, aim.seeds(rates), strict=True)
    slopes = [one.slopes(seed) for one, seed in pairs]
    effect = np.sum([s.capacity * one.capacity for s, one in zip(slopes, exchanges, strict=True)],
                    axis=0) if exchanges else np.zeros(network.n_links)  # fmt: skip
    study = Study(exchanges, aim, base, effect, slopes)
    left_out: list[str] = []
    if isinstance(changes, str):
        tight = None if changes in _ALWAYS or not exchanges else study.tight(share)
        asked, found, left_out = _each(network, changes, share, tight, effect, most)
    else:
        asked = list(changes)
        n_flows = load.n_flows if isinstance(load, Routes) else 0
        found = Found(network, n_flows).all(asked)
        _have_caps(exchanges, asked, found)
    rows = study.rows(asked, found)
    if isinstance(changes, str):
        rows.sort(key=lambda row: -abs(round(row.share, 9)))
    return WhatIfs(
        objective=aim.name, value=base, rows=tuple(rows), left_out=tuple(left_out),
        solves=study.solves, seconds=time.perf_counter() - begun,
    )  # fmt: skip


def _checked(
    load: object, changes: Sequence[Change] | str, objective: object, by: str | float, most: int,
    weights: object, caps: object,
) -> float:  # fmt: skip
    """Return the share of a grouping, all faults of the arguments raised at once."""
    faults: list[str] = []
    share = share_of(by)
    whole_or_fault("most", most, faults)
    if not isinstance(load, Routes | Job):
        faults.append(
            f"`linearize(network, load)` needs `Routes` or a `Job`, but got {type(load).__name__}."
        )
    if isinstance(load, Job) and not (objective is None and weights is None and caps is None):
        faults.append("With a `Job` the objective is the time of its step: leave out the others.")
    if isinstance(objective, str) and objective not in OBJECTIVES:
        faults.append(
            f"`linearize(objective='{objective}')` is no objective. "
            f"{nearest(objective, OBJECTIVES)} A function of a solution is one too."
        )
    if isinstance(changes, str) and changes not in BY:
        faults.append(f"`linearize(changes='{changes}')` is no grouping. {nearest(changes, BY)}")
    if isinstance(changes, str) and not 0 < share <= 1:
        faults.append(f"`by` needs more than 0 and up to 100 %, but got {by!r}.")
    if not isinstance(changes, str):
        odd = [type(one).__name__ for one in changes if not isinstance(one, Change)]
        if odd or not len(changes):
            what = f"got {odd[0]}" if odd else "there is none"
            faults.append(f"`changes` needs `Change('tier', 'leaf-spine', '+10%')`, but {what}.")
    raise_faults(faults)
    return share


def _posed(
    network: Network, load: Routes | Job, objective: Objective | None, weights: PerFlow | None,
    caps: PerFlow | None,
) -> tuple[list[Exchange], Aim | StepAim]:  # fmt: skip
    """Return what is solved, and the objective of it."""
    if isinstance(load, Job):
        return _step_of(network, load)
    solution = max_min_rates(network, load, weights=weights, caps=caps)
    plain = lambda values: np.asarray(values, np.float64)
    weight = plain(load.weight if weights is None else weights)
    cap = plain(load.cap if caps is None else caps)
    exchange = Exchange(load, solution, live_capacity(network), weight, cap)
    return [exchange], Aim("slowest" if objective is None else objective, exchange)


def _step_of(network: Network, job: Job) -> tuple[list[Exchange], StepAim]:
    """Return the exchanges of a step, and its time."""
    model, layout = job.model, job.layout
    report = step(
        network, model, layout, job.placement, job.routing, job.profile, job.seed, gpu=job.gpu,
        by=None,
    )  # fmt: skip
    profile = report.profile
    ranks, _ = _placed(network, layout, job.placement)
    heaviest = float(max(parameters_of_stage(model, layout, stage) for stage in range(layout.pp)))
    total = StepTime(
        compute_times(model, layout, report.gpu, profile, heaviest), layout, profile, report.phases,
        model.layers, heaviest, Servers.in_(network).count(ranks),
    )  # fmt: skip
    share = profile.efficiency
    reached = live_capacity(effective(network, nvlink=share.nvlink.value, nic=share.nic.value))
    plain = lambda values: np.asarray(values, np.float64)
    exchanges = [
        Exchange(p.routes, p.solution, reached, plain(p.routes.weight), plain(p.routes.cap))
        for p in report.phases
    ]
    of = zip(report.phases, exchanges, strict=True)
    return exchanges, StepAim(total, [Aim(Completion(p.traffic.size), one) for p, one in of])


def _each(
    network: Network, grouping: str, share: float, tight: Bool[np.ndarray, " links"] | None,
    effect: Float[np.ndarray, " links"], most: int,
) -> tuple[list[Change], list[Items], list[str]]:  # fmt: skip
    """Return more and less of every group that can matter, their links, and what is left out.

    Groups without a tight link do not matter; None: all do.
    """
    groups, left_out = _groups(network, grouping), []
    if tight is not None:
        kept = [group for group in groups if tight[group.links].any()]
        if idle := len(groups) - len(kept):
            left_out.append(
                f"{idle:,} of {len(groups):,} {grouping}s have room for that: neither more nor "
                f"less of one changes anything."
            )
        if len(kept) > (limit := max(most // 2, 1)):
            worth = lambda group: -abs(float(effect[group.links].sum()))
            left_out.append(
                f"{len(kept) - limit:,} of {len(kept):,} {grouping}s with a tight link are left "
                f"out: those of least effect to first order. Raise `most`, or group by tier."
            )
            kept = sorted(kept, key=worth)[:limit]
        groups = kept
    both = [(group, sign * share) for group in groups for sign in (1, -1)]
    asked = [Change(grouping, group.key, by) for group, by in both]
    return asked, [group.links for group, _ in both], left_out


def _have_caps(
    exchanges: Sequence[Exchange], asked: Sequence[Change], found: Sequence[Items]
) -> None:
    """Raise if a share is asked for of a cap that is not there."""
    if not exchanges:
        return
    free = ~np.isfinite(exchanges[0].cap)
    lost = {
        int(flow)
        for change, items in zip(asked, found, strict=True)
        if change.what == "cap"
        for flow in items[free[items]]
    }
    if lost:
        message = (
            f"Flows {some(sorted(lost))} have no cap, so a share of it means nothing. Give `caps`, "
            f"or change `weight`."
        )
        raise ModelError(message)
