"""`step` against a second implementation of the step model, on drawn layouts and fabrics."""

import dataclasses
import random
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

import fabric as fb
from fabric import hardware
from tests.oracle import step_model

DRAWN = range(48)
SENSITIVE = (*range(1000, 1016), 2002)  # of the last, two tiers are full at once
LISTED = ("llama-3.1-8b", "qwen2.5-7b", "gpt2-xl", "megatron-22b")
MADE_UP = (
    fb.Model(
        name="narrow", layers=8, hidden=1024, heads=16, kv_heads=2, head_dim=96, ffn=2816,
        vocab=50257, tied=True, qk_norm=True,
    ),
    fb.Model(
        name="wide", layers=4, hidden=6144, heads=48, kv_heads=48, head_dim=128, ffn=24576,
        vocab=32001, gated=False, norm_bias=True, qkv_bias=True, out_bias=True, mlp_bias=True,
    ),
    fb.Model(
        name="deep", layers=24, hidden=768, heads=8, kv_heads=1, head_dim=128, ffn=3072,
        vocab=8000, gated=False, tied=True, positions=8192,
    ),
)  # fmt: skip

CHANGES = {
    "efficiency.gemm": 0.5, "efficiency.hbm": 0.4, "efficiency.flash": 0.3,
    "efficiency.nvlink": 0.35, "efficiency.nic": 0.45, "gemm_half": 300.0, "core_half": 50.0,
    "latency.collective": "90us", "latency.nvlink_step": "5us", "latency.nic_step": "8us",
    "latency.host_per_layer": "4ms", "latency.microbatch": "2ms", "latency.chunk": "3ms",
    "stack.attention": "flash2", "stack.grad_dtype": "bf16", "stack.grad_accumulation": "separate",
    "stack.tp_overlap": True, "stack.tp_exposed_backward": 0.4, "stack.sp_exposed_backward": 0.9,
    "stack.dp_overlap": False, "stack.buckets": "megatron-core", "stack.dropout": False,
    "stack.factor": 0.8, "jitter_per_doubling": 0.02,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    network: fb.Network
    model: fb.Model
    layout: fb.Layout
    profile: hardware.Profile
    gpu: hardware.Gpu
    placement: fb.Placement | None = None

    def report(self, by=None):
        return fb.step(
            self.network, self.model, self.layout, self.placement, "spray",
            profile=self.profile, gpu=self.gpu, by=by, allow_infeasible=True,
        )  # fmt: skip

    def oracle(self, scale=None):
        gpu_of = None if self.placement is None else self.placement.endpoint_of.tolist()
        return step_model.step(
            self.network, self.model, self.layout, self.profile, self.gpu, gpu_of, scale
        )


@cache
def cluster(name, nodes):
    """Return a cluster; "thin" has two units, half the uplinks it needs, and a failed spine.

    "staged": no GPUDirect, so that what leaves a server passes the socket.
    """
    if name == "staged":
        return fb.topologies.cluster("dgx-a100", nodes=nodes, gpudirect=False)
    if name != "thin":
        return fb.topologies.cluster(name, nodes=nodes)
    nics = fb.topologies.rail_optimized(
        servers=nodes, servers_per_unit=nodes // 2, leaf_down=4, leaf_up=3, spines=3,
        latency="0.7us",
    )  # fmt: skip
    net = fb.topologies.attach_servers(
        nics, hardware.server("dgx-h100"), nics.hosts.reshape(nodes, 8)
    )
    return net.without(nodes=["spine1"])


def drawn(seed):
    """Return the case of a seed."""
    rng = random.Random(seed)
    name, nodes = rng.choice(
        [("dgx-h100", n) for n in (1, 2, 3, 4, 8)]
        + [("dgx-a100", n) for n in (1, 2, 4, 6)]
        + [("thin", n) for n in (4, 8, 8)]
        + [("staged", n) for n in (2, 3)]
    )
    network = cluster(name, nodes)
    gpu = hardware.gpu(network.labels.about["gpu"])
    while True:
        listed = rng.choice(LISTED)
        model = rng.choice([*MADE_UP, fb.Model.listed(listed), fb.Model.listed(listed)])
        layout = _layout(rng, 8 * nodes, sorted(gpu.peak))
        try:
            layout.check(model)
        except fb.ModelError:
            continue
        break
    profile = hardware.profile(gpu.profile).with_values(_values(rng))
    placement = None
    if rng.random() < 0.4:
        placement = _shuffled(rng, network, layout)
    return Case(network, model, layout, profile, gpu, placement)


def _layout(rng, gpus, dtypes):
    while True:
        tp, cp = rng.choice([1, 2, 4, 5, 8]), rng.choice([1, 1, 2, 4])
        pp = rng.choice([1, 1, 2, 3, 4])
        most = gpus // (tp * cp * pp)
        if most:
            break
    dp, mb = rng.choice([1, most, max(most // 2, 1)]), rng.choice([1, 2])
    return fb.Layout(
        tp=tp, sp=tp > 1 and rng.random() < 0.5, cp=cp, pp=pp, dp=dp, mb=mb,
        vpp=rng.choice([1, 2]) if pp > 1 else 1, gbs=dp * mb * pp * rng.choice([1, 2, 5]),
        seq=rng.choice([960, 1920, 7680]), zero=rng.choice([0, 1, 2, 3]),
        dtype=rng.choice(["bf16", *(d for d in dtypes if d != "tf32")]),
        recompute=rng.choice(["none", "selective", "full"]),
    )  # fmt: skip


def _values(rng):
    """Return other values for a third of the profile."""
    share = lambda: rng.uniform(0.3, 1.0)
    time = lambda most: rng.uniform(0.0, most)
    values = {
        **{f"efficiency.{key}": share() for key in ("gemm", "hbm", "flash", "nvlink", "nic")},
        "gemm_half": rng.uniform(0.0, 300.0), "core_half": rng.uniform(0.0, 300.0),
        "latency.collective": time(3e-4), "latency.nvlink_step": time(5e-6),
        "latency.nic_step": time(1e-5), "latency.host_per_layer": time(4e-3),
        "latency.microbatch": time(2e-3), "latency.chunk": time(3e-3),
        "stack.attention": rng.choice(["unfused", "flash2", "flash3"]),
        "stack.grad_dtype": rng.choice(["fp32", "bf16"]),
        "stack.grad_accumulation": rng.choice(["fused", "separate"]),
        "stack.tp_overlap": rng.random() < 0.5, "stack.tp_exposed_backward": rng.random(),
        "stack.sp_exposed_backward": rng.random(), "stack.dp_overlap": rng.random() < 0.7,
        "stack.buckets": rng.choice(["ddp", "megatron-core"]),
        "stack.dropout": rng.random() < 0.5, "stack.factor": share(),
        "jitter_per_doubling": rng.uniform(0.0, 0.02),
    }  # fmt: skip
    return {key: value for key, value in values.items() if rng.random() < 0.33}


def _shuffled(rng, network, layout):
    """Return ranks on servers in any order, or on any GPUs at all."""
    hosts = network.hosts.tolist()
    servers = [hosts[i : i + 8] for i in range(0, len(hosts), 8)]
    rng.shuffle(servers)
    order = [gpu for server in servers for gpu in server]
    if rng.random() < 0.5:
        rng.shuffle(order)
    return fb.Placement(np.array(order[: layout.gpus], np.int32))


@pytest.mark.parametrize("seed", DRAWN)
def test_every_part_of_a_drawn_step_is_that_of_the_oracle(seed):
    case = drawn(seed)
    report, want = case.report(), case.oracle()
    # The same sums in another order: 1e-9 of the step, for parts that are differences of others.
    close = lambda got, right: got == pytest.approx(right, rel=1e-9, abs=1e-9 * want.step)
    assert report.step_time == pytest.approx(want.step, rel=1e-9)
    assert report.tokens_per_s == pytest.approx(want.tokens_per_s, rel=1e-9)
    assert report.mfu == pytest.approx(want.mfu, rel=1e-9)
    assert report.breakdown.keys() == want.parts.keys()
    for part, (exposed, hidden) in report.breakdown.items():
        assert close(exposed, want.parts[part]), (part, str(case.layout), case.model.name)
        assert close(hidden, want.hidden.get(part, 0.0)), (part, str(case.layout))
    assert sum(exposed for exposed, _ in report.breakdown.values()) == pytest.approx(
        report.step_time, rel=1e-12
    )


@pytest.mark.parametrize("seed", SENSITIVE)
def test_sensitivities_by_tier_are_differences_of_the_whole_step_on_both_sides(seed):
    case = drawn(seed)
    table = case.report(by="tier").sensitivities
    assert table is not None
    rows = {row.key: row for row in table}
    now, h = case.oracle().step, 1e-6
    for tier in case.network.labels.tiers:
        more = (case.oracle({tier: 1 + h}).step - now) / (h * now)
        less = (now - case.oracle({tier: 1 - h}).step) / (h * now)
        row = rows.get(tier)
        gain, loss = (
            (row.gain_per_plus_1pct, row.loss_per_minus_1pct) if row is not None else (0.0, 0.0)
        )
        # The difference is off by h times the curvature, and by rounding over h.
        assert gain == pytest.approx(more, rel=1e-4, abs=1e-8), (tier, str(case.layout))
        assert loss == pytest.approx(less, rel=1e-4, abs=1e-8), (tier, str(case.layout))


# A model, a layout and what is set, such that each value acts on one of them.
BASES = {
    "unfused": (
        fb.Model.listed("megatron-22b"), "tp8 sp pp2 vpp2 mb1 gbs4 seq1920 recompute=selective",
        {"stack.attention": "unfused"},
    ),
    "fused": (
        fb.Model.listed("megatron-22b"), "tp4 pp4 mb2 gbs16 seq1920", {"stack.attention": "flash3"}
    ),
    "sharded": (MADE_UP[0], "tp2 dp8 zero1 mb1 gbs16 seq960", {"stack.dp_overlap": True}),
}  # fmt: skip


@pytest.mark.parametrize("key", CHANGES)
def test_a_changed_value_of_the_profile_acts_as_it_does_in_the_oracle(key):
    network, gpu = cluster("dgx-a100", 2), hardware.gpu("a100-sxm")
    acted = []
    for name, (model, text, settings) in BASES.items():
        profile = hardware.profile("megatron-a100").with_values(settings)
        before = Case(network, model, fb.Layout.parse(text), profile, gpu)
        changed = profile.with_values({key: CHANGES[key]})
        after = dataclasses.replace(before, profile=changed)
        step = after.report().step_time
        assert step == pytest.approx(after.oracle().step, rel=1e-9), name
        acted.append(abs(step / before.report().step_time - 1) > 1e-6)
    assert any(acted)
