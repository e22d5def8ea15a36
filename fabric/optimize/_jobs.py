"""`Job`: a training job on a fabric, and its step as a function of what the fabric can carry."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fabric._errors import InfeasibleError, ModelError, raise_faults
from fabric._typing import AnyArray
from fabric.collectives import effective
from fabric.hardware import Gpu, Profile
from fabric.network import Network, Placement, Routes
from fabric.routing._all_pairs import link_loads
from fabric.solvers import max_min_rates
from fabric.training import Layout, Model, parameters_of_stage
from fabric.training._assemble import Parts
from fabric.training._compute import compute_times
from fabric.training._insights import StepTime
from fabric.training._numbers import WEIGHT
from fabric.training._phases import Phase, Router, Servers, solved, traffic_of
from fabric.training._step import gpu_of, memory_of, placed_on, profile_of, refusal, router_of


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training job that a fabric has to carry.

    Attributes:
        model: Its shape.
        layout: How it is cut.
        placement, routing, profile, gpu, seed: As of `step`.
        share: Its weight among several jobs: how often it runs.
        name: For people. Default: the name of the model.

    Raises:
        ModelError: If the model, the layout or the share is none.

    Examples:
        >>> job = Job(model=Model.listed("llama-3.1-8b"), layout=Layout(gbs=8, seq=8192, dp=8))
        >>> job.called
        'llama-3.1-8b'
    """

    model: Model
    layout: Layout
    placement: Placement | str | None = None
    routing: str | Router | None = None
    profile: Profile | str | None = None
    gpu: Gpu | str | None = None
    seed: int = 0
    share: float = 1.0
    name: str = ""

    def __post_init__(self):
        raise_faults([
            f"`Job({name}=...)` needs a `{kind.__name__}`, but got {type(value).__name__}."
            for name, value, kind in (("model", self.model, Model), ("layout", self.layout, Layout))
            if not isinstance(value, kind)
        ])  # fmt: skip
        share = self.share
        if isinstance(share, bool) or not (
            isinstance(share, Real) and np.isfinite(share) and share > 0
        ):
            message = f"`Job(share={share!r})` of '{self.called}' needs a number above 0."
            raise ModelError(message)

    @property
    def called(self) -> str:
        """The name, or that of the model."""
        return self.name or self.model.name


class Gather(NamedTuple):
    """The gather of ZeRO-2, which hides behind a pass that other waiting makes longer.

    Attributes:
        phase: The number of the data-parallel exchange.
        width: Bytes of a parameter.
        wait: Its latency.
        microbatches: Reductions beside the pipeline.
    """

    phase: int
    width: float
    wait: float
    microbatches: int

    def adds(self, parts: Parts, transfer: AnyArray) -> AnyArray:
        """Return the share of the gather that may hide while a longer pass makes no step shorter.

        The step has the cubic norm of the pipeline and the reductions: one more second in every
        microbatch costs m (pipeline / norm)^2, and hides one second.
        """
        pipeline = parts.compute + parts.host + parts.tp + parts.cp + parts.pp + parts.bubble
        many = parts.dp + parts.hidden_dp - (self.width * transfer[self.phase] + self.wait)
        cost = self.microbatches * (pipeline**3 / (pipeline**3 + many**3)) ** (2 / 3)
        return jnp.minimum(cost * (1 - 1e-9), 1.0)


class JobStep:
    """The step of a job on a network whose groups of links get faster or slower.

    Routes stay as they are: capacities change, not cables.

    Args:
        network: With labels; capacities are nominal.
        job: What runs.
        group_of: (links,), which group each link is in; `n_groups` for those that stay.
        n_groups: How many there are.

    Attributes:
        phases: The exchanges, with their routes.
        loads: (phases, groups + 1), seconds of the busiest link as built; last those that stay.
        gather: With ZeRO-2 beside computing.
        asked: What decides about the step beside the network and the routes.

    Raises:
        ModelError: If the model cannot be cut like this.
        InfeasibleError: If it does not fit, or a GPU cannot be reached.
    """

    def __init__(
        self, network: Network, job: Job, group_of: Int[np.ndarray, " links"], n_groups: int
    ):
        self.job = job
        gpu, layout, model = gpu_of(network, job.gpu), job.layout, job.model
        profile = profile_of(gpu, job.profile)
        layout.check(model)
        layout.check_allocation(len(network.hosts))
        held = memory_of(model, layout, gpu, profile)
        if held.verdict == "does not fit":
            message = f"Job '{job.called}': {refusal(model, layout, gpu, profile, held)}"
            raise InfeasibleError(message)
        ranks, _ = placed_on(network, layout, job.placement)
        router, rule = router_of(network, job.routing, job.seed)
        share, servers = profile.efficiency, Servers.in_(network)
        self._network = effective(network, nvlink=share.nvlink.value, nic=share.nic.value)
        stages = [parameters_of_stage(model, layout, stage) for stage in range(layout.pp)]
        parameters = np.array(stages, np.float64)
        traffic = traffic_of(model, layout, profile, ranks, servers, parameters)
        self.phases: list[Phase] = [solved(self._network, one, router) for one in traffic]
        heaviest = float(parameters.max())
        nodes = servers.count(ranks)
        work = compute_times(model, layout, gpu, profile, heaviest)
        self.total = StepTime(work, layout, profile, self.phases, model.layers, heaviest, nodes)
        waits = [(phase.traffic.name, phase.latency) for phase in self.phases]
        self.asked = (
            model, layout, gpu, profile, ranks, rule, nodes, waits, float(job.share),
            job.called,
        )  # fmt: skip
        self.gather = None
        if layout.zero == 2 and profile.stack.dp_overlap and (layout.dp * layout.cp > 1):
            i = self.total.names.index("dp")
            wait = self.phases[i].latency
            self.gather = Gather(i, WEIGHT[layout.dtype], wait, layout.microbatches)
        self._group_of = group_of
        loads = lambda p: loads_of(self._network, p.routes, p.traffic.size, group_of, n_groups)
        self.loads = np.array([loads(phase) for phase in self.phases]).reshape(-1, n_groups + 1)

    def transfers(self, factors: Float[AnyArray, " groups"]) -> jax.Array:
        """Return the exact seconds on the wire of each kind of exchange.

        Args:
            factors: (groups,), of the capacities. Traced.

        Derivatives: Through the max-min rates. Where several flows are last, the mean of theirs.
        """
        kind = jnp.asarray(factors).dtype
        wide = jnp.append(jnp.asarray(factors), jnp.ones((), kind))[self._group_of]
        capacity = jnp.asarray(np.asarray(self._network.capacity), kind) * wide
        took = []
        for phase in self.phases:
            solution = max_min_rates(
                self._network.with_capacity(capacity), phase.routes, throw=False
            )
            rates = phase.routes.per_flow(solution.rates)
            took.append(jnp.max(jnp.asarray(phase.traffic.size, kind) / rates))
        return jnp.stack(took) if took else jnp.zeros(0, kind)

    def exact(self, factors: Float[AnyArray, " groups"]) -> float:
        """Return the exact seconds of a step."""
        return float(self.total.seconds(self.transfers(factors)))


def loads_of(
    network: Network,
    routes: Routes,
    size: Float[np.ndarray, " flows"],
    group_of: Int[np.ndarray, " links"],
    n_groups: int,
) -> Float[np.ndarray, " columns"]:
    """Return the seconds that the busiest link of each group takes to carry everything.

    The last column is of links in no group, so that there are `n_groups` + 1.
    No sharing of the links is faster, and fair sharing is as fast where all flows are of one size.

    Raises:
        ModelError: If flows are split over queue pairs: what each of them carries is not fixed.
    """
    if not routes.row_is_flow:
        message = (
            "Flows that are split over queue pairs have no fixed load on a link. Use a routing "
            "without queue pairs."
        )
        raise ModelError(message)
    load = link_loads(routes, np.asarray(size, np.float64))
    capacity = np.where(np.asarray(network.alive), np.asarray(network.capacity, np.float64), 0.0)
    busy = load > 0
    seconds = np.zeros(n_groups + 1)
    with np.errstate(divide="ignore"):
        np.maximum.at(seconds, group_of[busy], load[busy] / capacity[busy])
    return seconds


def listed(jobs: Job | Sequence[Job]) -> tuple[Job, ...]:
    """Return the jobs, checked.

    Raises:
        ModelError: If there is none, or something else.
    """
    found = tuple(jobs) if isinstance(jobs, Sequence) else (jobs,)
    wrong = [type(job).__name__ for job in found if not isinstance(job, Job)]
    if wrong or not found:
        got = wrong[0] if wrong else "none"
        message = f"`jobs` needs one `Job(model=..., layout=...)` or several, but got {got}."
        raise ModelError(message)
    return found
