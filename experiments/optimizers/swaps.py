"""Searching layouts by swaps: neighbours in the order of a gradient, or at random.

The score is a closed form of a fabric with NVLink inside servers of eight GPUs and one adapter per
GPU between them; sizes enter it as real numbers, which is what has a gradient.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

import fabric as fb
from fabric import hardware
from fabric.optimize._layout_score import ClosedForm, Rows, Wires
from fabric.optimize._layout_space import Space

INSIDE, BETWEEN = 450e9 * 0.8, 50e9 * 0.85  # byte/s of a GPU
WAIT = 20e-6
SERVER = 8
SHARE = 0.1
GRADIENT = 7
SIZES = ("tp", "cp", "dp", "pp", "vpp", "mb", "recomputed")
_PRIMES = (2, 3, 5, 7, 11, 13)
_FEW, _MANY = 200, 8000


@dataclass(frozen=True)
class Compared:
    """Spaces in which a search came within 1 % of the optimum; medians over the seeds.

    Attributes:
        ranked: Neighbours by gradient.
        weighted: The same, where a gradient takes seven scores of what may be spent.
        control: Neighbours at random.
    """

    ranked: float
    weighted: float
    control: float


def compare(count: int, seeds: Iterable[int]) -> Compared:
    """Return how often each search comes near the optimum."""
    near = {name: [] for name in ("ranked", "weighted", "control")}
    spaces = [Scored.of(space, form) for space, form in drawn(count)]
    for seed in seeds:
        hits = dict.fromkeys(near, 0)
        for scored in spaces:
            for name, guided, cost in (
                ("ranked", True, 0), ("weighted", True, GRADIENT), ("control", False, 0)
            ):  # fmt: skip
                best = scored.search(np.random.default_rng(seed), guided, cost)
                hits[name] += best <= scored.seconds.min() * 1.01
        for name, hit in hits.items():
            near[name].append(hit)
    return Compared(**{name: float(np.median(found)) for name, found in near.items()})


def drawn(count: int) -> Iterator[tuple[Space, ClosedForm]]:
    """Yield spaces of some hundred to some thousand layouts."""
    rng, known = np.random.default_rng(0), set()
    gpu, profile = hardware.gpu("h100-sxm"), hardware.default_profile("h100-sxm")
    models = ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "gpt-3-175b")
    while count:
        model = fb.Model.listed(str(rng.choice(models)))
        gpus = int(rng.choice([64, 96, 128, 192, 256, 384, 512, 768, 1024]))
        gbs = gpus * int(rng.choice([1, 2, 4]))
        seq = int(rng.choice([2048, 4096, 8192]))
        if seq > (model.positions or seq):
            continue
        space = Space.of(model, profile, capacity=gpu.memory.value, gpus=[gpus], gbs=gbs, seq=seq)
        asked = model.name, gpus, gbs, seq
        if _FEW <= space.n_rows <= _MANY and asked not in known:
            known.add(asked)
            count -= 1
            yield space, ClosedForm(model, gpu, profile, gbs, seq, "bf16")


@dataclass(frozen=True, eq=False)
class Scored:
    """A space, the seconds and the slopes of every row, and which rows are near one another."""

    seconds: Float[np.ndarray, " rows"]
    slope: Float[np.ndarray, "rows sizes"]
    logs: Float[np.ndarray, "rows sizes"]
    near: Callable[[int], Int[np.ndarray, " some"]]

    @classmethod
    def of(cls, space: Space, form: ClosedForm) -> "Scored":
        """Return the scores of a space."""
        # Rows are padded to one number, so that all spaces share their compiled operations.
        padded = np.resize(space.shape_of, _MANY)
        wide = Rows(*(np.asarray(c, np.float64)[padded] for c in space.columns))
        # A stage without recompute has the logarithm of one layer with it.
        size = lambda name: getattr(wide, name) + (name == "recomputed")
        logs = np.log(np.stack([size(name) for name in SIZES], axis=1))
        apart = wide.tp * wide.cp > SERVER, wide.tp * wide.cp * wide.dp > SERVER, wide.tp > SERVER
        held = wide.parameters * wide.tp * wide.pp

        def at(logs: jax.Array) -> jax.Array:
            given = dict(zip(SIZES, jnp.exp(logs).T, strict=True))
            given["recomputed"] = given["recomputed"] - 1
            rows = wide._replace(**given)
            rows = rows._replace(parameters=jnp.asarray(held) / (rows.tp * rows.pp))
            return form.seconds(rows, _wires(rows, apart, space), xp=jnp)

        seconds = np.asarray(at(jnp.asarray(logs)))
        slope = jax.grad(lambda logs: jnp.log(at(logs)).sum())(jnp.asarray(logs))
        n = space.n_rows
        kept = Rows(*(column[:n] for column in wide))
        return cls(seconds[:n], np.asarray(slope)[:n], logs[:n], _neighbours(kept))

    def search(self, rng: np.random.Generator, guided: bool, cost: int) -> float:
        """Return the best of a tenth of the rows: first improvements from random starts.

        Args:
            rng: Of starts and of the order of neighbours.
            guided: Whether neighbours come in the order of what the gradient promises.
            cost: Scores that a gradient takes.
        """
        left = round(SHARE * len(self.seconds))
        best, seen = np.inf, np.zeros(len(self.seconds), bool)
        while left > 0:
            here = int(rng.integers(len(self.seconds)))
            left -= not seen[here]
            seen[here] = True
            best = min(best, self.seconds[here])
            moving = True
            while moving and left > 0:
                around = rng.permutation(self.near(here))
                if guided:
                    left -= cost
                    promised = (self.logs[around] - self.logs[here]) @ self.slope[here]
                    around = around[np.argsort(promised, kind="stable")]
                    around = around[np.sort(promised) <= 0]
                moving = False
                for there in around.tolist():
                    if left <= 0:
                        break
                    left -= not seen[there]
                    seen[there] = True
                    if self.seconds[there] < self.seconds[here] * (1 - 1e-12):
                        here, moving = there, True
                        best = min(best, self.seconds[here])
                        break
        return float(best)


def _wires(rows: Rows, apart: tuple[Bool[np.ndarray, " rows"], ...], space: Space) -> Wires:
    """Return what exchanges take, sizes as real numbers; which of them leave a server is fixed."""
    model, seq = space.model, space.seq
    ring, data, tensor = (jnp.where(jnp.asarray(out), BETWEEN, INSIDE) for out in apart)
    wide = 2.0 * seq / rows.cp
    tp = 2 * (rows.tp - 1) / rows.tp * wide * model.hidden / tensor
    block = wide * 2 * jnp.maximum(model.kv_heads / rows.tp, 1.0) * model.head_dim
    cp = (rows.cp - 1) * block / ring
    message = jnp.where(rows.pp > 1, wide * model.hidden / rows.tp / BETWEEN, 0.0)
    ranks = rows.dp * rows.cp
    dp = (ranks - 1) / ranks * rows.parameters / data
    once = jnp.where(rows.pp > 1, WAIT, 0.0)
    none = jnp.zeros_like(tp)
    return Wires(
        tp, 2 * (rows.tp - 1) * WAIT / 10, cp, (rows.cp - 1) * WAIT, message, once, message, once,
        dp, (ranks - 1) * WAIT, none, none,
    )  # fmt: skip


def _neighbours(rows: Rows) -> Callable[[int], Int[np.ndarray, " some"]]:
    """Return what lists the rows at most two moves away.

    A move takes a prime from one parallel size to another, or in or out of the microbatch or the
    virtual stages, or changes recompute, sequence parallelism or ZeRO.
    """
    # Twice the moves: a prime that changes places counts at both, a mode as what it was and is.
    columns = [
        scale * _exponents(getattr(rows, name), prime)
        for names, scale in ((("tp", "cp", "dp", "pp"), 1), (("vpp", "mb"), 2))
        for name in names
        for prime in _PRIMES
    ]
    modes = np.stack([rows.zero, rows.sp, rows.selective + 2 * (rows.recomputed > 0)])
    columns += [np.int8(mode == value) for mode in modes for value in np.unique(mode)]
    table = np.stack([column for column in columns if np.ptp(column)], axis=1).astype(np.int8)

    def near(row: int) -> Int[np.ndarray, " some"]:
        moves = np.abs(table - table[row]).sum(axis=1, dtype=np.int8)
        return np.flatnonzero((moves > 0) & (moves <= 4))

    return near


def _exponents(sizes: np.ndarray, prime: int) -> np.ndarray:
    """Return how often a prime divides each size."""
    left, found = sizes.astype(np.int64), np.zeros(len(sizes), np.int8)
    while (divides := left % prime == 0).any():
        left = np.where(divides, left // prime, left)
        found += divides
    return found
