"""Importing the package is silent, starts nothing, and loads nothing heavy."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "numba", "scipy.optimize", "networkx", "polars", "pydantic", "optax", "matplotlib", "typer",
    "rich", "yaml",
)  # fmt: skip


def said_by(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_import_prints_nothing_and_warns_of_nothing():
    assert said_by("import fabric") == ""


def test_import_starts_no_jax_backend():
    probe = "from jax._src.xla_bridge import backends_are_initialized as started\n"
    assert said_by(f"import fabric\n{probe}print(started())") == "False\n"
    # The probe can tell: an array starts one.
    assert said_by(f"import jax\njax.numpy.zeros(1)\n{probe}print(started())") == "True\n"


def test_import_changes_no_global_flag_of_jax():
    code = (
        "import jax\nbefore = dict(jax.config.values)\nimport fabric\n"
        "print([k for k, v in before.items() if jax.config.values[k] != v], len(before) > 50)"
    )
    assert said_by(code) == "[] True\n"


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    return set(said_by("import fabric, sys; print(*sorted(sys.modules))").split())


@pytest.mark.parametrize("module", HEAVY)
def test_import_leaves_heavy_packages_to_their_first_use(loaded, module):
    assert module not in loaded


def test_every_public_name_is_there_and_says_what_it_is():
    code = (
        "import fabric\n"
        "names = [n for n in dir(fabric) if not n.startswith('_')]\n"
        "print(len(names) > 10, [n for n in names if not getattr(fabric, n).__doc__])"
    )
    assert said_by(code) == "True []\n"
