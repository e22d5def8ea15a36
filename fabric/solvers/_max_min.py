"""`max_min_rates`: the host shell that checks, chooses a method and calls a core."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fabric._errors import ModelError, UnsolvedError, nearest, raise_faults
from fabric._typing import AnyArray, FlowFloats
from fabric.kernels._local_rounds import TIE_ULPS, Ends, Filling, Usage, local_rounds
from fabric.network import Network, Routes, canonical, check_link_counts, is_traced, place
from fabric.network._checks import capacity_faults, number_faults
from fabric.solvers import _compiled
from fabric.solvers._certify import live_capacity, usage_arrays
from fabric.solvers._solution import RESULTS, RateSolution

METHODS = ("auto", "rounds", "compiled")
FULL = 1e-12
"""A link whose load is within this of its capacity, relative, counts as full in float64."""


def max_min_rates(
    network: Network,
    routes: Routes,
    *,
    weights: FlowFloats | None = None,
    caps: FlowFloats | None = None,
    method: str = "auto",
    max_rounds: int | None = None,
    throw: bool = True,
) -> RateSolution:
    """Return the max-min fair rate of every flow.

    All flows start at zero and grow together, each in proportion to its weight. When a link
    fills, the flows crossing it stop and the others carry on, until nothing can grow. In the
    result no flow can gain except at the cost of a flow that is no better off, and there is
    exactly one such allocation.

    Args:
        network: The links. `capacity` (links,), byte/s, is traced: new values reuse the compiled
            program, a different number of links compiles another. A failed link (`alive` false)
            counts as capacity 0.
        routes: Which flow crosses which link. Padding is ignored.
        weights: (flows,), dimensionless, more than 0. A flow of weight 2 grows twice as fast.
            Default: those that `routes` carries.
        caps: (flows,), byte/s. A flow stops growing when it reaches this. Default: those that
            `routes` carries.
        method: Static. "rounds": vectorised local-minimum rounds in JAX, on any device.
            "compiled": CPU kernels, local rounds for sparse problems, a heap for dense or deep
            ones. "auto": compiled where JAX runs on a CPU, rounds elsewhere and while tracing.
            What was run is in the solution.
        max_rounds: Static, of "rounds" only. Default: the number of flows, which is always
            enough, since every round stops at least one flow.
        throw: Static. Raise unless the solve converged. With `throw=False` the program holds no
            host callback and the caller reads `solution.result`; use that inside loops, under
            `vmap` and in anything timed.

    Returns:
        A `RateSolution`: `rates` (flows,) in byte/s, the `bottleneck` link of each flow (-1 if
        its cap stopped it), which links are `saturated`, the number of `rounds`, and a `result`.

    Raises:
        ModelError: If `network` and `routes` count links differently, a value is out of range
            (concrete inputs; all faults at once), or the method is unknown.
        UnsolvedError: If `throw` and the solve did not converge; while tracing,
            `equinox.EquinoxRuntimeError` at run time.

    Precision: Rates carry the type of `network.capacity`; "compiled" works in float64 whatever
        that is. In float32 two links count as full together when their fill levels differ by
        less than 16 ulp; float64 compares exactly.
    Cost: O(hops + parts + links + flows) work per round and one program per shape; "compiled"
        keeps its transposed layout with the routes for the next solve.

    Examples:
        Two flows meet on link 0, one of them also crosses the slower link 1.

        >>> import jax.numpy as jnp
        >>> from fabric import Network, Routes, max_min_rates
        >>> routes = Routes.from_paths([[0, 1], [0]], n_links=2)
        >>> max_min_rates(Network(jnp.array([10.0, 4.0])), routes).rates.tolist()
        [4.0, 6.0]

    References:
        D. Bertsekas and R. Gallager, Data Networks, 2nd ed., 1992, section 6.5.2.
    """
    check_link_counts(network, routes)
    if method not in METHODS:
        message = f"`max_min_rates(method='{method}')` is no method. {nearest(method, METHODS)}"
        raise ModelError(message)
    weights = routes.weight if weights is None else weights
    caps = routes.cap if caps is None else caps
    for name, values in (("weights", weights), ("caps", caps)):
        if np.shape(values) != (routes.n_flows,):
            message = (
                f"`max_min_rates({name}=...)` has shape {np.shape(values)}, but the routes have "
                f"{routes.n_flows:,} flows: give one value per flow."
            )
            raise ModelError(message)
    rounds = max(routes.n_flows, 1) if max_rounds is None else max_rounds
    if is_traced(network, routes, weights, caps):
        if method == "compiled":
            message = (
                '`max_min_rates(method="compiled")` needs concrete arrays, but it was called '
                'inside a JAX transformation. Use method="rounds" or "auto" there.'
            )
            raise NotImplementedError(message)
        return _traced(network, routes, weights, caps, rounds, throw)
    _check_values(network, weights, caps)
    on_cpu = jax.default_backend() == "cpu"
    chosen = ("compiled" if on_cpu else "rounds") if method == "auto" else method
    core = _solve_compiled if chosen == "compiled" else _solve_rounds
    solution = core(network, routes, weights, caps, rounds, "auto: " if method == "auto" else "")
    if throw and not bool(solution.result == RESULTS.converged):
        raise UnsolvedError(RESULTS[solution.result])
    return solution


def _check_values(network: Network, weights: FlowFloats, caps: FlowFloats) -> None:
    raise_faults(
        capacity_faults("Network(capacity)", np.asarray(network.capacity), network.link_name)
        + number_faults("weights=...", "weight", np.asarray(weights), zero=False)
        + number_faults("caps=...", "cap in byte/s", np.asarray(caps), zero=True, infinite=True)
    )


def _solve_compiled(
    network: Network,
    routes: Routes,
    weights: FlowFloats,
    caps: FlowFloats,
    max_rounds: int,
    prefix: str,
) -> RateSolution:
    from fabric.kernels import _evidence

    capacity = live_capacity(network)
    weight, cap = np.asarray(weights, np.float64), np.asarray(caps, np.float64)
    level, bottleneck, rounds, how = _compiled.fill(capacity, routes, weight, cap)
    rate = weight * level
    arrays = usage_arrays(routes)
    load = _evidence.loads(
        np.where(np.isfinite(rate), rate, 0), *arrays, routes.n_bundles, routes.n_links
    )
    saturated = load >= capacity * (1 - FULL)
    saturated &= _evidence.used_links(*arrays[1:], routes.n_bundles, routes.n_links)
    kind = canonical(np.dtype(network.capacity.dtype))
    unbounded = bool(np.isinf(level).any())
    return RateSolution(
        rates=jnp.asarray(rate, kind),
        bottleneck=jnp.asarray(bottleneck),
        saturated=jnp.asarray(saturated),
        rounds=jnp.asarray(rounds, jnp.int32),
        result=RESULTS.unbounded if unbounded else RESULTS.converged,
        method=f"{prefix}compiled ({how})",
    )


def _solve_rounds(
    network: Network,
    routes: Routes,
    weights: FlowFloats,
    caps: FlowFloats,
    max_rounds: int,
    prefix: str,
) -> RateSolution:
    net, placed = place(network, routes)
    kind = net.capacity.dtype
    core = _jitted_rounds(routes.n_bundles, max_rounds)
    floats = lambda x: jnp.asarray(x, kind)
    parts = core(net.capacity, net.alive, floats(weights), floats(caps), usage(placed))
    return RateSolution(*parts, method=f"{prefix}rounds")


def _traced(
    network: Network,
    routes: Routes,
    weights: FlowFloats,
    caps: FlowFloats,
    max_rounds: int,
    throw: bool,
) -> RateSolution:
    kind = canonical(np.dtype(network.capacity.dtype))
    capacity = jnp.asarray(network.capacity, kind)
    floats = lambda x: jnp.asarray(x, kind)
    parts = _rounds(
        capacity, jnp.asarray(network.alive), floats(weights), floats(caps),
        usage(routes, kind), routes.n_bundles, max_rounds,
    )  # fmt: skip
    solution = RateSolution(*parts, method="rounds")
    if throw:
        return solution.result.error_if(solution, solution.result != RESULTS.converged)
    return solution


def usage(routes: Routes, kind: np.dtype | None = None) -> Usage:
    """Return the arrays of routes as the kernels take them, cast where `kind` is given."""
    floats = (lambda x: x) if kind is None else (lambda x: jnp.asarray(x, kind))
    ints = (lambda x: x) if kind is None else (lambda x: jnp.asarray(x, jnp.int32))
    return Usage(
        ints(routes.hop_flow), ints(routes.hop_bundle), floats(routes.hop_use),
        ints(routes.part_bundle), ints(routes.part_link), floats(routes.part_use),
    )  # fmt: skip


@jax.custom_jvp
def _refuse_derivatives(filling: Filling) -> Filling:
    return filling


@_refuse_derivatives.defjvp
def _refuse(primals: Any, tangents: Any) -> Any:
    # JAX would differentiate the loop, which at a tie is no derivative of anything.
    message = "`max_min_rates` has no derivatives yet: at ties they need a rule of their own."
    raise NotImplementedError(message)


@functools.cache
def _jitted_rounds(n_bundles: int, max_rounds: int) -> Callable[..., tuple[Any, ...]]:
    return jax.jit(functools.partial(_rounds, n_bundles=n_bundles, max_rounds=max_rounds))


def _rounds(
    capacity: AnyArray,
    alive: AnyArray,
    weight: AnyArray,
    cap: AnyArray,
    usage: Usage,
    n_bundles: int,
    max_rounds: int,
) -> tuple[Any, ...]:
    """Return the fields of a `RateSolution` up to `method`."""
    n_flows, n_links = weight.shape[0], capacity.shape[0]
    capacity = jnp.where(alive, capacity, 0)
    end = _refuse_derivatives(local_rounds(capacity, weight, cap, usage, n_bundles, max_rounds))
    rate = weight * end.level
    finite = jnp.isfinite(rate)
    ends = Ends(usage, n_flows, n_bundles, n_links)
    load = ends.sum_to_links(jnp.where(finite, rate, 0))
    tolerance = (
        FULL if capacity.dtype == jnp.float64 else TIE_ULPS * float(jnp.finfo(capacity.dtype).eps)
    )
    stopping = jnp.zeros(n_links, bool).at[end.bottleneck].max(end.bottleneck >= 0, mode="drop")
    used = ends.sum_to_links(weight) > 0
    saturated = stopping | (used & (load >= capacity * (1 - tolerance)))
    result = RESULTS.where(jnp.all(finite), RESULTS.converged, RESULTS.unbounded)
    result = RESULTS.where(jnp.any(end.live), RESULTS.max_rounds_reached, result)
    return rate, end.bottleneck, saturated, end.rounds, result
