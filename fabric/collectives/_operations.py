"""What each operation moves, in the terms of nccl-tests."""

from fabric._errors import ModelError, nearest

OPERATIONS = (
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send_recv"
)  # fmt: skip


def known_operation(operation: str) -> str:
    """Return the name of an operation, or raise with the nearest one."""
    if operation not in OPERATIONS:
        message = f"'{operation}' is no collective operation. {nearest(operation, OPERATIONS)}"
        raise ModelError(message)
    return operation


def moved(operation: str, n: int) -> float:
    """Return the bytes that every member of a ring sends, per byte of the message.

    Times this, the slope of a `ring` is the time per byte of the message. Exchanges that count
    bytes of the message themselves (`direct`, `send`, `chain`) have 1.

    Args:
        operation: One of `OPERATIONS`.
        n: Members of the group.

    Raises:
        ModelError: If the operation is unknown.

    Examples:
        >>> moved("all_reduce", 4), moved("all_gather", 4), moved("broadcast", 4)
        (1.5, 0.75, 1.0)
    """
    passes = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}
    known_operation(operation)
    return passes[operation] * (n - 1) / n if operation in passes else 1.0


def bus_factor(operation: str, n: int) -> float:
    """Return bus bandwidth over algorithm bandwidth, as nccl-tests define it.

    The size is that of nccl-tests: the buffer of one rank, and for an all-gather what a rank
    receives, for a reduce-scatter what it gives; in an all-to-all what a rank sends.

    Args:
        operation: One of `OPERATIONS`.
        n: Ranks.

    Raises:
        ModelError: If the operation is unknown.

    Examples:
        >>> bus_factor("all_reduce", 8), bus_factor("all_to_all", 8), bus_factor("send_recv", 2)
        (1.75, 0.875, 1.0)

    References:
        NVIDIA/nccl-tests, doc/PERFORMANCE.md.
    """
    return (n - 1) / n if operation == "all_to_all" else moved(operation, n)
