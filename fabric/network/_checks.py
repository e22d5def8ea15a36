"""Host checks of values; each returns or adds the faults it found, so that all are said at once."""

import operator
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, TypeGuard, TypeVar

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError, raise_faults, some
from fabric._typing import AnyArray

INT32_MAX = 2**31 - 1

T = TypeVar("T")


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is one whole number: of any integer type, or a float such as 2.0.

    Examples:
        >>> [is_whole(x) for x in (3, np.int64(3), 3.0, 2.5, float("nan"), True, "3")]
        [True, True, True, False, False, False, False]
    """
    if isinstance(value, bool | np.bool_):
        return False
    if isinstance(value, Real) and not isinstance(value, int | np.integer):
        return float(value).is_integer()
    try:
        operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        return False
    return True


def whole(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """Return a value as `int` if it is a whole number of at least `least`, else raise.

    Examples:
        >>> whole("queue_pairs", 2.0)
        2
    """
    faults: list[str] = []
    number = whole_or_fault(name, value, faults, least, most)
    raise_faults(faults)
    return number


def wholes(least: int = 1, most: int | None = None, **values: object) -> tuple[int, ...]:
    """Return the values as `int`, or say of all of them at once which is no whole number.

    Args:
        least: Smallest value allowed.
        most: Largest value allowed. Default: no bound.
        **values: Arguments under the names that the caller wrote.

    Raises:
        ModelError: If a value is no whole number or out of range.

    Examples:
        >>> wholes(leaves=2, spines=4)
        (2, 4)
    """
    faults: list[str] = []
    numbers = tuple(
        whole_or_fault(name, value, faults, least, most) for name, value in values.items()
    )
    raise_faults(faults)
    return numbers


def whole_or_fault(
    name: str, value: object, faults: list[str], least: int = 1, most: int | None = None
) -> int:
    """Return a value as `int`; where it is no whole number in range, add a fault, return `least`.

    Args:
        name: The argument as the caller wrote it.
        value: Anything.
        faults: Where the fault goes.
        least: Smallest value allowed.
        most: Largest value allowed. Default: no bound.
    """
    if is_whole(value) and least <= value and (most is None or value <= most):
        return int(value)
    bounds = f"of {least:,} or more" if most is None else f"from {least:,} to {most:,}"
    faults.append(f"`{name}` needs a whole number {bounds}, but got {_plain(value)!r}.")
    return least


def whole_array(
    name: str, values: object, faults: list[str] | None = None, *, dtype: type = np.int32
) -> Int[np.ndarray, "..."]:
    """Return whole numbers as a new array of an integer type; nothing is rounded or wrapped.

    Args:
        name: The argument as the caller wrote it.
        values: Integers of any type, or floats that are whole.
        faults: Where a fault goes, and zeros come back. Default: raise it.
        dtype: Of the result.

    Raises:
        ModelError: If a value is not whole or does not fit, and `faults` is not given.

    Examples:
        >>> whole_array("dst", [1.0, 2.0]).dtype
        dtype('int32')
    """
    found: list[str] = []
    array = _array(name, values, found)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    bits = f"whole numbers of {np.iinfo(dtype).bits} bits"
    bad = np.zeros(0, np.int64)
    if array.dtype.kind == "O":
        fits = [is_whole(v) and low <= v <= high for v in array.ravel()]
        bad = np.flatnonzero(~np.array(fits, bool))
    elif array.dtype.kind == "b":
        found.append(f"`{name}` needs {bits}, but got true and false. Use `np.flatnonzero(mask)`.")
    elif array.size and array.dtype.kind not in "iuf":
        found.append(f"`{name}` needs {bits}, but got {array.dtype}.")
    elif array.size and not np.can_cast(array.dtype, dtype):
        # A float64 holds no number between 2^63 and the largest int64.
        fits = (array >= low) & (array < float(high) + 1 if high > 2**53 else array <= high)
        if array.dtype.kind == "f":
            fits &= array == np.trunc(array)
        bad = np.flatnonzero(~fits)
    if len(bad):
        found.append(
            f"`{name}` needs {bits}, but {len(bad):,} of {array.size:,} are not: "
            f"{some(array.ravel()[bad])}."
        )
    if found:
        _give(found, faults)
        return np.zeros(array.shape, dtype)
    return array.astype(dtype)


def index_array(
    name: str, values: object, faults: list[str] | None = None, *, dtype: type = np.int32
) -> Int[np.ndarray, " items"]:
    """Return a list of whole numbers as a new array; see `whole_array`.

    Examples:
        >>> index_array("links", [])
        array([], dtype=int32)
        >>> index_array("to", np.array([0.9]))
        Traceback (most recent call last):
        fabric._errors.ModelError: `to` needs whole numbers of 32 bits, but 1 of 1 are not: '0.9'.
    """
    return _flat(name, whole_array(name, values, faults, dtype=dtype), faults)


def float_array(
    name: str, values: object, n: int | None = None, faults: list[str] | None = None
) -> Float[np.ndarray, " items"]:
    """Return a list of numbers as a new float64 array; text, true and false are no numbers.

    Args:
        name: The argument as the caller wrote it.
        values: Numbers; or one number, where `n` is given.
        n: How often one number is repeated.
        faults: Where a fault goes, and zeros come back. Default: raise it.

    Raises:
        ModelError: If a value is no number or there is no list, and `faults` is not given.

    Examples:
        >>> float_array("weights", 2, n=3)
        array([2., 2., 2.])
    """
    found: list[str] = []
    array = _array(name, values, found)
    # Kind V: bfloat16 and the like, which NumPy does not know as floats.
    if not found and array.size and array.dtype.kind not in "iufV":
        found.append(f"`{name}` needs numbers, but got {array.dtype}.")
    if found:
        _give(found, faults)
        return np.zeros(len(array) if array.ndim else n or 0)
    if array.ndim == 0 and n is not None:
        return np.full(n, array, np.float64)
    return _flat(name, array.astype(np.float64), faults)


def items_of(
    name: str, items: AnyArray | Sequence[Any], count: int, what: str
) -> Int[np.ndarray, " chosen"]:
    """Return chosen items by number, from their numbers or from a mask over all of them.

    Args:
        name: The argument as the caller wrote it.
        items: Numbers, or true and false for each of all the items.
        count: How many items there are.
        what: What they are, in the plural.

    Raises:
        ModelError: If a number is out of range or a mask has another length.

    Examples:
        >>> items_of("links", [True, False, True], 3, "links").tolist()
        [0, 2]
    """
    array = np.asarray(items)
    if array.dtype.kind == "b":
        if array.shape != (count,):
            message = (
                f"`{name}` is a mask of shape {array.shape}, but there are {count:,} {what}. Give "
                f"one value for each of them, or the numbers of {what}."
            )
            raise ModelError(message)
        return np.flatnonzero(array)
    chosen = index_array(name, items, dtype=np.int64)
    if len(bad := chosen[(chosen < 0) | (chosen >= count)]):
        message = f"`{name}` names {what} {some(bad)}, but there are {count:,}."
        raise ModelError(message)
    return chosen


def read_only(values: T) -> T:
    """Return a NumPy array that nobody writes to, a copy where somebody could; else `values`.

    A read-only view of memory that its owner may still write to is copied too.
    """
    if not isinstance(values, np.ndarray) or _is_sealed(values):
        return values
    return frozen(values.copy())


def frozen(values: np.ndarray) -> Any:
    """Return an array that this package has just made, and owns, made read-only in place."""
    values.flags.writeable = False
    return values


def _is_sealed(array: np.ndarray) -> bool:
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return base is None or isinstance(base, bytes)


def is_cost(value: object) -> TypeGuard[int]:
    """Return whether a value is a routing cost: a whole number from 1 within 32 bits.

    Examples:
        >>> [is_cost(x) for x in (1, 2.0, 0, 1.5, 2**31)]
        [True, True, False, False, False]
    """
    return is_whole(value) and bool(1 <= value <= INT32_MAX)


def cost_array(
    where: str,
    values: object,
    faults: list[str] | None = None,
    name: Callable[[int], str] = "link {}".format,
) -> Int[np.ndarray, "..."]:
    """Return routing costs as a new int32 array; see `is_cost` for what is one.

    Args:
        where: The argument as the caller wrote it.
        values: Numbers.
        faults: Where a fault goes, and ones come back. Default: raise it.
        name: What a link is called.

    Raises:
        ModelError: If a value is no routing cost, and `faults` is not given.

    Examples:
        >>> cost_array("routing_cost", [1.0, 3.0])
        array([1, 3], dtype=int32)
    """
    found: list[str] = []
    array = _array(where, values, found)
    rule = f"`{where}` needs whole numbers from 1 to {INT32_MAX:,}"
    if array.dtype.kind == "O":
        good = np.array([is_cost(value) for value in array.ravel()], bool)
    elif array.dtype.kind in "iuf":
        good = ((array >= 1) & (array <= INT32_MAX) & (array == np.floor(array))).ravel()
    else:
        good = np.ones(array.size, bool)
        found.append(f"{rule}, but got {array.dtype}.")
    if len(bad := np.flatnonzero(~good)):
        found.append(
            f"{rule}, but {len(bad):,} of {len(good):,} links have others: "
            f"{some(bad.tolist(), name=name)} (the first is {_plain(array.ravel()[bad[0]])!r})."
        )
    if found:
        _give(found, faults)
        return np.ones(array.shape, np.int32)
    return array.astype(np.int32)


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
        f"{some(bad.tolist(), name=name)}. "
        f"A failed link has `alive` false; a link of capacity 0 is legal and gives rate 0."
    ]


def number_faults(
    where: str,
    what: str,
    values: Float[np.ndarray, " flows"],
    *,
    zero: bool,
    infinite: bool = False,
    nan: bool = False,
) -> list[str]:
    """Return a fault if a per-flow number is out of range.

    Args:
        where: The argument as the caller wrote it.
        what: What the number is.
        values: (flows,).
        zero: Whether 0 is in range.
        infinite: Whether infinity is in range.
        nan: Whether NaN is in range, for "not stated".
    """
    low = values >= 0 if zero else values > 0
    good = low & (np.isfinite(values) | (infinite & (values == np.inf)))
    bad = np.flatnonzero(~(good | (nan & np.isnan(values))))
    if not len(bad):
        return []
    need = "0 or more" if zero else "more than 0"
    return [
        f"`{where}` needs a {what} of {need} for every flow, but {len(bad):,} of {len(values):,} "
        f"are not, at flows {some(bad)} (the first is {values[bad[0]].item()!r})."
    ]


def _array(name: str, values: object, faults: list[str]) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError:  # rows of different length
        faults.append(f"`{name}` needs one list of numbers, but got lists of different lengths.")
        return np.zeros(0)


def _flat(name: str, array: np.ndarray, faults: list[str] | None) -> np.ndarray:
    if array.ndim == 1:
        return array
    found = "one number" if array.ndim == 0 else f"an array of shape {array.shape}"
    _give([f"`{name}` needs a list of numbers, but got {found}."], faults)
    return np.zeros(len(array) if array.ndim else 0, array.dtype)


def _give(found: list[str], faults: list[str] | None) -> None:
    if faults is None:
        raise_faults(found)
    else:
        faults += found


def _plain(value: object) -> object:
    """Return a NumPy scalar as the Python number that a person would write."""
    return value.item() if isinstance(value, np.generic) else value
