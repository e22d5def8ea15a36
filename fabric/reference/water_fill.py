"""Water-filling in plain NumPy, float64: quick enough for instances of 100,000 flows."""

import math

import numpy as np
from numpy.typing import NDArray

from fabric.reference.problem import Problem


def max_min_rates_by_levels(problem: Problem) -> NDArray[np.float64]:
    """Return the max-min fair rates, byte/s, one global level at a time.

    Each step stops the flows of the limits (links and caps) that are full at the lowest level.

    Returns:
        (flows,), infinite for a flow without link and cap.

    Precision: Limits within 1e-13 of the lowest level count as full with it.
    Cost: O(entries) per distinct level.

    Examples:
        >>> max_min_rates_by_levels(Problem.from_paths([10, 4], [[0, 1], [0]])).tolist()
        [4.0, 6.0]

    References:
        D. Bertsekas and R. Gallager, Data Networks, 2nd ed., 1992, section 6.5.2.
    """
    return _fill(problem, by_rounds=False)[0]


def max_min_rates_by_rounds(problem: Problem) -> tuple[NDArray[np.float64], int]:
    """Return the same rates, byte/s, and the number of rounds of local minima.

    Each round stops every limit whose level is the lowest that each of its growing flows meets:
    nothing elsewhere can make those flows stop earlier, so it is final.

    Examples:
        Links 0 and 2 are both the lowest that their flows meet, so one round settles all.

        >>> rates, rounds = max_min_rates_by_rounds(Problem.from_paths([1, 8, 3], [[0, 1], [2]]))
        >>> rates.tolist(), rounds
        ([1.0, 3.0], 1)
    """
    return _fill(problem, by_rounds=True)


def _fill(problem: Problem, *, by_rounds: bool) -> tuple[NDArray[np.float64], int]:
    flow, limit, use, room = _entries(problem)
    weight = np.array([float(w) for w in problem.weight], np.float64)
    n_flows, n_limits = problem.n_flows, len(room)
    rates = np.full(n_flows, math.inf)
    rounds = 0
    while len(flow):
        rounds += 1
        growth = np.bincount(limit, use * weight[flow], minlength=n_limits)
        share = np.full(n_limits, math.inf)
        np.divide(np.maximum(room, 0.0), growth, out=share, where=growth > 0)
        level = np.full(n_flows, math.inf)
        if by_rounds:
            np.minimum.at(level, flow, share[limit])
            lowest = np.full(n_limits, math.inf)
            np.minimum.at(lowest, limit, level[flow])
            # A level is one of the shares, so equality is exact and needs no tolerance.
            full = share[limit] <= lowest[limit]
        else:
            level[flow] = share.min()
            full = share[limit] <= share.min() * (1 + 1e-13)
        stops = np.zeros(n_flows, bool)
        stops[flow[full]] = True
        rates[stops] = level[stops] * weight[stops]
        out = stops[flow]
        room -= np.bincount(limit[out], use[out] * rates[flow[out]], minlength=n_limits)
        flow, limit, use = flow[~out], limit[~out], use[~out]
    return rates, rounds


def _entries(
    problem: Problem,
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    capped = [f for f, cap in enumerate(problem.cap) if cap is not None]
    caps = [float(cap) for cap in problem.cap if cap is not None]
    flows = [f for f, row in enumerate(problem.uses) for _ in row] + capped
    links = [link for row in problem.uses for link, _ in row]
    # A cap is a link of the flow's own, numbered after the links of the network.
    limits = links + [problem.n_links + i for i in range(len(capped))]
    uses = [float(use) for row in problem.uses for _, use in row] + [1.0] * len(capped)
    room = [float(c) for c in problem.capacity] + caps
    return (
        np.array(flows, np.intp),
        np.array(limits, np.intp),
        np.array(uses, np.float64),
        np.array(room, np.float64),
    )
