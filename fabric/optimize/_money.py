"""Money divided over groups of links: as logits, and the best division for a tangent.

A group gets `cost` x `factor` of the money, its factor no less than `least` and no more than
`most`. A step time is convex in the logarithms of the factors, since seconds on the wire are sums
and maxima of 1 / factor; so a tangent T + g (y - y0) in y = log factor is a bound everywhere, and
over all that some money buys it is least where money is divided in proportion to -g.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

_HALVINGS = 80
Array = Any


class Purse(NamedTuple):
    """What can be bought.

    Attributes:
        cost: (groups,), money for a factor of 1.
        least, most: (groups,), limits of the factors.
    """

    cost: Float[Array, " groups"]
    least: Float[Array, " groups"]
    most: Float[Array, " groups"]


def factors(z: Float[Array, "*rows groups"], money: Array, purse: Purse) -> jax.Array:
    """Return the factors that softmax(z) of the free money buys beyond `least`."""
    free = money - (purse.cost * purse.least).sum()
    bought = purse.least + jax.nn.softmax(z, axis=-1) * free / purse.cost
    return jnp.minimum(bought, purse.most)


def logits(x: Float[Array, " groups"], purse: Purse) -> jax.Array:
    """Return logits whose factors are in proportion to some, as far as these exceed `least`."""
    above = purse.cost * (x - purse.least)
    return jnp.log(jnp.maximum(above, 1e-3 * jnp.maximum(above.sum(), 1e-300) / x.shape[-1]))


def richest(w: Float[Array, "*rows groups"], money: Array, purse: Purse) -> jax.Array:
    """Return log factors within the money for which the sum of w x log factor is largest.

    By bisection on the factor per weight, from above: a sliver more than the money is spent, so
    that the sum is no less than the largest. Groups of weight 0 get `least`.
    """
    spent = lambda mu: (purse.cost * _clipped(w, mu, purse)).sum(-1)
    return _log(_clipped(w, _bisect(spent, money, w), purse))


def cheapest(w: Float[Array, " groups"], want: Array, purse: Purse) -> tuple[jax.Array, jax.Array]:
    """Return the least money for which the sum of w x log factor is as wanted, and if any does.

    The money is a sliver too low, so that it is a bound.
    """
    some = w > 0
    total = lambda mu: jnp.where(some, w * _log(_clipped(w, mu, purse)), 0).sum(-1)
    high = _bisect(total, want, w)
    shrunk = _clipped(w, high * (1 - 1e-9), purse)
    reached = total(jnp.asarray(1e200 if w.dtype == jnp.float64 else 1e30, w.dtype)) >= want
    return (purse.cost * shrunk).sum(-1), reached


def _clipped(w: jax.Array, mu: jax.Array, purse: Purse) -> jax.Array:
    return jnp.clip(w * mu[..., None] / purse.cost, purse.least, purse.most)


def _log(x: jax.Array) -> jax.Array:
    return jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))


def _bisect(rising: Any, want: Array, w: jax.Array) -> jax.Array:
    """Return the upper end of a bracket of the point where a rising function is as wanted."""
    wide = 300.0 if w.dtype == jnp.float64 else 60.0
    ends = jnp.full(w.shape[:-1], wide, w.dtype)

    def halved(_: Any, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) / 2
        below = rising(jnp.exp(middle)) < want
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    return jnp.exp(jax.lax.fori_loop(0, _HALVINGS, halved, (-ends, ends))[1])
