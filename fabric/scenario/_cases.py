"""`Answer`: the step of a scenario, of its cases, and what moved between them and why."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool

from fabric._errors import FabricError, InfeasibleError
from fabric.network import Network, Routes
from fabric.scenario._build import Built
from fabric.scenario._live import LeftOut
from fabric.training import StepReport, step

SPRAY = (
    "spray splits equally over live cables whatever lies behind them, so a pair of switches that "
    "lost only some of its cables costs more than one that lost all; adaptive hardware does better"
)
FEW_TOKENS = 1e6
"""Below, a suffix was probably forgotten."""


@dataclass(frozen=True)
class Crowd:
    """A node at which flows share fewer links than there are without failures.

    Attributes:
        exchange: The kind of exchange.
        node: Its name. `kind`: of it. `way`: "leave" or "enter".
        flows: Flows that cross these links.
        tier: Of the links. `links`: live ones. `whole`: without failures.
    """

    exchange: str
    node: str
    kind: str
    way: str
    flows: int
    tier: str
    links: int
    whole: int


@dataclass(frozen=True, eq=False)
class Case:
    """A scenario with some values replaced, and its step.

    Attributes:
        name: Of the case. `against`: the case it is compared with.
        settings: Values by dotted path.
        report: Its step.
        crowd: Where the exchange that changed most is short of links, if it is.
        left_out: Servers that cannot be reached.
        lame: Whether cables between switches are missing, dead or slow.
    """

    name: str
    against: str
    settings: dict[str, Any]
    report: StepReport
    crowd: Crowd | None
    left_out: tuple[LeftOut, ...] = ()
    lame: bool = False


@dataclass(frozen=True, eq=False)
class Answer:
    """What `fabric run` tells.

    Attributes:
        name: Of the scenario. `data`: all of it, with what its fabric and model filled in.
        built: Its objects.
        report: Its step.
        cases: Those of the scenario.
        uniform: The step with every leaf-spine cable of the uniform design; None if not asked for.
    """

    BASE: ClassVar[str] = "base"

    name: str
    data: dict[str, Any]
    built: Built
    report: StepReport
    cases: tuple[Case, ...]
    uniform: StepReport | None

    def case(self, name: str) -> StepReport:
        """Return the step of a case by its name, or that of the scenario itself, "base"."""
        return {self.BASE: self.report, **{case.name: case.report for case in self.cases}}[name]

    @property
    def notes(self) -> list[str]:
        """Sentences that a reader of the numbers has to know."""
        from fabric.scenario._schema import tokens_of

        notes = []
        told = [(self.report, _lame(self.built)), *((c.report, c.lame) for c in self.cases)]
        if any(lame and report.routing["name"] == "spray" for report, lame in told):
            notes.append(SPRAY)
        tokens = self.data["run"].get("tokens")
        if tokens is not None and tokens_of(tokens) < FEW_TOKENS:
            notes.append(
                f"`run.tokens: {tokens}` is less than a step or a moment of training; tokens are "
                f"counted one by one, and 15T is 15e12 of them."
            )
        return notes

    @property
    def certificate(self) -> float:
        """Largest relative violation of max-min fairness in any solve."""
        others = [case.report for case in self.cases] + [self.uniform] * (self.uniform is not None)
        return max(report.certificate for report in (self.report, *others) if report is not None)

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for JSON, schema `fabric.run/1`."""
        from fabric.scenario._schema import tokens_of

        report, ground = self.report, self.built.ground
        result = report.as_dict() | {"name": self.name, "links_used": links_used(report)}
        tokens = self.data["run"].get("tokens")
        if tokens is not None:
            count = tokens_of(tokens)
            result["training"] = {
                "tokens": count, "days": report.days(count), "gpu_hours": report.gpu_hours(count),
            }  # fmt: skip
        if any((out := self.data["fabric"]["failed"]).values()):
            result["failed"] = out
        result["left_out"] = [_row(one) for one in self.built.left_out]
        result["notes"] = self.notes
        if ground.found:
            result["read"] = ground.found
        result["assumptions"] = [
            {"name": name, "value": value, "kind": kind, "source": source}
            for name, value, kind, source in ground.assumptions
        ] + result["assumptions"]
        if self.uniform is not None and ground.design is not None:
            result["missing_cables"] = {
                "have": ground.design.have, "design": ground.design.cables,
                "missing": ground.design.missing,
                **_moved(self.uniform, report, "with_all", "cost"),
            }  # fmt: skip
        if self.cases:
            result["cases"] = [self._case(case) for case in self.cases]
        return result | {"certificate": self.certificate, "scenario": self.data}

    def _case(self, case: Case) -> dict[str, Any]:
        own = case.report.as_dict()
        kept = (
            "step_time_s", "tokens_per_s", "mfu", "placement", "routing", "breakdown", "exchanges",
            "bottlenecks", "certificate",
        )  # fmt: skip
        crowd = None if case.crowd is None else vars(case.crowd)
        return {
            "name": case.name, "against": case.against, "set": case.settings,
            **{key: own[key] for key in kept},
            "change": changed(self.case(case.against), case.report), "crowd": crowd,
            "left_out": [_row(one) for one in case.left_out],
        }  # fmt: skip


def _row(one: LeftOut) -> dict[str, Any]:
    return {"server": one.name, "why": one.why, "gpus": len(one.gpus)}


def _moved(before: StepReport, after: StepReport, first: str, second: str) -> dict[str, Any]:
    change = changed(before, after)
    return {f"{first}_step_time_s": before.step_time, f"{second}_s": change["step_time_s"],
            f"{second}_share": change["step_time"], "change": change}  # fmt: skip


def changed(before: StepReport, after: StepReport) -> dict[str, Any]:
    """Return what differs between two steps: seconds, and shares of what they were before."""
    share = lambda now, then: now / then - 1 if then else None
    now, then = after.breakdown, before.breakdown
    moved = {part: [a - b for a, b in zip(now[part], then[part], strict=True)] for part in then}
    was = {phase.traffic.name: phase.seconds for phase in before.phases}
    return {
        "step_time_s": after.step_time - before.step_time,
        "step_time": share(after.step_time, before.step_time),
        "parts": [
            {"part": part, "exposed_s": exposed, "hidden_s": hidden}
            for part, (exposed, hidden) in moved.items()
            if exposed or hidden
        ],
        "exchanges": [
            {
                "name": phase.traffic.name,
                "before_s": was[phase.traffic.name],
                "after_s": phase.seconds,
                "share": share(phase.seconds, was[phase.traffic.name]),
            }
            for phase in after.phases
            if phase.traffic.name in was
        ],
    }


@contextmanager
def told_of(case: str) -> Iterator[None]:
    """Name the case in an error that is raised inside."""
    try:
        yield
    except FabricError as error:
        message = f"case '{case}': {error}"
        raise type(error)(message) from None


def stepped(built: Built, *, by: str | None, allow_infeasible: bool) -> StepReport:
    """Return the step of what a scenario asks for."""
    return _step(built, built.network, by, allow_infeasible)


def _step(built: Built, network: Network, by: str | None, allow_infeasible: bool) -> StepReport:
    try:
        return step(
            network, built.model, built.layout, built.placement, built.routing, built.profile,
            built.seed, gpu=built.gpu, allocation=built.allocation, by=by,
            allow_infeasible=allow_infeasible,
        )  # fmt: skip
    except InfeasibleError as error:
        fix = "Take back `fabric.failed`, or place the job elsewhere (`run.placement`)."
        message = re.sub(r"Bring links back \(`network\.alive`\).*", fix, str(error))
        raise InfeasibleError(message) from None


def answered(
    name: str,
    data: dict[str, Any],
    built: Built,
    cases: list[tuple[dict[str, Any], Built]],
    allow_infeasible: bool,
) -> Answer:
    """Return the steps of a scenario and of its cases.

    Args:
        name: Of the scenario.
        data: All of it, with what its fabric and model filled in.
        built: Its objects.
        cases: Each case as written, and its objects.
        allow_infeasible: Answer also where a model does not fit in memory.
    """
    report = stepped(built, by=built.by, allow_infeasible=allow_infeasible)
    uniform = None if built.uniform is None else _step(built, built.uniform, None, allow_infeasible)
    reports = {Answer.BASE: report}
    for case, objects in cases:
        with told_of(case["name"]):
            reports[case["name"]] = stepped(objects, by=None, allow_infeasible=allow_infeasible)
    made = []
    for case, objects in cases:
        own, against = reports[case["name"]], case.get("against", Answer.BASE)
        crowd = crowded(reports[against], own, objects.whole)
        out, lame = objects.left_out, _lame(objects)
        made.append(Case(case["name"], against, case["set"], own, crowd, out, lame))
    return Answer(name, data, built, report, tuple(made), uniform)


def _lame(built: Built) -> bool:
    """Return whether cables between switches are missing in the uniform design, dead or slow."""
    network, whole, labels = built.network, built.whole, built.network.labels
    switch = np.array(labels.forwards)
    if "server" in labels.tags:
        switch &= labels.tags["server"] < 0
    worse = np.asarray(network.alive) < np.asarray(whole.alive)
    worse |= np.asarray(network.capacity) < np.asarray(whole.capacity)
    between = switch[labels.src] & switch[labels.dst]
    return built.ground.uniform is not None or bool((worse & between).any())


def crowded(before: StepReport, after: StepReport, whole: Network) -> Crowd | None:
    """Return where the exchange that changed most is short of links, or None.

    Args:
        before: What it is compared with.
        after: The step to explain.
        whole: Its fabric without failures.
    """
    took = {phase.traffic.name: phase.seconds for phase in before.phases}
    phases = [phase for phase in after.phases if phase.traffic.name in took]
    if not phases:
        return None
    phase = max(phases, key=lambda p: abs(p.seconds / took[p.traffic.name] - 1))
    rows = np.isin(np.asarray(phase.routes.flow_of), phase.slowest)
    stops = np.asarray(phase.solution.bottleneck)[rows]
    if not len(stops := stops[stops >= 0]):
        return None
    link = int(np.bincount(stops).argmax())
    labels, alive = after.network.labels, np.asarray(after.network.alive)
    tier = labels.tier_of == labels.tier_of[link]
    for way, ends in (("leave", labels.src), ("enter", labels.dst)):
        here = tier & (ends == ends[link])
        live, present = int((here & alive).sum()), int((here & np.asarray(whole.alive)).sum())
        if live < present:
            flows = int(_flows_over(phase.routes, here).sum())
            node = int(ends[link])
            name, kind = labels.node_name(node), labels.kinds[int(labels.kind_of[node])]
            said = labels.tiers[int(labels.tier_of[link])]
            return Crowd(phase.traffic.name, name, kind, way, flows, said, live, present)
    return None


def _bundles_over(
    routes: Routes, links: Bool[np.ndarray, " links"]
) -> Bool[np.ndarray, " bundles"]:
    """Return which bundles put load on some of these links."""
    if not routes.n_parts:
        return links
    over = np.zeros(routes.n_bundles, bool)
    hit = links[np.asarray(routes.part_link)] & (np.asarray(routes.part_use) > 0)
    over[np.asarray(routes.part_bundle)[hit]] = True
    return over


def _flows_over(routes: Routes, links: Bool[np.ndarray, " links"]) -> Bool[np.ndarray, " flows"]:
    """Return which flows cross some of these links."""
    over = _bundles_over(routes, links)[np.asarray(routes.hop_bundle)]
    over &= np.asarray(routes.hop_use) > 0
    found = np.zeros(routes.n_pairs, bool)
    found[np.asarray(routes.flow_of)[np.asarray(routes.hop_flow)[over]]] = True
    return found


def links_used(report: StepReport) -> int:
    """Return how many links some exchange crosses."""
    used = np.zeros(report.network.n_links, bool)
    for phase in report.phases:
        routes = phase.routes
        bundles = np.zeros(max(routes.n_bundles, report.network.n_links), bool)
        bundles[np.asarray(routes.hop_bundle)[np.asarray(routes.hop_use) > 0]] = True
        if not routes.n_parts:
            used |= bundles[: len(used)]
            continue
        hit = bundles[np.asarray(routes.part_bundle)] & (np.asarray(routes.part_use) > 0)
        used[np.asarray(routes.part_link)[hit]] = True
    return int(used.sum())
