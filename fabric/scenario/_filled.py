"""`filled`: a scenario with what its fabric, its GPU and its model fill in."""

from typing import Any

from fabric._errors import ModelError
from fabric.routing import usual
from fabric.scenario._build import Built
from fabric.training import Layout

_PATHS = (
    ("hardware", "gpu"), ("hardware", "profile"), ("fabric", "routing"), ("layout",),
    ("run", "missing_cables"),
)  # fmt: skip


def filled(data: dict[str, Any], built: Built) -> dict[str, Any]:
    """Return the data of a scenario with what was filled in while it was built.

    Args:
        data: As `Scenario.data`.
        built: Its objects.
    """
    part, block, run = data["hardware"], data["fabric"], data["run"]
    rule = built.routing or usual(built.network).name
    return data | {
        "hardware": part | {"gpu": built.gpu.name, "profile": built.profile.name},
        "fabric": block | {"routing": rule},
        "layout": str(built.layout),
        "run": run | {"missing_cables": built.wanted},
    }


def missing(data: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Return what has to be set in a scenario so that what is filled in is as wanted, by path.

    Args:
        data: A scenario.
        wanted: Filled in.
    """
    return {
        ".".join(path): _at(wanted, path)
        for path in _PATHS
        if not _alike(_at(data, path), _at(wanted, path))
    }


def _at(data: dict[str, Any], path: tuple[str, ...]) -> Any:
    for key in path:
        data = data.get(key, {})
    return data


def _alike(one: Any, other: Any) -> bool:
    if one == other or not isinstance(one, str) or " " not in one:
        return one == other
    try:
        return str(Layout.parse(one)) == other
    except ModelError:
        return False
