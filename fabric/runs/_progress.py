"""How far long work has come, and how good its answer is by now, on stderr."""

import math
import os
import sys
import time
from types import TracebackType
from typing import Any

_QUIET_S = 2.0
_STEP_S = 0.5
_LINE_S = 5.0


class Progress:
    """Says how much is done, how fast, how long the rest takes, and objective, bound and gap.

    On a terminal one line is written over and over, and wiped at the end; nothing is said in the
    first two seconds. Elsewhere nothing is said, unless the environment variable
    `FABRIC_PROGRESS` is 1: then there is a line every five seconds. With 0 there is never one.

    Args:
        total: How many there are. Default: not known, and no time to go is given.
        what: The items, in the plural.
        stream: Where to write, a file opened for text. Default: stderr.

    Examples:
        >>> with Progress(1000, what="steps") as progress:
        ...     for step in range(1000):
        ...         progress.update(step + 1, objective=1.02, bound=1.0)
    """

    def __init__(self, total: int | None = None, what: str = "items", stream: Any = None):
        self._total, self._what = total, what
        self._stream = sys.stderr if stream is None else stream
        asked = os.environ.get("FABRIC_PROGRESS", "")
        self._terminal = self._stream.isatty()
        self._shown = asked != "0" and (self._terminal or asked == "1")
        self._begun = self._said = time.monotonic()
        self._first: int | None = None
        self._open = False

    def __enter__(self) -> "Progress":
        return self

    def update(self, done: int, objective: float | None = None, bound: float | None = None) -> None:
        """Say how far the work is, if it is time to.

        Args:
            done: How many items are done, those of an earlier, interrupted run included.
            objective: The best value so far, if there is one.
            bound: What no solution can beat, if it is known.
        """
        if not self._shown:
            return
        now = time.monotonic()
        # Items of an interrupted run, or of a slow first call, say nothing about the speed.
        if self._first is None:
            self._first, self._begun = done, now
        pause = _STEP_S if self._terminal else _LINE_S
        if now - self._begun < _QUIET_S or now - self._said < pause:
            return
        self._said = now
        line = self._line(done, (done - self._first) / (now - self._begun), objective, bound)
        self._open = self._terminal
        self._stream.write(f"\r{line}\x1b[K" if self._terminal else f"{line}\n")
        self._stream.flush()

    def _line(self, done: int, rate: float, objective: float | None, bound: float | None) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        said = [f"{done:,}{of} {self._what}", f"{rate:.3g} a second"]
        if self._total is not None and rate > 0:
            said.append(f"{max(self._total - done, 0) / rate:.0f} s to go")
        reached = objective is not None and math.isfinite(objective)
        proved = bound is not None and math.isfinite(bound)
        said += [f"objective {objective:.6g}"] if reached else []
        said += [f"bound {bound:.6g}"] if proved else []
        if objective is not None and bound is not None and reached and proved:
            said.append(f"gap {gap(objective, bound):.2%}")
        return ", ".join(said)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._open:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def gap(objective: float, bound: float) -> float:
    """Return how far apart two positive values are, relative to the smaller one.

    Examples:
        >>> round(gap(1.02, 1.0), 6), round(gap(1.0, 1.02), 6)
        (0.02, 0.02)
    """
    low, high = sorted((objective, bound))
    if low == high:
        return 0.0
    return high / low - 1 if low > 0 else float("inf")
