"""What capacities are found without gradients: random divisions of the money, then moves."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fabric.optimize._money import Purse

_Goal = Callable[..., jax.Array]
_DRAWN = 0.1  # share of the scores that go to random divisions


def climbed(
    goal: _Goal, purse: Purse, money: float, seed: int, count: int, given: Any = ()
) -> jax.Array:
    """Return the best factors of so many scores.

    A tenth of the scores goes to random divisions of the money. From the best of them a random
    part of the money of a random group moves to another, and stays there if that helps.

    Args:
        goal: What is to be small, by the factors and by what else is given. Equal ones share a
            compiled program.
        purse: What can be bought.
        money: That is spent.
        seed: Of the draws.
        count: Scores.
        given: Arrays that the goal takes beside the factors. Traced.
    """
    money_ = jnp.asarray(money, purse.cost.dtype)
    return _climbed(goal, count, purse, money_, jax.random.key(seed), given)


@partial(jax.jit, static_argnums=(0, 1))
def _climbed(
    goal: _Goal, count: int, purse: Purse, money: jax.Array, key: jax.Array, given: Any
) -> jax.Array:
    kind, n = purse.cost.dtype, purse.cost.shape[0]
    free = jnp.maximum(money - (purse.cost * purse.least).sum(), 0)
    worth = lambda share: jnp.minimum(purse.least + share * free / purse.cost, purse.most)
    drawn = max(int(_DRAWN * count), 1)

    def turn(state: Any, drawing: Any) -> tuple[Any, None]:
        number, key = drawing
        a, b, c, d = jax.random.split(key, 4)
        giver = jax.random.randint(a, (), 0, n)
        taker = (giver + jax.random.randint(b, (), 1, max(n, 2))) % n
        part = state[0][giver] * 10.0 ** jax.random.uniform(c, (), kind, -4, 0)
        moved = state[0].at[giver].add(-part).at[taker].add(part)
        even = jax.random.exponential(d, (n,), kind)
        share = jnp.where(number < drawn, even / even.sum(), moved)
        value = goal(worth(share), *given)
        wins = value < state[1]
        return (jnp.where(wins, share, state[0]), jnp.where(wins, value, state[1])), None

    state = jnp.full(n, 1 / n, kind), jnp.asarray(jnp.inf, kind)
    turns = jnp.arange(count), jax.random.split(key, count)
    return worth(jax.lax.scan(turn, state, turns)[0][0])
