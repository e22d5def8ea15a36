"""Gather tables for rounds: how flows and links are put into buckets, and which shapes are shared.

The shape of tables fixes a compiled program. Shapes are rounded, and tables that fit into a shape
already seen without much waste take it: flows and links stand in wider buckets than they need. So
new values, and other routes much like them, run the same program.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from fabric._typing import AnyArray
from fabric.kernels._table_rounds import PASSES, Tables
from fabric.solvers._plan import CompiledPlan

WIDTHS = np.array([*range(1, 9), *(w << k for k in range(28) for w in (10, 12, 14, 16))])
"""Widths of buckets; at most a quarter of one is padding."""

Bucket = tuple[int, int]  # width and columns
Side = tuple[Bucket, ...]  # by rising width

PER_BUCKET, PER_BUCKET_SHARE = 4096, 0.1
"""Entries, and a share of all entries, that a bucket less is worth: each takes long to compile."""

SMALL = 2**14
"""Hops up to which tables get the widths and uses that others of that size may want."""

FEW = 512
"""Columns up to which these are rounded up to a power of two, since reading them costs little."""

ONE_BUCKET = 2**17
"""Entries up to which they are one bucket; more only pad, where one link is far the widest."""

WASTE = 2.0
"""Entries of a known shape over those needed, up to which the known one is taken."""

ROOM = 1.25
"""Flows and links that tables of live flows have room for, over those there are."""

SECTOR, INDEX = 32, 4
"""Bytes that a gather of one value moves at least, and of one index."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """What fixes the program: the buckets of flows and of links, and whether uses are kept."""

    flows: Side
    links: Side
    uses: bool


@dataclasses.dataclass(frozen=True)
class Hops:
    """Hops on shared links of some flows, a row of links for each.

    Attributes:
        flow: (rows,), number of the flow.
        ptr: (rows,), where its hops begin.
        end: (rows,), where they end; there is at least one.
        at: (hops,), links, or classes of links.
        use: (hops,), empty where every use is 1.
        n_links: Number of links.
    """

    flow: np.ndarray
    ptr: np.ndarray
    end: np.ndarray
    at: np.ndarray
    use: np.ndarray
    n_links: int

    @property
    def n_hops(self) -> int:
        """Hops of these rows."""
        return int((self.end - self.ptr).sum())


@dataclasses.dataclass(frozen=True)
class TablePlan:
    """Tables of some hops, and what stands where in them.

    Attributes:
        tables: On the device.
        shape: Theirs.
        hops: What the tables hold.
        place: (rows,), the place of the flow of each row.
        flow_at: (places,), the flow at each place, -1 for padding.
        link_at: (places,), the link at each place, -1 for padding.
    """

    tables: Tables
    shape: Shape
    hops: Hops
    place: np.ndarray
    flow_at: np.ndarray
    link_at: np.ndarray

    @property
    def bytes_per_round(self) -> int:
        """The least that one round moves: an index and a sector for every hop and pass."""
        return PASSES * (INDEX + SECTOR) * self.hops.n_hops

    @property
    def entries(self) -> int:
        """Entries of all tables that one round reads, padding included."""
        return PASSES // 2 * (_size(self.shape.flows) + _size(self.shape.links))


def hops_of(plan: CompiledPlan) -> Hops:
    """Return the hops on shared links of a narrow plan; a private link is a limit of its flow."""
    flow = np.flatnonzero(plan.flow_end > plan.flow_ptr[:-1]).astype(np.int32)
    use = np.zeros(0) if plan.uses is None else plan.uses
    return Hops(flow, plan.flow_ptr[flow], plan.flow_end[flow], plan.hop_at, use, plan.n_shared)


def table_plan(
    hops: Hops, *, uses: bool, kind: np.dtype, known: list[Shape], room: float = 1.0
) -> TablePlan:
    """Return tables of hops.

    Args:
        hops: What to put in them.
        uses: Whether to keep uses though all may be 1.
        kind: Type of uses.
        known: Shapes seen so far; a new one is added.
        room: How many flows and links a new shape is for, over those there are.
    """
    from fabric.kernels import _tables

    flow_degree, link_degree = _tables.degrees(hops.ptr, hops.end, hops.at, hops.n_links)
    flow_rank, flow_count = _tables.by_width(flow_degree, WIDTHS)
    link_rank, link_count = _tables.by_width(link_degree, WIDTHS)
    counts, uses = (flow_count, link_count), uses or len(hops.use) > 0
    shape = _shape(*counts, uses, hops.n_hops <= SMALL, known, room)
    place, flow_at = _placed(flow_rank, _spots(flow_count, shape.flows))
    link_place, link_at = _placed(link_rank, _spots(link_count, shape.links))
    path = np.full(_size(shape.flows), len(link_at) - 1, np.int32)
    table = np.full(_size(shape.links), len(flow_at) - 1, np.int32)
    table_use = np.zeros(len(table) if shape.uses else 0)
    _tables.fill_tables(
        hops.ptr, hops.end, hops.at, hops.use, place, link_place,
        *_layout(shape.flows), path, *_layout(shape.links), table, table_use,
    )  # fmt: skip
    used = _cut(table_use.astype(kind), shape.links) if shape.uses else ()
    flow_at[flow_at >= 0] = hops.flow[flow_at[flow_at >= 0]]
    tables = Tables(_cut(path, shape.flows), _cut(table, shape.links), used)
    return TablePlan(tables, shape, hops, place, flow_at, link_at)


def _shape(
    flow_count: np.ndarray,
    link_count: np.ndarray,
    uses: bool,
    small: bool,
    known: list[Shape],
    room: float,
) -> Shape:
    """Return the smallest known shape that fits if it wastes little, else a new one."""
    cost = lambda shape: _size(shape.flows) + _size(shape.links)
    made = lambda room: Shape(_side(flow_count, small, room), _side(link_count, small, room), uses)
    needed = cost(made(1.0))
    fits = [
        shape
        for shape in known
        if shape.uses == uses
        and cost(shape) <= WASTE * needed
        and _spots(flow_count, shape.flows) is not None
        and _spots(link_count, shape.links) is not None
    ]
    if fits:
        return min(fits, key=cost)
    known.append(made(room))
    return known[-1]


def _side(count: np.ndarray, small: bool, room: float) -> Side:
    """Return buckets for so many items of every width, with room for padding and some more.

    Args:
        count: (widths,).
        small: Whether to take one bucket, its width and, up to `FEW`, columns powers of two.
        room: Times as many items. If more than 1, the widest bucket is one size wider.
    """
    if small:
        widest = int(np.flatnonzero(count)[-1]) if count.any() else 0
        width, columns = _power(int(WIDTHS[widest])), int(count.sum()) + 1
        columns = _power(columns) if columns <= FEW else _rounded(columns)
        if width * columns <= ONE_BUCKET:
            return ((width, columns),)
    # best[j]: the fewest entries for items of the first j widths, and where the last bucket begins.
    at = np.flatnonzero(count)
    width, items = WIDTHS[at], np.concatenate([[0], np.cumsum(count[at])])
    per_bucket = PER_BUCKET + PER_BUCKET_SHARE * float(width @ count[at])
    best, cut = [0.0], [0]
    for j in range(1, len(at) + 1):
        costs = [best[i] + width[j - 1] * (items[j] - items[i]) + per_bucket for i in range(j)]
        cut.append(int(np.argmin(costs)))
        best.append(costs[cut[-1]])
    side, j = [], len(at)
    while j > 0:
        i = cut[j]
        columns = int(room * (items[j] - items[i])) + (j == len(at))
        side.append((int(WIDTHS[at[j - 1] + (room > 1 and j == len(at))]), _rounded(columns)))
        j = i
    return tuple(side[::-1])


def _power(n: int) -> int:
    """Return the next power of two, and at least 8."""
    return 1 << max((n - 1).bit_length(), 3)


def _rounded(n: int) -> int:
    """Return the next number of the form 8 to 15 times a power of two, and at least 8."""
    step = 1 << max(n.bit_length() - 4, 3)
    return -(-n // step) * step


def _spots(count: np.ndarray, side: Side) -> np.ndarray | None:
    """Return the place of each item, items by rising width; None if they do not fit.

    The narrowest items take the narrowest bucket; the last column is left for padding.
    """
    pieces, bucket, column, start = [], 0, 0, 0
    for k in np.flatnonzero(count):
        left = int(count[k])
        while left:
            if bucket == len(side):
                return None
            width, columns = side[bucket]
            free = columns - column - (bucket == len(side) - 1)
            if width < WIDTHS[k] or free <= 0:
                bucket, column, start = bucket + 1, 0, start + columns
                continue
            taken = min(left, free)
            pieces.append(np.arange(start + column, start + column + taken, dtype=np.int32))
            column, left = column + taken, left - taken
    spots = np.concatenate([np.zeros(0, np.int32), *pieces])
    return np.append(spots, np.int32(sum(columns for _, columns in side)))


def _placed(rank: np.ndarray, spots: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return (place of each item, item at each place), -1 where there is none."""
    assert spots is not None  # the shape was chosen to fit
    place = np.where(rank >= 0, spots[rank], np.int32(-1))
    item_at = np.full(spots[-1], -1, np.int32)
    items = np.flatnonzero(rank >= 0).astype(np.int32)
    item_at[place[items]] = items
    return place, item_at


def _size(side: Side) -> int:
    return sum(width * columns for width, columns in side)


def _layout(side: Side) -> tuple[np.ndarray, np.ndarray]:
    """Return (base, stride) per place: where its first entry stands, and the way to the next."""
    base, stride, start = [], [], 0
    for width, columns in side:
        base.append(start + np.arange(columns, dtype=np.int64))
        stride.append(np.full(columns, columns, np.int32))
        start += width * columns
    return np.concatenate(base), np.concatenate(stride)


def _cut(flat: np.ndarray, side: Side) -> tuple[AnyArray, ...]:
    """Return the table of every bucket, on the device."""
    tables, start = [], 0
    # Tables outlive the trace that first asks for them.
    with jax.ensure_compile_time_eval():
        for width, columns in side:
            rows = flat[start : start + width * columns].reshape(width, columns)
            tables.append(jnp.asarray(rows))
            start += width * columns
    return tuple(tables)
