"""What `components`, `Network.degraded` and `UnreachableError` promise, one test per promise."""

import numpy as np
import pytest

import fabric as fb
from fabric import hardware
from fabric._errors import InfeasibleError, ModelError, UnreachableError
from fabric.reliability import components


@pytest.fixture(scope="module")
def rails():
    nics = fb.topologies.rail_optimized(servers=4, radix=16)
    return fb.topologies.attach_servers(
        nics, hardware.server("dgx-h100"), nics.hosts.reshape(-1, 8)
    )


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("nic", 32), ("gpu", 32), ("server", 4), ("leaf", 8), ("nvswitch", 16),
        ("nvlink", 128), ("rail", 8), ("socket", 8),
    ],
)  # fmt: skip
def test_components_of_a_kind_are_counted(rails, kind, count):
    assert len(components(rails, kind)) == count


def test_every_cable_is_one_component_whose_links_are_both_directions(rails):
    cables = components(rails, "link")
    assert 2 * len(cables) == rails.n_links
    labels = rails.labels
    for number in (0, len(cables) - 1):
        a, b = cables.items(number)
        assert (labels.src[a], labels.dst[a]) == (labels.dst[b], labels.src[b])
        assert int((~np.asarray(cables.failed(number).alive)).sum()) == 2


def test_switches_are_those_of_the_fabric_and_not_those_inside_servers(rails):
    switches = components(rails, "switch")
    kinds = {rails.labels.kinds[code] for code in rails.labels.kind_of[switches.item]}
    assert kinds == {"leaf", "spine"}


def test_a_server_fails_with_everything_in_it(rails):
    servers = components(rails, "server")
    inside = rails.labels.tags["server"] == 2
    np.testing.assert_array_equal(np.sort(servers.items(2)), np.flatnonzero(inside))
    touched = inside[rails.labels.src] | inside[rails.labels.dst]
    np.testing.assert_array_equal(np.asarray(servers.failed(2).alive), ~touched)
    assert servers.name(2) == "server 2"


def test_what_has_failed_already_is_no_component(rails):
    cable = components(rails, "leaf-spine").items(0)
    broken = rails.without(links=cable, nodes=["unit0-leaf3"])
    assert len(components(broken, "leaf")) == len(components(rails, "leaf")) - 1
    lost = 1 + int(np.sum(rails.labels.dst == rails.labels.node("unit0-leaf3")))
    assert len(components(broken, "link")) == len(components(rails, "link")) - lost


def test_a_component_is_found_by_name_and_by_number(rails):
    leaves, cables = components(rails, "leaf"), components(rails, "leaf-spine")
    assert leaves.find("unit0-leaf5") == 5
    assert cables.find(cables.name(7)) == cables.find(7) == 7
    with pytest.raises(ModelError, match="Did you mean 'unit0-leaf5'"):
        leaves.find("unit0-leaf55")
    with pytest.raises(ModelError, match="numbered from 0 to 7"):
        leaves.find(8)


def test_an_unknown_kind_offers_the_nearest(rails):
    with pytest.raises(ModelError, match=r"no component of kind 'swich'\. Did you mean 'switch'"):
        components(rails, "swich")


def test_degraded_cables_and_nodes_lose_capacity_in_both_directions(rails):
    nic = int(rails.labels.tags["nic"][rails.hosts[0]])
    slow = rails.degraded(nodes=[nic], factor=0.25)
    at = (rails.labels.src == nic) | (rails.labels.dst == nic)
    before, after = np.asarray(rails.capacity), np.asarray(slow.capacity)
    np.testing.assert_array_equal(after, np.where(at, before / 4, before))
    np.testing.assert_array_equal(slow.alive, rails.alive)
    one = rails.degraded(links=[6])
    assert np.flatnonzero(np.asarray(one.capacity) != before).tolist() == [6, 7]
    named = rails.degraded(links=[rails.link_name(7)])
    np.testing.assert_array_equal(named.capacity, one.capacity)


def test_a_degraded_nic_halves_the_rate_of_its_flow(rails):
    flows = fb.Flows(rails.hosts, np.roll(rails.hosts, -8))
    nic = int(rails.labels.tags["nic"][rails.hosts[3]])
    slow = rails.degraded(nodes=[nic], factor=0.5)
    rates = fb.max_min_rates(slow, fb.routing.spray(slow, flows)).rates
    want = np.full(32, 50e9)
    want[[3, 32 - 8 + 3]] = 25e9  # what it sends, and what it gets
    np.testing.assert_allclose(rates, want, rtol=1e-12)


@pytest.mark.parametrize("factor", [0, -0.5, 1.5, float("nan"), True])
def test_a_factor_out_of_range_is_refused_and_without_is_named(rails, factor):
    with pytest.raises(ModelError, match=r"more than 0 and up to 1.*`without\("):
        rails.degraded(links=[0], factor=factor)


def test_an_unknown_node_of_degraded_is_refused_by_its_argument(rails):
    with pytest.raises(ModelError, match=r"degraded\(links=...\)"):
        rails.degraded(links=[rails.n_links])


@pytest.mark.parametrize("rule", [fb.routing.ecmp, fb.routing.spray])
def test_flows_without_a_way_are_in_the_error_by_number(rails, rule):
    flows = fb.Flows(rails.hosts, np.roll(rails.hosts, -8))
    # A dead NIC cuts off what its GPU sends and gets, a dead leaf all eight of its rail.
    nic = int(rails.labels.tags["nic"][rails.hosts[3]])
    for broken, want in (
        (rails.without(nodes=[nic]), [3, 27]),
        (rails.without(nodes=["unit0-leaf0"]), [0, 8, 16, 24]),
    ):
        with pytest.raises(UnreachableError, match="cannot reach") as caught:
            rule(broken, flows)
        assert list(caught.value.flows) == want
        assert isinstance(caught.value, InfeasibleError)
        assert caught.value.exit_code == 3
