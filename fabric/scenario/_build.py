"""`Built`: everything that `step` takes, made from a checked scenario."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fabric import hardware
from fabric._errors import InfeasibleError, ModelError, raise_faults, some
from fabric.hardware import Gpu, Profile
from fabric.network import Network, Placement
from fabric.routing import usual
from fabric.scenario._capped import capped
from fabric.scenario._fabrics import Ground, failed, ground
from fabric.scenario._live import LeftOut, left_out, said, without
from fabric.training import Layout, Model

Grounds = dict[str, Ground]
"""Fabrics without failures that were built already, by what was asked for."""


@dataclass(frozen=True, eq=False)
class Built:
    """What a scenario asks for, as objects.

    Attributes:
        network: With its failures; its endpoints are the GPUs of servers that all can be reached,
            or all, if `placement` names every GPU. `whole`: without failures.
        left_out: Servers that cannot be reached.
        uniform: With failures, but every leaf-spine cable of the uniform design plugged; None where
            none is missing or it was not asked for.
        model, layout, gpu, profile: As `step` takes them.
        placement: "first", "spread", or the GPU of every rank.
        routing: Its name, or None for the usual one of the fabric, asked for or not.
        wanted: Whether missing cables of a file are to be priced.
        allocation: GPUs that the job may use; None: all.
        by: Groups of links for sensitivities; None: leave them out.
        seed: Of a routing that draws.
        ground: The fabric without failures, and what a file was found to hold.
    """

    network: Network
    whole: Network
    uniform: Network | None
    model: Model
    layout: Layout
    gpu: Gpu
    profile: Profile
    placement: str | Placement
    routing: str | None
    allocation: int | None
    by: str | None
    seed: int
    ground: Ground = field(repr=False)
    wanted: bool = False
    left_out: tuple[LeftOut, ...] = ()


def build(data: dict[str, Any], grounds: Grounds | None = None) -> Built:
    """Return the objects of a checked scenario.

    Args:
        data: Resolved, its defaults filled in.
        grounds: Fabrics built before, which are used again; new ones are added.

    Raises:
        ModelError: If a file cannot be read, a name is unknown, or the layout does not suit the
            model.
        InfeasibleError: If the allocation or the layout needs more GPUs than there are, or than can
            be reached.
    """
    block, run, part = data["fabric"], data["run"], data["hardware"]
    model = _model(data["model"])
    early = _layout(data["layout"], None)
    if early is not None:
        early.check(model)
    base = _ground(block, part.get("folder"), {} if grounds is None else grounds)
    broken = block.get("failed", {})
    network = failed(base.network, broken)
    allocation = None if run["allocation"] == "all" else run["allocation"]
    out = left_out(network) if isinstance(run["placement"], str) else ()
    usable = _usable(network, allocation, out)
    network = without(network, out)
    with _told_of(out):
        layout = early or _layout(data["layout"], usable)
        assert layout is not None
        layout.check(model)
        layout.check_allocation(usable)
    gpu = _gpu(part, network)
    wanted = run.get("missing_cables", "file" in block)
    whole_cables = base.uniform if wanted else None
    by = run["sensitivities"]
    return Built(
        network=network,
        whole=base.network,
        uniform=None if whole_cables is None else without(failed(whole_cables, broken), out),
        model=model,
        layout=layout,
        gpu=gpu,
        profile=_profile(part, gpu),
        placement=_placement(run["placement"], network),
        routing=_routing(network, block.get("routing")),
        allocation=allocation,
        by=None if by == "none" else by,
        seed=run["seed"],
        ground=base,
        wanted=wanted,
        left_out=out,
    )


def _usable(network: Network, allocation: int | None, out: Sequence[LeftOut]) -> int:
    """Return how many GPUs the job may use.

    Raises:
        InfeasibleError: If the allocation has more than there are.
    """
    present = len(network.hosts)
    if allocation is not None and allocation > present:
        message = (
            f"`run.allocation: {allocation}`, but the fabric has {present:,} GPUs. Lower it, or "
            f"leave it out: the job may use all of them then."
        )
        raise InfeasibleError(message)
    live = present - sum(len(one.gpus) for one in out)
    return live if allocation is None else min(allocation, live)


@contextmanager
def _told_of(out: Sequence[LeftOut]) -> Iterator[None]:
    """Add to what is infeasible that servers are left out."""
    try:
        yield
    except InfeasibleError as error:
        if not out:
            raise
        message = f"{error} {said(out)}. Take back `fabric.failed`, or use a smaller layout."
        raise InfeasibleError(message) from None


def _routing(network: Network, asked: str | None) -> str | None:
    """Return None for the rule that is usual here, so that it is told why that is so."""
    return None if asked == usual(network).name else asked


def _ground(block: dict[str, Any], folder: str | None, grounds: Grounds) -> Ground:
    asked = {key: value for key, value in block.items() if key not in ("failed", "routing")}
    key = json.dumps([asked, folder], sort_keys=True)
    if key not in grounds:
        grounds[key] = ground(asked, folder)
    return grounds[key]


def _model(block: str | dict[str, Any]) -> Model:
    if isinstance(block, str):
        return Model.listed(block)
    if "config" not in block:
        return Model(**block)
    from fabric.readers import hf_config

    return hf_config(Path(block["config"]), name=block.get("name", ""))


def _layout(text: str, gpus: int | None) -> Layout | None:
    """Return the layout, or None where `dp=auto` has to wait for the number of GPUs."""
    waits = "auto" in text and "gpus" not in text
    return None if waits and gpus is None else Layout.parse(text, gpus=gpus)


def _gpu(part: dict[str, Any], network: Network) -> Gpu:
    name = part.get("gpu") or network.labels.about.get("gpu")
    if not name:
        message = (
            "The type of GPU is not known: the fabric does not say it, and `hardware.gpu` is "
            "missing. Add `hardware: {gpu: h100-sxm}`, or name a `fabric.server`. Known: "
            f"{', '.join(hardware.names('gpus', part.get('folder')))}."
        )
        raise ModelError(message)
    return hardware.gpu(name, part.get("folder"))


def _profile(part: dict[str, Any], gpu: Gpu) -> Profile:
    folder = part.get("folder")
    named = part.get("profile")
    profile = (
        hardware.profile(named, folder) if named else hardware.default_profile(gpu.name, folder)
    )
    return profile.with_values(part["set"], source="`hardware.set`") if part.get("set") else profile


def _placement(value: str | list[str | int], network: Network) -> str | Placement:
    if isinstance(value, str):
        return value
    faults: list[str] = []
    nodes: list[int] = []
    hosts = set(network.hosts.tolist())
    for item in value:
        try:
            node = network.labels.node(item) if isinstance(item, str) else item
        except ModelError as error:
            faults.append(f"`run.placement`: {error}")
            continue
        if node not in hosts:
            faults.append(f"`run.placement`: {item!r} is no GPU of this fabric.")
        nodes.append(node)
    if twice := [node for node, count in Counter(nodes).items() if count > 1]:
        name = lambda node: network.labels.names[node] if node in hosts else node
        faults.append(f"`run.placement` puts more than one rank on {some(twice, name=name)}.")
    raise_faults(capped(faults))
    return Placement(np.array(nodes, np.int32))
