"""What the catalogue of GPUs, servers, NICs, switches and profiles promises."""

import json
import math

import numpy as np
import pytest

from fabric import ModelError, hardware
from fabric._evidence import KINDS, Evidence

GETTERS = {
    "gpus": hardware.gpu,
    "servers": hardware.server,
    "nics": hardware.nic,
    "switches": hardware.switch,
    "profiles": hardware.profile,
}
EVERY = [(kind, name) for kind in GETTERS for name in hardware.names(kind)]
SERVERS = hardware.names("servers")

NIC = """
own:
  kind: measured
  source: our own bench
  rate: 390Gb/s
  ports: 2
"""


@pytest.fixture
def folder(tmp_path):
    """Write files of a user's folder, and return where they lie."""
    (tmp_path / "profiles").mkdir()

    def write(**files):
        for name, text in files.items():
            place = tmp_path if name in GETTERS else tmp_path / "profiles"
            (place / f"{name}.yaml").write_text(text)
        return tmp_path

    return write


def fault_of(function, *args, **kwargs):
    with pytest.raises(ModelError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


# What is built in.


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_number_says_how_it_is_known(kind, name):
    record = GETTERS[kind](name)
    found = dict(hardware.evidence(record))
    assert found
    assert {e.kind for e in found.values()} <= set(KINDS) - {"user"}
    assert all(len(e.source) > 10 for e in found.values())
    assert record.name == name


@pytest.mark.parametrize("name", SERVERS)
def test_the_wiring_of_a_server_has_a_source_and_its_parts_exist(name):
    server = hardware.server(name)
    assert server.kind in set(KINDS) - {"user"}
    assert len(server.source) > 10
    gpu, nic = hardware.gpu(server.gpu), hardware.nic(server.nic)
    assert nic.rate.value <= server.pcie_rate.value, "a slot narrower than its NIC"
    if server.links_per_gpu:
        assert server.scale_up == gpu.scale_up.value


@pytest.mark.parametrize("name", SERVERS)
def test_the_nic_of_a_gpu_is_on_its_own_pcie_switch(name):
    server = hardware.server(name)
    assert [server.pcie_of_nic[n] for n in server.nic_of_gpu] == list(server.pcie_of_gpu)
    assert sorted(server.nic_of_gpu) == list(range(server.n_nics)), "a rail that no GPU uses"


@pytest.mark.parametrize("name", hardware.names("gpus"))
def test_every_gpu_has_a_default_profile(name):
    gpu, profile = hardware.gpu(name), hardware.default_profile(name)
    assert profile.gpu == gpu.name or (profile.gpu, name) == ("a100-sxm", "a100-sxm-40g")
    numbers = dict(profile.evidence())
    heads = {key.partition(".")[0] for key in numbers}
    assert heads >= {"efficiency", "gemm_half", "latency", "jitter_per_doubling", "collectives"}
    if profile.name.startswith("default-"):
        assert {e.kind for e in numbers.values()} == {"assumed"}


@pytest.mark.parametrize(
    ("name", "links", "both_ways"),
    [("dgx-a100", 12, 600e9), ("dgx-h100", 18, 900e9), ("hgx-h800", 8, 400e9),
     ("hgx-a800", 8, 400e9), ("dgx-b200", 18, 1800e9), ("mi300x-8", 7, 896e9)],
)  # fmt: skip
def test_links_of_a_gpu_as_published(name, links, both_ways):
    server = hardware.server(name)
    assert server.links_per_gpu == links
    assert 2 * server.scale_up == both_ways


def test_pcie_5_of_16_lanes_is_128_gigabytes_both_ways():
    assert 2 * hardware.server("dgx-h100").pcie_rate.value == 128e9


def test_a_gpu_leaves_its_server_nine_times_slower_than_it_moves_inside():
    server = hardware.server("dgx-h100")
    assert (server.scale_up, hardware.nic(server.nic).rate.value) == (450e9, 50e9)


@pytest.mark.parametrize(
    ("name", "each", "whole"), [("dgx-a100", 200, 1.6), ("dgx-h100", 400, 3.2)]
)
def test_nics_of_a_server_as_published(name, each, whole):
    server = hardware.server(name)
    rate = hardware.nic(server.nic).rate.value
    assert rate * 8 == each * 1e9
    assert server.n_nics * rate * 8 == pytest.approx(whole * 1e12, rel=1e-15)


@pytest.mark.parametrize(
    ("name", "dense"),
    [("a100", 312), ("a800", 312), ("h100", 989), ("h800", 989), ("h200", 989), ("gh200", 989),
     ("b200", 2250), ("gb200", 2500), ("mi300x", 1307)],
)  # fmt: skip
def test_peaks_are_dense(name, dense):
    assert hardware.gpu(name).peak["bf16"].value == dense * 1e12


def test_a_server_without_gpudirect_differs_in_nothing_else():
    server = hardware.server("dgx-h100")
    staged = server.with_gpudirect(False)
    assert not staged.gpudirect
    assert staged.with_gpudirect(True) == server


# The published tables, typed by others.


@pytest.fixture(scope="session")
def published(shared):
    """Expected values by the name of the entry, of what was read in a document."""
    entries = json.loads((shared / "validation" / "topologies.json").read_text())
    return {e["name"]: e for e in entries if e["confidence"] not in ("mixed", "from-memory")}


@pytest.mark.parametrize(
    ("entry", "name"),
    [("dgx_a100_node", "dgx-a100"), ("dgx_h100_node", "dgx-h100"), ("b200_8gpu_node", "dgx-b200"),
     ("gb200_nvl72", "gb200-nvl72")],
)  # fmt: skip
def test_servers_equal_the_published_tables(published, entry, name):
    want, server = published[entry]["expected"], hardware.server(name)
    ours = {
        "gpu_egress_one_way_GBps": server.scale_up / 1e9,
        "gpu_bidir_GBps": 2 * server.scale_up / 1e9,
        "gpu_bidir_TBps": 2 * server.scale_up / 1e12,
        "nvlinks_total": server.n_gpus * server.links_per_gpu,
        "nvswitch_chips": len(server.chips),
        "chip_level_paths_gpu_pair": len(server.chips),
        "paths_gpu_pair": len(server.chips),
        "link_level_paths_gpu_pair": sum(n * n for n in server.chips),
        "gpu_facing_ports_per_chip": [server.n_gpus * n for n in server.chips],
        "links_per_gpu_per_nvswitch": max(server.chips),
        "links_per_gpu_per_chip": max(server.chips),
        "sum_gpu_egress_one_way_TBps": server.n_gpus * server.scale_up / 1e12,
        "aggregate_bidir_TBps": server.n_gpus * 2 * server.scale_up / 1e12,
        "bisection_one_way_TBps": server.n_gpus / 2 * server.scale_up / 1e12,
        "node_nic_egress_one_way_GBps": server.n_nics * hardware.nic(server.nic).rate.value / 1e9,
        "pcie_switches": server.n_pcie,
        "gpus_per_pcie_switch": server.pcie_of_gpu.count(0),
        "nics_per_pcie_switch": server.pcie_of_nic.count(0),
    }
    both = [key for key in ours if key in want]
    assert len(both) >= 3
    for key in both:
        np.testing.assert_allclose(ours[key], want[key], rtol=1e-12, err_msg=key)


def test_the_azure_server_equals_its_topology_file(published):
    want, server = published["h100_azure_ndv5_pcie"]["expected"], hardware.server("azure-ndv5")
    assert server.n_pcie == want["pcie_bridges"]
    assert server.socket_of_pcie.count(0) == want["bridges_per_socket"]
    assert server.pcie_of_gpu.count(0) == want["gpus_per_bridge"]
    assert server.pcie_of_nic.count(0) == want["nics_per_bridge"]
    # Lanes x transfers of one bit per lane.
    assert server.pcie_rate.value == want["pcie_gt_s"] * 1e9 * want["pcie_width"] / 8


@pytest.mark.parametrize(
    ("entry", "name", "ports"),
    [("asic_tomahawk5", "tomahawk5", "ports_800g"),
     ("asic_tomahawk5", "tomahawk5-400g", "ports_400g"),
     ("asic_tomahawk4", "tomahawk4", "ports_400g"), ("asic_tomahawk6", "tomahawk6", "ports_1600g"),
     ("asic_quantum_hdr_qm8790", "qm8790", "ports_200g"),
     ("asic_quantum2_qm9700", "qm9700", "ports_400g"),
     ("asic_quantum_x800_q3400", "q3400", "ports_800g"),
     ("asic_rosetta_slingshot", "rosetta", "ports_200g"),
     ("asic_nvswitch_gen3", "nvswitch3", "nvlink4_ports"),
     ("asic_nvswitch_gen4_nvl72", "nvswitch4", "nvlink5_ports")],
)  # fmt: skip
def test_switches_equal_the_published_tables(published, entry, name, ports):
    want, switch = published[entry]["expected"], hardware.switch(name)
    assert switch.ports == want[ports]
    for key, unit in (("one_way_TBps", 1e12), ("Tbps", 1e12 / 8), ("Tbps_per_dir", 1e12 / 8)):
        if key in want:
            assert switch.capacity == pytest.approx(want[key] * unit, rel=1e-12)


def test_nvswitch_of_the_third_generation():
    switch = hardware.switch("nvswitch3")
    assert (switch.ports, switch.capacity) == (64, 1.6e12)


def test_latencies_and_link_shares_are_those_of_nccl(shared):
    tables = json.loads((shared / "validation" / "nccl_tuning.json").read_text())
    latency = hardware.profile("megatron-core-h100").latency
    hops = tables["hw_latency_us"]
    assert latency.collective.value == pytest.approx(tables["base_latency_us"]["ring"]["LL"] * 1e-6)
    assert latency.nvlink_step.value == pytest.approx(hops["NVLINK"]["ring"]["LL"] * 1e-6)
    assert latency.nic_step.value == pytest.approx(hops["NET"]["ring"]["LL"] * 1e-6)
    links = tables["link_bandwidth_GBps"]
    share = hardware.profile("megatron-a100").efficiency.nvlink.value
    assert share == pytest.approx(links["SM80_NVLINK_BW"] / 25)
    for name, key in (
        ("dgx-h100", "SRP_QPI_BW"),
        ("dgx-b200", "ERP_QPI_BW"),
        ("dgx-a100", "AMD_BW"),
    ):
        assert hardware.server(name).socket_rate.value == links[key] * 1e9


# Names.


def test_aliases_lead_to_the_same_record():
    assert hardware.gpu("h100") == hardware.gpu("h100-sxm")
    assert hardware.server("hgx-h100") == hardware.server("dgx-h100")
    assert "h100" not in hardware.names("gpus")


@pytest.mark.parametrize(("kind", "wrong", "near"), [
    ("gpus", "h10", "h100-sxm"), ("gpus", "H200-SXM", "h200-sxm"),
    ("servers", "dgx-h1000", "dgx-h100"),
    ("nics", "cx9", "cx"), ("switches", "qm9702", "qm9700"),
    ("profiles", "megatron-h100", "megatron-a"),
])  # fmt: skip
def test_an_unknown_name_is_answered_with_the_nearest(kind, wrong, near):
    said = fault_of(GETTERS[kind], wrong)
    assert f"'{wrong}'" in said
    assert f"Did you mean '{near}" in said


def test_an_unknown_kind_of_part_is_refused():
    assert "Did you mean 'gpus'?" in fault_of(hardware.names, "gpu")


# Profiles.


def test_a_number_given_by_hand_is_the_users():
    base = hardware.profile("megatron-core-h100")
    own = base.with_values(
        {"efficiency.nic": 0.9, "latency.nic_step": "5us", "gemm_half": 64, "stack.dropout": True,
         "stack.attention": "flash2", "collectives.gamma": Evidence(0.5, "fitted", "our log")}
    )  # fmt: skip
    assert (own.efficiency.nic.value, own.efficiency.nic.kind) == (0.9, "user")
    assert own.latency.nic_step.value == pytest.approx(5e-6)
    assert own.gemm_half.value == 64
    assert (own.stack.dropout, own.stack.attention) == (True, "flash2")
    assert own.collectives.gamma.kind == "fitted"
    assert own.efficiency.gemm == base.efficiency.gemm
    assert base.efficiency.nic.value == 0.85


def test_every_wrong_value_of_a_profile_is_named_at_once():
    said = fault_of(
        hardware.profile("megatron-a100").with_values,
        {"efficiency.nik": 1.0, "latency.chunk": "5GB", "stack.dropout": 1,
         "stack.attention": False, "efficiency.gemm": "fast", "gemm_half": math.inf},
    )  # fmt: skip
    assert "no 'efficiency.nik'. Did you mean 'efficiency.nic'?" in said
    assert "`latency.chunk` needs a time such as '900ns' or '1.5ms', but '5GB' is a size" in said
    assert "`stack.dropout` needs true or false, but got 1." in said
    assert "`stack.attention` needs one of 'unfused', 'flash2' and 'flash3', but got False." in said
    assert "`efficiency.gemm` needs a number, but got 'fast'." in said
    assert "`gemm_half` needs a finite number, but got inf." in said


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [("efficiency.gemm", 0.0, "a share in (0, 1]"), ("efficiency.nic", 1.01, "a share in (0, 1]"),
     ("stack.factor", 1.2, "a share in (0, 1]"),
     ("collectives.nic_fraction", 2, "a share in (0, 1]"),
     ("stack.tp_exposed_backward", -0.1, "a share in [0, 1]"),
     ("stack.sp_exposed_backward", 1.1, "a share in [0, 1]"),
     ("core_half", -1.0, "a number of 0 or more"),
     ("collectives.bus_scale", 0.0, "a number above 0"),
     ("latency.collective", -1e-6, "a number of 0 or more"),
     ("jitter_per_doubling", -0.1, "a number of 0 or more")],
)  # fmt: skip
def test_a_number_out_of_its_range_is_refused(key, value, wanted):
    said = fault_of(hardware.profile("megatron-a100").with_values, {key: value})
    assert f"`{key}` of profile 'megatron-a100' needs {wanted}, but got" in said


def test_all_ranges_are_checked_before_anything_is_said():
    wrong = {"efficiency.gemm": 2.0, "latency.chunk": -1.0, "stack.attention": "flash4"}
    said = fault_of(hardware.profile("megatron-a100").with_values, wrong)
    assert len(said.splitlines()) == 3
    assert "Did you mean 'flash" in said


def test_evidence_is_checked():
    said = fault_of(Evidence, 1.0, "guessed", " ", 2.0)
    assert "`Evidence(kind='guessed')`: no such kind." in said
    assert "say where the number comes from" in said
    assert "low <= value <= high, but got 1.0 in the band 2.0 to None" in said
    assert "finite numbers" in fault_of(Evidence, math.nan, "user", "nothing")


# Files of the user.


def test_a_users_folder_wins_over_what_is_built_in(folder, monkeypatch):
    where = folder(nics=NIC + NIC.replace("own", "cx7").replace("390", "300"))
    assert hardware.nic("own", where).rate == Evidence(48.75e9, "measured", "our own bench")
    assert hardware.nic("cx7", where).rate.value == 37.5e9
    assert hardware.nic("cx6", where) == hardware.nic("cx6")
    assert hardware.names("nics", where) == ("cx6", "cx7", "cx8", "own")
    monkeypatch.setenv("FABRIC_HARDWARE", str(where))
    assert hardware.nic("own").ports == 2
    monkeypatch.delenv("FABRIC_HARDWARE")
    assert "There is no NIC 'own'." in fault_of(hardware.nic, "own")


def test_a_value_may_have_a_source_and_a_band_of_its_own(folder):
    text = NIC.replace(
        "rate: 390Gb/s", "rate: {value: 390Gb/s, low: 380Gb/s, kind: fitted, source: log}"
    )
    rate = hardware.nic("own", folder(nics=text)).rate
    assert rate == Evidence(48.75e9, "fitted", "log", 47.5e9, None)


def test_a_profile_like_another_keeps_what_it_does_not_give(folder):
    text = "like: megatron-core-h100\ngpu: {}\nkind: user\nsource: ours\nefficiency: {{nic: 0.7}}\n"
    where = folder(same=text.format("h100"), other=text.format("b200"))
    base, same = hardware.profile("megatron-core-h100"), hardware.profile("same", where)
    assert same.efficiency.nic == Evidence(0.7, "user", "ours")
    assert same.efficiency.gemm == base.efficiency.gemm
    assert (same.name, same.gpu, same.kind) == ("same", "h100-sxm", "user")
    gemm = hardware.profile("other", where).efficiency.gemm
    assert hardware.profile("same", where).settings() == base.settings()
    assert (gemm.value, gemm.kind) == (base.efficiency.gemm.value, "assumed")
    assert gemm.source.startswith("as h100-sxm in profile megatron-core-h100: ")


def test_every_fault_of_an_entry_is_named_with_its_file(folder):
    where = folder(
        gpus="x:\n  kind: gues\n  peak: {bf16: 989TB/s, fp61: 1TFLOP/s}\n  memory: 80\n"
        "  hbm: 3.35TB\n  scaleup: 450GB/s\n  profile: megatron-a10\n"
    )
    said = fault_of(hardware.gpu, "x", where).splitlines()
    entry = f"GPU 'x' in '{where / 'gpus.yaml'}': "
    for fault in (
        "`kind` is 'gues'. Did you mean 'user'?",
        "`peak.bf16` needs a rate of arithmetic such as '989TFLOP/s', but got '989TB/s'.",
        "there is no key 'peak.fp61'. Did you mean 'peak.fp16'?",
        "it lacks 'peak.fp16'.",
        "`memory` needs text with its unit, but got 80.",
        "`hbm` needs a rate such as '400Gb/s' or '50GB/s', but '3.35TB' is a size, not a rate.",
        "there is no key 'scaleup'. Did you mean 'scale_up'?",
        "it lacks 'source' and 'scale_up'.",
        "`profile`: There is no profile 'megatron-a10'. Did you mean 'megatron-a100'?",
    ):
        assert [line for line in said if line.startswith(entry + fault)], fault
    assert len(said) == 9


def test_every_fault_of_the_wiring_is_named(folder):
    text = """
bad:
  kind: user
  source: ours
  gpu: h100
  n_gpus: 2
  chips: [1, 1]
  mesh: 1
  link_rate: 25GB/s
  pcie_of_gpu: [0, 1, 1]
  pcie_of_nic: [0, 5]
  socket_of_pcie: [0, 0]
  pcie_rate: 64GB/s
  socket_rate: 22GB/s
  nic: cx7
  n_nics: 2
  nic_of_gpu: [0, 2]
  gpudirect: true
"""
    said = fault_of(hardware.server, "bad", folder(servers=text))
    assert "`pcie_of_gpu` of server 'bad' needs 2 entries, but has 3." in said
    assert "`pcie_of_nic` of server 'bad' names '5', but there are 2 PCIe switches" in said
    assert "`nic_of_gpu` of server 'bad' names '2', but there are 2 NICs" in said
    assert "has NVSwitch chips and a mesh" in said
    text = text.replace("[0, 1, 1]", "[0, -1]").replace("gpudirect: true", "gpudirect: 1")
    said = fault_of(hardware.server, "bad", folder(servers=text.replace("cx7", "cx77")))
    assert "`pcie_of_gpu` needs a list of whole numbers from 0, but got [0, -1]." in said
    assert "needs true or false, but got 1." in said
    assert "There is no NIC 'cx77'. Did you mean 'cx7'?" in said


def test_every_missing_key_of_a_profile_is_named(folder):
    where = folder(thin="gpu: h100\nkind: user\nsource: ours\nlatency: {chunk: 1}\nname: fat\n")
    said = fault_of(hardware.profile, "thin", where)
    for fault in (
        "it lacks 'gemm_half', 'core_half', 'jitter_per_doubling', 'efficiency', 'stack' and "
        "'collectives'.",
        "it lacks 'latency.collective', 'latency.nvlink_step', 'latency.nic_step', "
        "'latency.host_per_layer' and 'latency.microbatch'.",
        "`latency.chunk` needs text with its unit, but got 1.",
        "needs the name of its file, 'thin', but got 'fat'.",
    ):
        assert fault in said


def test_profiles_that_are_like_each_other_are_refused(folder):
    text = "like: {}\ngpu: h100\nkind: user\nsource: ours\n"
    where = folder(a=text.format("b"), b=text.format("a"))
    assert "Profiles 'a', 'b' and 'a' are like each other" in fault_of(hardware.profile, "a", where)
    assert "There is no profile 'c'" in fault_of(hardware.profile, "a", folder(b=text.format("c")))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(NIC + "  ports: 4\n", "the key 'ports' is there twice", id="key-twice"),
        pytest.param("own: [", "cannot be read as YAML", id="not-yaml"),
        pytest.param("own: !!python/object:os.x {}", "cannot be read as YAML", id="unsafe-tag"),
        pytest.param("- own", "needs a mapping of names to entries", id="list"),
        pytest.param("own: 3", "needs a mapping of keys to values, but got 3", id="no-entry"),
        pytest.param(NIC.replace(": 2", ": two"), "whole number from 0, but got 'two'", id="text"),
        pytest.param(NIC + "  aliases: cx", "needs a list of names, but got 'cx'", id="alias"),
        pytest.param(
            NIC.replace("390Gb/s", "{value: 1Gb/s, low: 2Gb/s}"), "low <= value <= high", id="band"
        ),
        pytest.param(
            NIC.replace("390Gb/s", "{valu: 1Gb/s}"), "it lacks 'rate.value'", id="no-value"
        ),
    ],
)
def test_a_file_that_is_wrong_is_named(folder, text, why):
    where = folder(nics=text)
    said = fault_of(hardware.nic, "own", where)
    assert why in said
    assert "nics.yaml" in said


def test_a_file_that_would_never_be_read_is_refused(folder, tmp_path):
    where = folder()
    for name in ("gpu.yaml", "profiles/own.yml"):
        (where / name).write_text("")
    said = fault_of(hardware.gpu, "h100", where)
    assert "'gpu.yaml' in the hardware folder" in said
    assert "Did you mean 'gpus.yaml'?" in said
    assert "'profiles/own.yml' in the hardware folder" in said
    assert "is no folder" in fault_of(hardware.gpu, "h100", tmp_path / "absent")


# Text with a unit.


@pytest.mark.parametrize(
    ("text", "flops"),
    [("989TFLOP/s", 989e12), ("2.25 PFLOP/s", 2.25e15), ("1EFLOP/s", 1e18), (312e12, 312e12)],
)  # fmt: skip
def test_rates_of_arithmetic_come_out_in_flop_per_second(text, flops):
    assert hardware.parse_flops(text) == pytest.approx(flops, rel=1e-15)


@pytest.mark.parametrize(
    "text", ["989", "989TFLOPS", "989TB/s", "fast", "-1TFLOP/s", "", -1.0, math.nan]
)
def test_anything_that_is_no_rate_of_arithmetic_is_refused(text):
    assert "`peak` needs a" in fault_of(hardware.parse_flops, text)
