"""`joint`: layout, placement of servers, and splits of traffic over paths, together."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from fabric._errors import InfeasibleError, some
from fabric._typing import AnyArray
from fabric.hardware import Gpu, Profile, Stack
from fabric.network import Flows, Network, Placement, Routes
from fabric.optimize._group_tables import PathTables, limits as limits_of, rounded
from fabric.optimize._joint_descent import Form
from fabric.optimize._joint_input import check, count_of, servers_of
from fabric.optimize._joint_rounds import Run
from fabric.optimize._joint_search import Cases, Plan, Search
from fabric.optimize._joint_site import Docks, Site
from fabric.optimize._kept import checkpoint_of
from fabric.optimize._layout import _refusal as refusal
from fabric.optimize._layout_choice import Choice
from fabric.optimize._layout_space import Space
from fabric.optimize._layout_wires import Fabric
from fabric.optimize._placement_input import server_and_gpu
from fabric.optimize._rank_file import gpu_file, hostfile, rank_file
from fabric.routing import ecmp
from fabric.runs import History, Progress
from fabric.training import Layout, Model
from fabric.training._step import gpu_of, profile_of

Splits = Float[np.ndarray, "pairs width"]


@dataclass(frozen=True, eq=False)
class JointReport:
    """A layout, its placement and its routing, with what proves how good they are.

    Attributes:
        objective: Seconds of a step, by exact max-min rates under the splits.
        bound: No layout takes less, wherever its servers are and however traffic splits.
        gap: objective / bound - 1.
        certified: Whether the gap is within the tolerance.
        before: The best layout with servers as listed, sprayed.
        apart: The best layout, then its placement, then its routing, with as many scores.
        control: Layouts with servers exchanged at random, sprayed, with as many scores. Both NaN
            if they were not wanted.
        best: The layout, the GPU of every rank, and its memory.
        splits: (pairs, width), share of every path between adapters or the switches they hang on.
        evaluations: Plans that were scored in closed form, gradients counted. `steps`: of the
            gradient. `solves`: exact ones of an exchange.
        seconds: Wall time, compilation included, without `apart` and `control`.
        seed: As given.
        history: Best value and bound, by evaluation.
        layouts: Sets of degrees that were looked at. `lost`: those of them left out, since they
            send between adapters that have no path.
        layers: Of the model. `stack`: of the profile.
    """

    objective: float
    bound: float
    gap: float
    certified: bool
    before: float
    apart: float
    control: float
    best: Choice
    splits: Splits = field(repr=False)
    evaluations: int
    solves: int
    steps: int
    seconds: float
    seed: int
    history: History = field(repr=False)
    layouts: int
    lost: int
    layers: int
    stack: Stack = field(repr=False)
    network: Network = field(repr=False)
    site: Site = field(repr=False)
    _score: Callable[[Splits], float] = field(repr=False)

    @property
    def layout(self) -> Layout:
        """How the model is cut."""
        return self.best.layout

    @property
    def placement(self) -> Placement:
        """The GPU of every rank."""
        return self.best.placement

    def routing(self, network: Network, flows: Flows) -> Routes:
        """Return routes of flows between GPUs under these splits; `step` takes it as `routing`.

        Raises:
            ModelError: If other links between switches are alive than in the search, or flows run
                between servers that were not in it.
        """
        found = self.site.routes(self.splits, network, flows)
        return found.with_rule(name="joint", gap=self.gap)

    def tables(self, entries: int = 64) -> PathTables:
        """Return whole weights for switches, and what the step loses by them.

        Groups are of switches where adapters have one port, else of adapters.

        Args:
            entries: Most entries of a group; the weights of a group add up to at most this.

        Raises:
            ModelError: If `entries` is out of range.
        """
        entries, _ = limits_of(entries, None)
        room = np.full(self.site.n_pairs, entries)
        weights = rounded(self.splits, room)
        total = weights.sum(axis=1, keepdims=True)
        seconds = self._score(weights / total) if len(weights) else self.objective
        loss = seconds / self.objective - 1
        return PathTables(
            weights, self.site.paths, entries, None, seconds, self.objective, loss, loss, 0
        )

    @property
    def megatron(self) -> str:
        """The options of Megatron-LM for the layout."""
        return self.best.megatron(self.layers, self.stack)

    def rank_file(self, cores: int = 1) -> str:
        """Return a rank file of Open MPI, as that of `PlacementReport`.

        Args:
            cores: Of a server for each of its GPUs.
        """
        return rank_file(*self._where(), cores)

    def slurm_hostfile(self) -> str:
        """Return the file that SLURM_HOSTFILE names, for srun with `--distribution=arbitrary`."""
        return hostfile(self._where()[0])

    def gpu_file(self) -> str:
        """Return the GPU of every rank in its server, one a line, as that of `PlacementReport`."""
        return gpu_file(self._where()[1])

    def _where(self) -> tuple[list[str], list[int]]:
        return server_and_gpu(self.network, self.placement.endpoint_of)

    def as_dict(self) -> dict[str, Any]:
        """Return all but the splits for JSON."""
        names = (
            "objective", "bound", "gap", "certified", "before", "evaluations", "solves", "steps",
            "seconds", "seed", "layouts", "lost",
        )  # fmt: skip
        name = self.network.labels.node_name
        return {
            **{name: getattr(self, name) for name in names},
            "apart": None if np.isnan(self.apart) else self.apart,
            "control": None if np.isnan(self.control) else self.control,
            "best": self.best.as_dict(),
            "megatron": self.megatron,
            "endpoints": [name(int(node)) for node in self.placement.endpoint_of],
            "history": self.history.as_dict(),
        }

    def __str__(self) -> str:
        proved = "certified" if self.certified else "not certified"
        beside = "" if np.isnan(self.apart) else (
            f"; one after the other {self.apart:.6g} s, random exchanges {self.control:.6g} s"
        )  # fmt: skip
        return (
            f"{self.objective:.6g} s from {self.before:.6g} s: {self.layout}; bound "
            f"{self.bound:.6g} s, gap {self.gap:.2%} ({proved}){beside}; {self.evaluations:,} "
            f"evaluations in {self.seconds:.1f} s"
        )


def joint(
    network: Network,
    model: Model,
    *,
    gbs: int,
    seq: int,
    allocation: AnyArray | Sequence[int | str] | None = None,
    gpus: int | None = None,
    dtype: str = "bf16",
    schedule: str = "1f1b",
    recompute: str = "modes",
    rank_orders: str | Sequence[str | Sequence[str]] = "tp-cp-dp-pp",
    limits: Mapping[str, int] | None = None,
    least_margin: float = 0.0,
    profile: Profile | str | None = None,
    gpu: Gpu | str | None = None,
    paths: str | int = "shortest",
    swaps: int = 1500,
    steps: int = 480,
    tolerance: float = 1e-3,
    seed: int = 0,
    control: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
) -> JointReport:
    """Return a layout, the servers it runs on and the splits of its traffic, found together.

    A layout that is best where servers are as listed and traffic is sprayed need not be best once
    both are made for it. Layouts go on in three rounds, each time fewer with more exchanges of
    servers, tried in the order of what the prices of busy links promise. In between, splits follow
    the gradient of the step through the busiest links. Traffic is summed over the paths of every
    two switches meanwhile; what is left in the end is scored with exact max-min rates.

    Args:
        network: With servers; links that have failed carry nothing.
        model: Its shape; dense.
        gbs: Global batch in sequences.
        seq: Tokens of a sequence.
        allocation: GPUs that may be used, by number or name, in the order in which the scheduler
            lists their servers; the same number of every server. Default: all of the servers whose
            GPUs and adapters all have live links.
        gpus: How many to use, whole servers. Default: the allocation.
        dtype: As of `layout`, and so the next seven.
        schedule: "1f1b" or "gpipe".
        recompute: "modes" or "counts".
        rank_orders: "all", one or several.
        limits: Largest sizes, by name.
        least_margin: Share of the memory that has to be left.
        profile: What the software reaches.
        gpu: Type of GPU.
        paths: As of `routing_weights`, between the switches that adapters hang on; between adapters
            where these have several ports.
        swaps: Scores of exchanges in all.
        steps: Of the gradient in the last round; a sixth of them in those before.
        tolerance: The gap at which the search ends and the answer is called certified.
        seed: Of exchanges at random, and of paths where `paths` is a number.
        control: Whether to spend as many scores on layout, placement and routing one after the
            other, and on exchanges at random, to compare with.
        checkpoint: A file that keeps the state, written every half minute; the same call goes on
            from there.

    Returns:
        A `JointReport`, never worse than `before`.

    Raises:
        ModelError: If the network has no servers, an argument is out of range, the sequence is too
            long for the model, or servers differ in how many GPUs they give or how these share
            adapters; of arguments, all faults at once.
        InfeasibleError: If no layout suits and fits, there are too few GPUs, an adapter cannot be
            reached, or memory does not suffice for the paths.

    Precision: The descent in the default float type of JAX, and it only steers; scores in float64,
        exact ones as of `step`. The bound is lowered by their rounding, 4e-5 with float32.
    Cost: A score is some tenths of a millisecond for 128 servers on 20 leaves. Adapters with
        several ports make a pair of every two docks, which serves some dozens of docks.

    Examples:
        Four servers that a scheduler lists in turn from two leaves, with half of a spine gone:

        >>> import fabric as fb
        >>> from fabric import hardware
        >>> nics = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=16)
        >>> nics = nics.degraded(nodes=["spine1"], factor=0.5)
        >>> servers = nics.hosts.reshape(4, 8)
        >>> net = fb.topologies.attach_servers(nics, hardware.server("dgx-h100"), servers)
        >>> listed = net.hosts.reshape(4, 8)[[0, 2, 1, 3]].ravel()
        >>> found = joint(
        ...     net, fb.Model.listed("llama-3.1-8b"), gbs=64, seq=8192, allocation=listed,
        ...     limits={"vpp": 1, "cp": 1}, swaps=30, steps=60, control=False,
        ... )
        >>> found.bound <= found.objective < found.before
        True
        >>> one = fb.step(net, fb.Model.listed("llama-3.1-8b"), found.layout, found.placement,
        ...     routing=found.routing, by=None)
        >>> abs(one.step_time / found.objective - 1) < 1e-9
        True
    """
    begun_at = time.perf_counter()
    asked = check(
        network, model, gbs, seq, dtype, schedule, recompute, rank_orders, limits, least_margin,
        gpus, paths, swaps, steps, tolerance, seed,
    )  # fmt: skip
    gbs, seq, swaps, steps, seed, sizes, orders = asked
    tolerance, least_margin = float(tolerance), float(least_margin)
    servers = servers_of(network, allocation)
    count = count_of(servers, gpus)
    gpu = gpu_of(network, gpu)
    profile = profile_of(gpu, profile)
    space = Space.of(
        model, profile, capacity=gpu.memory.value, gpus=[count], gbs=gbs, seq=seq, dtype=dtype,
        schedule=schedule, recompute=recompute, rank_orders=orders, limits=sizes,
        least_margin=least_margin,
    )  # fmt: skip
    if not space.n_rows:
        raise InfeasibleError(refusal(space, [count], gpu))
    kept = checkpoint_of(
        checkpoint, "joint", network, model, profile, gpu, servers, count, gbs, seq, dtype,
        schedule, recompute, orders, sizes, least_margin, paths, swaps, steps, tolerance, seed,
    )  # fmt: skip
    state = (kept.load() if kept else None) or {}
    fabric = Fabric(network, model, profile, seq, dtype, ecmp, named=True)
    docks = Docks(fabric.network, servers)
    cases = Cases(space, Form(model, gpu, profile, gbs, seq, dtype), fabric, docks)
    with Progress(len(cases.keys), what="sets of degrees bounded") as progress:
        for done, key in enumerate(cases.keys):
            cases.bound(key)
            progress.update(done + 1)
    site = Site(docks, np.any(cases.combos, axis=0), paths, seed)
    layouts, lost = len(cases.keys), cases.leave_out(site)
    bound = float(cases.ideal.min())
    if not np.isfinite(bound):
        raise InfeasibleError(_unreached(network, site))

    search = Search(cases, site, seed, steps)
    run = Run(search, bound, bound * (1 + tolerance), steps, kept, state)
    first = run.before()
    run.note(first[0].step_time)
    with Progress(what="plans") as progress:
        found = run.rounds("joint", swaps, progress, guided=True)
    tried = [first, *((search.exact(*one), *one) for one in found)]
    best, case, plan = min(tried, key=lambda one: one[0].step_time)
    run.note(best.step_time)
    spent = search.scores + search.steps, search.steps, search.solves
    history, seconds = list(run.history), time.perf_counter() - begun_at
    apart = other = np.nan
    if control:
        with Progress(what="plans beside") as progress:
            apart = run.apart(max(spent[0] - steps, swaps))
            left = run.rounds("control", max(spent[0], swaps), progress, guided=False)
        other = min(search.exact(*one).step_time for one in left)
    value = best.step_time
    assert bound <= value * (1 + 1e-9), "a plan beats its bound"
    bound = min(bound, value)
    gap = value / bound - 1
    return JointReport(
        objective=value, bound=bound, gap=gap, certified=bool(gap <= tolerance + 1e-12),
        before=first[0].step_time, apart=apart, control=other, best=best, splits=plan.splits,
        evaluations=spent[0], steps=spent[1], solves=spent[2], seconds=seconds, seed=seed,
        history=History.of([(n, v, bound) for n, v in history]), layouts=layouts, lost=lost,
        layers=model.layers, stack=profile.stack, network=network, site=site,
        _score=lambda splits: search.exact(case, Plan(plan.at, splits)).step_time,
    )  # fmt: skip


def _unreached(network: Network, site: Site) -> str:
    docks = site.docks
    name = lambda dock: network.labels.node_name(int(docks.nodes[np.argmax(docks.dock == dock)]))
    pairs = [f"{name(a)} -> {name(b)}" for a, b in np.argwhere(site.lost).tolist()]
    return (
        f"Every layout sends between adapters that have no path over live links, such as "
        f"{some(pairs)}. Bring links back (`network.alive`), or leave servers out of `allocation`."
    )
