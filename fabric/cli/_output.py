"""Where answers go: stdout or a file written whole; and where progress goes: stderr."""

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fabric._errors import ModelError, nearest, printable
from fabric.readers._files import save

FORMATS = ("text", "json")
# What a shell reports for a program that the end of a pipe stopped.
PIPE_CLOSED = 141
Format = Annotated[
    str, typer.Option("--format", help="text or json.", metavar="text|json", show_default=False)
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write here instead of on the screen.")
]
_EVERY = 3.0
"""Seconds between two lines of progress where nobody watches a terminal."""


def known(option: str, value: str, names: Sequence[str]) -> str:
    """Return `value`, or raise with the nearest of the names that `option` takes."""
    if value not in names:
        message = f"`{option} {value}` is not known. {nearest(value, list(names))}"
        raise ModelError(message)
    return value


def check_output(output: Path | None) -> None:
    """Raise now, rather than after minutes of work, if a file could not be written there."""
    if output is None:
        return
    if output.is_dir():
        message = f"`-o {output}` is a folder. Name a file inside it."
        raise ModelError(message)
    if not output.parent.is_dir():
        message = f"`-o {output}`: there is no folder '{output.parent}'. Make it first."
        raise ModelError(message)


def emit(
    answer: dict[str, Any],
    lines: Callable[[dict[str, Any]], list[str]],
    format: str,
    output: Path | None,
) -> None:
    """Print or write an answer.

    Args:
        answer: For JSON.
        lines: Makes the text for people, from the answer without control characters.
        format: "text" or "json".
        output: A file, or None for stdout.
    """
    if format == "json":
        text = [json.dumps(plain(answer), indent=2, allow_nan=False, ensure_ascii=False)]
    else:
        text = lines(_printable(answer))
    if output is not None:
        write(output, lambda path: save(path, "\n".join(text) + "\n"))
        return
    _show(text, format)


def _show(text: list[str], format: str) -> None:
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ and format == "text":
        _print_coloured(text)
    else:
        typer.echo("\n".join(text))


def silence() -> None:
    """Point stdout at nothing, or Python itself would complain about the pipe while it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


def _print_coloured(lines: list[str]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for line in lines:
        heading = line[:1].strip() != ""
        console.print(Text(line, style="bold" if heading else ""))


def write(output: Path, save: Callable[[Path], object]) -> None:
    """Let `save` make the file at `output`, whole or not at all; it keeps its mode and its links.

    Args:
        output: A file, a device or a pipe.
        save: Writes the file at a path.
    """
    # A device or a pipe such as /dev/stdout cannot be replaced, and must not be.
    if output.exists() and not output.is_file():
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder, output.name)
            save(made)
            output.write_bytes(made.read_bytes())
        return
    target = output.resolve()
    mode = target.stat().st_mode & 0o777 if target.exists() else None
    save(target)
    if mode is not None:
        target.chmod(mode)


def _printable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return printable(value) if isinstance(value, str) else value


def plain(value: Any) -> Any:
    """Return a value as JSON knows it; what is not finite becomes null.

    Examples:
        >>> plain({"rate": np.float64(2.0), "cap": float("inf"), "links": np.arange(2)})
        {'rate': 2.0, 'cap': None, 'links': [0, 1]}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def table(rows: list[list[str]], right: Sequence[int] = ()) -> list[str]:
    """Return rows as aligned lines; columns listed in `right` are aligned there.

    Examples:
        >>> table([["link", "flows"], ["a->b", "12"]], right=[1])
        ['link  flows', 'a->b     12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pad = lambda i, cell: cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
    return ["  ".join(pad(i, cell) for i, cell in enumerate(row)).rstrip() for row in rows]


def note(message: str) -> None:
    """Say something on stderr that is no part of the answer."""
    typer.echo(message, err=True)


class Progress:
    """Steps done of steps to do, on stderr: a bar on a terminal, else a line now and then."""

    def __init__(self, what: str, total: int):
        self.what, self.total, self.done = what, total, 0
        self.start = self.last = time.monotonic()
        self.bar: Any = None

    def __enter__(self) -> "Progress":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress as Bar,
                TextColumn,
                TimeRemainingColumn,
            )

            self.bar = Bar(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self.bar.start()
            self.task = self.bar.add_task(self.what, total=self.total, rate="")
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def step(self) -> None:
        """Count one step, and say so when it is time."""
        self.done += 1
        now = time.monotonic()
        rate = self.done / max(now - self.start, 1e-9)
        if self.bar is not None:
            self.bar.update(self.task, advance=1, rate=f"{rate:.2f} per s")
        elif now - self.last >= _EVERY and self.done < self.total:
            self.last = now
            left = (self.total - self.done) / rate
            note(f"{self.what}: {self.done} of {self.total}, {rate:.2f} per s, {left:.0f} s left")
