"""Whole circuits: rounding within the ports, pairs kept connected, and exchanges of ends."""

import numpy as np
from jaxtyping import Bool, Float, Int

Counts = Int[np.ndarray, "blocks blocks"]
Pairs = Float[np.ndarray, "blocks blocks"]

_LISTED, _MOST_MOVES = 300_000, 2000
"""Exchanges of two cables that are ranked at once, beyond it a sample; and the best, returned."""

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
    """Return exchanges of ends, each once, the most promising first, or in random order.

    Two cables a-b and c-d become a-c and b-d, which leaves every block its ports. Where ports are
    to spare, a cable a-b becomes a-c, two spare ports are joined, and a cable a-b is opened between
    two spare ports of c.

    Args:
        count: Circuits now.
        ports: Of every block.
        price: What a circuit more of every pair is worth, symmetric.
        draw: For samples and ties.
        random: Whether the price is left out.
    """
    table = np.concatenate([_two_cables(count, draw), *_spare_ports(count, ports)])
    order = draw.permutation(len(table))
    if not random:
        gain = (price[table[..., 0], table[..., 1]] * table[..., 2]).sum(1)
        order = order[np.argsort(-gain[order], kind="stable")]
    return [
        tuple((a, b, more) for a, b, more in move if more)
        for move in table[order[:_MOST_MOVES]].tolist()
    ]


def _two_cables(count: Counts, draw: np.random.Generator) -> Int[np.ndarray, "moves 4 3"]:
    """Return the exchanges between two cables, of very many a sample."""
    a, b = np.nonzero(np.triu(count))
    n = len(a)
    if n * n <= _LISTED:
        first, second = np.triu_indices(n, 1)
    else:
        first, second = draw.integers(n, size=(2, _LISTED // 2))
    a, b, c, d = a[first], b[first], a[second], b[second]
    apart = (a != c) & (a != d) & (b != c) & (b != d)
    a, b, c, d = a[apart], b[apart], c[apart], d[apart]
    return np.concatenate(
        [
            _table((a, b, -1), (c, d, -1), (a, c, 1), (b, d, 1)),
            _table((a, b, -1), (c, d, -1), (a, d, 1), (b, c, 1)),
        ]
    )


def _spare_ports(count: Counts, ports: np.ndarray) -> list[Int[np.ndarray, "moves 4 3"]]:
    """Return what spare ports allow."""
    free = ports - count.sum(1)
    spare = np.flatnonzero(free > 0)
    if not len(spare):
        return []
    a, b = np.nonzero(count)
    a, b, c = np.repeat(a, len(spare)), np.repeat(b, len(spare)), np.tile(spare, len(a))
    apart = (c != a) & (c != b)
    a, b, c = a[apart], b[apart], c[apart]
    between = (free[c] > 1) & (a < b)
    one, other = np.triu_indices(len(spare), 1)
    return [
        _table((a, b, -1), (a, c, 1)),
        _table((a[between], b[between], -1), (a[between], c[between], 1),
               (b[between], c[between], 1)),
        _table((spare[one], spare[other], 1)),
    ]  # fmt: skip


def _table(*changes: tuple[np.ndarray, np.ndarray, int]) -> Int[np.ndarray, "moves 4 3"]:
    """Return moves of the same changes each, the rest of four filled with none."""
    found = np.zeros((len(changes[0][0]), 4, 3), np.int64)
    for place, (a, b, more) in enumerate(changes):
        found[:, place, 0], found[:, place, 1], found[:, place, 2] = a, b, more
    return found


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
