"""Compiled walks beside the hop-by-hop hash: one of all paths, axis by axis, subpaths merged.

`Count` of `fabric.routing` holds the number of shortest paths from every node to the target that
`stamp` names. The other records are those of `fabric.kernels._paths`.
"""
# Numba infers the types of kernels, and the run-time checker of the tests must not wrap them.
# pyright: reportMissingParameterType=false

import numpy as np
from numba import njit

from fabric.kernels._paths import (
    COUNT,
    GOLD,
    START,
    UNTIL,
    find_usable,
    mix,
    pick,
    row_key,
    usable_first,
)
from fabric.kernels._spray import snap

_R11, _BELOW_ONE = np.uint64(11), 1.0 - 2.0**-53


@njit(cache=True, nogil=True)
def walk_counted(g, u, d, c, at, stop, pairs, first, dist, seed, ends, chunk, length):
    """Walk rows as `walk_hashed` does, but every one along one of all its shortest paths.

    A row's hash is a place between 0 and 1 among its paths in a fixed order. At every node its
    usable cables divide what is left in proportion to the paths behind them.

    Args:
        g: `Graph`.
        u: `Usable`, fresh for this block.
        d: `Demand`.
        c: `Count`.
        at: First row to walk.
        stop: One past the last row.
        pairs: Queue pairs per flow.
        first: Number of the block's first target.
        dist: Of the block.
        seed: uint64.
        ends: As in `walk_hashed`.
        chunk: As in `walk_hashed`.
        length: As in `walk_hashed`.
    """
    state, hop, first_to, paths, stamp = u.state, u.hop, g.first_to, c.paths, c.stamp
    forward_of, last_ptr = g.forward_of, g.last_ptr
    used, sink = 0, len(g.out_ptr) - 1
    while at < stop and used + sink + 2 <= len(chunk):
        i = at // pairs
        row = np.int64(d.order[i]) * pairs + at % pairs
        s, end, target = d.src[i], d.dst[i], d.target[i]
        t, host, goal = target - first, d.target_host[target], np.int64(d.target_node[target])
        line = dist[t]
        key = row_key(seed, row, at % pairs, s, end, ends)
        x = np.float64(mix(key) >> _R11) * 2.0**-53
        begun = used
        if stamp[goal] != target:
            stamp[goal] = target
            paths[goal] = 1.0
        v = np.int64(forward_of[s])
        if v < 0:
            n = usable_first(g.first_ptr, first_to, g.first_cost, u.first, s, host, line)
            total = 0.0
            for k in u.first[:n]:
                w = sink if first_to[k] < 0 else np.int64(first_to[k])
                if stamp[w] != target:
                    _count(g, u, c, w, t, target, host, line)
                total += paths[w]
            x *= total
            for k in u.first[:n]:
                v = sink if first_to[k] < 0 else np.int64(first_to[k])
                chunk[used] = g.first_link[k]
                if x < paths[v]:
                    break
                x -= paths[v]
            if n:
                x = min(x / paths[v], _BELOW_ONE)
                used += 1
        elif line[v] < 0:
            v = np.int64(-1)
        elif stamp[v] != target:
            _count(g, u, c, v, t, target, host, line)
        reached = v >= 0
        while reached and v != goal:
            # Counting went through all nodes ahead, so their usable cables are known too.
            x *= paths[v]
            k = np.int64(state[v, START])
            last = k + state[v, COUNT] - 1
            while k < last and x >= paths[hop[k, 1]]:
                x -= paths[hop[k, 1]]
                k += 1
            chunk[used] = hop[k, 0]
            used += 1
            v = np.int64(hop[k, 1])
            x = min(x / paths[v], _BELOW_ONE)
        if reached and host < 0 and forward_of[end] < 0:
            k = last_ptr[end]
            n = last_ptr[end + 1] - k
            chunk[used] = g.last_link[k + min(n - 1, np.int64(x * n))]
            used += 1
        length[row] = used - begun if reached else -1
        at += 1
    return at, used


@njit(cache=True, nogil=True)
def _count(g, u, c, v, t, target, host, line):
    """Count the shortest paths from node v, and from the nodes on the way, in depth first."""
    state, hop, paths, stamp, at, stack = u.state, u.hop, c.paths, c.stamp, c.at, c.stack
    size = 1
    stack[0], paths[v], at[v] = v, 0.0, -1
    while size:
        v = stack[size - 1]
        if at[v] < 0:
            if state[v, UNTIL] <= t:
                find_usable(g, u, v, t, host, line)
            at[v] = state[v, START]
        k, end, total = at[v], np.int64(state[v, START]) + state[v, COUNT], paths[v]
        while k < end and stamp[hop[k, 1]] == target:
            total += paths[hop[k, 1]]
            k += 1
        at[v], paths[v] = k, total
        if k < end:
            w = np.int64(hop[k, 1])
            stack[size], paths[w], at[w] = w, 0.0, -1
            size += 1
        else:
            stamp[v] = target
            size -= 1


@njit(cache=True, nogil=True)
def draws(seed, keys, n):
    """Return a number from 0 to n[i] - 1 for every key, by a hash."""
    drawn = np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        drawn[i] = pick(mix(seed + np.uint64(keys[i] + 1) * GOLD), n[i])
    return drawn


@njit(cache=True, nogil=True)
def merge_rows(group_ptr, row_ptr, row_link, link, use, width):
    """Merge the rows of each group into one, and return how many entries were written.

    Args:
        group_ptr: (groups + 1,), the rows of each group.
        row_ptr: (rows + 1,), the links of each row.
        row_link: (hops,).
        link: (hops,), filled with the links of each group, each once.
        use: (hops,), filled with the share of the group's rows that cross the link.
        width: (groups,), filled with the number of links of each group.
    """
    place = np.zeros(1 if len(row_link) == 0 else row_link.max() + 1, np.int64)
    used = 0
    for group in range(len(group_ptr) - 1):
        begun, n = used, group_ptr[group + 1] - group_ptr[group]
        for i in range(row_ptr[group_ptr[group]], row_ptr[group_ptr[group + 1]]):
            at = place[row_link[i]]
            if not begun <= at < used or link[at] != row_link[i]:
                at = place[row_link[i]] = used
                link[at], use[at] = row_link[i], 0.0
                used += 1
            use[at] += 1.0
        for i in range(begun, used):
            use[i] /= n
        width[group] = used - begun
    return used


@njit(cache=True, nogil=True)
def snapped(values):
    """Return values without the rounding noise that `snap` removes."""
    for i in range(len(values)):
        values[i] = snap(values[i])
    return values


@njit(cache=True, nogil=True)
def walk_axes(s, m, src, dst, halves, ptr, fill, hop_link, hop_use):
    """Walk flows axis by axis; count their hops into `ptr`, or write them where it says.

    Args:
        s: `Sites`.
        m: `Moves`.
        src: (flows,), site that each flow starts from; -1: none.
        dst: (flows,), site that it leads to; -1: none.
        halves: Whether both ways round are taken half and half where they are equally long.
        ptr: (flows + 1,). Counting: `ptr[i + 1]` is set to the hops of flow i, -1 where a cable
            on its path is missing. Writing: hops of flow i go to `ptr[i]` and after.
        fill: Whether to write.
        hop_link: Written.
        hop_use: Written.
    """
    n_slots = m.slot[-1]
    for i in range(len(src)):
        at, used, whole = src[i], 0, src[i] >= 0 and dst[i] >= 0
        whole = whole and s.part[src[i]] == s.part[dst[i]]
        for axis in range(len(m.slot) - 1 if whole else 0):
            here, there = s.place[at, axis], s.place[dst[i], axis]
            if here == there or not whole:
                continue
            size, stride = s.size[s.part[at], axis], s.stride[s.part[at], axis]
            ahead = (there - here) % size
            # Steps up, steps down, and the share that goes up.
            up, down, share = ahead, np.int64(0), 1.0
            if m.meshed[axis]:
                up = np.int64(1)
            elif not s.closed[s.part[at], axis]:
                up, down = max(there - here, 0), max(here - there, 0)
                share = 1.0 if up else 0.0
            elif 2 * ahead > size:
                up, down, share = np.int64(0), size - ahead, 0.0
            elif 2 * ahead == size and halves and size > 2:
                down, share = ahead, 0.5
            line = s.key[at] - here * stride
            for step in range(up + down):
                rising = step < up
                x = here + step if rising else here - (step - up)
                slot = m.slot[axis]
                slot += there if m.meshed[axis] else (0 if rising else 1)
                site = s.at[line + x % size * stride]
                k = site * n_slots + slot
                n = m.ptr[k + 1] - m.ptr[k] if site >= 0 else 0
                whole = whole and n > 0
                for j in range(n if fill else 0):
                    to = ptr[i] + used + j
                    hop_link[to] = m.link[m.ptr[k] + j]
                    hop_use[to] = (share if rising else 1.0 - share) / n
                used += n
            at = s.at[line + there * stride]
            whole = whole and at >= 0
        if not fill:
            ptr[i + 1] = used if whole else -1
