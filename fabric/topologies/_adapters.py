"""Ways between GPUs and their own adapters, as arcs between private copies of PCIe and sockets.

Traffic of a GPU enters and leaves the fabric over the NIC that its tag `nic` names, by the socket
that `staging` names where there is one, and over no other. GPUs with the same NIC and socket are a
group; each has copies of what it passes, so that no way changes from one adapter to another.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from fabric.network import Labels

_Arcs = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # group, tail, head, link


@dataclass(frozen=True)
class Inside:
    """Live links inside servers, all of them or all turned round: link, tail and head of each."""

    link: Int[np.ndarray, " links"]
    tail: Int[np.ndarray, " links"]
    head: Int[np.ndarray, " links"]

    def turned(self) -> "Inside":
        """Return the same with tails and heads exchanged."""
        return Inside(self.link, self.head, self.tail)


@dataclass(frozen=True)
class Groups:
    """GPUs that share an adapter and a socket.

    Attributes:
        gpu: Those that have an adapter. `of`: (gpus,), the group of each.
        nic: (groups,). `staging`: (groups,), -1 without.
    """

    gpu: Int[np.ndarray, " gpus"]
    of: Int[np.ndarray, " gpus"]
    nic: Int[np.ndarray, " groups"]
    staging: Int[np.ndarray, " groups"]


def groups_of(labels: Labels) -> Groups:
    """Return which GPUs share an adapter and a socket.

    Args:
        labels: With the tag `nic`; where `staging` is missing there is GPUDirect.
    """
    gpu = np.flatnonzero(labels.endpoint & labels.is_kind("gpu") & (labels.tags["nic"] >= 0))
    none = np.full(labels.n_nodes, -1)
    ends = np.stack([labels.tags["nic"][gpu], labels.tags.get("staging", none)[gpu]])
    (nic, staging), of = np.unique(ends.astype(np.int64), axis=1, return_inverse=True)
    return Groups(gpu, of.ravel(), nic, staging)


def ways_out(
    groups: Groups, inside: Inside, passes: Bool[np.ndarray, " nodes"], first: int
) -> tuple[Inside, Int[np.ndarray, " copies"]]:
    """Return the arcs from GPUs to their adapters, and which node each copy on them stands for.

    Only links on a way of fewest links count, since all links of PCIe and sockets cost the same.

    Args:
        groups: As above.
        inside: Links to go by; turned round, they give the ways in, turned round too.
        passes: Which nodes are passed inside a server.
        first: Number of the first copy.
    """
    n = len(passes)
    none = np.full(len(groups.nic), -1)
    stop = groups.staging
    near = np.where(stop < 0, groups.nic, stop)
    # By way of a socket there are two legs, each the shortest.
    begun = groups.of * n + groups.gpu
    legs = [
        (_leg(near, begun, inside, passes), (none, stop)),
        (_leg(groups.nic, np.flatnonzero(stop >= 0) * n + stop[stop >= 0], inside, passes),
         (stop, none)),
    ]  # fmt: skip
    gpu = np.zeros(n, bool)
    gpu[groups.gpu] = True
    ends = gpu.copy()
    ends[groups.nic] = True
    keys, links = [], []
    for number, ((group, tail, head, link), stops) in enumerate(legs):
        for node, own in zip((tail, head), stops, strict=True):
            # The socket between two legs is one node of both.
            leg = np.where(node == own[group], 2, number)
            key = ((leg * len(groups.nic)) + group) * n + node
            keys.append(np.where(ends[node], -1 - node, key))
        links.append(link)
    tails, heads = np.r_[keys[0], keys[2]], np.r_[keys[1], keys[3]]
    found, place = np.unique(np.r_[tails, heads], return_inverse=True)
    copy = found >= 0
    number = np.where(copy, first + np.cumsum(copy) - 1, -1 - found)[place.ravel()]
    tail, head = number[: len(tails)], number[len(tails) :]
    return Inside(np.concatenate(links), tail, head), found[copy] % n


def _leg(
    goal: Int[np.ndarray, " groups"],
    begun: Int[np.ndarray, " starts"],
    inside: Inside,
    passes: Bool[np.ndarray, " nodes"],
) -> _Arcs:
    """Return the arcs on the shortest ways of every group from its starts to its goal.

    Args:
        goal: Node.
        begun: Group times nodes plus node of each start; a group without starts has no arcs.
        inside: As above.
        passes: As above.
    """
    n = len(passes)
    order = np.argsort(inside.head, kind="stable")
    tail, link = inside.tail[order], inside.link[order]
    ptr = np.searchsorted(inside.head[order], np.arange(n + 1))
    todo = np.unique(begun)
    at = np.unique(todo // n)
    at = at * n + goal[at]
    seen, rounds = at, []
    while len(at):
        group, node = np.divmod(at, n)
        count = ptr[node + 1] - ptr[node]
        entry = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - ptr[node], count)
        group, node = np.repeat(group, count), np.repeat(node, count)
        key = group * n + tail[entry]
        starts = np.isin(key, todo)
        new = starts | (passes[tail[entry]] & ~np.isin(key, seen))
        rounds.append((group[new], tail[entry][new], node[new], link[entry][new], starts[new]))
        todo = np.setdiff1d(todo, key[starts])
        at = np.unique(key[new & ~starts])
        at = at[np.isin(at // n, todo // n)]
        seen = np.r_[seen, at]
    kept, live = [], np.zeros(0, np.int64)
    for group, source, node, number, starts in reversed(rounds):
        good = starts | np.isin(group * n + source, live)
        kept.append((group[good], source[good], node[good], number[good]))
        live = (group * n + node)[good]
    none = np.zeros(0, np.int64)
    group, source, node, number = (
        np.concatenate([none, *parts]) for parts in zip(*kept, strict=True)
    ) if kept else (none,) * 4  # fmt: skip
    return group, source, node, number
