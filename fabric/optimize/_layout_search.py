"""`Search`: bounds and exact scores of the rows of a table of layouts, each when it is needed."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric.network import Placement
from fabric.optimize._best_first import Best, Front, Searched, best_first
from fabric.optimize._layout_choice import Choice
from fabric.optimize._layout_score import ClosedForm, Rows, Wires
from fabric.optimize._layout_space import Space
from fabric.optimize._layout_wires import Fabric
from fabric.runs import Checkpoint, Progress

_CHUNK = 131_072
_COMPILES = 50_000  # rows from which compiling the closed form is worth its second
_FLOAT32_SLACK, _FLOAT64_SLACK = 4e-6, 1e-11


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
        lower: (rows,), the bound of every row, in units of the objective.
        keys: (rows,), the set of exchanges of every row.
        evaluations: Rows that were scored exactly.
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
        self.evaluations = 0
        width = len(Wires._fields)
        state = (known.load() if known else None) or {
            "least": np.full((len(space.degrees), width), np.nan),
            "exact": np.full((2 * len(space.degrees), width), np.nan),
        }
        self._least, self._exact = state["least"].copy(), state["exact"].copy()
        self._used: set[int] = set()
        self.lower = self._bounds()

    @property
    def solves(self) -> int:
        """Sets of degrees whose exchanges were solved, in an interrupted run too."""
        return len(self._used)

    @property
    def first(self) -> int:
        """The row of the least bound."""
        return int(self.lower.argmin())

    def least(self, degrees: int) -> Wires:
        """Return what the exchanges of a set of degrees take at least."""
        return Wires(*self._least[degrees])

    def _save(self, due: bool = True) -> None:
        if self._kept is not None and (self._kept.due or not due):
            self._kept.save({"least": self._least, "exact": self._exact})

    def _bounds(self) -> Float[np.ndarray, " rows"]:
        """Return the lower bound of every row, in units of the objective."""
        todo = np.flatnonzero(np.isnan(self._least[:, 0])).tolist()
        done = len(self._least) - len(todo)
        with Progress(len(self._least), what="sets of degrees bounded") as progress:
            for i in todo:
                degrees = self.space.degrees[i]
                self._least[i] = self._fabric.least(degrees, self._slots[degrees.gpus])
                done += 1
                progress.update(done)
                self._save()
        n, space = self.space.n_rows, self.space
        compiled = n >= _COMPILES
        default = jnp.zeros(()).dtype  # of exact rates too
        slack = _FLOAT32_SLACK if default == np.float32 else _FLOAT64_SLACK
        kind = default if compiled else np.dtype(np.float64)
        seconds = np.empty(n)
        columns = [np.asarray(column, kind) for column in space.columns]
        wires = [np.ascontiguousarray(column, kind) for column in self._least.T]
        for start in range(0, n, _CHUNK):
            rows = slice(start, min(start + _CHUNK, n))
            shape, degrees = space.shape_of[rows], space.degrees_of[rows]
            if compiled:  # one shape, one program
                pad = (0, _CHUNK - len(shape))
                shape, degrees = np.pad(shape, pad), np.pad(degrees, pad)
            some = Rows(*(c[shape] for c in columns)), Wires(*(w[degrees] for w in wires))
            found = self._form.compiled(*some) if compiled else self._form.seconds(
                *some, lower=True
            )  # fmt: skip
            seconds[rows] = np.asarray(found)[: rows.stop - start]
        return self._valued(np.arange(n), seconds * (1 - slack))

    def _valued(
        self, rows: Int[np.ndarray, " some"], seconds: Float[np.ndarray, " some"]
    ) -> Float[np.ndarray, " some"]:
        return seconds * self._gpus[self.space.degrees_of[rows]] if self._by_cost else seconds

    def seconds(self, key: int, rows: Int[np.ndarray, " some"]) -> Float[np.ndarray, " some"]:
        """Return the exact seconds of rows with the same exchanges."""
        if np.isnan(self._exact[key, 0]):
            degrees = self.space.degrees[key // 2]
            self._exact[key] = self._fabric.exact(
                degrees, self._slots[degrees.gpus], wraps=bool(key % 2)
            )
            self._save()
        self._used.add(key)
        shape = self.space.shape_of[rows]
        columns = Rows(*(column[shape] for column in self.space.columns))
        return self._form.seconds(columns, Wires(*self._exact[key]))

    def _evaluate(self, key: int, rows: Int[np.ndarray, " some"]) -> Float[np.ndarray, " some"]:
        self.evaluations += len(rows)
        return self._valued(rows, self.seconds(key, rows))

    def run(self, best: Best) -> Searched:
        """Return the proof for the best rows, which `best` then holds."""
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
        for n in self._slots:
            mine = np.flatnonzero(self._gpus[self.space.degrees_of] == n)
            front = Front(margin[mine], tolerance)
            evaluate = lambda key, rows, mine=mine: self._evaluate(key, mine[rows])
            with Progress(what="layouts of the front scored exactly") as progress:
                best_first(self.lower[mine], self.keys[mine], evaluate, front, progress.update)
            own = front.values / (n if self._by_cost else 1)
            time, found = np.append(time, own), np.append(found, mine[front.rows])
        self._save(due=False)
        cost, room = time * self._gpus[self.space.degrees_of[found]], margin[found]
        no_worse = lambda a: a[:, None] <= a[None, :]
        beats = no_worse(time) & no_worse(cost) & no_worse(-room)
        beats &= ~(beats & beats.T)
        kept = ~beats.any(axis=0)
        return found[kept][np.argsort(time[kept], kind="stable")]

    def choice(self, row: int) -> Choice:
        """Return a row that was scored, ready to use."""
        space = self.space
        degrees = space.degrees[space.degrees_of[row]]
        seconds = self.seconds(int(self.keys[row]), np.array([row]))[0]
        return Choice(
            layout=space.layout(row),
            rank_order="-".join(degrees.order),
            recompute_layers=space.recomputed_layers(row),
            placement=Placement(degrees.ranks(self._slots[degrees.gpus])),
            step_time=float(seconds),
            margin=float(space.margin[space.shape_of[row]]),
        )
