"""Fit the constants of the profiles to half of the rows of the tables; score the other half.

`python -m experiments.validation.fit` takes a minute or two. What is not listed in `BOUNDS` is not
fitted: it comes from documents or is held fixed, see the profile.
"""

import sys
import time

import jax
import numpy as np
from scipy.optimize import least_squares

from experiments.rows import Row, errors
from experiments.validation.experiment import (
    MODES,
    SEEN_1,
    SEEN_5,
    SEEN_H100,
    scaled_row,
    time_row,
    weak_row,
)
from experiments.validation.published import TABLE_1, TABLE_5, TABLE_H100
from fabric import hardware
from fabric.hardware import Profile

BOUNDS = {
    "megatron-a100": {
        "efficiency.gemm": (0.70, 0.95),
        "core_half": (30.0, 500.0),
        "latency.host_per_layer": (0.3e-3, 2e-3),
        "latency.collective": (10e-6, 400e-6),
        "latency.chunk": (0.2e-3, 4e-3),
        "jitter_per_doubling": (0.0005, 0.02),
    },
    "megatron-core-h100": {
        "efficiency.gemm": (0.50, 0.80),
        "latency.host_per_layer": (0.3e-3, 3e-3),
        "jitter_per_doubling": (0.0005, 0.02),
    },
}
"""Constants that are fitted, by profile, and how far they may go."""

PULL = 0.02
"""Weight of staying where the fit began, per e-fold: what rows do not settle stays put."""


def rows_with(profile: Profile, *, seen: bool) -> list[Row]:
    """Return the rows of a profile's GPU that the fit sees, or the others."""
    if profile.name == "megatron-core-h100":
        return [weak_row(c, profile) for c in TABLE_H100 if (c.parameters in SEEN_H100) == seen]
    fives = [
        time_row(case, mode, profile)
        for case in TABLE_5
        for mode in MODES
        if ((case.name, mode) in SEEN_5) == seen
    ]
    ones = [scaled_row(c, profile) for c in TABLE_1 if (c.parameters in SEEN_1) == seen]
    return fives + ones


def fit(name: str) -> None:
    """Print the constants of a profile, those on a bound, and the errors of both halves."""
    base, bounds = hardware.profile(name), BOUNDS[name]
    values = dict(base.evidence())
    start = np.array([values[key].value for key in bounds])
    low, high = (np.log(np.array([b[i] for b in bounds.values()]) / start) for i in (0, 1))
    begun, tried = time.monotonic(), 0

    def profile_at(z: np.ndarray) -> Profile:
        return base.with_values(dict(zip(bounds, (start * np.exp(z)).tolist(), strict=True)))

    def misses(z: np.ndarray) -> np.ndarray:
        nonlocal tried
        tried += 1
        found = [np.log1p(row.error) for row in rows_with(profile_at(z), seen=True)]
        each = (time.monotonic() - begun) / tried
        print(f"\r{name}: {tried} evaluations, {each:.2f} s each", end="", file=sys.stderr)
        return np.array([*found, *(PULL * z)])

    inside = np.clip(np.zeros(len(start)), low + 1e-6, high - 1e-6)
    best = least_squares(misses, inside, bounds=(low, high), diff_step=1e-3, xtol=1e-4).x
    print(file=sys.stderr)
    print(name)
    for key, z, a, b in zip(bounds, best, low, high, strict=True):
        bound = "  on its bound" if min(z - a, b - z) < 1e-3 else ""
        print(f"  {key:24} {values[key].value * np.exp(z):.4g}{bound}")
    for half, seen in (("fitted half", True), ("other half", False)):
        found = rows_with(profile_at(best), seen=seen)
        print(" ", half, {key: round(value, 2) for key, value in errors(found).items()})
        print(*(f"    {row.id:24} {100 * row.error:+6.2f} %" for row in found), sep="\n")


def main() -> int:
    """Fit every profile."""
    jax.config.update("jax_enable_x64", True)
    for name in BOUNDS:
        fit(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
