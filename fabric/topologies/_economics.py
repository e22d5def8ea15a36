"""`economics`: bandwidth, parts, cost and power of a network side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fabric import hardware
from fabric._errors import ModelError, raise_faults
from fabric._evidence import Evidence
from fabric.hardware import parse_power
from fabric.network import Network
from fabric.topologies._bill import Bill, bill, inside_links
from fabric.topologies._bisection import bisection
from fabric.topologies._servers import INSIDE_KINDS

MODULE_POWER: dict[str, Evidence] = {
    "transceiver 400Gb/s": Evidence(
        8.0, "preset", "NVIDIA MMA4Z00-NS400 product specification: typical", high=9.0
    ),
    "transceiver 2x400Gb/s": Evidence(
        15.0, "preset", "NVIDIA MMA4Z00-NS product specification: twin-port, multimode"
    ),
}
"""Watts of transceiver modules, by model, where a document says."""

_GIGABIT = 1e9 / 8


@dataclass(frozen=True)
class Economics:
    """What a network carries, and what it costs; servers and what is in them are left out.

    A number that rests on unknown prices or powers counts the known ones only, so it is a lower
    bound; None where none is known.

    Attributes:
        name: Which network.
        endpoints: Nodes that send and receive.
        injection: byte/s per endpoint and direction over the cables of the fabric.
        bisection: byte/s one way of the least cut found, an upper bound.
        switches, cables, transceivers, circuit_switches: Number of pieces; of optical circuit
            switches, or of their ports where only these are known.
        cost: Of all pieces with a price, in `currency`.
        currency: "" without prices.
        power: Watts of all pieces whose power is known.
        unpriced: Models without a price. `unpowered`: models of unknown power; cables have none of
            their own.
        sources: Where each power is from, by model.
    """

    name: str
    endpoints: int
    injection: float
    bisection: float
    switches: int
    cables: int
    transceivers: int
    circuit_switches: int
    cost: float | None
    currency: str
    power: float | None
    unpriced: tuple[str, ...]
    unpowered: tuple[str, ...]
    sources: dict[str, str]

    @property
    def cost_per_endpoint(self) -> float | None:
        """Cost per endpoint."""
        return None if self.cost is None else self.cost / self.endpoints

    @property
    def cost_per_bisection(self) -> float | None:
        """Cost per Gb/s of bisection, one way; None where the halves are not joined."""
        if self.cost is None or not self.bisection:
            return None
        return self.cost / (self.bisection / _GIGABIT)

    @property
    def power_per_endpoint(self) -> float | None:
        """Watts per endpoint."""
        return None if self.power is None else self.power / self.endpoints

    def as_dict(self) -> dict[str, Any]:
        """Return the fields and the ratios for a table or JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        ratios = ("cost_per_endpoint", "cost_per_bisection", "power_per_endpoint")
        return fields | {name: getattr(self, name) for name in ratios}


def economics(
    network: Network, prices: Mapping[str, object] | None = None, *, name: str | None = None
) -> Economics:
    """Return bandwidth, parts, cost and power of a network.

    Args:
        network: With labels.
        prices: As for `bill`: price of one piece by model, and `currency`. Under `power`, watts of
            one piece by model, a number or text such as "747W"; these go before the catalogue.
            Default: no prices, and the powers of the catalogue.
        name: What to call it. Default: as the network says.

    Raises:
        ModelError: If a price or a power is none, or the currency is missing.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.rail_optimized(servers=128)
        >>> found = economics(net, {"currency": "USD", "qm9700": 20_000})
        >>> found.endpoints, found.switches, found.cost
        (1024, 48, 960000.0)
        >>> found.unpriced
        ('cable 400Gb/s', 'transceiver 400Gb/s', 'transceiver 2x400Gb/s')
        >>> found.bisection / 1e12, found.unpowered
        (25.6, ())
    """
    bought = bill(network, prices)
    watts, sources = _powers(bought, prices or {})
    found = [item for item in bought.network if item.model in watts]
    priced = [item for item in bought.network if item.price is not None]
    models = list(dict.fromkeys(item.model for item in bought.network))
    drawing = list(
        dict.fromkeys(item.model for item in bought.network if item.part not in ("cable",))
    )
    return Economics(
        name=name or network.labels.source,
        endpoints=len(network.hosts),
        injection=_injection(network),
        bisection=bisection(network, samples=0).capacity if len(network.hosts) > 1 else 0.0,
        switches=bought.count("switch"),
        cables=bought.count("cable"),
        transceivers=bought.count("transceiver"),
        circuit_switches=bought.count("ocs") + bought.count("ocs-port"),
        cost=sum(i.count * (i.price or 0.0) for i in priced) if priced else None,
        currency=bought.currency,
        power=sum(item.count * watts[item.model] for item in found) if found else None,
        unpriced=tuple(m for m in models if m in bought.unpriced) if prices else tuple(models),
        unpowered=tuple(model for model in drawing if model not in watts),
        sources={model: said for model, said in sources.items() if model in drawing},
    )


def _injection(network: Network) -> float:
    """Return byte/s that an endpoint sends into the fabric on average; of a GPU, by its NICs."""
    labels = network.labels
    ends = np.asarray(labels.endpoint)
    if "gpu" in labels.present_kinds and "server" in labels.tags:
        ends = (labels.tags["server"] >= 0) & ~labels.is_kind("gpu", *INSIDE_KINDS)
    out = ends[labels.src] & ~inside_links(network)
    return float(np.asarray(network.capacity, np.float64)[out].sum()) / len(network.hosts)


def _powers(bought: Bill, prices: Mapping[str, object]) -> tuple[dict[str, float], dict[str, str]]:
    """Return watts by model and where they are from: the user's, else the catalogue's."""
    given = prices.get("power", {})
    if not isinstance(given, Mapping):
        message = f"`power` in the prices needs watts by model, but got {given!r}."
        raise ModelError(message)
    watts: dict[str, float] = {}
    sources: dict[str, str] = {}
    faults: list[str] = []
    for item in bought.network:
        if item.part == "cable" or item.model in watts:
            continue
        if item.model in given:
            value: Any = given[item.model]
            try:
                watts[item.model] = parse_power(value, f"power: {item.model}")
            except (ModelError, TypeError) as error:
                faults.append(str(error))
            sources[item.model] = "user: the price list"
        elif (found := _known_power(item.part, item.model)) is not None:
            watts[item.model] = found.value
            sources[item.model] = f"{found.kind}: {found.source}"
    raise_faults(faults)
    return watts, sources


def _known_power(part: str, model: str) -> Evidence | None:
    if part == "transceiver":
        return MODULE_POWER.get(model)
    if part != "switch":
        return None
    try:
        return hardware.switch(model).power
    except ModelError:
        return None
