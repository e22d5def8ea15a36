"""One entry of a catalogue file, read strictly: it gathers what is wrong before it speaks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from fabric._errors import ModelError, nearest, quoted, raise_faults, some
from fabric._evidence import KINDS, Evidence

Parse = Callable[[str, str], float]
Record = TypeVar("Record")

# Stands for a number that is missing or wrong until the faults are raised.
_NONE = Evidence(0.0, "assumed", "missing")


class Entry:
    """A mapping of a catalogue file.

    Attributes:
        raw: The mapping as it was read.
        where: What the entry is called in a message.
        kind: Kind of evidence of its values, unless they have their own.
        source: Their source, unless they have their own.
        faults: What was wrong so far.
    """

    def __init__(self, raw: Any, where: str, outer: "Entry | None" = None, prefix: str = ""):
        self.raw: Mapping[Any, Any] = raw if isinstance(raw, Mapping) else {}
        self.where, self._prefix = where, prefix
        self._known: list[str] = []
        self._missing: list[str] = []
        self.faults: list[str] = [] if outer is None else outer.faults
        if not isinstance(raw, Mapping):
            what = f"`{prefix[:-1]}` needs" if prefix else "it needs"
            self.note(f"{what} a mapping of keys to values, but got {raw!r}.")
        if outer is None:
            self.kind = self.choice("kind", KINDS)
            self.source = self.text("source")
        else:
            self.kind, self.source = outer.kind, outer.source

    def note(self, fault: object) -> None:
        """Add a fault, with the entry that it is in."""
        self.faults.append(f"{self.where}: {fault}")

    def fault(self, key: str, wanted: str, found: object) -> None:
        """Note that a key holds something else than wanted."""
        self.note(f"`{self._prefix}{key}` needs {wanted}, but got {found!r}.")

    def has(self, key: str) -> bool:
        """Whether the entry has this key, which is thereby known."""
        self._known.append(key)
        return key in self.raw

    def get(self, key: str) -> Any:
        """Return the value of a key, None where it is missing."""
        if not self.has(key):
            self._missing.append(key)
            return None
        return self.raw[key]

    def text(self, key: str) -> str:
        """Return a text."""
        found = self.get(key)
        if key in self.raw and not (isinstance(found, str) and found.strip()):
            self.fault(key, "text", found)
        return str(found)

    def choice(self, key: str, known: Sequence[str]) -> str:
        """Return one of these words."""
        found = self.get(key)
        if key in self.raw and found not in known:
            self.note(f"`{self._prefix}{key}` is {quoted(found)}. {nearest(str(found), known)}")
        return str(found)

    def flag(self, key: str) -> bool:
        """Return true or false."""
        found = self.get(key)
        if key in self.raw and not isinstance(found, bool):
            self.fault(key, "true or false", found)
        return bool(found)

    def whole(self, key: str) -> int:
        """Return a whole number from 0."""
        found = self.get(key)
        if _is_whole(found):
            return found
        if key in self.raw:
            self.fault(key, "a whole number from 0", found)
        return 0

    def wholes(self, key: str) -> tuple[int, ...]:
        """Return a list of whole numbers from 0."""
        found = self.get(key)
        if isinstance(found, list) and all(map(_is_whole, found)):
            return tuple(found)
        if key in self.raw:
            self.fault(key, "a list of whole numbers from 0", found)
        return ()

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; a key that is missing is an empty one."""
        found = self.raw[key] if self.has(key) else []
        if isinstance(found, list) and all(isinstance(name, str) for name in found):
            return tuple(found)
        self.fault(key, "a list of names", found)
        return ()

    def quantity(self, key: str, parse: Parse | None = None) -> Evidence:
        """Return a number with its evidence; where there is none, a fault is noted.

        Args:
            key: Of the value: text with a unit, or a mapping with `value` and any of `kind`,
                `source`, `low` and `high`.
            parse: What reads text with a unit. Default: a plain number is wanted.
        """
        found = self.get(key)
        if key not in self.raw:
            return _NONE
        before = len(self.faults)
        if isinstance(found, Mapping):
            evidence = self.section(key)._evidence(parse)
        else:
            evidence = {"value": self._number(key, parse), "kind": self.kind, "source": self.source}
        if len(self.faults) > before or evidence["kind"] not in KINDS:
            return _NONE
        try:
            return Evidence(**evidence)
        except ModelError as error:
            self.note(f"`{self._prefix}{key}`: {error}")
            return _NONE

    def _evidence(self, parse: Parse | None) -> dict[str, Any]:
        """Return the fields of an `Evidence`; what is not given is as in the entry around it."""
        self.get("value")
        fields: dict[str, Any] = {
            end: self._number(end, parse) for end in ("value", "low", "high") if self.has(end)
        }
        fields["kind"] = self.choice("kind", KINDS) if self.has("kind") else self.kind
        fields["source"] = self.text("source") if self.has("source") else self.source
        self.close()
        return fields

    def _number(self, key: str, parse: Parse | None) -> float:
        """Return a number: with `parse` from text with a unit only, else a plain one only."""
        found = self.raw[key]
        if parse is None:
            if isinstance(found, int | float) and not isinstance(found, bool):
                return float(found)
            self.fault(key, "a plain number", found)
        elif isinstance(found, str):
            try:
                return parse(found, f"{self._prefix}{key}")
            except ModelError as error:
                self.note(error)
        else:
            self.fault(key, "text with its unit", found)
        return 0.0

    def section(self, key: str) -> "Entry":
        """Return the mapping under a key; its faults are gathered with those of this one."""
        found = self.get(key)
        inner = found if key in self.raw else {}
        return Entry(inner, self.where, self, f"{self._prefix}{key}.")

    def close(self) -> None:
        """Note the keys that are unknown and those that are missing."""
        known = [self._prefix + key for key in dict.fromkeys(self._known)]
        for key in self.raw:
            if key not in self._known:
                full = f"{self._prefix}{key}"
                self.note(f"there is no key {quoted(full)}. {nearest(full, known)}")
        if self._missing:
            missing = [self._prefix + key for key in dict.fromkeys(self._missing)]
            self.note(f"it lacks {some(missing, limit=20)}.")

    def build(self, make: Callable[[], Record]) -> Record:
        """Return the record that `make` makes, once all keys have been read.

        Raises:
            ModelError: With every fault of the entry, or what the record has against its fields.
        """
        self.close()
        raise_faults(self.faults)
        try:
            return make()
        except ModelError as error:
            message = f"{self.where}: {error}"
            raise ModelError(message) from None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
