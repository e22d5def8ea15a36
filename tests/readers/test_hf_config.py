"""What the reader of `config.json` promises, one test per promise."""

import gzip
import json

import pytest

from fabric import ModelError, readers
from fabric.training import Model

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 96, "vocab_size": 1000,
}  # fmt: skip


def written(folder, document, name="config.json"):
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Meta-Llama-3.1-405B", 405_853_388_800),
        ("Meta-Llama-3.1-70B", 70_553_706_496),
        ("Qwen3-32B", 32_762_123_264),
    ],
)
def test_real_files_are_read_and_named_after_themselves(shared, name, parameters):
    model = readers.hf_config(shared / "samples/workload/hf" / f"{name}.config.json")
    assert (model.name, model.parameters) == (name, parameters)


@pytest.mark.parametrize("name", ["Mixtral-8x22B-v0.1", "DeepSeek-V3", "Qwen3-235B-A22B"])
def test_files_of_models_with_experts_are_refused_by_name(shared, name):
    with pytest.raises(ModelError, match=f"(?s)'{name}.config.json'.*a mixture of experts"):
        readers.hf_config(shared / "samples/workload/hf" / f"{name}.config.json")


def test_the_name_is_what_is_given_then_what_the_file_says_then_the_file_or_its_folder(tmp_path):
    (tmp_path / "tiny").mkdir()
    path = written(tmp_path / "tiny", CONFIG)
    assert readers.hf_config(path).name == "tiny"
    assert readers.hf_config(path, name="mine").name == "mine"
    assert readers.hf_config(written(tmp_path, CONFIG, "small.config.json")).name == "small"
    said = written(tmp_path, CONFIG | {"_name_or_path": "org/own"})
    assert readers.hf_config(said).name == "org/own"


def test_text_and_gzip_are_read_like_a_file(tmp_path):
    text = json.dumps(CONFIG, indent=1)
    packed = tmp_path / "tiny.config.json.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    expected = Model.from_config(CONFIG).parameters
    assert readers.hf_config(text).parameters == expected
    assert readers.hf_config(packed).parameters == expected
    assert readers.hf_config(packed).name == "tiny"


def test_json_that_breaks_off_is_placed(tmp_path):
    path = written(tmp_path, '{"model_type": "llama",\n "hidden_size": }')
    with pytest.raises(ModelError, match=r"'config.json' is no JSON: .*line 2, column 17"):
        readers.hf_config(path)


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ([1], "is a JSON list"),
        (3, "is a JSON value"),
        ({}, "has no keys"),
        ({"weight_map": {}}, "looks like the index of a model's weight files"),
        ({"tokenizer_class": "x"}, "looks like a tokenizer"),
        ({"zero_optimization": {}}, "looks like a DeepSpeed configuration"),
        ({"nodes": [], "links": []}, "looks like a node-link graph"),
        ({"colour": 1}, "has 'colour'"),
    ],
)
def test_what_is_no_configuration_is_told_what_it_is(tmp_path, document, what):
    with pytest.raises(ModelError, match=f"{what}, not a model's configuration"):
        readers.hf_config(written(tmp_path, document))


def test_faults_of_the_model_name_the_file(tmp_path):
    with pytest.raises(ModelError, match=r"'config.json': The configuration lacks `vocab_size`"):
        readers.hf_config(written(tmp_path, {**CONFIG, "vocab_size": None}))


def test_a_file_that_is_not_there_is_told():
    with pytest.raises(ModelError, match=r"There is no file 'nowhere\.json'"):
        readers.hf_config("nowhere.json")
