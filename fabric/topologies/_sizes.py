"""`Sizes`: what a network would have, counted without building it."""

from dataclasses import dataclass

_ENDPOINTS = ("gpu", "nic", "host", "chip", "node", "block")


@dataclass(frozen=True)
class Sizes:
    """What a network has, from the arithmetic of its builder.

    Attributes:
        nodes: How many there are of each kind.
        cables: How many there are in each tier; a tier without cables is left out.
        ports: Cables at a node of each kind, at most.
        hops: Switches on the longest of the shortest paths between endpoints that reach each other,
            where the builder knows it.
        paths: Shortest paths between two such endpoints, parallel cables counted as one.
        cable_paths: The same, with every cable a path of its own.

    Examples:
        >>> found = Sizes({"host": 3, "switch": 1}, {"host": 3}, {"host": 1, "switch": 3})
        >>> found.n_nodes, found.n_cables
        (4, 3)
        >>> found.endpoints, found.switches
        (3, 1)
    """

    nodes: dict[str, int]
    cables: dict[str, int]
    ports: dict[str, int]
    hops: int | None = None
    paths: int | None = None
    cable_paths: int | None = None

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return sum(self.nodes.values())

    @property
    def n_cables(self) -> int:
        """Number of cables; each is two links."""
        return sum(self.cables.values())

    @property
    def endpoints(self) -> int:
        """Number of nodes that send and receive."""
        return sum(n for kind, n in self.nodes.items() if kind in _ENDPOINTS)

    @property
    def switches(self) -> int:
        """Number of nodes that only carry the traffic of others."""
        return self.n_nodes - self.endpoints
