"""`Blueprint`: nodes and cables gathered block by block, then made into a `Network` in one go."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError
from fabric.network._checks import INT32_MAX, whole, whole_array
from fabric.network._labels import Labels, Names
from fabric.network._network import Network


class Blueprint:
    """Collects blocks of nodes and of cables as arrays; `network()` lays them out.

    Cable i becomes link 2i (from its `a` end to its `b` end) and link 2i + 1 (back).

    Examples:
        >>> plan = Blueprint()
        >>> leaf = plan.nodes("leaf", "leaf{}", (2,))
        >>> host = plan.nodes("host", "leaf{}-host{}", (2, 3), leaf=np.arange(2)[:, None])
        >>> plan.cables("host", host, leaf[:, None], 50e9)
        >>> net = plan.network("two leaves")
        >>> net.n_nodes, net.n_links, net.link_name(0)
        (8, 12, 'leaf0-host0->leaf0')
    """

    def __init__(self) -> None:
        self._n_nodes = 0
        self._kinds: list[str] = []
        self._kind_of: list[np.ndarray] = []
        self._names: list[tuple[str, tuple[int, ...]]] = []
        self._tags: list[tuple[int, int, dict[str, np.ndarray]]] = []
        self._tiers: list[str] = []
        self._cables: list[tuple[np.ndarray, ...]] = []

    def nodes(
        self, kind: str, template: str, shape: tuple[int, ...], **tags: Int[np.ndarray, "..."] | int
    ) -> Int[np.ndarray, "..."]:
        """Add a block of nodes and return their numbers in its shape.

        Args:
            kind: For example "leaf"; see `Labels`.
            template: Name by rule, one `{}` per axis of the shape.
            shape: Of the block.
            **tags: Whole numbers that broadcast to the shape.
        """
        count = int(np.prod(shape, dtype=np.int64))
        numbers = np.arange(self._n_nodes, self._n_nodes + count, dtype=np.int32).reshape(shape)
        code = _code(self._kinds, kind)
        self._kind_of.append(np.full(count, code, np.int32))
        self._names.append((template, shape))
        values = {k: np.broadcast_to(whole_array(k, v), shape).ravel() for k, v in tags.items()}
        self._tags.append((self._n_nodes, count, values))
        self._n_nodes += count
        return numbers

    def cables(
        self,
        tier: str,
        a: np.ndarray,
        b: np.ndarray,
        capacity: float | np.ndarray,
        latency: float = 0.0,
        routing_cost: int = 1,
        parallel: int = 1,
    ) -> None:
        """Add a block of cables between nodes `a` and `b`, which broadcast against each other.

        Args:
            tier: For example "leaf-spine".
            a: Node numbers at one end (the lower tier, by convention).
            b: Node numbers at the other end.
            capacity: byte/s per direction, one value or one per cable.
            latency: Seconds.
            routing_cost: Whole number from 1.
            parallel: Cables between each pair.
        """
        parallel = whole("parallel", parallel)
        routing_cost = whole("routing_cost", routing_cost, 1, INT32_MAX)
        a, b = whole_array("a", a), whole_array("b", b)
        a, b, capacity = np.broadcast_arrays(a, b, np.asarray(capacity, np.float64))
        a, b, capacity = (np.repeat(x.ravel(), parallel) for x in (a, b, capacity))
        code = _code(self._tiers, tier)
        n = len(a)
        self._cables.append(
            (
                a, b, capacity,
                np.full(n, latency), np.full(n, routing_cost, np.int32), np.full(n, code, np.int32),
            )
        )  # fmt: skip

    def network(self, source: str) -> Network:
        """Return the network; `source` says in words what was built."""
        if not self._cables or not self._n_nodes:
            message = f"{source}: there is no cable. Ask for at least one host and one switch."
            raise ModelError(message)
        a, b, capacity, latency, cost, tier = (
            np.concatenate(c) for c in zip(*self._cables, strict=True)
        )
        both = lambda x, y: np.stack([x, y], 1).ravel()
        tags: dict[str, np.ndarray] = {}
        for start, count, values in self._tags:
            for name, value in values.items():
                tags.setdefault(name, np.full(self._n_nodes, -1, np.int32))[
                    start : start + count
                ] = value
        labels = Labels(
            kinds=tuple(self._kinds),
            kind_of=np.concatenate(self._kind_of),
            names=Names(self._names),
            src=both(a, b),
            dst=both(b, a),
            tiers=tuple(self._tiers),
            tier_of=np.repeat(tier, 2),
            cable_of=np.repeat(np.arange(len(a), dtype=np.int32), 2),
            tags=tags,
            source=source,
        )
        twice = lambda x: np.repeat(x, 2)
        return Network(twice(capacity), twice(latency), None, twice(cost), labels=labels)


def _code(known: list[str], word: str) -> int:
    if word not in known:
        known.append(word)
    return known.index(word)


def names_of(network: Network, nodes: Sequence[int] | np.ndarray) -> list[str]:
    """Return the names of some nodes."""
    return [network.labels.names[int(node)] for node in nodes]
