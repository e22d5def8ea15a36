"""The walk that forwarding tables lead: all rows together, one hop after the other."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from fabric._errors import raise_faults, some
from fabric.network import Network
from fabric.routing._table_record import NO_PORT, ForwardingTables

(
    GOES, THERE, NO_CABLE, ASTRAY, NO_TABLE, NO_ENTRY, OWN, EMPTY, DEAD, ROUND
) = range(10)  # fmt: skip


class Joined(NamedTuple):
    """Tables and LIDs in the numbers of a network; LIDs by node, in their order."""

    out_port: np.ndarray
    table_of: Int[np.ndarray, " nodes"]  # -1: has no table
    link_at: Int[np.ndarray, "tables 256"]  # -1: no cable; a last row for no table
    lid_ptr: Int[np.ndarray, " nodes+1"]
    lid: Int[np.ndarray, " lids"]


def joined_to(network: Network, tables: ForwardingTables) -> Joined:
    """Return the tables by the nodes and links of a network; raise where the two do not match."""
    labels, node_of = network.labels, network.labels.node_of
    faults = []
    if labels.src_port is None or not np.any(labels.src_port):
        faults.append(
            "`forwarding_tables(network, ...)` needs the ports of the cables, but this network "
            "does not know them. Read it with `readers.ibnetdiscover`; a network that was built "
            "gets ports when it is written (`readers.write_ibnetdiscover`) and read back."
        )
    at = np.array([node_of.get(name, -1) for name in tables.switches], np.int64)
    if np.any(at < 0):
        lost = [name for name, node in zip(tables.switches, at, strict=True) if node < 0]
        faults.append(
            f"`forwarding_tables(tables)`: {len(lost):,} of {len(at):,} switches of "
            f"'{tables.source}' are not in the network of '{labels.source}': {some(lost)}. Take "
            f"both from the same fabric, on the same day."
        )
    if not len(at):
        faults.append("`forwarding_tables(tables)` needs the table of a switch, but there is none.")
    raise_faults(faults)
    table_of = np.full(network.n_nodes, -1, np.int32)
    table_of[at] = np.arange(len(at), dtype=np.int32)
    owned = [(node_of[name], own) for name, own in tables.lids.items() if name in node_of]
    node = np.array([node for node, own in owned for _ in own], np.int64)
    lid = np.array([lid for _, own in owned for lid in own], np.int64)
    count = np.bincount(node, minlength=network.n_nodes)
    return Joined(
        tables.out_port, table_of, _links_at(network, table_of, len(at)),
        np.concatenate([[0], np.cumsum(count)]), lid[np.argsort(node, kind="stable")],
    )  # fmt: skip


def _links_at(
    network: Network, table_of: Int[np.ndarray, " nodes"], n_tables: int
) -> Int[np.ndarray, "tables 256"]:
    labels = network.labels
    ports = np.asarray(labels.src_port)
    links = np.flatnonzero((table_of[labels.src] >= 0) & (ports > 0) & (ports < NO_PORT))
    links = links[np.argsort(np.asarray(network.alive)[links], kind="stable")]  # a live one wins
    link_at = np.full((n_tables + 1, NO_PORT + 1), -1, np.int32)
    link_at[table_of[labels.src[links]], ports[links]] = links
    return link_at


def first_links(
    network: Network, joined: Joined, src: Int[np.ndarray, " rows"], pair: np.ndarray
) -> Int[np.ndarray, " rows"]:
    """Return the link that each row leaves its source by, -1 for none or where a table says it."""
    labels = network.labels
    links = np.flatnonzero(np.asarray(network.alive) & (joined.table_of[labels.src] < 0))
    order = np.lexsort((np.asarray(labels.src_port)[links], labels.src[links]))
    links = np.append(links[order], -1)
    count = np.bincount(labels.src[links[:-1]], minlength=network.n_nodes)
    begun, room = (np.cumsum(count) - count)[src], count[src]
    return links[np.where(room > 0, begun + pair % np.maximum(room, 1), -1)]


class Walked(NamedTuple):
    """Rows and links of every hop, and where and why each row stopped after how many."""

    steps: list[tuple[np.ndarray, np.ndarray]]
    stop: Int[np.ndarray, " rows"]
    at: Int[np.ndarray, " rows"]
    length: Int[np.ndarray, " rows"]


def walk(
    network: Network,
    joined: Joined,
    src: Int[np.ndarray, " rows"],
    dst: Int[np.ndarray, " rows"],
    lid: Int[np.ndarray, " rows"],
    first: Int[np.ndarray, " rows"],
) -> Walked:
    """Return the way of every row, from its source for as long as the tables lead it on."""
    to, alive = network.labels.dst, np.append(np.asarray(network.alive), False)
    at, length = src.astype(np.int32), np.zeros(len(src), np.int32)
    stop = np.full(len(src), GOES, np.int8)
    # Where a row was when the hops were last a power of two: in a circle it comes there again.
    mark = np.where(joined.table_of[at] < 0, -1, at)
    row, steps = np.arange(len(src)), []
    while row.size:
        link = next_links(joined, at[row], lid[row])
        if not steps:
            link = np.where(joined.table_of[at] < 0, first, link)
        goes = alive[link]
        if not goes.all():
            lost = row[~goes]
            stop[lost] = _reason(network, joined, at[lost], lid[lost], first=not steps)
            row, link = row[goes], link[goes]
        steps.append((row, link))
        at[row] = to[link]
        length[row] += 1
        here = at[row]
        there, again = here == dst[row], here == mark[row]
        stop[row[again]] = ROUND
        stop[row[there]] = THERE
        row = row[~(there | again)]
        if len(steps).bit_count() == 1:
            mark[row] = at[row]
    return Walked(steps, stop, at, length)


def next_links(
    joined: Joined, node: Int[np.ndarray, " rows"], lid: Int[np.ndarray, " rows"]
) -> Int[np.ndarray, " rows"]:
    """Return the link that a table sends each row over, -1 for none."""
    table = joined.table_of[node]
    return joined.link_at[table, joined.out_port[table, lid]]


def _reason(
    network: Network,
    joined: Joined,
    node: Int[np.ndarray, " rows"],
    lid: Int[np.ndarray, " rows"],
    *,
    first: bool,
) -> Int[np.ndarray, " rows"]:
    """Return why rows cannot go on from a node."""
    table = joined.table_of[node]
    port = joined.out_port[table, lid]
    ends = np.asarray(network.labels.endpoint)[node]
    bare = np.full(len(node), NO_CABLE) if first else np.where(ends, ASTRAY, NO_TABLE)
    return np.select(
        [table < 0, port == NO_PORT, port == 0, joined.link_at[table, port] < 0],
        [bare, NO_ENTRY, OWN, EMPTY],
        DEAD,
    )


def circle(network: Network, joined: Joined, node: int, lid: int) -> list[int]:
    """Return the nodes of a circle from one of them back to it."""
    nodes = [node]
    while len(nodes) == 1 or nodes[-1] != node:
        link = next_links(joined, np.array([nodes[-1]]), np.array([lid]))
        nodes.append(int(network.labels.dst[link[0]]))
    return nodes
