"""`build`: a network from one line of text such as `fat_tree:k=8,capacity=400Gb/s`."""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, get_args

from fabric._errors import ModelError, nearest, raise_faults, some
from fabric.network import Network
from fabric.topologies._clos import clos
from fabric.topologies._cluster import CLUSTERS, cluster
from fabric.topologies._direct_connect import direct_connect
from fabric.topologies._dragonfly import dragonfly, dragonfly_plus
from fabric.topologies._fat_tree import fat_tree
from fabric.topologies._hyperx import hyperx
from fabric.topologies._leaf_spine import leaf_spine
from fabric.topologies._planes import hpn, multi_plane
from fabric.topologies._rail_only import rail_only
from fabric.topologies._rail_optimized import rail_optimized
from fabric.topologies._simple import full_mesh, single_switch
from fabric.topologies._slim_fly import slim_fly
from fabric.topologies._torus import torus
from fabric.topologies._tpu import tpu_pod

BUILDERS: dict[str, Callable[..., Network]] = {
    "leaf_spine": leaf_spine,
    "fat_tree": fat_tree,
    "clos": clos,
    "rail_optimized": rail_optimized,
    "rail_only": rail_only,
    "multi_plane": multi_plane,
    "hpn": hpn,
    "single_switch": single_switch,
    "full_mesh": full_mesh,
    "torus": torus,
    "tpu_pod": tpu_pod,
    "dragonfly": dragonfly,
    "dragonfly_plus": dragonfly_plus,
    "hyperx": hyperx,
    "slim_fly": slim_fly,
    "direct_connect": direct_connect,
}
"""Every builder of a fabric that `build` knows, by name; it also knows `cluster` and `CLUSTERS`."""

_FLAGS = {"true": True, "yes": True, "false": False, "no": False}

_SPEC = re.compile(r"\s*([A-Za-z][\w-]+)\s*(?::(.*))?", re.DOTALL)


def is_spec(text: str) -> bool:
    """Return whether text asks for a builder, rather than naming a file.

    Examples:
        >>> is_spec("fat_tree:k=8"), is_spec("clos"), is_spec("fabric.topo"), is_spec("C:/fabric")
        (True, True, False, False)
    """
    match = _SPEC.fullmatch(text)
    if match is None:
        return False
    if match[2] is None:
        return _builder(match[1]) is not None
    return not match[2].strip() or re.match(r"\s*[\w-]+\s*=", match[2]) is not None


def build(spec: str) -> Network:
    """Return the network that a line of text asks for.

    Args:
        spec: `name:key=value,key=value`: a builder of `BUILDERS`, or a cluster of `CLUSTERS`, and
            its arguments, rates and times with their unit. A list, such as hosts per leaf, is
            written `4+4+2`.

    Raises:
        ModelError: If the builder or an argument is unknown, missing, given twice or no number
            where one is needed; all faults at once. Also whatever the builder refuses.

    Examples:
        >>> build("leaf_spine:leaves=4,spines=2,hosts_per_leaf=8,capacity=100Gb/s").labels.source
        'leaf_spine(leaves=4, spines=2, hosts_per_leaf=8, capacity=100Gb/s)'
    """
    _, builder, values = parsed(spec)
    return builder(**values)


def parsed(spec: str) -> tuple[str, Callable[..., Network], dict[str, Any]]:
    """Return the name, the builder and the arguments that a line of text asks for.

    Raises:
        ModelError: As `build`.

    Examples:
        >>> name, _, arguments = parsed("fat-tree:k=4,capacity=100Gb/s")
        >>> name, arguments
        ('fat_tree', {'k': 4, 'capacity': '100Gb/s'})
    """
    match = _SPEC.fullmatch(spec)
    if match is None:
        message = (
            f"'{spec}' is no network of the form `name:key=value,...`, for example `fat_tree:k=8`."
        )
        raise ModelError(message)
    name, builder = _name(match[1]), _builder(match[1])
    if builder is None:
        known_names = [*BUILDERS, *CLUSTERS]
        message = f"'{match[1]}' is no builder. {nearest(match[1], known_names)}"
        raise ModelError(message)
    known = inspect.signature(builder).parameters
    values: dict[str, Any] = {}
    faults: list[str] = []
    for part in (match[2] or "").split(","):
        if not part.strip():
            continue
        key, equals, text = (piece.strip() for piece in part.partition("="))
        if not equals or not text:
            faults.append(f"`{name}`: '{part.strip()}' is not of the form `key=value`.")
        elif key not in known:
            faults.append(f"`{name}` has no argument '{key}'. {nearest(key, list(known))}")
        elif key in values:
            faults.append(f"`{name}`: '{key}' is given twice. Leave one out.")
        else:
            values[key] = _value(name, key, text, known[key].annotation, faults)
    missing = [k for k, p in known.items() if p.default is p.empty and k not in values]
    if missing:
        faults.append(f"`{name}` needs {some(missing)}. Arguments: {some(known, limit=12)}.")
    raise_faults(faults)
    return name, builder, values


def _name(word: str) -> str:
    """Return how a builder or a cluster is called, written with dashes or underscores."""
    cluster_name = word.replace("_", "-")
    return cluster_name if cluster_name in CLUSTERS else word.replace("-", "_")


def _builder(word: str) -> Callable[..., Network] | None:
    """Return the builder of a name, or the cluster of it, written with dashes or underscores."""
    if (name := word.replace("_", "-")) in CLUSTERS:
        return functools.partial(cluster, name)
    return cluster if word == "cluster" else BUILDERS.get(word.replace("-", "_"))


def _value(name: str, key: str, text: str, annotation: Any, faults: list[str]) -> Any:
    kinds = get_args(annotation) or (annotation,)
    if str in kinds:
        return text
    if bool in kinds:
        if text.lower() not in _FLAGS:
            faults.append(f"`{name}`: '{key}' needs yes or no, but got '{text}'.")
        return _FLAGS.get(text.lower())
    listed = Sequence[int] in kinds and "+" in text
    number, what = (float, "a number") if float in kinds else (int, "a whole number")
    try:
        return [int(piece) for piece in text.split("+")] if listed else number(text)
    except ValueError:
        faults.append(f"`{name}`: '{key}' needs {what}, but got '{text}'.")
    return None
