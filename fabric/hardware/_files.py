"""Where catalogue entries lie: the files of the package, and those of the user before them."""

import functools
import os
from pathlib import Path
from typing import Any

from fabric._errors import ModelError, nearest, path_in_quotes, printable, quoted, raise_faults
from fabric.hardware._entry import Entry
from fabric.hardware._home import home

KINDS = ("gpus", "servers", "nics", "switches", "profiles")
VARIABLE = "FABRIC_HARDWARE"

_BUILTIN = Path(__file__).parent / "data"

Folder = str | os.PathLike[str] | None


def entry(kind: str, name: str, folder: Folder) -> tuple[str, Entry]:
    """Return the name and the entry of a part, the user's before the built-in one.

    Args:
        kind: One of `KINDS`.
        name: Of the part, or an alias of it.
        folder: Of the user; None: the one that the environment variable `FABRIC_HARDWARE` names,
            else `hardware` in the user's home, if it is there.

    Raises:
        ModelError: If there is no such part, or a file cannot be read.
    """
    raw, files = _entries(kind, folder)
    if name not in raw:
        aliases = {alias: owner for owner, found in raw.items() for alias in _aliases(found)}
        if name not in aliases:
            message = (
                f"There is no {_one(kind)} {quoted(name)}. {nearest(name.lower(), sorted(raw))}"
            )
            raise ModelError(message)
        name = aliases[name]
    found = Entry(raw[name], f"{_one(kind)} {quoted(name)} in {files[name]}")
    if kind != "profiles":
        found.names("aliases")
    return name, found


def names(kind: str, folder: Folder = None) -> tuple[str, ...]:
    """Return the names of all parts of a kind, in the order of the files.

    Args:
        kind: "gpus", "servers", "nics", "switches" or "profiles".
        folder: Of the user, whose parts count too. Default: the one that the environment variable
            `FABRIC_HARDWARE` names, else `hardware` in the user's home, if it is there.

    Raises:
        ModelError: If there is no such kind, or a file cannot be read.

    Examples:
        >>> names("nics")
        ('cx6', 'cx7', 'cx8')
    """
    if kind not in KINDS:
        message = f"`names(kind={kind!r})`: no such kind of part. {nearest(kind, KINDS)}"
        raise ModelError(message)
    return tuple(_entries(kind, folder)[0])


def _entries(kind: str, folder: Folder) -> tuple[dict[str, Any], dict[str, str]]:
    """Return every entry of a kind by name, and the file it comes from."""
    if folder is None:
        folder = os.environ.get(VARIABLE) or _own()
    found = [_builtin(kind)]
    if folder is not None:
        found.append(_read(_checked(folder), kind))
    raw: dict[str, Any] = {}
    files: dict[str, str] = {}
    for entries, where in found:
        raw |= entries
        files |= where
    return raw, files


def _own() -> Path | None:
    folder = home() / "hardware"
    return folder if folder.is_dir() else None


def _checked(folder: str | os.PathLike[str]) -> Path:
    """Return a user's folder, or say what in it would never be read."""
    path = Path(folder)
    if not path.is_dir():
        message = (
            f"The hardware folder {path_in_quotes(path)} is no folder. Set `folder` or the "
            f"environment variable `{VARIABLE}` to one that holds files such as 'gpus.yaml'."
        )
        raise ModelError(message)
    known = [f"{kind}.yaml" for kind in KINDS if kind != "profiles"]
    stray = [
        file.name
        for file in sorted(path.iterdir())
        if file.suffix in (".yaml", ".yml") and file.name not in known
    ]
    stray += [f"profiles/{file.name}" for file in sorted((path / "profiles").glob("*.yml"))]
    raise_faults(
        [
            f"{path_in_quotes(file)} in the hardware folder {path_in_quotes(path)} is none of its "
            "files. "
            f"{nearest(file, known)} Profiles are 'profiles/NAME.yaml'."
            for file in stray
        ]
    )
    return path


@functools.cache
def _builtin(kind: str) -> tuple[dict[str, Any], dict[str, str]]:
    return _read(_BUILTIN, kind)


def _read(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, str]]:
    if kind == "profiles":
        found = sorted((folder / "profiles").glob("*.yaml"))
        return {f.stem: _load(f) for f in found}, {f.stem: _called(f) for f in found}
    file = folder / f"{kind}.yaml"
    raw = _load(file) if file.exists() else {}
    if not isinstance(raw, dict) or not all(isinstance(name, str) for name in raw):
        message = f"{path_in_quotes(file)} needs a mapping of names to entries."
        raise ModelError(message)
    return raw, dict.fromkeys(raw, _called(file))


def _called(file: Path) -> str:
    """Return what a file is called in a message."""
    return f"the built-in {file.name}" if file.is_relative_to(_BUILTIN) else path_in_quotes(file)


def _load(file: Path) -> Any:
    """Return what a YAML file holds; a key that is there twice is an error, not the last wins."""
    import yaml

    class Loader(yaml.SafeLoader):
        """The safe loader, but no key twice."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [key.value for key, _ in node.value]
            for key, _ in node.value:
                if keys.count(key.value) > 1:
                    problem = f"the key {quoted(key.value)} is there twice"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(file.read_text(encoding="utf-8"), Loader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, OSError) as error:
        what = printable(" ".join(str(error).split()))
        message = f"{path_in_quotes(file)} cannot be read as YAML: {what}"
        raise ModelError(message) from None


def _aliases(raw: Any) -> list[str]:
    aliases = raw.get("aliases") if isinstance(raw, dict) else None
    return [alias for alias in aliases if isinstance(alias, str)] if aliases else []


def _one(kind: str) -> str:
    return {"gpus": "GPU", "nics": "NIC", "switches": "switch"}.get(kind, kind[:-1])
