"""`Routes`: which flow loads which link, on two levels: flow -> bundle -> link."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError, joined, raise_faults, some
from fabric._typing import AnyArray, FlowFloats, FlowInts
from fabric.network._checks import (
    INT32_MAX,
    float_array,
    frozen,
    index_array,
    number_faults,
    read_only,
    whole,
    wholes,
)

_KEPT = (
    "hop_flow", "hop_bundle", "hop_use", "part_bundle", "part_link", "part_use", "flow_of"
)  # fmt: skip


class Routes(eqx.Module):
    """Sparse usage of links by flows, with shared splits.

    A *bundle* is a split that many flows share, for example "leaf 17 up to every spine". The load
    on a link per unit rate of a flow is the sum over the flow's hops of `hop_use` times the
    `part_use` of that hop's bundle on the link. Without parts (`n_parts` 0) a bundle **is** a
    link, and `hop_bundle` holds link numbers. A use of 0 does not cross.

    Attributes:
        hop_flow, hop_bundle: (hops,), sorted by flow. One past the end marks padding.
        hop_use: (hops,), use of the bundle per unit rate of the flow, 0 or more. Traced.
        part_bundle, part_link: (parts,). One past the end marks padding.
        part_use: (parts,), load on the link per unit of the bundle, 0 or more. Traced.
        weight, cap: (flows,), dimensionless and byte/s. Traced.
        flow_of: (flows,), the flow that each row belongs to: with queue pairs a row is one
            queue pair (a subflow) and several rows belong to one flow.
        n_links, n_bundles, n_pairs: static counts; `n_pairs` counts the flows before they were
            split over queue pairs.

    Use `from_paths`, `from_csr` or `from_bundles`, which check and copy values. NumPy arrays of
    hops and parts refuse writes, since solvers keep layouts derived from them: make new routes.
    The constructor copies such arrays unless they are read-only already.

    Examples:
        >>> Routes.from_paths([[0, 1], [0]], n_links=2).hop_bundle.tolist()
        [0, 1, 0]
    """

    hop_flow: Int[AnyArray, " hops"]
    hop_bundle: Int[AnyArray, " hops"]
    hop_use: Float[AnyArray, " hops"]
    part_bundle: Int[AnyArray, " parts"]
    part_link: Int[AnyArray, " parts"]
    part_use: Float[AnyArray, " parts"]
    weight: FlowFloats
    cap: FlowFloats
    flow_of: FlowInts
    n_links: int = eqx.field(static=True)
    n_bundles: int = eqx.field(static=True)
    n_pairs: int = eqx.field(static=True)

    def __post_init__(self):
        self._freeze()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_plans", "_row_is_flow")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        self._freeze()  # copies and pickles of arrays come back writeable

    @property
    def n_flows(self) -> int:
        """Number of rows: flows, or queue pairs of flows."""
        return self.weight.shape[0]

    @property
    def n_hops(self) -> int:
        """Number of (flow, bundle) entries, padding included."""
        return self.hop_flow.shape[0]

    @property
    def n_parts(self) -> int:
        """Number of (bundle, link) entries, padding included; 0 when bundles are links."""
        return self.part_link.shape[0]

    @property
    def row_is_flow(self) -> bool:
        """Whether every row is the flow of its number; false where `flow_of` is traced."""
        if "_row_is_flow" not in self.__dict__:
            self._freeze()
            if self.n_pairs != self.n_flows or _is_traced(self.flow_of):
                return False
            own = np.array_equal(np.asarray(self.flow_of), np.arange(self.n_flows))
            object.__setattr__(self, "_row_is_flow", own)
        return self.__dict__["_row_is_flow"]

    @property
    def rule(self) -> dict[str, object]:
        """How these routes were chosen, for example `{"name": "ecmp", "seed": 0}`; host only."""
        return self.__dict__.get("_rule", {"name": "given"})

    @property
    def plans(self) -> dict[object, Any]:
        """Layouts that solvers derived from these routes, kept for the next solve; host only."""
        if "_plans" not in self.__dict__:
            self._freeze()  # routes out of a tree map have not seen their constructor
            object.__setattr__(self, "_plans", {})
        return self.__dict__["_plans"]

    def with_rule(self, **rule: object) -> "Routes":
        """Return these routes with a record of how they were chosen."""
        routes = dataclasses.replace(self)
        object.__setattr__(routes, "_rule", rule)
        object.__setattr__(routes, "_plans", self.plans)
        return routes

    def _freeze(self) -> None:
        # Weights and caps are in no layout; read-only, they would make every kernel compile twice.
        for name in _KEPT:
            object.__setattr__(self, name, read_only(getattr(self, name)))

    @classmethod
    def from_csr(
        cls,
        flow_ptr: AnyArray | Sequence[int],
        flow_links: AnyArray | Sequence[int],
        n_links: int,
        *,
        usage: AnyArray | Sequence[float] | None = None,
        weights: AnyArray | Sequence[float] | float = 1.0,
        caps: AnyArray | Sequence[float] | float = np.inf,
        pad_to: int | None = None,
        flow_of: AnyArray | Sequence[int] | None = None,
    ) -> "Routes":
        """Return one-level routes from compressed rows.

        Args:
            flow_ptr: (flows + 1,). Links of flow f are `flow_links[flow_ptr[f]:flow_ptr[f + 1]]`.
            flow_links: (hops,), link numbers.
            n_links: Links of the network.
            usage: (hops,), load on the link per unit rate of the flow. Default 1.
            weights: (flows,) or one value, more than 0.
            caps: (flows,) or one value, byte/s.
            pad_to: Pad the hops to this many, so that other routes share the compiled program.
            flow_of: (flows,), the flow of each row where rows are queue pairs.

        Raises:
            ModelError: If a link or a value is out of range; all faults at once.

        Examples:
            >>> Routes.from_csr([0, 2, 3], [0, 1, 1], n_links=2).n_flows
            2
        """
        n_links = whole("n_links", n_links, 0, INT32_MAX)
        faults: list[str] = []
        ptr = index_array("flow_ptr", flow_ptr, faults, dtype=np.int64)
        links = index_array("flow_links", flow_links, faults)
        raise_faults(faults)
        if len(ptr) == 0 or ptr[0] != 0 or np.any(np.diff(ptr) < 0) or ptr[-1] != len(links):
            message = (
                f"`flow_ptr` needs to rise from 0 to the number of entries of `flow_links` "
                f"({len(links):,}), but it does not."
            )
            raise ModelError(message)
        n_flows = len(ptr) - 1
        hop_flow = np.repeat(np.arange(n_flows, dtype=np.int32), np.diff(ptr))
        return cls.from_bundles(
            hop_flow, links, 1.0 if usage is None else usage, (), (), (),
            n_flows=n_flows, n_bundles=n_links, n_links=n_links,
            weights=weights, caps=caps, pad_hops=pad_to, flow_of=flow_of,
        )  # fmt: skip

    @classmethod
    def from_paths(
        cls,
        paths: Iterable[Sequence[int]],
        n_links: int,
        *,
        usage: Iterable[Sequence[float]] | None = None,
        weights: AnyArray | Sequence[float] | float = 1.0,
        caps: AnyArray | Sequence[float] | float = np.inf,
        pad_to: int | None = None,
    ) -> "Routes":
        """Return one-level routes from a list of links per flow; arguments as in `from_csr`.

        Examples:
            A flow that loads its second link at half its rate:

            >>> Routes.from_paths([[0, 1]], n_links=2, usage=[[1.0, 0.5]]).hop_use.tolist()
            [1.0, 0.5]
        """
        rows = _lists("paths", paths)
        ptr = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        flat = index_array("paths", [link for row in rows for link in row])
        used = None
        if usage is not None:
            uses = _lists("usage", usage)
            pairs = zip(uses, rows, strict=False)
            uneven = [i for i, (use, row) in enumerate(pairs) if len(use) != len(row)]
            found = [f"has {len(uses):,} rows for {len(rows):,} paths"] * (len(uses) != len(rows))
            if uneven:
                found.append(f"differs in length at flows {some(uneven)}")
            if found:
                message = f"`usage` needs one value per link of every path, but it {joined(found)}."
                raise ModelError(message)
            used = float_array("usage", [u for use in uses for u in use])
        return cls.from_csr(
            ptr, flat, n_links, usage=used, weights=weights, caps=caps, pad_to=pad_to
        )

    @classmethod
    def from_bundles(
        cls,
        hop_flow: AnyArray | Sequence[int],
        hop_bundle: AnyArray | Sequence[int],
        hop_use: AnyArray | Sequence[float] | float,
        part_bundle: AnyArray | Sequence[int],
        part_link: AnyArray | Sequence[int],
        part_use: AnyArray | Sequence[float] | float,
        *,
        n_flows: int,
        n_bundles: int,
        n_links: int,
        weights: AnyArray | Sequence[float] | float = 1.0,
        caps: AnyArray | Sequence[float] | float = np.inf,
        pad_hops: int | None = None,
        pad_parts: int | None = None,
        flow_of: AnyArray | Sequence[int] | None = None,
    ) -> "Routes":
        """Return two-level routes, values checked; hops are sorted by flow where they are not.

        Args:
            hop_flow: (hops,), flow of each hop.
            hop_bundle: (hops,), bundle of each hop; a link number when there are no parts.
            hop_use: (hops,) or one value, use of the bundle per unit rate of the flow, 0 or more.
            part_bundle: (parts,), bundle of each part. Empty: bundles are links.
            part_link: (parts,), link of each part.
            part_use: (parts,) or one value, load on the link per unit of the bundle, 0 or more.
            n_flows: Number of flows; a flow without hops is legal and needs a cap.
            n_bundles: Number of bundles; `n_links` when there are no parts.
            n_links: Links of the network.
            weights: (flows,) or one value, more than 0.
            caps: (flows,) or one value, byte/s.
            pad_hops: Pad the hops to this many.
            pad_parts: Pad the parts to this many; of no effect when there are no parts.
            flow_of: (flows,), the flow of each row where rows are queue pairs, from 0 to
                `n_flows` - 1.

        Raises:
            ModelError: If a number is out of range, or bundles are links but not as many; all
                faults at once.

        Examples:
            One flow, sprayed half and half over links 1 and 2 after link 0:

            >>> routes = Routes.from_bundles(
            ...     [0, 0], [0, 1], 1.0, [0, 1, 1], [0, 1, 2], [1.0, 0.5, 0.5],
            ...     n_flows=1, n_bundles=2, n_links=3,
            ... )
            >>> routes.n_parts
            3
        """
        n_flows, n_bundles, n_links = wholes(
            0, INT32_MAX, n_flows=n_flows, n_bundles=n_bundles, n_links=n_links
        )
        faults: list[str] = []
        flow = index_array("hop_flow", hop_flow, faults)
        bundle = index_array("hop_bundle", hop_bundle, faults)
        p_bundle = index_array("part_bundle", part_bundle, faults)
        p_link = index_array("part_link", part_link, faults)
        use = float_array("hop_use", hop_use, len(flow), faults)
        p_use = float_array("part_use", part_use, len(p_link), faults)
        weight = float_array("weights", weights, n_flows, faults)
        cap = float_array("caps", caps, n_flows, faults)
        rows = np.arange(n_flows, dtype=np.int32)
        if flow_of is not None:
            rows = index_array("flow_of", flow_of, faults)
        raise_faults(faults)
        one_level = len(p_link) == 0
        if one_level and n_bundles != n_links:
            faults.append(
                f"`n_bundles={n_bundles}` without parts: then bundles are links, but "
                f"`n_links={n_links}`. Give `part_bundle` and `part_link`, or "
                f"`n_bundles={n_links}`."
            )
        raise_faults(
            faults
            + _index_faults("hop_flow", flow, n_flows, "flow")
            + _index_faults("hop_bundle", bundle, n_bundles, "link" if one_level else "bundle")
            + _index_faults("part_bundle", p_bundle, n_bundles, "bundle")
            + _index_faults("part_link", p_link, n_links, "link")
            + _index_faults("flow_of", rows, n_flows, "flow")
            + _length_faults("hop_bundle", bundle, "hop_flow", flow)
            + _length_faults("hop_use", use, "hop_flow", flow)
            + _length_faults("part_bundle", p_bundle, "part_link", p_link)
            + _length_faults("part_use", p_use, "part_link", p_link)
            + _use_faults("hop_use", use)
            + _use_faults("part_use", p_use)
            + _per_flow_faults("weights", "weight", weight, n_flows, zero=False)
            + _per_flow_faults("caps", "cap in byte/s", cap, n_flows, zero=True)
            + _row_faults("flow_of", rows, n_flows)
        )
        if len(flow) and np.any(np.diff(flow) < 0):
            order = np.argsort(flow, kind="stable")
            flow, bundle, use = flow[order], bundle[order], use[order]
        flow, bundle, use = _padded(
            "pad_hops", pad_hops, (flow, n_flows), (bundle, n_bundles), (use, 0.0)
        )
        p_bundle, p_link, p_use = _padded(
            "pad_parts", None if one_level else pad_parts,
            (p_bundle, n_bundles), (p_link, n_links), (p_use, 0.0),
        )  # fmt: skip
        flow, bundle, use, p_bundle, p_link, p_use, rows = map(
            frozen, (flow, bundle, use, p_bundle, p_link, p_use, rows)
        )
        return cls(
            flow, bundle, use, p_bundle, p_link, p_use, weight, cap, rows,
            n_links=n_links, n_bundles=n_bundles, n_pairs=int(rows.max(initial=-1)) + 1,
        )  # fmt: skip

    def per_flow(self, rates: FlowFloats) -> Float[AnyArray, " pairs"]:
        """Return the rate of every flow from the rates of its queue pairs: their sum.

        Args:
            rates: (flows,) one per row, byte/s.

        Returns:
            (pairs,), byte/s, 0 for a flow without a row; `rates` itself where row i is flow i.

        Raises:
            ModelError: If there is not one rate per row.

        Differentiable in `rates`.
        """
        if np.shape(rates) != (self.n_flows,):
            message = (
                f"`per_flow(rates)` needs one rate for each of {self.n_flows:,} rows, but got "
                f"shape {np.shape(rates)}."
            )
            raise ModelError(message)
        if self.row_is_flow:
            return rates
        if isinstance(rates, np.ndarray):
            return np.bincount(np.asarray(self.flow_of), rates, minlength=self.n_pairs)
        import jax

        return jax.ops.segment_sum(rates, self.flow_of, self.n_pairs)


def _is_traced(values: AnyArray) -> bool:
    if isinstance(values, np.ndarray):
        return False
    import jax.core

    return isinstance(values, jax.core.Tracer)


def _lists(name: str, rows: Iterable[Iterable[Any]]) -> list[list[Any]]:
    try:
        return [list(row) for row in rows]
    except TypeError as error:
        message = f"`{name}` needs a list per flow, such as [[0, 1], [0]], but {error}."
        raise ModelError(message) from None


def _index_faults(name: str, index: np.ndarray, n: int, what: str) -> list[str]:
    bad = np.flatnonzero((index < 0) | (index >= n))
    if not len(bad):
        return []
    if not n:
        return [f"`{name}` has {len(index):,} entries, but there is no {what}."]
    return [
        f"`{name}` needs {what} numbers from 0 to {n - 1:,}, but {len(bad):,} of {len(index):,} "
        f"entries are not: {some(index[bad])}."
    ]


def _length_faults(name: str, values: np.ndarray, like: str, other: np.ndarray) -> list[str]:
    if len(values) == len(other):
        return []
    return [f"`{name}` has {len(values):,} entries, but `{like}` has {len(other):,}."]


def _use_faults(name: str, use: np.ndarray) -> list[str]:
    bad = np.flatnonzero(~(np.isfinite(use) & (use >= 0)))
    if not len(bad):
        return []
    return [
        f"`{name}` needs a finite use of 0 or more, but {len(bad):,} of {len(use):,} entries are "
        f"not, at entries {some(bad)}."
    ]


def _per_flow_faults(
    name: str, what: str, values: np.ndarray, n_flows: int, *, zero: bool
) -> list[str]:
    return _row_faults(name, values, n_flows) or number_faults(
        f"{name}=...", what, values, zero=zero, infinite=zero
    )


def _row_faults(name: str, values: np.ndarray, n_flows: int) -> list[str]:
    if len(values) == n_flows:
        return []
    return [f"`{name}` has {len(values):,} values for {n_flows:,} flows."]


def _padded(name: str, size: int | None, *columns: tuple[np.ndarray, float]) -> list[np.ndarray]:
    n = len(columns[0][0])
    size = n if size is None else whole(name, size, 0)
    if size == n:
        return [column for column, _ in columns]
    if size < n:
        fit = 1 << max(n - 1, 0).bit_length()
        message = f"`{name}={size:,}` is too small: there are {n:,} entries. Use `{name}={fit}`."
        raise ModelError(message)
    return [
        np.concatenate([column, np.full(size - n, fill, column.dtype)]) for column, fill in columns
    ]
