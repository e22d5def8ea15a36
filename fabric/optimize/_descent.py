"""The optimiser that gradients are handed to: Adam, its rate falling as a cosine to 1 %."""

from typing import Any

import jax
import jax.numpy as jnp

FIRST_POWER, LAST_POWER = 3.0, 2000.0


def adam(rate: float, steps: int) -> Any:
    """Return Adam of optax, whose rate falls from `rate` to 1 % of it over the steps."""
    import optax

    return optax.adam(optax.cosine_decay_schedule(rate, max(steps, 1), alpha=0.01))


def moved(rule: Any, gradient: Any, state: Any, at: Any) -> tuple[Any, Any]:
    """Return where a step leads, and the next state of the optimiser."""
    import optax

    # optax multiplies whole numbers with floats, which strict promotion would refuse.
    with jax.numpy_dtype_promotion("standard"):
        update, state = rule.update(gradient, state, at)
        return optax.apply_updates(at, update), state


def power(step: Any, steps: int, kind: Any) -> jax.Array:
    """Return the exponent of the norm at a step: from 3 to 2,000, geometric."""
    share = step.astype(kind) / jnp.asarray(max(steps - 1, 1), kind)
    ratio = jnp.asarray(LAST_POWER / FIRST_POWER, kind)
    return jnp.asarray(FIRST_POWER, kind) * ratio ** jnp.minimum(share, jnp.ones_like(share))
