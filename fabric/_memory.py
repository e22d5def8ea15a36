"""Memory asked for before it is taken: what is free, and a refusal that says how much too much."""

import contextlib
from pathlib import Path

from fabric._errors import InfeasibleError
from fabric._units import format_size

UNASKED = 2**28
"""Bytes below which nobody asks: looking up what is free would take longer than the work."""

_CGROUP = Path("/sys/fs/cgroup")


def available() -> float:
    """Return the bytes this process may still take, infinite where the system does not say.

    Examples:
        >>> available() > 0
        True
    """
    free = float("inf")
    information = Path("/proc/meminfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = 1024.0 * int(line.split()[1])
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        free = min(free, limit - used + _cached())
    with contextlib.suppress(ImportError):  # there is no such module on Windows
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:
            taken = _number(Path("/proc/self/statm"))
            free = min(free, most - (taken or 0) * resource.getpagesize())
    return free


def afford(what: str, needed: float, instead: str) -> None:
    """Raise before work that would not fit in memory.

    Args:
        what: The work as the caller wrote it, and its size.
        needed: Bytes that it takes at its peak.
        instead: What to do about it.

    Raises:
        InfeasibleError: With the bytes it needs and the bytes that are free.

    Examples:
        >>> afford("`work`, of 3 flows,", 100, "Take fewer.")
    """
    if needed <= UNASKED:
        return
    free = available()
    if needed > free:
        message = (
            f"{what} needs about {format_size(needed)} of memory, but {format_size(max(free, 0))} "
            f"are free. {instead}"
        )
        raise InfeasibleError(message)


def _cached() -> int:
    """Return the bytes that count as used but are only files read long ago, given up when asked."""
    with contextlib.suppress(OSError):
        for line in (_CGROUP / "memory.stat").read_text().splitlines():
            if line.startswith("inactive_file "):
                return int(line.split()[1])
    return 0


def _number(path: Path) -> int | None:
    """Return the first number in a file, None where there is none."""
    try:
        first = path.read_text().split()[0]
    except (OSError, IndexError):
        return None
    return int(first) if first.isdigit() else None
