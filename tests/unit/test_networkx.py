"""What `Network.from_networkx` and `to_networkx` promise."""

import dataclasses

import networkx as nx
import numpy as np
import pytest

import fabric as fb
from fabric.network import Blueprint


@pytest.fixture
def rails():
    """Two leaves and a spine: parallel cables, ports, ids, two kinds of tags, a failed cable."""
    plan = Blueprint()
    host = plan.nodes("host", "leaf{}-host{}", (2, 2), leaf=np.arange(2)[:, None])
    spine = plan.nodes("spine", "spine{}", (1,))
    leaf = plan.nodes("leaf", "leaf{}", (2,), leaf=np.arange(2))
    plan.cables("leaf-spine", leaf[:, None], spine[None, :], 25e9 / 3, latency=1e-6, parallel=2)
    plan.cables("host", host, leaf[:, None], 50e9, routing_cost=3)
    net = plan.network("two leaves")
    labels = dataclasses.replace(
        net.labels,
        ids=[f"S-{node}" for node in range(net.n_nodes)],
        names=[*list(net.labels.names)[:-1], "leaf0"],  # a name that repeats
        tags={**net.labels.tags, "room": np.array(["a", "", "b", "", "", "", "c"])},
        src_port=np.arange(net.n_links) % 4 + 1,
        dst_port=np.arange(net.n_links) // 2 % 4 + 1,
    )
    net = fb.Network(net.capacity, net.latency, net.alive, net.routing_cost, labels=labels)
    return net.without(links=[2])


def graph_of(*edges, directed=False, **attributes):
    graph = nx.MultiDiGraph() if directed else nx.MultiGraph()
    for a, b, *data in edges:
        graph.add_edge(a, b, **({"capacity": 1.0} | attributes | (data[0] if data else {})))
    return graph


def said(graph, **options):
    with pytest.raises(fb.ModelError) as caught:
        fb.Network.from_networkx(graph, **options)
    return str(caught.value)


def test_a_network_comes_back_whole(rails):
    back = fb.Network.from_networkx(rails.to_networkx())
    for array in ("capacity", "latency", "alive", "routing_cost"):
        np.testing.assert_array_equal(getattr(back, array), getattr(rails, array))
    one, other = rails.labels, back.labels
    arrays = ("kind_of", "src", "dst", "tier_of", "cable_of", "src_port", "dst_port")
    for array in (*arrays, "endpoint", "forwards"):
        np.testing.assert_array_equal(getattr(other, array), getattr(one, array))
    assert (other.kinds, other.tiers, other.source) == (one.kinds, one.tiers, "two leaves")
    assert (list(other.names), list(other.ids)) == (list(one.names), list(one.ids))
    assert set(other.tags) == set(one.tags)
    for tag, values in one.tags.items():
        np.testing.assert_array_equal(other.tags[tag], values)
    links = range(rails.n_links)
    assert [back.link_name(link) for link in links] == [rails.link_name(link) for link in links]


def test_a_simple_directed_graph_keeps_the_order_of_its_links(rails):
    thin = fb.topologies.leaf_spine(leaves=3, spines=2, hosts_per_leaf=1)
    back = fb.Network.from_networkx(nx.DiGraph(thin.to_networkx()))
    np.testing.assert_array_equal(back.labels.src, thin.labels.src)
    np.testing.assert_array_equal(back.labels.cable_of, thin.labels.cable_of)


def test_links_that_are_numbered_in_part_keep_the_order_of_the_graph():
    graph = graph_of(("a", "b", {"link": 1}), ("b", "a"), directed=True)
    assert fb.Network.from_networkx(graph).link_name(0) == "a->b"


def test_nodes_of_a_plain_graph_send_and_forward():
    net = fb.Network.from_networkx(nx.path_graph(3), default_capacity="1Gb/s")
    assert len(net.hosts) == 3
    assert net.labels.forwards.all()


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


def test_a_capacity_of_none_is_a_missing_one():
    graph = graph_of(("a", "b", {"capacity": None}))
    assert "1 of 1 edges have no such attribute: 'a->b'" in said(graph)
    net = fb.Network.from_networkx(graph, default_capacity="8Gb/s")
    assert net.capacity.tolist() == [1e9, 1e9]


def test_none_counts_as_absent():
    graph = graph_of(("a", "b"), latency=None, routing_cost=None, alive=None, tier=None)
    net = fb.Network.from_networkx(graph)
    assert net.latency.tolist() == [0, 0]
    assert net.routing_cost.tolist() == [1, 1]
    assert net.alive.all()
    assert net.labels.tiers == ("link",)


def test_hundreds_of_kinds_and_tiers_are_told_apart():
    graph = nx.path_graph(301)
    nx.set_node_attributes(graph, {node: f"kind{node}" for node in graph}, "kind")
    nx.set_edge_attributes(graph, {(a, b): f"tier{a}" for a, b in graph.edges}, "tier")
    labels = fb.Network.from_networkx(graph, default_capacity=1.0).labels
    assert labels.kinds[labels.kind_of[300]] == "kind300"
    assert labels.tiers[labels.tier_of[598]] == "tier299"
    assert labels.is_tier("tier200").sum() == 2


def test_nodes_that_read_alike_are_refused():
    graph = graph_of((1, 2), ("1", 2))
    assert "1 texts belong to more than one node, such as 1 and '1': '1'" in said(graph)


def test_self_loops_are_refused_by_name():
    graph = graph_of(("a", "b"), ("b", "b"))
    assert "1 of 2 edges join a node to itself: 'b->b'" in said(graph)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    assert fb.Network.from_networkx(graph).n_links == 2


@pytest.mark.parametrize("cost", [np.inf, np.nan, 1e12, 10**400, 1.5, 0, "2", True])
def test_a_routing_cost_that_is_no_whole_number_is_refused(cost):
    assert "`routing_cost` of a->b needs a whole number from 1 to 2,147,483,647" in said(
        graph_of(("a", "b"), routing_cost=cost)
    )


@pytest.mark.parametrize("cost", [np.int64(3), np.float32(3), 3.0])
def test_numpy_numbers_are_numbers(cost):
    graph = graph_of(("a", "b"), routing_cost=cost, capacity=np.float32(2), alive=np.bool_(False))
    nx.set_node_attributes(graph, np.int64(7), "rack")
    net = fb.Network.from_networkx(graph)
    assert net.routing_cost.tolist() == [3, 3]
    assert net.labels.tags["rack"].tolist() == [7, 7]
    assert not net.alive.any()


def test_every_fault_is_said_at_once():
    graph = graph_of(
        ("a", "b", {"latency": "slow"}), ("b", "c", {"latency": [1]}), ("c", "d", {"capacity": -1}),
        ("d", "e", {"capacity": True}), ("e", "f", {"alive": "no"}), ("f", "g", {"tier": {}}),
        ("g", "h", {"routing_cost": 0}), ("h", "i", {"source_port": "7"}), ("i", "i"),
        ("i", "j", {"capacity": 10**400}),
    )  # fmt: skip
    nx.set_node_attributes(graph, {"a": "no", "b": True}, "forwards")
    found = said(graph, default_capacity="fast")
    for fault in (
        "`latency of a->b`", "`latency of b->c`", "`capacity of c->d`", "`capacity of d->e`",
        "`capacity of i->j`", "`alive` needs true or false, but 1 of 10", "`tier` needs text",
        "`routing_cost` of g->h", "`source_port` needs a whole number", "'i->i'",
        "`default_capacity`", "`forwards` needs true or false", "`forwards` is given for 2 of 10",
    ):  # fmt: skip
        assert fault in found, fault


def test_cable_numbers_are_given_for_all_links_or_none():
    graph = graph_of(("a", "b", {"cable": 5}), ("b", "a", {"cable": 5}), directed=True)
    assert fb.Network.from_networkx(graph).labels.cable_of.tolist() == [0, 0]
    graph.add_edge("a", "c", capacity=1.0)
    assert "`cable` needs a whole number on every edge or none" in said(graph)


def test_numbers_too_large_for_a_tag_are_no_tag():
    graph = graph_of(("a", "b"))
    nx.set_node_attributes(graph, {"a": 2**70}, "serial")
    assert "serial" not in fb.Network.from_networkx(graph).labels.tags


def test_the_source_is_the_name_of_the_graph_unless_it_is_given():
    graph = graph_of(("a", "b"))
    assert fb.Network.from_networkx(graph).labels.source == "networkx graph"
    assert fb.Network.from_networkx(graph, source="mine").labels.source == "mine"


def test_a_cable_has_two_links_at_most_and_they_go_both_ways():
    two = [("a", "b", {"cable": 5}), ("b", "a", {"cable": 5})]
    fine = graph_of(*two, ("a", "b", {"cable": 6}), directed=True)
    assert fb.Network.from_networkx(fine).labels.cable_of.tolist() == [0, 1, 0]
    found = said(graph_of(*two, ("a", "b", {"cable": 5}), directed=True))
    assert "`cable` numbers the two directions of a cable alike, but 1 numbers are on" in found
    assert "'5: a->b, a->b#1, b->a'" in found
    alike = graph_of(("a", "b", {"cable": 3}), ("a", "b", {"cable": 3}), directed=True)
    assert "'3: a->b, a->b#1'" in said(alike)


def test_link_numbers_that_repeat_are_refused():
    graph = graph_of(("a", "b", {"link": 1}), ("b", "a", {"link": 1}), directed=True)
    assert "`link` numbers each link once, but 1 numbers repeat: '1'" in said(graph)


def test_a_duplicated_edge_of_an_exported_network_is_refused(rails):
    graph = rails.to_networkx()
    a, b, data = next(iter(graph.edges(data=True)))
    graph.add_edge(a, b, **data)
    found = said(graph)
    assert "`link` numbers each link once" in found
    assert "`cable` numbers the two directions" in found
