"""What the command line says about wrong input: one message, the right code, nothing written."""

import errno
import gzip
import io
import os
import subprocess
import sys

import pytest

from fabric import InfeasibleError, UnsolvedError
from fabric.cli import _answer, _demand, main
from fabric.cli._app import INTERRUPTED
from fabric.cli._output import PIPE_CLOSED
from tests.cli.conftest import SMALL

LONE = """#
# Topology file: generated on a machine that sees no switch
#
vendid=0x2c9
devid=0x1021
sysimgguid=0xa1
caguid=0xa1
Ca	1 "H-00000000000000a1"		# "node-1 HCA-1"
"""


def test_no_verb_shows_the_help(fabric):
    ran = fabric()
    assert ran.code == 2
    assert "solve" in ran.out + ran.err


def test_an_unknown_verb_offers_the_nearest(refused):
    assert "solve" in refused("solvee", SMALL)


def test_an_unknown_option_offers_the_nearest(refused):
    assert "--pattern" in refused("solve", SMALL, "--patern", "ring")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param(["--pattern", "all-to-al"], "Did you mean 'all-to-all'?", id="pattern"),
        pytest.param(["--pattern", "ring", "--routing", "ecmpp"], "'ecmp'?", id="routing"),
        pytest.param(["--pattern", "ring", "--method", "round"], "'rounds'?", id="method"),
        pytest.param(["--pattern", "ring", "--tier", "leaf-spin"], "'leaf-spine'?", id="tier"),
        pytest.param(["--pattern", "ring", "--failed", "spine9"], "'spine", id="failed-node"),
        pytest.param(["--pattern", "ring", "--format", "jsn"], "'json'?", id="format"),
        pytest.param(["--pattern", "ring", "--seed", "-1"], "from 0", id="seed"),
        pytest.param(["--pattern", "ring", "--queue-pairs", "0"], "from 1", id="queue-pairs"),
        pytest.param(["--pattern", "ring", "--plug-time", "5"], "no unit", id="plug-time"),
    ],
)
def test_an_unknown_name_offers_the_nearest(refused, args, said):
    assert said in refused("solve", SMALL, *args)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param("fat_tre:k=4", "'fat_tree'?", id="unknown-builder"),
        pytest.param("dem", "'demo'?", id="no-file-no-builder"),
        pytest.param("no/such/file.gz", "no file", id="path"),
        pytest.param("fat_tree:k=8,capacity=400GB", "is a size, not a rate", id="size"),
        pytest.param("fat_tree:k=8,capacity=400", "has no unit", id="no-unit"),
        pytest.param("fat_tree:k=8,capacity=-1Gb/s", "0 or more", id="negative"),
        pytest.param("fat_tree:k=8,capacity=NaN", "with its unit", id="nan"),
        pytest.param("fat_tree:k=8,capacity=NaNGb/s", "with its unit", id="nan-with-unit"),
        pytest.param("fat_tree:kk=8", "'k'?", id="unknown-argument"),
        pytest.param("fat_tree:k=7", "7", id="odd-k"),
        pytest.param("", "no file", id="empty"),
    ],
)
def test_a_wrong_fabric_says_what_was_tried(refused, spec, said):
    assert said in refused("topo", spec)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"\x7fELF\x02\x01\x00\x00\xff\xfe" * 40, "is binary", id="binary"),
        pytest.param(gzip.compress(LONE.encode() * 50)[:60], "ends too early", id="truncated-gzip"),
        pytest.param(b"hello world\n", "No reader knows", id="prose"),
        pytest.param(b'{"nodes": [{"id": "a"}', "JSON", id="half-a-json"),
        pytest.param(LONE.encode(), "there is no cable", id="no-cable"),
    ],
)
@pytest.mark.parametrize("verb", [["topo"], ["solve", "--pattern", "ring"]], ids=["topo", "solve"])
def test_a_wrong_file_is_named_with_its_fault(refused, tmp_path, data, said, verb):
    file = tmp_path / "dump.ibnetdiscover"
    file.write_bytes(data)
    message = refused(verb[0], file, *verb[1:])
    assert said in message
    assert "dump.ibnetdiscover" in message


def test_the_published_dump_without_a_cable_is_refused(refused, shared):
    file = shared / "samples" / "topology" / "ib" / "not_a_fabric.ibnetdiscover"
    assert "there is no cable" in refused("topo", file)


def test_a_folder_is_refused(refused, tmp_path):
    assert "is a folder" in refused("topo", tmp_path)


def test_capacities_without_a_unit_point_to_the_flag(refused, tmp_path):
    file = tmp_path / "graph.json"
    file.write_text(
        '{"nodes": [{"id": "a"}, {"id": "b"}, {"id": "c"}], "links": '
        '[{"source": "a", "target": "b", "speed": 100}, {"source": "b", "target": "c"}]}'
    )
    assert "--capacity-attribute" in refused("topo", file)
    assert "--unit" in refused("topo", file, "--capacity-attribute", "speed")


def test_capacity_given_to_a_builder_points_to_its_argument(refused):
    assert "capacity=400Gb/s" in refused("topo", SMALL, "--capacity", "100Gb/s")


def test_exactly_one_demand_is_needed(refused, tmp_path):
    assert "found none" in refused("solve", SMALL)
    both = refused("solve", SMALL, "--pattern", "ring", "--matrix", tmp_path / "m.csv")
    assert "`--pattern` and `--matrix`" in both


def test_flows_to_hosts_that_do_not_exist_are_named(refused, tmp_path):
    file = tmp_path / "flows.csv"
    file.write_text("src,dst,size\nleaf0-host0,leaf0-host9,1GB\n")
    message = refused("solve", SMALL, "--flows", file)
    assert "leaf0-host9" in message
    assert "nearest: 'leaf0-host" in message


def test_a_missing_flow_file_is_named(refused, tmp_path):
    assert "nothing.csv" in refused("solve", SMALL, "--flows", tmp_path / "nothing.csv")


def test_hosts_that_match_nobody_show_how_names_look(refused):
    message = refused("solve", SMALL, "--pattern", "ring", "--hosts", "gpu*")
    assert "matches 0 of 4" in message
    assert "leaf0-host0" in message


def test_unreachable_pairs_are_named_with_the_failure_to_take_back(refused):
    spec = "leaf_spine:leaves=2,spines=1,hosts_per_leaf=2"
    message = refused(
        "solve", spec, "--pattern", "all-to-all", "--failed", "spine0",
        code=InfeasibleError.exit_code,
    )  # fmt: skip
    assert "leaf0-host" in message
    assert "leaf1-host" in message
    assert "Take back `--failed spine0`" in message
    assert "network.alive" not in message


def test_pairs_that_no_cable_joins_point_to_the_cabling(refused, tmp_path):
    file = tmp_path / "graph.json"
    file.write_text(
        '{"nodes": [{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "d"}], "links": '
        '[{"source": "a", "target": "b", "capacity": "1Gb/s"},'
        ' {"source": "c", "target": "d", "capacity": "1Gb/s"}]}'
    )
    message = refused("solve", file, "--pattern", "ring", code=InfeasibleError.exit_code)
    assert "Plug the missing cables" in message
    assert "labels.forwards" not in message


def test_an_option_of_another_format_says_which_it_is_for(refused, fabric, tmp_path):
    dump, graph = tmp_path / "dump", tmp_path / "graph"
    assert fabric("topo", SMALL, "--export", "ibnetdiscover", "-o", dump).code == 0
    assert fabric("topo", SMALL, "--export", "node-link", "-o", graph).code == 0
    message = refused("topo", dump, "--unit", "Gb/s")
    assert "`--unit` is for node-link files, but 'dump' is of format ibnetdiscover" in message
    message = refused("topo", graph, "--host-pattern", "(?P<host>.*)")
    assert "`--host-pattern` is for ibnetdiscover files" in message
    assert "`--host-pattern x` needs a group" in refused("topo", dump, "--host-pattern", "x")


def test_latencies_without_a_unit_point_to_the_flag(refused, fabric, tmp_path):
    file = tmp_path / "graph.json"
    file.write_text(
        '{"nodes": [{"id": "a"}, {"id": "b"}], "links": '
        '[{"source": "a", "target": "b", "capacity": "1Gb/s", "latency": 3}]}'
    )
    assert "`--latency-unit ms`" in refused("topo", file)
    assert fabric("topo", file, "--latency-unit", "us").code == 0


def test_more_work_than_memory_is_refused_with_the_number_and_the_knob(refused, monkeypatch):
    monkeypatch.setattr(_demand, "_free_memory", lambda: 1e3)
    message = refused("solve", SMALL, "--pattern", "all-to-all")
    assert "12 flows" in message
    assert "--hosts" in message
    monkeypatch.setattr(_demand, "_free_memory", lambda: 1e18)
    monkeypatch.setattr(_demand, "MOST_FLOWS", 11)
    assert "11 are the most. Narrow" in refused("solve", SMALL, "--pattern", "all-to-all")


def test_plugging_for_longer_than_allowed_is_refused(refused):
    message = refused(
        "solve", "demo", "--pattern", "ring", "--plug", "--plug-time", "1ns"
    )  # fmt: skip
    assert "--plug-time" in message


def test_a_certificate_that_does_not_hold_is_code_4(refused, monkeypatch):
    monkeypatch.setattr(_answer, "certify", lambda *_: 1e-3)
    message = refused("solve", SMALL, "--pattern", "ring", code=UnsolvedError.exit_code)
    assert "1.0e-03" in message


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(["topo", SMALL], id="topo"),
        pytest.param(["topo", SMALL, "--export", "node-link"], id="export"),
        pytest.param(["solve", SMALL, "--pattern", "ring"], id="solve"),
        pytest.param(["list"], id="list"),
    ],
)
def test_a_missing_folder_for_the_output_leaves_nothing(refused, tmp_path, args):
    target = tmp_path / "nowhere" / "answer"
    assert "no folder" in refused(*args, "-o", target)
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_the_old_output_as_it_was(refused, tmp_path):
    target = tmp_path / "answer.json"
    target.write_text("old")
    refused("solve", SMALL, "--pattern", "ring", "--failed", "nobody", "-o", target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_as_output_is_refused(refused, tmp_path):
    assert "is a folder" in refused("list", "-o", tmp_path)


def test_export_needs_a_file_and_a_known_format(refused, tmp_path):
    assert "-o FILE" in refused("topo", SMALL, "--export", "node-link")
    assert "'node-link'?" in refused("topo", SMALL, "--export", "nodelink", "-o", tmp_path / "x")


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "from-a-kernel"])
def test_an_interrupt_is_code_130(fabric, monkeypatch, wrapped):
    def interrupted(*_: object) -> None:
        if wrapped:
            raise SystemError from KeyboardInterrupt()
        raise KeyboardInterrupt

    monkeypatch.setattr(_answer, "solved", interrupted)
    ran = fabric("solve", SMALL, "--pattern", "ring")
    assert ran.code == INTERRUPTED
    assert ran.out == ""
    assert ran.err == "error: interrupted; nothing was written.\n"


def test_a_reader_that_stops_early_is_no_error(monkeypatch, capsys):
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr(sys, "stdout", Closed())
    assert main(["list"]) == PIPE_CLOSED
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(["--help"], id="help"),
        pytest.param(["topo", "demo", "--export", "node-link", "-o", "/dev/stdout"], id="export"),
        pytest.param(["solve", SMALL, "--pattern", "ring", "-o", "/dev/stdout"], id="answer"),
    ],
)
def test_a_pipe_that_is_closed_is_code_141_in_silence(args):
    read, end = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "fabric", *args]
    ran = subprocess.run(command, stdout=end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(end)
    assert ran.returncode == PIPE_CLOSED
    assert "error" not in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_fabric_of_one_host_is_wrong_input(refused):
    message = refused("solve", "single_switch:hosts=1", "--pattern", "ring")
    assert "`--pattern ring` needs two endpoints, but the fabric has 1" in message
    assert "--failed" not in message


def test_a_failure_to_take_back_is_offered_only_where_one_was_given(refused, tmp_path):
    file = tmp_path / "dead.json"
    file.write_text(
        '{"nodes": [{"id": "a"}, {"id": "b"}], "links": '
        '[{"source": "a", "target": "b", "capacity": "1Gb/s", "alive": false}]}'
    )
    message = refused("solve", file, "--pattern", "ring", code=InfeasibleError.exit_code)
    assert "0 of 2 are alive. Mend what the file says is not alive." in message
    assert "--failed" not in message
    spec = "single_switch:hosts=2"
    args = ["--pattern", "ring", "--failed", "host0"]
    message = refused("solve", spec, *args, code=InfeasibleError.exit_code)
    assert "1 of 2 are alive. Take back a `--failed`." in message


def test_too_many_queue_pairs_are_what_to_lower(refused, monkeypatch):
    monkeypatch.setattr(_demand, "_free_memory", lambda: 400.0 * 40)
    args = ["solve", SMALL, "--pattern", "permutation", "--queue-pairs"]
    message = refused(*args, 99_999_999_999)
    assert "Lower `--queue-pairs 99999999999` to 10 or less." in message
    assert "--pattern" not in message
    monkeypatch.setattr(_demand, "_free_memory", lambda: 400.0)
    message = refused(*args, 2)
    assert "Narrow the endpoints with `--hosts` and lower `--queue-pairs`." in message


def test_options_of_a_reader_apply_to_the_demo(refused):
    message = refused("topo", "demo", "--host-pattern", "abc")
    assert "`--host-pattern abc` needs a group" in message
    assert "builder" not in message


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--seed", 10**23], f"`--seed {10**23}` needs a whole number from 0 to 18,446,"),
        (["--queue-pairs", "1.5"], "'--queue-pairs': it needs a whole number. See `fabric solve"),
        (["--top", "-1"], "'--top': it needs 0 or more. See `fabric solve"),
    ],
)
def test_a_number_that_does_not_do_is_said_in_plain_words(refused, args, said):
    assert said in refused("solve", SMALL, "--pattern", "ring", *args)


def test_an_argument_given_twice_says_what_to_do(refused):
    assert "'k' is given twice. Leave one out." in refused("topo", "fat_tree:k=4,k=6")


def test_a_column_given_twice_points_to_the_flag(refused, tmp_path):
    file = tmp_path / "k.csv"
    file.write_text("src,source,dst\na,b,c\n")
    message = refused("solve", SMALL, "--flows", file)
    assert "`src` twice: 'src' and 'source'" in message
    assert "leave it out, with `--columns 'source=FIELD'` or `--columns 'source='`" in message


def test_the_module_runs_as_a_program_and_keeps_stdout_clean():
    command = [sys.executable, "-m", "fabric", "topo", "nothing_like_this"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("error: ")
    assert ran.stderr.count("\n") == 1


def test_a_cluster_is_called_by_its_name_in_errors(refused):
    said = refused("topo", "dgx_h100:nodez=3,su=x")
    assert "`dgx-h100` has no argument 'nodez'" in said
    assert "dgx_h100" not in said
    assert "`rail_optimized` has no argument" in refused("topo", "rail-optimized:x=1")
