"""`bisection`: the least cut found between two halves of the endpoints, by maximum flow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric._errors import ModelError, nearest, some
from fabric._typing import AnyArray
from fabric.network import Network, names_of, whole
from fabric.topologies._web import Web, mixed, unfolded, web_of

_FEW = 300_000
"""Arcs up to which random halves are tried unasked; each is a maximum flow without symmetry."""

_MOST = 2**30
"""Largest flow, in units, that the 32-bit solver is given."""


@dataclass(frozen=True, eq=False)
class Cut:
    """A cut between two halves of the endpoints: an upper bound on the bisection.

    The bisection is the least over all halves, of which only some were tried.

    Attributes:
        capacity: byte/s, one way: the most that the first half can send to the second, or the
            second to the first, whichever is less.
        halves: Which halves these are: "node order", "tag z", "random 2" or "given".
        sizes: Endpoints of the first and of the second half.
        links: Links from one side to the other, which are full when all of it is sent.
        first: (nodes,), the nodes on the first side.
        tried: All halves that were tried, and byte/s of each.
    """

    capacity: float
    halves: str
    sizes: tuple[int, int]
    links: Int[np.ndarray, " cut"]
    first: Bool[np.ndarray, " nodes"]
    tried: dict[str, float]


def bisection(
    network: Network,
    halves: str | AnyArray | Sequence[int] | None = None,
    *,
    samples: int | None = None,
    seed: int = 0,
) -> Cut:
    """Return the least cut found between two halves of the endpoints, one way.

    Any routing over live links and forwarding nodes counts, not only shortest ways. For each pair
    of halves the cut is exact: a maximum flow, on the network with like nodes made one. A GPU in a
    server leaves it over its own NIC only; where GPUs share PCIe or socket links on the way, the
    cut is an upper bound. Where
    capacities have no common unit small enough for 32-bit integers they are rounded down to find
    the cut, and what it carries is then summed from the true ones.

    Args:
        network: With labels.
        halves: A tag, such as "z" or "group": endpoints in its order, the first half against the
            second. Or the endpoints of the first half, by number or as a mask over all nodes.
            Default: by node number and by every tag of the endpoints, and random ones.
        samples: Random halves to try. Default: 4 up to 300,000 different arcs, else none.
        seed: Of the random halves.

    Raises:
        ModelError: If there is no such tag, a half is empty, or a node in it is no endpoint.

    Cost: Halves that a symmetry of the network keeps cost a pass over the links; random ones a
        maximum flow over all of them.

    Examples:
        >>> import fabric as fb
        >>> cut = bisection(fb.topologies.fat_tree(k=4, capacity="100Gb/s"))
        >>> cut.capacity * 8 / 100e9, cut.sizes
        (8.0, (8, 8))

    References:
        M. Grohe, K. Kersting, M. Mladenov and E. Selman, Dimension Reduction via Colour
        Refinement, ESA 2014: the flow between like nodes is that between their classes.
    """
    web = web_of(network)
    splits = _splits(network, web, halves, samples, seed)
    both = not _symmetric(network)
    best: tuple[float, str, bool, np.ndarray, np.ndarray] | None = None
    tried: dict[str, float] = {}
    for name, first in splits.items():
        for back in (False, True) if both else (False,):
            start = (np.asarray(network.labels.endpoint) & ~first) if back else first
            capacity, side = _least_cut(network, web, start)
            tried[name] = min(capacity, tried.get(name, np.inf))
            if best is None or capacity < best[0]:
                best = (capacity, name, back, first, side)
    assert best is not None  # there is always one split
    capacity, name, back, first, side = best
    flat = unfolded(network)
    crosses = side[flat.src] & ~side[flat.dst]
    return Cut(
        capacity=capacity,
        halves=name,
        sizes=(int(first.sum()), len(network.hosts) - int(first.sum())),
        links=np.unique(flat.link[crosses]),
        first=(~side if back else side)[: network.n_nodes],
        tried=tried,
    )


Splits = dict[str, Bool[np.ndarray, " nodes"]]
"""Endpoints of the first half, a mask over all nodes, by name."""


def _splits(network: Network, web: Web, halves: Any, samples: int | None, seed: int) -> Splits:
    hosts, tags = network.hosts, network.labels.tags
    mask = lambda nodes: np.isin(np.arange(network.n_nodes), nodes)
    known = [
        name
        for name, tag in tags.items()
        if tag.dtype.kind in "iu" and len(np.unique(tag[hosts])) > 1
    ]
    in_order = lambda tag: hosts[np.argsort(tags[tag][hosts], kind="stable")[: len(hosts) // 2]]
    if isinstance(halves, str):
        if halves not in known:
            message = (
                f"`bisection(halves={halves!r})`: the endpoints have no such tag of several "
                f"values. {nearest(halves, known)}"
            )
            raise ModelError(message)
        return {f"tag {halves}": mask(in_order(halves))}
    if halves is not None:
        return {"given": _given(network, halves)}
    splits = {"node order": mask(hosts[: len(hosts) // 2])}
    splits |= {f"tag {tag}": mask(in_order(tag)) for tag in known}
    different = {first.tobytes(): name for name, first in reversed(splits.items())}
    splits = {name: first for name, first in splits.items() if name in different.values()}
    few = 4 if len(web.tail) <= _FEW else 0
    count = few if samples is None else whole("samples", samples, 0)
    rng = np.random.default_rng(whole("seed", seed, 0))
    for i in range(count):
        splits[f"random {i}"] = mask(rng.permutation(hosts)[: len(hosts) // 2])
    return splits


def _given(network: Network, halves: Any) -> Bool[np.ndarray, " nodes"]:
    values = np.asarray(halves)
    n = network.n_nodes
    if values.dtype == bool and values.shape != (n,):
        message = f"`halves` needs a value for each of {n:,} nodes, but has {len(values):,}."
        raise ModelError(message)
    nodes = np.flatnonzero(values) if values.dtype == bool else values.astype(np.int64).ravel()
    if len(outside := nodes[(nodes < 0) | (nodes >= n)]):
        message = f"`halves` needs nodes from 0 to {n - 1:,}, but has {some(outside.tolist())}."
        raise ModelError(message)
    endpoint = np.asarray(network.labels.endpoint)
    if len(odd := nodes[~endpoint[nodes]]):
        message = (
            f"`halves` needs endpoints (`network.hosts`), but {some(names_of(network, odd))} "
            f"neither send nor receive."
        )
        raise ModelError(message)
    first = np.zeros(n, bool)
    first[nodes] = True
    if not 0 < first.sum() < endpoint.sum():
        message = (
            f"`halves` holds {int(first.sum()):,} of {int(endpoint.sum()):,} endpoints, so one "
            f"side is empty. Give about half of them."
        )
        raise ModelError(message)
    return first


def _symmetric(network: Network) -> bool:
    """Return whether what two nodes can send each other is the same both ways."""
    labels, alive = network.labels, np.asarray(network.alive)
    capacity = np.asarray(network.capacity, np.float64)[alive].view(np.uint64)
    src, dst = (end[alive].astype(np.int64) for end in (labels.src, labels.dst))
    seal = lambda a, b: np.add.reduce(mixed(mixed(mixed(a) + b.astype(np.uint64)) + capacity))
    return bool(seal(src, dst) == seal(dst, src))


def _least_cut(
    network: Network, web: Web, first: Bool[np.ndarray, " nodes"]
) -> tuple[float, Bool[np.ndarray, " unfolded"]]:
    """Return byte/s of the least cut around a half, and the unfolded nodes on its side."""
    tail, head, capacity, n = _arcs(network, web, first)
    colour = _colours(tail, head, capacity, n + 2)
    k = int(colour.max()) + 1
    pair = colour[tail] * k + colour[head]
    pairs, place = np.unique(pair, return_inverse=True)
    sums = np.bincount(place, capacity)
    between = pairs // k != pairs % k
    a, b, sums = pairs[between] // k, pairs[between] % k, sums[between]
    inside = _reached(a, b, sums, int(colour[n]), int(colour[n + 1]), k)
    flat = unfolded(network)
    side = np.zeros(len(flat.origin), bool)
    side[: network.n_nodes] = first
    side[flat.forwards] = inside[colour[:n]]
    if not len(flat.nics):
        return float(sums[inside[a] & ~inside[b]].sum()), side
    # A link that several arcs share is cut once.
    links = np.unique(flat.link[side[flat.src] & ~side[flat.dst]])
    return float(np.asarray(network.capacity, np.float64)[links].sum()), side


def _arcs(
    network: Network, web: Web, first: Bool[np.ndarray, " nodes"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return arcs between the n nodes that forward, the first half (n) and the second (n + 1)."""
    n = len(web.ptr) - 1 - 2 * int((web.source != web.sink).sum())
    hosts = network.hosts
    group = web.class_of[hosts]
    ours = np.bincount(group, first[hosts], len(web.members))
    theirs = web.members - ours
    apart = web.source >= n
    # How often the links of a class are there on either side, by its node of the web.
    sends, gets = np.zeros((2, len(web.ptr) - 1))
    sends[web.source[apart]], gets[web.sink[apart]] = ours[apart], theirs[apart]
    leaves, enters = web.tail >= n, web.head >= n
    times = np.where(leaves, sends[web.tail], 1) * np.where(enters, gets[web.head], 1)
    tail, head = np.where(leaves, n, web.tail), np.where(enters, n + 1, web.head)
    capacity = web.capacity * times
    # An endpoint that forwards hangs on its half by more than its own links carry, so that no cut
    # is cheaper there than at these links.
    room = [np.bincount(end, web.capacity, len(web.ptr) - 1) for end in (web.tail, web.head)]
    own = web.source[~apart]
    mine, other = own[ours[~apart] > 0], own[ours[~apart] == 0]
    tail = np.r_[tail, np.full(len(mine), n), other]
    head = np.r_[head, mine, np.full(len(other), n + 1)]
    capacity = np.r_[capacity, 2 * room[0][mine], 2 * room[1][other]]
    kept = capacity > 0
    return tail[kept], head[kept], capacity[kept], n


def _colours(
    tail: Int[np.ndarray, " arcs"],
    head: Int[np.ndarray, " arcs"],
    capacity: Float[np.ndarray, " arcs"],
    n: int,
) -> Int[np.ndarray, " nodes"]:
    """Return classes of like nodes: each sends as much to every class, and gets as much of it."""
    what = mixed(capacity.view(np.uint64))
    sides = [(np.argsort(end, kind="stable"), end) for end in (tail, head)]
    starts = [np.flatnonzero(np.r_[True, np.diff(end[order]) != 0]) for order, end in sides]
    seal, count = np.zeros(n, np.uint64), 0
    seal[n - 2], seal[n - 1] = 1, 2
    while True:
        for salt, (order, end), begun, other in zip(
            (3, 5), sides, starts, (head, tail), strict=True
        ):
            terms = mixed(seal[other] + what * np.uint64(salt))[order]
            more = np.zeros(n, np.uint64)
            if len(order):
                more[end[order][begun]] = np.add.reduceat(terms, begun)
            seal = mixed(mixed(seal) + more)
        values, colour = np.unique(seal, return_inverse=True)
        if len(values) == count:
            return colour
        count = len(values)


def _reached(
    tail: Int[np.ndarray, " arcs"],
    head: Int[np.ndarray, " arcs"],
    capacity: Float[np.ndarray, " arcs"],
    source: int,
    sink: int,
    n: int,
) -> Bool[np.ndarray, " nodes"]:
    """Return what the source still reaches when as much flows to the sink as can."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    units = _units(capacity, float(capacity[tail == source].sum()))
    room = csr_array((units, (tail, head)), shape=(n, n), dtype=np.int32)
    flow = maximum_flow(room, source, sink).flow
    left: Any = room - flow
    left.eliminate_zeros()
    inside = np.zeros(n, bool)
    inside[breadth_first_order(left, source, return_predecessors=False)] = True
    return inside


def _units(capacity: Float[np.ndarray, " arcs"], total: float) -> Int[np.ndarray, " arcs"]:
    """Return capacities in whole units, exactly where a common one is large enough."""
    most = float(capacity.max(initial=0.0))
    if most < 2.0**53 and (capacity == np.floor(capacity)).all():
        whole_units = capacity.astype(np.int64)
        whole_units //= max(1, int(np.gcd.reduce(whole_units)))
        if total / most * float(whole_units.max(initial=0)) <= _MOST:
            return np.minimum(whole_units, _MOST).astype(np.int32)
    scale = _MOST / max(total, 1e-300)
    return np.minimum(np.floor(capacity * scale), _MOST).astype(np.int32)
