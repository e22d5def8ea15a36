"""Text such as "747W" in, watts out."""

import math
import re

from fabric._errors import ModelError

_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6}
_WATTS = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([kM]?)W\s*")


def parse_power(value: str | int | float, name: str = "power") -> float:
    """Return watts from text such as `"747W"`; a number is watts already.

    Args:
        value: Text with a unit, or a number in watts.
        name: The argument as the caller wrote it, for the error.

    Raises:
        ModelError: If the text is no such quantity, or the value is negative, NaN or infinite.

    Examples:
        >>> parse_power("1.7kW")
        1700.0
    """
    if isinstance(value, str):
        match = _WATTS.fullmatch(value)
        if match is None:
            message = f"`{name}` needs a power such as '747W', but got {value!r}."
            raise ModelError(message)
        return float(match[1]) * _PREFIX[match[2]]
    if isinstance(value, bool) or not (math.isfinite(value) and value >= 0):
        message = f"`{name}` needs a finite power of 0 or more, but got {value!r}."
        raise ModelError(message)
    return float(value)
