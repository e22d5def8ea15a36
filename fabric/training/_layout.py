"""`Layout`: how a training job is cut over GPUs, and whether that suits a model."""

from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from jaxtyping import Int

from fabric._errors import InfeasibleError, joined, nearest, raise_faults
from fabric.network._checks import whole, whole_or_fault
from fabric.training._model import Model
from fabric.training._words import SIZES, WORDS, multiples, values_of

_WITHOUT_EXPERTS = ("ep", "etp")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a training job is cut: sizes of the parallel groups, batch, and memory savers.

    Ranks are ordered tp, cp, ep, dp, pp, fastest first:
    rank = tp_i + tp (cp_i + cp (dp_i + dp pp_i)); ep nests in dp.

    Attributes:
        gbs: Global batch in sequences.
        seq: Tokens of a sequence.
        tp: Tensor parallel size. Default 1, as all sizes.
        sp: Sequence parallelism: what tensor parallelism would repeat is split along the sequence.
        pp: Pipeline stages.
        vpp: Chunks of layers of a stage; more than 1 is the interleaved schedule.
        dp: Data parallel size.
        cp: Context parallel size: a sequence is split over so many GPUs.
        ep, etp: Expert and expert tensor parallel size; only 1, experts are not supported.
        zero: What data and context parallel ranks share instead of repeating: 1 optimizer states, 2
            and gradients, 3 and weights. Default 0, nothing.
        mb: Sequences of a microbatch. Default 1.
        dtype: "bf16" (default), "fp16", "fp8" or "fp32": operands of the matrix products.
        recompute: "none" (default), "selective" (the attention core) or "full" (whole layers).
        schedule: "1f1b" (default) or "gpipe".
        filled: What `parse` filled in because the text did not say it, to be shown to the user.

    Raises:
        ModelError: If a value is out of range or two do not go together; all faults at once.

    Examples:
        >>> layout = Layout.parse("tp8 sp pp4 dp31 zero1 gbs992 seq8192 recompute=selective")
        >>> layout.gpus, layout.microbatches
        (992, 32)
        >>> layout.filled
        ('vpp1', 'cp1', 'ep1', 'etp1', 'mb1', 'bf16', 'schedule=1f1b')

    References:
        D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters, 2021;
        S. Rajbhandari et al., ZeRO, 2020; V. Korthikanti et al., 2022 (sequence parallelism).
    """

    gbs: int
    seq: int
    tp: int = 1
    sp: bool = False
    pp: int = 1
    vpp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    zero: int = 0
    mb: int = 1
    dtype: str = "bf16"
    recompute: str = "none"
    schedule: str = "1f1b"
    filled: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self):
        faults: list[str] = []
        for name in SIZES:
            whole_or_fault(f"Layout({name}=...)", getattr(self, name), faults)
        whole_or_fault("Layout(zero=...)", self.zero, faults, least=0, most=3)
        for name, words in WORDS.items():
            if (value := getattr(self, name)) not in words:
                faults.append(f"`Layout({name}={value!r})`: {nearest(str(value), words)}")
        raise_faults(faults)
        if wide := [f"`{name}={getattr(self, name)}`" for name in _WITHOUT_EXPERTS
                    if getattr(self, name) > 1]:  # fmt: skip
            faults.append(
                f"{joined(wide)}: expert parallelism is not supported, models are dense. Leave it "
                f"out."
            )
        if self.vpp > 1 and self.pp == 1:
            faults.append(
                f"`vpp={self.vpp}` interleaves chunks of pipeline stages, but `pp=1` has no "
                f"pipeline. Leave out `vpp`, or use a larger `pp`."
            )
        if self.vpp > 1 and self.schedule == "gpipe":
            faults.append(
                f"`vpp={self.vpp}` is the interleaved schedule, which is a form of 1f1b. Leave out "
                f"`schedule=gpipe` or `vpp`."
            )
        raise_faults(faults)

    @classmethod
    def parse(cls, text: str, *, gpus: int | None = None) -> "Layout":
        """Return the layout that a line of words describes.

        A word is a name with its value, `tp8` or `tp=8`; `sp` and the dtype stand alone. `dp=auto`
        is what the number of GPUs leaves.

        Args:
            text: Words in any order, such as "tp8 sp pp4 dp=auto gpus=992 gbs992 seq8192 bf16".
                `gbs` and `seq` have no default; what else is left out is filled in, see `filled`.
            gpus: GPUs that `dp=auto` divides, unless the text says `gpus=`.

        Raises:
            ModelError: If a word is unknown, said twice, has a bad value or is missing, or the
                GPUs do not match; all faults at once.

        Examples:
            >>> str(Layout.parse("tp=8 pp2 dp=auto gpus=128 gbs256 seq4096"))
            'tp8 pp2 vpp1 dp8 cp1 ep1 etp1 zero0 mb1 gbs256 seq4096 bf16 recompute=none
            schedule=1f1b'
        """
        given = values_of(text, gpus)
        layout = cls(**given)
        left = {name for name in given if name != "dp" or "dp=auto" not in text.split()}
        words = [word for name, word in layout._spelled().items() if word and name not in left]
        return replace(layout, filled=tuple(words))

    @property
    def gpus(self) -> int:
        """Number of GPUs: tp x cp x pp x dp."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def microbatches(self) -> int:
        """Microbatches of a step on every pipeline, gbs / (mb x dp)."""
        return self.gbs // (self.mb * self.dp)

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.gbs * self.seq

    @property
    def shards(self) -> int:
        """Ranks that hold the same weights, and that ZeRO shares states among: dp x cp."""
        return self.dp * self.cp

    def __str__(self) -> str:
        return " ".join(word for word in self._spelled().values() if word)

    def _spelled(self) -> dict[str, str]:
        """Return the word of every value, in the order in which layouts are written."""
        sizes = lambda *names: {name: f"{name}{getattr(self, name)}" for name in names}
        return (
            sizes("tp")
            | {"sp": "sp" if self.sp else ""}
            | sizes("pp", "vpp", "dp", "cp", "ep", "etp", "zero", "mb", "gbs", "seq")
            | {"dtype": self.dtype}
            | {name: f"{name}={getattr(self, name)}" for name in ("recompute", "schedule")}
        )

    def groups(self, *dimensions: str) -> Int[np.ndarray, "groups size"]:
        """Return the ranks of every group of a dimension, a row per group.

        Args:
            *dimensions: "tp", "cp", "dp" or "pp"; of several, ranks that differ in any of them
                are together, for example "cp", "dp" for the ranks that hold the same weights.

        Raises:
            ModelError: If there is no such dimension.

        Examples:
            >>> groups = Layout(tp=8, pp=4, dp=3, gbs=3, seq=1).groups("dp")
            >>> groups.shape, groups[0].tolist()
            ((32, 3), [0, 8, 16])
        """
        slow_first = ("pp", "dp", "cp", "tp")
        raise_faults(
            [
                f"`groups({name!r})`: {nearest(name, slow_first[::-1])}"
                for name in dimensions
                if name not in slow_first
            ]
        )
        sizes = [getattr(self, name) for name in slow_first]
        ranks = np.arange(self.gpus, dtype=np.int32).reshape(sizes)
        inner = [axis for axis, name in enumerate(slow_first) if name in dimensions]
        moved = np.moveaxis(ranks, inner, range(-len(inner), 0))
        return moved.reshape(-1, prod(sizes[axis] for axis in inner))

    def check(self, model: Model) -> None:
        """Return nothing if a model can be cut this way.

        Args:
            model: Its layers, heads, widths and positions are held against the sizes.

        Raises:
            ModelError: If something does not divide or is too short; all faults at once, each
                with what would do.

        Examples:
            >>> Layout.parse("tp8 pp4 gbs4 seq8192").check(Model.listed("llama-3.1-70b"))
        """
        faults = [*_split_faults(self, model), *_sequence_faults(self, model)]
        faults += _batch_faults(self)
        told = f"The layout '{self}' does not suit {model.name}:"
        raise_faults([told, *faults] if faults else [])

    def check_allocation(self, allocation: int) -> int:
        """Return how many GPUs of an allocation stay idle.

        Args:
            allocation: Number of GPUs.

        Raises:
            InfeasibleError: If the layout needs more GPUs than there are.

        Examples:
            >>> Layout.parse("tp8 pp4 dp31 gbs992 seq8192").check_allocation(1016)
            24
        """
        allocation = whole("allocation", allocation)
        if self.gpus <= allocation:
            return allocation - self.gpus
        identity = " x ".join(f"{name}{getattr(self, name)}" for name in ("tp", "cp", "pp", "dp"))
        rest = self.tp * self.cp * self.pp
        use = f"`dp{allocation // rest}`" if rest <= allocation else "smaller tp, cp or pp"
        message = (
            f"{identity} = {self.gpus:,} GPUs, but the allocation has {allocation:,}. Use {use}, "
            f"or a larger allocation."
        )
        raise InfeasibleError(message)


def _split_faults(layout: Layout, model: Model) -> list[str]:
    """Return what tensor and pipeline parallelism cannot split evenly."""
    faults = []
    tp, stages = layout.tp, layout.pp * layout.vpp
    for what, size in (("query heads", model.heads), ("rows of the MLP (ffn)", model.ffn)):
        if size % tp:
            faults.append(
                f"`tp={tp}` does not divide the {size:,} {what}. Use {_divisors(size, tp)}."
            )
    if model.kv_heads % tp and tp % model.kv_heads:
        faults.append(
            f"`tp={tp}` neither divides the {model.kv_heads} key and value heads nor is a multiple "
            f"of them. Use {_divisors(model.kv_heads, tp)}."
        )
    if model.layers % stages:
        cut = f"pp x vpp = {stages}" if layout.vpp > 1 else f"`pp={layout.pp}`"
        faults.append(
            f"{cut} does not divide the {model.layers} layers. Use "
            f"{'a product of ' * (layout.vpp > 1)}{_divisors(model.layers, stages)}."
        )
    return faults


def _sequence_faults(layout: Layout, model: Model) -> list[str]:
    faults = []
    # Context parallelism gives every rank one block from each end, so that causal work is even.
    pieces = (2 * layout.cp if layout.cp > 1 else 1) * (layout.tp if layout.sp else 1)
    if layout.seq % pieces:
        cut = ["2 cp"] * (layout.cp > 1) + ["tp"] * layout.sp
        faults.append(
            f"`seq={layout.seq}` is not a multiple of {' x '.join(cut)} = {pieces}. Use `seq` "
            f"{multiples(layout.seq, pieces)}."
        )
    for limit, what in (
        (model.positions, "rows of the learned position table"),
        (model.window, "tokens of the sliding attention window, which is not modelled"),
    ):
        if limit and layout.seq > limit:
            faults.append(
                f"`seq={layout.seq}` is more than the {limit:,} {what}. Use at most `seq{limit}`."
            )
    return faults


def _batch_faults(layout: Layout) -> list[str]:
    wave, left = layout.mb * layout.dp, layout.gbs % (layout.mb * layout.dp)
    if left:
        return [
            f"`gbs={layout.gbs}` is not a multiple of mb x dp = {wave:,}. Use `gbs` "
            f"{multiples(layout.gbs, wave)}."
        ]
    if layout.vpp > 1 and layout.microbatches % layout.pp:
        return [
            f"The interleaved schedule (`vpp={layout.vpp}`) needs a multiple of pp = {layout.pp} "
            f"microbatches, but gbs / (mb x dp) = {layout.microbatches}. Use `gbs` "
            f"{multiples(layout.gbs, wave * layout.pp)}, or leave out `vpp`."
        ]
    return []


def _divisors(size: int, near: int) -> str:
    """Return the divisors of a size on both sides of a number."""
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    sides = [n for n in divisors if n <= near][-1:] + [n for n in divisors if n > near][:1]
    return " or ".join(f"{n}" for n in sides)
