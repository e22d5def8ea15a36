"""What `Scenario` promises: layers, places, faults, fabrics, cases; one test per promise."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import fabric as fb
from fabric import ModelError, hardware
from fabric.scenario import Scenario, json_schema, scenario_names
from fabric.scenario._schema import tokens_of
from fabric.training import Layout, Model

ROOT = Path(__file__).resolve().parents[2]

SMALL = {
    "schema": 1,
    "model": "llama-3.1-8b",
    "fabric": {"cluster": "dgx-h100", "nodes": 4},
    "layout": "tp8 sp dp4 zero1 gbs16 seq8192 recompute=selective",
}


@pytest.fixture
def file(tmp_path):
    """Write a scenario, the small one with some keys replaced, or a text as it is."""

    def write(name="job.yaml", text=None, **keys):
        path = tmp_path / name
        path.write_text(yaml.safe_dump(SMALL | keys, sort_keys=False) if text is None else text)
        return path

    return write


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    (folder / "scenarios").mkdir(parents=True)
    monkeypatch.setenv("FABRIC_HOME", str(folder))
    return folder / "scenarios"


def refused(file, *said, **keys):
    with pytest.raises(ModelError) as caught:
        Scenario.load(file(**keys))
    for words in said:
        assert words in str(caught.value)
    return str(caught.value)


# Loading and layers


def test_what_is_dumped_loads_again_to_the_same(tmp_path):
    for settings in ({}, {"layout.dp": 16, "run.placement": "spread", "layout.gbs": 512}):
        scenario = Scenario.load("demo", settings)
        (tmp_path / "again.yaml").write_text(scenario.dump())
        again = Scenario.load(tmp_path / "again.yaml")
        assert again.data == scenario.data
        assert again.dump() == scenario.dump()


def test_every_scenario_that_ships_is_valid():
    assert "demo" in scenario_names()
    for name in scenario_names():
        Scenario.load(name).build()


def test_blocks_come_from_another_file_and_own_keys_override(file, tmp_path):
    (tmp_path / "sub").mkdir()
    file("sub/base.yaml", fabric={"cluster": "dgx-h100", "nodes": 8, "routing": "ecmp"})
    path = file(
        fabric={"from": "sub/base.yaml", "nodes": 4},
        layout={"from": "demo", "pp": 1, "dp": 4, "gbs": 16},
    )
    data = Scenario.load(path).data
    assert {k: data["fabric"][k] for k in ("cluster", "nodes", "routing")} == {
        "cluster": "dgx-h100", "nodes": 4, "routing": "ecmp",
    }  # fmt: skip
    layout = Layout.parse(data["layout"])
    assert (layout.tp, layout.pp, layout.dp, layout.gbs, layout.seq) == (8, 1, 4, 16, 8192)


def test_a_scenario_stands_on_another_as_a_whole(file):
    path = file(text="schema: 1\nfrom: demo\nmodel: llama-3.1-8b\nrun: {seed: 3}\n")
    data, demo = Scenario.load(path).data, Scenario.load("demo").data
    assert data["model"] == "llama-3.1-8b"
    assert data["layout"] == demo["layout"]
    assert data["run"] == demo["run"] | {"seed": 3}


def test_paths_are_taken_from_the_file_that_says_them(file, tmp_path):
    (tmp_path / "sub").mkdir()
    config = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512,
              "num_attention_heads": 8, "intermediate_size": 1024, "vocab_size": 1024}  # fmt: skip
    (tmp_path / "sub" / "config.json").write_text(json.dumps(config))
    file("sub/base.yaml", model={"config": "config.json"})
    scenario = Scenario.load(file(model={"from": "sub/base.yaml", "name": "tiny"}))
    assert scenario.data["model"]["config"] == str(tmp_path / "sub" / "config.json")
    built = scenario.build()
    assert (built.model.name, built.model.layers) == ("tiny", 4)


def test_a_circle_of_files_is_refused(file):
    file("a.yaml", fabric={"from": "b.yaml"})
    path = file("b.yaml", fabric={"from": "a.yaml"})
    with pytest.raises(ModelError, match="stands on itself"):
        Scenario.load(path)


def test_a_block_that_the_other_file_lacks_is_named(file):
    file("base.yaml", text="schema: 1\nmodel: llama-3.1-8b\n")
    refused(file, "`fabric.from` (job.yaml:", "no block `fabric`", fabric={"from": "base.yaml"})


def test_the_users_folder_wins_and_may_stand_on_what_ships(home):
    (home / "demo.yaml").write_text("schema: 1\nfrom: demo\nrun: {seed: 7}\n")
    (home / "mine.yaml").write_text("schema: 1\nfrom: demo\nmodel: llama-3.1-8b\n")
    assert {"demo", "mine", "small"} <= set(scenario_names())
    demo = Scenario.load("demo").data
    assert (demo["run"]["seed"], demo["fabric"]["cluster"]) == (7, "dgx-h100")
    assert Scenario.load("mine").data["run"]["seed"] == 7


def test_settings_replace_values_words_of_layouts_and_kinds_of_fabric(file):
    settings = {
        "layout.zero": 0, "layout.sp": False, "hardware.set.efficiency.nic": 0.5,
        "fabric.builder": "rail_optimized:servers=4,radix=16", "fabric.server": "dgx-a100",
    }  # fmt: skip
    data = Scenario.load(file(), settings).data
    layout = Layout.parse(data["layout"])
    assert (layout.zero, layout.sp, layout.recompute) == (0, False, "selective")
    assert data["hardware"]["set"] == {"efficiency.nic": 0.5}
    assert "cluster" not in data["fabric"]
    assert data["fabric"]["server"] == "dgx-a100"


def test_a_setting_that_leads_nowhere_names_the_nearest(file):
    with pytest.raises(ModelError, match=r"`run` has no key `placment` \(--set\).*'placement'\?"):
        Scenario.load(file(), {"run.placment": "first"})
    with pytest.raises(ModelError, match=r"`model` is 'llama-3.1-8b', which has no key `layers`"):
        Scenario.load(file(), {"model.layers": 3})
    with pytest.raises(ModelError, match=r"'dq=3' is not known\. Did you mean 'dp'"):
        Scenario.load(file(), {"layout.dq": 3})


def test_a_layout_may_be_written_key_by_key(file):
    words = {"tp": 8, "sp": True, "dp": 4, "zero": 1, "gbs": 16, "seq": 8192,
             "recompute": "selective"}  # fmt: skip
    assert Scenario.load(file(layout=words)).build().layout == Layout.parse(SMALL["layout"])


# Faults


def test_all_faults_are_said_at_once_with_places_and_nearest_names(file):
    text = (
        "schema: 1\nmodle: x\nmodel: llama-3.1-8\n"
        "fabric:\n  cluster: dgx-h101\n  nodez: 4\n  nodes: '4'\n  failed: {node: [a]}\n"
        "layout: tp8 gbs16 seq8192 bff16\nrun: {placement: sperad, seed: -1}\n"
    )
    with pytest.raises(ModelError) as caught:
        Scenario.load(file(text=text))
    said = str(caught.value)
    for words in (
        "no key `modle` (job.yaml:2). Did you mean 'model'?",
        "`model` (job.yaml:3): There is no listed model 'llama-3.1-8'. Did you mean 'llama-3.1-8b'",
        "`fabric.cluster` (job.yaml:5): 'dgx-h101' is not known. Did you mean 'dgx-h100'?",
        "`fabric` has no key `nodez` (job.yaml:6). Did you mean 'nodes'?",
        "`fabric.nodes` (job.yaml:7) needs a whole number, but got '4'.",
        "`fabric.failed` has no key `node` (job.yaml:8). Did you mean 'nodes'?",
        "`layout` (job.yaml:9): 'bff16' is not known.",
        "`run.placement` (job.yaml:10): 'sperad' is not known. Did you mean 'spread'?",
        "`run.seed` (job.yaml:10) needs 0 or more, but got -1.",
    ):
        assert words in said
    assert len(said.splitlines()) == 9


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"schema": 2}, "`schema` (job.yaml:1) needs 1, but got 2."),
        ({"fabric": {}}, "needs `cluster`, `file` or `builder`"),
        ({"fabric": {"cluster": "dgx-h100", "file": "x"}}, "`cluster` and `file`: keep one"),
        ({"model": {"config": "c.json", "nam": "x"}}, "no key `nam`"),
        ({"layout": {"tp": 8, "seq": 8192}}, "`gbs` of `layout` (job.yaml:6) is missing"),
        ({"layout": {"gbs": 8, "seq": 8, "dp": "x"}}, "needs a whole number or 'auto'"),
        ({"run": {"tokens": "15X"}}, "'15T', but got '15X'"),
        ({"run": {"sensitivities": "tiers"}}, "Did you mean 'tier'?"),
        ({"run": None}, "`run` (job.yaml:7) needs keys and values, but got nothing."),
        ({"cases": [{"name": "x", "set": {"run.sed": 1}}]}, "'x': `run` has no key `sed`"),
        ({"cases": [{"name": "x", "set": {}, "against": "y"}]}, "there is no case 'y'"),
        ({"cases": [{"name": "base", "set": {}}]}, "'base' is reserved"),
        ({"cases": [{"name": "x", "set": {}, "form": 1}]}, "Known: 'name', 'set' and 'against'."),
    ],
)  # fmt: skip
def test_a_fault_says_what_is_wrong_and_where(file, keys, said):
    refused(file, said, **keys)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"hardware": {"set": {"latency.nic_step": 3e-6}}}, "such as '10us', not 3e-06"),
        ({"hardware": {"set": {"latency": {"nic_step": 3}}}}, "such as '10us', not 3"),
        ({"fabric": {"file": "x.json", "capacity": 400}}, "text with its unit, such as '400Gb/s'"),
        ({"fabric": {"file": "x.json", "capacity": "400"}}, "has no unit"),
        ({"fabric": {"builder": "fat_tree:k=4,capacity=400"}}, "has no unit"),
    ],
)
def test_bare_numbers_are_refused_where_a_unit_exists(file, keys, said):
    with pytest.raises(ModelError, match=re.escape(said)):
        Scenario.load(file(**keys), {"hardware.gpu": "h100"}).build()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema: 1\nschema: 1\n", "job.yaml:2: `schema` is there twice"),
        ("schema: [1\n", "cannot be read as YAML"),
        ("- 1\n", "holds a list"),
        ("", "holds nothing"),
        ("a: &a [*a]\n", "or holds itself"),
        ("a: &a\n  b: *a\n", "or holds itself"),
        ("a: !!python/object:os.system x\n", "cannot be read as YAML"),
    ],
)
def test_what_is_no_scenario_is_refused(file, text, said):
    with pytest.raises(ModelError, match=re.escape(said)):
        Scenario.load(file(text=text))


def test_a_short_text_that_grows_without_bound_is_refused(file):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(ModelError, match="too large"):
        Scenario.load(file(text="\n".join(lines)))


def test_an_unknown_scenario_offers_the_nearest():
    with pytest.raises(ModelError, match="Did you mean 'demo'"):
        Scenario.load("demmo")
    with pytest.raises(ModelError, match="Check the path"):
        Scenario.load("no/such.yaml")


# Objects


@pytest.mark.parametrize(
    ("given", "tokens"),
    [(15e12, 15e12), (7, 7.0), ("15T", 15e12), ("1.5e12", 1.5e12), ("300B", 3e11), ("2 M", 2e6)],
)
def test_tokens_are_numbers_or_text_with_a_scale(given, tokens):
    assert tokens_of(given) == tokens


def test_dp_auto_is_what_the_allocation_leaves(file):
    path = file(layout="tp8 dp=auto gbs24 seq8192", run={"allocation": 24})
    assert Scenario.load(path).build().layout.dp == 3


def test_numbers_of_the_profile_are_those_of_the_scenario(file):
    path = file(hardware={"set": {"efficiency": {"nic": 0.5}, "latency.nic_step": "7us"}})
    profile = Scenario.load(path).build().profile
    assert (profile.efficiency.nic.value, profile.efficiency.nic.kind) == (0.5, "user")
    assert profile.latency.nic_step.value == 7e-6


def test_a_model_may_be_given_by_its_sizes(file):
    sizes = {"name": "tiny", "layers": 4, "hidden": 512, "heads": 8, "kv_heads": 8, "head_dim": 64,
             "ffn": 2048, "vocab": 1024}  # fmt: skip
    assert Scenario.load(file(model=sizes)).build().model == Model(**sizes)


def test_failed_cables_fail_both_ways_and_unknown_ones_are_all_named(file):
    links = ["unit0-leaf0->spine1#1"]
    built = Scenario.load(file(fabric=SMALL["fabric"] | {"failed": {"links": links}})).build()
    dead = np.flatnonzero(~np.asarray(built.network.alive))
    names = [built.network.link_name(int(link)) for link in dead]
    assert names == ["unit0-leaf0->spine1#1", "spine1->unit0-leaf0#1"]
    assert np.asarray(built.whole.alive).all()
    bad = {"nodes": ["spin1"], "links": ["unit0-leaf0->spine1#9", "x"]}
    with pytest.raises(ModelError, match=r"(?s)Did you mean 'spine1'.*There are .*'x' is no link"):
        Scenario.load(file(fabric=SMALL["fabric"] | {"failed": bad})).build()


def test_a_placement_may_name_every_gpu(file):
    order = [f"server{3 - s}-gpu{g}" for s in range(4) for g in range(8)]
    report = Scenario.load(file(run={"placement": order, "sensitivities": "none"})).step()
    assert report.placement == "given"
    assert report.sensitivities is None
    # The four servers are alike, so the order of servers does not matter.
    first = Scenario.load(file()).step()
    assert report.step_time == pytest.approx(first.step_time, rel=1e-12)


def test_a_step_is_that_of_the_objects(file):
    scenario = Scenario.load(file())
    net = fb.topologies.cluster("dgx-h100", nodes=4)
    direct = fb.training.step(net, Model.listed("llama-3.1-8b"), Layout.parse(SMALL["layout"]))
    assert scenario.step().step_time == direct.step_time


def test_servers_stand_in_front_of_what_a_builder_makes(file):
    spec = "rail_optimized:servers=4,radix=64,capacity=400Gb/s"
    built = Scenario.load(file(fabric={"builder": spec, "server": "dgx-h100"})).build()
    assert (built.gpu.name, len(built.network.hosts)) == ("h100-sxm", 32)
    assert Scenario.load(file(fabric={"builder": spec, "server": "dgx-h100"})).step().step_time == (
        pytest.approx(Scenario.load(file()).step().step_time, rel=1e-12)
    )
    wrong = {"builder": spec, "server": "dgx-h100", "gpus_per_nic": 2}
    with pytest.raises(ModelError, match="8 GPUs and 8 NICs"):
        Scenario.load(file(fabric=wrong)).build()


def test_without_servers_every_endpoint_is_a_gpu_and_its_type_has_to_be_said(file):
    bare = {"builder": "leaf_spine:leaves=4,spines=2,hosts_per_leaf=8"}
    layout = "tp1 pp4 dp8 gbs64 seq512 zero1 recompute=full"
    with pytest.raises(ModelError, match=r"type of GPU is not known.*hardware: \{gpu: h100-sxm\}"):
        Scenario.load(file(fabric=bare, layout=layout)).build()
    answer = Scenario.load(file(fabric=bare, layout=layout, hardware={"gpu": "h100"})).answer()
    assert answer.report.gpus_used == 32
    assert "servers" in {row["name"] for row in answer.as_dict()["assumptions"]}


def test_hosts_without_the_nics_of_the_server_are_counted_in_the_refusal(file):
    spec = "rail_optimized:servers=4,rails=4,radix=16"
    with pytest.raises(ModelError, match="4 hosts with 4 NICs"):
        Scenario.load(file(fabric={"builder": spec, "server": "dgx-h100"})).build()


# A fabric in a file


@pytest.fixture(scope="module")
def read(shared):
    dump = shared / "samples" / "topology" / "ib" / "ndr_40sw_582ca.ibnetdiscover.gz"
    return Scenario.from_mapping(
        {
            "schema": 1,
            "model": "llama-3.1-8b",
            "fabric": {"file": str(dump), "server": "gb200-tray", "gpus_per_nic": 1},
            "layout": "tp4 sp dp108 zero1 gbs216 seq8192 recompute=selective",
            "run": {"placement": "spread"},
        }
    )


def test_hosts_with_four_consistent_rails_are_the_servers_of_a_real_fabric(read):
    built = read.build()
    assert len(built.network.hosts) == 432
    hosts = built.ground.found["hosts"]
    assert (hosts["used"], hosts["unnamed_nics"]) == (108, 69)
    swapped, others = hosts["left_out"]
    assert swapped == {"why": "rails swapped", "hosts": ["b08-p1-dgx-08-c01"]}
    assert len(others["hosts"]) == 13
    # Hosts on the same four leaves are a unit; there are seven sets of four.
    labels = built.network.labels
    units, sizes = np.unique(labels.tags["unit"][built.network.hosts], return_counts=True)
    assert len(units) == 7
    assert sorted((sizes // 4).tolist()) == [11, 13, 15, 16, 17, 18, 18]
    assert labels.names[0].startswith("a06-p1-dgx-02-c01")


def test_hosts_of_a_pattern_are_taken_only_and_no_match_offers_the_nearest(read):
    fabric = read.data["fabric"] | {"hosts": "a06-*"}
    built = Scenario.from_mapping(read.data | {"fabric": fabric, "layout": "tp4 gbs1 seq1"}).build()
    names = {name.rpartition("-")[0] for name in list(built.network.labels.names)[:40]}
    assert all(name.startswith("a06-") for name in names)
    assert 0 < len(built.network.hosts) < 432
    wrong = read.data | {"fabric": fabric | {"hosts": "a06-p1-dgx-02-c99"}}
    with pytest.raises(ModelError, match=r"matches no host\. Did you mean 'a06-p1-dgx-02-c"):
        Scenario.from_mapping(wrong).build()


def test_missing_cables_of_a_file_are_priced_against_its_uniform_design(read):
    answer = read.answer()
    found = answer.as_dict()["missing_cables"]
    assert (found["have"], found["design"], found["missing"]) == (532, 558, 26)
    assert answer.uniform.step_time < answer.report.step_time
    assert found["cost_s"] == pytest.approx(answer.report.step_time - answer.uniform.step_time)
    off = Scenario.from_mapping(read.data | {"run": read.data["run"] | {"missing_cables": False}})
    assert off.answer().uniform is None


# Cases


@pytest.fixture(scope="module")
def demo():
    return Scenario.load("demo").answer()


def dp_time(report):
    return sum(report.breakdown["dp"])


def test_a_lost_spine_costs_data_parallel_time_where_servers_are_spread_only(demo):
    lost = {
        name: dp_time(demo.case(f"{name}one spine out")) / dp_time(demo.case(before)) - 1
        for name, before in (("", "base"), ("spread, ", "spread"))
    }
    assert lost["spread, "] >= 0.03
    assert abs(lost[""]) <= 0.005


def test_a_leaf_that_loses_two_of_32_uplinks_slows_31_flows_by_one_in_thirty(demo):
    phase = lambda name: next(p for p in demo.case(name).phases if p.traffic.name == "dp")
    before, after = phase("spread"), phase("spread, one spine out")
    assert after.transfer / before.transfer == pytest.approx(31 / 30, rel=1e-9)
    crowd = next(case.crowd for case in demo.cases if case.name == "spread, one spine out")
    assert (crowd.exchange, crowd.flows, crowd.links, crowd.whole) == ("dp", 31, 30, 32)
    assert (crowd.kind, crowd.tier) == ("leaf", "leaf-spine")


def test_a_case_is_the_scenario_with_its_settings(demo):
    settings = {"run.placement": "spread", "fabric.failed.nodes": ["spine0"]}
    alone = Scenario.load("demo", settings).step()
    assert demo.case("spread, one spine out").step_time == alone.step_time


def test_cases_share_the_fabric_they_have_in_common(demo):
    networks = [demo.report.network, demo.case("spread").network]
    assert networks[0] is networks[1]


# The house


def test_the_published_json_schema_is_that_of_the_code():
    published = json.loads((ROOT / "docs" / "scenario.schema.json").read_text())
    assert published == json_schema()


def test_options_of_a_cluster_are_those_of_its_builder():
    import inspect

    from fabric.scenario._schema import Cluster, Fabric

    taken = set(inspect.signature(fb.topologies.cluster).parameters) - {"name"}
    assert set(Cluster.model_fields) - set(Fabric.model_fields) - {"cluster"} == taken


def test_every_yaml_block_of_the_page_is_a_scenario(tmp_path, shared):
    page = (ROOT / "docs" / "scenario.md").read_text()
    blocks = re.findall(r"```yaml\n(schema: 1\n.*?)```", page, re.DOTALL)
    assert len(blocks) >= 4
    for i, text in enumerate(blocks):
        (tmp_path / f"block{i}.yaml").write_text(text)
        Scenario.load(tmp_path / f"block{i}.yaml")


def test_importing_the_room_leaves_pydantic_and_yaml_to_their_first_use():
    code = (
        "import fabric.scenario, sys; print([m for m in ('pydantic', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_hardware_of_a_folder_is_used(file, tmp_path):
    (tmp_path / "parts").mkdir()
    raw = yaml.safe_load((Path(hardware.__file__).parent / "data" / "gpus.yaml").read_text())
    (tmp_path / "parts" / "gpus.yaml").write_text(
        yaml.safe_dump({"mine": raw["h100-sxm"] | {"aliases": []}})
    )
    path = file(hardware={"folder": "parts", "gpu": "mine"})
    assert Scenario.load(path).build().gpu.name == "mine"
