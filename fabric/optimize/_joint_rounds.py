"""`Run`: several layouts, each with its own placement and splits, in rounds of fewer and fewer."""

import heapq
from typing import Any

import numpy as np

from fabric.optimize._joint_search import Case, Plan, Search
from fabric.optimize._layout_choice import Choice
from fabric.runs import Checkpoint, Progress

ROUNDS = (16, 6, 2)
"""How many pairs of layouts and plans go on, with more exchanges each."""
_NEW = -1  # a round that has not chosen yet what goes on

Found = tuple[Case, Plan]
Scored = tuple[Choice, Case, Plan]
State = dict[str, Any]


class Run:
    """A search in rounds, whose state a checkpoint keeps.

    Args:
        search: Scores and moves.
        bound: That no plan beats. `goal`: seconds that are good enough.
        steps: Of the gradient in the last round; a sixth of them before.
        kept: The checkpoint, or None. `state`: what it held.

    Attributes:
        found: Layouts with servers as listed and sorted, those with a chance.
        history: Evaluations, and the best exact seconds by then.
    """

    def __init__(
        self, search: Search, bound: float, goal: float, steps: int, kept: Checkpoint | None,
        state: State,
    ):  # fmt: skip
        self.search, self.bound, self.goal = search, bound, goal
        self.steps, self._kept = steps, kept
        self.state = state
        self._cases: dict[int, Case] = {}
        self.found = self._begun()
        self.history: list[tuple[int, float]] = []

    def _case(self, key: int) -> Case:
        if key not in self._cases:
            self._cases[key] = self.search.open(key)
        return self._cases[key]

    def _begun(self) -> list[Found]:
        """Return what can be among those that go on, best first: the ideal rules out the rest."""
        search, scored = self.search, []
        ideal = search.cases.ideal
        for key in np.argsort(ideal, kind="stable").tolist():
            last = scored[ROUNDS[0] - 1][0] if len(scored) >= ROUNDS[0] else np.inf
            if ideal[key] >= last:
                break
            case = self._case(key)
            scored += [(search.score(case, p), key, i) for i, p in enumerate(search.starts)]
            scored.sort()
        return [(self._case(key), search.starts[i]) for _, key, i in scored]

    def before(self) -> Scored:
        """Return the best layout with servers as listed, sprayed, by exact scores of a few."""
        search, listed = self.search, self.search.starts[0]
        queue = [(ideal, key, False) for key, ideal in enumerate(search.cases.ideal.tolist())]
        heapq.heapify(queue)
        exact: list[Scored] = []
        while queue and len(exact) < ROUNDS[0]:
            lower, key, scored = heapq.heappop(queue)
            if lower >= min((choice.step_time for choice, *_ in exact), default=np.inf):
                break
            case = self._case(key)
            if scored:
                exact.append((search.exact(case, listed), case, listed))
            else:
                heapq.heappush(queue, (search.score(case, listed), key, True))
        return min(exact, key=lambda one: one[0].step_time)

    def note(self, seconds: float) -> None:
        """Add to the history."""
        search = self.search
        best = min(seconds, self.history[-1][1]) if self.history else seconds
        self.history.append((search.scores + search.steps, best))

    def rounds(self, stage: str, swaps: int, progress: Progress, *, guided: bool) -> list[Found]:
        """Return what is left after all rounds, or once the best is good enough.

        Args:
            stage: What the state is called.
            swaps: Scores of exchanges in all.
            progress: To be told.
            guided: Whether prices rank exchanges and gradients find splits. Else exchanges are at
                random, and traffic stays sprayed.
        """
        try:
            return self._rounds(stage, swaps, progress, guided)
        except KeyboardInterrupt:
            if self._kept is not None and self.state:
                self._kept.save(self.state)
            raise

    def _rounds(self, stage: str, swaps: int, progress: Progress, guided: bool) -> list[Found]:
        search, found, begun, done = self.search, self.found, 0, _NEW
        if f"{stage}.round" in self.state:
            found, begun, done = self._resumed(stage)
        best_first = lambda: sorted(found, key=lambda one: search.score(*one))
        for number in range(begun, len(ROUNDS)):
            if guided and done < 0 and self.history[-1][1] <= self.goal:
                return best_first()[: ROUNDS[-1]] if number else []
            if done < 0:
                found = best_first()[: ROUNDS[number]]
            each = max(swaps // (len(ROUNDS) * len(found)), 1)
            for i in range(max(done, 0), len(found)):
                case, plan = found[i]
                plan = search.placed(case, plan, each, (case.key, number), guided)
                if guided:
                    last = number == len(ROUNDS) - 1
                    plan = search.routed(case, plan, self.steps if last else -(-self.steps // 6))
                found[i] = (case, plan)
                progress.update(search.scores + search.steps, self.history[-1][1], self.bound)
                self._save(stage, number, i + 1, found, due=True)
            done = _NEW
            if guided:
                leader = min(found, key=lambda one: search.score(*one))
                self.note(search.exact(*leader).step_time)
            self._save(stage, number + 1, done, found, due=number < len(ROUNDS) - 1)
        return found

    def _save(self, stage: str, number: int, done: int, found: list[Found], *, due: bool) -> None:
        if self._kept is None:
            return
        search = self.search
        now = {
            "round": number, "done": done,
            "spent": np.array([search.scores, search.steps, search.solves]),
            "key": np.array([case.key for case, _ in found]),
            "at": np.array([plan.at for _, plan in found]),
            "splits": np.array([plan.splits for _, plan in found]),
            "history": np.array(self.history).reshape(-1, 2),
        }  # fmt: skip
        self.state |= {f"{stage}.{name}": value for name, value in now.items()}
        if self._kept.due or not due:
            self._kept.save(self.state)

    def _resumed(self, stage: str) -> tuple[list[Found], int, int]:
        search = self.search
        state = {name.removeprefix(f"{stage}."): value for name, value in self.state.items()
                 if name.startswith(f"{stage}.")}  # fmt: skip
        search.scores, search.steps, search.solves = state["spent"].tolist()
        self.history = [(int(a), float(b)) for a, b in state["history"]]
        plans = map(Plan, state["at"], state["splits"])
        found = list(zip(map(self._case, state["key"].tolist()), plans, strict=True))
        return found, state["round"], state["done"]

    def apart(self, count: int) -> float:
        """Return the seconds of the best layout, then its placement, then its routing.

        Args:
            count: Scores of exchanges.
        """
        search = self.search
        if "apart" in self.state:
            return self.state["apart"]
        case, plan = min(self.found, key=lambda one: search.score(*one))
        plan = search.placed(case, plan, count, (case.key, len(ROUNDS)), guided=True)
        seconds = search.exact(case, search.routed(case, plan, self.steps)).step_time
        if self._kept is not None:
            self.state["apart"] = seconds
            self._kept.save(self.state)
        return seconds
