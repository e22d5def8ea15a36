"""The compiled search for capacities: softmax of the money, Adam on the log of the smooth goal."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from fabric._typing import AnyArray
from fabric.optimize import _descent
from fabric.optimize._money import Purse, factors, richest
from fabric.optimize._step_goal import Shared

_LATE = 0.1  # weight of the latest tangent in the average


class State(NamedTuple):
    """Where a search is.

    Attributes:
        step: Steps taken.
        z, adam: Logits, and the optimiser.
        value: The least value of the goal, links shared as well as they can be.
        x: (groups,), the factors that gave it.
        bound: The largest bound.
        offset, slope: A tangent, averaged over the last steps.
    """

    step: Int[AnyArray, ""]
    z: Float[AnyArray, " groups"]
    adam: Any
    value: Float[AnyArray, ""]
    x: Float[AnyArray, " groups"]
    bound: Float[AnyArray, ""]
    offset: Float[AnyArray, ""]
    slope: Float[AnyArray, " groups"]


def begun(z: jax.Array, rate: float, steps: int) -> State:
    """Return the state before the first step."""
    kind = z.dtype
    with jax.numpy_dtype_promotion("standard"):
        adam = _descent.adam(rate, steps).init(z)
    infinite, zero = jnp.asarray(jnp.inf, kind), jnp.zeros((), kind)
    none = jnp.zeros_like(z)
    return State(jnp.asarray(0), z, adam, infinite, none, -infinite, zero, none)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def advance(
    goal: Shared, rate: float, steps: int, turns: int, state: State, money: jax.Array, purse: Purse
) -> tuple[State, Float[AnyArray, "turns 2"]]:
    """Return the state after so many steps, and the best value and bound after each."""
    rule = _descent.adam(rate, steps)

    def turn(state: State, _: Any) -> tuple[State, jax.Array]:
        kind = state.z.dtype
        power = _descent.power(state.step, steps, kind)
        smooth = lambda z: jnp.log(goal.smooth(factors(z, money, purse), power))
        gradient = jax.grad(smooth)(state.z)
        x = factors(state.z, money, purse)
        value = goal(x)
        better = value < state.value
        u, g = goal.tangent(x, power)
        late = jnp.where(state.step == 0, jnp.ones((), kind), jnp.asarray(_LATE, kind))
        offset = state.offset + late * (u - state.offset)
        slope = state.slope + late * (g - state.slope)
        both = jnp.stack([g, slope])
        least = jnp.stack([u, offset]) - (both * richest(both, money, purse)).sum(-1)
        bound = least.max()
        z, adam = _descent.moved(rule, gradient, state.adam, state.z)
        state = State(
            state.step + 1, z, adam, jnp.minimum(value, state.value),
            jnp.where(better, x, state.x), jnp.fmax(bound, state.bound), offset, slope,
        )  # fmt: skip
        return state, jnp.stack([state.value, state.bound])

    return jax.lax.scan(turn, state, None, length=turns)


valued = jax.jit(lambda goal, x: goal(x), static_argnums=0)
"""The value of a goal; one program for all equal goals."""

touched = jax.jit(lambda goal, x, power: goal.tangent(x, power), static_argnums=0)
"""A tangent of a goal; one program for all equal goals."""
