"""`StepReport`: the answer of `step`, for programs and people."""

from dataclasses import dataclass
from typing import Any

from fabric.hardware import Gpu, Profile
from fabric.network import Network
from fabric.solvers import Sensitivities
from fabric.training._assemble import Parts, times_a_step
from fabric.training._layout import Layout
from fabric.training._memory import Memory
from fabric.training._model import Model
from fabric.training._phases import Phase

DAY = 86400.0


@dataclass(frozen=True)
class Assumption:
    """A number or a setting behind an answer.

    Attributes:
        name: Dotted.
        value: In bytes, seconds, byte/s or FLOP/s, or a word.
        kind: One of the kinds of `Evidence`.
        source: Where it comes from.
        low, high: Its band, if known.
    """

    name: str
    value: float | str | bool
    kind: str
    source: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Bottleneck:
    """A link that holds the last flows of an exchange.

    Attributes:
        link: Its name.
        tier: Of the network.
        group: The parallel dimension that loads it.
        exchange: The kind of exchange.
        flows: Last flows that this link stops.
        cost: Seconds that the step would be shorter if this kind of exchange took no time on the
            wire; all links of the exchange share it.
        alike: Other links that stop last flows of the same exchange.
    """

    link: str
    tier: str
    group: str
    exchange: str
    flows: int
    cost: float
    alike: int


@dataclass(frozen=True)
class StepReport:
    """Time of a training step, where it goes, and what would help.

    Attributes:
        model, layout, gpu, profile, network: What was asked.
        placement: Its name. `routing`: its name and options.
        parts: Seconds by what they are spent on.
        flops: FLOPs of the model per step, recomputing left out.
        memory: Of the heaviest stage.
        phases: Exchanges with their routes and rates.
        bottlenecks: Links, the dearest exchange first.
        sensitivities: Percent of the step time per percent of capacity; None if not asked for.
        certificate: Largest relative violation of max-min fairness in any solve.
        gpus_idle: GPUs of the network that the layout leaves idle.
        assumptions: Every number behind the answer, with its evidence.
    """

    model: Model
    layout: Layout
    gpu: Gpu
    profile: Profile
    network: Network
    placement: str
    routing: dict[str, object]
    parts: Parts
    flops: float
    memory: Memory
    phases: tuple[Phase, ...]
    bottlenecks: tuple[Bottleneck, ...]
    sensitivities: Sensitivities | None
    certificate: float
    gpus_idle: int
    assumptions: tuple[Assumption, ...]

    @property
    def step_time(self) -> float:
        """Seconds of a step."""
        return float(self.parts.step)

    @property
    def gpus_used(self) -> int:
        """GPUs of the layout."""
        return self.layout.gpus

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of the whole job."""
        return self.layout.tokens / self.step_time

    @property
    def peak(self) -> float:
        """FLOP/s of one GPU that `mfu` is measured against."""
        return self.gpu.peak[self.layout.dtype].value

    @property
    def mfu(self) -> float:
        """Model FLOPs over what the used GPUs could do in the time, recomputing not counted."""
        return self.flops / (self.step_time * self.gpus_used * self.peak)

    def days(self, tokens: float) -> float:
        """Return the days that training on so many tokens takes."""
        return tokens / self.tokens_per_s / DAY

    def gpu_hours(self, tokens: float) -> float:
        """Return the hours of used GPUs that so many tokens take."""
        return self.days(tokens) * 24 * self.gpus_used

    @property
    def breakdown(self) -> dict[str, tuple[float, float]]:
        """Seconds by part: exposed, which add up to the step, and hidden behind computing."""
        hidden = {"tp": "hidden_tp", "cp": "hidden_cp", "dp": "hidden_dp"}
        values = self.parts._asdict()
        return {
            part: (float(values[part]), float(values[hidden[part]]) if part in hidden else 0.0)
            for part in values
            if not part.startswith("hidden_")
        }

    @property
    def times_a_step(self) -> dict[str, float]:
        """How often a GPU makes each kind of exchange in a step; "dp" counts bytes a parameter."""
        return times_a_step(self.layout, self.profile, self.model.layers)

    def seconds_of(self, group: str) -> tuple[float, float]:
        """Return exposed and hidden seconds of one parallel dimension."""
        return self.breakdown[group]

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for JSON, schema `fabric.run/1`, in bytes, seconds and byte/s."""
        labels = self.network.labels
        return {
            "schema": "fabric.run/1",
            "step_time_s": self.step_time,
            "tokens_per_s": self.tokens_per_s,
            "mfu": self.mfu,
            "peak_flops": self.peak,
            "model_flops": self.flops,
            "model": {"name": self.model.name, "parameters": self.model.parameters},
            "layout": str(self.layout),
            "gpus": {"type": self.gpu.name, "used": self.gpus_used, "idle": self.gpus_idle},
            "placement": self.placement,
            "routing": self.routing,
            "fabric": labels.source,
            "breakdown": [
                {"part": part, "exposed_s": exposed, "hidden_s": hidden}
                for part, (exposed, hidden) in self.breakdown.items()
            ],
            "memory": _memory(self.memory),
            "exchanges": [
                {
                    "name": phase.traffic.name,
                    "group": phase.traffic.group,
                    "does": phase.traffic.does,
                    "flows": phase.traffic.exchange.n_flows,
                    "times_a_step": self.times_a_step[phase.traffic.name],
                    "seconds": phase.seconds,
                    "latency_s": phase.latency,
                    "slowest_rate": float(phase.rates.min()),
                    "links_used": phase.links_used,
                }
                for phase in self.phases
            ],
            "links_present": int(self.network.n_links),
            "bottlenecks": [
                {
                    "link": b.link, "tier": b.tier, "group": b.group, "exchange": b.exchange,
                    "utilisation": 1.0, "flows": b.flows, "cost_s": b.cost, "alike": b.alike,
                }
                for b in self.bottlenecks
            ],
            "sensitivities": [] if self.sensitivities is None else self.sensitivities.to_dicts(),
            "certificate": self.certificate,
            "assumptions": [
                {"name": a.name, "value": a.value, "kind": a.kind, "source": a.source}
                | ({} if a.low is None else {"band": [a.low, a.high]})
                for a in self.assumptions
            ],
        }  # fmt: skip


def _memory(memory: Memory) -> dict[str, Any]:
    return {
        "verdict": memory.verdict,
        "heaviest_stage": memory.heaviest_stage,
        "margin": memory.margin,
        "capacity_bytes": memory.capacity,
        "total_bytes": memory.total,
        "components": dict(memory.components),
    }
