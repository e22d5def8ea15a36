"""The optimiser that gradients are handed to: Adam, its rate falling as a cosine to 1 %."""

from typing import Any

import jax
import jax.numpy as jnp

from fabric._typing import AnyArray

FIRST_POWER, LAST_POWER = 3.0, 2000.0


def adam(rate: float | AnyArray, steps: int | AnyArray) -> Any:
    """Return Adam of optax, whose rate falls from `rate` to 1 % of it over the steps.

    Both may be traced, so that other rates and numbers of steps need no other program.
    """
    import optax

    def falling(count: Any) -> Any:
        share = jnp.minimum(count, steps) / jnp.maximum(steps, 1)
        return rate * (0.99 * 0.5 * (1 + jnp.cos(jnp.pi * share)) + 0.01)

    return optax.adam(falling)


def moved(rule: Any, gradient: Any, state: Any, at: Any) -> tuple[Any, Any]:
    """Return where a step leads, and the next state of the optimiser."""
    import optax

    # optax multiplies whole numbers with floats, which strict promotion would refuse.
    with jax.numpy_dtype_promotion("standard"):
        update, state = rule.update(gradient, state, at)
        return optax.apply_updates(at, update), state


def power(step: Any, steps: int | AnyArray, kind: Any) -> jax.Array:
    """Return the exponent of the norm at a step: from 3 to 2,000, geometric."""
    share = step.astype(kind) / jnp.maximum(steps - 1, 1).astype(kind)
    ratio = jnp.asarray(LAST_POWER / FIRST_POWER, kind)
    return jnp.asarray(FIRST_POWER, kind) * ratio ** jnp.minimum(share, jnp.ones_like(share))
