"""What `Placement` promises."""

import numpy as np
import pytest

import fabric as fb
from fabric.network import Blueprint


def test_placements():
    plan = Blueprint()
    leaf = plan.nodes("leaf", "leaf{}", (3,))
    host = plan.nodes("gpu", "g{}-{}", (3, 4), unit=np.arange(3)[:, None])
    plan.cables("host", host, leaf[:, None], 1.0)
    net = plan.network("three units")
    assert fb.Placement.first(net, 5).endpoint_of.tolist() == net.hosts[:5].tolist()
    spread = fb.Placement.spread(net, 8, by="unit", block=2).endpoint_of - net.hosts[0]
    assert spread.tolist() == [0, 1, 4, 5, 8, 9, 2, 3]
    with pytest.raises(fb.InfeasibleError, match="13 ranks need as many endpoints"):
        fb.Placement.first(net, 13)
    with pytest.raises(fb.ModelError, match="more than one rank on nodes '3'"):
        fb.Placement([3, 3])
    with pytest.raises(fb.ModelError, match="no such tag"):
        fb.Placement.spread(net, 2, by="rail")


def test_a_placement_refuses_what_is_no_node_number():
    with pytest.raises(fb.ModelError, match=r"whole numbers of 32 bits, .*'0.5' and '1.7'"):
        fb.Placement(np.array([0.5, 1.7]))
    with pytest.raises(fb.ModelError, match=r"numbers of 0 or more, but got '-1'"):
        fb.Placement([0, -1])


def test_counts_of_a_placement_are_from_one():
    net = fb.topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2)
    with pytest.raises(fb.ModelError, match="`n_ranks` needs a whole number of 1 or more"):
        fb.Placement.first(net, -1)
    with pytest.raises(fb.ModelError, match="`block` needs a whole number of 1 or more, but got 0"):
        fb.Placement.spread(net, 2, by="leaf", block=0)
