"""`bill`: what a network is bought of, by model, and what it costs where prices are known."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from jaxtyping import Bool, Int

from fabric import hardware
from fabric._errors import ModelError, joined, raise_faults, some
from fabric._evidence import Evidence
from fabric.hardware import Switch
from fabric.network import Network
from fabric.topologies._plan import flag
from fabric.topologies._servers import INSIDE_KINDS, port_speed, ports_per_module

_MANAGER = "manager_cables"
_COPPER, _CIRCUITS = ("cube",), ("optical", "circuit")


@dataclass(frozen=True)
class Item:
    """One line of a bill.

    Attributes:
        part: "switch", "cable", "transceiver" (a module), "ocs" (an optical circuit switch) or
            "ocs-port" where only these are known, "server", "gpu", "nic" or a part inside a server.
        where: Kind of the switch, tier of the cable, or "switch" or "server" as the end that a
            transceiver is at; "" where there is only one.
        model: What to look up the price by, such as "qm9700" or "cable 400Gb/s".
        count: How many.
        price: Of one of them, None where unknown.
        assumed: Whether the model is a guess by the number and the speed of ports.
    """

    part: str
    where: str
    model: str
    count: int
    price: float | None = None
    assumed: bool = False


@dataclass(frozen=True)
class Bill:
    """What a network consists of.

    Attributes:
        network: Switches, cables and transceivers of the fabric.
        inside: Servers, and what is in them; part of the server, so without a price of its own.
        assumed: What was taken for granted, in sentences.
        currency: Of the prices, "" without.
        unpriced: Models of `network` and servers without a price.
        within: Names in the price list of parts that come with a server.
        unused: Names in the price list that are nothing of this bill.
    """

    network: tuple[Item, ...]
    inside: tuple[Item, ...]
    assumed: tuple[str, ...]
    currency: str = ""
    unpriced: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
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

    A switch is of the model that its cluster or its own tag `model` names. Else it is taken for the
    smallest of the hardware catalogue whose ports have the speed of its fastest cable and are as
    many as it uses, and the item says so; where none fits, it is called by its ports and their
    speed. One transceiver module serves as many cables of a switch, or of a server, as the
    catalogue says. Failed parts count: they were bought. Links inside servers, NVLink and PCIe,
    are no cables.

    The cables of a TPU cube are copper, without modules. A circuit over an optical circuit switch
    is one cable, a fibre from each end to the switch, with two ports of it: the switches are listed
    where the network says how many there are, else their ports.

    Args:
        network: With labels.
        prices: Price of one piece by model, and `currency`, a word; `power` in it is for
            `economics` and not read here. Default: no prices.
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
        >>> found.count("transceiver", "switch"), found.count("transceiver", "server")
        (1536, 1024)
    """
    manager = flag("manager", manager)
    models = _models(network)
    cables, more = _cables(network, manager)
    modules, shared = _modules(network, models, manager)
    optics, circuits = _optics(network)
    guessed = ["switch models by number and speed of ports"]
    assumed = guessed * any(guess for _, guess in models.values()) + more + shared + circuits
    network_items = (*_switches(network, models), *optics, *cables, *modules)
    found = Bill(network_items, _inside(network), tuple(assumed))
    return found if prices is None else _priced(found, prices)


Models = dict[int, tuple[str, bool]]
"""Model of every switch, and whether it is a guess, by node."""


def _models(network: Network) -> Models:
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
    said, tag = labels.about.get("switch", ""), labels.tags.get("model")
    known = _fabric_switches()
    found: Models = {}
    for node in nodes.tolist():
        model = said or ("" if tag is None else str(tag[node]).lower())
        guess = model or _guess(known, int(ports[node]), float(fastest[node]))
        found[node] = (guess, not model)
    return found


def _fabric_switches() -> list[Switch]:
    names = hardware.names("switches")
    return [hardware.switch(name) for name in names if not name.startswith("nvswitch")]


def _guess(known: list[Switch], ports: int, rate: float) -> str:
    fits = [s for s in known if math.isclose(s.rate.value, rate) and s.ports >= ports]
    if fits:
        return min(fits, key=lambda switch: switch.ports).name
    return f"switch {ports} x {port_speed(rate)}"


def _switches(network: Network, models: Models) -> list[Item]:
    kind_of, kinds = network.labels.kind_of, network.labels.kinds
    rows = Counter((kinds[kind_of[node]], *model) for node, model in models.items())
    return [
        Item("switch", kind, model, count, assumed=guess)
        for (kind, model, guess), count in rows.items()
    ]


def cables_of(
    network: Network, only: Bool[np.ndarray, " links"] | None = None
) -> list[tuple[str, float, int]]:
    """Return the cables of a fabric, those inside servers left out: tier, byte/s and how many.

    Args:
        network: With labels. `labels.about["links_per_cable"]` links share a cable; default 1.
        only: (links,), those that count. Default: all, failed ones too.
    """
    labels, links = network.labels, _links_per_cable(network)
    wanted = ~inside_links(network) if only is None else ~inside_links(network) & only
    outside = np.flatnonzero(wanted)
    _, first = np.unique(labels.cable_of[outside], return_index=True)
    one = outside[first]
    rates = np.asarray(network.capacity, np.float64)[one] * links
    rows = Counter(zip(labels.tier_of[one].tolist(), rates.tolist(), strict=True))
    return [
        (labels.tiers[tier], rate, math.ceil(count / links)) for (tier, rate), count in rows.items()
    ]


def _links_per_cable(network: Network) -> int:
    return int(network.labels.about.get("links_per_cable", 1))


def _cables(network: Network, manager: bool) -> tuple[list[Item], list[str]]:
    rows = cables_of(network)
    items = [Item("cable", tier, f"cable {port_speed(rate)}", n) for tier, rate, n in rows]
    copper = [tier for tier, _, _ in rows if tier in _COPPER]
    but = f" but those of tier {joined(copper)}, copper," if copper else ""
    said = f"every cable of the fabric{but} optical, with a transceiver at each end"
    assumed = [said] * bool(len(items) > len(copper))
    extra = int(network.labels.about.get(_MANAGER, 0))
    if extra and manager and rows:
        items.append(Item("cable", "manager", f"cable {port_speed(rows[0][1])}", extra))
    elif extra:
        assumed.append(f"without the {extra} cables to the fabric manager that its table counts")
    return items, assumed


def _modules(network: Network, models: Models, manager: bool) -> tuple[list[Item], list[str]]:
    """Return the transceiver modules at both ends of the cables, and what was assumed of them."""
    labels = network.labels
    outside = np.flatnonzero(~inside_links(network) & ~_copper_links(network))
    rate = np.asarray(network.capacity, np.float64)[outside]
    owner, per_server = _owners(network)
    per_cable = _links_per_cable(network)
    ends = Counter(zip(owner[labels.src[outside]].tolist(), rate.tolist(), strict=True))
    shared = {model: _of_module(model) for model, _ in models.values()}
    counts: Counter[tuple[str, str]] = Counter()
    for (node, speed), links in ends.items():
        at = "switch" if node in models else "server"
        if at == "switch":
            per = int(shared[models[node][0]].value)
        else:
            per = per_cable * (int(per_server[-1 - node]) if node < 0 else 1)
        counts[at, _module(per, speed)] += math.ceil(links / per)
    extra = int(labels.about.get(_MANAGER, 0))
    if extra and manager and counts:
        speed, per = float(rate[0]), int(max(one.value for one in shared.values()))
        counts["switch", _module(per, speed)] += math.ceil(extra / per)
        counts["server", _module(1, speed)] += extra
    said = [
        f"{one.value:g} ports of a {model} in one transceiver ({one.kind}: {one.source})"
        for model, one in shared.items()
        if one.value > 1
    ]
    for per in sorted({int(per) for per in per_server if per > 1}):
        names = dict.fromkeys(np.array(_server_names(network))[per_server == per].tolist())
        said.append(
            f"{per} ports of the NICs of a {' and a '.join(names)} in one transceiver (assumed)"
        )
    return [Item("transceiver", at, model, n) for (at, model), n in counts.items()], said


def _optics(network: Network) -> tuple[list[Item], list[str]]:
    """Return the optical circuit switches, or their ports, and what was assumed of them."""
    labels, about = network.labels, network.labels.about
    tiers = [tier for tier in _CIRCUITS if tier in labels.tiers]
    if "ocs" in about:
        items = [Item("ocs", "optical", f"ocs {about['ocs_ports']} ports", int(about["ocs"]))]
    else:
        items = [Item("ocs-port", t, "ocs port", int(labels.is_tier(t).sum())) for t in tiers]
    said = ["a circuit over an optical circuit switch counted as one cable"]
    return items, said * bool(tiers)


def _copper_links(network: Network) -> Bool[np.ndarray, " links"]:
    labels = network.labels
    return np.isin(labels.tier_of, [i for i, tier in enumerate(labels.tiers) if tier in _COPPER])


def _owners(network: Network) -> tuple[Int[np.ndarray, " nodes"], Int[np.ndarray, " servers"]]:
    """Return who holds the modules of a node, and how many NIC ports share one in each server.

    A switch or an endpoint is its own owner; the NICs of a server belong to their server, which is
    numbered from -1 down.
    """
    labels = network.labels
    owner = np.arange(labels.n_nodes)
    if "ports_per_module" not in labels.about:
        return owner, np.ones(0, np.int64)
    server = labels.tags["server"]
    nics = (server >= 0) & ~labels.is_kind("gpu", *INSIDE_KINDS)
    per = ports_per_module(labels.about, int(server.max()) + 1)
    return np.where(nics, -1 - server, owner), per


def _of_module(model: str) -> Evidence:
    """Return how many ports of a switch share a module; one, where the catalogue lacks it."""
    try:
        return hardware.switch(model).ports_per_module
    except ModelError:
        return Evidence(1.0, "assumed", "a transceiver per port")


def _module(per: int, rate: float) -> str:
    return f"transceiver {f'{per}x' if per > 1 else ''}{port_speed(rate)}"


def inside_links(network: Network) -> Bool[np.ndarray, " links"]:
    """Return which links are inside servers: no cables of the fabric."""
    labels = network.labels
    own = labels.is_kind("gpu", *INSIDE_KINDS)
    return own[labels.src] | own[labels.dst]


def _inside(network: Network) -> tuple[Item, ...]:
    labels, about = network.labels, network.labels.about
    count: dict[str, int] = {k: int(labels.is_kind(k).sum()) for k in ("gpu", *INSIDE_KINDS)}
    if not count["gpu"] or "server" not in about:
        return ()
    holds = _holds(network)
    names = _server_names(network)
    rows = Counter(names)
    parts = [Item("server", "", name, n) for name, n in rows.items()]
    for part, column in (("gpu", 0), ("nic", 1)):
        models: Counter[str] = Counter()
        for name, server in zip(names, holds, strict=True):
            one = about[part] if name == about["server"] else getattr(hardware.server(name), part)
            models[one] += server[column]
        found = [Item(part, "", model, n) for model, n in models.items()]
        parts += found
        if part == "gpu":
            parts += [Item(kind, "", kind, count[kind]) for kind in INSIDE_KINDS if count[kind]]
    return tuple(parts)


def _server_names(network: Network) -> list[str]:
    """Return the model of every server."""
    return _told_apart(network.labels.about["server"], _holds(network))


def _holds(network: Network) -> list[tuple[int, ...]]:
    """Return how many GPUs, NICs and parts of each of `INSIDE_KINDS` every server holds."""
    labels = network.labels
    server = labels.tags["server"]
    n = int(server.max()) + 1
    own = labels.is_kind("gpu", *INSIDE_KINDS)
    masks = [labels.is_kind("gpu"), ~own, *(labels.is_kind(kind) for kind in INSIDE_KINDS)]
    counts = [np.bincount(server[mask & (server >= 0)], minlength=n) for mask in masks]
    return list(zip(*(column.tolist() for column in counts), strict=True))


def _told_apart(name: str, holds: list[tuple[int, ...]]) -> list[str]:
    """Return the model of every server: by what it holds, where there are several models."""
    models: dict[tuple[int, ...], str] = {}
    for word in name.split(" and ") if " and " in name else ():
        try:
            one = hardware.server(word)
        except ModelError:
            return [name] * len(holds)
        models[one.n_gpus, one.n_nics, one.n_chips, one.n_pcie, one.n_sockets] = word
    if not all(server in models for server in holds):
        return [name] * len(holds)
    return [models[server] for server in holds]


def _priced(found: Bill, prices: Mapping[str, object]) -> Bill:
    currency = prices.get("currency")
    faults: list[str] = []
    if not isinstance(currency, str) or not currency.strip():
        faults.append(
            f"`prices` needs a `currency`, a word such as 'USD', but has {currency!r}. Add it."
        )
    given = {name: price for name, price in prices.items() if name not in ("currency", "power")}
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
    comes = [item.model for item in found.inside if item.part != "server"]
    return replace(
        found,
        network=priced(found.network),
        inside=tuple(priced([item])[0] if item.part == "server" else item for item in found.inside),
        currency=str(currency),
        unpriced=tuple(model for model in models if model not in given),
        within=tuple(name for name in given if name in comes),
        unused=tuple(name for name in given if name not in (*models, *comes)),
    )


def _is_price(price: object) -> bool:
    if isinstance(price, bool) or not isinstance(price, Real):
        return False
    return math.isfinite(price) and float(price) >= 0
