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
def share_of(state, row):
    """Return the fair share of a link: what is left of its capacity over its live weight."""
    left = state[row, 0] + state[row, 1]
    weight = state[row, 2] + state[row, 3]
    if left <= 0.0:
        return 0.0
    return left / weight if weight > 0.0 else np.inf


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
    capacity, flow_ptr, hop_link, hop_use, link_ptr, link_flow, weight, cap_level, cap_order, trial
):
    """Return (level, bottleneck, rounds) of one-level routes.

    Args:
        capacity: (links,).
        flow_ptr: (flows + 1,); `hop_link`, `hop_use`: (hops,), uses above 0.
        hop_link: See `flow_ptr`.
        hop_use: See `flow_ptr`.
        link_ptr: (links + 1,); `link_flow`: (hops,), the transpose.
        link_flow: See `link_ptr`.
        weight: (flows,).
        cap_level: (flows,), cap over weight.
        cap_order: flows with a finite cap, by rising cap level.
        trial: Whether to start with local-minimum rounds, kept up while at least half of the live
            flows freeze in each.
    """
    n_links, n_flows = len(capacity), len(weight)
    level = np.full(n_flows, np.inf)
    bottleneck = np.full(n_flows, -1, np.int32)
    state = np.zeros((n_links, 4))
    live = np.zeros(n_links, np.int32)
    for l in range(n_links):
        state[l, 0] = capacity[l]
    for f in range(n_flows):
        w = weight[f]
        for h in range(flow_ptr[f], flow_ptr[f + 1]):
            subtract(state, hop_link[h], 2, -hop_use[h] * w)
            live[hop_link[h]] += 1
    rounds = 0
    if trial:
        rounds = local_rounds(
            flow_ptr, hop_link, hop_use, weight, cap_level, level, bottleneck, state, live
        )

    keys = np.empty(n_links)
    ids = np.empty(n_links, np.int32)
    n = 0
    for l in range(n_links):
        if live[l] > 0:
            keys[n], ids[n] = share_of(state, l), l
            n += 1
    heapify(keys, ids, n)
    next_cap = 0
    while n > 0:
        l = ids[0]
        if live[l] == 0:
            n = drop_top(keys, ids, n)
            continue
        share = share_of(state, l)
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
                flow_ptr, hop_link, hop_use, weight, level, bottleneck, state, live,
            )  # fmt: skip
            continue
        for k in range(link_ptr[l], link_ptr[l + 1]):
            f = link_flow[k]
            if level[f] == np.inf:
                freeze(
                    f, share, l,
                    flow_ptr, hop_link, hop_use, weight, level, bottleneck, state, live,
                )  # fmt: skip
        n = drop_top(keys, ids, n)
    settle_caps(cap_order, cap_level, level)
    return level, bottleneck, rounds


@jit
def settle_caps(cap_order, cap_level, level):
    """Give flows that cross nothing their cap."""
    for f in cap_order:
        if level[f] == np.inf:
            level[f] = cap_level[f]


@jit
def local_rounds(flow_ptr, hop_link, hop_use, weight, cap_level, level, bottleneck, state, live):
    """Freeze every link whose share is the smallest of all flows on it, while that pays.

    Returns the number of rounds. Comparisons are exact: the smallest share of a flow is a copy of
    one of its links' shares, so at least the global minimum freezes in every round.
    """
    n_flows, n_links = len(weight), len(live)
    share = np.full(n_links, np.inf)
    least = np.empty(n_links)
    wish = np.empty(n_flows)
    active = np.flatnonzero(live > 0).astype(np.int32)
    flows = np.arange(n_flows).astype(np.int32)
    stopping = np.empty(n_flows, np.int32)
    rounds = 0
    while len(flows) > 0:
        rounds += 1
        for l in active:
            share[l] = share_of(state, l)
            least[l] = np.inf
        for f in flows:
            m = cap_level[f]
            for h in range(flow_ptr[f], flow_ptr[f + 1]):
                m = min(m, share[hop_link[h]])
            wish[f] = m
            for h in range(flow_ptr[f], flow_ptr[f + 1]):
                l = hop_link[h]
                if m < least[l]:
                    least[l] = m
        n = 0
        kept = 0
        for f in flows:
            stop = wish[f] == cap_level[f]
            bottleneck[f] = -1
            if not stop:
                for h in range(flow_ptr[f], flow_ptr[f + 1]):
                    l = hop_link[h]
                    if share[l] <= least[l]:
                        stop = True
                        bottleneck[f] = l
                        break
            if stop:
                stopping[n] = f
                n += 1
            else:
                flows[kept] = f
                kept += 1
        for i in range(n):
            f = stopping[i]
            freeze(
                f, wish[f], bottleneck[f],
                flow_ptr, hop_link, hop_use, weight, level, bottleneck, state, live,
            )  # fmt: skip
        if 2 * n < n + kept:
            break
        flows = flows[:kept]
        k = 0
        for l in active:
            if live[l] > 0:
                active[k] = l
                k += 1
        active = active[:k]
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
