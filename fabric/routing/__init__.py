"""From a network and flows to `Routes`: which links each flow loads."""

from collections.abc import Callable

from fabric.network import Routes
from fabric.routing._distances import shortest_distances as shortest_distances
from fabric.routing._ecmp import ecmp as ecmp
from fabric.routing._spray import spray as spray

ROUTINGS: dict[str, Callable[..., Routes]] = {"ecmp": ecmp, "spray": spray}
"""What the command line and scenario files call by name."""
