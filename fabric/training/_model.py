"""`Model`: the shape of a dense decoder, its exact parameter counts and its FLOPs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fabric._errors import ModelError, nearest, raise_faults
from fabric.network._checks import whole_or_fault
from fabric.training._config import shape_of_config
from fabric.training._listed import LISTED

_WHOLE = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")


@dataclass(frozen=True, kw_only=True)
class Model:
    """The shape of a dense decoder-only transformer.

    A layer is attention and an MLP, each behind a norm: queries of `heads` x `head_dim`, keys and
    values of `kv_heads` x `head_dim`, and two matrices of hidden x ffn, three when `gated`. A final
    norm and the head follow the last layer.

    Attributes:
        name: What people call it.
        layers: Number of layers.
        hidden: Width of the residual stream.
        heads: Query heads.
        kv_heads: Key and value heads; they divide `heads`, and equal it without grouped queries.
        head_dim: Width of a head; `heads` x `head_dim` need not be `hidden`.
        ffn: Inner width of the MLP.
        vocab: Rows of the embedding, as stored.
        gated: Three MLP matrices (SwiGLU and its kin) instead of two.
        tied: The head is the embedding, so it has no parameters of its own.
        norm_bias: Norms have a bias (LayerNorm) besides their weight (RMSNorm has none).
        qkv_bias, out_bias, mlp_bias: Which matrices have a bias.
        qk_norm: Queries and keys have a norm over `head_dim`.
        positions: Rows of a learned position table; 0: rotary or none.
        window: Tokens that a sliding attention window sees; 0: all of them.
        source: Where the shape comes from.

    Raises:
        ModelError: If a size is no whole number in range, or `kv_heads` does not divide `heads`;
            all faults at once.

    Examples:
        >>> model = Model.listed("llama-3.1-70b")
        >>> model.parameters, model.layer_parameters
        (70553706496, 855654400)
        >>> f"{model.flops(tokens=8192, seq=8192):.3e}"
        '3.944e+15'

    References:
        A. Vaswani et al., Attention Is All You Need, 2017; J. Ainslie et al., GQA, 2023;
        N. Shazeer, GLU Variants Improve Transformer, 2020.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    gated: bool = True
    tied: bool = False
    norm_bias: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    positions: int = 0
    window: int = 0
    source: str = "user"

    def __post_init__(self):
        faults: list[str] = []
        for name in _WHOLE:
            whole_or_fault(f"Model({name}=...)", getattr(self, name), faults)
        for name in ("positions", "window"):
            whole_or_fault(f"Model({name}=...)", getattr(self, name), faults, least=0)
        if not faults and self.heads % self.kv_heads:
            faults.append(
                f"`Model(kv_heads={self.kv_heads})` does not divide the {self.heads} query heads. "
                f"Every key and value head serves the same number of query heads."
            )
        raise_faults(faults)

    @classmethod
    def from_config(cls, mapping: Mapping[str, Any], name: str = "") -> "Model":
        """Return the model that a `config.json` in the style of Hugging Face describes.

        Families: llama, mistral, qwen2, qwen3 and gpt2. Left out, `head_dim` is hidden / heads (but
        for qwen3), `num_key_value_heads` is the heads (llama, gpt2), `n_inner` is 4 x hidden
        (gpt2), `tie_word_embeddings` is true for gpt2 and false else, biases are what the family
        has. Keys that do not touch the shape are not read.

        Args:
            mapping: The keys of the file.
            name: What to call the model. Default: its `_name_or_path`, or its family.

        Raises:
            ModelError: If the family is unknown; a key changes the shape in a way that is not
                supported (mixture of experts, latent attention, linear attention, state-space
                layers, encoders); a key is missing or of the wrong type; all faults at once.

        Examples:
            >>> Model.from_config({"model_type": "gpt2", "n_layer": 12, "n_embd": 768,
            ...     "n_head": 12, "vocab_size": 50257, "n_positions": 1024}).parameters
            124439808

        References:
            The configuration classes of Hugging Face transformers, for keys and their defaults.
        """
        return cls(**shape_of_config(mapping, name))

    @classmethod
    def listed(cls, name: str) -> "Model":
        """Return a published model by its name, one of `model_names()`.

        Raises:
            ModelError: If there is no such model; the nearest name is offered.

        Examples:
            >>> round(Model.listed("gpt-3-175b").parameters / 1e9, 1)
            174.6
        """
        if name not in LISTED:
            message = (
                f"There is no listed model {name!r}. {nearest(name, model_names())} Any other "
                f"dense decoder: `Model.from_config(...)`."
            )
            raise ModelError(message)
        return cls(name=name, **LISTED[name])

    @property
    def q_width(self) -> int:
        """Width of all queries, heads x head_dim."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all keys, and of all values."""
        return self.kv_heads * self.head_dim

    @property
    def up_matrices(self) -> int:
        """Matrices of hidden x ffn before the activation: 2 if gated, else 1."""
        return 2 if self.gated else 1

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm over the hidden width."""
        return self.hidden * (2 if self.norm_bias else 1)

    @property
    def layer_matrices(self) -> int:
        """Weights of one layer that multiply every token: no biases, no norms."""
        attention = self.hidden * (self.q_width + 2 * self.kv_width) + self.q_width * self.hidden
        return attention + (self.up_matrices + 1) * self.hidden * self.ffn

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer."""
        biases = (
            self.qkv_bias * (self.q_width + 2 * self.kv_width)
            + self.out_bias * self.hidden
            + self.mlp_bias * (self.up_matrices * self.ffn + self.hidden)
        )
        norms = 2 * self.norm_parameters + self.qk_norm * 2 * self.head_dim
        return self.layer_matrices + biases + norms

    @property
    def embedding_parameters(self) -> int:
        """Parameters before the first layer: token and learned position tables."""
        return (self.vocab + self.positions) * self.hidden

    @property
    def head_parameters(self) -> int:
        """Parameters after the last layer: the final norm, and the head unless it is tied."""
        return self.norm_parameters + (0 if self.tied else self.vocab * self.hidden)

    @property
    def parameters(self) -> int:
        """All parameters, exactly."""
        layers = self.layers * self.layer_parameters
        return self.embedding_parameters + layers + self.head_parameters

    def layer_flops(self, tokens: int | float, seq: int, *, causal: bool = False) -> float:
        """Return FLOPs of the matrix products of one layer, forward only.

        Args:
            tokens: Tokens that pass.
            seq: Tokens of a sequence, each attending to all of them.
            causal: Count only the half of the attention square that a causal mask leaves.
                Default: the full square, the convention of published model FLOPs and MFU.
        """
        attention = 4 * seq * self.q_width / (2 if causal else 1)
        return tokens * (2 * self.layer_matrices + attention)

    def forward_flops(self, tokens: int | float, seq: int, *, causal: bool = False) -> float:
        """Return FLOPs of the matrix products of one forward pass, with the head.

        Args:
            tokens: Tokens that pass.
            seq: Tokens of a sequence.
            causal: As in `layer_flops`.
        """
        head = 2 * tokens * self.hidden * self.vocab
        return self.layers * self.layer_flops(tokens, seq, causal=causal) + head

    def flops(self, tokens: int | float, seq: int, *, causal: bool = False) -> float:
        """Return model FLOPs of one step, forward and backward, without recomputation.

        The backward pass counts twice the forward pass. For a GPT of ffn = 4 x hidden this is
        72 B s L h^2 (1 + s/6h + V/12Lh) with B s tokens.

        Args:
            tokens: Tokens of the step: global batch x sequence length.
            seq: Tokens of a sequence.
            causal: Count only the half of the attention square that a causal mask leaves.
                Default: the full square, the convention of published model FLOPs and MFU.

        References:
            D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters,
            2021, appendix; V. Korthikanti et al., Reducing Activation Recomputation in Large
            Transformer Models, 2022, section 6.3.
        """
        return 3 * self.forward_flops(tokens, seq, causal=causal)


def model_names() -> tuple[str, ...]:
    """Return the names that `Model.listed` knows.

    Examples:
        >>> "llama-3.1-405b" in model_names()
        True
    """
    return tuple(LISTED)
