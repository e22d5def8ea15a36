"""What `optimize.placement` promises, one test per promise."""

import dataclasses
import functools
import itertools
import json

import jax
import numpy as np
import pytest

import fabric as fb
from fabric import optimize
from fabric._errors import InfeasibleError, ModelError
from fabric.optimize._placement_bound import _leaving, _parts, bound_of
from fabric.optimize._placement_input import rule_of, slots_of, traffic_of
from fabric.optimize._placement_score import Scorer
from fabric.optimize._placement_ways import ways_of
from fabric.optimize._swaps import moves_of
from fabric.runs import Checkpoint

RING = fb.Flows([0, 1, 2, 3], [2, 3, 0, 1], size=50e9)


def leaves(n_leaves=4, hosts=2, spines=1):
    return fb.topologies.leaf_spine(leaves=n_leaves, spines=spines, hosts_per_leaf=hosts)


def drawn(seed, ranks=8, share=0.4):
    rng = np.random.default_rng(seed)
    demand = rng.lognormal(0, 1, (ranks, ranks)) * 1e9 * (rng.random((ranks, ranks)) < share)
    demand[0, 1] = 1e9
    np.fill_diagonal(demand, 0)
    return demand


def problem(net, traffic, routing="spray", fluid=False, unit=None, allocation=None):
    asked = traffic_of(traffic, None)
    slots = slots_of(net, allocation, asked.n_ranks, unit)
    rule = rule_of(routing, 0)
    ways = ways_of(net, slots, rule)
    return asked, slots, ways, Scorer(net, asked, slots, rule, ways, fluid=fluid)


def rates(net, flows, routing):
    routes = routing(net, flows)
    return np.asarray(fb.max_min_rates(net, routes).rates)


def by_events(net, flows, routing):
    """Return the time at which the last flow is done, event by event."""
    left, now = np.asarray(flows.size).copy(), 0.0
    while (live := np.flatnonzero(left > 1e-9 * np.asarray(flows.size))).size:
        rate = rates(net, fb.Flows(np.asarray(flows.src)[live], flows.dst[live]), routing)
        step = (left[live] / rate).min()
        left[live] -= step * rate
        now += step
    return now


def test_ranks_that_talk_come_to_share_a_leaf():
    found = optimize.placement(leaves(2), RING, starts=1, budget=20)
    assert (found.before, found.objective, found.bound) == pytest.approx((2, 1, 1), rel=1e-12)
    assert found.certified
    leaf = leaves(2).labels.tags["leaf"][found.placement.endpoint_of]
    assert leaf[0] == leaf[2] != leaf[1] == leaf[3]


@pytest.mark.parametrize("routing", ["spray", "ecmp", "dimension_order"])
def test_scores_are_those_of_the_exact_solver(routing):
    net = fb.topologies.torus((2, 2, 2)) if routing == "dimension_order" else leaves(4, 2, 3)
    if routing == "spray":
        net = net.without(links=[int(np.flatnonzero(net.labels.is_tier("leaf-spine"))[0])])
    a, b = np.nonzero(drawn(0))
    rng = np.random.default_rng(1)
    columns = {
        "size": rng.lognormal(20, 1, len(a)), "weight": rng.uniform(0.5, 2, len(a)),
        "cap": rng.choice([5e9, np.inf], len(a)),
    }  # fmt: skip
    _, slots, _, score = problem(net, fb.Flows(a, b, **columns), routing)
    rule = rule_of(routing, 0).route
    orders = [rng.permutation(8) for _ in range(6)]
    want = []
    for order in orders:
        node = slots.node[order]
        flows = fb.Flows(node[a], node[b], **columns)
        want.append((columns["size"] / rates(net, flows, rule)).max())
    np.testing.assert_allclose(score(np.array(orders))[0], want, rtol=1e-12)


@pytest.mark.parametrize("routing", ["ecmp", fb.routing.ecmp])
def test_hashed_placements_are_worth_what_the_library_says_of_them(routing):
    net, demand = leaves(4, 2, 3), drawn(9)
    a, b = np.nonzero(demand)
    found = optimize.placement(net, demand, routing=routing, starts=4, budget=200, seed=2)

    def worth(node):
        flows = fb.Flows(node[a], node[b])
        return demand[a, b] / rates(net, flows, functools.partial(fb.routing.ecmp, seed=seed))

    seed = 2 if routing == "ecmp" else 0
    first = net.hosts[:8]
    assert worth(found.placement.endpoint_of).max() == pytest.approx(found.objective, rel=1e-12)
    assert found.objective <= worth(first).max() * (1 + 1e-12)


def test_completion_is_that_of_a_plain_event_loop():
    net = leaves()
    a, b = np.nonzero(drawn(2))
    size = np.random.default_rng(3).lognormal(20, 1, len(a))
    _, slots, _, score = problem(net, fb.Flows(a, b, size=size), fluid=True)
    orders = [np.random.default_rng(seed).permutation(8) for seed in range(3)]
    want = [
        by_events(net, fb.Flows(slots.node[o][a], slots.node[o][b], size), fb.routing.spray)
        for o in orders
    ]
    np.testing.assert_allclose(score(np.array(orders))[0], want, rtol=1e-9)


def test_phases_run_one_after_another():
    net = leaves(2)
    one, other = fb.Flows([0], [1], size=50e9), fb.Flows([0, 1], [2, 2], size=50e9)
    score = lambda traffic: problem(net, traffic, allocation=net.hosts[:3])[3](np.arange(3)[None])
    seconds, _ = score([one, other])
    # The whole port of a host for the first, half of it for each of the two that follow.
    assert seconds[0] == pytest.approx(1 + 2, rel=1e-12)


def test_a_limit_rules_out_only_what_takes_longer():
    _, _, _, score = problem(leaves(), drawn(4), fluid=True)
    orders = np.array([np.random.default_rng(seed).permutation(8) for seed in range(40)])
    every, _ = score(orders)
    some, _ = score(orders, float(np.median(every)))
    kept = np.isfinite(some)
    assert not kept.all()
    assert (every[~kept] > np.median(every)).all()
    np.testing.assert_array_equal(some[kept], every[kept])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fluid", [False, True])
def test_no_placement_beats_the_bound(seed, fluid):
    orders = np.array(list(itertools.permutations(range(6))))
    for net in (leaves(3), fb.topologies.torus((3, 2)), leaves(2, 3).degraded(nodes=["leaf0"])):
        asked, slots, ways, score = problem(net, drawn(seed, 6), fluid=fluid)
        best = score(orders)[0].min()
        bound = bound_of(net, slots, asked, ways)
        assert 0 < bound <= best * (1 + 1e-12)
        assert bound_of(net, slots, asked, None) <= best * (1 + 1e-12)


@pytest.mark.parametrize("share", [0.15, 0.4, 1])
def test_what_leaves_every_number_of_units_is_at_most_the_least_of_all_subsets(share):
    for seed in range(5):
        demand = drawn(seed, 7, share)
        found = _leaving(_parts(demand, 2))
        for k in range(1, 7):
            chosen = list(itertools.combinations(range(7), k))
            inside = np.array([np.isin(np.arange(7), c) for c in chosen], float)
            out = np.einsum("za,ab,zb->z", inside, demand, 1 - inside)
            into = np.einsum("za,ab,zb->z", 1 - inside, demand, inside)
            for bound, truth in zip(found, (out, into, out + into), strict=True):
                assert bound[k] <= truth.min() * (1 + 1e-9)


def test_what_leaves_groups_that_talk_all_to_all_is_exact():
    demand = np.kron(np.eye(3), np.ones((5, 5)) - np.eye(5))
    # Of 7 units, one whole group and two of another, each with three partners outside.
    np.testing.assert_allclose(
        _leaving(_parts(demand, 2)).both[[5, 6, 7, 10]], [0, 8, 12, 0], atol=1e-9
    )


@pytest.mark.parametrize("ranks", [16, 14])
def test_bounds_hold_for_more_units_than_all_subsets_can_be_tried_of(ranks):
    net = leaves(4, 4)
    for seed in range(4):
        asked, slots, ways, score = problem(net, drawn(seed, ranks), allocation=net.hosts)
        draw = np.random.default_rng(seed)
        orders = np.array([draw.permutation(16)[:ranks] for _ in range(300)])
        assert bound_of(net, slots, asked, ways) <= score(orders)[0].min()


def test_groups_that_fit_under_leaves_are_proved_optimal():
    groups = np.random.default_rng(0).permutation(16).reshape(4, 4)
    demand = np.zeros((16, 16))
    for group in groups:
        demand[np.ix_(group, group)] = 1e9
    np.fill_diagonal(demand, 0)
    found = optimize.placement(leaves(4, 4), demand, starts=6, budget=3000, control=False)
    assert found.certified
    assert found.objective == pytest.approx(3e9 / 50e9, rel=1e-12)
    leaf = leaves(4, 4).labels.tags["leaf"][found.placement.endpoint_of]
    assert all(len(set(leaf[group])) == 1 for group in groups)


def test_a_budget_of_all_placements_proves_the_optimum():
    net = fb.topologies.torus((3, 2))
    found = optimize.placement(net, drawn(1, 6), budget=720, control=False)
    _, _, _, score = problem(net, drawn(1, 6))
    assert found.evaluations == 720
    assert found.certified
    best = score(np.array(list(itertools.permutations(range(6)))))[0].min()
    assert found.objective == pytest.approx(best, rel=1e-12)


def test_the_same_seed_gives_the_same_answer_and_is_never_worse_than_sorted():
    net = leaves(3, 3)
    ask = lambda seed: optimize.placement(net, drawn(5, 9), starts=3, budget=150, seed=seed)
    one, again = ask(7), ask(7)
    np.testing.assert_array_equal(one.placement.endpoint_of, again.placement.endpoint_of)
    assert (one.control, one.steps, one.evaluations) == (again.control, again.steps, 150)
    assert one.bound <= one.objective <= one.before
    assert one.control >= one.bound
    np.testing.assert_array_equal(one.history.steps, again.history.steps)
    assert (np.diff(one.history.objective) <= 1e-12).all()


@pytest.mark.parametrize("when", [1, 4, 9])
def test_killed_and_resumed_gives_the_same_result(tmp_path, monkeypatch, when):
    net, file = leaves(3, 3), tmp_path / "placement.ckpt"
    ask = lambda **more: optimize.placement(
        net, drawn(5, 9), starts=4, budget=500, control=False, **more
    )
    whole = ask()
    save, saved = Checkpoint.save, []

    def killed(self, state):
        save(self, state)
        saved.append(state["used"])
        if len(saved) == when:
            raise KeyboardInterrupt

    # After every batch, so that searches are cut off in the middle of a descent.
    monkeypatch.setattr(Checkpoint, "due", True)
    monkeypatch.setattr(Checkpoint, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        ask(checkpoint=file)
    monkeypatch.setattr(Checkpoint, "save", save)
    assert saved[-1] < 500
    # The second time nothing is left to do.
    for resumed in (ask(checkpoint=file), ask(checkpoint=file)):
        np.testing.assert_array_equal(resumed.placement.endpoint_of, whole.placement.endpoint_of)
        assert resumed.history.as_dict() == whole.history.as_dict()
        assert (resumed.evaluations, resumed.steps) == (whole.evaluations, whole.steps)


def test_a_checkpoint_belongs_to_one_routing_and_one_type_of_number(tmp_path):
    net, kept = leaves(3, 3), tmp_path / "run"
    ask = functools.partial(
        optimize.placement, net, drawn(5, 9), starts=1, budget=20, control=False
    )
    ask(routing=fb.routing.spray, checkpoint=kept)
    assert ask(routing=fb.routing.spray, checkpoint=kept).objective > 0
    hashed = functools.partial(fb.routing.ecmp, key="ends", seed=1)
    with jax.enable_x64(False), pytest.raises(ModelError, match="of another problem"):
        ask(routing=fb.routing.spray, checkpoint=kept)
    with pytest.raises(ModelError, match="of another problem"):
        ask(routing=hashed, checkpoint=kept)
    own = lambda network, flows: fb.routing.spray(network, flows)
    with pytest.raises(ModelError, match="tell one routing from another"):
        ask(routing=own, checkpoint=tmp_path / "own")


def test_options_of_numpy_give_a_report_that_json_takes():
    found = optimize.placement(leaves(2), RING, starts=1, budget=5, tolerance=np.float64(0.1))
    told = json.loads(json.dumps(found.as_dict()))
    assert isinstance(told["certified"], bool)
    assert told["schema"] == "fabric.optimize.placement/1"
    unbounded = dataclasses.replace(found, gap=np.inf, control=np.nan).as_dict()
    assert (unbounded["gap"], unbounded["control"]) == (None, None)


def test_the_control_has_as_many_evaluations_gradients_counted(monkeypatch):
    net, scored = leaves(3, 3).degraded(nodes=["leaf0"], factor=0.5), []
    call = Scorer.__call__
    counted = lambda self, at, limit=np.inf: scored.append((self, len(at))) or call(self, at, limit)
    monkeypatch.setattr(Scorer, "__call__", counted)
    found = optimize.placement(net, drawn(5, 9), starts=3, budget=150, objective="completion")
    ours, control = (
        sum(n for of, n in scored if of is scorer)
        for scorer in dict.fromkeys(of for of, _ in scored)
    )
    assert found.steps > 0
    assert ours == found.evaluations == 150
    assert control == found.evaluations + found.steps


def rails(servers=4, missing=(), swapped=None):
    """Return servers of 4 NICs on 4 rails under slow spines; of one, two NICs change leaves."""
    net = fb.topologies.rail_optimized(servers=servers, rails=4, radix=16, leaf_up=1, leaf_down=8)
    labels = net.labels
    if swapped is not None:
        a, b = (labels.node(f"server{swapped}-nic{i}") for i in (0, 1))
        exchange = lambda ends: np.where(ends == a, b, np.where(ends == b, a, ends))
        labels = dataclasses.replace(labels, src=exchange(labels.src), dst=exchange(labels.dst))
        net = fb.Network(net.capacity, net.latency, net.alive, net.routing_cost, labels=labels)
    gone = np.isin(labels.tags["server"], list(missing)) & labels.endpoint
    return net.without(nodes=gone) if len(missing) else net


def rail_rings(servers):
    ranks = np.arange(servers * 4).reshape(servers, 4)
    return fb.Flows(ranks.ravel(), np.roll(ranks, -1, axis=0).ravel(), size=50e9)


def test_servers_move_whole_and_failed_ones_are_left_out():
    net = rails(5, missing=(1,))
    found = optimize.placement(net, rail_rings(4), starts=1, budget=200, control=False)
    servers = net.labels.tags["server"][found.placement.endpoint_of].reshape(4, 4)
    assert found.unit == "server"
    assert (servers == servers[:, :1]).all()
    assert set(servers[:, 0]) == {0, 2, 3, 4}
    assert found.objective == pytest.approx(1, rel=1e-12)
    assert found.certified


def test_ranks_change_places_within_a_server_whose_rails_are_swapped():
    net = rails(4, swapped=2)
    found = optimize.placement(net, rail_rings(4), starts=1, budget=600, control=False)
    assert found.before > 1.5
    assert found.objective == pytest.approx(1, rel=1e-12)
    twisted = [i for i, name in enumerate(found.servers) if name == "server2"]
    assert [found.gpus[i] for i in twisted] == [1, 0, 2, 3]


def test_gpus_whose_nic_lost_its_cable_are_left_out_with_their_server():
    net = fb.topologies.cluster("dgx-h100", nodes=3)
    nic = int(net.labels.tags["nic"][net.labels.node("server1-gpu3")])
    ends = (net.labels.src == nic) & net.labels.is_tier("host")
    net = net.without(links=np.flatnonzero(ends))
    slots = slots_of(net, None, 16, None)
    assert slots.group == 8
    assert set(net.labels.tags["server"][slots.node].tolist()) == {0, 2}
    with pytest.raises(InfeasibleError, match="24 ranks need as many endpoints, but 23"):
        slots_of(net, None, 24, None)


def test_the_spare_endpoints_of_an_allocation_are_used_where_they_help():
    net = leaves(2, 3)
    names = ["leaf0-host0", "leaf0-host1", "leaf1-host0", "leaf1-host1", "leaf1-host2"]
    ring = fb.Flows([0, 1, 2], [1, 2, 0], size=50e9)
    slow = net.degraded(nodes=["spine0"], factor=0.1)
    found = optimize.placement(slow, ring, allocation=names, starts=1, budget=100, control=False)
    assert {name[:5] for name in found.endpoints} == {"leaf1"}
    assert found.objective == pytest.approx(1, rel=1e-12)


def test_every_exchange_is_among_the_moves_once():
    slots = slots_of(rails(5), None, 16, "server")
    moves = moves_of(slots, 16)
    pairs = set(zip(*(column.tolist() for column in moves[:3]), strict=True))
    assert len(pairs) == len(moves.first) == 4 * 3 // 2 + 4 + 4 * 6  # 4 with the spare server
    assert moves.units == 10


def test_a_rule_under_which_flows_depend_on_each_other_is_routed_anew():
    net = leaves(2, 2, 2).degraded(nodes=["spine1"], factor=0.5)
    found = optimize.placement(net, RING, routing="adaptive", starts=1, budget=30, control=False)
    assert found.objective == pytest.approx(1, rel=1e-9)
    assert found.bound <= found.objective


def test_files_for_launchers_name_server_and_gpu_of_every_rank():
    net = rails(3, missing=(0,))
    found = optimize.placement(net, rail_rings(2), starts=1, budget=10, control=False)
    lines = found.rank_file().splitlines()
    assert lines[0] == "rank 0=server1 slot=0"
    assert lines[7] == "rank 7=server2 slot=3"
    assert found.slurm_hostfile().split() == ["server1"] * 4 + ["server2"] * 4
    # With a list of nodes srun does not read the hostfile.
    assert found.slurm_options == "--distribution=arbitrary --ntasks=8 --nodes=2"
    assert found.slurm_nodes == "server1,server2"
    assert found.gpu_file().split() == list("01230123")
    assert found.ring_order()[:5] == [*(f"server1-nic{i}" for i in range(4)), "server2-nic0"]
    assert json.loads(json.dumps(found.as_dict()))["endpoints"] == found.ring_order()
    assert "certified" in str(found)


def test_all_faults_of_the_options_are_told_at_once():
    with pytest.raises(ModelError) as error:
        optimize.placement(leaves(2), RING, objective="fastest", unit="rack", starts=0, tolerance=2)
    said = str(error.value)
    assert all(word in said for word in ("objective='fastest'", "unit='rack'", "starts", "tol"))


@pytest.mark.parametrize(
    ("traffic", "options", "error", "said"),
    [
        (fb.Flows([0], [1]), {}, ModelError, "needs the size of every flow"),
        (fb.Flows([0], [0], size=1.0), {}, ModelError, "sends nothing"),
        (np.full((2, 2), -1.0), {}, ModelError, "0 to 1"),
        (np.ones((2, 3)), {}, ModelError, r"shape \(2, 3\)"),
        (np.ones((9, 9)), {}, InfeasibleError, "9 ranks need as many endpoints, but 8"),
        (RING, {"ranks": 2}, ModelError, "rank 3"),
        (RING, {"ranks": 0}, ModelError, "`ranks` needs a whole number"),
        ([[0, 1], [1]], {}, ModelError, "needs `Flows` between ranks"),
        (fb.Flows([-1, 0], [0, 1], size=1.0), {}, ModelError, "ranks '-1'"),
        (fb.Flows([0], [1], size=1.0, cap=0.0), {}, ModelError, "a cap of 0 never ends"),
        ([RING, fb.Flows([0], [1], size=1.0, start=2.0)], {}, ModelError, "flows of phase 1: '0'"),
        (RING, {"tolerance": True}, ModelError, "`tolerance` needs"),
        (RING, {"tolerance": np.nan}, ModelError, "`tolerance` needs"),
        (RING, {"budget": 0}, ModelError, "`budget` needs a whole number"),
        (RING, {"allocation": "leaf0-host0"}, ModelError, "a list of endpoints"),
        (RING, {"allocation": []}, InfeasibleError, "0 endpoints"),
        (RING, {"routing": "sprai"}, ModelError, "'spray'"),
        (RING, {"unit": "server"}, ModelError, "unit='rank'"),
        (RING, {"allocation": ["leaf0-host0"] * 2}, ModelError, "twice"),
        (RING, {"allocation": ["leaf0", "spine0"]}, ModelError, "needs endpoints"),
    ],
)  # fmt: skip
def test_what_cannot_be_placed_says_why(traffic, options, error, said):
    with pytest.raises(error, match=said):
        optimize.placement(leaves(), traffic, **options)


def test_endpoints_may_be_names_and_phases_empty():
    net = leaves(2)
    names = np.array([net.labels.names[i] for i in net.hosts])
    one = optimize.placement(net, RING, starts=2, budget=20, seed=1, allocation=names)
    other = optimize.placement(net, RING, starts=2, budget=20, seed=1)
    np.testing.assert_array_equal(one.placement.endpoint_of, other.placement.endpoint_of)
    # Empty phases take no time.
    empty = fb.Flows([0], [1], size=0.0)
    phases = optimize.placement(net, [empty, RING, empty], budget=20)
    assert phases.objective == pytest.approx(one.objective, rel=1e-12)


def test_single_ranks_are_moved_where_whole_servers_do_not_suffice():
    net = rails(3).without(nodes=["server1-nic2", "server2-nic0"])
    flows = fb.Flows(np.arange(8), np.roll(np.arange(8), 1), size=1e9)
    found = optimize.placement(net, flows, starts=1, budget=5, control=False)
    assert found.unit == "rank"
    with pytest.raises(InfeasibleError, match="but 4 endpoints in servers of 4"):
        optimize.placement(net, flows, unit="server")


def test_an_endpoint_without_a_live_link_is_named():
    net = leaves(2).without(nodes=["leaf0-host1"])
    with pytest.raises(InfeasibleError, match="leaf0-host1"):
        optimize.placement(net, RING, allocation=net.hosts)
