"""Weighted: at every switch in proportion to whole-number weights, as WCMP does."""

from collections.abc import Sequence

import numpy as np

from fabric._errors import ModelError
from fabric._typing import AnyArray
from fabric.network import Flows, Network, Routes, whole, whole_array
from fabric.routing._graph import Trip
from fabric.routing._group_tables import GroupTables
from fabric.routing._grouped import drawn, grouped, no_groups
from fabric.routing._servers import RAILS, has_servers, routed
from fabric.routing._spray import sprayed


def weighted(
    network: Network,
    flows: Flows,
    weights: GroupTables | AnyArray | Sequence[int],
    *,
    hashed: bool = False,
    seed: int = 0,
    queue_pairs: int = 1,
    max_parts: int = 50_000_000,
    rails: str = RAILS[0],
) -> Routes:
    """Return routes that split every flow at every switch in proportion to weights.

    Weighted (WCMP): at every switch the traffic to a destination leaves over its usable cables in
    proportion to their weights; a cable of weight 0 carries none. Usable are, as in `spray`, the
    live cables on a shortest path. Equal weights are spray.

    Args:
        network: With labels.
        flows: (flows,). Weights and caps of flows, another matter, travel into the routes.
        weights: (links,), whole numbers from 0, for all destinations alike. Or `GroupTables`, with
            weights per switch and destination; switches without a group there split equally, and
            usable cables that a group does not name carry none.
        hashed: Keep each flow, or queue pair, on one path, drawn by a hash in proportion to the
            weights, as hardware does; else split packet by packet.
        seed: Of the hash, a whole number from 0.
        queue_pairs: Queue pairs per flow, each a row with 1/n of the weight and 1/n of the cap.
        max_parts: As in `spray`; with `GroupTables` also the most (flow, bundle) entries.
        rails: As in `ecmp`, for networks with servers. Inside servers weights do not count.

    Returns:
        Two-level `Routes`, as `spray`, or as `adaptive` with `GroupTables`; with `hashed` as
        `ecmp`.

    Raises:
        ModelError: As `spray`; or if weights are no whole numbers from 0 or not one per link, a
            group does not fit the network or its limits, or all usable cables of a switch that
            traffic reaches weigh 0; it is named.
        InfeasibleError: If a destination cannot be reached; the pairs are named.

    Cost: As `spray`; `GroupTables` cost a look-up per switch on the way of a flow.

    Examples:
        >>> import fabric as fb, numpy as np
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
        >>> weights = np.ones(net.n_links, int)
        >>> weights[net.labels.dst == net.labels.node("spine0")] = 3
        >>> routes = weighted(net, fb.Flows(net.hosts[:1], net.hosts[1:]), weights)
        >>> routes.part_use.tolist()
        [1.0, 0.75, 0.25, 0.75, 0.25, 1.0]

    References:
        J. Zhou et al., WCMP: Weighted Cost Multipathing for Improved Fairness in Data Centers,
        EuroSys 2014.
    """
    pairs, limit = whole("queue_pairs", queue_pairs), whole("max_parts", max_parts)
    number = whole("seed", seed, 0, 2**64 - 1)
    tables, per_link = None, None
    if isinstance(weights, GroupTables):
        tables = weights
        tables.check(network)
    else:
        per_link = _per_link(network, weights)

    def walk(trip: Trip) -> Routes:
        if hashed:
            groups = no_groups(trip) if tables is None else tables.groups(trip)
            return drawn(trip, pairs, number, groups, per_link, "weighted")
        if tables is not None:
            return grouped(trip, pairs, limit, tables.groups(trip), "weighted")
        return sprayed(trip, pairs, limit, weight=per_link, name="weighted")

    rule: dict[str, object] = {"rails": rails} if has_servers(network) else {}
    rule |= {"seed": number} if hashed else {}
    return routed(network, flows, walk, pairs, rails).with_rule(
        name="weighted", hashed=bool(hashed), queue_pairs=pairs,
        weights="links" if tables is None else "groups", **rule,
    )  # fmt: skip


def _per_link(network: Network, weights: AnyArray | Sequence[int]) -> np.ndarray:
    found = whole_array("weights", weights)
    if found.shape != (network.n_links,):
        message = (
            f"`weights` needs one whole number for each of {network.n_links:,} links, but has "
            f"shape {found.shape}. Both directions of a cable are links."
        )
        raise ModelError(message)
    if (found < 0).any():
        message = f"`weights` needs whole numbers from 0, but {int((found < 0).sum()):,} are less."
        raise ModelError(message)
    return found.astype(np.float64)
