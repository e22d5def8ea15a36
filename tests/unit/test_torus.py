"""What `torus` promises: published counts and distances, wiring, twists, refusals."""

import json
from itertools import product

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

import fabric as fb
from fabric.topologies import build, sizes, sizes_of, torus


def golden(shared):
    entries = json.loads((shared / "validation" / "topologies.json").read_text())
    return {e["name"]: e for e in entries if e["kind"] == "torus" and "dims" in e["params"]}


def built(entry):
    """The network of an entry; its twist is written as what wraps and what that adds."""
    params = entry["params"]
    twist = params.get("twist_added_when_short_dim_wraps")
    return torus(params["dims"], wrap=params.get("wrap", True), twist=twist)


def distances(net, sources):
    labels = net.labels
    ones = np.ones(labels.n_links)
    graph = csr_matrix((ones, (labels.src, labels.dst)), shape=(net.n_nodes, net.n_nodes))
    return shortest_path(graph, unweighted=True, indices=sources)


def loads_by_axis(net):
    """Load per unit sent from node 0 to every node, split over shortest paths alike, by direction.

    On a graph that looks alike from every node, the load of a link under all-to-all traffic is that
    of its axis and direction summed over the links of one source's traffic.
    """
    labels = net.labels
    away = distances(net, [0])[0]
    ahead = away[labels.dst] == away[labels.src] + 1
    paths, load = np.zeros(net.n_nodes), np.zeros(labels.n_links)
    paths[0] = 1
    for step in range(int(away.max())):
        links = np.flatnonzero(ahead & (away[labels.src] == step))
        np.add.at(paths, labels.dst[links], paths[labels.src[links]])
    below = np.ones(net.n_nodes)
    for step in reversed(range(int(away.max()))):
        links = np.flatnonzero(ahead & (away[labels.src] == step))
        ends = labels.src[links], labels.dst[links]
        load[links] = paths[ends[0]] / paths[ends[1]] * below[ends[1]]
        np.add.at(below, ends[0], load[links])
    direction = labels.tier_of * 2 + np.arange(labels.n_links) % 2
    return np.bincount(direction, load)


def all_to_all_rate(net):
    """What each chip can send evenly to all others, in links, and the bound by hops in all."""
    mean = distances(net, [0])[0].sum() / (net.n_nodes - 1)
    degree = net.n_links / net.n_nodes
    return (net.n_nodes - 1) / loads_by_axis(net).max(), degree / mean


def pairs(net):
    return {frozenset(pair) for pair in np.stack([net.labels.src, net.labels.dst], 1).tolist()}


# Numbers that sources print or breadth-first search gives.


def test_every_torus_and_mesh_has_the_published_counts(shared):
    for name, entry in golden(shared).items():
        net, want = built(entry), entry["expected"]
        assert (net.n_nodes, net.n_links // 2) == (want["nodes"], want["links"]), name
        ports = np.bincount(net.labels.src, minlength=net.n_nodes)
        if "degree" in want:
            np.testing.assert_array_equal(ports, want["degree"], err_msg=name)


def test_every_torus_and_mesh_has_the_published_distances(shared):
    for name, entry in golden(shared).items():
        want, net = entry["expected"], built(entry)
        # A torus looks alike from every chip; a mesh does not.
        away = distances(net, [0, net.n_nodes - 1] if entry["params"]["wrap"] else None)
        assert away.max() == want["diameter"], name
        if mean := want.get("mean_hops_excl_self"):
            found = away.sum(1) / (net.n_nodes - 1)
            np.testing.assert_allclose(found, mean, atol=5e-6, err_msg=name)  # as printed


def test_half_a_torus_is_cut_off_by_the_published_number_of_links(shared):
    for name, entry in golden(shared).items():
        if (want := entry["expected"].get("bisection_links")) is not None:
            net, dims = built(entry), entry["params"]["dims"]
            axis = int(np.argmax(dims))
            upper = net.labels.tags["xyz"[axis]] >= dims[axis] // 2
            cut = upper[net.labels.src] & ~upper[net.labels.dst]
            assert cut.sum() == want, name


def test_all_to_all_rates_are_the_published_ones_and_optimal(shared):
    tested = 0
    for name, entry in golden(shared).items():
        want = entry["expected"]
        rate = want.get("uniform_a2a_per_node_in_link_units")
        if rate is None:
            continue
        found, bound = all_to_all_rate(built(entry))
        if cut := want.get("bisection_links"):
            half = want["nodes"] / 2
            bound = min(bound, cut * (want["nodes"] - 1) / half**2)
        np.testing.assert_allclose(found, bound, rtol=1e-12, err_msg=name)
        np.testing.assert_allclose(found, rate, atol=5e-5, err_msg=name)  # as printed
        tested += 1
    assert tested == 13


@pytest.mark.parametrize(
    ("dims", "rate", "gain"), [("4x4x8", 1.7318, 1.7455), ("4x8x8", 1.3859, 1.3913)]
)
def test_a_twist_brings_all_to_all_traffic_its_published_gain(dims, rate, gain):
    twisted, bound = all_to_all_rate(torus(dims, twist="tpu"))
    plain, _ = all_to_all_rate(torus(dims))
    np.testing.assert_allclose([twisted, twisted / plain], [rate, gain], atol=5e-5)
    np.testing.assert_allclose(twisted, bound, rtol=1e-12)


@pytest.mark.parametrize(("twist", "rate"), [(None, 0.992188), ("tpu", 1.7318)])
def test_spray_and_fair_shares_reach_the_published_all_to_all_rate(twist, rate):
    net = torus("4x4x8", twist=twist, capacity="1GB/s")
    src, dst = np.nonzero(~np.eye(net.n_nodes, dtype=bool))
    solution = fb.max_min_rates(net, fb.routing.spray(net, fb.Flows(src, dst)))
    slowest = float(solution.rates.min()) / 1e9 * (net.n_nodes - 1)
    np.testing.assert_allclose(slowest, rate, atol=5e-5)  # as printed


@pytest.mark.parametrize("dims", [(5,), (3, 4), (4, 3, 5), (7, 1, 3)])
@pytest.mark.parametrize("wrap", [True, False])
def test_a_torus_is_the_grid_graph_of_networkx(dims, wrap):
    grid = nx.grid_graph(dims[::-1], periodic=wrap)
    # networkx joins a single node to itself where it wraps, and calls a node of a line by a number.
    place = {node: i for i, node in enumerate(product(*map(range, dims)))}
    named = {(node,) if isinstance(node, int) else node: node for node in grid}
    number = {named[node]: i for node, i in place.items()}
    want = {frozenset((number[a], number[b])) for a, b in grid.edges if a != b}
    assert pairs(torus(dims, wrap=wrap)) == want


# Wiring, names and tags.


def test_chips_are_ordered_with_the_last_axis_fastest_and_tagged():
    net = torus("3x4x5")
    tags = net.labels.tags
    x, y, z = (tags[axis] for axis in "xyz")
    np.testing.assert_array_equal((x * 4 + y) * 5 + z, np.arange(60))
    assert net.labels.names[(2 * 4 + 1) * 5 + 3] == "chip2-1-3"
    np.testing.assert_array_equal(net.hosts, np.arange(60))
    assert net.labels.forwards.all()
    assert net.labels.tiers == ("x", "y", "z")


def test_even_links_lead_to_the_next_chip_of_their_axis():
    labels = torus("3x4x5").labels
    for axis, size in zip("xyz", (3, 4, 5), strict=True):
        ahead = np.flatnonzero(labels.is_tier(axis))[::2]
        place = labels.tags[axis]
        np.testing.assert_array_equal(
            place[labels.dst[ahead]], (place[labels.src[ahead]] + 1) % size
        )
        for other in set("xyz") - {axis}:
            kept = labels.tags[other]
            np.testing.assert_array_equal(kept[labels.dst[ahead]], kept[labels.src[ahead]])


def test_an_axis_of_two_has_one_cable_per_pair_and_one_of_one_has_none():
    net = torus("2x1x3")
    assert sizes_of(net).cables == {"x": 3, "z": 6}
    assert len(pairs(net)) == net.n_links // 2


@pytest.mark.parametrize(
    ("dims", "wraps"), [("4x4x8", {"x": (0, 0, 4), "y": (0, 0, 4)}), ("4x8x8", {"x": (0, 4, 4)})]
)
def test_twisted_ways_round_move_along_the_long_axes(dims, wraps):
    labels = torus(dims, twist="tpu").labels
    shape = np.array([int(side) for side in dims.split("x")])
    place = np.stack([labels.tags[axis] for axis in "xyz"], 1)
    for number, axis in enumerate("xyz"):
        ahead = np.flatnonzero(labels.is_tier(axis))[::2]
        at, to = place[labels.src[ahead]], place[labels.dst[ahead]]
        round_it = at[:, number] == shape[number] - 1
        want = at + np.eye(3, dtype=int)[number]
        want[round_it] += np.array(wraps.get(axis, (0, 0, 0)))
        np.testing.assert_array_equal(to, want % shape)


@pytest.mark.parametrize("dims", ["4x4x8", "4x8x8", "8x8x16"])
def test_a_twisted_torus_looks_alike_from_every_chip_in_any_order_of_axes(dims):
    shape = tuple(int(side) for side in dims.split("x"))
    want = np.sort(distances(torus(shape, twist="tpu"), [0])[0])
    for order in {shape, shape[::-1], (shape[2], shape[0], shape[1])}:
        net = torus(order, twist="tpu")
        away = distances(net, np.arange(0, net.n_nodes, 7))
        np.testing.assert_array_equal(np.sort(away, 1), np.tile(want, (len(away), 1)))


def test_a_twist_reads_the_same_as_word_text_and_mapping():
    word = torus("4x4x8", twist="tpu")
    text = torus([4, 4, 8], twist="xz4 + yz4")
    mapping = torus("4x4x8", twist={"y": [0, 0, 4], "x": (0, 0, 4)})
    assert pairs(word) == pairs(text) == pairs(mapping)
    assert word.labels.about["twist"] == text.labels.about["twist"] == "xz4+yz4"
    for net in (text, mapping):
        assert net.labels.source == "torus(dims=4x4x8, twist=xz4+yz4, capacity=400Gb/s)"


def test_a_twisted_rectangle_is_the_one_of_the_literature():
    # 2a x a, the short way round moved by a: diameter a instead of 3 a / 2.
    a = 6
    assert distances(torus([2 * a, a]), [0]).max() == 3 * a // 2
    assert distances(torus([2 * a, a], twist={"y": (a, 0)}), [0]).max() == a


def test_an_axis_of_two_may_twist():
    net = torus("2x6", twist="xy3")
    assert len(pairs(net)) == net.n_links // 2 == 12 + 12
    assert sizes_of(net).ports == {"chip": 4}


@pytest.mark.parametrize(
    "spec",
    [
        "torus:dims=16x16x16", "torus:dims=2x3", "torus:dims=7", "torus:dims=2x2x1,wrap=no",
        "torus:dims=5x1x4,wrap=no", "torus:dims=8x4x4,twist=tpu", "torus:dims=2x6,twist=xy3",
        "torus:dims=2x1x2",
    ],
)  # fmt: skip
def test_sizes_are_those_of_the_network(spec):
    counted, found = sizes(spec), sizes_of(build(spec))
    assert (counted.nodes, counted.cables, counted.ports) == (
        found.nodes, found.cables, found.ports,
    )  # fmt: skip


def test_sizes_of_a_million_cubed_need_no_memory():
    assert sizes("torus", dims=[10**6] * 3).n_cables == 3 * 10**18


# What is refused, and how.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"dims": "4x4x4", "twist": "tpu"}, r"this is 4x4x4\. Use 4x4x8 or 4x8x8\."),
        ({"dims": "6x6x12", "twist": "tpu"}, r"multiples of 4 .* is 6x6x12\. Use 4x4x8 or 4x8x8"),
        ({"dims": "16x16", "twist": "tpu"}, "needs a shape A x B x C"),
        ({"dims": "4x4x9", "twist": "xz4"}, r"moves 4 along 'z', which does not divide its 9 "
         r"chips\. Use 1 or 3\."),
        ({"dims": "4x4x8", "twist": "xz3"}, r"which does not divide its 8 chips\. Use 2 or 4\."),
        ({"dims": "4x4x8", "twist": "xz8"}, "once round its 8 chips, which is no twist. Leave"),
        ({"dims": "4x4x8", "twist": "xz4+yz0"}, "'yz0' moves 0 chips, which is no twist"),
        ({"dims": "4x4x8", "twist": {"x": (0, 0, 0)}}, "moves nothing along any axis"),
        ({"dims": "4x4x8", "twist": {}}, "moves nothing along any axis, which is no twist"),
        ({"dims": "4x5", "twist": "yy2"}, "along 'y', which twists itself"),
        ({"dims": "8x8", "twist": "xy4+yx4"}, r"(?s)'x'\]` moves along 'y', which .*'y'\]` moves"),
        ({"dims": "1x8", "twist": "xy4"}, "an axis of size 1 has no way round"),
        ({"dims": "4x8", "twist": "xz4"}, "of the axes x, y, joined by '\\+', but got 'xz4'"),
        ({"dims": "4x8", "twist": {"z": (0, 4)}}, r"names the axis 'z'\. Known: 'x' and 'y'"),
        ({"dims": "4x8", "twist": {"x": (4,)}}, "needs 2 whole numbers of 0 or more, one per axis"),
        ({"dims": "4x8", "twist": {"x": (0, -4)}}, r"one per axis, but got \[0, -4\]"),
        ({"dims": "4x8", "twist": "xy4", "wrap": False}, "`wrap=False` has none. Leave one out"),
        ({"dims": "4x4x4x4"}, "`dims` needs 1 to 3 dimensions, but got 4"),
        ({"dims": []}, "`dims` needs 1 to 3 dimensions, but got 0"),
        ({"dims": "1x1"}, r"`torus\(dims=1x1\)` is a single chip. Ask for 2 or more"),
        ({"dims": "4 by 4"}, "sizes joined by 'x', such as '4x4x8', but got '4 by 4'"),
        ({"dims": [4, 0]}, "whole numbers of 1 or more, but got 0"),
        ({"dims": "2000x2000x2000"}, "24,000,000,000 cables and would take about"),
    ],
)  # fmt: skip
def test_impossible_shapes_and_twists_are_refused_with_the_next_step(arguments, said):
    with pytest.raises(fb.ModelError, match=said):
        torus(**arguments)
