"""`Study`: the rows of what-ifs around a solution, each by the cheapest way that is exact."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from fabric._errors import ModelError, some
from fabric.optimize._changes import Change, Items
from fabric.optimize._nearby import Aim, Exchange, StepAim, Way
from fabric.optimize._what_ifs import WhatIf
from fabric.runs import Progress
from fabric.solvers._beyond import NEAR
from fabric.solvers._sensitivities import Slowest

_SLIVER = 1e-9  # a share at the very end of a reach is within it


class Study:
    """What is solved, and what is known of it.

    Args:
        exchanges: Solved.
        aim: The objective of their rates.
        base: Its value as things are.
        effect: (links,), first order of the objective in the share of capacity of each link.
        of_weight: (flows,), the same in the share of each weight; of no flows with several
            exchanges.
    """

    def __init__(
        self, exchanges: Sequence[Exchange], aim: Aim | StepAim, base: float,
        effect: Float[np.ndarray, " links"], of_weight: Float[np.ndarray, " flows"],
    ):  # fmt: skip
        self._exchanges, self._aim, self._base = exchanges, aim, base
        self._effect, self._of_weight = effect, of_weight
        self.solves, self.tangents = len(exchanges), 0
        one = exchanges[0] if aim.slowest else None
        alike = one is not None and one.routes.row_is_flow and np.ptp(one.weight) == 0
        self._least = Slowest(one.beyond.lines, base) if one is not None and alike else None

    def tight(self, share: float) -> Bool[np.ndarray, " links"]:
        """Return which links matter: where more helps, or so much less than there is costs."""
        if self._least is not None:
            one = self._exchanges[0]
            # A level, as shares of links are; of another unit than rates where weights are not 1.
            level = self._base / float(one.weight[0])
            return 1 - level / one.beyond.lines.share < share * (1 + _SLIVER)
        if not self._exchanges:
            return np.zeros(len(self._effect), bool)
        full = np.any([one.beyond.full for one in self._exchanges], axis=0)
        return full | (np.min([one.spare for one in self._exchanges], axis=0) < share)

    def rows(self, asked: Sequence[Change], found: Sequence[Items]) -> list[WhatIf]:
        """Return a row per change, in order."""
        value = np.full(len(asked), np.nan)
        reach, how = np.zeros(len(asked)), [""] * len(asked)
        ways: dict[tuple[bool, bytes], list[int]] = defaultdict(list)
        for i, (change, items) in enumerate(zip(asked, found, strict=True)):
            if change.what != "weight":
                ways[change.share > 0, items.tobytes()].append(i)
        with Progress(len(ways), what="directions") as progress:
            for done, ((more, _), members) in enumerate(ways.items()):
                links = found[members[0]]
                shares = [abs(asked[i].share) for i in members]
                told, far = self._along(links, 1.0 if more else -1.0, shares)
                for i, (said, by) in zip(members, told, strict=True):
                    value[i], how[i], reach[i] = said, by, far
                progress.update(done + 1)
        beyond = [i for i, by in enumerate(how) if not by]
        for i, said in zip(beyond, self._again(asked, found, beyond), strict=True):
            value[i], how[i] = said, "re-solved"
        self._check(asked, value)
        each = zip(asked, found, value.tolist(), reach.tolist(), how, strict=True)
        return [
            WhatIf(str(c), c.what, c.key, c.share, len(items), self._slope(c, items), v,
                   v / self._base - 1, r, by)
            for c, items, v, r, by in each
        ]  # fmt: skip

    def _check(self, asked: Sequence[Change], value: Float[np.ndarray, " changes"]) -> None:
        """Raise if the objective is no number after some changes."""
        if wrong := [str(asked[i]) for i in np.flatnonzero(np.isnan(value)).tolist()]:
            message = (
                f"The objective '{self._aim.name}' of `linearize` is no number after "
                f"{some(wrong)}. Use one that is defined there, or leave these out."
            )
            raise ModelError(message)

    def _slope(self, change: Change, items: Items) -> float:
        """Return the first-order effect, as a share of the objective."""
        effect = self._of_weight if change.what == "weight" else self._effect
        return float(effect[items].sum()) * change.share / self._base

    def _along(
        self, links: Items, sign: float, shares: Sequence[float]
    ) -> tuple[list[tuple[float, str]], float]:
        """Return (value, how) at some distances along a direction, and the reach of the line.

        Beyond the reach `how` is empty.
        """
        if self._least is not None:
            change = self._least(links, sign)
            name = "linear" if self._least.touched[links].any() else "unchanged"
            line = lambda share: (self._base + change.slope * share, name)
            within = lambda share: share <= change.reach * (1 + _SLIVER)
            told = [line(share) if within(share) else (np.nan, "") for share in shares]
            return told, change.reach
        ways = [one.way(links, sign) for one in self._exchanges]
        self.tangents += sum(way.tangent is not None for way in ways)
        reach = min((way.reach for way in ways), default=np.inf)
        if self._aim.slowest:
            reach = min(reach, self._overtaken(ways[0]))
        still = all(way.tangent is None for way in ways)
        told = []
        for share in shares:
            if share > reach * (1 + _SLIVER):
                told.append((np.nan, ""))
            elif still:
                told.append((self._base, "unchanged"))
            else:
                told.append((self._aim.value(self._moved(ways, share)), "linear"))
        return told, reach

    def _overtaken(self, way: Way) -> float:
        """Return the share at which another flow becomes the slowest."""
        if way.tangent is None:
            return np.inf
        per_flow = self._exchanges[0].routes.per_flow
        rate, moved = (np.asarray(per_flow(of)) for of in (self._exchanges[0].rate, way.tangent))
        last = rate <= self._base * (1 + NEAR)
        slope = moved[last].min()
        catches = ~last & (moved < slope)
        meets = (rate[catches] - self._base) / (slope - moved[catches])
        return float(meets.min(initial=np.inf))

    def _moved(self, ways: Sequence[Way], share: float) -> list[np.ndarray]:
        return [
            one.rate if way.tangent is None else np.maximum(one.rate + share * way.tangent, 0.0)
            for one, way in zip(self._exchanges, ways, strict=True)
        ]

    def _again(
        self, asked: Sequence[Change], found: Sequence[Items], which: Sequence[int]
    ) -> list[float]:
        """Return the objective of some changes, solved again in batches."""
        if not which:
            return []
        values: list[float] = []
        batch = min(one.at_once for one in self._exchanges)
        with Progress(len(which), what="re-solves") as progress:
            for start in range(0, len(which), batch):
                here = which[start : start + batch]
                rates = [self._solved(one, asked, found, here) for one in self._exchanges]
                values += [self._aim.value([each[s] for each in rates]) for s in range(len(here))]
                progress.update(len(values))
        self.solves += len(which) * len(self._exchanges)
        return values

    def _solved(
        self, one: Exchange, asked: Sequence[Change], found: Sequence[Items], which: Sequence[int]
    ) -> Float[np.ndarray, "scenarios flows"]:
        """Return the rates of one exchange under each of some changes."""
        capacity = np.repeat(one.capacity[None], len(which), axis=0)
        weighted = any(asked[i].what == "weight" for i in which)
        weight = np.repeat(one.weight[None], len(which) if weighted else 1, axis=0)
        for s, i in enumerate(which):
            of = weight if asked[i].what == "weight" else capacity
            of[s, found[i]] *= 1 + asked[i].share
        return one.solved(capacity, weight, one.cap[None])
