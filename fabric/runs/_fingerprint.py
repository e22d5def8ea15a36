"""`fingerprint`: a short text that differs whenever a problem does."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from fabric._errors import ModelError
from fabric.network import Names, Network


def fingerprint(*things: Any) -> str:
    """Return the SHA-256 of values, in hexadecimal.

    Args:
        things: Numbers, texts, None, arrays, lists, mappings, sets and records of these: a
            `Network` with its labels, `Flows`, `Routes`, a `Model`. Order counts, except in
            mappings and sets; types of numbers count, and so do shapes of arrays.

    Raises:
        ModelError: If something is none of these.

    Examples:
        >>> fingerprint({"a": 1, "b": 2.0}) == fingerprint({"b": 2.0, "a": 1})
        True
        >>> fingerprint([1, 2], 3) == fingerprint([1], [2, 3])
        False
    """
    digest = hashlib.sha256()
    for thing in things:
        _feed(digest, thing)
    return digest.hexdigest()


def _feed(digest: Any, thing: Any) -> None:
    """Add one thing, each with its kind and length before it, so that no two run together."""
    if isinstance(thing, np.generic):
        thing = thing.item()
    if thing is None or isinstance(thing, bool | int | float | complex | str | bytes):
        # The shortest text of a float that reads back as the same one.
        text = repr(thing).encode()
        _head(digest, type(thing).__name__, len(text))
        digest.update(text)
    elif isinstance(thing, Mapping):
        _all(digest, "mapping", sorted(thing.items(), key=lambda item: repr(item[0])))
    elif isinstance(thing, Names):
        _all(digest, "names", thing.blocks)
    elif isinstance(thing, Network):
        arrays = (thing.capacity, thing.latency, thing.alive, thing.routing_cost)
        _all(digest, "network", [*arrays, thing.__dict__.get("_labels")])
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        fields = [(f.name, getattr(thing, f.name)) for f in dataclasses.fields(thing)]
        _all(digest, type(thing).__name__, fields)
    elif isinstance(thing, Set):
        _all(digest, "set", sorted(thing, key=repr))
    elif hasattr(thing, "dtype") and np.asarray(thing).dtype != object:
        array = np.asarray(thing)
        _head(digest, array.dtype.str, *array.shape)
        digest.update(array.tobytes())
    elif isinstance(thing, Sequence):
        _all(digest, "sequence", thing)
    else:
        message = (
            f"`fingerprint` takes numbers, texts, arrays, lists, mappings and records, but got "
            f"{type(thing).__name__}. Give what decides about it instead."
        )
        raise ModelError(message)


def _all(digest: Any, kind: str, things: Sequence[Any]) -> None:
    _head(digest, kind, len(things))
    for thing in things:
        _feed(digest, thing)


def _head(digest: Any, kind: str, *sizes: int) -> None:
    digest.update(f"{kind}:{','.join(map(str, sizes))};".encode())
