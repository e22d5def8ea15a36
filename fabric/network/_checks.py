"""Host checks of values; each returns the faults it found, so that all are said at once."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from fabric._errors import some


def capacity_faults(
    where: str, capacity: Float[np.ndarray, " links"], name: Callable[[int], str]
) -> list[str]:
    """Return a fault if a capacity is negative, NaN or infinite."""
    bad = np.flatnonzero(~(np.isfinite(capacity) & (capacity >= 0)))
    if not len(bad):
        return []
    return [
        f"`{where}` needs a finite capacity of 0 or more on every link, but {len(bad):,} of "
        f"{len(capacity):,} links are negative, infinite or NaN: "
        f"{some(name(int(i)) for i in bad)}. "
        f"A failed link has `alive` false; a link of capacity 0 is legal and gives rate 0."
    ]


def number_faults(
    where: str,
    what: str,
    values: Float[np.ndarray, " flows"],
    *,
    zero: bool,
    infinite: bool = False,
) -> list[str]:
    """Return a fault if a per-flow number is out of range.

    Args:
        where: The argument as the caller wrote it.
        what: What the number is.
        values: (flows,).
        zero: Whether 0 is in range.
        infinite: Whether infinity is in range.
    """
    low = values >= 0 if zero else values > 0
    bad = np.flatnonzero(~(low & (np.isfinite(values) | (infinite & (values == np.inf)))))
    if not len(bad):
        return []
    need = "0 or more" if zero else "more than 0"
    return [
        f"`{where}` needs a {what} of {need} for every flow, but {len(bad):,} of {len(values):,} "
        f"are not, at flows {some(bad)} (the first is {values[bad[0]]!r})."
    ]
