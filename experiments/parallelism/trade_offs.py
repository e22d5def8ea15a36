"""A30 to A33: what bandwidth, domains, groups and overlap do to the time of a step."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import fabric as fb
from experiments.parallelism.measure import NARAYANAN, RULE, servers, stepped, with_nics
from experiments.rows import Row
from experiments.servers.pods import pods
from fabric import collectives, hardware, optimize, topologies
from fabric.collectives import all_reduce, bus_factor
from fabric.hardware import Profile
from fabric.training import StepReport, parameters_of_stage

GB = 1e9
VTRAIN = "J. Bang et al., vTrain (MICRO 2024), measured runs: 3.6B on 64 A100, microbatch 32 and 16"

# A30


def implied(efficiency: float, bandwidth: float, size: float = 10 * GB) -> float:
    """Return the compute time at which an all-reduce that nothing hides leaves this efficiency."""
    return efficiency / (1 - efficiency) * size / bandwidth


class Exposed:
    """GPT-3 175B on 256 H100 in 4 replicas, its gradients reduced with nothing to hide them."""

    def __init__(self) -> None:
        base = hardware.profile("megatron-core-h100")
        self.profile = base.with_values({"stack.dp_overlap": False, "jitter_per_doubling": 0.0})
        self.net = servers("dgx-h100", 32)
        self.gbs = min(range(64, 513, 64), key=lambda gbs: abs(self._rest(gbs) - implied(0.7, 5e9)))

    def step(self, gbs: int, bandwidth: float) -> StepReport:
        """Return a step with so many byte/s of all-reduce (size over time)."""
        nic = hardware.nic("cx7").rate.value * self.profile.efficiency.nic.value
        factor = bandwidth * bus_factor("all_reduce", 4) / nic
        words = f"tp8 sp pp8 dp4 mb1 gbs{gbs} seq2048"
        return stepped("gpt-3-175b", words, with_nics(self.net, factor), self.profile)

    def _rest(self, gbs: int) -> float:
        parts = self.step(gbs, 20 * GB).parts
        return float(parts.step - parts.dp)

    def efficiency(self, bandwidth: float) -> float:
        """Return the share of the step that is not the all-reduce."""
        parts = self.step(self.gbs, bandwidth).parts
        return float(1 - parts.dp / parts.step)


def scaling(bandwidths: Sequence[float]) -> tuple[list[Row], dict[str, Any]]:
    """Return A30: the implied time, and the curve of a real step of that length."""
    case = Exposed()
    layout = fb.Layout.parse("tp8 sp pp8 dp4 gbs64 seq2048")
    model = fb.Model.listed("gpt-3-175b")
    buffer = 4 * parameters_of_stage(model, layout, 3)
    one, other = implied(0.7, 5 * GB), implied(0.9, 20 * GB)
    net = servers("dgx-h100", 16)
    rail = net.hosts.reshape(-1, 8)[:, 0]
    reached = float(all_reduce(net, rail, 10 * GB, algorithm="ring").algbw)
    rows = [
        Row("A30 GPT-3 175B tp8 pp8, gradients of a GPU", 10, buffer / GB, "GB", 0.1, RULE,
            "2.7 billion parameters in FP32"),
        Row("A30 compute time that 70 % and 90 % imply", one, other, "s", 0.05, RULE,
            "70 % at 5 GB/s and 90 % at 20 GB/s agree"),
        Row("A30 efficiency at 5 GB/s", 0.7, case.efficiency(5 * GB), "", 0.05, RULE,
            f"a step of {case.gbs} sequences on 256 H100, so that it computes for that time"),
        Row("A30 efficiency at 20 GB/s", 0.9, case.efficiency(20 * GB), "", 0.05, RULE),
        Row("A30 bus bandwidth of 20 GB/s, 1,024 ranks", 40, 20 * bus_factor("all_reduce", 1024),
            "GB/s", 0.01, RULE),
        Row("A30 all-reduce that fills a NIC of 400 Gb/s", 20, reached / GB, "GB/s", 0, RULE,
            "10 GB over 16 servers; 20 GB/s leave a fifth of the NIC idle", refuted=True),
    ]  # fmt: skip
    summary: dict[str, Any] = {
        "A30 sequences of a step with that time": case.gbs,
        "A30 all-reduce, GB/s": [b / GB for b in bandwidths],
        "A30 efficiency": [round(case.efficiency(b), 4) for b in bandwidths],
    }
    return rows, summary


# A31


def cliff(smoke: bool) -> tuple[list[Row], dict[str, Any]]:
    """Return A31: exchanges of a layer and throughput as tensor parallelism leaves NVLink."""
    sizes = (8, 16) if smoke else (4, 8, 16, 32, 64)
    domains = {"dgx-h100": servers("dgx-h100", 8)}
    if not smoke:
        domains["h100-256"] = pods(1)
    summary: dict[str, Any] = {"A31 tensor parallel": list(sizes)}
    for name, net in domains.items():
        steps = {t: _split(net, t) for t in sizes}
        summary[f"A31 tokens/s per GPU, {name}"] = [
            round(r.tokens_per_s / r.gpus_used, 1) for r in steps.values()
        ]
        summary[f"A31 ms an exchange, {name}"] = [
            round(1e3 * r.phases[0].seconds, 3) for r in steps.values()
        ]
    rows = list(_reach(smoke))
    shares = (1.0, 0.5, 0.25, 0.125)
    by_rate = [_slower(with_nics(domains["dgx-h100"], share)) for share in shares]
    summary["A31 NIC, Gb/s"] = [400 * share for share in shares]
    summary["A31 exchange, tp 16 over tp 8, by NIC"] = [round(x, 3) for x in by_rate]
    rows.append(
        Row(
            "A31 exchange, tp 16 over tp 8, 8 NICs of 400 Gb/s",
            9,
            by_rate[0],
            "x",
            0,
            RULE,
            "NVLink over NIC is 9, but a ring leaves a server through all eight NICs at once: 400 "
            "of 450 GB/s. What falls is the work per exchange, inside NVLink as well",
            refuted=True,
        )
    )
    # Four adapters of a server, from memory: 800 Gb/s of InfiniBand HDR.
    few = _few_nics(4)
    slower = _measured(few, 16, 16).step_time / _measured(few, 8, 32).step_time
    rows.append(
        Row("A31 step, tp 16 over tp 8, 4 NICs of 200 Gb/s", 10.7193 / 4.9723, slower, "x", 0.1,
            VTRAIN, "assumed: four HDR adapters per server")
    )  # fmt: skip
    all_nics = servers("dgx-a100", 8)
    summary["A31 step, tp 16 over tp 8, 8 NICs of 200 Gb/s"] = (
        _measured(all_nics, 16, 16).step_time / _measured(all_nics, 8, 32).step_time
    )
    return rows, summary


def _slower(net: fb.Network) -> float:
    """Return the time of an exchange over 16 GPUs, over that of one over 8."""
    one, two = (_split(net, tp).phases[0].seconds for tp in (8, 16))
    return two / one


def _split(net: fb.Network, tp: int) -> StepReport:
    words = f"tp{tp} sp dp{64 // tp} zero1 mb1 gbs64 seq8192 recompute=full"
    return stepped("llama-3.1-405b", words, net)


def _reach(smoke: bool) -> Iterator[Row]:
    """Yield the largest group, in powers of two, that does not leave its NVLink domain."""
    cases = {"dgx-h100": (8, servers("dgx-h100", 4))}
    if not smoke:
        racks = topologies.cluster("gb200-nvl72", nodes=4, leaves=16, spines=8)
        cases |= {"gb200-nvl72": (64, racks), "256 H100": (256, pods(2))}
    for name, (quoted, net) in cases.items():
        size = 2
        while size < len(net.hosts) and _inside(net, net.hosts[: 2 * size]):
            size *= 2
        note = "in powers of two" * (name == "gb200-nvl72")
        yield Row(f"A31 largest group on NVLink, {name}", quoted, size, "", 0, RULE, note)


def _inside(net: fb.Network, gpus: np.ndarray) -> bool:
    """Return whether a ring over these GPUs stays on NVLink."""
    flows = collectives.ring(gpus[None, :], net.labels.tags["server"]).flows
    routes = fb.routing.spray(net, flows)
    parts = np.asarray(routes.part_link if routes.n_parts else routes.hop_bundle)
    used = np.unique(parts[parts < net.n_links])
    return bool(net.labels.is_tier("nvlink")[used].all())


def _few_nics(count: int) -> fb.Network:
    """Return 8 servers with 8 A100 on so many adapters."""
    every = hardware.server("dgx-a100")
    server = replace(
        every, name=f"a100-{count}-nics", n_nics=count, pcie_of_nic=tuple(range(count)),
        nic_of_gpu=tuple(gpu * count // 8 for gpu in range(8)), kind="assumed",
        source="DGX A100 with an adapter per PCIe switch",
    )  # fmt: skip
    fabric = topologies.leaf_spine(leaves=2, spines=10, hosts_per_leaf=16, capacity="200Gb/s")
    return topologies.attach_servers(fabric, server, fabric.hosts.reshape(8, count))


def _measured(net: fb.Network, tp: int, mb: int) -> StepReport:
    hidden = 3072
    model = replace(
        fb.Model.listed("megatron-22b"), name="gpt-3.6b", layers=30, hidden=hidden, heads=32,
        kv_heads=32, head_dim=hidden // 32, ffn=4 * hidden,
    )  # fmt: skip
    words = f"tp{tp} dp{64 // tp} mb{mb} gbs512 seq2048 fp16 recompute=full"
    return stepped(model, words, net)


# A32


def optimum(smoke: bool) -> tuple[list[Row], dict[str, Any]]:
    """Return A32: the fastest layout that fits for every data-parallel size, GPUs fixed."""
    gpus = 16 if smoke else 128
    model = "llama-3.1-8b" if smoke else "llama-3.1-70b"
    net = servers("dgx-h100", gpus // 8)
    best: dict[int, tuple[float, str]] = {}
    for layout in layouts(model, gpus, mbs=(1,) if smoke else (1, 2, 4)):
        report = stepped(model, layout, net)
        if report.memory.verdict == "does not fit":
            continue
        found = (report.tokens_per_s, str(report.layout))
        best[report.layout.dp] = max(found, best.get(report.layout.dp, found))
    sizes = sorted(best)
    top = max(sizes, key=lambda dp: best[dp][0])
    inner = float(sizes[0] < top < sizes[-1])
    rows = []
    # The search looks at all layouts that suit and fit, those of the list among them.
    found = optimize.layout(net, fb.Model.listed(model), gbs=gpus, seq=4096, top=1)
    chosen, most = found.best.layout.dp, max(one.dp for one in found.space.degrees)
    if not smoke:
        rows += [
            Row(f"A32 {model} on {gpus} GPUs, optimum inside", 1, inner, "yes", 0, RULE,
                f"dp{top} of {', '.join(f'dp{dp}' for dp in sizes)} that fit; gbs 128"),
            Row(f"A32 {model} on {gpus} GPUs, found by search", 1, float(1 < chosen < most), "yes",
                0, RULE, f"dp{chosen} of up to dp{most} with ZeRO and virtual stages too, proved "
                f"with {found.evaluations} of {found.legal:,} layouts scored exactly; "
                f"{found.best.tokens_per_s / best[top][0]:.2f} times the best of the list"),
        ]  # fmt: skip
    return rows, {
        "A32 data parallel": sizes,
        "A32 tokens/s": [round(best[dp][0]) for dp in sizes],
        "A32 best layout": best[top][1],
    }


def layouts(model: str, gpus: int, mbs: Sequence[int]) -> Iterator[str]:
    """Yield every way to cut a model over the GPUs, a batch of as many sequences."""
    shape = fb.Model.listed(model)
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 4, 8, 16):
            dp, rest = divmod(gpus, tp * pp)
            if rest or shape.layers % pp:
                continue
            for mb in mbs:
                if gpus % (mb * dp) == 0:
                    sp = "sp " * (tp > 1)
                    yield f"tp{tp} {sp}pp{pp} dp{dp} zero1 mb{mb} gbs{gpus} seq4096"


# A33


def overlap(smoke: bool) -> tuple[list[Row], dict[str, Any]]:
    """Return A33: how far NICs may slow down before a step takes 1 % longer."""
    base = hardware.profile("megatron-core-h100")
    profiles = {
        what: base.with_values({"stack.dp_overlap": hides})
        for what, hides in (("with overlap", True), ("without", False))
    }
    microbatches = (1,) if smoke else (1, 2, 4, 8)
    least = {
        what: [round(_least_nic(profile, mb, smoke), 3) for mb in microbatches]
        for what, profile in profiles.items()
    }
    exposed, hidden = _overlapped(1.0, base, 1, smoke).seconds_of("dp")
    rows = [
        Row("A33 share of data-parallel traffic that overlap hides", 1, hidden / (exposed + hidden),
            "", 0.1, NARAYANAN, "not the last bucket (assumed: 5 %), nor what outlasts the last "
            "backward pass of a stage"),
    ]  # fmt: skip
    factors = (1.0, 0.5, 0.25) if smoke else (2.0, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.125)
    times = [_overlapped(x, base, 1, smoke).step_time for x in factors]
    return rows, {
        "A33 microbatch": list(microbatches),
        **{f"A33 share of the NIC at + 1 %, {what}": shares for what, shares in least.items()},
        "A33 share of the NIC": list(factors),
        "A33 step time, s": [round(t, 4) for t in times],
    }


def _overlapped(factor: float, profile: Profile, mb: int, smoke: bool) -> StepReport:
    model, words, nodes = (
        ("llama-3.1-8b", "tp8 sp dp2 gbs16", 2)
        if smoke
        else ("llama-3.1-70b", "tp8 sp pp4 dp4 gbs128", 16)
    )
    net = with_nics(servers("dgx-h100", nodes), factor)
    return stepped(model, f"{words} zero1 mb{mb} seq8192", net, profile)


def _least_nic(profile: Profile, mb: int, smoke: bool) -> float:
    """Return the share of the NIC's rate at which a step takes 1 % longer, to 1 %."""
    limit = 1.01 * _overlapped(1.0, profile, mb, smoke).step_time
    low, high = 0.0, 1.0
    while high - low > 0.01:
        middle = (low + high) / 2
        slow = _overlapped(middle, profile, mb, smoke).step_time > limit
        low, high = (middle, high) if slow else (low, middle)
    return high
