"""What `fabric` says about clusters: `topo` with its bill, `solve` end to end, `list`."""

import pytest

from fabric.topologies import CLUSTERS

POD = "dgx-h100:nodes=127"


def test_topo_tells_switches_of_the_fabric_from_parts_of_servers(fabric):
    answer = fabric("topo", POD, "--format", "json").json
    assert answer["switches"] == 48
    assert {row["kind"] for row in answer["bill_of_materials"]["switches"]} == {"leaf", "spine"}
    assert answer["uniform_design"]["per_pair"] == 2
    assert answer["about"]["cluster"] == "dgx-h100"
    bill = answer["bill_of_materials"]
    inside = {row["model"]: row["count"] for row in bill["inside"]}
    assert (inside["dgx-h100"], inside["nvswitch"], inside["h100-sxm"]) == (127, 508, 1016)
    assert {(row["where"], row["count"]) for row in bill["network"][:4]} == {
        ("leaf", 32), ("spine", 16), ("host", 1016), ("leaf-spine", 1024),
    }  # fmt: skip


def test_topo_in_text_fits_a_screen_and_says_where_counts_come_from(fabric):
    ran = fabric("topo", POD)
    assert len(ran.lines) <= 40
    assert max(map(len, ran.lines)) <= 100
    said = " ".join(ran.out.split())
    assert "48 x qm9700; 2,044 transceivers if all optical" in said
    assert "508 of 2x400Gb/s at the servers, 1,536 of 2x400Gb/s at the switches" in said
    assert "127 x dgx-h100; in them 1,016 x h100-sxm, 508 x nvswitch" in said
    assert "1,016 x cx7" in said
    assert "more" not in said
    assert "DGX SuperPOD H100 reference architecture, Table 4" in ran.out
    assert "2,040 cables" in ran.out


def test_the_bill_is_one_and_counts_cables_of_the_fabric_only(fabric):
    # Published for Spectrum-X: 512 cables of 800 Gb/s per scalable unit and layer.
    answer = fabric("topo", "dgx-b300-spectrumx:su=2", "--format", "json").json
    bill = answer["bill_of_materials"]
    assert "bill" not in answer
    rows = [(row["tier"], row["capacity"], row["count"]) for row in bill["cables"]]
    assert rows == [("host", 100e9, 1024), ("leaf-spine", 100e9, 1024)]
    bought = {row["where"]: row["count"] for row in bill["network"] if row["part"] == "cable"}
    assert bought == answer["cables"] == {"host": 1024, "leaf-spine": 1024}
    assert answer["records"] == 2048
    assert {row["tier"] for row in answer["links_inside"]} == {"nvlink", "pcie", "socket"}
    out = fabric("topo", "dgx-b300-spectrumx:su=2").out
    assert "host: 1,024 of 800 Gb/s, 2 links of 400 Gb/s each" in out
    assert "2,048 cables" in out


@pytest.mark.parametrize("spec", ["dgx-h100:nodes=2048", "dgx-b300-spectrumx:su=16"])
def test_lines_of_large_clusters_fit_the_screen(fabric, spec):
    lines = fabric("topo", spec).lines
    assert max(map(len, lines)) <= 100


def test_a_guessed_model_is_said_to_be_one(fabric):
    spec = "clos:hosts=100,radix=64"
    assert "qm9700 (assumed by ports and speed)" in fabric("topo", spec).out
    bill = fabric("topo", spec, "--format", "json").json["bill_of_materials"]
    assert {row["assumed"] for row in bill["network"] if row["part"] == "switch"} == {True}
    known = fabric("topo", POD, "--format", "json").json["bill_of_materials"]
    assert {row["assumed"] for row in known["network"] if row["part"] == "switch"} == {False}


def test_counts_from_memory_are_said_to_be(fabric):
    ran = fabric("topo", "dgx-a100:su=7")
    assert "from memory" in ran.out
    assert "spine-core: 1,120 of 200 Gb/s" in ran.out


def test_a_price_list_gives_the_cost(fabric, tmp_path):
    file = tmp_path / "prices.yaml"
    file.write_text("currency: EUR\nqm9700: 20000\ndgx-h100: 250000\nqm8790: 1\nh100-sxm: 9\n")
    ran = fabric("topo", POD, "--prices", file)
    assert f"cost: {48 * 20000 + 127 * 250000:,} EUR" in ran.out
    assert "without a price: cable 400Gb/s, transceiver 2x400Gb/s" in ran.out
    assert "priced, but not in here: qm8790" in ran.out
    assert "priced, but part of a server, so not added: h100-sxm" in ran.out
    answer = fabric("topo", POD, "--prices", file, "--format", "json").json
    bill = answer["bill_of_materials"]
    assert bill["total"] == 48 * 20000 + 127 * 250000
    assert bill["unpriced"] == ["cable 400Gb/s", "transceiver 2x400Gb/s"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- qm9700\n", "needs a line per model"),
        ("currency: [\n", "cannot be read"),
        ("qm9700: 1\n", "needs a `currency`"),
        ("currency: EUR\nqm9700: cheap\n", "'qm9700: cheap'"),
    ],
    ids=["list", "syntax", "currency", "price"],
)
def test_a_bad_price_list_is_refused(refused, tmp_path, text, said):
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    assert said in refused("topo", POD, "--prices", file)


def test_an_absent_price_list_is_refused(refused, tmp_path):
    assert "cannot be read" in refused("topo", POD, "--prices", tmp_path / "none.yaml")


@pytest.mark.parametrize("routing", ["ecmp", "spray"])
def test_solve_runs_from_gpu_to_gpu_with_a_certificate(fabric, routing):
    answer = fabric(
        "solve", "dgx-h100:nodes=16", "--pattern", "all-to-all", "--routing", routing,
        "--format", "json",
    ).json  # fmt: skip
    assert answer["endpoints"] == 128
    assert answer["certificate"] < 1e-9
    used = {row["tier"]: row["links_used"] for row in answer["tiers"]}
    assert used == {"nvlink": 1024, "pcie": 512, "socket": 0, "host": 256, "leaf-spine": 512}


def test_a_sprayed_all_to_all_is_held_by_the_nics(fabric):
    # 120 of 127 peers are in other servers, and a NIC has 50 GB/s.
    ran = fabric("solve", "dgx-h100:nodes=16", "--pattern", "all-to-all", "--routing", "spray")
    assert "416.67 MB/s" in ran.out


def test_an_unknown_cluster_is_answered_with_the_nearest(refused):
    assert "Did you mean 'dgx-h100'" in refused("topo", "dgx-h10:nodes=1")
    assert "Did you mean 'dgx-b200'" in refused("topo", "dgx-b20")
    assert "no public document" in refused("topo", "gb200-nvl72:nodes=1")


def test_list_names_clusters_and_hardware(fabric):
    answer = fabric("list", "--format", "json").json
    assert [row["name"] for row in answer["clusters"]] == list(CLUSTERS)
    assert "cx7" in answer["hardware"]["nics"]
    assert "qm9700" in answer["hardware"]["switches"]
    ran = fabric("list")
    assert len(ran.lines) <= 40
    assert "dgx-b300-spectrumx (1,024)" in ran.out
