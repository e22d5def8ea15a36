"""From seconds of computing and seconds on the wire to the seconds of a step."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fabric.hardware import Profile
from fabric.training._compute import Compute
from fabric.training._layout import Layout
from fabric.training._numbers import GRADIENT, WEIGHT

Scalar = Float[jax.Array, ""] | float
Maximum = Callable[[Scalar, Scalar], Scalar]

LEAST_EXPOSED = 0.05
"""Share of a gradient reduction or parameter gather that no computing hides."""


class Wire(NamedTuple):
    """Seconds that one exchange of each kind takes when all groups of its kind exchange at once.

    Attributes:
        tp: One all-reduce of a layer's activations over a tensor-parallel group, or its
            reduce-scatter and all-gather under sequence parallelism.
        cp: One pass of a layer's keys and values around a context-parallel ring.
        pp_forward, pp_backward: One message between stages.
        dp: One pass of a byte per parameter around the data-parallel ring of the slowest stage:
            each rank sends (D - 1)/D of them; without latency.
        dp_latency: Of one pass, whatever it carries.
        embedding: The gradients of a tied embedding between first and last stage, once a step.
    """

    tp: Scalar
    cp: Scalar
    pp_forward: Scalar
    pp_backward: Scalar
    dp: Scalar
    dp_latency: Scalar
    embedding: Scalar


class Parts(NamedTuple):
    """Seconds of a step by what they are spent on; they add up to the step.

    Attributes:
        compute: Kernels of all microbatches on the slowest stage, recomputing included.
        host: What launching adds to them.
        tp, cp, pp, dp, embedding: Communication that nothing hides.
        bubble: Filling and draining the pipeline.
        optimizer: The update.
        jitter: Waiting for the slowest of many nodes.
        stack: What a stack slower than the tuned ones adds.
        hidden_tp, hidden_cp, hidden_dp: Communication behind computing, not part of the sum.
    """

    compute: Scalar
    host: Scalar
    tp: Scalar
    cp: Scalar
    pp: Scalar
    dp: Scalar
    embedding: Scalar
    bubble: Scalar
    optimizer: Scalar
    jitter: Scalar
    stack: Scalar
    hidden_tp: Scalar
    hidden_cp: Scalar
    hidden_dp: Scalar

    @property
    def step(self) -> Scalar:
        """Seconds of the step."""
        return sum(self[: Parts._fields.index("hidden_tp")], start=0.0)


def assemble(
    work: Compute,
    wire: Wire,
    layout: Layout,
    profile: Profile,
    *,
    layers: int,
    parameters: float,
    nodes: float,
    maximum: Maximum = jnp.maximum,
) -> Parts:
    """Return where the time of a step goes.

    Args:
        work: Seconds of one microbatch on one GPU.
        wire: Seconds per exchange, latency included. Traced: every kink in here is a `maximum`,
            so that `directional.jvp` finds exact one-sided derivatives.
        layout: How the model is cut.
        profile: How the software overlaps.
        layers: Of the model.
        parameters: Held by one GPU of the heaviest stage.
        nodes: Servers of the job.
        maximum: Of two numbers; another one may note which of them is larger.

    The layer: GPU time and host time combine as (gpu^4 + host^4)^(1/4), since launches run ahead
    of kernels until they cannot. The pipeline: m microbatches through the slowest stage, and p - 1
    chunks of 1/v of a stage to fill and drain it, for GPipe and 1F1B alike. Data parallel: the
    reduction hides behind the last backward pass of a stage, the gather behind the first forward.

    References:
        D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters, 2021
        (arXiv 2104.04473), section 2.2: the bubble (p - 1)/(v m).
    """
    stack, p, v, m = profile.stack, layout.pp, layout.vpp, layout.microbatches
    depth = layers / p
    forward, backward = _layer(work, wire, layout, profile, maximum)
    stage = depth * (forward.all + backward.all)
    ends = 2 * wire.tp  # the last stage reduces the input gradient and the loss
    # Without sequence parallelism the parts of a message are gathered again inside the server.
    gathered = wire.tp / 2 if layout.tp > 1 and p > 1 and not layout.sp else 0.0
    messages = v * (wire.pp_forward + wire.pp_backward + 2 * gathered)
    launch = profile.latency.microbatch.value + (v > 1) * v * profile.latency.chunk.value
    slowest = stage + work.head + ends + work.accumulate + messages + launch
    bubble = (p - 1) * (stage + messages + launch) / v
    pipeline = m * slowest + bubble

    floor = max(LEAST_EXPOSED, min(1.0, bucket(layout, profile) / parameters))
    overlap = lambda total, behind: (
        maximum(floor * total, total - behind) if stack.dp_overlap else total
    )
    beside = lambda total: (
        (pipeline**3 + total**3) ** (1 / 3) - pipeline if stack.dp_overlap else total
    )
    sent = lambda width: width * wire.dp + wire.dp_latency
    reduced, gather = sent(GRADIENT[stack.grad_dtype]), sent(WEIGHT[layout.dtype])
    if layout.zero == 3:  # gathers in both passes and reduces in one, every microbatch
        dp_total = m * (2 * gather + reduced)
        dp = beside(dp_total)
    elif layout.zero == 2:  # reduces every microbatch, gathers once
        dp_total = m * reduced + gather
        dp = beside(m * reduced) + overlap(gather, depth * forward.all)
    elif layout.zero == 1:
        dp_total = reduced + gather
        dp = overlap(reduced, depth * backward.all) + overlap(gather, depth * forward.all)
    else:
        dp_total = 2 * reduced
        dp = overlap(dp_total, depth * backward.all)

    calm = pipeline + dp + wire.embedding + work.optimizer
    jitter = calm * profile.jitter_per_doubling.value * math.log2(max(nodes, 1))
    slack = (calm + jitter) * (1 / stack.factor.value - 1)
    runs = m * depth
    exposed_tp = runs * (forward.tp + backward.tp) + m * ends
    exposed_cp = runs * (forward.cp + backward.cp)
    times = times_a_step(layout, profile, layers)
    return Parts(
        compute=runs * (work.forward + work.backward + work.recompute)
        + m * (work.head + work.accumulate),
        host=runs * (forward.host + backward.host) + m * launch,
        tp=exposed_tp,
        cp=exposed_cp,
        pp=m * messages,
        dp=dp,
        embedding=1.0 * wire.embedding,
        bubble=bubble,
        optimizer=work.optimizer,
        jitter=jitter,
        stack=slack,
        hidden_tp=times["tp"] * wire.tp - exposed_tp,
        hidden_cp=times["cp"] * wire.cp - exposed_cp,
        hidden_dp=dp_total - dp,
    )


def times_a_step(layout: Layout, profile: Profile, layers: int) -> dict[str, float]:
    """Return how often a GPU of the last stage makes each kind of exchange in a step.

    Two `tp` exchanges and one `cp` pass in the forward pass of a layer, two of both in the backward
    pass, and those of the forward pass again with full recompute; `dp` counts bytes a parameter.
    """
    m, again = layout.microbatches, layout.recompute == "full"
    runs = m * layers / layout.pp
    reduced, gathered = GRADIENT[profile.stack.grad_dtype], WEIGHT[layout.dtype]
    messages = m * layout.vpp
    return {
        "tp": runs * (6 if again else 4) + 2 * m,
        "cp": runs * (4 if again else 3),
        "pp_forward": messages,
        "pp_backward": messages,
        "dp": {
            0: 2 * reduced,
            1: reduced + gathered,
            2: m * reduced + gathered,
            3: m * (reduced + 2 * gathered),
        }[layout.zero],
        "embedding": 1.0,
    }


class _Pass(NamedTuple):
    """Seconds of one layer in one direction, and what each kind of waiting adds."""

    all: Scalar
    host: Scalar
    tp: Scalar
    cp: Scalar


def _layer(
    work: Compute, wire: Wire, layout: Layout, profile: Profile, maximum: Maximum
) -> tuple[_Pass, _Pass]:
    """Return the forward and the backward pass of one layer."""
    stack, c = profile.stack, layout.cp
    # Each of a layer's two collectives runs beside half of its matrix products, if any.
    beside = work.products / 2
    uncovered = lambda hidden: maximum(wire.tp - hidden, 0.0)
    tp_forward = 2 * (uncovered(beside) if stack.tp_overlap else wire.tp)
    share = (stack.sp_exposed_backward if layout.sp else stack.tp_exposed_backward).value
    tp_backward = 2 * (uncovered(2 * beside) if stack.tp_overlap else share * wire.tp)
    # A ring passes blocks while the previous block is attended to; the first is there already.
    ring = lambda passes, attention: maximum(passes * wire.cp - attention * (c - 1) / c, 0.0)
    cp_forward = ring(1, work.attention) if c > 1 else 0.0
    cp_backward = ring(2, work.attention_backward) if c > 1 else 0.0
    again = 1.0 if layout.recompute == "full" else 0.0
    forward = _pass(work.forward, work.host_forward, tp_forward, cp_forward)
    backward = _pass(
        work.backward + work.recompute, work.host_backward,
        tp_backward + again * tp_forward, cp_backward + again * cp_forward,
    )  # fmt: skip
    return forward, backward


def _pass(gpu: float, host: float, tp: Scalar, cp: Scalar) -> _Pass:
    # One power for all three, or what adds nothing would add a rounding.
    smooth = lambda busy: (jnp.asarray(busy) ** 4 + host**4) ** 0.25
    bare, with_tp, everything = smooth(gpu), smooth(gpu + tp), smooth(gpu + tp + cp)
    return _Pass(everything, bare - gpu, with_tp - bare, everything - with_tp)


def bucket(layout: Layout, profile: Profile) -> float:
    """Return the parameters of one gradient bucket; the last one is never hidden.

    25 MB in the manner of DDP, or max(40M, 1M x D) in that of Megatron-Core.
    """
    if profile.stack.buckets == "ddp":
        return 25e6 / GRADIENT[profile.stack.grad_dtype]
    return max(40e6, 1e6 * layout.dp * layout.cp)
