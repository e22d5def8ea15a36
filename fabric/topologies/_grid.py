"""What direct networks share: shapes as text, cables spread evenly over pairs, facts as labels."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, raise_faults
from fabric.network import Network, is_whole

_SHAPE = re.compile(r"\d+(x\d+)*")


def parse_shape(name: str, value: str | Sequence[int], most: int | None = None) -> tuple[int, ...]:
    """Return sizes per dimension from text such as "4x4x8" or from a list of them.

    Args:
        name: The argument as the caller wrote it.
        value: Text, or whole numbers from 1.
        most: Dimensions allowed. Default: any number.

    Raises:
        ModelError: If there is no dimension or too many, or a size is no whole number from 1.

    Examples:
        >>> parse_shape("dims", "4x4x8"), parse_shape("dims", [16, 16])
        ((4, 4, 8), (16, 16))
    """
    if isinstance(value, str) and not _SHAPE.fullmatch(value.strip()):
        message = f"`{name}` needs sizes joined by 'x', such as '4x4x8', but got {value!r}."
        raise ModelError(message)
    if not isinstance(value, str | Sequence | np.ndarray):
        use = f" Use [{value}] for one dimension." if is_whole(value) else ""
        message = (
            f"`{name}` needs sizes as text such as '4x4x8' or as a list, but got {value!r}.{use}"
        )
        raise ModelError(message)
    sizes = [int(n) for n in value.split("x")] if isinstance(value, str) else list(value)
    faults = []
    if not sizes or (most is not None and len(sizes) > most):
        bound = "at least 1" if most is None else f"1 to {most}"
        faults.append(f"`{name}` needs {bound} dimensions, but got {len(sizes)}.")
    bad = [size for size in sizes if not is_whole(size) or size < 1]
    if bad:
        faults.append(f"`{name}` needs whole numbers of 1 or more, but got {bad[0]!r}.")
    raise_faults(faults)
    return tuple(int(size) for size in sizes)


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as people write it.

    Examples:
        >>> shape_text((4, 4, 8))
        '4x4x8'
    """
    return "x".join(str(size) for size in shape)


def spread_evenly(members: int, ports: int) -> Int[np.ndarray, "members members"]:
    """Return how many cables every two members share when each has so many ports.

    Every pair gets floor(ports / (members - 1)). What is left of the ports goes, one more cable a
    pair, to those whose numbers differ by 1, 2, ... round the ring; an odd port to those opposite
    each other, or, where the number of members is odd too, to members (members - 1) / 2 apart, two
    by two, which leaves one port of one member free. Counts so differ by at most one.

    Args:
        members: At least 2.
        ports: Of each member.

    Returns:
        (members, members), symmetric, 0 on the diagonal.

    Examples:
        >>> spread_evenly(4, 4).tolist()
        [[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]]
    """
    each, left = divmod(ports, members - 1)
    count = np.full((members, members), each)
    np.fill_diagonal(count, 0)
    one = np.arange(members)
    for step in range(1, left // 2 + 1):
        count[one, (one + step) % members] += 1
        count[(one + step) % members, one] += 1
    if left % 2 and members % 2 == 0:
        count[one, (one + members // 2) % members] += 1
    elif left % 2:
        # Steps of (members - 1) / 2 visit every member once, so neighbours on the walk pair up.
        walk = one * (members // 2) % members
        a, b = walk[:-1:2], walk[1::2]
        count[a, b] += 1
        count[b, a] += 1
    return count


def spread_cables(members: int, ports: int) -> int:
    """Return how many cables `spread_evenly` has.

    Examples:
        >>> spread_cables(4, 4), int(spread_evenly(4, 4).sum()) // 2
        (8, 8)
    """
    return members * ports // 2


def annotated(network: Network, **facts: str) -> Network:
    """Return a network with facts added to `labels.about`."""
    labels = replace(network.labels, about={**network.labels.about, **facts})
    return Network(
        network.capacity, network.latency, network.alive, network.routing_cost, labels=labels
    )
