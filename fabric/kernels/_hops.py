"""Compiled searches from one target: distances, shortest ways counted, and equal splits.

Arcs are stored by the node they lead to, so that a search from a target runs against them: arc k
of node v, `ptr[v] <= k < ptr[v + 1]`, comes from `tail[k]` over `cables[k]` parallel cables.
"""
# Numba infers the types of kernels, and the run-time checker of the tests must not wrap them.
# pyright: reportMissingParameterType=false

import heapq

import numpy as np
from numba import njit

LINKS, SWITCHES, SUM, PAIRS, LOST = 0, 1, 2, 3, 4  # entries of what `sweep` returns


@njit(cache=True, nogil=True)
def search(ptr, tail, cost, even, target, dist, order):
    """Fill `dist`, -1 where the target is out of reach; return how many nodes reach it.

    Args:
        ptr: (nodes + 1,), where the arcs into each node begin; see above.
        tail: (arcs,), the node that each comes from.
        cost: (arcs,), routing cost.
        even: Whether all costs are 1.
        target: Node.
        dist: (nodes,), filled.
        order: (nodes,), filled with the nodes that reach the target, nearest first.
    """
    dist[:] = -1
    dist[target] = 0
    count = 1
    order[0] = target
    if even:
        at = 0
        while at < count:
            v = order[at]
            at += 1
            for k in range(ptr[v], ptr[v + 1]):
                u = tail[k]
                if dist[u] < 0:
                    dist[u] = dist[v] + 1
                    order[count] = u
                    count += 1
        return count
    heap = [(np.int64(0), np.int64(target))]
    count = 0
    while heap:
        d, v = heapq.heappop(heap)
        if d > dist[v]:
            continue
        order[count] = v
        count += 1
        for k in range(ptr[v], ptr[v + 1]):
            u, reach = tail[k], d + cost[k]
            if dist[u] < 0 or reach < dist[u]:
                dist[u] = reach
                heapq.heappush(heap, (np.int64(reach), np.int64(u)))
    return count


@njit(cache=True, nogil=True)
def tally(ptr, tail, cost, cables, switch, order, count, dist, links, passed, ways, usable):
    """Count along the shortest ways to the target of a `search`.

    Args:
        ptr: As in `search`.
        tail: As in `search`.
        cost: As in `search`.
        cables: (arcs,), parallel cables.
        switch: (nodes,), 1 for a switch.
        order: As `search` left it.
        count: How many nodes reach the target.
        dist: As `search` left it.
        links: (nodes,), filled: fewest links of a shortest way.
        passed: (nodes,), filled: fewest switches on a shortest way, its first node not counted.
        ways: (nodes, 2), filled: shortest ways by nodes, and cable by cable.
        usable: (nodes,), filled: cables on which a shortest way may begin.
    """
    for i in range(count):
        u = order[i]
        links[u] = passed[u] = 2**30
        ways[u, 0] = ways[u, 1] = usable[u] = 0
    target = order[0]
    links[target] = passed[target] = 0
    ways[target, 0] = ways[target, 1] = 1
    for i in range(count):
        v = order[i]
        for k in range(ptr[v], ptr[v + 1]):
            u = tail[k]
            if dist[u] == dist[v] + cost[k]:
                links[u] = min(links[u], links[v] + 1)
                passed[u] = min(passed[u], passed[v] + switch[v])
                ways[u, 0] += ways[v, 0]
                ways[u, 1] += cables[k] * ways[v, 1]
                usable[u] += cables[k]


@njit(cache=True, nogil=True)
def spread(ptr, tail, cost, cables, order, count, dist, usable, flow, weight, load):
    """Let `flow` run to the target, split equally over the usable cables of every node."""
    for i in range(count - 1, -1, -1):
        v = order[i]
        for k in range(ptr[v], ptr[v + 1]):
            u = tail[k]
            if dist[u] == dist[v] + cost[k]:
                share = flow[u] * cables[k] / usable[u]
                flow[v] += share
                load[k] += weight * share


@njit(cache=True, nogil=True)
def sweep(ptr, tail, cost, cables, even, switch, targets, owns, sources, members, load):
    """Search from every target; add up the hops of all pairs, and the load of an all-to-all.

    Args:
        ptr: As in `search`.
        tail: As in `search`.
        cost: As in `search`.
        cables: As in `tally`.
        even: Whether all costs are 1.
        switch: As in `tally`.
        targets: (targets,), nodes.
        owns: (targets,), position in `sources` of the class that the target stands for.
        sources: (classes,), the node that each class sends from.
        members: (classes,), endpoints of each class.
        load: (arcs,), added to: flow where every pair of endpoints has 1; none if it is empty.
    """
    n = len(ptr) - 1
    dist, order = np.empty(n, np.int64), np.empty(n, np.int64)
    links, passed = np.empty(n, np.int64), np.empty(n, np.int64)
    ways, usable, flow = np.empty((n, 2)), np.empty(n), np.zeros(n)
    found = np.zeros(5)
    for i in range(len(targets)):
        count = search(ptr, tail, cost, even, targets[i], dist, order)
        tally(ptr, tail, cost, cables, switch, order, count, dist, links, passed, ways, usable)
        times = members[owns[i]]
        flow[:] = 0
        for j in range(len(sources)):
            pairs, u = members[j] - (j == owns[i]), sources[j]
            if pairs == 0:
                continue
            if dist[u] < 0:
                found[LOST] += times * pairs
                continue
            found[LINKS] = max(found[LINKS], links[u])
            found[SWITCHES] = max(found[SWITCHES], passed[u])
            found[SUM] += times * pairs * links[u]
            found[PAIRS] += times * pairs
            flow[u] += pairs
        if len(load):
            spread(ptr, tail, cost, cables, order, count, dist, usable, flow, times, load)
    return found
