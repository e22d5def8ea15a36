"""From walked rows to `Routes`."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from fabric.network import Flows, Routes, frozen

Piece = tuple[int, int, np.ndarray]
"""Rows `begun` to `stop`, in the order they were walked, and their hops, row after row."""

CHUNK = 1 << 20


def chunk_for(longest: int, rows: int) -> Int[np.ndarray, " hops"]:
    """Return room for hops: enough for any one row, and for some of many rows."""
    return np.empty(max(longest, min(CHUNK, 4 * longest * rows)), np.int32)


def routes_from(
    flows: Flows,
    pairs: int,
    order: Int[np.ndarray, " flows"],
    pieces: Sequence[Piece],
    length: Int[np.ndarray, " rows"],
    n_links: int,
    n_bundles: int,
    parts: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
) -> Routes:
    """Return the routes of walked rows; values are right by construction and not checked again.

    Args:
        flows: The flows, with weights and caps.
        pairs: Queue pairs per flow.
        order: The flows in the order they were walked.
        pieces: The hops, piece by piece.
        length: Hops of each row; of each flow where all its queue pairs go the same way.
        n_links: Links of the network.
        n_bundles: Bundles; links where there are no parts.
        parts: (bundle, link, use) of each part.
    """
    from fabric.kernels._paths import scatter_rows

    n_rows = flows.n_flows * pairs
    each = 1 if len(length) == flows.n_flows else pairs
    ptr = np.concatenate([[0], np.cumsum(length, dtype=np.int64)])
    hop_flow, hop_bundle = np.empty(int(ptr[-1]), np.int32), np.empty(int(ptr[-1]), np.int32)
    for begun, stop, chunk in pieces:
        scatter_rows(order, each, begun, stop, ptr, chunk, hop_flow, hop_bundle)
    if each != pairs:
        width = np.repeat(length, pairs)
        hop_flow = np.repeat(np.arange(n_rows, dtype=np.int32), width)
        shift = np.repeat(ptr[:-1], pairs) - (np.cumsum(width, dtype=np.int64) - width)
        hop_bundle = hop_bundle[np.arange(len(hop_flow)) + np.repeat(shift, width)]
    none = np.empty(0, np.int32)
    part_bundle, part_link, part_use = parts or (none, none, np.empty(0))
    return Routes(
        frozen(hop_flow), frozen(hop_bundle), frozen(np.ones(len(hop_flow))),
        frozen(part_bundle), frozen(part_link), frozen(part_use),
        np.repeat(np.asarray(flows.weight, np.float64) / pairs, pairs),
        np.repeat(np.asarray(flows.cap, np.float64) / pairs, pairs),
        frozen(np.repeat(np.arange(flows.n_flows, dtype=np.int32), pairs)),
        n_links=n_links, n_bundles=n_bundles, n_pairs=flows.n_flows,
    )  # fmt: skip
