"""Checks of options that add what is wrong to a list, so that all faults are said at once."""

from collections.abc import Callable
from numbers import Real
from typing import TypeVar

from fabric._errors import ModelError

T = TypeVar("T")


def or_fault(faults: list[str], otherwise: T, read: Callable[..., T], *given: object) -> T:
    """Return `read(*given)`; where it raises, add its words to the faults.

    Args:
        faults: So far.
        otherwise: What comes back then; it should pass the checks that follow.
        read: Raises a `ModelError` for what is out of range.
        given: To it.

    Examples:
        >>> faults = []
        >>> or_fault(faults, 0, int, "7"), faults
        (7, [])
    """
    try:
        return read(*given)
    except ModelError as error:
        faults.append(str(error))
        return otherwise


def share_or_fault(name: str, value: object, faults: list[str]) -> float:
    """Return a share from 0 to below 1, such as a gap; where it is none, add a fault, return 0.

    Examples:
        >>> faults = []
        >>> share_or_fault("tolerance", 0.1, faults), share_or_fault("tolerance", "10%", faults)
        (0.1, 0.0)
        >>> faults
        ["`tolerance` needs a share from 0 to below 1, but got '10%'."]
    """
    if isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < 1:
        return float(value)
    faults.append(f"`{name}` needs a share from 0 to below 1, but got {value!r}.")
    return 0.0
