"""What a solve takes in memory, told before it is taken."""

import numpy as np

from fabric._memory import UNASKED, afford
from fabric.network import Routes

# Bytes at the peak of plan and solve together: indices of 4, numbers and pointers of 8.
PER_FLOW, PER_HOP, PER_LINK, PER_USED_LINK, PER_CLASS, PER_SHARED, PER_PART = (
    138,
    8,
    5,
    4,
    49,
    50,
    90,
)
PER_HOP_OF_BUNDLE = 20  # bundles are first rewritten as links


def bytes_needed(routes: Routes) -> int:
    """Return about how many bytes the compiled method takes beside network and routes.

    Args:
        routes: Concrete. Links with one flow and links with several are counted, nothing else is
            done: that is a small part of a solve.
    """
    crossing = np.bincount(np.asarray(routes.hop_bundle), minlength=routes.n_bundles + 1)
    crossing = crossing[: routes.n_bundles]
    single, shared = int((crossing == 1).sum()), int((crossing > 1).sum())
    private = min(single, routes.n_flows)
    needed = (
        PER_FLOW * routes.n_flows
        + PER_HOP * (routes.n_hops - single + private)
        + PER_LINK * routes.n_links
        + PER_USED_LINK * (single + shared)
        + PER_CLASS * (private + shared)
        + PER_SHARED * shared
        + PER_PART * routes.n_parts
    )
    return needed + PER_HOP_OF_BUNDLE * routes.n_hops * (routes.n_parts > 0)


def afford_solve(routes: Routes) -> None:
    """Raise before a first solve that would not fit in memory.

    Raises:
        InfeasibleError: With the bytes it needs and the bytes that are free.
    """
    most = PER_FLOW * routes.n_flows + 130 * routes.n_hops + PER_PART * routes.n_parts
    if "compiled" in routes.plans or most <= UNASKED:
        return
    afford(
        f"`max_min_rates` of {routes.n_flows:,} flows with {routes.n_hops:,} hops",
        bytes_needed(routes),
        "Solve for fewer flows (fewer `hosts` or `queue_pairs`), or call `fabric.compress` first "
        "where the traffic is symmetric.",
    )
