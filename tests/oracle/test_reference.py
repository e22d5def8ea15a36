"""The oracles agree with one another, and the certificate refuses what is wrong."""

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from fabric.reference import (
    CAP,
    Problem,
    bottlenecks_exact,
    max_min_rates_by_levels,
    max_min_rates_by_rounds,
    max_min_rates_exact,
    max_min_rates_lp,
    violation,
)
from tests.oracle.problems import N_HOPS, N_PARTS, Drawn, drawn_problems


@pytest.fixture(scope="module")
def drawn() -> list[Drawn]:
    return list(drawn_problems(300))


def floats(rates: list) -> list[float]:
    return [float(rate) for rate in rates]


def test_linear_programs_give_the_exact_rates(drawn):
    for i, d in enumerate(drawn[:30]):
        # HiGHS holds bounds to 1e-10 of the largest; rates go down to a thousandth of that.
        np.testing.assert_allclose(
            max_min_rates_lp(d.problem), floats(d.exact), rtol=1e-8, atol=1e-12, err_msg=str(i)
        )


def test_both_orders_of_filling_give_the_exact_rates(drawn):
    for d in drawn:
        # What float64 loses on these problems; the solvers are held to ten times as much.
        np.testing.assert_allclose(max_min_rates_by_levels(d.problem), floats(d.exact), rtol=1e-13)
        filled, _ = max_min_rates_by_rounds(d.problem)
        np.testing.assert_allclose(filled, floats(d.exact), rtol=1e-13)


def test_exact_rates_have_bottlenecks_and_no_violation(drawn):
    for d in drawn:
        assert all(bottlenecks_exact(d.problem, d.exact))
        assert violation(d.problem, d.exact) == 0


@pytest.mark.parametrize("factor", [Fraction(999, 1000), Fraction(1001, 1000)])
def test_the_certificate_rejects_any_one_rate_that_is_off(drawn, factor):
    for d in drawn[:100]:
        for flow, rate in enumerate(d.exact):
            if rate == 0:
                continue
            off = [r * factor if f == flow else r for f, r in enumerate(d.exact)]
            assert violation(d.problem, off) > 1e-7


def test_the_certificate_rejects_full_links_shared_unfairly():
    problem = Problem.from_paths([10, 10], [[0], [0, 1], [1]])
    assert violation(problem, [5, 5, 5]) == 0
    assert violation(problem, [6, 4, 6]) == pytest.approx(1 / 3)


def test_the_certificate_rejects_impossible_rates():
    problem = Problem.from_paths([0, 2], [[0], [1], []], caps=[math.inf, math.inf, 3])
    assert violation(problem, [0, 2, 3]) == 0
    for wrong in (
        [1e-300, 2, 3],
        [-1, 2, 3],
        [0, math.nan, 3],
        [0, math.inf, 3],
        [0, 2],
        [0, 2, 2],
    ):
        assert violation(problem, wrong) >= 1 / 3


def test_a_flow_that_nothing_holds_is_infinite_by_every_oracle():
    problem = Problem.from_paths([4], [[0], []])
    want = [4, math.inf]
    assert max_min_rates_exact(problem) == want
    assert max_min_rates_lp(problem).tolist() == pytest.approx(want)
    assert max_min_rates_by_levels(problem).tolist() == want
    assert violation(problem, want) == 0
    assert violation(problem, [4, 1e300]) == math.inf


def test_two_levels_expand_to_the_sum_of_products_without_padding():
    # Flow 0 meets link 1 through both bundles: 1 * 1/2 + 2 * 1/4. Bundle 2 has no use.
    problem = Problem.from_arrays(
        capacity=[1, 1, 1],
        hop_flow=[0, 0, 1, 2], hop_bundle=[0, 1, 2, 3], hop_use=[1, 2, 1, 0],
        part_bundle=[0, 0, 1, 2, 3], part_link=[0, 1, 1, 2, 3], part_use=[0.5, 0.5, 0.25, 0, 0],
        n_flows=2, n_links=3, weights=[1, 1], caps=[math.inf, 5],
    )  # fmt: skip
    assert problem.uses == [[(0, Fraction(1, 2)), (1, Fraction(1))], []]
    assert problem.cap == [None, 5]
    assert bottlenecks_exact(problem, max_min_rates_exact(problem)) == [{1}, {CAP}]


def test_drawn_problems_hold_every_kind_at_one_shape(drawn):
    shapes = {(len(d.routes.hop_flow), len(d.routes.part_link)) for d in drawn}
    assert shapes == {(N_HOPS, N_PARTS)}
    kinds = {
        "weights": lambda d: len(set(d.problem.weight)) > 1,
        "capped flows": lambda d: any(s == {CAP} for s in bottlenecks_exact(d.problem, d.exact)),
        "flows on no link": lambda d: not all(d.problem.uses),
        "two bottlenecks": lambda d: any(len(s) > 1 for s in bottlenecks_exact(d.problem, d.exact)),
        "rate 0": lambda d: 0 in d.exact,
        "use above 1": lambda d: any(use > 1 for row in d.problem.uses for _, use in row),
        "entries of use 0": lambda d: 0 in d.hop_use or 0 in d.part_use,
        "wide bundles": lambda d: np.bincount(d.part_bundle).max() >= 4,
        "duplicate flows": lambda d: d.problem.uses[8] == d.problem.uses[9] != [],
        "a link in two bundles of a flow": lambda d: any(
            np.isin(d.part_bundle, d.hop_bundle[d.hop_flow == f]).sum() > len(row) + 2
            for f, row in enumerate(d.problem.uses)
        ),
    }
    rare = {kind: n for kind, has in kinds.items() if (n := sum(map(has, drawn))) < 10}
    assert not rare


def test_the_oracles_import_neither_jax_nor_numba_of_their_own():
    code = (
        "import sys, types\n"
        "package = types.ModuleType('fabric'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['fabric'] = package\n"
        "import fabric.reference as r\n"
        "r.max_min_rates_lp(r.Problem.from_paths([1], [[0]]))\n"
        "assert not {'jax', 'equinox', 'numba'} & set(sys.modules)\n"
    )
    import fabric

    subprocess.run([sys.executable, "-c", code, fabric.__path__[0]], check=True, timeout=60)
