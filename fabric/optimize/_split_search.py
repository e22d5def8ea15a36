"""The search for splits: descents on the largest load and on exact rates, kept in a checkpoint."""

import functools
import operator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from fabric._typing import AnyArray
from fabric.network import canonical
from fabric.optimize import _split_descent as descent
from fabric.optimize._aim import Aim
from fabric.optimize._certificate import Limit
from fabric.runs import Checkpoint, Progress, packed, unpacked

_TURNS = 25
_SMALL = 1e-3  # share that a path without traffic today begins with, so that it can grow


class _Units(NamedTuple):
    """What the numbers of the search are multiples of, so that none is too large or too small."""

    capacity: float
    value: float  # of the objective


class Found(NamedTuple):
    """What the search found."""

    tried: list[AnyArray]  # splits, best of each descent
    prices: Float[np.ndarray, "edges matrices"]
    history: Float[np.ndarray, "steps 2"]
    steps: int  # of all descents
    solves: int


class _Now(NamedTuple):
    """How far the search is: one value, so that an interrupt finds all of it or none."""

    states: list[descent.State]  # of each descent
    history: Float[np.ndarray, "steps 2"]

    def put(
        self, i: int, state: descent.State, history: Float[np.ndarray, "steps 2"] | None = None
    ) -> "_Now":
        """Return this with another state of a descent, and another history if it has one."""
        states = [*self.states[:i], state, *self.states[i + 1 :]]
        return _Now(states, self.history if history is None else history)

    def save(self, kept: Checkpoint) -> None:
        """Write it to the checkpoint."""
        packs = [packed(f"state{i}", state) for i, state in enumerate(self.states)]
        kept.save(functools.reduce(operator.or_, packs) | {"history": self.history})


def searched(
    aim: Aim,
    now: Float[np.ndarray, "pairs width"],
    limit: Limit | None,
    steps: int,
    tolerance: float,
    rate: float,
    kept: Checkpoint | None,
) -> Found:
    """Return what the descents found.

    Exact rates say where to go and not how far it is: with them a descent on the largest load,
    which gives the prices, comes first.
    """
    kind, units = kind_of(aim), _units(aim, now)
    problem, exact = _problem(aim, limit, units, kind), _exact(aim, units, kind)
    state = descent.begun(problem, np.log(np.maximum(now, _SMALL / aim.paths.width)))
    state = state._replace(bound=jnp.asarray(aim.least() / units.value, kind))
    stages = [None] if exact is None else [None, exact]
    at = _Now([state] * len(stages), np.zeros((0, 2)))
    if kept is not None and (saved := kept.load()) is not None:
        states = [unpacked(f"state{i}", saved, state) for i in range(len(stages))]
        at = _Now(states, saved["history"])
    # A sum is searched for as a mean, with the same program.
    over = "mean" if aim.over.name == "sum" else aim.over.name
    advance = functools.partial(descent.advance, turns=_TURNS, over=over)
    reals = [jnp.asarray(real, kind) for real in (tolerance, aim.over.tail, rate)]
    try:
        with Progress(len(stages) * int(steps), what="steps") as progress:
            for i, rates in enumerate(stages):
                if i and not int(at.states[i].step):
                    first = at.states[0]
                    at = at.put(i, at.states[i]._replace(bound=first.bound, prices=first.prices))
                while aim.paths.n_pairs and int(at.states[i].step) < steps:
                    if _certified(at.states[i], tolerance):
                        break
                    then, told = advance(at.states[i], problem, rates, *reals, jnp.asarray(steps))
                    history = at.history
                    step = int(then.step)
                    if rates is exact:
                        told = np.asarray(told, np.float64)[: step - len(history)] * units.value
                        history = np.concatenate([history, told])
                    at = at.put(i, then, history)
                    best, bound = (
                        aim.shown(float(v) * units.value) for v in (then.objective, then.bound)
                    )
                    progress.update(i * int(steps) + step, best, bound)
                    if kept is not None and kept.due:
                        at.save(kept)
    finally:
        if kept is not None:
            at.save(kept)
    states, history = at
    taken = [int(state.step) for state in states]
    prices = np.array(states[-1].prices, np.float64)
    prices[:-1] /= units.capacity
    matrices = aim.amounts.shape[1]
    return Found(
        [state.splits for state in states], prices, history, sum(taken),
        0 if exact is None else taken[-1] * matrices,
    )  # fmt: skip


def _certified(state: descent.State, tolerance: float) -> bool:
    return float(state.objective) <= float(state.bound) * (1 + tolerance)


def kind_of(aim: Aim) -> np.dtype:
    """Return the type of number that the search runs in."""
    return canonical(np.dtype(aim.network.capacity.dtype))


def _units(aim: Aim, now: Float[np.ndarray, "pairs width"]) -> _Units:
    return _Units(float(aim.capacity[:-1].max(initial=0)) or 1.0, float(aim.uses(now).max()) or 1.0)


def _problem(aim: Aim, limit: Limit | None, units: _Units, kind: Any) -> descent.Problem:
    """Return the arrays of the search on the device."""
    rows, trunk = descent.crossings(aim.paths.hops, aim.paths.n_trunks)
    device = lambda values: jnp.asarray(values, kind)
    # The last edge stands for the caps: what it holds are values already.
    unit = np.r_[np.full(aim.paths.n_trunks, units.capacity), 1.0]
    return descent.Problem(
        jnp.asarray(aim.paths.hops), jnp.asarray(rows), jnp.asarray(trunk),
        jnp.asarray(aim.paths.valid), device(aim.loads.demand / units.capacity / units.value),
        device(aim.capacity / unit), device(aim.loads.base / unit[:, None] / units.value),
        device(aim.share), None if limit is None else Limit(*(device(each) for each in limit)),
    )  # fmt: skip


def _exact(aim: Aim, units: _Units, kind: Any) -> descent.Exact | None:
    """Return what exact rates need, where the objective is one of them."""
    if aim.name == "utilisation":
        return None
    routes, row, share, of = aim.template
    return descent.Exact(
        aim.network, routes, jnp.asarray(row, jnp.int32), jnp.asarray(share, kind),
        jnp.asarray(of, jnp.int32), jnp.asarray(aim.amounts.T / units.value, kind),
        jnp.asarray(aim.caps.T, kind),
    )  # fmt: skip
