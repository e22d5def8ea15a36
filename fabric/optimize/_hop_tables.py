"""`hop_tables`: splits over shortest paths as the groups of switches, a hop at a time."""

import numpy as np
from jaxtyping import Float

from fabric.optimize._group_tables import limits, rounded, shared_room
from fabric.optimize._path_sets import PathSet
from fabric.routing import GroupTables


def hop_tables(
    paths: PathSet,
    splits: Float[np.ndarray, "pairs width"],
    demand: Float[np.ndarray, " pairs"],
    entries: int,
    per_switch: int | None,
) -> GroupTables:
    """Return whole weights per switch and destination; what passes a switch is taken together.

    Links that run in parallel share the weight of their trunk by capacity.

    Args:
        paths: Pairs and their shortest paths.
        splits: Share of each path.
        demand: Of each pair, by which shares of several pairs are averaged.
        entries: Most entries of a group.
        per_switch: Most entries of a switch, or None.

    Raises:
        ModelError: If a number is out of range.
        InfeasibleError: If a switch has more groups than `per_switch` entries.
    """
    most, limit = limits(entries, per_switch)
    labels, n_trunks = paths.trunks.network.labels, paths.n_trunks
    row, column = np.nonzero(paths.hops < n_trunks)
    # Pairs that send nothing still need groups: their splits count a little.
    weight = np.maximum(demand, 1e-9 * max(demand.max(initial=0), 1e-300))
    sent = (splits * weight[:, None]).ravel()[row]
    trunk, goal = paths.hops[row, column], paths.goal[row // paths.width]
    n_nodes = labels.n_nodes
    key, place = np.unique(goal.astype(np.int64) * n_trunks + trunk, return_inverse=True)
    flow = np.bincount(place, sent, len(key))

    link, of_key = paths.trunks.links(key % n_trunks)
    use = flow[of_key] * paths.trunks.share[link]
    target, switch = key[of_key] // n_trunks, labels.src[key[of_key] % n_trunks]

    group_key = target * n_nodes + switch
    # A switch that no traffic to a destination reaches needs no group for it.
    _, of = np.unique(group_key, return_inverse=True)
    order = np.lexsort((link, group_key))
    order = order[np.bincount(of, use)[of[order]] > 0]
    groups, begin, size = np.unique(group_key[order], return_index=True, return_counts=True)
    ideal = np.zeros((len(groups), int(size.max(initial=1))))
    member = np.arange(len(order)) - np.repeat(begin, size)
    place = np.repeat(np.arange(len(groups)), size), member
    ideal[place] = use[order]
    ideal /= ideal.sum(axis=1, keepdims=True)
    room = shared_room(ideal, groups % n_nodes, most, limit, labels)
    return GroupTables(
        groups % n_nodes, groups // n_nodes, np.append(begin, len(order)), link[order],
        rounded(ideal, room)[place], most, limit,
    )  # fmt: skip
