"""What every layout of a space puts on every group of links, for capacities not known yet."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric.collectives import path_latency
from fabric.optimize._jobs import loads_of
from fabric.optimize._layout_score import Wires
from fabric.optimize._layout_wires import Degrees, Fabric
from fabric.runs import Checkpoint


class Kept:
    """What is known by now, in a checkpoint if there is one.

    Args:
        checkpoint: Where, or None.
    """

    def __init__(self, checkpoint: Checkpoint | None = None):
        self._checkpoint = checkpoint
        self._state = dict((checkpoint and checkpoint.load()) or {})

    def get(self, name: str, default: Any) -> Any:
        """Return what was put there; arrays are copied."""
        found = self._state.get(name, default)
        return found.copy() if isinstance(found, np.ndarray) else found

    def put(self, state: dict[str, Any], done: bool = False) -> None:
        """Note what is known, and write it down if it is time to, or all is done."""
        self._state |= state
        if self._checkpoint is not None and (done or self._checkpoint.due):
            self._checkpoint.save(self._state)


KINDS = ("tp", "cp", "pp_forward", "pp_backward", "dp", "embedding")
Array = Any


class Loads(NamedTuple):
    """Exchanges of sets of degrees; set 2 i + 1 is set 2 i with chunks that go around.

    Attributes:
        seconds: (sets, kinds, groups + 1), of the busiest link of each group as built; the last
            column is of links that stay.
        wait: (sets, kinds), latency.
        doublings: (sets,), log2 of the servers.
    """

    seconds: Float[Array, "sets kinds groups+1"]
    wait: Float[Array, "sets kinds"]
    doublings: Float[Array, " sets"]

    @classmethod
    def of(
        cls, fabric: Fabric, degrees: Sequence[Degrees],
        slots: dict[int, Int[np.ndarray, " slots"]], group_of: Int[np.ndarray, " links"],
        n_groups: int, kept: Kept,
    ) -> "Loads":  # fmt: skip
        """Return what the routes of a fabric carry, sets in a checkpoint as they were."""
        shape = (2 * len(degrees), len(KINDS))
        empty = np.zeros((*shape, n_groups + 1)), np.zeros(shape), np.zeros(shape[0])
        seconds, wait, doublings = (
            kept.get(f"loads/{name}", none)
            for name, none in zip(cls._fields, empty, strict=True)
        )  # fmt: skip
        for i in range(kept.get("loads/sets", 0), len(degrees)):
            one = degrees[i]
            gpus = one.ranks(slots[one.gpus])
            doublings[2 * i : 2 * i + 2] = np.log2(max(fabric.servers.count(gpus), 1))
            for wraps in (False, True):
                for traffic in fabric.traffic(one, gpus, wraps):
                    at = (2 * i + wraps, KINDS.index(traffic.name))
                    if wraps and traffic.group != "pp":
                        seconds[at], wait[at] = seconds[2 * i, at[1]], wait[2 * i, at[1]]
                        continue
                    routes = fabric.router(fabric.network, traffic.exchange.flows)
                    seconds[at] = loads_of(fabric.network, routes, traffic.size, group_of, n_groups)
                    wait[at] = traffic.latency + traffic.steps * path_latency(
                        fabric.network, routes
                    )
            kept.put({
                "loads/seconds": seconds, "loads/wait": wait, "loads/doublings": doublings,
                "loads/sets": i + 1,
            })  # fmt: skip
        return cls(seconds, wait, doublings)

    def taken(self, kind: np.dtype, sets: Int[np.ndarray, " rows"]) -> "Loads":
        """Return those of rows, in a float type."""
        return Loads(*(np.asarray(column, kind)[sets] for column in self))

    def wires(self, wire: Float[Array, "rows kinds"]) -> Wires:
        """Return the columns of the step model for seconds on the wire of every row."""
        on = {name: wire[:, i] for i, name in enumerate(KINDS)}
        off = {name: self.wait[:, i] for i, name in enumerate(KINDS)}
        pairs = {name: on[name] for name in KINDS[:5]} | {
            f"{name}_wait": off[name] for name in KINDS[:5]
        }
        return Wires(
            **pairs, embedding=on["embedding"] + off["embedding"], doublings=self.doublings
        )
