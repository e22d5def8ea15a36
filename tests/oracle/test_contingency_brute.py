"""`contingency` against every single failure solved from scratch, component by component."""

import functools

import numpy as np
import pytest

import fabric as fb
from fabric import hardware
from fabric._errors import UnreachableError
from fabric.reliability import components, contingency

KINDS = ["link", "switch"]


@pytest.fixture(autouse=True)
def by_class_only(monkeypatch):
    """Nothing counts as quick, so that it is the classes that are compared."""
    monkeypatch.setattr("fabric.reliability._study._QUICK", 0.0)


def in_front(fabric):
    return fb.topologies.attach_servers(
        fabric, hardware.server("dgx-h100"), fabric.hosts.reshape(-1, 8)
    )


def scored(net, flows, routing):
    """Flows cut off, slowest and total rate of the others, by the public solver."""
    lost, left = 0, np.arange(flows.n_flows)
    while len(left):
        some = fb.Flows(
            flows.src[left], flows.dst[left], weight=flows.weight[left], cap=flows.cap[left]
        )
        try:
            routes = routing(net, some)
        except UnreachableError as error:
            lost += len(error.flows)
            left = np.delete(left, error.flows)
            continue
        rates = np.asarray(routes.per_flow(fb.max_min_rates(net, routes).rates))
        return lost, rates.min(), rates.sum()
    return lost, np.inf, 0.0


def agrees(
    net, flows, routing=fb.routing.spray, kinds=KINDS, factor=0.0, step=1, check=0, **options
):
    """Compare every component, or one in some, with a solve of its own; return the report."""
    report = contingency(net, flows, routing, kind=kinds, factor=factor, check=check, **options)
    for kind in kinds:
        parts = components(net, kind)
        rows = {int(m): row for row in report if row.kind == kind for m in row.members}
        assert sorted(rows) == list(range(len(parts)))
        for number in range(0, len(parts), step):
            failed = parts.degraded(number, factor) if factor else parts.failed(number)
            row = rows[number]
            # Rates of rows let loose are exact to 1e-10 by construction; sums add up roundings.
            np.testing.assert_allclose(
                (row.lost, row.slowest, row.total), scored(failed, flows, routing), rtol=1e-9,
                err_msg=f"{kind} {parts.name(number)}",
            )  # fmt: skip
    return report


def with_faults(net, tier):
    """One cable dead and one NIC at half speed."""
    cable = int(np.flatnonzero(net.labels.is_tier(tier))[4])
    nic = int(net.labels.tags["nic"][net.hosts[19]])
    return net.without(links=[cable]).degraded(nodes=[nic], factor=0.5)


@pytest.mark.parametrize("broken", [False, True], ids=["whole", "with-faults"])
def test_a_fabric_of_64_gpus_has_the_scores_of_brute_force(broken):
    """Every seventh component, which is some of every class."""
    net = in_front(fb.topologies.rail_optimized(servers=8, radix=16))
    if broken:
        net = with_faults(net, "leaf-spine")
    flows = fb.Flows(net.hosts, np.roll(net.hosts, -9))
    report = agrees(net, flows, kinds=["leaf-spine", "nic", "switch"], step=7)
    assert report.n_classes < report.n_components / (1.5 if broken else 8)


@pytest.fixture(scope="module")
def rails():
    return in_front(fb.topologies.rail_optimized(servers=2, radix=16))


def test_every_part_of_a_server_has_the_scores_of_brute_force(rails):
    flows = fb.Flows(rails.hosts, np.roll(rails.hosts, -3))
    agrees(rails, flows, kinds=["link", "gpu"], step=8)


@pytest.mark.parametrize("broken", [False, True], ids=["whole", "with-faults"])
def test_an_oversubscribed_fabric_with_many_flows_has_the_scores_of_brute_force(broken):
    net = in_front(fb.topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=8))
    if broken:
        net = with_faults(net, "leaf-spine")
    shifts = (1, 8, 9)
    flows = fb.Flows(
        np.tile(net.hosts, 3), np.concatenate([np.roll(net.hosts, -shift) for shift in shifts])
    )
    agrees(net, flows, kinds=["leaf-spine", "nic", "switch"], step=5)


def test_weights_caps_and_queue_pairs_have_the_scores_of_brute_force():
    net = fb.topologies.leaf_spine(leaves=4, spines=3, hosts_per_leaf=2, cables_per_pair=2)
    n, rng = len(net.hosts), np.random.default_rng(0)
    flows = fb.Flows(
        np.tile(net.hosts, 3),
        np.concatenate([np.roll(net.hosts, -shift) for shift in (4, 5, 9)]),
        weight=rng.choice([1.0, 2.0], 3 * n),
        cap=rng.choice([10e9, np.inf], 3 * n),
    )

    agrees(net, flows, functools.partial(fb.routing.spray, queue_pairs=2), step=3)


@pytest.mark.parametrize("seed", range(2))
def test_random_flows_on_a_tapered_clos_have_the_scores_of_brute_force(seed):
    net = fb.topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=6, capacity="100Gb/s")
    rng = np.random.default_rng(seed)
    src = rng.choice(net.hosts, 40)
    dst = rng.choice(net.hosts, 40)
    flows = fb.Flows(src[src != dst], dst[src != dst])
    agrees(net, flows, step=3)


def test_degraded_components_have_the_scores_of_brute_force(rails):
    flows = fb.Flows(rails.hosts, np.roll(rails.hosts, -9))
    agrees(rails, flows, kinds=["nic", "switch", "pcie"], factor=0.25, step=8)


def test_a_rule_that_is_solved_from_scratch_has_the_scores_of_brute_force():
    net = fb.topologies.leaf_spine(leaves=3, spines=2, hosts_per_leaf=2)
    flows = fb.Flows(net.hosts, np.roll(net.hosts, -2))

    def routing(net, flows):
        return fb.routing.spray(net, flows).with_rule(name="of one's own")

    agrees(net, flows, routing)


def test_all_components_of_a_rule_that_hashes_are_solved_on_demand():
    net = fb.topologies.fat_tree(4)
    flows = fb.traffic.permutation(net.hosts, seed=0)
    agrees(net, flows, fb.routing.ecmp, sample="all", step=3)


@pytest.mark.parametrize(
    "spec", ["dragonfly:p=1,a=4,h=1", "hyperx:shape=3x3,hosts_per_switch=2", "torus:dims=4x4"]
)
def test_failures_with_detours_have_the_scores_of_brute_force(spec):
    net = fb.topologies.build(spec)
    agrees(net, fb.Flows(net.hosts, np.roll(net.hosts, -2)), kinds=["link"], step=3)


def test_a_class_whose_members_differ_is_solved_member_by_member():
    """A rule that drains a spine after a failure may do so with one spine alone."""
    net = fb.topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=2)
    flows = fb.Flows(net.hosts, np.roll(net.hosts, -2))
    spine = net.labels.node("spine0")

    def routing(network, flows):
        hurt = ~np.asarray(network.alive) & (network.labels.dst == spine)
        return fb.routing.spray(network.without(nodes=["spine0"]) if hurt.any() else network, flows)

    report = agrees(net, flows, routing, kinds=["leaf-spine"], check=8)
    assert any("did not hold together" in note for note in report.notes)
    assert sorted(row.count for row in report) == [4, 4]


def test_rings_of_switches_with_detours_have_the_scores_of_brute_force():
    """Two triangles and a hexagon look alike from every node, but not to a detour."""
    import networkx as nx

    graph = nx.disjoint_union_all([nx.cycle_graph(3), nx.cycle_graph(3), nx.cycle_graph(6)])
    nx.set_edge_attributes(graph, "8GB/s", "capacity")
    pairs = [(a, b) for edge in graph.edges for a, b in (edge, edge[::-1])]
    for switch in list(graph):
        graph.nodes[switch]["kind"] = "switch"
        graph.add_node(f"host{switch}", kind="host")
        graph.add_edge(switch, f"host{switch}", capacity="16GB/s")
    net = fb.Network.from_networkx(graph)
    ends = [[net.labels.node(f"host{pair[side]}") for pair in pairs] for side in (0, 1)]
    agrees(net, fb.Flows(*ends), kinds=["link"])
