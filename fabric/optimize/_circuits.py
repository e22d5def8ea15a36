"""`circuits`: how many circuits between every two blocks, and how traffic goes over them."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Int

from fabric._errors import InfeasibleError, ModelError, quoted, raise_faults, some
from fabric._memory import afford
from fabric._typing import AnyArray
from fabric._units import parse_rate, parse_time
from fabric.network import whole_array, whole_or_fault
from fabric.optimize._circuits_report import Circuits
from fabric.optimize._circuits_search import (
    MIN_STEPS,
    Effort,
    Found,
    Problem,
    one_hop,
    with_transit,
)
from fabric.optimize._faults import or_fault, share_or_fault
from fabric.optimize._kept import checkpoint_of
from fabric.optimize._matchings import Patch, check_switches, patched
from fabric.optimize._mesh_search import EXACT_BLOCKS
from fabric.optimize._rounding import Counts, Pairs, unserved
from fabric.runs import History, gap as gap_of

Matrix = Sequence[Sequence[Any]] | AnyArray

_SCORES, _FEWEST_SCORES = 400, 24
_BYTES_TRANSIT, _BYTES_DIRECT = 400, 40
"""Memory at the peak, per three blocks: source, other block on the way, destination."""

_SMALLEST = 1e-250
_BLOCK = "block{}".format


def circuits(
    demand: Matrix,
    ports: int | Sequence[int] | AnyArray,
    rate: str | float,
    *,
    transit: bool = True,
    switches: int | None = None,
    current: Matrix | None = None,
    reconfiguration: str | float = 0.0,
    phase: str | float | None = None,
    steps: int = 1000,
    roundings: int | None = None,
    scores: int | None = None,
    prove: str | float = 0.0,
    tolerance: float = 1e-3,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Circuits:
    """Return circuits between blocks for a demand, with splits, a patch, and a proved bound.

    Fractions of circuits come first: x = ports * symmetric Sinkhorn(exp W), and every pair splits
    its traffic by a softmax over its direct way and those by one other block; Adam moves W and the
    splits together down an ever harder norm of the utilisations. Many jittered roundings follow,
    within the ports and with a way for every pair that has traffic, and exchanges of the ends of
    two circuits, each scored under its own best splits.

    The bound holds for circuits of any fractions: the optimum of a linear programme for up to 16
    blocks; beyond, what all traffic costs on its cheapest ways over what all circuits are worth, at
    prices that the descent ends with. With `prove` branch and bound raises it to whole circuits.

    Args:
        demand: (blocks, blocks), byte/s from row to column; 0 on the diagonal.
        ports: Circuits that a block can end: a number, or one per block.
        rate: Of a circuit, per direction: text with a unit, or byte/s.
        transit: Whether traffic may pass one other block. Without, the optimum is exact: circuits
            of a pair are the least that carry it at a utilisation, which is searched by halving.
        switches: Optical switches, each with the same even number of ports of a block, half of them
            on its north and half on its south side. Default: no patch is made.
        current: Circuits of today: (blocks, blocks), or the patch (switches, blocks, blocks) as in
            the answer. They are a start of the search. Where they are set is known of a patch only.
        reconfiguration: How long no traffic flows when circuits change: text, or seconds.
        phase: How long the demand lasts. With `current`, circuits change only where it pays.
            Default: for good, so that a reconfiguration costs nothing.
        steps: Of descent, on circuits and then on the splits.
        roundings: Jittered roundings; no more are scored than `scores` has room for. Default: a
            twelfth of `scores`, 4 at least.
        scores: Circuits that may be scored in all. Default 400, and fewer beyond 12 blocks, 24 from
            31 on.
        prove: How long branch and bound may take: text, or seconds. Good for about 10 blocks. Where
            it runs out of time the answer depends on how fast the machine is. Default 0.
        tolerance: Gap up to which the answer counts as certified.
        seed: Of jitter, exchanges and the control.
        checkpoint: A file that holds the state of the descent and all scores, so that a killed run
            goes on. It also serves a call of another `rate`, `phase`, `reconfiguration`, `prove`,
            `tolerance` or number of switches. Without transit there is nothing to keep.

    Raises:
        ModelError: If an argument is not as above, all faults at once.
        InfeasibleError: If a block with traffic has no port, no circuits are found that give every
            pair with traffic a way, the reconfiguration fills the phase and there are no circuits
            of today that serve, or memory does not suffice.

    Precision: Descent in the default dtype of JAX; utilisation, bound and gap in float64.
    Cost: 8 blocks about 3 s; 64 blocks with 128 ports under a minute on two cores.

    Examples:
        Two pairs of blocks that talk among themselves:

        >>> demand = [[0, 4, 1, 0], [4, 0, 0, 1], [1, 0, 0, 4], [0, 1, 4, 0]]
        >>> found = circuits(demand, ports=5, rate=1.0, steps=100, scores=20)
        >>> found.circuits[0].tolist(), round(found.objective, 6), found.certified
        ([0, 4, 1, 0], 1.0, True)

    References:
        L. Poutievski et al., Jupiter Evolving: Transforming Google's Datacenter Network via Optical
        Circuit Switches and Software-Defined Networking, SIGCOMM 2022. R. Sinkhorn and P. Knopp,
        Concerning nonnegative matrices and doubly stochastic matrices, Pacific J. Math. 21, 1967.
    """
    begun = time.monotonic()
    faults: list[str] = []
    wanted = _demand(demand, faults)
    room = _ports(ports, len(wanted), faults)
    per = or_fault(faults, 1.0, parse_rate, rate, "rate")
    dark = or_fault(faults, 0.0, parse_time, reconfiguration, "reconfiguration")
    proving = or_fault(faults, 0.0, parse_time, prove, "prove")
    lasts = np.inf if phase is None else or_fault(faults, np.inf, parse_time, phase, "phase")
    if per <= 0:
        faults.append("`rate` needs more than 0 byte/s.")
    if lasts <= 0:
        faults.append("`phase` needs more than 0 s.")
    seed = whole_or_fault("seed", seed, faults, least=0)
    steps = whole_or_fault("steps", steps, faults, least=MIN_STEPS)
    scores = whole_or_fault("scores", _scores(len(wanted)) if scores is None else scores, faults)
    roundings = max(scores // 12, 4) if roundings is None else roundings
    roundings = whole_or_fault("roundings", roundings, faults)
    tolerance = share_or_fault("tolerance", tolerance, faults)
    if switches is not None:
        switches = whole_or_fault("switches", switches, faults)
    raise_faults(faults)
    today = None if current is None else _today(current, room, switches)
    if today is not None and today.patch is not None:
        switches = len(today.patch)
    if switches is not None:
        check_switches(switches, room)
    if today is None and dark >= lasts:
        message = (
            f"`reconfiguration` takes {dark:g} s and the `phase` lasts {lasts:g} s, so that no "
            f"traffic flows at all. Keep circuits for several phases, or give those of today as "
            f"`current`."
        )
        raise InfeasibleError(message)
    problem = _problem(wanted, room, per, seed)
    _affordable(len(wanted), transit)
    now = None if today is None else today.circuits
    if transit:
        effort = Effort(steps, roundings, scores, proving)
        # Rate, times, tolerance and switches decide about what was found, not about the search.
        keep = checkpoint_of(
            checkpoint, "circuits", problem.demand, room, steps, roundings, scores, seed, now
        )
        found = with_transit(problem, now, effort, keep)
    else:
        found = one_hop(problem, now)
    return _report(problem, found, per, today, switches, (dark, lasts), tolerance, begun)


@dataclass(frozen=True)
class _Today:
    """Circuits as they are, and where they are set if that is known."""

    circuits: Counts
    patch: Patch | None


def _report(
    problem: Problem, found: Found, rate: float, today: _Today | None, switches: int | None,
    times: tuple[float, float], tolerance: float, begun: float,
) -> Circuits:  # fmt: skip
    """Choose between new circuits and those of today, and set them on switches."""
    dark, lasts = times
    new, now = found.best, found.current
    left = 1 - dark / lasts
    slowed = new.utilisation / left if left > 0 else np.inf
    change = now is None or bool(slowed < now.utilisation * (1 - 1e-9))
    chosen = new if change or now is None else now
    if not np.isfinite(chosen.utilisation):
        raise InfeasibleError(_unserved(problem, found, times))
    break_even = 0.0
    if now is not None:
        gain = 1 - new.utilisation / now.utilisation
        break_even = dark / gain if gain > 0 else np.inf
    patch, rewires = _set(chosen.circuits, problem.ports, today, switches, change)
    unit = problem.unit
    # What is proved may round to more than what is reached.
    objective, bound = chosen.utilisation * unit, min(found.bound, chosen.utilisation) * unit
    gap = gap_of(objective, bound)
    # Whole circuits are fractions too.
    relaxed = min(found.relaxed, found.best.utilisation)
    given = None if today is None else today.circuits if today.patch is None else today.patch
    return Circuits(
        objective=objective, bound=bound, gap=gap, certified=gap <= tolerance,
        circuits=chosen.circuits, splits=chosen.share, rate=rate, relaxed=relaxed * unit,
        relaxed_bound=min(found.relaxed_bound, relaxed) * unit, uniform=found.uniform * unit,
        control=None if found.control is None else found.control * unit,
        current=None if now is None else now.utilisation * unit, reconfigured=change,
        effective=unit * (slowed if change else chosen.utilisation), break_even=break_even,
        patch=patch, today=given, rewires=rewires, evaluations=found.evaluations,
        solves=found.solves, steps=found.steps, seconds=time.monotonic() - begun - found.aside,
        seed=problem.seed,
        history=History.of([(step, top * unit, low * unit) for step, top, low in found.points]),
    )  # fmt: skip


def _set(
    circuits: Counts, ports: Int[np.ndarray, " blocks"], today: _Today | None,
    switches: int | None, change: bool,
) -> tuple[Patch | None, int]:  # fmt: skip
    """Return the patch, if there are switches, and how many circuits are set anew."""
    known = None if today is None else today.patch
    if known is not None and not change:
        return known, 0
    patch = None if switches is None else patched(circuits, ports, switches, known)
    if known is not None and patch is not None:
        return patch, int(np.maximum(patch - known, 0).sum())
    before = np.zeros_like(circuits) if today is None else today.circuits
    return patch, int(np.maximum(circuits - before, 0).sum()) // 2


def _unserved(problem: Problem, found: Found, times: tuple[float, float]) -> str:
    """Return why no circuits serve: proved, or not found, or no time to set those that would."""
    needs = problem.needs | problem.needs.T
    partners, ports, direct = needs.sum(1), problem.ports, found.control is None
    dark, lasts = times
    if np.isfinite(found.best.utilisation):
        return (
            f"The circuits of today (`current`) leave pairs with traffic without a way, and "
            f"`reconfiguration` takes {dark:g} s of a `phase` of {lasts:g} s, so that there is no "
            f"time for others. Give a longer `phase`."
        )
    reach = ports if direct else _reach(ports)
    few = np.flatnonzero(partners > reach)
    if len(few):
        one = few[0]
        how = "directly" if direct else "over at most two circuits"
        remedy = "more `ports`, or `transit=True`" if direct else "more `ports`"
        return (
            f"`ports` are too few at {some(few.tolist(), name=_BLOCK)}: {quoted(_BLOCK(one))} has "
            f"traffic with {partners[one]:,} others, and `ports` of {ports[one]:,} reach "
            f"{reach[one]:,} {how}. Use {remedy}."
        )
    lost = unserved(found.best.circuits, problem.needs)
    names = some([f"{_BLOCK(i)}-{_BLOCK(j)}" for i, j in lost.tolist()])
    return (
        f"No circuits were found on which all pairs with traffic have a way of at most two; the "
        f"best leave {len(lost):,} without: {names}. Use more `ports`, or search longer with more "
        f"`scores` or `prove`."
    )


def _reach(ports: Int[np.ndarray, " blocks"]) -> Int[np.ndarray, " blocks"]:
    """Return how many others each block can reach at most: its neighbours, and all of theirs."""
    most = np.sort(np.maximum(ports - 1, 0))[::-1].cumsum()
    near = np.minimum(ports, len(ports) - 1)
    return near + np.where(near > 0, most[np.maximum(near, 1) - 1], 0)


def _affordable(blocks: int, transit: bool) -> None:
    needed = (_BYTES_TRANSIT if transit else _BYTES_DIRECT) * float(blocks) ** 3
    afford(f"`circuits` of {blocks:,} blocks", needed, "Take several blocks as one.")


def _scores(blocks: int) -> int:
    """Return how many circuits are scored where nothing is said: each takes blocks**3 steps."""
    few = int(_SCORES * (EXACT_BLOCKS / blocks) ** 3)
    return min(_SCORES, max(_FEWEST_SCORES, few))


def _problem(wanted: Pairs, ports: Int[np.ndarray, " blocks"], rate: float, seed: int) -> Problem:
    largest = float(wanted.max())
    demand = wanted / largest
    busy = np.maximum(demand.sum(1), demand.sum(0))
    shut = np.flatnonzero((busy > 0) & (ports == 0))
    if len(shut):
        message = (
            f"`ports` is 0 at blocks that have traffic: {some(shut.tolist(), name=_BLOCK)}. Give "
            f"them ports, or leave out their traffic."
        )
        raise InfeasibleError(message)
    least = float((busy / np.maximum(ports, 1)).max())
    unit = float(least * (largest / rate))
    if not _SMALLEST < unit < 1 / _SMALLEST:
        message = (
            f"`demand` of up to {largest:g} byte/s over `rate={rate:g}` byte/s is beyond what "
            f"numbers hold. Give both in byte/s."
        )
        raise ModelError(message)
    return Problem(demand / least, ports, unit, seed)


def _demand(demand: Matrix, faults: list[str]) -> Pairs:
    try:
        given = np.asarray(demand)
    except ValueError:
        given = np.zeros(0)  # rows of different lengths
    known = given.dtype.kind in "iuf"
    if not known and not all(isinstance(x, Real) for x in given.ravel().tolist()):
        faults.append("`demand` needs numbers, in byte/s.")
        return np.zeros((2, 2))
    wanted: Any = np.array(given, np.float64)
    if wanted.ndim != 2 or wanted.shape[0] != wanted.shape[1] or len(wanted) < 2:
        faults.append(
            f"`demand` needs a row and a column per block, of 2 blocks or more, but has shape "
            f"{wanted.shape}."
        )
        return np.zeros((2, 2))
    checks = {
        "byte/s of 0 or more": np.flatnonzero((~np.isfinite(wanted) | (wanted < 0)).any(1)),
        "0 on the diagonal, for no block sends to itself,": np.flatnonzero(np.diag(wanted)),
    }
    for need, bad in checks.items():
        if len(bad):
            faults.append(f"`demand` needs {need} but not so at {some(bad, name=_BLOCK)}.")
    if not wanted.any():
        faults.append("`demand` is all 0. Give some pairs traffic.")
    return wanted


def _ports(
    ports: int | Sequence[int] | AnyArray, blocks: int, faults: list[str]
) -> Int[np.ndarray, " blocks"]:
    count = whole_array("ports", ports, faults, dtype=np.int64)
    if count.ndim == 0:
        count = np.full(blocks, int(count))
    if count.shape != (blocks,):
        faults.append(
            f"`ports` needs one number, or one per block ({blocks}), but has shape {count.shape}."
        )
        return np.ones(blocks, np.int64)
    if len(bad := np.flatnonzero(count < 0)):
        faults.append(f"`ports` needs 0 or more, but not so at {some(bad, name=_BLOCK)}.")
    return count


def _today(current: Matrix, ports: Int[np.ndarray, " blocks"], switches: int | None) -> _Today:
    faults: list[str] = []
    count: Any = whole_array("current", current, faults, dtype=np.int64)
    n = len(ports)
    raise_faults(faults)
    patch: Any = None
    if count.ndim == 3 and count.shape[1:] == (n, n):
        patch, count = count, count.sum(0) + count.sum(0).T
        if not len(patch):
            faults.append("`current` is a patch of no switch. Leave it out.")
        if len(bad := np.flatnonzero((patch < 0).any((1, 2)))):
            faults.append(
                f"`current` needs 0 circuits or more, but not so at switches {some(bad.tolist())}."
            )
        if switches is not None and len(patch) != switches:
            faults.append(
                f"`current` is of {len(patch)} switches, but `switches={switches}`. Leave out "
                f"`switches`."
            )
    elif count.shape != (n, n):
        faults.append(
            f"`current` needs shape ({n}, {n}), or (switches, {n}, {n}) for a patch, but has "
            f"{count.shape}."
        )
        raise_faults(faults)
    checks = {
        "whole numbers of 0 or more,": np.flatnonzero((count < 0).any(1)),
        "0 on the diagonal, for no block joins itself,": np.flatnonzero(np.diag(count)),
        "as many circuits there as back,": np.flatnonzero((count != count.T).any(1)),
        "no more circuits than `ports`,": np.flatnonzero(count.sum(1) > ports),
    }
    for need, bad in checks.items():
        if len(bad):
            faults.append(f"`current` needs {need} but not so at {some(bad, name=_BLOCK)}.")
    if patch is not None and not faults:
        ends = np.maximum(patch.sum(1), patch.sum(2))
        over = np.flatnonzero((2 * len(patch) * ends > ports).any(1))
        if len(over):
            faults.append(
                f"`current` uses more than an equal share of the ports of a side at switches "
                f"{some(over.tolist())}."
            )
    raise_faults(faults)
    return _Today(count, patch)
