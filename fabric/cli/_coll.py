"""`fabric coll`: how long a collective takes, in the columns of nccl-tests."""

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fabric._errors import ModelError
from fabric._units import parse_size
from fabric.cli import _demand
from fabric.cli._output import FORMATS, Format, Output, check_output, emit, known, table
from fabric.cli._subject import (
    Attribute,
    Capacity,
    Fabric,
    HostPattern,
    LatencyUnit,
    Subject,
    Unit,
    load,
)
from fabric.cli._units import counted
from fabric.network import Placement

if TYPE_CHECKING:
    from fabric.collectives import CollectiveReport

_ELEMENT = 4
"""Bytes of a float, the type of nccl-tests unless it is told another."""
_MOST_SIZES = 10_000
_COLUMNS = ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "algorithm"]
_UNITS = ["(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "/protocol"]
_IEC = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def coll(
    fabric: Fabric,
    operation: Annotated[
        str,
        typer.Argument(
            help="all_reduce, reduce_scatter, all_gather, broadcast, all_to_all or send_recv."
        ),
    ],
    sizes: Annotated[
        str,
        typer.Option(
            "--sizes",
            metavar="FIRST:LAST:FACTOR",
            help="Sizes of messages as nccl-tests count them, or a list such as 8MiB,1GiB.",
        ),
    ] = "1MiB:16GiB:2",
    ranks: Annotated[
        int | None, typer.Option("--ranks", help="The first so many endpoints. Default: all.")
    ] = None,
    algorithm: Annotated[
        str, typer.Option("--algorithm", help="auto, or one by name.", metavar="NAME")
    ] = "auto",
    routing: Annotated[
        str | None,
        typer.Option(
            "--routing",
            metavar="NAME",
            help="A rule of `fabric list routing`. Default: the usual one of the fabric.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="Software stack, of `fabric list`."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of ECMP hashes; default 0.")] = None,
    format: Format = "text",
    output: Output = None,
    capacity: Capacity = None,
    unit: Unit = None,
    attribute: Attribute = None,
    latency_unit: LatencyUnit = None,
    host_pattern: HostPattern = None,
) -> None:
    """Say how long a collective takes for every size, laid out as nccl-tests do."""
    from fabric import collectives, hardware

    known("--format", format, FORMATS)
    name = known("OPERATION", operation.replace("-", "_"), collectives.OPERATIONS)
    check_output(output)
    asked = parsed_sizes(sizes)
    subject = load(
        fabric, default_capacity=capacity, unit=unit, capacity=attribute,
        latency_unit=latency_unit, host_pattern=host_pattern,
    )  # fmt: skip
    network = subject.network
    rule = _demand.choose(routing, subject, seed, None)
    if rule.options:
        message = f"`--routing {routing}` of a collective takes no options. Use `{rule.name}`."
        raise ModelError(message)
    gpu = network.labels.about.get("gpu")
    stack = None
    if profile is not None:
        stack = hardware.profile(profile)
    elif gpu is not None:
        stack = hardware.default_profile(gpu)
    nodes = None if ranks is None else Placement.first(network, ranks).endpoint_of
    report = collectives.collective(
        name, network, nodes, asked, algorithm=algorithm, profile=stack, seed=rule.seed,
        routing=None if routing is None else rule.name,
    )  # fmt: skip
    answer = _answer(subject, report)
    answer["profile"] = None if stack is None else stack.name
    if stack is not None and gpu != stack.gpu:
        said = f"of {stack.gpu}; the GPUs of this fabric are {gpu or 'not known'}"
        answer["assumptions"].append(_demand.entry("profile", stack.name, "assumed", said))
    emit(answer, _text, format, output)


def parsed_sizes(text: str) -> list[float]:
    """Return the sizes that `--sizes` names, in bytes.

    Raises:
        ModelError: If it is no list of sizes and no range, or the range does not end.

    Examples:
        >>> parsed_sizes("1KiB:8KiB:2"), parsed_sizes("8B,1MiB")
        ([1024.0, 2048.0, 4096.0, 8192.0], [8.0, 1048576.0])
    """
    option = f"--sizes {text}"
    if ":" not in text:
        return [parse_size(size, "--sizes") for size in text.split(",")]
    first, last, *rest = text.split(":")
    if len(rest) > 1 or "," in text:
        message = f"`{option}` needs FIRST:LAST or FIRST:LAST:FACTOR, such as '1MiB:16GiB:2'."
        raise ModelError(message)
    low, high = parse_size(first, "--sizes"), parse_size(last, "--sizes")
    factor = _factor(option, rest[0] if rest else "2")
    if not 0 < low <= high:
        message = f"`{option}` needs a first size above 0 and not above the last one."
        raise ModelError(message)
    count = int(np.floor(np.log(high / low) / np.log(factor) * (1 + 1e-12))) + 1
    if count > _MOST_SIZES:
        message = f"`{option}` names {count:,} sizes; at most {_MOST_SIZES:,}. Raise the factor."
        raise ModelError(message)
    return [low * factor**i for i in range(count)]


def _factor(option: str, text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 < factor < np.inf:
        message = f"`{option}` needs a factor of more than 1, without a unit, but got {text!r}."
        raise ModelError(message)
    return factor


def _answer(subject: Subject, report: "CollectiveReport") -> dict[str, Any]:
    rows = [
        {
            "size": size, "time": time, "algbw": algbw, "busbw": busbw, "algorithm": algorithm,
            "protocol": protocol,
            "alternatives": {name: by[i] for name, by in report.alternatives.items()},
        }
        for i, (size, time, algbw, busbw, algorithm, protocol) in enumerate(
            zip(report.size, report.time, report.algbw, report.busbw, report.algorithm,
                report.protocol, strict=True)
        )
    ]  # fmt: skip
    return {
        "schema": "fabric.coll/1",
        "fabric": {"source": subject.source, "format": subject.format},
        "operation": report.operation,
        "ranks": report.n_ranks,
        "units": {"size": "byte", "time": "s", "algbw": "byte/s", "busbw": "byte/s"},
        "rows": rows,
        "bottlenecks": report.bottlenecks,
        "assumptions": [dict(row) for row in report.assumptions],
    }


def _text(answer: dict[str, Any]) -> list[str]:
    rows = [_row(answer, row) for row in answer["rows"]]
    body = table([_COLUMNS, _UNITS, *rows], right=range(8))
    stack = answer["profile"]
    head = (
        f"{answer['operation']} on {answer['fabric']['source']}, "
        f"{counted(answer['ranks'], 'rank')}, profile {stack or 'none: typical of NCCL'}"
    )
    lines = textwrap.wrap(head, 98, initial_indent="# ", subsequent_indent="#   ")
    for row in answer["assumptions"]:
        said = f"{row['name']}: {_value(row['value'])} ({row['kind']}: {row['source']})"
        lines += textwrap.wrap(said, 98, initial_indent="#   ", subsequent_indent="#     ")
    lines += ["#", *(f"# {line}" for line in body[:2]), *(f"  {line}" for line in body[2:])]
    last = max(answer["rows"], key=lambda row: row["size"])
    per = last["busbw"] * last["time"] / 1e9
    others = [f"{name} {per / time:.2f}" for name, time in last["alternatives"].items()]
    lines.append(f"# busbw in GB/s at {_binary(last['size'])}: {', '.join(others)}")
    for row in answer["bottlenecks"][:3]:
        lines.append(f"# held by {row['link']} ({row['tier']}), {counted(row['flows'], 'flow')}")
    mean = sum(row["busbw"] for row in answer["rows"]) / len(answer["rows"])
    lines.append(f"# Avg bus bandwidth    : {mean / 1e9:g}")
    return lines


def _row(answer: dict[str, Any], row: dict[str, Any]) -> list[str]:
    operation = answer["operation"]
    parts = operation in ("all_gather", "reduce_scatter", "all_to_all")
    count = int(row["size"] / _ELEMENT / (answer["ranks"] if parts else 1))
    return [
        f"{row['size']:.0f}",
        f"{count}",
        "float",
        "sum" if "reduce" in operation else "none",
        "0" if operation == "broadcast" else "-1",
        f"{row['time'] * 1e6:.2f}",
        f"{row['algbw'] / 1e9:.2f}",
        f"{row['busbw'] / 1e9:.2f}",
        f"{row['algorithm']}/{row['protocol']}",
    ]


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _binary(size: float) -> str:
    """Return bytes in binary units, as nccl-tests take them.

    Examples:
        >>> _binary(16 * 2**30), _binary(100)
        ('16 GiB', '100 B')
    """
    for unit, scale in _IEC:
        if size >= scale:
            return f"{size / scale:g} {unit}"
    return f"{size:g} B"
