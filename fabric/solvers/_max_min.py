"""`max_min_rates`: the host shell that checks, chooses a method and calls a core."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fabric._errors import ModelError, UnsolvedError, nearest, raise_faults
from fabric._typing import AnyArray, FlowFloats, PerFlow
from fabric.kernels._local_rounds import Filling, Usage
from fabric.network import Network, Routes, canonical, check_link_counts, is_traced
from fabric.network._checks import whole
from fabric.solvers import _compiled, _rounds
from fabric.solvers._certify import live_capacity
from fabric.solvers._cores import ByPlatform, Compiled, Core, Rounds
from fabric.solvers._inputs import per_flow, value_faults
from fabric.solvers._levels import Mean, levels, mean_levels
from fabric.solvers._plan import plain_array
from fabric.solvers._quotient_lift import lifted
from fabric.solvers._solution import RESULTS, RateSolution
from fabric.solvers._symmetry import find, values_of
from fabric.solvers._symmetry_graph import graph_of
from fabric.solvers._table_core import fill as table_fill, tabled

METHODS = ("auto", "rounds", "compiled", "quotient")
DERIVATIVES = ("select", "mean")


def max_min_rates(
    network: Network,
    routes: Routes,
    *,
    weights: PerFlow | None = None,
    caps: PerFlow | None = None,
    method: str = "auto",
    derivative: str | Mean = "select",
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
            "quotient": `compress`, then "compiled" on classes of flows, for symmetric problems;
            host only. What was run, and why, is in the solution, such as "auto: compiled on cpu
            (heap: dense)". Inside a transformation "compiled" needs concrete routes and runs as a
            host callback; "auto" chooses when the program is lowered.
        derivative: Static. At a tie rates are not differentiable and this says what to return.
            "select": the derivative of one side, the same for every method, chosen by a fixed
            priority of links. "mean" or `Mean(samples, sigma, seed)`: the average over slightly
            jittered capacities. For the exact one-sided derivative use `one_sided`.
        max_rounds: Static, of "rounds" only: "compiled" and "quotient" ignore it, and so does
            "auto" where it takes "compiled". Default: the number of flows, which is always
            enough, since every round stops at least one flow.
        throw: Static. Raise unless the solve converged. With `throw=False` the program holds no
            host callback and the caller reads `solution.result`; use that inside loops, under
            `vmap` and in anything timed.

    Returns:
        A `RateSolution`: `rates` (flows,) in byte/s, the `bottleneck` link of each flow (-1 if
        its cap stopped it), which links are `saturated`, the number of `rounds`, the
        `tie_margin`, and a `result`.

    Raises:
        ModelError: If `network` and `routes` count links differently, a value is out of range
            (concrete inputs; all faults at once), or the method is unknown.
        InfeasibleError: If the method is "quotient" and there is too little symmetry.
        InfeasibleError: If "compiled" would not fit in memory, with the bytes it needs and has.
        UnsolvedError: If `throw` and the solve did not converge. Inside a transformation it is
            the error of the JAX runtime, at run time, with the same text.

    Precision: Rates carry the type of `network.capacity`; "compiled" works in float64 whatever
        that is. In float32 two links count as full together when their fill levels differ by
        less than 16 ulp; float64 compares exactly.
    Derivatives: Forward and reverse mode, any order (but first order only through `jax.lax.scan`
        and `jax.lax.map`), in capacity, weights, caps, `hop_use` and
        `part_use`. Rates are piecewise linear in capacity and caps. `tie_margin` says how near
        the next kink is.
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
    weights = per_flow("weights", weights, routes.weight, routes, "max_min_rates")
    caps = per_flow("caps", caps, routes.cap, routes, "max_min_rates")
    rounds = max(routes.n_flows, 1) if max_rounds is None else whole("max_rounds", max_rounds)
    tangents = _derivative(derivative)
    problem = (network.capacity, network.alive, weights, caps)
    if is_traced(network, routes, weights, caps):
        chosen = _method_in_trace(method, routes)
        core = _core(chosen, routes, rounds)
        kind = canonical(np.dtype(network.capacity.dtype))
        parts = solve_with(core, tangents, *_cast(problem, kind), usage(routes, kind))
        solution = RateSolution(*parts, method=chosen)
        if throw:
            return solution.result.error_if(solution, solution.result != RESULTS.converged)
        return solution
    kind = canonical(np.dtype(network.capacity.dtype))
    raise_faults(value_faults(network, routes, weights, caps, kind))
    device = jax.default_backend()
    chosen = ("compiled" if device == "cpu" else "rounds") if method == "auto" else method
    # Inside somebody's jit a solve of which nothing is traced is a constant, not a part of it.
    with jax.ensure_compile_time_eval():
        if chosen == "compiled":
            solution = _solve_compiled(network, routes, weights, caps)
        elif chosen == "quotient":
            solution = _solve_quotient(network, routes, weights, caps)
        else:
            solution = _solve_rounds(network, routes, weights, caps, max_rounds)
        if throw and not bool(solution.result == RESULTS.converged):
            raise UnsolvedError(RESULTS[solution.result])
    if method == "auto":
        ran = solution.method.replace(chosen, f"{chosen} on {device}", 1)
        solution = dataclasses.replace(solution, method=f"auto: {ran}")
    return solution


def _derivative(derivative: str | Mean) -> Mean | None:
    """Return how to average over jittered capacities, or None for the selected derivative."""
    if isinstance(derivative, Mean):
        return derivative
    if derivative not in DERIVATIVES:
        message = (
            f"`max_min_rates(derivative={derivative!r})` is no derivative. "
            f"{nearest(str(derivative), DERIVATIVES)} The exact one-sided derivative is "
            f"`fabric.one_sided`."
        )
        raise ModelError(message)
    return Mean() if derivative == "mean" else None


def _method_in_trace(method: str, routes: Routes) -> str:
    """Return the method to use inside a transformation; traced routes have no compiled layout."""
    if method == "quotient":
        message = (
            '`max_min_rates(method="quotient")` looks at values, but inside this JAX '
            "transformation they are traced. Compress outside of it with `quotient = "
            "fabric.compress(...)` and call `quotient.solve(capacity)` inside, or use "
            'method="auto".'
        )
        raise NotImplementedError(message)
    if is_traced(routes):
        if method == "compiled":
            message = (
                '`max_min_rates(method="compiled")` needs concrete routes, but inside this JAX '
                'transformation they are traced. Use method="rounds" or "auto", or close over them.'
            )
            raise NotImplementedError(message)
        return "rounds"
    return "auto: compiled on cpu, rounds elsewhere" if method == "auto" else method


def _core(chosen: str, routes: Routes, max_rounds: int) -> Core:
    """Return the core; one per routes, since JAX caches by identity what it traced with one."""
    if is_traced(routes):
        return Rounds(routes.n_bundles, max_rounds)
    if ("core", chosen, max_rounds) not in routes.plans:
        if chosen == "compiled":
            core = Compiled(routes)
        elif chosen == "rounds":
            core = tabled(routes, max_rounds)
        else:
            # A program for a CPU alone never runs the rounds: it should not hold tables either.
            on_cpu = jax.default_backend() == "cpu"
            rounds = Rounds(routes.n_bundles, max_rounds) if on_cpu else tabled(routes, max_rounds)
            core = ByPlatform(Compiled(routes), rounds)
        routes.plans["core", chosen, max_rounds] = core
    return routes.plans["core", chosen, max_rounds]


def _solve_compiled(
    network: Network, routes: Routes, weights: FlowFloats, caps: FlowFloats
) -> RateSolution:
    """Solve on the host, without a callback."""
    capacity = live_capacity(network)
    weight, cap = plain_array(weights, np.float64), plain_array(caps, np.float64)
    found = _compiled.answer(capacity, routes, weight, cap)
    kind = canonical(np.dtype(network.capacity.dtype))
    return RateSolution(
        rates=jnp.asarray(weight * found.level, kind),
        bottleneck=jnp.asarray(found.bottleneck),
        saturated=jnp.asarray(found.saturated),
        rounds=jnp.asarray(found.rounds, jnp.int32),
        tie_margin=jnp.asarray(found.margin, kind),
        result=RESULTS.unbounded if np.isinf(found.level).any() else RESULTS.converged,
        method=f"compiled ({_compiled.how(routes)})",
    )


def _solve_quotient(
    network: Network, routes: Routes, weights: FlowFloats, caps: FlowFloats
) -> RateSolution:
    """Solve the classes of flows and links, and lift their solution."""
    values = values_of(network, routes, weights, caps)
    partition = find(routes, values)
    kind = canonical(np.dtype(network.capacity.dtype))
    of_classes = Network(values.capacity[partition.first_row].astype(kind))
    class_routes = partition.routes_with(values.weight, values.cap)
    solution = _solve_compiled(of_classes, class_routes, class_routes.weight, class_routes.cap)
    return lifted(partition, graph_of(routes), class_routes, solution, live_capacity(network))


def _solve_rounds(
    network: Network, routes: Routes, weights: FlowFloats, caps: FlowFloats, max_rounds: int | None
) -> RateSolution:
    """Solve by rounds over tables; by plain ones where bundles are wide."""
    kind, on_cpu = canonical(np.dtype(network.capacity.dtype)), jax.default_backend() == "cpu"
    problem = _cast((network.capacity, network.alive, weights, caps), kind)
    tables = _rounds.first_tables(routes, kind)
    if tables is None:
        most = max(routes.n_flows, 1) if max_rounds is None else max_rounds
        parts = _jitted_rounds(routes.n_bundles, most)(*problem, _usage_on_device(routes, kind))
        return RateSolution(*parts, method="rounds")
    weight, cap = plain_array(weights, np.float64), plain_array(caps, np.float64)
    capacity = live_capacity(network)
    by_stages = functools.partial(
        _rounds.fill, routes, tables, capacity, weight, cap, kind, max_rounds
    )
    if not on_cpu:
        most = _rounds.PATIENCE_ELSEWHERE if max_rounds is None else max_rounds
        limit = jnp.where(problem[1], problem[0], 0)
        end, method = table_fill(routes, limit, *problem[2:], most), "rounds"
        if max_rounds is None and bool(end.live.any()):
            end, method = _filling(by_stages(patience=1), kind, routes.n_links)
    else:
        filled = by_stages()
        if kind == np.float64 and not filled.live.any():
            return _by_host(filled, routes, capacity, weight, cap)
        end, method = _filling(filled, kind, routes.n_links)
    parts = _jitted_evidence(routes.n_bundles)(end, *problem, _usage_on_device(routes, kind))
    return RateSolution(*parts, method=method)


def _by_host(
    filled: _rounds.Filled,
    routes: Routes,
    capacity: np.ndarray,
    weight: np.ndarray,
    cap: np.ndarray,
) -> RateSolution:
    """Return the solution, its evidence found by compiled kernels in float64."""
    s = _compiled.structure(routes, filled.level, filled.stopper, capacity, weight, cap)
    return RateSolution(
        rates=jnp.asarray(weight * filled.level),
        bottleneck=jnp.asarray(np.where(s.bottleneck < routes.n_links, s.bottleneck, -1)),
        saturated=jnp.asarray(s.saturated),
        rounds=jnp.asarray(filled.rounds, jnp.int32),
        tie_margin=jnp.asarray(s.margin),
        result=RESULTS.unbounded if np.isinf(filled.level).any() else RESULTS.converged,
        method=filled.method,
    )


def _filling(filled: _rounds.Filled, kind: np.dtype, n_links: int) -> tuple[Filling, str]:
    """Return what was filled as the cores return it, and by what."""
    end = Filling(
        level=jnp.asarray(filled.level, kind),
        bottleneck=jnp.asarray(filled.stopper),
        live=jnp.asarray(filled.live),
        used=jnp.zeros(n_links, kind),
        rounds=jnp.asarray(filled.rounds, jnp.int32),
    )
    return end, filled.method


def _usage_on_device(routes: Routes, kind: np.dtype) -> Usage:
    """Return the arrays of concrete routes, from their cache."""
    if ("usage", kind) not in routes.plans:
        routes.plans["usage", kind] = usage(routes, kind)
    return routes.plans["usage", kind]


def _cast(
    problem: tuple[AnyArray, ...], kind: np.dtype
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    capacity, alive, weights, caps = problem
    floats = lambda x: jnp.asarray(x, kind)
    return floats(capacity), jnp.asarray(alive, bool), floats(weights), floats(caps)


def usage(routes: Routes, kind: np.dtype | None = None) -> Usage:
    """Return the arrays of routes as the kernels take them, of one floating-point type."""
    floats = lambda x: jnp.asarray(x, kind)
    ints = lambda x: jnp.asarray(x, jnp.int32)
    return Usage(
        ints(routes.hop_flow), ints(routes.hop_bundle), floats(routes.hop_use),
        ints(routes.part_bundle), ints(routes.part_link), floats(routes.part_use),
    )  # fmt: skip


@functools.cache
def _jitted_rounds(n_bundles: int, max_rounds: int) -> Callable[..., tuple[Any, ...]]:
    return jax.jit(functools.partial(solve_with, Rounds(n_bundles, max_rounds), None))


@functools.cache
def _jitted_evidence(n_bundles: int) -> Callable[..., tuple[Any, ...]]:
    return jax.jit(functools.partial(_evidence, Rounds(n_bundles, 0)))


def solve_with(
    core: Core,
    mean: Mean | None,
    capacity: AnyArray,
    alive: AnyArray,
    weight: AnyArray,
    cap: AnyArray,
    usage: Usage,
) -> tuple[Any, ...]:
    """Return the fields of a `RateSolution` up to `method`, from a core; `sharded` solves so too.

    Args:
        core: What fills, and finds the structure.
        mean: How to average the derivative over jittered capacities; None for that of one side.
        capacity: (links,), byte/s.
        alive: (links,).
        weight: (flows,).
        cap: (flows,), byte/s.
        usage: Which flow crosses which link.
    """
    # NaN fails every comparison; the kernels see sound numbers only, and the code tells.
    valid = jnp.all(capacity >= 0) & jnp.all(weight > 0) & jnp.all(cap >= 0)
    capacity = jnp.where(alive & (capacity >= 0), capacity, 0)
    weight, cap = jnp.where(weight > 0, weight, 1), jnp.where(cap >= 0, cap, jnp.inf)
    if mean is None:
        end = levels(core, capacity, weight, cap, usage)
    else:
        end = mean_levels(core, mean, capacity, weight, cap, usage)
    rates, bottleneck, saturated, rounds, margin, result = _evidence(
        core, end, capacity, alive, weight, cap, usage
    )
    result = RESULTS.where(valid, result, RESULTS.invalid)
    return rates, bottleneck, saturated, rounds, margin, result


def _evidence(
    core: Core,
    end: Filling,
    capacity: AnyArray,
    alive: AnyArray,
    weight: AnyArray,
    cap: AnyArray,
    usage: Usage,
) -> tuple[Any, ...]:
    """Return the fields of a `RateSolution` up to `method`, of sound numbers and their filling."""
    n_links = capacity.shape[0]
    capacity = jnp.where(alive, capacity, 0)
    held = jax.tree.map(jax.lax.stop_gradient, (end, capacity, weight, cap, usage))
    s = core.structure(*held)
    finite = jnp.isfinite(end.level)
    result = RESULTS.where(jnp.all(finite), RESULTS.converged, RESULTS.unbounded)
    result = RESULTS.where(jnp.any(end.live), RESULTS.max_rounds_reached, result)
    bottleneck = jnp.where(s.bottleneck < n_links, s.bottleneck, -1)
    # Twice `where`: infinity times the tangent of a weight of 0 would be NaN.
    rates = jnp.where(finite, weight * jnp.where(finite, end.level, 0), jnp.inf)
    return rates, bottleneck, s.saturated, end.rounds, s.margin, result
