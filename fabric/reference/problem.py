"""`Problem`: a max-min problem as the oracles read it, in exact rationals and without a layout."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from operator import index
from typing import SupportsFloat, SupportsIndex, TypeAlias

# A rate is infinite where nothing holds the flow: no link and no cap.
Rate: TypeAlias = Fraction | float

# Stands for the flow's own cap where a link number would stand.
CAP = -1

_ZERO, _ONE = Fraction(0), Fraction(1)


@dataclass(frozen=True)
class Problem:
    """Which flow loads which link by how much, every number an exact rational.

    Attributes:
        capacity: One per link, byte/s, 0 or more.
        uses: One row per flow, pairs (link, load on the link per unit rate of the flow). Each link
            at most once in a row, every use more than 0.
        weight: One per flow, dimensionless, more than 0.
        cap: One per flow, byte/s, 0 or more; None where the flow has none.

    Examples:
        >>> problem = Problem.from_paths([10, 4], [[0, 1], [0]])
        >>> problem.n_links, problem.n_flows, problem.uses[1]
        (2, 2, [(0, Fraction(1, 1))])
    """

    capacity: list[Fraction]
    uses: list[list[tuple[int, Fraction]]]
    weight: list[Fraction]
    cap: list[Fraction | None]

    @property
    def n_links(self) -> int:
        """Number of links."""
        return len(self.capacity)

    @property
    def n_flows(self) -> int:
        """Number of flows."""
        return len(self.uses)

    @classmethod
    def from_paths(
        cls,
        capacity: Iterable[SupportsFloat],
        paths: Iterable[Iterable[SupportsIndex]],
        usage: Iterable[Iterable[SupportsFloat]] | None = None,
        weights: Iterable[SupportsFloat] | None = None,
        caps: Iterable[SupportsFloat] | None = None,
    ) -> "Problem":
        """Return a problem from a list of links per flow.

        Args:
            capacity: One per link, byte/s.
            paths: The links of each flow. A link named twice is loaded twice.
            usage: Load on each of those links per unit rate of the flow. Default 1.
            weights: One per flow. Default 1.
            caps: One per flow, byte/s, infinite for none. Default none.

        Examples:
            >>> Problem.from_paths([6], [[0], [0]], usage=[[2], [0]]).uses
            [[(0, Fraction(2, 1))], []]
        """
        rows = [[index(link) for link in path] for path in paths]
        used = [[_ONE] * len(row) for row in rows] if usage is None else usage
        totals = [_summed(zip(row, use, strict=True)) for row, use in zip(rows, used, strict=True)]
        return cls(
            capacity=[rational(c) for c in capacity],
            uses=totals,
            weight=[_ONE] * len(rows) if weights is None else [rational(w) for w in weights],
            cap=[None] * len(rows) if caps is None else [_finite(k) for k in caps],
        )

    @classmethod
    def from_csr(
        cls,
        capacity: Iterable[SupportsFloat],
        flow_ptr: Iterable[SupportsIndex],
        flow_links: Iterable[SupportsIndex],
    ) -> "Problem":
        """Return a problem of unit uses from compressed rows, as the golden instances have them.

        Examples:
            >>> Problem.from_csr([10, 4], [0, 2, 3], [0, 1, 0]).n_flows
            2
        """
        ptr, links = [index(i) for i in flow_ptr], [index(link) for link in flow_links]
        return cls.from_paths(capacity, [links[a:b] for a, b in itertools.pairwise(ptr)])

    @classmethod
    def from_arrays(
        cls,
        capacity: Iterable[SupportsFloat],
        hop_flow: Iterable[SupportsIndex],
        hop_bundle: Iterable[SupportsIndex],
        hop_use: Iterable[SupportsFloat],
        part_bundle: Iterable[SupportsIndex],
        part_link: Iterable[SupportsIndex],
        part_use: Iterable[SupportsFloat],
        n_flows: int,
        n_links: int,
        weights: Iterable[SupportsFloat],
        caps: Iterable[SupportsFloat],
    ) -> "Problem":
        """Return the problem that two-level routes stand for, bundles expanded without rounding.

            use of flow f on link l = sum over hops h of f and parts p of the bundle of h, with
                                      p on l, of hop_use[h] * part_use[p]

        Without parts a bundle is a link. Entries of flow `n_flows` or link `n_links` are padding.

        Examples:
            One flow, half on link 0 and half on link 1, behind a hop of use 3:

            >>> Problem.from_arrays(
            ...     [1, 1], [0, 1], [0, 0], [3, 1], [0, 0], [0, 1], [0.5, 0.5],
            ...     n_flows=1, n_links=2, weights=[1], caps=[math.inf],
            ... ).uses
            [[(0, Fraction(3, 2)), (1, Fraction(3, 2))]]
        """
        parts: dict[int, list[tuple[int, Fraction]]] = {}
        for bundle, link, use in zip(part_bundle, part_link, part_use, strict=True):
            row = parts.setdefault(index(bundle), [])
            if index(link) < n_links:
                row.append((index(link), rational(use)))
        two_level = bool(parts)
        loads: list[list[tuple[int, Fraction]]] = [[] for _ in range(n_flows)]
        for flow, bundle, use in zip(hop_flow, hop_bundle, hop_use, strict=True):
            if index(flow) >= n_flows:
                continue
            split = parts.get(index(bundle), []) if two_level else [(index(bundle), _ONE)]
            exact = rational(use)
            loads[index(flow)] += [(link, exact * part) for link, part in split]
        return cls(
            capacity=[rational(c) for c in capacity],
            uses=[_summed(row) for row in loads],
            weight=[rational(w) for w in weights],
            cap=[_finite(k) for k in caps],
        )


def rational(value: SupportsFloat) -> Fraction:
    """Return the exact value of a number; of a NumPy scalar too.

    >>> rational(0.5)
    Fraction(1, 2)
    """
    return Fraction(value) if isinstance(value, (Fraction, int)) else Fraction(float(value))


def _finite(cap: SupportsFloat) -> Fraction | None:
    return None if cap == math.inf else rational(cap)


def _summed(row: Iterable[tuple[int, SupportsFloat]]) -> list[tuple[int, Fraction]]:
    total: dict[int, Fraction] = {}
    for link, use in row:
        total[link] = total.get(link, _ZERO) + rational(use)
    return [(link, use) for link, use in total.items() if use > 0]
