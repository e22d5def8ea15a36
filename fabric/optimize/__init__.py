"""What to change in a fabric or a job, with a proved bound beside every answer."""

from fabric.optimize._capacities import (
    CapacitiesReport as CapacitiesReport,
    capacities as capacities,
)
from fabric.optimize._capacity_curve import (
    CapacityCurve as CapacityCurve,
    capacity_curve as capacity_curve,
)
from fabric.optimize._changes import Change as Change
from fabric.optimize._circuits import circuits as circuits
from fabric.optimize._circuits_report import Circuits as Circuits
from fabric.optimize._differentiable import (
    DesignReport as DesignReport,
    codesign as codesign,
)
from fabric.optimize._group_tables import PathTables as PathTables
from fabric.optimize._jobs import Job as Job
from fabric.optimize._joint import JointReport as JointReport, joint as joint
from fabric.optimize._layout import LayoutReport as LayoutReport, layout as layout
from fabric.optimize._layout_choice import Choice as Choice
from fabric.optimize._linearize import linearize as linearize
from fabric.optimize._placement import (
    PlacementReport as PlacementReport,
    placement as placement,
)
from fabric.optimize._routing_weights import (
    RoutingWeights as RoutingWeights,
    routing_weights as routing_weights,
)
from fabric.optimize._slices import Slice as Slice, Slices as Slices, slices as slices
from fabric.optimize._stages import StagesReport as StagesReport, stages as stages
from fabric.optimize._what_ifs import WhatIf as WhatIf, WhatIfs as WhatIfs
