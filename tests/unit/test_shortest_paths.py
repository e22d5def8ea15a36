"""What `shortest_distances` promises: distances by routing cost over live links, on any graph."""

import equinox as eqx
import numpy as np
import pytest

from fabric import ModelError, routing
from tests.unit._routing_oracles import distance, network_of, random_network

# Spread 1, a spread that levels serve, and one that only Dijkstra's search can.
COSTS = {"equal": (1,), "equal-7": (7,), "levels": (1, 2, 5), "dijkstra": (3, 1_000, 999_983)}


def expected(network):
    nodes = range(network.n_nodes)
    return [[distance(network, s, d) for s in nodes] for d in nodes]


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
@pytest.mark.parametrize("seed", range(3))
def test_distances_equal_those_of_networkx(costs, seed):
    network = random_network(np.random.default_rng(seed), costs=costs, direct=0.3, dead=0.2)
    got = routing.shortest_distances(network, np.arange(network.n_nodes))
    np.testing.assert_array_equal(got, expected(network))


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
def test_nodes_that_send_and_forward_are_reached(costs):
    network = random_network(np.random.default_rng(5), n_switches=14, costs=costs, nodes=True)
    got = routing.shortest_distances(network, np.arange(network.n_nodes))
    np.testing.assert_array_equal(got, expected(network))


def test_distances_go_on_over_many_blocks_of_destinations():
    n = 1_100
    ring = network_of(["node"] * n, [(i, (i + 1) % n, 1, 1, True) for i in range(n)])
    got = routing.shortest_distances(ring, np.arange(n))
    step = np.abs(np.arange(n)[:, None] - np.arange(n))
    np.testing.assert_array_equal(got, np.minimum(step, n - step))


def test_hosts_without_switches_reach_each_other_over_direct_links_only():
    network = network_of(["host"] * 3, [(0, 1, 4, 6, True), (1, 2, 1, 1, True)])
    got = routing.shortest_distances(network, network.hosts)
    assert got.tolist() == [[0, 6, -1], [4, 0, 1], [-1, 1, 0]]


def test_a_direct_link_loses_to_a_cheaper_way_over_a_switch():
    network = network_of(
        ["switch", "host", "host"], [(1, 0, 2, 2, True), (2, 0, 2, 2, True), (1, 2, 9, 3, True)]
    )
    assert routing.shortest_distances(network, [1, 2])[:, 1:].tolist() == [[0, 3], [4, 0]]


def test_costs_that_overflow_are_refused_with_the_largest():
    huge = 2**30 + 1
    network = network_of(["node"] * 4, [(i, i + 1, huge - i, 1, True) for i in range(3)])
    with pytest.raises(ModelError, match=r"routing_cost` reaches 1,073,741,825 and adds up"):
        routing.shortest_distances(network, [3])


def test_costs_below_one_are_refused_by_link_name():
    ends = [(0, 1, 1, 0, True), (1, 2, 1, 1, True)]
    with pytest.raises(ModelError, match=r"1 of 4 links have others: 'node1->node0'"):
        network_of(["node"] * 3, ends)
    network = network_of(["node"] * 3, [(*end[:3], 1, True) for end in ends])
    cost = np.array([1, 0, 1, 1])
    zero = eqx.tree_at(lambda n: n.routing_cost, network, cost)
    object.__setattr__(zero, "_labels", network.labels)
    with pytest.raises(ModelError, match=r"1 of 4 links have others: 'node1->node0'"):
        routing.shortest_distances(zero, [2])


def test_destinations_out_of_range_are_refused():
    network = network_of(["node"] * 2, [(0, 1, 1, 1, True)])
    with pytest.raises(ModelError, match=r"nodes from 0 to 1, but 1 of 2 are outside: '2'"):
        routing.shortest_distances(network, [1, 2])
