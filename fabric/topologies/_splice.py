"""Insides of servers put into a network, behind those that it has already."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from fabric._errors import ModelError, some
from fabric.network import Labels, Names, Network
from fabric.topologies._inside import INSIDE_KINDS


@dataclass(frozen=True)
class Front:
    """What a network holds of servers: its first nodes and links, and how many servers."""

    nodes: int
    links: int
    servers: int


def front_of(network: Network) -> Front:
    """Return the insides of servers that a network begins with.

    Raises:
        ModelError: If it has GPUs that `attach_servers` did not put there.
    """
    labels = network.labels
    inside = labels.is_kind("gpu", *INSIDE_KINDS)
    touched = inside[labels.src] | inside[labels.dst]
    nodes, links = int(inside.sum()), int(touched.sum())
    if not nodes:
        return Front(0, 0, 0)
    lacking = [tag for tag in ("server", "slot", "nic", "rail") if tag not in labels.tags]
    if lacking or not inside[:nodes].all() or not touched[:links].all():
        what = f"lack the tags {some(lacking)}" if lacking else "are not its first nodes and links"
        message = (
            f"`attach_servers(fabric)` has GPUs already, but they {what}, so others cannot be "
            f"numbered on. Give the fabric of the NICs, or a network that `attach_servers` made."
        )
        raise ModelError(message)
    return Front(nodes, links, int(labels.tags["server"].max()) + 1)


def spliced(
    fabric: Network,
    front: Front,
    inside: Network,
    of_gpu: Mapping[str, Int[np.ndarray, " gpus"]],
    nics: Int[np.ndarray, "servers nics"],
    names: Sequence[str] | None,
    *,
    about: Mapping[str, str],
    source: str,
) -> Network:
    """Return a network with the insides of more servers, behind those that it begins with.

    Args:
        fabric: With labels.
        front: What of servers it begins with.
        inside: The new insides, and `of_gpu`, the tags of its GPUs; see `insides`.
        of_gpu: As above.
        nics: (servers, nics of a server), node numbers in the fabric.
        names: What each new server is called. Default: `server0`, `server1`, ...
        about: Facts to add.
        source: What was built.
    """
    labels = replace(
        _joined(inside.labels, fabric.labels, front, names),
        tags=_tags(inside.labels, fabric.labels, front, nics, of_gpu),
        about={
            **{key: fact for key, fact in fabric.labels.about.items() if key not in about}, **about
        },
        source=source,
    )  # fmt: skip
    fields = ("capacity", "latency", "alive", "routing_cost")
    both = [(np.asarray(getattr(fabric, f)), np.asarray(getattr(inside, f))) for f in fields]
    return Network(*(_put(old, new, front.links) for old, new in both), labels=labels)


def _put(old: np.ndarray, new: np.ndarray, at: int) -> np.ndarray:
    """Return values with others put in at a position."""
    return np.concatenate([old[:at], new, old[at:]])


def _joined(inside: Labels, fabric: Labels, front: Front, called: Sequence[str] | None) -> Labels:
    """Return the labels of both without tags."""
    kinds, of_new, of_old = _codes(inside.kinds, inside.kind_of, fabric.kinds, fabric.kind_of)
    tiers, tier_new, tier_old = _codes(inside.tiers, inside.tier_of, fabric.tiers, fabric.tier_of)
    new = inside.names if called is None else _called(inside.names, called)
    n, at = inside.n_nodes, front.links
    later = lambda nodes: nodes + np.where(nodes < front.nodes, 0, n).astype(np.int32)
    own = lambda nodes: nodes + np.where(nodes < n, front.nodes, 0).astype(np.int32)
    unknown = np.zeros(inside.n_links, np.int32)
    port = lambda values: None if values is None else _put(values, unknown, at)
    first = int(fabric.cable_of[:at].max(initial=-1)) + 1
    behind = np.where(np.arange(fabric.n_links) < at, 0, inside.n_links // 2)
    return Labels(
        kinds=kinds,
        kind_of=_put(of_old, of_new, front.nodes),
        names=_names(new, fabric.names, front.nodes),
        ids=None if fabric.ids is None else _ids(new, fabric.ids, front.nodes),
        src=_put(later(fabric.src), own(inside.src), at),
        dst=_put(later(fabric.dst), own(inside.dst), at),
        tiers=tiers,
        tier_of=_put(tier_old, tier_new, at),
        cable_of=_put(fabric.cable_of + behind, inside.cable_of + first, at).astype(np.int32),
        endpoint=_put(_gpus(fabric, front), inside.endpoint, front.nodes),
        forwards=_put(np.asarray(fabric.forwards), np.asarray(inside.forwards), front.nodes),
        src_port=port(fabric.src_port),
        dst_port=port(fabric.dst_port),
    )


def _gpus(fabric: Labels, front: Front) -> np.ndarray:
    """Return which nodes of the fabric are endpoints still: GPUs that it has."""
    return np.asarray(fabric.endpoint) & (np.arange(fabric.n_nodes) < front.nodes)


def _codes(
    words: Sequence[str], of: np.ndarray, more: Sequence[str], more_of: np.ndarray
) -> tuple[tuple[str, ...], Int[np.ndarray, " items"], Int[np.ndarray, " others"]]:
    """Return the words of two lists, each once, and the codes of both."""
    known = tuple(dict.fromkeys((*words, *more)))
    code = np.array([known.index(word) for word in more], np.int32)
    return known, of.astype(np.int32), code[more_of]


def _called(names: Sequence[str], called: Sequence[str]) -> Names:
    """Return names by rule that begin with what each server is called."""
    blocks = names.blocks if isinstance(names, Names) else []
    plain = [name.replace("{", "{{").replace("}", "}}") for name in called]
    return Names(
        [
            (template.replace("server{}", name, 1), tuple(rest))
            for template, (_, *rest) in blocks
            for name in plain
        ]
    )


def _names(inside: Sequence[str], fabric: Sequence[str], at: int) -> Sequence[str]:
    if isinstance(inside, Names) and isinstance(fabric, Names):
        ends = np.cumsum([0] + [int(np.prod(shape)) for _, shape in fabric.blocks])
        if at in ends:
            block = int(np.searchsorted(ends, at))
            return Names([*fabric.blocks[:block], *inside.blocks, *fabric.blocks[block:]])
    return [*fabric[:at], *inside, *fabric[at:]]


def _ids(inside: Sequence[str], fabric: Sequence[str], at: int) -> list[str]:
    if taken := set(inside) & set(fabric):
        message = (
            f"`attach_servers(names)` makes names that the fabric has as ids already: "
            f"{some(sorted(taken))}. Give other `names`."
        )
        raise ModelError(message)
    return [*fabric[:at], *inside, *fabric[at:]]


def _tags(
    inside: Labels,
    fabric: Labels,
    front: Front,
    nics: Int[np.ndarray, "servers nics"],
    of_gpu: Mapping[str, Int[np.ndarray, " gpus"]],
) -> dict[str, np.ndarray]:
    """Return the tags of all nodes: those of the fabric, and what its GPUs and NICs are."""
    n, n_gpus, at = inside.n_nodes, len(of_gpu["nic"]), front.nodes
    none = lambda dtype: -1 if dtype.kind == "i" else ""
    nic_of_gpu = of_gpu["nic"] - n
    tags = {}
    for name, values in fabric.tags.items():
        new = np.full(n, none(values.dtype), values.dtype)
        new[:n_gpus] = values[nic_of_gpu]
        if name in ("nic", "staging"):  # they hold numbers of nodes
            values = np.where(values < at, values, values + n)
        tags[name] = _put(values, new, at)
    known = tags.get("rail", np.full(at + n, -1))[at : at + n_gpus]
    kept = known.dtype.kind == "i" and bool((known >= 0).all())
    for name, values in of_gpu.items():
        if name == "rail" and kept:
            continue
        tags.setdefault(name, np.full(n + fabric.n_nodes, -1, np.int32))
        tags[name] = tags[name].astype(np.int32)
        nodes = name == "staging"  # its sockets are among the new ones
        tags[name][at : at + n_gpus] = np.where(nodes & (values >= 0), values + at, values)
    first = int(inside.tags["slot"].max()) + 1
    for name, values, base in (
        ("server", np.arange(len(nics))[:, None], front.servers),
        ("slot", first + np.arange(nics.shape[1]), 0),
    ):
        old = np.full(fabric.n_nodes, -1, np.int32)
        if front.servers:
            old[:] = fabric.tags[name]
        old[nics] = np.broadcast_to(values + base, nics.shape)
        tags[name] = _put(old, inside.tags[name] + base, at)
    return tags
