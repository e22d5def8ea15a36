"""Compiled search for the splits that keep the most loaded link as low as can be.

The record `Web` of `fabric.routing` holds, target by target, the nodes that its traffic may cross
and the links that each may use. A node splits what reaches it over its links: equally, until it
moves; then by shares of its own. Nodes are forwarding nodes, then the sink, then all nodes as
sources that do not forward.
"""
# Numba infers the types of kernels, and the run-time checker of the tests must not wrap them.
# pyright: reportMissingParameterType=false

import numpy as np
from numba import njit

from fabric.kernels._paths import COUNT, START, UNTIL, find_usable, usable_first

ENTRIES, FANS, HOPS, SOURCES, SPLITS = 0, 1, 2, 3, 4  # positions in `web.size`
LEAST_SHARE = 1e-6

_FACTOR = 2.0  # most that a share grows or shrinks by in a step
_FASTER, _SLOWER = 1.3, 0.5
_SLOWEST, _FASTEST = 0.02, 50.0
_NOISE = 1e-9


@njit(cache=True, nogil=True)
def weave(g, u, d, web, weight, begun, stop, first, dist, fill, lost):
    """Enter the targets of a block into `web`, or only count what they need.

    Args:
        g: `Graph`.
        u: `Usable`, fresh for this block.
        d: `Demand`, with the flows sorted by target.
        web: `Web`; `web.size` is counted up.
        weight: (flows,), demand of each flow, in the order of the flows.
        begun: First flow of the block.
        stop: One past the last.
        first: Number of the block's first target.
        dist: Of the block.
        fill: Whether to write the entries, else they are only counted.
        lost: (flows,), set where the destination cannot be reached.
    """
    size, mark, found, key, total = web.size, web.mark, web.found, web.key, web.total
    state, hop, forward_of, fan_at = u.state, u.hop, g.forward_of, web.fan_at
    sink, at = len(g.out_ptr) - 1, begun
    while at < stop:
        target = d.target[at]
        line, host, goal = dist[target - first], d.target_host[target], d.target_node[target]
        count = 0
        while at < stop and d.target[at] == target:
            flow, s = d.order[at], d.src[at]
            at += 1
            v = np.int64(forward_of[s])
            if v < 0:
                v = sink + 1 + s
                n = usable_first(g.first_ptr, g.first_to, g.first_cost, u.first, s, host, line)
                lost[flow] = n == 0
            else:
                lost[flow] = line[v] < 0
            if lost[flow]:
                continue
            if not mark[v]:
                mark[v] = True
                found[count] = v
                count += 1
            total[v] += weight[flow]
        n_sources = count
        i = 0
        while i < count:
            v = found[i]
            if v > sink:
                key[i] = np.iinfo(np.int64).min
                s = v - sink - 1
                n = usable_first(g.first_ptr, g.first_to, g.first_cost, u.first, s, host, line)
                for j in range(n):
                    to = g.first_to[u.first[j]]
                    if to >= 0 and to != goal and not mark[to]:
                        mark[to] = True
                        found[count] = to
                        count += 1
                fan_at[v] = size[FANS]
                _enter_first(g, u, web, n, fill)
                size[SPLITS] += n
            elif v != goal:
                key[i] = -np.int64(line[v])
                if state[v, UNTIL] <= target - first:
                    find_usable(g, u, v, target - first, host, line)
                    fan_at[v] = size[FANS]
                    _enter_fan(u, web, v, fill)
                begin = np.int64(state[v, START])
                size[SPLITS] += state[v, COUNT]
                for k in range(begin, begin + state[v, COUNT]):
                    to = hop[k, 1]
                    if to != goal and not mark[to]:
                        mark[to] = True
                        found[count] = to
                        count += 1
            i += 1
        if fill:
            at_source, at_entry = size[SOURCES], size[ENTRIES]
            for i in range(n_sources):
                web.source[at_source + i] = found[i]
                web.demand[at_source + i] = total[found[i]]
            for i in np.argsort(key[:count], kind="mergesort"):
                if found[i] != goal:
                    web.node[at_entry] = found[i]
                    web.fan[at_entry] = fan_at[found[i]]
                    at_entry += 1
        for i in range(count):
            mark[found[i]] = False
            total[found[i]] = 0.0
            size[ENTRIES] += found[i] != goal
        size[SOURCES] += n_sources
        if fill:
            web.entry_ptr[target + 1] = size[ENTRIES]
            web.source_ptr[target + 1] = size[SOURCES]


@njit(cache=True, nogil=True)
def _enter_first(g, u, web, n, fill):
    size = web.size
    if fill:
        for j in range(n):
            k, to = u.first[j], g.first_to[u.first[j]]
            web.hop_link[size[HOPS] + j] = g.first_link[k]
            web.hop_to[size[HOPS] + j] = len(g.out_ptr) - 1 if to < 0 else to
        web.fan_ptr[size[FANS] + 1] = size[HOPS] + n
    size[HOPS] += n
    size[FANS] += 1


@njit(cache=True, nogil=True)
def _enter_fan(u, web, v, fill):
    size, begin, n = web.size, np.int64(u.state[v, START]), np.int64(u.state[v, COUNT])
    if fill:
        for j in range(n):
            web.hop_link[size[HOPS] + j] = u.hop[begin + j, 0]
            web.hop_to[size[HOPS] + j] = u.hop[begin + j, 1]
        web.fan_ptr[size[FANS] + 1] = size[HOPS] + n
    size[HOPS] += n
    size[FANS] += 1


@njit(cache=True, nogil=True)
def shun(web, goal_of, dry, share):
    """Leave out links that are dry, or lead to none but such, where a node has others.

    Demand that has no other way is dropped. Returns how much of `share` is taken; more than there
    is of it where it is too small.
    """
    wet, used = np.zeros(len(web.total), np.bool_), 0
    for t in range(len(goal_of)):
        wet[goal_of[t]] = True
        for i in range(web.entry_ptr[t + 1] - 1, web.entry_ptr[t] - 1, -1):
            begin, end = web.fan_ptr[web.fan[i]], web.fan_ptr[web.fan[i] + 1]
            good = 0
            for k in range(begin, end):
                good += wet[web.hop_to[k]] and not dry[web.hop_link[k]]
            wet[web.node[i]] = good > 0
            if 0 < good < end - begin:
                if used + end - begin <= len(share):
                    web.slot[i] = used
                    for k in range(begin, end):
                        way = wet[web.hop_to[k]] and not dry[web.hop_link[k]]
                        share[used + k - begin] = 1.0 / good if way else 0.0
                used += end - begin
        for i in range(web.source_ptr[t], web.source_ptr[t + 1]):
            if not wet[web.source[i]]:
                web.demand[i] = 0.0
        wet[goal_of[t]] = False
    return used


@njit(cache=True, nogil=True)
def pour(web, goal_of, base, share, load):
    """Fill `load` with what the splits put on every link, beside `base`."""
    load[:] = base
    for t in range(len(goal_of)):
        _pour_target(web, t, share, load)
        web.total[goal_of[t]] = 0.0


@njit(cache=True, nogil=True)
def _pour_target(web, t, share, load):
    fan_ptr, hop_link, hop_to, total = web.fan_ptr, web.hop_link, web.hop_to, web.total
    for i in range(web.source_ptr[t], web.source_ptr[t + 1]):
        total[web.source[i]] += web.demand[i]
    for i in range(web.entry_ptr[t], web.entry_ptr[t + 1]):
        v = web.node[i]
        x = total[v]
        total[v] = 0.0
        begin, end = fan_ptr[web.fan[i]], fan_ptr[web.fan[i] + 1]
        at = web.slot[i]
        part = x / (end - begin)
        for k in range(begin, end):
            if at >= 0:
                part = x * share[at]
                at += 1
            load[hop_link[k]] += part
            total[hop_to[k]] += part


@njit(cache=True, nogil=True)
def step(web, goal_of, base, share, pace, room, price, hot, exponent, most, load):
    """Move traffic from dear links to cheap ones, and return what all demand must cost at least.

    A node moves only if a link ahead of it is hot. Its shares are multiplied by their relative
    cost to the power of minus `exponent`, faster the longer a share has moved one way.

    Args:
        web: `Web`; a node that moves for the first time takes its place in `share`, if there is.
        goal_of: (targets,), where the traffic of each target ends.
        base: (links,), load that no split decides.
        share: Shares of the nodes that have moved, from `web.slot` on.
        pace: As `share`: how fast each moved last, with the sign of its way; 0 for at rest.
        room: (1,), how much of `share` is taken.
        price: (links,), marginal cost of load.
        hot: (links,), whether a link is loaded more than need be.
        exponent: See above.
        most: Largest pace of a share that is not small.
        load: (links,), filled with the load after the step.
    """
    fan_ptr, hop_link, hop_to = web.fan_ptr, web.hop_link, web.hop_to
    cost, least, burns = web.cost, web.least, web.burns
    load[:] = base
    must = 0.0
    for t in range(len(goal_of)):
        goal = goal_of[t]
        cost[goal] = least[goal] = 0.0
        burns[goal] = False
        for i in range(web.entry_ptr[t + 1] - 1, web.entry_ptr[t] - 1, -1):
            v, fan = web.node[i], web.fan[i]
            begin, end = fan_ptr[fan], fan_ptr[fan + 1]
            at = web.slot[i]
            mean, low, cheap, dear, burn = 0.0, np.inf, np.inf, 0.0, False
            for k in range(begin, end):
                f = share[at + k - begin] if at >= 0 else 1.0
                if f == 0.0:
                    continue
                link, to = hop_link[k], hop_to[k]
                c = price[link] + cost[to]
                mean += f * c
                cheap, dear = min(cheap, c), max(dear, c)
                low = min(low, price[link] + least[to])
                burn |= hot[link] or burns[to]
            if at < 0:
                mean /= end - begin
            cost[v], least[v], burns[v] = mean, low, burn
            if burn and dear > cheap * (1.0 + _NOISE):
                if at < 0 and room[0] + end - begin <= len(share):
                    at = room[0]
                    room[0] += end - begin
                    web.slot[i] = at
                    share[at : room[0]] = 1.0 / (end - begin)
                    pace[at : room[0]] = 0.0
                if at >= 0:
                    _move(web, share, pace, at, begin, end, price, mean, exponent, most)
        for i in range(web.source_ptr[t], web.source_ptr[t + 1]):
            if web.demand[i] > 0.0:
                must += web.demand[i] * least[web.source[i]]
        _pour_target(web, t, share, load)
        web.total[goal] = 0.0
    return must


@njit(cache=True, nogil=True)
def _move(web, share, pace, at, begin, end, price, mean, exponent, most):
    whole = 0.0
    for k in range(begin, end):
        i = at + k - begin
        f = share[i]
        if f == 0.0:
            continue
        c = price[web.hop_link[k]] + web.cost[web.hop_to[k]]
        way = 1.0 if c < mean else -1.0
        speed = abs(pace[i])
        if speed == 0.0:
            speed = 1.0
        elif (pace[i] > 0.0) == (way > 0.0):
            speed = min(speed * _FASTER, _FASTEST)
        else:
            speed = max(speed * _SLOWER, _SLOWEST)
        pace[i] = way * speed
        # A small share may run: whatever it does moves little.
        speed = min(speed, max(most, 1.0 / (f * (end - begin))))
        factor = _FACTOR if c <= 0.0 else (mean / c) ** (exponent * speed)
        share[i] = max(f * min(max(factor, 1.0 / _FACTOR), _FACTOR), LEAST_SHARE)
        whole += share[i]
    for i in range(at, at + end - begin):
        share[i] /= whole
