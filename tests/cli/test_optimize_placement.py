"""`fabric optimize placement` of a scenario: what it does where the step itself gets no shorter."""

import pytest

from fabric.cli import _optimize_placement
from fabric.training import StepReport

SMALL = (
    "optimize", "placement", "demo", "--set", "fabric.nodes=2", "--set", "model=llama-3.1-8b",
    "--set", "layout=tp4 dp4 zero1 gbs16 seq4096", "--set", "cases=[]", "--budget", 20,
    "--starts", 1,
)  # fmt: skip


@pytest.mark.parametrize("rise", [0.0, 1e-3])
def test_a_placement_with_a_longer_step_is_no_answer(fabric, refused, monkeypatch, tmp_path, rise):
    stepped, own, reports, times = _optimize_placement._stepped, StepReport.step_time, [], {}

    def slower(built, where):
        reports.append(stepped(built, where))
        longer = 1 + rise * (len(reports) == 2)
        times[id(reports[-1])] = own.fget(reports[0]) * longer
        return reports[-1]

    monkeypatch.setattr(_optimize_placement, "_stepped", slower)
    monkeypatch.setattr(StepReport, "step_time", property(lambda one: times[id(one)]))
    file = tmp_path / "ranks"
    if rise:
        assert "Keep the placement of the scenario" in refused(*SMALL, "--rank-file", file, code=4)
    else:
        fabric(*SMALL, "--rank-file", file)
    assert file.is_file() == (not rise)
