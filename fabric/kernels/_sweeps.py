# numba infers the types of compiled kernels.
# pyright: reportMissingParameterType=false
"""Compiled structure and sweeps of wide bundles; the same answers as `fabric.kernels._structure`.

Links come in an order in which, near-ties apart, all that a link depends on precedes it: by level,
then by rank. One pass over hops and parts then solves the system. Where rounding has put two
links of one level the wrong way round, a link is met before its dependencies are final and is
left to the next pass.
"""

import numba
import numpy as np

jit = numba.njit(cache=True, nogil=True)


@jit
def gap(more, less):
    """Return (more - less) / more, 0 where `more` is 0."""
    return (more - less) / more if more > 0.0 else 0.0


@jit
def classify(
    level, stopper, capacity, weight, cap_level, rank,
    flow_ptr, hop_at, hop_use, link_ptr, link_bundle, link_use, n_bundles, near,
):  # fmt: skip
    """Return (bottleneck, full, load, diagonal, own, margin); see `structure`.

    Args:
        level: (flows,), infinite where nothing stops the flow.
        stopper: (flows,), the link recorded while filling, -1 for none.
        capacity: (links,).
        weight: (flows,).
        cap_level: (flows,).
        rank: (links,), the lower comes first at a tie.
        flow_ptr: (flows + 1,).
        hop_at: (hops,), bundles.
        hop_use: (hops,).
        link_ptr: (links + 1,).
        link_bundle: (parts,).
        link_use: (parts,).
        n_bundles: Number of bundles.
        near: Relative distance at which levels and loads count as equal.
    """
    n_flows, n_links = len(weight), len(capacity)
    high = 1.0 + near
    bundle_load = np.zeros(n_bundles)
    anyone = np.full(n_bundles, -np.inf)
    for f in range(n_flows):
        t = level[f]
        if t == np.inf:
            continue
        rate = weight[f] * t
        for h in range(flow_ptr[f], flow_ptr[f + 1]):
            b = hop_at[h]
            bundle_load[b] += hop_use[h] * rate
            anyone[b] = max(anyone[b], t)

    stops = np.zeros(n_links, np.bool_)
    for f in range(n_flows):
        if stopper[f] >= 0:
            stops[stopper[f]] = True
    load = np.zeros(n_links)
    top = np.full(n_links, -np.inf)
    for l in range(n_links):
        for k in range(link_ptr[l], link_ptr[l + 1]):
            load[l] += link_use[k] * bundle_load[link_bundle[k]]
            top[l] = max(top[l], anyone[link_bundle[k]])
    full = (top >= 0.0) & (stops | (load >= capacity * (1.0 - near)))

    # Per bundle: the first of its full links whose top is the lowest.
    bundle_top = np.full(n_bundles, np.inf)
    pick = np.full(n_bundles, -1, np.int32)
    for l in np.flatnonzero(full):
        for k in range(link_ptr[l], link_ptr[l + 1]):
            bundle_top[link_bundle[k]] = min(bundle_top[link_bundle[k]], top[l])
    for l in np.flatnonzero(full):
        for k in range(link_ptr[l], link_ptr[l + 1]):
            b = link_bundle[k]
            if top[l] <= bundle_top[b] * high and (pick[b] < 0 or rank[l] < rank[pick[b]]):
                pick[b] = l

    bottleneck = np.full(n_flows, -1, np.int32)
    other = np.full(n_bundles, -np.inf)
    own_weight = np.zeros(n_bundles)
    own_count = np.zeros(n_bundles, np.int64)
    margin = 1.0
    for f in range(n_flows):
        t = level[f]
        if t == np.inf:
            continue
        first = -1
        if t < cap_level[f] * (1.0 - near):
            if cap_level[f] < np.inf:
                margin = min(margin, gap(cap_level[f], t))
            for h in range(flow_ptr[f], flow_ptr[f + 1]):
                b = hop_at[h]
                if pick[b] < 0 or t < bundle_top[b] * (1.0 - near):
                    continue
                if first < 0 or rank[pick[b]] < rank[first]:
                    first = pick[b]
        bottleneck[f] = first
        for h in range(flow_ptr[f], flow_ptr[f + 1]):
            b = hop_at[h]
            if first >= 0 and pick[b] == first:
                own_weight[b] += hop_use[h] * weight[f]
                own_count[b] += 1
            else:
                other[b] = max(other[b], t)

    diagonal = np.zeros(n_links)
    own = np.zeros(n_links, np.int64)
    for l in range(n_links):
        if not full[l]:
            if top[l] >= 0.0:
                margin = min(margin, gap(capacity[l], load[l]))
            continue
        rival = -np.inf
        for k in range(link_ptr[l], link_ptr[l + 1]):
            b = link_bundle[k]
            if pick[b] == l:
                diagonal[l] += link_use[k] * own_weight[b]
                own[l] += own_count[b]
                rival = max(rival, other[b])
            else:
                rival = max(rival, anyone[b])
        if rival >= 0.0:
            margin = min(margin, gap(top[l], rival))
    return bottleneck, full, load, diagonal, own, max(margin, 0.0)


@jit
def group(rising, near):
    """Return the group of each of some rising numbers: those within `near` of its first."""
    groups = np.zeros(len(rising), np.int32)
    first = 0
    for i in range(1, len(rising)):
        groups[i] = groups[i - 1]
        if rising[i] > rising[first] * (1.0 + near):
            groups[i] += 1
            first = i
    return groups


@jit
def own_flows(bottleneck, n_links):
    """Return (ptr, flow): the flows that each link stops."""
    ptr = np.zeros(n_links + 1, np.int64)
    for b in bottleneck:
        if b >= 0:
            ptr[b + 1] += 1
    for l in range(n_links):
        ptr[l + 1] += ptr[l]
    put = ptr[:-1].copy()
    flow = np.empty(ptr[-1], np.int32)
    for f in range(len(bottleneck)):
        b = bottleneck[f]
        if b >= 0:
            flow[put[b]] = f
            put[b] += 1
    return ptr, flow


@jit
def sweep_levels(
    order, right, own_ptr, own_flow, weight, diagonal, own,
    flow_ptr, hop_at, hop_use, link_ptr, link_bundle, link_use, n_bundles,
):  # fmt: skip
    """Return (x, passes) with `sum over f on l of M_lf x_b(f) = right_l` on the links in order."""
    x = np.zeros(len(right))
    carried = np.zeros(n_bundles)
    waiting = np.zeros(n_bundles, np.int64)
    for f in own_flow:
        for h in range(flow_ptr[f], flow_ptr[f + 1]):
            waiting[hop_at[h]] += 1
    final = np.zeros(len(right), np.bool_)
    left, passes = len(order), 0
    while left > 0 and passes <= len(order):
        passes += 1
        for l in order:
            sum_, open_ = 0.0, 0
            for k in range(link_ptr[l], link_ptr[l + 1]):
                sum_ += link_use[k] * carried[link_bundle[k]]
                open_ += waiting[link_bundle[k]]
            if final[l] or open_ != own[l]:
                continue
            x[l] = (right[l] - sum_) / diagonal[l]
            final[l] = True
            left -= 1
            for j in range(own_ptr[l], own_ptr[l + 1]):
                f = own_flow[j]
                for h in range(flow_ptr[f], flow_ptr[f + 1]):
                    carried[hop_at[h]] += hop_use[h] * weight[f] * x[l]
                    waiting[hop_at[h]] -= 1
    return x, passes


@jit
def sweep_prices(
    order, right, own_ptr, own_flow, weight, diagonal, own,
    flow_ptr, hop_at, hop_use, link_ptr, link_bundle, link_use, n_bundles,
):  # fmt: skip
    """Return (z, passes), the solution of the transposed system; links in reverse order."""
    z = np.zeros(len(right))
    price = np.zeros(n_bundles)
    waiting = np.zeros(n_bundles, np.int64)
    for l in order:
        for k in range(link_ptr[l], link_ptr[l + 1]):
            waiting[link_bundle[k]] += 1
    final = np.zeros(len(right), np.bool_)
    left, passes = len(order), 0
    while left > 0 and passes <= len(order):
        passes += 1
        for l in order[::-1]:
            if final[l]:
                continue
            sum_, open_ = 0.0, 0
            for j in range(own_ptr[l], own_ptr[l + 1]):
                f = own_flow[j]
                along = 0.0
                for h in range(flow_ptr[f], flow_ptr[f + 1]):
                    along += hop_use[h] * price[hop_at[h]]
                    open_ += waiting[hop_at[h]]
                sum_ += weight[f] * along
            if open_ != own[l]:
                continue
            z[l] = (right[l] - sum_) / diagonal[l]
            final[l] = True
            left -= 1
            for k in range(link_ptr[l], link_ptr[l + 1]):
                price[link_bundle[k]] += link_use[k] * z[l]
                waiting[link_bundle[k]] -= 1
    return z, passes
