"""`Routes` of flows that are split over paths, a bundle per pair of switches."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric.network import Flows, Routes
from fabric.optimize._path_sets import PathSet


class Template(NamedTuple):
    """Routes whose pair bundles are yet empty, and how splits fill them.

    Part `of` takes `share` times the split `row`, for every path, hop and parallel link.
    """

    routes: Routes
    row: Int[np.ndarray, " entries"]
    share: Float[np.ndarray, " entries"]
    of: Int[np.ndarray, " entries"]

    def filled(self, splits: Float[np.ndarray, "pairs width"]) -> Routes:
        """Return the routes under some splits, parts that carry nothing left out."""
        empty = self.routes
        use = np.asarray(empty.part_use, np.float64).copy()
        np.add.at(use, self.of, splits.ravel()[self.row] * self.share)
        kept = use > 0
        return Routes.from_bundles(
            empty.hop_flow, empty.hop_bundle, empty.hop_use, empty.part_bundle[kept],
            empty.part_link[kept], use[kept], n_flows=empty.n_flows, n_bundles=empty.n_bundles,
            n_links=empty.n_links, weights=empty.weight, caps=empty.cap,
        )  # fmt: skip


def template(paths: PathSet, flows: Flows) -> Template:
    """Return the routes of flows over the pairs they belong to.

    Bundles are the trunks, for the links at both ends, and behind them the pairs.
    """
    of_link, share = paths.trunks.of_link, paths.trunks.share
    n_trunks, n_links = paths.n_trunks, len(of_link)
    links, _ = paths.trunks.links(np.arange(n_trunks))
    row, column = np.nonzero(paths.hops < n_trunks)
    link, of_hop = paths.trunks.links(paths.hops[row, column])
    row = row[of_hop]
    key = row // paths.width * n_links + link
    parts, of = np.unique(key, return_inverse=True)

    n_flows = flows.n_flows
    flow = np.arange(n_flows)
    pair = np.where(paths.pair_of >= 0, n_trunks + paths.pair_of, -1)
    bundles = np.stack([paths.leave, pair, paths.arrive], axis=1)
    hop_flow = np.repeat(flow, 3)[(bundles >= 0).ravel()]
    routes = Routes.from_bundles(
        hop_flow, bundles[bundles >= 0], 1.0,
        np.r_[of_link[links], n_trunks + parts // n_links], np.r_[links, parts % n_links],
        np.r_[share[links], np.zeros(len(parts))],
        n_flows=n_flows, n_bundles=n_trunks + paths.n_pairs, n_links=n_links,
        weights=flows.weight, caps=flows.cap,
    )  # fmt: skip
    return Template(routes, row, share[link], len(links) + of)
