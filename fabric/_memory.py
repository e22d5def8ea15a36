"""Memory asked for before it is taken: what is free, and a refusal that says how much too much."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from fabric._errors import InfeasibleError
from fabric._units import format_size

UNASKED = 2**28
"""Bytes below which nobody asks: looking up what is free would take longer than the work."""

_CGROUP, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


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
    free = min([free, *_left_in_groups()])
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


def _left_in_groups() -> Iterator[float]:
    """Yield what the limit of each control group around this process leaves, version 1 or 2."""
    try:
        groups = [line.split(":", 2) for line in _OWN.read_text().split()]
    except OSError:
        return
    for group in groups:
        if len(group) < 3 or group[1] not in ("", "memory"):
            continue
        root = _CGROUP / "memory" if group[1] else _CGROUP
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if group[1] else (
            "memory.max", "memory.current",
        )  # fmt: skip
        here = root / group[2].strip("/")
        for folder in [here, *here.parents]:
            limit, used = (_number(folder / name) for name in names)
            if limit is not None and used is not None:
                yield limit - used + _cached(folder)
            if folder == root:
                break


def _cached(folder: Path) -> int:
    """Return bytes that count as used but are only files read before, given up when asked."""
    with contextlib.suppress(OSError):
        rows = dict(line.split()[:2] for line in (folder / "memory.stat").read_text().splitlines())
        return int(rows.get("inactive_file", 0)) + int(rows.get("active_file", 0))
    return 0


def _number(path: Path) -> int | None:
    """Return the first number in a file, None where there is none."""
    try:
        first = path.read_text().split()[0]
    except (OSError, IndexError):
        return None
    return int(first) if first.isdigit() else None
