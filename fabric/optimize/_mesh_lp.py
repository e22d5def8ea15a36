"""Linear programmes of blocks joined by circuits: exact splits, relaxed circuits, bounds."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric._typing import AnyArray
from fabric.optimize._mesh import usable

Pairs = Float[np.ndarray, "blocks blocks"]


class Solved(NamedTuple):
    """The largest multiple of the demand that fits, what decides it, and a bound on it."""

    multiple: float
    bound: float
    circuits: np.ndarray | None
    share: np.ndarray | None
    price: np.ndarray | None


class MeshProgrammes:
    """The programmes of one demand: all share their rows, only the circuits differ.

    Largest theta such that ways carry theta times the demand and no pair more than it has circuits.

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
        self.wanted = np.flatnonzero(demand)
        row_of = np.zeros(n * n, int)
        row_of[self.wanted] = np.arange(len(self.wanted))
        rows = np.concatenate([row_of[src * n + dst], np.arange(len(self.wanted))])
        columns = np.concatenate([number, np.full(len(self.wanted), len(src))])
        values = np.concatenate([np.ones(len(src)), -demand.ravel()[self.wanted]])
        self.carried = csr_array((values, (rows, columns)), shape=(len(self.wanted), len(src) + 1))
        far = via != src
        used = np.concatenate([via * n + dst, (src * n + via)[far]])
        by = np.concatenate([number, number[far]])
        self.load = csr_array((np.ones(len(by)), (used, by)), shape=(n * n, len(src) + 1))

    def fixed(self, circuits: AnyArray) -> Solved:
        """Return the best splits of circuits as they are, with the price of every pair."""
        from scipy.optimize import linprog

        goal = np.append(np.zeros(len(self.src)), -1.0)
        found = linprog(
            goal, A_ub=self.load, b_ub=np.asarray(circuits, float).ravel(), A_eq=self.carried,
            b_eq=np.zeros(len(self.wanted)), method="highs",
        )  # fmt: skip
        if found.x is None or found.x[-1] <= 0:
            return Solved(0.0, 0.0, None, None, None)
        price = np.maximum(-found.ineqlin.marginals, 0).reshape(np.shape(circuits))
        top = float(found.x[-1])
        return Solved(top, top, np.asarray(circuits), self._share(found.x), price / top)

    def free(
        self, ports: Int[np.ndarray, " blocks"], *, whole: bool = False, seconds: float = 0.0
    ) -> Solved:
        """Return the best circuits and splits together; `whole` by branch and bound for a time."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array, hstack

        n = len(ports)
        a, b = np.triu_indices(n, 1)
        pair = np.arange(len(a))
        both = (np.concatenate([a * n + b, b * n + a]), np.tile(pair, 2))
        ends = (np.concatenate([a, b]), np.tile(pair, 2))
        ones = np.ones(2 * len(a))
        load = hstack([self.load, csr_array((-ones, both), shape=(n * n, len(a)))])
        plugged = csr_array((ones, ends), shape=(n, len(a)))
        plugged = hstack([csr_array((n, len(self.src) + 1)), plugged])
        carried = hstack([self.carried, csr_array((len(self.wanted), len(a)))])
        columns = len(self.src) + 1 + len(a)
        goal, integral = np.zeros(columns), np.zeros(columns)
        goal[len(self.src)] = -1
        room: Any = ports
        integral[len(self.src) + 1 :] = whole
        found = milp(
            goal, integrality=integral, bounds=Bounds(0, np.inf),
            constraints=[
                LinearConstraint(carried, 0, 0), LinearConstraint(load, -np.inf, 0),
                LinearConstraint(plugged, -np.inf, room),
            ],
            options={"time_limit": seconds, "mip_rel_gap": 1e-6} if whole else {},
        )  # fmt: skip
        dual = found.mip_dual_bound if whole else found.fun
        bound = np.inf if dual is None else -float(dual)
        if found.x is None:
            return Solved(0.0, bound, None, None, None)
        circuits = np.zeros((n, n))
        circuits[a, b] = circuits[b, a] = found.x[len(self.src) + 1 :]
        if whole:
            circuits = np.rint(circuits).astype(int)
        return Solved(-float(found.fun), bound, circuits, None, None)

    def _share(self, x: Float[np.ndarray, " columns"]) -> Float[np.ndarray, "blocks blocks blocks"]:
        flow = np.zeros((len(self.demand),) * 3)
        flow[self.src, self.via, self.dst] = np.maximum(x[:-1], 0)
        total = flow.sum(1, keepdims=True)
        return np.divide(flow, total, out=np.zeros_like(flow), where=total > 0)


def price_bound(demand: Pairs, price: AnyArray, ports: Int[np.ndarray, " blocks"]) -> float:
    """Return a utilisation that no circuits within the ports go below, by any prices of links.

    Traffic times its cheapest way is at most the utilisation times what all circuits are worth:
    u >= sum_ij D_ij dist(i, j) / max over circuits of sum_e price_e circuits_e. The maximum is a
    fractional b-matching.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    n = len(demand)
    known = np.maximum(np.asarray(price, float), 0)
    np.fill_diagonal(known, 0)
    if not np.isfinite(known).all() or not known.any():
        return 0.0
    known = known / known.max()
    a, b = np.triu_indices(n, 1)
    ends = (np.concatenate([a, b]), np.tile(np.arange(len(a)), 2))
    plugged = csr_array((np.ones(2 * len(a)), ends), shape=(n, len(a)))
    # The dual: y_a + y_b >= price of a circuit. Any feasible y bounds the worth, exactly.
    found = linprog(ports, A_ub=-plugged.T, b_ub=-(known + known.T)[a, b], method="highs")
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
