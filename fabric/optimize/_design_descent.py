"""The compiled descent over capacities for every layout of a space at once."""

import copy
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric._typing import AnyArray
from fabric.optimize import _descent
from fabric.optimize._design_loads import Loads
from fabric.optimize._layout_score import ClosedForm, Rows
from fabric.optimize._money import Purse, factors, richest
from fabric.optimize._step_goal import mean_of, norm_of

_RATE, _SHARP, _LATE = 0.3, 2000.0, 0.1
_PROVING = 40


class Design:
    """Layouts, and what their exchanges put on every group of links.

    Args:
        form: The step model.
        columns: (shapes,), the layouts of a space.
        shape_of: (rows,), the shape of each row.
        loads: Of sets of degrees.
        sets: (rows,), the set of each row.
        kind: The float type to compute in.
    """

    def __init__(
        self, form: ClosedForm, columns: Rows, shape_of: Int[np.ndarray, " rows"], loads: Loads,
        sets: Int[np.ndarray, " rows"], kind: np.dtype,
    ):  # fmt: skip
        self._form, self._columns, self._kind = form, columns, np.dtype(kind)
        self._loads, self._sets, self._shape_of = loads, sets, shape_of
        # Without the gather of ZeRO-2, which hides behind a pass that other waiting makes longer.
        self._bare = copy.copy(form)
        self._bare._weight = 0

    def some(self, rows: Int[np.ndarray, " some"]) -> "Design":
        """Return the design of some rows."""
        return Design(
            self._form, self._columns, self._shape_of[rows], self._loads, self._sets[rows],
            self._kind,
        )  # fmt: skip

    @property
    def table(self) -> tuple[Rows, Loads]:
        """The columns and loads of every row."""
        rows = Rows(*(np.asarray(c, self._kind)[self._shape_of] for c in self._columns))
        return rows, self._loads.taken(self._kind, self._sets)

    def time(
        self, table: tuple[Rows, Loads], x: Float[AnyArray, "*rows groups"], most: Any,
        lower: bool = False,
    ) -> jax.Array:  # fmt: skip
        """Return the seconds of every row. Traced.

        Args:
            table: As of `table`.
            x: Factors, for all rows or one each.
            most: From (rows, kinds, groups + 1) seconds of the busiest links to those that count.
            lower: Return what is below the step and convex in log x, ZeRO-2 included.
        """
        rows, loads = table
        wide = jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1), x.dtype)], axis=-1)
        wires = loads.wires(most(loads.seconds / wide[..., None, :]))
        whole = self._form.seconds(rows, wires, xp=jnp, lower=lower)
        if not lower:
            return whole
        bare = self._bare.seconds(rows, wires, xp=jnp, lower=True) - wires.dp_wait
        return jnp.where(rows.zero == 2, bare, whole)

    def seconds(self, x: Float[AnyArray, " groups"], lower: bool = False) -> np.ndarray:
        """Return the seconds of every row at some capacities, links shared as well as can be."""
        at = jax.jit(lambda table, x: self.time(table, x, _hard, lower))
        return np.asarray(at(self.table, x), np.float64)

    def fastest(self, x: Float[AnyArray, " groups"]) -> jax.Array:
        """Return the seconds of the fastest row. Traced."""
        return self.time(self.table, x, _hard).min()


class Descended(NamedTuple):
    """The best of every row: seconds, and the factors; the least of all after every step."""

    value: Float[np.ndarray, " rows"]
    x: Float[np.ndarray, "rows groups"]
    trace: Float[np.ndarray, " steps"]
    seconds: float


def _hard(terms: jax.Array) -> jax.Array:
    return terms.max(axis=-1)


def descended(
    design: Design, purse: Purse, money: float, z: Float[AnyArray, "rows groups"], steps: int
) -> Descended:
    """Return the least seconds of every row, by Adam on their logarithms."""
    rule, kind = _descent.adam(_RATE, steps), z.dtype

    def turn(state: Any, step: jax.Array, table: Any, purse: Purse) -> tuple[Any, jax.Array]:
        z, adam, value, best = state
        power = _descent.power(step, steps, kind)
        x = factors(z, money, purse)

        def loss(z: jax.Array) -> jax.Array:
            soft = lambda terms: norm_of(terms, power)
            return jnp.log(design.time(table, factors(z, money, purse), soft)).sum()

        gradient = jax.grad(loss)(z)
        now = design.time(table, x, _hard)
        wins = now < value
        best = jnp.where(wins[:, None], x, best)
        value = jnp.minimum(now, value)
        z, adam = _descent.moved(rule, gradient, adam, z)
        return (z, adam, value, best), value.min()

    @jax.jit
    def descend(z: jax.Array, table: Any, purse: Purse) -> tuple[Any, jax.Array]:
        with jax.numpy_dtype_promotion("standard"):
            adam = rule.init(z)
        infinite = jnp.full(z.shape[0], jnp.inf, kind)
        state = z, adam, infinite, factors(z, money, purse)
        return jax.lax.scan(
            lambda s, i: turn(s, i, table, purse), state, jnp.arange(steps)
        )  # fmt: skip

    table = jax.tree.map(jnp.asarray, design.table)
    compiled = descend.lower(z, table, purse).compile()
    begun = time.perf_counter()
    (_, _, value, best), trace = jax.block_until_ready(compiled(z, table, purse))
    took = time.perf_counter() - begun
    wide = lambda a: np.asarray(a, np.float64)
    return Descended(wide(value), wide(best), wide(trace), took)


def proved(
    design: Design, found: Descended, purse: Purse, money: float
) -> Float[np.ndarray, " rows"]:
    """Return what no division of the money beats, for every row.

    By tangents around the best division, whose average meets several maxima at once.
    """
    kind = purse.cost.dtype

    def tangent(table: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        power = jnp.asarray(_SHARP, kind)
        y = jnp.log(x)
        mean = lambda terms: mean_of(terms, power)
        below = lambda y: design.time(table, jnp.exp(y), mean, lower=True)
        value, back = jax.vjp(below, y)
        slope = jnp.maximum(-back(jnp.ones_like(value))[0], 0)
        return value + (slope * y).sum(-1), slope

    @jax.jit
    def bound(table: Any, x: jax.Array, purse: Purse) -> jax.Array:
        def turn(state: Any, step: jax.Array) -> tuple[Any, None]:
            offset, slope, x, best = state
            u, g = tangent(table, x)
            late = jnp.maximum(1 / (step + 1).astype(kind), jnp.asarray(_LATE, kind))
            offset = offset + late * (u - offset)
            slope = slope + late[..., None] * (g - slope)
            worth = lambda u, g: u - (g * richest(g, money, purse)).sum(-1)
            best = jnp.maximum(best, jnp.maximum(worth(u, g), worth(offset, slope)))
            # Where the tangent would have the money: a step of the way there.
            ideal = jnp.exp(richest(slope, money, purse))
            safe = jnp.maximum(ideal, x * 0.5)
            return (offset, slope, x**0.9 * safe**0.1, best), None

        none = jnp.zeros(x.shape[0], kind)
        state = none, jnp.zeros_like(x), x, jnp.full_like(none, -jnp.inf)
        return jax.lax.scan(turn, state, jnp.arange(_PROVING))[0][3]

    found_at = jnp.asarray(np.maximum(found.x, np.finfo(kind).tiny), kind)
    table = jax.tree.map(jnp.asarray, design.table)
    return np.asarray(bound(table, found_at, purse), np.float64)
