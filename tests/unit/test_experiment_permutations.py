"""What the experiment on permutations promises: its rates, its cures, and the closed forms."""

import json
import math

import numpy as np
import pytest

import fabric as fb
from experiments.__main__ import main
from experiments.permutations import cures, drawn, experiment
from fabric.reference import Problem, max_min_rates_by_levels


@pytest.fixture(scope="module")
def small():
    return fb.topologies.leaf_spine(leaves=4, spines=4, hosts_per_leaf=4, capacity="8GB/s")


@pytest.fixture(scope="module")
def answer():
    return experiment.run(smoke=True)


def test_a_smoke_run_reproduces_every_row(answer, monkeypatch, capsys):
    monkeypatch.setattr(experiment, "run", lambda smoke: answer)
    assert main(["permutations", "--smoke", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {row["verdict"] for row in said["rows"]} == {"holds"}
    assert {row["id"][:3] for row in said["rows"]} == {"A52", "A53"}
    names = [row["id"] for row in said["rows"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("queue_pairs", [1, 4])
def test_rates_are_those_of_the_plain_oracle_in_units_of_a_host_link(small, queue_pairs):
    found = drawn.draw(small, drawn.hashed(queue_pairs), draws=2)
    for seed in range(2):
        flows = drawn.permuted(small, seed)
        routes = fb.routing.ecmp(small, flows, seed=seed, queue_pairs=queue_pairs)
        paths = [[] for _ in range(routes.n_flows)]
        for flow, link in zip(routes.hop_flow, routes.hop_bundle, strict=True):
            paths[flow].append((int(link), 1.0))
        problem = Problem(
            capacity=np.asarray(small.capacity).tolist(), uses=paths,
            weight=[1 / queue_pairs] * routes.n_flows, cap=[None] * routes.n_flows,
        )  # fmt: skip
        rows = max_min_rates_by_levels(problem).reshape(-1, queue_pairs) / 8e9
        np.testing.assert_allclose(found.rates[seed], rows.sum(axis=1), rtol=1e-12)
        np.testing.assert_allclose(found.whole[seed], rows.min(axis=1) * queue_pairs, rtol=1e-12)


def test_hosts_that_stay_in_place_are_left_out_and_pairs_under_a_leaf_count(small):
    flows = [drawn.permuted(small, seed) for seed in range(40)]
    assert all((each.src != each.dst).all() for each in flows)
    assert min(each.n_flows for each in flows) < len(small.hosts)
    leaf = small.labels.tags["leaf"]
    assert any((leaf[each.src] == leaf[each.dst]).any() for each in flows)


def test_uplinks_that_carry_nothing_are_counted(small):
    found = drawn.draw(small, drawn.hashed(), draws=1)
    routes = fb.routing.ecmp(small, drawn.permuted(small, 0), seed=0)
    names, into = small.labels.names, small.labels.dst
    busy = {
        int(link) for link in np.asarray(routes.hop_bundle) if names[int(into[link])][:5] == "spine"
    }
    assert found.idle[0] == pytest.approx(1 - len(busy) / 16, abs=1e-12)


def test_uplinks_alone_give_what_balls_in_bins_leave(answer):
    rows = {row.id: row for row in answer.rows}
    row = rows["A52 uplinks alone, 32 of them, mean rate"]
    # Each of 32 bins is missed by all of 32 balls with probability (31 / 32)^32.
    assert row.quoted == pytest.approx(1 - (31 / 32) ** 32, rel=1e-12)
    assert row.error == pytest.approx(0, abs=row.allowed)
    assert rows["A52 uplinks alone, many of them"].quoted == pytest.approx(1 - 1 / math.e)


def test_a_message_that_waits_for_its_slowest_row_is_no_faster_than_the_sum(small):
    found = drawn.draw(small, drawn.hashed(8), draws=4)
    for rates, whole in zip(found.rates, found.whole, strict=True):
        assert (whole <= rates * (1 + 1e-12)).all()
    assert found.mean_whole < found.mean


def test_each_cure_gives_back_more_the_further_it_goes(answer):
    said = answer.summary
    for name in ("A53 queue pairs", "A53 flowlets"):
        for what in ("mean rate", "slowest"):
            assert np.all(np.diff(said[f"{name}, {what}"]) > 0)
    assert np.all(np.diff(said["A53 groups, mean rate"]) <= 0)
    assert said["A53 groups, mean rate"][-1] == said["A53 queue pairs, mean rate"][0]
    assert np.all(np.diff(said["A52 rate of a flow"]) >= 0)


def test_groups_exchange_within_themselves_and_rings_pass_every_host_once(small):
    hosts = np.asarray(small.hosts).tolist()
    flows = cures.grouped(4)(small, seed=3)
    group = {host: i // 4 for i, host in enumerate(hosts)}
    assert all(group[int(a)] == group[int(b)] for a, b in zip(flows.src, flows.dst, strict=True))
    for by_leaf in (True, False):
        ring = cures.ring(by_leaf)(small, seed=3)
        after = dict(zip(np.asarray(ring.src).tolist(), np.asarray(ring.dst).tolist(), strict=True))
        at, seen = hosts[0], set()
        while at not in seen:
            seen.add(at)
            at = after[at]
        assert len(seen) == len(hosts)


def test_the_standard_error_is_that_of_the_means_of_draws():
    found = drawn.Drawn([np.array([1.0, 0.0]), np.array([1.0, 1.0])], [], [])
    assert found.mean == 0.75
    assert found.error == pytest.approx(0.25)
    assert found.slowest == 0.5
