"""`Reading`: a network from a file, and everything the file said that is not in it."""

from dataclasses import dataclass, field
from typing import Any

from fabric.network import Network


@dataclass(frozen=True, eq=False)
class Reading:
    """What a reader found in a file.

    Attributes:
        network: The fabric.
        source: The name of the file, without its folder.
        format: The name of the format, a key of `FORMATS`.
        confidence: 0 to 1, how certain the format is.
        records: Cable records in the file, each cable counted once.
        ignored: What was understood and left out: `{"what": ..., "count": ...}`.
        contradicted: What the file says twice and differently, or only half:
            `{"what": ..., "item": ...}`.
        warnings: Sentences about what deserves a look.
        fingerprint: "sha256:..." of the bytes after decompression.
        notes: Facts about this format, such as cables by speed token.
    """

    network: Network
    source: str
    format: str
    confidence: float
    records: int
    ignored: list[dict[str, Any]] = field(default_factory=list)
    contradicted: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    fingerprint: str = ""
    notes: dict[str, Any] = field(default_factory=dict)
