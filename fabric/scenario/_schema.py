"""The shape of a scenario, as pydantic checks it; imported only where a scenario is read."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from fabric import routing, topologies
from fabric._errors import ModelError, nearest, raise_faults
from fabric._units import parse_rate, parse_time
from fabric.scenario._layers import FORMS
from fabric.solvers import BY
from fabric.training import Layout as TrainingLayout, Model as TrainingModel, model_names

ROUTINGS = tuple(routing.ROUTINGS)
PLACEMENTS = ("first", "spread")
WITHOUT = "none"
"""The value of `run.sensitivities` that leaves them out."""

ALL = "all"
"""The value of `run.allocation` that leaves no GPU out."""

_COUNT = re.compile(r"([\d_]+\.?\d*(?:[eE][-+]?\d+)?)\s*([kMBGT]?)")
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def _with_unit(parse: Callable[[str, str], float], example: str) -> BeforeValidator:
    """Check text with a unit; a bare number is refused, since nobody can tell what it means."""

    def checked(value: Any) -> str:
        if not isinstance(value, str):
            message = f"it needs text with its unit, such as {example}, but got {value!r}"
            raise ModelError(message)
        parse(value, "value")
        return value

    return BeforeValidator(checked, json_schema_input_type=str)


def _one_of(known: Callable[[], tuple[str, ...]]) -> BeforeValidator:
    def checked(value: Any) -> str:
        if not isinstance(value, str) or value not in known():
            message = f"{value!r} is not known. {nearest(str(value), known())}"
            raise ModelError(message)
        return value

    return BeforeValidator(checked, json_schema_input_type=str)


def tokens_of(value: Any) -> float:
    """Return a number of tokens: a number, or text such as "15T".

    Examples:
        >>> tokens_of("15T"), tokens_of("1.5e12"), tokens_of(2_000_000)
        (15000000000000.0, 1500000000000.0, 2000000.0)
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
        return float(value)
    if isinstance(value, str) and (match := _COUNT.fullmatch(value.strip())):
        found = float(match[1].replace("_", "")) * _SCALE[match[2]]
        if found > 0:
            return found
    message = f"it needs a number of tokens, such as 15e12 or '15T', but got {value!r}"
    raise ModelError(message)


Rate = Annotated[str, _with_unit(parse_rate, "'400Gb/s' or '50GB/s'")]
Time = Annotated[str, _with_unit(parse_time, "'900ns' or '10us'")]
Count = Annotated[int, Field(ge=1)]


class Block(BaseModel):
    """A part of a scenario; keys it does not know are errors, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ModelFile(Block):
    """A model by its `config.json`."""

    config: Annotated[str, Field(description="Path of a config.json in the style of Hugging Face.")]
    name: str | None = None


class ModelSizes(Block):
    """A dense decoder by its sizes."""

    name: str
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    ffn: Count
    vocab: Count
    gated: bool = True
    tied: bool = False
    norm_bias: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    positions: Annotated[int, Field(ge=0)] = 0
    window: Annotated[int, Field(ge=0)] = 0


def _listed_model(value: str) -> str:
    TrainingModel.listed(value)
    return value


ListedModel = Annotated[
    str,
    BeforeValidator(_listed_model),
    Field(json_schema_extra={"examples": list(model_names())}),
]


class Hardware(Block):
    """GPU and profile, where they are not those of the fabric, and numbers of the profile."""

    gpu: Annotated[str | None, Field(description="Type of GPU. Default: that of the servers.")] = (
        None
    )
    profile: Annotated[
        str | None, Field(description="What the software reaches. Default: that of the GPU.")
    ] = None
    folder: Annotated[
        str | None, Field(description="Folder with further GPUs, servers, NICs and profiles.")
    ] = None
    set: Annotated[
        dict[str, float | str | bool],
        Field(description="Numbers of the profile by dotted name, such as efficiency.nic."),
    ] = {}

    @field_validator("set", mode="before")
    @classmethod
    def _flat(cls, value: Any) -> Any:
        """Accept `{efficiency: {nic: 0.9}}` too, and want units of times."""
        if not isinstance(value, Mapping):
            return value
        flat: dict[str, Any] = {}
        for key, inner in value.items():
            if isinstance(inner, Mapping):
                flat |= {f"{key}.{name}": number for name, number in inner.items()}
            else:
                flat[key] = inner
        faults = []
        for key, number in flat.items():
            if key.startswith("latency.") and not isinstance(number, str):
                faults.append(f"`{key}` needs a time with its unit, such as '10us', not {number!r}")
        raise_faults(faults)
        return flat


class Degraded(Block):
    """What carries less than it should."""

    nodes: Annotated[
        list[str], Field(description="As in failed; every cable at a node is slower.")
    ] = []
    links: Annotated[list[str], Field(description="As in failed.")] = []
    factor: Annotated[
        float, Field(gt=0, lt=1, description="What is left of the capacity.", strict=True)
    ]

    @model_validator(mode="after")
    def _names_something(self) -> "Degraded":
        if not self.nodes and not self.links:
            message = "it names nothing that is slow. Add `nodes` or `links`, or leave it out"
            raise ModelError(message)
        return self


class Failed(Block):
    """What is out of order."""

    nodes: Annotated[
        list[str], Field(description="Switches, NICs, GPUs, or whole servers such as server0.")
    ] = []
    links: Annotated[
        list[str], Field(description="Cables by a link's name, such as leaf0->spine1.")
    ] = []
    degraded: Degraded | None = None


Routing = Annotated[
    str, _one_of(lambda: ROUTINGS), Field(json_schema_extra={"enum": list(ROUTINGS)})
]


class Fabric(Block):
    """What every kind of fabric takes."""

    routing: Routing | None = None
    failed: Failed = Failed()


class Cluster(Fabric):
    """A named cluster."""

    cluster: Annotated[
        str,
        _one_of(lambda: tuple(topologies.CLUSTERS)),
        Field(json_schema_extra={"enum": list(topologies.CLUSTERS)}),
    ]
    nodes: Annotated[Count | None, Field(description="Servers, or racks.")] = None
    su: Annotated[Count | None, Field(description="Full scalable units, instead of nodes.")] = None
    leaves: Count | None = None
    spines: Count | None = None
    gpudirect: bool | None = None


Nic = Annotated[str, Field(description="Type of the NICs. Default: that of the server.")]


class Read(Fabric):
    """A fabric in a file."""

    file: Annotated[str, Field(description="Path of a file that a reader recognises.")]
    server: Annotated[str | None, Field(description="What every host is.")] = None
    nic: Nic | None = None
    gpus_per_nic: Count | None = None
    gpudirect: bool | None = None
    hosts: Annotated[str | None, Field(description="Only hosts of this pattern: dgx-0*.")] = None
    host_pattern: Annotated[
        str | None, Field(description="Regular expression of adapter names, with a group `host`.")
    ] = None
    capacity: Annotated[Rate | None, Field(description="Of cables that the file gives none.")] = (
        None
    )
    unit: Annotated[str | None, Field(description="Of bare capacities in the file.")] = None
    capacity_attribute: str | None = None
    latency_unit: str | None = None


class Builder(Fabric):
    """A fabric that a builder makes, such as rail_optimized:servers=16."""

    builder: Annotated[str, Field(description="A builder and its numbers: fat_tree:k=8.")]
    server: Annotated[str | None, Field(description="What is behind every host's NICs.")] = None
    nic: Nic | None = None
    gpus_per_nic: Count | None = None
    gpudirect: bool | None = None


class LayoutWords(Block):
    """A layout key by key, in place of one line of text."""

    tp: Count | None = None
    sp: bool | None = None
    pp: Count | None = None
    vpp: Count | None = None
    dp: Count | Literal["auto"] | None = None
    cp: Count | None = None
    ep: Count | None = None
    etp: Count | None = None
    zero: Annotated[int, Field(ge=0, le=3)] | None = None
    mb: Count | None = None
    gbs: Count
    seq: Count
    dtype: Literal["bf16", "fp16", "fp8", "fp32"] | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    schedule: Literal["1f1b", "gpipe"] | None = None


def _layout_text(value: str) -> str:
    # How many GPUs `dp=auto` leaves is known when the fabric is there.
    auto = "gpus" not in value and re.search(r"\bdp=?auto\b", value)
    try:
        TrainingLayout.parse(re.sub(r"\bdp=?auto\b", "dp1", value) if auto else value)
    except ModelError as error:  # without its first line, which repeats the text
        _, _, told = str(error).partition("\n")
        raise ModelError(told or str(error)) from None
    return value


LayoutText = Annotated[
    str,
    BeforeValidator(_layout_text),
    Field(json_schema_extra={"examples": ["tp8 sp pp4 dp31 zero1 mb1 gbs992 seq8192 bf16"]}),
]


class Run(Block):
    """How the job runs, and what is asked."""

    allocation: Annotated[
        Count | Literal["all"], Field(description="GPUs that the job may use.")
    ] = ALL
    placement: Annotated[
        str | list[str | int],
        Field(description="first, spread, or the GPU of every rank by name or number."),
    ] = "first"
    sensitivities: Annotated[
        str,
        _one_of(lambda: (*BY, WITHOUT)),
        Field(json_schema_extra={"enum": [*BY, WITHOUT]}),
    ] = "tier"
    seed: Annotated[int, Field(ge=0, description="Of a routing that draws.")] = 0
    tokens: Annotated[
        float | int | str | None,
        Field(description="Tokens to train on, for days and GPU-hours: 15e12 or 15T."),
    ] = None
    missing_cables: Annotated[
        bool | None,
        Field(
            description="Also the step with every missing leaf-spine cable plugged. Default: "
            "where a file lacks some."
        ),
    ] = None

    @field_validator("placement")
    @classmethod
    def _placement(cls, value: str | list[str | int]) -> str | list[str | int]:
        if isinstance(value, str) and value not in PLACEMENTS:
            message = f"{value!r} is not known. {nearest(value, PLACEMENTS)}"
            raise ModelError(message)
        return value

    @field_validator("tokens", mode="before")
    @classmethod
    def _tokens(cls, value: Any) -> Any:
        if value is not None:
            tokens_of(value)
        return value


class CaseBlock(Block):
    """The same scenario with some values replaced, to be told apart from another case."""

    name: str
    set: Annotated[dict[str, Any], Field(description="Values by dotted path.")]
    against: Annotated[
        str | None, Field(description="The case to compare with. Default: the scenario itself.")
    ] = None


def _tagged(block: str) -> Callable[[Any], str | None]:
    """Return what tells the forms of a block apart."""
    default = {"fabric": None, "model": "layers", "layout": "words"}[block]

    def tag(value: Any) -> str | None:
        if isinstance(value, str):
            return "name"
        if isinstance(value, Block):  # on the way out
            value = type(value).model_fields
        if not isinstance(value, Mapping):
            return None
        return next((form for form in FORMS.get(block, ()) if form in value), default)

    return tag


class Scenario(Block):
    """A training job on a fabric."""

    schema_: Annotated[Literal[1], Field(alias="schema", description="Version of this shape.")]
    about: Annotated[str | None, Field(description="What this is, for people.")] = None
    model: Annotated[
        Annotated[ListedModel, Tag("name")]
        | Annotated[ModelFile, Tag("config")]
        | Annotated[ModelSizes, Tag("layers")],
        Discriminator(_tagged("model")),
    ]
    hardware: Hardware = Hardware()
    fabric: Annotated[
        Annotated[Cluster, Tag("cluster")]
        | Annotated[Read, Tag("file")]
        | Annotated[Builder, Tag("builder")],
        Discriminator(_tagged("fabric")),
    ]
    layout: Annotated[
        Annotated[LayoutText, Tag("name")] | Annotated[LayoutWords, Tag("words")],
        Discriminator(_tagged("layout")),
    ]
    run: Run = Run()
    cases: list[CaseBlock] = []
