"""What the verbs of `fabric optimize` say, and the files that they write."""

import csv
import json

import numpy as np
import pytest

import fabric as fb
from fabric import optimize
from fabric.cli._optimize_fabric import capacity_text, circuits_text, curve_text

FABRIC = "leaf_spine:leaves=3,spines=2,hosts_per_leaf=2,capacity=400Gb/s,uplink_capacity=200Gb/s"
ROUTED = ("optimize", "routing", FABRIC, "--pattern", "all-to-all", "--size", "1GB")


@pytest.fixture
def demand(tmp_path):
    """Four blocks, of which two pairs talk more than the others, in GB/s."""
    values = np.array([[0, 40, 10, 10], [40, 0, 10, 10], [10, 10, 0, 40], [10, 10, 40, 0]])
    file = tmp_path / "demand.csv"
    np.savetxt(file, values, delimiter=",", fmt="%d")
    return file


def test_routing_tells_the_numbers_of_the_library(fabric):
    answer = fabric(*ROUTED, "--format", "json").json
    net = fb.topologies.build(FABRIC)
    flows = fb.traffic.all_to_all(net.hosts, size=1e9)
    found = optimize.routing_weights(net, flows)
    assert answer["objective"] == pytest.approx(found.objective, rel=1e-12)
    assert answer["certified"]
    # 8 GB leave every leaf over two links of 25 GB/s; no routing does better than half on each.
    assert answer["objective"] == pytest.approx(8 / 2 / 25, rel=1e-9)
    assert (1 - 1e-4) * 0.16 <= answer["bound"] <= 0.16 * (1 + 1e-12)


def test_routing_goes_by_rates_where_sizes_are_not_known(fabric):
    args = [*ROUTED[:-2], "--steps", 5, "--format", "json"]
    assert fabric(*args).json["of"] == "rate"
    assert fabric(*args, "--objective", "time", "--size", "1GB").json["of"] == "time"


def test_routing_text_has_the_proof_and_the_gain(fabric):
    lines = fabric(*ROUTED, "--control").lines
    assert lines[0].startswith("all-to-all on leaf_spine(")
    assert "busiest link done in 160.00 ms" in lines[1]
    assert "against equal splits" in lines[1]
    assert lines[2].startswith("  bound 159.98 ms, gap 0.0")
    assert ", certified; " in lines[2]
    assert "random moves reach" in lines[2]


def test_routing_writes_tables_that_add_up(fabric, tmp_path):
    file, plot = tmp_path / "weights.csv", tmp_path / "run.svg"
    fabric(*ROUTED, "--tables", file, "--entries", 8, "--plot", plot)
    rows = list(csv.DictReader(file.read_text().splitlines()))
    groups: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row["switch"], row["destination"])
        groups[key] = groups.get(key, 0) + int(row["weight"])
    assert set(groups) == {(f"leaf{a}", f"leaf{b}") for a in range(3) for b in range(3) if a != b}
    assert max(groups.values()) <= 8
    assert plot.read_text().startswith("<?xml")


def test_routing_goes_on_from_a_checkpoint(fabric, tmp_path):
    file = tmp_path / "state"
    first = fabric(*ROUTED, "--checkpoint", file, "--format", "json").json
    again = fabric(*ROUTED, "--checkpoint", file, "--format", "json").json
    assert file.exists()
    assert again["objective"] == first["objective"]


def test_an_interrupt_says_whether_there_is_something_to_go_on_from(fabric, monkeypatch, tmp_path):
    file = tmp_path / "state"
    fabric(*ROUTED, "--checkpoint", file)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(optimize, "routing_weights", interrupted)
    for option in (["--checkpoint", file], [f"--checkpoint={file}"]):
        ran = fabric(*ROUTED, *option)
        assert ran.code == 130
        assert ran.out == ""
        assert ran.err == (
            f"error: interrupted; the same command goes on from the checkpoint '{file}'.\n"
        )
    assert "nothing was written" in fabric(*ROUTED, "--checkpoint", tmp_path / "none").err


def test_a_file_that_says_no_capacities_gets_them_on_the_command_line(fabric, refused, tmp_path):
    file = tmp_path / "graph.json"
    ends = [["a", "b"], ["b", "c"], ["c", "a"]]
    links = [{"source": x, "target": y} for x, y in ends]
    nodes = [{"id": name} for name in "abc"]
    file.write_text(json.dumps({"nodes": nodes, "links": links, "multigraph": False}))
    asked = ["optimize", "routing", file, "--pattern", "ring", "--size", "1GB"]
    assert "`--capacity" in refused(*asked)
    answer = fabric(*asked, "--capacity", "8Gb/s", "--format", "json").json
    assert answer["objective"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--paths", "longest"], "paths"),
        (["--objective", "speed"], "'speed'"),
        (["--tables", "/nowhere/at/all.csv"], "`--tables /nowhere/at/all.csv`: there is no folder"),
        (["--plot", "/nowhere/at/all.svg"], "`--plot /nowhere/at/all.svg`: there is no folder"),
        (["--plot", "gap.txt"], "End its name in .png"),
        (["--entries", "8"], "`--entries` is about the tables"),
        (["--per-switch", "8"], "`--per-switch` is about the tables"),
        (["--checkpoint", "/nowhere/at/all"], "needs a folder that exists"),
        (["--capacity", "1Gb/s"], "`--capacity` says how to read a file"),
        (["--flows", "x.csv"], "exactly one"),
    ],
)
def test_routing_refuses_what_it_does_not_know(refused, options, said):
    assert said in refused(*ROUTED, *options)


def test_circuits_follow_the_demand(fabric, demand):
    args = ["optimize", "circuits", demand, "--unit", "GB/s", "--ports", 6, "--rate", "80Gb/s"]
    answer = fabric(*args, "--steps", 100, "--format", "json").json
    found = np.array(answer["circuits"])
    assert (found == found.T).all()
    assert found.sum(1).max() <= 6
    # 60 GB/s leave each block, over 6 circuits of 10 GB/s: 1 is the least there can be.
    assert answer["objective"] == pytest.approx(1.0, rel=1e-6)
    assert found[0].tolist() == [0, 4, 1, 1]


def test_circuits_write_a_patch_list_and_say_what_to_set(fabric, demand, tmp_path):
    patch = tmp_path / "patch.csv"
    args = ["optimize", "circuits", demand, "--unit", "GB/s", "--ports", 6, "--rate", "80Gb/s"]
    lines = fabric(*args, "--steps", 100, "--patch", patch).lines
    assert lines[0] == "demand.csv: 4 blocks, 6 ports each"
    assert "12 circuits to set" in lines
    rows = list(csv.DictReader(patch.read_text().splitlines()))
    assert sum(int(row["circuits"]) for row in rows) == 12


def test_circuits_are_left_where_a_change_does_not_pay(fabric, demand, tmp_path):
    today = tmp_path / "today.npy"
    np.save(today, 2.0 * (1 - np.eye(4)))
    args = ["optimize", "circuits", demand, "--unit", "GB/s", "--ports", 6, "--rate", "80Gb/s"]
    args += ["--steps", 100, "--current", today, "--reconfiguration", "9s", "--phase", "10s"]
    answer = fabric(*args, "--format", "json").json
    assert not answer["reconfigured"]
    assert answer["rewires"] == 0
    assert any("left as they are" in line for line in circuits_text(answer))


def test_a_patch_list_can_be_given_back_and_only_changes_are_listed(fabric, demand, tmp_path):
    patch, even = tmp_path / "patch.csv", tmp_path / "even.csv"
    np.savetxt(even, 1 - np.eye(4), delimiter=",", fmt="%d")
    args = ["--unit", "GB/s", "--ports", 6, "--rate", "80Gb/s", "--steps", 100]
    for extra in (["--switches", 3], []):
        fabric("optimize", "circuits", demand, *args, *extra, "--patch", patch)
        again = ["optimize", "circuits", demand, *args, "--current", patch]
        answer = fabric(*again, "--format", "json").json
        assert answer["rewires"] == 0
        assert sum(row["kept"] for row in answer["patch"]) == 12
        assert circuits_text(answer)[-1] == "0 circuits to set, 0 to remove, 12 stay"
        other = ["optimize", "circuits", even, *args, "--current", patch, "--format", "json"]
        answer = fabric(*other).json
        if answer["rewires"]:
            assert len(circuits_text(answer)) < len(answer["patch"]) + 8


def test_a_patch_list_of_other_blocks_is_refused(refused, demand, tmp_path):
    patch = tmp_path / "patch.csv"
    args = ["optimize", "circuits", demand, "--unit", "GB/s", "--ports", 6, "--rate", "80Gb/s"]
    patch.write_text("switch,north,south,circuits\n0,0,1,1\n0,4,1,1\n")
    assert "Line 3 of" in refused(*args, "--current", patch)
    patch.write_text("a,b,circuits\n0,x,1\n")
    assert "needs whole numbers as a, b, circuits" in refused(*args, "--current", patch)


def test_a_demand_that_does_not_fit_is_remarked_and_lone_times_are_refused(fabric, refused, demand):
    args = ["optimize", "circuits", demand, "--unit", "GB/s", "--ports", 6, "--rate", "40Gb/s"]
    lines = fabric(*args, "--steps", 100).lines
    assert "  the demand does not fit: the circuits carry 0.5 of it" in lines
    assert "`--phase` says nothing without `--reconfiguration`" in refused(*args, "--phase", "9s")
    assert "without `--phase`" in refused(*args, "--reconfiguration", "9s")


def test_a_demand_that_is_no_matrix_is_refused(refused, tmp_path):
    file = tmp_path / "demand.csv"
    file.write_text("a,b\n1,2\n")
    args = ["optimize", "circuits", file, "--unit", "GB/s", "--ports", 6, "--rate", "80Gb/s"]
    assert "needs a row of numbers" in refused(*args)
    file.write_text("0,1,2\n1,0,2\n")
    assert "(2, 3)" in refused(*args)
    file.write_text("0,1\n1,0\n")
    assert "`--unit`" in refused(*(arg if arg != "GB/s" else "GB" for arg in args))


BOUGHT = ("optimize", "capacity", "small", "--price", "leaf-spine=3 per Gb/s", "--price",
          "nvlink=1 per Gb/s", "--steps", 20, "--no-control")  # fmt: skip


def test_capacity_buys_within_the_budget_and_says_what_is_next(fabric):
    answer = fabric(*BOUGHT, "--budget", 1e6, "--format", "json").json
    assert answer["cost"] == pytest.approx(1e6, rel=1e-6)
    assert answer["bound"] <= answer["objective"] <= answer["before"]
    assert answer["next"] in answer["factors"]
    lines = capacity_text(answer)
    assert sum("<- buy next" in line for line in lines) == 1
    assert " for 1,000,000; " in lines[1]
    assert all("Gb/s" in line for line in lines[5:])
    most = fabric(*BOUGHT, "--budget", 1e6, "--most", 1.5, "--format", "json").json
    assert max(answer["factors"].values()) > 1.5 >= max(most["factors"].values())
    assert most["objective"] >= answer["objective"]


def test_several_budgets_say_which_tier_to_buy_next(fabric, tmp_path):
    file = tmp_path / "curve.json"
    ran = fabric(*BOUGHT, "--budget", 1.2e6, "--budget", 1e6, "--format", "json", "-o", file)
    assert ran.code == 0, ran.err
    answer = json.loads(file.read_text())
    assert answer["schema"] == "fabric.capacity-curve/1"
    assert answer["budgets"] == [1e6, 1.2e6]
    low, high = answer["points"]
    assert high["objective"] < low["objective"]
    saved = (low["objective"] - high["objective"]) / 2e5
    assert answer["marginal"] == [pytest.approx(saved, rel=1e-9)]
    lines = curve_text(answer)
    assert lines[0].startswith("small on ")
    assert lines[2].split()[:3] == ["budget", "step", "bound"]
    assert answer["next"][0] in lines[3]
    assert f"{saved:.3g} s" in lines[3]
    assert len(lines) == 5


def test_a_target_out_of_reach_is_told_in_plain_quotes(refused):
    told = refused(*BOUGHT, "--target", "1ns", "--most", 2, code=3)
    assert "(`most`): 'small' takes" in told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--price", "nvlink"], "not of the form `TIER=PRICE`"),
        (["--price", "nvlnk=1 per Gb/s", "--budget", 1], "'nvlnk'"),
        (["--price", "nvlink=1 per Gb/s"], "needs `budget` or `target`"),
        (["--price", "nvlink=1 per Gb/s", "--price", "nvlink=2 per Gb/s"], "'nvlink' twice"),
        (
            ["--price", "nvlink=1 per Gb/s", "--budget", 1, "--budget", 2, "--target", "9s"],
            "`--target` goes with one `--budget`",
        ),
    ],
)
def test_capacity_refuses_what_it_does_not_know(refused, options, said):
    assert said in refused("optimize", "capacity", "small", *options)


SCATTERED = ("small", "--set", "run.placement=spread", "--set",
             "layout=dp32 zero1 mb1 gbs64 seq4096 recompute=full", "--budget", 60,
             "--starts", 2)  # fmt: skip


@pytest.fixture
def chatty(tmp_path):
    """Ranks that talk to the one half a fabric away, in MB."""
    file = tmp_path / "traffic.csv"
    np.savetxt(file, 100 * np.roll(np.eye(6), 3, axis=1), delimiter=",", fmt="%d")
    return file


def test_placement_brings_together_what_talks_and_writes_files(fabric, chatty, tmp_path):
    ranks, hosts = tmp_path / "rankfile", tmp_path / "hostfile"
    args = ["optimize", "placement", FABRIC, "--traffic", chatty, "--unit", "MB"]
    args += ["--rank-file", ranks, "--hostfile", hosts]
    answer = fabric(*args, "--format", "json").json
    # Three pairs fit into three leaves: 100 MB over a host link of 50 GB/s, and no spine.
    assert answer["objective"] == pytest.approx(100e6 / 50e9)
    assert answer["certified"]
    assert answer["before"] > answer["objective"]
    assert len(set(answer["endpoints"])) == 6
    assert ranks.read_text().splitlines()[0].startswith(f"rank 0={answer['endpoints'][0]}")
    assert len(hosts.read_text().splitlines()) == 6
    assert "traffic done in 2.00 ms" in fabric(*args).lines[1]


def test_placement_of_a_scenario_tells_the_step_before_and_after(fabric):
    answer = fabric("optimize", "placement", *SCATTERED, "--format", "json").json
    took = answer["step_time_s"]
    step = fabric("run", *SCATTERED[:5], "--format", "json").json["step_time_s"]
    assert took["before"] == pytest.approx(step, rel=1e-12)
    assert took["after"] <= took["before"] * (1 + 1e-9)
    assert answer["objective"] <= answer["before"] * (1 + 1e-9)
    assert answer["bound"] <= answer["objective"] * (1 + 1e-9)
    assert len(answer["endpoints"]) == 32


def test_placement_bears_a_phase_that_never_leaves_its_server(fabric):
    spread = ("small", "--set", "run.placement=spread", "--budget", 60, "--starts", 2)
    answer = fabric("optimize", "placement", *spread, "--format", "json").json
    assert 0 < answer["bound"] <= answer["objective"] <= answer["before"] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([FABRIC], "`--traffic FILE --unit MB`"),
        (["small", "--routing", "ecmp"], "`--routing` is for a fabric"),
        ([FABRIC, "--traffic", "x.csv"], "needs `--unit`"),
        ([FABRIC, "--traffic", "x.csv", "--unit", "MB", "--set", "run.seed=1"], "for scenarios"),
    ],
)
def test_placement_refuses_what_does_not_go_together(refused, options, said):
    assert said in refused("optimize", "placement", *options)
