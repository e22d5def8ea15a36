"""Compiled shortest-path kernels: distances to blocks of targets, usable cables, hashed walks.

Distances are target-major, `dist[t, v]` for forwarding node v, -1 where t cannot be reached; the
last column is the sink, the destination host itself, at distance 0. The records that kernels take
are `Graph` and `Usable` of `fabric.routing`.
"""
# Numba infers the types of kernels, and the run-time checker of the tests must not wrap them.
# pyright: reportMissingParameterType=false

import numpy as np
from numba import njit

WORDS = 8  # 64-bit words per node: one bit for each of the 512 targets of a block
UNTIL, COUNT, START, NAME = 0, 1, 2, 3  # columns of `Usable.state`

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_ONE, _ZERO, _TOP = np.uint64(1), np.uint64(0), np.uint64(63)
GOLD = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_R30, _R27, _R31, _R32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_DEBRUIJN, _R58 = np.uint64(0x03F79D71B4CB0A89), np.uint64(58)
_BIT = np.zeros(64, np.int64)
for _i in range(64):
    _BIT[((int(_DEBRUIJN) << _i) & 0xFFFFFFFFFFFFFFFF) >> 58] = _i


@njit(cache=True, nogil=True)
def mix(x):
    """Return the splitmix64 hash of a 64-bit word."""
    x = (x ^ (x >> _R30)) * _M1
    x = (x ^ (x >> _R27)) * _M2
    return x ^ (x >> _R31)


@njit(cache=True, nogil=True)
def pick(x, n):
    """Return a number from 0 to n - 1 from a hash: multiply, then shift; bias below n / 2**32."""
    return np.int64(((x >> _R32) * np.uint64(n)) >> _R32)


@njit(cache=True, nogil=True)
def group_by(keys, n):
    """Return (ptr, order): entries of key i are `order[ptr[i]:ptr[i + 1]]`, in their old order."""
    ptr = np.zeros(n + 1, np.int64)
    for key in keys:
        ptr[key + 1] += 1
    for i in range(n):
        ptr[i + 1] += ptr[i]
    at = ptr[:-1].copy()
    order = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        order[at[keys[i]]] = i
        at[keys[i]] += 1
    return ptr, order


@njit(cache=True, nogil=True)
def level_distances(g, n_targets, seed_target, seed_node, seed_cost, costs, dist, change):
    """Fill `dist` and `change` for one block of targets by a bit-parallel pull, level by level.

    Bit t of `change[v]` is set where v may use other cables towards target t than towards t - 1.

    Args:
        g: `Graph`.
        n_targets: In this block.
        seed_target: (seeds,), the target in this block that a distance starts for.
        seed_node: (seeds,), the node where it starts.
        seed_cost: (seeds,), the distance it starts with, rising.
        costs: The distinct routing costs between forwarding nodes.
        dist: (targets, nodes + 1), filled.
        change: (nodes, WORDS), filled.
    """
    n = len(g.out_ptr) - 1
    slots = costs.max() + 1  # what was reached at the last `slots` levels is remembered
    reached = np.zeros((slots, n, WORDS), np.uint64)
    busy = np.zeros(slots, np.bool_)
    seen = np.zeros((n, WORDS), np.uint64)
    new, differs = np.zeros((2, WORDS), np.uint64)
    whole = np.zeros(WORDS, np.uint64)
    for t in range(n_targets):
        whole[t >> 6] |= _ONE << np.uint64(t & 63)
    dist[:, :n] = -1
    dist[:, n] = 0
    change[:] = 0
    level, idle, seed = 0, 0, 0
    while idle < slots or seed < len(seed_node):
        slot = level % slots
        if busy[slot]:
            reached[slot] = 0
            busy[slot] = False
        due = seed < len(seed_node) and seed_cost[seed] == level
        for cost in costs:
            due = due or (cost <= level and busy[(level - cost) % slots])
        idle += 1
        while due and seed < len(seed_node) and seed_cost[seed] == level:
            t, v = seed_target[seed], seed_node[seed]
            bit = _ONE << np.uint64(t & 63)
            if not seen[v, t >> 6] & bit:
                reached[slot, v, t >> 6] |= bit
            # The cables to a host belong to its own target only.
            change[v, t >> 6] |= bit
            if t + 1 < n_targets:
                change[v, (t + 1) >> 6] |= _ONE << np.uint64((t + 1) & 63)
            seed += 1
        for v in range(n if due else 0):
            full = True
            for j in range(WORDS):
                full = full and seen[v, j] == whole[j]
                new[j] = reached[slot, v, j]
            if full:
                continue
            for k in range(g.out_ptr[v], g.out_ptr[v + 1]):
                cost, w = g.out_cost[k], g.out_to[k]
                if cost <= level:
                    for j in range(WORDS):
                        new[j] |= reached[(level - cost) % slots, w, j]
            some = False
            for j in range(WORDS):
                new[j] &= ~seen[v, j]
                some = some or new[j] != _ZERO
                differs[j] = 0
            if not some:
                continue
            for k in range(g.out_ptr[v], g.out_ptr[v + 1]):
                cost, w = g.out_cost[k], g.out_to[k]
                if cost <= level:
                    carry = _ZERO
                    for j in range(WORDS):
                        used = reached[(level - cost) % slots, w, j] & new[j]
                        differs[j] |= used ^ ((used << _ONE) | carry)
                        carry = used >> _TOP
            for j in range(WORDS):
                # A target that is reached at another level than the one before differs as well.
                change[v, j] |= differs[j] & new[j]
                reached[slot, v, j] = new[j]
                seen[v, j] |= new[j]
                bits = new[j]
                while bits:
                    low = bits & (~bits + _ONE)
                    dist[j * 64 + _BIT[(low * _DEBRUIJN) >> _R58], v] = level
                    bits ^= low
            busy[slot] = True
            idle = 0
        level += 1


@njit(cache=True, nogil=True)
def heap_distances(in_ptr, in_from, in_cost, n_targets, seed_target, seed_node, seed_cost, dist):
    """Fill `dist` for one block of targets by Dijkstra's search, and return whether it overflowed.

    For routing costs too far apart for levels. Links are given by their receiving node.
    """
    n = len(in_ptr) - 1
    ptr, order = group_by(seed_target, n_targets)
    heap = np.empty(len(in_from) + len(seed_node) + 1, np.int64)
    far = np.empty(n, np.int64)
    for t in range(n_targets):
        far[:] = -1
        size = 0
        for k in order[ptr[t] : ptr[t + 1]]:
            v = seed_node[k]
            if far[v] < 0 or seed_cost[k] < far[v]:
                far[v] = seed_cost[k]
                size = push(heap, size, (far[v] << 31) | v)
        while size:
            top = heap[0]
            size = pop(heap, size)
            v = top & 0x7FFFFFFF
            if top >> 31 != far[v]:
                continue
            for k in range(in_ptr[v], in_ptr[v + 1]):
                reach, w = far[v] + in_cost[k], in_from[k]
                if reach > 0x7FFFFFFF:
                    return True
                if far[w] < 0 or reach < far[w]:
                    far[w] = reach
                    size = push(heap, size, (reach << 31) | w)
        dist[t, :n] = far
        dist[t, n] = 0
    return False


@njit(cache=True, nogil=True)
def push(heap, size, key):
    """Put a key into a heap of `size` keys, least first, and return its new size."""
    at = size
    while at and heap[(at - 1) >> 1] > key:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = key
    return size + 1


@njit(cache=True, nogil=True)
def pop(heap, size):
    """Take the least key out of a heap of `size` keys, and return its new size."""
    size -= 1
    key, at = heap[size], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = key
    return size


@njit(cache=True, nogil=True)
def next_change(bits, t, stop):
    """Return the first bit after t that is set in a row of words, `stop` where there is none."""
    after = (t + 1) & 63
    for j in range((t + 1) >> 6, len(bits)):
        word = bits[j] & (_ALL << np.uint64(after))
        after = 0
        if word:
            low = word & (~word + _ONE)
            return min(stop, j * 64 + _BIT[(low * _DEBRUIJN) >> _R58])
    return stop


@njit(cache=True, nogil=True)
def find_usable(g, u, v, t, host, line):
    """Put the usable cables of node v towards target t into `u`, and until which target they hold.

    `line` is `dist[t]`; `host` is the destination where the target is a host, else -1.
    """
    link, to, cost = g.out_link, g.out_to, g.out_cost
    hop, state, sink = u.hop, u.state, len(g.out_ptr) - 1
    begun = np.int64(state[v, START])
    at, here, seal = begun, line[v], _ZERO
    for k in range(g.out_ptr[v], g.out_ptr[v + 1]):
        w = to[k]
        if line[w] >= 0 and line[w] + cost[k] == here:
            hop[at, 0], hop[at, 1] = link[k], w
            at += 1
    if host >= 0:
        for k in range(g.last_ptr[host], g.last_ptr[host + 1]):
            if g.last_from[k] == v and g.last_cost[k] == here:
                hop[at, 0], hop[at, 1] = g.last_link[k], sink
                at += 1
    for k in range(begun, at):
        seal = mix(seal + np.uint64(hop[k, 0]) + _ONE)
    u.seal[v] = seal
    state[v, COUNT] = at - begun
    state[v, UNTIL] = next_change(u.change[v], t, WORDS * 64)


@njit(cache=True, nogil=True)
def usable_first(ptr, to, cost, found, s, host, line):
    """Put the usable links of source host s, by position in its rows, into `found`; count them."""
    count, best = 0, np.int64(0)
    for k in range(ptr[s], ptr[s + 1]):
        w = to[k]
        if w < 0:
            if ~w != host:  # a direct link, but to another host
                continue
            reach = np.int64(cost[k])
        elif line[w] < 0:
            continue
        else:
            reach = np.int64(cost[k]) + line[w]
        if count and reach > best:
            continue
        if reach < best:
            count = 0
        best = reach
        found[count] = k
        count += 1
    return count


@njit(cache=True, nogil=True)
def walk_hashed(g, u, d, at, stop, pairs, first, dist, seed, ends, salted, chunk, length):
    """Walk rows `at` to `stop` hop by hop; return where it stopped and how much of `chunk` it used.

    Rows are flows sorted by target, times queue pairs: row i is queue pair `i % pairs` of flow
    `d.order[i // pairs]`.

    Args:
        g: `Graph`.
        u: `Usable`, fresh for this block.
        d: `Demand`.
        at: First row to walk.
        stop: One past the last row.
        pairs: Queue pairs per flow.
        first: Number of the block's first target.
        dist: Of the block.
        seed: uint64.
        ends: Whether rows are hashed by their ends and queue pair, rather than by their number.
        salted: Whether every node hashes with a salt of its own.
        chunk: Links are written here, row after row, until the next row might not fit.
        length: (rows,) in the order of the flows, filled with hop counts; -1 where the
            destination cannot be reached.
    """
    state, hop, last_ptr, last_link, forward_of = (
        u.state, u.hop, g.last_ptr, g.last_link, g.forward_of
    )  # fmt: skip
    order, src, dst, target_of = d.order, d.src, d.dst, d.target
    used, sink = 0, len(g.out_ptr) - 1
    while at < stop and used + sink + 2 <= len(chunk):
        i = at // pairs
        row = np.int64(order[i]) * pairs + at % pairs
        s, end, target = src[i], dst[i], target_of[i]
        t, host, goal = target - first, d.target_host[target], d.target_node[target]
        line = dist[t]
        key = row_key(seed, row, at % pairs, s, end, ends)
        begun = used
        v = forward_of[s]
        reached = True
        if v < 0:
            n = usable_first(g.first_ptr, g.first_to, g.first_cost, u.first, s, host, line)
            reached = n > 0
            if reached:
                k = u.first[pick(_hash(key, s, salted), n)]
                chunk[used] = g.first_link[k]
                used += 1
                v = sink if g.first_to[k] < 0 else g.first_to[k]
        else:
            reached = line[v] >= 0
        while reached and v != goal:
            if state[v, UNTIL] <= t:
                find_usable(g, u, v, t, host, line)
            n = state[v, COUNT]
            k = np.int64(state[v, START])
            if n > 1:
                k += pick(_hash(key, state[v, NAME], salted), n)
            chunk[used] = hop[k, 0]
            used += 1
            v = hop[k, 1]
        if reached and host < 0 and forward_of[end] < 0:
            k = last_ptr[end]
            n = last_ptr[end + 1] - k
            if n > 1:
                k += pick(_hash(key, state[v, NAME], salted), n)
            chunk[used] = last_link[k]
            used += 1
        length[row] = used - begun if reached else -1
        at += 1
    return at, used


@njit(cache=True, nogil=True)
def row_key(seed, row, pair, s, end, ends):
    """Return the hash of a row: of its number, or of its ends and the number of its queue pair."""
    if not ends:
        return mix(seed + np.uint64(row + 1) * GOLD)
    key = mix(mix(seed + np.uint64(s + 1) * GOLD) + np.uint64(end + 1) * GOLD)
    return mix(key + np.uint64(pair + 1) * GOLD)


@njit(cache=True, nogil=True)
def _hash(key, node, salted):
    return mix(key + mix(np.uint64(node + 1) * GOLD)) if salted else mix(key)


@njit(cache=True, nogil=True)
def scatter_rows(order, pairs, at, stop, ptr, chunk, hop_flow, hop_bundle):
    """Copy the walked rows `at` to `stop` from `chunk` to their place in the order of the flows."""
    used = 0
    for i in range(at, stop):
        row = np.int64(order[i // pairs]) * pairs + i % pairs
        for k in range(ptr[row], ptr[row + 1]):
            hop_flow[k] = row
            hop_bundle[k] = chunk[used]
            used += 1
