"""Where scenarios lie: files, the folder of the user, and those that ship with the package."""

import re
from collections.abc import Sequence
from pathlib import Path

from fabric._errors import ModelError, nearest, quoted
from fabric.hardware import home

_BUILTIN = Path(__file__).resolve().parents[1] / "data" / "scenarios"


def scenario_names() -> tuple[str, ...]:
    """Return the names of scenarios that need no file: the user's and the built-in ones.

    The user's lie in the folder `scenarios` of the one that the environment variable `FABRIC_HOME`
    names, by default `~/.config/fabric`.

    Examples:
        >>> "demo" in scenario_names()
        True
    """
    return tuple(sorted({path.stem for folder in _folders() for path in folder.glob("*.yaml")}))


def find(text: str, folder: Path = Path(), used: Sequence[Path] = ()) -> Path:
    """Return the file of a scenario.

    Args:
        text: A path, or a name of `scenario_names()`; a file is looked for first.
        folder: Paths are taken from here.
        used: Files that are being read already, which a name does not mean: a scenario of the
            user may stand on the built-in one of its own name.

    Raises:
        ModelError: If there is none, or a file stands on itself.
    """
    path = folder / Path(text).expanduser()
    if _is_file(path):
        if path.resolve() in used:
            message = f"{quoted(text)} stands on itself by `from`. Name another scenario."
            raise ModelError(message)
        return path.resolve()
    named = (
        [place / f"{text}.yaml" for place in _folders()] if re.fullmatch(r"[\w.-]+", text) else []
    )
    for found in named:
        if found.is_file() and found.resolve() not in used:
            return found.resolve()
    hint = "Check the path." if re.search(r"[/\\]|\.ya?ml$", text) else ""
    message = (
        f"{quoted(text)} is no scenario file here, and no scenario that ships. "
        f"{hint or nearest(text, scenario_names())}"
    )
    raise ModelError(message)


def _folders() -> list[Path]:
    return [folder for folder in (home() / "scenarios", _BUILTIN) if folder.is_dir()]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
