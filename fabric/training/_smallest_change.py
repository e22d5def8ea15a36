"""`smallest_change`: what to change first when a layout does not fit."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from fabric._errors import ModelError
from fabric.training._layout import Layout
from fabric.training._memory import memory
from fabric.training._model import Model

MOST_AT_ONCE = 3
"""Changes that are tried together."""

NODE = 8
"""Largest tensor parallel size that is proposed: beyond a server it is slow."""


def smallest_change(
    model: Model, layout: Layout, capacity: str | int | float, **settings: Any
) -> str | None:
    """Return the words of the smallest change that makes a layout fit; None: none was found.

    Fewer changes come first. Among as many, those whose last is earlier in this list, by what it
    costs: `sp`, `recompute=selective`, `zero1`, `zero2`, a smaller `mb`, `recompute=full`, `zero3`,
    a larger `pp`, a larger `tp` of at most 8, a larger `cp`. The number of GPUs stays: `dp` becomes
    smaller as `pp`, `tp` or `cp` grow.

    Args:
        model: The shape.
        layout: What does not fit.
        capacity: Of a GPU: text with a unit, or bytes.
        **settings: Of `memory`.

    Returns:
        Words such as "sp recompute=full", or "" if the layout fits as it is.

    Examples:
        >>> layout = Layout.parse("tp8 pp4 dp8 gbs256 seq8192")
        >>> smallest_change(Model.listed("llama-3.1-70b"), layout, "80GB")
        'sp'
    """
    fits = lambda changed: memory(model, changed, capacity, **settings).margin >= 0
    if fits(layout):
        return ""
    steps, seen = list(_steps(layout)), {layout}
    for count in range(1, MOST_AT_ONCE + 1):
        # By their last step: three cheap changes go before one that is dear.
        for chosen in sorted(combinations(range(len(steps)), count), key=lambda c: c[::-1]):
            changed = _changed(layout, [steps[i] for i in chosen])
            if changed is None or changed in seen:
                continue
            seen.add(changed)
            if _suits(changed, model) and fits(changed):
                return _words(layout, changed)
    return None


_Step = Callable[[Layout], dict[str, Any] | None]


def _steps(layout: Layout) -> Iterator[_Step]:
    """Yield the single changes, cheapest first; each returns fields, or None where it is idle."""
    to = lambda name, value, rank: (
        lambda now: {name: value} if rank(value) > rank(getattr(now, name)) else None
    )
    modes = ("none", "selective", "full")
    yield lambda now: {"sp": True} if now.tp > 1 and not now.sp else None
    yield to("recompute", "selective", modes.index)
    for level in (1, 2) if layout.shards > 1 else ():
        yield to("zero", level, int)
    smaller = [mb for mb in range(layout.mb - 1, 0, -1) if layout.mb % mb == 0]
    for mb in smaller:
        yield to("mb", mb, int.__neg__)
    yield to("recompute", "full", modes.index)
    if layout.shards > 1:
        yield to("zero", 3, int)
    for name in ("pp", "tp", "cp"):
        for factor in (2, 4, 8):
            yield _grown(name, factor)


def _grown(name: str, factor: int) -> _Step:
    """Return the change of a size by a factor that the data parallel size gives."""

    def change(now: Layout) -> dict[str, Any] | None:
        size = getattr(now, name) * factor
        if now.dp % factor or (name == "tp" and size > NODE):
            return None
        return {name: size, "dp": now.dp // factor}

    return change


def _changed(layout: Layout, steps: list[_Step]) -> Layout | None:
    """Return the layout after all steps, or None if one of them changes nothing."""
    for step in steps:
        fields = step(layout)
        if fields is None:
            return None
        layout = replace(layout, **fields)
    return layout


def _suits(layout: Layout, model: Model) -> bool:
    try:
        layout.check(model)
    except ModelError:
        return False
    return True


def _words(before: Layout, after: Layout) -> str:
    """Return the words in which two layouts differ."""
    known = str(before).split()
    return " ".join(word for word in str(after).split() if word not in known)
