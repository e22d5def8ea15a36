"""Water-filling of many small problems at once: global-minimum rounds as two matrix products.

All problems share their usage and differ in capacity. In every round the lowest link (or cap) of
each problem fills; the batch comes first, so that a round is two products of a tall matrix with a
small one. On problems of a few dozen links and flows this beats rounds that look at each entry.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def dense_rounds(
    capacity: Float[Array, "batch links"],
    use: Float[Array, "links flows"],
    weight: Float[Array, " flows"],
    cap: Float[Array, " flows"],
) -> Float[Array, "batch flows"]:
    """Return the rates of every problem; infinite where nothing stops a flow.

    A problem with a negative or NaN capacity has NaN rates. Every round stops a flow of each
    problem that has one left, so there are at most as many rounds as flows; what would be left
    after that is NaN too.

    Args:
        capacity: (batch, links), byte/s, 0 or more.
        use: (links, flows), load on the link per unit rate of the flow.
        weight: (flows,), more than 0.
        cap: (flows,), byte/s.
    """
    infinite = jnp.asarray(jnp.inf, capacity.dtype)
    growth = (use * weight).T
    crosses = (use > 0).astype(capacity.dtype)
    cap_level = cap / weight
    good = jnp.all(capacity >= 0, axis=1, keepdims=True)
    # Accelerators would round factors to fewer bits.
    product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)

    def fill(state: tuple[Array, ...]) -> tuple[Array, ...]:
        level, live, now, left, rounds = state
        speed = product(live, growth)
        share = now + jnp.where(speed > 0, left / jnp.where(speed > 0, speed, 1), infinite)
        lowest_cap = jnp.min(
            jnp.where(live > 0, cap_level, infinite), axis=1, keepdims=True, initial=jnp.inf
        )
        then = jnp.minimum(jnp.min(share, axis=1, keepdims=True, initial=jnp.inf), lowest_cap)
        full = (share <= then).astype(capacity.dtype)
        stopped = (product(full, crosses) > 0) | (cap_level <= then) | jnp.isinf(then)
        level = jnp.where((live > 0) & stopped, then, level)
        step = jnp.where(jnp.isinf(then), 0, then - now)
        left = jnp.maximum(left - step * speed, 0)
        return level, jnp.where(stopped, 0, live), now + step, left, rounds + 1

    shape = (len(capacity), len(weight))
    start = (
        jnp.full(shape, infinite), jnp.broadcast_to(good, shape).astype(capacity.dtype),
        jnp.zeros((len(capacity), 1), capacity.dtype), jnp.where(good, capacity, 0),
        jnp.asarray(0),
    )  # fmt: skip
    unfinished = lambda state: jnp.any(state[1] > 0) & (state[4] < len(weight))
    level, live, *_ = jax.lax.while_loop(unfinished, fill, start)
    rates = jnp.where(jnp.isinf(level), infinite, weight * level)
    return jnp.where(good & (live == 0), rates, jnp.nan)


def in_pieces(
    capacity: Float[Array, "batch links"],
    use: Float[Array, "links flows"],
    weight: Float[Array, " flows"],
    cap: Float[Array, " flows"],
    at_once: int,
) -> Float[Array, "batch flows"]:
    """Return what `dense_rounds` does, `at_once` problems at a time: their state stays in cache."""
    n = len(capacity)
    if n <= at_once:
        return dense_rounds(capacity, use, weight, cap)
    pieces = -(-n // at_once)
    # Problems of capacity 0 fill up what is missing: they are done after one round.
    padded = jnp.pad(capacity, ((0, pieces * at_once - n), (0, 0)))
    solve = lambda piece: dense_rounds(piece, use, weight, cap)
    rates = jax.lax.map(solve, padded.reshape(pieces, at_once, capacity.shape[1]))
    return rates.reshape(pieces * at_once, len(weight))[:n]
