"""All-to-all on a real InfiniBand fabric, worked out a second time without any code of the solver.

The cables come from a regular expression, the spray from its definition for two tiers. All NICs
of a leaf are alike, so the flows from leaf A to leaf B have one rate: 31 x 31 unknowns, each
loading a cable by its fraction times the number of flows, filled by the oracle in NumPy.
"""

import gzip
import re
from collections import Counter, defaultdict

import numpy as np
import pytest

import fabric as fb
from fabric import readers
from fabric.reference.problem import Problem
from fabric.reference.water_fill import max_min_rates_by_levels

RECORD = re.compile(r'^(?:Switch|Ca)\s+\d+ "([SH]-\w+)"\s+# "([^"]*)"', re.M)
CABLE = re.compile(r'^\[(\d+)\](?:\(\w+\))?\s+"([SH]-\w+)"\[(\d+)\]', re.M)
PORT = 50e9  # 4xNDR, byte/s


def leaf_spine_counts(text):
    """Return NICs per leaf, and cables per (leaf, spine), from the text alone."""
    starts = [(m.start(), m[1], m[2]) for m in RECORD.finditer(text)]
    names = {identity: name for _, identity, name in starts}
    bounds = [s for s, _, _ in starts] + [len(text)]
    ends = set()
    for (begun, identity, _), stop in zip(starts, bounds[1:], strict=True):
        for port, peer, peer_port in CABLE.findall(text, begun, stop):
            ends.add(frozenset([(identity, port), (peer, peer_port)]))
    hosts = Counter()
    between = Counter()
    for end in ends:
        (a, _), (b, _) = sorted(end)  # "H-" sorts before "S-"
        if a[0] == "H":
            hosts[b] += "Aggregation Node" not in names[a]
        else:
            between[frozenset((a, b))] += 1
    leaves = sorted(leaf for leaf, count in hosts.items() if count)
    cables = defaultdict(dict)
    for pair, count in between.items():
        leaf, spine = sorted(pair, key=lambda switch: switch not in leaves)
        cables[leaf][spine] = count
    return {leaf: hosts[leaf] for leaf in leaves}, cables


def rates_per_endpoint(hosts, cables):
    """Return the sorted rates of all flows times (n - 1), GB/s."""
    links = {}
    link = lambda *key: links.setdefault(key, len(links))
    rows, counts = [], []
    for a in hosts:
        for b in hosts:
            others = hosts[b] - (a == b)
            flows = hosts[a] * others
            if not flows:
                continue
            # One NIC's cable carries that NIC's share of the flows only.
            row = [(link("up", a), others), (link("down", b), hosts[a] - (a == b))]
            if a != b:
                usable = {s: n for s, n in cables[a].items() if s in cables[b]}
                total = sum(usable.values())
                for spine, n in usable.items():
                    row.append((link(a, spine), flows / total))
                    row.append((link(spine, b), flows * n / total / cables[b][spine]))
            rows.append(row)
            counts.append(flows)
    problem = Problem.from_paths(
        [PORT] * len(links),
        [[at for at, _ in row] for row in rows],
        [[use for _, use in row] for row in rows],
    )
    rate = np.array(max_min_rates_by_levels(problem), float)
    return np.sort(np.repeat(rate, counts)) * (sum(hosts.values()) - 1) / 1e9


@pytest.fixture(scope="module")
def dump(shared):
    return shared / "samples/topology/ib/ndr_40sw_582ca.ibnetdiscover.gz"


@pytest.fixture(scope="module")
def by_hand(dump):
    return leaf_spine_counts(gzip.decompress(dump.read_bytes()).decode())


def solved(network):
    flows = fb.traffic.all_to_all(network.hosts)
    solution = fb.max_min_rates(network, fb.routing.spray(network, flows))
    return np.sort(np.asarray(solution.rates)) * (len(network.hosts) - 1) / 1e9


def test_rates_on_the_dump(dump, by_hand):
    want = rates_per_endpoint(*by_hand)
    np.testing.assert_allclose(
        [want[0], np.median(want), want.mean()], [24.3, 48.6, 47.5], atol=0.05
    )
    np.testing.assert_allclose(solved(readers.read(dump).network), want, rtol=1e-9)


def test_rates_on_the_uniform_design(dump, by_hand):
    hosts, cables = by_hand
    spines = {spine for row in cables.values() for spine in row}
    assert (len(hosts), len(spines), sum(hosts.values())) == (31, 9, 542)
    want = rates_per_endpoint(hosts, {leaf: dict.fromkeys(spines, 2) for leaf in hosts})
    assert want[0] == pytest.approx(49.0, abs=0.05)
    design = fb.topologies.uniform_design(readers.read(dump).network)
    np.testing.assert_allclose(solved(design.network), want, rtol=1e-9)
