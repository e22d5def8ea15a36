"""`capped`: the first of many faults, and how many more there are."""

from collections.abc import Sequence

_MOST = 5


def capped(faults: Sequence[str], what: str = "faults") -> list[str]:
    """Return up to five faults, then a line that counts the others.

    Args:
        faults: A line each.
        what: What there are more of.

    Examples:
        >>> capped(["a", "b", "c", "d", "e", "f", "g"])
        ['a', 'b', 'c', 'd', 'e', 'and 2 more faults.']
    """
    if len(faults) <= _MOST + 1:
        return list(faults)
    return [*faults[:_MOST], f"and {len(faults) - _MOST:,} more {what}."]
