"""`History`: objective and bound of an optimiser, step by step, and a picture of them."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError
from fabric.runs._progress import gap


@dataclass(frozen=True)
class History:
    """What an optimiser reached when.

    Attributes:
        steps: (points,), steps or evaluations by then, ascending.
        objective: (points,), the best value so far.
        bound: (points,), the best proved bound so far; infinite or NaN while there was none.

    Examples:
        >>> history = History.of([(0, 1.5, 1.0), (10, 1.1, 1.0)])
        >>> history.gap.round(3).tolist()
        [0.5, 0.1]
    """

    steps: Int[np.ndarray, " points"]
    objective: Float[np.ndarray, " points"]
    bound: Float[np.ndarray, " points"]

    @classmethod
    def of(cls, points: list[tuple[int, float, float]]) -> "History":
        """Return a history of (step, objective, bound)."""
        table = np.array(points, float).reshape(-1, 3)
        return cls(table[:, 0].astype(int), table[:, 1], table[:, 2])

    @property
    def gap(self) -> Float[np.ndarray, " points"]:
        """How far objective and bound are apart, relative to the smaller one."""
        pairs = zip(self.objective, self.bound, strict=True)
        return np.array([gap(float(a), float(b)) for a, b in pairs])

    def as_dict(self) -> dict[str, list[float]]:
        """Return the three columns for JSON."""
        return {
            "steps": self.steps.tolist(),
            "objective": self.objective.tolist(),
            "bound": self.bound.tolist(),
        }

    def plot(self, path: str | os.PathLike[str], *, title: str = "", unit: str = "") -> None:
        """Draw objective and bound above, and the gap below, over the steps.

        Args:
            path: Where to write; the ending (.png, .svg, .pdf) chooses the format.
            title: Above the picture.
            unit: Of the objective.

        Raises:
            ModelError: If matplotlib is not installed.
        """
        pyplot = _pyplot()
        figure, (above, below) = pyplot.subplots(2, 1, sharex=True, layout="constrained")
        above.plot(self.steps, self.objective, label="objective")
        above.plot(self.steps, np.where(np.isfinite(self.bound), self.bound, np.nan), label="bound")
        above.set_ylabel(f"objective ({unit})" if unit else "objective")
        above.set_title(title)
        above.legend()
        shown = np.where(np.isfinite(self.gap) & (self.gap > 0), self.gap, np.nan)
        below.plot(self.steps, shown)
        if np.isfinite(shown).any():
            below.set_yscale("log")
        below.set_ylabel("gap")
        below.set_xlabel("steps")
        figure.savefig(path)
        pyplot.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError:
        message = "A picture of convergence needs matplotlib. Install it: `pip install matplotlib`."
        raise ModelError(message) from None
    matplotlib.use("agg", force=False)
    import matplotlib.pyplot as pyplot

    return pyplot
