"""From a network and flows to `Routes`: which links each flow loads."""

from fabric.routing._distances import shortest_distances as shortest_distances
from fabric.routing._ecmp import ecmp as ecmp
from fabric.routing._spray import spray as spray
from fabric.routing._usual import ROUTINGS as ROUTINGS, Usual as Usual, usual as usual
