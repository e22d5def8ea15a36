"""`fabric doctor`: is this installation sound, and if not, what to do."""

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import typer

from fabric._errors import UnsolvedError, some
from fabric.cli._output import FORMATS, Format, Output, check_output, emit, known
from fabric.cli._units import counted, listed

DISTRIBUTION = "fabric-solver"
_PACKAGES = (DISTRIBUTION, "jax", "jaxlib", "numba", "numpy", "scipy", "equinox")
_TOLERANCE = 1e-12


def doctor(format: Format = "text", output: Output = None) -> None:
    """Check versions, devices, precision, JAX itself, the solver, and name clashes."""
    known("--format", format, FORMATS)
    check_output(output)
    answer = examine()
    emit(answer, _text, format, output)
    if not answer["ok"]:
        raise typer.Exit(UnsolvedError.exit_code)


def examine() -> dict[str, Any]:
    """Return the state of this installation, schema `fabric.doctor/1`."""
    import jax

    names: list[str] = []
    checks = [_check("devices", lambda: _devices(names))]
    # Without a device these would only say the same again.
    if checks[0]["ok"]:
        checks += [
            _check("precision", precision),
            _check("jax", jax_is_right),
            _check("solver", solver_is_right),
        ]
    checks.append(_check("import name", import_name_is_ours))
    return {
        "schema": "fabric.doctor/1",
        "ok": all(check["ok"] for check in checks),
        "versions": {"python": platform.python_version()}
        | {package: _version(package) for package in _PACKAGES},
        "devices": names,
        "precision": "float64" if jax.config.jax_enable_x64 else "float32",  # pyright: ignore[reportAttributeAccessIssue]
        "checks": checks,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        if package != DISTRIBUTION:
            return None
        from fabric._version import __version__

        return f"{__version__} (not installed, run from a checkout)"


def _check(name: str, run: Callable[[], tuple[bool, str, str]]) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        ok, found, step = run()
    # Whatever breaks here is the finding that the user came for.
    except Exception as error:
        ok, found = False, f"failed with {type(error).__name__}: {error}"
        step = "Install into a fresh environment: `pip install fabric-solver`."
    seconds = round(time.perf_counter() - start, 3)
    return {"name": name, "ok": ok, "found": found, "next": "" if ok else step, "seconds": seconds}


def _devices(names: list[str]) -> tuple[bool, str, str]:
    """Collect the names of the devices, and return whether there is one."""
    import jax

    if fault := no_device():
        return False, *fault
    names += [f"{device.platform}: {device.device_kind}" for device in jax.devices()]
    return True, counted(len(names), "device"), ""


def no_device() -> tuple[str, str] | None:
    """Return why JAX has no device to compute on and what to do, or None if it has one."""
    import jax

    try:
        jax.devices()
    # JAX raises whatever its plugins raise, a bare `AssertionError` where none is there.
    except Exception as error:
        asked = os.environ.get("JAX_PLATFORMS")
        because = f" with JAX_PLATFORMS='{asked}'" if asked else ""
        why = str(error).partition("\n")[0] or "this platform is not installed or has no device"
        step = (
            "Unset JAX_PLATFORMS, or set it to cpu, to compute on the CPU; for a GPU "
            "`pip install 'fabric-solver[cuda]'`."
        )
        return f"JAX does not start{because}: {why}", step
    return None


def precision() -> tuple[bool, str, str]:
    """Return whether JAX computes in float64 here: (ok, what was found, next step)."""
    import jax.numpy as jnp

    one = jnp.asarray(1.0, "float64") + 2.0**-40
    ok = one.dtype == np.float64 and float(one) != 1.0
    step = "Unset JAX_ENABLE_X64 and JAX_DEFAULT_DTYPE_BITS, or use another device."
    return ok, f"sums are {one.dtype}", step


def jax_is_right() -> tuple[bool, str, str]:
    """Return whether JAX on this machine computes what jax-ml/jax#39103 got wrong on a CPU.

    Under `jit` a row-wise matrix-vector product followed by a sum lost the last row, first at
    16,385 rows of float64 and 32,769 rows of float32.
    """
    wrong = [
        f"{count:,} of {rows:,} rows in {kind}"
        for rows, kind in ((16_385, "float64"), (32_769, "float32"))
        if (count := wrong_rows(rows, kind))
    ]
    if wrong:
        step = (
            "JAX 0.10.2 is known to do this (jax-ml/jax#39103). Install another: "
            "`pip install 'jax!=0.10.2'`."
        )
        return False, f"wrong values under jit: {', '.join(wrong)}", step
    return True, "products and sums under jit are right", ""


def wrong_rows(rows: int, kind: str) -> int:
    """Return how many squared lengths of small whole vectors come out wrong under `jit`."""
    import jax
    import jax.numpy as jnp

    vectors = np.zeros((rows, 3), kind)
    # Below 1,000 every square is exact in float32 too, so that any difference is an error.
    vectors[:, 0] = np.arange(rows) % 1_000
    identity = jnp.eye(3, dtype=kind)
    lengths = jax.jit(jax.vmap(lambda vector: jnp.sum(jnp.square(identity @ vector))))
    return int(np.sum(np.asarray(lengths(vectors)) != np.square(vectors[:, 0])))


def solver_is_right() -> tuple[bool, str, str]:
    """Return whether both methods give the exact rates of a small problem, and certify them."""
    from fabric.network import Network, Routes
    from fabric.reference import Problem, max_min_rates_exact
    from fabric.solvers import certify, max_min_rates

    rng = np.random.Generator(np.random.PCG64(7))
    n_links, n_flows = 24, 60
    capacity = rng.integers(1, 50, n_links).astype(float)
    paths = [
        rng.choice(n_links, rng.integers(1, 5), replace=False).tolist() for _ in range(n_flows)
    ]
    exact = max_min_rates_exact(Problem.from_paths([Fraction(int(c)) for c in capacity], paths))
    want = np.array([float(rate) for rate in exact])
    network, routes = Network(capacity), Routes.from_paths(paths, n_links=n_links)
    worst: dict[str, float] = {}
    for method in ("rounds", "compiled"):
        solution = max_min_rates(network, routes, method=method)
        error = float(np.max(np.abs(np.asarray(solution.rates) / want - 1)))
        worst[method] = max(error, certify(network, routes, solution))
    bad = [
        f"{method} is off by {error:.1e}" for method, error in worst.items() if error > _TOLERANCE
    ]
    step = "Install the tested versions: `pip install -c constraints.txt fabric-solver`."
    good = f"rounds and compiled equal exact rationals on {n_flows} flows"
    return not bad, "; ".join(bad) or f"{good} ({max(worst.values()):.0e})", step


def import_name_is_ours() -> tuple[bool, str, str]:
    """Return whether no other installed distribution brings a package called `fabric`."""
    owners = set(importlib.metadata.packages_distributions().get("fabric", []))
    others = sorted(owners - {DISTRIBUTION})
    if others:
        step = (
            f"Uninstall one and install the other again, or keep them in two environments: "
            f"`pip uninstall {others[0]}`."
        )
        return False, f"{some(others)} also installs a package called `fabric`", step
    return True, "no other distribution installs a package called `fabric`", ""


def _text(answer: dict[str, Any]) -> list[str]:
    versions = answer["versions"]
    lines = [f"fabric-solver {versions[DISTRIBUTION]}, Python {versions['python']}"]
    others = (f"{name} {versions[name] or 'absent'}" for name in _PACKAGES[1:])
    lines.append(f"  {', '.join(others)}")
    lines.append(
        f"  devices: {listed(answer['devices'], 4) or 'none'}; precision {answer['precision']}"
    )
    lines.append("checks")
    for check in answer["checks"]:
        state = "ok  " if check["ok"] else "FAIL"
        lines.append(f"  {state}  {check['name']:12} {check['found']} [{check['seconds']:.1f} s]")
        if check["next"]:
            lines.append(f"        {'':12} {check['next']}")
    failed = [check["name"] for check in answer["checks"] if not check["ok"]]
    lines.append(f"failed: {some(failed)}" if failed else "all is well")
    return lines
