"""`AllPairs`: routes of every pair of endpoints, made when asked for and never held."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fabric._errors import ModelError, nearest, raise_faults
from fabric._typing import AnyArray
from fabric.network import Flows, Network, Routes, whole
from fabric.routing._ecmp import ecmp
from fabric.routing._graph import Graph, check_reached, distances, graph_and_targets
from fabric.routing._inside import Insides
from fabric.routing._servers import RAILS, Legs, any_lost, fabric_only, has_servers
from fabric.routing._spray import spray

_RULES: dict[str, Callable[..., Routes]] = {"spray": spray, "ecmp": ecmp}
_OWN = ("network", "flows")
_ROWS = 1_000_000
_MOST_LOST = 1_000_000


class AllPairs:
    """The routes of all pairs of endpoints under one rule, without holding them.

    65,536 endpoints are four billion pairs. Loads of uniform traffic under spray take one pass
    per block of 512 destination switches; any pair is routed when it is asked for; and all of them
    can be gone through block by block.

    Args:
        network: With labels.
        rule: "spray" or "ecmp". ECMP hashes by ends (`key="ends"`), so that the path of a pair
            does not depend on what it is asked for with.
        **options: Of the rule, such as `seed` or `salt`.

    Raises:
        ModelError: If the rule is unknown, or has no such option.

    Examples:
        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=4)
        >>> pairs = AllPairs(net)
        >>> pairs.n_pairs, pairs.throughput() / 50e9
        (240, 0.625)
        >>> pairs.path("leaf0-host0", "leaf0-host1")
        [{'leaf0-host0->leaf0': 1.0}, {'leaf0->leaf0-host1': 1.0}]
    """

    def __init__(self, network: Network, rule: str = "spray", **options: Any):
        if rule not in _RULES:
            message = f"`AllPairs(rule={rule!r})` is not known. {nearest(str(rule), [*_RULES])}"
            raise ModelError(message)
        known = [name for name in inspect.signature(_RULES[rule]).parameters if name not in _OWN]
        raise_faults(
            [
                f"`AllPairs(rule={rule!r}, {name}=...)`: the rule has no such option. "
                f"{nearest(name, known)}"
                for name in options
                if name not in known
            ]
        )
        self.network, self.rule = network, rule
        own = {"key": "ends"} if rule == "ecmp" else {}
        self._rails = options.get("rails", RAILS[0])
        self._route = functools.partial(_RULES[rule], network, **(own | options))

    @property
    def n_pairs(self) -> int:
        """Number of pairs of two different endpoints, both ways."""
        n = len(self.network.hosts)
        return n * (n - 1)

    def routes(self, src: int | str | AnyArray, dst: int | str | AnyArray) -> Routes:
        """Return the routes of some pairs, by number, id or unique name of their ends.

        Args:
            src: One node, or (pairs,) numbers.
            dst: Likewise.

        Raises:
            ModelError: If a node is unknown, no endpoint, or both of a pair.
            UnreachableError: If a pair cannot reach each other.
        """
        return self._route(Flows(self._nodes(src), self._nodes(dst)))

    def path(self, src: int | str, dst: int | str) -> list[dict[str, float]]:
        """Return what one pair crosses, in order: the share on every link of every stage, by name.

        Args:
            src: Number, id or unique name.
            dst: Likewise.

        Raises:
            ModelError: If a node is unknown or no endpoint, or both are the same.
            UnreachableError: If there is no way.
        """
        routes, name = self.routes(src, dst), self.network.link_name
        stages = []
        for bundle, use in zip(routes.hop_bundle, routes.hop_use, strict=True):
            if not routes.n_parts:
                stages.append({name(int(bundle)): float(use)})
                continue
            mine = np.flatnonzero(routes.part_bundle == bundle)
            shares = zip(routes.part_link[mine], routes.part_use[mine], strict=True)
            stages.append({name(int(link)): float(share * use) for link, share in shares})
        return stages

    def blocks(self, rows: int = _ROWS) -> Iterator[tuple[Flows, Routes]]:
        """Yield all pairs block by block with their routes, so that memory stays bounded.

        Args:
            rows: Pairs in a block, at most; but never less than one destination. A block of a
                million takes about half a second and some hundred MB.
        """
        hosts = self.network.hosts.astype(np.int32)
        each = max(1, whole("rows", rows) // max(len(hosts), 1))
        for first in range(0, len(hosts), each):
            dst, src = np.meshgrid(hosts[first : first + each], hosts, indexing="ij")
            apart = src != dst
            if apart.any():
                flows = Flows(src[apart], dst[apart])
                yield flows, self._route(flows)

    def loads(
        self, weight: Float[AnyArray, " endpoints"] | None = None
    ) -> Float[np.ndarray, " links"]:
        """Return the load on every link where each endpoint spreads what it sends over all others.

        Args:
            weight: (endpoints,), what each endpoint of `network.hosts` sends in total, 0 or more.
                Default: 1.

        Returns:
            (links,), in the unit of `weight`.

        Raises:
            ModelError: If there is not one weight per endpoint, or one is negative or not finite.
            UnreachableError: If a pair cannot reach each other; some are named.

        Precision: Sums of float64, of up to as many terms as pairs of switches: 1e-12 relative.
        Cost: Spray: a search and a pass over the usable cables per destination switch; 1 s on
            65,536 hosts. ECMP, and `rails="forward"`: all blocks, about a second per million pairs.
        """
        n = len(self.network.hosts)
        sent = np.ones(n) if weight is None else np.asarray(weight, np.float64)
        if sent.shape != (n,) or not np.all(np.isfinite(sent) & (sent >= 0)):
            message = (
                f"`loads(weight)` needs a finite number of 0 or more for each of {n:,} endpoints, "
                f"but got shape {sent.shape} or other values."
            )
            raise ModelError(message)
        if n < 2:
            return np.zeros(self.network.n_links)
        if self.rule == "spray" and self._rails == RAILS[0]:
            load = _between_gpus if has_servers(self.network) else _between_hosts
            return load(self.network, sent / (n - 1))
        amount = np.zeros(self.network.n_nodes)
        amount[self.network.hosts] = sent / (n - 1)
        total = np.zeros(self.network.n_links)
        for flows, routes in self.blocks():
            row = np.repeat(amount[flows.src], routes.n_flows // flows.n_flows)
            total += link_loads(routes, row * routes.weight)
        return total

    def throughput(self) -> float:
        """Return the most that every endpoint can send at once, spread evenly over all others.

        Returns:
            byte/s per endpoint; where each sends this much, a link is full and none is over.

        Raises:
            UnreachableError: If a pair cannot reach each other.
        """
        loads, capacity = self.loads(), np.asarray(self.network.capacity, np.float64)
        used = loads > 0
        return float(np.min(capacity[used] / loads[used], initial=np.inf))

    def _nodes(self, nodes: int | str | AnyArray) -> Int[np.ndarray, " pairs"]:
        if isinstance(nodes, str):
            nodes = self.network.labels.node(nodes)
        return np.atleast_1d(np.asarray(nodes))


def link_loads(routes: Routes, amount: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " links"]:
    """Return the load on every link where each row carries some amount."""
    over = np.asarray(routes.hop_use) * amount[routes.hop_flow]
    bundle = np.bincount(routes.hop_bundle, over, routes.n_bundles)
    if not routes.n_parts:
        return bundle
    parts = np.asarray(routes.part_use) * bundle[routes.part_bundle]
    return np.bincount(routes.part_link, parts, routes.n_links)


def _between_hosts(
    network: Network, each: Float[np.ndarray, " endpoints"]
) -> Float[np.ndarray, " links"]:
    """Return the loads where every endpoint sends some amount to each other one."""
    return _sprayed_loads(network, network.hosts, each, np.ones(len(each), np.int64))


def _between_gpus(
    network: Network, each: Float[np.ndarray, " endpoints"]
) -> Float[np.ndarray, " links"]:
    """Return the loads where every GPU sends some amount to each other one, sprayed."""
    tags, gpus, n = network.labels.tags, network.hosts, network.n_nodes
    insides, legs = Insides(network), Legs(network.n_nodes)
    nic, server = tags["nic"], tags["server"][gpus]
    staging = tags.get("staging", np.full(n, -1))

    # From adapter to adapter as if all were strangers, less those of one server.
    count = np.bincount(nic[gpus], minlength=n)
    nics = np.flatnonzero(count)
    sent = np.bincount(nic[gpus], each, n)
    view = fabric_only(network, insides.mask)
    load = _sprayed_loads(view, nics, sent[nics], count[nics])
    a, b = _same(nics, tags["server"][nics])
    alone = replace(view.labels, tags={})
    bare = Network(view.capacity, None, view.alive, view.routing_cost, labels=alone)
    load -= link_loads(spray(bare, Flows(a, b)), sent[a] * count[b])

    a, b = _same(gpus, server)
    amount = np.zeros(n)
    amount[gpus] = each
    others = len(gpus) - np.bincount(server)[server]
    received = each.sum() - np.bincount(server, each)[server]
    within = legs.between(a, b) if len(a) else np.zeros(0, np.int32)
    up, down = legs.to_nic(gpus, nic, staging), legs.from_nic(gpus, nic, staging)
    rows = [(within, amount[a])]
    rows += [(row, each * others) for row in up]
    rows += [(row, received) for row in down]
    ways = insides.routes(*legs.ends())
    none = np.bincount(ways.hop_flow, minlength=ways.n_flows) == 0
    apart = none[within] & (amount[a] > 0)
    silent, deaf = any_lost(none, up) & (each > 0), any_lost(none, down)
    _check_inside(network, each, (a[apart], b[apart]), gpus[silent], gpus[deaf])
    over = np.zeros(ways.n_flows)
    for row, part in rows:
        over += np.bincount(row[row >= 0], part[row >= 0], ways.n_flows)
    # What was added and taken away again leaves rounding noise.
    return np.where(load > 1e-12 * load.max(initial=0), load, 0.0) + link_loads(ways, over)


def _check_inside(
    network: Network,
    each: Float[np.ndarray, " endpoints"],
    within: tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]],
    silent: Int[np.ndarray, " gpus"],
    deaf: Int[np.ndarray, " gpus"],
) -> None:
    """Raise with the pairs that are cut off inside servers.

    Args:
        network: With servers.
        each: What every GPU sends.
        within: Pairs of one server.
        silent: GPUs that send and cannot reach their adapter.
        deaf: GPUs that their adapter cannot reach.
    """
    gpus, server = network.hosts, network.labels.tags["server"]
    most = max(1, _MOST_LOST // len(gpus))  # more are not told
    ends = [within]
    for senders, receivers in ((silent[:most], gpus), (gpus[each > 0], deaf[:most])):
        src, dst = (x.ravel() for x in np.meshgrid(senders, receivers, indexing="ij"))
        apart = server[src] != server[dst]
        ends.append((src[apart], dst[apart]))
    a, b = (np.concatenate(nodes) for nodes in zip(*ends, strict=True))
    pairs = np.unique(a.astype(np.int64) * network.n_nodes + b)
    flows = Flows(*np.divmod(pairs, network.n_nodes))
    check_reached(network, flows, np.ones(flows.n_flows, bool))


def _same(
    nodes: Int[np.ndarray, " nodes"], server: Int[np.ndarray, " nodes"]
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Return all pairs of two different nodes of one server."""
    order = np.argsort(server, kind="stable")
    count = np.bincount(server)
    width = count[server[order]]
    first = (np.cumsum(count) - count)[server[order]]
    at = np.repeat(first - (np.cumsum(width) - width), width) + np.arange(width.sum())
    a, b = np.repeat(nodes[order], width), nodes[order][at]
    return a[a != b], b[a != b]


def _sprayed_loads(
    network: Network,
    hosts: Int[np.ndarray, " endpoints"],
    each: Float[np.ndarray, " endpoints"],
    copies: Int[np.ndarray, " endpoints"],
) -> Float[np.ndarray, " links"]:
    """Return the loads where every endpoint sends some amount to each copy of all others."""
    from fabric.kernels._ways import pour_all

    n_nodes = network.n_nodes
    asked = np.zeros(n_nodes, bool)
    asked[hosts] = True
    graph, target_of, target_node, target_host = graph_and_targets(network, asked)
    amount, times = np.zeros(n_nodes), np.zeros(n_nodes, np.int64)
    amount[hosts], times[hosts] = each, copies
    target, forwards = target_of[hosts], graph.forward_of
    n_ends = np.bincount(target, copies, len(target_node)).astype(np.int64)
    load = np.zeros(network.n_links)

    # Hosts whose links all lead to the node that is also their target inject there.
    hub, links, count = _hubs(graph)
    simple = (forwards[hosts] >= 0) | (
        (hub[hosts] >= 0) & (target_host[target] < 0) & (hub[hosts] == target_node[target])
    )
    give = np.zeros(len(graph.node_of))
    at = np.where(forwards[hosts] >= 0, forwards[hosts], hub[hosts])
    np.add.at(give, at[simple], each[simple])
    many = hosts[~simple]
    lost = np.full(2, -1, np.int64)
    at_node = np.zeros(len(graph.node_of) + 1)
    for first, _, dist, usable in distances(graph, target_node, target_host):
        pour_all(
            graph, usable, first, dist, target_host, n_ends, give, many, amount[many],
            target_of[many], times[many], at_node, load, lost,
        )  # fmt: skip
        if lost[1] >= 0:
            where = int(lost[0])
            senders = np.array([-1 - where]) if where < 0 else hosts[simple & (at == where)]
            _tell_lost(network, senders, hosts[target == lost[1]])
    out, into = np.zeros(n_nodes), np.zeros(n_nodes)
    out[hosts[simple]] = (each * (copies.sum() - copies))[simple]
    node = np.repeat(np.arange(n_nodes), count)
    load[links] += (out / np.maximum(count, 1))[node]
    last = (target_host[target] < 0) & (forwards[hosts] < 0)
    into[hosts[last]] = (copies * (each.sum() - each))[last]
    width = np.diff(graph.last_ptr)
    node = np.repeat(np.arange(n_nodes), width)
    load[graph.last_link] += (into / np.maximum(width, 1))[node]
    return load


def _hubs(
    graph: Graph,
) -> tuple[Int[np.ndarray, " nodes"], Int[np.ndarray, " links"], Int[np.ndarray, " nodes"]]:
    """Return the one node that each host sends to, -1: none; its cheapest links, how many."""
    ptr, to, cost = graph.first_ptr, graph.first_to, graph.first_cost
    n = len(graph.forward_of)
    node = np.repeat(np.arange(n), np.diff(ptr))
    hub = np.full(n, -1, np.int64)
    hub[node] = to
    several = (to < 0) | (hub[node] != to)
    hub[node[several]] = -1
    least = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(least, node, cost)
    kept = (cost == least[node]) & (hub[node] >= 0)
    return hub, graph.first_link[kept], np.bincount(node[kept], minlength=n)


def _tell_lost(
    network: Network,
    senders: Int[np.ndarray, " sources"],
    behind: Int[np.ndarray, " destinations"],
) -> None:
    """Raise with the pairs from some endpoints to the destinations behind one target."""
    dst, src = (x.ravel() for x in np.meshgrid(behind, senders, indexing="ij"))
    apart = src != dst
    flows = Flows(src[apart], dst[apart])
    check_reached(network, flows, np.ones(flows.n_flows, bool))
