"""Circuits shared out over optical switches, as near as can be to how they are set today.

A switch has two sides, and a circuit joins a north port to a south port. With as many ports of a
block north as south at every switch any circuits within the ports can be set: orient them so that
every block has half of its ends on each side, and colour the edges of the bipartite graph.
"""

from typing import Any

import numpy as np
from jaxtyping import Int

from fabric._errors import raise_faults, some

Patch = Int[np.ndarray, "switches blocks blocks"]

_TOGETHER = 8_000
"""Unknowns, one for each pair and switch, up to which switches are set together."""

_SECONDS = 30.0
"""What no programme of usual size comes near; it keeps others from running for hours."""


def check_switches(switches: int, ports: Int[np.ndarray, " blocks"]) -> None:
    """Raise unless every block has the same even number of ports at every switch."""
    bad = np.flatnonzero(ports % (2 * switches))
    if len(bad):
        odd = int(ports[bad[0]])
        fits = [s for s in range(1, int(ports.max()) + 1) if not (ports % (2 * s)).any()]
        near = sorted(sorted(fits, key=lambda s: abs(s - switches))[:2])
        use = f"`switches={' or '.join(map(str, near))}`" if near else "an even number of `ports`"
        fault = (
            f"`switches={switches}` needs ports in multiples of {2 * switches}, as many north as "
            f"south at every switch, but {some(bad.tolist(), name='block{}'.format)} have {odd}"
            f"{' and others' if len(bad) > 1 else ''}. Use {use}."
        )
        raise_faults([fault])


def patched(
    circuits: Int[np.ndarray, "blocks blocks"],
    ports: Int[np.ndarray, " blocks"],
    switches: int,
    current: Patch | None = None,
) -> Patch:
    """Return the circuits of every switch, north to south, keeping what is set today where it can.

    Args:
        circuits: Whole, symmetric, within the ports.
        ports: Multiples of 2 * switches.
        switches: How many there are.
        current: As set today. Default: nothing is.

    Cost: A flow for the sides of all circuits, and one per switch, each a linear programme whose
        vertices are whole. Each weighs what it keeps of today against what it takes from switches
        after it. Then branch and bound, stopped at its root, sets as many switches as it has room
        for anew together, seconds for 32 blocks and 8 switches.

    References:
        D. Konig, Uber Graphen und ihre Anwendung auf Determinantentheorie und Mengenlehre,
        Mathematische Annalen 77, 1916. L. Poutievski et al., Jupiter Evolving, SIGCOMM 2022.
    """
    n = len(ports)
    current = np.zeros((switches, n, n), np.int64) if current is None else current
    left = _sides(circuits, ports // 2, current.sum(0))
    each = ports // (2 * switches)
    found = np.zeros_like(current)
    for switch in range(switches):
        later = each * (switches - 1 - switch)
        others = current[switch + 1 :].sum(0)
        found[switch] = _one_switch(left, each, later, current[switch], others)
        left = left - found[switch]
    if current.any():
        at_once = min(max(_TOGETHER // max(np.count_nonzero(circuits), 1), 1), switches)
        for first in range(0, switches, at_once):
            now = slice(first, first + at_once)
            found[now] = _together(found[now], each, current[now])
    return found


def _together(patch: Patch, each: Int[np.ndarray, " blocks"], today: Patch) -> Patch:
    """Return the same circuits over the same switches, with no less kept of `today`."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, hstack

    switches, n = patch.shape[:2]
    circuits = patch.sum(0) + patch.sum(0).T
    kept = np.minimum(patch, today).sum()
    if kept == np.minimum(circuits, today.sum(0) + today.sum(0).T).sum() // 2:
        return patch
    a, b = np.nonzero(circuits)
    _, pair = np.unique(np.minimum(a, b) * n + np.maximum(a, b), return_inverse=True)
    switch = np.repeat(np.arange(switches), len(a))
    a, b, pair = (np.tile(of, switches) for of in (a, b, pair))
    most = np.minimum(np.minimum(each[a], each[b]), circuits[a, b])
    stay = np.minimum(today[switch, a, b], most)
    some_stay, total, column = np.flatnonzero(stay), np.zeros(pair.max() + 1), np.arange(len(a))
    total[pair] = circuits[a, b]
    room, limits = np.tile(each, switches), []
    ends: list[tuple[Any, Any, Any]] = [
        (pair, total, total), (switch * n + a, 0, room), (switch * n + b, 0, room)
    ]  # fmt: skip
    for row, low, high in ends:
        part = csr_array((np.ones(len(a)), (row, column)), shape=(len(high), len(a)))
        limits.append(LinearConstraint(hstack([part, part[:, some_stay]]), low, high))
    upper: Any = np.concatenate([most, stay[some_stay]])
    cost = np.concatenate([np.zeros(len(a)), -np.ones(len(some_stay))])
    found = milp(
        cost, constraints=limits, bounds=Bounds(0, upper),
        integrality=np.ones(len(cost)), options={"node_limit": 1, "time_limit": _SECONDS},
    )  # fmt: skip
    if found.x is None:
        return patch
    amount = np.rint(found.x).astype(np.int64)
    new = np.zeros_like(patch)
    new[switch, a, b] = amount[: len(a)]
    new[switch[some_stay], a[some_stay], b[some_stay]] += amount[len(a) :]
    fits = (new.sum(1) <= each).all() and (new.sum(2) <= each).all()
    whole = fits and (new.sum(0) + new.sum(0).T == circuits).all()
    return new if whole and np.minimum(new, today).sum() > kept else patch


def _sides(
    circuits: Int[np.ndarray, "blocks blocks"],
    half: Int[np.ndarray, " blocks"],
    today: Int[np.ndarray, "blocks blocks"],
) -> Int[np.ndarray, "blocks blocks"]:
    """Return how many circuits of every pair have their north port at the row."""
    from scipy.sparse import csr_array

    n = len(half)
    a, b = np.nonzero(circuits)
    _, pair = np.unique(np.minimum(a, b) * n + np.maximum(a, b), return_inverse=True)
    n_pairs = int(pair.max(initial=-1)) + 1
    most, column = circuits[a, b], np.arange(len(a))
    kept = np.minimum(today[a, b], most)
    ones = np.ones(len(a))
    per_pair = csr_array((ones, (pair, column)), shape=(n_pairs, len(a)))
    per_north = csr_array((ones, (a, column)), shape=(n, len(a)))
    total = np.zeros(n_pairs)
    total[pair] = most
    low = circuits.sum(1) - half
    amount = _flow([kept, most - kept], [(per_pair, total, total), (per_north, low, half)])
    north = np.zeros_like(circuits)
    north[a, b] = amount
    return north


def _one_switch(
    left: Int[np.ndarray, "blocks blocks"],
    each: Int[np.ndarray, " blocks"],
    later: Int[np.ndarray, " blocks"],
    today: Int[np.ndarray, "blocks blocks"],
    others: Int[np.ndarray, "blocks blocks"],
) -> Int[np.ndarray, "blocks blocks"]:
    """Return what one switch takes of the circuits left, so that the later ones hold the rest.

    It keeps what it can of `today`, and takes as little as it can of what `others` may keep.
    """
    from scipy.sparse import csr_array

    n = len(each)
    a, b = np.nonzero(left)
    most, column, ones = left[a, b], np.arange(len(a)), np.ones(len(a))
    rows = csr_array((ones, (a, column)), shape=(n, len(a)))
    columns = csr_array((ones, (b, column)), shape=(n, len(a)))
    ends = [(rows, left.sum(1) - later, each), (columns, left.sum(0) - later, each)]
    taken = np.zeros_like(left)
    kept = np.minimum(today[a, b], most)
    spare = np.clip(most - others[a, b], kept, most) - kept
    taken[a, b] = _flow([kept, spare, most - kept - spare], ends)
    return taken


def _flow(amounts: list[Any], rows: list[tuple[Any, Any, Any]]) -> Int[np.ndarray, " arcs"]:
    """Return whole amounts within the rows, the least in all of cost.

    Args:
        amounts: Parallel arcs: the first is worth 1, the second nothing, a third costs 1.
        rows: What leads into them, and the least and the most of it.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import hstack

    count = len(amounts[0])
    if not count:
        return np.zeros(0, np.int64)
    room: Any = np.concatenate(amounts)
    found = milp(
        np.repeat([-1.0, 0.0, 1.0][: len(amounts)], count), bounds=Bounds(0, room),
        constraints=[
            LinearConstraint(hstack([part] * len(amounts)), low, high) for part, low, high in rows
        ],
    )  # fmt: skip
    assert found.x is not None, "a patch exists for any circuits within the ports"
    whole = np.rint(found.x).astype(np.int64)
    assert abs(found.x - whole).max() < 1e-6, "vertices of a flow are whole"
    return whole.reshape(-1, count).sum(0)
