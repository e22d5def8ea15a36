"""What the `ibnetdiscover` reader and writer promise, one test per promise."""

import dataclasses
import gzip
import json

import numpy as np
import pytest

from fabric import ModelError, Network, readers
from fabric.network import Blueprint
from fabric.topologies._uniform import plug
from tests.readers.dumps import CABLES, NODES, dump, ident


def whats(reading):
    return [entry["what"] for entry in reading.contradicted]


def cable_set(network, name=None):
    """Return the cables as {({(end, end)}, capacity): how many}, ends by name."""
    labels = network.labels
    call = name or (lambda node: labels.names[node])
    found = {}
    for link in range(0, network.n_links, 2):
        ends = frozenset((call(int(labels.src[link])), call(int(labels.dst[link]))))
        key = (ends, float(network.capacity[link]))
        found[key] = found.get(key, 0) + 1
    return found


@pytest.fixture(scope="module")
def ndr(shared):
    return readers.read(shared / "samples/topology/ib/ndr_40sw_582ca.ibnetdiscover.gz")


def test_the_real_dump_counts_as_the_text_does(ndr):
    found = readers.summary(ndr)
    assert found["format"] == "ibnetdiscover"
    assert found["confidence"] == 1.0
    assert found["nodes"] == {"leaf": 31, "spine": 9, "nic": 542}
    assert found["cables"] == {"leaf-spine": 532, "host": 542}
    assert found["records"] == 1114 == 532 + 542 + 40
    assert found["switches"] == 40
    assert found["ignored"] == [{"what": "aggregation node", "count": 40}]
    assert found["contradicted"] == []
    assert found["warnings"] == []
    assert found["fingerprint"].startswith("sha256:")


def test_the_real_dump_runs_at_400_gigabit_each_way(ndr):
    assert ndr.network.n_links == 2 * 1074
    np.testing.assert_array_equal(ndr.network.capacity, 50e9)
    assert ndr.notes["cables_by_speed"] == {"4xNDR": 1074}


def test_aggregation_nodes_are_no_endpoints(ndr):
    assert len(ndr.network.hosts) == 542
    assert not any("Aggregation" in name for name in ndr.network.labels.names)


def test_equal_factory_names_stay_separate_nodes(ndr):
    labels = ndr.network.labels
    assert sum(name.startswith("MT4129") for name in labels.names) == 69
    assert len(set(labels.ids)) == labels.n_nodes == 582
    links = [labels.link_name(link) for link in range(ndr.network.n_links)]
    assert len(set(links)) == len(links)


def test_the_real_dump_has_one_host_with_swapped_rails(ndr):
    hosts = readers.summary(ndr)["hosts"]
    assert hosts["four_rail"] == 109
    assert hosts["unnamed_nics"] == 69
    assert hosts["nics_per_host"] == {"4": 109, "3": 11, "2": 2}
    assert hosts["swapped_rails"] == [
        {
            "host": "b08-p1-dgx-08-c01",
            "rails": ["HCA-5", "HCA-6"],
            "found": ["B09-P1-IBLEAF-04-08", "B09-P1-IBLEAF-03-08"],
            "expected": ["B09-P1-IBLEAF-03-08", "B09-P1-IBLEAF-04-08"],
        }
    ]


def test_managed_switches_are_called_by_their_hostname(ndr):
    labels = ndr.network.labels
    node = labels.node("A09-P1-IBLEAF-04-04")
    assert labels.ids[node] == "S-2c5eab0300b87b40"
    assert labels.kinds[labels.kind_of[node]] == "leaf"
    nic = labels.node("a08-p1-dgx-04-c01 mlx5_5")
    assert labels.tags["leaf"][nic] == node
    assert (labels.tags["host"][nic], labels.tags["hca"][nic]) == ("a08-p1-dgx-04-c01", "mlx5_5")


def test_the_summary_of_the_real_dump_is_plain_json(ndr):
    assert json.loads(json.dumps(readers.summary(ndr)))["schema"] == "fabric.topo/1"


def test_the_real_dump_survives_a_round_trip(ndr, tmp_path):
    again = readers.read(readers.write_ibnetdiscover(ndr.network, tmp_path / "again.gz"))
    one, other = ndr.network.labels, again.network.labels
    assert list(other.ids) == list(one.ids)
    assert list(other.names) == list(one.names)
    assert cable_set(again.network, other.ids.__getitem__) == cable_set(
        ndr.network, one.ids.__getitem__
    )
    assert again.contradicted == []


def test_director_parts_keep_their_place_and_flags_are_ignored(shared):
    reading = readers.read(shared / "samples/topology/ib/hdr_director_flags.ibnetdiscover")
    found = readers.summary(reading)
    assert found["nodes"] == {"leaf": 5, "spine": 2, "core": 1, "nic": 10}
    assert found["cables"] == {"leaf-spine": 5, "spine-core": 2, "host": 10}
    assert found["records"] == 18
    assert found["ignored"] == [{"what": "aggregation node", "count": 1}]
    assert sorted(whats(reading)) == [
        "cable listed from one end only",
        "peer without a record of its own",
    ]
    assert "site3-0101-0908-01ib1-A/L01/U1" in reading.network.labels.names
    np.testing.assert_array_equal(reading.network.capacity, 25e9)


def test_a_simulated_fabric_reads_as_built(shared):
    reading = readers.read(shared / "samples/topology/ib/small_2x2.ibnetdiscover")
    found = readers.summary(reading)
    assert found["nodes"] == {"leaf": 2, "spine": 2, "nic": 4}
    assert found["cables"] == {"leaf-spine": 8, "host": 4}
    assert found["uniform_design"]["missing"] == 0
    np.testing.assert_array_equal(reading.network.capacity, 1e9)
    assert list(reading.network.labels.tags["host"][reading.network.hosts]) == [
        "node4", "node3", "node2", "node1",
    ]  # fmt: skip


def test_an_adapter_without_cables_is_a_network_without_links(shared):
    reading = readers.read(shared / "samples/topology/ib/not_a_fabric.ibnetdiscover")
    assert (reading.network.n_nodes, reading.network.n_links, reading.records) == (1, 0, 0)
    assert reading.warnings == ["The file lists no cable: it is not a whole fabric."]
    assert readers.summary(reading)["uniform_design"] == {"none": "It has no leaf and no spine."}


@pytest.mark.parametrize(
    ("name", "looks"),
    [
        ("small_2x2.lst", r"\.lst file"),
        ("ndr_40sw_582ca.lst.gz", r"\.lst file"),
        ("small_2x2.iblinkinfo", "iblinkinfo output"),
        ("small_2x2.ibnetdiscover_p", "ibnetdiscover -p output"),
        ("small_2x2.lfts", "OpenSM forwarding tables"),
        ("small_2x2.fdbs", "OpenSM forwarding tables"),
        ("switch_to_host.ndt.gz", "UFM cable plan"),
    ],
)
def test_other_files_are_refused_by_what_they_look_like(shared, name, looks):
    with pytest.raises(ModelError, match=rf"looks like .*{looks}.*Known formats: 'ibnetdiscover'"):
        readers.read(shared / "samples/topology/ib" / name)


def test_roles_tags_and_parallel_cables_come_from_the_wiring():
    network = readers.read(dump(NODES, CABLES)).network
    labels = network.labels
    kind = {labels.names[i]: labels.kinds[labels.kind_of[i]] for i in range(labels.n_nodes)}
    assert (kind["leaf-1"], kind["spine-1"], kind["node1 HCA-1"]) == ("leaf", "spine", "nic")
    assert network.n_links == 16
    assert cable_set(network)[frozenset({"leaf-1", "spine-1"}), 50e9] == 2
    assert labels.tags["host"].tolist()[-4:] == ["node1", "node1", "", ""]
    assert {labels.ids[n] for n in network.hosts} == {ident(f"H{i}") for i in (11, 12, 13, 14)}
    up = labels.is_tier("leaf-spine") & (np.arange(16) % 2 == 0)
    assert set(labels.src[up]) == {labels.node("leaf-1"), labels.node("leaf-2")}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: text.replace("\n", "\r\n").encode(), id="crlf"),
        pytest.param(lambda text: b"\xef\xbb\xbf" + text.encode(), id="byte-order-mark"),
        pytest.param(lambda text: text.encode("utf-16"), id="utf-16"),
        pytest.param(lambda text: text.rstrip("\n").encode(), id="no-final-newline"),
        pytest.param(lambda text: gzip.compress(text.encode()), id="gzip"),
        pytest.param(lambda text: text.replace("4xNDR", "4xNDR s=4 w=2 v=4 e=4").encode(), id="-f"),
        pytest.param(lambda text: text.replace("\t", "    ").encode(), id="spaces"),
        pytest.param(lambda text: text.split("\n", 3)[3].encode(), id="no-header"),
    ],
)
def test_the_same_fabric_in_another_dress_reads_the_same(tmp_path, change):
    text = dump(NODES, CABLES)
    file = tmp_path / "a file without an ending"
    file.write_bytes(change(text))
    plain, dressed = readers.read(text), readers.read(file)
    assert dressed.contradicted == []
    assert dressed.warnings == []
    assert cable_set(dressed.network) == cable_set(plain.network)
    assert list(dressed.network.labels.ids) == list(plain.network.labels.ids)


def test_the_fingerprint_is_of_the_unpacked_bytes(tmp_path):
    text = dump(NODES, CABLES).encode()
    (tmp_path / "a").write_bytes(text)
    (tmp_path / "b.gz").write_bytes(gzip.compress(text))
    prints = {readers.read(tmp_path / name).fingerprint for name in ("a", "b.gz")}
    assert len(prints) == 1


def test_a_split_cable_has_half_the_rate():
    cables = [(a, i, b, j, "2xNDR" if b == "H11" else t) for a, i, b, j, t in CABLES]
    network = readers.read(dump(NODES, cables)).network
    assert cable_set(network)[frozenset({"node1 HCA-1", "leaf-1"}), 25e9] == 1


def test_a_cable_of_one_end_is_kept_and_reported():
    reading = readers.read(dump(NODES, CABLES, silent=[("S3", 4)]))
    assert reading.records == 8
    assert whats(reading) == ["cable listed from one end only"]
    assert "spine-1" in reading.contradicted[0]["item"]


def test_a_peer_without_a_record_becomes_a_node():
    reading = readers.read(dump(NODES, [*CABLES, ("S1", 9, "H77", 1, "4xNDR")]))
    assert whats(reading) == ["peer without a record of its own", "cable listed from one end only"]
    labels = reading.network.labels
    node = labels.node(ident("H77"))
    assert (labels.names[node], labels.tags["host"][node]) == ("gone HCA-1", "gone")


def test_ends_that_disagree_on_the_speed_get_the_slower():
    text = dump(NODES, CABLES)
    lines = text.split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith("[33]"))
    lines[at] = lines[at].replace("4xNDR", "4xHDR")
    reading = readers.read("\n".join(lines))
    assert whats(reading) == ["ends disagree on the speed"]
    assert reading.contradicted[0]["tokens"] == ["4xHDR", "4xNDR"]
    assert reading.contradicted[0]["line"] == at + 1
    assert min(reading.network.capacity) == 25e9


def test_a_port_in_two_cables_keeps_the_one_that_both_ends_list():
    cables = [("S1", 1, "H14", 2, "4xNDR"), *CABLES]
    # The wrong cable is listed first, so the order of the file does not decide.
    reading = readers.read(dump(NODES, cables, silent=[("H14", 2)]))
    assert whats(reading) == ["port in two cables"]
    assert reading.records == 8
    assert cable_set(reading.network) == cable_set(readers.read(dump(NODES, CABLES)).network)


def test_a_node_listed_twice_is_one_node():
    text = dump(NODES, CABLES)
    reading = readers.read(text + text)
    assert reading.network.n_nodes == len(NODES)
    assert reading.records == 8
    assert set(whats(reading)) == {"node listed twice"}
    assert len(reading.contradicted) == len(NODES)


def test_lines_not_understood_are_counted_with_their_numbers():
    reading = readers.read("what is this\n" + dump(NODES, CABLES))
    assert reading.contradicted == [{"what": "lines not understood", "count": 1, "lines": [1]}]


def test_switches_of_one_name_keep_their_whole_description():
    nodes = NODES | {"S1": "MF0;sw:MQM9700/U1", "S2": "MF0;sw:MQM9790/U1"}
    names = list(readers.read(dump(nodes, CABLES)).network.labels.names)
    assert names[:3] == ["MF0;sw:MQM9700/U1", "MF0;sw:MQM9790/U1", "spine-1"]


def test_an_aggregation_node_is_ignored_and_its_record_counted():
    nodes = NODES | {"H90": "Mellanox Technologies Aggregation Node"}
    reading = readers.read(dump(nodes, [*CABLES, ("S3", 65, "H90", 1, "4xNDR")]))
    assert reading.records == 9
    assert reading.network.n_links == 16
    assert reading.ignored == [{"what": "aggregation node", "count": 1}]
    assert readers.summary(reading)["nodes"]["spine"] == 1


def test_a_router_forwards_and_is_no_host():
    nodes = NODES | {"R5": "router-1"}
    network = readers.read(dump(nodes, [*CABLES, ("S3", 9, "R5", 1, "4xNDR")])).network
    node = network.labels.node("router-1")
    assert network.labels.kinds[network.labels.kind_of[node]] == "router"
    assert node not in network.hosts
    assert network.labels.forwards[node]
    assert "spine-router" in network.labels.tiers
    assert readers.summary(network)["switches"] == 3


def test_three_tiers_are_named_by_their_distance_from_hosts():
    nodes = NODES | {"S9": "MF0;core-1:MQM9700/U1"}
    found = readers.summary(readers.read(dump(nodes, [*CABLES, ("S3", 9, "S9", 1, "4xNDR")])))
    assert found["nodes"] == {"leaf": 2, "spine": 1, "core": 1, "nic": 4}
    assert found["cables"] == {"leaf-spine": 4, "spine-core": 1, "host": 4}


def test_a_fabric_without_lids_says_so():
    assert "no LID" in readers.read(dump(NODES, CABLES, lid=65535)).warnings[0]


def test_a_lone_slow_cable_is_reported_as_degraded():
    cables = [(a, i, b, j, "4xHDR" if i == 34 and a == "S1" else t) for a, i, b, j, t in CABLES]
    (warning,) = readers.read(dump(NODES, cables)).warnings
    assert "1 of 4 cables" in warning
    assert "degraded" in warning
    assert "leaf-1" in warning


def test_an_unknown_speed_names_its_line():
    text = dump(NODES, CABLES)
    line = next(i for i, row in enumerate(text.split("\n"), 1) if row.startswith("[1]"))
    with pytest.raises(ModelError, match=rf"unknown speed '4xZDR', the first is line {line}\."):
        readers.read(text.replace("4xNDR", "4xZDR"))


def test_a_missing_speed_names_its_line():
    with pytest.raises(ModelError, match="16 cable lines have no speed"):
        readers.read(dump(NODES, CABLES).replace("4xNDR", ""))


def test_hosts_can_be_told_by_another_rule():
    nodes = NODES | {"H13": "rack7/blade3/ib0"}
    labels = readers.read(
        dump(nodes, CABLES), host_pattern=r"(?P<host>\w+/\w+)/(?P<nic>\w+)"
    ).network.labels
    node = labels.node(ident("H13"))
    assert (labels.tags["host"][node], labels.tags["hca"][node]) == ("rack7/blade3", "ib0")
    with pytest.raises(ModelError, match="needs a group"):
        readers.read(dump(nodes, CABLES), host_pattern=".*")
    with pytest.raises(ModelError, match="no regular expression"):
        readers.read(dump(nodes, CABLES), host_pattern="(")


def rail_dump(orders):
    """Return hosts of two adapters each; 1: adapters swapped."""
    nodes = {"S1": "MF0;left:M/U1", "S2": "MF0;right:M/U1"}
    cables = []
    for host, swapped in enumerate(orders):
        for rail in (0, 1):
            nic = f"H{100 + 2 * host + rail}"
            nodes[nic] = f"node{host} mlx5_{rail + 9}"
            cables.append((("S1", "S2")[rail ^ swapped], host + 1, nic, 1, "4xNDR"))
    return readers.read(dump(nodes, cables)).network


def test_a_swapped_host_is_found_against_a_majority_of_three():
    (found,) = readers.swapped_rails(rail_dump([0, 0, 1, 0]))
    # mlx5_10 comes after mlx5_9 although it sorts before it as text.
    assert found == {
        "host": "node2",
        "rails": ["mlx5_9", "mlx5_10"],
        "found": ["right", "left"],
        "expected": ["left", "right"],
    }


@pytest.mark.parametrize("orders", [[0, 0, 1], [0, 0, 0, 1, 1, 1], [0, 1]])
def test_without_a_majority_of_three_no_host_is_called_swapped(orders):
    assert readers.swapped_rails(rail_dump(orders)) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b" \n\n", "is empty", id="blank"),
        pytest.param(gzip.compress(b"x" * 4000)[:20], "ends too early", id="cut-gzip"),
        pytest.param(gzip.compress(b"x" * 40)[:-8] + b"12345678", "damaged gzip", id="bad-gzip"),
        pytest.param(b"\x1f\x8bjunk and more junk", "damaged gzip", id="fake-gzip"),
        pytest.param(b"\x7fELF\0\1\2\3" * 9, "is binary", id="binary"),
        pytest.param(b"Dear Sir,\nno fabric here.", "begins with 'Dear Sir,'", id="prose"),
        pytest.param(b'{"a": 1}', "looks like JSON", id="json"),
        pytest.param(b"#\n# Topology file: generated\n#\n", "holds no fabric", id="no-node"),
    ],
)
def test_a_file_that_is_no_fabric_is_one_clear_error(tmp_path, data, message):
    file = tmp_path / "thing.ibnetdiscover"
    file.write_bytes(data)
    with pytest.raises(ModelError, match=message) as caught:
        readers.read(file)
    assert "thing.ibnetdiscover" in str(caught.value)


def test_a_missing_file_a_folder_and_wrong_words_are_clear_errors(tmp_path):
    with pytest.raises(ModelError, match="There is no file"):
        readers.read(tmp_path / "absent")
    with pytest.raises(ModelError, match="is a folder"):
        readers.read(tmp_path)
    with pytest.raises(ModelError, match=r"no such format\. Did you mean 'ibnetdiscover'"):
        readers.read(dump(NODES, CABLES), format="ibnetdiscovery")
    with pytest.raises(ModelError, match=r"has no option `host_patern`\. Did you mean"):
        readers.read(dump(NODES, CABLES), host_patern="x")


def rails():
    """Return 3 servers of 2 rails, 2 leaves, 2 spines, 2 parallel cables; one leaf at half rate."""
    plan = Blueprint()
    server, rail = np.arange(3)[:, None], np.arange(2)
    nic = plan.nodes("nic", "server{}-nic{}", (3, 2), server=server, rail=rail, leaf=rail)
    leaf = plan.nodes("leaf", "unit0-leaf{}", (2,), rail=rail)
    spine = plan.nodes("spine", "spine{}", (2,))
    plan.cables("host", nic, leaf, 50e9)
    plan.cables("leaf-spine", leaf[:, None], spine, np.array([[50e9], [25e9]]), parallel=2)
    return plan.network("three servers")


def test_a_built_network_survives_a_round_trip(tmp_path):
    network = rails()
    reading = readers.read(readers.write_ibnetdiscover(network, tmp_path / "rails.txt"))
    adapter = lambda name: name.replace("-nic0", " HCA-1").replace("-nic1", " HCA-2")
    assert cable_set(reading.network) == cable_set(
        network, lambda node: adapter(network.labels.names[node])
    )
    assert reading.contradicted == []
    assert reading.warnings == []
    found = readers.summary(reading)
    assert found["nodes"] == readers.summary(network)["nodes"]
    assert found["cables"] == readers.summary(network)["cables"]
    assert found["hosts"]["nics_per_host"] == {"2": 3}


def test_failed_cables_are_not_written(tmp_path):
    network = rails().without(nodes=["spine1"])
    reading = readers.read(readers.write_ibnetdiscover(network, tmp_path / "rails.txt"))
    assert readers.summary(reading)["cables"] == {"leaf-spine": 4, "host": 6}
    assert readers.summary(network)["failed_cables"] == 4


@pytest.mark.parametrize("name", ["rails.txt", "rails.gz"])
def test_the_same_network_writes_the_same_bytes_and_leaves_no_partial_file(tmp_path, name):
    first = readers.write_ibnetdiscover(rails(), tmp_path / name).read_bytes()
    assert readers.write_ibnetdiscover(rails(), tmp_path / name).read_bytes() == first
    # The four bytes of a gzip header that otherwise hold the time of writing.
    assert first[:2] != b"\x1f\x8b" or first[4:8] == bytes(4)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_what_infiniband_cannot_say_is_refused_and_nothing_written(tmp_path):
    network = rails()
    file = tmp_path / "rails.txt"
    with pytest.raises(ModelError, match=r"no speed for '49\.00 GB/s'"):
        readers.write_ibnetdiscover(network.with_capacity(np.full(network.n_links, 49e9)), file)
    uneven = np.array(network.capacity)
    uneven[0] = 25e9
    with pytest.raises(ModelError, match=r"1 cables have another capacity in each direction"):
        readers.write_ibnetdiscover(network.with_capacity(uneven), file)
    with pytest.raises(ModelError, match=r"1 cables have no live link back"):
        readers.write_ibnetdiscover(network.with_alive(np.arange(network.n_links) > 0), file)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ModelError, match="cannot be written"):
        readers.write_ibnetdiscover(network, tmp_path / "absent" / "rails.txt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ModelError, match="cannot be written"):
        readers.write_ibnetdiscover(network, tmp_path / "folder")
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


def test_new_cables_get_free_ports_and_known_ports_stay(tmp_path):
    network = readers.read(dump(NODES, CABLES)).network
    leaf, spine = network.labels.node("leaf-1"), network.labels.node("spine-1")
    more = plug(network, [(leaf, spine, 2)], "400Gb/s")
    again = readers.read(readers.write_ibnetdiscover(more, tmp_path / "more"))
    assert again.contradicted == []
    names = {again.network.link_name(i) for i in range(again.network.n_links)}
    assert names - {network.link_name(i) for i in range(network.n_links)} == {
        "leaf-1[3]->spine-1[5]", "spine-1[5]->leaf-1[3]",
        "leaf-1[4]->spine-1[6]", "spine-1[6]->leaf-1[4]",
    }  # fmt: skip


def test_a_port_with_two_live_cables_is_not_written(tmp_path):
    network = readers.read(dump(NODES, CABLES)).network
    labels = network.labels
    ports = labels.src_port.copy()
    ports[ports == 34] = 33
    twice = Network(network.capacity, labels=dataclasses.replace(labels, src_port=ports))
    with pytest.raises(ModelError, match=r"2 ports hold two live cables: 'leaf-1\[33\]'"):
        readers.write_ibnetdiscover(twice, tmp_path / "twice")


def test_a_managed_switch_says_its_model(shared):
    folder = shared / "samples" / "topology" / "ib"
    models = lambda name: set(readers.read(folder / name).network.labels.tags["model"].tolist())
    assert models("ndr_40sw_582ca.ibnetdiscover.gz") == {"", "MQM9701"}
    assert models("hdr_director_flags.ibnetdiscover") == {"", "MCS8500 ASIC", "MQM8700"}
