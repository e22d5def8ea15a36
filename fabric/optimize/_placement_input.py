"""What `placement` is asked: the traffic of ranks, and the slots that they may take."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric._errors import InfeasibleError, ModelError, raise_faults, some
from fabric.network import Flows, Network, index_array

UNITS = ("server", "rank")

_COARSE_FIRST = ("zone", "pod", "unit", "leaf", "x", "y", "z", "server")


class Traffic(NamedTuple):
    """Flows between ranks, sorted by phase; phases run one after another."""

    src: Int[np.ndarray, " flows"]
    dst: Int[np.ndarray, " flows"]
    size: Float[np.ndarray, " flows"]  # bytes, above 0
    weight: Float[np.ndarray, " flows"]
    cap: Float[np.ndarray, " flows"]  # byte/s
    phase_ptr: Int[np.ndarray, " phases+1"]
    n_ranks: int

    @property
    def n_phases(self) -> int:
        """Number of phases."""
        return len(self.phase_ptr) - 1

    def between(self, group: int, n_groups: int) -> Float[np.ndarray, "phases groups groups"]:
        """Return the bytes between groups of so many consecutive ranks."""
        phase = np.repeat(np.arange(self.n_phases), np.diff(self.phase_ptr))
        key = (phase * n_groups + self.src // group) * n_groups + self.dst // group
        total = np.bincount(key, self.size, self.n_phases * n_groups * n_groups)
        total = total.reshape(self.n_phases, n_groups, n_groups)
        total[:, np.arange(n_groups), np.arange(n_groups)] = 0
        return total


class Slots(NamedTuple):
    """Endpoints that may take a rank, unit after unit, in the order of the topology."""

    node: Int[np.ndarray, " slots"]
    group: int  # slots of a unit

    @property
    def n_slots(self) -> int:
        """Number of slots."""
        return len(self.node)

    @property
    def n_units(self) -> int:
        """Number of units."""
        return len(self.node) // self.group


def traffic_of(traffic: Any, ranks: int | None) -> Traffic:
    """Return the flows of a matrix, of `Flows`, or of several of them as phases."""
    several = isinstance(traffic, Sequence) and len(traffic) and isinstance(traffic[0], Flows)
    if several and not all(isinstance(phase, Flows) for phase in traffic):
        message = "`placement(traffic=[...])` needs `Flows` for every phase, or one matrix."
        raise ModelError(message)
    phases = list(traffic) if several else [traffic]
    phases = [phase if isinstance(phase, Flows) else _of_matrix(phase) for phase in phases]
    if not isinstance(traffic, Flows) and not several:
        ranks = len(np.asarray(traffic)) if ranks is None else ranks
    highest = max((int(max(np.max(f.src), np.max(f.dst))) for f in phases if f.n_flows), default=-1)
    n_ranks = highest + 1 if ranks is None else ranks
    faults: list[str] = []
    if n_ranks < 1 or highest < 0:
        faults.append("`placement(traffic)` has no flow, so every placement is as good.")
    elif highest >= n_ranks:
        faults.append(f"`ranks={n_ranks}`, but traffic goes to or from rank {highest:,}.")
    kept = []
    for flows in phases:
        size = np.asarray(flows.size, np.float64)
        src, dst = np.asarray(flows.src), np.asarray(flows.dst)
        if len(unknown := np.flatnonzero(~np.isfinite(size))):
            faults.append(
                f"`placement(traffic)` needs the size of every flow in bytes, but {len(unknown):,} "
                f"have none, the first being flow {unknown[0]:,}. Give `Flows(..., size=...)`."
            )
        real = (size > 0) & (src != dst)
        columns = (src, dst, size, np.asarray(flows.weight), np.asarray(flows.cap))
        kept.append([np.asarray(column)[real] for column in columns])
    if not faults and not any(len(columns[0]) for columns in kept):
        faults.append("`placement(traffic)` sends nothing from one rank to another.")
    raise_faults(faults)
    src, dst, size, weight, cap = (np.concatenate(c) for c in zip(*kept, strict=True))
    ptr = np.cumsum([0, *(len(columns[0]) for columns in kept)])
    return Traffic(
        src.astype(np.int64), dst.astype(np.int64), size, weight.astype(np.float64),
        cap.astype(np.float64), ptr, int(n_ranks),
    )  # fmt: skip


def _of_matrix(matrix: Any) -> Flows:
    """Return a flow per entry above 0 off the diagonal."""
    demand = np.asarray(matrix)
    if demand.ndim != 2 or demand.shape[0] != demand.shape[1] or demand.dtype.kind not in "iuf":
        message = (
            f"`placement(traffic)` needs `Flows` between ranks, a list of them, or a matrix "
            f"(ranks, ranks) in bytes, but got {type(matrix).__name__} of shape {demand.shape}."
        )
        raise ModelError(message)
    wrong = np.argwhere(~(np.isfinite(demand) & (demand >= 0)))
    if len(wrong):
        pairs = some([f"{a} to {b}" for a, b in wrong.tolist()])
        message = f"`placement(traffic)` needs finite bytes of 0 or more, but not so are {pairs}."
        raise ModelError(message)
    src, dst = np.nonzero(demand * ~np.eye(len(demand), dtype=bool))
    return Flows(src, dst, size=demand[src, dst].astype(np.float64))


def slots_of(network: Network, allocation: Any, n_ranks: int, unit: str | None) -> Slots:
    """Return the slots, or raise where they are too few or do not form units."""
    up = working(network)
    if allocation is None:
        node = network.hosts[up[network.hosts]]
    else:
        node = _nodes(network, allocation)
        if len(down := node[~up[node]]):
            message = (
                f"`placement(allocation)` has endpoints without a live link: "
                f"{some(down.tolist(), name=network.labels.node_name)}. Leave them out."
            )
            raise InfeasibleError(message)
    tags = network.labels.tags
    keys = [tags[tag][node] for tag in _COARSE_FIRST if tag in tags and tag != "server"]
    server = tags["server"][node] if "server" in tags else np.full(len(node), -1)
    first = _first_of(server, node)
    keys = [key[first] for key in keys]  # a server lies where its first endpoint does
    node = node[np.lexsort((node, node[first], *keys[::-1]))]
    server = tags["server"][node] if "server" in tags else np.full(len(node), -1)
    group, kept = _grouped(server, n_ranks, unit, strict=allocation is not None)
    node = node[kept]
    if len(node) < n_ranks:
        what = f"{len(node):,} endpoints" + (f" in servers of {group}" if group > 1 else "")
        message = (
            f"{n_ranks:,} ranks need as many endpoints, but {what} are there. Give more of them, "
            f"or place {len(node):,} ranks."
        )
        raise InfeasibleError(message)
    return Slots(node, group)


def _first_of(server: np.ndarray, node: np.ndarray) -> Int[np.ndarray, " slots"]:
    """Return for each endpoint the position of the first one of its server, or its own."""
    own = np.where(server < 0, -1 - np.arange(len(node)), server)
    _, first, inverse = np.unique(own, return_index=True, return_inverse=True)
    return first[inverse.ravel()]


def _grouped(
    server: np.ndarray, n_ranks: int, unit: str | None, *, strict: bool
) -> tuple[int, Bool[np.ndarray, " slots"]]:
    """Return the endpoints of a unit, and which endpoints are in whole units."""
    every = np.ones(len(server), bool)
    if unit == "rank" or len(server) == 0:
        return 1, every
    names, count = np.unique(server, return_counts=True)
    group = int(count.max())
    fits = bool(names[0] >= 0) and n_ranks % group == 0
    whole = names[count == group]
    if strict and len(whole) < len(names):
        fits = False
    if fits:
        return group, np.isin(server, whole)
    if unit is None:
        return 1, every
    message = (
        f"`unit='server'` moves whole servers, but {n_ranks:,} ranks over {len(server):,} "
        f"endpoints of {len(names):,} servers, {int(count.min())} to {group} in each, do not fill "
        f"whole ones. Use `unit='rank'`, or whole servers and a multiple of {group} ranks."
    )
    raise ModelError(message)


def working(network: Network) -> Bool[np.ndarray, " nodes"]:
    """Return which nodes have a live link each way, and so has the NIC of a GPU."""
    labels, alive = network.labels, np.asarray(network.alive, bool)
    out = np.bincount(labels.src[alive], minlength=labels.n_nodes) > 0
    up = out & (np.bincount(labels.dst[alive], minlength=labels.n_nodes) > 0)
    if "nic" in labels.tags and np.issubdtype(labels.tags["nic"].dtype, np.integer):
        nic = np.asarray(labels.tags["nic"])
        switch_side = alive & np.isin(labels.src, nic[nic >= 0]) & labels.forwards[labels.dst]
        if "server" in labels.tags:
            switch_side &= labels.tags["server"][labels.dst] < 0
        wired = np.bincount(labels.src[switch_side], minlength=labels.n_nodes) > 0
        up = up & ((nic < 0) | wired[nic])
    return up


def _nodes(network: Network, allocation: Any) -> Int[np.ndarray, " slots"]:
    """Return the endpoints of an allocation, given by number or name."""
    given: Iterable[Any] = allocation
    if not hasattr(allocation, "dtype"):
        given = [network.labels.node(n) if isinstance(n, str) else n for n in allocation]
    node = index_array("placement(allocation)", given).astype(np.int64)
    faults: list[str] = []
    values, counts = np.unique(node, return_counts=True)
    if np.any(counts > 1):
        faults.append(f"`placement(allocation)` names nodes twice: {some(values[counts > 1])}.")
    outside = values[(values < 0) | (values >= network.n_nodes)]
    inside = values[(values >= 0) & (values < network.n_nodes)]
    passing = [*outside.tolist(), *inside[~network.labels.endpoint[inside]].tolist()]
    if passing:
        faults.append(
            f"`placement(allocation)` needs endpoints, but not so are nodes {some(passing)}. Take "
            f"them from `network.hosts`."
        )
    raise_faults(faults)
    return node


def server_and_gpu(
    network: Network, nodes: Int[np.ndarray, " ranks"]
) -> tuple[list[str], list[int]]:
    """Return the name of the server of every endpoint, and its number within."""
    labels = network.labels
    names = [str(labels.names[int(node)]) for node in nodes]
    if "server" not in labels.tags:
        return names, [0] * len(names)
    short = [re.sub(r"[-_/. :](gpu|nic|hca|mlx\d+_|port)?\d+$", "", name) for name in names]
    tag = next((tag for tag in ("gpu", "slot", "rail") if tag in labels.tags), None)
    if tag is None:
        seen: dict[str, int] = {}
        within = []
        for name in short:
            within.append(seen.setdefault(name, 0))
            seen[name] += 1
        return short, within
    return short, labels.tags[tag][nodes].astype(int).tolist()
