"""The part of a network that some flows can use, routed in place of the whole."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from fabric.network import Flows, Labels, Names, Network, Routes
from fabric.reliability._failures import servers_of
from fabric.reliability._intact import Intact, routed_or_lost
from fabric.reliability._usage import Ids, Usage, different, entries, grouped
from fabric.routing._servers import has_servers

_POINTERS = ("nic", "staging")


@dataclass(frozen=True, eq=False)
class _Part:
    """A part of a network: its links by number in the whole, and the numbers of nodes in it."""

    network: Network
    links: Ids
    number: Int[np.ndarray, " nodes"]


class Frame:
    """What forwards for all, to which the servers and hosts of some flows are added."""

    def __init__(self, network: Network):
        labels = network.labels
        self._network = network
        # Only where servers have an inside is there something that forwards for none but its own.
        server = servers_of(network) if has_servers(network) else np.full(network.n_nodes, -1)
        self._common = np.asarray(labels.forwards) & (server < 0)
        # A server stands or falls as one, anything else that forwards nothing by itself.
        n_servers = int(server.max(initial=-1)) + 1
        self._group = np.where(server >= 0, server, n_servers + np.arange(network.n_nodes))
        self._between = self._common[labels.src] & self._common[labels.dst]
        self._ends = [grouped(end, network.n_nodes) for end in (labels.src, labels.dst)]

    def links_at(self, nodes: Ids) -> Ids:
        """Return the links that begin or end at some nodes."""
        ends = [order[entries(ptr, nodes)[1]] for ptr, order in self._ends]
        return different(np.concatenate(ends), self._network.n_links)

    def route(
        self, intact: Intact, hit: Ids, dead: Ids, factor: float
    ) -> tuple[Routes | None, Ids, Ids]:
        """Return as `routed_or_lost`, links numbered as in the whole."""
        flows = intact.some_flows(hit)
        part = self._around(np.concatenate([flows.src, flows.dst]), dead, factor)
        ends = part.number[flows.src], part.number[flows.dst]
        routes, left, lost = routed_or_lost(
            intact.router, part.network, Flows(*ends, flows.size, flows.weight, flows.cap)
        )
        if routes is not None:
            routes = _over(routes, part.links, self._network.n_links)
        return routes, left, lost

    def _around(self, nodes: Ids, dead: Ids, factor: float) -> _Part:
        whole, labels = self._network, self._network.labels
        wanted = np.zeros(int(self._group.max()) + 1, bool)
        wanted[self._group[nodes]] = True
        kept = self._common | wanted[self._group]
        added = np.flatnonzero(kept & ~self._common)
        there = self._between.copy()
        for ptr, order in self._ends:
            at = order[entries(ptr, added)[1]]
            there[at] = kept[labels.src[at]] & kept[labels.dst[at]]
        links, nodes = np.flatnonzero(there), np.flatnonzero(kept)
        number = np.full(whole.n_nodes, -1, np.int32)
        number[nodes] = np.arange(len(nodes), dtype=np.int32)
        alive, capacity = np.asarray(whole.alive)[links], np.asarray(whole.capacity)[links]
        fails = np.zeros(whole.n_links, bool)
        fails[dead] = True
        if factor > 0:
            capacity = np.where(fails[links], capacity * factor, capacity)
        else:
            alive = alive & ~fails[links]
        part = Network(
            capacity, np.asarray(whole.latency)[links], alive,
            np.asarray(whole.routing_cost)[links], labels=_labels(labels, nodes, links, number),
        )  # fmt: skip
        return _Part(part, links, number)


def _labels(labels: Labels, nodes: Ids, links: Ids, number: np.ndarray) -> Labels:
    tags = {tag: values[nodes] for tag, values in labels.tags.items()}
    for tag in _POINTERS:
        if tag in tags and tags[tag].dtype.kind == "i":
            tags[tag] = np.where(tags[tag] >= 0, number[tags[tag]], -1)
    if "server" in tags and tags["server"].dtype.kind == "i":
        found, place = np.unique(tags["server"], return_inverse=True)
        tags["server"] = place.astype(np.int32) - int(found[0] < 0)
    return replace(
        labels, kind_of=labels.kind_of[nodes], names=Names([("{}", (len(nodes),))]), ids=None,
        src=number[labels.src[links]], dst=number[labels.dst[links]],
        tier_of=labels.tier_of[links], cable_of=labels.cable_of[links], tags=tags,
        src_port=None, dst_port=None,
        endpoint=labels.endpoint[nodes], forwards=labels.forwards[nodes],
    )  # fmt: skip


def _over(routes: Routes, links: Ids, n_links: int) -> Routes:
    """Return routes with their links numbered as in the whole."""
    usage = Usage.of(routes)
    return Routes.from_bundles(
        usage.row_of_hop, usage.hop_bundle, usage.hop_use,
        usage.bundle_of_part, links[usage.part_link], usage.part_use,
        n_flows=usage.n_rows, n_bundles=usage.n_bundles, n_links=n_links,
        flow_of=routes.flow_of, weights=np.asarray(routes.weight), caps=np.asarray(routes.cap),
    )  # fmt: skip
