"""`tree` and `hierarchical`: the two that take servers apart."""

import dataclasses

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, some
from fabric.collectives._exchange import Exchange, members, servers
from fabric.collectives._rings import Groups, Nodes, by_server, ring
from fabric.network import Flows


def tree(groups: Groups, server_of: Nodes | None = None) -> Exchange:
    """Return all-reduces over two binary trees of servers, sums up and results down at once.

    Each tree carries half of the message. A server that has children in one tree has none in the
    other (of an odd number one has one in each), so that no server sends more than two messages'
    worth, about as much as in a ring; but a message passes log2(servers) servers instead of all.
    Two children that send to one parent
    meet at its network adapter (incast). Where every server has k members or more, k channels run
    at the same time, each with 1/k of the bytes and another member at the network; inside a
    server a channel is a chain.

    A byte of the group is one of the message.

    Args:
        groups: (groups, size), node numbers; all groups communicate at once.
        server_of: (nodes,), the server of every node, -1 for none. Default: each is its own.

    Raises:
        ModelError: If a group has a node twice, or a node is out of range.

    Examples:
        >>> both = tree([[0, 1, 2, 3]])
        >>> both.flows.n_flows, both.share[0].item(), both.crossings.tolist()
        (12, 0.5, [2])

    References:
        P. Sanders, J. Speck and J. L. Träff, Two-tree algorithms for full bandwidth broadcast,
        reduction and scan, 2009. NVIDIA/nccl, src/graph/trees.cc.
    """
    nodes = members("tree", groups)
    order, block = by_server(servers("tree", nodes, server_of))
    nodes = np.take_along_axis(nodes, order, axis=1)
    n_groups, size = nodes.shape
    src, dst, share, group = [], [], [], []
    steps, crossings = np.zeros((2, n_groups), np.int64)
    patterns, of = np.unique(block, axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns if size > 1 else ()):
        rows = np.flatnonzero(of.ravel() == i)
        starts = np.flatnonzero(np.r_[True, np.diff(pattern) != 0])
        sizes = np.diff(np.r_[starts, size])
        up, per_flow = _edges(starts, sizes)
        for a, b in (up, up[::-1]):
            src.append(nodes[rows][:, a].ravel())
            dst.append(nodes[rows][:, b].ravel())
            share.append(np.tile(per_flow, len(rows)))
            group.append(np.repeat(rows, len(a)))
        crossings[rows] = int(np.ceil(np.log2(len(sizes))))
        steps[rows] = crossings[rows] + sizes.max() - 1
    join = lambda parts, kind: np.concatenate([np.zeros(0, kind), *parts])
    flows = Flows(join(src, np.int32), join(dst, np.int32))
    return Exchange(
        flows, join(share, np.float64), join(group, np.int64), n_groups, steps, crossings
    )


def parents(n: int) -> Int[np.ndarray, "2 servers"]:
    """Return the parent of every server in both trees, -1 for the root.

    Args:
        n: Number of servers.

    Examples:
        >>> parents(4).tolist()
        [[-1, 2, 0, 2], [1, 3, 1, -1]]
    """
    number = np.arange(n)
    low = number & -number
    up = (number ^ low) | (low << 1)
    first = np.where(number == 0, -1, np.where(up < n, up, number ^ low))
    # The second tree is the mirror of the first, or, of an odd number, the first moved on by one.
    if n % 2:
        second = np.roll(np.where(first < 0, -1, (first + 1) % n), 1)
    else:
        second = np.where(first < 0, -1, n - 1 - first)[::-1]
    return np.stack([first, second])


def hierarchical(groups: Groups, server_of: Nodes | None) -> tuple[Exchange, Exchange]:
    """Return the two exchanges of a collective in two levels: inside servers, then between them.

    An all-reduce is a reduce-scatter inside every server, an all-reduce of each of the k parts
    between the members that hold it, one of every server, and an all-gather inside. Of S bytes on
    m servers with k members each, the first and the last take S (k - 1) / k times the slope of
    the first exchange, the middle one 2 S (m - 1) / m times that of the second.

    Args:
        groups: (groups, size), node numbers; as many members on every server.
        server_of: (nodes,), the server of every node, -1 for none; None: each is its own.

    Returns:
        Rings inside servers, where a byte of the group is one that every member sends; and rings
        of one member per server, where it is one of the k parts together.

    Raises:
        ModelError: If servers have different numbers of members of a group.

    Examples:
        >>> inside, between = hierarchical([[0, 1, 2, 3]], server_of=[0, 0, 1, 1])
        >>> inside.share[0].item(), between.share[0].item()
        (1.0, 0.5)
    """
    nodes = members("hierarchical", groups)
    order, block = by_server(servers("hierarchical", nodes, server_of))
    nodes = np.take_along_axis(nodes, order, axis=1)
    n_groups, size = nodes.shape
    k = int((block == block[:, :1]).sum(axis=1)[0])
    uneven = np.flatnonzero(np.any(block != np.arange(size) // k * k, axis=1) | (size % k > 0))
    if len(uneven):
        message = (
            f"`hierarchical(groups)` needs as many members of a group on every server, but "
            f"{len(uneven):,} of {n_groups:,} groups have not: {some(uneven)}. Use `ring`."
        )
        raise ModelError(message)
    m = size // k
    grid = nodes.reshape(n_groups, m, k)
    inside = ring(grid.reshape(-1, k))
    between = ring(grid.transpose(0, 2, 1).reshape(-1, m))
    of_groups = lambda value: np.full(n_groups, value)
    return (
        dataclasses.replace(
            inside, group=inside.group // m, n_groups=n_groups, steps=of_groups(k - 1),
            crossings=of_groups(0),
        ),
        dataclasses.replace(
            between, share=between.share / k, group=between.group // k, n_groups=n_groups,
            steps=of_groups(m - 1), crossings=of_groups(m - 1),
        ),
    )  # fmt: skip


def _edges(
    starts: Int[np.ndarray, " servers"], sizes: Int[np.ndarray, " servers"]
) -> tuple[Int[np.ndarray, "2 edges"], np.ndarray]:
    """Return the positions at both ends of every edge, child first, and its share of a byte."""
    channels = int(sizes.min())
    child, parent, share = [], [], []
    for c in range(channels):
        head = starts + c % sizes
        for up in parents(len(sizes)) if len(sizes) > 1 else ():
            has = np.flatnonzero(up >= 0)
            child.append(head[has])
            parent.append(head[up[has]])
            share.append(np.full(len(has), 1 / (2 * channels)))
        for start, k in zip(starts, sizes, strict=True):
            chain = start + (c + np.arange(k)) % k
            child.append(chain[1:])
            parent.append(chain[:-1])
            share.append(np.full(k - 1, 1 / channels))
    return np.stack([np.concatenate(child), np.concatenate(parent)]), np.concatenate(share)
