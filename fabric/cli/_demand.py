"""Who sends to whom, and how it is routed: what `fabric solve` asks for, checked before work."""

import fnmatch
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from fabric import readers, routing, traffic
from fabric._errors import InfeasibleError, ModelError, joined, some
from fabric._units import format_size
from fabric.cli._output import known
from fabric.cli._routing import call_options, draws, parsed
from fabric.cli._subject import DEMO, Subject
from fabric.cli._units import counted, listed
from fabric.network import Flows, Network, Routes
from fabric.traffic._hosts import MOST_FLOWS

AT_ONCE = "all flows run at once; sizes and starts do not enter the rates"
# Flows, routes, the solver's layout and its evidence, as measured on two tiers.
_BYTES_PER_ROW = 400
_LARGEST_SEED = 2**64 - 1


@dataclass(frozen=True)
class Demand:
    """Flows and where they come from.

    Attributes:
        flows: Those that take part.
        name: The pattern, or the file.
        pattern: The pattern, or None for a file.
        endpoints: How many send or receive.
        failed: Endpoints that would take part, had they not failed.
        left_out: Flows of a file that do not take part.
        assumptions: About these flows.
    """

    flows: Flows
    name: str
    pattern: str | None
    endpoints: int
    failed: int
    left_out: int
    assumptions: list[dict[str, Any]]

    @property
    def all_to_all(self) -> bool:
        """Whether every endpoint sends to every other, so that a rate per endpoint is defined."""
        return self.pattern == "all-to-all"


@dataclass(frozen=True)
class Rule:
    """A routing with its options; `given` are the flags that the command line had."""

    name: str
    seed: int
    queue_pairs: int
    why: str
    given: frozenset[str]
    tables: routing.ForwardingTables | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def draws(self) -> bool:
        """Whether the seed enters."""
        return draws(self.name)

    def kind(self, flag: str) -> str:
        """Return who chose what a flag says."""
        return "user" if flag in self.given else "assumed"

    def routes(self, network: Network, flows: Flows) -> Routes:
        """Return the routes of flows on a network."""
        if self.tables is not None:
            pairs = self.queue_pairs
            return routing.forwarding_tables(network, flows, self.tables, queue_pairs=pairs)
        options = call_options(self.name, self.options, self.seed, self.queue_pairs)
        return routing.ROUTINGS[self.name](network, flows, **options)


def choose(
    name: str | None,
    subject: Subject,
    seed: int | None,
    queue_pairs: int | None,
    tables: readers.TablesReading | None = None,
) -> Rule:
    """Return the routing asked for, or the usual one of this kind of fabric."""
    flags = {"routing": name, "seed": seed, "queue-pairs": queue_pairs}
    given = frozenset(flag for flag, value in flags.items() if value is not None)
    for flag, value, least, most in (
        ("seed", seed, 0, _LARGEST_SEED),
        ("queue-pairs", queue_pairs, 1, float("inf")),
    ):
        if value is not None and not least <= value <= most:
            upto = f" to {most:,}" if value > most else ""
            message = f"`--{flag} {value}` needs a whole number from {least}{upto}."
            raise ModelError(message)
    if tables is not None:
        why = f"{tables.entries:,} entries of {len(tables.tables.switches):,} switches"
        found = f"{why} in '{tables.source}'"
        return Rule(
            "tables", seed or 0, queue_pairs or 1, found, given | {"routing"}, tables.tables
        )
    asked, options = (None, {}) if name is None else parsed(name)
    usual = routing.usual(subject.network, asked)
    rule = Rule(usual.name, seed or 0, queue_pairs or 1, usual.why, given, options=options)
    call_options(rule.name, options, rule.seed, rule.queue_pairs)  # refused before any work
    return rule


def tables(
    name: str | None, path: Path | None, lids: Path | None, fabric: str, subject: Subject
) -> readers.TablesReading | None:
    """Return the forwarding tables that a command line asks for, None where it does not.

    Args:
        name: Of the routing, None where not given.
        path: Of the dump of the tables.
        lids: Of the file with the LIDs of the end nodes. Default: the fabric itself.
        fabric: As the command line names it.
        subject: The same, read.

    Raises:
        ModelError: If the flags contradict each other, the fabric has no ports, or a file is wrong.
    """
    if path is None and (name == "tables" or lids is not None):
        flag = "`--routing tables`" if name == "tables" else f"`--lids {lids}`"
        message = f"{flag} needs the dump of the forwarding tables. Add `--tables FILE`."
        raise ModelError(message)
    if path is None:
        return None
    if name not in (None, "tables"):
        message = f"`--tables {path}` says how to route, and so does `--routing {name}`. Leave one."
        raise ModelError(message)
    if subject.format != "ibnetdiscover":
        message = (
            f"`--tables {path}` needs a fabric whose ports and GUIDs are known: the output of "
            f"`ibnetdiscover`. '{subject.source}' is of format {subject.format}."
        )
        raise ModelError(message)
    try:
        return readers.lfts(path, lids or (DEMO if fabric == "demo" else Path(fabric)))
    except ModelError as error:
        raise ModelError(str(error).replace("`lids`:", "`--lids`:")) from None


def demand(
    network: Network,
    pattern: str | None,
    flows: Path | None,
    matrix: Path | None,
    columns: str | None,
    hosts: str | None,
    rule: Rule,
    failed: Sequence[str] = (),
    unit: str | None = None,
) -> Demand:
    """Return the flows that a command line asks for.

    Args:
        network: Between its endpoints.
        pattern: Of `--pattern`; so are `flows`, `matrix`, `columns` and `hosts`.
        flows: A file with a row per flow.
        matrix: A file of bare sizes.
        columns: What columns of `flows` mean.
        hosts: Which endpoints take part.
        rule: How flows are routed.
        failed: Nodes that the command line took out.
        unit: Of the sizes in `matrix`; bytes by default, for where sizes do not matter.

    Raises:
        ModelError: If not exactly one of pattern, flows and matrix is given, one is unknown or
            wrong, there are fewer than two endpoints, or the work would not fit in memory.
        InfeasibleError: If too few endpoints are alive, or no flow of a file takes part.
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
    if columns is not None and flows is None:
        message = "`--columns` names the columns of a `--flows` file, and there is none here."
        raise ModelError(message)
    if pattern is not None:
        known("--pattern", pattern, list(traffic.PATTERNS))
    asked = f"`--pattern {pattern}`" if pattern is not None else given[0]
    chosen, lost = _endpoints(network, hosts, asked, failed)
    if pattern is not None:
        count = len(chosen) * (len(chosen) - 1) if pattern == "all-to-all" else len(chosen)
        _afford(count, rule.queue_pairs, f"{pattern} among {len(chosen):,} endpoints", pattern)
        made = traffic.PATTERNS[pattern](chosen, float("nan"), rule.seed)
        said = f"`--hosts {hosts}`" if hosts else "every node that sends and receives"
        ends = entry("endpoints", len(chosen), "user" if hosts else "assumed", said)
        return Demand(made, pattern, pattern, len(chosen), len(lost), 0, [ends])
    file = flows or matrix or Path()
    whole = (
        _flow_file(flows, network, columns) if flows else traffic.read_matrix(file, network, unit)
    )
    made = _among(whole, chosen, file.name, hosts, failed, len(lost) > 0)
    _afford(made.n_flows, rule.queue_pairs, file.name)
    named, taken = (np.union1d(each.src, each.dst) for each in (whole, made))
    said = f"ends of the flows of '{file.name}'" + (f" within `--hosts {hosts}`" if hosts else "")
    assumptions = [entry("endpoints", len(taken), "user", said)]
    if np.any(np.isfinite(made.size)) or np.any(np.asarray(made.start) > 0):
        assumptions.append(entry("timing", "at once", "assumed", AT_ONCE))
    out, left_out = int(np.isin(named, lost).sum()), whole.n_flows - made.n_flows
    return Demand(made, file.name, None, len(taken), out, left_out, assumptions)


def entry(name: str, value: Any, kind: str, source: str) -> dict[str, Any]:
    """Return one assumption; `kind` is "user" or "assumed"."""
    return {"name": name, "value": value, "kind": kind, "source": source}


def as_flags(message: str, failed: list[str]) -> str:
    """Return a message of the routing with what to do about it on the command line.

    Examples:
        >>> as_flags("No way. Bring links back (`network.alive`), or leave them out.", ["spine0"])
        'No way. Take back `--failed spine0`, or leave endpoints out with `--hosts`.'
    """
    flags = listed([f"`--failed {name}`" for name in failed], 4)
    back = f"Take back {flags}" if failed else "Mend what the file says is not alive"
    steps = (
        (r"Bring links back \(`network\.alive`\).*", f"{back}, or leave"),
        (r"Add the missing links, or .*", "Plug the missing cables (`fabric topo`), or leave"),
        (r"Raise `max_parts`.*", "Use `--routing ecmp`, fewer `--failed`, or leave"),
    )
    for said, step in steps:
        if match := re.search(said, message):
            message = f"{message[: match.start()]}{step} endpoints out with `--hosts`."
    return message


def _flow_file(path: Path, network: Network, columns: str | None) -> Flows:
    renamed: dict[str, str | None] = {}
    for part in columns.split(",") if columns is not None else ():
        header, equals, field = part.rpartition("=")
        if not equals or not header.strip():
            message = (
                f"`--columns {columns}`: '{part}' is not of the form `header=field`, such as "
                f"`Volume=size_MB`; `header=` leaves a column out."
            )
            raise ModelError(message)
        renamed[header.strip()] = field.strip() or None
    try:
        return traffic.read_flows(path, network, columns=renamed)
    except ModelError as error:
        said = re.sub(
            r"`columns=\{'(.*?)': None\}`",
            r"`--columns '\1=FIELD'` or `--columns '\1='`",
            str(error),
        )
        raise ModelError(said.replace("`columns`:", "`--columns`:")) from None


def _among(
    flows: Flows,
    chosen: Int[np.ndarray, " hosts"],
    file: str,
    glob: str | None,
    failed: Sequence[str],
    any_lost: bool,
) -> Flows:
    """Return the flows with both ends among the endpoints that take part."""
    kept = np.isin(flows.src, chosen) & np.isin(flows.dst, chosen)
    if kept.all():
        return flows
    if not kept.any():
        steps = ["widen `--hosts`"] if glob is not None else []
        steps += [_mend(failed)] if any_lost else []
        said = ", or ".join(steps)
        message = (
            f"None of the {counted(flows.n_flows, 'flow')} of '{file}' has both ends among the "
            f"{len(chosen):,} endpoints that take part. {said[0].upper()}{said[1:]}."
        )
        raise InfeasibleError(message)
    fields = ("src", "dst", "size", "weight", "cap", "start")
    return Flows(**{name: np.asarray(getattr(flows, name))[kept] for name in fields})


def _mend(failed: Sequence[str]) -> str:
    """Return what to do about endpoints without a live link."""
    return "take back a `--failed`" if failed else "mend what the file says is not alive"


def _endpoints(
    network: Network, glob: str | None, asked: str, taken_out: Sequence[str]
) -> tuple[Int[np.ndarray, " hosts"], Int[np.ndarray, " failed"]]:
    """Return the endpoints that take part, and those that would, had they not failed."""
    labels = network.labels
    nodes = network.hosts if glob is None else _matching(network, network.hosts, glob)
    if len(nodes) < 2:
        message = (
            f"{asked} needs two endpoints, but the fabric has {len(nodes)}. Give a fabric with "
            f"more hosts."
        )
        raise ModelError(message)
    live = np.asarray(network.alive)
    wired = np.zeros(labels.n_nodes, bool)
    failed = np.zeros(labels.n_nodes, bool)
    wired[labels.src[live]] = True
    failed[labels.src[~live]] = True
    # What was never wired stays in: routing names it as unreachable.
    lost = failed[nodes] & ~wired[nodes]
    if len(nodes) - lost.sum() < 2:
        step = _mend(taken_out)
        message = (
            f"{asked} needs two endpoints, but {len(nodes) - lost.sum()} of {len(nodes):,} are "
            f"alive. {step[0].upper()}{step[1:]}."
        )
        raise InfeasibleError(message)
    return nodes[~lost], nodes[lost]


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


def _afford(n_flows: int, queue_pairs: int, what: str, pattern: str | None = None) -> None:
    """Raise before work that would not fit in memory."""
    rows = n_flows * queue_pairs
    need, free = rows * _BYTES_PER_ROW, _free_memory()
    if need > free or rows > MOST_FLOWS:
        limit = f"{format_size(free)} is free" if need > free else f"{MOST_FLOWS:,} are the most"
        most = int(min(free // _BYTES_PER_ROW, MOST_FLOWS)) // max(n_flows, 1)
        if queue_pairs > 1 and most >= 1:
            step = f"Lower `--queue-pairs {queue_pairs}` to {most:,} or less."
        else:
            steps = ["narrow the endpoints with `--hosts`"]
            steps += ["use `--pattern permutation`"] if pattern == "all-to-all" else []
            steps += ["lower `--queue-pairs`"] if queue_pairs > 1 else []
            step = f"N{joined(steps)[1:]}."
        message = (
            f"{what} is {rows:,} flows and queue pairs, about {format_size(need)} of memory, but "
            f"{limit}. {step}"
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
