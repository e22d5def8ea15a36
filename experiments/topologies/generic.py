"""Fat trees, folded Clos networks and full meshes, and the table of designs at equal radix."""

import math

from experiments.topologies.answers import (
    ARITHMETIC,
    BUILT,
    COUNTED,
    Answers,
    cables,
    kinds,
    largest,
    ports,
    way,
)
from experiments.topologies.published import Entry
from fabric import topologies
from fabric.topologies import sizes

LARGEST = 100_000
"""Hosts up to which a folded Clos network is built as well as counted."""


def answer(entry: Entry, smoke: bool) -> Answers:
    """Return what we make of an entry of this family."""
    found = Answers()
    if entry.name.startswith("fattree"):
        _fat_tree(found, entry.params["k"], smoke)
    elif entry.name.startswith("folded_clos"):
        for tiers in (1, 2, 3, 4):
            _clos(found, entry.params["radix"], tiers, smoke)
    elif entry.name.startswith("full_mesh"):
        _full_mesh(found, entry.params["n"])
    elif entry.name.startswith("deepseek"):
        _deepseek(found, entry, smoke)
    return found


def _fat_tree(found: Answers, k: int, smoke: bool) -> None:
    if smoke and k > 48:
        have = sizes("fat_tree", k=k)
        nodes, links = have.nodes, have.cables
        found.put(COUNTED, paths_other_pod=have.paths, switches_other_pod=have.hops)
        left_out = (
            "bisection_links", "paths_same_edge", "paths_same_pod", "links_same_edge",
            "links_same_pod", "links_other_pod", "diameter_links",
        )  # fmt: skip
        found.skip("left out of a smoke run", *left_out)
    else:
        net = topologies.fat_tree(k)
        nodes, links = kinds(net), cables(net)
        half = k // 2
        edge, pod, far = (way(net, 0, other) for other in (1, half, half * half))
        unit = float(net.capacity[0])
        found.put(
            BUILT,
            bisection_links=topologies.bisection(net, samples=0).capacity / unit,
            paths_same_edge=edge[2], paths_same_pod=pod[2], paths_other_pod=far[2],
            links_same_edge=edge[0], links_same_pod=pod[0], links_other_pod=far[0],
            switches_other_pod=far[1],
        )  # fmt: skip
        # All edge switches are alike, so that from some of them the diameter is seen.
        far_away = topologies.hops(net, samples=None if k <= 48 else 16)
        found.put(
            BUILT if far_away.exact else f"{BUILT}, searched from 16 like edge switches",
            diameter_links=far_away.diameter,
        )
    tiers = [links[tier] for tier in ("host", "edge-aggregation", "aggregation-core")]
    found.put(
        COUNTED if smoke and k > 48 else BUILT,
        hosts=nodes["host"], edge=nodes["edge"], agg=nodes["aggregation"], core=nodes["core"],
        switches=nodes["edge"] + nodes["aggregation"] + nodes["core"], links_host=tiers[0],
        links_edge_agg=tiers[1], links_agg_core=tiers[2], links_total=sum(tiers),
    )  # fmt: skip


def _clos(found: Answers, radix: int, tiers: int, smoke: bool) -> None:
    key = lambda word: f"{word}_{tiers}tier" + ("_incl_host" if word == "links" else "")
    # What the radix reaches at 1:1 is found by asking the builder, not by the formula.
    if tiers == 1:
        count = lambda n: sizes("single_switch", hosts=n)
        hosts = radix
    else:
        count = lambda n: sizes("clos", hosts=n, radix=radix, tiers=tiers)
        hosts = largest(count)
    have = count(hosts)
    found.put(
        COUNTED,
        **{
            key("hosts"): have.nodes["host"], key("switches"): have.switches,
            key("links"): have.n_cables, key("switch_hops_max"): have.hops,
            key("paths_max"): have.paths,
        },
    )  # fmt: skip
    if hosts > (5_000 if smoke else LARGEST):
        return
    if tiers == 1:
        net = topologies.single_switch(hosts)
    else:
        net = topologies.clos(hosts=hosts, radix=radix, tiers=tiers)
    far = way(net, 0, hosts - 1)
    found.put(
        BUILT,
        **{
            key("hosts"): len(net.hosts), key("switches"): net.n_nodes - len(net.hosts),
            key("links"): net.n_links // 2, key("switch_hops_max"): topologies.hops(net).switches,
            key("paths_max"): far[2],
        },
    )  # fmt: skip


def _full_mesh(found: Answers, n: int) -> None:
    if n > 1000:
        have = sizes("full_mesh", nodes=n)
        found.put(COUNTED, ports_per_node=have.ports["node"], cables=have.n_cables)
        found.put(
            f"{ARITHMETIC}: every pair is joined", diameter_links=1,
            bisection_links=(n // 2) * (n - n // 2),
        )  # fmt: skip
        return
    net = topologies.full_mesh(nodes=n)
    cut = topologies.bisection(net).capacity / float(net.capacity[0])
    found.put(
        BUILT, ports_per_node=ports(net, "node"), cables=net.n_links // 2,
        diameter_links=topologies.hops(net).diameter, bisection_links=cut,
    )  # fmt: skip


def _deepseek(found: Answers, entry: Entry, smoke: bool) -> None:
    between = lambda have: have.n_cables - have.cables["host"]
    row = lambda have: {
        "endpoints": have.endpoints, "switches": have.switches, "links": between(have),
    }  # fmt: skip
    two = sizes("clos", hosts=2048, radix=64)
    # Each of 8 GPUs of a server has its NIC in a plane of its own.
    planes = sizes("rail_only", servers=2048, rails=8, radix=64)
    three = sizes("fat_tree", k=64)
    if smoke:
        far = sizes("dragonfly", p=16, a=32, h=16, groups=511)
    else:
        far = topologies.sizes_of(topologies.dragonfly(16, 32, 16, groups=511))
    # q = 28 is no prime power, so that there is no such graph: only its counts have a formula.
    q = 28
    routers, degree = 2 * q * q, 3 * q // 2
    hosts = routers * math.ceil(degree / 2)
    fly = {
        "endpoints": hosts, "switches": routers, "links": routers * degree // 2, "q": q,
        "network_radix": degree, "p": math.ceil(degree / 2),
    }  # fmt: skip
    rows = {
        "FT2": row(two), "MPFT": row(planes) | {"planes": 8}, "FT3": row(three), "SF": fly,
        "DF": row(far) | {"p": 16, "a": 32, "h": 16, "g": 511},
    }  # fmt: skip
    cost = entry.expected["cost_musd"]
    found.put(COUNTED, FT2=rows["FT2"], MPFT=rows["MPFT"], FT3=rows["FT3"])
    found.put(COUNTED if smoke else BUILT, DF=rows["DF"])
    found.put(f"{ARITHMETIC}: counts of the formulas, q = 28 is no prime power", SF=rows["SF"])
    found.put(
        f"{ARITHMETIC}: the published cost by our endpoints",
        cost_per_endpoint_kusd={
            name: 1e3 * millions / rows[name]["endpoints"] for name, millions in cost.items()
        },
    )
    found.skip("a cost as published; its prices are not", "cost_musd")
