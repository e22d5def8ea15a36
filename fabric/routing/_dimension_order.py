"""Dimension order: axis by axis, on tori, meshes and HyperX networks."""

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from fabric._errors import ModelError, UnreachableError, raise_faults, some
from fabric._memory import afford
from fabric.network import Flows, Network, Routes, frozen, names_of, whole_or_fault
from fabric.routing._blend import in_pairs
from fabric.routing._graph import Trip
from fabric.routing._servers import RAILS, has_servers, routed

_NAMES = (("x", "y", "z"), tuple(f"dim{i}" for i in range(16)))
_WAYS = ("both", "up")
_BYTES_PER_HOP = 20


class Sites(NamedTuple):
    """Forwarding nodes with coordinates, by part (a slice of a pod, or the whole)."""

    place: Int[np.ndarray, "sites axes"]
    part: Int[np.ndarray, " sites"]
    key: Int[np.ndarray, " sites"]  # where each is in `at`
    at: Int[np.ndarray, " keys"]  # site; -1: none there
    size: Int[np.ndarray, "parts axes"]
    stride: Int[np.ndarray, "parts axes"]
    closed: Bool[np.ndarray, "parts axes"]  # the last of the axis is wired to the first


class Moves(NamedTuple):
    """Live links by site and slot: up and down an axis, or to each place on a meshed one."""

    meshed: Bool[np.ndarray, " axes"]
    slot: Int[np.ndarray, " axes+1"]  # first of each axis
    ptr: Int[np.ndarray, " moves+1"]
    link: Int[np.ndarray, " links"]


def dimension_order(
    network: Network,
    flows: Flows,
    *,
    halfway: str = "both",
    queue_pairs: int = 1,
    rails: str = RAILS[0],
) -> Routes:
    """Return one path per flow that corrects one coordinate after the other.

    Dimension order: a flow first moves along x until that coordinate is right, then along y, then
    along z, each time the shorter way round.

    On a torus or mesh every step is to the next chip; on a HyperX, where all switches along an axis
    are joined, an axis takes one hop. Coordinates are the tags `x`, `y` and `z`, or `dim0`, `dim1`
    and so on, of the nodes that forward; with a tag `slice`, each slice has its own. Parallel
    cables share evenly. It never goes round a failed link.

    Args:
        network: With labels and coordinates.
        flows: (flows,). Weights and caps travel into the routes.
        halfway: Where both ways round are equally long, "both": half of the flow goes each way;
            "up": all of it towards growing coordinates.
        queue_pairs: As in `spray`: all of a flow go the same way.
        rails: As in `ecmp`, for networks with servers.

    Returns:
        One-level `Routes`, a row per queue pair, in the order of the path; `hop_use` is less than 1
        where the flow is halved or parallel cables share. Two-level where the network has servers.

    Raises:
        ModelError: If the network has no coordinates, a link leads along two axes at once as in a
            twisted torus, an end of a flow is no endpoint or hangs on several switches, or an
            option is unknown.
        UnreachableError: If a link that a path needs is missing or not alive; the flows are named.
        InfeasibleError: If the routes would not fit in memory.

    Cost: Two passes over the hops: about 1 s for a million flows of 13 hops.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.torus("3x3")
        >>> routes = dimension_order(net, fb.Flows([0], [5]))
        >>> [net.link_name(int(i)) for i in routes.hop_bundle]
        ['chip0-0->chip1-0', 'chip1-0->chip1-2']

    References:
        W. J. Dally and B. Towles, Principles and Practices of Interconnection Networks, 2004,
        section 8.4.1.
    """
    faults: list[str] = []
    pairs = whole_or_fault("queue_pairs", queue_pairs, faults)
    if halfway not in _WAYS:
        faults.append(f"`halfway` needs one of 'both' and 'up', but got {halfway!r}.")
    raise_faults(faults)
    rule = {"rails": rails} if has_servers(network) else {}
    walk = lambda trip: in_pairs(_walk(trip, halfway == "both", network, flows), pairs)
    return routed(network, flows, walk, pairs, rails).with_rule(
        name="dimension_order", halfway=halfway, queue_pairs=pairs, **rule
    )


def _walk(trip: Trip, halves: bool, network: Network, said: Flows) -> Routes:
    from fabric.kernels._walks import walk_axes

    view, flows = trip.network, trip.flows
    site_of, sites = _sites(view)
    moves = _moves(view, site_of, sites)
    src, dst = np.asarray(flows.src), np.asarray(flows.dst)
    leave, first_links, from_site = _access(trip, site_of, src, outwards=True)
    arrive, last_links, to_site = _access(trip, site_of, dst, outwards=False)
    ptr = np.zeros(flows.n_flows + 1, np.int64)
    none, no_use = np.empty(0, np.int32), np.empty(0)
    walk_axes(sites, moves, from_site, to_site, halves, ptr, False, none, no_use)
    lost = ptr[1:] < 0
    _check(trip, network, said, lost)
    ptr[1:] += leave + arrive
    np.cumsum(ptr, out=ptr)
    n_hops = int(ptr[-1])
    afford(
        f"`dimension_order` of {flows.n_flows:,} flows with {n_hops:,} hops",
        _BYTES_PER_HOP * n_hops,
        "Give fewer flows, or route them block by block.",
    )
    hop_link, hop_use = np.empty(n_hops, np.int32), np.empty(n_hops)
    for links, count, at in (
        (first_links, leave, ptr[:-1]),
        (last_links, arrive, ptr[1:] - arrive),
    ):
        to = np.repeat(at - (np.cumsum(count) - count), count) + np.arange(len(links))
        hop_link[to] = links
        hop_use[to] = 1.0 / np.repeat(count, count)
    walk_axes(sites, moves, from_site, to_site, halves, ptr[:-1] + leave, True, hop_link, hop_use)
    return Routes(
        frozen(np.repeat(np.arange(flows.n_flows, dtype=np.int32), np.diff(ptr))),
        frozen(hop_link), frozen(hop_use), frozen(none), frozen(none), frozen(no_use),
        np.asarray(flows.weight, np.float64), np.asarray(flows.cap, np.float64),
        frozen(np.arange(flows.n_flows, dtype=np.int32)),
        n_links=view.n_links, n_bundles=view.n_links, n_pairs=flows.n_flows,
    )  # fmt: skip


def _sites(network: Network) -> tuple[Int[np.ndarray, " nodes"], Sites]:
    """Return the site of every node, -1 where it has none, and the sites."""
    labels = network.labels
    whole = lambda tag: tag in labels.tags and labels.tags[tag].dtype.kind == "i"
    found = [list(itertools.takewhile(whole, names)) for names in _NAMES]
    names = max(found, key=len)
    if not names:
        message = (
            "`dimension_order` needs nodes with coordinates, tags `x`, `y` and `z` or `dim0`, "
            "`dim1` and so on, but this network has none. Use `ecmp` or `spray`."
        )
        raise ModelError(message)
    place = np.stack([labels.tags[name] for name in names], 1).astype(np.int64)
    nodes = np.flatnonzero(np.asarray(labels.forwards) & (place >= 0).all(1))
    part = np.asarray(labels.tags["slice"], np.int64) if whole("slice") else None
    part = np.zeros(len(nodes), np.int64) if part is None else part[nodes]
    part = np.unique(part, return_inverse=True)[1].ravel()
    place = place[nodes]
    n_parts, n_axes = int(part.max(initial=-1)) + 1, len(names)
    size = np.zeros((n_parts, n_axes), np.int64)
    np.maximum.at(size, part, place + 1)
    stride = np.ones_like(size)
    stride[:, :-1] = np.cumprod(size[:, :0:-1], axis=1)[:, ::-1]
    room = size.prod(1)
    key = (np.cumsum(room) - room)[part] + (place * stride[part]).sum(1)
    at = np.full(int(room.sum()), -1, np.int64)
    at[key] = np.arange(len(nodes))
    twins = np.flatnonzero(at[key] != np.arange(len(nodes)))
    if len(twins):
        name_of = lambda i: names_of(network, nodes[[i]])[0]
        message = (
            f"`dimension_order` needs one node per place, but {len(twins):,} of {len(nodes):,} "
            f"share theirs with a later one: {some(twins.tolist(), name=name_of)}. Tag the nodes "
            f"of each torus with a number of its own, `slice`."
        )
        raise ModelError(message)
    site_of = np.full(network.n_nodes, -1, np.int64)
    site_of[nodes] = np.arange(len(nodes))
    closed = np.zeros((n_parts, n_axes), bool)
    return site_of, Sites(place, part, key, at, size, stride, closed)


def _moves(network: Network, site_of: Int[np.ndarray, " nodes"], sites: Sites) -> Moves:
    """Return the live links by site and slot, and mark in `sites` which axes are closed."""
    from fabric.kernels._paths import group_by

    labels = network.labels
    a, b = site_of[labels.src], site_of[labels.dst]
    links = np.flatnonzero((a >= 0) & (b >= 0))
    a, b = a[links], b[links]
    step = sites.place[b] - sites.place[a]
    crooked = ((step != 0).sum(1) != 1) | (sites.part[a] != sites.part[b])
    if crooked.any():
        bad = links[crooked].tolist()
        message = (
            f"`dimension_order` needs every link to lead along one axis, but {len(bad):,} of "
            f"{len(links):,} do not, as in a twisted torus: {some(bad, name=network.link_name)}. "
            f"Use `spray` or `ecmp`, which go by distance."
        )
        raise ModelError(message)
    axis = np.argmax(step != 0, axis=1)
    step = step[np.arange(len(links)), axis]
    size = sites.size[sites.part[a], axis]
    n_axes = sites.size.shape[1]
    wraps = (np.abs(step) == size - 1) & (size > 2)
    meshed = np.zeros(n_axes, bool)
    meshed[axis[(np.abs(step) != 1) & ~wraps]] = True
    sites.closed[sites.part[a[wraps]], axis[wraps]] = True
    slots = np.where(meshed, sites.size.max(0, initial=0), 2)
    slot = np.concatenate([[0], np.cumsum(slots)])
    up = np.where(wraps, step < 0, step > 0)
    move = slot[axis] + np.where(meshed[axis], sites.place[b, axis], np.where(up, 0, 1))
    alive = np.asarray(network.alive)[links]
    rows = (a * slot[-1] + move)[alive]
    ptr, order = group_by(rows, len(sites.place) * int(slot[-1]))
    return Moves(meshed, slot, ptr, links[alive][order].astype(np.int32))


def _access(
    trip: Trip, site_of: Int[np.ndarray, " nodes"], ends: Int[np.ndarray, " flows"], outwards: bool
) -> tuple[Int[np.ndarray, " flows"], Int[np.ndarray, " links"], Int[np.ndarray, " flows"]]:
    """Return how many links join each end and its site, those links, and the site; -1: none."""
    graph, network = trip.graph, trip.network
    n = network.n_nodes
    ptr = graph.first_ptr if outwards else graph.last_ptr
    link = graph.first_link if outwards else graph.last_link
    near = network.labels.dst[link] if outwards else network.labels.src[link]
    node = np.repeat(np.arange(n), np.diff(ptr))
    hub = np.arange(n)
    hub[np.asarray(network.labels.forwards) == 0] = -1
    hub[node] = near
    several = np.unique(node[hub[node] != near])
    if len(used := np.intersect1d(several, ends)):
        name_of = lambda node: names_of(network, [node])[0]
        message = (
            f"`dimension_order` needs ends that hang on one switch, but {len(used):,} hang on "
            f"several: {some(used.tolist(), name=name_of)}. Use `spray` or `ecmp`."
        )
        raise ModelError(message)
    count = np.diff(ptr)[ends]
    skip = np.cumsum(count) - count
    entry = np.repeat(ptr[ends] - skip, count) + np.arange(int(count.sum()))
    return count, link[entry], np.where(hub[ends] >= 0, site_of[hub[ends]], -1)


def _check(trip: Trip, network: Network, said: Flows, lost: Bool[np.ndarray, " flows"]) -> None:
    """Say which flows, as the caller knows them, need a link that is missing."""
    try:
        trip.check_reached(lost)
    except UnreachableError as error:
        flows = error.flows
    else:
        return
    pair = lambda flow: " -> ".join(names_of(network, [int(said.src[flow]), int(said.dst[flow])]))
    dead = np.flatnonzero(~np.asarray(network.alive))
    cause = f"{len(dead):,} of {network.n_links:,} links are dead"
    if len(dead):
        cause += f": {some(dead.tolist(), name=network.link_name)}"
    message = (
        f"`dimension_order` does not go round a missing link, and {len(flows):,} of "
        f"{said.n_flows:,} flows need one: {some(flows, name=pair)}. {cause}. Use `spray` or "
        f"`ecmp`, which go by the links that are left, or leave these flows out."
    )
    raise UnreachableError(message, flows)
