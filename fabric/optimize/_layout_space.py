"""`Space`: all layouts of a model on some GPUs as a table, and why the others are not in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import prod
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError, nearest, raise_faults
from fabric._memory import UNASKED, afford
from fabric.hardware import Profile, Stack
from fabric.network import Placement, is_whole, whole_or_fault
from fabric.optimize._layout_choice import Choice
from fabric.optimize._layout_memory import Held
from fabric.optimize._layout_score import Rows
from fabric.optimize._layout_wires import DIMENSIONS, Degrees
from fabric.training import Layout, Model

REASONS = (
    "beyond a limit that was set",
    "tp does not divide the query heads",
    "tp does not divide the rows of the MLP",
    "tp neither divides the key and value heads nor is a multiple of them",
    "pp x vpp does not divide the layers",
    "vpp without a pipeline, or with the gpipe schedule",
    "the sequence is no multiple of 2 cp x tp",
    "mb x dp does not divide the global batch",
    "vpp needs a multiple of pp microbatches",
    "sp with tp1 is the same as without",
    "zero with one rank that shares is the same as zero0",
    "selective recompute of fused attention is the same as none",
    "memory",
    "the same as another rank order",
)
"""Why a layout is left out. One with several reasons counts under the first of them."""

_MEMORY = REASONS.index("memory")
_SELECTIVE = REASONS.index("selective recompute of fused attention is the same as none")
_ORDER = REASONS.index("the same as another rank order")
_SIZES = ("tp", "cp", "dp", "pp", "vpp", "mb", "zero", "sp")
LIMITS = ("tp", "cp", "dp", "pp", "vpp", "mb", "zero")
_ALL = tuple(permutations(DIMENSIONS))
# Measured at the peak: of a combination of sizes, and of a layout with an order of ranks.
_BYTES_PER_SHAPE, _BYTES_PER_ROW = 300, 100


@dataclass(frozen=True, eq=False)
class Space:
    """All layouts that suit a model and fit in memory, as a table, and the reasons of the others.

    A row is a layout and an order of ranks. Rows that differ in the order only share their columns:
    `shape_of` says which.

    Attributes:
        model: Its shape.
        stack: Of the profile.
        gpus: Numbers of GPUs.
        gbs, seq, dtype, schedule: As of a `Layout`.
        columns: (shapes,), the layouts; `parameters` is of the heaviest stage.
        held: (shapes,), bytes on the GPUs of the heaviest stage.
        capacity: Bytes of a GPU.
        degrees: Sizes and orders of ranks that occur.
        shape_of, degrees_of: (rows,).
        candidates: Layouts with orders of ranks that were looked at.
        pruned: How many were left out for each reason; with the rows they add up to `candidates`.

    Examples:
        >>> from fabric import hardware
        >>> model, profile = Model.listed("llama-3.1-8b"), hardware.profile("megatron-core-h100")
        >>> space = Space.of(model, profile, capacity=80e9, gpus=[8], gbs=64, seq=8192)
        >>> space.n_rows + sum(space.pruned.values()) == space.candidates
        True
        >>> space.reason("tp1 dp8 gbs64 seq8192")
        'memory'
    """

    model: Model
    stack: Stack
    gpus: tuple[int, ...]
    gbs: int
    seq: int
    dtype: str
    schedule: str
    columns: Rows
    held: Float[np.ndarray, " shapes"]
    capacity: float
    degrees: tuple[Degrees, ...]
    shape_of: Int[np.ndarray, " rows"]
    degrees_of: Int[np.ndarray, " rows"]
    candidates: int
    pruned: Mapping[str, int]
    _rules: "_Rules" = field(repr=False)

    @classmethod
    def of(
        cls,
        model: Model,
        profile: Profile,
        *,
        capacity: float,
        gpus: Sequence[int],
        gbs: int,
        seq: int,
        dtype: str = "bf16",
        schedule: str = "1f1b",
        recompute: str = "modes",
        rank_orders: Sequence[Sequence[str]] = (DIMENSIONS,),
        limits: Mapping[str, int] | None = None,
        least_margin: float = 0.0,
    ) -> "Space":
        """Return the table.

        Args:
            model: Its shape.
            profile: Its stack says what is kept in memory, and whether attention is fused.
            capacity: Bytes of a GPU.
            gpus: Numbers of GPUs; a layout uses all of one of them.
            gbs: Global batch in sequences.
            seq: Tokens of a sequence.
            dtype: Of the matrix products.
            schedule: "1f1b" or "gpipe".
            recompute: "modes": none, selective or full. "counts": also full for only some layers
                of every chunk, as `--recompute-num-layers` of Megatron with the method "block".
            rank_orders: Orders of the dimensions, fastest first.
            limits: Largest sizes, by name of `LIMITS`.
            least_margin: Share of the memory that has to be left.

        Raises:
            ModelError: If a limit is unknown or no whole number, or the sequence is too long for
                the model.
            InfeasibleError: If the table would not fit in memory.
        """
        faults: list[str] = []
        limits = largest_sizes(limits, faults)
        raise_faults(faults)
        Layout(gbs=gbs, seq=seq, dtype=dtype, schedule=schedule).check(model)
        gbs, seq = int(gbs), int(seq)
        rules = _Rules(
            model, gbs, seq, schedule, limits, recompute, tuple(map(tuple, rank_orders)),
            profile.stack.attention == "unfused", Held(model, profile, gbs, seq, dtype, schedule),
            capacity * (1 - least_margin),
        )  # fmt: skip
        box = _box(model, gpus, gbs)
        code = rules.shape_codes(box)
        weight = rules.choices(box) * len(rules.orders)
        _afford(int(weight[code < 0].sum()), _BYTES_PER_ROW)
        counts = np.bincount(code[code >= 0], weight[code >= 0], len(REASONS))
        candidates = int(weight.sum())
        columns, mode = rules.recomputed({k: v[code < 0] for k, v in box.items()})
        fused = (mode == 1) & (not rules.unfused)
        counts[_SELECTIVE] += fused.sum() * len(rules.orders)
        rows = _rows({k: v[~fused] for k, v in columns.items()}, rules.held)
        held = rules.held.bytes(rows)
        fits = held <= rules.room
        counts[_MEMORY] += (~fits).sum() * len(rules.orders)
        rows = Rows(*(column[fits] for column in rows))

        sizes = np.stack([rows.tp, rows.cp, rows.dp, rows.pp]).astype(np.int64)
        tuples, of = np.unique(sizes, axis=1, return_inverse=True)
        degrees: list[Degrees] = []
        begun = [0]
        for column in tuples.T.tolist():
            t, c, d, p = column
            degrees += [Degrees(t, c, d, p, order) for order in rules.different(column)]
            begun.append(len(degrees))
        orders = np.diff(begun)[of.ravel()]
        shape_of = np.repeat(np.arange(len(orders), dtype=np.int32), orders)
        within = np.arange(len(shape_of)) - np.repeat(np.cumsum(orders) - orders, orders)
        degrees_of = (np.array(begun)[of.ravel()][shape_of] + within).astype(np.int32)
        counts[_ORDER] += len(orders) * len(rules.orders) - len(shape_of)
        pruned = {
            reason: round(count) for reason, count in zip(REASONS, counts, strict=True) if count
        }
        return cls(
            model, profile.stack, tuple(gpus), gbs, seq, dtype, schedule, rows, held[fits],
            capacity, tuple(degrees), shape_of, degrees_of, candidates, pruned, rules,
        )  # fmt: skip

    @property
    def n_rows(self) -> int:
        """Number of layouts with orders of ranks."""
        return len(self.shape_of)

    @property
    def margin(self) -> Float[np.ndarray, " shapes"]:
        """(shapes,), share of the memory that is left on the heaviest stage."""
        return 1 - self.held / self.capacity

    def layout(self, row: int) -> Layout:
        """Return the layout of a row; of some layers, "full" recompute."""
        c = {name: value[self.shape_of[row]] for name, value in self.columns._asdict().items()}
        mode = "full" if c["recomputed"] else "selective" if c["selective"] else "none"
        sizes: dict[str, Any] = {name: int(c[name]) for name in (*DIMENSIONS, "vpp", "mb", "zero")}
        return Layout(
            gbs=self.gbs, seq=self.seq, sp=bool(c["sp"]), dtype=self.dtype,
            schedule=self.schedule, recompute=mode, **sizes,
        )  # fmt: skip

    def recomputed_layers(self, row: int) -> int:
        """Return how many layers of a stage are computed again as a whole."""
        return int(self.columns.recomputed[self.shape_of[row]])

    def choice(self, row: int, gpu_of: Int[np.ndarray, " slots"], seconds: float) -> Choice:
        """Return a row ready to use.

        Args:
            row: Which one.
            gpu_of: (slots,), GPUs in the order in which ranks fill them.
            seconds: Of its step.
        """
        degrees = self.degrees[self.degrees_of[row]]
        return Choice(
            layout=self.layout(row), rank_order="-".join(degrees.order),
            recompute_layers=self.recomputed_layers(row),
            placement=Placement(degrees.ranks(gpu_of)), step_time=float(seconds),
            margin=float(self.margin[self.shape_of[row]]),
        )  # fmt: skip

    def reason(
        self,
        layout: Layout | str,
        *,
        recompute_layers: int | None = None,
        rank_order: Sequence[str] = DIMENSIONS,
    ) -> str | None:
        """Return why a layout is not in the table; None: it is.

        Args:
            layout: Or its words; its batch, sequence, dtype and schedule are those of the table.
            recompute_layers: Of a stage. Default: all with `recompute=full`, else 0.
            rank_order: Fastest first.

        Raises:
            ModelError: If batch, sequence, dtype, schedule, number of GPUs, order of ranks or
                number of recomputed layers are none that the table is of; all faults at once.
        """
        if isinstance(layout, str):
            layout = Layout.parse(layout)
        whole = self.model.layers // layout.pp if layout.recompute == "full" else 0
        count = whole if recompute_layers is None else recompute_layers
        order = tuple(rank_order)
        raise_faults([*self._strange(layout, order), *self._rules.strange(layout, count, whole)])
        values = {name: np.array([float(getattr(layout, name))]) for name in _SIZES}
        if (code := int(self._rules.shape_codes(values)[0])) >= 0:
            return REASONS[code]
        selective = layout.recompute == "selective"
        if selective and not self._rules.unfused:
            return REASONS[_SELECTIVE]
        values |= {
            "selective": np.array([float(selective)]), "recomputed": np.array([float(count)]),
        }  # fmt: skip
        if self._rules.held.bytes(_rows(values, self._rules.held))[0] > self._rules.room:
            return REASONS[_MEMORY]
        sizes = [layout.tp, layout.cp, layout.dp, layout.pp]
        return None if order in self._rules.different(sizes) else REASONS[_ORDER]

    def _strange(self, layout: Layout, order: tuple[str, ...]) -> list[str]:
        """Return what of a layout no table like this one is of."""
        faults = [
            f"The table is of `{name}` {own}, but the layout has {getattr(layout, name)}."
            for name in ("gbs", "seq", "dtype", "schedule")
            if (own := getattr(self, name)) != getattr(layout, name)
        ]
        if layout.gpus not in self.gpus:
            known = " or ".join(f"{n:,}" for n in self.gpus)
            faults.append(f"The table is of {known} GPUs, but the layout has {layout.gpus:,}.")
        if order not in self._rules.orders:
            faults.append(f"The order of ranks '{'-'.join(order)}' was not asked for.")
        return faults


@dataclass(frozen=True, eq=False)
class _Rules:
    """What is allowed, for columns of sizes."""

    model: Model
    gbs: int
    seq: int
    schedule: str
    limits: Mapping[str, int]
    recompute: str
    orders: tuple[tuple[str, ...], ...]
    unfused: bool
    held: Held
    room: float

    def shape_codes(self, c: Mapping[str, Any]) -> Int[np.ndarray, " shapes"]:
        """Return the first reason against each shape, recompute left out; -1: none."""
        model, tp, interleaved = self.model, c["tp"], c["vpp"] > 1
        waves = c["mb"] * c["dp"]
        pieces = np.where(c["cp"] > 1, 2 * c["cp"], 1) * np.where(c["sp"] > 0, tp, 1)
        against = [
            np.any([c[name] > most for name, most in self.limits.items()], axis=0)
            if self.limits
            else np.zeros(len(tp), bool),
            model.heads % tp > 0,
            model.ffn % tp > 0,
            (model.kv_heads % tp > 0) & (tp % model.kv_heads > 0),
            model.layers % (c["pp"] * c["vpp"]) > 0,
            interleaved & ((c["pp"] == 1) | (self.schedule == "gpipe")),
            self.seq % pieces > 0,
            self.gbs % waves > 0,
            interleaved & (self.gbs // waves % c["pp"] > 0),
            (c["sp"] > 0) & (tp == 1),
            (c["zero"] > 0) & (c["dp"] * c["cp"] == 1),
        ]
        table = np.stack(against)
        return np.where(table.any(axis=0), table.argmax(axis=0), -1)

    def choices(self, c: Mapping[str, Any]) -> Float[np.ndarray, " shapes"]:
        """Return how many choices of recompute a shape has."""
        if self.recompute != "counts":
            return np.full(len(c["tp"]), 3.0)
        return 2.0 + np.maximum(self.model.layers // (c["pp"] * c["vpp"]), 1.0)

    def strange(self, layout: Layout, count: int, whole: int) -> list[str]:
        """Return a fault if so many recomputed layers of a stage are no choice."""
        some = self.recompute == "counts" and whole
        choices = range(0, whole + 1, layout.vpp) if some else (whole,)
        if count in choices and (count > 0 or not whole):
            return []
        multiples = f"multiples of vpp = {layout.vpp} up to {whole}" if some else f"{whole}"
        return [f"`recompute_layers={count}` is no choice here. Choices: {multiples}."]

    def recomputed(self, c: dict[str, Any]) -> tuple[dict[str, Any], Int[np.ndarray, " rows"]]:
        """Return the shapes with every choice of recompute, and the number of the choice.

        0: none, 1: selective, 2 on: 1, 2, ... layers of every chunk as a whole.
        """
        count = self.choices(c).astype(np.int64)
        of = np.repeat(np.arange(len(count)), count)
        mode = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
        wide = {name: column[of] for name, column in c.items()}
        chunk = self.model.layers / (wide["pp"] * wide["vpp"])
        layers = np.where(self.recompute == "counts", np.maximum(mode - 1.0, 0.0), chunk)
        recomputed = np.where(mode > 1, layers * wide["vpp"], 0.0)
        return wide | {"selective": (mode == 1) * 1.0, "recomputed": recomputed}, mode

    def different(self, sizes: Sequence[int]) -> list[tuple[str, ...]]:
        """Return the orders of ranks that differ: dimensions of size 1 may stand anywhere."""
        wide = {name for name, size in zip(DIMENSIONS, sizes, strict=True) if size > 1}
        seen: dict[tuple[str, ...], tuple[str, ...]] = {}
        for order in self.orders:
            seen.setdefault(tuple(name for name in order if name in wide), order)
        return list(seen.values())


def orders_of(asked: object) -> tuple[tuple[str, ...], ...]:
    """Return orders of ranks from what a user says: "all", or "tp-cp-dp-pp", or several of these.

    Raises:
        ModelError: If one is no order of tp, cp, dp and pp.

    Examples:
        >>> orders_of("tp-dp-cp-pp"), len(orders_of("all"))
        ((('tp', 'dp', 'cp', 'pp'),), 24)
    """
    if asked == "all":
        return _ALL
    listed = [asked] if isinstance(asked, str) or not isinstance(asked, Sequence) else asked
    orders = [_order(one) for one in listed]
    wrong = [order for order in orders if order not in _ALL]
    if wrong or not orders:
        message = (
            f"`rank_orders` needs orders of tp, cp, dp and pp, fastest first, but got "
            f"'{'-'.join(map(str, wrong[0])) if wrong else ''}'. Use 'tp-cp-dp-pp', or 'all'."
        )
        raise ModelError(message)
    return tuple(dict.fromkeys(orders))


def _order(said: object) -> tuple[Any, ...]:
    words = said.split("-") if isinstance(said, str) else said
    return tuple(words) if isinstance(words, Sequence) else (words,)


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def asked_of(
    model: object, gbs: Any, seq: Any, dtype: Any, schedule: Any, limits: object,
    rank_orders: object, faults: list[str],
) -> tuple[dict[str, int], tuple[tuple[str, ...], ...]]:  # fmt: skip
    """Return largest sizes and orders of ranks; what is wrong with them or a batch becomes faults.

    Args:
        model: That a sequence may be too long for; not looked at unless it is a `Model`.
        gbs: As of a `Layout`, and so the next three.
        seq: Tokens of a sequence.
        dtype: Of the matrix products.
        schedule: "1f1b" or "gpipe".
        limits: As a user says them.
        rank_orders: As a user says them.
        faults: Where faults go.
    """
    try:
        gbs, seq = (int(size) if is_whole(size) else size for size in (gbs, seq))
        whole = Layout(gbs=gbs, seq=seq, dtype=dtype, schedule=schedule)
        if isinstance(model, Model):
            whole.check(model)
    except ModelError as error:
        faults.append(str(error))
    sizes = largest_sizes(limits, faults)
    try:
        return sizes, orders_of(rank_orders)
    except ModelError as error:
        faults.append(str(error))
        return sizes, ()


def largest_sizes(asked: object, faults: list[str]) -> dict[str, int]:
    """Return what a user says of largest sizes, by name; what is wrong with it becomes faults.

    Examples:
        >>> largest_sizes({"tp": 8, "zero": 0}, [])
        {'tp': 8, 'zero': 0}
    """
    if not isinstance(asked, Mapping | None):
        faults.append(f"`limits` needs sizes by name, as {{'tp': 8}}, but got {asked!r:.60}.")
        return {}
    found: dict[str, int] = {}
    for name, most in (asked or {}).items():
        if name not in LIMITS:
            faults.append(f"`limits={{{name!r}: ...}}`: {nearest(str(name), LIMITS)}")
        else:
            least = int(name != "zero")
            found[name] = whole_or_fault(f"limits[{name!r}]", most, faults, least=least)
    return found


def _afford(rows: int, each: int) -> None:
    if rows * each > UNASKED:
        afford(
            f"A table of {rows:,} layouts", float(rows) * each,
            "Set `limits`, ask for fewer `rank_orders` or numbers of GPUs, or use "
            "`recompute='modes'`.",
        )  # fmt: skip


def _box(model: Model, gpus: Sequence[int], gbs: int) -> dict[str, Any]:
    """Return all combinations of sizes whose product is a number of GPUs; recompute left out."""
    tuples = [
        (t, c, n // (t * c * p), p)
        for n in dict.fromkeys(gpus)
        for t in _divisors(n)
        for c in _divisors(n // t)
        for p in _divisors(n // (t * c))
    ]
    choices = (_divisors(model.layers), _divisors(gbs), range(4), range(2))
    _afford(len(tuples) * prod(map(len, choices)), _BYTES_PER_SHAPE)
    rest = np.stack(np.meshgrid(*choices, indexing="ij")).reshape(len(choices), -1)
    sizes = np.array(tuples, np.int64).T
    table = np.concatenate(
        [np.repeat(sizes, rest.shape[1], axis=1), np.tile(rest, (1, sizes.shape[1]))]
    )
    return dict(zip(_SIZES, table.astype(np.float64), strict=True))


def _rows(c: Mapping[str, Any], held: Held) -> Rows:
    first, last = held.parameters(c["tp"], c["pp"])
    return Rows(parameters=np.maximum(first, last), **c)
