"""Levels with their derivative: the implicit rule, in one place, for every method.

The levels t of a solution are differentiated through its bottleneck structure (see
`fabric.kernels._structure`), not through the loop that found it. With b(f) the bottleneck of f,

    t_f = s_b(f)  (or cap over weight),      sum over f on l of M_lf t_f = c_l  on active links,

so the tangents of s solve a linear system with the tangents of c, M and the caps on the right.
The rule calls `levels` itself, which is what makes derivatives of derivatives right.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fabric._errors import ModelError
from fabric._typing import AnyArray, FlowFloats, LinkFloats
from fabric.kernels._local_rounds import Ends, Filling, Usage
from fabric.kernels._structure import at_bottleneck
from fabric.network._checks import wholes
from fabric.solvers._cores import Core
from fabric.solvers._only_by_rule import only_by_rule

AT_ONCE = 20_000_000
"""Entries of all samples of a mean together up to which they are taken side by side."""


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def levels(
    core: Core, capacity: LinkFloats, weight: FlowFloats, cap: FlowFloats, usage: Usage
) -> Filling:
    """Return the filled state; its levels are differentiable, its other fields are not.

    Args:
        core: Static.
        capacity: (links,), byte/s.
        weight: (flows,).
        cap: (flows,), byte/s.
        usage: Which flow crosses which link.

    Derivatives: Forward and reverse, any order, in capacity, weight, cap and both uses; at a tie
        those of the structure that the fixed priority of links selects.
    """
    return core.fill(*jax.tree.map(only_by_rule, (capacity, weight, cap, usage)))


def _rule(core: Core, primals: Any, tangents: Any) -> tuple[Filling, Filling]:
    capacity, weight, cap, usage = primals
    out = levels(core, capacity, weight, cap, usage)
    held = jax.lax.stop_gradient
    s = core.structure(
        jax.tree.map(held, out), held(capacity), held(weight), held(cap), jax.tree.map(held, usage)
    )
    ends = lambda u: Ends(u, weight.shape[0], core.n_bundles, capacity.shape[0])

    def residual(
        capacity: LinkFloats, weight: FlowFloats, cap: FlowFloats, hop_use: Any, part_use: Any
    ) -> tuple[LinkFloats, FlowFloats]:
        """What the parameters alone do: to the balance of links at fixed s, and to capped t."""
        own_limit = jnp.where(s.capped & jnp.isfinite(cap), cap, 0) / weight
        level = jnp.where(s.capped, own_limit, jnp.where(jnp.isfinite(out.level), out.level, 0))
        moved = usage._replace(hop_use=hop_use, part_use=part_use)
        return capacity - ends(moved).sum_to_links(weight * level), own_limit

    arguments = (capacity, weight, cap, usage.hop_use, usage.part_use)
    dots = (*tangents[:3], tangents[3].hop_use, tangents[3].part_use)
    (balance, capped_dot) = _jvp_of_moving(residual, arguments, dots)
    balance = jnp.where(s.active, balance, 0)

    def rows(x: LinkFloats) -> LinkFloats:
        load = ends(usage).sum_to_links(weight * at_bottleneck(x, s.bottleneck))
        return jnp.where(s.active, load, x)

    solve = lambda transpose: (
        lambda _, right: core.solve(
            s, right, held(weight), jax.tree.map(held, usage), transpose=transpose
        )
    )
    link_dot = jax.lax.custom_linear_solve(rows, balance, solve(False), solve(True))
    level_dot = jnp.where(s.capped, capped_dot, at_bottleneck(link_dot, s.bottleneck))
    return out, _tangent_of(out, level_dot)


# A zero tangent stays symbolic, so that fractions cost nothing when only capacities move.
levels.defjvp(_rule, symbolic_zeros=True)


def _jvp_of_moving(function: Any, primals: Any, tangents: Any) -> Any:
    """Return the tangents of `function`, holding fixed the arguments whose tangent is zero."""
    moving = [i for i, dot in enumerate(tangents) if not _is_zero(dot)]

    def of_moving(*values: AnyArray) -> Any:
        arguments = list(primals)
        for i, value in zip(moving, values, strict=True):
            arguments[i] = value
        return function(*arguments)

    if not moving:
        return jax.tree.map(jnp.zeros_like, function(*primals))
    return jax.jvp(of_moving, [primals[i] for i in moving], [tangents[i] for i in moving])[1]


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, jax.custom_derivatives.SymbolicZero)


def _tangent_of(filling: Filling, level_dot: FlowFloats) -> Filling:
    nothing = lambda value: np.zeros(np.shape(value), jax.dtypes.float0)
    dots = Filling(*(nothing(value) for value in filling))
    return dots._replace(level=level_dot, used=jnp.zeros_like(filling.used))


@dataclasses.dataclass(frozen=True)
class Mean:
    """Settings of `derivative="mean"`: average over capacities times e^(sigma Z), Z normal.

    Attributes:
        samples: How many derivatives are averaged; the error falls with its square root.
        sigma: Size of the jitter, relative. It has to break ties without reaching the next kink.
            Default: 1e-6 in float64, 1e-3 in float32.
        seed: Of the jitter.

    Examples:
        >>> Mean(samples=256).samples
        256
    """

    samples: int = 64
    sigma: float | None = None
    seed: int = 0

    def __post_init__(self):
        wholes(1, samples=self.samples)
        wholes(0, seed=self.seed)
        if self.sigma is not None and not 0 < self.sigma < 1:
            message = f"`Mean(sigma=...)` needs a number between 0 and 1, but got {self.sigma!r}."
            raise ModelError(message)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def mean_levels(
    core: Core,
    mean: Mean,
    capacity: LinkFloats,
    weight: FlowFloats,
    cap: FlowFloats,
    usage: Usage,
) -> Filling:
    """Return the filled state, with the average derivative over jittered capacities."""
    return core.fill(*jax.tree.map(only_by_rule, (capacity, weight, cap, usage)))


def _mean_rule(core: Core, mean: Mean, primals: Any, tangents: Any) -> tuple[Filling, Filling]:
    capacity, weight, cap, usage = primals
    out = mean_levels(core, mean, capacity, weight, cap, usage)
    kind = capacity.dtype
    sigma = mean.sigma if mean.sigma is not None else (1e-6 if kind == jnp.float64 else 1e-3)

    def of_sample(key: AnyArray) -> FlowFloats:
        jitter = jnp.exp(jnp.asarray(sigma, kind) * jax.random.normal(key, capacity.shape, kind))
        moved = (jax.lax.stop_gradient(jitter) * capacity, weight, cap, usage)
        return _rule(core, moved, tangents)[1].level

    keys = jax.random.split(jax.random.key(mean.seed), mean.samples)
    entries = sum(x.size for x in jax.tree.leaves(primals))
    if mean.samples * entries <= AT_ONCE:
        return out, _tangent_of(out, jax.vmap(of_sample)(keys).mean(0))
    total = jax.lax.scan(
        lambda sum_, key: (sum_ + of_sample(key), None), jnp.zeros_like(out.level), keys
    )[0]
    return out, _tangent_of(out, total / mean.samples)


mean_levels.defjvp(_mean_rule, symbolic_zeros=True)
