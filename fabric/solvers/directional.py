"""Exact one-sided derivatives above the solver, where maxima, minima and sorts have kinks.

`jvp` takes a whole function apart; the others act on a value and its tangent.
"""

from fabric.solvers._dual_rules import (
    abs as abs,
    clamp as clamp,
    completion_time as completion_time,
    max as max,
    maximum as maximum,
    min as min,
    minimum as minimum,
    sort as sort,
)
from fabric.solvers._dual_trace import jvp as jvp
