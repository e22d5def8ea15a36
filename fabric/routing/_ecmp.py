"""ECMP: one shortest path per flow or queue pair, by a hash at every switch or over whole paths."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import raise_faults
from fabric._memory import afford
from fabric.network import Flows, Network, Routes, whole_or_fault
from fabric.routing._graph import Block, Trip
from fabric.routing._rows import Piece, chunk_for, routes_from
from fabric.routing._servers import RAILS, has_servers, routed

_CHOICES = {"salt": ("switch", "shared"), "hash": ("hop", "path"), "key": ("row", "ends")}

BYTES_PER_ROW = 184
"""Of memory at the peak, for every flow or queue pair of six hops, as three tiers have."""


class Hash(NamedTuple):
    """What is hashed, and where; see `ecmp`."""

    seed: int
    salt: str
    hash: str
    key: str


class Count(NamedTuple):
    """Shortest paths from each forwarding node to the target of its stamp, and scratch space."""

    paths: Float[np.ndarray, " nodes"]
    stamp: Int[np.ndarray, " nodes"]
    at: Int[np.ndarray, " nodes"]
    stack: Int[np.ndarray, " nodes"]


def ecmp(
    network: Network,
    flows: Flows,
    *,
    seed: int = 0,
    queue_pairs: int = 1,
    salt: str = "switch",
    hash: str = "hop",
    key: str = "row",
    rails: str = RAILS[0],
) -> Routes:
    """Return one shortest path per flow, chosen by a hash at every switch.

    ECMP: at every node the flow takes one of the live cables that lie on a shortest path to its
    destination, picked by a hash of the flow, so that all its traffic stays on one path.

    Shortest means the least sum of `network.routing_cost`. Only nodes with `labels.forwards`
    carry the traffic of others. A link that is not alive is never used; a link of capacity 0 is
    alive, attracts its share of flows, and gives them rate 0. Parallel cables count one by one.

    What is hashed stands for a 5-tuple: the seed and, with `key="row"`, the number of the row, as
    if every row were a connection with a source port of its own; with `key="ends"`, source,
    destination and number of the queue pair, which stands for the source port. Then flows between
    the same ends go the same way, and a flow's path does not depend on which others there are.

    Args:
        network: With labels.
        flows: (flows,). Weights and caps travel into the routes.
        seed: Whole number from 0; other seeds give other paths. The same seed gives the same paths.
        queue_pairs: Queue pairs per flow, each a row with its own path, 1/n of the weight and
            1/n of the cap. Rows of flow f are f * n to f * n + n - 1.
        salt: "switch": every node hashes in its own way. "shared": all hash alike, a fault that
            real fabrics show: later hops repeat the choice of the first, and most links idle. See
            `polarisation`. Of no effect on `hash="path"`.
        hash: "hop": a pick at every switch, its usable cables equally likely. "path": one pick
            among all shortest paths, cable by cable, equally likely, as source routing does. They
            differ where the branches of a switch lead to different numbers of paths.
        key: "row" or "ends", as above.
        rails: "direct": a GPU uses its own NIC. "forward": traffic to another rail first goes to
            the GPU of its server on that rail, as NCCL's PXN does. For networks with servers.

    Returns:
        One-level `Routes` (a bundle is a link), hops in the order of the path. Two-level where
        the network has servers: inside them traffic is sprayed, only the fabric is hashed.

    Raises:
        ModelError: If an end of a flow is no endpoint or is out of range, a flow goes from a node
            to itself, or an option is out of range.
        InfeasibleError: If a destination cannot be reached; the pairs are named. Or if the routes
            would not fit in memory; before anything is allocated.

    Cost: A search per block of 512 destination switches and one look-up per hop: about 0.5 s for a
        million flows on 65,536 hosts, once compiled. The first call compiles for some seconds,
        once per machine. `hash="path"` counts paths once per destination switch: about 3 s.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
        >>> routes = ecmp(net, fb.Flows(net.hosts[:1], net.hosts[1:]), queue_pairs=2)
        >>> routes.n_flows, routes.n_hops, routes.weight.tolist()
        (2, 8, [0.5, 0.5])
    """
    faults: list[str] = []
    pairs = whole_or_fault("queue_pairs", queue_pairs, faults)
    how = checked_hash(seed, salt, hash, key, faults)
    rule = {"rails": rails} if has_servers(network) else {}
    return routed(network, flows, lambda trip: _hashed(trip, pairs, how), pairs, rails).with_rule(
        name="ecmp", queue_pairs=pairs, **how._asdict(), **rule
    )


def checked_hash(seed: int, salt: str, hash: str, key: str, faults: list[str]) -> Hash:
    """Return how to hash, or raise one `ModelError` with these and earlier faults."""
    number = whole_or_fault("seed", seed, faults, 0, 2**64 - 1)
    for (name, known), value in zip(_CHOICES.items(), (salt, hash, key), strict=True):
        if value not in known:
            faults.append(
                f"`{name}` needs one of '{known[0]}' and '{known[1]}', but got {value!r}."
            )
    raise_faults(faults)
    return Hash(number, salt, hash, key)


class Walker:
    """Walks rows of a trip, block by block, as a hash says; `length` holds the hops of each."""

    def __init__(self, trip: Trip, pairs: int, how: Hash):
        nodes = len(trip.graph.node_of) + 1
        self._trip, self._pairs, self._how = trip, pairs, how
        self.length = np.zeros(trip.flows.n_flows * pairs, np.int32)
        if how.hash == "path":
            self._count = Count(
                np.zeros(nodes), np.full(nodes, -1, np.int64),
                np.zeros(nodes, np.int64), np.zeros(nodes, np.int64),
            )  # fmt: skip

    def walk(
        self, block: Block, at: int, stop: int, chunk: Int[np.ndarray, " hops"]
    ) -> tuple[int, int]:
        """Walk rows `at` to `stop` into `chunk`; return where it was full, and how much is used."""
        from fabric.kernels._paths import walk_hashed

        trip, seed, ends = self._trip, np.uint64(self._how.seed), self._how.key == "ends"
        if self._how.hash == "hop":
            return walk_hashed(
                trip.graph, block.usable, trip.demand, at, stop, self._pairs, block.first,
                block.dist, seed, ends, self._how.salt == "switch", chunk, self.length,
            )  # fmt: skip
        from fabric.kernels._walks import walk_counted

        return walk_counted(
            trip.graph, block.usable, trip.demand, self._count, at, stop, self._pairs, block.first,
            block.dist, seed, ends, chunk, self.length,
        )  # fmt: skip


def _hashed(trip: Trip, pairs: int, how: Hash) -> Routes:
    flows = trip.flows
    rows = flows.n_flows * pairs
    afford(
        f"`ecmp` of {flows.n_flows:,} flows with {pairs:,} queue pairs each",
        BYTES_PER_ROW * rows,
        "Give fewer `queue_pairs` or fewer hosts.",
    )
    walker = Walker(trip, pairs, how)
    pieces: list[Piece] = []
    for block in trip.blocks():
        at, stop = block.begun * pairs, block.stop * pairs
        while at < stop:
            chunk, begun = chunk_for(trip.longest, stop - at), at
            at, used = walker.walk(block, at, stop, chunk)
            pieces.append((begun, at, chunk[:used]))
    trip.check_reached(walker.length[::pairs] < 0)
    n_links = trip.network.n_links
    return routes_from(flows, pairs, trip.demand.order, pieces, walker.length, n_links, n_links)
