"""The search for capacities on the host: chunks of the descent, exact scores, and the target."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from fabric._typing import AnyArray
from fabric.optimize import _capacity_descent as descent
from fabric.optimize._capacity_control import climbed
from fabric.optimize._descent import adam, moved
from fabric.optimize._money import Purse, cheapest, factors, logits, smallest, trimmed
from fabric.optimize._step_goal import Goal
from fabric.runs import Checkpoint, Progress, packed, unpacked

UNLIMITED = 1e9
GRADIENT_COST = 7
"""Scores that a gradient takes the time of."""

_TURNS, _RATE, _ROUNDS, _POLISH, _SHARP = 25, 0.3, 6, 60, 2000.0
_ALIKE = 1e-6  # share by which values that should be the same may differ
_WIDEST = 35.0  # in logarithms: how far off a factor is looked for
Factors = Float[AnyArray, " groups"]
_cheapest = jax.jit(cheapest)


class Found(NamedTuple):
    """Factors, what they are worth exactly, the bound, and what all groups alike are worth."""

    x: Float[np.ndarray, " groups"]
    value: float
    bound: float
    before: float


class Search:
    """The descent for one goal.

    Args:
        goal: What is to be small.
        purse: What can be bought.
        steps: Of a descent.
        tolerance: The gap at which to stop.
        seed: Of the start.
        kept: Where the state is saved, if anywhere.
    """

    def __init__(
        self, goal: Goal, purse: Purse, steps: int, tolerance: float, seed: int,
        kept: Checkpoint | None,
    ):  # fmt: skip
        self._goal, self._purse, self._kept = goal, purse, kept
        self._kind, self._loaded = purse.cost.dtype, jnp.asarray(goal.loaded)
        self._steps, self._tolerance, self._seed = steps, tolerance, seed
        self._turns = min(_TURNS, steps)
        self.points: list[tuple[int, float, float]] = []
        self.steps_taken = self.evaluations = self.solves = 0
        # Between descents, for the target: the round, and what is known by then.
        self._round, self._paid, self._bound, self._best = 0, 0.0, 0.0, jnp.ones_like(purse.cost)
        self._saved = kept.load() if kept else None

    def score(self, x: Factors) -> float:
        """Return the exact value."""
        self.solves += self._goal.n_phases
        self.evaluations += 1
        return float(self._goal.exact(jnp.asarray(x, self._kind)))

    def tangent(self, x: Factors) -> tuple[jax.Array, jax.Array]:
        """Return a tangent at the sharpest power: its offset, and its slope."""
        sharp = jnp.asarray(_SHARP, self._kind)
        return descent.touched(self._goal.shared, jnp.asarray(x, self._kind), sharp)

    def within(self, budget: float) -> Found:
        """Return the best factors for some money."""
        state = self._descend(budget, self._start())
        even = alike(self._purse, budget)
        x, value = self._polished(state.x, float(state.value), budget)
        before = self.score(even)
        best = trimmed(x if value <= before else even, budget, self._purse)
        value = self.score(best)
        if not bool(self._loaded.all()):
            tidy = trimmed(self._spent(best, budget), budget, self._purse)
            value, best = min((self.score(tidy), tidy), (value, best), key=lambda one: one[0])
        return Found(best, value, float(state.bound), before)

    def meeting(self) -> Found:
        """Return the factors that meet the target for the least money.

        A descent for some money, scaled until it just meets the target, says for how much money to
        descend next. The tangent at the end of each bounds the money.
        """
        purse = self._purse
        start = self._scaled(jnp.ones_like(purse.cost), everywhere=True)
        before = self._money(start)
        self._best, self._paid = start, before
        if (said := self._saved) is not None:
            self._round, self._paid, self._bound = said["round"], said["paid"], said["proved"]
            self._best = jnp.asarray(said["best"])
        while self._round < _ROUNDS:
            first = self._round == 0
            state = self._descend(self._paid, self._start() if first else logits(self._best, purse))
            x = self._scaled(state.x)
            if self._money(x) < self._paid:
                self._best, self._paid = x, self._money(x)
            here = self.tangent(x)
            for u, g in ((state.offset, state.slope), here):
                least, reached = _cheapest(g, u - 1, purse)
                self._bound = max(self._bound, float(least)) if bool(reached) else self._bound
            self._round += 1
            self.points.append((self.steps_taken, self._paid, self._bound))
            if self._paid <= self._bound * (1 + self._tolerance):
                break
        return Found(np.asarray(self._best, np.float64), self._paid, self._bound, before)

    def control(self, found: Found, budget: float | None) -> float:
        """Return what random divisions with moves between two groups reach.

        Without a budget they divide the money that was found, and are scaled until the target is
        met.
        """
        count = (1 + GRADIENT_COST) * self.steps_taken
        money = found.value if budget is None else budget
        x = climbed(self._goal.shared, self._purse, money, self._seed, count)
        return self._money(self._scaled(x)) if budget is None else self.score(x)

    def _money(self, x: Factors) -> float:
        return float(np.asarray(self._purse.cost, np.float64) @ np.asarray(x, np.float64))

    def _spent(self, x: Factors, budget: float) -> jax.Array:
        """Return factors that leave nothing to groups without load, and all money to the others."""
        purse = self._purse
        above = jnp.where(self._loaded, x - purse.least, 0)
        whole = (purse.cost * above).sum()
        free = budget - (purse.cost * purse.least).sum()
        more = jnp.where(whole > 0, free / jnp.where(whole > 0, whole, 1), 1)
        return jnp.minimum(purse.least + above * jnp.maximum(more, 0), purse.most)

    def _start(self) -> jax.Array:
        as_built = logits(jnp.ones_like(self._purse.cost), self._purse)
        if not self._seed:
            return as_built
        return jax.random.normal(jax.random.key(self._seed), as_built.shape, as_built.dtype)

    def _descend(self, money: float, z: jax.Array) -> descent.State:
        state = descent.begun(z, _RATE, self._steps)
        if (said := self._saved) is not None and "state/0" in said:
            state = jax.tree.map(jnp.asarray, unpacked("state", said, state))
            self.points = [(int(s), o, b) for s, o, b in said["points"].tolist()]
            self.steps_taken, self.evaluations = said["steps"], said["evaluations"]
            self.solves = said["solves"]
        self._saved = None
        advance = partial(descent.advance, self._goal.shared, _RATE, self._steps, self._turns)
        with Progress(self._steps, what="steps") as progress:
            while int(state.step) < self._steps and not self._proved(state):
                state, trace = advance(state, jnp.asarray(money, z.dtype), self._purse)
                self._note(trace)
                self._save(state)
                progress.update(int(state.step), float(state.value), float(state.bound))
        self._save(state, done=True)
        return state

    def _proved(self, state: descent.State) -> bool:
        return float(state.value) <= float(state.bound) * (1 + self._tolerance / 4)

    def _note(self, trace: AnyArray) -> None:
        if not self._goal.worst:  # with a target the history is of money
            rows = enumerate(np.asarray(trace, np.float64).tolist())
            self.points += [(self.steps_taken + i, a, b) for i, (a, b) in rows if i % 5 == 0]
        self.steps_taken += len(trace)
        self.evaluations += len(trace)

    def _save(self, state: descent.State, done: bool = False) -> None:
        if self._kept is None or not (self._kept.due or done):
            return
        self._kept.save(packed("state", state) | {
            "round": self._round, "paid": self._paid, "proved": self._bound,
            "best": np.asarray(self._best), "steps": self.steps_taken,
            "evaluations": self.evaluations, "solves": self.solves,
            "points": np.array(self.points, float).reshape(-1, 3),
        })  # fmt: skip

    def _polished(self, x: Factors, least: float, budget: float) -> tuple[Factors, float]:
        """Return the factors, improved by exact gradients where fair sharing wastes some links."""
        value = self.score(x)
        if value <= least * (1 + max(self._tolerance / 4, _ALIKE)):
            return x, value
        money = jnp.asarray(budget, x.dtype)
        at = lambda z: self._goal.exact(factors(z, money, self._purse))
        slope = jax.jit(jax.value_and_grad(at))
        rule, z = adam(_RATE / 4, _POLISH), logits(x, self._purse)
        with jax.numpy_dtype_promotion("standard"):
            state = rule.init(z)
        for _ in range(_POLISH):
            found, gradient = slope(z)
            self.solves += self._goal.n_phases
            self.evaluations += 1
            if float(found) < value:
                value, x = float(found), factors(z, money, self._purse)
            z, state = moved(rule, gradient / found, state, z)
        return x, value

    def _scaled(self, x: Factors, everywhere: bool = False) -> jax.Array:
        """Return factors in the same proportions that just meet the target, as far as any do.

        Groups without load get the smallest factor, unless all are to be alike.
        """
        purse = self._purse
        some, x = self._loaded | everywhere, jnp.maximum(x, smallest(self._kind))

        def clip(s: float) -> jax.Array:
            return jnp.where(some, jnp.clip(x * s, purse.least, purse.most), purse.least)

        # A hair more, so that roundings do not miss the target.
        hair = 1 + 16 * float(jnp.finfo(self._kind).eps)
        shared = partial(descent.valued, self._goal.shared)
        y = np.log(np.asarray(x, np.float64))
        low, high = -_WIDEST - y.max(), np.log(UNLIMITED) + _WIDEST - y.min()
        fast = _crossing(lambda s: 1 / float(shared(clip(s))), low, high)[1]
        if self.score(found := clip(fast * hair)) <= 1:
            return found
        fast = _crossing(lambda s: 1 / self.score(clip(s)), np.log(fast), high)[1]
        return found if self.score(found := clip(fast * hair)) <= 1 else clip(fast)


def alike(purse: Purse, money: float) -> jax.Array:
    """Return one factor for all groups that the money pays for, within the limits of each."""
    even = lambda s: jnp.clip(s * jnp.ones_like(purse.cost), purse.least, purse.most)
    low = np.log(money / float(purse.cost.sum())) - _WIDEST
    high = np.log(money / float(purse.cost.min()))
    spent = lambda s: float((purse.cost * even(s)).sum()) / money
    return even(_crossing(spent, low, high)[0])


def _crossing(rising: Callable[[float], float], low: Any, high: Any) -> tuple[float, float]:
    """Return a bracket of where a rising function reaches 1, between two logarithms."""
    while high - low > 1e-12 * max(1.0, abs(high)):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(float(np.exp(middle))) < 1 else (low, middle)
    return float(np.exp(low)), float(np.exp(high))
