"""The compiled search for splits: softmax, loads by gathers, prices, Adam, and the best so far."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from fabric._typing import AnyArray
from fabric.network import Network, Routes
from fabric.optimize import _descent
from fabric.optimize._certificate import Limit, price_bound, risk_weights
from fabric.solvers import max_min_rates

_CHUNK = 32
_LATE = 0.1  # weight of the latest prices in their average


class Problem(NamedTuple):
    """Arrays of a search; edges are the trunks and one row more, for what caps alone decide."""

    hops: Int[AnyArray, "rows hops"]
    rows: Int[AnyArray, "chunks chunk"]  # rows of `hops` that cross a trunk, some at a time
    trunk: Int[AnyArray, " chunks"]  # ascending
    valid: Bool[AnyArray, "pairs width"]
    demand: Float[AnyArray, "pairs matrices"]
    capacity: Float[AnyArray, " edges"]
    base: Float[AnyArray, "edges matrices"]
    share: Float[AnyArray, " matrices"]  # how often each runs, 1 in all
    limit: Limit | None


class Exact(NamedTuple):
    """What exact rates need: routes whose `part_use` follows the splits, and amounts."""

    network: Network
    routes: Routes
    part_row: Int[AnyArray, " entries"]  # split of every (pair, way, hop, link)
    part_share: Float[AnyArray, " entries"]
    part_of: Int[AnyArray, " entries"]  # which of the pairs' parts it adds to
    amount: Float[AnyArray, "matrices flows"]
    cap: Float[AnyArray, "matrices flows"]  # 0 for flows that a matrix does not have


class State(NamedTuple):
    """Where a search is."""

    step: Int[AnyArray, ""]
    logits: Float[AnyArray, "pairs width"]
    adam: Any
    objective: Float[AnyArray, ""]  # the smallest so far
    splits: Float[AnyArray, "pairs width"]  # that gave it
    bound: Float[AnyArray, ""]  # the largest so far
    prices: Float[AnyArray, "edges matrices"]  # that gave it
    mean: Float[AnyArray, "edges matrices"]  # of the prices of late
    mean_marginal: Float[AnyArray, "pairs width"]  # what a unit of each split costs at those


def crossings(
    hops: Int[np.ndarray, "rows hops"], n_trunks: int
) -> tuple[Int[np.ndarray, "chunks chunk"], Int[np.ndarray, " chunks"]]:
    """Return the rows that cross every trunk, cut into chunks, and the trunk of each chunk.

    Sums over gathered chunks need no scattered writes, whatever the number of paths on a trunk.
    """
    row, column = np.nonzero(hops < n_trunks)
    trunk = hops[row, column]
    order = np.argsort(trunk, kind="stable")
    row, trunk = row[order], trunk[order]
    count = np.bincount(trunk, minlength=n_trunks)
    first = np.cumsum(count) - count
    place = np.arange(len(row)) - first[trunk]
    chunks = -(-count // _CHUNK)
    start = np.cumsum(chunks) - chunks
    table = np.full((max(int(chunks.sum()), 1), _CHUNK), len(hops), np.int32)
    table[start[trunk] + place // _CHUNK, place % _CHUNK] = row
    of = np.repeat(np.arange(n_trunks), chunks)
    return table, (of if len(of) else np.zeros(1, np.int64)).astype(np.int32)


def begun(problem: Problem, logits: np.ndarray) -> State:
    """Return the state before the first step."""
    kind = problem.capacity.dtype
    z = jnp.asarray(logits, kind)
    with jax.numpy_dtype_promotion("standard"):
        adam = _descent.adam(0.0, 1).init(z)
    splits = splits_of(z, problem)
    prices = jnp.zeros(problem.base.shape, kind)
    infinite = jnp.asarray(jnp.inf, kind)
    # A strong type, as a checkpoint gives it back: another one would be another program.
    step = jnp.zeros((), jnp.int32)
    return State(step, z, adam, infinite, splits, -infinite, prices, prices, jnp.zeros_like(z))


def splits_of(
    logits: Float[AnyArray, "pairs width"], problem: Problem
) -> Float[AnyArray, "pairs width"]:
    """Return softmax over the ways of every pair; with a limit, drawn back towards today's."""
    split = jax.nn.softmax(jnp.where(problem.valid, logits, -jnp.inf), axis=1)
    if problem.limit is None:
        return split
    today, mass, most = problem.limit
    moves = split - today
    moved = 0.5 * (mass[:, None] * jnp.abs(moves)).sum()
    return today + moves * jnp.minimum(1, most / jnp.maximum(moved, 1e-30))


@functools.partial(jax.jit, static_argnames=("turns", "over"))
def advance(
    state: State,
    problem: Problem,
    exact: Exact | None,
    tolerance: Float[AnyArray, ""],
    tail: Float[AnyArray, ""],
    rate: Float[AnyArray, ""],
    steps: Int[AnyArray, ""],
    *,
    turns: int,
    over: str,
) -> tuple[State, Float[AnyArray, "turns 2"]]:
    """Return the state some steps later, and the best objective and bound after each.

    Steps end early where the gap is within the tolerance; the rows after are NaN.
    """
    rule = _descent.adam(rate, steps)
    kind = problem.capacity.dtype
    first = state.step

    def goes_on(carry: tuple[State, Any]) -> Any:
        now, _ = carry
        certified = now.objective <= now.bound * (1 + tolerance)
        return (now.step < first + turns) & (now.step < steps) & ~certified

    def turn(carry: tuple[State, Any]) -> tuple[State, Any]:
        now, told = carry
        power = _descent.power(now.step, steps, kind)
        splits, pull = jax.vjp(lambda z: splits_of(z, problem), now.logits)
        objective, prices, marginal = _priced(splits, problem, power, tail, over)
        # Costs are linear in prices, so those at average prices need no further look at the hops.
        late = jnp.where(now.step == 0, 1, jnp.asarray(_LATE, kind))
        mean = now.mean + late * (prices - now.mean)
        mean_marginal = now.mean_marginal + late * (marginal - now.mean_marginal)
        bound = price_bound(jnp, mean_marginal, problem.valid, problem.limit)
        bound += (mean * problem.base).sum()
        if exact is not None:
            objective, marginal = _by_rates(splits, exact, problem.share, power, tail, over)
        (gradient,) = pull(marginal / objective)
        logits, adam = _descent.moved(rule, gradient, now.adam, now.logits)
        better, tighter = objective < now.objective, bound > now.bound
        after = State(
            now.step + 1, logits, adam,
            jnp.where(better, objective, now.objective), jnp.where(better, splits, now.splits),
            jnp.where(tighter, bound, now.bound), jnp.where(tighter, mean, now.prices),
            mean, mean_marginal,
        )  # fmt: skip
        row = jnp.stack([after.objective, after.bound])
        return after, told.at[now.step - first].set(row)

    return jax.lax.while_loop(goes_on, turn, (state, jnp.full((turns, 2), jnp.nan, kind)))


def _priced(
    splits: Float[AnyArray, "pairs width"],
    problem: Problem,
    power: Float[AnyArray, ""],
    tail: Float[AnyArray, ""],
    over: str,
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return the objective, prices of trunks, and what a unit of each split costs at those."""
    sent = (splits[:, :, None] * problem.demand[:, None, :]).reshape(-1, problem.demand.shape[1])
    sent = jnp.concatenate([sent, jnp.zeros_like(sent[:1])])
    load = problem.base + jax.ops.segment_sum(
        sent[problem.rows].sum(axis=1), problem.trunk, len(problem.base), indices_are_sorted=True
    )
    use = load / problem.capacity[:, None]
    worst = use.max(axis=0)
    weight = risk_weights(jnp, worst, problem.share, over, tail, power)
    soft = jnp.exp(power * jnp.log(jnp.maximum(use, 1e-30) / jnp.maximum(worst, 1e-30)))
    prices = weight * soft / soft.sum(axis=0) / problem.capacity[:, None]
    # Row `trunks` of the prices belongs to no hop: a row of zeros stands behind it for none.
    hop_price = jnp.concatenate([prices[:-1], jnp.zeros_like(prices[:1])])[problem.hops]
    marginal = (hop_price.sum(axis=1).reshape(*splits.shape, -1) * problem.demand[:, None, :]).sum(
        axis=2
    )
    objective = worst.max() if over == "worst" else (weight * worst).sum()
    return objective, prices, marginal


def _by_rates(
    splits: Float[AnyArray, "pairs width"],
    exact: Exact,
    share: Float[AnyArray, " matrices"],
    power: Float[AnyArray, ""],
    tail: Float[AnyArray, ""],
    over: str,
) -> tuple[AnyArray, AnyArray]:
    """Return the largest amount over exact rate, and the gradient of its soft maximum."""

    def times(x: Float[AnyArray, "pairs width"]) -> Float[AnyArray, "matrices flows"]:
        sends = exact.amount > 0
        rates = jnp.maximum(rates_of(x, exact), 1e-30 * jnp.max(exact.network.capacity))
        return jnp.where(sends, exact.amount / jnp.where(sends, rates, 1), 0)

    time, pull = jax.vjp(times, splits)
    worst = time.max(axis=1)
    weight = risk_weights(jnp, worst, share, over, tail, power)
    # In a matrix without traffic all times are 0.
    part = jnp.maximum(time / jnp.maximum(worst, 1e-30)[:, None], 1e-30)
    soft = jnp.exp(power * jnp.log(part))
    soft = weight[:, None] * soft / soft.sum(axis=1, keepdims=True)
    (gradient,) = pull(jnp.where(exact.amount > 0, soft / part, 0))
    objective = worst.max() if over == "worst" else (weight * worst).sum()
    return objective, gradient


def rates_of(
    splits: Float[AnyArray, "pairs width"], exact: Exact
) -> Float[AnyArray, "matrices flows"]:
    """Return the exact max-min rates under some splits, in every matrix."""
    use = splits.ravel()[exact.part_row] * exact.part_share
    fixed = jnp.asarray(exact.routes.part_use, use.dtype)
    part = fixed + jax.ops.segment_sum(use, exact.part_of, exact.routes.n_parts)
    routes = eqx.tree_at(lambda r: r.part_use, exact.routes, part)
    rates = lambda cap: max_min_rates(exact.network, routes, caps=cap, throw=False).rates
    return jax.vmap(rates)(exact.cap) if len(exact.cap) > 1 else rates(exact.cap[0])[None]
