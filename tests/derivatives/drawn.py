"""Problems full of exact ties, directions, and their one-sided derivative in exact rationals.

Every number is one that the computer holds without rounding, so that what ties there ties in exact
arithmetic too; all problems have the padded shape of `tests.oracle.problems`.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from fabric.reference import Problem, Rate, max_min_rates_exact
from tests.oracle.problems import N_BUNDLES, N_FLOWS, N_HOPS, N_LINKS, N_PARTS, Drawn

Direction = dict[str, np.ndarray]

PARAMETERS = ("capacity", "weights", "caps", "hop_use", "part_use")

# Divisible by 1 to 8, so that shares of it tie and are whole.
UNIT = 840.0

# Far below the next change of bottlenecks: those lie at ratios of small numbers.
STEP = Fraction(1, 2**80)


def tied_problems(count: int, seed: int = 0) -> Iterator[tuple[Drawn, Direction]]:
    """Yield problems with a direction in all parameters; number i is always the same."""
    for i in range(count):
        rng = np.random.default_rng([seed, i])
        drawn = draw_tied(rng)
        yield drawn, draw_direction(rng, drawn)


def draw_tied(rng: np.random.Generator) -> Drawn:
    """Return a problem in which many flows are stopped by several links and caps at once."""
    capacity = UNIT * rng.choice([1.0, 2.0, 4.0], N_LINKS)
    if rng.random() < 0.2:
        capacity[rng.integers(N_LINKS)] = 0.0
    parts = [
        (bundle, int(link), 1.0 / width)
        for bundle in range(N_BUNDLES)
        for width in [int(rng.choice([1, 2, 4], p=[0.7, 0.2, 0.1]))]
        for link in rng.choice(N_LINKS, width, replace=False)
    ]
    hops = [
        (flow, int(bundle), float(rng.choice([0.0, 0.5, 1.0, 2.0], p=[0.03, 0.1, 0.77, 0.1])))
        for flow in range(N_FLOWS)
        for bundle in rng.choice(N_BUNDLES, rng.integers(1, 5), replace=False)
    ]
    weights = np.ones(N_FLOWS) if rng.random() < 0.5 else rng.choice([0.5, 1.0, 2.0], N_FLOWS)
    capped = rng.random(N_FLOWS) < rng.choice([0.0, 0.4])
    caps = np.where(capped, UNIT * rng.choice([0.0, 0.25, 0.5], N_FLOWS), np.inf)
    for flow in range(N_FLOWS):
        if not any(f == flow and use > 0 for f, _, use in hops):
            caps[flow] = UNIT
    hop, part = np.array(hops), np.array(parts)
    ints = lambda column: column.astype(np.int32)
    loose = Drawn(
        capacity, ints(hop[:, 0]), ints(hop[:, 1]), hop[:, 2],
        ints(part[:, 0]), ints(part[:, 1]), part[:, 2], weights=weights, caps=caps,
    )  # fmt: skip
    return tightened(rng, loose)


def tightened(rng: np.random.Generator, loose: Drawn) -> Drawn:
    """Return the problem of the same rates in which other links are full and other caps reached.

    Only where the load or rate is a number that the computer holds without rounding.
    """
    load = [Fraction(0)] * N_LINKS
    for rate, row in zip(loose.exact, loose.problem.uses, strict=True):
        for link, use in row:
            load[link] += use * Fraction(rate)
    held = lambda x, old, chance: (
        float(x) if rng.random() < chance and Fraction(float(x)) == x else old
    )
    capacity = [held(*pair, 0.5) for pair in zip(load, loose.capacity, strict=True)]
    caps = [held(*pair, 0.15) for pair in zip(loose.exact, loose.caps, strict=True)]
    return replace(loose, capacity=np.array(capacity), caps=np.array(caps))


def draw_direction(rng: np.random.Generator, drawn: Drawn) -> Direction:
    """Return small whole numbers that stay in the domain; now and then one link alone."""
    routes = drawn.routes
    whole = lambda n: rng.integers(-2, 3, n).astype(np.float64)
    capacity = whole(N_LINKS)
    if rng.random() < 0.3:
        capacity[np.arange(N_LINKS) != rng.integers(N_LINKS)] = 0.0
    caps = whole(N_FLOWS)
    return {
        "capacity": np.where(drawn.capacity == 0, np.abs(capacity), capacity),
        "weights": whole(N_FLOWS) * rng.integers(2),
        "caps": np.where(drawn.caps == 0, np.abs(caps), caps),
        "hop_use": whole(N_HOPS) * (np.asarray(routes.hop_use) > 0) * rng.integers(2),
        "part_use": whole(N_PARTS) * (np.asarray(routes.part_use) > 0) * rng.integers(2),
    }


def exact_derivative(drawn: Drawn, direction: Direction, step: Fraction = STEP) -> list[Fraction]:
    """Return the difference quotient of the rates over `step`, without any rounding."""
    ahead, here = (rates_along(drawn, direction, h) for h in (step, Fraction(0)))
    return [(a - b) / step for a, b in zip(ahead, here, strict=True)]


def rates_along(drawn: Drawn, direction: Direction, h: Fraction) -> list[Rate]:
    """Return the exact rates at the problem plus h times the direction."""
    routes = drawn.routes
    moved = lambda x, name: _moved(x, direction.get(name, np.zeros(len(x))), h)
    return max_min_rates_exact(
        Problem.from_arrays(
            moved(drawn.capacity, "capacity"),
            routes.hop_flow, routes.hop_bundle, moved(routes.hop_use, "hop_use"),
            routes.part_bundle, routes.part_link, moved(routes.part_use, "part_use"),
            n_flows=N_FLOWS, n_links=N_LINKS,
            weights=moved(routes.weight, "weights"), caps=moved(routes.cap, "caps"),
        )
    )  # fmt: skip


def _moved(x: Iterable[float], dx: Iterable[float], h: Fraction) -> list[Fraction | float]:
    return [
        a if math.isinf(a) else Fraction(float(a)) + h * Fraction(float(b))
        for a, b in zip(x, dx, strict=True)
    ]
