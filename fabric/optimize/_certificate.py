"""What no split can beat: a bound from prices, and the loads that a split makes.

Of any prices q >= 0 on links, with `sum_e q_e c_e = 1`, the largest utilisation is at least the
cost of sending everything the cheapest way. With several matrices there are prices for each, whose
weights add up to one of the averages that the objective takes the worst of.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

Array = Any
"""A NumPy array, or one of JAX: the formulas are the same."""


class Limit(NamedTuple):
    """How much of the traffic may leave its present paths."""

    today: Float[Array, "pairs width"]
    mass: Float[Array, " pairs"]  # traffic of the pair, as a share of all
    most: float | Array


def risk_weights(
    xp: Any,
    worst: Float[Array, " matrices"],
    share: Float[Array, " matrices"],
    over: str,
    tail: float | Array,
    power: float | Array,
) -> Float[Array, " matrices"]:
    """Return the weight of every matrix in the objective, 1 in all.

    Args:
        xp: `numpy` or `jax.numpy`.
        worst: (matrices,), the largest utilisation of each.
        share: (matrices,), how often each of them runs, 1 in all.
        over: "worst": a soft maximum of the power; "mean" and "sum": the shares; "cvar": those of
            the worst `tail` of them.
        tail: From 0 to 1.
        power: Of the soft maximum.
    """
    if over == "worst":
        top = worst.max()
        soft = xp.exp(power * xp.log(worst / top))
        return soft / soft.sum()
    if over != "cvar":
        return share
    order = xp.argsort(-worst)
    before = xp.cumsum(share[order]) - share[order]
    counted = xp.clip(tail - before, 0, share[order]) / tail
    return counted[xp.argsort(order)]


def risk(
    worst: Float[np.ndarray, " matrices"],
    share: Float[np.ndarray, " matrices"],
    over: str,
    tail: float,
) -> float:
    """Return the objective of the largest utilisation of every matrix."""
    if over == "worst":
        return float(worst.max())
    return float(risk_weights(np, worst, share, over, tail, 1.0) @ worst)


def averaged(
    paid: Float[np.ndarray, " matrices"],
    share: Float[np.ndarray, " matrices"],
    over: str,
    tail: float,
) -> Float[np.ndarray, " matrices"]:
    """Return weights near `paid` of an average that the objective is never below."""
    if over == "worst":
        return paid / paid.sum()
    if over != "cvar":
        return share
    most, weight = share / tail, paid / paid.sum()
    for _ in range(len(paid)):  # what is over the limit of some goes to the others
        weight = np.minimum(weight, most)
        free = weight < most
        rest = 1 - weight.sum()
        if rest <= 1e-15 or not weight[free].sum() > 0:
            break
        weight = np.where(free, weight * (1 + rest / weight[free].sum()), weight)
    return np.minimum(weight, most)


def price_bound(
    xp: Any,
    marginal: Float[Array, "pairs width"],
    valid: Bool[Array, "pairs width"],
    limit: Limit | None = None,
) -> Float[Array, ""]:
    """Return the least that `sum marginal * splits` can be, over all splits.

    With a limit, over all splits that move at most so much traffic: the moves that save most per
    unit of traffic moved come first, which is a fractional knapsack.
    """
    least = xp.min(xp.where(valid, marginal, xp.inf), axis=1)
    if limit is None:
        return least.sum()
    mass = limit.today * limit.mass[:, None]
    saved = xp.where(mass > 0, limit.today * (marginal - least[:, None]), 0).ravel()
    mass = mass.ravel()
    ratio = xp.where(mass > 0, saved / xp.where(mass > 0, mass, 1), 0)
    order = xp.argsort(-ratio)
    before = xp.cumsum(mass[order]) - mass[order]
    moved = xp.clip(limit.most - before, 0, mass[order])
    return (limit.today * marginal).sum() - (moved * ratio[order]).sum()
