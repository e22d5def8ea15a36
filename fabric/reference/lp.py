"""Max-min rates by linear programs alone: nothing is assumed about how they are reached."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.reference.problem import Problem

# How far above the common level a flow must get to count as able to grow. Well over what HiGHS
# leaves open, so that a flow is never taken as free because of a solver's residue.
_STUCK = 1e-8
_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def max_min_rates_lp(problem: Problem) -> NDArray[np.float64]:
    """Return the max-min fair rate of every flow, byte/s, by a sequence of linear programs.

    Max-min fair means lexicographically largest when levels are sorted upwards. So, in turn:

        1. maximise s  subject to  r_f >= w_f s  for the flows still open, the loads within the
           capacities, the caps, and the rates that are settled;
        2. an open flow that cannot exceed w_f s while the other open flows keep w_g s is settled
           at w_f s. One program per open flow finds that out.

    Cost: as many programs as flows times distinct levels; for tens of flows.

    Returns:
        (flows,), infinite for a flow without link and cap.

    Examples:
        >>> max_min_rates_lp(Problem.from_paths([10, 4], [[0, 1], [0]])).round(9).tolist()
        [4.0, 6.0]

    References:
        B. Radunovic and J.-Y. Le Boudec, A unified framework for max-min and min-max fairness with
        applications, IEEE/ACM Transactions on Networking 15(5), 2007: max-min programming.
    """
    capacity = np.array([float(c) for c in problem.capacity])
    cap = np.array([math.inf if k is None else float(k) for k in problem.cap])
    weight = np.array([float(w) for w in problem.weight])
    use = np.zeros((problem.n_links, problem.n_flows))
    for flow, row in enumerate(problem.uses):
        for link, value in row:
            use[link, flow] = float(value)

    rates = np.full(problem.n_flows, math.inf)
    held = np.flatnonzero(use.any(axis=0) | np.isfinite(cap))
    if len(held) == 0:
        return rates
    # HiGHS has absolute tolerances: bring the largest bound to 1.
    scale = (
        max(capacity.max(initial=0.0), cap[held][np.isfinite(cap[held])].max(initial=0.0)) or 1.0
    )
    rates[held] = scale * _settle(use[:, held], capacity / scale, weight[held], cap[held] / scale)
    return rates


def _settle(
    use: NDArray[np.float64],
    capacity: NDArray[np.float64],
    weight: NDArray[np.float64],
    cap: NDArray[np.float64],
) -> NDArray[np.float64]:
    n_flows = len(weight)
    low, high = np.zeros(n_flows), cap.copy()
    open_flows = np.ones(n_flows, bool)
    while open_flows.any():
        level = _common_level(use, capacity, weight, low, high, open_flows)
        low[open_flows] = (weight * level)[open_flows]
        stuck = [
            f
            for f in np.flatnonzero(open_flows)
            if _largest(use, capacity, low, high, int(f))
            <= low[f] + _STUCK * weight[f] * (1 + level)
        ]
        if not stuck:
            message = "No flow is settled at the common level; the programs disagree."
            raise RuntimeError(message)
        high[stuck] = low[stuck]
        open_flows[stuck] = False
    return low


def _common_level(
    use: NDArray[np.float64],
    capacity: NDArray[np.float64],
    weight: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    open_flows: NDArray[np.bool_],
) -> float:
    n_links, n_flows = use.shape
    each = np.flatnonzero(open_flows)
    above = np.zeros((len(each), n_flows + 1))
    above[np.arange(len(each)), each] = -1.0
    above[:, n_flows] = weight[each]
    rows = np.vstack([np.hstack([use, np.zeros((n_links, 1))]), above])
    bounds = [*zip(low, high, strict=True), (0.0, math.inf)]
    return _maximise(n_flows, rows, np.concatenate([capacity, np.zeros(len(each))]), bounds)


def _largest(
    use: NDArray[np.float64],
    capacity: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    flow: int,
) -> float:
    return _maximise(flow, use, capacity, [*zip(low, high, strict=True)])


def _maximise(
    variable: int,
    rows: NDArray[np.float64],
    limits: NDArray[np.float64],
    bounds: list[tuple[float, float]],
) -> float:
    # SciPy ships no types.
    from scipy.optimize import linprog  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    aim = np.zeros(rows.shape[1])
    aim[variable] = -1.0
    found: Any = linprog(
        aim, A_ub=rows, b_ub=limits, bounds=bounds, method="highs", options=_OPTIONS
    )
    if found.status != 0:
        message = f"HiGHS stopped with status {found.status}: {found.message}"
        raise RuntimeError(message)
    return float(found.x[variable])
