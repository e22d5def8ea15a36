"""Do step times and activation memory equal those that were measured on A100 and H100?

One documented set of constants per GPU, the profiles `megatron-a100` and `megatron-core-h100`, for
every row. They were fitted to half of the rows (`python -m experiments.validation.fit`); errors on
the other half are of rows that no constant has seen.
"""

from collections.abc import Iterator
from functools import cache

import fabric as fb
from experiments.rows import Result, Row, errors
from experiments.validation.published import (
    ACTIVATIONS,
    KORTHIKANTI,
    NARAYANAN,
    SHARES,
    TABLE_1,
    TABLE_5,
    TABLE_H100,
    WEAK_SCALING,
    Scaled,
    Trained,
    Weak,
)
from fabric import hardware
from fabric.hardware import Profile
from fabric.training import memory

GIB = 2.0**30
MODES = {"full": "recompute=full", "selective": "sp recompute=selective"}
LARGEST = 140
"""Servers of the largest DGX A100 cluster whose switches are known."""

SEEN_5 = {
    ("megatron-22b", "selective"), ("megatron-175b", "full"),
    ("megatron-530b", "selective"), ("megatron-1t", "full"),
}  # fmt: skip
SEEN_1 = {1.7, 7.5, 39.1, 145.6, 529.6}
SEEN_H100 = {1.7, 16, 70, 177, 462}
"""Rows that the constants were fitted to."""


def run(smoke: bool = False) -> Result:
    """Return every row; with `smoke` those of the smallest model of each table."""
    few = 1 if smoke else None
    table_5, table_1, table_h100 = TABLE_5[:few], TABLE_1[:few], TABLE_H100[:few]
    steps = {(case.name, mode): time_row(case, mode) for case in table_5 for mode in MODES}
    scaled = {case.parameters: scaled_row(case) for case in table_1}
    weak = {case.parameters: weak_row(case) for case in table_h100}
    memories = [row for case in table_5 for row in memory_of(case)]
    groups = {
        "Table 5": list(steps.values()),
        "Table 5, fitted": [row for key, row in steps.items() if key in SEEN_5],
        "Table 5, unseen": [row for key, row in steps.items() if key not in SEEN_5],
        "Table 1": list(scaled.values()),
        "Table 1, fitted": [row for key, row in scaled.items() if key in SEEN_1],
        "Table 1, unseen": [row for key, row in scaled.items() if key not in SEEN_1],
        "H100": list(weak.values()),
        "H100, fitted": [row for key, row in weak.items() if key in SEEN_H100],
        "H100, unseen": [row for key, row in weak.items() if key not in SEEN_H100],
        "activations": memories,
    }
    summary = {
        f"{name}: {key}": value
        for name, rows in groups.items()
        if rows
        for key, value in errors(rows).items()
    }
    notes = [
        "Best published tool on Table 5, Calculon as re-run: mean 3.65 %, worst 8.87 %.",
        "Constants and their evidence: `fabric.hardware.profile('megatron-a100')`, ...",
    ]
    rows = [*steps.values(), *scaled.values(), *weak.values(), *memories]
    return Result(rows, summary, notes)


def time_row(case: Trained, mode: str, profile: Profile | None = None) -> Row:
    """Return the step time of one row of the first table."""
    layout = fb.Layout.parse(f"{case.layout} {MODES[mode]}")
    report = stepped(fb.Model.listed(case.name), layout, profile)
    return Row(f"{case.name} {mode}", getattr(case, mode), report.step_time, "s", 0.10, KORTHIKANTI)


def scaled_row(case: Scaled, profile: Profile | None = None) -> Row:
    """Return the step time of one row of the second table."""
    vpp = case.layers // case.pp // case.chunk if case.chunk else 1
    layout = fb.Layout.parse(
        f"tp{case.tp} pp{case.pp} vpp{vpp} dp{case.dp} mb{case.mb} gbs{case.gbs} seq2048 fp16 "
        f"recompute=full"
    )
    model = gpt(case, vocab=51200, seq=2048)
    report = stepped(model, layout, profile)
    return Row(model.name, case.seconds, report.step_time, "s", 0.10, NARAYANAN)


def weak_row(case: Weak, profile: Profile | None = None) -> Row:
    """Return the step time of one row of the weak scaling on H100."""
    layout = fb.Layout.parse(
        f"tp{case.tp} pp{case.pp} vpp{case.vpp} dp{case.dp} zero1 mb1 gbs{case.gbs} seq4096 bf16"
        + (" sp" if case.tp > 1 else "")
    )
    model = gpt(case, vocab=131072, seq=4096)
    network = fb.topologies.cluster("dgx-h100", nodes=layout.gpus // 8)
    used = profile or hardware.profile("megatron-core-h100")
    report = fb.step(
        network, model, layout, profile=used.with_values({"stack.grad_dtype": "bf16"}), by=None,
        allow_infeasible=True,
    )  # fmt: skip
    return Row(
        f"h100 {model.name}", case.seconds, report.step_time, "s", 0.25, WEAK_SCALING,
        f"assumed: mb1 vpp{case.vpp}, gradients in BF16",
    )  # fmt: skip


def gpt(case: Scaled | Weak, vocab: int, seq: int) -> fb.Model:
    """Return a model of GPT's shape."""
    h = case.hidden
    return fb.Model(
        name=f"gpt-{case.parameters:g}b", layers=case.layers, hidden=h, heads=case.heads,
        kv_heads=case.heads, head_dim=h // case.heads, ffn=4 * h, vocab=vocab, gated=False,
        tied=True, positions=seq, norm_bias=True, qkv_bias=True, out_bias=True, mlp_bias=True,
    )  # fmt: skip


def stepped(model: fb.Model, layout: fb.Layout, profile: Profile | None) -> fb.StepReport:
    """Return the step on as many DGX A100 as the layout fills."""
    network = servers(-(-layout.gpus // 8))
    return fb.step(
        network, model, layout, routing="spray", profile=profile, by=None, allow_infeasible=True
    )


@cache
def servers(nodes: int) -> fb.Network:
    """Return a cluster, built once; beyond 140 servers an assumed tree of three tiers."""
    if nodes <= LARGEST:
        return fb.topologies.cluster("dgx-a100", nodes=nodes)
    tree = fb.topologies.clos(hosts=8 * nodes, radix=40, tiers=3, capacity="200Gb/s")
    server = fb.hardware.server("dgx-a100")
    return fb.topologies.attach_servers(tree, server, tree.hosts.reshape(nodes, 8))


def memory_of(case: Trained) -> Iterator[Row]:
    """Yield activations of the first stage, and their shares of those without any saving."""
    model = fb.Model.listed(case.name)
    held = lambda words: memory(
        model, fb.Layout.parse(f"{case.layout} {words}"), "80GB", attention="unfused", dropout=True
    )
    kept = lambda words: held(words).stages[0]["activations"]
    plain = kept("recompute=none")
    for words, quoted in zip(("recompute=none", "sp recompute=selective"), case.activations,
                             strict=True):  # fmt: skip
        yield Row(
            f"{case.name} activations, {words}", quoted, kept(words) / GIB, "GiB", 0.03, ACTIVATIONS
        )
    savings = ("sp recompute=none", "recompute=selective", "sp recompute=selective",
               "recompute=full")  # fmt: skip
    for words, quoted in zip(savings, case.shares, strict=True):
        share = 100 * kept(words) / plain
        yield Row(f"{case.name} kept, {words}", quoted, share, "%", 0.2 / quoted, SHARES)
