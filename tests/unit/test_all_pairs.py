"""What `routing.AllPairs` promises, one test per promise."""

import numpy as np
import pytest

import fabric as fb
from fabric import Flows, InfeasibleError, ModelError, UnreachableError, routing, topologies
from fabric.routing import AllPairs
from tests.unit._routing_oracles import random_network, usage
from tests.unit.test_routing_servers import small

RANDOM = {
    f"{name}-{seed}": (seed, options)
    for seed in range(3)
    for name, options in {
        "direct": {"direct": 0.3, "costs": (1, 2)},
        "levels": {"costs": (1, 2), "dead": 0.0},
        "dijkstra": {"costs": (1, 1_000, 3_001), "dead": 0.0},
        "nodes": {"nodes": True, "n_switches": 20, "costs": (1, 3)},
    }.items()
}


def everyone(net):
    src, dst = np.meshgrid(net.hosts, net.hosts, indexing="ij")
    return Flows(src[src != dst], dst[src != dst])


def explicit(net, weight, rule, **options):
    """Loads of all pairs, routed at once."""
    flows, amount = everyone(net), np.zeros(net.n_nodes)
    amount[net.hosts] = weight / (len(net.hosts) - 1)
    routes = rule(net, flows, **options)
    each = np.repeat(amount[flows.src], routes.n_flows // flows.n_flows) * routes.weight
    return each @ usage(routes)


@pytest.mark.parametrize(("seed", "options"), RANDOM.values(), ids=RANDOM)
def test_sprayed_loads_equal_those_of_all_pairs(seed, options):
    net = random_network(np.random.default_rng(seed), **options)
    weight = np.random.default_rng(9).random(len(net.hosts))
    want = explicit(net, weight, routing.spray)
    np.testing.assert_allclose(AllPairs(net).loads(weight), want, rtol=1e-12, atol=1e-14)


FABRICS = {
    "fat-tree": topologies.fat_tree(k=4),
    "oversubscribed": topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=4),
    "failures": topologies.leaf_spine(leaves=4, spines=3, hosts_per_leaf=3).without(links=[30, 40]),
    "torus": topologies.torus("3x4x2"),
    "rails": topologies.rail_optimized(servers=8, rails=4, radix=16),
    "servers": small(),
    "servers-without-gpudirect": small(gpudirect=False),
    "mesh-servers": small("mi300x-8"),
}


@pytest.mark.parametrize("net", FABRICS.values(), ids=FABRICS)
def test_sprayed_loads_of_fabrics_equal_those_of_all_pairs(net):
    weight = np.random.default_rng(9).random(len(net.hosts))
    want = explicit(net, weight, routing.spray)
    np.testing.assert_allclose(AllPairs(net).loads(weight), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("net", FABRICS.values(), ids=FABRICS)
def test_hashed_loads_equal_those_of_all_pairs(net):
    options = {"seed": 3, "queue_pairs": 2}
    pairs = AllPairs(net, rule="ecmp", **options)
    want = explicit(net, np.ones(len(net.hosts)), routing.ecmp, key="ends", **options)
    np.testing.assert_allclose(pairs.loads(), want, rtol=1e-12, atol=1e-14)


def test_throughput_is_the_uniform_rate_of_max_min_fairness():
    for net in (FABRICS["fat-tree"], FABRICS["oversubscribed"], FABRICS["torus"]):
        rates = fb.max_min_rates(net, routing.spray(net, everyone(net))).rates
        total = float(np.min(rates)) * (len(net.hosts) - 1)
        assert AllPairs(net).throughput() == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(
    ("dims", "twist", "rate"),
    [("4x4x4", None, 1.96875), ("4x4x8", None, 0.99219), ("4x4x8", "tpu", 1.7318)],
)
def test_tori_have_their_published_uniform_rates(dims, twist, rate):
    net = topologies.torus(dims, twist=twist)
    assert AllPairs(net).throughput() / net.capacity[0] == pytest.approx(rate, abs=5e-5)


@pytest.mark.parametrize("rule", ["spray", "ecmp"])
def test_a_block_holds_no_more_pairs_than_asked_and_all_are_seen(rule):
    net = FABRICS["fat-tree"]
    pairs = AllPairs(net, rule=rule)
    seen = []
    for flows, routes in pairs.blocks(rows=50):
        assert flows.n_flows == routes.n_flows <= 50
        seen += zip(flows.src.tolist(), flows.dst.tolist(), strict=True)
    want = zip(*(end.tolist() for end in (everyone(net).src, everyone(net).dst)), strict=True)
    assert sorted(seen) == sorted(want)
    assert len(seen) == pairs.n_pairs


def test_a_hashed_path_is_the_same_alone_and_in_a_block():
    net = FABRICS["fat-tree"]
    pairs = AllPairs(net, rule="ecmp", seed=7)
    flows, routes = next(pairs.blocks(rows=40))
    links = routes.hop_bundle[routes.hop_flow == 11].tolist()
    path = pairs.path(int(flows.src[11]), int(flows.dst[11]))
    assert path == [{net.link_name(link): 1.0} for link in links]


def test_a_sprayed_path_names_the_share_of_every_link():
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
    up, down = ([f"{a}->{b}" for a, b in ends] for ends in (
        [("leaf0", "spine0"), ("leaf0", "spine1")], [("spine0", "leaf1"), ("spine1", "leaf1")],
    ))  # fmt: skip
    assert AllPairs(net).path("leaf0-host0", "leaf1-host0") == [
        {"leaf0-host0->leaf0": 1.0},
        dict.fromkeys(up, 0.5),
        dict.fromkeys(down, 0.5),
        {"leaf1->leaf1-host0": 1.0},
    ]


def test_pairs_that_cannot_reach_each_other_are_named():
    net = topologies.leaf_spine(leaves=3, spines=1, hosts_per_leaf=2)
    cut = net.without(links=np.flatnonzero(net.labels.is_tier("leaf-spine"))[:2])
    for rule in ("spray", "ecmp"):
        with pytest.raises(InfeasibleError, match=r"cannot reach .*'leaf0-host\d -> leaf\d|leaf\d"):
            AllPairs(cut, rule=rule).loads()


@pytest.mark.parametrize(
    "lost",
    [{"nodes": "server0-gpu0"}, {"links": "server0-gpu0->server0-pcie0"}],
    ids=["gpu", "pcie"],
)
def test_pairs_that_are_cut_off_inside_a_server_are_no_less_lost(lost):
    net = small(servers=2, units=1)
    pairs = AllPairs(net.without(**lost))
    gpu = net.labels.node("server0-gpu0")
    with pytest.raises(UnreachableError) as blocks:
        list(pairs.blocks())
    for call in (pairs.loads, pairs.throughput):
        with pytest.raises(UnreachableError, match="server0-gpu0") as error:
            call()
        assert len(error.value.flows) == len(blocks.value.flows)
    everywhere = np.where(net.hosts == gpu, 1.0, 0.0)
    with pytest.raises(UnreachableError):
        pairs.loads(everywhere)


def test_one_endpoint_loads_nothing():
    net = topologies.single_switch(1)
    assert not AllPairs(net).loads().any()
    assert AllPairs(net).throughput() == np.inf


def test_unknown_rules_and_wrong_weights_are_refused():
    net = FABRICS["fat-tree"]
    with pytest.raises(ModelError, match=r"Did you mean 'spray'"):
        AllPairs(net, rule="sprey")
    with pytest.raises(ModelError, match=r"'ecmp', sed=.* no such option. Did you mean 'seed'"):
        AllPairs(net, "ecmp", sed=3)
    with pytest.raises(ModelError, match=r"`AllPairs\(rule='spray', seed=\.\.\.\)`"):
        AllPairs(net, seed=3)
    for weight in (np.ones(3), np.full(16, -1.0), np.full(16, np.nan)):
        with pytest.raises(ModelError, match="for each of 16 endpoints"):
            AllPairs(net).loads(weight)
