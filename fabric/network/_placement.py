"""`Placement`: which rank of a job runs on which endpoint of an allocation."""

from collections.abc import Iterable

import equinox as eqx
import numpy as np
from jaxtyping import Int

from fabric._errors import InfeasibleError, ModelError, nearest, some
from fabric._typing import AnyArray
from fabric.network._checks import index_array, whole, wholes
from fabric.network._network import Network


class Placement(eqx.Module):
    """Ranks on endpoints.

    Attributes:
        endpoint_of: (ranks,), the node that each rank runs on; no node twice.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2)
        >>> [net.labels.names[i] for i in Placement.first(net, 3).endpoint_of]
        ['leaf0-host0', 'leaf0-host1', 'leaf1-host0']
        >>> [net.labels.names[i] for i in Placement.spread(net, 3, by="leaf").endpoint_of]
        ['leaf0-host0', 'leaf1-host0', 'leaf0-host1']
    """

    endpoint_of: Int[np.ndarray, " ranks"]

    def __init__(self, endpoint_of: AnyArray | Iterable[int]):
        given = endpoint_of
        if isinstance(given, Iterable) and not hasattr(given, "dtype"):
            given = list(given)
        nodes = index_array("Placement(endpoint_of)", given)
        if np.any(nodes < 0):
            message = (
                f"`Placement(endpoint_of)` needs node numbers of 0 or more, but got "
                f"{some(nodes[nodes < 0])}."
            )
            raise ModelError(message)
        values, counts = np.unique(nodes, return_counts=True)
        if np.any(counts > 1):
            message = f"`Placement` puts more than one rank on nodes {some(values[counts > 1])}."
            raise ModelError(message)
        self.endpoint_of = nodes

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.endpoint_of)

    @classmethod
    def first(cls, network: Network, n_ranks: int) -> "Placement":
        """Return rank i on the i-th endpoint of the network."""
        n_ranks = whole("n_ranks", n_ranks)
        return cls(_endpoints(network, n_ranks)[:n_ranks])

    @classmethod
    def spread(cls, network: Network, n_ranks: int, by: str, block: int = 1) -> "Placement":
        """Return blocks of ranks dealt to the groups of a tag in turn: block i on group i mod n.

        Args:
            network: The network, with labels.
            n_ranks: Number of ranks.
            by: A tag of the endpoints, for example "leaf" or "pod".
            block: Consecutive ranks that stay together, for example the GPUs of a server. A
                whole number from 1.
        """
        tags = network.labels.tags
        if by not in tags:
            message = (
                f"`spread(by='{by}')`: this network has no such tag. {nearest(by, list(tags))}"
            )
            raise ModelError(message)
        block, n_ranks = wholes(block=block, n_ranks=n_ranks)
        hosts = _endpoints(network, n_ranks)
        _, group, counts = np.unique(tags[by][hosts], return_inverse=True, return_counts=True)
        order = np.argsort(group, kind="stable")
        within = np.arange(len(hosts)) - np.repeat(np.cumsum(counts) - counts, counts)
        turn = np.lexsort((within % block, group[order], within // block))
        return cls(hosts[order][turn][:n_ranks])


def _endpoints(network: Network, n_ranks: int) -> Int[np.ndarray, " hosts"]:
    """Return all endpoints, or raise where there are fewer than ranks."""
    hosts = network.hosts
    if n_ranks > len(hosts):
        message = f"{n_ranks:,} ranks need as many endpoints, but the network has {len(hosts):,}."
        raise InfeasibleError(message)
    return hosts
