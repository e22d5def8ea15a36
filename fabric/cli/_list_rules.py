"""`fabric list topologies` and `fabric list routing`: what can be called, in a line each."""

import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from fabric.cli._output import known

RULE_KINDS = ("topology", "routing")
"""Kinds of things that `fabric list` shows which are no parts."""

EXAMPLES = {
    "leaf_spine": "leaf_spine:leaves=4,spines=2,hosts_per_leaf=8",
    "fat_tree": "fat_tree:k=8,capacity=400Gb/s",
    "clos": "clos:hosts=1024,radix=64,tiers=2,oversubscription=2",
    "rail_optimized": "rail_optimized:servers=128,rails=8,radix=64",
    "rail_only": "rail_only:servers=128,rails=8,radix=128",
    "multi_plane": "multi_plane:servers=64,planes=2,radix=128",
    "hpn": "hpn:segments=2",
    "single_switch": "single_switch:hosts=8",
    "full_mesh": "full_mesh:nodes=8",
    "torus": "torus:dims=4x4x8,twist=tpu",
    "tpu_pod": "tpu_pod:cubes=64,slices=4x4x8_twisted",
    "dragonfly": "dragonfly:p=2,a=4,h=2",
    "dragonfly_plus": "dragonfly_plus:radix=8",
    "hyperx": "hyperx:shape=4x4,hosts_per_switch=4",
    "slim_fly": "slim_fly:q=5",
    "direct_connect": "direct_connect:blocks=8,ports=28",
}
"""A line of text for every builder, as `fabric topo` takes it."""


def rules(kind: str) -> Mapping[str, Callable[..., Any]]:
    """Return what is known of a kind, by name."""
    from fabric import routing, topologies

    return topologies.BUILDERS if kind == "topology" else routing.ROUTINGS


def rule_rows(kind: str) -> list[dict[str, Any]]:
    """Return name, a line and, of builders, an example of each."""
    return [
        {"name": name, "does": first_line(rule)}
        | ({"example": EXAMPLES[name]} if kind == "topology" else {})
        for name, rule in rules(kind).items()
    ]


def rule(kind: str, name: str) -> dict[str, Any]:
    """Return what one builder or routing rule does, its arguments and their defaults.

    Raises:
        ModelError: If there is none of this name.
    """
    name = name.replace("-", "_")
    call = rules(kind)[known(kind.upper(), name, list(rules(kind)))]
    answer = {
        "schema": "fabric.part/1", "part": kind, "name": name, "does": first_line(call),
        "about": _second(call), "parameters": parameters(call),
    }  # fmt: skip
    return answer | ({"example": EXAMPLES[name]} if kind == "topology" else {})


def parameters(call: Callable[..., Any]) -> list[dict[str, Any]]:
    """Return the arguments that text can give: name, whether required, default."""
    return [
        {
            "name": key,
            "required": p.default is p.empty,
            "default": None if p.default is p.empty else p.default,
        }
        for key, p in inspect.signature(call).parameters.items()
    ]


def first_line(thing: object) -> str:
    """Return what a docstring says that comes back."""
    return (inspect.getdoc(thing) or "").partition("\n")[0].removeprefix("Return ")


def _second(thing: object) -> str:
    """Return the second paragraph of a docstring, which defines a rule or says what it is for."""
    paragraphs = (inspect.getdoc(thing) or "").split("\n\n")
    second = " ".join(paragraphs[1].split()) if len(paragraphs) > 1 else ""
    return "" if second.startswith(("Args:", "Returns:")) else second.replace("`", "")


def rule_text(answer: dict[str, Any], width: int) -> list[str]:
    """Return one builder or rule for people."""
    fold = lambda text, indent: textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    lines = [f"{answer['part']} {answer['name']}: {answer['does']}", *fold(answer["about"], "  ")]
    hidden = ("network", "flows") if answer["part"] == "routing" else ()
    for p in answer["parameters"]:
        if p["name"] not in hidden:
            default = "auto" if p["default"] is None else p["default"]
            lines.append(f"  {p['name']:24} {'required' if p['required'] else default}")
    return (
        [*lines, f"  for example: fabric topo {answer['example']}"]
        if "example" in answer
        else lines
    )


def rows_text(rows: list[dict[str, Any]], width: int) -> list[str]:
    """Return the rows of a kind for people."""
    lines = []
    for row in rows:
        lines += textwrap.wrap(
            f"{row['name']:16} {row['does']}", width, subsequent_indent=" " * 17,
            break_on_hyphens=False,
        )  # fmt: skip
        if "example" in row:
            lines.append(f"{'':17}{row['example']}")
    return lines
