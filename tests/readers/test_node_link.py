"""What the node-link JSON reader and writer promise, one test per promise."""

import json

import networkx as nx
import numpy as np
import pytest

from fabric import ModelError, readers
from fabric.network import Blueprint
from tests.readers.dumps import CABLES, NODES, dump


def text(edges, *, key="edges", nodes="abc", **rest):
    rows = [{"id": node} for node in nodes] if isinstance(nodes, str) else nodes
    edges = [{"source": e[0], "target": e[1], **e[2]} if isinstance(e, tuple) else e for e in edges]
    return json.dumps({"nodes": rows, key: edges} | rest) + "\n"


def links(network):
    return [network.link_name(link) for link in range(network.n_links)]


SIMPLE = [("a", "b", {"capacity": "400Gb/s"}), ("b", "c", {"capacity": "200Gb/s"})]


@pytest.mark.parametrize("key", ["edges", "links"])
def test_either_name_of_the_edge_list_is_read(key):
    network = readers.read(text(SIMPLE, key=key)).network
    assert links(network) == ["a->b", "b->a", "b->c", "c->b"]
    assert network.capacity.tolist() == [50e9, 50e9, 25e9, 25e9]


def test_both_names_of_the_edge_list_are_refused():
    with pytest.raises(ModelError, match="both `edges` and `links`"):
        readers.read(text(SIMPLE, links=[]))


def test_a_directed_file_is_a_link_per_edge_and_pairs_become_cables():
    edges = [("a", "b", {}), ("b", "c", {}), ("b", "a", {})]
    reading = readers.read(text(edges, directed=True), default_capacity="1Gb/s")
    assert links(reading.network) == ["a->b", "b->c", "b->a"]
    assert reading.network.labels.cable_of.tolist() == [0, 1, 0]
    assert reading.records == 2
    assert "1 links have no link in the other direction." in reading.warnings


def test_parallel_links_pair_up_in_order():
    edges = [("a", "b", {}), ("a", "b", {}), ("b", "a", {}), ("b", "a", {})]
    reading = readers.read(text(edges, directed=True), default_capacity="1Gb/s")
    assert reading.network.labels.cable_of.tolist() == [0, 1, 0, 1]


def test_parallel_cables_stay_separate():
    edges = [*SIMPLE, ("a", "b", {"capacity": "1Gb/s"})]
    reading = readers.read(text(edges, multigraph=True))
    assert links(reading.network)[4:] == ["a->b#1", "b->a#1"]
    assert reading.contradicted == []


def test_a_second_edge_in_a_simple_graph_is_kept_and_reported():
    edges = [*SIMPLE, ("b", "a", {"capacity": "1Gb/s"})]
    reading = readers.read(text(edges, multigraph=False))
    assert reading.network.n_links == 6
    assert [entry["item"] for entry in reading.contradicted] == ["b->a"]


def test_a_bare_number_is_refused_until_its_unit_is_stated():
    edges = [("a", "b", {"capacity": 400}), ("b", "c", {"capacity": "1Gb/s"})]
    with pytest.raises(ModelError, match=r"on 1 of 2 edges: 'a->b 400'.*`unit='Gb/s'`"):
        readers.read(text(edges))
    assert readers.read(text(edges), unit="Gb/s").network.capacity[0] == 50e9
    stated = text(edges, graph={"capacity_unit": "GB/s"})
    assert readers.read(stated).network.capacity[0] == 400e9
    assert readers.read(stated, unit="Mb/s").network.capacity[0] == 50e6
    with pytest.raises(ModelError, match="unknown unit"):
        readers.read(text(edges), unit="gigs")


def test_latency_needs_a_unit_too():
    edges = [("a", "b", {"capacity": "1Gb/s", "latency": 3}), ("b", "c", {"capacity": "1Gb/s"})]
    with pytest.raises(ModelError, match=r"`latency_unit='ms'`"):
        readers.read(text(edges))
    latency = readers.read(text(edges), latency_unit="us").network.latency
    np.testing.assert_allclose(latency, [3e-6, 3e-6, 0, 0], rtol=1e-15)


def test_a_missing_capacity_needs_a_default_and_synonyms_are_only_offered():
    edges = [("a", "b", {"bw": "1Gb/s"}), ("b", "c", {"capacity": "1Gb/s"})]
    with pytest.raises(ModelError, match=r"1 of 2 edges have no attribute `capacity`: .* 'bw'; if"):
        readers.read(text(edges))
    reading = readers.read(text(edges), default_capacity="8Gb/s")
    assert reading.network.capacity.tolist() == [1e9, 1e9, 0.125e9, 0.125e9]
    assert reading.warnings == ["1 of 2 edges have no capacity and got 8Gb/s."]
    assert reading.ignored == [{"what": "edge attribute 'bw'", "count": 1}]
    with pytest.raises(ModelError, match="no attribute `bw`"):
        readers.read(text(edges), capacity="bw")


def test_what_is_dropped_is_counted():
    nodes = [{"id": "a", "rack": 3, "site": "x", "pos": [1, 2]}, {"id": "b"}, {"id": "c"}]
    reading = readers.read(text(SIMPLE, nodes=nodes, graph={"name": "n", "demands": {}}))
    assert reading.ignored == [
        {"what": "node attribute 'pos'", "count": 1},
        {"what": "graph attribute 'demands'", "count": 1},
    ]
    tags = reading.network.labels.tags
    assert tags["rack"].tolist() == [3, -1, -1]
    assert tags["site"].tolist() == ["x", "", ""]


def test_what_the_file_says_in_vain_is_counted():
    nodes = [{"id": "a", "endpoint": True}, {"id": "b"}, {"id": "c"}]
    edges = [
        ("a", "b", {"cable": "x", "source_port": "7"}), ("b", "a", {"cable": 1, "target_port": -1}),
        ("b", "c", {"source_port": 3, "target_port": 2**40}),
    ]  # fmt: skip
    reading = readers.read(text(edges, nodes=nodes, directed=True), default_capacity="1Gb/s")
    assert reading.ignored == [
        {"what": "node attribute 'endpoint'", "count": 1},
        {"what": "edge attribute 'source_port'", "count": 1},
        {"what": "edge attribute 'target_port'", "count": 2},
        {"what": "edge attribute 'cable'", "count": 2},
    ]
    assert reading.network.labels.src_port.tolist() == [0, 0, 3]
    undirected = readers.read(text([("a", "b", {"cable": 1})]), default_capacity="1Gb/s")
    assert undirected.ignored == [{"what": "edge attribute 'cable'", "count": 1}]


@pytest.mark.parametrize("value", ["false", 0, 1, [], "no"])
@pytest.mark.parametrize("key", ["alive", "forwards", "endpoint", "directed"])
def test_only_true_and_false_are_true_and_false(key, value):
    edge = {"capacity": "1Gb/s"} | ({key: value} if key == "alive" else {})
    nodes = [{"id": "a"} | ({key: value} if key in ("forwards", "endpoint") else {}), {"id": "b"}]
    rest = {key: value} if key == "directed" else {}
    with pytest.raises(ModelError, match=f"`{key}` needs true or false, but"):
        readers.read(text([("a", "b", edge)], nodes=nodes, **rest))


def test_null_counts_as_absent():
    nodes = [{"id": "a", "kind": None, "name": None, "endpoint": None}, {"id": "b"}]
    edge = {
        "capacity": None, "latency": None, "routing_cost": None, "alive": None, "tier": None,
        "cable": None, "source_port": None,
    }  # fmt: skip
    reading = readers.read(text([("a", "b", edge)], nodes=nodes), default_capacity="1Gb/s")
    labels = reading.network.labels
    assert (labels.kinds, labels.tiers, list(labels.names)) == (("node",), ("link",), ["a", "b"])
    assert reading.network.alive.all()
    assert reading.ignored == []


@pytest.mark.parametrize("cost", ["1e300", "1e400", "NaN", "2147483648", "1.5", "true", "1" * 400])
def test_a_routing_cost_beyond_32_bits_is_refused(cost):
    data = text([("a", "b", {"capacity": "1Gb/s", "routing_cost": "?"})]).replace('"?"', cost)
    with pytest.raises(ModelError, match=r"`routing_cost` of a->b needs a whole number from 1 to"):
        readers.read(data)


@pytest.mark.parametrize("number", ["1" * 400, "1e305", "-1", "Infinity"])
def test_a_number_that_no_capacity_can_be_is_refused(number):
    data = text([("a", "b", {"capacity": "?"})]).replace('"?"', number)
    with pytest.raises(ModelError, match=r"`capacity` of a->b needs a finite capacity"):
        readers.read(data, unit="Gb/s")


def test_a_number_of_thousands_of_digits_is_one_clear_error():
    data = text([("a", "b", {"capacity": "?"})]).replace('"?"', "1" * 5000)
    with pytest.raises(ModelError, match="no valid JSON"):
        readers.read(data)


def test_names_and_kinds_are_text():
    nodes = [{"id": 1, "kind": 5, "name": 7}, {"id": 2, "kind": []}, {"id": 3, "name": True}]
    with pytest.raises(ModelError) as caught:
        readers.read(text([], nodes=nodes))
    assert "`kind` needs text, but 1 of 3 have something else: '[]'" in str(caught.value)
    assert "`name` needs text, but 1 of 3 have something else: 'True'" in str(caught.value)
    with pytest.raises(ModelError, match="no `id` of number or text"):
        readers.read(text([], nodes=[{"id": True}]))


def test_numbers_too_large_for_a_tag_are_counted():
    reading = readers.read(text([], nodes=[{"id": "a", "serial": 2**70}]))
    assert reading.ignored == [{"what": "node attribute 'serial'", "count": 1}]


def test_hundreds_of_kinds_are_told_apart():
    nodes = [{"id": i, "kind": f"kind{i}"} for i in range(300)]
    labels = readers.read(text([], nodes=nodes)).network.labels
    assert labels.kinds[labels.kind_of[299]] == "kind299"


def test_all_faults_are_said_at_once():
    edges = [
        ("a", "x", {}), ("a", "b", {"capacity": -1}), ("a", "b", {"capacity": [1]}),
        ("a", "b", {"capacity": "fast"}), ("a", "b", {"capacity": "1Gb/s", "routing_cost": 0}),
        ("a", "b", {"capacity": float("nan")}),
    ]  # fmt: skip
    with pytest.raises(ModelError) as caught:
        readers.read(text(edges))
    assert len(str(caught.value).splitlines()) == 6
    assert "not listed: 'a->x'" in str(caught.value)


def test_node_ids_are_told_apart_and_repeats_reported():
    reading = readers.read(text(SIMPLE, nodes="abca"))
    assert reading.contradicted == [{"what": "node listed twice", "item": "a"}]
    with pytest.raises(ModelError, match="as number and as text"):
        readers.read(text([], nodes=[{"id": 1}, {"id": "1"}]))
    with pytest.raises(ModelError, match="no `id`"):
        readers.read(text([], nodes=[{"name": "a"}]))


def test_a_self_loop_is_left_out_and_reported():
    reading = readers.read(text([*SIMPLE, ("c", "c", {"capacity": "1Gb/s"})]))
    assert reading.network.n_links == 4
    assert reading.contradicted == [{"what": "edge from a node to itself", "item": "c->c"}]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"nodes": [], "edges": []}\n', "has no node"),
        ('{"nodes": [{"id": 1}], "edges": [\n', "no valid JSON"),
        ('{"x": {"nodes": 1, "edges": 2}}\n', "no node-link graph"),
        ('{"nodes": [1], "edges": []}\n', "no node-link graph"),
    ],
)
def test_a_file_that_is_no_graph_is_one_clear_error(data, message):
    with pytest.raises(ModelError, match=message):
        readers.read(data)


def test_a_graph_without_edges_is_a_network_without_links():
    reading = readers.read(text([]))
    assert (reading.network.n_nodes, reading.network.n_links) == (3, 0)
    assert reading.warnings == ["The file lists no edge, so there is no link."]


def rails():
    plan = Blueprint()
    server, rail = np.arange(3)[:, None], np.arange(2)
    nic = plan.nodes("nic", "server{}-nic{}", (3, 2), server=server, rail=rail)
    leaf = plan.nodes("leaf", "leaf{}", (2,), rail=rail)
    spine = plan.nodes("spine", "spine{}", (2,))
    plan.cables("host", nic, leaf, 1e9 / 3, latency=1e-7)
    plan.cables("leaf-spine", leaf[:, None], spine, 7.0, routing_cost=3, parallel=2)
    return plan.network("odd numbers").without(links=[5])


@pytest.mark.parametrize("name", ["net.json", "net.json.gz"])
def test_a_written_network_reads_back_whole_without_options(tmp_path, name):
    network = rails()
    reading = readers.read(readers.write_node_link(network, tmp_path / name))
    for array in ("capacity", "latency", "alive", "routing_cost"):
        np.testing.assert_array_equal(getattr(reading.network, array), getattr(network, array))
    one, other = network.labels, reading.network.labels
    for array in ("kind_of", "src", "dst", "tier_of", "cable_of", "endpoint", "forwards"):
        np.testing.assert_array_equal(getattr(other, array), getattr(one, array))
    assert (other.kinds, other.tiers, list(other.names)) == (one.kinds, one.tiers, list(one.names))
    assert other.source == "odd numbers"
    for tag, values in one.tags.items():
        np.testing.assert_array_equal(other.tags[tag], values)
    assert (reading.ignored, reading.contradicted, reading.warnings) == ([], [], [])
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_ports_and_ids_of_a_dump_survive(tmp_path):
    network = readers.read(dump(NODES, CABLES)).network
    again = readers.read(readers.write_node_link(network, tmp_path / "net.json")).network
    assert links(again) == links(network)
    assert list(again.labels.ids) == list(network.labels.ids)
    assert again.labels.tags["host"].tolist() == network.labels.tags["host"].tolist()


def test_networkx_reads_what_is_written(tmp_path):
    network = rails()
    data = json.loads(readers.write_node_link(network, tmp_path / "net.json").read_text())
    graph = nx.node_link_graph(data, edges="edges")
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (10, network.n_links)


def test_what_networkx_writes_is_read(tmp_path):
    graph = nx.MultiGraph(name="two")
    graph.add_edges_from([((0, 1), "b"), ((0, 1), "b")], capacity="1Gb/s")
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    network = readers.read(file).network
    assert (network.n_nodes, network.n_links, network.labels.source) == (2, 4, "two")


@pytest.mark.parametrize(
    ("name", "options", "nodes", "n_links"),
    [
        ("B4.json", {"unit": "Mb/s"}, 12, 38),
        ("UsCarrier.json", {"unit": "Mb/s"}, 158, 378),
        ("topohub_sndlib_abilene.json", {"default_capacity": "10Gb/s"}, 12, 30),
        ("topohub_topozoo_Abilene.json", {"default_capacity": "10Gb/s"}, 11, 28),
    ],
)
def test_public_graphs_need_what_they_do_not_say(shared, name, options, nodes, n_links):
    file = shared / "samples/general" / name
    with pytest.raises(ModelError, match=next(iter(options))):
        readers.read(file)
    reading = readers.read(file, **options)
    assert (reading.network.n_nodes, reading.network.n_links) == (nodes, n_links)
    assert reading.records == n_links // 2
    assert len(reading.network.hosts) == nodes


def test_demands_of_topohub_are_reported_as_ignored(shared):
    file = shared / "samples/general/topohub_sndlib_abilene.json"
    reading = readers.read(file, default_capacity="10Gb/s")
    whats = [entry["what"] for entry in reading.ignored]
    assert "graph attribute 'demands'" in whats
    assert "edge attribute 'dist'" in whats
    assert "ATLAM5" in reading.network.labels.names
