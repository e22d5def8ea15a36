"""Routes as refinement reads them: flows that cross bundles, bundles that cross rows of links."""

import dataclasses
import functools

import numpy as np
from jaxtyping import Float, Int, Shaped

from fabric._typing import AnyArray
from fabric.kernels._structure import hashed_rank
from fabric.network import Routes
from fabric.solvers._plan import merged

Ids = Int[np.ndarray, " _"]


@dataclasses.dataclass(frozen=True, eq=False)
class Entries:
    """Left items that cross right items; entries by rising left item, read-only."""

    left_of: Ids
    right_of: Ids
    use: Float[np.ndarray, " _"]
    n_left: int
    n_right: int

    @property
    def arrays(self) -> tuple[Ids, Ids, Float[np.ndarray, " _"]]:
        """Entries as the kernels take them."""
        return self.left_of, self.right_of, self.use

    @functools.cached_property
    def scale(self) -> float:
        """What makes most uses whole numbers; see `fabric.kernels._refine.multiple`."""
        from fabric.kernels._refine import scale_of

        return scale_of(self.use)


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """Flows, bundles and rows. A row is a link, or links that always fill together.

    Attributes:
        hops: Flows over bundles; without parts bundles are rows.
        parts: Bundles over rows, None where bundles are links.
        row_of: (links,), the row of every link, None where rows are links. Links that carry
            nothing share the last row.
        n_rows: Number of rows.
    """

    hops: Entries
    parts: Entries | None
    row_of: Ids | None
    n_rows: int

    @property
    def work(self) -> int:
        """Entries that one round of refinement reads."""
        parts = 0 if self.parts is None else len(self.parts.use)
        return len(self.hops.use) + parts + self.hops.n_left + self.hops.n_right

    def least(self, capacity: Float[np.ndarray, " links"]) -> Float[np.ndarray, " rows"]:
        """Return the least capacity of the links of every row."""
        if self.row_of is None:
            return capacity
        least = np.full(self.n_rows, np.inf)
        np.minimum.at(least, self.row_of, capacity)
        return least

    def smallest(self, capacity: Float[np.ndarray, " links"]) -> Int[np.ndarray, " rows"]:
        """Return the smallest link of every row, the first by the fixed priority at a tie."""
        if self.row_of is None:
            return np.arange(len(capacity), dtype=np.int32)
        rank, _ = hashed_rank(len(capacity))
        order = np.lexsort((rank, capacity, self.row_of))
        return order[np.searchsorted(self.row_of[order], np.arange(self.n_rows))]

    def to_links(self, values: Shaped[np.ndarray, " rows"]) -> Shaped[np.ndarray, " links"]:
        """Return the value of the row of every link."""
        return values if self.row_of is None else values[self.row_of]


def graph_of(routes: Routes) -> Graph:
    """Return the graph of these routes, from the cache that travels with them if it is there."""
    if "graph" not in routes.plans:
        routes.plans["graph"] = _build(routes)
    return routes.plans["graph"]


def _build(routes: Routes) -> Graph:
    hops = Entries(
        _sealed(routes.hop_flow, np.int32), _sealed(routes.hop_bundle, np.int32),
        _sealed(routes.hop_use, np.float64), routes.n_flows, routes.n_bundles,
    )  # fmt: skip
    if routes.n_parts == 0:
        return Graph(hops, None, None, routes.n_links)
    row_of, n_rows, ptr, bundle, use = merged(routes) or (
        np.full(routes.n_links, -1, np.int32), 0, np.zeros(1, np.int64), np.zeros(0, np.int32),
        np.zeros(0),
    )  # fmt: skip
    if np.any(row_of < 0):
        row_of, n_rows = np.where(row_of < 0, n_rows, row_of).astype(np.int32), n_rows + 1
    row = np.repeat(np.arange(len(ptr) - 1, dtype=np.int32), np.diff(ptr))
    # Bundles that no flow takes would tell links apart that carry the same.
    taken = np.zeros(routes.n_bundles + 1, bool)
    taken[hops.right_of[hops.use > 0]] = True
    kept = np.flatnonzero(taken[bundle])
    order = kept[np.argsort(bundle[kept], kind="stable")]
    parts = Entries(
        _sealed(bundle[order], np.int32), _sealed(row[order], np.int32),
        _sealed(use[order], np.float64), routes.n_bundles, n_rows,
    )  # fmt: skip
    return Graph(hops, parts, row_of, n_rows)


def _sealed(values: AnyArray, kind: type) -> np.ndarray:
    """Return contiguous values of a type, read-only without a copy of those of `Routes`."""
    array = np.ascontiguousarray(values, kind).view()
    array.flags.writeable = False
    return array
