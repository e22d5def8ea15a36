"""ECMP: one shortest path per flow or queue pair, by a hash at every switch."""

import numpy as np

from fabric._errors import ModelError
from fabric._memory import afford
from fabric.network import Flows, Network, Routes, whole
from fabric.routing._graph import Trip
from fabric.routing._rows import Piece, chunk_for, routes_from
from fabric.routing._servers import RAILS, has_servers, routed

_SALTS = ("switch", "shared")

BYTES_PER_ROW = 184
"""Of memory at the peak, for every flow or queue pair of six hops, as three tiers have."""


def ecmp(
    network: Network,
    flows: Flows,
    *,
    seed: int = 0,
    queue_pairs: int = 1,
    salt: str = "switch",
    rails: str = RAILS[0],
) -> Routes:
    """Return one shortest path per flow, chosen by a hash at every switch.

    ECMP: at every node the flow takes one of the live cables that lie on a shortest path to its
    destination, picked by a hash of the flow, so that all its traffic stays on one path.

    Shortest means the least sum of `network.routing_cost`. Only nodes with `labels.forwards`
    carry the traffic of others. A link that is not alive is never used; a link of capacity 0 is
    alive, attracts its share of flows, and gives them rate 0. Parallel cables count one by one.

    Args:
        network: With labels.
        flows: (flows,). Weights and caps travel into the routes.
        seed: Whole number from 0; other seeds give other paths. The same seed gives the same paths.
        queue_pairs: Queue pairs per flow, each a row with its own path, 1/n of the weight and
            1/n of the cap. Rows of flow f are f * n to f * n + n - 1.
        salt: "switch": every node hashes in its own way. "shared": all hash alike, a fault that
            real fabrics show: later hops repeat the choice of the first, and most links idle.
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
        once per machine.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
        >>> routes = ecmp(net, fb.Flows(net.hosts[:1], net.hosts[1:]), queue_pairs=2)
        >>> routes.n_flows, routes.n_hops, routes.weight.tolist()
        (2, 8, [0.5, 0.5])
    """
    pairs, number = whole("queue_pairs", queue_pairs), whole("seed", seed, 0, 2**64 - 1)
    if salt not in _SALTS:
        message = f"`salt` needs one of 'switch' and 'shared', but got {salt!r}."
        raise ModelError(message)
    walk = lambda trip: _hashed(trip, pairs, number, salt)
    rule = {"rails": rails} if has_servers(network) else {}
    return routed(network, flows, walk, pairs, rails).with_rule(
        name="ecmp", seed=number, queue_pairs=pairs, salt=salt, **rule
    )


def _hashed(trip: Trip, pairs: int, seed: int, salt: str) -> Routes:
    from fabric.kernels._paths import walk_hashed

    flows = trip.flows
    rows = flows.n_flows * pairs
    afford(
        f"`ecmp` of {flows.n_flows:,} flows with {pairs:,} queue pairs each",
        BYTES_PER_ROW * rows,
        "Give fewer `queue_pairs` or fewer hosts.",
    )
    length = np.zeros(rows, np.int32)
    key = np.uint64(seed)
    pieces: list[Piece] = []
    for block in trip.blocks():
        at, stop = block.begun * pairs, block.stop * pairs
        while at < stop:
            chunk, begun = chunk_for(trip.longest, stop - at), at
            at, used = walk_hashed(
                trip.graph, block.usable, trip.demand, at, stop, pairs,
                block.first, block.dist, key, salt == "switch", chunk, length,
            )  # fmt: skip
            pieces.append((begun, at, chunk[:used]))
    trip.check_reached(length[::pairs] < 0)
    n_links = trip.network.n_links
    return routes_from(flows, pairs, trip.demand.order, pieces, length, n_links, n_links)
