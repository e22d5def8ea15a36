"""`Docks` and `Site`: what the adapters of some servers hang on, and the paths between.

Servers trade places as a whole, so that of the fabric only this counts: which dock every adapter of
a server is at, and how the traffic of every two docks splits over the paths between.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from fabric._errors import ModelError, UnreachableError, some
from fabric.network import Flows, Network, Routes
from fabric.optimize._layout_wires import inside_servers
from fabric.optimize._path_sets import path_set
from fabric.optimize._trunks import Trunks, trunks
from fabric.routing._graph import Trip
from fabric.routing._servers import fabric_only, routed

Table = Int[np.ndarray, "adapters ports"]


class Docks:
    """The adapters of servers. A dock is the set of switches that an adapter has live links to.

    Args:
        network: With servers; capacities are what is reached.
        gpus: (servers, gpus), nodes whose adapters have live links.

    Attributes:
        nic: (servers, gpus), the adapter of every GPU, as a number.
        local: (gpus,), the adapter of every GPU as a number within its server, alike in all.
        out, into: (adapters, ports), byte/s.
        dock: (adapters,). `of`: (servers, gpus), the dock of every GPU.
        kind: (servers,): those whose docks are the same are of one kind. `first`: (kinds,), a
            server of each.

    Raises:
        ModelError: If GPUs share adapters in another way in some servers.
    """

    def __init__(self, network: Network, gpus: Int[np.ndarray, "servers gpus"]):
        self.gpus, labels = gpus, network.labels
        nic = labels.tags["nic"][gpus]
        self.nodes, number = np.unique(nic, return_inverse=True)
        self.nic = number.reshape(nic.shape)
        local = np.array([np.unique(row, return_inverse=True)[1] for row in nic])
        if len(other := np.flatnonzero((local != local[0]).any(axis=1))):
            name = lambda server: labels.node_name(int(gpus[server, 0]))
            message = (
                f"`joint` exchanges servers, which takes GPUs that share adapters in the same way, "
                f"but {len(other):,} of {len(gpus):,} servers differ from the first: those of "
                f"{some(other.tolist(), name=name)}. Leave them out of `allocation`."
            )
            raise ModelError(message)
        self.local = local[0]
        view = fabric_only(network, inside_servers(network))
        tags = {tag: values for tag, values in labels.tags.items() if tag != "slot"}
        self.fabric = Network(
            view.capacity, view.latency, view.alive, view.routing_cost,
            labels=replace(view.labels, tags=tags),
        )  # fmt: skip
        self.trunks: Trunks = trunks(self.fabric)
        ends = self.trunks.network.labels
        self.out_trunk, out_to = self._ports(ends.src, ends.dst)
        self.into_trunk, into_from = self._ports(ends.dst, ends.src)
        capacity = np.append(np.asarray(self.trunks.network.capacity, np.float64), 0.0)
        self.out, self.into = capacity[self.out_trunk], capacity[self.into_trunk]
        ways = np.concatenate([out_to, into_from], axis=1)
        self.dock = np.unique(ways, axis=0, return_inverse=True)[1].ravel()
        self.of = self.dock[self.nic]
        _, self.first, kind = np.unique(self.of, axis=0, return_index=True, return_inverse=True)
        self.kind = kind.ravel()

    @property
    def n_servers(self) -> int:
        """Number of servers."""
        return len(self.gpus)

    def _ports(
        self, here: Int[np.ndarray, " trunks"], there: Int[np.ndarray, " trunks"]
    ) -> tuple[Table, Table]:
        """Return the trunks at every adapter, and the nodes they lead to; past the end, and -1."""
        own = np.flatnonzero(np.isin(here, self.nodes))
        own = own[np.lexsort((there[own], here[own]))]
        row = np.searchsorted(self.nodes, here[own])
        count = np.bincount(row, minlength=len(self.nodes))
        column = np.arange(len(own)) - (np.cumsum(count) - count)[row]
        shape = (len(self.nodes), int(count.max(initial=1)))
        trunk, to = np.full(shape, len(here)), np.full(shape, -1)
        trunk[row, column], to[row, column] = own, there[own]
        return trunk, to


class Mix(NamedTuple):
    """Splits as loads: what a byte from dock to dock puts on trunks and ports.

    The last pair is that of adapters on one switch, which needs no path.
    """

    middle: csr_array  # (trunks, pairs)
    out: Float[np.ndarray, "pairs_own ports"]
    into: Float[np.ndarray, "pairs_own ports"]


class Sent(NamedTuple):
    """Flows between servers, by position: slot p of the job is GPU p mod gpus of its server."""

    kind: Int[np.ndarray, " flows"]
    src: Int[np.ndarray, " flows"]
    dst: Int[np.ndarray, " flows"]
    size: Float[np.ndarray, " flows"]  # bytes


class Site:
    """The paths between docks.

    Args:
        docks: Of the servers.
        combos: (gpus, gpus), between which GPUs of two servers anything is ever sent.
        paths: As of `routing_weights`.
        seed: Decides between paths of equal cost.

    Attributes:
        table: (docks, docks), the pair of two docks. `lost`: some of the pairs have no path.
        hops, none: Edges of every path: trunks, then the ports of docks; and what stands for none.
        capacity: (edges,), byte/s; of all adapters of a dock together.
    """

    def __init__(
        self, docks: Docks, combos: Bool[np.ndarray, "gpus gpus"], paths: str | int, seed: int
    ):
        self.docks = docks
        n = int(docks.dock.max()) + 1
        wanted = np.zeros((n, n), bool)
        for a, b in np.argwhere(combos).tolist():
            wanted[np.ix_(np.unique(docks.of[:, a]), np.unique(docks.of[:, b]))] = True
        order = np.argsort(docks.dock, kind="stable")
        count = np.bincount(docks.dock)
        begun = np.cumsum(count) - count
        wanted[np.diag_indices(n)] &= count > 1
        a, b = np.nonzero(wanted)
        node = docks.nodes[order]
        flows = Flows(node[begun[a]], node[begun[b] + (a == b)])
        self.lost = np.zeros((n, n), bool)
        try:
            self.paths = path_set(docks.fabric, flows, paths, seed)
        except UnreachableError as error:
            gone = np.array(error.flows, np.int64)
            self.lost[a[gone], b[gone]] = True
            a, b = np.delete(a, gone), np.delete(b, gone)
            flows = Flows(np.delete(flows.src, gone), np.delete(flows.dst, gone))
            self.paths = path_set(docks.fabric, flows, paths, seed)
        self.table = np.full((n, n), -1)
        pair = self.paths.pair_of
        self.table[a, b] = np.where(pair < 0, self.n_pairs, pair)
        self._ends(n)

    @property
    def n_pairs(self) -> int:
        """Number of pairs of docks between which there is a choice of paths."""
        return self.paths.n_pairs

    def _ends(self, n_docks: int) -> None:
        """Tell ports of adapters from trunks between switches on every path."""
        paths, docks = self.paths, self.docks
        n = paths.n_trunks
        edge = np.arange(n + 1)
        port_out, port_into = np.full(n + 1, -1), np.full(n + 1, -1)
        capacity = [np.asarray(paths.trunks.network.capacity, np.float64)]
        first = n
        for trunk, room, port in (
            (docks.out_trunk, docks.out, port_out), (docks.into_trunk, docks.into, port_into),
        ):  # fmt: skip
            width = trunk.shape[1]
            column = np.broadcast_to(np.arange(width), trunk.shape)
            port[trunk], edge[trunk] = column, first + docks.dock[:, None] * width + column
            together = np.zeros((n_docks, width))
            np.add.at(together, docks.dock, room)
            capacity.append(together.ravel())
            first += n_docks * width
            port[n] = -1
        edge[n] = self.none = first
        self.capacity = np.concatenate(capacity)
        self.hops = edge[paths.hops]
        inner = (paths.hops < n) & (self.hops < n)
        self._row, column = np.nonzero(inner)
        self._trunk = paths.hops[self._row, column]
        self._out = np.maximum(port_out[paths.hops].max(axis=1), 0)
        self._into = np.maximum(port_into[paths.hops].max(axis=1), 0)

    def sprayed(self) -> Float[np.ndarray, "pairs width"]:
        """Return the splits of equal shares over all cables at every switch."""
        paths, merged = self.paths, self.paths.trunks
        n, labels = paths.n_trunks, merged.network.labels
        cables = np.bincount(merged.of_link[merged.of_link >= 0], minlength=n)
        row, column = np.nonzero(paths.hops < n)
        key, at = np.unique(row // paths.width * n + paths.hops[row, column], return_inverse=True)
        pair, trunk = np.divmod(key, n)
        fork = np.unique(pair * labels.n_nodes + labels.src[trunk], return_inverse=True)[1]
        share = cables[trunk] / np.bincount(fork, cables[trunk])[fork]
        weight = np.ones(len(paths.hops))
        np.multiply.at(weight, row, share[at.ravel()])
        return self.whole(weight.reshape(paths.valid.shape))

    def whole(self, splits: Float[np.ndarray, "pairs width"]) -> Float[np.ndarray, "pairs width"]:
        """Return splits in float64 whose rows are 1 in all."""
        kept = np.where(self.paths.valid, np.asarray(splits, np.float64), 0.0)
        return kept / kept.sum(axis=1, keepdims=True)

    def mixed(self, splits: Float[np.ndarray, "pairs width"]) -> Mix:
        """Return what splits put on trunks and ports."""
        width, weight = self.paths.width, splits.ravel()
        shape = (self.paths.n_trunks, self.n_pairs)
        middle = csr_array((weight[self._row], (self._trunk, self._row // width)), shape)
        middle.eliminate_zeros()
        pair = np.arange(len(weight)) // width
        ends = []
        for port, table in ((self._out, self.docks.out), (self._into, self.docks.into)):
            share = np.zeros((self.n_pairs + 1, table.shape[1]))
            np.add.at(share, (pair, port), weight)
            share[-1, 0] = 1.0
            ends.append(share)
        return Mix(middle, *ends)

    def pairs(self, sent: Sent, at: Int[np.ndarray, " servers"]) -> Int[np.ndarray, " flows"]:
        """Return the pair of docks of every flow, the servers of positions being given."""
        dock = self.docks.of[at].ravel()
        return self.table[dock[sent.src], dock[sent.dst]]

    def between(
        self, sent: Sent, at: Int[np.ndarray, " servers"], kinds: int
    ) -> Float[np.ndarray, "pairs_own kinds"]:
        """Return the bytes of every pair of docks."""
        n = self.n_pairs + 1
        key = self.pairs(sent, at) * kinds + sent.kind
        # Of no flows NumPy counts in whole numbers.
        return np.bincount(key, sent.size, n * kinds).reshape(n, kinds).astype(np.float64)

    def busy(self, bytes_: Float[np.ndarray, "pairs_own kinds"], mix: Mix) -> np.ndarray:
        """Return the seconds of every trunk between switches; (trunks, kinds)."""
        load = mix.middle @ bytes_[:-1]
        return load / self.capacity[: len(load), None]

    def ports(
        self, sent: Sent, at: Int[np.ndarray, " servers"], mix: Mix, kinds: int
    ) -> Float[np.ndarray, " kinds"]:
        """Return the seconds of the busiest port of an adapter."""
        nic, pair = self.docks.nic[at].ravel(), self.pairs(sent, at)
        most = np.zeros(kinds)
        for end, share, room in (
            (sent.src, mix.out, self.docks.out), (sent.dst, mix.into, self.docks.into),
        ):  # fmt: skip
            key = nic[end] * kinds + sent.kind
            for port in range(room.shape[1]):
                load = np.bincount(key, sent.size * share[pair, port], len(room) * kinds)
                load = load.reshape(-1, kinds)
                used = load.any(axis=1)
                most = np.maximum(
                    most, (load[used] / room[used, port, None]).max(axis=0, initial=0.0)
                )
        return most

    def routes(
        self, splits: Float[np.ndarray, "pairs width"], network: Network, flows: Flows
    ) -> Routes:
        """Return routes of flows between GPUs whose part between docks follows the splits.

        Raises:
            ModelError: If the links of the network are not those that paths were found for, or a
                flow runs between adapters for which there are no splits.
        """
        known, same = np.asarray(self.docks.fabric.alive), False
        if network.n_links == len(known):
            same = np.array_equal(np.asarray(network.alive) & ~inside_servers(network), known)
        if not same:
            message = (
                "These splits are for the links between switches that were alive when they were "
                "found, and this network has others. Run `joint` on it."
            )
            raise ModelError(message)
        mix = self.mixed(splits)
        return routed(network, flows, lambda trip: self._walk(trip, mix), 1, "direct")

    def _walk(self, trip: Trip, mix: Mix) -> Routes:
        docks, n = self.docks, self.paths.n_trunks
        src, dst = np.asarray(trip.flows.src), np.asarray(trip.flows.dst)
        known = np.full(trip.network.n_nodes, -1)
        known[docks.nodes] = np.arange(len(docks.nodes))
        a, b = known[src], known[dst]
        pair = np.where((a < 0) | (b < 0), -1, self.table[docks.dock[a], docks.dock[b]])
        if len(strange := np.flatnonzero(pair < 0)):
            name = lambda flow: (
                f"{trip.network.labels.node_name(int(src[flow]))} -> "
                f"{trip.network.labels.node_name(int(dst[flow]))}"
            )
            message = (
                f"There are no splits for {len(strange):,} of {len(src):,} flows: "
                f"{some(strange.tolist(), name=name)}. They are for servers of the allocation, and "
                f"for what the layouts send."
            )
            raise ModelError(message)
        flow = np.arange(len(src))
        over = pair < self.n_pairs
        hops = [(flow[over], n + pair[over], np.ones(int(over.sum())))]
        for end, trunk, share in ((a, docks.out_trunk, mix.out), (b, docks.into_trunk, mix.into)):
            for port in range(trunk.shape[1]):
                use = share[pair, port]
                taken = use > 0
                hops.append((flow[taken], trunk[end[taken], port], use[taken]))
        hop_flow, hop_bundle, hop_use = (np.concatenate(c) for c in zip(*hops, strict=True))
        bundle, link, use = self._parts(mix, np.unique(hop_bundle))
        return Routes.from_bundles(
            hop_flow, hop_bundle, hop_use, bundle, link, use, n_flows=len(src),
            n_bundles=n + self.n_pairs, n_links=trip.network.n_links,
            weights=trip.flows.weight, caps=trip.flows.cap,
        )  # fmt: skip

    def _parts(self, mix: Mix, bundles: Int[np.ndarray, " bundles"]) -> Sequence[np.ndarray]:
        """Return the parts of bundles: trunks over their links, then pairs over their trunks."""
        n, merged = self.paths.n_trunks, self.paths.trunks
        live = np.flatnonzero(merged.of_link >= 0)
        links = live[np.argsort(merged.of_link[live], kind="stable")]
        count = np.bincount(merged.of_link[live], minlength=n)
        first = np.cumsum(count) - count
        alone = bundles[bundles < n]
        middle = mix.middle.tocsc()[:, bundles[bundles >= n] - n].tocoo()
        bundle = np.r_[alone, bundles[bundles >= n][middle.col]]
        trunk, use = np.r_[alone, middle.row], np.r_[np.ones(len(alone)), middle.data]
        each = count[trunk]
        place = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
        link = links[np.repeat(first[trunk], each) + place]
        return np.repeat(bundle, each), link, np.repeat(use, each) * merged.share[link]
