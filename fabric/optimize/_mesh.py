"""Blocks joined by circuits: what direct and one-transit splits load, and descent on them.

Shares are dense, `share[i, k, j]`: of the traffic from i to j what goes by k, and k = i is the
direct way. Circuits are symmetric, so a pair has the same capacity both ways.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Num

from fabric._typing import AnyArray
from fabric.optimize._descent import FIRST_POWER, LAST_POWER

_LARGEST_STEP, _LAST_STEP = 0.05, 0.01
_MEMORY = 0.99
_SINKHORN = 30
_TINY = 1e-30
_NO_PORT = 1e-6


class Best(NamedTuple):
    """The best iterate, its largest utilisation, and prices of links where the descent ended."""

    utilisation: AnyArray
    params: Any
    price: AnyArray


def usable(circuits: AnyArray) -> Bool[np.ndarray, "blocks blocks blocks"]:
    """Return which ways there are, over pairs that have circuits."""
    itself = np.eye(len(circuits), dtype=bool)
    there = (np.asarray(circuits) > 0) | itself
    ends = itself[:, None, :] | itself[None, :, :]
    return there[:, :, None] & there[None, :, :] & ~ends


def loads(demand: AnyArray, share: AnyArray) -> Any:
    """Return what every pair carries: (blocks, blocks), from row to column."""
    flow = demand[:, None, :] * share
    first = flow.sum(2)
    return first * (1 - np.eye(len(demand), dtype=demand.dtype)) + flow.sum(0)


def utilisation(demand: np.ndarray, circuits: np.ndarray, share: np.ndarray) -> float:
    """Return the largest load over capacity, in units of a circuit; infinite where a way lacks."""
    load = loads(demand, share)
    if (load[circuits <= 0] > 0).any():
        return float("inf")
    return float((load[circuits > 0] / circuits[circuits > 0]).max(initial=0.0))


def shares(logits: AnyArray, open_ways: AnyArray) -> Any:
    """Return the split of every pair: a softmax over its ways."""
    return jnp.where(open_ways, jax.nn.softmax(jnp.where(open_ways, logits, -1e9), axis=1), 0)


def sinkhorn(
    weight: Float[AnyArray, "blocks blocks"], ports: Num[AnyArray, " blocks"]
) -> Float[Array, "blocks blocks"]:
    """Return symmetric circuits in proportion to exp(weight), whose rows use at most the ports."""
    n = len(ports)
    weight = jnp.where(jnp.eye(n, dtype=bool), -jnp.inf, (weight + weight.T) / 2)
    want = jnp.log(jnp.maximum(ports, _NO_PORT))

    def halve(scale: Any, _: None) -> Any:
        return (scale + want - jax.nn.logsumexp(weight + scale, axis=1)) / 2, None

    scale = jax.lax.scan(halve, jnp.zeros_like(ports), None, _SINKHORN)[0]
    count = jnp.exp(weight + scale[:, None] + scale)
    room = ports / count.sum(1)
    # What the iteration left over: no block may exceed its ports.
    return count * jnp.minimum(1, jnp.minimum(room[:, None], room))


def schedule(
    steps: int, softest: float = FIRST_POWER
) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " steps"]]:
    """Return exponent and step size of every step: geometric, and a cosine to 1 %."""
    along = np.linspace(0, 1, steps)
    cosine = _LAST_STEP + (1 - _LAST_STEP) * (1 + np.cos(np.pi * along)) / 2
    powers = softest * (LAST_POWER / softest) ** along
    kind = jnp.result_type(float)
    return powers.astype(kind), (_LARGEST_STEP * cosine).astype(kind)


def begin(params: Any) -> Any:
    """Return the state of a descent that has not begun: (params, optimiser, best)."""
    params = jax.tree.map(jnp.asarray, params)
    price = jnp.zeros_like(params["ways"][0])
    worst = jnp.full_like(price[0, 0], jnp.inf)
    return params, _adam().init(params), Best(worst, params, price)


@jax.jit
def relax(state: Any, powers: AnyArray, sizes: AnyArray, demand: AnyArray, ports: AnyArray) -> Any:
    """Return a state after some steps on splits ("ways") and circuits ("mesh") together."""
    open_ways = jnp.asarray(usable(1 - np.eye(len(ports))))

    def look(params: Any) -> Any:
        passes = (ports > 0)[None, :, None]
        return sinkhorn(params["mesh"], jnp.asarray(ports)), shares(
            params["ways"], open_ways & passes
        )

    return _descend(look, state, powers, sizes, demand)


def route(
    state: Any, powers: AnyArray, sizes: AnyArray, demand: AnyArray, circuits: AnyArray
) -> Any:
    """Return a state after some steps on the splits alone, of circuits as they are."""
    there = (circuits > 0) | jnp.eye(len(circuits), dtype=bool)
    open_ways = there[:, :, None] & there[None] & jnp.asarray(usable(1 - np.eye(len(circuits))))

    def look(params: Any) -> Any:
        return circuits, shares(params["ways"], open_ways)

    return _descend(look, state, powers, sizes, demand)


@jax.jit
def route_all(
    ways: AnyArray, powers: AnyArray, sizes: AnyArray, demand: AnyArray, circuits: AnyArray
) -> Best:
    """Return the best splits of many sets of circuits, (candidates, ...), each from `ways`."""
    one = lambda way, mesh: route(begin({"ways": way}), powers, sizes, demand, mesh)[2]
    return jax.vmap(one)(ways, circuits)


def _adam() -> Any:
    import optax

    # Under a hard norm slopes jump from link to link: the usual memory of a thousand steps keeps
    # the step small long after. Those of a hundred thousand splits are small: the usual 1e-8 too.
    return optax.scale_by_adam(b2=_MEMORY, eps=1e-14)


def _descend(look: Any, state: Any, powers: AnyArray, sizes: AnyArray, demand: AnyArray) -> Any:
    adam = _adam()

    def loss(params: Any, power: Any) -> Any:
        circuits, share = look(params)
        used = jnp.log(loads(demand, share) + _TINY) - jnp.log(jnp.maximum(circuits, _TINY))
        used = jnp.where(circuits > 0, used, -jnp.inf)
        price = jax.nn.softmax(power * used, axis=(0, 1)) / jnp.maximum(circuits, _TINY)
        return jax.nn.logsumexp(power * used) / power, (jnp.exp(used.max()), price)

    def step(state: Any, now: Any) -> Any:
        params, moments, best = state
        power, size = now
        (_, (top, price)), slope = jax.value_and_grad(loss, has_aux=True)(params, power)
        better = top < best.utilisation
        kept = jax.tree.map(lambda a, b: jnp.where(better, a, b), params, best.params)
        best = Best(jnp.minimum(top, best.utilisation), kept, price)
        # optax multiplies whole numbers with floats, which strict promotion would refuse.
        with jax.numpy_dtype_promotion("standard"):
            change, moments = adam.update(slope, moments)
        params = jax.tree.map(lambda a, b: a - size * b, params, change)
        return (params, moments, best), None

    return jax.lax.scan(step, state, (powers, sizes))[0]
