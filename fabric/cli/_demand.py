"""Who sends to whom, and how it is routed: what `fabric solve` asks for, checked before work."""

import fnmatch
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from fabric import routing, traffic
from fabric._errors import InfeasibleError, ModelError, some
from fabric._units import format_size
from fabric.cli._output import known
from fabric.cli._subject import Subject
from fabric.network import Flows, Network, Routes

INFINIBAND = ("ibnetdiscover",)
# Flows, routes, the solver's layout and its evidence, as measured on two tiers.
_BYTES_PER_ROW = 400


@dataclass(frozen=True)
class Demand:
    """Flows and what was asked for: `name` is the pattern, or the file."""

    flows: Flows
    name: str
    endpoints: int
    left_out: int
    assumptions: list[dict[str, Any]]

    @property
    def all_to_all(self) -> bool:
        """Whether every endpoint sends to every other, so that a rate per endpoint is defined."""
        return self.name == "all-to-all"


@dataclass(frozen=True)
class Rule:
    """A routing with its options."""

    name: str
    seed: int
    queue_pairs: int
    why: str
    kind: str

    def routes(self, network: Network, flows: Flows) -> Routes:
        """Return the routes of flows on a network."""
        options: dict[str, Any] = {"queue_pairs": self.queue_pairs}
        if self.name == "ecmp":
            options["seed"] = self.seed
        return routing.ROUTINGS[self.name](network, flows, **options)


def choose(name: str | None, subject: Subject, seed: int, queue_pairs: int) -> Rule:
    """Return the routing asked for, or the usual one of this kind of fabric."""
    if queue_pairs < 1:
        message = f"`--queue-pairs {queue_pairs}` needs a whole number from 1."
        raise ModelError(message)
    if seed < 0:
        message = f"`--seed {seed}` needs a whole number from 0."
        raise ModelError(message)
    if name is not None:
        known("--routing", name, list(routing.ROUTINGS))
        return Rule(name, seed, queue_pairs, "as asked for", "user")
    if subject.format in INFINIBAND:
        why = "InfiniBand adaptive routing, taken as ideal spray"
        return Rule("spray", seed, queue_pairs, why, "assumed")
    return Rule("ecmp", seed, queue_pairs, "Ethernet hashing, one path per flow", "assumed")


def demand(
    network: Network,
    pattern: str | None,
    flows: Path | None,
    matrix: Path | None,
    hosts: str | None,
    seed: int,
    queue_pairs: int,
) -> Demand:
    """Return the flows that a command line asks for.

    Raises:
        ModelError: If not exactly one of pattern, flows and matrix is given, one is unknown or
            wrong, fewer than two endpoints are left, or the work would not fit in memory.
    """
    given = [
        f"`{flag}`"
        for flag, value in (("--pattern", pattern), ("--flows", flows), ("--matrix", matrix))
        if value is not None
    ]
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        message = (
            f"Give exactly one of `--pattern`, `--flows` and `--matrix`; found {found}. Try "
            f"`--pattern all-to-all`."
        )
        raise ModelError(message)
    if pattern is not None:
        known("--pattern", pattern, list(traffic.PATTERNS))
    if flows is not None and hosts is not None:
        message = "`--hosts` narrows a pattern or a matrix, but a flow file names its hosts itself."
        raise ModelError(message)
    chosen, left_out, assumptions = _endpoints(network, hosts)
    if flows is not None:
        made, name = traffic.read_flows(flows, network), flows.name
    elif matrix is not None:
        whole = hosts is None and left_out == 0
        made, name = traffic.read_matrix(matrix, network if whole else chosen), matrix.name
    else:
        name = pattern or ""
        count = len(chosen) * (len(chosen) - 1) if name == "all-to-all" else len(chosen)
        _afford(count * queue_pairs, f"{name} among {len(chosen):,} endpoints")
        made = traffic.PATTERNS[name](chosen, float("nan"), seed)
    _afford(made.n_flows * queue_pairs, name)
    ends = len(chosen) if pattern else len(np.union1d(made.src, made.dst))
    return Demand(made, name, ends, left_out if pattern else 0, assumptions)


def _endpoints(
    network: Network, glob: str | None
) -> tuple[Int[np.ndarray, " hosts"], int, list[dict[str, Any]]]:
    """Return the endpoints that take part, and how many failed ones do not."""
    labels = network.labels
    nodes = network.hosts
    said = "every node that sends and receives"
    if glob is not None:
        nodes, said = _matching(network, nodes, glob), f"`--hosts {glob}`"
    live = np.asarray(network.alive)
    wired = np.zeros(labels.n_nodes, bool)
    failed = np.zeros(labels.n_nodes, bool)
    wired[labels.src[live]] = True
    failed[labels.src[~live]] = True
    # What was never wired stays in: routing names it as unreachable.
    lost = failed[nodes] & ~wired[nodes]
    kept = nodes[~lost]
    if len(kept) < 2:
        message = f"{len(kept)} of {len(nodes):,} endpoints are alive; two are needed."
        raise InfeasibleError(message)
    kind = "user" if glob is not None else "assumed"
    entry = {"name": "endpoints", "value": len(kept), "kind": kind, "source": said}
    return kept, int(lost.sum()), [entry]


def _matching(
    network: Network, nodes: Int[np.ndarray, " hosts"], glob: str
) -> Int[np.ndarray, " matching"]:
    labels = network.labels
    host = labels.tags.get("host")
    names = [labels.names[int(node)] for node in nodes]
    owners = [str(host[node]) for node in nodes] if host is not None else names
    match = lambda text: fnmatch.fnmatchcase(text, glob)
    hit = np.array([match(n) or match(o) for n, o in zip(names, owners, strict=True)], bool)
    if hit.sum() < 2:
        by = "name or host name" if host is not None else "name"
        message = (
            f"`--hosts {glob}` matches {int(hit.sum())} of {len(nodes):,} endpoints by {by}; two "
            f"are needed. Names here look like {some(names[:: max(1, len(names) // 3)][:3])}; `*` "
            f"stands for anything."
        )
        raise ModelError(message)
    return nodes[hit]


def _afford(rows: int, what: str) -> None:
    """Raise before work that would not fit in memory."""
    need, free = rows * _BYTES_PER_ROW, _free_memory()
    if need > free:
        message = (
            f"{what} is {rows:,} flows and queue pairs, about {format_size(need)} of memory, but "
            f"{format_size(free)} is free. Narrow the endpoints with `--hosts`, lower "
            f"`--queue-pairs`, or use `--pattern permutation`."
        )
        raise ModelError(message)


def _free_memory() -> float:
    """Return bytes that a new process could take, or 8 GiB where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (OSError, ValueError, AttributeError):
        return 8.0 * 2**30
