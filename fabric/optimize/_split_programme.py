"""The linear programme of the largest load, whose solution has splits and prices, by HiGHS."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fabric.optimize._aim import Aim
from fabric.optimize._certificate import Limit

LARGEST = 15_000
"""Loads of paths on links, over all matrices, that take HiGHS about a second."""


class Solved(NamedTuple):
    """Splits and prices that prove each other."""

    splits: Float[np.ndarray, "pairs width"]
    prices: Float[np.ndarray, "edges matrices"]


def is_small(aim: Aim) -> bool:
    """Return whether the programme is solved in about a second."""
    entries = int((aim.paths.hops < aim.paths.n_trunks).sum()) * aim.amounts.shape[1]
    return 0 < entries <= LARGEST


def solved(aim: Aim, limit: Limit | None) -> Solved | None:
    """Return the solution; None if HiGHS finds none.

    Variables are the splits x, the utilisation u of every matrix, a level with what is above it
    (the worst matrix, or those of CVaR), and with a limit what moves, y:

        min  cost(u, level, over)
        sum_p d x / c + base / c <= u      every edge and matrix
        u <= level + over                  every matrix
        x - y <= today,  sum mass y <= most
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    paths, over, share = aim.paths, aim.over.name, aim.share
    demand, base = aim.loads
    n_edges, matrices = base.shape
    ways = np.flatnonzero(paths.valid.ravel())
    pair, n = ways // paths.width, len(ways)
    unit = max(float(aim.uses(aim.whole(paths.valid)).max()), 1e-300)
    u = n + np.arange(matrices)
    level, above = n + matrices, n + matrices + 1 + np.arange(matrices)
    moved = n + 2 * matrices + 1 + np.arange(0 if limit is None else n)
    n_columns = n + 2 * matrices + 1 + len(moved)

    way, hop = np.nonzero(paths.hops[ways] < paths.n_trunks)
    edge = paths.hops[ways[way], hop]
    m = np.arange(matrices)
    load = demand[pair[way]] / aim.capacity[edge][:, None] / unit
    each = np.arange(n_edges * matrices)
    rows = [edge[:, None] * matrices + m, each, len(each) + m, len(each) + m]
    columns = [np.repeat(way[:, None], matrices, axis=1), u[each % matrices], u, level]
    values = [load, -1.0, 1.0, -1.0]
    given = [(-base / aim.capacity[:, None] / unit).ravel(), np.zeros(matrices)]
    if over != "worst":
        rows.append(len(each) + m)
        columns.append(above)
        values.append(-1.0)
    if limit is not None:
        first = len(each) + matrices
        rows += [first + np.arange(n), first + np.arange(n), first + n]
        columns += [np.arange(n), moved, moved]
        values += [1.0, -1.0, limit.mass[pair]]
        given += [limit.today.ravel()[ways], [limit.most]]
    limits = np.concatenate(given)
    parts = [np.broadcast_arrays(*part) for part in zip(values, rows, columns, strict=True)]
    value, row, column = (np.concatenate([p[i].ravel() for p in parts]) for i in range(3))
    cost = np.zeros(n_columns)
    if over in ("mean", "sum"):
        cost[u] = share
    else:
        cost[level] = 1
        cost[above] = share / aim.over.tail if over == "cvar" else 0
    answer = linprog(
        cost, A_ub=coo_array((value, (row, column)), shape=(len(limits), n_columns)).tocsr(),
        b_ub=limits,
        A_eq=coo_array((np.ones(n), (pair, np.arange(n))), shape=(paths.n_pairs, n_columns)),
        b_eq=np.ones(paths.n_pairs), bounds=(0, None), method="highs",
    )  # fmt: skip
    if answer.status != 0:
        return None
    splits = np.zeros(paths.valid.size)
    splits[ways] = np.maximum(answer.x[:n], 0)
    splits = aim.whole(splits.reshape(paths.valid.shape))
    if limit is not None:
        away = 0.5 * (limit.mass[:, None] * np.abs(splits - limit.today)).sum()
        splits = limit.today + (splits - limit.today) * min(1, limit.most / max(away, 1e-300))
    price = np.maximum(-answer.ineqlin.marginals[: len(each)], 0).reshape(n_edges, matrices)
    return Solved(splits, price / aim.capacity[:, None])
