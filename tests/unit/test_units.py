"""What text with a unit means, and what is refused."""

import pytest

from fabric import ModelError
from fabric._units import format_rate, format_size, parse_rate, parse_size, parse_time


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("400Gb/s", 50e9),
        ("400 Gb/s", 50e9),
        ("400Gbps", 50e9),
        ("400Gbit/s", 50e9),
        ("50GB/s", 50e9),
        ("50GBps", 50e9),
        ("1.8TB/s", 1.8e12),
        ("40000Mb/s", 5e9),
        ("1GiB/s", 2.0**30),
        ("0B/s", 0.0),
        (12.5, 12.5),
    ],
)
def test_rates_come_out_in_bytes_per_second(text, rate):
    assert parse_rate(text) == pytest.approx(rate, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("400GB", "is a size, not a rate"),
        ("400", "has no unit"),
        ("400gb/s", "bits are 'b', bytes are 'B'"),
        ("4xNDR", "unknown unit"),
        ("fast", "with its unit"),
        ("", "with its unit"),
        ("-1Gb/s", "0 or more"),
        ("1e400GB/s", "finite"),
        (float("nan"), "finite"),
        (-1.0, "0 or more"),
        ("3ms", "is a time, not a rate"),
    ],
)
def test_anything_that_is_no_rate_is_refused_by_name(text, why):
    with pytest.raises(ModelError, match=r"`uplink` needs a") as caught:
        parse_rate(text, "uplink")
    assert why in str(caught.value)


def test_sizes_and_times():
    assert parse_size("1GiB") == 2.0**30
    assert parse_size("8Mb") == 1e6
    assert parse_time("900ns") == pytest.approx(9e-7, rel=1e-15)
    assert parse_time("1.5min") == 90.0
    with pytest.raises(ModelError, match="is a rate, not a size"):
        parse_size("1GB/s")


def test_people_read_decimal_units():
    assert format_rate(24.3e9) == "24.30 GB/s"
    assert format_rate(0.0) == "0 B/s"
    assert format_size(2.5e12) == "2.50 TB"
