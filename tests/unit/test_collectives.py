"""What collectives promise: which bytes go where, how long that takes, and in whose terms."""

import csv
import json
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import fabric as fb
from fabric import collectives, hardware, topologies
from fabric.collectives import _nccl
from fabric.collectives._trees import parents
from fabric.reference import Problem, max_min_rates_exact

GAMMA = 0.775
KIB, MIB, GIB = 2.0**10, 2.0**20, 2.0**30


@pytest.fixture(scope="module")
def dgx():
    return topologies.cluster("dgx-h100", nodes=4)


@pytest.fixture(scope="module")
def dgx_a100():
    return topologies.cluster("dgx-a100", nodes=2)


@pytest.fixture(scope="module")
def measured(shared):
    with (shared / "validation" / "nccl_busbw.csv").open() as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def tuning(shared):
    return json.loads((shared / "validation" / "nccl_tuning.json").read_text())


def said(call, *args, error=fb.ModelError, **kwargs):
    with pytest.raises(error) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def slopes(net, exchange, rule=fb.routing.spray):
    routes = rule(net, exchange.flows)
    rates = np.asarray(fb.max_min_rates(net, routes).rates)
    return collectives.slope(exchange, rates)


def sent(exchange, n_nodes, end="src"):
    """Return bytes out of (or into) every node."""
    return np.bincount(getattr(exchange.flows, end), exchange.share, n_nodes)


def links(exchange):
    return list(zip(exchange.flows.src.tolist(), exchange.flows.dst.tolist(), strict=True))


def servers_of(sizes):
    return np.repeat(np.arange(len(sizes)), sizes)


# Rings.


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6).filter(lambda sizes: sum(sizes) > 1))
def test_every_channel_of_a_ring_visits_every_member_once(sizes):
    server, n = servers_of(sizes), sum(sizes)
    ring = collectives.ring([list(range(n))], server)
    channels = 1 if len(sizes) == 1 else min(sizes)
    assert ring.n_flows == channels * n
    for c in range(channels):
        part = slice(c * n, (c + 1) * n)
        follows = dict(
            zip(ring.flows.src[part].tolist(), ring.flows.dst[part].tolist(), strict=True)
        )
        seen, at = [], 0
        for _ in range(n):
            seen.append(at)
            at = follows[at]
        assert at == 0
        assert sorted(seen) == list(range(n))
        # It enters and leaves each server once.
        crossings = sum(server[a] != server[b] for a, b in follows.items())
        assert crossings == (len(sizes) if len(sizes) > 1 else 0)
    # What every member sends and receives is one byte, whatever the channels.
    np.testing.assert_allclose(sent(ring, n), 1, rtol=1e-12)
    np.testing.assert_allclose(sent(ring, n, "dst"), 1, rtol=1e-12)


@given(st.integers(2, 7), st.integers(1, 8))
def test_the_channels_of_a_ring_share_the_members_at_the_network_alike(n_servers, k):
    server = servers_of([k] * n_servers)
    ring = collectives.ring([list(range(n_servers * k))], server)
    leaves = server[ring.flows.src] != server[ring.flows.dst]
    for end in ("src", "dst"):
        out = np.bincount(getattr(ring.flows, end)[leaves], ring.share[leaves], n_servers * k)
        np.testing.assert_allclose(out, 1 / k, rtol=1e-12)
    rail = lambda nodes: nodes[leaves] % k
    if n_servers % 2 == 0 or k > 2:
        assert np.array_equal(rail(ring.flows.src), rail(ring.flows.dst))


def test_a_ring_keeps_the_order_of_its_members_and_servers_may_be_mixed():
    ring = collectives.ring([[7, 2, 5]])
    assert links(ring) == [(7, 2), (2, 5), (5, 7)]
    # Members 0 and 2 are on one server, 1 and 3 on the other: two crossings per channel.
    mixed = collectives.ring([[0, 1, 2, 3]], server_of=[0, 1, 0, 1])
    crossing = mixed.flows.src % 2 != mixed.flows.dst % 2
    assert crossing.sum() == 4
    assert mixed.crossings.tolist() == [1]


def test_groups_of_different_patterns_make_different_rings():
    server = [0, 0, 1, 1]
    both = collectives.ring([[0, 1], [0, 2], [2, 3]], server)
    assert both.crossings.tolist() == [0, 1, 0]
    assert np.bincount(both.group).tolist() == [2, 2, 2]


def test_a_group_of_one_sends_nothing():
    ring = collectives.ring([[3], [4]])
    assert ring.n_flows == 0
    assert collectives.slope(ring, np.zeros(0)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("n", [2, 3, 8, 17])
def test_a_ring_on_an_ideal_switch_runs_at_the_rate_of_a_port(n):
    net = topologies.single_switch(n, capacity="100GB/s")
    np.testing.assert_allclose(slopes(net, collectives.ring([net.hosts])), 1e-11, rtol=1e-12)


def test_two_groups_that_share_an_uplink_take_twice_as_long():
    # One spine, one uplink per leaf; each ring crosses it once in each direction.
    net = topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2, capacity="10GB/s")
    alone = slopes(net, collectives.ring([[0, 2]]))
    both = slopes(net, collectives.ring([[0, 2], [1, 3]]))
    np.testing.assert_allclose(alone, 1 / 10e9, rtol=1e-12)
    np.testing.assert_allclose(both, 2 / 10e9, rtol=1e-12)
    groups = collectives.all_reduce(net, [[0, 2], [1, 3]], "16GiB", algorithm="ring")
    one = collectives.all_reduce(net, [0, 2], "16GiB", algorithm="ring")
    # Only the latency and the ramp, a thousandth here, do not double.
    assert float(groups.time) == pytest.approx(2 * float(one.time), rel=3e-3)
    assert groups.n_groups == 2
    assert {row["tier"] for row in groups.bottlenecks} == {"leaf-spine"}


# Trees.


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 9, 16, 31, 100])
def test_in_two_trees_nobody_has_more_than_two_parents_and_two_children(n):
    both = parents(n)
    children = np.zeros((2, n), int)
    for tree, up in enumerate(both):
        assert (up < 0).sum() == 1
        np.add.at(children[tree], up[up >= 0], 1)
        for start in range(n):
            at, levels = start, 0
            while up[at] >= 0:
                at, levels = up[at], levels + 1
            assert levels <= math.ceil(math.log2(n))
    assert children.sum(axis=0).max() <= 2
    # Who has children in one tree is a leaf of the other; of an odd number one has one in each.
    both = np.flatnonzero((children[0] > 0) & (children[1] > 0))
    assert both.tolist() == ([0] if n % 2 else [])


def test_each_tree_carries_half_and_two_children_meet_at_their_parent():
    n = 8
    tree = collectives.tree([np.arange(n)])
    assert set(tree.share.tolist()) == {0.5}
    # Up and down along the n - 1 edges of both trees.
    assert tree.n_flows == 4 * (n - 1)
    up = tree.n_flows // 2
    into = np.bincount(tree.flows.dst[:up], minlength=n)
    assert into.max() == 2
    ring = collectives.ring([np.arange(n)])
    assert np.bincount(ring.flows.dst, minlength=n).max() == 1


def test_no_server_of_a_tree_sends_more_than_two_messages_nor_any_member_where_servers_are_alike():
    for sizes in ([8], [8, 8], [8, 8, 8], [4, 6, 5], [1] * 9):
        tree = collectives.tree([np.arange(sum(sizes))], servers_of(sizes))
        if len(set(sizes)) == 1:
            assert sent(tree, sum(sizes)).max() <= 2 + 1e-12
        server = servers_of(sizes)
        leaves = server[tree.flows.src] != server[tree.flows.dst]
        out = np.bincount(server[tree.flows.src[leaves]], tree.share[leaves], len(sizes))
        assert out.max() <= 2 + 1e-12


def test_the_latency_of_a_ring_is_linear_in_ranks_and_that_of_a_tree_logarithmic():
    took = {}
    for n in (16, 32, 64, 128):
        net = topologies.single_switch(n)
        took[n] = collectives.all_reduce(net, size="1B").alternatives
    ring, tree = ([float(took[n][name]) for n in took] for name in ("ring", "tree"))
    # The ramp of a single byte is a few nanoseconds.
    np.testing.assert_allclose(np.diff(ring), np.diff(ring)[0] * np.array([1, 2, 4]), rtol=1e-3)
    np.testing.assert_allclose(np.diff(tree), np.diff(tree)[0], rtol=1e-3)


# Two levels.


def test_a_hierarchical_all_reduce_is_two_levels_of_rings(dgx):
    inside, between = collectives.hierarchical([dgx.hosts], dgx.labels.tags["server"])
    assert inside.n_groups == between.n_groups == 1
    # 450 GB/s inside, and 8 adapters of 50 GB/s between, each with one part of 8.
    np.testing.assert_allclose(slopes(dgx, inside), 1 / 450e9, rtol=1e-12)
    np.testing.assert_allclose(slopes(dgx, between), 1 / 400e9, rtol=1e-12)
    report = collectives.all_reduce(dgx, size="64GiB", algorithm="hierarchical")
    seconds = 64 * GIB * (2 * 7 / 8 / (450e9 * 0.824) + 2 * 3 / 4 / (400e9 * 0.96))
    # The ramp, 0.775 sqrt(latency x), is 1.5 % of this.
    assert float(report.time) == pytest.approx(seconds, rel=0.02)


def test_hierarchical_needs_as_many_members_everywhere():
    message = said(collectives.hierarchical, [[0, 1, 2]], [0, 0, 1])
    assert "as many members of a group on every server" in message
    assert "Use `ring`" in message


# Pairs.


def test_in_an_all_to_all_every_pair_has_one_part():
    direct = collectives.direct([[4, 6, 9]])
    pairs = set(links(direct))
    assert pairs == {(a, b) for a in (4, 6, 9) for b in (4, 6, 9) if a != b}
    assert set(direct.share.tolist()) == {1 / 3}


def test_scatter_gather_sends_an_eighth_over_every_adapter(dgx):
    first, second = dgx.hosts[:8], dgx.hosts[8:16]
    eighth = collectives.send(first, second, share=1 / 8)
    whole = collectives.send(first, second)
    np.testing.assert_allclose(slopes(dgx, whole), 1 / 50e9, rtol=1e-12)
    np.testing.assert_allclose(slopes(dgx, eighth), 1 / 8 / 50e9, rtol=1e-12)
    report = collectives.send_recv(dgx, first, "64GiB", receivers=second)
    seconds = 64 * GIB * (1 / 8 / 48e9 + 7 / 8 / (450e9 * 0.824))
    assert report.algorithm == ("scatter-gather",)
    # Latency and ramp are about a hundredth of 340 ms.
    assert float(report.time) == pytest.approx(seconds, rel=0.02)
    assert float(report.alternatives["send"]) == pytest.approx(64 * GIB / 48e9, rel=0.02)


def test_a_broadcast_goes_down_a_chain_at_the_rate_of_its_slowest_link():
    net = topologies.single_switch(5, capacity="10GB/s")
    chain = collectives.chain([net.hosts])
    assert chain.n_flows == 4
    np.testing.assert_allclose(slopes(net, chain), 1 / 10e9, rtol=1e-12)


# Many exchanges at once; slopes.


def test_merged_exchanges_share_the_fabric_and_keep_their_groups():
    net = topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2, capacity="10GB/s")
    ring, pair = collectives.ring([[0, 2]]), collectives.send([1], [3])
    both = collectives.merged([ring, pair])
    # The uplink of leaf 0 carries one flow of each; the way back only one of the ring.
    np.testing.assert_allclose(slopes(net, both), [2 / 10e9, 2 / 10e9], rtol=1e-12)
    assert both.n_groups == 2
    assert "at least one exchange" in said(collectives.merged, [])


@given(st.integers(0, 10_000))
def test_slopes_are_the_slowest_flow_of_every_group_in_numpy_and_jax(seed):
    rng = np.random.default_rng(seed)
    exchange = collectives.merged(
        [collectives.ring([[0, 1, 2], [3, 4, 5]]), collectives.send([0], [5], share=0.25)]
    )
    rates = rng.uniform(1, 9, exchange.n_flows)
    rows = list(zip(exchange.share, rates, exchange.group, strict=True))
    want = [max(s / r for s, r, g in rows if g == group) for group in range(exchange.n_groups)]
    np.testing.assert_allclose(collectives.slope(exchange, rates), want, rtol=1e-15)
    traced = jax.jit(lambda r: collectives.slope(exchange, r))(jnp.asarray(rates))
    np.testing.assert_allclose(traced, want, rtol=1e-12)


def test_a_group_without_flows_takes_no_time_and_a_stopped_flow_for_ever():
    exchange = collectives.merged([collectives.ring([[0]]), collectives.send([1], [2])])
    rates = np.array([0.0])
    assert collectives.slope(exchange, rates).tolist() == [0.0, math.inf]
    assert collectives.slope(exchange, jnp.asarray(rates)).tolist() == [0.0, math.inf]
    assert "one rate for each of 1 flows" in said(collectives.slope, exchange, np.zeros(3))


def test_the_slope_has_exact_one_sided_derivatives_at_a_tie():
    net = topologies.single_switch(4, capacity="1GB/s")
    exchange = collectives.ring([net.hosts])
    routes = fb.routing.spray(net, exchange.flows)
    time = lambda solution: collectives.slope(exchange, solution.rates)[0]
    more = np.zeros(net.n_links)
    more[0] = 1e9
    # All links tie: more of one buys nothing, less of it costs as much as it is less.
    _, gain = fb.one_sided(time, net, routes, {"capacity": more})
    _, loss = fb.one_sided(time, net, routes, {"capacity": -more})
    assert float(gain) == pytest.approx(0.0, abs=1e-20)
    assert float(loss) == pytest.approx(1e-9, rel=1e-9)


# Operations in the terms of nccl-tests.


def test_an_all_reduce_moves_what_a_reduce_scatter_and_an_all_gather_move():
    for n in range(2, 40):
        halves = [collectives.moved(name, n) for name in ("reduce_scatter", "all_gather")]
        assert collectives.moved("all_reduce", n) == pytest.approx(sum(halves), rel=1e-15)
    net = topologies.single_switch(8)
    time = lambda name: float(
        collectives.collective(name, net, size="16GiB", algorithm="ring").time
    )
    # One call instead of two saves a latency of some microseconds in 600 ms.
    both = time("reduce_scatter") + time("all_gather")
    assert time("all_reduce") == pytest.approx(both, rel=1e-3)


def test_sequence_parallelism_moves_as_much_as_an_all_reduce(dgx):
    ranks = dgx.hosts[:8]
    pair = [
        float(collectives.collective(name, dgx, ranks, "1GiB", algorithm="ring").time)
        for name in ("reduce_scatter", "all_gather")
    ]
    assert pair[0] == pair[1]
    ring = collectives.all_reduce(dgx, ranks, "1GiB", algorithm="ring")
    assert sum(pair) == pytest.approx(float(ring.time), rel=0.03)


def test_bus_factors_are_those_of_nccl_tests(tuning):
    for name, formula in tuning["busbw_factors"].items():
        if name == "reduce":
            continue
        for n in (2, 8, 72):
            want = {"1": 1.0, "(n-1)/n": (n - 1) / n, "2(n-1)/n": 2 * (n - 1) / n}[formula]
            assert collectives.bus_factor(name, n) == pytest.approx(want, rel=1e-15)


def test_bandwidths_are_size_over_time_times_the_factor():
    net = topologies.single_switch(4)
    for name in collectives.OPERATIONS:
        report = collectives.collective(name, net, size=["1KiB", "1GiB"])
        np.testing.assert_allclose(report.algbw, report.size / report.time, rtol=1e-15)
        factor = collectives.bus_factor(name, 4)
        np.testing.assert_allclose(report.busbw, report.algbw * factor, rtol=1e-15)


# Times against a plain oracle.

BASE = {"LL": 6.6e-6, "LL128": 14e-6, "Simple": 8.4e-6}
NET = {"LL": 2.7e-6, "LL128": 4e-6, "Simple": 14e-6}


def plain_ring_time(net, ranks, size, passes):
    """Return the least time of the protocols of a ring of hosts; one flow at a time, no arrays."""
    n = len(ranks)
    flows = [(ranks[i], ranks[(i + 1) % n]) for i in range(n)]
    routes = fb.routing.ecmp(net, fb.Flows([a for a, _ in flows], [b for _, b in flows]))
    paths = [[] for _ in flows]
    for flow, link in zip(routes.hop_flow.tolist(), routes.hop_bundle.tolist(), strict=True):
        paths[flow].append(link)
    capacity = [Fraction(float(c)) * Fraction(96, 100) for c in net.capacity]
    slowest = min(max_min_rates_exact(Problem.from_paths(capacity, paths)))
    bus = {"LL": float(slowest) / 2, "LL128": 0.92 * float(slowest), "Simple": float(slowest)}
    times = []
    for protocol, reached in bus.items():
        latency = 1.05 * (BASE[protocol] + passes * (n - 1) * 1.45 * NET[protocol])
        x = size * passes * (n - 1) / n / reached
        times.append(latency + x + GAMMA * math.sqrt(latency * x))
    return min(times)


@pytest.mark.parametrize("seed", range(6))
def test_rings_of_hosts_equal_a_plain_oracle(seed):
    rng = np.random.default_rng(seed)
    net = topologies.leaf_spine(
        leaves=3, spines=2, hosts_per_leaf=[2, 3, 2], capacity="25GB/s", uplink_capacity="20GB/s"
    )
    ranks = rng.permutation(net.hosts)[: rng.integers(2, 8)].tolist()
    sizes = [100.0, 1e5, 1e7, 1e10]
    for name, passes in (("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)):
        report = collectives.collective(name, net, ranks, sizes, algorithm="ring")
        want = [plain_ring_time(net, ranks, size, passes) for size in sizes]
        np.testing.assert_allclose(report.time, want, rtol=1e-12)


def test_the_latency_of_links_is_paid_at_every_crossing():
    times = [
        float(
            collectives.all_gather(
                topologies.single_switch(5, latency=delay), size="1B", algorithm="ring"
            ).time
        )
        for delay in ("0s", "1us")
    ]
    # Four steps over two links each; the ramp of one byte adds less than a nanosecond.
    assert times[1] - times[0] == pytest.approx(8e-6, rel=1e-3)


# The choice.


def test_auto_takes_the_fastest_of_what_nccl_would_choose_from(dgx):
    report = collectives.all_reduce(dgx, size=[KIB, MIB, GIB, 64 * GIB])
    assert set(report.alternatives) == {"ring", "tree", "nvls-tree", "hierarchical"}
    nccl = [report.alternatives[name] for name in ("ring", "tree", "nvls-tree")]
    np.testing.assert_array_equal(report.time, np.min(nccl, axis=0))
    for i, name in enumerate(report.algorithm):
        assert report.alternatives[name][i] == report.time[i]
    for name in report.alternatives:
        one = collectives.all_reduce(dgx, size=[KIB, MIB, GIB, 64 * GIB], algorithm=name)
        np.testing.assert_array_equal(one.time, report.alternatives[name])
    assert report.protocol[0] == "LL"


def test_the_switch_reduces_from_five_gpus_on_and_from_hopper_on(dgx, dgx_a100):
    offered = lambda net, n: set(collectives.all_reduce(net, net.hosts[:n]).alternatives)
    assert offered(dgx, 4) == {"ring"}
    assert offered(dgx, 5) == {"ring", "nvls"}
    assert offered(dgx_a100, 8) == {"ring"}


def test_reductions_in_the_switch_gain_a_third_on_large_messages_and_lose_on_small_ones(dgx):
    by = collectives.all_reduce(dgx, dgx.hosts[:8], ["64KiB", "16GiB"]).alternatives
    gain = by["ring"] / by["nvls"]
    assert gain[0] < 1
    assert gain[1] == pytest.approx(480 / 365, rel=0.03)


def test_sizes_and_ranks_take_every_shape_that_people_write(dgx):
    one = collectives.all_gather(dgx, size="1GiB")
    assert one.time.shape == ()
    assert one.n_ranks == 32
    for size in (GIB, 2**30, [2**30], np.array([2.0**30]), ("1GiB",)):
        time = collectives.all_gather(dgx, dgx.hosts, size).time
        assert float(np.ravel(time)[0]) == float(one.time)


def test_a_profile_says_how_far_the_tables_hold(dgx):
    profile = hardware.default_profile("h100-sxm").with_values(
        {
            "collectives.nic_fraction": 0.5, "collectives.bus_scale": 0.5,
            "collectives.gamma": 0.0, "collectives.latency_scale": 2.0,
        }
    )  # fmt: skip
    bus = lambda net, ranks: float(
        collectives.all_reduce(net, ranks, "64GiB", algorithm="ring", profile=profile).busbw
    )
    assert bus(dgx, dgx.hosts[:8]) == pytest.approx(450e9 * 0.824 / 2, rel=1e-3)
    assert bus(dgx, dgx.hosts[:16]) == pytest.approx(400e9 / 2, rel=0.07)
    small = collectives.all_reduce(dgx, dgx.hosts[:8], "1B", profile=profile)
    assert float(small.time) == pytest.approx(2 * 15e-6, rel=1e-3)


def test_adapters_without_gpus_behind_them_are_one_server_each_way_free_inside():
    net = topologies.rail_optimized(servers=4, rails=8)
    report = collectives.all_reduce(net, size="64GiB", algorithm="ring", routing="spray")
    assert float(report.busbw) == pytest.approx(8 * 48e9, rel=0.03)
    assert [row["value"] for row in report.assumptions if row["name"] == "inside servers"] == [
        "free"
    ]
    message = said(collectives.all_reduce, net, net.hosts[:8], error=fb.InfeasibleError)
    assert "adapters of one server" in message


def test_every_assumption_says_where_it_comes_from(dgx):
    rows = collectives.all_reduce(dgx).assumptions
    assert {"routing", "NVLink share", "NIC share", "gamma"} <= {row["name"] for row in rows}
    assert all(row["source"] and row["kind"] for row in rows)
    assert rows[0]["value"] == "spray"


# Published measurements.


def rows_of(measured, system, n):
    return [
        row
        for row in measured
        if row["system"].startswith(system)
        and row["n_gpus"] == str(n)
        and row["collective"] == "all_reduce"
        and row["size_bytes"]
        and row["time_us"]
    ]


@pytest.mark.parametrize("system", ["1x 8-GPU H100 node", "1x AWS p5.48xlarge"])
def test_eight_h100_reach_their_published_table(dgx, measured, system):
    rows = rows_of(measured, system, 8)
    size = np.array([float(row["size_bytes"]) for row in rows])
    time = np.array([float(row["time_us"]) for row in rows]) * 1e-6
    off = np.abs(np.asarray(collectives.all_reduce(dgx, dgx.hosts[:8], size).time) / time - 1)
    assert off[size >= 256 * MIB].max() < 0.052
    assert off[(size >= 64 * KIB) & (size < 256 * MIB)].max() < 0.25
    # Up to 32 bytes the tables start at 13 us, the model at 15.8; single rows are outliers.
    small = off[(size >= 64) & (size < 64 * KIB)]
    assert np.sort(small)[:-1].max() < 0.17
    assert np.median(small) < 0.10


def test_the_decisive_rows_of_one_node_hold(dgx):
    sizes = ["128B", "1MiB", "64MiB", "16GiB"]
    report = collectives.all_reduce(dgx, dgx.hosts[:8], sizes)
    assert float(report.time[0]) == pytest.approx(15.87e-6, rel=0.15)
    np.testing.assert_allclose(report.busbw[1:3] / 1e9, [67.0, 361.7], rtol=0.25)
    assert float(report.busbw[3]) / 1e9 == pytest.approx(479.9, rel=0.05)
    assert report.algorithm[3] == "nvls"
    for name in ("all_reduce", "all_gather", "reduce_scatter"):
        ring = collectives.collective(name, dgx, dgx.hosts[:8], "16GiB", algorithm="ring")
        assert float(ring.busbw) / 1e9 == pytest.approx(365, rel=0.05)
    pairs = collectives.all_to_all(dgx, dgx.hosts[:8], "16GiB")
    assert float(pairs.busbw) / 1e9 == pytest.approx(320, rel=0.05)


@pytest.mark.parametrize(("n", "busbw"), [(5, 420), (6, 440), (7, 460), (8, 480)])
def test_reductions_in_the_switch_grow_with_the_ranks_as_measured(dgx, n, busbw):
    report = collectives.all_reduce(dgx, dgx.hosts[:n], "16GiB", algorithm="nvls")
    assert float(report.busbw) / 1e9 == pytest.approx(busbw, rel=0.03)


@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_an_all_to_all_across_nodes_is_bound_by_one_adapter_per_gpu(nodes):
    net = topologies.cluster("dgx-h100", nodes=nodes)
    n, k = len(net.hosts), 8
    report = collectives.all_to_all(net, size="64GiB")
    # What leaves a server of what is counted: exactly (n - 1) / (n - k), N / (N - 1) for many.
    assert float(report.busbw) == pytest.approx(48e9 * (n - 1) / (n - k), rel=0.01)
    assert float(report.busbw) / 1e9 == pytest.approx(48.5 * nodes / (nodes - 1), rel=0.08)
    assert {row["tier"] for row in report.bottlenecks} == {"host"}


@pytest.mark.parametrize(
    ("cluster", "nodes", "ranks", "busbw", "within"),
    [
        pytest.param("dgx-a100", 2, 16, 192, 0.05, id="two DGX A100"),
        pytest.param("dgx-a100", 4, 32, 192, 0.08, id="four DGX A100"),
        pytest.param("dgx-b200", 4, 32, 381.8, 0.05, id="four of 8 B200"),
        pytest.param("dgx-b200", 4, 8, 845.7, 0.05, id="8 B200"),
        pytest.param("dgx-a100", 2, 8, 235, 0.06, id="8 A100"),
    ],
)
def test_peaks_of_published_systems_are_reached(cluster, nodes, ranks, busbw, within):
    net = topologies.cluster(cluster, nodes=nodes)
    report = collectives.all_reduce(net, net.hosts[:ranks], "16GiB")
    assert float(report.busbw) / 1e9 == pytest.approx(busbw, rel=within)


def test_a_mesh_uses_the_links_between_all_pairs():
    adapters = topologies.rail_optimized(servers=2, rails=8)
    nics = adapters.hosts.reshape(2, 8)
    net = topologies.attach_servers(adapters, hardware.server("mi300x-8"), nics)
    bus = lambda n: float(collectives.all_reduce(net, net.hosts[:n], "16GiB").busbw) / 1e9
    # Measured: 312.9 GB/s on 8, and 47.7 on 2, which have one link of 7.
    assert bus(8) == pytest.approx(312.9, rel=0.05)
    assert bus(2) == pytest.approx(47.7, rel=0.10)


def test_the_tables_are_those_of_nccl(tuning):
    for name in ("ring", "tree"):
        for protocol in _nccl.PROTOCOLS:
            base = tuning["base_latency_us"][name][protocol] * 1e-6
            assert _nccl.BASE[name][protocol] == pytest.approx(base, rel=1e-12)
            for ours, theirs in (("nvlink", "NVLINK"), ("pcie", "PCI"), ("net", "NET")):
                step = tuning["hw_latency_us"][theirs][name][protocol] * 1e-6
                assert _nccl.STEP[ours][name][protocol] == pytest.approx(step, rel=1e-12)
    assert pytest.approx(25e-6) == _nccl.NVLS
    links = tuning["link_bandwidth_GBps"]
    for gpu, key, nominal in (("a100", "SM80", 25), ("h100", "SM90", 25), ("b200", "SM100", 50)):
        link = _nccl.generation(gpu).link.value
        assert link == pytest.approx(links[f"{key}_NVLINK_BW"] / nominal, rel=1e-12)
    for name, share in tuning["nvls_efficiency"].items():
        gpu = {"volta": "v100", "ampere": "a100", "hopper": "h100", "blackwell": "b200"}[name]
        assert _nccl.generation(gpu).nvls == share
        most = tuning["llMaxBws_GBps"][name]["1_node"] * 1e9
        assert _nccl.generation(gpu).most[0] == most


# Refusals.


@pytest.mark.parametrize(
    ("call", "text"),
    [
        pytest.param(
            lambda net: collectives.collective("all_gathr", net), "Did you mean 'all_gather'?",
            id="operation",
        ),
        pytest.param(
            lambda net: collectives.all_reduce(net, algorithm="rin"), "Did you mean 'ring'?",
            id="algorithm",
        ),
        pytest.param(
            lambda net: collectives.all_reduce(net, algorithm="nvls"),
            "needs 5 ranks or more in one NVSwitch domain", id="algorithm not here",
        ),
        pytest.param(
            lambda net: collectives.all_reduce(net, routing="spry"), "Did you mean 'spray'?",
            id="routing",
        ),
        pytest.param(lambda net: collectives.all_reduce(net, [1]), "2 ranks or more", id="one"),
        pytest.param(
            lambda net: collectives.all_reduce(net, [1, 1]), "more than once", id="twice"
        ),
        pytest.param(
            lambda net: collectives.all_reduce(net, [-1, 1]), "0 or more, but got '-1'",
            id="negative",
        ),
        pytest.param(
            lambda net: collectives.all_reduce(net, size=[0, "1MB"]), "1 byte or more", id="size"
        ),
        pytest.param(
            lambda net: collectives.all_reduce(net, size="1GB/s"), "is a rate", id="unit of size"
        ),
        pytest.param(
            lambda net: collectives.all_reduce(net, [0, 1], receivers=[2, 3]),
            "`send_recv` has", id="receivers",
        ),
        pytest.param(
            lambda net: collectives.send_recv(net, [0, 1], receivers=[2]),
            "one for each rank, but got 1", id="few receivers",
        ),
        pytest.param(
            lambda net: collectives.send([0], [1], share=0.0), "more than 0", id="share"
        ),
        pytest.param(lambda net: collectives.send([0, 1], [2]), "2 senders", id="lengths"),
        pytest.param(
            lambda net: collectives.ring([[0, 9]], server_of=[0, 0]), "names node 9",
            id="short server_of",
        ),
        pytest.param(lambda net: collectives.ring([0, 1]), "One group is", id="flat groups"),
    ],
)  # fmt: skip
def test_wrong_input_is_named_with_the_next_step(call, text):
    net = topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2)
    assert text in said(call, net)


def test_ranks_that_are_no_endpoints_are_named():
    net = topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2)
    assert "leaf0" in said(collectives.all_reduce, net, [0, net.labels.node("leaf0")])
    assert said(collectives.all_reduce, net, [0, 99])


def test_links_that_carry_nothing_are_named():
    net = topologies.single_switch(3)
    capacity = np.array(net.capacity)
    capacity[0] = 0
    message = said(collectives.all_reduce, net.with_capacity(capacity), error=fb.InfeasibleError)
    assert "'host0->switch'" in message
    assert "network.without(links=...)" in message


def test_adapters_without_a_server_are_servers_by_themselves_and_names_of_servers_are_text():
    net = topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2)
    graph = net.to_networkx()
    for node, server in zip(list(graph)[:4], ["a", "a", "b", ""], strict=True):
        graph.nodes[node]["server"] = server
    named = fb.Network.from_networkx(graph)
    both = collectives.all_gather(named, size="1GiB", algorithm="ring")
    # Ranks 0 and 1 are one server: what they send each other is not in this network.
    assert float(both.busbw) > float(collectives.all_gather(net, size="1GiB").busbw)
    pair = said(collectives.all_gather, named, [0, 1], error=fb.InfeasibleError)
    assert "adapters of one server" in pair
    assert collectives.all_gather(named, [2, 3], "1GiB").n_ranks == 2
    assert collectives.send_recv(named, [0, 1], "1GiB", receivers=[2, 3]).n_ranks == 2


def test_a_gpu_without_live_nvlinks_rules_out_reductions_in_the_switch():
    net = topologies.cluster("dgx-h100", nodes=2)
    labels = net.labels
    dead = labels.is_tier("nvlink") & ((labels.src == 0) | (labels.dst == 0))
    cut = net.with_alive(~dead)
    assert set(collectives.all_reduce(cut, cut.hosts[:8]).alternatives) == {"ring"}
