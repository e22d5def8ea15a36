"""What `optimize.layout` and `optimize.stages` promise, one test per promise."""

import itertools
import json

import numpy as np
import pytest

import fabric as fb
from fabric import hardware, optimize
from fabric.optimize._best_first import Best, Front, best_first
from fabric.optimize._layout_space import Space, orders_of
from fabric.optimize._layout_wires import Degrees, Fabric

# One fabric for all: two servers, four uplinks of a quarter of what they need.
GBS, SEQ = 16, 4096
LIMITS = {"vpp": 1, "cp": 2, "mb": 2}


@pytest.fixture(scope="module")
def network():
    nics = fb.topologies.leaf_spine(
        leaves=2, spines=4, hosts_per_leaf=8, capacity="400Gb/s", uplink_capacity="100Gb/s"
    )
    return fb.topologies.attach_servers(nics, hardware.server("dgx-h100"), nics.hosts.reshape(2, 8))


@pytest.fixture(scope="module")
def model():
    return fb.Model.listed("llama-3.1-8b")


def search(network, model, **changes):
    asked = {"gbs": GBS, "seq": SEQ, "limits": LIMITS, "top": 3} | changes
    return optimize.layout(network, model, **asked)


@pytest.fixture(scope="module")
def found(network, model):
    return search(network, model)


# The table


def test_ranks_of_the_usual_order_are_those_of_a_layout():
    layout = fb.Layout(tp=2, cp=3, dp=4, pp=5, gbs=4, seq=6)
    slots = np.arange(120)
    assert Degrees(2, 3, 4, 5).ranks(slots).tolist() == slots.tolist()
    # With dp fastest the neighbours on the fabric are the members of a dp group.
    gpu_of = Degrees(2, 3, 4, 5, ("dp", "tp", "cp", "pp")).ranks(slots)
    groups = np.sort(gpu_of[layout.groups("dp")], axis=1)
    assert (np.diff(groups, axis=1) == 1).all()


def test_orders_of_ranks_are_read_from_words():
    assert orders_of("tp-dp-cp-pp") == (("tp", "dp", "cp", "pp"),)
    assert len(set(orders_of("all"))) == 24
    assert orders_of(["tp-cp-dp-pp", ("pp", "dp", "cp", "tp")])[1] == ("pp", "dp", "cp", "tp")


def test_orders_that_differ_in_dimensions_of_size_one_are_one_row(network, model):
    every = search(network, model, rank_orders="all", top=1).space
    seen = {}
    for row in range(every.n_rows):
        layout, order = every.layout(row), every.degrees[every.degrees_of[row]].order
        wide = tuple(name for name in order if getattr(layout, name) > 1)
        key = (str(layout), wide)
        assert key not in seen
        seen[key] = row
    assert every.n_rows + sum(every.pruned.values()) == every.candidates
    assert every.pruned["the same as another rank order"] > 0


def test_one_row_can_be_asked_for(found):
    why = found.space.reason
    assert why("tp8 dp2 zero1 gbs16 seq4096") is None
    assert (
        why("tp16 pp1 gbs16 seq4096 zero1") == "zero with one rank that shares is the same as zero0"
    )
    assert why("pp16 vpp4 gbs16 seq4096") == "beyond a limit that was set"
    assert why("tp2 dp8 mb4 gbs16 seq4096") == "beyond a limit that was set"
    assert why("tp1 dp16 gbs16 seq4096") == "memory"
    assert why("tp8 dp2 gbs16 seq4096 recompute=selective").startswith("selective recompute")
    with pytest.raises(fb.ModelError, match="`gbs` 16, but the layout has 32"):
        why("tp8 dp2 gbs32 seq4096")
    with pytest.raises(fb.ModelError) as raised:
        why("tp8 gbs16 seq4096", rank_order=("dp", "tp", "cp", "pp"), recompute_layers=3)
    for said in ("table is of 16 GPUs", "'dp-tp-cp-pp' was not asked for", "is no choice here"):
        assert said in str(raised.value)


def test_recompute_counts_are_layers_of_every_chunk():
    model, profile = fb.Model.listed("llama-3.1-8b"), hardware.profile("megatron-core-h100")
    space = Space.of(model, profile, capacity=200e9, gpus=[4], gbs=8, seq=4096, recompute="counts")
    counts = {}
    for row in range(space.n_rows):
        layout = space.layout(row)
        if (layout.pp, layout.tp, layout.mb, layout.zero) == (4, 1, 1, 0):
            counts.setdefault(layout.vpp, []).append(space.recomputed_layers(row))
    assert counts[1] == list(range(9))
    assert counts[4] == [0, 4, 8]


# The search


def test_the_report_is_certified_and_says_what_it_cost(found):
    assert found.certified
    assert found.gap == 0
    assert found.objective == found.best.step_time == found.bound
    assert 0 < found.evaluations <= found.legal / 4
    assert 0 < found.solves <= len(found.space.degrees)
    assert found.legal == found.space.n_rows
    times = [one.step_time for one in found.top]
    assert times == sorted(times)
    assert len(found.top) == 3
    assert found.history.objective[-1] == found.objective
    assert (np.diff(found.history.bound) >= 0).all()
    assert found.ideal.step_time >= found.objective


def test_the_best_layout_has_that_step(network, model, found):
    best = found.best
    report = fb.step(network, model, best.layout, best.placement, by=None)
    assert best.step_time == pytest.approx(report.step_time, rel=1e-11)
    assert best.margin == pytest.approx(report.memory.margin, rel=1e-11)
    assert best.tokens_per_s == pytest.approx(report.tokens_per_s, rel=1e-11)
    assert best.gpu_hours == pytest.approx(report.gpu_hours(1e9), rel=1e-11)


def test_json_and_text_hold_the_answer(found):
    answer = json.loads(json.dumps(found.as_dict()))
    assert answer["schema"] == "fabric.search/1"
    assert answer["top"][0]["step_time_s"] == found.objective
    assert answer["legal"] + sum(answer["pruned"].values()) == answer["candidates"]
    assert str(found.best.layout) in str(found)
    assert "gap 0.00%" in str(found)


def test_megatron_is_told_all_sizes(network):
    model = fb.Model.listed("llama-3.1-70b")
    choice = optimize.Choice(
        fb.Layout.parse(
            "tp8 sp pp4 vpp5 dp2 cp2 zero1 mb1 gbs64 seq8192 recompute=full"
        ),
        "tp-cp-pp-dp", 10, fb.Placement.first(network, 16), 1.0, 0.1,
    )  # fmt: skip
    assert choice.megatron(model.layers).split(" --") == [
        "--tensor-model-parallel-size 8", "sequence-parallel", "pipeline-model-parallel-size 4",
        "num-layers-per-virtual-pipeline-stage 4", "context-parallel-size 2",
        "use-distributed-optimizer", "micro-batch-size 1", "global-batch-size 64",
        "seq-length 8192", "bf16", "use-tp-pp-dp-mapping",
        "recompute-granularity full", "recompute-method block", "recompute-num-layers 2",
    ]  # fmt: skip
    assert "10 of" not in str(choice)
    assert "of 10 layers a stage" in str(choice)


def test_a_tolerance_spares_work_and_is_kept(network, model, found):
    loose = search(network, model, tolerance=0.2)
    assert loose.objective <= 1.2 * found.objective
    assert loose.gap <= 0.2
    assert loose.certified
    assert loose.evaluations <= found.evaluations


def test_a_margin_of_memory_is_kept(network, model, found):
    roomy = search(network, model, least_margin=0.4, top=100)
    assert min(one.margin for one in roomy.top) >= 0.4
    assert roomy.objective >= found.objective
    # Nothing else is lost.
    kept = (found.space.margin[found.space.shape_of] >= 0.4).sum()
    assert roomy.legal == kept
    tight = str(found.space.layout(int(found.space.margin[found.space.shape_of].argmin())))
    assert found.space.reason(tight) is None
    assert roomy.space.reason(tight) == "memory"


def test_the_cheapest_number_of_gpus_need_not_be_the_fastest(network, model):
    fast = search(network, model, gpus=[4, 16])
    cheap = search(network, model, gpus=[4, 16], objective="cost")
    assert fast.best.gpus == 16
    assert cheap.best.gpus == 4
    assert cheap.objective == pytest.approx(cheap.best.step_time * 4)
    assert cheap.best.gpu_hours < fast.best.gpu_hours


def test_the_same_call_gives_the_same_answer(network, model, found):
    again = search(network, model)
    told = lambda report: {k: v for k, v in report.as_dict().items() if k != "seconds"}
    assert told(again) == told(found)


def test_a_killed_search_goes_on_and_ends_the_same(network, model, found, tmp_path, monkeypatch):
    solved = []
    exact = Fabric.exact

    def dies(self, *args, **kwargs):
        if len(solved) == 2:
            raise KeyboardInterrupt
        solved.append(args)
        return exact(self, *args, **kwargs)

    monkeypatch.setattr("fabric.runs.Checkpoint.due", property(lambda self: True))
    monkeypatch.setattr(Fabric, "exact", dies)
    with pytest.raises(KeyboardInterrupt):
        search(network, model, checkpoint=tmp_path / "kept")
    counted = []
    monkeypatch.setattr(
        Fabric, "exact", lambda self, *a, **k: counted.append(a) or exact(self, *a, **k)
    )
    monkeypatch.setattr(Fabric, "least", lambda *_: pytest.fail("bounds were not kept"))
    resumed = search(network, model, checkpoint=tmp_path / "kept")
    assert len(counted) == found.solves - 2
    told = lambda report: {k: v for k, v in report.as_dict().items() if k != "seconds"}
    assert told(resumed) == told(found)
    with pytest.raises(fb.ModelError, match="is of another problem"):
        search(network, model, checkpoint=tmp_path / "kept", gbs=32)


def scored(truth):
    return lambda key, rows: truth[rows]


@pytest.mark.parametrize("top", [1, 5])
def test_best_first_is_right_on_any_bounds(top):
    rng = np.random.default_rng(top)
    for _ in range(30):
        truth = rng.random(400) + 0.5
        lower = truth * rng.choice([0.6, 0.9, 1.0], 400)
        keys = rng.integers(0, 20, 400)
        best = Best(top, 0.0)
        found = best_first(lower, keys, scored(truth), best)
        np.testing.assert_array_equal(best.values, np.sort(truth)[:top])
        assert found.bound == truth.min()
        merit = rng.integers(0, 10, 400) / 10
        front = Front(merit, 0.0)
        best_first(lower, keys, scored(truth), front)
        want = {m: truth[merit >= m].min() for m in np.unique(merit)}
        got = {m: front.values[merit[front.rows] >= m].min() for m in np.unique(merit)}
        assert got == want
        assert (np.diff(front.values) < 0).all()


def test_the_bound_of_a_tolerance_is_below_every_value():
    rng = np.random.default_rng(0)
    for _ in range(50):
        truth = rng.random(300) + 0.5
        lower = truth * rng.uniform(0.5, 1.0, 300)
        best = Best(2, 0.1)
        found = best_first(lower, np.arange(300), scored(truth), best)
        assert found.bound <= truth.min() <= best.values[0] <= found.bound * 1.1 * (1 + 1e-12)


# What is refused


def test_what_does_not_fit_says_why_and_what_next(network):
    with pytest.raises(fb.InfeasibleError) as raised:
        search(network, fb.Model.listed("llama-3.1-405b"), gbs=126, limits=None)
    said = str(raised.value)
    assert "No layout of 'llama-3.1-405b' on 16 GPUs suits and fits" in said
    assert "do not fit in the memory of a h100-sxm" in said
    assert "pp x vpp does not divide the layers" in said


def test_limits_that_leave_nothing_are_named(network, model):
    with pytest.raises(fb.InfeasibleError, match="beyond a limit that was set"):
        search(network, model, limits={"tp": 1, "pp": 1, "dp": 1, "cp": 1})


def test_more_gpus_than_there_are_is_infeasible(network, model):
    with pytest.raises(fb.InfeasibleError, match="`gpus=32`, but the network has 16"):
        search(network, model, gpus=32)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective": "tiem"}, "Did you mean 'time'"),
        ({"recompute": "some"}, "modes"),
        ({"limits": {"ep": 8}}, "`limits={'ep'"),
        ({"rank_orders": "tp-dp"}, "needs orders of tp, cp, dp and pp"),
        ({"top": 0}, "top"),
        ({"tolerance": -0.1}, "share from 0"),
        ({"least_margin": 1.5}, "`least_margin` needs a share"),
        ({"gpus": []}, "one number at least"),
        ({"seq": 0}, "seq"),
        ({"dtype": "int8"}, "int8"),
    ],
)
def test_wrong_arguments_are_named(network, model, changes, said):
    with pytest.raises(fb.ModelError) as raised:
        search(network, model, **changes)
    assert said in str(raised.value)


def test_all_wrong_arguments_are_told_at_once(network):
    with pytest.raises(fb.ModelError) as raised:
        search(network, "llama", objective="speed", top=-1)
    for said in ("`layout(model=...)` needs", "objective='speed'", "top"):
        assert said in str(raised.value)


def test_a_placement_has_as_many_ranks_as_are_used(network, model):
    with pytest.raises(fb.ModelError, match="`placement` has 8 ranks"):
        search(network, model, placement=fb.Placement.first(network, 8))
    # GPUs in reverse are as good on this fabric.
    back = fb.Placement(network.hosts[::-1].copy())
    assert search(network, model, placement=back).objective == pytest.approx(
        search(network, model).objective
    )


# Layers per stage


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


def test_stages_refuse_with_all_faults():
    with pytest.raises(fb.ModelError) as raised:
        optimize.stages([1.0, -1.0], stages=2, microbatches=0, extra=[1.0], layer_bytes=[1, 1])
    for said in ("`layer_seconds`", "microbatches", "`extra` needs shape (2,)", "go together"):
        assert said in str(raised.value)
    with pytest.raises(fb.InfeasibleError, match="at most 3 stages"):
        optimize.stages([1.0] * 3, stages=4, microbatches=1)
