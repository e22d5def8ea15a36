"""Tori and meshes, plain and twisted, and pods of cubes joined by optical circuits."""

import functools
from math import gcd
from typing import Any

import numpy as np

import fabric as fb
from experiments.topologies.answers import (
    ARITHMETIC,
    BUILT,
    Answers,
    cables,
    kinds,
    ports,
)
from experiments.topologies.published import Entry
from fabric import topologies
from fabric._errors import FabricError
from fabric.network import Flows, Network, Routes
from fabric.topologies import AllToAll, circuits, torus, tpu_pod

FEW = 1100
"""Chips up to which a smoke run searches from every chip."""


def answer(entry: Entry, smoke: bool) -> Answers:
    """Return what we make of an entry of this family."""
    found = Answers()
    name, params = entry.name, entry.params
    if name.startswith(("torus_", "mesh_")):
        _torus(found, params, smoke, entry)
    elif name.startswith("twisted"):
        _twisted(found, params)
    elif name == "tpu_v4_pod":
        _v4(found)
    elif name == "tpu_v5p_pod":
        _v5p(found, entry)
    elif name == "tpu_twist_rule":
        _rule(found, entry)
    elif name == "tpu_ironwood_pod":
        _ironwood(found)
    elif name == "ocs_wiring_invariants":
        _invariants(found)
    elif name == "jupiter_direct_connect":
        _jupiter(found, entry, smoke)
    elif name == "topoopt":
        totient = {n: sum(gcd(p, int(n)) == 1 for p in range(1, int(n)))
                   for n in entry.expected["phi"]}  # fmt: skip
        found.put(f"{ARITHMETIC}: strides that give a ring", phi=totient)
        found.skip("a rule in words", "ring_permutations_n")
    return found


@functools.cache
def rate(dims: tuple[int, ...], twist: str | None = None) -> AllToAll:
    """Return the all-to-all of a torus."""
    return topologies.all_to_all_rate(torus(dims, twist=twist))


def _torus(found: Answers, params: dict[str, Any], smoke: bool, entry: Entry) -> None:
    dims = tuple(params["dims"])
    net = torus(dims, wrap=params["wrap"])
    found.put(BUILT, nodes=net.n_nodes, links=net.n_links // 2)
    if not params["wrap"]:
        found.put(BUILT, diameter=topologies.hops(net).diameter)
        return
    # All chips are alike: a smoke run searches from some of them where they are many.
    far = topologies.hops(net, samples=4 if smoke and net.n_nodes > FEW else None)
    unit = float(net.capacity[0])
    found.put(
        BUILT if far.exact else f"{BUILT}, searched from 4 like chips",
        degree=ports(net, "chip"), diameter=far.diameter, mean_hops_excl_self=far.mean,
        bisection_links=topologies.bisection(net).capacity / unit,
    )  # fmt: skip
    key = "uniform_a2a_per_node_in_link_units"
    if smoke and net.n_nodes > FEW:
        found.skip("left out of a smoke run", key)
        return
    found.put(_said(rate(dims)), **{key: rate(dims).in_links})


def _said(found: AllToAll) -> str:
    """Return how a rate was got, and whether any routing could do better."""
    best = f"no routing exceeds it, by its {found.limited_by}" if found.optimal else "split evenly"
    return f"{BUILT}; {best}"


def _twisted(found: Answers, params: dict[str, Any]) -> None:
    dims = tuple(params["dims"])
    net = torus(dims, twist="tpu")
    far, twisted, plain = topologies.hops(net), rate(dims, "tpu"), rate(dims)
    found.put(
        BUILT,
        nodes=net.n_nodes, links=net.n_links // 2, diameter=far.diameter,
        mean_hops_excl_self=far.mean, vertex_transitive=_alike(net),
    )  # fmt: skip
    found.put(
        _said(twisted),
        uniform_a2a_per_node_in_link_units=twisted.in_links,
        gain_over_plain_torus=twisted.rate / plain.rate,
    )


def _alike(net: Network) -> bool:
    """Return whether shifts by one place along every axis map a torus on itself.

    Together they lead from any chip to any other, so that then all chips are alike.
    """
    labels = net.labels
    steps = np.empty((2 * len(labels.tiers), net.n_nodes), np.int64)
    for axis in range(len(labels.tiers)):
        up = np.flatnonzero(labels.tier_of == axis)[::2]
        steps[2 * axis, labels.src[up]] = labels.dst[up]
        steps[2 * axis + 1, labels.dst[up]] = labels.src[up]
    return all(_shifted(steps, int(step[0])) for step in steps)


def _shifted(steps: np.ndarray, image: int) -> bool:
    """Return whether the map that takes chip 0 to `image` and keeps all steps is one."""
    to = np.full(steps.shape[1], -1)
    to[0] = image
    queue = [0]
    for chip in queue:
        for step in steps:
            if to[step[chip]] < 0:
                to[step[chip]] = step[to[chip]]
                queue.append(int(step[chip]))
    kept = all((to[step] == step[to]).all() for step in steps)
    return kept and len(set(to.tolist())) == len(to)


def _v4(found: Answers) -> None:
    net = tpu_pod(64, "16x16x16")
    labels, tiers = net.labels, cables(net)
    cube = labels.tags["cube"]
    degree = {
        tier: np.bincount(labels.src[labels.is_tier(tier)], minlength=net.n_nodes)[cube == 0]
        for tier in ("cube", "optical")
    }
    names = {3: "corner", 4: "edge", 5: "face", 6: "core"}
    positions = {
        name: [int((degree["cube"] == copper).sum()), copper,
               int(degree["optical"][degree["cube"] == copper].max())]
        for copper, name in names.items()
    }  # fmt: skip
    settings = circuits(net)
    used = sum(2 * len(rows) for rows in settings.values())
    inside = int((labels.is_tier("cube") & (cube[labels.src] == 0)).sum())
    found.put(
        BUILT,
        chips=kinds(net)["chip"], racks=len(np.unique(cube)),
        hosts=len(np.unique(labels.tags["host"])),
        optical_ports_per_cube=int(degree["optical"].sum()), optical_ports_total=used,
        ocs_per_dim=len(settings) // 3, intra_cube_links=inside // 2,
        intra_cube_links_total=tiers["cube"], inter_cube_links_in_full_torus=tiers["optical"],
        torus_links=net.n_links // 2, cube_chip_positions=positions,
        cube_copper_link_ends=int(degree["cube"].sum()),
        bisection_links=topologies.bisection(net, samples=0).capacity / float(net.capacity[0]),
        link_one_way_GBps_nominal=float(net.capacity[0]) / 1e9,
    )  # fmt: skip
    found.skip("a rate as published", "published_bisection_TBps", "published_allreduce_PBps",
               "link_one_way_GBps_scaling_book")  # fmt: skip


def _slice(cubes: int, shape: str) -> tuple[Network, np.ndarray]:
    """Return a pod with one slice, and which chips are of it."""
    net = tpu_pod(cubes, shape)
    return net, net.labels.tags["slice"] == 0


def _twistable(shape: str) -> bool:
    try:
        tpu_pod(144, f"{shape}_twisted")
    except FabricError:
        return False
    return True


def _v5p(found: Answers, entry: Entry) -> None:
    cubes = entry.params["cubes"]
    largest = "x".join(map(str, entry.expected["max_slice_shape"]))
    net, chosen = _slice(cubes, largest)
    labels = net.labels
    settings = {name: int(labels.about[name]) for name in ("ocs", "ocs_ports")}
    rows = []
    for shape, *_ in entry.expected["slices"]:
        pod, mine = _slice(cubes, shape)
        tags = pod.labels.tags
        whole = "optical" in pod.labels.tiers
        taken = len(np.unique(tags["cube"][mine])) if whole else None
        hosts = len(np.unique(tags["host"][mine]))
        rows.append([shape, int(mine.sum()), hosts, taken, _twistable(shape)])
    found.put(
        BUILT,
        chips=net.n_nodes, hosts=len(np.unique(labels.tags["host"])),
        optical_ports_total=settings["ocs"] * settings["ocs_ports"],
        max_slice_chips=int(chosen.sum()),
        max_slice_cubes=len(np.unique(labels.tags["cube"][chosen])),
        max_slice_shape=[int(labels.tags[axis][chosen].max()) + 1 for axis in "xyz"], slices=rows,
    )  # fmt: skip
    found.skip("a limit or a rate that the vendor's documents state", "multislice_max_chips",
               "ici_bidir_per_chip_GBps", "link_one_way_GBps_scaling_book")  # fmt: skip


def _rule(found: Answers, entry: Entry) -> None:
    quoted = entry.expected
    sides = range(4, 25, 4)
    shapes = [(a, b, c) for a in sides for b in sides for c in sides if a <= b <= c]
    said = lambda a, b, c: 2 * a == b == c or (a == b and 2 * a == c)
    follows = all(said(*shape) == _twistable("x".join(map(str, shape))) for shape in shapes
                  if np.prod(shape) <= 144 * 64)  # fmt: skip
    whole = lambda shape: "optical" in tpu_pod(1, shape).labels.tiers
    small = [*quoted["no_wrap"], quoted["full_torus_from"]]
    found.put(
        BUILT,
        twistable=quoted["twistable"] if follows else "another rule",
        examples=[shape if _twists(shape) else "refused" for shape in quoted["examples"]],
        full_torus_from=next(shape for shape in small if whole(shape)),
        no_wrap=[shape for shape in small if not whole(shape)],
    )


def _twists(shape: str) -> bool:
    return torus(shape, twist="tpu").n_nodes > 0


def _ironwood(found: Answers) -> None:
    net = tpu_pod(144, "4x4x4")
    about = net.labels.about
    each = int(about["ocs_ports"]) // 2
    found.put(
        BUILT,
        chips=net.n_nodes, hosts=len(np.unique(net.labels.tags["host"])), ocs=int(about["ocs"]),
        ocs_inputs=each, ocs_outputs=each,
        optical_ports_total=int(about["ocs"]) * int(about["ocs_ports"]),
    )  # fmt: skip


def _invariants(found: Answers) -> None:
    # Two slices over cubes that stand apart.
    net = tpu_pod(64, "4x4x8_twisted@0/63+8x8x8@5/7/11/13/17/19/23/29")
    labels = net.labels
    optical = np.flatnonzero(labels.is_tier("optical"))[::2]
    place = np.stack([labels.tags[f"cube_{axis}"] for axis in "xyz"], 1)
    a, b = place[labels.src[optical]], place[labels.dst[optical]]
    along = a != b
    plus_to_plus = bool((along.sum(1) != 1).any() or (a[along] != 3).any() or (b[along] != 0).any())
    apart = labels.tags["cube"][labels.tags["slice"] == 0]
    found.put(
        BUILT,
        ocs_count=len(circuits(net)), plus_to_plus_allowed=plus_to_plus,
        index_change_allowed=bool((along.sum(1) > 1).any()),
        cube_adjacency_required=set(apart.tolist()) != {0, 63},
    )  # fmt: skip
    found.skip("a time that the source states", "reconfig_time_s_tpuv4")


def worst_permutation(blocks: int) -> float:
    """Return the rate of each block to the next one, over all ways of one or two circuits.

    By max-min over every way; no routing does better, since the direct circuit takes one link and
    every other way two of the `blocks - 1` that leave a block.
    """
    net = topologies.direct_connect(blocks, blocks - 1)
    link = np.zeros((blocks, blocks), np.int64)
    link[net.labels.src, net.labels.dst] = np.arange(net.n_links)
    paths = []
    for src in range(blocks):
        dst = (src + 1) % blocks
        paths.append([int(link[src, dst])])
        paths += [
            [int(link[src, over]), int(link[over, dst])]
            for over in range(blocks) if over not in (src, dst)
        ]  # fmt: skip
    routes = Routes.from_paths(paths, n_links=net.n_links)
    rates = np.asarray(fb.max_min_rates(net, routes).rates).reshape(blocks, -1).sum(1)
    return float(rates.min()) / ((blocks - 1) * float(net.capacity[0]))


def _permutations(found: Answers, blocks: int) -> None:
    tree = topologies.clos(hosts=128, radix=16)
    shifted = np.roll(tree.hosts, 64)
    routes = fb.routing.spray(tree, Flows(tree.hosts, shifted))
    through = float(np.min(np.asarray(fb.max_min_rates(tree, routes).rates)))
    formula = all(abs(worst_permutation(k) - k / (2 * (k - 1))) < 1e-9 for k in (4, 6, 8))
    found.put(
        BUILT,
        worst_permutation_n64=worst_permutation(blocks),
        worst_permutation_throughput_formula="N/(2(N-1))" if formula else "another",
        clos_permutation_throughput=through / float(tree.capacity[0]),
    )


def _jupiter(found: Answers, entry: Entry, smoke: bool) -> None:
    quoted = entry.expected
    n = 64
    net = topologies.direct_connect(n, n - 1)
    uniform = topologies.all_to_all_rate(net)
    found.put(BUILT, uniform_traffic_throughput=uniform.rate / ((n - 1) * float(net.capacity[0])))
    if smoke:
        found.skip(
            "left out of a smoke run", "worst_permutation_n64",
            "worst_permutation_throughput_formula", "clos_permutation_throughput",
        )  # fmt: skip
    else:
        _permutations(found, n)
    found.put(
        f"{ARITHMETIC}: one hop for the quoted share, two for the rest",
        avg_block_path_length=quoted["direct_fraction"] + 2 * (1 - quoted["direct_fraction"]),
    )
    found.skip("measured in the operator's fleet", "direct_fraction", "speed_x",
               "capex_reduction", "power_reduction")  # fmt: skip
