"""Servers that are alike share ways; bounds hold with them; what is cut off is kept apart."""

import dataclasses
import functools
import itertools
import json

import numpy as np
import pytest

import fabric as fb
from fabric import optimize
from fabric._errors import InfeasibleError, ModelError
from fabric.optimize._placement_bound import bound_of
from fabric.optimize._placement_input import rule_of, server_and_gpu, slots_of, traffic_of
from fabric.optimize._placement_score import Scorer, exact
from fabric.optimize._placement_ways import units_of, ways_of
from fabric.optimize._swaps import Search


def cluster(n=3):
    return fb.topologies.cluster("dgx-h100", nodes=n)


def drawn_flows(seed, ranks, n=40):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, ranks, n)
    b = (a + rng.integers(1, ranks, n)) % ranks
    return fb.Flows(a, b, size=rng.lognormal(20, 1, n), weight=rng.choice([1.0, 2.0], n))


def of_hosts(net, flows, node, fluid=False):
    """Return the seconds of flows between ranks on nodes by the public solver."""
    left, live, now = np.asarray(flows.size).copy(), np.arange(flows.n_flows), 0.0
    while len(live):
        src, dst = node[np.asarray(flows.src)[live]], node[np.asarray(flows.dst)[live]]
        routes = fb.routing.spray(net, fb.Flows(src, dst, weight=np.asarray(flows.weight)[live]))
        rate = np.asarray(fb.max_min_rates(net, routes).rates)
        need = left[live] / rate
        if not fluid:
            return need.max()
        now += need.min()
        left[live] -= need.min() * rate
        live = live[left[live] > 1e-9 * np.asarray(flows.size)[live]]
    return now


FAULTS = {
    "whole": lambda net: net,
    "dead cable": lambda net: net.without(
        links=[int(np.flatnonzero(net.labels.is_tier("host"))[3])]
    ),
    "slow cable": lambda net: net.degraded(
        links=[int(np.flatnonzero(net.labels.is_tier("host"))[0])], factor=0.5
    ),
    "dead spine": lambda net: net.without(
        nodes=[int(np.flatnonzero(net.labels.is_kind("spine"))[0])]
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("fluid", [False, True])
def test_scores_by_shared_ways_are_those_of_the_exact_solver(fault, fluid):
    net = FAULTS[fault](cluster())
    flows = drawn_flows(1, 16, 8 if fluid else 40)
    asked, rule = traffic_of(flows, 16), rule_of("spray", 0)
    slots = slots_of(net, None, 16, "rank")
    ways = ways_of(net, slots, rule)
    assert ways.n_kinds < slots.n_slots
    draw = np.random.default_rng(2)
    orders = np.array([draw.permutation(slots.n_slots) for _ in range(2)])
    found, _ = Scorer(net, asked, slots, rule, ways, fluid=fluid)(orders)
    want = [of_hosts(net, flows, slots.node[order], fluid) for order in orders]
    np.testing.assert_allclose(found, want, rtol=1e-9)
    own = [exact(net, asked, slots.node[order], rule, fluid=fluid)[0] for order in orders]
    np.testing.assert_allclose(own, want, rtol=1e-9)
    assert bound_of(net, slots, asked, ways) <= min(want) * (1 + 1e-9)


def test_one_cable_tells_a_server_from_the_others():
    net, rule = cluster(4), rule_of("spray", 0)
    slots = slots_of(net, None, 32, None)
    assert units_of(slots, ways_of(net, slots, rule)).room.tolist() == [4]
    slow = FAULTS["slow cable"](net)
    assert sorted(units_of(slots, ways_of(slow, slots, rule)).room.tolist()) == [1, 3]
    # A hash of the ends knows every server.
    assert len(units_of(slots, ways_of(net, slots, rule_of("ecmp", 0))).room) == 4


def test_exchanges_of_servers_that_are_alike_are_not_tried():
    net = fb.topologies.rail_optimized(servers=6, rails=2, radix=16, servers_per_unit=3)
    asked, rule = traffic_of(drawn_flows(0, 12), 12), rule_of("spray", 0)
    slots = slots_of(net, None, 12, None)
    ways = ways_of(net, slots, rule)
    score = Scorer(net, asked, slots, rule, ways, fluid=False)
    search = Search(score, slots, units_of(slots, ways), 12, 100, 0.0)
    useful = search._useful(np.arange(12))
    # 3 x 3 pairs of servers of two units, and a pair of ranks within each of six servers.
    assert len(useful) == 9 + 6
    base, _ = score(np.arange(12)[None])
    rows = search._exchanged(np.arange(12), np.setdiff1d(np.arange(15 + 6), useful))
    assert len(rows) == 6
    np.testing.assert_array_equal(score(rows)[0], np.repeat(base, 6))


def test_more_endpoints_than_ways_are_kept_between_are_placed():
    many = fb.topologies.rail_optimized(servers=300, tiers=3, leaf_up=8, servers_per_unit=32)
    flows = fb.Flows(np.arange(2400), np.roll(np.arange(2400), 8), size=1e9)
    found = optimize.placement(many, flows, starts=1, budget=3, control=False)
    assert len(found.endpoints) == 2400
    assert found.objective == pytest.approx(
        of_hosts(many, flows, np.asarray(found.placement.endpoint_of)), rel=1e-12
    )
    assert found.bound <= found.objective <= found.before
    with pytest.raises(InfeasibleError, match=r"between at most 2,048 .* has 2,400"):
        optimize.placement(many, flows, routing=functools.partial(fb.routing.ecmp, key="ends"))
    with pytest.raises(InfeasibleError, match=r"at most 2,048 units, but there are 2,400"):
        optimize.placement(many, flows, unit="rank")


def islands():
    """Return two leaves that nothing joins, two hosts each."""
    net = fb.topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2)
    return net.without(links=np.flatnonzero(net.labels.is_tier("leaf-spine")))


@pytest.mark.parametrize("routing", ["spray", "ecmp", "adaptive"])
def test_what_cannot_reach_each_other_is_placed_apart(routing):
    pairs = fb.Flows([0, 1, 2, 3], [2, 3, 0, 1], size=50e9)
    found = optimize.placement(islands(), pairs, routing=routing, starts=2, budget=100)
    assert found.objective == pytest.approx(1, rel=1e-9)
    assert np.isinf(found.before)
    told = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert told["before"] is None
    ring = fb.Flows([0, 1, 2], [1, 2, 0], size=1e9)
    with pytest.raises(InfeasibleError, match="leaf0-host"):
        optimize.placement(islands(), ring, routing=routing, starts=2, budget=100)


def test_no_placement_over_links_without_capacity_is_returned():
    net = fb.topologies.leaf_spine(leaves=3, spines=1, hosts_per_leaf=1)
    up = np.flatnonzero(net.labels.is_tier("leaf-spine"))
    capacity = np.asarray(net.capacity).copy()
    capacity[up[net.labels.src[up] == net.labels.node("leaf0")]] = 0
    net = net.with_capacity(capacity)
    one_way = fb.Flows([0], [1], size=1e9)
    found = optimize.placement(net, one_way, ranks=2, budget=50)
    assert found.endpoints[0] != "leaf0-host0"
    assert found.certified
    both = fb.Flows([0, 1, 2], [1, 2, 0], size=1e9)
    with pytest.raises(InfeasibleError):
        optimize.placement(net, both, budget=50)


def test_traffic_that_stays_in_servers_is_proved_optimal():
    inside = np.arange(16).reshape(2, 8)
    flows = fb.Flows(inside.ravel(), np.roll(inside, 1, axis=1).ravel(), size=1e9)
    found = optimize.placement(cluster(2), flows, starts=1, budget=20, control=False)
    assert found.unit == "server"
    assert found.certified


def test_caps_bound_the_seconds():
    net = fb.topologies.torus((3, 2))
    flows = fb.Flows([0, 1], [1, 2], size=[4e9, 1e9], cap=[1e9, np.inf])
    found = optimize.placement(net, flows, ranks=6, starts=1, budget=3, control=False)
    assert found.bound == pytest.approx(4, rel=1e-9)
    assert found.certified


@pytest.mark.parametrize("seed", range(3))
def test_bounds_of_units_with_traffic_inside_hold(seed):
    net = fb.topologies.rail_optimized(servers=3, rails=2, radix=8, servers_per_unit=1)
    asked, rule = traffic_of(drawn_flows(seed, 6, 12), 6), rule_of("spray", 0)
    slots = slots_of(net, None, 6, "server")
    ways = ways_of(net, slots, rule)
    rows = [
        np.array([2 * s + (i ^ f) for s, f in zip(order, flip, strict=True) for i in (0, 1)])
        for order in itertools.permutations(range(3))
        for flip in itertools.product((0, 1), repeat=3)
    ]
    best = Scorer(net, asked, slots, rule, ways, fluid=False)(np.array(rows))[0].min()
    assert 0 < bound_of(net, slots, asked, ways) <= best * (1 + 1e-12)
    found = optimize.placement(net, drawn_flows(seed, 6, 12), starts=3, budget=200, control=False)
    assert found.objective == pytest.approx(best, rel=1e-12)
    assert found.bound <= best * (1 + 1e-12)


def test_every_option_that_changes_the_search_changes_the_checkpoint(tmp_path):
    net, file = fb.topologies.torus((3, 2)), tmp_path / "state"
    flows, more = drawn_flows(0, 5), drawn_flows(1, 5)
    same = {"starts": 2, "budget": 40, "control": False, "checkpoint": file}
    one = optimize.placement(net, flows, **same)
    again = optimize.placement(net, flows, **same, tolerance=0.5)
    np.testing.assert_array_equal(again.placement.endpoint_of, one.placement.endpoint_of)
    hashed = functools.partial(fb.routing.ecmp, key="ends")
    for other in (
        {"traffic": more}, {"traffic": [flows, more]},
        {"network": net.degraded(links=[0], factor=0.5)}, {"ranks": 6},
        {"allocation": net.hosts[:5]}, {"routing": "ecmp"}, {"routing": hashed},
        {"routing": functools.partial(hashed, seed=1)}, {"objective": "completion"}, {"starts": 3},
        {"budget": 41}, {"seed": 1},
    ):  # fmt: skip
        with pytest.raises(ModelError, match="another problem"):
            optimize.placement(**({"network": net, "traffic": flows} | same | other))
    routed = {"routing": hashed, "checkpoint": tmp_path / "hashed"}
    optimize.placement(net, flows, **(same | routed))
    with pytest.raises(ModelError, match="another problem"):
        optimize.placement(
            net, flows, **(same | routed | {"routing": functools.partial(hashed, seed=1)})
        )
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ModelError, match="no checkpoint that can be read"):
        optimize.placement(net, flows, **same)


def named(names, servers):
    """Return hosts under two leaves, with these names and servers."""
    net = fb.topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=len(names) // 2)
    labels, n = net.labels, net.n_nodes
    of = np.full(n, -1)
    of[net.hosts] = servers
    every = [*names, *(labels.names[i] for i in range(n) if not labels.endpoint[i])]
    assert labels.endpoint[: len(names)].all()
    labels = dataclasses.replace(labels, names=every, tags={**labels.tags, "server": of})
    return fb.Network(net.capacity, net.latency, net.alive, net.routing_cost, labels=labels)


@pytest.mark.parametrize(
    ("names", "servers", "said", "numbers"),
    [
        (["dgx-01", "dgx-02", "dgx-03", "dgx-04"], [0, 1, 2, 3],
         ["dgx-01", "dgx-02", "dgx-03", "dgx-04"], [0, 0, 0, 0]),
        (["a-gpu0", "a-gpu1", "b-gpu0", "b-gpu1"], [0, 0, 1, 1],
         ["a", "a", "b", "b"], [0, 1, 0, 1]),
        (["n1 mlx5_0", "n1 mlx5_3", "n2 mlx5_0", "n2 mlx5_3"], [0, 0, 1, 1],
         ["n1", "n1", "n2", "n2"], [0, 1, 0, 1]),
        (["x-0", "x-1", "x-2", "x-3"], [0, 0, 1, 1], ["x-0", "x-1", "x-2", "x-3"], [0, 1, 0, 1]),
    ],
)  # fmt: skip
def test_servers_are_called_as_their_endpoints_without_numbers(names, servers, said, numbers):
    net = named(names, servers)
    assert server_and_gpu(net, net.hosts) == (said, numbers)


def test_ranks_that_changed_places_within_a_server_are_told_to_launchers():
    flows = fb.Flows([0, 1], [1, 0], size=1e9)
    found = optimize.placement(
        cluster(1), flows, unit="rank", allocation=["server0-gpu5", "server0-gpu2"], budget=2
    )
    assert found.gpu_file() in ("5\n2\n", "2\n5\n")
    first = found.gpus[0]
    line = found.rank_file(cores=12).splitlines()[0]
    assert line == f"rank 0=server0 slot={12 * first}-{12 * first + 11}"
    assert found.slurm_nodes == "server0"
    with pytest.raises(ModelError, match="cores"):
        found.rank_file(cores=0)


@pytest.mark.parametrize(("ranks", "differ"), [(4, 54), (3, 24)])
def test_all_placements_that_differ_are_tried_once(ranks, differ):
    net = fb.topologies.leaf_spine(leaves=3, spines=1, hosts_per_leaf=2, uplink_capacity="100Gb/s")
    flows = drawn_flows(3, ranks, 8)
    found = optimize.placement(net, flows, ranks=ranks, budget=differ, control=False)
    # Dealt to three leaves of two: 4! / 2!**2 * 3 + 4! / 2! * 3, and 3! / 2! * 6 + 3!.
    assert (found.evaluations, found.certified, found.steps) == (differ, True, 0)
    orders = itertools.permutations(net.hosts.tolist(), ranks)
    truth = min(
        of_hosts(net, flows, np.array(order)) for order in orders if order[0] == net.hosts[0]
    )
    assert found.objective == pytest.approx(truth, rel=1e-12)


def test_servers_that_carry_the_traffic_of_others_are_told_apart():
    net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=2, uplink_capacity="100Gb/s")
    spines = net.labels.is_kind("spine")
    labels = dataclasses.replace(net.labels, endpoint=net.labels.endpoint | spines)
    net = fb.Network(net.capacity, net.latency, net.alive, net.routing_cost, labels=labels)
    flows = drawn_flows(4, 6, 12)
    asked, rule, slots = traffic_of(flows, 6), rule_of("spray", 0), slots_of(net, None, 6, None)
    ways = ways_of(net, slots, rule)
    assert ways.n_kinds == 6
    orders = np.array([np.random.default_rng(seed).permutation(6) for seed in range(5)])
    found, _ = Scorer(net, asked, slots, rule, ways, fluid=False)(orders)
    want = [of_hosts(net, flows, slots.node[order]) for order in orders]
    np.testing.assert_allclose(found, want, rtol=1e-12)
