"""What `tpu_pod` and `direct_connect` promise, one test per promise."""

import json
from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components, shortest_path

import fabric as fb
from fabric.topologies import build, circuits, direct_connect, sizes, sizes_of, torus, tpu_pod


def golden(shared, name):
    entries = json.loads((shared / "validation" / "topologies.json").read_text())
    return next(entry for entry in entries if entry["name"] == name)


def graph(net, kept=None):
    labels = net.labels
    kept = np.ones(labels.n_links, bool) if kept is None else kept
    ends = labels.src[kept], labels.dst[kept]
    return csr_matrix((np.ones(len(ends[0])), ends), shape=(net.n_nodes, net.n_nodes))


def slice_cables(net, number):
    """The cables of a slice between places (x, y, z) in it."""
    labels = net.labels
    mine = labels.tags["slice"] == number
    links = np.flatnonzero(mine[labels.src] & mine[labels.dst])
    place = np.stack([labels.tags[axis] for axis in "xyz"], 1)
    ends = np.stack([place[labels.src[links]], place[labels.dst[links]]], 1)
    return {frozenset(map(tuple, pair)) for pair in ends.tolist()}, len(links) // 2


def torus_cables(shape, **options):
    labels = torus(shape, **options).labels
    place = np.stack([labels.tags[axis] for axis in "xyz"], 1)
    ends = np.stack([place[labels.src], place[labels.dst]], 1)
    return {frozenset(map(tuple, pair)) for pair in ends.tolist()}


# TPU pods.


def test_a_whole_pod_has_the_published_counts(shared):
    want = golden(shared, "tpu_v4_pod")["expected"]
    net = tpu_pod(64, "16x16x16")
    found = sizes_of(net)
    assert found.nodes == {"chip": want["chips"]}
    assert found.cables == {
        "cube": want["intra_cube_links_total"], "optical": want["inter_cube_links_in_full_torus"],
    }  # fmt: skip
    assert found.n_cables == want["torus_links"]
    assert int(net.labels.tags["host"].max()) + 1 == want["hosts"]
    assert net.labels.about["ocs"] == str(want["ocs_per_dim"] * 3)
    upper = net.labels.tags["z"] >= 8
    cut = upper[net.labels.src] & ~upper[net.labels.dst]
    assert cut.sum() == want["bisection_links"]
    assert np.asarray(net.capacity)[0] / 1e9 == want["link_one_way_GBps_nominal"]


def test_chips_of_a_cube_have_the_published_copper_and_fibres(shared):
    want = golden(shared, "tpu_v4_pod")["expected"]
    labels = tpu_pod(1, "4x4x4").labels
    optical = np.bincount(labels.src[labels.is_tier("optical")], minlength=64)
    copper = np.bincount(labels.src[labels.is_tier("cube")], minlength=64)
    pairs, counts = np.unique(np.stack([copper, optical], 1), axis=0, return_counts=True)
    found = {tuple(pair): int(n) for pair, n in zip(pairs.tolist(), counts, strict=True)}
    places = want["cube_chip_positions"].values()
    assert found == {(copper, optical): n for n, copper, optical in places}
    assert optical.sum() == want["optical_ports_per_cube"]
    assert copper.sum() == want["cube_copper_link_ends"]
    _, chips = np.unique(labels.tags["host"], return_counts=True)
    np.testing.assert_array_equal(chips, 4)


@pytest.mark.parametrize(
    ("pod", "cubes", "slices"),
    [("tpu_v5p_pod", 140, "16x20x28"), ("tpu_ironwood_pod", 144, "16x24x24")],
)
def test_pods_of_later_generations_have_the_published_counts(shared, pod, cubes, slices):
    want = golden(shared, pod)["expected"]
    net = tpu_pod(cubes, slices)
    assert net.n_nodes == want["chips"]
    assert int(net.labels.tags["host"].max()) + 1 == want["hosts"]
    # A cable between cubes ends in two ports.
    assert 2 * sizes_of(net).cables["optical"] == want["optical_ports_total"]


def test_slices_that_can_be_bought_have_the_published_chips_and_cubes(shared):
    slices = golden(shared, "tpu_v5p_pod")["expected"]["slices"]
    for shape, chips, hosts, cubes, twistable in slices:
        net = tpu_pod(cubes or 1, shape)
        mine = net.labels.tags["slice"] == 0
        assert mine.sum() == chips
        assert len(np.unique(net.labels.tags["host"][mine])) == hosts
        if twistable:
            assert tpu_pod(cubes, f"{shape}_twisted").n_links == net.n_links


@pytest.mark.parametrize(
    ("asked", "shape", "options"),
    [
        ("4x4x4", "4x4x4", {}),
        ("4x8x12", "4x8x12", {}),
        ("8x4x4@7/2", "8x4x4", {}),
        ("4x4x8_twisted", "4x4x8", {"twist": "tpu"}),
        ("8x4x8_twisted@5/0/3/6", "8x4x8", {"twist": "tpu"}),
        ("8x8x16_twisted", "8x8x16", {"twist": "tpu"}),
        ("2x2x1", "2x2x1", {"wrap": False}),
        ("2x4x4", "2x4x4", {"wrap": False}),
        ("4x1x2", "4x1x2", {"wrap": False}),
    ],
)
def test_a_slice_is_the_torus_or_mesh_of_its_shape_wherever_its_cubes_are(asked, shape, options):
    net = tpu_pod(20, f"4x4x4@1+{asked}+4x4x4@9")
    found, n = slice_cables(net, 1)
    want = torus_cables(shape, **options)
    assert found == want
    assert n == len(want)


def test_a_twisted_slice_is_nearer_together_by_the_same_number_of_fibres():
    plain, twisted = tpu_pod(2, "4x4x8"), tpu_pod(2, "4x4x8_twisted")
    assert plain.n_links == twisted.n_links
    away = [shortest_path(graph(net), unweighted=True).max() for net in (plain, twisted)]
    assert away == [8, 6]


def test_slices_and_cubes_without_one_are_apart():
    net = tpu_pod(9, "4x4x8+8x4x8+4x4x4@0")
    count, part = connected_components(graph(net), directed=False)
    assert count == 3 + 2  # two cubes are left over
    tags = net.labels.tags
    for number in range(3):
        assert len(np.unique(part[tags["slice"] == number])) == 1
    optical = net.labels.is_tier("optical")
    assert (tags["slice"][net.labels.src[optical]] >= 0).all()
    assert np.unique(tags["cube"][tags["slice"] == 0]).tolist() == [1, 2]


def test_small_slices_share_a_cube_without_sharing_chips():
    net = tpu_pod(2, "2x4x4+2x2x2+2x2x2+1x1x1+2x2x4")
    tags = net.labels.tags
    assert np.bincount(tags["slice"] + 1).tolist() == [128 - 65, 32, 8, 8, 1, 16]
    for number in range(5):
        assert len(np.unique(tags["cube"][tags["slice"] == number])) == 1


def test_paths_inside_a_small_slice_stay_inside():
    net = tpu_pod(1, "2x2x2+2x4x4")
    labels = net.labels
    whole = shortest_path(graph(net), unweighted=True)
    for number in range(2):
        mine = labels.tags["slice"] == number
        inside = shortest_path(graph(net, mine[labels.src] & mine[labels.dst]), unweighted=True)
        np.testing.assert_array_equal(whole[np.ix_(mine, mine)], inside[np.ix_(mine, mine)])


# Circuits.


def test_circuits_obey_the_invariants_of_the_switches(shared):
    want = golden(shared, "ocs_wiring_invariants")
    net = tpu_pod(20, "4x4x8_twisted+8x8x8@19/3/5/7/11/13/17/2+4x4x4+2x2x2")
    patch, labels = circuits(net), net.labels
    assert len(patch) == want["expected"]["ocs_count"] == int(labels.about["ocs"])
    assert {axis for axis, _, _ in patch} == set("xyz")
    for rows in patch.values():
        for faces in rows.T:  # no face is plugged twice
            assert len(np.unique(faces)) == len(faces)
        # 2 + 8 + 1 cubes, each with both faces.
        assert sorted(rows[:, 0]) == sorted(rows[:, 1])
        assert len(rows) == 11
    # Every cable leads from the + face of an axis to the - face, at one place of the face.
    place = np.stack([labels.tags[f"cube_{axis}"] for axis in "xyz"], 1)
    ahead = np.flatnonzero(labels.is_tier("optical"))[::2]
    step = place[labels.dst[ahead]] - place[labels.src[ahead]]
    np.testing.assert_array_equal(np.sort(step, 1), np.tile([-3, 0, 0], (len(ahead), 1)))


def test_circuits_of_a_slice_are_the_neighbourhood_of_its_cubes():
    patch = circuits(tpu_pod(6, "4x4x12@5/0/3"))
    assert patch["z", 2, 1].tolist() == [[0, 3], [3, 5], [5, 0]]
    assert patch["x", 0, 3].tolist() == [[0, 0], [3, 3], [5, 5]]


def test_moving_a_slice_changes_circuits_and_no_copper():
    a, b = tpu_pod(4, "4x4x8@0/1"), tpu_pod(4, "4x4x8@0/2")
    copper = [
        np.stack([net.labels.src, net.labels.dst])[:, net.labels.is_tier("cube")] for net in (a, b)
    ]
    np.testing.assert_array_equal(*copper)
    changed = [key for key in circuits(a) if circuits(a)[key].tolist() != circuits(b)[key].tolist()]
    assert len(changed) == 48


def test_a_network_without_circuits_is_refused():
    with pytest.raises(fb.ModelError, match=r"no optical circuits\. Use a `tpu_pod` with whole"):
        circuits(torus("4x4x4"))
    with pytest.raises(fb.ModelError, match="no optical circuits"):
        circuits(tpu_pod(1, "2x2x2"))


# Direct connect.


def matrix(net):
    count = np.zeros((net.n_nodes,) * 2, int)
    np.add.at(count, (net.labels.src, net.labels.dst), 1)
    return count


@pytest.mark.parametrize(("blocks", "ports"), [(2, 5), (4, 6), (5, 7), (9, 30), (64, 512)])
def test_the_uniform_mesh_spreads_all_ports_evenly_over_all_pairs(blocks, ports):
    count = matrix(direct_connect(blocks, ports))
    np.testing.assert_array_equal(count, count.T)
    assert np.ptp(count[~np.eye(blocks, dtype=bool)]) <= 1
    assert (ports * blocks - count.sum()) == ports * blocks % 2
    assert count.sum(1).max() == ports


def test_circuits_are_as_given_in_a_matrix_or_as_text():
    asked = np.array([[0, 3, 1, 0], [3, 0, 0, 2], [1, 0, 0, 2], [0, 2, 2, 0]])
    net = direct_connect(4, 5, circuits=asked)
    np.testing.assert_array_equal(matrix(net), asked)
    text = build("direct_connect:blocks=4,ports=5,circuits=3+1+0+0+2+2")
    np.testing.assert_array_equal(text.labels.src, net.labels.src)
    assert net.labels.source == text.labels.source
    assert net.labels.forwards.all()
    assert len(net.hosts) == 4


def permutation_throughput(net):
    """Share of its ports that each block can send to the next over direct and one-transit paths.

    A linear programme over the flows of these paths and, last, the share.
    """
    blocks, count = net.n_nodes, matrix(net)
    vias = [
        (src, via) for src in range(blocks) for via in range(blocks) if via != (src + 1) % blocks
    ]
    load = np.zeros((blocks, blocks, len(vias) + 1))
    sent = np.zeros((blocks, len(vias) + 1))
    for path, (src, via) in enumerate(vias):
        sent[src, path] = 1
        load[via, (src + 1) % blocks, path] += 1
        load[src, via, path] += via != src
    sent[:, -1] = -count.sum(1)
    goal = np.eye(len(vias) + 1)[-1]
    found = linprog(-goal, load.reshape(blocks**2, -1), count.ravel(), sent, np.zeros(blocks))
    return found.x[-1]


@pytest.mark.parametrize("blocks", [4, 6, 8])
def test_a_uniform_mesh_carries_the_published_share_of_a_permutation(blocks):
    share = permutation_throughput(direct_connect(blocks, 2 * (blocks - 1)))
    np.testing.assert_allclose(share, blocks / (2 * (blocks - 1)), rtol=1e-9)


@pytest.mark.parametrize("blocks", [4, 8])
def test_a_uniform_mesh_carries_uniform_traffic_at_full_rate(blocks):
    net = direct_connect(blocks, 2 * (blocks - 1), capacity="1GB/s")
    src, dst = np.array(list(permutations(range(blocks), 2))).T
    routes = fb.routing.spray(net, fb.Flows(src, dst))
    sent = np.bincount(src, fb.max_min_rates(net, routes).rates)
    np.testing.assert_allclose(sent, 2e9 * (blocks - 1), rtol=1e-12)


# Counts and refusals of both.


@pytest.mark.parametrize(
    "spec",
    [
        "tpu_pod:cubes=3,slices=4x4x8", "tpu_pod:cubes=2,slices=2x2x1+2x4x4",
        "tpu_pod:cubes=9,slices=4x4x8_twisted@8/0+8x8x4", "direct_connect:blocks=4,ports=6",
        "direct_connect:blocks=5,ports=7", "direct_connect:blocks=3,ports=4,circuits=3+1+0",
    ],
)  # fmt: skip
def test_sizes_are_those_of_the_network(spec):
    counted, found = sizes(spec), sizes_of(build(spec))
    assert (counted.nodes, counted.cables, counted.ports) == (
        found.nodes, found.cables, found.ports,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("tpu_pod:cubes=4,slices=4x6x8", r"4x6x8 is neither .* Use 4x4x8 or 4x8x8\."),
        ("tpu_pod:cubes=4,slices=2x2x8", r"2x2x8 is neither .* Use 4x4x8\."),
        ("tpu_pod:cubes=4,slices=16x16", r"Use 16x16x4"),
        ("tpu_pod:cubes=4,slices=4x4x4_twisted", r"this is 4x4x4\. Use 4x4x8 or 4x8x8"),
        ("tpu_pod:cubes=4,slices=cube+4x4x5", r"(?s)but got 'cube'.*4x4x5 is neither"),
        ("tpu_pod:cubes=4,slices=8x8x8", "needs 8 cubes, but 4 of 4 are free. Use a smaller slice, "
         "or `cubes=8`"),
        ("tpu_pod:cubes=4,slices=4x4x8@0/7", "names cubes that are taken or not there: '7'"),
        ("tpu_pod:cubes=4,slices=4x4x8@0/1+4x4x4@1",
         r"taken or not there: '1'\. Free of the 4: '2' and '3'"),
        ("tpu_pod:cubes=4,slices=4x4x8@2", "needs 2 different cubes, but names 1"),
        ("tpu_pod:cubes=4,slices=4x4x8@2/2", "needs 2 different cubes, but names 1"),
        ("tpu_pod:cubes=1,slices=2x4x4+2x4x4+1x1x1",
         r"a free block of 1x1x1 chips in one cube, but there is none"),
        ("tpu_pod:cubes=2,slices=2x2x1@0/1", "but it names several"),
        ("tpu_pod:cubes=1,slices=4x4x8", "needs 2 cubes, but 1 of 1 are free"),
        ("tpu_pod:cubes=2,slices=4x4x4@0+4x4x4@0", "taken or not there: '0'"),
        ("tpu_pod:cubes=1,slices=4x4x4+2x2x1", "a free block of 2x2x1 chips in one cube"),
        ("tpu_pod:cubes=0,slices=4x4x4", "`cubes` needs a whole number of 1 or more, but got 0"),
        ("direct_connect:blocks=10,ports=4",
         r"Use `ports=9` or more, `blocks=5` or fewer, or say which `circuits`"),
        ("direct_connect:blocks=1,ports=4", "`blocks` needs a whole number of 2 or more"),
        ("direct_connect:blocks=3,ports=4,circuits=1+2", "needs 3 whole numbers joined by '\\+'"),
        ("direct_connect:blocks=3,ports=4,circuits=0+0+0", "`circuits` are all 0"),
        ("direct_connect:blocks=3,ports=4,circuits=3+2+0",
         r"asks for more than the 4 ports of a block at 'block0', up to 5\. Use .* `ports=5`"),
    ],
)  # fmt: skip
def test_impossible_numbers_are_refused_with_the_next_step(spec, said):
    with pytest.raises(fb.ModelError, match=said):
        build(spec)
    with pytest.raises(fb.ModelError, match=said):
        sizes(spec)


def test_all_faults_of_a_matrix_of_circuits_are_said_at_once():
    with pytest.raises(fb.ModelError) as caught:
        direct_connect(3, 4, circuits=[[0, 5, -1], [3, 1, 3], [1, 0, 0]])
    said = str(caught.value)
    assert "whole numbers of 0 or more, but not so at 'block0'" in said
    assert "0 on the diagonal, for no block joins itself, but not so at 'block1'" in said
    assert "as many circuits there as back, but not so at 'block0', 'block1' and 'block2'" in said
    assert "more than the 4 ports of a block at 'block1', up to 7" in said
    with pytest.raises(fb.ModelError, match=r"\(3, 3\), but has shape \(2, 2\)"):
        direct_connect(3, 4, circuits=[[0, 1], [1, 0]])


def test_a_pod_of_any_size_is_counted():
    found = sizes("tpu_pod", cubes=10**8, slices="16x16x16+4x4x4@99999")
    assert found.cables["optical"] == 48 * (64 + 1)
