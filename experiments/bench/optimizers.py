"""The optimisers at the sizes they are for: splits of a mesh, circuits, layouts, what-ifs."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import fabric as fb
from experiments.bench.registry import Cell
from experiments.bench.timing import Work, net_facts, timed
from experiments.optimizers.circuits import traffic
from experiments.optimizers.routing import gravity
from fabric import optimize

DEMAND_SPREAD = 1.0
"""Of the logarithm of what pairs of blocks exchange."""


Optimiser = tuple[Callable[[], Any], Callable[[Any], dict[str, object]]]


def drawn(blocks: int) -> np.ndarray:
    """Return symmetric traffic between blocks, whose rows sum to 1."""
    return traffic(blocks, 0, DEMAND_SPREAD)


def splits(size: str) -> Optimiser:
    """Splits over direct and one-transit paths of a mesh of blocks, certified to 1e-3."""
    blocks = int(size.removeprefix("b"))
    net = fb.topologies.full_mesh(blocks)
    demand = gravity(net, 0, 1.0)
    call = functools.partial(optimize.routing_weights, net, demand, paths="transit", tolerance=1e-3)
    return call, lambda found: {
        "splits": int(found.paths.valid.sum()), "steps": found.steps, "gap": certified(found),
    }  # fmt: skip


def circuits(size: str) -> Optimiser:
    """Circuits between blocks with two ports for each, and their control."""
    blocks = int(size.removeprefix("b"))
    call = functools.partial(optimize.circuits, drawn(blocks), 2 * blocks, 1.0)
    return call, lambda found: {"scores": found.evaluations, "gap": found.gap}


def layout(size: str) -> Optimiser:
    """The proved best layout of GPT-3 with every recompute count and order of ranks."""
    nodes = int(size.removeprefix("n"))
    net = fb.topologies.cluster("dgx-h100", nodes=nodes)
    call = functools.partial(
        optimize.layout, net, fb.Model.listed("gpt-3-175b"), gbs=1536, seq=2048,
        recompute="counts", rank_orders="all", top=1,
    )  # fmt: skip
    return call, lambda found: {
        "layouts": found.legal, "scores": found.evaluations, "solves": found.solves,
        "gap": certified(found), **net_facts(net),
    }  # fmt: skip


def what_ifs(size: str) -> Optimiser:
    """Every cable of a fat tree 5 % faster, up to 1,000 of them, under random pairs."""
    net = fb.topologies.fat_tree(int(size.removeprefix("k")))
    routes = fb.routing.ecmp(net, fb.traffic.permutation(net.hosts, seed=0), seed=0)
    call = functools.partial(optimize.linearize, net, routes, "cable", "mean", by="5%", most=1000)
    return call, lambda table: {"rows": len(table), "solves": table.solves, **net_facts(net)}


def certified(found: Any) -> float:
    """Return the gap of an answer that has to be proved.

    Raises:
        RuntimeError: If it is not.
    """
    if not found.certified:
        message = f"the gap {found.gap:.1e} of this answer is more than its tolerance."
        raise RuntimeError(message)
    return float(found.gap)


PHASES = {"splits": splits, "circuits": circuits, "layout": layout, "what-ifs": what_ifs}


def optimising(cell: Cell) -> Work:
    """Return the work of a cell whose phase is an optimiser's."""
    call, facts = PHASES[cell.phase](cell.size)
    return Work(lambda: None, lambda _: timed(call), facts)
