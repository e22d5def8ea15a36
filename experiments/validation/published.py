"""Measured step times and memory, typed in with their source."""

from dataclasses import dataclass

KORTHIKANTI = (
    "V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models "
    "(arXiv 2205.05198), Table 5"
)
ACTIVATIONS = "the same, Figure 1 as read off by the authors of Calculon"
SHARES = "the same, Figure 7 as read off by the authors of Calculon"
NARAYANAN = (
    "D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using "
    "Megatron-LM (arXiv 2104.04473), Table 1"
)


WEAK_SCALING = "NVIDIA/Megatron-LM, images/model_table.png (weak scaling on H100)"


@dataclass(frozen=True)
class Trained:
    """A model of GPT's shape and how it was trained, on servers of 8 A100 of 80 GB.

    Attributes:
        name: Listed name of the model.
        layout: Without recompute and sequence parallelism.
        full: Seconds of a step with full recompute.
        selective: Seconds with sequence parallelism and selective recompute.
        activations: GiB on the first stage without either, and with both.
        shares: Percent of the first that is kept under sequence parallelism, selective recompute,
            both, and full recompute.
    """

    name: str
    layout: str
    full: float
    selective: float
    activations: tuple[float, float]
    shares: tuple[float, float, float, float]


TABLE_5 = (
    Trained(
        "megatron-22b", "tp8 pp1 dp1 mb4 gbs4 seq2048 fp16", 1.42, 1.10,
        (59.25, 9.5625), (66.84, 49.42, 16.18, 7.64),
    ),
    Trained(
        "megatron-175b", "tp8 pp8 vpp3 dp1 mb1 gbs64 seq2048 fp16", 18.13, 13.75,
        (66.84375, 12.3515625), (62.04, 56.53, 18.49, 8.71),
    ),
    Trained(
        "megatron-530b", "tp8 pp35 vpp3 dp1 mb1 gbs280 seq2048 fp16", 49.05, 37.83,
        (114.0234375, 23.076171875), (58.31, 62.04, 20.27, 9.42),
    ),
    Trained(
        "megatron-1t", "tp8 pp64 dp1 mb1 gbs512 seq2048 fp16", 94.42, 71.49,
        (131.25, 26.5625), (58.31, 62.04, 20.27, 9.42),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Scaled:
    """A row of the weak-scaling table: GPT shapes on A100, full recompute, FP16.

    Attributes:
        parameters: In billions, as the table names the model.
        hidden, layers, heads: Its shape.
        tp, pp, dp: How it was cut.
        chunk: Layers of a virtual stage; 0: not interleaved.
        gbs, mb: Batch and microbatch, in sequences of 2,048.
        tflops: Measured TFLOP/s per GPU, the recomputed forward pass counted.
    """

    parameters: float
    hidden: int
    layers: int
    heads: int
    tp: int
    pp: int
    dp: int
    chunk: int
    gbs: int
    mb: int
    tflops: float

    @property
    def seconds(self) -> float:
        """Seconds of a step: 96 B s L h^2 (1 + s/6h + V/16Lh) over the measured FLOP/s."""
        h, s = self.hidden, 2048
        flops = 96 * self.gbs * s * self.layers * h**2
        flops *= 1 + s / (6 * h) + 51200 / (16 * self.layers * h)
        return flops / (self.tp * self.pp * self.dp * self.tflops * 1e12)


TABLE_1 = (
    Scaled(1.7, 2304, 24, 24, 1, 1, 32, 0, 512, 16, 137),
    Scaled(3.6, 3072, 30, 32, 2, 1, 32, 0, 512, 16, 138),
    Scaled(7.5, 4096, 36, 32, 4, 1, 32, 0, 512, 16, 142),
    Scaled(18.4, 6144, 40, 48, 8, 1, 32, 0, 1024, 8, 135),
    Scaled(39.1, 8192, 48, 64, 8, 2, 32, 0, 1536, 4, 138),
    Scaled(76.1, 10240, 60, 80, 8, 4, 32, 5, 1792, 2, 140),
    Scaled(145.6, 12288, 80, 96, 8, 8, 24, 5, 2304, 2, 148),
    Scaled(310.1, 16384, 96, 128, 8, 16, 15, 3, 2160, 1, 155),
    Scaled(529.6, 20480, 105, 128, 8, 35, 9, 1, 2520, 1, 163),
    Scaled(1008.0, 25600, 128, 160, 8, 64, 6, 0, 3072, 1, 163),
)


@dataclass(frozen=True)
class Weak:
    """A row of the weak scaling of Megatron-Core: GPT shapes on H100, BF16, 4,096 tokens.

    Attributes:
        parameters: In billions, as the table names the model.
        hidden, layers, heads: Its shape; vocabulary 131,072.
        tp, pp, dp: How it was cut; sequence parallel where tp is more than 1.
        gbs: Batch in sequences.
        tflops: Measured model TFLOP/s per GPU, nothing computed again.
    """

    parameters: float
    hidden: int
    layers: int
    heads: int
    tp: int
    pp: int
    dp: int
    gbs: int
    tflops: float

    @property
    def seconds(self) -> float:
        """Seconds of a step: 72 B s L h^2 (1 + s/6h + V/12Lh) over the measured FLOP/s."""
        h, s, layers = self.hidden, 4096, self.layers
        flops = 72 * self.gbs * s * layers * h**2 * (1 + s / (6 * h) + 131072 / (12 * layers * h))
        return flops / (self.tp * self.pp * self.dp * self.tflops * 1e12)

    @property
    def vpp(self) -> int:
        """Virtual stages, which the table does not say: assumed as chunks of two layers, or one."""
        depth = self.layers // self.pp
        return 1 if self.pp == 1 else depth // (2 if depth % 2 == 0 else 1)


TABLE_H100 = (
    Weak(1.7, 2048, 24, 16, 1, 1, 48, 192, 408.8),
    Weak(7.1, 4096, 30, 32, 2, 1, 48, 192, 465.9),
    Weak(16, 6144, 32, 48, 4, 1, 48, 192, 489.1),
    Weak(32, 7168, 48, 56, 8, 1, 48, 192, 459.6),
    Weak(70, 8192, 84, 64, 8, 2, 48, 384, 419.7),
    Weak(119, 10240, 92, 80, 8, 4, 48, 768, 420.5),
    Weak(177, 12288, 96, 96, 8, 6, 48, 1152, 432.8),
    Weak(314, 16384, 96, 128, 8, 8, 48, 1536, 474.4),
    Weak(462, 18432, 112, 144, 8, 16, 48, 3072, 459.9),
)
