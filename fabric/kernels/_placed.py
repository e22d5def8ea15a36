# numba infers the types of compiled kernels.
# pyright: reportMissingParameterType=false
"""Compiled scores of many placements of one traffic: gather the way of every pair, fill, measure.

What a flow uses depends on the slots of its two ranks alone, so the ways of all pairs of slots are
worked out once, and a placement only picks from them.
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
    start, stop, slots, flow_src, flow_dst, size, weight, cap, phase_ptr, n_slots,
    pair_ptr, pair_link, pair_use, capacity, limit, fluid, seconds, crowding,
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
        n_slots: Slots from which a placement chooses.
        pair_ptr: (n_slots**2 + 1,); what a flow from slot s to slot t uses is the row
            `s * n_slots + t`.
        pair_link: (entries,), links.
        pair_use: (entries,), above 0.
        capacity: (links,).
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
                pair = slots[i, flow_src[f]] * n_slots + slots[i, flow_dst[f]]
                for h in range(pair_ptr[pair], pair_ptr[pair + 1]):
                    load[pair_link[h]] += pair_use[h] * size[f]
            most, norm = _crowding(load, capacity)
            least += most
            crowding[i] += norm
        if least > limit * SAME:
            seconds[i] = np.inf
            continue
        total = 0.0
        for k in range(len(phase_ptr) - 1):
            first, last = phase_ptr[k], phase_ptr[k + 1]
            total += _phase(
                first, last, slots[i], flow_src, flow_dst, size, weight, cap, n_slots,
                pair_ptr, pair_link, pair_use, capacity, place, fluid,
            )  # fmt: skip
        seconds[i] = total


@jit
def _crowding(load, capacity):
    """Return the largest load over capacity, and a norm of all."""
    most = 0.0
    for l in range(len(load)):
        if load[l] > 0.0:
            if capacity[l] <= 0.0:
                return np.inf, np.inf
            most = max(most, load[l] / capacity[l])
    if most == 0.0:
        return 0.0, 0.0
    norm = 0.0
    for l in range(len(load)):
        if load[l] > 0.0:
            norm += (load[l] / capacity[l] / most) ** POWER
    return most, most * norm ** (1.0 / POWER)


@jit
def _phase(
    first, last, slot, flow_src, flow_dst, size, weight, cap, n_slots,
    pair_ptr, pair_link, pair_use, capacity, place, fluid,
):  # fmt: skip
    """Return the seconds until the last flow of a phase is done."""
    flows = np.arange(first, last)
    left = size[first:last].copy()
    now = 0.0
    while len(flows) > 0:
        level = _levels(
            flows, slot, flow_src, flow_dst, weight, cap, n_slots,
            pair_ptr, pair_link, pair_use, capacity, place,
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
    flows, slot, flow_src, flow_dst, weight, cap, n_slots,
    pair_ptr, pair_link, pair_use, capacity, place,
):  # fmt: skip
    """Return the level of some flows; `place` is -1 for every link, before and after."""
    n = len(flows)
    flow_ptr = np.zeros(n + 1, np.int64)
    for j in range(n):
        f = flows[j]
        pair = slot[flow_src[f]] * n_slots + slot[flow_dst[f]]
        flow_ptr[j + 1] = flow_ptr[j] + pair_ptr[pair + 1] - pair_ptr[pair]
    hops = flow_ptr[n]
    hop_at, hop_use = np.empty(hops, np.int32), np.empty(hops)
    used = np.empty(min(hops, len(capacity)), np.int32)
    n_used = 0
    cap_level, own_weight = np.empty(n), np.empty(n)
    for j in range(n):
        f = flows[j]
        own_weight[j], cap_level[j] = weight[f], cap[f] / weight[f]
        pair = slot[flow_src[f]] * n_slots + slot[flow_dst[f]]
        at = flow_ptr[j]
        for h in range(pair_ptr[pair], pair_ptr[pair + 1]):
            l = pair_link[h]
            if place[l] < 0:
                place[l] = n_used
                used[n_used] = l
                n_used += 1
            hop_at[at], hop_use[at] = place[l], pair_use[h]
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
