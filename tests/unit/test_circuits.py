"""What `optimize.circuits` and `optimize.slices` promise, one test per promise."""

import itertools
import json

import numpy as np
import pytest

import fabric as fb
from fabric.optimize import circuits, slices
from fabric.optimize._matchings import patched
from fabric.optimize._mesh_lp import price_bound
from fabric.optimize._rounding import rounded
from fabric.runs import Checkpoint

# Blocks and effort of every drawn problem, so that the file compiles once.
BLOCKS = 6
QUICK = {"steps": 150, "scores": 40, "roundings": 4}


def traffic(blocks, seed, spread=2.0):
    """Symmetric traffic whose rows and columns all sum to 1."""
    demand = np.exp(spread * np.random.default_rng(seed).standard_normal((blocks, blocks)))
    demand = demand + demand.T
    np.fill_diagonal(demand, 0)
    for _ in range(3000):
        demand /= np.sqrt(np.outer(demand.sum(1), demand.sum(0)))
    return demand


def largest_utilisation(demand, found):
    """The objective from its definition, pair by pair and way by way."""
    load = np.zeros_like(demand)
    for i, k, j in itertools.product(range(len(demand)), repeat=3):
        amount = demand[i, j] * found.splits[i, k, j]
        for a, b in [(i, j)] if k == i else [(i, k), (k, j)]:
            load[a, b] += amount
    used = load > 0
    return (load[used] / (found.rate * found.circuits[used])).max()


@pytest.fixture(scope="module")
def found():
    return circuits(traffic(BLOCKS, 0), 8, 1.0, **QUICK)


def test_the_objective_is_the_largest_load_over_capacity_of_the_splits(found):
    demand = traffic(BLOCKS, 0)
    np.testing.assert_allclose(found.objective, largest_utilisation(demand, found), rtol=1e-12)
    sent = found.splits.sum(1)
    np.testing.assert_allclose(sent[demand > 0], 1, rtol=1e-9)
    assert found.splits.min() >= 0


def test_circuits_are_whole_symmetric_and_within_the_ports(found):
    np.testing.assert_array_equal(found.circuits, found.circuits.T)
    assert found.circuits.dtype.kind == "i"
    assert found.circuits.sum(1).max() <= 8
    assert not np.diag(found.circuits).any()


def test_bound_relaxed_whole_and_control_are_in_order(found):
    assert found.relaxed_bound <= found.bound <= found.objective
    assert found.relaxed_bound <= found.relaxed * (1 + 1e-9)
    assert found.objective <= found.control
    assert found.objective < found.uniform
    assert found.gap == found.objective / found.bound - 1


def test_the_network_has_the_circuits(found):
    net = found.network(latency="1us")
    count = np.zeros_like(found.circuits)
    np.add.at(count, (net.labels.src, net.labels.dst), 1)
    np.testing.assert_array_equal(count, found.circuits)
    np.testing.assert_array_equal(np.asarray(net.capacity), 1.0)


def test_pairs_that_talk_only_to_each_other_get_all_ports():
    demand = np.zeros((BLOCKS, BLOCKS))
    a = np.arange(BLOCKS)
    demand[a, a ^ 1] = 5e9
    one = circuits(demand, 4, "1GB/s", **QUICK)
    np.testing.assert_array_equal(one.circuits, np.where(demand > 0, 4, 0))
    np.testing.assert_allclose([one.objective, one.bound], 1.25, rtol=1e-9)
    assert one.certified


def test_even_traffic_over_even_ports_is_carried_direct():
    demand = 1 - np.eye(BLOCKS)
    one = circuits(demand, 2 * (BLOCKS - 1), 1.0, **QUICK)
    np.testing.assert_allclose([one.objective, one.uniform, one.bound], 0.5, rtol=1e-9)


def test_traffic_and_rate_scale_the_answer_and_change_no_circuit(found):
    one = circuits(traffic(BLOCKS, 0) * 3e9, 8, "1GB/s", **QUICK)
    np.testing.assert_array_equal(one.circuits, found.circuits)
    np.testing.assert_allclose(one.objective, 3 * found.objective, rtol=1e-6)


def test_blocks_of_different_ports_are_served_within_them():
    ports = np.array([0, 4, 8, 8, 4, 2])  # the first block is switched off
    demand = np.outer(ports, ports) * (1.0 - np.eye(BLOCKS))
    one = circuits(demand, ports, 1.0, **QUICK)
    assert (one.circuits.sum(1) <= ports).all()
    assert np.isfinite(one.objective)
    assert one.objective >= one.bound


def test_the_same_seed_gives_the_same_answer(found):
    again = circuits(traffic(BLOCKS, 0), 8, 1.0, **QUICK)
    assert again.objective == found.objective
    np.testing.assert_array_equal(again.splits, found.splits)
    np.testing.assert_array_equal(again.circuits, found.circuits)
    np.testing.assert_array_equal(again.history.objective, found.history.objective)


def test_a_killed_run_goes_on_to_the_same_answer(found, tmp_path, monkeypatch):
    class KilledError(Exception):
        pass

    save = Checkpoint.save

    def killed(self, state):
        save(self, state)
        raise KilledError

    file = tmp_path / "run.ckpt"
    monkeypatch.setattr(Checkpoint, "due", property(lambda _: True))
    monkeypatch.setattr(Checkpoint, "save", killed)
    for _ in range(2):
        with pytest.raises(KilledError):
            circuits(traffic(BLOCKS, 0), 8, 1.0, checkpoint=file, **QUICK)
    monkeypatch.setattr(Checkpoint, "save", save)
    resumed = circuits(traffic(BLOCKS, 0), 8, 1.0, checkpoint=file, **QUICK)
    assert resumed.objective == found.objective
    np.testing.assert_array_equal(resumed.circuits, found.circuits)
    np.testing.assert_array_equal(resumed.history.steps, found.history.steps)
    with pytest.raises(fb.ModelError, match="of another problem"):
        circuits(traffic(BLOCKS, 1), 8, 1.0, checkpoint=file, **QUICK)


def test_more_blocks_than_programmes_serve_are_scored_by_descent_below_a_price_bound():
    demand = traffic(18, 0, 1.0)
    one = circuits(demand, 34, 1.0, steps=300, scores=8)
    np.testing.assert_allclose(one.objective, largest_utilisation(demand, one), rtol=1e-9)
    # No port can carry more than it has, which is the whole truth for traffic of equal sums.
    np.testing.assert_allclose(one.bound, 1 / 34, rtol=1e-6)
    assert one.bound <= one.relaxed <= 1.01 * one.bound
    assert one.objective <= min(one.control, one.uniform)
    assert one.circuits.sum(1).max() <= 34


def test_any_prices_give_a_bound_below_what_circuits_reach(found):
    demand, draw = traffic(BLOCKS, 0), np.random.default_rng(0)
    ports = np.full(BLOCKS, 8)
    for _ in range(20):
        price = draw.exponential(size=(BLOCKS, BLOCKS))
        assert 0 < price_bound(demand, price, ports) <= found.objective
    np.testing.assert_allclose(
        price_bound(demand, np.ones((BLOCKS, BLOCKS)), ports), 1 / 8, rtol=1e-9
    )


# Rounding.


def test_rounding_keeps_pairs_connected_that_floors_would_cut_off():
    # Block 3 is worth 0.3 circuits to everyone: floors and largest remainders pass it by.
    target = np.full((4, 4), 1.0)
    target[3] = target[:, 3] = 0.3
    np.fill_diagonal(target, 0)
    needs = ~np.eye(4, dtype=bool)
    ports = np.array([2, 2, 2, 2])
    for seed in range(10):
        count = rounded(target, ports, needs, 0.5, np.random.default_rng(seed))
        assert (count.sum(1) <= ports).all()
        two = count + count @ count
        assert (two[needs] > 0).all()


# One hop.


@pytest.mark.parametrize("seed", range(4))
def test_without_transit_the_optimum_is_that_of_trying_all_circuits(seed):
    draw = np.random.default_rng(seed)
    demand = draw.exponential(size=(4, 4)) * (1 - np.eye(4))
    ports, pairs = np.array([3, 4, 5, 4]), list(itertools.combinations(range(4), 2))
    best = np.inf
    for counts in itertools.product(range(1, 4), repeat=6):
        x = np.zeros((4, 4))
        for (a, b), count in zip(pairs, counts, strict=True):
            x[a, b] = x[b, a] = count
        if (x.sum(1) <= ports).all():
            off = ~np.eye(4, dtype=bool)
            best = min(best, (demand[off] / x[off]).max())
    one = circuits(demand, ports, 1.0, transit=False)
    np.testing.assert_allclose(one.objective, best, rtol=1e-9)
    np.testing.assert_allclose(one.bound, best, rtol=1e-9)
    assert one.certified
    assert one.control is None
    assert one.relaxed_bound <= best


# Switches.


def check_patch(patch, count, ports):
    each = ports // (2 * len(patch))
    np.testing.assert_array_equal(patch.sum(0) + patch.sum(0).T, count)
    assert (patch.sum(2) <= each).all()
    assert (patch.sum(1) <= each).all()
    assert patch.min() >= 0


@pytest.mark.parametrize("switches", [1, 2, 4])
def test_every_switch_has_at_most_its_ports_on_both_sides(found, switches):
    ports = np.full(BLOCKS, 8)
    patch = patched(found.circuits, ports, switches)
    check_patch(patch, found.circuits, ports)


def test_circuits_that_are_set_already_stay_where_they_are(found):
    ports = np.full(BLOCKS, 8)
    patch = patched(found.circuits, ports, 4)
    np.testing.assert_array_equal(patched(found.circuits, ports, 4, patch), patch)


def test_one_exchange_of_ends_rewires_no_more_than_its_two_circuits_when_sides_allow():
    ring = np.roll(np.eye(6, dtype=int), 1, 1)
    count, ports = 2 * (ring + ring.T), np.full(6, 4)
    today = np.stack([ring + 0 * ring, ring])
    check_patch(today, count, ports)
    new = count.copy()
    for a, b, more in ((0, 1, -1), (3, 4, -1), (0, 4, 1), (3, 1, 1)):
        new[a, b] += more
        new[b, a] += more
    patch = patched(new, ports, 2, today)
    check_patch(patch, new, ports)
    assert np.maximum(patch - today, 0).sum() == 2


def test_the_answer_lists_its_patch_and_counts_what_is_set_anew(found):
    demand = traffic(BLOCKS, 0)
    first = circuits(demand, 8, 1.0, switches=4, **QUICK)
    assert first.rewires == first.circuits.sum() // 2 == first.patch.sum()
    assert sum(line["circuits"] for line in first.patch_list()) == first.rewires
    again = circuits(demand, 8, 1.0, current=first.patch, **QUICK)
    assert again.rewires == np.maximum(again.patch - first.patch, 0).sum()
    if not again.reconfigured:
        assert again.rewires == 0
    other = circuits(traffic(BLOCKS, 5), 8, 1.0, current=first.patch, **QUICK)
    check_patch(other.patch, other.circuits, np.full(BLOCKS, 8))
    least = np.maximum(other.circuits - first.circuits, 0).sum() // 2
    assert least <= other.rewires < first.rewires
    assert sum(line["circuits"] for line in found.patch_list()) == found.circuits.sum() // 2


# Time.


def test_a_reconfiguration_happens_only_where_the_phase_is_long_enough():
    demand, uniform = (
        traffic(BLOCKS, 0),
        np.full((BLOCKS, BLOCKS), 2) - 2 * np.eye(BLOCKS, dtype=int),
    )
    asked = {"current": uniform, "reconfiguration": "10ms", **QUICK}
    long = circuits(demand, 10, 1.0, phase="1s", **asked)
    assert long.reconfigured
    np.testing.assert_allclose(long.effective, long.objective / (1 - 0.01), rtol=1e-12)
    pays = 0.01 / (1 - long.objective / long.current)
    np.testing.assert_allclose(long.break_even, pays, rtol=1e-12)
    short = circuits(demand, 10, 1.0, phase=0.99 * pays, **asked)
    assert not short.reconfigured
    assert short.rewires == 0
    assert short.effective == short.objective == short.current
    np.testing.assert_array_equal(short.circuits, uniform)
    assert circuits(demand, 10, 1.0, phase=1.01 * pays, **asked).reconfigured


# Refusals.


def test_all_faults_of_the_arguments_are_said_at_once():
    with pytest.raises(fb.ModelError) as caught:
        circuits([[1, -1], [0, 0]], [1, 2, 3], 1.0, seed=-1)
    said = str(caught.value)
    assert "`demand` needs byte/s of 0 or more but not so at 'block0'" in said
    assert "0 on the diagonal, for no block sends to itself, but not so at 'block0'" in said
    assert "`ports` needs one number, or one per block (2), but has shape (3,)" in said
    assert "`seed` needs a whole number of 0 or more" in said


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"ports": 0}, fb.InfeasibleError, "`ports` is 0 at blocks that have traffic: 'block0'"),
        ({"ports": 1}, fb.InfeasibleError, "(?s)without a way of at most two circuits: 'block.*"
         "reaches at most 1 others so. Use more `ports`"),
        ({"switches": 3}, fb.ModelError, r"multiples of 6, .*have 8 and others. Use "
         r"`switches=2 or 4`"),
        ({"reconfiguration": "10s", "phase": "5s"}, fb.InfeasibleError, "no traffic flows at all"),
        ({"current": np.eye(6, dtype=int)}, fb.ModelError, "0 on the diagonal"),
        ({"current": np.zeros((2, 2), int)}, fb.ModelError, r"needs shape \(6, 6\), or"),
        ({"rate": 0.0}, fb.ModelError, "`rate` needs more than 0"),
        ({"rate": "400"}, fb.ModelError, "has no unit"),
        ({"steps": 10}, fb.ModelError, "`steps` needs a whole number of 50 or more"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_the_next_step(options, error, said):
    asked = {"ports": 8, "rate": 1.0, **QUICK} | options
    with pytest.raises(error, match=said):
        circuits(traffic(BLOCKS, 0), **asked)


def test_the_report_is_json_and_reads_as_a_sentence(found):
    assert json.loads(json.dumps(found.as_dict()))["objective"] == found.objective
    assert str(found).startswith(f"utilisation {found.objective:.6g}, uniform mesh")


# Slices.


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
    with pytest.raises(fb.ModelError, match="Say what is exchanged"):
        slices(128)
