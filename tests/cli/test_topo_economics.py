"""What `fabric topo --prices` says of cost and power beside bandwidth."""

import pytest

NETWORK = "rail_optimized:servers=128"
PRICES = """
currency: USD
qm9700: 20000
cable 400Gb/s: 500
transceiver 400Gb/s: 900
power:
  qm9700: 1kW
"""


@pytest.fixture
def prices(tmp_path):
    file = tmp_path / "prices.yaml"
    file.write_text(PRICES)
    return file


def test_cost_and_power_stand_beside_the_bisection(fabric, prices):
    said = " ".join(fabric("topo", NETWORK, "--prices", prices).out.split())
    assert "bisection at most 204.8 Tb/s one way" in said
    # 48 switches, 2,048 cables and 1,024 modules over 1,024 endpoints; two-port modules unknown.
    assert "network without servers: at least 2,838 USD per endpoint, 14.19 per Gb/s" in said
    assert "power: 79.23 kW, 77.4 W per endpoint" in said
    assert "qm9700: user: the price list" in said


@pytest.mark.parametrize("spec", ["tpu_pod:cubes=4,slices=4x4x8", "rail_only:servers=4,radix=8"])
def test_halves_that_are_not_joined_are_said_to_be_so(fabric, prices, spec):
    said = fabric("topo", spec, "--prices", prices).out
    why = "two halves of the endpoints are not joined"
    assert f"no bisection, and so no cost per Gb/s of it: {why}" in " ".join(said.split())
    assert "at most 0 Tb/s" not in said


def test_the_record_holds_what_the_text_says(fabric, prices):
    answer = fabric("topo", NETWORK, "--prices", prices, "--format", "json").json
    found = answer["economics"]
    assert found["cost"] == 48 * 20_000 + 2048 * 500 + 1024 * 900
    assert found["cost_per_endpoint"] == found["cost"] / 1024
    assert found["unpriced"] == ["transceiver 2x400Gb/s"]
    assert found["power"] == 48 * 1000 + 1024 * 8 + 1536 * 15


def test_without_prices_there_is_no_economics(fabric):
    assert "economics" not in fabric("topo", NETWORK, "--format", "json").json


def test_unknown_powers_are_named(fabric, prices):
    said = " ".join(
        fabric("topo", "torus:dims=4x4,capacity=100Gb/s", "--prices", prices).out.split()
    )
    assert "of unknown power: transceiver 100Gb/s" in said
    assert "power:" not in said.replace("unknown power:", "")


def test_what_is_no_power_is_refused(refused, prices):
    prices.write_text(PRICES.replace("1kW", "1 kilowatt"))
    assert "needs a power such as '747W'" in refused("topo", NETWORK, "--prices", prices)


def test_switches_that_a_paper_calls_routers_are_counted(fabric):
    answer = fabric("topo", "dragonfly:p=1,a=2,h=1", "--format", "json").json
    assert answer["switches"] == 6
    assert [row["kind"] for row in answer["bill_of_materials"]["switches"]] == ["router"]


def test_optical_circuit_switches_are_said(fabric):
    said = " ".join(fabric("topo", "tpu_pod:cubes=4,slices=4x4x8").out.split())
    assert "48 x ocs 8 ports; 192 transceivers" in said
    said = " ".join(fabric("topo", "direct_connect:blocks=4,ports=6").out.split())
    assert "24 x ocs port" in said
