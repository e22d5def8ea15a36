"""Max-min rates in exact rationals, by filling every flow at once until links are full."""

import heapq
import math
from fractions import Fraction

from fabric.reference.problem import CAP, Problem, Rate


def max_min_rates_exact(problem: Problem) -> list[Rate]:
    """Return the max-min fair rate of every flow, byte/s, without any rounding.

    All flows grow together, flow f at level s having rate w_f s. Link l is full at

        s_l = (c_l - load of stopped flows) / sum over growing flows of use_lf w_f

    and a cap k_f is a link of its own, full at k_f / w_f. The limit that is full first stops its
    flows; that can only raise the level at which any other limit is full, so what has stopped
    never needs another look.

    Returns:
        One `Fraction` per flow; `math.inf` for a flow that crosses no link and has no cap. A flow
        on a link of capacity 0 gets 0.

    Cost: O(n log n) rational operations for n entries of `uses`, whose numerators grow; 10,000
        flows with capacities all different take seconds.

    Examples:
        >>> max_min_rates_exact(Problem.from_paths([25, 50, 100, 75], [[0], [1], [0, 1], [1, 2]]))
        [Fraction(25, 2), Fraction(75, 4), Fraction(25, 2), Fraction(75, 4)]
        >>> max_min_rates_exact(Problem.from_paths([3], [[0], [0]], weights=[1, 2], caps=[1, 9]))
        [Fraction(1, 1), Fraction(2, 1)]

    References:
        D. Bertsekas and R. Gallager, Data Networks, 2nd ed., 1992, section 6.5.2.
    """
    room, rows = _limits(problem)
    flows_on: list[list[int]] = [[] for _ in room]
    growth = [Fraction(0)] * len(room)
    for flow, row in enumerate(rows):
        for limit, use in row:
            flows_on[limit].append(flow)
            growth[limit] += use * problem.weight[flow]

    rates: list[Rate] = [math.inf] * problem.n_flows
    stopped = [False] * problem.n_flows
    queue = [(room[i] / growth[i], i) for i in range(len(room)) if growth[i] > 0]
    heapq.heapify(queue)
    while queue:
        level, full = heapq.heappop(queue)
        # An entry made before some of the limit's flows stopped is out of date; a later one exists.
        if growth[full] == 0 or level != room[full] / growth[full]:
            continue
        touched: set[int] = set()
        for flow in flows_on[full]:
            if stopped[flow]:
                continue
            stopped[flow] = True
            rates[flow] = rate = problem.weight[flow] * level
            for limit, use in rows[flow]:
                room[limit] -= use * rate
                growth[limit] -= use * problem.weight[flow]
                touched.add(limit)
        for limit in touched:
            if growth[limit] > 0:
                heapq.heappush(queue, (room[limit] / growth[limit], limit))
    return rates


def bottlenecks_exact(problem: Problem, rates: list[Rate]) -> list[set[int]]:
    """Return, per flow, the full links on which no flow has a higher level; `CAP` for its cap.

    The rates are max-min fair when no load exceeds a capacity and no set is empty.

    Examples:
        >>> problem = Problem.from_paths([2, 2, 9], [[0, 1, 2], [0], [1]])
        >>> bottlenecks_exact(problem, max_min_rates_exact(problem))
        [{0, 1}, {0}, {1}]
    """
    level = [rate / w for rate, w in zip(rates, problem.weight, strict=True)]
    load: list[Rate] = [Fraction(0)] * problem.n_links
    top: list[Rate] = [Fraction(0)] * problem.n_links
    for flow, row in enumerate(problem.uses):
        for link, use in row:
            load[link] += use * rates[flow]
            top[link] = max(top[link], level[flow])
    return [
        {link for link, _ in row if load[link] == problem.capacity[link] and top[link] == level[f]}
        | ({CAP} if rates[f] == problem.cap[f] else set())
        for f, row in enumerate(problem.uses)
    ]


def _limits(problem: Problem) -> tuple[list[Fraction], list[list[tuple[int, Fraction]]]]:
    room = list(problem.capacity)
    rows = [list(row) for row in problem.uses]
    for flow, cap in enumerate(problem.cap):
        if cap is not None:
            rows[flow].append((len(room), Fraction(1)))
            room.append(cap)
    return room, rows
