"""Relaxed placements: shares of units on slots, descended on, and rounded.

Q holds which share of unit a lies on slots of sort s; rows sum to 1, columns to the number of these
slots. The traffic between sorts is then Q^T D Q, which loads links; the norm of utilisations is to
be small. Averages of placements spread traffic that a placement cannot, so a relaxed value is no
bound: Q only says where to look.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fabric.network import canonical
from fabric.optimize._descent import adam, moved
from fabric.optimize._placement_input import Slots, Traffic
from fabric.optimize._placement_ways import Units, Ways, folded, rows_between

STEPS = 150
_ROUNDS = 20
_RATE = 0.3
_FIRST_POWER, _LAST_POWER = 2.0, 32.0
_FIRST_HEAT, _LAST_HEAT = 1.0, 0.1
_MOST_ENTRIES = 60_000_000
_SIDE_BY_SIDE = 8
_MOST_WORK = 6e10
"""Products that all relaxations together may take: some tens of seconds on two cores."""


class Relaxation(NamedTuple):
    """What decides about relaxed placements.

    Attributes:
        demand: (phases, units, units), bytes; units without ranks send nothing.
        use: (sorts**2, links), seconds of a link per byte between slots of two sorts, scaled to
            about 1.
        room: (sorts,), how many slots there are, as a logarithm.
    """

    demand: Float[Array, "phases units units"]
    use: Float[Array, "pairs links"]
    room: Float[Array, " sorts"]


def relaxation(ways: Ways, slots: Slots, units: Units, traffic: Traffic) -> Relaxation | None:
    """Return the relaxation of a traffic; ends within units count by how much they send.

    Phases that never leave a unit do not count. None where no other is, where all slots are of one
    sort, or where the table of what units send would be too large.

    Links with the same uses count once. Where there are very many, those that all pairs together
    use least are left out. Of own links of servers those of a sort count as one, on average.
    """
    from scipy.sparse import csr_array

    m, g, n = slots.n_units, slots.group, len(units.first)
    if n < 2 or traffic.n_phases * m * m > _MOST_ENTRIES:
        return None
    demand = np.array([traffic.between(g, m, flows) for flows in traffic.phases])
    # A norm has no slope at 0.
    demand = demand[demand.any(axis=(1, 2))]
    if not len(demand):
        return None
    outside = traffic.src // g != traffic.dst // g
    ends = (traffic.src[outside] % g) * g + traffic.dst[outside] % g
    mix = np.bincount(ends, traffic.size[outside], g * g)
    mix = mix / max(mix.sum(), 1e-300)
    used = np.flatnonzero(mix)
    column = rows_between(slots, ways, units).reshape(n * n, g * g)[:, used]
    row = np.broadcast_to(np.arange(n * n)[:, None], column.shape)
    share = np.broadcast_to(mix[used], column.shape)
    links = folded(ways)
    gathered: Any = csr_array(
        (share.ravel(), (row.ravel(), column.ravel())), shape=(n * n, links.use.shape[0])
    )
    capacity = np.maximum(links.capacity, 1e-9 * links.capacity.max()) * links.copies
    use: Any = links.use.copy()
    use.data = use.data / capacity[use.indices]
    use = (gathered @ use).tocsc()
    probe = np.random.default_rng(0).random(n * n) @ use
    _, kept = np.unique(np.array([f"{x:.9e}" for x in probe]), return_index=True)
    most = max(_MOST_ENTRIES // (n * n), 1)
    kept = np.sort(kept[np.argsort(-probe[kept], kind="stable")][:most])
    # Some widths only, so that networks share compiled programs.
    dense = np.zeros((n * n, min(1 << (len(kept) - 1).bit_length(), max(most, len(kept)))))
    dense[:, : len(kept)] = use[:, kept].toarray()
    kind = canonical(np.dtype(jnp.zeros(()).dtype))
    scale = np.median(dense[:, : len(kept)].max(axis=0, initial=0)) or 1.0
    return Relaxation(
        jnp.asarray(demand / demand.max(initial=1e-300), kind), jnp.asarray(dense / scale, kind),
        jnp.asarray(np.log(units.room), kind),
    )  # fmt: skip


def affordable(problem: Relaxation, starts: int) -> int:
    """Return how many of some starts to relax, at least one; all together take bounded time."""
    m, n = problem.demand.shape[1], len(problem.room)
    loads = len(problem.demand) * (problem.use.size + m * n * (m + n))
    return max(min(starts, int(_MOST_WORK / (6.0 * loads * STEPS))), 1)


def relaxed(
    problem: Relaxation, units: Units, starts: int, seed: int
) -> tuple[list[Int[np.ndarray, " units"]], int]:
    """Return placements of units on slots, relaxed and rounded, and the gradients they took.

    Args:
        problem: The relaxation.
        units: By sort.
        starts: How many to begin from; so many side by side, so that there may be a few more.
        seed: Of the starts.
    """
    from scipy.optimize import linear_sum_assignment

    m, n = problem.demand.shape[1], len(problem.room)
    width = min(starts, _SIDE_BY_SIDE)
    shares: list[np.ndarray] = []
    for piece in range(-(-starts // width)):
        noise = np.random.default_rng([seed, 1, piece]).standard_normal((width, m, n))
        shares += [*np.asarray(_descend(problem, jnp.asarray(noise, problem.demand.dtype)))]
    found = [linear_sum_assignment(-share[:, units.sort])[1] for share in shares]
    return found, len(shares) * STEPS


def gains(
    problem: Relaxation, units: Units, at: Int[np.ndarray, " units"]
) -> Float[np.ndarray, "units units"]:
    """Return what exchanging two units would gain, to first order.

    Args:
        problem: The relaxation.
        units: By sort.
        at: The slot of every unit.
    """
    sort = units.sort[at]
    slope = np.asarray(_slope(problem, jnp.asarray(sort)), np.float64)[:, sort]
    own = np.diag(slope)
    return own[:, None] + own[None, :] - slope - slope.T


def _cost(problem: Relaxation, share: Array, power: Any) -> Array:
    """Return the logarithm of the norm of utilisations, summed over phases."""
    sent = jnp.einsum("as,kab,bt->kst", share, problem.demand, share)
    load = sent.reshape(len(sent), -1) @ problem.use
    most = jax.lax.stop_gradient(jnp.max(load, axis=1, keepdims=True)) + 1e-30
    norm = jnp.sum((load / most + 1e-12) ** power, axis=1) ** (1 / power)
    return jnp.log(jnp.sum(most[:, 0] * norm))


def _shares(logits: Array, room: Array) -> Array:
    """Return the matrix of logits whose rows sum to 1 and whose columns sum to what has room."""

    def both(now: Array, _: None) -> tuple[Array, None]:
        now = now - jax.nn.logsumexp(now, axis=1, keepdims=True)
        return now - jax.nn.logsumexp(now, axis=0, keepdims=True) + room, None

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
            slope = jax.grad(lambda x: _cost(problem, _shares(x / heat, problem.room), power))(
                logits
            )
            return moved(rule, slope, moments, logits), None

        parts = jnp.linspace(0, 1, STEPS, dtype=start.dtype)
        (logits, _), _ = jax.lax.scan(step, (start, rule.init(start)), parts)
        return _shares(logits / _LAST_HEAT, problem.room)

    return jax.vmap(from_one)(noise)


@jax.jit
def _slope(problem: Relaxation, at: Array) -> Array:
    hard = jax.nn.one_hot(at, len(problem.room), dtype=problem.demand.dtype)
    return jax.grad(lambda share: _cost(problem, share, _LAST_POWER / 2))(hard)
