"""Routes read both ways: the links of some rows, and the rows on some links."""

import dataclasses
import functools

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from fabric._typing import AnyArray
from fabric.network import Routes
from fabric.reliability._hashes import UInt64s, bits, mixed

Ids = Int[np.ndarray, " _"]
Floats = Float[np.ndarray, " _"]


def grouped(key: Ids, n: int) -> tuple[Ids, Ids]:
    """Return (ptr, order): entries of key i are `order[ptr[i]:ptr[i + 1]]`."""
    from fabric.kernels._paths import group_by

    return group_by(key.astype(np.int32), n)


def entries(ptr: Ids, chosen: Ids) -> tuple[Ids, Ids]:
    """Return (which of the chosen, position) of all entries of some groups, group by group.

    Examples:
        >>> [x.tolist() for x in entries(np.array([0, 2, 2, 5]), np.array([2, 0]))]
        [[0, 0, 0, 1, 1], [2, 3, 4, 0, 1]]
    """
    begun, width = ptr[chosen], ptr[chosen + 1] - ptr[chosen]
    of = np.repeat(np.arange(len(chosen)), width)
    start = np.cumsum(width) - width
    return of, np.arange(len(of)) + np.repeat(begun - start, width)


def different(values: Ids, n: int) -> Ids:
    """Return the different values among whole numbers from 0 to n - 1, in order.

    Examples:
        >>> different(np.array([3, 1, 3]), 5).tolist()
        [1, 3]
    """
    there = np.zeros(n, bool)
    there[values] = True
    return np.flatnonzero(there)


def per_group(values: Shaped[np.ndarray, " entries"], ptr: Ids) -> Shaped[np.ndarray, " groups"]:
    """Return the sum of the values of every group; 64-bit hashes wrap around."""
    filled = np.flatnonzero(np.diff(ptr))
    total = np.zeros(len(ptr) - 1, values.dtype)
    if len(filled):
        total[filled] = np.add.reduceat(values, ptr[filled])
    return total


@dataclasses.dataclass(frozen=True, eq=False)
class Usage:
    """Rows over bundles and bundles over links, without padding and without uses of 0.

    Attributes:
        hop_ptr: (rows + 1,). The hops of row r are those from `hop_ptr[r]` to `hop_ptr[r + 1]`.
        hop_bundle: (hops,). `hop_use`: (hops,).
        hop_use: See `hop_bundle`.
        part_ptr: (bundles + 1,), of the parts of each bundle.
        part_link: (parts,). `part_use`: (parts,).
        part_use: See `part_link`.
        n_links: Number of links.
    """

    hop_ptr: Ids
    hop_bundle: Ids
    hop_use: Floats
    part_ptr: Ids
    part_link: Ids
    part_use: Floats
    n_links: int

    @classmethod
    def of(cls, routes: Routes) -> "Usage":
        """Return the usage of routes; where bundles are links, each is its one part."""
        kept = _crossing(routes.hop_use, routes.hop_flow, routes.n_flows)
        flow = np.asarray(routes.hop_flow)[kept]
        width = np.bincount(flow, minlength=routes.n_flows)
        hops = (np.asarray(routes.hop_bundle)[kept], np.asarray(routes.hop_use, np.float64)[kept])
        n_bundles = routes.n_bundles
        if routes.n_parts == 0:
            part_ptr, link, use = np.arange(n_bundles + 1), np.arange(n_bundles), np.ones(n_bundles)
        else:
            kept = _crossing(routes.part_use, routes.part_bundle, n_bundles)
            part_ptr, order = grouped(np.asarray(routes.part_bundle)[kept], n_bundles)
            link = np.asarray(routes.part_link)[kept][order]
            use = np.asarray(routes.part_use, np.float64)[kept][order]
        return cls(_ptr(width), *hops, part_ptr, link, use, routes.n_links)

    @functools.cached_property
    def _of_bundle(self) -> tuple[Ids, Ids]:
        return grouped(self.hop_bundle, self.n_bundles)

    @functools.cached_property
    def _of_link(self) -> tuple[Ids, Ids]:
        return grouped(self.part_link, self.n_links)

    @functools.cached_property
    def row_of_hop(self) -> Ids:
        """The row of every hop."""
        return np.repeat(np.arange(self.n_rows, dtype=np.int32), np.diff(self.hop_ptr))

    @functools.cached_property
    def bundle_of_part(self) -> Ids:
        """The bundle of every part."""
        return np.repeat(np.arange(self.n_bundles, dtype=np.int32), np.diff(self.part_ptr))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.hop_ptr) - 1

    @property
    def n_bundles(self) -> int:
        """Number of bundles."""
        return len(self.part_ptr) - 1

    def rows_on(self, links: Ids) -> Ids:
        """Return the rows that cross any of some links, in order."""
        ptr, part = self._of_link
        bundles = different(self.bundle_of_part[part[entries(ptr, links)[1]]], self.n_bundles)
        ptr, hop = self._of_bundle
        return different(self.row_of_hop[hop[entries(ptr, bundles)[1]]], self.n_rows)

    def rows_above(self, links: Ids, least: Floats, level: Floats) -> Ids:
        """Return the rows that cross a link at a level of more than what is given for it.

        Args:
            links: Some links.
            least: A level for each of them.
            level: (rows,).
        """
        ptr, part = self._of_link
        of, at = entries(ptr, links)
        bundle = self.bundle_of_part[part[at]]
        bound = np.full(self.n_bundles, np.inf)
        np.minimum.at(bound, bundle, least[of])
        bundles = different(bundle, self.n_bundles)
        ptr, hop = self._of_bundle
        of, at = entries(ptr, bundles)
        rows = self.row_of_hop[hop[at]]
        return different(rows[level[rows] > bound[bundles][of]], self.n_rows)

    def used(self) -> Bool[np.ndarray, " links"]:
        """Return which links any row crosses."""
        used = np.zeros(self.n_links, bool)
        crossed = np.bincount(self.hop_bundle, minlength=self.n_bundles) > 0
        used[self.part_link[crossed[self.bundle_of_part]]] = True
        return used

    def links_of(self, rows: Ids) -> Ids:
        """Return the links that any of some rows crosses, in order."""
        bundles = different(self.hop_bundle[entries(self.hop_ptr, rows)[1]], self.n_bundles)
        return different(self.part_link[entries(self.part_ptr, bundles)[1]], self.n_links)

    def load(self, rate: Floats, rows: Ids | None = None) -> Float[np.ndarray, " links"]:
        """Return what some rows, or all, put on every link.

        Args:
            rate: One per row taken, byte/s.
            rows: Default: all.
        """
        if rows is None:
            row, hop = self.row_of_hop, slice(None)
        else:
            row, hop = entries(self.hop_ptr, rows)
        put = rate[row] * self.hop_use[hop]
        bundle = np.bincount(self.hop_bundle[hop], put, self.n_bundles)
        if rows is None:
            of, part = self.bundle_of_part, slice(None)
            put = bundle[of] * self.part_use[part]
        else:
            used = np.flatnonzero(bundle)
            of, part = entries(self.part_ptr, used)
            put = bundle[used][of] * self.part_use[part]
        return np.bincount(self.part_link[part], put, self.n_links)

    def top(self, level: Floats) -> Float[np.ndarray, " links"]:
        """Return the largest level among the rows on every link, 0 where there is none."""
        ptr, hop = self._of_bundle
        bundle = _greatest(level[self.row_of_hop[hop]], ptr)
        ptr, part = self._of_link
        return _greatest(bundle[self.bundle_of_part[part]], ptr)

    def colours(self, row: UInt64s) -> UInt64s:
        """Return a hash per link of who crosses it and how, from hashes of rows."""
        told = mixed(row[self.row_of_hop[self._of_bundle[1]]] + self._hop_bits)
        bundle = mixed(per_group(told, self._of_bundle[0]))
        told = mixed(bundle[self.bundle_of_part[self._of_link[1]]] + self._part_bits)
        return mixed(per_group(told, self._of_link[0]))

    def crossed(self, link: UInt64s) -> UInt64s:
        """Return a hash per row of what it crosses and how, from hashes of links."""
        bundle = mixed(per_group(mixed(link[self.part_link] + bits(self.part_use)), self.part_ptr))
        return per_group(mixed(bundle[self.hop_bundle] + self._stage_bits), self.hop_ptr)

    @functools.cached_property
    def _stage_bits(self) -> UInt64s:
        """How each hop crosses its bundle: with what use, and at which place in its row."""
        place = np.arange(len(self.hop_bundle)) - self.hop_ptr[self.row_of_hop]
        return mixed(bits(self.hop_use) + place.astype(np.uint64))

    @functools.cached_property
    def _hop_bits(self) -> UInt64s:
        return self._stage_bits[self._of_bundle[1]]

    @functools.cached_property
    def _part_bits(self) -> UInt64s:
        return bits(self.part_use)[self._of_link[1]]


def _greatest(values: Floats, ptr: Ids) -> Floats:
    """Return the greatest value of every group, 0 where there is none."""
    most, full = np.zeros(len(ptr) - 1), np.flatnonzero(np.diff(ptr))
    if len(full):
        most[full] = np.maximum.reduceat(values, ptr[full])
    return most


def _crossing(use: AnyArray, left: AnyArray, n: int) -> np.ndarray | slice:
    kept = (np.asarray(use) > 0) & (np.asarray(left) < n)
    return slice(None) if kept.all() else np.flatnonzero(kept)


def _ptr(width: Ids) -> Ids:
    return np.concatenate([[0], np.cumsum(width)])
