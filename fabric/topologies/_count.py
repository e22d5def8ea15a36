"""`sizes`: what a builder would build, counted from its arguments."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from fabric._errors import ModelError, nearest, raise_faults, some
from fabric.network import Network
from fabric.topologies._clos import sizes_of_clos
from fabric.topologies._cluster import CLUSTERS, cluster
from fabric.topologies._direct_connect import sizes_of_direct_connect
from fabric.topologies._dragonfly import sizes_of_dragonfly, sizes_of_dragonfly_plus
from fabric.topologies._fat_tree import sizes_of_fat_tree
from fabric.topologies._hyperx import sizes_of_hyperx
from fabric.topologies._leaf_spine import sizes_of_leaf_spine
from fabric.topologies._planes import sizes_of_hpn, sizes_of_multi_plane
from fabric.topologies._rail_only import sizes_of_rail_only
from fabric.topologies._rail_optimized import sizes_of_rail_optimized
from fabric.topologies._simple import sizes_of_full_mesh, sizes_of_single_switch
from fabric.topologies._sizes import Sizes
from fabric.topologies._slim_fly import sizes_of_slim_fly
from fabric.topologies._spec import BUILDERS, parsed
from fabric.topologies._torus import sizes_of_torus
from fabric.topologies._tpu import sizes_of_tpu_pod

COUNTS: dict[str, Callable[..., Sizes]] = {
    "leaf_spine": sizes_of_leaf_spine,
    "fat_tree": sizes_of_fat_tree,
    "clos": sizes_of_clos,
    "rail_optimized": sizes_of_rail_optimized,
    "rail_only": sizes_of_rail_only,
    "multi_plane": sizes_of_multi_plane,
    "hpn": sizes_of_hpn,
    "single_switch": sizes_of_single_switch,
    "full_mesh": sizes_of_full_mesh,
    "torus": sizes_of_torus,
    "tpu_pod": sizes_of_tpu_pod,
    "dragonfly": sizes_of_dragonfly,
    "dragonfly_plus": sizes_of_dragonfly_plus,
    "hyperx": sizes_of_hyperx,
    "slim_fly": sizes_of_slim_fly,
    "direct_connect": sizes_of_direct_connect,
}
"""What counts for each of `BUILDERS`, from its arguments; capacity and latency may be left out."""


def sizes(name: str, **arguments: Any) -> Sizes:
    """Return what a builder would build, without building it.

    The numbers come from the arithmetic that the builder itself works with, so any size will do,
    also one that no memory holds.

    Args:
        name: Of a builder, or a line of text as `build` reads it, such as
            `clos:hosts=2048,radix=64`. A cluster by name is small enough to be built and counted.
        **arguments: Of the builder, where `name` does not hold them.

    Raises:
        ModelError: If the builder or an argument is unknown, or the builder refuses it.

    Examples:
        >>> sizes("full_mesh", nodes=200_000).n_cables
        19999900000
        >>> found = sizes("clos", hosts=8_589_934_592, radix=512, tiers=4)
        >>> found.switches, found.hops, found.paths
        (117440512, 7, 16777216)
        >>> sizes("clos:hosts=2048,radix=64").nodes
        {'host': 2048, 'leaf': 64, 'spine': 32}
    """
    if ":" in name:
        name, builder, written = parsed(name)
        if name not in BUILDERS:
            return sizes_of(builder(**written))
        arguments = written | arguments
    if name in CLUSTERS:
        return sizes_of(cluster(name, **arguments))
    name = name.replace("-", "_")
    if name not in COUNTS:
        message = f"`sizes('{name}')`: no such builder. {nearest(name, list(COUNTS))}"
        raise ModelError(message)
    known = inspect.signature(BUILDERS[name]).parameters
    faults = [
        f"`{name}` has no argument '{key}'. {nearest(key, list(known))}"
        for key in arguments
        if key not in known
    ]
    missing = [k for k, p in known.items() if p.default is p.empty and k not in arguments]
    if missing:
        faults.append(f"`{name}` needs {some(missing)}. Arguments: {some(known, limit=12)}.")
    raise_faults(faults)
    every = {key: arguments.get(key, parameter.default) for key, parameter in known.items()}
    return COUNTS[name](**_taken(COUNTS[name], every))


def sizes_of(network: Network) -> Sizes:
    """Return the counts of a network that is there; failed cables count.

    Args:
        network: With labels.

    Examples:
        >>> import fabric as fb
        >>> sizes_of(fb.topologies.single_switch(3))
        Sizes(nodes={'host': 3, 'switch': 1}, cables={'host': 3}, ports={'host': 1, 'switch': 3},
              hops=None, paths=None, cable_paths=None)
    """
    labels = network.labels
    _, first = np.unique(labels.cable_of, return_index=True)
    tier = labels.tier_of[first]
    ends = np.concatenate([labels.src[first], labels.dst[first]])
    ports = np.bincount(ends, minlength=labels.n_nodes)
    return Sizes(
        {kind: int(labels.is_kind(kind).sum()) for kind in labels.present_kinds},
        {word: int((tier == i).sum()) for i, word in enumerate(labels.tiers) if (tier == i).any()},
        {kind: int(ports[labels.is_kind(kind)].max()) for kind in labels.present_kinds},
    )


def _taken(count: Callable[..., Sizes], every: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that a function takes."""
    parameters = inspect.signature(count).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return every
    return {key: value for key, value in every.items() if key in parameters}
