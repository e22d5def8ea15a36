"""Bytes on every GPU of a training job, and whether they fit."""

from collections.abc import Mapping
from dataclasses import dataclass

from fabric._errors import nearest, raise_faults
from fabric._evidence import Evidence
from fabric._units import parse_size
from fabric.hardware import CHOICES
from fabric.training import _activations as kept
from fabric.training._layout import Layout
from fabric.training._model import Model
from fabric.training._numbers import GRADIENT, WEIGHT
from fabric.training._stages import gpu_layer_parameters, gpu_vocab, parameters_of_stage

_RUNS = "reserved bytes and verdicts of 1,534 nanotron runs on H100, tp 1 to 32, 0.5 to 78 GB"

RESERVE = Evidence(2 * 2.0**30, "fitted", _RUNS, low=1 * 2.0**30, high=4 * 2.0**30)
"""Bytes beside the tensors of the model: CUDA context, buffers of the collectives, workspaces."""

FRAGMENTATION = Evidence(0.15, "fitted", _RUNS, low=0.0, high=0.2)
"""Share of all activations that the caching allocator reserves beyond their bytes."""

WORKING = Evidence(8.0, "fitted", _RUNS, low=4.0, high=10.0)
"""Tensors of the whole hidden width alive while one layer goes backward."""

TIGHT = 0.05
"""Margin below which memory that fits is called tight."""

_CHOICES = {
    name: CHOICES[f"stack.{name}"] for name in ("attention", "grad_dtype", "grad_accumulation")
}


@dataclass(frozen=True)
class Memory:
    """Bytes on a GPU of every pipeline stage.

    Attributes:
        capacity: Bytes of a GPU.
        stages: (stages,), bytes by component: `weights`, `gradients`, `optimizer`, `gathered`
            (what ZeRO-3 assembles), `activations` (of the layers), `recomputed` (of the layer that
            is computed again), `working` (of the layer that goes backward), `embedding`, `logits`,
            `fragmentation` and `reserve`.
        assumptions: What was assumed, by name.

    Examples:
        >>> layout = Layout.parse("tp8 sp pp4 dp31 zero1 gbs992 seq8192 recompute=selective")
        >>> answer = memory(Model.listed("llama-3.1-70b"), layout, "80GB")
        >>> answer.verdict, answer.heaviest_stage, round(answer.total / 1e9, 1)
        ('fits', 0, 43.9)
    """

    capacity: float
    stages: tuple[Mapping[str, float], ...]
    assumptions: Mapping[str, Evidence]

    @property
    def heaviest_stage(self) -> int:
        """The stage that needs most."""
        totals = [sum(stage.values()) for stage in self.stages]
        return totals.index(max(totals))

    @property
    def components(self) -> Mapping[str, float]:
        """Bytes by component on the heaviest stage."""
        return self.stages[self.heaviest_stage]

    @property
    def total(self) -> float:
        """Bytes on the heaviest stage."""
        return sum(self.components.values())

    @property
    def margin(self) -> float:
        """Share of the capacity that is left on the heaviest stage; negative: missing."""
        return 1 - self.total / self.capacity

    @property
    def verdict(self) -> str:
        """What to say of it: "fits", "tight" (less than 5 % left) or "does not fit"."""
        return "does not fit" if self.margin < 0 else "tight" if self.margin < TIGHT else "fits"


def memory(
    model: Model,
    layout: Layout,
    capacity: str | int | float,
    *,
    attention: str = "flash2",
    dropout: bool = False,
    grad_dtype: str = "fp32",
    grad_accumulation: str = "fused",
    reserve: Evidence = RESERVE,
    fragmentation: Evidence = FRAGMENTATION,
    working: Evidence = WORKING,
) -> Memory:
    """Return what a training job holds on the GPUs of every pipeline stage.

    Args:
        model: The shape; `layout.check(model)` is made first.
        layout: How it is cut.
        capacity: Of a GPU: text with a unit, or bytes.
        attention: "unfused", "flash2" (default) or "flash3": whether score squares are kept.
        dropout: Whether masks are kept. Default: no dropout.
        grad_dtype: In which gradients are summed, "fp32" (default) or "bf16".
        grad_accumulation: "fused" (default): products add to the sum; "separate": they write a
            gradient of their own in the dtype of the weights, which is then added.
        reserve: Bytes beside the tensors of the model.
        fragmentation: Share of all activations that is lost to it.
        working: Tensors of the whole hidden width alive while one layer goes backward.

    Raises:
        ModelError: If model and layout do not go together, or a setting is unknown; all at once.

    Examples:
        >>> layout = Layout.parse("tp8 pp2 gbs8 seq4096")
        >>> memory(Model.listed("llama-3.1-405b"), layout, "80GB").verdict
        'does not fit'

    References:
        `states` and the functions of activations name the papers that each component is from.
    """
    capacity = parse_size(capacity, "capacity")
    settings = {
        "attention": attention, "grad_dtype": grad_dtype, "grad_accumulation": grad_accumulation,
    }  # fmt: skip
    raise_faults(
        [
            f"`memory({name}={value!r})`: {nearest(value, _CHOICES[name])}"
            for name, value in settings.items()
            if value not in _CHOICES[name]
        ]
    )
    layout.check(model)
    separate = grad_accumulation == "separate"
    stages = []
    for stage in range(layout.pp):
        parts = states(
            parameters_of_stage(model, layout, stage), layout,
            grad_dtype=grad_dtype, separate=separate,
        ) | {"gathered": _gathered(model, layout, stage)}  # fmt: skip
        active = _active(model, layout, stage, attention, dropout, working.value)
        spent = {
            "fragmentation": fragmentation.value * sum(active.values()),
            "reserve": float(reserve.value),
        }
        stages.append(parts | active | spent)
    assumptions = {"reserve": reserve, "fragmentation": fragmentation, "working": working}
    return Memory(capacity, tuple(stages), assumptions)


def states(
    parameters: int | float, layout: Layout, *, grad_dtype: str = "fp32", separate: bool = False
) -> dict[str, float]:
    """Return bytes of weights, gradients and Adam's states of so many parameters on one GPU.

    In mixed precision a parameter has 2 bytes of weight, its gradient (2 in BF16, 4 in FP32), and
    12 of optimizer: an FP32 copy and two moments, so 16 or 18 in all. FP8 adds two copies of the
    weights for its products; FP32 has no second copy. Of the dp x cp ranks with the same weights
    each holds its share of the optimizer from ZeRO-1 on, of the gradients from ZeRO-2 on, and of
    the weights with ZeRO-3.

    Args:
        parameters: On the GPU, before sharding.
        layout: Its dtype, `zero` and the ranks that share.
        grad_dtype: In which gradients are summed.
        separate: Besides the sum, a gradient in the dtype of the weights.

    Examples:
        >>> sum(states(1.5e12, Layout(gbs=1, seq=1), grad_dtype="bf16").values())
        24000000000000.0

    References:
        S. Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter
        Models, 2020, section 3 (16 bytes); V. Korthikanti et al., 2022, figure 1 (18 bytes).
    """
    weight = WEIGHT[layout.dtype]
    copies = 2 if layout.dtype == "fp8" else 0
    gradient = GRADIENT[grad_dtype] + separate * weight
    optimizer = 8 if layout.dtype == "fp32" else 12
    share = lambda level: layout.shards if layout.zero >= level else 1
    return {
        "weights": parameters * (weight + copies) / share(3),
        "gradients": parameters * gradient / share(2),
        "optimizer": parameters * optimizer / share(1),
    }


def _gathered(model: Model, layout: Layout, stage: int) -> float:
    """Return bytes that ZeRO-3 assembles on a stage.

    A layer, the next one, and the gradient of a layer; the embedding on the first stage, which
    stays for the whole pass, and the head with its gradient on the last. Gradients are in the
    dtype of the weights: each rank sums its own share of them only.
    """
    if layout.zero < 3 or layout.shards == 1:
        return 0.0
    table = gpu_vocab(model, layout.tp) * model.hidden
    first, last = stage == 0, stage == layout.pp - 1
    tables = 2 if first and last and model.tied else first + 2 * last
    return WEIGHT[layout.dtype] * (3.0 * gpu_layer_parameters(model, layout.tp) + tables * table)


def _active(
    model: Model, layout: Layout, stage: int, attention: str, dropout: bool, working: int | float
) -> dict[str, float]:
    """Return bytes of activations by component; `Layout.check` saw that all divides."""
    last = stage == layout.pp - 1
    return {
        "activations": kept.layers_in_flight(model, layout, stage)
        * kept.layer_activations(model, layout, attention=attention, dropout=dropout),
        "recomputed": kept.recomputed_activations(
            model, layout, attention=attention, dropout=dropout
        ),
        "working": kept.working_activations(model, layout, working),
        "embedding": kept.embedding_activations(model, layout, dropout=dropout)
        if stage == 0
        else 0.0,
        "logits": kept.logits_activations(model, layout) if last else 0.0,
    }
