"""Scenarios on top of each other: `from`, blocks with own keys, and settings by dotted path."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fabric._errors import ModelError, joined, quoted, raise_faults
from fabric.scenario._capped import capped
from fabric.scenario._document import Document, Spot, parse_value, read_document
from fabric.scenario._find import find

BLOCKS = ("model", "hardware", "fabric", "layout", "run")
FORMS = {"fabric": ("cluster", "file", "builder"), "model": ("config", "layers")}
"""Keys of which a block has one, and which say what it is."""
KEYS = ("schema", "about", *BLOCKS, "cases", "from")
"""Every key at the top of a scenario."""

_PATHS = (("model", "config"), ("hardware", "folder"), ("fabric", "file"))
_DTYPES = ("bf16", "fp16", "fp8", "fp32")


def load(text: str) -> Document:
    """Return a scenario by its path or name, with everything that `from` brings in."""
    return _read(find(text), ())


def _read(path: Path, used: Sequence[Path]) -> Document:
    return resolved(read_document(path), (*used, path))


def resolved(document: Document, used: Sequence[Path] = ()) -> Document:
    """Return a document without `from`: what it names is underneath, and paths are absolute.

    Args:
        document: As written.
        used: Files that are being read, the document's own last.

    Raises:
        ModelError: If it has no key of a scenario, or `from` names what cannot be read.
    """
    if document.data and not any(key in KEYS for key in document.data):
        name = document.place((next(iter(document.data)),)).rpartition(":")[0] or "This"
        message = (
            f"{name} is no scenario: it has none of the keys {joined([f'`{key}`' for key in KEYS])}"
            f". `docs/scenario.md` shows one; `fabric topo` looks at a file that holds a fabric."
        )
        raise ModelError(message)
    own = Document(_absolute(document.data, document.folder), document.places, document.folder)
    if "from" in own.data:
        base = _referred(own.data.pop("from"), own, ("from",), used)
        own = _stacked(base, own)
    for block in BLOCKS:
        value = own.data.get(block)
        if not (isinstance(value, dict) and "from" in value):
            continue
        rest = {key: item for key, item in value.items() if key != "from"}
        base = _referred(value["from"], own, (block, "from"), used)
        if block not in base.data:
            message = (
                f"`{block}.from` ({own.place((block, 'from'))}): {quoted(value['from'])} has no "
                f"block `{block}`. It has {', '.join(f'`{key}`' for key in base.data)}."
            )
            raise ModelError(message)
        under = Document({block: base.data[block]}, base.places)
        own.data.pop(block)
        part = Document({block: rest} if rest else {}, own.places)
        both = _stacked(under, part)
        own.data[block] = both.data[block]
        own.places = {**both.places, **own.places}
    return own


def _referred(name: Any, document: Document, spot: Spot, used: Sequence[Path]) -> Document:
    if not isinstance(name, str):
        message = (
            f"`{'.'.join(map(str, spot))}` ({document.place(spot)}) needs the path or name of a "
            f"scenario, but got {name!r}."
        )
        raise ModelError(message)
    return _read(find(name, document.folder, used), used)


def _stacked(base: Document, own: Document) -> Document:
    """Return one document over another: blocks key by key, all else replaced."""
    data = dict(base.data)
    for key, value in own.data.items():
        data[key] = _over(key, data[key], value) if key in data and key in BLOCKS else value
    return Document(data, {**base.places, **own.places}, own.folder)


def _over(block: str, base: Any, own: Any) -> Any:
    if block == "layout" and isinstance(base, str) and isinstance(own, Mapping):
        for key, value in own.items():
            base = with_word(base, key, value)
        return base
    if not isinstance(base, Mapping) or not isinstance(own, Mapping):
        return own
    forms = FORMS.get(block, ())
    chosen = [key for key in forms if key in own]
    if chosen and not any(key in base for key in chosen):
        return dict(own)
    return {
        key: {**base[key], **own[key]}
        if isinstance(base.get(key), Mapping) and isinstance(own.get(key), Mapping)
        else own.get(key, base.get(key))
        for key in (*base, *(key for key in own if key not in base))
    }


def with_settings(document: Document, settings: Mapping[str, Any], place: str) -> Document:
    """Return a document with some values replaced.

    Args:
        document: Resolved.
        settings: Values by dotted path, such as "run.placement". A word of a layout is
            "layout.dp"; a number of a profile is "hardware.set.efficiency.nic".
        place: What to call the origin of the values.

    Raises:
        ModelError: If a path leads through a value that has no keys; all at once.
    """
    data = _copied(document.data)
    places = dict(document.places)
    faults = []
    # What kind of fabric it is decides which of the other keys there are.
    spots = {_spot(path): (path, value) for path, value in settings.items()}
    for spot, (path, value) in sorted(spots.items(), key=lambda item: not _is_form(item[0])):
        owner = data
        for depth, key in enumerate(spot[:-1]):
            inner = owner.get(key)
            if inner is None:
                inner = owner[key] = {}
            if isinstance(inner, str) and spot[0] == "layout" and depth == 0:
                owner[key] = with_word(inner, spot[1], value)
                break
            if not isinstance(inner, dict):
                faults.append(_no_keys(path, spot[: depth + 1], inner, spot[-1]))
                break
            owner = inner
        else:
            _replace(owner, spot, value)
        places[spot] = place
    raise_faults(capped(faults))
    return Document(_absolute(data, Path()), places, document.folder)


def settings_of(texts: Sequence[str], flag: str = "--set") -> dict[str, Any]:
    """Return values by path from lines such as `run.placement=first`.

    Args:
        texts: One setting each, its value in YAML.
        flag: What the option is called.

    Raises:
        ModelError: If one has no `=`, or no value that YAML knows; all at once.

    Examples:
        >>> settings_of(["run.placement=first", "layout.dp=16"])
        {'run.placement': 'first', 'layout.dp': 16}
    """
    found, faults = {}, []
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            faults.append(
                f"`{flag} {text}` is not of the form `a.b=value`, such as `run.placement=first`."
            )
            continue
        try:
            found[path.strip()] = parse_value(value, f"{flag} {path.strip()}")
        except ModelError as error:
            faults.append(str(error))
    raise_faults(faults)
    return found


def with_word(layout: str, key: Any, value: Any) -> str:
    """Return a layout with one word replaced or added.

    Examples:
        >>> with_word("tp8 sp pp4 gbs64 seq8192 bf16", "pp", 2)
        'tp8 sp gbs64 seq8192 bf16 pp=2'
        >>> with_word("tp8 gbs64 seq8192 bf16", "dtype", "fp8")
        'tp8 gbs64 seq8192 dtype=fp8'
    """
    said = rf"{re.escape(str(key))}(=.*|\d.*)?"
    kept = [
        word
        for word in layout.split()
        if not re.fullmatch(said, word) and not (key == "dtype" and word in _DTYPES)
    ]
    shown = str(value).lower() if isinstance(value, bool) else value
    return " ".join([*kept, f"{key}={shown}"])


def _spot(path: str) -> tuple[str, ...]:
    """Return the keys of a path; what follows `hardware.set` is one key with its dots."""
    keys = path.split(".")
    if keys[:2] == ["hardware", "set"] and len(keys) > 2:
        return "hardware", "set", ".".join(keys[2:])
    return tuple(keys)


def _is_form(spot: tuple[str, ...]) -> bool:
    return len(spot) == 2 and spot[1] in FORMS.get(spot[0], ())


def _replace(owner: dict[str, Any], spot: tuple[str, ...], value: Any) -> None:
    """Set a value; another kind of fabric or model takes the keys of the old one along."""
    key = spot[-1]
    if _is_form(spot) and key not in owner:
        for old in [k for k in owner if k not in ("routing", "server")]:
            del owner[old]
    owner[key] = value


def _no_keys(path: str, spot: tuple[str, ...], value: Any, key: str) -> str:
    said = ".".join(spot)
    return (
        f"`{path}`: `{said}` is {value!r:.60}, which has no key `{key}`. Set `{said}` as a whole."
    )


def _absolute(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a copy in which paths of files do not depend on where it is read."""
    data = _copied(data)
    cases = data.get("cases")
    listed = cases if isinstance(cases, list) else []
    told = [case.get("set") for case in listed if isinstance(case, dict)]
    for block, key in _PATHS:
        owners = [(data.get(block), key), *((settings, f"{block}.{key}") for settings in told)]
        for owner, name in owners:
            if isinstance(owner, dict) and isinstance(path := owner.get(name), str):
                owner[name] = str((folder / Path(path).expanduser()).absolute())
    return data


def _copied(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _copied(value) for key, value in data.items()}
    return [_copied(item) for item in data] if isinstance(data, list) else data
