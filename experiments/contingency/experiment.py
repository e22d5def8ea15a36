"""Is one solve per class of failures as good as one per component, and whom does a leaf reach?

A50: the reach of a leaf by wiring, and every single failure of a cable, NIC or switch of a fabric
of 512 GPUs solved from scratch, before and after two faults. No document quotes the numbers of the
second part: the quote is brute force.
"""

import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import fabric as fb
from experiments.rows import Result, Row
from fabric._errors import UnreachableError
from fabric.network import Flows, Network
from fabric.reliability import Contingency, blast_radius, contingency

WIRING = "ports of a leaf: 32 down, one per server and rail or eight per server"
BRUTE = "every component solved from scratch by the public solver"
KINDS = ("link", "nic", "switch")


def run(smoke: bool = False) -> Result:
    """Return every row; with `smoke` 16 GPUs in place of 512, and 64 in place of 65,536."""
    net = _in_front(fb.topologies.rail_optimized(2 if smoke else 64, radix=16 if smoke else 64))
    rows, summary = [*reach()], dict[str, Any]()
    for said, broken in (("whole", net), ("with two faults", with_faults(net))):
        flows = _ring(broken)
        took, report = _timed(broken, flows, limit_s=20.0)
        began = time.perf_counter()
        worst = largest_difference(broken, flows, report)
        summary |= {
            f"{said}: components": report.n_components, f"{said}: classes": report.n_classes,
            f"{said}: seconds": took,
            f"{said}: seconds by brute force": time.perf_counter() - began,
        }  # fmt: skip
        rows.append(
            Row(f"A50 difference to brute force, {said}", 0.0, worst, "relative", 1e-9, BRUTE)
        )
    big = _in_front(fb.topologies.fat_tree(8 if smoke else 64))
    for said, broken in (("whole", big), ("with two faults", with_faults(big))):
        took, report = _timed(broken, _ring(broken))
        summary |= {
            f"{len(big.hosts):,} GPUs {said}: components": report.n_components,
            f"{len(big.hosts):,} GPUs {said}: classes": report.n_classes,
            f"{len(big.hosts):,} GPUs {said}: seconds": took,
        }
    return Result(rows, summary)


def reach() -> Sequence[Row]:
    """Return whom a leaf reaches where rails are apart, and where a server is on one leaf."""
    rails = _in_front(fb.topologies.rail_optimized(servers=64, radix=64))
    mixed = _in_front(fb.topologies.leaf_spine(leaves=16, spines=32, hosts_per_leaf=32))
    (apart,), (together,) = (blast_radius(net, kind="leaf") for net in (rails, mixed))
    return [
        Row("A50 servers touched, rails", 32, apart.servers, "servers", 0, WIRING),
        Row("A50 servers lost, rails", 0, apart.whole, "servers", 0, WIRING),
        Row("A50 servers touched, one leaf", 4, together.servers, "servers", 0, WIRING),
        Row("A50 servers lost, one leaf", 4, together.whole, "servers", 0, WIRING),
    ]


def with_faults(net: Network) -> Network:
    """Return a network with a dead cable above its leaves and a NIC at half speed."""
    forwards = net.labels.forwards & (net.labels.tags["server"] < 0)
    between = np.flatnonzero(forwards[net.labels.src] & forwards[net.labels.dst])
    nic = int(net.labels.tags["nic"][net.hosts[3 * len(net.hosts) // 5]])
    return net.without(links=[int(between[5])]).degraded(nodes=[nic], factor=0.5)


def largest_difference(net: Network, flows: Flows, report: Contingency) -> float:
    """Return the largest relative difference of any component's scores to a solve from scratch."""
    worst = 0.0
    for kind, parts in report.components.items():
        rows = {int(member): row for row in report if row.kind == kind for member in row.members}
        for number in range(len(parts)):
            want = np.array(scored(parts.failed(number), flows))
            got = np.array((rows[number].lost, rows[number].slowest, rows[number].total))
            away = np.abs(got - want) / np.where(want == 0, 1, np.abs(want))
            worst = max(worst, float(np.where(got == want, 0, away).max()))
    return worst


def scored(net: Network, flows: Flows) -> tuple[float, float, float]:
    """Return the flows that are cut off, and the slowest and the total rate of the others."""
    left = np.arange(flows.n_flows)
    while len(left):
        try:
            routes = fb.routing.spray(net, Flows(flows.src[left], flows.dst[left]))
        except UnreachableError as error:
            left = np.delete(left, error.flows)
            continue
        rates = np.asarray(jax.block_until_ready(fb.max_min_rates(net, routes).rates))
        return flows.n_flows - len(left), rates.min(), rates.sum()
    return flows.n_flows, np.inf, 0.0


def _timed(net: Network, flows: Flows, limit_s: float = 600.0) -> tuple[float, Contingency]:
    """Return seconds and the report; under a short limit only classes are solved."""
    began = time.perf_counter()
    report = contingency(net, flows, kind=KINDS, limit_s=limit_s, progress=False)
    return time.perf_counter() - began, report


def _ring(net: Network) -> Flows:
    """Return a flow from every GPU to its like in the next server."""
    return Flows(net.hosts, np.roll(net.hosts, -8))


def _in_front(fabric: Network) -> Network:
    server = fb.hardware.server("dgx-h100")
    return fb.topologies.attach_servers(fabric, server, fabric.hosts.reshape(-1, 8))
