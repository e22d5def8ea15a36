"""The algorithms of every operation: their exchanges, their latencies, and what protocols cost."""

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fabric._errors import ModelError, joined, nearest
from fabric.collectives import _nccl as nccl
from fabric.collectives._exchange import Exchange
from fabric.collectives._operations import bus_factor, moved
from fabric.collectives._pairs import chain, direct, mesh, send
from fabric.collectives._rings import ring
from fabric.collectives._site import Site, Solved
from fabric.collectives._trees import hierarchical, tree
from fabric.hardware import Collectives

ALGORITHMS = {
    "all_reduce": ("ring", "tree", "nvls", "nvls-tree", "hierarchical"),
    "reduce_scatter": ("ring", "hierarchical"),
    "all_gather": ("ring", "hierarchical"),
    "broadcast": ("chain",),
    "all_to_all": ("direct",),
    "send_recv": ("send", "scatter-gather"),
}
"""What each operation may be done by, the usual one first."""

NOT_AUTOMATIC = ("hierarchical",)
"""Algorithms that NCCL does not choose by itself."""

Seconds = Float[np.ndarray, " sizes"]


class Phase(NamedTuple):
    """One exchange of an algorithm.

    Attributes:
        exchange: Its flows.
        factor: Bytes of the exchange per byte of the message.
        passes: How often its steps are gone through.
        calls: How often NCCL is called.
    """

    exchange: Exchange
    factor: float
    passes: int = 1
    calls: int = 1


@dataclass(frozen=True)
class Way:
    """One algorithm on one site.

    Attributes:
        per_byte: Seconds per byte of the message, by protocol.
        latency: Seconds, by protocol.
        bottlenecks: The links that it waits for; the longest phase first.
    """

    per_byte: dict[str, float]
    latency: dict[str, float]
    bottlenecks: tuple[dict[str, object], ...]


def times(way: Way, size: Seconds, site: Site, constants: Collectives) -> dict[str, Seconds]:
    """Return the time of every size by protocol: latency + x + gamma sqrt(latency x).

    x is the time of the bytes alone. The last term stands for a pipeline that fills.

    Args:
        way: The algorithm.
        size: (sizes,), bytes.
        site: Where.
        constants: Scales of the tables of NCCL.
    """
    answer = {}
    for protocol, latency in way.latency.items():
        x = size * way.per_byte[protocol]
        ramp = constants.gamma.value if protocol != "LL" or site.generation.ramp else 0.0
        answer[protocol] = latency + x + ramp * np.sqrt(latency * x)
    return answer


def possible(operation: str, site: Site) -> tuple[str, ...]:
    """Return the algorithms that this site offers for an operation."""
    many, grouped = site.n_servers > 1, site.even > 1 and site.inside is not None
    reduces = site.inside == "nvlink" and not site.meshed and site.generation.nvls > 0
    switched = reduces and site.scale_up > 0
    offered = {
        "tree": many,
        "nvls": switched and not many and site.n_ranks >= nccl.NVLS_RANKS,
        "nvls-tree": switched and many and site.even >= nccl.NVLS_RANKS,
        "hierarchical": many and grouped,
        "scatter-gather": site.receivers is not None and site.n_ranks > 1,
    }
    return tuple(name for name in ALGORITHMS[operation] if offered.get(name, True))


def chosen(operation: str, algorithm: str, site: Site) -> tuple[str, ...]:
    """Return the algorithms to work out, or raise if the one asked for is not there.

    Raises:
        ModelError: If the operation has no such algorithm, or this site does not offer it.
    """
    here = possible(operation, site)
    if algorithm == "auto" or algorithm in here:
        return here
    known = ALGORITHMS[operation]
    if algorithm not in known:
        hint = nearest(algorithm, ["auto", *known])
        message = f"`{operation}(algorithm='{algorithm}')` is no algorithm of it. {hint}"
        raise ModelError(message)
    needs = {
        "tree": "ranks on several servers",
        "nvls": f"{nccl.NVLS_RANKS} ranks or more in one NVSwitch domain that reduces (Hopper on)",
        "nvls-tree": f"several servers with {nccl.NVLS_RANKS} ranks or more on each, in NVSwitch "
        f"domains that reduce (Hopper on)",
        "hierarchical": "as many ranks, 2 or more, on each of several servers whose GPUs are in "
        "the network",
        "scatter-gather": "`receivers`, as many as there are ranks",
    }
    message = (
        f"`{operation}(algorithm='{algorithm}')` needs {needs[algorithm]}, but here are "
        f"{site.n_ranks:,} ranks on {site.n_servers:,} servers. Use "
        f"{joined([f'`{name}`' for name in here])}."
    )
    raise ModelError(message)


def worked_out(operation: str, algorithm: str, site: Site, constants: Collectives) -> Way:
    """Return one algorithm, solved.

    Args:
        operation: One of `OPERATIONS`.
        algorithm: One that the site offers.
        site: Where.
        constants: Scales of the tables of NCCL.
    """
    phases = phases_of(operation, algorithm, site)
    solved = [site.solve(phase.exchange) for phase in phases]
    costs = [p.factor * s.per_byte for p, s in zip(phases, solved, strict=True)]
    per_byte = float(sum(costs, np.zeros(1)).max())
    held = max(zip(costs, solved, strict=True), key=lambda pair: pair[0].max())[1].bottlenecks
    if algorithm.startswith("nvls"):
        return _in_switch(per_byte, held, solved[0].latency, site, constants)
    # LL128 relies on stores of 128 bytes that stay whole, which PCIe does not promise.
    protocols = [p for p in nccl.PROTOCOLS if p != "LL128" or site.inside != "pcie"]
    family = "tree" if algorithm == "tree" else "ring"
    factor = bus_factor(operation, site.n_ranks)
    bus = factor / per_byte if per_byte else math.inf
    return Way(
        {p: factor / _reached(family, p, bus, site) for p in protocols},
        {p: _latency(phases, solved, family, p, site, constants) for p in protocols},
        held,
    )


def phases_of(operation: str, algorithm: str, site: Site) -> list[Phase]:
    """Return the exchanges of an algorithm, one after the other.

    Args:
        operation: One of `OPERATIONS`.
        algorithm: One that the site offers.
        site: Where.
    """
    n, k, groups, of = site.n_ranks, site.even, site.groups, site.server_of
    passes = 2 if operation == "all_reduce" else 1
    if algorithm == "ring":
        whole = site.meshed and site.n_servers == 1
        made = mesh(groups) if whole else ring(groups, of)
        return [Phase(made, moved(operation, n), passes)]
    if algorithm == "hierarchical":
        inside, between = hierarchical(groups, of)
        if site.meshed:
            inside = _regrouped(mesh(site.grid.reshape(-1, k)), len(groups))
        return [
            Phase(inside, passes * (k - 1) / k, passes, passes),
            Phase(between, moved(operation, n // k), passes),
        ]
    if algorithm == "nvls-tree":
        rails = tree(site.grid.swapaxes(1, 2).reshape(-1, n // k))
        return [Phase(_regrouped(rails, len(groups)), 1 / k, 2)]
    if algorithm in ("send", "scatter-gather"):
        return _sent(algorithm, site)
    if algorithm == "nvls":
        # What the ranks give to the switch and get from it does not meet anybody else's.
        return [Phase(_regrouped(ring(groups[:, :1]), len(groups)), 0.0)]
    return [
        Phase({"tree": tree, "chain": chain, "direct": direct}[algorithm](groups, of), 1.0,
              2 if algorithm == "tree" else 1)
    ]  # fmt: skip


def _sent(algorithm: str, site: Site) -> list[Phase]:
    """Return the phases of messages: round the ranks, or from ranks to receivers in pairs."""
    senders, receivers = site.groups, site.receivers
    if receivers is None:
        receivers = np.roll(senders, -1, axis=1)
    t = senders.shape[1] if algorithm == "scatter-gather" else 1
    pairs = send(senders.ravel(), receivers.ravel(), site.server_of)
    pairs = _regrouped(pairs, len(senders))
    if t == 1:
        return [Phase(pairs, 1.0)]
    return [Phase(pairs, 1 / t), Phase(ring(receivers, site.server_of), (t - 1) / t)]


def _regrouped(exchange: Exchange, n_groups: int) -> Exchange:
    """Return an exchange of many small groups as one of fewer, as many small ones to each."""
    first = lambda values: values.reshape(n_groups, -1).max(axis=1)
    return dataclasses.replace(
        exchange, group=exchange.group // (exchange.n_groups // n_groups), n_groups=n_groups,
        steps=first(exchange.steps), crossings=first(exchange.crossings),
    )  # fmt: skip


def _reached(family: str, protocol: str, bus: float, site: Site) -> float:
    """Return the bus bandwidth of a protocol from that of large chunks, as NCCL reckons."""
    most = site.generation.most[min(site.n_servers, 3) - 1]
    if family == "ring":
        return {"LL": min(most, bus / 2), "LL128": 0.92 * bus, "Simple": bus}[protocol]
    if protocol == "LL":
        return min(most, bus / 3.8)
    channels = site.generation.tree[min(site.n_servers, 3) - 2] * max(site.fewest, 2)
    reached = min(0.92 * bus, channels * (site.n_ranks - 1) / site.n_ranks)
    return reached * 120 / 128 if protocol == "LL128" else reached


def _latency(
    phases: list[Phase],
    solved: list[Solved],
    family: str,
    protocol: str,
    site: Site,
    constants: Collectives,
) -> float:
    """Return the time that a message of no bytes takes."""
    scale, net = constants.latency_scale.value, constants.net_latency_scale.value
    inner = nccl.STEP[site.inside or "nvlink"][family][protocol]
    outer = nccl.STEP["net"][family][protocol] * net
    total = 0.0
    for (exchange, _, passes, calls), solution in zip(phases, solved, strict=True):
        steps, crossings = int(exchange.steps.max()), int(exchange.crossings.max())
        inside = max(inner, nccl.LEAST_STEP[protocol]) if crossings else inner
        once = (steps - crossings) * inside + crossings * outer
        total += scale * (calls * nccl.BASE[family][protocol] + passes * once)
        total += passes * crossings * solution.latency
    return total


def _in_switch(
    per_byte: float,
    held: tuple[dict[str, object], ...],
    hop: float,
    site: Site,
    constants: Collectives,
) -> Way:
    """Return the reduction in NVSwitches, with a tree between servers if there are several.

    Every GPU gives all its bytes to the switch, takes the sums of its own part, gives these back,
    and takes all sums: 1 + 1/k times the message in each direction.
    """
    k = site.n_ranks if site.n_servers == 1 else site.even
    inside = (1 + 1 / k) / (site.scale_up * site.generation.nvls)
    levels = math.ceil(math.log2(site.n_servers))
    net = constants.net_latency_scale.value
    latency = nccl.NVLS + 2 * levels * nccl.NVLS_TREE_HOP * net
    if inside >= per_byte:
        held = ({"link": "GPU to NVSwitch", "tier": "nvlink", "flows": site.groups.size},)
    return Way(
        {"Simple": max(inside, per_byte)},
        {"Simple": latency * constants.latency_scale.value + 2 * levels * hop},
        held,
    )
