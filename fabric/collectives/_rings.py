"""`ring`: every member sends to the next, on as many channels as a server has members."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from fabric._typing import AnyArray
from fabric.collectives._exchange import Exchange, members, servers
from fabric.network import Flows

# Rows may be arrays.
Groups = AnyArray | Sequence[Any]
Nodes = AnyArray | Sequence[int]


def ring(groups: Groups, server_of: Nodes | None = None) -> Exchange:
    """Return rings in which every member sends to the next; all-gathers, reductions and sums.

    A ring visits server after server, in the order in which they first occur, and in each all
    members of the group. Where every server has k members or more, k channels run at the same
    time, each with 1/k of the bytes; channel c leaves a server at another member than the other
    channels, so that k network adapters share the load. Servers take turns in the direction in
    which they are walked, so that a channel stays on one rail; with an odd number of servers it
    changes rail where the ring closes. Inside one server there is one channel.

    A byte of the group is one that every member sends. Of a message of S bytes on n members,
    every member sends S (n - 1) / n in an all-gather or a reduce-scatter, twice that in an
    all-reduce; see `moved`.

    Args:
        groups: (groups, size), node numbers; all groups communicate at once.
        server_of: (nodes,), the server of every node of the network, -1 for none, such as
            `net.labels.tags["server"]`. Default: every node is a server of its own.

    Raises:
        ModelError: If a group has a node twice, or a node is out of range.

    Examples:
        Two servers of two: each of the two channels crosses once in each direction.

        >>> two = ring([[0, 1, 2, 3]], server_of=[0, 0, 1, 1])
        >>> [f"{a}-{b}" for a, b in zip(two.flows.src.tolist(), two.flows.dst.tolist())]
        ['1-0', '0-2', '2-3', '3-1', '0-1', '1-3', '3-2', '2-0']
        >>> two.share[0].item(), two.steps.tolist(), two.crossings.tolist()
        (0.5, [3], [1])

    References:
        NVIDIA/nccl, src/graph/search.cc and connect.cc: one channel per network adapter, entered
        and left on the same adapter (`NCCL_CROSS_NIC`).
    """
    nodes = members("ring", groups)
    order, block = by_server(servers("ring", nodes, server_of))
    nodes = np.take_along_axis(nodes, order, axis=1)
    n_groups, size = nodes.shape
    src, dst, share, group = [], [], [], []
    crossings = np.zeros(n_groups, np.int64)
    # Sorting rows is slow, and most often they are alike.
    alike = bool((block == block[:1]).all())
    patterns, of = (
        (block[:1], np.zeros(n_groups, np.int64))
        if alike
        else np.unique(block, axis=0, return_inverse=True)
    )
    for i, pattern in enumerate(patterns if size > 1 else ()):
        rows = np.flatnonzero(of.ravel() == i)
        sizes = np.diff(np.r_[np.flatnonzero(np.r_[True, np.diff(pattern) != 0]), size])
        walk = _walk(sizes)
        src.append(nodes[rows][:, walk].ravel())
        dst.append(nodes[rows][:, np.roll(walk, -1, axis=1)].ravel())
        share.append(np.full(len(rows) * walk.size, 1 / len(walk)))
        group.append(np.repeat(rows, walk.size))
        crossings[rows] = len(sizes) - 1
    join = lambda parts, kind: np.concatenate([np.zeros(0, kind), *parts])
    steps = np.full(n_groups, size - 1)
    flows = Flows(join(src, np.int32), join(dst, np.int32))
    return Exchange(
        flows, join(share, np.float64), join(group, np.int64), n_groups, steps, crossings
    )


def by_server(
    server: Int[np.ndarray, "groups size"],
) -> tuple[Int[np.ndarray, "groups size"], Int[np.ndarray, "groups size"]]:
    """Return the order that brings the members of a server together, and where each one begins.

    Args:
        server: (groups, size). Servers keep the order in which they first occur, and members
            theirs.

    Returns:
        (groups, size), positions; and for every member in that order the position in the given
        order of the first member of its server.
    """
    n_groups, size = server.shape
    row = np.arange(n_groups)[:, None]
    key = row * (np.ptp(server) + 1) + (server - server.min()).astype(np.int64)
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    begins = first[of.reshape(server.shape)] - row * size
    order = np.argsort(begins, axis=1, kind="stable")
    return order, np.take_along_axis(begins, order, axis=1)


def _walk(sizes: Int[np.ndarray, " servers"]) -> Int[np.ndarray, "channels size"]:
    """Return the positions that every channel visits in turn."""
    n_servers = len(sizes)
    starts = np.cumsum(sizes) - sizes
    if n_servers == 1:
        return np.arange(sizes[0])[None, :]
    channel = np.arange(sizes.min())[:, None]
    turn = np.arange(n_servers) % 2
    if n_servers % 2:
        turn[-1] = 2
    pieces = []
    for s, k in enumerate(sizes.tolist()):
        out, into = (channel + turn[s]) % k, (channel + turn[s - 1]) % k
        # One member cannot be both ends of a path through several.
        into = np.where(into == out, (out + 1) % k, into)
        strides = _strides(k)
        stride, inverse = strides[:, channel % strides.shape[1]]
        last = (out - into) * inverse % k
        step = np.arange(k)
        step = np.where(step < k - 1, step + (step >= last), last)
        pieces.append(starts[s] + (into + step * stride) % k)
    return np.concatenate(pieces, axis=1)


@functools.cache
def _strides(k: int) -> Int[np.ndarray, "2 strides"]:
    """Return steps that visit all of k members, and their inverses; a mesh needs other links."""
    strides = [stride for stride in range(1, k) if math.gcd(stride, k) == 1] or [1]
    return np.array([strides, [pow(stride, -1, k) if k > 1 else 0 for stride in strides]])
