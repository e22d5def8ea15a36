"""The written dump is one that the InfiniBand tools themselves load, and print back the same."""

import shutil
import subprocess

import numpy as np
import pytest

import fabric as fb
from fabric import readers

TOOLS = ("ibsim", "ibsim-run", "ibnetdiscover")


def cables(network):
    labels = network.labels
    ends = zip(labels.src, labels.src_port, labels.dst, labels.dst_port, strict=True)
    return {(labels.ids[a], int(p), labels.ids[b], int(q)) for a, p, b, q in ends}


@pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in TOOLS),
    reason="needs ibsim and ibnetdiscover (Debian: ibsim-utils, infiniband-diags)",
)
def test_ibsim_loads_the_written_dump_and_ibnetdiscover_prints_the_same_cables(tmp_path):
    net = fb.topologies.rail_optimized(servers=16, rails=8, radix=16)
    lost = np.flatnonzero(net.labels.is_tier("leaf-spine"))[[0, 40]]
    path = readers.write_ibnetdiscover(net.without(links=lost), tmp_path / "f.ibnetdiscover")
    written = readers.read(path).network
    host = written.labels.ids[written.hosts[0]]
    simulator = subprocess.Popen(
        ["ibsim", "-s", "-N", "2000", "-S", "200", "-P", "20000", path.name],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert simulator.stdout is not None
        # The prompt follows the start of the subnet; the limits are the last lines before it.
        while "MaxMcastCap" not in (line := simulator.stdout.readline()):
            assert line, "ibsim refused the dump"
        printed = subprocess.run(
            ["ibsim-run", "ibnetdiscover"],
            cwd=tmp_path, env={"PATH": "/usr/sbin:/usr/bin:/bin", "SIM_HOST": host},
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip
    finally:
        simulator.communicate("quit\n", timeout=20)
    back = readers.ibnetdiscover(printed).network
    assert cables(back) == cables(written)
    assert written.n_links == net.n_links - 4
