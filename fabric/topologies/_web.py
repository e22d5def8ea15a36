"""A network as searches see it: equal endpoints as one node, parallel cables as one arc."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer, UInt64

from fabric._errors import ModelError
from fabric.network import Network
from fabric.topologies._adapters import Inside, groups_of, ways_out
from fabric.topologies._servers import INSIDE_KINDS

_GOLD, _M1, _M2 = (
    np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


class Web(NamedTuple):
    """Live links as arcs between nodes that forward and classes of endpoints.

    Endpoints that do not forward and have the same links to the same nodes are a class. A class
    sends from one node and receives at another, which nothing passes; both have the links of one
    of its members. An endpoint that forwards is a class of its own and one node.

    Arcs are sorted by the node they lead to; arcs into node v are those from `ptr[v]` to
    `ptr[v + 1]`.
    """

    ptr: Int[np.ndarray, " nodes+1"]
    tail: Int[np.ndarray, " arcs"]
    head: Int[np.ndarray, " arcs"]
    cost: Int[np.ndarray, " arcs"]  # routing cost in units of their common divisor
    cables: Float[np.ndarray, " arcs"]  # parallel links
    least: Float[np.ndarray, " arcs"]  # byte/s of the slowest of them
    capacity: Float[np.ndarray, " arcs"]  # byte/s of all of them
    split: Float[np.ndarray, " arcs"]  # what traffic is split by: cables, in servers capacity
    switch: Int[np.ndarray, " nodes"]  # 1: a switch of the fabric
    source: Int[np.ndarray, " classes"]  # node that a class sends from
    sink: Int[np.ndarray, " classes"]  # node that it receives at
    members: Int[np.ndarray, " classes"]
    link: Int[np.ndarray, " arcs"]  # of the network, the first of the parallel ones
    class_of: Int[np.ndarray, " nodes_of_network"]  # -1: no endpoint
    leaves: Int[np.ndarray, " nodes_of_network"]  # where one that forwards begins a way, else -1
    enters: Int[np.ndarray, " nodes_of_network"]  # and where it ends one

    @property
    def even(self) -> bool:
        """Whether all routing costs are equal."""
        return not len(self.cost) or int(self.cost.max()) == 1

    @property
    def copies(self) -> Int[np.ndarray, " arcs"]:
        """How many times each arc is there: once per member of the class at its end."""
        times = np.ones(len(self.ptr) - 1, np.int64)
        # A source and a sink that are one node belong to an endpoint that forwards, one member.
        times[self.source] = times[self.sink] = self.members
        return times[self.tail] * times[self.head]


class Unfolded(NamedTuple):
    """Live links that traffic may use, apart for ways inside servers, out of them and into them.

    Nodes are those of the network, then copies: of every NIC of a server for the way in, and of
    what lies between a GPU and its own NIC for either way. So traffic leaves a server over the NIC
    of its GPU only, and no way passes through a server of others.
    """

    link: Int[np.ndarray, " arcs"]
    src: Int[np.ndarray, " arcs"]
    dst: Int[np.ndarray, " arcs"]
    origin: Int[np.ndarray, " nodes"]  # node of the network
    inner: Int[np.ndarray, " nodes_of_network"]  # the copy for the way in, else the node itself
    nics: Int[np.ndarray, " nics"]
    endpoint: Bool[np.ndarray, " nodes"]
    forwards: Bool[np.ndarray, " nodes"]


def unfolded(network: Network) -> Unfolded:
    """Return the live links of a network between nodes that send, receive or forward.

    Args:
        network: With labels.
    """
    labels, n = network.labels, network.n_nodes
    endpoint, forwards = np.array(labels.endpoint), np.array(labels.forwards)
    src, dst = labels.src.astype(np.int64), labels.dst.astype(np.int64)
    alive, inner = np.asarray(network.alive), np.arange(n)
    if not ("gpu" in labels.present_kinds and {"server", "nic"} <= set(labels.tags)):
        takes_part = endpoint | forwards
        link = np.flatnonzero(alive & takes_part[src] & takes_part[dst])
        nics = np.zeros(0, np.int64)
        return Unfolded(link, src[link], dst[link], inner, inner, nics, endpoint, forwards)

    server = labels.tags["server"]
    nic = (server >= 0) & ~labels.is_kind("gpu", *INSIDE_KINDS) & ~endpoint
    nics = np.flatnonzero(nic)
    inner[nics] = n + np.arange(len(nics))
    forwards |= nic
    takes_part = endpoint | forwards
    alive = alive & takes_part[src] & takes_part[dst]
    within = (server[src] >= 0) & (server[src] == server[dst])
    cables, own = np.flatnonzero(alive & ~within), np.flatnonzero(alive & within)
    kept = own[~(nic[src[own]] | nic[dst[own]])]

    groups, legs = groups_of(labels), Inside(own, src[own], dst[own])
    passes = np.asarray(labels.forwards) & labels.is_kind(*INSIDE_KINDS)
    first = n + len(nics)
    out, out_of = ways_out(groups, legs, passes, first)
    into, into_of = ways_out(groups, legs.turned(), passes, first + len(out_of))
    into = into.turned()
    from_nic = np.where(into.tail < n, inner[np.minimum(into.tail, n - 1)], into.tail)
    origin = np.r_[np.arange(n), nics, out_of, into_of].astype(np.int64)
    return Unfolded(
        link=np.r_[cables, kept, out.link, into.link],
        src=np.r_[src[cables], src[kept], out.tail, from_nic],
        dst=np.r_[inner[dst[cables]], dst[kept], out.head, into.head],
        origin=origin,
        inner=inner,
        nics=nics,
        endpoint=np.r_[endpoint, np.zeros(len(origin) - n, bool)],
        forwards=forwards[origin],
    )


def web_of(network: Network) -> Web:
    """Return the arcs of a network.

    Args:
        network: With labels.

    Raises:
        ModelError: If fewer than two nodes send and receive.
    """
    labels = network.labels
    if (count := len(network.hosts)) < 2:
        message = (
            f"{labels.source or 'This network'} has {count} nodes that send and receive "
            f"(`network.hosts`), but a measure is of pairs. Mark at least two."
        )
        raise ModelError(message)
    flat = unfolded(network)
    src, dst, endpoint, forwards = flat.src, flat.dst, flat.endpoint, flat.forwards
    cost = np.asarray(network.routing_cost)[flat.link].astype(np.int64)
    capacity = np.asarray(network.capacity, np.float64)[flat.link]
    # As routing does, a server is left only where there is no way inside it.
    cost += np.isin(src, flat.nics) * (cost.sum() if len(flat.nics) else 0)
    cost //= np.gcd.reduce(cost) if len(cost) else 1

    hidden = endpoint & ~forwards
    class_of, first = _classes(len(endpoint), endpoint, hidden, src, dst, cost, capacity)
    members = np.bincount(class_of[class_of >= 0], minlength=len(first))
    node_of = np.where(forwards, np.cumsum(forwards) - 1, -1)
    n = int(forwards.sum())
    apart = hidden[first]
    source = np.where(apart, n + 2 * np.cumsum(apart) - 2, node_of[first])
    sink = np.where(apart, source + 1, source)
    n_nodes = n + 2 * int(apart.sum())

    # Of every class that does not forward, only the links of its first member are kept.
    stands = forwards.copy()
    stands[first] = True
    kept = stands[src] & stands[dst]
    src, dst, cost, capacity = src[kept], dst[kept], cost[kept], capacity[kept]
    tail = np.where(hidden[src], source[class_of[src]], node_of[src])
    head = np.where(hidden[dst], sink[class_of[dst]], node_of[dst])
    order = np.lexsort((cost, tail, head))
    tail, head, cost, capacity = tail[order], head[order], cost[order], capacity[order]
    link = flat.link[kept][order]
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(head) != 0) | (np.diff(tail) != 0) | (np.diff(cost) != 0)
    starts = np.flatnonzero(new)
    head = head[starts]
    switch = np.zeros(n_nodes, np.int64)
    real = forwards & ~endpoint & ~labels.is_kind(*INSIDE_KINDS)[flat.origin]
    real[np.r_[flat.nics, flat.inner[flat.nics]]] = False
    switch[node_of[real]] = 1
    pieces = lambda ufunc, values: ufunc.reduceat(values, starts) if len(starts) else values
    cables = np.diff(np.r_[starts, len(order)]).astype(np.float64)
    inside = np.zeros(network.n_links, bool)
    if len(flat.nics):
        server = labels.tags["server"]
        inside = (server[labels.src] >= 0) & (server[labels.src] == server[labels.dst])
    return Web(
        ptr=np.searchsorted(head, np.arange(n_nodes + 1)),
        tail=tail[starts],
        head=head,
        cost=cost[starts],
        cables=cables,
        least=pieces(np.minimum, capacity),
        capacity=pieces(np.add, capacity),
        split=np.where(inside[link[starts]], np.maximum(capacity[starts], 1e-300), cables),
        switch=switch,
        source=source.astype(np.int64),
        sink=sink.astype(np.int64),
        members=members.astype(np.int64),
        link=link[starts],
        class_of=class_of[: network.n_nodes],
        leaves=node_of[: network.n_nodes],
        enters=node_of[flat.inner],
    )


def _classes(
    n: int,
    endpoint: Bool[np.ndarray, " nodes"],
    hidden: Bool[np.ndarray, " nodes"],
    src: Int[np.ndarray, " links"],
    dst: Int[np.ndarray, " links"],
    cost: Int[np.ndarray, " links"],
    capacity: Float[np.ndarray, " links"],
) -> tuple[Int[np.ndarray, " nodes"], Int[np.ndarray, " classes"]]:
    """Return the class of every endpoint, -1 for other nodes, and the first member of each."""
    seal = np.zeros(n, np.uint64)
    what = mixed(mixed(cost.astype(np.uint64)) + capacity.view(np.uint64))
    np.add.at(seal, src, np.where(hidden[src], mixed(mixed(dst) + what), 0).astype(np.uint64))
    np.add.at(seal, dst, np.where(hidden[dst], mixed(mixed(~src) + what), 0).astype(np.uint64))
    alone = ~hidden
    between = hidden[src] & hidden[dst]
    alone[src[between]] = alone[dst[between]] = True
    seal[alone] = mixed(np.flatnonzero(alone)) + np.uint64(1)
    nodes = np.flatnonzero(endpoint)
    _, first, inverse = np.unique(seal[nodes], return_index=True, return_inverse=True)
    class_of = np.full(n, -1, np.int64)
    rank = np.empty(len(first), np.int64)  # classes in the order of their first members
    rank[np.argsort(first)] = np.arange(len(first))
    class_of[nodes] = rank[inverse]
    return class_of, nodes[np.sort(first)]


def mixed(values: Integer[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    """Return the splitmix64 hash of whole numbers."""
    x = values.astype(np.uint64) + _GOLD
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))
