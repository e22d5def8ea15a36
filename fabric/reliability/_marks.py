"""What is told apart before colours are refined: where flows lead to, and what is odd in a tier.

Refinement sees what is around a node or a link, not how it hangs together further on: rings of
three and of nine look alike to it, and of two slow cables it does not know which of them lies on
the way of which flow. Distances tell rings apart, and a colour of its own for each odd cable ties
all that is refined to that cable.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from fabric.network import Network
from fabric.reliability._failures import servers_of
from fabric.reliability._hashes import UInt64s, bits, mixed
from fabric.reliability._intact import Intact
from fabric.reliability._usage import Ids, different, grouped, per_group

MOST_ODD = 64
"""Odd cables and nodes up to which each has a colour of its own."""

_MOST_EDGES = 50_000_000


class Marks(NamedTuple):
    """Hashes beside what a node or a link is, and whether they cover all that is odd."""

    node: UInt64s
    link: UInt64s
    all_odd: bool


def marks(intact: Intact, content: UInt64s) -> Marks:
    """Return the marks of a network with its flows.

    Args:
        intact: Before any failure.
        content: (links,), a hash of what each link is.
    """
    odd = _odd(intact.network, content)
    return odd._replace(node=mixed(odd.node + _distances(intact)))


def _distances(intact: Intact) -> UInt64s:
    """Return hashes of nodes, of how far flows lead from them and to them.

    That is: over which flows, and to how many others, one comes in one step, in two and so on,
    from endpoint to endpoint, from server to server, and from one group of edge switches to the
    next; along the flows, against them, and by turns, as rates depend on each other where flows
    leave or arrive together. From one start as far as its share of 50 million flows, and the size
    of all that hangs together in any case.
    """
    flows, n = intact.flows, intact.network.n_nodes
    what = mixed(mixed(bits(flows.weight)) + bits(flows.cap))
    if intact.objective.size is not None:
        what = mixed(what + bits(intact.objective.size))
    ends = different(np.concatenate([flows.src, flows.dst]), n)
    found = np.zeros(n, np.uint64)
    if not len(ends):
        return found
    for of in _groups(intact.network):
        vertices, vertex = np.unique(of[ends], return_inverse=True)
        number = np.zeros(n, np.int64)
        number[ends] = vertex
        told = _seen(number[flows.src], number[flows.dst], what, len(vertices))
        found[ends] = mixed(found[ends] + told[vertex])
    return found


def _groups(network: Network) -> Iterator[Ids]:
    """Yield which nodes count as one: none, those in a server, those at the same edge switches."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    labels, n, server = network.labels, network.n_nodes, servers_of(network)
    alone = np.arange(n)
    yield alone
    inside = server >= 0
    if inside.any():
        yield np.where(inside, server, int(server.max()) + 1 + alone)
    door, nic = alone.copy(), labels.tags.get("nic")
    if nic is not None and nic.dtype.kind == "i":
        door[nic >= 0] = nic[nic >= 0]
    is_door = np.zeros(n, bool)
    is_door[door[network.hosts]] = True
    switch = np.asarray(labels.forwards) & ~np.asarray(labels.endpoint) & ~inside
    live = np.asarray(network.alive) & is_door[labels.src] & switch[labels.dst]
    at = (labels.src[live], labels.dst[live])
    graph = coo_array((np.ones(len(at[0]), np.int8), at), (n, n))
    yield connected_components(graph, directed=False)[1][door].astype(np.int64)


def _seen(src: Ids, dst: Ids, what: UInt64s, n: int) -> UInt64s:
    """Return a hash per vertex of the flows and vertices around it, by distance."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    from fabric.kernels._refine import profiles

    pair, of = np.unique(src * n + dst, return_inverse=True)
    ptr, order = grouped(of, len(pair))
    src, dst, what = pair // n, pair % n, mixed(per_group(what[order], ptr))
    graph = coo_array((np.ones(len(pair), np.int8), (src, dst)), (n, n))
    part = connected_components(graph, directed=False)[1]
    told = np.bincount(part)[part].astype(np.uint64)
    both = (np.concatenate([src, dst + n]), np.concatenate([dst + n, src]))
    twice = np.concatenate([what, what])
    for tail, head, content in ((src, dst, what), (dst, src, what), (*both, twice)):
        size = 2 * n if tail is both[0] else n
        ptr, order = grouped(tail, size)
        most = _MOST_EDGES // size
        seen = profiles(ptr, head[order].astype(np.int32), content[order], most)
        for part_of in seen.reshape(-1, n):
            told = mixed(told + part_of)
    return told


def _odd(network: Network, content: UInt64s) -> Marks:
    """Return marks of cables unlike most of their tier, or of the nodes where all of them are."""
    labels, n = network.labels, network.n_nodes
    node, link = np.zeros(n, np.uint64), np.zeros(network.n_links, np.uint64)
    odd, tier, n_tiers = _unlike_most(network, content)
    if not odd.any():
        return Marks(node, link, True)
    whole = np.zeros(n, bool)
    for end in (labels.src, labels.dst):
        whole |= _all_odd(end.astype(np.int64), odd, tier, n, n_tiers)
    rest = odd & ~whole[labels.src] & ~whole[labels.dst]
    server = servers_of(network)
    # What is odd in one server has one mark.
    group = np.where(server >= 0, server, int(server.max(initial=-1)) + 1 + np.arange(n))
    nodes, of_node = np.unique(group[whole], return_inverse=True)
    cables, of_cable = np.unique(labels.cable_of[rest], return_inverse=True)
    if len(nodes) + len(cables) > MOST_ODD:
        return Marks(node, link, False)
    node[whole] = mixed(of_node.astype(np.uint64))
    link[rest] = mixed(of_cable.astype(np.uint64) + np.uint64(len(nodes)))
    return Marks(node, link, True)


def _unlike_most(network: Network, content: UInt64s) -> tuple[Bool[np.ndarray, " links"], Ids, int]:
    """Return (which links are unlike most of their tier and direction, these, their number)."""
    from fabric.kernels._refine import number

    labels = network.labels
    ends = labels.kind_of[labels.src] * np.int64(1 << 20) + labels.kind_of[labels.dst]
    tier, firsts = number(mixed(mixed(ends.astype(np.uint64)) + labels.tier_of.astype(np.uint64)))
    like, first = number(mixed(content + mixed(tier.astype(np.uint64))))
    capacity = np.where(network.alive, network.capacity, 0.0)[first]
    # The most frequent last, of those that are as frequent the widest.
    order = np.lexsort((content[first], capacity, np.bincount(like), tier[first]))
    last = np.flatnonzero(np.diff(tier[first][order], append=-1))
    usual = np.zeros(len(first), bool)
    usual[order[last]] = True
    usual |= _in_most_servers(network, like.astype(np.int64), len(first))
    return ~usual[like], tier.astype(np.int64), len(firsts)


def _in_most_servers(network: Network, like: Ids, n: int) -> Bool[np.ndarray, " values"]:
    """Return which values more than half of the servers have inside, as their design has it."""
    from fabric.kernels._refine import number

    server = servers_of(network)
    at = server[network.labels.src]
    inside = np.flatnonzero((at >= 0) & (at == server[network.labels.dst]))
    n_servers = int(server.max(initial=-1)) + 1
    _, first = number((like[inside] * np.int64(n_servers) + at[inside]).astype(np.uint64))
    return 2 * np.bincount(like[inside][first], minlength=n) > n_servers


def _all_odd(end: Ids, odd: np.ndarray, tier: Ids, n: int, n_tiers: int) -> np.ndarray:
    """Return the nodes at which several links of a tier end, all of them odd."""
    some = different(end[odd], n)
    place = np.full(n, -1)
    place[some] = np.arange(len(some))
    at = place[end] >= 0
    key = place[end[at]] * n_tiers + tier[at]
    size = len(some) * n_tiers
    there, bad = np.bincount(key, minlength=size), np.bincount(key[odd[at]], minlength=size)
    whole = np.zeros(n, bool)
    whole[some[((there == bad) & (bad > 1)).reshape(-1, n_tiers).any(axis=1)]] = True
    return whole
