"""What `forwarding_tables` promises: flows go where the tables send them, or it says why not."""

import dataclasses
import re

import numpy as np
import pytest

import fabric as fb
from fabric import hardware, topologies
from fabric._errors import ModelError, UnreachableError
from fabric.routing import ForwardingTables, forwarding_tables


def ported(net):
    """Return a network with ports counted up at every node, in the order of the links."""
    labels, n = net.labels, net.n_links
    port = np.zeros(n, np.int32)
    for node in range(net.n_nodes):
        out = np.flatnonzero(labels.src == node)
        port[out] = np.arange(1, len(out) + 1)
    back = np.arange(n) ^ 1  # builders lay out both directions of a cable side by side
    labels = dataclasses.replace(labels, src_port=port, dst_port=port[back])
    return fb.Network(net.capacity, net.latency, net.alive, net.routing_cost, labels=labels)


def drawn(net, seed, paths=1):
    """Return tables that lead to every LID over shortest ways, a random cable at each switch."""
    rng, labels = np.random.default_rng(seed), net.labels
    hosts = net.hosts.tolist()
    lids = {labels.names[host]: tuple(range(1 + i, 1 + i + paths)) for i, host in
            zip(range(0, paths * len(hosts), paths), hosts, strict=True)}  # fmt: skip
    ports = {
        name: {} for name, forwards in zip(labels.names, labels.forwards, strict=True) if forwards
    }
    for host in hosts:
        far = {host: 0}
        for near in (ring := [host]):
            for link in np.flatnonzero((labels.dst == near) & np.asarray(net.alive)):
                node = int(labels.src[link])
                if node not in far and labels.forwards[node]:
                    far[node] = far[near] + 1
                    ring.append(node)
        for node in far.keys() - {host}:
            ways = [
                int(labels.src_port[link])
                for link in np.flatnonzero((labels.src == node) & np.asarray(net.alive))
                if far.get(int(labels.dst[link]), 99) == far[node] - 1
            ]
            for lid in lids[labels.names[host]]:
                ports[labels.names[node]][lid] = int(rng.choice(ways))
    return ports, lids


def followed(net, ports, lids, src, dst, path=0):
    """Return the links of one flow, one at a time."""
    labels = net.labels
    lid, at = lids[labels.names[dst]][path], src
    links = [int(np.flatnonzero((labels.src == src) & np.asarray(net.alive))[0])]
    while (at := int(labels.dst[links[-1]])) != dst:
        port = ports[labels.names[at]][lid]
        links.append(int(np.flatnonzero((labels.src == at) & (labels.src_port == port))[0]))
    return links


FABRICS = {
    "two tiers": topologies.leaf_spine(leaves=3, spines=2, hosts_per_leaf=3, cables_per_pair=2),
    "three tiers": topologies.fat_tree(k=4),
}
NET = ported(FABRICS["two tiers"])
PORTS, LIDS = drawn(NET, 0)
PAIR = fb.Flows([NET.labels.node("leaf0-host0")], [NET.labels.node("leaf1-host0")])


def tables_with(switch, lid, port):
    """Return the tables of the pair's fabric with one entry changed, or taken out."""
    row = {k: v for k, v in PORTS[switch].items() if k != lid}
    return ForwardingTables.from_ports(
        PORTS | {switch: row | ({} if port is None else {lid: port})}, LIDS, source="a dump"
    )


def first_hops():
    """Return the LID of the pair's destination, and the leaf's port and the spine on its way."""
    (lid,) = LIDS["leaf1-host0"]
    links = followed(NET, PORTS, LIDS, int(PAIR.src[0]), int(PAIR.dst[0]))
    return lid, int(NET.labels.src_port[links[1]]), NET.labels.names[int(NET.labels.dst[links[1]])]


def refused(tables, net=NET, flows=PAIR):
    with pytest.raises(UnreachableError) as caught:
        forwarding_tables(net, flows, tables)
    assert caught.value.flows == (0,)
    return str(caught.value)


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("seed", range(3))
def test_every_flow_goes_hop_by_hop_as_the_tables_say(fabric, seed):
    whole = ported(FABRICS[fabric])
    net = whole.without(links=[whole.n_links - 1])
    ports, lids = drawn(net, seed)
    flows = fb.traffic.all_to_all(net.hosts)
    routes = forwarding_tables(net, flows, ForwardingTables.from_ports(ports, lids))
    for flow, ends in enumerate(zip(flows.src.tolist(), flows.dst.tolist(), strict=True)):
        links = routes.hop_bundle[routes.hop_flow == flow].tolist()
        assert links == followed(net, ports, lids, *ends)


def test_weights_caps_and_the_rule_travel_into_the_routes():
    flows = fb.Flows(NET.hosts[:2], NET.hosts[4:6], weight=[1.0, 3.0], cap=[2e9, np.inf])
    tables = ForwardingTables.from_ports(PORTS, LIDS, source="a dump")
    routes = forwarding_tables(NET, flows, tables, queue_pairs=2)
    assert routes.weight.tolist() == [0.5, 0.5, 1.5, 1.5]
    assert routes.cap.tolist() == [1e9, 1e9, np.inf, np.inf]
    assert routes.flow_of.tolist() == [0, 0, 1, 1]
    assert routes.rule == {"name": "forwarding_tables", "source": "a dump", "queue_pairs": 2}


def test_queue_pair_q_goes_to_lid_q_of_its_destination_round_and_round():
    net = ported(FABRICS["three tiers"])
    ports, lids = drawn(net, 5, paths=2)
    flows = fb.traffic.permutation(net.hosts, seed=1)
    tables = ForwardingTables.from_ports(ports, lids)
    routes = forwarding_tables(net, flows, tables, queue_pairs=3)
    for row in range(routes.n_flows):
        ends = int(flows.src[row // 3]), int(flows.dst[row // 3])
        links = routes.hop_bundle[routes.hop_flow == row].tolist()
        assert links == followed(net, ports, lids, *ends, path=row % 3 % 2)


def test_queue_pairs_leave_by_the_live_ports_of_their_source_in_turn():
    plan = fb.network.Blueprint()
    leaf, host = plan.nodes("leaf", "leaf{}", (3,)), plan.nodes("host", "host{}", (2,))
    plan.cables("host", host[:1], leaf, 1e9)
    plan.cables("host", host[1:], leaf, 1e9)
    net = ported(plan.network("two hosts with three ports"))
    tables = ForwardingTables.from_ports({f"leaf{i}": {7: 2} for i in range(3)}, {"host1": 7})
    flows = fb.Flows(host[:1], host[1:])
    routes = forwarding_tables(net, flows, tables, queue_pairs=3)
    first = routes.hop_bundle[::2]
    assert [net.labels.names[v] for v in net.labels.dst[first]] == ["leaf0", "leaf1", "leaf2"]
    routes = forwarding_tables(net.without(nodes=["leaf1"]), flows, tables, queue_pairs=3)
    first = routes.hop_bundle[::2]
    assert [net.labels.names[v] for v in net.labels.dst[first]] == ["leaf0", "leaf2", "leaf0"]


def test_between_servers_the_tables_lead_from_adapter_to_adapter():
    server = hardware.server("dgx-h100")
    fabric = ported(topologies.rail_optimized(servers=4, rails=8, radix=16, leaf_down=4, leaf_up=2,
                                              spines=2, servers_per_unit=2))  # fmt: skip
    ports, lids = drawn(fabric, 2)
    tables = ForwardingTables.from_ports(ports, lids)
    net = topologies.attach_servers(fabric, server, fabric.hosts.reshape(4, 8))
    flows = fb.Flows(net.hosts[[0, 0, 9]], net.hosts[[31, 5, 20]])
    routes = forwarding_tables(net, flows, tables)
    inside = np.isin(net.labels.tiers, topologies.INSIDE_TIERS)[net.labels.tier_of]
    shift = net.n_links - fabric.n_links  # what is inside comes first
    nic = net.labels.tags["nic"]
    to_fabric = lambda gpu: fabric.labels.node(net.labels.names[nic[gpu]])
    for flow, (a, b) in enumerate([(0, 31), (0, 5), (9, 20)]):
        bundles = routes.hop_bundle[routes.hop_flow == flow]
        links = [routes.part_link[routes.part_bundle == bundle] for bundle in bundles]
        outside = [int(part[0]) - shift for part in links if not inside[part].any()]
        if flow == 1:  # within a server
            assert outside == []
        else:
            ends = to_fabric(net.hosts[a]), to_fabric(net.hosts[b])
            assert outside == followed(fabric, ports, lids, *ends)


def test_a_circle_is_named():
    lid, _, spine = first_hops()
    leaf0 = NET.labels.node("leaf0")
    back = NET.labels.src_port[
        (NET.labels.src == NET.labels.node(spine)) & (NET.labels.dst == leaf0)
    ]
    said = refused(tables_with(spine, lid, int(back[0])))
    assert re.search(
        rf"1 go round in a circle: 'leaf0-host0 -> leaf1-host0 by "
        rf"(leaf0 -> {spine} -> leaf0|{spine} -> leaf0 -> {spine})'", said
    )  # fmt: skip


def test_a_long_circle_is_found_whatever_leads_into_it():
    # host0 - s0 - s1 - ... - s9 - host1, and s9 sends back to s3 over a cable of their own.
    plan = fb.network.Blueprint()
    switch, host = plan.nodes("switch", "s{}", (10,)), plan.nodes("host", "host{}", (2,))
    plan.cables("host", host, switch[[0, 9]], 1e9)
    plan.cables("line", switch[:-1], switch[1:], 1e9)
    plan.cables("back", switch[9:], switch[3:4], 1e9)
    net = ported(plan.network("a line"))
    out = lambda a, b: int(
        net.labels.src_port[(net.labels.src == switch[a]) & (net.labels.dst == switch[b])][0]
    )
    ports = {f"s{i}": {7: out(i, i + 1)} for i in range(9)} | {"s9": {7: out(9, 3)}}
    tables = ForwardingTables.from_ports(ports, {"host1": 7})
    said = refused(tables, net, fb.Flows(host[:1], host[1:]))
    (way,) = re.findall(r"by (s\d.*?)'", said)
    nodes = way.split(" -> ")
    assert nodes[0] == nodes[-1]
    assert set(nodes) == {f"s{i}" for i in range(3, 10)}
    assert len(nodes) == 8


def test_whatever_stops_a_flow_is_said_with_its_place():
    lid, port, spine = first_hops()
    assert f"no entry for their LID: 'leaf0-host0 -> leaf1-host0 at {spine}, LID {lid}'" in refused(
        tables_with(spine, lid, None)
    )
    assert f"a port without a cable: 'leaf0-host0 -> leaf1-host0 at {spine}, port 99'" in refused(
        tables_with(spine, lid, 99)
    )
    assert f"LID for its own: 'leaf0-host0 -> leaf1-host0 at {spine}, LID {lid}'" in refused(
        tables_with(spine, lid, 0)
    )
    host = np.flatnonzero(NET.labels.dst == NET.labels.node("leaf1-host2"))[0]
    other = int(NET.labels.src_port[host])
    assert "handed to another end node: 'leaf0-host0 -> leaf1-host0 at leaf1-host2" in refused(
        tables_with("leaf1", lid, other)
    )
    tables = ForwardingTables.from_ports(PORTS, LIDS)
    leaf0, up = NET.labels.node("leaf0"), NET.labels.src_port == port
    dead = NET.without(links=np.flatnonzero((NET.labels.src == leaf0) & up))
    said = refused(tables, dead)
    assert f"over a dead link: 'leaf0-host0 -> leaf1-host0 at leaf0, port {port}'" in said
    assert "let the subnet manager route again" in said
    without = {name: row for name, row in PORTS.items() if name != spine}
    assert f"a switch without a table: 'leaf0-host0 -> leaf1-host0 at {spine}" in refused(
        ForwardingTables.from_ports(without, LIDS)
    )
    cut = NET.without(links=np.flatnonzero(NET.labels.src == PAIR.src[0]))
    assert "start where no cable is alive: 'leaf0-host0 -> leaf1-host0 at leaf0-host0" in refused(
        tables, cut
    )


def test_all_kinds_of_lost_flows_are_in_one_error_and_numbered():
    lid, _, spine = first_hops()
    flows = fb.traffic.all_to_all(NET.hosts)
    row = {spine: PORTS[spine] | {lid: 99}, "leaf2": PORTS["leaf2"] | {lid: 0}}
    with pytest.raises(UnreachableError) as caught:
        forwarding_tables(NET, flows, ForwardingTables.from_ports(PORTS | row, LIDS))
    said = str(caught.value)
    assert "port without a cable" in said
    assert "for its own" in said
    lost = list(caught.value.flows)
    assert set(np.asarray(flows.dst)[lost]) == {int(PAIR.dst[0])}
    assert f"{len(lost)} of {flows.n_flows} flows" in said


def test_tables_of_another_fabric_are_refused_with_what_is_missing():
    tables = ForwardingTables.from_ports(PORTS | {"leaf9": {}}, LIDS, source="a dump")
    with pytest.raises(ModelError, match=r"1 of 6 switches of 'a dump' are not in .*'leaf9'"):
        forwarding_tables(NET, PAIR, tables)
    bare = {name: own for name, own in LIDS.items() if name != "leaf1-host0"}
    with pytest.raises(ModelError, match=r"1 of 1 destinations have no LID .*'leaf1-host0'"):
        forwarding_tables(NET, PAIR, ForwardingTables.from_ports(PORTS, bare))
    with pytest.raises(ModelError, match=r"needs the ports of the cables"):
        forwarding_tables(FABRICS["two tiers"], PAIR, ForwardingTables.from_ports(PORTS, LIDS))
    with pytest.raises(ModelError, match=r"needs the table of a switch"):
        forwarding_tables(NET, PAIR, ForwardingTables.from_ports({}, LIDS))


def test_no_flows_are_no_routes():
    none = np.zeros(0, np.int32)
    tables = ForwardingTables.from_ports(PORTS, LIDS)
    assert forwarding_tables(NET, fb.Flows(none, none), tables).n_hops == 0


def test_a_record_says_every_fault_at_once_and_refuses_writes():
    with pytest.raises(ModelError) as caught:
        ForwardingTables.from_ports({"s0": {1: 255, 70000: 2}}, {"a": 3, "b": (3, 0)})
    said = str(caught.value)
    assert "2 of 2 entries are outside: 'LID 1: port 255' and 'LID 70000: port 2'" in said
    assert "'3 of a and b'" in said
    assert "whole numbers from 1 to 49,151, but 1 of 2 are not: '0'" in said
    with pytest.raises(ModelError, match="2 rows for 1 switches"):
        ForwardingTables(("a",), np.zeros((2, 3), np.uint8), {})
    tables = ForwardingTables.from_ports(PORTS, LIDS)
    with pytest.raises(ValueError, match="read-only"):
        tables.out_port[0, 1] = 3
