"""Routing weights against linear programmes that HiGHS solves exactly.

Graphs are Abilene, B4 and UsCarrier, with gravity traffic; a leaf-spine fabric with degraded links;
full meshes of blocks over direct and one-transit paths. Every matrix is drawn by a seed. The bound
holds for the paths that are allowed, and so does the programme. Only the rows on several matrices
let the optimiser itself ask HiGHS at the end.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import fabric as fb
from experiments.optimizers.limits import at_least, at_most
from experiments.rows import Row
from fabric.network import Network
from fabric.optimize import RoutingWeights, routing_weights

TARGET = "target of this project"
SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "samples" / "general"
GRAPHS = {
    "Abilene": "topohub_topozoo_Abilene.json", "B4": "B4.json", "UsCarrier": "UsCarrier.json",
}  # fmt: skip
SENDERS = 30
"""Nodes of UsCarrier, drawn, between which traffic runs: a programme over all 158 takes hours."""


class Case(NamedTuple):
    """A network, the paths to use, and a matrix per seed."""

    name: str
    network: Network
    paths: str | int
    demands: list[np.ndarray]


class Found(NamedTuple):
    """What one case gave."""

    gaps: list[float]  # to the optimum of HiGHS
    certificates: list[float]
    losses: list[float]  # of tables
    seconds: float
    oracle_seconds: float


def rows(smoke: bool = False) -> list[Row]:
    """Return every row; with `smoke` two matrices of each case and meshes of 8 blocks alone."""
    found: list[Row] = []
    for case in cases(2 if smoke else 20, (8,) if smoke else (8, 16, 32)):
        found += judged(case)
    found += [several(over, 1 if smoke else 5) for over in ("mean", "cvar")]
    return [*found, *max_min(2 if smoke else 10), *large(16 if smoke else 64)]


def cases(matrices: int, meshes: tuple[int, ...]) -> Iterator[Case]:
    """Yield every case; graphs whose files are absent are left out."""
    for name, file in GRAPHS.items():
        if (SAMPLES / file).is_file():
            net = fb.readers.node_link(
                SAMPLES / file, unit="Gb/s", default_capacity="10Gb/s"
            ).network
            yield Case(name, net, 4, [gravity(net, seed) for seed in range(matrices)])
    net = degraded_leaf_spine(16, 4, 8)
    yield Case("leaf-spine", net, "shortest", [
        gravity(net, seed) for seed in range(matrices)
    ])  # fmt: skip
    for blocks in meshes:
        net = fb.topologies.full_mesh(blocks)
        drawn = [gravity(net, seed, 1.0) for seed in range(matrices)]
        yield Case(f"mesh of {blocks}", net, "transit", drawn)


def gravity(net: Network, seed: int, spread: float = 0.5) -> np.ndarray:
    """Return a gravity matrix between the hosts, jittered entry by entry, in byte/s."""
    rng, n = np.random.default_rng(seed), len(net.hosts)
    sends, gets = rng.lognormal(0, spread, n), rng.lognormal(0, spread, n)
    demand = np.outer(sends, gets) * rng.lognormal(0, 0.5, (n, n)) * 1e9
    np.fill_diagonal(demand, 0)
    if n > SENDERS and not net.labels.is_kind("host").any() and net.n_links < n * (n - 1) / 2:
        kept = np.isin(np.arange(n), rng.choice(n, SENDERS, replace=False))
        demand *= kept[:, None] & kept
    return demand


def degraded_leaf_spine(leaves: int, spines: int, hosts: int) -> Network:
    """Return a leaf-spine fabric where an eighth of the cables between have less capacity."""
    net = fb.topologies.leaf_spine(
        leaves=leaves, spines=spines, hosts_per_leaf=hosts, capacity="400Gb/s",
        uplink_capacity="100Gb/s",
    )  # fmt: skip
    rng = np.random.default_rng(7)
    up = np.flatnonzero(net.labels.is_tier("leaf-spine"))
    cables = np.unique(net.labels.cable_of[up])
    for cable in rng.choice(cables, len(cables) // 8, replace=False):
        links = np.flatnonzero(net.labels.cable_of == cable)
        net = net.degraded(links=links, factor=float(rng.choice([0.25, 0.5, 0.75])))
    return net


def judged(case: Case) -> list[Row]:
    """Return the rows of a case."""
    found = measured(case)
    n = len(found.gaps)
    times = f"{n} matrices, {found.seconds / n:.2f} s each, HiGHS {found.oracle_seconds / n:.2f} s"
    gaps, certificates = np.array(found.gaps), np.array(found.certificates)
    honest = int(((certificates >= gaps - 1e-9) & (gaps >= -1e-7)).sum())
    return [
        at_most(f"{case.name}, mean gap to HiGHS", 2e-4, float(gaps.mean()), "", TARGET,
                f"worst {gaps.max():.1e}; {times}"),
        at_most(f"{case.name}, worst certificate", 1e-3, float(certificates.max()), "", TARGET),
        at_least(f"{case.name}, certificate >= gap >= 0", n, honest, "", TARGET),
        at_most(f"{case.name}, worst loss of tables of 64 entries", 3e-3, max(found.losses), "",
                TARGET, f"mean {np.mean(found.losses):.1e}"),
    ]  # fmt: skip


def measured(case: Case) -> Found:
    """Return gaps, certificates and losses of every matrix of a case."""
    gaps, certificates, losses, seconds, oracle = [], [], [], 0.0, 0.0
    for demand in case.demands:
        found = routing_weights(
            case.network, demand, paths=case.paths, steps=1000, tolerance=2e-5, prove=False
        )
        seconds += found.seconds
        begun = time.perf_counter()
        best = optimum(found)
        oracle += time.perf_counter() - begun
        gaps.append(found.objective / best - 1)
        certificates.append(found.gap)
        losses.append(found.tables().loss)
    return Found(gaps, certificates, losses, seconds, oracle)


def optimum(found: RoutingWeights) -> float:
    """Return the least largest utilisation of a single matrix over the same paths, by HiGHS."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    paths, aim = found.paths, found.aim
    ways = np.flatnonzero(paths.valid.ravel())
    pair = ways // paths.width
    row, column = np.nonzero(paths.hops[ways] < paths.n_trunks)
    demand, capacity = aim.loads.demand[:, 0], np.asarray(paths.trunks.network.capacity)
    n, trunk = len(ways), paths.hops[ways[row], column]
    # Loads relative to capacity, at most the last variable; HiGHS takes what is tiny for zero.
    unit = (demand[pair[row]] / capacity[trunk]).max()
    use = csr_array(
        (np.r_[demand[pair[row]] / capacity[trunk] / unit, np.full(paths.n_trunks, -1.0)],
         (np.r_[trunk, np.arange(paths.n_trunks)], np.r_[row, np.full(paths.n_trunks, n)])),
        shape=(paths.n_trunks, n + 1),
    )  # fmt: skip
    whole = csr_array((np.ones(n), (pair, np.arange(n))), shape=(paths.n_pairs, n + 1))
    given = aim.loads.base[:-1, 0] / capacity / unit
    answer = linprog(
        np.r_[np.zeros(n), 1.0], A_ub=use, b_ub=-given, A_eq=whole, b_eq=np.ones(paths.n_pairs),
        bounds=(0, None), method="highs",
    )  # fmt: skip
    assert answer.success, answer.message
    return float(answer.x[-1]) * unit


def several(over: str, seeds: int) -> Row:
    """Return the worst certificate of four matrices at once, on a mesh of 8 blocks."""
    net = fb.topologies.full_mesh(8)
    descents, gaps = [], []
    for seed in range(seeds):
        demands = np.stack([gravity(net, 4 * seed + i, 1.0) for i in range(4)])
        found = routing_weights(
            net, demands, paths="transit", over=over, tail=0.375, tolerance=1e-4
        )
        gaps.append(found.gap)
        descents.append(float(found.history.gap[-1]))
    return at_most(
        f"mesh of 8, {over} of 4 matrices, worst certificate", 1e-3, max(gaps), "", TARGET,
        f"{max(descents):.1e} by descent alone",
    )  # fmt: skip


def max_min(seeds: int) -> Iterator[Row]:
    """Yield the smallest exact rate on a leaf-spine fabric with two degraded links."""
    reached, before = [], []
    for seed in range(seeds):
        net, flows = two_degraded(seed)
        found = routing_weights(net, flows, objective="rate", tolerance=1e-6, prove=False)
        best = 1 / optimum(found)
        reached.append(found.objective / best)
        before.append(found.before / best)
    yield at_least(
        "4 x 4 leaf-spine, two degraded links, rate over LP bound", 0.9999, min(reached), "",
        TARGET, f"{seeds} permutations; ECMP splits {min(before):.2f} to {max(before):.2f}",
    )  # fmt: skip


def two_degraded(seed: int) -> tuple[Network, fb.Flows]:
    """Return 4 leaves under 4 spines with two links at part of their speed, and a permutation."""
    net = fb.topologies.leaf_spine(leaves=4, spines=4, hosts_per_leaf=4)
    rng = np.random.default_rng(seed)
    up = np.flatnonzero(net.labels.is_tier("leaf-spine"))
    for link in rng.choice(up, 2, replace=False):
        net = net.degraded(links=[int(link)], factor=float(rng.uniform(0.2, 0.6)))
    hosts = net.hosts.reshape(4, 4)
    to = np.roll(hosts, -1, axis=0)
    return net, fb.Flows(hosts.ravel(), to.ravel())


def large(blocks: int) -> Iterator[Row]:
    """Yield the time until a large mesh is certified, compilation included."""
    net = fb.topologies.full_mesh(blocks)
    found = routing_weights(net, gravity(net, 0, 1.0), paths="transit", tolerance=1e-3, prove=False)
    splits = int(found.paths.valid.sum())
    yield at_most(f"mesh of {blocks}, {splits:,} splits, certificate", 1e-3, found.gap, "", TARGET,
                  f"{found.steps} steps")  # fmt: skip
    yield at_most(f"mesh of {blocks}, time to the certificate", 15, found.seconds, "s", TARGET)
