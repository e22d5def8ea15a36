"""Compiled spray: splits at every switch, equal or by weight, kept once for all that share them.

A *distribution* is the share of a flow that stands at each of some nodes. Towards a target, the
nodes farthest from it split their shares over their usable cables: that split is a *bundle*, and
it leads to the next distribution. Both are kept by content: a hash finds a candidate, and the
content itself decides. Distribution v is "all at forwarding node v"; the sink comes after them.

The record `Book` of `fabric.routing` holds bundles and distributions. Kernels never grow it: they
write what they need into `book.need`, and stop.
"""
# Numba infers the types of kernels, and the run-time checker of the tests must not wrap them.
# pyright: reportMissingParameterType=false

import numpy as np
from numba import njit

from fabric.kernels._paths import COUNT, START, UNTIL, find_usable, mix, next_change, usable_first

_LARGEST = 1 << 20  # denominator of a fraction that rounding noise is removed from
_NOISE = 2.0**-49

BUNDLES, PARTS, DISTRIBUTIONS, SHARES = 0, 1, 2, 3  # positions in `book.size` and `book.need`
STUCK_AT, STUCK_TO = 0, 1  # positions in `book.stuck`


@njit(cache=True, nogil=True)
def snap(x):
    """Return the fraction p / q nearest to x, if one with a small q is within rounding noise.

    Symmetric links then carry bit-equal fractions, and shares that were split and came together
    again are recognised, whatever the order of the sums. Two such fractions are farther apart
    than the noise.
    """
    y, p, q, p_old, q_old = x, 1.0, 0.0, 0.0, 1.0
    for _ in range(24):
        whole = np.floor(y)
        p, p_old = whole * p + p_old, p
        q, q_old = whole * q + q_old, q
        if q > _LARGEST:
            return x
        if abs(p / q - x) <= _NOISE * x:
            return p / q
        y = 1.0 / (y - whole)
    return x


@njit(cache=True, nogil=True)
def insert(table, key, entry):
    """Put an entry into an open hash table at the first free place from its key."""
    mask = len(table) - 1
    i = np.int64(key) & mask
    while table[i] >= 0:
        i = (i + 1) & mask
    table[i] = entry


@njit(cache=True, nogil=True)
def refill(table, keys, count):
    """Put entries 0 to `count` - 1 into an empty hash table."""
    for entry in range(count):
        insert(table, keys[entry], entry)


@njit(cache=True, nogil=True)
def walk_sprayed(g, u, d, book, at, stop, first, last, dist, chunk, length):
    """Walk flows `at` to `stop` stage by stage; return where it stopped and how much it wrote.

    It stops early when `chunk` might not hold the next flow, when `book` is too small: then
    `book.need` is not 0; or when no usable link of a node has a weight: then `book.stuck` says so.

    Args:
        g: `Graph`.
        u: `Usable`, fresh for this block.
        d: `Demand`, with the flows sorted by target.
        book: `Book`.
        at: First flow to walk.
        stop: One past the last.
        first: Number of the block's first target.
        last: One past the block's last target.
        dist: Of the block.
        chunk: Bundles are written here, flow after flow.
        length: (flows,) in the order of the flows, filled with stage counts; -1 where the
            destination cannot be reached.
    """
    until, seen, after = book.seen_until, book.seen_bundle, book.next
    first_of, last_of, forward_of = book.first_of, book.last_of, g.forward_of
    order, src, dst, target_of = d.order, d.src, d.dst, d.target
    used, sink = 0, len(g.out_ptr) - 1
    while at < stop and used + sink + 3 <= len(chunk):
        s, end, target = src[at], dst[at], target_of[at]
        host, goal = d.target_host[target], d.target_node[target]
        line = dist[target - first]
        begun = used
        state = np.int64(forward_of[s])
        if state < 0:
            bundle = np.int64(first_of[s])
            if bundle < 0 or (after[bundle] != sink and line[after[bundle]] < 0):
                bundle = first_bundle(g, u, book, s, target, host, line)
            if bundle == -1:
                return at, used
            if bundle >= 0:
                chunk[used] = bundle
                used += 1
                state = np.int64(after[bundle])
        elif line[state] < 0:
            state = np.int64(-1)
        if state < 0:
            length[order[at]] = -1
            at += 1
            continue
        while state != goal:
            bundle = np.int64(seen[state])
            if until[state] <= target:
                bundle = stage_bundle(g, u, book, state, target, first, last, host, line)
                if bundle == -1:
                    return at, begun
            chunk[used] = bundle
            used += 1
            state = np.int64(after[bundle])
        if host < 0 and forward_of[end] < 0:
            bundle = np.int64(last_of[end])
            if bundle < 0:
                bundle = last_bundle(g, book, end, target, sink)
                if bundle == -1:
                    return at, begun
            chunk[used] = bundle
            used += 1
        length[order[at]] = used - begun
        at += 1
    return at, used


@njit(cache=True, nogil=True)
def first_bundle(g, u, book, s, target, host, line):
    """Return the bundle out of source host s; -1: no room, -2: there is no way."""
    n = usable_first(g.first_ptr, g.first_to, g.first_cost, u.first, s, host, line)
    if n == 0:
        return -2
    only = g.first_ptr[s + 1] - g.first_ptr[s] == 1 and g.first_to[g.first_ptr[s]] >= 0
    seal = np.uint64(s)
    for i in range(n):
        k = u.first[i]
        book.stage_link[i] = g.first_link[k]
        book.stage_to[i] = len(g.out_ptr) - 1 if g.first_to[k] < 0 else g.first_to[k]
        book.stage_use[i] = 1.0 / n
        seal = mix(seal + np.uint64(g.first_link[k]))
    if len(book.weight):
        n = weigh(book, 0, n, 1.0, s, target)
        if n == 0:
            return -1
    bundle = enter(book, np.int64(-1 - s), seal, n, n)
    if only and bundle >= 0:
        book.first_of[s] = bundle
    return bundle


@njit(cache=True, nogil=True)
def last_bundle(g, book, end, target, sink):
    """Return the bundle from the target switch to host `end`; -1: no room."""
    begun, n = g.last_ptr[end], g.last_ptr[end + 1] - g.last_ptr[end]
    for i in range(n):
        book.stage_link[i] = g.last_link[begun + i]
        book.stage_to[i] = sink
        book.stage_use[i] = 1.0 / n
    if len(book.weight):
        n = weigh(book, 0, n, 1.0, g.node_of[g.last_from[begun]], target)
        if n == 0:
            return -1
    origin = np.int64(-1 - len(g.forward_of) - end)
    bundle = enter(book, origin, mix(np.uint64(g.last_link[begun])), n, n)
    if bundle >= 0:
        book.last_of[end] = bundle
    return bundle


@njit(cache=True, nogil=True)
def stage_bundle(g, u, book, state, target, first, last, host, line):
    """Return the bundle that distribution `state` takes towards a target; -1: no room."""
    share_node, share_of = book.share_node, book.share
    begun, end = book.share_ptr[state], book.share_ptr[state + 1]
    change = book.change[state]
    if book.seen_block[state] != first:
        change[:] = u.change[share_node[begun]]
        for i in range(begun + 1, end):
            for j in range(len(change)):
                change[j] |= u.change[share_node[i], j]
    farthest = 0
    for i in range(begun, end):
        farthest = max(farthest, line[share_node[i]])
    link, to, use = book.stage_link, book.stage_to, book.stage_use
    nodes, hop = u.state, u.hop
    seal, count, share, split, part = mix(np.uint64(state)), 0, 0.0, 0, 0.0
    for i in range(begun, end):
        v = share_node[i]
        if line[v] != farthest:
            continue
        if nodes[v, UNTIL] <= target - first:
            find_usable(g, u, v, target - first, host, line)
        n = np.int64(nodes[v, COUNT])
        if share_of[i] != share or n != split:
            share, split = share_of[i], n
            part = snap(share / split)
        at = np.int64(nodes[v, START])
        for k in range(at, at + n):
            link[count], to[count], use[count] = hop[k, 0], hop[k, 1], part
            count += 1
        if len(book.weight):
            before = count - n
            count = weigh(book, before, count, share, g.node_of[v], target)
            if count == before:
                return -1
        seal = mix(seal + u.seal[v])
    held = count
    for i in range(begun, end):
        if line[share_node[i]] != farthest:
            to[held], use[held] = share_node[i], share_of[i]
            held += 1
    bundle = enter(book, state, seal, count, held)
    if bundle >= 0:
        book.seen_until[state] = first + next_change(change, target - first, last - first)
        book.seen_block[state] = first
        book.seen_bundle[state] = bundle
    return bundle


@njit(cache=True, nogil=True)
def weigh(book, begun, end, share, node, target):
    """Share out over staged links from `begun` by weight; return where those with any end."""
    link, to, use, weight = book.stage_link, book.stage_to, book.stage_use, book.weight
    total = 0.0
    for i in range(begun, end):
        total += weight[link[i]]
    kept = begun
    for i in range(begun, end):
        w = weight[link[i]]
        if w > 0.0:
            link[kept], to[kept], use[kept] = link[i], to[i], snap(share * w / total)
            kept += 1
    if kept == begun:
        book.stuck[STUCK_AT], book.stuck[STUCK_TO] = node, target
    return kept


@njit(cache=True, nogil=True)
def enter(book, origin, seal, n, held):
    """Return the bundle of the n staged links from `origin`, made where there is none; -1: no room.

    Staged entries from n to `held` are shares that stay where they are. With `held` 0 the bundle
    leads to no distribution.
    """
    table, part_link, link = book.bundle_table, book.part_link, book.stage_link
    part_use, use = book.part_use, book.stage_use
    mask = len(table) - 1
    i = np.int64(seal) & mask
    while table[i] >= 0:
        bundle = np.int64(table[i])
        at = book.part_ptr[bundle]
        if (
            book.bundle_seal[bundle] == seal
            and book.origin[bundle] == origin
            and book.part_ptr[bundle + 1] - at == n
        ):
            k = 0
            while k < n and part_link[at + k] == link[k] and part_use[at + k] == use[k]:
                k += 1
            if k == n:
                return bundle
        i = (i + 1) & mask
    size, need = book.size, book.need
    need[BUNDLES], need[PARTS] = size[BUNDLES] + 1, size[PARTS] + n
    need[DISTRIBUTIONS], need[SHARES] = size[DISTRIBUTIONS] + 1, size[SHARES] + held
    if (
        need[BUNDLES] > len(book.origin)
        or need[PARTS] > len(part_link)
        or need[DISTRIBUTIONS] > len(book.state_seal)
        or need[SHARES] > len(book.share)
    ):
        return -1
    need[:] = 0
    bundle = size[BUNDLES]
    at = size[PARTS]
    for k in range(n):
        part_link[at + k], part_use[at + k] = link[k], use[k]
    book.part_ptr[bundle + 1] = at + n
    book.origin[bundle], book.bundle_seal[bundle] = origin, seal
    book.next[bundle] = _settle(book, held) if held else -1
    table[i] = bundle
    size[BUNDLES] += 1
    size[PARTS] += n
    return bundle


@njit(cache=True, nogil=True)
def _settle(book, held):
    """Return the distribution that the staged shares add up to, made where there is none."""
    to, use, total, lost, touched = (
        book.stage_to, book.stage_use, book.sum, book.lost, book.touched
    )  # fmt: skip
    count = 0
    for j in range(held):
        w = to[j]
        if total[w] == 0.0:
            touched[count] = w
            count += 1
        # Compensated, so that equal sums differ by no more than the noise that `snap` removes.
        x = use[j] - lost[w]
        y = total[w] + x
        lost[w] = (y - total[w]) - x
        total[w] = y
    seal = np.uint64(count)
    for j in range(count):
        w = touched[j]
        total[w] = snap(total[w]) if count > 1 else 1.0
        seal += mix(mix(np.uint64(w)) + np.float64(total[w]).view(np.uint64))
    table, share_node, share = book.state_table, book.share_node, book.share
    mask = len(table) - 1
    i = np.int64(seal) & mask
    found = np.int64(-1)
    while found < 0 and table[i] >= 0:
        state = table[i]
        begun, end = book.share_ptr[state], book.share_ptr[state + 1]
        if book.state_seal[state] == seal and end - begun == count:
            k = begun
            while k < end and total[share_node[k]] == share[k]:
                k += 1
            if k == end:
                found = np.int64(state)
        i = (i + 1) & mask
    if found < 0:
        found = book.size[DISTRIBUTIONS]
        at = book.size[SHARES]
        for j in range(count):
            share_node[at + j] = touched[j]
            share[at + j] = total[touched[j]]
        book.share_ptr[found + 1] = at + count
        book.state_seal[found] = seal
        book.size[DISTRIBUTIONS] += 1
        book.size[SHARES] += count
        insert(table, seal, found)
    for j in range(count):
        total[touched[j]] = 0.0
        lost[touched[j]] = 0.0
    return found


@njit(cache=True, nogil=True)
def point_states(book, count):
    """Enter distributions 0 to `count` - 1, each with everything at one node."""
    for v in range(count):
        book.stage_to[0] = v
        book.stage_use[0] = 1.0
        _settle(book, 1)
