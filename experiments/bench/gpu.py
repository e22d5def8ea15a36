"""Measure an accelerator against this machine's CPU: `python3 -m experiments.bench.gpu --help`.

Works offline with what `import fabric` and its solvers need (jax, numpy, equinox, numba, networkx,
scipy), makes its own instances and stops within six minutes. Each part runs in a process of its
own and says a line per measurement, so that what is late or broken takes nothing else with it.
The last line printed names the file, one JSON document, that holds everything.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

LIMIT_S = 340.0
"""All parts together end within this."""

FLAG = "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL"
"""Puts the loop of rounds into one launch, where the version of XLA can."""

PARTS = {"solves": 190.0, "solves-flag": 90.0, "batches": 120.0}
"""Parts, and seconds after which each is stopped; what it has said by then is kept."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every part ended and all rates agree with the CPU's, else 1."""
    options = parsed(arguments)
    if options.inside:
        from experiments.bench.gpu_parts import measure

        measure(options.inside, smoke=options.smoke)
        return 0
    began = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for part, limit in PARTS.items():
        left = LIMIT_S - (time.perf_counter() - began)
        rows += run(part, min(limit, left), smoke=options.smoke)
    took = time.perf_counter() - began
    document = {"schema": "fabric.bench-gpu/1", "seconds": round(took, 1), "rows": rows}
    path = Path(options.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print("\n" + table(rows))
    failed = [row for row in rows if "error" in row or row.get("agrees") is False]
    for row in failed:
        print(f"{row['cell']}: {row.get('error', 'rates differ from those of the CPU')}")
    print(f"{took:.0f} s; written to {path}")
    return 1 if failed else 0


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python3 -m experiments.bench.gpu", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="smallest sizes; a CPU will do")
    parser.add_argument("--out", default="bench-gpu.json", help="where to write the results")
    parser.add_argument("--inside", choices=PARTS, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def run(part: str, limit: float, *, smoke: bool) -> list[dict[str, Any]]:
    """Return what a part said within its limit; a last row tells if it did not end well."""
    command = [sys.executable, "-m", "experiments.bench.gpu", f"--inside={part}"]
    environment = {**os.environ, "JAX_ENABLE_X64": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if part.endswith("-flag") and not smoke:  # a build without a GPU does not know the flag
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {FLAG}".strip()
    child = subprocess.Popen(
        command + ["--smoke"] * smoke, env=environment, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    late = threading.Timer(max(limit, 1.0), child.kill)
    late.start()
    assert child.stdout is not None
    rows: list[dict[str, Any]] = []
    for line in child.stdout:
        if not line.startswith("{"):
            print(line, end="", file=sys.stderr)
            continue
        rows.append({**json.loads(line), "part": part})
        print(line, end="", flush=True)
    code = child.wait()
    stopped = not late.is_alive()
    late.cancel()
    if code != 0:
        why = f"stopped after {limit:.0f} s" if stopped else f"exit code {code}"
        rows.append({"part": part, "cell": f"{part}/end", "error": why})
    return rows


COLUMNS = {
    "cell": "cell", "first_s": "first call", "median_s": "median", "over_floor": "over floor",
    "rounds": "rounds", "per_second": "solves a second", "worst": "differs by",
}  # fmt: skip


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return a Markdown table of measurements."""
    lines = ["| " + " | ".join(COLUMNS.values()) + " |", "|---|" + "--:|" * (len(COLUMNS) - 1)]
    for row in rows:
        if "cell" in row and "error" not in row:
            cells = [_said(key, row.get(key)) for key in COLUMNS]
            if row.get("part", "").endswith("-flag"):
                cells[0] += " (one launch)"
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _said(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key.endswith("_s"):
        return f"{1e3 * value:.3g} ms"
    return value if isinstance(value, str) else f"{value:.3g}"


def about_machine() -> dict[str, Any]:
    """Return what numbers depend on; needs JAX."""
    import jax
    import numpy as np

    device = jax.devices()[0]
    return {
        "cell": "machine",
        "device": f"{device.platform}: {device.device_kind}",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "flags": os.environ.get("XLA_FLAGS", ""),
    }


if __name__ == "__main__":
    sys.exit(main())
