"""What `optimize.slices` promises, one test per promise."""

import itertools
import json

import numpy as np
import pytest

import fabric as fb
from fabric.optimize import slices


def counted(shape, wrap, flows, twist=0):
    """The largest load of a link of a grid, flows split evenly at every chip; counted chip by chip.

    `twist` is how far the way round an axis of 4 moves along the axes of 8.
    """
    chips = list(itertools.product(*map(range, shape)))
    near = {chip: [] for chip in chips}
    for chip, axis in itertools.product(chips, range(3)):
        ahead = list(chip)
        ahead[axis] += 1
        if ahead[axis] == shape[axis]:
            if not wrap:
                continue
            ahead[axis] = 0
            if twist and shape[axis] == 4:
                ahead = [
                    (x + twist) % n if n == 8 else x for x, n in zip(ahead, shape, strict=True)
                ]
        near[chip].append(tuple(ahead))
        near[tuple(ahead)].append(chip)
    load = dict.fromkeys(((a, b) for a in chips for b in near[a]), 0.0)
    for to in {b for _, b in flows}:
        far, queue = {to: 0}, [to]
        for chip in queue:
            for other in near[chip]:
                if other not in far:
                    far[other] = far[chip] + 1
                    queue.append(other)
        amount = dict.fromkeys(chips, 0.0)
        for a, b in flows:
            amount[a] += b == to
        for chip in reversed(queue[1:]):
            closer = [other for other in near[chip] if far[other] < far[chip]]
            for other in closer:
                load[chip, other] += amount[chip] / len(closer)
                amount[other] += amount[chip] / len(closer)
    return max(load.values())


def test_all_to_all_and_rings_take_what_counting_loads_says():
    found = slices(16, all_to_all=15e6, capacity=1e9)
    for one in found.choices:
        shape = tuple(map(int, one.dims.split("x")))
        pairs = list(itertools.permutations(itertools.product(*map(range, shape)), 2))
        want = counted(shape, False, pairs) * 1e6 / 1e9
        np.testing.assert_allclose(one.all_to_all, want, rtol=1e-9)
        assert one.bound <= one.seconds * (1 + 1e-12)
    found = slices(128, rings={4: 4e6}, capacity=1e9)
    assert {one.twist for one in found.choices} == {None, "tpu"}
    for one in found.choices:
        chips = list(itertools.product(range(4), range(4), range(8)))
        ring = [((x, y, z), ((x + 1) % 4, y, z)) for x, y, z in chips]
        load = counted((4, 4, 8), True, ring + [(b, a) for a, b in ring], 4 if one.twist else 0)
        np.testing.assert_allclose(one.rings[4], 3e6 * load / 1e9, rtol=1e-6)


@pytest.mark.parametrize(("chips", "gain"), [(128, 1.7455), (256, 1.3913)])
def test_twisted_slices_gain_what_theory_says_at_all_to_all(chips, gain):
    found = slices(chips, all_to_all="64MB")
    assert found.best.twist == "tpu"
    plain = next(one for one in found.choices if one.dims == found.best.dims and not one.twist)
    np.testing.assert_allclose(plain.seconds / found.best.seconds, gain, rtol=1e-4)
    assert found.certified


def test_rings_alone_take_the_textbook_time_along_an_axis():
    found = slices(128, rings={8: "1GB"}, capacity="50GB/s")
    np.testing.assert_allclose(found.objective, 7 / 8 * 1e9 / 50e9, rtol=1e-9)
    assert (str(found.best), dict(found.best.axes)) == ("4x4x8", {8: "z"})
    twisted = next(one for one in found.choices if one.twist)
    assert twisted.seconds >= found.objective


def test_shapes_without_an_axis_for_a_ring_are_refused_by_name():
    found = slices(512, rings={16: "1MB"})
    assert {str(one) for one in found.choices} == {"4x8x16"}
    assert found.refused
    assert all("no axes of [16] chips" in one.refused for one in found.refused)
    with pytest.raises(fb.InfeasibleError, match=r"axes of \[5\] chips for the `rings`"):
        slices(512, rings={5: "1MB"})


def test_small_slices_are_meshes_inside_a_cube():
    found = slices(16, all_to_all="1MB")
    assert {one.dims for one in (*found.choices, *found.refused)} == {"1x4x4", "2x2x4"}
    assert not found.best.wrap
    assert found.best.network().n_nodes == 16
    assert json.loads(json.dumps(found.as_dict()))["best"] == str(found.best)


def test_chips_without_a_shape_name_the_nearest_ones():
    with pytest.raises(fb.InfeasibleError, match=r"Use 64 or 128\."):
        slices(100, all_to_all="1MB")
    with pytest.raises(fb.InfeasibleError, match="Use 999,999,999,936 or 1,000,000,000,000"):
        slices(999_999_999_990, all_to_all="1MB")
    with pytest.raises(fb.ModelError, match="Say what is exchanged"):
        slices(128)
    with pytest.raises(fb.ModelError) as error:
        slices(128, rings={8: "1Gb/s", 1: "1MB"}, all_to_all="5", capacity="400")
    said = str(error.value)
    assert all(
        f"`{name}` needs" in said for name in ("rings", "rings[8]", "all_to_all", "capacity")
    )
