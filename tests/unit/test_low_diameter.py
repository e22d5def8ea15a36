"""What `dragonfly`, `dragonfly_plus`, `hyperx` and `slim_fly` promise, one test per promise."""

import json
import math
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

import fabric as fb
from fabric.topologies import (
    build,
    dragonfly,
    dragonfly_plus,
    hyperx,
    sizes,
    sizes_of,
    slim_fly,
)
from fabric.topologies._grid import spread_cables, spread_evenly
from fabric.topologies._slim_fly import Field

PRIME_POWERS = [3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 19, 25, 27]


def golden(shared, prefix):
    entries = json.loads((shared / "validation" / "topologies.json").read_text())
    return {e["name"]: e for e in entries if e["name"].startswith(prefix)}


def switches(net):
    """Cables between switches: a matrix of how many."""
    labels = net.labels
    first = len(net.hosts)
    inner = (labels.src >= first) & (labels.dst >= first)
    n = net.n_nodes - first
    ends = labels.src[inner] - first, labels.dst[inner] - first
    return csr_matrix((np.ones(inner.sum()), ends), shape=(n, n))


def diameter(net):
    return int(shortest_path(switches(net), unweighted=True).max())


def between_groups(net):
    """Global cables between every two groups."""
    labels = net.labels
    group, far = labels.tags["group"], labels.is_tier("global")
    count = np.zeros((group.max() + 1,) * 2, int)
    np.add.at(count, (group[labels.src[far]], group[labels.dst[far]]), 1)
    return count


def global_ports(net, kind):
    labels = net.labels
    far = labels.is_tier("global")
    return np.bincount(labels.src[far], minlength=net.n_nodes)[labels.is_kind(kind)]


def off_diagonal(matrix):
    return matrix[~np.eye(len(matrix), dtype=bool)]


# Dragonfly.


@pytest.mark.parametrize("arrangement", ["absolute", "palmtree"])
def test_dragonflies_have_the_published_counts_and_diameter(shared, arrangement):
    for name, entry in golden(shared, "dragonfly_p").items():
        params, want = entry["params"], entry["expected"]
        net = dragonfly(**params, arrangement=arrangement)
        found = sizes_of(net)
        assert found.nodes == {"host": want["hosts"], "router": want["routers"]}, name
        assert found.cables == {
            "host": want["hosts"], "local": want["local_links"], "global": want["global_links"],
        }, name  # fmt: skip
        assert found.ports["router"] == want["radix"], name
        assert int(net.labels.tags["group"].max()) + 1 == want["groups"], name
        assert set(off_diagonal(between_groups(net))) == {want["links_between_group_pair"]}, name
        if params["p"] <= 4:
            assert diameter(net) == want["max_router_hops_links"], name


def test_palmtree_and_absolute_are_wired_as_they_are_defined():
    # p=1, a=2, h=1: port 0 is of router 0, port 1 of router 1.
    wired = {
        name: {
            frozenset((net.labels.names[int(s)], net.labels.names[int(d)]))
            for s, d in zip(net.labels.src[-6:], net.labels.dst[-6:], strict=True)
        }
        for name in ("absolute", "palmtree")
        for net in [dragonfly(1, 2, 1, arrangement=name)]
    }
    router = "group{}-router{}".format
    assert wired["absolute"] == {
        frozenset((router(0, 0), router(1, 0))), frozenset((router(0, 1), router(2, 0))),
        frozenset((router(1, 1), router(2, 1))),
    }  # fmt: skip
    # Port k of group i leads to group i - k - 1.
    assert wired["palmtree"] == {
        frozenset((router(0, 0), router(2, 1))), frozenset((router(0, 1), router(1, 0))),
        frozenset((router(1, 1), router(2, 0))),
    }  # fmt: skip


@pytest.mark.parametrize("arrangement", ["absolute", "palmtree"])
@pytest.mark.parametrize(("a", "h", "groups"), [(4, 2, 6), (3, 3, 7), (4, 2, 2), (5, 3, 4)])
def test_fewer_groups_share_the_global_ports_evenly(a, h, groups, arrangement):
    net = dragonfly(2, a, h, groups=groups, arrangement=arrangement)
    count = between_groups(net)
    np.testing.assert_array_equal(count, count.T)
    assert np.ptp(off_diagonal(count)) <= 1
    # All ports are used, but for one in all where groups and ports of a group are odd.
    ports = global_ports(net, "router")
    assert (h * len(ports) - ports.sum()) == a * h % 2 * groups % 2
    assert ports.max() <= h
    assert diameter(net) <= 3


def test_deepseeks_dragonfly_has_the_links_of_its_table(shared):
    want = golden(shared, "deepseek_table3")["deepseek_table3_topologies"]["expected"]["DF"]
    found = sizes("dragonfly", p=16, a=32, h=16, groups=511)
    assert found.nodes == {"host": want["endpoints"], "router": want["switches"]}
    assert found.n_cables - found.cables["host"] == want["links"]
    assert found.cables["global"] == 511 * 512 // 2


def test_a_number_of_links_per_pair_leaves_the_other_global_ports_free(shared):
    entry = golden(shared, "frontier")["frontier_slingshot"]
    params, want = entry["params"], entry["expected"]
    net = dragonfly(
        params["endpoint_ports"], params["switches_per_group"], params["global_ports_max"],
        groups=params["groups"], links_per_pair=params["links_per_group_pair"],
        capacity="200Gb/s",
    )  # fmt: skip
    found = sizes_of(net)
    assert found.nodes["router"] == want["switches"]
    assert found.nodes["host"] // params["groups"] == want["endpoints_per_group"]
    assert found.cables["local"] // params["groups"] == want["local_links_per_group"]
    assert found.cables["global"] == want["global_links"]
    assert found.ports["router"] <= params["radix"]
    assert set(off_diagonal(between_groups(net))) == {params["links_per_group_pair"]}
    assert set(global_ports(net, "router")) == {9, 10}  # 4 x 73 over 32 routers
    out = want["ejection_per_group_Tbps"]
    far = net.labels.is_tier("global") & (net.labels.tags["group"][net.labels.src] == 0)
    np.testing.assert_allclose(np.asarray(net.capacity)[far].sum() * 8 / 1e12, out, rtol=1e-12)


def test_hosts_of_a_dragonfly_come_first_and_know_their_group_and_router():
    net = dragonfly(2, 4, 2, groups=3, global_capacity="100Gb/s")
    labels = net.labels
    assert labels.names[2 * 7 + 1] == "group1-router3-host1"
    up = np.flatnonzero(labels.is_tier("host"))[::2]
    for tag in ("group", "router"):
        np.testing.assert_array_equal(
            labels.tags[tag][labels.src[up]], labels.tags[tag][labels.dst[up]]
        )
    assert set(np.asarray(net.capacity)[labels.is_tier("global")]) == {12.5e9}
    assert set(np.asarray(net.capacity)[~labels.is_tier("global")]) == {50e9}


@pytest.mark.parametrize("k", [2, 4, 8, 36])
def test_dragonfly_plus_has_the_counts_of_the_closed_form(k):
    net = dragonfly_plus(k)
    found, groups = sizes_of(net), k * k // 4 + 1
    hosts = k * k // 4 * groups
    assert found.nodes == {"host": hosts, "leaf": groups * k // 2, "spine": groups * k // 2}
    assert found.cables == {"host": hosts, "local": hosts, "global": groups * (groups - 1) // 2}
    assert found.ports == {"host": 1, "leaf": k, "spine": k}
    assert set(off_diagonal(between_groups(net))) == {1}
    np.testing.assert_array_equal(global_ports(net, "spine"), k // 2)


def test_dragonfly_plus_has_the_published_counts_and_path_length(shared):
    for name, entry in golden(shared, "dragonflyplus").items():
        radix, want = entry["params"]["radix"], entry["expected"]
        found = sizes("dragonfly_plus", radix=radix)
        assert found.nodes["host"] == want["hosts_max"], name
        assert found.nodes["leaf"] + found.nodes["spine"] == want["switches"], name
        assert found.cables["global"] == want["global_links"], name
        if radix == 8:
            net = dragonfly_plus(radix)
            leaves = np.flatnonzero(net.labels.is_kind("leaf")) - len(net.hosts)
            away = shortest_path(switches(net), unweighted=True)[np.ix_(leaves, leaves)]
            assert away.max() + 1 == want["max_switch_hops_minimal"]


@pytest.mark.parametrize("groups", [2, 5, 16])
def test_dragonfly_plus_of_fewer_groups_uses_every_global_port(groups):
    net = dragonfly_plus(8, groups=groups)
    np.testing.assert_array_equal(global_ports(net, "spine"), 4)
    assert np.ptp(off_diagonal(between_groups(net))) <= 1


@pytest.mark.parametrize("members", range(2, 10))
@pytest.mark.parametrize("ports", range(0, 20, 3))
def test_cables_are_spread_evenly_over_pairs_whatever_the_numbers(members, ports):
    count = spread_evenly(members, ports)
    np.testing.assert_array_equal(count, count.T)
    assert not np.diag(count).any()
    assert np.ptp(off_diagonal(count)) <= 1
    free = ports - count.sum(1)
    assert sorted(free) == [0] * (members - 1) + [members * ports % 2]
    assert count.sum() == 2 * spread_cables(members, ports)


# HyperX.


def test_hyperx_has_the_published_counts_cut_and_diameter(shared):
    for name, entry in golden(shared, "hyperx").items():
        shape, hosts = entry["params"]["S"], entry["params"]["T"]
        net, want = hyperx(shape, hosts), entry["expected"]
        found = sizes_of(net)
        assert found.nodes == {"host": want["hosts"], "router": want["switches"]}, name
        assert found.n_cables - found.cables["host"] == want["links"], name
        assert found.ports["router"] == want["radix"], name
        assert diameter(net) == want["diameter"], name
        labels = net.labels
        upper = labels.tags["dim0"] >= shape[0] // 2
        cut = int((upper[labels.src] & ~upper[labels.dst]).sum())
        assert cut == want["cut_links_halving_dim0"], name
        assert cut / (want["hosts"] / 2) == want["relative_bisection"], name


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1, 4), (2, 3, 2)])
def test_hyperx_is_a_product_of_complete_graphs(shape):
    want = nx.complete_graph(1)
    for side in shape:
        want = nx.cartesian_product(want, nx.complete_graph(side))
    found = nx.from_scipy_sparse_array(switches(hyperx(shape, 1)))
    assert nx.is_isomorphic(found, want)


def test_hyperx_joins_routers_that_differ_in_the_dimension_of_the_tier():
    labels = hyperx("3x4", 2, links_per_pair=[2, 1]).labels
    for dim, other, cables in (("dim0", "dim1", 2 * 4 * 3), ("dim1", "dim0", 3 * 6)):
        links = labels.is_tier(dim)
        ends = labels.src[links], labels.dst[links]
        assert len(ends[0]) == 2 * cables
        np.testing.assert_array_equal(labels.tags[other][ends[0]], labels.tags[other][ends[1]])
        assert (labels.tags[dim][ends[0]] != labels.tags[dim][ends[1]]).all()
    assert labels.names[(1 * 4 + 2) * 2 + 1] == "router1-2-host1"


def test_hyperx_has_as_many_shortest_paths_as_orders_of_the_dimensions():
    net = hyperx("4x4x4", 1)
    found = list(nx.all_shortest_paths(nx.from_scipy_sparse_array(switches(net)), 0, 63))
    assert len(found) == math.factorial(3)


# Slim Fly.


@pytest.mark.parametrize("q", PRIME_POWERS)
def test_slim_fly_has_diameter_two_and_the_degree_of_the_closed_form(q):
    delta = {0: 0, 1: 1, 3: -1}[q % 4]
    net = slim_fly(q, hosts_per_router=1)
    cables = switches(net)
    assert cables.shape[0] == 2 * q * q
    assert cables.max() == 1
    np.testing.assert_array_equal(np.asarray(cables.sum(1)).ravel(), (3 * q - delta) // 2)
    within_two = cables @ cables + cables
    within_two.setdiag(1)
    assert within_two.nnz == (2 * q * q) ** 2


def test_slim_fly_has_the_published_counts(shared):
    for name, entry in golden(shared, "slimfly").items():
        want = entry["expected"]
        net = slim_fly(entry["params"]["q"])
        found = sizes_of(net)
        assert found.nodes == {"host": want["hosts"], "router": want["routers"]}, name
        assert found.cables["network"] == want["edges"], name
        assert found.ports["router"] == want["router_radix"], name
        assert found.ports["router"] - want["p_balanced"] == want["network_radix"], name


def test_slim_fly_of_five_is_the_hoffman_singleton_graph():
    found = nx.from_scipy_sparse_array(switches(slim_fly(5)))
    # The only graph of 50 vertices, degree 7 and girth 5.
    assert set(dict(found.degree).values()) == {7}
    assert nx.girth(found) == 5
    assert nx.is_isomorphic(found, nx.hoffman_singleton_graph())


@pytest.mark.parametrize(("p", "n"), [(2, 1), (3, 1), (2, 2), (7, 1), (2, 3), (3, 2), (5, 2)])
def test_a_field_obeys_its_laws(p, n):
    field = Field(p, n)
    every = np.arange(field.q)
    a, b, c = np.meshgrid(every, every, every, indexing="ij")
    add, times = field.add, field.multiply
    np.testing.assert_array_equal(add(a, add(b, c)), add(add(a, b), c))
    np.testing.assert_array_equal(times(a, times(b, c)), times(times(a, b), c))
    np.testing.assert_array_equal(times(a, add(b, c)), add(times(a, b), times(a, c)))
    for row in add(every[:, None], every), times(every[1:, None], every):
        np.testing.assert_array_equal(np.sort(row, 1), np.tile(every, (len(row), 1)))
    assert sorted(field.power) == list(range(1, field.q))


# Counts and refusals of all.

SPECS = [
    "dragonfly:p=2,a=4,h=2", "dragonfly:p=1,a=1,h=3", "dragonfly:p=2,a=3,h=3,groups=7",
    "dragonfly:p=2,a=4,h=2,groups=4,links_per_pair=1,arrangement=palmtree",
    "dragonfly_plus:radix=8", "dragonfly_plus:radix=6,groups=4", "hyperx:shape=3x1x4,"
    "hosts_per_switch=2,links_per_pair=2+1+3", "hyperx:shape=5,hosts_per_switch=1",
    "slim_fly:q=4", "slim_fly:q=7,hosts_per_router=2",
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
def test_sizes_are_those_of_the_network(spec):
    counted, found = sizes(spec), sizes_of(build(spec))
    assert (counted.nodes, counted.cables, counted.ports) == (
        found.nodes, found.cables, found.ports,
    )  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
def test_every_host_reaches_every_other(spec):
    assert nx.is_connected(nx.from_scipy_sparse_array(switches(build(spec))))


@pytest.mark.parametrize("spec", SPECS)
def test_spray_carries_traffic_between_hosts(spec):
    net = build(f"{spec},capacity=10Gb/s")
    src, dst = np.array(list(combinations(net.hosts[:6].tolist(), 2))).T
    routes = fb.routing.spray(net, fb.Flows(src, dst))
    assert float(fb.max_min_rates(net, routes).rates.min()) > 0


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("dragonfly:p=2,a=4,h=2,groups=10",
         r"a group of 8 global ports reaches 8 others\. Use at most 9\."),
        ("dragonfly:p=2,a=4,h=2,groups=1", "`groups` needs a whole number of 2 or more, but got 1"),
        ("dragonfly:p=2,a=4,h=2,groups=5,links_per_pair=3",
         r"needs 12 global ports in a group, but 4 routers of 2 have 8\. Use `links_per_pair=2` or "
         r"`groups=3`\."),
        ("dragonfly:p=2,a=4,h=2,groups=3,links_per_pair=30", r"Use `links_per_pair=4`\.$"),
        ("dragonfly:p=0,a=0,h=2", r"(?s)`p` needs .* got 0.*`a` needs .* got 0"),
        ("dragonfly:p=2,a=4,h=2,arrangement=palm", "Did you mean 'palmtree'"),
        ("dragonfly:p=2,a=400,h=200,links_per_pair=1", "cables and would take about"),
        ("dragonfly_plus:radix=7", r"needs an even radix\. Use radix=6 or radix=8\."),
        ("dragonfly_plus:radix=3,groups=4", r"needs an even radix\. Use radix=4\."),
        ("dragonfly_plus:radix=7,groups=100", r"needs an even radix\. Use radix=20\."),
        ("dragonfly_plus:radix=8,groups=18", r"reaches 16 others\. Use at most 17\."),
        ("hyperx:shape=4x4,hosts_per_switch=0", "`hosts_per_switch` needs a whole number of 1"),
        ("hyperx:shape=4x0,hosts_per_switch=1", "`shape` needs whole numbers of 1 or more"),
        ("hyperx:shape=4x4,hosts_per_switch=1,links_per_pair=1+2+3",
         "has 3 entries for 2 dimensions"),
        ("hyperx:shape=4x4,hosts_per_switch=1,links_per_pair=0", "`links_per_pair` needs"),
        ("slim_fly:q=28", r"there is no field of 28 elements\. Use q=27 or q=29\."),
        ("slim_fly:q=6", r"Use q=5 or q=7\."),
        ("slim_fly:q=15", r"Use q=13 or q=16\."),
        ("slim_fly:q=2", "`q` needs a whole number of 3 or more, but got 2"),
        ("slim_fly:q=5,hosts_per_router=0", "`hosts_per_router` needs a whole number of 1"),
        ("slim_fly:q=1009", "cables and would take about"),
    ],
)  # fmt: skip
def test_impossible_numbers_are_refused_with_the_next_step(spec, said):
    with pytest.raises(fb.ModelError, match=said):
        build(spec)
