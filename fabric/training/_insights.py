"""What a step time depends on: bottleneck links, sensitivities, and the assumptions behind it."""

from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from fabric.hardware import Gpu, Nic, Profile, Server, Switch, evidence, names, nic, server, switch
from fabric.network import Network
from fabric.solvers import Completion, Sensitivities, Sensitivity, directional, sensitivities
from fabric.training._assemble import Maximum, Parts, Scalar, Wire, assemble
from fabric.training._compute import Compute
from fabric.training._layout import Layout
from fabric.training._phases import Phase
from fabric.training._report import Assumption, Bottleneck

_FINEST = 12
_HALVINGS = 30
_FAR = 10.0
"""Share of capacity beyond which the reach of an answer is called unlimited."""

MOST_LINKS = 3
"""Bottleneck links that are named per kind of exchange."""


class StepTime:
    """The time of a step as a function of the seconds that each exchange is on the wire."""

    def __init__(
        self,
        work: Compute,
        layout: Layout,
        profile: Profile,
        phases: Sequence[Phase],
        layers: int,
        parameters: float,
        nodes: int,
    ):
        self.names = [phase.traffic.name for phase in phases]
        self.transfer = np.array([phase.transfer for phase in phases])
        self._latency = np.array([phase.latency for phase in phases])
        self._parts = lambda wire, maximum: assemble(
            work, wire, layout, profile, layers=layers, parameters=parameters, nodes=nodes,
            maximum=maximum,
        )  # fmt: skip

    def parts(
        self,
        transfer: Float[np.ndarray, " phases"] | jax.Array | None = None,
        maximum: Maximum = jnp.maximum,
    ) -> Parts:
        """Return where the time goes, for other seconds on the wire if given."""
        seconds = (self.transfer if transfer is None else transfer) + self._latency
        given = {name: seconds[i] for i, name in enumerate(self.names)}
        if "dp" in given:  # carries several widths, each at the same latency
            i = self.names.index("dp")
            given |= {"dp": seconds[i] - self._latency[i], "dp_latency": self._latency[i]}
        wire = Wire(**{name: given.get(name, 0.0) for name in Wire._fields})
        return self._parts(wire, maximum)

    def seconds(self, transfer: Float[np.ndarray, " phases"] | jax.Array) -> jax.Array:
        """Return the step time."""
        return jnp.asarray(self.parts(transfer).step)

    def along(self, ways: Float[np.ndarray, "ways phases"]) -> Float[np.ndarray, " ways"]:
        """Return the one-sided derivatives of the step time."""
        x = jnp.asarray(self.transfer)
        way = lambda d: directional.jvp(self.seconds, (x,), (d,))[1]
        return np.asarray(jax.vmap(way)(jnp.asarray(ways))) + 0.0

    def sides(self, transfer: Float[np.ndarray, " phases"]) -> tuple[bool, ...]:
        """Return which side of every `maximum` of the step is the larger one."""
        sides: list[bool] = []

        def noted(a: Scalar, b: Scalar) -> Scalar:
            sides.append(float(a) > float(b))
            return max(float(a), float(b))

        self.parts(transfer, noted)
        return tuple(sides)

    def reach(self, ways: Float[np.ndarray, " phases"], most: float) -> float:
        """Return the share of capacity up to which no overlap turns.

        Args:
            ways: Relative change of the seconds on the wire per share of capacity: rates move
                along a line, so seconds as 1 / (1 - way x share).
            most: Share of capacity that is tried, at most.
        """

        def at(share: float) -> tuple[bool, ...]:
            return self.sides(self.transfer / (1 - ways * share))

        here = at(min(most, 1.0) * 1e-9)
        tried = [most * 2.0**-k for k in range(_FINEST, -1, -1)]
        low = 0.0
        for share in tried:
            if at(share) != here:
                break
            low = share
        else:
            return most
        high = share
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if at(middle) == here else (low, middle)
        return low


def bottlenecks(network: Network, phases: Sequence[Phase], total: StepTime) -> list[Bottleneck]:
    """Return the links that stop the last flows of each kind of exchange, dearest kind first."""
    whole = float(total.seconds(total.transfer))
    found = []
    for i, phase in enumerate(phases):
        free = total.transfer.copy()
        free[i] = 0.0
        cost = whole - float(total.seconds(free))
        flow_of = np.asarray(phase.routes.flow_of)
        rows = np.flatnonzero(np.isin(flow_of, phase.slowest))
        links, flows = np.unique(np.asarray(phase.solution.bottleneck)[rows], return_counts=True)
        links, flows = links[links >= 0], flows[links >= 0]
        order = np.lexsort((links, -flows))
        found += [
            Bottleneck(
                link=network.link_name(int(links[j])),
                tier=network.labels.tiers[int(network.labels.tier_of[links[j]])],
                group=phase.traffic.group,
                exchange=phase.traffic.name,
                flows=int(flows[j]),
                cost=cost,
                alike=len(links) - 1,
            )
            for j in order[:MOST_LINKS]
        ]
    return sorted(found, key=lambda b: -b.cost)


def step_sensitivities(
    network: Network, phases: Sequence[Phase], total: StepTime, by: str
) -> Sensitivities:
    """Return what 1 % of the capacity of each group of links does to the step time."""
    keys: dict[str, int] = {}
    rows: list[dict[str, Sensitivity]] = []
    left_out: list[str] = []
    for phase in phases:
        table = sensitivities(network, phase.routes, Completion(phase.traffic.size), by)
        rows.append({row.key: row for row in table})
        left_out += [f"{phase.traffic.name}: {why}" for why in table.left_out]
        keys |= {row.key: row.links for row in table}
    if not keys:
        return Sensitivities(by, "step time", float(total.seconds(total.transfer)), (), ())
    # Seconds on the wire per percent of capacity more, then per percent less.
    pick = lambda field, sign: np.array([
        [sign * getattr(r[key], field) if key in r else 0.0 for r in rows] for key in keys
    ]) * total.transfer  # fmt: skip
    more_ways, less_ways = pick("gain_per_plus_1pct", 1.0), pick("loss_per_minus_1pct", -1.0)
    more, less = total.along(more_ways), total.along(less_ways)
    whole = float(total.seconds(total.transfer))

    def reach(i: int, key: str, sign: float) -> float:
        """Return percent of capacity up to which no bottleneck moves and no overlap turns."""
        field = "exact_within_plus_pct" if sign > 0 else "exact_within_minus_pct"
        within = min(getattr(r[key], field) for r in rows if key in r) / 100
        ways = (more_ways if sign > 0 else less_ways)[i] / total.transfer
        most = min(within, _FAR if sign > 0 else 0.999)
        found = total.reach(ways, most) if ways.any() else most
        return 100 * (within if found == most else found)

    out = [
        Sensitivity(
            key=key,
            links=links,
            gain_per_plus_1pct=float(more[i]) / whole,
            loss_per_minus_1pct=float(0.0 - less[i]) / whole + 0.0,
            exact_within_plus_pct=reach(i, key, 1.0),
            exact_within_minus_pct=reach(i, key, -1.0),
        )
        for i, (key, links) in enumerate(keys.items())
    ]
    # A step gets shorter: the most helpful first, then those that cost most when they shrink.
    out.sort(key=lambda row: (round(row.gain_per_plus_1pct, 9), round(row.loss_per_minus_1pct, 9)))
    return Sensitivities(by, "step time", whole, tuple(out), tuple(left_out))


def assumptions(
    network: Network, layout: Layout, gpu: Gpu, profile: Profile, rule: Mapping[str, object]
) -> list[Assumption]:
    """Return every number and setting behind the answer that is not part of the question."""
    labels, about = network.labels, network.labels.about
    name, kind, source = (str(rule[key]) for key in ("name", "kind", "source"))
    out = [Assumption("routing", name, kind, source)]
    if not labels.is_kind("gpu").any():
        alone = "every endpoint is one GPU, alone in its server: the network has no servers inside"
        out.append(Assumption("servers", "none", "assumed", alone))
    if (own := about.get("gpu")) and own != gpu.name:
        out.append(Assumption("gpu", gpu.name, "user", f"asked for; the servers have {own}"))
    if profile.gpu != gpu.name:
        other = f"asked for; it is of {profile.gpu}, not of {gpu.name}"
        out.append(Assumption("profile", profile.name, "user", other))
    if "evidence" in about:
        out.append(Assumption("fabric", labels.source, "assumed", about["evidence"]))
    out += [Assumption(f"layout.{word}", word, "preset", "filled in") for word in layout.filled]
    records = [("gpu", gpu), ("profile", profile), *_parts(about)]
    for prefix, record in records:
        out += [
            Assumption(f"{prefix}.{name}", e.value, e.kind, e.source, e.low, e.high)
            for name, e in evidence(record)
            if name != "ports_per_module"  # a matter of the bill
        ]
    return out + [
        Assumption(f"profile.{name}", value, profile.kind, profile.source)
        for name, value in profile.settings().items()
    ]


def _parts(about: Mapping[str, str]) -> Iterator[tuple[str, Server | Nic | Switch]]:
    """Yield what the servers and the fabric are built of, where the catalogue has it."""
    kinds = (("server", "servers", server), ("nic", "nics", nic), ("switch", "switches", switch))
    for key, kind, record in kinds:
        if (name := about.get(key)) in names(kind):
            yield key, record(str(name))
