"""`linearize`: hundreds of small what-ifs around one solution, each exact and each told how."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric._errors import ModelError, nearest, raise_faults, some
from fabric._typing import PerFlow
from fabric.collectives import effective
from fabric.network import Network, Routes, is_traced, whole_or_fault
from fabric.optimize._changes import Change, Found, Items, share_of
from fabric.optimize._faults import or_fault
from fabric.optimize._jobs import Job
from fabric.optimize._nearby import Aim, Exchange, StepAim, with_links_for_caps
from fabric.optimize._what_if_study import Study
from fabric.optimize._what_ifs import WhatIfs
from fabric.solvers import BY, OBJECTIVES, Completion, RateSolution, max_min_rates
from fabric.solvers._certify import live_capacity
from fabric.solvers._sensitivities import link_groups
from fabric.training import parameters_of_stage, step
from fabric.training._compute import compute_times
from fabric.training._insights import StepTime
from fabric.training._phases import Servers
from fabric.training._step import placed_on

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
    linear in capacities and caps, so that each direction of these is exact up to the next change of
    bottleneck structure: that reach is worked out once per direction, for changes of any size along
    it. A change within it is read off the line; one beyond it is solved again, all of these in a
    batch on all cores. Every row says which. Weights enter rates as quotients, so that their
    changes are always solved again.

    Routes and what else a job does stay as they are, even where a rule would split by capacity
    anew. Taking all capacity of a link stops the flows that are routed over it; to route around it,
    fail it.

    Args:
        network: The links, with labels unless changes are of "link", "weight" or "cap".
        load: `Routes`, or a `Job` whose step runs on the network.
        changes: What to change, each by itself. Or "tier", "class", "node", "cable" or "link": each
            of these by `by`, up and down.
        objective: With `Routes`: "slowest" (default), "mean", "total", a `Completion` or a
            function that takes a `RateSolution` and returns one number from its `rates`, by
            `jax.numpy`. With a `Job` the seconds of its step.
        by: How far, with a grouping: "10%" or 0.1, above 0 and up to 1.
        weights: (flows,), as given to the solve. Default: those that `routes` carries.
        caps: (flows,), byte/s. Default: those that `routes` carries.
        most: Rows at most of nodes, cables or links, 2 or more: those of largest first-order
            effect.

    Returns:
        A `WhatIfs`: a row per change. Rows of a grouping stand by the size of what
        changes, largest first.

    Raises:
        ModelError: If something to change is not known, flows without a cap should get a share of
            it, or the objective is 0 or no number; all faults at once.
        InfeasibleError: As `step`, with a `Job`.
        NotImplementedError: Inside a JAX transformation, or if a function reads more than `rates`.

    Precision: float64, whatever the type of the capacities; a function of one's own in the type of
        the rates, a step time in the default type of JAX.
    Derivatives: None; on the host.
    Cost: Two solves, one pass backwards, then about one call of `max_min_rates` per direction that
        has a full link, and a compiled solve per change beyond its reach. "slowest" of flows of one
        weight has no need of the former.

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
    share = _checked(network, load, changes, objective, by, most, weights, caps)
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
    each = zip(slopes, exchanges, strict=True)
    effect = sum((s.capacity * one.capacity for s, one in each), np.zeros(network.n_links))
    of_weight = slopes[0].weight * exchanges[0].weight if exchanges else np.zeros(0)
    left_out: list[str] = []
    if isinstance(changes, str):
        study = Study(exchanges, aim, base, effect, of_weight)
        tight = None if changes in _ALWAYS else study.tight(share)
        asked, found, left_out = _each(network, changes, share, tight, effect, most)
    else:
        asked = list(changes)
        found = Found(network, load if isinstance(load, Routes) else None).all(asked)
        if any(change.what == "cap" for change in asked):
            (one,), (slope,) = exchanges, slopes
            capped = np.flatnonzero(np.isfinite(one.cap))
            found = _links_of_caps(asked, found, load, capped, network.n_links)
            effect = np.append(effect, slope.cap[capped] * one.cap[capped])
            exchanges = [with_links_for_caps(one)]
        study = Study(exchanges, aim, base, effect, of_weight)
    rows = study.rows(asked, found)
    if isinstance(changes, str):
        rows.sort(key=lambda row: -abs(round(row.share, 9)))
    return WhatIfs(
        objective=aim.name, value=base, rows=tuple(rows), left_out=tuple(left_out),
        solves=study.solves, tangents=study.tangents, seconds=time.perf_counter() - begun,
    )  # fmt: skip


def _checked(
    network: object, load: object, changes: Sequence[Change] | str, objective: object,
    by: str | float, most: int, weights: object, caps: object,
) -> float:  # fmt: skip
    """Return the share of a grouping, all faults of the arguments raised at once."""
    if is_traced(network, load, weights, caps):
        message = (
            "`linearize` works on the host and makes a table; inside a JAX transformation use "
            "`one_sided`, or `jax.grad` through `max_min_rates`."
        )
        raise NotImplementedError(message)
    faults: list[str] = []
    share = or_fault(faults, 1.0, share_of, by)
    whole_or_fault("most", most, faults, 2)
    for name, given, kind, what in (
        ("network", network, Network, "a `Network`"),
        ("load", load, Routes | Job, "`Routes` or a `Job`"),
    ):
        if not isinstance(given, kind):
            faults.append(f"`linearize({name}=...)` needs {what}, but got {type(given).__name__}.")
    if isinstance(load, Job) and not (objective is None and weights is None and caps is None):
        faults.append("With a `Job` the objective is the time of its step: leave out the others.")
    faults += _objective_faults(objective, load)
    if isinstance(changes, str):
        if changes not in BY:
            faults.append(
                f"`linearize(changes='{changes}')` is no grouping. {nearest(changes, BY)}"
            )
        if not 0 < share <= 1:
            faults.append(f"`by` needs more than 0 and up to 100 %, but got {by!r}.")
    elif not isinstance(changes, Sequence):
        faults.append(f"`changes` needs a list of `Change`, but got {type(changes).__name__}.")
    else:
        odd = [type(one).__name__ for one in changes if not isinstance(one, Change)]
        if odd or not len(changes):
            what = f"got {odd[0]}" if odd else "there is none"
            faults.append(f"`changes` needs `Change('tier', 'leaf-spine', '+10%')`, but {what}.")
    raise_faults(faults)
    return share


def _objective_faults(objective: object, load: object) -> list[str]:
    """Return what is wrong with an objective."""
    if isinstance(objective, str):
        if objective in OBJECTIVES:
            return []
        return [
            f"`linearize(objective='{objective}')` is no objective. "
            f"{nearest(objective, OBJECTIVES)} A function of a solution is one too."
        ]
    if isinstance(objective, Completion):
        return _size_faults(np.asarray(objective.size), load) if isinstance(load, Routes) else []
    if objective is None or callable(objective):
        return []
    return [
        f"`linearize(objective=...)` needs a name, a `Completion` or a function, but got "
        f"{type(objective).__name__}."
    ]


def _size_faults(size: np.ndarray, load: Routes) -> list[str]:
    if size.shape != (load.n_pairs,):
        return [
            f"`Completion(size)` has shape {size.shape}, but the routes have {load.n_pairs:,} "
            f"flows: give one size per flow."
        ]
    bad = np.flatnonzero(~(np.isfinite(size) & (size >= 0))).tolist()
    return [f"`Completion(size)` needs bytes of 0 or more; flows {some(bad)} differ."] * bool(bad)


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
    ranks, _ = placed_on(network, layout, job.placement)
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
    groups, left_out = link_groups(network, grouping), []
    if tight is not None:
        kept = [group for group in groups if tight[group.links].any()]
        if idle := len(groups) - len(kept):
            left_out.append(
                f"{idle:,} of {len(groups):,} {grouping}s have room for that: neither more nor "
                f"less of one changes anything."
            )
        if len(kept) > (limit := most // 2):
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


def _links_of_caps(
    asked: Sequence[Change], found: Sequence[Items], load: Routes | Job,
    capped: Int[np.ndarray, " rows"], n_links: int,
) -> list[Items]:  # fmt: skip
    """Return the links or rows of each change, for caps the links that stand for them.

    Raises:
        ModelError: If a share is asked for of a cap that is not there.
    """
    assert isinstance(load, Routes)
    link_of = np.full(load.n_flows, -1)
    link_of[capped] = n_links + np.arange(len(capped))
    links = [
        link_of[items] if change.what == "cap" else items
        for change, items in zip(asked, found, strict=True)
    ]
    flow_of = np.asarray(load.flow_of)
    lost = {
        int(flow) for items, at in zip(found, links, strict=True) for flow in flow_of[items[at < 0]]
    }
    if lost:
        message = (
            f"Flows {some(sorted(lost))} have no cap, so a share of it means nothing. Give `caps`, "
            f"or change `weight`."
        )
        raise ModelError(message)
    return links
