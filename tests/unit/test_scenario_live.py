"""What scenarios promise about failures, allocations, NICs and what was filled in."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from fabric import InfeasibleError, ModelError, hardware
from fabric.scenario import Scenario

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "schema": 1,
    "model": "llama-3.1-8b",
    "fabric": {"cluster": "dgx-h100", "nodes": 4},
    "layout": "tp8 sp dp3 zero1 gbs12 seq8192 recompute=selective",
    "run": {"sensitivities": "none"},
}
BUILDER = {"builder": "rail_optimized:servers=4,radix=64,capacity=400Gb/s", "server": "dgx-h100"}


def scenario(settings=None, **keys):
    made = Scenario.from_mapping(SMALL | keys)
    if not settings:
        return made
    data = yaml.safe_load(made.dump())
    data["cases"] = [{"name": "x", "set": settings}]
    return Scenario.from_mapping(data).case("x")


# Servers that cannot be reached


@pytest.mark.parametrize(
    ("failed", "name", "why"),
    [
        ({"nodes": ["server0-nic3"]}, "server0", "server0-nic3 is down"),
        ({"links": ["server1-nic0->unit0-leaf0"]}, "server1", "server1-nic0 is down"),
        ({"nodes": ["server2-gpu5"]}, "server2", "server2-gpu5 is down"),
        ({"nodes": ["server3"]}, "server3", "it is down"),
        ({"nodes": ["server0-nic3", "server0-nic4"]}, "server0", "server0-nic3 is down, 1 more"),
    ],
    ids=["nic", "cable", "gpu", "server", "two"],
)
@pytest.mark.parametrize("placement", ["first", "spread"])
def test_a_server_that_cannot_be_reached_is_left_out_of_a_placement(failed, name, why, placement):
    run = {"placement": placement, "sensitivities": "none"}
    answer = scenario(fabric=SMALL["fabric"] | {"failed": failed}, run=run).answer().as_dict()
    assert answer["left_out"] == [{"server": name, "why": why, "gpus": 8}]
    assert answer["placement"] == placement
    assert answer["gpus"] == {"type": "h100-sxm", "used": 24, "idle": 0}


def test_a_step_around_a_failed_server_is_that_on_the_other_ones():
    failed = SMALL["fabric"] | {"failed": {"nodes": ["server1"]}}
    around = scenario(fabric=failed).step()
    order = [f"server{s}-gpu{g}" for s in (0, 2, 3) for g in range(8)]
    named = scenario(run={"placement": order, "sensitivities": "none"}).step()
    assert around.step_time == pytest.approx(named.step_time, rel=1e-12)


def test_a_failed_server_takes_all_of_its_links_down():
    built = scenario(fabric=SMALL["fabric"] | {"failed": {"nodes": ["server1"]}}).build()
    labels, alive = built.network.labels, np.asarray(built.network.alive)
    inside = labels.tags["server"] == 1
    assert (alive == ~(inside[labels.src] | inside[labels.dst])).all()


def test_too_few_servers_are_infeasible_with_the_count():
    failed = {"nodes": ["server0-nic0", "server1"]}
    with pytest.raises(InfeasibleError) as error:
        scenario(fabric=SMALL["fabric"] | {"failed": failed}).build()
    said = str(error.value)
    for words in ("the allocation has 16", "2 servers left out: server0 (server0-nic0 is down)"):
        assert words in said


def test_a_placement_that_names_every_gpu_is_taken_as_it_is():
    order = [f"server{s}-gpu{g}" for s in range(3) for g in range(8)]
    job = scenario(
        fabric=SMALL["fabric"] | {"failed": {"nodes": ["server0-nic0"]}}, run={"placement": order}
    )
    assert job.build().left_out == ()
    with pytest.raises(InfeasibleError, match=r"Take back `fabric\.failed`"):
        job.step()


def test_an_unknown_server_offers_the_nearest():
    with pytest.raises(ModelError, match="Did you mean 'server3'"):
        scenario(fabric=SMALL["fabric"] | {"failed": {"nodes": ["sever3"]}}).build()


def test_ranks_on_one_gpu_are_named():
    order = ["server0-gpu0", "server0-gpu0"]
    with pytest.raises(ModelError, match="more than one rank on 'server0-gpu0'"):
        scenario(run={"placement": order}).build()


# Allocation


@pytest.mark.parametrize("dp", ["3", "=auto"])
def test_an_allocation_above_the_cluster_is_infeasible_with_the_number_of_gpus(dp):
    layout = f"tp8 sp dp{dp} zero1 gbs12 seq8192 recompute=selective"
    job = scenario(layout=layout, run={"allocation": 5000})
    with pytest.raises(InfeasibleError, match=r"allocation: 5000`.* the fabric has 32 GPUs"):
        job.build()


def test_dp_auto_takes_what_can_be_reached():
    layout = "tp8 sp dp=auto zero1 gbs12 seq8192 recompute=selective"
    fabric = SMALL["fabric"] | {"failed": {"nodes": ["server0"]}}
    assert scenario(layout=layout, fabric=fabric).build().layout.dp == 3
    assert scenario(layout=layout, run={"allocation": 16}).build().layout.dp == 2


# NICs


def test_cables_faster_than_the_nic_of_the_server_are_refused():
    fast = BUILDER | {"server": "dgx-a100"}
    with pytest.raises(ModelError, match=r"400Gb/s, but the 'cx6' of a 'dgx-a100' has 200Gb/s"):
        scenario(fabric=fast).build()
    built = scenario(fabric=fast | {"nic": "cx7"}).build()
    assert built.network.labels.about["nic"] == "cx7"


def test_cables_slower_than_the_nic_are_an_assumption():
    slow = BUILDER | {"builder": "rail_optimized:servers=4,radix=64,capacity=200Gb/s"}
    rows = scenario(fabric=slow).answer().as_dict()["assumptions"]
    (row,) = [row for row in rows if row["name"] == "cables of the NICs"]
    assert row["value"] == "200Gb/s"
    assert "cx7, could do more" in row["source"]


def test_a_nic_without_a_server_is_refused():
    with pytest.raises(ModelError, match=r"Add `fabric\.server`"):
        scenario(fabric={"builder": BUILDER["builder"], "nic": "cx7"}).build()


# What was filled in


def test_a_resolved_scenario_shows_what_was_filled_in_and_answers_the_same(tmp_path):
    job = scenario(
        layout="tp8 sp dp=auto zero1 gbs16 seq8192 recompute=selective",
        cases=[
            {"name": "other servers", "set": {"fabric.cluster": "dgx-a100"}},
            {"name": "four stages", "set": {"layout.pp": 4}},
        ],
    )
    whole = job.resolved()
    assert whole.data["hardware"] == {
        "set": {}, "gpu": "h100-sxm", "profile": "megatron-core-h100",
    }  # fmt: skip
    assert whole.data["fabric"]["routing"] == "spray"
    assert whole.data["run"]["allocation"] == "all"
    assert " dp4 " in whole.data["layout"]
    assert " vpp1 " in whole.data["layout"]
    # A case has its own GPU and its own share of the GPUs.
    assert whole.data["cases"][0]["set"]["hardware.gpu"] == "a100-sxm"
    assert " pp4 vpp1 dp1 " in whole.data["cases"][1]["set"]["layout"]
    (tmp_path / "whole.yaml").write_text(whole.dump())
    again = Scenario.load(tmp_path / "whole.yaml")
    assert again.resolved().data == whole.data
    one, other = job.answer().as_dict(), again.answer().as_dict()
    assert one["scenario"] == other["scenario"] == whole.data
    assert one["step_time_s"] == other["step_time_s"]
    assert one["routing"] == other["routing"]
    steps = lambda answer: [case["step_time_s"] for case in answer["cases"]]
    assert steps(one) == steps(other)


# Notes


def test_spray_with_failures_says_where_it_is_not_adaptive_routing():
    failed = SMALL["fabric"] | {"failed": {"nodes": ["spine0"]}}
    said = "lost only some of its cables costs more than one that lost all"
    assert said in " ".join(scenario(fabric=failed).answer().notes)
    assert scenario().answer().notes == []
    hashed = failed | {"routing": "ecmp"}
    assert scenario(fabric=hashed).answer().notes == []


@pytest.mark.parametrize(("tokens", "notes"), [(15, 1), ("15k", 1), ("15T", 0)], ids=str)
def test_very_few_tokens_deserve_a_word(tokens, notes):
    found = scenario(run={"tokens": tokens, "sensitivities": "none"}).answer().notes
    assert len(found) == notes


# Faults


def test_an_option_that_a_reader_lacks_is_called_as_the_scenario_calls_it(shared, tmp_path):
    dump = shared / "samples" / "topology" / "ib" / "small_2x2.ibnetdiscover"
    fabric = {"file": str(dump), "capacity": "100Gb/s"}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(SMALL | {"fabric": fabric}, sort_keys=False))
    with pytest.raises(ModelError) as error:
        Scenario.load(file).build()
    assert "`fabric.capacity` (job.yaml:5) is no option for" in str(error.value)
    assert "default_capacity" not in str(error.value)


def test_many_faults_of_a_kind_are_five_and_a_number(tmp_path):
    file = tmp_path / "job.yaml"
    wrong = {f"key{i}": i for i in range(40)}
    nodes = list(range(40))
    fabric = SMALL["fabric"] | {"failed": {"nodes": nodes}}
    file.write_text(yaml.safe_dump(SMALL | wrong | {"fabric": fabric}))
    with pytest.raises(ModelError) as error:
        Scenario.load(file)
    lines = str(error.value).splitlines()
    assert len(lines) == 12
    assert "and 35 more unknown keys." in lines
    assert sum("Known: " in line for line in lines) == 1
    assert "and 35 more faults of this kind." in lines
    bad = {"nodes": [f"rack{i}" for i in range(40)]}
    with pytest.raises(ModelError, match="and 35 more faults"):
        scenario(fabric=SMALL["fabric"] | {"failed": bad}).build()


@pytest.mark.parametrize(
    "text",
    ["a: 1\nb: 2\n" * 1, "".join(f"key{i}: secret{i}\n" for i in range(99)), "Switch\t8 'secret1'"],
    ids=["short", "long", "dump"],
)
def test_a_file_that_is_no_scenario_gets_one_message_without_its_lines(tmp_path, text):
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(ModelError, match=r"job\.yaml") as error:
        Scenario.load(file, {"run.seed": 1})
    assert "secret" not in str(error.value)
    assert len(str(error.value).splitlines()) == 1


# The user's own folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    (folder / "hardware").mkdir(parents=True)
    monkeypatch.setenv("FABRIC_HOME", str(folder))
    monkeypatch.delenv("FABRIC_HARDWARE", raising=False)
    return folder


def test_scenarios_and_hardware_of_ones_own_lie_in_one_folder(home, tmp_path, monkeypatch):
    nic = {"kind": "user", "source": "ours", "rate": "1Gb/s", "ports": 1}
    (home / "hardware" / "nics.yaml").write_text(yaml.safe_dump({"mine": nic}))
    assert "mine" in hardware.names("nics")
    assert hardware.nic("mine").rate.value == 1.25e8
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("FABRIC_HARDWARE", str(other))
    assert "mine" not in hardware.names("nics")


def test_a_home_that_is_no_folder_is_refused(monkeypatch):
    monkeypatch.setenv("FABRIC_HOME", "/no/such/folder")
    monkeypatch.delenv("FABRIC_HARDWARE", raising=False)
    for use in (lambda: Scenario.load("demo"), lambda: hardware.names("nics")):
        with pytest.raises(ModelError, match=r"`FABRIC_HOME=/no/such/folder` is no folder"):
            use()


def test_a_scenario_beside_the_folders_is_not_lost_in_silence(home):
    (home / "mine.yaml").write_text("schema: 1\n")
    with pytest.raises(ModelError, match=r"'mine.yaml' in .* would never be read"):
        Scenario.load("demo")


def test_the_page_on_hardware_holds_a_whole_example(tmp_path):
    page = (ROOT / "docs" / "hardware.md").read_text()
    gpus, servers, profile, job = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    folder = tmp_path / "my-hardware"
    (folder / "profiles").mkdir(parents=True)
    (folder / "gpus.yaml").write_text(gpus)
    (folder / "servers.yaml").write_text(servers)
    (folder / "profiles" / "ours.yaml").write_text(profile)
    (tmp_path / "job.yaml").write_text(job)
    report = Scenario.load(tmp_path / "job.yaml").step()
    assert report.gpu.name == "h100-pcie"
    share = report.profile.efficiency
    assert (share.nic.value, share.nic.kind, share.hbm.kind) == (0.9, "measured", "assumed")
    assert report.network.labels.about["server"] == "our-box"
