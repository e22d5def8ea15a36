"""`Goal`: the time of steps as a function of the capacities, exact, smooth, and from below.

Seconds on the wire of an exchange are the most over groups of links of load / factor. The smooth
form takes a norm in place of the maximum, and steers. The form from below takes a mean: of any
weights that add up to one it is no larger than the maximum, it is convex in log factor, and with
the weights of the smooth form it is tight where that is. The same goes for every overlap of waiting
with computing, and for the slowest of several jobs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from fabric.optimize._jobs import JobStep

Array = Any
_Most = Callable[[Array], Array]
_Larger = Callable[[Array, Array], Array]


class Goal:
    """Seconds of steps, by the capacities of groups of links.

    Args:
        steps: The jobs.
        targets: Seconds of each; the goal is then the largest share of them. None: the mean of
            the seconds, by the shares of the jobs.
    """

    def __init__(self, steps: Sequence[JobStep], targets: Sequence[float] | None):
        self._steps = steps
        shares = np.array([step.job.share for step in steps], np.float64)
        self._weight = shares / shares.sum() if targets is None else 1 / np.asarray(targets)
        self.worst = targets is not None
        self.n_phases = sum(len(step.phases) for step in steps)

    def _over(self, times: Sequence[Array], most: _Most) -> jax.Array:
        parts = jnp.stack([w * t for w, t in zip(self._weight.tolist(), times, strict=True)])
        return most(parts) if self.worst else parts.sum()

    def exact(self, x: Float[Array, " groups"]) -> jax.Array:
        """Return the value with exact rates. Traced."""
        times = [step.total.seconds(step.transfers(x)) for step in self._steps]
        return self._over(times, jnp.max)

    def seconds(self, x: Float[Array, " groups"]) -> list[float]:
        """Return the exact seconds of every job."""
        return [step.exact(x) for step in self._steps]

    def least(self, x: Float[Array, " groups"]) -> jax.Array:
        """Return the value with links shared as well as they can be. Traced."""
        return self._value(x, lambda terms: jnp.max(terms, axis=-1), lambda _: jnp.maximum)

    def smooth(self, x: Float[Array, " groups"], power: Array) -> jax.Array:
        """Return a smooth form, larger by a share of 1 / power. Traced."""
        return self._value(
            x, lambda terms: norm_of(terms, power), lambda _: lambda a, b: _soft(a, b, power)
        )

    def tangent(
        self, x: Float[Array, " groups"], power: Array
    ) -> tuple[jax.Array, Float[Array, " groups"]]:
        """Return u and g >= 0 such that no capacities have a value below u - g log factor."""
        mean = lambda terms: mean_of(terms, power)

        def larger(step: JobStep) -> _Larger:
            # Only the kinks of data parallelism have two arrays: of these the first side is a
            # bound that is convex whatever the pipeline does.
            plain = lambda a, b: _mixed(a, b, power)
            return (lambda a, b: a if isinstance(b, jax.Array) else plain(a, b)) if (
                step.bends
            ) else plain  # fmt: skip

        below = lambda y: self._value(jnp.exp(y), mean, larger)
        y = jnp.log(x)
        value, slope = jax.value_and_grad(below)(y)
        g = jnp.maximum(-slope, 0)
        return value + (g * y).sum(), g

    def _value(
        self, x: Float[Array, " groups"], most: _Most, larger: Callable[[JobStep], _Larger]
    ) -> jax.Array:
        wide = jnp.append(x, jnp.ones((), x.dtype))
        times = []
        for step in self._steps:
            transfer = most(jnp.asarray(step.loads, x.dtype) / wide)
            times.append(jnp.asarray(step.total.parts(transfer, larger(step)).step))
        return self._over(times, most)


def _tiny(a: jax.Array) -> jax.Array:
    return jnp.asarray(jnp.finfo(a.dtype).tiny, a.dtype)


def _logs(terms: jax.Array) -> jax.Array:
    return jnp.log(jnp.maximum(terms, _tiny(terms)))


def norm_of(terms: jax.Array, power: Array) -> jax.Array:
    """Return the norm of a power along the last axis: a maximum, and a little more."""
    return jnp.exp(jax.nn.logsumexp(power * _logs(terms), axis=-1) / power)


def mean_of(terms: jax.Array, power: Array) -> jax.Array:
    """Return the mean along the last axis, weighted as in the norm, the weights held fixed."""
    weight = jax.lax.stop_gradient(jax.nn.softmax(power * _logs(terms), axis=-1))
    return (weight * terms).sum(-1)


def _root(a: Array, b: Array, power: Array) -> tuple[jax.Array, jax.Array]:
    """Return the difference, and its absolute value with a rounded corner."""
    apart = jnp.asarray(a - b)
    corner = jax.lax.stop_gradient((jnp.abs(a) + jnp.abs(b)) / power)
    return apart, jnp.sqrt(apart**2 + corner**2 + _tiny(apart) ** 0.5)


def _soft(a: Array, b: Array, power: Array) -> jax.Array:
    return (a + b + _root(a, b, power)[1]) / 2


def _mixed(a: Array, b: Array, power: Array) -> jax.Array:
    apart, root = _root(a, b, power)
    first = jax.lax.stop_gradient((1 + apart / root) / 2)
    return first * a + (1 - first) * b
