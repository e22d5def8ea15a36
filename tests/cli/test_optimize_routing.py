"""What `fabric optimize routing` says about a gap that only a linear programme closes."""

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
