"""What NCCL takes for its own choice: latencies, protocols and shares of links, with sources.

References:
    NVIDIA/nccl 2.30.7, src/graph/tuning.cc (latencies, protocols, efficiencies) and
    src/graph/topo.h (link bandwidths).
"""

import dataclasses
import math
from dataclasses import dataclass

from fabric._evidence import Evidence
from fabric.hardware import Collectives

PROTOCOLS = ("LL", "LL128", "Simple")
"""LL sends 4 bytes with a flag of 4 each, LL128 120 with 8; Simple sends chunks."""

BASE = {
    "ring": {"LL": 6.6e-6, "LL128": 14.0e-6, "Simple": 8.4e-6},
    "tree": {"LL": 6.8e-6, "LL128": 14.0e-6, "Simple": 8.4e-6},
}
"""Seconds per call, by algorithm and protocol."""

STEP = {
    "nvlink": {
        "ring": {"LL": 0.6e-6, "LL128": 1.9e-6, "Simple": 3.4e-6},
        "tree": {"LL": 0.6e-6, "LL128": 1.25e-6, "Simple": 4.0e-6},
    },
    "pcie": {
        "ring": {"LL": 1.0e-6, "LL128": 2.5e-6, "Simple": 5.7e-6},
        "tree": {"LL": 1.0e-6, "LL128": 1.9e-6, "Simple": 4.0e-6},
    },
    "net": {
        "ring": {"LL": 2.7e-6, "LL128": 4.0e-6, "Simple": 14.0e-6},
        "tree": {"LL": 5.0e-6, "LL128": 8.5e-6, "Simple": 14.0e-6},
    },
}
"""Seconds per step, by what it crosses, algorithm and protocol."""

NVLS, NVLS_TREE_HOP = 25.0e-6, 20.9e-6
"""Seconds of an all-reduce in the NVSwitch, and of each level of a tree between such."""

LEAST_STEP = {"LL": 1.0e-6, "LL128": 1.0e-6, "Simple": 3.0e-6}
"""Seconds: no step inside a server is shorter where a ring also leaves it."""

NVLS_RANKS = 5
"""Fewest ranks for which NCCL reduces in the NVSwitch (NVIDIA/nccl issue 1455)."""

PAIRS = Evidence(
    0.88, "measured", "all-to-all of 8 GPUs: 210, 320 and 640 GB/s of the 240, 371 and 722 of a "
    "ring on A100, H100 and B200 (NVIDIA GTC25 session S72583)",
)  # fmt: skip
"""Share of the bandwidth of a ring that an all-to-all inside a server reaches."""


@dataclass(frozen=True)
class Generation:
    """One generation of GPUs.

    Attributes:
        name: For example "hopper".
        link: Share of the nominal rate of NVLink that a large message reaches.
        most: byte/s, bus bandwidth that LL does not exceed on 1, 2, and 3 or more servers.
        tree: byte/s of one channel of a tree on 2, and on 3 or more servers.
        nvls: Share of `link` that a reduction in the switch reaches; 0: the switch has none.
        ramp: Whether LL fills its pipeline as slowly as the others. 8 H100 reduce 512 KiB in
            20.7 us, which leaves no room for it; A100 need it.
    """

    name: str
    link: Evidence
    most: tuple[float, float, float]
    tree: tuple[float, float]
    nvls: float
    ramp: bool


def _generation(
    name: str,
    share: float,
    most: tuple[float, float, float],
    tree: tuple[float, float],
    nvls: float = 0.0,
    ramp: bool = True,
) -> Generation:
    source = f"link bandwidth that NCCL reckons with on {name}, src/graph/topo.h"
    return Generation(name, Evidence(share, "preset", source), most, tree, nvls, ramp)


# Of several servers LL is limited by the host: Intel in DGX H100 and B200, AMD in DGX A100. From
# Hopper on a network adapter has two channels, so twice what the table of NCCL has for one.
_GENERATIONS = {
    "volta": _generation("volta", 20.0 / 25, (39.0e9, 39.0e9, 20.4e9), (18.5e9, 10.0e9)),
    "ampere": _generation("ampere", 20.0 / 25, (87.7e9, 22.5e9, 19.0e9), (23.6e9, 17.8e9)),
    "hopper": _generation(
        "hopper", 20.6 / 25, (141.0e9, 39.0e9, 20.4e9), (82.8e9, 72.0e9), 0.85, False
    ),
    "blackwell": _generation(
        "blackwell", 40.1 / 50, (282.0e9, 39.0e9, 20.4e9), (85.6e9, 48.0e9), 0.74, False
    ),
}
_CDNA = Generation(
    "cdna3",
    Evidence(
        0.70, "measured", "RCCL all-reduce on 8 MI300X: 312.9 of 448 GB/s (stas00/ml-engineering)"
    ),
    (math.inf, math.inf, math.inf),
    (math.inf, math.inf),
    0.0,
    True,
)
_UNKNOWN = dataclasses.replace(
    _CDNA, name="unknown", link=Evidence(1.0, "assumed", "links inside servers are nominal")
)
_NAMES = {
    "v100": "volta", "a100": "ampere", "a800": "ampere", "h100": "hopper", "h800": "hopper",
    "h200": "hopper", "h20": "hopper", "gh200": "hopper", "b200": "blackwell",
    "b300": "blackwell", "gb200": "blackwell", "gb300": "blackwell",
}  # fmt: skip


def generation(gpu: str | None) -> Generation:
    """Return the generation of a GPU by the name it has in the catalogue.

    Examples:
        >>> generation("h100-sxm").name, generation(None).name
        ('hopper', 'unknown')
    """
    family = (gpu or "").partition("-")[0]
    if family == "mi300x":
        return _CDNA
    return _GENERATIONS[_NAMES[family]] if family in _NAMES else _UNKNOWN


_TESTS = "published nccl-tests runs of {}"
TYPICAL = Collectives(
    latency_scale=Evidence(1.05, "fitted", _TESTS.format("8 H100 and 8 H200 in one server")),
    gamma=Evidence(0.775, "fitted", _TESTS.format("8 H100 in one server, 64 MiB to 16 GiB")),
    bus_scale=Evidence(1.0, "assumed", "as NCCL reckons"),
    nic_fraction=Evidence(
        0.96, "measured", "192 of 200 GB/s on two DGX A100 (NVIDIA/nccl issue 1576), 48 to 49 of "
        "50 GB/s of one adapter (NVIDIA/nccl-tests issue 267)", 0.92, 0.98,
    ),
    net_latency_scale=Evidence(
        1.45, "measured", "8 A100 a server at 1 KiB: 1.4 to 1.5 times NCCL's tables, which leave "
        "out the way through switches", 1.4, 1.5,
    ),
)  # fmt: skip
"""Where no profile is given."""
