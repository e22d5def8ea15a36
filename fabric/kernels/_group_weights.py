"""Compiled local search over the whole weights of groups, one unit at a time."""

import numpy as np
from numba import njit

_HIGHEST = 40.0  # exponents beyond are cut: a link so far over is bad enough
_TRIED = 8  # of the cheapest paths, and of the dearest in use


@njit(cache=True, nogil=True)
def improve_groups(
    weight: np.ndarray,
    total: np.ndarray,
    most: np.ndarray,
    hops: np.ndarray,
    demand: np.ndarray,
    capacity: np.ndarray,
    load: np.ndarray,
    aim: np.ndarray,
    sharpness: float,
    order: np.ndarray,
) -> int:
    """Move, add or take one unit of weight per group where that helps; return how many did.

    What falls is `sum_em exp(sharpness (load_em / (capacity_e aim_m) - 1))`, a soft maximum.

    Args:
        weight: (pairs, width), whole, changed in place.
        total: (pairs,), sum of the weights, changed in place.
        most: (pairs,), what a total may be at most.
        hops: (pairs * width, hops), link of every hop; `len(capacity)` for none.
        demand: (pairs, matrices).
        capacity: (links,).
        load: (links, matrices), changed in place.
        aim: (matrices,), the utilisation to come near.
        sharpness: Of the soft maximum.
        order: (pairs,), in which groups are visited.
    """
    n_links, matrices = load.shape
    width, longest = weight.shape[1], hops.shape[1]
    change = np.zeros(n_links)
    touched = np.empty(n_links, np.int64)
    price = np.empty(width)
    new = np.empty(width, np.int64)
    done = 0
    for k in order:
        if total[k] == 0:
            continue
        for w in range(width):
            price[w] = np.inf
            if hops[k * width + w, 0] < n_links:
                price[w] = 0.0
                for h in range(longest):
                    e = hops[k * width + w, h]
                    if e == n_links:
                        break
                    for m in range(matrices):
                        price[w] += (demand[k, m] / (capacity[e] * aim[m])) * _steep(
                            load[e, m] / (capacity[e] * aim[m]), sharpness
                        )
        ranked = np.argsort(price)
        best, one, other = -1e-12, -1, -1
        # -1 for the dear path: one entry more; -1 for the cheap one: one entry less.
        for i in range(-1, min(_TRIED, width)):
            cheap = -1 if i < 0 else ranked[i]
            if cheap >= 0 and price[cheap] == np.inf:
                break
            tried = 0
            for j in range(width, -1, -1):
                dear = -1 if j == width else ranked[j]
                if dear >= 0 and weight[k, dear] == 0:
                    continue
                if tried > _TRIED or (dear < 0 and (cheap < 0 or total[k] >= most[k])):
                    continue
                if cheap < 0 and total[k] <= 1:
                    continue
                tried += 1
                if dear == cheap or (dear >= 0 and cheap >= 0 and price[dear] <= price[cheap]):
                    continue
                _changed(weight[k], new, dear, cheap)
                gain = _gain(
                    k, new, weight, total, hops, demand, capacity, load, aim, sharpness, change,
                    touched, False,
                )  # fmt: skip
                if gain < best:
                    best, one, other = gain, dear, cheap
        if one == other:
            continue
        _changed(weight[k], new, one, other)
        _gain(
            k, new, weight, total, hops, demand, capacity, load, aim, sharpness, change, touched,
            True,
        )  # fmt: skip
        for w in range(width):
            weight[k, w] = new[w]
        total[k] += (one < 0) - (other < 0)
        done += 1
    return done


@njit(cache=True, nogil=True)
def _steep(use: float, sharpness: float) -> float:
    return np.exp(min(sharpness * (use - 1), _HIGHEST))


@njit(cache=True, nogil=True)
def _changed(old: np.ndarray, new: np.ndarray, dear: int, cheap: int) -> None:
    """Fill `new`: one less on the dear path, one more on the cheap one, where they are given."""
    new[:] = old
    if cheap >= 0:
        new[cheap] += 1
    if dear >= 0:
        new[dear] -= 1


@njit(cache=True, nogil=True)
def _gain(
    k: int,
    new: np.ndarray,
    weight: np.ndarray,
    total: np.ndarray,
    hops: np.ndarray,
    demand: np.ndarray,
    capacity: np.ndarray,
    load: np.ndarray,
    aim: np.ndarray,
    sharpness: float,
    change: np.ndarray,
    touched: np.ndarray,
    keep: bool,
) -> float:
    """Return by how much the soft maximum changes; with `keep`, change the loads."""
    n_links, matrices = load.shape
    width, longest = weight.shape[1], hops.shape[1]
    sum_new = 0
    for w in range(width):
        sum_new += new[w]
    n = 0
    for w in range(width):
        share = new[w] / sum_new - weight[k, w] / total[k]
        if share == 0:
            continue
        for h in range(longest):
            e = hops[k * width + w, h]
            if e == n_links:
                break
            if change[e] == 0:
                touched[n] = e
                n += 1
            change[e] += share
            if change[e] == 0:
                change[e] = 1e-300  # touched already: it may not be listed twice
    gain = 0.0
    for i in range(n):
        e = touched[i]
        for m in range(matrices):
            after = load[e, m] + change[e] * demand[k, m]
            full = capacity[e] * aim[m]
            if keep:
                load[e, m] = after
            else:
                gain += _steep(after / full, sharpness) - _steep(load[e, m] / full, sharpness)
        change[e] = 0.0
    return gain
