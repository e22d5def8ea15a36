"""What `optimize.routing_weights` promises, against linear programmes over the same paths."""

import itertools

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import linprog

import fabric as fb
from experiments.optimizers import routing as experiment
from experiments.optimizers.limits import at_least, at_most
from fabric import routing, runs, topologies
from fabric._errors import InfeasibleError, ModelError
from fabric.optimize import routing_weights

BLOCKS = 6
MESH = topologies.full_mesh(BLOCKS)


def drawn(seed, n=BLOCKS, matrices=None):
    """Return gravity matrices, in byte/s."""
    rng = np.random.default_rng(seed)
    shape = (n, n) if matrices is None else (matrices, n, n)
    demand = rng.lognormal(0, 1, shape) * 1e9
    demand[..., np.arange(n), np.arange(n)] = 0
    return demand


def mesh_paths():
    """Return every pair of blocks, and its paths of at most two hops as lists of links."""
    labels = MESH.labels
    link = {ends: i for i, ends in enumerate(zip(labels.src, labels.dst, strict=True))}
    graph = nx.DiGraph(list(link))
    pairs = list(itertools.permutations(range(BLOCKS), 2))
    walks = [nx.all_simple_paths(graph, *pair, cutoff=2) for pair in pairs]
    return pairs, [
        [[link[a, b] for a, b in itertools.pairwise(walk)] for walk in found] for found in walks
    ]


def least(demands, over="worst", tail=1.0, today=None, most=1.0):
    """Return the optimum of a linear programme over mesh paths; variables x, u, level, excess, y.

    CVaR is `level + mean(excess) / tail` with `excess >= u - level`; `y >= x - today` is what was
    moved.
    """
    pairs, paths = mesh_paths()
    owner = np.repeat(np.arange(len(pairs)), [len(found) for found in paths])
    flat = [path for found in paths for path in found]
    n, m = len(flat), len(demands)
    crosses = np.zeros((MESH.n_links, n))
    for way, path in enumerate(flat):
        crosses[path, way] = 1
    sent = np.array([[demand[pair] for pair in pairs] for demand in demands])[:, owner]
    total = 2 * n + 2 * m + 1
    x, u, level, excess, y = np.split(np.arange(total), np.cumsum([n, m, 1, m]))
    upper, given = [], []

    def limit(terms, bound):
        row = np.zeros(total)
        for index, factor in terms:
            row[index] = factor
        upper.append(row)
        given.append(bound)

    for i, e in itertools.product(range(m), range(MESH.n_links)):
        limit([(x, crosses[e] * sent[i] / np.asarray(MESH.capacity)[e]), (u[i], -1)], 0)
    for i in range(m):
        limit([(u[i], 1), (level, -1), (excess[i], -1)], 0)
    if over == "worst":
        for i in range(m):
            limit([(u[i], 1), (level, -1)], 0)
    share = sent.sum(axis=0) / sent[:, np.r_[True, np.diff(owner) > 0]].sum()
    before = np.zeros(n) if today is None else today
    for i in range(n):
        limit([(x[i], 1), (y[i], -1)], before[i])
    limit([(y, share)], most if today is not None else np.inf)
    cost = np.zeros(total)
    if over == "mean":
        cost[u] = 1 / m
    else:
        cost[level] = 1
        cost[excess] = 1 / (tail * m) if over == "cvar" else 0
    whole = np.zeros((len(pairs), total))
    whole[owner, x] = 1
    kept = np.isfinite(given)
    answer = linprog(
        cost, np.array(upper)[kept], np.array(given)[kept], whole, np.ones(len(pairs)),
        bounds=(0, None), method="highs",
    )  # fmt: skip
    assert answer.success
    return answer.fun


def test_a_spine_of_half_speed_gets_a_third():
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=2)
    net = net.degraded(nodes=["spine1"], factor=0.5)
    found = routing_weights(net, fb.Flows(net.hosts[:2], net.hosts[2:], size=50e9))
    np.testing.assert_allclose(found.splits, [[2 / 3, 1 / 3]], atol=1e-3)
    # 100 GB in a second over 50 + 25 GB/s.
    np.testing.assert_allclose(found.objective, 4 / 3, rtol=1e-3)
    assert found.certified
    assert found.before == pytest.approx(2)
    assert "certified" in str(found)


@pytest.mark.parametrize("seed", range(6))
def test_a_mesh_comes_within_its_certificate_of_the_linear_programme(seed):
    found = routing_weights(MESH, drawn(seed), paths="transit", tolerance=1e-6)
    optimum = least([drawn(seed)])
    gap = found.objective / optimum - 1
    assert -1e-9 <= gap <= 2e-4
    assert gap - 1e-9 <= found.gap <= 1e-3
    assert found.objective < found.before


@pytest.mark.parametrize("over", ["worst", "mean", "cvar"])
def test_several_matrices_come_within_their_certificate(over):
    demands = drawn(10, matrices=4)
    found = routing_weights(MESH, demands, paths="transit", over=over, tail=0.375, tolerance=1e-6)
    optimum = least(demands, over, 0.375)
    gap = found.objective / optimum - 1
    assert -1e-9 <= gap <= 2e-3
    # Each matrix has hot links of its own: prices settle more slowly than splits do.
    assert gap - 1e-9 <= found.gap <= 2e-2


@pytest.mark.parametrize("most", [0.02, 0.1])
def test_a_limit_on_what_moves_is_kept_and_bounded(most):
    today = routing_weights(MESH, drawn(0), paths="transit", tolerance=1e-3)
    found = routing_weights(
        MESH, drawn(1), paths="transit", today=today, most_moved=most, tolerance=1e-6
    )
    demand = found.aim.demand[:, 0]
    moved = 0.5 * (demand[:, None] * np.abs(found.splits - today.splits)).sum() / demand.sum()
    assert moved <= most * (1 + 1e-9)
    # The programme lists pairs and paths in another order.
    splits = {
        found.paths.names(k, w): today.splits[k, w]
        for k, w in np.argwhere(found.paths.valid).tolist()
    }
    names = MESH.labels.names
    pairs, paths = mesh_paths()
    order = [
        "->".join([names[a], *(names[MESH.labels.dst[link]] for link in path)])
        for (a, _), ways in zip(pairs, paths, strict=True)
        for path in ways
    ]
    optimum = least([drawn(1)], today=np.array([splits[name] for name in order]), most=most)
    gap = found.objective / optimum - 1
    assert -1e-9 <= gap <= 1e-2
    assert gap - 1e-9 <= found.gap


def test_moving_nothing_keeps_today():
    today = routing_weights(MESH, drawn(0), paths="transit", tolerance=1e-3)
    found = routing_weights(
        MESH, drawn(1), paths="transit", today=today, most_moved=0.0, tolerance=1e-6
    )
    np.testing.assert_allclose(found.splits, today.splits, atol=1e-12)
    assert found.certified


@pytest.mark.parametrize("name", list(experiment.GRAPHS))
def test_wide_area_graphs_come_within_their_certificate(shared, name):
    case = next(case for case in experiment.cases(1, ()) if case.name == name)
    assert (shared / "samples").is_dir()
    found = routing_weights(case.network, case.demands[0], paths=4, tolerance=2e-5)
    gap = found.objective / experiment.optimum(found) - 1
    assert -1e-9 <= gap <= 2e-4
    assert gap - 1e-9 <= found.gap <= 1e-3


def test_the_smallest_exact_rate_comes_near_the_bound_from_equal_splits():
    net, flows = experiment.two_degraded(3)
    found = routing_weights(net, flows, objective="rate", tolerance=1e-5)
    exact = fb.max_min_rates(net, found.routes())
    best = 1 / experiment.optimum(found)
    np.testing.assert_allclose(float(exact.rates.min()), found.objective, rtol=1e-12)
    assert 0.9999 * best <= found.objective <= best * (1 + 1e-9) <= found.bound * (1 + 2e-9)
    assert found.before < 0.9 * best
    assert found.solves >= found.steps


def test_the_slowest_of_unequal_flows_ends_near_its_bound():
    net, flows = experiment.two_degraded(3)
    size = np.random.default_rng(0).uniform(0.5, 1.5, flows.n_flows) * 1e9
    flows = fb.Flows(flows.src, flows.dst, size=size, weight=size)
    found = routing_weights(net, flows, objective="time", tolerance=1e-4)
    rates = np.asarray(fb.max_min_rates(net, found.routes()).rates)
    np.testing.assert_allclose((size / rates).max(), found.objective, rtol=1e-12)
    assert found.certified
    capped = fb.Flows(flows.src, flows.dst, size=size, weight=size, cap=1e9)
    found = routing_weights(net, capped, objective="time", tolerance=1e-4)
    np.testing.assert_allclose(found.objective, size.max() / 1e9, rtol=1e-9)
    assert found.certified


def test_the_time_of_several_rounds_is_the_mean_of_exact_ones():
    net, _ = experiment.two_degraded(3)
    hosts = np.arange(16).reshape(4, 4)
    rounds = np.zeros((2, 16, 16))
    for i, size in enumerate((1e9, 2e9)):
        rounds[i, hosts.ravel(), np.roll(hosts, -1 - i, axis=0).ravel()] = size
    found = routing_weights(net, rounds, objective="time", over="mean", steps=200, tolerance=1e-3)
    times = []
    for amount in found.amounts.T:
        sends = amount > 0
        flows = fb.Flows(found.flows.src[sends], found.flows.dst[sends])
        rates = np.asarray(fb.max_min_rates(net, found.routes(flows)).rates)
        times.append((amount[sends] / rates).max())
    np.testing.assert_allclose(found.objective, np.mean(times), rtol=1e-9)
    assert found.bound * (1 - 1e-9) <= found.objective < 0.9 * found.before


def test_utilisation_is_what_exact_rates_say():
    found = routing_weights(MESH, drawn(0), paths="transit", tolerance=1e-3)
    demand = found.amounts[:, 0]
    rates = fb.max_min_rates(MESH, found.routes(), weights=demand).rates
    np.testing.assert_allclose(found.objective, float((demand / np.asarray(rates)).max()))


def test_random_moves_do_worse_with_as_many_evaluations():
    found = routing_weights(MESH, drawn(2), paths="transit", tolerance=1e-4, control=True)
    assert found.control is not None
    assert found.objective < found.control <= found.before


def test_tables_of_64_entries_lose_little_and_are_scored_exactly():
    found = routing_weights(MESH, drawn(0), paths="transit", tolerance=2e-5)
    tables = found.tables()
    assert tables.weights.sum(axis=1).max() <= 64
    assert tables.loss <= 3e-3
    assert tables.loss < tables.rounded_loss
    use = found.aim.uses(tables.splits).max()
    np.testing.assert_allclose(tables.objective, use, rtol=1e-12)
    rows = tables.rows()
    assert sum(row["weight"] for row in rows) == tables.weights.sum()
    assert {row["path"].split("->")[0] for row in rows} == set(MESH.labels.names)
    assert tables.as_dict()["groups"] == rows
    assert sum(tables.used.values()) == tables.weights.sum()


def test_tables_keep_the_limit_of_every_switch():
    found = routing_weights(MESH, drawn(0), paths="transit", tolerance=2e-5)
    tables = found.tables(per_switch=40)
    assert max(tables.used.values()) <= 40
    assert tables.loss <= 0.1
    with pytest.raises(InfeasibleError, match=r"`per_switch=4` is too few: 6 switches .*node0"):
        found.tables(per_switch=4)


def test_weights_per_hop_carry_the_same_loads():
    net, flows = experiment.two_degraded(3)
    found = routing_weights(net, flows, objective="rate", tolerance=1e-5)
    routes = routing.weighted(net, flows, found.hop_tables())
    rates = fb.max_min_rates(net, routes).rates
    # Largest remainders are within 1/64 of a split of at least 1/16.
    np.testing.assert_allclose(float(rates.min()), found.objective, rtol=0.1)
    assert float(rates.min()) > 1.2 * found.before
    mesh = routing_weights(MESH, drawn(0), paths="transit", tolerance=1e-3)
    with pytest.raises(ModelError, match="`hop_tables` needs `paths='shortest'`"):
        mesh.hop_tables()


def test_parallel_links_share_by_capacity_and_dead_ones_carry_nothing():
    circuits = [[0, 3, 1], [3, 0, 1], [1, 1, 0]]
    net = topologies.direct_connect(3, 4, circuits=circuits)
    ends = list(zip(net.labels.src.tolist(), net.labels.dst.tolist(), strict=True))
    between = [i for i, pair in enumerate(ends) if pair == (0, 1)]
    net = net.degraded(links=between[:1], factor=0.5).without(links=between[1:2])
    found = routing_weights(net, fb.Flows([0], [1], size=1e9), paths="transit", tolerance=1e-5)
    usage = np.zeros(net.n_links)
    routes = found.routes()
    np.add.at(
        usage, routes.part_link, routes.part_use * (routes.part_bundle >= routes.n_bundles - 1)
    )
    # 0.5 and 1 circuit directly, 1 circuit over block 2.
    np.testing.assert_allclose(usage[between], [0.2, 0, 0.4], atol=1e-4)


def test_the_same_seed_gives_the_same_answer():
    one, two = (routing_weights(MESH, drawn(3), paths="transit") for _ in range(2))
    np.testing.assert_array_equal(one.splits, two.splits)
    assert one.objective == two.objective
    assert one.history.as_dict() == two.history.as_dict()


def test_killed_and_resumed_it_gives_the_same_answer(tmp_path, monkeypatch):
    options = {"paths": "transit", "tolerance": 1e-7, "steps": 1000}
    whole = routing_weights(MESH, drawn(4), **options)
    monkeypatch.setattr(runs.Checkpoint, "due", property(lambda self: True))
    save, times = runs.Checkpoint.save, itertools.count()

    def dies(self, state):
        save(self, state)
        if next(times) == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(runs.Checkpoint, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        routing_weights(MESH, drawn(4), checkpoint=tmp_path / "run", **options)
    resumed = routing_weights(MESH, drawn(4), checkpoint=tmp_path / "run", **options)
    np.testing.assert_array_equal(resumed.splits, whole.splits)
    assert (resumed.objective, resumed.bound, resumed.steps) == (
        whole.objective, whole.bound, whole.steps,
    )  # fmt: skip
    assert resumed.history.as_dict() == whole.history.as_dict()
    with pytest.raises(ModelError, match="of another problem"):
        routing_weights(MESH, drawn(5), checkpoint=tmp_path / "run", **options)


def test_ends_under_one_switch_need_no_split():
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=2)
    found = routing_weights(net, fb.Flows(net.hosts[:1], net.hosts[1:2], size=25e9))
    assert (found.objective, found.gap, found.steps) == (0.5, 0.0, 0)
    assert found.routes().n_flows == 1


def test_routes_of_other_flows_follow_the_same_splits():
    net, flows = experiment.two_degraded(3)
    found = routing_weights(net, flows, objective="rate", tolerance=1e-5)
    # A permutation within the leaves that send and receive.
    other = fb.Flows(flows.src, np.roll(np.asarray(flows.dst).reshape(4, 4), 1, axis=1).ravel())
    routes = found.routes(other)
    rates = fb.max_min_rates(net, routes).rates
    np.testing.assert_allclose(float(rates.min()), found.objective, rtol=1e-9)
    with pytest.raises(ModelError, match="1 of 1 flows run between switches"):
        found.routes(fb.Flows(flows.dst[:1], flows.src[:1]))


def test_unreachable_pairs_are_named():
    net = topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=1).without(nodes=["spine0"])
    flows = fb.Flows(net.hosts[:1], net.hosts[1:], size=1.0)
    with pytest.raises(InfeasibleError, match="leaf0-host0 -> leaf1-host0"):
        routing_weights(net, flows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"paths": "shortes"}, "Did you mean 'shortest'", id="paths"),
        pytest.param({"objective": "rates"}, "Did you mean 'rate'", id="objective"),
        pytest.param({"over": "median"}, "Known: 'worst', 'mean' and 'cvar'", id="over"),
        pytest.param({"steps": 0, "tail": 2.0}, r"(?s)`steps` needs.*`tail` needs", id="two"),
        pytest.param({"most_moved": 0.1}, "give `today=` too", id="most-moved"),
        pytest.param({"tolerance": 0.0}, "`tolerance` needs a number more than 0", id="tolerance"),
        pytest.param({"today": np.ones((2, 2))}, r"`today` needs .* shape \(2, 2\)", id="today"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ModelError, match=message):
        routing_weights(MESH, drawn(0), **({"paths": "transit"} | options))


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        pytest.param(np.ones((2, 3)), r"shape \(6, 6\) for 6 hosts", id="shape"),
        pytest.param(np.zeros((6, 6)), "0 everywhere", id="zero"),
        pytest.param(-drawn(0), r"finite amounts of 0 or more, but 30 of 36", id="negative"),
        pytest.param(np.ones((6, 6)), "6 hosts that send to themselves: 'node0'", id="own"),
        pytest.param(fb.Flows([0], [1]), "1 of 1 have none", id="no-size"),
    ],
)
def test_demands_that_do_not_fit_are_refused(demand, message):
    with pytest.raises(ModelError, match=message):
        routing_weights(MESH, demand)


def test_rates_of_several_matrices_are_refused():
    with pytest.raises(ModelError, match="takes one matrix, but got 3"):
        routing_weights(MESH, drawn(0, matrices=3), objective="rate")


def test_fabrics_with_servers_inside_are_refused():
    net = topologies.cluster("dgx-h100", nodes=2)
    with pytest.raises(ModelError, match="has servers"):
        routing_weights(net, fb.Flows(net.hosts[:1], net.hosts[-1:], size=1.0))


def test_rows_with_a_limit_say_on_which_side_they_are():
    verdicts = [at(*["x", 2.0, found, "", "s"]).verdict for at in (at_most, at_least)
                for found in (0.0, 2.0, 9.0)]  # fmt: skip
    assert verdicts == ["holds", "holds", "short", "short", "holds", "holds"]
