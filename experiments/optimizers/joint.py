"""Layout, placement and routing together on what is left of a fabric, beside one after the other.

GPUs are on servers that others left free, listed as they became free, and some cables between
leaves and spines have failed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import fabric as fb
from experiments.optimizers.limits import at_most
from experiments.rows import Row
from fabric import hardware, optimize
from fabric.network import Network

GPUS = 8  # of a server


class Left(NamedTuple):
    """What is left: the fabric with its failed cables, and the GPUs of the free servers."""

    network: Network
    gpus: list[int]


def leaf_spine(leaves: int, spines: int, servers: int, failed: float, seed: int) -> Left:
    """Return what is left of a fabric of eight servers a leaf, all adapters of one on it."""
    nics = fb.topologies.leaf_spine(leaves, spines, 8 * GPUS, cables_per_pair=2)
    return _left(nics, servers, failed, seed)


def rails(units: int, servers: int, failed: float, seed: int) -> Left:
    """Return what is left of a rail-optimized fabric, 4:1 above the leaves, 16 servers a unit."""
    nics = fb.topologies.rail_optimized(
        servers=16 * units, radix=32, leaf_down=16, leaf_up=4, spines=4, servers_per_unit=16
    )
    return _left(nics, servers, failed, seed)


def _left(nics: Network, servers: int, failed: float, seed: int) -> Left:
    rng = np.random.default_rng(seed)
    net = fb.topologies.attach_servers(
        nics, hardware.server("dgx-h100"), nics.hosts.reshape(-1, GPUS)
    )
    labels = net.labels
    up = np.flatnonzero(labels.tier_of == labels.tiers.index("leaf-spine"))
    down = rng.choice(np.unique(labels.cable_of[up]), round(failed * len(up) / 2), False)
    net = net.with_alive(~np.isin(labels.cable_of, down) & np.asarray(net.alive))
    free = np.sort(rng.choice(len(net.hosts) // GPUS, servers, False))
    # As a scheduler lists them: in the order in which they became free.
    return Left(net, net.hosts.reshape(-1, GPUS)[rng.permutation(free)].ravel().tolist())


def rows(smoke: bool) -> list[Row]:
    """Return the rows; with `smoke` 64 GPUs."""
    if smoke:
        one = leaf_spine(3, 4, 8, 0.2, 0)
        return list(_rows("64 GPUs on fragments, seed 0", one, "llama-3.1-8b", 64, 8192, True))
    found: list[Row] = []
    for seed in (0, 1):
        one = leaf_spine(20, 4, 128, 0.25, seed)
        called = f"1,024 GPUs on fragments, seed {seed}"
        found += _rows(called, one, "gpt-3-175b", 1536, 2048)
    one = rails(3, 32, 0.2, 0)
    found += _rows("256 GPUs on three units of rails", one, "llama-3.1-70b", 512, 8192)
    return found


def _rows(
    called: str, left: Left, model: str, gbs: int, seq: int, smoke: bool = False
) -> Iterator[Row]:
    one = optimize.joint(
        left.network, fb.Model.listed(model), gbs=gbs, seq=seq, allocation=left.gpus,
        limits={"vpp": 1, "cp": 1}, swaps=60 if smoke else 1500,
    )  # fmt: skip
    note = (
        f"best layout for servers as listed, sprayed, {one.before:.5g} s; {one.layout}; no layout "
        f"beats {one.bound:.5g} s; {one.evaluations:,} scores; {one.seconds:.0f} s"
    )
    for name, limit, source in (
        ("", one.apart, "layout, then placement, then routing, with as many scores"),
        (" without gradients", one.control, "layouts with random swaps, sprayed"),
    ):
        # Of one small case no more than that it runs: both may find the optimum.
        limit *= 1.001 if smoke else 1.0
        yield at_most(
            f"layout x placement x routing{name}: {called}", limit, one.objective, "s", source, note
        )
