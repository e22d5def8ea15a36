"""What `optimize.routing_weights` promises, against linear programmes over the same paths."""

import itertools
import json

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import linprog

import fabric as fb
from experiments.optimizers import routing as experiment
from experiments.optimizers.limits import at_least, at_most
from fabric import runs, topologies
from fabric._errors import ModelError
from fabric.optimize import _aim, routing_weights

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


def least(demands, over="worst", tail=1.0, today=None, most=1.0, counts=None):
    """Return the optimum of a linear programme over mesh paths; variables x, u, level, excess, y.

    CVaR is `level + mean(excess) / tail` with `excess >= u - level`, the mean by `counts`;
    `y >= x - today` is what was moved.
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
    counts = np.ones(m) if counts is None else np.asarray(counts)
    if over in ("mean", "sum"):
        cost[u] = counts if over == "sum" else counts / counts.sum()
    else:
        cost[level] = 1
        cost[excess] = counts / counts.sum() / tail if over == "cvar" else 0
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
    found = routing_weights(MESH, drawn(seed), paths="transit", tolerance=1e-6, prove=False)
    optimum = least([drawn(seed)])
    gap = found.objective / optimum - 1
    assert -1e-9 <= gap <= 2e-4
    assert gap - 1e-9 <= found.gap <= 1e-3
    assert found.objective < found.before


@pytest.mark.parametrize(
    ("over", "counts"),
    [
        ("worst", None),
        ("mean", None),
        ("cvar", None),
        ("cvar", [1, 3, 0, 2]),
        ("sum", [1, 3, 0, 2]),
    ],
)
def test_several_matrices_come_within_their_certificate(over, counts):
    demands = drawn(10, matrices=4)
    found = routing_weights(
        MESH, demands, paths="transit", over=over, tail=0.375, counts=counts, tolerance=1e-6
    )
    optimum = least(demands, over, 0.375, counts=counts)
    # The last gap is closed by the programme of HiGHS, stated in another way than `least`.
    assert found.programme
    np.testing.assert_allclose([found.objective, found.bound], optimum, rtol=1e-6)
    assert found.objective <= found.history.objective[-1] * (1 + 1e-9)


def test_units_do_not_matter():
    """Powers of two change no digit, so that the answers are the same bit by bit."""
    found = routing_weights(MESH, drawn(0), paths="transit", tolerance=1e-3)
    tiny = routing_weights(MESH, drawn(0) * 2.0**-150, paths="transit", tolerance=1e-3)
    np.testing.assert_array_equal(tiny.splits, found.splits)
    assert (tiny.objective, tiny.bound) == (found.objective * 2.0**-150, found.bound * 2.0**-150)
    coarse = MESH.with_capacity(np.asarray(MESH.capacity) * 2.0**60)
    coarse = routing_weights(coarse, drawn(0), paths="transit", tolerance=1e-3)
    np.testing.assert_array_equal(coarse.splits, found.splits)


def test_single_precision_is_proved_in_double():
    net = fb.Network(np.asarray(MESH.capacity, np.float32), labels=MESH.labels)
    found = routing_weights(net, drawn(0) * 1e-40, paths="transit", tolerance=1e-3, prove=False)
    optimum = least([drawn(0)]) * 1e-40
    assert found.certified
    assert found.bound <= optimum * (1 + 1e-9)
    assert optimum * (1 - 1e-9) <= found.objective <= optimum * (1 + 1e-3)


@pytest.mark.parametrize("most", [0.02, 0.1])
def test_a_limit_on_what_moves_is_kept_and_bounded(most):
    today = routing_weights(MESH, drawn(0), paths="transit", tolerance=1e-3)
    found = routing_weights(
        MESH,
        drawn(1),
        paths="transit",
        today=today,
        most_moved=most,
        tolerance=1e-6,
        prove=False,
    )
    demand = found.aim.traffic[:, 0]
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
    assert -1e-9 <= gap <= found.gap + 1e-9
    assert found.gap <= 1e-4
    # The solution of the programme keeps the limit too, and tables may be where one begins.
    exact = routing_weights(
        MESH, drawn(1), paths="transit", today=today, most_moved=most, tolerance=1e-9, steps=1
    )
    np.testing.assert_allclose([exact.objective, exact.bound], optimum, rtol=1e-7)
    moved = 0.5 * (demand[:, None] * np.abs(exact.splits - today.splits)).sum() / demand.sum()
    assert moved <= most * (1 + 1e-9)
    tables = today.tables()
    begun = routing_weights(
        MESH, drawn(1), paths="transit", today=tables, most_moved=0.0, tolerance=1e-3, steps=1
    )
    np.testing.assert_allclose(begun.splits, tables.splits, atol=1e-12)


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
    found = routing_weights(case.network, case.demands[0], paths=4, tolerance=2e-5, prove=False)
    gap = found.objective / experiment.optimum(found) - 1
    assert -1e-9 <= gap <= 2e-4
    assert gap - 1e-9 <= found.gap <= 1e-3


def test_utilisation_is_what_exact_rates_say():
    found = routing_weights(MESH, drawn(0), paths="transit", tolerance=1e-3)
    demand = found.amounts[:, 0]
    rates = fb.max_min_rates(MESH, found.routes(), weights=demand).rates
    np.testing.assert_allclose(found.objective, float((demand / np.asarray(rates)).max()))


def test_random_moves_do_worse_with_as_many_evaluations():
    found = routing_weights(MESH, drawn(2), paths="transit", tolerance=1e-4, control=True)
    assert found.control is not None
    assert found.objective < found.control <= found.before


def test_the_same_seed_gives_the_same_answer():
    one, two = (routing_weights(MESH, drawn(3), paths="transit") for _ in range(2))
    np.testing.assert_array_equal(one.splits, two.splits)
    assert one.objective == two.objective
    assert one.history.as_dict() == two.history.as_dict()


@pytest.mark.parametrize("when", [1, 3])
def test_killed_and_resumed_it_gives_the_same_answer(tmp_path, monkeypatch, when):
    options = {"paths": "transit", "tolerance": 1e-7, "steps": 60, "prove": False}
    whole = routing_weights(MESH, drawn(4), **options)
    monkeypatch.setattr(runs.Checkpoint, "due", property(lambda self: True))
    save, times = runs.Checkpoint.save, itertools.count(1)

    def dies(self, state):
        save(self, state)
        if next(times) == when:
            raise KeyboardInterrupt

    monkeypatch.setattr(runs.Checkpoint, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        routing_weights(MESH, drawn(4), checkpoint=tmp_path / "run", **options)
    resumed = routing_weights(MESH, drawn(4), checkpoint=tmp_path / "run", **options)
    np.testing.assert_array_equal(resumed.splits, whole.splits)
    assert resumed.as_dict() | {"seconds": 0} == whole.as_dict() | {"seconds": 0}


@pytest.mark.parametrize("objective", ["utilisation", "time"])
def test_an_interrupt_before_the_first_save_keeps_the_state(tmp_path, monkeypatch, objective):
    options = {"paths": "transit", "tolerance": 1e-7, "steps": 60, "prove": False}
    options |= {"objective": objective, "checkpoint": tmp_path / "run"}
    if objective == "time":
        flows = fb.Flows(np.arange(5), np.arange(1, 6), size=1e9)
    else:
        flows = drawn(4)
    turns, update = itertools.count(1), runs.Progress.update
    taken = []

    def stops(self, done, *values):
        taken.append(done)
        if next(turns) == 2:
            raise KeyboardInterrupt
        update(self, done, *values)

    monkeypatch.setattr(runs.Progress, "update", stops)
    with pytest.raises(KeyboardInterrupt):
        routing_weights(MESH, flows, **options)
    assert taken == [25, 50]
    resumed = routing_weights(MESH, flows, **options)
    assert 25 not in taken[2:]
    whole = routing_weights(MESH, flows, **options | {"checkpoint": None})
    assert resumed.as_dict() | {"seconds": 0} == whole.as_dict() | {"seconds": 0}


@pytest.mark.parametrize(
    "other",
    [
        {"paths": 3}, {"objective": "time"}, {"over": "mean"}, {"over": "sum"}, {"steps": 3},
        {"tail": 0.5}, {"tolerance": 0.1}, {"rate": 0.2}, {"seed": 1}, {"demand": drawn(5)},
        {"network": MESH.degraded(links=[0], factor=0.5)}, {"over": "sum", "counts": [2]},
        {"today": "equal", "most_moved": 0.1}, {"today": "direct"},
    ],
    ids=lambda other: "-".join(other),
)  # fmt: skip
def test_a_checkpoint_of_another_problem_is_refused(tmp_path, other):
    options = {"network": MESH, "demand": drawn(4), "paths": "transit", "steps": 2}
    first = routing_weights(checkpoint=tmp_path / "run", **options)
    again = routing_weights(checkpoint=tmp_path / "run", **(options | {"tail": np.float64(0.1)}))
    np.testing.assert_array_equal(again.splits, first.splits)
    direct = np.eye(first.paths.width)[[0] * first.paths.n_pairs]
    today = {"equal": first.paths.valid / first.paths.width, "direct": direct}
    other = {key: today[value] if key == "today" else value for key, value in other.items()}
    with pytest.raises(ModelError, match="of another problem"):
        routing_weights(checkpoint=tmp_path / "run", **(options | other))


def test_all_faults_of_the_options_are_told_at_once():
    with pytest.raises(ModelError) as error:
        routing_weights(
            MESH, np.zeros((6, 6)), paths=0, objective="fast", over="all", steps=0, tolerance=2.0
        )
    said = str(error.value)
    words = ("`paths`", "objective='fast'", "over='all'", "`steps`", "`tolerance`", "0 everywhere")
    assert [word for word in words if word not in said] == []


def test_options_of_numpy_give_a_report_that_json_takes():
    found = routing_weights(
        MESH, drawn(0), paths="transit", tolerance=np.float64(1e-2), control=True
    )
    told = json.loads(json.dumps(found.as_dict()))
    assert told["certified"] is True
    assert told["schema"] == "fabric.optimize.routing/1"


def test_a_tolerance_of_nothing_is_searched_for_to_the_last_step():
    found = routing_weights(MESH, drawn(0), paths="transit", tolerance=0.0, steps=30)
    assert found.steps == 30
    assert found.programme


def test_steps_are_those_of_both_descents():
    options = {"paths": "transit", "steps": 5, "tolerance": 1e-9, "prove": False}
    found = routing_weights(MESH, drawn(0), objective="time", **options)
    assert found.steps == 10
    assert found.history.steps[-1] == 5


def test_of_no_flows_sums_are_real_numbers_too():
    none = np.zeros((0, 2))
    assert _aim._summed(none, np.zeros(0, int), 3).dtype == np.float64


def test_ends_under_one_switch_need_no_split():
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=2)
    found = routing_weights(net, fb.Flows(net.hosts[:1], net.hosts[1:2], size=25e9))
    assert (found.objective, found.gap, found.steps) == (0.5, 0.0, 0)
    assert found.routes().n_flows == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"paths": "shortes"}, "Did you mean 'shortest'", id="paths"),
        pytest.param({"objective": "rates"}, "Did you mean 'rate'", id="objective"),
        pytest.param({"over": "median"}, "Known: 'worst', 'mean', 'sum' and 'cvar'", id="over"),
        pytest.param({"steps": 0, "tail": 2.0}, r"(?s)`steps` needs.*`tail` needs", id="two"),
        pytest.param({"most_moved": 0.1}, "give `today=` too", id="most-moved"),
        pytest.param({"tolerance": -0.1}, "`tolerance` needs a share from 0", id="tolerance"),
        pytest.param({"today": np.ones((2, 2))}, r"`today` needs .* shape \(2, 2\)", id="today"),
        pytest.param({"today": np.full((30, 5), np.inf)}, "finite share", id="infinite-today"),
        pytest.param({"today": np.full((30, 5), np.nan)}, "finite share", id="nan-today"),
        pytest.param({"tail": True}, "`tail` needs a share above 0", id="true-tail"),
        pytest.param({"rate": np.nan}, "`rate` needs a number more than 0", id="nan-rate"),
        pytest.param({"counts": [1]}, "Give `over='sum'` too", id="counts-worst"),
        pytest.param(
            {"counts": [1, 2], "over": "sum"},
            r"1 matrices, but has shape \(2,\)",
            id="counts-shape",
        ),
        pytest.param({"counts": [-1], "over": "sum"}, "finite numbers of 0 or more", id="counts"),
        pytest.param({"counts": [0], "over": "sum"}, "nothing is to be routed", id="no-counts"),
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
        pytest.param([[0, 1], [2]], "rows differ in length", id="ragged"),
        pytest.param(np.full((6, 6), "1"), "all numbers, but got an array of <U1", id="text"),
        pytest.param(
            [fb.Flows([0], [1], size=1.0), fb.Flows([0], [1])],
            "of phase 1 have none",
            id="no-size-of-a-phase",
        ),
    ],
)
def test_demands_that_do_not_fit_are_refused(demand, message):
    with pytest.raises(ModelError, match=message):
        routing_weights(MESH, demand)


def test_fabrics_with_servers_inside_are_refused():
    net = topologies.cluster("dgx-h100", nodes=2)
    with pytest.raises(ModelError, match="has servers"):
        routing_weights(net, fb.Flows(net.hosts[:1], net.hosts[-1:], size=1.0))


def test_rows_with_a_limit_say_on_which_side_they_are():
    verdicts = [at(*["x", 2.0, found, "", "s"]).verdict for at in (at_most, at_least)
                for found in (0.0, 2.0, 9.0)]  # fmt: skip
    assert verdicts == ["holds", "holds", "short", "short", "holds", "holds"]
