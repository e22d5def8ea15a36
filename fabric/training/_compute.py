"""Seconds that one GPU computes: a roofline with a GEMM efficiency that grows with size."""

from dataclasses import dataclass

from fabric._errors import ModelError, nearest
from fabric.hardware import Gpu, Profile
from fabric.training._layout import Layout
from fabric.training._model import Model
from fabric.training._stages import gpu_qkv_width, gpu_vocab

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
        gemms: Of one layer, the part of `forward` that is matrix products.
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
    gemms: float
    attention: float
    attention_backward: float
    host_forward: float
    host_backward: float
    head: float
    accumulate: float
    optimizer: float


@dataclass(frozen=True)
class Roofline:
    """What a GPU reaches under a software stack.

    Attributes:
        flops: FLOP/s of a large GEMM.
        half: Size at which each side of a GEMM costs as much again as a large one's.
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
            known = nearest(dtype, list(gpu.peak))
            message = f"The catalogue has no peak of '{gpu.name}' for {dtype}. {known}"
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
        """Return seconds of an (m, k) by (k, n) product: 2mnk / peak x (1 + q(1/m + 1/n + 1/k))."""
        return 2 * m * n * k / self.flops * (1 + self.half * (1 / m + 1 / n + 1 / k))

    def stream(self, size: float) -> float:
        """Return seconds to move so many bytes through memory."""
        return size / self.memory


def compute_times(
    model: Model,
    layout: Layout,
    gpu: Gpu,
    profile: Profile,
    parameters: float,
) -> Compute:
    """Return what a microbatch costs one GPU.

    Args:
        model: Its shape.
        layout: How it is cut.
        gpu: The peak of `layout.dtype` and the memory bandwidth.
        profile: Which shares of them the software reaches, and how it is built.
        parameters: Held by one GPU of the heaviest stage.

    References:
        V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022
        (arXiv 2205.05198). T. Dao, FlashAttention-2, 2023 (arXiv 2307.08691).
    """
    line = Roofline.of(gpu, profile, layout.dtype)
    stack = profile.stack
    t, b = layout.tp, layout.mb
    s = layout.seq
    rows = b * s / layout.cp
    h, f, v = model.hidden, model.ffn, gpu_vocab(model, t)
    q_width = model.q_width

    gemms = (
        line.gemm(rows, gpu_qkv_width(model, t), h)
        + line.gemm(rows, h, q_width / t)
        + line.gemm(rows, model.up_matrices * f / t, h)
        + line.gemm(rows, h, f / t)
    )
    squares = b * s * s / (t * layout.cp)  # scores per head, over all heads: x heads
    if stack.attention == "unfused":
        products = (
            4 * squares * q_width / line.flops
            * (1 + line.core_half * (2 / s + 1 / model.head_dim))
        )  # fmt: skip
        softmax = line.stream((9 if stack.dropout else 4) * model.heads * squares)
        attention = products + softmax
        attention_backward = 2 * products + SOFTMAX_BACKWARD * softmax
    else:
        attention = 2 * squares * q_width / line.flash  # the causal half of the square
        attention_backward = FLASH_BACKWARD * attention
    elementwise = line.stream(
        (22 if stack.dropout else 16) * rows * h / (t if layout.sp else 1)
        + (8 * rows * h + (6 if model.gated else 4) * rows * f) / t
    )
    forward = gemms + attention + elementwise
    full = layout.recompute == "full"
    again = {"none": 0.0, "selective": attention, "full": forward}[layout.recompute]
    if layout.recompute == "selective" and stack.attention != "unfused":
        again = 0.0  # fused attention keeps no scores: there is nothing left to select
    host = profile.latency.host_per_layer.value
    return Compute(
        forward=forward,
        backward=2 * gemms + attention_backward + 2 * elementwise,
        recompute=again,
        gemms=gemms,
        attention=attention,
        attention_backward=attention_backward,
        host_forward=host,
        host_backward=host * (HOST_BACKWARD_RECOMPUTED if full else HOST_BACKWARD),
        head=3 * line.gemm(rows, v, h) + line.stream(20 * rows * v),
        accumulate=0.0 if stack.grad_accumulation == "fused" else line.stream(10 * parameters),
        optimizer=line.stream(parameters * optimizer_bytes(layout)),
    )


def optimizer_bytes(layout: Layout) -> float:
    """Return bytes that the update moves per parameter of a GPU.

    34: FP32 gradient, master copy and two moments read, the last three written, BF16 written.
    Sharded, each of D ranks updates its part: 4 + 30/D.
    """
    return 34.0 if layout.zero == 0 else 4 + 30 / (layout.dp * layout.cp)
