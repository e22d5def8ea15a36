"""`Fabric`: how long the exchanges of a layout take, exactly, or at least.

The least needs no routes: what has to cross a cut of the network cannot be faster than the cut.
Cuts are drawn around every GPU, every network adapter, and all that shares a tag, as a leaf or a
pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from fabric._errors import InfeasibleError, UnreachableError
from fabric.collectives import Exchange, effective, send
from fabric.hardware import Profile
from fabric.network import Flows, Network, Routes
from fabric.optimize._layout_score import Wires
from fabric.routing._servers import has_servers
from fabric.training import Layout, Model, parameters_of_stage
from fabric.training._phases import (
    Phase,
    Router,
    Servers,
    Traffic,
    solved,
    traffic_of,
    waiting,
)

DIMENSIONS = ("tp", "cp", "dp", "pp")
"""The order of ranks of a `Layout`, fastest first."""

_OWN_TAGS = ("server", "slot", "gpu", "nic", "staging", "rail")
# A sum of n loads in float64 may round up: by n x 1.1e-16 at worst, as a rule by its root.
_SLACK = 1 - 1e-12
# Twice the error against float64 that rates in float32 reach after many rounds of filling.
_FLOAT32_SLACK = 4e-5


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

    @property
    def far(self) -> dict[str, int]:
        """How many ranks apart neighbours of a dimension are, by its name."""
        sizes = [getattr(self, name) for name in self.order]
        return {name: prod(sizes[:i]) for i, name in enumerate(self.order)}

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
        self, src: Int[np.ndarray, " flows"], dst: Int[np.ndarray, " flows"],
        size: Float[np.ndarray, " flows"],
    ) -> float:  # fmt: skip
        """Return the seconds that the flows take at least, infinite where one has no way."""
        src, dst = self.of[src], self.of[dst]
        crossing = src != dst
        least = 0.0
        for ends, room in ((src, self.out), (dst, self.into)):
            some = crossing & (ends >= 0)
            load = np.bincount(ends[some], size[some], len(room))
            # Nothing at all leaves a set without a way out.
            took = np.divide(load, room, out=np.where(load > 0, np.inf, 0.0), where=room > 0)
            least = max(least, float(took.max(initial=0.0)))
        return least * _SLACK


class _Shared(NamedTuple):
    """An exchange of groups of one size, equally far apart: seconds of a byte a rank, and waits."""

    took: float
    wait: float
    steps: int


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
        self._model, self._profile, self.router = model, profile, router
        self._seq, self._dtype = seq, dtype
        share = profile.efficiency
        self.network = effective(network, nvlink=share.nvlink.value, nic=share.nic.value)
        self.servers = Servers.in_(network)
        self.cuts = _cuts(self.network, named, router)
        self._known: dict[tuple[int, Degrees, str, bool], tuple[float, float]] = {}
        self._shared: dict[tuple[int, str, int, int], _Shared] = {}
        self._servers_of: dict[int, int] = {}
        self._small: dict[tuple[int, int, bool], dict[str, Traffic]] = {}
        self._parameters: dict[tuple[int, int], np.ndarray] = {}

    @property
    def slack(self) -> float:
        """Share by which rounding may make an exact exchange shorter than it is."""
        kind = jax.dtypes.canonicalize_dtype(self.network.capacity.dtype)
        return 0.0 if kind == np.float64 else _FLOAT32_SLACK

    def least(self, degrees: Degrees, gpu_of: Int[np.ndarray, " slots"]) -> Wires:
        """Return what no routing can beat.

        Args:
            degrees: The sizes, and the order of ranks.
            gpu_of: (slots,), GPUs in the order in which ranks fill them.
        """
        gpus = degrees.ranks(gpu_of)
        return self._wires(gpus, {
            one.name: (self._at_least(one.exchange.flows, one.size), one.latency)
            for one in self.traffic(degrees, gpus, wraps=False)
        })  # fmt: skip

    def glance(self, degrees: Degrees, gpu_of: Int[np.ndarray, " slots"]) -> Wires:
        """Return what no routing can beat, as `least`, but as if data parallelism sent nothing.

        Every other exchange depends on one dimension alone, its size and how far apart its members
        are, but for the bytes: many degrees share it.

        Args:
            degrees: The sizes, and the order of ranks.
            gpu_of: (slots,), GPUs in the order in which ranks fill them.
        """
        slots, call = hash(gpu_of.tobytes()), float(self._profile.latency.collective.value)
        seconds = {}
        for name, one in self._smallest(degrees.tp, degrees.cp, degrees.pp > 1).items():
            along = name if name in ("tp", "cp") else "pp"
            far, size = degrees.far[along], getattr(degrees, along)
            key = (slots, "ring" if along == name else name, far, size)
            if key not in self._shared:
                exchange = self._along(name, gpu_of, far, size)
                wait, steps = waiting(self._profile, exchange, 1)
                took = self._at_least(exchange.flows, exchange.share)
                self._shared[key] = _Shared(took, wait - call, steps)
            took, wait, steps = self._shared[key]
            seconds[name] = (took * float(one.size.max()), call + one.steps // steps * wait)
        return self._wires(gpu_of, seconds)

    def _smallest(self, t: int, c: int, staged: bool) -> dict[str, Traffic]:
        """Return what the smallest job with such groups exchanges but for data parallelism."""
        degrees = Degrees(t, c, 1, 1 + staged)
        if (t, c, staged) not in self._small:
            gpus = np.arange(degrees.gpus, dtype=np.int32)
            found = self.traffic(degrees, gpus, wraps=False, servers=Servers(None, False))
            self._small[t, c, staged] = {one.name: one for one in found if one.name != "dp"}
        return self._small[t, c, staged]

    def _along(self, name: str, gpu_of: Int[np.ndarray, " slots"], far: int, size: int) -> Exchange:
        """Return an exchange of all groups whose members are so many slots apart."""
        groups = gpu_of.reshape(-1, size, far).swapaxes(1, 2).reshape(-1, size)
        if name in ("tp", "cp"):
            return self.servers.ring(groups)
        ahead, behind = groups[:, :-1].ravel(), groups[:, 1:].ravel()
        if name == "embedding":
            ends = groups[:, 0], groups[:, -1]
            ahead, behind = np.concatenate(ends), np.concatenate(ends[::-1])
        pair = (behind, ahead) if name == "pp_backward" else (ahead, behind)
        return send(*pair, self.servers.of)

    def exact(self, degrees: Degrees, gpu_of: Int[np.ndarray, " slots"], wraps: bool) -> Wires:
        """Return what the exchanges take on the fabric, each kind with all its groups at once.

        Args:
            degrees: The sizes, and the order of ranks.
            gpu_of: (slots,), GPUs in the order in which ranks fill them.
            wraps: Whether the last stage sends to the first, as with virtual stages.

        Raises:
            UnreachableError: If a GPU cannot be reached, or a flow gets nothing.
        """
        gpus = degrees.ranks(gpu_of)
        slots, seconds = hash(gpu_of.tobytes()), dict[str, tuple[float, float]]()
        for traffic in self.traffic(degrees, gpus, wraps):
            key = (slots, degrees, traffic.name, wraps and traffic.group == "pp")
            if key not in self._known:
                phase = self._solved(traffic)
                self._known[key] = (phase.transfer, phase.latency)
            seconds[traffic.name] = self._known[key]
        return self._wires(gpus, seconds)

    def _solved(self, traffic: Traffic) -> Phase:
        try:
            return solved(self.network, traffic, self.router)
        except InfeasibleError as error:
            # Other solves may fit in memory, but no other one finds a way.
            if isinstance(error.__cause__, UnreachableError) or self._blocked(traffic):
                raise UnreachableError(str(error)) from error
            raise

    def _blocked(self, traffic: Traffic) -> bool:
        """Return whether a flow has to cross a link of capacity 0."""
        taken = _links_of(self.router(self.network, traffic.exchange.flows))
        return bool((np.asarray(self.network.capacity)[taken] <= 0).any())

    def traffic(
        self, degrees: Degrees, gpus: Int[np.ndarray, " ranks"], wraps: bool,
        servers: Servers | None = None,
    ) -> list[Traffic]:  # fmt: skip
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
            self._model, layout, self._profile, gpus, servers or self.servers,
            self._parameters[t, p],
        )  # fmt: skip

    def _at_least(self, flows: Flows, size: Float[np.ndarray, " flows"]) -> float:
        src, dst, of = np.asarray(flows.src), np.asarray(flows.dst), self.servers.of
        inside = np.zeros(len(src), bool) if of is None else of[src] == of[dst]
        kinds = {cut.within for cut in self.cuts}
        taken = {None: slice(None), True: inside, False: ~inside}
        some = {kind: (src[taken[kind]], dst[taken[kind]], size[taken[kind]]) for kind in kinds}
        return max((cut.seconds(*some[cut.within]) for cut in self.cuts), default=0.0)

    def _wires(
        self, gpus: Int[np.ndarray, " ranks"], seconds: Mapping[str, tuple[float, float]]
    ) -> Wires:
        of = lambda name: seconds.get(name, (0.0, 0.0))
        key = hash(gpus.tobytes())
        if key not in self._servers_of:
            self._servers_of[key] = self.servers.count(gpus)
        return Wires(
            *of("tp"), *of("cp"), *of("pp_forward"), *of("pp_backward"), *of("dp"),
            sum(of("embedding")), float(np.log2(max(self._servers_of[key], 1))),
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
    outside = ~inside_servers(network)
    adapters = np.full(network.n_nodes, -1, np.int64)
    adapters[nic[hosts]] = nic[hosts]
    end = np.where(nic >= 0, nic, nodes)
    across = [
        _between(network, adapters, outside, end, within=False),
        *_tagged(network, end, outside, within=False),
    ]
    return [_between(network, alone, _taken_inside(network, router), within=True), *across]


def inside_servers(network: Network) -> Bool[np.ndarray, " links"]:
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
        try:
            routes = router(network, Flows(src, dst))
        except UnreachableError as error:  # these pairs take no link
            src, dst = (np.delete(ends, list(error.flows)) for ends in (src, dst))
            routes = router(network, Flows(src, dst))
        taken[_links_of(routes)] = True
    return taken


def _links_of(routes: Routes) -> Int[np.ndarray, " some"]:
    """Return the links that some flow takes."""
    bundles = np.asarray(routes.hop_bundle)[np.asarray(routes.hop_use) > 0]
    if not routes.n_parts:
        return np.unique(bundles)
    crossed = np.isin(np.asarray(routes.part_bundle), bundles) & (np.asarray(routes.part_use) > 0)
    return np.unique(np.asarray(routes.part_link)[crossed])


def _tagged(
    network: Network, end: Int[np.ndarray, " nodes"], links: Bool[np.ndarray, " links"],
    within: bool | None = None,
) -> list[_Cuts]:  # fmt: skip
    """Return the cuts around all nodes of a tag, for every tag that tells endpoints apart."""
    hosts, found = end[network.hosts], []
    for name, tag in network.labels.tags.items():
        if name in _OWN_TAGS or tag.dtype.kind not in "iu":
            continue
        sets = np.unique(tag[hosts])
        apart = len(sets) > 1 or sets[0] < 0
        # Around a single node there is a cut already.
        wide = len(sets) < len(hosts) or np.isin(tag, sets).sum() > len(hosts)
        if apart and wide:
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
    ).astype(np.float64)  # without links it would count in whole numbers
    return _Cuts(number if end is None else number[end], room(src), room(dst), within)
