"""Rows whose quote is a limit, not a number to meet."""

from experiments.rows import Row


def at_most(name: str, limit: float, found: float, unit: str, source: str, note: str = "") -> Row:
    """Return a row that holds if `found` is at most the limit."""
    return _limited(name, limit, found, found <= limit, unit, source, f"at most; {note}")


def at_least(name: str, limit: float, found: float, unit: str, source: str, note: str = "") -> Row:
    """Return a row that holds if `found` is at least the limit."""
    return _limited(name, limit, found, found >= limit, unit, source, f"at least; {note}")


def _limited(
    name: str, limit: float, found: float, holds: bool, unit: str, source: str, note: str
) -> Row:
    error = abs(found / limit - 1) if limit else abs(found)
    note = note.removesuffix("; ")
    return Row(name, limit, found, unit, error if holds else 0.0, source, note)
