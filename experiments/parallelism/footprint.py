"""A24, A25 and A29: activations, pipeline bubbles, and bytes per parameter."""

from collections.abc import Iterator
from dataclasses import replace

import fabric as fb
from experiments.parallelism.measure import (
    KORTHIKANTI,
    NARAYANAN,
    RULE,
    ZERO,
    often,
    sent,
    stepped,
)
from experiments.rows import Row
from fabric.training import memory, states

GPU = 80e9
"""Bytes of the GPU of the quotes."""


def rows() -> Iterator[Row]:
    """Yield every row."""
    yield from activations()
    yield from bubbles()
    yield from kept_by_pipelines()
    yield from per_parameter()


def activations() -> Iterator[Row]:
    """Yield A24: bytes of a layer of GPT-3, unfused attention and dropout, per s b h."""
    model = fb.Model.listed("gpt-3-175b")
    squares = 5 * model.heads * 2048 / model.hidden
    for what, words, form in (
        ("plain", "tp1", 34 + squares),
        ("tp8", "tp8", 10 + 24 / 8 + squares / 8),
        ("tp8 sp", "tp8 sp", 34 / 8 + squares / 8),
    ):
        layout = fb.Layout.parse(f"{words} mb2 gbs2 seq2048")
        held = memory(model, layout, GPU, attention="unfused", dropout=True)
        each = held.components["activations"] / (2048 * 2 * model.hidden * model.layers)
        yield Row(f"A24 {what}, bytes over sbh", form, each, "B", 1e-9, f"{KORTHIKANTI}, table 2")


def bubbles() -> Iterator[Row]:
    """Yield A25: the bubble over all else that a pipeline of 16 stages does."""
    # Without a head and its reductions all stages are alike, as in the forms.
    model = replace(fb.Model.listed("gpt-3-175b"), vocab=8, tied=False)
    for what, words, form in (
        ("GPipe", "pp16 gbs64 schedule=gpipe", 15 / 64),
        ("1F1B", "pp16 gbs64", 15 / 64),
        ("interleaved v3", "pp16 vpp3 gbs96", 15 / (3 * 96)),
    ):
        share = _bubble(model, words)
        yield Row(f"A25 {what}, bubble over ideal", form, share, "", 1e-3, f"{NARAYANAN}, 2.2")
    share = _bubble(fb.Model.listed("gpt-3-175b"), "tp8 sp pp16 gbs1536")
    yield Row(
        "A25 GPT-3 175B tp8 pp16, 1,536 microbatches", 15 / 1536, share, "", 0.1, NARAYANAN,
        "small indeed, and below the form: the last stage has the head, and filling waits for it "
        "only once",
    )  # fmt: skip


def _bubble(model: fb.Model, words: str) -> float:
    parts = stepped(model, f"{words} mb1 seq2048").parts
    ideal = parts.compute + parts.host + parts.tp + parts.pp
    return float(parts.bubble / ideal)


def kept_by_pipelines() -> Iterator[Row]:
    """Yield what A25 says of activations and of messages."""
    model = fb.Model.listed("gpt-3-175b")
    kept = lambda words: memory(
        model, fb.Layout.parse(f"tp8 sp pp16 {words} mb1 seq2048"), GPU
    ).stages[0]["activations"]
    yield Row(
        "A25 GPipe over 1F1B, activations, m = 64", 64 / 16,
        kept("gbs64 schedule=gpipe") / kept("gbs64"), "x", 1e-9, f"{NARAYANAN}, 2.2",
    )  # fmt: skip
    report = {v: stepped(model, f"tp8 sp pp16 vpp{v} mb1 gbs96 seq2048") for v in (1, 3)}
    volume = {v: sent(r, "pp_forward") * often(r, "pp_forward") for v, r in report.items()}
    yield Row("A25 interleaved v3 over plain, messages", 3, volume[3] / volume[1], "x", 1e-9,
              f"{NARAYANAN}, 2.2")  # fmt: skip


def per_parameter() -> Iterator[Row]:
    """Yield A29: bytes per parameter, and the GPUs that they need."""
    layout = fb.Layout.parse("gbs1 seq1")
    held = lambda count: sum(states(count, layout, grad_dtype="bf16").values())
    yield Row("A29 mixed precision with Adam, per parameter", 16, held(1), "B", 1e-9, ZERO,
              "with gradients in BF16; summed in FP32 they make it 18")  # fmt: skip
    whole = held(1.5e12)
    yield Row("A29 1.5T parameters, states", 24, whole / 1e12, "TB", 1e-9, RULE)
    yield Row("A29 1.5T parameters, at 75 % use", 32, whole / 0.75 / 1e12, "TB", 1e-9, RULE)
    yield Row("A29 1.5T parameters, GPUs of 80 GB", 400, whole / 0.75 / GPU, "", 1e-9, RULE)
    why = "one to two billion parameters on a GPU; what memory finds is in the summary"
    for quoted, each in ((100, 2e9), (200, 1e9)):
        count = gpt_260b().parameters / each
        yield Row(
            f"A29 260B parameters, GPUs at {each / 1e9:g}B each", quoted, count, "", 0, RULE, why,
            refuted=True,
        )  # fmt: skip


def gpt_260b() -> fb.Model:
    """Return a GPT of 260 billion parameters."""
    hidden = 15360
    return replace(
        fb.Model.listed("gpt-3-175b"), name="gpt-260b", layers=92, hidden=hidden, heads=120,
        kv_heads=120, ffn=4 * hidden,
    )  # fmt: skip


def least_gpus() -> int:
    """Return the fewest GPUs of 80 GB that hold it, 8 tensor ranks a stage and equal stages."""
    model = gpt_260b()
    words = "tp8 sp pp{0} mb1 gbs{0} seq2048 recompute=selective"
    held = lambda stages: memory(model, fb.Layout.parse(words.format(stages)), GPU)
    stages = (p for p in range(1, model.layers + 1) if model.layers % p == 0)
    return 8 * next(p for p in stages if held(p).verdict != "does not fit")
