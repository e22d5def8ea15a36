"""`place()`: the only door to the device. It pads, casts, refuses; nothing re-checks after it."""

import os
import sys
import warnings

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from fabric._errors import ModelError
from fabric.network._checks import cost_array
from fabric.network._network import Network
from fabric.network._routes import Routes, _padded

_warned: set[str] = set()


def place(
    network: Network,
    routes: Routes,
    *,
    pad_hops: int | str | None = None,
    pad_parts: int | str | None = None,
    dtype: jnp.dtype | str | None = None,
) -> tuple[Network, Routes]:
    """Return network and routes as device arrays of one floating-point type.

    Args:
        network: The links. Labels stay with it.
        routes: Which flow crosses which link.
        pad_hops: Pad the hops to this many entries, or "auto" for the next power of two, so that
            other routes share the compiled program. Default: no padding.
        pad_parts: The same for parts.
        dtype: "float32" or "float64". Default: that of `network.capacity`.

    Raises:
        ModelError: If the two count links differently, a pad is too small, a routing cost is no
            whole number, or `dtype` is neither "float32" nor "float64". Float64 is cast to
            float32, with one warning, where x64 is off.

    Examples:
        >>> net, routes = place(Network([10.0]), Routes.from_paths([[0]], 1), pad_hops=8)
        >>> routes.hop_flow.tolist()
        [0, 1, 1, 1, 1, 1, 1, 1]
    """
    check_link_counts(network, routes, "place")
    kind = canonical(_floating(network.capacity.dtype if dtype is None else dtype))
    cost = network.routing_cost
    if not is_traced(cost) and not jnp.issubdtype(cost.dtype, jnp.integer):
        cost = cost_array("network.routing_cost", cost, name=network.link_name)
    floats = lambda values: jnp.asarray(values, kind)
    ints = lambda values: jnp.asarray(values, jnp.int32)
    flow, bundle, use = _padded(
        "pad_hops", _size(pad_hops, routes.n_hops),
        (np.asarray(routes.hop_flow), routes.n_flows),
        (np.asarray(routes.hop_bundle), routes.n_bundles),
        (np.asarray(routes.hop_use), 0.0),
    )  # fmt: skip
    p_bundle, p_link, p_use = _padded(
        "pad_parts", _size(pad_parts, routes.n_parts) if routes.n_parts else None,
        (np.asarray(routes.part_bundle), routes.n_bundles),
        (np.asarray(routes.part_link), routes.n_links),
        (np.asarray(routes.part_use), 0.0),
    )  # fmt: skip
    placed = Routes(
        ints(flow), ints(bundle), floats(use), ints(p_bundle), ints(p_link), floats(p_use),
        floats(routes.weight), floats(routes.cap), ints(routes.flow_of),
        n_links=routes.n_links, n_bundles=routes.n_bundles, n_pairs=routes.n_pairs,
    ).with_rule(**routes.rule)  # fmt: skip
    on_device = Network(
        floats(network.capacity), floats(network.latency), jnp.asarray(network.alive, bool),
        ints(cost), labels=network.labels if network.has_labels else None,
    )  # fmt: skip
    return on_device, placed


def check_link_counts(network: Network, routes: Routes, caller: str = "max_min_rates") -> None:
    """Raise if network and routes count links differently; works on tracers too.

    Args:
        network: The links.
        routes: The routes.
        caller: The function that the user called, for the error.
    """
    if network.n_links != routes.n_links:
        message = (
            f"`{caller}` was given a network with {network.n_links:,} links and routes built "
            f"for n_links={routes.n_links:,}. Build them together: "
            f"`Routes.from_paths(paths, n_links={network.n_links})`."
        )
        raise ModelError(message)


def canonical(dtype: np.dtype) -> np.dtype:
    """Return the type that JAX will use for `dtype`; say once when float64 becomes float32."""
    kind = jax.dtypes.canonicalize_dtype(dtype)
    if kind != dtype and "x64" not in _warned:
        _warned.add("x64")
        warnings.warn(
            f"{dtype} input is cast to {kind} because JAX runs without x64. Set "
            f"`jax.config.update('jax_enable_x64', True)` before the first solve to keep it.",
            stacklevel=_callers_level(),
        )
    return kind


def _floating(dtype: object) -> np.dtype:
    try:
        wanted = np.dtype(dtype)  # pyright: ignore[reportArgumentType, reportCallIssue]
    except TypeError:
        wanted = np.dtype(object)
    if wanted not in (np.dtype(np.float32), np.dtype(np.float64)):
        message = (
            f"`place(dtype={str(dtype)!r})` is no floating-point type that solvers take. Use "
            f"'float32' or 'float64'."
        )
        raise ModelError(message)
    return wanted


def _callers_level() -> int:
    """Return the stack level, for a warning of the caller of this, of the first frame of a user."""
    here, level, frame = os.path.dirname(os.path.dirname(__file__)), 1, sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(here):
        frame, level = frame.f_back, level + 1
    return level


def is_traced(*trees: object) -> bool:
    """Return whether any array in these trees is a tracer."""
    leaves = jax.tree_util.tree_leaves(trees)
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def _size(pad: int | str | None, n: int) -> int | None:
    if pad == "auto":
        return 1 << max(n - 1, 0).bit_length()
    if isinstance(pad, str):
        message = f"a pad is a number of entries, 'auto' or None, but got {pad!r}."
        raise ModelError(message)
    return pad
