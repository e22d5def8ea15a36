"""`History`: objective and bound of an optimiser, step by step, and a picture of them."""

import importlib.util
import io
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError, joined, path_in_quotes
from fabric.runs._progress import gap
from fabric.runs._whole import write_whole

ENDINGS = (".png", ".svg", ".pdf", ".eps", ".jpg", ".webp")
"""Of pictures."""


@dataclass(frozen=True, eq=False)
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

    def as_dict(self) -> dict[str, list[Any]]:
        """Return the three columns for JSON; a value that there was not yet is None."""
        said = lambda column: [finite(x) for x in column.tolist()]
        return {
            "steps": self.steps.tolist(),
            "objective": said(self.objective),
            "bound": said(self.bound),
        }

    def plot(self, path: str | os.PathLike[str], *, title: str = "", unit: str = "") -> None:
        """Draw objective and bound above, and the gap below, over the steps.

        Args:
            path: Where to write; the ending (.png, .svg, .pdf) chooses the format.
            title: Above the picture.
            unit: Of the objective.

        Raises:
            ModelError: As `check_picture`, or if the file cannot be written.
        """
        check_picture(path)
        from matplotlib.figure import Figure

        # Not by pyplot, which would change the backend of a whole session.
        figure = Figure(layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)
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
        drawn, file = io.BytesIO(), Path(path)
        figure.savefig(drawn, format=file.suffix[1:].lower())
        try:
            write_whole(file, lambda target: target.write(drawn.getvalue()))
        except OSError as error:
            message = f"{path_in_quotes(file)} cannot be written: {error.strerror or error}."
            raise ModelError(message) from None


def finite(value: float | None) -> float | None:
    """Return a number for JSON, which knows neither infinity nor NaN: then None.

    Examples:
        >>> finite(1.5), finite(float("inf")), finite(None)
        (1.5, None, None)
    """
    return float(value) if value is not None and math.isfinite(value) else None


def check_picture(path: str | os.PathLike[str]) -> None:
    """Raise before long work if a picture of it could not be drawn.

    Raises:
        ModelError: If the ending is of no known format, or matplotlib is not installed.

    Examples:
        >>> check_picture("gap.svg")
    """
    if Path(path).suffix.lower() not in ENDINGS:
        message = (
            f"{path_in_quotes(path)} does not say what format the picture has. End its name in "
            f"{joined(ENDINGS)}."
        )
        raise ModelError(message)
    if importlib.util.find_spec("matplotlib") is None:
        message = "A picture of convergence needs matplotlib. Install it: `pip install matplotlib`."
        raise ModelError(message)
