"""Quantities on the edges of a graph file: text with a unit, or numbers whose unit is stated."""

import sys
from typing import Any

from fabric._errors import ModelError, some

_SYNONYMS = ("bandwidth", "bw", "speed", "rate", "weight", "cap", "LinkSpeedRaw", "LinkSpeed")


class Scale:
    """How the bare numbers of one quantity are read."""

    def __init__(self, what: str, given: str | None, stated: Any, example: str, parse: Any):
        self.what, self.example, self.parse = what, example, parse
        self.unit = given if given is not None else stated
        self.factor = None if self.unit is None else parse(f"1{self.unit}", f"{what} unit")

    def values(
        self, edges: list[dict[str, Any]], key: str, faults: list[str]
    ) -> list[float | None]:
        """Return the value of every edge, None where it has none."""
        found: list[float | None] = []
        bare: list[str] = []
        for edge in edges:
            value = edge.get(key)
            result = 0.0 if value is not None else None
            if isinstance(value, str):
                try:
                    result = self.parse(value, f"{key} of {edge_name(edge)}")
                except ModelError as error:
                    faults.append(str(error))
            elif isinstance(value, int | float) and not isinstance(value, bool):
                # Compared as it is, since a whole number may be too large for a float.
                limit = sys.float_info.max / max(self.factor or 1.0, 1.0)
                if not 0 <= value <= limit:
                    faults.append(
                        f"`{key}` of {edge_name(edge)} needs a finite {self.what} of 0 or more, "
                        f"but got {value!r}."
                    )
                elif self.factor is None:
                    bare.append(f"{edge_name(edge)} {value!r}")
                else:
                    result = value * self.factor
            elif value is not None:
                faults.append(f"`{key}` of {edge_name(edge)} is no number or text, but {value!r}.")
            found.append(result)
        if bare:
            faults.append(
                f"`{key}` is a number without a unit on {len(bare):,} of {len(edges):,} edges: "
                f"{some(bare)}. State the unit, for example `{self.example}`; it is never guessed."
            )
        return found


def no_capacity(edges: list[dict[str, Any]], missing: list[int], key: str) -> str:
    """Return the fault of edges without capacity; what may hold it is named, never taken."""
    others = [s for s in _SYNONYMS if s != key and any(s in edges[i] for i in missing)]
    hint = f" These edges have {some(others)}; if that is it, say so." if others else ""
    return (
        f"{len(missing):,} of {len(edges):,} edges have no attribute `{key}`: "
        f"{some(edge_name(edges[i]) for i in missing)}.{hint} Name the attribute that holds it "
        f"with `capacity='...'`, or give `default_capacity='400Gb/s'`."
    )


def edge_name(edge: dict[str, Any]) -> str:
    """Return both ends of an edge as the file calls them."""
    return f"{edge.get('source')}->{edge.get('target')}"
