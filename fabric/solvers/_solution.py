"""`RateSolution`: rates and the evidence that they are the right ones."""

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int


class RESULTS(eqx.Enumeration):
    """How a solve ended; each code owns its text."""

    converged = ""
    max_rounds_reached = (
        "Water-filling stopped at `max_rounds` with some flows still growing. Raise "
        "`max_rounds`; the number of flows is always enough."
    )
    invalid = (
        "A capacity or cap is negative or NaN, or a weight is not more than 0, so there is "
        "nothing to solve. Outside of a transformation the error says which."
    )
    unbounded = (
        "At least one flow crosses no link and has no cap, so its fair rate is "
        "infinite. Give it a finite `cap`, or drop it from the routes."
    )


class RateSolution(eqx.Module):
    """Max-min fair rates and what stopped each flow.

    Attributes:
        rates: (flows,), byte/s.
        bottleneck: (flows,), the link that stopped each flow: full, and nobody on it has a higher
            level. -1: its cap stopped it (or, with `result` not converged, nothing did).
        saturated: (links,), which links are full and carry a flow.
        rounds: Rounds of filling (of the heap: freezing steps).
        tie_margin: How near the solution is to a tie, relative; 0 at one. The least of: on a full
            link, what its level exceeds that of the highest flow there that something else stops;
            what a link has left of its capacity; what a flow has left up to its cap.
        result: A `RESULTS` code.
        method: What was run, and why where "auto" chose.
    """

    rates: Float[Array, " flows"]
    bottleneck: Int[Array, " flows"]
    saturated: Bool[Array, " links"]
    rounds: Int[Array, ""]
    tie_margin: Float[Array, ""]
    result: RESULTS
    method: str = eqx.field(static=True)
