"""Builders of networks, one family per file; each returns a `Network` with names and tags."""

from fabric.topologies._bill import Bill as Bill, Item as Item, bill as bill
from fabric.topologies._clos import clos as clos
from fabric.topologies._cluster import CLUSTERS as CLUSTERS, cluster as cluster
from fabric.topologies._fat_tree import fat_tree as fat_tree
from fabric.topologies._leaf_spine import leaf_spine as leaf_spine
from fabric.topologies._rail_optimized import rail_optimized as rail_optimized
from fabric.topologies._servers import (
    INSIDE_KINDS as INSIDE_KINDS,
    INSIDE_TIERS as INSIDE_TIERS,
    attach_servers as attach_servers,
)
from fabric.topologies._simple import full_mesh as full_mesh, single_switch as single_switch
from fabric.topologies._spec import BUILDERS as BUILDERS, build as build, is_spec as is_spec
from fabric.topologies._uniform import (
    UniformDesign as UniformDesign,
    plug as plug,
    uniform_design as uniform_design,
    why_not_uniform as why_not_uniform,
)
