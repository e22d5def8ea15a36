"""Linear programmes of blocks joined by circuits: exact splits, relaxed circuits, bounds."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric._typing import AnyArray
from fabric.optimize._mesh import usable

Pairs = Float[np.ndarray, "blocks blocks"]
Shares = Float[np.ndarray, "blocks blocks blocks"]

_SLACK = 2e-6
"""Branch and bound takes for whole what is so near, and holds rows to as much of a circuit."""


class Routed(NamedTuple):
    """The least utilisation of some circuits, the splits that reach it, and prices of links."""

    utilisation: float
    share: Shares
    price: Pairs


class Proved(NamedTuple):
    """Whole circuits that branch and bound found, if any, and what no circuits go below."""

    circuits: np.ndarray | None
    bound: float


class MeshProgrammes:
    """The programmes of one demand: all share their rows, only the circuits differ.

    Columns are shares of a pair's traffic, a row per pair adds them up, and a row per link says
    what it carries. Shares, not amounts, since the least of amounts drown in the tolerance.

    Args:
        demand: (blocks, blocks), in circuits.
    """

    def __init__(self, demand: Pairs):
        from scipy.sparse import csr_array

        n = len(demand)
        self.demand = demand
        ways = usable(1 - np.eye(n)) & (demand > 0)[:, None, :]
        self.src, self.via, self.dst = src, via, dst = np.nonzero(ways)
        number = np.arange(len(src))
        _, self.row = np.unique(src * n + dst, return_inverse=True)
        self.pairs, self.ways = int(self.row.max()) + 1, len(src)
        self.sent = csr_array(
            (np.ones(self.ways), (self.row, number)), shape=(self.pairs, self.ways)
        )
        far = via != src
        used = np.concatenate([via * n + dst, (src * n + via)[far]])
        by = np.concatenate([number, number[far]])
        amount = demand[src, dst][by]
        self.load = csr_array((amount, (used, by)), shape=(n * n, len(src)))

    def fixed(self, circuits: AnyArray) -> Routed | None:
        """Return the best splits of circuits as they are; None where a pair has no way.

        Least u such that the loads are at most u times the circuits. Ways over pairs without a
        circuit are columns too, so that these pairs have prices: what a circuit would save.
        """
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, hstack

        count = np.asarray(circuits, float)
        there = usable(count)[self.src, self.via, self.dst]
        if (np.bincount(self.row, there) == 0).any():
            return None
        found = linprog(
            np.append(np.zeros(self.ways), 1.0),
            A_ub=hstack([self.load, -count.reshape(-1, 1)], format="csr"),
            b_ub=np.zeros(count.size),
            A_eq=hstack([self.sent, csr_array((self.pairs, 1))], format="csr"),
            b_eq=np.ones(self.pairs),
            method="highs",
        )
        if found.x is None:
            return None
        price = np.maximum(-found.ineqlin.marginals, 0).reshape(count.shape)
        amount = np.where(there, np.maximum(found.x[:-1], 0), 0)
        # Of traffic too little to load anything the programme may leave all on a way that is none.
        amount = np.where((np.bincount(self.row, amount) > 0)[self.row], amount, there)
        share = np.zeros((len(count),) * 3)
        share[self.src, self.via, self.dst] = amount / np.bincount(self.row, amount)[self.row]
        return Routed(float(found.x[-1]), share, price)

    def relaxed(self, ports: Int[np.ndarray, " blocks"]) -> float:
        """Return the least utilisation of circuits of any fractions, proved by prices of links.

        With y = u x, the circuits at their utilisation: least u such that the loads are at most y
        and y uses at most u times the ports.
        """
        from scipy.optimize import linprog
        from scipy.sparse import block_array, csr_array, hstack

        joins, ends = _joins(len(ports)), _ends(len(ports))
        room = csr_array(-np.asarray(ports, float).reshape(-1, 1))
        rest: Any = csr_array((self.pairs, 1 + ends.shape[1]))
        found = linprog(
            np.r_[np.zeros(self.ways), 1.0, np.zeros(ends.shape[1])],
            A_ub=block_array([[self.load, None, -joins], [None, room, ends]], format="csr"),
            b_ub=np.zeros(joins.shape[0] + len(ports)),
            A_eq=hstack([self.sent, rest], format="csr"),
            b_eq=np.ones(self.pairs),
            method="highs",
        )
        if found.x is None:
            return 0.0
        price = np.maximum(-found.ineqlin.marginals[: joins.shape[0]], 0)
        return price_bound(self.demand, price.reshape(self.demand.shape), ports)

    def whole(self, ports: Int[np.ndarray, " blocks"], seconds: float) -> Proved:
        """Return whole circuits and a bound on them, by branch and bound for a time.

        Largest multiple of the demand that fits: with it the utilisation of whole circuits is
        linear.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array, hstack

        n = len(ports)
        joins, ends = _joins(n), _ends(n)
        cables, ways = ends.shape[1], self.ways
        room: Any = ports
        rest: Any = csr_array((self.pairs, cables))
        all_sent = hstack([self.sent, -np.ones((self.pairs, 1)), rest])
        load = hstack([self.load, csr_array((n * n, 1)), -joins])
        plugged = hstack([csr_array((n, ways + 1)), ends])
        found = milp(
            np.r_[np.zeros(ways), -1.0, np.zeros(cables)],
            integrality=np.r_[np.zeros(ways + 1), np.ones(cables)], bounds=Bounds(0, np.inf),
            constraints=[
                LinearConstraint(all_sent, 0, 0), LinearConstraint(load, -np.inf, 0),
                LinearConstraint(plugged, -np.inf, room),
            ],
            options={"time_limit": seconds, "mip_rel_gap": 1e-6},
        )  # fmt: skip
        dual = found.mip_dual_bound
        most = np.inf if dual is None or not dual < 0 else -float(dual)
        if found.x is None:
            return Proved(None, 1 / most / (1 + _SLACK))
        count = np.zeros((n, n), np.int64)
        count[np.triu_indices(n, 1)] = np.rint(found.x[ways + 1 :])
        return Proved(count + count.T, 1 / most / (1 + _SLACK))


def _joins(blocks: int) -> Any:
    """Return which links, both directions, the circuits of each pair are: (links, pairs)."""
    from scipy.sparse import csr_array

    a, b = np.triu_indices(blocks, 1)
    where = (np.r_[a * blocks + b, b * blocks + a], np.tile(np.arange(len(a)), 2))
    return csr_array((np.ones(2 * len(a)), where), shape=(blocks**2, len(a)))


def _ends(blocks: int) -> Any:
    """Return which pairs end at each block: (blocks, pairs)."""
    from scipy.sparse import csr_array

    a, b = np.triu_indices(blocks, 1)
    where = (np.r_[a, b], np.tile(np.arange(len(a)), 2))
    return csr_array((np.ones(2 * len(a)), where), shape=(blocks, len(a)))


def price_bound(demand: Pairs, price: AnyArray, ports: Int[np.ndarray, " blocks"]) -> float:
    """Return a utilisation that no circuits within the ports go below, by any prices of links.

    Traffic times its cheapest way is at most the utilisation times what all circuits are worth:
    u >= sum_ij D_ij dist(i, j) / max over circuits of sum_e price_e circuits_e. The maximum is a
    fractional b-matching.
    """
    from scipy.optimize import linprog

    n = len(demand)
    known = np.maximum(np.asarray(price, float), 0)
    np.fill_diagonal(known, 0)
    if not np.isfinite(known).all() or not known.any():
        return 0.0
    known = known / known.max()
    # No way leads through a block without ports, whatever the prices there: they cost nothing.
    known[ports == 0] = known[:, ports == 0] = 1
    a, b = np.triu_indices(n, 1)
    # The dual: y_a + y_b >= price of a circuit. Any feasible y bounds the worth, exactly.
    found = linprog(ports, A_ub=-_ends(n).T, b_ub=-(known + known.T)[a, b], method="highs")
    if found.x is None:
        return 0.0
    y = np.maximum(found.x, 0)
    short = np.maximum((known + known.T)[a, b] - y[a] - y[b], 0).max(initial=0)
    worth = float(ports @ (y + short / 2))
    return float((demand * cheapest(known)).sum() / worth) if worth > 0 else 0.0


def cheapest(price: Pairs) -> Pairs:
    """Return the price of the cheapest way of every pair, direct or by one other block."""
    best = price.copy()
    for via in range(len(price)):
        detour = price[:, via, None] + price[None, via, :]
        detour[via], detour[:, via] = np.inf, np.inf
        np.minimum(best, detour, out=best)
    np.fill_diagonal(best, 0)
    return best
