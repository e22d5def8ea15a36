"""A57: NVLink servers on a dragonfly, its long cables on optical switches, against a folded Clos.

No price of such a fabric is published. Prices of switches and cables are those that two rows of a
published table imply; the price of a circuit is assumed, and shown as such.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import fabric as fb
from experiments.fabrics.training import with_servers
from experiments.rows import Row
from fabric import topologies
from fabric.network import Blueprint, Flows, Network, Routes

DEEPSEEK = "DeepSeek-V3 insights (ISCA 2025, arXiv 2505.09343), Table 3"
RULE = "a proposal without published numbers; equal cost as stated"

TABLE = {
    # endpoints, switches of 64 ports, cables between them, k$ an endpoint
    "2-layer fat tree": (2048, 96, 2048, 4.39),
    "3-layer fat tree": (65_536, 5120, 131_072, 7.5),
    "Slim Fly": (32_928, 1568, 32_928, 4.4),
    "dragonfly": (261_632, 16_352, 384_272, 5.8),
}
PORTS = 64
CIRCUIT = 0.3
"""k$ that a circuit, with both ports of its optical switch, is assumed to cost above a cable."""

CLOS = "Clos 2:1"
"""What costs about as much as a dragonfly."""

OTHERS = 64
SERVERS = 128
GROUP = (4, 8, 4)
"""Hosts and global ports of a router, and routers of a group between them: p, a, h."""


def rows(smoke: bool) -> tuple[list[Row], dict[str, Any]]:
    """Return A57: implied prices, what they predict, and designs at equal cost."""
    prices = implied()
    lines = [*predicted(prices)]
    designs = compared(smoke)
    named = {name: design.about(prices) for name, design in designs.items()}
    for name in ("dragonfly, also by a third group", "dragonfly, circuits"):
        cost, clos = (designs[which].cost(prices) for which in (name, CLOS))
        lines.append(Row(f"A57 cost, {name} over {CLOS}", 1, cost / clos, "x", 0.15, RULE,
                         "near enough to be compared"))  # fmt: skip
        for what in ("step in order", "step anywhere"):
            ratio = named[name][what] / named[CLOS][what]
            lines.append(Row(f"A57 {what}, {name} over {CLOS}", 1, ratio, "x", 0.02, RULE,
                             "at most 2 % slower", refuted=ratio > 1.02))  # fmt: skip
    summary: dict[str, Any] = {
        "A57 prices, k$": {
            "switch of 64 ports": f"{prices['switch']:.1f} (implied)",
            "cable": f"{prices['cable']:.2f} (implied)",
            "circuit, above a cable": f"{CIRCUIT} (assumed)",
        },
        **{f"A57 {name}": about for name, about in named.items()},
    }
    return lines, summary


def implied() -> dict[str, float]:
    """Return k$ of a switch and of a cable that both fat trees of the table imply."""
    trees = [TABLE[name] for name in ("2-layer fat tree", "3-layer fat tree")]
    counts = np.array([[switches / n, cables / n] for n, switches, cables, _ in trees])
    switch, cable = np.linalg.solve(counts, [price for *_, price in trees])
    return {"switch": float(switch), "cable": float(cable), "circuit": CIRCUIT}


def predicted(prices: Mapping[str, float]) -> Iterator[Row]:
    """Yield what these prices make of the other rows of the table."""
    for name in ("Slim Fly", "dragonfly"):
        n, switches, cables, quoted = TABLE[name]
        cost = (switches * prices["switch"] + cables * prices["cable"]) / n
        yield Row(f"A57 {name}, k$ an endpoint", quoted, cost, "k$", 0.05, DEEPSEEK,
                  "with the prices that both fat trees of the table imply")  # fmt: skip


@dataclass(frozen=True)
class Design:
    """A fabric of adapters, how it is routed, and how many of its cables are circuits.

    `adapters` are those of every server, (servers, 8).
    """

    network: Network
    route: Callable[[Network, Flows], Routes]
    adapters: np.ndarray
    circuits: int = 0

    def cost(self, prices: Mapping[str, float]) -> float:
        """Return k$ an endpoint: switches by their ports, cables between them, circuits."""
        labels = self.network.labels
        host = labels.is_kind("host")
        ends = ~host[labels.src]
        between = ends & ~host[labels.dst]
        total = ends.sum() / PORTS * prices["switch"] + between.sum() / 2 * prices["cable"]
        return float(total + self.circuits * prices["circuit"]) / len(self.network.hosts)

    def about(self, prices: Mapping[str, float]) -> dict[str, float]:
        """Return cost, rates and steps, for people."""
        return {
            "k$ an endpoint": round(self.cost(prices), 2),
            "to 64 others at once, of a port": round(self.uniform, 3),
            "to the next group, of a port": round(self.shifted, 3),
            "step in order": round(self.step(False), 3),
            "step anywhere": round(self.step(True), 3),
        }

    @property
    def uniform(self) -> float:
        """What every host can send evenly to 64 others, of its port: the same steps for all."""
        hosts = self.network.hosts
        steps = np.random.default_rng(0).choice(np.arange(1, len(hosts)), OTHERS, replace=False)
        dst = np.concatenate([np.roll(hosts, -step) for step in steps])
        return self._slowest(Flows(np.tile(hosts, OTHERS), dst)) * OTHERS

    @property
    def shifted(self) -> float:
        """What every host can send to the same host of the next group, of its port."""
        hosts = self.network.hosts
        return self._slowest(Flows(hosts, np.roll(hosts, -GROUP[0] * GROUP[1])))

    def _slowest(self, flows: Flows) -> float:
        solution = fb.max_min_rates(self.network, self.route(self.network, flows))
        return float(np.asarray(solution.rates).min()) / float(np.max(self.network.capacity))

    def step(self, anywhere: bool) -> float:
        """Return seconds of a step of a 70B model on servers of eight, in order or anywhere."""
        servers = len(self.adapters)
        net = with_servers(self.network, self.adapters)
        order = np.arange(servers)
        if anywhere:
            order = np.random.default_rng(0).permutation(servers)
        used = servers // 32 * 32
        gpus = net.hosts.reshape(servers, 8)[order[:used]].ravel()
        layout = f"tp8 sp pp4 dp{used // 4} zero1 mb1 gbs{4 * used} seq8192 recompute=selective"
        report = fb.step(
            net, fb.Model.listed("llama-3.1-70b"), fb.Layout.parse(layout), fb.Placement(gpus),
            routing=self.route, by=None, allow_infeasible=True,
        )  # fmt: skip
        return float(report.step_time)


def compared(smoke: bool) -> dict[str, Design]:
    """Return folded Clos networks and dragonflies for as many servers."""
    p, a, h = GROUP
    groups = 9 if smoke else a * h + 1
    radix = 16
    hosts = p * a * groups // 8 * 8 if smoke else 8 * SERVERS
    spray, mixed = fb.routing.spray, fb.routing.minimal_valiant
    clos = lambda ratio: topologies.clos(hosts, radix=radix, tiers=3, core_oversubscription=ratio)
    fixed, tuned = topologies.dragonfly(p, a, h, groups=groups), ring_of_groups(groups)
    in_order = lambda net: net.hosts.reshape(-1, 8)
    long = int(tuned.labels.is_tier("global").sum()) // 2
    return {
        "Clos 1:1": Design(clos(1), spray, in_order(clos(1))),
        "Clos 2:1": Design(clos(2), spray, in_order(clos(2))),
        "dragonfly, shortest ways": Design(fixed, spray, on_routers(fixed)),
        "dragonfly, also by a third group": Design(fixed, mixed, on_routers(fixed)),
        "dragonfly, circuits": Design(tuned, spray, on_routers(tuned), circuits=long),
    }


def on_routers(net: Network) -> np.ndarray:
    """Return the adapters of servers that meet the eight routers of their group, as rails do."""
    p, a, _ = GROUP
    return net.hosts.reshape(-1, a, p).transpose(0, 2, 1).reshape(-1, a)


@cache
def ring_of_groups(groups: int) -> Network:
    """Return a dragonfly whose long cables all lead to both neighbours, for jobs in rings.

    Half of the global ports of a router lead to the router of its number in the next group.
    """
    p, a, h = GROUP
    rate = 50e9
    plan = Blueprint()
    group = np.arange(groups)[:, None]
    host = plan.nodes("host", "group{}-router{}-host{}", (groups, a, p), group=group[..., None])
    router = plan.nodes("router", "group{}-router{}", (groups, a), group=group)
    plan.cables("host", host, router[..., None], rate)
    one, other = np.triu_indices(a, 1)
    plan.cables("local", router[:, one], router[:, other], rate)
    plan.cables("global", router, np.roll(router, -1, axis=0), rate, parallel=h // 2)
    return plan.network(f"{groups} groups in a ring of circuits")
