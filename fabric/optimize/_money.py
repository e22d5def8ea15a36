"""Money divided over groups of links: as logits, and the best division for a tangent.

A group gets `cost` x `factor` of the money, its factor no less than `least` and no more than
`most`. A step time is convex in the logarithms of the factors, since seconds on the wire are sums
and maxima of 1 / factor; so a tangent T + g (y - y0) in y = log factor is a bound everywhere, and
over all that some money buys it is least where money is divided in proportion to -g.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from fabric._typing import AnyArray

_HALVINGS = 80
_ROUNDINGS = 8
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
    bought = purse.least + jax.nn.softmax(z, axis=-1) * _free(money, purse) / purse.cost
    # Never 0: logarithms of factors and quotients of loads stay finite.
    return jnp.maximum(jnp.minimum(bought, purse.most), smallest(z.dtype))


def smallest(kind: Any) -> float:
    """Return the factor below which nothing is told from zero."""
    return float(jnp.finfo(kind).tiny) ** 0.25


def logits(x: Float[Array, " groups"], purse: Purse) -> jax.Array:
    """Return logits whose factors are in proportion to some, as far as these exceed `least`."""
    above = jnp.maximum(purse.cost * (x - purse.least), 0)
    whole = above.sum(axis=-1, keepdims=True)
    share = above / jnp.where(whole > 0, whole, 1)
    return jnp.log(jnp.maximum(share, 1e-3 / x.shape[-1]))


def trimmed(
    x: Float[AnyArray, " groups"], money: float, purse: Purse
) -> Float[np.ndarray, " groups"]:
    """Return factors whose money is no more than there is, whatever was rounded before.

    Args:
        x: Factors that may cost a rounding error too much.
        money: That there is.
        purse: What can be bought.
    """
    cost, least, most = (np.asarray(a, np.float64) for a in purse)
    found = np.clip(np.asarray(x, np.float64), least, most)
    for _ in range(_ROUNDINGS):
        over, above = float(cost @ found) - money, float(cost @ (found - least))
        if over <= 0 or above <= 0:
            break
        share = over / above + float(np.finfo(np.float64).eps)
        found = least + (found - least) * max(1 - share, 0.0)
    return found


def richest(w: Float[Array, "*rows groups"], money: Array, purse: Purse) -> jax.Array:
    """Return log factors within the money for which the sum of w x log factor is largest.

    By bisection on the money per weight, from above: a sliver more than the money is spent, so
    that the sum is no less than the largest. Groups of weight 0 get `least`.
    """
    share, _ = _shares(w)
    at = lambda mu: _clipped(share, mu, money, purse)
    spent = lambda mu: (purse.cost * at(mu)).sum(-1)
    return _log(at(_bisect(spent, money, share)))


def cheapest(w: Float[Array, " groups"], want: Array, purse: Purse) -> tuple[jax.Array, jax.Array]:
    """Return the least money for which the sum of w x log factor is as wanted, and if any does.

    The money is a sliver too low, so that it is a bound.
    """
    share, whole = _shares(w)
    want, money = want / whole, purse.cost.sum()
    total = lambda x: jnp.where(share > 0, share * _log(x), 0).sum(-1)
    at = lambda mu: _clipped(share, mu, money, purse)
    high = _bisect(lambda mu: total(at(mu)), want, share)
    return (purse.cost * at(high * (1 - 1e-9))).sum(-1), total(purse.most) >= want


def _free(money: Array, purse: Purse) -> jax.Array:
    """Return the money beyond `least`; a rounding error below it counts as none."""
    return jnp.maximum(money - (purse.cost * purse.least).sum(), 0)


def _shares(w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return weights that add up to one, and what they added up to."""
    whole = w.sum(-1)
    whole = jnp.where(whole > 0, whole, 1)
    return w / whole[..., None], whole


def _clipped(share: jax.Array, mu: jax.Array, money: Array, purse: Purse) -> jax.Array:
    return jnp.clip(share * mu[..., None] * (money / purse.cost), purse.least, purse.most)


def _log(x: jax.Array) -> jax.Array:
    return jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))


def _bisect(rising: Any, want: Array, share: jax.Array) -> jax.Array:
    """Return the upper end of a bracket of the point where a rising function is as wanted."""
    wide = 300.0 if share.dtype == jnp.float64 else 60.0
    ends = jnp.full(share.shape[:-1], wide, share.dtype)

    def halved(_: Any, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) / 2
        below = rising(jnp.exp(middle)) < want
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    return jnp.exp(jax.lax.fori_loop(0, _HALVINGS, halved, (-ends, ends))[1])
