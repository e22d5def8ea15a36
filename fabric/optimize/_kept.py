"""Which checkpoint belongs to which search."""

import functools
import os
from typing import Any

from fabric import routing as routings
from fabric._errors import ModelError
from fabric.runs import Checkpoint, fingerprint


def checkpoint_of(
    path: str | os.PathLike[str] | None, verb: str, *asked: object, routing: object = None
) -> Checkpoint | None:
    """Return the file of a search, None if none is wanted.

    Args:
        path: As the caller gave it.
        verb: What searches.
        asked: All that the answer depends on. The number type of JAX comes to it: sums round
            otherwise in float32.
        routing: As the caller gave it; what a name stands for belongs into `asked`.

    Raises:
        ModelError: If `routing` is a function that cannot be told from others.
    """
    import jax.numpy as jnp

    if path is None:
        return None
    rule = _told(routing) if callable(routing) else None
    return Checkpoint(path, fingerprint(verb, str(jnp.zeros(()).dtype), rule, *asked))


def _told(routing: object) -> tuple[str, list[object]]:
    """Return the function of `fabric.routing` that this is, and its options by `partial`."""
    rule: Any = routing
    options: list[object] = []
    while isinstance(rule, functools.partial):
        options.append([rule.args, rule.keywords])
        rule = rule.func
    name = getattr(rule, "__name__", type(rule).__name__)
    if getattr(routings, name, None) is not rule:
        message = (
            f"`checkpoint` has to tell one routing from another, but `routing` is a function "
            f"`{name}`, which may be anything. Give a name such as 'ecmp', a "
            f"`functools.partial` of a function of `fabric.routing`, or no `checkpoint`."
        )
        raise ModelError(message)
    return name, options
