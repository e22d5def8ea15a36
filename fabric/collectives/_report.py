"""`CollectiveReport`: how long an operation takes, in the terms of nccl-tests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class CollectiveReport:
    """Times and bandwidths of one operation.

    One value per size, in the shape in which sizes were given: of one size, `float(report.time)`.

    Attributes:
        operation: Its name.
        n_ranks: Ranks of a group.
        n_groups: Groups that run at the same time; the slowest decides.
        size: Bytes, as nccl-tests count them.
        time: Seconds.
        algbw: byte/s, size over time.
        busbw: byte/s, `algbw` times `bus_factor`: what a ring moves over its slowest link.
        algorithm: What was taken, per size.
        protocol: "LL", "LL128" or "Simple", per size.
        alternatives: Seconds of every algorithm, each with its best protocol.
        bottlenecks: Of the algorithm for the largest size: links that stop its slowest flows.
        assumptions: What was assumed, each with name, value, kind of evidence and source.
    """

    operation: str
    n_ranks: int
    n_groups: int
    size: Float[np.ndarray, "*sizes"]
    time: Float[np.ndarray, "*sizes"]
    algbw: Float[np.ndarray, "*sizes"]
    busbw: Float[np.ndarray, "*sizes"]
    algorithm: tuple[str, ...]
    protocol: tuple[str, ...]
    alternatives: Mapping[str, Float[np.ndarray, "*sizes"]]
    bottlenecks: tuple[dict[str, Any], ...]
    assumptions: tuple[dict[str, Any], ...]
