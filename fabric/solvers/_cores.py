"""Ways to find levels and to solve systems over their structure, behind one face."""

import functools
import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from fabric._typing import AnyArray, FlowFloats, LinkFloats
from fabric.kernels._local_rounds import Ends, Filling, Usage, local_rounds
from fabric.kernels._structure import (
    Structure,
    hashed_rank,
    solve_levels,
    solve_prices,
    structure,
)
from fabric.network import Routes, is_traced
from fabric.solvers import _compiled
from fabric.solvers._plan import compiled_plan, plain_array


@runtime_checkable
class Core(Protocol):
    """How levels are found and how systems over their structure are solved."""

    n_bundles: int

    def fill(
        self, capacity: LinkFloats, weight: FlowFloats, cap: FlowFloats, usage: Usage
    ) -> Filling:
        """Return the filled state."""
        ...

    def structure(
        self,
        filling: Filling,
        capacity: LinkFloats,
        weight: FlowFloats,
        cap: FlowFloats,
        usage: Usage,
    ) -> Structure:
        """Return who stops whom."""
        ...

    def solve(
        self, s: Structure, right: LinkFloats, weight: FlowFloats, usage: Usage, *, transpose: bool
    ) -> LinkFloats:
        """Return the solution of the system over the structure, or of its transpose."""
        ...


class Rounds:
    """Vectorised rounds and sweeps in JAX: any device, any transformation, traced routes too."""

    def __init__(self, n_bundles: int, max_rounds: int):
        self.n_bundles, self.max_rounds = n_bundles, max_rounds

    def fill(
        self, capacity: LinkFloats, weight: FlowFloats, cap: FlowFloats, usage: Usage
    ) -> Filling:
        """Return the filled state."""
        return _fill(capacity, weight, cap, usage, self.n_bundles, self.max_rounds)

    def structure(
        self,
        filling: Filling,
        capacity: LinkFloats,
        weight: FlowFloats,
        cap: FlowFloats,
        usage: Usage,
    ) -> Structure:
        """Return who stops whom."""
        rank, link_of = (jnp.asarray(x) for x in hashed_rank(capacity.shape[0]))
        return _structure(
            filling.level, filling.bottleneck, capacity, weight, cap, usage, self.n_bundles,
            rank, link_of,
        )  # fmt: skip

    def solve(
        self, s: Structure, right: LinkFloats, weight: FlowFloats, usage: Usage, *, transpose: bool
    ) -> LinkFloats:
        """Return the solution of the system over the structure, or of its transpose."""
        return _sweep(s, right, weight, usage, self.n_bundles, transpose)


# Jitted so that differentiating outside of a user's jit compiles each loop once per shape.
_fill = jax.jit(local_rounds, static_argnums=(4, 5))
_structure = jax.jit(structure, static_argnums=6)


@functools.partial(jax.jit, static_argnums=(4, 5))
def _sweep(
    s: Structure,
    right: LinkFloats,
    weight: FlowFloats,
    usage: Usage,
    n_bundles: int,
    transpose: bool,
) -> LinkFloats:
    ends = Ends(usage, weight.shape[0], n_bundles, right.shape[0])
    return (solve_prices if transpose else solve_levels)(s, right, weight, ends)


class Compiled:
    """The compiled CPU kernels behind host callbacks; the routes are concrete and fixed."""

    def __init__(self, routes: Routes):
        self.routes, self.n_bundles = routes, routes.n_bundles

    def fill(
        self, capacity: LinkFloats, weight: FlowFloats, cap: FlowFloats, usage: Usage
    ) -> Filling:
        """Return the filled state."""

        def host(*limits: AnyArray) -> Filling:
            lead = np.broadcast_shapes(*(x.shape[:-1] for x in limits))
            level, stopper, rounds = _compiled.solve_many(
                compiled_plan(self.routes), _rows(limits[0], lead),
                *(_rows(x, lead if math.prod(x.shape[:-1]) > 1 else ()) for x in limits[1:]),
            )  # fmt: skip
            like = lambda x, shape: x.astype(shape.dtype).reshape((*lead, *shape.shape))
            none = lambda shape: np.zeros((*lead, *shape.shape), shape.dtype)
            return Filling(
                level=like(level, shapes.level),
                bottleneck=like(stopper, shapes.bottleneck),
                live=none(shapes.live),
                used=none(shapes.used),
                rounds=like(rounds, shapes.rounds),
            )

        flows, kind = weight.shape, capacity.dtype
        shapes = Filling(
            level=_shape(flows, kind),
            bottleneck=_shape(flows, np.int32),
            live=_shape(flows, bool),
            used=_shape(capacity.shape, kind),
            rounds=_shape((), np.int32),
        )
        return _callback(host, shapes, capacity, weight, cap)

    def structure(
        self,
        filling: Filling,
        capacity: LinkFloats,
        weight: FlowFloats,
        cap: FlowFloats,
        usage: Usage,
    ) -> Structure:
        """Return who stops whom."""

        def host(level: AnyArray, stopper: AnyArray, *limits: AnyArray) -> Structure:
            s = _compiled.structure(
                self.routes,
                _wide(level),
                plain_array(stopper, np.int32),
                *(_wide(x) for x in limits),
            )
            narrow = lambda x, like: np.asarray(x).astype(like.dtype)
            return jax.tree.map(narrow, s, shapes)

        links, flows, kind = capacity.shape, weight.shape, capacity.dtype
        shapes = Structure(
            level=_shape(flows, kind),
            bottleneck=_shape(flows, np.int32),
            capped=_shape(flows, bool),
            active=_shape(links, bool),
            diagonal=_shape(links, kind),
            own=_shape(links, np.int32),
            saturated=_shape(links, bool),
            margin=_shape((), kind),
        )
        given = (filling.level, filling.bottleneck, capacity, weight, cap)
        return _callback(_each(host, given), shapes, *given)

    def solve(
        self, s: Structure, right: LinkFloats, weight: FlowFloats, usage: Usage, *, transpose: bool
    ) -> LinkFloats:
        """Return the solution of the system over the structure, or of its transpose."""

        def host(s: Structure, right: AnyArray, weight: AnyArray) -> AnyArray:
            s = Structure(*(np.asarray(x) for x in s))
            s = s._replace(level=_wide(s.level), diagonal=_wide(s.diagonal))
            x = _compiled.solve(self.routes, s, _wide(right), _wide(weight), transpose=transpose)
            return x.astype(right.dtype)

        given = (s, right, weight)
        return _callback(_each(host, given), _shape(right.shape, right.dtype), *given)


class ByPlatform:
    """Compiled kernels where the program runs on a CPU, rounds elsewhere."""

    def __init__(self, compiled: Core, rounds: Core):
        self.compiled, self.rounds, self.n_bundles = compiled, rounds, rounds.n_bundles

    def fill(
        self, capacity: LinkFloats, weight: FlowFloats, cap: FlowFloats, usage: Usage
    ) -> Filling:
        """Return the filled state."""
        return self._choose(lambda core: core.fill, capacity, weight, cap, usage)

    def structure(
        self,
        filling: Filling,
        capacity: LinkFloats,
        weight: FlowFloats,
        cap: FlowFloats,
        usage: Usage,
    ) -> Structure:
        """Return who stops whom."""
        return self._choose(lambda core: core.structure, filling, capacity, weight, cap, usage)

    def solve(
        self, s: Structure, right: LinkFloats, weight: FlowFloats, usage: Usage, *, transpose: bool
    ) -> LinkFloats:
        """Return the solution of the system over the structure, or of its transpose."""
        solve = lambda core: functools.partial(core.solve, transpose=transpose)
        return self._choose(solve, s, right, weight, usage)

    def _choose(self, method: Callable[[Core], Callable[..., Any]], *arguments: Any) -> Any:
        if not is_traced(*arguments):
            here = self.compiled if jax.default_backend() == "cpu" else self.rounds
            return method(here)(*arguments)
        return jax.lax.platform_dependent(
            *arguments, cpu=method(self.compiled), default=method(self.rounds)
        )


def _callback(host: Callable[..., Any], shapes: Any, *arguments: Any) -> Any:
    """Call `host`, now or when the program runs.

    Under `vmap` it is called once, with the axes of the batch in front of every argument: of
    length 1 where a batch has the argument in common.
    """
    if is_traced(*arguments):
        return jax.pure_callback(host, shapes, *arguments, vmap_method="expand_dims")
    return jax.tree.map(jnp.asarray, host(*arguments))


def _each(host: Callable[..., Any], like: Any) -> Callable[..., Any]:
    """Return a function that calls `host` for each problem of a batch, on all cores.

    Args:
        host: Takes arguments without a batch.
        like: Such arguments; only their ranks count.
    """
    ranks = [x.ndim for x in jax.tree.leaves(like)]

    def of_batch(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        leaves = [np.asarray(x) for x in leaves]
        leads = [x.shape[: x.ndim - rank] for x, rank in zip(leaves, ranks, strict=True)]
        lead = np.broadcast_shapes(*leads)
        results: list[Any] = [None] * math.prod(lead)

        def some(start: int, stop: int) -> None:
            for i in range(start, stop):
                # An axis of length 1 is common to the batch.
                at = [np.minimum(np.unravel_index(i, lead), np.array(n, int) - 1) for n in leads]
                own = [x[tuple(k)] for x, k in zip(leaves, at, strict=True)]
                results[i] = host(*tree.unflatten(own))

        _compiled.shared_out(some, len(results))
        stacked = lambda *each: np.stack(each).reshape((*lead, *np.shape(each[0])))
        return jax.tree.map(stacked, *results)

    return of_batch


def _rows(values: AnyArray, lead: tuple[int, ...]) -> np.ndarray:
    """Return (scenarios, ...) of values with batch axes in front, in float64."""
    wide = np.broadcast_to(np.asarray(values), (*lead, values.shape[-1])) if lead else values
    return _wide(wide).reshape(math.prod(lead), values.shape[-1])


def _shape(shape: tuple[int, ...], kind: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, kind)


def _wide(values: AnyArray) -> np.ndarray:
    return plain_array(values, np.float64)
