"""Dragonflies, Slim Flies and HyperX networks."""

from typing import Any

import numpy as np

from experiments.topologies.answers import (
    BUILT,
    COUNTED,
    Answers,
    cables,
    carried,
    kinds,
    per_pair,
    ports,
    way,
)
from experiments.topologies.published import Entry
from fabric import topologies
from fabric.network import Network
from fabric.topologies import dragonfly, dragonfly_plus, hyperx, sizes, slim_fly

TB, PB, TBIT = 1e12, 1e15, 1e12 / 8


def answer(entry: Entry, smoke: bool) -> Answers:
    """Return what we make of an entry of this family."""
    found, params = Answers(), entry.params
    if entry.name.startswith("dragonflyplus"):
        _plus(found, params["radix"], smoke)
    elif entry.name.startswith("dragonfly"):
        _dragonfly(found, params, smoke)
    elif entry.name.startswith("slimfly"):
        _slim_fly(found, params["q"])
    elif entry.name.startswith("hyperx"):
        _hyperx(found, params)
    elif entry.name == "frontier_slingshot":
        _frontier(found)
    elif entry.name == "aurora_slingshot":
        _aurora(found)
    return found


def _dragonfly(found: Answers, params: dict[str, Any], smoke: bool) -> None:
    large = params["p"] >= 16
    if large and smoke:
        have = sizes("dragonfly", **params)
        routers, local, far = have.nodes["router"], have.cables["local"], have.cables["global"]
        found.put(
            COUNTED,
            radix=have.ports["router"], groups=routers // params["a"], routers=routers,
            hosts=have.nodes["host"], local_links=local, global_links=far,
        )  # fmt: skip
        found.skip("left out of a smoke run", "max_router_hops_links", "links_between_group_pair")
        return
    net = dragonfly(**params)
    have, tiers, group = kinds(net), cables(net), net.labels.tags["group"]
    far = topologies.hops(net, samples=16 if large else None)
    found.put(
        BUILT,
        radix=ports(net, "router"), groups=len(np.unique(group)), routers=have["router"],
        hosts=have["host"], local_links=tiers["local"], global_links=tiers["global"],
        links_between_group_pair=_between(net),
    )  # fmt: skip
    found.put(
        BUILT if far.exact else f"{BUILT}, searched from 16 routers; the wiring allows no more",
        max_router_hops_links=far.diameter - 2,
    )


def _between(net: Network) -> int:
    """Return the global cables between two groups, where all pairs have as many."""
    group = net.labels.tags["group"]
    return per_pair(net, "global", (group[net.labels.src], group[net.labels.dst]))


def _plus(found: Answers, radix: int, smoke: bool) -> None:
    have = sizes("dragonfly_plus", radix=radix)
    groups = have.nodes["leaf"] // (radix // 2)
    found.put(
        COUNTED,
        hosts_per_group=have.nodes["host"] // groups,
        global_per_group=2 * have.cables["global"] // groups, groups_max=groups,
        hosts_max=have.nodes["host"], global_links=have.cables["global"], switches=have.switches,
    )  # fmt: skip
    if radix > (8 if smoke else 40):
        found.skip("too large to search", "max_switch_hops_minimal")
        return
    net = dragonfly_plus(radix)
    far = topologies.hops(net, samples=None if radix <= 8 else 8)
    found.put(
        BUILT if far.exact else f"{BUILT}, searched from 8 leaves",
        max_switch_hops_minimal=far.switches,
    )


def _slim_fly(found: Answers, q: int) -> None:
    net = slim_fly(q)
    have = kinds(net)
    found.put(
        BUILT,
        routers=have["router"], network_radix=ports(net, "router", "network"),
        edges=cables(net)["network"], diameter=topologies.hops(net).diameter - 2,
        p_balanced=ports(net, "router", "host"), hosts=have["host"],
        router_radix=ports(net, "router"),
    )  # fmt: skip


def _hyperx(found: Answers, params: dict[str, Any]) -> None:
    net = hyperx(params["S"], params["T"])
    have, labels = kinds(net), net.labels
    unit = float(net.capacity[0])
    half = topologies.bisection(net, "dim0")
    corner = np.flatnonzero(
        labels.is_kind("host")
        & np.all([labels.tags[f"dim{i}"] == 1 for i in range(len(params["S"]))], axis=0)
    )[0]
    found.put(
        BUILT,
        switches=have["router"], hosts=have["host"], radix=ports(net, "router"),
        links=net.n_links // 2 - cables(net)["host"], diameter=topologies.hops(net).diameter - 2,
        cut_links_halving_dim0=half.capacity / unit,
        relative_bisection=half.capacity / unit / (have["host"] / 2),
        minimal_paths_all_dims_differ=way(net, 0, int(corner))[2],
    )  # fmt: skip


def _frontier(found: Answers) -> None:
    net = dragonfly(16, 32, 16, groups=74, links_per_pair=4, capacity="200Gb/s")
    labels, tiers = net.labels, cables(net)
    group = labels.tags["group"]
    first, host, router = group == 0, labels.is_kind("host"), labels.is_kind("router")
    into = carried(net, host & first, router) / TBIT
    out = carried(net, router & first, router & ~first) / TBIT
    local = labels.is_tier("local") & first[labels.src]
    found.put(
        BUILT,
        endpoints_per_group=int((host & first).sum()), switches=int(router.sum()),
        local_links_per_group=int(local.sum()) // 2, local_ports_per_group=int(local.sum()),
        global_links=tiers["global"], injection_per_group_Tbps=into, ejection_per_group_Tbps=out,
        blocking=into / out, taper=out / into,
        sum_global_links_one_way_TBps=tiers["global"] * float(net.capacity[0]) / TB,
        halves_cut_one_way_TBps=topologies.bisection(net, "group").capacity / TB,
        nodes_slots=int(host.sum()) // 4, max_switch_hops=topologies.hops(net).switches,
    )  # fmt: skip
    found.skip("nodes that were put into the slots", "nodes_installed")


def _aurora(found: Answers) -> None:
    # 330 global cables of a group on 32 switches: 11 ports of each.
    net = dragonfly(16, 32, 11, groups=166, links_per_pair=2, capacity="200Gb/s")
    host, unit = net.labels.is_kind("host"), float(net.capacity[0])
    far = cables(net)["global"]
    found.put(
        BUILT,
        nodes=int(host.sum()) // 8, nics=int(host.sum()),
        endpoints_per_group=int((host & (net.labels.tags["group"] == 0)).sum()),
        injection_PBps=int(host.sum()) * unit / PB, global_links_compute=far,
        sum_global_links_one_way_PBps=far * unit / PB,
        halves_cut_one_way_PBps=topologies.bisection(net, "group").capacity / PB,
    )  # fmt: skip
    found.skip("storage and service groups are not built", "switches_total_all_groups",
               "groups_total")  # fmt: skip
