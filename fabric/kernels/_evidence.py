# numba infers the types of compiled kernels.
# pyright: reportMissingParameterType=false
"""Compiled evidence on rates: the load of every link, and how far a solution is from max-min."""

import numba
import numpy as np

jit = numba.njit(cache=True, nogil=True)


@jit
def loads(
    rate, hop_flow, hop_bundle, hop_use, part_bundle, part_link, part_use, n_bundles, n_links
):
    """Return (links,), the load of every link; padding lies one past the end and is dropped."""
    bundle = np.zeros(n_bundles)
    for h in range(len(hop_flow)):
        if hop_bundle[h] < n_bundles and hop_use[h] > 0.0:
            bundle[hop_bundle[h]] += hop_use[h] * rate[hop_flow[h]]
    if len(part_link) == 0:
        return bundle
    link = np.zeros(n_links)
    for p in range(len(part_link)):
        if part_link[p] < n_links and part_use[p] > 0.0:
            link[part_link[p]] += part_use[p] * bundle[part_bundle[p]]
    return link


@jit
def tops(
    level, hop_flow, hop_bundle, hop_use, part_bundle, part_link, part_use, n_bundles, n_links
):
    """Return (links,), the largest level among the flows on every link; 0 where there is none."""
    bundle = np.zeros(n_bundles)
    for h in range(len(hop_flow)):
        b = hop_bundle[h]
        if b < n_bundles and hop_use[h] > 0.0 and level[hop_flow[h]] > bundle[b]:
            bundle[b] = level[hop_flow[h]]
    if len(part_link) == 0:
        return bundle
    link = np.zeros(n_links)
    for p in range(len(part_link)):
        l = part_link[p]
        if l < n_links and part_use[p] > 0.0 and bundle[part_bundle[p]] > link[l]:
            link[l] = bundle[part_bundle[p]]
    return link


@jit
def crossing(bottleneck, hop_flow, hop_bundle, hop_use, bundle_ptr, bundle_link):
    """Return (flows,), whether each flow crosses its bottleneck link.

    Args:
        bottleneck: (flows,), link numbers.
        hop_flow: (hops,).
        hop_bundle: (hops,).
        hop_use: (hops,).
        bundle_ptr: (bundles + 1,), or empty when bundles are links.
        bundle_link: (parts,), links rising within each bundle.
    """
    crosses = np.zeros(len(bottleneck), np.bool_)
    for h in range(len(hop_flow)):
        f = hop_flow[h]
        if f >= len(bottleneck) or hop_use[h] <= 0.0 or crosses[f]:
            continue
        b, l = hop_bundle[h], bottleneck[f]
        if len(bundle_ptr) == 0:
            crosses[f] = b == l
            continue
        low, high = bundle_ptr[b], bundle_ptr[b + 1]
        while low < high:
            middle = (low + high) // 2
            if bundle_link[middle] < l:
                low = middle + 1
            else:
                high = middle
        crosses[f] = low < bundle_ptr[b + 1] and bundle_link[low] == l
    return crosses
