"""How near do the optimisers come to a proved optimum, and what do gradients add to random moves?

A module per optimiser: routing weights, circuits, placement, layout, what only gradients reach, and
what-ifs.
"""

import importlib
import time
from typing import Any

from experiments.rows import Result, Row

PARTS = ("routing", "circuits", "placement", "layout", "differentiable", "whatif")


def run(smoke: bool = False) -> Result:
    """Return every row; with `smoke` one or two small instances of each."""
    rows: list[Row] = []
    summary: dict[str, Any] = {}
    for part in PARTS:
        name = f"experiments.optimizers.{part}"
        begun = time.perf_counter()
        found = importlib.import_module(name).rows(smoke)
        rows += found
        summary[f"{part}, rows"] = len(found)
        summary[f"{part}, seconds"] = round(time.perf_counter() - begun, 1)
    return Result(rows, summary)
