"""What `Network`, `Flows`, `Routes`, `Placement` and `place` promise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import fabric as fb
from fabric.network import Blueprint, Labels, Names


@pytest.fixture
def two_leaves():
    plan = Blueprint()
    leaf = plan.nodes("leaf", "leaf{}", (2,), leaf=np.arange(2))
    spine = plan.nodes("spine", "spine{}", (1,))
    host = plan.nodes("host", "leaf{}-host{}", (2, 2), leaf=np.arange(2)[:, None])
    plan.cables("host", host, leaf[:, None], 50e9)
    plan.cables("leaf-spine", leaf[:, None], spine[None, :], 25e9, latency=1e-6, parallel=2)
    return plan.network("two leaves")


def test_names_are_made_by_rule():
    names = Names([("a{}", (2,)), ("b{}-{}", (2, 3))])
    assert len(names) == 8
    assert names[-1] == "b1-2"
    assert names[1:4] == ["a1", "b0-0", "b0-1"]
    with pytest.raises(IndexError):
        names[8]


def test_a_cable_is_two_links_and_parallel_cables_stay(two_leaves):
    labels = two_leaves.labels
    assert two_leaves.n_links == 2 * (4 + 4)
    np.testing.assert_array_equal(labels.src[::2], labels.dst[1::2])
    np.testing.assert_array_equal(np.bincount(labels.cable_of), 2)
    names = [two_leaves.link_name(i) for i in range(8, 12)]
    assert names == ["leaf0->spine0", "spine0->leaf0", "leaf0->spine0#1", "spine0->leaf0#1"]
    assert len({two_leaves.link_name(i) for i in range(two_leaves.n_links)}) == two_leaves.n_links


def test_only_hosts_send_and_only_switches_forward(two_leaves):
    assert [two_leaves.labels.names[i] for i in two_leaves.hosts[:2]] == [
        "leaf0-host0",
        "leaf0-host1",
    ]
    assert two_leaves.labels.forwards.sum() == 3


def test_nodes_of_a_plain_graph_send_and_forward():
    net = fb.Network.from_networkx(nx.path_graph(3), default_capacity="1Gb/s")
    assert len(net.hosts) == 3
    assert net.labels.forwards.all()


def test_without_fails_both_directions_and_names_unknown_nodes(two_leaves):
    assert two_leaves.without(links=[8]).alive[8:10].tolist() == [False, False]
    assert two_leaves.without(nodes=["spine0"]).alive.sum() == 8
    with pytest.raises(fb.ModelError, match=r"'spine1' is no node .* Did you mean 'spine0'"):
        two_leaves.without(nodes=["spine1"])
    with pytest.raises(fb.ModelError, match=r"names links '99', but there are 16"):
        two_leaves.without(links=[99])


def test_labels_stay_outside_the_pytree(two_leaves):
    leaves = jax.tree_util.tree_leaves(two_leaves)
    assert len(leaves) == 4
    through = eqx.filter_jit(lambda n: n.with_capacity(n.capacity * 2))(two_leaves)
    assert not through.has_labels
    assert two_leaves.with_capacity(two_leaves.capacity * 2).has_labels
    with pytest.raises(fb.ModelError, match="came out of a JAX transformation"):
        _ = through.labels


def test_from_capacity_names_every_bad_link():
    with pytest.raises(fb.ModelError, match=r"3 of 7 links .*'link 1', 'link 3' and 'link 5'"):
        fb.Network.from_capacity([1.0, -1.0, 0.0, np.nan, 2.0, np.inf, 3.0])


def test_whole_number_capacities_become_floats():
    assert fb.Network(np.array([1, 2])).capacity.dtype == np.float64


def test_networkx_round_trip_keeps_everything(two_leaves):
    alive = np.ones(two_leaves.n_links, bool)
    alive[9] = False
    back = fb.Network.from_networkx(two_leaves.with_alive(alive).to_networkx())

    def row(net, i):
        labels = net.labels
        return (
            labels.names[labels.src[i]], labels.names[labels.dst[i]], float(net.capacity[i]),
            float(net.latency[i]), bool(net.alive[i]), labels.tiers[labels.tier_of[i]],
        )  # fmt: skip

    before = sorted(row(two_leaves.with_alive(alive), i) for i in range(two_leaves.n_links))
    assert sorted(row(back, i) for i in range(back.n_links)) == before
    assert {back.labels.kinds[k] for k in back.labels.kind_of} == {"leaf", "spine", "host"}
    assert len(back.hosts) == 4
    np.testing.assert_array_equal(np.bincount(back.labels.cable_of), 2)


def test_a_multigraph_keeps_its_parallel_cables():
    graph = nx.MultiGraph()
    graph.add_edge("a", "b", capacity="400Gb/s")
    graph.add_edge("a", "b", capacity="100Gb/s")
    net = fb.Network.from_networkx(graph)
    assert net.n_links == 4
    assert sorted(net.capacity.tolist()) == [12.5e9, 12.5e9, 50e9, 50e9]


def test_a_graph_with_faults_says_all_of_them():
    graph = nx.DiGraph()
    graph.add_edge("a", "b", capacity="400GB")
    graph.add_edge("b", "a", capacity="1Gb/s", routing_cost=0)
    with pytest.raises(fb.ModelError) as caught:
        fb.Network.from_networkx(graph)
    assert "capacity of a->b" in str(caught.value)
    assert "`routing_cost` of b->a" in str(caught.value)
    with pytest.raises(fb.ModelError, match=r"1 of 1 edges have no such attribute: 'x->y'"):
        fb.Network.from_networkx(nx.DiGraph([("x", "y")]))
    with pytest.raises(fb.ModelError, match="no edge"):
        fb.Network.from_networkx(nx.Graph())


def test_flows_say_every_fault_at_once():
    with pytest.raises(fb.ModelError) as caught:
        fb.Flows([0, 1], [1, 0], size=[-1.0, 2.0], weight=[1.0, 0.0])
    assert "size in bytes of 0 or more" in str(caught.value)
    assert "weight of more than 0" in str(caught.value)
    with pytest.raises(fb.ModelError, match=r"got 2 values of `src`, but `dst` has 1"):
        fb.Flows([0, 1], [1])


def test_routes_refuse_numbers_out_of_range():
    with pytest.raises(fb.ModelError, match=r"needs link numbers from 0 to 1, but 1 of 2 .*'2'"):
        fb.Routes.from_paths([[0, 2]], n_links=2)
    with pytest.raises(fb.ModelError, match="`hop_use` needs a finite use of 0 or more"):
        fb.Routes.from_paths([[0]], n_links=1, usage=[[-1.0]])
    with pytest.raises(fb.ModelError, match=r"differs in length at flows '1'"):
        fb.Routes.from_paths([[0], [0]], n_links=1, usage=[[1.0], []])
    with pytest.raises(fb.ModelError, match="needs to rise from 0"):
        fb.Routes.from_csr([0, 2, 1], [0], n_links=1)
    with pytest.raises(fb.ModelError, match=r"`weights` has 3 values for 1 flows"):
        fb.Routes.from_paths([[0]], n_links=1, weights=[1.0, 1.0, 1.0])
    with pytest.raises(
        fb.ModelError, match=r"`pad_hops=1` is too small: there are 3 .*`pad_hops=4`"
    ):
        fb.Routes.from_paths([[0, 1, 2]], n_links=3, pad_to=1)


def test_hops_are_sorted_by_flow():
    routes = fb.Routes.from_bundles(
        [1, 0, 1], [0, 1, 2], 1.0, (), (), (), n_flows=2, n_bundles=3, n_links=3
    )
    assert routes.hop_flow.tolist() == [0, 1, 1]
    assert routes.hop_bundle.tolist() == [1, 0, 2]


def test_per_flow_sums_queue_pairs():
    routes = fb.Routes.from_csr(
        [0, 1, 2, 3], [0, 0, 1], n_links=2, flow_of=np.array([0, 0, 1]), weights=[0.5, 0.5, 1.0]
    )
    np.testing.assert_allclose(routes.per_flow(np.array([1.0, 2.0, 4.0])), [3.0, 4.0])
    np.testing.assert_allclose(routes.per_flow(jnp.array([1.0, 2.0, 4.0])), [3.0, 4.0])


def test_place_pads_casts_and_keeps_the_answer():
    net, routes = fb.Network([10.0, 4.0]), fb.Routes.from_paths([[0, 1], [0]], n_links=2)
    placed_net, placed = fb.place(net, routes, pad_hops="auto", dtype="float32")
    assert placed.n_hops == 4
    assert placed_net.capacity.dtype == jnp.float32
    for method in ("rounds", "compiled"):
        np.testing.assert_allclose(
            fb.max_min_rates(placed_net, placed, method=method).rates, [4.0, 6.0], rtol=1e-6
        )
    with pytest.raises(fb.ModelError, match="no floating-point type"):
        fb.place(net, routes, dtype="int32")
    with pytest.raises(fb.ModelError, match="a pad is a number of entries"):
        fb.place(net, routes, pad_hops="big")


def test_placements():
    plan = Blueprint()
    leaf = plan.nodes("leaf", "leaf{}", (3,))
    host = plan.nodes("gpu", "g{}-{}", (3, 4), unit=np.arange(3)[:, None])
    plan.cables("host", host, leaf[:, None], 1.0)
    net = plan.network("three units")
    assert fb.Placement.first(net, 5).endpoint_of.tolist() == net.hosts[:5].tolist()
    spread = fb.Placement.spread(net, 8, by="unit", block=2).endpoint_of - net.hosts[0]
    assert spread.tolist() == [0, 1, 4, 5, 8, 9, 2, 3]
    with pytest.raises(fb.InfeasibleError, match="13 ranks need as many endpoints"):
        fb.Placement.first(net, 13)
    with pytest.raises(fb.ModelError, match="more than one rank on nodes '3'"):
        fb.Placement([3, 3])
    with pytest.raises(fb.ModelError, match="no such tag"):
        fb.Placement.spread(net, 2, by="rail")


def test_a_name_that_several_nodes_have_is_no_identity():
    labels = Labels(
        kinds=("switch",), kind_of=np.zeros(2, np.int8), names=["sw", "sw"], ids=["S-1", "S-2"],
        src=np.array([0]), dst=np.array([1]), tiers=("t",), tier_of=np.zeros(1, np.int8),
        cable_of=np.zeros(1, np.int32),
    )  # fmt: skip
    assert labels.node("S-2") == 1
    with pytest.raises(fb.ModelError, match="is the name of several nodes; use an id"):
        labels.node("sw")
    with pytest.raises(fb.ModelError, match="no tier 'tt'"):
        labels.is_tier("tt")
