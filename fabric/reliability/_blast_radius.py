"""`blast_radius`: which endpoints a failure reaches, by structure alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric._errors import ModelError
from fabric.network import Network
from fabric.reliability._classes import Structure
from fabric.reliability._failures import WORDS, Components, components, servers_of
from fabric.reliability._usage import Ids
from fabric.solvers._certify import live_capacity

_NAMED = 5


@dataclass(frozen=True, eq=False)
class Blast:
    """Failures that reach alike; one row of a report.

    Attributes:
        kind: Of the components.
        name: One of them.
        members: (members,), all of them, by number among the components of the kind.
        cut_off: Endpoints that have no way to the others any more, or are gone themselves.
        less: Endpoints that have less bandwidth into the fabric, and some.
        least: The least part that is left to one of these; 1 where there is none.
        servers: Servers, or hosts where there are none, with an endpoint of either.
        whole: Those of them whose endpoints are all cut off.
        names: Some of the endpoints that are reached, those cut off first.
    """

    kind: str
    name: str
    members: Int[np.ndarray, " members"]
    cut_off: int
    less: int
    least: float
    servers: int
    whole: int
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of members."""
        return len(self.members)

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON has it."""
        return {
            "kind": self.kind, "component": self.name, "members": self.count,
            "endpoints_cut_off": self.cut_off, "endpoints_with_less": self.less,
            "least_left": self.least, "servers": self.servers, "servers_cut_off": self.whole,
            "endpoints": list(self.names),
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class BlastRadius:
    """Whom every single failure reaches, the widest first.

    Attributes:
        rows: One per class of failures.
        components: By kind.
    """

    rows: tuple[Blast, ...]
    components: dict[str, Components]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Blast:
        return self.rows[index]

    def __iter__(self) -> Iterator[Blast]:
        return iter(self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        return {"rows": [row.as_dict() for row in self.rows]}

    def __str__(self) -> str:
        cells = [("failure of", "like it", "cut off", "with less", "least", "servers", "whole")]
        cells += [
            (
                row.name, f"{row.count:,}", f"{row.cut_off:,}", f"{row.less:,}",
                f"{100 * row.least:.4g} %", f"{row.servers:,}", f"{row.whole:,}",
            )
            for row in self.rows
        ]  # fmt: skip
        width = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join(
            "  ".join(
                [f"{row[0]:{width[0]}}"]
                + [f"{cell:>{w}}" for cell, w in zip(row[1:], width[1:], strict=True)]
            )
            for row in cells
        )


def blast_radius(network: Network, *, kind: str | Sequence[str] | None = None) -> BlastRadius:
    """Return which endpoints the failure of each component reaches, by structure alone.

    An endpoint is cut off if it is gone, or if none of the cables of its NIC leads to where most
    of the endpoints are that it could reach before. It has less if some of them do not. What
    traffic suffers further inside the fabric is another question: see `contingency`.

    Args:
        network: With labels. What has failed in it already stays so.
        kind: As in `components`; several kinds are ranked together. Default: every one of
            "link", "switch", "nic" and "server" that there is.

    Returns:
        A row per class of components that the structure does not tell apart.

    Raises:
        ModelError: If the network has nothing of a kind.

    Cost: A search for connected parts per class: on 65,536 GPUs about 0.1 s each.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=8)
        >>> print(blast_radius(net, kind=["switch", "link"]))
        failure of           like it  cut off  with less  least  servers  whole
        leaf0                      4        8          0  100 %        8      8
        leaf0-host0 - leaf0       32        1          0  100 %        1      1
        leaf0 - spine0             8        0          0  100 %        0      0
        spine0                     2        0          0  100 %        0      0
    """
    if kind is None:
        kinds = [word for word in WORDS if _has(network, word)]
    else:
        kinds = [kind] if isinstance(kind, str) else list(dict.fromkeys(kind))
    parts = {word: components(network, word) for word in kinds}
    structure, access = Structure(network), _Access(network)
    rows = []
    for word, part in parts.items():
        class_of, first = structure.classes(part)
        order = np.argsort(class_of, kind="stable")
        members = np.split(order, np.flatnonzero(np.diff(class_of[order])) + 1)
        rows += [access.row(word, part, int(f), m) for f, m in zip(first, members, strict=True)]
    rows.sort(key=lambda r: (-r.cut_off, -r.less, r.least, -r.servers, r.kind, int(r.members[0])))
    return BlastRadius(tuple(rows), parts)


def _has(network: Network, kind: str) -> bool:
    try:
        components(network, kind)
    except ModelError:
        return False
    return True


class _Access:
    """The cables by which endpoints enter the fabric, and where these lead.

    Endpoints that forward, such as the chips of a torus, enter it at themselves.
    """

    def __init__(self, network: Network):
        labels = network.labels
        self._network, self._ends = network, network.hosts
        if not len(self._ends):
            message = "`blast_radius` needs endpoints, but no node of this network sends."
            raise ModelError(message)
        nic = labels.tags.get("nic")
        self._door = self._ends if nic is None else np.asarray(nic)[self._ends].astype(np.int64)
        self._has_nic = nic is not None
        self._side = servers_of(network)
        own = self._side[self._ends]
        # An endpoint in no server is a host by itself.
        self._server = np.where(own >= 0, own, int(own.max(initial=-1)) + 1 + self._ends)
        self._forwards = np.asarray(labels.forwards)
        self._part = self._parts(live_capacity(network) > 0, np.ones(network.n_nodes, bool))
        self._before = self._bandwidth(network, np.ones(network.n_nodes, bool))

    def row(self, kind: str, parts: Components, component: int, members: Ids) -> Blast:
        """Return what the failure of a component reaches."""
        there = np.ones(self._network.n_nodes, bool)
        if not parts.of_links:
            there[parts.items(component)] = False
        after = self._bandwidth(parts.failed(component), there)
        reached = self._before > 0
        left = np.ones(len(after))
        left[reached] = after[reached] / self._before[reached]
        cut, less = left == 0, (left > 0) & (left < 1 - 1e-12)
        hit, whole = np.unique(self._server[cut | less]), self._wholly(cut)
        named = np.concatenate([self._ends[cut], self._ends[less]])[:_NAMED]
        name = self._network.labels.node_name
        return Blast(
            kind, parts.name(component), members, int(cut.sum()), int(less.sum()),
            float(left[less].min(initial=1.0)), len(hit), whole,
            tuple(name(int(node)) for node in named),
        )  # fmt: skip

    def _wholly(self, cut: Bool[np.ndarray, " endpoints"]) -> int:
        _, number = np.unique(self._server, return_inverse=True)
        gone, had = np.bincount(number, cut), np.bincount(number, self._before > 0)
        return int(((gone == had) & (gone > 0)).sum())

    def _bandwidth(
        self, network: Network, there: Bool[np.ndarray, " nodes"]
    ) -> Float[np.ndarray, " endpoints"]:
        """Return byte/s of the cables by which each endpoint reaches most of what it could."""
        labels, n = network.labels, network.n_nodes
        capacity = live_capacity(network)
        live = capacity > 0
        part = self._parts(live, there)
        main = self._main(part, live)
        side = self._side[labels.src]
        out = live & ((side < 0) | (side != self._side[labels.dst]))
        # Where a cable leads: to a node that forwards, in the main part of what was one before.
        to = labels.dst
        leads = np.where(self._forwards[to], main[part[to]], there[to])
        entering = np.bincount(labels.src[out], capacity[out] * leads[out], n)
        rate = entering[self._door] * there[self._ends] * there[self._door]
        return rate * self._inside(live, part) if self._has_nic else rate

    def _inside(
        self, live: Bool[np.ndarray, " links"], part: Int[np.ndarray, " nodes"]
    ) -> Bool[np.ndarray, " endpoints"]:
        """Return which GPUs reach their NIC inside their server."""
        labels, n = self._network.labels, self._network.n_nodes
        side = self._side[labels.src]
        same = live & (side >= 0) & (side == self._side[labels.dst])
        size = int(part.max()) + 1
        # (node, part that it has a link into) of GPUs and NICs.
        pair = lambda node, to: node.astype(np.int64) * size + part[to]
        at = same & ~self._forwards[labels.src] & self._forwards[labels.dst]
        touches = np.unique(pair(labels.src[at], labels.dst[at]))
        gpu = np.zeros(n, bool)
        gpu[self._ends] = True
        node, into = touches // size, touches % size
        ours = gpu[node]
        door = np.full(n, -1, np.int64)
        door[self._ends] = self._door
        meets = np.isin(door[node[ours]] * size + into[ours], touches)
        reaches = np.zeros(n, bool)
        reaches[node[ours][meets]] = True
        direct = same & (door[labels.src] == labels.dst)
        reaches[labels.src[direct]] = True
        return reaches[self._ends]

    def _parts(
        self, live: Bool[np.ndarray, " links"], there: Bool[np.ndarray, " nodes"]
    ) -> Int[np.ndarray, " nodes"]:
        """Return the connected part of every node, over nodes that forward."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        labels, n = self._network.labels, self._network.n_nodes
        through = self._forwards & there
        kept = live & through[labels.src] & through[labels.dst]
        ends = (labels.src[kept], labels.dst[kept])
        graph = coo_array((np.ones(len(ends[0]), np.int8), ends), (n, n))
        return connected_components(graph, directed=False)[1]

    def _main(
        self, part: Int[np.ndarray, " nodes"], live: Bool[np.ndarray, " links"]
    ) -> Bool[np.ndarray, " parts"]:
        """Return which parts are the largest piece, by live doors, of what was one before."""
        labels = self._network.labels
        door = np.zeros(self._network.n_nodes, bool)
        door[self._door] = True
        at = live & door[labels.src] & self._forwards[labels.dst]
        doors = np.bincount(part[labels.dst[at]], minlength=int(part.max()) + 1)
        order = np.lexsort((-doors[part], self._part))
        first = np.concatenate([[True], np.diff(self._part[order]) != 0])
        main = np.zeros(len(doors), bool)
        main[part[order[first]]] = True
        return main
