"""Numbers and lists as the text answers show them."""

import re
from collections.abc import Sequence

_LINK = re.compile(r"(.+?)(\[\d+\])?->(.+?)(\[\d+\]|#\d+)?")


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


def counted(n: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, which has an s unless the number is 1.

    Examples:
        >>> counted(1, "link"), counted(1_034, "link"), counted(2, "leaf", "leaves")
        ('1 link', '1,034 links', '2 leaves')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def cut(name: str, width: int) -> str:
    """Return a name of at most `width` characters, its middle left out where it is longer.

    Examples:
        >>> cut("MF0;director-7:CS8500/L12/U1", 14)
        'MF0;di..L12/U1'
    """
    half = (width - 2) // 2
    return name if len(name) <= width else f"{name[: width - 2 - half]}..{name[-half:]}"


def fitted(a: str, b: str, width: int) -> tuple[str, str]:
    """Return two names of at most `width` characters together; the longer is cut first.

    Examples:
        >>> fitted("spine0", "MF0;director-7:CS8500/L12/U1", 20)
        ('spine0', 'MF0;di..L12/U1')
    """
    half = width // 2
    return cut(a, max(half, width - len(b))), cut(b, max(width - half, width - len(a)))


def cut_link(name: str, width: int) -> str:
    """Return the name of a link in which only the names of its nodes are cut, never its ports.

    Examples:
        >>> cut_link("MF0;director-7:CS8500/L12/U1[31]->spine0[2]", 28)
        'MF0;di..12/U1[31]->spine0[2]'
    """
    match = _LINK.fullmatch(name)
    if match is None:
        return cut(name, width)
    a, a_port, b, b_port = (part or "" for part in match.groups())
    a, b = fitted(a, b, width - len(f"{a_port}->{b_port}"))
    return f"{a}{a_port}->{b}{b_port}"
