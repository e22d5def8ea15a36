# numba infers the types of compiled kernels.
# pyright: reportMissingParameterType=false
"""Compiled bottleneck structure and sweeps of one-level routes; wide bundles: `_sweeps`.

Links shared by several flows come first and are read from their side; a link of one flow is
settled with its flow. Where `hop_use`, `back_use` and `weight` are None every use and weight is 1.

The sweeps take links as their dependencies become final, so each link and hop is met once and
nothing is sorted. A link that waits for itself, which only rounding could bring about, keeps 0.
"""

import numba
import numpy as np

from fabric.kernels._layout import comes_before
from fabric.kernels._sweeps import gap
from fabric.kernels._water_fill import grows

jit = numba.njit(cache=True, nogil=True)


@jit
def weighs(back_use, weight, k, f):
    """Return what entry k of the transpose, of flow f, adds to the load of its link per level."""
    if weight is None:
        return 1.0
    return back_use[k] * weight[f]


@jit
def classify(
    level, stopper, capacity, class_link, cap_level, flow_ptr, flow_end, hop_at, hop_use, weight,
    back_ptr, back_flow, back_use, n_shared, near,
):  # fmt: skip
    """Return (bottleneck, full, load, diagonal, own, margin), as `_sweeps.classify`.

    Args:
        level: (flows,), infinite where nothing stops the flow.
        stopper: (flows,), the link recorded while filling, -1 for none.
        capacity: (links,), the first `n_shared` shared and the others of one flow.
        class_link: (links,), their numbers in the network, by which ties are settled.
        cap_level: (flows,).
        flow_ptr: (flows + 1,).
        flow_end: (flows,), where the hops on shared links end.
        hop_at: (hops,).
        hop_use: (hops,) or None.
        weight: (flows,) or None.
        back_ptr: (links + 1,).
        back_flow: (hops,).
        back_use: (hops,) or None.
        n_shared: Number of shared links.
        near: Relative distance at which levels and loads count as equal.
    """
    n_flows, n_links = len(level), len(capacity)
    full = np.zeros(n_links, np.bool_)
    for f in range(n_flows):
        if stopper[f] >= 0:
            full[stopper[f]] = True
    load = np.zeros(n_links)
    top = np.full(n_shared, np.inf)  # of full links
    margin = 1.0
    for l in range(n_shared):
        sum_, highest = 0.0, -np.inf
        for k in range(back_ptr[l], back_ptr[l + 1]):
            f = back_flow[k]
            t = level[f]
            if t < np.inf:
                sum_ += weighs(back_use, weight, k, f) * t
                highest = max(highest, t)
        load[l] = sum_
        full[l] = highest >= 0.0 and (full[l] or sum_ >= capacity[l] * (1.0 - near))
        if full[l]:
            top[l] = highest
        elif highest >= 0.0:
            margin = min(margin, gap(capacity[l], sum_))

    bottleneck = np.full(n_flows, -1, np.int32)
    diagonal = np.zeros(n_links)
    own = np.zeros(n_links, np.int32)
    for f in range(n_flows):
        t = level[f]
        if t == np.inf:
            continue
        first = -1
        h = flow_end[f]
        alone = hop_at[h] if h < flow_ptr[f + 1] else -1
        if alone >= 0:
            load[alone] = grows(hop_use, weight, h, f) * t
            full[alone] |= load[alone] >= capacity[alone] * (1.0 - near)
            if not full[alone]:
                margin = min(margin, gap(capacity[alone], load[alone]))
        if t < cap_level[f] * (1.0 - near):
            if cap_level[f] < np.inf:
                margin = min(margin, gap(cap_level[f], t))
            if alone >= 0 and full[alone]:
                first = alone
            for h in range(flow_ptr[f], flow_end[f]):
                l = hop_at[h]
                if t < top[l] * (1.0 - near):
                    continue
                if first < 0 or comes_before(class_link[l], class_link[first]):
                    first = l
        bottleneck[f] = first
        if alone >= 0 and full[alone]:
            if first == alone:
                diagonal[alone] = grows(hop_use, weight, flow_end[f], f)
                own[alone] = 1
            else:
                margin = 0.0

    for l in range(n_shared):
        if not full[l]:
            continue
        rival = -np.inf
        for k in range(back_ptr[l], back_ptr[l + 1]):
            f = back_flow[k]
            if bottleneck[f] == l:
                diagonal[l] += weighs(back_use, weight, k, f)
                own[l] += 1
            elif level[f] < np.inf:
                rival = max(rival, level[f])
        if rival >= 0.0:
            margin = min(margin, gap(top[l], rival))
    return bottleneck, full, load, diagonal, own, max(margin, 0.0)


@jit
def saturate(capacity, member_ptr, member_link, class_link, full, load, near):
    """Return (saturated, gap): which links of all classes are full, and the least that others lack.

    Others are those that fill together with a smaller link. They are its rivals, except on links
    that no flow uses: these are not full, and carry nothing.
    """
    saturated = np.zeros(len(capacity), np.bool_)
    least = 1.0
    for c in range(len(full)):
        for i in range(member_ptr[c], member_ptr[c + 1]):
            l = member_link[i]
            if l == class_link[c]:
                saturated[l] = full[c]
            else:
                saturated[l] = full[c] and load[c] >= capacity[l] * (1.0 - near)
                if full[c] or load[c] > 0.0:
                    least = min(least, gap(capacity[l], load[c]))
    return saturated, max(least, 0.0)


@jit
def sweep_levels(
    bottleneck, right, diagonal, flow_ptr, flow_end, hop_at, hop_use, weight,
    back_ptr, back_flow, back_use, n_shared,
):  # fmt: skip
    """Return x with `sum over f on l of M_lf x_b(f) = right_l` on the links that stop flows."""
    n_links = len(right)
    x, carried = np.zeros(n_links), np.zeros(n_shared)
    waiting = np.zeros(n_shared, np.int32)  # flows on the link that another one stops
    ready = np.empty(n_links, np.int32)
    n = 0
    for l in range(n_links):
        if diagonal[l] <= 0.0:
            continue
        if l < n_shared:
            for k in range(back_ptr[l], back_ptr[l + 1]):
                b = bottleneck[back_flow[k]]
                waiting[l] += b >= 0 and b != l
        if l >= n_shared or waiting[l] == 0:
            ready[n] = l
            n += 1
    done = 0
    while done < n:
        l = ready[done]
        done += 1
        x[l] = (right[l] - (carried[l] if l < n_shared else 0.0)) / diagonal[l]
        for k in range(back_ptr[l], back_ptr[l + 1]):
            f = back_flow[k]
            if bottleneck[f] != l:
                continue
            for h in range(flow_ptr[f], flow_end[f]):
                m = hop_at[h]
                if m == l or diagonal[m] <= 0.0:
                    continue
                carried[m] += grows(hop_use, weight, h, f) * x[l]
                waiting[m] -= 1
                if waiting[m] == 0:
                    ready[n] = m
                    n += 1
    return x


@jit
def sweep_prices(
    bottleneck, right, diagonal, flow_ptr, flow_end, hop_at, hop_use, weight,
    back_ptr, back_flow, back_use, n_shared,
):  # fmt: skip
    """Return z, the solution of the transposed system of `sweep_levels`."""
    n_links = len(right)
    z, gathered = np.zeros(n_links), np.zeros(n_links)
    waiting = np.zeros(n_links, np.int32)  # other links that stop flows, on flows the link stops
    ready = np.empty(n_links, np.int32)
    for f in range(len(bottleneck)):
        b = bottleneck[f]
        if b >= 0:
            for h in range(flow_ptr[f], flow_end[f]):
                waiting[b] += hop_at[h] != b and diagonal[hop_at[h]] > 0.0
    n = 0
    for l in range(n_links):
        if diagonal[l] > 0.0 and waiting[l] == 0:
            ready[n] = l
            n += 1
    done = 0
    while done < n:
        l = ready[done]
        done += 1
        z[l] = (right[l] - gathered[l]) / diagonal[l]
        if l >= n_shared:
            continue
        for k in range(back_ptr[l], back_ptr[l + 1]):
            f = back_flow[k]
            b = bottleneck[f]
            if b < 0 or b == l:
                continue
            gathered[b] += weighs(back_use, weight, k, f) * z[l]
            waiting[b] -= 1
            if waiting[b] == 0:
                ready[n] = b
                n += 1
    return z
