"""What capacity costs: groups of links, and the money in each of them as built."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError, nearest, raise_faults
from fabric._units import parse_rate
from fabric.network import Network

Price = str | float


@dataclass(frozen=True)
class Priced:
    """Groups of links whose capacity is bought.

    Attributes:
        names: Of the groups.
        group_of: (links,), the group of each link; the number of groups for links that stay.
        cost: (groups,), money for the group at the capacities of the network.
    """

    names: tuple[str, ...]
    group_of: Int[np.ndarray, " links"]
    cost: Float[np.ndarray, " groups"]

    @property
    def n_groups(self) -> int:
        """How many there are."""
        return len(self.names)

    @classmethod
    def of(
        cls,
        network: Network,
        prices: Mapping[str, Price],
        groups: Mapping[str, Sequence[int]] | None = None,
    ) -> "Priced":
        """Return the groups of a network.

        Args:
            network: With labels.
            prices: By tier, or by name of `groups`: money per byte/s of a cable, both directions
                together; or text such as "0.8 per Gb/s".
            groups: Links by name. Default: the tiers.

        Raises:
            ModelError: If a name is unknown, a price is not above 0, or links are in two groups.

        Examples:
            >>> import fabric as fb
            >>> net = fb.topologies.leaf_spine(2, 2, 2, capacity="8Gb/s")
            >>> Priced.of(net, {"leaf-spine": "3 per Gb/s"}).cost.tolist()
            [96.0]
        """
        labels = network.labels
        tiers = {tier: np.flatnonzero(labels.tier_of == i) for i, tier in enumerate(labels.tiers)}
        known = tiers if groups is None else {k: np.asarray(v, np.int64) for k, v in groups.items()}
        faults = [
            f"`prices` has '{name}', which is no {'tier' if groups is None else 'group'}. "
            f"{nearest(name, list(known))}"
            for name in prices
            if name not in known
        ]  # fmt: skip
        if not prices:
            faults.append(f"`prices` is empty. Give one for some of {', '.join(known)}.")
        each = {name: _price(name, price, faults) for name, price in prices.items()}
        group_of = np.full(network.n_links, len(prices), np.int64)
        cost = np.zeros(len(prices))
        capacity = np.asarray(network.capacity, np.float64)
        for i, name in enumerate(name for name in prices if name in known):
            links = known[name]
            if np.any(group_of[links] < len(prices)):
                faults.append(f"Links of group '{name}' are in another group too. Take them apart.")
            group_of[links] = i
            cables, which = np.unique(labels.cable_of[links], return_inverse=True)
            wide = np.zeros(len(cables))
            np.maximum.at(wide, which.ravel(), capacity[links])
            cost[i] = each[name] * wide.sum()
            if not cost[i] > 0:
                faults.append(f"Group '{name}' has no capacity that could be bought. Leave it out.")
        raise_faults(list(dict.fromkeys(faults)))
        return cls(tuple(prices), group_of, cost)


def _price(name: str, price: object, faults: list[str]) -> float:
    """Return money per byte/s, or note what is wrong."""
    value = math.nan
    if isinstance(price, str):
        amount, _, unit = price.partition(" per ")
        try:
            value = float(amount) / parse_rate(f"1{unit.strip()}", f"prices['{name}']")
        except (ValueError, ModelError):
            value = math.nan
    elif isinstance(price, int | float) and not isinstance(price, bool):
        value = float(price)
    if not (math.isfinite(value) and value > 0):
        faults.append(
            f"`prices['{name}']` needs money above 0 per byte/s, or text such as '0.8 per Gb/s', "
            f"but is {price!r}."
        )
        return math.nan
    return value
