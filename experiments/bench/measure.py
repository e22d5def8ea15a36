"""Measure cells in this process and print one JSON line each; see `__main__` for who calls it."""

import json
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import jax
import numba

import fabric as fb
from experiments.bench.problems import Work, work_of
from experiments.bench.references import Absent
from experiments.bench.registry import Cell

SCHEMA = "fabric.bench/1"
BUDGET_S = 12.0
"""Repeats stop here, after at least three."""


def measure(cells: Sequence[Cell], *, repeat: int, smoke: bool) -> None:
    """Print a line per cell; memory is right for the first cell only."""
    jax.block_until_ready(jax.numpy.zeros(1))  # starts the backend, whose memory is not the cell's
    imported = peak_mb()
    about = environment()
    for cell in cells:
        row: dict[str, object] = {"schema": SCHEMA, "cell": cell.name, **_columns(cell)}
        try:
            first, times, peak, facts = repeated(work_of(cell), 1 if smoke else repeat)
        except Absent as error:
            row["absent"] = str(error)
        except Exception as error:  # one broken cell must not hide the others
            row["error"] = f"{type(error).__name__}: {error}"
        else:
            row |= _times(first, times) if not smoke else {"smoke": True}
            row |= {"peak_mb": None if smoke else round(peak - imported, 1), **facts}
        print(json.dumps(row | {"environment": about}), flush=True)


def repeated(work: Work, repeat: int) -> tuple[float, list[float], float, dict[str, object]]:
    """Return the first call's seconds, those of the repeats, peak memory, and facts at the end."""
    first, result = work.run(work.fresh())
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < repeat and (len(times) < 3 or time.perf_counter() - began < BUDGET_S):
        result = None  # the peak is that of one result at a time
        state = work.fresh()
        seconds, result = work.run(state)
        times.append(seconds)
    peak = peak_mb()  # before the certificate, which takes more
    return first, times, peak, work.facts(result)


def peak_mb() -> float:
    """Return the largest resident size of this process so far, MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def environment() -> dict[str, object]:
    """Return what a number depends on."""
    packages = {name: version(name) for name in ("jax", "jaxlib", "numba", "numpy")}
    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "fabric": fb.__version__,
        **packages,
        "commit": _commit(),
        "cpu": _cpu(),
        "device": f"{device.platform}: {device.device_kind}",
        "threads": numba.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _columns(cell: Cell) -> dict[str, object]:
    return {
        "problem": cell.problem,
        "size": cell.size,
        "phase": cell.phase,
        "method": cell.method or None,
        "target_s": cell.target_s,
    }


def _times(first: float, times: list[float]) -> dict[str, object]:
    return {
        "median_s": statistics.median(times),
        "min_s": min(times),
        "max_s": max(times),
        "repeats": len(times),
        "first_call_s": first,
    }


def _commit() -> str | None:
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*", "--abbrev=40"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return said.stdout.strip() or None


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
