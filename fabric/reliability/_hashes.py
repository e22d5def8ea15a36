"""Hashes of 64 bits, whole arrays at a time."""

import numpy as np
from jaxtyping import UInt64

from fabric._typing import AnyArray

UInt64s = UInt64[np.ndarray, " _"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mixed(values: UInt64s) -> UInt64s:
    """Return a hash of every 64-bit number (SplitMix64).

    Examples:
        >>> hex(mixed(np.zeros(1, np.uint64))[0])
        '0xe220a8397b1dcdaf'

    References:
        G. Steele, D. Lea and C. Flood, Fast Splittable Pseudorandom Number Generators, 2014.
    """
    x = values + _GOLDEN
    x ^= x >> np.uint64(30)
    x *= _M1
    x ^= x >> np.uint64(27)
    x *= _M2
    x ^= x >> np.uint64(31)
    return x


def bits(column: AnyArray) -> UInt64s:
    """Return numbers as whole numbers of 64 bits, equal where they are."""
    return (np.asarray(column, np.float64) + 0.0).view(np.uint64)


def rounded(column: AnyArray) -> UInt64s:
    """Return `bits` of numbers without their last digits, where roundings differ."""
    mantissa, exponent = np.frexp(np.asarray(column, np.float64))
    return bits(np.ldexp(np.round(mantissa * 2.0**30), exponent))
