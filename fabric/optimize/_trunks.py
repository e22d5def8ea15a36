"""Parallel links as one: what a split over paths chooses between."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric.network import Network


class Trunks(NamedTuple):
    """Live links that run from one node to another, merged; trunk t stands for all of its links.

    Traffic of a trunk spreads over its links in proportion to capacity, which loads all alike.
    """

    network: Network  # one link per trunk, capacities summed
    of_link: Int[np.ndarray, " links"]  # -1: dead, or without capacity
    share: Float[np.ndarray, " links"]  # of its trunk's traffic

    def links(
        self, trunk: Int[np.ndarray, " some"]
    ) -> tuple[Int[np.ndarray, " entries"], Int[np.ndarray, " entries"]]:
        """Return the links of some trunks, one trunk after another, and which of these each is of.

        Examples:
            >>> import fabric as fb
            >>> found = trunks(fb.topologies.full_mesh(2))
            >>> [each.tolist() for each in found.links(np.array([1, 0, 1]))]
            [[1, 0, 1], [0, 1, 2]]
        """
        live = np.flatnonzero(self.of_link >= 0)
        sorted_links = live[np.argsort(self.of_link[live], kind="stable")]
        count = np.bincount(self.of_link[live], minlength=self.network.n_links)
        first, each = np.cumsum(count) - count, count[trunk]
        of = np.repeat(np.arange(len(trunk)), each)
        place = np.arange(len(of)) - np.repeat(np.cumsum(each) - each, each)
        return sorted_links[first[trunk][of] + place], of


def trunks(network: Network) -> Trunks:
    """Return the trunks of a network, in the order of their first links.

    Dead links and links without capacity are in none, and neither are parallel links of another
    routing cost in the same one.
    """
    labels = network.labels
    capacity = np.asarray(network.capacity, np.float64)
    live = np.flatnonzero(np.asarray(network.alive) & (capacity > 0))
    _, cost = np.unique(np.asarray(network.routing_cost)[live], return_inverse=True)
    ends = labels.src[live].astype(np.int64) * labels.n_nodes + labels.dst[live]
    _, pair = np.unique(ends, return_inverse=True)
    key = pair.astype(np.int64) * (cost.max(initial=0) + 1) + cost
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    of_link = np.full(network.n_links, -1, np.int64)
    of_link[live] = rank[group]
    total = np.bincount(rank[group], capacity[live], len(order))
    share = np.zeros(network.n_links)
    share[live] = capacity[live] / total[rank[group]]
    kept = np.zeros(network.n_links, bool)
    kept[live[first]] = True
    cost_of = np.asarray(network.routing_cost)[kept]
    merged = Network(total, routing_cost=cost_of, labels=labels.keep_links(kept))
    return Trunks(merged, of_link, share)
