"""Builders of networks, one family per file; each returns a `Network` with names and tags."""

from fabric.topologies._bill import Bill as Bill, Item as Item, bill as bill
from fabric.topologies._bisection import Cut as Cut, bisection as bisection
from fabric.topologies._clos import clos as clos
from fabric.topologies._cluster import CLUSTERS as CLUSTERS, cluster as cluster
from fabric.topologies._count import COUNTS as COUNTS, sizes as sizes, sizes_of as sizes_of
from fabric.topologies._direct_connect import direct_connect as direct_connect
from fabric.topologies._dragonfly import (
    dragonfly as dragonfly,
    dragonfly_plus as dragonfly_plus,
)
from fabric.topologies._economics import Economics as Economics, economics as economics
from fabric.topologies._equal_cost import at_equal_cost as at_equal_cost
from fabric.topologies._fat_tree import fat_tree as fat_tree
from fabric.topologies._hyperx import hyperx as hyperx
from fabric.topologies._leaf_spine import leaf_spine as leaf_spine
from fabric.topologies._measures import (
    AllToAll as AllToAll,
    Hops as Hops,
    Ways as Ways,
    all_to_all_rate as all_to_all_rate,
    hops as hops,
    path_counts as path_counts,
)
from fabric.topologies._planes import hpn as hpn, multi_plane as multi_plane
from fabric.topologies._rail_only import rail_only as rail_only
from fabric.topologies._rail_optimized import rail_optimized as rail_optimized
from fabric.topologies._servers import (
    INSIDE_KINDS as INSIDE_KINDS,
    INSIDE_TIERS as INSIDE_TIERS,
    attach_servers as attach_servers,
)
from fabric.topologies._simple import full_mesh as full_mesh, single_switch as single_switch
from fabric.topologies._sizes import Sizes as Sizes
from fabric.topologies._slim_fly import slim_fly as slim_fly
from fabric.topologies._spec import BUILDERS as BUILDERS, build as build, is_spec as is_spec
from fabric.topologies._torus import torus as torus
from fabric.topologies._tpu import circuits as circuits, tpu_pod as tpu_pod
from fabric.topologies._uniform import (
    UniformDesign as UniformDesign,
    plug as plug,
    uniform_design as uniform_design,
    why_not_uniform as why_not_uniform,
)
