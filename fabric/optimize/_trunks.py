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
