"""Files that are whole or not there, whatever happens while they are written."""

import glob
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ENDING = ".part"


def write_whole(path: Path, write: Callable[[Any], object]) -> None:
    """Let `write` fill a file beside `path`, and put it in its place; links are followed.

    Args:
        path: Where.
        write: Takes the file, open for bytes.

    Raises:
        OSError: If it cannot be written; what was there stays.
    """
    target = path.resolve()
    # In the same folder, since a rename is atomic only within one file system.
    partial = target.with_name(f".{target.name}.{os.getpid()}{_ENDING}")
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def sweep(path: Path) -> None:
    """Remove what writers of `path` left beside it when they were killed."""
    target = path.resolve()
    for left in target.parent.glob(glob.escape(f".{target.name}.") + f"*{_ENDING}"):
        left.unlink(missing_ok=True)
