"""Text such as "989TFLOP/s" in, FLOP/s out."""

import math
import re

from fabric._errors import ModelError

_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_FLOPS = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([kMGTPE]?)FLOP/s\s*")


def parse_flops(value: str | int | float, name: str = "peak") -> float:
    """Return FLOP/s from text such as `"989TFLOP/s"`; a number is FLOP/s already.

    Args:
        value: Text with a unit, or a number in FLOP/s.
        name: The argument as the caller wrote it, for the error.

    Raises:
        ModelError: If the text is no such quantity, or the value is negative, NaN or infinite.

    Examples:
        >>> parse_flops("989TFLOP/s")
        989000000000000.0
    """
    if isinstance(value, str):
        match = _FLOPS.fullmatch(value)
        if match is None:
            message = (
                f"`{name}` needs a rate of arithmetic such as '989TFLOP/s', but got {value!r}."
            )
            raise ModelError(message)
        return float(match[1]) * _PREFIX[match[2]]
    if not (math.isfinite(value) and value >= 0):
        message = f"`{name}` needs a finite rate of arithmetic of 0 or more, but got {value!r}."
        raise ModelError(message)
    return float(value)
