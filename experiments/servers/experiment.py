"""Are the bandwidths true that are quoted of GPUs, servers and NVLink domains?

A10 to A14. Bandwidths are measured: flows are routed over the built network and get max-min fair
rates. All rates are nominal, but those of collectives, which NCCL's tables give.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

import fabric as fb
from experiments.rows import Result, Row
from experiments.servers.pods import GPUS, SERVERS, pods, two_stages
from fabric import hardware
from fabric.collectives import all_reduce
from fabric.network import Flows, Network

GB, TB = 1e9, 1e12
BITS = 8e-9
"""Gb/s of a byte/s."""

NVLINK = "NVIDIA A100, H100 and H800 datasheets: NVLink, both directions summed"
PCIE = "PCI-SIG, PCI Express 5.0: 32 GT/s a lane, 16 lanes, both directions"
HOT_CHIPS = "A. Ishii and R. Wells, The NVLink-Network Switch, Hot Chips 34 (2022)"
DGX = "NVIDIA DGX A100 and DGX H100 user guides"
GH200 = "NVIDIA GH200 NVL32 announcement"
RULE = "a rule of planning guides, no document named"
DGXC = "NVIDIA/dgxc-benchmarking, nccl/README.md: 8 H100, out of place"
ISSUE = "NVIDIA/nccl issue 1455: ring on DGX H100, 365 to 370 GB/s"

SIZES = [2**p for p in range(10, 35)]


def run(smoke: bool = False) -> Result:
    """Return every row; with `smoke` the NVLink pod has two servers and only one pod is joined."""
    rows = [*links(), *adapters(), *domains(smoke)]
    switched, summary = in_switches(smoke)
    notes = [
        "The rate of PCIe is before encoding (128b/130b takes 1.5 %) and without headers.",
        "A reduction inside two stages of NVLink switches, and one inside InfiniBand switches "
        "(SHARP), are not modelled: A14 is NVLink SHARP inside a server and trees between servers.",
    ]
    return Result([*rows, *switched], summary, notes)


def rates(network: Network, src: ArrayLike, dst: ArrayLike) -> np.ndarray:
    """Return byte/s of flows that run at once, sprayed over all shortest ways."""
    routes = fb.routing.spray(network, Flows(np.atleast_1d(src), np.atleast_1d(dst)))
    solution = fb.max_min_rates(network, routes)
    return np.asarray(routes.per_flow(np.asarray(solution.rates)))


def links() -> Iterator[Row]:
    """Yield A10: what leaves a GPU, measured from one to the next and back, and the parts."""
    for name, count, quoted in (
        ("dgx-a100", 12, 600), ("dgx-h100", 18, 900), ("dgx-h800", 8, 400)
    ):  # fmt: skip
        server = fb.topologies.cluster(name, nodes=1)
        record = hardware.server(server.labels.about["server"])
        both = float(rates(server, server.hosts[:2], server.hosts[1::-1]).sum())
        note = "from memory" if name == "dgx-h800" else ""
        yield Row(f"A10 {name}, NVLinks", count, record.links_per_gpu, "", 0, NVLINK)
        yield Row(f"A10 {name}, GPU and GPU", quoted, both / GB, "GB/s", 1e-9, NVLINK, note)
    server = fb.topologies.cluster("dgx-h100", nodes=1)
    lanes = np.asarray(server.capacity)[server.labels.is_tier("pcie")]
    yield Row("A10 PCIe 5 x16, both ways", 128, 2 * float(lanes.min()) / GB, "GB/s", 0.02, PCIE)
    chip = hardware.switch("nvswitch3")
    yield Row("A10 NVSwitch 3, ports", 64, chip.ports, "", 0, HOT_CHIPS)
    yield Row("A10 NVSwitch 3, each way", 1.6, chip.capacity / TB, "TB/s", 1e-9, HOT_CHIPS)


def adapters() -> Iterator[Row]:
    """Yield A11 and A12: from server to server, one GPU and all eight at once."""
    nets = {name: fb.topologies.cluster(name, nodes=2) for name in ("dgx-a100", "dgx-h100")}
    alone = {name: float(rates(net, net.hosts[0], net.hosts[8])[0]) for name, net in nets.items()}
    h100 = nets["dgx-h100"]
    inside = float(rates(h100, h100.hosts[0], h100.hosts[1])[0])
    yield Row("A11 NVLink over NIC, H100", 9, inside / alone["dgx-h100"], "x", 1e-9, DGX)
    for name, one, quoted in (("dgx-a100", 200, 1.6), ("dgx-h100", 400, 3.2)):
        gpus = nets[name].hosts
        every = float(rates(nets[name], gpus[:8], gpus[8:]).sum())
        yield Row(f"A12 {name}, GPU to another server", one, alone[name] * BITS, "Gb/s", 1e-9, DGX)
        yield Row(f"A12 {name}, 8 GPUs to another", quoted, every * BITS / 1e3, "Tb/s", 1e-9, DGX)


def domains(smoke: bool) -> Iterator[Row]:
    """Yield A13: a ring over all GPUs, both halves against each other, and pods together."""
    servers = 2 if smoke else SERVERS
    net = two_stages(servers)
    for name, domain, whole, source in (
        ("8 H100", two_stages(1), GPUS, HOT_CHIPS),
        (f"{servers * GPUS} H100", net, servers * GPUS, HOT_CHIPS),
        ("32 GH200", _nvl32(), 32, GH200),
    ):
        gpus = domain.hosts
        rate = float(rates(domain, gpus, np.roll(gpus, -1)).min())
        yield Row(f"A13 {name}, GPUs", whole, len(gpus), "", 0, source)
        yield Row(f"A13 {name}, ring all-reduce", 450, rate / GB, "GB/s", 1e-9, source)
    across = rates(net, net.hosts, np.roll(net.hosts, len(net.hosts) // 2))
    yield Row(
        f"A13 {servers * GPUS} H100, each to another server", 225, float(across.min()) / GB,
        "GB/s", 1e-9, HOT_CHIPS,
        "the ring keeps 450 GB/s since one GPU in eight sends to another server; when all do, they "
        "share half as many cables as there are inside",
    )  # fmt: skip
    yield Row(
        f"A13 {servers * GPUS} H100, halves exchange", 57.6 * servers / SERVERS,
        float(across.sum()) / TB, "TB/s", 1e-9, f"{HOT_CHIPS}: all-to-all bandwidth",
        "both directions summed: the one-way cut is half of it",
    )  # fmt: skip
    joined = pods(1 if smoke else 4)
    count = 256 if smoke else 1000
    yield Row("A13 GPUs of pods on NDR", count, len(joined.hosts), "", 0.03, RULE)


def _nvl32() -> Network:
    fabric = fb.topologies.single_switch(32)
    server = hardware.server("gh200-nvl32")
    return fb.topologies.attach_servers(fabric, server, fabric.hosts[None, :])


def in_switches(smoke: bool) -> tuple[list[Row], dict[str, object]]:
    """Return A14: all-reduce in the NVSwitch against a ring, by size."""
    net = fb.topologies.cluster("dgx-h100", nodes=2 if smoke else 16)
    sizes = SIZES[::4] if smoke else SIZES
    one = all_reduce(net, net.hosts[:8], sizes)
    gain = one.alternatives["ring"] / one.alternatives["nvls"]
    ring = float(one.busbw[-1] * one.time[-1] / one.alternatives["ring"][-1]) / GB
    many = all_reduce(net, None, sizes)
    others = np.minimum(many.alternatives["ring"], many.alternatives["tree"])
    gain_many = others / many.alternatives["nvls-tree"]
    nvls = float(one.busbw[-1] * one.time[-1] / one.alternatives["nvls"][-1]) / GB
    rows = [
        Row("A14 8 H100, 16 GiB, ring", 367.5, ring, "GB/s", 0.05, ISSUE),
        Row("A14 8 H100, 16 GiB, in the switch", 479.9, nvls, "GB/s", 0.05, DGXC),
        Row("A14 gain in the switch, 16 GiB", 479.9 / 367.5, float(gain[-1]), "x", 0.05, DGXC,
            "a ring sends 7/4 of the message each way, the switch 9/8: 1.56 x at most"),
    ]  # fmt: skip
    first = lambda ratio: next((s for s, r in zip(sizes, ratio, strict=True) if r > 1), None)
    summary: dict[str, object] = {
        "A14 sizes": sizes,
        "A14 gain in the switch by size, 8 GPUs": [round(x, 3) for x in gain.tolist()],
        f"A14 gain in the switches by size, {many.n_ranks} GPUs": [
            round(x, 3) for x in gain_many.tolist()
        ],
        "A14 first size with a gain, 8 GPUs": first(gain),
        f"A14 first size with a gain, {many.n_ranks} GPUs": first(gain_many),
    }
    return rows, summary
