"""What is to be carried: one matrix or several, as flows with an amount in each."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fabric._errors import ModelError, raise_faults, some
from fabric._typing import AnyArray
from fabric.network import Flows, Network

Demand = Flows | AnyArray | Sequence[Sequence[float]] | Sequence[Sequence[Sequence[float]]]


class Demands(NamedTuple):
    """Flows, and what each carries in every matrix."""

    flows: Flows
    amounts: Float[np.ndarray, "flows matrices"]


def demands(network: Network, demand: Demand, objective: str) -> Demands:
    """Return the demand of an optimiser.

    Args:
        network: Whose hosts, in order, are the rows and columns of matrices.
        demand: Flows: what counts is their size, or for the objective "rate" their weight. Else
            (hosts, hosts) or (matrices, hosts, hosts), in byte/s or bytes, rows send.
        objective: "utilisation", "rate" or "time".

    Raises:
        ModelError: If shapes do not fit, an amount is negative or not finite, sizes are not
            stated, a host sends to itself, or there is no demand; all faults at once.
    """
    if isinstance(demand, Flows):
        stopped = np.flatnonzero(np.asarray(demand.cap) == 0)
        if objective != "utilisation" and len(stopped):
            message = (
                f"`routing_weights(objective='{objective}')` needs flows that may send, but "
                f"{len(stopped):,} of {demand.n_flows:,} have a `cap` of 0: {some(stopped)}. "
                f"Leave them out."
            )
            raise ModelError(message)
        if objective == "rate":
            return Demands(demand, np.asarray(demand.weight, np.float64)[:, None])
        size = np.asarray(demand.size, np.float64)
        unstated = np.flatnonzero(np.isnan(size))
        if len(unstated):
            message = (
                f"`routing_weights(objective='{objective}')` needs the size of every flow, but "
                f"{len(unstated):,} of {len(size):,} have none: {some(unstated)}. Give "
                f"`Flows(size=...)`, or take `objective='rate'`, which needs none."
            )
            raise ModelError(message)
        _check_any(size)
        return Demands(demand, size[:, None])
    hosts = network.hosts
    values = np.asarray(demand, np.float64)
    if values.ndim == 2:
        values = values[None]
    n = len(hosts)
    if values.ndim != 3 or values.shape[1:] != (n, n) or not len(values):
        message = (
            f"`demand` needs flows, a matrix of shape {(n, n)} for {n:,} hosts, or a batch of "
            f"such matrices, but has shape {np.shape(demand)}."
        )
        raise ModelError(message)
    faults = []
    bad = np.argwhere(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        faults.append(
            f"`demand` needs finite amounts of 0 or more, but {len(bad):,} of {values.size:,} "
            f"entries are not: {some(map(tuple, bad.tolist()))}."
        )
    own = np.flatnonzero(np.abs(values[:, np.arange(n), np.arange(n)]).max(axis=0, initial=0))
    if len(own):
        name = lambda host: network.labels.node_name(int(hosts[host]))
        faults.append(
            f"`demand` has {len(own):,} hosts that send to themselves: {some(own, name=name)}. "
            f"Set the diagonal to 0."
        )
    raise_faults(faults)
    _check_any(values)
    src, dst = np.nonzero(values.max(axis=0))
    amounts = values[:, src, dst].T
    largest = amounts.max(axis=1)
    weight = largest if objective == "rate" else 1.0
    return Demands(Flows(hosts[src], hosts[dst], size=largest, weight=weight), amounts)


def _check_any(values: np.ndarray) -> None:
    if not values.any():
        message = "`demand` is 0 everywhere, so there is nothing to route."
        raise ModelError(message)
