"""`collective` and its six operations: from a fabric, ranks and sizes to times."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fabric._errors import ModelError, raise_faults
from fabric._evidence import Evidence
from fabric._typing import AnyArray
from fabric._units import parse_size
from fabric.collectives import _nccl as nccl
from fabric.collectives._exchange import members
from fabric.collectives._operations import bus_factor, known_operation
from fabric.collectives._report import CollectiveReport
from fabric.collectives._site import Site, ranked
from fabric.collectives._ways import NOT_AUTOMATIC, Way, chosen, times, worked_out
from fabric.hardware import Collectives, Profile, default_profile
from fabric.network import Network, whole
from fabric.routing import usual

Ranks = AnyArray | Sequence[Any]
Size = str | float | Sequence[str | float] | AnyArray


def collective(
    operation: str,
    network: Network,
    ranks: Ranks | None = None,
    size: Size = 2**30,
    *,
    algorithm: str = "auto",
    routing: str | None = None,
    profile: Profile | None = None,
    seed: int = 0,
    receivers: Ranks | None = None,
) -> CollectiveReport:
    """Return how long a collective operation takes, and what else it could have been done by.

    The flows of every phase are routed over the network and share it max-min fairly, all groups
    at once; the slowest flow decides. With latency `lat` and x the time of the bytes alone, a
    message takes `lat + x + gamma sqrt(lat x)`, the least of the algorithms and of NCCL's
    protocols LL, LL128 and Simple. Capacities in the network are nominal; a collective reaches a
    share of them.

    Args:
        operation: One of `OPERATIONS`.
        network: With labels. Where it has GPUs, messages inside a server go over its NVLink. Where
            its endpoints are network adapters with the tag `server` or `host`, messages inside a
            server are taken as free. Otherwise every endpoint is a server.
        ranks: (ranks,) nodes in the order of the ring, the root of a broadcast first; or
            (groups, ranks), groups that run at the same time. Default: all endpoints.
        size: Bytes or text with a unit, one or several; as nccl-tests count them, see
            `bus_factor`.
        algorithm: "auto", the fastest of those that NCCL would choose from, or one of
            `ALGORITHMS` by name.
        routing: A name of `routing.ROUTINGS`. Default: the usual one of the cluster, else "ecmp".
        profile: Its `collectives` say how far NCCL's tables hold. Default: that of the GPU, if the
            network names it, else typical ones; listed in the answer.
        seed: Of ECMP hashes.
        receivers: Of `send_recv` only: as many nodes as `ranks`, in the same shape. Rank i sends
            to receiver i, all ranks of a group the same message. Default: to the next rank.

    Returns:
        A `CollectiveReport`, one value per size.

    Raises:
        ModelError: If a name is unknown, a size or a rank is wrong, or the site does not offer
            the algorithm.
        InfeasibleError: If a rank cannot be reached.

    Cost: One solve per phase of each algorithm, whatever the number of sizes.

    Examples:
        Four hosts under one leaf: each sends 2 x 3/4 of the message at 0.96 x 50 GB/s.

        >>> import fabric as fb
        >>> net = fb.topologies.leaf_spine(leaves=1, spines=1, hosts_per_leaf=4)
        >>> report = collective("all_reduce", net, size=["1KiB", "4GiB"], algorithm="ring")
        >>> [f"{x / 1e9:.2f} GB/s" for x in report.busbw]
        ['0.05 GB/s', '46.79 GB/s']

    References:
        NVIDIA/nccl 2.30.7, src/graph/tuning.cc. NVIDIA/nccl-tests, doc/PERFORMANCE.md.
    """
    known_operation(operation)
    seed = whole("seed", seed, 0, 2**64 - 1)
    sizes = _sizes(size)
    groups = ranked(network, ranks)
    rule, kind, why = usual(network, routing)
    if profile is None and (gpu := network.labels.about.get("gpu")):
        profile = default_profile(gpu)
    constants = nccl.TYPICAL if profile is None else profile.collectives
    nvlink, nic = _shares(network, operation, constants)
    site = Site(
        network, groups, rule, seed, nvlink.value, nic.value,
        _receivers(operation, receivers, groups),
    )  # fmt: skip
    site.check()
    names = chosen(operation, algorithm, site)
    wanted = [name for name in names if name not in NOT_AUTOMATIC] if algorithm == "auto" else [
        algorithm
    ]  # fmt: skip
    ways = {name: worked_out(operation, name, site, constants) for name in names}
    clock = {name: times(way, sizes.ravel(), site, constants) for name, way in ways.items()}
    best = _best({name: clock[name] for name in wanted})
    time = np.array([seconds for seconds, _, _ in best]).reshape(sizes.shape)
    least = lambda by: np.min(list(by.values()), axis=0).reshape(sizes.shape)
    algbw = np.asarray(sizes / time)
    busbw = np.asarray(algbw * bus_factor(operation, site.n_ranks))
    routed = {"name": "routing", "value": rule, "kind": kind, "source": why}
    last = best[int(np.argmax(sizes.ravel()))][1]
    return CollectiveReport(
        operation, site.n_ranks, len(groups), sizes, time, algbw, busbw,
        tuple(name for _, name, _ in best), tuple(protocol for _, _, protocol in best),
        {name: least(by) for name, by in clock.items()}, ways[last].bottlenecks,
        (routed, *_assumed(site, constants, nvlink, nic, ways)),
    )  # fmt: skip


def _best(clock: dict[str, dict[str, np.ndarray]]) -> list[tuple[float, str, str]]:
    """Return for every size the least time, and the algorithm and protocol that it belongs to."""
    rows = [
        (seconds, name, protocol) for name, by in clock.items() for protocol, seconds in by.items()
    ]
    table = np.stack([seconds for seconds, _, _ in rows])
    return [
        (float(table[i, column]), *rows[i][1:]) for column, i in enumerate(table.argmin(axis=0))
    ]


def _sizes(size: Size) -> np.ndarray:
    """Return bytes in the shape given, each at least one."""
    given = np.asarray(size, object)
    values = np.array([parse_size(value) for value in given.ravel()], np.float64)
    faults = [
        f"`size` needs 1 byte or more, but got {value!r}."
        for value, parsed in zip(given.ravel(), values, strict=True)
        if parsed < 1
    ]
    raise_faults(faults if len(values) else ["`size` needs at least one size."])
    return values.reshape(given.shape)


def _receivers(operation: str, receivers: Ranks | None, groups: np.ndarray) -> np.ndarray | None:
    if receivers is None:
        return None
    if operation != "send_recv":
        message = f"`{operation}` has no `receivers`; `send_recv` has."
        raise ModelError(message)
    given = np.asarray(receivers)
    nodes = members("receivers", given[None, :] if given.ndim == 1 else given)
    if nodes.shape != groups.shape:
        message = (
            f"`send_recv(receivers)` needs one for each rank, but got {nodes.shape[1]:,} in "
            f"{len(nodes):,} groups for {groups.shape[1]:,} in {len(groups):,}."
        )
        raise ModelError(message)
    return nodes


def _shares(network: Network, operation: str, constants: Collectives) -> tuple[Evidence, Evidence]:
    """Return the shares of NVLink and of network adapters that the operation reaches."""
    link = nccl.generation(network.labels.about.get("gpu")).link
    value, source = link.value * constants.bus_scale.value, link.source
    if operation == "all_to_all":
        value, source = value * nccl.PAIRS.value, f"{source}; {nccl.PAIRS.source}"
    return Evidence(value, link.kind, source), constants.nic_fraction


def _assumed(
    site: Site, constants: Collectives, nvlink: Evidence, nic: Evidence, ways: dict[str, Way]
) -> list[dict[str, Any]]:
    """Return what the times rest on."""
    listed = {"NIC share": nic, "gamma": constants.gamma}
    if site.inside == "nvlink":
        listed = {"NVLink share": nvlink} | listed
    listed["latency scale"] = constants.latency_scale
    listed["network latency scale"] = constants.net_latency_scale
    rows = [
        {"name": name, "value": e.value, "kind": e.kind, "source": e.source}
        for name, e in listed.items()
    ]
    free = site.inside is None and site.server_of is not None
    if free:
        rows.append(
            {
                "name": "inside servers", "value": "free", "kind": "assumed",
                "source": "the network has no GPUs, only their network adapters",
            }
        )  # fmt: skip
    left = [name for name in ways if name in NOT_AUTOMATIC]
    if left:
        rows.append(
            {
                "name": "auto", "value": f"without {left[0]}", "kind": "assumed",
                "source": "NCCL does not choose it by itself",
            }
        )  # fmt: skip
    return rows
