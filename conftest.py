"""Settings of every test: float64, strict promotion, and where the reference data lie."""

import os
from pathlib import Path

import hypothesis
import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

hypothesis.settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)  # fmt: skip
hypothesis.settings.register_profile(
    "nightly", parent=hypothesis.settings.get_profile("ci"), derandomize=False, max_examples=500
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

SHARED = Path(__file__).resolve().parents[1] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference data that are not part of the project; tests that need them skip without."""
    if not SHARED.is_dir():
        pytest.skip("the reference data beside the checkout are absent")
    return SHARED


def pytest_make_parametrize_id(val: object, argname: str) -> None:
    """Refuse raw bytes as the name of a test: two processes may not make the same ones."""
    if isinstance(val, bytes):
        msg = f"Give the parameter set of `{argname}` an id, with `pytest.param(..., id=...)`."
        raise TypeError(msg)
