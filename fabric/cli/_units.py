"""Numbers and lists as the text answers show them."""

from collections.abc import Sequence


def bits(rate: float) -> str:
    """Return byte/s as the speed of a port.

    Examples:
        >>> bits(50e9), bits(1.25e6)
        ('400 Gb/s', '10 Mb/s')
    """
    value = rate * 8
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:g} {prefix}b/s"
    return f"{value:g} b/s"


def percent(share: float) -> str:
    """Return a share as a percentage with one decimal.

    Examples:
        >>> percent(0.504)
        '50.4 %'
    """
    return f"{share * 100:.1f} %"


def listed(items: Sequence[str], limit: int) -> str:
    """Return items with commas, up to `limit`, then how many more there are.

    Examples:
        >>> listed(["a", "b", "c"], 2)
        'a, b and 1 more'
    """
    if len(items) > limit:
        return f"{', '.join(items[:limit])} and {len(items) - limit:,} more"
    return ", ".join(items)
