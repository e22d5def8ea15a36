"""`descend`: splits by the gradient of the step through the busiest links."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from fabric.optimize import _descent
from fabric.optimize._design_loads import Loads
from fabric.optimize._layout_score import ClosedForm, Rows
from fabric.optimize._split_descent import crossings
from fabric.optimize._step_goal import norm_of
from fabric.runs import fingerprint

_RATE = 0.3


class Form(ClosedForm):
    """A closed form that equals another one of the same model, hardware and batch.

    Programs are compiled for it once, however often it is made.
    """

    def __init__(self, *asked: Any):
        super().__init__(*asked)
        self._name = fingerprint(*asked)

    def __hash__(self) -> int:
        return hash(self._name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Form) and other._name == self._name


class Pace(NamedTuple):
    """How far every step goes, and the power of its norm; the count of steps is traced."""

    rate: Float[jax.Array, " most"]
    power: Float[jax.Array, " most"]
    steps: Int[jax.Array, ""]

    @classmethod
    def of(cls, steps: int, most: int, kind: Any) -> "Pace":
        """Return the pace of so many steps, in arrays for `most`, so that both share a program."""
        at = np.arange(most)
        turned = np.cos(np.pi * np.minimum(at / steps, 1))
        rate = _RATE * (0.01 + 0.99 * (1 + turned) / 2)
        power = _descent.power(jnp.asarray(at), steps, jnp.asarray(rate, kind).dtype)
        return cls(jnp.asarray(rate, kind), power, jnp.asarray(steps))


class Tables(NamedTuple):
    """Edges of every path, and the paths that cross every edge.

    Sizes are rounded up to powers of two, so that fabrics of about the same size share a program:
    pairs that send nothing, paths that are not there, edges that no path crosses.
    """

    hops: Int[jax.Array, "paths hops"]
    rows: Int[jax.Array, "chunks chunk"]
    edge: Int[jax.Array, " chunks"]
    valid: Bool[jax.Array, "pairs width"]
    capacity: Float[jax.Array, " edges"]

    @classmethod
    def of(
        cls, hops: Int[np.ndarray, "paths hops"], valid: Bool[np.ndarray, "pairs width"],
        capacity: Float[np.ndarray, " edges"], kind: Any,
    ) -> "Tables":  # fmt: skip
        """Return those of paths; one past the last edge stands for no hop."""
        n, sizes = len(capacity), (*valid.shape, hops.shape[1])
        pairs, width, longest = map(_rounded, sizes, (128, 8, 4))
        edges = _rounded(n, 1024)
        way = np.where(hops == n, edges, hops).reshape(sizes)
        way = widened(way, (pairs, width, longest), edges).reshape(-1, longest)
        rows, edge = crossings(way, edges)
        chunks = _rounded(len(rows), 512)
        rows = widened(rows, (chunks, rows.shape[1]), len(way))
        edge = widened(edge, (chunks,), edges - 1)
        is_there = widened(valid, (pairs, width), False)
        is_there[len(valid) :, 0] = True  # a split needs one path
        room = widened(np.where(capacity > 0, capacity, 1.0), (edges,), 1.0)
        return cls(*map(jnp.asarray, (way, rows, edge, is_there, room.astype(kind))))


def widened(values: np.ndarray, shape: tuple[int, ...], fill: Any = 0) -> np.ndarray:
    """Return an array of a larger shape that begins with the given one."""
    wide = np.full(shape, fill, values.dtype)
    wide[tuple(map(slice, values.shape))] = values
    return wide


def _rounded(size: int, least: int) -> int:
    return max(1 << max(size - 1, 0).bit_length(), least)


@partial(jax.jit, static_argnums=(8,))
def descend(
    z: jax.Array, bytes_: jax.Array, ends: jax.Array, wait: jax.Array, row: Rows,
    doublings: jax.Array, tables: Tables, pace: Pace, form: Form,
) -> jax.Array:  # fmt: skip
    """Return the best splits on the way of Adam.

    Args:
        z: (pairs, width), logits.
        bytes_: (pairs, kinds).
        ends: (kinds,), seconds that splits do not change.
        wait: (kinds,), latency.
        row: One layout.
        doublings: (1,), log2 of the servers.
        tables: Of the paths.
        pace: Of the steps.
        form: The step in closed form.
    """
    import optax

    kind, n = z.dtype, len(tables.capacity)
    rule = optax.adam(lambda count: pace.rate[count])
    with jax.numpy_dtype_promotion("standard"):
        adam = rule.init(z)
    loads = Loads(jnp.zeros(0, kind), wait[None], doublings)
    room = tables.capacity[:, None]
    share = lambda z: jax.nn.softmax(jnp.where(tables.valid, z, -jnp.inf), axis=1)

    def uses(splits: jax.Array) -> jax.Array:
        sent = (splits[:, :, None] * bytes_[:, None, :]).reshape(-1, bytes_.shape[1])
        sent = jnp.concatenate([sent, jnp.zeros_like(sent[:1])])
        load = jax.ops.segment_sum(
            sent[tables.rows].sum(axis=1), tables.edge, n, indices_are_sorted=True
        )
        return load / room

    def seconds(use: jax.Array, power: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the logarithm of the smooth step, and the step."""
        terms = jnp.concatenate([use.T, ends[:, None]], axis=1)
        wires = jnp.stack([norm_of(terms, power), terms.max(axis=1)])
        smooth, exact = form.seconds(row, loads.wires(wires), xp=jnp)
        return jnp.log(smooth), exact

    def turn(step: jax.Array, state: Any) -> Any:
        z, adam, best, value = state
        splits, pull = jax.vjp(share, z)
        price, now = jax.grad(seconds, has_aux=True)(uses(splits), pace.power[step])
        best, value = jnp.where(now < value, z, best), jnp.minimum(now, value)
        price = price / room
        price = jnp.concatenate([price, jnp.zeros_like(price[:1])])
        cost = price[tables.hops].sum(axis=1).reshape(*splits.shape, -1)
        (gradient,) = pull((cost * bytes_[:, None, :]).sum(axis=2))
        z, adam = _descent.moved(rule, gradient, adam, z)
        return z, adam, best, value

    state = z, adam, z, jnp.asarray(jnp.inf, kind)
    return share(jax.lax.fori_loop(0, pace.steps, turn, state)[2])
