"""Bytes on the GPUs of the heaviest stage, for every row of a table of layouts at once.

The equations are those of `fabric.training.memory`, which takes one layout at a time.
"""

from typing import Any

import numpy as np

from fabric.hardware import Profile
from fabric.optimize._layout_score import Rows
from fabric.training import Model
from fabric.training._activations import MASK
from fabric.training._memory import FRAGMENTATION, RESERVE, WORKING
from fabric.training._numbers import ACTIVATION, GRADIENT, WEIGHT
from fabric.training._stages import gpu_layer_parameters

Column = Any
"""(rows,), of floats."""


class Held:
    """What layouts of one model, batch and software stack hold.

    Args:
        model: Its shape.
        profile: Its stack says what is kept.
        gbs: Global batch in sequences.
        seq: Tokens of a sequence.
        dtype: Of the matrix products.
        schedule: "1f1b" or "gpipe".
    """

    def __init__(
        self, model: Model, profile: Profile, gbs: int, seq: int, dtype: str, schedule: str
    ):
        self._model, self._stack = model, profile.stack
        self._gbs, self._seq, self._dtype = gbs, seq, dtype
        self._gpipe = schedule == "gpipe"
        self._width = ACTIVATION[dtype]

    def layer_parameters(self, tp: Column) -> Column:
        """Return the parameters of a layer on each of `tp` GPUs that share it."""
        sizes, of = np.unique(np.asarray(tp, np.int64), return_inverse=True)
        return np.array([float(gpu_layer_parameters(self._model, n)) for n in sizes.tolist()])[of]

    def parameters(self, tp: Column, pp: Column) -> tuple[Column, Column]:
        """Return the parameters on a GPU of the first and of the last stage."""
        model = self._model
        layers = model.layers / pp * self.layer_parameters(tp)
        table = self._table(tp)
        ends = model.norm_parameters + np.where(model.tied & (pp == 1), 0.0, table)
        front = table + model.positions * model.hidden
        alone = pp == 1
        first, last = layers + front, layers + ends
        return np.where(alone, first + ends, first), np.where(alone, first + ends, last)

    def _table(self, tp: Column) -> Column:
        return np.ceil(self._model.vocab / tp) * self._model.hidden

    def bytes(self, rows: Rows) -> Column:
        """Return the bytes on the heaviest stage: the first, which has most in flight, or the last.

        Args:
            rows: (rows,), layouts that suit the model.
        """
        first, last = self.parameters(rows.tp, rows.pp)
        m = self._gbs / (rows.mb * rows.dp)
        alone = rows.pp == 1
        ends = [
            self._stage(rows, m, first, np.zeros_like(m), np.ones_like(m), alone),
            self._stage(rows, m, last, rows.pp - 1, np.where(alone, 1.0, 0.0), np.ones_like(m) > 0),
        ]
        return np.maximum(*ends)

    def _stage(
        self, rows: Rows, m: Column, parameters: Column, stage: Column, first: Column, last: Column
    ) -> Column:
        """Return the bytes on a stage; `first` and `last` say which it is."""
        model, stack, w = self._model, self._stack, self._width
        shards, table = rows.dp * rows.cp, self._table(rows.tp)
        weight = WEIGHT[self._dtype] + (2 if self._dtype == "fp8" else 0)
        separate = WEIGHT[self._dtype] if stack.grad_accumulation == "separate" else 0
        share = lambda level: np.where(rows.zero >= level, shards, 1.0)
        states = parameters * (
            weight / share(3)
            + (GRADIENT[stack.grad_dtype] + separate) / share(2)
            + (8 if self._dtype == "fp32" else 12) / share(1)
        )
        tables = np.where((first > 0) & last & model.tied, 2.0, first + 2.0 * last)
        gathered = WEIGHT[self._dtype] * (3.0 * self.layer_parameters(rows.tp) + tables * table)
        gathered = np.where((rows.zero > 2) & (shards > 1), gathered, 0.0)

        around = np.where(rows.sp > 0, rows.tp, 1.0)
        tokens = rows.mb * self._seq / rows.cp
        kept, again, core = self._layer(rows, tokens, around)
        layers = model.layers / rows.pp
        whole = rows.recomputed / layers
        plain = kept - np.where(rows.selective > 0, core, 0.0)
        active = self._flying(rows, m, stage) * ((1 - whole) * plain + whole * again)
        active = active + np.where(
            rows.recomputed > 0, kept, np.where(rows.selective > 0, core, 0.0)
        )
        inner = (model.up_matrices + 1) * model.ffn / rows.tp
        active = active + tokens * w * (WORKING.value * model.hidden + inner)
        flying = m if self._gpipe else np.minimum(rows.pp, m)
        active = active + first * stack.dropout * MASK * tokens * model.hidden / around * flying
        vocab = np.ceil(model.vocab / rows.tp)
        logits = tokens * (2 * w * model.hidden / around + 4 * vocab) * (m if self._gpipe else 1.0)
        active = active + last * (logits + tokens * (2 * w + 4) * vocab)
        return states + gathered + (1 + FRAGMENTATION.value) * active + RESERVE.value

    def _layer(self, rows: Rows, tokens: Column, around: Column) -> tuple[Column, Column, Column]:
        """Return what a layer keeps of a microbatch, if computed again, and its attention core."""
        model, stack, w, t = self._model, self._stack, self._width, rows.tp
        whole = (4 * w + 2 * MASK * stack.dropout) * model.hidden
        q = model.q_width / t
        qkv = q + 2 * np.maximum(model.kv_heads / t, 1.0) * model.head_dim
        split = w * (qkv + q + (model.up_matrices + 1) * model.ffn / t)
        core = np.zeros_like(tokens)
        if stack.attention == "unfused":
            core = tokens * self._seq * model.heads / t * (w + (w + MASK) * stack.dropout)
        again = tokens * w * model.hidden / around
        return tokens * (whole / around + split) + core, again, core

    def _flying(self, rows: Rows, m: Column, stage: Column) -> Column:
        """Return how many layers' activations a stage holds at its peak."""
        layers = self._model.layers / rows.pp
        if self._gpipe:
            return layers * m
        chunks = 2 * (rows.pp - stage - 1) + (rows.vpp - 1) * rows.pp + 1
        return np.where(
            rows.vpp == 1,
            layers * np.minimum(rows.pp - stage, m),
            layers / rows.vpp * np.minimum(chunks, rows.vpp * m),
        )
