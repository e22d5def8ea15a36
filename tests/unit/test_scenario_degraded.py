"""What `fabric.failed.degraded` of a scenario promises, one test per promise."""

import numpy as np
import pytest
import yaml

from fabric._errors import ModelError
from fabric.scenario import Scenario

SMALL = {
    "schema": 1,
    "model": "llama-3.1-8b",
    "fabric": {"cluster": "dgx-h100", "nodes": 4},
    "layout": "tp8 sp dp4 zero1 gbs16 seq8192 recompute=selective",
}


@pytest.fixture
def scenario(tmp_path):
    """Return a scenario with something out of order."""

    def made(failed):
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(SMALL | {"fabric": SMALL["fabric"] | {"failed": failed}}))
        return Scenario.load(path)

    return made


def test_degraded_nodes_and_cables_carry_a_part_both_ways(scenario):
    asked = {"nodes": ["server1-nic3"], "links": ["unit0-leaf0->spine1"], "factor": 0.25}
    built = scenario({"degraded": asked}).build()
    labels, network = built.network.labels, built.network
    nic = labels.node("server1-nic3")
    slow = np.asarray(network.capacity) != np.asarray(built.whole.capacity)
    ends = (labels.src == nic) | (labels.dst == nic)
    names = [network.link_name(int(link)) for link in np.flatnonzero(slow & ~ends)]
    assert names == ["unit0-leaf0->spine1", "spine1->unit0-leaf0"]
    assert slow[ends].all()
    np.testing.assert_array_equal(
        np.asarray(network.capacity)[slow], np.asarray(built.whole.capacity)[slow] / 4
    )
    assert np.asarray(network.alive).all()


def test_a_slow_nic_slows_the_step_and_leaves_no_server_out(scenario):
    step = scenario({"degraded": {"nodes": ["server1-nic3"], "factor": 0.5}}).step()
    whole = scenario({}).step()
    assert step.step_time > whole.step_time


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        (
            {"degraded": {"nodes": ["spin1"], "factor": 0.5}},
            r"`fabric.failed.degraded.nodes` .*'spin1' is no node.*'spine1'",
        ),
        (
            {"degraded": {"links": ["x"], "factor": 0.5}},
            r"`fabric.failed.degraded.links` .*'x' is no link",
        ),
        ({"degraded": {"factor": 0}}, r"fabric.failed.degraded.factor"),
        ({"degraded": {"factor": 1.5}}, r"fabric.failed.degraded.factor"),
        ({"degraded": {"nods": []}}, r"no key `nods`.*Did you mean 'nodes'"),
        ({"degraded": {"nodes": ["spine1"]}}, r"`factor` of `fabric.failed.degraded` .*missing"),
        ({"degraded": {"factor": 0.5}}, r"`fabric.failed.degraded` .*names nothing that is slow"),
        (
            {"degraded": {"nodes": [], "links": [], "factor": 0.5}},
            r"`fabric.failed.degraded` .*names nothing that is slow",
        ),
        (
            {"nodes": ["spine1"], "degraded": {"nodes": ["spine0", "spine1"], "factor": 0.5}},
            r"`fabric.failed.degraded.nodes` .*'spine1' has failed, by `fabric.failed`",
        ),
        (
            {"nodes": ["server2"], "degraded": {"nodes": ["server2-nic3"], "factor": 0.5}},
            r"'server2-nic3' has failed",
        ),
        (
            {"nodes": ["spine1"], "degraded": {"links": ["unit0-leaf0->spine1"], "factor": 0.5}},
            r"`fabric.failed.degraded.links` .*'unit0-leaf0->spine1' has failed",
        ),
        (
            {
                "links": ["unit0-leaf0->spine1"],
                "degraded": {"links": ["spine1->unit0-leaf0"], "factor": 0.5},
            },
            r"'spine1->unit0-leaf0' has failed",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(scenario, failed, said):
    with pytest.raises(ModelError, match=said):
        scenario(failed).build()


def test_a_server_is_degraded_where_one_of_its_parts_has_failed(scenario):
    slow = {"nodes": ["server1"], "factor": 0.5}
    built = scenario({"nodes": ["server1-nvswitch0"], "degraded": slow}).build()
    nic = built.network.labels.node("server1-nic2")
    ends = built.network.labels.src == nic
    np.testing.assert_array_equal(
        np.asarray(built.network.capacity)[ends], np.asarray(built.whole.capacity)[ends] / 2
    )


@pytest.mark.parametrize(
    ("slow", "notes"),
    [
        ({"nodes": ["server1-nic3"]}, 0),
        ({"nodes": ["server1"]}, 0),
        ({"links": ["unit0-leaf0->spine1"]}, 1),
        ({"nodes": ["spine1"]}, 1),
    ],
    ids=str,
)
def test_only_slow_cables_between_switches_are_worth_a_word_about_spray(scenario, slow, notes):
    said = scenario({"degraded": slow | {"factor": 0.5}}).answer().notes
    assert len(said) == notes
