"""Routes over several ways at once, each with a share of the flow."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric._memory import afford
from fabric.network import Flows, Routes, frozen

_BYTES_PER_HOP = 64


class Ways(NamedTuple):
    """Part of the flows over part of some routes: entry i is `share[i]` of a flow over a row."""

    routes: Routes
    flow: Int[np.ndarray, " entries"]
    row: Int[np.ndarray, " entries"]
    share: Float[np.ndarray, " entries"]


def blend(what: str, flows: Flows, ways: Sequence[Ways]) -> Routes:
    """Return two-level routes with a row per flow, over all its ways; a bundle occurs once in it.

    Args:
        what: Who asks, and for how much; for the message where memory is short.
        flows: With weights and caps.
        ways: Whose routes have a row per entry, all of one network.

    Raises:
        InfeasibleError: If the hops would not fit in memory.
    """
    from fabric.kernels._walks import snapped

    base, columns, parts = 0, [], []
    ptrs = [_ptr(routes) for routes, *_ in ways]
    n_hops = sum(int(np.diff(ptr)[way.row].sum()) for ptr, way in zip(ptrs, ways, strict=True))
    afford(what, _BYTES_PER_HOP * n_hops, "Give fewer intermediates or fewer flows.")
    for (routes, flow, row, share), ptr in zip(ways, ptrs, strict=True):
        width = np.diff(ptr)[row]
        hop = np.repeat(ptr[row] - (np.cumsum(width) - width), width) + np.arange(width.sum())
        columns.append(
            (
                np.repeat(flow, width).astype(np.int64),
                np.asarray(routes.hop_bundle)[hop].astype(np.int64) + base,
                np.asarray(routes.hop_use)[hop] * np.repeat(share, width),
            )
        )
        parts.append(_parts(routes, base))
        base += routes.n_bundles
    flow, bundle, use = (np.concatenate(column) for column in zip(*columns, strict=True))
    kept = use > 0
    key = flow[kept] * base + bundle[kept]
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    total = snapped(np.add.reduceat(use[kept][order], first)) if len(first) else np.empty(0)
    hop_flow, hop_bundle = np.divmod(key[first], max(base, 1))
    part_bundle, part_link, part_use = (np.concatenate(part) for part in zip(*parts, strict=True))
    n_links = ways[0].routes.n_links
    return Routes(
        frozen(hop_flow.astype(np.int32)), frozen(hop_bundle.astype(np.int32)), frozen(total),
        frozen(part_bundle.astype(np.int32)), frozen(part_link), frozen(part_use),
        np.asarray(flows.weight, np.float64), np.asarray(flows.cap, np.float64),
        frozen(np.arange(flows.n_flows, dtype=np.int32)),
        n_links=n_links, n_bundles=base if len(part_link) else n_links, n_pairs=flows.n_flows,
    )  # fmt: skip


def in_pairs(routes: Routes, pairs: int) -> Routes:
    """Return routes where every row is several queue pairs, which all go the same way."""
    if pairs == 1:
        return routes
    ptr, n = _ptr(routes), routes.n_flows
    width = np.repeat(np.diff(ptr), pairs)
    hop = np.repeat(np.repeat(ptr[:-1], pairs) - (np.cumsum(width) - width), width)
    hop += np.arange(len(hop))
    return Routes(
        frozen(np.repeat(np.arange(n * pairs, dtype=np.int32), width)),
        frozen(np.asarray(routes.hop_bundle)[hop]), frozen(np.asarray(routes.hop_use)[hop]),
        routes.part_bundle, routes.part_link, routes.part_use,
        np.repeat(np.asarray(routes.weight) / pairs, pairs),
        np.repeat(np.asarray(routes.cap) / pairs, pairs),
        frozen(np.repeat(np.arange(n, dtype=np.int32), pairs)),
        n_links=routes.n_links, n_bundles=routes.n_bundles, n_pairs=n,
    )  # fmt: skip


def _ptr(routes: Routes) -> Int[np.ndarray, " ptr"]:
    return np.searchsorted(np.asarray(routes.hop_flow), np.arange(routes.n_flows + 1))


def _parts(routes: Routes, base: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if routes.n_parts or not routes.n_hops:
        bundle, link = np.asarray(routes.part_bundle), np.asarray(routes.part_link)
        return bundle + base, link, np.asarray(routes.part_use)
    link = np.arange(routes.n_links, dtype=np.int32)
    return link + base, link, np.ones(len(link))
