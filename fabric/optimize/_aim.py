"""`Aim`: what an optimiser of splits is after, exactly, and the bound that prices give."""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric._typing import AnyArray
from fabric.network import Network
from fabric.optimize._certificate import Limit, averaged, price_bound, risk
from fabric.optimize._demands import Demands
from fabric.optimize._fair_loads import fair_amounts
from fabric.optimize._path_sets import PathSet
from fabric.optimize._split_routes import Template, template
from fabric.solvers import max_min_rates

OBJECTIVES = ("utilisation", "rate", "time")
OVERS = ("worst", "mean", "sum", "cvar")
_ROUNDS = 50


class Over(NamedTuple):
    """How several matrices count."""

    name: str
    tail: float  # of the runs that "cvar" averages
    counts: Float[np.ndarray, " matrices"]  # how often each matrix runs

    @property
    def share(self) -> Float[np.ndarray, " matrices"]:
        """The part of all runs that each matrix has."""
        return self.counts / self.counts.sum()


class Loads(NamedTuple):
    """What pairs carry, and what links at the ends do; the last edge stands for the caps."""

    demand: Float[np.ndarray, "pairs matrices"]
    base: Float[np.ndarray, "edges matrices"]


class Aim:
    """The objective, exactly, in float64.

    Everything inside is minimised; for "rate" that is the inverse of the smallest rate per weight,
    for a sum over matrices the mean.

    Args:
        name: One of `OBJECTIVES`.
        over: How several matrices count.
        network: As given.
        paths: Pairs and paths.
        demand: Flows and amounts.
        ways: What the paths were asked for as.

    Attributes:
        traffic: (pairs, matrices), what is to be carried.
        loads: What is carried at least, which is more than that for "time".
    """

    def __init__(
        self, name: str, over: Over, network: Network, paths: PathSet, demand: Demands,
        ways: str | int,
    ):  # fmt: skip
        self.name, self.over, self.share = name, over, over.share
        self.network, self.paths, self.ways = network, paths, ways
        self.flows, self.amounts = demand
        self.capacity = np.r_[np.asarray(paths.trunks.network.capacity, np.float64), 1.0]
        plain = self._carried(self.amounts)
        self.traffic = plain.demand
        self._alone = (plain.base / self.capacity[:, None]).max(axis=0)
        self.loads = self._fair(self._alone) if name == "time" else plain

    def _carried(self, amounts: Float[np.ndarray, "flows matrices"]) -> Loads:
        paths, n = self.paths, self.paths.n_trunks
        ends = _summed(amounts, paths.leave, n) + _summed(amounts, paths.arrive, n)
        caps = np.zeros((1, amounts.shape[1]))
        if self.name != "utilisation":
            cap = np.asarray(self.flows.cap, np.float64)
            caps[0] = (self.amounts / cap[:, None]).max(axis=0, initial=0)
        return Loads(_summed(amounts, paths.pair_of, paths.n_pairs), np.concatenate([ends, caps]))

    def _fair(self, seconds: Float[np.ndarray, " matrices"]) -> Loads:
        """Return what is carried in phases that take so long at least."""
        capacity = self.capacity[:-1]
        return self._carried(fair_amounts(self.paths, self.flows, self.amounts, capacity, seconds))

    @functools.cached_property
    def template(self) -> Template:
        """Routes for exact rates, to be filled with splits."""
        return template(self.paths, self.flows)

    @functools.cached_property
    def caps(self) -> Float[np.ndarray, "flows matrices"]:
        """Cap of every flow in every matrix: 0 where it has nothing to send."""
        return np.where(self.amounts > 0, np.asarray(self.flows.cap)[:, None], 0)

    def uses(self, splits: Float[np.ndarray, "pairs width"]) -> Float[np.ndarray, "edges matrices"]:
        """Return load over capacity of every trunk, in every matrix."""
        load = self.loads.base.copy()
        hops, n_trunks = self.paths.hops, self.paths.n_trunks
        for m, demand in enumerate(self.loads.demand.T):
            sent = np.repeat((splits * demand[:, None]).ravel(), hops.shape[1])
            load[:-1, m] += np.bincount(hops.ravel(), sent, n_trunks + 1)[:-1]
        return load / self.capacity[:, None]

    def score(self, splits: Float[np.ndarray, "pairs width"]) -> float:
        """Return what is minimised, of some splits."""
        if self.name == "utilisation":
            return self._over(self.uses(splits).max(axis=0))
        routes = self.template.filled(splits)
        worst = []
        for amount, cap in zip(self.amounts.T, self.caps.T, strict=True):
            rates = np.asarray(max_min_rates(self.network, routes, caps=cap).rates)
            with np.errstate(divide="ignore"):  # a rate of 0 never ends
                worst.append((amount[amount > 0] / rates[amount > 0]).max(initial=0))
        return self._over(np.array(worst))

    def _over(self, worst: Float[np.ndarray, " matrices"]) -> float:
        return risk(worst, self.share, self.over.name, self.over.tail)

    def whole(self, splits: AnyArray) -> Float[np.ndarray, "pairs width"]:
        """Return splits in float64, whose rows are 1 in all."""
        kept = np.where(self.paths.valid, np.asarray(splits, np.float64), 0)
        return kept / kept.sum(axis=1, keepdims=True)

    def least(self) -> float:
        """Return what the links at the ends and the caps alone make of the objective."""
        return self._over(self._alone)

    def bound(self, prices: Float[np.ndarray, "edges matrices"], limit: Limit | None) -> float:
        """Return the bound of some prices, in float64."""
        paid = (prices * self.capacity[:, None]).sum(axis=0)
        if not paid.sum() > 0:
            return self.least()
        unit = prices * np.where(paid > 0, 1 / np.where(paid > 0, paid, 1), 0)
        padded = np.concatenate([unit[:-1], np.zeros((1, len(paid)))])
        valid = self.paths.valid
        cost = padded[self.paths.hops].sum(axis=1).reshape(*valid.shape, len(paid))
        loads = self._proved(unit, cost, limit) if self.name == "time" else self.loads
        weight = averaged(paid, self.share, self.over.name, self.over.tail)
        marginal = (cost * loads.demand[:, None, :]) @ weight
        found = price_bound(np, marginal, valid, limit) + (unit * loads.base).sum(axis=0) @ weight
        return max(float(found), self.least())

    def _proved(
        self,
        unit: Float[np.ndarray, "edges matrices"],
        cost: Float[np.ndarray, "pairs width matrices"],
        limit: Limit | None,
    ) -> Loads:
        """Return loads whose bounds on the times of the matrices give these loads again."""
        seconds, loads = self._alone, self.loads
        for _ in range(_ROUNDS):
            each = (unit * loads.base).sum(axis=0) + np.array([
                price_bound(np, one * demand[:, None], self.paths.valid, limit)
                for one, demand in zip(np.moveaxis(cost, 2, 0), loads.demand.T, strict=True)
            ])  # fmt: skip
            if (each <= seconds * (1 + 1e-9)).all():
                break
            seconds = np.maximum(seconds, each)
            loads = self._fair(seconds)
        return loads

    def shown(self, value: float) -> float:
        """Return a value as the caller knows it."""
        if self.name == "rate":
            return 1 / value if value > 0 else float("inf")
        return value * float(self.over.counts.sum() if self.over.name == "sum" else 1)


def _summed(
    amounts: Float[np.ndarray, "flows matrices"], of: Int[np.ndarray, " flows"], n: int
) -> Float[np.ndarray, "rows matrices"]:
    """Return the amounts by what each flow belongs to; -1: to nothing."""
    there = of >= 0
    columns = [np.bincount(of[there], column[there], n) for column in amounts.T]
    # Of no flows `bincount` counts in whole numbers, whatever the weights.
    return np.stack(columns, axis=1).astype(np.float64)
