"""Classes of components that fail alike, by colour refinement of a network and its flows.

A symmetry of network, flows and routes that maps one component on another makes their failures
equal. Refinement finds what no symmetry can join: nodes keep one colour as long as they have equal
links to equally coloured nodes, flows as long as they have equal ends, equal levels and equally
coloured links. That is necessary for a symmetry and not sufficient, so that other members of a
class are solved besides its representative.

Levels, loads, how far flows lead and what is odd in its tier are part of the colours from the
start, so that few rounds over flows are enough.
"""

from typing import NamedTuple

import numpy as np

from fabric.network import Network
from fabric.reliability._failures import Components, servers_of
from fabric.reliability._hashes import UInt64s, bits, mixed, rounded
from fabric.reliability._intact import Intact
from fabric.reliability._marks import marks
from fabric.reliability._usage import Ids, grouped, per_group
from fabric.routing._servers import has_servers

_LEAST_ROUNDS, _MOST_ROUNDS = 24, 400
_MOST_HOPS = 30_000_000
_MOST_NODE_ROUNDS = 200
_FAR = 1 << 30
_OUT, _IN = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344)


class _Relation(NamedTuple):
    """Who hears of whom, sorted by the node that hears."""

    ptr: Ids
    other: Ids
    content: UInt64s


class Structure:
    """Colours of nodes and links, flows apart.

    Attributes:
        node: (nodes,), refined until stable.
        link: (links,), of what a link is and of both its ends.

    Args:
        network: With labels.
        content: (links,), a hash of what each link is. Default: of the link alone.
        extra: (nodes,), hashes that tell nodes apart from the start.
    """

    def __init__(
        self, network: Network, content: UInt64s | None = None, extra: UInt64s | None = None
    ):
        labels, content = network.labels, _content(network) if content is None else content
        self.node = node = _nodes(network, content, extra)
        ends = mixed(node[labels.src] + _OUT) + mixed(node[labels.dst] + _IN)
        self.link = mixed(ends + content)
        self._at = [grouped(end, network.n_nodes) for end in (labels.src, labels.dst)]

    def classes(self, parts: Components, link: UInt64s | None = None) -> tuple[Ids, Ids]:
        """Return (class of every component, first member of every class).

        Args:
            parts: What is told apart.
            link: (links,), finer colours of links. Default: those of the structure.
        """
        from fabric.kernels._refine import number

        link = self.link if link is None else link
        items = mixed(link) if parts.of_links else self._at_nodes(link)
        return number(mixed(per_group(items[parts.item], parts.ptr)))

    def _at_nodes(self, link: UInt64s) -> UInt64s:
        """Return a hash of every node and all of its links."""
        total = mixed(self.node)
        for (ptr, order), way in zip(self._at, (_OUT, _IN), strict=True):
            total += per_group(mixed(link[order] + way), ptr)
        return mixed(total)


class Colouring:
    """Colours of nodes, links and rows of flows.

    Args:
        intact: The network and its flows before anything fails.

    Attributes:
        rounds: Rounds over flows: how many links away a difference in flows is seen.
        stable: Whether more rounds would find nothing more.
        all_odd: Whether every cable unlike most of its tier has a colour of its own.
    """

    def __init__(self, intact: Intact):
        content = _content(intact.network)
        told = marks(intact, content)
        self._intact, self.all_odd = intact, told.all_odd
        self._structure = Structure(intact.network, mixed(content + told.link), told.node)
        self._bare = self._link = mixed(self._structure.link + rounded(intact.load))
        flows, row, node = intact.flows, intact.flow_of, self._structure.node
        colour = mixed(node[flows.src[row]] + _OUT) + mixed(node[flows.dst[row]] + _IN)
        for column in (bits(intact.weight), bits(intact.cap), rounded(intact.level)):
            colour = mixed(colour + column)
        if intact.objective.size is not None:
            colour = mixed(colour + bits(intact.objective.size[row]))
        self._row = colour
        self.rounds, self.stable = 0, False
        size = len(intact.usage.hop_bundle) + len(intact.usage.part_link)
        self._deepen(min(max(_LEAST_ROUNDS, _MOST_HOPS // max(size, 1)), _MOST_ROUNDS))

    def _deepen(self, rounds: int) -> None:
        """Refine until stable, or until there were so many rounds over flows."""
        usage = self._intact.usage
        while self.rounds < rounds and not self.stable:
            before = _n_different(self._row), _n_different(self._link)
            self._link = mixed(self._bare + usage.colours(self._row))
            self._row = mixed(self._row + usage.crossed(self._link))
            self.rounds += 1
            self.stable = before == (_n_different(self._row), _n_different(self._link))

    def classes(self, parts: Components) -> tuple[Ids, Ids]:
        """Return (class of every component, first member of every class)."""
        return self._structure.classes(parts, self._link)


def is_tiered(network: Network) -> bool:
    """Return whether every cable between switches leads to or from the endpoints.

    Then flows go up and down again, and what is left to them after a failure is beside what they
    had. In a torus or a dragonfly it may be anywhere.

    Examples:
        >>> import fabric as fb
        >>> is_tiered(fb.topologies.fat_tree(4)), is_tiered(fb.topologies.dragonfly(2, 4, 2))
        (True, False)
    """
    labels, alive = network.labels, np.asarray(network.alive)
    switch = np.asarray(labels.forwards) & ~np.asarray(labels.endpoint)
    if has_servers(network):
        switch &= servers_of(network) < 0
    between = alive & switch[labels.src] & switch[labels.dst]
    outside = np.asarray(labels.forwards) & ~switch
    if not has_servers(network) and (outside[labels.src] & alive).any():
        return False
    level = np.where(switch, _FAR, 0)
    level[labels.dst[alive & ~switch[labels.src] & switch[labels.dst]]] = 1
    src, dst = labels.src[between], labels.dst[between]
    while True:
        nearer = level.copy()
        np.minimum.at(nearer, dst, level[src] + 1)
        if (nearer == level).all():
            return bool((level[src] != level[dst]).all())
        level = nearer


def _nodes(network: Network, content: UInt64s, extra: UInt64s | None) -> UInt64s:
    """Return colours of nodes, refined until stable, rows of flows apart."""
    labels, n = network.labels, network.n_nodes
    code = labels.kind_of.astype(np.uint64) * np.uint64(4)
    code += np.asarray(labels.endpoint).astype(np.uint64) * np.uint64(2)
    colour = mixed(code + np.asarray(labels.forwards).astype(np.uint64))
    if extra is not None:
        colour = mixed(colour + extra)
    relations, n_hubs = _relations(network, content)
    colour = np.concatenate([colour, np.full(n_hubs, np.uint64(1))])
    before, now = 0, _n_different(colour)
    for _ in range(_MOST_NODE_ROUNDS):
        if before == now:
            break
        total = mixed(colour)
        for ptr, other, what in relations:
            total += per_group(mixed(colour[other] + what), ptr)
        colour = mixed(total)
        before, now = now, _n_different(colour)
    return colour[:n]


def _relations(network: Network, content: UInt64s) -> tuple[list[_Relation], int]:
    """Return who hears of whom, and how many hubs there are behind the nodes.

    Nodes hear of one another over links, and GPUs of the nodes that their tags point at. All that
    is in one server hears of it through a hub.
    """
    labels, n, n_hubs = network.labels, network.n_nodes, 0
    joined = [(labels.src, labels.dst, content)]
    for tag in ("nic", "staging", "server"):
        if tag not in labels.tags or labels.tags[tag].dtype.kind != "i":
            continue
        at = np.flatnonzero(labels.tags[tag] >= 0)
        to = labels.tags[tag][at].astype(np.int64)
        if tag == "server":
            n_hubs, to = int(to.max(initial=-1)) + 1, to + n
        joined.append((at, to, np.full(len(at), len(joined), np.uint64)))
    found = []
    for a, b, what in joined:
        for hears, other, way in ((a, b, _OUT), (b, a, _IN)):
            ptr, order = grouped(hears, n + n_hubs)
            found.append(_Relation(ptr, other[order], mixed(what[order] + way)))
    return found, n_hubs


def _content(network: Network) -> UInt64s:
    """Return a hash of what a link is; one that is dead and one without capacity carry nothing."""
    capacity = np.asarray(network.capacity, np.float64)
    works = np.asarray(network.alive) & (capacity > 0)
    seen = mixed(bits(np.where(works, capacity, 0.0)))
    seen = mixed(seen + bits(network.latency) + network.labels.tier_of.astype(np.uint64))
    return mixed(seen + np.asarray(network.routing_cost).astype(np.uint64))


def _n_different(colour: UInt64s) -> int:
    from fabric.kernels._refine import number

    return len(number(colour)[1])
