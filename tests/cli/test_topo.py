"""What `fabric topo` says about a fabric, and what it writes."""

import gzip

import pytest

from fabric import readers, topologies

SMALL = "leaf_spine:leaves=2,spines=2,hosts_per_leaf=2,capacity=400Gb/s"
FIELDS = {
    "schema", "source", "format", "confidence", "nodes", "cables", "records", "switches",
    "uniform_design", "hosts", "ignored", "contradicted", "fingerprint",
}  # fmt: skip


def test_json_counts_a_builder(fabric):
    answer = fabric("topo", SMALL, "--format", "json").json
    assert set(answer) >= FIELDS
    assert answer["schema"] == "fabric.topo/1"
    assert answer["nodes"] == {"leaf": 2, "spine": 2, "host": 4}
    assert answer["cables"] == {"leaf-spine": 4, "host": 4}
    assert answer["uniform_design"]["missing"] == 0
    materials = answer["bill_of_materials"]
    assert {(row["kind"], row["ports_used"], row["count"]) for row in materials["switches"]} == {
        ("leaf", 4, 2),
        ("spine", 2, 2),
    }
    assert {(row["tier"], row["capacity"], row["count"]) for row in materials["cables"]} == {
        ("host", 50e9, 4),
        ("leaf-spine", 50e9, 4),
    }


def test_text_fits_a_screen_and_names_short_switches(fabric):
    ran = fabric("topo", "demo")
    assert len(ran.lines) <= 40
    assert "unit1-leaf3 26/32" in ran.out
    assert "leaf-spine: 1,011 of 400 Gb/s" in ran.out
    assert "\x1b" not in ran.out


def test_a_fabric_of_three_tiers_says_why_it_has_no_uniform_design(fabric):
    assert "not compared with a uniform one" in fabric("topo", "fat_tree:k=4").out


@pytest.mark.parametrize("format", ["ibnetdiscover", "node-link"])
def test_an_export_reads_back_as_the_same_fabric(fabric, tmp_path, format):
    target = tmp_path / "fabric.gz"
    ran = fabric("topo", SMALL, "--export", format, "-o", target)
    assert (ran.code, ran.out) == (0, "")
    assert gzip.decompress(target.read_bytes())
    found = readers.read(target)
    assert found.format == format
    assert found.network.n_links == topologies.build(SMALL).n_links


def test_options_of_files_reach_the_reader(fabric, tmp_path):
    file = tmp_path / "graph.json"
    file.write_text(
        '{"nodes": [{"id": "a"}, {"id": "b"}, {"id": "c"}], "links": '
        '[{"source": "a", "target": "b", "speed": 100}, {"source": "b", "target": "c"}]}'
    )
    answer = fabric("topo", file, "--capacity-attribute", "speed", "--unit", "Gb/s",
                    "--capacity", "10Gb/s", "--format", "json").json  # fmt: skip
    cables = answer["bill_of_materials"]["cables"]
    assert sorted(row["capacity"] for row in cables) == [1.25e9, 12.5e9]


def test_the_real_dump_in_numbers(fabric, dump):
    answer = fabric("topo", dump, "--format", "json").json
    assert answer["switches"] == 40
    assert answer["nodes"] == {"leaf": 31, "spine": 9, "nic": 542}
    assert answer["cables"] == {"leaf-spine": 532, "host": 542}
    assert answer["records"] == 1114
    design = answer["uniform_design"]
    assert (design["leaf-spine"], design["missing"]) == (558, 26)
    kinds = [row["kind"] for row in design["short"]]
    assert (kinds.count("leaf"), kinds.count("spine")) == (12, 6)
    hosts = answer["hosts"]
    assert (hosts["four_rail"], hosts["unnamed_nics"]) == (109, 69)
    assert len(hosts["swapped_rails"]) == 1


def test_the_real_dump_fits_a_screen(fabric, dump):
    lines = fabric("topo", dump).lines
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 110
