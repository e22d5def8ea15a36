"""Fit the constants of `megatron-a100` to half of the rows of both tables; score the other half.

`python -m experiments.validation.fit` takes half a minute. What is not listed in `BOUNDS` is not
fitted: it comes from documents or is held fixed, see the profile.
"""

import sys
import time

import jax
import numpy as np
from scipy.optimize import least_squares

from experiments.rows import Row, errors
from experiments.validation.experiment import MODES, SEEN_1, SEEN_5, scaled_row, time_row
from experiments.validation.published import TABLE_1, TABLE_5
from fabric import hardware
from fabric.hardware import Profile

BOUNDS = {
    "efficiency.gemm": (0.70, 0.95),
    "core_half": (30.0, 500.0),
    "latency.host_per_layer": (0.3e-3, 2e-3),
    "latency.collective": (10e-6, 400e-6),
    "latency.chunk": (0.2e-3, 4e-3),
    "jitter_per_doubling": (0.001, 0.02),
}
"""Constants that are fitted, and how far they may go."""

PULL = 0.02
"""Weight of staying where the fit began, per e-fold: what rows do not settle stays put."""


def rows_with(profile: Profile, *, seen: bool) -> list[Row]:
    """Return the rows that the fit sees, or the others, under a profile."""
    fives = [
        time_row(case, mode, profile)
        for case in TABLE_5
        for mode in MODES
        if ((case.name, mode) in SEEN_5) == seen
    ]
    ones = [scaled_row(c, profile) for c in TABLE_1 if (c.parameters in SEEN_1) == seen]
    return fives + ones


def main() -> int:
    """Print constants, those on a bound, and the errors of both halves."""
    jax.config.update("jax_enable_x64", True)
    base = hardware.profile("megatron-a100")
    values = dict(base.evidence())
    start = np.array([values[name].value for name in BOUNDS])
    low, high = (np.log(np.array([b[i] for b in BOUNDS.values()]) / start) for i in (0, 1))
    begun, tried = time.monotonic(), 0

    def profile_at(z: np.ndarray) -> Profile:
        return base.with_values(dict(zip(BOUNDS, (start * np.exp(z)).tolist(), strict=True)))

    def misses(z: np.ndarray) -> np.ndarray:
        nonlocal tried
        tried += 1
        found = [np.log1p(row.error) for row in rows_with(profile_at(z), seen=True)]
        spent = time.monotonic() - begun
        print(f"\r{tried} evaluations, {spent / tried:.2f} s each", end="", file=sys.stderr)
        return np.array([*found, *(PULL * z)])

    inside = np.clip(np.zeros(len(start)), low + 1e-6, high - 1e-6)
    best = least_squares(misses, inside, bounds=(low, high), diff_step=1e-3, xtol=1e-4).x
    print(file=sys.stderr)
    for name, z, a, b in zip(BOUNDS, best, low, high, strict=True):
        bound = "  on its bound" if min(z - a, b - z) < 1e-3 else ""
        print(f"{name:24} {values[name].value * np.exp(z):.4g}{bound}")
    for half, seen in (("fitted half", True), ("other half", False)):
        found = rows_with(profile_at(best), seen=seen)
        print(half, {name: round(value, 2) for name, value in errors(found).items()})
        print(*(f"  {row.id:24} {100 * row.error:+6.2f} %" for row in found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
