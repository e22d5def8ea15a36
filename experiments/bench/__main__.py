"""Run the measurements, each in a process of its own; JSON lines on stdout, progress on stderr."""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.bench.growth import growth_table, plot
from experiments.bench.registry import Cell, chosen
from experiments.bench.table import table

RESULTS = Path(__file__).with_name("results")
ONE_THREAD = {
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_ENABLE_X64": "1",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every cell ran and every certificate holds, else 1."""
    options = parsed(arguments)
    cells = chosen(only=options.only, smoke=options.smoke)
    if options.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    if options.inside:
        from experiments.bench.measure import measure

        measure(cells, repeat=options.repeat, smoke=options.smoke)
        return 0
    if not cells:
        print(f"no cell matches '{options.only}'; `--list` names them", file=sys.stderr)
        return 2
    rows: list[dict[str, Any]] = []
    # A smoke run measures nothing, so one process may run everything.
    for group in [cells] if options.smoke else [[cell] for cell in cells]:
        rows += run(group, options)
    failed = [row for row in rows if "error" in row]
    for row in failed:
        print(f"{row['cell']} failed: {row['error']}", file=sys.stderr)
    if options.table:
        print("\n" + table(rows), file=sys.stderr)
        if not options.smoke:
            print("\n" + growth_table(rows), file=sys.stderr)
    if options.plot:
        plot(rows, Path(options.plot))
    if options.out is not None:
        path = Path(options.out) if options.out else default_path(rows)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(f"written to {path}", file=sys.stderr)
    return 1 if failed else 0


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench", description=__doc__)
    parser.add_argument("--only", default="", help="part of a name, or a shell pattern")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--smoke", action="store_true", help="smallest sizes, once, no times")
    parser.add_argument("--repeat", type=int, default=9, help="timed runs per cell (default 9)")
    parser.add_argument("--table", action="store_true", help="end with a table on stderr")
    parser.add_argument(
        "--out", nargs="?", const="", metavar="FILE",
        help="also write the lines to FILE; without a name, to results/DATE-CPU.jsonl",
    )  # fmt: skip
    parser.add_argument("--plot", metavar="FILE", help="draw growth with size (needs matplotlib)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def run(cells: Sequence[Cell], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of some cells, measured in one new process, and print them as they come."""
    command = [sys.executable, "-m", "experiments.bench", "--inside", f"--repeat={options.repeat}"]
    command += (
        ["--smoke", f"--only={options.only}"] if options.smoke else [f"--only={cells[0].name}"]
    )
    environment = {**os.environ, **ONE_THREAD}
    if not options.smoke and cells[0].phase == "batch":
        del environment["NUMBA_NUM_THREADS"]
    environment.setdefault("JAX_PLATFORMS", "cpu")
    began = time.perf_counter()
    child = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    rows: list[dict[str, Any]] = []
    assert child.stdout is not None
    for line in child.stdout:
        rows.append(json.loads(line))
        print(line, end="", flush=True)
        print(f"{rows[-1]['cell']}: {time.perf_counter() - began:.1f} s", file=sys.stderr)
    if child.wait() != 0 or len(rows) < len(cells):
        missing = [cell.name for cell in cells if cell.name not in {row["cell"] for row in rows}]
        rows += [{"cell": name, "error": f"exit code {child.returncode}"} for name in missing]
    return rows


def default_path(rows: Sequence[dict[str, Any]]) -> Path:
    """Return `results/DATE-CPU.jsonl`."""
    about = next((row["environment"] for row in rows if "environment" in row), {})
    cpu = re.sub(r"[^a-z0-9]+", "-", str(about.get("cpu", platform.machine())).lower()).strip("-")
    return RESULTS / f"{datetime.datetime.now(datetime.UTC).date()}-{cpu}.jsonl"


if __name__ == "__main__":
    sys.exit(main())
