"""The one check that every pattern starts with."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, raise_faults, some
from fabric._typing import AnyArray
from fabric._units import format_size, parse_size
from fabric.network import index_array

# Flows hold two int32 and four float64 per row.
BYTES_PER_FLOW = 40
MOST_FLOWS = 200_000_000


def endpoints(where: str, hosts: AnyArray | Sequence[int]) -> Int[np.ndarray, " hosts"]:
    """Return the hosts as int32, or raise.

    Args:
        where: The pattern as the caller wrote it.
        hosts: (hosts,), node numbers, for example `net.hosts`.

    Raises:
        ModelError: If these are not at least two different node numbers.

    Examples:
        >>> endpoints("ring", [4, 5]).tolist()
        [4, 5]
    """
    given = np.asarray(hosts)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        message = (
            f"`{where}(hosts)` needs a list of node numbers, but got a {type(hosts).__name__}: "
            f"{given.dtype} of shape {given.shape}. Pass `net.hosts`."
        )
        raise ModelError(message)
    if len(given) < 2:
        message = f"`{where}(hosts)` needs at least 2 hosts, but got {len(given)}."
        raise ModelError(message)
    nodes = index_array(f"{where}(hosts)", given)
    values, counts = np.unique(nodes, return_counts=True)
    faults = []
    if values[0] < 0:
        bad = values[values < 0]
        faults.append(f"`{where}(hosts)` needs node numbers of 0 or more, but got {some(bad)}.")
    if np.any(counts > 1):
        bad = values[counts > 1]
        faults.append(f"`{where}(hosts)` names {len(bad):,} nodes more than once: {some(bad)}.")
    raise_faults(faults)
    return nodes


def bytes_of(size: str | float) -> float:
    """Return a size in bytes; NaN, for "not stated", stays.

    Examples:
        >>> bytes_of("1KiB"), bytes_of(float("nan"))
        (1024.0, nan)
    """
    return float(size) if not isinstance(size, str) and np.isnan(size) else parse_size(size)


def afford(where: str, n_flows: int, instead: str) -> None:
    """Raise when so many flows would not fit in memory.

    Args:
        where: The pattern as the caller wrote it.
        n_flows: Number of flows it has.
        instead: What to do about it.

    Raises:
        ModelError: With the number of flows and the memory they would take.
    """
    if n_flows > MOST_FLOWS:
        message = (
            f"{where} has {n_flows:,} flows, {format_size(n_flows * BYTES_PER_FLOW)} of arrays; "
            f"the limit is {MOST_FLOWS:,} flows. {instead}"
        )
        raise ModelError(message)
