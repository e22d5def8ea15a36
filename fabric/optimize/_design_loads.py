"""What every layout of a space puts on every group of links, for capacities not known yet."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fabric.collectives import path_latency
from fabric.optimize._jobs import loads_of
from fabric.optimize._layout_score import Wires
from fabric.optimize._layout_wires import Degrees, Fabric

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
        n_groups: int,
    ) -> "Loads":  # fmt: skip
        """Return what the routes of a fabric carry."""
        shape = (2 * len(degrees), len(KINDS))
        seconds, wait = np.zeros((*shape, n_groups + 1)), np.zeros(shape)
        doublings = np.zeros(len(seconds))
        for i, one in enumerate(degrees):
            gpus = one.ranks(slots[one.gpus])
            doublings[2 * i : 2 * i + 2] = np.log2(max(fabric._servers.count(gpus), 1))
            for wraps in (False, True):
                for traffic in fabric._traffic(one, gpus, wraps):
                    at = (2 * i + wraps, KINDS.index(traffic.name))
                    if wraps and traffic.group != "pp":
                        seconds[at], wait[at] = seconds[2 * i, at[1]], wait[2 * i, at[1]]
                        continue
                    routes = fabric._router(fabric._network, traffic.exchange.flows)
                    seconds[at] = loads_of(
                        fabric._network, routes, traffic.size, group_of, n_groups
                    )
                    wait[at] = traffic.latency + traffic.steps * path_latency(
                        fabric._network, routes
                    )
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
