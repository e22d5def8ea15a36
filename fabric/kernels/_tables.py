# numba infers the types of compiled kernels.
# pyright: reportMissingParameterType=false
"""Compiled making of gather tables, and of the smaller problem that live flows leave."""

import numba
import numpy as np

from fabric.kernels._water_fill import subtract

jit = numba.njit(cache=True, nogil=True)


@jit
def by_width(degree, widths):
    """Return (rank, count): items with a degree, by rising width and then as they come.

    Args:
        degree: (items,), an item of degree 0 has rank -1.
        widths: Rising; the width of an item is the smallest that holds its degree.
    """
    kind = np.empty(len(degree), np.int16)
    count = np.zeros(len(widths), np.int64)
    for i in range(len(degree)):
        k = 0
        if degree[i] > 8:
            k = np.searchsorted(widths, degree[i])
        else:
            while widths[k] < degree[i]:
                k += 1
        kind[i] = k
        if degree[i] > 0:
            count[k] += 1
    put = np.zeros(len(widths), np.int64)
    for k in range(1, len(widths)):
        put[k] = put[k - 1] + count[k - 1]
    rank = np.full(len(degree), -1, np.int32)
    for i in range(len(degree)):
        if degree[i] > 0:
            rank[i] = put[kind[i]]
            put[kind[i]] += 1
    return rank, count


@jit
def degrees(ptr, end, at, n_links):
    """Return (flow, link): the number of hops of every flow, and of every link."""
    flow = np.empty(len(ptr), np.int32)
    link = np.zeros(n_links, np.int32)
    for f in range(len(flow)):
        flow[f] = end[f] - ptr[f]
        for h in range(ptr[f], end[f]):
            link[at[h]] += 1
    return flow, link


@jit
def fill_tables(
    ptr, end, at, use, flow_place, link_place,
    path_base, path_stride, path, table_base, table_stride, table, table_use,
):  # fmt: skip
    """Write the tables of paths and of links, each the rows of its buckets one after another.

    Args:
        ptr: (flows,), where the hops of a flow begin.
        end: (flows,), where they end; a flow has at least one.
        at: (hops,), links.
        use: (hops,), or empty where every use is 1.
        flow_place: (flows,).
        link_place: (links,).
        path_base: (places,), where the first entry of a flow stands.
        path_stride: (places,), from one entry of a flow to the next.
        path: All tables of paths; padding stays.
        table_base: (places,), as `path_base` for links.
        table_stride: (places,), as `path_stride` for links.
        table: All tables of links; padding stays.
        table_use: As `table`, or empty to leave uses out.
    """
    taken = np.zeros(len(table_base), np.int32)
    for f in range(len(ptr)):
        p = flow_place[f]
        for h in range(ptr[f], end[f]):
            q = link_place[at[h]]
            k = table_base[q] + np.int64(taken[q]) * table_stride[q]
            taken[q] += 1
            table[k] = p
            if len(table_use) > 0:
                table_use[k] = use[h] if len(use) > 0 else 1.0
            path[path_base[p] + (h - ptr[f]) * np.int64(path_stride[p])] = q


@jit
def settle(
    flow, ptr, end, at, use, place, level_at, stopper_at, link_at, weight, level, stopper, left
):  # fmt: skip
    """Record the flows that stopped, take them out of their links, and return the live ones.

    Args:
        flow: (flows here,), numbers of the flows that were live.
        ptr: (flows here,), where the hops of a flow begin.
        end: (flows here,), where they end.
        at: (hops,), links.
        use: (hops,), or empty where every use is 1.
        place: (flows here,).
        level_at: (places,), infinite while live.
        stopper_at: (places,), place of the link that stopped it, -1 for its own limit.
        link_at: (places,), number of the link at a place.
        weight: (flows,).
        level: (flows,), written.
        stopper: (flows,), written.
        left: (links, 2), what is left of every link as two floats, written.

    Returns:
        (flow, ptr, end, at, use) of the live flows.
    """
    n, hops = 0, 0
    for i in range(len(flow)):
        if level_at[place[i]] == np.inf:
            n += 1
            hops += end[i] - ptr[i]
    flow_, ptr_, end_ = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
    at_, use_ = np.empty(hops, np.int32), np.empty(hops if len(use) > 0 else 0)
    n, k = 0, 0
    for i in range(len(flow)):
        f, t = flow[i], level_at[place[i]]
        if t == np.inf:
            flow_[n], ptr_[n] = f, k
            for h in range(ptr[i], end[i]):
                at_[k] = at[h]
                if len(use) > 0:
                    use_[k] = use[h]
                k += 1
            end_[n] = k
            n += 1
            continue
        level[f] = t
        by = stopper_at[place[i]]
        stopper[f] = link_at[by] if by >= 0 else -1
        load = weight[f] * t
        for h in range(ptr[i], end[i]):
            subtract(left, at[h], 0, use[h] * load if len(use) > 0 else load)
    return flow_, ptr_, end_, at_, use_
