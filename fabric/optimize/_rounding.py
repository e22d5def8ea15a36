"""Whole circuits: rounding within the ports, pairs kept connected, and exchanges of ends."""

import numpy as np
from jaxtyping import Bool, Float, Int

Counts = Int[np.ndarray, "blocks blocks"]
Pairs = Float[np.ndarray, "blocks blocks"]

_LISTED = 300_000
"""Pairs of cables that are ranked at once; beyond it a sample."""

_REPAIRS = 4


def rounded(
    target: Pairs, ports: Int[np.ndarray, " blocks"], needs: Bool[np.ndarray, "blocks blocks"],
    noise: float, draw: np.random.Generator,
) -> Counts:  # fmt: skip
    """Return whole circuits near a target: floors, then largest remainders, then what ports allow.

    Args:
        target: Circuits, symmetric, within the ports.
        ports: Of every block.
        needs: Pairs with traffic, which are given a way of at most two circuits where there is one.
        noise: Standard deviation of what is added to remainders, in circuits.
        draw: Where it comes from.
    """
    n = len(ports)
    a, b = np.triu_indices(n, 1)
    shaken = target[a, b] + noise * draw.standard_normal(len(a)) * np.minimum(target[a, b], 1)
    count = np.zeros((n, n), np.int64)
    count[a, b] = np.floor(target[a, b])
    count += count.T
    free = ports - count.sum(1)
    _fill(count, free, shaken - np.floor(target[a, b]), a, b)
    _plug_rest(count, free)
    connect(count, ports, needs, target)
    return count


def _fill(count: Counts, free: np.ndarray, rest: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Add a circuit to pairs by falling remainder while both ends have a port, round by round."""
    while True:
        open_pairs = np.flatnonzero((free[a] > 0) & (free[b] > 0))
        if not len(open_pairs):
            return
        for pair in open_pairs[np.argsort(-rest[open_pairs], kind="stable")]:
            i, j = a[pair], b[pair]
            if free[i] > 0 and free[j] > 0:
                count[i, j] += 1
                count[j, i] += 1
                free[[i, j]] -= 1
        rest = rest - 1


def _plug_rest(count: Counts, free: np.ndarray) -> None:
    """Open circuits of others between the two last ports of one block."""
    for i in np.flatnonzero(free > 1):
        while free[i] > 1:
            others = count.copy()
            others[i] = others[:, i] = 0
            a, b = np.unravel_index(np.argmax(others), others.shape)
            if others[a, b] == 0:
                break
            for j, k, more in ((a, b, -1), (a, i, 1), (b, i, 1)):
                count[j, k] += more
                count[k, j] += more
            free[i] -= 2


def unserved(count: Counts, needs: Bool[np.ndarray, "blocks blocks"]) -> Int[np.ndarray, "pairs 2"]:
    """Return the pairs with traffic and no way of at most two circuits: (pairs, 2)."""
    there = (count > 0).astype(np.int64)
    return np.argwhere(needs & (there + there @ there == 0))


def connect(
    count: Counts, ports: np.ndarray, needs: Bool[np.ndarray, "blocks blocks"], target: Pairs
) -> None:
    """Give pairs without a way one: a circuit, or one from an end to a neighbour of the other.

    Ends come from the cables that the target misses least; of two loose ends a cable is made.
    """
    lost = unserved(count, needs)
    for _ in range(_REPAIRS * len(lost)):
        if not len(lost):
            return
        i, j = lost[0]
        best = None
        for move in _ways_to_connect(count, ports, int(i), int(j), target):
            tried = applied(count, move)
            left = len(unserved(tried, needs))
            if best is None or left < best[0]:
                best = left, tried
        if best is None or best[0] >= len(lost):
            return
        count[:] = best[1]
        lost = unserved(count, needs)


Move = tuple[tuple[int, int, int], ...]
"""Pairs and by how much their circuits change."""


def _ways_to_connect(count: Counts, ports: np.ndarray, i: int, j: int, target: Pairs) -> list[Move]:
    free = ports - count.sum(1)
    near = [(i, int(k)) for k in np.flatnonzero(count[j])] + [
        (int(k), j) for k in np.flatnonzero(count[i])
    ]
    moves: list[Move] = []
    for a, b in [(i, j), *near]:
        opened: list[list[tuple[int, int] | None]] = []
        for end in (a, b):
            spare = np.flatnonzero(count[end])
            spare = spare[np.argsort(target[end, spare] - count[end, spare], kind="stable")][:4]
            opened.append([None] if free[end] > 0 else [(end, int(k)) for k in spare])
        for one in opened[0]:
            for other in opened[1]:
                loose = [cut[1] for cut in (one, other) if cut is not None]
                cuts = [(*cut, -1) for cut in (one, other) if cut is not None]
                joined = (
                    [(loose[0], loose[1], 1)] if len(loose) == 2 and loose[0] != loose[1] else []
                )
                if b not in loose and a not in loose:
                    moves.append(((a, b, 1), *cuts, *joined))
    return moves


def applied(count: Counts, move: Move) -> Counts:
    """Return circuits after a move."""
    count = count.copy()
    for a, b, more in move:
        count[a, b] += more
        count[b, a] += more
    return count


def exchanges(
    count: Counts, ports: np.ndarray, price: Pairs, draw: np.random.Generator, random: bool = False
) -> list[Move]:
    """Return exchanges of ends, the most promising first, or in random order.

    Two cables a-b and c-d become a-c and b-d, which leaves every block its ports; a cable a-b
    becomes a-c where c has a port to spare; and two spare ports are joined.

    Args:
        count: Circuits now.
        ports: Of every block.
        price: What a circuit more of every pair is worth, symmetric.
        draw: For samples and ties.
        random: Whether the price is left out.
    """
    a, b = np.nonzero(count)
    first, second = _two_of(len(a), draw)
    c, d = a[second], b[second]
    a, b = a[first], b[first]
    sound = (a != c) & (b != d) & ~((a == d) & (b == c)) & (a < d)
    sound &= ~((a == c) | (b == d))
    a, b, c, d = a[sound], b[sound], c[sound], d[sound]
    gain = price[a, c] + price[b, d] - price[a, b] - price[c, d]
    moves = [np.stack([a, b, c, d], 1)]
    gains = [gain]
    free = np.flatnonzero(ports - count.sum(1) > 0)
    if len(free):
        e, f = np.nonzero(count)
        e, f = np.repeat(e, len(free)), np.repeat(f, len(free))
        g = np.tile(free, len(e) // len(free))
        apart = (g != e) & (g != f)
        e, f, g = e[apart], f[apart], g[apart]
        moves.append(np.stack([e, f, g, np.full(len(e), -1)], 1))
        gains.append(price[e, g] - price[e, f])
    table, gain = np.concatenate(moves), np.concatenate(gains)
    order = draw.permutation(len(table))
    if not random:
        order = order[np.argsort(-gain[order], kind="stable")]
    return [_move(*row) for row in table[order[:2000]].tolist()]


def together(moves: list[Move], most: int) -> Move:
    """Return the first moves that touch different blocks, as one."""
    taken: set[int] = set()
    found: list[tuple[int, int, int]] = []
    for move in moves:
        ends = {end for a, b, _ in move for end in (a, b)}
        if not ends & taken:
            taken |= ends
            found += move
            most -= 1
        if not most:
            break
    return tuple(found)


def _move(a: int, b: int, c: int, d: int) -> Move:
    if d < 0:
        return (a, b, -1), (a, c, 1)
    return (a, b, -1), (c, d, -1), (a, c, 1), (b, d, 1)


def _two_of(n: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if n * n <= _LISTED:
        first, second = np.divmod(np.arange(n * n), n)
        return first, second
    return draw.integers(n, size=_LISTED), draw.integers(n, size=_LISTED)


def random_circuits(
    ports: Int[np.ndarray, " blocks"],
    needs: Bool[np.ndarray, "blocks blocks"],
    draw: np.random.Generator,
) -> Counts:
    """Return circuits without regard to traffic: ports joined two by two, at random."""
    n = len(ports)
    flat = draw.random((n, n))
    flat = (flat + flat.T) / 2
    np.fill_diagonal(flat, 0)
    for _ in range(20):
        flat *= np.sqrt(np.outer(*[ports / np.maximum(flat.sum(1), 1e-9)] * 2))
    flat *= np.minimum(1, (ports / np.maximum(flat.sum(1), 1e-9))[ports > 0].min())
    return rounded(flat, ports, needs, 1.0, draw)
