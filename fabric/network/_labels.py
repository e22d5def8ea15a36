"""What the nodes and links of a network are called and what they are; host only, NumPy only.

A `Network` carries its labels outside the pytree: no name ever reaches a compiled program, and a
network that comes back out of a transformation has none. Names of large fabrics are made by rule
from a template per kind (`Names`), since a Python string per node costs more than the builder.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, SupportsIndex, overload

import numpy as np
from jaxtyping import Bool, Int

from fabric._errors import ModelError, nearest
from fabric.network._checks import read_only

ENDPOINT_KINDS = ("gpu", "nic", "host")
"""Kinds that send and receive and never carry the traffic of others; finest first."""

SERVICE_KINDS = ("aggregation-node",)
"""Kinds that hang on a switch but are no endpoint of a workload."""

_ARRAYS = (
    "kind_of", "src", "dst", "tier_of", "cable_of", "src_port", "dst_port", "endpoint", "forwards"
)  # fmt: skip


def _by_kind() -> Bool[np.ndarray, " nodes"]:
    """Stand for "as the kinds say" until the labels are made."""
    return np.zeros(0, bool)


class Names(Sequence[str]):
    """Names by rule: blocks of `template.format(*index)`, the index running over a shape.

    Examples:
        >>> names = Names([("leaf{}", (2,)), ("leaf{}-host{}", (2, 2))])
        >>> list(names)
        ['leaf0', 'leaf1', 'leaf0-host0', 'leaf0-host1', 'leaf1-host0', 'leaf1-host1']
    """

    def __init__(self, blocks: Sequence[tuple[str, tuple[int, ...]]]):
        self.blocks = list(blocks)
        sizes = [int(np.prod(shape, dtype=np.int64)) for _, shape in self.blocks]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    @overload
    def __getitem__(self, index: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = int(index)
        if not -len(self) <= i < len(self):
            message = f"name {i} of {len(self)}"
            raise IndexError(message)
        i %= len(self)
        block = int(np.searchsorted(self._starts, i, side="right")) - 1
        template, shape = self.blocks[block]
        return template.format(*np.unravel_index(i - int(self._starts[block]), shape))

    def __iter__(self) -> Iterator[str]:
        for template, shape in self.blocks:
            for index in itertools.product(*map(range, shape)):
                yield template.format(*index)


@dataclass(frozen=True)
class Labels:
    """Names, kinds, tags and ends of nodes and links.

    Nodes:
        kinds, kind_of: the kind of each node is `kinds[kind_of[node]]`.
        names: what a person calls a node; may repeat. `ids`: what identifies it; never repeats.
        tags: node attributes such as `pod`, `rail`, `leaf`, `server`: arrays over nodes, whole
            numbers with -1 for "has none", or text with "" for "has none".
        endpoint: nodes that send and receive. `forwards`: nodes that carry others' traffic.

    Links, all directed:
        src, dst: node at the sending and the receiving end.
        tiers, tier_of: the tier of each link is `tiers[tier_of[link]]`.
        cable_of: links of one cable share a number.
        src_port, dst_port: port numbers at both ends, 0 where unknown.

    Endpoint and forwarding default by kind: the finest of gpu, nic and host that occurs sends
    and receives; none of these forwards. Where no such kind occurs (a wide-area graph), every
    node does both. Arrays are copied unless they are read-only already, and refuse writes: networks
    share their labels.

    About the whole:
        source: what was built or read, in words. `about`: facts by name, for example
            {"cluster": "dgx-h100", "gpu": "h100-sxm", "routing": "spray"}.
    """

    kinds: tuple[str, ...]
    kind_of: Int[np.ndarray, " nodes"]
    names: Sequence[str]
    src: Int[np.ndarray, " links"]
    dst: Int[np.ndarray, " links"]
    tiers: tuple[str, ...]
    tier_of: Int[np.ndarray, " links"]
    cable_of: Int[np.ndarray, " links"]
    ids: Sequence[str] | None = None
    tags: Mapping[str, np.ndarray] = field(default_factory=dict)
    src_port: Int[np.ndarray, " links"] | None = None
    dst_port: Int[np.ndarray, " links"] | None = None
    endpoint: Bool[np.ndarray, " nodes"] = field(default_factory=_by_kind)
    forwards: Bool[np.ndarray, " nodes"] = field(default_factory=_by_kind)
    source: str = ""
    about: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        finest = next((kind for kind in ENDPOINT_KINDS if kind in self.present_kinds), None)
        passive = ENDPOINT_KINDS + SERVICE_KINDS
        if not len(self.endpoint):
            endpoint = self.is_kind(finest) if finest else ~self.is_kind(*SERVICE_KINDS)
            object.__setattr__(self, "endpoint", endpoint)
        if not len(self.forwards):
            object.__setattr__(self, "forwards", ~self.is_kind(*passive))
        self._freeze()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._freeze()  # copies and pickles of arrays come back writeable

    def _freeze(self) -> None:
        for name in _ARRAYS:
            object.__setattr__(self, name, read_only(getattr(self, name)))
        tags = {tag: read_only(values) for tag, values in self.tags.items()}
        object.__setattr__(self, "tags", tags)
        object.__setattr__(self, "about", dict(self.about))

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.kind_of)

    @property
    def n_links(self) -> int:
        """Number of directed links."""
        return len(self.src)

    @functools.cached_property
    def present_kinds(self) -> tuple[str, ...]:
        """Kinds that at least one node has, in the order of `kinds`."""
        counts = np.bincount(self.kind_of, minlength=len(self.kinds))
        return tuple(kind for kind, n in zip(self.kinds, counts, strict=True) if n)

    @functools.cached_property
    def node_of(self) -> dict[str, int]:
        """Node by id, and by name where the name is given once."""
        by_name: dict[str, int] = {}
        for node, name in enumerate(self.names):
            by_name[name] = -1 if name in by_name else node
        found = {name: node for name, node in by_name.items() if node >= 0}
        if self.ids is not None:
            found |= {identity: node for node, identity in enumerate(self.ids)}
        return found

    def is_kind(self, *kinds: str) -> Bool[np.ndarray, " nodes"]:
        """Return which nodes have one of these kinds."""
        codes = [code for code, kind in enumerate(self.kinds) if kind in kinds]
        return np.isin(self.kind_of, codes)

    def is_tier(self, tier: str) -> Bool[np.ndarray, " links"]:
        """Return which links belong to a tier; the error for an unknown one offers the nearest."""
        if tier not in self.tiers:
            message = f"This network has no tier '{tier}'. {nearest(tier, self.tiers)}"
            raise ModelError(message)
        return self.tier_of == self.tiers.index(tier)

    def node(self, name: str) -> int:
        """Return the node with this id, or with this name where only one has it."""
        if name not in self.node_of:
            why = (
                "is the name of several nodes; use an id"
                if name in set(self.names)
                else "is no node"
            )
            message = (
                f"'{name}' {why} of this network. {nearest(name, list(self.node_of)[:10_000])}"
            )
            raise ModelError(message)
        return self.node_of[name]

    def node_name(self, node: int) -> str:
        """Return the name of a node, with its id, or its number, where several nodes have it."""
        name = self.names[node]
        if name not in self._repeated:
            return name
        return f"{name}({node if self.ids is None else self.ids[node]})"

    def link_name(self, link: int) -> str:
        """Return a name for one directed link that no other link of this network has.

        Ends that share a name carry their ids, and later links between the same ends and ports a
        number. Only names that hold `->`, `#` or brackets themselves may still look alike.
        """
        ends = [self.node_name(int(self.src[link])), self.node_name(int(self.dst[link]))]
        if self.src_port is not None and self.dst_port is not None and self.src_port[link]:
            ends[0] += f"[{self.src_port[link]}]"
            ends[1] += f"[{self.dst_port[link]}]"
        twin = int(self._twin[link])
        return "->".join(ends) + (f"#{twin}" if twin else "")

    @functools.cached_property
    def _repeated(self) -> frozenset[str]:
        """Names that several nodes have."""
        return frozenset(name for name, times in Counter(self.names).items() if times > 1)

    @functools.cached_property
    def _twin(self) -> np.ndarray:
        """Position of each link among the links with the same two ends and ports, from 0."""
        ends = [self.src, self.dst]
        if self.src_port is not None and self.dst_port is not None:
            # The name shows ports only where that of the sending end is known.
            ends += [self.src_port, np.where(self.src_port != 0, self.dst_port, 0)]
        order = np.lexsort((np.arange(self.n_links), *ends))
        sorted_ends = np.array([end[order] for end in ends])
        changes = np.any(sorted_ends[:, 1:] != sorted_ends[:, :-1], axis=0)
        starts = np.flatnonzero(np.r_[True, changes])[: len(order)]
        position = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
        twin = np.empty(self.n_links, np.int64)
        twin[order] = position
        return twin

    def keep_links(self, kept: Bool[np.ndarray, " links"]) -> "Labels":
        """Return the labels with only some of the links."""
        ports = {
            port: None if (values := getattr(self, port)) is None else values[kept]
            for port in ("src_port", "dst_port")
        }
        ends = {name: getattr(self, name)[kept] for name in ("src", "dst", "tier_of", "cable_of")}
        return replace(self, **ends, **ports)
