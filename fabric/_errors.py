"""What goes wrong at the edge, and how it is said.

A message has four parts: the argument as the caller wrote it, what was found with numbers, which
items (five, then "and N more"), and the next step. The exit code of the command line belongs to
the class of the error.
"""

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_LONGEST = 80


class FabricError(Exception):
    """Any failure that `fabric` foresees; `exit_code` is what the command line returns."""

    exit_code = 2


class ModelError(FabricError, ValueError):
    """The input is wrong: a value, a name, a unit, a file."""


class InfeasibleError(FabricError, ValueError):
    """The input is sound but cannot be served: unreachable pairs, too little of something."""

    exit_code = 3


class UnreachableError(InfeasibleError):
    """Flows whose destination cannot be reached.

    Attributes:
        flows: Which ones, by number, in order.
    """

    def __init__(self, message: str, flows: Sequence[int] = ()):
        super().__init__(message)
        self.flows = tuple(int(flow) for flow in flows)


class UnsolvedError(FabricError, RuntimeError):
    """A solve did not converge, or its certificate does not hold."""

    exit_code = 4


def some(
    items: Iterable[object], limit: int = 5, *, name: Callable[[Any], object] | None = None
) -> str:
    """Return up to `limit` items in quotes, then "and N more".

    Args:
        items: What to list.
        limit: How many at most.
        name: What an item is called; asked only for those that are listed. Default: its text.
            Of more than 80 characters the middle is left out.

    Examples:
        >>> some(["a", "b", "c"])
        "'a', 'b' and 'c'"
        >>> some(range(8), name="host{}".format)
        "'host0', 'host1', 'host2', 'host3', 'host4' and 3 more"
    """
    rest = iter(items)
    listed = [
        quoted(item if name is None else name(item)) for item in itertools.islice(rest, limit)
    ]
    return joined(listed, more=sum(1 for _ in rest))


def quoted(item: object) -> str:
    r"""Return the text of an item in quotes, on one line and of a length that can be read.

    Examples:
        >>> quoted("host0"), quoted("two\nlines"), len(quoted("x" * 3000))
        ("'host0'", "'two\\nlines'", 82)
    """
    text = printable(str(item))
    if len(text) > _LONGEST:
        half = (_LONGEST - 3) // 2
        text = f"{text[: _LONGEST - 3 - half]}...{text[-half:]}"
    return f"'{text}'"


def path_in_quotes(path: object) -> str:
    """Return a path in quotes, on one line and never cut.

    Examples:
        >>> len(path_in_quotes("x" * 3000))
        3002
    """
    return f"'{printable(str(path))}'"


def printable(text: str) -> str:
    r"""Return a text with its control characters and ends of line escaped.

    Examples:
        >>> print(printable("leaf\t1\x1b[31m"))
        leaf\t1\x1b[31m
    """
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def joined(words: Sequence[str], limit: int | None = None, *, more: int = 0) -> str:
    """Return words with commas and "and", as they are; beyond `limit`, how many more there are.

    Args:
        words: What to list.
        limit: How many at most. Default: all.
        more: How many there are besides `words`.

    Examples:
        >>> joined(["a", "b", "c"]), joined(["a", "b", "c"], 2), joined(["a"])
        ('a, b and c', 'a, b and 1 more', 'a')
    """
    shown = list(words if limit is None else words[:limit])
    if more := more + len(words) - len(shown):
        shown.append(f"{more:,} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def nearest(word: str, known: Sequence[str]) -> str:
    """Return a sentence that offers the known name nearest to `word`, or lists what is known.

    >>> nearest("all-to-al", ["all-to-all", "ring"])
    "Did you mean 'all-to-all'? Known: 'all-to-all' and 'ring'."
    """
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    hint = f"Did you mean {quoted(close[0])}? " if close else ""
    return f"{hint}Known: {some(known, limit=12)}."


def raise_faults(faults: Sequence[str]) -> None:
    """Raise one `ModelError` that holds every fault found, or return when there is none."""
    if faults:
        raise ModelError("\n".join(faults))
