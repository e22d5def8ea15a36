"""A56: circuits tuned to a demand against the uniform mesh, the linear programme and the optimum.

Traffic has equal row and column sums; with one hot row every mesh scores the same.
"""

from collections.abc import Iterator

import numpy as np

from experiments.optimizers.limits import at_least, at_most
from experiments.rows import Row
from fabric import optimize

BLOCKS = 8
OURS = "target of this library"
TWIST = "J. M. Camara et al., Twisted Torus Topologies, IEEE TPDS 21(12), 2010"


def rows(smoke: bool) -> list[Row]:
    """Return whole circuits of 8 blocks, 64 blocks with a certificate, and twisted slices."""
    return [*small(smoke), *large(smoke), *twists()]


def traffic(blocks: int, seed: int, spread: float = 2.0) -> np.ndarray:
    """Return symmetric traffic of log-normal pairs, scaled until every row sums to 1."""
    demand = np.exp(spread * np.random.default_rng(seed).standard_normal((blocks, blocks)))
    demand = demand + demand.T
    np.fill_diagonal(demand, 0)
    for _ in range(3000):
        demand /= np.sqrt(np.outer(demand.sum(1), demand.sum(0)))
    return demand


def small(smoke: bool) -> Iterator[Row]:
    """Yield 8 blocks: relaxed over linear programme, whole over proved optimum, over the mesh."""
    for ports in (16,) if smoke else (8, 16, 32):
        relaxed, whole, gain, control = [], [], [], []
        for seed in range(1 if smoke else 10):
            demand = traffic(BLOCKS, seed)
            found = optimize.circuits(demand, ports, 1.0, scores=60 if smoke else None, seed=seed)
            proved = optimum(demand, ports)
            relaxed.append(found.relaxed_bound / found.relaxed)
            whole.append(proved / found.objective)
            gain.append(found.uniform / found.objective)
            control.append(found.control / found.objective if found.control else np.nan)
        name = f"circuits of {BLOCKS} blocks x {ports} ports"
        seeds = f"{len(whole)} draws of traffic"
        yield at_least(f"{name}: relaxed over linear programme, worst", 0.999, min(relaxed), "",
                       OURS, seeds)  # fmt: skip
        yield at_least(f"{name}: whole over proved optimum, worst", 0.98, min(whole), "", OURS,
                       f"{seeds}; branch and bound of HiGHS, closed to 1e-6")  # fmt: skip
        yield at_least(
            f"{name}: over the uniform mesh with optimal splits, mean", 1.25,
            float(np.mean(gain)), "x", OURS,
            f"{seeds}; {min(gain):.3f} to {max(gain):.3f}; random circuits and exchanges of as "
            f"many scores need {np.mean(control):.3f} times the capacity",
        )  # fmt: skip


def optimum(demand: np.ndarray, ports: int) -> float:
    """Return the least utilisation of whole circuits, by branch and bound over all ways."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    n = len(demand)
    far = ~np.eye(n, dtype=bool)
    src, via, dst = np.nonzero(far[:, None, :] & far[None])
    a, b = np.triu_indices(n, 1)
    way, cable, width = np.arange(len(src)), len(src) + np.arange(len(a)), len(src) + len(a) + 1
    link = np.arange(n * n).reshape(n, n)

    def table(row: np.ndarray, column: np.ndarray, value: np.ndarray, size: int) -> csr_array:
        return csr_array((value, (row, column)), shape=(size, width))

    ones, two = np.ones(len(src)), np.ones(2 * len(a))
    theta = np.full(n * n, width - 1)
    sent = table(
        np.concatenate([link[src, dst], link.ravel()]), np.concatenate([way, theta]),
        np.concatenate([ones, -demand.ravel()]), n * n,
    )  # fmt: skip
    passing = via != src
    load = table(
        np.concatenate([link[via, dst], link[src, via][passing], link[a, b], link[b, a]]),
        np.concatenate([way, way[passing], cable, cable]),
        np.concatenate([ones, ones[passing], -two]), n * n,
    )  # fmt: skip
    plugged = table(np.concatenate([a, b]), np.concatenate([cable, cable]), two, n)
    goal, whole = np.zeros(width), np.zeros(width)
    goal[-1], whole[cable] = -1, 1
    found = milp(
        goal, integrality=whole, bounds=Bounds(0, np.inf), options={"mip_rel_gap": 1e-6},
        constraints=[
            LinearConstraint(sent, 0, 0), LinearConstraint(load, -np.inf, 0),
            LinearConstraint(plugged, -np.inf, ports),
        ],
    )  # fmt: skip
    return float(-1 / found.fun)


def large(smoke: bool) -> Iterator[Row]:
    """Yield 64 blocks of 128 ports: the certificate, the time, and what the mesh needs."""
    blocks, ports = (16, 32) if smoke else (64, 128)
    steps = 200 if smoke else 1000
    scores = 8 if smoke else None
    found = optimize.circuits(
        traffic(blocks, 0, 1.5), ports, 1.0, switches=16, steps=steps, scores=scores
    )
    name = f"circuits of {blocks} blocks x {ports} ports"
    note = f"relaxed to {found.relaxed / found.relaxed_bound - 1:.2%}, rounding costs the rest"
    yield at_most(f"{name}: certified gap of whole circuits", 0.10, found.gap, "", OURS, note)
    gain = found.uniform / found.objective
    yield at_least(f"{name}: over the uniform mesh", 1.0 if smoke else 1.25, gain, "x", OURS,
                   "splits of both by descent")  # fmt: skip
    if not smoke:
        yield at_most(f"{name}: time with certificate and patch", 60, found.seconds, "s", OURS,
                      "control and the splits of the uniform mesh included")  # fmt: skip


def twists() -> Iterator[Row]:
    """Yield what choosing the twist brings an all-to-all on a slice."""
    for chips, dims, quoted in ((128, "4x4x8", 1.7455), (256, "4x8x8", 1.3913)):
        found = optimize.slices(chips, all_to_all="64MB")
        plain = next(one for one in found.choices if one.dims == dims and one.twist is None)
        gain = plain.seconds / found.objective
        yield Row(f"slice of {chips} chips: {found.best} over {dims}", quoted, gain, "x", 1e-4,
                  TWIST, "exact all-to-all, the bound of any routing met")  # fmt: skip
