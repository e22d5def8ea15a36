# numba infers the types of compiled kernels.
# pyright: reportMissingParameterType=false
"""Compiled scores of many placements of one traffic: gather the way of every pair, fill, measure.

What a flow uses depends on the slots of its two ranks alone, so the ways of all pairs are worked
out once, and a placement only picks from them. Slots at one place of servers that are alike share
rows, in which the links of these servers stand by number.
"""

import numba
import numpy as np

from fabric.kernels._water_fill import fill_links

jit = numba.njit(cache=True, nogil=True)
SAME = 1.0 + 1e-12
POWER = 8
"""Of the norm of utilisations that decides between placements of equal time."""


@jit
def score_placed(
    start, stop, slots, flow_src, flow_dst, size, weight, cap, phase_ptr, kind, server, counts,
    row_ptr, row_link, row_use, capacity, limit, fluid, seconds, crowding,
):  # fmt: skip
    """Score placements `start` to `stop`.

    Args:
        start: First placement.
        stop: One past the last.
        slots: (placements, ranks), the slot of each rank.
        flow_src: (flows,), ranks; sorted by phase, like the four after it.
        flow_dst: (flows,), another rank.
        size: (flows,), bytes above 0.
        weight: (flows,).
        cap: (flows,), byte/s.
        phase_ptr: (phases + 1,); phases run one after another.
        kind: (slots,), kind of each slot.
        server: (slots,), server of each.
        counts: Kinds n, shared links, and links of each server.
        row_ptr: (2 * n**2 + 1,); what a flow from slot s to slot t uses is the row `kind[s] * n +
            kind[t]`, plus n**2 if their server is the same.
        row_link: (entries,), shared links, then links of the server of s, then of that of t.
        row_use: (entries,), above 0.
        capacity: (links,), shared ones, then those of each server.
        limit: Seconds beyond which a placement is of no interest. What load over capacity proves
            to take longer gets infinity.
        fluid: Whether the rates rise when flows are done; otherwise they stay as they began.
        seconds: (placements,), written: of all phases.
        crowding: (placements,), written: the norm of load over capacity, summed over phases.
    """
    load = np.zeros(len(capacity))
    place = np.full(len(capacity), -1, np.int32)
    for i in range(start, stop):
        least = 0.0
        crowding[i] = 0.0
        for k in range(len(phase_ptr) - 1):
            load[:] = 0.0
            for f in range(phase_ptr[k], phase_ptr[k + 1]):
                a, b = slots[i, flow_src[f]], slots[i, flow_dst[f]]
                row = _row(kind[a], kind[b], server[a] == server[b], counts)
                for h in range(row_ptr[row], row_ptr[row + 1]):
                    load[_link(row_link[h], server[a], server[b], counts)] += row_use[h] * size[f]
            most, norm = _crowding(load, capacity)
            least += most
            crowding[i] += norm
        if least > limit * SAME or least == np.inf:
            seconds[i] = np.inf
            continue
        total = 0.0
        for k in range(len(phase_ptr) - 1):
            first, last = phase_ptr[k], phase_ptr[k + 1]
            total += _phase(
                first, last, slots[i], flow_src, flow_dst, size, weight, cap, kind, server, counts,
                row_ptr, row_link, row_use, capacity, place, fluid,
            )  # fmt: skip
        seconds[i] = total


@jit
def _row(a, b, together, counts):
    """Return the row of a flow between two kinds of slots."""
    n = counts[0]
    return a * n + b + (n * n if together else 0)


@jit
def _link(code, a, b, counts):
    """Return the link of an entry of a row, for a flow from server a to server b."""
    shared, own = counts[1], counts[2]
    if code < shared:
        return code
    if code < shared + own:
        return code + a * own
    return code + (b - 1) * own


@jit
def _crowding(load, capacity):
    """Return the largest load over capacity, and a norm of all; or what no capacity carries."""
    most, lost = 0.0, 0.0
    for l in range(len(load)):
        if load[l] > 0.0:
            if capacity[l] <= 0.0:
                lost += load[l]
            else:
                most = max(most, load[l] / capacity[l])
    if lost > 0.0:
        return np.inf, lost
    if most == 0.0:
        return 0.0, 0.0
    norm = 0.0
    for l in range(len(load)):
        if load[l] > 0.0:
            norm += (load[l] / capacity[l] / most) ** POWER
    return most, most * norm ** (1.0 / POWER)


@jit
def _phase(
    first, last, slot, flow_src, flow_dst, size, weight, cap, kind, server, counts,
    row_ptr, row_link, row_use, capacity, place, fluid,
):  # fmt: skip
    """Return the seconds until the last flow of a phase is done."""
    flows = np.arange(first, last)
    left = size[first:last].copy()
    now = 0.0
    while len(flows) > 0:
        level = _levels(
            flows, slot, flow_src, flow_dst, weight, cap, kind, server, counts,
            row_ptr, row_link, row_use, capacity, place,
        )  # fmt: skip
        step, end = np.inf, 0.0
        for j in range(len(flows)):
            rate = level[j] * weight[flows[j]]
            need = left[j] / rate if rate > 0.0 else np.inf
            step, end = min(step, need), max(end, need)
        if not fluid or step == np.inf or end == np.inf:
            return now + end
        now += step
        kept = 0
        for j in range(len(flows)):
            rest = left[j] - step * level[j] * weight[flows[j]]
            if rest > 1e-12 * size[flows[j]]:
                flows[kept], left[kept] = flows[j], rest
                kept += 1
        flows, left = flows[:kept], left[:kept]
    return now


@jit
def _levels(
    flows, slot, flow_src, flow_dst, weight, cap, kind, server, counts,
    row_ptr, row_link, row_use, capacity, place,
):  # fmt: skip
    """Return the level of some flows; `place` is -1 for every link, before and after."""
    n = len(flows)
    flow_ptr = np.zeros(n + 1, np.int64)
    for j in range(n):
        a, b = slot[flow_src[flows[j]]], slot[flow_dst[flows[j]]]
        row = _row(kind[a], kind[b], server[a] == server[b], counts)
        flow_ptr[j + 1] = flow_ptr[j] + row_ptr[row + 1] - row_ptr[row]
    hops = flow_ptr[n]
    hop_at, hop_use = np.empty(hops, np.int32), np.empty(hops)
    used = np.empty(min(hops, len(capacity)), np.int32)
    n_used = 0
    cap_level, own_weight = np.empty(n), np.empty(n)
    for j in range(n):
        f = flows[j]
        own_weight[j], cap_level[j] = weight[f], cap[f] / weight[f]
        a, b = slot[flow_src[f]], slot[flow_dst[f]]
        row = _row(kind[a], kind[b], server[a] == server[b], counts)
        at = flow_ptr[j]
        for h in range(row_ptr[row], row_ptr[row + 1]):
            l = _link(row_link[h], server[a], server[b], counts)
            if place[l] < 0:
                place[l] = n_used
                used[n_used] = l
                n_used += 1
            hop_at[at], hop_use[at] = place[l], row_use[h]
            at += 1
    limits = np.empty(n_used)
    for l in range(n_used):
        limits[l] = capacity[used[l]]
        place[used[l]] = -1
    back_ptr = np.zeros(n_used + 1, np.int64)
    for h in range(hops):
        back_ptr[hop_at[h] + 1] += 1
    for l in range(n_used):
        back_ptr[l + 1] += back_ptr[l]
    put = back_ptr[:-1].copy()
    back_flow = np.empty(hops, np.int32)
    for j in range(n):
        for h in range(flow_ptr[j], flow_ptr[j + 1]):
            back_flow[put[hop_at[h]]] = j
            put[hop_at[h]] += 1
    level, _, _ = fill_links(
        limits, cap_level, flow_ptr, flow_ptr[1:], hop_at, hop_use, own_weight, back_ptr, back_flow,
        n_used, hops < 8 * n_used,
    )  # fmt: skip
    return level
