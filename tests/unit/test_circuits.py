"""What `optimize.circuits` promises, one test per promise."""

import itertools
import json
import time

import numpy as np
import pytest

import fabric as fb
from experiments.optimizers.circuits import traffic
from fabric.optimize import _circuits_search, circuits
from fabric.optimize._mesh_lp import price_bound
from fabric.optimize._rounding import applied, exchanges, rounded
from fabric.runs import Checkpoint

# Blocks and effort of every drawn problem, so that the file compiles once.
BLOCKS = 6
QUICK = {"steps": 150, "scores": 40, "roundings": 4}


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

    save, times = Checkpoint.save, []

    def killed(self, state):
        save(self, state)
        times.append(len(state))
        if len(times) in (1, 5, 18):  # in the descent, in the search, and in the control
            raise KilledError

    file = tmp_path / "run.ckpt"
    monkeypatch.setattr(Checkpoint, "due", property(lambda _: True))
    monkeypatch.setattr(Checkpoint, "save", killed)
    asked = {"checkpoint": file, **QUICK}
    for _ in range(3):
        with pytest.raises(KilledError):
            circuits(traffic(BLOCKS, 0), 8, 1.0, **asked)
    resumed = circuits(traffic(BLOCKS, 0), 8, 1.0, **asked)
    assert times[0] < times[4] < times[17]
    assert resumed.objective == found.objective
    assert resumed.control == found.control
    np.testing.assert_array_equal(resumed.circuits, found.circuits)
    np.testing.assert_array_equal(resumed.splits, found.splits)
    assert resumed.history.as_dict() == found.history.as_dict()
    today = np.zeros((4, BLOCKS, BLOCKS), int)
    for other in (
        {"ports": 16}, {"steps": 151}, {"scores": 41}, {"roundings": 5}, {"seed": 1},
        {"current": today}, {"current": today[0]}, {"demand": traffic(BLOCKS, 1)},
    ):  # fmt: skip
        given = {"demand": traffic(BLOCKS, 0), "ports": 8, "rate": 1.0} | asked | other
        with pytest.raises(fb.ModelError, match="of another problem"):
            circuits(**given)
    # What is judged afterwards is no part of the search.
    after = {"reconfiguration": 1.0, "phase": 9.0, "tolerance": 1e-2, "switches": 2}
    judged = circuits(traffic(BLOCKS, 0), 8, 2.0, **asked, **after)
    np.testing.assert_array_equal(judged.circuits, found.circuits)
    np.testing.assert_allclose(judged.objective, found.objective / 2, rtol=1e-12)


def test_no_more_circuits_are_scored_than_asked_for():
    one = circuits(traffic(BLOCKS, 0), 8, 1.0, steps=150, scores=1, roundings=4)
    assert one.evaluations == 1
    assert np.isfinite(one.objective)


def test_pairs_of_next_to_no_traffic_keep_a_way():
    demand = traffic(BLOCKS, 0)
    demand[0, 3], demand[3, 0] = 1e-9, 1e-13
    one = circuits(demand, 8, 1.0, **QUICK)
    np.testing.assert_allclose(one.splits.sum(1), demand > 0, rtol=1e-12)
    np.testing.assert_allclose(one.objective, largest_utilisation(demand, one), rtol=1e-12)


def test_more_blocks_than_programmes_serve_are_scored_by_descent_below_a_price_bound():
    demand = traffic(18, 0, 1.0)
    one = circuits(demand, 34, 1.0, steps=150, scores=8)
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


def test_a_block_without_ports_leaves_a_price_bound_as_it_is(found):
    demand, price = np.zeros((4, 4)), np.ones((4, 4))
    demand[:3, :3] = 1 - np.eye(3)
    price[3] = price[:, 3] = 0
    np.testing.assert_allclose(price_bound(demand, price, np.array([2, 2, 2, 0])), 1, rtol=1e-9)


# Rounding and exchanges.


def rewirings(count, ports):
    """All circuits that arise from opening up to two cables and closing as many as it takes."""
    n = len(count)
    pairs = list(itertools.combinations(range(n), 2))
    found = set()
    for opened in itertools.chain(*(itertools.combinations(pairs, k) for k in range(3))):
        x = count.copy()
        for a, b in opened:
            x[a, b] -= 1
            x[b, a] -= 1
        if x.min() < 0:
            continue
        spare = ports - x.sum(1)
        for closed in itertools.chain(*(itertools.combinations(pairs, k) for k in range(3))):
            y, ends = x.copy(), np.zeros(n, int)
            for a, b in closed:
                y[a, b] += 1
                y[b, a] += 1
                ends[[a, b]] += 1
            if set(closed) & set(opened) or (ends > spare).any():
                continue
            found.add(y.tobytes())
    return found


@pytest.mark.parametrize("ports", [[4, 4, 4, 4, 4], [5, 4, 4, 4, 5], [4, 4, 6, 4, 4]])
def test_exchanges_are_each_listed_once_and_stay_within_the_ports(ports):
    count = np.array(
        [[0, 2, 1, 1, 0], [2, 0, 0, 1, 1], [1, 0, 0, 1, 2], [1, 1, 1, 0, 1], [0, 1, 2, 1, 0]]
    )
    draw = np.random.default_rng(0)
    price = draw.random((5, 5))
    price = (price + price.T) * (1 - np.eye(5))
    moves = exchanges(count, np.array(ports), price, draw)
    after = [applied(count, move).tobytes() for move in moves]
    assert len(after) == len(set(after)) > 10
    assert set(after) <= rewirings(count, np.array(ports)) - {count.tobytes()}
    if set(ports) == {4}:  # then every change opens two cables and closes two
        assert set(after) == rewirings(count, np.array(ports)) - {
            x for x in rewirings(count, np.array(ports))
            if np.frombuffer(x, int).sum() < count.sum()
        } - {count.tobytes()}  # fmt: skip
    gain = [sum(more * price[a, b] for a, b, more in move) for move in moves]
    assert (np.diff(gain) <= 1e-12).all()
    spare = np.array(ports) - count.sum(1)
    assert (spare.sum() > 1) == any(sum(more for *_, more in move) == 1 for move in moves)


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


def test_ports_without_number_cost_nothing_without_transit():
    demand = np.array([[0, 3, 1], [3, 0, 0], [1, 0, 0]])
    one = circuits(demand, 10**12, 1.0, transit=False)
    np.testing.assert_allclose(one.objective, 4 / 10**12, rtol=1e-9)


# Switches.


def test_the_lines_of_a_patch_say_what_stays_what_is_set_and_what_goes(found):
    first = circuits(traffic(BLOCKS, 0), 8, 1.0, switches=4, **QUICK)
    assert all(line["set"] == line["circuits"] for line in first.patch_list())
    other = circuits(traffic(BLOCKS, 5), 8, 1.0, current=first.patch, **QUICK)
    was, now = np.zeros_like(first.patch), np.zeros_like(first.patch)
    for line in other.patch_list():
        where = line["switch"], line["north"], line["south"]
        was[where] = line["kept"] + line["removed"]
        now[where] = line["kept"] + line["set"]
        assert line["circuits"] == now[where]
        assert not (line["set"] and line["removed"])
    np.testing.assert_array_equal(was, first.patch)
    np.testing.assert_array_equal(now, other.patch)
    assert sum(line["set"] for line in other.patch_list()) == other.rewires
    pairs = circuits(traffic(BLOCKS, 5), 8, 1.0, current=first.circuits, **QUICK).patch_list()
    assert sum(line["kept"] + line["removed"] for line in pairs) == first.circuits.sum() // 2
    apart = circuits(traffic(BLOCKS, 5), 8, 1.0, current=first.circuits, switches=4, **QUICK)
    assert set(apart.patch_list()[0]) == {"switch", "north", "south", "circuits"}


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
    np.testing.assert_array_equal(other.patch.sum(0) + other.patch.sum(0).T, other.circuits)
    assert max(other.patch.sum(1).max(), other.patch.sum(2).max()) <= 1
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
        circuits([[1, -1], [0, 0]], [1, 2, 3], "400", seed=-1, phase="5 GB", reconfiguration=-1.0)
    said = str(caught.value)
    assert all(f"`{name}` needs" in said for name in ("rate", "phase", "reconfiguration"))
    assert "`demand` needs byte/s of 0 or more but not so at 'block0'" in said
    assert "0 on the diagonal, for no block sends to itself, but not so at 'block0'" in said
    assert "`ports` needs one number, or one per block (2), but has shape (3,)" in said
    assert "`seed` needs a whole number of 0 or more" in said


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"ports": 0}, fb.InfeasibleError, "`ports` is 0 at blocks that have traffic: 'block0'"),
        ({"ports": 1}, fb.InfeasibleError, "'block0' has traffic with 5 others, and `ports` of 1 "
         "reach 1 over at most two circuits. Use more `ports`"),
        ({"ports": 4, "transit": False}, fb.InfeasibleError, "`ports` of 4 reach 4 directly. Use "
         "more `ports`, or `transit=True`"),
        ({"current": np.zeros((6, 6), int), "reconfiguration": 9.0, "phase": 9.0},
         fb.InfeasibleError, "circuits of today .* no time for others"),
        ({"phase": 0.0}, fb.ModelError, "`phase` needs more than 0"),
        ({"tolerance": float("nan")}, fb.ModelError, "`tolerance` needs a share"),
        ({"tolerance": True}, fb.ModelError, "`tolerance` needs a share"),
        ({"current": np.zeros((0, 6, 6), int)}, fb.ModelError, "a patch of no switch"),
        ({"current": np.eye(6, dtype=int) * np.array([1, -1])[:, None, None]}, fb.ModelError,
         "0 circuits or more, but not so at switches '1'"),
        ({"rate": 1e-300}, fb.ModelError, "beyond what numbers hold"),
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


def test_a_report_whose_change_never_pays_is_json_and_can_be_a_key(found):
    asked = {"current": found.circuits, "reconfiguration": "1ms", "phase": "1s", **QUICK}
    same = circuits(traffic(BLOCKS, 0), 8, 1.0, tolerance=np.float64(0.5), **asked)
    assert same.break_even == np.inf
    told = json.loads(json.dumps(same.as_dict(), allow_nan=False))
    assert (told["break_even_s"], told["reconfigured"]) == (None, False)
    assert len({same, found}) == 2
    assert same != found


def test_the_time_of_the_control_does_not_count(monkeypatch):
    search, pause = _circuits_search._search, 0.5

    def slow(*given):
        time.sleep(pause * (given[-1] == "control"))
        return search(*given)

    monkeypatch.setattr(_circuits_search, "_search", slow)
    begun = time.monotonic()
    one = circuits(traffic(BLOCKS, 0), 8, 1.0, **QUICK)
    assert one.seconds <= time.monotonic() - begun - pause


def test_a_demand_that_is_no_matrix_of_numbers_is_refused():
    with pytest.raises(fb.ModelError, match="`demand` needs numbers, in byte/s"):
        circuits([[0, "4"], ["4", 0]], 2, 1.0)
    with pytest.raises(fb.ModelError, match="a row and a column per block"):
        circuits([[0, 1], [1]], 2, 1.0)
    with pytest.raises(fb.InfeasibleError, match=r"`circuits` of 2,000 blocks needs about .*B of"):
        circuits(1 - np.eye(2000), 2, 1.0)


def test_circuits_that_are_not_found_are_not_called_impossible():
    # One port stays free, and then some block is too far from another: no bound on reach says so.
    ports, said = [3, 2, 2, 2, 2, 2], r"No circuits were found .* `scores` or `prove`"
    with pytest.raises(fb.InfeasibleError, match=said):
        circuits(1.0 - np.eye(BLOCKS), ports, 1.0, **QUICK)
