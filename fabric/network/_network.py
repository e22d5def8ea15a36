"""`Network`: links with capacity, latency, routing cost and an alive mask; labels beside them."""

import re
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeGuard

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Int

from fabric._errors import ModelError, quoted, raise_faults, some
from fabric._typing import AnyArray, LinkBools, LinkFloats, LinkInts
from fabric.network._checks import (
    capacity_faults,
    cost_array,
    float_array,
    items_of,
    read_only,
)
from fabric.network._labels import Labels

if TYPE_CHECKING:
    import networkx as nx


_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


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
    comes back out of a JAX transformation, `eqx.tree_at` or `dataclasses.replace` has lost them.
    `with_capacity`, `with_alive`, `without` and `degraded` keep them.

    NumPy arrays are copied unless they are read-only already, and refuse writes.

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
        latency: AnyArray | Sequence[float] | None = None,
        alive: AnyArray | Sequence[bool] | None = None,
        routing_cost: AnyArray | Sequence[int] | None = None,
        *,
        labels: Labels | None = None,
    ):
        faults: list[str] = []
        self.capacity = capacity = read_only(_floats("Network(capacity)", capacity, faults))
        shape, kind = capacity.shape, capacity.dtype
        latency = np.zeros(shape, kind) if latency is None else latency
        alive = np.ones(shape, bool) if alive is None else alive
        cost = np.ones(shape, np.int32) if routing_cost is None else routing_cost
        self.latency = read_only(_floats("Network(latency)", latency, faults, kind))
        self.alive = read_only(alive if _is_array(alive) else np.asarray(alive))
        self.routing_cost = read_only(_costs("Network(routing_cost)", cost, faults, labels))
        arrays = (capacity, self.latency, self.alive, self.routing_cost)
        raise_faults(faults or _shape_faults(*arrays, labels))
        # No field: flattening drops it, so names never reach a compiled program or its cache key.
        object.__setattr__(self, "_labels", labels)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Copies and pickles of arrays come back writeable.
        for name, value in state.items():
            object.__setattr__(self, name, read_only(value))

    @classmethod
    def from_capacity(cls, capacity: AnyArray | Sequence[float], **arrays: Any) -> "Network":
        """Return a network of bare links, values checked; links are called by their number.

        Args:
            capacity: (links,), byte/s, finite and 0 or more.
            **arrays: `latency`, seconds, finite and 0 or more; `alive`, true and false; or
                `routing_cost`, whole numbers from 1: (links,).

        Raises:
            ModelError: If a value is out of range or an array has another length; all faults at
                once.

        Examples:
            >>> Network.from_capacity([10.0, 4.0]).n_links
            2
        """
        faults: list[str] = []
        if (cost := arrays.get("routing_cost")) is not None:
            cost = cost_array("Network.from_capacity(routing_cost)", cost, faults)
            arrays["routing_cost"] = cost
        network = cls(float_array("Network.from_capacity(capacity)", capacity), **arrays)
        where, name = "Network.from_capacity(...)", network.link_name
        latency = np.asarray(network.latency)
        faults += capacity_faults(where, np.asarray(network.capacity), name)
        if len(bad := np.flatnonzero(~(np.isfinite(latency) & (latency >= 0)))):
            faults.append(
                f"`{where}` needs a finite `latency` of 0 or more on every link, but {len(bad):,} "
                f"of {len(latency):,} links have another: {some(bad.tolist(), name=name)}."
            )
        raise_faults(faults)
        return network

    @classmethod
    def from_networkx(cls, graph: "nx.Graph[Any]", **options: Any) -> "Network":
        """Return a network from a graph; multigraphs keep their parallel cables.

        An edge of an undirected graph is a cable, two links; an edge of a directed graph is one
        link. Edge attributes read: `capacity` (text with a unit, or a number in byte/s),
        `latency` (text, or seconds), `routing_cost` (a whole number from 1), `tier`, `alive`,
        `source_port` and `target_port`; in a directed graph also `cable`, a number that both
        directions of a cable share, and `link`, the number of the link, where every edge has one.
        Node attributes read: `kind`, `name`, `endpoint`, `forwards`; any other that is a whole
        number or text on all nodes that have it becomes a tag. None counts as absent.

        Args:
            graph: Any networkx graph without self-loops, its nodes different as text.
            **options: `capacity=`, `latency=`, `routing_cost=`: the attribute that holds it;
                `default_capacity=`: for edges without one; `source=`: what to call it, by default
                the name of the graph.

        Raises:
            ModelError: If a capacity is missing and there is no default, a value is of the wrong
                kind or out of range, or nodes or edges are as above; all faults at once.

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
        """Return a directed multigraph, an edge per link, numbers in byte/s and seconds.

        `from_networkx` reads it back whole: links in order, ports, cables, tags, failed links.
        """
        from fabric.network._networkx import to_networkx

        return to_networkx(self)

    @property
    def labels(self) -> Labels:
        """Names, kinds, tiers and ends; an error where this network has none."""
        if (labels := self.__dict__.get("_labels")) is None:
            message = (
                "This network has no labels: it was made from bare capacities, came out of a JAX "
                "transformation, or was changed by `dataclasses.replace` or `eqx.tree_at`, which "
                "drop them. Use the network that a builder or a reader returned, and change it "
                "with `net.with_capacity(...)` or `net.with_alive(...)`."
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
        nodes: int | str | Iterable[int | str] | AnyArray = (),
        links: int | str | Iterable[int | str] | AnyArray = (),
    ) -> "Network":
        """Return this network with some nodes and cables failed, on the host.

        Args:
            nodes: Nodes by number, id or unique name, or a mask of true and false over all nodes;
                every link at a failed node fails.
            links: Directed links by number or name, as `link_name` gives it, or a mask over all
                links; the other direction of the cable fails with it.

        Raises:
            ModelError: If a node or link is unknown, or a mask has another length.

        Examples:
            >>> import fabric as fb
            >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
            >>> int(net.without(nodes=["spine0"]).alive.sum()), net.n_links
            (8, 12)
            >>> int(net.without(links=["leaf0->spine1"]).alive.sum())
            10
        """
        failed = self._touched("without", nodes, links)
        return self.with_alive(np.asarray(self.alive) & ~failed)

    def degraded(
        self,
        *,
        nodes: int | str | Iterable[int | str] | AnyArray = (),
        links: int | str | Iterable[int | str] | AnyArray = (),
        factor: float = 0.5,
    ) -> "Network":
        """Return this network with less capacity on some cables and at some nodes, on the host.

        Args:
            nodes: As in `without`; every link at a node that is named becomes slower.
            links: As in `without`; the other direction of the cable becomes slower with it.
            factor: What is left of their capacity, more than 0 and up to 1.

        Raises:
            ModelError: If a node or link is unknown, a mask has another length, or the factor is
                out of range.

        Examples:
            >>> import fabric as fb
            >>> net = fb.topologies.single_switch(hosts=2, capacity="400Gb/s")
            >>> (net.degraded(nodes=["host0"], factor=0.25).capacity / 1e9).tolist()
            [12.5, 12.5, 50.0, 50.0]
        """
        if isinstance(factor, bool) or not isinstance(factor, Real) or not 0 < factor <= 1:
            message = (
                f"`degraded(factor={factor!r})` needs a number more than 0 and up to 1, the part "
                f"of the capacity that is left. What carries nothing has failed: use "
                f"`without(nodes=..., links=...)`."
            )
            raise ModelError(message)
        slow = self._touched("degraded", nodes, links)
        capacity = np.asarray(self.capacity)
        return self.with_capacity(np.where(slow, capacity * capacity.dtype.type(factor), capacity))

    def _touched(self, verb: str, nodes: Any, links: Any) -> Bool[np.ndarray, " links"]:
        """Return the links of some cables and at some nodes."""
        labels = self.labels
        given = _several(nodes)
        if not isinstance(given, np.ndarray):
            given = [labels.node(n) if isinstance(n, str) else n for n in given]
        dead = items_of(f"{verb}(nodes=...)", given, self.n_nodes, "nodes")
        named = _several(links)
        if not isinstance(named, np.ndarray):
            where = f"{verb}(links=...)"
            named = [link_of(labels, n, where) if isinstance(n, str) else n for n in named]
        lost = items_of(f"{verb}(links=...)", named, self.n_links, "links")
        cables = labels.cable_of[lost]
        at_node = np.zeros(self.n_nodes, bool)
        at_node[dead] = True
        return np.isin(labels.cable_of, cables) | at_node[labels.src] | at_node[labels.dst]

    def _replace(self, **fields: LinkFloats | LinkBools) -> "Network":
        kept = {
            "capacity": self.capacity,
            "latency": self.latency,
            "alive": self.alive,
            "routing_cost": self.routing_cost,
        }
        return Network(**(kept | fields), labels=self.__dict__.get("_labels"))


def link_of(labels: Labels, name: str, where: str) -> int:
    """Return the link with a name that `link_name` gives.

    Args:
        labels: Of the network.
        name: Of the link, such as "leaf0->spine1", or "leaf0->spine1#1" for the second of parallel
            cables.
        where: The argument as the caller wrote it.

    Raises:
        ModelError: If there is none; the nearest node, or the links between both ends, are offered.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.single_switch(hosts=2)
        >>> net.link_name(link_of(net.labels, "switch->host1", "links"))
        'switch->host1'
    """
    ends = [_BEHIND.sub("", end.strip()) for end in name.split("->")]
    if len(ends) != 2:
        message = (
            f"`{where}`: {quoted(name)} is no link. Write its two ends, 'leaf0->spine1', and '#1' "
            f"behind for the second of parallel cables."
        )
        raise ModelError(message)
    try:
        src, dst = (labels.node(_with_id(labels, end)) for end in ends)
    except ModelError as error:
        message = f"`{where}`: {error}"
        raise ModelError(message) from None
    between = np.flatnonzero((labels.src == src) & (labels.dst == dst)).tolist()
    names = {labels.link_name(link): link for link in between}
    if name.strip() not in names:
        there = f"There are {some(names)}." if names else "There is no cable between the two."
        message = f"`{where}`: {quoted(name)} is no link. {there}"
        raise ModelError(message)
    return names[name.strip()]


_BEHIND = re.compile(r"(\[\d+\]|#\d+)+$")
"""Port and number of a parallel cable, behind the name of a node."""


def _with_id(labels: Labels, end: str) -> str:
    """Return the id in a name that several nodes have, "name(id)", else the name."""
    inner = re.fullmatch(r".*\((.*)\)", end)
    return inner[1] if inner and end not in labels.node_of and inner[1] in labels.node_of else end


def _is_array(values: object) -> TypeGuard[AnyArray]:
    """Return whether values are an array, or stand in for one inside a transformation.

    Such stay as they are, their values unseen; only lists become arrays.
    """
    return hasattr(values, "dtype")


def _floats(
    name: str, values: AnyArray | Sequence[float], faults: list[str], kind: Any = np.float64
) -> AnyArray:
    if not _is_array(values):
        return float_array(name, values, faults=faults).astype(kind)
    given = _dtype(values)
    if given is not None and given.kind in "iu":
        return values.astype(kind)
    if given is not None and given in _FLOATS:  # None would equal float64
        return values
    masked = isinstance(values, np.ma.MaskedArray)
    said = "a masked array" if masked else str(values.dtype)
    fix = "`.filled(...)`" if masked else "`.astype('float64')`"
    faults.append(f"`{name}` needs float32, float64 or integers, but got {said}. Use {fix}.")
    return np.zeros(values.shape, np.float64)


def _costs(
    name: str, values: AnyArray | Sequence[int], faults: list[str], labels: Labels | None
) -> AnyArray:
    """Return routing costs; values on a device are seen only where their type is no integer."""
    if isinstance(values, np.ma.MaskedArray):
        faults.append(f"`{name}` needs whole numbers, but got a masked array. Use `.filled(...)`.")
        return np.ones(values.shape, np.int32)
    known = labels is not None and np.shape(values) == (labels.n_links,)
    link_name = labels.link_name if labels is not None and known else "link {}".format
    if not _is_array(values) or isinstance(values, np.ndarray):
        return cost_array(name, values, faults, link_name)
    if (given := _dtype(values)) is not None and given.kind in "iu":
        return values
    if _is_traced(values):
        faults.append(f"`{name}` needs integers inside a transformation, but got {values.dtype}.")
        return np.ones(values.shape, np.int32)
    return cost_array(name, values, faults, link_name)


def _dtype(values: AnyArray) -> np.dtype | None:
    """Return the type of an array, or None where it is masked or of a type unknown to NumPy."""
    try:
        return None if isinstance(values, np.ma.MaskedArray) else np.dtype(values.dtype)
    except TypeError:
        return None


def _is_traced(values: object) -> bool:
    import jax.core

    return isinstance(values, jax.core.Tracer)


def _shape_faults(
    capacity: AnyArray, latency: AnyArray, alive: AnyArray, cost: AnyArray, labels: Labels | None
) -> list[str]:
    if len(capacity.shape) != 1:
        return [f"`Network(capacity)` needs one value per link, but has shape {capacity.shape}."]
    faults = [
        f"`Network({name})` needs one value for each of {capacity.shape[0]:,} links, but has shape "
        f"{values.shape}."
        for name, values in (("latency", latency), ("alive", alive), ("routing_cost", cost))
        if values.shape != capacity.shape
    ]
    if labels is not None and labels.n_links != capacity.shape[0]:
        faults.append(
            f"`Network(labels)` describe {labels.n_links:,} links, but `Network(capacity)` has "
            f"{capacity.shape[0]:,}. Use `labels.keep_links(kept)`, or labels of these links."
        )
    if isinstance(alive, np.ma.MaskedArray):
        faults.append("`Network(alive)` is a masked array. Use `.filled(False)`.")
    elif alive.dtype != np.bool_:
        faults.append(
            f"`Network(alive)` needs true and false, but got {alive.dtype}. A link that carries "
            f"less has a lower `capacity`."
        )
    return faults


def _several(items: Any) -> Any:
    """Return one item as a list of it, arrays of numbers as they are, other iterables as lists."""
    if hasattr(items, "dtype"):
        array = np.atleast_1d(np.asarray(items))
        return array if array.dtype.kind in "biuf" else array.tolist()
    return [items] if isinstance(items, str) or not hasattr(items, "__iter__") else list(items)
