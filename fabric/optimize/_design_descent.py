"""The compiled descent over capacities for every layout of a space at once."""

import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric._typing import AnyArray
from fabric.optimize import _descent
from fabric.optimize._design_loads import Kept, Loads
from fabric.optimize._layout_score import ClosedForm, Rows
from fabric.optimize._money import Purse, factors, richest
from fabric.optimize._step_goal import mean_of, norm_of
from fabric.runs import Progress, fingerprint

_RATE, _SHARP, _LATE = 0.3, 2000.0, 0.1
_PROVING, _PART, _FEW = 40, 4096, 8


class StepColumns:
    """The seconds of a table of layouts; equal, and of one compiled program, for equal jobs.

    Args:
        form: The step model.
        job: What decides about it.
    """

    def __init__(self, form: ClosedForm, *job: Any):
        self._form, self._key = form, fingerprint(*job)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepColumns) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __call__(
        self, table: tuple[Rows, Loads], x: Float[AnyArray, "*rows groups"], most: Any,
        lower: bool = False,
    ) -> jax.Array:  # fmt: skip
        """Return the seconds of every row. Traced.

        Args:
            table: The columns and loads of the rows.
            x: Factors, for all rows or one each.
            most: From (rows, kinds, groups + 1) seconds of the busiest links to those that count.
            lower: Return what no slower links can beat. Its tangents in log x are below the step
                everywhere: where ZeRO-2 would bend it the wrong way, only what is exposed in any
                case counts.
        """
        rows, loads = table
        wide = jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1), x.dtype)], axis=-1)
        wires = loads.wires(most(loads.seconds / wide[..., None, :]))
        return self._form.seconds(rows, wires, xp=jnp, lower=lower)


class Design:
    """Layouts, and what their exchanges put on every group of links.

    Args:
        time: Seconds of a table.
        columns: (shapes,), the layouts of a space.
        shape_of: (rows,), the shape of each row.
        loads: Of sets of degrees.
        sets: (rows,), the set of each row.
        kind: The float type to compute in.
    """

    def __init__(
        self, time: StepColumns, columns: Rows, shape_of: Int[np.ndarray, " rows"], loads: Loads,
        sets: Int[np.ndarray, " rows"], kind: np.dtype,
    ):  # fmt: skip
        self.time, self._columns, self._kind = time, columns, np.dtype(kind)
        self._loads, self._sets, self._shape_of = loads, sets, shape_of

    def some(self, rows: Int[np.ndarray, " some"]) -> "Design":
        """Return the design of some rows."""
        return Design(
            self.time, self._columns, self._shape_of[rows], self._loads, self._sets[rows],
            self._kind,
        )  # fmt: skip

    @property
    def n_rows(self) -> int:
        """How many layouts there are."""
        return len(self._shape_of)

    @property
    def parts(self) -> list[Int[np.ndarray, " part"]]:
        """Rows that are taken at once; parts are filled up to a power of two by repeating some."""
        rows = np.arange(self.n_rows)
        size = min(_PART, max(_FEW, 1 << (self.n_rows - 1).bit_length()))
        starts = range(0, self.n_rows, size)
        return [np.resize(rows[start : start + size], size) for start in starts]

    def table(self, some: Int[np.ndarray, " some"] | None = None) -> tuple[Rows, Loads]:
        """Return the columns and loads of rows. Default: of all."""
        of = slice(None) if some is None else some
        shapes, sets = self._shape_of[of], self._sets[of]
        rows = Rows(*(np.asarray(c, self._kind)[shapes] for c in self._columns))
        return rows, self._loads.taken(self._kind, sets)

    def seconds(self, x: Float[AnyArray, " groups"], lower: bool = False) -> np.ndarray:
        """Return the seconds of every row at some capacities, links shared as well as can be."""
        x, found = jnp.asarray(x, self._kind), np.empty(self.n_rows)
        for part in self.parts:
            found[part] = _seconds(self.time, lower, self.table(part), x)
        # Infinite less infinite: a layout that never ends a step.
        return np.nan_to_num(found, nan=np.inf, posinf=np.inf)

    @property
    def fastest(self) -> "Fastest":
        """The seconds of the fastest row, by the capacities and the tables of all parts."""
        return Fastest(self.time)

    def tables(self) -> tuple[Rows, Loads]:
        """Return the columns and loads of all parts, one part after another."""
        parts = [self.table(part) for part in self.parts]
        return jax.tree.map(lambda *columns: jnp.stack(columns), *parts)


class Fastest(NamedTuple):
    """The seconds of the fastest of some layouts; equal, and of one program, for equal jobs."""

    time: StepColumns

    def __call__(
        self, x: Float[AnyArray, " groups"], rows: Rows, loads: Loads
    ) -> Float[jax.Array, ""]:
        """Return the least seconds over all parts at some capacities. Traced."""
        of = lambda table: self.time(table, x, _hard).min()
        return jax.lax.map(of, (rows, loads)).min()


class Descended(NamedTuple):
    """The best of every row: seconds, factors, and bounds; the least of all after every step."""

    value: Float[np.ndarray, " rows"]
    x: Float[np.ndarray, "rows groups"]
    bound: Float[np.ndarray, " rows"]
    trace: Float[np.ndarray, " steps"]
    seconds: float


def _hard(terms: jax.Array) -> jax.Array:
    return terms.max(axis=-1)


def descended(
    design: Design, purse: Purse, money: float, z: Float[np.ndarray, "rows groups"], steps: int,
    kept: Kept,
) -> Descended:  # fmt: skip
    """Return the least seconds of every row by Adam on their logarithms, and bounds.

    Rows do not know of one another, and go part by part.

    Args:
        design: The rows.
        purse: What can be bought.
        money: That there is.
        z: Where to begin.
        steps: Of every row.
        kept: Has what was done before, and gets what is done.
    """
    n, groups = z.shape
    empty = np.full(n, np.inf), np.zeros((n, groups)), np.zeros(n), np.full(steps, np.inf), 0.0
    names = Descended._fields
    value, x, bound, trace, seconds = (
        kept.get(f"descent/{name}", none) for name, none in zip(names, empty, strict=True)
    )  # fmt: skip
    parts, first, kind = design.parts, kept.get("descent/parts", 0), purse.cost.dtype
    with Progress(len(parts), what="parts of the layouts") as progress:
        for i in range(first, len(parts)):
            part = parts[i]
            given = (
                jnp.asarray(z[part], kind), jax.tree.map(jnp.asarray, design.table(part)), purse,
                jnp.asarray(money, kind),
            )  # fmt: skip
            run = _compiled(design.time, steps, jax.tree.map(_shape, given))
            begun = time.perf_counter()
            found = jax.block_until_ready(run(*given))
            seconds += time.perf_counter() - begun
            # Rows that are repeated to fill the last part come out the same.
            value[part], x[part], bound[part], path = (np.asarray(a, np.float64) for a in found)
            trace = np.minimum(trace, path)
            state = zip(names, (value, x, bound, trace, seconds), strict=True)
            told = {f"descent/{name}": one for name, one in state} | {"descent/parts": i + 1}
            kept.put(told, done=i + 1 == len(parts))
            progress.update(i + 1, float(value.min()))
    return Descended(value, x, bound, trace, seconds)


def _shape(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


@partial(jax.jit, static_argnums=(0, 1))
def _seconds(time: StepColumns, lower: bool, table: tuple[Rows, Loads], x: jax.Array) -> jax.Array:
    return time(table, x, _hard, lower)


@lru_cache(maxsize=8)
def _compiled(time: StepColumns, steps: int, shapes: Any) -> Any:
    """Return the compiled descent of a part, with bounds at its end."""
    descend, prove = _descending(time, steps), _proving(time)

    def whole(z: jax.Array, table: Any, purse: Purse, money: jax.Array) -> tuple[jax.Array, ...]:
        value, x, trace = descend(z, table, purse, money)
        return value, x, prove(table, x, purse, money), trace

    return jax.jit(whole).lower(*shapes).compile()


def _descending(time: StepColumns, steps: int) -> Callable[..., Any]:
    """Return the descent of rows: best seconds and factors of each, and the least by step."""
    rule = _descent.adam(_RATE, steps)

    def turn(
        state: Any, step: jax.Array, table: Any, purse: Purse, money: jax.Array
    ) -> tuple[Any, jax.Array]:
        z, adam, value, best = state
        power = _descent.power(step, steps, z.dtype)
        x = factors(z, money, purse)

        def loss(z: jax.Array) -> jax.Array:
            soft = lambda terms: norm_of(terms, power)
            return jnp.log(time(table, factors(z, money, purse), soft)).sum()

        gradient = jax.grad(loss)(z)
        now = time(table, x, _hard)
        wins = now < value
        best = jnp.where(wins[:, None], x, best)
        value = jnp.minimum(now, value)
        z, adam = _descent.moved(rule, gradient, adam, z)
        return (z, adam, value, best), value.min()

    def descend(z: jax.Array, table: Any, purse: Purse, money: jax.Array) -> tuple[jax.Array, ...]:
        with jax.numpy_dtype_promotion("standard"):
            adam = rule.init(z)
        infinite = jnp.full(z.shape[0], jnp.inf, z.dtype)
        state = z, adam, infinite, factors(z, money, purse)
        state, trace = jax.lax.scan(
            lambda s, i: turn(s, i, table, purse, money), state, jnp.arange(steps)
        )  # fmt: skip
        return state[2], state[3], trace

    return descend


def _proving(time: StepColumns) -> Callable[..., jax.Array]:
    """Return what says, for every row, what no division of the money beats.

    By tangents around the best division, whose average meets several maxima at once.
    """

    def tangent(table: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        power = jnp.asarray(_SHARP, x.dtype)
        y = jnp.log(x)
        mean = lambda terms: mean_of(terms, power)
        below = lambda y: time(table, jnp.exp(y), mean, lower=True)
        value, back = jax.vjp(below, y)
        slope = jnp.maximum(-back(jnp.ones_like(value))[0], 0)
        return value + (slope * y).sum(-1), slope

    def bound(table: Any, x: jax.Array, purse: Purse, money: jax.Array) -> jax.Array:
        kind = x.dtype

        def turn(state: Any, step: jax.Array) -> tuple[Any, None]:
            offset, slope, x, best = state
            u, g = tangent(table, x)
            late = jnp.maximum(1 / (step + 1).astype(kind), jnp.asarray(_LATE, kind))
            offset = offset + late * (u - offset)
            slope = slope + late[..., None] * (g - slope)
            both = jnp.stack([g, slope])
            rich = richest(both, money, purse)
            worth = jnp.stack([u, offset]) - (both * rich).sum(-1)
            best = jnp.maximum(best, worth.max(axis=0))
            # Where the tangent would have the money: a step of the way there.
            ideal = jnp.exp(rich[1])
            safe = jnp.maximum(ideal, x * 0.5)
            return (offset, slope, x**0.9 * safe**0.1, best), None

        none = jnp.zeros(x.shape[0], kind)
        state = none, jnp.zeros_like(x), x, jnp.full_like(none, -jnp.inf)
        return jax.lax.scan(turn, state, jnp.arange(_PROVING))[0][3]

    return bound
