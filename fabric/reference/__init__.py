"""Slow and obviously right oracles, in plain Python, NumPy and SciPy; they share no solver code."""

from fabric.reference.certificate import violation as violation
from fabric.reference.exact import (
    bottlenecks_exact as bottlenecks_exact,
    max_min_rates_exact as max_min_rates_exact,
)
from fabric.reference.lp import max_min_rates_lp as max_min_rates_lp
from fabric.reference.problem import CAP as CAP, Problem as Problem, Rate as Rate
from fabric.reference.water_fill import (
    max_min_rates_by_levels as max_min_rates_by_levels,
    max_min_rates_by_rounds as max_min_rates_by_rounds,
)
