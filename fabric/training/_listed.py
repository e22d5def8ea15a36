"""Shapes of published models: facts with their sources."""

from collections.abc import Mapping
from typing import Any

_LLAMA_3 = "A. Grattafiori et al., The Llama 3 Herd of Models, 2024, table 3; its configuration"
_LLAMA_2 = "H. Touvron et al., Llama 2, 2023; its configuration"
_QWEN_25 = "Qwen2.5 Technical Report, 2024, table 1; its configuration"
_QWEN_3 = "Qwen3 Technical Report, 2025, table 1; its configuration"
_GPT_2 = "A. Radford et al., Language Models are Unsupervised Multitask Learners, 2019, table 2"
_GPT_3 = "T. Brown et al., Language Models are Few-Shot Learners, 2020, table 2.1; GPT-2 vocabulary"
_MEGATRON = (
    "V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022, "
    "table 3; vocabulary padded to 51,200"
)


def _decoder(
    layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, source: str,
    head_dim: int | None = None, **features: bool,
) -> dict[str, Any]:  # fmt: skip
    return {
        "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads,
        "head_dim": head_dim or hidden // heads, "ffn": ffn, "vocab": vocab, "source": source,
    } | features  # fmt: skip


def _gpt(
    layers: int, hidden: int, heads: int, vocab: int, positions: int, source: str
) -> dict[str, Any]:
    """Return the shape of a GPT: two MLP matrices of 4 x hidden, biases everywhere, a tied head."""
    shape = _decoder(layers, hidden, heads, heads, 4 * hidden, vocab, source)
    biases = dict.fromkeys(("tied", "norm_bias", "qkv_bias", "out_bias", "mlp_bias"), True)
    return shape | biases | {"gated": False, "positions": positions}


LISTED: Mapping[str, Mapping[str, Any]] = {
    "llama-3.1-8b": _decoder(32, 4096, 32, 8, 14336, 128256, _LLAMA_3),
    "llama-3.1-70b": _decoder(80, 8192, 64, 8, 28672, 128256, _LLAMA_3),
    "llama-3.1-405b": _decoder(126, 16384, 128, 8, 53248, 128256, _LLAMA_3),
    "llama-2-7b": _decoder(32, 4096, 32, 32, 11008, 32000, _LLAMA_2),
    "llama-2-13b": _decoder(40, 5120, 40, 40, 13824, 32000, _LLAMA_2),
    "llama-2-70b": _decoder(80, 8192, 64, 8, 28672, 32000, _LLAMA_2),
    "qwen2.5-7b": _decoder(28, 3584, 28, 4, 18944, 152064, _QWEN_25, qkv_bias=True),
    "qwen2.5-14b": _decoder(48, 5120, 40, 8, 13824, 152064, _QWEN_25, qkv_bias=True),
    "qwen2.5-32b": _decoder(64, 5120, 40, 8, 27648, 152064, _QWEN_25, qkv_bias=True),
    "qwen2.5-72b": _decoder(80, 8192, 64, 8, 29568, 152064, _QWEN_25, qkv_bias=True),
    "qwen3-8b": _decoder(36, 4096, 32, 8, 12288, 151936, _QWEN_3, 128, qk_norm=True),
    "qwen3-14b": _decoder(40, 5120, 40, 8, 17408, 151936, _QWEN_3, 128, qk_norm=True),
    "qwen3-32b": _decoder(64, 5120, 64, 8, 25600, 151936, _QWEN_3, 128, qk_norm=True),
    "gpt2-xl": _gpt(48, 1600, 25, 50257, 1024, _GPT_2),
    "gpt-3-175b": _gpt(96, 12288, 96, 50257, 2048, _GPT_3),
    "megatron-22b": _gpt(48, 6144, 64, 51200, 2048, _MEGATRON),
    "megatron-175b": _gpt(96, 12288, 96, 51200, 2048, _MEGATRON),
    "megatron-530b": _gpt(105, 20480, 128, 51200, 2048, _MEGATRON),
    "megatron-1t": _gpt(128, 25600, 160, 51200, 2048, _MEGATRON),
}
"""The keywords of a `Model` by its name, without the name."""
