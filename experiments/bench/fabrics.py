"""Whole answers on large fabrics: rails with servers, direct networks, all pairs, failures."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import fabric as fb
from experiments.bench.registry import Cell
from experiments.bench.timing import Work, net_facts, route_facts, solve_facts, timed

PAIRS = {"n64": 2_000, "n8192": 1_000_000, "n25000": 1_000_000}
"""Random pairs of GPUs by number of servers."""

RADIX = {"n64": 16, "n8192": 64, "n25000": 128}


def rail_pods(size: str) -> fb.Network:
    """Return servers of 8 H100 on rails of three tiers: n8192 are 65,536 GPUs."""
    servers = int(size.removeprefix("n"))
    nics = fb.topologies.rail_optimized(servers, rails=8, radix=RADIX[size], tiers=3)
    server = fb.hardware.server("dgx-h100")
    return fb.topologies.attach_servers(nics, server, nics.hosts.reshape(servers, 8))


def on_rail_pods(cell: Cell) -> Work:
    """Build, route, solve, or all three from nothing to rates ("whole")."""
    build = functools.partial(rail_pods, cell.size)
    if cell.phase == "build":
        return Work(lambda: None, lambda _: timed(build), net_facts)
    pairs = lambda net: fb.traffic.uniform_random(net.hosts, PAIRS[cell.size], seed=0)
    route = lambda net: fb.routing.ecmp(net, pairs(net), seed=0)

    def whole() -> tuple[fb.Network, fb.Routes, fb.RateSolution]:
        net = build()
        routes = route(net)
        return net, routes, solve(net, routes)

    if cell.phase == "whole":
        return Work(lambda: None, lambda _: timed(whole), solve_facts)
    net = build()
    if cell.phase == "route":
        return Work(lambda: None, lambda _: timed(lambda: route(net)), route_facts)
    # Routes are new in every repeat, so that the layout is part of the solve.
    return Work(
        lambda: route(net),
        lambda routes: timed(lambda: (net, routes, solve(net, routes))),
        solve_facts,
    )


def solve(net: fb.Network, routes: fb.Routes) -> fb.RateSolution:
    """Return the rates, all computed."""
    solution = fb.max_min_rates(net, routes, throw=False)
    jax.block_until_ready(solution.rates)
    return solution


BUILDERS: dict[str, Callable[[str], fb.Network]] = {
    "torus": fb.topologies.torus,
    "dragonfly": lambda size: fb.topologies.dragonfly(*map(int, size.split("-"))),
    "slim-fly": lambda size: fb.topologies.slim_fly(int(size.removeprefix("q"))),
}


def building(cell: Cell) -> Work:
    """Build a direct network."""
    build = lambda: BUILDERS[cell.problem](cell.size)
    return Work(lambda: None, lambda _: timed(build), net_facts)


def all_pairs(net: fb.Network, rule: str) -> Work:
    """Return the loads of uniform all-to-all, no route of which is held."""
    call = lambda: fb.routing.AllPairs(net, rule=rule).loads()
    facts = lambda loads: {"largest_load": float(np.max(loads)), **net_facts(net)}
    return Work(lambda: None, lambda _: timed(call), facts)


def adapting(net: fb.Network) -> Work:
    """Route a permutation of the hosts so that the fullest link is as empty as can be."""
    flows = fb.traffic.permutation(net.hosts, seed=0)

    def facts(routes: fb.Routes) -> dict[str, Any]:
        said = {key: value for key, value in routes.rule.items() if isinstance(value, float | int)}
        return route_facts(routes) | said

    return Work(lambda: None, lambda _: timed(lambda: fb.routing.adaptive(net, flows)), facts)
