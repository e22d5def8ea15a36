"""What every entry point asks of its inputs: one value per flow, in range, and in the type."""

from typing import cast

import jax
import numpy as np

from fabric._errors import ModelError
from fabric._typing import AnyArray, FlowFloats
from fabric.network import Network, Routes, is_traced
from fabric.network._checks import capacity_faults, float_array, number_faults


def per_flow(
    name: str, given: object, carried: FlowFloats, routes: Routes, caller: str
) -> FlowFloats:
    """Return the weights or caps to use: those given, else those that the routes carry.

    Args:
        name: "weights" or "caps".
        given: (flows,) numbers, or None.
        carried: (flows,), of the routes.
        routes: Whose flows are counted.
        caller: The entry point, for the error.
    """
    if given is None:
        return carried
    if is_traced(given):
        values = cast(jax.Array, given)
    else:
        values = float_array(f"{caller}({name}=...)", given)
    if values.shape != (routes.n_flows,):
        message = (
            f"`{caller}({name}=...)` has shape {values.shape}, but the routes have "
            f"{routes.n_flows:,} flows: give one value per flow."
        )
        raise ModelError(message)
    return values


def flow_faults(weights: FlowFloats, caps: FlowFloats) -> list[str]:
    """Return the faults of concrete weights and caps."""
    return number_faults("weights=...", "weight", np.asarray(weights), zero=False) + number_faults(
        "caps=...", "cap in byte/s", np.asarray(caps), zero=True, infinite=True
    )


def value_faults(
    network: Network, routes: Routes, weights: FlowFloats, caps: FlowFloats, kind: np.dtype
) -> list[str]:
    """Return every fault of concrete inputs that are to be solved in a type."""
    capacity = np.asarray(network.capacity)
    faults = capacity_faults("Network(capacity)", capacity, network.link_name)
    faults += flow_faults(weights, caps)
    numbers = {"Network(capacity)": capacity, "weights=...": weights, "caps=...": caps}
    for name, values in numbers.items():
        faults += range_faults(name, np.asarray(values), kind)
    # Uses are many and do not change: looked at once.
    if ("range", kind) not in routes.plans:
        routes.plans["range", kind] = range_faults(
            "hop_use", np.asarray(routes.hop_use), kind
        ) + range_faults("part_use", np.asarray(routes.part_use), kind)
    return faults + routes.plans["range", kind]


def range_faults(name: str, values: AnyArray, kind: np.dtype) -> list[str]:
    """Return a fault if finite values above 0 overflow or underflow a floating-point type."""
    limits = np.finfo(kind)
    sound = values[np.isfinite(values) & (values > 0)]
    if not len(sound):
        return []
    low, high = sound.min(), sound.max()
    if float(limits.tiny) <= low and high <= float(limits.max):
        return []
    return [
        f"`{name}` holds values from {low:.3g} to {high:.3g}, but {kind} goes from "
        f"{float(limits.tiny):.3g} to {float(limits.max):.3g}. Use float64, or other units."
    ]
