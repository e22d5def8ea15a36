"""What capacity costs: groups of links, and the money in each of them as built."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError, nearest, raise_faults, some
from fabric._typing import AnyArray
from fabric._units import parse_rate
from fabric.network import Network, whole_array

Price = str | float
Groups = Mapping[str, Sequence[int] | AnyArray]
"""Links by name."""


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

    def faster(self, network: Network, factors: Float[np.ndarray, " groups"]) -> Network:
        """Return the network at some factors of its capacities."""
        built = np.asarray(network.capacity)
        wide = np.append(factors, 1.0)[self.group_of]
        return network.with_capacity((built * wide).astype(built.dtype))

    @classmethod
    def of(
        cls,
        network: Network,
        prices: Mapping[str, Price],
        groups: Groups | None = None,
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
        labels, faults = network.labels, list[str]()
        for word, given in (("prices", prices), ("groups", groups)):
            if not (isinstance(given, Mapping) or (word == "groups" and given is None)):
                faults.append(f"`{word}` needs a mapping by name, but got {type(given).__name__}.")
        raise_faults(faults)
        if groups is None:
            of = enumerate(labels.tiers)
            known = {tier: np.flatnonzero(labels.tier_of == i) for i, tier in of}
        else:
            known = {name: _links(network, name, ids, faults) for name, ids in groups.items()}
        faults += [
            f"`prices` has '{name}', which is no {'tier' if groups is None else 'group'}. "
            f"{nearest(name, list(known))}"
            for name in prices
            if name not in known
        ]  # fmt: skip
        if not prices:
            faults.append(f"`prices` is empty. Give one for some of {', '.join(known)}.")
        each = {name: _price(name, price, faults) for name, price in prices.items()}
        cables, cable_of = np.unique(labels.cable_of, return_inverse=True)
        capacity = np.asarray(network.capacity, np.float64)
        names, n = tuple(prices), len(prices)
        group_of, owner, cost = np.full(network.n_links, n), np.full(len(cables), n), np.zeros(n)
        for i, name in enumerate(names):
            links = known.get(name, np.zeros(0, np.int64))
            if np.any(group_of[links] < n):
                faults.append(f"Links of group '{name}' are in another group too. Take them apart.")
            elif others := np.unique(owner[cable_of[links]][owner[cable_of[links]] < n]).tolist():
                faults.append(
                    f"Group '{name}' has one direction of cables whose other one is in "
                    f"'{names[others[0]]}'. A cable is bought as a whole: put both into one group."
                )
            group_of[links], owner[cable_of[links]] = i, i
            wide = np.zeros(len(cables))
            np.maximum.at(wide, cable_of[links], capacity[links])
            cost[i] = each[name] * wide.sum()
            if name in known and not wide.any():
                faults.append(f"Group '{name}' has no capacity that could be bought. Leave it out.")
        raise_faults(list(dict.fromkeys(faults)))
        return cls(names, group_of, cost)


def _links(network: Network, name: str, ids: object, faults: list[str]) -> Int[np.ndarray, " some"]:
    """Return the links of a group, or note what is wrong and return none."""
    links = whole_array(f"groups['{name}']", ids, faults, dtype=np.int64).ravel()
    strange = links[(links < 0) | (links >= network.n_links)]
    if len(strange):
        faults.append(
            f"`groups['{name}']` has {some(strange.tolist())}, but links count from 0 to "
            f"{network.n_links - 1:,}."
        )
    return np.unique(links[(links >= 0) & (links < network.n_links)])


def _price(name: str, price: object, faults: list[str]) -> float:
    """Return money per byte/s, or note what is wrong."""
    value = math.nan
    if isinstance(price, str):
        amount, _, unit = price.partition(" per ")
        try:
            value = float(amount) / parse_rate(f"1{unit.strip()}", f"prices['{name}']")
        except (ValueError, ModelError):
            value = math.nan
    elif isinstance(price, Real) and not isinstance(price, bool):
        value = float(price)
    if not (math.isfinite(value) and value > 0):
        faults.append(
            f"`prices['{name}']` needs money above 0 per byte/s, or text such as '0.8 per Gb/s', "
            f"but is {price!r}."
        )
        return math.nan
    return value
