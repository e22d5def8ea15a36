"""`routing_weights`: how much of the traffic of every pair goes over which of its paths."""

import functools
import os
import time
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from fabric._errors import ModelError, nearest, raise_faults
from fabric.network import Flows, Network, Routes, canonical, whole_or_fault
from fabric.optimize import _split_descent as descent
from fabric.optimize._aim import OBJECTIVES, OVERS, Aim
from fabric.optimize._certificate import Limit
from fabric.optimize._demands import Demand, Demands, demands
from fabric.optimize._group_tables import PathTables, path_tables
from fabric.optimize._hop_tables import hop_tables
from fabric.optimize._path_sets import PathSet, path_set
from fabric.optimize._split_routes import template
from fabric.routing import GroupTables
from fabric.runs import Checkpoint, History, Progress, fingerprint, packed, unpacked

_TURNS = 25
_SMALL = 1e-3  # share that a path without traffic today begins with, so that it can grow


@dataclass(frozen=True, eq=False)
class RoutingWeights:
    """Splits over paths, with what proves how good they are.

    Attributes:
        objective: What the splits reach, computed exactly in float64.
        bound: What no splits over these paths can beat.
        gap: How far apart the two are, relative to the smaller one.
        certified: Whether the gap is within the tolerance.
        before: The objective of today's splits, or of equal ones.
        splits: (pairs, width), share of a pair's traffic on each of its paths.
        paths: The pairs and their paths.
        flows: What was routed; `amounts` (flows, matrices) is how much of it.
        steps: Steps taken. `evaluations`: splits that were scored. `solves`: exact max-min solves.
        seconds: Wall time, compilation included.
        seed: As given.
        history: Objective and bound after every step.
        control: The objective that random moves reach with as many evaluations, if asked for.
    """

    objective: float
    bound: float
    gap: float
    certified: bool
    before: float
    splits: Float[np.ndarray, "pairs width"] = field(repr=False)
    paths: PathSet = field(repr=False)
    flows: Flows = field(repr=False)
    amounts: Float[np.ndarray, "flows matrices"] = field(repr=False)
    steps: int
    evaluations: int
    solves: int
    seconds: float
    seed: int
    history: History = field(repr=False)
    control: float | None
    aim: Aim = field(repr=False)

    def routes(self, flows: Flows | None = None) -> Routes:
        """Return routes under these splits.

        Args:
            flows: Between pairs of switches that were routed. Default: those that were.

        Raises:
            ModelError: If there are no splits for some flows.
        """
        paths = self.paths if flows is None else self.paths.of(flows)
        found = template(paths, self.flows if flows is None else flows).filled(self.splits)
        return found.with_rule(name="routing_weights", objective=self.aim.name, gap=self.gap)

    def tables(self, entries: int = 64, per_switch: int | None = None) -> PathTables:
        """Return whole weights for switches, their loss measured.

        Args:
            entries: Most entries of a group; the weights of a group add up to at most this.
            per_switch: Most entries of all groups of a switch. Default: no limit.

        Raises:
            InfeasibleError: If a switch has more groups than entries.
        """
        return path_tables(self.paths, self.splits, self.aim, entries, per_switch)

    def hop_tables(self, entries: int = 64, per_switch: int | None = None) -> GroupTables:
        """Return whole weights of cables per switch and destination, for `routing.weighted`.

        At every switch the traffic to a destination is taken together, wherever it comes from,
        which changes no load for these demands. Weights are rounded by largest remainder.

        Args:
            entries: Most entries of a group.
            per_switch: Most entries of a switch, which `routing.weighted` checks.

        Raises:
            ModelError: If paths are not the shortest ones: over others, traffic to a destination
                may meet a switch from both sides.
        """
        if self.aim.ways != "shortest":
            message = (
                f"`hop_tables` needs `paths='shortest'`, but these are `paths={self.aim.ways!r}`. "
                f"Use `tables`, whose groups hold whole paths."
            )
            raise ModelError(message)
        demand = self.aim.demand.mean(axis=1)
        return hop_tables(self.paths, self.splits, demand, entries, per_switch)

    def as_dict(self) -> dict[str, Any]:
        """Return all but the arrays for JSON."""
        return {
            "objective": self.objective, "bound": self.bound, "gap": self.gap,
            "certified": self.certified, "before": self.before, "of": self.aim.name,
            "over": self.aim.over, "pairs": self.paths.n_pairs,
            "paths": int(self.paths.valid.sum()), "steps": self.steps,
            "evaluations": self.evaluations, "solves": self.solves, "seconds": self.seconds,
            "seed": self.seed, "control": self.control, "history": self.history.as_dict(),
        }  # fmt: skip

    def __str__(self) -> str:
        proved = "certified" if self.certified else "not certified"
        return (
            f"{self.aim.name} {self.objective:.6g} from {self.before:.6g}, bound {self.bound:.6g}, "
            f"gap {self.gap:.2e} ({proved}), {self.paths.n_pairs:,} pairs over "
            f"{int(self.paths.valid.sum()):,} paths, {self.steps:,} steps in {self.seconds:.1f} s"
        )


def routing_weights(
    network: Network,
    demand: Demand,
    *,
    paths: str | int = "shortest",
    objective: str = "utilisation",
    over: str = "worst",
    tail: float = 0.1,
    steps: int = 1000,
    tolerance: float = 1e-4,
    rate: float = 0.1,
    seed: int = 0,
    today: "RoutingWeights | Float[np.ndarray, 'pairs width'] | None" = None,
    most_moved: float | None = None,
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
        demand: `Flows` with sizes, or weights for the objective "rate"; or (hosts, hosts) or
            (matrices, hosts, hosts), byte/s.
        paths: "shortest": all of least routing cost. "transit": the direct link and every way over
            one more node, as on meshes of blocks. A number: that many loop-free ones.
        objective: "utilisation": the largest load over capacity, to be small; with amounts in
            bytes it is the seconds that a phase takes at least. "rate": the smallest exact max-min
            rate over weight, to be large. "time": the largest size over exact rate, to be small.
            A matrix per round of a collective, or per phase of a step, and `over="mean"` give
            its time, divided by the number of rounds.
        over: How several matrices count: "worst", "mean", or "cvar", the mean of the worst share
            `tail`.
        tail: From 0 to 1, of "cvar".
        steps: Steps at most.
        tolerance: The gap at which to stop.
        rate: Of Adam at the beginning; it falls to 1 % as a cosine.
        seed: Decides between paths of equal cost where `paths` is a number, and draws the control.
        today: Splits to begin with, of the same pairs and paths. Default: equal ones.
        most_moved: Share of all traffic that may leave its path of today, from 0 to 1; needs
            `today`. The bound then holds under this limit.
        control: Whether to spend as many evaluations on random moves besides, to compare with.
        checkpoint: A file that keeps the state, written every half minute. If it is there, the
            search goes on from it, and ends as if it had never been stopped.

    Returns:
        A `RoutingWeights`.

    Raises:
        ModelError: If an option is out of range or demand does not fit the network; all faults at
            once.
        InfeasibleError: If a destination cannot be reached, or memory does not suffice.

    Precision: The search runs in the type of `network.capacity`; objective and bound of the result
        are computed in float64.
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
    found = demands(network, demand, _known("objective", objective, OBJECTIVES))
    _check(objective, over, tail, steps, tolerance, rate, seed, today, most_moved, found)
    ways = path_set(network, found.flows, paths, seed)
    aim = Aim(objective, over, tail, network, ways, found, paths)
    now = _today(today, ways)
    limit = None
    if most_moved is not None:
        mass = aim.demand.sum(axis=1)
        limit = Limit(now, mass / max(mass.sum(), 1e-300), float(most_moved))
    kept = None
    if checkpoint is not None:
        options = (paths, objective, over, tail, steps, rate, seed, most_moved)
        kept = Checkpoint(
            checkpoint, fingerprint(network, found.flows, found.amounts, now, *options)
        )
    state, history, other = _search(aim, now, limit, steps, tolerance, rate, kept)
    seconds = time.perf_counter() - begun_at
    return _report(aim, state, history, now, other, limit, tolerance, seed, control, seconds)


def _known(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        hint = nearest(str(value), known)
        message = f"`routing_weights({name}={value!r})` is not known. {hint}"
        raise ModelError(message)
    return value


def _check(
    objective: str, over: str, tail: float, steps: int, tolerance: float, rate: float, seed: int,
    today: Any, most_moved: float | None, demand: Demands,
) -> None:  # fmt: skip
    """Raise one error with every option that is out of range."""
    _known("over", over, OVERS)
    faults: list[str] = []
    whole_or_fault("steps", steps, faults)
    whole_or_fault("seed", seed, faults, 0, 2**63 - 1)
    shares = {"tail": tail} | ({} if most_moved is None else {"most_moved": most_moved})
    for name, share in shares.items():
        if not (0 < share <= 1 or (name == "most_moved" and share == 0)):
            faults.append(f"`{name}` needs a share from 0 to 1, but got {share!r}.")
    for name, value in (("tolerance", tolerance), ("rate", rate)):
        if not 0 < value < float("inf"):
            faults.append(f"`{name}` needs a number more than 0, but got {value!r}.")
    if most_moved is not None and today is None:
        faults.append("`most_moved` limits what leaves the paths of `today`: give `today=` too.")
    n = demand.amounts.shape[1]
    if objective == "rate" and n > 1:
        faults.append(
            f"`objective='rate'` takes one matrix, but got {n:,}. Give one, or take 'utilisation' "
            f"or 'time', which take several."
        )
    raise_faults(faults)


def _today(today: Any, paths: PathSet) -> Float[np.ndarray, "pairs width"]:
    """Return the splits to begin with, each row 1 in all."""
    if today is None:
        return paths.valid / paths.valid.sum(axis=1, keepdims=True)
    given = np.asarray(today.splits if isinstance(today, RoutingWeights) else today, np.float64)
    wrong = given.shape != paths.valid.shape or bool((given < 0).any())
    if wrong or not (np.where(paths.valid, given, 0).sum(axis=1) > 0).all():
        message = (
            f"`today` needs a share of 0 or more for each of {paths.width:,} ways of "
            f"{paths.n_pairs:,} pairs, some of every pair on a path that is there, but has shape "
            f"{given.shape}. Take the `splits` of a result for the same network, flows and `paths`."
        )
        raise ModelError(message)
    given = np.where(paths.valid, given, 0)
    return given / given.sum(axis=1, keepdims=True)


def _search(
    aim: Aim,
    now: Float[np.ndarray, "pairs width"],
    limit: Limit | None,
    steps: int,
    tolerance: float,
    rate: float,
    kept: Checkpoint | None,
) -> tuple[descent.State, np.ndarray, np.ndarray | None]:
    """Return the last state, objective and bound after every step, and splits of least load."""
    kind = canonical(np.dtype(aim.network.capacity.dtype))
    problem, exact = _problem(aim, limit, kind), _exact(aim, kind)
    logits = np.log(np.maximum(now, _SMALL / aim.paths.width))
    state = descent.begun(problem, logits, rate, steps)
    state = state._replace(bound=jnp.asarray(aim.least(), kind))
    history = np.zeros((0, 2))
    if kept is not None and (saved := kept.load()) is not None:
        state = unpacked("state", saved, state)
        history = saved["history"]
    advance = functools.partial(
        descent.advance, rate=float(rate), steps=int(steps), turns=_TURNS, over=aim.over
    )
    share, tail = jnp.asarray(tolerance, kind), jnp.asarray(aim.tail, kind)
    relaxed = None
    if exact is not None:
        # Exact rates say where to go and not how far it is: prices come from the largest load.
        relaxed = state
        while int(relaxed.step) < steps and not _certified(relaxed, tolerance):
            relaxed, _ = advance(relaxed, problem, None, share, tail)
        if kept is None or not int(state.step):
            state = state._replace(bound=relaxed.bound, prices=relaxed.prices)
    with Progress(int(steps), what="steps") as progress:
        while aim.paths.n_pairs and int(state.step) < steps and not _certified(state, tolerance):
            state, told = advance(state, problem, exact, share, tail)
            history = np.concatenate([history, np.asarray(told)[: int(state.step) - len(history)]])
            best, bound = (aim.shown(float(v)) for v in (state.objective, state.bound))
            progress.update(int(state.step), best, bound)
            if kept is not None and kept.due:
                kept.save(packed("state", state) | {"history": history})
    if kept is not None:
        kept.save(packed("state", state) | {"history": history})
    return state, history, None if relaxed is None else np.asarray(relaxed.splits)


def _certified(state: descent.State, tolerance: float) -> bool:
    return float(state.objective) <= float(state.bound) * (1 + tolerance)


def _problem(aim: Aim, limit: Limit | None, kind: Any) -> descent.Problem:
    """Return the arrays of the search on the device."""
    rows, trunk = descent.crossings(aim.paths.hops, aim.paths.n_trunks)
    device = lambda values: jnp.asarray(values, kind)
    return descent.Problem(
        jnp.asarray(aim.paths.hops), jnp.asarray(rows), jnp.asarray(trunk),
        jnp.asarray(aim.paths.valid), device(aim.demand), device(aim.capacity), device(aim.base),
        None if limit is None else Limit(*(device(each) for each in limit)),
    )  # fmt: skip


def _exact(aim: Aim, kind: Any) -> descent.Exact | None:
    """Return what exact rates need, where the objective is one of them."""
    if aim.name == "utilisation":
        return None
    routes, row, share, of = aim.template
    return descent.Exact(
        aim.network, routes, jnp.asarray(row, jnp.int32), jnp.asarray(share, kind),
        jnp.asarray(of, jnp.int32), jnp.asarray(aim.amounts.T, kind), jnp.asarray(aim.caps.T, kind),
    )  # fmt: skip


def _report(
    aim: Aim,
    state: descent.State,
    history: np.ndarray,
    now: np.ndarray,
    other: np.ndarray | None,
    limit: Limit | None,
    tolerance: float,
    seed: int,
    control: bool,
    seconds: float,
) -> RoutingWeights:
    """Return the result, scored again in float64."""
    steps, tried = int(state.step), [state.splits, now, *([] if other is None else [other])]
    found = [(aim.score(splits), splits) for splits in map(aim.whole, tried)]
    objective, splits = min(found, key=lambda each: each[0])
    before = found[1][0]
    shown = aim.shown
    bound = aim.bound(np.asarray(state.prices, np.float64), limit)
    gap = objective / bound - 1
    told = [(i + 1, shown(float(a)), shown(float(b))) for i, (a, b) in enumerate(history)]
    beside = None
    if control:
        from fabric.optimize._control import random_moves

        beside = aim.shown(random_moves(aim, now, limit, steps, seed))
    solves = 0 if aim.name == "utilisation" else (steps + len(tried)) * aim.amounts.shape[1]
    return RoutingWeights(
        objective=aim.shown(objective), bound=aim.shown(bound), gap=max(gap, 0.0),
        certified=gap <= tolerance, before=aim.shown(before), splits=splits, paths=aim.paths,
        flows=aim.flows, amounts=aim.amounts, steps=steps, solves=solves,
        evaluations=steps + len(tried), seconds=seconds, seed=seed,
        history=History.of(told), control=beside, aim=aim,
    )  # fmt: skip
