"""What `joint` is asked: options in range, and the servers of an allocation."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from fabric._errors import InfeasibleError, ModelError, nearest, raise_faults, some
from fabric.network import Network, is_whole, whole_or_fault
from fabric.optimize._layout import RECOMPUTE, is_share
from fabric.optimize._layout_space import asked_of
from fabric.optimize._layout_wires import inside_servers
from fabric.optimize._path_sets import PATHS
from fabric.optimize._placement_input import nodes_of, working
from fabric.routing._servers import has_servers
from fabric.training import Model


class Asked(NamedTuple):
    """What was asked, in plain types."""

    gbs: int
    seq: int
    swaps: int
    steps: int
    seed: int
    sizes: dict[str, int]
    orders: tuple[tuple[str, ...], ...]


def check(
    network: object, model: object, gbs: Any, seq: Any, dtype: Any, schedule: Any,
    recompute: object, rank_orders: object, limits: object, least_margin: Any, gpus: object,
    paths: Any, swaps: object, steps: object, tolerance: Any, seed: object,
) -> Asked:  # fmt: skip
    """Return what is in range, or raise one error with all faults."""
    faults: list[str] = []
    if not isinstance(network, Network) or not has_servers(network):
        faults.append(
            "`joint(network)` needs servers with GPUs, whose places it exchanges. Use "
            "`topologies.cluster(...)`, or `topologies.attach_servers(...)` on this network."
        )
    if not isinstance(model, Model):
        faults.append(
            f"`joint(model=...)` needs `Model.listed('llama-3.1-70b')` or "
            f"`readers.hf_config(path)`, but got {type(model).__name__}."
        )
    if recompute not in RECOMPUTE:
        faults.append(f"`joint(recompute={recompute!r})`: {nearest(str(recompute), RECOMPUTE)}")
    sizes, orders = asked_of(model, gbs, seq, dtype, schedule, limits, rank_orders, faults)
    swaps, steps = whole_or_fault("swaps", swaps, faults), whole_or_fault("steps", steps, faults)
    seed = whole_or_fault("seed", seed, faults, 0, 2**63 - 1)
    if gpus is not None:
        whole_or_fault("gpus", gpus, faults)
    for name, share in (("tolerance", tolerance), ("least_margin", least_margin)):
        if not is_share(share):
            faults.append(f"`{name}` needs a share from 0 to below 1, but got {share!r}.")
    if not (is_whole(paths) and paths >= 1) and paths not in PATHS:
        faults.append(
            f"`paths` needs 'shortest', 'transit' or a number of paths from 1, but got {paths!r}."
        )
    raise_faults(faults)
    return Asked(int(gbs), int(seq), swaps, steps, seed, sizes, orders)


def servers_of(network: Network, allocation: object) -> Int[np.ndarray, "servers gpus"]:
    """Return the GPUs of the allocation by server, servers in the order of their first GPU."""
    labels, up = network.labels, _wired(network)
    server_of = labels.tags["server"]
    if allocation is None:
        size = np.bincount(server_of[network.hosts])
        live = np.bincount(server_of[network.hosts], up[network.hosts], len(size))
        whole = (live == size) & (size == size.max())
        nodes = network.hosts[whole[server_of[network.hosts]]]
    else:
        nodes = nodes_of(network, allocation, "joint")
    if len(down := nodes[~up[nodes]]):
        message = (
            f"`joint(allocation)` has GPUs that no live link joins to a switch each way: "
            f"{some(down.tolist(), name=labels.node_name)}. Leave their servers out."
        )
        raise InfeasibleError(message)
    server = server_of[nodes]
    _, first, of, size = np.unique(
        server, return_index=True, return_inverse=True, return_counts=True
    )
    if not len(size):
        message = "`joint(allocation)` needs GPUs of one server at least, but has none."
        raise InfeasibleError(message)
    if size.min() < size.max():
        message = (
            f"`joint(allocation)` needs as many GPUs of every server, but has {size.min()} to "
            f"{size.max()} of {len(size):,} servers. Give whole servers."
        )
        raise ModelError(message)
    return nodes[np.lexsort((nodes, first[of.ravel()]))].reshape(len(size), -1)


def _wired(network: Network) -> Bool[np.ndarray, " nodes"]:
    """Return which GPUs work, their adapters having a way to a switch and back."""
    labels = network.labels
    carries = np.asarray(network.alive) & (np.asarray(network.capacity) > 0)
    carries &= ~inside_servers(network)
    out, into = (
        np.bincount(ends[carries], minlength=labels.n_nodes) > 0
        for ends in (labels.src, labels.dst)
    )
    return working(network) & (out & into)[labels.tags["nic"]]


def count_of(servers: Int[np.ndarray, "servers gpus"], gpus: int | None) -> int:
    """Return how many GPUs are used."""
    if gpus is None:
        return servers.size
    count, each = int(gpus), servers.shape[1]
    if count % each:
        message = f"`gpus={count:,}` fills no whole servers of {each} GPUs."
        raise ModelError(message)
    if count > servers.size:
        message = f"`gpus={count:,}`, but the allocation has {servers.size:,}. Use at most these."
        raise InfeasibleError(message)
    return count
