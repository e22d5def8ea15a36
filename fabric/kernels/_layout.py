# numba infers the types of compiled kernels.
# pyright: reportMissingParameterType=false
"""Compiled layouts of routes: transposes, and links merged that always fill together."""

import numba
import numpy as np

jit = numba.njit(cache=True, nogil=True)


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


@jit
def smallest(capacity, class_of, rank, n_classes):
    """Return (capacity, link) per class: that of its smallest link, the first to fill by rank."""
    least = np.full(n_classes, np.inf)
    link = np.full(n_classes, -1, np.int32)
    for l in range(len(capacity)):
        c = class_of[l]
        if c < 0 or capacity[l] > least[c]:
            continue
        if capacity[l] < least[c] or link[c] < 0 or rank[l] < rank[link[c]]:
            least[c] = capacity[l]
            link[c] = l
    return least, link
