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

# Twice what experiments/optimizers/layout.py allows between the two types of numbers, and ten times
# what it allows between the closed form and layouts taken one at a time.
_FLOAT32_ROUNDING, _FLOAT64_ROUNDING = 4e-6, 1e-11


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


class _Work(NamedTuple):
    """Seconds of computing on a GPU; (rows,) each.

    Attributes:
        products, attention, attention_back: Of a layer and a microbatch.
        forward, backward: The same, all counted.
        head: Both passes of the output head, of a microbatch.
        optimizer: Once a step. `accumulate`: of gradients, once a microbatch.
    """

    products: Column
    attention: Column
    attention_back: Column
    forward: Column
    backward: Column
    head: Column
    optimizer: Column
    accumulate: Column


def rounding(kind: Any) -> float:
    """Return the share by which a type of numbers may round a step in closed form up."""
    return _FLOAT32_ROUNDING if np.dtype(kind) == np.float32 else _FLOAT64_ROUNDING


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
        work = self._work(rows, xp)
        ahead, behind, tp = self._stage(rows, wires, work, xp)
        pipeline = self._pipeline(rows, wires, work, ahead + behind, tp, xp)
        calm = self._shared(rows, wires, pipeline, ahead, behind, xp, lower=lower)
        calm = calm + wires.embedding + work.optimizer
        jitter = float(self._profile.jitter_per_doubling.value)
        return calm * (1.0 + jitter * wires.doublings) / float(self._profile.stack.factor.value)

    def _work(self, rows: Rows, xp: Any) -> "_Work":
        """Return what a GPU computes."""
        model, stack = self._model, self._profile.stack
        line, wide = self._line, self._wide
        t, c, b = rows.tp, rows.cp, rows.mb
        h, f, sp = float(model.hidden), float(model.ffn), rows.sp > 0
        tokens = b * self._seq / c
        vocab = xp.ceil(model.vocab / t)
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
        backward = 2.0 * products + attention_back + 2.0 * elementwise
        if stack.attention == "unfused":
            backward = backward + rows.selective * attention
        shards = rows.dp * c
        touched = xp.where(rows.zero < 1, 34.0, 4.0 + 30.0 / shards)
        return _Work(
            products=products, attention=attention, attention_back=attention_back,
            forward=products + attention + elementwise, backward=backward,
            head=3.0 * gemm(tokens, vocab, h, wide.flops) + stream(20.0 * tokens * vocab),
            optimizer=stream(rows.parameters * touched),
            accumulate=(
                0.0 if stack.grad_accumulation == "fused" else stream(10.0 * rows.parameters)
            ),
        )  # fmt: skip

    def _stage(
        self, rows: Rows, wires: Wires, work: "_Work", xp: Any
    ) -> tuple[Column, Column, Column]:
        """Return both passes of a microbatch through the layers of a stage, and a tp exchange."""
        stack = self._profile.stack
        b, c, depth = rows.mb, rows.cp, self._model.layers / rows.pp
        tp, cp = b * wires.tp + wires.tp_wait, b * wires.cp + wires.cp_wait
        share = xp.where(
            rows.sp > 0,
            float(stack.sp_exposed_backward.value), float(stack.tp_exposed_backward.value),
        )  # fmt: skip
        if stack.tp_overlap:
            tp_forward = 2.0 * xp.maximum(tp - work.products / 2.0, 0.0)
            tp_back = 2.0 * xp.maximum(tp - work.products, 0.0)
        else:
            tp_forward, tp_back = 2.0 * tp, 2.0 * share * tp
        around = (c - 1.0) / c
        cp_forward = xp.maximum(cp - work.attention * around, 0.0)
        cp_back = xp.maximum(2.0 * cp - work.attention_back * around, 0.0)
        host = float(self._profile.latency.host_per_layer.value)
        smooth = lambda busy, floor: xp.sqrt(xp.sqrt(busy**4 + floor**4))
        ahead = depth * smooth(work.forward + tp_forward + cp_forward, host)
        plain = smooth(work.backward + tp_back + cp_back, HOST_BACKWARD * host)
        again = smooth(
            work.backward + work.forward + tp_back + tp_forward + cp_back + cp_forward,
            HOST_BACKWARD_RECOMPUTED * host,
        )
        return ahead, (depth - rows.recomputed) * plain + rows.recomputed * again, tp

    def _pipeline(
        self, rows: Rows, wires: Wires, work: "_Work", passes: Column, tp: Column, xp: Any
    ) -> Column:
        """Return the seconds of all microbatches on the stages, the bubble counted."""
        b, p, v = rows.mb, rows.pp, rows.vpp
        latency, m = self._profile.latency, self._gbs / (b * rows.dp)
        gathered = xp.where((rows.tp > 1) & (p > 1) & ~(rows.sp > 0), tp / 2.0, 0.0)
        ahead = b * wires.pp_forward + wires.pp_forward_wait
        back = b * wires.pp_backward + wires.pp_backward_wait
        messages = v * (ahead + back + 2.0 * gathered)
        chunk = float(latency.chunk.value)
        launch = float(latency.microbatch.value) + xp.where(v > 1, v * chunk, 0.0)
        around_stage = passes + messages + launch
        pipeline = m * (around_stage + work.head + 2.0 * tp + work.accumulate)
        return pipeline + (p - 1.0) * around_stage / v

    def _shared(
        self, rows: Rows, wires: Wires, pipeline: Column, ahead: Column, behind: Column, xp: Any,
        *, lower: bool,
    ) -> Column:  # fmt: skip
        """Return the seconds of the pipeline with the exchanges of data parallelism."""
        stack, shards = self._profile.stack, rows.dp * rows.cp
        m = self._gbs / (rows.mb * rows.dp)
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
        return xp.where(rows.zero < 2, once, every_batch)

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
