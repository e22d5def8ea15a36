"""Compiled routing by weights: splits of a switch towards a target, and hashes by weight.

A *group* is the weights of a node's links towards a target, as the record `Groups` of
`fabric.routing` holds them; where a node has none it splits as spray does. A flow that meets a
group goes on node by node, from the farthest, so that the groups ahead are met one by one; what
lies between goes by the shared distributions of spray.
"""
# Numba infers the types of kernels, and the run-time checker of the tests must not wrap them.
# pyright: reportMissingParameterType=false

import numpy as np
from numba import njit

from fabric.kernels._paths import COUNT, START, UNTIL, find_usable, mix, pop, push, usable_first
from fabric.kernels._spray import (
    STUCK_AT,
    STUCK_TO,
    enter,
    first_bundle,
    last_bundle,
    stage_bundle,
    walk_sprayed,
)

_FAR = 0x7FFFFFFF
_GOLD = np.uint64(0x9E3779B97F4A7C15)
_R11 = np.uint64(11)


@njit(cache=True, nogil=True)
def walk_grouped(g, u, d, book, groups, at, stop, first, last, dist, chunk, uses, length):
    """Walk flows `at` to `stop`; as `walk_sprayed`, but hops have uses and nodes may have groups.

    Where it returns at the flow that it began with, and `book` needs nothing, `chunk` is too
    small for that flow.
    """
    used = 0
    while at < stop:
        target = d.target[at]
        if groups.first[target] == groups.first[target + 1]:
            end = at + 1
            while end < stop and d.target[end] == target:
                end += 1
            reached, n = walk_sprayed(
                g, u, d, book, at, end, first, last, dist, chunk[used:], length
            )
            uses[used : used + n] = 1.0
            used += n
            if reached < end:
                return reached, used
            at = end
            continue
        _point(g, groups, target, True)
        full = False
        while not full and at < stop and d.target[at] == target:
            n = _walk_one(g, u, d, book, groups, at, first, last, dist, chunk, uses, used)
            full = n == -1
            if not full:
                length[d.order[at]] = n if n >= 0 else -1
                used += max(n, 0)
                at += 1
        _point(g, groups, target, False)
        if full:
            return at, used
    return at, used


@njit(cache=True, nogil=True)
def _point(g, groups, target, on):
    """Let nodes point to their groups towards a target, or no longer."""
    for group in range(groups.first[target], groups.first[target + 1]):
        groups.at[groups.node[group]] = group if on else -1


@njit(cache=True, nogil=True)
def _walk_one(g, u, d, book, groups, at, first, last, dist, chunk, uses, used):
    """Return the hops of a flow, written from `used` on; -1: no room, -2: there is no way."""
    s, end, target = d.src[at], d.dst[at], d.target[at]
    host, goal = d.target_host[target], np.int64(d.target_node[target])
    line, sink, after = dist[target - first], len(g.out_ptr) - 1, book.next
    pool, heap, begun = groups.pool, groups.heap, used
    size, bundle = 0, np.int64(-1)
    v = np.int64(g.forward_of[s])
    if v >= 0:
        if line[v] < 0:
            return -2
        size = _add(pool, heap, size, line, v, 1.0)
    elif groups.at[sink + 1 + s] >= 0:
        n = usable_first(g.first_ptr, g.first_to, g.first_cost, u.first, s, host, line)
        if n == 0:
            return -2
        for i in range(n):
            k = u.first[i]
            book.stage_link[i] = g.first_link[k]
            book.stage_to[i] = sink if g.first_to[k] < 0 else g.first_to[k]
        bundle, n = _group_bundle(book, groups, sink + 1 + s, len(g.forward_of), n)
        if bundle == -1:
            _note_stuck(book, s, target)
            return -1
        if used == len(chunk):
            return -1
        chunk[used], uses[used] = bundle, 1.0
        used += 1
        for i in range(n):
            size = _add(pool, heap, size, line, book.stage_to[i], book.stage_use[i])
    else:
        bundle = first_bundle(g, u, book, s, target, host, line)
        if bundle < 0 or used == len(chunk):
            return min(bundle, -1)
        chunk[used], uses[used] = bundle, 1.0
        used += 1
        size, used = _follow(
            g, u, book, groups, after[bundle], 1.0, target, first, last, host, line, goal,
            chunk, uses, used, size,
        )  # fmt: skip
    while size > 0 and used >= 0:
        v = heap[0] & _FAR
        size = pop(heap, size)
        x = pool[v]
        pool[v] = 0.0
        if v == goal:
            continue
        if groups.at[v] < 0:
            size, used = _follow(
                g, u, book, groups, v, x, target, first, last, host, line, goal,
                chunk, uses, used, size,
            )  # fmt: skip
            continue
        if u.state[v, UNTIL] <= target - first:
            find_usable(g, u, v, target - first, host, line)
        n, k = np.int64(u.state[v, COUNT]), np.int64(u.state[v, START])
        for i in range(n):
            book.stage_link[i], book.stage_to[i] = u.hop[k + i, 0], u.hop[k + i, 1]
        bundle, n = _group_bundle(book, groups, v, len(g.forward_of), n)
        if bundle == -1:
            _note_stuck(book, g.node_of[v], target)
        if bundle == -1 or used == len(chunk):
            used = -1
            continue
        chunk[used], uses[used] = bundle, x
        used += 1
        for i in range(n):
            size = _add(pool, heap, size, line, book.stage_to[i], x * book.stage_use[i])
    if used >= 0 and host < 0 and g.forward_of[end] < 0:
        bundle = last_bundle(g, book, end, target, sink)
        if bundle == -1 or used == len(chunk):
            used = -1
        else:
            chunk[used], uses[used] = bundle, 1.0
            used += 1
    for i in range(size):  # given up half-way
        pool[heap[i] & _FAR] = 0.0
    return used - begun if used >= 0 else -1


@njit(cache=True, nogil=True)
def _note_stuck(book, node, target):
    if not book.need.any():
        book.stuck[STUCK_AT], book.stuck[STUCK_TO] = node, target


@njit(cache=True, nogil=True)
def _follow(
    g, u, book, groups, state, x, target, first, last, host, line, goal, chunk, uses, used, size
):
    """Take share x of a flow on from a distribution, until it is at one node or meets a group."""
    begun = state
    while state != goal:
        a, b = book.share_ptr[state], book.share_ptr[state + 1]
        meets = b == a + 1 and state != begun
        for i in range(a, b):
            meets |= groups.at[book.share_node[i]] >= 0
        if meets:
            for i in range(a, b):
                share = x * book.share[i]
                size = _add(groups.pool, groups.heap, size, line, book.share_node[i], share)
            return size, used
        bundle = np.int64(book.seen_bundle[state])
        if book.seen_until[state] <= target:
            bundle = stage_bundle(g, u, book, state, target, first, last, host, line)
        if bundle == -1 or used == len(chunk):
            return size, -1
        chunk[used], uses[used] = bundle, x
        used += 1
        state = np.int64(book.next[bundle])
    return size, used


@njit(cache=True, nogil=True)
def _group_bundle(book, groups, v, nodes, n):
    """Return the bundle of n staged links by the weights of v's group, and how many have weight."""
    group = groups.at[v]
    begin, end = groups.begin[group], groups.begin[group + 1]
    link, to, use = book.stage_link, book.stage_to, book.stage_use
    kept, total, k = 0, 0.0, begin
    for i in range(n):
        for _ in range(begin, end):
            if groups.link[k] == link[i]:
                break
            k = k + 1 if k + 1 < end else begin
        if groups.link[k] == link[i] and groups.weight[k] > 0.0:
            link[kept], to[kept], use[kept] = link[i], to[i], groups.weight[k]
            total += groups.weight[k]
            kept += 1
    if kept == 0:
        return np.int64(-1), 0
    seal = mix(np.uint64(v))
    for i in range(kept):
        use[i] /= total
        seal = mix(seal + np.uint64(link[i])) + np.float64(use[i]).view(np.uint64)
    return enter(book, np.int64(-1 - 2 * nodes - v), mix(seal), kept, 0), kept


@njit(cache=True, nogil=True)
def _add(pool, heap, size, line, v, x):
    """Add x to what stands at node v, farthest nodes first in the heap."""
    if pool[v] == 0.0:
        size = push(heap, size, ((_FAR - np.int64(line[v])) << 31) | v)
    pool[v] += x
    return size


@njit(cache=True, nogil=True)
def scatter_uses(order, at, stop, ptr, chunk, uses, hop_flow, hop_bundle, hop_use):
    """Copy the walked flows `at` to `stop` to their place in the order of the flows."""
    used = 0
    for i in range(at, stop):
        flow = order[i]
        for k in range(ptr[flow], ptr[flow + 1]):
            hop_flow[k], hop_bundle[k], hop_use[k] = flow, chunk[used], uses[used]
            used += 1


@njit(cache=True, nogil=True)
def walk_drawn(
    g, u, d, weight, groups, at, stop, pairs, first, dist, seed, chunk, length, ways, stuck
):
    """Walk rows `at` to `stop`, each by a hash in proportion to weight at every switch.

    Like `walk_hashed` of `fabric.kernels._paths`, by `weight` of links (none: 1 each), or that of
    `groups` where a node has one. `ways` is room for the links of any source or destination;
    `stuck` is filled with node and target where no usable link has a weight; then it stops.
    """
    order, src, dst, forward_of = d.order, d.src, d.dst, g.forward_of
    used, sink, pointed = 0, len(g.out_ptr) - 1, np.int64(-1)
    while at < stop and used + sink + 3 <= len(chunk):
        i = at // pairs
        row = np.int64(order[i]) * pairs + at % pairs
        s, end, target = src[i], dst[i], np.int64(d.target[i])
        t, host, goal = target - first, d.target_host[target], d.target_node[target]
        line = dist[t]
        if target != pointed:
            if pointed >= 0:
                _point(g, groups, pointed, False)
            _point(g, groups, target, True)
            pointed = target
        key = mix(seed + np.uint64(row + 1) * _GOLD)
        begun, reached = used, True
        v = np.int64(forward_of[s])
        k = np.int64(0)
        if v < 0:
            n = usable_first(g.first_ptr, g.first_to, g.first_cost, u.first, s, host, line)
            for j in range(n):
                e = u.first[j]
                ways[j, 0] = g.first_link[e]
                ways[j, 1] = sink if g.first_to[e] < 0 else g.first_to[e]
            reached = n > 0
            if reached:
                k = _draw(groups, weight, sink + 1 + s, ways[:n], key, s)
                if k >= 0:
                    chunk[used] = ways[k, 0]
                    used += 1
                    v = ways[k, 1]
                else:
                    stuck[STUCK_AT] = s
        else:
            reached = line[v] >= 0
        while reached and k >= 0 and v != goal:
            if u.state[v, UNTIL] <= t:
                find_usable(g, u, v, t, host, line)
            n, a = np.int64(u.state[v, COUNT]), np.int64(u.state[v, START])
            k = _draw(groups, weight, v, u.hop[a : a + n], key, g.node_of[v])
            if k >= 0:
                chunk[used] = u.hop[a + k, 0]
                used += 1
                v = u.hop[a + k, 1]
            else:
                stuck[STUCK_AT] = g.node_of[v]
        if reached and k >= 0 and host < 0 and forward_of[end] < 0:
            a, n = g.last_ptr[end], g.last_ptr[end + 1] - g.last_ptr[end]
            for j in range(n):
                ways[j, 0], ways[j, 1] = g.last_link[a + j], sink
            k = _draw(groups, weight, np.int64(-1), ways[:n], key, g.node_of[v])
            if k >= 0:
                chunk[used] = ways[k, 0]
                used += 1
            else:
                stuck[STUCK_AT] = g.node_of[v]
        if k < 0:
            stuck[STUCK_TO] = target
            break
        length[row] = used - begun if reached else -1
        at += 1
    if pointed >= 0:
        _point(g, groups, pointed, False)
    return at, used


@njit(cache=True, nogil=True)
def _draw(groups, weight, v, ways, key, name):
    """Return which of the ways a hash takes, in proportion to weight; -1 where none has any."""
    group = groups.at[v] if v >= 0 else -1
    total = 0.0
    for j in range(len(ways)):
        total += _weight_of(groups, weight, group, ways[j, 0])
    if total == 0.0:
        return np.int64(-1)
    spot = np.float64(mix(key + mix(np.uint64(name + 1) * _GOLD)) >> _R11) * 2.0**-53 * total
    taken = np.int64(-1)
    for j in range(len(ways)):
        w = _weight_of(groups, weight, group, ways[j, 0])
        if w > 0.0 and spot >= 0.0:
            taken = j
        spot -= w
    return taken


@njit(cache=True, nogil=True)
def _weight_of(groups, weight, group, link):
    if group >= 0:
        for k in range(groups.begin[group], groups.begin[group + 1]):
            if groups.link[k] == link:
                return groups.weight[k]
        return 0.0
    return weight[link] if len(weight) else 1.0
