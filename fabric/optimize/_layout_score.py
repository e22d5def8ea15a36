"""The step model in closed form: the time of every row of a table of layouts at once.

The equations are those of `docs/step-model.md` and the same as in `fabric.training`, which takes
one layout at a time; here every size is a column. Columns are NumPy or JAX arrays.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fabric.hardware import Gpu, Profile
from fabric.training import Model
from fabric.training._assemble import LEAST_EXPOSED
from fabric.training._compute import (
    FLASH_BACKWARD,
    HOST_BACKWARD,
    HOST_BACKWARD_RECOMPUTED,
    SOFTMAX_BACKWARD,
    Roofline,
)
from fabric.training._numbers import GRADIENT, WEIGHT

Column = Any
"""(rows,), NumPy or JAX; numbers of one floating type."""


class Rows(NamedTuple):
    """Layouts, a column per size; (rows,) each.

    Attributes:
        tp, cp, dp, pp, vpp, mb, zero: As of a `Layout`.
        sp: 1 with sequence parallelism, else 0.
        selective: 1 where the attention core is computed again, else 0.
        recomputed: Layers of a stage that are computed again as a whole, 0 to layers / pp.
        parameters: On a GPU of the heaviest stage.
    """

    tp: Column
    cp: Column
    dp: Column
    pp: Column
    vpp: Column
    mb: Column
    zero: Column
    sp: Column
    selective: Column
    recomputed: Column
    parameters: Column


class Wires(NamedTuple):
    """Seconds of one exchange of each kind, by layout; (rows,) each.

    Attributes:
        tp, cp, pp_forward, pp_backward: On the wire, for microbatches of one sequence.
        tp_wait, cp_wait, pp_forward_wait, pp_backward_wait: Latency, whatever the size.
        dp: On the wire, for a byte per parameter.
        dp_wait: Its latency.
        embedding: Latency included.
        doublings: log2 of the servers of the job.
    """

    tp: Column
    tp_wait: Column
    cp: Column
    cp_wait: Column
    pp_forward: Column
    pp_forward_wait: Column
    pp_backward: Column
    pp_backward_wait: Column
    dp: Column
    dp_wait: Column
    embedding: Column
    doublings: Column


class ClosedForm:
    """The time of a step of one model, batch and software stack, as a function of the layout.

    Args:
        model: Its shape.
        gpu: What computes.
        profile: What the software reaches.
        gbs: Global batch in sequences.
        seq: Tokens of a sequence.
        dtype: Of the matrix products.

    Raises:
        ModelError: If the GPU has no peak of this dtype.
    """

    def __init__(self, model: Model, gpu: Gpu, profile: Profile, gbs: int, seq: int, dtype: str):
        self._model, self._profile = model, profile
        self._gbs, self._seq = float(gbs), float(seq)
        self._line = Roofline.of(gpu, profile, dtype)
        self._wide = Roofline.of(gpu, profile, "bf16") if dtype == "fp8" else self._line
        self._gradient, self._weight = GRADIENT[profile.stack.grad_dtype], WEIGHT[dtype]
        self.compiled: Callable[[Rows, Wires], jax.Array] = jax.jit(
            partial(self.seconds, xp=jnp, lower=True)
        )

    def seconds(self, rows: Rows, wires: Wires, *, xp: Any = np, lower: bool = False) -> Column:
        """Return the seconds of a step of every row.

        Args:
            rows: The layouts; they suit the model.
            wires: What their exchanges take.
            xp: `numpy` or `jax.numpy`.
            lower: Return what no slower wires can beat. The step grows with every wire, but for
                ZeRO-2 where its reductions last longer than the pipeline: there the gather that
                hides behind the forward pass counts with the least that is exposed.

        Returns:
            (rows,), seconds, in the type of the columns.

        References:
            `docs/step-model.md`.
        """
        model, stack, latency = self._model, self._profile.stack, self._profile.latency
        line, wide = self._line, self._wide
        t, c, d, p, v, b = rows.tp, rows.cp, rows.dp, rows.pp, rows.vpp, rows.mb
        h, f, sp = float(model.hidden), float(model.ffn), rows.sp > 0
        m, depth, shards = self._gbs / (b * d), model.layers / p, d * c
        tokens = b * self._seq / c
        vocab = xp.ceil(model.vocab / t)

        # Computing
        stream = lambda size: size / line.memory
        gemm = lambda rows, columns, inner, speed=line.flops: (
            2.0 * rows * columns * inner / speed
            * (1.0 + line.half * (1.0 / rows + 1.0 / columns + 1.0 / inner))
        )  # fmt: skip
        qkv = model.q_width / t + 2.0 * model.head_dim * xp.maximum(model.kv_heads / t, 1.0)
        products = (
            gemm(tokens, qkv, h)
            + gemm(tokens, h, model.q_width / t)
            + gemm(tokens, model.up_matrices * f / t, h)
            + gemm(tokens, h, f / t)
        )
        attention, attention_back = self._attention(b, t * c)
        whole = (22.0 if stack.dropout else 16.0) * tokens * h / xp.where(sp, t, 1.0)
        split = (8.0 * h + (6.0 if model.gated else 4.0) * f) * tokens / t
        elementwise = stream(whole + split)
        forward = products + attention + elementwise
        backward = 2.0 * products + attention_back + 2.0 * elementwise
        if stack.attention == "unfused":
            backward = backward + rows.selective * attention
        head = 3.0 * gemm(tokens, vocab, h, wide.flops) + stream(20.0 * tokens * vocab)
        optimizer = stream(rows.parameters * xp.where(rows.zero < 1, 34.0, 4.0 + 30.0 / shards))
        accumulate = 0.0 if stack.grad_accumulation == "fused" else stream(10.0 * rows.parameters)

        # Waiting inside a layer
        tp, cp = b * wires.tp + wires.tp_wait, b * wires.cp + wires.cp_wait
        share = xp.where(
            sp, float(stack.sp_exposed_backward.value), float(stack.tp_exposed_backward.value)
        )
        if stack.tp_overlap:
            tp_forward = 2.0 * xp.maximum(tp - products / 2.0, 0.0)
            tp_back = 2.0 * xp.maximum(tp - products, 0.0)
        else:
            tp_forward, tp_back = 2.0 * tp, 2.0 * share * tp
        around = (c - 1.0) / c
        cp_forward = xp.maximum(cp - attention * around, 0.0)
        cp_back = xp.maximum(2.0 * cp - attention_back * around, 0.0)
        host = float(latency.host_per_layer.value)
        smooth = lambda busy, floor: xp.sqrt(xp.sqrt(busy**4 + floor**4))
        ahead = depth * smooth(forward + tp_forward + cp_forward, host)
        plain = smooth(backward + tp_back + cp_back, HOST_BACKWARD * host)
        again = smooth(
            backward + forward + tp_back + tp_forward + cp_back + cp_forward,
            HOST_BACKWARD_RECOMPUTED * host,
        )
        behind = (depth - rows.recomputed) * plain + rows.recomputed * again

        # The pipeline
        gathered = xp.where((t > 1) & (p > 1) & ~sp, tp / 2.0, 0.0)
        ahead_message = b * wires.pp_forward + wires.pp_forward_wait
        back_message = b * wires.pp_backward + wires.pp_backward_wait
        messages = v * (ahead_message + back_message + 2.0 * gathered)
        chunk = float(latency.chunk.value)
        launch = float(latency.microbatch.value) + xp.where(v > 1, v * chunk, 0.0)
        around_stage = ahead + behind + messages + launch
        pipeline = m * (around_stage + head + 2.0 * tp + accumulate)
        pipeline = pipeline + (p - 1.0) * around_stage / v

        # Data parallel
        reduced = self._gradient * wires.dp + wires.dp_wait
        gather = self._weight * wires.dp + wires.dp_wait
        many = m * (reduced + xp.where(rows.zero > 2, 2.0 * gather, 0.0))
        if stack.dp_overlap:
            bucket = (
                25e6 / self._gradient if stack.buckets == "ddp" else xp.maximum(40e6, 1e6 * shards)
            )
            floor = xp.maximum(LEAST_EXPOSED, xp.minimum(1.0, bucket / rows.parameters))
            exposed = lambda total, hides: xp.maximum(floor * total, total - hides)
            beside = pipeline * xp.exp(xp.log1p((many / pipeline) ** 3) / 3.0)
        else:
            floor, exposed, beside = 1.0, (lambda total, hides: total), pipeline + many
        gathers = exposed(gather, ahead)
        late = gathers
        if lower:
            late = xp.where(m * (pipeline / beside) ** 2 < 1.0, floor * gather, gathers)
        every_batch = beside + xp.where(rows.zero > 2, 0.0, late)
        once = pipeline + xp.where(
            rows.zero < 1, exposed(2.0 * reduced, behind), exposed(reduced, behind) + gathers
        )
        calm = xp.where(rows.zero < 2, once, every_batch) + wires.embedding + optimizer
        jitter = float(self._profile.jitter_per_doubling.value)
        return calm * (1.0 + jitter * wires.doublings) / float(stack.factor.value)

    def _attention(self, b: Column, shared: Column) -> tuple[Column, Column]:
        """Return seconds of the attention core of a layer, forward and backward."""
        model, stack, line = self._model, self._profile.stack, self._wide
        scores = b * self._seq**2 / shared
        if stack.attention != "unfused":
            forward = scores * (2.0 * model.q_width / line.flash)
            return forward, FLASH_BACKWARD * forward
        late = 1.0 + line.core_half * (2.0 / self._seq + 1.0 / model.head_dim)
        products = scores * (4.0 * model.q_width / line.flops * late)
        softmax = scores * ((9.0 if stack.dropout else 4.0) * model.heads / line.memory)
        return products + softmax, 2.0 * products + SOFTMAX_BACKWARD * softmax
