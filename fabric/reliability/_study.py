"""Which failures are solved, and what the others are taken from them."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fabric._errors import InfeasibleError
from fabric.network import names_of
from fabric.reliability._classes import Colouring, is_tiered
from fabric.reliability._failures import Components
from fabric.reliability._intact import Intact, Score
from fabric.reliability._progress import Progress, long
from fabric.reliability._report import Contingency, Failure
from fabric.reliability._rescore import Rescorer
from fabric.reliability._usage import Ids, entries

SAME = 1e-9
"""Relative difference up to which two failures cost the same."""

_NAMED = 3
_TRIALS = 2
_QUICK = 0.1
_LEAST_CHECK = 8
"""Members solved besides, where odd cables are too many to tell each of them apart."""


class Study:
    """Scores of components, solved when first asked for, and the classes they stand for.

    Args:
        intact: Before any failure.
        factor: What is left of a component.
        parts: Components by kind.
        limit_s: Seconds that solves may take.
        progress: Whether to say how far it is.
    """

    def __init__(
        self,
        intact: Intact,
        factor: float,
        parts: dict[str, Components],
        limit_s: float,
        progress: bool | None,
    ):
        self._intact, self._factor, self._parts = intact, factor, parts
        self._limit_s, self._progress = limit_s, progress
        self._rescore = Rescorer(intact, factor)
        self._known: dict[tuple[str, int], Score] = {}
        self._groups: list[tuple[str, Ids]] = []
        self._each, self._compiled = 0.0, False  # seconds a solve

    def by_class(self, check: int, rng: np.random.Generator, rule: str) -> tuple[str, ...]:
        """Solve a representative of every class, some members besides, and all where quick."""
        colouring = Colouring(self._intact)
        idle = {kind: self._idle(part) for kind, part in self._parts.items()}
        groups = [
            (kind, np.flatnonzero(~idle[kind])[members])
            for kind, part in self._parts.items()
            for members in self._members(colouring, part, ~idle[kind])
        ]
        self._solve([(kind, int(members[0])) for kind, members in groups])
        check = check if colouring.all_odd else max(check, _LEAST_CHECK)
        drawn = [
            (kind, int(member))
            for kind, members in groups
            for member in rng.choice(members[1:], min(check, len(members) - 1), replace=False)
        ]
        self._solve(drawn)
        told = self._all_that_is_quick(colouring, groups, len(drawn))
        alike = [self._alike(*group) for group in groups]
        apart = [group for group, same in zip(groups, alike, strict=True) if not same]
        self._solve([(kind, int(m)) for kind, members in apart for m in members])
        for group, same in zip(groups, alike, strict=True):
            self._groups += [group] if same else self._split(*group)
        self._groups += [(kind, np.flatnonzero(rest)) for kind, rest in idle.items() if rest.any()]
        return self._told(colouring, rule, groups, apart, idle, told)

    def _all_that_is_quick(
        self, colouring: Colouring, groups: Sequence[tuple[str, Ids]], n_drawn: int
    ) -> tuple[str, ...]:
        """Solve every member where that is quick, else those of classes that may well differ.

        What flows meet on a detour, or where cables join switches of one tier, is not always what
        their colours have seen.
        """
        if not groups:
            return ()
        if self._all_if_quick(groups):
            return ("Every member of every class was solved.",)
        checked = (f"{n_drawn:,} more of their members were solved as a check.",)
        tiered = is_tiered(self._intact.network)
        fragile = [
            (kind, members)
            for kind, members in groups
            if len(members) > 1
            and not (
                tiered and colouring.all_odd and not self._known[kind, int(members[0])].detours
            )
        ]
        if not fragile:
            return checked
        n = sum(len(members) for _, members in fragile)
        if not tiered:
            why = "This fabric has no tiers, so that of"
        elif not colouring.all_odd:
            why = "Too many cables are unlike most of their tier to tell each apart, so that of"
        else:
            why = "Flows make detours, so that of"
        if self._all_if_quick(fragile):
            said = f"{why} {n:,} components in {len(fragile):,} classes each was solved."
        else:
            said = (
                f"{why} {n:,} components in {len(fragile):,} classes, some may differ from their "
                f"class; to solve all takes {long(n * self._each)} (`sample='all'`)."
            )
        return (*checked, said)

    def _all_if_quick(self, groups: Sequence[tuple[str, Ids]]) -> bool:
        """Solve every member if it takes no longer than a tenth of the limit; say whether."""
        n = sum(len(members) for _, members in groups)
        known = sum((kind, int(members[0])) in self._known for kind, members in groups)
        if (n - known) * self._each > _QUICK * self._limit_s:
            return False
        self._solve([(kind, int(member)) for kind, members in groups for member in members])
        return True

    def by_sample(self, sample: int | str, rng: np.random.Generator) -> tuple[str, ...]:
        """Solve components drawn at random, or all."""
        notes = []
        for kind, part in self._parts.items():
            n = len(part) if isinstance(sample, str) else min(int(sample), len(part))
            drawn = np.sort(rng.choice(len(part), n, replace=False))
            self._solve([(kind, int(member)) for member in drawn])
            self._groups += self._split(kind, drawn)
            if n < len(part):
                worse = 100 * (1 - 0.05 ** (1 / n))
                notes.append(
                    f"{n:,} of {len(part):,} components of kind '{kind}' were drawn at random: "
                    f"with 95 % confidence no more than {worse:.2g} % are worse than the worst."
                )
            else:
                notes.append(f"All {n:,} components of kind '{kind}' were solved.")
        return tuple(notes)

    def report(self, notes: tuple[str, ...]) -> Contingency:
        """Return the rows, worst first."""
        intact = self._intact
        base, better = intact.objective.value(intact.score), intact.objective.name != "completion"
        rows = [self._row(kind, members, base) for kind, members in self._groups]
        sign = 1.0 if better else -1.0
        rounded = lambda x: float(f"{x:.9e}")
        rows.sort(
            key=lambda r: (
                rounded(sign * r.value), -r.lost, rounded(r.slowest), rounded(r.total), r.kind,
                int(r.members[0]),
            )
        )  # fmt: skip
        return Contingency(
            tuple(rows), intact.objective.name, self._factor, intact.score.slowest,
            intact.score.total, base, self._parts, notes,
        )  # fmt: skip

    def _row(self, kind: str, members: Ids, base: float) -> Failure:
        solved = [int(m) for m in members if (kind, int(m)) in self._known]
        first = solved[0] if solved else int(members[0])
        score = self._known.get((kind, first), self._intact.score)
        value = self._intact.objective.value(score)
        with np.errstate(invalid="ignore"):
            change = value / base - 1 if base else np.nan
        flows, named = self._intact.flows, list(score.lost[:_NAMED])
        ends = [
            names_of(self._intact.network, np.asarray(end)[named]) for end in (flows.src, flows.dst)
        ]
        pairs = tuple(" -> ".join(pair) for pair in zip(*ends, strict=True))
        return Failure(
            kind, self._parts[kind].name(first), members, len(score.lost), pairs, score.slowest,
            score.total, value, float(change), len(solved),
        )  # fmt: skip

    def _idle(self, part: Components) -> np.ndarray:
        """Return which components no flow crosses, where that is all that counts."""
        if not self._rescore.local:
            return np.zeros(len(part), bool)
        used, labels = self._intact.usage.used(), self._intact.network.labels
        if not part.of_links:
            at = np.zeros(labels.n_nodes, bool)
            at[labels.src[used]] = at[labels.dst[used]] = True
            used = at
        of, position = entries(part.ptr, np.arange(len(part)))
        return np.bincount(of, used[part.item[position]], minlength=len(part)) == 0

    @staticmethod
    def _members(colouring: Colouring, part: Components, busy: np.ndarray) -> list[Ids]:
        """Return the members of every class, by number among the busy components."""
        class_of, _ = colouring.classes(part)
        _, number = np.unique(class_of[busy], return_inverse=True)
        order = np.argsort(number, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(number[order])) + 1) if len(order) else []

    def _solve(self, wanted: Sequence[tuple[str, int]]) -> None:
        """Solve what is not known yet."""
        new = [item for item in dict.fromkeys(wanted) if item not in self._known]
        begun = time.monotonic()
        with Progress("failures", len(new), self._progress) as told:

            def one(item: tuple[str, int]) -> None:
                self._known[item] = self._rescore(self._parts[item[0]], item[1])
                told.step()

            for number, item in enumerate(new[: _TRIALS + 1]):
                if number == 1 and not self._compiled:  # the first one compiles
                    begun = time.monotonic()
                one(item)
                done = number + self._compiled
                self._each = (time.monotonic() - begun) / max(done, 1)
            self._compiled |= len(new) > 0
            if len(new) > _TRIALS + 1:
                self._afford(len(new))
            with ThreadPoolExecutor(_threads()) as threads:
                list(threads.map(one, new[_TRIALS + 1 :]))
            if new:
                self._each = min(self._each, (time.monotonic() - begun) / len(new))

    def _afford(self, n: int) -> None:
        if n * self._each > self._limit_s:
            message = (
                f"`contingency` has {n:,} failures to solve at about {self._each:.2g} s each, "
                f"{long(n * self._each)}, but `limit_s={self._limit_s:g}`. Raise it, give "
                f"`sample={max(int(self._limit_s / self._each), 1)}` to draw so many at random, "
                f"or ask for one `kind` at a time."
            )
            raise InfeasibleError(message)

    def _alike(self, kind: str, members: Ids) -> bool:
        scores = [s for m in members if (s := self._known.get((kind, int(m)))) is not None]
        return all(scores[0].equals(score, SAME) for score in scores[1:])

    def _split(self, kind: str, members: Ids) -> list[tuple[str, Ids]]:
        """Return solved members, those that cost the same together."""
        found: list[tuple[Score, list[int]]] = []
        for member in members.tolist():
            score = self._known[kind, member]
            like = next((group for known, group in found if known.equals(score, SAME)), None)
            if like is None:
                found.append((score, [member]))
            else:
                like.append(member)
        return [(kind, np.array(group)) for _, group in found]

    def _told(
        self,
        colouring: Colouring,
        rule: str,
        groups: Sequence[tuple[str, Ids]],
        apart: Sequence[tuple[str, Ids]],
        idle: dict[str, np.ndarray],
        told: tuple[str, ...],
    ) -> tuple[str, ...]:
        busy = sum(int((~rest).sum()) for rest in idle.values())
        seen = (
            "until nothing more is told apart"
            if colouring.stable
            else f"as far as {colouring.rounds} links away"
        )
        notes = [
            f"{busy:,} components in {len(groups):,} classes under {rule}, refined {seen}.",
            *told,
        ]
        if apart:
            n = sum(len(members) for _, members in apart)
            notes.append(
                f"{len(apart):,} classes did not hold together: each of their {n:,} members was "
                f"solved."
            )
        if nothing := sum(int(rest.sum()) for rest in idle.values()):
            notes.append(
                f"{nothing:,} components carry nothing, so that their failure costs nothing."
            )
        return tuple(notes)


def _threads() -> int:
    import numba

    return numba.get_num_threads()
