"""`direct_connect`: aggregation blocks joined to each other by optical circuits, without spines."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, raise_faults, some
from fabric._typing import AnyArray
from fabric._units import parse_rate, parse_time
from fabric.network import Blueprint, Network, whole_array, wholes
from fabric.topologies._grid import annotated, spread_cables, spread_evenly
from fabric.topologies._plan import afford, describe
from fabric.topologies._sizes import Sizes

Circuits = str | Sequence[Sequence[int]] | AnyArray

_SHOWN = 8


def direct_connect(
    blocks: int,
    ports: int,
    *,
    circuits: Circuits | None = None,
    capacity: str | float = "400Gb/s",
    latency: str | float = 0.0,
) -> Network:
    """Return aggregation blocks joined by optical circuits, some number between every two.

    A block is one node that sends, receives and passes on the traffic of others; what is inside it
    is taken to be no bottleneck. Every circuit is a cable. Circuits are whole; the optical switches
    that hold them are no nodes.

    By default the mesh is uniform: every pair has floor(ports / (blocks - 1)) circuits, and the
    ports left over go round the ring of blocks, so that pairs differ by one at most; an odd port of
    an odd number of blocks leaves one port free.

    Blocks are called `block0`. Kind `block`; tier `circuit`. `labels.about` has "ports".

    Args:
        blocks: Number of blocks, at least 2.
        ports: Circuits that a block can end, at most.
        circuits: (blocks, blocks), circuits between every two blocks: whole numbers, symmetric, 0
            on the diagonal; or text, those of the pairs (0, 1), (0, 2), ..., (1, 2), ... joined by
            `+`. Default: the uniform mesh.
        capacity: Of every circuit, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If there are fewer ports than other blocks and no `circuits`, or these are not
            as above or need more ports than there are, all faults at once; or the network would not
            fit in memory.

    Examples:
        >>> direct_connect(blocks=4, ports=6).n_links // 2
        12
        >>> skewed = [[0, 3, 1], [3, 0, 0], [1, 0, 0]]
        >>> direct_connect(3, 4, circuits=skewed).labels.source
        'direct_connect(blocks=3, ports=4, circuits=3+1+0, capacity=400Gb/s)'

    References:
        L. Poutievski et al., Jupiter Evolving: Transforming Google's Datacenter Network via Optical
        Circuit Switches and Software-Defined Networking, SIGCOMM 2022.
    """
    blocks, ports, count = _checked(blocks, ports, circuits)
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    pairs = None if count is None else count[np.triu_indices(blocks, 1)].tolist()
    shown = "+".join(map(str, pairs)) if pairs is not None and blocks <= _SHOWN else pairs
    what = describe(
        direct_connect, blocks=blocks, ports=ports, circuits=shown, capacity=capacity,
        latency=latency,
    )  # fmt: skip
    afford(what, _sizes(blocks, ports, count).n_cables)
    count = spread_evenly(blocks, ports) if count is None else count
    a, b = np.triu_indices(blocks, 1)
    plan = Blueprint()
    block = plan.nodes("block", "block{}", (blocks,))
    times = count[a, b]
    plan.cables("circuit", np.repeat(block[a], times), np.repeat(block[b], times), rate, delay)
    return annotated(plan.network(what), ports=str(ports))


def sizes_of_direct_connect(blocks: int, ports: int, *, circuits: Circuits | None = None) -> Sizes:
    """Return what `direct_connect` would have.

    Examples:
        >>> sizes_of_direct_connect(64, 512).cables
        {'circuit': 16384}
    """
    return _sizes(*_checked(blocks, ports, circuits))


def _checked(
    blocks: int, ports: int, circuits: Circuits | None
) -> tuple[int, int, Int[np.ndarray, "blocks blocks"] | None]:
    """Return blocks, ports and the circuits where they are given, or raise."""
    (blocks,) = wholes(least=2, blocks=blocks)
    (ports,) = wholes(ports=ports)
    if circuits is not None:
        return blocks, ports, _matrix(blocks, ports, circuits)
    if ports < blocks - 1:
        message = (
            f"`direct_connect(blocks={blocks}, ports={ports})` has no circuit for some pairs. Use "
            f"`ports={blocks - 1}` or more, `blocks={ports + 1}` or fewer, or say which `circuits` "
            f"there are."
        )
        raise ModelError(message)
    return blocks, ports, None


def _matrix(blocks: int, ports: int, circuits: Circuits) -> Int[np.ndarray, "blocks blocks"]:
    if isinstance(circuits, str):
        circuits = _from_text(blocks, circuits)
    faults: list[str] = []
    count = whole_array("circuits", circuits, faults)
    if not faults and count.shape != (blocks, blocks):
        faults.append(
            f"`circuits` needs a row and a column per block, ({blocks}, {blocks}), but has shape "
            f"{count.shape}."
        )
    raise_faults(faults)
    name = "block{}".format
    checks = {
        "whole numbers of 0 or more,": np.flatnonzero((count < 0).any(1)),
        "0 on the diagonal, for no block joins itself,": np.flatnonzero(np.diag(count)),
        "as many circuits there as back,": np.flatnonzero((count != count.T).any(1)),
    }
    for need, bad in checks.items():
        if len(bad):
            faults.append(f"`circuits` needs {need} but not so at {some(bad.tolist(), name=name)}.")
    used = count.sum(1, dtype=np.int64)
    if len(bad := np.flatnonzero(used > ports)):
        faults.append(
            f"`circuits` asks for more than the {ports} ports of a block at "
            f"{some(bad.tolist(), name=name)}, up to {used.max()}. Use fewer, or "
            f"`ports={used.max()}`."
        )
    if not faults and not count.any():
        faults.append("`circuits` are all 0. Ask for at least one.")
    raise_faults(faults)
    return count


def _from_text(blocks: int, text: str) -> Int[np.ndarray, "blocks blocks"]:
    words = [word.strip() for word in text.split("+")]
    pairs = blocks * (blocks - 1) // 2
    if len(words) != pairs or not all(word.isdecimal() for word in words):
        message = (
            f"`circuits` needs {pairs} whole numbers joined by '+', one per pair of {blocks} "
            f"blocks, but got {text!r}."
        )
        raise ModelError(message)
    count = np.zeros((blocks, blocks), np.int64)
    count[np.triu_indices(blocks, 1)] = [int(word) for word in words]
    return count + count.T


def _sizes(blocks: int, ports: int, count: np.ndarray | None) -> Sizes:
    cables = spread_cables(blocks, ports) if count is None else int(count.sum()) // 2
    most = ports if count is None else int(count.sum(1).max())
    return Sizes({"block": blocks}, {"circuit": cables}, {"block": most})
