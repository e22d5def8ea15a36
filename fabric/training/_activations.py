"""Bytes that a forward pass keeps for the backward pass: the closed forms of Korthikanti et al."""

from dataclasses import replace

from fabric.training._layout import Layout
from fabric.training._model import Model
from fabric.training._numbers import ACTIVATION
from fabric.training._stages import gpu_qkv_width, gpu_vocab, layers_of_stage

MASK = 1
"""Bytes of an entry of a dropout mask."""


def local_tokens(layout: Layout) -> float:
    """Return the tokens of a microbatch on one GPU, those of its context parallel share."""
    return layout.mb * layout.seq / layout.cp


def layer_activations(
    model: Model, layout: Layout, *, attention: str = "flash2", dropout: bool = False
) -> float:
    """Return bytes that one layer keeps of one microbatch on one GPU.

    For a GPT of ffn = 4h in 16 bit, with unfused attention and dropout, this is with s b tokens:

        plain                     s b h (10 + 24/t + 5 a s / h t)
        sp                        s b h (34 + 5 a s / h) / t
        selective                 s b h (10 + 24/t)
        sp and selective          34 s b h / t
        full                      2 s b h; with sp, where layers pass on shares, 2 s b h / t

    The parts, with elements of 2 bytes and masks of 1: inputs of the two norms, of the projection
    of queries, keys and values and of the MLP (8 h), and the masks of the two dropouts behind
    attention and MLP (2 h), are whole on every GPU, or divided by t with sp; queries, keys, values
    and the attention output (2 (2 a d + 2 k d)), and the tensors before and after the activation
    (2 x 2f, or 2 x 3f when gated, with the activation fused into the gate's product) are divided
    by t; so are the softmax, its mask and what dropout makes of it (5 a s).

    Fused attention ("flash2", "flash3") keeps no squares: without the term 5 a s there is nothing
    left for `selective` to save. Without dropout the masks go, and of 5 a s the softmax, 2 a s,
    stays. Context parallelism divides the tokens, not the keys that each of them sees.

    Args:
        model: The shape.
        layout: How it is cut.
        attention: "unfused", "flash2" or "flash3".
        dropout: Whether there is dropout in attention and behind both blocks.

    References:
        V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022
        (arXiv 2205.05198), equations 1 to 6 and table 2. T. Dao et al., FlashAttention, 2022.
    """
    w, t = ACTIVATION[layout.dtype], layout.tp
    around = t if layout.sp else 1
    if layout.recompute == "full":
        return local_tokens(layout) * w * model.hidden / around
    whole = (4 * w + 2 * MASK * dropout) * model.hidden
    qkv, out = gpu_qkv_width(model, t), model.q_width / t
    split = w * (qkv + out + (model.up_matrices + 1) * model.ffn / t)
    core = (
        0.0
        if layout.recompute == "selective"
        else core_activations(model, layout, attention=attention, dropout=dropout)
    )
    return local_tokens(layout) * (whole / around + split) + core


def core_activations(
    model: Model, layout: Layout, *, attention: str = "flash2", dropout: bool = False
) -> float:
    """Return bytes of the squares of unfused attention, 5 a s^2 b / t; 0 for fused attention.

    Args:
        model: The shape.
        layout: How it is cut.
        attention: "unfused", "flash2" or "flash3".
        dropout: Without it the mask and the masked copy go, and 2 a s^2 b / t stays.
    """
    if attention != "unfused":
        return 0.0
    w = ACTIVATION[layout.dtype]
    squares = local_tokens(layout) * layout.seq * model.heads / layout.tp
    return squares * (w + (w + MASK) * dropout)


def layers_in_flight(model: Model, layout: Layout, stage: int) -> float:
    """Return how many layers' activations a stage holds at its peak, over all microbatches.

    GPipe holds all m microbatches, 1F1B at most p - stage. Interleaved, a stage runs
    2 (p - stage - 1) + (v - 1) p chunks ahead and one more; on the first stage that makes
    L (1 + (p - 1)/(p v)) layers.

    Args:
        model: Its number of layers, L.
        layout: p, v, m and the schedule.
        stage: 0 to p - 1.

    References:
        D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters, 2021,
        section 2.2; V. Korthikanti et al., 2022, section 4.2.3.
    """
    p, v, m = layout.pp, layout.vpp, layout.microbatches
    layers = float(layers_of_stage(model, layout))
    if layout.schedule == "gpipe":
        return layers * m
    if v == 1:
        return layers * min(p - stage, m)
    chunks = min(2 * (p - stage - 1) + (v - 1) * p + 1, v * m)
    return layers / v * chunks


def embedding_activations(model: Model, layout: Layout, *, dropout: bool = False) -> float:
    """Return bytes of the mask of the dropout behind the embedding, of all microbatches in flight.

    Args:
        model: The shape.
        layout: How it is cut.
        dropout: Without it nothing is kept but the token numbers, which are not counted.

    References:
        V. Korthikanti et al., 2022, section 4.3: s b h p / t with sp.
    """
    around = layout.tp if layout.sp else 1
    flying = (
        layout.microbatches if layout.schedule == "gpipe" else min(layout.pp, layout.microbatches)
    )
    return dropout * MASK * local_tokens(layout) * model.hidden / around * flying


def logits_activations(model: Model, layout: Layout) -> float:
    """Return bytes of final norm, head and loss at their peak, on the last stage.

    The inputs of norm and head are kept (4 s b h / t with sp), and the logits four times: as the
    head makes them, in FP32 for the loss, and the gradients of both. GPipe keeps inputs and FP32
    logits of all m microbatches.

    Args:
        model: The shape.
        layout: How it is cut.

    References:
        V. Korthikanti et al., 2022, section 4.3, which counts inputs and FP32 logits.
    """
    w, tokens = ACTIVATION[layout.dtype], local_tokens(layout)
    around = layout.tp if layout.sp else 1
    kept = tokens * (2 * w * model.hidden / around + 4 * gpu_vocab(model, layout.tp))
    passing = tokens * (2 * w + 4) * gpu_vocab(model, layout.tp)
    return kept * (layout.microbatches if layout.schedule == "gpipe" else 1) + passing


def recomputed_activations(
    model: Model, layout: Layout, *, attention: str = "flash2", dropout: bool = False
) -> float:
    """Return bytes of what the backward pass of one layer computes again before it uses it.

    Args:
        model: The shape.
        layout: How it is cut.
        attention: "unfused", "flash2" or "flash3".
        dropout: Whether masks are kept.
    """
    if layout.recompute == "none":
        return 0.0
    if layout.recompute == "selective":
        return core_activations(model, layout, attention=attention, dropout=dropout)
    whole = replace(layout, recompute="none")
    return layer_activations(model, whole, attention=attention, dropout=dropout)


def working_activations(model: Model, layout: Layout, tensors: int | float) -> float:
    """Return bytes of gradients and gathered inputs while one layer goes backward.

    Args:
        model: The shape.
        layout: How it is cut.
        tensors: Tensors of the whole hidden width that are alive at once: inputs that sequence
            parallelism gathers, and gradients; those inside the MLP, ffn wide, are added.
    """
    inner = (model.up_matrices + 1) * model.ffn / layout.tp
    return local_tokens(layout) * ACTIVATION[layout.dtype] * (tensors * model.hidden + inner)
