"""`Goal`: the time of steps as a function of the capacities, exact, smooth, and from below.

Seconds on the wire of an exchange are the most over groups of links of load / factor. The smooth
form takes a norm in place of the maximum, and steers. The form from below takes a mean: of any
weights that add up to one it is no larger than the maximum, it is convex in log factor, and with
the weights of the smooth form it is tight where that is. The same goes for every overlap of waiting
with computing, and for the slowest of several jobs.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from fabric.optimize._jobs import Gather, JobStep
from fabric.optimize._money import smallest
from fabric.runs import fingerprint
from fabric.training._insights import StepTime

Array = Any
_Most = Callable[[Array], Array]
_Larger = Callable[[Array, Array], Array]


class Goal:
    """Seconds of steps, by the capacities of groups of links.

    Args:
        steps: The jobs.
        targets: Seconds of each; the goal is then the largest share of them. None: the mean of
            the seconds, by the shares of the jobs.

    Attributes:
        shared: The same, links shared as well as they can be.
        worst: Whether there are targets.
        loaded: (groups,), whether some job puts anything on a group.
    """

    def __init__(self, steps: Sequence[JobStep], targets: Sequence[float] | None):
        self._steps = steps
        shares = np.array([step.job.share for step in steps], np.float64)
        weight = shares / shares.sum() if targets is None else 1 / np.asarray(targets)
        self.worst = targets is not None
        self.shared = Shared(steps, tuple(weight.tolist()), self.worst)
        self.loaded = np.any(
            [step.loads[:, :-1].max(axis=0, initial=0) > 0 for step in steps], axis=0
        )
        self.n_phases = sum(len(step.phases) for step in steps)

    def exact(self, x: Float[Array, " groups"]) -> jax.Array:
        """Return the value with exact rates. Traced."""
        times = [step.total.seconds(step.transfers(x)) for step in self._steps]
        return self.shared.over(times, jnp.max)

    def seconds(self, x: Float[Array, " groups"]) -> list[float]:
        """Return the exact seconds of every job."""
        return [step.exact(x) for step in self._steps]


class _Terms(NamedTuple):
    """What one job puts on groups of links, and its step."""

    loads: Float[np.ndarray, "phases groups+1"]
    total: StepTime
    gather: Gather | None


class Shared:
    """The value with links shared as well as they can be.

    Equal, and of one compiled program, for all that value the same; holds no network.

    Args:
        steps: The jobs.
        weight: Of their seconds.
        worst: Whether the largest counts, and not the sum.
    """

    def __init__(self, steps: Sequence[JobStep], weight: tuple[float, ...], worst: bool):
        self._terms = [_Terms(step.loads, step.total, step.gather) for step in steps]
        self._weight, self._worst = weight, worst
        self._key = fingerprint(weight, worst, [(*step.asked, step.loads) for step in steps])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shared) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def over(self, times: Sequence[Array], most: _Most) -> jax.Array:
        """Return the value for the seconds of every job."""
        parts = jnp.stack([w * t for w, t in zip(self._weight, times, strict=True)])
        return most(parts) if self._worst else parts.sum()

    def __call__(self, x: Float[Array, " groups"]) -> jax.Array:
        """Return the value. Traced."""
        return self._value(x, lambda terms: jnp.max(terms, axis=-1), lambda *_: jnp.maximum)

    def smooth(self, x: Float[Array, " groups"], power: Array) -> jax.Array:
        """Return a smooth form, larger by a share of 1 / power. Traced."""
        return self._value(
            x, lambda terms: norm_of(terms, power), lambda *_: lambda a, b: _soft(a, b, power)
        )

    def tangent(
        self, x: Float[Array, " groups"], power: Array
    ) -> tuple[jax.Array, Float[Array, " groups"]]:
        """Return u and g >= 0 such that no capacities have a value below u - g log factor."""
        mean = lambda terms: mean_of(terms, power)

        plain = lambda a, b: _mixed(a, b, power)

        def larger(step: _Terms, transfer: Array) -> _Larger:
            if step.gather is None:
                return plain
            still = jax.lax.stop_gradient(transfer)
            share = step.gather.adds(step.total.parts(still, plain), still)
            # Only the kinks of data parallelism have two arrays: of these the first side is a
            # bound that is convex whatever the pipeline does.
            return lambda a, b: _mixed(a, b, power, share if isinstance(b, jax.Array) else 1.0)

        below = lambda y: self._value(jnp.exp(y), mean, larger)
        y = jnp.log(jnp.maximum(x, smallest(x.dtype)))
        value, slope = jax.value_and_grad(below)(y)
        g = jnp.maximum(-slope, 0)
        return value + (g * y).sum(), g

    def _value(
        self, x: Float[Array, " groups"], most: _Most, larger: Callable[[_Terms, Array], _Larger]
    ) -> jax.Array:
        wide = jnp.maximum(jnp.append(x, jnp.ones((), x.dtype)), smallest(x.dtype))
        times = []
        for step in self._terms:
            transfer = most(jnp.asarray(step.loads, x.dtype) / wide)
            times.append(jnp.asarray(step.total.parts(transfer, larger(step, transfer)).step))
        return self.over(times, most)


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


def _mixed(a: Array, b: Array, power: Array, most: Array = 1.0) -> jax.Array:
    """Return a mean of two, the weight of the second no more than `most`, weights held fixed."""
    apart, root = _root(a, b, power)
    second = jax.lax.stop_gradient(jnp.minimum((1 - apart / root) / 2, most))
    return (1 - second) * a + second * b
