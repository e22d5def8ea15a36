"""A20 to A23, A27, A28 and A34: what each kind of parallelism sends, counted from its flows."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import fabric as fb
from experiments.parallelism.measure import (
    KORTHIKANTI,
    NARAYANAN,
    RULE,
    SHOEYBI,
    ZERO,
    often,
    sent,
    servers,
    stepped,
    tiers,
)
from experiments.rows import Row
from fabric import collectives, hardware
from fabric.training import StepReport, states

SMALL, LARGE = "llama-3.1-8b", "llama-3.1-70b"
SHOWN = "tp8 sp pp4 dp4 mb1 gbs128 seq8192"


def rows() -> Iterator[Row]:
    """Yield every row."""
    yield from data_parallel()
    yield from zero_3()
    yield from tensor_parallel()
    yield from scatter_gather()
    groups = fb.Layout.parse("tp8 pp4 dp3 gbs3 seq1").groups("dp")
    yield Row("A27 tp8 pp4 dp3, groups", 32, groups.shape[0], "", 0, NARAYANAN)
    yield Row("A27 tp8 pp4 dp3, GPUs of a group", 3, groups.shape[1], "", 0, NARAYANAN)
    yield from side_by_side(shown())


def data_parallel() -> Iterator[Row]:
    """Yield A20: FP32 gradients of two models on 16 GPUs."""
    volume = {}
    for name in (SMALL, LARGE):
        report = stepped(name, "dp16 gbs16 seq4096")
        volume[name] = sent(report, "dp") * often(report, "dp")
    parameters = {name: fb.Model.listed(name).parameters for name in volume}
    whole = 2 * 15 / 16 * 4 * parameters[SMALL]
    yield Row(f"A20 {SMALL} dp16, sent a step", whole / 1e9, volume[SMALL] / 1e9, "GB", 1e-9, RULE)
    yield Row(
        f"A20 {LARGE} over {SMALL}, sent", parameters[LARGE] / parameters[SMALL],
        volume[LARGE] / volume[SMALL], "x", 1e-9, RULE,
    )  # fmt: skip
    net = servers("dgx-h100", 2)
    halves = ("reduce_scatter", "all_gather")
    time = lambda name: float(
        collectives.collective(name, net, None, "16GiB", algorithm="ring").time
    )
    yield Row(
        "A20 reduce-scatter + all-gather over all-reduce", 1,
        sum(map(time, halves)) / time("all_reduce"), "x", 0.01, ZERO, "times of 16 GiB on 16 GPUs",
    )  # fmt: skip


def zero_3() -> Iterator[Row]:
    """Yield A21: gathers and reductions of BF16, and what is held."""
    base = hardware.profile("megatron-core-h100")
    bf16 = base.with_values({"stack.grad_dtype": "bf16"})
    volume = {}
    for zero in (0, 3):
        for gbs in (16, 128):
            report = stepped(SMALL, f"dp16 zero{zero} gbs{gbs} seq4096", profile=bf16)
            volume[zero, gbs] = sent(report, "dp") * often(report, "dp")
    yield Row(
        "A21 ZeRO-3 over plain, sent, 1 microbatch", 1.5, volume[3, 16] / volume[0, 16], "x", 1e-9,
        f"{ZERO}, section 7", "gradients in BF16; in FP32 plain data parallelism sends twice as "
        "much",
    )  # fmt: skip
    yield Row(
        "A21 ZeRO-3 over plain, sent, 8 microbatches", 1.5, volume[3, 128] / volume[0, 128], "x",
        1e-9, f"{ZERO}, section 7",
        "the quote is of one microbatch: weights are gathered and gradients reduced in each one, "
        "while plain data parallelism reduces once a step",
        refuted=True,
    )  # fmt: skip
    plain, split = (
        sum(states(8e9, fb.Layout.parse(f"dp64 zero{zero} gbs64 seq1")).values())
        for zero in (0, 3)
    )  # fmt: skip
    yield Row("A21 ZeRO-3 dp64, states held", 1 / 64, split / plain, "x", 1e-9, ZERO)


def tensor_parallel() -> Iterator[Row]:
    """Yield A22 and A23: exchanges of a layer, and their bytes with and without splitting."""
    model = fb.Model.listed("gpt-3-175b")
    longer = replace(model, layers=2 * model.layers)
    words = "tp8 mb1 gbs1 seq2048"
    plain, twice = stepped(model, words), stepped(longer, words)
    per_layer = (often(twice, "tp") - often(plain, "tp")) / model.layers
    yield Row(
        "A22 all-reduces of a layer", 4, per_layer, "", 1e-9, SHOEYBI,
        "two forward and two backward; column then row split: none between both matrices",
    )  # fmt: skip
    activations = 2 * 2048 * model.hidden
    yield Row(
        "A22 sent in each", 2 * 7 / 8 * activations / 1e6, sent(plain, "tp") / 1e6, "MB", 1e-9,
        SHOEYBI,
    )  # fmt: skip
    split = stepped(model, f"{words} sp")
    volume = lambda report: sent(report, "tp") * often(report, "tp")
    yield Row("A23 sequence parallel over tensor parallel, sent", 1, volume(split) / volume(plain),
              "x", 1e-9, f"{KORTHIKANTI}, section 4.2.2")  # fmt: skip


def scatter_gather() -> Iterator[Row]:
    """Yield A28: a message between stages, whole on every rank, and cut over eight."""
    model = fb.Model.listed("gpt-3-175b")
    report = stepped(model, "tp8 sp pp2 mb1 gbs2 seq2048")
    whole = 2 * 2048 * model.hidden
    yield Row(
        "A28 scatter-gather, share of a message per NIC", 1 / 8,
        sent(report, "pp_forward") / whole, "x", 1e-9, f"{NARAYANAN}, section 4.1",
    )  # fmt: skip


def faster_by() -> float:
    """Return how much sooner a message of 50 MB is there when it is cut over eight ranks (A28)."""
    net = servers("dgx-h100", 2)
    size = 2 * 2048 * fb.Model.listed("gpt-3-175b").hidden
    pairs = {"receivers": net.hosts[8:16]}
    time = lambda how: float(
        collectives.send_recv(net, net.hosts[:8], size, algorithm=how, **pairs).time
    )
    return time("send") / time("scatter-gather")


def shown() -> StepReport:
    """Return the step whose traffic is set side by side."""
    return stepped(LARGE, SHOWN)


def side_by_side(report: StepReport) -> Iterator[Row]:
    """Yield A34: bytes of a GPU in a step, against closed forms."""
    model, layout = report.model, report.layout
    t, d, m, deep = layout.tp, layout.dp, layout.microbatches, model.layers / layout.pp
    activations = 2 * layout.mb * layout.seq * model.hidden
    held = (deep * model.layer_parameters + model.vocab * model.hidden) / t
    forms = {
        "tp": (4 * deep + 2) * m * 2 * (t - 1) / t * activations,
        "pp_forward": m * activations / t,
        "dp": 2 * (d - 1) / d * 4 * held,
    }
    for (kind, form), line in zip(forms.items(), table(report), strict=True):
        near = 1e-3 if kind == "dp" else 1e-9
        note = "norms, which tensor parallelism repeats, are not in the form" * (kind == "dp")
        yield Row(f"A34 {kind}, sent a step", form / 1e9, line["gigabytes_a_step"], "GB", near,
                  NARAYANAN, note)  # fmt: skip


def table(report: StepReport) -> list[dict[str, Any]]:
    """Return bytes, how often, and where, of every kind of parallelism."""
    lines = []
    for kind in ("tp", "pp_forward", "dp"):
        group = kind.partition("_")[0]
        times = often(report, kind)
        lines.append(
            {
                "exchange": kind,
                "megabytes_each": sent(report, kind) / 1e6,
                "times_a_step": times,
                "gigabytes_a_step": sent(report, kind) * times / 1e9,
                "exposed_s": report.seconds_of(group)[0],
                "hidden_s": report.seconds_of(group)[1],
                "tiers": tiers(report, kind),
            }
        )
    return lines
