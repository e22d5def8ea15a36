"""What `uniform_design` and `plug` promise, one test per promise."""

import numpy as np
import pytest

from fabric import ModelError, readers
from fabric.network import Blueprint
from fabric.topologies._uniform import plug, uniform_design, why_not_uniform

SHORT_SPINES = {
    "A10-P1-IBSPINE-04": 10,
    "A10-P1-IBSPINE-01": 7,
    "B10-P1-IBSPINE-06": 4,
    "B10-P1-IBSPINE-05": 2,
    "B10-P1-IBSPINE-07": 2,
    "B10-P1-IBSPINE-08": 1,
}
SHORT_LEAVES = {
    "A09-P1-IBLEAF-01-02": 4,
    "A09-P1-IBLEAF-02-03": 3,
    "B09-P1-IBLEAF-03-07": 3,
    "A09-P1-IBLEAF-01-03": 2,
    "A09-P1-IBLEAF-02-04": 2,
    "A09-P1-IBLEAF-04-02": 2,
    "A09-P1-IBLEAF-04-04": 2,
    "B09-P1-IBLEAF-01-05": 2,
    "B09-P1-IBLEAF-01-07": 2,
    "B09-P1-IBLEAF-02-06": 2,
    "A09-P1-IBLEAF-01-01": 1,
    "B09-P1-IBLEAF-01-08": 1,
}


def fabric(counts, capacity=50e9):
    """Return leaves with two hosts each and `counts[leaf][spine]` cables, spines without hosts."""
    counts = np.asarray(counts)
    plan = Blueprint()
    leaf = plan.nodes("leaf", "leaf{}", (counts.shape[0],))
    spine = plan.nodes("spine", "spine{}", (counts.shape[1],))
    nic = plan.nodes("nic", "leaf{}-nic{}", (counts.shape[0], 2), leaf=leaf[:, None])
    plan.cables("host", nic, leaf[:, None], 25e9)
    a, b = np.nonzero(counts)
    times = counts[a, b]
    plan.cables(
        "leaf-spine", leaf[np.repeat(a, times)], spine[np.repeat(b, times)], capacity, latency=1e-7
    )
    return plan.network("fabric")


def table(network):
    """Return the cables of every (leaf, spine), counted link by link."""
    labels = network.labels
    leaves = np.flatnonzero(labels.is_kind("leaf")).tolist()
    spines = np.flatnonzero(labels.is_kind("spine")).tolist()
    counts = np.zeros((len(leaves), len(spines)), int)
    for a, b, alive in zip(labels.src, labels.dst, network.alive, strict=True):
        if alive and a in leaves and b in spines:
            counts[leaves.index(a), spines.index(b)] += 1
    return counts


def test_the_real_dump_lacks_26_of_558_cables(shared):
    file = shared / "samples/topology/ib/ndr_40sw_582ca.ibnetdiscover.gz"
    network = readers.read(file).network
    design = uniform_design(network)
    assert (design.per_pair, design.cables, design.have) == (2, 558, 532)
    assert (design.missing, design.extra) == (26, 0)
    assert {row["switch"]: row["missing"] for row in design.short_spines} == SHORT_SPINES
    assert {row["switch"]: row["missing"] for row in design.short_leaves} == SHORT_LEAVES
    assert {row["want"] for row in design.short_spines} == {62}
    assert {row["want"] for row in design.short_leaves} == {18}
    assert all(row["have"] + row["missing"] == row["want"] for row in design.short)
    # 10 pairs have no cable and 6 have one of two.
    assert [n for _, _, n in design.missing_pairs] == [2] * 10 + [1] * 6
    np.testing.assert_array_equal(table(design.network), 2)
    assert design.network.n_links == network.n_links + 52
    for array in ("src", "dst", "cable_of"):
        found = getattr(design.network.labels, array)[: network.n_links]
        np.testing.assert_array_equal(found, getattr(network.labels, array))
    names = [design.network.link_name(i) for i in range(design.network.n_links)]
    assert len(set(names)) == len(names)
    again = uniform_design(design.network)
    assert (again.missing, again.short, again.cables) == (0, [], 558)


def test_missing_and_extra_cables_do_not_cancel():
    network = fabric([[2, 2, 2], [2, 3, 1]])
    design = uniform_design(network)
    assert (design.per_pair, design.have, design.missing, design.extra) == (2, 12, 1, 1)
    assert design.missing_pairs == [(1, 4, 1)]
    assert design.short == [
        {"switch": "spine2", "kind": "spine", "have": 3, "want": 4, "missing": 1},
        {"switch": "leaf1", "kind": "leaf", "have": 6, "want": 6, "missing": 1},
    ]
    np.testing.assert_array_equal(table(design.network), 2)


def test_at_a_tie_the_larger_count_is_the_design():
    assert uniform_design(fabric([[1, 2], [2, 1]])).per_pair == 2


def test_a_failed_cable_is_missing_and_the_design_has_it_whole():
    network = fabric([[1, 1], [1, 1]])
    link = int(np.flatnonzero(network.labels.is_tier("leaf-spine"))[0])
    design = uniform_design(network.without(links=[link]))
    assert (design.have, design.missing) == (3, 1)
    assert design.network.alive.all()
    np.testing.assert_array_equal(table(design.network), 1)


def test_a_slow_cable_has_the_common_capacity_in_the_design():
    network = fabric([[1, 1], [1, 1]], capacity=np.array([50e9, 25e9, 50e9, 50e9]))
    design = uniform_design(network)
    trunk = design.network.labels.is_tier("leaf-spine")
    np.testing.assert_array_equal(design.network.capacity[trunk], 50e9)
    np.testing.assert_array_equal(design.network.capacity[~trunk], 25e9)
    assert (design.capacity, design.missing) == (50e9, 0)


def test_the_hosts_of_the_design_are_those_of_the_fabric():
    network = fabric([[2, 2, 2], [2, 3, 1]])
    design = uniform_design(network).network
    np.testing.assert_array_equal(design.hosts, network.hosts)
    assert list(design.labels.names) == list(network.labels.names)


@pytest.mark.parametrize(
    ("network", "why"),
    [
        pytest.param(fabric([[1, 0, 0], [0, 1, 0], [0, 0, 1]]), "no full mesh", id="planes"),
        pytest.param(
            readers.read('{"nodes": [{"id": 1}, {"id": 2}],\n"edges": []}').network,
            "no leaf and no spine", id="no-tiers",
        ),
        pytest.param(
            readers.read(
                '{"nodes": [{"id": 1, "kind": "leaf"}, {"id": 2, "kind": "spine"},\n'
                '{"id": 3, "kind": "core"}], "edges": []}'
            ).network,
            "'core'", id="three-tiers",
        ),
    ],
)  # fmt: skip
def test_other_fabrics_have_no_uniform_design_and_it_says_why(network, why):
    assert uniform_design(network) is None
    assert why in why_not_uniform(network)


def test_plugged_cables_come_last_and_look_like_the_others():
    network = fabric([[1, 1], [1, 1]])
    more = plug(network, [(0, 2, 2), (1, 3, 0), (1, 2, 1)], "200Gb/s")
    n = network.n_links
    assert more.n_links == n + 6
    assert [more.link_name(i) for i in range(n)] == [network.link_name(i) for i in range(n)]
    assert [more.link_name(i) for i in range(n, n + 6)] == [
        "leaf0->spine0#1", "spine0->leaf0#1", "leaf0->spine0#2", "spine0->leaf0#2",
        "leaf1->spine0#1", "spine0->leaf1#1",
    ]  # fmt: skip
    np.testing.assert_array_equal(more.capacity[n:], 25e9)
    np.testing.assert_array_equal(more.latency[n:], 1e-7)
    assert more.labels.is_tier("leaf-spine")[n:].all()
    assert len(np.unique(more.labels.cable_of)) == len(np.unique(network.labels.cable_of)) + 3


def test_nothing_plugged_is_the_same_network():
    network = fabric([[1, 1], [1, 1]])
    assert plug(network, [], 1.0) is network


@pytest.mark.parametrize("pair", [(2, 0, 1), (0, 1, 1), (0, 99, 1), (0, 2, -1), (-1, 2, 1)])
def test_only_a_leaf_and_a_spine_can_be_plugged(pair):
    with pytest.raises(ModelError, match="1 of 1 are not"):
        plug(fabric([[1, 1], [1, 1]]), [pair], 50e9)
