"""What `sharded` promises, on eight devices in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import fabric as fb
from fabric.solvers import _sharded
from tests.golden.instances import instance
from tests.programs import eight_devices

ROOT = Path(__file__).resolve().parents[2]


def test_eight_devices_give_the_rates_and_gradients_of_one():
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"
    }  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", eight_devices.__name__],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    assert run.stdout.split() == [check.__name__ for check in eight_devices.CHECKS]


def test_one_device_gives_the_plain_solution():
    mesh = jax.make_mesh((1,), ("hops",))
    routes = fb.Routes.from_paths([[0, 1], [0], []], n_links=2, caps=[9.0, 9.0, 3.0])
    solution = fb.sharded(fb.Network([10.0, 4.0]), routes, mesh)
    assert solution.rates.tolist() == [4.0, 6.0, 3.0]
    assert solution.bottleneck.tolist() == [1, 0, -1]
    assert solution.method == "rounds (devices: 1)"


def test_routes_without_a_hop_are_a_legal_problem():
    mesh = jax.make_mesh((1,), ("hops",))
    assert fb.sharded(fb.Network([1.0]), fb.Routes.from_paths([], 1), mesh).rates.shape == (0,)


def test_an_unknown_axis_is_named_with_those_there_are():
    mesh = jax.make_mesh((1,), ("hops",))
    routes = fb.Routes.from_paths([[0]], n_links=1)
    with pytest.raises(fb.ModelError, match=r"axis='hop'.* no axis of the mesh. Did you mean"):
        fb.sharded(fb.Network([1.0]), routes, mesh, "hop")


def test_an_unbounded_flow_is_an_error():
    mesh = jax.make_mesh((1,), ("hops",))
    routes = fb.Routes.from_paths([[0], []], n_links=1)
    with pytest.raises(fb.UnsolvedError, match=r"crosses no link and has no cap"):
        fb.sharded(fb.Network([1.0]), routes, mesh)


def test_what_is_no_mesh_is_refused_by_name():
    # Under test the types of public arguments are checked, and nothing else gets past them.
    with pytest.raises(fb.ModelError, match=r"mesh='hops'.* is no mesh .*`jax.make_mesh\("):
        _sharded._axes("hops", None)


def test_float32_is_as_precise_as_rounds_on_traced_routes():
    made = instance("ls-100k")
    capacity = np.array(made["capacity"], np.float64)
    routes = fb.Routes.from_csr(made["flow_ptr"], made["flow_links"], n_links=len(capacity))
    exact = fb.max_min_rates(fb.Network(capacity), routes).rates
    mesh = jax.make_mesh((1,), ("hops",))
    got = fb.sharded(fb.Network(capacity.astype(np.float32)), routes, mesh).rates
    np.testing.assert_allclose(got, exact, rtol=3e-5)
