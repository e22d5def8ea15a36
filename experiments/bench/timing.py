"""What a cell is once it is made ready, and what is recorded of networks, routes and solves."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fabric as fb

Solved = tuple[fb.Network, fb.Routes, fb.RateSolution]

CERTIFIED = 1e-9
"""Largest violation that a float64 solve may have."""


@dataclass(frozen=True)
class Work:
    """A cell made ready.

    Attributes:
        fresh: Return what a repeat starts from; not timed.
        run: Return seconds and the result.
        facts: Return what to record of the last result, a certificate among it.
    """

    fresh: Callable[[], Any]
    run: Callable[[Any], tuple[float, Any]]
    facts: Callable[[Any], dict[str, object]]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call took and what it returned."""
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def net_facts(net: fb.Network) -> dict[str, object]:
    """Return the counts of a network."""
    return {"links": net.n_links, "nodes": net.n_nodes, "hosts": len(net.hosts)}


def route_facts(routes: fb.Routes) -> dict[str, object]:
    """Return the counts of routes."""
    return {
        "links": routes.n_links,
        "flows": routes.n_flows,
        "hops": routes.n_hops,
        "bundles": routes.n_bundles,
        "parts": routes.n_parts,
    }


def solve_facts(solved: Solved) -> dict[str, object]:
    """Return what a solve was, and how far its certificate is violated.

    Raises:
        RuntimeError: If that is more than `CERTIFIED`.
    """
    net, routes, solution = solved
    violation = fb.certify(net, routes, solution)
    if not violation <= CERTIFIED:
        message = f"the certificate of this solve is {violation:.1e}, more than {CERTIFIED:.0e}."
        raise RuntimeError(message)
    return route_facts(routes) | {
        "dtype": str(solution.rates.dtype),
        "ran": solution.method,
        "rounds": int(solution.rounds),
        "certificate": violation,
    }
