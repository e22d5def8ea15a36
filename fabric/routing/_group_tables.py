"""`GroupTables`: weights of cables per switch and destination, as switches hold them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError, raise_faults, some
from fabric._typing import AnyArray
from fabric.network import Network, frozen, index_array, names_of, whole, whole_array
from fabric.routing._graph import Trip
from fabric.routing._grouped import Groups, groups_of

ENTRIES = 64
"""Entries of one group: the usual width of a multipath group, over which weights are replicated."""


@dataclass(frozen=True, eq=False)
class GroupTables:
    """Weights of the cables of a switch towards a destination; a group for each such pair.

    Attributes:
        switch: (groups,), the node that splits.
        target: (groups,), the switch that destinations hang on, for all of these; or a
            destination that hangs on several switches, or forwards itself.
        first: (groups + 1,). Members of group i are `first[i]` to `first[i + 1]` - 1.
        link: (members,), links out of the switch.
        weight: (members,), whole numbers from 0: how many entries of the group a link has.
        entries: Most that the weights of one group may add up to.
        per_switch: Most that those of all different groups of one switch may add up to; groups
            with the same weights share their entries, as they do in hardware. None: no limit.

    Raises:
        ModelError: If lengths do not fit, or a weight is no whole number from 0.

    Examples:
        Switch 6 sends to switch 7 three times as much over link 0 as over link 2:

        >>> GroupTables.of({(6, 7): {0: 3, 2: 1}}).n_groups
        1

    References:
        J. Zhou et al., WCMP: Weighted Cost Multipathing for Improved Fairness in Data Centers,
        EuroSys 2014.
    """

    switch: Int[np.ndarray, " groups"]
    target: Int[np.ndarray, " groups"]
    first: Int[np.ndarray, " groups+1"]
    link: Int[np.ndarray, " members"]
    weight: Int[np.ndarray, " members"]
    entries: int = ENTRIES
    per_switch: int | None = None

    def __post_init__(self):
        whole("entries", self.entries)
        if self.per_switch is not None:
            whole("per_switch", self.per_switch)
        faults = []
        if len(self.target) != len(self.switch) or len(self.first) != len(self.switch) + 1:
            faults.append(
                f"`GroupTables` needs one `target` for each of {len(self.switch):,} `switch` and "
                f"one `first` more, but got {len(self.target):,} and {len(self.first):,}."
            )
        elif (
            self.first[0] != 0
            or np.any(np.diff(self.first) < 0)
            or not (self.first[-1] == len(self.link) == len(self.weight))
        ):
            faults.append(
                f"`GroupTables(first=...)` needs to rise from 0 to the number of links "
                f"({len(self.link):,}) and of weights ({len(self.weight):,}), but does not."
            )
        if np.any(self.weight < 0):
            faults.append(
                "`GroupTables(weight=...)` needs whole numbers from 0, but some are less."
            )
        raise_faults(faults)
        for name in ("switch", "target", "first", "link", "weight"):
            object.__setattr__(self, name, frozen(np.array(getattr(self, name), np.int64)))

    @classmethod
    def of(
        cls,
        weights: Mapping[tuple[int, int], Mapping[int, int]],
        *,
        entries: int = ENTRIES,
        per_switch: int | None = None,
    ) -> "GroupTables":
        """Return tables from {(switch, target): {link: weight}}."""
        pairs = np.array(list(weights), np.int64).reshape(-1, 2)
        first = np.cumsum([0, *map(len, weights.values())])
        rows = [item for row in weights.values() for item in row.items()]
        link = index_array("weights", [link for link, _ in rows], dtype=np.int64)
        weight = whole_array("weights", [weight for _, weight in rows])
        return cls(pairs[:, 0], pairs[:, 1], first, link, weight, entries, per_switch)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.switch)

    def check(self, network: Network) -> None:
        """Raise one `ModelError` with all that does not fit a network or the limits."""
        n_nodes, n_links, faults = network.n_nodes, network.n_links, []
        for name, values, n in (
            ("switch", self.switch, n_nodes), ("target", self.target, n_nodes),
            ("link", self.link, n_links),
        ):  # fmt: skip
            outside = np.unique(values[(values < 0) | (values >= n)])
            if len(outside):
                faults.append(
                    f"`GroupTables({name}=...)` needs numbers from 0 to {n - 1:,}, but holds "
                    f"{some(outside.tolist())}."
                )
        raise_faults(faults)
        name_of = lambda node: names_of(network, [node])[0]
        pair_of = lambda i: " -> ".join(
            names_of(network, [int(self.switch[i]), int(self.target[i])])
        )
        row = np.repeat(np.arange(self.n_groups), np.diff(self.first))
        astray = np.unique(self.link[network.labels.src[self.link] != self.switch[row]])
        if len(astray):
            faults.append(
                f"Groups need links that leave their switch, but {len(astray):,} do not: "
                f"{some(astray.tolist(), name=network.link_name)}."
            )
        key = self.switch * n_nodes + self.target
        _, where, times = np.unique(key, return_index=True, return_counts=True)
        if len(twice := where[times > 1]):
            faults.append(
                f"Every pair of a switch and a target needs one group, but {len(twice):,} have "
                f"more: {some(twice.tolist(), name=pair_of)}."
            )
        total = np.bincount(row, self.weight, minlength=self.n_groups).astype(np.int64)
        wide = np.flatnonzero(total > self.entries)
        if len(wide):
            faults.append(
                f"A group holds `entries={self.entries}` at most, but the weights of {len(wide):,} "
                f"of {self.n_groups:,} groups add up to more, up to {int(total.max()):,}: "
                f"{some(wide.tolist(), name=pair_of)}. Scale them with `integer_tables`."
            )
        held = self._held(total)
        if self.per_switch is not None and held and max(held.values()) > self.per_switch:
            full = [switch for switch, n in held.items() if n > self.per_switch]
            faults.append(
                f"A switch holds `per_switch={self.per_switch}` entries at most, but the different "
                f"groups of {len(full):,} switches need up to {max(held.values()):,}: "
                f"{some(full, name=name_of)}. Give fewer `entries`, or let groups be alike."
            )
        raise_faults(faults)

    def _held(self, total: Int[np.ndarray, " groups"]) -> dict[int, int]:
        """Return the entries of the different groups of every switch."""
        held: dict[int, int] = {}
        seen: set[tuple[int, bytes, bytes]] = set()
        for i, (switch, n) in enumerate(zip(self.switch.tolist(), total.tolist(), strict=True)):
            own = slice(self.first[i], self.first[i + 1])
            content = (switch, self.link[own].tobytes(), self.weight[own].tobytes())
            if content not in seen:
                seen.add(content)
                held[switch] = held.get(switch, 0) + n
        return held

    def groups(self, trip: Trip) -> Groups:
        """Return the groups of a trip; raise where one speaks of no target of it that could be."""
        graph, demand, nodes = trip.graph, trip.demand, trip.network.n_nodes
        number = np.full(nodes, -1)
        at_host = demand.target_host >= 0
        number[demand.target_host[at_host]] = np.flatnonzero(at_host)
        number[graph.node_of[demand.target_node[~at_host]]] = np.flatnonzero(~at_host)
        inner = graph.forward_of >= 0
        hangs = ~inner[self.target] & (number[self.target] < 0)
        hangs &= np.isin(self.target, demand.dst)
        if hangs.any():
            hosts = np.unique(self.target[hangs])
            name_of = lambda node: names_of(trip.network, [node])[0]
            message = (
                f"Groups need the switch as target where all links of a destination come from it, "
                f"but {len(hosts):,} name the destination: {some(hosts.tolist(), name=name_of)}."
            )
            raise ModelError(message)
        point = np.where(
            inner[self.switch], graph.forward_of[self.switch], len(graph.node_of) + 1 + self.switch
        )
        kept = np.flatnonzero(number[self.target] >= 0)  # others have no traffic
        kept = kept[np.argsort(number[self.target[kept]], kind="stable")]
        width = np.diff(self.first)[kept]
        begin = np.concatenate([[0], np.cumsum(width)])
        member = np.arange(int(begin[-1])) + np.repeat(self.first[kept] - begin[:-1], width)
        return groups_of(
            trip, number[self.target[kept]], point[kept], begin, self.link[member],
            self.weight[member].astype(np.float64),
        )  # fmt: skip


def integer_tables(
    fractions: Float[AnyArray, "groups links"] | Float[AnyArray, " links"] | Sequence[object],
    entries: int = ENTRIES,
) -> Int[np.ndarray, "..."]:
    """Return whole-number weights that split about as the fractions do: the largest remainders.

    Every fraction is multiplied by `entries` and rounded down; the entries that are left go to the
    largest remainders, to the first of equal ones. Weights that have a common divisor are divided
    by it, since fewer entries do the same.

    Args:
        fractions: (groups, links) or (links,), 0 or more, each row with a sum above 0, by which
            it is divided.
        entries: Most that the weights of a row may add up to.

    Returns:
        Weights of the same shape, whole numbers from 0.

    Raises:
        ModelError: If a fraction is negative or not finite, or a row is all zeros.

    Precision: The share of every link is within 1 / `entries` of its fraction, so a small fraction
        may become 0; the relative error of a link of fraction f is below 1 / (`entries` f). No
        rounding to as many entries has a smaller sum of absolute errors.

    Examples:
        >>> integer_tables([2 / 3, 1 / 3], entries=64).tolist()
        [43, 21]
        >>> integer_tables([0.5, 0.25, 0.25]).tolist()
        [2, 1, 1]
    """
    most = whole("entries", entries)
    given = np.array(fractions, np.float64)
    if given.ndim not in (1, 2):
        message = f"`integer_tables(fractions)` needs a row per group, but got shape {given.shape}."
        raise ModelError(message)
    rows = given.reshape(-1, given.shape[-1])
    wrong = np.flatnonzero(~(np.isfinite(rows) & (rows >= 0)).all(1))
    empty = np.flatnonzero(~(rows > 0).any(1))
    faults = []
    if len(wrong):
        faults.append(
            f"`integer_tables(fractions)` needs finite fractions of 0 or more, but {len(wrong):,} "
            f"of {len(rows):,} rows have others: rows {some(wrong.tolist())}."
        )
    elif len(empty):
        faults.append(
            f"`integer_tables(fractions)` needs a fraction above 0 in every row, but "
            f"{len(empty):,} of {len(rows):,} rows have none: rows {some(empty.tolist())}."
        )
    raise_faults(faults)
    share = rows / rows.sum(1, keepdims=True) * most
    weight = np.floor(share + 1e-12 * most).astype(np.int64)
    left = most - weight.sum(1, keepdims=True)
    order = np.argsort(-(share - weight), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    weight += rank < left
    return (weight // np.gcd.reduce(weight, axis=1)[:, None]).reshape(given.shape)
