"""`Flows`: who sends how much to whom."""

from collections.abc import Sequence

import equinox as eqx
import numpy as np

from fabric._errors import ModelError, raise_faults
from fabric._typing import AnyArray, FlowFloats, FlowInts
from fabric.network._checks import number_faults


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
        self.src, self.dst = np.asarray(src, np.int32), np.asarray(dst, np.int32)
        n = len(self.src)
        columns = {"dst": self.dst}
        for name, value in (("size", size), ("weight", weight), ("cap", cap), ("start", start)):
            array = np.asarray(value, np.float64)
            columns[name] = np.full(n, array) if array.ndim == 0 else array
        uneven = [
            f"`{name}` has {len(column):,}" for name, column in columns.items() if len(column) != n
        ]
        if uneven:
            message = f"`Flows` got {n:,} values of `src`, but {', '.join(uneven)}."
            raise ModelError(message)
        self.size, self.weight = columns["size"], columns["weight"]
        self.cap, self.start = columns["cap"], columns["start"]
        stated = self.size[~np.isnan(self.size)]
        raise_faults(
            number_faults("Flows(size=...)", "size in bytes", stated, zero=True)
            + number_faults("Flows(weight=...)", "weight", self.weight, zero=False)
            + number_faults("Flows(cap=...)", "cap in byte/s", self.cap, zero=True, infinite=True)
            + number_faults("Flows(start=...)", "start in seconds", self.start, zero=True)
        )

    @property
    def n_flows(self) -> int:
        """Number of flows."""
        return len(self.src)
