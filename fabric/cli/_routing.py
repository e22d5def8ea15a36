"""`--routing NAME:key=value,...`: a rule and its options from one line of text."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

from fabric import routing
from fabric._errors import ModelError, nearest, raise_faults, some
from fabric.cli._output import known

_FLAGS = ("network", "flows", "seed", "queue_pairs")
"""Arguments that are not options of the text: they come from elsewhere on the command line."""

_SWITCH = {"true": True, "yes": True, "false": False, "no": False}


TABLES = "tables"
"""Routing by the forwarding tables of a file; takes no options."""


def parsed(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a routing and its options.

    Args:
        text: `spray`, or with options `flowlet:n=8,hash=path`.

    Raises:
        ModelError: If the name or an option is unknown, given twice, missing or of another kind;
            all faults at once.

    Examples:
        >>> parsed("ecmp:salt=shared")
        ('ecmp', {'salt': 'shared'})
    """
    word, colon, rest = text.partition(":")
    name = word.strip().replace("-", "_")
    known("--routing", name, [*routing.ROUTINGS, TABLES])
    if name == TABLES:
        if colon:
            message = f"`--routing {name}` takes no options, but got '{rest}'. Leave them out."
            raise ModelError(message)
        return name, {}
    takes = _parameters(name)
    options = {key: p for key, p in takes.items() if key not in _FLAGS}
    values: dict[str, Any] = {}
    faults: list[str] = []
    for part in filter(str.strip, rest.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            faults.append(f"`--routing {name}`: '{part.strip()}' is not of the form `key=value`.")
        elif key in _FLAGS and key in takes:
            faults.append(f"`--routing {name}`: '{key}' has a flag, `--{key.replace('_', '-')}`.")
        elif key not in options:
            faults.append(f"`--routing {name}` has no option '{key}'. {_nearest(key, options)}")
        elif key in values:
            faults.append(f"`--routing {name}`: '{key}' is given twice. Leave one out.")
        else:
            values[key] = _value(name, key, value, options[key].annotation, faults)
    missing = [k for k, p in options.items() if p.default is p.empty and k not in values]
    if missing:
        faults.append(f"`--routing {name}` needs {some(missing)}, as in `{name}:{missing[0]}=...`.")
    raise_faults(faults)
    return name, values


def draws(name: str) -> bool:
    """Return whether a rule draws, so that a seed enters.

    Examples:
        >>> draws("ecmp"), draws("spray")
        (True, False)
    """
    return name in routing.ROUTINGS and "seed" in _parameters(name)


def call_options(name: str, options: dict[str, Any], seed: int, queue_pairs: int) -> dict[str, Any]:
    """Return what to call a rule with: its options, and the flags that it takes.

    Raises:
        ModelError: If there are several queue pairs and the rule has none.
    """
    takes = _parameters(name)
    if queue_pairs > 1 and "queue_pairs" not in takes:
        message = (
            f"`--queue-pairs {queue_pairs}` is not for `--routing {name}`, which makes a row per "
            f"flow. Leave it out."
        )
        raise ModelError(message)
    flags = {"seed": seed, "queue_pairs": queue_pairs}
    return options | {key: value for key, value in flags.items() if key in takes}


def in_effect(name: str, options: dict[str, Any], told: Mapping[str, object]) -> dict[str, Any]:
    """Return the options that made some routes, defaults too.

    Args:
        name: Of the rule.
        options: Those that were given.
        told: What the routes say of their rule.

    Examples:
        >>> in_effect("flowlet", {"n": 3}, {"name": "flowlet", "n": 3, "hash": "hop", "seed": 0})
        {'n': 3, 'hash': 'hop'}
    """
    if name not in routing.ROUTINGS:
        return options
    found = {**options, **told}
    return {key: found[key] for key in _parameters(name) if key in found and key not in _FLAGS}


def _parameters(name: str) -> dict[str, inspect.Parameter]:
    rule: Callable[..., Any] = routing.ROUTINGS[name]
    return dict(inspect.signature(rule).parameters)


def _nearest(key: str, options: dict[str, Any]) -> str:
    return nearest(key, list(options)) if options else "It has none."


def _value(name: str, key: str, text: str, annotation: Any, faults: list[str]) -> Any:
    """Return a value of the kind that an argument has: a number where that fits, else text."""
    kinds = get_args(annotation) or (annotation,)
    if bool in kinds:
        if text.lower() not in _SWITCH:
            faults.append(f"`--routing {name}`: '{key}' needs yes or no, but got '{text}'.")
        return _SWITCH.get(text.lower())
    for kind in (int, float):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError:
                continue
    if str in kinds:
        return text
    what = "a number" if float in kinds else "a whole number" if int in kinds else "more than text"
    faults.append(f"`--routing {name}`: '{key}' needs {what}, but got '{text}'.")
    return None
