"""How far given rates are from max-min fair, straight from the definition."""

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import SupportsFloat

from fabric.reference.problem import Problem, Rate, rational


def violation(problem: Problem, rates: Iterable[SupportsFloat]) -> float:
    """Return the largest relative violation of the max-min conditions; 0 for the right rates.

    Rates are max-min fair exactly when (a) no link and no cap is exceeded and (b) every flow is
    at its cap, or crosses a full link on which no flow has a higher level, rate / weight. So

        (a)  (load_l - c_l) / c_l   and   (r_f - k_f) / k_f
        (b)  per flow the least, over its cap and its links, of what is missing there:
             (k_f - r_f) / k_f   and   max( (c_l - load_l) / c_l , (top_l - t_f) / top_l )

    Everything is computed in rationals from the exact values of the given floats, so the number
    is free of rounding.

    Args:
        problem: The problem.
        rates: One per flow, byte/s. A flow without link and cap needs an infinite rate.

    Returns:
        The largest of all terms, dimensionless; infinite for a load on a link of capacity 0, a
        rate that is negative or NaN, and a finite rate where nothing holds the flow.

    Examples:
        >>> problem = Problem.from_paths([10, 4], [[0, 1], [0]])
        >>> violation(problem, [4, 6]), violation(problem, [4, 5]), violation(problem, [4, 7])
        (0.0, 0.1, 0.1)

        Full links are not enough: here link 0 is full, but the flow that could gain is behind.

        >>> violation(problem, [3, 7])
        0.25

    References:
        D. Bertsekas and R. Gallager, Data Networks, 2nd ed., 1992, section 6.5.2: an allocation is
        max-min fair if and only if each session has a bottleneck link.
    """
    held = [
        bool(row) or cap is not None for row, cap in zip(problem.uses, problem.cap, strict=True)
    ]
    given = list(rates)
    values = [float(r) for r in given]
    if len(values) != problem.n_flows or not all(map(_possible, values, held)):
        return math.inf

    rate = [rational(r) if h else Fraction(0) for r, h in zip(given, held, strict=True)]
    level = [r / w for r, w in zip(rate, problem.weight, strict=True)]
    load = [Fraction(0)] * problem.n_links
    top = [Fraction(0)] * problem.n_links
    for flow, row in enumerate(problem.uses):
        for link, use in row:
            load[link] += use * rate[flow]
            top[link] = max(top[link], level[flow])

    worst: Rate = Fraction(0)
    for link, capacity in enumerate(problem.capacity):
        worst = max(worst, _relative(load[link] - capacity, capacity))
    for flow, row in enumerate(problem.uses):
        missing = [
            max(
                _relative(problem.capacity[link] - load[link], problem.capacity[link]),
                _relative(top[link] - level[flow], top[link]),
            )
            for link, _ in row
        ]
        cap = problem.cap[flow]
        if cap is not None:
            worst = max(worst, _relative(rate[flow] - cap, cap))
            missing.append(_relative(cap - rate[flow], cap))
        if missing:
            worst = max(worst, min(missing))
    return float(worst)


def _possible(rate: float, held: bool) -> bool:
    return 0 <= rate < math.inf if held else rate == math.inf


def _relative(excess: Fraction, size: Fraction) -> Rate:
    if excess <= 0:
        return Fraction(0)
    return excess / size if size > 0 else math.inf
