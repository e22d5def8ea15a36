"""What `optimize.layout` and `optimize.stages` promise, one test per promise."""

import inspect
import json
import warnings
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

import fabric as fb
from fabric import hardware, optimize
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


def space_of(model, **changes):
    asked = {"capacity": 80e9, "gpus": [16], "gbs": GBS, "seq": SEQ, "limits": LIMITS} | changes
    return Space.of(model, hardware.profile("megatron-core-h100"), **asked)


def test_orders_that_differ_in_dimensions_of_size_one_are_one_row(model):
    every = space_of(model, rank_orders=orders_of("all"), limits=LIMITS | {"mb": 1, "zero": 1})
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


def test_recompute_counts_are_layers_of_every_chunk(model):
    limits = {"tp": 1, "cp": 1, "dp": 1, "mb": 1}
    space = space_of(model, capacity=200e9, gpus=[4], gbs=8, recompute="counts", limits=limits)
    counts = {}
    for row in range(space.n_rows):
        counts.setdefault(space.layout(row).vpp, []).append(space.recomputed_layers(row))
    assert counts[1] == list(range(9))
    assert counts[4] == [0, 4, 8]


def test_a_table_beyond_memory_is_refused_before_it_is_made(model, monkeypatch):
    monkeypatch.setattr("fabric._memory.available", lambda: 2.0**20)
    with pytest.raises(fb.InfeasibleError, match=r"table of [\d,]+ layouts needs .* `limits`"):
        space_of(model, gpus=[2**14], gbs=720720, limits=None)


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
    stack = hardware.profile("megatron-core-h100").stack
    plain = replace(stack, dp_overlap=False, tp_overlap=False)
    assert choice.megatron(model.layers, plain).split(" --") == [
        "--tensor-model-parallel-size 8", "sequence-parallel", "pipeline-model-parallel-size 4",
        "num-layers-per-virtual-pipeline-stage 4", "context-parallel-size 2",
        "use-distributed-optimizer", "micro-batch-size 1", "global-batch-size 64",
        "seq-length 8192", "bf16", "use-tp-pp-dp-mapping",
        "recompute-granularity full", "recompute-method block", "recompute-num-layers 2",
    ]  # fmt: skip
    assert "10 of" not in str(choice)
    sharded = replace(choice, layout=fb.Layout.parse("tp8 dp2 zero3 gbs64 seq8192"))
    said = sharded.megatron(model.layers, plain)
    for words in (
        "--use-distributed-optimizer --use-megatron-fsdp --no-gradient-accumulation-fusion",
        "--data-parallel-sharding-strategy optim_grads_params",
    ):
        assert words in said
    assert "mapping" not in said  # without stages both orders are one
    ordered = fb.Layout.parse("tp4 pp2 dp2 gbs64 seq8192")
    for order, mapped in (("tp-pp-cp-dp", True), ("tp-dp-cp-pp", False), ("pp-tp-cp-dp", False)):
        said = replace(choice, layout=ordered, rank_order=order).megatron(model.layers, plain)
        assert ("--use-tp-pp-dp-mapping" in said) == mapped
    assert "of 10 layers a stage" in str(choice)


def test_megatron_is_told_what_the_score_lets_overlap(network):
    stack = hardware.profile("megatron-core-h100").stack
    flags = ("--overlap-grad-reduce", "--overlap-param-gather", "--tp-comm-overlap")
    for words, dp, tp, due in (
        ("tp2 sp dp8 zero1 gbs64 seq8192", True, True, (True, True, True)),
        ("tp2 sp dp8 zero1 gbs64 seq8192", False, False, (False, False, False)),
        ("tp2 dp8 zero0 gbs64 seq8192", True, True, (True, False, False)),
        ("tp8 sp pp2 dp1 zero0 gbs64 seq8192", True, True, (False, False, True)),
    ):
        choice = optimize.Choice(
            fb.Layout.parse(words), "tp-cp-dp-pp", 0, fb.Placement.first(network, 16), 1.0, 0.1
        )
        said = choice.megatron(32, replace(stack, dp_overlap=dp, tp_overlap=tp)).split()
        assert tuple(flag in said for flag in flags) == due


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


def test_layouts_without_a_way_are_left_out_and_counted(model):
    # Three servers and no way between rails: most rings and stages of three change rails.
    nics = fb.topologies.rail_only(3)
    rails = fb.topologies.attach_servers(
        nics, hardware.server("dgx-h100"), nics.hosts.reshape(3, 8)
    )
    limits = {"vpp": 1, "cp": 1, "mb": 1, "zero": 1, "tp": 4, "pp": 4}
    asked = {"gbs": 12, "limits": limits}
    found = search(rails, model, top=100, front=True, **asked)
    space, truth = found.space, []
    for row in range(space.n_rows):
        placement = fb.Placement(space.degrees[space.degrees_of[row]].ranks(rails.hosts))
        try:
            truth.append(fb.step(rails, model, space.layout(row), placement, by=None).step_time)
        except fb.InfeasibleError:
            truth.append(np.inf)
    reached = np.sort([took for took in truth if took < np.inf])
    assert 0 < len(reached) < space.n_rows
    np.testing.assert_allclose([one.step_time for one in found.top], reached, rtol=1e-11)
    assert found.unreachable == space.n_rows - len(reached)
    assert found.evaluations <= found.legal
    assert np.isfinite(found.ideal.step_time)
    forward = partial(fb.routing.ecmp, rails="forward")
    assert search(rails, model, routing=forward, **asked).unreachable == 0
    lost = found.space.layout(int(np.argmax(truth)))
    limits = {name: getattr(lost, name) for name in ("tp", "dp", "pp", "vpp", "cp", "mb", "zero")}
    with pytest.raises(fb.InfeasibleError, match=r"None of [\d,]+ layouts .* Exchange `"):
        search(rails, model, gbs=12, limits=limits)


def test_a_broken_server_does_not_matter_to_a_job_on_the_others(network, model):
    labels, last = network.labels, network.hosts[-1]
    alive = np.asarray(network.alive) & (labels.src != last) & (labels.dst != last)
    broken = fb.Network(
        network.capacity, network.latency, alive, network.routing_cost, labels=labels
    )
    whole, hurt = (search(net, model, gpus=8, top=1) for net in (network, broken))
    assert hurt.objective == pytest.approx(whole.objective, rel=1e-12)
    with pytest.raises(fb.InfeasibleError, match=r"None of [\d,]+ layouts"):
        search(broken, model, limits=LIMITS | {"tp": 2, "cp": 1})


def test_a_leaf_with_one_endpoint_is_a_cut_too(model):
    # An eighth of what the endpoints have leads out of the leaves, so this is what bounds.
    network = fb.topologies.leaf_spine(
        leaves=8, spines=2, hosts_per_leaf=1, capacity="400Gb/s", uplink_capacity="25Gb/s"
    )
    profile = hardware.profile("megatron-core-h100")
    fabric = Fabric(network, model, profile, SEQ, "bf16", fb.routing.spray, named=True)
    degrees = Degrees(1, 1, 8, 1)
    exact = fabric.exact(degrees, network.hosts, wraps=False)
    assert fabric.least(degrees, network.hosts).dp == pytest.approx(exact.dp, rel=1e-9)


@pytest.mark.parametrize("order", ["tp-cp-dp-pp", "pp-dp-cp-tp", "cp-pp-tp-dp"])
def test_a_glance_is_the_bound_but_for_data_parallelism(network, order):
    model = fb.Model.listed("gpt2-xl")  # tied: stages exchange gradients of the embedding
    profile = hardware.profile("megatron-core-h100")
    fabric = Fabric(network, model, profile, 1024, "bf16", fb.routing.spray, named=True)
    slots = np.random.default_rng(0).permutation(network.hosts)
    for sizes in ((2, 2, 2, 2), (4, 1, 1, 4), (1, 8, 2, 1), (2, 4, 1, 2), (1, 1, 16, 1)):
        degrees = Degrees(*sizes, tuple(order.split("-")))
        least = fabric.least(degrees, slots)
        np.testing.assert_allclose(
            fabric.glance(degrees, slots), least._replace(dp=0.0, dp_wait=0.0), rtol=1e-11
        )


def test_in_float32_bounds_stay_below_and_the_best_is_the_same(network, model, found):
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "float64 input is cast to float32")
        small = search(network, model)
    assert small.certified
    assert small.bound <= small.objective == pytest.approx(found.objective, rel=1e-5)
    assert small.best.layout == found.best.layout


KEPT = {
    "gbs": 32, "seq": 2048, "gpus": 8, "dtype": "fp8", "schedule": "gpipe", "objective": "cost",
    "recompute": "counts", "rank_orders": "all", "limits": {"tp": 4}, "least_margin": 0.1,
    "placement": "back", "routing": "ecmp", "profile": "megatron-a100", "gpu": "a100-sxm",
    "top": 4, "tolerance": 0.01, "front": True, "seed": 1,
}  # fmt: skip


def test_a_checkpoint_of_any_other_options_is_refused(network, model, monkeypatch, tmp_path):
    class Seen(Exception):
        pass

    def keep(path, fingerprint):
        raise Seen(fingerprint)

    monkeypatch.setattr("fabric.optimize._kept.Checkpoint", keep)

    def told(network=network, model=model, **changes):
        with pytest.raises(Seen) as seen:
            search(network, model, checkpoint=tmp_path / "kept", **changes)
        return str(seen.value)

    back = fb.Placement(network.hosts[::-1].copy())
    hashed = [partial(fb.routing.ecmp, seed=seed) for seed in (1, 2)]
    others = [
        told(**{name: back if value == "back" else value})
        for name, value in KEPT.items()
        if name != "seed"
    ] + [
        told(routing="ecmp", seed=1), *(told(routing=rule) for rule in hashed),
        told(routing=fb.routing.ecmp), told(model=fb.Model.listed("llama-2-13b")),
        told(network=network.degraded(nodes=["spine0"], factor=0.5)),
    ]  # fmt: skip
    assert len({told(), *others}) == len(others) + 1
    assert told(rank_orders=["tp-cp-dp-pp"], limits=dict(reversed(LIMITS.items()))) == told()
    with pytest.raises(fb.ModelError, match="`checkpoint` has to tell one routing from another"):
        told(routing=lambda net, flows: fb.routing.ecmp(net, flows))


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


def test_numbers_of_another_precision_are_not_taken_up(network, model, tmp_path):
    ask = partial(search, network, model, checkpoint=tmp_path / "kept")
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # capacities in float64
        ask()
    with pytest.raises(fb.ModelError, match="is of another problem"):
        ask()


def test_exchanges_are_those_of_the_gpus_that_are_asked_for(network, model):
    """The same degrees on eight GPUs of one server, and on four of each."""
    profile = hardware.profile("megatron-core-h100")
    make = lambda: Fabric(network, model, profile, SEQ, "bf16", fb.routing.ecmp, named=True)
    near, far = network.hosts[:8], network.hosts[4:12]
    one, degrees = make(), Degrees(8, 1, 1, 1)
    first, second = (one.exact(degrees, gpus, wraps=False) for gpus in (near, far))
    assert first == make().exact(degrees, near, wraps=False)
    assert second == make().exact(degrees, far, wraps=False)
    assert second.tp > 2 * first.tp


def test_reports_are_compared_and_hashed_as_objects(found):
    for one in (found, found.best, found.space):
        assert len({one, one}) == 1
    assert found.top[0] != found.top[1]


def test_options_may_be_numbers_of_numpy(network, model):
    found = inspect.unwrap(optimize.layout)(
        network, model, gbs=np.int64(GBS), seq=np.int64(SEQ), limits={"tp": np.int64(8)},
        tolerance=np.float64(0.5), seed=np.int64(1), top=np.int32(2), gpus=np.int64(16),
        least_margin=np.float32(0.1), front=np.bool_(False),
    )  # fmt: skip
    assert json.loads(json.dumps(found.as_dict()))["certified"] is True


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
        ({"limits": {"tp": 0}}, "`limits['tp']` needs a whole number of 1 or more"),
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


def test_all_wrong_arguments_are_told_at_once():
    unchecked = inspect.unwrap(optimize.layout)
    with pytest.raises(fb.ModelError) as raised:
        unchecked(
            3, "llama", gbs=0, seq=-1, dtype="int8", schedule="2f2b", objective="speed", top=-1,
            tolerance="x", gpus=["x"],
            limits={"tp": "8"}, rank_orders=5, routing=3, profile=3, gpu=3, placement=3, seed=0.5,
            least_margin=np.nan,
        )  # fmt: skip
    for said in (
        "`layout(network=...)`", "`layout(model=...)` needs", "objective='speed'", "`top`",
        "`tolerance`", "`gpus`", "`limits['tp']`", "`rank_orders`", "`layout(routing=...)`",
        "`layout(profile=...)`", "`layout(gpu=...)`", "`layout(placement=...)`", "`seed`",
        "`least_margin`", "(gbs=...)", "(seq=...)", "dtype='int8'", "schedule='2f2b'",
    ):  # fmt: skip
        assert said in str(raised.value)


def test_a_placement_has_as_many_ranks_as_are_used(network, model):
    with pytest.raises(fb.ModelError, match="`placement` has 8 ranks"):
        search(network, model, placement=fb.Placement.first(network, 8))
    # GPUs in reverse are as good on this fabric.
    back = fb.Placement(network.hosts[::-1].copy())
    assert search(network, model, placement=back).objective == pytest.approx(
        search(network, model).objective
    )
