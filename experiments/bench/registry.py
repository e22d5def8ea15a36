"""What is measured: problem x size x phase x method, each with the time it should take.

Nothing heavy is imported here: the process that only starts others must stay small, since a
child's peak memory counts from its parent's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch


@dataclass(frozen=True)
class Cell:
    """One measurement. `target_s`: what it should take; printed, never asserted.

    One thread does the work, except in a batch, which all cores share.
    """

    problem: str
    size: str
    phase: str
    method: str = ""
    target_s: float | None = None

    @property
    def name(self) -> str:
        return "/".join(filter(None, (self.problem, self.size, self.phase, self.method)))


@dataclass(frozen=True)
class Spec:
    """One phase of one problem at several sizes; `smallest` is for the smoke run only."""

    problem: str
    phase: str
    smallest: str
    targets: dict[str, float | None] = field(hash=False)
    method: str = ""

    def cells(self, *, smoke: bool) -> Iterator[Cell]:
        sizes = {self.smallest: None} if smoke else self.targets
        for size, target in sizes.items():
            yield Cell(self.problem, size, self.phase, self.method, target)


def _permutations() -> Iterator[Spec]:
    """Golden instances: one flow per port (ft, sparse), fifty per port (ls, dense)."""
    solve: dict[str, dict[str, dict[str, float | None]]] = {
        "compiled": {
            "ft-1k": {"ft-10k": 0.01, "ft-100k": 0.1, "ft-1m": 0.7},
            "ft-1k-het": {"ft-100k-het": 0.1},
            "ls-1k": {"ls-100k": 0.03},
        },
        "rounds": {
            "ft-1k": {"ft-10k": None, "ft-100k": None},
            "ft-1k-het": {"ft-100k-het": None},
            "ls-1k": {"ls-100k": None},
        },
    }
    for method, families in solve.items():
        for smallest, targets in families.items():
            if method == "compiled":  # "rounds" keeps no layout between solves
                yield Spec("permutation", "plan", smallest, dict.fromkeys(targets), method)
            yield Spec("permutation", "solve", smallest, targets, method)
            if method == "compiled":  # at most twice what the solve may take
                twice = {size: target and 2 * target for size, target in targets.items()}
                yield Spec("permutation", "reverse", smallest, twice, method)
    yield Spec("permutation", "one-sided", "ft-1k", {"ft-10k": None})
    yield Spec("permutation", "batch", "ft-1k", {"ft-10k": 64 / 600}, "compiled")
    yield Spec("rails", "compress", "n64", {"n8192": 0.8})
    # A batch of 10,000 capacity vectors of a quotient of 24 flow and 32 link classes.
    yield Spec("quotient", "batch", "b64", {"b10000": 10_000 / 300_000})
    yield Spec("permutation", "surrogate", "ft-1k", {"ls-10k": None})


def _references() -> Iterator[Spec]:
    """Rates alone, beside other solvers: what `fabric` adds to them is in the phase "solve"."""
    families = {
        "ft-1k": ("ft-10k", "ft-100k", "ft-1m"),
        "ft-1k-het": ("ft-100k-het",),
        "ls-1k": ("ls-100k",),
    }
    for smallest, sizes in families.items():
        for method in ("cpp", "compiled"):
            yield Spec("permutation", "rates", smallest, dict.fromkeys(sizes), method)
    for method in ("numpy", "compiled"):
        yield Spec("permutation", "rates", "ls-24", {"ls-10k": None}, method)
    for method in ("highs", "compiled"):
        yield Spec("permutation", "rates", "ls-24", {"ls-24": None}, method)


def _random_pairs() -> Iterator[Spec]:
    """A million random pairs on a fat tree of 65,536 hosts, by hash and by spray."""
    targets: dict[str, dict[str, float | None]] = {
        "fat-tree": {
            "build": 0.06,
            "route-ecmp": 1.5,
            "plan-ecmp": None,
            "solve-ecmp": None,
            "reverse-ecmp": None,
            "route-spray": 1.0,
            "plan-spray": None,
            "solve-spray": 1.0,
            "reverse-spray": 2.0,
        },
        "fat-tree-4to1": {
            "build": 0.06,
            "route-ecmp": 1.5,
            "solve-ecmp": None,
            "route-spray": 1.0,
            "solve-spray": 1.0,
        },
        "fat-tree-20-failed": {
            "route-ecmp": 1.5,
            "solve-ecmp": None,
            "route-spray": 2.0,
            "plan-spray": None,
            "solve-spray": 2.0,
        },
    }
    for problem, phases in targets.items():
        for phase, target in phases.items():
            yield Spec(problem, phase, "k8", {"k64": target})
    yield Spec("fat-tree", "solve-ecmp", "k8", {"k64": 3.0}, "rounds")


def _steps() -> Iterator[Spec]:
    """A training step of a 70B model on DGX H100 clusters; the size is the number of servers."""
    targets: dict[str, dict[str, float | None]] = {
        "build": {"n127": None, "n512": None, "n2048": None},
        "step": {"n127": 1.0, "n512": None, "n2048": None},
        "cold": {"n127": 10.0},
        # A million random pairs of GPUs, through their servers.
        "route-ecmp": {"n2048": 2.0},
        "route-spray": {"n2048": 2.0},
    }
    for phase, sizes in targets.items():
        yield Spec("superpod", phase, "n8", sizes)


def _fabrics() -> Iterator[Spec]:
    """Large fabrics: a million pairs of GPUs from nothing to rates, direct networks, all pairs.

    The size of rail pods is the number of servers of 8 GPUs; of a dragonfly it is p, a and h.
    """
    whole: dict[str, float | None] = {"n8192": 2.0, "n25000": 4.0}
    for phase in ("build", "route", "solve"):
        yield Spec("rail-pods", phase, "n64", dict.fromkeys(whole))
    yield Spec("rail-pods", "whole", "n64", whole)
    yield Spec("torus", "build", "4x4x8", {"16x16x16": None, "40x40x40": None})
    yield Spec("dragonfly", "build", "2-4-2", {"16-32-16": None})
    yield Spec("slim-fly", "build", "q5", {"q27": None})
    for phase in ("whole", "with-faults"):
        yield Spec("contingency", phase, "k4", {"k64": 30.0})
    yield Spec("fat-tree", "all-pairs", "k8", {"k64": None}, "spray")
    yield Spec("fat-tree-20-failed", "route-adaptive", "k8", {"k64": None})


def _optimisers() -> Iterator[Spec]:
    """Whole searches, control and proof included: b blocks, n servers of 8 GPUs, k ports."""
    yield Spec("mesh", "splits", "b8", {"b16": None, "b32": None, "b64": 15.0})
    yield Spec("blocks", "circuits", "b4", {"b16": None, "b32": None, "b64": 60.0})
    yield Spec("gpt-3", "layout", "n8", {"n32": None, "n128": None, "n512": 600.0})
    yield Spec("fat-tree", "what-ifs", "k4", {"k16": None, "k32": None})


SPECS = (
    Spec("import", "import", "fabric", {"fabric": 0.3}),
    Spec("file", "read", "demo", {"demo": None}),
    *_permutations(),
    *_references(),
    *_random_pairs(),
    *_steps(),
    *_fabrics(),
    *_optimisers(),
)


def chosen(*, only: str = "", smoke: bool = False) -> list[Cell]:
    """Return the cell called `only`, else those whose name holds it or fits it as a pattern."""
    cells = list(dict.fromkeys(cell for spec in SPECS for cell in spec.cells(smoke=smoke)))
    exact = [cell for cell in cells if cell.name == only]
    return exact or [cell for cell in cells if only in cell.name or fnmatch(cell.name, only)]
