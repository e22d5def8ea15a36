"""`PathTables`: whole weights that switches can hold, from splits that are any number."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import InfeasibleError, raise_faults, some
from fabric.network import Labels, whole_or_fault
from fabric.optimize._aim import Aim
from fabric.optimize._path_sets import PathSet

_LARGEST = 65_536  # entries of a group
_SHARED = 3  # rounds in which entries that groups leave go to others
_SWEEPS = 60
_SHARPNESS = (100.0, 300.0, 1000.0, 3000.0, 10000.0)
_KICKS, _WORK = 400, 1e6  # starts at most, and hops that all of them look at
_ENOUGH = 1e-3  # loss at which the search ends
_HOT = 2e-3  # links are hot that are so much below the most loaded one at most


@dataclass(frozen=True, eq=False)
class PathTables:
    """A group per pair of switches, whose members are paths with whole weights (WCMP).

    A switch sends `weight / sum of weights` of the traffic to a destination over each path. The
    paths begin at the switch, so that a group holds for what enters the fabric there.

    Attributes:
        weights: (pairs, width), 0 where a path is not used.
        paths: The pairs and their paths.
        entries: Most entries per group: the sum of its weights.
        per_switch: Most entries of all groups of one switch, or None.
        objective: What these weights reach, computed exactly.
        ideal: The objective of the splits they come from.
        loss: How much worse that is, relative. Below 0 where the tables are better, as they can be
            for "rate" and "time": there the descent may end before the best splits.
        rounded_loss: The same of rounding alone, before the local search.
        moves: Units of weight that the local search moved, added or took.
    """

    weights: Int[np.ndarray, "pairs width"]
    paths: PathSet
    entries: int
    per_switch: int | None
    objective: float
    ideal: float
    loss: float
    rounded_loss: float
    moves: int

    @property
    def splits(self) -> Float[np.ndarray, "pairs width"]:
        """Share of every path."""
        return self.weights / self.weights.sum(axis=1, keepdims=True)

    @property
    def used(self) -> dict[str, int]:
        """Entries in use, by switch."""
        labels = self.paths.trunks.network.labels
        count = np.bincount(self.paths.start, self.weights.sum(axis=1), labels.n_nodes)
        return {labels.node_name(int(s)): int(count[s]) for s in np.flatnonzero(count)}

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per member of a group: switch, destination, path, next hop, weight."""
        labels = self.paths.trunks.network.labels
        name = labels.node_name
        found = []
        for pair, way in np.argwhere(self.weights > 0).tolist():
            first = int(self.paths.hops[pair * self.paths.width + way, 0])
            found.append({
                "switch": name(int(self.paths.start[pair])),
                "destination": name(int(self.paths.goal[pair])),
                "next_hop": name(int(labels.dst[first])),
                "path": self.paths.names(pair, way),
                "weight": int(self.weights[pair, way]),
            })  # fmt: skip
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the tables for JSON."""
        return {
            "entries": self.entries, "per_switch": self.per_switch, "objective": self.objective,
            "ideal": self.ideal, "loss": self.loss, "rounded_loss": self.rounded_loss,
            "groups": self.rows(),
        }  # fmt: skip

    def __str__(self) -> str:
        return (
            f"{len(self.weights):,} groups of at most {self.entries} entries, "
            f"{int(self.weights.sum()):,} in all: {self.loss:.2%} off the ideal splits "
            f"({self.rounded_loss:.2%} by rounding alone)"
        )


def path_tables(
    paths: PathSet,
    splits: Float[np.ndarray, "pairs width"],
    aim: Aim,
    entries: int,
    per_switch: int | None,
) -> PathTables:
    """Return whole weights near some splits, improved one unit at a time and scored exactly.

    Args:
        paths: The pairs and their paths.
        splits: Ideal shares.
        aim: The objective.
        entries: Most entries per group.
        per_switch: Most entries per switch.

    Raises:
        ModelError: If a number is out of range.
        InfeasibleError: If a switch has more groups than `per_switch` entries.
    """
    most, limit = limits(entries, per_switch)
    room = shared_room(splits, paths.start, most, limit, paths.trunks.network.labels)
    weights = rounded(splits, room)
    ideal, first = aim.score(splits), aim.score(_shares(weights))
    best, objective, moves = _searched(weights, splits, room, aim, first)
    shown = aim.shown
    return PathTables(
        best, paths, most, limit, shown(objective), shown(ideal),
        objective / ideal - 1, first / ideal - 1, moves,
    )  # fmt: skip


def rounded(
    splits: Float[np.ndarray, "pairs width"], room: Int[np.ndarray, " pairs"]
) -> Int[np.ndarray, "pairs width"]:
    """Return whole weights by largest remainder, of the total up to `room` that fits best.

    Examples:
        >>> rounded(np.array([[0.5, 0.5], [0.7, 0.3]]), np.array([64, 4])).tolist()
        [[1, 1], [2, 1]]
    """
    best = np.zeros(splits.shape, np.int64)
    error = np.full(len(splits), np.inf)
    for total in range(1, int(room.max(initial=0)) + 1):
        weights = largest_remainder(splits, total)
        off = np.abs(weights / total - splits).sum(axis=1)
        better = (off < error - 1e-12) & (total <= room)
        best[better], error[better] = weights[better], off[better]
    return best


def largest_remainder(
    splits: Float[np.ndarray, "pairs width"], total: int | Int[np.ndarray, "pairs 1"]
) -> Int[np.ndarray, "pairs width"]:
    """Return whole weights that sum to a total, each within 1 of its ideal.

    Examples:
        >>> largest_remainder(np.array([[0.5, 0.3, 0.2]]), 4).tolist()
        [[2, 1, 1]]
    """
    ideal = splits * total
    down = np.floor(ideal + 1e-9).astype(np.int64)
    short = total - down.sum(axis=1, keepdims=True)
    rank = np.argsort(np.argsort(down - ideal, axis=1, kind="stable"), axis=1, kind="stable")
    return down + (rank < short)


def limits(entries: object, per_switch: object) -> tuple[int, int | None]:
    """Return how many entries a group and a switch may have, checked.

    Raises:
        ModelError: If one is no whole number from 1, or is out of range.
    """
    faults: list[str] = []
    most = whole_or_fault("entries", entries, faults, 1, _LARGEST)
    limit = None if per_switch is None else whole_or_fault("per_switch", per_switch, faults)
    raise_faults(faults)
    return most, limit


def shared_room(
    splits: Float[np.ndarray, "groups width"],
    switch: Int[np.ndarray, " groups"],
    entries: int,
    per_switch: int | None,
    labels: Labels,
) -> Int[np.ndarray, " groups"]:
    """Return how many entries each group may have, what some leave spread over the others.

    Args:
        splits: Ideal shares.
        switch: (groups,), the node that holds each.
        entries: Most of a group.
        per_switch: Most of all groups of a switch.
        labels: Of the nodes.

    Raises:
        InfeasibleError: If a switch has more groups than `per_switch` entries.
    """
    if per_switch is None:
        return np.full(len(switch), entries)
    n = labels.n_nodes
    groups = np.bincount(switch, minlength=n)
    crowded = np.flatnonzero(groups > per_switch)
    if len(crowded):
        name = lambda s: labels.node_name(int(s))
        message = (
            f"`per_switch={per_switch:,}` is too few: {len(crowded):,} switches have more groups, "
            f"up to {int(groups.max()):,}: {some(crowded, name=name)}. Allow at least "
            f"{int(groups.max()):,}, one entry per destination."
        )
        raise InfeasibleError(message)
    room = np.minimum(per_switch // np.maximum(groups, 1), entries)[switch]
    wanted = rounded(splits, np.full(len(switch), entries)).sum(axis=1)
    for _ in range(_SHARED):
        taken = np.minimum(room, wanted)
        left = per_switch - np.bincount(switch, taken, n).astype(np.int64)
        tight = wanted > taken
        sharers = np.maximum(np.bincount(switch, tight, n).astype(np.int64), 1)
        room = np.minimum(taken + np.where(tight, (left // sharers)[switch], 0), entries)
    return room


def _searched(
    weights: np.ndarray, splits: np.ndarray, room: np.ndarray, aim: Aim, first: float
) -> tuple[np.ndarray, float, int]:
    """Return the best weights that the local search meets, their objective, and its moves.

    It begins from the total that fits each group best and from the largest total; then some units
    of the best weights are moved at random, and it begins anew from there.
    """
    search = _Search(splits, room, aim)
    best, objective = weights, first
    starts = [weights, largest_remainder(splits, room[:, None])]
    rng = np.random.default_rng(0)
    ideal = aim.score(splits)
    kicks = int(np.clip(_WORK / max(search.work, 1), 2, _KICKS))
    for kick in range(kicks):
        if objective <= ideal * (1 + _ENOUGH):
            break
        start = (
            starts[kick]
            if kick < len(starts)
            else _kicked(best, splits, room, search.hot(best), rng)
        )
        # Far from the aim a soft maximum leads; near it, after a kick, only a sharp one does.
        sharpness = _SHARPNESS if kick < len(starts) else _SHARPNESS[kick % 2 + 1 :]
        found, score = search.down(start, sharpness)
        if score < objective:
            best, objective = found, score
    return best, objective, search.moves


class _Search:
    """The local search over weights of one problem."""

    def __init__(self, splits: np.ndarray, room: np.ndarray, aim: Aim):
        worst = aim.uses(splits).max(axis=0)
        target = np.full_like(worst, worst.max()) if aim.over.name == "worst" else worst
        self._target = np.maximum(target, 1e-300)
        self._aim, self._room, self.moves = aim, room, 0
        self._hops = np.ascontiguousarray(aim.paths.hops)
        self._demand = np.ascontiguousarray(aim.loads.demand)
        self._order = np.argsort(-aim.loads.demand.max(axis=1, initial=0), kind="stable")
        self.work = self._hops.size * self._demand.shape[1]

    def hot(self, weights: np.ndarray) -> np.ndarray:
        """Return which groups use a link that is nearly the most loaded one."""
        use = (self._aim.uses(_shares(weights)) / self._target).max(axis=1)
        links = np.append(use[:-1] > use.max() * (1 - _HOT), False)
        crossing = links[self._hops].any(axis=1).reshape(weights.shape)
        return np.any(crossing & (weights > 0), axis=1)

    def down(self, weights: np.ndarray, sharpness: tuple[float, ...]) -> tuple[np.ndarray, float]:
        """Return the best weights on the way down from some, and their objective."""
        from fabric.kernels._group_weights import improve_groups

        aim, now, total = self._aim, weights.copy(), weights.sum(axis=1)
        best, objective = weights, np.inf
        for sharp in sharpness:
            for _ in range(_SWEEPS):
                load = (aim.uses(now / total[:, None]) * aim.capacity[:, None])[:-1]
                done = improve_groups(
                    now, total, self._room, self._hops, self._demand, aim.capacity[:-1], load,
                    self._target, sharp, self._order,
                )  # fmt: skip
                self.moves += done
                score = aim.score(_shares(now))
                if score < objective:
                    best, objective = now.copy(), score
                if not done:
                    break
        return best, objective


def _kicked(
    weights: np.ndarray,
    splits: np.ndarray,
    room: np.ndarray,
    hot: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return weights of which some groups, most of them on hot links, are others.

    They have one unit more or less somewhere, or are rounded anew to a total drawn at random.
    """
    found = weights.copy()
    picked = np.flatnonzero(rng.random(len(weights)) < np.where(hot, 0.3, 0.03))
    for k in picked:
        way = int(rng.choice(np.flatnonzero(found[k])))
        if hot[k] and rng.random() < 0.5:
            total = int(rng.integers(room[k] // 3 + 1, room[k] + 1))
            found[k] = largest_remainder(splits[k : k + 1], total)[0]
        elif found[k].sum() < room[k] and rng.random() < 0.5:
            found[k, way] += 1
        elif found[k].sum() > 1:
            found[k, way] -= 1
    return found


def _shares(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum(axis=1, keepdims=True)
