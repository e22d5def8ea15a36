"""Symmetric instances: all-to-all in groups of servers on the rails of a GPU cluster.

Unit of capacity and rate: GB/s; a port of 400 Gb/s is 50. Links are directed.
"""

from typing import NamedTuple

import numpy as np

from experiments.bench.instances import PORT, Instance, below, routed


class Rails(NamedTuple):
    """Every rail is a leaf-spine of its own; groups of servers exchange all to all on each rail.

    GPU r of every server is on rail r. A flow to another leaf takes the spine that has the number
    of its source within its leaf. Links in order: GPU to leaf and leaf to GPU by GPU, leaf to spine
    and spine to leaf by leaf and spine, GPU to NVLink and back (which carry nothing) by GPU.
    """

    servers: int = 8192
    rails: int = 8
    servers_per_leaf: int = 32
    servers_per_group: int = 64

    @property
    def n_gpus(self) -> int:
        return self.servers * self.rails

    def up(self, leaf: int, spine: int) -> int:
        """Return the link from a leaf (numbered rail by rail) to a spine of its rail."""
        return 2 * self.n_gpus + leaf * self.servers_per_leaf + spine

    def build(self, slow: tuple[int, ...] = (), *, hashed: bool = False) -> Instance:
        """Return the instance.

        Args:
            slow: Links at half speed.
            hashed: Whether every flow takes a spine of its own choice, by a hash.
        """
        n, each, group = self.n_gpus, self.servers_per_leaf, self.servers_per_group
        gpu = np.arange(n, dtype=np.int32)  # rail by rail
        server = gpu % self.servers
        first = gpu - server % group
        others = np.arange(group - 1, dtype=np.int32)
        # All members of the group but the source itself.
        dst = first[:, None] + others + (others >= (server % group)[:, None])
        leaf = gpu // each
        spine = np.broadcast_to(server[:, None] % each, dst.shape)
        if hashed:
            spine = below(each, 41, dst.size).astype(np.int32).reshape(dst.shape)
        paths = np.full((n, group - 1, 4), -1, np.int32)
        paths[..., 0] = gpu[:, None]
        paths[..., 3] = n + dst
        away = leaf[:, None] != leaf[dst]
        up = 2 * n + leaf[:, None] * each + spine
        down = 3 * n + leaf[dst] * each + spine
        paths[..., 1] = np.where(away, up, -1)
        paths[..., 2] = np.where(away, down, -1)
        capacity = np.full(6 * n, PORT)
        capacity[4 * n :] = 9 * PORT
        capacity[list(slow)] /= 2
        return routed(capacity, paths.reshape(-1, 4))
