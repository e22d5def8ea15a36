# numba infers the types of compiled kernels.
# pyright: reportMissingParameterType=false
"""Compiled water-filling on the CPU: local-minimum rounds, then a heap; and a heap over bundles.

Levels and shares: flow f grows as `w_f t`; link l is full when `sum_f M_lf t_f = c_l` with
`M_lf = use_lf w_f`. Its fair share is `(c_l - frozen load) / live weight`. Shares only grow while
flows freeze, which is what makes the lazy keys of both heaps right.

Frozen load and live weight shrink by subtraction, so each is kept as an unevaluated sum of two
floats (two-sum): what is left after 500 subtractions is then as exact as the first.
"""

import numba
import numpy as np

from fabric.kernels._layout import smallest

jit = numba.njit(cache=True, nogil=True)
# A share that grew by less than this is the same share; larger growth goes back into the heap.
SAME = 1.0 + 8 * np.finfo(np.float64).eps


@jit
def subtract(state, row, at, y):
    """Subtract y from the two-float number `state[row, at] + state[row, at + 1]`."""
    x = state[row, at]
    s = x - y
    v = s - x
    state[row, at] = s
    state[row, at + 1] += (x - (s - v)) - (y + v)


@jit
def take(state, row, y):
    """Subtract y from the two-float number of a row that is no smaller than y: half the work."""
    x = state[row, 0]
    s = x - y
    state[row, 0] = s
    state[row, 1] += (x - s) - y


@jit
def sift_down(keys, ids, n, i):
    """Restore the heap order below position i."""
    key, item = keys[i], ids[i]
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[i], ids[i] = keys[child], ids[child]
        i = child
    keys[i], ids[i] = key, item


@jit
def heapify(keys, ids, n):
    """Make a heap of the first n entries."""
    for i in range(n // 2 - 1, -1, -1):
        sift_down(keys, ids, n, i)


@jit
def drop_top(keys, ids, n):
    """Remove the smallest entry and return the new size."""
    n -= 1
    keys[0], ids[0] = keys[n], ids[n]
    sift_down(keys, ids, n, 0)
    return n


@jit
def freeze(f, t, link, flow_ptr, hop_at, hop_use, weight, level, bottleneck, state, live):
    """Stop flow f at level t and take it out of everything it crosses."""
    level[f] = t
    bottleneck[f] = link
    w = weight[f]
    for h in range(flow_ptr[f], flow_ptr[f + 1]):
        at = hop_at[h]
        m = hop_use[h] * w
        subtract(state, at, 0, m * t)
        subtract(state, at, 2, m)
        live[at] -= 1


@jit
def fill_links(
    capacity, cap_level, flow_ptr, flow_end, hop_at, hop_use, weight, back_ptr, back_flow,
    n_shared, trial,
):  # fmt: skip
    """Return (level, bottleneck, rounds) of one-level routes.

    Where `hop_use` and `weight` are None every use and weight is 1.

    Args:
        capacity: (links,). The first `n_shared` may have several flows, the others have one.
        cap_level: (flows,), cap over weight.
        flow_ptr: (flows + 1,). Hops of flow f on shared links run from `flow_ptr[f]` to
            `flow_end[f]`; one on a link of its own may follow.
        flow_end: (flows,).
        hop_at: (hops,), links.
        hop_use: (hops,) above 0, or None.
        weight: (flows,), or None.
        back_ptr: (links + 1,); `back_flow`: (hops,), the transpose.
        back_flow: See `back_ptr`.
        n_shared: Number of shared links.
        trial: Whether to start with local-minimum rounds, kept up while at least half of the live
            flows freeze in each.
    """
    n_flows = len(cap_level)
    level = np.full(n_flows, np.inf)
    bottleneck = np.full(n_flows, -1, np.int32)
    own = cap_level.copy()
    for f in range(n_flows):
        h = flow_end[f]
        if h < flow_ptr[f + 1]:
            own[f] = min(own[f], capacity[hop_at[h]] / grows(hop_use, weight, h, f))
    live = np.empty(n_shared, np.int32)
    left = np.empty((n_shared, 2))
    for l in range(n_shared):
        live[l] = back_ptr[l + 1] - back_ptr[l]
        left[l, 0], left[l, 1] = capacity[l], 0.0
    growing = live_weights(n_shared, flow_ptr, flow_end, hop_at, hop_use, weight)
    hops = (flow_ptr, flow_end, hop_at, hop_use, weight)
    state = (left, growing, live)
    rounds = 0
    if trial:
        rounds = local_rounds(hops, back_ptr, back_flow, own, level, bottleneck, state)
    rounds += fill_by_heap(capacity, hops, back_ptr, back_flow, own, level, bottleneck, state)
    for f in range(n_flows):
        if bottleneck[f] < 0 and level[f] < cap_level[f]:
            bottleneck[f] = hop_at[flow_end[f]]
    return level, bottleneck, rounds


@jit
def fill_scenarios(
    start, stop, capacities, member_ptr, member_link, cap_levels, flow_ptr, flow_end, hop_at,
    hop_use, weights, back_ptr, back_flow, n_shared, trial, levels, stoppers, rounds,
):  # fmt: skip
    """Fill scenarios `start` to `stop` one after another; see `fill_links`.

    Args:
        start: First scenario.
        stop: One past the last.
        capacities: (scenarios, links of the network).
        member_ptr: (classes + 1,), see `_layout.smallest`.
        member_link: (used links,).
        cap_levels: (scenarios or 1, flows).
        flow_ptr: See `fill_links`, as the next three and the four after `weights`.
        flow_end: See `flow_ptr`.
        hop_at: See `flow_ptr`.
        hop_use: See `flow_ptr`.
        weights: (scenarios or 1, flows), or None.
        back_ptr: See `flow_ptr`.
        back_flow: See `flow_ptr`.
        n_shared: See `flow_ptr`.
        trial: See `flow_ptr`.
        levels: (scenarios, flows), written.
        stoppers: (scenarios, flows), written: the link that stopped each flow, or -1.
        rounds: (scenarios,), written.
    """
    for s in range(start, stop):
        least, class_link = smallest(capacities[s], member_ptr, member_link)
        levels[s], stopper, rounds[s] = fill_links(
            least, cap_levels[s % len(cap_levels)], flow_ptr, flow_end, hop_at, hop_use,
            row(weights, s), back_ptr, back_flow, n_shared, trial,
        )  # fmt: skip
        for f in range(len(stopper)):
            stoppers[s, f] = class_link[stopper[f]] if stopper[f] >= 0 else -1


@jit
def row(values, s):
    """Return the row of scenario s, where one row may serve all of them."""
    if values is None:
        return None
    return values[s % len(values)]


@jit
def grows(hop_use, weight, h, f):
    """Return what hop h of flow f adds to the load of its link per unit of level."""
    if weight is None:
        return 1.0
    return hop_use[h] * weight[f]


@jit
def live_weights(n_links, flow_ptr, flow_end, hop_at, hop_use, weight):
    """Return the live weight of every link, None where it is the number of live flows."""
    if weight is None:
        return None
    growing = np.zeros((n_links, 2))
    for f in range(len(weight)):
        for h in range(flow_ptr[f], flow_end[f]):
            subtract(growing, hop_at[h], 0, -hop_use[h] * weight[f])
    return growing


@jit
def shrink(growing, l, m):
    """Take m out of the live weight of link l, where that is kept."""
    if growing is not None:
        take(growing, l, m)


@jit
def fair_share(left, growing, live, l):
    """Return the fair share of a link: what is left of its capacity over its live weight."""
    rest = left[l, 0] + left[l, 1]
    if rest <= 0.0:
        return 0.0
    if growing is None:
        return rest / live[l] if live[l] > 0 else np.inf
    weight = growing[l, 0] + growing[l, 1]
    return rest / weight if weight > 0.0 else np.inf


@jit
def freeze_hops(f, t, hops, state):
    """Take flow f, stopped at level t, out of the shared links it crosses.

    What is left of a link without live flows is never read.
    """
    flow_ptr, flow_end, hop_at, hop_use, weight = hops
    left, growing, live = state
    for h in range(flow_ptr[f], flow_end[f]):
        l = hop_at[h]
        live[l] -= 1
        m = grows(hop_use, weight, h, f)
        take(left, l, m * t)
        shrink(growing, l, m)


@jit
def local_rounds(hops, back_ptr, back_flow, own, level, bottleneck, state):
    """Freeze every link whose share is the smallest of all flows on it, while that pays.

    Returns the number of rounds. Comparisons are exact: the smallest share of a flow is a copy of
    one of its links' shares, so at least the global minimum freezes in every round.
    """
    flow_ptr, flow_end, hop_at, _, _ = hops
    left, growing, live = state
    n_flows, n_links = len(level), len(live)
    share = np.empty(n_links)
    wish = np.empty(n_flows)  # infinite once frozen in an earlier round
    active = np.arange(n_links).astype(np.int32)
    flows = np.arange(n_flows).astype(np.int32)
    n_active, n_left, rounds = n_links, n_flows, 0
    while n_left > 0:
        rounds += 1
        kept = 0
        for i in range(n_active):
            l = active[i]
            if live[l] > 0:
                share[l] = fair_share(left, growing, live, l)
                active[kept] = l
                kept += 1
        n_active = kept
        kept, stopped = 0, 0
        for i in range(n_left):
            f = flows[i]
            if level[f] < np.inf:
                wish[f] = np.inf
                continue
            m = own[f]
            for h in range(flow_ptr[f], flow_end[f]):
                m = min(m, share[hop_at[h]])
            wish[f] = m
            if m == np.inf:
                continue
            flows[kept] = f
            kept += 1
            if m == own[f]:
                # Shares of this round stand, and the wish keeps others from passing it by.
                level[f] = m
                freeze_hops(f, m, hops, state)
                stopped += 1
        n_left = kept
        for i in range(n_active):
            l = active[i]
            s = share[l]
            first = True
            for k in range(back_ptr[l], back_ptr[l + 1]):
                if wish[back_flow[k]] < s:
                    first = False
                    break
            if not first:
                continue
            live[l] = 0  # what is left of it is of no interest any more
            for k in range(back_ptr[l], back_ptr[l + 1]):
                f = back_flow[k]
                if level[f] == np.inf:
                    level[f] = s
                    bottleneck[f] = l
                    freeze_hops(f, s, hops, state)
                    stopped += 1
        if stopped == n_left or 2 * stopped < n_left:
            break
    return rounds


@jit
def fill_by_heap(capacity, hops, back_ptr, back_flow, own, level, bottleneck, state):
    """Freeze one link at a time, the one of the smallest share, and return how many."""
    flow_ptr, flow_end, hop_at, hop_use, weight = hops
    left, growing, live = state
    n_links, n_flows = len(live), len(level)
    keys = np.empty(n_links)
    ids = np.empty(n_links, np.int32)
    n = 0
    for l in range(n_links):
        if live[l] > 0:
            keys[n], ids[n] = fair_share(left, growing, live, l), l
            n += 1
    heapify(keys, ids, n)
    # A flow alone on a link of its own cannot rise above it: higher caps never count.
    n_caps = 0
    for f in range(n_flows):
        n_caps += level[f] == np.inf and own[f] < np.inf
    caps = np.empty(n_caps)
    capped = np.empty(n_caps, np.int32)
    n_caps = 0
    if len(caps) > 0:
        for f in range(n_flows):
            if level[f] < np.inf or own[f] == np.inf:
                continue
            highest = np.inf
            for h in range(flow_ptr[f], flow_end[f]):
                highest = min(highest, capacity[hop_at[h]] / grows(hop_use, weight, h, f))
            if flow_ptr[f] == flow_end[f]:
                level[f] = own[f]
            elif own[f] < highest:
                caps[n_caps], capped[n_caps] = own[f], f
                n_caps += 1
        heapify(caps, capped, n_caps)
    rounds = 0
    while n > 0:
        l = ids[0]
        if live[l] <= 0:
            n = drop_top(keys, ids, n)
            continue
        share = fair_share(left, growing, live, l)
        if share > keys[0] * SAME:
            keys[0] = share
            sift_down(keys, ids, n, 0)
            continue
        while n_caps > 0 and level[capped[0]] < np.inf:
            n_caps = drop_top(caps, capped, n_caps)
        rounds += 1
        if n_caps > 0 and caps[0] <= share:
            f = capped[0]
            level[f] = caps[0]
            freeze_hops(f, caps[0], hops, state)
            continue
        live[l] = 0
        for k in range(back_ptr[l], back_ptr[l + 1]):
            f = back_flow[k]
            if level[f] == np.inf:
                level[f] = share
                bottleneck[f] = l
                freeze_hops(f, share, hops, state)
        n = drop_top(keys, ids, n)
    return rounds


@jit
def bundled_share(l, capacity, link_ptr, link_bundle, link_use, state, live):
    """Return the fair share of a link from the loads and weights of its bundles."""
    left, low, weight = capacity[l], 0.0, 0.0
    for k in range(link_ptr[l], link_ptr[l + 1]):
        b, p = link_bundle[k], link_use[k]
        if live[b] > 0:
            weight += p * (state[b, 2] + state[b, 3])
        y = -p * (state[b, 0] + state[b, 1])  # the frozen load of a bundle is kept negated
        s = left - y
        v = s - left
        low += (left - (s - v)) - (y + v)
        left = s
    left += low
    if weight <= 0.0:
        return np.inf
    return left / weight if left > 0.0 else 0.0


@jit
def settle_caps(cap_order, cap_level, level):
    """Give flows that cross nothing their cap."""
    for f in cap_order:
        if level[f] == np.inf:
            level[f] = cap_level[f]


@jit
def fill_bundles(
    capacity, flow_ptr, hop_bundle, hop_use, bundle_ptr, bundle_flow,
    link_ptr, link_bundle, link_use, weight, cap_level, cap_order,
):  # fmt: skip
    """Return (level, bottleneck, rounds) of two-level routes.

    A frozen flow touches its few bundles only. The share of a link is worked out from its bundles
    when the link comes to the top of the heap, so a wide bundle costs nothing until then.

    Args:
        capacity: (links,).
        flow_ptr: (flows + 1,); `hop_bundle`, `hop_use`: (hops,), uses above 0.
        hop_bundle: See `flow_ptr`.
        hop_use: See `flow_ptr`.
        bundle_ptr: (bundles + 1,); `bundle_flow`: (hops,), the transpose.
        bundle_flow: See `bundle_ptr`.
        link_ptr: (links + 1,); `link_bundle`, `link_use`: (parts,), uses above 0.
        link_bundle: See `link_ptr`.
        link_use: See `link_ptr`.
        weight: (flows,).
        cap_level: (flows,), cap over weight.
        cap_order: flows with a finite cap, by rising cap level.
    """
    n_links, n_flows, n_bundles = len(capacity), len(weight), len(bundle_ptr) - 1
    level = np.full(n_flows, np.inf)
    bottleneck = np.full(n_flows, -1, np.int32)
    state = np.zeros((n_bundles, 4))
    live = np.zeros(n_bundles, np.int32)
    for f in range(n_flows):
        w = weight[f]
        for h in range(flow_ptr[f], flow_ptr[f + 1]):
            subtract(state, hop_bundle[h], 2, -hop_use[h] * w)
            live[hop_bundle[h]] += 1

    keys = np.empty(n_links)
    ids = np.empty(n_links, np.int32)
    n = 0
    for l in range(n_links):
        share = bundled_share(l, capacity, link_ptr, link_bundle, link_use, state, live)
        if share < np.inf:
            keys[n], ids[n] = share, l
            n += 1
    heapify(keys, ids, n)
    next_cap = 0
    rounds = 0
    while n > 0:
        l = ids[0]
        share = bundled_share(l, capacity, link_ptr, link_bundle, link_use, state, live)
        if share == np.inf:
            n = drop_top(keys, ids, n)
            continue
        if share > keys[0] * SAME:
            keys[0] = share
            sift_down(keys, ids, n, 0)
            continue
        while next_cap < len(cap_order) and level[cap_order[next_cap]] < np.inf:
            next_cap += 1
        rounds += 1
        if next_cap < len(cap_order) and cap_level[cap_order[next_cap]] <= share:
            f = cap_order[next_cap]
            freeze(
                f, cap_level[f], -1,
                flow_ptr, hop_bundle, hop_use, weight, level, bottleneck, state, live,
            )  # fmt: skip
            continue
        for k in range(link_ptr[l], link_ptr[l + 1]):
            b = link_bundle[k]
            if live[b] == 0:
                continue
            for j in range(bundle_ptr[b], bundle_ptr[b + 1]):
                f = bundle_flow[j]
                if level[f] == np.inf:
                    freeze(
                        f, share, l,
                        flow_ptr, hop_bundle, hop_use, weight, level, bottleneck, state, live,
                    )  # fmt: skip
        n = drop_top(keys, ids, n)
    settle_caps(cap_order, cap_level, level)
    return level, bottleneck, rounds
