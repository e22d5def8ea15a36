# numba infers the types of compiled kernels.
# pyright: reportMissingParameterType=false
"""Compiled layouts of routes: transposes, and links merged that always fill together."""

import numba
import numpy as np

jit = numba.njit(cache=True, nogil=True)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@jit
def transpose(row_of, column_of, n_columns):
    """Return (ptr, row, order): entries sorted by column, rows rising within each.

    Args:
        row_of: (entries,), rising.
        column_of: (entries,).
        n_columns: Entries with another column number are dropped.
    """
    ptr = np.zeros(n_columns + 1, np.int64)
    for k in range(len(column_of)):
        if column_of[k] < n_columns:
            ptr[column_of[k] + 1] += 1
    for c in range(n_columns):
        ptr[c + 1] += ptr[c]
    put = ptr[:-1].copy()
    row = np.empty(ptr[-1], np.int32)
    order = np.empty(ptr[-1], np.int64)
    for k in range(len(column_of)):
        c = column_of[k]
        if c < n_columns:
            row[put[c]] = row_of[k]
            order[put[c]] = k
            put[c] += 1
    return ptr, row, order


@jit
def mix(z):
    """Return a 64-bit hash of a 64-bit number (the finaliser of splitmix64)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@jit
def same_parts(a, b, link_ptr, link_bundle, link_use):
    """Return whether two links carry the same bundles at the same fractions."""
    n = link_ptr[a + 1] - link_ptr[a]
    if link_ptr[b + 1] - link_ptr[b] != n:
        return False
    for k in range(n):
        i, j = link_ptr[a] + k, link_ptr[b] + k
        if link_bundle[i] != link_bundle[j] or link_use[i] != link_use[j]:
            return False
    return True


@jit
def merge(link_ptr, link_bundle, link_use, use_bits):
    """Return (class_of, first): links with equal content share a class, numbered by first link.

    Equal content is found by hash and then compared entry by entry, so nothing is merged by
    accident. A link that carries nothing has class -1.

    Args:
        link_ptr: (links + 1,); `link_bundle`, `link_use`: (parts,), bundles rising per link.
        link_bundle: See `link_ptr`.
        link_use: See `link_ptr`.
        use_bits: (parts,), `link_use` seen as 64-bit whole numbers.
    """
    n_links = len(link_ptr) - 1
    size = 16
    while size < 2 * n_links:
        size *= 2
    table = np.full(size, -1, np.int32)
    class_of = np.full(n_links, -1, np.int32)
    first = np.empty(n_links, np.int32)
    n = 0
    for l in range(n_links):
        if link_ptr[l] == link_ptr[l + 1]:
            continue
        key = np.uint64(0)
        for k in range(link_ptr[l], link_ptr[l + 1]):
            key = mix(key ^ mix(np.uint64(link_bundle[k]) + mix(use_bits[k])))
        slot = np.int64(key & np.uint64(size - 1))
        while table[slot] >= 0 and not same_parts(
            first[table[slot]], l, link_ptr, link_bundle, link_use
        ):
            slot = (slot + 1) & (size - 1)
        if table[slot] < 0:
            table[slot] = n
            first[n] = l
            n += 1
        class_of[l] = table[slot]
    return class_of, first[:n].copy()


FOLLOWER, TWINS = 1, 2  # columns of a record per bundle; the first counts its hops


@jit
def chains(flow, at, use, n_bundles):
    """Return (hops, leader) of every bundle: leader is what it fills together with, or itself.

    A bundle that comes straight after another for every flow of either, at the same use, carries
    the same flows, as those from a GPU to its leaf do: the first of a chain stands for all.

    Args:
        flow: (entries,), rising.
        at: (entries,), bundles; entries with another number, or a use of 0, do not count.
        use: (entries,).
        n_bundles: Number of bundles.
    """
    seen = np.zeros((n_bundles, 3), np.int32)
    before, flow_before, use_before = -1, -1, 0.0
    for k in range(len(flow)):
        b = at[k]
        if b >= n_bundles or use[k] <= 0.0:
            continue
        if flow[k] == flow_before and use[k] == use_before and b != before:
            if seen[before, FOLLOWER] == 0:
                seen[before, FOLLOWER] = b + 1
            seen[before, TWINS] += seen[before, FOLLOWER] == b + 1
        seen[b, 0] += 1
        before, flow_before, use_before = b, flow[k], use[k]
    leader = np.arange(n_bundles).astype(np.int32)
    for a in range(n_bundles):
        b = seen[a, FOLLOWER] - 1
        if b >= 0 and seen[a, 0] == seen[a, TWINS] and seen[b, 0] == seen[a, 0]:
            leader[b] = a
    for b in range(n_bundles):
        first, steps = leader[b], 0
        while leader[first] != first and steps < n_bundles:
            first, steps = leader[first], steps + 1
        # A circle of twins has no first; all of it stays apart.
        leader[b] = first if leader[first] == first else b
    return seen[:, 0].copy(), leader


@jit
def written_out(flow, at, use, ptr, part_class, part_use, n_hops):
    """Return (flow, class, use): hops on bundles as hops on the classes of links that each loads.

    Args:
        flow: (entries,), rising.
        at: (entries,), bundles; entries with another number, or a use of 0, are dropped.
        use: (entries,).
        ptr: (bundles + 1,); `part_class`, `part_use`: (parts,), by bundle.
        part_class: See `ptr`.
        part_use: See `ptr`.
        n_hops: Of the result.
    """
    n_bundles = len(ptr) - 1
    whole = np.full(n_bundles, -1, np.int32)  # the one class that carries all of it, the usual case
    for b in range(n_bundles):
        if ptr[b + 1] == ptr[b] + 1 and part_use[ptr[b]] == 1.0:
            whole[b] = part_class[ptr[b]]
    of, to, share = np.empty(n_hops, np.int32), np.empty(n_hops, np.int32), np.empty(n_hops)
    put = 0
    for k in range(len(at)):
        b = at[k]
        if b >= n_bundles or use[k] <= 0.0:
            continue
        if whole[b] >= 0:
            of[put], to[put], share[put] = flow[k], whole[b], use[k]
            put += 1
            continue
        for i in range(ptr[b], ptr[b + 1]):
            of[put], to[put], share[put] = flow[k], part_class[i], use[k] * part_use[i]
            put += 1
    return of, to, share


@jit
def one_level(flow, link, use, n_flows, n_links):
    """Return (class_of, n_shared, n_classes, flow_ptr, flow_end, hop_at, hop_use) of hops on links.

    Links of one flow are private to it. Those that it uses alike fill together and the smallest
    fills first, so they are one class: a limit of the flow's own. Shared links are classes 0 to
    `n_shared` - 1, in their order; then come private classes; a link without flows has class -1.

    Args:
        flow: (entries,), rising.
        link: (entries,); entries with another link number are dropped.
        use: (entries,); entries of 0 are dropped.
        n_flows: Number of flows.
        n_links: Number of links.

    Returns:
        `flow_ptr`: (flows + 1,), `hop_at`: classes, `hop_use`. Of flow f, hops on shared links run
        from `flow_ptr[f]` to `flow_end[f]`; one on its private class follows if it has any.
    """
    crossing = np.zeros(n_links, np.int32)
    for k in range(len(flow)):
        if link[k] < n_links and use[k] > 0.0:
            crossing[link[k]] += 1
    alone = np.zeros(n_flows)  # use of the private class, 0 without one
    for k in range(len(flow)):
        l = link[k]
        if l < n_links and use[k] > 0.0 and crossing[l] == 1:
            f = flow[k]
            if alone[f] == 0.0:
                alone[f] = use[k]
            if alone[f] == use[k]:
                crossing[l] = -1
    class_of = np.full(n_links, -1, np.int32)
    n_shared, n_hops = 0, 0
    for l in range(n_links):
        if crossing[l] > 0:
            class_of[l] = n_shared
            n_shared += 1
            n_hops += crossing[l]
    for f in range(n_flows):
        n_hops += alone[f] > 0.0
    n_classes = n_shared
    flow_ptr = np.empty(n_flows + 1, np.int64)
    flow_end = np.empty(n_flows, np.int64)
    hop_at, hop_use = np.empty(n_hops, np.int32), np.empty(n_hops)
    flow_ptr[0] = 0
    put, k = 0, 0
    for f in range(n_flows):
        own = n_classes
        while k < len(flow) and flow[k] == f:
            l = link[k]
            if l < n_links and use[k] > 0.0:
                if crossing[l] > 0:
                    hop_at[put], hop_use[put] = class_of[l], use[k]
                    put += 1
                else:
                    class_of[l] = own
            k += 1
        flow_end[f] = put
        if alone[f] > 0.0:
            hop_at[put], hop_use[put] = own, alone[f]
            put += 1
            n_classes += 1
        flow_ptr[f + 1] = put
    return class_of, n_shared, n_classes, flow_ptr, flow_end, hop_at, hop_use


@jit
def by_column(flow_ptr, hop_at, hop_use, n_columns):
    """Return (ptr, flow, use): the hops of every column, flows rising; empty use where None."""
    ptr = np.zeros(n_columns + 1, np.int64)
    for c in hop_at:
        ptr[c + 1] += 1
    for c in range(n_columns):
        ptr[c + 1] += ptr[c]
    put = ptr[:-1].copy()
    flow = np.empty(len(hop_at), np.int32)
    use = np.empty(0 if hop_use is None else len(hop_at))
    for f in range(len(flow_ptr) - 1):
        for h in range(flow_ptr[f], flow_ptr[f + 1]):
            c = hop_at[h]
            flow[put[c]] = f
            if hop_use is not None:
                use[put[c]] = hop_use[h]
            put[c] += 1
    return ptr, flow, use


@jit
def comes_before(l, m):
    """Return whether link l precedes link m in the fixed priority of links, see `hashed_rank`."""
    return mix(np.uint64(l) * GOLDEN) < mix(np.uint64(m) * GOLDEN)


@jit
def members(class_of, n_classes):
    """Return (ptr, link): the links of every class, by the fixed priority that settles ties."""
    ptr = np.zeros(n_classes + 1, np.int64)
    for c in class_of:
        if c >= 0:
            ptr[c + 1] += 1
    for c in range(n_classes):
        ptr[c + 1] += ptr[c]
    put = ptr[:-1].copy()
    link = np.empty(ptr[-1], np.int32)
    for l in range(len(class_of)):
        c = class_of[l]
        if c >= 0:
            link[put[c]] = l
            put[c] += 1
    for c in range(n_classes):
        n = ptr[c + 1] - ptr[c]
        if n > 16:
            sort_by_priority(link[ptr[c] : ptr[c + 1]])
            continue
        for i in range(ptr[c] + 1, ptr[c + 1]):
            l, j = link[i], i
            while j > ptr[c] and comes_before(l, link[j - 1]):
                link[j] = link[j - 1]
                j -= 1
            link[j] = l
    return ptr, link


@jit
def sort_by_priority(links):
    """Sort links in place by the fixed priority that settles ties."""
    key = np.empty(len(links), np.uint64)
    for i in range(len(links)):
        key[i] = mix(np.uint64(links[i]) * GOLDEN)
    links[:] = links[np.argsort(key)]


@jit
def smallest(capacity, member_ptr, member_link):
    """Return (capacity, link) per class: that of its smallest link, the first at a tie."""
    n_classes = len(member_ptr) - 1
    least = np.empty(n_classes)
    link = np.empty(n_classes, np.int32)
    for c in range(n_classes):
        i = member_ptr[c]
        link[c] = member_link[i]
        least[c] = capacity[link[c]]
        for j in range(i + 1, member_ptr[c + 1]):
            l = member_link[j]
            if capacity[l] < least[c]:
                link[c], least[c] = l, capacity[l]
    return least, link
