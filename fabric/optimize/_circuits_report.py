"""`Circuits`: which circuits to set, how traffic goes over them, and how good that provably is."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fabric.network import Network
from fabric.runs import History, finite
from fabric.topologies import direct_connect


@dataclass(frozen=True, eq=False)
class Circuits:
    """Circuits, splits over them, and what proves how good they are.

    Utilisations are loads over capacity under the best splits found, largest over all links and
    both directions: the demand fits 1 / utilisation times.

    Attributes:
        objective: Utilisation of `circuits` under `splits`, computed exactly in float64.
        bound: What no circuits within the ports and no splits go below.
        gap: objective / bound - 1.
        certified: Whether the gap is within the tolerance.
        circuits: (blocks, blocks), whole and symmetric.
        splits: (from, by, to): `splits[i, k, j]` is the share of the traffic from block i to block
            j that goes by block k, and k = i is the direct way. 0 for pairs without traffic.
        rate: byte/s of a circuit, per direction.
        relaxed: Utilisation that circuits of any fractions, whole ones too, were found to reach;
            `relaxed_bound` what they cannot go below.
        uniform: Utilisation of the uniform mesh, its splits the best found.
        control: Utilisation that random circuits and random exchanges reach with as many scores;
            None without transit, where the answer is exact.
        current: Utilisation of the circuits of today, its splits the best found, if there are any.
        reconfigured: Whether `circuits` differ from those of today: false where the time that a
            reconfiguration takes costs more than it brings.
        effective: Utilisation with the dark time counted: traffic of the whole phase over what the
            rest of it carries.
        break_even: Seconds of a phase from which the reconfiguration pays; infinite where it never
            does; 0 without circuits of today.
        patch: (switches, blocks, blocks), circuits in every switch from the north port of the row
            to the south port of the column, if switches are given.
        today: Circuits of today, or their patch, as given.
        rewires: Circuits that are set anew, in the patch where that of today is given.
        evaluations: Circuits scored, the control's not counted. `solves`: linear programmes of
            circuits, likewise.
        steps: Of descent.
        seconds: Wall time, compilation included, without the control.
        seed: As given.
        history: Utilisation and bound: of fractions after steps of descent, then of whole circuits
            after scores.
    """

    objective: float
    bound: float
    gap: float
    certified: bool
    circuits: Int[np.ndarray, "blocks blocks"]
    splits: Float[np.ndarray, "blocks blocks blocks"]
    rate: float
    relaxed: float
    relaxed_bound: float
    uniform: float
    control: float | None
    current: float | None
    reconfigured: bool
    effective: float
    break_even: float
    patch: Int[np.ndarray, "switches blocks blocks"] | None
    today: Int[np.ndarray, "..."] | None
    rewires: int
    evaluations: int
    solves: int
    steps: int
    seconds: float
    seed: int
    history: History

    def network(self, latency: str | float = 0.0) -> Network:
        """Return the blocks and circuits as a network."""
        ports = int(self.circuits.sum(1).max())
        return direct_connect(
            len(self.circuits), ports, circuits=self.circuits, capacity=self.rate, latency=latency
        )

    def patch_list(self) -> list[dict[str, int]]:
        """Return a line per switch and pair: how many circuits go from north to south ports.

        `circuits` of them there are: those `kept` and those to `set`; as many as `removed` says are
        to go before. Pairs of which all go have a line too. Without switches there is a line per
        pair of blocks. Where today's circuits are known but not by switch, `circuits` stand alone.
        """
        names = ("a", "b") if self.patch is None else ("switch", "north", "south")
        now = np.triu(self.circuits) if self.patch is None else self.patch
        was = np.zeros_like(now) if self.today is None else self.today
        if was.ndim != now.ndim:
            where = np.nonzero(now)
            columns = {"circuits": now}
        else:
            was = np.triu(was) if self.patch is None else was
            where, kept = np.nonzero(now + was), np.minimum(now, was)
            columns = {"circuits": now, "kept": kept, "set": now - kept, "removed": was - kept}
        table = np.stack([*where, *(column[where] for column in columns.values())], 1)
        return [dict(zip([*names, *columns], row, strict=True)) for row in table.tolist()]

    def as_dict(self) -> dict[str, Any]:
        """Return all but the splits for JSON; what is infinite is None."""
        return {
            "schema": "fabric.optimize.circuits/1", "objective": self.objective,
            "bound": self.bound, "gap": self.gap, "certified": self.certified,
            "circuits": self.circuits.tolist(), "rate": self.rate, "relaxed": self.relaxed,
            "relaxed_bound": self.relaxed_bound, "uniform": finite(self.uniform),
            "control": finite(self.control), "current": finite(self.current),
            "reconfigured": self.reconfigured,
            "effective": self.effective, "break_even_s": finite(self.break_even),
            "patch": self.patch_list(), "rewires": self.rewires, "evaluations": self.evaluations,
            "solves": self.solves, "steps": self.steps, "seconds": self.seconds, "seed": self.seed,
            "history": self.history.as_dict(),
        }  # fmt: skip

    def __str__(self) -> str:
        proved = "certified" if self.certified else "not certified"
        random = "" if self.control is None else f", random exchanges {self.control:.6g}"
        return (
            f"utilisation {self.objective:.6g}, uniform mesh {self.uniform:.6g}, bound "
            f"{self.bound:.6g}, gap {self.gap:.2%} ({proved}); relaxed {self.relaxed:.6g}"
            f"{random}; {self.rewires:,} circuits to set, "
            f"{self.evaluations:,} scored in {self.seconds:.1f} s"
        )
