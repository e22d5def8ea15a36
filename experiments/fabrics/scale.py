"""A03 to A05, A51 and A54: how far tiers of switch chips reach, and what clusters count."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

import fabric as fb
from experiments.rows import Row
from fabric import hardware, topologies
from fabric._errors import ModelError
from fabric.network import Flows, Network

CHIPS = {"12.8T": 32, "25.6T": 64, "51.2T": 128}
"""Ports of 400 Gb/s of a switch chip."""

CLOS = "folded Clos of equal switches: 2 (R/2)^tiers hosts, 2 tiers - 1 switches on the way"
BROADCOM = "Broadcom Tomahawk 3, 4 and 5: 12.8, 25.6 and 51.2 Tb/s"
SUPERPOD = "NVIDIA DGX SuperPOD B200 reference architecture, Network Fabrics, Table 4"
LARGER = "NVIDIA DGX SuperPOD B200 reference architecture, larger configurations"
RULE = "a rule of planning guides, no document named"
AIPOD = "Baidu AIPod, as described publicly: 8 leaves a group, three tiers without oversubscription"
HPN = "K. Qian et al., Alibaba HPN (SIGCOMM 2024)"

TABLE = (
    # units, servers, leaves, spines, cables of servers, cables between leaves and spines
    (1, 31, 8, 4, 252, 256),
    (2, 63, 16, 8, 508, 512),
    (3, 95, 24, 16, 764, 768),
    (4, 127, 32, 16, 1020, 1024),
)
LARGE = (
    # units, servers, leaves, spines, cores, cables of each tier
    (8, 256, 64, 32, 0, 2048),
    (16, 512, 128, 128, 64, 4096),
    (32, 1024, 256, 256, 128, 8192),
    (64, 2048, 512, 512, 256, 16384),
)


def rows(smoke: bool) -> Iterator[Row]:
    """Yield A03, A04, A05, A51 and A54."""
    yield from reach(smoke)
    yield from attached()
    yield from superpods(smoke)
    yield from pods(smoke)
    yield from segments()


# A03


def reach(smoke: bool) -> Iterator[Row]:
    """Yield switches on the way, and the most hosts that a builder takes."""
    for name, tiers, pair, quoted in (
        ("same leaf", 2, (0, 1), 1),
        ("another leaf", 2, (0, 8), 3),
        ("another pod", 3, (0, 64), 5),
    ):
        net = topologies.clos(hosts=128, radix=16, tiers=tiers)
        yield Row(f"A03 switches to {name}", quoted, switches_between(net, *pair), "", 0, CLOS)
    for chip, radix in CHIPS.items():
        yield Row(f"A03 {chip}, ports of 400 Gb/s", float(chip[:-1]) * 1e3 / 400, radix, "", 0,
                  BROADCOM)  # fmt: skip
        for tiers, quoted in ((2, radix**2 // 2), (3, radix**3 // 4)):
            if not (smoke and quoted > 10_000):
                yield Row(f"A03 {chip}, hosts of {tiers} tiers", quoted, most_hosts(radix, tiers),
                          "", 0, CLOS)  # fmt: skip


def switches_between(net: Network, a: int, b: int) -> int:
    """Return the switches on a shortest way between two hosts."""
    routes = fb.routing.ecmp(net, Flows(net.hosts[a : a + 1], net.hosts[b : b + 1]))
    return routes.n_hops - 1


def most_hosts(radix: int, tiers: int) -> int:
    """Return the largest number of hosts that `clos` takes, found by trying."""
    low, high = 1, 2 * (radix // 2) ** tiers * 2
    while high - low > 1:
        middle = (low + high) // 2
        fits = takes(lambda hosts=middle: topologies.sizes(
            "clos", hosts=hosts, radix=radix, tiers=tiers))  # fmt: skip
        low, high = (middle, high) if fits else (low, middle)
    return low


def takes(build: Callable[[], object]) -> bool:
    """Return whether something can be built."""
    try:
        build()
    except ModelError:
        return False
    return True


# A04


def attached() -> Iterator[Row]:
    """Yield what 1,024 GPUs take one by one, in servers with one adapter, and with eight."""
    gpus = 1024
    alone = topologies.clos(hosts=gpus, radix=64)
    one = _in_servers(1, gpus // 8)
    eight = _in_servers(8, gpus // 8)
    for what, count in (("cables", _cables), ("switch ports", _ports)):
        yield Row(f"A04 {what}, single GPUs over servers with one adapter", 8,
                  count(alone) / count(one), "x", 0.01, RULE)  # fmt: skip
        yield Row(f"A04 {what}, single GPUs over servers with eight", 8,
                  count(alone) / count(eight), "x", 0, RULE,
                  "with an adapter for every GPU, as DGX have, nothing is saved but traffic: what "
                  "stays in the server", refuted=True)  # fmt: skip
    rate = lambda net: float(_across(net).mean())
    slowest = _across(one).min() * 8e-9
    yield Row("A04 mean rate of a GPU to another server, one adapter over eight", 1 / 8,
              rate(one) / rate(eight), "", 1e-9, "counted: eight GPUs share it",
              f"the four by the other socket get {slowest:.0f} Gb/s, the rest more")  # fmt: skip


def _in_servers(nics: int, servers: int) -> Network:
    server = hardware.server("dgx-h100")
    server = replace(
        server, name=f"dgx-h100-{nics}-nics", n_nics=nics, pcie_of_nic=server.pcie_of_nic[:nics],
        nic_of_gpu=tuple(gpu * nics // 8 for gpu in range(8)), kind="assumed",
        source=f"DGX H100 with {nics} of its adapters",
    )  # fmt: skip
    fabric = topologies.clos(hosts=servers * nics, radix=64)
    return topologies.attach_servers(fabric, server, fabric.hosts.reshape(servers, nics))


def _cables(net: Network) -> int:
    return topologies.bill(net).count("cable")


def _ports(net: Network) -> int:
    """Return the switch ports with a cable in them."""
    labels = net.labels
    return int(labels.is_kind("leaf", "spine")[labels.src].sum())


def _across(net: Network) -> np.ndarray:
    """Return byte/s of every GPU when all send to the server half of the others away."""
    flows = Flows(net.hosts, np.roll(net.hosts, len(net.hosts) // 2))
    routes = fb.routing.spray(net, flows)
    return np.asarray(fb.max_min_rates(net, routes).rates)


# A05


def superpods(smoke: bool) -> Iterator[Row]:
    """Yield the tables of DGX SuperPOD B200, counted from what is built."""
    for units, nodes, leaves, spines, of_servers, between in TABLE[:1] if smoke else TABLE:
        net = topologies.cluster("dgx-b200", nodes=nodes)
        yield from _counts(f"A05 {units} SU", net, SUPERPOD, {"leaf": leaves, "spine": spines},
                           {"host": of_servers, "leaf-spine": between}, manager=True)  # fmt: skip
    for units, nodes, leaves, spines, cores, cables in () if smoke else LARGE:
        net = topologies.cluster("dgx-b200", nodes=nodes)
        tiers = ("host", "leaf-spine", "spine-core")[: 3 if cores else 2]
        switches = {"leaf": leaves, "spine": spines} | ({"core": cores} if cores else {})
        yield from _counts(f"A05 {units} SU", net, LARGER, switches, dict.fromkeys(tiers, cables))


def _counts(
    name: str, net: Network, source: str, switches: dict[str, int], cables: dict[str, int],
    manager: bool = False,
) -> Iterator[Row]:  # fmt: skip
    bill = topologies.bill(net, manager=manager)
    for kind, quoted in switches.items():
        yield Row(f"{name}, {kind} switches", quoted, bill.count("switch", kind), "", 0, source)
    for tier, quoted in cables.items():
        more = bill.count("cable", "manager") * (tier == "host")
        yield Row(f"{name}, {tier} cables", quoted, bill.count("cable", tier) + more, "", 0, source,
                  "with four cables to the fabric manager" * (more > 0))  # fmt: skip


# A51 and A54


def pods(smoke: bool) -> Iterator[Row]:
    """Yield the pod of 8 rails and three tiers: counts, and the rate when halves exchange."""
    servers = 128 if smoke else 2048
    net = topologies.rail_optimized(servers, rails=8, radix=128, tiers=3, servers_per_unit=64)
    labels = net.labels
    first = np.flatnonzero(labels.is_kind("nic"))[:8]
    leaves = len(np.unique(labels.tags["leaf"][first]))
    group = int((labels.tags["unit"][labels.is_kind("nic")] == 0).sum())
    half = np.roll(net.hosts, len(net.hosts) // 2)
    routes = fb.routing.spray(net, Flows(net.hosts, half))
    rates = np.asarray(fb.max_min_rates(net, routes).rates)
    yield Row("A51 leaves that a server meets", 8, leaves, "", 0, AIPOD)
    yield Row("A51 GPUs of a group", 512, group, "", 0, AIPOD)
    if not smoke:
        yield Row("A51 GPUs of 32 groups", 16_000, len(net.hosts), "", 0.03, AIPOD, "more than")
    yield Row("A51 rate when halves exchange, of an adapter", 1, float(rates.min()) / 50e9, "",
              1e-9, AIPOD)  # fmt: skip


def segments() -> Iterator[Row]:
    """Yield what a segment of HPN holds, and that rings over it and its rails pass no spine."""
    net = topologies.hpn(segments=2)
    labels = net.labels
    segment = net.hosts[: len(net.hosts) // 2].reshape(-1, 8)
    yield Row("A54 GPUs under a single tier", 1024, segment.size, "", 0, HPN,
              "rail by rail; what changes rails goes over NVLink, or over the spines")  # fmt: skip
    for what, dst, quoted in (
        ("one rail of a segment", np.roll(segment, -1, axis=0), 1),
        ("the other segment", net.hosts[len(net.hosts) // 2 :].reshape(-1, 8), 3),
    ):
        routes = fb.routing.ecmp(net, Flows(segment.ravel(), dst.ravel()))
        hops = np.bincount(routes.hop_flow, minlength=routes.n_flows)
        yield Row(f"A54 switches on the way, {what}", quoted, int(hops.max()) - 1, "", 0, HPN)
    down = net.without(nodes=[int(np.flatnonzero(labels.is_kind("leaf"))[0])])
    routes = fb.routing.spray(down, Flows(segment.ravel(), np.roll(segment, -1, axis=0).ravel()))
    rates = np.asarray(fb.max_min_rates(down, routes).rates)
    yield Row("A54 rate of a ring with a ToR out, of an adapter", 1 / 2, float(rates.min()) / 50e9,
              "", 1e-9, HPN, "every adapter of the rail keeps its other port")  # fmt: skip
