"""The golden instances: permutation traffic on Clos fabrics, and one chain, made from numbers.

Unit of capacity and rate: GB/s; a port of 400 Gb/s is 50. Links are directed. Every random number
is the splitmix64 hash of (stream, counter), so an instance is the same on every machine and NumPy.
The tests pin each by its `digest`, and its rates.
"""

import hashlib
from typing import NamedTuple

import numpy as np

PORT = 50.0

Instance = dict[str, np.ndarray]


class LeafSpine(NamedTuple):
    """Two tiers. Links in order: host up, host down, leaf to spine, spine to leaf."""

    leaves: int
    hosts_per_leaf: int
    spines: int
    permutations: int
    seed: int

    def build(self) -> Instance:
        n_hosts = self.leaves * self.hosts_per_leaf
        n_uplinks = self.leaves * self.spines
        src, dst = permutations(n_hosts, self.permutations, self.seed)
        spine = below(self.spines, 1000 * self.seed + 900, len(src))
        src_leaf, dst_leaf = src // self.hosts_per_leaf, dst // self.hosts_per_leaf
        up = 2 * n_hosts + src_leaf * self.spines + spine
        down = 2 * n_hosts + n_uplinks + dst_leaf * self.spines + spine
        path = np.stack([src, up, down, n_hosts + dst], axis=1)
        path[src_leaf == dst_leaf, 1:3] = -1
        return routed(np.full(2 * n_hosts + 2 * n_uplinks, PORT), path)


class FatTree(NamedTuple):
    """Three tiers of k-port switches, k^3/4 hosts; each of the six kinds of link is that many.

    Links in order: host up, host down, edge to aggregation, aggregation to edge, aggregation to
    core, core to aggregation.
    """

    ports: int
    permutations: int
    seed: int

    def build(self) -> Instance:
        half = self.ports // 2
        n = half * half * self.ports
        src, dst = permutations(n, self.permutations, self.seed)
        aggregation = below(half, 1000 * self.seed + 900, len(src))
        core = below(half, 1000 * self.seed + 901, len(src))

        def edge_link(host: np.ndarray) -> np.ndarray:
            return host // half * half + aggregation

        def core_link(host: np.ndarray) -> np.ndarray:
            return (host // half**2 * half + aggregation) * half + core

        path = np.stack(
            [
                src,
                2 * n + edge_link(src),
                4 * n + core_link(src),
                5 * n + core_link(dst),
                3 * n + edge_link(dst),
                n + dst,
            ],
            axis=1,
        )
        path[src // half == dst // half, 1:5] = -1
        path[src // half**2 == dst // half**2, 2:4] = -1
        return routed(np.full(6 * n, PORT), path)


class Uneven(NamedTuple):
    """Another instance with each capacity times a number from 0.5 to 1.5: hardly a tie is left."""

    of: LeafSpine | FatTree
    seed: int

    def build(self) -> Instance:
        even = self.of.build()
        factor = 0.5 + uniform(1000 * self.seed + 950, len(even["capacity"]))
        return even | {"capacity": even["capacity"] * factor}


class Chain(NamedTuple):
    """A row of links: flow i crosses links i and i + 1, then comes one flow per link.

    Link i can be settled only after link i - 1, so every round of local minima settles one link.
    """

    links: int

    def build(self) -> Instance:
        index = np.arange(self.links)
        capacity = np.where(index == 0, 1.0, 3.0 * (index + 0.5))
        two = np.stack([index[:-1], index[1:]], axis=1)
        one = np.stack([index, np.full(self.links, -1)], axis=1)
        return routed(capacity, np.concatenate([two, one]))


_LEAF_SPINE = {
    "ls-24": LeafSpine(4, 6, 2, permutations=1, seed=15),
    "ls-1k": LeafSpine(32, 32, 32, permutations=1, seed=11),
    "ls-10k": LeafSpine(64, 32, 32, permutations=5, seed=12),
    "ls-100k": LeafSpine(64, 32, 32, permutations=50, seed=13),
    "ls-1m": LeafSpine(64, 32, 32, permutations=500, seed=14),
}
_FAT_TREE = {
    "ft-1k": FatTree(16, permutations=1, seed=21),
    "ft-10k": FatTree(34, permutations=1, seed=22),
    "ft-100k": FatTree(74, permutations=1, seed=23),
    "ft-1m": FatTree(160, permutations=1, seed=24),
}
_EVEN = _LEAF_SPINE | _FAT_TREE
CATALOGUE = (
    _EVEN | {f"{name}-het": Uneven(of, seed=31) for name, of in _EVEN.items()}
    | {"chain-1k": Chain(1000)}
)  # fmt: skip


def instance(name: str) -> Instance:
    """Return `capacity` (links,), `flow_ptr` (flows + 1,) and `flow_links` (hops,) by name."""
    return CATALOGUE[name].build()


def digest(made: Instance) -> str:
    """Return the first 16 hex digits of SHA-256 over capacity, flow_ptr and flow_links."""
    columns = (("capacity", "<f8"), ("flow_ptr", "<i8"), ("flow_links", "<i4"))
    data = b"".join(np.ascontiguousarray(made[key], dtype).tobytes() for key, dtype in columns)
    return hashlib.sha256(data).hexdigest()[:16]


def routed(capacity: np.ndarray, path: np.ndarray) -> Instance:
    """Return an instance from one row of links per flow, -1 where a path is shorter."""
    crossed = path >= 0
    ptr = np.concatenate([[0], np.cumsum(crossed.sum(axis=1))])
    return {
        "capacity": capacity,
        "flow_ptr": ptr.astype(np.int64),
        "flow_links": path[crossed].astype(np.int32),
    }


def permutations(n: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return source and destination of `count` permutations of n hosts, one after another."""
    images = [derangement(1000 * seed + 1 + i, n) for i in range(count)]
    return np.tile(np.arange(n), count), np.concatenate(images)


def derangement(stream: int, n: int) -> np.ndarray:
    """Return a permutation of n items that moves every one.

    Items are ordered by their hash. Those that stay in place then trade with their right
    neighbour, in ascending order; a pair of neighbours that both stayed trades twice.
    """
    image = np.argsort(splitmix64(stream, n), kind="stable")
    for i in np.flatnonzero(image == np.arange(n)):
        image[[i, (i + 1) % n]] = image[[(i + 1) % n, i]]
    return image


def below(limit: int, stream: int, n: int) -> np.ndarray:
    """Return n integers from 0 to limit - 1."""
    return np.floor(uniform(stream, n) * limit).astype(np.int64)


def uniform(stream: int, n: int) -> np.ndarray:
    """Return n numbers from 0 to 1, 1 excluded: the upper 53 bits of each hash."""
    return np.ldexp((splitmix64(stream, n) >> np.uint64(11)).astype(np.float64), -53)


def splitmix64(stream: int, n: int) -> np.ndarray:
    """Return the hashes of counters 1 to n of a stream, 64 bits each."""
    golden = 0x9E3779B97F4A7C15
    start = scrambled(np.array([(stream * golden + 0x1234567) % 2**64], np.uint64))
    return scrambled(start + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(golden))


def scrambled(bits: np.ndarray) -> np.ndarray:
    """Return the finaliser of splitmix64 (Steele, Lea and Flood 2014); arrays wrap at 2^64."""
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return bits ^ bits >> np.uint64(31)
