"""A56: tori, and blocks joined by circuits that are tuned to the job, against a folded Clos.

Rates are of what an endpoint can send at most, over all its ports.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np

import fabric as fb
from experiments.rows import Row
from fabric import topologies
from fabric.network import Flows, Network

RULE = "a rule of planning guides, no document named"
TORUS = "uniform all-to-all on a torus: the bisection or the total of hops bounds it"
TPU = "N. Jouppi et al., TPU v4 (arXiv 2304.01433), from lecture notes"
MESH = "blocks in full mesh, one transit at best: N / (2 (N - 1)) for any permutation"

SLOW, FAST = 10.0, 10e-3
"""Seconds of a reconfiguration: TPU v4 as published, and mirrors as lectures give them."""

BLOCKS = 9
"""Blocks, with a port for each of the others."""


def rows(smoke: bool) -> tuple[list[Row], dict[str, Any]]:
    """Return A56: tori, circuits tuned to rings, and what a reconfiguration has to bring in."""
    lines = [*tori(smoke)]
    more, summary = circuits()
    lines += more
    return lines, summary


def tori(smoke: bool) -> Iterator[Row]:
    """Yield all-to-all on tori, plain and twisted, and what it takes to replace them by a Clos."""
    cases = [("4x4x8", None, 0.99219), ("4x4x8", "tpu", 1.7318)]
    if not smoke:
        cases += [("4x8x8", None, 0.99609), ("4x8x8", "tpu", 1.3859)]
    rates: dict[tuple[str, str | None], float] = {}
    for dims, twist, quoted in cases:
        net = topologies.torus(dims, twist=twist)
        rates[dims, twist] = all_to_all(net)
        name = f"A56 torus {dims}{', twisted' if twist else ''}, all-to-all"
        yield Row(name, quoted, rates[dims, twist], "links", 1e-4, TORUS)
    for dims, quoted, measured in (("4x4x8", 1.745, 1.63), ("4x8x8", 1.391, 1.31)):
        if (dims, "tpu") in rates:
            gain = rates[dims, "tpu"] / rates[dims, None]
            yield Row(f"A56 gain of the twist, {dims}", quoted, gain, "x", 1e-3, TORUS,
                      f"measured on TPU v4: about {measured}")  # fmt: skip
    net = topologies.torus("4x4x8")
    yield Row("A56 torus, all send to their six neighbours", 1, neighbours(net) / 6, "", 1e-9,
              RULE, "as on a Clos: rings over the axes lose nothing")  # fmt: skip
    yield Row("A56 torus 4x4x8, all-to-all over a Clos of as many ports", 1,
              rates["4x4x8", None] / 6, "", 0, RULE,
              "a torus carries what its job was laid out for: an all-to-all passes four hops",
              refuted=True)  # fmt: skip
    clos = topologies.sizes("clos", hosts=4096, radix=40, tiers=3)
    yield Row("A56 switches of 40 ports in place of a TPU v4 pod's 48 OCS", 568, clos.switches, "",
              0.15, TPU, "equal pods; 513 switches would have the ports, but no even wiring. The "
              "paper does not say how it counts")  # fmt: skip


def all_to_all(net: Network) -> float:
    """Return what every endpoint can send evenly to all others at once, in links."""
    flows = fb.traffic.all_to_all(net.hosts)
    routes = fb.routing.spray(net, flows)
    slowest = float(np.asarray(fb.max_min_rates(net, routes).rates).min())
    return slowest * (len(net.hosts) - 1) / float(np.asarray(net.capacity).max())


def neighbours(net: Network) -> float:
    """Return what every endpoint can send over all its cables to those at their other ends."""
    labels = net.labels
    flows = Flows(labels.src, labels.dst)
    rates = np.asarray(fb.max_min_rates(net, fb.routing.spray(net, flows)).rates)
    sums = np.bincount(labels.src, rates, labels.n_nodes)
    return float(sums.min() / float(np.asarray(net.capacity).max()))


def circuits() -> tuple[list[Row], dict[str, Any]]:
    """Return rates of blocks in full mesh and of circuits tuned to a ring, and what pays."""
    n, ports = BLOCKS, BLOCKS - 1
    mesh = topologies.direct_connect(n, ports)
    tuned = topologies.direct_connect(n, ports, circuits=ring_circuits(n, ports).tolist())
    shift = np.roll(np.eye(n), 1, axis=1)
    ring = (shift + shift.T) / 2
    worst = best_one_transit(mesh, shift) / ports
    rings = best_one_transit(mesh, ring) / ports
    on_tuned = _ring_rate(tuned) / ports
    lines = [
        Row("A56 mesh of blocks, all-to-all", 1, _even(mesh) / ports, "", 1e-9, MESH),
        Row("A56 mesh of blocks, a permutation", n / (2 * (n - 1)), worst, "", 1e-6, MESH,
            "a Clos carries any permutation whole"),
        Row("A56 circuits tuned to a ring, both ways round", 1, on_tuned, "", 1e-9, RULE,
            "as on a Clos; a ring in one direction uses half, since a circuit is both"),
        Row("A56 circuits tuned to a ring, all-to-all over a Clos", 1, _even(tuned) / ports, "", 0,
            RULE, "circuits of one pattern are of little use to another", refuted=True),
    ]  # fmt: skip
    pays = {
        f"A56 seconds of rings that pay for {seconds:g} s of reconfiguration": round(
            break_even(rings, seconds), 4
        )
        for seconds in (SLOW, FAST)
    }
    return lines, {"A56 mesh of blocks, a ring both ways": round(rings, 4), **pays}


def break_even(untuned: float, reconfiguration: float) -> float:
    """Return the seconds of exchanges, at the tuned rate, that save a reconfiguration's time.

    They would take `1 / untuned` times as long without it.

    Examples:
        >>> break_even(0.5, 10.0)
        10.0
    """
    return reconfiguration / (1 / untuned - 1)


def ring_circuits(blocks: int, ports: int) -> np.ndarray:
    """Return half of the ports of every block wired to the next one, half to the one before."""
    next_one = np.roll(np.eye(blocks, dtype=int), 1, axis=1)
    return (next_one + next_one.T) * (ports // 2)


def _even(net: Network) -> float:
    return all_to_all(net)


def _ring_rate(net: Network) -> float:
    hosts = net.hosts
    flows = Flows(np.tile(hosts, 2), np.concatenate([np.roll(hosts, -1), np.roll(hosts, 1)]))
    rates = np.asarray(fb.max_min_rates(net, fb.routing.spray(net, flows)).rates)
    return 2 * float(rates.min()) / float(np.asarray(net.capacity).max())


def best_one_transit(net: Network, demand: np.ndarray) -> float:
    """Return the largest multiple of a demand that fits, direct or by one other block, in links.

    A linear programme: every pair splits its traffic over the direct way and all others at will.

    Args:
        net: Blocks, joined by circuits.
        demand: (blocks, blocks), rows summing to 1.
    """
    from scipy.optimize import linprog

    labels, n = net.labels, len(net.hosts)
    room = np.zeros((n, n))
    np.add.at(room, (labels.src, labels.dst), 1.0)
    ways = [
        (pair, [pair] if way in pair else [(pair[0], way), (way, pair[1])])
        for pair in permutations(range(n), 2)
        if demand[pair] > 0
        for way in [pair[0], *(b for b in range(n) if b not in pair)]
    ]
    pairs = sorted({pair for pair, _ in ways})
    load = np.zeros((n * n, len(ways) + 1))
    sums = np.zeros((len(pairs), len(ways) + 1))
    sums[:, -1] = [-demand[pair] for pair in pairs]
    for i, (pair, links) in enumerate(ways):
        sums[pairs.index(pair), i] = 1
        for a, b in links:
            load[a * n + b, i] = 1
    goal = np.zeros(len(ways) + 1)
    goal[-1] = -1
    found = linprog(goal, A_ub=load, b_ub=room.ravel(), A_eq=sums, b_eq=np.zeros(len(pairs)))
    return float(found.x[-1])
