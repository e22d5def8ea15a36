"""What can fail: cables, NICs, switches, servers and other components of a network."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Int

from fabric._errors import ModelError, nearest
from fabric.network import ENDPOINT_KINDS, SERVICE_KINDS, Network
from fabric.topologies import INSIDE_KINDS

Ids = Int[np.ndarray, " _"]

WORDS = ("link", "switch", "nic", "server")
"""Kinds of components that every network may have, besides kinds of nodes, tiers and tags."""


@dataclasses.dataclass(frozen=True, eq=False)
class Components:
    """Components of one kind, each of which may fail as a whole.

    Attributes:
        network: What they are part of.
        kind: What they are.
        ptr: (components + 1,). The items of component i are `item[ptr[i]:ptr[i + 1]]`.
        item: Directed links where `of_links`, else nodes.
        of_links: Whether items are links.
        tag: The tag whose value the components are, "" where they are cables or nodes.
        value: (components,), of the tag.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
        >>> switches = components(net, "switch")
        >>> len(switches), switches.name(3), int(switches.failed(3).alive.sum())
        (4, 'spine1', 8)
    """

    network: Network
    kind: str
    ptr: Ids
    item: Ids
    of_links: bool
    tag: str = ""
    value: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def items(self, component: int) -> Ids:
        """Return the links or nodes of a component."""
        return self.item[self.ptr[component] : self.ptr[component + 1]]

    def name(self, component: int) -> str:
        """Return what a person calls a component."""
        labels, first = self.network.labels, int(self.item[self.ptr[component]])
        if self.tag:
            return f"{self.tag} {self.value[component]}"
        if self.of_links:
            return " - ".join(labels.link_name(first).split("->"))
        return labels.node_name(first)

    def find(self, component: int | str) -> int:
        """Return the number of a component, from its number or its name.

        Raises:
            ModelError: If there is none; the nearest name is offered.
        """
        if not isinstance(component, str):
            if 0 <= component < len(self):
                return int(component)
            message = (
                f"There is no component {component} of kind '{self.kind}': they are numbered "
                f"from 0 to {len(self) - 1:,}."
            )
            raise ModelError(message)
        if not self.tag and not self.of_links and component in self.network.labels.node_of:
            found = np.flatnonzero(self.item == self.network.labels.node(component))
            if len(found):
                return int(found[0])
        for number in range(len(self)):
            if self.name(number) == component:
                return number
        known = [self.name(number) for number in range(min(len(self), 10_000))]
        message = (
            f"'{component}' is no component of kind '{self.kind}'. {nearest(component, known)}"
        )
        raise ModelError(message)

    def failed(self, component: int) -> Network:
        """Return the network without a component."""
        items = self.items(component)
        return self.network.without(**{"links" if self.of_links else "nodes": items})

    def degraded(self, component: int, factor: float) -> Network:
        """Return the network with only a part of the capacity of a component."""
        items = self.items(component)
        return self.network.degraded(
            factor=factor, **{"links" if self.of_links else "nodes": items}
        )


def components(network: Network, kind: str) -> Components:
    """Return the components of a kind that still work.

    Args:
        network: With labels.
        kind: "link", every cable; "switch", every node of the fabric that forwards; "nic", every
            node that is the NIC of a GPU; "server", everything with the same tag `server`; a kind
            of nodes, such as "gpu", "leaf" or "nvswitch"; a tier, the cables in it; or a tag, such
            as "plane" or "pod", all nodes that share a value of it. A name that is several of
            these is the first.

    Returns:
        Components in the order of their first item; those that have no live link are left out.

    Raises:
        ModelError: If the network has nothing of this kind; the nearest is offered.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=3)
        >>> [len(components(net, kind)) for kind in ("link", "switch", "leaf-spine", "host")]
        [10, 4, 4, 6]
    """
    labels = network.labels
    live = np.asarray(network.alive)
    if kind == "link" or (kind in labels.tiers and kind not in labels.present_kinds):
        return _cables(network, kind, live if kind == "link" else live & labels.is_tier(kind))
    chosen = _nodes(network, kind)
    if chosen is not None:
        connected = np.zeros(network.n_nodes, bool)
        connected[labels.src[live]] = connected[labels.dst[live]] = True
        nodes = np.flatnonzero(chosen & connected)
        ptr = np.arange(len(nodes) + 1)
        found = Components(network, kind, ptr, nodes, of_links=False)
    elif kind in labels.tags:
        found = _tagged(network, kind, live)
    else:
        known = dict.fromkeys(
            (*_present(network), *labels.present_kinds, *labels.tiers, *labels.tags)
        )
        message = f"This network has no component of kind '{kind}'. {nearest(kind, list(known))}"
        raise ModelError(message)
    if not len(found):
        message = f"No component of kind '{kind}' has a live link, so none can fail."
        raise ModelError(message)
    return found


def servers_of(network: Network) -> Int[np.ndarray, " nodes"]:
    """Return the server that each node is in, -1 where it is in none."""
    server = network.labels.tags.get("server")
    if server is None:
        return np.full(network.n_nodes, -1)
    if server.dtype.kind in "US":
        found, number = np.unique(server, return_inverse=True)
        return number - int(len(found) > 0 and found[0] == "")
    return server.astype(np.int64)


def _present(network: Network) -> list[str]:
    return [
        word
        for word in WORDS
        if word == "link" or (word in network.labels.tags) or _nodes(network, word) is not None
    ]


def _nodes(network: Network, kind: str) -> Bool[np.ndarray, " nodes"] | None:
    """Return which nodes are of a kind, None where it is no kind of nodes."""
    labels = network.labels
    if kind == "switch":
        passive = (*ENDPOINT_KINDS, *SERVICE_KINDS, *INSIDE_KINDS)
        chosen = np.asarray(labels.forwards) & ~np.asarray(labels.endpoint)
        chosen &= ~labels.is_kind(*passive)
        return chosen if chosen.any() else None
    if kind == "nic" and "nic" in labels.tags:
        nic_of = labels.tags["nic"]
        chosen = np.zeros(network.n_nodes, bool)
        chosen[nic_of[nic_of >= 0]] = True
        return chosen
    return labels.is_kind(kind) if kind in labels.present_kinds else None


def _cables(network: Network, kind: str, live: Bool[np.ndarray, " links"]) -> Components:
    links = np.flatnonzero(live)
    if not len(links):
        message = f"No component of kind '{kind}' has a live link, so none can fail."
        raise ModelError(message)
    cable = network.labels.cable_of[links]
    ptr, order = _grouped(cable)
    return Components(network, kind, ptr, links[order], of_links=True)


def _tagged(network: Network, tag: str, live: Bool[np.ndarray, " links"]) -> Components:
    labels = network.labels
    values = labels.tags[tag]
    given = values != "" if values.dtype.kind in "US" else values >= 0
    connected = np.zeros(network.n_nodes, bool)
    connected[labels.src[live]] = connected[labels.dst[live]] = True
    nodes = np.flatnonzero(given)
    found, group = np.unique(values[nodes], return_inverse=True)
    working = np.bincount(group, connected[nodes], minlength=len(found)) > 0
    kept = working[group]
    nodes = nodes[kept]
    _, group = np.unique(group[kept], return_inverse=True)
    order = np.argsort(group, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=int(working.sum())))])
    return Components(network, tag, ptr, nodes[order], False, tag, found[working])


def _grouped(key: Ids) -> tuple[Ids, Ids]:
    """Return (ptr, order) of items with equal keys, groups by their first item."""
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first, kind="stable"), kind="stable")[group]
    order = np.argsort(rank, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(rank, minlength=len(first)))])
    return ptr, order
