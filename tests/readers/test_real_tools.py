"""The written dump is one that the InfiniBand tools themselves load, and print back the same."""

import numpy as np

import fabric as fb
from fabric import readers
from tests.oracle.opensm import needs_tools, simulated


def cables(network):
    labels = network.labels
    ends = zip(labels.src, labels.src_port, labels.dst, labels.dst_port, strict=True)
    return {(labels.ids[a], int(p), labels.ids[b], int(q)) for a, p, b, q in ends}


@needs_tools
def test_ibsim_loads_the_written_dump_and_ibnetdiscover_prints_the_same_cables(tmp_path):
    net = fb.topologies.rail_optimized(servers=16, rails=8, radix=16)
    lost = np.flatnonzero(net.labels.is_tier("leaf-spine"))[[0, 40]]
    with simulated(net.without(links=lost), tmp_path) as subnet:
        printed = subnet.run("ibnetdiscover")
    written = readers.read(tmp_path / "fabric.ibnetdiscover").network
    assert cables(readers.ibnetdiscover(printed).network) == cables(written)
    assert written.n_links == net.n_links - 4
