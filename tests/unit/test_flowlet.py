"""What `routing.flowlet` promises, one test per promise."""

import numpy as np
import pytest

import fabric as fb
from fabric import Flows, InfeasibleError, ModelError, routing, topologies
from fabric.routing import _flowlet
from fabric.traffic import permutation
from tests.unit._routing_oracles import random_network, reachable_flows, usage


@pytest.mark.parametrize("hash", ["hop", "path"])
@pytest.mark.parametrize("seed", range(3))
def test_a_flow_is_the_mean_of_its_queue_pairs_at_one_rate(seed, hash):
    network = random_network(np.random.default_rng(seed), costs=(1, 2), direct=0.3)
    flows = reachable_flows(network)
    options = {"seed": seed, "hash": hash}
    pairs = usage(routing.ecmp(network, flows, queue_pairs=7, **options))
    routes = routing.flowlet(network, flows, n=7, **options)
    assert routes.n_flows == flows.n_flows
    # Sums of up to seven sevenths.
    np.testing.assert_allclose(usage(routes), pairs.reshape(-1, 7, network.n_links).mean(1))


def test_queue_pairs_have_subpaths_of_their_own():
    net = topologies.fat_tree(k=4)
    flows = permutation(net.hosts, seed=0)
    routes = routing.flowlet(net, flows, n=3, queue_pairs=2)
    assert routes.flow_of.tolist() == np.repeat(np.arange(flows.n_flows), 2).tolist()
    np.testing.assert_array_equal(routes.weight, 0.5)
    hashed = usage(routing.ecmp(net, flows, queue_pairs=6))
    np.testing.assert_allclose(usage(routes), hashed.reshape(-1, 3, net.n_links).mean(1))


def test_every_link_of_a_flow_occurs_once():
    net = topologies.fat_tree(k=8)
    routes = routing.flowlet(net, permutation(net.hosts, seed=0), n=16)
    hops = routes.hop_flow.astype(np.int64) * net.n_links + routes.hop_bundle
    assert len(np.unique(hops)) == routes.n_hops


def test_one_subpath_is_ecmp():
    net = topologies.fat_tree(k=8)
    flows = permutation(net.hosts, seed=0)
    one, plain = routing.flowlet(net, flows, n=1, seed=3), routing.ecmp(net, flows, seed=3)
    np.testing.assert_array_equal(one.hop_bundle, plain.hop_bundle)
    np.testing.assert_array_equal(one.hop_use, 1.0)


def test_many_subpaths_come_near_spray():
    net = topologies.leaf_spine(leaves=2, spines=4, hosts_per_leaf=1)
    flows = Flows(net.hosts[:1], net.hosts[1:])
    near, even = usage(routing.flowlet(net, flows, n=10_000)), usage(routing.spray(net, flows))
    # Shares of a quarter, of 10,000 draws: a standard deviation of 0.0043.
    np.testing.assert_allclose(near, even, atol=0.02)


def test_a_flow_is_as_fast_as_its_busiest_link_allows():
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1, capacity=1.0)
    routes = routing.flowlet(net, Flows(net.hosts[:1], net.hosts[1:]), n=5)
    slow = net.with_capacity(np.where(net.labels.is_tier("leaf-spine"), 0.25, 1.0))
    share = routes.hop_use[routes.hop_use < 1].max()
    assert share in (0.6, 0.8)
    rate = float(fb.max_min_rates(slow, routes).rates[0])
    assert rate == pytest.approx(0.25 / share, rel=1e-12)


def test_more_flows_than_one_chunk_holds_stay_whole(monkeypatch):
    net = topologies.fat_tree(k=4)
    flows = permutation(net.hosts, seed=0)
    whole = routing.flowlet(net, flows, n=9)
    monkeypatch.setattr(_flowlet, "CHUNK", 1)
    parts = routing.flowlet(net, flows, n=9)
    np.testing.assert_array_equal(whole.hop_bundle, parts.hop_bundle)
    np.testing.assert_array_equal(whole.hop_use, parts.hop_use)


def test_gpus_of_servers_spread_only_between_their_adapters():
    net = topologies.cluster("dgx-h100", nodes=8)
    flows = Flows(net.hosts[[0, 1]], net.hosts[[40, 3]], weight=[1, 2], cap=[5, 6])
    routes = routing.flowlet(net, flows, n=4)
    assert routes.weight.tolist() == [1, 2]
    assert routes.cap.tolist() == [5, 6]
    load, even = usage(routes), usage(routing.spray(net, flows))
    inside = net.labels.tags["server"][net.labels.src] >= 0
    inside &= net.labels.tags["server"][net.labels.dst] >= 0
    np.testing.assert_allclose(load[:, inside], even[:, inside])
    assert routes.rule == {
        "name": "flowlet", "n": 4, "seed": 0, "hash": "hop", "key": "row", "queue_pairs": 1,
        "rails": "direct",
    }  # fmt: skip


def test_unreachable_flows_are_numbered():
    net = topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2).without(nodes=["spine0"])
    with pytest.raises(InfeasibleError, match="1 of 2 flows cannot reach") as error:
        routing.flowlet(net, Flows(net.hosts[[0, 0]], net.hosts[[1, 2]]), n=3)
    assert error.value.flows == (1,)


@pytest.mark.parametrize("options", [{"n": 0}, {"seed": -1}, {"hash": "flow"}])
def test_options_out_of_range_are_refused(options):
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
    with pytest.raises(ModelError, match=f"`{next(iter(options))}` needs"):
        routing.flowlet(net, Flows(net.hosts[:1], net.hosts[1:]), **options)
