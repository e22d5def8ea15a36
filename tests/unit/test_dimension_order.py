"""What `routing.dimension_order` promises, one test per promise."""

import itertools

import numpy as np
import pytest

import fabric as fb
from fabric import Flows, ModelError, routing, topologies
from fabric._errors import UnreachableError
from fabric.topologies import attach_servers
from tests.unit._routing_oracles import usage


def everyone(net):
    src, dst = np.meshgrid(net.hosts, net.hosts, indexing="ij")
    return Flows(src[src != dst], dst[src != dst])


def walks(net, s, d, axes, wraps, halfway):
    """Ways of one flow, as (share, links), step by step in plain Python."""
    labels = net.labels
    place = {axis: labels.tags[axis] for axis in axes}
    at = {tuple(int(place[a][v]) for a in axes): v for v in range(net.n_nodes)}
    size = {a: int(place[a].max()) + 1 for a in axes}
    link_of = {}
    for link, ends in enumerate(zip(labels.src.tolist(), labels.dst.tolist(), strict=True)):
        link_of.setdefault(ends, link)
    choices = []
    here, goal = ([int(place[a][v]) for a in axes] for v in (s, d))
    for i, axis in enumerate(axes):
        n, ahead = size[axis], (goal[i] - here[i]) % size[axis]
        if ahead == 0:
            choices.append([(1.0, [])])
            continue
        ways = {+1: ahead, -1: n - ahead}
        if not wraps or n == 2:
            ways = {+1: ahead} if goal[i] > here[i] else {-1: here[i] - goal[i]}
        least = min(ways.values())
        kept = [sign for sign, steps in ways.items() if steps == least]
        kept = kept[:1] if halfway == "up" else kept
        legs = []
        for sign in kept:
            spot, links = list(here), []
            for _ in range(least):
                before = at[tuple(spot)]
                spot[i] = (spot[i] + sign) % n
                links.append(link_of[before, at[tuple(spot)]])
            legs.append((1.0 / len(kept), links))
        choices.append(legs)
        here[i] = goal[i]
    return choices


@pytest.mark.parametrize("halfway", ["both", "up"])
@pytest.mark.parametrize("wrap", [True, False], ids=["torus", "mesh"])
@pytest.mark.parametrize("dims", ["6", "4x3", "2x3x4", "1x4x2"])
def test_every_axis_is_walked_the_shorter_way_round(dims, wrap, halfway):
    net = topologies.torus(dims, wrap=wrap)
    flows = everyone(net)
    load = usage(routing.dimension_order(net, flows, halfway=halfway))
    axes = "xyz"[: len(dims.split("x"))]
    for row, (s, d) in enumerate(zip(flows.src.tolist(), flows.dst.tolist(), strict=True)):
        want = np.zeros(net.n_links)
        for legs in walks(net, s, d, axes, wrap, halfway):
            for share, links in legs:
                want[links] += share
        np.testing.assert_array_equal(load[row], want)


def test_a_path_is_in_order_and_shortest():
    net = topologies.torus("5x4x3")
    flows = everyone(net)
    routes = routing.dimension_order(net, flows, halfway="up")
    labels, hop = net.labels, routes.hop_bundle
    joined = routes.hop_flow[1:] == routes.hop_flow[:-1]
    assert np.all(labels.dst[hop[:-1]][joined] == labels.src[hop[1:]][joined])
    assert np.all(np.diff(labels.tier_of[hop])[joined] >= 0)
    left = routing.shortest_distances(net, net.hosts)[flows.dst, flows.src]
    np.testing.assert_array_equal(np.bincount(routes.hop_flow), left)


@pytest.mark.parametrize(("dims", "rate"), [("4x4x4", 1.96875), ("4x4x8", 0.9921875)])
def test_all_to_all_on_a_torus_meets_its_bisection(dims, rate):
    net = topologies.torus(dims, capacity=1.0)
    load = usage(routing.dimension_order(net, everyone(net))).sum(0)
    assert (len(net.hosts) - 1) / load.max() == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("shape", ["4x5", "2x3x4", "6"])
def test_a_hyperx_takes_one_hop_per_dimension_that_differs(shape, parallel):
    net = topologies.hyperx(shape, hosts_per_switch=2, links_per_pair=parallel)
    flows = everyone(net)
    routes = routing.dimension_order(net, flows)
    dims = [net.labels.tags[f"dim{i}"] for i in range(len(shape.split("x")))]
    differ = sum(tag[flows.src] != tag[flows.dst] for tag in dims)
    hops = np.bincount(routes.hop_flow, routes.hop_use)
    np.testing.assert_allclose(hops, 2 + differ)
    labels = net.labels
    inner = np.flatnonzero(labels.forwards[labels.src] & labels.forwards[labels.dst])
    for dim, tag in enumerate(dims):
        # On the cables of a dimension the later coordinates are still those of the source.
        on = np.isin(routes.hop_bundle, inner) & labels.is_tier(f"dim{dim}")[routes.hop_bundle]
        flow, link = routes.hop_flow[on], routes.hop_bundle[on]
        np.testing.assert_array_equal(tag[labels.src[link]], tag[flows.src[flow]])
        np.testing.assert_array_equal(tag[labels.dst[link]], tag[flows.dst[flow]])
        for before, later in itertools.combinations(range(len(dims)), 2):
            if later == dim:
                np.testing.assert_array_equal(
                    dims[before][labels.src[link]], dims[before][flows.dst[flow]]
                )


def test_slices_of_a_pod_route_within_themselves():
    net = topologies.tpu_pod(cubes=3, slices=["4x4x8", "2x2x2"])
    tags = net.labels.tags
    alone = topologies.torus("4x4x8")
    mine = np.flatnonzero(tags["slice"] == 0)
    place = np.ravel_multi_index([tags[axis][mine] for axis in "xyz"], (4, 4, 8))
    flows = Flows(np.repeat(mine[:1], len(mine) - 1), mine[1:])
    start, rest = place[0], place[1:]
    hops = np.bincount(routing.dimension_order(net, flows).hop_flow)
    want = np.bincount(
        routing.dimension_order(alone, Flows(np.full(len(rest), start), rest)).hop_flow
    )
    np.testing.assert_array_equal(hops, want)
    small = np.flatnonzero(tags["slice"] == 1)
    assert len(small) == 8
    with pytest.raises(UnreachableError, match="does not go round"):
        routing.dimension_order(net, Flows(mine[:1], small[:1]))


def test_a_failed_link_loses_the_flows_whose_path_it_is_on():
    net = topologies.torus("4x4")
    flows = everyone(net)
    whole = usage(routing.dimension_order(net, flows))
    link = int(np.flatnonzero(net.labels.is_tier("y"))[0])
    cut = net.without(links=[link])
    with pytest.raises(
        UnreachableError, match=r"`dimension_order` does not go round.*`spray`"
    ) as e:
        routing.dimension_order(cut, flows)
    lost = np.flatnonzero(whole[:, ~np.asarray(cut.alive)].any(1))
    np.testing.assert_array_equal(e.value.flows, lost)
    assert net.link_name(link) in str(e.value)
    kept = np.setdiff1d(np.arange(flows.n_flows), lost)
    rest = routing.dimension_order(cut, Flows(flows.src[kept], flows.dst[kept]))
    np.testing.assert_array_equal(usage(rest), whole[kept])


def test_weights_and_caps_travel():
    net = topologies.torus("4x4")
    routes = routing.dimension_order(net, Flows([0, 1], [5, 9], weight=[1, 2], cap=[3, 4]))
    assert routes.weight.tolist() == [1, 2]
    assert routes.cap.tolist() == [3, 4]
    assert routes.rule == {"name": "dimension_order", "halfway": "both", "queue_pairs": 1}


def test_adapters_of_servers_on_a_hyperx_are_routed():
    fabric = topologies.hyperx("3x3", hosts_per_switch=8)
    server = fb.hardware.server("dgx-h100")
    net = attach_servers(fabric, server, fabric.hosts.reshape(9, 8))
    flows = Flows(net.hosts[:8], net.hosts[-8:])
    routes = routing.dimension_order(net, flows)
    same = routing.spray(net, flows)
    assert routes.rule["rails"] == "direct"
    # Two dimensions differ: two ways at even split, one of them here.
    assert float(np.min(fb.max_min_rates(net, routes).rates)) > 0
    inner = np.isin(net.labels.tier_of, [net.labels.tiers.index(t) for t in ("dim0", "dim1")])
    assert np.count_nonzero(usage(routes)[0, inner]) == 2
    assert np.count_nonzero(usage(same)[0, inner]) == 4


@pytest.mark.parametrize(
    ("net", "message"),
    [
        pytest.param(topologies.fat_tree(k=4), r"needs nodes with coordinates", id="fat-tree"),
        pytest.param(
            topologies.torus("4x4x8", twist="tpu"), r"128 of 768 do not.*`spray`", id="twisted"
        ),
    ],
)
def test_networks_without_axes_are_refused_with_what_serves_them(net, message):
    with pytest.raises(ModelError, match=message):
        routing.dimension_order(net, Flows(net.hosts[:1], net.hosts[1:2]))


def test_options_are_checked():
    net = topologies.torus("4x4")
    with pytest.raises(ModelError, match="`halfway` needs one of 'both' and 'up'"):
        routing.dimension_order(net, Flows([0], [1]), halfway="down")


def test_no_flows_are_legal():
    assert routing.dimension_order(topologies.torus("4x4"), Flows([], [])).n_hops == 0
