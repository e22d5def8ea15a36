"""`Site`: ranks on a fabric, and what a collective among them may use of it."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import InfeasibleError, ModelError, some
from fabric.collectives._exchange import Exchange, members, servers, slope
from fabric.collectives._nccl import Generation, generation
from fabric.network import Flows, Network, Routes
from fabric.routing import ROUTINGS
from fabric.solvers import max_min_rates
from fabric.topologies import INSIDE_TIERS


def effective(network: Network, *, nvlink: float, nic: float) -> Network:
    """Return the network with the capacities that collectives reach.

    Args:
        network: With labels; its capacities are nominal.
        nvlink: Share of the links of tier "nvlink".
        nic: Share of every link outside of servers.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=1, capacity="100GB/s")
        >>> effective(net, nvlink=0.8, nic=0.96).capacity.max().item() / 1e9
        96.0
    """
    labels = network.labels
    by_tier = np.array(
        [{"nvlink": nvlink}.get(t, 1.0 if t in INSIDE_TIERS else nic) for t in labels.tiers]
    )
    return network.with_capacity(np.asarray(network.capacity) * by_tier[labels.tier_of])


@dataclass(frozen=True)
class Solved:
    """One exchange solved: what a byte costs, and which links it waits for."""

    per_byte: Float[np.ndarray, " groups"]
    latency: float
    bottlenecks: tuple[dict[str, object], ...]


@dataclass(frozen=True)
class Site:
    """Ranks of groups that communicate at once.

    Attributes:
        network: Nominal.
        groups: (groups, ranks), nodes.
        routing: Name of the rule.
        seed: Of its hashes.
        nvlink, nic: Shares of the capacities that are reached.
        receivers: (groups, ranks), of messages in pairs; None where there are none.
    """

    network: Network
    groups: Int[np.ndarray, "groups ranks"]
    routing: str
    seed: int
    nvlink: float
    nic: float
    receivers: Int[np.ndarray, "groups ranks"] | None = None

    @property
    def n_ranks(self) -> int:
        """Ranks of a group."""
        return self.groups.shape[1]

    @cached_property
    def server_of(self) -> Int[np.ndarray, " nodes"] | None:
        """Server by node, -1 for none; None where no node has one. Files call it "host"."""
        tags = self.network.labels.tags
        tag = tags.get("server", tags.get("host"))
        if tag is None or tag.dtype.kind in "iu":
            return tag
        _, number = np.unique(tag, return_inverse=True)
        return np.where(tag == "", -1, number)

    @cached_property
    def server(self) -> Int[np.ndarray, "groups ranks"]:
        """Server by rank; one that is on none is a server by itself."""
        return servers("ranks", self.groups, self.server_of)

    @cached_property
    def inside(self) -> str | None:
        """What joins the ranks of one server, "nvlink" or "pcie"; None: not in this network."""
        return next(
            (tier for tier in ("nvlink", "pcie") if tier in self.network.labels.tiers), None
        )

    @cached_property
    def n_servers(self) -> int:
        """Most servers of a group."""
        in_order = np.sort(self.server, axis=1)
        return int((np.diff(in_order, axis=1) != 0).sum(axis=1).max()) + 1

    @cached_property
    def fewest(self) -> int:
        """Fewest ranks that a group has on one of its servers."""
        row = np.arange(len(self.groups))[:, None]
        pairs = np.stack([np.broadcast_to(row, self.server.shape), self.server], axis=-1)
        return int(np.unique(pairs.reshape(-1, 2), axis=0, return_counts=True)[1].min())

    @cached_property
    def even(self) -> int:
        """Ranks on every server of every group; 0 where they differ."""
        return self.fewest if self.fewest * self.n_servers == self.n_ranks else 0

    @cached_property
    def grid(self) -> Int[np.ndarray, "groups servers members"]:
        """Ranks by server, where every server has as many."""
        order = np.argsort(self.server, axis=1, kind="stable")
        rows = np.take_along_axis(self.groups, order, axis=1)
        return rows.reshape(len(rows), -1, self.even)

    @cached_property
    def meshed(self) -> bool:
        """Whether GPUs of a server have links to one another instead of a switch."""
        return self.inside == "nvlink" and not self.network.labels.is_kind("nvswitch").any()

    @cached_property
    def generation(self) -> Generation:
        """Of its GPUs."""
        return generation(self.network.labels.about.get("gpu"))

    @cached_property
    def reached(self) -> Network:
        """The network with the capacities that are reached."""
        return effective(self.network, nvlink=self.nvlink, nic=self.nic)

    @cached_property
    def scale_up(self) -> float:
        """byte/s that the slowest rank reaches into its NVSwitches."""
        labels = self.network.labels
        here = labels.is_tier("nvlink") & np.asarray(self.network.alive)
        out = np.bincount(labels.src[here], np.asarray(self.reached.capacity)[here], labels.n_nodes)
        return float(out[self.groups].min())

    def check(self) -> None:
        """Raise where nothing of the operation would be in this network.

        Raises:
            InfeasibleError: If all ranks of a group are on one server that has no insides here.
        """
        if self.inside is None and self.n_servers == 1 and self.receivers is None:
            message = (
                f"All {self.n_ranks:,} ranks are adapters of one server, whose insides are not in "
                f"this network. Use ranks on several servers, or `topologies.cluster(...)`."
            )
            raise InfeasibleError(message)

    def solve(self, exchange: Exchange) -> Solved:
        """Return the slopes of an exchange, its flows routed and solved all at once."""
        if self.inside is None:
            exchange = self._between(exchange)
        if not exchange.n_flows:
            return Solved(np.zeros(exchange.n_groups), 0.0, ())
        options = {"seed": self.seed} if self.routing == "ecmp" else {}
        routes = ROUTINGS[self.routing](self.network, exchange.flows, **options)
        solution = max_min_rates(self.reached, routes)
        rates = np.asarray(routes.per_flow(np.asarray(solution.rates, np.float64)))
        self._check_moving(exchange, rates, np.asarray(solution.bottleneck))
        held = self._held(exchange, rates, np.asarray(solution.bottleneck))
        return Solved(np.asarray(slope(exchange, rates)), path_latency(self.network, routes), held)

    def _check_moving(self, exchange: Exchange, rates: np.ndarray, stopper: np.ndarray) -> None:
        """Raise where a message would never arrive."""
        stuck = np.flatnonzero(rates <= 0)
        if not len(stuck):
            return
        dead = np.unique(stopper[stuck])
        message = (
            f"{len(stuck):,} of {exchange.n_flows:,} flows of the collective get rate 0, at "
            f"{some(dead.tolist(), name=self.network.link_name)}. Give these links a capacity, or "
            f"mark them as failed with `network.without(links=...)` so that routes go around."
        )
        raise InfeasibleError(message)

    def _between(self, exchange: Exchange) -> Exchange:
        """Return an exchange without what stays inside servers, which are not in the network."""
        if self.server_of is None:
            return exchange
        of = self.server_of
        src, dst = exchange.flows.src, exchange.flows.dst
        kept = (of[src] != of[dst]) | (of[src] < 0)
        return dataclasses.replace(
            exchange, flows=Flows(src[kept], dst[kept]), share=exchange.share[kept],
            group=exchange.group[kept],
        )  # fmt: skip

    def _held(
        self, exchange: Exchange, rates: np.ndarray, stopper: np.ndarray
    ) -> tuple[dict[str, object], ...]:
        """Return the links that stop the slowest flows, most flows first."""
        with np.errstate(divide="ignore"):
            times = exchange.share / rates
        slowest = stopper[times >= times.max() * (1 - 1e-9)]
        link, count = np.unique(slowest[slowest >= 0], return_counts=True)
        order = np.lexsort((link, -count))[:5]
        labels = self.network.labels
        return tuple(
            {
                "link": self.network.link_name(i),
                "tier": labels.tiers[labels.tier_of[i]],
                "flows": int(n),
            }
            for i, n in zip(link[order].tolist(), count[order], strict=True)
        )


def ranked(network: Network, ranks: object | None) -> Int[np.ndarray, "groups ranks"]:
    """Return the nodes of every group, or raise.

    Args:
        network: With labels.
        ranks: (ranks,) or (groups, ranks), node numbers; None: all endpoints.

    Raises:
        ModelError: If they are no endpoints, or a group has fewer than two.
        InfeasibleError: If the network has no two endpoints.
    """
    given = network.hosts if ranks is None else np.asarray(ranks)
    groups = members("ranks", given[None, :] if given.ndim == 1 else given)
    if groups.shape[1] < 2:
        message = "A collective needs 2 ranks or more, but got 1."
        raise ModelError(message) if ranks is not None else InfeasibleError(message)
    return groups


def path_latency(network: Network, routes: Routes) -> float:
    """Return the largest latency of a flow, seconds: of the links on its way, in sum.

    Args:
        network: (links,).
        routes: Where a split is, its links count by their shares.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.single_switch(2, latency="1us")
        >>> path_latency(net, fb.routing.ecmp(net, fb.Flows([0], [1])))
        2e-06
    """
    latency = np.asarray(network.latency, np.float64)
    if not latency.any():
        return 0.0
    of_bundle = latency
    if routes.n_parts:
        parts = np.asarray(routes.part_use) * latency[np.asarray(routes.part_link)]
        of_bundle = np.bincount(np.asarray(routes.part_bundle), parts, routes.n_bundles)
    hops = np.asarray(routes.hop_use) * of_bundle[np.asarray(routes.hop_bundle)]
    return float(np.bincount(np.asarray(routes.hop_flow), hops, routes.n_flows).max(initial=0.0))
