"""`fabric(...)` runs one command line in this process, as the installed program would."""

import json
from typing import Any, NamedTuple

import numpy as np
import pytest

import fabric as fb
from fabric import readers, topologies
from fabric.cli import main

SMALL = "leaf_spine:leaves=2,spines=2,hosts_per_leaf=2,capacity=400Gb/s"


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        assert self.code == 0, self.err
        return self.out.splitlines()


@pytest.fixture
def fabric(capsys):
    def run(*args: object) -> Ran:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


@pytest.fixture
def refused(fabric):
    """Run a command line that must fail, and return its one message."""

    def run(*args: object, code: int = 2) -> str:
        ran = fabric(*args)
        assert ran.code == code, ran
        assert ran.out == ""
        assert ran.err.startswith("error: ")
        assert ran.err.count("error: ") == 1
        assert "Traceback" not in ran.err
        return ran.err

    return run


@pytest.fixture(scope="session")
def dump(shared):
    return shared / "samples" / "topology" / "ib" / "ndr_40sw_582ca.ibnetdiscover.gz"


@pytest.fixture
def partly(tmp_path):
    """Write four leaves and two spines, two cables per pair, without (leaf, spine, cables)."""

    def write(*missing):
        net = topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=4, cables_per_pair=2)
        labels = net.labels
        keep = np.ones(net.n_links, bool)
        for leaf, spine, count in missing:
            between = (labels.src == labels.node(leaf)) & (labels.dst == labels.node(spine))
            keep &= ~np.isin(labels.cable_of, labels.cable_of[between][:count])
        partial = fb.Network(np.asarray(net.capacity)[keep], labels=labels.keep_links(keep))
        return readers.write_node_link(partial, tmp_path / "partly.json")

    return write


@pytest.fixture
def gappy(partly):
    """One cable of one pair is not there."""
    return partly(("leaf1", "spine0", 1))
