"""`Flows`: who sends how much to whom."""

from collections.abc import Sequence

import equinox as eqx
import numpy as np

from fabric._errors import ModelError, raise_faults
from fabric._typing import AnyArray, FlowFloats, FlowInts
from fabric.network._checks import float_array, index_array, number_faults


class Flows(eqx.Module):
    """A row per flow.

    Attributes:
        src, dst: (flows,), sending and receiving node.
        size: (flows,), bytes; NaN where the amount is not stated (rates do not need it).
        weight: (flows,), dimensionless, more than 0. A flow of weight 2 gets twice the rate at
            a shared bottleneck. Default 1.
        cap: (flows,), byte/s. The flow never gets more. Default infinite.
        start: (flows,), seconds. Default 0.

    Raises:
        ModelError: If arrays differ in length or a value is out of range; all faults at once.

    Examples:
        >>> flows = Flows([0, 1], [1, 0], size=1e9)
        >>> flows.n_flows, flows.size.tolist()
        (2, [1000000000.0, 1000000000.0])
    """

    src: FlowInts
    dst: FlowInts
    size: FlowFloats
    weight: FlowFloats
    cap: FlowFloats
    start: FlowFloats

    def __init__(
        self,
        src: AnyArray | Sequence[int],
        dst: AnyArray | Sequence[int],
        size: AnyArray | Sequence[float] | float = np.nan,
        weight: AnyArray | Sequence[float] | float = 1.0,
        cap: AnyArray | Sequence[float] | float = np.inf,
        start: AnyArray | Sequence[float] | float = 0.0,
    ):
        faults: list[str] = []
        self.src = index_array("Flows(src=...)", src, faults)
        self.dst = index_array("Flows(dst=...)", dst, faults)
        n = len(self.src)
        column = lambda name, value: float_array(f"Flows({name}=...)", value, n, faults)
        self.size, self.weight = column("size", size), column("weight", weight)
        self.cap, self.start = column("cap", cap), column("start", start)
        raise_faults(faults)
        columns = {
            "dst": self.dst, "size": self.size, "weight": self.weight, "cap": self.cap,
            "start": self.start,
        }  # fmt: skip
        uneven = [
            f"`{name}` has {len(column):,}" for name, column in columns.items() if len(column) != n
        ]
        if uneven:
            message = f"`Flows` got {n:,} values of `src`, but {', '.join(uneven)}."
            raise ModelError(message)
        raise_faults(
            number_faults("Flows(size=...)", "size in bytes", self.size, zero=True, nan=True)
            + number_faults("Flows(weight=...)", "weight", self.weight, zero=False)
            + number_faults("Flows(cap=...)", "cap in byte/s", self.cap, zero=True, infinite=True)
            + number_faults("Flows(start=...)", "start in seconds", self.start, zero=True)
        )

    @property
    def n_flows(self) -> int:
        """Number of flows."""
        return len(self.src)
