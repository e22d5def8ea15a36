# numba infers the types of compiled kernels.
# pyright: reportMissingParameterType=false
"""Compiled colour refinement of the graph flows - links (or flows - bundles - links).

Both steps work on one bipartite level: *left* items that cross *right* items. The colour of a left
item is a hash of its own seed and of the **set** of colours it crosses, since what stops a flow is
a minimum; that of a right item is a hash of a **sum** over the left items that cross it, since what
fills a link is a sum. Sums of hashes do not depend on the order of entries. Colours are hashes, so
nothing here proves anything: `quotient` does, by comparing every item with the first of its class.
"""

import numba
import numpy as np

from fabric.kernels._layout import mix

jit = numba.njit(cache=True, nogil=True)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@jit
def multiple(use, scale):
    """Return what a use multiplies a hash with: `use * scale` where that is whole, else a hash.

    Whole multiples keep sums linear, so that two uses of 0.5 count as one of 1.
    """
    scaled = use * scale
    if scaled < 9007199254740992.0 and scaled == np.floor(scaled):
        return np.uint64(scaled)
    bits = np.empty(1)
    bits[0] = use
    return mix(bits.view(np.uint64)[0])


@jit
def scale_of(use):
    """Return the least power of two, up to 2**20, that makes most uses whole numbers."""
    scale = 1.0
    last = 0.0
    for k in range(len(use)):
        if use[k] == last:
            continue
        last = use[k]
        wide = scale
        while wide < 1048576.0 and last * wide != np.floor(last * wide):
            wide *= 2.0
        if last * wide == np.floor(last * wide):
            scale = wide
    return scale


@jit
def sweep(left_of, right_of, use, seed, colour_of, n_colours, scale, salt, mask, left, total):
    """Hash every left item into `left`, and sum the hashes into `total` of the right items.

    Args:
        left_of: (entries,), rising; one past the end marks padding, here and in `right_of`.
        right_of: (entries,).
        use: (entries,), an entry of 0 does not cross.
        seed: (left,) or (1,), what left items differ by beforehand.
        colour_of: (right,), from 0 to `n_colours` - 1.
        n_colours: See `colour_of`.
        scale: See `multiple`.
        salt: Another salt gives other hashes.
        mask: The bits of a hash that are kept; all of them, unless collisions are wanted.
        left: (left,), written.
        total: (right,), written.

    Returns:
        About how many different hashes `left` holds, by linear counting, within 2 %.
    """
    key = np.empty(n_colours, np.uint64)
    for c in range(n_colours):
        key[c] = mix(np.uint64(c + 1) * GOLDEN + salt)
    seen = np.full(n_colours, -1, np.int32)
    size = 65536
    while size < 2 * len(left):
        size *= 2
    marks = np.zeros(size, np.bool_)
    n_right = len(total)
    total[:] = 0
    last_use, last_multiple = 0.0, np.uint64(0)
    end = 0
    for f in range(len(left)):
        colour = seed[f] if len(seed) > 1 else seed[0]
        first = end
        while end < len(left_of) and left_of[end] == f:
            r = right_of[end]
            if use[end] > 0.0 and r < n_right:
                c = colour_of[r]
                if seen[c] != f:
                    seen[c] = f
                    colour += key[c]
            end += 1
        # Odd, so that a multiple of it is 0 only where the sum of uses is.
        hashed = (mix(colour) & mask) | np.uint64(1)
        left[f] = hashed
        marks[np.int64(mix(hashed) & np.uint64(size - 1))] = True
        for h in range(first, end):
            r = right_of[h]
            if use[h] > 0.0 and r < n_right:
                if use[h] != last_use:
                    last_use, last_multiple = use[h], multiple(use[h], scale)
                total[r] += hashed * last_multiple
    return min(size * np.log(size / (size - np.count_nonzero(marks))), float(len(left)))


@jit
def number(keys):
    """Return (class_of, first): equal keys share a class, numbered by their first item."""
    size = 1024
    table = np.full(size, -1, np.int32)
    first = np.empty(size // 2, np.int32)
    class_of = np.empty(len(keys), np.int32)
    n = 0
    for i in range(len(keys)):
        slot = np.int64(mix(keys[i]) & np.uint64(size - 1))
        while table[slot] >= 0 and keys[first[table[slot]]] != keys[i]:
            slot = (slot + 1) & (size - 1)
        if table[slot] < 0:
            table[slot] = n
            first[n] = i
            n += 1
        class_of[i] = table[slot]
        if n == len(first):
            size *= 2
            table = np.full(size, -1, np.int32)
            first = np.append(first, np.empty(n, np.int32))
            for c in range(n):
                slot = np.int64(mix(keys[first[c]]) & np.uint64(size - 1))
                while table[slot] >= 0:
                    slot = (slot + 1) & (size - 1)
                table[slot] = c
    return class_of, first[:n].copy()


@jit
def recoloured(colour_of, total):
    """Return (right,) keys of the colours so far and the sums; 0 where nothing crosses."""
    keys = np.zeros(len(total), np.uint64)
    for r in range(len(total)):
        if total[r] != np.uint64(0):
            keys[r] = mix(mix(np.uint64(colour_of[r] + 1)) + total[r])
    return keys


@jit
def add(state, at, y):
    """Add y to the two-float number in row `at`."""
    x = state[at, 0]
    s = x + y
    v = s - x
    state[at, 0] = s
    state[at, 1] += (x - (s - v)) + (y - v)


@jit
def crossed(left_of, right_of, use, first_left, right_class, n_right_classes):
    """Return (ptr, right_class): what the first left item of every class crosses."""
    ptr = np.zeros(len(first_left) + 1, np.int64)
    found = np.empty(1024, np.int32)
    seen = np.full(n_right_classes, -1, np.int32)
    n = 0
    for c in range(len(first_left)):
        f = first_left[c]
        h = np.searchsorted(left_of, f)
        while h < len(left_of) and left_of[h] == f:
            r = right_of[h]
            if use[h] > 0.0 and r < len(right_class) and seen[right_class[r]] != c:
                seen[right_class[r]] = c
                if n == len(found):
                    found = np.append(found, np.empty(n, np.int32))
                found[n] = right_class[r]
                n += 1
            h += 1
        ptr[c + 1] = n
    return ptr, found[:n].copy()


@jit
def quotient(left_of, right_of, use, left_class, first_left, right_class, first_right, near):
    """Return (ptr, right_class, use, fits): the usage between classes, and whether it is exact.

    It is if every left item crosses the same classes as the first of its class, and every right
    item is crossed by every left class with the same sum of uses as the first of its class.

    Args:
        left_of: (entries,), rising; one past the end marks padding, here and in `right_of`.
        right_of: (entries,).
        use: (entries,).
        left_class: (left,).
        first_left: (left classes,).
        right_class: (right,).
        first_right: (right classes,).
        near: Relative difference up to which two sums of fractions are the same.
    """
    n_right, n_classes = len(right_class), len(first_right)
    ptr, crosses = crossed(left_of, right_of, use, first_left, right_class, n_classes)
    # A right item keeps one sum per left class that its own class is crossed by.
    degree = np.zeros(n_classes, np.int64)
    place = np.empty(len(crosses), np.int64)
    for e in range(len(crosses)):
        place[e] = degree[crosses[e]]
        degree[crosses[e]] += 1
    start = np.zeros(n_right + 1, np.int64)
    for r in range(n_right):
        start[r + 1] = start[r] + degree[right_class[r]]
    total = np.zeros((start[n_right], 2))
    between = np.zeros(len(crosses))

    owner = np.full(n_classes, -1, np.int32)
    at = np.zeros(n_classes, np.int64)
    seen = np.full(n_classes, -1, np.int32)
    now = -1
    h = 0
    for f in range(len(left_class)):
        if left_class[f] != now:
            now = left_class[f]
            for e in range(ptr[now], ptr[now + 1]):
                owner[crosses[e]] = now
                at[crosses[e]] = place[e]
        n = 0
        while h < len(left_of) and left_of[h] == f:
            r = right_of[h]
            if use[h] > 0.0 and r < n_right:
                c = right_class[r]
                if owner[c] != now:
                    return ptr, crosses, between, False
                if seen[c] != f:
                    seen[c] = f
                    n += 1
                add(total, start[r] + at[c], use[h])
            h += 1
        if n != ptr[now + 1] - ptr[now]:
            return ptr, crosses, between, False

    for r in range(n_right):
        like = start[first_right[right_class[r]]]
        for k in range(degree[right_class[r]]):
            want = total[like + k, 0] + total[like + k, 1]
            got = total[start[r] + k, 0] + total[start[r] + k, 1]
            if abs(got - want) > near * want:
                return ptr, crosses, between, False
    for e in range(len(crosses)):
        k = start[first_right[crosses[e]]] + place[e]
        between[e] = total[k, 0] + total[k, 1]
    return ptr, crosses, between, True


@jit
def differing(values, class_of, first):
    """Return (classes,), whether a class holds different values; NaN equals NaN."""
    different = np.zeros(len(first), np.bool_)
    for i in range(len(values)):
        like = values[first[class_of[i]]]
        if values[i] != like and not (np.isnan(values[i]) and np.isnan(like)):
            different[class_of[i]] = True
    return different


@jit
def first_links(
    left_of, right_of, use, flow_class, level, capped, bundle_top, pick, several, link_of, near
):
    """Return (bottleneck, tied): the first link, by rank, that stops every flow; -1: its cap.

    Args:
        left_of: (hops,), flows, rising.
        right_of: (hops,), bundles.
        use: (hops,).
        flow_class: (flows,).
        level: (flow classes,).
        capped: (flow classes,).
        bundle_top: (bundles,), the lowest top level among the full links of the bundle.
        pick: (bundles,), the first rank of a link that has it.
        several: (bundles,), whether several links have it.
        link_of: (links,), the link of every rank.
        near: Relative distance at which levels count as equal.

    `tied` is whether some flow is stopped by several links at once.
    """
    bottleneck = np.full(len(flow_class), -1, np.int32)
    tied = False
    h = 0
    for f in range(len(flow_class)):
        c = flow_class[f]
        first = -1
        while h < len(left_of) and left_of[h] == f:
            b = right_of[h]
            full = b < len(pick) and use[h] > 0.0 and pick[b] >= 0
            if full and not capped[c] and level[c] >= bundle_top[b] * (1.0 - near):
                tied |= several[b] or (first >= 0 and first != pick[b])
                first = pick[b] if first < 0 else min(first, pick[b])
            h += 1
        if first >= 0 and level[c] < np.inf:
            bottleneck[f] = link_of[first]
    return bottleneck, tied


@jit
def blend(seed, bits):
    """Mix one more column, seen as 64-bit whole numbers, into the seeds of flows."""
    for f in range(len(seed)):
        seed[f] = mix(seed[f] + mix(bits[f]))


@jit
def profiles(ptr, other, content, most):
    """Return (vertices,) hashes of what lies at every distance from a vertex; 0 where nothing does.

    Each is of the sum of the contents of edges and of the number of new vertices, distance by
    distance, up to the distance at which more than `most` edges were seen.

    Args:
        ptr: (vertices + 1,). Edges of vertex v are those from `ptr[v]` to `ptr[v + 1]`.
        other: (edges,), where each leads.
        content: (edges,), what each is.
        most: Edges to see from one vertex; its own are seen in any case.
    """
    n = len(ptr) - 1
    found = np.zeros(n, np.uint64)
    seen = np.full(n, -1, np.int32)
    queue = np.empty(n, np.int32)
    for v in range(n):
        if ptr[v] == ptr[v + 1]:
            continue
        seen[v] = v
        queue[0] = v
        first, last, told = 0, 1, 0
        while first < last:
            for q in range(first, last):
                told += ptr[queue[q] + 1] - ptr[queue[q]]
            if told > most and first > 0:
                break
            total, end = np.uint64(0), last
            for q in range(first, end):
                for e in range(ptr[queue[q]], ptr[queue[q] + 1]):
                    total += content[e]
                    if seen[other[e]] != v:
                        seen[other[e]] = v
                        queue[last] = other[e]
                        last += 1
            first = end
            found[v] = mix(mix(found[v] + total) + np.uint64(last - first))
    return found
