"""`Fabric`: how long the exchanges of a layout take, exactly, or at least.

The least needs no routes: what has to cross a cut of the network cannot be faster than the cut.
Cuts are drawn around every GPU, every network adapter, and all that shares a tag, as a leaf or a
pod.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric.collectives import effective
from fabric.hardware import Profile
from fabric.network import Flows, Network
from fabric.optimize._layout_score import Wires
from fabric.routing._servers import has_servers
from fabric.training import Layout, Model, parameters_of_stage
from fabric.training._phases import Router, Servers, Traffic, solved, traffic_of

DIMENSIONS = ("tp", "cp", "dp", "pp")
"""The order of ranks of a `Layout`, fastest first."""

_OWN_TAGS = ("server", "slot", "gpu", "nic", "staging", "rail")
_SLACK = 1 - 1e-12  # a sum of loads may round up


class Degrees(NamedTuple):
    """Sizes of the parallel groups and the order of ranks, fastest first."""

    tp: int
    cp: int
    dp: int
    pp: int
    order: tuple[str, ...] = DIMENSIONS

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.tp * self.cp * self.dp * self.pp

    def ranks(self, gpu_of: Int[np.ndarray, " slots"]) -> Int[np.ndarray, " ranks"]:
        """Return the GPU of every rank of a `Layout`, if `gpu_of` has them in another order.

        Examples:
            >>> Degrees(2, 1, 2, 1, ("dp", "tp", "cp", "pp")).ranks(np.arange(4)).tolist()
            [0, 2, 1, 3]
        """
        slow_first = self.order[::-1]
        table = gpu_of.reshape([getattr(self, name) for name in slow_first])
        return table.transpose([slow_first.index(name) for name in DIMENSIONS[::-1]]).ravel()


@dataclass(frozen=True)
class _Cuts:
    """Disjoint sets of nodes, and what can leave and enter each of them.

    Attributes:
        of: (nodes,), the set that the ends of a flow at a node are in; -1: none.
        out, into: (sets,), byte/s.
        within: True: of flows inside servers only. False: of all others. None: of all.
    """

    of: Int[np.ndarray, " nodes"]
    out: Float[np.ndarray, " sets"]
    into: Float[np.ndarray, " sets"]
    within: bool | None = None

    def seconds(
        self, flows: Flows, size: Float[np.ndarray, " flows"], inside: Bool[np.ndarray, " flows"]
    ) -> float:
        """Return the seconds that the flows take at least."""
        src, dst = self.of[flows.src], self.of[flows.dst]
        crossing = src != dst
        if self.within is not None:
            crossing &= inside == self.within
        least = 0.0
        for ends, room in ((src, self.out), (dst, self.into)):
            some = crossing & (ends >= 0)
            load = np.bincount(ends[some], size[some], len(room))
            # Nothing at all leaves a set without a way out: the exact solve says so by name.
            took = np.divide(load, room, out=np.zeros(len(room)), where=room > 0)
            least = max(least, float(took.max(initial=0.0)))
        return least * _SLACK


class Fabric:
    """The exchanges of one model on one network.

    Args:
        network: With labels; capacities are nominal.
        model: Its shape.
        profile: What the software reaches.
        seq: Tokens of a sequence.
        dtype: Of the matrix products.
        router: Network and flows to routes.
        named: Whether the router is one of `routing.ROUTINGS`, which keep to the adapter of a GPU
            and to the links inside a server where both ends are in it.
    """

    def __init__(
        self, network: Network, model: Model, profile: Profile, seq: int, dtype: str,
        router: Router, *, named: bool,
    ):  # fmt: skip
        self._model, self._profile, self._router = model, profile, router
        self._seq, self._dtype = seq, dtype
        share = profile.efficiency
        self._network = effective(network, nvlink=share.nvlink.value, nic=share.nic.value)
        self._servers = Servers.in_(network)
        self._cuts = _cuts(self._network, named, router)
        self._known: dict[tuple[Degrees, str, bool], tuple[float, float]] = {}
        self._parameters: dict[tuple[int, int], np.ndarray] = {}

    def least(self, degrees: Degrees, gpu_of: Int[np.ndarray, " slots"]) -> Wires:
        """Return what no routing can beat.

        Args:
            degrees: The sizes, and the order of ranks.
            gpu_of: (slots,), GPUs in the order in which ranks fill them.
        """
        gpus = degrees.ranks(gpu_of)
        traffic = self._traffic(degrees, gpus, wraps=False)
        return self._wires(gpus, {t.name: (self._at_least(t), t.latency) for t in traffic})

    def exact(self, degrees: Degrees, gpu_of: Int[np.ndarray, " slots"], wraps: bool) -> Wires:
        """Return what the exchanges take on the fabric, each kind with all its groups at once.

        Args:
            degrees: The sizes, and the order of ranks.
            gpu_of: (slots,), GPUs in the order in which ranks fill them.
            wraps: Whether the last stage sends to the first, as with virtual stages.

        Raises:
            InfeasibleError: If a GPU cannot be reached, or a flow gets nothing.
        """
        gpus = degrees.ranks(gpu_of)
        seconds: dict[str, tuple[float, float]] = {}
        for traffic in self._traffic(degrees, gpus, wraps):
            key = (degrees, traffic.name, wraps and traffic.group == "pp")
            if key not in self._known:
                phase = solved(self._network, traffic, self._router)
                self._known[key] = (phase.transfer, phase.latency)
            seconds[traffic.name] = self._known[key]
        return self._wires(gpus, seconds)

    def _traffic(
        self, degrees: Degrees, gpus: Int[np.ndarray, " ranks"], wraps: bool
    ) -> list[Traffic]:
        """Return the exchanges of microbatches of one sequence."""
        t, c, d, p, _ = degrees
        layout = Layout(
            tp=t, cp=c, dp=d, pp=p, vpp=2 if wraps and p > 1 else 1, gbs=d, seq=self._seq,
            dtype=self._dtype,
        )  # fmt: skip
        if (t, p) not in self._parameters:
            # Stages between the first and the last are alike.
            held = [parameters_of_stage(self._model, layout, s) for s in (0, min(1, p - 1), p - 1)]
            by_stage = np.full(p, held[1], np.float64)
            by_stage[0], by_stage[-1] = held[0], held[2]
            self._parameters[t, p] = by_stage
        return traffic_of(
            self._model, layout, self._profile, gpus, self._servers, self._parameters[t, p]
        )

    def _at_least(self, traffic: Traffic) -> float:
        flows, of = traffic.exchange.flows, self._servers.of
        src, dst = np.asarray(flows.src), np.asarray(flows.dst)
        inside = np.zeros(len(src), bool) if of is None else of[src] == of[dst]
        return max((cut.seconds(flows, traffic.size, inside) for cut in self._cuts), default=0.0)

    def _wires(
        self, gpus: Int[np.ndarray, " ranks"], seconds: dict[str, tuple[float, float]]
    ) -> Wires:
        of = lambda name: seconds.get(name, (0.0, 0.0))
        return Wires(
            *of("tp"), *of("cp"), *of("pp_forward"), *of("pp_backward"), *of("dp"),
            sum(of("embedding")), float(np.log2(max(self._servers.count(gpus), 1))),
        )  # fmt: skip


def _cuts(network: Network, named: bool, router: Router) -> Sequence[_Cuts]:
    """Return the cuts of a network that bound the seconds of an exchange."""
    labels, hosts = network.labels, network.hosts
    nodes = np.arange(network.n_nodes)
    alone = np.full(network.n_nodes, -1, np.int64)
    alone[hosts] = hosts
    if not (named and has_servers(network)):
        everything = np.ones(network.n_links, bool)
        return [_between(network, alone, everything), *_tagged(network, nodes, everything)]
    nic = np.asarray(labels.tags["nic"], np.int64)
    outside = ~_inside(network)
    adapters = np.full(network.n_nodes, -1, np.int64)
    adapters[nic[hosts]] = nic[hosts]
    end = np.where(nic >= 0, nic, nodes)
    across = [
        _between(network, adapters, outside, end, within=False),
        *_tagged(network, end, outside, within=False),
    ]
    return [_between(network, alone, _taken_inside(network, router), within=True), *across]


def _inside(network: Network) -> Bool[np.ndarray, " links"]:
    labels = network.labels
    server = labels.tags["server"]
    return (server[labels.src] >= 0) & (server[labels.src] == server[labels.dst])


def _taken_inside(network: Network, router: Router) -> Bool[np.ndarray, " links"]:
    """Return the links that some flow between two GPUs of a server takes."""
    labels, hosts = network.labels, network.hosts
    server = labels.tags["server"][hosts]
    order = hosts[np.argsort(server, kind="stable")]
    size = np.bincount(np.unique(server, return_inverse=True)[1])
    begun = np.repeat(np.cumsum(size) - size, size)
    place, of = np.arange(len(order)) - begun, np.repeat(size, size)
    pairs = [
        (order[has], order[(begun + (place + shift) % of)[has]])
        for shift in range(1, int(size.max()))
        if (has := shift < of).any()
    ]
    taken = np.zeros(network.n_links, bool)
    if pairs:
        src, dst = (np.concatenate(ends).astype(np.int32) for ends in zip(*pairs, strict=True))
        routes = router(network, Flows(src, dst))
        links = routes.part_link if routes.n_parts else routes.hop_bundle
        use = routes.part_use if routes.n_parts else routes.hop_use
        taken[np.asarray(links)[np.asarray(use) > 0]] = True
    return taken


def _tagged(
    network: Network, end: Int[np.ndarray, " nodes"], links: Bool[np.ndarray, " links"],
    within: bool | None = None,
) -> list[_Cuts]:  # fmt: skip
    """Return the cuts around all nodes of a tag, for every tag that tells endpoints apart."""
    hosts, found = end[network.hosts], []
    for name, tag in network.labels.tags.items():
        if name in _OWN_TAGS or tag.dtype.kind not in "iu":
            continue
        sizes = np.unique(tag[hosts])
        if 1 < len(sizes) < len(hosts) or sizes[0] < 0:
            found.append(_between(network, np.asarray(tag, np.int64), links, end, within))
    return found


def _between(
    network: Network,
    of: Int[np.ndarray, " nodes"],
    links: Bool[np.ndarray, " links"],
    end: Int[np.ndarray, " nodes"] | None = None,
    within: bool | None = None,
) -> _Cuts:
    """Return the cuts around sets of nodes, over some links.

    Args:
        network: Its capacities are what is reached.
        of: (nodes,), the set of each node, -1 for none.
        links: (links,), which links count.
        end: (nodes,), the node where the flows of a node begin and end, as seen from these links.
        within: As in `_Cuts`.
    """
    labels = network.labels
    values, number = np.unique(of, return_inverse=True)
    first = int(values[0] < 0)
    number = number.ravel() - first
    src, dst = number[labels.src], number[labels.dst]
    leaves = links & np.asarray(network.alive) & (src != dst)
    capacity = np.asarray(network.capacity, np.float64)
    room = lambda ends: np.bincount(
        ends[leaves & (ends >= 0)], capacity[leaves & (ends >= 0)], len(values) - first
    )
    return _Cuts(number if end is None else number[end], room(src), room(dst), within)
