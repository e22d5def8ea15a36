"""Keys of a `config.json` in the style of Hugging Face -> the fields of a `Model`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fabric._errors import ModelError, joined, nearest, quoted, raise_faults, some
from fabric.network._checks import is_whole, whole_or_fault

_KEYS = {
    "layers": ("num_hidden_layers", "n_layer"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "ffn": ("intermediate_size", "n_inner"),
    "vocab": ("vocab_size",),
    "positions": ("n_positions", "max_position_embeddings", "n_ctx"),
}


@dataclass(frozen=True)
class _Family:
    """What a family has; a bias is there, absent, or told by a key that is false when left out."""

    gated: bool = True
    tied: bool = False
    norm_bias: bool = False
    qkv_bias: bool | str = False
    out_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norm: bool = False
    learned_positions: bool = False
    required: tuple[str, ...] = ()
    window_switch: str = ""


_FAMILIES = {
    "llama": _Family(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias"),
    "mistral": _Family(required=("kv_heads",)),
    "qwen2": _Family(qkv_bias=True, required=("kv_heads",), window_switch="use_sliding_window"),
    "qwen3": _Family(
        qkv_bias="attention_bias", out_bias="attention_bias", qk_norm=True,
        required=("kv_heads", "head_dim"), window_switch="use_sliding_window",
    ),
    "gpt2": _Family(
        gated=False, tied=True, norm_bias=True, qkv_bias=True, out_bias=True, mlp_bias=True,
        learned_positions=True,
    ),
}  # fmt: skip
_ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "GPT2LMHeadModel": "gpt2",
}

# Keys that give a layer another shape, unless they are absent, null, false, 0 or empty.
_OTHER_SHAPES = {
    "a mixture of experts": r"(num_(local_)?|n_(routed|shared)_)experts|moe_intermediate_size",
    "multi-head latent attention": r"(q|kv)_lora_rank|qk_(nope|rope)_head_dim|v_head_dim",
    "linear attention": r"linear_(num|key|value|conv|attn)\w*|full_attention_interval|rwkv\w*",
    "state-space layers": r"(mamba|ssm|conv)_\w+|state_size|d_state|hybrid_\w+|attn_layer_\w+",
    "an encoder or another modality": (
        r"is_encoder_decoder|add_cross_attention|cross_attention_layers|(vision|audio|text)_config"
    ),
    "layers that differ or share weights": (
        r"block_configs|num_kv_shared_layers|hidden_size_per_layer_input|num_nextn_predict_layers"
    ),
}
_LAYER_TYPES = {"full_attention", "sliding_attention"}


def shape_of_config(mapping: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the keywords of a `Model`; see `Model.from_config`.

    Args:
        mapping: The keys of the file.
        name: What to call the model; "" for its own name.
    """
    if not isinstance(mapping, Mapping):
        message = f"`Model.from_config(mapping)` needs a mapping of keys, but got {mapping!r:.60}."
        raise ModelError(message)
    kind = _kind(mapping)
    faults = _other_shapes(mapping)
    if faults and kind not in _FAMILIES:
        faults.append(f"Its model type is {quoted(kind)}. Supported are dense {some(_FAMILIES)}.")
    elif kind not in _FAMILIES:
        faults.append(_unknown(kind, mapping))
    raise_faults(faults)
    family = _FAMILIES[kind]
    shape = _sizes(mapping, family, faults)
    shape["tied"] = _flag(mapping, "tie_word_embeddings", family.tied, faults)
    for bias in ("qkv_bias", "out_bias", "mlp_bias"):
        key = getattr(family, bias)
        shape[bias] = _flag(mapping, key, False, faults) if isinstance(key, str) else key
    raise_faults(faults)
    own = mapping.get("_name_or_path")
    named = name or (own if isinstance(own, str) and own else kind)
    return shape | {
        "name": named, "gated": family.gated, "norm_bias": family.norm_bias,
        "qk_norm": family.qk_norm, "source": f"configuration of {named}",
    }  # fmt: skip


def _kind(mapping: Mapping[str, Any]) -> str:
    """Return the family that the mapping names, or ""."""
    if isinstance(kind := mapping.get("model_type"), str):
        return kind
    listed = mapping.get("architectures")
    first = listed[0] if isinstance(listed, list | tuple) and listed else None
    return _ARCHITECTURES.get(first, first) if isinstance(first, str) else ""


def _unknown(kind: str, mapping: Mapping[str, Any]) -> str:
    if kind:
        return f"The model type {quoted(kind)} is not supported. {nearest(kind, list(_FAMILIES))}"
    held = f"It has {some(mapping)}" if mapping else "It is empty"
    return (
        f"The configuration has neither `model_type` nor `architectures`, so that its layers are "
        f"not known. {held}. Add `model_type`, one of {some(_FAMILIES)}."
    )


def _other_shapes(mapping: Mapping[str, Any]) -> list[str]:
    """Return a fault for each kind of layer that keys of the mapping ask for."""
    faults = []
    # One expert is a dense layer.
    idle = lambda key, value: not value or ("expert" in key and is_whole(value) and value == 1)
    for what, pattern in _OTHER_SHAPES.items():
        keys = [
            f"{key}={value!r:.40}"
            for key, value in mapping.items()
            if re.fullmatch(pattern, str(key)) and not idle(str(key), value)
        ]
        if keys:
            faults.append(f"The configuration has {what} ({joined(keys, 5)}): not supported.")
    types = mapping.get("layer_types")
    others = {str(kind) for kind in types} - _LAYER_TYPES if isinstance(types, list) else set()
    if others:
        faults.append(f"The configuration has `layer_types` {some(sorted(others))}: not supported.")
    return faults


def _sizes(mapping: Mapping[str, Any], family: _Family, faults: list[str]) -> dict[str, Any]:
    """Return the whole numbers of the shape, with the defaults of the family."""
    found: dict[str, int] = {}
    optional = {"kv_heads", "head_dim"} - set(family.required)
    if family.learned_positions:
        wanted, optional = list(_KEYS), optional | {"ffn"}
    else:
        wanted = [field for field in _KEYS if field != "positions"]
    for field in wanted:
        given = [key for key in _KEYS[field] if mapping.get(key) is not None]
        if given:
            found[field] = whole_or_fault(given[0], mapping[given[0]], faults)
        if len({repr(mapping[key]) for key in given}) > 1 and field != "positions":
            pairs = joined([f"`{key}`={mapping[key]!r}" for key in given])
            faults.append(f"The configuration says the same thing twice: {pairs}. Keep one.")
    missing = [field for field in wanted if field not in found and field not in optional]
    if missing:
        keys = [" or ".join(f"`{key}`" for key in _KEYS[field]) for field in missing]
        faults.append(f"The configuration lacks {joined(keys)}. Add what is missing.")
    if faults:
        return found
    hidden, heads = found["hidden"], found["heads"]
    if "head_dim" not in found and hidden % heads:
        faults.append(
            f"{heads} heads do not divide the hidden size {hidden:,}. Add `head_dim`, or correct "
            f"one of them."
        )
    window = 0
    if mapping.get("sliding_window") is not None and (
        not family.window_switch or _flag(mapping, family.window_switch, False, faults)
    ):
        window = whole_or_fault("sliding_window", mapping["sliding_window"], faults)
    defaults = {
        "kv_heads": heads, "head_dim": hidden // heads, "ffn": 4 * hidden, "window": window,
    }  # fmt: skip
    return defaults | found


def _flag(mapping: Mapping[str, Any], key: str, default: bool, faults: list[str]) -> bool:
    value = mapping.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        faults.append(f"`{key}` needs true or false, but got {value!r}.")
        return default
    return value
