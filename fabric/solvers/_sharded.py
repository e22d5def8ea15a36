"""`sharded`: one max-min solve on several devices, the hops dealt out over an axis of a mesh."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fabric._errors import ModelError, UnsolvedError, nearest, quoted, raise_faults
from fabric._typing import FlowFloats, LinkFloats, PerFlow
from fabric.kernels._local_rounds import Ends, Filling, Usage, local_rounds
from fabric.kernels._structure import (
    Structure,
    hashed_rank,
    solve_levels,
    solve_prices,
    structure,
)
from fabric.network import Network, Routes, canonical, check_link_counts, is_traced
from fabric.network._checks import whole
from fabric.solvers._inputs import per_flow, value_faults
from fabric.solvers._max_min import solve_with
from fabric.solvers._solution import RESULTS, RateSolution


def sharded(
    network: Network,
    routes: Routes,
    mesh: Mesh,
    axis: str | None = None,
    *,
    weights: PerFlow | None = None,
    caps: PerFlow | None = None,
    max_rounds: int | None = None,
    throw: bool = True,
) -> RateSolution:
    """Return the max-min fair rate of every flow, solved by all devices of a mesh axis together.

    The rates are those of `max_min_rates`. Each device holds an equal part of the hops, and all of
    the links, parts and flows; every round sums over its hops and then over the devices. Use it
    when the routes are too large for one accelerator. Many solves at once want the batch spread
    over the devices instead, each solving on its own.

    Args:
        network: The links. `capacity` (links,), byte/s, is traced.
        routes: Which flow crosses which link. Where the devices do not divide the hops, padding is
            added; concrete routes are put on the devices once and stay there.
        mesh: The devices; static.
        axis: The axis of `mesh` to deal the hops over; static. Default: all axes.
        weights: (flows,), dimensionless, more than 0. Default: those that `routes` carries.
        caps: (flows,), byte/s. Default: those that `routes` carries.
        max_rounds: Static. Default: the number of flows, which is always enough.
        throw: Static. Raise unless the solve converged; as in `max_min_rates`.

    Returns:
        The `RateSolution` of `max_min_rates`, on every device.

    Raises:
        ModelError: If `mesh` is no mesh or has no such axis, `network` and `routes` count links
            differently, or a value is out of range (concrete inputs; all faults at once).
        UnsolvedError: If `throw` and the solve did not converge. Inside a transformation it is
            the error of the JAX runtime, at run time, with the same text.

    Precision: Rates carry the type of `network.capacity`. In float32 it is that of
        `max_min_rates(method="rounds")` on traced routes, about 1.3e-5 relative for 100,000 flows
        of a leaf-spine, not the 2e-6 of rounds on concrete routes: what is left of a link is kept
        as one number. Sums are added up in another order.
    Derivatives: Forward and reverse mode, as `derivative="select"` of `max_min_rates`.
    Cost: Per round that of "rounds" over the number of devices, and six reductions of link-sized
        or flow-sized arrays over the devices. One program per shape and mesh.

    Examples:
        >>> import jax
        >>> import fabric as fb
        >>> mesh = jax.make_mesh((1,), ("hops",))
        >>> net, routes = fb.Network([10.0, 4.0]), fb.Routes.from_paths([[0, 1], [0]], n_links=2)
        >>> sharded(net, routes, mesh).rates.tolist()
        [4.0, 6.0]
    """
    check_link_counts(network, routes, "sharded")
    names = _axes(mesh, axis)
    # Outside of `shard_map` the compiler chooses how arrays lie, whatever the mesh says of types.
    mesh = Mesh(mesh.devices, mesh.axis_names)
    weights = per_flow("weights", weights, routes.weight, routes, "sharded")
    caps = per_flow("caps", caps, routes.cap, routes, "sharded")
    rounds = max(routes.n_flows, 1) if max_rounds is None else whole("max_rounds", max_rounds)
    kind = canonical(np.dtype(network.capacity.dtype))
    if not is_traced(network, routes, weights, caps):
        raise_faults(value_faults(network, routes, weights, caps, kind))
    floats = lambda x: jnp.asarray(x, kind)
    parts = _jitted(mesh, names, routes.n_bundles, rounds)(
        floats(network.capacity), jnp.asarray(network.alive, bool), floats(weights), floats(caps),
        _dealt(routes, mesh, names, kind),
    )  # fmt: skip
    solution = RateSolution(*parts, method=f"rounds (devices: {_count(mesh, names)})")
    if not throw:
        return solution
    if is_traced(solution):
        return solution.result.error_if(solution, solution.result != RESULTS.converged)
    if not bool(solution.result == RESULTS.converged):
        raise UnsolvedError(RESULTS[solution.result])
    return solution


class Sharded:
    """Vectorised rounds and sweeps whose hops lie on several devices: a `Core`.

    Only what is never differentiated runs inside `shard_map`: filling, structure and both linear
    solves. Their results are reduced over the devices, hence the same on each. The rule of
    `fabric.solvers._levels` stands outside, where arrays are whole, so that no transpose of a
    reduction can count a cotangent once per device.
    """

    def __init__(self, mesh: Mesh, axes: tuple[str, ...], n_bundles: int, max_rounds: int):
        self.mesh, self.axes, self.n_bundles, self.max_rounds = mesh, axes, n_bundles, max_rounds

    def fill(
        self, capacity: LinkFloats, weight: FlowFloats, cap: FlowFloats, usage: Usage
    ) -> Filling:
        """Return the filled state."""
        fill = lambda usage, capacity, weight, cap: local_rounds(
            capacity, weight, cap, usage, self.n_bundles, self.max_rounds, self.axes
        )
        return self._on_devices(fill, usage, capacity, weight, cap)

    def structure(
        self,
        filling: Filling,
        capacity: LinkFloats,
        weight: FlowFloats,
        cap: FlowFloats,
        usage: Usage,
    ) -> Structure:
        """Return who stops whom."""
        ranks = tuple(jnp.asarray(x) for x in hashed_rank(capacity.shape[0]))
        who = lambda usage, level, stopper, capacity, weight, cap, rank, link_of: structure(
            level, stopper, capacity, weight, cap, usage, self.n_bundles, rank, link_of, self.axes
        )
        arrays = (filling.level, filling.bottleneck, capacity, weight, cap, *ranks)
        return self._on_devices(who, usage, *arrays)

    def solve(
        self, s: Structure, right: LinkFloats, weight: FlowFloats, usage: Usage, *, transpose: bool
    ) -> LinkFloats:
        """Return the solution of the system over the structure, or of its transpose."""
        sweep = solve_prices if transpose else solve_levels
        ends = lambda usage, weight, right: Ends(
            usage, weight.shape[0], self.n_bundles, right.shape[0], self.axes
        )
        return self._on_devices(
            lambda usage, s, right, weight: sweep(s, right, weight, ends(usage, weight, right)),
            usage, s, right, weight,
        )  # fmt: skip

    def _on_devices(self, function: Callable[..., Any], usage: Usage, *whole: Any) -> Any:
        """Call a function with the hops of each device; all else, and what returns, is whole."""
        every = PartitionSpec()
        return jax.shard_map(
            lambda usage, *whole: function(Usage(*usage), *whole),
            mesh=self.mesh,
            in_specs=(_specs(self.axes), *(every for _ in whole)),
            out_specs=every,
        )(tuple(usage), *whole)


@functools.cache
def _jitted(
    mesh: Mesh, axes: tuple[str, ...], n_bundles: int, max_rounds: int
) -> Callable[..., tuple[Any, ...]]:
    core = Sharded(mesh, axes, n_bundles, max_rounds)
    return jax.jit(functools.partial(solve_with, core, None))


def _axes(mesh: object, axis: str | None) -> tuple[str, ...]:
    if not isinstance(mesh, Mesh):
        message = (
            f"`sharded(mesh={quoted(mesh)})` is no mesh of devices. Make one with "
            f"`jax.make_mesh((jax.device_count(),), ('hops',))`."
        )
        raise ModelError(message)
    names = tuple(str(name) for name in mesh.axis_names)
    if axis is None:
        return names
    if axis not in names:
        message = f"`sharded(axis={axis!r})` is no axis of the mesh. {nearest(axis, names)}"
        raise ModelError(message)
    return (axis,)


def _count(mesh: Mesh, axes: tuple[str, ...]) -> int:
    return int(np.prod([mesh.shape[name] for name in axes]))


def _dealt(routes: Routes, mesh: Mesh, axes: tuple[str, ...], kind: np.dtype) -> Usage:
    """Return the routes with as many hops on every device, from the cache where they are there."""
    if is_traced(routes):
        return _padded(routes, mesh, axes, kind)
    key = ("sharded", mesh, axes, kind)
    if key not in routes.plans:
        with jax.ensure_compile_time_eval():
            usage = zip(_padded(routes, mesh, axes, kind), _specs(axes), strict=True)
            routes.plans[key] = Usage(
                *(jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in usage)
            )
    return routes.plans[key]


def _specs(axes: tuple[str, ...]) -> tuple[PartitionSpec, ...]:
    """Return how the fields of `Usage` lie on the devices: hops dealt out, parts on each."""
    return (PartitionSpec(axes),) * 3 + (PartitionSpec(),) * 3


def _padded(routes: Routes, mesh: Mesh, axes: tuple[str, ...], kind: np.dtype) -> Usage:
    short = -routes.n_hops % _count(mesh, axes)
    filled = lambda x, type_, fill: jnp.pad(jnp.asarray(x, type_), (0, short), constant_values=fill)
    parts = lambda x, type_: jnp.asarray(x, type_)
    return Usage(
        filled(routes.hop_flow, jnp.int32, routes.n_flows),
        filled(routes.hop_bundle, jnp.int32, routes.n_bundles),
        filled(routes.hop_use, kind, 0),
        parts(routes.part_bundle, jnp.int32),
        parts(routes.part_link, jnp.int32),
        parts(routes.part_use, kind),
    )
