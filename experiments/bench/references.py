"""Other solvers on the same instances in the same run: what our times are compared with.

`cpp`: water-filling in C++, the better of its heap and its local rounds, if its source lies beside
the checkout and there is a compiler; `numpy`: the vectorised rounds of `fabric.reference`; `highs`:
its chain of linear programmes, for tens of flows.
"""

import atexit
import functools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.bench.instances import Instance, instance
from fabric.reference.problem import Problem

SOURCE = Path(__file__).resolve().parents[3] / "shared" / "golden" / "maxmin" / "wf_reference.cpp"
MODES = ("heap", "local")
Seconds = tuple[float, float]
"""Seconds of a solve, and the sum of its rates."""


class Absent(Exception):
    """A reference that this machine does not have."""


def runner(method: str, size: str) -> Callable[[], Seconds]:
    """Return a call that solves a golden instance once by a reference.

    Raises:
        Absent: If the reference is not there; the text says what to install.
    """
    made = instance(size)
    return {"cpp": _cpp, "numpy": _numpy, "highs": _highs}[method](made)


def timed(call: Callable[[], np.ndarray]) -> Seconds:
    """Return the seconds of a call and the sum of what it returned."""
    began = time.perf_counter()
    rates = call()
    return time.perf_counter() - began, float(np.sum(rates))


def _cpp(made: Instance) -> Callable[[], Seconds]:
    binary = compiled()
    path = folder() / "instance.bin"
    write_binary(made, path)

    def run(mode: str) -> Seconds:
        said = subprocess.run(
            [binary, mode, path], capture_output=True, text=True, check=True
        ).stdout
        answer = json.loads(said)
        return answer["wall_s"], answer["sum"]

    best = min(MODES, key=lambda mode: min(run(mode)[0] for _ in range(3)))
    return lambda: run(best)


@functools.cache
def compiled() -> Path:
    """Return the compiled C++ reference.

    Raises:
        Absent: If its source or a compiler is not there.
    """
    compiler = shutil.which("g++") or shutil.which("clang++")
    if not SOURCE.is_file():
        message = f"the source {SOURCE.name} does not lie in {SOURCE.parent}"
        raise Absent(message)
    if compiler is None:
        message = "there is no C++ compiler; install g++"
        raise Absent(message)
    binary = folder() / "reference"
    flags = ["-O3", "-march=native", "-std=c++17"]
    subprocess.run([compiler, *flags, SOURCE, "-o", binary], check=True, capture_output=True)
    return binary


def folder() -> Path:
    """Return a new folder that goes when this process does."""
    made = tempfile.mkdtemp(prefix="fabric-bench-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def write_binary(made: Instance, path: Path) -> None:
    """Write an instance as the C++ reference reads it: five counts, then the arrays."""
    counts = [len(made["capacity"]), len(made["flow_ptr"]) - 1, len(made["flow_links"]), 0, 0]
    columns = (("capacity", "<f8"), ("flow_ptr", "<i8"), ("flow_links", "<i4"))
    with path.open("wb") as file:
        file.write(np.array(counts, "<i8").tobytes())
        for key, dtype in columns:
            file.write(np.ascontiguousarray(made[key], dtype).tobytes())


def _numpy(made: Instance) -> Callable[[], Seconds]:
    from fabric.reference.water_fill import max_min_rates_by_rounds

    problem = _problem(made)
    return lambda: timed(lambda: max_min_rates_by_rounds(problem)[0])


def _highs(made: Instance) -> Callable[[], Seconds]:
    from fabric.reference.lp import max_min_rates_lp

    problem = _problem(made)
    return lambda: timed(lambda: max_min_rates_lp(problem))


def _problem(made: Instance) -> Problem:
    return Problem.from_csr(made["capacity"], made["flow_ptr"], made["flow_links"])
