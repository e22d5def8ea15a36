"""Rates of flows over many random permutations, one draw of paths each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import fabric as fb
from fabric.network import Flows, Network, Routes

Route = Callable[[Network, Flows, int], Routes]
"""Routes of flows on a network; the number is the seed of whatever is drawn."""

Pairs = Callable[[Network, int], Flows]
"""Flows of one draw."""


@dataclass(frozen=True)
class Drawn:
    """Rates of all draws, in units of a host's link.

    Attributes:
        rates: Of every flow, by draw.
        whole: Of messages that are cut over the rows of a flow, and done with the slowest row.
        idle: Share of the links from leaves upward that carry nothing, by draw.
    """

    rates: Sequence[np.ndarray]
    whole: Sequence[np.ndarray]
    idle: Sequence[float]

    @property
    def mean(self) -> float:
        """Mean over draws of the mean rate."""
        return float(np.mean([each.mean() for each in self.rates]))

    @property
    def error(self) -> float:
        """Standard error of `mean`."""
        means = [each.mean() for each in self.rates]
        return float(np.std(means, ddof=1) / np.sqrt(len(means)))

    @property
    def slowest(self) -> float:
        """Mean over draws of the slowest flow: what waits for all runs at this."""
        return float(np.mean([each.min() for each in self.rates]))

    @property
    def mean_whole(self) -> float:
        """Mean over draws of the mean rate of messages that wait for their slowest row."""
        return float(np.mean([each.mean() for each in self.whole]))

    def quantiles(self, at: Sequence[float]) -> list[float]:
        """Return quantiles over the flows of all draws."""
        return [round(float(x), 4) for x in np.quantile(np.concatenate(self.rates), at)]


def permuted(network: Network, seed: int) -> Flows:
    """Return a random permutation of the hosts, those that stay in place left out."""
    return fb.traffic.permutation(network.hosts, seed=seed, fixed_points=True)


def hashed(queue_pairs: int = 1) -> Route:
    """Return ECMP with so many queue pairs."""
    return lambda network, flows, seed: fb.routing.ecmp(
        network, flows, seed=seed, queue_pairs=queue_pairs
    )


def sprayed(network: Network, flows: Flows, _seed: int) -> Routes:
    """Return equal fractions on all shortest paths."""
    return fb.routing.spray(network, flows)


def draw(network: Network, route: Route, draws: int, pairs: Pairs = permuted) -> Drawn:
    """Return the max-min rates of `draws` draws, seeds 0 and up."""
    labels = network.labels
    link = float(np.asarray(network.capacity)[labels.is_kind("host")[labels.src]].max())
    inner = ~labels.is_kind("host")
    up = np.flatnonzero(inner[labels.src] & inner[labels.dst] & (labels.src < labels.dst))
    rates, whole, idle = [], [], []
    for seed in range(draws):
        flows = pairs(network, seed)
        routes = route(network, flows, seed)
        solution = fb.max_min_rates(network, routes)
        by_row = np.asarray(solution.rates).reshape(flows.n_flows, -1) / link
        rates.append(by_row.sum(axis=1))
        whole.append(by_row.min(axis=1) * by_row.shape[1])
        idle.append(float(np.mean(~np.isin(up, used(routes)))))
    return Drawn(rates, whole, idle)


def used(routes: Routes) -> np.ndarray:
    """Return the links that carry something."""
    links = np.unique(np.asarray(routes.hop_bundle)[np.asarray(routes.hop_use) > 0])
    if not routes.n_parts:
        return links
    parts = np.isin(np.asarray(routes.part_bundle), links) & (np.asarray(routes.part_use) > 0)
    return np.unique(np.asarray(routes.part_link)[parts])
