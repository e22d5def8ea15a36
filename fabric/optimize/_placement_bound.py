"""What no placement can beat, by cuts of the network.

A set of nodes that holds some of the slots lets no more out than its outgoing links carry, and
whoever sits on these slots has to talk to the rest: for every number of units inside there is a
least traffic. Bounds of phases add up; all phases together bound as well, as they lie on one cut.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric.network import Network
from fabric.optimize._placement_input import Slots, Traffic, servers_of
from fabric.optimize._placement_prices import by_prices
from fabric.optimize._placement_ways import Ways, folded, rows_between, units_of
from fabric.solvers._certify import live_capacity

_ALL_SUBSETS = 12
_WINDOWS = 16
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


class Part(NamedTuple):
    """Units that send nothing to others, even by way of others."""

    demand: Demand
    values: Float[np.ndarray, " least"]  # the least eigenvalues of the Laplacian, rising


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
    borders = _borders(network, slots)
    of = lambda flows: _least(
        traffic.between(slots.group, slots.n_units, flows), cuts, groups, borders
    )
    least = np.array([of(flows) for flows in traffic.phases])
    least = np.maximum(least, _by_ends(network, slots, traffic))
    total = float(np.maximum(least, _alone(slots, traffic, ways)).sum())
    if traffic.n_phases > 1:
        total = max(total, of(slice(None)))
    return total if ways is None else max(total, by_prices(slots, traffic, ways))


def _least(
    demand: Demand, cuts: set[Cut], groups: list[Groups], borders: tuple[np.ndarray, np.ndarray]
) -> float:
    """Return the seconds that the cuts of a network make a demand take at least."""
    out, into = borders
    parts = _parts(demand, max((len(group.inside) for group in groups), default=0))
    leaving = _leaving(parts)
    values = np.sort(np.concatenate([part.values for part in parts]))
    return max([
        _matched(demand.sum(1), out), _matched(demand.sum(0), into),
        *(by_cut(demand, cut, leaving) for cut in cuts), *_by_groups(values, groups),
    ])  # fmt: skip


def _by_ends(network: Network, slots: Slots, traffic: Traffic) -> Float[np.ndarray, " phases"]:
    """Return the seconds that each phase takes at least to leave and to enter its endpoints."""
    labels, capacity = network.labels, live_capacity(network)
    found = np.zeros(traffic.n_phases)
    for rank, end in ((traffic.src, labels.src), (traffic.dst, labels.dst)):
        room = np.bincount(end, capacity, labels.n_nodes)[slots.node]
        for k, flows in enumerate(traffic.phases):
            sent = np.bincount(rank[flows], traffic.size[flows], slots.n_slots)
            found[k] = max(found[k], _matched(sent, room))
    return found


def _alone(slots: Slots, traffic: Traffic, ways: Ways | None) -> Float[np.ndarray, " phases"]:
    """Return the seconds of the slowest flow of each phase, were it by itself on the best way."""
    need = traffic.size / traffic.cap
    if ways is not None:
        links = folded(ways)
        with np.errstate(divide="ignore"):
            pace = 1 / links.capacity[links.use.indices]
        entries = np.diff(links.use.indptr) > 0
        slowest = np.full(len(entries), np.inf)
        slowest[entries] = np.maximum.reduceat(
            links.use.data * pace, links.use.indptr[:-1][entries]
        )
        units, n = units_of(slots, ways), ways.n_kinds
        apart = float(slowest[rows_between(slots, ways, units)].min())
        together = float(slowest[n * n :].min())
        inside = traffic.src // slots.group == traffic.dst // slots.group
        best = np.where(inside, together, apart)
        best = np.where(np.isfinite(best), best, 0.0)
        need = np.maximum(need, traffic.size * best)
    return np.maximum.reduceat(need, traffic.phase_ptr[:-1])


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
    least = _leaving(_parts(demand, 2)) if least is None else least
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


def _parts(demand: Demand, count: int) -> list[Part]:
    """Return the parts of a demand, with so many eigenvalues of each, two at least."""
    from scipy.linalg import eigvalsh
    from scipy.sparse.csgraph import connected_components

    _, part_of = connected_components(demand + demand.T, directed=False)
    parts = []
    for part in range(part_of.max() + 1):
        own = np.flatnonzero(part_of == part)
        sent = demand[np.ix_(own, own)]
        both = sent + sent.T
        laplacian = np.diag(both.sum(1)) - both
        last = min(max(count, 2), len(own)) - 1
        parts.append(Part(sent, np.maximum(eigvalsh(laplacian, subset_by_index=(0, last)), 0)))
    return parts


def _leaving(parts: list[Part]) -> Leaving:
    """Return what leaves and enters any k units at least.

    Parts are chosen from apart: the least over all ways to take k units is found by adding one part
    after another.
    """
    total = [np.zeros(1)] * 3
    for part in parts:
        total = [_least_sum(a, b) for a, b in zip(total, _of_part(part), strict=True)]
    return Leaving(*total)


def _least_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the least a[i] + b[k - i], for every k."""
    found = np.full(len(a) + len(b) - 1, np.inf)
    for i, value in enumerate(b.tolist()):
        np.minimum(found[i : i + len(a)], a + value, out=found[i : i + len(a)])
    return found


def _of_part(part: Part) -> Leaving:
    """Return bounds by degree and by the spectrum: a unit keeps its largest streams inside."""
    demand, n = part.demand, len(part.demand)
    inside = np.arange(n + 1)
    # x' L x over vectors of k ones is at least that of their part across the constant vector.
    spectral = (part.values[1] if n > 1 else 0.0) * inside * (n - inside) / n
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
    unit = np.arange(slots.n_slots) // slots.group
    inside[slots.node] = unit
    if slots.group > 1:
        server = servers_of(network)
        of = np.full(int(server.max()) + 1, -1)
        of[server[slots.node]] = unit
        inside = of[server]
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
        if len(names) < slots.n_units:  # what every unit sends by itself is bounded elsewhere
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
