"""`Change`: a what-if, such as ten percent more of a tier, and the links or flows it is about."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, nearest, raise_faults, some
from fabric.network import Network, Routes, is_whole
from fabric.solvers import BY
from fabric.solvers._sensitivities import link_groups

OF_FLOWS = ("weight", "cap")
KINDS = (*BY, *OF_FLOWS)
_PERCENT = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))\s*%")

Items = Int[np.ndarray, " _"]
"""Links, or rows of flows."""


@dataclass(frozen=True)
class Change:
    """More or less of something, in proportion.

    Attributes:
        what: "tier", "class", "node", "cable" or "link": capacity of its links; "weight" or "cap":
            of flows.
        key: The name of the group of links; a cable goes by the name of either of its links too,
            and a link by its number. Or numbers of flows, one or several, all queue pairs of each.
        by: Text such as "+10%" or "-50%", or a share: 0.1 is ten percent more. At least -1, which
            leaves nothing.

    Raises:
        ModelError: If the kind is unknown, the key of a kind that names nothing, or `by` no share
            or out of range.

    Examples:
        >>> change = Change("tier", "leaf-spine", "-10%")
        >>> change.share, str(change)
        (-0.1, 'tier leaf-spine -10 %')
    """

    what: str
    key: str | int | tuple[int, ...]
    by: str | float

    def __post_init__(self):
        if not isinstance(self.what, str) or self.what not in KINDS:
            message = f"`Change({self.what!r}, ...)` is no kind. {nearest(str(self.what), KINDS)}"
            raise ModelError(message)
        object.__setattr__(self, "key", _plain(self.key))
        lowest_is_legal = self.what != "weight"
        if not (self.share > -1 or (self.share == -1 and lowest_is_legal)):
            least = "-100% or more" if lowest_is_legal else "more than -100%"
            message = f"`{self.what}` of '{self.key}' by {self.by!r}: it needs {least}."
            raise ModelError(message)

    @property
    def share(self) -> float:
        """What is added, as a share of what is there."""
        return share_of(self.by)

    def __str__(self) -> str:
        return f"{self.what} {self.key} {100 * self.share:+.6g} %"


def share_of(by: str | float) -> float:
    """Return a share from text such as "+10%"; a number is a share already.

    Raises:
        ModelError: If it is neither, or not finite.

    Examples:
        >>> share_of("-12.5%"), share_of(0.1)
        (-0.125, 0.1)
    """
    if isinstance(by, str):
        match = _PERCENT.fullmatch(by.strip())
        value = float(match[1]) / 100 if match else np.nan
    else:
        is_number = isinstance(by, int | float | np.integer | np.floating)
        value = float(by) if is_number and not isinstance(by, bool) else np.nan
    if not np.isfinite(value):
        message = f"A change needs percent, such as '+10%', or a share such as 0.1, not {by!r}."
        raise ModelError(message)
    return value


class Found:
    """Which links or rows of flows changes are about, looked up by name.

    Args:
        network: With labels, unless all changes are of links or flows.
        routes: Of the flows that weights and caps are of; None where flows have no numbers.
    """

    def __init__(self, network: Network, routes: Routes | None):
        self._network, self._routes = network, routes
        self._links: dict[str, dict[str, Items]] = {}

    def all(self, changes: Sequence[Change]) -> list[Items]:
        """Return the links or rows of each change.

        Raises:
            ModelError: If some are not known; all faults at once.
        """
        faults: list[str] = []
        found = [self._one(change, faults) for change in changes]
        raise_faults(list(dict.fromkeys(faults)))
        return found

    def _one(self, change: Change, faults: list[str]) -> Items:
        if change.what in OF_FLOWS:
            return self._rows(change, faults)
        key = str(change.key)
        if change.what == "link" and isinstance(change.key, int):
            n = self._network.n_links
            key = self._network.link_name(change.key) if 0 <= change.key < n else key
        known = self._named(change.what)
        if key not in known and change.what == "cable":
            known = self._by_either_link
        if key in known:
            return known[key]
        faults.append(
            f"'{change.key}' is no {change.what} with a live link. "
            f"{nearest(key, list(self._named(change.what)))}"
        )
        return np.zeros(0, np.int64)

    def _named(self, what: str) -> dict[str, Items]:
        if what not in self._links:
            self._links[what] = {g.key: g.links for g in link_groups(self._network, what)}
        return self._links[what]

    @functools.cached_property
    def _by_either_link(self) -> dict[str, Items]:
        """The links of every cable, by the name of each of them, with `->` or ` - ` between."""
        named: dict[str, Items] = {}
        for links in self._named("cable").values():
            for link in links.tolist():
                name = self._network.link_name(link)
                named[name] = named[name.replace("->", " - ")] = links
        return named

    def _rows(self, change: Change, faults: list[str]) -> Items:
        keys = change.key if isinstance(change.key, tuple) else (change.key,)
        n = 0 if self._routes is None else self._routes.n_pairs
        wrong = [key for key in keys if not (is_whole(key) and 0 <= key < n)]
        if not wrong and keys and self._routes is not None:
            flow_of = np.asarray(self._routes.flow_of)
            return np.flatnonzero(np.isin(flow_of, np.array(keys, np.int64)))
        if self._routes is None:
            faults.append(f"`{change.what}`: flows of a job have no numbers. Change links instead.")
        else:
            found = some(wrong) if wrong else "none"
            faults.append(
                f"`{change.what}` needs numbers of flows from 0 to {n - 1:,}, but got {found}."
            )
        return np.zeros(0, np.int64)


def _plain(key: object) -> str | int | tuple[int, ...]:
    """Return a key as text, a whole number or several; what is none of these as its text.

    Examples:
        >>> _plain(np.int64(3)), _plain([1, 2]), _plain("host"), _plain(True)
        (3, (1, 2), 'host', 'True')
    """
    if is_whole(key):
        return int(key)
    if isinstance(key, Sequence | np.ndarray) and not isinstance(key, str):
        return tuple(int(one) if is_whole(one) else one for one in key)
    return str(key)
