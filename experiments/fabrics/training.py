"""A55: a step of training against oversubscription, and on fabrics without a way across rails."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import fabric as fb
from experiments.rows import Row
from fabric import hardware, topologies
from fabric.network import Network, Placement

RULE = "a rule of planning guides, no document named"
RAIL_ONLY = "W. Wang et al., Rail-only (arXiv 2307.12169v5), abstract"
META = "Llama 3 (arXiv 2407.21783), section 3.3: 7:1 between a pod and the rest"
RADIX = 128


@dataclass(frozen=True)
class Job:
    """A model, how it is cut over whole servers of 8 H100, and the fabrics it is tried on.

    Attributes:
        servers: How many.
        model, words: What runs there; memory does not count.
        ratios: Oversubscriptions: of leaves on two tiers, of spines on three.
        unit: Servers of a scalable unit.
        tiers: 2 or 3.
    """

    servers: int
    model: str
    words: str
    ratios: tuple[int, ...]
    unit: int = 64
    tiers: int = 2

    @property
    def layout(self) -> fb.Layout:
        """The layout."""
        return fb.Layout.parse(f"{self.words} zero1 mb1 recompute=selective")

    @property
    def size(self) -> str:
        """Its GPUs, for people."""
        return f"{8 * self.servers:,} GPUs"

    def fabric(self, ratio: int) -> Network:
        """Return its adapters in rails, so many times fewer ports up than down at one tier."""
        build = functools.partial(
            topologies.rail_optimized, self.servers, rails=8, radix=RADIX,
            servers_per_unit=self.unit,
        )  # fmt: skip
        if self.tiers == 3:
            return build(tiers=3, core_oversubscription=ratio)
        return build(leaf_down=self.unit, leaf_up=self.unit // ratio)

    def on(self, fabric: Network) -> Network:
        """Return the fabric with its servers."""
        return with_servers(fabric, fabric.hosts.reshape(self.servers, 8))


SMALL = Job(32, "llama-3.1-70b", "tp8 sp pp4 dp8 gbs64 seq8192", (1, 2, 4), unit=4)
JOBS = (
    Job(512, "llama-3.1-70b", "tp8 sp pp4 dp128 gbs2048 seq8192", (1, 2, 4, 8, 16)),
    Job(8192, "megatron-1t", "tp8 sp pp16 dp512 gbs4096 seq2048", (1, 2, 4, 8), tiers=3),
)
"""The rings of a stage span two scalable units of the first job, and eight of the second."""


def rows(smoke: bool) -> tuple[list[Row], dict[str, Any]]:
    """Return A55: steps by oversubscription, placement and routing, and on rails alone."""
    lines: list[Row] = []
    summary: dict[str, Any] = {}
    for job in (SMALL,) if smoke else JOBS:
        more, found = steps(job)
        lines += more
        summary |= found
    return [*lines, *savings(smoke)], summary


def steps(job: Job) -> tuple[list[Row], dict[str, Any]]:
    """Return the steps of a job on all its fabrics, over the first of them, and what they save."""
    fabrics = {ratio: job.fabric(ratio) for ratio in job.ratios}
    nets = {ratio: job.on(fabric) for ratio, fabric in fabrics.items()}
    lines: list[Row] = []
    summary: dict[str, Any] = {f"A55 {job.size}, oversubscription": list(job.ratios)}
    for placed in ("in order", "anywhere"):
        for routing in ("spray", "ecmp"):
            taken = [seconds(job, net, placed, routing) for net in nets.values()]
            over = [round(t / taken[0], 4) for t in taken]
            summary[f"A55 {job.size}, step placed {placed}, {routing}"] = over
            if routing == "spray":
                lines += _thinned(job, placed, dict(zip(job.ratios, over, strict=True)))
    counts = [_counted(fabric) for fabric in fabrics.values()]
    summary[f"A55 {job.size}, switches"] = [switches for switches, _ in counts]
    summary[f"A55 {job.size}, cables between switches"] = [cables for _, cables in counts]
    rails = job.on(topologies.rail_only(job.servers, rails=8, radix=RADIX))
    full, alone = (seconds(job, net, "in order", "spray") for net in (nets[1], rails))
    name = f"A55 step on rails alone over non-blocking, {job.size}"
    note = "tensor parallelism stays in the server, all else between GPUs of one number"
    lines.append(Row(name, 1, alone / full, "x", 0.01, RAIL_ONLY, note))
    return lines, summary


def _thinned(job: Job, placed: str, over: dict[int, float]) -> Iterator[Row]:
    """Yield steps at 4:1 and at the thinnest, over that at 1:1; a quote of 1 is that it is free."""
    within = max(ratio for ratio, x in over.items() if x <= 1.01)
    for ratio in dict.fromkeys((4, job.ratios[-1])):
        name = f"A55 step at {ratio}:1 over 1:1, {job.size} placed {placed}"
        yield Row(name, 1, over[ratio], "x", 0.01, RULE, f"within 1 % up to {within}:1",
                  refuted=over[ratio] > 1.01)  # fmt: skip


def with_servers(fabric: Network, adapters: np.ndarray) -> Network:
    """Return a fabric with DGX H100 in front of its adapters, (servers, 8)."""
    return topologies.attach_servers(fabric, hardware.server("dgx-h100"), adapters)


def seconds(job: Job, net: Network, placed: str, routing: str) -> float:
    """Return the time of a step."""
    report = fb.step(
        net, fb.Model.listed(job.model), job.layout, _placement(job, net, placed), routing=routing,
        by=None, allow_infeasible=True,
    )  # fmt: skip
    return float(report.step_time)


def _placement(job: Job, net: Network, placed: str) -> Placement | None:
    if placed == "in order":
        return None
    order = np.random.default_rng(0).permutation(job.servers)
    return Placement(net.hosts.reshape(job.servers, 8)[order].ravel())


def _counted(fabric: Network) -> tuple[int, int]:
    """Return switches, and cables between them."""
    labels = fabric.labels
    switch = ~labels.is_kind("nic")
    return int(switch.sum()), int((switch[labels.src] & switch[labels.dst]).sum()) // 2


def savings(smoke: bool) -> Iterator[Row]:
    """Yield switches that rails alone save against a non-blocking Clos, by size."""
    low, high = 0.38, 0.77
    middle, half = (low + high) / 2, (high - low) / 2
    for gpus in (1024,) if smoke else (1024, 8192, 65_536):
        tiers = 2 if gpus <= RADIX**2 // 2 else 3
        whole = topologies.sizes("clos", hosts=gpus, radix=RADIX, tiers=tiers)
        alone = topologies.sizes("rail_only", servers=gpus // 8, rails=8, radix=RADIX)
        saved = 1 - alone.switches / whole.switches
        note = f"quoted: 38 to 77 % of cost; {whole.switches:,} switches against {alone.switches:,}"
        if saved < low:
            note += ". Rails alone save where they take a tier less, and here both take two"
        yield Row(f"A55 switches that rails alone save, {gpus:,} GPUs", middle, saved, "",
                  half / middle, RAIL_ONLY, note, refuted=saved < low)  # fmt: skip
