"""`Document`: plain data of a YAML text, and the place where each key stands."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabric._errors import ModelError, path_in_quotes, printable, quoted, raise_faults
from fabric.scenario._capped import capped

Spot = tuple[str | int, ...]
"""Keys and positions from the top of a document to a value."""

_MOST_NODES = 100_000


@dataclass
class Document:
    """Plain data, and where each value was written.

    Attributes:
        data: What a YAML text holds: mappings, lists, text, numbers, true, false and null.
        places: Where a value stands, such as "job.yaml:7", by its keys from the top.
        folder: Paths of files are taken from here.
    """

    data: dict[str, Any]
    places: dict[Spot, str] = field(default_factory=dict)
    folder: Path = field(default_factory=Path)

    def place(self, spot: Spot) -> str:
        """Return where a value, or the nearest thing around it, was written; "" if unknown."""
        while spot and spot not in self.places:
            spot = spot[:-1]
        return self.places.get(spot, "")


def read_document(path: str | os.PathLike[str]) -> Document:
    """Return what a YAML file holds.

    Raises:
        ModelError: If it cannot be read, is no YAML, or holds no mapping.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        message = f"The scenario {path_in_quotes(file)} cannot be read: {why}."
        raise ModelError(message) from None
    return parse_document(text, file.name, file.absolute().parent)


def parse_document(text: str, name: str, folder: Path) -> Document:
    r"""Return what a YAML text holds.

    Args:
        text: YAML.
        name: What to call it in errors.
        folder: Paths of files are taken from here.

    Raises:
        ModelError: If it is no YAML, has a key twice, or is no mapping.

    Examples:
        >>> found = parse_document("run:\n  seed: 3", "job.yaml", Path())
        >>> found.data, found.place(("run", "seed"))
        ({'run': {'seed': 3}}, 'job.yaml:2')
    """
    data, places = _parsed(text, name)
    if not isinstance(data, dict):
        message = (
            f"{quoted(name)} needs keys such as `schema: 1` and `model: ...`, but holds "
            f"{_kind(data)}. See `docs/scenario.md` for the shape of a scenario."
        )
        raise ModelError(message)
    return Document(data, places, folder)


def parse_value(text: str, name: str) -> Any:
    """Return the value of a short YAML text, as of `--set a.b=value`.

    Examples:
        >>> parse_value("[a, 2]", "--set"), parse_value("1e3", "--set")
        (['a', 2], '1e3')
    """
    return _parsed(text, name)[0]


def _kind(data: Any) -> str:
    return "nothing" if data is None else f"a {type(data).__name__}"


def _parsed(text: str, name: str) -> tuple[Any, dict[Spot, str]]:
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        loader.name = name
        node = loader.get_single_node()
        walk = _Walk(loader, name)
        data = None if node is None else walk.value(node, ())
    except yaml.YAMLError as error:
        message = f"{quoted(name)} cannot be read as YAML: {_told(error)}"
        raise ModelError(message) from None
    raise_faults(capped(walk.faults))
    return data, walk.places


def _told(error: Exception) -> str:
    """Return what YAML has against a text and where, without the text itself."""
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or str(error)
    line = "" if mark is None else f"line {mark.line + 1}: "
    return f"{line}{printable(' '.join(str(what).split()))}."


class _Walk:
    """Nodes of a YAML document made into values, one after the other."""

    def __init__(self, loader: Any, name: str):
        self.faults: list[str] = []
        self.places: dict[Spot, str] = {}
        self._loader, self._name, self._seen = loader, name, 0

    def value(self, node: Any, spot: Spot) -> Any:
        self._seen += 1
        # Aliases may grow a short text without bound, or hold themselves.
        if self._seen > _MOST_NODES or len(spot) > 50:
            message = f"{quoted(self._name)} is too large for a scenario, or holds itself."
            raise ModelError(message)
        if node.id == "mapping":
            return self._mapping(node, spot)
        if node.id == "sequence":
            return [self.value(item, (*spot, i)) for i, item in enumerate(node.value)]
        return self._loader.construct_object(node)

    def _mapping(self, node: Any, spot: Spot) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, item in node.value:
            key = str(key_node.value) if key_node.id == "scalar" else "?"
            where = f"{self._name}:{key_node.start_mark.line + 1}"
            if key in found:
                self.faults.append(f"{where}: `{key}` is there twice. Keep one.")
            self.places[*spot, key] = where
            found[key] = self.value(item, (*spot, key))
        return found
