"""What cost and power of a network, and designs at equal cost, promise."""

import numpy as np
import pytest

import fabric as fb
from fabric import hardware
from fabric.topologies import (
    at_equal_cost,
    attach_servers,
    bill,
    build,
    cluster,
    economics,
    rail_optimized,
)

PRICES = {
    "currency": "USD", "qm9700": 20_000, "cable 400Gb/s": 500, "transceiver 400Gb/s": 900,
    "transceiver 2x400Gb/s": 1_500,
}  # fmt: skip
BUILDERS = [
    "fat_tree:k=4", "clos:hosts=64,radix=8,tiers=3", "rail_optimized:servers=4,rails=2,radix=8",
    "rail_only:servers=4,rails=2,radix=8", "multi_plane:servers=4,planes=2,rails=2,radix=8",
    "hpn:segments=2,hosts_per_segment=2,rails=2,aggs=2", "torus:dims=4x4x4",
    "tpu_pod:cubes=2,slices=4x4x8", "dragonfly:p=1,a=2,h=1", "dragonfly_plus:radix=4",
    "hyperx:shape=3x2,hosts_per_switch=2", "slim_fly:q=3", "direct_connect:blocks=5,ports=8",
    "full_mesh:nodes=4", "single_switch:hosts=4", "dgx-h100:nodes=2",
]  # fmt: skip


def counts(found):
    return {(item.part, item.where): item.count for item in found.network}


@pytest.mark.parametrize("spec", BUILDERS)
def test_every_builder_has_a_bill_with_every_cable_and_switch(spec):
    net = build(spec)
    found, labels = bill(net), net.labels
    inside = labels.is_kind(*fb.topologies.INSIDE_KINDS)
    own = labels.is_kind("gpu", *fb.topologies.INSIDE_KINDS)
    switches = np.asarray(labels.forwards) & ~np.asarray(labels.endpoint) & ~inside
    outside = ~(own[labels.src] | own[labels.dst])
    assert found.count("switch") == switches.sum()
    assert found.count("cable") == outside.sum() // 2
    assert all(item.count > 0 for item in found.network)


@pytest.mark.parametrize("spec", BUILDERS)
def test_an_unknown_price_or_power_is_never_zero(spec):
    found = economics(build(spec))
    assert found.cost is None
    assert found.cost_per_endpoint is None
    assert found.cost_per_bisection is None
    models = {item.model for item in bill(build(spec)).network}
    assert set(found.unpriced) == models
    drawing = {item.model for item in bill(build(spec)).network if item.part != "cable"}
    assert set(found.unpowered) | set(found.sources) == drawing
    if set(found.unpowered) == drawing:
        assert found.power is None


def test_a_pod_of_cubes_has_copper_inside_and_circuits_between():
    found = bill(build("tpu_pod:cubes=2,slices=4x4x8"))
    assert counts(found) == {
        ("ocs", "optical"): 48, ("cable", "cube"): 2 * 144, ("cable", "optical"): 96,
        ("transceiver", "server"): 2 * 96,
    }  # fmt: skip
    assert {item.model for item in found.network if item.part == "ocs"} == {"ocs 4 ports"}
    assert any("tier cube, copper, optical" in said for said in found.assumed)


def test_blocks_are_bought_with_the_ports_of_their_circuits():
    found = bill(build("direct_connect:blocks=5,ports=8"))
    assert found.count("ocs-port") == 2 * found.count("cable") == 2 * 20
    assert found.count("transceiver") == 40


def test_a_network_without_switches_has_a_module_at_both_ends():
    found = bill(build("torus:dims=4x4x4"))
    assert counts(found)["transceiver", "server"] == 2 * 192
    assert found.count("switch") == 0


def test_servers_of_two_kinds_are_bought_by_kind():
    fabric = fb.topologies.leaf_spine(2, 2, 8, host_capacity=["200Gb/s", "400Gb/s"])
    old = attach_servers(fabric, hardware.server("dgx-a100"), fabric.hosts[None, :8])
    free = np.flatnonzero(old.labels.is_kind("host") & (old.labels.tags["server"] < 0))
    net = attach_servers(old, hardware.server("dgx-h100"), free[None])
    inside = {(item.part, item.model): item.count for item in bill(net).inside}
    assert inside == {
        ("server", "dgx-a100"): 1, ("server", "dgx-h100"): 1, ("gpu", "a100-sxm"): 8,
        ("gpu", "h100-sxm"): 8, ("nvswitch", "nvswitch"): 10, ("pcie-switch", "pcie-switch"): 12,
        ("socket", "socket"): 4, ("nic", "cx6"): 8, ("nic", "cx7"): 8,
    }  # fmt: skip


def test_power_for_the_economics_is_no_price_of_the_bill():
    found = bill(rail_optimized(servers=4), PRICES | {"power": {"qm9700": "1kW"}})
    assert found.unused == ()


# Economics.


def test_cost_is_that_of_the_network_by_hand():
    found = economics(rail_optimized(servers=128), PRICES)
    # 48 switches; 2,048 cables; 1,024 modules at NICs and 1,536 of two ports at switches.
    cost = 48 * 20_000 + 2048 * 500 + 1024 * 900 + 1536 * 1500
    assert found.cost == cost
    assert found.cost_per_endpoint == cost / 1024
    assert found.bisection == 512 * 50e9
    assert found.cost_per_bisection == pytest.approx(cost / (512 * 400), rel=1e-12)
    assert (found.switches, found.cables, found.transceivers) == (48, 2048, 2560)
    assert (found.currency, found.unpriced) == ("USD", ())


def test_power_is_the_users_before_the_catalogues():
    net = rail_optimized(servers=128)
    known = economics(net, PRICES)
    qm9700 = hardware.switch("qm9700").power
    assert qm9700 is not None
    assert known.power == 48 * qm9700.value + 1024 * 8 + 1536 * 15
    assert known.sources["qm9700"].startswith(qm9700.kind)
    said = economics(net, PRICES | {"power": {"qm9700": "1.5kW", "transceiver 400Gb/s": 10}})
    assert said.power == 48 * 1500 + 1024 * 10 + 1536 * 15
    assert said.sources["qm9700"] == "user: the price list"
    assert said.power_per_endpoint == said.power / 1024


def test_servers_are_left_out_and_their_nics_inject():
    net = cluster("dgx-h100", nodes=4)
    found = economics(net, PRICES | {"dgx-h100": 1e9})
    assert found.endpoints == 32
    assert found.injection == 50e9
    assert found.cost is not None
    assert found.cost < 1e9
    assert found.bisection == 16 * 50e9


def test_planes_inject_over_all_their_ports():
    assert economics(build("multi_plane:servers=4,planes=2,radix=16")).injection == 2 * 50e9


def test_separate_rails_have_no_bisection_to_pay_for():
    found = economics(build("rail_only:servers=4,rails=2,radix=64"), PRICES)
    assert found.bisection == 0
    assert found.cost_per_bisection is None


def test_the_record_holds_fields_and_ratios():
    record = economics(rail_optimized(servers=4), PRICES).as_dict()
    assert record["cost_per_endpoint"] == record["cost"] / record["endpoints"]
    assert {"bisection", "unpriced", "unpowered", "power_per_endpoint"} <= set(record)


@pytest.mark.parametrize(
    ("power", "said"),
    [
        ({"qm9700": "5"}, "needs a power such as '747W'"),
        ({"qm9700": -1}, "finite power of 0 or more"),
        ({"qm9700": True}, "finite power of 0 or more"),
        (747, "needs watts by model"),
    ],
    ids=str,
)
def test_what_is_no_power_is_named(power, said):
    with pytest.raises(fb.ModelError, match=said):
        economics(rail_optimized(servers=4), PRICES | {"power": power})


def test_a_power_in_the_catalogue_has_a_kind_and_a_source():
    names = [n for n in hardware.names("switches") if hardware.switch(n).power is not None]
    assert "qm9700" in names
    for name in names:
        power = hardware.switch(name).power
        assert power is not None
        assert power.source
        assert 100 < power.value < 5000
    assert hardware.switch("tomahawk4").power is None


# Equal cost.


def test_the_budget_buys_the_largest_of_every_design():
    sizes = [f"clos:hosts={n}" for n in (256, 512, 1024)]
    costs = [economics(build(text), PRICES).cost for text in sizes]
    assert costs == sorted(costs)
    (row,) = at_equal_cost({"full": sizes}, PRICES, budget=costs[1])
    assert (row.name, row.endpoints, row.cost) == ("full", 512, costs[1])
    (row,) = at_equal_cost({"full": sizes}, PRICES, budget=1e9)
    assert row.endpoints == 1024


def test_a_tapered_design_serves_more_endpoints_for_the_same_money():
    full = [f"clos:hosts={n}" for n in (256, 512, 768)]
    tapered = [f"clos:hosts={n},oversubscription=3" for n in (336, 672, 1008)]
    budget = economics(build(full[1]), PRICES).cost
    one, other = at_equal_cost({"1:1": full, "3:1": tapered}, PRICES, budget)
    assert other.endpoints > one.endpoints
    assert other.bisection < one.bisection
    assert max(one.cost, other.cost) <= budget


def test_designs_are_built_no_further_than_the_budget():
    built = []

    def networks():
        for hosts in (256, 512, 1024, 2048):
            built.append(hosts)
            yield fb.topologies.clos(hosts=hosts)

    at_equal_cost({"full": networks()}, PRICES, economics(build("clos:hosts=256"), PRICES).cost)
    assert built == [256, 512]


@pytest.mark.parametrize(
    ("designs", "budget", "error", "said"),
    [
        ({"a": ["clos:hosts=64"]}, 1.0, fb.InfeasibleError, "does not pay the smallest"),
        ({"a": []}, 1e9, fb.ModelError, "has no network"),
        ({"a": ["clos:hosts=64,radix=40,capacity=200Gb/s"]}, 1e9, fb.ModelError, "without a price"),
    ],
)
def test_a_comparison_that_would_not_be_fair_is_refused(designs, budget, error, said):
    with pytest.raises(error, match=said):
        at_equal_cost(designs, PRICES, budget)
