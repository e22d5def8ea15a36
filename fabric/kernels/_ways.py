"""Compiled k shortest loop-free paths, and the loads of every pair by one pass per target.

`Arcs` of `fabric.routing` are live links by sending and by receiving node; a node may be passed
only if it forwards. `Graph` and `Usable` are those of `fabric.kernels._paths`.
"""
# Numba infers the types of kernels, and the run-time checker of the tests must not wrap them.
# pyright: reportMissingParameterType=false

import numpy as np
from numba import njit

from fabric.kernels._paths import COUNT, START, UNTIL, find_usable, mix, pick, row_key, usable_first

_FAR = np.int64(1) << 62
_FEW = 16


@njit(cache=True, nogil=True)
def k_shortest_paths(a, starts, goals, at, most, seed, path_ptr, hop_ptr, link):
    """Find up to `most` shortest loop-free paths of pairs; return the first pair not done.

    Yen's method with Lawler's rule: the best path that leaves a path already found at some node,
    for every such node. Every search is directed by the true distance to the goal.

    Args:
        a: `Arcs`.
        starts: (pairs,), node.
        goals: (pairs,), node, another; pairs with the same one lie together.
        at: First pair to do.
        most: Paths per pair.
        seed: uint64; decides between paths of equal cost, for each pair in its own way.
        path_ptr: (pairs + 1,), filled: paths of pair i are `path_ptr[i]` to `path_ptr[i + 1]`.
        hop_ptr: (paths + 1,), filled with the hops before each path.
        link: (hops,), filled. It stops before a pair whose paths might not fit.
    """
    n = len(a.forwards)
    left = np.full(n, _FAR, np.int64)
    heap = np.empty(len(a.out_link) + 2, np.int64)
    item = np.empty(len(a.out_link) + 2, np.int64)
    far, via = np.empty(n, np.int64), np.empty(n, np.int64)
    mark, banned = np.zeros(n, np.int64), np.zeros(len(a.out_link), np.int64)
    step = np.zeros(1, np.int64)
    # Arcs of the paths: found ones first, in order, then candidates, in any order.
    path = np.empty((2 * most, n), np.int32)
    length, cost, leaves = np.zeros((3, 2 * most), np.int64)
    last = np.int64(-1)
    while at < len(starts):
        start, goal = starts[at], goals[at]
        if goal != last:
            _distances_to(a, goal, left, heap, item)
            last = goal
        found, waiting = 0, 0
        salt = row_key(seed, 0, 0, start, goal, True)
        if left[start] < _FAR:
            step[0] += 1
            length[0] = _search(
                a, start, goal, left, far, via, mark, banned, step[0], salt, heap, item, path[0], 0
            )
            cost[0], leaves[0], found = left[start], 0, 1
        while found and found < most:
            waiting = _leave(
                a, start, goal, left, far, via, mark, banned, step, salt, heap, item,
                path, length, cost, leaves, found, waiting, most,
            )  # fmt: skip
            if not waiting:
                break
            best = most
            for i in range(most + 1, most + waiting):
                if cost[i] < cost[best]:
                    best = i
            _copy(path, length, cost, leaves, best, found)
            # Those behind move up, so that of equal ones the oldest comes first.
            for i in range(best, most + waiting - 1):
                _copy(path, length, cost, leaves, i + 1, i)
            waiting -= 1
            found += 1
        total = np.int64(0)
        for i in range(found):
            total += length[i]
        first = path_ptr[at]
        if hop_ptr[first] + total > len(link):
            return at
        for i in range(found):
            to = hop_ptr[first + i]
            for j in range(length[i]):
                link[to + j] = a.out_link[path[i, j]]
            hop_ptr[first + i + 1] = to + length[i]
        path_ptr[at + 1] = first + found
        at += 1
    return at


@njit(cache=True, nogil=True)
def _copy(path, length, cost, leaves, source, to):
    path[to, : length[source]] = path[source, : length[source]]
    length[to], cost[to], leaves[to] = length[source], cost[source], leaves[source]


@njit(cache=True, nogil=True)
def _leave(
    a, start, goal, left, far, via, mark, banned, step, salt, heap, item,
    path, length, cost, leaves, found, waiting, most,
):  # fmt: skip
    """Add the best path that leaves the last found one at each of its nodes; count candidates."""
    now = found - 1
    behind = np.int64(0)
    for i in range(length[now]):
        arc = path[now, i]
        v = start if i == 0 else np.int64(a.out_to[path[now, i - 1]])
        if i >= leaves[now]:
            step[0] += 1
            stamp = step[0]
            mark[start] = stamp
            for j in range(i):
                mark[a.out_to[path[now, j]]] = stamp
            for p in range(found):
                same = length[p] > i
                j = 0
                while same and j < i:
                    same = path[p, j] == path[now, j]
                    j += 1
                if same:
                    banned[path[p, i]] = stamp
            to = most + waiting
            room = waiting < most - found
            if not room:  # no more than the paths still to be found can be of use
                to = most
                for j in range(most + 1, most + waiting):
                    if cost[j] >= cost[to]:
                        to = j
            if room or waiting:
                bound = _FAR if room else cost[to]
                n = _search(
                    a, v, goal, left, far, via, mark, banned, stamp, salt, heap, item, path[-1], i
                )
                if n > 0 and behind + far[goal] < bound:
                    path[to, :i] = path[now, :i]
                    path[to, i:n] = path[-1, i:n]
                    length[to], cost[to], leaves[to] = n, behind + far[goal], i
                    waiting += 1 if room else 0
        behind += a.out_cost[arc]
    return waiting


@njit(cache=True, nogil=True)
def _search(a, start, goal, left, far, via, mark, banned, stamp, salt, heap, item, path, at):
    """Write the shortest way from `start` into `path` from `at` on; return where it ends, or 0.

    Nodes and arcs that carry `stamp` are not used; nodes that are reached carry it afterwards with
    a minus. Among equally promising nodes the one nearest to the goal goes first. `salt` decides
    where the turn through the arcs of a node begins.
    """
    size = _push(heap, item, 0, (left[start] << 31) | left[start], start)
    far[start] = 0
    mark[start] = -stamp
    while size:
        v, key = item[0], heap[0]
        size = _pop(heap, item, size)
        if v == goal:
            break
        if (far[v] + left[v]) << 31 | left[v] != key:
            continue
        begun, mid = a.out_ptr[v], a.out_mid[v]
        shift = pick(mix(salt + np.uint64(v)), mid - begun)
        for j in range(begun, a.out_ptr[v + 1]):
            k = j if j >= mid else (j + shift if j + shift < mid else j + shift - (mid - begun))
            w = a.out_to[k]
            if mark[w] == stamp or banned[k] == stamp or left[w] == _FAR:
                continue
            if not a.forwards[w] and w != goal:
                continue
            reach = far[v] + a.out_cost[k]
            if mark[w] == -stamp and far[w] <= reach:
                continue
            mark[w] = -stamp
            far[w], via[w] = reach, k
            size = _push(heap, item, size, (reach + left[w]) << 31 | left[w], w)
    if mark[goal] != -stamp:
        return 0
    n, v = at, goal
    while v != start:
        n += 1
        v = a.out_from[via[v]]
    end, v = n, goal
    while v != start:
        n -= 1
        path[n] = via[v]
        v = a.out_from[via[v]]
    return end


@njit(cache=True, nogil=True)
def _distances_to(a, goal, left, heap, item):
    left[:] = _FAR
    left[goal] = 0
    size = _push(heap, item, 0, 0, goal)
    while size:
        v, here = item[0], heap[0]
        size = _pop(heap, item, size)
        if here != left[v] or (not a.forwards[v] and v != goal):
            continue
        for k in a.in_arc[a.in_ptr[v] : a.in_ptr[v + 1]]:
            w, reach = a.out_from[k], here + a.out_cost[k]
            if reach < left[w]:
                left[w] = reach
                size = _push(heap, item, size, reach, w)


@njit(cache=True, nogil=True)
def _push(heap, item, size, key, value):
    at = size
    while at and heap[(at - 1) >> 1] > key:
        heap[at], item[at] = heap[(at - 1) >> 1], item[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at], item[at] = key, value
    return size + 1


@njit(cache=True, nogil=True)
def _pop(heap, item, size):
    size -= 1
    key, value, at = heap[size], item[size], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[at], item[at] = heap[child], item[child]
        at = child
    heap[at], item[at] = key, value
    return size


@njit(cache=True, nogil=True)
def pour_all(
    g, u, first, dist, target_host, n_ends,
    give, many, give_many, own, own_ends, at_node, load, lost,
):  # fmt: skip
    """Add the loads of one unit spread over all targets of a block, split evenly at every node.

    Args:
        g: `Graph`.
        u: `Usable`, fresh for this block.
        first: Number of the block's first target.
        dist: Of the block.
        target_host: (targets,) of all blocks: the destination where it is the target, else -1.
        n_ends: (targets,) of all blocks, destinations behind it, each as often as it counts.
        give: (forwarding,), what each node sends to every destination, its hosts included.
        many: (sources,), hosts that do not hang on one node alone.
        give_many: (sources,), what each of them sends to every destination.
        own: (sources,), the target that each of them is behind itself.
        own_ends: (sources,), how often it counts there.
        at_node: (forwarding + 1,), zeros, and zeros again afterwards.
        load: (links,), added to.
        lost: (2,), set to a node that cannot reach a target, and to that target.
    """
    n = len(g.out_ptr) - 1
    state, hop = u.state, u.hop
    out_ptr, out_to, out_cost, out_link = g.out_ptr, g.out_to, g.out_cost, g.out_link
    order, bucket = np.empty(n, np.int64), np.zeros(1, np.int64)
    for t in range(min(len(dist), len(n_ends) - first)):
        target = first + t
        line, host, ends = dist[t], target_host[target], n_ends[target]
        for v in range(n):
            if give[v] > 0:
                at_node[v] = give[v] * ends
                if line[v] < 0:
                    lost[0], lost[1] = v, target
                    return
        for i in range(len(many)):
            s, others = many[i], ends - (own_ends[i] if own[i] == target else 0)
            if others == 0 or give_many[i] == 0:
                continue
            count = usable_first(g.first_ptr, g.first_to, g.first_cost, u.first, s, host, line)
            if count == 0:
                lost[0], lost[1] = -1 - s, target
                return
            for k in u.first[:count]:
                part = give_many[i] * others / count
                load[g.first_link[k]] += part
                if g.first_to[k] >= 0:
                    at_node[g.first_to[k]] += part
        # Farthest first: a counting sort where distances are small.
        top = line[:n].max() if n else 0
        if top <= 4 * n:
            if len(bucket) < top + 2:
                bucket = np.zeros(top + 2, np.int64)
            bucket[: top + 2] = 0
            for v in range(n):
                if line[v] > 0:
                    bucket[top - line[v] + 1] += 1
            for i in range(top):
                bucket[i + 1] += bucket[i]
            size = 0
            for v in range(n):
                if line[v] > 0:
                    order[bucket[top - line[v]]] = v
                    bucket[top - line[v]] += 1
                    size += 1
        else:
            order[:] = np.argsort(line[:n])[::-1]
            size = n
        for v in order[:size]:
            x = at_node[v]
            at_node[v] = 0.0
            if x == 0 or line[v] <= 0:
                continue
            if state[v, UNTIL] <= t:
                here, begun, end = line[v], out_ptr[v], out_ptr[v + 1]
                if host < 0 and end - begun <= _FEW:  # a call costs more than to look twice
                    count = 0
                    for k in range(begun, end):
                        ahead = line[out_to[k]]
                        count += ahead >= 0 and ahead + out_cost[k] == here
                    for k in range(begun, end):
                        ahead = line[out_to[k]]
                        if ahead >= 0 and ahead + out_cost[k] == here:
                            load[out_link[k]] += x / count
                            at_node[out_to[k]] += x / count
                    continue
                find_usable(g, u, v, t, host, line)
            begun, count = np.int64(state[v, START]), np.int64(state[v, COUNT])
            part = x / count
            for k in range(begun, begun + count):
                load[hop[k, 0]] += part
                at_node[hop[k, 1]] += part
        at_node[:] = 0.0
