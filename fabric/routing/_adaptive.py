"""Adaptive: the splits that keep the most loaded link as low as can be for this traffic."""

from fabric._errors import ModelError
from fabric.network import Flows, Network, Routes, whole
from fabric.routing._graph import Trip
from fabric.routing._grouped import grouped
from fabric.routing._servers import RAILS, has_servers, routed
from fabric.routing._spray import sprayed
from fabric.routing._web import Found, search


def adaptive(
    network: Network,
    flows: Flows,
    *,
    tolerance: float = 1e-3,
    max_steps: int = 1000,
    queue_pairs: int = 1,
    max_parts: int = 50_000_000,
    max_splits: int = 1_000_000_000,
    rails: str = RAILS[0],
) -> Routes:
    """Return routes over shortest paths that keep the most loaded link as low as can be.

    Adaptive: every switch splits the traffic to a destination over its usable cables such that,
    if each flow sent `flows.weight` byte/s, the largest utilisation of a link would be least.
    This is ideal adaptive routing: what hardware that sees all loads, without delay, would reach.

    It starts from the equal splits of `spray` and moves only what crosses a link that is loaded
    more than need be. Where equal splits are as good as any, as they are on whole symmetric
    fabrics, the routes are those of `spray`. Shortest paths, forwarding nodes and dead links are
    as in `ecmp`; links of capacity 0 carry nothing where a switch
    has another way, and flows that none but such could carry do not count.

    Args:
        network: With labels.
        flows: (flows,). Weights are the demand; weights and caps travel into the routes.
        tolerance: Stop when the largest utilisation is proven to be at most this part above the
            least possible.
        max_steps: Stop after as many steps in any case; the rule of the routes says the gap.
        queue_pairs: As in `spray`.
        max_parts: As in `spray`; also the most (flow, bundle) entries.
        max_splits: Most pairs of a (switch, destination) and a cable; a step takes about 4 ns
            for each.
        rails: As in `ecmp`, for networks with servers.

    Returns:
        Two-level `Routes`. Flows whose splits are all equal share their bundles as in `spray`;
        others go switch by switch, with `hop_use` the share that passes. `routes.rule` holds
        "utilisation" of the most loaded link in seconds (load over capacity, per unit of weight),
        a proven lower "bound" of it, their relative "gap", what "spray" gives, the "steps" taken,
        how many (switch, destination) splits "moved", and "splits": "equal" or "moved".

    Raises:
        ModelError: As `spray`; or if `tolerance` is not above 0, or there are more than
            `max_splits` splits.
        InfeasibleError: If a destination cannot be reached; the pairs are named. Or if the
            splits would not fit in memory; before they are allocated.

    Precision: The gap is proven by prices or cuts, whatever the search did. Shares below 3e-6 of
        a split are left out.
    Cost: Tens of steps, each over all splits. On one core 2 s for 65,536 hosts in pairs with 20
        dead cables, and 20 s where all of these are core cables.

    Examples:
        One of two cables is out; `spray` still sends half of the traffic over the other:

        >>> import fabric as fb, numpy as np
        >>> net = fb.topologies.leaf_spine(
        ...     leaves=2, spines=2, hosts_per_leaf=4, cables_per_pair=2, capacity="1GB/s")
        >>> net = net.without(links=[int(np.flatnonzero(net.labels.is_tier("leaf-spine"))[0])])
        >>> routes = adaptive(net, fb.Flows(net.hosts[4:], net.hosts[:4]))
        >>> round(routes.rule["spray"] * 1e9, 3), routes.rule["utilisation"] * 1e9 < 4 / 3 * 1.001
        (2.0, True)

    References:
        D. Bertsekas and R. Gallager, Data Networks, 2nd ed., 1992, section 5.5 (optimal routing).
    """
    pairs, limit, steps, splits = (
        whole(name, value)
        for name, value in (
            ("queue_pairs", queue_pairs), ("max_parts", max_parts), ("max_steps", max_steps),
            ("max_splits", max_splits),
        )
    )  # fmt: skip
    if not 0 < tolerance < 1:
        message = f"`tolerance` needs a number above 0 and below 1, but got {tolerance!r}."
        raise ModelError(message)
    found = Found(None, 0.0, 0.0, 0.0, 0, 0)

    def walk(trip: Trip) -> Routes:
        nonlocal found
        found = search(trip, float(tolerance), steps, splits)
        if found.groups is None:
            return sprayed(trip, pairs, limit, name="adaptive")
        return grouped(trip, pairs, limit, found.groups, "adaptive")

    rule = {"rails": rails} if has_servers(network) else {}
    routes = routed(network, flows, walk, pairs, rails)
    gap = found.utilisation / found.bound - 1 if found.bound else 0.0
    return routes.with_rule(
        name="adaptive", tolerance=float(tolerance), queue_pairs=pairs, **rule,
        utilisation=found.utilisation, bound=found.bound, gap=gap, spray=found.equal,
        steps=found.steps, moved=found.moved, splits="moved" if found.groups else "equal",
    )  # fmt: skip
