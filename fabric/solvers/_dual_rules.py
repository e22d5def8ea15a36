"""One-sided derivatives of the kinked functions: a value and its tangent in, the same pair out.

Each takes the value x and its one-sided tangent dx, and returns f(x) and the limit of
(f(x + h dx + o(h)) - f(x)) / h as h falls to 0. Values that compete compare as equal when they
differ by less than 1e-12 (float32: 16 ulp), relative to the smaller of them: two rates that are
equal in exact arithmetic reach the computer with different roundings. The measure is the values
as they are compared, so compare rates with each other and with a target,
`maximum(rate, target) - target`, rather than a difference with 0, of which nothing tells how
large its rounding is.
"""

import jax
import jax.numpy as jnp

from fabric._typing import AnyArray
from fabric.kernels._dual_rounds import NEAR_ULPS

Axis = int | tuple[int, ...] | None
Values = AnyArray | float
Pair = tuple[jax.Array, jax.Array]


def near(x: Values, y: Values) -> jax.Array:
    """Return where two values compare as equal; an infinity equals itself only."""
    kind = jnp.result_type(x)
    slack = NEAR_ULPS.get(jnp.dtype(kind), 16) * float(jnp.finfo(kind).eps)
    gap, size = jnp.abs(x - y), jnp.minimum(jnp.abs(x), jnp.abs(y))
    return (x == y) | (gap <= slack * size)


def max(x: Values, dx: Values, axis: Axis = None) -> Pair:
    """Return the largest value and its tangent: the largest among those tied for it.

    Args:
        x: Values, of any shape.
        dx: Their tangents, of the same shape.
        axis: Static. As in `jax.numpy.max`.

    Derivatives: Not linear in `dx`, hence never a rule of `jax.grad`.

    Examples:
        >>> import jax.numpy as jnp
        >>> [float(y) for y in max(jnp.array([1.0, 1.0]), jnp.array([1.0, 0.0]))]
        [1.0, 1.0]
    """
    top = jnp.max(x, axis=axis, keepdims=True)
    tangent = jnp.max(jnp.where(near(x, top), dx, -jnp.inf), axis=axis, keepdims=True)
    tangent = jnp.where(top == top, tangent, jnp.nan)
    dropped = tuple(range(jnp.ndim(x))) if axis is None else axis
    return jnp.squeeze(top, dropped), jnp.squeeze(tangent, dropped)


def min(x: Values, dx: Values, axis: Axis = None) -> Pair:
    """Return the smallest value and its tangent: the smallest among those tied for it.

    Arguments as for `max`.
    """
    low, tangent = max(-x, -dx, axis)
    return -low, -tangent


def maximum(x: Values, dx: Values, y: Values, dy: Values) -> Pair:
    """Return the larger of two values, element by element; where they tie, the larger tangent."""
    tangent = jnp.where(x > y, dx, dy)
    return jnp.maximum(x, y), jnp.where(near(x, y), jnp.maximum(dx, dy), tangent)


def minimum(x: Values, dx: Values, y: Values, dy: Values) -> Pair:
    """Return the smaller of two values, element by element; where they tie, the smaller tangent."""
    tangent = jnp.where(x < y, dx, dy)
    return jnp.minimum(x, y), jnp.where(near(x, y), jnp.minimum(dx, dy), tangent)


def abs(x: Values, dx: Values) -> Pair:
    """Return |x| and its tangent, |dx| where x is exactly 0.

    For the distance of two values that may tie use `maximum` less `minimum`.
    """
    return jnp.abs(x), jnp.where(x == 0, jnp.abs(dx), jnp.where(x < 0, -dx, dx))


def clamp(x: Values, dx: Values, low: Values, high: Values) -> Pair:
    """Return x kept between two constants; at a bound, only a move inwards counts."""
    low, high = jnp.asarray(low, jnp.result_type(x)), jnp.asarray(high, jnp.result_type(x))
    still = jnp.zeros((), jnp.result_type(x))
    return minimum(*maximum(x, dx, low, still), high, still)


def sort(x: Values, dx: Values, axis: int = -1) -> Pair:
    """Return the values in rising order and their tangents, rising among values that tie.

    Ties are taken in chains: neighbours in order that compare as equal belong together.

    Examples:
        >>> import jax.numpy as jnp
        >>> sort(jnp.array([2.0, 1.0, 2.0]), jnp.array([5.0, 7.0, 4.0]))[1].tolist()
        [7.0, 4.0, 5.0]
    """
    value, tangent = jax.lax.sort((jnp.asarray(x), jnp.asarray(dx)), dimension=axis, num_keys=2)
    axis = axis % jnp.ndim(x)
    ahead = jax.lax.slice_in_dim(value, 1, None, axis=axis)
    behind = jax.lax.slice_in_dim(value, 0, -1, axis=axis)
    first = jnp.zeros_like(jax.lax.slice_in_dim(value, 0, 1, axis=axis), jnp.int32)
    step = (~near(ahead, behind)).astype(jnp.int32)
    group = jnp.cumsum(jnp.concatenate([first, step], axis), axis, dtype=jnp.int32)
    return value, jax.lax.sort((group, tangent), dimension=axis, num_keys=2)[1]


def completion_time(size: Values, rate: Values, rate_tangent: Values) -> Pair:
    """Return the time size / rate of every flow and its tangent; the makespan is `max` of them.

    Args:
        size: (flows,), bytes, 0 or more; a constant. Nothing to send takes no time at any rate.
        rate: (flows,), byte/s.
        rate_tangent: (flows,), byte/s per unit of the direction.

    Returns:
        Seconds, infinite at rate 0, and seconds per unit of the direction: there 0 if the rate
        stays 0, and minus infinity if it starts to grow.

    Examples:
        >>> import jax.numpy as jnp
        >>> time, tangent = completion_time(jnp.array([8.0]), jnp.array([2.0]), jnp.array([1.0]))
        >>> time.tolist(), tangent.tolist()
        ([4.0], [-2.0])
    """
    size, rate = jnp.asarray(size), jnp.asarray(rate)
    sent, moving = size > 0, rate > 0
    time = jnp.where(sent, size / jnp.where(moving, rate, 1), 0)
    tangent = -time * (rate_tangent / jnp.where(moving, rate, 1))
    stuck = jnp.where(rate_tangent > 0, -jnp.inf, jnp.zeros_like(rate))
    tangent = jnp.where(moving, tangent, jnp.where(sent, stuck, 0))
    return jnp.where(sent & ~moving, jnp.inf, time), tangent
