"""What no placement can beat, by prices of links.

With prices q of links, whatever the placement,

    seconds >= sum_ab D_ab dist_q(a, b) / sum_l q_l c_l ,

where the least over all placements is bounded as in the quadratic assignment problem. Phases have
prices of their own; what a unit costs at a slot adds up over them before units are assigned.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric.optimize._placement_input import Slots, Traffic
from fabric.optimize._placement_ways import Folded, Units, Ways, folded, rows_between, units_of

_POWERS = (1, 8, 64, 512)
_MOST_BLOCKS = 50_000
Square = Float[np.ndarray, "units units"]


class _Task(NamedTuple):
    """Traffic and what it may use, in the form that prices need."""

    slots: Slots
    traffic: Traffic
    ways: Ways
    units: Units
    links: Folded
    between: Int[np.ndarray, "sorts sorts group group"]  # rows
    within: Int[np.ndarray, "sorts group group"]  # rows; of one slot to itself none that is used


def by_prices(
    slots: Slots, traffic: Traffic, ways: Ways, at: Int[np.ndarray, " ranks"] | None = None
) -> float:
    """Return the seconds that every placement takes at least, by some prices.

    Args:
        slots: That may be taken.
        traffic: Of the ranks.
        ways: Between the slots.
        at: The slot of every rank: prices are steep in its loads. Default: all links alike.
    """
    task = _task(slots, traffic, ways)
    capacity, count = task.links.capacity, task.links.copies
    sound = capacity > 0
    per_byte = np.where(sound, 1 / np.maximum(capacity, 1e-300), 0.0)
    total = np.zeros((slots.n_units, len(task.units.first)))
    for flows in traffic.phases:
        if at is None:
            prices = [per_byte, 1.0 * sound]
        else:
            row = ways.rows(at[traffic.src[flows]], at[traffic.dst[flows]])
            sent = np.bincount(row, traffic.size[flows], task.links.use.shape[0])
            load = (task.links.use.T @ sent) * per_byte / count
            prices = [(load / max(load.max(), 1e-300)) ** power * per_byte for power in _POWERS]
        tables = _tables(task, flows, [q / (q @ (capacity * count)) for q in prices if q.any()])
        if tables:
            total += max(tables, key=lambda table: _least_sum(table, task.units))
    return _least_sum(total, task.units) * (1 - 1e-12)


def _task(slots: Slots, traffic: Traffic, ways: Ways) -> _Task:
    units, n = units_of(slots, ways), ways.n_kinds
    kind = ways.kind.reshape(slots.n_units, slots.group)[units.first]
    within = kind[:, :, None] * n + kind[:, None, :] + n * n
    between = rows_between(slots, ways, units)
    return _Task(slots, traffic, ways, units, folded(ways), between, within)


def _least_sum(table: Float[np.ndarray, "units sorts"], units: Units) -> float:
    """Return the cheapest way to give every unit a slot of its own."""
    from scipy.optimize import linear_sum_assignment

    spread = table[:, units.sort]
    return float(spread[linear_sum_assignment(spread)].sum())


def _tables(
    task: _Task, flows: slice, prices: list[Float[np.ndarray, " links"]]
) -> list[Float[np.ndarray, "units sorts"]]:
    """Return for each price what every unit costs at least at a slot of every sort.

    Between units the nearest of their slots count, so that ranks may move within them. A stream is
    shared by the two units at its ends.
    """
    g, m = task.slots.group, task.slots.n_units
    src, dst, size = (column[flows] for column in task.traffic[:3])
    sent = task.traffic.between(g, m, flows)
    out, back = _falling(sent), _falling(sent.T)
    inside = src // g == dst // g
    key = (src // g * g + src % g)[inside] * g + (dst % g)[inside]
    blocks, of = np.unique(
        np.bincount(key, size[inside], m * g * g).reshape(m, g * g), axis=0, return_inverse=True
    )
    found = []
    for price in prices:
        cost = np.asarray(task.links.use @ price)
        away = cost[task.between].min(axis=(2, 3))
        table = 0.5 * (out @ _rising(away, task.units).T + back @ _rising(away.T, task.units).T)
        if blocks.any() and len(blocks) * len(away) <= _MOST_BLOCKS:
            table = table + _inside(blocks.reshape(-1, g, g), cost[task.within])[of.ravel()]
        found.append(table)
    return found


def _falling(sent: Square) -> Float[np.ndarray, "units others"]:
    """Return what every unit sends to each other one, the largest first."""
    m = len(sent)
    others = sent[~np.eye(m, dtype=bool)].reshape(m, m - 1)
    return np.sort(others, axis=1)[:, ::-1]


def _rising(
    away: Float[np.ndarray, "sorts sorts"], units: Units
) -> Float[np.ndarray, "sorts others"]:
    """Return how far every other slot is from one of each sort, the nearest first."""
    n = len(away)
    count = units.room - np.eye(n, dtype=int)
    return np.sort([np.repeat(away[s], count[s]) for s in range(n)], axis=1)


def _inside(
    blocks: Float[np.ndarray, "blocks group group"], cost: Float[np.ndarray, "sorts group group"]
) -> Float[np.ndarray, "blocks sorts"]:
    """Return what traffic within a unit costs at least, for every block of it and every sort.

    References:
        P. Gilmore 1962; E. Lawler, The Quadratic Assignment Problem, 1963.
    """
    from scipy.optimize import linear_sum_assignment

    found = np.zeros((len(blocks), len(cost)))
    for i, block in enumerate(blocks):
        out, back = _falling(block), _falling(block.T)
        for s, away in enumerate(cost):
            ways, ways_back = (-_falling(-way) for way in (away, away.T))
            table = 0.5 * (out @ ways.T + back @ ways_back.T)
            found[i, s] = table[linear_sum_assignment(table)].sum()
    return found
