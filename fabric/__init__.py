"""Exact max-min rates of AI-cluster networks, the links that cost them, and what to change."""

from fabric import (
    collectives as collectives,
    hardware as hardware,
    optimize as optimize,
    readers as readers,
    reliability as reliability,
    routing as routing,
    runs as runs,
    scenario as scenario,
    topologies as topologies,
    traffic as traffic,
)
from fabric._errors import (
    FabricError as FabricError,
    InfeasibleError as InfeasibleError,
    ModelError as ModelError,
    UnreachableError as UnreachableError,
    UnsolvedError as UnsolvedError,
)
from fabric._version import __version__ as __version__
from fabric.network import (
    Flows as Flows,
    Network as Network,
    Placement as Placement,
    Routes as Routes,
    place as place,
)
from fabric.solvers import (
    FAIR_RESULTS as FAIR_RESULTS,
    RESULTS as RESULTS,
    AlphaFairSolution as AlphaFairSolution,
    Completion as Completion,
    Mean as Mean,
    Quotient as Quotient,
    RateSolution as RateSolution,
    Sensitivities as Sensitivities,
    Sensitivity as Sensitivity,
    alpha_fair_rates as alpha_fair_rates,
    anneal as anneal,
    certify as certify,
    compress as compress,
    directional as directional,
    max_min_rates as max_min_rates,
    one_sided as one_sided,
    sensitivities as sensitivities,
    sharded as sharded,
)
from fabric.training import (
    Layout as Layout,
    Model as Model,
    StepReport as StepReport,
    step as step,
)
