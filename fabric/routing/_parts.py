"""`Parts`: nodes that forward and all reach each other, and which of them a flow can go over."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Int

from fabric.network import Network

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Parts:
    """The strongly connected parts of the nodes that forward, over live links.

    Planes and rails that no switch joins are several; so are the rest of a network and what
    failures cut off.

    Attributes:
        of_node: (nodes,), the part of each node that forwards, -1 for others.
        count: How many there are.
    """

    def __init__(self, network: Network):
        from scipy.sparse.csgraph import connected_components

        labels, forwards = network.labels, np.asarray(network.labels.forwards)
        src, dst = np.asarray(labels.src), np.asarray(labels.dst)
        alive, n = np.asarray(network.alive), labels.n_nodes
        inner = alive & forwards[src] & forwards[dst]
        _, part = connected_components(_matrix(src[inner], dst[inner], (n, n)), connection="strong")
        own, number = np.unique(part[forwards], return_inverse=True)
        self.count = len(own)
        self.of_node: Int[np.ndarray, " nodes"] = np.full(n, -1, np.int64)
        self.of_node[forwards] = number.ravel()
        enters, leaves = alive & ~forwards[src] & forwards[dst], alive & forwards[src]
        leaves &= ~forwards[dst]
        node = np.flatnonzero(forwards)
        shape, of = (n, self.count), self.of_node
        # A node that forwards is in its part; another one is at all parts it has a link with.
        self._into = _matrix(
            np.append(src[enters], node), np.append(of[dst[enters]], of[node]), shape
        )
        self._out = _matrix(
            np.append(dst[leaves], node), np.append(of[src[leaves]], of[node]), shape
        )
        self._onwards = _closure(of[src[inner]], of[dst[inner]], self.count)

    def between(
        self, src: Int[np.ndarray, " flows"], dst: Int[np.ndarray, " flows"]
    ) -> "csr_array":
        """Return (flows, parts): those that the source reaches and the destination is reached from.

        Where there is none, no way from one to the other crosses a node that forwards.
        """
        reached: Any = (self._into @ self._onwards)[src]
        found = reached.multiply((self._out @ self._onwards.T)[dst]).tocsr()
        found.eliminate_zeros()
        found.sort_indices()
        return found


def linked(
    network: Network, src: Int[np.ndarray, " flows"], dst: Int[np.ndarray, " flows"]
) -> Bool[np.ndarray, " flows"]:
    """Return which flows have a live link from end to end."""
    labels, alive = network.labels, np.asarray(network.alive)
    key = lambda a, b: np.asarray(a, np.int64) * labels.n_nodes + b
    return np.isin(key(src, dst), key(labels.src[alive], labels.dst[alive]))


def _closure(a: Int[np.ndarray, " links"], b: Int[np.ndarray, " links"], count: int) -> "csr_array":
    """Return which parts lead to which; without links of one direction, each to itself only."""
    apart, every = a != b, np.arange(count)
    reach = _matrix(np.append(a[apart], every), np.append(b[apart], every), (count, count))
    while True:
        more = _true(reach @ reach)
        if more.nnz == reach.nnz:
            return reach
        reach = more


def _matrix(row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> "csr_array":
    from scipy.sparse import coo_array

    return _true(coo_array((np.ones(len(row), np.int32), (row, column)), shape).tocsr())


def _true(matrix: Any) -> "csr_array":
    matrix.data[:] = 1
    return matrix
