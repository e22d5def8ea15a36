"""What `Model` promises, one test per promise."""

import json

import pytest

from fabric import ModelError
from fabric.training import Model, model_names

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 1000,
}  # fmt: skip
GPT = {
    "model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 1000,
    "n_positions": 128,
}  # fmt: skip


def sample(shared, name):
    return json.loads((shared / "samples/workload/hf" / f"{name}.config.json").read_text())


# Counts that the publishers print on the cards of the models, in billions.
@pytest.mark.parametrize(
    ("name", "billions", "tolerance"),
    [
        ("llama-3.1-8b", 8.03, 1e-3),
        ("llama-3.1-70b", 70.6, 1e-3),
        ("llama-3.1-405b", 406, 1e-3),
        ("llama-2-7b", 6.74, 1e-3),
        ("llama-2-13b", 13.02, 1e-3),
        ("llama-2-70b", 68.98, 1e-3),
        ("qwen2.5-7b", 7.61, 1e-3),
        ("qwen2.5-14b", 14.77, 1e-3),
        ("qwen2.5-32b", 32.76, 1e-3),
        ("qwen2.5-72b", 72.7, 1e-3),
        ("qwen3-8b", 8.19, 1e-3),
        ("qwen3-14b", 14.77, 1e-3),
        ("qwen3-32b", 32.76, 1e-3),
        ("gpt2-xl", 1.5576, 1e-4),
        ("gpt-3-175b", 174.6, 1e-3),
        ("megatron-22b", 22, 5e-3),
        ("megatron-175b", 175, 5e-3),
        ("megatron-530b", 530, 5e-3),
        ("megatron-1t", 1008, 5e-3),
    ],
)
def test_listed_models_have_the_published_number_of_parameters(name, billions, tolerance):
    assert Model.listed(name).parameters / 1e9 == pytest.approx(billions, rel=tolerance)


def test_every_listed_model_is_tested_and_says_where_it_comes_from():
    tested = test_listed_models_have_the_published_number_of_parameters.pytestmark[0].args[1]
    assert {name for name, *_ in tested} == set(model_names())
    assert all(Model.listed(name).source != "user" for name in model_names())


@pytest.mark.parametrize(
    ("name", "billions", "listed"),
    [
        ("Meta-Llama-3.1-405B", 405.85, "llama-3.1-405b"),
        ("Meta-Llama-3.1-70B", 70.55, "llama-3.1-70b"),
        ("Qwen3-32B", 32.76, "qwen3-32b"),
    ],
)
def test_real_configurations_have_the_counts_of_their_cards(shared, name, billions, listed):
    model = Model.from_config(sample(shared, name))
    assert model.parameters / 1e9 == pytest.approx(billions, rel=1e-3)
    assert model.parameters == Model.listed(listed).parameters


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("Mixtral-8x22B-v0.1", r"mixture of experts \(num_local_experts=8\)"),
        ("DeepSeek-V3", r"(?s)mixture of experts .*latent attention \(kv_lora_rank=512"),
        ("Qwen3-235B-A22B", r"mixture of experts \(.*num_experts=128\)"),
    ],
)
def test_experts_and_latent_attention_are_refused_by_name(shared, name, what):
    with pytest.raises(ModelError, match=what + r"(?s:.*)Supported are dense 'llama'"):
        Model.from_config(sample(shared, name))


@pytest.mark.parametrize("layers", [2, 24])
@pytest.mark.parametrize("hidden", [64, 1024])
def test_a_gpt_has_the_parameters_of_the_closed_form(hidden, layers):
    model = Model.from_config(GPT | {"n_embd": hidden, "n_layer": layers})
    L, h, V, s = layers, hidden, 1000, 128
    narayanan = 12 * L * h**2 * (1 + 13 / (12 * h) + (V + s) / (12 * L * h))
    # The paper leaves out the final norm, a weight and a bias.
    assert model.parameters == pytest.approx(narayanan + 2 * h, rel=1e-12)


def test_parameters_are_the_sum_of_the_matrices_of_a_small_model():
    model = Model.from_config(LLAMA | {"attention_bias": True, "mlp_bias": True})
    q, kv, out = (64 + 1) * 64, (64 + 1) * 2 * 16, (64 + 1) * 64
    gate, up, down = (64 + 1) * 96, (64 + 1) * 96, (96 + 1) * 64
    assert model.layer_parameters == q + 2 * kv + out + gate + up + down + 2 * 64
    assert model.parameters == 2 * model.layer_parameters + 2 * 1000 * 64 + 64
    assert (model.embedding_parameters, model.head_parameters) == (64000, 64064)


def test_families_differ_in_biases_norms_and_ties():
    base = Model.from_config(LLAMA)
    qwen2 = Model.from_config(LLAMA | {"model_type": "qwen2"})
    assert qwen2.layer_parameters - base.layer_parameters == 64 + 2 * 32
    qwen3 = Model.from_config(LLAMA | {"model_type": "qwen3", "head_dim": 32})
    assert (qwen3.q_width, qwen3.kv_width, qwen3.qk_norm) == (128, 64, True)
    assert qwen3.layer_parameters - base.layer_parameters == 64 * (2 * 64 + 2 * 32) + 2 * 32
    tied = Model.from_config(LLAMA | {"tie_word_embeddings": True})
    assert base.parameters - tied.parameters == 64 * 1000
    assert Model.from_config(LLAMA | {"model_type": "mistral"}).parameters == base.parameters


def test_synonyms_of_keys_say_the_same():
    named = {
        "n_embd": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
    }
    other = {named.get(key, key): value for key, value in GPT.items()} | {"n_inner": 256}
    assert Model.from_config(other) == Model.from_config(GPT)
    with pytest.raises(ModelError, match="the same thing twice: `hidden_size`=64 and `n_embd`=32"):
        Model.from_config(LLAMA | {"n_embd": 32})


def test_the_architecture_stands_in_for_a_missing_model_type():
    rest = {key: value for key, value in LLAMA.items() if key != "model_type"}
    told = Model.from_config(rest | {"architectures": ["LlamaForCausalLM"]})
    assert told.parameters == Model.from_config(LLAMA).parameters
    with pytest.raises(ModelError, match="neither `model_type` nor `architectures`"):
        Model.from_config(rest)


def test_every_missing_key_and_every_wrong_type_is_named_at_once():
    config = {"model_type": "qwen3", "hidden_size": "64", "num_hidden_layers": 2.5}
    with pytest.raises(ModelError) as error:
        Model.from_config(config | {"tie_word_embeddings": 1})
    text = str(error.value)
    for part in (
        "`hidden_size` needs a whole number of 1 or more, but got '64'",
        "`num_hidden_layers` needs a whole number of 1 or more, but got 2.5",
        "lacks `num_attention_heads` or `n_head`, `num_key_value_heads`, `head_dim`",
        "`vocab_size`",
        "`tie_word_embeddings` needs true or false, but got 1",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"linear_num_value_heads": 32}, "linear attention"),
        ({"mamba_d_state": 16}, "state-space layers"),
        ({"vision_config": {"depth": 1}}, "an encoder or another modality"),
        ({"layer_types": ["full_attention", "conv"]}, "`layer_types` 'conv'"),
        ({"num_nextn_predict_layers": 1}, "layers that differ"),
    ],
)
def test_keys_that_change_the_shape_are_refused_by_name(more, what):
    with pytest.raises(ModelError, match=f"{what}.*not supported"):
        Model.from_config(LLAMA | more)


def test_keys_that_ask_for_nothing_else_are_fine():
    idle = {"num_local_experts": 1, "kv_lora_rank": None, "mamba_d_state": 0, "vision_config": {}}
    assert Model.from_config(LLAMA | idle) == Model.from_config(LLAMA)


def test_an_unknown_family_is_refused_with_the_nearest_and_all_known():
    with pytest.raises(ModelError, match=r"'lama' is not supported. Did you mean 'llama'\?"):
        Model.from_config({"model_type": "lama"})


def test_a_sliding_window_counts_only_where_it_is_on():
    windowed = {"sliding_window": 32}
    assert Model.from_config(LLAMA | windowed | {"model_type": "mistral"}).window == 32
    qwen2 = LLAMA | windowed | {"model_type": "qwen2"}
    assert Model.from_config(qwen2).window == 0
    assert Model.from_config(qwen2 | {"use_sliding_window": True}).window == 32


def test_an_unknown_listed_model_is_refused_with_the_nearest():
    with pytest.raises(ModelError, match=r"Did you mean 'llama-3\.1-70b'"):
        Model.listed("llama-3.1-70")


def test_a_shape_that_cannot_be_is_refused_with_all_faults():
    with pytest.raises(ModelError, match=r"(?s)Model\(layers=...\).*Model\(ffn=...\)"):
        Model(name="x", layers=0, hidden=8, heads=2, kv_heads=1, head_dim=4, ffn=-1, vocab=9)
    with pytest.raises(
        ModelError, match=r"`Model\(kv_heads=2\)` does not divide the 3 query heads"
    ):
        Model(name="x", layers=1, hidden=8, heads=3, kv_heads=2, head_dim=4, ffn=8, vocab=9)
    with pytest.raises(ModelError, match="Add `head_dim`"):
        Model.from_config(LLAMA | {"hidden_size": 66})


@pytest.mark.parametrize("name", ["gpt-3-175b", "megatron-22b", "megatron-530b", "megatron-1t"])
def test_flops_of_a_gpt_are_the_closed_form(name):
    model = Model.listed(name)
    B, s, L, h, V = 64, 2048, model.layers, model.hidden, model.vocab
    korthikanti = 72 * B * s * L * h**2 * (1 + s / (6 * h) + V / (12 * L * h))
    assert model.flops(B * s, s) == pytest.approx(korthikanti, rel=1e-12)
    # With one more forward pass of every layer, the count of Narayanan et al.
    narayanan = 96 * B * s * L * h**2 * (1 + s / (6 * h) + V / (16 * L * h))
    again = L * model.layer_flops(B * s, s)
    assert model.flops(B * s, s) + again == pytest.approx(narayanan, rel=1e-12)


def test_mfu_of_the_published_runs_comes_from_the_published_times(shared):
    # Korthikanti 2022 table 5: seconds of a step and model FLOPs use of 312 TFLOP/s per GPU.
    for name, gpus, batch, seconds, mfu in (
        ("22b", 8, 4, 1.10, 41.5), ("175b", 64, 64, 13.75, 51.4), ("530b", 280, 280, 37.83, 56.0),
        ("1t", 512, 512, 71.49, 56.3),
    ):  # fmt: skip
        flops = Model.listed(f"megatron-{name}").flops(batch * 2048, 2048)
        # The times are printed to three digits.
        assert flops / (gpus * 312e12 * seconds) * 100 == pytest.approx(mfu, rel=5e-3)


def test_gated_grouped_flops_are_twice_the_weights_and_the_square():
    model = Model.from_config(LLAMA)
    weights = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 96
    assert model.layer_flops(10, 32) == 10 * (2 * weights + 4 * 32 * 64)
    assert model.layer_flops(10, 32, causal=True) == 10 * (2 * weights + 2 * 32 * 64)
    assert model.forward_flops(10, 32) == 2 * model.layer_flops(10, 32) + 2 * 10 * 64 * 1000
