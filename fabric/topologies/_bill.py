"""`bill`: what a network is bought of, by model, and what it costs where prices are known."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from fabric import hardware
from fabric._errors import raise_faults, some
from fabric.network import Network
from fabric.topologies._servers import INSIDE_KINDS

_ENDS = 2
_MANAGER = "manager_cables"


@dataclass(frozen=True)
class Item:
    """One line of a bill.

    Attributes:
        part: "switch", "cable", "transceiver", "server", "gpu", "nic" or a part inside a server.
        where: Kind of the switch or tier of the cable; "" where there is only one.
        model: What to look up the price by, such as "qm9700" or "cable 400Gb/s".
        count: How many.
        price: Of one of them, None where unknown.
    """

    part: str
    where: str
    model: str
    count: int
    price: float | None = None


@dataclass(frozen=True)
class Bill:
    """What a network consists of.

    Attributes:
        network: Switches, cables and transceivers of the fabric.
        inside: Servers, and what is in them; part of the server, so without a price of its own.
        assumed: What was taken for granted, in sentences.
        currency: Of the prices, "" without.
        unpriced: Models of `network` and servers without a price.
        unused: Names in the price list that are nothing of this bill.
    """

    network: tuple[Item, ...]
    inside: tuple[Item, ...]
    assumed: tuple[str, ...]
    currency: str = ""
    unpriced: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    def count(self, part: str, where: str | None = None) -> int:
        """Return how many there are of a part, at one place or in all."""
        lines = [*self.network, *self.inside]
        return sum(i.count for i in lines if i.part == part and where in (None, i.where))

    @property
    def total(self) -> float:
        """Cost of all that has a price; `unpriced` names what has none."""
        lines = [*self.network, *self.inside]
        return sum(item.count * item.price for item in lines if item.price is not None)


def bill(
    network: Network, prices: Mapping[str, object] | None = None, *, manager: bool = False
) -> Bill:
    """Return the bill of materials of a network.

    A switch is of the model that its cluster names, or the smallest of the hardware catalogue
    whose ports have the speed of its fastest cable and are as many as it uses; where none fits,
    it is called by its ports and their speed. Failed parts count: they were bought. Links inside
    servers, NVLink and PCIe, are no cables.

    Args:
        network: With labels.
        prices: Price of one piece by model, and `currency`, a word. Default: no prices.
        manager: Whether the cables to the fabric manager count, which published tables of some
            clusters hold.

    Raises:
        ModelError: If a price is no number of 0 or more, or the currency is missing.

    Examples:
        >>> import fabric as fb
        >>> found = bill(fb.topologies.rail_optimized(servers=128))
        >>> [(item.part, item.where, item.model, item.count) for item in found.network[:3]]
        [('switch', 'leaf', 'qm9700', 32), ('switch', 'spine', 'qm9700', 16),
         ('cable', 'host', 'cable 400Gb/s', 1024)]
        >>> found.count("transceiver")
        4096
    """
    switches, assumed = _switches(network)
    cables, more = _cables(network, manager)
    optics = Counter[str]()
    for item in cables:
        optics[item.model.replace("cable", "transceiver")] += _ENDS * item.count
    ends = [Item("transceiver", "", model, count) for model, count in optics.items()]
    found = Bill((*switches, *cables, *ends), _inside(network), (*assumed, *more))
    return found if prices is None else _priced(found, prices)


def _switches(network: Network) -> tuple[list[Item], list[str]]:
    labels = network.labels
    nodes = np.flatnonzero(
        np.asarray(labels.forwards) & ~np.asarray(labels.endpoint) & ~labels.is_kind(*INSIDE_KINDS)
    )
    capacity = np.asarray(network.capacity, np.float64)
    fastest = np.zeros(labels.n_nodes)
    np.maximum.at(fastest, labels.src, capacity)
    sums = np.bincount(labels.src, capacity, labels.n_nodes)
    # A port split in slower ones counts as the part of it that is used.
    ports = np.ceil(sums / np.where(fastest > 0, fastest, 1) - 1e-9).astype(int)
    said = labels.about.get("switch")
    rows = Counter(
        (labels.kinds[labels.kind_of[n]], said or _model(int(ports[n]), float(fastest[n])))
        for n in nodes.tolist()
    )
    items = [Item("switch", kind, model, count) for (kind, model), count in rows.items()]
    assumed = [] if said or not items else ["switch models by number and speed of ports"]
    return items, assumed


def _model(ports: int, rate: float) -> str:
    known = [hardware.switch(name) for name in hardware.names("switches") if not name.startswith("nvswitch")]
    fits = [s for s in known if math.isclose(s.rate.value, rate) and s.ports >= ports]
    if fits:
        return min(fits, key=lambda switch: switch.ports).name
    return f"switch {ports} x {_speed(rate)}"


def _cables(network: Network, manager: bool) -> tuple[list[Item], list[str]]:
    labels, about = network.labels, network.labels.about
    outside = np.flatnonzero(~_inside_links(network))
    _, first = np.unique(labels.cable_of[outside], return_index=True)
    links = int(about.get("links_per_cable", 1))
    rates = np.asarray(network.capacity, np.float64) * links
    one = outside[first].tolist()
    rows = Counter((labels.tiers[labels.tier_of[i]], float(rates[i])) for i in one)
    items = [
        Item("cable", tier, f"cable {_speed(rate)}", math.ceil(count / links))
        for (tier, rate), count in rows.items()
    ]
    assumed = ["every cable of the fabric optical, with a transceiver at each end"] * bool(items)
    extra = int(about.get(_MANAGER, 0))
    if extra and manager:
        items.append(Item("cable", "manager", f"cable {_speed(float(rates[one[0]]))}", extra))
    elif extra:
        assumed.append(f"without the {extra} cables to the fabric manager that its table counts")
    return items, assumed


def _inside_links(network: Network) -> np.ndarray:
    labels = network.labels
    own = labels.is_kind("gpu", *INSIDE_KINDS)
    return own[labels.src] | own[labels.dst]


def _inside(network: Network) -> tuple[Item, ...]:
    labels, about = network.labels, network.labels.about
    count: dict[str, int] = {k: int(labels.is_kind(k).sum()) for k in ("gpu", *INSIDE_KINDS)}
    if not count["gpu"] or "server" not in about:
        return ()
    server = labels.tags["server"]
    nics = int(((server >= 0) & ~labels.is_kind("gpu", *INSIDE_KINDS)).sum())
    parts = [
        Item("server", "", about["server"], int(server.max()) + 1),
        Item("gpu", "", about["gpu"], count["gpu"]),
        *(Item(kind, "", kind, count[kind]) for kind in INSIDE_KINDS if count[kind]),
        Item("nic", "", about["nic"], nics),
    ]
    return tuple(parts)


def _speed(rate: float) -> str:
    """Return byte/s as the speed of a port, as the price list writes it.

    Examples:
        >>> _speed(50e9)
        '400Gb/s'
    """
    return f"{rate * 8 / 1e9:g}Gb/s"


def _priced(found: Bill, prices: Mapping[str, object]) -> Bill:
    currency = prices.get("currency")
    faults: list[str] = []
    if not isinstance(currency, str) or not currency.strip():
        faults.append(
            f"`prices` needs a `currency`, a word such as 'USD', but has {currency!r}. Add it."
        )
    given = {name: price for name, price in prices.items() if name != "currency"}
    bad = [f"{name}: {price}" for name, price in given.items() if not _is_price(price)]
    if bad:
        faults.append(
            f"`prices` needs a number of 0 or more for every item, but {len(bad):,} have another: "
            f"{some(bad)}. Give the price of one piece."
        )
    raise_faults(faults)
    priced = lambda items: tuple(
        replace(item, price=None if item.model not in given else float(str(given[item.model])))
        for item in items
    )
    bought = [*found.network, *(item for item in found.inside if item.part == "server")]
    models = list(dict.fromkeys(item.model for item in bought))
    return replace(
        found,
        network=priced(found.network),
        inside=tuple(priced([item])[0] if item.part == "server" else item for item in found.inside),
        currency=str(currency),
        unpriced=tuple(model for model in models if model not in given),
        unused=tuple(name for name in given if name not in models),
    )


def _is_price(price: object) -> bool:
    if isinstance(price, bool) or not isinstance(price, Real):
        return False
    return math.isfinite(price) and float(price) >= 0
