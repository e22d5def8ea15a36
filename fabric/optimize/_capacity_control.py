"""What capacities are found without gradients: random divisions of the money, then moves."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fabric.optimize._money import Purse

_DRAWN = 0.1  # share of the scores that go to random divisions


def climbed(
    goal: Callable[[jax.Array], jax.Array], purse: Purse, money: float, seed: int, count: int
) -> jax.Array:
    """Return the best factors of so many scores.

    A tenth of the scores goes to random divisions of the money. From the best of them a random
    part of the money of a random group moves to another, and stays there if that helps.

    Args:
        goal: What is to be small, by the factors.
        purse: What can be bought.
        money: That is spent.
        seed: Of the draws.
        count: Scores.
    """
    kind, n = purse.cost.dtype, purse.cost.shape[0]
    free = money - (purse.cost * purse.least).sum()
    worth = lambda share: jnp.minimum(purse.least + share * free / purse.cost, purse.most)
    score = lambda share: goal(worth(share))

    def better(state: Any, share: jax.Array) -> Any:
        value = score(share)
        wins = value < state[1]
        return jnp.where(wins, share, state[0]), jnp.where(wins, value, state[1])

    drawn = max(int(_DRAWN * count), 1)

    def turn(state: Any, given: Any) -> tuple[Any, None]:
        number, key = given
        a, b, c, d = jax.random.split(key, 4)
        giver = jax.random.randint(a, (), 0, n)
        taker = (giver + jax.random.randint(b, (), 1, max(n, 2))) % n
        part = state[0][giver] * 10.0 ** jax.random.uniform(c, (), kind, -4, 0)
        moved = state[0].at[giver].add(-part).at[taker].add(part)
        share = jnp.where(number < drawn, jax.random.dirichlet(d, jnp.ones(n, kind)), moved)
        return better(state, share), None

    @jax.jit
    def search(key: jax.Array) -> jax.Array:
        state = jnp.full(n, 1 / n, kind), jnp.asarray(jnp.inf, kind)
        turns = jnp.arange(count), jax.random.split(key, count)
        state, _ = jax.lax.scan(turn, state, turns)
        return worth(state[0])

    return search(jax.random.key(seed))
