"""Pairs of switches and the paths that each may split its traffic over."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from fabric._errors import ModelError, nearest, some
from fabric._memory import afford
from fabric.network import Flows, Network, is_whole
from fabric.optimize._trunks import Trunks, trunks
from fabric.routing._distances import shortest_distances
from fabric.routing._graph import check_flows, check_reached
from fabric.routing._k_shortest import loop_free_paths, nearest_switches
from fabric.routing._servers import has_servers

PATHS = ("shortest", "transit")
_MOST = 256
_BLOCK = 2**27  # bytes of distances that are held at a time


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

    def same(self, other: "PathSet") -> bool:
        """Return whether the pairs and their paths are those of another set."""
        if self.hops.shape != other.hops.shape or self.n_trunks != other.n_trunks:
            return False
        mine, theirs = self.trunks.network.labels, other.trunks.network.labels
        arrays = lambda p, labels: (p.start, p.goal, p.hops, labels.src, labels.dst)
        both = zip(arrays(self, mine), arrays(other, theirs), strict=True)
        return all(np.array_equal(a, b) for a, b in both)

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


def number_of_paths(paths: object) -> int:
    """Return how many paths are asked for, 0 for a name of them.

    Raises:
        ModelError: If it is neither.

    Examples:
        >>> number_of_paths("transit"), number_of_paths(4)
        (0, 4)
    """
    if is_whole(paths) and paths >= 1:
        return int(paths)
    if isinstance(paths, str) and paths in PATHS:
        return 0
    hint = nearest(paths, PATHS) if isinstance(paths, str) else ""
    message = (
        f"`paths` needs 'shortest', 'transit' or a number of paths from 1, but got {paths!r}. "
        f"{hint}"
    )
    raise ModelError(message.rstrip())


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
    number = number_of_paths(paths)
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
    elif paths == "shortest":
        count, ptr, hop = _shortest(reduced, starts, goals)
    else:
        count, routes = loop_free_paths(reduced, starts, goals, number, seed)
        ptr = np.searchsorted(routes.hop_flow, np.arange(routes.n_flows + 1))
        hop = np.asarray(routes.hop_bundle)
    lost = np.zeros(flows.n_flows, bool)
    lost[apart] = (count == 0)[of]
    check_reached(network, flows, lost)
    pair_of = np.full(flows.n_flows, -1)
    pair_of[apart] = of
    hops, valid = _dense(count, ptr, hop, reduced.n_links)
    return PathSet(merged, starts, goals, hops, valid, pair_of, leave, arrive)


Paths = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Paths of each pair, where the hops of each path begin, and the hops."""


def _shortest(network: Network, starts: np.ndarray, goals: np.ndarray) -> Paths:
    """Return all paths of least routing cost; pairs with the same goal lie together."""
    arcs = _Arcs.of(network)
    targets, at = np.unique(goals, return_inverse=True)
    block = max(_BLOCK // (8 * max(network.n_nodes, 1)), 1)
    count, lengths, hops = np.zeros(len(goals), np.int64), [], []
    for first in range(0, len(targets), block):
        left = shortest_distances(network, targets[first : first + block])
        rows = np.flatnonzero((at >= first) & (at < first + block))
        pair, path = _walked(arcs, starts[rows], goals[rows], left, at[rows] - first)
        count[rows] = np.bincount(pair, minlength=len(rows))
        used = path >= 0
        lengths.append(used.sum(axis=1))
        hops.append(path[used])
    many = count > _MOST
    if many.any():
        message = (
            f"`paths='shortest'` takes all shortest paths, at most {_MOST} per pair, but "
            f"{int(many.sum()):,} of {len(count):,} pairs of switches have more. Give a number of "
            f"paths, for example `paths={_MOST}`."
        )
        raise ModelError(message)
    ptr = np.concatenate([[0], np.cumsum(np.concatenate([[], *lengths]), dtype=np.int64)])
    return count, ptr, np.concatenate([np.zeros(0, np.int32), *hops])


class _Arcs(NamedTuple):
    """Links by sending node."""

    first: Int[np.ndarray, " nodes"]
    degree: Int[np.ndarray, " nodes"]
    link: Int[np.ndarray, " links"]
    to: Int[np.ndarray, " links"]
    cost: Int[np.ndarray, " links"]
    forwards: Bool[np.ndarray, " nodes"]

    @classmethod
    def of(cls, network: Network) -> "_Arcs":
        labels = network.labels
        link = np.argsort(labels.src, kind="stable").astype(np.int32)
        count = np.bincount(labels.src, minlength=network.n_nodes)
        cost = np.asarray(network.routing_cost, np.int64)[link]
        forwards = np.asarray(labels.forwards)
        return cls(np.cumsum(count) - count, count, link, labels.dst[link], cost, forwards)


def _walked(
    arcs: _Arcs, starts: np.ndarray, goals: np.ndarray, left: np.ndarray, of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return all shortest paths, by pair: the pair of each, and its hops, filled up with -1.

    All grow by a link at a time, along links that lead as much nearer as they cost. A pair with
    too many keeps one more than it may have.

    Args:
        arcs: The links.
        starts: (pairs,), node.
        goals: (pairs,), node.
        left: (targets, nodes), distance to each target; -1: none.
        of: (pairs,), which target is the goal.
    """
    pair = np.flatnonzero(left[of, starts] > 0)
    node, path = starts[pair], np.zeros((len(pair), 0), np.int32)
    done: list[tuple[np.ndarray, np.ndarray]] = []
    while len(pair):
        each = arcs.degree[node]
        row = np.repeat(np.arange(len(pair)), each)
        arc = np.arange(len(row)) - np.repeat(np.cumsum(each) - each, each)
        arc += np.repeat(arcs.first[node], each)
        to, target = arcs.to[arc], of[pair[row]]
        there = to == goals[pair[row]]
        nearer = left[target, to] + arcs.cost[arc] == left[target, node[row]]
        kept = np.flatnonzero(nearer & (there | (arcs.forwards[to] & (left[target, to] > 0))))
        row, arc = row[kept], arc[kept]
        pair, node, there = pair[row], to[kept], there[kept]
        path = np.concatenate([path[row], arcs.link[arc][:, None]], axis=1)
        done.append((pair[there], path[there]))
        # Partial paths lie by pair, and each leads to a whole one.
        place = np.arange(len(pair)) - np.searchsorted(pair, pair)
        going = ~there & (place <= _MOST)
        pair, node, path = pair[going], node[going], path[going]
    longest = len(done)
    whole = [np.pad(p, ((0, 0), (0, longest - p.shape[1])), constant_values=-1) for _, p in done]
    pairs = np.concatenate([np.zeros(0, np.int64), *(p for p, _ in done)])
    order = np.argsort(pairs, kind="stable")
    return pairs[order], np.concatenate([np.zeros((0, longest), np.int32), *whole])[order]


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
