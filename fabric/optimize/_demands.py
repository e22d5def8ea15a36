"""What is to be carried: one matrix, several, or phases, as flows with an amount in each."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from fabric._errors import ModelError, raise_faults, some
from fabric._memory import afford
from fabric._typing import AnyArray
from fabric.network import Flows, Network

Demand = (
    Flows
    | AnyArray
    | Sequence[Flows]
    | Sequence[Sequence[float]]
    | Sequence[Sequence[Sequence[float]]]
)


class Demands(NamedTuple):
    """Flows, and what each carries in every matrix."""

    flows: Flows
    amounts: Float[np.ndarray, "flows matrices"]


def demands(network: Network, demand: Demand, objective: str) -> Demands:
    """Return the demand of an optimiser.

    Args:
        network: Whose hosts, in order, are the rows and columns of matrices.
        demand: Flows: what counts is their size, or for the objective "rate" their weight. Or
            several of them, a phase each. Else (hosts, hosts) or (matrices, hosts, hosts), in
            byte/s or bytes, rows send.
        objective: "utilisation", "rate" or "time".

    Raises:
        ModelError: If shapes do not fit, an amount is negative or not finite, sizes are not
            stated, a host sends to itself, or there is no demand; all faults at once.
        InfeasibleError: If memory does not suffice for the phases.
    """
    phases = _phases(demand)
    if phases is not None:
        return _joined(phases, objective)
    hosts = network.hosts
    n = len(hosts)
    form = f"flows, a matrix of shape {(n, n)} for {n:,} hosts, or a batch of such matrices"
    given = numbers("demand", demand, form)
    values = given[None] if given.ndim == 2 else given
    if values.ndim != 3 or values.shape[1:] != (n, n) or not len(values):
        message = f"`demand` needs {form}, but has shape {given.shape}."
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


def numbers(name: str, values: Any, form: str) -> Float[np.ndarray, "..."]:
    """Return an array of numbers in float64; text, true and false are no numbers.

    Args:
        name: The argument as the caller wrote it.
        values: Anything.
        form: What is needed.

    Raises:
        ModelError: If it is no array of numbers.

    Examples:
        >>> numbers("demand", [[0, 1], [2, 0]], "a matrix").tolist()
        [[0.0, 1.0], [2.0, 0.0]]
    """
    try:
        found = np.asarray(values)
    except ValueError:
        message = f"`{name}` needs {form}, but its rows differ in length."
        raise ModelError(message) from None
    # Kind V: bfloat16 and the like, which NumPy does not know as floats.
    if found.dtype.kind not in "iufV":
        got = type(values).__name__ if found.ndim == 0 else f"an array of {found.dtype}"
        message = f"`{name}` needs {form}, all numbers, but got {got}."
        raise ModelError(message)
    return found.astype(np.float64)


def _phases(demand: Any) -> list[Flows] | None:
    """Return the phases, if demand is made of flows."""
    if isinstance(demand, Flows):
        return [demand]
    if not isinstance(demand, list | tuple) or not any(isinstance(x, Flows) for x in demand):
        return None
    wrong = [i for i, each in enumerate(demand) if not isinstance(each, Flows)]
    if wrong:
        message = (
            f"`demand` needs `Flows` for each of {len(demand):,} phases, but {len(wrong):,} are "
            f"none: phases {some(wrong)}."
        )
        raise ModelError(message)
    return list(demand)


def _joined(phases: list[Flows], objective: str) -> Demands:
    """Return the flows of all phases, one after another, and what each carries in its phase."""
    faults = []
    for i, flows in enumerate(phases):
        of = f" of phase {i}" if len(phases) > 1 else ""
        stopped = np.flatnonzero(np.asarray(flows.cap) == 0)
        if objective != "utilisation" and len(stopped):
            faults.append(
                f"`routing_weights(objective='{objective}')` needs flows that may send, but "
                f"{len(stopped):,} of {flows.n_flows:,}{of} have a `cap` of 0: {some(stopped)}. "
                f"Leave them out."
            )
        unstated = np.flatnonzero(np.isnan(np.asarray(flows.size, np.float64)))
        if objective != "rate" and len(unstated):
            faults.append(
                f"`routing_weights(objective='{objective}')` needs the size of every flow, but "
                f"{len(unstated):,} of {flows.n_flows:,}{of} have none: {some(unstated)}. Give "
                f"`Flows(size=...)`, or take `objective='rate'`, which needs none."
            )
    raise_faults(faults)
    amount = [np.asarray(f.weight if objective == "rate" else f.size, np.float64) for f in phases]
    rows = np.cumsum([0, *map(len, amount)])
    afford(
        f"A `demand` of {rows[-1]:,} flows in {len(phases):,} phases",
        40.0 * rows[-1] * len(phases),
        "Give fewer phases, or matrices.",
    )
    amounts = np.zeros((int(rows[-1]), len(phases)))
    for m, each in enumerate(amount):
        amounts[rows[m] : rows[m + 1], m] = each
    _check_any(amounts)
    if len(phases) == 1:
        return Demands(phases[0], amounts)
    column = lambda name: np.concatenate([np.asarray(getattr(f, name)) for f in phases])
    names = ("src", "dst", "size", "weight", "cap", "start")
    return Demands(Flows(*map(column, names)), amounts)


def _check_any(values: np.ndarray) -> None:
    if not values.any():
        message = "`demand` is 0 everywhere, so there is nothing to route."
        raise ModelError(message)
