"""Ways inside servers: the legs between nodes of one server, found once per kind of server.

Servers that are wired alike, with the same capacities and the same links alive, are of one kind.
A way is searched for in one server of its kind and moved to the others by link number.
"""

import heapq
from collections import defaultdict

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric.network import Network, Routes, frozen

_Stage = tuple[tuple[int, float], ...]  # (link, share) of each link of a stage
_Shares = tuple[tuple[int, float], ...]  # (node, share) of each node that traffic is at


class Insides:
    """The links inside the servers of a network.

    Attributes:
        mask: (links,), which links are inside a server: both ends are, in the same one.
    """

    def __init__(self, network: Network):
        labels = network.labels
        self._n_links = network.n_links
        self._server, self._slot = labels.tags["server"], labels.tags["slot"]
        own = self._server[labels.src]
        self.mask: Bool[np.ndarray, " links"] = (own >= 0) & (own == self._server[labels.dst])
        links = np.flatnonzero(self.mask)
        links = links[np.argsort(own[links], kind="stable")]
        count = np.bincount(own[links], minlength=int(self._server.max()) + 1)
        # Links of each server; -1 behind the last of a server that has fewer.
        self._link_of = np.full((len(count), int(count.max())), -1, np.int64)
        self._link_of[np.arange(self._link_of.shape[1]) < count[:, None]] = links

        forwards = np.asarray(labels.forwards)
        columns = [
            self._slot[labels.src], self._slot[labels.dst], forwards[labels.dst],
            np.asarray(network.alive), np.asarray(network.routing_cost),
            np.asarray(network.capacity),
        ]  # fmt: skip
        table = np.stack(
            [np.where(self._link_of >= 0, column[self._link_of], -1.0) for column in columns], 1
        )
        first: dict[bytes, int] = {}
        self._kind_of = np.array([first.setdefault(row.tobytes(), len(first)) for row in table])
        _, one = np.unique(self._kind_of, return_index=True)
        self._kinds = [_Kind(table[server]) for server in one]

    def routes(self, src: Int[np.ndarray, " legs"], dst: Int[np.ndarray, " legs"]) -> Routes:
        """Return the routes of legs, each between two nodes of one server.

        At every node the traffic is split over all live links on a shortest way, in proportion to
        their capacity, since a link stands for all the NVLinks between its ends. A leg without a
        way has no hops.

        Args:
            src: Node at the start of each leg.
            dst: Node at its end, another one.
        """
        n = len(src)
        server = self._server[src].astype(np.int64)
        slots = int(self._slot.max()) + 1
        asked = (self._kind_of[server] * slots + self._slot[src]) * slots + self._slot[dst]
        # Sorting whole numbers takes a fraction of what sorting rows takes.
        found, leg = np.unique(asked, return_inverse=True)
        known: dict[tuple[int, _Stage], int] = {}
        ways = [
            [known.setdefault((kind, stage), len(known)) for stage in self._kinds[kind].way(s, t)]
            for kind, s, t in np.stack(
                np.unravel_index(found, (len(self._kinds), slots, slots)), axis=1
            ).tolist()
        ]
        hop_leg, hop = _entries(list(map(len, ways)), leg.ravel())
        flat = np.array([stage for way in ways for stage in way], np.int64)
        key = server[hop_leg] * len(known) + flat[hop]
        bundles, hop_bundle = np.unique(key, return_inverse=True)
        of_server, stage = np.divmod(bundles, max(len(known), 1))
        part_bundle, part = _entries([len(links) for _, links in known], stage)
        shares = np.array([share for _, links in known for share in links]).reshape(-1, 2)
        link = self._link_of[of_server[part_bundle], shares[part, 0].astype(np.int64)]
        none = not len(bundles)  # without parts, bundles are links
        return Routes(
            frozen(hop_leg), frozen(hop_bundle.ravel().astype(np.int32)),
            frozen(np.ones(len(hop))),
            frozen(part_bundle), frozen(link.astype(np.int32)), frozen(shares[part, 1]),
            np.ones(n), np.full(n, np.inf), frozen(np.arange(n, dtype=np.int32)),
            n_links=self._n_links, n_bundles=self._n_links if none else len(bundles), n_pairs=n,
        )  # fmt: skip


class _Kind:
    """One server: shortest ways between its nodes, by slot, over its links by position."""

    def __init__(self, table: Float[np.ndarray, "columns links"]):
        self._out: dict[int, list[tuple[int, int, int, float]]] = defaultdict(list)
        self._into: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._forwards: set[int] = set()
        self._left: dict[int, dict[int, int]] = {}
        self._steps: dict[tuple[int, _Shares], tuple[_Stage, _Shares]] = {}
        whole = table[:5].astype(np.int64).T.tolist()
        for link, (row, capacity) in enumerate(zip(whole, table[5].tolist(), strict=True)):
            src, dst, forwards, alive, cost = row
            if forwards == 1:
                self._forwards.add(dst)
            if alive == 1:
                self._out[src].append((link, dst, cost, capacity))
                self._into[dst].append((src, cost))

    def way(self, s: int, t: int) -> list[_Stage]:
        """Return the stages from one node to another, or none where there is no way."""
        left = self._distances(t)
        if s not in left:
            return []
        stages: list[_Stage] = []
        at: _Shares = ((s, 1.0),)
        while [v for v, _ in at] != [t]:
            # GPUs with the same chips differ in their first step only.
            if (t, at) not in self._steps:
                self._steps[t, at] = self._step(at, t)
            stage, at = self._steps[t, at]
            stages.append(stage)
        return stages

    def _step(self, at: _Shares, t: int) -> tuple[_Stage, _Shares]:
        """Return the next stage towards a node, and the shares that it leaves where."""
        left = self._distances(t)
        load: dict[int, float] = {}
        then: dict[int, float] = defaultdict(float)
        for v, share in at:
            if v == t:  # here already, over fewer hops
                then[t] += share
                continue
            ways = [
                (link, w, capacity)
                for link, w, cost, capacity in self._out[v]
                if (w == t or w in self._forwards) and w in left and cost + left[w] == left[v]
            ]
            total = sum(capacity for *_, capacity in ways)
            for link, w, capacity in ways:
                load[link] = share * capacity / total if total else share / len(ways)
                then[w] += load[link]
        return tuple(sorted(load.items())), tuple(then.items())

    def _distances(self, t: int) -> dict[int, int]:
        """Return the routing cost from every node to `t`, as far as there is a way."""
        if t in self._left:
            return self._left[t]
        left: dict[int, int] = {}
        heap = [(0, t)]
        while heap:
            cost, v = heapq.heappop(heap)
            if v in left:
                continue
            left[v] = cost
            if v == t or v in self._forwards:
                for u, more in self._into[v]:
                    heapq.heappush(heap, (cost + more, u))
        self._left[t] = left
        return left


def _entries(
    width: list[int], rows: Int[np.ndarray, " rows"]
) -> tuple[Int[np.ndarray, " entries"], Int[np.ndarray, " entries"]]:
    """Return (position, entry) of all entries of some rows, row after row.

    Args:
        width: Entries of each row that there is; the entries are numbered through.
        rows: The rows taken.
    """
    size = np.array(width, np.int64)
    begun = np.cumsum(size) - size
    taken = size[rows]
    start = np.cumsum(taken) - taken
    position = np.repeat(np.arange(len(rows), dtype=np.int32), taken)
    return position, np.arange(int(taken.sum())) + np.repeat(begun[rows] - start, taken)
