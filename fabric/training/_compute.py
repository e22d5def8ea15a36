"""Seconds that one GPU computes: a roofline with a GEMM efficiency that grows with size."""

from dataclasses import dataclass

from fabric._errors import ModelError
from fabric.hardware import Gpu, Profile, Stack
from fabric.training._layout import Layout
from fabric.training._model import Model
from fabric.training._stages import gpu_qkv_width, gpu_vocab
from fabric.training._words import WORDS

# FLOPs of the backward of fused attention over those of its forward: it computes scores again.
FLASH_BACKWARD = 2.5
# Time of the backward of an unfused softmax over that of its forward.
SOFTMAX_BACKWARD = 1.6
# The host launches more in a backward pass than in a forward, and both with full recompute.
HOST_BACKWARD, HOST_BACKWARD_RECOMPUTED = 1.6, 2.6


@dataclass(frozen=True)
class Compute:
    """Seconds of one microbatch on one GPU, communication left out.

    Attributes:
        forward, backward: Of one layer; `backward` without what is computed again.
        recompute: Of one layer, what the backward pass computes again.
        products: Of one layer, the part of `forward` that is matrix products.
        attention, attention_backward: Of one layer, the parts of `forward` and of `backward` that
            are the attention core.
        host_forward, host_backward: Of one layer, what the host needs to launch it: a floor.
        head: Of the output head and the loss, on the last stage.
        accumulate: Adding the gradients of a microbatch to the sum, per stage.
        optimizer: The update of the parameters, once a step.
    """

    forward: float
    backward: float
    recompute: float
    products: float
    attention: float
    attention_backward: float
    host_forward: float
    host_backward: float
    head: float
    accumulate: float
    optimizer: float


@dataclass(frozen=True)
class Roofline:
    """What a GPU reaches under a software stack with one type of numbers.

    Attributes:
        flops: FLOP/s of a large matrix product.
        half: Size q of one side of a product that halves its speed.
        core_half: The same for the batched products of unfused attention.
        memory: byte/s.
        flash: FLOP/s of fused attention.
    """

    flops: float
    half: float
    core_half: float
    memory: float
    flash: float

    @classmethod
    def of(cls, gpu: Gpu, profile: Profile, dtype: str) -> "Roofline":
        """Return the roofline of a GPU for one type of numbers."""
        if dtype not in gpu.peak:
            known = [name for name in WORDS["dtype"] if name in gpu.peak]
            message = (
                f"The catalogue has no peak of '{gpu.name}' for {dtype}. Use "
                f"{' or '.join(f'`{name}`' for name in known)} in the layout."
            )
            raise ModelError(message)
        peak, share = gpu.peak[dtype].value, profile.efficiency
        return cls(
            flops=peak * share.gemm.value,
            half=profile.gemm_half.value,
            core_half=profile.core_half.value,
            memory=gpu.hbm.value * share.hbm.value,
            flash=peak * share.flash.value,
        )

    def gemm(self, m: float, n: float, k: float) -> float:
        """Return seconds of an (m, k) by (k, n) product: 2mnk / P (1 + q (1/m + 1/n + 1/k))."""
        return 2 * m * n * k / self.flops * (1 + self.half * (1 / m + 1 / n + 1 / k))

    def stream(self, size: float) -> float:
        """Return seconds to move so many bytes through memory."""
        return size / self.memory


def compute_times(
    model: Model, layout: Layout, gpu: Gpu, profile: Profile, parameters: float
) -> Compute:
    """Return what a microbatch costs one GPU.

    Args:
        model: Its shape.
        layout: How it is cut.
        gpu: The peak of `layout.dtype` and the memory bandwidth. With FP8 attention and the head
            stay in BF16.
        profile: Which shares of them the software reaches, and how it is built.
        parameters: Held by one GPU of the heaviest stage.

    References:
        `docs/step-model.md`, section Computing, has the same equations.
        V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022
        (arXiv 2205.05198). T. Dao, FlashAttention-2, 2023 (arXiv 2307.08691).
    """
    line = Roofline.of(gpu, profile, layout.dtype)
    wide = Roofline.of(gpu, profile, "bf16") if layout.dtype == "fp8" else line
    stack, t = profile.stack, layout.tp
    rows, h, f = layout.mb * layout.seq / layout.cp, model.hidden, model.ffn

    products = (
        line.gemm(rows, gpu_qkv_width(model, t), h)
        + line.gemm(rows, h, model.q_width / t)
        + line.gemm(rows, model.up_matrices * f / t, h)
        + line.gemm(rows, h, f / t)
    )
    attention, attention_backward = _attention(model, layout, wide, stack)
    elementwise = line.stream(
        (22 if stack.dropout else 16) * rows * h / (t if layout.sp else 1)
        + (8 * rows * h + (6 if model.gated else 4) * rows * f) / t
    )
    forward = products + attention + elementwise
    # Fused attention keeps no squares, so there is nothing left for "selective" to compute again.
    selective = attention if stack.attention == "unfused" else 0.0
    host = profile.latency.host_per_layer.value
    full = layout.recompute == "full"
    vocab = gpu_vocab(model, t)
    return Compute(
        forward=forward,
        backward=2 * products + attention_backward + 2 * elementwise,
        recompute={"none": 0.0, "selective": selective, "full": forward}[layout.recompute],
        products=products,
        attention=attention,
        attention_backward=attention_backward,
        host_forward=host,
        host_backward=host * (HOST_BACKWARD_RECOMPUTED if full else HOST_BACKWARD),
        head=3 * wide.gemm(rows, vocab, h) + line.stream(20 * rows * vocab),
        accumulate=0.0 if stack.grad_accumulation == "fused" else line.stream(10 * parameters),
        optimizer=line.stream(parameters * optimizer_bytes(layout)),
    )


def _attention(model: Model, layout: Layout, line: Roofline, stack: Stack) -> tuple[float, float]:
    """Return seconds of the attention core of one layer, forward and backward."""
    # Entries of the score matrices of one head, on one GPU.
    scores = layout.mb * layout.seq**2 / (layout.tp * layout.cp)
    if stack.attention != "unfused":
        forward = 2 * scores * model.q_width / line.flash  # the causal half of the square
        return forward, FLASH_BACKWARD * forward
    late = 1 + line.core_half * (2 / layout.seq + 1 / model.head_dim)
    products = 4 * scores * model.q_width / line.flops * late
    softmax = line.stream((9 if stack.dropout else 4) * model.heads * scores)
    return products + softmax, 2 * products + SOFTMAX_BACKWARD * softmax


def optimizer_bytes(layout: Layout) -> float:
    """Return bytes that the update moves per parameter of a GPU.

    34: FP32 gradient, master copy and two moments read, the last three written, BF16 written.
    Sharded, each of D ranks updates its part: 4 + 30/D.
    """
    return 34.0 if layout.zero == 0 else 4 + 30 / (layout.dp * layout.cp)
