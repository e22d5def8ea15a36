"""`usual`: which rule a network is routed by when nobody says."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fabric._errors import ModelError, nearest
from fabric.network import Network, Routes
from fabric.routing._adaptive import adaptive
from fabric.routing._dimension_order import dimension_order
from fabric.routing._ecmp import ecmp
from fabric.routing._flowlet import flowlet
from fabric.routing._k_shortest import k_shortest
from fabric.routing._minimal_valiant import minimal_valiant
from fabric.routing._spray import spray
from fabric.routing._valiant import valiant

ROUTINGS: dict[str, Callable[..., Routes]] = {
    "ecmp": ecmp,
    "spray": spray,
    "adaptive": adaptive,
    "flowlet": flowlet,
    "valiant": valiant,
    "minimal_valiant": minimal_valiant,
    "dimension_order": dimension_order,
    "k_shortest": k_shortest,
}
"""What the command line and scenario files call by name."""

_WHY = {
    "infiniband": "InfiniBand adaptive routing, taken as ideal spray",
    "spectrum-x": "Spectrum-X adaptive routing, taken as ideal spray",
}


class Usual(NamedTuple):
    """A routing rule and why it was taken.

    Attributes:
        name: Of `ROUTINGS`.
        kind: "user", "preset" or "assumed", as of an `Evidence`.
        why: In words.
    """

    name: str
    kind: str
    why: str


def usual(network: Network, asked: str | None = None) -> Usual:
    """Return the rule that was asked for, else the usual one of a network.

    Hardware that routes adaptively is taken as ideal spray, which it equals on a whole symmetric
    fabric and which depends on no traffic; where links are dead or slower than others of their
    tier, the answer says that `adaptive` does better. What says nothing of itself, or no more
    than that it is Ethernet, hashes.

    Args:
        network: Its `labels.about` may say "routing" and "network".
        asked: Name of a rule. None: nobody asked.

    Raises:
        ModelError: If the name is unknown.

    Examples:
        >>> import fabric as fb
        >>> usual(fb.topologies.cluster("dgx-h100", nodes=1)).why
        'InfiniBand adaptive routing, taken as ideal spray'
        >>> usual(fb.topologies.fat_tree(k=4)).name
        'ecmp'
    """
    if asked is not None:
        if asked not in ROUTINGS:
            message = f"`routing='{asked}'` is not known. {nearest(asked, list(ROUTINGS))}"
            raise ModelError(message)
        return Usual(asked, "user", "as asked for")
    about = network.labels.about if network.has_labels else {}
    if (name := about.get("routing")) in ROUTINGS:
        why = _WHY.get(about.get("network", "")) if name == "spray" else None
        if why and (lame := _lame(network)):
            many = f"{lame:,} links are" if lame > 1 else "1 link is"
            why += f"; {many} dead or slow, where `adaptive` does better"
        return Usual(str(name), "preset", why or f"usual of {about.get('cluster', 'this network')}")
    return Usual("ecmp", "assumed", "Ethernet hashing, one path per flow")


def _lame(network: Network) -> int:
    """Return how many links between switches are dead, or slower than most of their tier."""
    labels, capacity = network.labels, np.asarray(network.capacity)
    switch = np.asarray(labels.forwards)
    if "server" in labels.tags:
        switch = switch & (labels.tags["server"] < 0)
    between = switch[labels.src] & switch[labels.dst]
    lame = between & ~np.asarray(network.alive)
    for tier in range(len(labels.tiers)):
        own = np.flatnonzero(between & (labels.tier_of == tier))
        if len(own):
            rates, times = np.unique(capacity[own], return_counts=True)
            lame[own] |= capacity[own] < rates[np.argmax(times)]
    return int(lame.sum())
