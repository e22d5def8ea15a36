"""`placement`: which rank of a job runs on which endpoint of what is left of a fabric."""

import itertools
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import nearest, raise_faults
from fabric._typing import AnyArray
from fabric.network import Flows, Network, Placement, Routes, whole_or_fault
from fabric.optimize import _sinkhorn as sinkhorn
from fabric.optimize._placement_bound import bound_of, priced
from fabric.optimize._placement_input import (
    UNITS,
    Slots,
    Traffic,
    server_and_gpu,
    slots_of,
    traffic_of,
)
from fabric.optimize._placement_score import (
    MOST_SLOTS,
    Scorer,
    Ways,
    exact,
    router_of,
    ways_of,
)
from fabric.optimize._swaps import Found, Search, by_promise, moves_of
from fabric.routing import spray
from fabric.runs import Checkpoint, History, Progress, fingerprint

OBJECTIVES = ("slowest", "completion")

_MOST_WORK = 6e10
"""Products that all relaxations together may take: some tens of seconds on two cores."""


@dataclass(frozen=True, eq=False)
class PlacementReport:
    """Ranks on endpoints, with what proves how good that is.

    Attributes:
        objective: Seconds of the traffic, routed and solved exactly as placed.
        bound: What no placement can beat.
        gap: objective / bound - 1.
        certified: Whether the gap is within the tolerance.
        before: Seconds with the ranks in the order of the topology.
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

    def rank_file(self) -> str:
        """Return a rank file of Open MPI: a line per rank, the slot being the GPU of the server.

        References:
            Open MPI, mpirun(1), section Rankfiles.
        """
        pairs = zip(self.servers, self.gpus, strict=True)
        return "".join(f"rank {i}={name} slot={gpu}\n" for i, (name, gpu) in enumerate(pairs))

    def slurm_hostfile(self) -> str:
        """Return the file that SLURM_HOSTFILE names, a server per rank, for `slurm_options`.

        Which GPU of its server a rank uses, `rank_file` says: tasks of a server count from 0 in the
        order of the ranks.

        References:
            Slurm, srun(1), `--distribution=arbitrary`.
        """
        return "".join(f"{name}\n" for name in self.servers)

    @property
    def slurm_options(self) -> str:
        """The options of srun that go with `slurm_hostfile`."""
        servers = dict.fromkeys(self.servers)
        return (
            f"--distribution=arbitrary --ntasks={len(self.servers)} --nodes={len(servers)} "
            f"--nodelist={','.join(servers)}"
        )

    def ring_order(self) -> list[str]:
        """Return the endpoints that a ring over the ranks visits, in order."""
        return list(self.endpoints)

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for JSON."""
        names = (
            "objective", "bound", "gap", "certified", "before", "control", "unit", "evaluations",
            "solves", "steps", "seconds", "seed",
        )  # fmt: skip
        return {
            **{name: getattr(self, name) for name in names},
            "control": None if np.isnan(self.control) else self.control,
            "ranks": len(self.servers),
            "endpoints": list(self.endpoints),
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

    The first start is the order of the topology. The others descend on a relaxed permutation, whose
    power and heat change step by step, and are rounded by an assignment. From all of them, best
    first, exchanges of two units are scored by the exact solver, those first that gradients favour,
    until none helps; what is left of the budget goes to restarts near the best. A budget of all
    placements, such as 40,320 of 8 ranks, is spent on all, and proves the optimum. Every placement
    is scored on the fabric as it is, failed links and all.

    Args:
        network: With labels.
        traffic: `Flows` whose ends are ranks, with sizes; several of them, one phase after another;
            or a matrix (ranks, ranks) of bytes.
        allocation: Endpoints that may be used, by number or name, in any order. Default: all that
            have a live link; of servers those that are whole. There may be more than ranks.
        ranks: How many. Default: as the matrix has, or up to the last one that sends or receives.
        routing: A name, or a function of network and flows. "ecmp" hashes the ends of a flow here.
            With a rule under which flows depend on each other, such as "adaptive", every placement
            is routed anew, which is slow.
        objective: "slowest": seconds of the slowest flow at the rates at which all begin.
            "completion": flows that are done leave their links to the others.
        unit: What is moved: "server", consecutive ranks that fill one, then also ranks within it;
            or "rank". Default: servers where the ranks fill them.
        starts: How many starts. On large jobs fewer are relaxed, and the others are random.
        budget: Placements to score at most.
        tolerance: The gap at which the answer is called certified.
        seed: Of starts and exchanges, and of a routing that takes one.
        control: Whether to spend as many evaluations on random starts with exchanges in random
            order, to compare with.
        checkpoint: A file that keeps the state after every start; the same call goes on from there.

    Returns:
        A `PlacementReport`, never worse than the order of the topology.

    Raises:
        ModelError: If an option is out of range, sizes are missing, or servers cannot be filled.
        InfeasibleError: If there are fewer endpoints than ranks, or more than 2,048 to choose from;
            if one has no live link, or cannot be reached.

    Precision: Scores in float64; relaxations in the default float type of JAX, and they only steer.
    Cost: The ways of all pairs of endpoints are found once: about a second for 1,024. A score is a
        solve, 0.2 ms for 1,000 flows; "completion" takes one for every moment at which flows end.

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
    _check(objective, unit, starts, budget, tolerance, seed)
    asked = traffic_of(traffic, ranks)
    slots = slots_of(network, allocation, asked.n_ranks, unit)
    router, alone = router_of(routing, seed)
    ways = ways_of(network, slots, router) if alone else None
    scorer = Scorer(network, asked, slots, router, ways, fluid=objective == "completion")
    bound = bound_of(network, slots, asked, ways)
    kept = None
    if checkpoint is not None:
        name = routing if isinstance(routing, str) else getattr(routing, "__qualname__", "function")
        options = (name, objective, slots.group, starts, budget, seed)
        kept = Checkpoint(checkpoint, fingerprint(network, *asked, slots.node, *options))
    steering = ways
    if ways is None and slots.n_slots <= MOST_SLOTS:
        steering = ways_of(network, slots, spray)
    search = Search(scorer, slots, moves_of(slots, asked.n_ranks), asked.n_ranks, budget, bound)
    every = _every(slots, asked.n_ranks, budget) if alone else None
    if every is not None:
        for found in search.score(every):
            search.keep(found)
        steps, bound = 0, search.best.seconds
    else:
        steps = _run(search, slots, asked, steering, starts, seed, kept)
    best = search.best
    if ways is not None and every is None and best.seconds > bound:
        bound = max(bound, priced(slots, asked, ways, best.at[: asked.n_ranks]))
    node = slots.node[best.at[: asked.n_ranks]]
    objective_value, solves = exact(network, asked, node, router, objective == "completion")
    before, more = exact(network, asked, slots.node, router, objective == "completion")
    assert bound <= objective_value * (1 + 1e-9), "a placement beats its bound"
    bound = min(bound, objective_value)
    seconds = time.perf_counter() - begun
    other = np.nan
    if control:
        spent = search.used + steps
        rest = Scorer(network, asked, slots, router, ways, fluid=objective == "completion")
        other = _control(rest, slots, asked, starts, spent, seed, bound)
    servers, gpus = server_and_gpu(network, node)
    gap = objective_value / bound - 1 if bound > 0 else np.inf
    points = [(used, value, bound) for used, value in search.history]
    return PlacementReport(
        objective=objective_value, bound=bound, gap=gap, certified=gap <= tolerance + 1e-12,
        before=before, control=other, placement=Placement(node),
        unit="server" if slots.group > 1 else "rank", evaluations=search.used,
        solves=scorer.solves + solves + more, steps=steps, seconds=seconds, seed=seed,
        history=History.of([*points, (search.used, objective_value, bound)]),
        servers=tuple(servers), gpus=tuple(gpus),
        endpoints=tuple(network.labels.node_name(i) for i in node.tolist()),
    )  # fmt: skip


def _check(
    objective: str, unit: str | None, starts: int, budget: int, tolerance: float, seed: int
) -> None:
    """Raise one error with every option that is out of range."""
    faults: list[str] = []
    words = (("objective", objective, OBJECTIVES), ("unit", unit, UNITS))
    for name, value, known in words:
        if value not in known and not (name == "unit" and value is None):
            faults.append(
                f"`placement({name}={value!r})` is not known. {nearest(str(value), known)}"
            )
    for name, value in (("starts", starts), ("budget", budget)):
        whole_or_fault(name, value, faults)
    whole_or_fault("seed", seed, faults, 0, 2**63 - 1)
    if not 0 <= tolerance < 1:
        faults.append(f"`tolerance` needs a share from 0 to below 1, but got {tolerance!r}.")
    raise_faults(faults)


def _every(slots: Slots, n_ranks: int, budget: int) -> Int[np.ndarray, "placements slots"] | None:
    """Return all placements, if single ranks are moved and the budget suffices."""
    n = slots.n_slots
    if slots.group > 1 or n > 10 or math.factorial(n) > budget:
        return None
    return np.array(list(itertools.permutations(range(n))))


def _run(
    search: Search, slots: Slots, traffic: Traffic, ways: Ways | None, starts: int, seed: int,
    kept: Checkpoint | None,
) -> int:  # fmt: skip
    """Search from every start and around the best; return the gradients that it took."""
    problem = None if ways is None else sinkhorn.relaxation(ways, slots, traffic)
    slopes = None if problem is None else lambda at: sinkhorn.gains(problem, at)
    saved = None if kept is None else kept.load()
    if saved is None:
        rows: list[np.ndarray] = []
        steps = 0
        (sorted_order,) = search.score(np.arange(slots.n_slots)[None])
        search.keep(sorted_order)
        if problem is not None and starts > 1 and not search.over:
            some = int(_MOST_WORK / (sinkhorn.work(problem) * sinkhorn.STEPS))
            some = min(max(some, 2), starts - 1)
            rows += [_spread(units, slots) for units in sinkhorn.relaxed(problem, some, seed)]
            steps = some * sinkhorn.STEPS
        rows += [_random(slots, seed, i) for i in range(len(rows) + 1, starts)]
        begun = [sorted_order]
        if rows and not search.over:
            begun += search.score(np.unique(np.array(rows), axis=0))
        begun = by_promise(begun)
        done = 0
    else:
        begun = _found(saved, "begun")
        (search.best,) = _found(saved, "best")
        search.history = [(int(a), float(b)) for a, b in saved["history"]]
        search.used, search.slopes = saved["used"], saved["slopes"]
        steps, done = saved["steps"], saved["done"]
    with Progress(search.budget, what="placements") as progress:
        while not search.over:
            draw = np.random.default_rng([seed, 2, done])
            now = begun[done] if done < len(begun) else search.kicked(search.best, draw)
            if now is None:
                break
            search.descend(now, draw, slopes)
            done += 1
            progress.update(search.used, search.best.seconds, search.bound)
            if kept is not None:
                kept.save(_state(begun, search, steps, done))
    return steps + search.slopes


def _control(
    scorer: Scorer, slots: Slots, traffic: Traffic, starts: int, budget: int, seed: int,
    bound: float,
) -> float:  # fmt: skip
    """Return what random starts and exchanges in random order reach."""
    moves = moves_of(slots, traffic.n_ranks)
    search = Search(scorer, slots, moves, traffic.n_ranks, budget, bound)
    begun = by_promise(search.score(np.array([_random(slots, seed, -i) for i in range(starts)])))
    search.keep(begun[0])
    done = 0
    while not search.over:
        draw = np.random.default_rng([seed, 3, done])
        now = begun[done] if done < len(begun) else search.kicked(search.best, draw)
        if now is None:
            break
        search.descend(now, draw, None)
        done += 1
    return search.best.seconds


def _random(slots: Slots, seed: int, number: int) -> Int[np.ndarray, " slots"]:
    draw = np.random.default_rng([seed, 4 if number > 0 else 5, abs(number)])
    return _spread(draw.permutation(slots.n_units), slots)


def _spread(units: Int[np.ndarray, " units"], slots: Slots) -> Int[np.ndarray, " slots"]:
    """Return the slot of every rank from the slot of every unit."""
    return (units[:, None] * slots.group + np.arange(slots.group)).ravel()


def _state(begun: list[Found], search: Search, steps: int, done: int) -> dict[str, Any]:
    state: dict[str, Any] = {
        "history": np.array(search.history, float).reshape(-1, 2), "used": search.used,
        "slopes": search.slopes, "steps": steps, "done": done,
    }  # fmt: skip
    for name, several in (("begun", begun), ("best", [search.best])):
        state[f"{name}.at"] = np.array([found.at for found in several])
        state[f"{name}.score"] = np.array([(f.seconds, f.crowding) for f in several])
    return state


def _found(state: dict[str, Any], name: str) -> list[Found]:
    scores: Float[np.ndarray, "some 2"] = state[f"{name}.score"]
    pairs = zip(state[f"{name}.at"], scores.tolist(), strict=True)
    return [Found(at, *score) for at, score in pairs]
