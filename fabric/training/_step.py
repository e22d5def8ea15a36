"""`step`: the time of one training step of a model and a layout on a fabric, and what costs it."""

import functools
from typing import Any

import numpy as np
from jaxtyping import Int

from fabric import routing as routings
from fabric._errors import InfeasibleError, ModelError, nearest, raise_faults, some
from fabric._units import format_size
from fabric.collectives import effective
from fabric.hardware import (
    Gpu,
    Profile,
    default_profile,
    gpu as known_gpu,
    profile as known_profile,
)
from fabric.network import Network, Placement
from fabric.solvers import certify
from fabric.training._assemble import Parts
from fabric.training._compute import compute_times
from fabric.training._insights import StepTime, assumptions, bottlenecks, step_sensitivities
from fabric.training._layout import Layout
from fabric.training._memory import Memory, memory
from fabric.training._model import Model
from fabric.training._phases import Router, Servers, solved, traffic_of
from fabric.training._report import StepReport
from fabric.training._smallest_change import smallest_change
from fabric.training._stages import parameters_of_stage

PLACEMENTS = ("first", "spread")


def step(
    network: Network,
    model: Model,
    layout: Layout,
    placement: Placement | str | None = None,
    routing: str | Router | None = None,
    profile: Profile | str | None = None,
    seed: int = 0,
    *,
    gpu: Gpu | str | None = None,
    allocation: int | None = None,
    by: str | None = "tier",
    allow_infeasible: bool = False,
) -> StepReport:
    """Return the time of one training step, where it goes, and what would help.

    Every parallel dimension puts the flows of all its groups on the fabric at once, and they share
    it max-min fairly: contention and placement count. Tensor and context parallel exchanges wait
    inside the layers, messages between stages inside the pipeline, and reductions and gathers of
    data parallelism hide behind the last and the first pass as far as these last.

    Args:
        network: With labels; its endpoints are the GPUs. `topologies.cluster` makes one.
        model: Its shape.
        layout: How it is cut.
        placement: Rank to GPU. "first" (default): in order. "spread": server i on scalable unit
            i mod n.
        routing: A name of `routing.ROUTINGS`, or a function of network and flows. Default: what
            the network says of itself, else "ecmp"; see `routing.usual`.
        profile: What the software reaches. Default: that of the GPU type.
        seed: Of a routing that takes one.
        gpu: Type of GPU. Default: what the network says of itself.
        allocation: GPUs that the job may use. Default: all.
        by: Groups of links for the sensitivities, as in `sensitivities`; None: leave them out.
        allow_infeasible: Answer also where the model does not fit in memory.

    Returns:
        A `StepReport`.

    Raises:
        ModelError: If the model cannot be cut like this, or the type of GPU is not known.
        InfeasibleError: If the layout is larger than the allocation, a GPU cannot be reached, or
            the model does not fit in memory; the smallest change that fits is named.

    Derivatives: On the host; the sensitivities of the report are exact and one-sided.
    Cost: One routing and one solve per kind of exchange, at most six, and one more per group of
        links and direction: about 0.5 s for a thousand GPUs.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.cluster("dgx-h100", nodes=2)
        >>> layout = fb.Layout.parse("tp8 sp dp2 zero1 mb1 gbs16 seq8192 recompute=selective")
        >>> report = fb.step(net, fb.Model.listed("llama-3.1-8b"), layout)
        >>> report.gpus_used, report.memory.verdict
        (16, 'fits')

    References:
        The equations and where they come from: `docs/step-model.md`.
    """
    _check_kinds(model, layout, placement)
    gpu = gpu_of(network, gpu)
    profile = profile_of(gpu, profile)
    layout.check(model)
    hosts = len(network.hosts)
    layout.check_allocation(hosts if allocation is None else min(allocation, hosts))
    ranks, placed = placed_on(network, layout, placement)
    held = memory_of(model, layout, gpu, profile)
    if held.verdict == "does not fit" and not allow_infeasible:
        raise InfeasibleError(refusal(model, layout, gpu, profile, held))

    router, rule = router_of(network, routing, seed)
    share = profile.efficiency
    reached = effective(network, nvlink=share.nvlink.value, nic=share.nic.value)
    servers = Servers.in_(network)
    held_by = [parameters_of_stage(model, layout, stage) for stage in range(layout.pp)]
    parameters = np.array(held_by, np.float64)
    traffic = traffic_of(model, layout, profile, ranks, servers, parameters)
    phases = [solved(reached, one, router) for one in traffic]
    heaviest = float(parameters.max())
    work = compute_times(model, layout, gpu, profile, heaviest)
    nodes = servers.count(ranks)
    total = StepTime(work, layout, profile, phases, model.layers, heaviest, nodes)
    parts = total.parts()
    flops = model.flops(layout.tokens, layout.seq)
    return StepReport(
        model=model,
        layout=layout,
        gpu=gpu,
        profile=profile,
        network=network,
        placement=placed,
        routing=rule,
        parts=Parts(*(float(x) for x in parts)),
        flops=flops,
        memory=held,
        phases=tuple(phases),
        bottlenecks=tuple(bottlenecks(reached, phases, total)),
        sensitivities=None if by is None else step_sensitivities(reached, phases, total, by),
        certificate=max(
            (float(certify(reached, p.routes, p.solution)) for p in phases), default=0.0
        ),
        gpus_idle=hosts - layout.gpus,
        assumptions=tuple(assumptions(network, layout, gpu, profile, rule)),
    )


def _check_kinds(model: object, layout: object, placement: object) -> None:
    """Raise one `ModelError` that says what to give in place of each argument of a wrong kind."""
    wanted = (
        ("model", model, Model, "`Model.listed('llama-3.1-70b')` or `readers.hf_config(path)`"),
        ("layout", layout, Layout, "`Layout.parse('tp8 pp4 gbs256 seq8192')`"),
        ("placement", placement, Placement | str | None,
         "'first', 'spread' or `Placement(nodes)`"),
    )  # fmt: skip
    raise_faults([
        f"`step({name}=...)` needs {fix}, but got {type(given).__name__}."
        for name, given, kind, fix in wanted
        if not isinstance(given, kind)
    ])  # fmt: skip


def memory_of(model: Model, layout: Layout, gpu: Gpu, profile: Profile) -> Memory:
    return memory(model, layout, gpu.memory.value, **_settings(profile))


def _settings(profile: Profile) -> dict[str, Any]:
    """Return what of the software matters to memory."""
    stack = profile.stack
    names = ("attention", "dropout", "grad_dtype", "grad_accumulation")
    return {name: getattr(stack, name) for name in names}


def refusal(model: Model, layout: Layout, gpu: Gpu, profile: Profile, held: Memory) -> str:
    """Return what to say where a model does not fit: what is held, and the next step."""
    change = smallest_change(model, layout, gpu.memory.value, **_settings(profile))
    table = [
        f"  {name:14} {format_size(size):>10}" for name, size in held.components.items() if size
    ]
    fix = f"The smallest change that fits: {change}." if change else (
        "No change of sharding, recompute, microbatch or sizes fits, up to three at once: use "
        "more GPUs."
    )  # fmt: skip
    return "\n".join([
        f"'{model.name}' with `{layout}` does not fit: stage {held.heaviest_stage} needs "
        f"{format_size(held.total)} on a {gpu.name} of {format_size(held.capacity)}:",
        *table,
        fix,
    ])  # fmt: skip


def gpu_of(network: Network, gpu: Gpu | str | None) -> Gpu:
    if isinstance(gpu, Gpu):
        return gpu
    name = gpu or network.labels.about.get("gpu")
    if not name:
        message = (
            "`step` needs the type of GPU, and this network does not say it. Give `gpu=`, such as "
            "'h100-sxm', or use a network with servers (`topologies.cluster`, `attach_servers`)."
        )
        raise ModelError(message)
    return known_gpu(name)


def profile_of(gpu: Gpu, profile: Profile | str | None) -> Profile:
    if isinstance(profile, Profile):
        return profile
    return default_profile(gpu.name) if profile is None else known_profile(profile)


def router_of(
    network: Network, routing: str | Router | None, seed: int
) -> tuple[Router, dict[str, object]]:
    """Return the routing, and how to tell of it."""
    if callable(routing):
        name = getattr(routing, "__name__", "function")
        return routing, {"name": name, "kind": "user", "source": "given by the caller"}
    name, kind, source = routings.usual(network, routing)
    rule = routings.ROUTINGS[name]
    said: dict[str, object] = {"name": name, "kind": kind, "source": source}
    if name == "ecmp":
        return functools.partial(rule, seed=seed), said | {"seed": seed}
    return rule, said


def placed_on(
    network: Network, layout: Layout, placement: Placement | str | None
) -> tuple[Int[np.ndarray, " ranks"], str]:
    """Return the GPU of every rank, and the name of the placement."""
    if isinstance(placement, Placement):
        if placement.n_ranks != layout.gpus:
            message = (
                f"`placement` has {placement.n_ranks:,} ranks, but the layout needs "
                f"{layout.gpus:,}."
            )
            raise ModelError(message)
        strange = placement.endpoint_of[~np.isin(placement.endpoint_of, network.hosts)]
        if len(strange):
            names, n = network.labels.names, network.n_nodes
            name_of = lambda node: str(names[node]) if node < n else f"node {node} of {n:,}"
            message = (
                f"`placement` puts {len(strange):,} ranks on nodes that are no GPUs of this "
                f"network: {some(strange.tolist(), name=name_of)}. Use nodes of `network.hosts`."
            )
            raise ModelError(message)
        return placement.endpoint_of, "given"
    name = placement or "first"
    if name == "first":
        return Placement.first(network, layout.gpus).endpoint_of, name
    if name != "spread":
        message = f"'{name}' is no placement. {nearest(name, PLACEMENTS)}"
        raise ModelError(message)
    tags, hosts = network.labels.tags, network.hosts
    by = next((tag for tag in ("unit", "pod", "leaf") if tag in tags), None)
    if by is None:
        message = (
            "`placement='spread'` deals servers to scalable units in turn, but this network has no "
            "tag `unit`, `pod` or `leaf`. Use 'first', or give a `Placement`."
        )
        raise ModelError(message)
    block = 1
    if "server" in tags:
        sizes = np.unique(np.unique(tags["server"][hosts], return_counts=True)[1])
        block = int(sizes[0])
    return Placement.spread(network, layout.gpus, by=by, block=block).endpoint_of, name
