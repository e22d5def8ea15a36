"""Drawn problems of one padded shape, so that a solver compiles once for all of them.

Every problem mixes what makes max-min rates hard to get right: weights, caps, fractions and uses
above 1, splits shared by flows, a link in two splits of one flow, links of capacity 0, duplicate
flows, parallel identical links, entries of use 0, flows on no link, and ties. Ratios between two
values of one kind stay below about 1e3, and a use or weight is never so small beside another on
the same link that float64 itself would lose 1e-12.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

import fabric as fb
from fabric.reference import Problem, Rate, max_min_rates_exact

N_LINKS, N_FLOWS, N_BUNDLES = 8, 10, 12
N_HOPS, N_PARTS = 60, 64


@dataclass(frozen=True)
class Drawn:
    """The arrays of one problem before padding; the names are those of `Routes.from_bundles`."""

    capacity: np.ndarray
    hop_flow: np.ndarray
    hop_bundle: np.ndarray
    hop_use: np.ndarray
    part_bundle: np.ndarray
    part_link: np.ndarray
    part_use: np.ndarray
    weights: np.ndarray
    caps: np.ndarray

    @property
    def network(self) -> fb.Network:
        return fb.Network(self.capacity)

    @cached_property
    def routes(self) -> fb.Routes:
        routed = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "capacity"}
        return fb.Routes.from_bundles(
            **routed, n_flows=N_FLOWS, n_bundles=N_BUNDLES, n_links=N_LINKS,
            pad_hops=N_HOPS, pad_parts=N_PARTS,
        )  # fmt: skip

    @cached_property
    def problem(self) -> Problem:
        return self.problem_with(self.capacity)

    @cached_property
    def exact(self) -> list[Rate]:
        return max_min_rates_exact(self.problem)

    def problem_with(self, capacity: np.ndarray) -> Problem:
        """Return the expanded problem as the padded routes state it, on other capacities."""
        routes = self.routes
        return Problem.from_arrays(
            capacity, routes.hop_flow, routes.hop_bundle, routes.hop_use,
            routes.part_bundle, routes.part_link, routes.part_use,
            n_flows=N_FLOWS, n_links=N_LINKS, weights=routes.weight, caps=routes.cap,
        )  # fmt: skip


def drawn_problems(count: int, seed: int = 0) -> Iterator[Drawn]:
    """Yield problems; problem i of a seed is always the same one."""
    for i in range(count):
        yield draw(np.random.default_rng([seed, i]))


def draw(rng: np.random.Generator) -> Drawn:
    """Return one problem in which every flow is held by a link or a cap."""
    capacity = _capacity(rng)
    parts = _parts(rng)
    if rng.random() < 0.3:
        # Links 6 and 7 become parallel and identical: the same bundles, uses and capacity.
        capacity[7] = capacity[6]
        parts = [p for p in parts if p[1] != 7]
        parts += [(bundle, 7, use) for bundle, link, use in parts if link == 6]
    crossing = {bundle for bundle, _, use in parts if use > 0}

    weights = _weights(rng)
    caps = np.where(rng.random(N_FLOWS) < rng.choice([0.0, 0.4]), _capacity(rng, N_FLOWS), np.inf)
    rows = [_hops(rng) for _ in range(N_FLOWS)]
    if rng.random() < 0.3:
        rows[9], weights[9], caps[9] = rows[8], weights[8], caps[8]
    for flow, row in enumerate(rows):
        if not any(bundle in crossing and use > 0 for bundle, use in row) and caps[flow] == np.inf:
            caps[flow] = float(rng.integers(1, 5))

    hops = [(flow, bundle, use) for flow, row in enumerate(rows) for bundle, use in row]
    order = rng.permutation(len(parts))
    return Drawn(
        capacity,
        *_columns(hops),
        *_columns([parts[i] for i in order]),
        weights=weights,
        caps=caps,
    )


def _capacity(rng: np.random.Generator, n: int = N_LINKS) -> np.ndarray:
    match rng.integers(3):
        case 0:
            values = rng.integers(1, 5, n).astype(np.float64)
        case 1:
            values = rng.uniform(1.0, 10.0, n)
        case _:
            values = 10 ** rng.uniform(0.0, 3.0, n)
    if rng.random() < 0.15:
        values[rng.integers(n)] = 0.0
    return values


def _weights(rng: np.random.Generator) -> np.ndarray:
    match rng.integers(3):
        case 0:
            return np.ones(N_FLOWS)
        case 1:
            return rng.choice([0.5, 1.0, 2.0, 4.0], N_FLOWS)
        case _:
            return 10 ** rng.uniform(-0.7, 0.7, N_FLOWS)


def _parts(rng: np.random.Generator) -> list[tuple[int, int, float]]:
    """Bundles of one link, equal splits, uneven splits, trees; links repeat across bundles."""
    simple = rng.random() < 0.3
    parts: list[tuple[int, int, float]] = []
    for bundle in range(N_BUNDLES):
        width = 1 if simple or rng.random() < 0.4 else int(rng.integers(2, 5))
        if bundle == 0 and not simple:
            width = 6
        links = rng.choice(N_LINKS, width, replace=False)
        match rng.integers(3):
            case 0:
                uses = np.full(width, 1.0 / width)
            case 1:
                uses = rng.uniform(0.2, 1.0, width)
                uses /= uses.sum()
            case _:
                uses = rng.choice([0.5, 1.0, 1.0, 2.0], width)
        uses[rng.random(width) < 0.05] = 0.0
        parts += [(bundle, int(link), float(use)) for link, use in zip(links, uses, strict=True)]
    return parts


def _hops(rng: np.random.Generator) -> list[tuple[int, float]]:
    n = int(rng.integers(0, 5)) if rng.random() < 0.2 else int(rng.integers(1, 5))
    again = rng.random() < 0.05
    bundles = rng.choice(N_BUNDLES, n, replace=again)
    match rng.integers(3):
        case 0:
            uses = np.ones(n)
        case 1:
            uses = rng.choice([0.0, 0.5, 1.0, 3.0], n, p=[0.1, 0.3, 0.4, 0.2])
        case _:
            uses = rng.uniform(0.2, 2.0, n)
    return [(int(bundle), float(use)) for bundle, use in zip(bundles, uses, strict=True)]


def _columns(
    rows: list[tuple[int, int, float]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(rows, np.float64).reshape(-1, 3)
    return table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), table[:, 2]
