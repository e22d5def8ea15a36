"""`RoutingWeights`: splits over paths, and what proves how good they are."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from fabric._errors import ModelError
from fabric.network import Flows, Routes
from fabric.optimize._aim import Aim
from fabric.optimize._group_tables import PathTables, path_tables
from fabric.optimize._hop_tables import hop_tables
from fabric.optimize._path_sets import PathSet
from fabric.optimize._split_routes import template
from fabric.routing import GroupTables
from fabric.runs import History, finite


@dataclass(frozen=True, eq=False)
class RoutingWeights:
    """Splits over paths, with what proves how good they are.

    Attributes:
        objective: What the splits reach, computed exactly in float64.
        bound: What no splits over these paths can beat.
        gap: How far apart the two are, relative to the smaller one.
        certified: Whether the gap is within the tolerance.
        before: The objective of today's splits, or of equal ones.
        splits: (pairs, width), share of a pair's traffic on each of its paths.
        paths: The pairs and their paths.
        flows: What was routed; `amounts` (flows, matrices) is how much of it.
        steps: Of all descents; with exact rates there are two, and `history` is of the second.
        evaluations: Splits that were scored, by loads or by exact rates.
        solves: Exact max-min solves.
        seconds: Wall time, compilation included, without the control.
        seed: As given.
        history: Objective and bound after every step.
        control: The objective that random moves reach with as many evaluations, if asked for.
        programme: Whether HiGHS solved the linear programme at the end.
        aim: The objective, how matrices count, and which paths were asked for.
    """

    objective: float
    bound: float
    gap: float
    certified: bool
    before: float
    splits: Float[np.ndarray, "pairs width"] = field(repr=False)
    paths: PathSet = field(repr=False)
    flows: Flows = field(repr=False)
    amounts: Float[np.ndarray, "flows matrices"] = field(repr=False)
    steps: int
    evaluations: int
    solves: int
    seconds: float
    seed: int
    history: History = field(repr=False)
    control: float | None
    programme: bool
    aim: Aim = field(repr=False)

    def routes(self, flows: Flows | None = None) -> Routes:
        """Return routes under these splits.

        Args:
            flows: Between pairs of switches that were routed. Default: those that were.

        Raises:
            ModelError: If there are no splits for some flows.
        """
        paths = self.paths if flows is None else self.paths.of(flows)
        found = template(paths, self.flows if flows is None else flows).filled(self.splits)
        return found.with_rule(name="routing_weights", objective=self.aim.name, gap=self.gap)

    def tables(self, entries: int = 64, per_switch: int | None = None) -> PathTables:
        """Return whole weights for switches, their loss measured.

        Args:
            entries: Most entries of a group; the weights of a group add up to at most this.
            per_switch: Most entries of all groups of a switch. Default: no limit.

        Raises:
            ModelError: If a number is out of range.
            InfeasibleError: If a switch has more groups than entries.
        """
        return path_tables(self.paths, self.splits, self.aim, entries, per_switch)

    def hop_tables(self, entries: int = 64, per_switch: int | None = None) -> GroupTables:
        """Return whole weights of cables per switch and destination, for `routing.weighted`.

        At every switch the traffic to a destination is taken together, wherever it comes from,
        which changes no load of a single matrix before rounding. Of several matrices the mean is
        taken. Weights are rounded to the total that fits best.

        Args:
            entries: Most entries of a group.
            per_switch: Most entries of all groups of a switch. Default: no limit.

        Raises:
            InfeasibleError: If a switch has more groups than entries.
            ModelError: If a number is out of range, or paths are not the shortest ones: over
                others, traffic to a destination may meet a switch from both sides.
        """
        if self.aim.ways != "shortest":
            message = (
                f"`hop_tables` needs `paths='shortest'`, but these are `paths={self.aim.ways!r}`. "
                f"Use `tables`, whose groups hold whole paths."
            )
            raise ModelError(message)
        demand = self.aim.traffic @ self.aim.share
        return hop_tables(self.paths, self.splits, demand, entries, per_switch)

    def as_dict(self) -> dict[str, Any]:
        """Return all but the arrays for JSON; what is infinite is None."""
        return {
            "schema": "fabric.optimize.routing/1", "objective": finite(self.objective),
            "bound": finite(self.bound), "gap": finite(self.gap), "certified": self.certified,
            "before": finite(self.before), "of": self.aim.name,
            "over": self.aim.over.name, "pairs": self.paths.n_pairs,
            "paths": int(self.paths.valid.sum()), "steps": self.steps,
            "evaluations": self.evaluations, "solves": self.solves, "seconds": self.seconds,
            "seed": self.seed, "control": finite(self.control), "programme": self.programme,
            "history": self.history.as_dict(),
        }  # fmt: skip

    def __str__(self) -> str:
        proved = "certified" if self.certified else "not certified"
        return (
            f"{self.aim.name} {self.objective:.6g} from {self.before:.6g}, bound {self.bound:.6g}, "
            f"gap {self.gap:.2e} ({proved}), {self.paths.n_pairs:,} pairs over "
            f"{int(self.paths.valid.sum()):,} paths, {self.steps:,} steps in {self.seconds:.1f} s"
        )
