"""Which formats there are, and `read`, which tells them apart by content."""

import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fabric._errors import ModelError, nearest, some
from fabric.network import Network
from fabric.readers._files import Text, load
from fabric.readers._ib_records import RECORD
from fabric.readers._ib_write import write_ibnetdiscover
from fabric.readers._ibnetdiscover import ibnetdiscover
from fabric.readers._node_link import node_link
from fabric.readers._node_link_write import write_node_link
from fabric.readers._reading import Reading

FORMATS: dict[str, Callable[..., Reading]] = {
    "ibnetdiscover": ibnetdiscover,
    "node-link": node_link,
}
"""Reader of each format, by its name."""

WRITERS: dict[str, Callable[[Network, str | os.PathLike[str]], Path]] = {
    "ibnetdiscover": write_ibnetdiscover,
    "node-link": write_node_link,
}
"""Writer of each format, by its name."""

_SIGNS = {
    "ibnetdiscover": lambda text: (
        RECORD.search(text) is not None or text.lstrip().startswith("#\n# Topology file:")
    ),
    "node-link": lambda text: (
        text.lstrip().startswith("{")
        and re.search(r'"nodes"\s*:', text) is not None
        and re.search(r'"(?:edges|links)"\s*:', text) is not None
    ),
}

# What people hand over instead, so that the refusal can say what it is.
_OTHERS = {
    "an ibdiagnet or OpenSM .lst file": r"\{ (?:SW|CA|CA-SM|RT)\s+Ports:",
    "iblinkinfo output": r'0x[0-9a-f]{16} "[^"\n]*"\s+\d+\s+\d+\[',
    "ibnetdiscover -p output": r"(?:CA|SW|RT)\s+\d+\s+\d+ 0x[0-9a-f]{16} ",
    "OpenSM forwarding tables": r"Unicast lids|dump_ucast_routes",
    "a UFM cable plan": r"#?StartDevice,StartPort",
    "a Slurm topology file": r"(?:SwitchName|BlockName)=",
    "JSON": r"[\[{]\s*[\]}\[{\"\d]",
    "XML": r"<[?!\w]",
}


def read(path: str | os.PathLike[str] | Text, format: str | None = None, **options: Any) -> Reading:
    """Return the fabric in a file of any known format, told apart by content.

    Args:
        path: A file, plain or gzip. Its name does not matter.
        format: The name of the format, a key of `FORMATS`, instead of telling it by content.
        **options: Of that reader; see `ibnetdiscover` and `node_link`.

    Returns:
        A `Reading`: the network, and what was ignored, contradicted and worth a look.

    Raises:
        ModelError: If the file cannot be read, no reader knows it, or an option is unknown.

    Examples:
        >>> from fabric import readers
        >>> text = '''{"nodes": [{"id": "a"}, {"id": "b"}],
        ...  "links": [{"source": "a", "target": "b", "capacity": "1Gb/s"}]}'''
        >>> readers.read(text).format
        'node-link'
    """
    if format is not None and format not in FORMATS:
        message = (
            f"`read(format='{format}')`: there is no such format. {nearest(format, list(FORMATS))}"
        )
        raise ModelError(message)
    file = load(path)
    name = format or next((name for name, sign in _SIGNS.items() if sign(file.text)), None)
    if name is None:
        looks = next(
            (f"looks like {what}" for what, sign in _OTHERS.items() if _begins(sign, file.text)),
            f"begins with {file.text.strip().splitlines()[0][:60]!r}",
        )
        message = (
            f"No reader knows the content of '{file.source}', which {looks}. Known formats: "
            f"{some(FORMATS)}."
        )
        raise ModelError(message)
    reader = FORMATS[name]
    known = [
        p.name
        for p in inspect.signature(reader).parameters.values()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    for option in options:
        if option not in known:
            message = f"The {name} reader has no option `{option}`. {nearest(option, known)}"
            raise ModelError(message)
    return reader(file, **options)


def _begins(sign: str, text: str) -> bool:
    """Return whether one of the first lines that are no comment begins like this."""
    return any(re.match(sign, line.lstrip()) for line in text.lstrip().splitlines()[:5])
