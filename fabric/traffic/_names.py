"""Names in files to node numbers; what is no endpoint is said with the nearest name."""

import difflib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from fabric._errors import joined, quoted, some
from fabric.network import Network


def at_line(text: str, line: int) -> str:
    """Return where a text stands, "nothing" where it is empty.

    Examples:
        >>> at_line("12x", 1204)
        '12x at line 1,204'
    """
    return f"{text or 'nothing'} at line {line:,}"


def numbers_of(network: Network, names: Sequence[str]) -> Int[np.ndarray, " names"]:
    """Return the node of each id or unique name, -1 where there is none."""
    nodes = network.labels.node_of
    return np.fromiter((nodes.get(name, -1) for name in names), np.int32, len(names))


def name_faults(
    where: str, network: Network, names: Sequence[str], numbers: Int[np.ndarray, " names"]
) -> list[str]:
    """Return faults for the names that are no node, or a node that does not send and receive.

    Args:
        where: The file or column, as a message begins.
        network: Whose nodes they should be.
        names: Each once.
        numbers: (names,), from `numbers_of`.
    """
    labels = network.labels
    unknown = np.flatnonzero(numbers < 0)
    known = np.flatnonzero(numbers >= 0)
    passive = known[~np.asarray(labels.endpoint)[numbers[known]]]
    faults = []
    if len(unknown):
        hosts = [labels.names[int(node)] for node in network.hosts[:10_000]]

        def hint(name: str) -> str:
            close = difflib.get_close_matches(name, hosts, n=1, cutoff=0.5)
            return quoted(name) + (f" (nearest: {quoted(close[0])})" if close else "")

        said = [hint(names[int(i)]) for i in unknown[:5]]
        faults.append(
            f"{where}: {len(unknown):,} of {len(names):,} names are not the name of one node of "
            f"this network: {joined(said, more=len(unknown) - len(said))}. Use names such as "
            f"{some(hosts[:2])}."
        )
    if len(passive):
        kinds = {labels.kinds[int(labels.kind_of[node])] for node in numbers[passive]}
        faults.append(
            f"{where}: {len(passive):,} of {len(names):,} names are nodes that do not send or "
            f"receive ({', '.join(sorted(kinds))}): "
            f"{some(passive.tolist(), name=names.__getitem__)}. Name hosts of the network."
        )
    return faults
