"""The FABRIC argument: a file, the demo, or a builder with its numbers."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fabric import readers, topologies
from fabric._errors import ModelError, nearest
from fabric.network import Network

DEMO = Path(__file__).resolve().parents[1] / "data" / "demo.ibnetdiscover.gz"

Fabric = Annotated[
    str,
    typer.Argument(
        help="A file (ibnetdiscover, node-link JSON), `demo`, a cluster such as "
        "`dgx-h100:nodes=127`, or a builder such as `fat_tree:k=8,capacity=400Gb/s`.",
    ),
]
Capacity = Annotated[
    str | None,
    typer.Option("--capacity", help="Of the cables to which a file gives none, with its unit."),
]
Unit = Annotated[
    str | None, typer.Option("--unit", help="Unit of bare capacities in a file, such as Gb/s.")
]
Attribute = Annotated[
    str | None,
    typer.Option("--capacity-attribute", help="Edge attribute of a file that holds the capacity."),
]
LatencyUnit = Annotated[
    str | None, typer.Option("--latency-unit", help="Unit of bare latencies in a file, such as us.")
]
Pattern = Annotated[
    str | None,
    typer.Option("--pattern", help="all-to-all, permutation, incast or ring.", metavar="NAME"),
]
FlowsFile = Annotated[Path | None, typer.Option("--flows", help="CSV file with a row per flow.")]
MatrixFile = Annotated[Path | None, typer.Option("--matrix", help="CSV or NPY file: host to host.")]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="HEADER=FIELD,...",
        help="What columns of `--flows` mean, such as 'Volume=size_MB'; 'Note=' ignores one.",
    ),
]
Failed = Annotated[
    list[str] | None,
    typer.Option(
        "--failed",
        metavar="NODE",
        help="Take this node as failed; may be given again.",
    ),
]
HostPattern = Annotated[
    str | None,
    typer.Option(
        "--host-pattern",
        metavar="REGEX",
        help="Of adapter descriptions in an ibnetdiscover file; its group `host` is the host.",
    ),
]

# Flag of every option of a reader, and the format it is for.
_OPTIONS = {
    "default_capacity": ("--capacity", "node-link"),
    "unit": ("--unit", "node-link"),
    "capacity": ("--capacity-attribute", "node-link"),
    "latency_unit": ("--latency-unit", "node-link"),
    "host_pattern": ("--host-pattern", "ibnetdiscover"),
}


@dataclass(frozen=True)
class Subject:
    """A fabric and what the file said about it; `reading` is None for a builder."""

    network: Network
    reading: readers.Reading | None

    @property
    def source(self) -> str:
        """What to call it."""
        return self.reading.source if self.reading else self.network.labels.source

    @property
    def format(self) -> str:
        """Format of the file, or "builder"."""
        return self.reading.format if self.reading else "builder"


def load(text: str, **options: str | None) -> Subject:
    """Return the fabric that a command line names.

    Args:
        text: The argument.
        **options: Of a reader, None where not given.

    Raises:
        ModelError: If it is neither a file nor a builder, the file or the numbers are wrong, or
            there is no cable.
    """
    given = {name: value for name, value in options.items() if value is not None}
    subject = _found(text, given)
    if subject.network.n_links == 0:
        labels = subject.network.labels
        nodes = ", ".join(
            f"{int(labels.is_kind(kind).sum()):,} {kind}" for kind in labels.present_kinds
        )
        message = (
            f"'{subject.source}': there is no cable, so this is no fabric (nodes: {nodes}). Give "
            f"the whole output of the tool, from a machine that sees every switch."
        )
        raise ModelError(message)
    return subject


def _found(text: str, given: dict[str, str]) -> Subject:
    path = Path(text)
    fabric_name = text == "demo" or topologies.is_spec(text)
    # A folder that happens to be called like a builder is not meant.
    if text.strip() and _exists(path, file=fabric_name):
        return _read(path, given)
    if text == "demo":
        return _read(DEMO, given)
    if given:
        flags = ", ".join(f"`{_OPTIONS[name][0]}`" for name in given)
        if not fabric_name:
            message = f"There is no file '{text}' to use {flags} for. Check the path."
        else:
            message = (
                f"{flags} says how to read a file, but '{text}' is none. A builder takes its "
                f"capacity itself: `fat_tree:k=8,capacity=400Gb/s`."
            )
        raise ModelError(message)
    if fabric_name:
        return Subject(topologies.build(text), None)
    word = text.partition(":")[0]
    hint = "Check the path." if re.search(r"[/\\.]", text) else ""
    message = (
        f"'{text}' is no file here, and no builder. {hint or nearest(word, _words())} A builder is "
        f"called like `fat_tree:k=8,capacity=400Gb/s`; `fabric list` shows all."
    )
    raise ModelError(message)


def _words() -> list[str]:
    return ["demo", *topologies.BUILDERS, *topologies.CLUSTERS]


def _exists(path: Path, *, file: bool) -> bool:
    try:
        return path.is_file() if file else path.exists()
    except (OSError, ValueError):
        return False


def _read(path: Path, given: dict[str, str]) -> Subject:
    try:
        reading = readers.read(path, **given)
    except ModelError as error:
        raise ModelError(_as_flags(str(error), path.name)) from error
    return Subject(reading.network, reading)


def _as_flags(message: str, file: str) -> str:
    """Return a reader's message with its options as the command line calls them.

    Examples:
        >>> _as_flags("Say `capacity='...'`, or `default_capacity='400Gb/s'`.", "graph.json")
        'Say `--capacity-attribute ...`, or `--capacity 400Gb/s`.'
        >>> _as_flags("The ibnetdiscover reader has no option `unit`. Known: 'x'.", "dump")
        "`--unit` is for node-link files, but 'dump' is of format ibnetdiscover. Leave it out."
    """
    for option, (flag, format) in _OPTIONS.items():
        message = re.sub(
            rf"The (\S+) reader has no option `{option}`\..*",
            rf"`{flag}` is for {format} files, but '{file}' is of format \1. Leave it out.",
            message,
        )
        message = re.sub(rf"`{option}=(['\"])(.*?)\1`", rf"`{flag} \2`", message)
        message = message.replace(f"`{option}`", f"`{flag}`") if option != "capacity" else message
    return message
