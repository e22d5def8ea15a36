"""`one_sided`: the exact derivative of a function of the rates along one direction."""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fabric._errors import UnsolvedError, nearest, raise_faults, some
from fabric._typing import AnyArray, FlowFloats, PerFlow
from fabric.kernels._dual_rounds import Tangents, dual_rounds
from fabric.kernels._local_rounds import Usage
from fabric.network import Network, Routes, canonical, check_link_counts, is_traced
from fabric.solvers._dual_trace import Taint, propagate
from fabric.solvers._inputs import per_flow
from fabric.solvers._max_min import max_min_rates, usage
from fabric.solvers._only_by_rule import guarded
from fabric.solvers._solution import RESULTS, RateSolution

PARAMETERS = ("capacity", "weights", "caps", "hop_use", "part_use")
"""What a direction may change, in the order of `Tangents`."""


def one_sided(
    function_of_solution: Callable[[RateSolution], Any],
    network: Network,
    routes: Routes,
    direction: Mapping[str, AnyArray],
    *,
    weights: PerFlow | None = None,
    caps: PerFlow | None = None,
    max_rounds: int | None = None,
    throw: bool = True,
) -> tuple[Any, Any]:
    """Return a function of the max-min rates, and its exact one-sided derivative.

        lim of (F(x + h d) - F(x)) / h   as h falls to 0

    On symmetric fabrics many links fill together, and the rates then have a kink: raising one of
    two tied links gains nothing, lowering it loses. This is the derivative along d at the kink
    itself, through the rates and through every `jnp.max`, `jnp.min`, `jnp.sort` and `jnp.abs` of
    the function.

    Args:
        function_of_solution: Takes a `RateSolution`, returns an array or a pytree of arrays,
            floating point, from its `rates`; the other fields jump and are refused. See
            `directional.jvp` for what it may be built from.
        network: The links, as for `max_min_rates`.
        routes: Which flow crosses which link, as for `max_min_rates`.
        direction: What changes, per unit of h: any of `capacity` (links,) and `caps` (flows,) in
            byte/s, `weights` (flows,), `hop_use` (hops,) and `part_use` (parts,). With one more
            axis in front, the same for all, several directions at once.
        weights: (flows,), more than 0. Default: those that `routes` carries.
        caps: (flows,), byte/s. Default: those that `routes` carries.
        max_rounds: Static, of the rounds that find the derivative. Default: twice the number of
            flows, which is always enough: of two rounds in a row one stops a flow.
        throw: Static. Raise unless both solves converged. With `throw=False` rates without a
            derivative have NaN; use that inside loops, under `vmap` and in anything timed.

    Returns:
        The value of the function, and its derivative in the same structure, with the axis of the
        directions in front if there are several. Units: those of the value, per unit of h.

    Raises:
        ModelError: If a key or a shape of `direction` is wrong, or a value points out of the
            domain (concrete inputs; all faults at once): a capacity or cap of 0 that falls, or an
            entry of use 0 that changes, since the flow would begin to cross the link at once.
        NotImplementedError: If the function has a kink without a rule, or on differentiation.
        UnsolvedError: If `throw` and a solve did not converge; while tracing,
            `equinox.EquinoxRuntimeError` at run time.

    Precision: Shares that differ by less than 1e-12 (float32: 16 ulp), relative to what the link
        carries in all, and by the rounding of its sum, compare as equal, and then by tangent.
    Derivatives: None. The result is not linear in the direction, so `jax.grad` and `jax.jvp`
        with respect to network, routes, weights, caps or direction are refused by name;
        `max_min_rates(..., derivative=...)` serves them. Goes through `jax.jit` and `jax.vmap`.
    Cost: Two to three solves and one more per further direction; one program per shape, whatever
        the values. The function is traced anew by every call outside `jax.jit`.

    Examples:
        Two links of 6 in a row, three flows over both: raising one of them gains nothing, raising
        both gains a third each, lowering one costs a third.

        >>> import fabric as fb
        >>> net, routes = fb.Network([6.0, 6.0]), fb.Routes.from_paths([[0, 1]] * 3, n_links=2)
        >>> ways = np.array([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.0]])
        >>> value, gain = one_sided(lambda s: s.rates.sum(), net, routes, {"capacity": ways})
        >>> float(value), gain.tolist()
        (6.0, [0.0, 1.0, -1.0])

    References:
        A. Griewank and A. Walther, Evaluating Derivatives, 2nd ed., 2008, chapter 14.
    """
    check_link_counts(network, routes, "one_sided")
    weights = per_flow("weights", weights, routes.weight, routes, "one_sided")
    caps = per_flow("caps", caps, routes.cap, routes, "one_sided")
    several = _check_shapes(direction, network, routes)
    traced = is_traced(network, routes, weights, caps, direction)
    network, routes, direction = guarded(network), guarded(routes), guarded(dict(direction))
    weights, caps = guarded(weights), guarded(caps)
    # A solve of which nothing is traced is a constant of any transformation around it.
    constant = jax.ensure_compile_time_eval
    with contextlib.nullcontext() if is_traced(network, routes, weights, caps) else constant():
        solution = max_min_rates(network, routes, weights=weights, caps=caps, throw=throw)

    rounds = max(2 * routes.n_flows, 1) if max_rounds is None else max_rounds
    shape = (routes.n_bundles, rounds, () if several is None else tuple(direction))
    arguments = (network, routes, weights, caps, direction)
    if traced:
        tangent, unsettled = _core(*shape)(*_operands(*arguments))
        if throw:
            tangent = RESULTS.max_rounds_reached.error_if(tangent, unsettled)
    else:
        raise_faults(_value_faults(direction, network, routes, np.asarray(caps)))
        with constant():
            tangent, unsettled = _jitted(*shape)(*_operands(*arguments))
            if throw and bool(unsettled):
                raise UnsolvedError(RESULTS[RESULTS.max_rounds_reached])

    value = function_of_solution(solution)
    along = lambda t: propagate(function_of_solution, (solution,), tangents_of(solution, t))[1]
    return value, (along if several is None else jax.vmap(along))(tangent)


def tangents_of(solution: RateSolution, tangent: jax.Array) -> list[Any]:
    """Return what `propagate` wants to know of each leaf of the solution."""
    hint = "It jumps where the bottleneck changes; use `rates`, the only field that moves smoothly."
    leaves, _ = jax.tree_util.tree_flatten_with_path(solution)
    return [
        tangent if path[0].name == "rates" else Taint(f"RateSolution.{path[0].name}", hint)
        for path, _ in leaves
    ]


def _operands(
    network: Network,
    routes: Routes,
    weights: FlowFloats,
    caps: FlowFloats,
    direction: Mapping[str, AnyArray],
) -> tuple[Any, ...]:
    """Return the arrays that `_rate_tangents` takes, in the type of the capacities."""
    kind = canonical(np.dtype(network.capacity.dtype))
    floats = lambda x: jnp.asarray(x, kind)
    return (
        floats(network.capacity), jnp.asarray(network.alive, bool), floats(weights), floats(caps),
        usage(routes, kind), {name: floats(x) for name, x in direction.items()},
    )  # fmt: skip


def _core(
    n_bundles: int, max_rounds: int, batched: tuple[str, ...]
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    return functools.partial(
        _rate_tangents, n_bundles=n_bundles, max_rounds=max_rounds, batched=batched
    )


@functools.cache
def _jitted(
    n_bundles: int, max_rounds: int, batched: tuple[str, ...]
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    return jax.jit(_core(n_bundles, max_rounds, batched))


def _rate_tangents(
    capacity: AnyArray,
    alive: AnyArray,
    weight: AnyArray,
    cap: AnyArray,
    use: Usage,
    direction: Mapping[str, AnyArray],
    n_bundles: int,
    max_rounds: int,
    batched: tuple[str, ...],
) -> tuple[jax.Array, jax.Array]:
    """Return the one-sided tangents of the rates, and whether any is unknown."""
    still = [jnp.zeros_like(x) for x in (capacity, weight, cap, use.hop_use, use.part_use)]

    def along(given: Mapping[str, AnyArray]) -> tuple[jax.Array, jax.Array]:
        d = Tangents(*(given.get(name, x) for name, x in zip(PARAMETERS, still, strict=True)))
        d = d._replace(capacity=jnp.where(alive, d.capacity, 0))
        end = dual_rounds(jnp.where(alive, capacity, 0), weight, cap, use, d, n_bundles, max_rounds)
        bounded = jnp.isfinite(end.level)
        tangent = d.weight * jnp.where(bounded, end.level, 0) + weight * end.tangent
        return jnp.where(bounded, tangent, jnp.nan), jnp.any(end.live)

    tangent, live = (jax.vmap(along) if batched else along)(direction)
    return tangent, jnp.any(live)


def _shapes(network: Network, routes: Routes) -> dict[str, int]:
    n = routes.n_flows
    sizes = (network.n_links, n, n, routes.n_hops, routes.n_parts)
    return dict(zip(PARAMETERS, sizes, strict=True))


def _check_shapes(
    direction: Mapping[str, AnyArray], network: Network, routes: Routes
) -> int | None:
    """Return how many directions there are, None for a single one without an axis."""
    faults: list[str] = []
    if unknown := [name for name in direction if name not in PARAMETERS]:
        faults.append(f"`direction` has no key {some(unknown)}. {nearest(unknown[0], PARAMETERS)}")
    if not direction:
        faults.append(f"`direction` is empty. Give at least one of {some(PARAMETERS)}.")
    sizes, counts = _shapes(network, routes), {}
    for name, values in direction.items():
        if name not in sizes:
            continue
        shape = np.shape(values)
        if shape[-1:] != (sizes[name],) or len(shape) > 2:
            faults.append(
                f"`direction['{name}']` has shape {shape}, but needs ({sizes[name]},), or "
                f"(directions, {sizes[name]}) for several directions."
            )
        counts[name] = shape[0] if len(shape) == 2 else None
    if len(set(counts.values())) > 1:
        found = ", ".join(f"'{name}' {n or 'one, no axis'}" for name, n in counts.items())
        faults.append(
            f"`direction` needs the same number of directions under every key, but has: {found}. "
            f"Stack every key along one leading axis, or none."
        )
    if 0 in counts.values():
        faults.append("`direction` holds 0 directions. Give at least one.")
    raise_faults(faults)
    return next(iter(counts.values()))


def _value_faults(
    direction: Mapping[str, AnyArray], network: Network, routes: Routes, caps: np.ndarray
) -> list[str]:
    faults: list[str] = []
    moves = {name: np.asarray(values) for name, values in direction.items()}
    for name, move in moves.items():
        if bad := int(np.count_nonzero(~np.isfinite(move))):
            faults.append(
                f"`direction['{name}']` needs finite numbers, but {bad:,} of {move.size:,} are not."
            )
    anywhere = lambda mask: np.flatnonzero(mask.reshape(-1, mask.shape[-1]).any(0))
    if (move := moves.get("capacity")) is not None:
        empty = np.asarray(network.alive) & (np.asarray(network.capacity) == 0)
        if len(bad := anywhere(empty & (move < 0))):
            names = some(network.link_name(int(i)) for i in bad)
            faults.append(
                f"`direction['capacity']` lowers {len(bad):,} links that have capacity 0: {names}. "
                f"A capacity is 0 or more: give them 0 or a positive number."
            )
    if (move := moves.get("caps")) is not None and len(bad := anywhere((caps == 0) & (move < 0))):
        faults.append(
            f"`direction['caps']` lowers {len(bad):,} caps that are 0, at flows {some(bad)}. "
            f"A cap is 0 or more: give them 0 or a positive number."
        )
    real = {
        "hop_use": np.asarray(routes.hop_flow) < routes.n_flows,
        "part_use": np.asarray(routes.part_link) < routes.n_links,
    }
    for name, present in real.items():
        if (move := moves.get(name)) is None:
            continue
        absent = present & (np.asarray(getattr(routes, name)) == 0)
        if len(bad := anywhere(absent & (move != 0))):
            faults.append(
                f"`direction['{name}']` changes {len(bad):,} entries of use 0, at entries "
                f"{some(bad)}. They cross no link now and would at once, where the rates jump: "
                f"give them 0, or a small use in the routes."
            )
    return faults
