"""Text with a unit in, bytes, seconds and bytes per second out; and back for people to read.

Inside the library everything is in bytes, seconds and bytes per second, per direction and per
port. Bits (`b`) and bytes (`B`) are never guessed: the case of that letter decides.
"""

import math
import re

from fabric._errors import ModelError, some

_SI = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_IEC = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_WORDS = {"b": 0.125, "bit": 0.125, "bits": 0.125, "B": 1.0, "byte": 1.0, "bytes": 1.0}
_SIZES = {
    prefix + word: scale * unit
    for prefix, scale in (_SI | _IEC).items()
    for word, unit in _WORDS.items()
}
_RATES = {f"{unit}{per}": scale for unit, scale in _SIZES.items() for per in ("/s", "ps")}
_TIMES = {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0} | {
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_QUANTITY = re.compile(
    r"\s*([-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-zµ]*(?:/s)?)\s*"
)


def parse_rate(value: str | float, name: str = "rate") -> float:
    """Return byte/s from text such as `"400Gb/s"` or `"50GB/s"`; a number is byte/s already.

    Args:
        value: Text with a unit, or a number in byte/s.
        name: The argument as the caller wrote it, for the error.

    Raises:
        ModelError: If the text has no unit or another kind of unit, or the value is negative,
            NaN or infinite.

    Examples:
        >>> parse_rate("400Gb/s")
        50000000000.0
        >>> parse_rate("50GB/s") == parse_rate(50e9)
        True
    """
    return _parse(value, name, _RATES, "rate", "'400Gb/s' or '50GB/s'")


def parse_size(value: str | float, name: str = "size") -> float:
    """Return bytes from text such as `"1GiB"` or `"8Mb"`; a number is bytes already.

    Examples:
        >>> parse_size("1GiB")
        1073741824.0
    """
    return _parse(value, name, _SIZES, "size", "'1GiB' or '25MB'")


def parse_time(value: str | float, name: str = "time") -> float:
    """Return seconds from text such as `"900ns"`; a number is seconds already.

    Examples:
        >>> parse_time("2us")
        2e-06
    """
    return _parse(value, name, _TIMES, "time", "'900ns' or '1.5ms'")


def format_rate(value: float) -> str:
    """Return byte/s as text for people, in decimal units.

    Examples:
        >>> format_rate(50e9)
        '50.00 GB/s'
    """
    return f"{_scaled(value)}B/s"


def format_size(value: float) -> str:
    """Return bytes as text for people, in decimal units.

    Examples:
        >>> format_size(1.5e6)
        '1.50 MB'
    """
    return f"{_scaled(value)}B"


def _scaled(value: float) -> str:
    for prefix in ("P", "T", "G", "M", "k"):
        if abs(value) >= _SI[prefix]:
            return f"{value / _SI[prefix]:.2f} {prefix}"
    return f"{value:.4g} "


def _parse(
    value: str | float, name: str, units: dict[str, float], kind: str, example: str
) -> float:
    if isinstance(value, str):
        number, unit = _split(value, name, kind, example)
        if unit not in units:
            raise ModelError(_wrong_unit(value, unit, name, kind, example))
        result = number * units[unit]
    else:
        result = float(value)
    if not (math.isfinite(result) and result >= 0):
        message = f"`{name}` needs a finite {kind} of 0 or more, but got {value!r}."
        raise ModelError(message)
    return result


def _split(value: str, name: str, kind: str, example: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(value)
    if match is None:
        message = f"`{name}` needs a {kind} with its unit, such as {example}, but got {value!r}."
        raise ModelError(message)
    return float(match[1].replace("_", "")), match[2]


def _wrong_unit(value: str, unit: str, name: str, kind: str, example: str) -> str:
    kinds = [
        k for k, known in (("rate", _RATES), ("size", _SIZES), ("time", _TIMES)) if unit in known
    ]
    if not unit:
        found = "has no unit"
    elif kinds:
        found = f"is a {kinds[0]}, not a {kind}"
    else:
        close = [known for known in (_RATES | _SIZES | _TIMES) if known.lower() == unit.lower()]
        found = f"has the unknown unit '{unit}'"
        if close:
            found += f" (bits are 'b', bytes are 'B': {some(close)})"
    return f"`{name}` needs a {kind} such as {example}, but {value!r} {found}."
