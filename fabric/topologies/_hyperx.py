"""`hyperx`: switches on a grid, every two that differ in one coordinate joined."""

import math
from collections.abc import Sequence

import numpy as np

from fabric._errors import ModelError
from fabric._units import parse_rate, parse_time
from fabric.network import Blueprint, Network, wholes
from fabric.topologies._grid import annotated, parse_shape, shape_text
from fabric.topologies._plan import afford, describe
from fabric.topologies._sizes import Sizes


def hyperx(
    shape: str | Sequence[int],
    hosts_per_switch: int,
    *,
    links_per_pair: int | Sequence[int] = 1,
    capacity: str | float = "400Gb/s",
    latency: str | float = 0.0,
) -> Network:
    """Return a HyperX network: a full mesh along every dimension of a grid of routers.

    A router has a cable to each other router that differs from it in one coordinate, so a message
    takes as many cables as coordinates differ. One dimension is a full mesh with hosts, two are
    also called a flattened butterfly.

    Hosts come first, ordered by router with the last dimension fastest, and are called
    `router1-0-host3`; routers are `router1-0`. Kinds `host` and `router`; tiers `host`, `dim0`,
    `dim1`, ..., one per dimension of more than one router; tags `dim0`, `dim1`, ... (coordinates)
    and `router` on both.

    Args:
        shape: Routers along each dimension: "8x8", or a list.
        hosts_per_switch: Hosts of every router.
        links_per_pair: Parallel cables between two routers that are joined: one number, or one per
            dimension. Default 1.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If a count is no whole number of at least 1, `links_per_pair` does not have one
            entry per dimension, or the network would not fit in memory.

    Examples:
        >>> net = hyperx("8x8", hosts_per_switch=8)
        >>> {t: int(net.labels.is_tier(t).sum()) // 2 for t in net.labels.tiers}
        {'host': 512, 'dim0': 224, 'dim1': 224}

    References:
        J. H. Ahn, N. Binkert, A. Davis, M. McLaren and R. S. Schreiber, HyperX: Topology, Routing,
        and Packaging of Efficient Large-Scale Networks, SC 2009.
    """
    sides, hosts, parallel = _checked(shape, hosts_per_switch, links_per_pair)
    rate, delay = parse_rate(capacity, "capacity"), parse_time(latency, "latency")
    what = describe(
        hyperx, shape=shape_text(sides), hosts_per_switch=hosts, links_per_pair=links_per_pair,
        capacity=capacity, latency=latency,
    )  # fmt: skip
    afford(what, _sizes(sides, hosts, parallel).n_cables)

    place = np.indices(sides)
    number = np.arange(math.prod(sides)).reshape(sides)
    tags = {f"dim{dim}": place[dim] for dim in range(len(sides))} | {"router": number}
    name = "router" + "-".join(["{}"] * len(sides))
    plan = Blueprint()
    host = plan.nodes(
        "host", f"{name}-host{{}}", (*sides, hosts), **{k: v[..., None] for k, v in tags.items()}
    )
    router = plan.nodes("router", name, sides, **tags)
    plan.cables("host", host, router[..., None], rate, delay)
    for dim, side in enumerate(sides):
        if side > 1:
            row = np.moveaxis(router, dim, -1)
            a, b = np.triu_indices(side, 1)
            plan.cables(f"dim{dim}", row[..., a], row[..., b], rate, delay, parallel=parallel[dim])
    return annotated(plan.network(what), shape=shape_text(sides))


def sizes_of_hyperx(
    shape: str | Sequence[int], hosts_per_switch: int, *, links_per_pair: int | Sequence[int] = 1
) -> Sizes:
    """Return what `hyperx` would have.

    Examples:
        >>> sizes_of_hyperx("10x10x10", 10).ports
        {'host': 1, 'router': 37}
    """
    return _sizes(*_checked(shape, hosts_per_switch, links_per_pair))


def _checked(
    shape: str | Sequence[int], hosts_per_switch: int, links_per_pair: int | Sequence[int]
) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Return the shape, hosts of a router and parallel cables per dimension, or raise."""
    sides = parse_shape("shape", shape)
    (hosts,) = wholes(hosts_per_switch=hosts_per_switch)
    if not isinstance(links_per_pair, Sequence):
        return sides, hosts, wholes(links_per_pair=links_per_pair) * len(sides)
    if len(links_per_pair) != len(sides):
        message = (
            f"`links_per_pair` has {len(links_per_pair)} entries for {len(sides)} dimensions. Give "
            f"one number for all, or one per dimension."
        )
        raise ModelError(message)
    each = {f"links_per_pair[{dim}]": n for dim, n in enumerate(links_per_pair)}
    return sides, hosts, wholes(**each)


def _sizes(sides: tuple[int, ...], hosts: int, parallel: tuple[int, ...]) -> Sizes:
    routers = math.prod(sides)
    cables = {"host": routers * hosts} | {
        f"dim{dim}": routers // side * math.comb(side, 2) * each
        for dim, (side, each) in enumerate(zip(sides, parallel, strict=True))
        if side > 1
    }
    ports = hosts + sum((n - 1) * each for n, each in zip(sides, parallel, strict=True))
    return Sizes(
        {"host": routers * hosts, "router": routers},
        cables,
        {"host": 1, "router": ports},
        hops=1 + sum(side > 1 for side in sides),
    )
