"""`leaf_spine`: two tiers with every count given."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from fabric._errors import ModelError, raise_faults, some
from fabric._units import parse_rate, parse_time
from fabric.network import Blueprint, Network, is_whole, wholes
from fabric.topologies._plan import afford, describe
from fabric.topologies._sizes import Sizes


def leaf_spine(
    leaves: int,
    spines: int,
    hosts_per_leaf: int | Sequence[int],
    *,
    capacity: str | float = "400Gb/s",
    host_capacity: str | Sequence[str | float] | None = None,
    uplink_capacity: str | float | None = None,
    cables_per_pair: int = 1,
    latency: str | float = 0.0,
) -> Network:
    """Return a leaf-spine network: every leaf has the same cables to every spine.

    Hosts come first and are ordered by leaf; they are called `leaf0-host0`, switches `leaf0` and
    `spine0`. Kinds `host`, `leaf`, `spine`; tiers `host`, `leaf-spine`; tag `leaf` on hosts and
    leaves.

    Args:
        leaves: Number of leaves.
        spines: Number of spines.
        hosts_per_leaf: One number for all leaves, or one per leaf; 0 is legal in a list.
        capacity: Of every cable, per direction: text with a unit, or byte/s. Default 400 Gb/s.
        host_capacity: Of the cables to the hosts of each leaf, one per leaf, where servers of
            several speeds share the fabric; in text `200Gb/s+400Gb/s`. Default: `capacity`.
        uplink_capacity: Of a cable between leaf and spine. Default: `capacity`.
        cables_per_pair: Parallel cables between a leaf and a spine.
        latency: Per link: text with a unit, or seconds. Default 0.

    Raises:
        ModelError: If a count is no whole number of at least 1, `hosts_per_leaf` or
            `host_capacity` does not have one entry per leaf, or the network would not fit in
            memory.

    Examples:
        >>> net = leaf_spine(leaves=4, spines=2, hosts_per_leaf=8, capacity="400Gb/s")
        >>> len(net.hosts), net.n_links
        (32, 80)
        >>> leaf_spine(2, 1, [3, 1]).labels.names[3]
        'leaf1-host0'
    """
    leaves, spines, cables_per_pair = _counts(leaves, spines, cables_per_pair)
    sizes = _sizes(leaves, hosts_per_leaf)
    what = describe(
        leaf_spine, leaves=leaves, spines=spines, hosts_per_leaf=hosts_per_leaf, capacity=capacity,
        host_capacity=host_capacity, uplink_capacity=uplink_capacity,
        cables_per_pair=cables_per_pair, latency=latency,
    )  # fmt: skip
    down = parse_rate(capacity, "capacity")
    up = down if uplink_capacity is None else parse_rate(uplink_capacity, "uplink_capacity")
    delay = parse_time(latency, "latency")
    at_hosts = _host_rates(leaves, host_capacity, down)
    afford(what, int(sizes.sum()) + leaves * spines * cables_per_pair)

    plan = Blueprint()
    if np.all(sizes == sizes[0]):
        shape = (leaves, int(sizes[0]))
        host = plan.nodes("host", "leaf{}-host{}", shape, leaf=np.arange(leaves)[:, None]).ravel()
    else:
        blocks = [
            plan.nodes("host", f"leaf{leaf}-host{{}}", (int(size),), leaf=leaf)
            for leaf, size in enumerate(sizes)
            if size
        ]
        host = np.concatenate(blocks)
    leaf = plan.nodes("leaf", "leaf{}", (leaves,), leaf=np.arange(leaves))
    spine = plan.nodes("spine", "spine{}", (spines,))
    plan.cables("host", host, np.repeat(leaf, sizes), np.repeat(at_hosts, sizes), delay)
    plan.cables("leaf-spine", leaf[:, None], spine, up, delay, parallel=cables_per_pair)
    return plan.network(what)


def sizes_of_leaf_spine(
    leaves: int, spines: int, hosts_per_leaf: int | Sequence[int], *, cables_per_pair: int = 1
) -> Sizes:
    """Return what `leaf_spine` would have.

    Examples:
        >>> sizes_of_leaf_spine(2, 3, [3, 1], cables_per_pair=2).ports
        {'host': 1, 'leaf': 9, 'spine': 4}
    """
    leaves, spines, cables_per_pair = _counts(leaves, spines, cables_per_pair)
    if isinstance(hosts_per_leaf, Sequence | np.ndarray):
        sizes = _sizes(leaves, hosts_per_leaf)
        hosts, most = int(sizes.sum()), int(sizes.max())
        single = int((sizes > 0).sum()) == 1
    else:
        (most,) = wholes(hosts_per_leaf=hosts_per_leaf)
        hosts, single = leaves * most, leaves == 1
    up = spines * cables_per_pair
    return Sizes(
        {"host": hosts, "leaf": leaves, "spine": spines},
        {"host": hosts, "leaf-spine": leaves * up},
        {"host": 1, "leaf": most + up, "spine": leaves * cables_per_pair},
        hops=1 if single else 3, paths=1 if single else spines,
        cable_paths=1 if single else spines * cables_per_pair**2,
    )  # fmt: skip


def _counts(leaves: int, spines: int, cables_per_pair: int) -> tuple[int, ...]:
    return wholes(leaves=leaves, spines=spines, cables_per_pair=cables_per_pair)


def _host_rates(
    leaves: int, host_capacity: str | Sequence[str | float] | None, usual: float
) -> Float[np.ndarray, " leaves"]:
    """Return byte/s of the cables to the hosts of each leaf."""
    if host_capacity is None:
        return np.full(leaves, usual)
    given = host_capacity.split("+") if isinstance(host_capacity, str) else host_capacity
    if len(given) != leaves:
        message = (
            f"`host_capacity` has {len(given):,} entries for {leaves:,} leaves. Give one per leaf, "
            f"or leave it out for `capacity` everywhere."
        )
        raise ModelError(message)
    return np.array([parse_rate(one, "host_capacity") for one in given])


def _sizes(leaves: int, hosts_per_leaf: int | Sequence[int]) -> np.ndarray:
    if not isinstance(hosts_per_leaf, Sequence | np.ndarray):
        return np.full(leaves, wholes(hosts_per_leaf=hosts_per_leaf)[0])
    faults = []
    if len(hosts_per_leaf) != leaves:
        faults.append(
            f"`hosts_per_leaf` has {len(hosts_per_leaf):,} entries for {leaves:,} leaves. Give one "
            f"number for all leaves, or one per leaf."
        )
    bad = [f"leaf{i}" for i, n in enumerate(hosts_per_leaf) if not is_whole(n) or n < 0]
    if bad:
        faults.append(
            f"`hosts_per_leaf` needs whole numbers of 0 or more, but not so at {some(bad)}."
        )
    raise_faults(faults)
    sizes = np.asarray(hosts_per_leaf, np.int64)
    if not sizes.sum():
        message = "`hosts_per_leaf` is 0 on every leaf. Ask for at least one host."
        raise ModelError(message)
    return sizes
