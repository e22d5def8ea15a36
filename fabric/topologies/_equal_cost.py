"""`at_equal_cost`: designs compared by the largest network that one budget pays of each."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from numbers import Real

import numpy as np

from fabric._errors import InfeasibleError, ModelError, some
from fabric.network import Network
from fabric.topologies._bill import bill
from fabric.topologies._economics import Economics, economics
from fabric.topologies._spec import build


def at_equal_cost(
    designs: Mapping[str, Iterable[Network | str]],
    prices: Mapping[str, object],
    budget: float,
) -> list[Economics]:
    """Return the largest network of every design whose parts the budget pays.

    Designs differ in the endpoints that they serve and in what these can send, so a comparison is
    fair only at equal cost: with fewer switches per endpoint a design serves more of them.

    Args:
        designs: By name, networks of one design, or texts that `build` reads, cheapest first; they
            are built one by one and the first that is too expensive ends the list.
        prices: As for `economics`. Every part of every design needs a price.
        budget: In the currency of the prices.

    Returns:
        One row per design, in the order given.

    Raises:
        ModelError: If the budget is no number of 0 or more, or a part has no price: the cost would
            not be comparable.
        InfeasibleError: If the budget does not pay the first network of a design.

    Examples:
        >>> prices = {"currency": "USD", "qm9700": 20_000, "qm8790": 9_000, "cable 400Gb/s": 500,
        ...           "transceiver 400Gb/s": 900, "transceiver 2x400Gb/s": 1_500}
        >>> sizes = [f"clos:hosts={n}" for n in (256, 512, 1024, 2048)]
        >>> tapered = [f"clos:hosts={n},oversubscription=3" for n in (336, 672, 1344)]
        >>> rows = at_equal_cost({"1:1": sizes, "3:1": tapered}, prices, budget=3e6)
        >>> [(row.name, row.endpoints, round(row.injection * 8 / 1e9)) for row in rows]
        [('1:1', 512, 400), ('3:1', 672, 400)]
    """
    _check_budget(budget)
    return [
        replace(economics(_affordable(name, networks, prices, budget), prices), name=name)
        for name, networks in designs.items()
    ]


def _check_budget(budget: object) -> None:
    number = math.nan
    if isinstance(budget, Real) and not isinstance(budget, bool | np.bool_):
        number = float(budget)
    if not math.isfinite(number) or number < 0:
        message = (
            f"`at_equal_cost(budget)` needs a finite number of 0 or more, in the currency of the "
            f"prices, but got {budget!r}."
        )
        raise ModelError(message)


def _affordable(
    name: str, networks: Iterable[Network | str], prices: Mapping[str, object], budget: float
) -> Network:
    """Return the last network of a design that the budget pays."""
    best, least = None, None
    for given in networks:
        network = build(given) if isinstance(given, str) else given
        found = bill(network, prices)
        missing = [item.model for item in found.network if item.price is None]
        if missing:
            message = (
                f"`at_equal_cost`: design '{name}' has parts without a price, so its cost cannot "
                f"be compared: {some(missing)}. Add them to `prices`."
            )
            raise ModelError(message)
        cost = sum(item.count * (item.price or 0.0) for item in found.network)
        least = cost if least is None else least
        if cost > budget:
            break
        best = network
    if least is None:
        message = f"`at_equal_cost`: design '{name}' has no network. Give at least one."
        raise ModelError(message)
    if best is None:
        message = (
            f"`at_equal_cost(budget={budget:,.0f})` does not pay the smallest network of design "
            f"'{name}', which costs {least:,.0f}. Raise the budget, or begin with a smaller one."
        )
        raise InfeasibleError(message)
    return best
