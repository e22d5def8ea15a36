"""Our fabrics, routed by the real OpenSM, load every link as its tables say hop by hop."""

import re
from collections import Counter

import numpy as np
import pytest

from fabric import readers, routing, topologies, traffic
from fabric._errors import UnreachableError
from tests.oracle.opensm import needs_tools, simulated

pytestmark = needs_tools


def two_tiers():
    return topologies.leaf_spine(leaves=4, spines=3, hosts_per_leaf=4, cables_per_pair=2)


def three_tiers():
    return topologies.fat_tree(k=4)


def three_tiers_with_failures(failed=(0, 40)):
    net = three_tiers()
    between = np.flatnonzero(~net.labels.is_tier(net.labels.tiers[0]))
    return net.without(links=between[list(failed)])


def rails():
    return topologies.rail_optimized(servers=8, rails=4, radix=8)


FABRICS = (two_tiers, three_tiers, three_tiers_with_failures, rails)


def walked(dump, fabric):
    """Return how often all pairs cross (node GUID, port), and the pairs without a way.

    In plain Python from the text of `opensm-lfts.dump` and of `ibnetdiscover` alone.
    """
    table, port_of, at = {}, {}, ""
    for line in dump.splitlines():
        if head := re.search(r"of switch .*guid 0x(\w+)", line):
            at = head[1]
        elif entry := re.match(r"0x(\w+) (\d+)\s", line):
            table[at, int(entry[1], 16)] = int(entry[2])
    peer, lids, node = {}, {}, ""
    for line in fabric.splitlines():
        if record := re.match(r'(?:Switch|Ca)\s+\d+ "([SH])-(\w+)"', line):
            kind, node = record[1], record[2]
        elif cable := re.match(r'\[(\d+)\].*?"[SH]-(\w+)"\[\d+\]', line):
            peer[node, int(cable[1])] = cable[2]
            if kind == "H":
                port_of[node] = int(cable[1])
                lids[node] = int(re.search(r"# lid (\d+)", line)[1])
    crossed, lost = Counter(), set()
    for src in lids:
        for dst, lid in lids.items():
            if src == dst:
                continue
            port, here, way = port_of[src], src, []
            while port is not None and here != dst:
                way.append((here, port))
                here = peer[here, port]
                port = table.get((here, lid))
            crossed.update(way)
            if here != dst:
                lost.add((src, dst))
    return crossed, lost


def loads(network, routes):
    labels = network.labels
    count = np.bincount(routes.hop_bundle, minlength=network.n_links)
    ends = zip(labels.src, labels.src_port, count, strict=True)
    return {(labels.ids[node][2:], int(port)): int(n) for node, port, n in ends if n}


@pytest.mark.parametrize("make", FABRICS)
@pytest.mark.parametrize("engine", ["minhop", "updn"])
def test_loads_of_all_pairs_equal_a_walk_by_hand_of_the_same_tables(make, engine, tmp_path):
    with simulated(make(), tmp_path) as subnet:
        subnet.route(engine)
        fabric = subnet.run("ibnetdiscover")
        # Up and then down not every switch can be asked by its LID, once cables have failed.
        lids_of_switches = re.findall(r" port 0 lid (\d+)", fabric) if engine == "minhop" else []
        each = "".join(subnet.run("ibroute", lid) for lid in lids_of_switches)
        net = readers.ibnetdiscover(fabric).network
        flows = traffic.all_to_all(net.hosts, size=1.0)
        dump = (tmp_path / "opensm-lfts.dump").read_text()
        reading = readers.lfts(dump, fabric)
        routes = routing.forwarding_tables(net, flows, reading.tables)
        expected, lost = walked(dump, fabric)
        assert not lost
        assert loads(net, routes) == expected
        assert sum(expected.values()) == routes.n_hops

        # Every other text of the same tables gives the same routes.
        for text, lids in (
            (subnet.run("dump_fts"), fabric),
            *([(each, fabric)] if each else []),
            ((tmp_path / "opensm.fdbs").read_text(), fabric),
            (dump, (tmp_path / "opensm-subnet.lst").read_text()),
        ):
            again = routing.forwarding_tables(net, flows, readers.lfts(text, lids).tables)
            np.testing.assert_array_equal(again.hop_bundle, routes.hop_bundle)

        # And `ibtracert` goes the same way.
        labels = net.labels
        for flow in (0, flows.n_flows // 2, flows.n_flows - 1):
            ends = [reading.tables.lids[labels.ids[end[flow]]][0] for end in (flows.src, flows.dst)]
            links = routes.hop_bundle[routes.hop_flow == flow]
            ours = [
                (int(labels.ids[labels.src[k]][2:], 16), int(labels.src_port[k])) for k in links
            ]
            assert [(int(guid, 16), port) for guid, port in subnet.trace(*ends)] == ours


def test_with_two_lids_per_port_each_queue_pair_takes_the_way_of_its_own_lid(tmp_path):
    with simulated(two_tiers(), tmp_path) as subnet:
        subnet.route("minhop", lmc=1)
        fabric = subnet.run("ibnetdiscover")
        dump = (tmp_path / "opensm-lfts.dump").read_text()
    net = readers.ibnetdiscover(fabric).network
    tables = readers.lfts(dump, fabric).tables
    assert {len(own) for own in tables.lids.values()} == {2}
    flows = traffic.all_to_all(net.hosts, size=1.0)
    both = routing.forwarding_tables(net, flows, tables, queue_pairs=2)
    for q in range(2):
        own = {node: (lids[q],) for node, lids in tables.lids.items()}
        one = routing.ForwardingTables(tables.switches, tables.out_port, own)
        alone = routing.forwarding_tables(net, flows, one)
        mine = both.hop_flow % 2 == q
        np.testing.assert_array_equal(both.hop_bundle[mine], alone.hop_bundle)
    assert np.any(
        both.hop_bundle[both.hop_flow % 2 == 0] != both.hop_bundle[both.hop_flow % 2 == 1]
    )


def test_loads_on_the_real_fabric_equal_the_walk_by_hand(shared, tmp_path):
    path = shared / "samples" / "topology" / "ib" / "ndr_40sw_582ca.ibnetdiscover.gz"
    with simulated(readers.read(path).network, tmp_path) as subnet:
        subnet.route("minhop")
        fabric = subnet.run("ibnetdiscover")
    net = readers.ibnetdiscover(fabric).network
    assert len(net.hosts) == 542
    dump = (tmp_path / "opensm-lfts.dump").read_text()
    flows = traffic.all_to_all(net.hosts, size=1.0)
    routes = routing.forwarding_tables(net, flows, readers.lfts(dump, fabric).tables)
    assert (loads(net, routes), set()) == walked(dump, fabric)


def test_pairs_that_up_down_routing_cannot_serve_are_the_flows_of_the_error(tmp_path):
    with simulated(three_tiers_with_failures((0, 9, 26)), tmp_path) as subnet:
        subnet.route("updn")
        fabric = subnet.run("ibnetdiscover")
    net = readers.ibnetdiscover(fabric).network
    dump = (tmp_path / "opensm-lfts.dump").read_text()
    _, lost = walked(dump, fabric)
    assert lost
    flows = traffic.all_to_all(net.hosts, size=1.0)
    with pytest.raises(UnreachableError, match="no entry for their LID") as caught:
        routing.forwarding_tables(net, flows, readers.lfts(dump, fabric).tables)
    guid = lambda node: net.labels.ids[node][2:]
    assert {(guid(flows.src[f]), guid(flows.dst[f])) for f in caught.value.flows} == lost
