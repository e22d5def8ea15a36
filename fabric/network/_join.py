"""`join`: routes whose rows are the hops of several routes, one behind the other."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from fabric._errors import raise_faults
from fabric._typing import AnyArray
from fabric.network._checks import frozen, index_array, whole
from fabric.network._flows import Flows
from fabric.network._routes import Routes

Leg = tuple[Routes, AnyArray | Sequence[int]]


def join(flows: Flows, legs: Sequence[Leg], *, queue_pairs: int = 1) -> Routes:
    """Return routes that run through several legs, one behind the other.

    Args:
        flows: (flows,). Weights and caps travel into the routes.
        legs: From source to destination, each with the row of its routes that every row of the
            result takes, -1 for none: (rows,) with rows = flows x queue pairs. Routes that occur
            in several legs share their bundles.
        queue_pairs: Rows per flow, each with 1/n of the weight and 1/n of the cap.

    Returns:
        One-level `Routes` where those of every leg are, else two-level. The hops of a row are
        those of its legs, in order.

    Raises:
        ModelError: If legs count links differently, or rows are missing or out of range; all
            faults at once.

    Examples:
        Two flows leave over links 0 and 1, and both arrive over link 2:

        >>> ways = Routes.from_paths([[0], [1], [2]], n_links=3)
        >>> both = join(Flows([0, 1], [2, 2]), [(ways, [0, 1]), (ways, [2, 2])])
        >>> both.hop_flow.tolist(), both.hop_bundle.tolist()
        ([0, 0, 1, 1], [0, 2, 1, 2])
    """
    pairs = whole("queue_pairs", queue_pairs)
    n_rows = flows.n_flows * pairs
    rows = _checked(legs, n_rows)
    distinct = list({id(routes): routes for routes, _ in legs}.values())
    order = [id(routes) for routes in distinct]
    which = [order.index(id(routes)) for routes, _ in legs]
    n_links = distinct[0].n_links
    two_level = any(routes.n_parts for routes in distinct)
    counts = [routes.n_bundles if two_level else 0 for routes in distinct]
    base = np.cumsum([0, *counts])
    tables = [_rows_of(routes) for routes in distinct]

    width = np.zeros((len(legs), n_rows), np.int32)
    for k, (leg, row) in enumerate(zip(which, rows, strict=True)):
        taken = row >= 0
        width[k, taken] = np.diff(tables[leg][0])[row[taken]]
    total = width.sum(0, dtype=np.int32)
    at = np.cumsum(total, dtype=np.int64) - total
    n_hops = int(total.sum(dtype=np.int64))
    bundle, use = np.empty(n_hops, np.int32), np.ones(n_hops)
    for wide, leg, row in zip(width, which, rows, strict=True):
        ptr, of, share = tables[leg]
        of = of + np.int32(base[leg])
        plain = bool((share == 1).all())
        # Rows of one width are moved hop by hop together; there are few different widths.
        for w in np.flatnonzero(np.bincount(wide)[1:]) + 1:
            same = np.flatnonzero(wide == w)
            to, source = at[same], ptr[row[same]]
            for _ in range(w):
                bundle[to] = of[source]
                if not plain:
                    use[to] = share[source]
                to += 1
                source += 1
        at += wide

    n_bundles = int(base[-1]) if two_level else n_links
    part_bundle, part_link, part_use = _parts(distinct, base) if two_level else _NO_PARTS
    return Routes(
        frozen(np.repeat(np.arange(n_rows, dtype=np.int32), total)), frozen(bundle), frozen(use),
        frozen(part_bundle), frozen(part_link), frozen(part_use),
        np.repeat(np.asarray(flows.weight, np.float64) / pairs, pairs),
        np.repeat(np.asarray(flows.cap, np.float64) / pairs, pairs),
        frozen(np.repeat(np.arange(flows.n_flows, dtype=np.int32), pairs)),
        n_links=n_links, n_bundles=n_bundles, n_pairs=flows.n_flows,
    )  # fmt: skip


_NO_PARTS = (np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))


def _checked(legs: Sequence[Leg], n_rows: int) -> list[Int[np.ndarray, " rows"]]:
    faults: list[str] = []
    rows = [index_array("join(legs)", row, faults) for _, row in legs]
    if not legs:
        faults.append("`join(legs)` needs one leg at least.")
    if len(links := {routes.n_links for routes, _ in legs}) > 1:
        counts = ", ".join(f"{n:,}" for n in sorted(links))
        faults.append(
            f"`join(legs)` needs routes of one network, but they count {counts} links. Make all "
            f"legs with the same network."
        )
    for k, ((routes, _), row) in enumerate(zip(legs, rows, strict=True)):
        if len(row) != n_rows:
            faults.append(f"Leg {k} of `join` has {len(row):,} rows for {n_rows:,} of the result.")
        bad = row[(row < -1) | (row >= routes.n_flows)]
        if len(bad):
            faults.append(
                f"Leg {k} of `join` needs rows from -1 to {routes.n_flows - 1:,}, but "
                f"{len(bad):,} are not; the first is {bad[0]}."
            )
    raise_faults(faults)
    return rows


def _rows_of(routes: Routes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where the hops of each row start, their bundles and their uses, without padding."""
    flow = np.asarray(routes.hop_flow)
    ptr = np.zeros(routes.n_flows + 1, np.int64)
    np.cumsum(np.bincount(flow, minlength=routes.n_flows)[: routes.n_flows], out=ptr[1:])
    return ptr, np.asarray(routes.hop_bundle), np.asarray(routes.hop_use, np.float64)


def _parts(distinct: Sequence[Routes], base: Int[np.ndarray, " legs"]) -> tuple[np.ndarray, ...]:
    columns = []
    for routes, first in zip(distinct, base, strict=False):
        if routes.n_parts:
            real = np.asarray(routes.part_link) < routes.n_links
            bundle, link = np.asarray(routes.part_bundle)[real], np.asarray(routes.part_link)[real]
            use = np.asarray(routes.part_use, np.float64)[real]
        else:
            bundle = link = np.arange(routes.n_links, dtype=np.int32)
            use = np.ones(routes.n_links)
        columns.append((bundle + first, link, use))
    bundle, link, use = (np.concatenate(column) for column in zip(*columns, strict=True))
    return bundle.astype(np.int32), link.astype(np.int32), use
