"""The ways that traffic may take, target by target, and the search for splits over them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fabric._errors import ModelError
from fabric._memory import afford
from fabric.routing._graph import Trip
from fabric.routing._grouped import Groups, groups_of

NANOSECONDS_PER_SPLIT = 4.0
"""That a step takes, about, on one core."""

_FIRST_POWER, _GROWTH = 3.0, 1.1
_POWER_TIMES_GAP = 8.0
"""Links at the bound count for exp(-8) of the most loaded one: a higher power sees only that."""
_BOLD, _CAREFUL = 50.0, 3.0
_TOO_FAR, _RECOVERY = 2.0, 1.1
_ROOM = 1 << 16


class Web(NamedTuple):
    """Nodes that the traffic to each target may cross, farthest first; `fabric.kernels._adaptive`.

    Nodes are numbered as forwarding nodes, then the sink, then all nodes as sources. A fan is the
    links that a node may use; targets that follow each other share it.
    """

    entry_ptr: Int[np.ndarray, " targets+1"]
    node: Int[np.ndarray, " entries"]
    fan: Int[np.ndarray, " entries"]
    slot: Int[np.ndarray, " entries"]  # where its shares begin; -1: equal
    source_ptr: Int[np.ndarray, " targets+1"]
    source: Int[np.ndarray, " sources"]
    demand: Float[np.ndarray, " sources"]
    fan_ptr: Int[np.ndarray, " fans+1"]
    hop_link: Int[np.ndarray, " hops"]
    hop_to: Int[np.ndarray, " hops"]
    # Scratch space.
    fan_at: Int[np.ndarray, " points"]
    mark: Bool[np.ndarray, " points"]
    found: Int[np.ndarray, " points"]
    key: Int[np.ndarray, " points"]
    total: Float[np.ndarray, " points"]
    cost: Float[np.ndarray, " points"]
    least: Float[np.ndarray, " points"]
    burns: Bool[np.ndarray, " points"]
    size: Int[np.ndarray, " 5"]  # entries, fans, hops, sources, splits


class Found(NamedTuple):
    """What a search found.

    Attributes:
        groups: Splits that are not equal; none where equal ones are as good.
        utilisation: Of the most loaded link, if every flow sent `weight` byte/s.
        bound: No splits over shortest paths bring it below this.
        equal: What equal splits give.
        steps: Steps taken.
        moved: Pairs of a switch and a target whose split is not equal.
    """

    groups: Groups | None
    utilisation: float
    bound: float
    equal: float
    steps: int
    moved: int


def search(trip: Trip, tolerance: float, max_steps: int, max_splits: int) -> Found:
    """Return splits over shortest paths that keep the most loaded link as low as can be.

    A step prices every link by a high power of its utilisation and moves traffic from dear ways
    to cheap ones. Prices bound from below what any splits can reach, as cuts do; the search ends
    when the best splits are within `tolerance` of the best bound.
    """
    from fabric.kernels import _adaptive as kernel

    capacity = np.asarray(trip.network.capacity, np.float64)
    weight = _weights(trip, capacity)
    web = _web(trip, weight, max_splits)
    goal = trip.demand.target_node.astype(np.int64)
    dry = capacity == 0
    share = np.zeros(0)
    if (dry & np.asarray(trip.network.alive)).any():
        share = np.zeros(kernel.shun(web, goal, dry, share))
        web.slot[:] = -1
        kernel.shun(web, goal, dry, share)
    room = np.array([len(share)])
    share = np.concatenate([share, np.zeros(_ROOM)])
    pace = np.zeros_like(share)
    base, load = _last_loads(trip, weight), np.zeros_like(capacity)
    inverse = np.divide(1.0, capacity, out=np.zeros_like(capacity), where=~dry)
    kernel.pour(web, goal, base, share, load)
    equal = float((load * inverse).max(initial=0.0))
    bound = _cut_bound(trip, weight, web, np.where(load > 0, capacity, 0.0))
    kept, power, calm, most, steps = _Kept(share, room, load, equal), _FIRST_POWER, 1.0, _BOLD, 0
    if equal > bound > 0:
        power = max(_FIRST_POWER, 1 / (equal / bound - 1))
    # What is left out at the end, shares next to nothing, must not spoil the promise.
    enough = 1 + 0.98 * tolerance
    while kept.value > bound * enough and steps < max_steps:
        used = load * inverse
        price = (used / used.max()) ** (power - 1) * inverse
        if len(share) - room[0] < max(_ROOM, int(room[0])):
            more = np.zeros(len(share))
            share, pace = np.concatenate([share, more]), np.concatenate([pace, more])
        load = np.empty_like(load)
        must = kernel.step(
            web, goal, base, share, pace, room, price, used > bound * (1 + tolerance / 2),
            calm / (power - 1), most, load,
        )  # fmt: skip
        bound = max(bound, (must + float(price @ base)) / float(price @ capacity))
        now = float((load * inverse).max())
        if now < kept.value:
            kept = _Kept(share, room, load, now)
        gap = max(kept.value / bound - 1, tolerance / 2)
        power = min(power * _GROWTH, max(_FIRST_POWER, _POWER_TIMES_GAP / gap))
        calm = min(1.0, calm * _RECOVERY)
        if now - bound > _TOO_FAR * (kept.value - bound):
            calm *= 1.0 if most == _BOLD else 0.5
            most = _CAREFUL
            load = kept.back(web, share, pace, room)
        steps += 1
    kept.back(web, share, pace, room)
    groups = _groups(trip, web, share)
    kernel.pour(web, goal, base, share, load)
    reached = float((load * inverse).max(initial=0.0))
    return Found(
        groups,
        reached,
        min(bound, reached),
        equal,
        steps,
        0 if groups is None else len(groups.node),
    )


class _Kept:
    """The best splits so far."""

    def __init__(self, share: np.ndarray, room: np.ndarray, load: np.ndarray, value: float):
        self._share, self._load, self.value = share[: room[0]].copy(), load.copy(), value

    def back(
        self, web: Web, share: np.ndarray, pace: np.ndarray, room: np.ndarray
    ) -> Float[np.ndarray, " links"]:
        """Make them the splits at hand, at rest, and return the load."""
        room[0] = len(self._share)
        share[: room[0]] = self._share
        pace[:] = 0
        web.slot[web.slot >= room[0]] = -1
        return self._load.copy()


def _web(trip: Trip, weight: Float[np.ndarray, " flows"], max_splits: int) -> Web:
    from fabric.kernels._adaptive import weave

    targets, nodes = len(trip.demand.target_node), trip.network.n_nodes
    points = len(trip.graph.node_of) + 1 + nodes
    scratch = {
        "fan_at": np.zeros(points, np.int64), "mark": np.zeros(points, bool),
        "found": np.zeros(points, np.int64), "key": np.zeros(points, np.int64),
        "total": np.zeros(points), "cost": np.zeros(points), "least": np.zeros(points),
        "burns": np.zeros(points, bool), "size": np.zeros(5, np.int64),
    }  # fmt: skip

    def room_for(entries: int, fans: int, hops: int, sources: int) -> Web:
        return Web(
            np.zeros(targets + 1, np.int64), np.zeros(entries, np.int32),
            np.zeros(entries, np.int32), np.full(entries, -1, np.int64),
            np.zeros(targets + 1, np.int64), np.zeros(sources, np.int32), np.zeros(sources),
            np.zeros(fans + 1, np.int64), np.zeros(hops, np.int32), np.zeros(hops, np.int32),
            **scratch,
        )  # fmt: skip

    web = room_for(0, 0, 0, 0)
    lost = np.zeros(trip.flows.n_flows, bool)
    for fill in (False, True):
        for block in trip.blocks():
            weave(
                trip.graph, block.usable, trip.demand, web, weight, block.begun, block.stop,
                block.first, block.dist, fill, lost,
            )  # fmt: skip
        if fill:
            break
        trip.check_reached(lost)
        *counts, splits = web.size.tolist()
        _check_size(trip, counts, splits, max_splits)
        web.size[:] = 0
        web = room_for(*counts)
    return web


def _check_size(trip: Trip, counts: list[int], splits: int, most: int) -> None:
    entries, fans, hops, sources = counts
    flows, targets = trip.flows.n_flows, len(trip.demand.target_node)
    what = f"`adaptive` of {flows:,} flows to {targets:,} targets"
    if splits > most:
        message = (
            f"{what} has {splits:,} pairs of a split and a cable, but `max_splits={most}`: each "
            f"of up to `max_steps` steps takes about {splits * NANOSECONDS_PER_SPLIT / 1e9:,.1f} "
            f"s. Raise `max_splits`, give fewer flows, or use `spray`."
        )
        raise ModelError(message)
    # Shares of all that may move, their pace, and the best of them.
    needed = 16 * entries + 12 * sources + 8 * (fans + hops) + 8 * min(3 * splits, most)
    afford(what, needed, "Give fewer flows, or use `spray`.")


def _weights(trip: Trip, capacity: Float[np.ndarray, " links"]) -> Float[np.ndarray, " flows"]:
    """Return the demand of every flow: 0 where a link of capacity 0 is between target and end."""
    graph, demand, nodes = trip.graph, trip.demand, trip.network.n_nodes
    end = np.repeat(np.arange(nodes), np.diff(graph.last_ptr))
    dry = np.zeros(nodes, bool)
    dry[end[capacity[graph.last_link] == 0]] = True
    weight = np.array(trip.flows.weight, np.float64)
    weight[demand.order[dry[demand.dst] & (demand.target_host[demand.target] < 0)]] = 0
    return weight


def _last_loads(trip: Trip, weight: Float[np.ndarray, " flows"]) -> Float[np.ndarray, " links"]:
    """Return the load between targets and the destinations that hang on them."""
    graph, demand, nodes = trip.graph, trip.demand, trip.network.n_nodes
    hangs = (demand.target_host[demand.target] < 0) & (graph.forward_of[demand.dst] < 0)
    down = np.bincount(demand.dst[hangs], weight[demand.order][hangs], minlength=nodes)
    end = np.repeat(np.arange(nodes), np.diff(graph.last_ptr))
    load = np.zeros(trip.network.n_links)
    load[graph.last_link] = down[end] / np.bincount(end, minlength=nodes)[end]
    return load


def _cut_bound(
    trip: Trip,
    weight: Float[np.ndarray, " flows"],
    web: Web,
    capacity: Float[np.ndarray, " links"],
) -> float:
    """Return the largest demand over capacity of any node, and of any group with a tag in common.

    A host with all its links to one switch counts to that switch. Only links that some shortest
    path takes have a capacity here.
    """
    labels, graph, demand = trip.network.labels, trip.graph, trip.demand
    nodes = np.arange(labels.n_nodes)
    inner = graph.forward_of >= 0
    hub, leave = np.full(len(nodes), -1), ~inner[labels.src] & np.asarray(trip.network.alive)
    hub[labels.src[leave]] = np.where(inner[labels.dst], labels.dst, -1)[leave]
    hub[labels.src[leave][hub[labels.src[leave]] != labels.dst[leave]]] = -1
    tags = [tag for tag in labels.tags.values() if tag.dtype.kind in "iu"]
    # Demand that only dry links could carry was dropped.
    points = len(web.total)
    key = demand.target.astype(np.int64) * points + np.where(
        inner[demand.src], graph.forward_of[demand.src], len(graph.node_of) + 1 + demand.src
    )
    target = np.repeat(np.arange(len(web.source_ptr) - 1), np.diff(web.source_ptr))
    dropped = (target * points + web.source)[web.demand == 0]
    asked_of = np.where(np.isin(key, dropped), 0.0, weight[demand.order])
    best = 0.0
    for group in (nodes, np.where(inner, nodes, hub), *tags):
        ends = (group[demand.src], group[demand.dst]), (group[labels.src], group[labels.dst])
        (a, b), (c, d) = (tuple(np.asarray(end, np.int64) for end in pair) for pair in ends)
        n = int(group.max(initial=-1)) + 1
        for mine, other, own, far in ((a, b, c, d), (b, a, d, c)):
            must, may = (mine != other) & (mine >= 0), (own != far) & (own >= 0)
            asked = np.bincount(mine[must], asked_of[must], minlength=n)
            room = np.bincount(own[may], capacity[may], minlength=n)
            some = asked > 0
            best = max(best, float((asked[some] / room[some]).max(initial=0.0)))
    return best


def _groups(trip: Trip, web: Web, share: Float[np.ndarray, " shares"]) -> Groups | None:
    """Return the splits that are not equal, without shares next to nothing; None: there are none.

    Writes the cleaned shares back.
    """
    from fabric.kernels._adaptive import LEAST_SHARE

    entry = np.flatnonzero(web.slot >= 0)
    width = (web.fan_ptr[web.fan[entry] + 1] - web.fan_ptr[web.fan[entry]]).astype(np.int64)
    begin = np.concatenate([[0], np.cumsum(width)])
    row = np.repeat(np.arange(len(entry)), width)
    member = np.arange(int(begin[-1])) - begin[row]
    at = web.slot[entry][row] + member
    clean = np.where(share[at] > 3 * LEAST_SHARE, share[at], 0.0)
    share[at] = clean = clean / np.bincount(row, clean, minlength=len(entry))[row]
    uneven = np.zeros(len(entry), bool)
    uneven[row[np.abs(clean * width[row] - 1) > 3 * LEAST_SHARE]] = True
    web.slot[entry[~uneven]] = -1
    entry, width = entry[uneven], width[uneven]
    if not len(entry):
        return None
    begin = np.concatenate([[0], np.cumsum(width)])
    row = np.repeat(np.arange(len(entry)), width)
    member = np.arange(int(begin[-1])) - begin[row]
    target = np.searchsorted(web.entry_ptr, entry, side="right") - 1
    link = web.hop_link[web.fan_ptr[web.fan[entry]][row] + member]
    weight = share[web.slot[entry][row] + member]
    return groups_of(trip, target, web.node[entry], begin, link, weight)
