"""What the experiment on fabrics promises: a row for every claim, and numbers with closed forms."""

import json

import numpy as np
import pytest

import fabric as fb
from experiments.__main__ import main
from experiments.fabrics import equal_cost, experiment, optical, rails, scale, training
from experiments.rows import VERDICTS

CLAIMS = {"A03", "A04", "A05", "A50", "A51", "A54", "A55", "A56", "A57"}


@pytest.fixture(scope="module")
def answer():
    return experiment.run(smoke=True)


def test_a_smoke_run_has_rows_for_every_claim_and_none_falls_short(answer, monkeypatch, capsys):
    monkeypatch.setattr(experiment, "run", lambda smoke: answer)
    assert main(["fabrics", "--smoke", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {row["id"][:3] for row in said["rows"]} == CLAIMS
    assert {row["verdict"] for row in said["rows"]} <= set(VERDICTS) - {"short"}
    assert all(row["note"] for row in said["rows"] if row["refuted"])
    assert all(row["source"] for row in said["rows"])
    names = [row["id"] for row in said["rows"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("radix", [4, 6, 8])
def test_a_builder_takes_as_many_hosts_as_the_formula_says_and_no_more(radix):
    assert scale.most_hosts(radix, 2) == radix**2 // 2
    assert scale.most_hosts(radix, 3) == radix**3 // 4


def test_a_leaf_touches_every_server_of_its_unit_with_rails_and_four_without():
    hit = {name: rails.touched(net) for name, net in rails.fabrics().items()}
    assert hit["rails"].tolist() == [1 / 8] * 32
    assert hit["one leaf"].tolist() == [1.0] * 4
    for name, net in rails.fabrics().items():
        blast = rails.blast_of_leaf(net)
        assert (blast.servers, blast.cut_off) == (len(hit[name]), 32)
        assert blast.whole == (hit[name] == 1).sum()


def test_uplinks_of_hashed_flows_are_found_one_for_each_that_leaves_its_leaf():
    net = rails.fabrics()["one leaf"]
    labels = net.labels
    up = labels.is_kind("leaf")[labels.src] & labels.is_kind("spine")[labels.dst]
    flows = rails.rings(net, np.arange(rails.SERVERS))
    found = rails.uplinks(fb.routing.ecmp(net, flows, seed=1), up)
    leaf = labels.tags["leaf"]
    assert len(found) == int((leaf[flows.src] != leaf[flows.dst]).sum()) == 256
    assert up[found].all()


def test_rails_of_two_tiers_save_nothing_where_two_tiers_suffice():
    saved = {row.id: row for row in training.savings(smoke=False)}
    row = saved["A55 switches that rails alone save, 8,192 GPUs"]
    assert (row.computed, row.verdict) == (0.0, "refuted")
    # 8 switches of 128 ports in place of 16 leaves and 8 spines.
    assert saved["A55 switches that rails alone save, 1,024 GPUs"].computed == pytest.approx(2 / 3)


@pytest.mark.parametrize("blocks", [4, 5, 6])
def test_a_permutation_over_a_mesh_of_blocks_gets_the_published_share(blocks):
    mesh = fb.topologies.direct_connect(blocks, blocks - 1)
    shift = np.roll(np.eye(blocks), 1, axis=1)
    share = optical.best_one_transit(mesh, shift) / (blocks - 1)
    assert share == pytest.approx(blocks / (2 * (blocks - 1)), rel=1e-6)  # solver of the programme


@pytest.mark.parametrize(("blocks", "ports"), [(5, 4), (9, 8)])
def test_circuits_of_a_ring_are_symmetric_and_use_every_port(blocks, ports):
    circuits = optical.ring_circuits(blocks, ports)
    assert (circuits == circuits.T).all()
    assert set(circuits.sum(axis=1).tolist()) == {ports}


def test_a_reconfiguration_pays_from_where_it_saves_its_own_time():
    seconds = optical.break_even(0.625, 10.0)
    assert seconds / 0.625 == pytest.approx(seconds + 10.0, rel=1e-12)


def test_implied_prices_give_both_fat_trees_back():
    prices = equal_cost.implied()
    for name in ("2-layer fat tree", "3-layer fat tree"):
        n, switches, cables, quoted = equal_cost.TABLE[name]
        cost = (switches * prices["switch"] + cables * prices["cable"]) / n
        assert cost == pytest.approx(quoted, rel=1e-12)


def test_the_cost_of_a_design_is_that_of_its_ports_cables_and_circuits():
    net = fb.topologies.leaf_spine(leaves=4, spines=2, hosts_per_leaf=4)
    design = equal_cost.Design(net, fb.routing.spray, net.hosts.reshape(2, 8), circuits=3)
    prices = {"switch": 64.0, "cable": 5.0, "circuit": 2.0}
    # 16 ports to hosts and 2 x 8 between switches at a price of 1; 8 cables; 3 circuits.
    assert design.cost(prices) == pytest.approx((16 + 16 + 8 * 5 + 3 * 2) / 16, rel=1e-12)


def test_groups_in_a_ring_have_long_cables_to_both_neighbours_only():
    net = equal_cost.ring_of_groups(5)
    labels = net.labels
    far = labels.is_tier("global")
    group = labels.tags["group"]
    apart = (group[labels.dst[far]] - group[labels.src[far]]) % 5
    assert set(apart.tolist()) == {1, 4}
    _, a, h = equal_cost.GROUP
    assert far.sum() == 5 * a * h
    routers = equal_cost.on_routers(net)
    assert all(len(set(group[row].tolist())) == 1 for row in routers)
