"""`direct`, `mesh`, `send` and `chain`: given pairs, all at once or one behind another."""

from dataclasses import replace

import numpy as np

from fabric._errors import ModelError
from fabric.collectives._exchange import Exchange, members, servers
from fabric.collectives._rings import Groups, Nodes, by_server
from fabric.network import Flows, index_array
from fabric.traffic._hosts import afford


def direct(groups: Groups, server_of: Nodes | None = None) -> Exchange:
    """Return all-to-alls: every member of a group sends to every other one at once.

    A byte of the group is one of the buffer that a member sends from: of S bytes each other
    member gets S / n, and S / n stay.

    Args:
        groups: (groups, size), node numbers; all groups communicate at once.
        server_of: (nodes,), the server of every node, -1 for none. Default: each is its own.

    Raises:
        ModelError: If a group has a node twice, a node is out of range, or the flows would not
            fit in memory.

    Examples:
        >>> all_pairs = direct([[0, 1, 2, 3]])
        >>> all_pairs.flows.n_flows, all_pairs.share[0].item()
        (12, 0.25)
    """
    nodes = members("direct", groups)
    n_groups, size = nodes.shape
    n_flows = n_groups * size * (size - 1)
    afford(f"`direct` of {n_groups:,} groups of {size:,}", n_flows, "Use smaller groups.")
    sender, receiver = np.nonzero(~np.eye(size, dtype=bool))
    of = servers("direct", nodes, server_of)
    leaves = np.any(of != of[:, :1], axis=1).astype(np.int64)
    return Exchange(
        Flows(nodes[:, sender].ravel(), nodes[:, receiver].ravel()),
        np.full(n_flows, 1 / size),
        np.repeat(np.arange(n_groups), size * (size - 1)),
        n_groups,
        np.full(n_groups, min(size - 1, 1)),
        leaves,
    )


def mesh(groups: Groups) -> Exchange:
    """Return rings over all links of a mesh: between them they load every link alike.

    For groups inside one server whose GPUs have a link to every other one. A byte of the group is
    one that every member sends, as in `ring`.

    Args:
        groups: (groups, size), node numbers; all groups communicate at once.

    Raises:
        ModelError: As `direct`.

    Examples:
        >>> over = mesh([[0, 1, 2, 3]])
        >>> over.flows.n_flows, round(over.share[0].item() * 3, 9), over.steps.tolist()
        (12, 1.0, [3])
    """
    pairs, (n_groups, size) = direct(groups), np.shape(groups)
    return replace(
        pairs,
        share=pairs.share * size / max(size - 1, 1),
        steps=np.full(n_groups, size - 1),
        crossings=np.zeros(n_groups, np.int64),
    )


def send(src: Nodes, dst: Nodes, server_of: Nodes | None = None, *, share: float = 1.0) -> Exchange:
    """Return messages from node to node, each a group of its own, all at once.

    A byte of the group is one of the message. With `share=1 / t` each of t tensor-parallel ranks
    sends its part of an activation that all of them hold, and the receivers gather the parts
    inside their server (scatter-gather).

    Args:
        src: (groups,), sending nodes.
        dst: (groups,), receiving nodes.
        server_of: (nodes,), the server of every node, -1 for none. Default: each is its own.
        share: Bytes that are sent per byte of the message, more than 0.

    Raises:
        ModelError: If the two lists differ in length, or `share` is out of range.

    Examples:
        >>> send([0, 1], [8, 9], share=1 / 8).share.tolist()
        [0.125, 0.125]

    References:
        D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
        Megatron-LM, 2021, section 4.1.
    """
    if not (np.isfinite(share) and share > 0):
        message = f"`send(share={share!r})` needs a finite number of more than 0."
        raise ModelError(message)
    ends = [index_array(f"send({name})", given) for name, given in (("src", src), ("dst", dst))]
    if len(ends[0]) != len(ends[1]):
        message = f"`send` got {len(ends[0]):,} senders and {len(ends[1]):,} receivers."
        raise ModelError(message)
    n = len(ends[0])
    leaves = np.zeros(n, np.int64)
    if n:
        of = servers("send", np.stack(ends, axis=1), server_of)
        leaves = (of[:, 0] != of[:, 1]).astype(np.int64)
    return Exchange(Flows(*ends), np.full(n, share), np.arange(n), n, np.ones(n, np.int64), leaves)


def chain(groups: Groups, server_of: Nodes | None = None) -> Exchange:
    """Return chains, the pipelined broadcast: the first member sends to the second, and so on.

    A byte of the group is one of the message. Servers are visited one after the other, and
    members in their order.

    Args:
        groups: (groups, size), node numbers, the root first.
        server_of: (nodes,), the server of every node, -1 for none. Default: each is its own.

    Raises:
        ModelError: If a group has a node twice, or a node is out of range.

    Examples:
        >>> chain([[4, 5, 6]]).flows.dst.tolist()
        [5, 6]
    """
    nodes = members("chain", groups)
    n_groups, size = nodes.shape
    order, block = by_server(servers("chain", nodes, server_of))
    nodes = np.take_along_axis(nodes, order, axis=1)
    return Exchange(
        Flows(nodes[:, :-1].ravel(), nodes[:, 1:].ravel()),
        np.ones(n_groups * (size - 1)),
        np.repeat(np.arange(n_groups), size - 1),
        n_groups,
        np.full(n_groups, size - 1),
        (np.diff(block, axis=1) != 0).sum(axis=1),
    )
