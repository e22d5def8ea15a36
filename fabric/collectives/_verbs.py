"""The six operations by name."""

from typing import Any

from fabric.collectives._collective import Ranks, Size, collective
from fabric.collectives._report import CollectiveReport
from fabric.network import Network


def all_reduce(
    network: Network, ranks: Ranks | None = None, size: Size = 2**30, **options: Any
) -> CollectiveReport:
    """Return how long an all-reduce takes: every rank gets the sum of all buffers of `size`.

    Args:
        network: As for `collective`.
        ranks: As for `collective`.
        size: Of the buffer of one rank.
        **options: As for `collective`.

    Examples:
        >>> import fabric as fb
        >>> from fabric.collectives import all_reduce
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=2)
        >>> all_reduce(net, size="8KiB").protocol
        ('LL',)
    """
    return collective("all_reduce", network, ranks, size, **options)


def reduce_scatter(
    network: Network, ranks: Ranks | None = None, size: Size = 2**30, **options: Any
) -> CollectiveReport:
    """Return how long a reduce-scatter takes: every rank gets its part of the sum.

    Args:
        network: As for `collective`.
        ranks: As for `collective`.
        size: Of what one rank gives; it gets size / ranks.
        **options: As for `collective`.
    """
    return collective("reduce_scatter", network, ranks, size, **options)


def all_gather(
    network: Network, ranks: Ranks | None = None, size: Size = 2**30, **options: Any
) -> CollectiveReport:
    """Return how long an all-gather takes: every rank gets the parts of all.

    Args:
        network: As for `collective`.
        ranks: As for `collective`.
        size: Of what one rank gets; it gives size / ranks.
        **options: As for `collective`.
    """
    return collective("all_gather", network, ranks, size, **options)


def broadcast(
    network: Network, ranks: Ranks | None = None, size: Size = 2**30, **options: Any
) -> CollectiveReport:
    """Return how long a broadcast takes: the first rank gives its buffer to all.

    Args:
        network: As for `collective`.
        ranks: As for `collective`, the root first.
        size: Of the buffer.
        **options: As for `collective`.
    """
    return collective("broadcast", network, ranks, size, **options)


def all_to_all(
    network: Network, ranks: Ranks | None = None, size: Size = 2**30, **options: Any
) -> CollectiveReport:
    """Return how long an all-to-all takes: every rank gives every other one a part of its own.

    Args:
        network: As for `collective`.
        ranks: As for `collective`.
        size: Of what one rank gives; each rank gets size / ranks of it.
        **options: As for `collective`.
    """
    return collective("all_to_all", network, ranks, size, **options)


def send_recv(
    network: Network, ranks: Ranks | None = None, size: Size = 2**30, **options: Any
) -> CollectiveReport:
    """Return how long it takes when every rank sends to the next, all at once.

    With `receivers` rank i sends to receiver i, as between two stages of a pipeline. All ranks of
    a group then hold the same message, and "scatter-gather" sends 1 / ranks of it on each, to be
    gathered among the receivers.

    Args:
        network: As for `collective`.
        ranks: As for `collective`.
        size: Of the message.
        **options: As for `collective`.
    """
    return collective("send_recv", network, ranks, size, **options)
