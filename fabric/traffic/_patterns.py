"""Patterns of demand that need nothing but the hosts: who sends to whom by rule or by chance."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, some
from fabric._typing import AnyArray
from fabric.network import Flows, index_array, whole
from fabric.traffic._hosts import afford, bytes_of, endpoints


def permutation(
    hosts: AnyArray | Sequence[int],
    *,
    seed: int = 0,
    size: str | float = np.nan,
    fixed_points: bool = False,
) -> Flows:
    """Return one flow from every host to another, every host receiving exactly one.

    Args:
        hosts: (hosts,), node numbers, at least 2.
        seed: The same seed gives the same flows.
        size: Of every flow: text with a unit, or bytes. Default: not stated.
        fixed_points: Draw from all permutations and leave out the hosts that are mapped to
            themselves. Default: such hosts swap receivers, so that every host sends.

    Raises:
        ModelError: If `hosts` are not at least two different node numbers.

    Examples:
        >>> flows = permutation([10, 11, 12, 13], seed=0, size="1GB")
        >>> sorted(flows.dst.tolist()), bool((flows.src == flows.dst).any())
        ([10, 11, 12, 13], False)
    """
    nodes = endpoints("permutation", hosts)
    n, rng = len(nodes), _random(seed)
    target = rng.permutation(n)
    fixed = np.flatnonzero(target == np.arange(n))
    if fixed_points:
        sender = np.setdiff1d(np.arange(n), fixed, assume_unique=True)
        return Flows(nodes[sender], nodes[target[sender]], size=bytes_of(size))
    if len(fixed) == 1:
        other = (fixed[0] + rng.integers(1, n)) % n
        target[[fixed[0], other]] = target[[other, fixed[0]]]
    else:
        target[fixed] = np.roll(fixed, 1)
    return Flows(nodes, nodes[target], size=bytes_of(size))


def all_to_all(hosts: AnyArray | Sequence[int], *, size: str | float = np.nan) -> Flows:
    """Return a flow from every host to every other, n (n - 1) of them, ordered by sender.

    Args:
        hosts: (hosts,), node numbers, at least 2.
        size: Of every flow: text with a unit, or bytes. Default: not stated.

    Raises:
        ModelError: If `hosts` are not at least two different node numbers, or there would be more
            than 200 million flows.

    Cost: 40 bytes per flow.

    Examples:
        >>> flows = all_to_all([0, 1, 2])
        >>> list(zip(flows.src.tolist(), flows.dst.tolist()))
        [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    """
    nodes = endpoints("all_to_all", hosts)
    n = len(nodes)
    afford(
        f"`all_to_all` of {n:,} hosts", n * (n - 1),
        "Ask for fewer hosts, or for a sample with `uniform_random`.",
    )  # fmt: skip
    # Row-major order without the diagonal: drop the first entry, then every (n + 1)-th.
    square = np.broadcast_to(nodes, (n, n)).ravel()
    dst = square[1:].reshape(n - 1, n + 1)[:, :-1].ravel()
    return Flows(np.repeat(nodes, n - 1), dst, size=bytes_of(size))


def incast(
    hosts: AnyArray | Sequence[int],
    *,
    to: int | None = None,
    senders: int | Sequence[int] | AnyArray | None = None,
    seed: int = 0,
    size: str | float = np.nan,
) -> Flows:
    """Return flows from many hosts to one.

    Args:
        hosts: (hosts,), node numbers, at least 2.
        to: The receiver, one of `hosts`. Default: drawn with `seed`.
        senders: How many of the others send, drawn with `seed`; or their node numbers. Default:
            all others.
        seed: The same seed gives the same flows.
        size: Of every flow: text with a unit, or bytes. Default: not stated.

    Raises:
        ModelError: If the receiver or a sender is none of `hosts`, the receiver sends, or more
            senders are asked for than there are.

    Examples:
        >>> incast([0, 1, 2, 3], to=2).src.tolist()
        [0, 1, 3]
    """
    nodes = endpoints("incast", hosts)
    rng = _random(seed)
    receiver = int(rng.choice(nodes)) if to is None else whole("to", to, 0)
    if receiver not in nodes:
        message = f"`incast(to={to})` is none of the {len(nodes):,} hosts. Use one of `hosts`."
        raise ModelError(message)
    others = nodes[nodes != receiver]
    if senders is None:
        chosen = others
    elif np.ndim(senders) == 0:
        count = whole("senders", senders)
        if count > len(others):
            message = f"`incast(senders={count:,})` is more than the {len(others):,} other hosts."
            raise ModelError(message)
        chosen = np.sort(rng.choice(others, count, replace=False))
    else:
        chosen = index_array("senders", senders)
        strange = chosen[~np.isin(chosen, others)]
        if len(strange) or not len(chosen):
            message = (
                f"`incast(senders=...)` needs hosts other than the receiver {receiver}, but "
                f"{len(strange):,} of {len(chosen):,} are not: {some(strange)}."
            )
            raise ModelError(message)
    return Flows(chosen, np.full(len(chosen), receiver), size=bytes_of(size))


def ring(hosts: AnyArray | Sequence[int], *, size: str | float = np.nan) -> Flows:
    """Return a flow from every host to the next, and from the last to the first.

    Args:
        hosts: (hosts,), node numbers in ring order, at least 2.
        size: Of every flow: text with a unit, or bytes. Default: not stated.

    Raises:
        ModelError: If `hosts` are not at least two different node numbers.

    Examples:
        >>> ring([5, 6, 7]).dst.tolist()
        [6, 7, 5]
    """
    nodes = endpoints("ring", hosts)
    return Flows(nodes, np.roll(nodes, -1), size=bytes_of(size))


def uniform_random(
    hosts: AnyArray | Sequence[int], n_flows: int, *, seed: int = 0, size: str | float = np.nan
) -> Flows:
    """Return flows between pairs drawn independently and uniformly, no host to itself.

    Args:
        hosts: (hosts,), node numbers, at least 2.
        n_flows: Number of flows; pairs may repeat.
        seed: The same seed gives the same flows.
        size: Of every flow: text with a unit, or bytes. Default: not stated.

    Raises:
        ModelError: If `hosts` are not at least two different node numbers, or there would be more
            than 200 million flows.

    Examples:
        >>> uniform_random([0, 1], n_flows=3).n_flows
        3
    """
    nodes = endpoints("uniform_random", hosts)
    n_flows = whole("n_flows", n_flows)
    afford(f"`uniform_random(n_flows={n_flows:,})`", n_flows, "Ask for fewer.")
    rng = _random(seed)
    src = rng.integers(len(nodes), size=n_flows)
    dst = (src + rng.integers(1, len(nodes), size=n_flows)) % len(nodes)
    return Flows(nodes[src], nodes[dst], size=bytes_of(size))


Pattern = Callable[[Int[np.ndarray, " hosts"], str | float, int], Flows]

PATTERNS: dict[str, Pattern] = {
    "all-to-all": lambda hosts, size, seed: all_to_all(hosts, size=size),
    "permutation": lambda hosts, size, seed: permutation(hosts, size=size, seed=seed),
    "incast": lambda hosts, size, seed: incast(hosts, size=size, seed=seed),
    "ring": lambda hosts, size, seed: ring(hosts, size=size),
}
"""Patterns by name, all called as `PATTERNS[name](hosts, size, seed)`."""


def _random(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(whole("seed", seed, 0)))
