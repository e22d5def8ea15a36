"""A50: rails, or all adapters of a server on one leaf: who meets on uplinks, and what a leaf takes.

Rings of data parallelism join the GPUs of one number in every server of a group.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

import fabric as fb
from experiments.rows import Row
from fabric import hardware, reliability, topologies
from fabric.network import Flows, Network

RULE = "a rule of planning guides, no document named"
COUNTED = "counted: 8 adapters on 8 leaves, or on one"
SERVERS, GROUP = 128, 32
"""Servers, and those of a group: a scalable unit of a DGX SuperPOD."""
DRAWS = 50


@cache
def fabrics() -> dict[str, Network]:
    """Return 1,024 H100 on 32 leaves of 64 ports, their servers in rails and each on one leaf."""
    rails = topologies.rail_optimized(servers=SERVERS, radix=64)
    packed = topologies.clos(hosts=8 * SERVERS, radix=64)
    return {
        name: topologies.attach_servers(
            net, hardware.server("dgx-h100"), net.hosts.reshape(SERVERS, 8)
        )
        for name, net in (("rails", rails), ("one leaf", packed))
    }


def rings(network: Network, order: np.ndarray) -> Flows:
    """Return rings over groups of servers in an order, one for every GPU number."""
    gpus = network.hosts.reshape(SERVERS, 8)[order].reshape(-1, GROUP, 8)
    return Flows(gpus.ravel(), np.roll(gpus, -1, axis=1).ravel())


def orders(seed: int) -> dict[str, np.ndarray]:
    """Return servers in order, in a random order within their units, and drawn from everywhere."""
    rng = np.random.default_rng(seed)
    unit = np.arange(SERVERS).reshape(-1, GROUP)
    return {
        "in order": unit.ravel(),
        "units in random order": rng.permuted(unit, axis=1).ravel(),
        "anywhere": rng.permutation(SERVERS),
    }


class Measured:
    """Hashed rings of one order on one fabric, over some draws."""

    def __init__(self, network: Network, order: str, draws: int):
        labels = network.labels
        up = labels.is_kind("leaf")[labels.src] & labels.is_kind("spine")[labels.dst]
        crossing, meeting, slowest = [], [], []
        for seed in range(draws):
            flows = rings(network, orders(seed)[order])
            routes = fb.routing.ecmp(network, flows, seed=seed)
            on = uplinks(routes, up)
            crossing.append(len(on) / flows.n_flows)
            meeting.append(np.mean(np.bincount(on)[on] > 1) if len(on) else 0.0)
            rates = np.asarray(fb.max_min_rates(network, routes).rates)
            slowest.append(rates.min() / 50e9)
        self.crossing = float(np.mean(crossing))
        self.meeting = float(np.mean(meeting))
        self.slowest = float(np.mean(slowest))


def uplinks(routes: fb.Routes, up: np.ndarray) -> np.ndarray:
    """Return the uplink of every flow that crosses one; a hashed flow takes a single one."""
    part_of = np.full(routes.n_bundles, -1)
    parts = np.asarray(routes.part_link)
    through = up[np.minimum(parts, routes.n_links - 1)] & (parts < routes.n_links)
    part_of[np.asarray(routes.part_bundle)[through]] = parts[through]
    bundle = np.asarray(routes.hop_bundle)
    real = bundle < routes.n_bundles
    link = part_of[bundle[real]]
    return link[link >= 0]


def rows(smoke: bool) -> tuple[list[Row], dict[str, Any]]:
    """Return A50: what stays under leaves, what meets on uplinks, and what a dead leaf takes."""
    draws = 5 if smoke else DRAWS
    found = {
        (name, order): Measured(net, order, draws)
        for name, net in fabrics().items()
        for order in orders(0)
    }
    stays = lambda name, order: 1 - found[name, order].crossing
    unit = 1 - (GROUP - 4) / (GROUP - 1)
    meets = 1 - (31 / 32) ** 7
    flows = draws * SERVERS * 8 / 4
    lines = [
        Row("A50 rails, a unit in order, under leaves", 1, stays("rails", "in order"), "", 0, RULE),
        Row("A50 rails, a unit in random order, under leaves", 1,
            stays("rails", "units in random order"), "", 0, RULE),
        Row("A50 one leaf, a unit in order, under leaves", 3 / 4, stays("one leaf", "in order"), "",
            1e-9, "counted: a leaf holds 4 servers"),
        Row("A50 one leaf, a unit in random order, under leaves", unit,
            stays("one leaf", "units in random order"), "", 0.1,
            "counted: 3 of the 31 others are under the same leaf"),
        Row("A50 one leaf, a unit in order, flows that meet on an uplink", meets,
            found["one leaf", "in order"].meeting, "", 4 * np.sqrt((1 - meets) / meets / flows),
            "balls in bins: 8 flows leave a leaf by 32 uplinks", "allowed: four standard errors"),
        *of_leaf(),
    ]  # fmt: skip
    summary = {
        f"A50 {name}, {order}": {
            "over spines": round(each.crossing, 4),
            "of these, meet another on their uplink": round(each.meeting, 4),
            "slowest, of an adapter": round(each.slowest, 4),
        }
        for (name, order), each in found.items()
    }
    return lines, summary


def of_leaf() -> Iterator[Row]:
    """Yield what a dead leaf takes: servers that lose something, and what they lose."""
    blasts = {name: blast_of_leaf(net) for name, net in fabrics().items()}
    rail, one = blasts["rails"], blasts["one leaf"]
    yield Row("A50 servers that a dead leaf touches, rails over one leaf", 8,
              rail.servers / one.servers, "x", 0, COUNTED)  # fmt: skip
    yield Row("A50 servers that a dead leaf cuts off, one leaf", 4, one.whole, "", 0, COUNTED,
              f"with rails {rail.whole}")  # fmt: skip
    for name, share in (("rails", 1 / 8), ("one leaf", 1)):
        lost = float(touched(fabrics()[name]).mean())
        yield Row(f"A50 adapters each of them loses, {name}", share, lost, "", 1e-9, COUNTED)
    yield Row("A50 GPUs whose adapter a dead leaf takes, rails over one leaf", 1,
              rail.cut_off / one.cut_off, "x", 0, COUNTED,
              "as many: with rails their servers still reach everything over NVLink and the other "
              "seven rails")  # fmt: skip


def blast_of_leaf(network: Network) -> reliability.Blast:
    """Return what the failure of a leaf reaches."""
    (blast,) = [b for b in reliability.blast_radius(network, kind="switch") if "leaf" in b.name]
    return blast


def touched(network: Network) -> np.ndarray:
    """Return the share of adapters that every server loses with one leaf, of those that lose."""
    labels = network.labels
    leaf = int(np.flatnonzero(labels.is_kind("leaf"))[0])
    nics = labels.src[labels.dst == leaf]
    servers = labels.tags["server"][nics[labels.tags["server"][nics] >= 0]]
    count = np.bincount(servers, minlength=SERVERS) / 8
    return count[count > 0]
