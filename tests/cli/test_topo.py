"""What `fabric topo` says about a fabric, and what it writes."""

import gzip
import json
import os
import threading

import pytest

from fabric import readers, topologies
from fabric.cli import _topo
from fabric.cli._subject import load
from tests.cli.conftest import SMALL

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


@pytest.mark.parametrize("export", [True, False], ids=["export", "answer"])
def test_a_file_keeps_its_mode_and_a_link_stays_a_link(fabric, tmp_path, export):
    target, link = tmp_path / "real", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    how = ["--export", "node-link"] if export else ["--format", "json"]
    assert fabric("topo", SMALL, *how, "-o", link).code == 0
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert json.loads(target.read_text())
    assert sorted(tmp_path.iterdir()) == [link, target]


@pytest.mark.parametrize("export", [True, False], ids=["export", "answer"])
def test_a_pipe_is_written_into_and_not_replaced(fabric, tmp_path, export):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    how = ["--export", "node-link"] if export else ["--format", "json"]
    assert fabric("topo", SMALL, *how, "-o", pipe).code == 0
    reader.join(10)
    assert json.loads(read[0])
    assert pipe.is_fifo()


def test_a_folder_called_like_a_fabric_is_not_meant(fabric, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "leaf_spine"):
        (tmp_path / name).mkdir()
    assert fabric("topo", "demo", "--format", "json").json["switches"] == 48
    assert "needs 'leaves'" in fabric("topo", "leaf_spine").err


def test_one_of_a_thing_is_singular(fabric):
    out = fabric("topo", "leaf_spine:leaves=1,spines=1,hosts_per_leaf=2").out
    assert "1 spine switch by ports used" in out
    assert "is 1 cable: 1 there" in out


def test_many_tiers_and_kinds_stay_on_one_screen(fabric, tmp_path):
    file = tmp_path / "tiers.json"
    nodes = [{"id": f"n{i}", "kind": f"kind{i}"} for i in range(60)]
    links = [
        {"source": f"n{i}", "target": f"n{i + 1}", "tier": f"tier{i}", "capacity": "1Gb/s"}
        for i in range(59)
    ]
    file.write_text(json.dumps({"nodes": nodes, "links": links}))
    ran = fabric("topo", file)
    assert len(ran.lines) <= 45
    assert max(map(len, ran.lines)) <= 100
    assert "and 54 more tiers" in ran.out
    assert len(fabric("topo", file, "--format", "json").json["cables"]) == 59


def test_the_longest_answer_stays_on_one_screen(fabric):
    answer = fabric("topo", "demo", "--format", "json").json
    long = "MF0;director-17:CS8500/L12/U1"
    short = {"have": 1, "want": 2, "missing": 1}
    swap = {"host": long, "rails": [long] * 8, "found": [long] * 8, "expected": [long] * 8}
    answer["uniform_design"]["short"] = [
        {"switch": long, "kind": kind} | short for kind in ("leaf", "spine") for _ in range(40)
    ]
    answer["hosts"] |= {"swapped_rails": [swap] * 9, "unnamed_nics": 1}
    answer["failed_cables"] = 3
    answer["warnings"] = ["What deserves a look."] * 9
    materials = answer["bill_of_materials"]
    materials["cables"] = [row | {"tier": i} for i in range(9) for row in materials["cables"]]
    materials["switches"] = [row | {"kind": i} for i in range(9) for row in materials["switches"]]
    assert len(_topo._text(answer, load("demo"))) <= 60


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


def test_the_host_pattern_reaches_the_reader(fabric, tmp_path):
    file = tmp_path / "dump"
    assert fabric("topo", "rail_optimized:servers=4,rails=2", "--export", "ibnetdiscover",
                  "-o", file).code == 0  # fmt: skip
    one = fabric("topo", file, "--host-pattern", "(?P<host>server).*", "--format", "json").json
    assert one["hosts"]["nics_per_host"] == {"8": 1}


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


def test_models_of_switches_are_those_of_the_file(fabric, shared):
    folder = shared / "samples" / "topology" / "ib"
    out = fabric("topo", folder / "ndr_40sw_582ca.ibnetdiscover.gz").out
    assert "40 x mqm9701;" in out
    assert "assumed by ports" not in out
    out = " ".join(fabric("topo", folder / "hdr_director_flags.ibnetdiscover").out.split())
    assert "3 x mcs8500 asic, 5 x mqm8700" in out


def test_the_real_dump_fits_a_screen(fabric, dump):
    lines = fabric("topo", dump).lines
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100


def test_long_contradictions_are_folded(fabric, shared):
    file = shared / "samples" / "topology" / "ib" / "hdr_director_flags.ibnetdiscover"
    lines = fabric("topo", file).lines
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("contradicted:") for line in lines)
