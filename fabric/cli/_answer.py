"""One solved case in numbers, schema `fabric.solve/1`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from fabric._errors import UnsolvedError
from fabric.cli._demand import Demand, Rule, entry
from fabric.cli._routing import in_effect
from fabric.cli._subject import Subject
from fabric.network import Network, Routes
from fabric.solvers import RESULTS, RateSolution, certify, max_min_rates

CERTIFIED = 1e-9


@dataclass(frozen=True)
class Case:
    """Routes and rates of one network. `rate` is per flow, queue pairs summed, byte/s."""

    routes: Routes
    solution: RateSolution
    rate: Float[np.ndarray, " flows"]
    certificate: float

    @property
    def stats(self) -> dict[str, float]:
        """Smallest, median, mean and largest rate of a flow, byte/s."""
        rate = self.rate if len(self.rate) else np.zeros(1)
        return {
            "slowest": float(rate.min()),
            "median": float(np.median(rate)),
            "mean": float(rate.mean()),
            "max": float(rate.max()),
        }


def solved(network: Network, asked: Demand, rule: Rule, method: str) -> Case:
    """Return flows routed and solved on a network.

    Raises:
        UnsolvedError: If the certificate does not hold.
    """
    routes = rule.routes(network, asked.flows)
    solution = max_min_rates(network, routes, method=method)
    certificate = certify(network, routes, solution)
    if not certificate <= CERTIFIED:
        message = (
            f"The rates are not max-min fair: the certificate is {certificate:.1e}, above "
            f"{CERTIFIED:.0e} ({solution.method}). Try another `--method`, and run `fabric doctor`."
        )
        raise UnsolvedError(message)
    rate = np.asarray(routes.per_flow(np.asarray(solution.rates, np.float64)))
    return Case(routes, solution, rate, certificate)


def answer(
    subject: Subject,
    network: Network,
    asked: Demand,
    rule: Rule,
    case: Case,
    *,
    top: int,
    tier: str | None,
    failed: list[str] | None,
) -> dict[str, Any]:
    """Return the answer of `fabric solve`, without the comparison of cables.

    Args:
        subject: The fabric as it was found.
        network: The same, with failures.
        asked: The flows.
        rule: How they are routed.
        case: The solution.
        top: Bottleneck links to list.
        tier: Of this tier only.
        failed: Nodes taken as failed.
    """
    load, used = _loads(network, case)
    live = np.asarray(network.alive)
    stats = case.stats
    rule_said = {
        "name": rule.name, "seed": rule.seed, "queue_pairs": rule.queue_pairs,
        "options": in_effect(rule.name, rule.options, case.routes.rule), "draws": rule.draws,
    }  # fmt: skip
    bottlenecks, held = _bottlenecks(network, case, load, top, tier)
    result: dict[str, Any] = {
        "schema": "fabric.solve/1",
        "fabric": {"source": subject.source, "format": subject.format, "failed": failed or []},
        "demand": asked.name,
        "flows": asked.flows.n_flows,
        "endpoints": asked.endpoints,
        "endpoints_failed": asked.failed,
        "flows_left_out": asked.left_out,
        "links_used": int(used.sum()),
        "links_present": int(live.sum()),
        "routing": rule_said | {"why": rule.why},
        "rate": {
            "unit": "byte/s", "min": stats["slowest"], "median": stats["median"],
            "mean": stats["mean"], "max": stats["max"], "total": float(case.rate.sum()),
        },
    }  # fmt: skip
    if asked.all_to_all:
        result["per_endpoint"] = per_endpoint(asked, stats)
    result |= {
        "tiers": _tiers(network, case, load, used),
        "bottlenecks": bottlenecks,
        "bottleneck_links": held,
        "bottlenecks_by": "rate" if _alike(case.routes) else "rate per weight",
        "sensitivities": [],
        "method": case.solution.method,
        "rounds": int(case.solution.rounds),
        "certificate": case.certificate,
        "tie_margin": float(case.solution.tie_margin),
        "result": "converged"
        if bool(case.solution.result == RESULTS.converged)
        else RESULTS[case.solution.result],
        "assumptions": _assumptions(asked, rule),
    }
    return result


def per_endpoint(asked: Demand, stats: dict[str, float]) -> dict[str, Any]:
    """Return rates of flows times (n - 1): what an endpoint moves in an all-to-all, byte/s."""
    times = asked.endpoints - 1
    return {"unit": "byte/s"} | {name: value * times for name, value in stats.items()}


def _loads(
    network: Network, case: Case
) -> tuple[Float[np.ndarray, " links"], Bool[np.ndarray, " links"]]:
    """Return the load of every link, byte/s, and whether any flow crosses it."""
    from fabric.kernels import _evidence
    from fabric.solvers._certify import usage_arrays

    arrays = usage_arrays(case.routes)
    counts = (case.routes.n_bundles, case.routes.n_links)
    rate = np.asarray(case.solution.rates, np.float64)
    load = _evidence.loads(rate, *arrays, *counts)
    used = _evidence.loads(np.ones_like(rate), *arrays, *counts) > 0
    return load, used & np.asarray(network.alive)


def _utilisation(network: Network, load: Float[np.ndarray, " links"]) -> np.ndarray:
    capacity = np.asarray(network.capacity, np.float64)
    # A link of capacity 0 that a flow crosses is as full as a link can be.
    return np.divide(load, capacity, where=capacity > 0, out=np.ones(len(load)))


def _tiers(
    network: Network, case: Case, load: np.ndarray, used: Bool[np.ndarray, " links"]
) -> list[dict[str, Any]]:
    labels = network.labels
    live, full = np.asarray(network.alive), np.asarray(case.solution.saturated)
    share = _utilisation(network, load)
    rows = []
    for code, name in enumerate(labels.tiers):
        here = labels.tier_of == code
        on = here & used
        if not np.any(here & live):
            continue
        rows.append(
            {
                "tier": name,
                "links_present": int(np.sum(here & live)),
                "links_used": int(on.sum()),
                "utilisation": {
                    "mean": float(share[on].mean()) if on.any() else 0.0,
                    "max": float(share[on].max()) if on.any() else 0.0,
                },
                "saturated": int(np.sum(full & on)),
            }
        )
    return rows


def _bottlenecks(
    network: Network, case: Case, load: np.ndarray, top: int, tier: str | None
) -> tuple[list[dict[str, Any]], int]:
    """Return the links that stop flows, lowest level first, and how many there are."""
    labels, routes = network.labels, case.routes
    stopper = np.asarray(case.solution.bottleneck)
    held = np.flatnonzero(stopper >= 0)
    link, rate = stopper[held], np.asarray(case.solution.rates, np.float64)[held]
    n = network.n_links
    level, slowest = np.full((2, n), np.inf)
    np.minimum.at(level, link, rate / np.asarray(routes.weight)[held])
    # A flow counts once per link, with all of its queue pairs that stop there.
    if not routes.row_is_flow:
        ends = link.astype(np.int64) * routes.n_pairs + np.asarray(routes.flow_of)[held]
        ends, row = np.unique(ends, return_inverse=True)
        link, rate = ends // routes.n_pairs, np.bincount(row, weights=rate)
    np.minimum.at(slowest, link, rate)
    count = np.bincount(link, minlength=n)
    wanted = count > 0
    if tier is not None:
        wanted &= labels.is_tier(tier)
    links = np.flatnonzero(wanted)
    # Levels that differ by rounding only are one level, or its links would not sort by flows.
    rounded = np.array([float(f"{value:.9e}") for value in level[links]])
    order = links[np.lexsort((links, -count[links], rounded))]
    share = _utilisation(network, load)
    capacity = np.asarray(network.capacity, np.float64)
    rows = [
        {
            "link": network.link_name(link),
            "tier": labels.tiers[labels.tier_of[link]],
            "flows": int(count[link]),
            "rate": float(slowest[link]),
            "level": float(level[link]),
            "utilisation": float(share[link]),
            "capacity": float(capacity[link]),
        }
        for link in order[:top].tolist()
    ]
    return rows, len(links)


def _alike(routes: Routes) -> bool:
    """Return whether flows rank by rate as they rank by rate per weight."""
    weight = np.asarray(routes.weight)
    return routes.row_is_flow and bool(np.all(weight == weight[:1]))


def _assumptions(asked: Demand, rule: Rule) -> list[dict[str, Any]]:
    listed = [
        entry("routing", rule.name, rule.kind("routing"), rule.why),
        entry(
            "link efficiency", 1.0, "assumed", "capacities are nominal, without protocol overhead"
        ),
        entry("sharing", "max-min", "assumed", "flows share a full link fairly, by weight"),
        entry("queue pairs", rule.queue_pairs, rule.kind("queue-pairs"), "per flow"),
        *asked.assumptions,
    ]
    if rule.draws or asked.pattern in ("permutation", "incast"):
        source = "of drawn patterns and ECMP hashes"
        listed.append(entry("seed", rule.seed, rule.kind("seed"), source))
    return listed
