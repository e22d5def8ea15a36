"""`Exchange`: the flows of one phase in which many groups communicate at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError, raise_faults, some
from fabric._typing import AnyArray
from fabric.network import Flows, index_array
from fabric.network._checks import whole_array

FloatsOfGroups = Float[AnyArray, " groups"]


@dataclass(frozen=True)
class Exchange:
    """Flows of groups that all communicate at the same time on one fabric.

    Attributes:
        flows: (flows,), from node to node.
        share: (flows,), bytes on the flow per byte of its group; each builder says what that
            byte is.
        group: (flows,), the group that each flow belongs to, from 0.
        n_groups: Number of groups; one without flows takes no time.
        steps: (groups,), messages of one pass that wait for one another.
        crossings: (groups,), how many of these leave a server.

    Examples:
        >>> from fabric.collectives import ring
        >>> both = ring([[0, 1, 2], [3, 4, 5]])
        >>> both.flows.n_flows, both.n_groups, both.steps.tolist()
        (6, 2, [2, 2])
    """

    flows: Flows
    share: Float[np.ndarray, " flows"]
    group: Int[np.ndarray, " flows"]
    n_groups: int
    steps: Int[np.ndarray, " groups"]
    crossings: Int[np.ndarray, " groups"]

    @property
    def n_flows(self) -> int:
        """Number of flows of all groups."""
        return len(self.share)

    @cached_property
    def rows(self) -> Int[np.ndarray, "groups widest"]:
        """The flows of every group, short rows filled up with a flow of their own.

        A group without flows has those of another: mask it with `counts`.
        """
        order = np.argsort(self.group, kind="stable")
        start = np.cumsum(self.counts) - self.counts
        column = np.minimum(
            np.arange(max(self.counts.max(initial=0), 1)), np.maximum(self.counts[:, None] - 1, 0)
        )
        position = np.minimum(start[:, None] + column, max(self.n_flows - 1, 0))
        return order[position] if self.n_flows else np.zeros((self.n_groups, 0), np.int64)

    @cached_property
    def counts(self) -> Int[np.ndarray, " groups"]:
        """Number of flows of every group."""
        return np.bincount(self.group, minlength=self.n_groups)


def slope(exchange: Exchange, rates: AnyArray) -> FloatsOfGroups:
    """Return the seconds that every group takes per byte: its slowest flow decides.

    Args:
        exchange: (flows,).
        rates: (flows,), byte/s, in the order of the flows. NumPy in, NumPy out; JAX arrays may be
            traced.

    Returns:
        (groups,), second/byte; infinite where a flow has rate 0, 0 for a group without flows.

    Raises:
        ModelError: If `rates` are not one per flow.

    Derivatives: As those of a maximum; exact one-sided ones through `directional.jvp` and
        `one_sided`.

    Examples:
        >>> from fabric.collectives import direct
        >>> slope(direct([[0, 1]]), np.array([10.0, 5.0])).tolist()
        [0.1]
    """
    if rates.shape != exchange.share.shape:
        message = (
            f"`slope(rates)` needs one rate for each of {exchange.n_flows:,} flows, but got an "
            f"array of shape {rates.shape}. With queue pairs pass `routes.per_flow(rates)`."
        )
        raise ModelError(message)
    if not exchange.n_flows:
        return np.zeros(exchange.n_groups)
    rows, has = exchange.rows, exchange.counts > 0
    if isinstance(rates, jax.Array):
        times = jnp.asarray(exchange.share, rates.dtype) / rates
        return jnp.where(has, jnp.max(times[rows], axis=1), jnp.zeros((), rates.dtype))
    with np.errstate(divide="ignore"):
        times = exchange.share / rates
    return np.where(has, times[rows].max(axis=1), 0.0)


def merged(exchanges: Sequence[Exchange]) -> Exchange:
    """Return exchanges that run at the same time as one; groups are numbered on.

    Args:
        exchanges: At least one.

    Raises:
        ModelError: If there is none.

    Examples:
        >>> from fabric.collectives import ring, send
        >>> merged([ring([[0, 1]]), send([2], [3])]).group.tolist()
        [0, 0, 1]
    """
    if not exchanges:
        message = "`merged(exchanges)` needs at least one exchange, but got none."
        raise ModelError(message)
    first = np.cumsum([0, *(e.n_groups for e in exchanges)])
    join = lambda name: np.concatenate([getattr(e, name) for e in exchanges])
    groups = [e.group + start for e, start in zip(exchanges, first, strict=False)]
    ends = [np.concatenate([getattr(e.flows, end) for e in exchanges]) for end in ("src", "dst")]
    return Exchange(
        Flows(*ends), join("share"), np.concatenate(groups), int(first[-1]), join("steps"),
        join("crossings"),
    )  # fmt: skip


def members(where: str, groups: object) -> Int[np.ndarray, "groups size"]:
    """Return the members of groups of one size, or raise.

    Args:
        where: The builder as the caller wrote it.
        groups: (groups, size), node numbers, no node twice in a group.

    Raises:
        ModelError: If these are no rows of whole numbers, a number is negative, or a group has a
            node twice.
    """
    name = f"{where}(groups)"
    nodes = whole_array(name, groups)
    if nodes.ndim != 2 or not nodes.size:
        message = (
            f"`{name}` needs a row of node numbers for every group, but got an array of shape "
            f"{nodes.shape}. One group is `[[0, 1, 2]]`."
        )
        raise ModelError(message)
    faults = []
    if np.any(nodes < 0):
        faults.append(
            f"`{name}` needs node numbers of 0 or more, but got {some(nodes[nodes < 0])}."
        )
    in_order = np.sort(nodes, axis=1)
    twice = np.flatnonzero((in_order[:, 1:] == in_order[:, :-1]).any(axis=1))
    if len(twice):
        faults.append(
            f"`{name}` names a node more than once in {len(twice):,} groups: {some(twice)}."
        )
    raise_faults(faults)
    return nodes


def servers(
    where: str, nodes: Int[np.ndarray, "groups size"], server_of: object | None
) -> Int[np.ndarray, "groups size"]:
    """Return a number for the server of every member; nodes of no server are one by themselves.

    Args:
        where: The builder as the caller wrote it.
        nodes: (groups, size).
        server_of: (nodes,), by node number, -1 for none; None: every node is its own server.

    Raises:
        ModelError: If a node has no entry.
    """
    if server_of is None:
        return nodes
    table = index_array(f"{where}(server_of)", server_of)
    if nodes.max() >= len(table):
        message = (
            f"`{where}(server_of)` has {len(table):,} nodes, but a group names node {nodes.max()}. "
            f"Pass `net.labels.tags['server']`."
        )
        raise ModelError(message)
    return np.where(table[nodes] < 0, -1 - nodes, table[nodes])
