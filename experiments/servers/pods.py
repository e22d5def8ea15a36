"""256 H100 on two stages of NVLink switches, and four such pods on InfiniBand."""

from dataclasses import replace

import numpy as np

from fabric import hardware, topologies
from fabric.hardware import Server
from fabric.network import Blueprint, Network

SERVERS, GPUS = 32, 8
CABLES = (5, 4, 4, 5)
"""NVLinks from a GPU to each chip of its server."""
UPLINKS = (20, 16, 16, 20)
"""NVLinks from each chip of a server to the second stage: half as many as to its GPUs."""
TOPS = 36
"""Chips of the second stage; each has two cables to every server."""


def two_stages(servers: int = SERVERS) -> Network:
    """Return the pod with both stages of switches and every cable.

    Args:
        servers: Of 8 GPUs, at most 32.

    References:
        A. Ishii and R. Wells, The NVLink-Network Switch, Hot Chips 34 (2022).
    """
    rate = hardware.switch("nvswitch3").rate.value
    plan = Blueprint()
    gpu = plan.nodes("gpu", "server{}-gpu{}", (servers, GPUS))
    chip = plan.nodes("nvswitch", "server{}-nvswitch{}", (servers, len(CABLES)))
    top = plan.nodes("nvswitch", "top{}", (TOPS,))
    for i, cables in enumerate(CABLES):
        plan.cables("nvlink", gpu, chip[:, i, None], rate, parallel=cables)
    below = np.repeat(np.arange(len(CABLES)), np.array(UPLINKS) // 2)
    plan.cables("nvlink-network", chip[:, below], top, rate, parallel=2)
    return plan.network(f"{servers} servers of 8 H100 on NVLink switches")


def one_stage(gpus: int) -> Server:
    """Return a server of so many H100 on 18 chips, an adapter to each GPU.

    It is the pod as collectives see it: one NVLink domain with the full rate between any two GPUs.
    """
    every = tuple(range(gpus))
    return replace(
        hardware.server("dgx-h100"), name=f"pod-of-{gpus}", n_gpus=gpus, chips=(1,) * 18,
        pcie_of_gpu=every, pcie_of_nic=every, socket_of_pcie=every, n_nics=gpus, nic_of_gpu=every,
        kind="assumed", source="18 NVLinks of an H100, each to a chip that reaches all GPUs",
    )  # fmt: skip


def pods(count: int, gpus: int = SERVERS * GPUS) -> Network:
    """Return pods of one stage, their adapters on a fabric of NDR in rails."""
    fabric = topologies.rail_optimized(servers=count * gpus // 8, rails=8, radix=64)
    return topologies.attach_servers(fabric, one_stage(gpus), fabric.hosts.reshape(count, gpus))
