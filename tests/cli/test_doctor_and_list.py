"""What `fabric doctor` and `fabric list` say, and every verb where JAX does not start."""

import importlib.metadata
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from fabric import UnsolvedError, __version__
from fabric.cli import _answer, _doctor
from tests.cli.conftest import SMALL

CHECKS = {"devices", "precision", "jax", "solver", "import name"}


@pytest.fixture
def alone(monkeypatch):
    """No other distribution installs the name, whatever this environment holds."""
    monkeypatch.setattr(
        importlib.metadata, "packages_distributions", lambda: {"fabric": ["fabric-solver"]}
    )


@pytest.mark.usefixtures("alone")
def test_a_sound_installation_is_code_0(fabric):
    answer = fabric("doctor", "--format", "json").json
    assert answer["schema"] == "fabric.doctor/1"
    assert answer["ok"]
    assert {check["name"] for check in answer["checks"]} == CHECKS
    assert answer["versions"]["jax"]
    assert answer["precision"] == "float64"
    assert answer["devices"]


@pytest.mark.usefixtures("alone")
def test_text_ends_with_the_verdict(fabric):
    assert fabric("doctor").lines[-1] == "all is well"


def test_a_clash_of_names_is_code_4_with_the_next_step(fabric, monkeypatch):
    monkeypatch.setattr(
        importlib.metadata,
        "packages_distributions",
        lambda: {"fabric": ["fabric", "fabric-solver"]},
    )
    ran = fabric("doctor")
    assert ran.code == UnsolvedError.exit_code
    assert "pip uninstall fabric" in ran.out
    assert "failed: 'import name'" in ran.out


@pytest.mark.usefixtures("alone")
def test_wrong_products_of_jax_are_found(fabric, monkeypatch):
    monkeypatch.setattr(_doctor, "wrong_rows", lambda rows, kind: int(kind == "float32"))
    ran = fabric("doctor")
    assert ran.code == UnsolvedError.exit_code
    assert "1 of 32,769 rows in float32" in ran.out
    assert "jax!=0.10.2" in ran.out


@pytest.mark.usefixtures("alone")
def test_a_check_that_breaks_is_a_finding_and_no_traceback(fabric, monkeypatch):
    def broken(*_: object) -> int:
        raise OSError("no device")

    monkeypatch.setattr(_doctor, "wrong_rows", broken)
    ran = fabric("doctor")
    assert ran.code == UnsolvedError.exit_code
    assert "OSError: no device" in ran.out


@pytest.mark.usefixtures("alone")
def test_no_device_is_the_one_finding(fabric, monkeypatch):
    def absent() -> None:
        raise RuntimeError("Unable to initialize backend 'cuda'\nand more")

    monkeypatch.setattr(jax, "devices", absent)
    ran = fabric("doctor")
    assert ran.code == UnsolvedError.exit_code
    assert "devices: none" in ran.out
    assert "Unable to initialize backend 'cuda' [" in ran.out
    assert "Unset JAX_PLATFORMS" in ran.out
    assert "failed: 'devices'\n" in ran.out


def test_a_device_that_does_not_start_is_one_message(refused, monkeypatch):
    def absent(*_: object) -> None:
        raise AssertionError

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr(jax, "devices", absent)
    monkeypatch.setattr(_answer, "max_min_rates", absent)
    message = refused("solve", SMALL, "--pattern", "ring")
    assert "JAX_PLATFORMS='cuda'" in message
    assert "Unset JAX_PLATFORMS" in message


@pytest.mark.parametrize(("verb", "code"), [("doctor", 4), ("solve", 2)])
def test_a_platform_that_jax_does_not_know_is_no_traceback(verb, code):
    args = [SMALL, "--pattern", "ring"] if verb == "solve" else []
    ran = subprocess.run(
        [sys.executable, "-m", "fabric", verb, *args], capture_output=True, text=True, check=False,
        env=os.environ | {"JAX_PLATFORMS": "nonsense"},
    )  # fmt: skip
    assert ran.returncode == code
    assert "Unset JAX_PLATFORMS" in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(("rows", "kind"), [(16_385, "float64"), (32_769, "float32")])
def test_products_followed_by_a_sum_are_right_under_jit(rows, kind):
    assert _doctor.wrong_rows(rows, kind) == 0


def test_a_wrong_row_would_be_counted(monkeypatch):
    def spoiled(function):
        def run(values):
            result = np.array(jax.vmap(lambda v: (v * v).sum())(values))
            result[-1] += 1
            return result

        return run

    monkeypatch.setattr(jax, "jit", spoiled)
    assert _doctor.wrong_rows(100, "float64") == 1


def test_list_names_all_there_is(fabric):
    answer = fabric("list", "--format", "json").json
    assert answer["schema"] == "fabric.list/1"
    assert {"fat_tree", "rail_optimized"} <= {row["name"] for row in answer["builders"]}
    assert set(answer["patterns"]) >= {"all-to-all", "permutation", "incast", "ring"}
    assert {row["name"] for row in answer["routings"]} >= {"ecmp", "spray"}
    assert "ibnetdiscover" in answer["formats"]["read"]
    assert answer["methods"] == ["auto", "rounds", "compiled", "quotient"]
    (fat_tree,) = (row for row in answer["builders"] if row["name"] == "fat_tree")
    assert fat_tree["parameters"][0] == {"name": "k", "required": True, "default": None}


def test_list_in_text_fits_a_screen(fabric):
    ran = fabric("list")
    assert len(ran.lines) <= 40
    assert "rail_optimized" in ran.out
    assert "\x1b" not in ran.out


@pytest.mark.parametrize(
    ("kind", "name", "number", "value", "unit"),
    [
        ("gpu", "h100", "peak.bf16", 989e12, "FLOP/s"),
        ("server", "dgx-h100", "link_rate", 25e9, "byte/s"),
        ("switch", "qm9700", "ports_per_module", 2, ""),
        ("nic", "cx7", "rate", 50e9, "byte/s"),
        ("profile", "megatron-a100", "latency.nic_step", 2.7e-6, "s"),
    ],
    ids=["gpu", "server", "switch", "nic", "profile"],
)
def test_list_shows_the_numbers_of_a_part_with_their_sources(
    fabric, kind, name, number, value, unit
):
    answer = fabric("list", kind, name, "--format", "json").json
    assert answer["schema"] == "fabric.part/1"
    (row,) = [row for row in answer["numbers"] if row["name"] == number]
    assert (row["value"], row["unit"]) == (pytest.approx(value), unit)
    assert all(row["kind"] and row["source"] for row in answer["numbers"])
    ran = fabric("list", kind, name)
    assert max(map(len, ran.lines)) <= 100
    words = " ".join(ran.out.split())
    assert " ".join(f"{row['kind']}: {row['source']}".split()) in words


def test_list_shows_the_shape_of_a_model_and_its_source(fabric):
    answer = fabric("list", "model", "llama-3.1-70b", "--format", "json").json
    assert answer["settings"]["parameters"] == 70_553_706_496
    assert "Llama 3 Herd" in answer["source"]
    assert "70,553,706,496" in fabric("list", "model", "llama-3.1-70b").out


def test_list_of_a_kind_is_its_names_and_what_is_unknown_is_refused(fabric, refused):
    assert fabric("list", "nics").lines == ["cx6", "cx7", "cx8"]
    assert "Did you mean 'h100-sxm'?" in refused("list", "gpu", "h101")
    assert "Did you mean 'gpu'?" in refused("list", "gpuu")


def test_version_is_printed(fabric):
    ran = fabric("--version")
    assert (ran.code, ran.out) == (0, f"fabric-solver {__version__}\n")
