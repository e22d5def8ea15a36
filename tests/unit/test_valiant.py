"""What `routing.valiant` and `routing.minimal_valiant` promise, one test per promise."""

from itertools import pairwise

import numpy as np
import pytest

import fabric as fb
from fabric import (
    Flows,
    InfeasibleError,
    ModelError,
    UnreachableError,
    UnsolvedError,
    routing,
    topologies,
)
from fabric.traffic import permutation
from tests.unit._routing_oracles import distance, random_network, reachable_flows, split, usage

# (p, a, h) of balanced dragonflies, all with one cable between every two groups.
DRAGONFLIES = {"9-groups": (2, 4, 2), "19-groups": (3, 6, 3)}
dragonflies = pytest.mark.parametrize("shape", DRAGONFLIES.values(), ids=DRAGONFLIES)


def built(shape):
    return topologies.dragonfly(*shape, capacity=1.0)


def shifted(net, shape):
    """Every host sends to the next group: all of a group want its one cable to that."""
    p, a, _ = shape
    return Flows(net.hosts, np.roll(net.hosts, -p * a))


def everyone(net):
    src, dst = np.meshgrid(net.hosts, net.hosts, indexing="ij")
    return Flows(src[src != dst], dst[src != dst])


def rates(net, routes):
    solution = fb.max_min_rates(net, routes)
    assert fb.certify(net, routes, solution) < 1e-12
    return np.asarray(solution.rates)


@dragonflies
def test_against_a_shift_of_groups_valiant_reaches_nearly_half(shape):
    p, a, h = shape
    net = built(shape)
    routes = routing.valiant(net, shifted(net, shape))
    # A cable from group to group carries 1/(ah - 1) of what a group sends, once for those that
    # leave the group and once for those that pass it.
    np.testing.assert_allclose(rates(net, routes), (a * h - 1) / (2 * a * p), rtol=1e-12)


@dragonflies
def test_against_a_shift_of_groups_the_mix_beats_both(shape):
    p, a, h = shape
    net = built(shape)
    # With roomy local cables: else some of them are as full as the global ones.
    roomy = net.with_capacity(np.where(net.labels.is_tier("local"), 9.0, net.capacity))
    routes = routing.minimal_valiant(roomy, shifted(net, shape), tolerance=1e-7)
    # x of the traffic on the direct cable, (1 - x) twice over ah - 1 others, equally loaded.
    assert routes.rule["minimal"] == pytest.approx(2 / (a * h + 1), rel=1e-5)
    np.testing.assert_allclose(rates(roomy, routes), (a * h + 1) / (2 * a * p), rtol=1e-5)
    assert rates(net, routing.minimal_valiant(net, shifted(net, shape))).min() > (
        (a * h - 1) / (2 * a * p)
    )


@dragonflies
def test_minimal_ways_cross_one_global_cable(shape):
    p, a, _ = shape
    net = built(shape)
    # A mix that gains nothing from detours is minimal: one flow from each group to the next.
    flows = Flows(net.hosts[:: p * a], np.roll(net.hosts[:: p * a], -1))
    routes = routing.minimal_valiant(net, flows)
    load = usage(routes)[:, net.labels.is_tier("global")]
    np.testing.assert_allclose(load.sum(1), 1)
    assert routes.rule["minimal"] == 1


def test_uniform_traffic_stays_minimal():
    net = built((2, 4, 2))
    flows = everyone(net)
    routes = routing.minimal_valiant(net, flows)
    assert (routes.rule["minimal"], routes.rule["gap"], routes.rule["steps"]) == (1.0, 0.0, 1)
    group = net.labels.tags["group"]
    crossing = (group[flows.src] != group[flows.dst]).astype(float)
    np.testing.assert_array_equal(usage(routes)[:, net.labels.is_tier("global")].sum(1), crossing)


def test_at_the_fixed_point_no_packet_would_choose_otherwise():
    net = built((2, 4, 2))
    flows = permutation(net.hosts, seed=1)
    options = {"tolerance": 1e-4, "intermediates": "all"}
    routes = routing.minimal_valiant(net, flows, **options)
    load = usage(routes)
    utilisation = load.sum(0) / np.asarray(net.capacity)
    low = routing.minimal_valiant(net, flows, max_steps=1, throw=False)
    direct = usage(low) > 0
    group = net.labels.tags["group"]
    wasted = met = 0.0
    for f, (s, d) in enumerate(zip(flows.src.tolist(), flows.dst.tolist(), strict=True)):
        here = utilisation[direct[f]].max()
        others = [g for g in range(9) if g not in (group[s], group[d])]
        for g in others:
            over = utilisation[way_over(net, s, d, g)].max()
            # What part goes over g shows on the global cable that leads from there to the end.
            part = load[f, cable(net, g, group[d])] if group[s] != group[d] else np.nan
            if np.isnan(part):
                continue
            part = min(part * len(others), 1.0)
            met += part * over + (1 - part) * here
            wasted += part * over + (1 - part) * here - min(here, over)
    assert wasted / met < 2e-4
    assert routes.rule["gap"] < 1e-4
    assert 0.2 < routes.rule["minimal"] < 0.9


def cable(net, a, b):
    """The global link from one group to another."""
    group, labels = net.labels.tags["group"], net.labels
    both = labels.is_tier("global") & (group[labels.src] == a) & (group[labels.dst] == b)
    return int(np.flatnonzero(both)[0])


def way_over(net, s, d, middle):
    """Links of the one way from s to d over a group: local, global, local, global, local."""
    labels, group = net.labels, net.labels.tags["group"]
    ends = {
        (int(a), int(b)): i for i, (a, b) in enumerate(zip(labels.src, labels.dst, strict=True))
    }
    router = {int(a): int(b) for a, b in zip(labels.src, labels.dst, strict=True) if a in (s, d)}
    first, second = cable(net, group[s], middle), cable(net, middle, group[d])
    stops = [router[s], labels.src[first], labels.dst[first], labels.src[second]]
    stops += [labels.dst[second], router[d]]
    links = [ends[s, router[s]], ends[router[d], d]]
    return links + [ends[int(a), int(b)] for a, b in pairwise(stops) if a != b]


def test_over_a_drawn_group_a_flow_takes_the_way_through_it():
    net = built((2, 4, 2))
    s, d = int(net.hosts[3]), int(net.hosts[50])
    drawn = usage(routing.valiant(net, Flows([s], [d]), intermediates=1, seed=5))[0]
    group = net.labels.tags["group"]
    ways = [way_over(net, s, d, g) for g in range(9) if g not in (group[s], group[d])]
    assert sorted(np.flatnonzero(drawn).tolist()) in [sorted(way) for way in ways]
    every = usage(routing.valiant(net, Flows([s], [d])))[0]
    want = np.zeros(net.n_links)
    for way in ways:
        want[way] += 1 / len(ways)
    np.testing.assert_allclose(every, want, rtol=1e-12)


def test_draws_are_even_over_the_groups_that_are_no_end():
    net = built((2, 4, 2))
    s, d = int(net.hosts[3]), int(net.hosts[50])
    routes = routing.valiant(net, Flows([s], [d]), intermediates=7_000)
    group = net.labels.tags["group"]
    ends = (int(group[s]), int(group[d]))
    counts = [7_000 * usage(routes)[0][cable(net, ends[0], g)] for g in range(9) if g not in ends]
    # Chi-square of 6 degrees of freedom exceeds 22.5 once in a thousand; the seed is fixed.
    assert np.sum((np.array(counts) - 1_000) ** 2) / 1_000 < 22.5


@pytest.mark.parametrize(
    "net",
    [topologies.torus("3x4"), topologies.hyperx("3x3", hosts_per_switch=2)],
    ids=["torus", "hyperx"],
)
def test_over_switches_the_legs_are_the_sprayed_ways_to_and_from_each(net):
    labels = net.labels
    stops = np.flatnonzero(labels.forwards).tolist()
    flows = Flows(net.hosts[[0, 1, 2]], net.hosts[[5, 9, 3]])
    load = usage(routing.valiant(net, flows))
    ways = lambda a, b: {} if a == b else split(net, a, b)
    for f, (s, d) in enumerate(zip(flows.src.tolist(), flows.dst.tolist(), strict=True)):
        want = np.zeros(net.n_links)
        for stop in stops:
            for leg in (ways(s, stop), ways(stop, d)):
                for link, share in leg.items():
                    want[link] += float(share) / len(stops)
        np.testing.assert_allclose(load[f], want, rtol=1e-12, atol=1e-15)


def test_any_shift_of_a_torus_is_as_fast_as_another_one():
    # Valiant's point: the load does not depend on the permutation.
    net = topologies.torus("4x4", capacity=1.0)
    loads = [
        usage(routing.valiant(net, Flows(net.hosts, np.roll(net.hosts, k)))).sum(0)
        for k in (1, 5, 10)
    ]
    np.testing.assert_allclose(loads[0], loads[1])
    np.testing.assert_allclose(loads[0], loads[2])


def test_a_dragonfly_plus_goes_over_groups():
    net = topologies.dragonfly_plus(radix=4, capacity=1.0)
    group = net.labels.tags["group"]
    n = int((group[net.hosts] == 0).sum())
    flows = Flows(net.hosts, np.roll(net.hosts, -n))
    slow = rates(net, routing.spray(net, flows)).min()
    assert slow == pytest.approx(1 / n)
    g = int(group.max()) + 1
    np.testing.assert_allclose(rates(net, routing.valiant(net, flows)).min(), (g - 2) / (2 * n))
    assert rates(net, routing.minimal_valiant(net, flows)).min() > (g - 2) / (2 * n)


def test_switches_that_are_cut_off_are_no_intermediates():
    net = built((2, 4, 2))
    lone = [net.labels.node(f"group4-router{i}") for i in range(4)]
    cut = net.without(nodes=lone)
    tag = net.labels.tags["group"]
    hosts = net.hosts[tag[net.hosts] != 4]
    flows = Flows(hosts, np.roll(hosts, -8))
    load = usage(routing.valiant(cut, flows))
    assert not load[:, ~np.asarray(cut.alive)].any()
    sums = np.bincount(np.repeat(np.arange(len(hosts)), net.n_links), load.ravel(), len(hosts))
    assert np.all(sums > 0)


@pytest.mark.parametrize("seed", range(4))
def test_a_flow_goes_over_every_switch_that_lies_between_its_ends_and_over_no_other(seed):
    rng = np.random.default_rng(seed)
    net = random_network(rng, dead=0.3)
    # Links that are dead one way only, too.
    net = net.with_alive(np.asarray(net.alive) & (rng.random(net.n_links) > 0.1))
    labels, flows = net.labels, reachable_flows(net, rng, 30)
    hung = labels.dst[np.asarray(net.alive) & labels.endpoint[labels.src]]
    edge = [v for v in np.unique(hung).tolist() if labels.forwards[v]]
    load = usage(routing.valiant(net, flows))
    for f, (s, d) in enumerate(zip(flows.src.tolist(), flows.dst.tolist(), strict=True)):
        stops = [v for v in edge if min(distance(net, s, v), distance(net, v, d)) >= 0]
        want = np.zeros(net.n_links)
        for stop in stops:
            for leg in (split(net, s, stop), split(net, stop, d)):
                for link, share in leg.items():
                    want[link] += float(share) / len(stops)
        np.testing.assert_allclose(load[f], want, rtol=1e-12, atol=1e-15)


def test_flows_of_every_rail_and_every_slice_go_over_switches_of_their_own():
    rails = topologies.build("rail_only:servers=4,radix=64")
    slices = topologies.build("tpu_pod:cubes=2,slices=4x4x4+4x4x4")
    for net, first in ((rails, 1), (slices, 64)):
        ends = net.hosts[[first, first + 8]]
        flows = Flows(ends, ends[::-1])
        for rule in (routing.valiant, routing.minimal_valiant):
            routes = rule(net, flows)
            assert rates(net, routes).min() > 0
            crossed = usage(routes).sum(0) > 0
            reached = {v for v in net.hosts.tolist() if distance(net, int(ends[0]), v) >= 0}
            touched = {int(v) for v in net.labels.src[crossed] if net.labels.endpoint[v]}
            assert touched <= reached


def test_a_flow_whose_adapter_lost_a_plane_goes_over_the_other_one():
    net = topologies.multi_plane(4, 2, radix=8)
    labels = net.labels
    cut = net.without(links="server0-nic0->plane0-unit0-leaf0")
    lame = labels.node("server0-nic0")
    flows = everyone(net)
    in_plane = np.array(
        ["plane0" in net.link_name(link) for link in range(net.n_links)], dtype=bool
    )
    load, whole = usage(routing.valiant(cut, flows)), usage(routing.valiant(net, flows))
    touches = (flows.src == lame) | (flows.dst == lame)
    assert not load[np.ix_(touches, in_plane)].any()
    assert load[touches].any(1).all()
    np.testing.assert_allclose(load[~touches], whole[~touches], rtol=1e-12)
    # Of the others, half of the traffic is in either plane.
    np.testing.assert_allclose(load[np.ix_(~touches, in_plane)].sum(1) * 2, load[~touches].sum(1))
    drawn = usage(routing.valiant(cut, flows, intermediates=50, seed=2))
    assert not drawn[np.ix_(touches, in_plane)].any()
    assert drawn[np.ix_(~touches, in_plane)].any(1).all()


def test_draws_leave_out_the_groups_of_both_ends_in_either_half_of_a_torn_network():
    net = built((2, 4, 2))
    group = net.labels.tags["group"]
    # Groups 0 to 4 and 5 to 8 keep no cable between them.
    half = np.where(group < 0, -1, group >= 5)[np.stack([net.labels.src, net.labels.dst])]
    torn = net.without(links=(half[0] != half[1]) & net.labels.is_tier("global"))
    first, second = (net.hosts[group[net.hosts] == g] for g in (5, 6))
    flows = Flows(first, second)
    load = usage(routing.valiant(torn, flows, intermediates=200, seed=1))
    over = np.unique(group[net.labels.dst[load.sum(0) > 0]])
    assert over.tolist() == [5, 6, 7, 8]
    direct = load[:, cable(net, 5, 6)]
    np.testing.assert_allclose(direct, 0, atol=1e-15)
    np.testing.assert_allclose(load[:, [cable(net, 5, 7), cable(net, 5, 8)]].sum(1), 1, rtol=1e-12)


def test_gpus_of_servers_detour_between_their_adapters():
    fabric = topologies.dragonfly(8, 2, 1)
    server = fb.hardware.server("dgx-h100")
    net = topologies.attach_servers(fabric, server, fabric.hosts.reshape(-1, 8))
    flows = Flows(net.hosts, np.roll(net.hosts, -16))
    for rule in (routing.valiant, routing.minimal_valiant):
        routes = rule(net, flows)
        assert routes.rule["rails"] == "direct"
        assert rates(net, routes).min() > 0
        inside = net.labels.tags["server"][net.labels.src] >= 0
        inside &= net.labels.tags["server"][net.labels.dst] >= 0
        np.testing.assert_allclose(
            usage(routes)[:, inside], usage(routing.spray(net, flows))[:, inside]
        )


def test_two_groups_leave_no_third_to_go_over():
    net = topologies.dragonfly(2, 4, 2, groups=2)
    flows = Flows(net.hosts[:1], net.hosts[-1:])
    with pytest.raises(
        ModelError, match=r"besides those of both ends, but 1 of 1 .*`via='switch'`"
    ):
        routing.valiant(net, flows)
    assert routing.valiant(net, flows, via="switch").n_flows == 1


def test_unreachable_flows_are_numbered():
    net = built((2, 4, 2))
    lone = net.without(nodes=[net.labels.node("group4-router1")])
    inside = net.labels.node("group4-router1-host0")
    for rule in (routing.valiant, routing.minimal_valiant):
        with pytest.raises(InfeasibleError, match=r"1 of 2 flows .*group4-router1-host0") as error:
            rule(lone, Flows([0, inside], [60, 60]))
        assert error.value.flows == (1,)


def test_all_flows_that_are_lost_are_numbered_from_and_to_whatever_they_go():
    net = topologies.dragonfly(p=1, a=3, h=1)
    out = net.labels.node("group1-router0")
    cut, flows = net.without(nodes=[out]), everyone(net)
    host = net.labels.node("group1-router0-host0")
    lost = np.flatnonzero((flows.src == host) | (flows.dst == host))
    for rule in (routing.spray, routing.valiant, routing.minimal_valiant):
        with pytest.raises(UnreachableError) as error:
            rule(cut, flows)
        assert error.value.flows == tuple(lost.tolist())


def test_a_fixed_point_that_is_not_reached_is_an_error_unless_asked_not_to_be():
    net = built((2, 4, 2))
    flows = shifted(net, (2, 4, 2))
    with pytest.raises(UnsolvedError, match=r"still has a gap of .* after 3 steps"):
        routing.minimal_valiant(net, flows, max_steps=3)
    assert routing.minimal_valiant(net, flows, max_steps=3, throw=False).rule["gap"] > 1e-3


@pytest.mark.parametrize(
    "options",
    [
        {"intermediates": 0},
        {"intermediates": "some"},
        {"via": "pod"},
        {"via": "group"},
        {"seed": -1},
    ],
)
def test_options_out_of_range_are_refused(options):
    net = topologies.full_mesh(4)
    for rule in (routing.valiant, routing.minimal_valiant):
        with pytest.raises(ModelError, match=f"`{next(iter(options))}` needs"):
            rule(net, Flows([0], [1]), **options)
    with pytest.raises(ModelError, match="`tolerance` needs"):
        routing.minimal_valiant(net, Flows([0], [1]), tolerance=0.0)
