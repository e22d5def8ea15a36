"""How much bandwidth does hashing cost flows that would all fit, and what gives it back?

A52 and A53: random permutations of the hosts of non-blocking fabrics, one path per flow by a hash
at every switch, exact max-min rates in units of a host's link. Hosts that are mapped to themselves
are left out; pairs under one leaf count.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import fabric as fb
from experiments.permutations.cures import cures
from experiments.permutations.drawn import Drawn, draw, hashed
from experiments.rows import Result, Row
from fabric.network import Flows, Network

QUOTED = "exact max-min rates of 20 random permutations (k = 24: 8), drawn independently"
BALLS = "balls in bins: n flows leave 1 - (1 - 1/n)^n of n uplinks used, 1 - 1/e for many"
RULE = "a rule of planning guides, no document named"

ENDLESS = 1e6
"""Factor on capacities that makes links no limit."""

AT = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def run(smoke: bool = False) -> Result:
    """Return every row; with `smoke` few permutations, and k = 8 in place of k = 24."""
    net = leaf_spine()
    two_tiers = draw(net, hashed(), 25 if smoke else 400)
    rows = [*collision(), *of_leaf_spine(two_tiers, smoke), *of_fat_tree(smoke)]
    rows += uplinks_alone(40 if smoke else 400)
    more, found = cures(net, 3 if smoke else 20)
    summary: dict[str, Any] = {
        "A52 draws": len(two_tiers.rates),
        "A52 standard error, leaf-spine": two_tiers.error,
        "A52 quantiles": list(AT),
        "A52 rate of a flow": two_tiers.quantiles(AT),
        "A52 share of flows at half rate or less": float(
            np.mean(np.concatenate(two_tiers.rates) <= 0.5 + 1e-9)
        ),
        "A52 share of idle uplinks": float(np.mean(two_tiers.idle)),
        **found,
    }
    notes = [
        "A53: 16 queue pairs give back nine tenths of what one loses, but a third only where a "
        "message is cut over them and waits for the slowest, at the rates of the beginning. "
        "Flowlets of 16 subpaths, which all move at one rate, give back four tenths.",
        "A53: placement cures what stays under a leaf, and rings in the order of leaves wholly; "
        "permutations of groups that span two leaves lose a tenth, of eight leaves two fifths.",
    ]
    return Result([*rows, *more], summary, notes)


def leaf_spine() -> Network:
    """Return 32 leaves of 32 hosts under 32 spines."""
    return fb.topologies.leaf_spine(leaves=32, spines=32, hosts_per_leaf=32)


def collision() -> Iterator[Row]:
    """Yield A52: two flows between two leaves, whose hashes meet on one of two uplinks."""
    net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=2)
    flows = lambda *_: Flows(net.hosts[:2], net.hosts[2:])
    draws = draw(net, hashed(), 64, flows)
    met = [i for i, rates in enumerate(draws.rates) if rates.max() < 1]
    yield Row("A52 two flows that met, rate", 0.5, float(draws.rates[met[0]].max()), "", 1e-9, RULE)
    idle = 4 * draws.idle[met[0]] - 2  # both of the other leaf, which sends nothing, are idle
    yield Row("A52 idle uplinks meanwhile, of 2", 1, idle, "", 1e-9, RULE)
    yield Row("A52 draws in which they meet", 0.5, len(met) / 64, "", 3 / math.sqrt(64), RULE,
              "allowed: three standard errors of 64 draws")  # fmt: skip


def of_leaf_spine(found: Drawn, smoke: bool) -> Iterator[Row]:
    """Yield A52 on two tiers: mean rate, and the slowest flow of a permutation."""
    allowed = 3 * found.error if smoke else 0.003
    yield Row("A52 leaf-spine 32 x 32, 32 uplinks, mean rate", 0.525, found.mean, "",
              allowed / 0.525, QUOTED, f"standard error {found.error:.4f}")  # fmt: skip
    yield Row("A52 leaf-spine 32 x 32, 32 uplinks, slowest", 0.1838, found.slowest, "",
              3 * 0.0186 / math.sqrt(20) / 0.1838, QUOTED)  # fmt: skip


def of_fat_tree(smoke: bool) -> Iterator[Row]:
    """Yield A52 on three tiers, where two hashes follow each other on the way up."""
    for k, quoted, deviation, trials in ((8, 0.4799, 0.0187, 100), (24, 0.4152, 0.0023, 8)):
        if smoke and k > 8:
            return
        found = draw(fb.topologies.fat_tree(k=k), hashed(), 100)
        allowed = 3 * math.hypot(deviation / math.sqrt(trials), found.error)
        note = f"standard error {found.error:.4f}; allowed: three of the difference"
        name = f"A52 fat tree k = {k}, mean rate"
        yield Row(name, quoted, found.mean, "", allowed / quoted, QUOTED, note)


def uplinks_alone(draws: int) -> Iterator[Row]:
    """Yield A52 where only uplinks are shared: all hosts of a leaf send to other leaves."""
    net = uplinks_only(leaf_spine())
    found = draw(net, hashed(), draws, across)
    closed = 1 - (1 - 1 / 32) ** 32
    yield Row("A52 uplinks alone, 32 of them, mean rate", closed, found.mean, "",
              3 * found.error / closed, BALLS, "a used uplink is full")  # fmt: skip
    yield Row("A52 uplinks alone, many of them", 1 - 1 / math.e, closed, "", 0.01, BALLS,
              "what 32 uplinks have more")  # fmt: skip


def uplinks_only(net: Network) -> Network:
    """Return the network with links down from the spines that limit nothing."""
    labels = net.labels
    down = labels.is_kind("spine")[labels.src]
    return net.with_capacity(np.asarray(net.capacity) * np.where(down, ENDLESS, 1))


def across(net: Network, seed: int) -> Flows:
    """Return a flow from every host to one of the next leaf, each host of which receives one."""
    hosts = net.hosts.reshape(32, 32)
    rng = np.random.default_rng(seed)
    to = np.stack([rng.permutation(row) for row in np.roll(hosts, -1, axis=0)])
    return Flows(hosts.ravel(), to.ravel())
