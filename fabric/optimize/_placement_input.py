"""What `placement` is asked: the traffic of ranks, and the slots that they may take."""

import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric._errors import InfeasibleError, ModelError, nearest, raise_faults, some
from fabric.network import Flows, Network, Routes, index_array, whole
from fabric.routing import ROUTINGS, dimension_order, ecmp, spray

UNITS = ("server", "rank")
MOST_UNITS = 2048
"""Tables of what units send each other grow with the square."""

Router = Callable[[Network, Flows], Routes]

_NAMED = re.compile(r"[-_/. :](gpu|nic|hca|mlx\d+_|port)\d+$", re.IGNORECASE)
_NUMBERED = re.compile(r"[-_/. :](gpu|nic|hca|mlx\d+_|port)?\d+$", re.IGNORECASE)
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

    @property
    def phases(self) -> list[slice]:
        """The flows of each phase."""
        return [slice(*ends) for ends in itertools.pairwise(self.phase_ptr.tolist())]

    def between(
        self, group: int, n_groups: int, flows: slice
    ) -> Float[np.ndarray, "groups groups"]:
        """Return the bytes of some flows between groups of so many consecutive ranks."""
        key = self.src[flows] // group * n_groups + self.dst[flows] // group
        total = np.bincount(key, self.size[flows], n_groups * n_groups).reshape(n_groups, n_groups)
        np.fill_diagonal(total, 0.0)
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


class Rule(NamedTuple):
    """A routing.

    Attributes:
        route: From a network and flows to routes.
        alone: Whether the way of a flow depends on its two ends alone.
        even: Whether, besides, equal links are treated equally.
    """

    route: Router
    alone: bool
    even: bool


def rule_of(routing: Any, seed: int) -> Rule:
    """Return the routing of a name, with this seed if it takes one, or of a function."""
    options: dict[str, Any] = {}
    rule: Any = routing
    route: Any = routing
    if isinstance(routing, str) and routing in ROUTINGS:
        rule = ROUTINGS[routing]
        if "seed" in inspect.signature(rule).parameters:
            options["seed"] = seed
        route = functools.partial(rule, **options)
    elif callable(routing):
        while isinstance(rule, functools.partial):
            rule, options = rule.func, rule.keywords | options
    else:
        message = (
            f"`placement(routing={routing!r})` is not known. {nearest(str(routing), [*ROUTINGS])}"
        )
        raise ModelError(message)
    alone = rule in (spray, dimension_order) or (rule is ecmp and options.get("key") == "ends")
    alone = alone and options.get("queue_pairs", 1) == 1
    return Rule(route, alone, alone and rule is spray)


def traffic_of(traffic: Any, ranks: int | None) -> Traffic:
    """Return the flows of a matrix, of `Flows`, or of several of them as phases."""
    several = isinstance(traffic, Sequence) and any(isinstance(part, Flows) for part in traffic)
    if several and not all(isinstance(phase, Flows) for phase in traffic):
        message = "`placement(traffic=[...])` needs `Flows` for every phase, or one matrix."
        raise ModelError(message)
    if several:
        phases: list[Flows] = list(traffic)
    elif isinstance(traffic, Flows):
        phases = [traffic]
    else:
        flows, n = _of_matrix(traffic)
        phases, ranks = [flows], n if ranks is None else ranks
    ends = np.concatenate([np.asarray(end) for flows in phases for end in (flows.src, flows.dst)])
    highest = int(ends.max(initial=-1))
    n_ranks = highest + 1 if ranks is None else whole("ranks", ranks)
    faults: list[str] = []
    if highest < 0:
        faults.append("`placement(traffic)` has no flow, so every placement is as good.")
    elif highest >= n_ranks:
        faults.append(f"`ranks={n_ranks}`, but traffic goes to or from rank {highest:,}.")
    if (ends < 0).any():
        faults.append(
            f"`placement(traffic)` needs ranks from 0, but its flows go to or from ranks "
            f"{some(np.unique(ends[ends < 0]).tolist())}."
        )
    kept = []
    for number, flows in enumerate(phases):
        where = f" of phase {number}" if several else ""
        size, cap = np.asarray(flows.size, np.float64), np.asarray(flows.cap, np.float64)
        src, dst = np.asarray(flows.src), np.asarray(flows.dst)
        real = (size > 0) & (src != dst)
        for wrong, what in (
            (~np.isfinite(size), "the size of every flow in bytes; give `Flows(..., size=...)`"),
            (real & (cap == 0), "caps above 0, as a flow with a cap of 0 never ends"),
            (real & (np.asarray(flows.start) != 0), "flows that start together; give those that "
             "start later as a phase of their own"),
        ):  # fmt: skip
            if wrong.any():
                faults.append(
                    f"`placement(traffic)` needs {what}. Not so are {int(wrong.sum()):,} flows"
                    f"{where}: {some(np.flatnonzero(wrong).tolist())}."
                )
        columns = (src, dst, size, np.asarray(flows.weight), cap)
        kept.append([column[real] for column in columns])
    if not faults and not any(len(columns[0]) for columns in kept):
        faults.append("`placement(traffic)` sends nothing from one rank to another.")
    raise_faults(faults)
    kept = [columns for columns in kept if len(columns[0])]
    src, dst, size, weight, cap = (np.concatenate(c) for c in zip(*kept, strict=True))
    ptr = np.cumsum([0, *(len(columns[0]) for columns in kept)])
    return Traffic(
        src.astype(np.int64), dst.astype(np.int64), size, weight.astype(np.float64), cap, ptr,
        n_ranks,
    )  # fmt: skip


def _of_matrix(matrix: Any) -> tuple[Flows, int]:
    """Return a flow per entry above 0 off the diagonal, and the number of ranks."""
    try:
        demand = np.asarray(matrix)
    except ValueError:  # rows of different lengths
        demand = np.array(None)
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
    return Flows(src, dst, size=demand[src, dst].astype(np.float64)), len(demand)


def servers_of(network: Network) -> Int[np.ndarray, " nodes"]:
    """Return the server of every node by number; a node in none has a number of its own."""
    found = np.arange(network.n_nodes)
    known = _server_tag(network)
    if known is not None:
        values, has = known
        _, number = np.unique(values[has], return_inverse=True)
        found[has] = network.n_nodes + number.ravel()
    return found


def _server_tag(network: Network) -> tuple[np.ndarray, Bool[np.ndarray, " nodes"]] | None:
    """Return the tag that says which nodes are of one server, and which nodes have it."""
    for tag in ("server", "host"):
        if (values := network.labels.tags.get(tag)) is not None:
            return values, values >= 0 if values.dtype.kind in "iu" else values != ""
    return None


def slots_of(network: Network, allocation: Any, n_ranks: int, unit: str | None) -> Slots:
    """Return the slots, or raise where they are too few or do not form units."""
    up = working(network)
    if allocation is None:
        node = network.hosts[up[network.hosts]]
    else:
        node = nodes_of(network, allocation, "placement")
        if len(down := node[~up[node]]):
            message = (
                f"`placement(allocation)` has endpoints without a live link: "
                f"{some(down.tolist(), name=network.labels.node_name)}. Leave them out."
            )
            raise InfeasibleError(message)
    tags, server = network.labels.tags, servers_of(network)
    _, first, own = np.unique(server[node], return_index=True, return_inverse=True)
    first = first[own.ravel()]
    keys = [tags[tag][node][first] for tag in _COARSE_FIRST if tag in tags and tag != "server"]
    # A server lies where its first endpoint does.
    node = node[np.lexsort((node, node[first], *keys[::-1]))]
    known = _server_tag(network)
    tagged = known is not None and bool(known[1][node].all())
    group, kept = _grouped(
        server[node], n_ranks, unit, tagged=tagged, strict=allocation is not None
    )
    node = node[kept]
    if len(node) < n_ranks:
        what = f"{len(node):,} endpoints" + (f" in servers of {group}" if group > 1 else "")
        message = (
            f"{n_ranks:,} ranks need as many endpoints, but {what} are there. Give more of them, "
            f"or place {len(node):,} ranks."
        )
        raise InfeasibleError(message)
    if len(node) > MOST_UNITS * group:
        what = f"servers of {group}" if group > 1 else "endpoints"
        message = (
            f"`placement` moves at most {MOST_UNITS:,} units, but there are "
            f"{len(node) // group:,} {what} to choose from. Place whole servers "
            f"(`unit='server'`), or parts of the job one by one, each with its own `allocation`."
        )
        raise InfeasibleError(message)
    return Slots(node, group)


def _grouped(
    server: np.ndarray, n_ranks: int, unit: str | None, *, tagged: bool, strict: bool
) -> tuple[int, Bool[np.ndarray, " slots"]]:
    """Return the endpoints of a unit, and which endpoints are in whole units."""
    every = np.ones(len(server), bool)
    if unit == "rank" or len(server) == 0:
        return 1, every
    names, count = np.unique(server, return_counts=True)
    group = int(count.max())
    whole = names[count == group]
    fits = tagged and n_ranks % group == 0 and not (strict and len(whole) < len(names))
    if fits and (unit is not None or len(whole) * group >= n_ranks):
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


def nodes_of(network: Network, allocation: object, caller: str) -> Int[np.ndarray, " slots"]:
    """Return the endpoints of an allocation, given by number or name.

    Args:
        network: With labels.
        allocation: As the caller got it.
        caller: The function that got it.

    Raises:
        ModelError: If it is no list, names nodes twice, or others than endpoints.
    """
    what = f"`{caller}(allocation)`"
    if isinstance(allocation, str | bytes) or not isinstance(allocation, Iterable):
        message = f"{what} needs a list of endpoints by number or name, but got {allocation!r}."
        raise ModelError(message)
    given: Any = allocation
    if not hasattr(given, "dtype") or given.dtype.kind in "UO":
        given = [network.labels.node(n) if isinstance(n, str) else n for n in given]
    node = index_array(f"{caller}(allocation)", given).astype(np.int64)
    faults: list[str] = []
    values, counts = np.unique(node, return_counts=True)
    if np.any(counts > 1):
        faults.append(f"{what} names nodes twice: {some(values[counts > 1])}.")
    outside = values[(values < 0) | (values >= network.n_nodes)]
    inside = values[(values >= 0) & (values < network.n_nodes)]
    passing = [*outside.tolist(), *inside[~network.labels.endpoint[inside]].tolist()]
    if passing:
        faults.append(
            f"{what} needs endpoints, but not so are nodes {some(passing)}. Take them from "
            f"`network.hosts`."
        )
    raise_faults(faults)
    return node


def server_and_gpu(
    network: Network, nodes: Int[np.ndarray, " ranks"]
) -> tuple[list[str], list[int]]:
    """Return the name of the server of every endpoint, and its number within.

    A server is called as its endpoints are without their numbers, if all of them agree and no other
    server is called so; else endpoints keep their own names.
    """
    labels, hosts = network.labels, network.hosts
    known = _server_tag(network)
    if known is None:
        return [str(labels.names[int(node)]) for node in nodes], [0] * len(nodes)
    values, server = known[0], servers_of(network)
    number = _within(network, hosts, server[hosts])
    within = dict(zip(hosts.tolist(), number.tolist(), strict=True))
    gpus = [within[node] for node in nodes.tolist()]
    if values.dtype.kind == "U":
        names = [str(values[node] or labels.names[node]) for node in nodes.tolist()]
        return names, gpus
    members: dict[int, list[str]] = {}
    for node in hosts.tolist():
        members.setdefault(int(server[node]), []).append(str(labels.names[node]))
    stems = {
        s: {(_NUMBERED if len(names) > 1 else _NAMED).sub("", name) for name in names}
        for s, names in members.items()
    }
    apart = all(len(stem) == 1 for stem in stems.values())
    if not apart or len(set().union(*stems.values())) < len(stems):
        return [str(labels.names[node]) for node in nodes.tolist()], gpus
    return [next(iter(stems[int(server[node])])) for node in nodes.tolist()], gpus


def _within(
    network: Network, hosts: Int[np.ndarray, " hosts"], server: Int[np.ndarray, " hosts"]
) -> Int[np.ndarray, " hosts"]:
    """Return the number of every endpoint in its server: that of the GPU, if known, or its turn."""
    tag = network.labels.tags.get("gpu")
    if tag is not None and tag.dtype.kind in "iu" and (tag[hosts] >= 0).all():
        return tag[hosts].astype(np.int64)
    order = np.argsort(server, kind="stable")
    begun = np.searchsorted(server[order], server)
    turn = np.empty(len(hosts), np.int64)
    turn[order] = np.arange(len(hosts)) - begun[order]
    return turn
