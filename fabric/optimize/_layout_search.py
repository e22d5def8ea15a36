"""`Search`: bounds and exact scores of the rows of a table of layouts, each when it is needed."""

from collections.abc import Callable, Mapping
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric._errors import UnreachableError
from fabric.optimize._best_first import Best, Front, Searched, best_first
from fabric.optimize._layout_choice import Choice
from fabric.optimize._layout_score import ClosedForm, Rows, Wires, rounding
from fabric.optimize._layout_space import Space
from fabric.optimize._layout_wires import Fabric
from fabric.runs import Checkpoint, Progress

_CHUNK = 131_072
_COMPILES = 50_000  # rows from which compiling the closed form is worth its second


class Search:
    """The rows of a space with their lower bounds, and their exact scores where these are wanted.

    Args:
        space: The layouts.
        form: The step in closed form.
        fabric: What their exchanges take.
        slots: By number of GPUs, the GPUs in the order in which ranks fill them.
        known: Keeps what was solved, and says what an interrupted search had solved.
        by_cost: Values are GPU seconds instead of seconds.

    Attributes:
        lower: (rows,), a bound of every row, in units of the objective; infinite where an exchange
            has no way. It counts data parallelism once its degrees are refined.
        keys: (rows,), the set of exchanges of every row.
    """

    def __init__(
        self, space: Space, form: ClosedForm, fabric: Fabric,
        slots: Mapping[int, Int[np.ndarray, " slots"]], known: Checkpoint | None, *, by_cost: bool,
    ):  # fmt: skip
        self.space, self._form, self._fabric = space, form, fabric
        self._slots, self._kept, self._by_cost = slots, known, by_cost
        self._gpus = np.array([degrees.gpus for degrees in space.degrees])
        # Virtual stages send from the last stage to the first: another set of exchanges.
        wraps = (space.columns.vpp > 1)[space.shape_of]
        self.keys = 2 * space.degrees_of + wraps
        self._scored = np.zeros(space.n_rows, bool)
        width = len(Wires._fields)
        state = (known.load() if known else None) or {
            "least": np.full((len(space.degrees), width), np.nan),
            "exact": np.full((2 * len(space.degrees), width), np.nan),
        }
        self._least, self._exact = state["least"].copy(), state["exact"].copy()
        self._used: set[int] = set()
        self._last = np.inf
        self._glance = np.empty_like(self._least)
        with Progress(len(space.degrees), what="sets of degrees bounded") as progress:
            for i, one in enumerate(space.degrees):
                self._glance[i] = fabric.glance(one, slots[one.gpus])
                progress.update(i + 1)
        self.lower = np.empty(space.n_rows)
        self._bound(np.arange(space.n_rows))

    @property
    def evaluations(self) -> int:
        """Rows that were scored exactly."""
        return int(self._scored.sum())

    @property
    def solves(self) -> int:
        """Sets of degrees whose exchanges were solved, in an interrupted run too."""
        return len(self._used)

    @property
    def unreachable(self) -> int:
        """Rows that are known to have an exchange without a way."""
        none = [key for key in self._used if np.isinf(self._exact[key, 0])]
        return int((np.isinf(self.lower) | np.isin(self.keys, none)).sum())

    @cached_property
    def first(self) -> int:
        """The row of the least bound whose exchanges all have a way; else that of the least."""
        finite = np.flatnonzero(np.isfinite(self.lower))
        order = finite[np.argsort(self.lower[finite], kind="stable")]
        _, begun = np.unique(self.keys[order], return_index=True)
        for row in order[np.sort(begun)]:
            if np.isfinite(self.seconds(int(self.keys[row]), np.array([row]))[0]):
                return int(row)
        return int(self.lower.argmin())

    def obstacle(self, row: int) -> str:
        """Return why the exchanges of a row cannot be made."""
        degrees = self.space.degrees[self.space.degrees_of[row]]
        try:
            self._fabric.exact(degrees, self._slots[degrees.gpus], wraps=bool(self.keys[row] % 2))
        except UnreachableError as error:
            return str(error)
        return ""

    def _save(self, due: bool = True) -> None:
        if self._kept is not None and (self._kept.due or not due):
            self._kept.save({"least": self._least, "exact": self._exact})

    def refine(
        self, degrees: Int[np.ndarray, " some"], said: Callable[[int], object] = lambda _: None
    ) -> None:
        """Let the bounds of some sets of degrees count data parallelism too.

        Args:
            degrees: Which ones.
            said: Called after every one, with how many are refined by then.
        """
        todo = degrees[np.isnan(self._least[degrees, 0])]
        if not len(todo):
            return
        known = int((~np.isnan(self._least[:, 0])).sum())
        for done, i in enumerate(todo.tolist()):
            one = self.space.degrees[i]
            self._least[i] = self._fabric.least(one, self._slots[one.gpus])
            said(known + done + 1)
            self._save()
        chosen = np.zeros(len(self._least), bool)
        chosen[todo] = True
        self._bound(np.flatnonzero(chosen[self.space.degrees_of]))

    def _bound(self, rows: Int[np.ndarray, " some"]) -> None:
        """Set the lower bound of some rows."""
        # By the whole table, so that a resumed search computes every bound as the first one did.
        space, compiled = self.space, self.space.n_rows >= _COMPILES
        kind = jnp.zeros(()).dtype if compiled else np.dtype(np.float64)
        slack = self._fabric.slack + rounding(kind)
        least = np.where(np.isnan(self._least), self._glance, self._least)
        none = np.isinf(least).any(axis=1)
        columns = [np.asarray(column, kind) for column in space.columns]
        wires = [
            np.ascontiguousarray(column, kind) for column in np.where(none[:, None], 0.0, least).T
        ]
        for start in range(0, len(rows), _CHUNK):
            some = rows[start : start + _CHUNK]
            shape, degrees = space.shape_of[some], space.degrees_of[some]
            if compiled:  # one shape, one program
                pad = (0, _CHUNK - len(some))
                shape, degrees = np.pad(shape, pad), np.pad(degrees, pad)
            of = Rows(*(c[shape] for c in columns)), Wires(*(w[degrees] for w in wires))
            found = self._form.compiled(*of) if compiled else self._form.seconds(*of, lower=True)
            seconds = np.asarray(found, np.float64)[: len(some)] * (1 - slack)
            seconds[none[space.degrees_of[some]]] = np.inf
            self.lower[some] = self._valued(some, seconds)

    def _refine_for(self, top: int, said: Callable[[int], object]) -> None:
        """Refine all that the best rows may have; the other bounds are no better than these rows.

        The set of the least bound, once it is refined, has rows whose exact values tell how many
        others can matter.
        """
        space, best = self.space, Best(top, 0.0)
        least = self._least_of_sets()
        scored = np.zeros(len(least), bool)
        while len(best.rows) < top and np.isfinite(left := np.where(scored, np.inf, least)).any():
            i = int(left.argmin())
            scored[i] = not np.isnan(self._least[i, 0])
            mine = np.flatnonzero(space.degrees_of == i)
            if scored[i]:
                evaluate = lambda key, rows, mine=mine: self._evaluate(key, mine[rows])
                best_first(self.lower[mine], self.keys[mine], evaluate, best)
            else:
                self.refine(np.array([i]), said)
                least[i] = self.lower[mine].min()
        self._last = float(best.values[-1]) if len(best.rows) == top else np.inf
        self.refine(np.flatnonzero(least < self._last), said)

    def _least_of_sets(self) -> Float[np.ndarray, " sets"]:
        """Return the least bound of a row of each set of degrees."""
        least = np.full(len(self.space.degrees), np.inf)
        np.minimum.at(least, self.space.degrees_of, self.lower)
        return least

    def _valued(
        self, rows: Int[np.ndarray, " some"], seconds: Float[np.ndarray, " some"]
    ) -> Float[np.ndarray, " some"]:
        return seconds * self._gpus[self.space.degrees_of[rows]] if self._by_cost else seconds

    def seconds(self, key: int, rows: Int[np.ndarray, " some"]) -> Float[np.ndarray, " some"]:
        """Return the exact seconds of rows with the same exchanges; infinite: one has no way."""
        if np.isnan(self._exact[key, 0]):
            degrees = self.space.degrees[key // 2]
            try:
                self._exact[key] = self._fabric.exact(
                    degrees, self._slots[degrees.gpus], wraps=bool(key % 2)
                )
            except UnreachableError:
                self._exact[key] = np.inf
            self._save()
        self._used.add(key)
        if np.isinf(self._exact[key, 0]):
            return np.full(len(rows), np.inf)
        shape = self.space.shape_of[rows]
        columns = Rows(*(column[shape] for column in self.space.columns))
        return self._form.seconds(columns, Wires(*self._exact[key]))

    def _evaluate(self, key: int, rows: Int[np.ndarray, " some"]) -> Float[np.ndarray, " some"]:
        self._scored[rows] = True
        return self._valued(rows, self.seconds(key, rows))

    def run(self, best: Best) -> Searched:
        """Return the proof for the best rows, which `best` then holds."""
        with Progress(what="sets of degrees bounded closely") as progress:
            self._refine_for(best.top, progress.update)
        with Progress(what="layouts scored exactly") as progress:
            found = best_first(self.lower, self.keys, self._evaluate, best, progress.update)
        self._save(due=False)
        return found

    def fronts(self, tolerance: float) -> Int[np.ndarray, " front"]:
        """Return the rows that none beats in throughput, margin and cost, fastest first.

        For one number of GPUs cost follows throughput, so that each has a front of two.
        """
        margin = self.space.margin[self.space.shape_of]
        time, found = np.zeros(0), np.zeros(0, np.int64)
        near = self._least_of_sets() < self._last
        for n in self._slots:
            mine = np.flatnonzero(self._gpus[self.space.degrees_of] == n)
            # What is near the best is refined already; its front says what else can matter.
            first = self._front(mine[near[self.space.degrees_of[mine]]], 0.0)
            wide = Front(margin, 0.0, first[0], first[1])
            left = mine[~wide.hopeless(mine, self.lower[mine])]
            with Progress(what="sets of degrees bounded closely") as progress:
                self.refine(np.unique(self.space.degrees_of[left]), progress.update)
            rows, values = self._front(mine, tolerance)
            time = np.append(time, values / (n if self._by_cost else 1))
            found = np.append(found, rows)
        self._save(due=False)
        cost, room = time * self._gpus[self.space.degrees_of[found]], margin[found]
        no_worse = lambda a: a[:, None] <= a[None, :]
        beats = no_worse(time) & no_worse(cost) & no_worse(-room)
        beats &= ~(beats & beats.T)
        kept = ~beats.any(axis=0)
        return found[kept][np.argsort(time[kept], kind="stable")]

    def _front(
        self, rows: Int[np.ndarray, " some"], tolerance: float
    ) -> tuple[Int[np.ndarray, " front"], Float[np.ndarray, " front"]]:
        """Return those of some rows that no other beats both in value and margin, with values."""
        front = Front(self.space.margin[self.space.shape_of[rows]], tolerance)
        evaluate = lambda key, some: self._evaluate(key, rows[some])
        with Progress(what="layouts of the front scored exactly") as progress:
            best_first(self.lower[rows], self.keys[rows], evaluate, front, progress.update)
        return rows[front.rows], front.values

    def choice(self, row: int) -> Choice:
        """Return a row that was scored, ready to use."""
        seconds = self.seconds(int(self.keys[row]), np.array([row]))[0]
        slots = self._slots[self.space.degrees[self.space.degrees_of[row]].gpus]
        return self.space.choice(row, slots, seconds)
