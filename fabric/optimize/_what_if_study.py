"""`Study`: the rows of what-ifs around a solution, each by the cheapest way that is exact."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from fabric.optimize._changes import OF_FLOWS, Change, Items
from fabric.optimize._nearby import Aim, Exchange, Slopes, StepAim, Way
from fabric.optimize._what_ifs import WhatIf
from fabric.runs import Progress
from fabric.solvers._sensitivities import _Slowest

_SLIVER = 1e-9  # a share at the very end of a reach is within it


class Study:
    """What is solved, and what is known of it.

    Args:
        exchanges: Solved.
        aim: The objective of their rates.
        base: Its value as things are.
        effect: (links,), first order of the objective in the share of capacity of each link.
        slopes: Of each exchange.
    """

    def __init__(
        self, exchanges: Sequence[Exchange], aim: Aim | StepAim, base: float,
        effect: Float[np.ndarray, " links"], slopes: Sequence[Slopes],
    ):  # fmt: skip
        self._exchanges, self._aim, self._base = exchanges, aim, base
        self._effect, self._slopes = effect, slopes
        self.solves = len(exchanges)
        one = exchanges[0] if len(exchanges) == 1 and aim.name == "slowest" else None
        alike = one is not None and one.routes.row_is_flow and np.ptp(one.weight) == 0
        self._least = _Slowest(one.beyond.lines, base) if one is not None and alike else None

    def tight(self, share: float) -> Bool[np.ndarray, " links"]:
        """Return which links matter: where more helps, or so much less than there is costs."""
        if self._least is not None:
            lines = self._exchanges[0].beyond.lines
            return lines.share * (1 - share) < self._base * (1 + _SLIVER)
        full = np.any([one.beyond.full for one in self._exchanges], axis=0)
        return full | (np.min([one.spare for one in self._exchanges], axis=0) < share)

    def rows(self, asked: Sequence[Change], found: Sequence[Items]) -> list[WhatIf]:
        """Return a row per change, in order."""
        value = np.full(len(asked), np.nan)
        reach, how = np.zeros(len(asked)), [""] * len(asked)
        ways: dict[tuple[bool, bytes], list[int]] = defaultdict(list)
        for i, (change, items) in enumerate(zip(asked, found, strict=True)):
            if change.what in OF_FLOWS:
                reach[i] = self._room(change, items)
                if abs(change.share) <= reach[i]:
                    value[i], how[i] = self._base, "unchanged"
            else:
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
        each = zip(asked, found, value.tolist(), reach.tolist(), how, strict=True)
        return [
            WhatIf(str(c), c.what, c.key, c.share, len(items), self._slope(c, items), v,
                   v / self._base - 1, r, by)
            for c, items, v, r, by in each
        ]  # fmt: skip

    def _slope(self, change: Change, items: Items) -> float:
        """Return the first-order effect, as a share of the objective."""
        if change.what in OF_FLOWS:
            slope, at = self._slopes[0], self._exchanges[0]
            of = slope.weight * at.weight if change.what == "weight" else slope.cap * at.cap
            return float(of[items].sum()) * change.share / self._base
        return float(self._effect[items].sum()) * change.share / self._base

    def _room(self, change: Change, flows: Items) -> float:
        """Return the share by which a change of flows moves no rate; weights always do."""
        if change.what == "weight":
            return 0.0
        one = self._exchanges[0]
        spare = 1 - one.rate[flows] / np.where(one.cap[flows] > 0, one.cap[flows], 1.0)
        least = float(np.maximum(spare, 0.0).min())
        at_cap = least <= _SLIVER
        return 0.0 if at_cap else np.inf if change.share > 0 else least

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
        reach = min((way.reach for way in ways), default=np.inf)
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

    def _moved(self, ways: Sequence[Way], share: float) -> list[Float[np.ndarray, " flows"]]:
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
        touched = {asked[i].what for i in which}
        rows = lambda values, of: np.repeat(values[None], len(which) if of else 1, axis=0)
        capacity = np.repeat(one.capacity[None], len(which), axis=0)
        weight, cap = rows(one.weight, "weight" in touched), rows(one.cap, "cap" in touched)
        tables = {"weight": weight, "cap": cap}
        for s, i in enumerate(which):
            tables.get(asked[i].what, capacity)[s, found[i]] *= 1 + asked[i].share
        return one.solved(capacity, weight, cap)
