"""The harness for speed: others agree, growth is a slope, the accelerator run works on a CPU."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.bench import growth, references
from experiments.bench.registry import SPECS, Cell, chosen
from experiments.bench.table import table

ROOT = Path(__file__).resolve().parents[2]


def row(size, flows, method, seconds):
    about = {"problem": "permutation", "phase": "rates", "size": size, "method": method}
    return about | {"flows": flows, "min_s": seconds, "median_s": 1.1 * seconds}


def test_growth_and_ratios_are_read_from_rows():
    rows = [row("ft-10k", 1e4, "cpp", 0.01), row("ft-100k", 1e5, "cpp", 0.1)]
    rows += [row("ft-10k", 1e4, "compiled", 0.005), row("ft-100k", 1e5, "compiled", 0.2)]
    rows.append({"problem": "permutation", "phase": "rates", "cell": "x", "error": "broken"})
    assert growth.slope(growth.points(rows, "rates", "cpp")) == 1.0
    assert growth.ratios(rows) == pytest.approx({"ft-10k": 0.5, "ft-100k": 2.0})
    said = growth.growth_table(rows)
    assert "| rates, compiled | 1.602 | 1.050 |" in said
    assert growth.slope([]) is None


def test_every_cell_has_a_name_of_its_own():
    for smoke in (False, True):
        names = [cell.name for cell in chosen(smoke=smoke)]
        assert len(set(names)) == len(names)
    assert {spec.phase for spec in SPECS} > {"rates", "solve", "reverse", "batch", "compress"}


@pytest.mark.parametrize("method", ["numpy", "highs"])
def test_other_solvers_give_the_same_sum_of_rates(method):
    _, total = references.runner(method, "ls-24")()
    _, ours = work_of_rates("ls-24")
    assert total == pytest.approx(ours, rel=1e-9)


def test_the_reference_in_cpp_gives_the_same_sum_of_rates(shared):
    assert references.SOURCE.is_relative_to(shared)
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        with pytest.raises(references.Absent, match="no C\\+\\+ compiler"):
            references.runner("cpp", "ft-1k")
        return
    _, total = references.runner("cpp", "ft-1k")()
    assert total == pytest.approx(work_of_rates("ft-1k")[1], rel=1e-9)


def work_of_rates(size):
    from experiments.bench.problems import work_of

    work = work_of(Cell("permutation", size, "rates", "compiled"))
    return work.run(work.fresh())


def test_a_reference_that_is_absent_is_no_failure(monkeypatch, tmp_path):
    monkeypatch.setattr(references, "SOURCE", tmp_path / "no.cpp")
    references.compiled.cache_clear()
    with pytest.raises(references.Absent, match=r"no\.cpp does not lie in"):
        references.runner("cpp", "ls-24")
    assert "not here: gone" in table([{"cell": "a", "absent": "gone"}])


def test_the_accelerator_run_works_on_a_cpu_without_what_files_and_commands_need(tmp_path):
    blocked = tmp_path / "sitecustomize.py"
    blocked.write_text("import sys\nfor name in ('pydantic', 'typer', 'yaml', 'rich'):\n")
    blocked.write_text(blocked.read_text() + "    sys.modules[name] = None\n")
    out = tmp_path / "result.json"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "experiments.bench.gpu", "--smoke", f"--out={out}"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    rows = json.loads(out.read_text())["rows"]
    cells = {row["cell"] for row in rows}
    assert {"ft-1k/solve/float32", "ft-1k/scatter/float32", "ls-1k/reverse/float64"} <= cells
    assert {"ft-1k/batch/4", "rails/quotient/4"} <= cells
    assert all(row["agrees"] for row in rows if "agrees" in row)
