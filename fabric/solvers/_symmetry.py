"""Classes of flows and links that no solve can tell apart, found by colour refinement.

A partition is *equitable* if all flows of a class cross the same classes of links and all links of
a class carry the same total use of every class of flows. Weights, caps and capacities being equal
within classes too, max-min rates are equal within classes of flows, and the classes form a max-min
problem of their own. Colours are hashes, so that two of them may be equal by accident: what is
found is compared entry by entry before it is used.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt64

from fabric._errors import InfeasibleError
from fabric._typing import FlowFloats
from fabric.network import Network, Routes
from fabric.network._checks import frozen
from fabric.solvers._certify import live_capacity
from fabric.solvers._plan import plain_array
from fabric.solvers._symmetry_graph import Entries, Graph, graph_of

LEAST = 2.0
"""Flows per class below which refinement gives up: solving as it stands is then as fast."""

MOST_WORK = 4_000_000_000
"""Entries that refinement reads before it gives up; about half a minute."""

SALTS = (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0)
"""Seeds of the hashes; the next one is tried after a collision."""

MASK = 2**64 - 1
"""Bits of a hash that are kept."""

SAME_SUM = 4 * np.finfo(np.float64).eps
"""Relative difference up to which two sums of fractions are the same; whole numbers are exact."""

KEPT = 4
"""Partitions that stay with the routes."""

Ids = Int[np.ndarray, " _"]
Columns = tuple[Float[np.ndarray, " _"], ...]


class Values(NamedTuple):
    """What flows and links may differ by beforehand."""

    capacity: Float[np.ndarray, " rows"]  # byte/s, of the smallest link of each row
    weight: Float[np.ndarray, " flows"]
    cap: Float[np.ndarray, " flows"]
    size: Float[np.ndarray, " flows"] | None


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The coarsest equitable partition of some values, and the usage between its classes.

    Arrays are read-only: they stay with the routes, and several quotients share them.

    Attributes:
        flow_class: (flows,). `first_flow`: (flow classes,), a member of each.
        first_flow: See `flow_class`.
        row_class: (rows,). `first_row`: (link classes,).
        first_row: See `row_class`.
        idle: The class of links that carry nothing, -1 where there is none.
        routes: Of classes of flows over classes of links.
        told: The values that were refined, of the first member of every class.
    """

    flow_class: Ids
    first_flow: Ids
    row_class: Ids
    first_row: Ids
    idle: int
    routes: Routes
    told: Values

    def split(self, values: Values) -> tuple[Ids, Ids]:
        """Return the classes of flows and of links that hold different values."""
        from fabric.kernels._refine import differing

        flows = np.zeros(len(self.first_flow), bool)
        for column in (values.weight, values.cap, values.size):
            if column is not None:
                flows |= differing(column, self.flow_class, self.first_flow)
        rows = differing(values.capacity, self.row_class, self.first_row)
        rows[[self.idle] if self.idle >= 0 else []] = False
        return np.flatnonzero(flows), np.flatnonzero(rows)

    def holds(self, values: Values) -> bool:
        """Return whether all members of every class have the same values."""
        return not any(len(classes) for classes in self.split(values))

    def is_of(self, values: Values) -> bool:
        """Return whether these values have this partition, and no coarser one.

        They have if they hold in it and tell apart all classes that the refined ones told apart:
        what refines these then refines those too, and this is the coarsest that does.
        """
        now = _at(values, self.first_flow, self.first_row, self.idle)
        flows = lambda v: (v.weight, v.cap, *(() if v.size is None else (v.size,)))
        return (
            _tells(flows(now), flows(self.told))
            and _tells((now.capacity,), (self.told.capacity,))
            and self.holds(values)
        )

    def routes_with(self, weight: Float[np.ndarray, " _"], cap: Float[np.ndarray, " _"]) -> Routes:
        """Return the routes of classes with the weights and caps of flows."""
        weight, cap = weight[self.first_flow], cap[self.first_flow]
        r = self.routes
        if np.array_equal(weight, r.weight) and np.array_equal(cap, r.cap):
            return r
        return dataclasses.replace(r, weight=weight, cap=cap).with_rule(**r.rule)


def values_of(
    network: Network,
    routes: Routes,
    weights: FlowFloats,
    caps: FlowFloats,
    sizes: FlowFloats | None = None,
) -> Values:
    """Return the values of a problem as refinement compares them."""
    plain = lambda x: _one_zero(plain_array(x, np.float64))
    capacity = _one_zero(graph_of(routes).least(live_capacity(network)))
    return Values(capacity, plain(weights), plain(caps), None if sizes is None else plain(sizes))


def _one_zero(column: Float[np.ndarray, " _"]) -> Float[np.ndarray, " _"]:
    """Return values whose bits are equal where they are: 0 and NaN have one form each."""
    if np.all(column > 0):
        return column
    return np.where(np.isnan(column), np.nan, column + 0.0)


def _at(values: Values, flow: Ids, row: Ids, idle: int) -> Values:
    """Return the values of some flows and rows; those of the idle row count as 0."""
    capacity = values.capacity[row]
    if idle >= 0:
        capacity[idle] = 0.0
    size = None if values.size is None else values.size[flow]
    return Values(capacity, values.weight[flow], values.cap[flow], size)


def _tells(columns: Columns, apart: Columns) -> bool:
    """Return whether items that differ in one of `apart` differ in one of `columns`."""
    n, ids = _numbered(columns)
    return n == _numbered(apart, ids)[0]


def _numbered(columns: Columns, ids: Ids | None = None) -> tuple[int, Ids]:
    """Return (how many, ids) of the different combinations of ids and values of items."""
    from fabric.kernels._refine import number

    ids = np.zeros(len(columns[0]), np.int64) if ids is None else ids
    n = min(len(ids), 1)
    for column in columns:
        mine, first = number(column.view(np.uint64))
        ids, kept = number((ids.astype(np.int64) * len(first) + mine).view(np.uint64))
        n = len(kept)
    return n, ids


def find(routes: Routes, values: Values, least: float = LEAST) -> Partition:
    """Return the coarsest equitable partition of these values: a known one, or a new one.

    Raises:
        InfeasibleError: If fewer than `least` flows per class are left, or refinement takes more
            than `MOST_WORK`.
    """
    known: list[Partition] = routes.plans.setdefault("symmetry", [])
    for partition in known:
        if partition.is_of(values):
            _give_up_if(len(partition.first_flow), routes.n_flows, least, 0)
            return partition
    graph = graph_of(routes)
    for salt in SALTS:
        colours = _coloured(graph, values, least, np.uint64(salt))
        if (partition := _partition(graph, values, colours)) is not None:
            known.insert(0, partition)
            # The first one found, usually without faults, is the one most often asked for.
            del known[KEPT - 1 : -1]
            return partition
    message = (
        f"`compress` met colliding hashes with each of {len(SALTS)} seeds. That does not happen "
        f'by accident; solve with `max_min_rates(..., method="auto")`.'
    )
    raise InfeasibleError(message)


class Colours(NamedTuple):
    """Classes by colour, and the first member of each; not to be trusted yet."""

    flows: tuple[Ids, Ids]
    bundles: tuple[Ids, Ids]
    rows: tuple[Ids, Ids]
    idle: Ids  # the class of rows that carry nothing, if there is one
    rounds: int


def _coloured(graph: Graph, values: Values, least: float, salt: np.uint64) -> Colours:
    """Refine colours until none splits any more."""
    from fabric.kernels import _refine

    hops, parts = graph.hops, graph.parts
    seed, keys = _seeds(values), np.empty(hops.n_left, np.uint64)
    rows = _refine.number(values.capacity.view(np.uint64))
    bundles = rows
    if parts is not None:
        bundles = _refine.number(_swept(parts, np.zeros(1, np.uint64), rows, salt)[0])
    rounds, before, now = 0, (0, 0), (-1, -1)
    row_total = np.zeros(graph.n_rows, np.uint64)
    while now != before:
        rounds += 1
        keys, total, about = _swept(hops, seed, bundles, salt, keys)
        # Linear counting is within two percent, six times its standard error.
        _give_up_if(int(about * 0.98), hops.n_left, least, rounds)
        if rounds * graph.work > MOST_WORK:
            _too_deep(rounds, about)
        recoloured = _refine.recoloured(bundles[0], total)
        if parts is None:
            bundles = rows = _refine.number(recoloured)
            row_total = total
        else:
            bundle_keys, row_total, _ = _swept(parts, recoloured, rows, salt)
            bundles = _refine.number(bundle_keys)
            rows = _refine.number(_refine.recoloured(rows[0], row_total))
        before, now = now, (len(bundles[1]), len(rows[1]))
    flows = _refine.number(keys)
    _give_up_if(len(flows[1]), hops.n_left, least, rounds)
    return Colours(flows, bundles, rows, np.flatnonzero(row_total[rows[1]] == 0), rounds)


def _partition(graph: Graph, values: Values, colours: Colours) -> Partition | None:
    """Return the partition by colours, None if it is not equitable: then hashes collided."""
    from fabric.kernels import _refine

    (flows, first_flow), bundles, (rows, first_row) = colours[:3]
    n_flows, n_bundles, n_links = len(first_flow), len(bundles[1]), len(first_row)
    ptr, crossed, use, fits = _refine.quotient(
        *graph.hops.arrays, *colours.flows, *bundles, SAME_SUM
    )
    link_ptr, link, link_use = np.zeros(1, np.int64), (), ()
    if graph.parts is not None and fits:
        link_ptr, link, link_use, fits = _refine.quotient(
            *graph.parts.arrays, *bundles, *colours.rows, SAME_SUM
        )
    if not fits:
        return None
    flow = _row_of(ptr)
    if graph.parts is not None and not len(link):  # bundles that lead nowhere
        flow, crossed, use, n_bundles = flow[:0], crossed[:0], use[:0], n_links
    routes = Routes.from_bundles(
        flow, crossed, use, _row_of(link_ptr), link, link_use,
        n_flows=n_flows, n_bundles=n_bundles, n_links=n_links,
        weights=values.weight[first_flow], caps=values.cap[first_flow],
    ).with_rule(name="quotient", rounds=colours.rounds)  # fmt: skip
    idle = int(colours.idle[0]) if len(colours.idle) else -1
    told = _at(values, first_flow, first_row, idle)
    for classes in (flows, first_flow, rows, first_row):
        frozen(classes)
    partition = Partition(flows, first_flow, rows, first_row, idle, routes, told)
    return partition if partition.holds(values) else None


def _row_of(ptr: Ids) -> Ids:
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def _swept(
    level: Entries,
    seed: UInt64[np.ndarray, " _"],
    colours: tuple[Ids, Ids],
    salt: np.uint64,
    keys: UInt64[np.ndarray, " left"] | None = None,
) -> tuple[UInt64[np.ndarray, " left"], UInt64[np.ndarray, " right"], float]:
    """Return (hash of every left item, sum per right item, about how many differ)."""
    from fabric.kernels import _refine

    keys = np.empty(level.n_left, np.uint64) if keys is None else keys
    total = np.zeros(level.n_right, np.uint64)
    about = _refine.sweep(
        *level.arrays, seed, colours[0], len(colours[1]), level.scale, salt, np.uint64(MASK),
        keys, total,
    )  # fmt: skip
    return keys, total, about


def _seeds(values: Values) -> UInt64[np.ndarray, " _"]:
    """Return what flows differ by beforehand: (flows,), or (1,) if by nothing."""
    from fabric.kernels._refine import blend

    seed = np.zeros(1, np.uint64)
    for column in (values.weight, values.cap, values.size):
        if column is None or not len(column):
            continue
        bits = column.view(np.uint64)
        if not (bits == bits[0]).all():
            seed = np.broadcast_to(seed, len(column)).copy() if len(seed) == 1 else seed
            blend(seed, bits)
    return seed


def _give_up_if(n_classes: int, n_flows: int, least: float, rounds: int) -> None:
    """Raise if there are fewer flows per class than asked for; classes only become more."""
    if n_classes * least <= n_flows or n_flows == 0:
        return
    after = f" after {rounds} rounds of refinement" if rounds else ""
    message = (
        f"`compress` found at least {n_classes:,} classes among {n_flows:,} flows{after}: "
        f"{n_flows / n_classes:.2f} flows per class, where `least={least:g}` are asked for. Paths "
        f'chosen by hash have no symmetry: solve with `max_min_rates(..., method="auto")`.'
    )
    raise InfeasibleError(message)


def _too_deep(rounds: int, about: float) -> None:
    message = (
        f"`compress` gave up after {rounds} rounds of refinement, with about {about:,.0f} classes "
        f"of flows and more in every round. Long chains of links do that: solve with "
        f'`max_min_rates(..., method="auto")`.'
    )
    raise InfeasibleError(message)
