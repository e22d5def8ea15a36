"""The ways between all pairs of slots, kept once for servers that are alike.

Servers whose links lead to the same switches, at the same speed and all alive, can change places
without any other traffic noticing. Under a rule that treats equal links equally, what a flow uses
beyond its two servers then depends on the kinds of its ends alone, and within them the links are
the same by position. So ways are found between one or two servers of each sort.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric._errors import InfeasibleError, UnreachableError
from fabric.network import Flows, Network, Routes
from fabric.optimize._placement_input import Router, Rule, Slots, servers_of
from fabric.solvers._certify import live_capacity

MOST_KINDS = 2048
_MOST_ENTRIES = 200_000_000


class Ways(NamedTuple):
    """What a flow uses between any two slots: rows of a sparse matrix, links merged.

    Row `kind[s] * n_kinds + kind[t]` is that of slots of different servers; those of one server
    follow `n_kinds**2` rows behind. Links are the shared ones, then the own ones of the sender's
    server, then those of the receiver's: a server that is alone in its sort has shared ones only.
    """

    ptr: Int[np.ndarray, " rows+1"]
    link: Int[np.ndarray, " entries"]
    use: Float[np.ndarray, " entries"]
    capacity: Float[np.ndarray, " links"]  # byte/s; shared links, then `n_own` of each server
    kind: Int[np.ndarray, " slots"]
    server: Int[np.ndarray, " slots"]
    sort: Int[np.ndarray, " servers"]
    sort_of: Int[np.ndarray, " kinds"]  # the sort of servers that have this kind
    n_shared: int
    n_own: int

    @property
    def n_kinds(self) -> int:
        """Number of kinds of slots."""
        return len(self.sort_of)

    def rows(
        self, a: Int[np.ndarray, " flows"], b: Int[np.ndarray, " flows"]
    ) -> Int[np.ndarray, " flows"]:
        """Return the row of what a flow from slot to slot uses."""
        row = self.kind[a] * self.n_kinds + self.kind[b]
        return row + np.where(self.server[a] == self.server[b], self.n_kinds**2, 0)


class Folded(NamedTuple):
    """The same uses, with one link for each own link of all servers of a sort.

    Attributes:
        use: (rows, links), sparse.
        capacity: (links,), byte/s, of one.
        copies: (links,), how many it stands for.
    """

    use: Any
    capacity: Float[np.ndarray, " links"]
    copies: Float[np.ndarray, " links"]


class Units(NamedTuple):
    """Units of slots by sort: exchanging two of one sort changes nothing.

    Attributes:
        sort: (units,), the sort of each.
        first: (sorts,), a unit of each.
        room: (sorts,), how many there are.
    """

    sort: Int[np.ndarray, " units"]
    first: Int[np.ndarray, " sorts"]
    room: Int[np.ndarray, " sorts"]


def folded(ways: Ways) -> Folded:
    """Return the uses of links by sort of servers."""
    from scipy.sparse import csr_array

    n, shared, own = ways.n_kinds, ways.n_shared, ways.n_own
    n_sorts = int(ways.sort.max()) + 1
    _, one, count = np.unique(ways.sort, return_index=True, return_counts=True)
    column = ways.link.astype(np.int64)
    inner = np.flatnonzero(column >= shared)
    if len(inner):
        row = np.searchsorted(ways.ptr, inner, side="right") - 1
        side, place = np.divmod(column[inner] - shared, own)
        ends = np.stack([row % n**2 // n, row % n])
        column[inner] = shared + ways.sort_of[ends[side, np.arange(len(inner))]] * own + place
    each = ways.capacity[shared:].reshape(-1, own)[one].ravel() if own else np.zeros(0)
    capacity = np.concatenate([ways.capacity[:shared], each])
    shape = (2 * n * n, shared + n_sorts * own)
    return Folded(
        csr_array((ways.use, column, ways.ptr), shape=shape), capacity,
        np.concatenate([np.ones(shared), np.repeat(count, own).astype(float)]),
    )  # fmt: skip


def units_of(slots: Slots, ways: Ways | None) -> Units:
    """Return the sorts of the units that are moved; all differ unless each is all of a server."""
    each = np.arange(slots.n_units)
    if ways is not None:
        server = ways.server.reshape(slots.n_units, slots.group)
        kinds = ways.kind.reshape(slots.n_units, slots.group)
        if (server == server[:, :1]).all() and len(np.unique(server)) == slots.n_units:
            _, each = np.unique(kinds, axis=0, return_inverse=True)
    _, first, sort, count = np.unique(
        each, return_index=True, return_inverse=True, return_counts=True
    )
    return Units(sort.ravel(), first, count)


def rows_between(
    slots: Slots, ways: Ways, units: Units
) -> Int[np.ndarray, "sorts sorts group group"]:
    """Return the rows of what a flow uses between two units, one of each sort, from place to place.

    Of a sort to itself they are those of two units of it; if there is one only, they are empty.
    """
    first, n = units.first, ways.n_kinds
    kind = ways.kind.reshape(slots.n_units, slots.group)[first]
    server = ways.server.reshape(slots.n_units, slots.group)[first]
    row = kind[:, None, :, None] * n + kind[None, :, None, :]
    together = server[:, None, :, None] == server[None, :, None, :]
    apart = ~np.eye(len(first), dtype=bool)
    return row + np.where(together & apart[:, :, None, None], n * n, 0)


def ways_of(network: Network, slots: Slots, rule: Rule) -> Ways:
    """Return the ways between all pairs of slots.

    Links that all pairs use alike are one: the smallest of them fills first. Slots that cannot
    reach each other use a link without capacity.

    Args:
        network: With labels.
        slots: That may be taken.
        rule: The routing, under which the way of a flow depends on its ends alone.

    Raises:
        InfeasibleError: If there are too many kinds of slots, or too many links in all ways.
    """
    found = _ways(network, _servers(network, slots, even=rule.even), rule.route)
    if found is None:
        # A row is moved to a like of its own ends only, never to one of a server on the way.
        found = _ways(network, _servers(network, slots, even=False), rule.route)
    assert found is not None, "no link is an own one here"
    return found


class _Servers(NamedTuple):
    """The servers that have slots, by sort, and their own links by place."""

    of_node: Int[np.ndarray, " nodes"]  # by number from 0; -1: in none that has slots
    of_slot: Int[np.ndarray, " slots"]
    sort: Int[np.ndarray, " servers"]
    own: Int[np.ndarray, " links"]  # the server whose link it is; -1: shared
    place: Int[np.ndarray, " links"]  # of an own link, the same in all servers of a sort
    kind: Int[np.ndarray, " slots"]  # equal for slots at one place of servers of one sort
    sort_of: Int[np.ndarray, " kinds"]
    node: Int[np.ndarray, "two kinds"]  # of each kind in one server of the sort, and in another
    several: Bool[np.ndarray, " kinds"]  # whether there is another


def _servers(network: Network, slots: Slots, *, even: bool) -> _Servers:
    """Return the servers of slots; those that are alike share a sort if `even`."""
    labels = network.labels
    given = servers_of(network)
    names, of_slot = np.unique(given[slots.node], return_inverse=True)
    at = np.minimum(np.searchsorted(names, given), len(names) - 1)
    of_node = np.where(names[at] == given, at, -1)
    node = np.flatnonzero(of_node >= 0)
    node = node[np.argsort(of_node[node], kind="stable")]
    node_ptr = np.searchsorted(of_node[node], np.arange(len(names) + 1))
    local = np.full(labels.n_nodes, -1)
    local[node] = np.arange(len(node)) - node_ptr[of_node[node]]

    src, dst = of_node[labels.src], of_node[labels.dst]
    own = np.where(src >= 0, src, dst)
    link = np.flatnonzero(own >= 0)
    ends = [(labels.src, src), (labels.dst, dst)]
    facts = np.stack([
        *(np.where(server == own, -1 - local[end], end) for end, server in ends),
        np.asarray(network.alive), np.asarray(network.routing_cost), np.asarray(network.capacity),
    ], 1)[link].astype(np.float64)  # fmt: skip
    order = np.lexsort((*facts.T[::-1], own[link]))
    link, facts = link[order], facts[order]
    link_ptr = np.searchsorted(own[link], np.arange(len(names) + 1))
    place = np.full(network.n_links, -1)
    place[link] = np.arange(len(link)) - link_ptr[own[link]]

    sort = np.arange(len(names))
    if even:
        # What a link between two servers leads to has no place of its own in either.
        direct = (src >= 0) & (dst >= 0) & (src != dst)
        alone = np.isin(sort, [src[direct], dst[direct]])
        seen = _as_seen(network, local, of_node)[node]
        known: dict[Any, int] = {}
        for s in range(len(names)):
            what: Any = [table[ptr[s] : ptr[s + 1]].tobytes() for table, ptr in
                         ((facts, link_ptr), (seen, node_ptr))]  # fmt: skip
            sort[s] = known.setdefault(s if alone[s] else tuple(what), len(known))
    _, one, count = np.unique(sort, return_index=True, return_counts=True)
    another = len(sort) - 1 - np.unique(sort[::-1], return_index=True)[1]
    several = count[sort] > 1
    own[link] = np.where(several[own[link]], own[link], -1)
    width = int(local.max()) + 1
    found, kind = np.unique(sort[of_slot] * width + local[slots.node], return_inverse=True)
    sort_of, position = np.divmod(found, width)
    ends_of = [node[node_ptr[server[sort_of]] + position] for server in (one, another)]
    return _Servers(
        of_node, of_slot.ravel(), sort, own, place, kind.ravel(), sort_of, np.stack(ends_of),
        count[sort_of] > 1,
    )  # fmt: skip


def _as_seen(
    network: Network, local: Int[np.ndarray, " nodes"], server: Int[np.ndarray, " nodes"]
) -> Float[np.ndarray, "nodes facts"]:
    """Return what a routing may ask about a node, with nodes of its server by place."""
    labels = network.labels
    facts = [labels.kind_of, labels.endpoint, labels.forwards]
    for tag in ("slot", "rail", "nic", "staging"):
        values = labels.tags.get(tag)
        if values is None or not np.issubdtype(values.dtype, np.integer):
            continue
        if tag in ("nic", "staging"):  # they hold numbers of nodes
            mine = (values >= 0) & (server[values] == server)
            values = np.where(mine, -2 - local[values], values)
        facts.append(values)
    return np.stack([np.asarray(fact, np.float64) for fact in facts], 1)


def _ways(network: Network, servers: _Servers, router: Router) -> Ways | None:
    """Return the ways, or None if one passes through a server that has a like."""
    row, src, dst = _pairs(servers)
    reached, routes = _reached(network, router, src, dst)
    uses, capacity, own = _uses(network, routes, servers)
    n_shared = len(capacity)
    pair = np.flatnonzero(reached)[np.repeat(np.arange(routes.n_flows), np.diff(uses.indptr))]
    link, use = uses.indices.astype(np.int64), uses.data
    inner = np.flatnonzero(link >= n_shared)
    at = own[link[inner] - n_shared]
    sends = servers.own[at] == servers.of_node[src[pair[inner]]]
    if not (sends | (servers.own[at] == servers.of_node[dst[pair[inner]]])).all():
        return None
    places, place = np.unique(servers.place[at], return_inverse=True)
    n_own, lost = len(places), np.flatnonzero(~reached)
    if len(lost):  # a shared link without capacity
        n_shared, capacity = n_shared + 1, np.append(capacity, 0.0)
    link[inner] = n_shared + np.where(sends, 0, n_own) + place.ravel()
    order = np.argsort(np.concatenate([pair, lost]), kind="stable")
    pair = np.concatenate([pair, lost])[order]
    link = np.concatenate([link, np.full(len(lost), n_shared - 1)])[order]
    use = np.concatenate([use, np.ones(len(lost))])[order]
    each = np.zeros((len(servers.sort), n_own))
    inside = np.flatnonzero((servers.own >= 0) & np.isin(servers.place, places))
    column = np.searchsorted(places, servers.place[inside])
    each[servers.own[inside], column] = live_capacity(network)[inside]
    n_kinds = len(servers.sort_of)
    ptr = np.zeros(2 * n_kinds**2 + 1, np.int64)
    ptr[row + 1] = np.bincount(pair, minlength=len(row))
    return Ways(
        np.cumsum(ptr), link.astype(np.int32), use, np.concatenate([capacity, each.ravel()]),
        servers.kind, servers.of_slot, servers.sort, servers.sort_of, n_shared, n_own,
    )  # fmt: skip


def _pairs(
    servers: _Servers,
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Return (row, sender, receiver) of the ways to find, rows rising."""
    n = len(servers.sort_of)
    if n > MOST_KINDS:
        message = (
            f"`placement` keeps the ways between at most {MOST_KINDS:,} endpoints of servers that "
            f"differ, but the allocation has {n:,}. Under `routing='spray'` servers with equal "
            f"links to the same switches count once. Or place parts of the job one by one, each "
            f"with its own `allocation`."
        )
        raise InfeasibleError(message)
    a, b = (x.ravel() for x in np.indices((n, n)))
    alike = servers.sort_of[a] == servers.sort_of[b]
    apart, within = ~alike | servers.several[a], alike & (a != b)
    first, second = servers.node
    to = np.where(alike, second[b], first[b])
    row = np.concatenate([(a * n + b)[apart], (n * n + a * n + b)[within]])
    src = np.concatenate([first[a[apart]], first[a[within]]])
    return row, src, np.concatenate([to[apart], first[b[within]]])


def _reached(
    network: Network, router: Router, src: Int[np.ndarray, " pairs"],
    dst: Int[np.ndarray, " pairs"],
) -> tuple[Bool[np.ndarray, " pairs"], Routes]:  # fmt: skip
    """Return which pairs can reach each other, and the routes of these."""
    reached = np.ones(len(src), bool)
    while True:
        try:
            return reached, router(network, Flows(src[reached], dst[reached]))
        except UnreachableError as error:
            lost = np.flatnonzero(reached)[list(error.flows)]
            if not len(lost) or len(lost) == reached.sum():
                raise
            reached[lost] = False


def _uses(
    network: Network, routes: Routes, servers: _Servers
) -> tuple[Any, Float[np.ndarray, " shared"], Int[np.ndarray, " own"]]:
    """Return (flows, links) uses, the capacity of shared links, and the own links behind them."""
    from scipy.sparse import csr_array, hstack

    hops = csr_array(
        (np.asarray(routes.hop_use, np.float64), (np.asarray(routes.hop_flow), routes.hop_bundle)),
        shape=(routes.n_flows, routes.n_bundles),
    )
    if routes.n_parts:
        parts = csr_array(
            (np.asarray(routes.part_use, np.float64), (routes.part_bundle, routes.part_link)),
            shape=(routes.n_bundles, routes.n_links),
        )
    else:
        parts = csr_array(
            (np.ones(routes.n_links), (np.arange(routes.n_links), np.arange(routes.n_links))),
            shape=(routes.n_links, routes.n_links),
        )
    columns: Any = parts.tocsc()
    kept, capacity = _merged(columns, live_capacity(network), np.flatnonzero(servers.own < 0))
    own = np.flatnonzero((servers.own >= 0) & (np.diff(columns.indptr) > 0))
    parts = csr_array(hstack([columns[:, kept], columns[:, own]], format="csr"))
    entries = int(np.diff(parts.indptr)[hops.indices].sum())
    if entries > _MOST_ENTRIES:
        message = (
            f"`placement` would keep {entries:,} uses of links for {routes.n_flows:,} pairs of "
            f"endpoints, more than {_MOST_ENTRIES:,}. Choose among fewer endpoints, or use "
            f"`routing='ecmp'`."
        )
        raise InfeasibleError(message)
    uses = csr_array(hops @ parts)
    uses.sum_duplicates()
    uses.eliminate_zeros()
    return uses, capacity, own


def _merged(
    columns: Any, capacity: Float[np.ndarray, " links"], links: Int[np.ndarray, " some"]
) -> tuple[Int[np.ndarray, " kept"], Float[np.ndarray, " kept"]]:
    """Return one link, and the least capacity, of each set of links with equal parts."""
    columns.sort_indices()
    found: dict[tuple[bytes, bytes], int] = {}
    kept: list[int] = []
    least: list[float] = []
    for link in links.tolist():
        own = slice(columns.indptr[link], columns.indptr[link + 1])
        if own.start == own.stop:
            continue
        key = (columns.indices[own].tobytes(), columns.data[own].tobytes())
        at = found.setdefault(key, len(kept))
        if at == len(kept):
            kept.append(link)
            least.append(float(capacity[link]))
        least[at] = min(least[at], float(capacity[link]))
    return np.array(kept, np.int64), np.array(least, np.float64)
