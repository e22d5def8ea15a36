"""From a solution of classes to the solution of every flow, bottlenecks named as always."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped

from fabric.kernels._structure import NEAR, hashed_rank
from fabric.network import Routes
from fabric.solvers._solution import RateSolution
from fabric.solvers._symmetry import Partition
from fabric.solvers._symmetry_graph import Graph

Column = Shaped[np.ndarray, " _"]


def lifted(
    partition: Partition,
    graph: Graph,
    routes: Routes,
    solution: RateSolution,
    capacity: Float[np.ndarray, " links"],
) -> RateSolution:
    """Return the solution of every flow.

    Args:
        partition: Into classes.
        graph: Of the routes of flows.
        routes: Of classes, with the weights that were solved.
        solution: Of classes.
        capacity: (links,), byte/s, of the network of flows, 0 where failed.
    """
    from fabric.kernels._refine import first_links

    near = NEAR[str(solution.rates.dtype)]
    rates = np.asarray(solution.rates, np.float64)
    stopper = np.asarray(solution.bottleneck)
    level = rates / np.asarray(routes.weight, np.float64)
    full = np.array(solution.saturated)
    full[stopper[stopper >= 0]] = True
    load, top = _of_classes(routes, rates, level)
    row_full, row_top = full[partition.row_class], top[partition.row_class]
    smallest = graph.smallest(capacity)
    rank, link_of = (np.asarray(x) for x in hashed_rank(len(capacity)))
    bundle_top, pick, several = _picks(graph, row_full, row_top, rank[smallest], near)
    bottleneck, tied = first_links(
        *graph.hops.arrays, partition.flow_class, level, (stopper < 0) & np.isfinite(level),
        bundle_top, pick, several, link_of, near,
    )  # fmt: skip

    saturated = graph.to_links(row_full)
    margin = 0.0 if tied else float(solution.tie_margin)
    if graph.row_of is not None:
        least = graph.to_links(capacity[smallest])
        saturated = saturated & (capacity * (1 - near) <= least)
        # The others of a row are rivals of its smallest link.
        other = np.ones(len(capacity), bool)
        other[smallest] = False
        other &= graph.to_links(partition.row_class != partition.idle)
        left = capacity[other] - graph.to_links(load[partition.row_class])[other]
        gaps = np.divide(left, capacity[other], out=np.zeros(len(left)), where=capacity[other] > 0)
        margin = max(min(margin, gaps.min(initial=1.0)), 0.0)
    kind = solution.rates.dtype
    return RateSolution(
        rates=jnp.asarray(rates[partition.flow_class], kind),
        bottleneck=jnp.asarray(bottleneck),
        saturated=jnp.asarray(saturated),
        rounds=solution.rounds,
        tie_margin=jnp.asarray(margin, kind),
        result=solution.result,
        method=f"quotient ({len(rates):,} flow and {len(full):,} link classes)",
    )


def _of_classes(routes: Routes, rates: Column, level: Column) -> tuple[Column, Column]:
    """Return the load and the highest level on every class of links; -1 without flows."""
    finite = np.isfinite(level)
    rates, level = np.where(finite, rates, 0), np.where(finite, level, 0)
    flow, bundle, use = (
        np.asarray(x) for x in (routes.hop_flow, routes.hop_bundle, routes.hop_use)
    )
    load = np.bincount(bundle, use * rates[flow], minlength=routes.n_bundles)
    top = np.full(routes.n_bundles, -1.0)
    np.maximum.at(top, bundle, level[flow])
    if routes.n_parts == 0:
        return load, top
    bundle, link = np.asarray(routes.part_bundle), np.asarray(routes.part_link)
    link_top = np.full(routes.n_links, -1.0)
    np.maximum.at(link_top, link, top[bundle])
    part_load = np.asarray(routes.part_use) * load[bundle]
    return np.bincount(link, part_load, minlength=routes.n_links), link_top


def _picks(
    graph: Graph, full: Column, top: Column, rank: Int[np.ndarray, " rows"], near: float
) -> tuple[Column, Column, Column]:
    """Return per bundle: its lowest top of a full row, the first rank that has it, if several do.

    Without a full row the rank is -1.
    """
    if graph.parts is None:
        return np.where(full, top, np.inf), np.where(full, rank, -1).astype(np.int32), full & False
    bundle, row = graph.parts.left_of, graph.parts.right_of
    held = full[row]
    bundle, row = bundle[held], row[held]
    n = graph.parts.n_left
    bundle_top = np.full(n, np.inf)
    np.minimum.at(bundle_top, bundle, top[row])
    candidate = top[row] <= bundle_top[bundle] * (1 + near)
    bundle, row = bundle[candidate], row[candidate]
    found = np.bincount(bundle, minlength=n)
    pick = np.where(found > 0, np.iinfo(np.int32).max, -1).astype(np.int32)
    np.minimum.at(pick, bundle, rank[row])
    return bundle_top, pick, found > 1
