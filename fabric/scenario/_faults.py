"""What pydantic finds wrong with a scenario, said the way of the house."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fabric._errors import joined, nearest, quoted, raise_faults
from fabric.scenario._capped import capped
from fabric.scenario._document import Document, Spot
from fabric.scenario._layers import FORMS

if TYPE_CHECKING:
    from pydantic import ValidationError

_FORMS = {
    "model": "a listed model, `{config: path}`, or its sizes (`{name: ..., layers: ...}`)",
    "fabric": "`cluster`, `file` or `builder`",
    "layout": "one line of text such as 'tp8 pp4 dp2 gbs64 seq8192', or its words as keys",
}
_SAID = {
    "int_type": "needs a whole number",
    "float_type": "needs a number",
    "bool_type": "needs true or false",
    "string_type": "needs text",
    "list_type": "needs a list",
    "dict_type": "needs keys and values",
    "model_type": "needs keys and values",
    "model_attributes_type": "needs keys and values",
    "greater_than_equal": "needs {ge} or more",
    "less_than_equal": "needs {le} or less",
    "literal_error": "needs {expected}",
}


def checked(document: Document) -> Any:
    """Return a document as the pydantic model of a scenario.

    Raises:
        ModelError: With every key that is unknown or missing and every value that is wrong, each
            with its place, what it needs, and the nearest valid name.
    """
    from pydantic import ValidationError

    from fabric.scenario._schema import Scenario

    try:
        return Scenario.model_validate(document.data)
    except ValidationError as error:
        raise_faults(_faults(error, document))
        raise


def _faults(error: "ValidationError", document: Document) -> list[str]:
    """Return the faults of every kind in every block, five and how many more of each."""
    found: dict[str, list[str]] = {}
    alternatives: dict[str, list[str]] = {}
    for fault in error.errors(include_url=False):
        spot, kind = _spot(fault["loc"], document.data), str(fault["type"])
        name, owner = _name(spot), _name(spot[:-1])
        where = f" ({place})" if (place := document.place(spot)) else ""
        if kind == "missing":
            of = f" of `{owner}`{where}" if owner else ""
            said = f"`{spot[-1]}`{of} is missing. {_example(spot)}"
        elif kind == "extra_forbidden":
            said = _unknown(spot, fault["loc"], where)
        elif kind in ("union_tag_not_found", "union_tag_invalid"):
            wanted = _FORMS[str(spot[0])]
            said = f"`{name}`{where} needs {wanted}, but got {_shown(fault['input'])}."
        elif kind == "value_error":
            told = str(fault.get("ctx", {})["error"])
            said = f"`{name}`{where}: {told}{'' if told.endswith(('.', '?')) else '.'}"
        else:
            word = _SAID.get(kind, fault["msg"][:1].lower() + fault["msg"][1:])
            word = word.format(**fault.get("ctx", {}))
            # A value that fits none of several types is one fault, not one per type.
            got = f", but got {_shown(fault['input'])}."
            key = f"`{name}`{where}|{got}"
            alternatives.setdefault(key, []).append(word)
            said, kind = key, "values"
        group = found.setdefault(f"{kind} of {owner}", [])
        if said not in group:
            group.append(said)
    lines = []
    for kind, group in found.items():
        told = [
            _alternative(key, alternatives[key]) if key in alternatives else key for key in group
        ]
        unknown = kind.startswith("extra_forbidden")
        # What is known is the same for all of them, and may be long.
        told[1:] = [line.partition(" Known: ")[0] if unknown else line for line in told[1:]]
        lines += capped(told, "unknown keys" if unknown else "faults of this kind")
    return lines


def _alternative(key: str, said: list[str]) -> str:
    what, _, got = key.partition("|")
    wanted = [said[0], *(word.removeprefix("needs ") for word in said[1:])]
    return f"{what} {' or '.join(dict.fromkeys(wanted))}{got}"


def _spot(loc: Sequence[str | int], data: Any) -> Spot:
    """Return the keys from the top, without the words that pydantic puts in for unions."""
    keys = [*loc[:1], *loc[2:]] if loc[0] in _FORMS else list(loc)
    spot: list[str | int] = []
    for key in keys:
        if isinstance(data, dict):
            spot.append(key)
            data = data.get(key)
        elif isinstance(data, list) and isinstance(key, int) and key < len(data):
            spot.append(key)
            data = data[key]
    return tuple(spot)


def _name(spot: Spot) -> str:
    return ".".join(map(str, spot))


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"the keys {joined([f'`{key}`' for key in value], 5)}" if value else "no keys"
    return "nothing" if value is None else quoted(value) if isinstance(value, str) else repr(value)


def _example(spot: Spot) -> str:
    if spot == ("schema",):
        return "Add `schema: 1` at the top."
    if spot[0] in _FORMS and len(spot) == 1:
        return f"Give {_FORMS[str(spot[0])]}."
    return "Add it."


def _unknown(spot: Spot, loc: Sequence[str | int], where: str) -> str:
    key, owner = str(spot[-1]), _name(spot[:-1])
    forms = FORMS.get(str(spot[0]), ())
    if len(spot) == 2 and key in forms and loc[1] != key:
        return f"`{owner}`{where} has `{loc[1]}` and `{key}`: keep one of them."
    known = list(_fields(loc))
    said = f"`{owner}` has no key" if owner else "A scenario has no key"
    return f"{said} `{key}`{where}. {nearest(key, known)}"


def _fields(loc: Sequence[str | int]) -> list[str]:
    """Return the keys of the block that holds the last of `loc`."""
    from fabric.scenario import _schema as s

    blocks: dict[tuple[str, ...], Any] = {
        (): s.Scenario, ("model", "config"): s.ModelFile, ("model", "layers"): s.ModelSizes,
        ("hardware",): s.Hardware, ("fabric", "cluster"): s.Cluster, ("fabric", "file"): s.Read,
        ("fabric", "builder"): s.Builder, ("layout", "words"): s.LayoutWords, ("run",): s.Run,
        ("cases",): s.CaseBlock,
    }  # fmt: skip
    owner = tuple(key for key in loc[:-1] if isinstance(key, str))
    inner = {"failed": s.Failed, "degraded": s.Degraded}
    block = inner.get(owner[-1]) if owner else None
    block = blocks[owner] if block is None else block
    fields = [field.alias or name for name, field in block.model_fields.items()]
    forms = FORMS.get(owner[0], ()) if owner else ()
    return [
        *[name for name in fields if name not in forms],
        *(["from"] if owner[:1] != ("cases",) and block not in inner.values() else []),
    ]
