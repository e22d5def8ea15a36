"""What `topologies.bill` promises, one test per promise."""

from dataclasses import replace

import numpy as np
import pytest

import fabric as fb
from fabric import hardware
from fabric.topologies import Item, attach_servers, bill, build, cluster

PRICES = {"currency": "EUR", "qm9700": 10.0, "cable 400Gb/s": 2, "transceiver 2x400Gb/s": 3.0,
          "dgx-h100": 1000.0}  # fmt: skip


def lines(items):
    return {(item.part, item.where, item.model): item.count for item in items}


# Counts of the DGX SuperPOD reference architecture H100, Table 4.
@pytest.mark.parametrize(
    ("nodes", "leaf", "spine", "up"), [(31, 8, 4, 256), (95, 24, 16, 768), (127, 32, 16, 1024)]
)
def test_a_superpod_is_bought_as_its_table_says(nodes, leaf, spine, up):
    found = bill(cluster("dgx-h100", nodes=nodes))
    assert lines(found.network) == {
        ("switch", "leaf", "qm9700"): leaf,
        ("switch", "spine", "qm9700"): spine,
        ("cable", "host", "cable 400Gb/s"): 8 * nodes,
        ("cable", "leaf-spine", "cable 400Gb/s"): up,
        # Twin-port modules: a leaf with an odd number of cables has a port to spare.
        ("transceiver", "server", "transceiver 2x400Gb/s"): 4 * nodes,
        ("transceiver", "switch", "transceiver 2x400Gb/s"): 4 * (nodes + 1) + up,
    }
    assert any("2 ports of a qm9700 in one transceiver" in said for said in found.assumed)
    assert any("NICs of a dgx-h100 in one transceiver" in said for said in found.assumed)


def test_modules_of_one_port_and_of_planes_are_counted_by_their_ports():
    # 20 servers of 8 cables, and as many up from 8 leaves.
    hdr = bill(cluster("dgx-a100", nodes=20))
    assert (hdr.count("transceiver", "server"), hdr.count("transceiver", "switch")) == (160, 480)
    # 512 cables of two links in each layer: a module holds both at either end.
    planes = bill(cluster("dgx-b300-spectrumx", su=1))
    assert planes.count("transceiver", "server") == 512
    assert planes.count("transceiver", "switch") == 512 + 2 * 512
    assert bill(build("single_switch:hosts=4")).count("transceiver", "server") == 4


def test_the_model_of_a_switch_is_that_of_its_tag():
    net = build("leaf_spine:leaves=2,spines=1,hosts_per_leaf=2")
    model = np.where(net.labels.is_kind("spine"), "MQM9701", "")
    labels = replace(net.labels, tags={**net.labels.tags, "model": model})
    found = bill(fb.Network(net.capacity, net.latency, net.alive, labels=labels))
    said = {i.where: (i.model, i.assumed) for i in found.network if i.part == "switch"}
    assert said == {"spine": ("mqm9701", False), "leaf": ("qm9700", True)}
    assert "switch models by number and speed of ports" in found.assumed


def test_the_cables_to_the_fabric_manager_are_counted_on_demand():
    net = cluster("dgx-h100", nodes=127)
    assert bill(net, manager=True).count("cable", "host") == 1016
    assert bill(net, manager=True).count("cable", "manager") == 4
    assert bill(net).count("cable", "manager") == 0
    assert any("without the 4 cables" in said for said in bill(net).assumed)


def test_parts_inside_servers_are_listed_apart():
    found = bill(cluster("dgx-h100", nodes=2))
    assert lines(found.inside) == {
        ("server", "", "dgx-h100"): 2, ("gpu", "", "h100-sxm"): 16,
        ("nvswitch", "", "nvswitch"): 8, ("pcie-switch", "", "pcie-switch"): 16,
        ("socket", "", "socket"): 4, ("nic", "", "cx7"): 16,
    }  # fmt: skip
    assert found.count("switch") == 12
    assert bill(build("clos:hosts=8,radix=4")).inside == ()


def test_twin_cables_of_two_planes_count_once():
    # 64 nodes: 512 cables of 800 Gb/s in each layer, two links of 400 Gb/s in each.
    found = bill(cluster("dgx-b300-spectrumx", su=1))
    assert found.count("cable", "host") == found.count("cable", "leaf-spine") == 512
    assert {item.model for item in found.network if item.part == "cable"} == {"cable 800Gb/s"}


@pytest.mark.parametrize(
    ("spec", "model"),
    [
        ("clos:hosts=100,radix=64", "qm9700"),
        ("clos:hosts=100,radix=40,capacity=200Gb/s", "qm8790"),
        ("clos:hosts=100,radix=144,capacity=800Gb/s,hosts_per_leaf=72", "q3400"),
        ("clos:hosts=4,radix=4,capacity=7Gb/s", "switch 4 x 7Gb/s"),
        ("single_switch:hosts=1000", "switch 1000 x 400Gb/s"),
    ],
)
def test_a_model_has_the_speed_and_enough_ports(spec, model):
    found = bill(build(spec))
    assert model in {item.model for item in found.network if item.part == "switch"}
    assert "switch models by number and speed of ports" in found.assumed


def test_slower_cables_take_a_part_of_a_port():
    # 64 hosts of 200 Gb/s and 32 uplinks of 400 Gb/s fill 64 ports of 400 Gb/s.
    net = build(
        "leaf_spine:leaves=2,spines=32,hosts_per_leaf=64,capacity=200Gb/s,uplink_capacity=400Gb/s"
    )
    found = bill(net)
    assert [i.model for i in found.network if i.where == "leaf" and i.part == "switch"] == [
        "qm9700"
    ]


def test_failed_parts_were_bought_too():
    net = cluster("dgx-h100", nodes=4)
    assert bill(net.without(nodes=["spine0", "unit0-leaf1"])) == bill(net)


def test_a_total_is_the_sum_of_the_priced_lines():
    found = bill(cluster("dgx-h100", nodes=31), PRICES)
    cables, modules = 248 + 256, 124 + 128 + 256
    assert found.total == 12 * 10 + cables * 2 + modules * 3 + 31 * 1000
    assert (found.currency, found.unpriced, found.unused) == ("EUR", (), ())


def test_missing_and_superfluous_prices_are_named():
    found = bill(cluster("dgx-h100", nodes=31), {"currency": "EUR", "qm9700": 1, "qm8790": 2,
                                                   "h100-sxm": 3})  # fmt: skip
    assert found.total == 12
    assert found.unpriced == ("cable 400Gb/s", "transceiver 2x400Gb/s", "dgx-h100")
    assert found.unused == ("qm8790",)
    assert found.within == ("h100-sxm",)


def test_without_prices_nothing_is_priced():
    found = bill(cluster("dgx-h100", nodes=1))
    assert found.total == 0
    assert found.currency == ""
    assert all(item.price is None for item in found.network)


@pytest.mark.parametrize("price", [-1, "dear", True, None, float("nan")], ids=str)
def test_what_is_no_price_is_named(price):
    with pytest.raises(fb.ModelError, match="1 have another: 'qm9700: "):
        bill(cluster("dgx-h100", nodes=1), PRICES | {"qm9700": price})


def test_prices_need_a_currency_and_all_faults_are_said():
    with pytest.raises(fb.ModelError) as error:
        bill(cluster("dgx-h100", nodes=1), {"qm9700": "x"})
    assert "needs a `currency`" in str(error.value)
    assert "'qm9700: x'" in str(error.value)


def test_servers_of_ones_own_have_a_bill():
    mine = hardware.server("dgx-h100").with_gpudirect(False)
    net = attach_servers(fb.topologies.single_switch(8), mine, np.arange(8)[None])
    assert bill(net).inside[0] == Item("server", "", "dgx-h100", 1)
