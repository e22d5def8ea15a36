# numba infers the types of compiled kernels.
# pyright: reportMissingParameterType=false
"""Compiled one-sided derivatives of a known solution, and how far they reach.

Levels that compare as equal form a group, and groups come in rising order. Just beyond a solution
the links of one group compete by the tangents of their shares: filling once more, group by group
and with tangents in place of levels, finds which of them stops each flow. See
`fabric.kernels._dual_rounds` for the same answer by vectorised rounds, without a solution.
"""

import numba
import numpy as np

from fabric.kernels._water_fill import heapify, sift_down

jit = numba.njit(cache=True, nogil=True)
NEAR_TOP = 1.0 - 1e-9
"""Flows this near the top of a link are counted when its rounding is judged; no more than that."""


@jit
def measure(
    level, weight, flow_ptr, hop_at, hop_use, link_ptr, link_bundle, link_use, n_bundles
):  # fmt: skip
    """Return (load, top, growth, total, entries) per link.

    `top` is the highest level, -inf for a link without flows; `growth` the sum of use times weight
    over the flows at the top, `total` over all; `entries` how many terms the load sums up.
    """
    load_, top_ = np.zeros(n_bundles), np.full(n_bundles, -np.inf)
    growth_, total_ = np.zeros(n_bundles), np.zeros(n_bundles)
    entries_ = np.zeros(n_bundles, np.int64)
    for f in range(len(level)):
        for h in range(flow_ptr[f], flow_ptr[f + 1]):
            b, m = hop_at[h], hop_use[h] * weight[f]
            load_[b] += m * level[f]
            total_[b] += m
            top_[b] = max(top_[b], level[f])
            entries_[b] += 1
    for f in range(len(level)):
        for h in range(flow_ptr[f], flow_ptr[f + 1]):
            if level[f] >= top_[hop_at[h]] * NEAR_TOP:
                growth_[hop_at[h]] += hop_use[h] * weight[f]
    n_links = len(link_ptr) - 1
    load, top = np.zeros(n_links), np.full(n_links, -np.inf)
    growth, total = np.zeros(n_links), np.zeros(n_links)
    entries = np.zeros(n_links, np.int64)
    for l in range(n_links):
        for k in range(link_ptr[l], link_ptr[l + 1]):
            top[l] = max(top[l], top_[link_bundle[k]])
        for k in range(link_ptr[l], link_ptr[l + 1]):
            b = link_bundle[k]
            load[l] += link_use[k] * load_[b]
            total[l] += link_use[k] * total_[b]
            entries[l] += entries_[b]
            if top_[b] >= top[l] * NEAR_TOP:
                growth[l] += link_use[k] * growth_[b]
    return load, top, growth, total, entries


@jit
def group(rising, slack):
    """Return the group of each of some rising numbers: those that reach the first by slack."""
    groups = np.zeros(len(rising), np.int32)
    first = 0
    for i in range(1, len(rising)):
        groups[i] = groups[i - 1]
        if rising[i] - slack[i] > rising[first] + slack[first]:
            groups[i] += 1
            first = i
    return groups


@jit
def by_group(flow_order, flow_ptr, hop_at, n_bundles):
    """Return (ptr, flow): the flows of every bundle, in the order given."""
    ptr = np.zeros(n_bundles + 1, np.int64)
    for h in range(len(hop_at)):
        ptr[hop_at[h] + 1] += 1
    for b in range(n_bundles):
        ptr[b + 1] += ptr[b]
    put = ptr[:-1].copy()
    flow = np.empty(len(hop_at), np.int32)
    for f in flow_order:
        for h in range(flow_ptr[f], flow_ptr[f + 1]):
            flow[put[hop_at[h]]] = f
            put[hop_at[h]] += 1
    return ptr, flow


@jit
def stop(f, x, weight, tangent, stopped, flow_ptr, hop_at, hop_use, carried, growing, live):
    """Let flow f go on with tangent x, and take it out of what competes."""
    stopped[f] = True
    tangent[f] = x
    for h in range(flow_ptr[f], flow_ptr[f + 1]):
        b, m = hop_at[h], hop_use[h] * weight[f]
        carried[b] += m * x
        live[b] -= 1
        # Exactly 0 at the end, whatever was rounded on the way.
        growing[b] = growing[b] - m if live[b] > 0 else 0.0


@jit
def share_of(l, way, link_ptr, link_bundle, link_use, carried, growing):
    """Return the tangent of the fair share of a link, or what is left where no flow grows."""
    left, weight = way[l], 0.0
    for k in range(link_ptr[l], link_ptr[l + 1]):
        left -= link_use[k] * carried[link_bundle[k]]
        weight += link_use[k] * growing[link_bundle[k]]
    return left / weight if weight > 0.0 else left


@jit
def one_sided(
    way, at_cap, weight, group_of, flow_order, group_flow, link_order, group_link,
    flow_ptr, hop_at, hop_use, back_ptr, back_flow, link_ptr, link_bundle, link_use, n_bundles,
):  # fmt: skip
    """Return (tangents of the levels, flows for which none was found).

    Args:
        way: (links,), tangents of the capacities.
        at_cap: (flows,), which have reached their cap; caps stay.
        weight: (flows,).
        group_of: (flows,).
        flow_order: (flows,), by group.
        group_flow: (groups + 1,), where each group starts in `flow_order`.
        link_order: Full links, by the group of their top.
        group_link: (groups + 1,), where each group starts in `link_order`.
        flow_ptr: (flows + 1,).
        hop_at: (hops,), bundles.
        hop_use: (hops,).
        back_ptr: (bundles + 1,).
        back_flow: (hops,), flows of each bundle, by group.
        link_ptr: (links + 1,).
        link_bundle: (parts,).
        link_use: (parts,).
        n_bundles: Number of bundles.
    """
    tangent = np.zeros(len(weight))
    stopped = np.zeros(len(weight), np.bool_)
    carried, growing = np.zeros(n_bundles), np.zeros(n_bundles)
    live = np.zeros(n_bundles, np.int64)
    cursor = back_ptr[:-1].copy()
    keys, ids = np.empty(len(link_order)), np.empty(len(link_order), np.int32)
    lost = 0
    for g in range(len(group_flow) - 1):
        moves = False
        for i in range(group_link[g], group_link[g + 1]):
            # Nothing grows between groups, so this is what is left of the tangent.
            left = share_of(link_order[i], way, link_ptr, link_bundle, link_use, carried, growing)
            moves |= left != 0.0
        if not moves:
            continue
        waiting = 0  # flows at their cap
        for j in range(group_flow[g], group_flow[g + 1]):
            f = flow_order[j]
            waiting += at_cap[f]
            for h in range(flow_ptr[f], flow_ptr[f + 1]):
                growing[hop_at[h]] += hop_use[h] * weight[f]
                live[hop_at[h]] += 1
        n = 0
        for i in range(group_link[g], group_link[g + 1]):
            l = link_order[i]
            ids[n] = l
            keys[n] = share_of(l, way, link_ptr, link_bundle, link_use, carried, growing)
            n += 1
        heapify(keys, ids, n)
        open_ = group_flow[g + 1] - group_flow[g]
        while open_ > 0 and (n > 0 or waiting > 0):
            if waiting > 0 and (n == 0 or keys[0] >= 0.0):
                for j in range(group_flow[g], group_flow[g + 1]):
                    f = flow_order[j]
                    if at_cap[f] and not stopped[f]:
                        stop(
                            f, 0.0, weight, tangent, stopped, flow_ptr, hop_at, hop_use,
                            carried, growing, live,
                        )  # fmt: skip
                        open_ -= 1
                waiting = 0
                continue
            l, old = ids[0], keys[0]
            alive = 0
            for k in range(link_ptr[l], link_ptr[l + 1]):
                alive += live[link_bundle[k]]
            key = np.inf
            if alive > 0:
                key = share_of(l, way, link_ptr, link_bundle, link_use, carried, growing)
                # Shares only grow while flows stop: a key that did goes back.
                keys[0] = max(key, old)
                sift_down(keys, ids, n, 0)
                if ids[0] != l or (waiting > 0 and key > 0.0):
                    continue
            n -= 1
            keys[0], ids[0] = keys[n], ids[n]
            sift_down(keys, ids, n, 0)
            if alive == 0:
                continue
            for k in range(link_ptr[l], link_ptr[l + 1]):
                b = link_bundle[k]
                if live[b] == 0:
                    continue
                c = cursor[b]
                while group_of[back_flow[c]] < g:
                    c += 1
                cursor[b] = c
                while c < back_ptr[b + 1] and group_of[back_flow[c]] == g:
                    f = back_flow[c]
                    c += 1
                    if not stopped[f]:
                        stop(
                            f, key, weight, tangent, stopped, flow_ptr, hop_at, hop_use,
                            carried, growing, live,
                        )  # fmt: skip
                        open_ -= 1
        lost += open_
    return tangent, lost


@jit
def moves(
    tangent, weight, group_of, flow_ptr, hop_at, hop_use, link_ptr, link_bundle, link_use, n_bundles
):  # fmt: skip
    """Return (load, size, rise) per link.

    `load` is the tangent of the load, `size` the sum of the absolute values of its terms, and
    `rise` the largest tangent among the flows of the highest group.
    """
    load_, size_ = np.zeros(n_bundles), np.zeros(n_bundles)
    rise_, group_ = np.full(n_bundles, -np.inf), np.full(n_bundles, -1, np.int32)
    for f in range(len(tangent)):
        for h in range(flow_ptr[f], flow_ptr[f + 1]):
            b, x = hop_at[h], hop_use[h] * weight[f] * tangent[f]
            load_[b] += x
            size_[b] += abs(x)
            if group_of[f] > group_[b]:
                group_[b], rise_[b] = group_of[f], tangent[f]
            elif group_of[f] == group_[b]:
                rise_[b] = max(rise_[b], tangent[f])
    n_links = len(link_ptr) - 1
    load, size, rise = np.zeros(n_links), np.zeros(n_links), np.full(n_links, -np.inf)
    for l in range(n_links):
        highest = -1
        for k in range(link_ptr[l], link_ptr[l + 1]):
            b = link_bundle[k]
            load[l] += link_use[k] * load_[b]
            size[l] += link_use[k] * size_[b]
            if group_[b] > highest:
                highest, rise[l] = group_[b], rise_[b]
            elif group_[b] == highest:
                rise[l] = max(rise[l], rise_[b])
    return load, size, rise


@jit
def tightened(
    reach, level, tangent, group_of, capped, held, link_group, link_level, rise, slack,
    flow_ptr, hop_at, link_ptr, link_bundle, n_bundles,
):  # fmt: skip
    """Return a step, at most `reach`, up to which every flow keeps a bottleneck, from one look.

    A flow keeps its bottleneck while, on some link that stops it, no flow from a lower group has
    risen above it. What is above at `reach` gives the step at which it drew level, which is less;
    call again until the step stays: that one is exact.

    Args:
        reach: A step, too large.
        level: (flows,).
        tangent: (flows,).
        group_of: (flows,).
        capped: (flows,), which stay at their cap.
        held: (links,), which are full and stay so.
        link_group: (links,), of their top.
        link_level: (links,).
        rise: (links,), the tangent of their level.
        slack: Tangents this near are the same.
        flow_ptr: (flows + 1,).
        hop_at: (hops,), bundles.
        link_ptr: (links + 1,).
        link_bundle: (parts,).
        n_bundles: Number of bundles.
    """
    n_flows, n_links = len(level), len(link_ptr) - 1
    above = np.full(n_bundles, -1, np.int32)  # the flow that is highest at `reach`
    height = np.full(n_bundles, -np.inf)
    for f in range(n_flows):
        x = level[f] + reach * tangent[f]
        for h in range(flow_ptr[f], flow_ptr[f + 1]):
            if x > height[hop_at[h]]:
                height[hop_at[h]], above[hop_at[h]] = x, f
    # Per bundle: of the links that stop flows there the lowest, and how far the best of them goes.
    lowest = np.full(n_bundles, 2**30, np.int32)
    slope, far = np.full(n_bundles, np.inf), np.full(n_bundles, -np.inf)
    for l in range(n_links):
        if not held[l]:
            continue
        top = -1
        for k in range(link_ptr[l], link_ptr[l + 1]):
            b = link_bundle[k]
            if above[b] >= 0 and (top < 0 or height[b] > height[top]):
                top = b
        goes = np.inf
        f = above[top]
        if group_of[f] < link_group[l] and tangent[f] > rise[l]:
            level_at = (link_level[l] - level[f]) / (tangent[f] - rise[l])
            if level_at < reach:
                goes = level_at
        for k in range(link_ptr[l], link_ptr[l + 1]):
            b = link_bundle[k]
            if link_group[l] < lowest[b] or (
                link_group[l] == lowest[b] and rise[l] < slope[b] - slack
            ):
                lowest[b], slope[b], far[b] = link_group[l], rise[l], goes
            elif link_group[l] == lowest[b] and rise[l] <= slope[b] + slack:
                far[b] = max(far[b], goes)
    for f in range(n_flows):
        if capped[f]:
            continue
        steepest, goes = np.inf, np.inf
        for h in range(flow_ptr[f], flow_ptr[f + 1]):
            b = hop_at[h]
            if lowest[b] != group_of[f]:
                continue
            if slope[b] < steepest - slack:
                steepest, goes = slope[b], far[b]
            elif slope[b] <= steepest + slack:
                goes = max(goes, far[b])
        reach = min(reach, goes)
    return reach
