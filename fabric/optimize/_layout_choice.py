"""`Choice`: one layout of a search with its score, ready to use."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fabric.hardware import Stack
from fabric.network import Placement
from fabric.optimize._layout_wires import DIMENSIONS
from fabric.training import Layout

_FSDP = (
    "--use-distributed-optimizer --use-megatron-fsdp --no-gradient-accumulation-fusion "
    "--ckpt-format fsdp_dtensor --data-parallel-sharding-strategy"
)
_ZERO = (
    "",
    "--use-distributed-optimizer",
    f"{_FSDP} optim_grads",
    f"{_FSDP} optim_grads_params",
)
_DTYPE = {"bf16": "--bf16", "fp16": "--fp16", "fp8": "--bf16 --fp8-format hybrid", "fp32": ""}
_MAPPED = ("tp", "cp", "pp", "dp")
_HOUR, _BILLION = 3600.0, 1e9


@dataclass(frozen=True, eq=False)
class Choice:
    """A layout, the order of its ranks, and what it is worth on the contended fabric.

    Attributes:
        layout: How the model is cut; "full" recompute may be of some layers only.
        rank_order: Which dimension neighbours on the fabric belong to, fastest first.
        recompute_layers: Layers of a stage that are computed again as a whole.
        placement: The GPU of every rank of `layout`.
        step_time: Seconds, with exact rates.
        margin: Share of the memory that is left on the heaviest stage.
    """

    layout: Layout
    rank_order: str
    recompute_layers: int
    placement: Placement
    step_time: float
    margin: float

    @property
    def gpus(self) -> int:
        """GPUs of the layout."""
        return self.layout.gpus

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of the whole job."""
        return self.layout.tokens / self.step_time

    @property
    def gpu_hours(self) -> float:
        """The cost: GPU hours of a billion tokens."""
        return _BILLION / self.tokens_per_s * self.gpus / _HOUR

    def megatron(self, layers: int, stack: Stack) -> str:
        """Return the options of Megatron-LM for this layout.

        Args:
            layers: Of the model.
            stack: Says what overlaps in the score, and has to be asked for.

        With `--use-tp-pp-dp-mapping` Megatron numbers its ranks in the order of the GPUs; without
        it, `placement` has the GPU of each of its ranks. There is no option for "gpipe".

        References:
            NVIDIA/Megatron-LM, megatron/training/arguments.py.
        """
        one, chunk = self.layout, layers // (self.layout.pp * self.layout.vpp)
        again = self.recompute_layers // one.vpp
        words = [
            f"--tensor-model-parallel-size {one.tp}",
            "--sequence-parallel" if one.sp else "",
            f"--pipeline-model-parallel-size {one.pp}",
            f"--num-layers-per-virtual-pipeline-stage {chunk}" if one.vpp > 1 else "",
            f"--context-parallel-size {one.cp}",
            _ZERO[one.zero],
            *self._overlaps(stack),
            f"--micro-batch-size {one.mb}",
            f"--global-batch-size {one.gbs}",
            f"--seq-length {one.seq}",
            _DTYPE[one.dtype],
            "--use-tp-pp-dp-mapping" if self._is(_MAPPED) and not self._is(DIMENSIONS) else "",
        ]
        if again:
            method = "uniform --recompute-num-layers 1" if again == chunk else (
                f"block --recompute-num-layers {again}"
            )  # fmt: skip
            words.append(f"--recompute-granularity full --recompute-method {method}")
        elif one.recompute == "selective":
            words.append("--recompute-granularity selective")
        return " ".join(word for word in words if word)

    def _overlaps(self, stack: Stack) -> Iterator[str]:
        """Yield what lets exchanges run beside the passes, as the score has it."""
        if stack.dp_overlap and self.layout.dp * self.layout.cp > 1:
            yield "--overlap-grad-reduce"
            if self.layout.zero:
                yield "--overlap-param-gather"
        if stack.tp_overlap and self.layout.tp > 1 and self.layout.sp:
            yield "--tp-comm-overlap"

    def _is(self, order: Sequence[str]) -> bool:
        """Return whether an order of ranks is this one; dimensions of size 1 stand anywhere."""
        wide = lambda names: [name for name in names if getattr(self.layout, name) > 1]
        return wide(self.rank_order.split("-")) == wide(order)

    def as_dict(self) -> dict[str, Any]:
        """Return the choice for JSON, without its placement."""
        return {
            "layout": str(self.layout),
            "rank_order": self.rank_order,
            "recompute_layers": self.recompute_layers,
            "gpus": self.gpus,
            "step_time_s": self.step_time,
            "tokens_per_s": self.tokens_per_s,
            "margin": self.margin,
            "gpu_hours_per_billion_tokens": self.gpu_hours,
        }

    def __str__(self) -> str:
        some = self.layout.recompute == "full"
        layers = f" of {self.recompute_layers} layers a stage" if some else ""
        return f"{self.layout}{layers}, ranks {self.rank_order}: {self.step_time:.4g} s"
