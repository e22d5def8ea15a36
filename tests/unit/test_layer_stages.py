"""What `optimize.stages` promises, one test per promise."""

import inspect
import itertools
import json

import numpy as np
import pytest

import fabric as fb
from fabric import optimize


def brute(cost, extra, m, held=None, room=None):
    """Return the least seconds over all divisions of layers into stages."""
    stages, layers = cost.shape
    best = np.inf
    for ends in itertools.combinations(range(1, layers), stages - 1):
        edges = [0, *ends, layers]
        spans = [slice(a, b) for a, b in itertools.pairwise(edges)]
        if held is not None and any(held[s, span].sum() > room[s] for s, span in enumerate(spans)):
            continue
        times = [cost[s, span].sum() + extra[s] for s, span in enumerate(spans)]
        best = min(best, sum(times) + (m - 1) * max(times))
    return best


@pytest.mark.parametrize("seed", range(60))
def test_stages_are_as_good_as_the_best_of_all_divisions(seed):
    rng = np.random.default_rng(seed)
    stages = int(rng.integers(1, 5))
    layers = int(rng.integers(stages, 15))
    m = int(rng.integers(1, 17))
    cost = rng.uniform(0.5, 2, (1, layers)) * rng.choice([1.0, 1.7], (stages, 1))
    extra = rng.uniform(0, 2, stages) * (rng.random(stages) < 0.5)
    report = optimize.stages(cost, stages=stages, microbatches=m, extra=extra)
    assert report.objective == pytest.approx(brute(cost, extra, m), rel=1e-12)
    assert sum(report.layers) == layers
    assert len(report.layers) == stages
    ends = np.cumsum(report.layers)
    times = [
        cost[s, a - n : a].sum() + extra[s]
        for s, (a, n) in enumerate(zip(ends, report.layers, strict=True))
    ]
    assert report.objective == pytest.approx(sum(times) + (m - 1) * max(times), rel=1e-12)
    assert report.slowest == pytest.approx(max(times))
    assert report.uniform >= report.objective * (1 - 1e-12)
    assert (np.asarray(report.history.bound) <= report.objective * (1 + 1e-12)).all()
    assert (np.diff(report.history.bound) >= -1e-12 * report.objective).all()


@pytest.mark.parametrize("seed", range(20))
def test_stages_keep_to_their_memory(seed):
    rng = np.random.default_rng(seed)
    cost, held = rng.uniform(0.5, 2, (3, 10)), rng.uniform(1, 2, (3, 10))
    room = rng.uniform(4, 9, 3)
    want = brute(cost, np.zeros(3), 8, held, room)
    ask = lambda: optimize.stages(cost, stages=3, microbatches=8, layer_bytes=held, capacity=room)
    if np.isfinite(want):
        assert ask().objective == pytest.approx(want, rel=1e-12)
    else:
        with pytest.raises(fb.InfeasibleError, match="No division of 10 layers over 3 stages"):
            ask()


def test_small_layers_behind_a_huge_one_count_in_memory():
    ask = lambda held, room: optimize.stages(
        [1.0] * 4, stages=2, microbatches=1, layer_bytes=held, capacity=room
    )
    assert ask([1e18, 1.0, 1.0, 1.0], [1e18, 3.0]).layers[1] <= 3
    with pytest.raises(fb.InfeasibleError, match="No division"):
        ask([1e18, 1.0, 1.0, 1.0], [1e18, 0.5])
    # Two layers each do not fit, so there is no uniform division to compare with.
    tight = ask([3.0, 1.0, 1.0, 1.0], [3.0, 3.0])
    assert (tight.layers, tight.uniform) == ((1, 3), None)


def test_the_text_says_how_much_less_than_uniform_it_takes():
    report = optimize.stages([1.0, 1.0, 1.0, 9.0], stages=2, microbatches=8)
    assert (report.objective, report.uniform) == (75.0, 82.0)
    assert "8.5% less than uniform" in str(report)
    assert "0 s" in str(optimize.stages([0.0] * 3, stages=2, microbatches=2))


def test_equal_layers_are_divided_evenly():
    report = optimize.stages(np.ones(96), stages=16, microbatches=64)
    assert set(report.layers) == {6}
    assert report.objective == report.uniform == 6 * 16 + 63 * 6
    assert "proved" in str(report)
    assert json.loads(json.dumps(report.as_dict()))["layers"] == [6] * 16


def test_a_pipeline_of_two_speeds_gives_the_slow_half_less():
    # 2 x slower GPUs in the second half: 8 + 4 layers are 8 s on both.
    speed = np.ones((2, 12)) * [[1.0], [2.0]]
    report = optimize.stages(speed, stages=2, microbatches=32)
    assert report.layers == (8, 4)
    assert report.uniform / report.objective > 1.4


def test_a_report_is_hashed_and_options_may_be_numbers_of_numpy():
    report = inspect.unwrap(optimize.stages)(
        np.ones(4), stages=np.int64(2), microbatches=np.int64(4), extra=np.float32([0, 1])
    )
    assert len({report, report}) == 1
    assert json.loads(json.dumps(report.as_dict()))["certified"] is True


def test_stages_refuse_with_all_faults(monkeypatch):
    with pytest.raises(fb.ModelError) as raised:
        optimize.stages([1.0, -1.0], stages=2, microbatches=0, extra=[1.0], layer_bytes=[1, 1])
    for said in ("`layer_seconds`", "microbatches", "`extra` needs shape (2,)", "go together"):
        assert said in str(raised.value)
    with pytest.raises(fb.ModelError) as raised:
        optimize.stages([1.0, -1.0], stages=0, microbatches=0, extra=[1.0, 2.0])
    for said in ("`stages`", "`layer_seconds`", "microbatches"):
        assert said in str(raised.value)
    assert "shape" not in str(raised.value)
    with pytest.raises(fb.InfeasibleError, match="at most 3 stages"):
        optimize.stages([1.0] * 3, stages=4, microbatches=1)
    for wrong in ([[1.0, 2.0], [3.0]], "x", [], 3.0, None):
        with pytest.raises(fb.ModelError, match="`layer_seconds` needs"):
            inspect.unwrap(optimize.stages)(wrong, stages=1, microbatches=1)
    monkeypatch.setattr("fabric._memory.available", lambda: 2.0**20)
    with pytest.raises(fb.InfeasibleError, match="2,000 layers needs about"):
        optimize.stages([1.0] * 2000, stages=8, microbatches=1)
