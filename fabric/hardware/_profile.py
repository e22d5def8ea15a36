"""`Profile`: what one software stack makes of one type of GPU."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fabric._errors import ModelError, nearest, quoted, raise_faults, some
from fabric._evidence import Evidence
from fabric._units import parse_time
from fabric.hardware._records import evidence

CHOICES = {
    "stack.attention": ("unfused", "flash2", "flash3"),
    "stack.grad_dtype": ("fp32", "bf16"),
    "stack.grad_accumulation": ("fused", "separate"),
    "stack.buckets": ("ddp", "megatron-core"),
}


@dataclass(frozen=True)
class Efficiency:
    """Reached shares of what is nominal, each in (0, 1].

    Attributes:
        gemm: Of the peak FLOP/s, by a large matrix product.
        hbm: Of the memory bandwidth, by an elementwise kernel.
        flash: Of the peak FLOP/s, by the fused attention kernel.
        nvlink: Of the NVLink or xGMI bandwidth of a GPU, by a collective.
        nic: Of the rate of a NIC, by a collective.
    """

    gemm: Evidence
    hbm: Evidence
    flash: Evidence
    nvlink: Evidence
    nic: Evidence


@dataclass(frozen=True)
class Latency:
    """Times that do not depend on sizes, in seconds.

    Attributes:
        collective: Per call of a collective.
        nvlink_step: Per step of a ring inside a server.
        nic_step: Per step of a ring between servers.
        host_per_layer: Least time of the forward pass of a layer: the host launches its kernels.
        microbatch: Added per microbatch of a pipeline.
        chunk: Added per microbatch and virtual stage of an interleaved pipeline.
    """

    collective: Evidence
    nvlink_step: Evidence
    nic_step: Evidence
    host_per_layer: Evidence
    microbatch: Evidence
    chunk: Evidence


@dataclass(frozen=True)
class Stack:
    """Settings of the software.

    Attributes:
        attention: "unfused", "flash2" or "flash3".
        grad_dtype: Of the gradients that are reduced, "fp32" or "bf16".
        grad_accumulation: "fused" into the matrix product, or "separate".
        tp_overlap: Whether tensor-parallel collectives overlap with the matrix products.
        tp_exposed_backward: Share of those of the backward pass that is exposed, in [0, 1].
        sp_exposed_backward: The same under sequence parallelism.
        dp_overlap: Whether data-parallel collectives overlap with the passes.
        buckets: Gradients that are reduced together: "ddp", 25 MB, or "megatron-core", at least 40
            million parameters.
        dropout: Whether dropout is on.
        factor: Speed of the whole stack against one that is tuned, in (0, 1].
    """

    attention: str
    grad_dtype: str
    grad_accumulation: str
    tp_overlap: bool
    tp_exposed_backward: Evidence
    sp_exposed_backward: Evidence
    dp_overlap: bool
    buckets: str
    dropout: bool
    factor: Evidence


@dataclass(frozen=True)
class Collectives:
    """How the collectives of one system differ from the tables of NCCL; 1 is as in the tables.

    Attributes:
        latency_scale: Of all latencies.
        gamma: Weight of the ramp sqrt(latency x transfer time).
        bus_scale: Of the bus bandwidth inside a server.
        nic_fraction: Share of the NIC's rate that is reached, in (0, 1].
        net_latency_scale: Of the latencies between servers.
    """

    latency_scale: Evidence
    gamma: Evidence
    bus_scale: Evidence
    nic_fraction: Evidence
    net_latency_scale: Evidence


@dataclass(frozen=True)
class Profile:
    """Shares, latencies and settings of one software stack on one type of GPU.

    Attributes:
        name: Its name in the catalogue.
        gpu: Name of the GPU it belongs to.
        kind: How the settings are known, one of the kinds of `Evidence`.
        source: Where the settings come from; every number has its own.
        efficiency: Reached shares of what is nominal.
        gemm_half: Size q of one side of a matrix product that halves its speed: the time is that of
            large products times 1 + q (1/M + 1/N + 1/K).
        core_half: The same of the batched products of unfused attention.
        latency: Times that do not depend on sizes, in seconds.
        stack: Settings of the software.
        jitter_per_doubling: Share that a step takes longer per doubling of the servers.
        collectives: How collectives differ from the tables of NCCL.

    Raises:
        ModelError: With every number that is out of its range and every unknown setting.

    Examples:
        >>> from fabric import hardware
        >>> profile = hardware.profile("megatron-core-h100")
        >>> profile.efficiency.gemm.value, profile.efficiency.gemm.kind
        (0.67, 'fitted')
        >>> profile.with_values({"efficiency.nic": 0.9}).efficiency.nic.kind
        'user'
    """

    name: str
    gpu: str
    kind: str
    source: str
    efficiency: Efficiency
    gemm_half: Evidence
    core_half: Evidence
    latency: Latency
    stack: Stack
    jitter_per_doubling: Evidence
    collectives: Collectives

    def __post_init__(self) -> None:
        faults = [_range_fault(self.name, key, found.value) for key, found in self.evidence()]
        for key, value in self.settings().items():
            if key in CHOICES and value not in CHOICES[key]:
                faults.append(
                    f"`{key}` of profile '{self.name}' is {quoted(value)}. "
                    f"{nearest(str(value), CHOICES[key])}"
                )
        raise_faults([fault for fault in faults if fault])

    def evidence(self) -> Iterator[tuple[str, Evidence]]:
        """Yield the dotted name and the `Evidence` of every number.

        Examples:
            >>> from fabric import hardware
            >>> next(iter(hardware.profile("megatron-a100").evidence()))[0]
            'efficiency.gemm'
        """
        return evidence(self)

    def settings(self) -> dict[str, str | bool]:
        """Return what is no number, by dotted name.

        Examples:
            >>> from fabric import hardware
            >>> hardware.profile("megatron-a100").settings()["stack.attention"]
            'unfused'
        """
        values = {f"stack.{f.name}": getattr(self.stack, f.name) for f in dataclasses.fields(Stack)}
        return {key: value for key, value in values.items() if isinstance(value, str | bool)}

    def with_values(
        self,
        values: Mapping[str, Evidence | int | float | str | bool],
        source: str = "given by the caller",
    ) -> "Profile":
        """Return the profile with other numbers or settings.

        Args:
            values: By dotted name. Of a latency: text with a unit, or seconds. A number becomes an
                `Evidence` of kind "user"; an `Evidence` is kept as it is.
            source: Where the numbers come from.

        Raises:
            ModelError: With every name that is unknown and every value that is out of range.

        Examples:
            >>> from fabric import hardware
            >>> base = hardware.profile("megatron-a100")
            >>> base.with_values({"latency.nic_step": "2us"}).latency.nic_step.value
            2e-06
        """
        numbers, settings = dict(self.evidence()), self.settings()
        faults, changes = [], {}
        for key, value in values.items():
            try:
                if key in numbers:
                    changes[key] = _number(key, value, source)
                elif key in settings:
                    changes[key] = _setting(key, value, settings[key])
                else:
                    faults.append(
                        f"`with_values`: a profile has no '{key}'. "
                        f"{nearest(key, [*numbers, *settings])}"
                    )
            except ModelError as error:
                faults.append(str(error))
        raise_faults(faults)
        return replaced(self, changes)


def replaced(record: Any, changes: Mapping[str, Any]) -> Any:
    """Return a dataclass with the fields of these dotted names replaced."""
    own = {key: value for key, value in changes.items() if "." not in key}
    for head in {key.partition(".")[0] for key in changes if "." in key}:
        inner = {
            key[len(head) + 1 :]: v for key, v in changes.items() if key.startswith(f"{head}.")
        }
        own[head] = replaced(getattr(record, head), inner)
    return dataclasses.replace(record, **own)


def _number(key: str, value: Any, source: str) -> Evidence:
    if isinstance(value, Evidence):
        return value
    if key.startswith("latency.") and isinstance(value, str):
        value = parse_time(value, key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        message = f"`{key}` needs a number, but got {value!r}."
        raise ModelError(message)
    if not math.isfinite(value):
        message = f"`{key}` needs a finite number, but got {value!r}."
        raise ModelError(message)
    return Evidence(float(value), "user", source)


def _setting(key: str, value: Any, now: str | bool) -> str | bool:
    if isinstance(value, bool) != isinstance(now, bool) or not isinstance(value, str | bool):
        wanted = "true or false" if isinstance(now, bool) else f"one of {some(CHOICES[key])}"
        message = f"`{key}` needs {wanted}, but got {value!r}."
        raise ModelError(message)
    return value


def _range_fault(profile: str, key: str, value: float) -> str:
    section = key.partition(".")[0]
    share = section == "efficiency" or key in ("stack.factor", "collectives.nic_fraction")
    scale = section == "collectives" and key.endswith("_scale")
    if share:
        fits, wanted = 0 < value <= 1, "a share in (0, 1]"
    elif key in ("stack.tp_exposed_backward", "stack.sp_exposed_backward"):
        fits, wanted = 0 <= value <= 1, "a share in [0, 1]"
    elif scale:
        fits, wanted = value > 0, "a number above 0"
    else:
        fits, wanted = value >= 0, "a number of 0 or more"
    return "" if fits else f"`{key}` of profile '{profile}' needs {wanted}, but got {value!r}."
