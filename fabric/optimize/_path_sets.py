"""Pairs of switches and the paths that each may split its traffic over."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from fabric._errors import ModelError, nearest, some
from fabric._memory import afford
from fabric.network import Flows, Network, is_whole
from fabric.optimize._trunks import Trunks, trunks
from fabric.routing._graph import check_flows, check_reached
from fabric.routing._k_shortest import _nearest as nearest_switches, _paths as shortest_paths
from fabric.routing._servers import has_servers

PATHS = ("shortest", "transit")
_MOST = 256


class PathSet(NamedTuple):
    """Paths of every pair of switches between which flows run.

    Pairs with one path are there too. Path w of pair k is row `k * width + w` of `hops`.
    """

    trunks: Trunks
    start: Int[np.ndarray, " pairs"]
    goal: Int[np.ndarray, " pairs"]
    hops: Int[np.ndarray, "pairs_width hops"]  # trunk of every hop; one past the end: none
    valid: Bool[np.ndarray, "pairs width"]
    pair_of: Int[np.ndarray, " flows"]  # -1: both ends hang on one switch
    leave: Int[np.ndarray, " flows"]  # trunk from the source to its switch; -1: none
    arrive: Int[np.ndarray, " flows"]

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return len(self.start)

    @property
    def width(self) -> int:
        """Paths of the pair that has most."""
        return self.valid.shape[1]

    @property
    def n_trunks(self) -> int:
        """Number of trunks."""
        return self.trunks.network.n_links

    def names(self, pair: int, way: int) -> str:
        """Return a path as the names of its nodes."""
        labels = self.trunks.network.labels
        hops = self.hops[pair * self.width + way]
        hops = hops[hops < self.n_trunks]
        nodes = [int(self.start[pair]), *(int(labels.dst[hop]) for hop in hops)]
        return "->".join(labels.node_name(node) for node in nodes)

    def of(self, flows: Flows) -> "PathSet":
        """Return these paths for other flows between the same pairs of switches.

        Raises:
            ModelError: If there are no paths for some flows.
        """
        reduced = self.trunks.network
        check_flows(reduced, flows)
        start, leave = nearest_switches(reduced, np.asarray(flows.src), outwards=True)
        goal, arrive = nearest_switches(reduced, np.asarray(flows.dst), outwards=False)
        known = self.goal.astype(np.int64) * reduced.n_nodes + self.start
        wanted = goal.astype(np.int64) * reduced.n_nodes + start
        at = np.searchsorted(known, wanted)
        found = np.append(known, -1)[at] == wanted
        lost = np.flatnonzero(~found & (start != goal))
        if len(lost):
            message = (
                f"{len(lost):,} of {flows.n_flows:,} flows run between switches for which no "
                f"weights were asked: flows {some(lost)}. Give the optimiser their demand too."
            )
            raise ModelError(message)
        return self._replace(pair_of=np.where(found, at, -1), leave=leave, arrive=arrive)


def path_set(network: Network, flows: Flows, paths: str | int, seed: int = 0) -> PathSet:
    """Return the paths over which flows may be split.

    Args:
        network: With labels. Parallel links count as one.
        flows: (flows,), of which the ends count.
        paths: "shortest": all of least routing cost. "transit": the direct link, and every way
            over one more node. A number: that many loop-free ones of least routing cost.
        seed: Decides between paths of equal cost where a number is given.

    Raises:
        ModelError: If `paths` is none of these, or an end of a flow is no endpoint.
        InfeasibleError: If a destination cannot be reached, or memory does not suffice.
    """
    number = int(paths) if is_whole(paths) and paths >= 1 else 0
    if not number and paths not in PATHS:
        hint = nearest(paths, PATHS) if isinstance(paths, str) else ""
        message = (
            f"`paths` needs 'shortest', 'transit' or a number of paths from 1, but got {paths!r}. "
            f"{hint}"
        )
        raise ModelError(message.rstrip())
    if has_servers(network):
        message = (
            "`routing_weights` splits the traffic between adapters, but this network has servers "
            "with GPUs inside. Give the fabric alone (`nic` nodes as hosts), and the demand "
            "between adapters."
        )
        raise ModelError(message)
    check_flows(network, flows)
    merged = trunks(network)
    reduced = merged.network
    start, leave = nearest_switches(reduced, np.asarray(flows.src), outwards=True)
    goal, arrive = nearest_switches(reduced, np.asarray(flows.dst), outwards=False)
    key = goal.astype(np.int64) * reduced.n_nodes + start
    apart = start != goal
    pairs, of = np.unique(key[apart], return_inverse=True)
    goals, starts = np.divmod(pairs, reduced.n_nodes)
    if paths == "transit":
        count, ptr, hop = _transit(reduced, starts, goals)
    else:
        count, ptr, hop = _shortest(reduced, starts, goals, number, seed)
    lost = np.zeros(flows.n_flows, bool)
    lost[apart] = (count == 0)[of]
    check_reached(network, flows, lost)
    pair_of = np.full(flows.n_flows, -1)
    pair_of[apart] = of
    hops, valid = _dense(count, ptr, hop, reduced.n_links)
    return PathSet(merged, starts, goals, hops, valid, pair_of, leave, arrive)


Paths = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Paths of each pair, where the hops of each path begin, and the hops."""


def _shortest(
    network: Network, starts: np.ndarray, goals: np.ndarray, number: int, seed: int
) -> Paths:
    most = number or _MOST + 1
    count, routes = shortest_paths(network, starts, goals, most, seed)
    ptr = np.searchsorted(routes.hop_flow, np.arange(routes.n_flows + 1))
    hop = np.asarray(routes.hop_bundle)
    if number or not len(count):
        return count, ptr, hop
    # Of the paths of each pair, those that cost no more than its first.
    steps = np.r_[0, np.cumsum(np.asarray(network.routing_cost)[hop], dtype=np.int64)]
    cost = steps[ptr[1:]] - steps[ptr[:-1]]
    pair = np.repeat(np.arange(len(count)), count)
    first = np.cumsum(count) - count
    best = cost == cost[first[pair]]
    kept = np.bincount(pair[best], minlength=len(count))
    if (kept > _MOST).any():
        message = (
            f"`paths='shortest'` takes all shortest paths, at most {_MOST} per pair, but "
            f"{int((kept > _MOST).sum()):,} of {len(count):,} pairs of switches have more. Give a "
            f"number of paths, for example `paths={_MOST}`."
        )
        raise ModelError(message)
    lengths = np.diff(ptr)
    return kept, np.r_[0, np.cumsum(lengths[best])], hop[np.repeat(best, lengths)]


def _transit(network: Network, starts: np.ndarray, goals: np.ndarray) -> Paths:
    labels, n = network.labels, network.n_nodes
    afford(f"`paths='transit'` of {n:,} nodes", 4.0 * n * n, "Give a number of paths instead.")
    link = np.full((n, n), -1, np.int32)
    # Of links in one direction between two nodes, that of least routing cost comes last and stays.
    order = np.argsort(-np.asarray(network.routing_cost), kind="stable")
    link[labels.src[order], labels.dst[order]] = order
    over = np.flatnonzero(labels.forwards)
    work = 1.0 * len(starts) * len(over)
    afford(f"`paths='transit'` of {len(starts):,} pairs", 40 * work, "Give a number of paths.")
    first, second = link[starts][:, over], link[:, goals].T[:, over]
    two = (first >= 0) & (second >= 0)
    direct = link[starts, goals]
    count = two.sum(axis=1) + (direct >= 0)
    rows, columns = np.nonzero(two)
    pair = np.r_[np.flatnonzero(direct >= 0), rows]
    hop = np.full((len(pair), 2), -1, np.int32)
    n_direct = len(pair) - len(rows)
    hop[:n_direct, 0] = direct[direct >= 0]
    hop[n_direct:, 0], hop[n_direct:, 1] = first[rows, columns], second[rows, columns]
    hop = hop[np.argsort(pair, kind="stable")]
    used = hop >= 0
    return count, np.r_[0, np.cumsum(used.sum(axis=1))], hop[used]


def _dense(
    count: np.ndarray, ptr: np.ndarray, hop: np.ndarray, n_trunks: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return hops with a row for every (pair, way) and a column per hop, and which rows exist."""
    width, lengths = int(count.max(initial=1)), np.diff(ptr)
    longest = int(lengths.max(initial=1))
    afford(
        f"A split over {int(count.sum()):,} paths of up to {longest} hops",
        40.0 * len(count) * width * longest,
        "Give fewer paths per pair, or fewer pairs.",
    )
    valid = np.arange(width) < count[:, None]
    hops = np.full((len(count) * width, longest), n_trunks, np.int32)
    rows = np.flatnonzero(valid.ravel())
    column = np.arange(len(hop)) - np.repeat(ptr[:-1], lengths)
    hops[np.repeat(rows, lengths), column] = hop
    return hops, valid
