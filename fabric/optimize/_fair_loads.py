"""What every flow carries at least while a phase lasts, if rates are max-min fair."""

import numpy as np
from jaxtyping import Float, Int

from fabric.network import Flows
from fabric.optimize._path_sets import PathSet


def fair_amounts(
    paths: PathSet,
    flows: Flows,
    amounts: Float[np.ndarray, "flows matrices"],
    capacity: Float[np.ndarray, " trunks"],
    seconds: Float[np.ndarray, " matrices"],
) -> Float[np.ndarray, "flows matrices"]:
    """Return amounts that flows carry at least until the last is done, whatever the splits.

    The flows of a pair cross the same links between their switches, so none of them is held there
    below the level of another. Where the last flow takes T, that level is at least
    `s = max size / (weight T)`, and a flow gets less than `w s` only if its cap or a link at its
    ends holds it, which gives it its share c w / W by weight or more:

        rate * T >= max(size, min(w s T, cap T, c_leave w / W_leave T, c_arrive w / W_arrive T))

    The right side grows with T, so that a bound on T gives a bound on the amount.

    Args:
        paths: The pairs of the flows and the links at their ends.
        flows: (flows,), with weights and caps.
        amounts: (flows, matrices), what is to be carried; 0: the flow is not there.
        capacity: (trunks,), byte/s.
        seconds: (matrices,), no phase takes less.
    """
    weight, cap = np.asarray(flows.weight, np.float64), np.asarray(flows.cap, np.float64)
    carried = amounts.copy()
    inside = paths.pair_of >= 0
    for m, (amount, least) in enumerate(zip(amounts.T, seconds, strict=True)):
        sends = amount > 0
        held = cap
        for end in (paths.leave, paths.arrive):
            held = np.minimum(held, _share(end, weight, sends, capacity))
        most = np.where(np.isfinite(held), np.minimum(held, 1e300) * least, np.inf)
        level = np.zeros(paths.n_pairs + 1)
        np.maximum.at(level, paths.pair_of[inside], (amount / weight)[inside])
        fair = np.minimum(weight * level[paths.pair_of], most)
        carried[:, m] = np.where(sends, np.maximum(amount, fair), 0)
    return carried


def _share(
    end: Int[np.ndarray, " flows"],
    weight: Float[np.ndarray, " flows"],
    sends: np.ndarray,
    capacity: Float[np.ndarray, " trunks"],
) -> Float[np.ndarray, " flows"]:
    """Return the rate that a link at the end of each flow gives it at least; infinite: no link."""
    there = (end >= 0) & sends
    total = np.bincount(end[there], weight[there], len(capacity))
    rate = np.full(len(end), np.inf)
    rate[there] = weight[there] * capacity[end[there]] / total[end[there]]
    return rate
