"""`Evidence`: a number together with where it comes from."""

import math
from dataclasses import dataclass

from fabric._errors import nearest, quoted, raise_faults

KINDS = ("preset", "measured", "fitted", "assumed", "user")


@dataclass(frozen=True)
class Evidence:
    """A number, its band, and how it is known.

    Attributes:
        value: In internal units: bytes, seconds, byte/s, FLOP/s, or a plain share.
        kind: "preset" (a vendor's document), "measured", "fitted", "assumed" (from memory, or a
            stated assumption) or "user".
        source: The document, measurement or data set, in words.
        low: Lower end of the band within which the number may lie; None: not known.
        high: Upper end; None: not known.

    Raises:
        ModelError: If the kind is unknown, the source is empty, or a number is not finite or the
            band does not hold the value.

    Examples:
        >>> Evidence(50e9, "preset", "InfiniBand NDR, 400 Gb/s").value
        50000000000.0
    """

    value: float
    kind: str
    source: str
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        faults = []
        if self.kind not in KINDS:
            faults.append(
                f"`Evidence(kind={self.kind!r})`: no such kind. {nearest(self.kind, KINDS)}"
            )
        if not self.source.strip():
            faults.append("`Evidence(source='')`: say where the number comes from, in words.")
        band = [x for x in (self.low, self.value, self.high) if x is not None]
        if not all(map(math.isfinite, band)) or band != sorted(band):
            faults.append(
                f"`Evidence` needs finite numbers with low <= value <= high, but got "
                f"{self.value!r} in the band {self.low!r} to {self.high!r}, from "
                f"{quoted(self.source)}."
            )
        raise_faults(faults)
