"""`routing_weights`: how much of the traffic of every pair goes over which of its paths."""

import os
import time
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Float

from fabric._errors import ModelError, nearest, some
from fabric._typing import AnyArray
from fabric.network import Network, whole_or_fault
from fabric.optimize._aim import OBJECTIVES, OVERS, Aim, Over
from fabric.optimize._certificate import Limit
from fabric.optimize._demands import Demand, Demands, demands, numbers
from fabric.optimize._faults import or_fault, share_or_fault
from fabric.optimize._group_tables import PathTables
from fabric.optimize._kept import checkpoint_of
from fabric.optimize._path_sets import PathSet, number_of_paths, path_set
from fabric.optimize._routing_report import RoutingWeights
from fabric.optimize._split_programme import is_small, solved
from fabric.optimize._split_search import Found, kind_of, searched
from fabric.runs import History, gap as gap_of


def routing_weights(
    network: Network,
    demand: Demand,
    *,
    paths: str | int = "shortest",
    objective: str = "utilisation",
    over: str = "worst",
    counts: AnyArray | Sequence[float] | None = None,
    tail: float = 0.1,
    steps: int = 1000,
    tolerance: float = 1e-4,
    rate: float = 0.1,
    seed: int = 0,
    today: "RoutingWeights | PathTables | Float[np.ndarray, 'pairs width'] | None" = None,
    most_moved: float | None = None,
    prove: bool = True,
    control: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> RoutingWeights:
    """Return splits of the traffic over paths, with a bound that no splits can beat.

    Splits are a softmax over the paths of every pair of switches; Adam follows the gradient of the
    norm (sum_e u_e^P)^(1/P) of link utilisations, whose power grows from 3 to 2,000. Its scale does
    not matter, and equal splits are where it begins. Every step gives prices of the links and with
    them a bound; the search stops when the gap is small enough.

    Args:
        network: With labels. Parallel links count as one, and share by capacity.
        demand: `Flows` with sizes, or weights for the objective "rate"; several `Flows`, one for
            each phase of a step or round of a collective; or (hosts, hosts) or (matrices, hosts,
            hosts), byte/s or bytes. A phase counts as a matrix.
        paths: "shortest": all of least routing cost. "transit": the direct link and every way over
            one more node, as on meshes of blocks. A number: that many loop-free ones.
        objective: "utilisation": the largest load over capacity, to be small; with amounts in
            bytes it is the seconds that a phase takes at least. "rate": the smallest exact max-min
            rate over weight, to be large. "time": the largest size over exact rate, to be small.
        over: How several matrices count: "worst"; "sum", the time of phases one after another;
            "mean"; or "cvar", the mean of the worst share `tail`.
        counts: (matrices,), how often each of them runs, for all but "worst". Default: once.
        tail: From 0 to 1, of "cvar".
        steps: Steps at most.
        tolerance: The gap at which to stop, from 0 to below 1.
        rate: Of Adam at the beginning; it falls to 1 % as a cosine.
        seed: Decides between paths of equal cost where `paths` is a number, and draws the control.
        today: Splits or tables to begin with, of the same pairs and paths. Default: equal ones.
        most_moved: Share of all traffic that may leave its path of today, from 0 to 1; needs
            `today`. The bound then holds under this limit.
        prove: Whether to solve the linear programme by HiGHS where the search ends with too large a
            gap and the problem is small: its splits and prices count too.
        control: Whether to spend as many evaluations on random moves besides, to compare with.
        checkpoint: A file that keeps the state, written every half minute. If it is there, the
            search goes on from it, and ends as if it had never been stopped.

    Returns:
        A `RoutingWeights`.

    Raises:
        ModelError: If an option is out of range or demand does not fit the network; all faults at
            once.
        InfeasibleError: If a destination cannot be reached, or memory does not suffice.

    Precision: The search runs in the type of `network.capacity`; utilisation and bound of the
        result are computed in float64, exact rates as `max_min_rates` does.
    Cost: Per step three passes over the hops of all paths, and for each matrix. For "rate" and
        "time" two exact solves in their place.

    Examples:
        Half of the links to one of two spines is gone, so that it should get a third:

        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=2)
        >>> net = net.degraded(nodes=["spine1"], factor=0.5)
        >>> found = routing_weights(net, fb.Flows(net.hosts[:2], net.hosts[2:], size=50e9))
        >>> round(found.before, 3), round(found.objective, 3), found.certified
        (2.0, 1.333, True)
        >>> found.splits.round(2).tolist()
        [[0.67, 0.33]]

    References:
        N. Young, Randomized Rounding without Solving the Linear Program, SODA 1995 (prices of
        links as certificates). A. Singh et al., Jupiter Evolving, SIGCOMM 2022 (splits over direct
        and one-transit paths of a mesh).
    """
    begun_at = time.perf_counter()
    found, each = _checked(
        network, demand, paths, objective, over, counts, tail, steps, tolerance, rate, seed, today,
        most_moved,
    )  # fmt: skip
    ways = path_set(network, found.flows, paths, seed)
    aim = Aim(objective, Over(over, float(tail), each), network, ways, found, paths)
    now = _today(today, ways)
    limit = None
    if most_moved is not None:
        mass = aim.traffic @ aim.share
        limit = Limit(now, mass / max(mass.sum(), 1e-300), float(most_moved))
    # 4 and 4.0 are the same option.
    reals = [float(x) for x in (tail, tolerance, rate, -1 if limit is None else limit.most)]
    kept = checkpoint_of(
        checkpoint, "routing_weights", network, found.flows, found.amounts, now, kind_of(aim).name,
        paths if isinstance(paths, str) else int(paths), objective, over, each, reals, int(steps),
        int(seed),
    )  # fmt: skip
    done = searched(aim, now, limit, int(steps), float(tolerance), float(rate), kept)
    return _report(aim, done, now, limit, float(tolerance), int(seed), prove, control, begun_at)


def _checked(
    network: Network, demand: Demand, paths: object, objective: str, over: str, counts: object,
    tail: object, steps: object, tolerance: object, rate: object, seed: object, today: object,
    most_moved: object,
) -> tuple[Demands, Float[np.ndarray, " matrices"]]:  # fmt: skip
    """Return the demand and how often each matrix runs, or raise one error with all faults."""
    faults: list[str] = []
    for name, value, known in (("objective", objective, OBJECTIVES), ("over", over, OVERS)):
        if value not in known:
            hint = nearest(str(value), known)
            faults.append(f"`routing_weights({name}={value!r})` is not known. {hint}")
    or_fault(faults, 0, number_of_paths, paths)
    of = objective if objective in OBJECTIVES else OBJECTIVES[0]
    found = or_fault(faults, None, demands, network, demand, of)
    whole_or_fault("steps", steps, faults, 1, 10**9)
    whole_or_fault("seed", seed, faults, 0, 2**63 - 1)
    if not _within(tail, above=0, most=1):
        faults.append(f"`tail` needs a share above 0 and up to 1, but got {tail!r}.")
    if most_moved is not None and not (_within(most_moved, most=1) or most_moved == 0):
        faults.append(f"`most_moved` needs a share from 0 to 1, but got {most_moved!r}.")
    share_or_fault("tolerance", tolerance, faults)
    if not _within(rate):
        faults.append(f"`rate` needs a number more than 0, but got {rate!r}.")
    if most_moved is not None and today is None:
        faults.append("`most_moved` limits what leaves the paths of `today`: give `today=` too.")
    if found is not None:
        each = _counts(found, objective, over, counts, faults)
        if not faults:
            return found, each
    raise ModelError("\n".join(faults))


def _counts(
    demand: Demands, objective: str, over: str, counts: Any, faults: list[str]
) -> Float[np.ndarray, " matrices"]:
    """Return how often each matrix runs, and add what is wrong with that."""
    n = demand.amounts.shape[1]
    if objective == "rate" and n > 1:
        faults.append(
            f"`objective='rate'` takes one matrix, but got {n:,}. Give one, or take 'utilisation' "
            f"or 'time', which take several."
        )
    each = np.ones(n)
    if counts is not None:
        form = f"a number for each of {n:,} matrices"
        each = or_fault(faults, each, numbers, "counts", counts, form)
        if over == "worst":
            faults.append("`counts` do not matter for `over='worst'`. Give `over='sum'` too.")
        if each.shape != (n,):
            faults.append(
                f"`counts` needs a number for each of {n:,} matrices, but has shape {each.shape}."
            )
        elif len(bad := np.flatnonzero(~((each >= 0) & (each < np.inf)))):
            faults.append(
                f"`counts` needs finite numbers of 0 or more, but {len(bad):,} of {n:,} are not: "
                f"those of matrices {some(bad)}."
            )
        elif not demand.amounts[:, each > 0].any():
            faults.append("`counts` are 0 for every matrix with traffic: nothing is to be routed.")
    return each


def _within(value: Any, above: float = 0, most: float = np.inf) -> bool:
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    return above < float(value) <= most and float(value) < np.inf


def _today(today: Any, paths: PathSet) -> Float[np.ndarray, "pairs width"]:
    """Return the splits to begin with, each row 1 in all."""
    if today is None:
        return paths.valid / paths.valid.sum(axis=1, keepdims=True)
    shape, hint = paths.valid.shape, "Take the `splits` of a result for the same pairs and `paths`."
    if isinstance(today, RoutingWeights | PathTables):
        if not today.paths.same(paths):
            message = (
                f"`today` needs splits of the same pairs and paths, {shape[0]:,} pairs over "
                f"{int(paths.valid.sum()):,} paths, but has {today.paths.n_pairs:,} over "
                f"{int(today.paths.valid.sum()):,}, or others of them. {hint}"
            )
            raise ModelError(message)
        given = today.splits
    else:
        given = numbers("today", today, f"a share for each of {shape[1]:,} ways of each pair")
    good = given.shape == shape and bool(((given >= 0) & (given < np.inf)).all())
    if not good or not (np.where(paths.valid, given, 0).sum(axis=1) > 0).all():
        message = (
            f"`today` needs a finite share of 0 or more for each of {shape[1]:,} ways of "
            f"{shape[0]:,} pairs, some of every pair on a path that is there, but has shape "
            f"{given.shape}. {hint}"
        )
        raise ModelError(message)
    given = np.where(paths.valid, given, 0)
    return given / given.sum(axis=1, keepdims=True)


def _report(
    aim: Aim,
    found: Found,
    now: Float[np.ndarray, "pairs width"],
    limit: Limit | None,
    tolerance: float,
    seed: int,
    prove: bool,
    control: bool,
    begun_at: float,
) -> RoutingWeights:
    """Return the result, scored again in float64."""
    tried = [(aim.score(splits), splits) for splits in map(aim.whole, [now, *found.tried])]
    before, bound = tried[0][0], aim.bound(found.prices, limit)
    best = lambda: min(tried, key=lambda each: each[0])
    programme = prove and best()[0] > bound * (1 + tolerance) and is_small(aim)
    if programme and (exact := solved(aim, limit)) is not None:
        tried.append((aim.score(exact.splits), exact.splits))
        bound = max(bound, aim.bound(exact.prices, limit))
    objective, splits = best()
    gap = gap_of(objective, bound)
    shown = aim.shown
    told = [(i + 1, shown(float(a)), shown(float(b))) for i, (a, b) in enumerate(found.history)]
    seconds = time.perf_counter() - begun_at
    evaluations = found.steps + len(tried)
    beside = None
    if control:
        from fabric.optimize._control import random_moves

        beside = shown(random_moves(aim, now, limit, evaluations, seed))
    again = 0 if aim.name == "utilisation" else len(tried) * aim.amounts.shape[1]
    return RoutingWeights(
        objective=shown(objective), bound=shown(bound), gap=gap,
        certified=gap <= tolerance + 1e-12, before=shown(before), splits=splits, paths=aim.paths,
        flows=aim.flows, amounts=aim.amounts, steps=found.steps, solves=found.solves + again,
        evaluations=evaluations, seconds=seconds, seed=seed, history=History.of(told),
        control=beside, programme=programme, aim=aim,
    )  # fmt: skip
