"""JAX computes what it says: a fault of one release, which the project excludes.

jax and jaxlib 0.10.2 return wrong values on CPU for a jitted, vmapped matrix-vector product that
is then reduced (jax-ml/jax#39103); 0.10.1 and 0.11.2 are right.
"""

import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BROKEN = "0.10.2"


# The smallest row counts at which the broken release goes wrong, by type.
@pytest.mark.parametrize(("dtype", "rows"), [(np.float64, 16_385), (np.float32, 32_769)])
def test_squared_lengths_of_many_mapped_vectors_are_right(dtype, rows):
    along_x = np.arange(rows, dtype=dtype)
    vectors = np.zeros((rows, 3), dtype)
    vectors[:, 0] = along_x
    same = jnp.eye(3, dtype=dtype)

    def squared_length(vector):
        mapped = same @ vector
        return jnp.sum(mapped * mapped)

    with jax.default_device(jax.devices("cpu")[0]):
        got = jax.jit(jax.vmap(squared_length))(vectors)
    # One rounding in the square; the other two terms are 0.
    np.testing.assert_allclose(got, along_x * along_x, rtol=2 * np.finfo(dtype).eps)


def test_the_broken_release_is_excluded_wherever_jax_is_asked_for():
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    asked = [Requirement(line) for lines in lists for line in lines]
    asked = [requirement for requirement in asked if requirement.name == "jax"]
    assert len(asked) >= 2
    for requirement in asked:
        assert not requirement.specifier.contains(BROKEN)
        assert requirement.specifier.contains("0.10.1")
        assert requirement.specifier.contains("0.11.2")


def test_this_environment_has_a_sound_release():
    assert jax.__version__ != BROKEN
