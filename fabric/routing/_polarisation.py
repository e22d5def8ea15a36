"""`polarisation`: how evenly a hash spread its paths, set against independent picks."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError
from fabric.network import Flows, Network, Routes, check_link_counts
from fabric.routing._all_pairs import link_loads
from fabric.routing._servers import RAILS
from fabric.routing._spray import spray


class Spread(NamedTuple):
    """How the links of one tier, in one direction, are used.

    Attributes:
        tier: Of the links.
        way: Kinds of the nodes at both ends, such as "leaf -> spine".
        usable: Links on a shortest path of some row.
        used: Links that some row crosses.
        expected: How many would be crossed on average if every row picked at every switch by
            itself, all usable links equally likely.
        largest: Largest load, in units of the mean over the usable links.
    """

    tier: str
    way: str
    usable: int
    used: int
    expected: float
    largest: float


def polarisation(network: Network, routes: Routes) -> list[Spread]:
    """Return how evenly rows that take one path each use the links between switches.

    Switches that hash alike repeat each other's choices: of the links that a tier could use, far
    fewer are used than independent picks would. The expected number is exact: a link stays idle
    where every row picks another one, each with the probability that `spray` gives.

    Args:
        network: With labels; the one that the routes are of.
        routes: Of `ecmp`, or of any rule under which a row has one path, in order. The load of a
            row is its weight.

    Returns:
        One row per tier and direction, in the order of `labels.tiers`; links inside servers are
        left out, since nothing is hashed there.

    Raises:
        ModelError: If a row has more than one path, or network and routes count links differently.
        UnreachableError: If the ends of a row cannot reach each other in this network.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.fat_tree(k=8)
        >>> flows = fb.Flows(net.hosts[:64], net.hosts[64:])
        >>> for salt in ("switch", "shared"):
        ...     routes = fb.routing.ecmp(net, flows, salt=salt)
        ...     up = next(s for s in polarisation(net, routes) if s.way == "aggregation -> core")
        ...     print(up.usable, up.used, round(up.expected, 1))
        64 40 41.2
        64 16 41.2
    """
    check_link_counts(network, routes, "polarisation")
    hop_use = np.asarray(routes.hop_use)
    if not np.all(hop_use == 1):
        message = (
            f"`polarisation` needs rows with one path each, but these routes of "
            f"`{routes.rule['name']}` split rows over several. Use `ecmp`."
        )
        raise ModelError(message)
    labels, load = network.labels, link_loads(routes, np.asarray(routes.weight, np.float64))
    rails = str(routes.rule.get("rails", RAILS[0]))
    even = spray(network, Flows(*_ends(network, routes)), rails=rails)
    rows = np.bincount(even.hop_bundle, minlength=even.n_bundles)[even.part_bundle]
    link, share = np.asarray(even.part_link), np.asarray(even.part_use)
    crossed = rows > 0
    link, share, rows = link[crossed], np.minimum(share[crossed], 1.0), rows[crossed]
    sure = share == 1
    idle = np.exp(np.bincount(link[~sure], rows[~sure] * np.log1p(-share[~sure]), network.n_links))
    idle[link[sure]] = 0.0
    usable = np.zeros(network.n_links, bool)
    usable[link] = True
    if (server := labels.tags.get("server")) is not None:
        usable &= (server[labels.src] < 0) | (server[labels.src] != server[labels.dst])
    kinds = len(labels.kinds)
    ends = labels.kind_of[labels.src].astype(np.int64) * kinds + labels.kind_of[labels.dst]
    group = np.asarray(labels.tier_of, np.int64) * kinds**2 + ends
    result = []
    for number in np.unique(group[usable]):
        mine = usable & (group == number)
        tier, (a, b) = number // kinds**2, divmod(int(number % kinds**2), kinds)
        mean = load[mine].mean()
        result.append(
            Spread(
                labels.tiers[tier], f"{labels.kinds[a]} -> {labels.kinds[b]}",
                int(mine.sum()), int(np.count_nonzero(load[mine])),
                float(np.sum(1.0 - idle[mine])), float(load[mine].max() / mean) if mean else 0.0,
            )
        )  # fmt: skip
    return result


def _ends(
    network: Network, routes: Routes
) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
    """Return source and destination of every row, from its first and its last hop."""
    labels, flow = network.labels, np.asarray(routes.hop_flow)
    ptr = np.searchsorted(flow, np.arange(routes.n_flows + 1))
    some_link = np.arange(routes.n_links)
    if routes.n_parts:
        some_link = np.zeros(routes.n_bundles, np.int64)
        some_link[routes.part_bundle] = routes.part_link
    link = some_link[np.asarray(routes.hop_bundle)]
    return labels.src[link[ptr[:-1]]], labels.dst[link[ptr[1:] - 1]]
