"""What a layout puts on the fabric: per parallel dimension the flows of all groups at once."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import InfeasibleError, some
from fabric.collectives import Exchange, mesh, moved, path_latency, ring, send
from fabric.hardware import Profile
from fabric.network import Flows, Network, Routes
from fabric.solvers import RateSolution, max_min_rates
from fabric.training._layout import Layout
from fabric.training._model import Model
from fabric.training._numbers import ACTIVATION, GRADIENT
from fabric.training._stages import gpu_vocab

Router = Callable[[Network, Flows], Routes]


@dataclass(frozen=True)
class Servers:
    """Which GPUs share a server, and what joins them.

    Attributes:
        of: (nodes,), server of every node, -1 for none; None: every endpoint is a server of its
            own, as in a network without GPUs.
        meshed: GPUs of a server have links to one another instead of a switch.
    """

    of: Int[np.ndarray, " nodes"] | None
    meshed: bool

    @classmethod
    def in_(cls, network: Network) -> "Servers":
        """Return those of a network."""
        labels = network.labels
        if not labels.is_kind("gpu").any() or "server" not in labels.tags:
            return cls(None, False)
        meshed = "nvlink" in labels.tiers and not labels.is_kind("nvswitch").any()
        return cls(labels.tags["server"], meshed)

    def count(self, gpus: Int[np.ndarray, " ranks"]) -> int:
        """Return the number of servers that some GPUs are in."""
        return len(gpus) if self.of is None else len(np.unique(self.of[gpus]))

    def ring(self, groups: Int[np.ndarray, "groups size"]) -> Exchange:
        """Return rings of groups; inside a meshed server over all of its links."""
        if self.meshed and self.of is not None:
            server = self.of[groups]
            if np.all(server == server[:, :1]):
                return mesh(groups)
        return ring(groups, self.of)


@dataclass(frozen=True)
class Traffic:
    """One kind of exchange: its flows, and what each of them carries.

    Attributes:
        name: The field of `Wire` that it fills.
        group: "tp", "cp", "pp" or "dp": the parallel dimension that loads the fabric.
        does: In words.
        exchange: Flows of all groups of this dimension at once.
        size: (flows,), bytes of one exchange.
        latency: Seconds of calls and steps, of the slowest group, links of no length.
        steps: Messages that wait for one another, of the group with most.
    """

    name: str
    group: str
    does: str
    exchange: Exchange
    size: Float[np.ndarray, " flows"]
    latency: float
    steps: int


@dataclass(frozen=True)
class Phase:
    """Traffic on a fabric: its routes and its max-min rates.

    Attributes:
        traffic: What is exchanged.
        routes: Of its flows.
        solution: Rates at capacities times what the software reaches of them.
        latency: Seconds of one exchange that do not depend on its size.
    """

    traffic: Traffic
    routes: Routes
    solution: RateSolution
    latency: float

    @property
    def rates(self) -> Float[np.ndarray, " flows"]:
        """(flows,), byte/s, queue pairs summed."""
        return np.asarray(self.routes.per_flow(np.asarray(self.solution.rates, np.float64)))

    @property
    def transfer(self) -> float:
        """Seconds on the wire: the slowest flow decides."""
        return float(np.max(self.traffic.size / self.rates))

    @property
    def seconds(self) -> float:
        """Seconds of one exchange, latency included."""
        return self.transfer + self.latency

    @property
    def links_used(self) -> int:
        """Links that some flow crosses."""
        bundles = np.asarray(self.routes.hop_bundle)[np.asarray(self.routes.hop_use) > 0]
        if not self.routes.n_parts:
            return len(np.unique(bundles))
        crossed = np.isin(np.asarray(self.routes.part_bundle), bundles)
        crossed &= np.asarray(self.routes.part_use) > 0
        return len(np.unique(np.asarray(self.routes.part_link)[crossed]))

    @property
    def slowest(self) -> Int[np.ndarray, " some"]:
        """The flows that are done last, to one part in a billion."""
        taken = self.traffic.size / self.rates
        return np.flatnonzero(taken >= taken.max() * (1 - 1e-9))


def traffic_of(
    model: Model,
    layout: Layout,
    profile: Profile,
    gpu_of: Int[np.ndarray, " ranks"],
    servers: Servers,
    parameters: Float[np.ndarray, " stages"],
) -> list[Traffic]:
    """Return what a layout exchanges, one entry per kind that occurs.

    Args:
        model: Its shape.
        layout: How it is cut.
        profile: Latencies, and the type of reduced gradients.
        gpu_of: (ranks,), the node of every rank; ranks count tp, cp, dp, pp, fastest first.
        servers: Of the network.
        parameters: (stages,), held by one GPU of each stage.
    """
    t, c, d, p = layout.tp, layout.cp, layout.dp, layout.pp
    node = gpu_of.reshape(p, d, c, t)
    rows = layout.mb * layout.seq / c
    wide = ACTIVATION[layout.dtype]
    activations = wide * rows * model.hidden
    found: list[Traffic] = []
    if t > 1:
        found.append(_rings(
            "tp", "activations of a layer, reduced over a tensor-parallel group", profile,
            servers.ring(node.reshape(-1, t)), moved("all_reduce", t) * activations, passes=2,
        ))  # fmt: skip
    if c > 1:
        heads = max(model.kv_heads / t, 1)  # a rank holds one head at least
        block = wide * rows * 2 * heads * model.head_dim
        found.append(_rings(
            "cp", "keys and values of a layer, around a context-parallel ring", profile,
            servers.ring(np.moveaxis(node, 2, 3).reshape(-1, c)), (c - 1) * block,
        ))  # fmt: skip
    if p > 1:
        ahead, behind = node[:-1], node[1:]
        if layout.vpp > 1:  # chunks go around: the last stage feeds the first
            ahead = np.concatenate([ahead, node[-1:]])
            behind = np.concatenate([behind, node[:1]])
        cut = "between stages, cut over the tensor-parallel ranks"
        for name, what, src, dst in (
            ("pp_forward", "activations", ahead, behind),
            ("pp_backward", "gradients of activations", behind, ahead),
        ):
            messages = send(src.ravel(), dst.ravel(), servers.of)
            found.append(_pairs(name, "pp", f"{what} {cut}", profile, messages, activations / t))
    if d * c > 1:
        groups = np.moveaxis(node.reshape(p, d * c, t), 1, 2).reshape(-1, d * c)
        sent = moved("all_gather", d * c) * np.repeat(parameters, t)
        found.append(_rings(
            "dp", "a byte per parameter, around a data-parallel ring", profile,
            servers.ring(groups), sent,
        ))  # fmt: skip
    if model.tied and p > 1:
        grad = GRADIENT[profile.stack.grad_dtype]
        src = np.concatenate([node[0], node[-1]]).ravel()
        dst = np.concatenate([node[-1], node[0]]).ravel()
        found.append(_pairs(
            "embedding", "dp", "gradients of the tied embedding, between first and last stage",
            profile, send(src, dst, servers.of), grad * gpu_vocab(model, t) * model.hidden,
        ))  # fmt: skip
    return found


def _rings(
    name: str,
    does: str,
    profile: Profile,
    exchange: Exchange,
    sent: Float[np.ndarray, " groups"] | float,
    passes: int = 1,
) -> Traffic:
    """Return rings in which every member sends so many bytes, in `passes` x (n - 1) steps."""
    each = np.broadcast_to(np.asarray(sent, np.float64), exchange.n_groups)
    size = exchange.share * each[exchange.group]
    return Traffic(name, name, does, exchange, size, *waiting(profile, exchange, passes))


def _pairs(
    name: str, group: str, does: str, profile: Profile, exchange: Exchange, size: float
) -> Traffic:
    sizes = exchange.share * size
    return Traffic(name, group, does, exchange, sizes, *waiting(profile, exchange, 1))


def waiting(profile: Profile, exchange: Exchange, passes: int) -> tuple[float, int]:
    """Return seconds of a call and its steps, and the steps, of the slowest group."""
    inside, between = profile.latency.nvlink_step.value, profile.latency.nic_step.value
    crossings, steps = passes * exchange.crossings, passes * exchange.steps
    each = crossings * between + (steps - crossings) * inside
    return profile.latency.collective.value + float(each.max()), int(steps.max())


def solved(network: Network, traffic: Traffic, router: Router) -> Phase:
    """Return traffic with its routes and rates.

    Args:
        network: Capacities already times what the software reaches of them.
        traffic: What is exchanged.
        router: Network and flows to routes.

    Raises:
        InfeasibleError: If a pair cannot be reached, or a flow gets nothing.
    """
    flows, names = traffic.exchange.flows, network.labels.names
    try:
        routes = router(network, flows)
    except InfeasibleError as error:
        message = (
            f"{_called(traffic)}: {error} In a step every rank has to be reached: place the job on "
            f"other GPUs (`placement`)."
        )
        raise InfeasibleError(message) from error
    latency = traffic.latency + traffic.steps * path_latency(network, routes)
    phase = Phase(traffic, routes, max_min_rates(network, routes), latency)
    stuck = np.flatnonzero(phase.rates <= 0)
    if len(stuck):
        pair = lambda f: f"{names[int(flows.src[f])]} -> {names[int(flows.dst[f])]}"
        message = (
            f"{_called(traffic)}: {len(stuck):,} of {len(phase.rates):,} flows get no rate, since "
            f"a link on their way has capacity 0: {some(stuck.tolist(), name=pair)}. Routing goes "
            f"round a failed link between switches (`alive` false); a GPU whose adapter or cable "
            f"is down has to be left out (`placement`)."
        )
        raise InfeasibleError(message)
    return phase


def _called(traffic: Traffic) -> str:
    return f"Exchange `{traffic.name}` ({traffic.does})"
