"""The search for capacities on the host: chunks of the descent, exact scores, and the target."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from fabric._typing import AnyArray
from fabric.optimize import _capacity_descent as descent
from fabric.optimize._capacity_control import climbed
from fabric.optimize._descent import adam, moved
from fabric.optimize._money import Purse, cheapest, factors, logits
from fabric.optimize._step_goal import Goal
from fabric.runs import Checkpoint, Progress, packed, unpacked

UNLIMITED = 1e9
GRADIENT_COST = 7
"""Scores that a gradient takes the time of."""

_TURNS, _RATE, _ROUNDS, _POLISH, _SHARP = 25, 0.3, 6, 60, 2000.0
Factors = Float[AnyArray, " groups"]


class Found(NamedTuple):
    """Factors, what they are worth exactly, the bound, and what all groups alike are worth."""

    x: Factors
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
        self._steps, self._tolerance, self._seed = steps, tolerance, seed
        self._advance = descent.advancing(goal, _RATE, steps, min(_TURNS, steps))
        self.points: list[tuple[int, float, float]] = []
        self.steps_taken = self.evaluations = self.solves = 0
        # Between descents, for the target: the round, and what is known by then.
        self._round, self._paid, self._bound, self._best = 0, 0.0, 0.0, jnp.ones_like(purse.cost)
        self._saved = kept.load() if kept else None

    def score(self, x: Factors) -> float:
        """Return the exact value."""
        self.solves += self._goal.n_phases
        self.evaluations += 1
        return float(self._goal.exact(x))

    def within(self, budget: float) -> Found:
        """Return the best factors for some money."""
        state = self._descend(budget, self._start())
        x, value = self._polished(state.x, budget)
        return Found(x, value, float(state.bound), self.score(alike(self._purse, budget)))

    def meeting(self) -> Found:
        """Return the factors that meet the target for the least money.

        A descent for some money, scaled until it just meets the target, says for how much money to
        descend next. The tangent at the end of each bounds the money.
        """
        purse = self._purse
        money = lambda x: float((purse.cost * x).sum())
        meets = self.score(_even(purse, UNLIMITED)) <= 1
        start = self._scaled(jnp.ones_like(purse.cost)) if meets else purse.most
        before = money(start) if meets else float("inf")
        self._best, self._paid = start, money(start)
        if (said := self._saved) is not None:
            self._round, self._paid, self._bound = said["round"], said["paid"], said["proved"]
            self._best = jnp.asarray(said["best"])
        while self._round < _ROUNDS:
            first = self._round == 0
            state = self._descend(self._paid, self._start() if first else logits(self._best, purse))
            x = self._scaled(state.x)
            if money(x) < self._paid:
                self._best, self._paid = x, money(x)
            here = self._goal.tangent(x, jnp.asarray(_SHARP, x.dtype))
            for u, g in ((state.offset, state.slope), here):
                least, reached = cheapest(g, u - 1, purse)
                self._bound = max(self._bound, float(least)) if bool(reached) else self._bound
            self._round += 1
            self.points.append((self.steps_taken, self._paid, self._bound))
            if self._paid <= self._bound * (1 + self._tolerance):
                break
        return Found(self._best, self._paid, self._bound, before)

    def control(self, budget: float) -> float:
        """Return the exact value of random divisions with moves between two groups."""
        count = (1 + GRADIENT_COST) * self.steps_taken
        return self.score(climbed(self._goal.least, self._purse, budget, self._seed, count))

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
        self._saved = None
        with Progress(self._steps, what="steps") as progress:
            while int(state.step) < self._steps and not self._proved(state):
                state, trace = self._advance(state, jnp.asarray(money, z.dtype), self._purse)
                self._note(trace)
                self._save(state)
                progress.update(int(state.step), float(state.value), float(state.bound))
        return state

    def _proved(self, state: descent.State) -> bool:
        return float(state.value) <= float(state.bound) * (1 + self._tolerance / 4)

    def _note(self, trace: AnyArray) -> None:
        if not self._goal.worst:  # with a target the history is of money
            rows = enumerate(np.asarray(trace, np.float64).tolist())
            self.points += [(self.steps_taken + i, a, b) for i, (a, b) in rows if i % 5 == 0]
        self.steps_taken += len(trace)
        self.evaluations += len(trace)

    def _save(self, state: descent.State) -> None:
        if self._kept is None or not (self._kept.due or int(state.step) >= self._steps):
            return
        self._kept.save(packed("state", state) | {
            "round": self._round, "paid": self._paid, "proved": self._bound,
            "best": np.asarray(self._best), "steps": self.steps_taken,
            "evaluations": self.evaluations, "points": np.array(self.points, float).reshape(-1, 3),
        })  # fmt: skip

    def _polished(self, x: Factors, budget: float) -> tuple[Factors, float]:
        """Return the factors, improved by exact gradients where fair sharing wastes some links."""
        value = self.score(x)
        if value <= float(self._goal.least(x)) * (1 + self._tolerance / 4):
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

    def _scaled(self, x: Factors) -> Factors:
        """Return factors in the same proportions that just meet the target."""
        clip = lambda s: jnp.clip(x * s, self._purse.least, self._purse.most)
        fast = _crossing(lambda s: 1 / float(self._goal.least(clip(s))))[1]
        if self.score(clip(fast)) <= 1 + 1e-9:
            return clip(fast)
        return clip(_crossing(lambda s: 1 / self.score(clip(s)), fast, fast * 1e3)[1])


def alike(purse: Purse, money: float) -> Factors:
    """Return one factor for all groups that the money pays for, within the limits of each."""
    return _even(purse, _crossing(lambda s: float((purse.cost * _even(purse, s)).sum()) / money)[0])


def _even(purse: Purse, s: float) -> Factors:
    return jnp.clip(s * jnp.ones_like(purse.cost), purse.least, purse.most)


def _crossing(
    rising: Callable[[float], float], low: float = 1e-9, high: float = UNLIMITED
) -> tuple[float, float]:
    """Return a bracket of where a rising function reaches 1."""
    a, b = np.log(low), np.log(high)
    while b - a > 1e-12:
        middle = (a + b) / 2
        a, b = (middle, b) if rising(float(np.exp(middle))) < 1 else (a, middle)
    return float(np.exp(a)), float(np.exp(b))
