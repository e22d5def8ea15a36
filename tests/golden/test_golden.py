"""The golden instances are the ones we mean, and every method gives their rates."""

import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import fabric as fb
from fabric.reference import (
    Problem,
    max_min_rates_by_levels,
    max_min_rates_by_rounds,
    max_min_rates_exact,
    violation,
)
from tests.golden.instances import DIGESTS, LARGE, MEDIUM, SMALL, SUMS, digest, instance, rates
from tests.golden.make import FACTS, facts

SHARED = Path(__file__).resolve().parents[3] / "shared"
EVERY = (*SMALL, *MEDIUM, *LARGE)
KNOWN = json.loads(FACTS.read_text())


@cache
def problem(name: str) -> Problem:
    return Problem.from_csr(**instance(name))


@cache
def expected(name: str) -> np.ndarray:
    """Return the rates of the reference data, or ours where those are absent or lack them."""
    known = rates(name, SHARED)
    return max_min_rates_by_rounds(problem(name))[0] if known is None else known


def solved(name: str, method: str, dtype: type = np.float64):
    made = instance(name)
    network = fb.Network(made["capacity"].astype(dtype))
    routes = fb.Routes.from_csr(made["flow_ptr"], made["flow_links"], n_links=len(made["capacity"]))
    return network, routes, fb.max_min_rates(network, routes, method=method)


@pytest.mark.parametrize("name", EVERY)
def test_the_generator_makes_the_instance_of_the_digest(name):
    assert digest(instance(name)) == DIGESTS[name] == KNOWN[name]["digest"]


def test_digests_and_sums_are_those_of_the_reference_data(shared):
    manifest = json.loads((shared / "golden" / "maxmin" / "manifest.json").read_text())
    assert {name: row["sha"] for name, row in manifest.items()}.items() <= DIGESTS.items()
    assert {name: row["sum"] for name, row in manifest.items()}.items() <= SUMS.items()


@pytest.mark.parametrize("name", [*SMALL, *MEDIUM])
def test_the_exact_oracle_finds_the_recorded_facts(name):
    exact = max_min_rates_exact(problem(name))
    assert {key: KNOWN[name][key] for key in facts(exact)} == facts(exact)
    assert violation(problem(name), exact) == 0


@pytest.mark.parametrize("name", EVERY)
def test_recorded_sums_agree_with_those_found_by_others(name):
    # Their sums are of rates rounded to float64, added in float64.
    assert math.isclose(KNOWN[name]["sum"], SUMS[name], rel_tol=1e-12)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "chain-1k"])
def test_the_rates_of_the_reference_data_have_the_recorded_facts(name, shared):
    known = rates(name, shared)
    assert known is not None
    quantiles = [np.quantile(known, float(q), method="lower") for q in KNOWN[name]["quantiles"]]
    # They come from float64 filling, which is off by up to 2e-14.
    np.testing.assert_allclose(quantiles, list(KNOWN[name]["quantiles"].values()), rtol=1e-13)
    np.testing.assert_allclose(known.sum(), KNOWN[name]["sum"], rtol=1e-13)


@pytest.mark.parametrize("name", SMALL)
def test_both_orders_of_filling_give_the_exact_rates(name):
    exact = [float(rate) for rate in max_min_rates_exact(problem(name))]
    filled, rounds = max_min_rates_by_rounds(problem(name))
    np.testing.assert_allclose(filled, exact, rtol=1e-13)
    np.testing.assert_allclose(max_min_rates_by_levels(problem(name)), exact, rtol=1e-13)
    assert rounds == KNOWN[name]["rounds"]


@pytest.mark.parametrize("method", ["rounds", "compiled"])
@pytest.mark.parametrize("name", EVERY)
def test_every_method_gives_the_golden_rates_and_certifies_them(name, method):
    network, routes, solution = solved(name, method)
    np.testing.assert_allclose(solution.rates, expected(name), rtol=1e-12)
    assert fb.certify(network, routes, solution) <= 1e-9
    assert math.isclose(math.fsum(np.asarray(solution.rates)), KNOWN[name]["sum"], rel_tol=1e-12)


@pytest.mark.parametrize("method", ["rounds", "compiled"])
@pytest.mark.parametrize("name", EVERY)
def test_float32_rates_pass_the_certificate_and_stay_near_the_golden_rates(name, method):
    network, routes, solution = solved(name, method, np.float32)
    assert np.asarray(solution.rates).dtype == np.float32
    # Up to a hundred rounds subtract from the same remainder, each off by half an ulp.
    assert fb.certify(network, routes, solution) <= 5e-6
    np.testing.assert_allclose(solution.rates, expected(name), rtol=5e-5)
