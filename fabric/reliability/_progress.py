"""How long work takes, and how far it has come, on stderr."""

import sys
import time
from types import TracebackType

_QUIET_S = 2.0
_STEP_S = 0.5


class Progress:
    """Says how many of some items are done, how fast, and how long the rest takes.

    Nothing is said in the first two seconds. Without `shown`, only a terminal is told.

    Args:
        what: The items, in the plural.
        total: How many there are.
        shown: Whether to speak. Default: if stderr is a terminal.
    """

    def __init__(self, what: str, total: int, shown: bool | None = None):
        self._what, self._total = what, total
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._begun = self._said = time.monotonic()
        self._done, self._open = 0, False

    def __enter__(self) -> "Progress":
        return self

    def step(self) -> None:
        """Count one more item as done."""
        self._done += 1
        now = time.monotonic()
        if not self._shown or now - self._begun < _QUIET_S or now - self._said < _STEP_S:
            return
        self._said, self._open = now, True
        rate = self._done / (now - self._begun)
        rest = (self._total - self._done) / rate
        sys.stderr.write(
            f"\r{self._done:,} of {self._total:,} {self._what}, {rate:.3g} a second, "
            f"{rest:.0f} s to go\x1b[K"
        )
        sys.stderr.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._open:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def long(seconds: float) -> str:
    """Return a time in words.

    Examples:
        >>> long(40), long(7000), long(400000)
        ('40 s', '1.9 hours', '4.6 days')
    """
    if seconds < 300:
        return f"{seconds:.3g} s"
    return f"{seconds / 3600:.2g} hours" if seconds < 172_800 else f"{seconds / 86_400:.2g} days"
