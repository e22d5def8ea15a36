"""What a pipeline stage holds: its layers, and its parameters on each GPU."""

from fabric.network._checks import whole
from fabric.training._layout import Layout
from fabric.training._model import Model


def layers_of_stage(model: Model, layout: Layout) -> int:
    """Return how many layers every stage has; `Layout.check` sees that they divide."""
    return model.layers // layout.pp


def parameters_of_stage(model: Model, layout: Layout, stage: int) -> int:
    """Return the parameters that one GPU of a stage works with, before ZeRO shards them.

    Tensor parallelism splits matrices; norms, biases after the second matrix, learned positions
    and, beyond their number, key and value heads are repeated. The first stage has the embedding,
    the last the final norm and the head; a tied head is a second copy when there is more than one
    stage. The vocabulary is rounded up to a multiple of tp.

    Args:
        model: The shape.
        layout: How it is cut.
        stage: 0 to pp - 1.

    Raises:
        ModelError: If there is no such stage.

    Examples:
        >>> model, layout = Model.listed("llama-3.1-70b"), Layout.parse("tp8 pp4 gbs4 seq8192")
        >>> [parameters_of_stage(model, layout, stage) for stage in range(4)]
        [2270756864, 2139422720, 2139422720, 2270765056]
    """
    stage = whole("stage", stage, least=0, most=layout.pp - 1)
    total = layers_of_stage(model, layout) * gpu_layer_parameters(model, layout.tp)
    vocabulary = gpu_vocab(model, layout.tp) * model.hidden
    if stage == 0:
        total += vocabulary + model.positions * model.hidden
    if stage == layout.pp - 1:
        total += model.norm_parameters
        total += 0 if model.tied and layout.pp == 1 else vocabulary
    return total


def gpu_layer_parameters(model: Model, tp: int) -> int:
    """Return the parameters of a layer on each of `tp` GPUs that share it.

    Args:
        model: The shape.
        tp: Tensor parallel size, which divides heads and ffn.

    Examples:
        >>> model = Model.listed("llama-3.1-70b")
        >>> gpu_layer_parameters(model, 1) == model.layer_parameters
        True
    """
    h, up = model.hidden, model.up_matrices
    qkv, f = gpu_qkv_width(model, tp), model.ffn // tp
    matrices = h * qkv + model.q_width // tp * h + (up + 1) * h * f
    biases = model.qkv_bias * qkv + model.out_bias * h + model.mlp_bias * (up * f + h)
    norms = 2 * model.norm_parameters + model.qk_norm * 2 * model.head_dim
    return matrices + biases + norms


def gpu_qkv_width(model: Model, tp: int) -> int:
    """Return the width of queries, keys and values together on one of `tp` GPUs.

    Every GPU has at least one key and one value head: beyond their number they are repeated.
    """
    return model.q_width // tp + 2 * max(model.kv_heads // tp, 1) * model.head_dim


def gpu_vocab(model: Model, tp: int) -> int:
    """Return the entries of the vocabulary on one of `tp` GPUs, rounded up.

    Examples:
        >>> gpu_vocab(Model.listed("gpt2-xl"), 8)
        6283
    """
    return -(-model.vocab // tp)
