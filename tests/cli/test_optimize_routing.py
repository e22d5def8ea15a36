"""What `fabric optimize routing` promises: units of sizes, failed and slower nodes, its proof."""

import pytest

SMALL = "leaf_spine:leaves=2,spines=2,hosts_per_leaf=2,capacity=400Gb/s"

ASKED = (
    "optimize", "routing", "leaf_spine:leaves=3,spines=3,hosts_per_leaf=2,capacity=400Gb/s",
    "--pattern", "permutation", "--size", "1GB", "--paths", "4", "--steps", "1",
    "--tolerance", "1e-9",
)  # fmt: skip


def test_a_programme_closes_the_gap_unless_told_not_to(fabric):
    told = fabric(*ASKED, "--format", "json").json
    assert (told["programme"], told["certified"]) == (True, True)
    assert told["schema"] == "fabric.optimize.routing/1"
    assert "  the gap that was left is closed by a linear programme" in fabric(*ASKED).lines
    alone = fabric(*ASKED, "--no-prove", "--format", "json").json
    assert (alone["programme"], alone["certified"]) == (False, False)


@pytest.fixture
def sent(tmp_path):
    """Return options with a matrix: 50 from each host of the first leaf to one of the second."""
    file = tmp_path / "sent.csv"
    file.write_text("0,0,50,0\n0,0,0,50\n0,0,0,0\n0,0,0,0\n")
    return ("optimize", "routing", SMALL, "--matrix", file)


@pytest.mark.parametrize(
    ("unit", "told"), [("GB", "1.000 s"), ("KiB", "1024 ns"), ("B", "1 ns"), ("b", "125 ps")]
)
def test_the_numbers_of_a_matrix_have_the_unit_asked_for(fabric, sent, unit, told):
    lines = fabric(*sent, "--size-unit", unit).lines
    assert f"busiest link done in {told}," in lines[1]


def test_a_matrix_without_a_unit_is_refused(refused, sent):
    assert "`--matrix` needs `--size-unit`" in refused(*sent)
    assert "`--size-unit`" in refused(*sent, "--size-unit", "parsec")
    said = refused("optimize", "routing", SMALL, "--pattern", "ring", "--size-unit", "MB")
    assert "`--size-unit MB` is for `--matrix`" in said


def test_half_of_a_spine_gets_a_third_and_a_failed_one_nothing(fabric, sent):
    asked = (*sent, "--size-unit", "GB")
    half = fabric(*asked, "--degraded", "spine1=0.5", "--format", "json").json
    assert (half["before"], half["degraded"]) == (2.0, ["spine1=0.5"])
    assert half["objective"] == pytest.approx(4 / 3, rel=2e-4)
    gone = fabric(*asked, "--failed", "spine1", "--format", "json").json
    assert (gone["objective"], gone["paths"], gone["failed"]) == (2.0, 1, ["spine1"])
    lines = fabric(*asked, "--failed", "spine1").lines
    assert "  failed: spine1" in lines


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--failed", "spine7"), 2, "spine7"),
        (("--failed", "spine0", "--failed", "spine1"), 3, "Take back `--failed spine0`"),
        (("--degraded", "spine1"), 2, "`--degraded spine1` needs a node and a share"),
        (("--degraded", "spine1=half"), 2, "`--degraded spine1=half` needs a node and a share"),
        (("--degraded", "spine1=2"), 2, "`--degraded spine1=2` needs a node and a share"),
        (("--columns", "Volume=size"), 2, "`--columns` names the columns of a `--flows` file"),
    ],
)
def test_faults_are_one_message(refused, sent, options, code, said):
    assert said in refused(*sent, "--size-unit", "GB", *options, code=code)


def test_the_columns_of_a_flow_file_can_be_named(fabric, tmp_path):
    file = tmp_path / "flows.csv"
    file.write_text("src,dst,Volume\nleaf0-host0,leaf1-host0,50\n")
    asked = ("optimize", "routing", SMALL, "--flows", file, "--columns", "Volume=size_GB")
    assert fabric(*asked, "--format", "json").json["objective"] == 1.0
