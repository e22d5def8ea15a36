"""Relaxed placements: shares of units on slots, descended on, and rounded.

A doubly stochastic Q holds which share of unit a lies on slot s. The traffic between slots is then
Q^T D Q, which loads links; the norm of utilisations is to be small. Averages of placements spread
traffic that a placement cannot, so a relaxed value is no bound: Q only says where to look.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fabric.network import canonical
from fabric.optimize._descent import adam, moved
from fabric.optimize._placement_input import Slots, Traffic
from fabric.optimize._placement_score import Ways

STEPS = 150
_ROUNDS = 20
_RATE = 0.3
_FIRST_POWER, _LAST_POWER = 2.0, 32.0
_FIRST_HEAT, _LAST_HEAT = 1.0, 0.1
_MOST_ENTRIES = 60_000_000
_SIDE_BY_SIDE = 8


class Relaxation(NamedTuple):
    """What decides about relaxed placements.

    Attributes:
        demand: (phases, units, units), bytes; units without ranks send nothing.
        use: (units**2, links), seconds of a link per byte between two slots, scaled to about 1.
    """

    demand: Float[Array, "phases units units"]
    use: Float[Array, "pairs links"]


def relaxation(ways: Ways, slots: Slots, traffic: Traffic) -> Relaxation | None:
    """Return the relaxation of a traffic; ends within units count by how much they send.

    Phases that never leave a unit do not count; None where no other is.

    Links with the same uses count once. Where there are very many, those that all pairs together
    use least are left out.
    """
    from scipy.sparse import csr_array

    n, m, g = slots.n_slots, slots.n_units, slots.group
    demand = traffic.between(g, m)
    # A norm has no slope at 0.
    demand = demand[demand.any(axis=(1, 2))]
    if not len(demand):
        return None
    outside = traffic.src // g != traffic.dst // g
    ends = (traffic.src[outside] % g) * g + traffic.dst[outside] % g
    mix = np.bincount(ends, traffic.size[outside], g * g)
    mix = mix / max(mix.sum(), 1e-300)
    i, j = np.divmod(np.flatnonzero(mix), g)
    v, w = np.nonzero(~np.eye(m, dtype=bool))
    column = (v[:, None] * g + i) * n + w[:, None] * g + j
    row = np.broadcast_to((v * m + w)[:, None], column.shape)
    share = np.broadcast_to(mix[i * g + j], column.shape)
    gathered: Any = csr_array((share.ravel(), (row.ravel(), column.ravel())), shape=(m * m, n * n))
    capacity = np.maximum(ways.capacity, 1e-9 * ways.capacity.max())
    use: Any = csr_array(
        (ways.use / capacity[ways.link], ways.link, ways.ptr), shape=(n * n, len(capacity))
    )
    use = (gathered @ use).tocsc()
    probe = np.random.default_rng(0).random(m * m) @ use
    _, kept = np.unique(np.array([f"{x:.9e}" for x in probe]), return_index=True)
    most = max(_MOST_ENTRIES // (m * m), 1)
    kept = np.sort(kept[np.argsort(-probe[kept], kind="stable")][:most])
    # Some widths only, so that networks share compiled programs.
    dense = np.zeros((m * m, min(1 << (len(kept) - 1).bit_length(), max(most, len(kept)))))
    dense[:, : len(kept)] = use[:, kept].toarray()
    kind = canonical(np.dtype(jnp.zeros(()).dtype))
    scale = np.median(dense[:, : len(kept)].max(axis=0, initial=0)) or 1.0
    return Relaxation(
        jnp.asarray(demand / demand.max(initial=1e-300), kind), jnp.asarray(dense / scale, kind)
    )


def relaxed(problem: Relaxation, starts: int, seed: int) -> list[Int[np.ndarray, " units"]]:
    """Return a placement of units on slots from each of several starts, relaxed and rounded."""
    from scipy.optimize import linear_sum_assignment

    m = problem.demand.shape[1]
    found: list[np.ndarray] = []
    for piece in range(-(-starts // _SIDE_BY_SIDE)):
        draw = np.random.default_rng([seed, 1, piece])
        noise = draw.standard_normal((_SIDE_BY_SIDE, m, m))
        found += [*np.asarray(_descend(problem, jnp.asarray(noise, problem.demand.dtype)))]
    return [linear_sum_assignment(-share)[1] for share in found[:starts]]


def gains(problem: Relaxation, at: Int[np.ndarray, " units"]) -> Float[np.ndarray, "units units"]:
    """Return what exchanging two units would gain, to first order.

    Args:
        problem: The relaxation.
        at: The slot of every unit.
    """
    slope = np.asarray(_slope(problem, jnp.asarray(at)), np.float64)[:, at]
    own = np.diag(slope)
    return own[:, None] + own[None, :] - slope - slope.T


def work(problem: Relaxation) -> float:
    """Return about how many products a gradient takes."""
    return 4.0 * problem.use.size * problem.demand.shape[0] + 8.0 * problem.demand.size * len(
        problem.demand[0]
    )


def _cost(problem: Relaxation, share: Array, power: Any) -> Array:
    """Return the logarithm of the norm of utilisations, summed over phases."""
    sent = jnp.einsum("as,kab,bt->kst", share, problem.demand, share)
    load = sent.reshape(len(sent), -1) @ problem.use
    most = jax.lax.stop_gradient(jnp.max(load, axis=1, keepdims=True)) + 1e-30
    norm = jnp.sum((load / most + 1e-12) ** power, axis=1) ** (1 / power)
    return jnp.log(jnp.sum(most[:, 0] * norm))


def _shares(logits: Array) -> Array:
    """Return the doubly stochastic matrix of logits."""

    def both(now: Array, _: None) -> tuple[Array, None]:
        now = now - jax.nn.logsumexp(now, axis=1, keepdims=True)
        return now - jax.nn.logsumexp(now, axis=0, keepdims=True), None

    return jnp.exp(jax.lax.scan(both, logits, None, length=_ROUNDS)[0])


@jax.jit
def _descend(problem: Relaxation, noise: Array) -> Array:
    """Return the shares that descent from each of some logits ends with."""
    rule = adam(_RATE, STEPS)

    def from_one(start: Array) -> Array:
        def step(state: tuple[Array, Any], part: Array) -> tuple[tuple[Array, Any], None]:
            logits, moments = state
            power = _FIRST_POWER * (_LAST_POWER / _FIRST_POWER) ** part
            heat = _FIRST_HEAT * (_LAST_HEAT / _FIRST_HEAT) ** part
            slope = jax.grad(lambda x: _cost(problem, _shares(x / heat), power))(logits)
            return moved(rule, slope, moments, logits), None

        parts = jnp.linspace(0, 1, STEPS, dtype=start.dtype)
        (logits, _), _ = jax.lax.scan(step, (start, rule.init(start)), parts)
        return _shares(logits / _LAST_HEAT)

    return jax.vmap(from_one)(noise)


@jax.jit
def _slope(problem: Relaxation, at: Array) -> Array:
    hard = jax.nn.one_hot(at, problem.demand.shape[1], dtype=problem.demand.dtype)
    return jax.grad(lambda share: _cost(problem, share, _LAST_POWER / 2))(hard)
