"""`config.json` of a model in the style of Hugging Face -> `Model`."""

import json
import os
from pathlib import Path
from typing import Any

from fabric._errors import ModelError, some
from fabric.readers._files import Text, load
from fabric.training import Model

# What people hand over instead, by keys that only it has.
_OTHERS = {
    "the index of a model's weight files": ("weight_map",),
    "a tokenizer": ("added_tokens", "tokenizer_class", "pre_tokenizer"),
    "settings for generating text": ("do_sample", "_from_model_config"),
    "a DeepSpeed configuration": ("train_batch_size", "zero_optimization"),
    "a node-link graph": ("nodes", "links", "edges"),
    "an adapter": ("peft_type",),
}
_SIGNS = {"model_type", "architectures", "num_hidden_layers", "n_layer", "hidden_size", "n_embd"}


def hf_config(path: str | os.PathLike[str] | Text, *, name: str = "") -> Model:
    r"""Return the model that a `config.json` describes; see `Model.from_config` for which.

    Args:
        path: A file, plain or gzip, or the text itself.
        name: What to call the model. Default: what the file calls it (`_name_or_path`), else the
            name of the file without `config` and `.json`, else that of its folder.

    Raises:
        ModelError: If the file cannot be read, is no JSON (with line and column), is something
            else (and what), or describes a model that is not supported.

    Examples:
        >>> from fabric import readers
        >>> text = '''{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
        ...  "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000}'''
        >>> readers.hf_config(text).parameters
        210240

    References:
        transformers, `PretrainedConfig.to_json_file`.
    """
    file = load(path)
    document = _document(file)
    told = document.get("_name_or_path")
    if not name and not (isinstance(told, str) and told) and not isinstance(path, Text):
        name = _name(path, file.source)
    try:
        return Model.from_config(document, name)
    except ModelError as error:
        message = f"'{file.source}': {error}"
        raise ModelError(message) from None


def _document(file: Text) -> dict[str, Any]:
    """Return the keys of the file, or say what it is instead of a model's configuration."""
    try:
        document = json.loads(file.text)
    except json.JSONDecodeError as error:
        message = (
            f"'{file.source}' is no JSON: {error.msg}, line {error.lineno}, column "
            f"{error.colno}. Give the `config.json` of a model."
        )
        raise ModelError(message) from None
    if isinstance(document, dict) and _SIGNS & document.keys():
        return document
    if not isinstance(document, dict):
        what = f"is a JSON {'list' if isinstance(document, list) else 'value'}"
    else:
        what = next(
            (
                f"looks like {other}"
                for other, keys in _OTHERS.items()
                if any(key in document for key in keys)
            ),
            f"has {some(document)}" if document else "has no keys",
        )
    message = f"'{file.source}' {what}, not a model's configuration. Give its `config.json`."
    raise ModelError(message)


def _name(path: str | os.PathLike[str], source: str) -> str:
    """Return a name for the model from that of the file: `X.config.json`, or `X/config.json`."""
    if source == "text":
        return ""
    stem = source.removesuffix(".gz").removesuffix(".json").removesuffix("config").rstrip("._-")
    return stem or Path(path).absolute().parent.name
