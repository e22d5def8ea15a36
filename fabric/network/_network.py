"""`Network`: links with capacity, latency, routing cost and an alive mask; labels beside them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, some
from fabric._typing import AnyArray, LinkBools, LinkFloats, LinkInts
from fabric.network._checks import capacity_faults
from fabric.network._labels import Labels

if TYPE_CHECKING:
    import networkx as nx


class Network(eqx.Module):
    """The links of a fabric, directed, and what they can carry.

    A cable is two links, one each way. Parallel cables stay separate links.

    Attributes:
        capacity: (links,), byte/s per direction, nominal. Traced. 0 is legal and gives rate 0.
        latency: (links,), seconds. Traced. Default 0.
        alive: (links,), false for a failed link. Traced. Routing goes round a failed link; a
            route that crosses one all the same has rate 0.
        routing_cost: (links,), whole numbers from 1. Traced. Default 1. Routing minimises its sum.

    Names, kinds, tiers and the ends of links are in `labels`, outside the pytree: a network that
    comes back out of a JAX transformation has lost them.

    Examples:
        >>> net = Network([50e9, 25e9])
        >>> net.n_links
        2
    """

    capacity: LinkFloats
    latency: LinkFloats
    alive: LinkBools
    routing_cost: LinkInts

    def __init__(
        self,
        capacity: AnyArray | Sequence[float],
        latency: LinkFloats | None = None,
        alive: LinkBools | None = None,
        routing_cost: LinkInts | None = None,
        *,
        labels: Labels | None = None,
    ):
        self.capacity = _floats(capacity)
        n = self.capacity.shape[0]
        dtype = self.capacity.dtype
        self.latency = np.zeros(n, dtype) if latency is None else latency
        self.alive = np.ones(n, bool) if alive is None else alive
        self.routing_cost = np.ones(n, np.int32) if routing_cost is None else routing_cost
        # No field: flattening drops it, so names never reach a compiled program or its cache key.
        object.__setattr__(self, "_labels", labels)

    @classmethod
    def from_capacity(cls, capacity: AnyArray | Sequence[float], **arrays: Any) -> "Network":
        """Return a network of bare links, values checked; links are called by their number.

        Args:
            capacity: (links,), byte/s, finite and 0 or more.
            **arrays: `latency`, `alive` or `routing_cost`, (links,).

        Raises:
            ModelError: If a capacity is negative, NaN or infinite.

        Examples:
            >>> Network.from_capacity([10.0, 4.0]).n_links
            2
        """
        network = cls(np.asarray(capacity, np.float64), **arrays)
        faults = capacity_faults(
            "Network.from_capacity(...)", np.asarray(network.capacity), network.link_name
        )
        if faults:
            raise ModelError("\n".join(faults))
        return network

    @classmethod
    def from_networkx(cls, graph: "nx.Graph[Any]", **options: Any) -> "Network":
        """Return a network from a graph; multigraphs keep their parallel cables.

        An edge of an undirected graph is a cable, two links; an edge of a directed graph is one
        link. Edge attributes read: `capacity` (text with a unit, or a number in byte/s),
        `latency` (text, or seconds), `routing_cost` (a whole number from 1), `tier`, `alive`.
        Node attributes read: `kind`, `name`, `endpoint`, `forwards`; any other whole number or
        text becomes a tag.

        Args:
            graph: Any networkx graph.
            **options: `capacity=`, `latency=`, `routing_cost=`: the attribute that holds it;
                `default_capacity=`: for edges without one; `source=`: what to call it.

        Raises:
            ModelError: If a capacity is missing and there is no default, or a value is out of
                range; all faults at once.

        Examples:
            >>> import networkx as nx
            >>> graph = nx.MultiGraph()
            >>> _ = graph.add_edges_from([("a", "b"), ("a", "b")], capacity="400Gb/s")
            >>> [Network.from_networkx(graph).link_name(i) for i in range(4)]
            ['a->b', 'b->a', 'a->b#1', 'b->a#1']
        """
        from fabric.network._networkx import from_networkx

        return from_networkx(graph, **options)

    def to_networkx(self) -> "nx.MultiDiGraph[str]":
        """Return a directed multigraph, an edge per link; `from_networkx` reads it back whole."""
        from fabric.network._networkx import to_networkx

        return to_networkx(self)

    @property
    def labels(self) -> Labels:
        """Names, kinds, tiers and ends; an error where this network has none."""
        if (labels := self.__dict__.get("_labels")) is None:
            message = (
                "This network has no labels: it was made from bare capacities or came out of a "
                "JAX transformation. Use the network that a builder or a reader returned."
            )
            raise ModelError(message)
        return labels

    @property
    def has_labels(self) -> bool:
        """Whether names and ends are known."""
        return self.__dict__.get("_labels") is not None

    @property
    def n_links(self) -> int:
        """Number of directed links."""
        return self.capacity.shape[0]

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.labels.n_nodes

    @property
    def hosts(self) -> Int[np.ndarray, " hosts"]:
        """The nodes that send and receive, by number, in order."""
        return np.flatnonzero(self.labels.endpoint)

    def link_name(self, link: int) -> str:
        """Return the name of one directed link, or its number where names are unknown."""
        return self.labels.link_name(link) if self.has_labels else f"link {link}"

    def with_capacity(self, capacity: LinkFloats) -> "Network":
        """Return this network with other capacities; traced, labels kept."""
        return self._replace(capacity=capacity)

    def with_alive(self, alive: LinkBools) -> "Network":
        """Return this network with another mask of live links; traced, labels kept."""
        return self._replace(alive=alive)

    def without(
        self,
        *,
        nodes: Iterable[int | str] | Int[np.ndarray, " some"] = (),
        links: Iterable[int] | Int[np.ndarray, " others"] = (),
    ) -> "Network":
        """Return this network with some nodes and cables failed, on the host.

        Args:
            nodes: Nodes by number, id or unique name; every link at a failed node fails.
            links: Directed links by number; the other direction of the cable fails with it.

        Examples:
            >>> import fabric as fb
            >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
            >>> int(net.without(nodes=["spine0"]).alive.sum()), net.n_links
            (8, 12)
        """
        labels = self.labels
        dead = np.array([labels.node(n) if isinstance(n, str) else n for n in nodes], np.int64)
        lost = np.array(list(links), np.int64)
        for what, items, count in (("nodes", dead, self.n_nodes), ("links", lost, self.n_links)):
            if len(bad := items[(items < 0) | (items >= count)]):
                message = (
                    f"`without({what}=...)` names {what} {some(bad)}, but there are {count:,}."
                )
                raise ModelError(message)
        cables = labels.cable_of[lost]
        failed = (
            np.isin(labels.cable_of, cables) | np.isin(labels.src, dead) | np.isin(labels.dst, dead)
        )
        return self.with_alive(np.asarray(self.alive) & ~failed)

    def _replace(self, **fields: LinkFloats | LinkBools) -> "Network":
        kept = {
            "capacity": self.capacity,
            "latency": self.latency,
            "alive": self.alive,
            "routing_cost": self.routing_cost,
        }
        return Network(**(kept | fields), labels=self.__dict__.get("_labels"))


def _floats(values: AnyArray | Sequence[float]) -> LinkFloats:
    """Return the capacities as they are, or in float64 where they are no floats yet."""
    if not hasattr(values, "dtype"):
        return np.asarray(values, np.float64)
    assert not isinstance(values, Sequence)
    whole = np.issubdtype(np.dtype(values.dtype), np.integer)
    return values.astype(np.float64) if whole else values
