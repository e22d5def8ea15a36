"""Who takes part in `fabric solve`: hosts, files, failures, and what is assumed about them."""

import numpy as np
import pytest

from fabric import InfeasibleError
from fabric.cli._demand import AT_ONCE
from tests.cli.conftest import SMALL

FLOWS = """src,dst,size
leaf0-host0,leaf1-host0,1GB
leaf0-host1,leaf1-host0,2GB
leaf0-host0,leaf0-host1,1GB
"""


@pytest.fixture
def flows(tmp_path):
    file = tmp_path / "flows.csv"
    file.write_text(FLOWS)
    return file


def assumed(answer):
    return {row["name"]: row for row in answer["assumptions"]}


def test_hosts_narrow_the_endpoints_by_node_or_host_name(fabric):
    few = fabric("solve", SMALL, "--pattern", "all-to-all", "--hosts", "leaf0-*",
                 "--format", "json").json  # fmt: skip
    assert (few["endpoints"], few["flows"]) == (2, 2)
    host = fabric("solve", "demo", "--pattern", "all-to-all", "--hosts", "server12",
                  "--no-compare", "--format", "json").json  # fmt: skip
    assert host["endpoints"] == 8


def test_flow_files_and_matrices_are_read(fabric, tmp_path):
    flows, matrix = tmp_path / "flows.csv", tmp_path / "matrix.csv"
    flows.write_text("src,dst,size,cap\nleaf0-host0,leaf1-host0,1GB,10GB/s\n")
    answer = fabric("solve", SMALL, "--flows", flows, "--format", "json").json
    assert answer["rate"]["max"] == pytest.approx(10e9)
    assert answer["bottlenecks"] == []
    matrix.write_text("0,1,0,0\n0,0,0,0\n0,0,0,1\n0,0,0,0\n")
    assert fabric("solve", SMALL, "--matrix", matrix, "--format", "json").json["flows"] == 2


def test_a_failed_host_takes_no_part(fabric):
    answer = fabric("solve", SMALL, "--pattern", "all-to-all", "--failed", "leaf0-host0",
                    "--format", "json").json  # fmt: skip
    assert (answer["endpoints"], answer["endpoints_failed"]) == (3, 1)


def test_a_flow_file_is_restricted_to_the_hosts_asked_for_and_says_so(fabric, flows):
    args = ["solve", SMALL, "--flows", flows, "--hosts", "leaf0-*"]
    answer = fabric(*args, "--format", "json").json
    assert (answer["flows"], answer["flows_left_out"], answer["endpoints"]) == (1, 2, 2)
    assert "2 flows left out" in fabric(*args).out


def test_a_flow_file_is_restricted_to_what_is_alive_and_says_so(fabric, flows):
    args = ["solve", SMALL, "--flows", flows, "--failed", "leaf0-host0", "--format", "json"]
    answer = fabric(*args).json
    assert (answer["flows"], answer["flows_left_out"], answer["endpoints"]) == (1, 2, 2)
    assert answer["endpoints_failed"] == 1


@pytest.mark.parametrize("named", [True, False], ids=["named", "bare"])
def test_a_matrix_is_restricted_to_hosts_that_are_asked_for_and_alive(fabric, tmp_path, named):
    hosts = [f"leaf{leaf}-host{host}" for leaf in range(2) for host in range(2)]
    demand = 1 - np.eye(4, dtype=int)
    rows = [",".join(map(str, row)) for row in demand]
    if named:
        rows = ["," + ",".join(hosts), *(f"{h},{row}" for h, row in zip(hosts, rows, strict=True))]
    file = tmp_path / "matrix.csv"
    file.write_text("\n".join(rows) + "\n")
    args = ["solve", SMALL, "--matrix", file, "--format", "json"]
    few = fabric(*args, "--failed", "leaf0-host0").json
    assert (few["flows"], few["flows_left_out"], few["endpoints"]) == (6, 6, 3)
    rack = fabric(*args, "--hosts", "leaf1-*").json
    assert (rack["flows"], rack["flows_left_out"], rack["endpoints"]) == (2, 10, 2)


def test_a_file_of_which_no_flow_is_left_is_refused(refused, flows):
    message = refused("solve", SMALL, "--flows", flows, "--hosts", "leaf1-*",
                      code=InfeasibleError.exit_code)  # fmt: skip
    assert "None of the 3 flows" in message
    assert "--hosts" in message


def test_sizes_and_starts_that_do_not_matter_are_said_not_to(fabric, flows, tmp_path):
    matrix = tmp_path / "matrix.csv"
    matrix.write_text("0,1,0,0\n0,0,0,0\n0,0,0,5\n0,0,0,0\n")
    for demand in (["--flows", flows], ["--matrix", matrix]):
        assert assumed(fabric("solve", SMALL, *demand, "--format", "json").json)["timing"] == {
            "name": "timing",
            "value": "at once",
            "kind": "assumed",
            "source": AT_ONCE,
        }
        assert f"  {AT_ONCE}" in fabric("solve", SMALL, *demand).lines
    ring = fabric("solve", SMALL, "--pattern", "ring")
    assert AT_ONCE not in ring.out


def test_the_endpoints_assumed_are_those_of_the_answer(fabric, flows):
    for demand in (
        ["--flows", flows],
        ["--pattern", "ring"],
        ["--pattern", "ring", "--hosts", "*"],
    ):
        answer = fabric("solve", SMALL, *demand, "--format", "json").json
        entry = assumed(answer)["endpoints"]
        assert entry["value"] == answer["endpoints"]
        assert entry["kind"] == ("assumed" if demand == ["--pattern", "ring"] else "user")
    of_file = fabric("solve", SMALL, "--flows", flows, "--format", "json").json
    assert "flows.csv" in assumed(of_file)["endpoints"]["source"]


def test_what_was_given_is_not_called_assumed(fabric):
    args = ["solve", SMALL, "--pattern", "permutation", "--format", "json"]
    names = ("seed", "queue pairs", "routing")
    bare = assumed(fabric(*args).json)
    assert {bare[name]["kind"] for name in names} == {"assumed"}
    given = assumed(fabric(*args, "--seed", 0, "--queue-pairs", 1, "--routing", "ecmp").json)
    assert {given[name]["kind"] for name in names} == {"user"}


def test_a_file_called_like_a_pattern_is_none(fabric, flows):
    flows = flows.rename(flows.with_name("all-to-all"))
    answer = fabric("solve", SMALL, "--flows", flows, "--format", "json").json
    assert "per_endpoint" not in answer


def test_columns_of_a_flow_file_can_be_mapped_and_left_out(fabric, refused, tmp_path):
    file = tmp_path / "flows.csv"
    file.write_text("SRC NODE,dst,size,comment\nleaf0-host0,leaf1-host0,1GB,hello\n")
    message = refused("solve", SMALL, "--flows", file)
    assert "`--columns 'comment=FIELD'` or `--columns 'comment='`" in message
    assert "None}" not in message
    columns = ["--columns", "comment=,SRC NODE=src"]
    assert fabric("solve", SMALL, "--flows", file, *columns, "--format", "json").json["flows"] == 1
    assert "`--columns`: 'flows.csv' has no column 'coment'" in refused(
        "solve", SMALL, "--flows", file, "--columns", "coment="
    )
    assert "`header=field`" in refused("solve", SMALL, "--flows", file, "--columns", "comment")
    assert "--flows" in refused("solve", SMALL, "--pattern", "ring", "--columns", "a=src")
