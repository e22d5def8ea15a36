"""Many problems of one small quotient at once, its usage written out."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from fabric._errors import InfeasibleError, ModelError, some
from fabric._typing import AnyArray
from fabric.kernels._dense_rounds import in_pieces
from fabric.network import Routes, canonical

AT_ONCE = 256
"""Problems that are solved together on a CPU."""

MOST_DENSE = 2**20
"""Entries of the usage that are written out."""


def rates_of_many(
    routes: Routes,
    use: Float[np.ndarray, "link_classes flow_classes"],
    capacity: Float[AnyArray, "batch link_classes"],
) -> Float[AnyArray, "batch flow_classes"]:
    """Return the rates of every problem, by one program per shape.

    Args:
        routes: Of classes; their weights and caps are used.
        use: Of link classes by flow classes.
        capacity: (batch, link classes), byte/s.
    """
    kind = canonical(np.dtype(capacity.dtype))
    at_once = AT_ONCE if jax.default_backend() == "cpu" else MOST_DENSE
    floats = lambda x: jnp.asarray(x, kind)
    return _jitted(at_once)(
        floats(capacity), floats(use), floats(routes.weight), floats(routes.cap)
    )


@functools.cache
def _jitted(at_once: int) -> Callable[..., Any]:
    return jax.jit(functools.partial(in_pieces, at_once=at_once))


def dense_use(r: Routes) -> Float[np.ndarray, "link_classes flow_classes"]:
    """Return the usage of links by flows, written out.

    Raises:
        InfeasibleError: If it is too large for that.
    """
    if max(r.n_links, r.n_bundles) * r.n_flows > MOST_DENSE:
        message = (
            f"`solve_many` is for small quotients, but this one has {r.n_flows:,} flow and "
            f"{r.n_links:,} link classes. Call `solve` in a loop, or under `jax.vmap`."
        )
        raise InfeasibleError(message)
    use = np.zeros((r.n_bundles, r.n_flows))
    use[np.asarray(r.hop_bundle), np.asarray(r.hop_flow)] = r.hop_use
    if r.n_parts == 0:
        return use
    parts = np.zeros((r.n_links, r.n_bundles))
    parts[np.asarray(r.part_link), np.asarray(r.part_bundle)] = r.part_use
    return parts @ use


def batch(name: str, values: AnyArray | Sequence[Any]) -> AnyArray:
    """Return floats with a row per problem; arrays of floats as they are."""
    if is_array(values) and jnp.issubdtype(values.dtype, jnp.floating):
        return values
    try:
        rows = np.array([np.asarray(row) for row in values])
    except ValueError:
        lengths = [np.size(row) for row in values]
        uneven = [i for i, n in enumerate(lengths) if n != lengths[0]]
        message = (
            f"`{name}` needs as many capacities for every problem, but rows {some(uneven)} differ "
            f"in length from the first."
        )
        raise ModelError(message) from None
    if rows.dtype.kind not in "iuf":
        message = f"`{name}` needs numbers, but got {rows.dtype}."
        raise ModelError(message)
    return rows.astype(np.float64)


def is_array(values: object) -> TypeGuard[AnyArray]:
    """Return whether values are an array, or stand in for one inside a transformation."""
    return hasattr(values, "dtype")
