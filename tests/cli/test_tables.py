"""`fabric solve --routing tables` follows the forwarding tables of a dump, or says what lacks."""

import pytest

from fabric import readers, topologies
from tests.cli.conftest import SMALL
from tests.readers.test_lfts import DUMPS, FABRIC


@pytest.fixture
def files(tmp_path):
    (tmp_path / "fabric.txt").write_text(FABRIC)
    (tmp_path / "lfts.dump").write_text(DUMPS["opensm-lfts.dump"])
    (tmp_path / "opensm.fdbs").write_text(DUMPS["opensm.fdbs"])
    return tmp_path


def test_flows_follow_the_tables(fabric, files):
    args = ["solve", files / "fabric.txt", "--pattern", "all-to-all", "--format", "json"]
    answer = fabric(*args, "--routing", "tables", "--tables", files / "lfts.dump").json
    assert answer["routing"]["name"] == "tables"
    assert answer["routing"]["why"] == "3 entries of 1 switches in 'lfts.dump'"
    assert answer["rate"]["min"] == pytest.approx(50e9)
    assert answer["result"] == "converged"
    assert answer["certificate"] <= 1e-9
    (said,) = (row for row in answer["assumptions"] if row["name"] == "routing")
    assert said["kind"] == "user"
    # The dump alone says that flows follow it.
    assert fabric(*args, "--tables", files / "lfts.dump").json == answer


def test_lids_may_come_from_another_file(fabric, files):
    (files / "old.txt").write_text(FABRIC.replace("lid 1 ", "lid 9 "))
    args = ["solve", files / "old.txt", "--pattern", "ring", "--tables", files / "opensm.fdbs"]
    ran = fabric(*args, "--lids", files / "fabric.txt", "--format", "json")
    assert ran.json["flows"] == 2
    refusal = fabric(*args)
    assert refusal.code == 2
    assert "`--lids`: 1 of 1 switches have another LID in 'old.txt'" in refusal.err


def test_what_a_dump_contradicts_is_a_note(fabric, files):
    (files / "fabric.txt").write_text(FABRIC.replace("lid 3 ", "lid 7 "))
    ran = fabric(
        "solve", files / "fabric.txt", "--pattern", "ring", "--tables", files / "lfts.dump"
    )
    assert ran.code == 0
    assert "'lfts.dump': left out or contradicted: 1 x end node with another LID" in ran.err


def test_no_cable_is_plugged_that_the_tables_do_not_know(fabric, files):
    ran = fabric("solve", files / "fabric.txt", "--pattern", "ring", "--plug",
                 "--tables", files / "lfts.dump")  # fmt: skip
    assert ran.code == 0
    assert "`--plug` has no cable to try: the tables use those that are there" in ran.err


def test_flags_that_lack_or_contradict_something_are_refused(refused, files):
    args = ["solve", files / "fabric.txt", "--pattern", "ring"]
    assert "Add `--tables FILE`" in refused(*args, "--routing", "tables")
    assert "`--lids x` needs the dump" in refused(*args, "--lids", "x")
    dump = ["--tables", files / "lfts.dump"]
    assert "so does `--routing ecmp`" in refused(*args, *dump, "--routing", "ecmp")
    said = refused("solve", SMALL, "--pattern", "ring", *dump)
    assert "needs a fabric whose ports and GUIDs are known" in said
    assert "There is no file" in refused(*args, "--tables", files / "none")


def test_a_failure_that_the_tables_run_into_is_said_with_the_flag(fabric, tmp_path):
    net = topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=1)
    dump = readers.write_ibnetdiscover(net, tmp_path / "dump")
    labels = readers.read(dump).network.labels
    up, down = labels.src == labels.node("leaf0"), labels.dst == labels.node("leaf1")
    over = labels.node("spine1")
    ports = {
        "leaf0": labels.src_port[up & (labels.dst == over)][0],
        "spine1": labels.src_port[down & (labels.src == over)][0],
    }
    # Every switch is told the LID of host 1 alone, over spine 1.
    tables = "".join(
        f"dump_ucast_routes: Switch 0x{labels.ids[labels.node(switch)][2:]}\n0x0002 : {port:03}\n"
        for switch, port in ports.items()
    )
    (tmp_path / "fdbs").write_text(tables)
    (tmp_path / "flows.csv").write_text("src,dst,size\nleaf0-host0,leaf1-host0,1\n")
    ran = fabric("solve", dump, "--flows", tmp_path / "flows.csv", "--tables", tmp_path / "fdbs",
                 "--failed", "spine1")  # fmt: skip
    assert ran.code == 3
    assert "1 are sent over a dead link: 'leaf0-host0 -> leaf1-host0 at leaf0, port" in ran.err
    assert "Take back `--failed spine1`, or leave endpoints out" in ran.err
