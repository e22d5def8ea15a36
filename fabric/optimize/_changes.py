"""`Change`: a what-if, such as ten percent more of a tier, and the links or flows it is about."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, nearest, raise_faults, some
from fabric.network import Network
from fabric.solvers import BY
from fabric.solvers._sensitivities import _groups

OF_FLOWS = ("weight", "cap")
KINDS = (*BY, *OF_FLOWS)
_PERCENT = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))\s*%")

Items = Int[np.ndarray, " some"]


@dataclass(frozen=True)
class Change:
    """More or less of something, in proportion.

    Attributes:
        what: "tier", "class", "node", "cable" or "link": capacity of its links; "weight" or "cap":
            of flows.
        key: The name of the group of links, or the numbers of flows, one or several.
        by: Text such as "+10%" or "-50%", or a share: 0.1 is ten percent more. At least -1, which
            leaves nothing.

    Raises:
        ModelError: If the kind is unknown, or `by` is no share or out of range.

    Examples:
        >>> change = Change("tier", "leaf-spine", "-10%")
        >>> change.share, str(change)
        (-0.1, 'tier leaf-spine -10 %')
    """

    what: str
    key: str | int | tuple[int, ...]
    by: str | float

    def __post_init__(self):
        if self.what not in KINDS:
            message = f"`Change('{self.what}', ...)` is no kind. {nearest(str(self.what), KINDS)}"
            raise ModelError(message)
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
        ModelError: If it is neither.

    Examples:
        >>> share_of("-12.5%"), share_of(0.1)
        (-0.125, 0.1)
    """
    if isinstance(by, str):
        match = _PERCENT.fullmatch(by.strip())
        value = float(match[1]) / 100 if match else np.nan
    else:
        value = np.nan if isinstance(by, bool) else float(by)
    if not np.isfinite(value):
        message = f"A change needs percent, such as '+10%', or a share such as 0.1, not {by!r}."
        raise ModelError(message)
    return value


class Found:
    """Which links or flows changes are about, looked up by name.

    Args:
        network: With labels, unless all changes are of links or flows.
        n_flows: Flows that weights and caps are of; 0 where there are none to name.
    """

    def __init__(self, network: Network, n_flows: int):
        self._network, self._n_flows = network, n_flows
        self._links: dict[str, dict[str, Items]] = {}

    def all(self, changes: Sequence[Change]) -> list[Items]:
        """Return the links or flows of each change.

        Raises:
            ModelError: If some are not known; all faults at once.
        """
        faults: list[str] = []
        found = [self._one(change, faults) for change in changes]
        raise_faults(list(dict.fromkeys(faults)))
        return found

    def _one(self, change: Change, faults: list[str]) -> Items:
        if change.what in OF_FLOWS:
            return self._flows(change, faults)
        known = self._named(change.what)
        for key in _spellings(change.what, str(change.key)):
            if key in known:
                return known[key]
        faults.append(
            f"'{change.key}' is no {change.what} with a live link. "
            f"{nearest(str(change.key), list(known))}"
        )
        return np.zeros(0, np.int64)

    def _named(self, what: str) -> dict[str, Items]:
        if what not in self._links:
            self._links[what] = {g.key: g.links for g in _groups(self._network, what)}
        return self._links[what]

    def _flows(self, change: Change, faults: list[str]) -> Items:
        keys = change.key if isinstance(change.key, tuple) else (change.key,)
        wrong = [
            key
            for key in keys
            if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < self._n_flows
        ]
        if not wrong and keys:
            return np.unique(np.array(keys, np.int64))
        if not self._n_flows:
            faults.append(f"`{change.what}`: flows of a job have no numbers. Change links instead.")
        else:
            found = some(wrong) if wrong else "none"
            faults.append(
                f"`{change.what}` needs numbers of flows from 0 to {self._n_flows - 1:,}, but got "
                f"{found}."
            )
        return np.zeros(0, np.int64)


def _spellings(what: str, key: str) -> tuple[str, ...]:
    """Return a key as it may stand in the table; a cable goes by either of its links too.

    Examples:
        >>> _spellings("cable", "leaf0->spine1")
        ('leaf0->spine1', 'leaf0 - spine1', 'spine1 - leaf0')
    """
    if what != "cable":
        return (key,)
    ends = re.split(r"\s-\s|->", key)
    return key, " - ".join(ends), " - ".join(ends[::-1])
