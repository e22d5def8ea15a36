"""`placement`: which rank of a job runs on which endpoint of what is left of a fabric."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import InfeasibleError, nearest, raise_faults
from fabric._typing import AnyArray
from fabric.network import Flows, Network, Placement, Routes, whole_or_fault
from fabric.optimize import _sinkhorn as sinkhorn
from fabric.optimize._faults import share_or_fault
from fabric.optimize._kept import checkpoint_of
from fabric.optimize._placement_bound import bound_of
from fabric.optimize._placement_input import (
    UNITS,
    Rule,
    Slots,
    Traffic,
    rule_of,
    server_and_gpu,
    slots_of,
    traffic_of,
)
from fabric.optimize._placement_prices import by_prices
from fabric.optimize._placement_score import Scorer, exact
from fabric.optimize._placement_ways import Units, Ways, units_of, ways_of
from fabric.optimize._rank_file import gpu_file, hostfile, rank_file
from fabric.optimize._swaps import Descent, Found, Search, by_promise
from fabric.routing import spray
from fabric.runs import Checkpoint, History, Progress, finite, gap as gap_of

OBJECTIVES = ("slowest", "completion")


@dataclass(frozen=True, eq=False)
class PlacementReport:
    """Ranks on endpoints, with what proves how good that is.

    Attributes:
        objective: Seconds of the traffic, routed and solved exactly as placed.
        bound: What no placement can beat.
        gap: objective / bound - 1; infinite where the bound is 0.
        certified: Whether the gap is within the tolerance.
        before: Seconds with the ranks in the order of the topology; infinite if its traffic does
            not get through.
        control: Seconds that random placements with the same exchanges reach with as many
            evaluations, gradients counted as evaluations; NaN if it was not wanted.
        placement: The endpoint of every rank.
        unit: What was moved: "server" or "rank".
        evaluations: Placements that were scored. `solves`: those of them that took an exact solve;
            the load of a link ruled the others out. `steps`: gradients.
        seconds: Wall time of the search, compilation included, without the control.
        seed: As given.
        history: Best value and bound, by evaluation.
        servers, gpus: The name of the server of every rank, and the number of its GPU there.
        endpoints: The name of the endpoint of every rank.
    """

    objective: float
    bound: float
    gap: float
    certified: bool
    before: float
    control: float
    placement: Placement = field(repr=False)
    unit: str
    evaluations: int
    solves: int
    steps: int
    seconds: float
    seed: int
    history: History = field(repr=False)
    servers: tuple[str, ...] = field(repr=False)
    gpus: tuple[int, ...] = field(repr=False)
    endpoints: tuple[str, ...] = field(repr=False)

    def rank_file(self, cores: int = 1) -> str:
        """Return a rank file of Open MPI: the server of every rank, and the cores it is bound to.

        Slots are cores: GPU g gets the g-th group of so many. Give it to mpirun as
        `--map-by rankfile:FILE=...`, before version 5 as `--rankfile ...`.

        Args:
            cores: Of a server for each of its GPUs.

        References:
            Open MPI, mpirun(1), section Rankfiles.
        """
        return rank_file(self.servers, self.gpus, cores)

    def slurm_hostfile(self) -> str:
        """Return the file that SLURM_HOSTFILE names, a server per rank, for `slurm_options`.

        References:
            Slurm, srun(1), `--distribution=arbitrary`.
        """
        return hostfile(self.servers)

    @property
    def slurm_options(self) -> str:
        """The options of srun for `slurm_hostfile`, which is not read if there is `--nodelist`."""
        servers = dict.fromkeys(self.servers)
        return f"--distribution=arbitrary --ntasks={len(self.servers)} --nodes={len(servers)}"

    @property
    def slurm_nodes(self) -> str:
        """The servers, for `sbatch --nodelist` or `salloc --nodelist`."""
        return ",".join(dict.fromkeys(self.servers))

    def gpu_file(self) -> str:
        """Return the number of the GPU of every rank in its server, one a line.

        Launchers count the ranks of a server in their order, which is not that of the GPUs where
        ranks changed places within it. A wrapper of the program takes the line of its rank:
        `CUDA_VISIBLE_DEVICES=$(sed -n "$((SLURM_PROCID + 1))p" FILE)`, or `OMPI_COMM_WORLD_RANK`.
        """
        return gpu_file(self.gpus)

    def ring_order(self) -> list[str]:
        """Return the endpoints that a ring over the ranks visits, in order."""
        return list(self.endpoints)

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for JSON; what is infinite or was not wanted is None."""
        names = (
            "objective", "bound", "certified", "unit", "evaluations", "solves", "steps", "seconds",
            "seed",
        )  # fmt: skip
        return {
            "schema": "fabric.optimize.placement/1",
            **{name: getattr(self, name) for name in names},
            **{name: finite(getattr(self, name)) for name in ("gap", "before", "control")},
            "ranks": len(self.servers),
            "endpoints": list(self.endpoints),
            "servers": list(self.servers),
            "gpus": list(self.gpus),
            "history": self.history.as_dict(),
        }

    def __str__(self) -> str:
        proved = "certified" if self.certified else "not certified"
        control = "" if np.isnan(self.control) else f", random and swaps {self.control:.6g} s"
        return (
            f"{self.objective:.6g} s from {self.before:.6g} s in order of the topology{control}, "
            f"bound {self.bound:.6g} s, gap {self.gap:.2e} ({proved}), {len(self.servers):,} "
            f"ranks moved by {self.unit}, {self.evaluations:,} evaluations in {self.seconds:.1f} s"
        )


def placement(
    network: Network,
    traffic: Flows | Sequence[Flows] | AnyArray | Sequence[Sequence[float]],
    *,
    allocation: AnyArray | Sequence[int | str] | None = None,
    ranks: int | None = None,
    routing: str | Callable[[Network, Flows], Routes] = "spray",
    objective: str = "slowest",
    unit: str | None = None,
    starts: int = 32,
    budget: int = 10_000,
    tolerance: float = 1e-3,
    seed: int = 0,
    control: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
) -> PlacementReport:
    """Return the placement of ranks with the shortest traffic that was found, with a bound.

    The first start is the order of the topology. Half of them descend on a relaxed permutation,
    whose power and heat change step by step, and are rounded by an assignment; the rest are random.
    From all of them, best first, exchanges of two units are scored by the exact solver, those first
    that gradients favour, until none helps; what is left of the budget goes to restarts near the
    best. Servers with equal links to the same switches are alike under spray: exchanging two of
    them is not tried. A budget of all placements of single ranks that differ, such as 40,320 of 8
    on a torus, is spent on all, and proves the optimum. Every placement is scored on the fabric as
    it is, failed links and all.

    Args:
        network: With labels.
        traffic: `Flows` whose ends are ranks, with sizes; several of them, one phase after another;
            or a matrix (ranks, ranks) of bytes.
        allocation: Endpoints that may be used, by number or name, in any order. Default: all that
            have a live link each way; of servers those that are whole, if they suffice. There may
            be more than ranks.
        ranks: How many. Default: as the matrix has, or up to the last one that sends or receives.
        routing: A name, or a function of network and flows. Where a flow's way depends on more than
            its two ends, every placement is routed anew, which is slow: "adaptive", and "ecmp",
            which hashes the number of a flow. `functools.partial(routing.ecmp, key="ends")` is
            fast, as "spray" is.
        objective: "slowest": seconds of the slowest flow at the rates at which all begin.
            "completion": flows that are done leave their links to the others.
        unit: What is moved: "server", consecutive ranks that fill one, then also ranks within it;
            or "rank". Default: servers where the ranks fill them.
        starts: How many starts. On large jobs fewer are relaxed. Eight are relaxed side by side, so
            that there may be a few more.
        budget: Placements to score at most.
        tolerance: The gap at which the answer is called certified.
        seed: Of starts and exchanges, and of a routing that takes one.
        control: Whether to spend as many evaluations on random starts with exchanges in random
            order, to compare with.
        checkpoint: A file that keeps the state, after every start and in between; the same call
            goes on from there. A function as `routing` has to be one of `fabric.routing` then.

    Returns:
        A `PlacementReport`, never worse than the order of the topology.

    Raises:
        ModelError: If an option is out of range, sizes are missing, or servers cannot be filled.
        InfeasibleError: If there are fewer endpoints than ranks, or more than 2,048 servers, or
            single endpoints, to choose from; if ways are needed between more than 2,048 endpoints,
            where servers that are alike count at most twice; if an endpoint of the allocation has
            no live link, or in no placement that was found all traffic gets through.

    Precision: Scores in float64; relaxations in the default float type of JAX, and they only steer.
    Cost: The ways of all pairs of endpoints that differ are found once: about a second for 1,024. A
        score is a solve, 0.2 ms for 1,000 flows; "completion" takes one for every moment at which
        flows end.

    Examples:
        Two pairs of chatty ranks, told apart by two leaves:

        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2)
        >>> found = placement(net, fb.Flows([0, 1, 2, 3], [2, 3, 0, 1], size=50e9), budget=200)
        >>> found.before, found.objective, found.certified
        (2.0, 1.0, True)
        >>> found.ring_order()[0][:5] == found.ring_order()[2][:5]
        True

    References:
        R. Sinkhorn, 1964; H. Kuhn, The Hungarian Method, 1955. The relaxation: M. Zaslavskiy et
        al., 2009.
    """
    begun = time.perf_counter()
    starts, budget, seed, tolerance = _check(objective, unit, starts, budget, tolerance, seed)
    asked, rule, fluid = traffic_of(traffic, ranks), rule_of(routing, seed), objective != "slowest"
    slots = slots_of(network, allocation, asked.n_ranks, unit)
    ways = ways_of(network, slots, rule) if rule.alone else None
    units = units_of(slots, ways)
    scored = lambda at: exact(network, asked, slots.node[at[: asked.n_ranks]], rule, fluid=fluid)
    before, solves = scored(np.arange(slots.n_slots))
    name = routing if isinstance(routing, str) else None
    kept = checkpoint_of(
        checkpoint, "placement", network, *asked, *slots, *(ways or ()), name, objective, starts,
        budget, seed, routing=routing,
    )  # fmt: skip
    saved = None if kept is None else kept.load()
    bound = bound_of(network, slots, asked, ways)
    scorer = Scorer(network, asked, slots, rule, ways, fluid=fluid)
    search = Search(scorer, slots, units, asked.n_ranks, budget, bound)
    every = _every(slots, units, asked.n_ranks, budget) if rule.alone else None
    steps = 0
    if every is not None:
        for found in search.score(every):
            search.keep(found)
    else:
        steps = _run(search, network, slots, units, asked, ways, starts, seed, kept, saved)
    best = search.best
    value, more = scored(best.at)
    if not np.isfinite(value):
        _infeasible(network, asked, slots.node[best.at[: asked.n_ranks]], rule)
    if every is not None or (rule.alone and not search.can_move):
        bound = value
    elif ways is not None and value > bound:
        bound = max(bound, by_prices(slots, asked, ways, best.at[: asked.n_ranks]))
    assert bound <= value * (1 + 1e-9), "a placement beats its bound"
    bound = min(bound, value)
    seconds = time.perf_counter() - begun
    other = np.nan
    if control:
        rest = Scorer(network, asked, slots, rule, ways, fluid=fluid)
        aside = Search(rest, slots, units, asked.n_ranks, search.used + steps, bound)
        other = _control(aside, slots, starts, seed)
    node = slots.node[best.at[: asked.n_ranks]]
    servers, gpus = server_and_gpu(network, node)
    gap = gap_of(value, bound)
    points = [(used, reached, bound) for used, reached in search.history]
    return PlacementReport(
        objective=value, bound=bound, gap=gap, certified=gap <= tolerance + 1e-12, before=before,
        control=other, placement=Placement(node), unit="server" if slots.group > 1 else "rank",
        evaluations=search.used, solves=scorer.solves + solves + more, steps=steps,
        seconds=seconds, seed=seed, history=History.of([*points, (search.used, value, bound)]),
        servers=tuple(servers), gpus=tuple(gpus),
        endpoints=tuple(network.labels.node_name(i) for i in node.tolist()),
    )  # fmt: skip


def _check(
    objective: str, unit: str | None, starts: int, budget: int, tolerance: float, seed: int
) -> tuple[int, int, int, float]:
    """Return starts, budget, seed and tolerance, or raise one error with all faults."""
    faults: list[str] = []
    words = (("objective", objective, OBJECTIVES), ("unit", unit, UNITS))
    for name, value, known in words:
        if value not in known and not (name == "unit" and value is None):
            faults.append(
                f"`placement({name}={value!r})` is not known. {nearest(str(value), known)}"
            )
    numbers = (
        whole_or_fault("starts", starts, faults), whole_or_fault("budget", budget, faults),
        whole_or_fault("seed", seed, faults, 0, 2**63 - 1),
        share_or_fault("tolerance", tolerance, faults),
    )  # fmt: skip
    raise_faults(faults)
    return numbers


def _infeasible(
    network: Network, traffic: Traffic, node: Int[np.ndarray, " ranks"], rule: Rule
) -> NoReturn:
    """Raise for traffic that does not get through in the best placement that was found."""
    for flows in traffic.phases:
        # Names the pairs where there is no way.
        rule.route(network, Flows(node[traffic.src[flows]], node[traffic.dst[flows]]))
    message = (
        "Every placement that was found has traffic over links without capacity. Leave out the "
        "endpoints behind them (`allocation=...`), or mark the links as failed (`without`)."
    )
    raise InfeasibleError(message)


def _every(
    slots: Slots, units: Units, n_ranks: int, budget: int
) -> Int[np.ndarray, "placements slots"] | None:
    """Return all placements that differ, if single ranks are moved and the budget suffices."""
    if slots.group > 1:
        return None
    sorts, left = np.zeros((1, 0), int), units.room[None]
    for _ in range(n_ranks):
        row, sort = np.nonzero(left)
        if len(row) > budget:
            return None
        sorts, left = np.column_stack([sorts[row], sort]), left[row]
        left[np.arange(len(row)), sort] -= 1
    # The slots of one sort in turn; those that stay free come behind.
    rest = np.array([np.repeat(np.arange(len(free)), free) for free in left], int)
    order = np.argsort(np.column_stack([sorts, rest.reshape(len(left), -1)]), axis=1, kind="stable")
    found = np.empty_like(order)
    np.put_along_axis(found, order, np.argsort(units.sort, kind="stable")[None], axis=1)
    return found


def _run(
    search: Search, network: Network, slots: Slots, units: Units, traffic: Traffic,
    ways: Ways | None, starts: int, seed: int, kept: Checkpoint | None,
    saved: dict[str, Any] | None,
) -> int:  # fmt: skip
    """Search from every start and around the best; return the gradients that it took."""
    if ways is None:
        problem = _steering(network, slots, units, traffic)
    else:
        problem = sinkhorn.relaxation(ways, slots, units, traffic)
    slopes = None if problem is None else lambda at: sinkhorn.gains(problem, units, at)
    turn = None
    if saved is None:
        begun, steps, done = *_begun(search, slots, units, problem, starts, seed), 0
    else:
        begun, (search.best,) = _found(saved, "begun"), _found(saved, "best")
        search.history = [(int(a), float(b)) for a, b in saved["history"]]
        search.used, search.slopes = saved["used"], saved["slopes"]
        steps, done = saved["steps"], saved["done"]
        if now := _found(saved, "now"):
            turn = Descent(now[0], done, saved["turn"], saved["tried"])
    with Progress(search.budget, what="placements") as progress:

        def told(at: Descent | None) -> None:
            progress.update(search.used, search.best.seconds, search.bound)
            if kept is not None and (at is None or kept.due):
                kept.save(_state(begun, search, steps, done, at))

        draw = lambda number, turn: np.random.default_rng([seed, 2, number, turn])
        while turn is not None or not search.over:
            if turn is None:
                now = _next(search, begun, done, np.random.default_rng([seed, 6, done]))
                if now is None:
                    break
                turn = Descent(now, done)
            search.descend(turn, draw, slopes, told)
            turn, done = None, done + 1
            told(None)
    return steps + search.slopes


def _steering(
    network: Network, slots: Slots, units: Units, traffic: Traffic
) -> sinkhorn.Relaxation | None:
    """Return a relaxation under spray, for rules that have none; None for too many slots."""
    try:
        ways = ways_of(network, slots, Rule(spray, alone=True, even=False))
    except InfeasibleError:
        return None
    return sinkhorn.relaxation(ways, slots, units, traffic)


def _begun(
    search: Search, slots: Slots, units: Units, problem: sinkhorn.Relaxation | None, starts: int,
    seed: int,
) -> tuple[list[Found], int]:  # fmt: skip
    """Return starts with their scores, the best first, and the gradients that they took."""
    begun = search.score(np.arange(slots.n_slots)[None])
    search.keep(begun[0])
    rows: list[np.ndarray] = []
    steps = 0
    if problem is not None and starts > 1 and not search.over:
        some = sinkhorn.affordable(problem, starts // 2)
        found, steps = sinkhorn.relaxed(problem, units, some, seed)
        rows += [_spread(at, slots) for at in found]
    rows += [_random(slots, seed, i) for i in range(len(rows) + 1, starts)]
    if rows and not search.over:
        begun += search.score(np.unique(np.array(rows), axis=0))
    return by_promise(begun), steps


def _next(search: Search, begun: list[Found], done: int, draw: np.random.Generator) -> Found | None:
    """Return the next start, or a placement near the best one when all are done."""
    return begun[done] if done < len(begun) else search.kicked(search.best, draw)


def _control(search: Search, slots: Slots, starts: int, seed: int) -> float:
    """Return what random starts and exchanges in random order reach."""
    rows = np.array([_random(slots, seed, -i) for i in range(starts)])
    begun, done = by_promise(search.score(rows)), 0
    search.keep(begun[0])
    draw = lambda number, turn: np.random.default_rng([seed, 3, number, turn])
    while not search.over:
        now = _next(search, begun, done, np.random.default_rng([seed, 7, done]))
        if now is None:
            break
        search.descend(Descent(now, done), draw, None)
        done += 1
    return search.best.seconds


def _random(slots: Slots, seed: int, number: int) -> Int[np.ndarray, " slots"]:
    draw = np.random.default_rng([seed, 4 if number > 0 else 5, abs(number)])
    return _spread(draw.permutation(slots.n_units), slots)


def _spread(units: Int[np.ndarray, " units"], slots: Slots) -> Int[np.ndarray, " slots"]:
    """Return the slot of every rank from the slot of every unit."""
    return (units[:, None] * slots.group + np.arange(slots.group)).ravel()


def _state(
    begun: list[Found], search: Search, steps: int, done: int, at: Descent | None
) -> dict[str, Any]:
    state: dict[str, Any] = {
        "history": np.array(search.history, float).reshape(-1, 2), "used": search.used,
        "slopes": search.slopes, "steps": steps, "done": done,
    }  # fmt: skip
    now = [] if at is None else [at.now]
    if at is not None:
        state |= {"turn": at.turn, "tried": at.tried}
    for name, several in (("begun", begun), ("best", [search.best]), ("now", now)):
        state[f"{name}.at"] = np.array([found.at for found in several])
        state[f"{name}.score"] = np.array([(f.seconds, f.crowding) for f in several])
    return state


def _found(state: dict[str, Any], name: str) -> list[Found]:
    scores: Float[np.ndarray, "some 2"] = state[f"{name}.score"]
    pairs = zip(state[f"{name}.at"], scores.tolist(), strict=True)
    return [Found(at, *score) for at, score in pairs]
