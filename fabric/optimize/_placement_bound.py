"""What no placement can beat, by cuts of the network and by prices of its links.

A set of nodes that holds some of the slots lets no more out than its outgoing links carry, and
whoever sits on these slots has to talk to the rest: for every number of units inside there is a
least traffic. With prices q of links the same reads

    seconds >= min over placements of sum_ab D_ab dist_q(a, b) / sum_l q_l c_l

where the minimum is bounded as in the quadratic assignment problem. Bounds of phases add up.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric.network import Network
from fabric.optimize._placement_input import Slots, Traffic
from fabric.optimize._placement_score import Ways
from fabric.solvers._certify import live_capacity

_ALL_SUBSETS = 12
_WINDOWS = 16
_POWERS = (1, 8, 64, 512)
Demand = Float[np.ndarray, "units units"]


class Cut(NamedTuple):
    """A set of nodes with whole units of slots inside, and what passes its border, byte/s."""

    inside: int
    out: float
    into: float


class Leaving(NamedTuple):
    """What any 0, 1, 2, ... units send to the others at least, get from them, and both in sum."""

    out: Float[np.ndarray, " sizes"]
    into: Float[np.ndarray, " sizes"]
    both: Float[np.ndarray, " sizes"]


class Groups(NamedTuple):
    """Sets of nodes that share all slots out between them."""

    inside: Int[np.ndarray, " groups"]
    border: float  # of all of them, out and in


def bound_of(network: Network, slots: Slots, traffic: Traffic, ways: Ways | None) -> float:
    """Return the seconds that every placement takes at least.

    Args:
        network: With labels.
        slots: That may be taken.
        traffic: Of the ranks.
        ways: Between the slots, if a flow's way depends on its ends alone; otherwise cuts decide.
    """
    cuts, groups = _cuts(network, slots)
    out, into = _borders(network, slots)
    total = 0.0
    demands = traffic.between(slots.group, slots.n_units)
    for demand in demands:
        least = max(_matched(demand.sum(1), out), _matched(demand.sum(0), into))
        leaving = _leaving(demand)
        least = max([least, *(by_cut(demand, cut, leaving) for cut in cuts)])
        least = max([least, *_by_groups(_spectrum(demand), groups)])
        total += least
    if len(demands) > 1:  # all phases lie on the same cut
        joint, leaving = demands.sum(0), _leaving(demands.sum(0))
        total = max([total, *(by_cut(joint, cut, leaving) for cut in cuts)])
    return total if ways is None else max(total, _by_prices(slots, traffic, ways, None))


def priced(slots: Slots, traffic: Traffic, ways: Ways, at: Int[np.ndarray, " ranks"]) -> float:
    """Return the bound of prices that the loads of a placement suggest.

    Args:
        slots: That may be taken.
        traffic: Of the ranks.
        ways: Between the slots.
        at: The slot of every rank.
    """
    return _by_prices(slots, traffic, ways, at)


def by_cut(demand: Demand, cut: Cut, least: Leaving | None = None) -> float:
    """Return the seconds that any units of the right number take across a border.

    Args:
        demand: Bytes between units.
        cut: The border.
        least: Of this demand, if it is known.

    Examples:
        Of four units in a ring two sit together, so that two streams leave:

        >>> ring = np.roll(np.eye(4), 1, axis=1)
        >>> by_cut(ring, Cut(inside=2, out=1.0, into=1.0))
        1.0
    """
    n, k = len(demand), cut.inside
    if not 0 < k < n:
        return 0.0
    if n <= _ALL_SUBSETS:
        return _of_subsets(demand, cut)
    least = _leaving(demand) if least is None else least
    return max(
        _over(float(least.out[k]), cut.out),
        _over(float(least.into[k]), cut.into),
        _over(float(least.both[k]), cut.out + cut.into) * (1 - 1e-9),
    )


def _over(traffic: float, border: float) -> float:
    return 0.0 if traffic <= 0 else traffic / border if border > 0 else np.inf


def _of_subsets(demand: Demand, cut: Cut) -> float:
    """Return the least over all sets of so many units."""
    n = len(demand)
    chosen = list(itertools.combinations(range(n), cut.inside))
    sets = np.zeros((len(chosen), n))
    sets[np.arange(len(chosen))[:, None], np.array(chosen)] = 1
    out = np.einsum("za,ab,zb->z", sets, demand, 1 - sets)
    into = np.einsum("za,ab,zb->z", 1 - sets, demand, sets)
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.maximum(
            np.where(out > 0, out / cut.out, 0), np.where(into > 0, into / cut.into, 0)
        )
    return float(seconds.min())


def _leaving(demand: Demand) -> Leaving:
    """Return what leaves and enters any k units at least.

    Units that send nothing to each other, even by way of others, are chosen apart: the least over
    all ways to take k of them is found by adding one part after another.
    """
    from scipy.sparse.csgraph import connected_components

    _, part_of = connected_components(demand + demand.T, directed=False)
    total = [np.zeros(1)] * 3
    for part in range(part_of.max() + 1):
        own = np.flatnonzero(part_of == part)
        found = _of_part(demand[np.ix_(own, own)])
        total = [_least_sum(a, b) for a, b in zip(total, found, strict=True)]
    return Leaving(*total)


def _least_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the least a[i] + b[k - i], for every k."""
    found = np.full(len(a) + len(b) - 1, np.inf)
    for i, value in enumerate(b.tolist()):
        np.minimum(found[i : i + len(a)], a + value, out=found[i : i + len(a)])
    return found


def _of_part(demand: Demand) -> Leaving:
    """Return bounds by degree and by the spectrum: a unit keeps its largest streams inside."""
    n = len(demand)
    inside = np.arange(n + 1)
    # x' L x over vectors of k ones is at least that of their part across the constant vector.
    spectral = (_spectrum(demand)[1] if n > 1 else 0.0) * inside * (n - inside) / n
    out, into = _by_degree(demand), _by_degree(demand.T)
    return Leaving(out, into, np.maximum(spectral, out + into))


def _by_degree(demand: Demand) -> Float[np.ndarray, " sizes"]:
    """Return what leaves any k units at least, seen from inside and from outside."""
    n = len(demand)
    smallest = np.pad(np.cumsum(np.sort(demand, axis=1), axis=1), ((0, 0), (1, 0)))
    reached = np.pad(np.cumsum(np.sort(demand, axis=0), axis=0), ((1, 0), (0, 0)))
    least = np.zeros(n + 1)
    for k in range(1, n):
        # Of n entries, that to itself being one of 0, k - 1 others and itself may be inside.
        from_inside = np.sort(smallest[:, n - k + 1])[:k].sum()
        to_outside = np.sort(reached[k + 1])[: n - k].sum()
        least[k] = max(from_inside, to_outside)
    return least


def _spectrum(demand: Demand) -> Float[np.ndarray, " units"]:
    """Return the eigenvalues, rising, of the Laplacian of what units exchange."""
    both = demand + demand.T
    return np.maximum(np.linalg.eigvalsh(np.diag(both.sum(1)) - both), 0)


def _by_groups(values: Float[np.ndarray, " units"], groups: list[Groups]) -> Iterator[float]:
    """Yield what the traffic between groups takes over all their borders together."""
    for group in groups:
        sizes = np.sort(group.inside)[::-1]
        # The sum of quadratic forms over orthogonal vectors (Donath and Hoffman 1973).
        crossing = float((sizes * values[: len(sizes)]).sum())
        yield _over(crossing, group.border) * (1 - 1e-9)


def _matched(traffic: np.ndarray, border: np.ndarray) -> float:
    """Return the least possible largest ratio when each unit takes one border."""
    traffic, border = np.sort(traffic)[::-1], np.sort(border)[::-1]
    return max(_over(t, c) for t, c in zip(traffic.tolist(), border.tolist(), strict=True))


def _borders(
    network: Network, slots: Slots
) -> tuple[Float[np.ndarray, " units"], Float[np.ndarray, " units"]]:
    """Return what can leave and enter every unit of slots."""
    inside = np.full(network.n_nodes, -1)
    tags = network.labels.tags
    unit = np.arange(slots.n_slots) // slots.group
    inside[slots.node] = unit
    if slots.group > 1:
        server = np.full(int(tags["server"].max()) + 1, -1)
        server[tags["server"][slots.node]] = unit
        has = tags["server"] >= 0
        inside[has] = server[tags["server"][has]]
    src, dst = inside[network.labels.src], inside[network.labels.dst]
    capacity, passes = live_capacity(network), src != dst
    sum_of = lambda at: np.bincount(
        at[passes & (at >= 0)], capacity[passes & (at >= 0)], slots.n_units
    )
    return sum_of(src), sum_of(dst)


def _cuts(network: Network, slots: Slots) -> tuple[set[Cut], list[Groups]]:
    """Return cuts around values of tags, one of each sort, and groups by tags."""
    cuts: set[Cut] = set()
    groups: list[Groups] = []
    capacity, labels = live_capacity(network), network.labels
    for tag, values in labels.tags.items():
        if tag in ("nic", "staging") or (slots.group == 1 and tag == "slot"):
            continue
        own = values[slots.node].reshape(slots.n_units, slots.group)
        if not (own == own[:, :1]).all():
            continue
        names, count = np.unique(own[:, 0], return_counts=True)
        if len(names) < 2:
            continue
        found = []
        for chosen in _sets(names):
            nodes = np.isin(values, chosen)
            cut = _cut(network, nodes, capacity, int(count[np.isin(names, chosen)].sum()))
            cuts.add(cut)
            found += [cut] if len(chosen) == 1 else []
        inside = np.array([cut.inside for cut in found])
        groups.append(Groups(inside, sum(cut.out + cut.into for cut in found)))
    return cuts, groups


def _sets(names: np.ndarray) -> Iterator[np.ndarray]:
    """Yield single values, and neighbouring ones where they are few."""
    n = len(names)
    longest = n // 2 if n <= _WINDOWS else 1
    for length in range(1, longest + 1):
        for start in range(n):
            yield names[np.arange(start, start + length) % n]


def _cut(network: Network, nodes: Bool[np.ndarray, " nodes"], capacity: np.ndarray, k: int) -> Cut:
    src, dst = nodes[network.labels.src], nodes[network.labels.dst]
    return Cut(k, float(capacity[src & ~dst].sum()), float(capacity[dst & ~src].sum()))


def _by_prices(
    slots: Slots, traffic: Traffic, ways: Ways, at: Int[np.ndarray, " ranks"] | None
) -> float:
    """Return the best bound of some prices: all links alike, or steep in the loads of a placement.

    Between units the nearest of their slots count, so that ranks may move within them.
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.sparse import csr_array

    n, m, g = slots.n_slots, slots.n_units, slots.group
    capacity = ways.capacity
    use = csr_array((ways.use, ways.link, ways.ptr), shape=(n * n, len(capacity)))
    sound = capacity > 0
    total = 0.0
    phases = zip(traffic.between(g, m), traffic.phase_ptr[:-1], traffic.phase_ptr[1:], strict=True)
    for demand, first, last in phases:
        if at is None:
            prices = [np.where(sound, 1 / np.maximum(capacity, 1e-300), 0), 1.0 * sound]
        else:
            flows = slice(first, last)
            pairs = at[traffic.src[flows]] * n + at[traffic.dst[flows]]
            sent = np.bincount(pairs, traffic.size[flows], n * n)
            load = np.where(sound, (use.T @ sent) / np.maximum(capacity, 1e-300), 0)
            steep = [(load / max(load.max(), 1e-300)) ** power for power in _POWERS]
            prices = [np.where(sound, s / np.maximum(capacity, 1e-300), 0) for s in steep]
        least = 0.0
        for price in prices:
            away = (use @ price).reshape(m, g, m, g).min(axis=(1, 3))
            away[np.arange(m), np.arange(m)] = 0
            table = _assigned(demand, away)
            rows, columns = linear_sum_assignment(table)
            least = max(least, float(table[rows, columns].sum()) / float(price @ capacity))
        total += least * (1 - 1e-12)
    return total


def _assigned(demand: Demand, away: Demand) -> Demand:
    """Return what unit a costs on slot s at least: its largest streams go the shortest ways.

    References:
        P. Gilmore 1962; E. Lawler, The Quadratic Assignment Problem, 1963.
    """
    n = len(demand)
    others = ~np.eye(n, dtype=bool)
    streams = np.sort(demand[others].reshape(n, n - 1), axis=1)[:, ::-1]
    back = np.sort(demand.T[others].reshape(n, n - 1), axis=1)[:, ::-1]
    ways = np.sort(away[others].reshape(n, n - 1), axis=1)
    ways_back = np.sort(away.T[others].reshape(n, n - 1), axis=1)
    return 0.5 * (streams @ ways.T + back @ ways_back.T)
