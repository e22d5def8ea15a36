"""How rail-aligned fabrics are wired: units of servers, planes, pods and cores.

NIC r of every server of a unit meets leaf r of that unit; everything above differs. NICs come
first, ordered by server and rail.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from fabric.network import Blueprint, Network
from fabric.topologies._plan import afford
from fabric.topologies._sizes import Sizes


@dataclass(frozen=True)
class Wiring:
    """A rail-aligned fabric in whole numbers.

    Attributes:
        servers, rails: Number of servers and NICs of each.
        size: Servers of a full unit; the last may have fewer.
        planes: Planes that share nothing; a NIC has a cable into each. 0: one, and not so called.
        tors: Leaves of a plane that a NIC has a cable to.
        pods: What the leaves of a plane are divided into: "all" (not at all), "units" (runs of
            units) or "rails" (rails of runs of units).
        units_per_pod: Units of a full run.
        spines: Spines of a pod; 0: none.
        leaf_cables: Cables from every leaf to each of them.
        groups: Groups of cores; the spines of every pod are dealt to them in equal runs.
        cores: Cores of a group; 0: none.
        core_cables: Cables from every spine to each core of its group.
    """

    servers: int
    rails: int
    size: int
    planes: int = 0
    tors: int = 1
    pods: str = "all"
    units_per_pod: int = 1
    spines: int = 0
    leaf_cables: int = 0
    groups: int = 1
    cores: int = 0
    core_cables: int = 0

    @property
    def units(self) -> int:
        """Number of units."""
        return -(-self.servers // self.size)

    @property
    def n_planes(self) -> int:
        """Number of planes, 1 where there are not several."""
        return max(self.planes, 1)

    @property
    def n_pods(self) -> int:
        """Pods of a plane."""
        runs = -(-self.units // self.units_per_pod)
        return {"all": 1, "units": runs, "rails": runs * self.rails}[self.pods]

    @property
    def leaves(self) -> int:
        """Leaves of a plane."""
        return self.units * self.rails * self.tors

    def sizes(self) -> Sizes:
        """Return the counts of nodes, cables, ports and paths."""
        planes, nics = self.n_planes, self.servers * self.rails
        leaf, spine = planes * self.leaves, planes * self.n_pods * self.spines
        core = planes * self.groups * self.cores
        links = self.leaf_cables * self.spines
        up = self.cores * self.core_cables
        below = self._leaves_of_pod() * self.leaf_cables
        inside = self.n_pods * self.spines // self.groups * self.core_cables
        nodes = {"nic": nics, "leaf": leaf, "spine": spine, "core": core}
        cables = {
            "host": nics * planes * self.tors, "leaf-spine": leaf * links, "spine-core": spine * up
        }  # fmt: skip
        ports = {
            "nic": planes * self.tors, "leaf": min(self.size, self.servers) + links,
            "spine": below + up, "core": inside,
        }  # fmt: skip
        there = lambda counts: {word: n for word, n in counts.items() if n}
        hops, paths, cable_paths = self._ways()
        kept = {kind: ports[kind] for kind in there(nodes)}
        return Sizes(there(nodes), there(cables), kept, hops, paths, cable_paths)

    def _leaves_of_pod(self) -> int:
        runs = min(self.units_per_pod, self.units)
        units = {"all": self.units * self.rails, "units": runs * self.rails, "rails": runs}
        return units[self.pods] * self.tors

    def _ways(self) -> tuple[int, int, int]:
        """Return switches on the longest way, paths over switches and over cables."""
        ends = self.n_planes * self.tors**2
        over = self.spines, self.spines * self.leaf_cables**2
        top = self.spines * self.cores, self.core_cables**2
        if self.cores and self.n_pods > 1:
            return 5, ends * top[0], ends * top[0] * self.leaf_cables**2 * top[1]
        if self.spines and self._leaves_of_pod() > self.tors:
            return 3, ends * over[0], ends * over[1]
        return 1, self.n_planes * self.tors, self.n_planes * self.tors

    def network(
        self, what: str, rate: float, delay: float = 0.0, up_rate: float | None = None
    ) -> Network:
        """Return the network.

        Kinds `nic`, `leaf`, `spine` and `core`; tiers `host`, `leaf-spine` and `spine-core`; tags
        `server`, `rail`, `unit`, `leaf`, and where there are such, `plane` (of switches), `pod` and
        `tor`.

        Args:
            what: What was built, in words.
            rate: byte/s of every cable of a NIC, per direction.
            delay: Seconds, per link.
            up_rate: byte/s of every other cable. Default: `rate`.
        """
        afford(what, self.sizes().n_cables)
        up_rate = rate if up_rate is None else up_rate
        plan = Blueprint()
        planes, words, shape = self._planes()
        pod = self._pod()
        server, rail = np.arange(self.servers)[:, None], np.arange(self.rails)
        unit = server // self.size
        number = np.arange(pod.size).reshape(pod.shape)
        podded = {} if self.pods == "all" else {"pod": pod}
        of = unit[:, 0]
        nic = plan.nodes(
            "nic", "server{}-nic{}", (self.servers, self.rails), server=server, rail=rail,
            unit=unit, leaf=number[of], **{tag: value[of] for tag, value in podded.items()},
        )  # fmt: skip
        tor = (self.tors,) if self.tors > 1 else ()
        inner = lambda values: values[..., None] if tor else values
        plane = {"plane": planes[:, None, None]} if self.planes else {}
        tags = {"rail": rail, "unit": np.arange(self.units)[:, None], "leaf": number, **podded}
        leaf = plan.nodes(
            "leaf", f"{words}unit{{}}-leaf{{}}" + "-tor{}" * len(tor),
            (*shape, self.units, self.rails, *tor),
            **{tag: inner(value) for tag, value in (plane | tags).items()},
            **({"tor": np.arange(self.tors)} if tor else {}),
        ).reshape(self.n_planes, self.units, self.rails, self.tors)  # fmt: skip
        plan.cables("host", nic[..., None], leaf[:, of], rate, delay)
        if self.spines:
            self._add_spines(plan, leaf, pod, up_rate, delay)
        return plan.network(what)

    def _planes(self) -> tuple[Int[np.ndarray, " planes"], str, tuple[int, ...]]:
        """Return the numbers of the planes, what names begin with, and the axis they count on."""
        shape = (self.planes,) if self.planes else ()
        return np.arange(self.n_planes), "plane{}-" * len(shape), shape

    def _pod(self) -> Int[np.ndarray, "units rails"]:
        run = np.arange(self.units)[:, None] // self.units_per_pod
        rail = np.arange(self.rails)
        pod = {"all": 0 * run, "units": run, "rails": run * self.rails + rail}[self.pods]
        return np.broadcast_to(pod, (self.units, self.rails))

    def _add_spines(
        self, plan: Blueprint, leaf: np.ndarray, pod: np.ndarray, rate: float, delay: float
    ) -> None:
        planes, words, shape = self._planes()
        tags = {"plane": planes} if self.planes else {}
        inner = {tag: value[:, None] for tag, value in tags.items()}
        if self.pods == "all":
            spine = plan.nodes("spine", f"{words}spine{{}}", (*shape, self.spines), **inner)
        else:
            tags_of_pods = self._tags_of_pods()
            spine = plan.nodes(
                "spine", f"{words}pod{{}}-spine{{}}", (*shape, self.n_pods, self.spines),
                **{tag: value[:, None, None] for tag, value in tags.items()},
                **{tag: value[:, None] for tag, value in tags_of_pods.items()},
            )  # fmt: skip
        spine = spine.reshape(self.n_planes, self.n_pods, self.spines)
        up = spine[:, pod][..., None, :]
        plan.cables("leaf-spine", leaf[..., None], up, rate, delay, parallel=self.leaf_cables)
        if self.cores:
            cores = (*shape, self.groups * self.cores)
            core = plan.nodes("core", f"{words}core{{}}", cores, **inner)
            group = np.arange(self.spines) // (self.spines // self.groups)
            up = core.reshape(self.n_planes, 1, self.groups, self.cores)[:, :, group]
            plan.cables("spine-core", spine[..., None], up, rate, delay, parallel=self.core_cables)

    def _tags_of_pods(self) -> dict[str, Int[np.ndarray, " pods"]]:
        pods = np.arange(self.n_pods)
        return {"pod": pods} | ({"rail": pods % self.rails} if self.pods == "rails" else {})
