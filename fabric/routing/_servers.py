"""Routing between GPUs of servers: legs inside the servers, and a walk from NIC to NIC between."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int

from fabric._errors import ModelError, UnreachableError
from fabric.network import Flows, Network, Routes, join
from fabric.routing._graph import Trip, check_flows, check_reached
from fabric.routing._inside import Insides

RAILS = ("direct", "forward")
_TAGS = ("server", "slot", "nic", "rail")


def has_servers(network: Network) -> bool:
    """Return whether the endpoints are GPUs in servers, as `attach_servers` makes them.

    Examples:
        >>> import fabric as fb
        >>> has_servers(fb.topologies.rail_optimized(servers=4, radix=16))
        False
    """
    labels = network.labels
    return "gpu" in labels.present_kinds and all(tag in labels.tags for tag in _TAGS)


def routed(
    network: Network, flows: Flows, walk: Callable[[Trip], Routes], queue_pairs: int, rails: str
) -> Routes:
    """Return the routes of flows; `walk` finds those of the fabric, from NIC to NIC if need be.

    A flow inside a server takes the shortest way there, split over its links by capacity. Any
    other goes from its GPU, by the socket where there is no GPUDirect, to its NIC, through the
    fabric as `walk` says, and down the mirrored way. NICs are given; no other is ever tried.

    Args:
        network: With labels.
        flows: (flows,).
        walk: From a trip to routes with `queue_pairs` rows per flow.
        queue_pairs: Rows per flow.
        rails: "direct", or "forward": a flow to another rail first goes to the GPU of its own
            server that uses the NIC on the rail of its destination.

    Raises:
        ModelError: If an end is no endpoint, or `rails` is unknown or of no use here.
        InfeasibleError: If there is no way for some flows; they are named.
    """
    if rails not in RAILS:
        message = f"`rails` needs one of 'direct' and 'forward', but got {rails!r}."
        raise ModelError(message)
    if not has_servers(network):
        if rails != RAILS[0]:
            message = (
                "`rails='forward'` needs servers with GPUs, but this network has none. Use "
                "`topologies.attach_servers(...)`, or leave `rails` out."
            )
            raise ModelError(message)
        return walk(Trip(network, flows))
    check_flows(network, flows)
    insides, legs, tags = Insides(network), Legs(network.n_nodes), network.labels.tags
    src, dst, nic = np.asarray(flows.src), np.asarray(flows.dst), tags["nic"]
    # A file that was written with GPUDirect everywhere does not hold the tag.
    staging = tags.get("staging", np.full(network.n_nodes, -1))
    within = tags["server"][src] == tags["server"][dst]
    first = src if rails == "direct" else _forwarders(network, src, dst)
    moved, across = np.flatnonzero(within | (first != src)), np.flatnonzero(~within)

    def of_flows(flow: np.ndarray, row: np.ndarray) -> Int[np.ndarray, " flows"]:
        rows = np.full(len(src), -1, np.int32)
        rows[flow] = row
        return rows

    to = np.where(within, dst, first)[moved]
    before = [of_flows(moved, legs.between(src[moved], to))]
    before += [of_flows(across, row) for row in legs.to_nic(first[across], nic, staging)]
    after = [of_flows(across, row) for row in legs.from_nic(dst[across], nic, staging)]
    inside = insides.routes(*legs.ends())
    none = np.bincount(inside.hop_flow, minlength=inside.n_flows) == 0
    lost = any_lost(none, [*before, *after])

    # The first leg stays even where no flow takes it: without flows there is no other.
    repeated = lambda rows: [(inside, np.repeat(row, queue_pairs)) for row in rows]
    middle = []
    if len(across):
        weight, cap = np.asarray(flows.weight)[across], np.asarray(flows.cap)[across]
        between = Flows(nic[first[across]], nic[dst[across]], weight=weight, cap=cap)
        view = fabric_only(network, insides.mask)
        row = np.full((len(src), queue_pairs), -1, np.int32)
        row[across] = np.arange(len(across) * queue_pairs).reshape(-1, queue_pairs)
        try:
            middle = [(walk(Trip(view, between, (network, flows, across))), row.ravel())]
        except UnreachableError as error:
            if not lost.any():
                raise
            lost[list(error.flows)] = True
    check_reached(network, flows, lost)
    legs = repeated([before[0], *_taken(before[1:])]) + middle + repeated(_taken(after))
    return join(flows, legs, queue_pairs=queue_pairs)


def _taken(rows: Sequence[Int[np.ndarray, " flows"]]) -> list[Int[np.ndarray, " flows"]]:
    return [row for row in rows if (row >= 0).any()]


class Legs:
    """Pairs of nodes of one server, numbered as they are asked for."""

    def __init__(self, n_nodes: int):
        self._n_nodes = n_nodes
        self._src: list[np.ndarray] = [np.zeros(0, np.int64)]
        self._dst: list[np.ndarray] = [np.zeros(0, np.int64)]

    def between(
        self, a: Int[np.ndarray, " flows"], b: Int[np.ndarray, " flows"]
    ) -> Int[np.ndarray, " flows"]:
        """Return the leg from `a` to `b` of every flow."""
        found, row = np.unique(a.astype(np.int64) * self._n_nodes + b, return_inverse=True)
        return self._new(found // self._n_nodes, found % self._n_nodes)[row]

    def to_nic(
        self, gpu: Int[np.ndarray, " flows"], nic: np.ndarray, staging: np.ndarray
    ) -> list[Int[np.ndarray, " flows"]]:
        """Return the legs of every flow from its GPU to its NIC: one, or two over a socket."""
        return self._chain(gpu, lambda g: (g, staging[g], nic[g]))

    def from_nic(
        self, gpu: Int[np.ndarray, " flows"], nic: np.ndarray, staging: np.ndarray
    ) -> list[Int[np.ndarray, " flows"]]:
        """Return the legs of every flow from its NIC to its GPU."""
        return self._chain(gpu, lambda g: (nic[g], staging[g], g))

    def ends(self) -> tuple[Int[np.ndarray, " legs"], Int[np.ndarray, " legs"]]:
        """Return both ends of all legs."""
        return np.concatenate(self._src), np.concatenate(self._dst)

    def _chain(
        self,
        gpu: Int[np.ndarray, " flows"],
        stops_of: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]],
    ) -> list[Int[np.ndarray, " flows"]]:
        used = np.zeros(self._n_nodes, bool)
        used[gpu] = True
        gpus = np.flatnonzero(used)
        start, stop, end = stops_of(gpus)
        rows = []
        for a, b in ((start, np.where(stop < 0, end, stop)), (stop, end)):
            leg, has = np.full(self._n_nodes, -1, np.int32), a >= 0
            leg[gpus[has]] = self._new(a[has], b[has])
            rows.append(leg[gpu])
        return rows

    def _new(self, a: np.ndarray, b: np.ndarray) -> Int[np.ndarray, " legs"]:
        first = sum(map(len, self._src))
        self._src.append(a)
        self._dst.append(b)
        return np.arange(first, first + len(a), dtype=np.int32)


def _forwarders(
    network: Network, src: Int[np.ndarray, " flows"], dst: Int[np.ndarray, " flows"]
) -> Int[np.ndarray, " flows"]:
    """Return the GPU of the source's server on the rail of the destination, else the source."""
    server, rail = (network.labels.tags[tag].astype(np.int64) for tag in ("server", "rail"))
    gpus, n_rails = network.hosts, int(rail[network.hosts].max()) + 1
    group = server * n_rails + rail
    order = gpus[np.argsort(group[gpus], kind="stable")]
    count = np.bincount(group[gpus], minlength=(int(server.max()) + 1) * n_rails)
    begun = np.cumsum(count) - count
    place = np.zeros(network.n_nodes, np.int64)
    place[order] = np.arange(len(order)) - begun[group[order]]
    # Where several GPUs of the server are on that rail, as in a rack, the traffic is dealt out.
    there = server[src] * n_rails + rail[dst]
    stays = (count[there] == 0) | (rail[src] == rail[dst]) | (server[src] == server[dst])
    pick = begun[there] + place[src] % np.maximum(count[there], 1)
    return np.where(stays, src, order[np.minimum(pick, len(order) - 1)])


def any_lost(
    lost: Bool[np.ndarray, " legs"], rows: Sequence[Int[np.ndarray, " flows"]]
) -> Bool[np.ndarray, " flows"]:
    """Return which flows take a leg that is lost, by the leg of each in every row, -1 for none."""
    gone = np.append(lost, False)  # row -1 is no leg
    return np.any([gone[row] for row in rows], axis=0)


def fabric_only(network: Network, inside: Bool[np.ndarray, " links"]) -> Network:
    """Return the same nodes and links as NICs see them: nothing inside a server is alive."""
    labels, tags = network.labels, network.labels.tags
    endpoint = np.zeros(network.n_nodes, bool)
    endpoint[tags["nic"][network.hosts]] = True
    forwards = np.asarray(labels.forwards) & (tags["server"] < 0)
    return Network(
        network.capacity, network.latency, np.asarray(network.alive) & ~inside,
        network.routing_cost, labels=replace(labels, endpoint=endpoint, forwards=forwards),
    )  # fmt: skip
