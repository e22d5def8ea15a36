"""The words of a layout, such as `tp8 sp pp=4 bf16`, and what is wrong with them."""

import re
from math import prod
from typing import Any

from fabric._errors import joined, nearest, quoted, raise_faults, some

SIZES = ("tp", "pp", "vpp", "dp", "cp", "ep", "etp", "mb", "gbs", "seq")
WORDS = {
    "dtype": ("bf16", "fp16", "fp8", "fp32"),
    "recompute": ("none", "selective", "full"),
    "schedule": ("1f1b", "gpipe"),
}
_NAMES = (*SIZES, "sp", "zero", *WORDS)
_FLAGS = {"": True, "true": True, "1": True, "false": False, "0": False}
_TOKEN = re.compile(r"([a-z]+)(?:=(\S+)|(\d\S*))?")


def values_of(text: str, gpus: int | None) -> dict[str, Any]:
    """Return the keywords of a `Layout` that a line of words says; see `Layout.parse`.

    Args:
        text: The words.
        gpus: GPUs that `dp=auto` divides, unless the text says `gpus=`.
    """
    faults: list[str] = []
    given = _words(text, faults)
    said = given.pop("gpus", None)
    auto = given.get("dp") == "auto"
    if missing := [f"`{name}`" for name in ("gbs", "seq") if name not in given]:
        faults.append(
            f"The layout does not say {joined(missing)}, which have no default. Add the global "
            f"batch in sequences (`gbs992`) and the tokens of a sequence (`seq8192`)."
        )
    rest = prod(given.get(name, 1) for name in ("tp", "cp", "pp"))
    if auto:
        given["dp"] = _rest_of(said or gpus, rest, faults)
    elif said is not None and given.get("dp", 1) * rest != said:
        faults.append(
            f"`gpus={said}`, but tp x cp x pp x dp = {given.get('dp', 1) * rest:,}. Use `dp=auto`, "
            f"or leave out `gpus`."
        )
    raise_faults([f"`Layout.parse({quoted(text)})`:", *faults] if faults else [])
    return given


def _rest_of(gpus: int | None, rest: int, faults: list[str]) -> int:
    """Return the data parallel size that the number of GPUs leaves."""
    if gpus is None:
        faults.append("`dp=auto` needs the number of GPUs. Add `gpus=992`, or say `dp`.")
    elif gpus % rest:
        faults.append(
            f"`dp=auto`: tp x cp x pp = {rest:,} does not divide {gpus:,} GPUs. Use "
            f"{multiples(gpus, rest)} GPUs, or other sizes."
        )
    else:
        return gpus // rest
    return 1


def _words(text: str, faults: list[str]) -> dict[str, Any]:
    """Return the value of every name in the text; faults for words that are none."""
    given: dict[str, Any] = {}
    said: dict[str, list[str]] = {}
    for word in text.split():
        name, value = _word(word, faults)
        if name:
            given[name] = value
            said.setdefault(name, []).append(word)
    faults += [
        f"`{name}` is said {len(words)} times: {some(words)}. Say it once."
        for name, words in said.items()
        if len(words) > 1
    ]
    return given


def _word(word: str, faults: list[str]) -> tuple[str, Any]:
    """Return the name and the value of a word; the name is "" where there is a fault."""
    if word in WORDS["dtype"]:
        return "dtype", word
    match = _TOKEN.fullmatch(word)
    name, value = (match[1], match[2] or match[3] or "") if match else (word, "")
    if name not in (*_NAMES, "gpus"):
        faults.append(f"{quoted(word)} is not known. {_meant(name)}")
    elif name in WORDS:
        if value in WORDS[name]:
            return name, value
        faults.append(f"{quoted(word)}: {nearest(value, WORDS[name])}")
    elif name == "sp":
        if value in _FLAGS:
            return name, _FLAGS[value]
        faults.append(f"{quoted(word)}: `sp` stands alone, or is `sp=true` or `sp=false`.")
    elif name == "dp" and value == "auto":
        return name, value
    elif name == "zero":
        if value in ("0", "1", "2", "3"):
            return name, int(value)
        faults.append(f"{quoted(word)}: `zero` is 0, 1, 2 or 3.")
    elif re.fullmatch("[0-9]+", value) and int(value):
        return name, int(value)
    else:
        faults.append(f"{quoted(word)}: `{name}` needs a whole number of 1 or more, as `{name}8`.")
    return "", None


def _meant(name: str) -> str:
    """Return what a name or a bare word was meant to be."""
    for owner, words in WORDS.items():
        if name in words:
            return f"Did you mean `{owner}={name}`?"
    return nearest(name, [*_NAMES, "gpus"])


def multiples(count: int, of: int) -> str:
    """Return the multiples of a number on both sides of a count."""
    low = count // of * of
    return f"{low:,} or {low + of:,}" if low else f"{of:,}"
