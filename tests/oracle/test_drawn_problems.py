"""`max_min_rates` equals the exact rational oracle on 2,000 drawn problems, by every method."""

from functools import cache

import numpy as np
import pytest

import fabric as fb
from fabric.reference import violation
from tests.oracle.problems import Drawn, drawn_problems

N_PROBLEMS = 2_000


@cache
def problems() -> list[Drawn]:
    return list(drawn_problems(N_PROBLEMS))


@pytest.mark.parametrize("method", ["rounds", "compiled"])
def test_rates_equal_the_exact_rational_oracle(method):
    for i, drawn in enumerate(problems()):
        solution = fb.max_min_rates(drawn.network, drawn.routes, method=method)
        exact = [float(rate) for rate in drawn.exact]
        # No atol: a flow across a link of capacity 0 must get 0 and nothing near it.
        np.testing.assert_allclose(solution.rates, exact, rtol=1e-12, err_msg=f"problem {i}")


@pytest.mark.parametrize("method", ["rounds", "compiled"])
def test_both_certificates_accept_the_rates(method):
    for i, drawn in enumerate(problems()):
        solution = fb.max_min_rates(drawn.network, drawn.routes, method=method)
        assert fb.certify(drawn.network, drawn.routes, solution) <= 1e-9, f"problem {i}"
        assert violation(drawn.problem, np.asarray(solution.rates)) <= 1e-9, f"problem {i}"


@pytest.mark.parametrize("method", ["rounds", "compiled"])
def test_float32_rates_pass_both_certificates(method):
    for i, drawn in enumerate(problems()):
        capacity = drawn.capacity.astype(np.float32)
        network = fb.Network(capacity)
        solution = fb.max_min_rates(network, drawn.routes, method=method)
        # Eight links and at most ten rounds: a few ulp of 1.2e-7, magnified where a small
        # remainder is shared.
        assert fb.certify(network, drawn.routes, solution) <= 5e-6, f"problem {i}"
        rates = np.asarray(solution.rates)
        assert violation(drawn.problem_with(capacity), rates) <= 5e-6, f"problem {i}"
