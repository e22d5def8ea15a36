"""From a network and flows to `Routes`: which links each flow loads."""

from fabric.routing._adaptive import adaptive as adaptive
from fabric.routing._all_pairs import AllPairs as AllPairs
from fabric.routing._dimension_order import dimension_order as dimension_order
from fabric.routing._distances import shortest_distances as shortest_distances
from fabric.routing._ecmp import ecmp as ecmp
from fabric.routing._flowlet import flowlet as flowlet
from fabric.routing._forwarding_tables import forwarding_tables as forwarding_tables
from fabric.routing._group_tables import (
    GroupTables as GroupTables,
    integer_tables as integer_tables,
)
from fabric.routing._k_shortest import k_shortest as k_shortest
from fabric.routing._minimal_valiant import minimal_valiant as minimal_valiant
from fabric.routing._polarisation import Spread as Spread, polarisation as polarisation
from fabric.routing._spray import spray as spray
from fabric.routing._table_record import ForwardingTables as ForwardingTables
from fabric.routing._usual import ROUTINGS as ROUTINGS, Usual as Usual, usual as usual
from fabric.routing._valiant import valiant as valiant
from fabric.routing._weighted import weighted as weighted
