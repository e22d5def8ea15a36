"""`Aim`: what an optimiser of splits is after, exactly, and the bound that prices give."""

import functools

import numpy as np
from jaxtyping import Float

from fabric._typing import AnyArray
from fabric.network import Network
from fabric.optimize._certificate import Limit, price_bound, risk
from fabric.optimize._demands import Demands
from fabric.optimize._path_sets import PathSet
from fabric.optimize._split_routes import Template, template
from fabric.solvers import max_min_rates

OBJECTIVES = ("utilisation", "rate", "time")
OVERS = ("worst", "mean", "cvar")


class Aim:
    """The objective, exactly, in float64.

    Everything inside is minimised; for "rate" that is the inverse of the smallest rate per weight.

    Args:
        name: One of `OBJECTIVES`.
        over: How several matrices count.
        tail: The share of matrices that "cvar" averages.
        network: As given.
        paths: Pairs and paths.
        demand: Flows and amounts.
        ways: What the paths were asked for as.
    """

    def __init__(
        self, name: str, over: str, tail: float, network: Network, paths: PathSet, demand: Demands,
        ways: str | int,
    ):  # fmt: skip
        self.name, self.over, self.tail = name, over, tail
        self.network, self.paths, self.ways = network, paths, ways
        self.flows, self.amounts = demand
        n_trunks, matrices = paths.n_trunks, self.amounts.shape[1]
        of = lambda index, n: np.stack(
            [np.bincount(index[index >= 0], column[index >= 0], n) for column in self.amounts.T],
            axis=1,
        )
        self.demand = of(paths.pair_of, paths.n_pairs)
        self.capacity = np.r_[np.asarray(paths.trunks.network.capacity, np.float64), 1.0]
        self.base = np.zeros((n_trunks + 1, matrices))
        self.base[:-1] = of(paths.leave, n_trunks) + of(paths.arrive, n_trunks)
        if name != "utilisation":
            cap = np.asarray(self.flows.cap, np.float64)
            self.base[-1] = (self.amounts / cap[:, None]).max(axis=0)

    @functools.cached_property
    def template(self) -> Template:
        """Routes for exact rates, to be filled with splits."""
        return template(self.paths, self.flows)

    def uses(self, splits: Float[np.ndarray, "pairs width"]) -> Float[np.ndarray, "edges matrices"]:
        """Return load over capacity of every trunk, in every matrix."""
        load = self.base.copy()
        hops, n_trunks = self.paths.hops, self.paths.n_trunks
        for m, demand in enumerate(self.demand.T):
            sent = (splits * demand[:, None]).ravel()
            weight = np.repeat(sent, hops.shape[1])
            load[:, m] += np.bincount(hops.ravel(), weight, n_trunks + 1) * self._trunk
        return load / self.capacity[:, None]

    @functools.cached_property
    def _trunk(self) -> np.ndarray:
        """1 for trunks, 0 for the row that stands for no hop."""
        return np.r_[np.ones(self.paths.n_trunks), 0.0]

    def score(self, splits: Float[np.ndarray, "pairs width"]) -> float:
        """Return what is minimised, of some splits."""
        if self.name == "utilisation":
            return risk(self.uses(splits).max(axis=0), self.over, self.tail)
        routes = self.template.filled(splits)
        worst = []
        for amount, cap in zip(self.amounts.T, self.caps.T, strict=True):
            rates = np.asarray(max_min_rates(self.network, routes, caps=cap).rates)
            worst.append((amount[amount > 0] / rates[amount > 0]).max(initial=0))
        return risk(np.array(worst), self.over, self.tail)

    @functools.cached_property
    def caps(self) -> Float[np.ndarray, "flows matrices"]:
        """Cap of every flow in every matrix: 0 where it has nothing to send."""
        return np.where(self.amounts > 0, np.asarray(self.flows.cap)[:, None], 0)

    def whole(self, splits: AnyArray) -> Float[np.ndarray, "pairs width"]:
        """Return splits in float64, whose rows are 1 in all."""
        kept = np.where(self.paths.valid, np.asarray(splits, np.float64), 0)
        return kept / kept.sum(axis=1, keepdims=True)

    def least(self) -> float:
        """Return what the links at the ends and the caps alone make of the objective."""
        return risk((self.base / self.capacity[:, None]).max(axis=0), self.over, self.tail)

    def bound(self, prices: Float[np.ndarray, "edges matrices"], limit: Limit | None) -> float:
        """Return the bound of some prices, in float64."""
        paid = (prices * self.capacity[:, None]).sum(axis=0)
        if not paid.sum() > 0:
            return self.least()
        # The weights of the matrices are made to be an average that the objective allows.
        n = len(paid)
        if self.over == "mean":
            weight = np.full(n, 1 / n)
        elif self.over == "worst":
            weight = paid / paid.sum()
        else:
            weight = np.minimum(paid / paid.sum(), 1 / max(self.tail * n, 1))
        prices = prices * np.where(paid > 0, weight / np.where(paid > 0, paid, 1), 0)
        padded = np.r_[prices[:-1], np.zeros((1, n))]
        cost = padded[self.paths.hops].sum(axis=1).reshape(*self.paths.valid.shape, n)
        marginal = (cost * self.demand[:, None, :]).sum(axis=2)
        found = price_bound(np, marginal, self.paths.valid, limit) + (prices * self.base).sum()
        return max(float(found), self.least())

    def shown(self, value: float) -> float:
        """Return a value as the caller knows it."""
        return 1 / value if self.name == "rate" and value > 0 else value
