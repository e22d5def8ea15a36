"""Attributes of nodes and edges of a graph -> labels; for `networkx` graphs and for JSON alike.

A row is what a graph says about one node or edge, a mapping; an attribute that is None is absent.
Nothing is coerced: what cannot be kept is a fault, or is counted so that the caller can say it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from fabric._errors import some
from fabric.network._checks import INT32_MAX, is_cost

NODE_KEYS = frozenset({"id", "name", "kind", "endpoint", "forwards"})
"""Attributes of nodes that are read; all others become tags or are dropped."""

FLAGS = ("endpoint", "forwards")
PORTS = ("source_port", "target_port")

Row = Mapping[str, Any]


def coded(words: Iterable[str]) -> tuple[tuple[str, ...], Int[np.ndarray, " words"]]:
    """Return each word once, in order of appearance, and the number of each word.

    Examples:
        >>> coded(["b", "a", "b"])
        (('b', 'a'), array([0, 1, 0], dtype=int32))
    """
    codes: dict[str, int] = {}
    numbers = [codes.setdefault(word, len(codes)) for word in words]
    return tuple(codes), np.array(numbers, np.int32)


def texts(
    rows: Sequence[Row], key: str, default: str | Sequence[str], faults: list[str]
) -> list[str]:
    """Return a text per row; numbers are written out, anything else is a fault."""
    given = [row.get(key) for row in rows]
    odd = [v for v in given if v is not None and (isinstance(v, bool) or not _is_text_or_number(v))]
    if odd:
        faults.append(
            f"`{key}` needs text, but {len(odd):,} of {len(rows):,} have something else: "
            f"{some(odd)}."
        )
    defaults = [default] * len(rows) if isinstance(default, str) else default
    return [d if v is None else str(v) for v, d in zip(given, defaults, strict=True)]


def flag(
    rows: Sequence[Row], key: str, default: bool, name: Callable[[int], str], faults: list[str]
) -> Bool[np.ndarray, " rows"]:
    """Return true or false per row; text such as "false" is a fault, never true."""
    given = [row.get(key) for row in rows]
    odd = [i for i, v in enumerate(given) if v is not None and not isinstance(v, bool | np.bool_)]
    if odd:
        faults.append(
            f"`{key}` needs true or false, but {len(odd):,} of {len(rows):,} have something else: "
            f"{some(odd, name=lambda i: f'{name(i)} {given[i]!r}')}."
        )
        return np.full(len(rows), default)
    return np.array([default if value is None else value for value in given], bool)


def node_flags(
    rows: Sequence[Row], name: Callable[[int], str], faults: list[str]
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Return the flags that every node has, and how many nodes have one that others lack."""
    flags: dict[str, np.ndarray] = {}
    partial: dict[str, int] = {}
    for key in FLAGS:
        have = sum(row.get(key) is not None for row in rows)
        values = flag(rows, key, False, name, faults)
        if have == len(rows):
            flags[key] = values
        elif have:
            partial[key] = have
    return flags, partial


def node_tags(rows: Sequence[Row]) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Return attributes that are whole numbers or text, and how often others were dropped."""
    tags: dict[str, np.ndarray] = {}
    dropped: dict[str, int] = {}
    for key in dict.fromkeys(key for row in rows for key in row if key not in NODE_KEYS):
        values = [row.get(key) for row in rows]
        present = [value for value in values if value is not None]
        if not isinstance(key, str):
            dropped[str(key)] = len(present)
        elif all(_is_integer(value, -(2**63), 2**63 - 1) for value in present):
            tags[key] = np.array([-1 if v is None else int(v) for v in values], np.int64)
        elif all(isinstance(value, str) for value in present):
            tags[key] = np.array([v or "" for v in values], str)
        else:
            dropped[key] = len(present)
    return tags, dropped


def cables(
    rows: Sequence[Row], a: Int[np.ndarray, " links"], b: Int[np.ndarray, " links"]
) -> tuple[Int[np.ndarray, " links"], int]:
    """Return the cable of every link, and how many cable numbers could not be used.

    As the links say, if each has a whole number `cable`; else the k-th link from a to b shares a
    cable with the k-th from b to a.
    """
    given: list[Any] = [row.get("cable") for row in rows]
    if given and all(_is_integer(number) for number in given):
        code = {number: i for i, number in enumerate(sorted(set(given)))}
        return np.array([code[number] for number in given], np.int32), 0
    waiting: dict[tuple[int, int], list[int]] = defaultdict(list)
    cable: list[int] = []
    count = 0
    for one, other in zip(a.tolist(), b.tolist(), strict=True):
        if waiting[other, one]:
            cable.append(waiting[other, one].pop(0))
        else:
            waiting[one, other].append(count)
            cable.append(count)
            count += 1
    return np.array(cable, np.int32), sum(number is not None for number in given)


def repeat_faults(
    rows: Sequence[Row],
    a: Int[np.ndarray, " links"],
    b: Int[np.ndarray, " links"],
    name: Callable[[int], str],
) -> list[str]:
    """Return faults of numbers `cable` and `link` that more links have than can."""
    faults: list[str] = []
    times = Counter(row["link"] for row in rows if _is_integer(row.get("link")))
    if twice := [number for number, n in times.items() if n > 1]:
        faults.append(
            f"`link` numbers each link once, but {len(twice):,} numbers repeat: {some(twice)}. "
            f"Number duplicated edges anew, or leave `link` out."
        )
    links: dict[int, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        if _is_integer(row.get("cable")):
            links[row["cable"]].append(i)
    ends = lambda i: (int(a[i]), int(b[i]))
    odd = [
        number
        for number, of in links.items()
        if len(of) > 2 or (len(of) == 2 and ends(of[0]) != ends(of[1])[::-1])
    ]
    if odd:
        said = lambda number: f"{number}: {', '.join(map(name, links[number][:3]))}"
        faults.append(
            f"`cable` numbers the two directions of a cable alike, but {len(odd):,} numbers are "
            f"on other links too: {some(odd, name=said)}. Give every cable a number of its own, "
            f"or leave `cable` out."
        )
    return faults


def edge_ports(rows: Sequence[Row]) -> tuple[list[Int[np.ndarray, " edges"]], dict[str, int]]:
    """Return the ports at both ends of every edge, 0 where unknown, and how many were no number."""
    ports: list[np.ndarray] = []
    dropped: Counter[str] = Counter()
    for key in PORTS:
        given = [row.get(key) for row in rows]
        good = [_is_integer(port, 0, INT32_MAX) for port in given]
        ports.append(np.array([p if g else 0 for p, g in zip(given, good, strict=True)], np.int32))
        dropped[key] = sum(p is not None and not g for p, g in zip(given, good, strict=True))
    return ports, dict(+dropped)


def link_order(rows: Sequence[Row]) -> Int[np.ndarray, " links"]:
    """Return the order of links by the attribute `link`, if each has another whole number."""
    given: list[Any] = [row.get("link") for row in rows]
    order = list(range(len(given)))
    if all(_is_integer(number) for number in given) and len(set(given)) == len(given):
        order.sort(key=lambda edge: given[edge])
    return np.array(order, np.int64)


def whole_cost(row: Row, key: str, name: str, faults: list[str]) -> int:
    """Return the routing cost of an edge, 1 where it has none."""
    value = row.get(key)
    if value is None:
        return 1
    if is_cost(value):
        return int(value)
    faults.append(
        f"`{key}` of {name} needs a whole number from 1 to {INT32_MAX:,}, but got {value!r}."
    )
    return 1


def both_ways(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return what the two links of every cable have: x there and y back."""
    return np.stack([x, y], 1).ravel()


def _is_integer(value: Any, low: float = -np.inf, high: float = np.inf) -> bool:
    integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return integer and bool(low <= value <= high)


def _is_text_or_number(value: object) -> bool:
    return isinstance(value, str | int | float | np.integer | np.floating)


def about_of(graph: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts that the attribute `about` of a graph holds, words by name."""
    found = graph.get("about")
    if not isinstance(found, Mapping):
        return {}
    return {k: v for k, v in found.items() if isinstance(k, str) and isinstance(v, str)}
