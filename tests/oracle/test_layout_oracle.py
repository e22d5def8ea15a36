"""The closed form of the layout search against `step`, and its answers against scoring all rows."""

import itertools
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

import fabric as fb
from fabric import hardware, optimize
from fabric.optimize._layout_memory import Held
from fabric.optimize._layout_score import ClosedForm, Rows, Wires
from fabric.optimize._layout_search import Search
from fabric.optimize._layout_space import Space, orders_of
from fabric.optimize._layout_wires import Degrees, Fabric
from fabric.routing import spray
from fabric.training import memory
from fabric.training._activations import recomputed_activations
from fabric.training._assemble import Wire, assemble
from fabric.training._compute import compute_times
from fabric.training._memory import FRAGMENTATION
from fabric.training._phases import Servers
from tests.oracle.test_step import drawn

DRAWN = range(20)


def columns(layout, parameters, recomputed=None):
    """Return the row of a layout; recompute of some layers if given."""
    every = 0 if layout.recompute != "full" else None
    values = {name: getattr(layout, name) for name in ("tp", "cp", "dp", "pp", "vpp", "mb", "zero")}
    values |= {"sp": layout.sp, "selective": layout.recompute == "selective"}
    values |= {"recomputed": recomputed if every is None else every, "parameters": parameters}
    return Rows(**{name: np.array([float(value)]) for name, value in values.items()})


def parts(case):
    """Return closed form, memory and fabric of a case, its degrees and its GPUs."""
    layout, model = case.layout, case.model
    held = Held(model, case.profile, layout.gbs, layout.seq, layout.dtype, layout.schedule)
    form = ClosedForm(model, case.gpu, case.profile, layout.gbs, layout.seq, layout.dtype)
    fabric = Fabric(case.network, model, case.profile, layout.seq, layout.dtype, spray, named=True)
    degrees = Degrees(layout.tp, layout.cp, layout.dp, layout.pp)
    hosts = case.network.hosts[: layout.gpus]
    gpus = hosts if case.placement is None else case.placement.endpoint_of
    first, last = held.parameters(np.array([layout.tp * 1.0]), np.array([layout.pp * 1.0]))
    row = columns(layout, max(first[0], last[0]), model.layers // layout.pp)
    return held, form, fabric, degrees, gpus, row


@pytest.mark.parametrize("seed", DRAWN)
def test_the_closed_form_is_the_step_and_its_bound_is_below(seed):
    case = drawn(seed)
    held, form, fabric, degrees, gpus, row = parts(case)
    report = case.report()
    wires = fabric.exact(degrees, gpus, wraps=case.layout.vpp > 1)
    exact = form.seconds(row, wires)[0]
    # The same sums in another order.
    assert exact == pytest.approx(report.step_time, rel=1e-11)
    assert held.bytes(row)[0] == pytest.approx(report.memory.total, rel=1e-12)
    least = form.seconds(row, fabric.least(degrees, gpus), lower=True)[0]
    assert least <= exact * (1 + 1e-11)
    # Without a search along the way, cuts that any route has to cross still bound it.
    loose = Fabric(
        case.network, case.model, case.profile, case.layout.seq, case.layout.dtype, spray,
        named=False,
    )  # fmt: skip
    assert form.seconds(row, loose.least(degrees, gpus), lower=True)[0] <= exact * (1 + 1e-11)


@pytest.mark.parametrize("seed", range(8))
def test_no_slower_wire_makes_a_step_shorter_than_the_bound(seed):
    case = drawn(seed)
    _, form, fabric, degrees, gpus, row = parts(case)
    wires = fabric.exact(degrees, gpus, wraps=case.layout.vpp > 1)
    rng = np.random.default_rng(seed)
    low = form.seconds(row, wires, lower=True)[0]
    for _ in range(30):
        slower = Wires(*(w * rng.choice([1.0, 1.5, 30.0, 1e3]) for w in wires[:-1]), wires[-1])
        for zero in (0.0, 1.0, 2.0, 3.0):
            of = row._replace(zero=np.array([zero]))
            low = form.seconds(of, wires, lower=True)[0]
            assert low <= form.seconds(of, slower)[0] * (1 + 1e-12)


@pytest.mark.parametrize("words", ["tp4 sp pp2 vpp2 mb2", "tp2 pp4", "tp8 pp1 mb4"])
def test_some_recomputed_layers_lie_between_none_and_all(words):
    # Without data parallelism seconds are affine in the number of layers, and so are bytes, but for
    # the one layer that is alive while it is computed again.
    model, profile = fb.Model.listed("megatron-22b"), hardware.profile("megatron-a100")
    network = fb.topologies.cluster("dgx-a100", nodes=1)
    none = fb.Layout.parse(f"{words} gbs16 seq2048")
    full = fb.Layout.parse(f"{words} gbs16 seq2048 recompute=full")
    of = lambda one: fb.step(network, model, one, routing="spray", by=None, allow_infeasible=True)
    ends = [of(none), of(full)]
    depth = model.layers // none.pp
    stack = profile.stack
    alive = (1 + FRAGMENTATION.value) * recomputed_activations(
        model, full, attention=stack.attention, dropout=stack.dropout
    )
    gpu = hardware.gpu("a100-sxm")
    form = ClosedForm(model, gpu, profile, 16, 2048, "bf16")
    held = Held(model, profile, 16, 2048, "bf16", "1f1b")
    fabric = Fabric(network, model, profile, 2048, "bf16", spray, named=True)
    wires = fabric.exact(
        Degrees(none.tp, 1, 1, none.pp), network.hosts[: none.gpus], wraps=none.vpp > 1
    )
    first, last = held.parameters(np.array([none.tp * 1.0]), np.array([none.pp * 1.0]))
    for count in range(none.vpp, depth, none.vpp):
        row = columns(full, max(first[0], last[0]), count)
        share = count / depth
        between = (1 - share) * ends[0].step_time + share * ends[1].step_time
        assert form.seconds(row, wires)[0] == pytest.approx(between, rel=1e-11)
        stages = zip(*(report.memory.stages for report in ends), strict=True)
        sums = [(sum(plain.values()), sum(again.values())) for plain, again in stages]
        between = [(1 - share) * low + share * (high - alive) + alive for low, high in sums]
        assert held.bytes(row)[0] == pytest.approx(max(between), rel=1e-12)


@cache
def table():
    """Return a space with its bounds, its closed form and what its wires take at least."""
    network = fb.topologies.cluster("dgx-h100", nodes=2)
    model, profile = fb.Model.listed("llama-2-13b"), hardware.profile("megatron-core-h100")
    gpu = hardware.gpu("h100-sxm")
    space = Space.of(
        model, profile, capacity=gpu.memory.value, gpus=[16], gbs=128, seq=4096,
        recompute="counts", rank_orders=orders_of(["tp-cp-dp-pp", "pp-dp-cp-tp", "dp-tp-pp-cp"]),
    )  # fmt: skip
    form = ClosedForm(model, gpu, profile, 128, 4096, "bf16")
    fabric = Fabric(network, model, profile, 4096, "bf16", spray, named=True)
    least = [fabric.least(degrees, network.hosts) for degrees in space.degrees]
    return network, model, profile, gpu, space, form, np.array(least)


def taken(space, least, rows, kind):
    shape, degrees = space.shape_of[rows], space.degrees_of[rows]
    return (
        Rows(*(np.asarray(column[shape], kind) for column in space.columns)),
        Wires(*(np.asarray(column[degrees], kind) for column in least.T)),
    )


def test_float32_is_within_two_millionths_and_has_the_same_best_row():
    *_, space, form, least = table()
    rows = np.arange(space.n_rows)[:: max(space.n_rows // 40_000, 1)]
    wide = form.seconds(*taken(space, least, rows, np.float64), lower=True)
    narrow = np.asarray(form.compiled(*taken(space, least, rows, np.float32)))
    assert narrow.dtype == np.float32
    assert np.abs(narrow / wide - 1).max() <= 2e-6
    exact = np.asarray(form.compiled(*taken(space, least, rows, np.float64)))
    np.testing.assert_allclose(exact, wide, rtol=1e-12)
    assert exact.argmin() == wide.argmin()
    assert wide[narrow.argmin()] <= wide.min() * (1 + 4e-6)


def test_the_batch_has_the_best_row_of_the_path_that_takes_one_layout_at_a_time():
    network, model, profile, gpu, space, form, least = table()
    rng = np.random.default_rng(0)
    whole = space.columns.recomputed[space.shape_of] * space.columns.pp[space.shape_of]
    rows = rng.permutation(np.flatnonzero(np.isin(whole, (0, model.layers))))[:300]
    batch = form.seconds(*taken(space, least, rows, np.float64))
    nodes = Servers.in_(network).count(network.hosts)
    scalar = []
    for row in rows.tolist():
        layout, wires = space.layout(row), Wires(*least[space.degrees_of[row]])
        b = layout.mb
        wire = Wire(
            tp=b * wires.tp + wires.tp_wait, cp=b * wires.cp + wires.cp_wait,
            pp_forward=b * wires.pp_forward + wires.pp_forward_wait,
            pp_backward=b * wires.pp_backward + wires.pp_backward_wait,
            dp=wires.dp, dp_latency=wires.dp_wait, embedding=wires.embedding,
        )  # fmt: skip
        parameters = float(space.columns.parameters[space.shape_of[row]])
        work = compute_times(model, layout, gpu, profile, parameters)
        found = assemble(
            work, wire, layout, profile, layers=model.layers, parameters=parameters, nodes=nodes
        )
        scalar.append(float(found.step))
    np.testing.assert_allclose(batch, scalar, rtol=1e-12)
    assert scalar[batch.argmin()] <= min(scalar) * (1 + 1e-12)


def contended(ratio, servers=2):
    """Return servers each under a leaf of its own, whose uplinks have a part of what it needs."""
    nics = fb.topologies.leaf_spine(
        leaves=servers, spines=4, hosts_per_leaf=8, capacity="400Gb/s",
        uplink_capacity=50e9 * 8 / 4 / ratio,
    )  # fmt: skip
    return fb.topologies.attach_servers(
        nics, hardware.server("dgx-h100"), nics.hosts.reshape(servers, 8)
    )


SPACES = [
    ("llama-3.1-8b", 16, 4096, 8, "spray", 1),
    ("qwen2.5-14b", 32, 4096, 2, "ecmp", 0),
]


@pytest.mark.parametrize(("model", "gbs", "seq", "ratio", "routing", "zero"), SPACES)
def test_the_answer_is_the_best_of_all_layouts_scored_by_step(
    model, gbs, seq, ratio, routing, zero
):
    network, model = contended(ratio), fb.Model.listed(model)
    limits = {"vpp": 1, "mb": 1, "cp": 1, "zero": zero, "pp": 4}
    orders = ("tp-cp-dp-pp", "tp-cp-pp-dp")[: 2 - zero]
    found = optimize.layout(
        network, model, gbs=gbs, seq=seq, routing=routing, limits=limits, rank_orders=orders, top=3
    )
    space, truth = found.space, []
    for row in range(space.n_rows):
        degrees = space.degrees[space.degrees_of[row]]
        placement = fb.Placement(degrees.ranks(network.hosts))
        report = fb.step(network, model, space.layout(row), placement, routing, by=None)
        truth.append(report.step_time)
    # Gap and certificate: none is negative, and the proof covers what is true.
    assert found.objective == pytest.approx(min(truth), rel=1e-11)
    assert found.certified
    assert found.gap >= found.objective / min(truth) - 1 - 1e-11 >= -2e-11
    np.testing.assert_allclose([one.step_time for one in found.top], sorted(truth)[:3], rtol=1e-11)
    assert space.n_rows >= 30
    assert found.evaluations <= space.n_rows / 3


def test_every_layout_is_a_row_or_has_its_reason():
    model = fb.Model(
        name="small", layers=6, hidden=4096, heads=4, kv_heads=2, head_dim=1024, ffn=16384,
        vocab=128000,
    )  # fmt: skip
    profile = hardware.profile("megatron-core-h100")
    gbs, seq, gpus, capacity = 2, 4096, 8, 20e9
    space = Space.of(
        model, profile, capacity=capacity, gpus=[gpus], gbs=gbs, seq=seq, limits={"dp": 4}
    )
    rows = {str(space.layout(row)) for row in range(space.n_rows)}
    assert len(rows) == space.n_rows
    divisors = lambda n: [i for i in range(1, n + 1) if n % i == 0]
    settings = {name: getattr(profile.stack, name) for name in
                ("attention", "dropout", "grad_dtype", "grad_accumulation")}  # fmt: skip
    counts = dict.fromkeys(space.pruned, 0)
    degrees = itertools.product(divisors(8), divisors(8), divisors(8), divisors(8))
    for t, c, d, p in degrees:
        if t * c * d * p != gpus:
            continue
        rest = itertools.product(
            divisors(model.layers), divisors(gbs), range(4), (False, True),
            ("none", "selective", "full"),
        )  # fmt: skip
        for v, b, zero, sp, recompute in rest:
            sizes = {"tp": t, "cp": c, "dp": d, "pp": p, "vpp": v, "mb": b}
            try:
                layout = fb.Layout(gbs=gbs, seq=seq, zero=zero, sp=sp, recompute=recompute, **sizes)
                layout.check(model)
                suits = d <= 4
            except fb.ModelError:
                suits = False
            if v > 1 and p == 1:  # no such layout can be written
                counts["vpp without a pipeline, or with the gpipe schedule"] += 1
                continue
            reason = space.reason(layout)
            assert (reason is None) == (str(layout) in rows)
            if reason is None:
                assert suits
                continue
            counts[reason] += 1
            repeats = reason.endswith(("without", "zero0", "none"))
            fits = suits and memory(model, layout, capacity, **settings).margin >= 0
            assert not fits or repeats, (layout, reason)
            assert (reason == "memory") <= (suits and not fits)
    assert counts["memory"] == space.pruned["memory"]
    assert space.candidates == space.n_rows + sum(space.pruned.values())


def test_the_front_is_that_of_all_exact_scores():
    network, model = contended(2), fb.Model.listed("llama-3.1-8b")
    found = optimize.layout(
        network,
        model,
        gbs=16,
        seq=4096,
        gpus=[8, 16],
        front=True,
        top=1,
        limits={"vpp": 1, "mb": 1, "cp": 2, "zero": 1, "pp": 2},
    )
    space = found.space
    gpu, profile = hardware.gpu("h100-sxm"), hardware.profile("megatron-core-h100")
    form = ClosedForm(model, gpu, profile, 16, 4096, "bf16")
    router = lambda net, flows: fb.routing.ecmp(net, flows)
    fabric = Fabric(network, model, profile, 4096, "bf16", router, named=True)
    slots = {n: network.hosts[:n] for n in (8, 16)}
    search = Search(space, form, fabric, slots, None, by_cost=False)
    time = np.empty(space.n_rows)
    for key in np.unique(search.keys):
        rows = np.flatnonzero(search.keys == key)
        time[rows] = search.seconds(int(key), rows)
    margin = space.margin[space.shape_of]
    cost = time * np.array([d.gpus for d in space.degrees])[space.degrees_of]
    points = np.stack([time, cost, -margin], 1)
    beaten = lambda p: np.any(np.all(points <= p, 1) & np.any(points < p, 1))
    want = {tuple(p) for p in points[[not beaten(p) for p in points]].tolist()}
    got = {(one.step_time, one.step_time * one.gpus, -one.margin) for one in found.front}
    assert got == want
    assert len({one.gpus for one in found.front}) == 2


def test_compiled_scores_are_traced_once_per_shape(monkeypatch):
    _, model, profile, gpu, space, _, least = table()
    traced, attention = [], ClosedForm._attention
    monkeypatch.setattr(
        ClosedForm, "_attention", lambda self, *sizes: traced.append(1) or attention(self, *sizes)
    )
    form, rows = ClosedForm(model, gpu, profile, 128, 4096, "bf16"), np.arange(1000)
    before = form.compiled(*taken(space, least, rows, np.float64))
    after = form.compiled(*taken(space, 2 * least, rows, np.float64))
    assert len(traced) == 1
    assert bool(jnp.all(after >= before))
