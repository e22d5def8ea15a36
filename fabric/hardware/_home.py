"""Where a user keeps scenarios and hardware: one folder, which `FABRIC_HOME` names."""

import os
from pathlib import Path

from fabric._errors import ModelError, quoted, some

HOME = "FABRIC_HOME"


def home() -> Path:
    """Return the folder with the user's own `scenarios` and `hardware`; it need not be there.

    The environment variable `FABRIC_HOME` names it; by default it is `~/.config/fabric`.

    Raises:
        ModelError: If the variable names no folder, or YAML files lie beside the two folders,
            where nothing reads them.

    Examples:
        >>> home().is_absolute() or bool(os.environ.get("FABRIC_HOME"))
        True
    """
    given = os.environ.get(HOME)
    folder = Path(given).expanduser() if given else Path.home() / ".config" / "fabric"
    if given and not folder.is_dir():
        message = (
            f"`{HOME}={given}` is no folder. Set the environment variable to one that holds the "
            f"folders 'scenarios' and 'hardware', or unset it."
        )
        raise ModelError(message)
    if stray := sorted(file.name for file in folder.glob("*.y*ml")):
        message = (
            f"{some(stray)} in {quoted(folder)} would never be read. Move scenarios into "
            f"{quoted(folder / 'scenarios')}, and hardware into {quoted(folder / 'hardware')}."
        )
        raise ModelError(message)
    return folder
