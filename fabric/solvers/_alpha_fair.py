"""`alpha_fair_rates`: the smooth stand-in of max-min rates, for optimisers to steer by."""

import functools
from collections.abc import Iterable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fabric._errors import ModelError, UnsolvedError, quoted, raise_faults
from fabric._typing import AnyArray, FlowFloats, LinkFloats, PerFlow
from fabric.kernels import _smooth
from fabric.kernels._local_rounds import Usage
from fabric.kernels._smooth import Found, Problem
from fabric.network import Network, Routes, canonical, check_link_counts, is_traced
from fabric.network._checks import whole
from fabric.solvers._inputs import per_flow, value_faults
from fabric.solvers._only_by_rule import only_by_rule

MAX_STEPS = 20_000


class FAIR_RESULTS(eqx.Enumeration):
    """How an alpha-fair solve ended; each code owns its text."""

    converged = ""
    max_steps_reached = (
        "Log prices did not come to rest within `max_steps`. Raise `max_steps` or `tol`, or come "
        "from a solution of a smaller alpha: `anneal`."
    )
    invalid = (
        "A capacity or cap is negative or NaN, or a weight or `alpha` is not more than 0, so there "
        "is nothing to solve. Outside of a transformation the error says which."
    )
    unbounded = (
        "At least one flow crosses no link and has no cap, so its fair rate is "
        "infinite. Give it a finite `cap`, or drop it from the routes."
    )


class AlphaFairSolution(eqx.Module):
    """Alpha-fair rates, and how well they balance.

    Attributes:
        rates: (flows,), byte/s.
        share: (links,), byte/s: the level (rate over weight) that the link alone would give its
            flows. Its price is `share` to the power of -alpha. Where a link has room to spare the
            share is so large that the price is nothing. A start for a solve nearby.
        priced: (links,), whether the link holds flows back.
        residual: The largest relative overload of a link or, where there is room, of that room
            times the price, relative to what its flows pay. 0 is exact.
        steps: Steps taken.
        result: A `FAIR_RESULTS` code.
    """

    rates: Float[Array, " flows"]
    share: Float[Array, " links"]
    priced: Bool[Array, " links"]
    residual: Float[Array, ""]
    steps: Int[Array, ""]
    result: FAIR_RESULTS


def alpha_fair_rates(
    network: Network,
    routes: Routes,
    alpha: float | AnyArray,
    *,
    weights: PerFlow | None = None,
    caps: PerFlow | None = None,
    tol: float | None = None,
    max_steps: int = MAX_STEPS,
    start: AlphaFairSolution | None = None,
    throw: bool = True,
) -> AlphaFairSolution:
    """Return the alpha-fair rate of every flow, which nears the max-min rate as alpha grows.

    The rates r maximise the sum over flows of w^alpha r^(1 - alpha) / (1 - alpha) under the
    capacities and caps. Alpha 1 is proportional fairness; the distance from max-min rates falls
    as 1 / alpha. A flow feels every link on its way, not its bottleneck alone, so that gradients
    say more than those of max-min rates, whose kinks they round off. Use them to steer, and report
    rates of `max_min_rates`.

    Args:
        network: The links. `capacity` (links,), byte/s, is traced. A failed link counts as
            capacity 0: flows over it have rate 0.
        routes: Which flow crosses which link. Padding is ignored.
        alpha: More than 0, dimensionless, traced. 1 to 128 is what the tests cover.
        weights: (flows,), dimensionless, more than 0. Default: those that `routes` carries.
        caps: (flows,), byte/s. Default: those that `routes` carries.
        tol: Of `residual`, traced. Default: 1e-9 in float64, 1e-5 in float32.
        max_steps: Static.
        start: A solution of the same network and routes to start from; changes the number of
            steps, and rates within `tol`.
        throw: Static. Raise unless the solve converged; as in `max_min_rates`.

    Returns:
        An `AlphaFairSolution`: `rates` (flows,) in byte/s, the `share` of every link in byte/s,
        which links are `priced`, the `residual`, the `steps` and a `result` code.

    Raises:
        ModelError: If `network` and `routes` count links differently, `start` is no solution of so
            many links and flows, or a value is out of range (concrete inputs; all faults at once).
        UnsolvedError: If `throw` and the solve did not converge. Inside a transformation it is
            the error of the JAX runtime, at run time, with the same text.

    Precision: Rates carry the type of `network.capacity`. They differ from the exact alpha-fair
        ones by about the residual, more where many prices nearly cancel.
    Derivatives: Forward and reverse mode, any order (but first order only through `jax.lax.scan`
        and `jax.lax.map`), in capacity, weights, caps, `hop_use`, `part_use` and `alpha`, by the
        implicit rule. Smooth as long as the same links have a price and the same caps are reached;
        at a change rates have a kink, and a link counts as priced if its price weighs more than
        its room. Links that fill together under the same flows share what either alone would say.
        The derivative to a link of capacity 0 is 0.
    Cost: O(hops + parts + links + flows) per step; some tens of steps for random capacities, up to
        a few thousand where many links tie. A derivative takes about as many.

    Examples:
        Two flows meet on link 0, one of them also crosses the slower link 1. In proportional
        fairness a flow over two scarce links gets less; at a large alpha the rates are those of
        max-min fairness, 4 and 6.

        >>> import fabric as fb
        >>> net, routes = fb.Network([10.0, 10.0]), fb.Routes.from_paths([[0, 1], [0], [1]], 2)
        >>> [round(float(rate), 3) for rate in alpha_fair_rates(net, routes, 1.0).rates]
        [3.333, 6.667, 6.667]
        >>> [round(float(rate), 2) for rate in alpha_fair_rates(net, routes, 128.0).rates]
        [4.99, 5.01, 5.01]

    References:
        J. Mo and J. Walrand, Fair end-to-end window-based congestion control, IEEE/ACM
        Transactions on Networking 8 (5), 2000.
    """
    check_link_counts(network, routes, "alpha_fair_rates")
    weights = per_flow("weights", weights, routes.weight, routes, "alpha_fair_rates")
    caps = per_flow("caps", caps, routes.cap, routes, "alpha_fair_rates")
    kind = canonical(np.dtype(network.capacity.dtype))
    if tol is None:
        tol = 1e-9 if kind == np.float64 else 1e-5
    faults = _number_faults("alpha", alpha) + _number_faults("tol", tol)
    faults += _start_faults(start, routes)
    traced = is_traced(network, routes, weights, caps, alpha)
    if not is_traced(network, routes, weights, caps):
        faults += value_faults(network, routes, weights, caps, kind)
    raise_faults(faults)
    floats = lambda x: jnp.asarray(x, kind)
    first = jnp.full(network.n_links, jnp.nan, kind) if start is None else floats(start.share)
    parts = _solve(
        routes.n_bundles, whole("max_steps", max_steps), floats(network.capacity),
        jnp.asarray(network.alive, bool), floats(weights), floats(caps), floats(alpha),
        _usage(routes, kind), first, floats(tol),
    )  # fmt: skip
    solution = AlphaFairSolution(*parts)
    if not throw:
        return solution
    if traced or is_traced(solution):
        return solution.result.error_if(solution, solution.result != FAIR_RESULTS.converged)
    if not bool(solution.result == FAIR_RESULTS.converged):
        raise UnsolvedError(FAIR_RESULTS[solution.result])
    return solution


def anneal(
    network: Network,
    routes: Routes,
    alphas: Iterable[float] = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0),
    *,
    weights: PerFlow | None = None,
    caps: PerFlow | None = None,
    tol: float | None = None,
    max_steps: int = MAX_STEPS,
    throw: bool = True,
) -> tuple[AlphaFairSolution, ...]:
    """Return the alpha-fair solutions of a sequence of alphas, each started from the one before.

    Args:
        network: The links, as for `alpha_fair_rates`; so are all other arguments.
        routes: Which flow crosses which link.
        alphas: More than 0, in the order in which to solve; one program serves them all.
        weights: (flows,), more than 0.
        caps: (flows,), byte/s.
        tol: Of the residual of each.
        max_steps: Static, for each.
        throw: Static. Raise unless each converged.

    Raises:
        ModelError: If `alphas` is no sequence of at least one, or an input is out of range.
        UnsolvedError: If `throw` and a solve did not converge.

    Examples:
        >>> import fabric as fb
        >>> net, routes = fb.Network([10.0, 10.0]), fb.Routes.from_paths([[0, 1], [0], [1]], 2)
        >>> [round(float(s.rates[0]), 2) for s in anneal(net, routes, [1.0, 8.0, 64.0])]
        [3.33, 4.78, 4.97]
    """
    found: list[AlphaFairSolution] = []
    for alpha in _several(alphas):
        found.append(
            alpha_fair_rates(
                network, routes, alpha, weights=weights, caps=caps, tol=tol,
                max_steps=max_steps, start=found[-1] if found else None, throw=throw,
            )
        )  # fmt: skip
    return tuple(found)


def _several(alphas: object) -> tuple[Any, ...]:
    """Return the alphas, at least one; an iterable is run through once."""
    got = quoted(alphas) if isinstance(alphas, str | bytes) else "none"
    several: tuple[Any, ...] = ()
    if got == "none":
        try:
            several = tuple(cast(Iterable[Any], alphas))
        except TypeError:  # one number, or an array or tracer of no axis
            got = quoted(alphas)
    if several:
        return several
    message = (
        "`anneal(alphas=...)` needs at least one alpha in a sequence, such as [1.0, 8.0], but got "
        f"{got}."
    )
    raise ModelError(message)


def _start_faults(start: object, routes: Routes) -> list[str]:
    """Return a fault if a start is no solution of as many links and flows."""
    if start is None:
        return []
    if not isinstance(start, AlphaFairSolution):
        return [
            "`alpha_fair_rates(start=...)` needs an `AlphaFairSolution`, as `alpha_fair_rates` "
            f"returns it, but got {quoted(type(start).__name__)}."
        ]
    if start.share.shape == (routes.n_links,) and start.rates.shape == (routes.n_flows,):
        return []
    return [
        "`alpha_fair_rates(start=...)` is the solution of another problem: it has share "
        f"{start.share.shape} and rates {start.rates.shape}, but here are {routes.n_links:,} links "
        f"and {routes.n_flows:,} flows."
    ]


def _number_faults(name: str, value: Any) -> list[str]:
    """Return a fault if a concrete value is not one finite number above 0."""
    if is_traced(value):
        return []
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if 0 < number < float("inf"):
        return []
    return [
        f"`alpha_fair_rates({name}=...)` needs a finite number above 0, but got {quoted(value)}."
    ]


def _usage(routes: Routes, kind: np.dtype) -> Usage:
    floats = lambda x: jnp.asarray(x, kind)
    ints = lambda x: jnp.asarray(x, jnp.int32)
    return Usage(
        ints(routes.hop_flow), ints(routes.hop_bundle), floats(routes.hop_use),
        ints(routes.part_bundle), ints(routes.part_link), floats(routes.part_use),
    )  # fmt: skip


@functools.partial(jax.jit, static_argnums=(0, 1))
def _solve(
    n_bundles: int,
    max_steps: int,
    capacity: LinkFloats,
    alive: AnyArray,
    weight: FlowFloats,
    cap: FlowFloats,
    alpha: AnyArray,
    usage: Usage,
    share: LinkFloats,
    tol: AnyArray,
) -> tuple[Any, ...]:
    """Return the fields of an `AlphaFairSolution`."""
    held = jax.lax.stop_gradient
    # NaN fails every comparison; the kernels see sound numbers only, and the code tells.
    valid = jnp.all(capacity >= 0) & jnp.all(weight > 0) & jnp.all(cap >= 0) & (alpha > 0)
    capacity = jnp.where(alive & (capacity >= 0), capacity, 0)
    weight, cap = jnp.where(weight > 0, weight, 1), jnp.where(cap >= 0, cap, jnp.inf)
    alpha = jnp.where(alpha > 0, alpha, 1)
    largest = held(jnp.max(capacity, initial=0))
    unit = jnp.where(largest > 0, largest, 1)
    p = _smooth.problem(capacity / unit, weight, cap / unit, alpha, usage, n_bundles)
    known = held(jnp.log(share / unit))
    begin = jnp.where(jnp.isfinite(known), known, _smooth.start(jax.tree.map(held, p), n_bundles))
    found = _log_prices((n_bundles, max_steps), p, held(begin), held(tol))
    rates, capped = _smooth.rates(found.x, p, n_bundles)
    nowhere = ~_crossing(p, n_bundles)
    rates = jnp.where(nowhere | capped, cap, rates * unit)
    slope = _smooth.slope(held(found.x), jax.tree.map(held, p), n_bundles)
    code = FAIR_RESULTS
    unbounded = jnp.any(nowhere & jnp.isinf(cap))
    result = code.where(found.residual <= tol, code.converged, code.max_steps_reached)
    result = code.where(unbounded, code.unbounded, result)
    result = code.where(valid, result, code.invalid)
    return rates, jnp.exp(found.x) * unit, slope.active, found.residual, found.steps, result


def _crossing(p: Problem, n_bundles: int) -> AnyArray:
    """Return (flows,), whether a flow crosses any link."""
    return _smooth.Ends(p.usage, p.weight.shape[0], n_bundles, p.capacity.shape[0]).touched()


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_prices(static: tuple[int, int], p: Problem, begin: LinkFloats, tol: AnyArray) -> Found:
    """Return the log prices in balance; the rule differentiates the balance, not the way to it."""
    p, begin, tol = jax.tree.map(only_by_rule, (p, begin, tol))
    return _smooth.balance(p, begin, tol, *static)


@_log_prices.defjvp
def _rule(static: tuple[int, int], primals: Any, tangents: Any) -> tuple[Found, Found]:
    p, begin, tol = primals
    n_bundles, max_steps = static
    out = _log_prices(static, p, begin, tol)
    held = lambda tree: jax.tree.map(jax.lax.stop_gradient, tree)
    slope = _smooth.slope(held(out.x), held(p), n_bundles)
    inside = lambda y: jnp.where(slope.active, y, 0)

    def lacks(p: Problem) -> LinkFloats:
        """What the parameters alone do to the balance of links."""
        room = jnp.where(slope.active, p.capacity, 1)
        return jnp.log(room) - inside(_smooth.log_loads(out.x, p, n_bundles))

    def rows(y: LinkFloats) -> LinkFloats:
        loads = lambda x: _smooth.log_loads(x, p, n_bundles)
        return jnp.where(slope.active, jax.jvp(loads, (out.x,), (inside(y),))[1], y)

    solve = lambda transpose: (
        lambda _, right: _smooth.solve(
            slope, right, held(p.usage), n_bundles, max_steps, transpose=transpose
        )
    )
    right = inside(jax.jvp(lacks, (p,), (tangents[0],))[1])
    x_dot = jax.lax.custom_linear_solve(rows, right, solve(False), solve(True))
    no_steps = np.zeros(np.shape(out.steps), jax.dtypes.float0)
    return out, Found(x_dot, jnp.zeros_like(out.residual), no_steps)
