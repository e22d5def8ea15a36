"""What `optimize.joint` promises, against `step`, naive sums over paths, and linear programmes."""

import functools
import inspect
import itertools
import json
import warnings
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import pytest
from scipy.optimize import linprog

import fabric as fb
from fabric import hardware, optimize
from fabric._errors import InfeasibleError, ModelError
from fabric.optimize import _joint
from fabric.optimize._design_loads import KINDS
from fabric.optimize._joint_search import Plan, Search
from fabric.runs import Checkpoint

MODEL = fb.Model.listed("llama-3.1-8b")
ASKED = {
    "gbs": 64,
    "seq": 8192,
    "limits": {"vpp": 1, "cp": 1},
    "swaps": 24,
    "steps": 240,
    "tolerance": 0.0,
}


def attached(nics, dead=0.0, seed=0):
    """Return eight GPUs in front of every eight NICs, some cables between switches dead."""
    net = fb.topologies.attach_servers(nics, hardware.server("dgx-h100"), nics.hosts.reshape(-1, 8))
    labels = net.labels
    up = np.flatnonzero(labels.forwards[labels.src] & labels.forwards[labels.dst])
    up = up[(labels.tags["server"][labels.src[up]] < 0)]
    cables = np.unique(labels.cable_of[up])
    gone = np.random.default_rng(seed).choice(cables, round(dead * len(cables)), False)
    return net.with_alive(~np.isin(labels.cable_of, gone) & np.asarray(net.alive))


def listed(net, servers):
    """Return the GPUs of some servers, in this order."""
    return net.hosts.reshape(-1, 8)[servers].ravel().tolist()


def slow_spine():
    nics = fb.topologies.leaf_spine(2, 3, 16, uplink_capacity="1Tb/s")
    return nics.degraded(nodes=["spine1"], factor=0.3)


FABRICS = {
    # Listed from both leaves in turn.
    "two leaves and a slow spine": (slow_spine, 0.0, [0, 2, 1, 3], None),
    "rails": (
        lambda: fb.topologies.rail_optimized(
            6, radix=32, leaf_down=2, leaf_up=2, spines=2, servers_per_unit=2
        ),
        0.15, [5, 0, 3, 1], None,
    ),
    "three tiers, servers to spare": (
        lambda: fb.topologies.clos(
            128, radix=32, tiers=3, hosts_per_leaf=16, oversubscription=4, leaves_per_pod=2
        ),
        0.1, [6, 0, 3, 1, 2], 16,
    ),
    "separate rails in two planes": (
        lambda: fb.topologies.rail_only(6, radix=4, planes=2, capacity="200Gb/s"), 0.1,
        [5, 0, 3, 1], None,
    ),
}  # fmt: skip
TWO_LEAVES = next(iter(FABRICS))


class Case(NamedTuple):
    """A network, the GPUs of an allocation, what `joint` found there, and how it searched."""

    net: fb.Network
    gpus: list[int]
    used: int
    report: optimize.JointReport
    search: Search


@functools.cache
def case_of(name):
    build, dead, servers, used = FABRICS[name]
    net = attached(build(), dead)
    gpus = listed(net, servers)
    report, search = searched(net, gpus, gpus=used, control=name == TWO_LEAVES)
    return Case(net, gpus, used or len(gpus), report, search)


def searched(net, allocation, **options):
    """Return a report, and the search that it comes from."""
    found = []

    class Kept(_joint.Run):
        def __init__(self, search, *rest):
            found.append(search)
            super().__init__(search, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_joint, "Run", Kept)
        report = optimize.joint(net, MODEL, allocation=allocation, **(ASKED | options))
    return report, found[0]


@pytest.fixture(params=FABRICS)
def case(request):
    return case_of(request.param)


@pytest.fixture
def two_leaves():
    return case_of(TWO_LEAVES)


def step_of(net, report, **changes):
    asked = {"layout": report.layout, "placement": report.placement, "routing": report.routing}
    return fb.step(net, MODEL, **(asked | changes), by=None).step_time


def drawn(report, rng):
    """Return random splits."""
    return report.site.whole(rng.uniform(0.01, 1, report.site.paths.valid.shape))


# The answer


def test_the_objective_is_the_step_of_what_was_found(case):
    report = case.report
    assert report.objective == pytest.approx(step_of(case.net, report), rel=1e-11)
    assert report.best.step_time == report.objective
    assert set(report.placement.endpoint_of) <= set(case.gpus)
    assert report.placement.n_ranks == case.used


def test_before_is_the_best_layout_with_servers_as_listed_and_sprayed(case):
    plain = partial(
        optimize.layout, case.net, MODEL, gbs=64, seq=8192, gpus=case.used, top=1,
        limits=ASKED["limits"], routing="spray", placement=fb.Placement(case.gpus[: case.used]),
    )  # fmt: skip
    assert case.report.before == pytest.approx(plain().objective, rel=1e-9)
    assert case.report.objective <= case.report.before


def test_no_layout_placement_or_splits_that_were_drawn_beat_the_bound(case):
    rng, report = np.random.default_rng(1), case.report
    gpus = np.array(case.gpus).reshape(-1, 8)
    for word in ("tp8 sp pp1 zero1", "tp1 pp1 zero2", "tp8 sp pp2 zero1"):
        said = f"{word} dp=auto mb1 gbs64 seq8192 recompute=full"
        layout = fb.Layout.parse(said, gpus=case.used)
        placement = fb.Placement(rng.permutation(gpus).ravel()[: case.used])
        router = partial(report.site.routes, drawn(report, rng))
        seconds = step_of(case.net, report, layout=layout, placement=placement, routing=router)
        assert report.bound < seconds
    assert report.bound <= report.objective
    assert report.gap == pytest.approx(report.objective / report.bound - 1)
    assert report.certified == (report.gap <= 1e-12)


def test_what_comes_beside_is_no_better_than_the_bound(case):
    report = case.report
    for beside in (report.apart, report.control):
        assert np.isnan(beside) or report.bound <= beside
    told = json.loads(json.dumps(report.as_dict()))
    assert (told["apart"] is None) == np.isnan(report.apart)
    assert f"{report.objective:.6g} s" in str(report)
    assert report.history.objective[-1] == report.objective
    assert (np.diff(report.history.objective) <= 0).all()


def test_splits_and_ranks_are_ready_to_use(case):
    report = case.report
    tables = report.tables(entries=16)
    assert tables.weights.sum(axis=1).max() <= 16
    assert abs(tables.splits - report.splits).max() <= 1 / 16
    router = partial(report.site.routes, tables.splits)
    assert tables.objective <= step_of(case.net, report, routing=router) * (1 + 1e-9)
    assert tables.loss == pytest.approx(tables.objective / report.objective - 1)
    assert len(tables.rows()) == (tables.weights > 0).sum()
    lines = report.rank_file().splitlines()
    server, slot = case.net.labels.node_name(int(report.placement.endpoint_of[0])).split("-gpu")
    assert lines[0] == f"rank 0={server} slot={slot}"
    assert len(lines) == report.placement.n_ranks
    slot = int(slot)
    assert report.rank_file(cores=2).startswith(f"rank 0={server} slot={2 * slot}-{2 * slot + 1}\n")
    assert f"--tensor-model-parallel-size {report.layout.tp} " in report.megatron
    for entries in (0, 70_000, 2.5):
        with pytest.raises(ModelError, match="`entries` needs a whole number from 1 to 65,536"):
            inspect.unwrap(type(report).tables)(report, entries)


# The sums that the search follows


def test_seconds_by_sums_are_those_of_a_naive_walk_over_links(case):
    """The busiest link of every exchange, under drawn splits and places."""
    search, rng = case.search, np.random.default_rng(2)
    cases, network = search.cases, search.cases.fabric.network
    keys = [key for key in cases.keys if np.isfinite(cases.ideal[key])]
    for key in keys[1::6]:
        one = search.open(key)
        at = rng.permutation(cases.docks.n_servers)
        plan = Plan(at, drawn(case.report, rng))
        wire = search._wire(one, plan, search.mixed(plan))
        naive = np.zeros(len(KINDS))
        for traffic in cases.traffic(key, at):
            flows = traffic.exchange.flows
            load = np.zeros(network.n_links)
            shares = walked(case.net, network, flows, search.site, plan.splits)
            for size, share in zip(traffic.size, shares, strict=True):
                for link, part in share.items():
                    load[link] += size * part
            naive[KINDS.index(traffic.name)] = (load / np.asarray(network.capacity)).max()
        np.testing.assert_allclose(wire, naive, rtol=1e-9)


def walked(net, network, flows, site, splits):
    """Return the links of every flow with their shares, path by path, by names of nodes only."""
    labels, tags = net.labels, net.labels.tags
    inside = fb.routing.ecmp(network, flows)
    loads = link_shares(inside)
    switch = labels.forwards & (tags["server"] < 0)
    between = switch[labels.src] | switch[labels.dst]
    live = np.asarray(net.alive)
    of_ends = {}
    for link in np.flatnonzero(between & live).tolist():
        ends = int(labels.src[link]), int(labels.dst[link])
        of_ends.setdefault(ends, []).append(link)
    leads = lambda nic: tuple(sorted(b for a, b in of_ends if a == nic))
    docked = {int(nic): leads(int(nic)) for nic in np.unique(tags["nic"][net.hosts])}
    paths, width = site.paths, site.paths.width
    merged = paths.trunks.network.labels
    ways = {}
    for pair, way in np.argwhere(paths.valid).tolist():
        hops = [h for h in paths.hops[pair * width + way].tolist() if h < paths.n_trunks]
        nodes = [int(paths.start[pair]), *(int(merged.dst[h]) for h in hops)]
        first, last = (docked.get(n, (n,)) for n in (nodes[0], nodes[-1]))
        middle = [n for n in nodes if n not in docked]
        ways.setdefault((first, last), []).append((middle, splits[pair, way]))
    found = []
    for flow in range(flows.n_flows):
        a, b = (int(tags["nic"][int(end)]) for end in (flows.src[flow], flows.dst[flow]))
        share = {link: use for link, use in loads[flow].items() if not between[link]}
        if tags["server"][int(flows.src[flow])] != tags["server"][int(flows.dst[flow])]:
            same = [(list(docked[a]), 1.0)] if docked[a] == docked[b] and len(docked[a]) == 1 else 0
            for middle, part in same or ways[docked[a], docked[b]]:
                for ends in itertools.pairwise([a, *middle, b]):
                    for link in of_ends[ends]:
                        share[link] = share.get(link, 0) + part / len(of_ends[ends])
        found.append(share)
    return found


def link_shares(routes):
    """Return a dictionary of link to share for every flow."""
    parts = {}
    for bundle, link, use in zip(
        routes.part_bundle, routes.part_link, routes.part_use, strict=True
    ):
        parts.setdefault(int(bundle), []).append((int(link), float(use)))
    found = [{} for _ in range(routes.n_flows)]
    for flow, bundle, use in zip(routes.hop_flow, routes.hop_bundle, routes.hop_use, strict=True):
        for link, share in parts.get(int(bundle), [(int(bundle), 1.0)]):
            found[int(flow)][link] = found[int(flow)].get(link, 0) + float(use) * share
    return found


def test_scores_are_no_slower_than_exact_ones_and_no_faster_than_the_ideal(case):
    search = case.search
    ideal = search.cases.ideal
    for key in np.argsort(ideal)[:4].tolist():
        one, plan = search.open(key), search.starts[0]
        score, exact = search.score(one, plan), search.exact(one, plan).step_time
        assert ideal[key] <= score <= exact * (1 + 1e-9)


def test_better_plans_are_better_by_score_and_stay_plans(two_leaves):
    search = two_leaves.search
    begun, ideal = search.starts[0], search.cases.ideal
    opened = [search.open(key) for key in np.argsort(ideal)[:6].tolist()]
    one = max(opened, key=lambda c: search.score(c, begun) / ideal[c.key])
    placed = search.placed(one, begun, 40, (0,), guided=True)
    routed = search.routed(one, placed, 240)
    scores = [search.score(one, plan) for plan in (begun, placed, routed)]
    assert scores[0] > scores[1] > scores[2] >= ideal[one.key]
    np.testing.assert_array_equal(np.sort(placed.at), np.arange(4))
    np.testing.assert_allclose(routed.splits.sum(axis=1), 1.0, rtol=1e-12)
    assert (routed.splits[~search.site.paths.valid] == 0).all()


# The optimum of a small case


def least_wires(search, one, at):
    """Return the least seconds of every exchange over all splits, by a linear programme each."""
    site, even = search.site, Plan(at, search.sprayed)
    bytes_ = site.between(one.sent, at, len(KINDS))[:-1]
    paths, n = site.paths, site.paths.n_trunks
    rows = np.flatnonzero(paths.valid.ravel())
    least = search._ends(one, even, search.mixed(even)).copy()
    capacity = np.asarray(paths.trunks.network.capacity)
    for k in np.flatnonzero(bytes_.any(axis=0)):
        # Variables: a share per path, and the seconds.
        load = np.zeros((n, len(rows) + 1))
        for column, row in enumerate(rows):
            for trunk in paths.hops[row][paths.hops[row] < n]:
                load[trunk, column] += bytes_[row // paths.width, k] / capacity[trunk]
        load[:, -1] = -1
        each = np.zeros((paths.n_pairs, len(rows) + 1))
        each[rows // paths.width, np.arange(len(rows))] = 1
        cost = np.r_[np.zeros(len(rows)), 1.0]
        done = linprog(cost, load, np.zeros(n), each, np.ones(paths.n_pairs), method="highs")
        least[k] = max(least[k], done.fun)
    return least


def test_a_small_case_is_solved_to_the_optimum_over_all_placements_and_splits(two_leaves):
    """One pair of switches each way: all exchanges have their best splits at once, and what a
    linear programme finds for each of them is the best step."""
    search, best = two_leaves.search, np.inf
    for key in search.cases.keys:
        one = search.open(key)
        for at in itertools.permutations(range(4)):
            if at[0] < at[2] and at[1] < at[3]:  # listed by turns: within a leaf all are alike
                best = min(best, search.best(one, least_wires(search, one, np.array(at)))[0])
    assert two_leaves.report.objective == pytest.approx(best, rel=1e-4)
    assert two_leaves.report.bound <= best


def test_one_server_has_nothing_to_choose():
    net = fb.topologies.cluster("dgx-h100", nodes=1)
    found = optimize.joint(net, MODEL, control=False, **ASKED)
    plain = optimize.layout(net, MODEL, gbs=64, seq=8192, limits=ASKED["limits"], top=1)
    assert found.objective == pytest.approx(plain.objective, rel=1e-9)
    assert found.gap < 1e-9
    assert found.tables().rows() == []


def test_in_float32_the_bound_leaves_room_for_rounding_and_the_checkpoint_is_its_own(tmp_path):
    """Of one server exact and ideal are alike, so that the gap is the room that was left."""
    ask = partial(optimize.joint, model=MODEL, checkpoint=tmp_path / "kept", control=False, **ASKED)
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # capacities of links in float64
        net = fb.topologies.cluster("dgx-h100", nodes=1)
        found = ask(net)
    assert 3.5e-5 < found.gap < 1e-4
    with pytest.raises(ModelError, match="of another problem"):
        ask(net)


def test_options_may_be_numbers_of_numpy(two_leaves):
    options = ASKED | {"tolerance": np.float64(0.9), "seed": np.int64(1), "swaps": np.int32(3)}
    ask = inspect.unwrap(optimize.joint)
    found = ask(two_leaves.net, MODEL, allocation=two_leaves.gpus, control=False, **options)
    assert json.loads(json.dumps(found.as_dict()))["certified"] is True


def test_a_search_ends_where_the_gap_is_small_enough(two_leaves):
    report = two_leaves.report
    options = ASKED | {"allocation": two_leaves.gpus, "tolerance": 0.9, "control": False}
    early = optimize.joint(two_leaves.net, MODEL, **options)
    assert early.certified
    assert early.objective == early.before == report.before
    assert early.steps == 0 < report.steps


def test_servers_to_spare_are_left_idle_where_that_helps():
    """Two of five servers are asked for: those listed first are far apart, others share a leaf."""
    case = case_of("three tiers, servers to spare")
    leaf = case.net.labels.tags["leaf"]
    assert len(np.unique(leaf[case.gpus[:16]])) == 2
    assert len(np.unique(leaf[case.report.placement.endpoint_of])) == 1
    assert case.report.objective < case.report.before


def test_layouts_that_send_between_rails_are_left_out_where_no_path_joins_rails():
    report = case_of("separate rails in two planes").report
    assert 0 < report.lost < report.layouts


def test_a_single_layout_is_placed_and_routed(two_leaves):
    """With and without chunks that go around there are two sets of exchanges, and no others."""
    limits = {"tp": 1, "cp": 1, "pp": 16, "dp": 2, "mb": 1}
    options = ASKED | {"allocation": two_leaves.gpus, "limits": limits, "swaps": 3}
    found = optimize.joint(two_leaves.net, MODEL, control=False, **options)
    assert found.layouts == 2
    assert (found.layout.tp, found.layout.dp, found.layout.pp) == (1, 2, 16)


# Runs


def test_the_same_seed_gives_the_same_answer_interrupted_or_not(two_leaves, tmp_path, monkeypatch):
    """Stopped in the first round, and once more in the control."""
    ask = partial(
        optimize.joint, two_leaves.net, MODEL, checkpoint=tmp_path / "cut",
        **(ASKED | {"allocation": two_leaves.gpus}),
    )  # fmt: skip
    monkeypatch.setattr(Checkpoint, "due", True)
    left, last, save = [0], {}, Checkpoint.save

    def stopping(self, state):
        save(self, state)
        last.update(state)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", stopping)
    for left[0] in (9, 31):
        with pytest.raises(KeyboardInterrupt):
            ask()
    assert "control.round" in last
    again, whole = ask(), two_leaves.report
    for name in ("objective", "apart", "control", "evaluations", "steps", "solves"):
        assert getattr(again, name) == getattr(whole, name), name
    np.testing.assert_array_equal(again.splits, whole.splits)
    np.testing.assert_array_equal(again.history.objective, whole.history.objective)
    with pytest.raises(ModelError, match="of another problem"):
        ask(allocation=two_leaves.gpus[::-1])


# Errors


def test_all_faults_are_said_at_once():
    net = fb.topologies.leaf_spine(2, 2, 8)
    with pytest.raises(ModelError) as raised:
        inspect.unwrap(optimize.joint)(
            net, "llama", gbs=0, seq=8192, paths="best", swaps=0, tolerance=2, seed=-1,
            recompute="some", dtype="int8", limits={"ep": 2}, rank_orders="tp", gpus=0.5,
            least_margin="x", steps=None,
        )  # fmt: skip
    for said in ("needs servers", "Model.listed", "(gbs=", "`paths`", "`swaps`", "`tolerance`",
                 "`seed`", "recompute='some'", "int8", "limits={'ep'", "`rank_orders`", "`gpus`",
                 "`least_margin`", "`steps`"):  # fmt: skip
        assert said in str(raised.value)


def test_an_allocation_that_does_not_serve_is_refused(two_leaves):
    net, gpus = two_leaves.net, two_leaves.gpus
    ask = partial(optimize.joint, net, MODEL, **ASKED)
    with pytest.raises(ModelError, match="7 to 8 of 4 servers"):
        ask(allocation=gpus[1:])
    with pytest.raises(ModelError, match=r"`joint\(allocation\)` names nodes twice"):
        ask(allocation=gpus[:8] + gpus[:1])
    with pytest.raises(ModelError, match=r"`joint\(allocation\)` needs endpoints, but not so"):
        ask(allocation=[net.n_nodes - 1])
    with pytest.raises(ModelError, match=r"`joint\(allocation\)` needs a list .* 'gpu0'"):
        ask(allocation="gpu0")
    with pytest.raises(ModelError, match=r"`joint\(allocation\)` needs a list .* got 5"):
        inspect.unwrap(optimize.joint)(net, MODEL, allocation=5, **ASKED)
    with pytest.raises(ModelError, match="fills no whole servers of 8"):
        ask(allocation=gpus, gpus=12)
    with pytest.raises(InfeasibleError, match="the allocation has 32"):
        ask(allocation=gpus, gpus=64)
    with pytest.raises(InfeasibleError, match="suits and fits"):
        optimize.joint(
            net, fb.Model.listed("gpt-3-175b"), gbs=64, seq=2048, allocation=gpus[:8],
            limits={"pp": 1},
        )  # fmt: skip


def test_adapters_without_a_path_are_named(two_leaves):
    net, gpus = two_leaves.net, two_leaves.gpus
    alone = net.without(nodes=["spine0", "spine1", "spine2"])
    with pytest.raises(InfeasibleError, match=r"adapters that have no path .*leaf\d-host\d+"):
        optimize.joint(alone, MODEL, allocation=gpus, **ASKED)
    dead = net.without(nodes=["leaf0-host0"])
    with pytest.raises(InfeasibleError, match=r"no live link joins .*: 'server0-gpu0'"):
        optimize.joint(dead, MODEL, allocation=gpus, **ASKED)


def test_splits_are_refused_on_other_links(case):
    net, labels = case.net, case.net.labels
    switch = labels.forwards & (labels.tags["server"] < 0)
    trunk = int(np.flatnonzero(switch[labels.src] & switch[labels.dst] & np.asarray(net.alive))[0])
    with pytest.raises(ModelError, match="this network has others"):
        step_of(net.without(links=[trunk]), case.report)
