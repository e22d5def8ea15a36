"""Measures of any network: hops and diameter, numbers of shortest ways, all-to-all rate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import InfeasibleError, ModelError, some
from fabric._typing import AnyArray
from fabric.network import Network, index_array, names_of, whole
from fabric.topologies._bisection import bisection
from fabric.topologies._web import Web, web_of

_UNASKED, _MOST = 4e9, 2e10
"""Work of a sweep that takes some 20 seconds, and that takes minutes."""


@dataclass(frozen=True)
class Hops:
    """How far endpoints are from each other.

    Attributes:
        diameter: Links of the longest of all shortest ways.
        switches: Switches of the fabric on the way that passes most; NVSwitch chips, PCIe switches
            and NICs are none.
        mean: Links on average over all ordered pairs of endpoints.
        unreachable: Ordered pairs without a way, which do not count in the others.
        exact: False where only some endpoints were searched: then `diameter` and `switches` may be
            larger, and `mean` is an estimate.
    """

    diameter: int
    switches: int
    mean: float
    unreachable: int
    exact: bool


@dataclass(frozen=True)
class Ways:
    """Shortest ways of some pairs of nodes, all (pairs,).

    Attributes:
        links: Fewest links; -1 where there is no way.
        switches: Fewest switches of the fabric in between.
        by_nodes: Ways that differ in a node.
        by_cables: Ways that differ in a cable.
    """

    links: Int[np.ndarray, " pairs"]
    switches: Int[np.ndarray, " pairs"]
    by_nodes: Float[np.ndarray, " pairs"]
    by_cables: Float[np.ndarray, " pairs"]


@dataclass(frozen=True)
class AllToAll:
    """What each endpoint can send, evenly to all others at once, over equally split shortest ways.

    Attributes:
        rate: byte/s that each endpoint sends in all.
        in_links: The same in units of the most common capacity of a live link.
        bound: byte/s that no routing exceeds, by what leaves an endpoint, by the links that all
            ways need together, and by the cuts tried.
        limited_by: Which of these: "endpoint", "links" or "cut".
        mean_hops: Links on average over all ordered pairs.
    """

    rate: float
    in_links: float
    bound: float
    limited_by: str
    mean_hops: float

    @property
    def optimal(self) -> bool:
        """Whether no routing does better, to 1 in a million."""
        return self.rate >= self.bound * (1 - 1e-6)


def hops(network: Network, *, samples: int | None = None, seed: int = 0) -> Hops:
    """Return diameter and mean distance between endpoints, as routing sees them.

    Shortest means the least sum of `network.routing_cost` over live links, with only forwarding
    nodes in between; of several such ways that with fewest links counts. A GPU in a server reaches
    the fabric over its own NIC only, and another GPU of its server inside it.

    Args:
        network: With labels.
        samples: Endpoints to search from. Default: all, or where that would take more than some
            20 seconds as many as it allows.
        seed: Which ones.

    Raises:
        ModelError: If there are fewer than two endpoints, or no pair has a way.

    Cost: Endpoints with the same links are one search over all links: about 2 s for the 2,048
        edge switches of a fat tree of 65,536 hosts.

    Examples:
        >>> import fabric as fb
        >>> far = hops(fb.topologies.fat_tree(k=4))
        >>> far.diameter, far.switches, round(far.mean, 3)
        (6, 5, 5.467)
    """
    from fabric.kernels._hops import LINKS, LOST, PAIRS, SUM, SWITCHES

    web = web_of(network)
    targets, exact = _targets(web, samples, seed)
    found = _swept(web, targets, np.zeros(0))
    if not found[PAIRS]:
        message = f"No endpoint of {network.labels.source} reaches another over live links."
        raise ModelError(message)
    return Hops(
        diameter=int(found[LINKS]),
        switches=int(found[SWITCHES]),
        mean=float(found[SUM] / found[PAIRS]),
        unreachable=int(found[LOST]),
        exact=exact,
    )


def path_counts(network: Network, pairs: AnyArray | Sequence[Any]) -> Ways:
    """Return how many shortest ways pairs of nodes have, and how long they are.

    Args:
        network: With labels.
        pairs: (pairs, 2), source and destination by node number; either may be any node that
            sends, receives or forwards.

    Raises:
        ModelError: If a row is no two whole numbers, a node is out of range, takes part in no
            traffic, or a pair is one node twice.

    Cost: A search over all links for each destination.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=4, hosts_per_leaf=2, cables_per_pair=3)
        >>> ways = path_counts(net, [(0, 1), (0, 2)])
        >>> ways.links.tolist(), ways.by_nodes.tolist(), ways.by_cables.tolist()
        ([2, 4], [1.0, 4.0], [1.0, 36.0])
    """
    from fabric.kernels._hops import search, tally

    ends = _pairs(pairs)
    web = web_of(network)
    start, stop = (_nodes(network, web, ends[:, i], i) for i in (0, 1))
    if len(same := np.flatnonzero(ends[:, 0] == ends[:, 1])):
        message = f"`pairs` needs two nodes that differ, but not so at {some(same.tolist())}."
        raise ModelError(message)
    n = len(web.ptr) - 1
    dist, order, links, passed = (np.empty(n, np.int64) for _ in range(4))
    ways, usable = np.zeros((n, 2)), np.empty(n)
    result = Ways(*(np.full(len(ends), -1) for _ in range(2)), *np.zeros((2, len(ends))))
    for target in np.unique(stop).tolist():
        count = search(web.ptr, web.tail, web.cost, web.even, target, dist, order)
        tally(
            web.ptr, web.tail, web.cost, web.cables, web.switch, order, count, dist, links, passed,
            ways, usable,
        )  # fmt: skip
        rows = np.flatnonzero(stop == target)
        rows = rows[dist[start[rows]] >= 0]
        node = start[rows]
        result.links[rows], result.switches[rows] = links[node], passed[node] - web.switch[target]
        result.by_nodes[rows], result.by_cables[rows] = ways[node, 0], ways[node, 1]
    return result


def all_to_all_rate(network: Network) -> AllToAll:
    """Return the rate of a uniform all-to-all over shortest ways, and what bounds any routing.

    Every endpoint sends the same to every other. At every node the traffic to a destination is
    split equally over all live cables that lie on a shortest way to it, inside servers in
    proportion to capacity, as `routing.spray` does; the rate is that at which the first link is
    full.

    Args:
        network: With labels.

    Raises:
        ModelError: If there are fewer than two endpoints.
        InfeasibleError: If a pair has no way, or there are too many endpoints and links for a
            sweep of minutes.

    Cost: As `hops`, three times as long.

    Examples:
        >>> import fabric as fb
        >>> found = all_to_all_rate(fb.topologies.full_mesh(nodes=4, capacity="100Gb/s"))
        >>> round(found.in_links, 6), found.optimal, found.limited_by
        (3.0, True, 'endpoint')
    """
    from fabric.kernels._hops import LOST, PAIRS, SUM

    web = web_of(network)
    targets = np.arange(len(web.members))
    if _work(web) * len(targets) > _MOST:
        message = (
            f"An all-to-all of {int(web.members.sum()):,} endpoints, {len(web.members):,} of them "
            f"different, over {len(web.tail):,} links takes more than minutes. Measure a pod of "
            f"it, or a network without the insides of servers."
        )
        raise InfeasibleError(message)
    load = np.zeros(len(web.tail))
    found = _swept(web, targets, load)
    if found[LOST]:
        message = (
            f"{int(found[LOST]):,} pairs of endpoints of {network.labels.source} have no way over "
            f"live links, so an all-to-all is impossible. {_remedy(network)}"
        )
        raise InfeasibleError(message)
    others = int(web.members.sum()) - 1
    # Several arcs may be one link, on ways inside a server and out of it.
    _, place, times = np.unique(web.link, return_inverse=True, return_counts=True)
    load = np.bincount(place, load)
    even = np.where(web.split == web.cables, web.least * web.cables, web.capacity)
    room = np.bincount(place, even * web.copies) / times
    rate = float(np.min(room[load > 0] / load[load > 0])) * others
    mean = float(found[SUM] / found[PAIRS])
    bounds = _bounds(network, web, mean)
    values, counts = np.unique(web.least, return_counts=True)
    limited = min(bounds, key=lambda name: bounds[name])
    return AllToAll(
        rate=rate,
        in_links=rate / float(values[np.argmax(counts)]),
        bound=bounds[limited],
        limited_by=limited,
        mean_hops=mean,
    )


def _remedy(network: Network) -> str:
    if network.labels.about.get("rails") != "forward":
        return "Bring links back (`network.alive`)."
    return (
        "Rails meet only where GPUs pass on the traffic of others (`rails='forward'` of routing), "
        "which is no way here. Measure one rail."
    )


def _bounds(network: Network, web: Web, mean: float) -> dict[str, float]:
    """Return what no routing of an all-to-all exceeds, byte/s per endpoint, by reason."""
    n = int(web.members.sum())
    _, once = np.unique(web.link, return_index=True)
    out, into = (
        np.bincount(end[once], web.capacity[once], len(web.ptr) - 1)[at]
        for end, at in ((web.tail, web.source), (web.head, web.sink))
    )
    found = {"endpoint": float(min(out.min(), into.min()))}
    if web.even:  # else the ways of least cost may not be those with fewest links
        found["links"] = float((web.capacity * web.copies).sum()) / (n * mean)
    cut = bisection(network, samples=0)
    found["cut"] = cut.capacity * (n - 1) / (cut.sizes[0] * cut.sizes[1])
    return found


def _targets(web: Web, samples: int | None, seed: int) -> tuple[Int[np.ndarray, " targets"], bool]:
    """Return the classes to search from, and whether they are all."""
    n = len(web.members)
    most = max(1, int(_UNASKED // _work(web)))
    count = min(n, most) if samples is None else min(n, whole("samples", samples))
    if count == n:
        return np.arange(n), True
    rng = np.random.default_rng(whole("seed", seed, 0))
    return np.sort(rng.choice(n, count, replace=False)), False


def _work(web: Web) -> float:
    """Return the work of one search: its arcs, ten times over where costs are unequal."""
    return max(1, len(web.tail)) * (1 if web.even else 10)


def _swept(
    web: Web, targets: Int[np.ndarray, " targets"], load: Float[np.ndarray, " arcs"]
) -> Float[np.ndarray, " 5"]:
    from fabric.kernels._hops import sweep

    return sweep(
        web.ptr, web.tail, web.cost, web.split, web.even, web.switch, web.sink[targets], targets,
        web.source, web.members, load,
    )  # fmt: skip


def _pairs(pairs: object) -> Int[np.ndarray, "pairs 2"]:
    """Return pairs as an array, or raise."""
    given: np.ndarray
    try:
        given = np.asarray(pairs)
    except ValueError:
        given = np.zeros(3)  # rows of different lengths
    if given.size and (given.ndim != 2 or given.shape[1] != 2):
        message = (
            f"`pairs` needs a source and a destination in every row, such as [(0, 1), (0, 2)], "
            f"but got {pairs!r}."
        )
        raise ModelError(message)
    return index_array("pairs", given.ravel(), dtype=np.int64).reshape(-1, 2)


def _nodes(
    network: Network, web: Web, nodes: Int[np.ndarray, " pairs"], end: int
) -> Int[np.ndarray, " pairs"]:
    """Return where nodes of the network send from (end 0) or receive at (end 1) in the web."""
    outside = nodes[(nodes < 0) | (nodes >= network.n_nodes)]
    if len(outside):
        message = (
            f"`pairs` needs nodes from 0 to {network.n_nodes - 1:,}, but {len(outside):,} are "
            f"outside: {some(outside.tolist())}."
        )
        raise ModelError(message)
    group = web.class_of[nodes]
    passes = (web.leaves, web.enters)[end][nodes]
    found = np.where(group >= 0, (web.source, web.sink)[end][group], passes)
    if (lost := found < 0).any():
        message = (
            f"`pairs` needs nodes that send, receive or forward, but "
            f"{some(names_of(network, nodes[lost]))} do neither. Mark them as endpoints, or leave "
            f"them out."
        )
        raise ModelError(message)
    return found
