"""Problem in, solution out: exact max-min rates, their certificate, and the jitted entry points."""

from fabric.solvers._alpha_fair import (
    FAIR_RESULTS as FAIR_RESULTS,
    AlphaFairSolution as AlphaFairSolution,
    alpha_fair_rates as alpha_fair_rates,
    anneal as anneal,
)
from fabric.solvers._certify import certify as certify
from fabric.solvers._levels import Mean as Mean
from fabric.solvers._max_min import METHODS as METHODS, max_min_rates as max_min_rates
from fabric.solvers._one_sided import one_sided as one_sided
from fabric.solvers._quotient import Quotient as Quotient, compress as compress
from fabric.solvers._sensitivities import (
    BY as BY,
    OBJECTIVES as OBJECTIVES,
    Completion as Completion,
    sensitivities as sensitivities,
)
from fabric.solvers._sensitivity_table import (
    Sensitivities as Sensitivities,
    Sensitivity as Sensitivity,
)
from fabric.solvers._sharded import sharded as sharded
from fabric.solvers._solution import RESULTS as RESULTS, RateSolution as RateSolution
