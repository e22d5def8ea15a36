"""`usual`: which rule a network is routed by when nobody says."""

from collections.abc import Callable
from typing import NamedTuple

from fabric._errors import ModelError, nearest
from fabric.network import Network, Routes
from fabric.routing._ecmp import ecmp
from fabric.routing._spray import spray

ROUTINGS: dict[str, Callable[..., Routes]] = {"ecmp": ecmp, "spray": spray}
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

    Hardware that routes adaptively is taken as ideal spray; what says nothing of itself, or no
    more than that it is Ethernet, hashes.

    Args:
        network: Its `labels.about` may say "routing" and "network".
        asked: Name of a rule; "adaptive" is spray, until it is modelled. None: nobody asked.

    Raises:
        ModelError: If the name is unknown.

    Examples:
        >>> import fabric as fb
        >>> usual(fb.topologies.cluster("dgx-h100", nodes=1)).why
        'InfiniBand adaptive routing, taken as ideal spray'
        >>> usual(fb.topologies.fat_tree(k=4)).name
        'ecmp'
    """
    if asked == "adaptive":
        return Usual("spray", "user", "adaptive, taken as ideal spray")
    if asked is not None:
        if asked not in ROUTINGS:
            message = f"`routing='{asked}'` is not known. {nearest(asked, [*ROUTINGS, 'adaptive'])}"
            raise ModelError(message)
        return Usual(asked, "user", "as asked for")
    about = network.labels.about if network.has_labels else {}
    if (name := about.get("routing")) in ROUTINGS:
        why = _WHY.get(about.get("network", "")) if name == "spray" else None
        return Usual(str(name), "preset", why or f"usual of {about.get('cluster', 'this network')}")
    return Usual("ecmp", "assumed", "Ethernet hashing, one path per flow")
