"""`certify`: how far a solution is from max-min fair, without an oracle."""

import numpy as np
from jaxtyping import Float

from fabric._errors import ModelError, raise_faults
from fabric._typing import PerFlow
from fabric.kernels._local_rounds import Usage
from fabric.network import Network, Routes, check_link_counts
from fabric.network._checks import capacity_faults
from fabric.solvers._inputs import flow_faults, per_flow
from fabric.solvers._plan import plain_array
from fabric.solvers._solution import RateSolution


def certify(
    network: Network,
    routes: Routes,
    solution: RateSolution,
    *,
    weights: PerFlow | None = None,
    caps: PerFlow | None = None,
) -> float:
    """Return the largest relative violation of max-min fairness; 0 is exact.

    Rates are max-min fair if and only if no link is overloaded and every flow is at its cap or
    crosses a link that is full and on which no flow has a higher level (rate over weight). The
    solution names that link for each flow, so the check is one pass and works at any size. The
    violation is the largest of: load over capacity less 1, rate over cap less 1, and per flow
    what its bottleneck link lacks of being full or of being the top.

    Args:
        network: The links, as solved.
        routes: The routes, as solved.
        solution: Of `max_min_rates`.
        weights: (flows,), as given to the solve. Default: those that `routes` carries.
        caps: (flows,), byte/s, as given to the solve. Default: those that `routes` carries.

    Returns:
        The violation, relative. Infinite if a flow does not cross the link it names, if a rate is
        negative or not finite, or if a link of capacity 0 carries load. At most 1e-9 is expected
        of float64 and 5e-6 of float32.

    Raises:
        ModelError: If the solution has another number of flows than the routes, or a weight, cap
            or capacity is out of range.

    Cost: O(hops + parts + flows); host only, not differentiable.

    Examples:
        >>> import fabric as fb
        >>> net, routes = fb.Network([10.0]), fb.Routes.from_paths([[0], [0]], n_links=1)
        >>> fb.certify(net, routes, fb.max_min_rates(net, routes))
        0.0

    References:
        D. Bertsekas and R. Gallager, Data Networks, 2nd ed., 1992, section 6.5.2.
    """
    from fabric.kernels import _evidence

    check_link_counts(network, routes, "certify")
    rate = np.asarray(solution.rates, np.float64)
    bottleneck = plain_array(solution.bottleneck, np.int32)
    if len(rate) != routes.n_flows or len(bottleneck) != routes.n_flows:
        message = (
            f"`certify` was given a solution of {len(rate):,} flows and routes of "
            f"{routes.n_flows:,}. Give the routes that were solved."
        )
        raise ModelError(message)
    weights = per_flow("weights", weights, routes.weight, routes, "certify")
    caps = per_flow("caps", caps, routes.cap, routes, "certify")
    weight, cap = plain_array(weights, np.float64), plain_array(caps, np.float64)
    capacity = np.asarray(network.capacity)
    raise_faults(
        capacity_faults("Network(capacity)", capacity, network.link_name) + flow_faults(weight, cap)
    )
    if not np.all(np.isfinite(rate) & (rate >= 0)):
        return float("inf")
    capacity = live_capacity(network)
    level = rate / weight
    arrays = usage_arrays(routes)
    load = _evidence.loads(rate, *arrays, routes.n_bundles, routes.n_links)
    top = _evidence.tops(level, *arrays, routes.n_bundles, routes.n_links)
    worst = max(_excess(load, capacity), _excess(rate, cap), 0.0)

    by_link = np.flatnonzero(bottleneck >= 0)
    link = bottleneck[by_link]
    flow, bundle, use = arrays[:3]
    ptr, part_link = _parts_by_bundle(routes)
    crosses = _evidence.crossing(bottleneck, flow, bundle, use, ptr, part_link)
    if not crosses[by_link].all():
        return float("inf")
    slack = np.divide(
        capacity[link] - load[link],
        capacity[link],
        where=capacity[link] > 0,
        out=np.zeros(len(link)),
    )
    below = np.divide(
        top[link] - level[by_link], top[link], where=top[link] > 0, out=np.zeros(len(link))
    )
    worst = max(worst, slack.max(initial=0.0), below.max(initial=0.0))
    capped = np.flatnonzero(bottleneck < 0)
    if not np.all(np.isfinite(cap[capped])):
        return float("inf")
    short = np.divide(
        cap[capped] - rate[capped], cap[capped], where=cap[capped] > 0, out=np.zeros(len(capped))
    )
    return float(max(worst, short.max(initial=0.0)))


def live_capacity(network: Network) -> Float[np.ndarray, " links"]:
    """Return (links,), byte/s in float64, 0 for failed links."""
    return np.where(np.asarray(network.alive), np.asarray(network.capacity, np.float64), 0.0)


def usage_arrays(routes: Routes) -> Usage:
    """Return hops and parts as host arrays of the types that the compiled kernels take."""
    ints = lambda x: plain_array(x, np.int32)
    floats = lambda x: plain_array(x, np.float64)
    return Usage(
        ints(routes.hop_flow), ints(routes.hop_bundle), floats(routes.hop_use),
        ints(routes.part_bundle), ints(routes.part_link), floats(routes.part_use),
    )  # fmt: skip


def _excess(value: np.ndarray, limit: np.ndarray) -> float:
    over = value - limit
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(over <= 0, 0.0, over / limit)
    return float(relative.max(initial=0.0))


def _parts_by_bundle(routes: Routes) -> tuple[np.ndarray, np.ndarray]:
    """Return (ptr, link), links rising within each bundle; both empty when bundles are links."""
    if routes.n_parts == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    bundle, link = np.asarray(routes.part_bundle), np.asarray(routes.part_link)
    kept = (bundle < routes.n_bundles) & (np.asarray(routes.part_use) > 0)
    bundle, link = bundle[kept].astype(np.int64), link[kept]
    order = np.argsort(bundle * routes.n_links + link, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(bundle, minlength=routes.n_bundles))])
    return ptr.astype(np.int64), link[order].astype(np.int32)
