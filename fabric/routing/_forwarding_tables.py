"""`forwarding_tables`: every flow goes where the tables of the switches send it."""

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, UnreachableError, some
from fabric._memory import afford
from fabric.network import Flows, Network, Routes, names_of, whole
from fabric.routing._graph import Trip
from fabric.routing._rows import routes_from
from fabric.routing._servers import RAILS, has_servers, routed
from fabric.routing._table_record import ForwardingTables
from fabric.routing._table_walk import (
    ASTRAY,
    DEAD,
    EMPTY,
    NO_CABLE,
    NO_ENTRY,
    NO_TABLE,
    OWN,
    ROUND,
    THERE,
    Joined,
    Walked,
    circle,
    first_links,
    joined_to,
    walk,
)

BYTES_PER_ROW = 320
"""Of memory at the peak, for every flow or queue pair of six hops, as three tiers have."""

# What stopped a flow, and what to do about it.
_STOPS = {
    NO_CABLE: ("start where no cable is alive", "Leave these sources out, or mend their cables."),
    ASTRAY: ("are handed to another end node", "Take LIDs and tables of the same day."),
    NO_TABLE: ("come to a switch without a table", "Dump the tables of all switches."),
    NO_ENTRY: (
        "come to a switch that has no entry for their LID",
        "The subnet manager found no way for them by its rules, or was not done: look into its "
        "log, and dump the tables again.",
    ),
    OWN: (
        "come to a switch that takes their LID for its own",
        "Take LIDs and tables of the same day.",
    ),
    EMPTY: ("are sent out of a port without a cable", "Dump fabric and tables again, together."),
    DEAD: (
        "are sent over a dead link",
        "Bring links back (`network.alive`), or let the subnet manager route again and dump the "
        "tables anew.",
    ),
    ROUND: ("go round in a circle", "Dump the tables again once the subnet manager is done."),
}


def forwarding_tables(
    network: Network,
    flows: Flows,
    tables: ForwardingTables,
    *,
    queue_pairs: int = 1,
    rails: str = RAILS[0],
) -> Routes:
    """Return the path of every flow by the forwarding tables of the switches.

    Forwarding tables: at every switch the flow leaves by the port that the table of that switch
    gives for the LID of its destination, so that all flows to a LID share one tree.

    The tables are taken as they are: nothing is routed round a dead link, and a flow that they do
    not lead to its destination is an error. Only adaptive routing, where it is on, deviates from
    them; then these loads are less even than the real ones.

    Args:
        network: With labels and ports, as a reader gives them.
        flows: (flows,). Weights and caps travel into the routes.
        tables: As `readers.lfts` gives them, or `ForwardingTables.from_ports`. Switches and end
            nodes are found by id, or by name where no other node has it.
        queue_pairs: Queue pairs per flow, each a row with 1/n of the weight and 1/n of the cap.
            Queue pair q goes to LID q of its destination, round and round, and leaves by live
            port q of its source. One queue pair thus uses the base LID. Where every port has one
            LID (LMC 0) and every node one port, all go the same way.
        rails: As in `ecmp`, for networks with servers.

    Returns:
        One-level `Routes`, hops in the order of the path. Two-level where the network has
        servers: inside them traffic is sprayed, the tables lead from NIC to NIC.

    Raises:
        ModelError: If the network knows no ports or lacks a switch of the tables, a destination
            has no LID, or an end is wrong as in `ecmp`.
        UnreachableError: If the tables do not lead a flow to its destination: it goes in a circle,
            which is named, over a dead link, out of an empty port, or to a switch without an
            entry. `flows` says which. Or `InfeasibleError` if the routes would not fit in memory.

    Cost: A few array look-ups per hop: about 1 s for a million flows on 43,904 hosts and 3,920
        switches, which take nearly every LID there is.

    Examples:
        >>> import fabric as fb
        >>> from fabric import readers
        >>> text = '''Switch 2 "S-0a" # "leaf" base port 0 lid 1 lmc 0
        ... [1] "H-0b"[1](b) # "h0" lid 2 4xHDR
        ... [2] "H-0c"[1](c) # "h1" lid 3 4xHDR
        ... '''
        >>> net = readers.ibnetdiscover(text).network
        >>> tables = ForwardingTables.from_ports({"S-0a": {2: 1, 3: 2}}, {"h0": 2, "h1": 3})
        >>> routes = forwarding_tables(net, fb.Flows(net.hosts, net.hosts[::-1]), tables)
        >>> [net.link_name(link) for link in routes.hop_bundle[:2].tolist()]
        ['h0[1]->leaf[1]', 'leaf[2]->h1[1]']
    """
    pairs = whole("queue_pairs", queue_pairs)
    joined = joined_to(network, tables)
    walk = lambda trip: _followed(trip, pairs, tables, joined)
    rule = {"rails": rails} if has_servers(network) else {}
    return routed(network, flows, walk, pairs, rails).with_rule(
        name="forwarding_tables", source=tables.source, queue_pairs=pairs, **rule
    )


def _followed(trip: Trip, pairs: int, tables: ForwardingTables, joined: Joined) -> Routes:
    network, flows = trip.network, trip.flows
    rows = flows.n_flows * pairs
    afford(
        f"`forwarding_tables` of {flows.n_flows:,} flows with {pairs:,} queue pairs each",
        BYTES_PER_ROW * rows,
        "Give fewer `queue_pairs` or fewer hosts.",
    )
    dst = np.asarray(flows.dst)
    _check_lids(network, dst, joined, tables.source)
    pair = np.tile(np.arange(pairs), flows.n_flows)
    src, to = np.repeat(np.asarray(flows.src), pairs), np.repeat(dst, pairs)
    begun = joined.lid_ptr[to]
    lid = joined.lid[begun + pair % (joined.lid_ptr[to + 1] - begun)]
    walked = walk(network, joined, src, to, lid, first_links(network, joined, src, pair))
    if np.any(walked.stop != THERE):
        _refuse(trip, pairs, tables.source, joined, walked, lid)
    ptr = np.cumsum(walked.length, dtype=np.int64) - walked.length
    chunk = np.empty(int(walked.length.sum(dtype=np.int64)), np.int32)
    for k, (row, link) in enumerate(walked.steps):
        chunk[ptr[row] + k] = link
    order = np.arange(flows.n_flows, dtype=np.int32)
    n_links = network.n_links
    return routes_from(flows, pairs, order, [(0, rows, chunk)], walked.length, n_links, n_links)


def _check_lids(
    network: Network, dst: Int[np.ndarray, " flows"], joined: Joined, source: str
) -> None:
    nodes = np.unique(dst)
    bare = nodes[np.diff(joined.lid_ptr)[nodes] == 0]
    if len(bare):
        name = lambda node: names_of(network, [int(node)])[0]
        message = (
            f"`forwarding_tables(tables)`: {len(bare):,} of {len(nodes):,} destinations have no "
            f"LID in '{source}': {some(bare, name=name)}. Read the LIDs from a dump that has them "
            f"(`lids`), or leave these destinations out."
        )
        raise ModelError(message)


def _refuse(
    trip: Trip,
    pairs: int,
    source: str,
    joined: Joined,
    walked: Walked,
    lid: Int[np.ndarray, " rows"],
) -> None:
    """Raise `UnreachableError` that says what became of the flows that are lost."""
    network, flows = trip.network, trip.flows
    stop = walked.stop.reshape(flows.n_flows, pairs)
    name = lambda node: names_of(network, [int(node)])[0]

    def told(row: int) -> str:
        flow, node = row // pairs, int(walked.at[row])
        ends = f"{name(flows.src[flow])} -> {name(flows.dst[flow])}"
        if walked.stop[row] == ROUND:
            nodes = circle(network, joined, node, int(lid[row]))
            return f"{ends} by {' -> '.join(map(name, nodes))}"
        where = f"{ends} at {name(node)}"
        if walked.stop[row] in (EMPTY, DEAD):
            port = joined.out_port[joined.table_of[node], lid[row]]
            return f"{where}, port {port}"
        return f"{where}, LID {lid[row]}"

    said, steps = [], []
    for why, (what, step) in _STOPS.items():
        if rows := np.flatnonzero(walked.stop == why).tolist():
            count = int(np.any(stop == why, axis=1).sum())
            said.append(f"{count:,} {what}: {some(rows, name=told)}")
            steps.append(step)
    lost = np.any(stop != THERE, axis=1)
    message = (
        f"The forwarding tables of '{source}' do not lead {int(lost.sum()):,} of "
        f"{flows.n_flows:,} flows to their destination. {'; '.join(said)}. "
        f"{' '.join(dict.fromkeys(steps))}"
    )
    try:
        trip.check_reached(lost)
    except UnreachableError as error:
        raise UnreachableError(message, error.flows) from None
