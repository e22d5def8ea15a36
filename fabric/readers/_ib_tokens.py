"""InfiniBand speed tokens such as `4xNDR`: lanes times the data rate of a lane."""

import math
import re

LANES = (4, 2, 1, 8, 12)
"""Widths, the usual one first: a rate that two tokens share is written with the first."""

LANE_GBITS = {
    "XDR": 200.0,
    "NDR": 100.0,
    "HDR": 50.0,
    "EDR": 25.0,
    "FDR": 13.64,
    "FDR10": 10.0,
    "QDR": 8.0,
    "DDR": 4.0,
    "SDR": 2.0,
}
"""Data rate of one lane, Gb/s per direction, after line coding."""

_TOKEN = re.compile(r"(\d+)x([A-Z]+\d*)")


def rate_of(token: str) -> float | None:
    """Return byte/s per direction, or None if the token is unknown.

    >>> rate_of("4xNDR"), rate_of("2xNDR"), rate_of("3xNDR")
    (50000000000.0, 25000000000.0, None)
    """
    match = _TOKEN.fullmatch(token)
    if match is None or int(match[1]) not in LANES or match[2] not in LANE_GBITS:
        return None
    return int(match[1]) * LANE_GBITS[match[2]] * 1e9 / 8


def token_of(rate: float) -> str | None:
    """Return the token of a capacity in byte/s, or None if no token means exactly that.

    >>> token_of(50e9), token_of(25e9), token_of(49e9)
    ('4xNDR', '4xHDR', None)
    """
    for lanes in LANES:
        for speed, gbits in LANE_GBITS.items():
            if math.isclose(lanes * gbits * 1e9 / 8, rate, rel_tol=1e-9):
                return f"{lanes}x{speed}"
    return None
